package logical

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// countNulls computes anti and mark joins in which a comparison with null is unknown. The join itself finds the pairs
// that match. Of a single key that may be null it needs to know besides how many rows the right side has, and how many
// of them have no null there: for each value of the other keys. With several such keys or a residual, a second join
// finds the pairs on which no comparison is false.
func countNulls(_ *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	j, ok := n.(*rel.Join)
	if !ok || !j.Unknown() {
		return rel.WithInputs(n, again)
	}
	u := unknownJoin{Join: j, left: again(j.Left), right: again(j.Right)}
	if worthHolding(u.right) {
		u.right = rel.NewMaterialized(u.right, &rel.Share{Step: j.Origin.Step})
	}
	for i, unknown := range j.NullAware {
		if !unknown {
			u.known = append(u.known, i)
		}
	}
	if len(j.LeftKeys)-len(u.known) == 1 && len(j.Residual) == 0 {
		return u.counted()
	}
	return u.joinedTwice()
}

// unknownJoin is a join with keys whose comparison with null is unknown.
type unknownJoin struct {
	*rel.Join
	left, right rel.Node
	known       []int // the other keys
}

// matched is the join without the unknown: an anti join, or a mark join by a new mark.
func (u *unknownJoin) matched() (*rel.Join, rel.ID) {
	spec := u.JoinSpec
	spec.NullAware = nil
	if spec.Kind == join.Mark {
		spec.Mark = u.mark("matched")
	}
	return rel.NewJoin(u.Origin, u.left, u.right, spec), spec.Mark
}

func (u *unknownJoin) mark(name string) rel.ID {
	return u.Metadata.Add(rel.Column{Field: gpu.Field{Name: name, Type: gpu.Of(gpu.Bool)}})
}

// again returns the right side for a second reading, and its columns by those of the first.
func (u *unknownJoin) again(columns []rel.ID) (rel.Node, map[rel.ID]rel.ID) {
	n, ids := rel.Renamed(u.right, columns, "")
	by := map[rel.ID]rel.ID{}
	for i, c := range columns {
		by[c] = ids[i]
	}
	return n, by
}

// counted computes a join with one key that may be unknown from the numbers of rows and of values on the right side.
func (u *unknownJoin) counted() rel.Node {
	matched, mark := u.matched()
	at := slices.Index(u.NullAware, true)
	right, by := u.again(distinctIDs(u.RightKeys))
	var keys []rel.ID // of the groups
	for _, i := range u.known {
		keys = append(keys, by[u.RightKeys[i]])
	}
	aggregate := func(name string, kind gpu.AggregateKind, input rel.ID) rel.Aggregate {
		a := rel.Aggregate{Kind: kind, Input: input, Output: gpu.Of(gpu.Int64)}
		a.Out = u.Metadata.Add(rel.Column{Field: a.Field(name, right.Rel(), len(keys), nil)})
		return a
	}
	rows := aggregate("rows", gpu.CountAll, rel.None)
	values := aggregate("values", gpu.Count, by[u.RightKeys[at]])
	groups := rel.NewGroup(u.Origin, right, distinctIDs(keys), []rel.Aggregate{rows, values}, nil, "")
	spec := rel.JoinSpec{Kind: join.Inner} // with the one row of no keys
	c := joinCondition{}
	for k, i := range u.known {
		spec.Kind = join.Left
		c.left, c.right = append(c.left, u.left.Rel().Expr(u.LeftKeys[i])), append(c.right, groups.Expr(keys[k]))
		c.nullSafe = append(c.nullSafe, u.NullSafe[i])
	}
	joined, err := c.build(u.Origin, matched, groups, spec)
	if err != nil {
		panic(fmt.Sprintf("logical: keys of one type cannot be compared: %v", err))
	}
	key := u.LeftKeys[at]
	if u.Kind == join.Anti {
		keep := computeOf("coalesce(%[1]s, 0) = 0 OR %[2]s IS NOT NULL AND %[1]s = %[3]s", joined, rows.Out, key,
			values.Out)
		return rel.NewFilter(u.Origin, joined, []*expr.Expr{keep})
	}
	return u.withMark(joined, computeOf("CASE WHEN %[1]s THEN true WHEN coalesce(%[2]s, 0) = 0 THEN false "+
		"WHEN %[3]s IS NULL OR %[4]s < %[2]s THEN NULL ELSE false END", joined, mark, rows.Out, key, values.Out))
}

// joinedTwice computes the join by a second one, of the pairs on which no comparison of a key is false.
func (u *unknownJoin) joinedTwice() rel.Node {
	matched, mark := u.matched()
	right, by := u.again(u.right.Rel().Columns)
	c := joinCondition{}
	for i, unknown := range u.NullAware {
		l, r := u.left.Rel().Expr(u.LeftKeys[i]), right.Rel().Expr(by[u.RightKeys[i]])
		if unknown {
			equal := expr.Equal(l, r, false)
			c.residual = append(c.residual, expr.Coalesce(equal, expr.Literal(gpu.BoolScalar(true))))
			continue
		}
		c.left, c.right, c.nullSafe = append(c.left, l), append(c.right, r), append(c.nullSafe, u.NullSafe[i])
	}
	for _, p := range u.Residual {
		c.residual = append(c.residual, p.Remap(func(id rel.ID) rel.ID {
			if again, ok := by[id]; ok {
				return again
			}
			return id
		}))
	}
	spec := rel.JoinSpec{Kind: u.Kind}
	if u.Kind == join.Mark {
		spec.Mark = u.mark("unknown")
	}
	joined, err := c.build(u.Origin, matched, right, spec)
	if err != nil {
		panic(fmt.Sprintf("logical: keys of one type cannot be compared: %v", err))
	}
	if u.Kind == join.Anti {
		return joined
	}
	return u.withMark(joined, computeOf("CASE WHEN %[1]s THEN true WHEN %[2]s THEN NULL ELSE false END", joined, mark,
		spec.Mark))
}

// withMark computes the mark above the left side's columns.
func (u *unknownJoin) withMark(in rel.Node, mark *expr.Expr) rel.Node {
	columns := u.left.Rel().Columns
	exprs := append(in.Rel().Exprs(columns), mark)
	return rel.NewProject(u.Origin, in, append(slices.Clone(columns), u.Mark), exprs)
}

// distinctIDs returns columns without those that are in the list before.
func distinctIDs(ids []rel.ID) (out []rel.ID) {
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// computeOf binds an expression over columns of a node. The format has %[1]s for the first of them and so on.
func computeOf(format string, in rel.Node, columns ...rel.ID) *expr.Expr {
	s := &expr.Scope{Schema: &gpu.Schema{}, IDs: columns, Fold: host.Fold}
	for i, c := range columns {
		f := in.Rel().Field(c)
		if len(s.Named(f.Name)) > 0 {
			f.Name = fmt.Sprintf("%s %d", f.Name, i)
		}
		s.Schema.Fields = append(s.Schema.Fields, f)
	}
	return compute(format, s)
}
