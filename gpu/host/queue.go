package host

import (
	"context"
	"errors"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/eval"
	"github.com/gstream/gstream/gpu/host/internal/move"
)

var errClosed = errors.New("queue is closed")

// queue runs primitives immediately, on the caller's goroutine and, unless it is a lane's
// queue, on the other cores.
type queue struct {
	dev  *Device
	name string
	err  error
}

// Device implements gpu.Queue.
func (q *queue) Device() gpu.Device { return q.dev.device() }

// Until implements gpu.Queue.
func (q *queue) Until(ctx context.Context) {
	share := *q.dev
	share.whole, share.cores.Context = q.dev.device(), ctx
	q.dev = &share
}

// Close implements gpu.Queue.
func (q *queue) Close() error {
	if q.err == errClosed {
		return nil
	}
	err := q.err
	q.err = errClosed
	return err
}

// fail makes err stick if it is a failure, and returns it.
func (q *queue) fail(err error) error {
	if q.err == nil && gpu.IsFailure(err) {
		q.err = err
	}
	return err
}

// check returns an error if a primitive cannot run on the columns: the queue has an error, its
// context has ended, or a column does not belong to its device.
func (q *queue) check(columns ...[]gpu.Column) error {
	if q.err != nil {
		return q.err
	}
	if ctx := q.dev.cores.Context; ctx != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, cols := range columns {
		if err := gpu.CheckMemory(q.dev, cols); err != nil {
			return err
		}
	}
	return nil
}

// queue returns gq as a queue that can run on the columns with state of this device.
func (d *Device) queue(gq gpu.Queue, columns ...[]gpu.Column) (*queue, error) {
	q, ok := gq.(*queue)
	if !ok || q.dev.device() != d.device() {
		return nil, gpu.ErrOtherDevice(d, gq.Device())
	}
	return q, q.check(columns...)
}

// Upload implements gpu.Queue. Host memory is device memory here.
func (q *queue) Upload(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if err := gpu.CheckHostMemory(s.Cols, nil); err != nil {
		return nil, err
	}
	if err := s.DecodePages("the step runs on the CPU"); err != nil {
		return nil, q.fail(err)
	}
	cols := make([]gpu.Column, 0, len(s.Cols))
	for _, c := range s.Cols {
		c, err := move.Decode(q.dev.cores, l, c)
		if err != nil {
			gpu.ReleaseColumns(cols)
			return nil, q.fail(err)
		}
		cols = append(cols, c)
	}
	s.Release()
	s.Cols = cols
	return s, nil
}

// UploadAhead implements gpu.Queue.
func (q *queue) UploadAhead(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) { return q.Upload(l, s) }

// Wait implements gpu.Queue.
func (q *queue) Wait(*gpu.Stride) error { return nil }

// Download implements gpu.Queue.
func (q *queue) Download(_ *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) {
	if err := q.check(s.Cols); err != nil {
		return nil, err
	}
	return s, nil
}

// Eval implements gpu.Queue.
func (q *queue) Eval(l *gpu.Lease, p *gpu.Program, in []gpu.Column, n int) ([]gpu.Column, error) {
	if err := q.check(in); err != nil {
		return nil, err
	}
	if p.FirstBody() >= 0 {
		return gpu.EvalBodies(q, l, p, in, n)
	}
	out, err := eval.Run(q.dev.cores, l, p, in, n)
	return out, q.fail(err)
}

// ints returns the values of a column of row ids.
func ints(c gpu.Column) []int32 { return gpu.Values[int32](c.Data, c.Len) }
