package expr

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// AggregateCall is one call of an aggregate function.
type AggregateCall struct {
	Kind   gpu.AggregateKind
	Arg    *Expr // nil for count(*)
	Output gpu.Type
}

var aggregateKinds = map[string]gpu.AggregateKind{
	"count": gpu.Count, "count_star": gpu.CountAll, "sum": gpu.Sum, "min": gpu.Min, "max": gpu.Max, "avg": gpu.Avg, "mean": gpu.Avg,
}

// AggregateColumn returns the name of the column that replaces call i in the tree that
// BindAggregates returns.
func AggregateColumn(i int) string { return fmt.Sprintf("$agg%d", i) }

// BindAggregates finds the aggregate calls in a tree and binds their arguments over s. It
// returns each distinct call once, and the tree with every call replaced by a reference
// to its AggregateColumn, ready to be bound over the columns of a group-by. The error is
// an *Error.
func BindAggregates(n Node, s *Scope) (calls []AggregateCall, post Node, err error) {
	b := &binder{scope: s, src: n.source()}
	seen := map[string]int{}
	post, err = replace(n, func(n Node) (Node, error) {
		c, ok := n.(*callNode)
		if !ok {
			return nil, nil
		}
		if _, ok := aggregateKinds[c.name]; !ok {
			return nil, nil
		}
		key := c.String()
		i, ok := seen[key]
		if !ok {
			call, err := b.aggregate(c)
			if err != nil {
				return nil, err
			}
			i = len(calls)
			seen[key] = i
			calls = append(calls, call)
		}
		return &nameNode{base{src: c.src, at: c.at, tall: 1}, []string{AggregateColumn(i)}}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return calls, post, nil
}

func (b *binder) aggregate(n *callNode) (AggregateCall, error) {
	kind := aggregateKinds[n.name]
	none := AggregateCall{}
	if n.distinct {
		return none, b.errorf(n, "DISTINCT in %s is not supported", n.name)
	}
	if n.star || kind == gpu.CountAll || kind == gpu.Count && len(n.args) == 0 {
		if kind != gpu.Count && kind != gpu.CountAll || len(n.args) > 0 {
			return none, b.errorf(n, "%s takes 1 argument, found *", n.name)
		}
		return AggregateCall{Kind: gpu.CountAll, Output: gpu.Of(gpu.Int64)}, nil
	}
	if len(n.args) != 1 {
		return none, b.errorf(n, "%s takes 1 argument, found %d", n.name, len(n.args))
	}
	x, err := Bind(n.args[0], b.scope)
	if err != nil {
		return none, err
	}
	call := AggregateCall{Kind: kind, Arg: x, Output: x.typ}
	switch kind {
	case gpu.Count:
		call.Output = gpu.Of(gpu.Int64)
	case gpu.Sum, gpu.Avg:
		if !x.typ.IsNumeric() {
			return none, b.errorf(n, "%s needs a number, found %v", n.name, x.typ)
		}
		switch {
		case kind == gpu.Avg || x.typ.IsFloat():
			call.Output = gpu.Of(gpu.Float64)
		default:
			call.Output = gpu.SumType(x.typ)
		}
	}
	return call, nil
}

// replace copies a tree. A node for which f returns a node is replaced by it.
func replace(n Node, f func(Node) (Node, error)) (Node, error) {
	if r, err := f(n); r != nil || err != nil {
		return r, err
	}
	var first error
	sub := func(n Node) Node {
		if n == nil || first != nil {
			return n
		}
		r, err := replace(n, f)
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
	case *intervalNode:
		c := *n
		c.value = sub(n.value)
		out = &c
	case *unaryNode:
		c := *n
		c.x = sub(n.x)
		out = &c
	case *binaryNode:
		c := *n
		c.l, c.r = sub(n.l), sub(n.r)
		out = &c
	case *logicNode:
		c := *n
		c.args = list(n.args)
		out = &c
	case *betweenNode:
		c := *n
		c.x, c.lo, c.hi = sub(n.x), sub(n.lo), sub(n.hi)
		out = &c
	case *inNode:
		c := *n
		c.x, c.list = sub(n.x), list(n.list)
		out = &c
	case *likeNode:
		c := *n
		c.x, c.pattern, c.escape = sub(n.x), sub(n.pattern), sub(n.escape)
		out = &c
	case *isNode:
		c := *n
		c.x, c.y = sub(n.x), sub(n.y)
		out = &c
	case *caseNode:
		c := *n
		c.operand, c.otherwise = sub(n.operand), sub(n.otherwise)
		c.whens = make([][2]Node, len(n.whens))
		for i, w := range n.whens {
			c.whens[i] = [2]Node{sub(w[0]), sub(w[1])}
		}
		out = &c
	case *castNode:
		c := *n
		c.x = sub(n.x)
		out = &c
	case *callNode:
		c := *n
		c.args = list(n.args)
		out = &c
	default:
		out = n
	}
	return out, first
}
