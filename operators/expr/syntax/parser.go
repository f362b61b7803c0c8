package syntax

import (
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
)

const (
	// maxSource bounds the bytes of an expression, maxNesting the recursion of the
	// parser, maxDepth the height of a tree. AND, OR and lists are one level, whatever
	// their length.
	maxSource  = 1 << 20
	maxNesting = 1000
	maxDepth   = 400
)

// reserved words can be column names only in quotes.
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
	chain  int  // set operations and joins so far
	marks  int  // parameters ? of the statement so far
	sql    bool // the text has statements: subqueries, parameters, rows and stars are expressions
	// parameters says whether the parameters of the statement have a number or a name, or is "".
	parameters string
	valued     bool                // a parameter without a value is a mistake
	Hidden                         // the hidden values in the text
	params     []string            // parameters of the lambdas around the next token
	sized      bool                // the type may end with the size of a list, as in INTEGER[3]
	types      map[string]gpu.Type // those of CREATE TYPE, by their names in small letters
}

// usualTokens is the number of tokens for which a parser has room at first.
const usualTokens = 16

func newParser(src string, values Values) (*parser, error) {
	if len(src) > maxSource {
		return &parser{}, NewError(src[:0], 0, "the expression has %d bytes, more than the %d that are allowed",
			len(src), maxSource)
	}
	p := &parser{src: src, tokens: make([]token, 0, min(len(src)/2+1, usualTokens))}
	return p, p.scan(lexer{src: src, values: values, end: "the end of the expression"})
}

// scan reads the tokens of the text.
func (p *parser) scan(l lexer) error {
	src, values := l.src, l.values
	for {
		if err := l.skipSpace(); err != nil {
			return err
		}
		if len(p.tokens) > maxTokens {
			return NewError(p.src, l.pos, "the text has more than %d words and signs", maxTokens)
		}
		part := values.at(src[l.pos:])
		key := part
		if part == "" {
			t, err := l.next()
			if err != nil {
				return err
			}
			key = ParameterKey(l.parameter(t))
			if _, ok := values[key]; !ok {
				p.tokens = append(p.tokens, t)
				if t.kind == tokenEOF {
					return nil
				}
				continue
			}
			part, l.pos = src[t.pos:t.end], t.pos
		}
		tokens, err := l.value(part, key)
		if p.Hidden = l.hidden; err != nil {
			return err
		}
		p.tokens = append(p.tokens, tokens...)
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
	if p.sql {
		if err := p.unsupportedToken(t); err != nil {
			return err
		}
	}
	return NewError(p.src, t.pos, "found %s, expected %s", t.describe(), expected)
}

// at makes the common part of a node from its position and its children.
func (p *parser) at(pos int, children ...Node) Base {
	b := Base{src: p.src, at: pos, tall: 1, hides: p.Hidden}
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
		return nil, NewError(p.src, p.peek().pos, "the expression is nested more than %d levels deep", maxNesting)
	}
	defer func() { p.nested-- }()
	left, err := p.prefix()
	if err != nil {
		return nil, err
	}
	return p.after(left, power)
}

// after parses the operators that bind tighter than power after left.
func (p *parser) after(left Node, power int) (_ Node, err error) {
	for err == nil {
		if left.depth() > maxDepth {
			return nil, NewError(p.src, left.Pos(), "the expression is nested more than %d levels deep", maxDepth)
		}
		var more bool
		if left, more, err = p.infix(left, power); !more {
			return left, err
		}
	}
	return nil, err
}

// infix parses one operator and its right side after left. more is false if the next token does not
// continue the expression.
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
		return &Call{Base: p.at(t.pos, left, zone), Name: "timezone", Args: []Node{zone, left}}, true, err
	case !not && (t.is("IS") || t.is("ISNULL") || t.is("NOTNULL")) && power < bindIs:
		n, err = p.is(left)
		return n, true, err
	case p.sql && not && word.is("NULL") && power < bindIs:
		p.next += 2
		n = &Is{Base: p.at(t.pos, left), X: left, What: "NULL", Not: true}
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
	case ".":
		if !p.startsMethod() {
			return p.field(left)
		}
		p.advance()
		name := p.advance()
		p.advance()
		n, err := p.call(name, left)
		return n, true, err
	case "::":
		p.advance()
		n, err := p.castTo(t.pos, left)
		return n, true, err
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
	if p.sql && op == "%" && p.endsList(1) {
		return left, false, nil // LIMIT 10%
	}
	p.advance()
	if op == "->" {
		n, err := p.arrow(left, t.pos)
		return n, true, err
	}
	if quantifier := p.peek(); p.sql && bp == bindCompare && (quantifier.is("ANY") || quantifier.is("SOME") ||
		quantifier.is("ALL")) {
		n, err := p.quantified(left, t.pos, op)
		return n, true, err
	}
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
			return nil, false, NewError(p.src, next.pos,
				"found %s after a comparison: comparisons cannot be chained, join them with AND", next.describe())
		}
	}
	return &Binary{Base: p.at(t.pos, left, right), Op: op, L: left, R: right}, true, nil
}

// arrow parses the right side of ->, as DuckDB does: all that follows, such as a comparison, unless another arrow does.
func (p *parser) arrow(left Node, pos int) (Node, error) {
	right, err := p.expression(bindOther)
	if next := p.peek(); err == nil && !next.is("->") && !next.is("->>") {
		right, err = p.after(right, bindNone)
	}
	if err != nil {
		return nil, err
	}
	return &Binary{Base: p.at(pos, left, right), Op: "->", L: left, R: right}, nil
}

// startsMethod reports whether the next tokens are a period, the name of a function and a parenthesis: x.f(y) is
// f(x, y).
func (p *parser) startsMethod() bool {
	name := p.ahead(1)
	return p.sql && p.peek().is(".") && (name.kind == tokenIdent || name.kind == tokenQuoted) && p.ahead(2).is("(")
}

// slice parses [n], [from:to], [from:], [:to] and [from:to:step] after a text or a list. A to that is - is the end.
func (p *parser) slice(s Node) (Node, error) {
	t := p.advance()
	call := func(name string, args ...Node) (Node, error) {
		return &Call{Base: p.at(t.pos, args...), Name: name, Args: args}, p.expect("]")
	}
	var from, to, step Node
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
	if p.peek().is("-") && p.ahead(1).is(":") {
		p.advance()
	} else if !p.peek().is("]") {
		if to, err = p.expression(bindNone); err != nil {
			return nil, err
		}
	}
	if p.accept(":") {
		if step, err = p.expression(bindNone); err != nil {
			return nil, err
		}
	}
	var first Node = &NumberLiteral{p.at(t.pos), "1", ""}
	var last Node = &Unary{p.at(t.pos, first), "-", first}
	switch step := step.(type) {
	case nil, *NumberLiteral:
	case *Unary:
		if step.Op == "-" {
			first, last = last, first
		}
	default: // its sign is not known
		zero := &NumberLiteral{p.at(t.pos), "0", ""}
		backward := &Binary{p.at(t.pos, step, zero), "<", step, zero}
		either := func(x, y Node) Node {
			return &Call{Base: p.at(t.pos, backward, x, y), Name: "if", Args: []Node{backward, x, y}}
		}
		first, last = either(last, first), either(first, last)
	}
	if from == nil {
		from = first
	}
	if to == nil {
		to = last
	}
	if step == nil {
		return call("array_slice", s, from, to)
	}
	return call("array_slice", s, from, to, step)
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
	if l, ok := left.(*Logic); ok && l.Op == op {
		args = slices.Clone(l.Args)
	}
	for p.accept(op) {
		right, err := p.expression(bp)
		if err != nil {
			return nil, false, err
		}
		args = append(args, right)
	}
	return &Logic{Base: p.at(t.pos, args...), Op: op, Args: args}, true, nil
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
	return &Between{Base: p.at(pos, x, lo, hi), X: x, Lo: lo, Hi: hi, Not: not}, nil
}

func (p *parser) in(x Node, pos int, not bool) (Node, error) {
	p.advance()
	switch {
	case !p.peek().is("("):
		return p.inList(x, pos, not)
	case p.sql:
		return p.inQuery(x, pos, not)
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	return &In{Base: p.at(pos, append(list, x)...), X: x, List: list, Not: not}, nil
}

func (p *parser) like(x Node, pos int, not, fold bool) (Node, error) {
	p.advance()
	pattern, err := p.expression(bindBetween)
	if err != nil {
		return nil, err
	}
	n := &Like{X: x, Pattern: pattern, Not: not, Fold: fold}
	if p.accept("ESCAPE") {
		if n.Escape, err = p.expression(bindBetween); err != nil {
			return nil, err
		}
	}
	n.Base = p.at(pos, x, pattern, n.Escape)
	return n, nil
}

// regexp parses the pattern after an operator that stands for a call.
func (p *parser) regexp(x Node, pos int, not bool, call, options string) (Node, error) {
	p.advance()
	pattern, err := p.expression(bindBetween)
	if err != nil {
		return nil, err
	}
	args := []Node{x, pattern}
	if options != "" {
		args = append(args, &StringLiteral{p.at(pos), options, false, ""})
	}
	var n Node = &Call{Base: p.at(pos, x, pattern), Name: call, Args: args}
	if not {
		n = &Unary{p.at(pos, x, pattern), "NOT", n}
	}
	return n, nil
}

func (p *parser) is(x Node) (Node, error) {
	t := p.advance()
	n := &Is{Base: p.at(t.pos, x), X: x, What: "NULL"}
	if t.is("ISNULL") || t.is("NOTNULL") {
		n.Not = t.is("NOTNULL")
		return n, nil
	}
	n.Not = p.accept("NOT")
	switch t := p.peek(); {
	case p.accept("NULL"):
	case p.accept("TRUE"), p.accept("FALSE"), p.accept("UNKNOWN"):
		n.What = strings.ToUpper(t.text)
	case p.accept("DISTINCT"):
		n.What = "DISTINCT"
		if err := p.expect("FROM"); err != nil {
			return nil, err
		}
		y, err := p.expression(bindIs)
		if err != nil {
			return nil, err
		}
		n.Y, n.Base = y, p.at(n.at, x, y)
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
		return &NumberLiteral{p.at(t.pos), t.text, t.hidden}, nil
	case tokenString, tokenBlob:
		p.advance()
		return &StringLiteral{p.at(t.pos), t.text, t.kind == tokenBlob, t.hidden}, nil
	case tokenSymbol:
		switch t.text {
		case "(":
			if p.sql {
				return p.parenthesis()
			}
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
			return &Unary{p.at(t.pos, x), t.text, x}, nil
		case "[":
			return p.listLiteral()
		case "{":
			return p.structLiteral()
		case "-", "+":
			p.advance()
			x, err := p.expression(bindSign)
			if err != nil {
				return nil, err
			}
			return &Unary{p.at(t.pos, x), t.text, x}, nil
		}
	case tokenIdent:
		if p.sql {
			if n, err := p.statementForm(); n != nil || err != nil {
				return n, err
			}
		}
		if forms[strings.ToUpper(t.text)] {
			return p.form()
		}
		if !reserved[strings.ToUpper(t.text)] {
			return p.nameOrCall()
		}
	case tokenQuoted:
		return p.nameOrCall()
	}
	if p.sql && (t.kind == tokenParameter || t.is("?")) {
		return p.parameter()
	}
	if !p.sql && (t.is("EXISTS") || p.startsQuery() && p.next > 0 && p.tokens[p.next-1].is("(")) {
		return nil, NewError(p.src, t.pos, "found a subquery, which an expression of a job file cannot have; "+
			"a step with the key sql can")
	}
	return nil, p.unexpected("a column, a value or a function")
}

// form parses the syntax that begins with a keyword.
func (p *parser) form() (Node, error) {
	t := p.advance()
	switch word := strings.ToUpper(t.text); word {
	case "NULL", "TRUE", "FALSE":
		return &WordLiteral{p.at(t.pos), word}, nil
	case "NOT":
		x, err := p.expression(bindNot)
		if err != nil {
			return nil, err
		}
		if q, ok := x.(*Subquery); ok && q.Kind == "EXISTS" {
			q.Not = !q.Not
			return q, nil
		}
		return &Unary{p.at(t.pos, x), word, x}, nil
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

// parenthesised parses the contents of CAST(…), EXTRACT(…) and other forms with keywords.
func (p *parser) parenthesised(t token) (Node, error) {
	call := func(name string, args ...Node) Node {
		return &Call{Base: p.at(t.pos, args...), Name: name, Args: args}
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
		return call("date_part", &StringLiteral{Base: p.at(part.pos), Text: part.text}, x), err
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
	n, err := p.castTo(t.pos, x)
	n.Try = t.is("TRY_CAST")
	return n, err
}

// castTo parses the type of a cast.
func (p *parser) castTo(pos int, x Node) (n *Cast, err error) {
	n = &Cast{Base: p.at(pos, x), X: x, Type: gpu.Of(gpu.String)}
	if n.JSON = p.peek().is("JSON") && !p.ahead(1).is("["); n.JSON {
		p.advance()
		return n, nil
	}
	p.sized = true
	n.Type, err = p.typeName()
	if p.sized = false; err != nil {
		return n, err
	}
	if size := p.ahead(1); p.peek().is("[") && size.kind == tokenNumber && p.ahead(2).is("]") {
		p.advance()
		if n.Size, err = p.number("the number of elements"); err == nil && n.Size == 0 {
			err = NewError(p.src, size.pos, "a list of a fixed size has at least 1 element")
		}
		if err == nil && n.Type.Depth() == gpu.MaxNesting {
			err = NewError(p.src, size.pos, "the type is nested more than %d levels deep", gpu.MaxNesting)
		}
		if err != nil {
			return n, err
		}
		n.Type = gpu.ListOf(n.Type)
		p.advance()
	}
	return n, nil
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

// substring parses the part after the string: FROM n, FOR n, or arguments.
func (p *parser) substring(t token, s Node, call func(string, ...Node) Node) (Node, error) {
	args := []Node{s}
	from, length := p.accept("FROM"), false
	if !from {
		if length = p.accept("FOR"); length {
			args = append(args, &NumberLiteral{p.at(t.pos), "1", ""})
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
	n := &Case{}
	var err error
	if !p.peek().is("WHEN") {
		if n.Operand, err = p.expression(bindNone); err != nil {
			return nil, err
		}
	}
	children := []Node{n.Operand}
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
		n.Whens = append(n.Whens, [2]Node{when, then})
		children = append(children, when, then)
	}
	if len(n.Whens) == 0 {
		return nil, p.unexpected("WHEN")
	}
	if p.accept("ELSE") {
		if n.Otherwise, err = p.expression(bindNone); err != nil {
			return nil, err
		}
		children = append(children, n.Otherwise)
	}
	// Every branch of CASE is a level of the compiled form.
	n.Base = p.at(pos, children...)
	n.tall += len(n.Whens)
	if !p.accept("END") {
		return nil, p.unexpected("WHEN, ELSE or END")
	}
	return n, nil
}

func (p *parser) interval(pos int) (Node, error) {
	n := &Interval{}
	switch t := p.peek(); {
	case t.kind == tokenString:
		p.advance()
		n.Value = &StringLiteral{Base: p.at(t.pos), Text: t.text, hidden: t.hidden}
	case t.kind == tokenNumber:
		p.advance()
		n.Value = &NumberLiteral{p.at(t.pos), t.text, t.hidden}
	case p.accept("("):
		x, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		if err := p.expect(")"); err != nil {
			return nil, err
		}
		n.Value = x
	default:
		return nil, p.unexpected("the length of the interval, as in INTERVAL 3 DAY or INTERVAL '3 days'")
	}
	n.Base = p.at(pos, n.Value)
	if t := p.peek(); t.kind == tokenIdent {
		if unit, ok := IntervalUnit(t.text); ok {
			p.advance()
			n.Unit = unit
		}
	}
	if _, isString := n.Value.(*StringLiteral); n.Unit == "" && !isString {
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
		if t.is("MAP") && p.ahead(1).is("{") {
			return p.mapLiteral()
		}
	}
	p.advance()
	if p.accept("(") {
		return p.call(t)
	}
	n := &Name{p.at(t.pos), []string{t.text}}
	for p.peek().is(".") && !(p.startsMethod() && !p.ahead(1).is("COLUMNS")) {
		p.advance()
		part := p.peek()
		if p.sql && (part.is("*") || part.is("COLUMNS") && p.ahead(1).is("(")) {
			return p.starOf(t.pos, n.Parts)
		}
		if part.kind != tokenIdent && part.kind != tokenQuoted {
			return nil, p.unexpected("the name of a column")
		}
		p.advance()
		n.Parts = append(n.Parts, part.text)
	}
	if x := p.parameterOf(n); x != nil {
		return x, nil
	}
	return n, nil
}

// typedLiteral parses a type name followed by a string. It returns nil if there is none.
func (p *parser) typedLiteral() (Node, error) {
	pos := p.peek().pos
	if s := p.ahead(1); p.peek().is("JSON") && s.kind == tokenString {
		p.next += 2
		x := &StringLiteral{Base: p.at(s.pos), Text: s.text, hidden: s.hidden}
		return &Cast{Base: p.at(pos, x), X: x, Type: gpu.Of(gpu.String), JSON: true}, nil
	}
	if !p.startsTypedLiteral() {
		return nil, nil
	}
	typ, err := p.typeName()
	if err != nil {
		return nil, err
	}
	s := p.advance()
	x := &StringLiteral{Base: p.at(s.pos), Text: s.text, hidden: s.hidden}
	return &Cast{Base: p.at(pos, x), X: x, Type: typ}, nil
}

// startsTypedLiteral reports whether the next tokens are a type, such as DECIMAL(9, 2), and a string.
func (p *parser) startsTypedLiteral() bool {
	if _, ok := typeNames[strings.ToUpper(p.peek().text)]; !ok {
		return false
	}
	n := 1
	if p.ahead(n).is("(") {
		for n += 2; p.ahead(n-1).kind == tokenNumber && p.ahead(n).is(","); {
			n += 2
		}
		if p.ahead(n-1).kind != tokenNumber || !p.ahead(n).is(")") {
			return false
		}
		n++
	}
	switch {
	case p.ahead(n).is("PRECISION"):
		n++
	case p.ahead(n+1).is("TIME") && p.ahead(n+2).is("ZONE"):
		n += 3
	}
	return p.ahead(n).kind == tokenString
}

// call parses the part of a call after its opening parenthesis: the arguments after the first ones,
// FILTER (WHERE …) of an aggregate, and OVER (…) of a window function.
func (p *parser) call(name token, first ...Node) (Node, error) {
	n := &Call{Name: strings.ToLower(name.text), Args: first}
	err := p.arguments(n)
	if err == nil && p.peek().is("WITHIN") && p.ahead(1).is("GROUP") {
		err = p.withinGroup(n)
	}
	if err == nil && p.peek().is("FILTER") && p.ahead(1).is("(") {
		p.next += 2
		p.accept("WHERE")
		if n.Filter, err = p.expression(bindNone); err == nil {
			err = p.expect(")")
		}
	}
	if err == nil && p.accept("OVER") {
		n.Over, err = p.over()
	}
	// As in CASE, an argument can become a level of the compiled form.
	n.Base = p.at(name.pos, n.Children()...)
	n.tall += len(n.Args)
	return n, err
}

// withinGroup parses WITHIN GROUP (ORDER BY x), whose x becomes the first argument of the aggregate.
func (p *parser) withinGroup(n *Call) error {
	pos := p.peek().pos
	p.next += 2
	name, arguments := n.Name, 1
	switch n.Name {
	case "percentile_cont":
		name = "quantile_cont"
	case "percentile_disc":
		name = "quantile_disc"
	case "mode":
		arguments = 0
	default:
		return NewError(p.src, pos, "WITHIN GROUP follows percentile_cont, percentile_disc and mode, not %s", n.Name)
	}
	if len(n.Args) != arguments || n.Star || n.Distinct || len(n.Order) > 0 {
		return NewError(p.src, pos, "%s has %d arguments before WITHIN GROUP", n.Name, arguments)
	}
	if err := p.expect("("); err != nil {
		return err
	}
	order, err := p.orderBy()
	if err != nil {
		return err
	}
	if len(order) != 1 || order[0].Descending {
		return NewError(p.src, pos, "WITHIN GROUP has ORDER BY and one column in ascending order")
	}
	n.Name, n.Args = name, append([]Node{order[0].X}, n.Args...)
	return p.expect(")")
}

// namesFields are the functions whose arguments may have names.
var namesFields = map[string]bool{"struct_pack": true, "struct_insert": true, "struct_update": true}

// arguments parses the arguments of a call up to and including the closing parenthesis.
func (p *parser) arguments(n *Call) (err error) {
	if t := p.peek(); t.is("*") {
		if len(n.Args) > 0 {
			return NewError(p.src, t.pos, "found *, but %s has an argument before the period", n.Name)
		}
		p.advance()
		n.Star = true
		return p.expect(")")
	}
	if n.Distinct = p.accept("DISTINCT"); n.Distinct {
		if t := p.peek(); t.is("*") || t.is(")") {
			return NewError(p.src, t.pos, "found %s after DISTINCT, expected a column or an expression", t.describe())
		}
	} else {
		p.accept("ALL")
	}
	if t := p.peek(); !t.is(")") && !t.is("ORDER") {
		for more := true; more; more = p.another() {
			name := ""
			if namesFields[n.Name] && p.ahead(1).is(":") && p.ahead(2).is("=") {
				t := p.advance()
				if t.kind != tokenIdent && t.kind != tokenQuoted {
					p.next--
					return p.unexpected("the name of a field")
				}
				name = t.text
				p.next += 2
			}
			parse := func() (Node, error) { return p.expression(bindNone) }
			if p.startsLambda() {
				parse = p.lambda
			}
			x, err := parse()
			if err != nil {
				return err
			}
			if n.Args = append(n.Args, x); name != "" && n.Names == nil {
				n.Names = make([]string, len(n.Args)-1)
			}
			if n.Names != nil {
				n.Names = append(n.Names, name)
			}
			if n.Name == "overlay" && len(n.Args) == 1 && p.accept("PLACING") {
				return p.placing(n)
			}
		}
	}
	if n.Order, err = p.orderBy(); err != nil {
		return err
	}
	if t := p.peek(); (t.is("IGNORE") || t.is("RESPECT")) && p.ahead(1).is("NULLS") {
		n.IgnoreNulls = t.is("IGNORE")
		p.next += 2
	}
	if !p.accept(")") {
		return p.unexpected("a comma or )")
	}
	if t := p.peek(); (t.is("IGNORE") || t.is("RESPECT")) && p.ahead(1).is("NULLS") && p.ahead(2).is("OVER") {
		return NewError(p.src, t.pos, "%[1]s NULLS stands before the closing parenthesis, as in %[2]s(x %[1]s NULLS)",
			strings.ToUpper(t.text), n.Name)
	}
	return nil
}

// placing parses the rest of overlay(s PLACING text FROM start [FOR count]).
func (p *parser) placing(n *Call) error {
	for _, word := range []string{"FROM", "FOR", ")"} {
		x, err := p.expression(bindNone)
		if err != nil {
			return err
		}
		n.Args = append(n.Args, x)
		if len(n.Args) > 2 && p.accept(")") {
			return nil
		}
		if err := p.expect(word); err != nil {
			return err
		}
	}
	return nil
}

// orderBy parses an optional ORDER BY and its keys.
func (p *parser) orderBy() (keys []OrderKey, err error) {
	if !p.peek().is("ORDER") || !p.ahead(1).is("BY") {
		return nil, nil
	}
	p.next += 2
	for {
		k := OrderKey{}
		if k.X, err = p.expression(bindNone); err != nil {
			return nil, err
		}
		if err := p.direction(&k); err != nil {
			return nil, err
		}
		keys = append(keys, k)
		if !p.another() {
			return keys, nil
		}
	}
}

// direction parses [ASC|DESC] [NULLS FIRST|LAST].
func (p *parser) direction(k *OrderKey) error {
	if k.Descending = p.accept("DESC") || p.sql && p.accept("DESCENDING"); !k.Descending {
		_ = p.accept("ASC") || p.sql && p.accept("ASCENDING")
	}
	if p.accept("NULLS") {
		if k.NullsFirst = p.accept("FIRST"); !k.NullsFirst && !p.accept("LAST") {
			return p.unexpected("FIRST or LAST")
		}
	}
	return nil
}

// over parses the part after OVER.
func (p *parser) over() (w *Window, err error) {
	if t := p.peek(); !p.accept("(") {
		if p.sql && p.isName() {
			p.advance()
			return &Window{Name: t.text}, nil
		}
		if t.kind == tokenIdent || t.kind == tokenQuoted {
			return nil, NewError(p.src, t.pos,
				"found the name of a window, %s; write what it stands for: OVER (PARTITION BY … ORDER BY …)",
				t.describe())
		}
		return nil, p.unexpected("( after OVER")
	}
	return p.window()
}

// window parses the contents of the parentheses of OVER and the closing parenthesis.
func (p *parser) window() (w *Window, err error) {
	w = &Window{}
	if t := p.peek(); p.sql && p.isName() && !(t.is("PARTITION") && p.ahead(1).is("BY")) && !isFrameUnit(t) {
		w.Name = p.advance().text
	}
	if p.peek().is("PARTITION") && p.ahead(1).is("BY") {
		p.next += 2
		for more := true; more; more = p.another() {
			x, err := p.expression(bindNone)
			if err != nil {
				return nil, err
			}
			w.Partition = append(w.Partition, x)
		}
	}
	if w.Order, err = p.orderBy(); err != nil {
		return nil, err
	}
	if isFrameUnit(p.peek()) {
		if w.Frame, err = p.frame(); err != nil {
			return nil, err
		}
	}
	if t := p.peek(); t.is("EXCLUDE") {
		if w.Frame == nil {
			return nil, NewError(p.src, t.pos, "EXCLUDE needs a frame before it, such as ROWS 3 PRECEDING")
		}
		if w.Frame.Exclude, err = p.frameExclusion(); err != nil {
			return nil, err
		}
	}
	if !p.accept(")") {
		return nil, p.unexpected("PARTITION BY, ORDER BY, ROWS, RANGE, GROUPS or ) in OVER")
	}
	return w, nil
}

func isFrameUnit(t token) bool { return t.is("ROWS") || t.is("RANGE") || t.is("GROUPS") }

// frameExclusion parses EXCLUDE CURRENT ROW, GROUP, TIES and NO OTHERS, which is "".
func (p *parser) frameExclusion() (string, error) {
	p.advance()
	switch {
	case p.accept("GROUP"):
		return "GROUP", nil
	case p.accept("TIES"):
		return "TIES", nil
	case p.peek().is("CURRENT") && p.ahead(1).is("ROW"):
		p.next += 2
		return CurrentRow, nil
	case p.peek().is("NO") && p.ahead(1).is("OTHERS"):
		p.next += 2
		return "", nil
	}
	return "", p.unexpected("CURRENT ROW, GROUP, TIES or NO OTHERS")
}

// frame parses ROWS, RANGE or GROUPS and the bounds. A single bound is the first bound; the last
// bound is then the current row.
func (p *parser) frame() (f *Frame, err error) {
	f = &Frame{Unit: strings.ToUpper(p.advance().text)}
	if !p.accept("BETWEEN") {
		f.From, err = p.frameBound()
		f.To = FrameBound{at: f.From.at, Kind: CurrentRow}
	} else if f.From, err = p.frameBound(); err == nil {
		if err = p.expect("AND"); err == nil {
			f.To, err = p.frameBound()
		}
	}
	switch from, to := boundOrder[f.From.Kind], boundOrder[f.To.Kind]; {
	case err != nil:
	case f.From.Kind == UnboundedFollowing:
		err = NewError(p.src, f.From.at, "a frame cannot start at UNBOUNDED FOLLOWING")
	case f.To.Kind == UnboundedPreceding:
		err = NewError(p.src, f.To.at, "a frame cannot end at UNBOUNDED PRECEDING")
	case from > to:
		err = NewError(p.src, f.To.at, "a frame that starts at %s cannot end at %s", f.From.Kind, f.To.Kind)
	}
	return f, err
}

// The kinds of a boundNode.
const (
	UnboundedPreceding = "UNBOUNDED PRECEDING"
	Preceding          = "PRECEDING"
	CurrentRow         = "CURRENT ROW"
	Following          = "FOLLOWING"
	UnboundedFollowing = "UNBOUNDED FOLLOWING"
)

var boundOrder = map[string]int{UnboundedPreceding: 0, Preceding: 1, CurrentRow: 2, Following: 3, UnboundedFollowing: 4}

// frameBound parses one bound of a frame.
func (p *parser) frameBound() (n FrameBound, err error) {
	n.at = p.peek().pos
	switch {
	case p.peek().is("CURRENT") && p.ahead(1).is("ROW"):
		p.next += 2
		n.Kind = CurrentRow
		return n, nil
	case p.peek().is("UNBOUNDED"):
		p.advance()
		n.Kind = "UNBOUNDED "
	default:
		// AND ends the bound.
		if n.Offset, err = p.expression(bindBetween); err != nil {
			return n, err
		}
	}
	switch {
	case p.accept(Preceding):
		n.Kind += Preceding
	case p.accept(Following):
		n.Kind += Following
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
		more := p.another()
		if p.accept(")") {
			return list, nil
		}
		if !more {
			return nil, p.unexpected("a comma or )")
		}
	}
}
