package expr_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// FuzzParse checks what untrusted text may do. It gives a *syntax.Error with a position, or a
// tree whose printed form has the same tree. The tree binds or is refused, and evaluates
// or fails, without a panic or a leak.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/cases.txt")
	require.NoError(f, err)
	for line := range strings.Lines(string(data)) {
		f.Add(strings.TrimSpace(line))
	}
	for _, src := range []string{"sum(i32) / count(*)", "sum(distinct i32) filter (where bo) - count_if(all bo)",
		"((((1))))", "'", "\"", "1e999", "$$a$$", "x'6'", "a.b.c", "case", "interval '1' year", "E'\\'"} {
		f.Add(src)
	}
	tab := duckTable(f)
	scope := &expr.Scope{Schema: tab.schema, Fold: host.Fold}
	f.Fuzz(func(t *testing.T, src string) {
		n, err := syntax.Parse(src)
		if err != nil {
			var e *syntax.Error
			require.True(t, errors.As(err, &e), "%T", err)
			require.NotEmpty(t, e.Error())
			return
		}
		printed := n.String()
		again, err := syntax.Parse(printed)
		require.NoError(t, err, printed)
		require.Equal(t, printed, again.String())
		if _, post, err := expr.BindAggregates(n, scope); err == nil {
			require.NotEmpty(t, post.String())
		}
		e, err := expr.Bind(n, scope)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NotEmpty(t, e.String())
		expr.Comparisons(e)
		got, err := evaluate(t, tab.schema, tab.cols, tab.rows, e)
		if err != nil {
			require.NotContains(t, err.Error(), "internal error", src)
			return
		}
		for _, v := range got[0] {
			require.True(t, v.Valid || e.Nullable(), "%s is null but not nullable", e)
			if r := e.Range(); v.Valid && r != nil {
				require.False(t, v.Int.Less(r.Lo) || r.Hi.Less(v.Int), "%s is %v, outside [%v, %v]", e, v, r.Lo, r.Hi)
			}
		}
	})
}
