package transfer

import (
	"context"
	"errors"
	"io"

	"github.com/gstream/gstream/gpu"
)

// behindDepth is the number of strides that Behind copies concurrently.
const behindDepth = 2

// errBehind ends the copies of Behind.
var errBehind = errors.New("no more strides are copied to the host")

// Behind copies strides to host memory, and calls take with them in their order, on the caller's
// goroutine. It begins the copy of a stride before the previous copy has ended. If a copy is denied
// memory, it is repeated once the previous strides have been taken. receive returns the next
// stride, or io.EOF after the last one and when its context ends; it runs on another goroutine. A
// lease of the HostBudget pays. take takes strides over. keep, unless it is nil, has true for each column that stays
// where it is, or is nil if none stays; it runs on the goroutine of receive.
func Behind(ctx context.Context, d gpu.Device, name string, l *gpu.Lease,
	receive func(context.Context) (*gpu.Stride, error), keep func(*gpu.Stride) []bool,
	take func(*gpu.Stride) error) (err error) {
	queues := make(chan gpu.Queue, behindDepth)
	for range behindDepth {
		q, openErr := d.NewQueue(name)
		if openErr != nil {
			err = openErr
			break
		}
		queues <- q
	}
	defer func() {
		close(queues)
		for q := range queues {
			if closeErr := q.Close(); err == nil {
				err = closeErr
			}
		}
	}()
	if err != nil {
		return err
	}
	type copied struct {
		stride *gpu.Stride
		err    error
		queue  gpu.Queue // to repeat a copy that was denied memory
		kept   []bool
	}
	ctx, stop := context.WithCancelCause(ctx)
	copies := make(chan chan copied, behindDepth) // in the order of the strides
	go func() {
		defer close(copies)
		for {
			q := <-queues
			s, err := receive(ctx)
			c := make(chan copied, 1)
			copies <- c
			if err != nil {
				queues <- q
				c <- copied{err: err}
				return
			}
			var kept []bool
			if keep != nil {
				kept = keep(s)
			}
			go func() {
				down, err := download(q, l, s, kept)
				if gpu.IsOutOfMemory(err) {
					c <- copied{s, nil, q, kept}
					return
				}
				if err != nil {
					s.Release()
				}
				queues <- q
				c <- copied{stride: down, err: err}
			}()
		}
	}()
	defer func() {
		stop(errBehind)
		for c := range copies { // ends when receive sees that the context has ended
			x := <-c
			if x.queue != nil {
				queues <- x.queue
			}
			if x.stride != nil {
				x.stride.Release()
			}
		}
	}()
	for c := range copies {
		x := <-c
		if x.err == io.EOF {
			return nil
		}
		if x.queue != nil {
			var down *gpu.Stride
			if down, x.err = download(x.queue, l, x.stride, x.kept); x.err != nil {
				x.stride.Release()
			}
			x.stride = down
			queues <- x.queue
		}
		if x.err == nil {
			x.err = take(x.stride)
		}
		if x.err != nil {
			return x.err
		}
	}
	return nil
}

// download copies a stride to the host, but for the columns that are kept. It takes the stride over, unless there is an
// error.
func download(q gpu.Queue, l *gpu.Lease, s *gpu.Stride, kept []bool) (*gpu.Stride, error) {
	if kept == nil {
		return q.Download(l, s)
	}
	part := &gpu.Stride{Schema: &gpu.Schema{}, Rows: s.Rows, Ready: s.Ready}
	for i, c := range s.Cols {
		if !kept[i] {
			part.Schema.Fields = append(part.Schema.Fields, s.Schema.Fields[i])
			part.Cols = append(part.Cols, c)
		}
	}
	if len(part.Cols) == 0 {
		return s, nil
	}
	down, err := q.Download(l, part)
	if err != nil {
		return nil, err
	}
	for i, k := 0, 0; i < len(s.Cols); i++ {
		if !kept[i] {
			s.Cols[i] = down.Cols[k]
			k++
		}
	}
	return s, nil
}
