package runner

import (
	"context"
	"io"
	"math"

	"github.com/gstream/gstream/gpu"
)

// inboxDepth is the number of strides of one sender that may wait in an inbox.
const inboxDepth = 2

// inbox merges the strides of several senders by their positions in the order of the plan's input. Each sender sends in
// ascending order. Strides with equal positions come in any order.
type inbox struct {
	monitor
	waiting [][]queued // by sender
	passed  []int      // by sender: its later strides have at least this position
	// taken, if set, is called when a stride of a sender has been received.
	taken func(from int)
}

func newInbox(senders int) *inbox {
	x := &inbox{waiting: make([][]queued, senders), passed: make([]int, senders)}
	x.changed.L = &x.mu
	return x
}

// send transfers ownership of a stride. It releases the stride if nobody wants it, and waits while there are
// inboxDepth strides of the sender.
func (x *inbox) send(ctx context.Context, from int, s queued) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.await(ctx, s, func() bool { return len(x.waiting[from]) >= inboxDepth }); err != nil {
		return err
	}
	x.waiting[from] = append(x.waiting[from], s)
	x.changed.Broadcast()
	return nil
}

// pass says that later strides of a sender have at least a position.
func (x *inbox) pass(from, order int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if order > x.passed[from] {
		x.passed[from] = order
		x.changed.Broadcast()
	}
}

// end says that a sender has no more strides.
func (x *inbox) end(from int) { x.pass(from, math.MaxInt) }

// receive returns the next stride, or io.EOF when all senders have ended.
func (x *inbox) receive(ctx context.Context) (*gpu.Stride, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		first, over := x.first()
		if first >= 0 {
			s := x.waiting[first][0]
			x.waiting[first] = x.waiting[first][1:]
			x.changed.Broadcast()
			if x.taken != nil {
				x.taken(first)
			}
			return s.Stride, nil
		}
		if over {
			return nil, io.EOF
		}
		x.wait(ctx)
	}
}

// first returns the sender whose stride is next, -1 if it is not known yet. over says that there are no more strides.
func (x *inbox) first() (first int, over bool) {
	first, over = -1, true
	next, ahead := math.MaxInt, math.MaxInt // of strides that wait, and of those that do not yet
	for from, list := range x.waiting {
		switch {
		case len(list) > 0 && (first < 0 || list[0].order < next):
			first, next = from, list[0].order
		case len(list) == 0:
			ahead = min(ahead, x.passed[from])
		}
		over = over && len(list) == 0 && x.passed[from] == math.MaxInt
	}
	if next > ahead {
		return -1, false
	}
	return first, over
}

// stop releases the waiting strides. Later strides are released when they are sent.
func (x *inbox) stop(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = err
	}
	for i, list := range x.waiting {
		for _, s := range list {
			s.Release()
		}
		x.waiting[i] = nil
	}
	x.changed.Broadcast()
}
