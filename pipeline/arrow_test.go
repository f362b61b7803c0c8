package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// arrowValues has a column of every Arrow type that we read, with four rows each, as
// JSON.
var arrowValues = []struct {
	typ  arrow.DataType
	json string
	out  arrow.DataType // the type that comes back, when it is not typ
}{
	{arrow.FixedWidthTypes.Boolean, `[true, null, false, true]`, nil},
	{arrow.PrimitiveTypes.Int8, `[-128, null, 0, 127]`, nil},
	{arrow.PrimitiveTypes.Int16, `[-32768, null, 0, 32767]`, nil},
	{arrow.PrimitiveTypes.Int32, `[-2147483648, null, 0, 2147483647]`, nil},
	{arrow.PrimitiveTypes.Int64, `[-9007199254740991, null, 0, 1]`, nil},
	{arrow.PrimitiveTypes.Uint8, `[0, null, 1, 255]`, nil},
	{arrow.PrimitiveTypes.Uint16, `[0, null, 1, 65535]`, nil},
	{arrow.PrimitiveTypes.Uint32, `[0, null, 1, 4294967295]`, nil},
	{arrow.PrimitiveTypes.Uint64, `[0, null, 1, 9007199254740991]`, nil},
	{arrow.PrimitiveTypes.Float32, `[0.5, null, -1, 3]`, nil},
	{arrow.PrimitiveTypes.Float64, `[0.1, null, -1, 1e300]`, nil},
	{arrow.FixedWidthTypes.Date32, `["1992-02-29", null, "1969-12-31", "2026-01-01"]`, nil},
	{&arrow.Decimal128Type{Precision: 15, Scale: 2}, `["-1.25", null, "0.00", "9999999999999.99"]`, nil},
	{&arrow.Decimal128Type{Precision: 38, Scale: 4},
		`["-1.2500", null, "0.0000", "1234567890123456789012345678901234.5678"]`, nil},
	{&arrow.Time32Type{Unit: arrow.Second}, `["00:00:00", null, "23:59:59", "12:00:00"]`, nil},
	{&arrow.Time32Type{Unit: arrow.Millisecond}, `["00:00:00.001", null, "23:59:59.999", "12:00:00"]`, nil},
	{&arrow.Time64Type{Unit: arrow.Microsecond}, `["00:00:00.000001", null, "23:59:59.999999", "12:00:00"]`, nil},
	{&arrow.Time64Type{Unit: arrow.Nanosecond}, `["00:00:00.000000001", null, "23:59:59.999999999", "12:00:00"]`, nil},
	{&arrow.TimestampType{Unit: arrow.Second},
		`["1992-02-29 01:02:03", null, "1969-12-31 00:00:00", "2026-01-01 00:00:00"]`, nil},
	{&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
		`["1992-02-29 01:02:03.000004", null, "1969-12-31 00:00:00", "2026-01-01 00:00:00"]`, nil},
	{arrow.BinaryTypes.String, `["", null, "grüße", "x"]`, nil},
	{arrow.BinaryTypes.LargeString, `["", null, "grüße", "x"]`, arrow.BinaryTypes.String},
	{arrow.BinaryTypes.StringView, `["", null, "longer than twelve bytes", "x"]`, arrow.BinaryTypes.String},
	{arrow.BinaryTypes.Binary, `["", null, "AAEC", "eA=="]`, nil},
	{arrow.BinaryTypes.LargeBinary, `["", null, "AAEC", "eA=="]`, arrow.BinaryTypes.Binary},
	{&arrow.FixedSizeBinaryType{ByteWidth: 2}, `["AAE=", null, "AAI=", "eHg="]`, arrow.BinaryTypes.Binary},
	{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		`["a", null, "b", "a"]`, arrow.BinaryTypes.String},
	{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint32, ValueType: arrow.PrimitiveTypes.Int64},
		`[7, null, 8, 7]`, arrow.PrimitiveTypes.Int64},
	{arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1, null], null, [], [-3]]`, listOf(arrow.PrimitiveTypes.Int8)},
	{arrow.LargeListOf(arrow.ListOf(arrow.BinaryTypes.String)), `[[["a", null], null], null, [], [[]]]`,
		listOf(listOf(arrow.BinaryTypes.String))},
	{arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float64), `[[1, null], null, [2.5, -1], [0, 0]]`,
		listOf(arrow.PrimitiveTypes.Float64)},
	{arrow.StructOf(arrow.Field{Name: "a", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		arrow.Field{Name: "b", Type: arrow.FixedWidthTypes.Date32, Nullable: true}),
		`[{"a": true, "b": null}, null, {"a": null, "b": "2024-02-29"}, {"a": false, "b": "1969-12-31"}]`, nil},
	{arrow.MapOf(arrow.BinaryTypes.String, &arrow.Decimal128Type{Precision: 30, Scale: 2}),
		`[[{"key": "x", "value": "-1.50"}, {"key": "y", "value": null}], null, [], [{"key": "", "value": "7.00"}]]`, nil},
}

func listOf(t arrow.DataType) arrow.DataType {
	return arrow.ListOfField(arrow.Field{Name: "element", Type: t, Nullable: true})
}

func TestArrowValuesOfEveryTypePassThroughAPipeline(t *testing.T) {
	var fields, outFields []arrow.Field
	var cols, want []arrow.Array
	for i, v := range arrowValues {
		a := fromJSON(t, v.typ, v.json)
		out := v.typ
		if v.out != nil {
			out = v.out
		}
		cols, want = append(cols, a), append(want, fromJSON(t, out, v.json))
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("c%d", i), Type: v.typ, Nullable: true})
		outFields = append(outFields, arrow.Field{Name: fmt.Sprintf("c%d", i), Type: out, Nullable: true})
	}
	schema := arrow.NewSchema(fields, nil)
	rec := array.NewRecord(schema, cols, 4)
	// A slice whose offset is not a multiple of eight, and the whole record.
	table, err := ArrowTable(schema, rec.NewSlice(1, 4), rec)
	require.NoError(t, err)
	var c Collector
	report, err := New("arrow").ReadTable("t", table).WriteTo(&c).Run(context.Background(),
		RunOptions{Device: hosttest.Open(t)})
	require.NoError(t, err)
	assert.Equal(t, int64(7), report.Output.Rows)
	expected := array.NewRecord(arrow.NewSchema(outFields, nil), want, 4)
	require.Len(t, c.Records(), 2)
	for i, e := range []arrow.Record{expected.NewSlice(1, 4), expected} {
		got := c.Records()[i]
		require.True(t, e.Schema().Equal(got.Schema()), "%v\n%v", e.Schema(), got.Schema())
		for j := range e.Columns() {
			assert.True(t, array.Equal(e.Column(j), got.Column(j)), "%v: want %v, got %v", e.Schema().Field(j).Type,
				e.Column(j), got.Column(j))
		}
	}
}

func TestArrowTypesThatDoNotFitAreRefusedByName(t *testing.T) {
	union := arrow.DenseUnionOf([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int8}}, []arrow.UnionTypeCode{0})
	list := arrow.NewSchema([]arrow.Field{{Name: "deep", Type: arrow.ListOf(union)}}, nil)
	_, err := ArrowTable(list)
	assert.ErrorContains(t, err, `column "deep": element: `)
}

func TestArrowRecordsAreJoinedAndGrouped(t *testing.T) {
	sales := record(t, []arrow.Field{{Name: "item", Type: arrow.PrimitiveTypes.Int64},
		{Name: "price", Type: &arrow.Decimal128Type{Precision: 9, Scale: 2}}},
		`[{"item": 1, "price": "2.50"}, {"item": 2, "price": "1.00"}, {"item": 1, "price": "0.25"}, {"item": 9, "price": "5.00"}]`)
	items := record(t, []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int32},
		{Name: "label", Type: arrow.BinaryTypes.String}},
		`[{"id": 1, "label": "apple"}, {"id": 2, "label": "pear"}]`)
	var c Collector
	_, err := New("sales").ReadTable("sales", sales).ReadTable("items", items).
		Join("items", "item = id").
		Group([]string{"label"}, "sum(price) as total", "count(*) as n").
		Filter("total > 0").
		Sort("total desc").
		WriteTo(&c).Run(context.Background(), RunOptions{Device: hosttest.Open(t)})
	require.NoError(t, err)
	require.Len(t, c.Records(), 1)
	text, err := c.Records()[0].MarshalJSON()
	require.NoError(t, err)
	assert.JSONEq(t, `[{"label": "apple", "total": "2.75", "n": 2}, {"label": "pear", "total": "1", "n": 1}]`,
		string(text))
}

func fromJSON(t *testing.T, typ arrow.DataType, json string) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, typ)
	require.NoError(t, b.UnmarshalJSON([]byte(json)), "%v", typ)
	return b.NewArray()
}

func record(t *testing.T, fields []arrow.Field, json string) source.Table {
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil), strings.NewReader(json))
	require.NoError(t, err)
	table, err := ArrowTable(rec.Schema(), rec)
	require.NoError(t, err)
	return table
}

func TestArrowRecordsThatBreakTheirSchemaAreRefused(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).AppendNull()
	r := b.NewRecord()
	defer r.Release()
	_, err := ArrowTable(schema, r)
	require.EqualError(t, err, `record 0: column "a" has 1 nulls, but its schema says that it has none`)
}

func TestLessCommonArrowTypesAreRead(t *testing.T) {
	mem := memory.DefaultAllocator
	runs := array.NewRunEndEncodedArray(fromJSON(t, arrow.PrimitiveTypes.Int32, `[2, 3, 5]`),
		fromJSON(t, arrow.BinaryTypes.String, `["a", null, "b"]`), 5, 0)
	unused := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8,
		ValueType: &arrow.Decimal128Type{Precision: 5, Scale: 1}},
		fromJSON(t, arrow.PrimitiveTypes.Int8, `[0, 1, null, 0, 1]`), decimals(5, 15, 25))
	days := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8,
		ValueType: arrow.FixedWidthTypes.Date64},
		fromJSON(t, arrow.PrimitiveTypes.Int8, `[0, 1, 0, 1, null]`),
		fromJSON(t, arrow.FixedWidthTypes.Date64, `["2020-01-01", "2020-01-02"]`))
	for _, c := range []struct {
		in   arrow.Array
		want arrow.Array
	}{
		{fromJSON(t, arrow.FixedWidthTypes.Float16, `[0.5, null, -2, 1, 65504]`),
			fromJSON(t, arrow.PrimitiveTypes.Float32, `[0.5, null, -2, 1, 65504]`)},
		{fromJSON(t, arrow.FixedWidthTypes.Date64, `["2020-01-01", null, "1969-12-31", "1970-01-01", "9999-12-31"]`),
			fromJSON(t, arrow.FixedWidthTypes.Date32,
				`["2020-01-01", null, "1969-12-31", "1970-01-01", "9999-12-31"]`)},
		{fromJSON(t, arrow.FixedWidthTypes.MonthDayNanoInterval,
			`[{"months": 1, "days": -2, "nanoseconds": 3999}, null]`), intervals(1, -2, 3000)},
		{fromJSON(t, arrow.FixedWidthTypes.MonthInterval, `[{"months": -14}, null]`), intervals(-14, 0, 0)},
		{fromJSON(t, arrow.FixedWidthTypes.DayTimeInterval, `[{"days": 1, "milliseconds": -5}, null]`),
			intervals(0, 1, -5e6)},
		{fromJSON(t, arrow.FixedWidthTypes.Duration_ms, `["1.5s", null]`), intervals(0, 0, 1.5e9)},
		{array.NewNull(5), array.MakeArrayOfNull(mem, arrow.PrimitiveTypes.Int32, 5)},
		{fromJSON(t, &arrow.Decimal256Type{Precision: 20, Scale: 2},
			`["1.25", null, "-3.00", "123456789012345678.90", "0.01"]`),
			fromJSON(t, &arrow.Decimal128Type{Precision: 20, Scale: 2},
				`["1.25", null, "-3.00", "123456789012345678.90", "0.01"]`)},
		{runs, fromJSON(t, arrow.BinaryTypes.String, `["a", "a", null, "b", "b"]`)},
		{array.NewSlice(runs, 1, 4), fromJSON(t, arrow.BinaryTypes.String, `["a", null, "b"]`)},
		{unused, fromJSON(t, &arrow.Decimal128Type{Precision: 5, Scale: 1}, `["1.5", "2.5", null, "1.5", "2.5"]`)},
		{days, fromJSON(t, arrow.FixedWidthTypes.Date32,
			`["2020-01-01", "2020-01-02", "2020-01-01", "2020-01-02", null]`)},
		{array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8,
			ValueType: arrow.FixedWidthTypes.Boolean}, fromJSON(t, arrow.PrimitiveTypes.Int8, `[0, 1, null, 0, 0]`),
			fromJSON(t, arrow.FixedWidthTypes.Boolean, `[true, false, true]`)),
			fromJSON(t, arrow.FixedWidthTypes.Boolean, `[true, false, null, true, true]`)},
	} {
		schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: c.in.DataType(), Nullable: true}}, nil)
		table, err := ArrowTable(schema, array.NewRecord(schema, []arrow.Array{c.in}, int64(c.in.Len())))
		require.NoError(t, err, "%v", c.in.DataType())
		var out Collector
		_, err = New("t").ReadTable("t", table).WriteTo(&out).Run(context.Background(),
			RunOptions{Device: hosttest.Open(t)})
		require.NoError(t, err, "%v", c.in.DataType())
		assert.True(t, array.Equal(c.want, out.Records()[0].Column(0)), "%v: want %v, got %v", c.in.DataType(), c.want,
			out.Records()[0].Column(0))
	}
	for _, bad := range []arrow.DataType{&arrow.Decimal256Type{Precision: 60, Scale: 2},
		arrow.SparseUnionOf(nil, nil)} {
		_, err := ArrowTable(arrow.NewSchema([]arrow.Field{{Name: "odd", Type: bad}}, nil))
		assert.ErrorContains(t, err, `column "odd"`)
	}
	used := arrow.NewSchema([]arrow.Field{{Name: "x",
		Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}}}, nil)
	_, err := ArrowTable(used,
		array.NewRecord(used,
			[]arrow.Array{array.NewDictionaryArray(used.Field(0).Type,
				fromJSON(t, arrow.PrimitiveTypes.Int32, `[0, 1]`),
				fromJSON(t, arrow.BinaryTypes.String, `["a", null]`))}, 2))
	assert.ErrorContains(t, err, "1 nulls, but its schema says that it has none")
}

// intervals returns an interval and a null.
func intervals(months, days int32, nanos int64) arrow.Array {
	b := array.NewMonthDayNanoIntervalBuilder(memory.DefaultAllocator)
	b.Append(arrow.MonthDayNanoInterval{Months: months, Days: days, Nanoseconds: nanos})
	b.AppendNull()
	return b.NewArray()
}

func decimals(precision int32, values ...int64) arrow.Array {
	b := array.NewDecimal128Builder(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: precision, Scale: 1})
	for _, v := range values {
		b.Append(decimal128.FromI64(v))
	}
	// More than 64 bits, in an entry that no row uses.
	b.Append(decimal128.New(1, 0))
	return b.NewArray()
}

func TestAJobRunsFromAReaderToAReader(t *testing.T) {
	j, err := Parse("job.yaml",
		[]byte("sources: {t: nowhere.parquet}\nsteps: [{filter: a > 1}]\noutput: {parquet: nowhere/out.parquet}"),
		LoadOptions{})
	require.NoError(t, err)
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	run := func(json string, filter string) (array.RecordReader, *Collector) {
		rec := array.NewRecord(schema, []arrow.Array{fromJSON(t, arrow.PrimitiveTypes.Int64, json)}, 3)
		in, err := array.NewRecordReader(schema, []arrow.Record{rec, rec})
		require.NoError(t, err)
		table, err := ReadArrow(in)
		require.NoError(t, err)
		in.Release()
		var c Collector
		require.Nil(t, c.Schema())
		report, err := FromJob(j).ReadTable("t", table).Filter(filter).WriteTo(&c).Run(context.Background(),
			RunOptions{Device: hosttest.Open(t)})
		require.NoError(t, err)
		assert.Contains(t, fmt.Sprint(report), "t (scan)")
		assert.Regexp(t, `wrote \d rows \(.*\) to Arrow records in`, fmt.Sprint(report))
		out, err := c.Reader()
		require.NoError(t, err)
		return out, &c
	}
	out, _ := run(`[1, 2, 3]`, "a < 3")
	n := int64(0)
	for out.Next() {
		n += out.Record().NumRows()
	}
	assert.EqualValues(t, 2, n)
	empty, c := run(`[1, 1, 1]`, "a > 0")
	assert.False(t, empty.Next())
	assert.True(t, schema.Equal(empty.Schema()))
	assert.True(t, schema.Equal(c.Schema()), "an empty result has its schema")
	assert.Len(t, j.Steps, 1, "the job does not change")
	assert.NotEmpty(t, j.Sources["t"].Parquet)
	_, err = FromJob(j).ReadTable("t", record(t, schema.Fields(), `[{"a": 1}]`)).Read("t", "x").Plan()
	assert.ErrorContains(t, err, `two sources are named "t"`)
}
