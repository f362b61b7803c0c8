package rel

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/operators/expr"
)

// Print draws a plan, a node a line above its inputs, with its step. The rows of a held step are drawn once.
func Print(n Node) string {
	p := printer{held: map[*Share]bool{}}
	p.print(n, 0)
	return p.String()
}

type printer struct {
	strings.Builder
	held map[*Share]bool
}

// deepest is the level from which lines are no longer indented.
const deepest = 50

func (p *printer) print(n Node, level int) {
	fmt.Fprintf(p, "%s%s [%s]\n", strings.Repeat("  ", min(level, deepest)), describe(n), n.Rel().Origin.Step)
	if h, ok := n.(*Materialized); ok {
		if p.held[h.Share] {
			return
		}
		p.held[h.Share] = true
	}
	for _, in := range Inputs(n) {
		p.print(in, level+1)
	}
}

// describe returns what a node does.
func describe(n Node) string {
	r := n.Rel()
	names := func(ids []ID) string {
		list := make([]string, len(ids))
		for i, id := range ids {
			list[i] = r.Name(id)
		}
		return strings.Join(list, ", ")
	}
	order := func(keys []SortKey) string {
		list := make([]string, len(keys))
		for i, k := range keys {
			if list[i] = r.Name(k.Column); k.Descending {
				list[i] += " desc"
			}
		}
		return strings.Join(list, ", ")
	}
	switch n := n.(type) {
	case *Scan:
		text := "scan"
		for _, p := range n.Prune {
			text += fmt.Sprintf(" (prunes by %s)", r.Name(n.Columns[p.Column]))
		}
		return text
	case *Filter:
		return "filter " + texts(n.Conjuncts, " and ")
	case *Project:
		list := make([]string, len(n.Exprs))
		for i, e := range n.Exprs {
			if list[i] = e.String(); list[i] != r.Name(n.Columns[i]) {
				list[i] += " as " + r.Name(n.Columns[i])
			}
		}
		return "project " + strings.Join(list, ", ")
	case *Join:
		return n.What() + " join " + strings.Join(n.Conditions(), " and ")
	case *Expand:
		return fmt.Sprintf("expand to %d variants", len(n.Variants))
	case *Unnest:
		return fmt.Sprintf("unnest %s as %s", names(n.Lists), names(n.Elements))
	case *Group:
		return fmt.Sprintf("group by %s: %s", names(n.Keys), names(n.Columns[len(n.Keys):]))
	case *Window:
		return fmt.Sprintf("window by %s order by %s: %s", names(n.Partition), order(n.Order), names(n.Out))
	case *Sort:
		text := "sort by " + order(n.Keys)
		if n.Limit >= 0 {
			text += fmt.Sprintf(", %d rows after %d", n.Limit, n.Offset)
		}
		return text
	case *Limit:
		return fmt.Sprintf("limit %d after %d", n.Count, n.Offset)
	case *Union:
		return "union"
	case *Outputs:
		return fmt.Sprintf("%d outputs", len(n.Ins))
	case *Values:
		return fmt.Sprintf("%d rows of values: %s", len(n.Rows), names(n.Columns))
	case *SetOperation:
		text := n.Op.String()
		if n.All {
			text += " all"
		}
		return text + ": " + names(n.Columns)
	case *Apply:
		text := n.Kind.String() + " apply"
		if len(n.Outer) > 0 {
			text += " of " + names(n.Outer)
		}
		if len(n.Conditions) > 0 {
			text += " if " + texts(n.Conditions, " and ")
		}
		return text
	case *Materialized:
		return "held"
	case *Recursive:
		text := "recursion " + n.Loop.Name
		if n.All {
			text += " of all rows"
		}
		return text + ": " + names(n.Columns)
	case *Working:
		return "working table of " + n.Loop.Name
	}
	panic("rel: unknown node")
}

func texts(list []*expr.Expr, separator string) string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.String()
	}
	return strings.Join(out, separator)
}
