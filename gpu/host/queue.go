package host

import (
	"context"
	"errors"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/eval"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
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
	cols := make([]gpu.Column, 0, len(s.Cols))
	for _, c := range s.Cols {
		c, err := joined(l, c)
		if err == nil {
			var unpacked gpu.Column
			unpacked, err = decode(q.dev.cores, l, c)
			c.Release()
			c = unpacked
		}
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

// joined returns a column with the pieces of its values in one buffer, with its own references.
func joined(l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	out := c.Retain()
	pieces := c.Data.Pieces()
	if pieces == nil {
		return out, nil
	}
	data, err := l.Alloc(c.Data.Size())
	if err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	at := 0
	for _, p := range pieces {
		at += copy(data.Bytes()[at:], p.Bytes())
	}
	out.Data.Release()
	out.Data = data
	return out, nil
}

// decode returns an ordinary column for an encoded one, with its own references.
func decode(cores parallel.Cores, l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	switch {
	case c.CodeWidth == 0:
		return c.Retain(), nil
	case c.Dict == nil:
		return widen(l, c)
	}
	out := c.Retain()
	out.CodeWidth = 0
	if c.CodeWidth < 4 {
		codes, err := l.Alloc(int64(c.Len) * 4)
		if err != nil {
			out.Release()
			return gpu.Column{}, err
		}
		wide := gpu.Values[int32](codes, c.Len)
		for i := range wide {
			wide[i] = int32(c.Code(i))
		}
		c.Data.Release()
		out.Data = codes
	}
	if c.Type.IsVar() {
		return out, nil
	}
	defer out.Release()
	return expand(cores, l, out)
}

// widen returns an encoded column without a dictionary with its values widened to 8
// bytes.
func widen(l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	values, err := l.Alloc(int64(c.Len) * 8)
	if err != nil {
		return gpu.Column{}, err
	}
	wide := gpu.Values[int64](values, c.Len)
	for i, v := range gpu.Values[int32](c.Data, c.Len) {
		wide[i] = int64(v)
	}
	return gpu.Column{Type: c.Type, Len: c.Len, Data: values, Valid: c.Valid.Retain()}, nil
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
	out, err := eval.Run(q.dev.cores, l, p, in, n)
	return out, q.fail(err)
}

// builder collects the columns of a result, and releases them after an error.
type builder struct {
	lease *gpu.Lease
	cols  []gpu.Column
}

func (b *builder) fail(err error) ([]gpu.Column, error) {
	gpu.ReleaseColumns(b.cols)
	return nil, err
}
