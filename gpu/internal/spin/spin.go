// Package spin has a lock for sections of some hundred nanoseconds that many cores enter.
package spin

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Mutex is a mutual exclusion lock. Those who find it held wait awake: a sync.Mutex that is contended puts them to
// sleep, and passes the lock to one that has to wake up first. That takes 5 to 50 µs on a machine of many cores, in
// which everybody waits. So sections must be short and must not block. The zero value is not held.
type Mutex struct{ held atomic.Uint32 }

const (
	// looks is how often a waiter looks at the lock before it lets other goroutines run: some microseconds.
	looks = 4096
	// yields is how often it lets others run before it sleeps: the holder's thread may wait for a core.
	yields = 16
	nap    = 50 * time.Microsecond
)

// Lock waits for the lock and takes it.
func (m *Mutex) Lock() {
	if !m.held.CompareAndSwap(0, 1) {
		m.wait()
	}
}

func (m *Mutex) wait() {
	most := looks
	if runtime.GOMAXPROCS(0) == 1 {
		most = 1
	}
	for round := 0; ; round++ {
		for range most {
			if m.held.Load() == 0 && m.held.CompareAndSwap(0, 1) {
				return
			}
		}
		if round < yields {
			runtime.Gosched()
		} else {
			time.Sleep(nap)
		}
	}
}

// Unlock gives the lock back.
func (m *Mutex) Unlock() {
	if m.held.Swap(0) == 0 {
		panic("spin: unlock of a lock that is not held")
	}
}
