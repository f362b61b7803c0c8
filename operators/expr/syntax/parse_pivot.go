package syntax

// pivot parses PIVOT (aggregates FOR column IN (values) … [GROUP BY columns]) [alias] after a table.
func (p *parser) pivot(t TableRef) (TableRef, error) {
	if err := p.link(); err != nil {
		return nil, err
	}
	n := &Pivot{Base: p.at(p.advance().pos), Table: t}
	err := p.expect("(")
	if err == nil {
		n.Aggregates, err = p.aggregates()
	}
	if err == nil && !p.accept("FOR") {
		err = p.unexpected("a comma or FOR and the column of PIVOT")
	}
	for err == nil {
		var c PivotColumn
		if c, err = p.pivotColumn(); err == nil && c.Query != nil {
			err = NewError(p.src, c.Query.Pos(), "a query after IN is possible in PIVOT table ON … only")
		} else if err == nil && len(c.In) == 0 {
			err = p.unexpected("IN and the values of PIVOT")
		}
		n.On = append(n.On, c)
		if p.peek().is(")") || p.peek().is("GROUP") {
			break
		}
	}
	if err == nil {
		n.Group, err = p.pivotGroup()
	}
	if err == nil {
		err = p.expect(")")
	}
	if err != nil {
		return nil, err
	}
	return p.afterTable(n, Alias{}, false)
}

// pivotStatement parses PIVOT table [ON columns] [USING aggregates] [GROUP BY columns].
func (p *parser) pivotStatement() (_ *Pivot, err error) {
	n := &Pivot{Base: p.at(p.advance().pos)}
	if n.Table, err = p.tableRef(); err != nil {
		return nil, err
	}
	if p.accept("ON") {
		for more := true; more; more = p.another() {
			c, err := p.pivotColumn()
			if err != nil {
				return nil, err
			}
			n.On = append(n.On, c)
		}
	}
	if p.accept("USING") {
		if n.Aggregates, err = p.aggregates(); err != nil {
			return nil, err
		}
	}
	if n.Group, err = p.pivotGroup(); err == nil && len(n.On)+len(n.Aggregates)+len(n.Group) == 0 {
		err = p.unexpected("ON, USING or GROUP BY after the table of PIVOT")
	}
	return n, err
}

// aggregates parses aggregates and their aliases.
func (p *parser) aggregates() (list []SelectItem, err error) {
	for more := true; more; more = p.another() {
		var item SelectItem
		if item.X, err = p.expression(bindNone); err != nil {
			return nil, err
		}
		if item.Alias, err = p.columnAlias(); err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

// pivotColumn parses column [IN (values)|(query)].
func (p *parser) pivotColumn() (c PivotColumn, err error) {
	if c.X, err = p.expression(bindBetween); err != nil {
		return c, err
	}
	if !p.accept("IN") {
		c.X, err = p.after(c.X, bindNone)
		return c, err
	}
	if p.peek().query {
		c.Query, err = p.queryInParentheses()
		return c, err
	}
	if !p.accept("(") {
		return c, p.unexpected("the values of PIVOT in parentheses")
	}
	if c.In, err = p.aggregates(); err != nil {
		return c, err
	}
	if !p.accept(")") {
		return c, p.unexpected("a comma or )")
	}
	return c, nil
}

// pivotGroup parses [GROUP BY columns].
func (p *parser) pivotGroup() (list []Node, err error) {
	if !p.acceptAll("GROUP", "BY") {
		return nil, nil
	}
	for more := true; more; more = p.another() {
		pos := p.peek().pos
		name, err := p.name("a column")
		if err != nil {
			return nil, err
		}
		list = append(list, &Name{p.at(pos), []string{name}})
	}
	return list, nil
}

// unpivot parses UNPIVOT [INCLUDE|EXCLUDE NULLS] (values FOR name IN (columns)) [alias] after a table.
func (p *parser) unpivot(t TableRef) (_ TableRef, err error) {
	if err := p.link(); err != nil {
		return nil, err
	}
	n := &Unpivot{Base: p.at(p.advance().pos), Table: t}
	if n.IncludeNulls = p.acceptAll("INCLUDE", "NULLS"); !n.IncludeNulls {
		p.acceptAll("EXCLUDE", "NULLS")
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	if p.peek().is("(") {
		n.Values, err = p.names("the name of a column of values")
	} else {
		var name string
		name, err = p.name("the name of the column of values")
		n.Values = []string{name}
	}
	if err == nil && !p.accept("FOR") {
		err = p.unexpected("FOR and the name of the column of names")
	}
	if err == nil {
		n.Name, err = p.name("the name of the column of names")
	}
	if err == nil {
		err = p.expect("IN")
	}
	if err == nil {
		err = p.expect("(")
	}
	if err == nil {
		err = p.unpivotColumns(n)
	}
	for i := 0; i < 2 && err == nil; i++ {
		err = p.expect(")")
	}
	if err != nil {
		return nil, err
	}
	return p.afterTable(n, Alias{}, false)
}

// unpivotStatement parses UNPIVOT table ON columns [INTO NAME name VALUE values].
func (p *parser) unpivotStatement() (_ *Unpivot, err error) {
	n := &Unpivot{Base: p.at(p.advance().pos), Name: "name", Values: []string{"value"}}
	if n.Table, err = p.tableRef(); err != nil {
		return nil, err
	}
	if !p.accept("ON") {
		return nil, p.unexpected("ON and the columns of UNPIVOT")
	}
	if err := p.unpivotColumns(n); err != nil || !p.accept("INTO") {
		return n, err
	}
	if err := p.expect("NAME"); err != nil {
		return nil, err
	}
	if n.Name, err = p.name("the name of the column of names"); err != nil {
		return nil, err
	}
	if !p.accept("VALUE") && !p.accept("VALUES") {
		return nil, p.unexpected("VALUE and the name of the column of values")
	}
	n.Values = nil
	for more := true; more; more = p.another() {
		name, err := p.name("the name of a column of values")
		if err != nil {
			return nil, err
		}
		n.Values = append(n.Values, name)
	}
	return n, nil
}

// unpivotColumns parses the columns of UNPIVOT with their aliases: expressions, lists of expressions, and stars.
func (p *parser) unpivotColumns(n *Unpivot) error {
	for more := true; more; more = p.another() {
		c, err := p.unpivotColumn()
		if err != nil {
			return err
		}
		n.Columns = append(n.Columns, c)
	}
	return nil
}

func (p *parser) unpivotColumn() (c UnpivotColumns, err error) {
	in := p.peek().is("(") && p.ahead(1).is("*") && p.accept("(")
	if t := p.peek(); t.is("*") {
		star, err := p.star(t.pos, "")
		if err == nil && in {
			err = p.expect(")")
		}
		c.Xs = []Node{star}
		return c, err
	}
	x, err := p.expression(bindNone)
	if err != nil {
		return c, err
	}
	c.Xs = rowItems(x)
	c.Alias, err = p.columnAlias()
	return c, err
}
