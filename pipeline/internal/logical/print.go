package logical

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
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
	fmt.Fprintf(p, "%s%s [%s]\n", strings.Repeat("  ", min(level, deepest)), describe(n), n.Rel().Step)
	if h, ok := n.(*Held); ok {
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
	name := func(in Node, c int) string { return in.Rel().Schema.Fields[c].Name }
	names := func(in Node, cols []int) string {
		list := make([]string, len(cols))
		for i, c := range cols {
			list[i] = name(in, c)
		}
		return strings.Join(list, ", ")
	}
	order := func(in Node, keys []SortKey) string {
		list := make([]string, len(keys))
		for i, k := range keys {
			if list[i] = name(in, k.Column); k.Descending {
				list[i] += " desc"
			}
		}
		return strings.Join(list, ", ")
	}
	texts := func(list []*expr.Expr, separator string) string {
		out := make([]string, len(list))
		for i, e := range list {
			out[i] = e.String()
		}
		return strings.Join(out, separator)
	}
	switch n := n.(type) {
	case *Scan:
		text := "scan"
		for _, p := range n.Prune {
			text += fmt.Sprintf(" (prunes by %s)", name(n, p.Column))
		}
		return text
	case *Filter:
		return "filter " + texts(n.Conjuncts, " and ")
	case *Project:
		list := make([]string, len(n.Exprs))
		for i, e := range n.Exprs {
			if list[i] = e.String(); list[i] != name(n, i) {
				list[i] += " as " + name(n, i)
			}
		}
		return "project " + strings.Join(list, ", ")
	case *Join:
		return n.Name() + " join " + strings.Join(n.Conditions(), " and ")
	case *Expand:
		return fmt.Sprintf("expand to %d variants", len(n.Variants))
	case *Group:
		list := make([]string, len(n.Aggregates))
		for i := range n.Aggregates {
			list[i] = name(n, len(n.Keys)+i)
		}
		return fmt.Sprintf("group by %s: %s", names(n.In, n.Keys), strings.Join(list, ", "))
	case *Window:
		width := n.In.Rel().Schema.Len()
		list := make([]string, len(n.Functions))
		for i := range n.Functions {
			list[i] = name(n, width+i)
		}
		return fmt.Sprintf("window by %s order by %s: %s", names(n.In, n.Partition), order(n.In, n.Order),
			strings.Join(list, ", "))
	case *Sort:
		text := "sort by " + order(n.In, n.Keys)
		if n.Limit >= 0 {
			text += fmt.Sprintf(", %d rows after %d", n.Limit, n.Offset)
		}
		return text
	case *Limit:
		return fmt.Sprintf("limit %d after %d", n.Count, n.Offset)
	case *Union:
		return "union"
	case *Held:
		return "held"
	}
	panic("logical: unknown node")
}

// Check returns an error if a plan does not fit together: a column that an input does not have or has in another type,
// or inputs of a union that differ.
func Check(n Node) (err error) {
	visit(n, func(n Node) {
		if wrong := checkNode(n); wrong != nil && err == nil {
			err = fmt.Errorf("%s [%s]: %w", describe(n), n.Rel().Step, wrong)
		}
	})
	return err
}

func checkNode(n Node) error {
	r := n.Rel()
	width := r.Schema.Len()
	if len(r.tables) != width || len(r.Stats) != width {
		return fmt.Errorf("it has %d columns, tables of %d and statistics of %d", width, len(r.tables), len(r.Stats))
	}
	columns := func(in *gpu.Schema, list ...int) error {
		for _, c := range list {
			if c < 0 || c >= in.Len() {
				return fmt.Errorf("it uses column %d of %d", c, in.Len())
			}
		}
		return nil
	}
	exprs := func(in *gpu.Schema, list []*expr.Expr) error {
		for _, e := range list {
			if err := columns(in, e.Columns()...); err != nil {
				return err
			}
			if err := e.CheckTypes(in); err != nil {
				return err
			}
		}
		return nil
	}
	sorted := func(in *gpu.Schema, keys []SortKey) error {
		for _, k := range keys {
			if err := columns(in, k.Column); err != nil {
				return err
			}
		}
		return nil
	}
	switch n := n.(type) {
	case *Filter:
		return exprs(n.In.Rel().Schema, n.Conjuncts)
	case *Project:
		if len(n.Exprs) != width {
			return fmt.Errorf("it computes %d of %d columns", len(n.Exprs), width)
		}
		return exprs(n.In.Rel().Schema, n.Exprs)
	case *Join:
		l, r := n.Left.Rel().Schema, n.Right.Rel().Schema
		if err := columns(l, n.LeftKeys...); err != nil {
			return err
		}
		if err := columns(r, n.RightKeys...); err != nil {
			return err
		}
		if len(n.LeftKeys) != len(n.RightKeys) || len(n.LeftKeys) != len(n.NullSafe) {
			return fmt.Errorf("it has %d and %d keys", len(n.LeftKeys), len(n.RightKeys))
		}
		for i, k := range n.LeftKeys {
			if a, b := l.Fields[k].Type, r.Fields[n.RightKeys[i]].Type; a != b {
				return fmt.Errorf("it compares %v and %v", a, b)
			}
		}
		both := gpu.NewSchema(append(append([]gpu.Field(nil), l.Fields...), r.Fields...)...)
		return exprs(both, n.Residual)
	case *Group:
		if err := columns(n.In.Rel().Schema, n.Keys...); err != nil {
			return err
		}
		for _, a := range n.Aggregates {
			if err := columns(n.In.Rel().Schema, a.Columns()...); err != nil {
				return err
			}
		}
	case *Window:
		if err := columns(n.In.Rel().Schema, n.Partition...); err != nil {
			return err
		}
		return sorted(n.In.Rel().Schema, n.Order)
	case *Sort:
		return sorted(n.In.Rel().Schema, n.Keys)
	case *Union:
		for _, in := range n.Ins {
			for c, f := range in.Rel().Schema.Fields {
				if f.Type != r.Schema.Fields[c].Type {
					return fmt.Errorf("column %d is %v in an input and %v in the union", c, f.Type,
						r.Schema.Fields[c].Type)
				}
			}
		}
	}
	return nil
}

// SameColumns returns an error if two plans do not have the same columns: names and types, in order.
func SameColumns(a, b Node) error {
	x, y := a.Rel().Schema, b.Rel().Schema
	if x.Len() != y.Len() {
		return fmt.Errorf("%d columns became %d", x.Len(), y.Len())
	}
	for i, f := range x.Fields {
		if g := y.Fields[i]; f.Name != g.Name || f.Type != g.Type {
			return fmt.Errorf("column %d was %q of %v and is %q of %v", i, f.Name, f.Type, g.Name, g.Type)
		}
	}
	return nil
}
