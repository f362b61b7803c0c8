package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// faultyGPU is a GPU on which something happens at the n-th call of a function of its
// driver.
type faultyGPU struct {
	gpu.Device
	armed  atomic.Pointer[trap]
	output sinkparquet.Options
	data   string // folder of the tables
}

type trap struct {
	call    string
	at      int64
	seen    atomic.Int64
	happens func(call string) error
}

// everyCall means any function of the driver.
const everyCall = -1

func openFaultyGPU(t *testing.T, library string, memory int64, strideRows int) *faultyGPU {
	f := &faultyGPU{data: fewRows(t)}
	d, err := cuda.Open(cuda.Options{Library: library, Memory: memory, HostMemory: 16 << 20,
		Fault: func(call string) error {
			if a := f.armed.Load(); a != nil && call == a.call {
				if n := a.seen.Add(1); n == a.at || a.at == everyCall {
					return a.happens(call)
				}
			}
			return nil
		}})
	require.NoError(t, err)
	f.Device = smallStrides{d, strideRows}
	return f
}

// fewRows returns a folder with tables of a tenth of the rows of quickstart's. Runs make the same calls of the driver
// for them, if strides are as much shorter.
func fewRows(t testing.TB) string {
	dir := t.TempDir()
	for _, table := range []string{"orders", "customer"} {
		_, err := New(table).Read(table, quickstart+table+".parquet").Limit(1500).
			Write(filepath.Join(dir, table+".parquet"), sinkparquet.Options{}).
			Run(context.Background(), RunOptions{Use: Host, Threads: 1})
		require.NoError(t, err)
	}
	return dir + "/"
}

// quickstart is the folder of the tables of the example.
const quickstart = "../examples/quickstart/data/"

// with runs the job, calls happens at the n-th call of a function, and returns the number
// of calls. n = 0 only counts.
func (f *faultyGPU) with(t *testing.T, ctx context.Context, call string, n int64,
	happens func(call string) error) (rows []string, calls int64, err error) {
	t.Helper()
	a := &trap{call: call, at: n, happens: happens}
	f.armed.Store(a)
	defer f.armed.Store(nil)
	rows, err = gpuRun(t, ctx, f)
	return rows, a.seen.Load(), err
}

var errInCall = errors.New("injected")

func inject(call string) error { return fmt.Errorf("%s: %w", call, errInCall) }

// gpuJob is a job that uses every way of strides through a device: two scans, a join, an
// expression, groups and an order.
func gpuJob(data, file string, opt sinkparquet.Options) *Builder {
	opt.Overwrite = true
	return New("faults").Read("orders", data+"orders.parquet").Read("customer", data+"customer.parquet").
		Filter("o_orderdate >= date '1997-01-01'").
		Join("customer", "o_custkey = c_custkey").As("match").
		Group([]string{"c_mktsegment", "o_orderpriority as priority", "year(o_orderdate) as y"},
			"sum(o_totalprice * 2) as total", "count(*) as n", "min(c_name) as first").
		Sort("total desc", "priority").
		Write(file, opt)
}

// gpuRun runs the job on a device. It checks that there is no output after an error, and
// that nothing is held in any case.
func gpuRun(t *testing.T, ctx context.Context, d gpu.Device) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "folder", "out.parquet")
	data, opt := quickstart, sinkparquet.Options{}
	if f, ok := d.(*faultyGPU); ok {
		data, opt = f.data, f.output
	}
	_, err := gpuJob(data, file, opt).Run(ctx, RunOptions{Device: d, Threads: 2})
	for _, b := range []*gpu.Budget{d.Budget(), d.HostBudget()} {
		require.Empty(t, b.Leaks(), "%v", err)
		used, _ := b.Used()
		require.Zero(t, used, "%v", err)
	}
	if err != nil {
		entries, readErr := os.ReadDir(dir)
		require.NoError(t, readErr)
		require.Empty(t, entries, "%v", err)
		return nil, err
	}
	return rowsOf(t, file), nil
}

// rowsOf returns the rows of a file as text.
func rowsOf(t *testing.T, file string) []string {
	t.Helper()
	var c Collector
	_, err := New("rows").Read("file", file).Select("*").WriteTo(&c).Run(context.Background(), RunOptions{Use: Host})
	require.NoError(t, err)
	return textOf(&c)
}

// requireClear checks that an error says where it happened and what happened, once each.
func requireClear(t *testing.T, err error, cause string) {
	t.Helper()
	text := err.Error()
	t.Log(text)
	require.NotErrorIs(t, err, ErrDefect)
	require.Equal(t, 1, strings.Count(text, cause), text)
	require.NotContains(t, text, "\n", "one error, one line")
	require.Regexp(t,
		`(^|: )(orders: scan|filter 1: filter|customer: scan|match: (inner join|project)|group 3: (group|project)|sort 4: sort|output)(: |,)`, text, "a stage is named")
	require.NotRegexp(t,
		`(orders|customer|match|group 3|sort 4|output): (.*: )?(orders|customer|match|group 3|sort 4|output): `, text,
		"one stage is named")
}

func TestAnyCallOfTheDriverThatFailsEndsARunCleanly(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	d := openFaultyGPU(t, library, 0, 400)
	defer func() { require.NoError(t, d.Close()) }()
	ctx := context.Background()
	want, err := gpuRun(t, ctx, d)
	require.NoError(t, err)
	require.Greater(t, len(want), 20)
	failed, thin := map[string]int{}, min(gputest.ThinOr(t, 2), 4)
	for _, c := range []struct {
		call string
		more int64 // there are more calls than these
		opt  sinkparquet.Options
	}{
		{call: "cuMemAllocFromPoolAsync", more: 2}, {call: "cuMemcpyHtoDAsync_v2", more: 2},
		{call: "cuMemcpyDtoHAsync_v2"},
		{call: "cuMemcpyDtoHAsync_v2", more: 2, opt: sinkparquet.Options{Compression: "gzip"}},
		{call: "cuMemcpyDtoDAsync_v2", more: 2}, {call: "cuMemsetD8Async", more: 2},
		{call: "cuLaunchKernel", more: 2}, {call: "cuEventRecord", more: 2}, {call: "cuStreamWaitEvent", more: 2},
		{call: "cuMemcpyDtoHAsync_v2", opt: sinkparquet.Options{PartitionBy: []string{"y"}}},
	} {
		call := c.call
		t.Run(fmt.Sprint(call, c.opt.Compression, c.opt.PartitionBy), func(t *testing.T) {
			d.output = c.opt
			defer func() { d.output = sinkparquet.Options{} }()
			want, calls, err := d.with(t, ctx, call, 0, inject)
			require.NoError(t, err)
			require.Greater(t, calls, c.more, "the call is made")
			ns := []int64{calls} // the last calls are those of the output
			for i, n := 0, int64(1); n < calls; i, n = i+1, n*2 {
				if gputest.Takes(thin, i) {
					ns = append(ns, n)
				}
			}
			for _, n := range ns {
				got, _, err := d.with(t, ctx, call, n, inject)
				if err == nil { // an event is only for measurements, or the CPU encodes without memory of the device
					require.Contains(t, []string{"cuEventRecord", "cuMemAllocFromPoolAsync"}, call)
					require.Equal(t, want, got)
					continue
				}
				failed[call]++
				require.ErrorIs(t, err, errInCall)
				requireClear(t, err, call)
			}
		})
	}
	require.Len(t, failed, 8)
	got, err := gpuRun(t, ctx, d)
	require.NoError(t, err)
	require.Equal(t, want, got, "the device is as good as new")
}

func TestARunWhoseCopiesDownCannotBeWaitedForFails(t *testing.T) {
	const call = "cuEventSynchronize"
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	d := openFaultyGPU(t, library, 0, 400)
	defer func() { require.NoError(t, d.Close()) }()
	ctx := context.Background()
	want, calls, err := d.with(t, ctx, call, 0, inject)
	require.NoError(t, err)
	for n := int64(1); n <= calls; n *= 2 { // most waits are for measurements, and may fail
		got, _, err := d.with(t, ctx, call, n, inject)
		if err != nil {
			require.ErrorIs(t, err, errInCall)
			requireClear(t, err, call)
			continue
		}
		require.Equal(t, want, got)
	}
	_, _, err = d.with(t, ctx, call, everyCall, inject)
	require.ErrorIs(t, err, errInCall)
	requireClear(t, err, call)
}

func TestPageLockedMemoryThatIsRefusedEndsARunCleanly(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	d := openFaultyGPU(t, library, 0, 400)
	defer func() { require.NoError(t, d.Close()) }()
	ctx := context.Background()
	_, _, err := d.with(t, ctx, "cuMemHostRegister_v2", 1, inject)
	require.ErrorIs(t, err, errInCall)
	requireClear(t, err, "cuMemHostRegister_v2")
	_, err = gpuRun(t, ctx, d)
	require.NoError(t, err)
}

func TestARunOnAGPUThatIsCancelledLeavesNothing(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	d := openFaultyGPU(t, library, 0, 400)
	defer func() { require.NoError(t, d.Close()) }()
	want, err := gpuRun(t, context.Background(), d)
	require.NoError(t, err)
	for _, call := range []string{"cuMemcpyHtoDAsync_v2", "cuLaunchKernel"} {
		for n := int64(1); n < 100; n *= 3 {
			ctx, cancel := context.WithCancel(context.Background())
			_, calls, err := d.with(t, ctx, call, n, func(string) error { cancel(); return nil })
			cancel()
			if calls >= n {
				require.ErrorIs(t, err, context.Canceled)
			}
		}
	}
	got, err := gpuRun(t, context.Background(), d)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestALimitLeavesStridesThatWereCopiedAheadUnused(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	d := openFaultyGPU(t, library, 0, 400)
	defer func() { require.NoError(t, d.Close()) }()
	// The first kernel, which unpacks the first stride, waits until there are other
	// strides.
	d.armed.Store(&trap{call: "cuLaunchKernel", at: 1, happens: func(string) error {
		time.Sleep(300 * time.Millisecond)
		return nil
	}})
	file := filepath.Join(t.TempDir(), "out.parquet")
	_, err := New("limit").Read("orders", "../examples/quickstart/data/orders.parquet").Select("o_orderpriority",
		"o_orderkey").
		Limit(3).Write(file, sinkparquet.Options{}).Run(context.Background(), RunOptions{Device: d, Threads: 2})
	require.NoError(t, err)
	require.Len(t, rowsOf(t, file), 3)
	require.Empty(t, d.Budget().Leaks())
}

func TestSmallGPUBudgetsGiveTheRowsOrAClearError(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	var want []string
	for _, memory := range []int64{64 << 20, 256 << 10, 128 << 10, 64 << 10, 1 << 10} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			d := openFaultyGPU(t, library, memory, 400)
			defer func() { require.NoError(t, d.Close()) }()
			for _, b := range []*gpu.Budget{d.Budget(), d.HostBudget()} {
				b.SetPatience(20 * time.Millisecond)
			}
			for range 2 { // the second run uses what the first has left
				got, err := gpuRun(t, context.Background(), d)
				if memory == 64<<20 {
					require.NoError(t, err)
					want = got
				}
				if err == nil {
					require.Equal(t, want, got)
					continue
				}
				var refused *gpu.BudgetError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, memory, refused.Limit)
				requireClear(t, err, "raise it with RunOptions.DeviceMemory")
			}
		})
	}
}

// TestAStickyErrorEndsTheRunAndEveryLaterOne breaks the emulated GPU as a kernel that
// writes to a wrong address does.
func TestAStickyErrorEndsTheRunAndEveryLaterOne(t *testing.T) {
	library := cudatest.Library(t)
	if library == "" {
		t.Skip("a GPU is not broken on purpose")
	}
	defer goleak.VerifyNone(t)
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	var failAt func(function string, n int64, code int32)
	purego.RegisterLibFunc(&failAt, handle, "emulatorFailAt")
	for _, n := range []int64{1, 5, 20, 60} {
		t.Run(fmt.Sprint("launch ", n), func(t *testing.T) {
			d := openFaultyGPU(t, library, 0, 400)
			defer func() {
				var broken *cuda.Error
				require.ErrorAs(t, d.Close(), &broken)
				require.Equal(t, 700, broken.Code)
			}()
			failAt("cuLaunchKernel", n, 700) // the driver may report it at any later call
			_, err = gpuRun(t, context.Background(), d)
			require.Error(t, err)
			requireClear(t, err, ": CUDA_ERROR_ILLEGAL_ADDRESS (700)")
			_, err = gpuRun(t, context.Background(), d)
			require.ErrorContains(t, err, "unusable for the rest of this process")
			requireClear(t, err, ": CUDA_ERROR_ILLEGAL_ADDRESS (700)")
		})
	}
}
