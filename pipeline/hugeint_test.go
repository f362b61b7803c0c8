package pipeline

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// cells runs a pipeline and returns its result as text, row by row.
func cells(t *testing.T, b *Builder) (types []string, rows [][]string) {
	t.Helper()
	var out Collector
	_, err := b.WriteTo(&out).Run(context.Background(), RunOptions{Use: Host})
	require.NoError(t, err)
	for _, r := range out.Records() {
		types = nil
		for _, f := range r.Schema().Fields() {
			types = append(types, f.Type.String())
		}
		for i := range int(r.NumRows()) {
			row := make([]string, r.NumCols())
			for k := range row {
				row[k] = r.Column(k).ValueStr(i)
			}
			rows = append(rows, row)
		}
	}
	return types, rows
}

func column(t *testing.T, name string, typ arrow.DataType, json string) source.Table {
	return record(t, []arrow.Field{{Name: name, Type: typ, Nullable: true}}, json)
}

func TestSumsOfIntegersAreIntegers(t *testing.T) {
	values := column(t, "i", arrow.PrimitiveTypes.Int64, `[{"i": 90}, {"i": 1}, {"i": null}]`)
	types, rows := cells(t, New("sums").ReadTable("t", values).Group(nil, "sum(i) // 20 as q", "sum(i) % 20 as r",
		"sum(i) / 20 as d", "sum(i) as s", "avg(i) as a"))
	require.Equal(t, []string{"decimal(38, 0)", "decimal(38, 0)", "float64", "decimal(38, 0)", "float64"}, types,
		"as which a file has a HUGEINT")
	require.Equal(t, [][]string{{"4", "11", "4.55", "91", "45.5"}}, rows)
}

// Integers of 64 bits are made from text, because a JSON number has only the digits of a
// float.
func TestHugeintsThatADecimalDoesNotHoldFailTheRun(t *testing.T) {
	values := column(t, "t", arrow.BinaryTypes.String, `[{"t": "9223372036854775807"}]`)
	_, err := New("huge").ReadTable("t",
		values).Select("t::hugeint * t::bigint * 2 as h").WriteTo(&Collector{}).Run(context.Background(),
		RunOptions{Use: Host})
	require.ErrorContains(t, err, "does not fit DECIMAL(38,0)")
}

func TestBigintsJoinUnsignedOnesAtTheirLimits(t *testing.T) {
	signed := column(t, "a", arrow.BinaryTypes.String,
		`[{"a": "-9223372036854775808"}, {"a": "9223372036854775807"}, {"a": "0"}, {"a": null}]`)
	unsigned := column(t, "b", arrow.BinaryTypes.String,
		`[{"b": "18446744073709551615"}, {"b": "9223372036854775807"}, {"b": "9223372036854775808"}, {"b": "0"}]`)
	_, rows := cells(t, New("join").ReadTable("s", signed).ReadTable("u", unsigned).
		From("s").Select("a::bigint as a").As("signed").
		From("u").Select("b::ubigint as b").As("unsigned").
		From("signed").Join("unsigned", "a = b").Sort("a"))
	require.Equal(t, [][]string{{"0", "0"}, {"9223372036854775807", "9223372036854775807"}}, rows)
}

// Parquet has no seconds, so they are written as milliseconds. Infinity stays infinite.
func TestInfiniteTimestampsOutlastAFile(t *testing.T) {
	texts := column(t, "t", arrow.BinaryTypes.String,
		`[{"t": "infinity"}, {"t": "-infinity"}, {"t": "2020-01-01 00:00:01.5"}, {"t": null}]`)
	path := filepath.Join(t.TempDir(), "x.parquet")
	_, err := New("write").ReadTable("t", texts).
		Select("t::timestamp_s as s", "t::timestamp_ms as ms", "t::timestamp as us", "t::timestamp_ns as ns",
			"t::date as d").
		Write(path, parquet.Options{}).Run(context.Background(), RunOptions{Use: Host})
	require.NoError(t, err)
	_, rows := cells(t, New("read").Read("x", path).Select("s::varchar", "ms::varchar", "us::varchar", "ns::varchar",
		"d::varchar", "year(s)", "s > '2020-01-01'"))
	second, part := "2020-01-01 00:00:02", "2020-01-01 00:00:01.5"
	require.Equal(t, [][]string{
		{"infinity", "infinity", "infinity", "infinity", "infinity", "(null)", "true"},
		{"-infinity", "-infinity", "-infinity", "-infinity", "-infinity", "(null)", "false"},
		{second, part, part, part, "2020-01-01", "2020", "true"},
		{"(null)", "(null)", "(null)", "(null)", "(null)", "(null)", "(null)"},
	}, rows)
}
