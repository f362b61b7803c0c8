package runner

import (
	"context"
	"sync"

	"github.com/gstream/gstream/gpu"
)

// mergeQueue is an ordered merge queue. It carries strides from the lanes of one pipeline to the next
// pipeline or the sink, in the order of their morsels' numbers. Lanes send the strides of different
// morsels concurrently. Strides of a morsel that is not the next one wait here, up to a limit. A
// lane that finds the queue full waits too, unless its morsel is the next one and the receiver has
// nothing to take. So there is always one lane that can continue.
type mergeQueue struct {
	room int
	// marks means that the receiver also gets the ends of morsels, as marks.
	marks bool
	// toHost means that the receiver copies strides to host memory, so the sender may already have
	// copied them.
	toHost bool

	monitor
	next    int // the morsel whose strides are received now
	waiting map[int][]queued
	ended   map[int]bool // morsels from next on that will send no more strides
	held    int          // number of strides that wait
	closed  bool         // there are no more morsels
}

// monitor is a lock of strides that goroutines pass on, with what wakes those that wait.
type monitor struct {
	mu      sync.Mutex
	changed sync.Cond
	err     error // set when strides are no longer wanted
}

// wait waits until something has changed or ctx ends. The caller holds the lock.
func (m *monitor) wait(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.changed.Broadcast()
	})()
	m.changed.Wait()
}

// await waits while full. If strides are no longer wanted, it releases the stride and returns the error. The
// caller holds the lock.
func (m *monitor) await(ctx context.Context, s queued, full func() bool) error {
	for m.err == nil && ctx.Err() == nil && full() {
		m.wait(ctx)
	}
	err := m.err
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Release()
	}
	return err
}

// queued is a stride with its position in the order of the plan's input, among the strides of all devices. Without a
// stride it is a mark: later strides come after the position.
type queued struct {
	*gpu.Stride
	order int
}

func newMergeQueue(room int) *mergeQueue {
	x := &mergeQueue{room: room, waiting: map[int][]queued{}, ended: map[int]bool{}}
	x.changed.L = &x.mu
	return x
}

// send transfers ownership of a stride of a morsel. It releases the stride if nobody wants it.
func (x *mergeQueue) send(ctx context.Context, number int, s queued) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	full := func() bool { return x.held >= x.room && (number != x.next || len(x.waiting[number]) > 0) }
	if err := x.await(ctx, s, full); err != nil {
		return err
	}
	x.waiting[number] = append(x.waiting[number], s)
	x.held++
	if number == x.next {
		x.changed.Broadcast()
	}
	return nil
}

// end records that a morsel, which had a position in the order of the plan's input, has no more strides.
func (x *mergeQueue) end(number, order int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended[number] = true
	if x.marks && x.err == nil {
		x.waiting[number] = append(x.waiting[number], queued{order: order})
		x.changed.Broadcast()
	}
	x.advance()
}

// advance moves next to the first morsel that has strides or has not ended. The caller
// holds the lock.
func (x *mergeQueue) advance() {
	for x.ended[x.next] && len(x.waiting[x.next]) == 0 {
		delete(x.ended, x.next)
		delete(x.waiting, x.next)
		x.next++
		x.changed.Broadcast()
	}
}

// close records that there are no more morsels.
func (x *mergeQueue) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	x.changed.Broadcast()
}

// receive returns the next stride. It returns false when there are no more, or when ctx
// has ended.
func (x *mergeQueue) receive(ctx context.Context) (queued, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.waiting[x.next]) == 0 && !x.closed && ctx.Err() == nil {
		x.wait(ctx)
	}
	if len(x.waiting[x.next]) == 0 || ctx.Err() != nil {
		return queued{}, false
	}
	s := x.waiting[x.next][0]
	x.waiting[x.next] = x.waiting[x.next][1:]
	if s.Stride != nil {
		x.held--
	}
	x.advance()
	x.changed.Broadcast()
	return s, true
}

// stop releases the waiting strides. Later strides are released when they are sent.
func (x *mergeQueue) stop(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = err
	}
	for _, list := range x.waiting {
		for _, s := range list {
			if s.Stride != nil {
				s.Release()
			}
		}
	}
	clear(x.waiting)
	x.held = 0
	x.changed.Broadcast()
}
