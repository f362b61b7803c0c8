package parquet

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/source"
)

// TestASampleHasRowsOfTheTable compares samples of every fixture with the rows of a scan
// at the same places.
func TestASampleHasRowsOfTheTable(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.parquet")
	require.NoError(t, err)
	groups := 0
	for _, path := range paths {
		want, _, err := scanOnce(t, 0, []string{path}, source.ScanOptions{})
		if err != nil {
			continue
		}
		table, err := Open([]string{path}, OpenOptions{Threads: 1})
		require.NoError(t, err, path)
		for _, rows := range []int{1, 2, 7, 100, 1 << 20} {
			columns := make([]int, table.Schema().Len())
			for c := range columns {
				columns[c] = c
			}
			lease := host.HeapLease("sample", 0)
			s, err := table.Sample(t.Context(), lease, columns, rows)
			require.NoError(t, err, path)
			require.LessOrEqual(t, s.Rows, rows, path)
			require.Equal(t, table.Rows() == 0, s.Rows == 0, path)
			row := 0
			for _, g := range table.samplePlan(t.Context(), source.ScanOptions{StrideRows: rows}).segments {
				first := int64(0)
				for i := range g.group {
					first += g.file.groups[i].rows
				}
				for i := g.from; i < g.to; i++ {
					for c, f := range table.Schema().Fields {
						var v gpu.Scalar = s.Cols[c].ScalarAt(row)
						require.Equal(t, want[f.Name][first+i], v, "%s, column %s, row %d", path, f.Name, row)
					}
					row++
				}
				groups = max(groups, g.group)
			}
			require.Equal(t, s.Rows, row)
			s.Release()
			used, _ := lease.Used()
			assert.Zero(t, used, "%s: everything is given back", path)
		}
		require.NoError(t, table.Close())
	}
	assert.Positive(t, groups, "some samples are of two row groups")
}
