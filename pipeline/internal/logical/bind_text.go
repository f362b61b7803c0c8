package logical

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// splitAlias returns the expression of a column and its alias, or "".
func splitAlias(values syntax.Values, c job.Column) (text, name string) {
	if c.Name != "" {
		return strings.TrimSpace(c.Expr), c.Name
	}
	return values.SplitAlias(c.Expr)
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
