package spill

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
)

// run is strides that were written together, partition by partition.
type run struct {
	layout layout
	first  int      // partition
	pages  []page   // of the partitions from first on
	pieces []*piece // without their strides
}

// page is the blocks of one partition of a run, which follow each other in the file.
type page struct {
	at, bytes int64 // in the file
	raw       int64 // bytes of the rows, about what they take in memory
	extent    extent
	given     bool // back to the disk
}

// smallDict is the most bytes of a dictionary that stays in memory while its codes are on
// disk.
const smallDict = 64 << 10

// newLayout returns the layout of strides that are written together.
func newLayout(schema *gpu.Schema, pieces []*piece) layout {
	lay := layout{schema: schema, dicts: make([]*gpu.Dictionary, schema.Len()), valid: make([]bool, schema.Len())}
	for i := range schema.Fields {
		dict := pieces[0].stride.Cols[i].Dict
		one := dict != nil && dict.Values.Bytes() <= smallDict
		for _, x := range pieces {
			c := x.stride.Cols[i]
			one = one && c.Dict == dict
			lay.valid[i] = lay.valid[i] || c.Valid != nil
		}
		if one {
			lay.dicts[i] = dict
			dict.Values.Retain()
		}
	}
	return lay
}

func (lay *layout) release() {
	for _, d := range lay.dicts {
		if d != nil {
			d.Values.Release()
		}
	}
	lay.dicts = nil
}

// write writes pieces to disk as a run, and releases their strides. After an error there is no
// run, and the pieces are as they were.
func (p *Partitions) write(pieces []*piece, fromHost bool) (err error) {
	s := p.store
	if p.file == nil {
		f, err := s.file()
		if err != nil {
			return err
		}
		p.file = f
	}
	r := &run{layout: newLayout(p.schema, pieces), first: pieces[0].first, pieces: slices.Clone(pieces)}
	last := 0
	for _, x := range pieces {
		r.first, last = min(r.first, x.first), max(last, x.last())
	}
	w := &writer{Partitions: p, at: p.end}
	w.Writer = bufio.NewWriterSize(io.NewOffsetWriter(p.file, p.end), 1<<20)
	defer func() {
		if err != nil {
			r.layout.release()
			p.disk.Unreserve(w.reserved)
			_ = p.file.Truncate(p.end)
			err = fmt.Errorf("spill %s to %s: %w", p.name, p.file.Name(), err)
		}
	}()
	b := s.scratch.Get().(*block)
	defer s.scratch.Put(b)
	p.mu.Lock()
	rows := slices.Clone(p.rows)
	p.mu.Unlock()
	for i := r.first; i <= last; i++ {
		g := page{at: w.at, extent: extent{bytes: make([]int64, p.schema.Len())}}
		for n, x := range pieces {
			if rows[i] == 0 { // dropped
				break
			}
			if from, to := x.within(i, i+1); from < to {
				if err := w.rows(b, r, &g, n, from, to); err != nil {
					return err
				}
			}
		}
		g.bytes = w.at - g.at
		r.pages = append(r.pages, g)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	p.moved[diskTier].add(w.at - p.end)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = w.at
	p.runs = append(p.runs, r)
	p.pieces = slices.DeleteFunc(p.pieces, func(x *piece) bool { return slices.Contains(pieces, x) })
	for _, x := range pieces {
		x.stride.Release()
		x.stride, x.at = nil, diskTier
		if fromHost {
			p.moved[hostTier].now.Add(-x.bytes)
		}
	}
	return nil
}

// writer writes the blocks of a run.
type writer struct {
	*bufio.Writer
	*Partitions
	at       int64
	reserved int64
}

// rows writes rows [from, to) of a piece of the run to a page.
func (w *writer) rows(b *block, r *run, g *page, n, from, to int) error {
	x := r.pieces[n]
	step := max(1, int(blockBytes/max(1, x.bytes/int64(x.stride.Rows))))
	for ; from < to; from += step {
		upto := min(from+step, to)
		data, err := b.encode(&r.layout, x.stride, n, from, upto, w.store.opt.Compress)
		if err != nil {
			return err
		}
		if err := w.disk.Reserve(int64(len(data))); err != nil {
			return err
		}
		w.reserved += int64(len(data))
		if _, err := w.Write(data); err != nil {
			return err
		}
		w.at += int64(len(data))
		g.raw += int64(len(b.raw))
		g.extent.rows += int64(upto - from)
		for i, c := range x.stride.Cols {
			g.extent.bytes[i] += stringBytes(&r.layout, i, c, from, upto)
		}
	}
	return nil
}

// stringBytes returns the bytes of the strings of rows [from, to) of column i as they are
// written; 0 for other columns.
func stringBytes(lay *layout, i int, c gpu.Column, from, to int) (n int64) {
	switch {
	case !c.Type.IsVar() || lay.dicts[i] != nil:
		return 0
	case c.Dict == nil:
		offsets := gpu.Values[int32](c.Offsets, c.Len+1)
		return int64(offsets[to] - offsets[from])
	}
	for r := from; r < to; r++ {
		if c.IsValid(r) {
			n += int64(len(c.VarValue(r)))
		}
	}
	return n
}

// readBytes is about the most bytes that are read into one stride.
const readBytes = 32 << 20

// read takes the rows of a run in partitions [from, to), without those of pieces that are read.
func (p *Partitions) read(ctx context.Context, q gpu.Queue, l *gpu.Lease, r *run, from, to int, read map[*piece]bool, take func(*gpu.Stride) error) error {
	from, to = max(from, r.first)-r.first, min(to-r.first, len(r.pages))
	for from < to {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		all := page{at: r.pages[from].at}
		for begin := from; from < to; from++ {
			g := r.pages[from]
			sum := extent{rows: all.extent.rows, bytes: slices.Clone(all.extent.bytes)}
			sum.add(g.extent)
			if from > begin && (all.raw+g.raw > readBytes || !sum.fits()) {
				break
			}
			all.extent, all.raw, all.bytes = sum, all.raw+g.raw, all.bytes+g.bytes
		}
		if all.extent.rows == 0 {
			continue
		}
		s, err := p.readPage(l, r, all, read)
		if err != nil {
			return err
		}
		if s.Rows == 0 {
			s.Release()
			continue
		}
		if s, err = p.upload(q, l, s); err != nil {
			return err
		}
		if err := take(s); err != nil {
			return err
		}
	}
	return nil
}

// readPage reads a page into host memory, without the rows of pieces that are read.
func (p *Partitions) readPage(l *gpu.Lease, r *run, g page, read map[*piece]bool) (_ *gpu.Stride, err error) {
	if p.store.discrete() {
		l = p.owner.lease
	}
	fail := func(err error) error {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errDamaged
		}
		return fmt.Errorf("%s: read what was spilled to %s, %d bytes at byte %d: %w", p.name, p.file.Name(), g.bytes, g.at, err)
	}
	if !g.extent.fits() {
		return nil, fail(errors.New("the rows of a partition do not fit one stride"))
	}
	a, err := newAssembly(l, &r.layout, g.extent)
	if err != nil {
		return nil, err
	}
	a.skip = func(n int) bool { return n >= len(r.pieces) || read[r.pieces[n]] }
	b := p.store.scratch.Get().(*block)
	defer p.store.scratch.Put(b)
	file := bufio.NewReaderSize(io.NewSectionReader(p.file, g.at, g.bytes), 256<<10)
	for left := g.bytes; left > 0; {
		n, err := b.decode(file, left, &r.layout, a)
		if err != nil {
			a.stride.Release()
			return nil, fail(err)
		}
		left -= n
	}
	p.moved[diskTier].out.Add(g.bytes)
	return a.done(), nil
}

// punch gives the disk of partitions [from, to) of a run back to the file system. The caller
// holds the lock.
func (p *Partitions) punch(r *run, from, to int) {
	var at, n int64 // a hole
	hole := func() {
		if n > 0 {
			// Where it cannot be done, the file keeps the space until it is closed.
			_ = unix.Fallocate(int(p.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
			p.disk.Unreserve(n)
			p.moved[diskTier].now.Add(-n)
		}
		n = 0
	}
	for i := max(from, r.first); i < min(to, r.first+len(r.pages)); i++ {
		g := &r.pages[i-r.first]
		if g.given {
			continue
		}
		if g.given = true; at+n != g.at {
			hole()
			at = g.at
		}
		n += g.bytes
	}
	hole()
}
