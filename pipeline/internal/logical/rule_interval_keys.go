package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// lengthKeys replaces keys that may be equal without having the same bytes. Intervals are replaced by their lengths,
// because 1 month and 30 days are equal. A group has the least of its intervals as its key: of those of one length, the
// one with the fewest months. Nested values with floats get zeros without a sign.
func lengthKeys(_ *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	n = rel.WithInputs(n, again)
	origin := n.Rel().Origin
	switch n := n.(type) {
	case *rel.Group:
		return lengthGroups(n)
	case *rel.Sort:
		if in, keys, ok := lengths(n.In, sortColumns(n.Keys)); ok {
			return rel.NewSort(origin, in, sortedBy(n.Keys, keys), n.Offset, n.Limit)
		}
	case *rel.Window:
		if in, keys, ok := lengths(n.In, slices.Concat(n.Partition, sortColumns(n.Order))); ok {
			return rel.NewWindow(origin, in, keys[:len(n.Partition)], sortedBy(n.Order, keys[len(n.Partition):]),
				n.Functions, n.Out)
		}
	case *rel.Join:
		left, leftKeys, ok := lengths(n.Left, n.LeftKeys)
		right, rightKeys, _ := lengths(n.Right, n.RightKeys)
		if ok {
			spec := n.JoinSpec
			spec.LeftKeys, spec.RightKeys = leftKeys, rightKeys
			return rel.NewJoin(origin, left, right, spec)
		}
	}
	return n
}

// hasIntervalKeys reports whether a node has keys that lengthKeys replaces.
func hasIntervalKeys(n rel.Node) bool {
	var in rel.Node
	var keys []rel.ID
	switch n := n.(type) {
	case *rel.Group:
		in, keys = n.In, n.Keys
	case *rel.Sort:
		in, keys = n.In, sortColumns(n.Keys)
	case *rel.Window:
		in, keys = n.In, slices.Concat(n.Partition, sortColumns(n.Order))
	case *rel.Join:
		in, keys = n.Left, n.LeftKeys
	}
	return slices.ContainsFunc(keys, func(k rel.ID) bool {
		t := in.Rel().Field(k).Type
		return t.Kind == gpu.Interval || t.IsNested() && t.HasFloats()
	})
}

// lengths adds what stands for the intervals and nested floats among some columns to a node, and returns the columns
// with that in their place. It is false without any.
func lengths(in rel.Node, columns []rel.ID) (rel.Node, []rel.ID, bool) {
	exprs, some := in.Rel().Exprs(columns), false
	for i, e := range exprs {
		switch t := e.Type(); {
		case t.Kind == gpu.Interval:
			exprs[i], some = expr.LengthOf(e), true
		case t.IsNested() && t.HasFloats():
			exprs[i], some = expr.Canonical(e), true
		}
	}
	if !some {
		return in, columns, false
	}
	in, columns = rel.Extend(in, exprs, nil)
	return in, columns, true
}

func sortColumns(keys []rel.SortKey) (columns []rel.ID) {
	for _, k := range keys {
		columns = append(columns, k.Column)
	}
	return columns
}

func sortedBy(keys []rel.SortKey, columns []rel.ID) []rel.SortKey {
	keys = slices.Clone(keys)
	for i := range keys {
		keys[i].Column = columns[i]
	}
	return keys
}

func lengthGroups(n *rel.Group) rel.Node {
	in, keys, ok := lengths(n.In, n.Keys)
	if !ok {
		return n
	}
	var of []*expr.Expr // the parts of the intervals
	for i, k := range n.Keys {
		if keys[i] != k && n.Expr(k).Type().Kind == gpu.Interval {
			of = append(of, expr.PartsOf(n.Expr(k)))
		}
	}
	in, parts := rel.Extend(in, of, nil)
	aggs := slices.Clone(n.Aggregates)
	from := n.Exprs(n.Columns)
	always := make([][]gpu.Scalar, len(n.Always))
	for i := range always {
		always[i] = slices.Clone(n.Always[i])
	}
	sorted := slices.ContainsFunc(aggs, func(a rel.Aggregate) bool { return a.Sorted != nil })
	for i, k := range n.Keys {
		if keys[i] == k {
			continue
		}
		if n.Expr(k).Type().Kind != gpu.Interval {
			from[i] = in.Rel().Expr(keys[i])
			continue
		}
		a := rel.Aggregate{Kind: gpu.Min, Input: parts[0], Output: in.Rel().Field(parts[0]).Type}
		if sorted {
			a.Sorted = &window.GroupFunction{Kind: window.Aggregate, Aggregate: a.Kind, Value: parts[0], Key: -1,
				Filter: -1, Output: a.Output}
		}
		parts = parts[1:]
		a.Out = n.Metadata.Add(rel.Column{Field: a.Field(n.Name(k), in.Rel(), len(keys), always)})
		aggs = append(aggs, a)
		from[i] = expr.IntervalOf(in.Rel().Expr(keys[i]), expr.ColumnOf(a.Out, n.Metadata.Column(a.Out).Field, nil))
		for _, values := range always {
			length := gpu.Null(in.Rel().Field(keys[i]).Type)
			if values[i].Valid {
				length.Valid, length.Int = true, gpu.PartsOfInterval(values[i].Str).Length()
			}
			values[i] = length
		}
	}
	groups := rel.NewGroup(n.Origin, in, keys, aggs, always, n.Algorithm)
	return rel.NewProject(n.Origin, groups, n.Columns, from)
}
