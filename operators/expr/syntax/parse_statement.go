package syntax

// maxStatements bounds the bytes of a text with statements.
const maxStatements = 8 << 20

// ParseStatements parses the statements of an SQL text, which semicolons separate. The error is an *Error.
func ParseStatements(src string) ([]Statement, error) { return Values(nil).ParseStatements(src) }

// ParseStatements is the function ParseStatements for a text with values.
func (v Values) ParseStatements(src string) (_ []Statement, err error) {
	if len(src) > maxStatements {
		return nil, NewError(src[:0], 0, "the text has %d bytes, more than the %d that are allowed", len(src),
			maxStatements)
	}
	p := &parser{src: src, sql: true}
	defer func() { err = p.Hide(err) }()
	if err := p.scan(lexer{src: src, values: v, sql: true, end: "the end of the text"}); err != nil {
		return nil, err
	}
	p.markQueries()
	var list []Statement
	for {
		for p.accept(";") {
		}
		if p.peek().kind == tokenEOF {
			return list, nil
		}
		p.marks = 0
		s, err := p.statement()
		if err != nil {
			return nil, err
		}
		list = append(list, s)
		if t := p.peek(); !t.is(";") && t.kind != tokenEOF {
			return nil, p.unexpected("the end of the statement")
		}
	}
}

// statement parses one statement.
func (p *parser) statement() (Statement, error) {
	t := p.peek()
	if p.startsQuery() || t.is("(") {
		return p.query()
	}
	return nil, p.unexpected("a statement: SELECT, FROM, WITH or VALUES")
}
