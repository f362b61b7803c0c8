package parquet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// minInflight is how many strides are decoded at a time however much they take, so
// that the next is under way when one is read.
const minInflight = 2

// defaultStrideRows is the rows of a stride when the scan does not say.
const defaultStrideRows = 1 << 17

// Scan implements source.Table.
func (t *Table) Scan(ctx context.Context, opt source.ScanOptions) (source.Reader, error) {
	if opt.Lease == nil {
		return nil, errors.New("a scan of Parquet files needs a lease for its strides")
	}
	for _, c := range opt.Columns {
		if c < 0 || c >= t.schema.Len() {
			return nil, fmt.Errorf("a scan asks for column %d of %d", c, t.schema.Len())
		}
	}
	target := opt.StrideRows
	if target <= 0 {
		target = defaultStrideRows
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	slots := opt.Slots
	if slots == nil {
		slots = make(chan struct{}, threads)
	}
	inflight := opt.Inflight
	if inflight <= 0 {
		inflight = threads + 1
	}
	cut, total, err := t.planScan(opt, min(target, gpu.MaxRows), threads)
	if err != nil {
		return nil, err
	}
	r := &reader{
		columns: opt.Columns, lease: opt.Lease, compact: opt.Compact, trace: opt.Trace, slots: slots,
		inflight: inflight, inflightBytes: opt.InflightBytes,
		cut: cut, upcoming: cut.next(), total: total,
		schema: &gpu.Schema{Fields: make([]gpu.Field, len(opt.Columns))},
		carry:  map[task]*cursor{},
		order:  t.bySize(opt.Columns),
	}
	for i, c := range opt.Columns {
		r.schema.Fields[i] = t.schema.Fields[c]
	}
	r.work.L, r.ready.L = &r.mu, &r.mu
	r.mu.Lock()
	r.admitAll()
	r.mu.Unlock()
	r.unwatch = context.AfterFunc(ctx, func() { r.fail(context.Cause(ctx)) })
	workers := threads
	if r.upcoming.rows == 0 { // every stride is admitted
		workers = min(threads, len(r.open)*len(opt.Columns))
	}
	for range workers {
		r.workers.Add(1)
		go r.decode()
	}
	return r, nil
}

// bySize returns the positions of columns, largest first: the last to be started is
// then the soonest to end.
func (t *Table) bySize(columns []int) []int {
	size := make([]int64, len(columns))
	order := make([]int, len(columns))
	for i, c := range columns {
		order[i] = i
		for _, f := range t.files {
			for g := range f.groups {
				size[i] += f.groups[g].chunks[c].size
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size[b], size[a]) })
	return order
}

// reader is one scan. Its tasks are strides × columns, run by workers in the order in
// which they become ready.
type reader struct {
	schema        *gpu.Schema
	columns       []int
	lease         *gpu.Lease
	total         source.Progress // of all rows, before the first is read
	compact       bool
	inflight      int
	inflightBytes int64
	unwatch       func() bool
	trace         func(string, time.Time)
	slots         chan struct{}
	workers       sync.WaitGroup

	decoding  atomic.Int64 // nanoseconds of all workers
	bytesRead atomic.Int64
	rowsRead  atomic.Int64

	mu       sync.Mutex
	work     sync.Cond // a task became ready, or the scan ends
	ready    sync.Cond // the next stride is complete, or the scan ends
	order    []int     // columns, the one with the most bytes first
	cut      cutter
	upcoming stridePlan // the next to be admitted; without rows when there is none
	tasks    []task     // ready to run, in order
	open     []*decoding
	first    int   // stride of open[0], the next that Read returns
	most     int64 // bytes of the largest stride so far
	err      error
	carry    map[task]*cursor // for tasks that continue in a row group
	idle     []*cursor
	closed   bool
}

// task decodes one column of one stride.
type task struct{ stride, column int }

// decoding is a stride that was admitted and not yet read.
type decoding struct {
	plan    stridePlan
	cols    []gpu.Column
	done    []bool
	waiting []bool // for the task of the same column in the stride before
	left    int
}

// admitAll starts as many strides as there is room for. The lock is held.
func (r *reader) admitAll() {
	for r.upcoming.rows > 0 && r.err == nil && r.room() {
		r.admit()
	}
}

// room says whether one more stride may be decoded: by their number, until it is
// known what they take, with the pages and dictionaries that are read for them.
func (r *reader) room() bool {
	if r.inflightBytes == 0 || r.most == 0 {
		return len(r.open) < r.inflight
	}
	undone := int64(0)
	for _, d := range r.open {
		if d.left > 0 {
			undone++
		}
	}
	used, _ := r.lease.Used()
	return len(r.open) < minInflight || used+(undone+1)*r.most <= r.inflightBytes
}

// admit starts the next stride. The lock is held.
func (r *reader) admit() {
	s := r.first + len(r.open)
	n := len(r.columns)
	d := &decoding{plan: r.upcoming, cols: make([]gpu.Column, n), done: make([]bool, n), waiting: make([]bool, n), left: n}
	r.upcoming = r.cut.next()
	var before *decoding
	if d.plan.continues && len(r.open) > 0 {
		before = r.open[len(r.open)-1]
	}
	r.open = append(r.open, d)
	for _, c := range r.order {
		if before != nil && !before.done[c] {
			d.waiting[c] = true
			continue
		}
		r.tasks = append(r.tasks, task{s, c})
	}
	r.work.Broadcast()
}

// decode runs tasks until the scan ends.
func (r *reader) decode() {
	defer r.workers.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for len(r.tasks) == 0 && !r.overtake() && r.err == nil && !r.allStarted() {
			r.work.Wait()
		}
		if r.err != nil || len(r.tasks) == 0 {
			return
		}
		t := r.tasks[0]
		r.tasks = r.tasks[1:]
		plan := &r.open[t.stride-r.first].plan
		cur := r.carry[t]
		delete(r.carry, t)
		if cur == nil {
			cur = r.spare()
		}
		r.mu.Unlock()
		r.slots <- struct{}{}
		begin := time.Now()
		col, err := r.run(plan, t.column, cur)
		r.decoding.Add(int64(time.Since(begin)))
		if r.trace != nil {
			r.trace(r.schema.Fields[t.column].Name, begin)
		}
		<-r.slots
		r.mu.Lock()
		r.finish(t, cur, col, err)
	}
}

// overtakeRows is the least that a cursor must have before it to overtake another: it
// decodes the dictionary and the page it begins in again.
var overtakeRows = 1 << 19 // less in tests

// overtake makes a task ready that waits for the same column in the stride before: it
// passes over pages with a cursor of its own. A row group has few strides, or is all
// that is in flight, so that cores would idle while a long column is decoded. It is
// the task in the middle of the most rows that wait for each other. The lock is held.
func (r *reader) overtake() bool {
	var best task
	most := 0
	for _, c := range r.order {
		for from := 0; from < len(r.open); from++ {
			to, rows := from, 0
			for ; to < len(r.open) && r.open[to].waiting[c]; to++ {
				rows += r.open[to].plan.rows
			}
			at, ahead := from, rows
			for ; at+1 < to && ahead > rows/2; at++ {
				ahead -= r.open[at].plan.rows
			}
			if ahead > most {
				best, most = task{r.first + at, c}, ahead
			}
			from = to
		}
	}
	if most == 0 || most < overtakeRows {
		return false
	}
	r.open[best.stride-r.first].waiting[best.column] = false
	r.tasks = append(r.tasks, best)
	return true
}

// allStarted says that no task will become ready any more. The lock is held.
func (r *reader) allStarted() bool {
	if r.upcoming.rows > 0 {
		return false
	}
	for _, d := range r.open {
		if slices.Contains(d.waiting, true) {
			return false
		}
	}
	return true
}

// spare returns a cursor without a chunk. The lock is held.
func (r *reader) spare() *cursor {
	if n := len(r.idle); n > 0 {
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		return c
	}
	return &cursor{lease: r.lease}
}

// run decodes column i of a stride.
func (r *reader) run(plan *stridePlan, i int, cur *cursor) (col gpu.Column, err error) {
	column, field := r.columns[i], r.schema.Fields[i]
	b := builder{lease: r.lease, t: field.Type, rows: plan.rows, compact: r.compact}
	at := place{column: field.Name, rowGroup: -1}
	defer func() {
		if err != nil {
			b.discard()
			if !errors.Is(err, gpu.ErrBudget) {
				err = at.wrap(err)
			}
		}
	}()
	defer guard(&err)
	row := 0
	for _, s := range plan.segments {
		at.path, at.rowGroup = s.file.path, s.group
		if cur.file != s.file || cur.group != s.group {
			cur.close()
			g := &s.file.groups[s.group]
			if err := cur.open(s.file, s.file.cols[column], s.group, &g.chunks[column], g.rows); err != nil {
				return col, err
			}
		}
		if err := cur.skip(s.from - cur.row); err != nil {
			return col, err
		}
		n := int(s.to - s.from)
		if err := b.read(cur, row, n); err != nil {
			return col, err
		}
		if cur.row = s.to; cur.row == cur.rows {
			if err := cur.finish(); err != nil {
				return col, err
			}
		}
		r.bytesRead.Add(s.bytes(column))
		row += n
	}
	return b.column()
}

// finish records the outcome of a task. The lock is held.
func (r *reader) finish(t task, cur *cursor, col gpu.Column, err error) {
	i := t.stride - r.first
	next := t.stride + 1
	handOn := r.upcoming.continues
	if i+1 < len(r.open) {
		handOn = r.open[i+1].plan.continues && r.open[i+1].waiting[t.column] // else overtaken
	}
	switch {
	case err != nil || r.closed:
		cur.close()
		r.idle = append(r.idle, cur)
	case handOn:
		r.carry[task{next, t.column}] = cur
	default:
		cur.close()
		r.idle = append(r.idle, cur)
	}
	if err != nil {
		r.stop(err)
		return
	}
	if r.closed {
		col.Release()
		return
	}
	d := r.open[i]
	d.cols[t.column], d.done[t.column] = col, true
	d.left--
	if d.left == 0 {
		s := gpu.Stride{Cols: d.cols}
		r.most = max(r.most, s.Bytes())
		if i == 0 {
			r.ready.Broadcast()
		}
	}
	if i+1 < len(r.open) && r.open[i+1].waiting[t.column] {
		r.open[i+1].waiting[t.column] = false
		r.tasks = append(r.tasks, task{next, t.column})
		r.work.Signal()
	}
	r.admitAll()
	if r.allStarted() {
		r.work.Broadcast() // those who wait have nothing to wait for
	}
}

// stop ends the scan with its first error. The lock is held.
func (r *reader) stop(err error) {
	if r.err == nil {
		r.err = err
	}
	r.work.Broadcast()
	r.ready.Broadcast()
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop(err)
}

// Schema implements source.Reader.
func (r *reader) Schema() *gpu.Schema { return r.schema }

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context) (*gpu.Stride, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	defer context.AfterFunc(ctx, func() { r.fail(context.Cause(ctx)) })()
	s, err := r.next()
	if err == io.EOF {
		r.end()
	}
	return s, err
}

// next waits for the next stride.
func (r *reader) next() (*gpu.Stride, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.err == nil && len(r.open) > 0 && r.open[0].left > 0 {
		r.ready.Wait()
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(r.open) == 0 {
		r.err = io.EOF
		return nil, r.err
	}
	s := &gpu.Stride{Schema: r.schema, Cols: r.open[0].cols, Rows: r.open[0].plan.rows}
	r.open = r.open[1:]
	r.first++
	r.admitAll()
	r.rowsRead.Add(int64(s.Rows))
	return s, nil
}

// Progress implements source.Reader.
func (r *reader) Progress() source.Progress {
	p := r.total
	p.RowsRead, p.BytesRead = r.rowsRead.Load(), r.bytesRead.Load()
	p.Decode = time.Duration(r.decoding.Load())
	return p
}

// end stops the workers and gives back everything that was not read.
func (r *reader) end() {
	r.unwatch()
	r.mu.Lock()
	if r.err == nil {
		r.err = errors.New("the scan is closed")
	}
	r.closed = true
	r.work.Broadcast()
	r.ready.Broadcast()
	r.mu.Unlock()
	r.workers.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.open {
		gpu.ReleaseColumns(d.cols)
	}
	for _, c := range r.carry {
		c.free()
	}
	for _, c := range r.idle {
		c.free()
	}
	r.open, r.carry, r.idle, r.tasks = nil, nil, nil, nil
}

// Close implements source.Reader.
func (r *reader) Close() error {
	r.end()
	return nil
}
