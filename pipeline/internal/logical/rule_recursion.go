package logical

import (
	"slices"

	"github.com/gstream/gstream/pipeline/internal/rel"
)

// mostKept is the number of rows up to which a join in the step of a recursion builds a side that does not read the
// working table, so that all iterations use one table. If the table did not fit memory, each iteration would build it.
const mostKept = 1 << 23

// keepRows materializes the largest parts of the steps of recursions that do not read the working table, so that all
// iterations have their rows from one computation. Joins build such parts.
func keepRows(e *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
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
			n = rel.WithInputs(n, again)
			if j, ok := n.(*rel.Join); ok {
				return keepBuild(e, j, rel.Reads(j.Left, r.Loop), rel.Reads(j.Right, r.Loop))
			}
			return n
		case held || isShort(n):
			return n
		}
		return rel.NewMaterialized(n, &rel.Share{Step: n.Rel().Origin.Step})
	})(r.Step)
	return rel.NewRecursive(r.Origin, r.Loop, r.All, r.Anchor, step, r.AnchorColumns, r.StepColumns, r.Columns)
}

// keepBuild makes a join build the side that does not change from iteration to iteration. It must be the side whose
// rows without a match the join drops, as its table does not remember matches.
func keepBuild(e *Estimator, j *rel.Join, leftChanges, rightChanges bool) rel.Node {
	if leftChanges == rightChanges || j.Build.Side != rel.NoSide || j.Range != nil || j.AsOf != nil {
		return j
	}
	side, build, probe, kept := rel.RightSide, j.Right, j.Left, rel.KeepsRight(j.Kind)
	if rightChanges {
		side, build, probe, kept = rel.LeftSide, j.Left, j.Right, rel.KeepsLeft(j.Kind) || !j.Kind.Pairs()
	}
	if rows := e.Rows(build); !kept && rows <= mostKept {
		spec := j.JoinSpec
		spec.Build = rel.Build{Side: side, Reason: rel.OnceForAll, BuildRows: rows, ProbeRows: e.Rows(probe)}
		out := rel.NewJoin(j.Origin, j.Left, j.Right, spec)
		out.Order = j.Order
		return out
	}
	return j
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
