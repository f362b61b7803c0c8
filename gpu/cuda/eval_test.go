package cuda

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
)

func newPair(t *testing.T) *gputest.Pair {
	gputest.SkipWithRaceDetector(t)
	// With one thread the host reports the first of the rows that fail.
	h, err := host.Open(host.Options{Threads: 1, Memory: 1 << 30})
	require.NoError(t, err)
	return gputest.NewPair(t, openWith(t, 0, 1<<30), h)
}

// TestExpressionsGiveTheHostsResults runs the expressions that the tests of
// operators/expr compare with DuckDB: all in one program, and each alone.
func TestExpressionsGiveTheHostsResults(t *testing.T) {
	p := newPair(t)
	schema := &gpu.Schema{}
	for _, c := range []string{"i8 tinyint", "i16 smallint", "i32 integer", "i64 bigint", "u8 utinyint",
		"u16 usmallint", "u32 uinteger", "u64 ubigint",
		"f32 float", "f64 double", "d4 decimal(4,2)", "d15 decimal(15,2)", "d18 decimal(18,6)", "d38 decimal(38,10)",
		"s varchar", "bo boolean",
		"dt date", "tm time", "ts timestamp", "tn timestamp_ns", "bl blob", "h hugeint", "di date", "ti timestamp",
		"tms timestamp_ms"} {
		name, typeName, _ := strings.Cut(c, " ")
		typ, err := syntax.ParseType(typeName)
		require.NoError(t, err)
		schema.Fields = append(schema.Fields, gpu.Field{Name: name, Type: typ, Nullable: true})
	}
	file, err := os.Open("../../operators/expr/testdata/cases.txt")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	var all []*expr.Expr
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if n, err := syntax.Parse(lines.Text()); err == nil && !strings.HasPrefix(lines.Text(), "#") {
			if e, err := expr.Bind(n, &expr.Scope{Schema: schema, Fold: host.Fold,
				Now: time.Unix(1.8e9, 0)}); err == nil {
				all = append(all, e)
			}
		}
	}
	require.Greater(t, len(all), 200)
	run := func(n int, coded bool, nulls float64, s gputest.Spread, exprs ...*expr.Expr) {
		prog, inputs, err := expr.Compile(schema, exprs...)
		require.NoError(t, err)
		cols := make([]gpu.Column, len(inputs))
		for i, c := range inputs {
			typ := schema.Fields[c].Type
			cols[i] = p.Column(typ, n, s, nulls, coded && typ.Kind != gpu.Bool)
		}
		p.Require(prog, cols, n, fmt.Sprint(exprs[0], ", rows ", n))
	}
	thin := min(gputest.ThinOr(t, 4), 4)
	for k, e := range all {
		for variant := range 4 {
			if !gputest.Takes(thin, k/2+variant) { // with or without codes and nulls, either spread
				continue
			}
			run([]int{1, 64, 700, 2300}[p.Rnd.IntN(4)], variant%2 == 1, 0.2*float64(k%2), gputest.Spread(variant/2), e)
		}
	}
	// One program of all expressions that fail on no row.
	var safe []*expr.Expr
	for _, e := range all {
		prog, _, err := expr.Compile(schema, e)
		require.NoError(t, err)
		fails := false
		for _, in := range prog.Code {
			fails = fails || in.Text != ""
		}
		if !fails {
			safe = append(safe, e)
		}
	}
	require.Greater(t, len(safe), 100)
	for variant := range 4 {
		run(3000, variant%2 == 1, 0.2*float64(variant/2), gputest.Wild, safe...)
	}
}

// TestExamplesOfTheReferenceGiveTheHostsResults evaluates the examples of the reference
// without folding, so that kernels run over their constants.
func TestExamplesOfTheReferenceGiveTheHostsResults(t *testing.T) {
	p := newPair(t)
	var all []*expr.Expr
	for _, e := range expr.Reference() {
		for _, x := range e.Examples {
			n, err := syntax.Parse(x.SQL)
			require.NoError(t, err)
			bound, err := expr.Bind(n, &expr.Scope{Schema: &gpu.Schema{}, Now: time.Unix(1.8e9, 0)})
			require.NoError(t, err, x.SQL)
			all = append(all, bound)
			prog, _, err := expr.Compile(&gpu.Schema{}, bound)
			require.NoError(t, err)
			p.Require(prog, nil, 70, x.SQL)
		}
	}
	prog, _, err := expr.Compile(&gpu.Schema{}, all...)
	require.NoError(t, err)
	p.Require(prog, nil, 3000, "all examples")
}

func TestTheFirstFailureOfTheHostIsReported(t *testing.T) {
	p := newPair(t)
	typ := gpu.Of(gpu.Int32)
	for range 40 {
		const n = 9000
		x, y := make([]gpu.Scalar, n), make([]gpu.Scalar, n)
		for i := range x {
			x[i], y[i] = gpu.IntScalar(typ, int64(i)), gpu.IntScalar(typ, int64(i))
		}
		for range 4 {
			x[p.Rnd.IntN(n)] = gpu.IntScalar(typ, math.MaxInt32)
			y[p.Rnd.IntN(n)] = gpu.IntScalar(typ, math.MinInt32)
		}
		one := gpu.Instr{Op: gpu.OpConst, Type: typ, Value: gpu.IntScalar(typ, 1), Mask: -1}
		prog := &gpu.Program{Inputs: []gpu.Type{typ, typ}, Outputs: []int{3, 4}, Code: []gpu.Instr{one,
			{Op: gpu.OpSub, Type: typ, Args: []int{1, 2}, Mask: -1, Text: "y - 1"},
			{Op: gpu.OpAdd, Type: typ, Args: []int{0, 2}, Mask: -1, Text: "x + 1"}}}
		p.Require(prog, []gpu.Column{gpu.ColumnOf(typ, x), gpu.ColumnOf(typ, y)}, n, "two that fail")
	}
}

// BenchmarkEvalText evaluates functions of text on the device and on all cores of the host,
// over columns that lie in their memory.
func BenchmarkEvalText(b *testing.B) {
	const rows = 1 << 22
	var comments []byte
	offsets := make([]int32, rows+1)
	for i := range rows {
		comments = fmt.Appendf(comments, "slyly final packages %d cajole the special", i*7919%1000003)
		if i%50 == 0 {
			comments = append(comments, " requests"...)
		}
		offsets[i+1] = int32(len(comments))
	}
	text := gpu.Of(gpu.String)
	schema := gpu.NewSchema(gpu.Field{Name: "s", Type: text})
	column := gpu.Column{Type: text, Len: rows, Data: gpu.WrapBytes(comments),
		Offsets: gpu.WrapBytes(gpu.BytesOf(offsets))}
	h, err := host.Open(host.Options{Memory: 8 << 30})
	require.NoError(b, err)
	if n, err := Count(""); err != nil || n == 0 {
		b.Skip("no GPU")
	}
	d, err := Open(Options{Memory: 8 << 30, HostMemory: 4 << 30})
	require.NoError(b, err)
	for _, dev := range []gpu.Device{d, h} {
		l, down := dev.Budget().Lease("bench"), dev.HostBudget().Lease("bench")
		q, err := dev.NewQueue("bench")
		require.NoError(b, err)
		s, err := q.Upload(l, &gpu.Stride{Schema: schema, Cols: []gpu.Column{column.Retain()}, Rows: rows})
		require.NoError(b, err)
		for _, src := range []string{"s LIKE '%special%requests%'", "s ~ 'special.*requests'",
			"s ~ '^slyly.*requests$'", "s ~ '^.{30}q'", "regexp_extract(s, '([0-9]+) cajole', 1)",
			"regexp_replace(s, ' +', '-', 'g')",
			"replace(s, ' ', '-')", "split_part(s, ' ', 4)", "md5(s)", "hash(s)", "hex(s)",
			"levenshtein(s, 'slyly final requests')"} {
			n, err := syntax.Parse(src)
			require.NoError(b, err)
			e, err := expr.Bind(n, &expr.Scope{Schema: schema, Fold: host.Fold})
			require.NoError(b, err)
			p, _, err := expr.Compile(schema, e)
			require.NoError(b, err)
			b.Run(fmt.Sprintf("%s/%s", dev.Properties().Kind, src), func(b *testing.B) {
				for b.Loop() {
					out, err := q.Eval(l, p, s.Cols, rows)
					require.NoError(b, err)
					last, err := q.Slice(l, out[0], rows-1, rows)
					require.NoError(b, err)
					gpu.ReleaseColumns(out)
					one, err := q.Download(down,
						&gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "x", Type: last.Type}),
							Cols: []gpu.Column{last}, Rows: 1})
					require.NoError(b, err) // the kernels are done
					one.Release()
				}
				b.ReportMetric(float64(len(comments))*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
		s.Release()
		require.NoError(b, q.Close())
		require.NoError(b, l.Close())
		require.NoError(b, down.Close())
		require.NoError(b, dev.Close())
	}
}
