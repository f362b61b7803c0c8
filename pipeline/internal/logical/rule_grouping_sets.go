package logical

import (
	"cmp"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// mostSets is the number of grouping sets up to which each has a group-by of its own.
const mostSets = 16

// cascadeSets replaces a group-by of rows that occur once for each grouping set, if one set has all keys. Each other
// set merges the groups of the smallest set that has its keys: the rows are read once, and a ROLLUP merges fewer and
// fewer groups.
func cascadeSets(_ *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	n = rel.WithInputs(n, again)
	g, ok := n.(*rel.Group)
	if !ok || g.Algorithm != "" {
		return n
	}
	x, ok := g.In.(*rel.Expand)
	if !ok || !slices.Contains(g.Keys, x.Number) || len(x.Variants) > mostSets {
		return n
	}
	c := &cascade{g: g, x: x}
	for _, a := range g.Aggregates {
		if !mergesAgain(a) || !x.In.Rel().Has(a.Input) {
			return n
		}
	}
	if !c.plan() {
		return n
	}
	return c.union()
}

// mergesAgain reports whether the results of an aggregate for parts of the rows have the same aggregate as all rows.
func mergesAgain(a rel.Aggregate) bool {
	switch a.Kind {
	case gpu.Sum:
		return a.Sorted == nil && !a.Output.IsFloat() && gpu.SumType(a.Output) == a.Output
	case gpu.Min, gpu.Max, gpu.BitAnd, gpu.BitOr, gpu.BitXor:
		return a.Sorted == nil
	}
	return false
}

// cascade is the group-bys of grouping sets.
type cascade struct {
	g     *rel.Group
	x     *rel.Expand
	sets  []setGroups // by the numbers of the sets
	order []int       // each after the one that it merges
}

// setGroups is the groups of a grouping set.
type setGroups struct {
	keys    []rel.ID // before they are null for some sets
	parent  int      // the set whose groups it merges, -1 for the rows
	readers int      // of its groups
	node    rel.Node
	calls   []rel.ID // the aggregates
}

// source returns the column of the rows that is a key, where the key is not null.
func (c *cascade) source(key rel.ID) rel.ID {
	if i := slices.IndexFunc(c.x.Copies, func(x rel.Copy) bool { return x.Out == key }); i >= 0 {
		return c.x.Copies[i].From
	}
	return key
}

// plan chooses which groups each set merges. It is false if no set has all keys.
func (c *cascade) plan() bool {
	for i, nulls := range c.x.Variants {
		l := setGroups{parent: -1, readers: 1}
		for _, k := range c.g.Keys {
			if k != c.x.Number && !slices.Contains(nulls, k) {
				l.keys = append(l.keys, c.source(k))
			}
		}
		c.sets, c.order = append(c.sets, l), append(c.order, i)
	}
	keys := func(i int) int { return len(c.sets[i].keys) }
	slices.SortStableFunc(c.order, func(a, b int) int { return cmp.Compare(keys(b), keys(a)) })
	if len(c.sets) < 2 || keys(c.order[0]) < len(c.g.Keys)-1 {
		return false
	}
	for i, at := range c.order[1:] {
		l := &c.sets[at]
		for _, p := range c.order[:i+1] { // the last one has the fewest keys
			has := func(k rel.ID) bool { return slices.Contains(c.sets[p].keys, k) }
			if !slices.ContainsFunc(l.keys, func(k rel.ID) bool { return !has(k) }) {
				l.parent = p
			}
		}
		c.sets[l.parent].readers++
	}
	return true
}

// union returns the groups of all sets.
func (c *cascade) union() rel.Node {
	for _, i := range c.order {
		l := &c.sets[i]
		c.group(l)
		if l.readers > 1 {
			l.node = rel.NewMaterialized(l.node, &rel.Share{Step: c.g.Origin.Step})
		}
	}
	var ins []rel.Node
	var from [][]rel.ID
	for i, l := range c.sets {
		var exprs []*expr.Expr
		var ids []rel.ID
		for k, id := range c.g.Columns {
			column := c.g.Metadata.Column(id)
			ids = append(ids, c.g.Metadata.Add(column))
			switch {
			case id == c.x.Number:
				exprs = append(exprs, expr.Literal(gpu.IntScalar(rel.VariantType, int64(i))))
			case slices.Contains(c.x.Variants[i], id):
				exprs = append(exprs, expr.Null(column.Field))
			case k < len(c.g.Keys):
				exprs = append(exprs, l.node.Rel().Expr(c.source(id)))
			default:
				exprs = append(exprs, l.node.Rel().Expr(l.calls[k-len(c.g.Keys)]))
			}
		}
		ins, from = append(ins, rel.NewProject(c.g.Origin, l.node, ids, exprs)), append(from, ids)
	}
	return rel.NewUnion(c.g.Origin, ins, from, c.g.Columns)
}

// group makes the groups of a set.
func (c *cascade) group(l *setGroups) {
	in, inputs := c.x.In, []rel.ID(nil)
	if l.parent >= 0 {
		in, inputs = c.sets[l.parent].node, c.sets[l.parent].calls
	} else {
		for _, a := range c.g.Aggregates {
			inputs = append(inputs, a.Input)
		}
		if Unique(in, l.keys) && c.pass(l, in, inputs) {
			return
		}
	}
	var aggs []rel.Aggregate
	for i, a := range c.g.Aggregates {
		a.Input = inputs[i]
		column := c.g.Metadata.Column(a.Out)
		column.Nullable = a.Field("", in.Rel(), len(l.keys), nil).Nullable
		a.Out = c.g.Metadata.Add(column)
		aggs, l.calls = append(aggs, a), append(l.calls, a.Out)
	}
	l.node = rel.NewGroup(c.g.Origin, in, l.keys, aggs, nil, "")
}

// pass makes the groups of a set from rows that are groups already. The aggregates of one row are its values, in the
// type of the aggregates. It is false if a value cannot have this type.
func (c *cascade) pass(l *setGroups, in rel.Node, inputs []rel.ID) bool {
	values := in.Rel().Exprs(inputs)
	for i, a := range c.g.Aggregates {
		if values[i].Type() == a.Output {
			continue
		}
		cast, err := expr.Cast(values[i], a.Output, host.Fold)
		if err != nil || cast.Type() != a.Output {
			return false
		}
		values[i] = cast
	}
	l.node, l.calls = rel.Extend(in, values, nil)
	return true
}
