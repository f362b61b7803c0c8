package logical

// sinkLimits moves limits below projections, and merges a limit over a sort into a top-k.
func sinkLimits(n Node, again func(Node) Node) Node {
	if n, ok := n.(*Limit); ok {
		switch in := n.In.(type) {
		case *Project:
			p := in.Rel()
			return newProject(p.Step, again(newLimit(n.Step, in.In, n.Offset, n.Count)), in.Exprs, in.Schema.Names(),
				in.tables)
		case *Sort:
			if in.Limit < 0 && in.Offset == 0 {
				return newSort(in.Step, again(in.In), in.Keys, n.Offset, n.Count)
			}
		}
	}
	return withInputs(n, again)
}
