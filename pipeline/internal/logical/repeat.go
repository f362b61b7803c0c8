package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
)

// Reasons why a relation may have other rows when it is computed again.
const (
	byOrder  = "it keeps the first rows of an order that is not defined; sort by all columns before the limit, or write these rows to a file first"
	byDigits = "it compares sums or averages of floats, whose last digits depend on the order of the additions; write these rows to a file first"
)

// repetition is what stays the same when a relation is computed again.
type repetition struct {
	columns []bool // the values of each column
	order   bool   // the order of the rows
	why     string // the reason why the rows may differ, or ""
}

// repeat says what stays the same when a relation is computed again. Orders of groups,
// and the last digits of aggregates of floats, do not.
func repeat(n Node) repetition {
	var ins []repetition
	out := repetition{order: true}
	for _, in := range inputs(n) {
		r := repeat(in)
		ins = append(ins, r)
		out.order = out.order && r.order
		if out.why == "" {
			out.why = r.why
		}
	}
	// compare notes that the rows depend on the values of columns of input i.
	compare := func(i int, columns ...int) {
		if out.why == "" && !ins[i].have(columns) {
			out.why = byDigits
		}
	}
	switch n := n.(type) {
	case *Scan:
		out.columns = slices.Repeat([]bool{true}, n.Schema.Len())
	case *Filter:
		compare(0, expr.And(n.Conjuncts...).Columns()...)
		out.columns = ins[0].columns
	case *Project:
		for _, e := range n.Exprs {
			out.columns = append(out.columns, ins[0].have(e.Columns()))
		}
	case *Join:
		compare(0, n.LeftKeys...)
		compare(1, n.RightKeys...)
		out.columns = slices.Concat(ins[0].columns, ins[1].columns)[:n.Schema.Len()]
	case *Group:
		compare(0, n.Keys...)
		out.order = false
		for _, k := range n.Keys {
			out.columns = append(out.columns, ins[0].columns[k])
		}
		for _, a := range n.Aggregates {
			sums := a.Input >= 0 && (a.Kind == gpu.Sum || a.Kind == gpu.Avg) && n.In.Rel().Schema.Fields[a.Input].Type.IsFloat()
			out.columns = append(out.columns, !sums && (a.Input < 0 || ins[0].columns[a.Input]))
		}
	case *Expand:
		if out.columns = ins[0].columns; n.Numbered {
			out.columns = append(slices.Clone(out.columns), true)
		}
	case *Sort:
		var keys []int
		for _, k := range n.Keys {
			keys = append(keys, k.Column)
		}
		all := true
		for c := range n.Schema.Len() {
			all = all && slices.Contains(keys, c)
		}
		out.columns = ins[0].columns
		out.order = (out.order || all) && ins[0].have(keys)
	case *Limit:
		if out.columns = ins[0].columns; out.why == "" && !out.order {
			out.why = byOrder
		}
	case *Union:
		out.columns = slices.Clone(ins[0].columns)
		for _, in := range ins[1:] {
			for c, same := range in.columns {
				out.columns[c] = out.columns[c] && same
			}
		}
	}
	return out
}

// have reports whether the values of columns stay the same.
func (r repetition) have(columns []int) bool {
	return !slices.ContainsFunc(columns, func(c int) bool { return !r.columns[c] })
}

// inputs returns the relations that a node reads.
func inputs(n Node) []Node {
	switch n := n.(type) {
	case *Filter:
		return []Node{n.In}
	case *Project:
		return []Node{n.In}
	case *Join:
		return []Node{n.Left, n.Right}
	case *Group:
		return []Node{n.In}
	case *Expand:
		return []Node{n.In}
	case *Sort:
		return []Node{n.In}
	case *Limit:
		return []Node{n.In}
	case *Union:
		return n.Ins
	}
	return nil
}
