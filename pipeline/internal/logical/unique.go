package logical

import (
	"slices"

	"github.com/gstream/gstream/pipeline/internal/rel"
)

// Unique reports whether no two rows of a node can have equal values in all of the columns:
// they contain the keys of a group-by, or there is one row.
func Unique(n rel.Node, columns []rel.ID) bool {
	switch n := n.(type) {
	case *rel.Filter:
		return Unique(n.In, columns)
	case *rel.Window:
		return Unique(n.In, columns)
	case *rel.Sort:
		return Unique(n.In, columns)
	case *rel.Limit:
		return Unique(n.In, columns)
	case *rel.Materialized:
		return Unique(n.In, columns)
	case *rel.Project:
		var below []rel.ID
		for _, c := range columns {
			if n.Has(c) {
				if in, bare := n.Source(c); bare {
					below = append(below, in)
				}
			}
		}
		return Unique(n.In, below)
	case *rel.Join:
		return !n.Kind.Pairs() && Unique(n.Left, columns)
	case *rel.Group:
		return !slices.ContainsFunc(n.Keys, func(k rel.ID) bool { return !slices.Contains(columns, k) })
	}
	return false
}
