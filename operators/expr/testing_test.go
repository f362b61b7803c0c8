package expr_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// now is the time of the tests.
var now = time.Date(2030, 3, 15, 10, 30, 0, 0, time.UTC)

// table is a table over which expressions run.
type table struct {
	schema *gpu.Schema
	cols   []gpu.Column
	rows   int
}

// newTable makes a table from text: for each column its name and type, then a value for
// each row, "\N" for null.
func newTable(t testing.TB, columns ...[]string) *table {
	out := &table{schema: &gpu.Schema{}}
	for _, c := range columns {
		name, typeName, _ := strings.Cut(c[0], " ")
		typ, err := syntax.ParseType(typeName)
		require.NoError(t, err)
		values := make([]gpu.Scalar, len(c)-1)
		for i, v := range c[1:] {
			values[i] = parseScalar(t, v, typ)
		}
		out.schema.Fields = append(out.schema.Fields, gpu.Field{Name: name, Type: typ, Nullable: true})
		out.cols = append(out.cols, gpu.ColumnOf(typ, values))
		out.rows = len(values)
	}
	return out
}

func parseScalar(t testing.TB, v string, typ gpu.Type) gpu.Scalar {
	if v == `\N` {
		return gpu.Null(typ)
	}
	n, err := syntax.Parse("'" + strings.ReplaceAll(v, "'", "''") + "'")
	require.NoError(t, err)
	e, err := expr.Bind(n, &expr.Scope{Schema: &gpu.Schema{}, Fold: host.Fold})
	require.NoError(t, err)
	e, err = expr.Cast(e, typ, host.Fold)
	require.NoError(t, err)
	s, ok := e.Constant()
	require.True(t, ok)
	return s
}

func bind(src string, s *expr.Scope) (*expr.Expr, error) {
	n, err := syntax.Parse(src)
	if err != nil {
		return nil, err
	}
	folding := *s
	folding.Fold, folding.Now = host.Fold, now
	return expr.Bind(n, &folding)
}

// evaluate runs expressions over columns on a host device and checks for leaks. It
// returns the results as scalars.
func evaluate(t testing.TB, s *gpu.Schema, cols []gpu.Column, rows int, exprs ...*expr.Expr) ([][]gpu.Scalar, error) {
	d, err := host.Open(host.Options{Threads: 2, Memory: 1 << 30})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	l := d.Budget().Lease("test")
	q, err := d.NewQueue("test")
	require.NoError(t, err)
	p, inputs, err := expr.Compile(s, exprs...)
	require.NoError(t, err)
	in := make([]gpu.Column, len(inputs))
	for i, c := range inputs {
		in[i] = cols[c]
	}
	out, err := q.Eval(l, p, in, rows)
	if err != nil {
		require.NoError(t, l.Close(), "a failed evaluation left memory behind")
		return nil, err
	}
	results := make([][]gpu.Scalar, len(out))
	for i, c := range out {
		require.Equal(t, exprs[i].Type(), c.Type)
		require.NoError(t,
			(&gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "x", Type: c.Type}), Cols: []gpu.Column{c},
				Rows: rows}).Check())
		for r := range rows {
			results[i] = append(results[i], c.ScalarAt(r))
		}
	}
	gpu.ReleaseColumns(out)
	require.NoError(t, l.Close())
	return results, nil
}
