package expr

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/operators/expr/syntax"
)

// TestEveryOperatorThatIsParsedIsBound compares the tables of the parser and of the binder.
func TestEveryOperatorThatIsParsedIsBound(t *testing.T) {
	var parsed, bound []string
	for _, o := range syntax.BinaryOperators {
		parsed = append(parsed, o.Name)
	}
	for _, o := range operatorTable {
		bound = append(bound, o.name)
	}
	require.Equal(t, parsed, bound)
}
