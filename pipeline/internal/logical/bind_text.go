package logical

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// alias matches "expression as name" at the last AS that a name follows.
var alias = regexp.MustCompile(`(?is)^(.*\S)\s+as\s+("(?:[^"]|"")+"|[a-z_][a-z0-9_]*)\s*$`)

// splitAlias returns the expression of a column and its alias, or "". An expression that
// parses as a whole has no alias, even if it ends like one, as a cast may.
func (s *stepBinder) splitAlias(c job.Column) (text, name string) {
	text = strings.TrimSpace(c.Expr)
	if c.Name != "" {
		return text, c.Name
	}
	m := alias.FindStringSubmatch(text)
	if m == nil {
		return text, ""
	}
	if _, err := s.query.Values.Parse(text); err == nil {
		return text, ""
	}
	name = m[2]
	if strings.HasPrefix(name, `"`) {
		name = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
	}
	return m[1], name
}

var sortOrder = regexp.MustCompile(`(?is)^(.*?\S)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*$`)

// parseSortKey splits "expression [asc|desc] [nulls first|nulls last]". The
// default is DuckDB's: ascending, nulls last.
func parseSortKey(text string) (body string, key rel.SortKey, err error) {
	m := sortOrder.FindStringSubmatch(text)
	if m == nil {
		return "", key, fmt.Errorf("an empty sort key")
	}
	key.Descending = strings.EqualFold(m[2], "desc")
	key.NullsFirst = strings.EqualFold(m[3], "first")
	return m[1], key, nil
}
