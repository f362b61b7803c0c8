package gpu_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

func nestedOf(t gpu.Type, elements ...gpu.Scalar) gpu.Scalar {
	b := gpu.OpenNested(nil)
	for _, e := range elements {
		b = gpu.AppendScalar(b, e)
	}
	return gpu.Scalar{Type: t, Valid: true, Str: string(gpu.CloseNested(b))}
}

func TestEncodingsOfNestedValuesHaveTheOrderOfTheValues(t *testing.T) {
	integer := func(v int64) gpu.Scalar { return gpu.IntScalar(gpu.Of(gpu.Int64), v) }
	text := gpu.StringScalar
	float := func(v float64) gpu.Scalar { return gpu.FloatScalar(gpu.Of(gpu.Float64), v) }
	unsigned := func(v uint64) gpu.Scalar {
		return gpu.Scalar{Type: gpu.Of(gpu.Uint64), Valid: true, Int: gpu.Int128FromUint(v)}
	}
	huge := func(hi int64) gpu.Scalar {
		return gpu.Scalar{Type: gpu.Of(gpu.HugeInt), Valid: true, Int: gpu.Int128{Hi: hi, Lo: 5}}
	}
	for _, ascending := range [][]gpu.Scalar{
		{integer(math.MinInt64), integer(-2), integer(-1), integer(0), integer(255), integer(256),
			integer(math.MaxInt64)},
		{unsigned(0), unsigned(1), unsigned(math.MaxInt64 + 1), unsigned(math.MaxUint64)},
		{huge(math.MinInt64), huge(-1), huge(0), huge(1)},
		{float(math.Inf(-1)), float(-1.5), float(math.Copysign(0, -1)), float(0), float(1e-300), float(math.Inf(1)),
			float(math.NaN())},
		{text(""), text("\x00"), text("\x00\x00"), text("\x00\x01"), text("\x01"), text("a"), text("a\x00"),
			text("a\x00\xff"), text("a\x01"), text("ab"), text("b"), text("\xff")},
	} {
		typ := ascending[0].Type
		lists := []gpu.Scalar{nestedOf(gpu.ListOf(typ))}
		for _, v := range append(ascending, gpu.Null(typ)) {
			lists = append(lists, nestedOf(gpu.ListOf(typ), v), nestedOf(gpu.ListOf(typ), v, ascending[0]),
				nestedOf(gpu.ListOf(typ), v, gpu.Null(typ)))
		}
		for i, x := range lists {
			for j, y := range lists {
				require.Equal(t, i < j, x.Compare(y) < 0, "%v and %v", x, y)
			}
			require.Equal(t, len(x.Str), gpu.SkipNested(x.Str+"\x09\x00"))
		}
		for _, v := range ascending {
			encoded := string(gpu.AppendScalar(nil, v))
			got := gpu.ScalarNested(encoded+"\xff", typ)
			require.Equal(t, v.String(), got.String())
			require.Equal(t, math.Signbit(v.Float), math.Signbit(got.Float))
		}
	}
}

func TestNestedTypesAreComparedByTheirChildrenAndEncoded(t *testing.T) {
	pair := gpu.StructOf(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int32)},
		gpu.Field{Name: "b c", Type: gpu.Of(gpu.String)})
	same := gpu.StructOf(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int32), Nullable: true},
		gpu.Field{Name: "b c", Type: gpu.Of(gpu.String)})
	require.True(t, pair == same)
	require.NotEqual(t, gpu.ListOf(pair), gpu.ListOf(gpu.Of(gpu.Int32)))
	deep := gpu.Of(gpu.Date)
	for range gpu.MaxNesting {
		deep = gpu.ListOf(deep)
	}
	require.Less(t, len(deep.Nested), 1<<13)
	require.Equal(t, gpu.MaxNesting, deep.Depth())
	for _, typ := range []gpu.Type{pair, gpu.MapOf(gpu.Of(gpu.String), gpu.ListOf(pair)), deep} {
		b, err := json.Marshal(typ)
		require.NoError(t, err)
		var got gpu.Type
		require.NoError(t, json.Unmarshal(b, &got))
		require.True(t, typ == got)
	}
	require.Equal(t, `MAP(VARCHAR, STRUCT(a INTEGER, "b c" VARCHAR)[])`,
		gpu.MapOf(gpu.Of(gpu.String), gpu.ListOf(pair)).String())
	value := nestedOf(pair, gpu.IntScalar(gpu.Of(gpu.Int32), -1), gpu.StringScalar("it's"))
	require.Equal(t, `{'a': -1, 'b c': 'it\'s'}`, value.String())
}

func TestWrongEncodingsOfNestedValuesAreNoPanic(t *testing.T) {
	list := gpu.ListOf(gpu.ListOf(gpu.Of(gpu.String)))
	for _, b := range []string{"", "\x09", "\x09\x09\x08", "\x09\x08a\x00", "\x09\x05", "\x09\x77", "\x08\x00",
		"\x03ab"} {
		for n := range len(b) + 1 {
			_ = gpu.Scalar{Type: list, Valid: true, Str: b[:n]}.String()
			_ = gpu.ScalarNested(b[:n], gpu.Of(gpu.Int64))
			require.LessOrEqual(t, gpu.SkipNested(b[:n]), n)
		}
	}
}
