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

// A struct that mirrors the arguments of a kernel badly is found before the kernel reads it.
func TestArgumentsOfAnotherSizeThanTheKernelsAreRefused(t *testing.T) {
	d := openTest(t, 0)
	defer func() { require.NoError(t, d.Close()) }()
	dq, err := d.NewQueue("test")
	require.NoError(t, err)
	l := d.Budget().Lease("test")
	o := dq.(*queue).begin("test", l)
	sums := o.alloc(8)
	launch(o, "scan_sums", 1, 256, 0, scanArgs{sums: addr(sums), tiles: 1})
	require.NoError(t, o.err)
	launch(o, "scan_sums", 1, 256, 0, struct {
		scanArgs
		more int32
	}{scanArgs: scanArgs{sums: addr(sums), tiles: 1}})
	require.ErrorContains(t, o.err, "kernel scan_sums takes")
	var none struct{}
	end(o, &none, &err)
	require.ErrorContains(t, err, "a defect of gstream")
	require.NoError(t, l.Close())
	require.NoError(t, dq.Close())
}
