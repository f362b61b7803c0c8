package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/spill"
)

// Scan implements source.Table. Goroutines read groups of pages ahead, which Read returns in order.
func (t *Table) Scan(ctx context.Context, opt source.ScanOptions) (source.Reader, error) {
	if opt.Lease == nil {
		return nil, errors.New("a scan of rows of earlier tasks needs a lease for its strides")
	}
	for _, c := range opt.Columns {
		if c < 0 || c >= t.schema.Len() {
			return nil, fmt.Errorf("a scan asks for column %d of %d", c, t.schema.Len())
		}
	}
	if opt.Decode.Threads <= 0 {
		opt.Decode.Threads = runtime.GOMAXPROCS(0)
	}
	if err := source.CheckMemory(t, opt); err != nil {
		return nil, err
	}
	r := &reader{table: t, opt: opt, schema: &gpu.Schema{}, done: map[int]result{}}
	for _, c := range opt.Columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	r.inflight = max(opt.Decode.Inflight, 0)
	if r.inflight == 0 {
		r.inflight = opt.Decode.Threads + 1
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.changed.L = &r.mu
	r.unwatch = context.AfterFunc(r.ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	for range min(opt.Decode.Threads, r.inflight, len(t.groups)) {
		r.workers.Go(r.work)
	}
	return r, nil
}

// reader is one scan.
type reader struct {
	table    *Table
	opt      source.ScanOptions
	schema   *gpu.Schema
	inflight int // most groups in memory
	ctx      context.Context
	cancel   context.CancelCauseFunc
	unwatch  func() bool
	workers  sync.WaitGroup

	rows, bytes, decoding atomic.Int64

	mu      sync.Mutex
	changed sync.Cond
	begun   int // groups that workers have begun
	next    int // the group that is read next
	done    map[int]result
	err     error
	ended   bool
}

// result is what became of a group.
type result struct {
	stride *gpu.Stride
	err    error
}

// work reads groups until there are no more.
func (r *reader) work() {
	var open struct {
		store.File
		number int
	}
	defer func() {
		if open.File != nil {
			open.Close()
		}
	}()
	var pages spill.Pages
	for {
		i := r.take()
		if i < 0 {
			return
		}
		g := &r.table.groups[i]
		var out result
		if open.File == nil || open.number != g.file {
			if open.File != nil {
				open.Close()
			}
			f := r.table.files[g.file]
			open.number = g.file
			open.File, out.err = store.Open(r.ctx, f.Path, nil)
			if out.err == nil {
				if got := open.Version().Size; got != f.Size {
					out.err = badf("it has %d bytes in place of %d", got, f.Size)
				}
			}
		}
		if out.err == nil {
			out.stride, out.err = r.patiently(i, func() (*gpu.Stride, error) { return r.read(open.File, &pages, g) })
		}
		if out.err != nil && !gpu.IsOutOfMemory(out.err) && r.ctx.Err() == nil {
			out.err = fmt.Errorf("rows of an earlier task: %s: %w", store.Display(r.table.files[g.file].Path), out.err)
		}
		r.mu.Lock()
		r.done[i] = out
		r.changed.Broadcast()
		r.mu.Unlock()
	}
}

// take returns the number of a group once there is room for it, or -1. The one that is read next always has room.
// Others leave memory for one more, and for other operators.
func (r *reader) take() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.ctx.Err() != nil || r.begun == len(r.table.groups) {
			return -1
		}
		need := r.table.groups[r.begun].memory()
		if ahead := r.begun - r.next; ahead == 0 || ahead < r.inflight &&
			r.opt.Lease.Available() >= 2*need+grant.Headroom.Of(r.opt.Lease.Limit()) {
			r.begun++
			return r.begun - 1
		}
		r.changed.Wait()
	}
}

// patiently reads a group. Memory that is denied comes back at the latest when the groups before it have been read.
func (r *reader) patiently(i int, read func() (*gpu.Stride, error)) (s *gpu.Stride, err error) {
	for {
		r.mu.Lock()
		first := r.next == i
		r.mu.Unlock()
		err := r.opt.Lease.Patiently(r.ctx, func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = gpu.Panicked("a reader of rows of earlier tasks", p, debug.Stack())
				}
			}()
			if slots := r.opt.Decode.Slots; slots != nil {
				select {
				case slots <- struct{}{}:
					defer func() { <-slots }()
				case <-r.ctx.Done():
					return context.Cause(r.ctx)
				}
			}
			begin := time.Now()
			s, err = read()
			r.decoding.Add(int64(time.Since(begin)))
			if r.opt.Decode.Trace != nil {
				r.opt.Decode.Trace("rows", begin)
			}
			return err
		})
		if first || !gpu.IsOutOfMemory(err) {
			return s, err
		}
		r.mu.Lock()
		for r.next < i && r.ctx.Err() == nil {
			r.changed.Wait()
		}
		r.mu.Unlock()
	}
}

// read reads a group.
func (r *reader) read(f store.File, pages *spill.Pages, g *group) (*gpu.Stride, error) {
	scratch := g.scratch()
	if err := r.opt.Lease.Reserve(scratch); err != nil {
		return nil, err
	}
	defer r.opt.Lease.Unreserve(scratch)
	data := make([]byte, g.read)
	if _, err := f.ReadAt(r.ctx, data, g.pages[0].Offset); err != nil {
		return nil, err
	}
	list := make([]spill.Page, len(g.pages))
	for i := range g.pages {
		list[i] = g.pages[i].Page
	}
	all, err := pages.Read(r.opt.Lease, r.table.schema, list, data)
	if err != nil {
		return nil, err
	}
	defer all.Release()
	s := &gpu.Stride{Schema: r.schema, Rows: all.Rows}
	for _, c := range r.opt.Columns {
		col := all.Cols[c]
		col.Retain()
		s.Cols = append(s.Cols, col)
	}
	r.bytes.Add(g.read)
	return s, nil
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
		if r.err == nil && r.next == len(r.table.groups) {
			r.err = io.EOF
		}
		if r.err != nil {
			return nil, r.err
		}
		if out, ok := r.done[r.next]; ok {
			delete(r.done, r.next)
			r.next++
			r.changed.Broadcast()
			if r.err = out.err; r.err != nil {
				return nil, r.err
			}
			r.rows.Add(int64(out.stride.Rows))
			return out.stride, nil
		}
		r.changed.Wait()
	}
}

// Progress implements source.Reader.
func (r *reader) Progress() source.Progress {
	total := r.table.total
	return source.Progress{RowsRead: r.rows.Load(), RowsTotal: total.Rows, BytesRead: r.bytes.Load(),
		BytesTotal: total.Bytes, Files: int64(len(r.table.files)), Decode: time.Duration(r.decoding.Load())}
}

// Close implements source.Reader.
func (r *reader) Close() error {
	r.cancel(errors.New("the reader is closed"))
	r.workers.Wait()
	r.unwatch()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	r.ended = true
	for _, out := range r.done {
		if out.stride != nil {
			out.stride.Release()
		}
	}
	r.done = nil
	if r.err == nil {
		r.err = errors.New("the reader is closed")
	}
	return nil
}
