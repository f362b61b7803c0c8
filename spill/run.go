package spill

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
)

// run has strides that were written together, ordered by partition.
type run struct {
	layout layout
	first  int      // partition
	pages  []page   // of the partitions from first on, and the end of the last
	texts  []int32  // for each page and column of layout.texts, the bytes of the strings
	pieces []*piece // without their strides
}

// page has the blocks of one partition of a run, which are contiguous in the file up to the next
// page. It is small, because pages stay in memory outside of the budget, and a sort has a million
// of them for some 30 GB.
type page struct {
	at    int64 // in the file
	raw   int64 // bytes of the blocks, an estimate of their size in memory
	rows  int32
	seen  bool // it was read
	given bool // its disk space was released
}

// partitions returns the number of partitions of the run.
func (r *run) partitions() int { return len(r.pages) - 1 }

// bytes returns the bytes of page i in the file.
func (r *run) bytes(i int) int64 { return r.pages[i+1].at - r.pages[i].at }

// textsOf returns the bytes of the strings of page i.
func (r *run) textsOf(i int) []int32 {
	n := len(r.layout.texts)
	return r.texts[i*n : (i+1)*n]
}

// addTo adds page i to the sizes of pages.
func (r *run) addTo(e *extent, i int) {
	g := &r.pages[i]
	e.rows, e.raw = e.rows+int64(g.rows), e.raw+g.raw
	if e.bytes == nil {
		e.bytes = make([]int64, len(r.layout.texts))
	}
	for k, n := range r.textsOf(i) {
		e.bytes[k] += int64(n)
	}
}

// errTooLarge is the error of a page that does not fit one stride: its rows have one value, or
// should have been partitioned further.
var errTooLarge = gpu.Exceeded("the rows of a partition do not fit one stride")

// smallDict is the maximum size in bytes of a dictionary that stays in memory while its codes are
// on disk.
const smallDict = 64 << 10

// newLayout returns the layout of strides that are written together.
func newLayout(schema *gpu.Schema, strides []*gpu.Stride) layout {
	lay := layout{schema: schema, dicts: make([]*gpu.Dictionary, schema.Len()),
		codes: make([]map[*gpu.Dictionary][]int32, schema.Len()), valid: make([]bool, schema.Len())}
	for i := range schema.Fields {
		dict := strides[0].Cols[i].Dict
		one := dict != nil && dict.Values.Bytes() <= smallDict
		for _, s := range strides {
			c := s.Cols[i]
			one = one && c.Dict == dict
			lay.valid[i] = lay.valid[i] || c.Valid != nil
		}
		if one {
			lay.dicts[i] = dict
			dict.Values.Retain()
		}
		if schema.Fields[i].Type.IsVar() && !one {
			lay.texts = append(lay.texts, i)
		}
	}
	return lay
}

// unite makes one dictionary for each column that has several small ones, so that blocks have codes
// instead of strings. The lease pays for it.
func (lay *layout) unite(l *gpu.Lease, strides []*gpu.Stride) error {
	rows := 0
	for _, s := range strides {
		rows += s.Rows
	}
	var texts []int
	for _, i := range lay.texts {
		entries, small := 0, true
		var dicts []*gpu.Dictionary
		codes := map[*gpu.Dictionary][]int32{}
		for _, s := range strides {
			d := s.Cols[i].Dict
			if small = small && d != nil && d.Values.Bytes() <= smallDict; small && codes[d] == nil {
				dicts, codes[d] = append(dicts, d), make([]int32, d.Values.Len)
				entries += d.Values.Len
			}
		}
		if !small || entries == 0 || entries > rows/8 {
			texts = append(texts, i)
			continue
		}
		known := map[string]int32{}
		offsets, bytes := []int32{0}, []byte(nil)
		for _, d := range dicts {
			to := codes[d]
			for e := range to {
				v := d.Values.VarValue(e)
				code, ok := known[string(v)]
				if !ok {
					code = int32(len(known))
					known[string(v)] = code
					bytes = append(bytes, v...)
					offsets = append(offsets, int32(len(bytes)))
				}
				to[e] = code
			}
		}
		c := gpu.Column{Type: lay.schema.Fields[i].Type, Len: len(known)}
		var err error
		if c.Offsets, err = l.Alloc(int64(len(offsets)) * 4); err != nil {
			return err
		}
		if c.Data, err = l.Alloc(int64(len(bytes))); err != nil {
			c.Offsets.Release()
			return err
		}
		copy(gpu.Values[int32](c.Offsets, len(offsets)), offsets)
		copy(c.Data.Bytes(), bytes)
		lay.dicts[i], lay.codes[i] = &gpu.Dictionary{Values: c}, codes
	}
	lay.texts = texts
	return nil
}

func (lay *layout) release() {
	for _, d := range lay.dicts {
		if d != nil {
			d.Values.Release()
		}
	}
	lay.dicts = nil
}

// write writes pieces to disk as a run, and releases their strides. After an error there is no run,
// and the pieces are unchanged.
func (p *Partitions) write(pieces []*piece, fromHost bool) (err error) {
	s, begin := p.store, time.Now()
	if p.file == nil {
		f, err := s.file()
		if err != nil {
			return err
		}
		p.file = f
	}
	strides := make([]*gpu.Stride, len(pieces))
	for i, x := range pieces {
		strides[i] = x.stride
	}
	r := &run{layout: newLayout(p.schema, strides), first: pieces[0].first, pieces: slices.Clone(pieces)}
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
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				err = fmt.Errorf("%w; free some space, or choose another folder with %v", err, gpu.SpillDir)
			}
			err = fmt.Errorf("spill %s to %s: %w", p.name, p.file.Name(), err)
		}
	}()
	p.mu.Lock()
	rows := slices.Clone(p.rows)
	p.mu.Unlock()
	n := last - r.first + 1
	r.pages, r.texts = make([]page, n+1), make([]int32, n*len(r.layout.texts))
	if err := w.pages(r, func(i int) bool { return rows[i] == 0 }); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	p.moved[diskTier].add(w.at - p.end)
	s.trace(p.name, true, begin, w.at-p.end)
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
			x.each(x.first, x.last()+1, func(i int, n int64, seen *bool) {
				if rows[i] > 0 {
					p.moved[hostTier].read(n, seen)
				} else {
					p.moved[hostTier].gone(n, *seen)
				}
			})
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

// encoders is the maximum number of cores that encode the blocks of a run: LZ4 compresses some 500
// MB/s on each.
const encoders = 8

// chunk is the rows [from, to) of a piece of a run, which become a block of a page.
type chunk struct {
	page, piece, from, to int
	done                  chan encoded
}

// encoded is the block of a chunk.
type encoded struct {
	*block
	data   []byte
	extent extent
	err    error
}

// pages writes the pages of a run, except those of dropped partitions. Several cores encode blocks,
// which are written in order while the next ones are encoded.
func (w *writer) pages(r *run, dropped func(partition int) bool) (err error) {
	cores := min(runtime.GOMAXPROCS(0), encoders)
	if !w.store.discrete() {
		cores = min(cores, w.store.device.Lanes())
	}
	todo, order := make(chan chunk), make(chan chunk, 2*cores)
	var failed atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	for range cores {
		wg.Go(func() {
			for c := range todo {
				c.done <- w.encode(r, c)
			}
		})
	}
	wg.Go(func() {
		defer close(todo)
		defer close(order)
		for i := range r.partitions() {
			if dropped(r.first + i) {
				continue
			}
			for n, x := range r.pieces {
				from, end := x.within(r.first+i, r.first+i+1)
				step := max(1, int(blockBytes/max(1, x.bytes/int64(x.stride.Rows))))
				for ; from < end && !failed.Load(); from += step {
					c := chunk{i, n, from, min(from+step, end), make(chan encoded, 1)}
					order <- c
					todo <- c
				}
			}
		}
	})
	next := 0 // page
	begin := func(upto int) {
		for ; next < upto; next++ {
			r.pages[next].at = w.at
		}
	}
	for c := range order {
		e := <-c.done
		if err == nil {
			begin(c.page + 1)
			if err = w.put(e, r, c.page); err != nil {
				failed.Store(true)
			}
		}
		w.store.scratch.Put(e.block)
	}
	begin(len(r.pages))
	return err
}

// encode encodes the block of a chunk.
func (w *writer) encode(r *run, c chunk) (e encoded) {
	e.block = w.store.scratch.Get().(*block)
	s := r.pieces[c.piece].stride
	if e.data, e.err = e.block.encode(&r.layout, s, c.piece, c.from, c.to, w.store.opt.Compress); e.err != nil {
		return e
	}
	e.extent = extent{rows: int64(c.to - c.from), raw: int64(len(e.raw))}
	for _, i := range r.layout.texts {
		e.extent.bytes = append(e.extent.bytes, stringBytes(s.Cols[i], c.from, c.to))
	}
	return e
}

// fullError is the error if the default limit is reached: the disk is nearly full.
type fullError struct {
	dir     string
	limit   int64
	refused error
}

func (e *fullError) Error() string {
	return fmt.Sprintf("the disk is nearly full: the files would take more than %s, four fifths of what was free in %s",
		humanize.IBytes(uint64(e.limit)), e.dir)
}

func (e *fullError) Unwrap() []error { return []error{e.refused, syscall.ENOSPC} }

// put writes a block after the others of page i of a run.
func (w *writer) put(e encoded, r *run, i int) error {
	if e.err != nil {
		return e.err
	}
	sum := e.extent
	if r.addTo(&sum, i); !sum.fits() {
		return errTooLarge
	}
	n := int64(len(e.data))
	if err := w.disk.Reserve(n); err != nil {
		if w.store.opt.Limit == 0 {
			err = &fullError{w.store.opt.Dir, w.store.disk.Limit(), err}
		}
		return err
	}
	w.reserved += n
	if _, err := w.Write(e.data); err != nil {
		return err
	}
	w.at += n
	r.pages[i].rows, r.pages[i].raw = int32(sum.rows), sum.raw
	for k, n := range sum.bytes {
		r.textsOf(i)[k] = int32(n)
	}
	return nil
}

// stringBytes returns the bytes of the strings of rows [from, to) of a column in a block.
func stringBytes(c gpu.Column, from, to int) (n int64) {
	if c.Dict == nil {
		offsets := gpu.Values[int32](c.Offsets, c.Len+1)
		return int64(offsets[to] - offsets[from])
	}
	texts := codedTextOf(c)
	for r := from; r < to; r++ {
		n += int64(len(texts.at(r)))
	}
	return n
}

// codedText has the strings of a column with a dictionary. It looks up the buffers once, because a
// look-up takes longer than reading a short string.
type codedText struct {
	codes, offsets []int32
	bytes, valid   []byte
}

func codedTextOf(c gpu.Column) *codedText {
	v := c.Dict.Values
	t := &codedText{codes: gpu.Values[int32](c.Data, c.Len), offsets: gpu.Values[int32](v.Offsets, v.Len+1),
		bytes: v.Data.Bytes()}
	if c.Valid != nil {
		t.valid = c.Valid.Bytes()
	}
	return t
}

// at returns the string of a row, nil for a null.
func (t *codedText) at(row int) []byte {
	if t.valid != nil && !gpu.Bit(t.valid, row) {
		return nil
	}
	code := t.codes[row]
	return t.bytes[t.offsets[code]:t.offsets[code+1]]
}

// readPages reads the pages of a unit into host memory, for which the lease pays.
func (p *Partitions) readPages(l *gpu.Lease, u *unit) (_ *gpu.Stride, err error) {
	begin := time.Now()
	r := u.run
	at := r.pages[u.from].at
	bytes := r.pages[u.to].at - at
	var all extent
	for i := u.from; i < u.to; i++ {
		r.addTo(&all, i)
	}
	fail := func(err error) error {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errDamaged
		}
		return fmt.Errorf("%s: read what was spilled to %s, %d bytes at byte %d: %w", p.name, p.file.Name(), bytes, at,
			err)
	}
	a, err := newAssembly(l, &r.layout, all, nil)
	if err != nil {
		return nil, err
	}
	a.skip = func(n int) bool { return n >= len(r.pieces) || u.skip[r.pieces[n]] }
	b := p.store.scratch.Get().(*block)
	defer p.store.scratch.Put(b)
	b.file.Reset(io.NewSectionReader(p.file, at, bytes))
	for left := bytes; left > 0; {
		n, err := b.decode(b.file, left, &r.layout, a)
		if err != nil {
			a.stride.Release()
			return nil, fail(err)
		}
		left -= n
	}
	p.mu.Lock()
	for i := u.from; i < u.to; i++ {
		p.moved[diskTier].read(r.bytes(i), &r.pages[i].seen)
	}
	p.mu.Unlock()
	p.store.trace(p.name, false, begin, bytes)
	return a.done(), nil
}

// punch releases the disk space of partitions [from, to) of a run. The caller holds the lock.
func (p *Partitions) punch(r *run, from, to int) {
	var at, n int64 // a hole
	hole := func() {
		if n > 0 {
			// If the file system cannot do so, the file keeps the space until it is closed.
			_ = unix.Fallocate(int(p.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
			p.disk.Unreserve(n)
			p.moved[diskTier].now.Add(-n)
		}
		n = 0
	}
	for i := max(from, r.first) - r.first; i < min(to-r.first, r.partitions()); i++ {
		g := &r.pages[i]
		if g.given {
			continue
		}
		if g.given = true; at+n != g.at {
			hole()
			at = g.at
		}
		n += r.bytes(i)
		p.moved[diskTier].gone(r.bytes(i), g.seen)
	}
	hole()
}
