package pipeline

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// TestAReportNamesTheColumnsThatTheCPUDecoded reads the same rows with a codec of the device and with another one.
func TestAReportNamesTheColumnsThatTheCPUDecoded(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	dir := t.TempDir()
	write := func(from, name, codec string, opt RunOptions) *Report {
		r, err := New("copy").Read("orders", from).Select("o_orderkey", "o_orderdate").
			Write(filepath.Join(dir, name), sinkparquet.Options{Compression: codec}).Run(context.Background(), opt)
		require.NoError(t, err)
		return r
	}
	write("../examples/quickstart/data/orders.parquet", "brotli.parquet", "brotli", RunOptions{Use: Host})
	for from, reason := range map[string]string{"../examples/quickstart/data/orders.parquet": "",
		filepath.Join(dir, "brotli.parquet"): "codec BROTLI"} {
		for use, opt := range map[string]RunOptions{Host: {Use: Host}, CUDA: {Device: d}} {
			r := write(from, use+" "+filepath.Base(from), "snappy", opt)
			text, err := json.Marshal(r)
			require.NoError(t, err)
			var back Report
			require.NoError(t, json.Unmarshal(text, &back))
			scan := back.Stages[0].Scan
			require.Len(t, scan.Columns, 2)
			for i, name := range []string{"o_orderkey", "o_orderdate"} {
				c := scan.Columns[i]
				require.Equal(t, name, c.Column)
				byCPU := use == Host || reason != ""
				require.Equal(t, byCPU, c.ByCPU > 0)
				require.Equal(t, !byCPU, c.ByDevice > 0)
				require.Equal(t, use != Host && reason != "", c.Reason != "", c)
			}
			require.Positive(t, r.Use.Cores)
			require.Equal(t, use == CUDA && reason == "", r.Use.Decoding > 0)
			if use == CUDA {
				require.Equal(t, reason == "", r.Stages[0].Activity.Decoding > 0)
			}
			if use == Host || reason == "" {
				require.NotContains(t, r.String(), "the CPU decoded")
			} else {
				require.Equal(t, reason, scan.Columns[0].Reason)
				require.Regexp(t, `\norders: the CPU decoded o_\w+ [^()]+ \(codec BROTLI\), o_\w+ [^()]+ \(codec BROTLI\)\n`,
					r.String())
			}
		}
	}
}

func TestAReportListsTheLargestColumnsThatTheCPUDecoded(t *testing.T) {
	column := func(name string, mib int64, reason string) source.Decoded {
		return source.Decoded{Column: name, ByCPU: mib << 20, Reason: reason}
	}
	all := []source.Decoded{column("a", 1, "codec GZIP"), column("b", 120, "codec BROTLI"),
		{Column: "c", ByDevice: 1 << 30}, column("d", 2, "codec GZIP"), column("e", 3, "codec GZIP"),
		column("f", 4, "decimals of more than 38 digits"), column("g", 1, "codec GZIP")}
	for _, c := range []struct {
		columns []source.Decoded
		want    string // empty for no line
	}{
		{all[:2], "t: the CPU decoded b 120 MiB (codec BROTLI), a 1.0 MiB (codec GZIP)\n"},
		{all, "t: the CPU decoded b 120 MiB (codec BROTLI), f 4.0 MiB (decimals of more than 38 digits), " +
			"e 3.0 MiB (codec GZIP), d 2.0 MiB (codec GZIP), and 2 more columns\n"},
		{all[:6], "t: the CPU decoded b 120 MiB (codec BROTLI), f 4.0 MiB (decimals of more than 38 digits), " +
			"e 3.0 MiB (codec GZIP), d 2.0 MiB (codec GZIP), and 1 more column\n"},
		{all[2:3], ""},
		{nil, ""},
	} {
		r := Report{Stages: []StageReport{{Step: "t", Scan: &source.Progress{Columns: c.columns}}}}
		if c.want == "" {
			require.NotContains(t, r.String(), "the CPU decoded")
		} else {
			require.Contains(t, r.String(), c.want)
		}
	}
}
