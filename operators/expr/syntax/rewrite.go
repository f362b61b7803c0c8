package syntax

import "slices"

// Replace copies a tree, without the queries in it. If f returns a node for a node, the copy has the returned node.
func Replace(n Node, f func(Node) (Node, error)) (Node, error) {
	if r, err := f(n); r != nil || err != nil {
		return r, err
	}
	var first error
	sub := func(n Node) Node {
		if n == nil || first != nil {
			return n
		}
		r, err := Replace(n, f)
		if err != nil {
			first = err
		}
		return r
	}
	list := func(nodes []Node) []Node {
		out := make([]Node, len(nodes))
		for i := range nodes {
			out[i] = sub(nodes[i])
		}
		return out
	}
	var out Node
	switch n := n.(type) {
	case *Interval:
		c := *n
		c.Value = sub(n.Value)
		out = &c
	case *Unary:
		c := *n
		c.X = sub(n.X)
		out = &c
	case *Binary:
		c := *n
		c.L, c.R = sub(n.L), sub(n.R)
		out = &c
	case *Logic:
		c := *n
		c.Args = list(n.Args)
		out = &c
	case *Between:
		c := *n
		c.X, c.Lo, c.Hi = sub(n.X), sub(n.Lo), sub(n.Hi)
		out = &c
	case *In:
		c := *n
		c.X, c.List = sub(n.X), list(n.List)
		out = &c
	case *Like:
		c := *n
		c.X, c.Pattern, c.Escape = sub(n.X), sub(n.Pattern), sub(n.Escape)
		out = &c
	case *Is:
		c := *n
		c.X, c.Y = sub(n.X), sub(n.Y)
		out = &c
	case *Case:
		c := *n
		c.Operand, c.Otherwise = sub(n.Operand), sub(n.Otherwise)
		c.Whens = make([][2]Node, len(n.Whens))
		for i, w := range n.Whens {
			c.Whens[i] = [2]Node{sub(w[0]), sub(w[1])}
		}
		out = &c
	case *Cast:
		c := *n
		c.X = sub(n.X)
		out = &c
	case *Call:
		c := *n
		order := func(keys []OrderKey) []OrderKey {
			keys = slices.Clone(keys)
			for i := range keys {
				keys[i].X = sub(keys[i].X)
			}
			return keys
		}
		c.Args, c.Order, c.Filter = list(n.Args), order(n.Order), sub(n.Filter)
		if n.Over != nil {
			w := *n.Over
			w.Partition, w.Order = list(w.Partition), order(w.Order)
			if w.Frame != nil {
				frame := *w.Frame
				frame.From.Offset, frame.To.Offset = sub(frame.From.Offset), sub(frame.To.Offset)
				w.Frame = &frame
			}
			c.Over = &w
		}
		out = &c
	case *Lambda:
		c := *n
		c.X = sub(n.X)
		out = &c
	case *Subquery:
		c := *n
		c.X = sub(n.X)
		out = &c
	case *Row:
		c := *n
		c.Items = list(n.Items)
		out = &c
	case *StarExpr:
		c := *n
		c.Pattern = sub(n.Pattern)
		c.Star.Replace = slices.Clone(n.Star.Replace)
		for i := range c.Star.Replace {
			c.Star.Replace[i].X = sub(c.Star.Replace[i].X)
		}
		out = &c
	default:
		out = n
	}
	return out, first
}
