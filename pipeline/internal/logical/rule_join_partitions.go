package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// joinedRows is the number of rows per partition, by estimate, from which joinPartitions uses a
// group-by.
const joinedRows = 4

// joinPartitions replaces windows whose functions are aggregates of whole partitions by a group-by,
// which is joined with the rows. Then no rows are kept or sorted. But the rows below all windows
// are read twice, so they must be cheap.
func joinPartitions(e *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	below := n
	for w, ok := below.(*rel.Window); ok; w, ok = below.(*rel.Window) {
		below = w.In
	}
	n = rel.WithInputs(n, again)
	w, ok := n.(*rel.Window)
	if !ok || len(w.Partition) == 0 || worthHolding(below) {
		return n
	}
	in := below.Rel()
	if !in.HasAll(w.Partition) || slices.ContainsFunc(w.Functions, func(f window.Function) bool {
		return !ofPartition(w, f) || f.Value >= 0 && !in.Has(f.Value)
	}) {
		return n
	}
	partitions := 1.0
	for _, k := range w.Partition {
		values, _ := e.Column(below, k).keys()
		partitions *= values
	}
	rows := e.Rows(below)
	if partitions == 0 || partitions*joinedRows > rows {
		return n
	}
	spec := rel.JoinSpec{Kind: join.Inner, LeftKeys: w.Partition,
		Build: rel.Build{Side: rel.RightSide, Reason: rel.RowPerPartition}}
	for _, k := range w.Partition {
		spec.NullSafe = append(spec.NullSafe, in.Field(k).Nullable)
	}
	var aggs []rel.Aggregate
	for i, f := range w.Functions {
		aggs = append(aggs, rel.Aggregate{Out: w.Out[i], Kind: f.Aggregate, Input: f.Value, Output: f.Output})
	}
	e.Expect(w.Partition, partitions)
	groups := rel.NewGroup(w.Origin, below, w.Partition, aggs, nil, "")
	// The rows are read a second time, so the keys of the groups are other columns.
	right, keys := rel.Renamed(groups, groups.Columns[:len(w.Partition)], "")
	spec.RightKeys = keys
	right = rel.NewProject(w.Origin, groups, append(keys[:len(keys):len(keys)], w.Out...),
		append(right.Exprs, groups.Exprs(w.Out)...))
	j := rel.NewJoin(w.Origin, w.In, right, spec)
	e.Know(j, rows)
	return j
}

// ofPartition reports whether a function is an aggregate of all rows of a partition that has an accumulator.
func ofPartition(n *rel.Window, f window.Function) bool {
	return f.Kind == window.Aggregate && f.Aggregate != gpu.Product && f.Frame.Whole(len(n.Order) > 0)
}
