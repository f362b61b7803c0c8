package rel

// Remembered returns a function that rewrites nodes by rewrite, and each node once: one that several nodes read
// stays shared. rewrite calls again for what it does not rewrite itself.
func Remembered(rewrite func(n Node, again func(Node) Node) Node) func(Node) Node {
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

// Visit calls f for a node and all below it, each once, a node after its inputs.
func Visit(n Node, f func(Node)) {
	Remembered(func(n Node, again func(Node) Node) Node {
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
	case *Scan, *Values, *Working:
		return nil
	case *Filter:
		return []Node{n.In}
	case *Project:
		return []Node{n.In}
	case *Join:
		return []Node{n.Left, n.Right}
	case *Expand:
		return []Node{n.In}
	case *Unnest:
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
	case *Outputs:
		return n.Ins
	case *SetOperation:
		return []Node{n.Left, n.Right}
	case *Apply:
		return []Node{n.Left, n.Right}
	case *Materialized:
		return []Node{n.In}
	case *Recursive:
		return []Node{n.Anchor, n.Step}
	}
	panic("rel: unknown node")
}

// WithInputs returns a node with other inputs, which f makes and which have at least the columns that the node needs.
// It is the node if f changes none.
func WithInputs(n Node, f func(Node) Node) Node {
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
	origin := n.Rel().Origin
	switch n := n.(type) {
	case *Filter:
		return NewFilter(origin, ins[0], n.Conjuncts)
	case *Project:
		return NewProject(origin, ins[0], n.Columns, n.Exprs)
	case *Join:
		j := NewJoin(origin, ins[0], ins[1], n.JoinSpec)
		j.Order = n.Order
		return j
	case *Expand:
		return NewExpand(origin, ins[0], n.Copies, n.Variants, n.Number)
	case *Unnest:
		return NewUnnest(origin, ins[0], n.Lists, n.Elements)
	case *Group:
		return NewGroup(origin, ins[0], n.Keys, n.Aggregates, n.Always, n.Algorithm)
	case *Window:
		return NewWindow(origin, ins[0], n.Partition, n.Order, n.Functions, n.Out)
	case *Sort:
		return NewSort(origin, ins[0], n.Keys, n.Offset, n.Limit)
	case *Limit:
		return NewLimit(origin, ins[0], n.Offset, n.Count)
	case *Union:
		return NewUnion(origin, ins, n.From, n.Columns)
	case *Outputs:
		out := &Outputs{Ins: ins, Of: n.Of}
		out.describe()
		return out
	case *SetOperation:
		return NewSetOperation(origin, n.Op, n.All, ins[0], ins[1], n.LeftColumns, n.RightColumns, n.Columns)
	case *Apply:
		return NewApply(origin, n.Kind, ins[0], ins[1], n.Outer, n.Conditions, n.Mark)
	case *Materialized:
		return NewMaterialized(ins[0], n.Share)
	case *Recursive:
		return NewRecursive(origin, n.Loop, n.All, ins[0], ins[1], n.AnchorColumns, n.StepColumns, n.Columns)
	}
	panic("rel: unknown node")
}
