package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/sink/ordered"
	"github.com/gstream/gstream/source"
	sourceexchange "github.com/gstream/gstream/source/exchange"
)

var schema = gpu.NewSchema(
	gpu.Field{Name: "number", Type: gpu.Of(gpu.Int64)},
	gpu.Field{Name: "text", Type: gpu.Of(gpu.String), Nullable: true},
	gpu.Field{Name: "flag", Type: gpu.Of(gpu.Bool), Nullable: true},
	gpu.Field{Name: "decimal", Type: gpu.DecimalOf(30, 4), Nullable: true},
	gpu.Field{Name: "float", Type: gpu.Of(gpu.Float32)})

// rowsOf returns rows with numbers from a first one on, sorted by their partition, the last column, if there are
// several.
func rowsOf(r *rand.Rand, first, n, partitions int) *gpu.Stride {
	columns := make([][]gpu.Scalar, schema.Len()+1)
	for i := range n {
		row := []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), int64(first+i)),
			gpu.StringScalar(strings.Repeat("é", r.IntN(9))), gpu.BoolScalar(r.IntN(2) == 0),
			gpu.IntScalar(gpu.DecimalOf(30, 4), r.Int64()), gpu.FloatScalar(gpu.Of(gpu.Float32), float64(r.IntN(99))),
			gpu.IntScalar(gpu.Of(gpu.Int32), int64(i*partitions/n))}
		for c := range row {
			if c < schema.Len() && schema.Fields[c].Nullable && r.IntN(4) == 0 {
				row[c] = gpu.Null(row[c].Type)
			}
			columns[c] = append(columns[c], row[c])
		}
	}
	s := &gpu.Stride{Schema: schema, Rows: n}
	if partitions > 1 {
		s.Schema = gpu.NewSchema(append(schema.Fields[:schema.Len():schema.Len()],
			gpu.Field{Name: "partition", Type: gpu.Of(gpu.Int32)})...)
	}
	for i, f := range s.Schema.Fields {
		s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, columns[i]))
	}
	return s
}

// write writes a file of strides and returns its index, and the rows as texts by their partitions.
func write(t testing.TB, path string, partitions int, sample []int, strides ...*gpu.Stride) (*sourceexchange.Index,
	map[int][]string) {
	lease := budget.Lease("file")
	w, err := Create(path, strides[0].Schema, Options{Partitions: partitions, Sample: sample,
		Options: ordered.Options{Lease: lease}})
	require.NoError(t, err)
	want := map[int][]string{}
	for _, s := range strides {
		for i := range s.Rows {
			p := 0
			if partitions > 1 {
				p = int(s.Cols[schema.Len()].ScalarAt(i).Int.Int64())
			}
			want[p] = append(want[p], rowText(s, i))
		}
		require.NoError(t, w.Write(context.Background(), s))
	}
	require.NoError(t, w.Commit(context.Background()))
	require.NoError(t, lease.Close())
	return w.Index(), want
}

func rowText(s *gpu.Stride, row int) string {
	var out []string
	for i := range schema.Fields {
		out = append(out, s.Cols[i].ScalarAt(row).String())
	}
	return strings.Join(out, "|")
}

// budget is that of a CPU device, which is never closed.
var budget = func() *gpu.Budget {
	d, err := host.Open(host.Options{Threads: 2, Memory: 64 << 20})
	if err != nil {
		panic(err)
	}
	return d.Budget()
}()

// readAll returns the rows of a file of so many bytes as texts, by its index.
func readAll(t testing.TB, path string, size int64) (rows []string, err error) {
	x, err := sourceexchange.ReadIndex(t.Context(), path, size)
	if err != nil {
		return nil, err
	}
	return read(t, sourceexchange.File{Path: path, Size: size, Pages: x.Pages})
}

// read returns the rows of files as texts.
func read(t testing.TB, files ...sourceexchange.File) (rows []string, err error) {
	table, err := sourceexchange.Open(schema, files)
	if err != nil {
		return nil, err
	}
	lease := budget.Lease("rows")
	r, err := table.Scan(t.Context(), source.ScanOptions{Columns: []int{0, 1, 2, 3, 4}, Lease: lease,
		Decode: source.DecodeOptions{Threads: 2}})
	if err != nil {
		return nil, errors.Join(err, lease.Close())
	}
	for {
		s, err := r.Read(t.Context())
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			require.NoError(t, r.Close())
			require.NoError(t, lease.Close())
			return rows, err
		}
		for i := range s.Rows {
			rows = append(rows, rowText(s, i))
		}
		s.Release()
	}
}

func TestPartitionsAndSharesHaveAllRowsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, partitions := range []int{1, 2, 7} {
		path := filepath.Join(t.TempDir(), "rows")
		x, want := write(t, path, partitions, nil, rowsOf(r, 0, 5000, partitions))
		info, err := os.Stat(path)
		require.NoError(t, err)
		file := sourceexchange.File{Path: path, Size: info.Size()}
		var all []string
		for p, part := range x.Parts() {
			require.EqualValues(t, len(want[p]), part.Rows)
			one := file
			one.Pages = sourceexchange.Select(x.Pages, []int{p}, 0, 0)
			rows, err := read(t, one)
			require.NoError(t, err)
			require.Equal(t, want[p], rows)
			all = append(all, rows...)
		}
		rows, err := readAll(t, path, info.Size())
		require.NoError(t, err)
		require.Equal(t, all, rows)
		rows = nil
		for share := range 3 {
			one := file
			one.Pages = sourceexchange.ShareOf(x.Pages, share, 3)
			some, err := read(t, one)
			require.NoError(t, err)
			rows = append(rows, some...)
		}
		require.Equal(t, all, rows)
	}
}

func TestAFileThatChangedIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	_, want := write(t, path, 2, []int{0, 1}, rowsOf(rand.New(rand.NewPCG(2, 2)), 0, 60, 2))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	all := append(want[0], want[1]...)
	try := func(name string, changed []byte) {
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		rows, err := readAll(t, path, int64(len(changed)))
		if err == nil {
			require.Equal(t, all, rows, name)
			return
		}
		require.ErrorContains(t, err, path, name)
	}
	for i := 0; i < len(content); i += 1 + len(content)/150 {
		changed := bytes.Clone(content)
		changed[i] ^= 1 << (i % 8)
		try(fmt.Sprintf("byte %d", i), changed)
		if i%3 == 0 {
			require.NoError(t, os.WriteFile(path, content[:i], 0o600))
			_, err := readAll(t, path, int64(i))
			require.ErrorIs(t, err, source.ErrData, "%d bytes", i)
		}
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	_, err = readAll(t, path, int64(len(content))+1)
	require.ErrorIs(t, err, source.ErrData)
	x, err := sourceexchange.ReadIndex(t.Context(), path, int64(len(content)))
	require.NoError(t, err)
	first := x.Pages[0]
	for name, change := range map[string]func(*sourceexchange.File){
		"size":         func(f *sourceexchange.File) { f.Size++ },
		"before pages": func(f *sourceexchange.File) { f.Pages[0].Offset = 0 },
		"beyond":       func(f *sourceexchange.File) { f.Pages[len(f.Pages)-1].Stored = math.MaxInt32 },
		"far beyond":   func(f *sourceexchange.File) { f.Pages[len(f.Pages)-1].Offset = math.MaxInt64 },
		"twice":        func(f *sourceexchange.File) { f.Pages = append(f.Pages, f.Pages[0]) },
		"another sum":  func(f *sourceexchange.File) { f.Pages[0].Sum++ },
		"more rows":    func(f *sourceexchange.File) { f.Pages[0].Rows++ },
		"no rows":      func(f *sourceexchange.File) { f.Pages[0].Rows = -1 },
	} {
		f := sourceexchange.File{Path: path, Size: int64(len(content)), Pages: slices.Clone(x.Pages)}
		change(&f)
		_, err := read(t, f)
		require.ErrorContains(t, err, path, name)
	}
	require.Equal(t, first, x.Pages[0])
}

func TestASampleStandsForAllRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var strides []*gpu.Stride
	const n, rows = 12, 3000
	for i := range n {
		strides = append(strides, rowsOf(r, i*rows, rows, 1))
	}
	x, _ := write(t, filepath.Join(t.TempDir(), "rows"), 1, []int{0}, strides...)
	keys := x.Sample.Keys
	require.InDelta(t, n*rows, float64(len(keys))*float64(x.Sample.Weight), n*rows/5)
	for _, q := range []float64{0.25, 0.5, 0.75} {
		require.InDelta(t, q*n*rows, keys[int(q*float64(len(keys)))][0].Int.Int64(), n*rows/20)
	}
}

// FuzzFile reads files that anybody may have written.
func FuzzFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "rows")
	write(f, path, 2, []int{0}, rowsOf(rand.New(rand.NewPCG(4, 4)), 0, 20, 2))
	content, err := os.ReadFile(path)
	require.NoError(f, err)
	x, err := sourceexchange.ReadIndex(f.Context(), path, int64(len(content)))
	require.NoError(f, err)
	end := x.Pages[len(x.Pages)-1]
	f.Add(content[len(sourceexchange.Magic):end.Offset+end.Stored], []byte(`{"schema":null,"partitions":1,"pages":[]}`))
	index, err := x.Encode()
	require.NoError(f, err)
	f.Add(content[len(sourceexchange.Magic):end.Offset+end.Stored], index[:len(index)-20])
	f.Fuzz(func(t *testing.T, pages, index []byte) {
		// The sum of the index is right, so that what it says is checked.
		file := append([]byte(sourceexchange.Magic), pages...)
		file = append(file, sourceexchange.Tail(index)...)
		path := filepath.Join(t.TempDir(), "rows")
		require.NoError(t, os.WriteFile(path, file, 0o600))
		_, _ = readAll(t, path, int64(len(file)))
		var said sourceexchange.File // the pages that a task says a file has
		if json.Unmarshal(index, &said) == nil {
			said.Path, said.Size = path, int64(len(file))
			_, _ = read(t, said)
		}
	})
}
