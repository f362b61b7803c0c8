package arrow

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store/storetest"
)

// columns has a column of each layout, with four rows each, as JSON.
var columns = []struct {
	typ  arrow.DataType
	json string
}{
	{arrow.FixedWidthTypes.Boolean, `[true, null, false, true]`},
	{arrow.PrimitiveTypes.Int8, `[-128, null, 0, 127]`},
	{arrow.PrimitiveTypes.Uint64, `[0, null, 1, 9007199254740991]`},
	{arrow.FixedWidthTypes.Float16, `[0.5, null, -1, 3]`},
	{arrow.FixedWidthTypes.Date64, `["1992-02-29", null, "1969-12-31", "2026-01-01"]`},
	{&arrow.Decimal128Type{Precision: 15, Scale: 2}, `["-1.25", null, "0.00", "9999999999999.99"]`},
	{&arrow.Decimal256Type{Precision: 38, Scale: 4}, `["-1.2500", null, "0.0000", "12345.5678"]`},
	{&arrow.Time32Type{Unit: arrow.Millisecond}, `["00:00:00.001", null, "23:59:59.999", "12:00:00"]`},
	{&arrow.Time64Type{Unit: arrow.Nanosecond}, `["00:00:00.000000001", null, "23:59:59.999999999", "12:00:00"]`},
	{&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "Europe/Berlin"},
		`["1992-02-29 01:02:03.000004", null, "1969-12-31 00:00:00", "2026-01-01 00:00:00"]`},
	{arrow.BinaryTypes.String, `["", null, "grüße", "x"]`},
	{arrow.BinaryTypes.LargeString, `["", null, "grüße", "x"]`},
	{arrow.BinaryTypes.StringView, `["", null, "longer than twelve bytes", "x"]`},
	{arrow.BinaryTypes.BinaryView, `["", null, "AAEC", "eA=="]`},
	{&arrow.FixedSizeBinaryType{ByteWidth: 2}, `["AAE=", null, "AAI=", "eHg="]`},
	{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		`["a", null, "b", "a"]`},
	{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint32, ValueType: arrow.PrimitiveTypes.Int64},
		`[7, null, 8, 7]`},
	{arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1, null], null, [], [-3]]`},
	{arrow.LargeListOf(arrow.ListOf(arrow.BinaryTypes.String)), `[[["a", null], null], null, [], [[]]]`},
	{arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float64), `[[1, null], null, [2.5, -1], [0, 0]]`},
	{arrow.StructOf(arrow.Field{Name: "a", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		arrow.Field{Name: "b", Type: arrow.FixedWidthTypes.Date32, Nullable: true}),
		`[{"a": true, "b": null}, null, {"a": null, "b": "2024-02-29"}, {"a": false, "b": "1969-12-31"}]`},
	{arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32),
		`[[{"key": "x", "value": -1}, {"key": "y", "value": null}], null, [], [{"key": "", "value": 7}]]`},
	{arrow.Null, `[null, null, null, null]`},
}

func record(t testing.TB) arrow.Record {
	var fields []arrow.Field
	var arrays []arrow.Array
	for i, c := range columns {
		a, _, err := array.FromJSON(memory.DefaultAllocator, c.typ, strings.NewReader(c.json))
		require.NoError(t, err, "%v", c.typ)
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("c%d", i), Type: c.typ, Nullable: true})
		arrays = append(arrays, a)
	}
	ends := array.NewInt32Builder(memory.DefaultAllocator)
	ends.AppendValues([]int32{1, 4}, nil)
	values := array.NewStringBuilder(memory.DefaultAllocator)
	values.AppendValues([]string{"p", "q"}, []bool{true, false})
	runs := array.NewRunEndEncodedArray(ends.NewArray(), values.NewArray(), 4, 0)
	fields = append(fields, arrow.Field{Name: "runs", Type: runs.DataType(), Nullable: true})
	return array.NewRecord(arrow.NewSchema(fields, nil), append(arrays, runs), 4)
}

// written returns a file with records of four, four, no and two rows.
func written(t testing.TB, stream bool, options ...ipc.Option) []byte {
	r := record(t)
	path := filepath.Join(t.TempDir(), "x")
	out, err := os.Create(path)
	require.NoError(t, err)
	options = append(options, ipc.WithSchema(r.Schema()))
	w, err := ipc.NewFileWriter(out, options...)
	require.NoError(t, err)
	write, end := w.Write, w.Close
	if stream {
		require.NoError(t, out.Truncate(0))
		s := ipc.NewWriter(out, options...)
		write, end = s.Write, s.Close
	}
	for _, r := range []arrow.Record{r, r, r.NewSlice(1, 1), r.NewSlice(1, 3)} {
		require.NoError(t, write(r))
	}
	require.NoError(t, end())
	require.NoError(t, out.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}

func save(t testing.TB, text []byte) string {
	path := filepath.Join(t.TempDir(), "x.arrow")
	require.NoError(t, os.WriteFile(path, text, 0o666))
	return path
}

// rowsOf reads columns of files, and returns the rows as JSON.
func rowsOf(t testing.TB, table source.Table, columns []int, lease *gpu.Lease) (rows []string, err error) {
	err = eachOf(t, table, columns, lease, func(s *gpu.Stride) {
		text, err := Record(s).MarshalJSON()
		require.NoError(t, err)
		rows = append(rows, strings.Split(strings.Trim(string(text), "[]\n"), "\n")...)
	})
	return rows, err
}

func eachOf(t testing.TB, table source.Table, columns []int, lease *gpu.Lease, f func(*gpu.Stride)) error {
	r, err := table.Scan(context.Background(), source.ScanOptions{Columns: columns, Lease: lease, StrideRows: 3,
		Decode: source.DecodeOptions{Threads: 3}})
	if err != nil {
		return err
	}
	defer func() { require.NoError(t, r.Close()) }()
	for {
		s, err := r.Read(context.Background())
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		f(s)
		s.Release()
	}
}

func allOf(table source.Table) (columns []int) {
	for i := range table.Schema().Fields {
		columns = append(columns, i)
	}
	return columns
}

func TestFilesHaveTheRowsOfTheirRecords(t *testing.T) {
	r := record(t)
	known, err := NewTable(r.Schema(), r, r, r.NewSlice(1, 3))
	require.NoError(t, err)
	lease := host.HeapLease("test", 1<<26)
	want, err := rowsOf(t, known, allOf(known), lease)
	require.NoError(t, err)
	for _, stream := range []bool{false, true} {
		for i, options := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
			path := save(t, written(t, stream, options...))
			table, err := Open(context.Background(), []string{path})
			require.NoError(t, err)
			require.Equal(t, known.Schema(), table.Schema())
			require.Equal(t, int64(10), table.Rows())
			require.Empty(t, table.Unreadable())
			got, err := rowsOf(t, table, allOf(table), lease)
			require.NoError(t, err)
			require.Equal(t, strings.Join(want, ""), strings.Join(got, ""), "stream %v, codec %d", stream, i)
			for c := range columns { // one column alone, and twice
				want, err := rowsOf(t, known, []int{c, c}, lease)
				require.NoError(t, err)
				got, err := rowsOf(t, table, []int{c, c}, lease)
				require.NoError(t, err)
				require.Equal(t, strings.Join(want, ""), strings.Join(got, ""))
			}
		}
	}
	require.NoError(t, lease.Close())
}

func TestDictionariesOfStreamsGrowAndAreReplaced(t *testing.T) {
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	schema := arrow.NewSchema([]arrow.Field{{Name: "d", Type: typ, Nullable: true}}, nil)
	for _, options := range [][]ipc.Option{{ipc.WithDictionaryDeltas(true)}, nil} {
		var out bytes.Buffer
		w := ipc.NewWriter(&out, append(options, ipc.WithSchema(schema))...)
		for _, text := range []string{`["a", "b"]`, `["a", "b", "c"]`, `["z", null]`} {
			a, _, err := array.FromJSON(memory.DefaultAllocator, typ, strings.NewReader(text))
			require.NoError(t, err)
			require.NoError(t, w.Write(array.NewRecord(schema, []arrow.Array{a}, int64(a.Len()))))
		}
		require.NoError(t, w.Close())
		table, err := Open(context.Background(), []string{save(t, out.Bytes())})
		require.NoError(t, err)
		lease := host.HeapLease("test", 1<<26)
		got, err := rowsOf(t, table, []int{0}, lease)
		require.NoError(t, err)
		require.NoError(t, lease.Close())
		require.Equal(t, `{"d":"a"}{"d":"b"}{"d":"a"}{"d":"b"}{"d":"c"}{"d":"z"}{"d":null}`,
			strings.NewReplacer(",{", "{", "\n", "").Replace(strings.Join(got, "")))
	}
}

func TestFilesOfATableAgree(t *testing.T) {
	one := save(t, written(t, false))
	two := save(t, written(t, true, ipc.WithZstd()))
	table, err := Open(context.Background(), []string{one, two})
	require.NoError(t, err)
	require.Equal(t, int64(20), table.Rows())
	var out bytes.Buffer
	other := arrow.NewSchema([]arrow.Field{{Name: "c0", Type: arrow.PrimitiveTypes.Int64}}, nil)
	require.NoError(t, ipc.NewWriter(&out, ipc.WithSchema(other)).Close())
	_, err = Open(context.Background(), []string{one, save(t, out.Bytes())})
	require.ErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err, `column 1 is "c0" of type BIGINT, and in `)
}

func TestErrorsNameTheFileAndTheRecordBatch(t *testing.T) {
	text := written(t, false)
	at := bytes.LastIndex(text, []byte("grüße")) // a name of the third and last batch with it
	text[at+2] = 0xFF
	path := save(t, text)
	table, err := Open(context.Background(), []string{path})
	require.NoError(t, err)
	lease := host.HeapLease("test", 1<<26)
	_, err = rowsOf(t, table, allOf(table), lease)
	require.NoError(t, lease.Close())
	require.ErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err, path+", record batch 3: column ")
	require.ErrorContains(t, err, "is not UTF-8")
	for name, c := range map[string]struct {
		text []byte
		want string
	}{"empty": {nil, "it has no schema"}, "text": {[]byte("a,b\n1,2\n"), "not a file of Arrow's IPC format"},
		"cut": {text[:len(text)-5], "it has no footer"}, "old": {[]byte("FEA1xxxxFEA1"), "Feather version 1"}} {
		_, err := Open(context.Background(), []string{save(t, c.text)})
		require.ErrorIs(t, err, source.ErrData, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

// readHostile reads a file, and returns the error. Errors are about the content.
func readHostile(t testing.TB, text []byte) error {
	path := save(t, text)
	defer os.Remove(path)
	lease := host.HeapLease("test", 1<<26)
	table, err := Open(context.Background(), []string{path})
	if err == nil {
		err = eachOf(t, table, allOf(table), lease, func(s *gpu.Stride) {
			for _, c := range s.Cols {
				for i := range min(c.Len, 3) {
					_ = c.ScalarAt(i).String()
				}
			}
		})
	}
	require.NotErrorIs(t, err, gpu.ErrPanic)
	require.NoError(t, lease.Close())
	if err != nil && !gpu.IsOutOfMemory(err) {
		require.ErrorIs(t, err, source.ErrData)
	}
	return err
}

func TestHostileFilesAreErrors(t *testing.T) {
	files := [][]byte{written(t, false), written(t, true), written(t, false, ipc.WithLZ4()),
		written(t, true, ipc.WithZstd())}
	r := rand.New(rand.NewPCG(3, 4))
	failed := 0
	for i := range 1000 {
		bad := bytes.Clone(files[i%len(files)])
		for range 1 + r.IntN(3) {
			at := r.IntN(len(bad))
			switch r.IntN(4) {
			case 0:
				bad[at] = byte(r.IntN(256))
			case 1:
				bad[at] ^= 1 << r.IntN(8)
			case 2:
				if at &^= 3; at+4 <= len(bad) {
					numbers := []uint32{0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, uint32(r.IntN(100))}
					binary.LittleEndian.PutUint32(bad[at:], numbers[r.IntN(len(numbers))])
				}
			case 3:
				if r.IntN(10) == 0 {
					bad = bad[:at+1]
				}
			}
		}
		if readHostile(t, bad) != nil {
			failed++
		}
	}
	require.Greater(t, failed, 250)
}

func FuzzFiles(f *testing.F) {
	f.Add(written(f, false))
	f.Add(written(f, true, ipc.WithLZ4()))
	f.Add(written(f, false, ipc.WithZstd()))
	f.Fuzz(func(t *testing.T, text []byte) { _ = readHostile(t, text) })
}

func TestFilesInAStoreHaveTheSameRows(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.arrow"), written(t, false, ipc.WithLZ4()), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.arrows"), written(t, true), 0o666))
	storetest.Use(t, storetest.Folder(t, dir))
	lease := host.HeapLease("test", 1<<26)
	for _, name := range []string{"x.arrow", "x.arrows"} {
		local, err := Open(t.Context(), []string{filepath.Join(dir, name)})
		require.NoError(t, err)
		remote, err := Open(t.Context(), []string{"s3://" + storetest.Bucket + "/" + name})
		require.NoError(t, err)
		require.Equal(t, local.Schema(), remote.Schema())
		for _, columns := range [][]int{allOf(local), {3}, {15, 2}} {
			want, err := rowsOf(t, local, columns, lease)
			require.NoError(t, err)
			got, err := rowsOf(t, remote, columns, lease)
			require.NoError(t, err)
			require.Equal(t, strings.Join(want, ""), strings.Join(got, ""), name)
		}
	}
	require.NoError(t, lease.Close())
}
