package expr

import "strings"

// QuoteName returns a name as expressions have it: in double quotes unless it parses back as
// the same identifier.
func QuoteName(name string) string {
	var b strings.Builder
	writeIdent(&b, name)
	return b.String()
}
