package text

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// Scan implements source.Table.
func (t *Table) Scan(ctx context.Context, opt source.ScanOptions) (source.Reader, error) {
	if opt.Lease == nil {
		return nil, errors.New("a scan of CSV files needs a lease for its strides")
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
	r := &reader{table: t, opt: opt, schema: &gpu.Schema{}, results: map[int]*parsed{}, need: t.blockMemory(opt)}
	for _, c := range opt.Columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	r.inflight = opt.Decode.Inflight
	if r.inflight <= 0 {
		r.inflight = opt.Decode.Threads + 1
	}
	if most := opt.Decode.InflightBytes; most > 0 {
		r.inflight = max(int(most/max(r.need, 1)), 2)
	}
	if t.rejects != "" {
		var err error
		if r.rejects, err = newRejects(t.rejects); err != nil {
			return nil, err
		}
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.cutter = &cutter{ctx: r.ctx, table: t, lease: opt.Lease, target: t.blockBytes(opt)}
	r.changed.L = &r.mu
	r.unwatch = context.AfterFunc(r.ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	for range min(opt.Decode.Threads, r.inflight) {
		r.workers.Add(1)
		go r.work()
	}
	return r, nil
}

// reader is one scan.
type reader struct {
	table    *Table
	opt      source.ScanOptions
	schema   *gpu.Schema
	inflight int   // most blocks that are parsed and not read
	need     int64 // bytes of a block, as an estimate
	ctx      context.Context
	cancel   context.CancelCauseFunc
	unwatch  func() bool
	workers  sync.WaitGroup
	rejects  *rejects // nil if a bad row is an error

	cutting sync.Mutex // held while a block is cut
	cutter  *cutter

	rowsRead, bytesRead, rejected atomic.Int64
	parsing                       atomic.Int64 // nanoseconds

	mu       sync.Mutex
	changed  sync.Cond
	results  map[int]*parsed
	taken    int // blocks that workers have taken
	running  int // of these, those that are parsed now
	next     int // number of the block that is read next
	end      int // number of blocks, once ended
	ended    bool
	err      error
	finished bool
}

// parsed is what became of a block.
type parsed struct {
	strides []*gpu.Stride
	rejects []reject
	read    int64
	err     error
}

// work parses blocks until there are no more.
func (r *reader) work() {
	defer r.workers.Done()
	w := &worker{reader: r}
	defer w.free()
	for {
		b := r.take(w)
		if b == nil {
			return
		}
		p := w.run(b)
		// Before anybody can read the block, and another worker needs memory for the next one.
		r.cutter.release(b.text)
		w.freeIfScarce()
		r.mu.Lock()
		r.running--
		r.results[b.number] = p
		r.changed.Broadcast()
		r.mu.Unlock()
	}
}

// take cuts the next block once there is room for it. It returns nil if there is none. The block that is read next may
// always be cut. Others leave memory for one more, and for other operators.
func (r *reader) take(w *worker) *block {
	r.mu.Lock()
	for {
		if r.ended || r.ctx.Err() != nil {
			r.mu.Unlock()
			return nil
		}
		if ahead := r.taken - r.next; ahead == 0 || ahead < r.inflight &&
			r.opt.Lease.Available() >= r.need*int64(r.running+2)+headroom(r.opt.Lease) {
			break
		}
		w.freeIfScarce()
		r.changed.Wait()
	}
	r.taken++
	r.running++
	r.mu.Unlock()
	return r.cut()
}

// cut cuts a block.
func (r *reader) cut() *block {
	var b *block
	r.cutting.Lock()
	err := r.opt.Lease.Patiently(r.ctx, func() (err error) {
		defer guard(&err)
		b, err = r.cutter.cut()
		return err
	})
	number := r.cutter.number
	r.cutting.Unlock()
	if err == nil {
		return b
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if !r.ended {
		r.ended, r.end = true, number
		if err != errEnd {
			r.results[number] = &parsed{err: err}
			r.end++
		}
	}
	r.changed.Broadcast()
	return nil
}

// Schema implements source.Reader.
func (r *reader) Schema() *gpu.Schema { return r.schema }

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context) (*gpu.Stride, error) {
	defer context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })()
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.err == nil && r.ctx.Err() != nil {
			r.err = context.Cause(r.ctx)
		}
		if r.err != nil {
			return nil, r.err
		}
		p := r.results[r.next]
		switch {
		case p == nil && r.ended && r.next == r.end:
			r.err = io.EOF
			if err := r.rejects.commit(); err != nil {
				r.err = err
			}
			return nil, r.err
		case p == nil:
			r.changed.Wait()
			continue
		case len(p.strides) > 0:
			s := p.strides[0]
			p.strides = p.strides[1:]
			r.rowsRead.Add(int64(s.Rows))
			return s, nil
		}
		if r.err = p.err; r.err == nil {
			r.err = r.rejects.write(p.rejects)
		}
		r.rejected.Add(int64(len(p.rejects)))
		r.bytesRead.Add(p.read)
		delete(r.results, r.next)
		r.next++
		r.changed.Broadcast()
	}
}

// Progress implements source.Reader.
func (r *reader) Progress() source.Progress {
	p := source.Progress{RowsRead: r.rowsRead.Load(), RowsTotal: r.table.rows, BytesRead: r.bytesRead.Load(),
		BytesTotal: r.table.size, Files: int64(len(r.table.files)), Decode: time.Duration(r.parsing.Load()),
		Rejected: r.rejected.Load()}
	switch {
	case p.BytesRead >= p.BytesTotal && !r.table.exact:
		p.RowsTotal = p.RowsRead
	case p.BytesRead > 0 && !r.table.exact:
		p.RowsTotal = int64(float64(p.RowsRead) / float64(p.BytesRead) * float64(p.BytesTotal))
	}
	p.RowsTotal = max(p.RowsTotal, p.RowsRead)
	return p
}

// Close implements source.Reader.
func (r *reader) Close() error {
	r.cancel(errors.New("the scan is closed"))
	r.workers.Wait()
	r.unwatch()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return nil
	}
	r.finished = true
	for _, p := range r.results {
		for _, s := range p.strides {
			s.Release()
		}
	}
	r.results = nil
	if r.err == nil {
		r.err = errors.New("the scan is closed")
	}
	r.cutter.close()
	r.rejects.abort()
	return nil
}

// guard turns a panic into an error.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = gpu.Panicked("a reader of CSV", p, debug.Stack())
	}
}

// worker parses blocks on one goroutine.
type worker struct {
	*reader
	tokens  *tokenizer
	columns []*column
	file    *file // that they are prepared for
	paid    int64 // bytes of scratch memory that the lease pays for
	room    int   // rows for which the columns have memory; 0 before a stride begins
	count   int   // rows of the stride so far
	out     []*gpu.Stride
	rejects []reject
}

// prepare makes the columns of the scan for files of a layout. If rows are rejected, the values of all columns are
// checked.
func (w *worker) prepare(f *file) {
	t, l := w.table, f.layout
	columns := slices.Clone(w.opt.Columns)
	if t.rejecting {
		for c := range t.schema.Fields {
			if !slices.Contains(columns, c) {
				columns = append(columns, c)
			}
		}
	}
	w.file, w.columns = f, nil
	var kept []int
	for i, c := range columns {
		position, constant := t.place(f, c)
		col := newColumn(t.schema.Fields[c], t.nulls, l.dialect, c < len(t.given) && t.given[c])
		if position < 0 {
			col.constant, col.parse = *constant, parseConstant
		} else if kept = append(kept, position); position < len(l.formats) && l.formats[position] != nil {
			col.format, col.parse = l.formats[position], parseSlowly
		}
		col.kept, col.position = i < len(w.opt.Columns), position
		w.columns = append(w.columns, col)
	}
	unique := slices.Compact(slices.Sorted(slices.Values(kept)))
	for _, c := range w.columns {
		c.place, _ = slices.BinarySearch(unique, c.position)
	}
	w.tokens = newTokenizer(l.dialect, len(l.names), unique)
	w.tokens.padded = t.options.NullPadding
	if l.dialect.JSON {
		w.tokens.keys = jsonKeys{names: l.names, columns: map[string]int{}, others: t.others}
		for i, name := range l.names {
			w.tokens.keys.columns[name] = i
		}
	}
}

// run parses a block. If memory is denied, it waits for it.
func (w *worker) run(b *block) *parsed {
	p := &parsed{read: b.read}
	if slots := w.opt.Decode.Slots; slots != nil {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-w.ctx.Done():
			p.err = context.Cause(w.ctx)
			return p
		}
	}
	begin := time.Now()
	p.err = w.opt.Lease.Patiently(w.ctx, func() (err error) {
		defer func() {
			if err != nil && (gpu.IsOutOfMemory(err) || errors.Is(err, gpu.ErrPanic)) {
				w.drop()
			}
		}()
		defer guard(&err)
		return w.parse(b)
	})
	if p.strides, p.rejects = w.out, w.rejects; p.err != nil {
		w.discard()
	}
	w.out, w.rejects = nil, nil
	w.parsing.Add(int64(time.Since(begin)))
	if w.opt.Decode.Trace != nil {
		w.opt.Decode.Trace("rows", begin)
	}
	return p
}

// drop releases the strides of a block that is not complete.
func (w *worker) drop() {
	w.discard()
	for _, s := range w.out {
		s.Release()
	}
	w.out, w.rejects = nil, nil
	w.free()
}

// discard releases the stride that is not complete.
func (w *worker) discard() {
	for _, c := range w.columns {
		c.discard()
	}
	w.room = 0
}

// free gives scratch memory back.
func (w *worker) free() {
	w.opt.Lease.Unreserve(w.paid)
	w.paid, w.tokens, w.columns = 0, nil, nil
}

// freeIfScarce gives scratch memory back if there is none for another block.
func (w *worker) freeIfScarce() {
	if w.opt.Lease.Available() < w.need+headroom(w.opt.Lease) {
		w.free()
	}
}

// pay reserves scratch memory that has grown.
func (w *worker) pay() error {
	n := w.tokens.memory()
	for _, c := range w.columns {
		n += int64(cap(c.bytes) + 8*cap(c.valid))
	}
	if n > w.paid {
		if err := w.opt.Lease.Reserve(n - w.paid); err != nil {
			return err
		}
		w.paid = n
	}
	return nil
}

// parse makes the strides of a block.
func (w *worker) parse(b *block) error {
	if w.tokens == nil || w.file != b.file && (w.file.layout != b.file.layout || len(w.table.constants) > 0) {
		w.prepare(b.file)
	}
	clean := utf8.Valid(b.text)
	if !clean && !w.table.rejecting {
		at := checkText(b.text)
		return notUTF8(b.file.path, b.file.layout.form, b.lineAt(at))
	}
	t := w.tokens
	text := b.text[:len(b.text)+padding]
	left := b.lines // rows that may follow
	for at := b.skipped; at < len(b.text); {
		t.bad = t.bad[:0]
		if b.file.layout.dialect.JSON {
			at = t.tokenizeJSON(b.text, at, !w.table.rejecting)
		} else {
			at = t.tokenize(b.text, at, !w.table.rejecting)
		}
		if !clean {
			w.dropDirty(b)
		}
		for from := 0; from < t.count; {
			if w.room == 0 {
				if err := w.begin(min(max(left, 1), w.opt.StrideRows)); err != nil {
					return err
				}
			}
			n := min(t.count-from, w.room-w.count)
			bad := w.values(text, from, n)
			if len(bad) > 0 {
				if !w.table.rejecting {
					return w.valueError(b, bad)
				}
				var rows []int
				for _, v := range bad {
					if len(rows) == 0 || rows[len(rows)-1] != v.row {
						rows = append(rows, v.row)
						w.reject(b, w.rowAt(b, v.row), v)
					}
				}
				t.drop(rows)
				continue // the batch has fewer rows
			}
			for _, c := range w.columns {
				c.add(n)
			}
			w.count += n
			from += n
			left -= n
			if w.count == w.room {
				if err := w.finish(); err != nil {
					return err
				}
			}
		}
		if len(t.bad) > 0 && !w.table.rejecting {
			return w.rowError(b, t.bad[0])
		}
		for _, bad := range t.bad {
			w.reject(b, bad, badValue{})
		}
		left -= len(t.bad)
		if err := w.pay(); err != nil {
			return err
		}
	}
	slices.SortStableFunc(w.rejects, func(x, y reject) int { return cmp.Compare(x.line, y.line) })
	return w.finish()
}

// begin begins a stride with memory for some rows.
func (w *worker) begin(rows int) error {
	w.room, w.count = rows, 0
	for _, c := range w.columns {
		if err := c.begin(w.opt.Lease, rows); err != nil {
			return err
		}
	}
	return nil
}

// finish ends a stride.
func (w *worker) finish() error {
	if w.room == 0 {
		return nil
	}
	rows := w.count
	s := &gpu.Stride{Schema: w.schema, Rows: rows}
	for _, c := range w.columns {
		if !c.kept || rows == 0 {
			c.discard()
			continue
		}
		col, err := c.end(w.opt.Lease)
		if err != nil {
			s.Release()
			return err
		}
		s.Cols = append(s.Cols, col)
	}
	w.room, w.count = 0, 0
	if rows > 0 {
		w.out = append(w.out, s)
	}
	return nil
}

// badValue is a value that its column cannot take.
type badValue struct{ row, column int }

// values parses rows of the batch, and returns those values that their columns cannot take, by row and column.
func (w *worker) values(text []byte, from, n int) (bad []badValue) {
	var rows []int
	for i, c := range w.columns {
		rows = c.parse(c, text, w.tokens.column(c.place)[from:from+n], rows[:0])
		for _, row := range rows {
			bad = append(bad, badValue{from + row, i})
		}
	}
	slices.SortFunc(bad, func(x, y badValue) int {
		return cmp.Or(cmp.Compare(x.row, y.row),
			cmp.Compare(w.columns[x.column].position, w.columns[y.column].position))
	})
	return bad
}

// dropDirty rejects the rows of the batch that are not UTF-8.
func (w *worker) dropDirty(b *block) {
	t := w.tokens
	var rows []int
	for i := range t.count {
		if row := w.rowAt(b, i); !utf8.Valid(b.text[row.from:row.to]) {
			rows = append(rows, i)
			w.reject(b, row, badValue{row: -1})
		}
	}
	if len(rows) > 0 {
		t.drop(rows)
	}
}

// rowAt returns a row of the batch.
func (w *worker) rowAt(b *block, row int) badRow {
	from := int(w.tokens.starts[row])
	_, next, _ := b.file.layout.dialect.split(b.text[from:], nil)
	to := from + next - 1
	return badRow{from: from, to: to}
}

// lineAt returns the number of the line at an offset.
func (b *block) lineAt(at int) int64 {
	return b.line + int64(bytes.Count(b.text[b.skipped:max(at, b.skipped)], []byte{b.file.layout.dialect.Newline}))
}

// rowError is the error of a row with a defect.
func (w *worker) rowError(b *block, r badRow) error {
	return fmt.Errorf("%s, %s %d: %w", b.file.path, b.file.layout.form.unit(), b.lineAt(r.from), badf("%s: %s; mend "+
		"it, or give the source a file for such rows (rejects)", r.what.describe(r.fields, len(b.file.layout.names)),
		quoted(string(b.text[r.from:min(r.to, r.from+200)]))))
}

// valueError is the error of the first value that its column cannot take.
func (w *worker) valueError(b *block, bad []badValue) error {
	v := bad[0]
	c := w.columns[v.column]
	f := w.tokens.column(c.place)[v.row]
	return fmt.Errorf("%s, %s %d, column %d (%q): %w", b.file.path, b.file.layout.form.unit(), b.lineAt(f.from()),
		c.position+1, c.field.Name, badf("%s; give the column another type (types: {%s: VARCHAR}), "+
			"or the source a file for such rows (rejects)", c.mismatch(b.text, f)+c.expected(), c.field.Name))
}
