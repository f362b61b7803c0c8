package cuda

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Two records of one kernel would lower each other's permission for shared memory.
func TestGoroutinesThatFindAKernelAtOnceGetTheSame(t *testing.T) {
	d := openTest(t, 0)
	defer func() { require.NoError(t, d.Close()) }()
	var found [16]*kernel
	var done sync.WaitGroup
	d.kernels.mu.Lock()
	for i := range found {
		done.Add(1)
		go func() {
			defer done.Done()
			found[i], _ = d.kernels.find("partition_k4_w4_s2")
		}()
	}
	time.Sleep(50 * time.Millisecond) // all goroutines look before the first one loads
	d.kernels.mu.Unlock()
	done.Wait()
	for _, f := range found {
		require.NotNil(t, f)
		require.Same(t, found[0], f)
	}
}
