package expr_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/exprtest"
)

// nameOf returns the name of a function of an operation, for messages.
func nameOf(op gpu.Op, n int) string { return fmt.Sprintf("%d (%s)", op, op.Info().Name(n)) }

// rowsOf evaluates TRY of an expression, so that no row fails.
func rowsOf(t *testing.T, tab *exprtest.Table, cols []gpu.Column, sql string) ([]gpu.Scalar, bool) {
	e, err := bind("TRY("+sql+")", &expr.Scope{Schema: tab.Schema})
	if err != nil {
		return nil, false
	}
	rows, err := evaluate(t, tab.Schema, cols, tab.Rows, e)
	require.NoError(t, err, sql)
	return rows[0], true
}

// TestLawsOfOperations checks the laws of the table of operations on pairs of columns of equal types.
func TestLawsOfOperations(t *testing.T) {
	tab := exprtest.Extremes()
	cols := tab.Columns(0, tab.Rows)
	var pairs [][2]string
	for i, f := range tab.Schema.Fields {
		for _, g := range tab.Schema.Fields[i+1:] {
			if f.Type == g.Type {
				pairs = append(pairs, [2]string{f.Name, g.Name})
			}
		}
	}
	require.Len(t, pairs, 10)
	text := func(op gpu.Op, x, y string) string {
		if o := op.Info(); o.Form == gpu.Call {
			return fmt.Sprintf("%s(%s, %s)", o.SQL, x, y)
		}
		return fmt.Sprintf("(%s %s %s)", x, op.Info().SQL, y)
	}
	for op := range gpu.Ops {
		o, checked := op.Info(), 0
		for _, p := range pairs {
			x, y := p[0], p[1]
			if o.Mirrored != gpu.OpConst {
				a, bound := rowsOf(t, tab, cols, text(op, x, y))
				b, also := rowsOf(t, tab, cols, text(o.Mirrored, y, x))
				require.Equal(t, bound, also, nameOf(op, 0))
				requireSameRows(t, a, b, "%s mirrored: %s, %s", nameOf(op, 0), x, y)
				checked += len(a)
			}
			if o.Opposite != gpu.OpConst && o.Form == gpu.Infix {
				a, bound := rowsOf(t, tab, cols, "("+text(op, x, y)+" = false)")
				b, also := rowsOf(t, tab, cols, text(o.Opposite, x, y))
				require.Equal(t, bound, also, nameOf(op, 0))
				requireSameRows(t, a, b, "not %s: %s, %s", nameOf(op, 0), x, y)
				checked += len(a)
			}
			if o.Form == gpu.Infix && !o.SeesNulls {
				a, _ := rowsOf(t, tab, cols, text(op, x, y))
				for i, v := range a {
					null := slices.ContainsFunc(p[:], func(name string) bool {
						return !tab.Values[tab.Schema.Index(name)][i].Valid
					})
					require.False(t, null && v.Valid, "%s of a null: %s, %s", nameOf(op, 0), x, y)
				}
				checked += len(a)
			}
		}
		if o.Form == gpu.Infix || o.Mirrored != gpu.OpConst {
			require.Positive(t, checked, "no columns have operation %s", nameOf(op, 0))
		}
	}
}

func requireSameRows(t *testing.T, a, b []gpu.Scalar, message string, args ...any) {
	t.Helper()
	require.Len(t, b, len(a))
	for i := range a {
		same := a[i].Valid == b[i].Valid && (!a[i].Valid || a[i].Compare(b[i]) == 0)
		require.True(t, same, "row %d: %v and %v; %s", i, a[i], b[i], fmt.Sprintf(message, args...))
	}
}

// TestRandomExpressionsHaveEveryOperation draws expressions until each operation has occurred.
func TestRandomExpressionsHaveEveryOperation(t *testing.T) {
	tab := exprtest.Extremes()
	missing := map[gpu.Op]bool{}
	for op := range gpu.Ops {
		missing[op] = !op.Info().Internal
	}
	maps.DeleteFunc(missing, func(_ gpu.Op, drawn bool) bool { return !drawn })
	for seed := uint64(1); seed < 10_000 && len(missing) > 0; seed++ {
		g := exprtest.NewGenerator(rand.New(rand.NewPCG(seed, 11)), tab.Schema)
		e, err := bind(g.Any(3).SQL(), &expr.Scope{Schema: tab.Schema, Fold: host.Fold})
		if err != nil {
			continue
		}
		p, _, err := expr.Compile(tab.Schema, e)
		require.NoError(t, err)
		require.NoError(t, p.Check())
		for _, in := range p.Code {
			delete(missing, in.Op)
		}
	}
	for op := range missing {
		t.Errorf("no expression has operation %s", nameOf(op, 0))
	}
}
