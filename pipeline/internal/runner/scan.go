package runner

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/transfer"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/source"
)

// newScanFeed returns the feed of a scan. It runs ahead if the device has discrete
// memory.
func newScanFeed(p *pipelineRun, o *opRun) feed {
	shared := p.run.sharedScan(o.Stage)
	if discrete(p.run.device) {
		return &aheadFeed{pipe: p, op: o, scan: shared}
	}
	return &scanFeed{pipe: p, op: o, scan: shared}
}

// sharedScan reads a table for the runs of all devices, stride by stride: each takes the next stride when it is free.
type sharedScan struct {
	mu     sync.Mutex
	users  int             // feeds that have not ended
	ctx    context.Context // of the run, if it is one of several: others read when a feed has ended
	reader source.Reader
	first  *firstFilter
	order  int   // of the next stride
	before int   // positions of other ranks that come before
	none   bool  // another rank reads the table
	err    error // of open
	opened bool
}

// sharedScan returns the scan of a stage.
func (r *run) sharedScan(st *physical.Stage) *sharedScan {
	if r.group == nil {
		return &sharedScan{users: 1}
	}
	x := r.group.scans[st]
	if x == nil {
		x = &sharedScan{}
		x.before, x.none = r.group.world.scans(st)
		r.group.scans[st] = x
	}
	x.users++
	return x
}

// open starts to decode the table, unless another feed has done so.
func (x *sharedScan) open(ctx context.Context, p *pipelineRun, o *opRun, opt source.ScanOptions) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.opened {
		return x.err
	}
	x.opened = true
	if x.none {
		return nil
	}
	if p.run.group != nil {
		ctx = p.run.ctx
		x.ctx = ctx
	}
	x.first = p.firstFilter(o)
	x.first.in(&opt)
	x.reader, x.err = o.open(ctx, opt)
	return x.err
}

// read returns the next stride and its position in the order of the table.
func (x *sharedScan) read(ctx context.Context) (*gpu.Stride, int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.none {
		return nil, 0, io.EOF
	}
	reading := ctx
	if x.ctx != nil {
		reading = x.ctx
	}
	s, err := x.reader.Read(reading)
	if x.order++; err == nil && ctx.Err() != nil {
		s.Release()
		err = context.Cause(ctx)
	}
	return s, x.before | x.order, err
}

// close ends the use of the scan by a feed that has opened it. The last one closes the reader.
func (x *sharedScan) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.users--; x.users > 0 {
		return nil
	}
	return x.end()
}

// end closes the reader, if it is open. The caller holds the lock, or nobody else uses the scan.
func (x *sharedScan) end() (err error) {
	if x.reader != nil {
		err = x.reader.Close()
	}
	x.first.close()
	x.reader, x.first = nil, nil
	return err
}

// scanFeed returns the strides of a table as they are decoded.
type scanFeed struct {
	pipe   *pipelineRun
	op     *opRun
	scan   *sharedScan
	opened bool
	// filters drop rows of the decoded strides.
	filters []*scanFilter
}

func (f *scanFeed) start(context.Context) {}

func (f *scanFeed) run(ctx context.Context) (err error) {
	opt := f.pipe.scanOptions(f.op)
	f.filters = f.pipe.scanFilters(f.op, &opt)
	f.opened = true
	err = f.scan.open(ctx, f.pipe, f.op, opt)
	f.op.state.Store(stateRunning)
	return err
}

func (f *scanFeed) take(ctx context.Context) (morsel, error) {
	s, order, err := f.scan.read(ctx)
	if err != nil {
		return nil, err
	}
	if len(f.filters) == 0 {
		return oneStride(s, order), nil
	}
	return func(_ context.Context, l *lane, emit operators.Emit) error {
		l.order = order
		for _, filter := range f.filters {
			if s, err = filter.apply(l.task(f.op), s); s == nil || err != nil {
				return f.op.explain(err)
			}
		}
		return emit(s)
	}, nil
}

func (f *scanFeed) end() error {
	if !f.opened {
		return nil
	}
	defer f.op.state.Store(stateDone)
	return f.scan.close()
}

// aheadFeed is a scan for a device with its own memory. It decodes and copies up on its own
// goroutines. It begins while the device still starts, and before the build sides of the pipeline's
// joins are complete, so that cores and link have work during that time. If joins filter the scan,
// it begins once they are complete.
type aheadFeed struct {
	pipe  *pipelineRun
	op    *opRun
	scan  *sharedScan
	ahead *transfer.Ahead // once started
	// orders are the positions of the strides that are copied up, in their order.
	mu     sync.Mutex
	orders []int
}

func (f *aheadFeed) start(ctx context.Context) {
	if !f.pipe.filtered(f.op) {
		f.begin(ctx)
	}
}

func (f *aheadFeed) begin(ctx context.Context) {
	if f.ahead == nil {
		f.ahead = transfer.NewAhead(ctx, f.copyUp)
	}
}

func (f *aheadFeed) run(ctx context.Context) error {
	f.begin(ctx)
	f.op.state.Store(stateRunning)
	return nil
}

// take returns a stride that was copied up. The lane makes it usable on its queue.
func (f *aheadFeed) take(ctx context.Context) (morsel, error) {
	s, err := f.ahead.Take(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	order := f.orders[0]
	f.orders = f.orders[1:]
	f.mu.Unlock()
	return func(_ context.Context, l *lane, emit operators.Emit) error {
		l.order = order
		if err := l.queue.Wait(s); err != nil {
			s.Release()
			if errors.Is(err, source.ErrData) {
				return err // it names the file
			}
			return f.op.failed(err)
		}
		return emit(s)
	}, nil
}

func (f *aheadFeed) end() error {
	if f.ahead == nil {
		return nil
	}
	defer f.op.state.Store(stateDone)
	return f.ahead.End(errStop)
}

// copyUp decodes a table and copies all its strides to the device.
func (f *aheadFeed) copyUp(ctx context.Context, ahead *transfer.Ahead) (err error) {
	o := f.op
	defer recoverInto(&err, o.Name())
	opt := f.pipe.scanOptions(o)
	f.pipe.scanFilters(o, &opt)
	// The reader comes first: it decodes while the device may still be starting.
	defer closeScan(f.scan, &err)
	if err := f.scan.open(ctx, f.pipe, o, opt); err != nil {
		return err
	}
	q, err := f.pipe.run.device.NewQueue(o.Name())
	if err != nil {
		return o.failed(err)
	}
	defer func() { err = with(err, q.Close()) }()
	var readErr error
	err = ahead.Copy(ctx, q, o.lease, func(ctx context.Context) (s *gpu.Stride, err error) {
		s, order, err := f.scan.read(ctx)
		if readErr = err; err == nil {
			f.mu.Lock()
			f.orders = append(f.orders, order)
			f.mu.Unlock()
		}
		return s, err
	})
	if err != nil && err == readErr {
		return err // it names the file
	}
	return o.failed(err)
}

// closeScan ends the use of a scan. Its error becomes the error of the scan if
// there is none, or if the scan was stopped because nobody needs more rows.
func closeScan(x *sharedScan, err *error) {
	if closeErr := x.close(); *err == nil || *err == errStop && closeErr != nil {
		*err = closeErr
	}
}

// open starts to decode the table of a scan.
func (o *opRun) open(ctx context.Context, opt source.ScanOptions) (source.Reader, error) {
	reader, err := o.scan.Table.Scan(ctx, opt)
	if err == nil {
		o.reader.Store(&reader)
	}
	return reader, err
}

// scanOptions say how the pipeline scans a table.
func (p *pipelineRun) scanOptions(o *opRun) source.ScanOptions {
	r, rows := p.run, p.strideRows(int(o.RowBytes))
	return source.ScanOptions{
		Columns: o.scan.Columns, Prune: o.scan.Prune, StrideRows: rows, Lease: o.decode,
		Decode: source.DecodeOptions{
			Threads: r.threads(), Slots: r.slots,
			Inflight: r.inflight(o, rows), InflightBytes: r.inflightBytes(p.pages),
			Encoded: discrete(r.device), Pages: r.decodesPages(), Trace: r.trace(laneDecode, o.Name()),
		},
	}
}

// pagesAhead bounds the bytes of pages that a scan reads ahead. Memory that is page-locked for them is slower than the
// link, so less of it is used more often.
const pagesAhead = 512 << 20

// decodesPages reports whether scans leave pages to the device.
func (r *run) decodesPages() bool {
	return r.device.Known().DecodePages
}

// leavesPages reports whether the device decodes all columns of a scan, and whether their pages are slow.
func (r *run) leavesPages(s *physical.Scan) (pages, slow bool) {
	t, ok := s.Table.(source.Paged)
	if !ok || !r.decodesPages() || !t.InPages(s.Columns) {
		return false, false
	}
	return true, t.SlowPages(s.Columns)
}

// inflight returns the number of strides that are decoded at a time. It is one per thread, because
// one thread decodes the slowest column of a stride. For a discrete device it is the number that
// page-locked memory allows if encoded columns are not small; once they are known to be small, more
// are decoded.
func (r *run) inflight(o *opRun, rows int) int {
	if r.frugal {
		return 1
	}
	n := r.threads() + 1
	if bytes := r.inflightBytes(false); bytes > 0 {
		n = min(2*n, max(int(bytes/int64(max(o.Schema.RowBytes(), 1)*rows)), 3))
	}
	return n
}

// inflightBytes returns the number of bytes that a scan for a discrete device may decode ahead. The
// scans of a run may all decode at the same time, and share grant.DecodeAhead. The pages that are
// being decoded, and the output, use the rest of the host budget.
func (r *run) inflightBytes(pages bool) int64 {
	if !discrete(r.device) {
		return 0
	}
	scans := 0
	for _, o := range r.ops {
		if o.scan != nil {
			scans++
		}
	}
	bytes := grant.DecodeAhead.Among(r.device.HostBudget().Limit(), scans)
	if pages {
		return min(bytes, pagesAhead)
	}
	return bytes
}
