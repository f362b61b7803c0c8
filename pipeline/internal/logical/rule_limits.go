package logical

import "github.com/gstream/gstream/pipeline/internal/rel"

// sinkLimits moves limits below projections, and merges a limit over a sort into a top-k.
func sinkLimits(_ *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	if n, ok := n.(*rel.Limit); ok {
		switch in := n.In.(type) {
		case *rel.Project:
			below := again(rel.NewLimit(n.Origin, in.In, n.Offset, n.Count))
			return rel.NewProject(in.Origin, below, in.Columns, in.Exprs)
		case *rel.Sort:
			if in.Limit < 0 && in.Offset == 0 {
				return rel.NewSort(in.Origin, again(in.In), in.Keys, n.Offset, n.Count)
			}
		}
	}
	return rel.WithInputs(n, again)
}
