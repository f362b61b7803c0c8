package parquet

import (
	"cmp"
	"context"
	"io"
	"os"
	"testing"

	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/source"
	"github.com/stretchr/testify/require"
)

// BenchmarkScan reads lineitem of the example data, or of the file that
// GSTREAM_BENCH_FILE names. It reports Mrows/s, the GB/s of the strides, and the peak
// memory of the scan in MB.
func BenchmarkScan(b *testing.B) {
	path := cmp.Or(os.Getenv("GSTREAM_BENCH_FILE"), "../../examples/quickstart/data/lineitem.parquet")
	table, err := Open([]string{path}, OpenOptions{})
	require.NoError(b, err)
	type columns struct {
		name    string
		columns []string
	}
	scan := func(c columns, opt source.ScanOptions) {
		b.Run(c.name, func(b *testing.B) {
			device, err := host.Open(host.Options{})
			require.NoError(b, err)
			lease := device.HostBudget().Lease("scan")
			opt.Lease = lease
			for _, name := range c.columns {
				opt.Columns = append(opt.Columns, table.Schema().Index(name))
			}
			rows, bytes := int64(0), int64(0)
			for b.Loop() {
				r, err := table.Scan(context.Background(), opt)
				require.NoError(b, err)
				for {
					s, err := r.Read(context.Background())
					if err == io.EOF {
						break
					}
					require.NoError(b, err)
					rows += int64(s.Rows)
					bytes += s.Bytes()
					s.Release()
				}
				require.NoError(b, r.Close())
			}
			_, peak := lease.Used()
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds()/1e6, "Mrows/s")
			b.ReportMetric(float64(bytes)/b.Elapsed().Seconds()/1e9, "GB/s")
			b.ReportMetric(float64(peak)/1e6, "MB")
			require.NoError(b, lease.Close())
			require.NoError(b, device.Close())
		})
	}
	for _, c := range []columns{
		{"4 columns", []string{"l_orderkey", "l_partkey", "l_extendedprice", "l_shipdate"}},
		{"and comment", []string{"l_orderkey", "l_partkey", "l_extendedprice", "l_shipdate", "l_comment"}},
		{"all", table.Schema().Names()},
		{"q06", []string{"l_shipdate", "l_discount", "l_quantity", "l_extendedprice"}},
		{"q01", []string{"l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_returnflag", "l_linestatus",
			"l_shipdate"}},
		{"plain integers", []string{"l_partkey"}},
		{"decimals with a dictionary", []string{"l_quantity"}},
		{"dates with a dictionary", []string{"l_shipdate"}},
		{"codes", []string{"l_returnflag"}},
		{"text", []string{"l_comment"}},
	} {
		// Strides of 2 Mi rows as for a GPU, and strides as for the CPU.
		scan(columns{c.name + ", encoded", c.columns},
			source.ScanOptions{StrideRows: 1 << 21, Decode: source.DecodeOptions{Encoded: true}})
		scan(c, source.ScanOptions{})
	}
}
