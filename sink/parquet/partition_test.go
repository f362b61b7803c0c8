package parquet

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
	reader "github.com/gstream/gstream/source/parquet"
)

// partitioned returns a table with a key of few values, among them null, and other columns.
func partitioned(r *rand.Rand, rows int, key gpu.Type, values int) table {
	tab := table{schema: gpu.NewSchema(gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "k", Type: key, Nullable: true},
		gpu.Field{Name: "s", Type: gpu.Of(gpu.String), Nullable: true},
		gpu.Field{Name: "b", Type: gpu.Of(gpu.Bool), Nullable: true}, gpu.Field{Name: "d", Type: gpu.DecimalOf(30, 2)})}
	var keys []gpu.Scalar
	for range values {
		keys = append(keys, randomScalar(r, key, 1<<30))
	}
	keys[0] = gpu.Null(key)
	if key.Kind == gpu.String {
		keys = append(keys, gpu.StringScalar(""), gpu.StringScalar(nullPartition), gpu.StringScalar("NULL"),
			gpu.StringScalar("a/b=c%\n ü"), gpu.StringScalar(".."))
	}
	tab.values = make([][]gpu.Scalar, tab.schema.Len())
	for at := 0; at < rows; {
		n := min(rows-at, 1+r.IntN(700))
		s := &gpu.Stride{Schema: tab.schema, Rows: n}
		for i, f := range tab.schema.Fields {
			c, v := randomColumn(r, f.Type, n, 50, 0.2*float64(min(i, 1)), f.Type.IsVar() && r.IntN(2) == 0)
			switch f.Name {
			case "n":
				for k := range v {
					v[k] = gpu.IntScalar(f.Type, int64(at+k))
				}
				c = gpu.ColumnOf(f.Type, v)
			case "d":
				c, v = randomColumn(r, f.Type, n, 50, 0, false)
			case "k":
				for k := range v {
					v[k] = keys[r.IntN(len(keys))]
				}
				c = gpu.ColumnOf(f.Type, v)
			}
			s.Cols, tab.values[i] = append(s.Cols, c), append(tab.values[i], v...)
		}
		tab.strides = append(tab.strides, s)
		at += n
	}
	return tab
}

// rows returns the rows as text, in order of the number that they begin with.
func (tab table) rows(columns ...string) []string {
	out := make([]string, len(tab.values[0]))
	for i := range out {
		out[i] = fmt.Sprintf("%06d", tab.values[0][i].Int.Int64())
		for _, name := range columns {
			out[i] += "|" + asWritten(tab.values[tab.schema.Index(name)][i]).String()
		}
	}
	return out
}

func readRows(t *testing.T, path string, opt reader.OpenOptions, columns ...string) (rows []string) {
	rows = rowsInOrder(t, path, opt, columns...)
	slices.Sort(rows)
	return rows
}

// rowsInOrder is readRows in the order of the files.
func rowsInOrder(t *testing.T, path string, opt reader.OpenOptions, columns ...string) (rows []string) {
	lease := hosttest.Budget(t, 0).Lease("source")
	in, err := reader.Open([]string{path}, opt)
	require.NoError(t, err)
	scan := source.ScanOptions{Lease: lease, Columns: []int{in.Schema().Index("n")}}
	for _, name := range columns {
		scan.Columns = append(scan.Columns, in.Schema().Index(name))
	}
	r, err := in.Scan(context.Background(), scan)
	require.NoError(t, err)
	for {
		s, err := r.Read(context.Background())
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		for i := range s.Rows {
			row := fmt.Sprintf("%06d", s.Cols[0].ScalarAt(i).Int.Int64())
			for _, c := range s.Cols[1:] {
				row += "|" + c.ScalarAt(i).String()
			}
			rows = append(rows, row)
		}
		s.Release()
	}
	require.NoError(t, r.Close())
	require.NoError(t, lease.Close())
	return rows
}

func TestPartitionsOfEveryTypeAreReadBack(t *testing.T) {
	defer goleak.VerifyNone(t)
	for i, key := range []gpu.Type{gpu.Of(gpu.Int8), gpu.Of(gpu.Uint16), gpu.Of(gpu.Int32), gpu.Of(gpu.Int64),
		gpu.Of(gpu.Bool), gpu.Of(gpu.String), gpu.Of(gpu.Date),
		gpu.DecimalOf(9, 2), gpu.DecimalOf(38, 4), gpu.TimestampOf(gpu.Microsecond, false), gpu.TimeOf(gpu.Microsecond),
		gpu.Of(gpu.Float64)} {
		if gputest.Race && !gputest.Takes(4, i) {
			continue // keys of all types have the same goroutines
		}
		for _, keep := range []bool{false, true} {
			r := rand.New(rand.NewPCG(uint64(key.Kind), 3))
			tab := partitioned(r, 3000, key, 12)
			path := filepath.Join(t.TempDir(), "out")
			tab.write(t, path, Options{PartitionBy: []string{"k", "b"}, WritePartitionColumns: keep,
				RowGroupRows: 100 + r.IntN(300), RowsPerFile: int64(r.IntN(2) * 40), Threads: 2})
			got := readRows(t, path,
				reader.OpenOptions{Partitions: []gpu.Field{{Name: "k", Type: key},
					{Name: "b", Type: gpu.Of(gpu.Bool)}}}, "k", "s", "b", "d")
			require.Equal(t, tab.rows("k", "s", "b", "d"), got, "%v", key)
			if keep {
				// The files alone have the columns too.
				require.Equal(t, tab.rows("k", "b"),
					readRows(t, path, reader.OpenOptions{NoPartitions: true}, "k", "b"))
			}
		}
	}
}

func TestPartitionsOfColumnsOfAnyNameAreReadBack(t *testing.T) {
	for _, name := range []string{"_k", ".k", "..", ".", "k=v", "a/b", "%41", " ", "ü", "K", "null", "_k=1"} {
		tab := partitioned(rand.New(rand.NewPCG(4, 2)), 50, gpu.Of(gpu.Int64), 3)
		tab.schema.Fields[1].Name = name
		for _, target := range []string{"out", "j=1", "_j=1", ".j=1"} {
			root := t.TempDir()
			path := filepath.Join(root, target)
			tab.write(t, path, Options{PartitionBy: []string{name}, Threads: 2})
			require.Equal(t, tab.rows(name, "s"), readRows(t, path, reader.OpenOptions{}, name, "s"), name)
			if strings.Contains(target, "=") {
				require.Equal(t, tab.rows(name, "s"), readRows(t, root, reader.OpenOptions{}, name, "s"), name)
			}
		}
	}
}

func TestATemporaryBesideAPartitionIsHiddenToReaders(t *testing.T) {
	root := t.TempDir()
	tab := partitioned(rand.New(rand.NewPCG(4, 2)), 50, gpu.Of(gpu.Int64), 3)
	tab.write(t, filepath.Join(root, "j=1"), Options{RowsPerFile: 10, Threads: 2})
	want := readRows(t, root, reader.OpenOptions{}, "j", "s")
	o, err := newOutput(disk{}, filepath.Join(root, "j=2"), Options{RowsPerFile: 1})
	require.NoError(t, err)
	part, err := o.part("", 0)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(part, []byte("not finished"), 0o666))
	require.Equal(t, want, readRows(t, root, reader.OpenOptions{}, "j", "s"))
	require.NoError(t, o.discard())
}

// counting counts the files of parts that are open.
type counting struct {
	disk
	open, most atomic.Int64
}

type countedFile struct {
	outFile
	of *counting
}

func (c *counting) create(path string) (outFile, error) {
	f, err := c.disk.create(path)
	if n := c.open.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	return countedFile{f, c}, err
}

func (f countedFile) Close() error {
	f.of.open.Add(-1)
	return f.outFile.Close()
}

func TestManyPartitionsTakeFewOpenFilesAndLittleMemory(t *testing.T) {
	defer goleak.VerifyNone(t)
	tab := partitioned(rand.New(rand.NewPCG(8, 8)), 20000, gpu.Of(gpu.Int64), 400)
	const budget = 8 << 20
	lease := hosttest.Budget(t, budget).Lease("sink")
	c := &counting{}
	path := filepath.Join(t.TempDir(), "out")
	w, err := create(c, path, tab.schema, Options{Lease: lease, PartitionBy: []string{"k"}, RowGroupRows: 10,
		Threads: 2})
	require.NoError(t, err)
	require.NoError(t, tab.tryWrite(w))
	_, peak := lease.Used()
	require.NoError(t, lease.Close())
	require.LessOrEqual(t, peak, int64(budget))
	require.LessOrEqual(t, c.most.Load(), int64(maxOpenFiles))
	require.Greater(t, c.most.Load(), int64(maxOpenFiles/2))
	require.Zero(t, c.open.Load())
	require.Equal(t, tab.rows("k", "s"), readRows(t, path, reader.OpenOptions{}, "k", "s"))
	files := 0
	require.NoError(t, filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".parquet") {
			files++
		}
		return err
	}))
	require.Greater(t, files, 400, "partitions go on in further files")
	require.EqualValues(t, files, w.Stats().Files)
}

func TestPartitionsAreWrittenAfterEveryRefusal(t *testing.T) {
	defer goleak.VerifyNone(t)
	tab := partitioned(rand.New(rand.NewPCG(9, 9)), 1500, gpu.Of(gpu.Int64), 9)
	want := tab.rows("k", "s", "b")
	for k, short := 1, true; short; k += 1 + k/5 {
		short = false
		var regrow func()
		b, regrow := hosttest.ShrinkingBudget(t, k, func() {
			short = true
			time.AfterFunc(time.Millisecond, func() { regrow() })
		})
		lease := b.Lease("sink")
		path := filepath.Join(t.TempDir(), "out")
		w, err := Create(path, tab.schema, Options{Lease: lease, PartitionBy: []string{"k"}, RowGroupRows: 50,
			Threads: 1 + int(k%2)*3})
		require.NoError(t, err)
		require.NoError(t, tab.tryWrite(w))
		require.NoError(t, lease.Close())
		require.Equal(t, want, readRows(t, path, reader.OpenOptions{}, "k", "s", "b"), "after %d allocations", k)
	}
}

func TestPartitionsAreReplacedOnlyIfAllIsOfAnEarlierOutput(t *testing.T) {
	tab := partitioned(rand.New(rand.NewPCG(10, 10)), 300, gpu.Of(gpu.Int64), 4)
	path := filepath.Join(t.TempDir(), "out")
	opt := Options{PartitionBy: []string{"k"}}
	tab.write(t, path, opt)
	again := func() error {
		lease := hosttest.Budget(t, 0).Lease("sink")
		defer func() { require.NoError(t, lease.Close()) }()
		return tab.replace(path, Options{Lease: lease, PartitionBy: []string{"k"}})
	}
	require.NoError(t, again())
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	folder := filepath.Join(path, entries[1].Name())
	foreign := filepath.Join(folder, "note.txt")
	require.NoError(t, os.WriteFile(foreign, nil, 0o666))
	require.ErrorContains(t, again(), entries[1].Name()+"/note.txt")
	require.FileExists(t, foreign)
	require.NoError(t, os.Remove(foreign))
	require.NoError(t, os.Mkdir(filepath.Join(path, "k=none"), 0o777))
	require.ErrorContains(t, again(), "k=none")
	require.NoError(t, os.Remove(filepath.Join(path, "k=none")))
	require.NoError(t, again())
	names, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, names, 1, "nothing is left beside it")
	require.Equal(t, tab.rows("k"), readRows(t, path, reader.OpenOptions{}, "k"))
}

func TestPartitionsThatCannotBeAreRefused(t *testing.T) {
	s := gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "b", Type: gpu.Of(gpu.Binary)},
		gpu.Field{Name: "c", Type: gpu.Of(gpu.String)})
	for want, opt := range map[string]Options{
		`partition_by names "x", which is not a column; the columns are a, b, c`: {PartitionBy: []string{"x"}},
		`partition_by names "a" twice`:                                           {PartitionBy: []string{"a", "a"}},
		`partition_by names "b", whose type BLOB`:                                {PartitionBy: []string{"b"}},
		"write_partition_columns is for an output with partition_by":             {WritePartitionColumns: true},
	} {
		require.ErrorContains(t, CheckColumns(s, opt), want)
	}
	odd := gpu.NewSchema(gpu.Field{Name: "V", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "v", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "\xff", Type: gpu.Of(gpu.Int64)})
	for want, opt := range map[string]Options{
		`partition_by names "V", and there is a column "v"`: {PartitionBy: []string{"V"}},
		`partition_by names "v", and there is a column "V"`: {PartitionBy: []string{"v", "V"},
			WritePartitionColumns: true},
		`partition_by names the column ""`:              {PartitionBy: []string{""}},
		`partition_by names "\xff", which is not UTF-8`: {PartitionBy: []string{"\xff"}},
	} {
		require.ErrorContains(t, CheckColumns(odd, opt), want)
	}
	s.Fields = slices.Delete(s.Fields, 1, 2)
	require.ErrorContains(t, CheckColumns(s, Options{PartitionBy: []string{"a", "c"}}), "names all columns")
	require.NoError(t, CheckColumns(s, Options{PartitionBy: []string{"a", "c"}, WritePartitionColumns: true}))

	lease := hosttest.Budget(t, 0).Lease("sink")
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "out"), s, Options{Lease: lease, PartitionBy: []string{"c"}})
	require.NoError(t, err)
	stride := &gpu.Stride{Schema: s, Rows: 1,
		Cols: []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.Int64), []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), 1)}),
			gpu.ColumnOf(gpu.Of(gpu.String), []gpu.Scalar{gpu.StringScalar(strings.Repeat("long/", 40))})}}
	require.ErrorContains(t, w.Write(context.Background(), stride),
		"takes 282 bytes in the name of a folder, which has at most 255: c=long%2Flong")
	require.NoError(t, w.Abort())
	require.NoError(t, lease.Close())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestAPartitionedOutputOfNoRowsIsAnEmptyTable(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, key := range []gpu.Type{gpu.Of(gpu.Int16), gpu.Of(gpu.Date), gpu.TimestampOf(gpu.Second, true),
			gpu.Of(gpu.String), gpu.Of(gpu.Bool), gpu.DecimalOf(5, 2)} {
			read := func(rows int, opt reader.OpenOptions) *reader.Table {
				path := filepath.Join(t.TempDir(), "out")
				tab := partitioned(rand.New(rand.NewPCG(1, 1)), rows, key, 2)
				tab.write(t, path, Options{PartitionBy: []string{"k", "b"}, WritePartitionColumns: keep})
				if rows == 0 {
					requireNames(t, path, ".gstream-manifest.json", "part-00000.parquet")
				}
				in, err := reader.Open([]string{path}, opt)
				require.NoError(t, err)
				require.EqualValues(t, rows, in.Rows())
				return in
			}
			for _, opt := range []reader.OpenOptions{{},
				{Partitions: []gpu.Field{{Name: "k", Type: gpu.Of(gpu.String)}}},
				{Schema: gpu.NewSchema(gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)},
					gpu.Field{Name: "k", Type: gpu.Of(gpu.String)})}} {
				full := read(200, opt).Schema()
				require.Equal(t, full, read(0, opt).Schema(), key)
			}
		}
	}
}
