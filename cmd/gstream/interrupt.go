package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// leftovers removes the files of a run when there is no time to end the run properly.
type leftovers struct {
	// ends says that the process ends with the command. Memory then need not be released in
	// parts, since the system reclaims all of it.
	ends bool

	// quiet says that standard error is for records only.
	quiet atomic.Bool

	mu     sync.Mutex
	remove []func() error
	// cancel, if set, takes an interrupt (SIGINT). It returns false if it had one before, and then the process ends.
	cancel func() bool
}

// onInterrupt sets the function that takes an interrupt; nil ends that.
func (l *leftovers) onInterrupt(cancel func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel = cancel
}

// takes reports whether an interrupt has been taken.
func (l *leftovers) takes(s os.Signal) bool {
	l.mu.Lock()
	cancel := l.cancel
	l.mu.Unlock()
	return s == os.Interrupt && cancel != nil && cancel()
}

// stopped is the cause of the cancellation of a context by a signal.
type stopped struct{ signal syscall.Signal }

func (s stopped) Error() string        { return "interrupted" }
func (s stopped) Is(target error) bool { return target == context.Canceled }

// exitCode returns the code that a shell reports for a process killed by the signal: 130 for an
// interrupt, 143 for SIGTERM.
func (s stopped) exitCode() int { return 128 + int(s.signal) }

func (l *leftovers) add(remove func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove = append(l.remove, remove)
}

// clear forgets the leftovers, after a run that has removed them itself.
func (l *leftovers) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove = nil
}

// drop removes the leftovers, the last one first.
func (l *leftovers) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, remove := range slices.Backward(l.remove) {
		_ = remove() // the process ends in any case
	}
	l.remove = nil
}

// interruptible returns a context that the first interrupt cancels. The second interrupt removes the
// leftovers and ends the process at once.
func interruptible(stderr io.Writer, left *leftovers, exit func(code int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s, ok := <-signals
		for ok && left.takes(s) {
			s, ok = <-signals
		}
		if !ok {
			return
		}
		why := stopped{s.(syscall.Signal)}
		if !left.quiet.Load() {
			fmt.Fprintln(stderr, "gstream: stopping and cleaning up; interrupt again to quit at once")
		}
		cancel(why)
		if _, ok := <-signals; ok {
			left.drop()
			exit(why.exitCode())
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-ended
		cancel(nil)
	}
}
