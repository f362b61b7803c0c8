package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// Rule rewrites a plan without a change of its result. The result of a node keeps the columns of
// the node, and may have others.
type Rule struct {
	Name string
	Doc  string // what it does, in one sentence
	// Needed says that the rule replaces nodes that have no operator, so it cannot be left out.
	Needed bool
	// starts says from which nodes the rule starts: a plan without any of them stays as it is. nil is all nodes.
	starts func(rel.Node) bool
	apply  func(*Estimator, rel.Node) rel.Node
}

// Rules lists the rules in the order of their application. Lowering drops unused columns later.
var Rules = []Rule{
	{Name: "unnest", Needed: true, starts: is[*rel.Apply], apply: each(unnest),
		Doc: "Subqueries that depend on the rows around them become joins, and their aggregates groups."},
	{Name: "set-operations", Needed: true, starts: is[*rel.SetOperation], apply: each(joinSets),
		Doc: "INTERSECT and EXCEPT become joins in which null equals null, and distinct rows a group-by."},
	{Name: "interval-keys", Needed: true, apply: each(lengthKeys), starts: hasIntervalKeys,
		Doc: "Keys of groups, joins, sorts and windows that are intervals become the lengths of these intervals, and " +
			"in nested ones -0.0 becomes 0.0."},
	{Name: "null-aware-joins", Needed: true, apply: each(countNulls),
		starts: func(n rel.Node) bool { j, ok := n.(*rel.Join); return ok && j.Unknown() },
		Doc: "A join with a comparison that is unknown for nulls, as in NOT IN, becomes one that matches, and a " +
			"count of the nulls or a second join."},
	{Name: "grouping-sets", starts: is[*rel.Expand], apply: each(cascadeSets),
		Doc: "The groups of a grouping set merge those of the smallest set that has its keys."},
	{Name: "read-fields", starts: hasNested, apply: readFields,
		Doc: "A scan reads the fields of structs that expressions use, instead of the structs, also those of structs " +
			"in lists."},
	{Name: "push-filters", apply: func(_ *Estimator, n rel.Node) rel.Node { return pushDown(n) },
		Doc: "Conditions move toward the sources, into joins, and along equalities to the other side. An outer join " +
			"that keeps rows only for a condition to drop them keeps none."},
	{Name: "limits", starts: is[*rel.Limit], apply: each(sinkLimits),
		Doc: "Limits move below projections, and a limit of a sort makes it a top-k."},
	{Name: "order-joins", starts: is[*rel.Join], apply: orderJoins,
		Doc: "Chains of inner joins take the order with the fewest rows, by estimates."},
	{Name: "range-joins", starts: is[*rel.Join], apply: each(joinRanges),
		Doc: "A join without an equality finds its pairs by a range, if its conditions have one."},
	{Name: "join-partitions", starts: is[*rel.Window], apply: each(joinPartitions),
		Doc: "Windows of aggregates over whole partitions become a group-by and a join, if that costs less."},
	{Name: "keep-rows", starts: is[*rel.Recursive], apply: each(keepRows),
		Doc: "What a recursive query reads besides its own rows is computed once, for all iterations."},
}

// is reports whether a node is of a type.
func is[N rel.Node](n rel.Node) bool {
	_, ok := n.(N)
	return ok
}

// each returns a rule that rewrites each node.
func each(rewrite func(e *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node) func(*Estimator,
	rel.Node) rel.Node {
	return func(e *Estimator, n rel.Node) rel.Node {
		return rel.Remembered(func(n rel.Node, again func(rel.Node) rel.Node) rel.Node {
			return rewrite(e, n, again)
		})(n)
	}
}

// Options configure Optimize.
type Options struct {
	Without []string // names of rules that are left out
	// Applied, when set, is called after each rule with the plan before and after it.
	Applied func(r Rule, before, after rel.Output)
}

// Check returns a *job.Diagnostic if there is no rule of a name that is left out, or if it is needed.
func (o Options) Check() error {
	var names []string
	for _, r := range Rules {
		if names = append(names, r.Name); r.Needed && slices.Contains(o.Without, r.Name) {
			return &job.Diagnostic{Msg: fmt.Sprintf("the rule %s cannot be left out: it replaces what has no operator",
				r.Name)}
		}
	}
	for _, name := range o.Without {
		if !slices.Contains(names, name) {
			return &job.Diagnostic{Msg: fmt.Sprintf("there is no rule %q; the rules are %s", name,
				strings.Join(names, ", "))}
		}
	}
	return nil
}

// Optimize applies the rules to a plan.
func Optimize(e *Estimator, o rel.Output, opt Options) rel.Output {
	starting := look(o.Root)
	for i, r := range Rules {
		if slices.Contains(opt.Without, r.Name) {
			continue
		}
		before := o
		if starting[i] {
			o.Root = r.apply(e, o.Root)
		}
		if r.Needed && o.Root != before.Root { // other rules make no nodes from which another one starts
			starting = look(o.Root)
		}
		if opt.Applied != nil {
			opt.Applied(r, before, o)
		}
	}
	return o
}

// look reports for each rule whether a plan has a node from which it starts.
func look(root rel.Node) []bool {
	starting := make([]bool, len(Rules))
	rel.Visit(root, func(n rel.Node) {
		for i, r := range Rules {
			starting[i] = starting[i] || r.starts == nil || r.starts(n)
		}
	})
	return starting
}
