package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
	reader "github.com/gstream/gstream/source/parquet"
	"github.com/stretchr/testify/require"
)

// table is the rows that a test writes and expects to read.
type table struct {
	schema  *gpu.Schema
	strides []*gpu.Stride
	values  [][]gpu.Scalar // by column
}

// randomTable returns rows of the given types, or of every type, in strides of random
// lengths.
func randomTable(r *rand.Rand, rows int, nulls float64, types ...gpu.Type) table {
	t := table{schema: &gpu.Schema{}}
	if types == nil {
		types = everyType()
	}
	for i, typ := range types {
		t.schema.Fields = append(t.schema.Fields,
			gpu.Field{Name: fmt.Sprintf("c%02d", i), Type: typ, Nullable: nulls > 0})
	}
	t.values = make([][]gpu.Scalar, t.schema.Len())
	for rows > 0 {
		n := min(rows, 1+r.IntN(700))
		rows -= n
		s := &gpu.Stride{Schema: t.schema, Rows: n}
		for i, f := range t.schema.Fields {
			distinct := []int{1, 7, 1 << 30}[r.IntN(3)]
			c, v := randomColumn(r, f.Type, n, distinct, nulls, f.Type.IsVar() && r.IntN(2) == 0)
			s.Cols = append(s.Cols, c)
			t.values[i] = append(t.values[i], v...)
		}
		t.strides = append(t.strides, s)
	}
	return t
}

// write writes the table and commits it.
func (tab table) write(t *testing.T, path string, opt Options) {
	t.Helper()
	lease := hosttest.Budget(t, 0).Lease("sink")
	opt.Lease = lease
	w, err := Create(path, tab.schema, opt)
	require.NoError(t, err)
	for _, s := range tab.strides {
		kept := &gpu.Stride{Schema: s.Schema, Rows: s.Rows}
		for _, c := range s.Cols {
			kept.Cols = append(kept.Cols, c.Retain())
		}
		require.NoError(t, w.Write(context.Background(), kept))
	}
	require.NoError(t, w.Commit(context.Background()))
	require.NoError(t, lease.Close())
	rows := 0
	for _, s := range tab.strides {
		rows += s.Rows
	}
	require.EqualValues(t, rows, w.Stats().Rows)
}

// requireRead reads the files, for the host and for a GPU, and compares every value.
func (tab table) requireRead(t *testing.T, path string, strideRows int) {
	t.Helper()
	for _, encoded := range []bool{false, true} {
		tab.requireScan(t, path, source.ScanOptions{StrideRows: strideRows,
			Decode: source.DecodeOptions{Encoded: encoded}}, nil)
	}
}

// requireReadOnDevice reads the files by a device, which decodes all pages, and compares every value.
func (tab table) requireReadOnDevice(t *testing.T, d *cuda.Device, path string) {
	t.Helper()
	l, h := d.Budget().Lease("decode"), d.HostBudget().Lease("decoded")
	q, err := d.NewQueue("decode")
	require.NoError(t, err)
	pages := source.DecodeOptions{Pages: true}
	tab.requireScan(t, path, source.ScanOptions{Decode: pages}, func(s *gpu.Stride) *gpu.Stride {
		for _, c := range s.Cols {
			require.NotNil(t, c.Pages)
			c.Pages.Decode = func(reason string) (c gpu.Column, err error) { return c, errors.New(reason) }
		}
		up, err := q.Upload(l, s)
		require.NoError(t, err)
		down, err := q.Download(h, up)
		require.NoError(t, err)
		d.Settle() // copies up keep the stride
		return down
	})
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
	require.NoError(t, h.Close())
}

// requireScan reads the files and compares every value of the strides, or of what through makes of them.
func (tab table) requireScan(t *testing.T, path string, opt source.ScanOptions,
	through func(*gpu.Stride) *gpu.Stride) {
	t.Helper()
	budget := hosttest.Budget(t, 0)
	lease := budget.Lease("source")
	in, err := reader.Open([]string{path}, reader.OpenOptions{})
	require.NoError(t, err)
	opt.Decode.Threads, opt.Lease = 2, lease
	for _, f := range tab.schema.Fields {
		opt.Columns = append(opt.Columns, in.Schema().Index(f.Name))
	}
	r, err := in.Scan(context.Background(), opt)
	require.NoError(t, err)
	at := 0
	for {
		s, err := r.Read(context.Background())
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.NoError(t, s.Check())
		if through != nil {
			s = through(s)
		}
		for i, c := range s.Cols {
			for k := range s.Rows {
				want := asWritten(tab.values[i][at+k])
				got := c.ScalarAt(k)
				if want.Type != got.Type || want.Valid != got.Valid || want.Valid && want.Compare(got) != 0 {
					require.Failf(t, "value differs", "column %s (%v), row %d: wrote %v, read %v (%v)",
						tab.schema.Fields[i].Name, want.Type, at+k, want, got, got.Type)
				}
			}
		}
		at += s.Rows
		s.Release()
	}
	require.Len(t, tab.values[0], at)
	require.NoError(t, r.Close())
	require.NoError(t, lease.Close())
}

// TestEveryTypeIsReadBackAsItWasWritten writes every type with every dictionary setting
// and share of nulls. The pages are the same for every codec, so the other codecs write
// only one combination.
func TestEveryTypeIsReadBackAsItWasWritten(t *testing.T) {
	cases := 0
	for _, codec := range codecNames {
		for _, dictionary := range []string{"auto", "off"} {
			for _, nulls := range []float64{0, 0.2, 1} {
				if codec != "snappy" && (dictionary != "auto" || nulls != 0.2) {
					continue
				}
				if cases++; gputest.Race && !gputest.Takes(4, cases) {
					continue // all options have the same goroutines
				}
				t.Run(fmt.Sprintf("%s/dictionary %s/nulls %v", codec, dictionary, nulls), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(len(codec)), uint64(100*nulls)))
					tab := randomTable(r, 2500, nulls)
					path := filepath.Join(t.TempDir(), "t.parquet")
					// Pages have a hundred values or more, because the slow codecs take
					// long to start one.
					tab.write(t, path, Options{Compression: codec, Dictionary: dictionary,
						RowGroupRows: 500 + r.IntN(1500), PageRows: 100 + r.IntN(300), PageBytes: 1000 + r.IntN(4000),
						Threads: 2})
					tab.requireRead(t, path, 1+r.IntN(1500))
				})
			}
		}
	}
}

func TestTinyRowGroupsAndPagesAreReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	for _, opt := range []Options{{RowGroupRows: 1}, {PageRows: 1}, {PageBytes: 1}, {RowGroupRows: 7, PageRows: 3}} {
		tab := randomTable(r, 60, 0.2)
		path := filepath.Join(t.TempDir(), "t.parquet")
		tab.write(t, path, opt)
		tab.requireRead(t, path, 11)
	}
}

func TestTableWithoutRowsIsAFileWithASchema(t *testing.T) {
	tab := randomTable(rand.New(rand.NewPCG(1, 1)), 0, 0.5)
	path := filepath.Join(t.TempDir(), "t.parquet")
	tab.write(t, path, Options{})
	tab.requireRead(t, path, 100)
}

func TestRowsPerFileMakesADirectoryOfParts(t *testing.T) {
	tab := randomTable(rand.New(rand.NewPCG(2, 2)), 2500, 0.1)
	path := filepath.Join(t.TempDir(), "t")
	tab.write(t, path, Options{RowsPerFile: 1000, RowGroupRows: 300})
	parts, err := os.ReadDir(path)
	require.NoError(t, err)
	var names []string
	for _, p := range parts {
		names = append(names, p.Name())
	}
	require.Equal(t, []string{".gstream-manifest.json", "part-00000.parquet", "part-00001.parquet",
		"part-00002.parquet"}, names)
	tab.requireRead(t, path, 700)
}

func TestHugeValuesSpanPages(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	tab := table{schema: gpu.NewSchema(gpu.Field{Name: "s", Type: gpu.Of(gpu.String)}), values: make([][]gpu.Scalar, 1)}
	var values []gpu.Scalar
	for range 20 {
		b := make([]byte, 1+r.IntN(3<<16))
		for i := range b {
			b[i] = byte('a' + r.IntN(26))
		}
		values = append(values, gpu.StringScalar(string(b)))
	}
	tab.values[0] = values
	tab.strides = []*gpu.Stride{{Schema: tab.schema, Rows: 20,
		Cols: []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.String), values)}}}
	path := filepath.Join(t.TempDir(), "t.parquet")
	tab.write(t, path, Options{PageBytes: 1 << 16})
	tab.requireRead(t, path, 7)
}

// A chunk of nulls has no dictionary, and so may the whole file.
func TestNullsBesideDictionariesAreReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	const rows = 300
	types := everyType()
	parts := make([]table, 5)
	for p := range parts {
		parts[p] = randomTable(r, 0, 1)
		s := &gpu.Stride{Schema: parts[p].schema, Rows: rows}
		for i, typ := range types {
			nulls := 0.1
			if (p+i)%3 == 0 {
				nulls = 1
			}
			c, v := randomColumn(r, typ, rows, 7, nulls, false)
			s.Cols = append(s.Cols, c)
			parts[p].values[i] = v
		}
		parts[p].strides = []*gpu.Stride{s}
	}
	all := randomTable(r, 0, 1)
	for _, p := range parts {
		all.strides = append(all.strides, p.strides...)
		for i := range all.values {
			all.values[i] = append(all.values[i], p.values[i]...)
		}
	}
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "groups.parquet"), filepath.Join(dir, "folder")
	all.write(t, file, Options{RowGroupRows: rows})
	require.NoError(t, os.Mkdir(folder, 0o777))
	for i, p := range parts {
		p.write(t, filepath.Join(folder, fmt.Sprintf("%d.parquet", i)), Options{})
	}
	for _, strideRows := range []int{100, 400, 10000} {
		all.requireRead(t, file, strideRows)
		all.requireRead(t, folder, strideRows)
	}
}
