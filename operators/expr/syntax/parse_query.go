package syntax

import "strings"

// maxChain bounds the set operations, and the joins, of a text, since their trees are as deep.
const maxChain = 10_000

// link counts a set operation or a join.
func (p *parser) link() error {
	if p.chain++; p.chain > maxChain {
		return NewError(p.src, p.peek().pos, "the text has more than %d set operations and joins", maxChain)
	}
	return nil
}

// query parses [WITH …] body [ORDER BY …] [LIMIT …] [OFFSET …].
func (p *parser) query() (*Query, error) {
	done, err := p.nest()
	if err != nil {
		return nil, err
	}
	defer done()
	q := &Query{Base: p.at(p.peek().pos)}
	if p.accept("WITH") {
		q.Recursive = p.accept("RECURSIVE")
		for more := true; more; more = p.another() {
			c, err := p.cte()
			if err != nil {
				return nil, err
			}
			q.With = append(q.With, c)
		}
	}
	first, err := p.operand()
	if err != nil {
		return nil, err
	}
	return p.restOfQuery(q, first)
}

// queryAfter parses the rest of a query that begins with a query in parentheses at pos.
func (p *parser) queryAfter(pos int, first *Query) (*Query, error) {
	return p.restOfQuery(&Query{Base: p.at(pos)}, first)
}

// restOfQuery parses the part of a query after the first operand of its body.
func (p *parser) restOfQuery(q *Query, first QueryBody) (_ *Query, err error) {
	if q.Body, err = p.setOperations(first); err != nil {
		return nil, err
	}
	if p.acceptAll("ORDER", "BY", "ALL") || p.acceptAll("ORDER", "BY", "*") {
		k := OrderKey{}
		if err := p.direction(&k); err != nil {
			return nil, err
		}
		q.OrderAll = &k
	} else if q.Order, err = p.orderBy(); err != nil {
		return nil, err
	}
	if err := p.limit(q); err != nil {
		return nil, err
	}
	// Parentheses around a whole query have no meaning.
	if inner, ok := q.Body.(*Query); ok && len(q.With) == 0 && len(q.Order) == 0 && q.OrderAll == nil &&
		q.Limit == nil && q.Offset == nil {
		return inner, nil
	}
	return q, nil
}

// limit parses LIMIT, OFFSET and FETCH in any order.
func (p *parser) limit(q *Query) (err error) {
	var limited, offset bool
	for {
		t := p.peek()
		switch {
		case !limited && p.acceptAll("LIMIT", "ALL"):
			limited = true
		case !limited && p.accept("LIMIT"):
			limited = true
			if q.Limit, err = p.expression(bindNone); err != nil {
				return err
			}
			q.Percent = p.accept("%") || p.accept("PERCENT")
			if t := p.peek(); t.is(",") {
				return NewError(p.src, t.pos, "found a comma after LIMIT; write LIMIT count OFFSET start")
			}
		case !offset && p.accept("OFFSET"):
			offset = true
			if q.Offset, err = p.expression(bindNone); err != nil {
				return err
			}
			_ = p.accept("ROWS") || p.accept("ROW")
		case !limited && p.accept("FETCH"):
			limited = true
			if !p.accept("FIRST") && !p.accept("NEXT") {
				return p.unexpected("FIRST or NEXT")
			}
			if q.Limit = (&NumberLiteral{p.at(t.pos), "1", ""}); !p.peek().is("ROW") && !p.peek().is("ROWS") {
				if q.Limit, err = p.expression(bindNone); err != nil {
					return err
				}
			}
			if !p.accept("ROW") && !p.accept("ROWS") {
				return p.unexpected("ROW or ROWS")
			}
			if err := p.expect("ONLY"); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// cte parses name [(columns)] AS [[NOT] MATERIALIZED] (query).
func (p *parser) cte() (c CTE, err error) {
	c.Base = p.at(p.peek().pos)
	if c.Name, err = p.name("the name of a query after WITH"); err != nil {
		return c, err
	}
	if p.peek().is("(") {
		if c.Columns, err = p.names("the name of a column"); err != nil {
			return c, err
		}
	}
	if t := p.peek(); t.is("USING") {
		return c, NewError(p.src, t.pos, "USING KEY is not possible in a recursive query; aggregate its rows after it")
	}
	if err := p.expect("AS"); err != nil {
		return c, err
	}
	yes, no := true, false
	switch {
	case p.acceptAll("NOT", "MATERIALIZED"):
		c.Materialized = &no
	case p.accept("MATERIALIZED"):
		c.Materialized = &yes
	}
	c.Query, err = p.queryInParentheses()
	return c, err
}

// queryInParentheses parses (query).
func (p *parser) queryInParentheses() (*Query, error) {
	if t := p.peek(); t.is("(") && !t.query {
		p.advance()
		return nil, p.notAQuery()
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	q, err := p.query()
	if err != nil {
		return nil, err
	}
	return q, p.closeQuery()
}

// notAQuery is the error for a token that begins no query.
func (p *parser) notAQuery() error { return p.unexpected("a query: SELECT, FROM, VALUES or WITH") }

// setOperations parses the set operations after their first operand. INTERSECT binds tighter than UNION and EXCEPT.
func (p *parser) setOperations(left QueryBody) (QueryBody, error) {
	left, err := p.operations(left, "INTERSECT")
	for err == nil && (p.peek().is("UNION") || p.peek().is("EXCEPT")) {
		n, wrong := p.setOperation(left)
		if wrong != nil {
			return nil, wrong
		}
		n.Right, err = p.operations(n.Right, "INTERSECT")
		left = n
	}
	return left, err
}

func (p *parser) operations(left QueryBody, word string) (QueryBody, error) {
	for p.peek().is(word) {
		n, err := p.setOperation(left)
		if err != nil {
			return nil, err
		}
		left = n
	}
	return left, nil
}

func (p *parser) setOperation(left QueryBody) (n *SetOperation, err error) {
	if err := p.link(); err != nil {
		return nil, err
	}
	t := p.advance()
	n = &SetOperation{Base: p.at(t.pos), Op: strings.ToUpper(t.text), Left: left}
	if n.All = p.accept("ALL"); !n.All {
		p.accept("DISTINCT")
	}
	if n.ByName = p.acceptAll("BY", "NAME"); n.ByName && n.Op != "UNION" {
		return nil, NewError(p.src, p.tokens[p.next-2].pos, "BY NAME is possible after UNION only")
	}
	n.Right, err = p.operand()
	return n, err
}

// operand parses an operand of a set operation.
func (p *parser) operand() (QueryBody, error) {
	t := p.peek()
	switch {
	case t.is("("):
		return p.queryInParentheses()
	case t.is("SELECT"), t.is("FROM"):
		return p.selection()
	case t.is("VALUES"):
		v, err := p.rowValues()
		if err == nil && p.accept(",") && !p.endsList(0) {
			err = p.unexpected("a row in parentheses")
		}
		return v, err
	case t.is("PIVOT"), t.is("PIVOT_WIDER"):
		return p.pivotStatement()
	case t.is("UNPIVOT"), t.is("PIVOT_LONGER"):
		return p.unpivotStatement()
	case t.is("DESCRIBE"), t.is("SUMMARIZE"):
		return p.describe()
	case t.is("TABLE"):
		p.advance()
		name, err := p.tableName()
		return &Select{Base: p.at(t.pos), Items: p.all(t.pos), From: []TableRef{name}}, err
	}
	if err := p.unsupportedStatement(); err != nil {
		return nil, err
	}
	return nil, p.notAQuery()
}

// all is the list of *.
func (p *parser) all(pos int) []SelectItem { return []SelectItem{{X: &StarExpr{Base: p.at(pos)}}} }

// rowValues parses VALUES (…), …. A comma at the end is left to the caller.
func (p *parser) rowValues() (*RowValues, error) {
	n := &RowValues{Base: p.at(p.advance().pos)}
	for more := true; more; more = p.peek().is(",") && p.ahead(1).is("(") && p.accept(",") {
		open := p.peek()
		if err := p.expect("("); err != nil {
			return nil, err
		}
		row, err := p.list()
		if err != nil {
			return nil, err
		}
		if n.Rows = append(n.Rows, row); len(row) != len(n.Rows[0]) {
			return nil, NewError(p.src, open.pos, "the row has %d values, and the first row of VALUES %d", len(row),
				len(n.Rows[0]))
		}
	}
	return n, nil
}

// selection parses SELECT … FROM …, or FROM … [SELECT …].
func (p *parser) selection() (s *Select, err error) {
	t := p.peek()
	s = &Select{Base: p.at(t.pos)}
	fromFirst := p.accept("FROM")
	if fromFirst {
		if s.From, err = p.tables(); err != nil {
			return nil, err
		}
	}
	if p.accept("SELECT") {
		if err := p.items(s); err != nil {
			return nil, err
		}
	} else {
		s.Items = p.all(t.pos)
	}
	if p.peek().is("FROM") && !fromFirst {
		p.advance()
		if s.From, err = p.tables(); err != nil {
			return nil, err
		}
	}
	return s, p.clauses(s)
}

// clauses parses WHERE and the clauses after it.
func (p *parser) clauses(s *Select) (err error) {
	if p.accept("WHERE") {
		if s.Where, err = p.expression(bindNone); err != nil {
			return err
		}
	}
	if p.acceptAll("GROUP", "BY") {
		if err := p.groupBy(s); err != nil {
			return err
		}
	}
	if p.accept("HAVING") {
		if s.Having, err = p.expression(bindNone); err != nil {
			return err
		}
	}
	if p.accept("WINDOW") {
		for more := true; more; more = p.another() {
			w, err := p.namedWindow()
			if err != nil {
				return err
			}
			s.Windows = append(s.Windows, w)
		}
	}
	if p.accept("QUALIFY") {
		if s.Qualify, err = p.expression(bindNone); err != nil {
			return err
		}
	}
	if p.acceptAll("USING", "SAMPLE") {
		s.Sample, err = p.sample()
	}
	return err
}

func (p *parser) namedWindow() (w NamedWindow, err error) {
	w.Base = p.at(p.peek().pos)
	if w.Name, err = p.name("the name of a window"); err != nil {
		return w, err
	}
	if err := p.expect("AS"); err != nil {
		return w, err
	}
	if err := p.expect("("); err != nil {
		return w, err
	}
	w.Window, err = p.window()
	return w, err
}

// items parses the part of SELECT up to FROM.
func (p *parser) items(s *Select) (err error) {
	if p.acceptAll("DISTINCT", "ON") {
		s.Distinct = true
		if err := p.expect("("); err != nil {
			return err
		}
		if s.DistinctOn, err = p.list(); err != nil {
			return err
		}
	} else if s.Distinct = p.accept("DISTINCT"); !s.Distinct {
		p.accept("ALL")
	}
	if p.endsList(0) {
		return p.unexpected("the columns of SELECT")
	}
	for more := true; more; more = p.another() {
		item, err := p.item()
		if err != nil {
			return err
		}
		s.Items = append(s.Items, item)
	}
	return nil
}

// item parses an expression or a star, and its alias before a colon or after it.
func (p *parser) item() (item SelectItem, err error) {
	t := p.peek()
	if p.isName() && p.ahead(1).is(":") {
		p.next += 2
		item.Alias = t.text
		item.X, err = p.expression(bindNone)
		return item, err
	}
	if t.is("*") {
		if item.X, err = p.star(t.pos, ""); err != nil {
			return item, err
		}
		if alias := p.peek(); alias.is("AS") || p.isName() {
			return item, NewError(p.src, alias.pos, "found %s: a star has no alias; write * RENAME (a AS b)",
				alias.describe())
		}
		return item, nil
	}
	if item.X, err = p.expression(bindNone); err != nil {
		return item, err
	}
	item.Alias, err = p.columnAlias()
	return item, err
}

// columnAlias parses [AS] name.
func (p *parser) columnAlias() (string, error) {
	if p.accept("AS") {
		return p.label()
	}
	if t := p.peek(); p.isName() && (t.kind == tokenQuoted || !continuing[strings.ToUpper(t.text)]) {
		return p.advance().text, nil
	}
	return "", nil
}

// groupBy parses the part after GROUP BY.
func (p *parser) groupBy(s *Select) error {
	if s.GroupAll = p.accept("ALL") || p.accept("*"); s.GroupAll {
		return nil
	}
	for more := true; more; more = p.another() {
		g, err := p.groupItem()
		if err != nil {
			return err
		}
		s.Group = append(s.Group, g)
	}
	return nil
}

// groupItem parses an element of GROUP BY or GROUPING SETS.
func (p *parser) groupItem() (g GroupItem, err error) {
	done, err := p.nest()
	if err != nil {
		return g, err
	}
	defer done()
	t := p.peek()
	g.Base = p.at(t.pos)
	switch {
	case p.acceptAll("GROUPING", "SETS"):
		g.Kind = "GROUPING SETS"
		if err := p.expect("("); err != nil {
			return g, err
		}
		for more := true; more; more = p.another() {
			set, err := p.groupItem()
			if err != nil {
				return g, err
			}
			g.Sets = append(g.Sets, set)
		}
		return g, p.expect(")")
	case (t.is("ROLLUP") || t.is("CUBE")) && p.ahead(1).is("("):
		g.Kind = strings.ToUpper(t.text)
		p.next += 2
		for more := true; more; more = p.another() {
			x, err := p.expressionOrNothing()
			if err != nil {
				return g, err
			}
			g.Lists = append(g.Lists, rowItems(x))
		}
		return g, p.expect(")")
	}
	x, err := p.expressionOrNothing()
	if err != nil {
		return g, err
	}
	if list := rowItems(x); len(list) == 1 {
		g.X = list[0]
	} else {
		g.Lists = [][]Node{list}
	}
	return g, nil
}

// expressionOrNothing parses an expression, or (), for which it returns nil.
func (p *parser) expressionOrNothing() (Node, error) {
	if p.acceptAll("(", ")") {
		return nil, nil
	}
	return p.expression(bindNone)
}

// rowItems returns the expressions of a row, or the only expression.
func rowItems(x Node) []Node {
	for {
		row, ok := x.(*Row)
		switch {
		case x == nil:
			return []Node{}
		case !ok:
			return []Node{x}
		case len(row.Items) > 1:
			return row.Items
		}
		x = row.Items[0]
	}
}

// sample parses the part after USING SAMPLE or TABLESAMPLE: a size, a size (method[, seed]), or method(size)
// [REPEATABLE (seed)].
func (p *parser) sample() (*Sample, error) {
	s := &Sample{Base: p.at(p.peek().pos)}
	if !p.peek().is("(") && p.peek().kind != tokenIdent {
		if err := p.sampleSize(s); err != nil || !p.accept("(") {
			return s, err
		}
		if err := p.sampleMethod(s); err != nil {
			return nil, err
		}
		if p.accept(",") {
			if err := p.sampleSeed(s); err != nil {
				return nil, err
			}
		}
		return s, p.expect(")")
	}
	if p.peek().kind == tokenIdent {
		if err := p.sampleMethod(s); err != nil {
			return nil, err
		}
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	if err := p.sampleSize(s); err != nil {
		return nil, err
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	if !p.accept("REPEATABLE") {
		return s, nil
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	if err := p.sampleSeed(s); err != nil {
		return nil, err
	}
	return s, p.expect(")")
}

func (p *parser) sampleMethod(s *Sample) error {
	switch t := p.peek(); strings.ToLower(t.text) {
	case "bernoulli", "reservoir", "system":
		s.Method = strings.ToLower(p.advance().text)
		return nil
	}
	return p.unexpected("the method of the sample: bernoulli, reservoir or system")
}

func (p *parser) sampleSize(s *Sample) (err error) {
	if s.Size, err = p.numberLiteral("the size of the sample, such as 10% or 100 ROWS"); err != nil {
		return err
	}
	if s.Percent = p.accept("%") || p.accept("PERCENT"); !s.Percent {
		p.accept("ROWS")
	}
	return nil
}

func (p *parser) sampleSeed(s *Sample) (err error) {
	s.Seed, err = p.numberLiteral("the seed of the sample, a number")
	return err
}

func (p *parser) numberLiteral(what string) (Node, error) {
	if p.peek().kind != tokenNumber {
		return nil, p.unexpected(what)
	}
	t := p.advance()
	return &NumberLiteral{p.at(t.pos), t.text, t.hidden}, nil
}
