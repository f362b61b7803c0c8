package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/window"
)

// joinedRows is the least number of rows of a partition, by estimate, for which joinPartitions takes a group-by.
const joinedRows = 4

// joinPartitions computes windows whose functions are aggregates of whole partitions by a group-by, and joins the rows
// with the groups. Then no rows are kept or sorted, but the rows below all windows are read twice: they must not be
// worth holding.
func joinPartitions(n Node, again func(Node) Node) Node {
	below := n
	for w, ok := below.(*Window); ok; w, ok = below.(*Window) {
		below = w.In
	}
	n = withInputs(n, again)
	w, ok := n.(*Window)
	if !ok || len(w.Partition) == 0 || worthHolding(below) {
		return n
	}
	in := below.Rel() // its columns are the first ones of w
	if slices.ContainsFunc(w.Functions, func(f window.Function) bool {
		return !w.ofPartition(f) ||
			f.Value >= in.Schema.Len()
	}) {
		return n
	}
	partitions := 1.0
	for _, k := range w.Partition {
		if k >= in.Schema.Len() {
			return n
		}
		values, _ := in.Stats[k].keys()
		partitions *= values
	}
	if partitions == 0 || partitions*joinedRows > in.Rows {
		return n
	}
	width, keys := w.In.Rel().Schema.Len(), len(w.Partition)
	var aggs []Aggregate
	spec := JoinSpec{Kind: join.Inner, LeftKeys: w.Partition, build: "right"}
	var names []string
	for i, k := range w.Partition {
		names = append(names, in.Schema.Fields[k].Name)
		spec.RightKeys, spec.NullSafe = append(spec.RightKeys, i), append(spec.NullSafe, in.Schema.Fields[k].Nullable)
	}
	for i, f := range w.Functions {
		aggs, names = append(aggs, Aggregate{Kind: f.Aggregate, Input: f.Value, Output: f.Output}),
			append(names, w.Schema.Fields[width+i].Name)
	}
	g := newGroup(w.Step, below, w.Partition, aggs, names, nil, "")
	g.expect(partitions)
	j := newJoin(w.Step, w.In, g, spec)
	j.Rows, j.Why = in.Rows, "a row for each partition"
	scope := scopeOf(j)
	var exprs []*expr.Expr
	for c := range w.Schema.Fields {
		if c >= width {
			c += keys
		}
		exprs = append(exprs, expr.Column(scope, c))
	}
	p := newProject(w.Step, j, exprs, w.Schema.Names(), w.tables)
	p.Schema = w.Schema // whether a column may be null does not depend on an estimate
	return p
}

// ofPartition reports whether a function is an aggregate of all rows of a partition that has an accumulator.
func (n *Window) ofPartition(f window.Function) bool {
	return f.Kind == window.Aggregate && f.Aggregate != gpu.Product && f.Frame.Whole(len(n.Order) > 0)
}
