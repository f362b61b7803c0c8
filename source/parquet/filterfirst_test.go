package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// decidedRow is a row of a table in which pass decides.
type decidedRow struct {
	Pass   *int32  `parquet:"pass,optional"`
	Number int64   `parquet:"number"`
	Word   string  `parquet:"word,dict"`
	Text   *string `parquet:"text,optional"`
}

// writeDecided writes two files of n rows each. A filter on pass is true for the rows for which pass returns true, and
// false or null for the others.
func writeDecided(t testing.TB, n, group, page int, pass func(i int) bool) (paths []string) {
	for k := range 2 {
		path := filepath.Join(t.TempDir(), "decided.parquet")
		f, err := os.Create(path)
		require.NoError(t, err)
		w := pq.NewGenericWriter[decidedRow](f, pq.PageBufferSize(page), pq.MaxRowsPerRowGroup(int64(group)),
			pq.Compression(&pq.Snappy), pq.DataPageVersion(1+k))
		for i := range n {
			i += k * n
			row := decidedRow{Number: int64(i), Word: fmt.Sprint("word ", i/50%7)}
			if value := int32(i % 3); pass(i) {
				value = 7
				row.Pass = &value
			} else if value > 0 {
				row.Pass = &value
			}
			if i%5 > 0 {
				text := strings.Repeat(fmt.Sprint(i), i%11)
				row.Text = &text
			}
			_, err := w.Write([]decidedRow{row})
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, f.Close())
		paths = append(paths, path)
	}
	return paths
}

// passes evaluates the filter on strides whose first column is pass, on the device if they are in pages.
func passes(t testing.TB) func(context.Context, *gpu.Stride) []uint64 {
	return func(_ context.Context, s *gpu.Stride) []uint64 {
		if s.HasPages() {
			q, err := decoder(t).NewQueue("decide")
			require.NoError(t, err)
			s, err = throughDevice(t, q, s)
			require.NoError(t, err)
		}
		defer s.Release()
		bits := make([]uint64, (s.Rows+63)/64)
		for i := range s.Rows {
			if v := s.Cols[0].ScalarAt(i); v.Valid && v.Int.Lo == 7 {
				bits[i/64] |= 1 << (i % 64)
			}
		}
		return bits
	}
}

// passing returns the rows of a content for which the filter is true.
func passing(c content) content {
	out := content{}
	for i, v := range c["pass"] {
		if v.Valid && v.Int.Lo == 7 {
			for name, values := range c {
				out[name] = append(out[name], values[i])
			}
		}
	}
	return out
}

var decidedColumns = []string{"number", "word", "pass", "text"}

func TestAFilterThatDecidesFirstLosesNoRow(t *testing.T) {
	seed := gputest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 38))
	skipped := map[string]int64{}
	const n = 1500
	for i := range gputest.Cases(t, 16) {
		rare := r.Perm(2 * n)[:3]
		pattern := []struct {
			name string
			pass func(i int) bool
		}{
			{"none", func(int) bool { return false }}, {"all", func(int) bool { return true }},
			{"every tenth", func(i int) bool { return i%10 == 0 }},
			{"clusters", func(i int) bool { return i%1000 < 90 }},
			{"rare", func(i int) bool { return slices.Contains(rare, i) }},
			{"head", func(i int) bool { return i < 10 }}, {"tail", func(i int) bool { return i >= 2*n-10 }},
			{"half", func(i int) bool { return i%n < n/2 }},
		}[i%8]
		group, page := []int{100, 700, n}[r.IntN(3)], []int{100, 1000, 1 << 20}[r.IntN(3)]
		paths := writeDecided(t, n, group, page, pattern.pass)
		opt := source.ScanOptions{StrideRows: []int{0, 64, 333, 1500}[r.IntN(4)]}
		about := fmt.Sprintf("GSTREAM_SEED=%d: %s, row groups of %d rows, pages of %d bytes, strides of %d", seed,
			pattern.name, group, page, opt.StrideRows)
		want, _, err := scanOnce(t, 0, paths, opt, decidedColumns...)
		require.NoError(t, err)
		opt.First = &source.First{Columns: []int{2}, Decide: passes(t), Always: true}
		opt.Decode = source.DecodeOptions{Threads: 1 + r.IntN(3),
			Pages: decoder(t) != nil && i >= 8 && group > 100 && page > 100 && opt.StrideRows != 64}
		got, p, err := scanOnce(t, 0, paths, opt, decidedColumns...)
		require.NoError(t, err, about)
		requireSame(t, passing(want), passing(got))
		require.EqualValues(t, 2*n, p.RowsRead+p.RowsFiltered, about)
		require.Positive(t, p.BytesFirst, about)
		if page < 1<<20 || group < n {
			skipped[pattern.name] += p.BytesFiltered
		}
		switch pattern.name {
		case "all":
			require.Zero(t, p.RowsFiltered, about)
		case "none":
			require.Zero(t, p.RowsRead, about)
		}
	}
	for name, bytes := range skipped {
		if name != "all" && name != "every tenth" {
			require.Positive(t, bytes, name)
		}
	}
}

// TestAFilterWithoutAGainStops checks how many rows a filter decides, and bounds the rest as a share of all bytes. When
// a filter ends without a gain, other goroutines have read ahead: up to deciders strides are decided in vain, and
// minInflight more are decoded.
func TestAFilterWithoutAGainStops(t *testing.T) {
	defer func(bytes, rows int64) { leastFiltered, leastTrial = bytes, rows }(leastFiltered, leastTrial)
	leastFiltered, leastTrial = 1<<16, 256
	const n, stride = 40_000, 2000
	for _, c := range []struct {
		name  string
		pass  func(i int) bool
		rows  int64 // that the filter decides
		ends  int64 // times that a filter that has gained ends without a gain, before the last row
		reads float64
	}{
		{"all", func(int) bool { return true }, 1280, 0, 1},
		{"spread", func(i int) bool { return i%100 == 0 }, 1280, 0, 1},
		{"none", func(int) bool { return false }, 2 * n, 0, 0},
		{"the last half of each file", func(i int) bool { return i%n >= n/2 }, 37328, 2, 0.9},
		{"the second file", func(i int) bool { return i >= n }, 46768, 1, 0.52},
		{"the first file", func(i int) bool { return i < n }, 18560, 0, 0.9},
	} {
		paths := writeDecided(t, n, 8000, 8<<10, c.pass)
		opt := source.ScanOptions{StrideRows: stride, Decode: source.DecodeOptions{Threads: 1}}
		want, whole, err := scanOnce(t, 0, paths, opt, decidedColumns...)
		require.NoError(t, err)
		var decided atomic.Int64
		may := passes(t)
		opt.First = &source.First{Columns: []int{2}, Decide: func(ctx context.Context, s *gpu.Stride) []uint64 {
			decided.Add(int64(s.Rows))
			return may(ctx, s)
		}}
		got, p, err := scanOnce(t, 0, paths, opt, decidedColumns...)
		require.NoError(t, err)
		requireSame(t, passing(want), passing(got))
		t.Log(c.name, decided.Load(), p.BytesFirst, p.BytesRead, whole.BytesRead)
		require.GreaterOrEqual(t, decided.Load(), c.rows, c.name)
		require.LessOrEqual(t, decided.Load(), c.rows+c.ends*deciders*stride, c.name)
		most := c.rows + c.ends*(deciders+minInflight)*stride
		require.LessOrEqual(t, float64(p.BytesFirst), mostBytesOfARow(t, paths, "pass")*float64(most), c.name)
		require.LessOrEqual(t, float64(p.BytesRead), c.reads*float64(whole.BytesRead), c.name)
	}
}

// mostBytesOfARow returns the bytes of a row of a column in the row group where they are most.
func mostBytesOfARow(t testing.TB, paths []string, column string) (most float64) {
	table, err := Open(paths, OpenOptions{})
	require.NoError(t, err)
	for _, f := range table.files {
		for _, g := range f.groups {
			most = max(most, float64(g.chunks[table.Schema().Index(column)].size)/float64(g.rows))
		}
	}
	require.NoError(t, table.Close())
	return most
}

// TestAFilterDecidesFirstWhereMemoryIsShort scans with budgets from the least on. The filter ends where it would deny
// memory to the scan.
func TestAFilterDecidesFirstWhereMemoryIsShort(t *testing.T) {
	paths := writeDecided(t, 3000, 500, 1000, func(i int) bool { return i%1000 < 300 })
	table, err := Open(paths, OpenOptions{})
	require.NoError(t, err)
	opt := source.ScanOptions{StrideRows: 700}
	want, _, err := scanOnce(t, 0, paths, opt, decidedColumns...)
	require.NoError(t, err)
	all := opt
	for _, name := range decidedColumns {
		all.Columns = append(all.Columns, table.Schema().Index(name))
	}
	least := table.LeastMemory(all)
	require.NoError(t, table.Close())
	opt.First = &source.First{Columns: []int{2}, Decide: passes(t), Always: true}
	for _, limit := range []int64{least, least + least/8, 2 * least, 4 * least} {
		for threads := range 3 {
			opt.Decode.Threads = 1 + threads
			got, _, err := scanOnce(t, limit, paths, opt, decidedColumns...)
			require.NoError(t, err, limit)
			requireSame(t, passing(want), passing(got))
		}
	}
}

// TestAFilterThatCannotTellLeavesAllRows ends decisions after some strides.
func TestAFilterThatCannotTellLeavesAllRows(t *testing.T) {
	paths := writeDecided(t, 3000, 500, 1000, func(i int) bool { return i > 5500 })
	want, _, err := scanOnce(t, 0, paths, source.ScanOptions{}, decidedColumns...)
	require.NoError(t, err)
	for known := range 5 {
		slots := make(chan struct{}, known)
		may := passes(t)
		opt := source.ScanOptions{StrideRows: 500, First: &source.First{Columns: []int{2}, Always: true,
			Decide: func(ctx context.Context, s *gpu.Stride) []uint64 {
				select {
				case slots <- struct{}{}:
					return may(ctx, s)
				default:
					s.Release()
					return nil
				}
			}}}
		got, p, err := scanOnce(t, 0, paths, opt, decidedColumns...)
		require.NoError(t, err)
		requireSame(t, passing(want), passing(got))
		require.LessOrEqual(t, p.RowsFiltered, int64(500*known))
	}
}

// TestAFilterMeetsBadPages damages a page of each column.
func TestAFilterMeetsBadPages(t *testing.T) {
	paths := writeDecided(t, 2000, 500, 1<<20, func(i int) bool { return i >= 1500 })[:1]
	table, err := Open(paths, OpenOptions{})
	require.NoError(t, err)
	chunks := table.files[0].groups[3].chunks
	require.NoError(t, table.Close())
	whole, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	for c := range chunks {
		bad := slices.Clone(whole)
		for i := range bad[chunks[c].start:][:chunks[c].size] {
			bad[chunks[c].start+int64(i)] = 0xff
		}
		require.NoError(t, os.WriteFile(paths[0], bad, 0o600))
		opt := source.ScanOptions{StrideRows: 500}
		_, _, want := scanOnce(t, 0, paths, opt, decidedColumns...)
		require.ErrorIs(t, want, source.ErrData)
		opt.First = &source.First{Columns: []int{2}, Decide: passes(t), Always: true}
		_, _, got := scanOnce(t, 0, paths, opt, decidedColumns...)
		require.EqualError(t, got, want.Error())
	}
}

// TestAScanEndsWhileAFilterDecides closes readers and ends their contexts at any time.
func TestAScanEndsWhileAFilterDecides(t *testing.T) {
	paths := writeDecided(t, 3000, 300, 1000, func(i int) bool { return i%1000 < 300 })
	table, err := Open(paths, OpenOptions{})
	require.NoError(t, err)
	defer table.Close()
	for k := range 12 {
		budget := hosttest.Budget(t, 1<<24)
		lease := budget.Lease("scan")
		ctx, cancel := context.WithCancel(t.Context())
		opt := source.ScanOptions{StrideRows: 200, Lease: lease, Columns: []int{0, 1, 2, 3},
			First: &source.First{Columns: []int{table.Schema().Index("pass")}, Decide: passes(t), Always: true}}
		r, err := table.Scan(ctx, opt)
		require.NoError(t, err)
		for range k / 2 {
			s, err := r.Read(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			s.Release()
		}
		if k%2 == 0 {
			cancel()
			for err == nil {
				var s *gpu.Stride
				if s, err = r.Read(t.Context()); err == nil {
					s.Release()
				}
			}
		}
		require.NoError(t, r.Close())
		cancel()
		require.NoError(t, lease.Close())
	}
}

func TestGapsThatSavePages(t *testing.T) {
	pages := pagesOfColumn{pages: []rowRange{{0, 10}, {10, 30}, {30, 40}}, sizes: []int64{5, 7, 9}, rows: 40, size: 21}
	for _, c := range []struct {
		gap   rowRange
		atEnd bool
		want  float64
	}{
		{rowRange{0, 10}, true, 5}, {rowRange{0, 9}, true, 0}, {rowRange{5, 30}, false, 7}, {rowRange{5, 40}, true, 16},
		{rowRange{12, 20}, false, -7}, {rowRange{12, 20}, true, 0}, {rowRange{10, 30}, false, 7},
	} {
		require.Equal(t, c.want, pages.saves(c.gap, c.atEnd), c)
	}
	pages.pages = nil
	require.Equal(t, -21.0, pages.saves(rowRange{1, 39}, false))
	require.Equal(t, 10.5, pages.saves(rowRange{20, 40}, true))
	require.Equal(t, []rowRange{{0, 2}, {5, 8}, {12, 15}},
		subtract([]rowRange{{0, 8}, {10, 15}}, []rowRange{{2, 5}, {8, 12}}))
	require.Equal(t, []rowRange{{100, 128}, {192, 200}},
		setBlocks([]uint64{0, 1 << 40, 0, 1 << 5}, 100, 100, 100))
}

func TestStridesOfAFilterThatADeviceDecodesAreLonger(t *testing.T) {
	table, err := Open(writeDecided(t, 100, 50, 1000, func(int) bool { return true }), OpenOptions{})
	require.NoError(t, err)
	defer table.Close()
	opt := source.ScanOptions{Columns: []int{0, 1, 2, 3}, StrideRows: 1000}
	for i, f := range table.Schema().Fields {
		opt.First = &source.First{Columns: []int{i}}
		for _, pages := range []bool{false, true} {
			opt.Decode.Pages = pages
			first := table.optionsOfFilter(opt)
			require.Equal(t, []int{i}, first.Columns)
			switch {
			case !pages:
				require.Equal(t, 1000, first.StrideRows)
			case f.Name == "pass":
				require.Equal(t, 1000*mostLonger, first.StrideRows)
			default:
				require.Greater(t, first.StrideRows, 1000)
			}
		}
	}
}

// TestStridesThatAFilterLeavesAreTheSameEachTime compares the lengths of strides with several numbers of threads.
func TestStridesThatAFilterLeavesAreTheSameEachTime(t *testing.T) {
	defer func(bytes, rows int64) { leastFiltered, leastTrial = bytes, rows }(leastFiltered, leastTrial)
	leastFiltered, leastTrial = 1, 64
	table, err := Open(writeDecided(t, 3000, 100, 1000, func(i int) bool { return i%700 < 100 }), OpenOptions{})
	require.NoError(t, err)
	defer table.Close()
	var want []int
	for k := range 6 {
		lease := hosttest.Budget(t, 1<<24).Lease("scan")
		r, err := table.Scan(t.Context(), source.ScanOptions{StrideRows: 500, Lease: lease, Columns: []int{0, 1, 2, 3},
			Decode: source.DecodeOptions{Threads: 1 + k%3},
			First: &source.First{Columns: []int{table.Schema().Index("pass")}, Always: k < 3,
				Decide: passes(t)}})
		require.NoError(t, err)
		var lengths []int
		for {
			s, err := r.Read(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			lengths = append(lengths, s.Rows)
			s.Release()
		}
		require.NoError(t, r.Close())
		require.NoError(t, lease.Close())
		if k%3 == 0 {
			want = lengths
		}
		require.Equal(t, want, lengths, k)
	}
}
