package expr

import (
	"strings"
)

const (
	// maxSource bounds the bytes of an expression, maxNesting the recursion of the
	// parser, maxDepth the height of a tree. AND, OR and lists are one level, whatever
	// their length.
	maxSource  = 1 << 20
	maxNesting = 1000
	maxDepth   = 400
)

// reserved words are column names only in quotes.
var reserved = words(`ALL AND ANY AS ASC BETWEEN BOTH BY CASE CAST CROSS DESC DISTINCT ELSE END ESCAPE EXCEPT
	EXISTS FALSE FOR FROM FULL GROUP HAVING ILIKE IN INNER INTERSECT INTO IS ISNULL JOIN LEADING LIKE LIMIT NATURAL
	NOT NOTNULL NULL OFFSET ON OR ORDER OUTER QUALIFY SELECT SIMILAR SOME THEN TRAILING TRUE TRY_CAST UNION UNIQUE
	USING WHEN WHERE WINDOW WITH EXTRACT INTERVAL POSITION SUBSTRING TRIM`)

// forms are the reserved words that begin an expression.
var forms = words(`CASE CAST TRY_CAST EXTRACT INTERVAL POSITION SUBSTRING TRIM NULL TRUE FALSE NOT`)

func words(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

// The binding powers of operators, weakest first, as in PostgreSQL.
const (
	bindNone = 10 * iota
	bindOr
	bindAnd
	bindNot
	bindIs
	bindCompare
	bindBetween // BETWEEN, IN, LIKE
	bindOther   // || ^@
	bindBits    // & | << >> ~
	bindAdd
	bindMul
	bindPow
	bindAt // AT TIME ZONE
	bindSign
	bindCast
)

// Parse parses one expression. The error is an *Error.
func Parse(src string) (Node, error) {
	return Values(nil).Parse(src)
}

// parser is an operator-precedence (Pratt) parser over a list of tokens that ends with
// tokenEOF.
type parser struct {
	src    string
	tokens []token
	next   int
	nested int
	hidden // the values in the text that are not shown
}

func newParser(src string, values Values) (*parser, error) {
	if len(src) > maxSource {
		return &parser{}, newError(src[:0], 0, "the expression has %d bytes, more than the %d that are allowed", len(src), maxSource)
	}
	p := &parser{src: src}
	for l := (lexer{src: src, values: values}); ; {
		if err := l.skipSpace(); err != nil {
			return p, err
		}
		if part := values.at(src[l.pos:]); part != "" {
			tokens, err := l.value(part)
			if p.hidden = l.hidden; err != nil {
				return p, err
			}
			p.tokens = append(p.tokens, tokens...)
			continue
		}
		t, err := l.next()
		if err != nil {
			return p, err
		}
		p.tokens = append(p.tokens, t)
		if t.kind == tokenEOF {
			return p, nil
		}
	}
}

func (p *parser) peek() token { return p.ahead(0) }

func (p *parser) ahead(n int) token { return p.tokens[min(p.next+n, len(p.tokens)-1)] }

func (p *parser) advance() token {
	t := p.peek()
	p.next = min(p.next+1, len(p.tokens)-1)
	return t
}

// accept consumes the token if it is the given symbol or keyword.
func (p *parser) accept(word string) bool {
	if p.peek().is(word) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expect(word string) error {
	if !p.accept(word) {
		return p.unexpected(word)
	}
	return nil
}

func (p *parser) unexpected(expected string) error {
	t := p.peek()
	return newError(p.src, t.pos, "found %s, expected %s", t.describe(), expected)
}

// at makes the common part of a node from its position and its children.
func (p *parser) at(pos int, children ...Node) base {
	b := base{src: p.src, at: pos, tall: 1, hides: p.hidden}
	for _, c := range children {
		if c != nil {
			b.tall = max(b.tall, c.depth()+1)
		}
	}
	return b
}

// expression parses operators that bind tighter than power.
func (p *parser) expression(power int) (Node, error) {
	if p.nested++; p.nested > maxNesting {
		return nil, newError(p.src, p.peek().pos, "the expression is nested more than %d levels deep", maxNesting)
	}
	defer func() { p.nested-- }()
	left, err := p.prefix()
	for err == nil {
		if left.depth() > maxDepth {
			return nil, newError(p.src, left.Pos(), "the expression is nested more than %d levels deep", maxDepth)
		}
		var more bool
		if left, more, err = p.infix(left, power); !more {
			return left, err
		}
	}
	return nil, err
}

// infix parses one operator and its right side after left. more is false when the next
// token does not continue the expression.
func (p *parser) infix(left Node, power int) (n Node, more bool, err error) {
	t := p.peek()
	if t.kind == tokenSymbol {
		return p.infixSymbol(left, t, power)
	}
	if t.kind != tokenIdent {
		return left, false, nil
	}
	not := t.is("NOT")
	word, after := t, 1
	if not {
		word, after = p.ahead(1), 2
	}
	pass := func() {
		if not {
			p.advance()
		}
	}
	switch {
	case !not && (t.is("AND") || t.is("OR")):
		return p.logic(left, power)
	case word.is("BETWEEN") && power < bindBetween:
		pass()
		n, err = p.between(left, t.pos, not)
	case word.is("IN") && power < bindBetween:
		pass()
		n, err = p.in(left, t.pos, not)
	case (word.is("LIKE") || word.is("ILIKE")) && power < bindBetween:
		pass()
		n, err = p.like(left, t.pos, not, word.is("ILIKE"))
	case word.is("SIMILAR") && p.ahead(after).is("TO") && power < bindBetween:
		pass()
		p.advance()
		n, err = p.regexp(left, t.pos, not, "regexp_full_match", "")
	case !not && t.is("AT") && p.ahead(1).is("TIME") && p.ahead(2).is("ZONE") && power < bindAt:
		p.next += 3
		zone, err := p.expression(bindAt)
		return &callNode{base: p.at(t.pos, left, zone), name: "timezone", args: []Node{zone, left}}, true, err
	case !not && (t.is("IS") || t.is("ISNULL") || t.is("NOTNULL")) && power < bindIs:
		n, err = p.is(left)
		return n, true, err
	default:
		return left, false, nil
	}
	return n, true, err
}

func (p *parser) infixSymbol(left Node, t token, power int) (Node, bool, error) {
	op := t.text
	if s, ok := spellings[op]; ok {
		op = s
	}
	switch op {
	case "[":
		n, err := p.slice(left)
		return n, true, err
	case "::":
		p.advance()
		typ, err := p.typeName()
		return &castNode{base: p.at(t.pos, left), x: left, typ: typ}, true, err
	case "~~", "~~*", "!~~", "!~~*":
		if power >= bindBetween {
			return left, false, nil
		}
		n, err := p.like(left, t.pos, op[0] == '!', strings.HasSuffix(op, "*"))
		return n, true, err
	case "~", "~*", "!~", "!~*":
		if power >= bindBetween {
			return left, false, nil
		}
		options := ""
		if strings.HasSuffix(op, "*") {
			options = "i"
		}
		n, err := p.regexp(left, t.pos, op[0] == '!', "regexp_matches", options)
		return n, true, err
	}
	bp, ok := binaryPower[op]
	if !ok || bp <= power {
		return left, false, nil
	}
	p.advance()
	right, err := p.expression(bp)
	if err != nil {
		return nil, false, err
	}
	if next := p.peek(); bp == bindCompare && next.kind == tokenSymbol {
		s := next.text
		if other, ok := spellings[s]; ok {
			s = other
		}
		if binaryPower[s] == bindCompare {
			return nil, false, newError(p.src, next.pos, "found %s after a comparison: comparisons cannot be chained, join them with AND", next.describe())
		}
	}
	return &binaryNode{base: p.at(t.pos, left, right), op: op, l: left, r: right}, true, nil
}

// slice parses [n], [from:to], [from:] and [:to] behind a text.
func (p *parser) slice(s Node) (Node, error) {
	t := p.advance()
	call := func(name string, args ...Node) (Node, error) {
		return &callNode{base: p.at(t.pos, args...), name: name, args: args}, p.expect("]")
	}
	var from, to Node = &numberNode{p.at(t.pos), "1", ""}, &unaryNode{p.at(t.pos), "-", &numberNode{p.at(t.pos), "1", ""}}
	var err error
	if !p.peek().is(":") {
		if from, err = p.expression(bindNone); err != nil {
			return nil, err
		}
		if !p.peek().is(":") {
			return call("array_extract", s, from)
		}
	}
	p.advance()
	if !p.peek().is("]") {
		if to, err = p.expression(bindNone); err != nil {
			return nil, err
		}
	}
	return call("array_slice", s, from, to)
}

// logic parses consecutive ANDs or ORs into one node.
func (p *parser) logic(left Node, power int) (Node, bool, error) {
	t := p.peek()
	op, bp := "AND", bindAnd
	if t.is("OR") {
		op, bp = "OR", bindOr
	}
	if bp <= power {
		return left, false, nil
	}
	args := []Node{left}
	if l, ok := left.(*logicNode); ok && l.op == op {
		args = l.args
	}
	for p.accept(op) {
		right, err := p.expression(bp)
		if err != nil {
			return nil, false, err
		}
		args = append(args[:len(args):len(args)], right)
	}
	return &logicNode{base: p.at(t.pos, args...), op: op, args: args}, true, nil
}

func (p *parser) between(x Node, pos int, not bool) (Node, error) {
	p.advance()
	lo, err := p.expression(bindBetween)
	if err != nil {
		return nil, err
	}
	if err := p.expect("AND"); err != nil {
		return nil, err
	}
	hi, err := p.expression(bindBetween)
	if err != nil {
		return nil, err
	}
	return &betweenNode{base: p.at(pos, x, lo, hi), x: x, lo: lo, hi: hi, not: not}, nil
}

func (p *parser) in(x Node, pos int, not bool) (Node, error) {
	p.advance()
	if err := p.expect("("); err != nil {
		return nil, err
	}
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	return &inNode{base: p.at(pos, append(list, x)...), x: x, list: list, not: not}, nil
}

func (p *parser) like(x Node, pos int, not, fold bool) (Node, error) {
	p.advance()
	pattern, err := p.expression(bindBetween)
	if err != nil {
		return nil, err
	}
	n := &likeNode{x: x, pattern: pattern, not: not, fold: fold}
	if p.accept("ESCAPE") {
		if n.escape, err = p.expression(bindBetween); err != nil {
			return nil, err
		}
	}
	n.base = p.at(pos, x, pattern, n.escape)
	return n, nil
}

// regexp parses the pattern behind an operator that is a call.
func (p *parser) regexp(x Node, pos int, not bool, call, options string) (Node, error) {
	p.advance()
	pattern, err := p.expression(bindBetween)
	if err != nil {
		return nil, err
	}
	args := []Node{x, pattern}
	if options != "" {
		args = append(args, &stringNode{p.at(pos), options, false, ""})
	}
	var n Node = &callNode{base: p.at(pos, x, pattern), name: call, args: args}
	if not {
		n = &unaryNode{p.at(pos, x, pattern), "NOT", n}
	}
	return n, nil
}

func (p *parser) is(x Node) (Node, error) {
	t := p.advance()
	n := &isNode{base: p.at(t.pos, x), x: x, what: "NULL"}
	if t.is("ISNULL") || t.is("NOTNULL") {
		n.not = t.is("NOTNULL")
		return n, nil
	}
	n.not = p.accept("NOT")
	switch t := p.peek(); {
	case p.accept("NULL"):
	case p.accept("TRUE"), p.accept("FALSE"), p.accept("UNKNOWN"):
		n.what = strings.ToUpper(t.text)
	case p.accept("DISTINCT"):
		n.what = "DISTINCT"
		if err := p.expect("FROM"); err != nil {
			return nil, err
		}
		y, err := p.expression(bindIs)
		if err != nil {
			return nil, err
		}
		n.y, n.base = y, p.at(n.at, x, y)
	default:
		return nil, p.unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
	}
	return n, nil
}

// prefix parses the start of an expression.
func (p *parser) prefix() (Node, error) {
	t := p.peek()
	switch t.kind {
	case tokenNumber:
		p.advance()
		return &numberNode{p.at(t.pos), t.text, t.hidden}, nil
	case tokenString, tokenBlob:
		p.advance()
		return &stringNode{p.at(t.pos), t.text, t.kind == tokenBlob, t.hidden}, nil
	case tokenSymbol:
		switch t.text {
		case "(":
			p.advance()
			n, err := p.expression(bindNone)
			if err != nil {
				return nil, err
			}
			return n, p.expect(")")
		case "~", "@":
			p.advance()
			x, err := p.expression(bindBits)
			if err != nil {
				return nil, err
			}
			return &unaryNode{p.at(t.pos, x), t.text, x}, nil
		case "-", "+":
			p.advance()
			x, err := p.expression(bindSign)
			if err != nil {
				return nil, err
			}
			return &unaryNode{p.at(t.pos, x), t.text, x}, nil
		}
	case tokenIdent:
		if forms[strings.ToUpper(t.text)] {
			return p.form()
		}
		if !reserved[strings.ToUpper(t.text)] {
			return p.nameOrCall()
		}
	case tokenQuoted:
		return p.nameOrCall()
	}
	return nil, p.unexpected("a column, a value or a function")
}

// form parses the syntax that begins with a keyword.
func (p *parser) form() (Node, error) {
	t := p.advance()
	switch word := strings.ToUpper(t.text); word {
	case "NULL", "TRUE", "FALSE":
		return &wordNode{p.at(t.pos), word}, nil
	case "NOT":
		x, err := p.expression(bindNot)
		if err != nil {
			return nil, err
		}
		return &unaryNode{p.at(t.pos, x), word, x}, nil
	case "CASE":
		return p.caseForm(t.pos)
	case "INTERVAL":
		return p.interval(t.pos)
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	n, err := p.parenthesised(t)
	if err != nil {
		return nil, err
	}
	return n, p.expect(")")
}

// parenthesised parses the contents of CAST(…), EXTRACT(…) and the like.
func (p *parser) parenthesised(t token) (Node, error) {
	call := func(name string, args ...Node) Node {
		return &callNode{base: p.at(t.pos, args...), name: name, args: args}
	}
	switch word := strings.ToUpper(t.text); word {
	case "EXTRACT":
		part := p.advance()
		if part.kind != tokenIdent && part.kind != tokenString {
			p.next--
			return nil, p.unexpected("a part of a date, such as year")
		}
		if err := p.expect("FROM"); err != nil {
			return nil, err
		}
		x, err := p.expression(bindNone)
		return call("date_part", &stringNode{base: p.at(part.pos), text: part.text}, x), err
	case "POSITION":
		part, err := p.expression(bindBetween)
		if err != nil {
			return nil, err
		}
		if err := p.expect("IN"); err != nil {
			return nil, err
		}
		s, err := p.expression(bindNone)
		return call("strpos", s, part), err
	case "TRIM":
		return p.trim(call)
	}
	x, err := p.expression(bindNone)
	if err != nil {
		return nil, err
	}
	if t.is("SUBSTRING") {
		return p.substring(t, x, call)
	}
	if err := p.expect("AS"); err != nil {
		return nil, err
	}
	typ, err := p.typeName()
	return &castNode{base: p.at(t.pos, x), x: x, typ: typ, try: t.is("TRY_CAST")}, err
}

// trim parses ([BOTH|LEADING|TRAILING] [characters] FROM s) and (s[, characters]).
func (p *parser) trim(call func(string, ...Node) Node) (Node, error) {
	name := "trim"
	switch {
	case p.accept("BOTH"):
	case p.accept("LEADING"):
		name = "ltrim"
	case p.accept("TRAILING"):
		name = "rtrim"
	}
	var args []Node
	if !p.peek().is("FROM") {
		x, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		args = []Node{x}
	}
	switch {
	case p.accept("FROM"):
		s, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		args = append([]Node{s}, args...)
	case p.accept(","):
		characters, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		args = append(args, characters)
	}
	return call(name, args...), nil
}

// substring parses what follows the string: FROM n, FOR n, or arguments.
func (p *parser) substring(t token, s Node, call func(string, ...Node) Node) (Node, error) {
	args := []Node{s}
	from, length := p.accept("FROM"), false
	if !from {
		if length = p.accept("FOR"); length {
			args = append(args, &numberNode{p.at(t.pos), "1", ""})
		}
	}
	for from || length || p.accept(",") {
		x, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		args = append(args, x)
		if length {
			break
		}
		if from {
			from, length = false, p.accept("FOR")
			if !length {
				break
			}
		}
	}
	return call("substring", args...), nil
}

func (p *parser) caseForm(pos int) (Node, error) {
	n := &caseNode{}
	var err error
	if !p.peek().is("WHEN") {
		if n.operand, err = p.expression(bindNone); err != nil {
			return nil, err
		}
	}
	children := []Node{n.operand}
	for p.accept("WHEN") {
		when, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		if err := p.expect("THEN"); err != nil {
			return nil, err
		}
		then, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		n.whens = append(n.whens, [2]Node{when, then})
		children = append(children, when, then)
	}
	if len(n.whens) == 0 {
		return nil, p.unexpected("WHEN")
	}
	if p.accept("ELSE") {
		if n.otherwise, err = p.expression(bindNone); err != nil {
			return nil, err
		}
		children = append(children, n.otherwise)
	}
	// Every branch of CASE is a level of the compiled form.
	n.base = p.at(pos, children...)
	n.tall += len(n.whens)
	if !p.accept("END") {
		return nil, p.unexpected("WHEN, ELSE or END")
	}
	return n, nil
}

func (p *parser) interval(pos int) (Node, error) {
	n := &intervalNode{}
	switch t := p.peek(); {
	case t.kind == tokenString:
		p.advance()
		n.value = &stringNode{base: p.at(t.pos), text: t.text, hidden: t.hidden}
	case t.kind == tokenNumber:
		p.advance()
		n.value = &numberNode{p.at(t.pos), t.text, t.hidden}
	case p.accept("("):
		x, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		if err := p.expect(")"); err != nil {
			return nil, err
		}
		n.value = x
	default:
		return nil, p.unexpected("the length of the interval, as in INTERVAL 3 DAY or INTERVAL '3 days'")
	}
	n.base = p.at(pos, n.value)
	if t := p.peek(); t.kind == tokenIdent {
		if unit, ok := intervalUnit(t.text); ok {
			p.advance()
			n.unit = unit
		}
	}
	if _, isString := n.value.(*stringNode); n.unit == "" && !isString {
		return nil, p.unexpected("the unit of the interval: YEAR, MONTH, DAY, HOUR …")
	}
	return n, nil
}

// nameOrCall parses a column, a function call, or a typed literal such as
// DATE '1994-01-01'.
func (p *parser) nameOrCall() (Node, error) {
	t := p.peek()
	if t.kind == tokenIdent {
		if n, err := p.typedLiteral(); n != nil || err != nil {
			return n, err
		}
	}
	p.advance()
	if p.accept("(") {
		return p.call(t)
	}
	n := &nameNode{p.at(t.pos), []string{t.text}}
	for p.peek().is(".") {
		p.advance()
		part := p.peek()
		if part.kind != tokenIdent && part.kind != tokenQuoted {
			return nil, p.unexpected("the name of a column")
		}
		p.advance()
		n.parts = append(n.parts, part.text)
	}
	return n, nil
}

// typedLiteral parses a type name followed by a string. It returns nil when there is
// none.
func (p *parser) typedLiteral() (Node, error) {
	if _, ok := typeNames[strings.ToUpper(p.peek().text)]; !ok {
		return nil, nil
	}
	mark := p.next
	typ, err := p.typeName()
	s := p.peek()
	if err != nil || s.kind != tokenString {
		p.next = mark
		return nil, nil
	}
	p.advance()
	x := &stringNode{base: p.at(s.pos), text: s.text, hidden: s.hidden}
	return &castNode{base: p.at(p.tokens[mark].pos, x), x: x, typ: typ}, nil
}

// call parses what follows the opening parenthesis of a function: its arguments, FILTER
// (WHERE …) of an aggregate, and OVER (…) of a window function.
func (p *parser) call(name token) (Node, error) {
	n := &callNode{name: strings.ToLower(name.text)}
	err := p.arguments(n)
	if err == nil && p.peek().is("FILTER") && p.ahead(1).is("(") {
		p.next += 2
		p.accept("WHERE")
		if n.filter, err = p.expression(bindNone); err == nil {
			err = p.expect(")")
		}
	}
	if err == nil && p.accept("OVER") {
		n.over, err = p.over()
	}
	// As in CASE, an argument can become a level of the compiled form.
	n.base = p.at(name.pos, n.children()...)
	n.tall += len(n.args)
	return n, err
}

// arguments parses the arguments of a call up to and including the closing parenthesis.
func (p *parser) arguments(n *callNode) (err error) {
	if p.accept("*") {
		n.star = true
		return p.expect(")")
	}
	if n.distinct = p.accept("DISTINCT"); n.distinct {
		if t := p.peek(); t.is("*") || t.is(")") {
			return newError(p.src, t.pos, "found %s after DISTINCT, expected a column or an expression", t.describe())
		}
	} else {
		p.accept("ALL")
	}
	if t := p.peek(); !t.is(")") && !t.is("ORDER") {
		for more := true; more; more = p.accept(",") {
			x, err := p.expression(bindNone)
			if err != nil {
				return err
			}
			n.args = append(n.args, x)
			if n.name == "overlay" && len(n.args) == 1 && p.accept("PLACING") {
				return p.placing(n)
			}
		}
	}
	if n.order, err = p.orderBy(); err != nil {
		return err
	}
	if t := p.peek(); (t.is("IGNORE") || t.is("RESPECT")) && p.ahead(1).is("NULLS") {
		n.ignoreNulls = t.is("IGNORE")
		p.next += 2
	}
	if !p.accept(")") {
		return p.unexpected("a comma or )")
	}
	if t := p.peek(); (t.is("IGNORE") || t.is("RESPECT")) && p.ahead(1).is("NULLS") && p.ahead(2).is("OVER") {
		return newError(p.src, t.pos, "%[1]s NULLS stands before the closing parenthesis, as in %[2]s(x %[1]s NULLS)", strings.ToUpper(t.text), n.name)
	}
	return nil
}

// placing parses the rest of overlay(s PLACING text FROM start [FOR count]).
func (p *parser) placing(n *callNode) error {
	for _, word := range []string{"FROM", "FOR", ")"} {
		x, err := p.expression(bindNone)
		if err != nil {
			return err
		}
		n.args = append(n.args, x)
		if len(n.args) > 2 && p.accept(")") {
			return nil
		}
		if err := p.expect(word); err != nil {
			return err
		}
	}
	return nil
}

// orderBy parses ORDER BY and its keys, if it is there.
func (p *parser) orderBy() (keys []orderNode, err error) {
	if !p.peek().is("ORDER") || !p.ahead(1).is("BY") {
		return nil, nil
	}
	p.next += 2
	for {
		k := orderNode{}
		if k.x, err = p.expression(bindNone); err != nil {
			return nil, err
		}
		if k.descending = p.accept("DESC"); !k.descending {
			p.accept("ASC")
		}
		if p.accept("NULLS") {
			if k.nullsFirst = p.accept("FIRST"); !k.nullsFirst && !p.accept("LAST") {
				return nil, p.unexpected("FIRST or LAST")
			}
		}
		keys = append(keys, k)
		if !p.accept(",") {
			return keys, nil
		}
	}
}

// over parses what follows OVER.
func (p *parser) over() (w *windowNode, err error) {
	if t := p.peek(); !p.accept("(") {
		if t.kind == tokenIdent || t.kind == tokenQuoted {
			return nil, newError(p.src, t.pos, "found the name of a window, %s; write what it stands for: OVER (PARTITION BY … ORDER BY …)", t.describe())
		}
		return nil, p.unexpected("( after OVER")
	}
	w = &windowNode{}
	if p.peek().is("PARTITION") && p.ahead(1).is("BY") {
		p.next += 2
		for more := true; more; more = p.accept(",") {
			x, err := p.expression(bindNone)
			if err != nil {
				return nil, err
			}
			w.partition = append(w.partition, x)
		}
	}
	if w.order, err = p.orderBy(); err != nil {
		return nil, err
	}
	if t := p.peek(); t.is("ROWS") || t.is("RANGE") || t.is("GROUPS") {
		if w.frame, err = p.frame(); err != nil {
			return nil, err
		}
	}
	if t := p.peek(); t.is("EXCLUDE") {
		return nil, newError(p.src, t.pos, "EXCLUDE is not possible in a frame")
	}
	if !p.accept(")") {
		return nil, p.unexpected("PARTITION BY, ORDER BY, ROWS, RANGE, GROUPS or ) in OVER")
	}
	return w, nil
}

// frame parses ROWS, RANGE or GROUPS and the bounds. A single bound is the first one, and
// the last one is the current row.
func (p *parser) frame() (f *frameNode, err error) {
	f = &frameNode{unit: strings.ToUpper(p.advance().text)}
	if !p.accept("BETWEEN") {
		f.from, err = p.frameBound()
		f.to = boundNode{at: f.from.at, kind: currentRow}
	} else if f.from, err = p.frameBound(); err == nil {
		if err = p.expect("AND"); err == nil {
			f.to, err = p.frameBound()
		}
	}
	switch from, to := boundOrder[f.from.kind], boundOrder[f.to.kind]; {
	case err != nil:
	case f.from.kind == unboundedFollowing:
		err = newError(p.src, f.from.at, "a frame cannot start at UNBOUNDED FOLLOWING")
	case f.to.kind == unboundedPreceding:
		err = newError(p.src, f.to.at, "a frame cannot end at UNBOUNDED PRECEDING")
	case from > to:
		err = newError(p.src, f.to.at, "a frame that starts at %s cannot end at %s", f.from.kind, f.to.kind)
	}
	return f, err
}

// The kinds of a boundNode.
const (
	unboundedPreceding = "UNBOUNDED PRECEDING"
	preceding          = "PRECEDING"
	currentRow         = "CURRENT ROW"
	following          = "FOLLOWING"
	unboundedFollowing = "UNBOUNDED FOLLOWING"
)

var boundOrder = map[string]int{unboundedPreceding: 0, preceding: 1, currentRow: 2, following: 3, unboundedFollowing: 4}

// frameBound parses one bound of a frame.
func (p *parser) frameBound() (n boundNode, err error) {
	n.at = p.peek().pos
	switch {
	case p.peek().is("CURRENT") && p.ahead(1).is("ROW"):
		p.next += 2
		n.kind = currentRow
		return n, nil
	case p.peek().is("UNBOUNDED"):
		p.advance()
		n.kind = "UNBOUNDED "
	default:
		// AND ends the bound.
		if n.offset, err = p.expression(bindBetween); err != nil {
			return n, err
		}
	}
	switch {
	case p.accept(preceding):
		n.kind += preceding
	case p.accept(following):
		n.kind += following
	default:
		return n, p.unexpected("PRECEDING or FOLLOWING")
	}
	return n, nil
}

// list parses expressions up to and including the closing parenthesis.
func (p *parser) list() ([]Node, error) {
	var list []Node
	for {
		n, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
		if p.accept(")") {
			return list, nil
		}
		if !p.accept(",") {
			return nil, p.unexpected("a comma or )")
		}
	}
}
