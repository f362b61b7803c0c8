package syntax

import "strings"

// Star is * or table.* with its modifiers.
type Star struct {
	Table   string // "" for all columns
	Exclude []StarName
	Replace []StarColumn // expressions that replace columns
	Rename  []StarColumn // columns with new names
}

// StarName is the name of a column, perhaps with its table.
type StarName struct{ Table, Name string }

// StarColumn is an expression, also as text, or a column, and its name in the result.
type StarColumn struct {
	X    Node
	Text string
	StarName
	As string
}

// ParseStar parses [table.]* [EXCLUDE (a, …)] [REPLACE (expression AS a, …)] [RENAME (a AS b, …)].
// It returns nil if the text does not begin with a star. The error is an *Error.
func ParseStar(src string) (*Star, error) { return Values(nil).ParseStar(src) }

// ParseStar is the function ParseStar for a text with values.
func (v Values) ParseStar(src string) (_ *Star, err error) {
	if !strings.Contains(src, "*") {
		return nil, nil
	}
	p, err := newParser(src, v)
	defer func() { err = p.Hide(err) }()
	if err != nil {
		return nil, nil // Parse reports it
	}
	s := &Star{}
	var table []string
	for p.isName() && p.ahead(1).is(".") {
		table = append(table, p.advance().text)
		p.advance()
	}
	if !p.accept("*") {
		return nil, nil
	}
	s.Table = strings.Join(table, ".")
	if err := p.starModifiers(s); err != nil {
		return nil, err
	}
	if p.peek().kind != tokenEOF {
		return nil, p.unexpected("EXCLUDE, REPLACE, RENAME or the end")
	}
	return s, nil
}

// starModifiers parses EXCLUDE, REPLACE and RENAME.
func (p *parser) starModifiers(s *Star) error {
	for _, clause := range []struct {
		word string
		item func() error
	}{
		{"EXCLUDE", func() error {
			name, err := p.starName()
			s.Exclude = append(s.Exclude, name)
			return err
		}},
		{"REPLACE", func() error {
			from := p.peek().pos
			x, err := p.expression(bindNone)
			if err != nil {
				return err
			}
			c := StarColumn{X: x, Text: strings.TrimSpace(p.src[from:p.peek().pos])}
			err = p.expect("AS")
			if err == nil {
				c.StarName, err = p.starName()
				c.As = c.Name
			}
			s.Replace = append(s.Replace, c)
			return err
		}},
		{"RENAME", func() error {
			name, err := p.starName()
			c := StarColumn{StarName: name}
			if err == nil {
				err = p.expect("AS")
			}
			if err == nil {
				to, wrong := p.starName()
				c.As, err = to.Name, wrong
			}
			s.Rename = append(s.Rename, c)
			return err
		}},
	} {
		next := p.ahead(1)
		other := p.sql && clause.word == "EXCLUDE" && p.peek().is("EXCEPT") && next.is("(") && !next.query
		if !p.peek().is(clause.word) && !other {
			continue
		}
		p.advance()
		if !p.accept("(") {
			if err := clause.item(); err != nil {
				return err
			}
			continue
		}
		for more := true; more; more = p.another() {
			if err := clause.item(); err != nil {
				return err
			}
		}
		if err := p.expect(")"); err != nil {
			return err
		}
	}
	return nil
}

// isName reports whether the next token can be a name.
func (p *parser) isName() bool {
	t := p.peek()
	return t.kind == tokenQuoted || t.kind == tokenIdent && !p.isReserved(t)
}

func (p *parser) starName() (StarName, error) {
	var parts []string
	for {
		if !p.isName() {
			return StarName{}, p.unexpected("the name of a column")
		}
		parts = append(parts, p.advance().text)
		if t := p.peek(); p.sql && t.is(".") && len(parts) == 2 {
			return StarName{}, NewError(p.src, t.pos, "found a name of three parts, expected a column, or a table and "+
				"a column")
		}
		if !p.accept(".") {
			break
		}
	}
	last := len(parts) - 1
	return StarName{strings.Join(parts[:last], "."), parts[last]}, nil
}
