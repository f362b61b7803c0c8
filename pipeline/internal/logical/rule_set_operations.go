package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/window"
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
		left, l = numbered(left, spec.LeftKeys)
		right, r = numbered(right, spec.RightKeys)
		spec.LeftKeys, spec.RightKeys = append(slices.Clone(spec.LeftKeys), l), append(spec.RightKeys, r)
	}
	spec.NullSafe = slices.Repeat([]bool{true}, len(spec.LeftKeys))
	joined := rel.NewJoin(s.Origin, left, right, spec)
	if s.All {
		return joined
	}
	return distinct(joined)
}

// numbered numbers the rows that are equal in some columns, from 1.
func numbered(in rel.Node, columns []rel.ID) (rel.Node, rel.ID) {
	r := in.Rel()
	f := window.Function{Kind: window.RowNumber, Value: -1, Offset: -1, Default: -1, Output: gpu.Of(gpu.Int64)}
	id := r.Metadata.Add(rel.Column{Field: gpu.Field{Name: "row_number", Type: f.Output}})
	return rel.NewWindow(r.Origin, in, columns, nil, []window.Function{f}, []rel.ID{id}), id
}
