package expr

import (
	"maps"
	"slices"
)

// FunctionNames returns the names of the scalar functions.
func FunctionNames() []string { return slices.Sorted(maps.Keys(functions)) }
