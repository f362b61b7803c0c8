package syntax

import "strings"

func (n *StarExpr) String() string  { return text(n) }
func (n *Subquery) String() string  { return text(n) }
func (n *Row) String() string       { return text(n) }
func (n *Struct) String() string    { return text(n) }
func (n *Parameter) String() string { return text(n) }

// String returns SQL that parses to the same tree.
func (n *Query) String() string { return text(n) }

func (n *StarExpr) children() []Node {
	list := []Node{n.Pattern}
	for _, c := range n.Star.Replace {
		list = append(list, c.X)
	}
	return list
}

func (n *StarExpr) write(b *strings.Builder) {
	if n.Columns && (n.Pattern == nil || n.Like != "") {
		b.WriteString("COLUMNS(")
		defer b.WriteByte(')')
	}
	if n.Table != "" {
		writeIdent(b, n.Table)
		b.WriteByte('.')
	}
	if n.Pattern != nil && n.Like == "" {
		b.WriteString("COLUMNS(")
		n.Pattern.write(b)
		b.WriteByte(')')
		return
	}
	b.WriteByte('*')
	for i, c := range n.Exclude {
		writeItem(b, i, " EXCLUDE (")
		c.write(b)
	}
	closeItems(b, len(n.Exclude))
	for i, c := range n.Star.Replace {
		writeItem(b, i, " REPLACE (")
		c.X.write(b)
		b.WriteString(" AS ")
		c.StarName.write(b)
	}
	closeItems(b, len(n.Star.Replace))
	for i, c := range n.Rename {
		writeItem(b, i, " RENAME (")
		c.StarName.write(b)
		b.WriteString(" AS ")
		writeIdent(b, c.As)
	}
	closeItems(b, len(n.Rename))
	if n.Like != "" {
		if n.Not {
			b.WriteString(" NOT")
		}
		b.WriteString(" " + n.Like + " ")
		n.Pattern.write(b)
	}
}

// writeItem writes what stands before the item i of a list.
func writeItem(b *strings.Builder, i int, first string) {
	if i == 0 {
		b.WriteString(first)
	} else {
		b.WriteString(", ")
	}
}

func closeItems(b *strings.Builder, n int) {
	if n > 0 {
		b.WriteByte(')')
	}
}

func (n StarName) write(b *strings.Builder) {
	if n.Table != "" {
		writeIdent(b, n.Table)
		b.WriteByte('.')
	}
	writeIdent(b, n.Name)
}

func (n *Subquery) write(b *strings.Builder) {
	switch n.Kind {
	case "":
		writeQuery(b, n.Query)
		return
	case "EXISTS":
		if n.Not {
			b.WriteString("(NOT ")
			defer b.WriteByte(')')
		}
		b.WriteString("EXISTS ")
	default:
		b.WriteByte('(')
		defer b.WriteByte(')')
		n.X.write(b)
		b.WriteString(" " + n.Op + " " + n.Kind + " ")
	}
	writeQuery(b, n.Query)
}

// writeQuery writes a query in parentheses.
func writeQuery(b *strings.Builder, q *Query) {
	b.WriteByte('(')
	q.write(b)
	b.WriteByte(')')
}

func (n *Row) write(b *strings.Builder) {
	if n.List {
		b.WriteByte('[')
		writeList(b, n.Items, ", ")
		b.WriteByte(']')
		return
	}
	if len(n.Items) < 2 {
		b.WriteString("ROW")
	}
	b.WriteByte('(')
	writeList(b, n.Items, ", ")
	b.WriteByte(')')
}

func (n *Struct) write(b *strings.Builder) {
	for i, x := range n.Values {
		b.WriteString([]string{"{", ", "}[min(i, 1)] + Quote(n.Names[i]) + ": ")
		x.write(b)
	}
	b.WriteByte('}')
}

func (n *Parameter) write(b *strings.Builder) { b.WriteString("$" + n.Name) }

func (n *Query) write(b *strings.Builder) {
	for i, c := range n.With {
		if i == 0 {
			b.WriteString("WITH ")
			if n.Recursive {
				b.WriteString("RECURSIVE ")
			}
		} else {
			b.WriteString(", ")
		}
		writeIdent(b, c.Name)
		writeNames(b, c.Columns)
		b.WriteString(" AS ")
		if c.Materialized != nil {
			if !*c.Materialized {
				b.WriteString("NOT ")
			}
			b.WriteString("MATERIALIZED ")
		}
		writeQuery(b, c.Query)
		if i == len(n.With)-1 {
			b.WriteByte(' ')
		}
	}
	writeBody(b, n.Body)
	if n.OrderAll != nil {
		b.WriteString(" ORDER BY ALL")
		writeDirection(b, *n.OrderAll)
	}
	if len(n.Order) > 0 {
		b.WriteByte(' ')
		writeOrder(b, n.Order)
	}
	writeClause(b, " LIMIT ", n.Limit)
	if n.Percent {
		b.WriteByte('%')
	}
	writeClause(b, " OFFSET ", n.Offset)
}

// writeBody writes an operand of a set operation, or the body of a query.
func writeBody(b *strings.Builder, body QueryBody) {
	switch body := body.(type) {
	case *Query:
		writeQuery(b, body)
	case *Pivot:
		body.writeBody(b)
	case *Unpivot:
		body.writeBody(b)
	case *Describe: // in parentheses it is a query
		b.WriteByte('(')
		body.write(b)
		b.WriteByte(')')
	default:
		body.write(b)
	}
}

func writeClause(b *strings.Builder, word string, x Node) {
	if x != nil {
		b.WriteString(word)
		x.write(b)
	}
}

// writeNames writes (a, b, …) unless there are none.
func writeNames(b *strings.Builder, names []string) {
	for i, n := range names {
		writeItem(b, i, "(")
		writeIdent(b, n)
	}
	closeItems(b, len(names))
}

func (n *SetOperation) write(b *strings.Builder) {
	// The left operands of a long chain are written from the first one.
	chain := []*SetOperation{n}
	for {
		left, ok := chain[len(chain)-1].Left.(*SetOperation)
		if !ok {
			break
		}
		chain = append(chain, left)
	}
	writeBody(b, chain[len(chain)-1].Left)
	for i := len(chain) - 1; i >= 0; i-- {
		o := chain[i]
		b.WriteString(" " + o.Op)
		if o.All {
			b.WriteString(" ALL")
		}
		if o.ByName {
			b.WriteString(" BY NAME")
		}
		b.WriteByte(' ')
		writeBody(b, o.Right)
	}
}

func (n *RowValues) write(b *strings.Builder) {
	for i, row := range n.Rows {
		writeItem(b, i, "VALUES ")
		b.WriteByte('(')
		writeList(b, row, ", ")
		b.WriteByte(')')
	}
}

func (n *Select) write(b *strings.Builder) {
	b.WriteString("SELECT ")
	if n.Distinct {
		b.WriteString("DISTINCT ")
	}
	if len(n.DistinctOn) > 0 {
		b.WriteString("ON (")
		writeList(b, n.DistinctOn, ", ")
		b.WriteString(") ")
	}
	writeItems(b, n.Items)
	for i, t := range n.From {
		writeItem(b, i, " FROM ")
		t.write(b)
	}
	writeClause(b, " WHERE ", n.Where)
	if n.GroupAll {
		b.WriteString(" GROUP BY ALL")
	}
	for i, g := range n.Group {
		writeItem(b, i, " GROUP BY ")
		g.write(b)
	}
	writeClause(b, " HAVING ", n.Having)
	for i, w := range n.Windows {
		writeItem(b, i, " WINDOW ")
		writeIdent(b, w.Name)
		b.WriteString(" AS (" + w.Window.String() + ")")
	}
	writeClause(b, " QUALIFY ", n.Qualify)
	if n.Sample != nil {
		b.WriteString(" USING SAMPLE ")
		n.Sample.write(b)
	}
}

// writeItems writes expressions with their aliases.
func writeItems(b *strings.Builder, items []SelectItem) {
	for i, item := range items {
		writeItem(b, i, "")
		item.X.write(b)
		if item.Alias != "" {
			b.WriteString(" AS ")
			writeIdent(b, item.Alias)
		}
	}
}

func (g GroupItem) write(b *strings.Builder) {
	switch {
	case g.X != nil:
		call, ok := g.X.(*Call)
		if ok && (strings.EqualFold(call.Name, "ROLLUP") || strings.EqualFold(call.Name, "CUBE")) {
			b.WriteByte('(') // a function of this name
			defer b.WriteByte(')')
		}
		g.X.write(b)
	case g.Kind == "GROUPING SETS":
		for i, s := range g.Sets {
			writeItem(b, i, "GROUPING SETS (")
			s.write(b)
		}
		b.WriteByte(')')
	case g.Kind == "":
		writeGroupList(b, g.Lists[0])
	default:
		for i, list := range g.Lists {
			writeItem(b, i, g.Kind+" (")
			writeGroupList(b, list)
		}
		b.WriteByte(')')
	}
}

func writeGroupList(b *strings.Builder, list []Node) {
	if len(list) == 1 {
		list[0].write(b)
		return
	}
	b.WriteByte('(')
	writeList(b, list, ", ")
	b.WriteByte(')')
}

func (s *Sample) write(b *strings.Builder) {
	b.WriteString(s.Method + "(")
	s.Size.write(b)
	if s.Percent {
		b.WriteString(" PERCENT)")
	} else {
		b.WriteString(" ROWS)")
	}
	if s.Seed != nil {
		b.WriteString(" REPEATABLE (")
		s.Seed.write(b)
		b.WriteByte(')')
	}
}

func (a Alias) write(b *strings.Builder) {
	if a.Name != "" {
		b.WriteString(" AS ")
		writeIdent(b, a.Name)
		writeNames(b, a.Columns)
	}
	if a.Sample != nil {
		b.WriteString(" TABLESAMPLE ")
		a.Sample.write(b)
	}
}

func (n *TableName) write(b *strings.Builder) {
	if n.Path {
		(&StringLiteral{Text: n.Parts[0], hidden: n.hidden}).write(b)
	} else {
		for i, p := range n.Parts {
			if i > 0 {
				b.WriteByte('.')
			}
			writeIdent(b, p)
		}
	}
	n.Alias.write(b)
}

func (n *TableFunction) write(b *strings.Builder) {
	if n.Lateral {
		b.WriteString("LATERAL ")
	}
	writeIdent(b, n.Call.Name)
	b.WriteByte('(')
	writeList(b, n.Call.Args, ", ")
	for i, a := range n.Named {
		if i > 0 || len(n.Call.Args) > 0 {
			b.WriteString(", ")
		}
		writeIdent(b, a.Name)
		b.WriteString(" := ")
		a.Value.write(b)
	}
	b.WriteByte(')')
	if n.Ordinality {
		b.WriteString(" WITH ORDINALITY")
	}
	n.Alias.write(b)
}

func (n *TableQuery) write(b *strings.Builder) {
	if n.Lateral {
		b.WriteString("LATERAL ")
	}
	writeQuery(b, n.Query)
	n.Alias.write(b)
}

func (n *JoinedTable) write(b *strings.Builder) {
	if n.Alias.Name != "" || n.Alias.Sample != nil {
		b.WriteByte('(')
		defer n.Alias.write(b)
		defer b.WriteByte(')')
	}
	n.Left.write(b)
	if n.Natural {
		b.WriteString(" NATURAL")
	}
	if n.AsOf {
		b.WriteString(" ASOF")
	}
	b.WriteString(" " + n.Kind + " JOIN ")
	writeOperand(b, n.Right)
	writeClause(b, " ON ", n.On)
	if len(n.Using) > 0 {
		b.WriteString(" USING ")
		writeNames(b, n.Using)
	}
}
