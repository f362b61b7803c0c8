package syntax

import (
	"fmt"
	"strings"
)

// QuoteName returns a name as it is written in expressions: in double quotes unless it parses back
// as the same identifier.
func QuoteName(name string) string {
	var b strings.Builder
	writeIdent(&b, name)
	return b.String()
}

// Quote returns a text as an SQL literal.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// QuoteBlob returns bytes as an SQL literal.
func QuoteBlob(s string) string { return fmt.Sprintf("x'%X'", s) }
