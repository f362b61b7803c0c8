package logical

// remembered returns a function that rewrites nodes by rewrite, and each node once: one that several nodes read
// stays shared. rewrite calls again for what it does not rewrite itself.
func remembered(rewrite func(n Node, again func(Node) Node) Node) func(Node) Node {
	done := map[Node]Node{}
	var again func(Node) Node
	again = func(n Node) Node {
		out, ok := done[n]
		if !ok {
			out = rewrite(n, again)
			done[n] = out
		}
		return out
	}
	return again
}

// visit calls f for a node and all below it, each once, a node after its inputs.
func visit(n Node, f func(Node)) {
	remembered(func(n Node, again func(Node) Node) Node {
		for _, in := range Inputs(n) {
			again(in)
		}
		f(n)
		return n
	})(n)
}

// Inputs returns the relations that a node reads.
func Inputs(n Node) []Node {
	switch n := n.(type) {
	case *Scan:
		return nil
	case *Filter:
		return []Node{n.In}
	case *Project:
		return []Node{n.In}
	case *Join:
		return []Node{n.Left, n.Right}
	case *Expand:
		return []Node{n.In}
	case *Group:
		return []Node{n.In}
	case *Window:
		return []Node{n.In}
	case *Sort:
		return []Node{n.In}
	case *Limit:
		return []Node{n.In}
	case *Union:
		return n.Ins
	case *Held:
		return []Node{n.In}
	}
	panic("logical: unknown node")
}

// withInputs returns a node with other inputs of the same columns, which f makes. It is the node if f changes none.
func withInputs(n Node, f func(Node) Node) Node {
	old := Inputs(n)
	ins := make([]Node, len(old))
	same := true
	for i, in := range old {
		ins[i] = f(in)
		same = same && ins[i] == in
	}
	if same {
		return n
	}
	r := n.Rel()
	switch n := n.(type) {
	case *Filter:
		return newFilter(r.Step, ins[0], n.Conjuncts)
	case *Project:
		return newProject(r.Step, ins[0], n.Exprs, n.Schema.Names(), n.tables)
	case *Join:
		j := newJoin(r.Step, ins[0], ins[1], n.JoinSpec)
		j.Order = n.Order
		return j
	case *Expand:
		return newExpand(r.Step, ins[0], n.Variants, n.Numbered)
	case *Group:
		return n.over(ins[0])
	case *Window:
		return newWindow(r.Step, ins[0], n.Partition, n.Order, n.Functions,
			n.Schema.Names()[ins[0].Rel().Schema.Len():])
	case *Sort:
		return newSort(r.Step, ins[0], n.Keys, n.Offset, n.Limit)
	case *Limit:
		return newLimit(r.Step, ins[0], n.Offset, n.Count)
	case *Union:
		return newUnion(r.Step, ins)
	case *Held:
		return newHeld(ins[0], n.Share)
	}
	panic("logical: unknown node")
}
