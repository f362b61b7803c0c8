package gpu

import (
	"context"
	"errors"
	"slices"
	"time"
)

// patience is the time without any reservation or release after which waiters give up.
const patience = time.Second

// SetPatience changes how long AwaitMore waits while nothing happens. It is for tests.
func (b *Budget) SetPatience(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patience = d
}

// watcher is a goroutine that waits until more than left bytes are available.
type watcher struct {
	left int64
	more chan struct{} // closed when they are available
}

// AwaitMore waits until more than left bytes are available (see Available), and returns true. It is
// for work that was denied memory when left bytes were available, and that holds no memory now:
// with no more than that it would be denied again. It returns false if ctx ends, or if no memory of
// the budget was reserved or released for a second. Memory may have been released between the
// denial and the call, so a caller should try once more before it gives up.
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

// Patiently calls f, and repeats the call when it was denied memory and others have released memory
// since. f must keep no memory when it returns an error. Patiently returns the error of the last
// call.
func (l *Lease) Patiently(ctx context.Context, f func() error) error {
	for last := false; ; {
		left := l.Available()
		if err := f(); last || !errors.Is(err, ErrBudget) {
			return err
		}
		last = !l.AwaitMore(ctx, left)
	}
}

// wake ends the waits that have enough memory now. The caller holds the lock.
func (b *Budget) wake() {
	b.watchers = slices.DeleteFunc(b.watchers, func(w *watcher) bool {
		more := b.available() > w.left
		if more {
			close(w.more)
		}
		return more
	})
}
