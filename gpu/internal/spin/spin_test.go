package spin

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneHoldsTheLock(t *testing.T) {
	for _, cores := range []int{1, 4} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		var m Mutex
		var all sync.WaitGroup
		n := 0
		for range 16 {
			all.Add(1)
			go func() {
				defer all.Done()
				for i := range 1000 {
					m.Lock()
					n++
					if i%100 == 0 {
						runtime.Gosched() // others find the lock held
					}
					m.Unlock()
				}
			}()
		}
		all.Wait()
		require.Equal(t, 16000, n)
	}
}

func TestUnlockWithoutLockPanics(t *testing.T) {
	require.Panics(t, func() { new(Mutex).Unlock() })
}
