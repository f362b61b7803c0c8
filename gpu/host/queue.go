package host

import (
	"errors"
	"fmt"

	"github.com/gstream/gstream/gpu"
)

var errClosed = errors.New("queue is closed")

// queue runs primitives at once, on the caller's goroutine and its helpers.
type queue struct {
	dev  *Device
	name string
	err  error
}

// NewQueue implements gpu.Device.
func (d *Device) NewQueue(name string) (gpu.Queue, error) { return &queue{dev: d, name: name}, nil }

// Device implements gpu.Queue.
func (q *queue) Device() gpu.Device { return q.dev }

// Close implements gpu.Queue.
func (q *queue) Close() error {
	if q.err == errClosed {
		return nil
	}
	err := q.err
	q.err = errClosed
	return err
}

// fail makes err stick and returns it.
func (q *queue) fail(err error) error {
	if err != nil && q.err == nil {
		q.err = err
	}
	return err
}

// Up implements gpu.Queue; host memory is device memory here.
func (q *queue) Up(_ *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) { return q.move(s) }

// UpAhead implements gpu.Queue.
func (q *queue) UpAhead(_ *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) { return q.move(s) }

// Arrive implements gpu.Queue.
func (q *queue) Arrive(*gpu.Stride) error { return nil }

// Down implements gpu.Queue.
func (q *queue) Down(_ *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) { return q.move(s) }

func (q *queue) move(s *gpu.Stride) (*gpu.Stride, error) {
	if q.err != nil {
		s.Release()
		return nil, q.err
	}
	return s, nil
}

// Eval implements gpu.Queue.
func (q *queue) Eval(l *gpu.Lease, p *gpu.Program, in []gpu.Column, n int) ([]gpu.Column, error) {
	if q.err != nil {
		return nil, q.err
	}
	out, err := eval(q.dev, l, p, in, n)
	return out, q.fail(err)
}

// checkIDs makes sure that a column can serve as row ids.
func checkIDs(ids gpu.Column) error {
	if ids.Type.Kind != gpu.Int32 || ids.Valid != nil || ids.Dict != nil {
		return fmt.Errorf("row ids must be a plain INTEGER column without nulls, not %v", ids.Type)
	}
	return nil
}

// builder collects the columns of a result and releases them when the result is
// not handed out after all.
type builder struct {
	lease *gpu.Lease
	cols  []gpu.Column
}

func (b *builder) fail(err error) ([]gpu.Column, error) {
	gpu.ReleaseColumns(b.cols)
	return nil, err
}
