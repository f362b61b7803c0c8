// Package parallel runs loops over rows on several cores.
package parallel

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
)

// Grain is the usual number of rows of a task. It is a multiple of 64, so no two tasks share a word
// of a bitmap.
const Grain = 1 << 14

// Cores are the cores that a primitive may use.
type Cores struct {
	Threads int
	Context context.Context // ends loops, if set
}

// For runs f over [0, n) in tasks of at most grain items, on at most as many cores as there are
// tasks. A task begins at a multiple of grain. The caller works too, so a call costs little when
// the other cores are busy. For returns the first error, or the cause of the context when that
// ends, and starts no task after it. A panic in a task becomes an error.
func (c Cores) For(n, grain int, f func(lo, hi int) error) error {
	return c.ForWorkers(n, grain, func(_, lo, hi int) error { return f(lo, hi) })
}

// ForWorkers is For, but also passes f the number of the worker that runs it, which is below
// Threads. No two tasks run on the same worker concurrently.
func (c Cores) ForWorkers(n, grain int, f func(worker, lo, hi int) error) error {
	if n <= grain || c.Threads == 1 {
		for lo := 0; lo < n; lo += grain {
			if err := c.guard(f, 0, lo, min(lo+grain, n)); err != nil {
				return err
			}
		}
		return nil
	}
	tasks := (n + grain - 1) / grain
	var (
		next  atomic.Int64
		first atomic.Pointer[error]
		wg    sync.WaitGroup
	)
	work := func(worker int) {
		for first.Load() == nil {
			p := int(next.Add(1)) - 1
			if p >= tasks {
				return
			}
			if err := c.guard(f, worker, p*grain, min((p+1)*grain, n)); err != nil {
				first.CompareAndSwap(nil, &err)
			}
		}
	}
	for w := 1; w < min(c.Threads, tasks); w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			work(w)
		}()
	}
	work(0)
	wg.Wait()
	if p := first.Load(); p != nil {
		return *p
	}
	return nil
}

// guard runs a task, unless the context has ended, and turns a panic into an error.
func (c Cores) guard(f func(worker, lo, hi int) error, worker, lo, hi int) (err error) {
	if c.Context != nil && c.Context.Err() != nil {
		return context.Cause(c.Context)
	}
	defer func() {
		if r := recover(); r != nil {
			err = gpu.Panicked("a primitive", r, debug.Stack())
		}
	}()
	return f(worker, lo, hi)
}
