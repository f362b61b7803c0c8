package syntax

import "strings"

// String returns SQL that parses to the same tree.
func (n *Copy) String() string { return statementText(n.write) }

// String returns SQL that parses to the same tree.
func (n *CreateView) String() string { return statementText(n.write) }

// String returns SQL that parses to the same tree.
func (n *CreateMacro) String() string { return statementText(n.write) }

// String returns SQL that parses to the same tree.
func (n *CreateType) String() string { return statementText(n.write) }

// String returns SQL that parses to the same tree.
func (n *Explain) String() string {
	if n.Analyze {
		return "EXPLAIN ANALYZE " + n.Statement.String()
	}
	return "EXPLAIN " + n.Statement.String()
}

// String returns SQL that parses to the same tree.
func (n *Describe) String() string { return statementText(n.write) }

// String returns SQL that parses to the same tree.
func (n *Set) String() string { return "SET " + QuoteName(n.Name) + " = " + n.Value.String() }

func statementText(write func(b *strings.Builder)) string {
	var b strings.Builder
	write(&b)
	return b.String()
}

func (n *Describe) write(b *strings.Builder) {
	b.WriteString(map[bool]string{false: "DESCRIBE ", true: "SUMMARIZE "}[n.Summarize])
	writeQuery(b, n.Query)
}

func (n *Copy) write(b *strings.Builder) {
	b.WriteString("COPY ")
	writeQuery(b, n.Query)
	writeClause(b, " TO ", &StringLiteral{Text: n.To, hidden: n.hidden})
	for i, o := range n.Options {
		writeItem(b, i, " (")
		writeIdent(b, o.Name)
		writeClause(b, " ", o.Value)
	}
	closeItems(b, len(n.Options))
}

// writeCreate writes CREATE and the words before the name.
func writeCreate(b *strings.Builder, what string, replace, temp, ifNotExists bool, name string) {
	b.WriteString("CREATE ")
	if replace {
		b.WriteString("OR REPLACE ")
	}
	if temp {
		b.WriteString("TEMP ")
	}
	b.WriteString(what)
	if ifNotExists {
		b.WriteString("IF NOT EXISTS ")
	}
	writeIdent(b, name)
}

func (n *CreateView) write(b *strings.Builder) {
	what := "VIEW "
	if n.Table {
		what = "TABLE "
	}
	writeCreate(b, what, n.Replace, n.Temp, n.IfNotExists, n.Name)
	writeNames(b, n.Columns)
	b.WriteString(" AS ")
	n.Query.write(b)
}

func (n *CreateType) write(b *strings.Builder) {
	writeCreate(b, "TYPE ", n.Replace, n.Temp, n.IfNotExists, n.Name)
	b.WriteString(" AS " + n.Type.String())
}

func (n *CreateMacro) write(b *strings.Builder) {
	writeCreate(b, "MACRO ", n.Replace, n.Temp, n.IfNotExists, n.Name)
	b.WriteByte('(')
	for i, name := range n.Parameters {
		writeItem(b, i, "")
		writeIdent(b, name)
		if d := i - (len(n.Parameters) - len(n.Defaults)); d >= 0 {
			b.WriteString(" := ")
			n.Defaults[d].Value.write(b)
		}
	}
	b.WriteString(") AS ")
	if n.X != nil {
		n.X.write(b)
		return
	}
	b.WriteString("TABLE ")
	n.Query.write(b)
}

func (n *Pivot) write(b *strings.Builder) {
	n.writeTable(b)
	n.Alias.write(b)
}

// writeTable writes the table without its alias.
func (n *Pivot) writeTable(b *strings.Builder) {
	writePivoted(b, n.Table)
	b.WriteString(" PIVOT (")
	writeItems(b, n.Aggregates)
	b.WriteString(" FOR")
	for _, c := range n.On {
		b.WriteByte(' ')
		c.write(b)
	}
	n.writeGroup(b)
	b.WriteByte(')')
}

// writeBody writes the statement PIVOT.
func (n *Pivot) writeBody(b *strings.Builder) {
	b.WriteString("PIVOT ")
	n.Table.write(b)
	for i, c := range n.On {
		writeItem(b, i, " ON ")
		c.write(b)
	}
	if len(n.Aggregates) > 0 {
		b.WriteString(" USING ")
		writeItems(b, n.Aggregates)
	}
	n.writeGroup(b)
}

func (n *Pivot) writeGroup(b *strings.Builder) {
	for i, x := range n.Group {
		writeItem(b, i, " GROUP BY ")
		x.write(b)
	}
}

func (c PivotColumn) write(b *strings.Builder) {
	c.X.write(b)
	if c.Query != nil {
		b.WriteString(" IN (")
		writeQuery(b, c.Query)
		b.WriteByte(')')
	}
	if len(c.In) > 0 {
		b.WriteString(" IN (")
		writeItems(b, c.In)
		b.WriteByte(')')
	}
}

func (n *Unpivot) write(b *strings.Builder) {
	n.writeTable(b)
	n.Alias.write(b)
}

// writeTable writes the table without its alias.
func (n *Unpivot) writeTable(b *strings.Builder) {
	writePivoted(b, n.Table)
	b.WriteString(" UNPIVOT ")
	if n.IncludeNulls {
		b.WriteString("INCLUDE NULLS ")
	}
	b.WriteByte('(')
	if len(n.Values) == 1 {
		writeIdent(b, n.Values[0])
	} else {
		writeNames(b, n.Values)
	}
	b.WriteString(" FOR ")
	writeIdent(b, n.Name)
	b.WriteString(" IN (")
	n.writeColumns(b)
	b.WriteString("))")
}

// writeBody writes the statement UNPIVOT.
func (n *Unpivot) writeBody(b *strings.Builder) {
	b.WriteString("UNPIVOT ")
	n.Table.write(b)
	b.WriteString(" ON ")
	n.writeColumns(b)
	b.WriteString(" INTO NAME ")
	writeIdent(b, n.Name)
	for i, v := range n.Values {
		writeItem(b, i, " VALUE ")
		writeIdent(b, v)
	}
}

func (n *Unpivot) writeColumns(b *strings.Builder) {
	for i, c := range n.Columns {
		writeItem(b, i, "")
		writeGroupList(b, c.Xs)
		if c.Alias != "" {
			b.WriteString(" AS ")
			writeIdent(b, c.Alias)
		}
	}
}

// writePivoted writes the table of PIVOT and UNPIVOT.
func writePivoted(b *strings.Builder, t TableRef) {
	if _, ok := t.(*JoinedTable); ok {
		writeOperand(b, t)
		return
	}
	t.write(b)
}

// writeOperand writes the right table of a join, so that what follows belongs to all of it.
func writeOperand(b *strings.Builder, t TableRef) {
	var write func(*strings.Builder)
	switch t := t.(type) {
	case *JoinedTable:
		if t.Alias.Name != "" || t.Alias.Sample != nil {
			t.write(b)
			return
		}
		write = t.write
	case *Pivot:
		write = t.writeTable
	case *Unpivot:
		write = t.writeTable
	default:
		t.write(b)
		return
	}
	b.WriteByte('(')
	write(b)
	b.WriteByte(')')
	aliasOf(t).write(b)
}
