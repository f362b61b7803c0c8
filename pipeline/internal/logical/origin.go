package logical

import (
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/source"
)

// Origin is the column of a table whose values a column has, unchanged. The zero Origin is
// none: the values are computed, or come from several tables.
type Origin struct {
	Table  source.Table
	Column int
}

// Origins returns the origin of each column of an output, and the tables that it reads.
func Origins(o rel.Output) (columns []Origin, tables []source.Table) {
	of, seen := map[rel.ID]Origin{}, map[source.Table]bool{}
	rel.Visit(o.Root, func(n rel.Node) {
		switch n := n.(type) {
		case *rel.Scan:
			if !seen[n.Table] {
				seen[n.Table], tables = true, append(tables, n.Table)
			}
			for i, c := range n.Columns {
				of[c] = Origin{n.Table, i}
			}
		case *rel.Project:
			for i, c := range n.Columns {
				if from, bare := n.Exprs[i].IsColumn(); bare {
					of[c] = of[from]
				}
			}
		case *rel.Expand:
			for _, c := range n.Copies {
				of[c.Out] = of[c.From]
			}
		case *rel.SetOperation:
			for i, c := range n.Columns {
				if of[c] = of[n.LeftColumns[i]]; n.Op == rel.UnionOf && of[c] != of[n.RightColumns[i]] {
					of[c] = Origin{}
				}
			}
		case *rel.Union:
			for i, c := range n.Columns {
				of[c] = of[n.From[0][i]]
				for _, from := range n.From[1:] {
					if of[from[i]] != of[c] {
						of[c] = Origin{}
					}
				}
			}
		}
	})
	for _, c := range o.Columns {
		columns = append(columns, of[c])
	}
	return columns, tables
}
