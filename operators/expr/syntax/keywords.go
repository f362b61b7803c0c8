package syntax

import "strings"

// The keywords of statements, as in DuckDB.
var (
	// keywords cannot be names without quotes.
	keywords = words(`ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC BOTH CASE CAST CHECK COLLATE COLUMN
		CONSTRAINT CREATE DEFAULT DEFERRABLE DESC DESCRIBE DISTINCT DO ELSE END EXCEPT FALSE FETCH FOR FOREIGN FROM
		GROUP HAVING IN INITIALLY INTERSECT INTO LAMBDA LATERAL LEADING LIMIT NOT NULL OFFSET ON ONLY OR ORDER PIVOT
		PIVOT_LONGER PIVOT_WIDER PLACING PRIMARY QUALIFY REFERENCES RETURNING SELECT SHOW SOME SUMMARIZE SYMMETRIC
		TABLE THEN TO TRAILING TRUE UNION UNIQUE UNPIVOT USING VARIADIC WHEN WHERE WINDOW WITH`)
	// functionKeywords can be names of functions, not of columns, tables and aliases.
	functionKeywords = words(`ANTI ASOF AT AUTHORIZATION BINARY BY COLLATION CONCURRENTLY CROSS FREEZE FULL GLOB ILIKE
		INNER IS ISNULL JOIN LEFT LIKE NATURAL NOTNULL OUTER OVERLAPS POSITIONAL RIGHT SEMI SIMILAR TABLESAMPLE UNPACK
		VERBOSE`)
	// continuing words can be aliases of columns only after AS: they continue an expression.
	continuing = words(`CENTURIES CENTURY DAY DAYS DECADE DECADES ESCAPE EXCLUDE EXPORT_STATE FILTER HOUR HOURS IGNORE
		MICROSECOND MICROSECONDS MILLENNIA MILLENNIUM MILLISECOND MILLISECONDS MINUTE MINUTES MONTH MONTHS OVER
		PRECISION QUARTER QUARTERS RENAME REPLACE RESPECT SECOND SECONDS VARYING WEEK WEEKS WITHIN WITHOUT YEAR YEARS`)
	// operands are the keywords that begin an expression.
	operands = words(`ARRAY CASE CAST DEFAULT FALSE LAMBDA NOT NULL TRUE`)
	// columnForms are the words that begin an expression if an argument follows, and are columns otherwise.
	columnForms = words(`EXTRACT INTERVAL POSITION SUBSTRING TRIM TRY_CAST BETWEEN ESCAPE EXISTS`)
)

// isReserved reports whether a token without quotes cannot be a name.
func (p *parser) isReserved(t token) bool {
	word := strings.ToUpper(t.text)
	if p.sql {
		return keywords[word] || functionKeywords[word]
	}
	return reserved[word]
}

// label parses the name after AS, which can be any word or a string.
func (p *parser) label() (string, error) {
	switch t := p.peek(); {
	case t.hidden != "":
	case t.kind == tokenIdent, t.kind == tokenQuoted, t.kind == tokenString:
		p.advance()
		return t.text, nil
	}
	return "", p.unexpected("a name after AS")
}

// name parses the name of what.
func (p *parser) name(what string) (string, error) {
	if t := p.peek(); !p.isName() {
		if p.startsQuery() {
			return "", NewError(p.src, t.pos, "found %s, expected %s; a query within a query stands in parentheses",
				strings.ToUpper(t.text), what)
		}
		if t.kind == tokenIdent {
			return "", NewError(p.src, t.pos, "found the keyword %s, expected %s; a name that is a keyword stands in "+
				"double quotes", strings.ToUpper(t.text), what)
		}
		return "", p.unexpected(what)
	}
	return p.advance().text, nil
}

// names parses (a, b, …).
func (p *parser) names(what string) (names []string, err error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	for more := true; more; more = p.another() {
		name, err := p.name(what)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if !p.accept(")") {
		return nil, p.unexpected("a comma or )")
	}
	return names, nil
}

// another parses a comma before another element of a list. The comma of a statement may be the end of the list.
func (p *parser) another() bool { return p.accept(",") && !(p.sql && p.endsList(0)) }

// endsList reports whether the nth next token cannot begin an expression, since it ends a list.
func (p *parser) endsList(n int) bool {
	t := p.ahead(n)
	word := strings.ToUpper(t.text)
	return t.kind == tokenEOF || t.is(")") || t.is(";") ||
		t.kind == tokenIdent && keywords[word] && !operands[word]
}

// acceptAll consumes the tokens if they are the given keywords.
func (p *parser) acceptAll(words ...string) bool {
	for i, w := range words {
		if !p.ahead(i).is(w) {
			return false
		}
	}
	p.next += len(words)
	return true
}

// clauses are the words that begin a clause of a query.
var clauses = words(`SELECT FROM WHERE GROUP HAVING WINDOW QUALIFY USING ORDER LIMIT OFFSET FETCH`)

// unfinished returns the error for a token after which a statement or a query in parentheses should have ended.
func (p *parser) unfinished(end string) error {
	t := p.peek()
	word := strings.ToUpper(t.text)
	switch {
	case p.unsupportedToken(t) != nil:
	case (t.is("ORDER") || t.is("GROUP")) && !p.ahead(1).is("BY"):
		p.advance()
		return p.unexpected("BY after " + word)
	case t.is("UNION"), t.is("INTERSECT"), t.is("EXCEPT"):
		return NewError(p.src, t.pos, "found %s after ORDER BY or LIMIT; the query before %[1]s stands in parentheses",
			word)
	case t.is("ON"):
		return NewError(p.src, t.pos, "found ON, but the join has its condition, or none as CROSS JOIN, NATURAL JOIN "+
			"and POSITIONAL JOIN")
	case t.kind == tokenIdent && clauses[word]:
		return NewError(p.src, t.pos, "found %s, expected %s; the order of clauses is SELECT, FROM, WHERE, GROUP BY, "+
			"HAVING, WINDOW, QUALIFY, USING SAMPLE, ORDER BY, LIMIT, OFFSET", word, end)
	case t.kind == tokenIdent && !t.is("AS") && (keywords[word] || functionKeywords[word] || continuing[word]):
		return NewError(p.src, t.pos, "found the keyword %s, expected an operator, a comma or %s; as an alias it "+
			"stands in double quotes", word, end)
	case t.is(")"):
		return NewError(p.src, t.pos, "found ) without its (, expected %s", end)
	}
	return p.unexpected("an operator, a comma or " + end)
}
