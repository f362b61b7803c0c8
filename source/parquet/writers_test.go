package parquet

import (
	"encoding/binary"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
)

// Files of other writers, byte by byte.

// rawPage is a page of a file. Its header gets the sizes.
type rawPage struct {
	header format.PageHeader
	body   []byte
	raw    int // uncompressed bytes
}

func v1Page(rows int, e format.Encoding, body []byte) rawPage {
	return rawPage{dataPage(int32(rows), e, 0, 0), body, len(body)}
}

func dictionaryPage(n int, body []byte) rawPage {
	h := format.PageHeader{Type: format.DictionaryPage}
	h.DictionaryPageHeader = thrift.New(format.DictionaryPageHeader{NumValues: int32(n), Encoding: format.Plain})
	return rawPage{h, body, len(body)}
}

// v2Page returns a data page of the second version with definition levels.
func v2Page(rows, nulls int, levels, values []byte, raw int) rawPage {
	h := format.PageHeader{Type: format.DataPageV2}
	h.DataPageHeaderV2 = thrift.New(format.DataPageHeaderV2{NumValues: int32(rows), NumNulls: int32(nulls),
		NumRows:  int32(rows),
		Encoding: format.Plain, DefinitionLevelsByteLength: int32(len(levels))})
	return rawPage{h, append(append([]byte(nil), levels...), values...), len(levels) + raw}
}

// rawFile makes a file of one column and one row group.
func rawFile(t testing.TB, e format.SchemaElement, rows int, codec format.CompressionCodec, pages ...rawPage) []string {
	t.Helper()
	b := []byte(magic)
	k := format.ColumnMetaData{Type: e.Type.V, PathInSchema: []string{e.Name}, Codec: codec, NumValues: int64(rows)}
	for _, p := range pages {
		p.header.CompressedPageSize, p.header.UncompressedPageSize = int32(len(p.body)), int32(p.raw)
		head, err := thrift.Marshal(new(thrift.CompactProtocol), &p.header)
		require.NoError(t, err)
		if p.header.Type == format.DictionaryPage {
			k.DictionaryPageOffset = int64(len(b))
		} else if k.DataPageOffset == 0 {
			k.DataPageOffset = int64(len(b))
		}
		b = append(append(b, head...), p.body...)
	}
	k.TotalCompressedSize = int64(len(b) - len(magic))
	root := format.SchemaElement{Name: "schema"}
	root.NumChildren.Set(1)
	f, err := thrift.Marshal(new(thrift.CompactProtocol), &format.FileMetaData{
		Version: 1, Schema: []format.SchemaElement{root, e}, NumRows: int64(rows),
		RowGroups: []format.RowGroup{{NumRows: int64(rows), Columns: []format.ColumnChunk{{MetaData: k}}}},
	})
	require.NoError(t, err)
	b = append(b, f...)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(f))), magic...)
	path := filepath.Join(t.TempDir(), "x.parquet")
	require.NoError(t, os.WriteFile(path, b, 0o666))
	return []string{path}
}

func schemaElement(physical format.Type, r format.FieldRepetitionType) format.SchemaElement {
	return format.SchemaElement{Name: "c", Type: thrift.New(physical), RepetitionType: thrift.New(r)}
}

// readColumn returns the values of the column of a file.
func readColumn(t testing.TB, paths []string) []gpu.Scalar {
	t.Helper()
	got, _, err := scan(t, 0, paths, source.ScanOptions{})
	require.NoError(t, err)
	require.Len(t, got, 1)
	for _, v := range got {
		return v
	}
	return nil
}

func le64(values ...uint64) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func TestTypesWithoutACounterpartBecomeTheNearest(t *testing.T) {
	table, err := Open(fixture("types.parquet"), OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Float32), gpu.Of(gpu.Int32), gpu.Of(gpu.Float64)},
		[]gpu.Type{table.Schema().Fields[0].Type, table.Schema().Fields[1].Type, table.Schema().Fields[2].Type,
			table.Schema().Fields[3].Type})
	got := mustScan(t, "types.parquet", 70)
	skipped := int64(0)
	for i := range 150 {
		require.False(t, got["nothing"][i].Valid)
		require.Equal(t, i%10 != 3, got["half"][i].Valid)
		require.Equal(t, i%10 != 4, got["wide"][i].Valid)
		if v := got["half"][i]; v.Valid {
			require.Equal(t, float64(i-75)/8, v.Float)
			p := source.Predicate{Column: 1, Op: source.Eq, Values: []gpu.Scalar{v}}
			found, progress, err := scan(t, 0, fixture("types.parquet"),
				source.ScanOptions{Prune: []source.Predicate{p}}, "half")
			require.NoError(t, err)
			require.Contains(t, found["half"], v)
			skipped += progress.RowsSkipped
		}
		if v := got["wide"][i]; v.Valid {
			exact := new(big.Int).Exp(big.NewInt(10), big.NewInt(44), nil)
			exact.Mul(exact, big.NewInt(int64(i-75))).Add(exact, big.NewInt(int64(i)))
			want, _ := new(big.Rat).SetFrac(exact, big.NewInt(100000)).Float64()
			require.Equal(t, want, v.Float, "row %d", i)
			p := source.Predicate{Column: 3, Op: source.Eq, Values: []gpu.Scalar{v}}
			found, _, err := scan(t, 0, fixture("types.parquet"), source.ScanOptions{Prune: []source.Predicate{p}},
				"wide")
			require.NoError(t, err)
			require.Contains(t, found["wide"], v)
		}
	}
	require.Greater(t, skipped, int64(150*40), "bounds of half floats are used")
}

func TestHalfFloatsAreExact(t *testing.T) {
	for h := range 1 << 16 {
		exponent, fraction := h>>10&31, h&1023
		want := math.Ldexp(float64(1024+fraction), exponent-25)
		switch {
		case exponent == 0:
			want = math.Ldexp(float64(fraction), -24)
		case exponent == 31 && fraction == 0:
			want = math.Inf(1)
		case exponent == 31:
			require.True(t, math.IsNaN(float64(halfFloat(uint16(h)))))
			continue
		}
		require.Equal(t, math.Copysign(want, 1-2*float64(h>>15)), float64(halfFloat(uint16(h))), "%04x", h)
	}
}

func TestDecimalsOfManyDigitsAreTheNearestDouble(t *testing.T) {
	bytes := func(s string, size int) []byte {
		v, ok := new(big.Int).SetString(s, 10)
		require.True(t, ok)
		if v.Sign() < 0 {
			v.Add(v, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
		}
		return v.FillBytes(make([]byte, size))
	}
	digits := "123456789012345678901234567890123456789012345678901234567890"
	values := map[string]float64{"0": 0, "1": 1e-10, "-1": -1e-10,
		digits:       12345678901234567890123456789012345678901234567890.1234567890,
		"-" + digits: -12345678901234567890123456789012345678901234567890.1234567890, "3": 3e-10}
	var fixed, varying []byte
	var want []float64
	for s, v := range values {
		want = append(want, v)
		fixed = append(fixed, bytes(s, 30)...)
		least := bytes(s, 26)
		if v > 0 && v < 1 {
			least = bytes(s, 1)
		}
		varying = append(binary.LittleEndian.AppendUint32(varying, uint32(len(least))), least...)
	}
	varying = binary.LittleEndian.AppendUint32(varying, 0) // no byte is zero
	e := schemaElement(format.FixedLenByteArray, format.Required)
	e.TypeLength.Set(30)
	e.LogicalType.Value = &format.DecimalType{Precision: 60, Scale: 10}
	check := func(paths []string, n int) {
		got := readColumn(t, paths)
		require.Len(t, got, n)
		for i, v := range want {
			require.Equal(t, gpu.Of(gpu.Float64), got[i].Type)
			require.Equal(t, v, got[i].Float)
		}
	}
	check(rawFile(t, e, len(want), format.Uncompressed, v1Page(len(want), format.Plain, fixed)), len(want))
	e.Type, e.LogicalType.Value = thrift.New(format.ByteArray), nil
	e.ConvertedType, e.Precision, e.Scale = thrift.New(deprecated.Decimal), thrift.New(int32(60)), thrift.New(int32(10))
	check(rawFile(t, e, len(want)+1, format.Uncompressed, v1Page(len(want)+1, format.Plain, varying)), len(want)+1)
	// A value with more digits is bad data, whatever their number.
	long := append(binary.LittleEndian.AppendUint32(nil, 1<<20), make([]byte, 1<<20)...)
	long[4] = 1
	_, _, err := scan(t, 0, rawFile(t, e, 1, format.Uncompressed, v1Page(1, format.Plain, long)), source.ScanOptions{})
	require.ErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err, "more than 60 digits")
}

func TestInt96ReachesAsFarAsATimestamp(t *testing.T) {
	at := func(year int, hour, nano int) time.Time { return time.Date(year, 12, 31, hour, 0, 0, nano, time.UTC) }
	times := []time.Time{at(1, 1, 0), at(1500, 0, 1), at(1969, 23, 999999999), at(2024, 5, 123456789), at(9999, 1, 0),
		at(290000, 1, 0), at(-290000, 1, 5000)}
	var body []byte
	for _, v := range times {
		seconds := v.Unix()
		day := seconds / 86400
		if seconds%86400 < 0 {
			day--
		}
		body = append(body, le64(uint64((seconds-86400*day)*1e9+int64(v.Nanosecond())))...)
		body = binary.LittleEndian.AppendUint32(body, uint32(int32(day+2440588)))
	}
	got := readColumn(t, rawFile(t, schemaElement(format.Int96, format.Required), len(times), format.Uncompressed,
		v1Page(len(times), format.Plain, body)))
	for i, v := range times {
		require.Equal(t, gpu.TimestampOf(gpu.Microsecond, false), got[i].Type)
		require.Equal(t, v.UnixMicro(), got[i].Int.Int64(), "%v", v)
	}
	far := append(le64(0), 0xff, 0xff, 0xff, 0x7f)
	_, _, err := scan(t, 0, rawFile(t, schemaElement(format.Int96, format.Required), 1, format.Uncompressed,
		v1Page(1, format.Plain, far)), source.ScanOptions{})
	require.ErrorIs(t, err, source.ErrData)
}

func TestColumnsOfOneNameAreNamedApart(t *testing.T) {
	got := mustScan(t, "duplicates.parquet", 10)
	// as in DuckDB, except for names that differ in case
	for i, name := range []string{"a", "a_1", "A", "a_1_1", "a_2"} {
		require.Len(t, got[name], 1, name)
		require.EqualValues(t, i, got[name][0].Int.Int64(), name)
	}
	info, err := Inspect(t.Context(), "testdata/duplicates.parquet")
	require.NoError(t, err)
	require.Equal(t, "a_2", info.Columns[4].Name)
	require.Equal(t, "BIGINT", info.Columns[4].Type)
	names := namer{}
	for _, c := range [][2]string{{"a_1", "a_1"}, {"a_1_1", "a_1_1"}, {"a_2", "a_2"}, {"a", "a"}, {"a", "a_1_1_1"},
		{"a", "a_2_1"}} {
		require.Equal(t, c[1], names.name(c[0]))
	}
}

func TestAColumnWithoutANameIsNamedByItsPosition(t *testing.T) {
	// as in DuckDB, which refuses the last two
	for _, c := range [][2]string{{" x", "C0 x"}, {"x ", "x C1"}, {"  ", "C0 _1 _2"}, {" C0", "C0_1 C0"},
		{"C1 ", "C1 C1_1"}} {
		elements := []format.SchemaElement{{Name: "root"}}
		given, want := strings.Split(c[0], " "), strings.Split(c[1], " ")
		elements[0].NumChildren.Set(int32(len(given) + 1))
		nested := format.SchemaElement{Name: "list"}
		nested.NumChildren.Set(1)
		for _, name := range given {
			e := schemaElement(format.Int64, format.Required)
			e.Name = name
			elements = append(elements, e)
		}
		elements = append(elements, nested, schemaElement(format.Int64, format.Required))
		columns, refused, _, err := readSchema(elements)
		require.NoError(t, err)
		require.Empty(t, refused)
		require.Equal(t, "list", columns[len(given)].field.Name)
		for i, column := range columns[:len(given)] {
			require.Equal(t, want[i], column.field.Name, c[0])
		}
	}
}

func TestAFooterThatLeavesItsRowsOutHasThoseOfItsRowGroups(t *testing.T) {
	for _, name := range []string{"duckdb.parquet", "dictionaries.parquet", "no-rows.parquet"} {
		want := mustScan(t, name, 100)
		path := edited(t, name, footer(func(m *format.FileMetaData) { m.NumRows = 0 }))
		got, _, err := scan(t, 0, path, source.ScanOptions{StrideRows: 100})
		require.NoError(t, err)
		require.Equal(t, want, got)
		table, err := Open(path, OpenOptions{})
		require.NoError(t, err)
		info, err := Inspect(t.Context(), path[0])
		require.NoError(t, err)
		require.Equal(t, table.Rows(), info.Rows)
	}
	for _, rows := range []int64{-1, 1} {
		_, err := Open(edited(t, "duckdb.parquet", footer(func(m *format.FileMetaData) { m.NumRows = rows })),
			OpenOptions{})
		require.ErrorIs(t, err, source.ErrData)
	}
}

func TestAKeyOfTheMetadataMayHaveNoValue(t *testing.T) {
	type key struct {
		Key string `thrift:"1,required"`
	}
	type footerOfKeys struct {
		Version   int32                  `thrift:"1,required"`
		Schema    []format.SchemaElement `thrift:"2,required"`
		NumRows   int64                  `thrift:"3,required"`
		RowGroups []format.RowGroup      `thrift:"4,required"`
		Keys      []key                  `thrift:"5"`
	}
	path := edited(t, "no-statistics.parquet", func(b []byte) []byte {
		n := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		var m format.FileMetaData
		_, err := unmarshalCompact(b[len(b)-8-n:len(b)-8], &m)
		require.NoError(t, err)
		f, err := thrift.Marshal(new(thrift.CompactProtocol),
			&footerOfKeys{1, m.Schema, m.NumRows, m.RowGroups, []key{{"alone"}}})
		require.NoError(t, err)
		return append(binary.LittleEndian.AppendUint32(append(b[:len(b)-8-n:len(b)-8-n], f...), uint32(len(f))),
			magic...)
	})
	require.Len(t, readColumn(t, path), 260)
	info, err := Inspect(t.Context(), path[0])
	require.NoError(t, err)
	require.Equal(t, []string{"alone"}, info.Metadata)
}

func TestACompressedPageOfNullsMayBeEmpty(t *testing.T) {
	nulls := v2Page(3, 3, []byte{3 << 1, 0}, nil, 0)
	for _, codec := range []format.CompressionCodec{format.Snappy, format.Zstd, format.Gzip, format.Brotli,
		format.Lz4Raw, format.Lz4} {
		got := readColumn(t, rawFile(t, schemaElement(format.Float, format.Optional), 3, codec, nulls))
		require.Len(t, got, 3)
		require.False(t, got[0].Valid || got[1].Valid || got[2].Valid)
	}
}

func TestZstdFramesMayHaveLargeWindows(t *testing.T) {
	for _, exponent := range []byte{27, 31} {
		// one raw block of 8 bytes, the last
		body := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (exponent - 10) << 3, 8<<3 | 1, 0, 0}
		body = append(body, le64(42)...)
		p := v1Page(1, format.Plain, body)
		p.raw = 8
		require.EqualValues(t, 42,
			readColumn(t, rawFile(t, schemaElement(format.Int64, format.Required), 1, format.Zstd, p))[0].Int.Int64(),
			"2^%d bytes", exponent)
	}
}

func TestLz4IsFramedAsByHadoopOrNotAtAll(t *testing.T) {
	page := le64(make([]uint64, 500)...)
	for i := range page {
		page[i] = byte(i / 7)
	}
	block := func(b []byte) []byte {
		out := make([]byte, lz4.CompressBlockBound(len(b)))
		n, err := lz4.CompressBlock(b, out, nil)
		require.NoError(t, err)
		return out[:n]
	}
	size := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	join := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	whole, first, second := block(page), block(page[:1600]), block(page[1600:])
	for name, body := range map[string][]byte{
		"one block":              join(size(4000), size(len(whole)), whole),
		"blocks of one frame":    join(size(4000), size(len(first)), first, size(len(second)), second),
		"frames":                 join(size(1600), size(len(first)), first, size(2400), size(len(second)), second),
		"a block without frames": whole,
	} {
		p := v1Page(500, format.Plain, body)
		p.raw = len(page)
		got := readColumn(t, rawFile(t, schemaElement(format.Int64, format.Required), 500, format.Lz4, p))
		for i, v := range got {
			require.Equal(t, binary.LittleEndian.Uint64(page[8*i:]), v.Int.Lo, "%s, row %d", name, i)
		}
		for i := range 8 { // wrong sizes
			damaged := append([]byte(nil), body...)
			damaged[i] ^= 0x40
			p.body = damaged
			requireHarmless(t, rawFile(t, schemaElement(format.Int64, format.Required), 500, format.Lz4, p))
		}
	}
}

func TestGeometriesAreBytesWithoutAnOrder(t *testing.T) {
	for _, l := range []format.LogicalTypeValue{&format.GeometryType{CRS: "x"}, new(format.GeographyType)} {
		path := edited(t, "statistics.parquet", indexed(func(x *chunkIndex) {
			if x.element.Name == "s" {
				x.element.ConvertedType.Reset()
				x.element.LogicalType.Value = l
			}
		}))
		table, err := Open(path, OpenOptions{})
		require.NoError(t, err)
		require.Equal(t, gpu.Of(gpu.Binary), table.Schema().Fields[2].Type)
		p := source.Predicate{Column: 2, Op: source.Eq,
			Values: []gpu.Scalar{{Type: gpu.Of(gpu.Binary), Valid: true, Str: "x"}}}
		got, progress, err := scan(t, 0, path, source.ScanOptions{Prune: []source.Predicate{p}})
		require.NoError(t, err)
		require.Zero(t, progress.RowsSkipped)
		require.Equal(t, "00007", got["s"][7].Str)
	}
}

func TestDictionariesAreFoundWhereOldWritersLeaveThem(t *testing.T) {
	want := mustScan(t, "dictionaries.parquet", 1000)
	b, err := os.ReadFile("testdata/dictionaries.parquet")
	require.NoError(t, err)
	page := func(m *format.ColumnMetaData) (header, body int64) {
		var h format.PageHeader
		n, err := unmarshalCompact(b[m.DictionaryPageOffset:], &h)
		require.NoError(t, err)
		return int64(n), int64(h.CompressedPageSize)
	}
	for name, change := range map[string]func(m *format.ColumnMetaData){
		"sizes without the header of the dictionary": func(m *format.ColumnMetaData) {
			header, _ := page(m)
			m.TotalCompressedSize -= header
		},
		"sizes without the dictionary": func(m *format.ColumnMetaData) {
			header, body := page(m)
			m.TotalCompressedSize -= header + body
		},
		"no offset of the dictionary": func(m *format.ColumnMetaData) {
			m.DataPageOffset,
				m.DictionaryPageOffset = m.DictionaryPageOffset, 0
		},
		"the offset of the dictionary for the data": func(m *format.ColumnMetaData) {
			m.DataPageOffset = m.DictionaryPageOffset
		},
	} {
		path := edited(t, "dictionaries.parquet", footer(func(m *format.FileMetaData) {
			for g := range m.RowGroups {
				for c := range m.RowGroups[g].Columns {
					change(chunkOf(m, g, c))
				}
			}
		}))
		for _, rows := range []int{20, 1000} {
			got, _, err := scan(t, 0, path, source.ScanOptions{StrideRows: rows})
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
		}
	}
	// The bytes behind a chunk with too few pages are not taken for its pages.
	path := edited(t, "dictionaries.parquet", footer(func(m *format.FileMetaData) {
		m.NumRows++
		m.RowGroups[0].NumRows++
		for c := range m.RowGroups[0].Columns {
			chunkOf(m, 0, c).NumValues++
		}
	}))
	_, _, err = scan(t, 0, path, source.ScanOptions{}, "s")
	require.ErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err, "the pages end 1 rows early")
}

func TestTheLevelsOfAPageDecideWhatIsNull(t *testing.T) {
	levels := []byte{3, 0b101} // a packed run
	values := le64(7, 9)
	for _, nulls := range []int{0, 1, 2, 3, -1, 100} {
		got := readColumn(t, rawFile(t, schemaElement(format.Int64, format.Optional), 3, format.Uncompressed,
			v2Page(3, nulls, levels, values, len(values))))
		require.True(t, got[0].Valid && !got[1].Valid && got[2].Valid, "%d nulls", nulls)
		require.EqualValues(t, 7, got[0].Int.Lo)
		require.EqualValues(t, 9, got[2].Int.Lo)
		// An encoding that contains the number of its values.
		split := make([]byte, 16)
		for i, b := range values {
			split[i%8*2+i/8] = b
		}
		p := v2Page(3, nulls, levels, split, len(split))
		p.header.DataPageHeaderV2.V.Encoding = format.ByteStreamSplit
		require.Equal(t, got,
			readColumn(t, rawFile(t, schemaElement(format.Int64, format.Optional), 3, format.Uncompressed, p)),
			"%d nulls", nulls)
	}
	whole := v2Page(2, 0, nil, values, len(values)) // without levels
	got := readColumn(t, rawFile(t, schemaElement(format.Int64, format.Optional), 2, format.Uncompressed, whole))
	require.True(t, got[0].Valid && got[1].Valid)
}

func TestTimesOutsideOfADayAreBadData(t *testing.T) {
	for unit, day := range map[format.TimeUnitValue]int64{new(format.MilliSeconds): 86400e3,
		new(format.MicroSeconds): 86400e6, new(format.NanoSeconds): 86400e9} {
		e := schemaElement(format.Int64, format.Required)
		put := func(b []byte, v int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(v)) }
		if day == 86400e3 {
			e = schemaElement(format.Int32, format.Required)
			put = func(b []byte, v int64) []byte { return binary.LittleEndian.AppendUint32(b, uint32(v)) }
		}
		e.LogicalType.Value = &format.TimeType{Unit: format.TimeUnit{Value: unit}}
		for _, v := range []int64{0, 1, day - 1, day, -1, day + 1, math.MinInt32, math.MaxInt32} {
			coded := []rawPage{dictionaryPage(1, put(nil, v)), v1Page(2, format.RLEDictionary, []byte{0, 4, 0})}
			plain := []rawPage{v1Page(2, format.Plain, put(put(nil, 0), v))}
			for _, pages := range [][]rawPage{coded, plain} {
				paths := rawFile(t, e, 2, format.Uncompressed, pages...)
				if v >= 0 && v <= day {
					require.EqualValues(t, v, readColumn(t, paths)[1].Int.Int64())
					continue
				}
				// Statistics by which it fits 4 bytes change nothing.
				b, err := os.ReadFile(paths[0])
				require.NoError(t, err)
				said := footer(func(m *format.FileMetaData) {
					zero := put(nil, 0)
					chunkOf(m, 0, 0).Statistics = format.Statistics{MinValue: zero, MaxValue: zero}
				})(b)
				require.NoError(t, os.WriteFile(paths[0], said, 0o666))
				_, _, err = scan(t, 0, paths, source.ScanOptions{})
				require.ErrorIs(t, err, source.ErrData, "%v %d", unit, v)
				require.ErrorContains(t, err, "outside of a day")
			}
		}
	}
}

func TestEncryptedFilesAndColumnsAreRefusedByThatName(t *testing.T) {
	path := edited(t, "statistics.parquet", func(b []byte) []byte {
		copy(b, magicEncrypted)
		copy(b[len(b)-4:], magicEncrypted)
		return b
	})
	_, err := Open(path, OpenOptions{})
	require.ErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err, "encrypted")
	for name, hide := range map[string]func(k *format.ColumnChunk){
		"with the key of the footer": func(k *format.ColumnChunk) {
			k.CryptoMetadata.Value = new(format.EncryptionWithFooterKey)
		},
		"with a key of its own": func(k *format.ColumnChunk) {
			k.CryptoMetadata.Value = &format.EncryptionWithColumnKey{PathInSchema: []string{"o"}}
			k.EncryptedColumnMetadata, k.MetaData = []byte("secret"), format.ColumnMetaData{}
		},
	} {
		path := edited(t, "statistics.parquet",
			footer(func(m *format.FileMetaData) { hide(&m.RowGroups[1].Columns[1]) }))
		table, err := Open(path, OpenOptions{})
		require.NoError(t, err, name)
		require.Equal(t, []string{"r", "s"}, table.Schema().Names())
		require.Len(t, table.Unreadable(), 1)
		require.Contains(t, table.Unreadable()[0].Reason, "encrypted")
		got, _, err := scan(t, 0, path, source.ScanOptions{})
		require.NoError(t, err)
		require.Equal(t, "00259", got["s"][259].Str)
		info, err := Inspect(t.Context(), path[0])
		require.NoError(t, err)
		require.Contains(t, info.Columns[1].Unreadable, "encrypted")
	}
}

func TestPairsThatAllFilesHaveAreThoseOfTheTable(t *testing.T) {
	type row struct {
		A int64 `parquet:"a"`
	}
	type wide struct {
		A int64 `parquet:"a"`
		B int64 `parquet:"b"`
	}
	dir := t.TempDir()
	pair := func(k, v string) parquet.WriterOption { return parquet.KeyValueMetadata(k, v) }
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, parquet.WriteFile(path("1"), []row{{1}}, pair("author", "me"), pair("day", "1"),
		pair("pandas", "first"), pair("ARROW:schema", "x"), pair("iceberg.schema", "y"), pair("bad", "\xff")))
	require.NoError(t, parquet.WriteFile(path("2"), []row{{2}}, pair("author", "me"), pair("day", "2"),
		pair("pandas", "second"), pair("ARROW:schema", "x")))
	require.NoError(t, parquet.WriteFile(path("3"), []wide{{3, 4}}, pair("author", "me"), pair("pandas", "third"),
		pair("ARROW:schema", "x"), pair("iceberg.schema", "y")))
	require.NoError(t, parquet.WriteFile(path("4"), []row{{4}}, pair("author", strings.Repeat("x", maxMetadata)),
		pair("day", "1")))
	for files, want := range map[string]map[string]string{
		"1":   {"author": "me", "day": "1", "pandas": "first", "ARROW:schema": "x", "iceberg.schema": "y"},
		"1 2": {"author": "me", "pandas": "first", "ARROW:schema": "x"},
		"2 1": {"author": "me", "pandas": "second", "ARROW:schema": "x"},
		// there are more columns than the schemas describe
		"1 3": {"author": "me", "pandas": "first", "ARROW:schema": "x"},
		"4":   {},
		"1 4": {},
	} {
		var paths []string
		for _, name := range strings.Fields(files) {
			paths = append(paths, path(name))
		}
		table, err := Open(paths, OpenOptions{Threads: 1})
		require.NoError(t, err)
		require.Equal(t, want, orEmpty(table.Metadata()), files)
		for _, f := range table.files {
			require.Nil(t, f.metadata)
		}
	}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
