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
