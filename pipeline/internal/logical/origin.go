package logical

import (
	"slices"

	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/source"
)

// Origin is the column of a table whose values a column has, unchanged. The zero Origin is
// none: the values are computed, or come from several tables.
type Origin struct {
	Table  source.Table
	Column int
}

// Origins returns the origin of each column of a node, and the tables that it reads.
func Origins(n Node) (columns []Origin, tables []source.Table) {
	o := origins{seen: map[source.Table]bool{}, done: map[Node][]Origin{}}
	return o.of(n), o.tables
}

type origins struct {
	tables []source.Table
	seen   map[source.Table]bool
	done   map[Node][]Origin
}

// of returns a list that the caller may change.
func (o *origins) of(n Node) []Origin {
	out, ok := o.done[n]
	if !ok {
		out = o.find(n)
		o.done[n] = out
	}
	return slices.Clone(out)
}

func (o *origins) find(n Node) []Origin {
	none := func(columns []Origin) []Origin { // as many as the node has
		return append(columns, make([]Origin, n.Rel().Schema.Len()-len(columns))...)
	}
	switch n := n.(type) {
	case *Scan:
		if !o.seen[n.Table] {
			o.seen[n.Table] = true
			o.tables = append(o.tables, n.Table)
		}
		out := none(nil)
		for i := range out {
			out[i] = Origin{n.Table, i}
		}
		return out
	case *Filter:
		return o.of(n.In)
	case *Sort:
		return o.of(n.In)
	case *Limit:
		return o.of(n.In)
	case *Held:
		return o.of(n.In)
	case *Expand:
		return none(o.of(n.In))
	case *Window:
		return none(o.of(n.In))
	case *Project:
		in := o.of(n.In)
		out := none(nil)
		for i, e := range n.Exprs {
			if c, ok := e.IsColumn(); ok {
				out[i] = in[c]
			}
		}
		return out
	case *Group:
		in := o.of(n.In)
		var out []Origin
		for _, k := range n.Keys {
			out = append(out, in[k])
		}
		return none(out)
	case *Join:
		left, right := o.of(n.Left), o.of(n.Right)
		switch {
		case n.Kind == join.Mark:
			return none(left)
		case n.Kind.Pairs():
			return append(left, right...)
		}
		return left
	case *Union:
		out := o.of(n.Ins[0])
		for _, in := range n.Ins[1:] {
			for i, c := range o.of(in) {
				if out[i] != c {
					out[i] = Origin{}
				}
			}
		}
		return out
	}
	return none(nil)
}
