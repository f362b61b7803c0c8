package expr_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
)

// TestOperationsOverElementsLeakNothing denies memory to expressions with bodies, after more and more of it, until they
// succeed.
func TestOperationsOverElementsLeakNothing(t *testing.T) {
	tab := duckTable(t)
	for _, src := range []string{
		"list_transform([i32, 5, NULL], lambda x: x + u8)",
		"list_transform([[s], ['x', s]], lambda l: list_transform(l, lambda x: x || s || len(l)))",
		"list_reduce([i32, 2, 3], lambda a, x: a + x + i8)",
		"list_transform([i32, 2], lambda x: 7 // (x - x))",
	} {
		e, err := bind(src, &expr.Scope{Schema: tab.schema})
		require.NoError(t, err, src)
		p, inputs, err := expr.Compile(tab.schema, e)
		require.NoError(t, err)
		require.NoError(t, p.Check())
		in := make([]gpu.Column, len(inputs))
		for i, c := range inputs {
			in[i] = tab.cols[c]
		}
		denied := 0
		for limit := int64(64); ; limit += 64 + limit/8 {
			l := host.HeapLease("test", limit)
			out, err := host.Evaluate(l, p, in, tab.rows)
			gpu.ReleaseColumns(out)
			require.NoError(t, l.Close(), "%s with %d bytes", src, limit)
			if !gpu.IsOutOfMemory(err) {
				require.Equal(t, strings.Contains(src, "//"), err != nil, "%s: %v", src, err)
				break
			}
			denied++
		}
		require.Greater(t, denied, 10, src)
	}
}
