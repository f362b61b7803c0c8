package syntax

import "strings"

// unsupportedTokens are the words and signs of DuckDB's expressions that are not possible, with what to write instead.
var unsupportedTokens = map[string]string{
	"*":       "a star stands after SELECT, and in count(*) and COLUMNS(*)",
	"#":       "columns by their position are not possible; write the name of the column",
	"!":       "! is not possible; write NOT, <> or factorial(x)",
	"~~~":     "GLOB is not possible; write LIKE or regexp_full_match(x, 'pattern')",
	"ARRAY":   "a query as an ARRAY is not possible; write (SELECT list(x) FROM …)",
	"COLLATE": "COLLATE is not possible; strings compare by their bytes, and lower(x) ignores case",
	"DEFAULT": "DEFAULT is not possible; write the value",
	"GLOB":    "GLOB is not possible; write LIKE or regexp_full_match(x, 'pattern')",
	"INTO":    "SELECT INTO is not possible; write CREATE TEMP TABLE … AS SELECT …",
	"LAMBDA":  "lambdas are not possible; write the expression itself",
}

// unsupportedStatements are the statements of DuckDB that are not possible, by their first word, with what to write
// instead.
var unsupportedStatements = map[string]string{
	"ALTER":      "write CREATE OR REPLACE",
	"ANALYZE":    "statistics are read from the files",
	"ATTACH":     "write the path of the file in FROM",
	"BEGIN":      "there are no transactions",
	"CALL":       "write FROM and the table function",
	"CHECKPOINT": "there is no database",
	"COMMENT":    "write -- and the comment",
	"COMMIT":     "there are no transactions",
	"DEALLOCATE": "write parameters such as $1 in the query",
	"DELETE":     "write COPY (SELECT … WHERE …) TO 'path' with the rows that stay",
	"DETACH":     "write the path of the file in FROM",
	"DROP":       "write CREATE OR REPLACE",
	"EXECUTE":    "write parameters such as $1 in the query",
	"EXPORT":     "write COPY table TO 'path'",
	"IMPORT":     "write the path of the file in FROM",
	"INSERT":     "write COPY (SELECT …) TO 'path'",
	"INSTALL":    "there are no extensions",
	"LOAD":       "there are no extensions",
	"MERGE":      "write COPY (SELECT … FROM … FULL JOIN …) TO 'path'",
	"PRAGMA":     "write SET name = value",
	"PREPARE":    "write parameters such as $1 in the query",
	"RESET":      "write SET name = value",
	"ROLLBACK":   "there are no transactions",
	"START":      "there are no transactions",
	"SHOW":       "write DESCRIBE and the name of a table",
	"TRUNCATE":   "write CREATE OR REPLACE",
	"UPDATE":     "write COPY (SELECT …) TO 'path' with the changed rows",
	"USE":        "write the path of the file in FROM",
	"VACUUM":     "there is no database",
}

// unsupportedToken returns the error for a token that is not possible, or nil.
func (p *parser) unsupportedToken(t token) error {
	if t.kind != tokenIdent && t.kind != tokenSymbol {
		return nil
	}
	next := p.ahead(1)
	why, ok := unsupportedTokens[strings.ToUpper(t.text)]
	var before token
	if p.next > 0 {
		before = p.tokens[p.next-1]
	}
	switch {
	case t.is("NOT") && next.is("GLOB"):
		why = unsupportedTokens["GLOB"]
	case ok:
	case t.is(":") && next.is("="), t.is("=") && next.is(">"), t.is(">") && before.is("="):
		why = "arguments with names are possible in table functions and in struct_pack(name := value) only; write " +
			"the arguments in their order"
	default:
		return nil
	}
	return NewError(p.src, t.pos, "found %s: %s", t.describe(), why)
}

// unsupportedStatement returns the error for a statement that is not possible, or nil.
func (p *parser) unsupportedStatement() error {
	t := p.peek()
	instead, ok := unsupportedStatements[strings.ToUpper(t.text)]
	if t.kind != tokenIdent || !ok {
		return nil
	}
	return NewError(p.src, t.pos, "the statement %s is not possible: %s", strings.ToUpper(t.text), instead)
}
