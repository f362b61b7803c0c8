package expr_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
)

// lineitem makes columns with the types and distributions of TPC-H's lineitem.
func lineitem(rows int) (*gpu.Schema, []gpu.Column, []*expr.Range) {
	r := rand.New(rand.NewPCG(1, 2))
	date, money := gpu.Of(gpu.Date), gpu.DecimalOf(15, 2)
	ship, price, discount, tax, codes := make([]int32, rows), make([]int64, rows), make([]int64, rows),
		make([]int64, rows), make([]int32, rows)
	offsets := make([]int32, rows+1)
	var comments []byte
	for i := range rows {
		ship[i] = int32(8036 + r.IntN(2526))
		price[i], discount[i], tax[i] = int64(90000+r.IntN(10400000)), int64(r.IntN(11)), int64(r.IntN(9))
		codes[i] = int32(r.IntN(7))
		comments = fmt.Appendf(comments, "slyly final packages %d cajole the special", r.IntN(1e6))
		if r.IntN(50) == 0 {
			comments = append(comments, " requests"...)
		}
		offsets[i+1] = int32(len(comments))
	}
	var modes []gpu.Scalar
	for _, m := range []string{"REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"} {
		modes = append(modes, gpu.StringScalar(m))
	}
	fixed := func(t gpu.Type, b []byte) gpu.Column { return gpu.Column{Type: t, Len: rows, Data: gpu.WrapBytes(b)} }
	text := gpu.Of(gpu.String)
	mode := fixed(text, gpu.BytesOf(codes))
	mode.Dict = &gpu.Dictionary{Values: gpu.ColumnOf(text, modes)}
	comment := fixed(text, comments)
	comment.Offsets = gpu.WrapBytes(gpu.BytesOf(offsets))
	s := gpu.NewSchema(
		gpu.Field{Name: "l_shipdate", Type: date}, gpu.Field{Name: "l_extendedprice", Type: money},
		gpu.Field{Name: "l_discount", Type: money},
		gpu.Field{Name: "l_tax", Type: money}, gpu.Field{Name: "l_shipmode", Type: text},
		gpu.Field{Name: "l_comment", Type: text})
	i128 := gpu.Int128From
	return s, []gpu.Column{fixed(date, gpu.BytesOf(ship)), fixed(money, gpu.BytesOf(price)),
			fixed(money, gpu.BytesOf(discount)),
			fixed(money, gpu.BytesOf(tax)), mode, comment},
		[]*expr.Range{nil, {Lo: i128(90000), Hi: i128(10500000)}, {Lo: i128(0), Hi: i128(10)},
			{Lo: i128(0), Hi: i128(8)}, nil, nil}
}

func BenchmarkEval(b *testing.B) {
	const rows = 1 << 17
	s, cols, ranges := lineitem(rows)
	for _, src := range []string{
		"l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year",
		"l_shipdate <= date '1998-12-01' - interval '90' day",
		"l_extendedprice * (1 - l_discount)",
		"l_extendedprice * (1 - l_discount) * (1 + l_tax)",
		"l_discount between 0.05 and 0.07",
		"l_shipmode in ('MAIL', 'SHIP')",
		"l_comment like '%special%requests%'",
		"l_comment like 'slyly%'",
		"l_comment ~ 'special.*requests'",
		"regexp_extract(l_comment, '([0-9]+) cajole', 1)",
		"regexp_replace(l_comment, ' +', '-', 'g')",
		"case when l_shipmode like 'RE%' then l_extendedprice * (1 - l_discount) else 0 end",
		"extract(year from l_shipdate)",
	} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", src, threads), func(b *testing.B) {
				e, err := bind(src, &expr.Scope{Schema: s, Range: expr.RangeOf(ranges)})
				require.NoError(b, err)
				p, inputs, err := expr.Compile(s, e)
				require.NoError(b, err)
				d, err := host.Open(host.Options{Threads: threads, Memory: 1 << 30})
				require.NoError(b, err)
				defer d.Close()
				l := d.Budget().Lease("bench")
				q, err := d.NewQueue("bench")
				require.NoError(b, err)
				in := make([]gpu.Column, len(inputs))
				for i, c := range inputs {
					in[i] = cols[c]
				}
				b.ReportAllocs()
				for b.Loop() {
					out, err := q.Eval(l, p, in, rows)
					require.NoError(b, err)
					gpu.ReleaseColumns(out)
				}
				b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
