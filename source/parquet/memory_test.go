package parquet

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// everyColumn opens a file, and returns options that read all of it.
func everyColumn(t *testing.T, path string) (*Table, source.ScanOptions) {
	table, err := Open([]string{path}, OpenOptions{})
	require.NoError(t, err)
	var opt source.ScanOptions
	for i := range table.Schema().Fields {
		opt.Columns = append(opt.Columns, i)
	}
	return table, opt
}

func TestTheLeastMemoryOfAScanIsEnoughForIt(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	defer goleak.VerifyNone(t, exceptDevice)
	files, err := filepath.Glob("testdata/*.parquet")
	require.NoError(t, err)
	for _, f := range files {
		for _, rows := range []int{1, 50, 1000, 0} {
			for _, encoded := range []bool{false, true} {
				table, opt := everyColumn(t, f)
				opt.StrideRows, opt.Decode.Encoded, opt.Decode.Threads = rows, encoded, 8
				least := table.LeastMemory(opt)
				opt.Columns = nil
				_, _, err := scanOnce(t, least, []string{f}, opt)
				require.NoError(t, err, "%s in strides of %d rows, encoded %v", f, rows, encoded)
			}
		}
	}
}

func TestAScanWithABudgetOfLessThanItsLeastIsRefusedAtOnce(t *testing.T) {
	table, opt := everyColumn(t, "testdata/dictionaries.parquet")
	least := table.LeastMemory(opt)
	opt.Lease = hosttest.Budget(t, least-1).Lease("scan of numbers")
	_, err := table.Scan(context.Background(), opt)
	var refused *gpu.BudgetError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, least, refused.Asked)
	require.ErrorContains(t, err, "scan of numbers")
	require.ErrorContains(t, err, "the least for a stride of 131072 rows")
	_, peak := opt.Lease.Used()
	require.Zero(t, peak)
	require.NoError(t, opt.Lease.Close())
}

func TestAScanGoesOnAfterEveryRefusal(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	defer func(n int) { readAhead = n }(readAhead)
	readAhead = 100 // so that memory is also refused between a header and its page
	for _, f := range []string{"encodings-v1-zstd.parquet", "encodings-v2-snappy.parquet", "fallback.parquet",
		"many-dictionaries.parquet", "page-index.parquet"} {
		path := filepath.Join("testdata", f)
		want, _, err := scanOnce(t, 0, []string{path}, source.ScanOptions{StrideRows: 100})
		require.NoError(t, err)
		for k, refused := 1, true; refused && k < 300; k += 1 + k/int(gputest.StepOr(30, 4)) {
			refused = false
			table, opt := everyColumn(t, path)
			var regrow func()
			budget, regrow := hosttest.ShrinkingBudget(t, k, func() {
				refused = true
				time.AfterFunc(time.Millisecond, func() { regrow() })
			})
			opt.StrideRows, opt.Decode.Threads, opt.Decode.Encoded, opt.Lease = 100, int(1+k/2%2*3), k%2 == 0,
				budget.Lease("scan")
			other := budget.Lease("other")
			require.NoError(t, other.Reserve(1)) // so that the scan has others to wait for
			got, err := readAll(table, opt)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s after %d allocations", f, k)
			other.Unreserve(1)
			require.NoError(t, other.Close())
			require.NoError(t, opt.Lease.Close())
		}
	}
}

// readAll returns the values of a scan.
func readAll(table *Table, opt source.ScanOptions) (content, error) {
	r, err := table.Scan(context.Background(), opt)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	got := content{}
	for {
		s, err := r.Read(context.Background())
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return nil, err
		}
		for i, c := range s.Cols {
			for k := range s.Rows {
				name := s.Schema.Fields[i].Name
				got[name] = append(got[name], c.ScalarAt(k))
			}
		}
		s.Release()
	}
}

func TestAScanGoesOnBesideOneWhoTakesAllMemoryByTurns(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	for _, f := range []string{"testdata/encodings-v1-zstd.parquet", "testdata/many-dictionaries.parquet"} {
		table, opt := everyColumn(t, f)
		opt.StrideRows, opt.Decode.Threads = 100, 4
		budget := hosttest.Budget(t, 2*table.LeastMemory(opt))
		opt.Lease = budget.Lease("scan")
		other := budget.Lease("other")
		ended, turns := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			for {
				select {
				case <-ended:
					turns <- n
					return
				default:
				}
				if left := other.Available(); left > 0 && other.Reserve(left) == nil {
					n++
					time.Sleep(time.Millisecond)
					other.Unreserve(left)
				}
				time.Sleep(time.Millisecond / 4)
			}
		}()
		got, err := readAll(table, opt)
		close(ended)
		require.NotZero(t, <-turns)
		require.NoError(t, err)
		require.Len(t, got, len(opt.Columns))
		require.NoError(t, other.Close())
		require.NoError(t, opt.Lease.Close())
	}
}

func TestAScanThatNobodyGivesMemoryFails(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	const patience = 200 * time.Millisecond
	for _, alone := range []bool{true, false} {
		table, opt := everyColumn(t, "testdata/encodings-v1-none.parquet")
		budget, _ := hosttest.ShrinkingBudget(t, 5, func() {})
		budget.SetPatience(patience)
		opt.StrideRows, opt.Lease = 100, budget.Lease("scan")
		other := budget.Lease("other")
		if !alone {
			require.NoError(t, other.Reserve(1))
		}
		begin := time.Now()
		_, err := readAll(table, opt)
		require.ErrorIs(t, err, gpu.ErrBudget)
		require.Equal(t, alone, time.Since(begin) < patience)
		if !alone {
			other.Unreserve(1)
		}
		require.NoError(t, other.Close())
		require.NoError(t, opt.Lease.Close())
	}
}

func TestAScanWaitsForMemoryAsLongAsNobodyReads(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	const patience = 10 * time.Millisecond
	table, opt := everyColumn(t, "testdata/encodings-v1-none.parquet")
	shrunk := make(chan struct{})
	budget, regrow := hosttest.ShrinkingBudget(t, 5, func() { close(shrunk) })
	budget.SetPatience(patience)
	opt.StrideRows, opt.Lease = 100, budget.Lease("scan")
	r, err := table.Scan(context.Background(), opt)
	require.NoError(t, err)
	<-shrunk
	time.Sleep(10 * patience)
	regrow()
	rows := 0
	for {
		s, err := r.Read(context.Background())
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		rows += s.Rows
		s.Release()
	}
	require.EqualValues(t, table.Rows(), rows)
	require.NoError(t, r.Close())
	require.NoError(t, opt.Lease.Close())
}

// largePages writes a file of three columns of strings in row groups of so many pages of
// about 20 KB, and returns the size of a page.
func largePages(t *testing.T, groups, pages, version int, optional bool, e encoding.Encoding,
	codec compress.Codec) (path string, page int64) {
	const rows = 200
	node := parquet.Compressed(parquet.Encoded(parquet.String(), e), codec)
	if optional {
		node = parquet.Optional(node)
	}
	path = filepath.Join(t.TempDir(), "large.parquet")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	w := parquet.NewWriter(f, parquet.NewSchema("rows", parquet.Group{"a": node, "b": node, "c": node}),
		parquet.DataPageVersion(version), parquet.PageBufferSize(1<<20))
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 100)
	for range groups {
		for range pages {
			for i := range rows {
				row := parquet.Row{}
				for c := range 3 {
					for k := range text {
						text[k] = byte('a' + r.IntN(26))
					}
					v := parquet.ByteArrayValue(text).Level(0, 0, c)
					switch {
					case optional && i%3 == 0:
						v = parquet.NullValue().Level(0, 0, c)
					case optional:
						v = v.Level(0, 1, c)
					}
					row = append(row, v.Clone())
				}
				_, err := w.WriteRows([]parquet.Row{row})
				require.NoError(t, err)
			}
			for _, c := range w.ColumnWriters() {
				require.NoError(t, c.Flush())
			}
		}
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	return path, rows * int64(len(text)+4)
}

func TestAScanOfLargePagesHoldsOneAtATime(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	defer goleak.VerifyNone(t, exceptDevice)
	defer func(n int) { readAhead = n }(readAhead)
	readAhead = 1 << 10 // so that pages are larger
	for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy} {
		for _, e := range []encoding.Encoding{&parquet.Plain, &parquet.DeltaLengthByteArray, &parquet.RLEDictionary} {
			for _, version := range []int{1, 2} {
				for _, optional := range []bool{false, true} {
					for _, pages := range []int{1, 5} {
						path, page := largePages(t, 5/pages+1, pages, version, optional, e, codec)
						for _, rows := range []int{30, 150, 250} {
							for _, columns := range [][]int{{1}, {0, 1, 2}} {
								for _, threads := range []int{1, 8} {
									name := fmt.Sprintf("%v %v version %d optional %v pages %d rows %d columns "+
										"%v threads %d", codec, e, version, optional, pages, rows, columns, threads)
									table, err := Open([]string{path}, OpenOptions{})
									require.NoError(t, err)
									for g := range table.files[0].groups {
										// All pages have the size that is expected of the largest.
										for c := range table.schema.Fields {
											table.files[0].groups[g].chunks[c].dataPages = 2 * int64(pages)
										}
									}
									opt := source.ScanOptions{Columns: columns, StrideRows: rows}
									opt.Decode.Threads = threads
									least := table.LeastMemory(opt)
									if e == &parquet.Plain {
										held := float64(len(columns)) + 0.2 // pages that are shared
										if codec != &parquet.Uncompressed {
											held++ // one that is decompressed
										}
										values := 2.5 * 104 * float64(len(columns)*min(rows, 200*pages))
										require.Less(t, float64(least), float64(page)*held+values+16<<10, name)
									}
									opt.Lease = hosttest.Budget(t, least).Lease("scan")
									got, err := readAll(table, opt)
									require.NoError(t, err, name)
									require.Len(t, got["b"], int(table.Rows()), name)
									require.NoError(t, opt.Lease.Close())
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestARefusalNamesAPageThatIsLargerThanTheFooterTells(t *testing.T) {
	defer func(n int) { readAhead = n }(readAhead)
	readAhead = 1 << 10
	path, page := largePages(t, 1, 1, 1, false, &parquet.Plain, &parquet.Snappy)
	for _, memory := range []int64{page / 2, page * 3 / 2} { // to fetch it, and to decompress it
		table, opt := everyColumn(t, path)
		opt.Columns, opt.StrideRows = opt.Columns[:1], 10
		table.files[0].groups[0].chunks[0].dataPages = 50
		budget := hosttest.Budget(t, max(memory, table.LeastMemory(opt)))
		budget.SetPatience(10 * time.Millisecond)
		opt.Lease = budget.Lease("scan")
		_, err := readAll(table, opt)
		require.ErrorIs(t, err, gpu.ErrBudget)
		require.ErrorContains(t, err, `a page of column "a" of `+path+" has ")
		require.ErrorContains(t, err, "smaller pages or row groups")
		require.NoError(t, opt.Lease.Close())
	}
}
