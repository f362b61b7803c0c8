package syntax

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// startsQuery reports whether a query begins here, without parentheses.
func (p *parser) startsQuery() bool {
	return startsQuery(p.peek(), p.ahead(1))
}

func startsQuery(t, next token) bool {
	if t.kind != tokenIdent {
		return false
	}
	switch strings.ToUpper(t.text) {
	case "SELECT", "FROM", "WITH", "TABLE", "PIVOT", "UNPIVOT", "PIVOT_WIDER", "PIVOT_LONGER", "DESCRIBE", "SUMMARIZE",
		"SHOW":
		return true
	case "VALUES":
		return next.is("(")
	}
	return false
}

// markQueries sets query of the opening parentheses in the text.
func (p *parser) markQueries() {
	for i := len(p.tokens) - 2; i >= 0; i-- {
		next := p.tokens[i+1]
		p.tokens[i].query = p.tokens[i].is("(") &&
			(next.is("(") && next.query || startsQuery(next, p.tokens[min(i+2, len(p.tokens)-1)]))
	}
}

// nest counts a level of nesting until the returned function is called.
func (p *parser) nest() (func(), error) {
	if p.nested++; p.nested > maxNesting {
		return nil, NewError(p.src, p.peek().pos, "the statement is nested more than %d levels deep", maxNesting)
	}
	return func() { p.nested-- }, nil
}

// queryOrList parses a query in parentheses, or a list of expressions in parentheses, the first of which may begin with
// a query in parentheses: ((SELECT 1) UNION SELECT 2), ((SELECT 1) + 1, 2). comma is whether the list has one.
func (p *parser) queryOrList() (q *Query, list []Node, comma bool, err error) {
	open := p.advance()
	if open.query {
		done, err := p.nest()
		if err != nil {
			return nil, nil, false, err
		}
		defer done()
	}
	if open.query && !p.peek().is("(") {
		if q, err = p.query(); err == nil {
			err = p.closeQuery()
		}
		return q, nil, false, err
	}
	if p.accept(")") {
		return nil, nil, false, nil
	}
	var first Node
	if !open.query {
		first, err = p.expression(bindNone)
	} else {
		inner := p.peek().pos
		if q, list, comma, err = p.queryOrList(); err != nil {
			return nil, nil, false, err
		}
		if q != nil && p.continuesQuery() {
			if q, err = p.queryAfter(inner, q); err == nil {
				err = p.closeQuery()
			}
			return q, nil, false, err
		}
		if q != nil {
			first = &Subquery{Base: p.at(inner), Query: q}
		} else if first, err = p.row(inner, list, comma); err != nil {
			return nil, nil, false, err
		}
		first, err = p.after(first, bindNone)
	}
	for list, comma = nil, false; ; {
		if err != nil {
			return nil, nil, false, err
		}
		list = append(list, first)
		more := false
		if p.peek().is(",") {
			comma, more = true, p.another()
		}
		if p.accept(")") {
			return nil, list, comma, nil
		}
		if !more {
			return nil, nil, false, p.unexpected("an operator, a comma or )")
		}
		first, err = p.expression(bindNone)
	}
}

// closeQuery parses the parenthesis after a query.
func (p *parser) closeQuery() error {
	if !p.accept(")") {
		return p.unfinished("the ) after the query")
	}
	return nil
}

// continuesQuery reports whether the query in parentheses before the next token is a part of a query.
func (p *parser) continuesQuery() bool {
	switch t := p.peek(); strings.ToUpper(t.text) {
	case ")", "UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH":
		return t.kind == tokenIdent || t.kind == tokenSymbol
	}
	return false
}

// row returns the node of a list in parentheses.
func (p *parser) row(pos int, list []Node, comma bool) (Node, error) {
	if len(list) == 1 && !comma {
		return list[0], nil
	}
	if len(list) == 0 {
		return nil, NewError(p.src, pos, "found (), a row without columns; expected an expression or a query")
	}
	return &Row{Base: p.at(pos, list...), Items: list}, nil
}

// parenthesis parses (expression), (a, b) and (query).
func (p *parser) parenthesis() (Node, error) {
	pos := p.peek().pos
	q, list, comma, err := p.queryOrList()
	switch {
	case err != nil:
		return nil, err
	case q != nil:
		return &Subquery{Base: p.at(pos), Query: q}, nil
	}
	return p.row(pos, list, comma)
}

// inQuery parses the part after x [NOT] IN.
func (p *parser) inQuery(x Node, pos int, not bool) (Node, error) {
	open := p.peek()
	q, list, _, err := p.queryOrList()
	switch {
	case err != nil:
		return nil, err
	case q != nil && not:
		return &Subquery{Base: p.at(pos, x), Kind: "ALL", X: x, Op: "<>", Query: q}, nil
	case q != nil:
		return &Subquery{Base: p.at(pos, x), Kind: "ANY", X: x, Op: "=", Query: q}, nil
	case len(list) == 0:
		return nil, NewError(p.src, open.pos, "found (), expected the values of IN")
	}
	return &In{Base: p.at(pos, append(list, x)...), X: x, List: list, Not: not}, nil
}

// inList parses the part after x [NOT] IN that is a LIST or MAP, as in x IN [1, 2] or x IN l.
func (p *parser) inList(x Node, pos int, not bool) (Node, error) {
	if t := p.peek(); t.kind != tokenIdent && t.kind != tokenQuoted && !t.is("[") {
		return nil, p.unexpected("a list or a query in parentheses after IN")
	}
	list, err := p.expression(bindCompare)
	if err != nil {
		return nil, err
	}
	var n Node = &Call{Base: p.at(pos, list, x), Name: "contains", Args: []Node{list, x}}
	if not {
		n = &Unary{p.at(pos, n), "NOT", n}
	}
	return n, nil
}

// quantified parses ANY, SOME or ALL after a comparison, and the query or list.
func (p *parser) quantified(x Node, pos int, op string) (Node, error) {
	kind, open := strings.ToUpper(p.advance().text), p.peek()
	if kind == "SOME" {
		kind = "ANY"
	}
	if !open.is("(") {
		return nil, NewError(p.src, open.pos, "found %s, expected a query or a list in parentheses after %s",
			open.describe(), kind)
	}
	q, list, _, err := p.queryOrList()
	switch {
	case err == nil && q == nil && len(list) == 1:
		return overElements(kind, x, op, list[0])
	case err == nil && q == nil:
		err = NewError(p.src, open.pos, "found %d values, expected a query or a list in parentheses after %s",
			len(list), kind)
	}
	return &Subquery{Base: p.at(pos, x), Kind: kind, X: x, Op: op, Query: q}, err
}

// overElements returns x op ANY (list) or x op ALL (list), as over a query with the elements. A list that is null has
// none.
func overElements(kind string, x Node, op string, list Node) (Node, error) {
	found, other := "true", "false"
	compare := fmt.Sprintf("(_1 %s \"element of a list\")", op)
	holds := compare
	if kind == "ALL" {
		found, other = other, found
		holds = "NOT " + compare
	}
	filtered := func(condition string) string {
		return `len(list_filter(_2, lambda "element of a list": ` + condition + `)) > 0`
	}
	tree, err := Parse(fmt.Sprintf("CASE WHEN %s THEN %s WHEN %s THEN NULL ELSE %s END",
		filtered(holds), found, filtered(compare+" IS NULL"), other))
	if err != nil {
		return nil, err
	}
	return Replace(tree, func(n Node) (Node, error) {
		if name, ok := n.(*Name); ok && len(name.Parts) == 1 {
			switch name.Parts[0] {
			case "_1":
				return x, nil
			case "_2":
				return list, nil
			}
		}
		return nil, nil
	})
}

// statementForm parses the expressions with keywords that only statements have. It returns nil if there is none.
func (p *parser) statementForm() (Node, error) {
	t, next := p.peek(), p.ahead(1)
	word := strings.ToUpper(t.text)
	switch {
	case word == "EXISTS" && next.query:
		p.advance()
		q, _, _, err := p.queryOrList()
		if err == nil && q == nil {
			err = NewError(p.src, next.pos, "found an expression, expected a query in parentheses after EXISTS")
		}
		return &Subquery{Base: p.at(t.pos), Kind: "EXISTS", Query: q}, err
	case word == "EXISTS" && next.is("("):
		return nil, NewError(p.src, p.ahead(2).pos, "found %s, expected a query in EXISTS (…)", p.ahead(2).describe())
	case word == "ROW" && next.is("("):
		if p.next += 2; p.peek().is(")") {
			return nil, NewError(p.src, t.pos, "found ROW(), a row without columns")
		}
		list, err := p.list()
		return &Row{Base: p.at(t.pos, list...), Items: list}, err
	case word == "COLUMNS" && next.is("("):
		return p.columns(t.pos, "")
	case columnForms[word] && !next.is("(") && !(word == "INTERVAL" &&
		(next.kind == tokenString || next.kind == tokenNumber || next.kind == tokenParameter)):
		return p.nameOrCall()
	case word == "ARRAY" && next.is("["):
		p.advance()
		return p.listLiteral()
	case word == "DEFAULT", word == "ARRAY", word == "LAMBDA", word == "VALUES" && next.is("("):
		return nil, p.unexpected("a column, a value or a function")
	case functionKeywords[word] && !next.is("(") || keywords[word] && !operands[word]:
		if p.startsQuery() {
			return nil, NewError(p.src, t.pos, "found %s; a query in an expression stands in parentheses", word)
		}
		return nil, NewError(p.src, t.pos, "found the keyword %s, expected a column, a value or a function; a column "+
			"with the name of a keyword stands in double quotes", word)
	}
	return nil, nil
}

// parameter parses $1, $name or ?. The first ? is $1.
func (p *parser) parameter() (Node, error) {
	t := p.advance()
	name := t.text
	if t.kind != tokenParameter {
		p.marks++
		name = strconv.Itoa(p.marks)
	}
	kind := "a number"
	if !isDigit(name[0]) {
		kind = "a name"
	}
	if p.parameters != "" && p.parameters != kind {
		return nil, NewError(p.src, t.pos, "found a parameter with %s after one with %s; a statement has either", kind,
			p.parameters)
	}
	p.parameters = kind
	if p.valued {
		return nil, NewError(p.src, t.pos, "the parameter %s has no value; give it one: %s",
			p.src[t.pos:t.end], gpu.Parameters.To(name+"=VALUE"))
	}
	return &Parameter{p.at(t.pos), name}, nil
}

// star parses * and its modifiers after the name of a table.
func (p *parser) star(pos int, table string) (*StarExpr, error) {
	p.advance()
	n := &StarExpr{Star: Star{Table: table}}
	if err := p.starModifiers(&n.Star); err != nil {
		return nil, err
	}
	n.Base = p.at(pos, n.children()...)
	t, next, words := p.peek(), p.ahead(1), 1
	if n.Not = t.is("NOT"); n.Not {
		words = 2
	} else {
		next = t
	}
	switch {
	case t.is("EXCLUDE"), t.is("REPLACE"), t.is("RENAME"):
		return nil, NewError(p.src, t.pos, "found %s: the order after * is EXCLUDE, REPLACE, RENAME",
			strings.ToUpper(t.text))
	case next.is("LIKE"), next.is("ILIKE"):
		n.Like = strings.ToUpper(next.text)
	case next.is("SIMILAR") && p.ahead(words).is("TO"):
		n.Like = "SIMILAR TO"
		words++
	case next.is("GLOB"), next.is("~"):
		return nil, NewError(p.src, t.pos, "a star with %s is not possible; write * SIMILAR TO 'regular expression'",
			strings.ToUpper(next.text))
	}
	if n.Like == "" {
		n.Not = false
		return n, nil
	}
	p.next += words
	var err error
	n.Pattern, err = p.expression(bindBetween)
	n.Base = p.at(pos, n.children()...)
	return n, err
}

// starOf parses * and COLUMNS(…) after the name of a table and a period.
func (p *parser) starOf(pos int, parts []string) (Node, error) {
	t := p.peek()
	if len(parts) > 1 {
		return nil, NewError(p.src, t.pos, "found %s, expected a column; a star has one name before it, the table's",
			t.describe())
	}
	if t.is("*") {
		return p.star(pos, parts[0])
	}
	return p.columns(pos, parts[0])
}

// columns parses COLUMNS(*) and COLUMNS('pattern').
func (p *parser) columns(pos int, table string) (n *StarExpr, err error) {
	p.next += 2
	switch t := p.peek(); {
	case t.is("*"):
		n, err = p.star(t.pos, table)
	case p.isName() && p.ahead(1).is(".") && p.ahead(2).is("*"):
		p.next += 2
		n, err = p.star(t.pos, t.text)
	case t.is("["), t.is("LAMBDA"):
		return nil, NewError(p.src, t.pos, "found %s: COLUMNS has a pattern in quotes or a star, such as "+
			"COLUMNS('a.*') or COLUMNS(* EXCLUDE (a))", t.describe())
	default:
		n = &StarExpr{Star: Star{Table: table}}
		n.Pattern, err = p.expression(bindNone)
	}
	if err != nil {
		return nil, err
	}
	n.Columns = true
	n.Base = p.at(pos, n.children()...)
	return n, p.expect(")")
}
