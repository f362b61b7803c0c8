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

// TestAGPUEncodesAnOutput writes one file, several files, and outputs that the CPU encodes.
func TestAGPUEncodesAnOutput(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	orders := fewRows(t) + "orders.parquet"
	for name, c := range map[string]struct {
		opt     sinkparquet.Options
		encodes bool
	}{
		"file":        {sinkparquet.Options{RowGroupRows: 200}, true},
		"files":       {sinkparquet.Options{RowsPerFile: 170}, true},
		"partitions":  {sinkparquet.Options{PartitionBy: []string{"o_orderpriority"}}, true},
		"other codec": {sinkparquet.Options{Compression: "gzip"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(opt RunOptions) ([]string, *Report) {
				path := filepath.Join(t.TempDir(), "out.parquet")
				report, err := New("encode").Read("orders", orders).
					Filter("o_orderkey < 1200").Write(path, c.opt).Run(context.Background(), opt)
				require.NoError(t, err)
				return rowsOf(t, path), report
			}
			want, report := run(RunOptions{Use: Host})
			require.Zero(t, report.Output.BytesOfDevice)
			got, report := run(RunOptions{Device: smallStrides{d, 500}, Threads: 2})
			require.Equal(t, want, got)
			require.Equal(t, c.encodes, report.Output.BytesOfDevice > 0)
			require.Less(t, report.Output.BytesOfDevice, report.Output.Bytes)
			if c.encodes {
				require.Contains(t, report.String(), "output: the device encoded ")
			} else {
				require.Contains(t, report.String(), ": a device does not compress with gzip")
			}
		})
	}
}

// TestSeveralGPUsDivideAnOutput writes folders from two GPUs. One of them has all rows if they have an order, or files
// have a number of rows.
func TestSeveralGPUsDivideAnOutput(t *testing.T) {
	orders := fewRows(t) + "orders.parquet"
	d := gpus(t, cudatest.Library(t), 2, 1<<26, 100)
	for name, c := range map[string]struct {
		rowsPerFile int64
		sorted      bool
		gathers     bool
	}{
		"any order": {0, false, false},
		"rows":      {50, false, true},
		"sorted":    {0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			b := New("divide").Read("orders", orders).Filter("o_orderkey < 500").Distinct()
			if c.sorted {
				b.Sort("o_orderkey")
			}
			p, err := b.Write(path, sinkparquet.Options{PartitionBy: []string{"o_orderpriority"}, RowGroupRows: 40,
				RowsPerFile: c.rowsPerFile}).Plan()
			require.NoError(t, err)
			last := p.ExplainChoice(&Choice{Device: CUDA, GPUs: 2}).Root
			gathers := false
			last.visit(func(s *StageExplained) { gathers = gathers || s.Kind == "gather" })
			require.Equal(t, c.gathers, gathers)
			report, err := p.Run(t.Context(), RunOptions{Device: d, Exchanges: Always})
			require.NoError(t, err)
			require.Positive(t, report.Output.BytesOfDevice)
			if !c.gathers {
				shares := 0.0
				for _, one := range report.Devices {
					require.Positive(t, one.Activity.Launches)
					require.Positive(t, one.Share)
					shares += one.Share
				}
				require.InDelta(t, 1, shares, 1e-9)
			}
			require.NoError(t, p.Close())
			want := filepath.Join(t.TempDir(), "want")
			_, err = New("divide").Read("orders", orders).Filter("o_orderkey < 500").
				Write(want, sinkparquet.Options{PartitionBy: []string{"o_orderpriority"}}).
				Run(t.Context(), RunOptions{Use: Host})
			require.NoError(t, err)
			require.ElementsMatch(t, rowsOf(t, want), rowsOf(t, path))
		})
	}
	require.NoError(t, d.Close())
}
