package pipeline

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

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
	require.True(t, report.Done)
	var fault *Fault
	_, err = run(RunOptions{Device: open(), Use: CUDA})
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, err, "open GPU 77")
}
