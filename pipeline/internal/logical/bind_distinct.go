package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// unique is the distinct step: a group-by of all selected columns.
func (s *stepBinder) unique(in *Relation) *Relation {
	r := s.selection(in, s.step.Distinct, ".distinct")
	if r == nil {
		return nil
	}
	if len(r.columns) == 0 {
		s.faultf(".distinct", "there is no column whose values could be distinct; name some, or '*' for all")
		return nil
	}
	return r.over(rel.NewGroup(s.here(), r.node, r.ids(), nil, nil, ""))
}

// partial is an aggregate of all rows of a group, in a group-by that also has aggregates of
// distinct values. The first phase computes it for each distinct value, and the second phase merges
// the results.
type partial struct {
	kind gpu.AggregateKind
	arg  *expr.Expr // nil for count(*)
	// register is the distinct value whose registers this aggregate reduces; nil for other aggregates.
	register *expr.Expr
}

func (m partial) call() expr.AggregateCall { return expr.AggregateCall{Kind: m.kind, Arg: m.arg} }

// first returns the aggregate of the first phase.
func (m partial) first(input rel.ID) rel.Aggregate {
	a := rel.Aggregate{Kind: m.kind, Input: input, Output: gpu.Of(gpu.Int64)}
	switch m.kind {
	case gpu.Sum:
		a.Output = gpu.SumType(m.arg.Type())
	case gpu.Min, gpu.Max, gpu.BitAnd, gpu.BitOr, gpu.BitXor:
		a.Output = m.arg.Type()
	}
	return a
}

// merged returns the aggregate of the second phase, which merges the results of the first.
func (m partial) merged(input rel.ID, partial gpu.Type) rel.Aggregate {
	a := rel.Aggregate{Kind: m.kind, Input: input, Output: partial}
	if m.kind == gpu.CountAll || m.kind == gpu.Count || m.kind == gpu.Sum {
		a.Kind, a.Output = gpu.Sum, gpu.SumType(partial)
	}
	return a
}

// mergeable reports whether the first phase is exact, and cannot fail where the result would not. A
// sum of floats would be rounded once for each distinct value. The sum of some 128-bit values may
// be larger than the sum of all, but not that of fewer than 10^11 decimals of mergedPrecision digits.
func (m partial) mergeable() bool {
	if m.kind != gpu.Sum {
		return true
	}
	t := m.arg.Type()
	return t.IsInteger() && t.Kind != gpu.HugeInt || t.Kind == gpu.Decimal && t.Precision <= mergedPrecision
}

const mergedPrecision = gpu.MaxPrecision - 11

// countedRows is the number of rows per distinct value, by estimate, from which the first phase
// counts equal values before the second phase sorts them.
const countedRows = 4

// ofValues reports whether a call needs only the distinct values of its argument, with or without
// the number of their rows.
func ofValues(c expr.AggregateCall) bool {
	return c.Distinct && c.Registers == nil || counted(c)
}

// counted reports whether a call needs only the values of a group and how often each occurs.
func counted(c expr.AggregateCall) bool {
	if c.Sorted == nil {
		return false
	}
	k := c.Sorted.Kind
	return k == window.Mode && len(c.Sorted.Order) == 0 || k == window.QuantileCont || k == window.QuantileDisc
}

// isTwoPhase reports whether twoPhase computes a group-by. It does if some aggregates are over
// distinct values and none sorts rows. It also does if the aggregates that sort rows need only the
// number of rows of each value, and, by estimate, values have many rows.
func (s *stepBinder) isTwoPhase(in rel.Node, keys []*expr.Expr, calls []expr.AggregateCall) bool {
	if !needSort(calls) {
		return slices.ContainsFunc(calls, func(c expr.AggregateCall) bool { return c.Distinct })
	}
	if slices.ContainsFunc(calls, func(c expr.AggregateCall) bool {
		return c.Sorted != nil && !counted(c) ||
			c.Registers != nil
	}) {
		return false
	}
	n := s.estimator.valuesOf(in, keys, calls)
	return n > 0 && n*countedRows <= s.estimator.Rows(in)
}

// valuesOf estimates the number of distinct values over all groups that the calls take; 0 means
// unknown. It treats columns as independent. It may read samples of them.
func (e *Estimator) valuesOf(in rel.Node, keys []*expr.Expr, calls []expr.AggregateCall) float64 {
	var values []*expr.Expr
	sum, groups := 0.0, 1.0
	for _, k := range keys {
		groups *= differentOf(k, e.columnsOf(in))
	}
	for _, c := range calls {
		if ofValues(c) && !slices.ContainsFunc(values, c.Arg.Equal) {
			n := groups * differentOf(c.Arg, e.columnsOf(in))
			if n == 0 {
				return 0
			}
			values, sum = append(values, c.Arg), sum+n
		}
	}
	return sum
}

// differentOf estimates the number of distinct values of an expression; 0 means unknown.
func differentOf(e *expr.Expr, of statsOf) float64 {
	if b := e.Branches(); b != nil {
		x, y := differentOf(b[0], of), differentOf(b[1], of)
		return (x + y) * min(x, y, 1)
	}
	// A function of columns has at most as many values as the columns together.
	n, most := exprStats(e, of).distinct, 1.0
	for _, c := range e.Columns() {
		k, _ := of(c).keys()
		most *= k
	}
	if n == 0 || most > 0 && most < n {
		return most
	}
	return n
}

// twoPhase is grouped for calls of which some are over distinct values. The first group-by, by the
// keys and the distinct values, has each value once. The second group-by, by the keys, aggregates
// the values, and merges what the first one has aggregated over all rows.
//
// Modes and quantiles use the distinct values too, with the number of rows of each. The second
// group-by then sorts these values.
//
// A number of distinct values that may be estimated uses registers as distinct values
// (expr.Registers), and reduces each register in the first phase. Each group has at most 4096
// registers.
//
// With several distinct arguments, each row enters the first group-by once for each argument: with
// this argument, and with null for the others, which aggregates ignore. The other aggregates use
// the rows of the first variant. If their partial results cannot be merged exactly, they use a
// variant of their own, in which all rows of a group have the same key.
//
// With grouping sets, for which mergesSets is true, the groups of the first group-by enter the
// second one once for each set.
func (s *stepBinder) twoPhase(in rel.Node, keys []*expr.Expr, names []string, calls []expr.AggregateCall,
	sets [][]bool, always [][]gpu.Scalar) *groups {
	var values []*expr.Expr // the distinct arguments
	var partials []partial
	uses := make([][]int, len(calls)) // positions in values or partials
	value := func(x *expr.Expr) int {
		at := slices.IndexFunc(values, x.Equal)
		if at < 0 {
			at = len(values)
			values = append(values, x)
		}
		return at
	}
	use := func(m partial) int {
		at := slices.IndexFunc(partials, func(n partial) bool {
			return n.call().Equal(m.call()) && (n.register == nil) == (m.register == nil)
		})
		if at < 0 {
			at = len(partials)
			partials = append(partials, m)
		}
		return at
	}
	for i, c := range calls {
		switch {
		case c.Registers != nil:
			value(c.Registers.Number)
			uses[i] = []int{use(partial{gpu.Min, c.Registers.Least, c.Registers.Number})}
		case ofValues(c):
			uses[i] = []int{value(c.Arg)}
		case c.Kind == gpu.Avg:
			uses[i] = []int{use(partial{kind: gpu.Sum, arg: c.Arg}), use(partial{kind: gpu.Count, arg: c.Arg})}
		default:
			uses[i] = []int{use(partial{kind: c.Kind, arg: c.Arg})}
		}
	}
	home, variants := 0, len(values) // home is the variant of the partial aggregates
	if slices.ContainsFunc(partials, func(m partial) bool { return !m.mergeable() }) {
		home, variants = variants, variants+1
	}
	if variants > 1 {
		for i, m := range partials {
			if m.kind == gpu.CountAll {
				partials[i] = partial{kind: gpu.Count, arg: expr.And()}
			}
		}
	}
	times := -1 // the partial aggregate that counts the rows of a value
	if slices.ContainsFunc(calls, counted) {
		times = use(partial{kind: gpu.CountAll}) // in all variants
	}
	first := s.firstGroups(in, keys, names, values, partials, home, variants)
	if times >= 0 {
		s.estimator.Expect(first.Keys, s.estimator.valuesOf(in, keys, calls))
	}
	valueIDs := first.Keys[len(keys):]

	var below rel.Node = first
	byKeys := first.Keys[:len(keys):len(keys)]
	if sets != nil {
		var columns []*expr.Expr
		below, columns, always = s.expandSets(below, first.Exprs(byKeys), names, sets)
		byKeys = nil
		for _, k := range columns {
			c, _ := k.IsColumn()
			byKeys = append(byKeys, c)
		}
	}
	var aggs []rel.Aggregate
	sorted := needSort(calls)
	add := func(a rel.Aggregate, name string) rel.ID {
		if sorted && a.Sorted == nil {
			a.Sorted = &window.GroupFunction{Kind: window.Aggregate, Aggregate: a.Kind, Value: a.Input, Key: -1,
				Filter: -1, Output: a.Output}
		}
		a = s.aggregate(a, name, below, len(byKeys), always)
		aggs = append(aggs, a)
		return a.Out
	}
	at := make([]rel.ID, len(calls))
	for i, c := range calls {
		if !ofValues(c) {
			continue
		}
		a := rel.Aggregate{Kind: c.Kind, Input: valueIDs[uses[i][0]], Output: c.Output}
		name := c.Kind.String() + " " + c.Arg.String()
		if c.Sorted != nil {
			name = c.String()
			a.Sorted = sortedFunction(c, a.Input, func(*expr.Expr) int { return -1 })
			if a.Sorted.Distinct = false; !c.Distinct {
				a.Sorted.Key = first.Aggregates[times].Out
			}
		}
		at[i] = add(a, name)
	}
	merged := make([][]rel.ID, len(partials))
	for i, m := range partials {
		input := first.Aggregates[i].Out
		f := first.Field(input)
		list := []rel.Aggregate{m.merged(input, f.Type)}
		if m.register != nil {
			list = []rel.Aggregate{{Kind: gpu.Count, Input: input, Output: gpu.Of(gpu.Int64)},
				{Kind: gpu.Sum, Input: input, Output: gpu.SumType(f.Type)}}
		}
		for _, a := range list {
			merged[i] = append(merged[i], add(a, a.Kind.String()+" ("+f.Name+")"))
		}
	}
	second := rel.NewGroup(s.here(), below, byKeys, aggs, always, s.groupAlgorithm())
	return s.mergedCalls(second, calls, func(i int) []rel.ID {
		if ofValues(calls[i]) {
			return at[i : i+1]
		}
		var columns []rel.ID
		for _, m := range uses[i] {
			columns = append(columns, merged[m]...)
		}
		return columns
	})
}

// firstGroups groups by the keys and the distinct values.
func (s *stepBinder) firstGroups(in rel.Node, keys []*expr.Expr, names []string, values []*expr.Expr,
	partials []partial, home, variants int) *rel.Group {
	var items []item
	for i, k := range keys {
		items = append(items, item{expr: k, name: names[i]})
	}
	for _, v := range values {
		items = append(items, item{expr: v, name: v.String()})
	}
	for _, m := range partials {
		if m.arg != nil {
			items = append(items, item{expr: m.arg, name: m.arg.String()})
		}
	}
	rows := project(in.Rel().Origin, in, items)
	ids := rows.ids()
	by, args := ids[:len(keys)+len(values):len(keys)+len(values)], ids[len(keys)+len(values):]
	inputs := make([]int, len(partials)) // positions in args
	of := make([]int, len(ids))          // the variant that has each column, after the keys
	for i := range values {
		of[len(keys)+i] = i
	}
	n := 0
	for i, m := range partials {
		inputs[i] = -1
		if m.arg != nil {
			variant := home
			if m.register != nil {
				variant = slices.IndexFunc(values, m.register.Equal)
			}
			inputs[i], of[len(by)+n] = n, variant
			n++
		}
	}
	node := rows.node
	if variants > 1 {
		node = s.expandVariants(node, ids[len(keys):], of[len(keys):], variants)
	}
	var aggs []rel.Aggregate
	for i, m := range partials {
		input := rel.None
		if inputs[i] >= 0 {
			input = args[inputs[i]]
		}
		aggs = append(aggs, s.aggregate(m.first(input), m.call().String(), node, len(by), nil))
	}
	return rel.NewGroup(s.here(), node, by, aggs, nil, s.groupAlgorithm())
}

// expandVariants returns each row of a node once for each variant. Each of some columns is null in
// all variants but one. The IDs of these columns are replaced by those of their copies.
func (s *stepBinder) expandVariants(in rel.Node, ids []rel.ID, of []int, variants int) rel.Node {
	var copies []rel.Copy
	nulls := make([][]rel.ID, variants)
	for i, id := range ids {
		column := s.md.Column(id)
		column.Nullable = true
		ids[i] = s.md.Add(column)
		copies = append(copies, rel.Copy{Out: ids[i], From: id})
		for v := range nulls {
			if v != of[i] {
				nulls[v] = append(nulls[v], ids[i])
			}
		}
	}
	return rel.NewExpand(s.here(), in, copies, nulls, rel.None)
}

// mergedCalls computes the calls from the columns of the second group-by. from returns the columns
// of a call: its result; a sum of counts; a sum and a sum of counts; or the operands of
// expr.Estimate.
func (s *stepBinder) mergedCalls(g *rel.Group, calls []expr.AggregateCall, from func(call int) []rel.ID) *groups {
	r := &Relation{node: g}
	for _, k := range g.Keys {
		r.columns = append(r.columns, column{id: k})
	}
	items := r.items(s.estimator)
	for i, c := range calls {
		r.columns = nil
		for _, id := range from(i) {
			r.columns = append(r.columns, column{id: id})
		}
		r.known = nil
		scope := scopeOf(s.estimator, r)
		x := expr.Column(scope, 0)
		switch {
		case c.Registers != nil:
			x = compute(expr.Estimate, scope)
		case c.Distinct, c.Sorted != nil:
		case c.Kind == gpu.CountAll || c.Kind == gpu.Count:
			x = compute("CAST(coalesce(%s, 0) AS BIGINT)", scope)
		case c.Kind == gpu.Avg:
			x = compute("CAST(%s AS DOUBLE) / CAST(%s AS DOUBLE)", scope)
		}
		items = append(items, item{expr: x, name: c.String()})
	}
	ids := project(s.here(), g, items)
	all := ids.ids()
	return &groups{node: ids.node, keys: all[:len(g.Keys):len(g.Keys)], calls: all[len(g.Keys):]}
}

// compute binds an expression over the columns of a scope. Each %s of the format stands for the
// name of a column.
func compute(format string, scope *expr.Scope) *expr.Expr {
	var names []any
	for _, f := range scope.Schema.Fields {
		names = append(names, `"`+strings.ReplaceAll(f.Name, `"`, `""`)+`"`)
	}
	n, err := syntax.Parse(fmt.Sprintf(format, names...))
	if err == nil {
		var e *expr.Expr
		if e, err = expr.Bind(n, scope); err == nil {
			return e
		}
	}
	panic(fmt.Sprintf("logical: "+format+": %v", append(names, err)...))
}
