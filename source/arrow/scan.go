package arrow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// Scan implements source.Table.
func (t *fileTable) Scan(ctx context.Context, opt source.ScanOptions) (source.Reader, error) {
	if opt.Lease == nil {
		return nil, errors.New("a scan of Arrow files needs a lease for its strides")
	}
	for _, c := range opt.Columns {
		if c < 0 || c >= t.schema.Len() {
			return nil, fmt.Errorf("a scan asks for column %d of %d", c, t.schema.Len())
		}
	}
	if opt.StrideRows <= 0 || opt.StrideRows > gpu.MaxRows {
		opt.StrideRows = defaultStrideRows
	}
	if opt.Decode.Threads <= 0 {
		opt.Decode.Threads = runtime.GOMAXPROCS(0)
	}
	if err := source.CheckMemory(t, opt); err != nil {
		return nil, err
	}
	if t.IsStream() && t.files[0].taken.Swap(true) {
		return nil, errors.New("standard input can be read once: name it in one place of the job")
	}
	r := &fileReader{table: t, opt: opt, schema: &gpu.Schema{}, need: t.batchMemory(opt), read: -1}
	for _, c := range opt.Columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	inflight := opt.Decode.Inflight
	if inflight <= 0 {
		inflight = opt.Decode.Threads + 1
	}
	if most := opt.Decode.InflightBytes; most > 0 {
		inflight = int(min(max(most/max(r.need, 1), 2), int64(opt.Decode.Threads)+1))
	}
	r.inflight = max(inflight, 1)
	r.batches = make(chan *batch, r.inflight+1) // and the end
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.changed.L = &r.mu
	r.unwatch = context.AfterFunc(r.ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	r.workers.Add(1)
	go r.feed()
	return r, nil
}

// fileReader is one scan. A goroutine finds the record batches, and reads those of sequential files. For each one a
// goroutine reads, decompresses and checks it, and copies its rows into strides.
type fileReader struct {
	table    *fileTable
	opt      source.ScanOptions
	schema   *gpu.Schema
	inflight int   // most record batches in memory
	need     int64 // bytes of a record batch, as an estimate
	ctx      context.Context
	cancel   context.CancelCauseFunc
	unwatch  func() bool
	workers  sync.WaitGroup
	batches  chan *batch // in order
	current  *batch
	err      error
	closed   bool

	mu      sync.Mutex
	changed sync.Cond
	begun   int // record batches that were begun
	read    int // number of the record batch that is read now, or was read last

	rows, bytes, decoding atomic.Int64
}

// batch is a record batch that is being read.
type batch struct {
	number  int
	file    *file
	in      store.File // nil for a sequential file
	index   int        // in the file
	at      block
	message *message // of a sequential file, with its body
	body    []byte
	paid    int64 // for the body
	dicts   map[int64]*dictionary
	strides chan *gpu.Stride
	err     error // once strides is closed
}

func (b *batch) errorf(err error) error {
	if errors.Is(err, context.Canceled) || gpu.IsOutOfMemory(err) {
		return err
	}
	return fmt.Errorf("%s, record batch %d: %w", b.file.path, b.index, err)
}

// feed begins the record batches.
func (r *fileReader) feed() {
	defer r.workers.Done()
	defer close(r.batches)
	var err error
	for _, f := range r.table.files {
		if err = r.feedFile(f); err != nil {
			break
		}
	}
	if err = cmp.Or(err, io.EOF); r.ctx.Err() != nil {
		return
	}
	b := &batch{strides: make(chan *gpu.Stride), err: err}
	close(b.strides)
	r.batches <- b
}

// opened is an open file that some record batches use.
type opened struct {
	store.File
	uses atomic.Int64
}

func (o *opened) Close() error {
	if o.uses.Add(-1) == 0 {
		return o.File.Close()
	}
	return nil
}

// feedFile begins the record batches of a file.
func (r *fileReader) feedFile(f *file) (err error) {
	defer guard(&err)
	used := f.dictionaries(r.fieldsOf())
	dicts := map[int64]*dictionary{}
	defer func() {
		for _, d := range dicts {
			d.release(r.opt.Lease)
		}
	}()
	var in *opened
	if f.pipe == nil {
		file, err := store.Open(r.ctx, f.address, &f.version)
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		in = &opened{File: file}
		in.uses.Add(1)
		defer in.Close()
	}
	index := f.before
	begin := func(b *batch) error {
		b.file, b.index, b.dicts = f, index, maps.Clone(dicts)
		index++
		return r.begin(b, in)
	}
	if !f.sequential {
		for k, at := range f.blocks {
			b := &batch{file: f, in: in, at: at}
			if at.records {
				err = begin(b)
			} else if len(used) > 0 {
				err = r.dictionary(f, b, used, dicts)
			}
			if err != nil {
				return fmt.Errorf("%s, message %d: %w", f.path, k, err)
			}
		}
		return nil
	}
	var from io.Reader
	if f.pipe != nil {
		from = f.pipe.Reader(r.ctx)
	} else {
		s := store.NewReader(r.ctx, in, r.opt.Lease)
		defer s.Close()
		if _, err := io.CopyN(io.Discard, s, f.start); err != nil {
			return fmt.Errorf("%s: %w", f.path, cutOff(err))
		}
		from = s
	}
	s := &stream{in: from, pay: r.pay}
	for k := 0; ; k++ {
		b := &batch{file: f}
		b.message, err = s.message()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			if b.message.header == headerRecords {
				err = r.room()
			}
			if err == nil {
				b.body, b.paid, err = s.read(b.message.body, s.pay)
			}
		}
		switch {
		case err != nil:
		case b.message.header == headerRecords:
			err = begin(b)
			b = nil
		case b.message.header == headerDictionary && len(used) > 0:
			err = r.dictionary(f, b, used, dicts)
		}
		if b != nil {
			r.opt.Lease.Unreserve(b.paid)
		}
		if err != nil {
			return fmt.Errorf("%s, message %d: %w", f.path, k, err)
		}
	}
}

// pay reserves memory, and waits for it.
func (r *fileReader) pay(n int64) error {
	return r.opt.Lease.Patiently(r.ctx, func() error { return r.opt.Lease.Reserve(n) })
}

// fieldsOf returns the positions of the columns of the scan in the schema of a file.
func (r *fileReader) fieldsOf() []int {
	out := make([]int, len(r.opt.Columns))
	for i, c := range r.opt.Columns {
		out[i] = r.table.fields[c]
	}
	return out
}

// dictionaries returns the fields that some columns have in dictionaries, by the numbers of the dictionaries.
func (f *file) dictionaries(columns []int) map[int64]*Field {
	out := map[int64]*Field{}
	var add func(f *Field)
	add = func(f *Field) {
		if f.encoded {
			out[f.dict] = f
		}
		for i := range f.children {
			add(&f.children[i])
		}
	}
	for _, c := range columns {
		add(&f.fields[c])
	}
	return out
}

// room waits until there is room for another record batch. The one that is read next may always begin.
func (r *fileReader) room() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		if ahead := r.begun - 1 - r.read; ahead <= 0 || ahead < r.inflight &&
			r.opt.Lease.Available() >= 2*r.need+headroom(r.opt.Lease) {
			return nil
		}
		r.changed.Wait()
	}
}

// begin begins a record batch, once there is room.
func (r *fileReader) begin(b *batch, in *opened) error {
	if err := r.room(); err != nil {
		return err
	}
	r.mu.Lock()
	b.number = r.begun
	r.begun++
	r.mu.Unlock()
	b.strides = make(chan *gpu.Stride, 1)
	for _, d := range b.dicts {
		d.uses.Add(1)
	}
	if in != nil {
		in.uses.Add(1)
	}
	r.workers.Add(1)
	go func() {
		defer r.workers.Done()
		defer close(b.strides)
		b.err = r.work(b)
		for _, d := range b.dicts {
			d.release(r.opt.Lease)
		}
		r.opt.Lease.Unreserve(b.paid)
		b.body = nil
		if in != nil {
			b.err = cmp.Or(b.err, in.Close())
		}
	}()
	r.batches <- b // which has room for all that are in memory
	return nil
}

// patiently calls a function of a record batch, which keeps no memory when it fails. Memory that is denied comes back
// at the latest when the record batches before it have been read.
func (r *fileReader) patiently(b *batch, f func() error) error {
	for {
		r.mu.Lock()
		first := r.read >= b.number-1
		r.mu.Unlock()
		err := r.opt.Lease.Patiently(r.ctx, func() (err error) {
			defer guard(&err)
			if slots := r.opt.Decode.Slots; slots != nil {
				select {
				case slots <- struct{}{}:
					defer func() { <-slots }()
				case <-r.ctx.Done():
					return context.Cause(r.ctx)
				}
			}
			begin := time.Now()
			defer func() {
				r.decoding.Add(int64(time.Since(begin)))
				if r.opt.Decode.Trace != nil {
					r.opt.Decode.Trace("rows", begin)
				}
			}()
			return f()
		})
		if first || !gpu.IsOutOfMemory(err) {
			return err
		}
		r.mu.Lock()
		for r.read < b.number-1 && r.ctx.Err() == nil {
			r.changed.Wait()
		}
		r.mu.Unlock()
	}
}

// work reads a record batch and makes its strides.
func (r *fileReader) work(b *batch) error {
	var l *loaded
	if err := r.patiently(b, func() (err error) { l, err = r.load(b); return err }); err != nil {
		return b.errorf(err)
	}
	defer func() { r.opt.Lease.Unreserve(l.paid) }()
	for from := 0; from < l.rows; from += r.opt.StrideRows {
		n := min(r.opt.StrideRows, l.rows-from)
		var s *gpu.Stride
		if err := r.patiently(b, func() (err error) { s, err = r.stride(l, from, n); return err }); err != nil {
			return b.errorf(err)
		}
		select {
		case b.strides <- s:
		case <-r.ctx.Done():
			s.Release()
			return context.Cause(r.ctx)
		}
	}
	r.bytes.Add(b.at.metadata + b.at.body + int64(len(b.body)))
	return nil
}

// loaded has the columns of a record batch, checked, in memory that the lease pays for.
type loaded struct {
	rows    int
	columns []arrow.Array
	paid    int64
}

// load reads and checks the columns of a record batch.
func (r *fileReader) load(b *batch) (_ *loaded, err error) {
	out := &loaded{}
	defer func() {
		if err != nil {
			r.opt.Lease.Unreserve(out.paid)
		}
	}()
	pay := func(n int64) error {
		err := r.opt.Lease.Reserve(n)
		if err == nil {
			out.paid += n
		}
		return err
	}
	m, err := r.metadata(b)
	if err != nil {
		return nil, err
	}
	if m.header != headerRecords {
		return nil, badf("it is no record batch")
	}
	layout, err := m.layoutOf(m.table, b.file.fields)
	if err != nil {
		return nil, err
	}
	columns := r.fieldsOf()
	bytes, err := r.buffers(b, layout, columns, pay)
	if err != nil {
		return nil, err
	}
	out.rows = int(layout.rows)
	l := &loader{layout: layout, bytes: bytes, pay: pay, dicts: b.dicts}
	known := map[int]arrow.Array{}
	for i, k := range columns {
		if known[k] == nil {
			data, err := l.column(b.file.fields, k)
			if err != nil {
				return nil, fmt.Errorf("column %q: %w", b.file.fields[k].Name, err)
			}
			known[k] = array.MakeFromData(data)
		}
		// The planner turns count(x) of a column that is not nullable into count(*).
		if n := nulls(known[k]); n > 0 && !r.schema.Fields[i].Nullable {
			return nil, badf("column %q has %d nulls, but its schema says that it has none", r.schema.Fields[i].Name, n)
		}
		out.columns = append(out.columns, known[k])
	}
	return out, nil
}

// metadata reads the metadata of a record batch or a dictionary.
func (r *fileReader) metadata(b *batch) (*message, error) {
	if b.message != nil {
		return b.message, nil
	}
	raw := make([]byte, b.at.metadata) // at most maxMetadata
	if b.at.metadata > maxMetadata+8 {
		return nil, badf("its metadata has %d bytes", b.at.metadata)
	}
	if n, err := b.in.ReadAt(r.ctx, raw, b.at.offset); n < len(raw) {
		return nil, cutOff(err)
	}
	m, err := messageIn(raw)
	if err == nil && m.body > b.at.body {
		err = badf("it has %d bytes, and the footer says %d", m.body, b.at.body)
	}
	return m, err
}

// near is the most bytes between buffers that are read together.
const near = 256 << 10

// buffers reads the buffers of columns, in parts of the file that are as long as is useful. It returns a function that
// returns the bytes of one of them.
func (r *fileReader) buffers(b *batch, l *layout, columns []int, pay func(int64) error) (func(extent) ([]byte, error),
	error) {
	if b.in == nil {
		return func(e extent) ([]byte, error) { return b.body[e.offset:][:e.bytes], nil }, nil
	}
	var parts []extent
	for _, c := range columns {
		for _, e := range l.buffers[l.columns[c].buffer:l.columns[c+1].buffer] {
			if e.bytes > 0 {
				parts = append(parts, e)
			}
		}
	}
	slices.SortFunc(parts, func(x, y extent) int { return cmp.Compare(x.offset, y.offset) })
	joined := parts[:0]
	for _, e := range parts {
		if n := len(joined); n > 0 && e.offset <= joined[n-1].offset+joined[n-1].bytes+near {
			joined[n-1].bytes = max(joined[n-1].bytes, e.offset+e.bytes-joined[n-1].offset)
			continue
		}
		joined = append(joined, e)
	}
	read := make([][]byte, len(joined))
	for i, e := range joined {
		if err := pay(e.bytes); err != nil {
			return nil, err
		}
		read[i] = make([]byte, e.bytes)
		if n, err := b.in.ReadAt(r.ctx, read[i], b.at.offset+b.at.metadata+e.offset); n < len(read[i]) {
			return nil, cutOff(err)
		}
	}
	return func(e extent) ([]byte, error) {
		i, found := slices.BinarySearchFunc(joined, e.offset, func(x extent, at int64) int {
			return cmp.Compare(x.offset, at)
		})
		if !found {
			i--
		}
		return read[i][e.offset-joined[i].offset:][:e.bytes], nil
	}, nil
}

// stride copies rows of a record batch.
func (r *fileReader) stride(l *loaded, from, n int) (_ *gpu.Stride, err error) {
	s := &gpu.Stride{Schema: r.schema, Rows: n}
	defer func() {
		if err != nil {
			s.Release()
		}
	}()
	for i, c := range l.columns {
		f := r.schema.Fields[i]
		part := array.NewSlice(c, int64(from), int64(from+n))
		plain, err := plainArray(part)
		part.Release()
		if err != nil {
			return nil, fmt.Errorf("rows from %d, column %q: %w", from, f.Name, err)
		}
		col, err := columnOfArrow(r.opt.Lease, f.Type, plain, 0, n)
		plain.Release()
		if err != nil {
			return nil, fmt.Errorf("rows from %d, column %q: %w", from, f.Name, err)
		}
		s.Cols = append(s.Cols, col)
	}
	return s, nil
}

// dictionary reads a dictionary, or values that are added to one.
func (r *fileReader) dictionary(f *file, b *batch, used map[int64]*Field, dicts map[int64]*dictionary) error {
	var d *dictionary
	var id int64
	err := r.opt.Lease.Patiently(r.ctx, func() (err error) {
		d = &dictionary{}
		defer func() {
			if err != nil {
				r.opt.Lease.Unreserve(d.paid)
			}
		}()
		pay := func(n int64) error {
			err := r.opt.Lease.Reserve(n)
			if err == nil {
				d.paid += n
			}
			return err
		}
		m, err := r.metadata(b)
		if err != nil {
			return err
		}
		if m.header != headerDictionary {
			d = nil
			return nil
		}
		id = m.longOf(m.table, 0)
		field := used[id]
		if field == nil {
			d = nil // of columns that are not read
			return nil
		}
		value := *field
		value.encoded, value.Type = false, field.Type.(*arrow.DictionaryType).ValueType
		fields := []Field{value}
		layout, err := m.layoutOf(m.flat.table(m.table, 1), fields)
		if err != nil {
			return err
		}
		bytes, err := r.buffers(b, layout, []int{0}, pay)
		if err != nil {
			return err
		}
		if b.in == nil {
			if err := pay(b.paid); err != nil { // the caller releases what it has paid
				return err
			}
		}
		l := &loader{layout: layout, bytes: bytes, pay: pay, dicts: dicts}
		data, err := l.column(fields, 0)
		if err != nil {
			return fmt.Errorf("dictionary of column %q: %w", field.Name, err)
		}
		d.values = array.MakeFromData(data)
		if old := dicts[id]; old != nil && m.byteAt(m.field(m.table, 2)) != 0 {
			if err := pay(old.paid); err != nil {
				return err
			}
			if d.values, err = array.Concatenate([]arrow.Array{old.values, d.values},
				memory.DefaultAllocator); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || d == nil {
		return err
	}
	d.uses.Add(1)
	if old := dicts[id]; old != nil {
		old.release(r.opt.Lease)
	}
	dicts[id] = d
	return nil
}

// Schema implements source.Reader.
func (r *fileReader) Schema() *gpu.Schema { return r.schema }

// Read implements source.Reader.
func (r *fileReader) Read(ctx context.Context) (*gpu.Stride, error) {
	defer context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })()
	for {
		if r.err == nil && r.ctx.Err() != nil {
			r.err = context.Cause(r.ctx)
		}
		if r.err != nil {
			return nil, r.err
		}
		if r.current == nil {
			select {
			case r.current = <-r.batches:
			case <-r.ctx.Done():
			}
			continue
		}
		select {
		case s, ok := <-r.current.strides:
			if ok {
				r.rows.Add(int64(s.Rows))
				return s, nil
			}
			r.err = r.current.err
			r.mu.Lock()
			r.read, r.current = r.current.number, nil
			r.changed.Broadcast()
			r.mu.Unlock()
		case <-r.ctx.Done():
		}
	}
}

// Progress implements source.Reader.
func (r *fileReader) Progress() source.Progress {
	p := source.Progress{RowsRead: r.rows.Load(), RowsTotal: r.table.rows, BytesRead: r.bytes.Load(),
		BytesTotal: max(r.table.size, r.bytes.Load()), Files: int64(len(r.table.files)),
		Decode: time.Duration(r.decoding.Load())}
	p.RowsTotal = max(p.RowsTotal, p.RowsRead)
	return p
}

// Close implements source.Reader.
func (r *fileReader) Close() error {
	r.cancel(errScanEnded)
	r.workers.Wait()
	r.unwatch()
	if r.closed {
		return nil
	}
	r.closed = true
	release := func(b *batch) {
		for s := range b.strides {
			s.Release()
		}
	}
	if r.current != nil {
		release(r.current)
	}
	for b := range r.batches {
		release(b)
	}
	r.err = cmp.Or(r.err, errScanEnded)
	return nil
}
