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

// leftovers removes what a run has made when there is no time to end the run.
type leftovers struct {
	// ends says that the process ends with the command: memory need not be given
	// back piece by piece before the system takes all of it.
	ends bool

	// quiet says that standard error is for records.
	quiet atomic.Bool

	mu     sync.Mutex
	remove []func() error
}

// stopped is the cause of a context that a signal has cancelled.
type stopped struct{ signal syscall.Signal }

func (s stopped) Error() string        { return "interrupted" }
func (s stopped) Is(target error) bool { return target == context.Canceled }

// exitCode is what a shell shows of a process that the signal has killed: 130 for an
// interrupt, 143 for SIGTERM.
func (s stopped) exitCode() int { return 128 + int(s.signal) }

func (l *leftovers) add(remove func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove = append(l.remove, remove)
}

// clear forgets them, after a run that has tidied up itself.
func (l *leftovers) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove = nil
}

// drop removes them, the last one first.
func (l *leftovers) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, remove := range slices.Backward(l.remove) {
		_ = remove() // the process ends, whatever it says
	}
	l.remove = nil
}

// interruptible returns a context that the first interrupt cancels. The second
// one removes what the run would leave and ends the process at once.
func interruptible(stderr io.Writer, left *leftovers, exit func(code int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s, ok := <-signals
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
