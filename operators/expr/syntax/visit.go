package syntax

import "slices"

// EachTable calls f for the tables of FROM in a statement and in all queries inside it.
func EachTable(s Statement, f func(TableRef)) {
	_, _ = (&rewriter{table: f}).statement(s) // without a function for expressions there is no error
}

// AliasOf returns the alias of a table, and its sample.
func AliasOf(t TableRef) Alias { return *aliasOf(t) }

// ReplaceAll is Replace for all expressions of a statement, also in the queries inside it.
func ReplaceAll(s Statement, f func(Node) (Node, error)) (Statement, error) {
	return (&rewriter{expression: f}).statement(s)
}

// ReplaceDeep is Replace, and goes into the queries inside an expression.
func ReplaceDeep(n Node, f func(Node) (Node, error)) (Node, error) {
	r := &rewriter{expression: f}
	return r.node(n), r.err
}

// rewriter copies statements.
type rewriter struct {
	expression func(Node) (Node, error) // as for Replace; nil keeps all
	table      func(TableRef)           // nil is none
	err        error                    // the first one
}

func (r *rewriter) statement(s Statement) (Statement, error) {
	switch n := s.(type) {
	case *Query:
		s = r.query(n)
	case *Copy:
		c := *n
		c.Query = r.query(n.Query)
		s = &c
	case *CreateView:
		c := *n
		c.Query = r.query(n.Query)
		s = &c
	case *CreateMacro:
		c := *n
		c.X, c.Query = r.node(n.X), r.query(n.Query)
		s = &c
	case *Explain:
		c := *n
		c.Statement, _ = r.statement(n.Statement)
		s = &c
	case *Describe:
		c := *n
		c.Query = r.query(n.Query)
		s = &c
	case *Set:
		c := *n
		c.Value = r.node(n.Value)
		s = &c
	}
	return s, r.err
}

func (r *rewriter) query(q *Query) *Query {
	if q == nil || r.err != nil {
		return q
	}
	c := *q
	c.With = slices.Clone(q.With)
	for i := range c.With {
		c.With[i].Query = r.query(c.With[i].Query)
	}
	c.Body, c.Order, c.Limit, c.Offset = r.body(q.Body), r.keys(q.Order), r.node(q.Limit), r.node(q.Offset)
	return &c
}

// body copies chains of set operations without recursion: they may be long.
func (r *rewriter) body(b QueryBody) QueryBody {
	var chain []*SetOperation
	for op, ok := b.(*SetOperation); ok; op, ok = b.(*SetOperation) {
		chain, b = append(chain, op), op.Left
	}
	switch n := b.(type) {
	case *Query:
		b = r.query(n)
	case *RowValues:
		c := *n
		c.Rows = make([][]Node, len(n.Rows))
		for i, row := range n.Rows {
			c.Rows[i] = r.nodes(row)
		}
		b = &c
	case *Select:
		b = r.selection(n)
	case *Pivot:
		b = r.tableRef(n).(*Pivot)
	case *Unpivot:
		b = r.tableRef(n).(*Unpivot)
	case *Describe:
		c := *n
		c.Query = r.query(n.Query)
		b = &c
	}
	for _, op := range slices.Backward(chain) {
		c := *op
		c.Left, c.Right = b, r.body(op.Right)
		b = &c
	}
	return b
}

func (r *rewriter) selection(n *Select) *Select {
	c := *n
	c.DistinctOn, c.Items, c.From, c.Where = r.nodes(n.DistinctOn), r.items(n.Items), r.tables(n.From), r.node(n.Where)
	c.Group, c.Having, c.Qualify = r.groups(n.Group), r.node(n.Having), r.node(n.Qualify)
	c.Windows = slices.Clone(n.Windows)
	for i := range c.Windows {
		w := *c.Windows[i].Window
		w.Partition, w.Order = r.nodes(w.Partition), r.keys(w.Order)
		c.Windows[i].Window = &w
	}
	return &c
}

func (r *rewriter) tables(list []TableRef) []TableRef {
	list = slices.Clone(list)
	for i := range list {
		list[i] = r.tableRef(list[i])
	}
	return list
}

func (r *rewriter) tableRef(t TableRef) TableRef {
	if r.table != nil {
		r.table(t)
	}
	switch n := t.(type) {
	case *TableFunction:
		c, call := *n, *n.Call
		call.Args, c.Call, c.Named = r.nodes(call.Args), &call, slices.Clone(n.Named)
		for i := range c.Named {
			c.Named[i].Value = r.node(c.Named[i].Value)
		}
		return &c
	case *TableQuery:
		c := *n
		c.Query = r.query(n.Query)
		return &c
	case *JoinedTable:
		c := *n
		c.Left, c.Right, c.On = r.tableRef(n.Left), r.tableRef(n.Right), r.node(n.On)
		return &c
	case *Pivot:
		c := *n
		c.Table, c.Aggregates, c.Group = r.tableRef(n.Table), r.items(n.Aggregates), r.nodes(n.Group)
		c.On = slices.Clone(n.On)
		for i := range c.On {
			c.On[i].X, c.On[i].In, c.On[i].Query = r.node(c.On[i].X), r.items(c.On[i].In), r.query(c.On[i].Query)
		}
		return &c
	case *Unpivot:
		c := *n
		c.Table, c.Columns = r.tableRef(n.Table), slices.Clone(n.Columns)
		for i := range c.Columns {
			c.Columns[i].Xs = r.nodes(c.Columns[i].Xs)
		}
		return &c
	}
	return t
}

func (r *rewriter) items(list []SelectItem) []SelectItem {
	list = slices.Clone(list)
	for i := range list {
		list[i].X = r.node(list[i].X)
	}
	return list
}

func (r *rewriter) groups(list []GroupItem) []GroupItem {
	list = slices.Clone(list)
	for i := range list {
		g := &list[i]
		g.X, g.Lists, g.Sets = r.node(g.X), slices.Clone(g.Lists), r.groups(g.Sets)
		for k := range g.Lists {
			g.Lists[k] = r.nodes(g.Lists[k])
		}
	}
	return list
}

func (r *rewriter) keys(list []OrderKey) []OrderKey {
	list = slices.Clone(list)
	for i := range list {
		list[i].X = r.node(list[i].X)
	}
	return list
}

func (r *rewriter) nodes(list []Node) []Node {
	list = slices.Clone(list)
	for i := range list {
		list[i] = r.node(list[i])
	}
	return list
}

func (r *rewriter) node(n Node) Node {
	if n == nil || r.err != nil {
		return n
	}
	out, err := Replace(n, func(n Node) (Node, error) {
		if r.expression != nil {
			if x, err := r.expression(n); x != nil || err != nil {
				return x, err
			}
		}
		s, ok := n.(*Subquery)
		if !ok {
			return nil, nil
		}
		c := *s
		c.Query = r.query(s.Query)
		if s.X != nil {
			c.X = r.node(s.X)
		}
		return &c, r.err
	})
	if err != nil {
		r.err = err
		return n
	}
	return out
}
