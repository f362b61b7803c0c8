package syntax

// EachTable calls f for the tables of FROM in a statement and in all queries inside it: each *TableName and
// *TableFunction.
func EachTable(s Statement, f func(TableRef)) {
	v := tableVisitor{f}
	switch s := any(s).(type) {
	case *Query:
		v.query(s)
	case *Copy:
		v.query(s.Query)
	case *CreateView:
		v.query(s.Query)
	case *CreateMacro:
		v.expression(s.X)
		v.query(s.Query)
	case *Explain:
		EachTable(s.Statement, f)
	case *Describe:
		v.query(s.Query)
	}
}

type tableVisitor struct{ found func(TableRef) }

func (v tableVisitor) query(q *Query) {
	if q == nil {
		return
	}
	for i := range q.With {
		v.query(q.With[i].Query)
	}
	v.body(q.Body)
	v.keys(q.Order)
	v.expression(q.Limit)
	v.expression(q.Offset)
}

// body visits chains of set operations without recursion: they may be long.
func (v tableVisitor) body(b QueryBody) {
	for {
		op, ok := b.(*SetOperation)
		if !ok {
			break
		}
		v.body(op.Right)
		b = op.Left
	}
	switch b := b.(type) {
	case *Query:
		v.query(b)
	case *RowValues:
		for _, row := range b.Rows {
			v.expressions(row)
		}
	case *Select:
		v.expressions(b.DistinctOn)
		v.items(b.Items)
		for _, t := range b.From {
			v.table(t)
		}
		v.expression(b.Where)
		v.groups(b.Group)
		v.expression(b.Having)
		for _, w := range b.Windows {
			v.expressions(w.Window.Partition)
			v.keys(w.Window.Order)
		}
		v.expression(b.Qualify)
	}
}

func (v tableVisitor) items(list []SelectItem) {
	for _, x := range list {
		v.expression(x.X)
	}
}

func (v tableVisitor) groups(list []GroupItem) {
	for _, g := range list {
		v.expression(g.X)
		for _, l := range g.Lists {
			v.expressions(l)
		}
		v.groups(g.Sets)
	}
}

func (v tableVisitor) keys(list []OrderKey) {
	for _, k := range list {
		v.expression(k.X)
	}
}

func (v tableVisitor) table(t TableRef) {
	switch t := t.(type) {
	case *TableName:
		v.found(t)
	case *TableFunction:
		v.found(t)
		v.expressions(t.Call.Args)
		for _, a := range t.Named {
			v.expression(a.Value)
		}
	case *TableQuery:
		v.query(t.Query)
	case *JoinedTable:
		v.table(t.Left)
		v.table(t.Right)
		v.expression(t.On)
	case *Pivot:
		v.table(t.Table)
		v.items(t.Aggregates)
	case *Unpivot:
		v.table(t.Table)
	}
}

func (v tableVisitor) expressions(list []Node) {
	for _, n := range list {
		v.expression(n)
	}
}

func (v tableVisitor) expression(n Node) {
	if n == nil {
		return
	}
	Replace(n, func(n Node) (Node, error) {
		if s, ok := n.(*Subquery); ok {
			v.query(s.Query)
		}
		return nil, nil
	})
}
