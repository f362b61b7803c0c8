package syntax

import "strings"

// tables parses the tables after FROM, which commas separate.
func (p *parser) tables() (list []TableRef, err error) {
	for more := true; more; more = p.accept(",") && p.startsTable() {
		t, err := p.tableRef()
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// startsTable reports whether the next token can begin a table.
func (p *parser) startsTable() bool {
	t := p.peek()
	return p.isName() || t.is("(") || t.kind == tokenString || t.is("LATERAL") || t.is("PIVOT") || t.is("UNPIVOT")
}

// tableRef parses a table and the tables that are joined with it.
func (p *parser) tableRef() (TableRef, error) {
	done, err := p.nest()
	if err != nil {
		return nil, err
	}
	defer done()
	left, err := p.table()
	if err != nil {
		return nil, err
	}
	return p.joins(left)
}

// joins parses the joins, PIVOT and UNPIVOT after a table.
func (p *parser) joins(left TableRef) (_ TableRef, err error) {
	for err == nil {
		switch {
		case p.startsJoin():
			left, err = p.join(left)
		case p.peek().is("PIVOT"):
			left, err = p.pivot(left)
		case p.peek().is("UNPIVOT"):
			left, err = p.unpivot(left)
		default:
			return left, nil
		}
	}
	return nil, err
}

// startsJoin reports whether the next token continues a table with a join.
func (p *parser) startsJoin() bool {
	t := p.peek()
	if t.kind != tokenIdent {
		return false
	}
	switch strings.ToUpper(t.text) {
	case "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "POSITIONAL", "NATURAL", "ASOF":
		return true
	}
	return false
}

// join parses the join after left.
func (p *parser) join(left TableRef) (_ TableRef, err error) {
	done, err := p.nest()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := p.link(); err != nil {
		return nil, err
	}
	n := &JoinedTable{Base: p.at(p.peek().pos), Kind: "INNER", Left: left}
	n.Natural = p.accept("NATURAL")
	n.AsOf = !n.Natural && p.accept("ASOF")
	conditional := !n.Natural
	switch t := p.peek(); {
	case p.accept("LEFT"), p.accept("RIGHT"), p.accept("FULL"):
		n.Kind = strings.ToUpper(t.text)
		p.accept("OUTER")
	case p.accept("SEMI"), p.accept("ANTI"):
		n.Kind = strings.ToUpper(t.text)
	case !n.Natural && !n.AsOf && (p.accept("CROSS") || p.accept("POSITIONAL")):
		n.Kind = strings.ToUpper(t.text)
		conditional = false
	default:
		p.accept("INNER")
	}
	if !p.accept("JOIN") {
		return nil, p.unexpected("JOIN")
	}
	if n.Right, err = p.table(); err != nil {
		return nil, err
	}
	if !conditional {
		return n, nil
	}
	if n.Right, err = p.joins(n.Right); err != nil { // a JOIN b JOIN c ON … ON …
		return nil, err
	}
	switch {
	case p.accept("ON"):
		n.On, err = p.expression(bindNone)
	case p.accept("USING"):
		n.Using, err = p.names("the name of a column")
	default:
		err = p.unexpected("ON or USING, the condition of the join; CROSS JOIN has none")
	}
	return n, err
}

// table parses a table without joins, its alias, and what follows it.
func (p *parser) table() (TableRef, error) {
	alias, named := Alias{}, false
	if p.isName() && p.ahead(1).is(":") {
		alias.Name, named = p.advance().text, true
		p.advance()
	}
	var t TableRef
	var err error
	first := p.peek()
	switch {
	case first.is("("):
		var q *Query
		if q, t, err = p.queryOrTable(); q != nil {
			t = &TableQuery{Base: p.at(first.pos), Query: q}
		}
	case first.is("LATERAL"):
		t, err = p.lateral()
	case first.is("VALUES") && p.ahead(1).is("("):
		var v *RowValues
		if v, err = p.rowValues(); err == nil {
			t = &TableQuery{Base: p.at(first.pos), Query: &Query{Base: p.at(first.pos), Body: v}}
		}
	default:
		t, err = p.tableOrFunction()
	}
	if err != nil {
		return nil, err
	}
	return p.afterTable(t, alias, named)
}

// afterTable parses the alias of a table, unless it was before a colon, and TABLESAMPLE.
func (p *parser) afterTable(t TableRef, alias Alias, named bool) (_ TableRef, err error) {
	to := aliasOf(t)
	if f, ok := t.(*TableFunction); ok && !f.Ordinality {
		f.Ordinality = p.acceptAll("WITH", "ORDINALITY")
	}
	if !named {
		if alias, err = p.tableAlias(); err != nil {
			return nil, err
		}
	}
	if alias.Name != "" {
		alias.Sample = to.Sample
		*to = alias
	}
	if p.accept("TABLESAMPLE") {
		if to.Sample, err = p.sample(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// aliasOf returns the alias of a table.
func aliasOf(t TableRef) *Alias {
	switch t := t.(type) {
	case *TableName:
		return &t.Alias
	case *TableFunction:
		return &t.Alias
	case *TableQuery:
		return &t.Alias
	case *JoinedTable:
		return &t.Alias
	case *Pivot:
		return &t.Alias
	}
	return &t.(*Unpivot).Alias
}

// tableAlias parses [AS] name [(columns)].
func (p *parser) tableAlias() (a Alias, err error) {
	switch t := p.peek(); {
	case p.accept("AS"):
		if p.peek().kind == tokenString {
			a.Name, err = p.label()
		} else {
			a.Name, err = p.name("the alias of the table")
		}
	case p.isName():
		a.Name = t.text
		p.advance()
	default:
		return a, nil
	}
	if err == nil && p.peek().is("(") {
		a.Columns, err = p.names("the name of a column")
	}
	return a, err
}

// queryOrTable parses a query or joined tables in parentheses. A query in parentheses can be the first joined table.
func (p *parser) queryOrTable() (q *Query, t TableRef, err error) {
	done, err := p.nest()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	open := p.advance()
	inner := p.peek()
	switch {
	case !open.query:
		t, err = p.tableRef()
	case !inner.is("("):
		if q, err = p.query(); err != nil {
			return nil, nil, err
		}
		return q, nil, p.closeQuery()
	default:
		if q, t, err = p.queryOrTable(); err != nil {
			return nil, nil, err
		}
		if q != nil && p.continuesQuery() {
			if q, err = p.queryAfter(inner.pos, q); err == nil {
				err = p.closeQuery()
			}
			return q, nil, err
		}
		if q != nil {
			t = &TableQuery{Base: p.at(inner.pos), Query: q}
		}
		if t, err = p.afterTable(t, Alias{}, false); err == nil {
			t, err = p.joins(t)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	switch t.(type) {
	case *JoinedTable, *Pivot, *Unpivot:
		if aliasOf(t).Name == "" && aliasOf(t).Sample == nil {
			return nil, t, p.expect(")")
		}
	}
	if p.peek().is(")") {
		return nil, nil, NewError(p.src, open.pos, "found one table in parentheses, expected a query or a join; write "+
			"the table without parentheses")
	}
	return nil, nil, p.unexpected("a join or )")
}

// lateral parses the query or the function after LATERAL.
func (p *parser) lateral() (TableRef, error) {
	pos := p.advance().pos
	if !p.peek().is("(") {
		t, err := p.tableOrFunction()
		if err != nil {
			return nil, err
		}
		f, ok := t.(*TableFunction)
		if !ok {
			return nil, NewError(p.src, t.Pos(), "found a table after LATERAL, expected a query in parentheses or a "+
				"table function")
		}
		f.Lateral = true
		return f, nil
	}
	q, err := p.queryInParentheses()
	return &TableQuery{Base: p.at(pos), Query: q, Lateral: true}, err
}

// tableName parses a name with qualifiers, or the path of a file in quotes.
func (p *parser) tableName() (*TableName, error) {
	t := p.peek()
	n := &TableName{Base: p.at(t.pos)}
	if t.kind == tokenString {
		p.advance()
		n.Parts, n.Path, n.hidden = []string{t.text}, true, t.hidden
		return n, nil
	}
	name, err := p.name("a table")
	if err != nil {
		return nil, err
	}
	n.Parts = []string{name}
	for p.accept(".") {
		part := p.peek()
		if part.kind != tokenIdent && part.kind != tokenQuoted {
			return nil, p.unexpected("the name of a table")
		}
		p.advance()
		n.Parts = append(n.Parts, part.text)
	}
	return n, nil
}

// tableOrFunction parses the name of a table or the call of a table function.
func (p *parser) tableOrFunction() (TableRef, error) {
	t := p.peek()
	if t.kind == tokenIdent && functionKeywords[strings.ToUpper(t.text)] && p.ahead(1).is("(") {
		p.advance()
		return p.tableFunction(t)
	}
	n, err := p.tableName()
	if err != nil || n.Path || !p.peek().is("(") {
		return n, err
	}
	if len(n.Parts) > 1 {
		return nil, NewError(p.src, t.pos, "a function has no schema: write %s(…)", n.Parts[len(n.Parts)-1])
	}
	return p.tableFunction(t)
}

// tableFunction parses the arguments of a table function, with and without names.
func (p *parser) tableFunction(name token) (*TableFunction, error) {
	p.advance()
	f := &TableFunction{Base: p.at(name.pos), Call: &Call{Name: strings.ToLower(name.text)}}
	for more := !p.peek().is(")"); more; more = p.another() {
		t, sign := p.peek(), p.ahead(1)
		if p.isName() && (sign.is("=") || sign.is(":") && p.ahead(2).is("=")) { // =, => and :=
			p.next += 2
			_ = sign.is(":") && p.accept("=") || p.accept(">")
			parse := p.argument
			if p.peek().is("{") {
				parse = p.structure
			}
			x, err := parse()
			if err != nil {
				return nil, err
			}
			f.Named = append(f.Named, NamedArgument{p.at(t.pos), t.text, x})
			continue
		}
		if len(f.Named) > 0 {
			return nil, NewError(p.src, t.pos, "an argument without a name stands before those with names")
		}
		argument := p.argument
		if f.Call.Name == "unnest" { // of a list, which is an expression
			argument = func() (Node, error) { return p.expression(bindNone) }
		}
		x, err := argument()
		if err != nil {
			return nil, err
		}
		f.Call.Args = append(f.Call.Args, x)
	}
	f.Call.Base = p.at(name.pos, f.Call.Args...)
	if !p.accept(")") {
		return nil, p.unexpected("a comma or )")
	}
	return f, nil
}

// argument parses an argument of a table function: an expression, or a list of values [a, b].
func (p *parser) argument() (Node, error) {
	open := p.peek()
	if !p.accept("[") {
		return p.expression(bindNone)
	}
	n := &Row{List: true}
	if t := p.peek(); t.is("]") {
		return nil, NewError(p.src, open.pos, "found a list without values")
	}
	for more := true; more; more = p.accept(",") && !p.peek().is("]") {
		x, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		n.Items = append(n.Items, x)
	}
	n.Base = p.at(open.pos, n.Items...)
	return n, p.expect("]")
}

// structure parses {'name': value, …}.
func (p *parser) structure() (Node, error) {
	open := p.advance()
	names, values, err := p.fields("a name, as in {'name': value}")
	if err != nil {
		return nil, err
	}
	n := &Struct{Names: names, Values: values}
	n.Base = p.at(open.pos, n.Values...)
	return n, p.expect("}")
}

// fields parses 'a': x, b: y. expected says what a name is, for the error of one that is missing.
func (p *parser) fields(expected string) (names []string, values []Node, err error) {
	for more := true; more; more = p.accept(",") {
		t := p.peek()
		if t.kind != tokenIdent && t.kind != tokenQuoted && t.kind != tokenString {
			return nil, nil, p.unexpected(expected)
		}
		p.advance()
		if err := p.expect(":"); err != nil {
			return nil, nil, err
		}
		x, err := p.expression(bindNone)
		if err != nil {
			return nil, nil, err
		}
		names, values = append(names, t.text), append(values, x)
	}
	return names, values, nil
}
