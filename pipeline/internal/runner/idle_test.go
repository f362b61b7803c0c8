package runner

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// counted are the GPUs of a test, whose calls of the driver are counted.
type counted struct {
	wait  func() // called before each
	mu    sync.Mutex
	calls map[string]int
}

// countGPUs replaces the GPUs of the process until the end of the test.
func countGPUs(t *testing.T) *counted {
	c, library := &counted{calls: map[string]int{}}, cudatest.Library(t)
	count := func(what string) error {
		if c.wait != nil {
			c.wait()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[what]++
		return nil
	}
	before := gpus
	gpus = &idleGPUs{keep: time.Hour, open: func(o cuda.Options, numbers []int) (openGPU, error) {
		o.Library, o.Fault = library, count
		return openGPUs(o, numbers)
	}}
	t.Cleanup(func() {
		require.NoError(t, CloseIdle())
		gpus = before
	})
	return c
}

// since returns how often some calls were made after before.
func (c *counted) since(before map[string]int, names ...string) (n []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		n = append(n, c.calls[name]-before[name])
	}
	return n
}

func (c *counted) now() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// once are calls that open a GPU and load kernels.
var once = []string{"cuMemPoolCreate", "cuModuleLoadData", "cuMemHostAlloc"}

// sortOf sorts the rows of a stage.
func sortOf(in *physical.Stage) *physical.Stage {
	return &physical.Stage{Step: "sorted", Schema: oneColumn, Inputs: []*physical.Stage{in},
		Spec: &physical.Sort{Spec: sort.Spec{In: oneColumn, Keys: []sort.Key{{Descending: true}}, Limit: -1}}}
}

// runSort runs a sort, which needs kernels, and copies in both directions.
func runSort(t *testing.T, opt execution.Options) error {
	opt.Use = execution.CUDA
	target := &fakeTarget{faults: &faults{}}
	_, err := planOf(sortOf(scanOf(&fakeTable{faults: &faults{}, strides: 3})), target).run(t.Context(), opt)
	if err == nil {
		require.EqualValues(t, 30, target.rows)
	}
	return err
}

func TestTheNextRunTakesTheGPUThatARunHasOpened(t *testing.T) {
	defer goleak.VerifyNone(t)
	c := countGPUs(t)
	small := execution.Options{DeviceMemory: 64 << 20, HostMemory: 64 << 20}
	require.NoError(t, runSort(t, small))
	require.NotContains(t, c.since(nil, once...), 0)
	first := c.now()
	for range 2 {
		require.NoError(t, runSort(t, small))
	}
	require.Equal(t, []int{0, 0, 0}, c.since(first, once...), "the runs after the first open and load nothing")

	// Other sizes are another device, and the idle one is closed.
	larger := small
	larger.DeviceMemory *= 2
	require.NoError(t, runSort(t, larger))
	require.Equal(t, []int{1, 1}, c.since(first, "cuMemPoolCreate", "cuMemPoolDestroy"))

	// A run that is cancelled leaves its GPU to the next one, too.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cancelled := larger
	cancelled.Use = execution.CUDA
	_, err := planOf(scanOf(&fakeTable{faults: &faults{}, strides: 3}), &fakeTarget{faults: &faults{}}).
		run(ctx, cancelled)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, runSort(t, larger))
	require.Equal(t, []int{1, 1}, c.since(first, "cuMemPoolCreate", "cuMemPoolDestroy"))

	require.NoError(t, CloseIdle())
	require.Equal(t, []int{2}, c.since(first, "cuMemPoolDestroy"))
	require.NoError(t, CloseIdle(), "there is none")
}

func TestRunsAtTheSameTimeHaveGPUsOfTheirOwn(t *testing.T) {
	c := countGPUs(t)
	opt := execution.Options{Use: execution.CUDA, DeviceMemory: 64 << 20, HostMemory: 64 << 20}
	first, err := OpenDevice(opt)
	require.NoError(t, err)
	require.NoError(t, runSort(t, opt)) // while the first is open
	require.Equal(t, []int{2}, c.since(nil, "cuMemPoolCreate"))
	require.NoError(t, keepOrClose(first, opt, true), "one is idle already")
	require.Equal(t, []int{1}, c.since(nil, "cuMemPoolDestroy"))

	// Runs on a device of the caller share its kernels, also at the same time.
	require.NoError(t, CloseIdle())
	before := c.now()
	shared, err := OpenDevice(opt)
	require.NoError(t, err)
	var runs sync.WaitGroup
	for range 3 {
		runs.Go(func() { require.NoError(t, runSort(t, execution.Options{Device: shared})) })
	}
	runs.Wait()
	require.NoError(t, shared.Close())
	require.Equal(t, []int{1, 1}, c.since(before, "cuMemPoolCreate", "cuMemPoolDestroy"))
}

func TestAnIdleGPUIsClosedAfterAWhileOrWhenItFailed(t *testing.T) {
	c := countGPUs(t)
	gpus.keep = time.Millisecond
	opt := execution.Options{Use: execution.CUDA, DeviceMemory: 64 << 20, HostMemory: 64 << 20}
	require.NoError(t, runSort(t, opt))
	require.Eventually(t, func() bool { return c.since(nil, "cuMemPoolDestroy")[0] == 1 }, time.Minute,
		time.Millisecond)

	gpus.keep = time.Hour
	d, err := OpenDevice(opt)
	require.NoError(t, err)
	require.NoError(t, keepOrClose(d, opt, false), "memory was not given back")
	require.Equal(t, []int{2}, c.since(nil, "cuMemPoolDestroy"))
	opt.Use = "cuda:77"
	d, err = OpenDevice(opt)
	require.NoError(t, err)
	require.NoError(t, keepOrClose(d, opt, true), "it has not started")
	gpus.mu.Lock()
	defer gpus.mu.Unlock()
	require.Empty(t, gpus.idle)
}

// A GPU takes a fifth of a second to start. Meanwhile scans decode. Here the GPU does not start before a scan begins.
func TestScansBeginWhileTheGPUStarts(t *testing.T) {
	c, table := countGPUs(t), &fakeTable{faults: &faults{}, strides: 3}
	begun, late := make(chan struct{}), false
	table.begins = sync.OnceFunc(func() { close(begun) })
	c.wait = sync.OnceFunc(func() {
		select {
		case <-begun:
		case <-time.After(10 * time.Second):
			late = true
		}
	})
	opt := execution.Options{Use: execution.CUDA, DeviceMemory: 64 << 20, HostMemory: 64 << 20}
	shared, err := OpenDevice(opt)
	require.NoError(t, err)
	target := &fakeTarget{faults: &faults{}}
	_, err = planOf(sortOf(scanOf(table)), target).run(t.Context(), execution.Options{Device: shared})
	require.NoError(t, err)
	require.EqualValues(t, 30, target.rows)
	require.False(t, late, "no scan began before the GPU had started")
	require.NoError(t, shared.Close())
}
