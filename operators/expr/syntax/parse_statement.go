package syntax

import (
	"errors"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// MaxText bounds the bytes of a text with statements, maxTokens its words and signs.
const (
	MaxText   = 8 << 20
	maxTokens = 2 << 20
)

// IsComplete reports whether a text ends with a semicolon after its last statement, or has a mistake that more text
// does not mend.
func IsComplete(src string) bool {
	var last token
	for l := (lexer{src: src, sql: true}); ; {
		t, err := l.next()
		switch mistake := (*Error)(nil); {
		case errors.As(err, &mistake):
			return !mistake.Unclosed
		case t.kind == tokenEOF:
			return last.is(";")
		}
		last = t
	}
}

// ParseStatements parses the statements of an SQL text, which semicolons separate. The error is an *Error.
func ParseStatements(src string) ([]Statement, error) { return Values(nil).ParseStatements(src) }

// ParseStatements is the function ParseStatements for a text with values. A parameter without a value is a mistake,
// unless v is nil. types are those that were created before.
func (v Values) ParseStatements(src string, types ...*CreateType) (_ []Statement, err error) {
	if len(src) > MaxText {
		return nil, NewError(src[:0], 0, "the text has %d bytes, more than the %d that are allowed", len(src),
			MaxText)
	}
	p := &parser{src: src, sql: true, valued: v != nil, types: map[string]gpu.Type{}}
	for _, t := range types {
		p.types[strings.ToLower(t.Name)] = t.Type
	}
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
		p.marks, p.parameters, p.chain = 0, "", 0
		s, err := p.statement()
		if err != nil {
			return nil, err
		}
		list = append(list, s)
		if t := p.peek(); !t.is(";") && t.kind != tokenEOF {
			return nil, p.unfinished("the end of the statement")
		}
	}
}

// statement parses one statement.
func (p *parser) statement() (Statement, error) {
	t := p.peek()
	if t.kind == tokenIdent {
		switch strings.ToUpper(t.text) {
		case "COPY":
			return p.copy()
		case "CREATE":
			return p.create()
		case "EXPLAIN":
			return p.explain()
		case "DESCRIBE", "DESC", "SUMMARIZE":
			return p.describe()
		case "SET":
			return p.set()
		}
	}
	if err := p.unsupportedStatement(); err != nil {
		return nil, err
	}
	if p.startsQuery() || t.is("(") {
		return p.query()
	}
	return nil, p.unexpected("a statement: SELECT, FROM, WITH, VALUES, COPY, CREATE, EXPLAIN, DESCRIBE, SUMMARIZE " +
		"or SET")
}

// copy parses COPY query|table TO 'path' [(options)].
func (p *parser) copy() (_ *Copy, err error) {
	n := &Copy{Base: p.at(p.advance().pos)}
	if p.peek().is("(") {
		n.Query, err = p.queryInParentheses()
	} else if t := p.peek(); p.startsQuery() {
		err = NewError(p.src, t.pos, "found %s, expected a table, or a query in parentheses", strings.ToUpper(t.text))
	} else {
		n.Query, err = p.copiedTable()
	}
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.is("FROM") {
		return nil, NewError(p.src, t.pos, "COPY … FROM is not possible; write FROM 'path'")
	}
	if !p.accept("TO") {
		return nil, p.unexpected("TO")
	}
	path := p.peek()
	if path.kind != tokenString {
		return nil, p.unexpected("the path of a file in single quotes")
	}
	n.To, n.hidden = p.advance().text, path.hidden
	with := p.accept("WITH")
	if t := p.peek(); t.kind == tokenIdent {
		return nil, NewError(p.src, t.pos, "found %s: the options of COPY stand in parentheses, such as "+
			"(FORMAT parquet, COMPRESSION zstd)", t.describe())
	}
	if !with && !p.peek().is("(") {
		return n, nil
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	for more := true; more; more = p.another() {
		o, err := p.copyOption()
		if err != nil {
			return nil, err
		}
		n.Options = append(n.Options, o)
	}
	if !p.accept(")") {
		return nil, p.unexpected("a comma or )")
	}
	return n, nil
}

// copiedTable parses table [(columns)] as a query.
func (p *parser) copiedTable() (*Query, error) {
	pos := p.peek().pos
	q, err := p.wholeTable()
	if err != nil || !p.peek().is("(") {
		return q, err
	}
	columns, err := p.names("a column")
	if err != nil {
		return nil, err
	}
	s := q.Body.(*Select)
	s.Items = nil
	for _, c := range columns {
		s.Items = append(s.Items, SelectItem{X: &Name{p.at(pos), []string{c}}})
	}
	return q, nil
}

// wholeTable parses the name of a table as a query for its rows.
func (p *parser) wholeTable() (*Query, error) {
	pos := p.peek().pos
	t, err := p.tableName()
	if err != nil {
		return nil, err
	}
	return &Query{Base: p.at(pos), Body: &Select{Base: p.at(pos), Items: p.all(pos), From: []TableRef{t}}}, nil
}

// copyOption parses name [value].
func (p *parser) copyOption() (o NamedArgument, err error) {
	t := p.peek()
	if t.kind != tokenIdent && t.kind != tokenQuoted {
		return o, p.unexpected("the name of an option")
	}
	p.advance()
	o = NamedArgument{Base: p.at(t.pos), Name: t.text}
	switch next := p.peek(); {
	case next.is(","), next.is(")"):
		return o, nil
	case next.is("="):
		return o, NewError(p.src, next.pos, "found =: the value of an option follows its name, as in %s %s",
			Cut(t.text, 30), Cut(p.ahead(1).text, 30))
	}
	o.Value, err = p.argument()
	return o, err
}

// create parses CREATE [OR REPLACE] [TEMP] VIEW|TABLE|MACRO|TYPE ….
func (p *parser) create() (Statement, error) {
	pos := p.advance().pos
	replace := p.acceptAll("OR", "REPLACE")
	temp := p.accept("TEMP") || p.accept("TEMPORARY")
	t := p.peek()
	switch {
	case t.is("VIEW"), t.is("TABLE"):
		return p.createView(&CreateView{Base: p.at(pos), Replace: replace, Temp: temp, Table: t.is("TABLE")})
	case t.is("MACRO"), t.is("FUNCTION"):
		return p.createMacro(&CreateMacro{Base: p.at(pos), Replace: replace, Temp: temp})
	case t.is("TYPE"):
		return p.createType(&CreateType{Base: p.at(pos), Replace: replace, Temp: temp})
	case t.is("RECURSIVE"):
		return nil, NewError(p.src, t.pos, "CREATE RECURSIVE VIEW is not possible; write CREATE VIEW name AS WITH "+
			"RECURSIVE name AS (…) FROM name")
	}
	if t.kind == tokenIdent {
		return nil, NewError(p.src, t.pos, "CREATE %s is not possible; expected CREATE VIEW, CREATE TEMP TABLE, "+
			"CREATE MACRO or CREATE TYPE", strings.ToUpper(Cut(t.text, 30)))
	}
	return nil, p.unexpected("VIEW, TEMP TABLE, MACRO or TYPE")
}

func (p *parser) createType(n *CreateType) (_ *CreateType, err error) {
	at := p.advance().pos
	if n.Name, n.IfNotExists, err = p.created("type", n.Replace); err != nil {
		return nil, err
	}
	if !p.accept("AS") {
		return nil, p.unexpected("AS and a type, such as ENUM('a', 'b')")
	}
	if n.Type, err = p.typeName(); err != nil {
		return nil, err
	}
	key := strings.ToLower(n.Name)
	old, exists := p.types[key]
	switch {
	case exists && n.IfNotExists:
		n.Type = old
	case exists && !n.Replace:
		return nil, NewError(p.src, at, "there is a type %q already; CREATE OR REPLACE replaces it", Cut(n.Name, 60))
	}
	p.types[key] = n.Type
	return n, nil
}

// created parses [IF NOT EXISTS] name.
func (p *parser) created(what string, replace bool) (name string, ifNotExists bool, err error) {
	t := p.peek()
	if ifNotExists = p.acceptAll("IF", "NOT", "EXISTS"); ifNotExists && replace {
		return "", false, NewError(p.src, t.pos, "OR REPLACE and IF NOT EXISTS exclude each other")
	}
	if name, err = p.name("the name of the " + what); err != nil {
		return "", false, err
	}
	if t := p.peek(); t.is(".") {
		return "", false, NewError(p.src, t.pos, "the name of a %s has one part: schemas are not possible", what)
	}
	return name, ifNotExists, nil
}

func (p *parser) createView(n *CreateView) (_ *CreateView, err error) {
	what := strings.ToLower(p.advance().text)
	if n.Name, n.IfNotExists, err = p.created(what, n.Replace); err != nil {
		return nil, err
	}
	if p.peek().is("(") {
		if n.Columns, err = p.names("a column"); err != nil {
			if t := p.peek(); n.Table && t.kind == tokenIdent {
				err = NewError(p.src, t.pos, "found %s: a table is created by a query; write CREATE TEMP TABLE … AS "+
					"SELECT", t.describe())
			}
			return nil, err
		}
	}
	if !p.accept("AS") {
		return nil, p.unexpected("AS and a query")
	}
	if n.Query, err = p.query(); err != nil {
		return nil, err
	}
	if t := p.peek(); t.is("WITH") && n.Table {
		return nil, NewError(p.src, t.pos, "WITH DATA is not possible; a table has the rows of its query, and "+
			"with LIMIT 0 none")
	}
	return n, nil
}

func (p *parser) createMacro(n *CreateMacro) (_ *CreateMacro, err error) {
	p.advance()
	if n.Name, n.IfNotExists, err = p.created("macro", n.Replace); err != nil {
		return nil, err
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	for more := !p.peek().is(")"); more; more = p.another() {
		if err := p.macroParameter(n); err != nil {
			return nil, err
		}
	}
	if !p.accept(")") {
		return nil, p.unexpected("a comma or )")
	}
	if !p.accept("AS") {
		return nil, p.unexpected("AS and an expression, or AS TABLE and a query")
	}
	if p.accept("TABLE") {
		n.Query, err = p.query()
	} else if n.X, err = p.expression(bindNone); err == nil && p.peek().is(",") {
		err = NewError(p.src, p.peek().pos, "a macro has one list of parameters; give macros with others other names")
	}
	return n, err
}

// macroParameter parses name [:= default].
func (p *parser) macroParameter(n *CreateMacro) error {
	t := p.peek()
	name, err := p.name("a parameter")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(n.Parameters, func(s string) bool { return strings.EqualFold(s, name) }) {
		return NewError(p.src, t.pos, "the macro has two parameters %s", Cut(name, 60))
	}
	n.Parameters = append(n.Parameters, name)
	switch next := p.peek(); {
	case p.acceptAll(":", "="), p.acceptAll("=", ">"):
		x, err := p.expression(bindNone)
		n.Defaults = append(n.Defaults, NamedArgument{p.at(t.pos), name, x})
		return err
	case next.kind == tokenIdent:
		return NewError(p.src, next.pos, "found %s: a parameter of a macro has no type", next.describe())
	case len(n.Defaults) > 0:
		return NewError(p.src, t.pos, "parameter %s without a default follows one with a default", Cut(name, 60))
	}
	return nil
}

// explain parses EXPLAIN [ANALYZE] statement.
func (p *parser) explain() (_ *Explain, err error) {
	n := &Explain{Base: p.at(p.advance().pos)}
	n.Analyze = p.accept("ANALYZE") || p.accept("ANALYSE")
	if t := p.peek(); t.is("(") && !t.query {
		option := p.ahead(1)
		if !option.is("ANALYZE") && !option.is("ANALYSE") || !p.ahead(2).is(")") {
			return nil, NewError(p.src, option.pos, "found %s: the only option of EXPLAIN is ANALYZE",
				option.describe())
		}
		n.Analyze = true
		p.next += 3
	}
	if t := p.peek(); t.is("EXPLAIN") {
		return nil, NewError(p.src, t.pos, "found EXPLAIN after EXPLAIN, expected a statement")
	}
	n.Statement, err = p.statement()
	return n, err
}

// describe parses DESCRIBE|SUMMARIZE query|table.
func (p *parser) describe() (_ *Describe, err error) {
	t := p.advance()
	n := &Describe{Base: p.at(t.pos), Summarize: t.is("SUMMARIZE")}
	if p.peek().is("TABLE") || p.isName() || p.peek().kind == tokenString {
		if !(p.peek().is("VALUES") && p.ahead(1).is("(")) {
			p.accept("TABLE")
			n.Query, err = p.wholeTable()
			return n, err
		}
	}
	if !p.startsQuery() && !p.peek().is("(") {
		return nil, p.unexpected("a table or a query")
	}
	n.Query, err = p.query()
	return n, err
}

// set parses SET [SESSION|GLOBAL] name =|TO value.
func (p *parser) set() (_ *Set, err error) {
	n := &Set{Base: p.at(p.advance().pos)}
	t, next := p.peek(), p.ahead(1)
	switch {
	case next.is("="), next.is("TO"):
	case t.is("SESSION"), t.is("GLOBAL"):
		p.advance()
	case t.is("LOCAL"), t.is("VARIABLE"), t.is("TIME") && next.is("ZONE"), t.is("SCHEMA"):
		return nil, NewError(p.src, t.pos, "SET %s is not possible; write SET name = value", strings.ToUpper(t.text))
	}
	if n.Name, err = p.name("the name of a setting"); err != nil {
		return nil, err
	}
	if !p.accept("=") && !p.accept("TO") {
		return nil, p.unexpected("= or TO")
	}
	n.Value, err = p.expression(bindNone)
	return n, err
}
