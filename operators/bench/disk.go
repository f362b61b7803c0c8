package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/spill"
)

const (
	// diskPartitions is the number of partitions of the rows that the benchmark disk writes.
	diskPartitions = 64
	// diskBlock is the size of the writes and reads that measure the folder itself.
	diskBlock = 4 << 20
)

// disk stores more rows of 16 bytes than fit memory, like an operator that spills, and reads them
// again, in 64 partitions. Only rows that went to disk count. The files are in spill.DefaultDir.
// The bound is the rate of this folder: a file of the same size is written and then read in blocks
// of 4 MiB, without the page cache if the file system supports this. Rows use the page cache; if
// they fit it, they are faster than the disk. The bound of a case refers to the bytes that it
// moved, which LZ4 reduces.
func (b *bench) disk() error {
	write, read, err := b.folder()
	if err != nil {
		return err
	}
	inputs, offsets, err := b.ordered(min(b.rows, b.dev.StrideRows(16)))
	if err != nil {
		return err
	}
	defer inputs.Release()
	for _, compress := range []bool{false, true} {
		name := "blocks as they are"
		if compress {
			name = "blocks by LZ4"
		}
		var writes, reads []time.Duration
		var stats spill.TierStats
		for range b.runs {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			w, r, st, err := b.outAndIn(inputs, offsets, compress)
			if err != nil {
				return err
			}
			writes, reads, stats = append(writes, w), append(reads, r), st
		}
		for _, x := range []struct {
			what  string
			took  time.Duration
			bytes int64
			rate  float64
		}{
			{"write, ", median(writes), stats.In, write},
			{"read, ", median(reads), stats.Out, read},
			{"both, ", median(writes) + median(reads), stats.In + stats.Out,
				float64(stats.In+stats.Out) / (float64(stats.In)/write + float64(stats.Out)/read)},
		} {
			b.each(Result{Benchmark: b.name, Case: x.what + name, Rows: int64(b.rows), Bytes: x.bytes, Time: x.took,
				Wall: x.took, Runs: b.runs, Bound: "disk", BoundRate: x.rate})
		}
	}
	return nil
}

// ordered makes a stride of n rows in host memory, in order of partition.
func (b *bench) ordered(n int) (s *gpu.Stride, offsets []int, err error) {
	s = &gpu.Stride{Schema: row, Rows: n}
	for range row.Fields {
		data, err := b.h.Alloc(int64(n) * 8)
		if err != nil {
			s.Release()
			return nil, nil, err
		}
		s.Cols = append(s.Cols, gpu.Column{Type: gpu.Of(gpu.Int64), Len: n, Data: data})
	}
	keys, payload := gpu.Values[uint64](s.Cols[0].Data, n), gpu.Values[uint64](s.Cols[1].Data, n)
	for i := range n {
		keys[i], payload[i] = uint64(i)*keyFactor, uint64(i)
	}
	for p := range diskPartitions + 1 {
		offsets = append(offsets, n*p/diskPartitions)
	}
	return s, offsets, nil
}

// outAndIn writes the rows of the benchmark to disk and reads them again.
func (b *bench) outAndIn(input *gpu.Stride, offsets []int,
	compress bool) (write, read time.Duration, _ spill.TierStats, err error) {
	store := spill.NewStore(b.dev, spill.Options{Compress: compress})
	p := store.NewPartitions("rows", b.l, row, diskPartitions)
	begin := time.Now()
	for rows := 0; rows < b.rows && err == nil; rows += input.Rows {
		var s *gpu.Stride
		if s, err = b.fresh(input); err == nil {
			err = p.Append(s, 0, offsets)
		}
	}
	write = time.Since(begin)
	begin = time.Now()
	rows, want := int64(0), p.Rows(0, diskPartitions)
	if err == nil {
		err = b.readBack(p, &rows)
	}
	read = time.Since(begin)
	stats := store.Stats(b.l).Disk
	err = errors.Join(err, p.Close(), store.Close())
	switch {
	case err != nil:
	case rows != want || rows < int64(b.rows):
		err = fmt.Errorf("%w: %d rows, want %d", ErrWrong, rows, want)
	case stats.In == 0:
		err = ErrNoSpill
	}
	return write, read, stats, err
}

// fresh returns a copy of a stride in device memory.
func (b *bench) fresh(input *gpu.Stride) (*gpu.Stride, error) {
	if b.dev.Budget() != b.dev.HostBudget() {
		return b.q.Upload(b.l, input.Retain())
	}
	s := &gpu.Stride{Schema: input.Schema, Rows: input.Rows}
	for _, c := range input.Cols {
		data, err := b.l.Alloc(c.Data.Size())
		if err != nil {
			s.Release()
			return nil, err
		}
		copy(data.Bytes(), c.Data.Bytes())
		c.Data = data
		s.Cols = append(s.Cols, c)
	}
	return s, nil
}

// readBack reads partition by partition.
func (b *bench) readBack(p *spill.Partitions, rows *int64) error {
	var ranges []spill.Range
	for i := range diskPartitions {
		ranges = append(ranges, spill.Range{Partitions: p, Span: spill.Span{From: i, To: i + 1}})
	}
	r := spill.NewReader(b.ctx, b.l, ranges)
	defer r.Close()
	for i := range ranges {
		if err := r.Next(b.q, func(s *gpu.Stride, _ int) error {
			*rows += int64(s.Rows)
			s.Release()
			return nil
		}); err != nil {
			return err
		}
		p.Drop(i, i+1)
	}
	return nil
}

// folder measures the rates of sequential writes and reads in the spill folder, in bytes per
// second.
func (b *bench) folder() (write, read float64, err error) {
	dir := spill.DefaultDir()
	fail := func(err error) (float64, float64, error) {
		return 0, 0, fmt.Errorf("measure the disk of %s: %w; choose another folder by TMPDIR", dir, err)
	}
	f, err := os.CreateTemp(dir, "gstream-bench-*")
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fail(err)
	}
	// The page cache is used if the file system requires it, as tmpfs does.
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	block, err := unix.Mmap(-1, 0, diskBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		return fail(err)
	}
	defer unix.Munmap(block)
	for i := range block {
		block[i] = byte(i * i >> 8)
	}
	size := max(diskBlock, int64(b.rows)*16/diskBlock*diskBlock)
	rate := func(one func(at int64) error) (float64, error) {
		begin := time.Now()
		for at := int64(0); at < size; at += diskBlock {
			if err := errors.Join(b.ctx.Err(), one(at)); err != nil {
				return 0, err
			}
		}
		return float64(size) / time.Since(begin).Seconds(), nil
	}
	if write, err = rate(func(at int64) error { _, err := f.WriteAt(block, at); return err }); err != nil {
		return fail(err)
	}
	if read, err = rate(func(at int64) error {
		_, err := f.ReadAt(block, at)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}); err != nil {
		return fail(err)
	}
	return write, read, nil
}
