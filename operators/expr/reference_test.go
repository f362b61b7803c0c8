package expr_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/exprtest"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// TestExamplesOfTheReferenceGiveWhatItSays evaluates the examples as constants, and again
// without folding, so that every operation runs. Another test runs these programs on a
// GPU. With GSTREAM_PYTHON they are compared with DuckDB.
func TestExamplesOfTheReferenceGiveWhatItSays(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range expr.Reference() {
		if len(e.Examples) == 0 {
			require.Contains(t, e.About, "DuckDB does not have this type", "%s has no example", e.Name)
		}
		require.NotEmpty(t, e.Result, e.Name)
		require.NotEmpty(t, e.About, e.Name)
		for _, x := range e.Examples {
			t.Run(x.SQL, func(t *testing.T) {
				seen[e.Name] = true
				for _, fold := range []expr.Fold{host.Fold, nil} {
					n, err := syntax.Parse(x.SQL)
					require.NoError(t, err)
					bound, err := expr.Bind(n, &expr.Scope{Schema: &gpu.Schema{}, Fold: fold, Now: now})
					require.NoError(t, err)
					text, err := expr.Cast(bound, gpu.Of(gpu.String), fold)
					require.NoError(t, err)
					got, err := evaluate(t, &gpu.Schema{}, nil, 3, text)
					require.NoError(t, err)
					for _, v := range got[0] {
						require.Equal(t, x.Result, v.String())
					}
				}
			})
		}
	}
}

func TestExamplesOfTheReferenceAreDuckDBs(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	var questions []exprtest.Question
	var examples []expr.Example
	for _, e := range expr.Reference() {
		for _, x := range e.Examples {
			examples = append(examples, x)
			questions = append(questions,
				exprtest.Question{SQL: "SELECT (" + x.SQL + ")::VARCHAR, replace(replace(typeof(" + x.SQL +
					"), '\"NULL\"', 'INTEGER'), 'JSON', 'VARCHAR')", Optimize: true})
		}
	}
	for i, a := range duck.Ask(questions...) {
		x := examples[i]
		if !assert.Empty(t, a.Error, x.SQL) {
			continue
		}
		result := "NULL"
		if v := a.Rows[0][0]; v != nil {
			result = *v
		}
		assert.Equal(t, result, x.Result, x.SQL)
		e, err := bind(x.SQL, &expr.Scope{Schema: &gpu.Schema{}})
		require.NoError(t, err)
		if result != "NULL" {
			assert.Equal(t, *a.Rows[0][1], duckType(e.Type()), x.SQL)
		}
	}
}

// TestEveryFunctionHasACase fails when a function, under one of its names, is not among the
// cases that are compared with DuckDB on the host, and with the host on a GPU.
func TestEveryFunctionHasACase(t *testing.T) {
	all := strings.ToLower(strings.Join(cases(t), "\n"))
	for _, e := range expr.Reference() {
		if e.Chapter == "Operators" || e.Chapter == "Types" {
			continue
		}
		found := false
		for _, name := range append(e.Aliases, e.Name) {
			found = found || strings.Contains(all, name+"(") ||
				strings.HasSuffix(e.Syntax, "()") && strings.Contains(all, name) || strings.Contains(all, "'"+name+"'")
		}
		assert.True(t, found, "no case has %s", e.Syntax)
	}
}
