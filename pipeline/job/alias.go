package job

import "github.com/goccy/go-yaml/ast"

// maxNodes bounds the nodes of a job file after its aliases are expanded.
const maxNodes = 100_000

// aliases expands the aliases of a YAML tree.
type aliases struct {
	*decoder
	anchors map[string]anchored
	nodes   int
}

// anchored is the value of an anchor and the number of its nodes.
type anchored struct {
	value ast.Node
	nodes int
}

// resolve returns a tree without anchors and aliases, and the number of its nodes. The anchor of a
// value is unknown within that value, so no tree is infinite.
func (a *aliases) resolve(n ast.Node) (ast.Node, int) {
	if len(a.faults) > 0 {
		return n, 0
	}
	count := 1
	child := func(n ast.Node) ast.Node {
		out, nodes := a.resolve(n)
		count += nodes
		return out
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		value, nodes := a.resolve(n.Value)
		a.anchors[n.Name.GetToken().Value] = anchored{value, nodes}
		return value, nodes
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		to, ok := a.anchors[name]
		if !ok {
			a.faultf(locationOf(n), "there is no anchor &%s before this alias", name)
			return n, 1
		}
		if a.nodes += to.nodes; a.nodes > maxNodes {
			a.faultf(locationOf(n), "the aliases of the job file stand for more than %d values", maxNodes)
		}
		return to.value, to.nodes
	case *ast.SequenceNode:
		for i := range n.Values {
			n.Values[i] = child(n.Values[i])
		}
	case *ast.MappingValueNode:
		n.Value = child(n.Value)
	case *ast.MappingNode:
		for _, v := range n.Values {
			v.Value = child(v.Value)
		}
		a.merge(n)
	}
	return n, count
}

// merge replaces the merge keys (<<) of a mapping by those entries of their values that the mapping
// does not have.
func (a *aliases) merge(n *ast.MappingNode) {
	has := map[string]bool{}
	for _, v := range n.Values {
		if name, ok := scalarText(v.Key); ok && !v.Key.IsMergeKey() {
			has[name] = true
		}
	}
	var out []*ast.MappingValueNode
	for _, v := range n.Values {
		if !v.Key.IsMergeKey() {
			out = append(out, v)
			continue
		}
		var from []*ast.MappingValueNode
		switch m := v.Value.(type) {
		case *ast.MappingNode:
			from = m.Values
		case *ast.MappingValueNode:
			from = []*ast.MappingValueNode{m}
		default:
			a.faultf(locationOf(v.Key), "<< takes a mapping, not %s", nodeKind(v.Value))
		}
		for _, w := range from {
			if name, _ := scalarText(w.Key); !has[name] {
				has[name] = true
				out = append(out, w)
			}
		}
	}
	n.Values = out
}
