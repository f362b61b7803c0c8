package pipeline

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

func TestEachGPURunsAJobAndReportsIt(t *testing.T) {
	library := cudatest.Library(t)
	n, err := cuda.Count(library)
	require.NoError(t, err)
	var want []string
	for i := range min(n, 3) {
		d, err := cuda.Open(cuda.Options{Library: library, Ordinal: i, Memory: 1 << 28, HostMemory: 1 << 28})
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "out.parquet")
		report, err := gpuJob(quickstart, file, sinkparquet.Options{}).Run(context.Background(), RunOptions{Device: d})
		require.NoError(t, err)
		require.Positive(t, report.Activity.Launches)
		require.Equal(t, fmt.Sprintf("cuda:%d", i), report.Stages[len(report.Stages)-1].Device)
		if want == nil {
			want = rowsOf(t, file)
		}
		require.Equal(t, want, rowsOf(t, file))
		require.NoError(t, d.Close())
	}
}

func TestAGPUThatCannotBeStartedLeavesTheRunToTheCPU(t *testing.T) {
	library := cudatest.Library(t)
	open := func() *cuda.Device {
		d, err := cuda.Open(cuda.Options{Library: library, HostMemory: 1 << 28, Ordinal: 77, Ahead: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	run := func(opt RunOptions) (*Report, error) {
		b := New("counts").Read("orders", "../examples/quickstart/data/orders.parquet").
			Write(filepath.Join(t.TempDir(), "out.parquet"), sinkparquet.Options{})
		return b.Run(context.Background(), opt)
	}
	report, err := run(RunOptions{Device: open()})
	require.NoError(t, err)
	require.Equal(t, Host, report.Kind)
	require.Equal(t, &Choice{Device: Host, Why: "the GPU cannot be used"}, report.Choice)
	for _, c := range report.Stages[0].Scan.Columns {
		require.Zero(t, c.ByDevice, c)
		require.Empty(t, c.Reason, c)
	}
	require.True(t, report.Done)
	var fault *Diagnostic
	_, err = run(RunOptions{Device: open(), Use: CUDA})
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, err, "open GPU 77")
	require.Regexp(t, `this machine has (one, number 0|\d+, numbers 0 to \d+)$`, err.Error())
}

func TestTheDeviceIsChosenByThePlanUnlessOneIsAskedFor(t *testing.T) {
	p, err := New("few").Read("orders",
		"../examples/quickstart/data/orders.parquet").Limit(1).WriteTo(&Collector{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	for use, want := range map[string]string{Host: Host, CUDA: CUDA, "cuda:3": "cuda:3", Auto: Host, "": Host} {
		c, err := p.ChooseDevice(RunOptions{Use: use})
		require.NoError(t, err)
		require.Equal(t, want, c.Device, use)
		require.NotEmpty(t, c.Why)
	}
	_, err = p.ChooseDevice(RunOptions{Use: "tpu"})
	require.ErrorIs(t, err, ErrJob)
}
