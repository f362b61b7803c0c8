package logical

import (
	"slices"

	"github.com/gstream/gstream/pipeline/internal/rel"
)

// keepRows materializes the largest parts of the steps of recursions that do not read the working table, so that all
// iterations have their rows from one computation.
func keepRows(_ *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	n = rel.WithInputs(n, again)
	r, ok := n.(*rel.Recursive)
	if !ok {
		return n
	}
	changes := map[rel.Node]bool{}
	rel.Visit(r.Step, func(n rel.Node) {
		w, ok := n.(*rel.Working)
		changes[n] = ok && w.Loop == r.Loop || slices.ContainsFunc(rel.Inputs(n), func(in rel.Node) bool {
			return changes[in]
		})
	})
	step := rel.Remembered(func(n rel.Node, again func(rel.Node) rel.Node) rel.Node {
		_, held := n.(*rel.Materialized)
		switch {
		case changes[n]:
			return rel.WithInputs(n, again)
		case held || isShort(n):
			return n
		}
		return rel.NewMaterialized(n, &rel.Share{Step: n.Rel().Origin.Step})
	})(r.Step)
	return rel.NewRecursive(r.Origin, r.Loop, r.All, r.Anchor, step, r.AnchorColumns, r.StepColumns, r.Columns)
}

// isShort reports whether the rows of a node are few constants, which cost less than a copy of them.
func isShort(n rel.Node) bool {
	switch n := n.(type) {
	case *rel.Values:
		return len(n.Rows) <= 64
	case *rel.Filter:
		return isShort(n.In)
	case *rel.Project:
		return isShort(n.In)
	case *rel.Working: // of a recursion around
		return true
	}
	return false
}
