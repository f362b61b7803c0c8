package gpu

import (
	"context"
	"slices"
	"time"
)

// patience is how long memory may stand still before those who wait for it give up.
const patience = time.Second

// SetPatience changes how long AwaitMore waits while nothing happens: for tests.
func (b *Budget) SetPatience(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patience = d
}

// watcher is somebody who waits until more than left bytes are available.
type watcher struct {
	left int64
	more chan struct{} // closed then
}

// AwaitMore waits until more than left bytes are available, see Available, and says so. It
// is for work that was refused memory when so much was left, and that holds none of it
// any more: what is tried again with less is refused again. It returns false once ctx
// ends, or when nobody has taken or given back memory of the budget for a second. Memory
// may have been given back between the refusal and the call, so who is about to give up
// tries once more.
func (l *Lease) AwaitMore(ctx context.Context, left int64) bool {
	b := l.budget
	w := &watcher{left, make(chan struct{})}
	b.mu.Lock()
	b.watchers = append(b.watchers, w)
	b.wake()
	still, moves := b.patience, b.moves
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.watchers = slices.DeleteFunc(b.watchers, func(o *watcher) bool { return o == w })
	}()
	look := time.NewTicker(still)
	defer look.Stop()
	for {
		select {
		case <-w.more:
			return true
		case <-ctx.Done():
			return false
		case <-look.C:
			b.mu.Lock()
			before := moves
			moves = b.moves
			b.mu.Unlock()
			if moves == before {
				return false
			}
		}
	}
}

// wake ends the waits of those for whom there is more now. The lock is held.
func (b *Budget) wake() {
	b.watchers = slices.DeleteFunc(b.watchers, func(w *watcher) bool {
		more := b.available() > w.left
		if more {
			close(w.more)
		}
		return more
	})
}
