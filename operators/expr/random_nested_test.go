package expr_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/exprtest"
)

// TestRandomNestedExpressionsAreDuckDBs compares types and texts of expressions over lists, structs and maps.
//
//	GSTREAM_PYTHON=… GSTREAM_CASES=5000 go test ./operators/expr -run RandomNested
func TestRandomNestedExpressionsAreDuckDBs(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	tab := exprtest.NestedTable(t, host.Fold)
	cols := tab.Columns(0, tab.Rows)
	rows := make([]string, len(exprtest.NestedRows))
	for i, row := range exprtest.NestedRows {
		rows[i] = "(" + fmt.Sprint(i) + ", " + strings.Join(row, ", ") + ")"
	}
	duck.Run("CREATE TABLE t (n INTEGER, "+strings.Join(exprtest.NestedColumns, ", ")+")",
		"INSERT INTO t VALUES "+strings.Join(rows, ", "))
	var texts []string
	var questions []exprtest.Question
	first, n := gputest.SeedOr(t, 1), gputest.Cases(t, 100)
	for seed := first; seed < first+uint64(n); seed++ {
		g := exprtest.NewNested(rand.New(rand.NewPCG(seed, 23)))
		text := g.Any(1 + int(seed%4))
		texts = append(texts, text)
		questions = append(questions, exprtest.Question{Optimize: true,
			SQL: "SELECT (" + text + ")::VARCHAR, typeof(" + text + ") FROM t ORDER BY n"})
	}
	values := 0
	for k, a := range duck.Ask(questions...) {
		e, err := bind(texts[k], &expr.Scope{Schema: tab.Schema})
		var got [][]gpu.Scalar
		if err == nil {
			var text *expr.Expr
			text, err = expr.Cast(e, gpu.Of(gpu.String), host.Fold)
			require.NoError(t, err, texts[k])
			got, err = evaluate(t, tab.Schema, cols, tab.Rows, text)
		}
		seed := first + uint64(k)
		if (err != nil) != (a.Error != "") {
			t.Errorf("GSTREAM_SEED=%d: %s\n    DuckDB: %.300s\n    gstream: %v", seed, texts[k], a.Error, err)
			continue
		}
		for i := range a.Rows {
			want, have := "NULL", got[0][i].String()
			if v := a.Rows[i][0]; v != nil {
				want = *v
			}
			if want != have || e.Type().String() != *a.Rows[i][1] {
				t.Errorf("GSTREAM_SEED=%d: %s\n    row %d: DuckDB: %s %s\n    gstream: %s %v", seed, texts[k], i, want,
					*a.Rows[i][1], have, e.Type())
				break
			}
			values++
		}
	}
	require.Greater(t, values, 4*n, "too few expressions have values")
}
