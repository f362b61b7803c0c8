package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// Grouping describes the columns of a group-by for grouping(): the first Keys columns are its keys.
// With grouping sets, Sets has the keys of each set, and SetColumn is the number of a row's set.
type Grouping struct {
	Keys int
	Sets [][]bool
}

// SetColumn is the name of the column that has the number of a row's grouping set.
const SetColumn = "$grouping_set"

func isGrouping(n *syntax.Call) bool { return n.Name == "grouping" || n.Name == "grouping_id" }

// grouping binds grouping(a, b, …). It has a bit for each argument, the last argument being the
// least significant bit. A bit is 1 if the row's grouping set lacks the key. Without arguments it
// covers all keys.
func (b *binder) grouping(n *syntax.Call) (*Expr, error) {
	g := b.scope.Grouping
	switch {
	case g == nil:
		return nil,
			b.errorf(n,
				"%s is not allowed here; it belongs into the output columns of a group-by, outside of aggregates",
				n.Name)
	case n.Star || n.Distinct || n.Filter != nil:
		return nil, b.errorf(n, "%s takes keys of the group, without *, DISTINCT or FILTER", n.Name)
	case g.Keys == 0:
		return nil, b.errorf(n, "%s needs a group-by with keys", n.Name)
	}
	var keys []int
	for _, a := range n.Args {
		e, err := b.bind(a)
		if err != nil {
			return nil, err
		}
		number, ok := e.IsColumn()
		key := slices.IndexFunc(b.scope.All()[:g.Keys], func(i int) bool { return b.scope.number(i) == number })
		if !ok || key < 0 {
			return nil, b.errorf(a, "%s takes keys of the group by their names, found another expression", n.Name)
		}
		keys = append(keys, key)
	}
	if len(n.Args) == 0 {
		for key := range g.Keys {
			keys = append(keys, key)
		}
	}
	if len(keys) > 63 {
		return nil, b.errorf(n, "%s has a bit for each of at most 63 keys, found %d", n.Name, len(keys))
	}
	var cases strings.Builder
	for i, set := range g.Sets {
		bits := int64(0)
		for _, key := range keys {
			bits <<= 1
			if !set[key] {
				bits++
			}
		}
		if bits != 0 {
			fmt.Fprintf(&cases, " WHEN %d THEN %d", i, bits)
		}
	}
	if cases.Len() == 0 {
		return Literal(gpu.IntScalar(gpu.Of(gpu.Int64), 0)), nil
	}
	tree, err := syntax.Parse(fmt.Sprintf("CAST(CASE \"%s\"%s ELSE 0 END AS BIGINT)", SetColumn, cases.String()))
	if err != nil {
		return nil, b.errorf(n, "%s: %v", n.Name, err)
	}
	return b.bind(tree)
}
