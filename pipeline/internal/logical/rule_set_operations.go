package logical

import (
	"slices"

	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// joinSets computes set operations by joins in which null equals null, and group-bys. Those that count equal rows
// number them on both sides: of n and m equal rows, the first min(n, m) match.
func joinSets(_ *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	s, ok := n.(*rel.SetOperation)
	if !ok {
		return rel.WithInputs(n, again)
	}
	left, right := again(s.Left), again(s.Right)
	distinct := func(in rel.Node) rel.Node { return rel.NewGroup(s.Origin, in, s.Columns, nil, nil, "") }
	if s.Op == rel.UnionOf {
		u := rel.NewUnion(s.Origin, []rel.Node{left, right}, [][]rel.ID{s.LeftColumns, s.RightColumns}, s.Columns)
		if s.All {
			return u
		}
		return distinct(u)
	}
	spec := rel.JoinSpec{Kind: join.Semi, LeftKeys: s.Columns}
	if s.Op == rel.Except {
		spec.Kind = join.Anti
	}
	left = rel.NewProject(s.Origin, left, s.Columns, left.Rel().Exprs(s.LeftColumns))
	right, spec.RightKeys = rel.Renamed(right, s.RightColumns, "")
	if s.All {
		var l, r rel.ID
		left, l = ranked(left.Rel().Origin, left, spec.LeftKeys, nil)
		right, r = ranked(right.Rel().Origin, right, spec.RightKeys, nil)
		spec.LeftKeys, spec.RightKeys = append(slices.Clone(spec.LeftKeys), l), append(spec.RightKeys, r)
	}
	spec.NullSafe = slices.Repeat([]bool{true}, len(spec.LeftKeys))
	joined := rel.NewJoin(s.Origin, left, right, spec)
	if s.All {
		return joined
	}
	return distinct(joined)
}
