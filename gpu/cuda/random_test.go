package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/exprtest"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// TestRandomExpressionsGiveTheHostsResults evaluates the random expressions that
// operators/expr compares with DuckDB, over all rows of the table. An expression that
// fails is evaluated once more over the rows on which the host does not fail.
//
//	GSTREAM_CASES=10000 go test ./gpu/cuda -run RandomExpressions
//
// runs more of them. GSTREAM_SEED=17 GSTREAM_CASES=1 runs one again.
func TestRandomExpressionsGiveTheHostsResults(t *testing.T) {
	p := newPair(t)
	tab := exprtest.Extremes()
	all, bound := tab.Columns(0, tab.Rows), 0
	first, cases := gputest.Seed(t), gputest.Cases(t, 400)
	for seed := first; seed < first+uint64(cases); seed++ {
		n := exprtest.NewGenerator(rand.New(rand.NewPCG(seed, 11)), tab.Schema).Any(1 + int(seed%5))
		if !n.Exact() {
			continue // a result made from last digits that differ may differ by any amount
		}
		tree, err := syntax.Parse(n.SQL())
		require.NoError(t, err, n.SQL())
		e, err := expr.Bind(tree, &expr.Scope{Schema: tab.Schema, Fold: host.Fold})
		if err != nil {
			continue
		}
		bound++
		what := fmt.Sprintf("GSTREAM_SEED=%d: %s", seed, n.SQL())
		prog, inputs, err := expr.Compile(tab.Schema, e)
		require.NoError(t, err, what)
		in := make([]gpu.Column, len(inputs))
		for i, c := range inputs {
			in[i] = all[c]
		}
		p.Require(prog, in, tab.Rows, what)
		if _, err := p.Right(prog, in, tab.Rows); err == nil {
			continue
		}
		values := make([][]gpu.Scalar, len(inputs))
		rows := 0
		for r := range tab.Rows {
			row := make([]gpu.Column, len(inputs))
			for i, c := range inputs {
				row[i] = gpu.ColumnOf(all[c].Type, tab.Values[c][r:r+1])
			}
			if _, err := p.Right(prog, row, 1); err != nil {
				continue
			}
			rows++
			for i, c := range inputs {
				values[i] = append(values[i], tab.Values[c][r])
			}
		}
		for i, c := range inputs {
			in[i] = gpu.ColumnOf(all[c].Type, values[i])
		}
		p.Require(prog, in, rows, what)
	}
	require.Greater(t, bound, cases/2, "too few expressions can be bound")
}

// TestRandomNestedExpressionsGiveTheHostsResults does the same with expressions over lists, structs and maps.
func TestRandomNestedExpressionsGiveTheHostsResults(t *testing.T) {
	p := newPair(t)
	tab := exprtest.NestedTable(t, host.Fold)
	first, cases := gputest.SeedOr(t, 1), gputest.Cases(t, 25)
	for seed := first; seed < first+uint64(cases); seed++ {
		text := exprtest.NewNested(rand.New(rand.NewPCG(seed, 23))).Any(1 + int(seed%4))
		tree, err := syntax.Parse(text)
		require.NoError(t, err, text)
		e, err := expr.Bind(tree, &expr.Scope{Schema: tab.Schema, Fold: host.Fold})
		require.NoError(t, err, text)
		prog, inputs, err := expr.Compile(tab.Schema, e)
		require.NoError(t, err, text)
		rows := []int{1, 70, 700}[seed%3]
		in := make([]gpu.Column, len(inputs))
		for i, c := range inputs {
			values := make([]gpu.Scalar, rows)
			for r := range values {
				values[r] = tab.Values[c][p.Rnd.IntN(tab.Rows)]
			}
			in[i] = gpu.ColumnOf(tab.Schema.Fields[c].Type, values)
		}
		p.Require(prog, in, rows, fmt.Sprintf("GSTREAM_SEED=%d: %s", seed, text))
	}
}
