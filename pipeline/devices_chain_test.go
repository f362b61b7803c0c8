package pipeline

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// integers returns a table of INTEGER columns.
func integers(rows int, value func(row, column int) int, names ...string) source.Table {
	integer := gpu.Of(gpu.Int32)
	schema := &gpu.Schema{}
	for _, n := range names {
		schema.Fields = append(schema.Fields, gpu.Field{Name: n, Type: integer})
	}
	out := make([][]gpu.Scalar, rows)
	for i := range out {
		for c := range names {
			out[i] = append(out[i], gpu.IntScalar(integer, int64(value(i, c))))
		}
	}
	return source.NewValues(schema, out)
}

// TestAStarQueryLeavesItsFactTableWhereItIsRead runs query 2.1 of the Star Schema Benchmark on several devices: each
// joins the rows that it reads with all dimensions and groups them, and only groups are exchanged.
func TestAStarQueryLeavesItsFactTableWhereItIsRead(t *testing.T) {
	defer goleak.VerifyNone(t)
	tables := map[string]source.Table{
		"lineorder": integers(20_000, func(row, column int) int { return row * (7 + 6*column + row%11) % 1000 },
			"lo_orderdate", "lo_partkey", "lo_suppkey", "lo_revenue"),
		"date": integers(1000, func(row, column int) int { return []int{row, 1992 + row%7}[column] },
			"d_datekey", "d_year"),
		"part": integers(1000, func(row, column int) int { return []int{row, row % 5, row % 20}[column] },
			"p_partkey", "p_category", "p_brand1"),
		"supplier": integers(1000, func(row, column int) int { return []int{row, row % 4}[column] },
			"s_suppkey", "s_region"),
	}
	dir := t.TempDir()
	for name, table := range tables { // files have statistics
		_, err := New("tables").ReadTable(name, table).Write(filepath.Join(dir, name+".parquet"), ParquetOptions{}).
			Run(t.Context(), RunOptions{Device: hosttest.Open(t)})
		require.NoError(t, err)
	}
	plan := func(out Target) *Plan {
		b := New("star")
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			b.Read(name, filepath.Join(dir, name+".parquet"))
		}
		p, err := b.SQL(`SELECT d_year, p_brand1, sum(lo_revenue) AS revenue FROM lineorder, date, part, supplier
			WHERE lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey
			AND p_category = 1 AND s_region = 2 GROUP BY d_year, p_brand1
			ORDER BY d_year, p_brand1`).WriteTo(out).Plan()
		require.NoError(t, err)
		return p
	}
	p := plan(&Collector{})
	var way []string // of the rows of the fact table
	for s := p.ExplainChoice(&Choice{Device: CUDA, GPUs: 3}).Root; s != nil; {
		way = append(way, s.Kind)
		if s.Kind == "inner join" {
			require.Equal(t, "broadcast", s.Inputs[1].Kind)
		}
		if len(s.Inputs) == 0 {
			break
		}
		s = s.Inputs[0]
	}
	slices.Reverse(way)
	require.Equal(t, []string{"scan", "inner join", "inner join", "inner join", "group", "exchange", "group"}, way[:7])
	require.NoError(t, p.Close())
	var want [][]*string
	for _, n := range []int{1, 3} {
		var out collected
		p, d := plan(&out), hosts(t, n, 1, 1<<28, 500)
		r, err := p.Run(t.Context(), RunOptions{Device: d})
		require.NoError(t, err)
		require.NotEmpty(t, out.rows)
		if n == 1 {
			want = out.rows
		}
		require.Equal(t, want, out.rows)
		for _, s := range r.Stages {
			if s.Kind == "exchange" {
				require.Less(t, s.RowsIn, int64(3*20*7+1), "only groups are exchanged")
			}
		}
		require.NoError(t, p.Close())
		require.NoError(t, d.Close())
	}
}
