package parquet

import (
	"errors"
	"io"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// TestSharesFollowEachOtherAndHaveAllRows divides the rows of every fixture.
func TestSharesFollowEachOtherAndHaveAllRows(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.parquet")
	require.NoError(t, err)
	whole, within := 0, 0 // row groups in one share, and in several
	for _, path := range paths {
		table, err := Open([]string{path, path}, OpenOptions{})
		if err != nil {
			continue // it is for the tests of damaged files
		}
		for _, of := range []int{1, 2, 3, 7, 1000} {
			ends := make([][]int64, len(table.files)) // of the rows of each row group that earlier shares have
			for i, f := range table.files {
				ends[i] = make([]int64, len(f.groups))
			}
			file, group, rows := 0, 0, int64(0) // where earlier shares end
			for share := range of {
				one, err := table.Share(share, of)
				require.NoError(t, err)
				own := int64(0)
				for i, ranges := range one.shares {
					for g, r := range ranges {
						if r.from == r.to {
							continue
						}
						require.True(t, i > file || i == file && g >= group, "%s, %d of %d: the order", path, share, of)
						require.Equal(t, ends[i][g], r.from, "%s, %d of %d: a gap or an overlap", path, share, of)
						require.Less(t, r.from, r.to)
						file, group, ends[i][g] = i, g, r.to
						own += r.to - r.from
						if n := table.files[i].groups[g].rows; r.to-r.from == n {
							whole++
						} else {
							within++
						}
					}
				}
				require.Equal(t, own, one.Rows())
				rows += own
			}
			require.Equal(t, table.Rows(), rows, "%s in %d shares", path, of)
			for i, f := range table.files {
				for g := range f.groups {
					require.Equal(t, f.groups[g].rows, ends[i][g], "%s in %d shares, row group %d", path, of, g)
				}
			}
		}
		require.NoError(t, table.Close())
	}
	require.Positive(t, whole)
	require.Positive(t, within)
}

// TestScansOfSharesReadTheRowsOfTheTable reads shares by snapshots, as tasks do.
func TestScansOfSharesReadTheRowsOfTheTable(t *testing.T) {
	paths := []string{fixture("empty-groups.parquet")[0], fixture("empty-groups.parquet")[0]}
	table, err := Open(paths, OpenOptions{})
	require.NoError(t, err)
	want := firstColumn(t, table)
	require.Len(t, want, 80)
	for _, of := range []int{1, 3, 80, 200} {
		var got []gpu.Scalar
		for share := range of {
			snapshot, err := table.Snapshot()
			require.NoError(t, err)
			snapshot.Share, snapshot.Of = share, of
			one, err := snapshot.Open()
			require.NoError(t, err)
			rows := firstColumn(t, one)
			require.Len(t, rows, int(one.Rows()))
			got = append(got, rows...)
		}
		require.Equal(t, want, got, "%d shares", of)
	}
}

func firstColumn(t *testing.T, table *Table) (out []gpu.Scalar) {
	lease := hosttest.Budget(t, 0).Lease("scan")
	r, err := table.Scan(t.Context(), source.ScanOptions{Columns: []int{0}, StrideRows: 7, Lease: lease})
	require.NoError(t, err)
	for {
		s, err := r.Read(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		for i := range s.Rows {
			out = append(out, s.Cols[0].ScalarAt(i))
		}
		s.Release()
	}
	require.NoError(t, r.Close())
	require.NoError(t, lease.Close())
	return out
}

// TestSharesThatDoNotExistAreRefused opens snapshots whose numbers are wrong: their rows would be read twice or not at
// all.
func TestSharesThatDoNotExistAreRefused(t *testing.T) {
	table, err := Open(fixture("duckdb.parquet"), OpenOptions{})
	require.NoError(t, err)
	for _, n := range [][2]int{{1, 1}, {-1, 2}, {2, 2}, {math.MaxInt, 3}, {math.MinInt, 3}, {0, -1}, {-2, -1},
		{1, 0}, {math.MaxInt, math.MaxInt}, {0, math.MinInt}} {
		_, err := table.Share(n[0], n[1])
		require.ErrorContains(t, err, "a table has no share", "%d of %d", n[0], n[1])
		snapshot, err := table.Snapshot()
		require.NoError(t, err)
		snapshot.Share, snapshot.Of = n[0], n[1]
		_, err = snapshot.Open()
		require.ErrorContains(t, err, "a table has no share", "%d of %d", n[0], n[1])
	}
	one, err := table.Share(0, 2)
	require.NoError(t, err)
	_, err = one.Share(0, 2)
	require.ErrorContains(t, err, "a table has no share", "shares are not divided")
}
