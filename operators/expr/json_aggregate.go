package expr

import (
	"slices"

	"github.com/gstream/gstream/operators/expr/syntax"
)

// jsonAggregates are the aggregates that return a document, as expressions of string_agg of the arguments x and y.
var jsonAggregates = map[string]struct {
	args []string
	text string
}{
	"json_group_array": {[]string{"x"}, "CAST('[' || string_agg(coalesce(to_json(x)::VARCHAR, 'null'), ',') || ']' " +
		"AS JSON)"},
	"json_group_object": {[]string{"x", "y"}, "CAST('{' || string_agg(CASE WHEN x IS NULL THEN " +
		"error('a key of json_group_object is NULL') ELSE to_json(CAST(x AS VARCHAR))::VARCHAR || ':' || " +
		"coalesce(to_json(y)::VARCHAR, 'null') END, ',') || '}' AS JSON)"},
}

func init() {
	for name := range jsonAggregates {
		aggregates[name] = aggregate{document: true}
		notOfLists = append(notOfLists, name)
	}
}

// documentOf replaces an aggregate of jsonAggregates by its expression. call returns the node that replaces the
// aggregate in it.
func (b *binder) documentOf(n *syntax.Call, call func(*syntax.Call) (syntax.Node, error)) (syntax.Node, error) {
	f := jsonAggregates[n.Name]
	switch {
	case n.Star || len(n.Args) != len(f.args):
		return nil, b.errorf(n, "%s takes %s, found %s", n.Name, arity(len(f.args), len(f.args)), found(n))
	case n.Over != nil || n.IgnoreNulls || n.Distinct:
		return nil, b.errorf(n, "%s has no DISTINCT, IGNORE NULLS and OVER", n.Name)
	}
	tree, err := syntax.Parse(f.text)
	if err != nil {
		return nil, err
	}
	// The arguments take the place of the parameters, and the column of the aggregate that of the aggregate.
	argument := func(node syntax.Node) (syntax.Node, error) {
		if name, ok := node.(*syntax.Name); ok {
			return n.Args[slices.Index(f.args, name.Parts[0])], nil
		}
		return nil, nil
	}
	return syntax.Replace(tree, func(node syntax.Node) (syntax.Node, error) {
		c, ok := node.(*syntax.Call)
		if !ok || !IsAggregate(c.Name) {
			return nil, nil
		}
		inner := *c
		inner.Base, inner.Args = syntax.At(n, n.Args...), slices.Clone(c.Args)
		inner.Order, inner.Filter = n.Order, n.Filter
		var err error
		for i := range inner.Args {
			if inner.Args[i], err = syntax.Replace(inner.Args[i], argument); err != nil {
				return nil, err
			}
		}
		return call(&inner)
	})
}
