package host

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
)

// parallel runs f over [0, n) in tasks of at most grain items, on at most as many cores as there
// are tasks. A task begins at a multiple of grain. The caller works too, so a call costs little
// when the other cores are busy. parallel returns the first error, or the cause of the queue's
// context when that ends, and starts no task after it. A panic in a task becomes an error.
func (d *Device) parallel(n, grain int, f func(lo, hi int) error) error {
	return d.parallelWorkers(n, grain, func(_, lo, hi int) error { return f(lo, hi) })
}

// parallelWorkers is parallel, but also passes f the number of the worker that runs it, which is
// below d.threads. No two tasks run on the same worker concurrently.
func (d *Device) parallelWorkers(n, grain int, f func(worker, lo, hi int) error) error {
	if n <= grain || d.threads == 1 {
		for lo := 0; lo < n; lo += grain {
			if err := d.guard(f, 0, lo, min(lo+grain, n)); err != nil {
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
			if err := d.guard(f, worker, p*grain, min((p+1)*grain, n)); err != nil {
				first.CompareAndSwap(nil, &err)
			}
		}
	}
	for w := 1; w < min(d.threads, tasks); w++ {
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

func (d *Device) guard(f func(worker, lo, hi int) error, worker, lo, hi int) (err error) {
	if d.ctx != nil && d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	defer func() {
		if r := recover(); r != nil {
			err = gpu.Panicked("a primitive", r, debug.Stack())
		}
	}()
	return f(worker, lo, hi)
}
