package transfer

import (
	"context"
	"errors"
	"io"

	"github.com/gstream/gstream/gpu"
)

const (
	// aheadDepth is the number of strides that are copied to the device before their turn.
	// aheadLeast is this number while the free part of the budget is smaller than these strides.
	aheadDepth = 6
	aheadLeast = 2
)

// Ahead copies strides to a device with memory of its own before their turn, so that the link is
// busy while kernels run. It reads and copies on its own goroutine.
type Ahead struct {
	strides chan *gpu.Stride
	taken   chan struct{} // signals that a stride was taken
	stop    context.CancelCauseFunc
	ended   chan struct{}
	queue   gpu.Queue // for the copies; set with the first stride
	err     error     // set when the goroutine has ended
}

// NewAhead starts the goroutine, which runs work. work opens its input and calls Copy. The caller
// of NewAhead calls Take until it has all strides that it wants, and then End.
func NewAhead(ctx context.Context, work func(ctx context.Context, a *Ahead) error) *Ahead {
	ctx, stop := context.WithCancelCause(ctx)
	a := &Ahead{strides: make(chan *gpu.Stride, aheadDepth), taken: make(chan struct{}, 1), stop: stop,
		ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		defer close(a.strides)
		a.err = work(ctx, a)
	}()
	return a
}

// Copy copies the strides that read returns, until io.EOF. The lease pays for them. If a stride is
// denied memory, Copy tries again when an earlier stride was taken, or when there is more memory.
func (a *Ahead) Copy(ctx context.Context, q gpu.Queue, l *gpu.Lease,
	read func(context.Context) (*gpu.Stride, error)) error {
	a.queue = q
	for {
		s, err := read(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for len(a.strides) >= aheadLeast && l.Available() < aheadDepth*s.UploadedBytes() && a.await(ctx) {
		}
		left := l.Available()
		up, err := q.UploadAhead(l, s)
		for errors.Is(err, gpu.ErrBudget) && (len(a.strides) > 0 && a.await(ctx) || l.AwaitMore(ctx, left)) {
			left = l.Available()
			up, err = q.UploadAhead(l, s)
		}
		if errors.Is(err, gpu.ErrBudget) && s.HasPages() {
			// Without pages, a stride takes about half as much memory of the device.
			if err = s.DecodePages("device memory was short"); err == nil {
				up, err = q.UploadAhead(l, s)
			}
		}
		if err != nil {
			s.Release()
			return err
		}
		select {
		case a.strides <- up:
		case <-ctx.Done():
			_ = q.Wait(up)
			up.Release()
			return context.Cause(ctx)
		}
	}
}

// await waits until a stride is taken. It returns false if ctx ends.
func (a *Ahead) await(ctx context.Context) bool {
	select {
	case <-a.taken:
		return true
	case <-ctx.Done():
		return false
	}
}

// Take returns the next stride. The caller makes it usable with Wait on its own queue. After the
// last stride Take returns the error of work, or io.EOF.
func (a *Ahead) Take(ctx context.Context) (*gpu.Stride, error) {
	select {
	case s, ok := <-a.strides:
		if ok {
			select {
			case a.taken <- struct{}{}:
			default:
			}
			return s, nil
		}
		<-a.ended
		if a.err != nil {
			return nil, a.err
		}
		return nil, io.EOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// End cancels the context of work with a cause, releases the strides that were not taken,
// and returns the error of work unless it is the cause.
func (a *Ahead) End(cause error) error {
	a.stop(cause)
	<-a.ended // work uses the queue until then
	for s := range a.strides {
		// Only the copies must have ended. A closed queue does not decode encoded columns, which
		// does not matter here.
		_ = a.queue.Wait(s)
		s.Release()
	}
	if a.err == cause {
		return nil
	}
	return a.err
}
