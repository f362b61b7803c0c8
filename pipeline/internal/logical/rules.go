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
	Name  string
	Doc   string // what it does, in one sentence
	apply func(*Estimator, rel.Node) rel.Node
}

// Rules lists the rules in the order of their application. Lowering drops unused columns later.
var Rules = []Rule{
	{"push-filters", "Conditions move toward the sources, into joins, and along equalities to the other side. An " +
		"outer join that keeps rows only for a condition to drop them keeps none.",
		func(_ *Estimator, n rel.Node) rel.Node { return pushDown(n) }},
	{"limits", "Limits move below projections, and a limit of a sort makes it a top-k.", each(sinkLimits)},
	{"order-joins", "Chains of inner joins take the order with the fewest rows, by estimates.", orderJoins},
	{"range-joins", "A join without an equality finds its pairs by a range, if its conditions have one.",
		each(joinRanges)},
	{"join-partitions", "Windows of aggregates over whole partitions become a group-by and a join, if that costs less.",
		each(joinPartitions)},
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

// Check returns a *job.Diagnostic if there is no rule of a name that is left out.
func (o Options) Check() error {
	var names []string
	for _, r := range Rules {
		names = append(names, r.Name)
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
	for _, r := range Rules {
		if slices.Contains(opt.Without, r.Name) {
			continue
		}
		before := o
		if o.Root = r.apply(e, o.Root); opt.Applied != nil {
			opt.Applied(r, before, o)
		}
	}
	return o
}
