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
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/source"
)

// maxDeferring bounds the number of strides that are decoded at a time while tasks wait for each
// other, as a multiple of the usual number.
const maxDeferring = 4

// minInflight is the least number of strides that are decoded at a time, whatever their size. The
// next stride is then in progress while a stride is read.
const minInflight = 2

// defaultStrideRows is the number of rows of a stride if the scan does not set it.
const defaultStrideRows = 1 << 17

// rowsOffered bounds the rows that a filter has left and that are not yet cut into strides, as a multiple of a stride.
const rowsOffered = 2

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
	threads := opt.Decode.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	readers := threads // goroutines that read indexes and Bloom filters
	if t.remote() {
		readers = max(readers, remoteReads)
	}
	slots := opt.Decode.Slots
	if slots == nil {
		slots = make(chan struct{}, threads)
	}
	inflight := opt.Decode.Inflight
	if inflight <= 0 {
		inflight = threads + 1
	}
	if t.remote() && inflight > 1 {
		inflight = max(inflight, min(remoteReads/max(len(opt.Columns), 1), remoteStrides))
	}
	opt.StrideRows = int(strideRows(opt))
	if err := source.CheckMemory(t, opt); err != nil {
		return nil, err
	}
	cut, total, err := t.planScan(ctx, opt, readers)
	if err != nil {
		return nil, err
	}
	opt.Decode.Slots, opt.Decode.Inflight, opt.Decode.Threads = slots, inflight, threads
	r := t.newReader(opt, total)
	r.cut = cut
	if t.filtersFirst(opt, total) {
		r.filter = newFilterFirst(ctx, t, r, opt)
	}
	r.start(ctx, opt.Decode)
	if r.filter != nil {
		go r.filter.run()
	}
	return r, nil
}

// start starts the workers.
func (r *reader) start(ctx context.Context, opt source.DecodeOptions) {
	r.slots, r.inflight, r.ctx = opt.Slots, opt.Inflight, ctx
	r.cut.ctx, r.cancel = context.WithCancelCause(ctx)
	r.upcoming = r.cut.next()
	r.unwatch = context.AfterFunc(ctx, func() { r.fail(context.Cause(ctx)) })
	workers := opt.Threads
	if r.remote {
		workers = max(workers, remoteReads) // most of them wait for bytes
	}
	for range workers {
		r.workers.Add(1)
		go r.decode()
	}
}

// newReader returns a reader without strides.
func (t *Table) newReader(opt source.ScanOptions, total source.Progress) *reader {
	r := &reader{
		columns: opt.Columns, lease: opt.Lease, encoded: opt.Decode.Encoded, pages: opt.Decode.Pages,
		trace:         opt.Decode.Trace,
		inflightBytes: opt.Decode.InflightBytes,
		total:         total,
		remote:        t.remote(),
		schema:        &gpu.Schema{Fields: make([]gpu.Field, len(opt.Columns))},
		order:         t.bySize(opt.Columns),
		left:          -1,
	}
	for i, c := range opt.Columns {
		r.schema.Fields[i] = t.schema.Fields[c]
		r.decoded.columns = append(r.decoded.columns, source.Decoded{Column: t.schema.Fields[c].Name})
	}
	r.work.L, r.ready.L, r.taking.L = &r.mu, &r.mu, &r.mu
	return r
}

// bySize orders the columns by size, the largest first. The last task to start is then a short one.
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

// reader is one scan. Each task decodes one column of one stride. Workers run tasks in the order of
// the strides. A task that waits for a page or dictionary that another task is decoding is
// deferred.
type reader struct {
	schema        *gpu.Schema
	columns       []int
	lease         *gpu.Lease
	total         source.Progress // the work for all rows, known before the first row is read
	encoded       bool
	pages         bool // leave to the device what it can decode
	remote        bool // some files are objects, whose bytes are read before a task takes a slot
	inflight      int
	inflightBytes int64
	ctx           context.Context         // of the scan
	cancel        context.CancelCauseFunc // ends the reads of the chunks
	unwatch       func() bool
	trace         func(string, time.Time)
	slots         chan struct{}
	workers       sync.WaitGroup
	reads         readQueue

	filter *filterFirst // decides which rows are read; nil without one

	decoding atomic.Int64 // nanoseconds of all workers together
	rowsRead atomic.Int64
	decoded  struct { // who has decoded each column
		sync.Mutex
		columns []source.Decoded
	}

	mu       sync.Mutex
	work     sync.Cond // signals that a worker may find a task, or that the scan ends
	ready    sync.Cond // signals that the next stride is complete, or that the scan ends
	taking   sync.Cond // signals that the scan has cut a stride from the rows that a filter has left, or that it ends
	order    []int     // columns in the order of their tasks, the largest first
	cut      cutter
	upcoming stridePlan // the stride to admit next; it has no rows after the last stride, and while a filter decides
	tasks    []task     // ready to run, in order
	deferred []deferred
	waits    atomic.Int64 // length of deferred
	open     []*decoding
	first    int   // number of the stride in open[0], which Read returns next
	most     int64 // bytes of the largest stride so far
	err      error
	idle     []*pageReader
	closed   bool
	reading  bool  // a Read is waiting
	running  int   // number of running tasks
	promised int64 // upper bound of the bytes that running tasks need

	// The state after memory was denied.
	denied *gpu.BudgetError   // the last error; nil when tasks may start again
	left   int64              // available bytes of the budget at that time; -1 if no memory was denied
	still  bool               // a wait for memory ended without any change; the next try is the last
	unwait context.CancelFunc // ends the wait of the worker that waits for memory
}

// task decodes one column of one stride.
type task struct{ stride, column int }

// deferred is a task that waits until another task has decoded a page or dictionary.
type deferred struct {
	task
	done <-chan struct{}
}

// decoding is a stride that was admitted and not read yet.
type decoding struct {
	plan stridePlan
	cols []gpu.Column
	need []int64 // upper bound of the bytes for decoding each column
	left int     // number of columns that are not decoded yet
}

// room reports whether one more stride may be decoded. While the size of a stride is unknown, the
// number of strides is bounded. Afterwards their bytes are bounded, including the pages and
// dictionaries that are read for them. While tasks wait for other tasks of their row group, more
// strides are allowed, so that the workers stay busy.
func (r *reader) room() bool {
	if r.inflightBytes == 0 || r.most == 0 {
		return len(r.open) < r.inflight || len(r.deferred) > 0 && len(r.open) < maxDeferring*r.inflight
	}
	more := r.most // bytes for strides that are not complete
	if r.pages {
		// A task takes all its memory at once.
		more += r.most * int64(len(r.tasks)) / int64(max(len(r.columns), 1))
	} else {
		for _, d := range r.open {
			if d.left > 0 {
				more += r.most
			}
		}
	}
	used, _ := r.lease.Used()
	return len(r.open) < minInflight || used+more <= r.inflightBytes
}

// admit starts the next stride. The caller holds the lock.
func (r *reader) admit() {
	s := r.first + len(r.open)
	n := len(r.columns)
	d := &decoding{plan: r.upcoming, cols: make([]gpu.Column, n), need: make([]int64, n), left: n}
	for i, c := range r.columns {
		d.need[i] = d.plan.memory(c, r.encoded).total()
		if r.remote {
			d.need[i] += d.plan.bytes(c)
		}
	}
	r.open = append(r.open, d)
	r.upcoming = r.cut.next()
	r.taking.Signal()
	for _, c := range r.order {
		r.tasks = append(r.tasks, task{s, c})
	}
	if n == 0 && len(r.open) == 1 {
		r.ready.Broadcast()
	}
}

// nextTask chooses one of the ready tasks.
var nextTask = func(ready int) int { return 0 } // replaced in tests

// take waits for a task. It returns false when the scan has ended. The caller holds the
// lock.
func (r *reader) take() (task, bool) {
	for r.err == nil {
		switch {
		case len(r.tasks) > 0:
			i := nextTask(len(r.tasks))
			t := r.tasks[i]
			if !r.affords(t) {
				r.work.Wait()
				continue
			}
			r.tasks = slices.Delete(r.tasks, i, i+1)
			r.running++
			r.promised += r.need(t)
			if len(r.tasks) > 0 || r.upcoming.rows > 0 && r.room() {
				r.work.Signal()
			}
			return t, true
		case r.upcoming.rows > 0 && r.room():
			r.admit()
		default:
			r.work.Wait()
		}
	}
	return task{}, false
}

// need returns an upper bound of the bytes that a task needs.
func (r *reader) need(t task) int64 { return r.open[t.stride-r.first].need[t.column] }

// affords reports whether there is memory for a task. A task of the stride that is read next may
// always be tried if no other task runs. Tasks of later strides leave a share of the budget free
// for other operators. Otherwise strides that are decoded too early could deny them memory.
func (r *reader) affords(t task) bool {
	if r.denied != nil {
		return false
	}
	if t.stride == r.first && r.running == 0 {
		return true
	}
	left := r.lease.Available()
	if t.stride > r.first {
		left -= grant.Headroom.Of(r.lease.Limit())
	}
	return r.promised+r.need(t) <= left
}

// put adds a task to the ready tasks, in the order of strides. The caller holds the lock.
func (r *reader) put(t task) {
	i, _ := slices.BinarySearchFunc(r.tasks, t.stride,
		func(o task, stride int) int { return cmp.Compare(o.stride, stride) })
	r.tasks = slices.Insert(r.tasks, i, t)
	r.work.Signal()
}

// deny puts back a task that was denied memory, and waits until memory is released: by other
// tasks, by the readers of earlier strides, or by other operators. The caller holds the lock, which
// is released during the wait.
func (r *reader) deny(t task, err *gpu.BudgetError) {
	for _, c := range r.idle {
		c.free()
	}
	if r.remote {
		r.forgetAhead()
	}
	r.put(t)
	r.denied = err
	if r.unwait != nil {
		r.look() // one worker waits for all workers
		return
	}
	for r.denied != nil && r.err == nil {
		r.await()
	}
}

// await waits once for memory after it was denied, and lets tasks start again if that may help. The
// scan fails if a Read waits for the next stride, no task is running, and nobody takes or releases
// memory.
func (r *reader) await() {
	left := r.lease.Available()
	if left > r.left { // memory may have been released after it was denied
		r.left, r.still = left, false
		r.tryAgain()
		return
	}
	used, _ := r.lease.Used()
	alone := r.rowsRead.Load() == 0 && left+used == r.lease.Limit()
	if r.stuck() && left == r.left && (alone || r.still) {
		if !r.relinquish() {
			r.stop(r.denied)
		}
		return
	}
	r.left, r.still = left, false
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.unwait = cancel
	r.mu.Unlock()
	more := r.lease.AwaitMore(ctx, left)
	r.mu.Lock()
	r.unwait = nil
	if !more && ctx.Err() == nil && r.stuck() {
		r.still = true
		r.tryAgain()
	}
}

// relinquish ends the filter that decides first, whose strides take memory, and lets tasks start again. It returns
// false if there is none any more. The caller holds the lock, which is released during the wait.
func (r *reader) relinquish() bool {
	if r.filter == nil || r.filter.ended {
		return false
	}
	r.unwait = func() {} // other workers leave the wait to this one
	r.mu.Unlock()
	r.filter.end()
	r.mu.Lock()
	r.unwait, r.filter.ended = nil, true
	r.relieve()
	return true
}

// stuck reports whether a Read waits for the next stride and no task is running. The
// caller holds the lock.
func (r *reader) stuck() bool { return r.running == 0 && r.reading }

// look lets the worker that waits for memory check the state of the scan again. The caller holds
// the lock.
func (r *reader) look() {
	if r.unwait != nil {
		r.unwait()
	}
}

// tryAgain lets tasks start again after memory was denied. The caller holds the lock.
func (r *reader) tryAgain() {
	r.denied = nil
	r.work.Signal()
	r.look()
}

// relieve is tryAgain after the scan has received or released memory. The caller holds the lock.
func (r *reader) relieve() {
	r.left, r.still = -1, false
	r.tryAgain()
}

// decode runs tasks until the scan ends.
func (r *reader) decode() {
	defer r.workers.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		t, ok := r.take()
		if !ok {
			return
		}
		plan, need := &r.open[t.stride-r.first].plan, r.need(t)
		pages := r.spare()
		r.mu.Unlock()
		var col gpu.Column
		err := r.readAhead(plan, t.column, need)
		r.slots <- struct{}{}
		begin := time.Now()
		if err == nil {
			col, err = r.run(plan, t.column, pages)
		}
		r.decoding.Add(int64(time.Since(begin)))
		var busy busyError
		if r.trace != nil && !errors.As(err, &busy) {
			r.trace(r.schema.Fields[t.column].Name, begin)
		}
		<-r.slots
		r.mu.Lock()
		r.idle = append(r.idle, pages)
		r.running--
		r.promised -= need
		r.look()
		r.finish(t, col, err)
	}
}

// spare returns a page reader that no task uses. The caller holds the lock.
func (r *reader) spare() *pageReader {
	if n := len(r.idle); n > 0 {
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		return c
	}
	return &pageReader{lease: r.lease, ready: r.resume}
}

// run decodes column i of a stride, or leaves that to the device.
func (r *reader) run(plan *stridePlan, i int, pages *pageReader) (col gpu.Column, err error) {
	pages.start()
	reason := ""
	if r.pages {
		if col, reason, err = r.keepPages(plan, i, pages); err != nil {
			return col, err
		}
	}
	byDevice := r.pages && reason == ""
	if !byDevice {
		if col, err = r.decodeColumn(plan, i, pages); err != nil {
			return col, err
		}
	}
	for _, s := range plan.segments {
		s.chunks[i].release(s.from, s.to)
	}
	if n := plan.bytes(r.columns[i]); byDevice {
		r.count(i, n, 0, "")
	} else {
		r.count(i, 0, n, reason)
	}
	return col, nil
}

// count adds to the bytes of column i that the device and the CPU decode. reason says why the CPU does.
func (r *reader) count(i int, byDevice, byCPU int64, reason string) {
	r.decoded.Lock()
	defer r.decoded.Unlock()
	d := &r.decoded.columns[i]
	d.ByDevice += byDevice
	d.ByCPU += byCPU
	if byCPU > 0 { // not for a column that is in no file
		d.Reason = cmp.Or(d.Reason, reason)
	}
}

// decodeColumn decodes column i of a stride.
func (r *reader) decodeColumn(plan *stridePlan, i int, pages *pageReader) (col gpu.Column, err error) {
	field := r.schema.Fields[i]
	if field.Type.IsNested() {
		return r.decodeNested(plan, i, pages)
	}
	d := columnDecoder{lease: pages.lease, t: field.Type, rows: plan.rows, encoded: r.encoded}
	at := location{column: field.Name, rowGroup: -1}
	defer func() {
		if err != nil {
			d.discard()
			pages.abandon()
			err = at.place(err)
		}
	}()
	defer guard(&err)
	row := 0
	for _, s := range plan.segments {
		at.path, at.rowGroup = s.file.path, s.group
		chunk := s.chunks[i]
		pages.seek(chunk, s.from, s.to)
		if err := d.read(pages, row); err != nil {
			return col, err
		}
		if err := chunk.finish(s.to); err != nil {
			return col, err
		}
		row += int(s.to - s.from)
	}
	return d.column()
}

// finish records the outcome of a task. The caller holds the lock.
func (r *reader) finish(t task, col gpu.Column, err error) {
	var busy busyError
	var refused *gpu.BudgetError
	switch {
	case errors.As(err, &busy):
		r.deferred = append(r.deferred, deferred{t, busy.done})
		r.waits.Store(int64(len(r.deferred)))
		r.resumeLocked() // this task may have decoded what a deferred task waits for
		return
	case errors.As(err, &refused) && r.err == nil:
		r.deny(t, refused)
		return
	case err != nil:
		r.stop(err)
		return
	case r.closed:
		col.Release()
		return
	}
	if r.denied != nil {
		r.relieve()
	}
	r.left, r.still = -1, false
	d := r.open[t.stride-r.first]
	d.cols[t.column] = col
	if d.left--; d.left > 0 {
		return
	}
	s := gpu.Stride{Cols: d.cols}
	r.most = max(r.most, s.Bytes())
	if t.stride == r.first {
		r.ready.Broadcast()
	}
}

// resume makes deferred tasks ready if their waits are over. A task that is deferred right after
// waits was read checks by itself whether its wait is over.
func (r *reader) resume() {
	if r.waits.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumeLocked()
}

func (r *reader) resumeLocked() {
	r.deferred = slices.DeleteFunc(r.deferred, func(d deferred) bool {
		select {
		case <-d.done:
			r.put(d.task)
			return true
		default:
			return false
		}
	})
	r.waits.Store(int64(len(r.deferred)))
}

// stop ends the scan with its first error. The caller holds the lock.
func (r *reader) stop(err error) {
	if r.err == nil {
		r.err = err
	}
	r.cancel(r.err)
	r.work.Broadcast()
	r.ready.Broadcast()
	r.taking.Broadcast()
	r.look()
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
	s, _, err := r.next()
	if err == io.EOF {
		r.end()
	}
	return s, err
}

// next waits for the next stride, and returns it with its rows.
func (r *reader) next() (*gpu.Stride, []segment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.err == nil &&
		(len(r.open) > 0 && r.open[0].left > 0 || len(r.open) == 0 && (r.upcoming.rows > 0 || r.cut.open)) {
		if !r.reading {
			r.reading = true
			r.look()
		}
		r.ready.Wait()
	}
	r.reading = false
	if r.err != nil {
		return nil, nil, r.err
	}
	if len(r.open) == 0 {
		r.err = io.EOF
		return nil, nil, r.err
	}
	plan := &r.open[0].plan
	s := &gpu.Stride{Schema: r.schema, Cols: r.open[0].cols, Rows: plan.rows}
	r.open = r.open[1:]
	r.first++
	r.relieve()
	r.rowsRead.Add(int64(s.Rows))
	return s, plan.segments, nil
}

// offer adds rows that a filter has left to those of the scan. It waits while the scan has enough rows, unless the
// filter or the scan has ended.
func (r *reader) offer(u uncut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.err == nil && r.cut.rows > rowsOffered*r.cut.target && r.filter.ctx.Err() == nil {
		r.taking.Wait()
	}
	r.cut.add(u.file, u.group, u.ranges, u.rows, u.file.groups[u.group].widest(r.columns))
	r.offered()
}

// endOffers ends the rows of the scan.
func (r *reader) endOffers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut.open = false
	r.offered()
}

// offered lets the workers look for rows. The caller holds the lock.
func (r *reader) offered() {
	if r.upcoming.rows == 0 {
		r.upcoming = r.cut.next()
	}
	r.work.Broadcast()
	r.ready.Broadcast()
}

// Progress implements source.Reader.
func (r *reader) Progress() source.Progress {
	p := r.total
	p.RowsRead = r.rowsRead.Load()
	r.decoded.Lock()
	p.Columns = slices.Clone(r.decoded.columns)
	r.decoded.Unlock()
	for _, d := range p.Columns {
		p.BytesRead += d.ByDevice + d.ByCPU
		p.BytesPages += d.ByDevice
	}
	p.Decode = time.Duration(r.decoding.Load())
	if r.filter != nil {
		r.filter.report(&p)
	}
	return p
}

// end stops the workers and releases all strides that were not read.
func (r *reader) end() {
	r.unwatch()
	r.mu.Lock()
	r.stop(errors.New("the scan is closed"))
	r.closed = true
	r.mu.Unlock()
	if r.filter != nil {
		r.filter.end()
	}
	r.workers.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	plans := []stridePlan{r.upcoming}
	for _, d := range r.open {
		gpu.ReleaseColumns(d.cols)
		plans = append(plans, d.plan)
	}
	for _, p := range plans {
		for _, s := range p.segments {
			for _, c := range s.chunks {
				c.discard()
			}
		}
	}
	for _, c := range r.idle {
		c.free()
	}
	r.open, r.idle, r.tasks, r.deferred = nil, nil, nil, nil
}

// Close implements source.Reader.
func (r *reader) Close() error {
	r.end()
	return nil
}
