package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
)

// unique is the distinct step: a group-by of all selected columns.
func (s *stepBinder) unique(in Node) Node {
	n := s.selection(in, s.step.Distinct, ".distinct")
	if n == nil {
		return nil
	}
	schema := n.Rel().Schema
	if schema.Len() == 0 {
		s.faultf(".distinct", "there is no column whose values could be distinct; name some, or '*' for all")
		return nil
	}
	keys := make([]int, schema.Len())
	for i := range keys {
		keys[i] = i
	}
	return newGroup(s.name, n, keys, nil, schema.Names(), nil, "")
}

// measure is an aggregate of all rows next to aggregates of distinct values. It is first
// aggregated for each distinct value.
type measure struct {
	kind gpu.AggregateKind
	arg  *expr.Expr // nil for count(*)
	// register is the distinct value of which this is what its registers keep, or nil.
	register *expr.Expr
}

func (m measure) call() expr.AggregateCall { return expr.AggregateCall{Kind: m.kind, Arg: m.arg} }

// partial returns the aggregate of a distinct value.
func (m measure) partial(input int) Aggregate {
	a := Aggregate{Kind: m.kind, Input: input, Output: gpu.Of(gpu.Int64)}
	switch m.kind {
	case gpu.Sum:
		a.Output = gpu.SumType(m.arg.Type())
	case gpu.Min, gpu.Max, gpu.BitAnd, gpu.BitOr, gpu.BitXor:
		a.Output = m.arg.Type()
	}
	return a
}

// merged returns the aggregate of partial aggregates.
func (m measure) merged(input int, partial gpu.Type) Aggregate {
	a := Aggregate{Kind: m.kind, Input: input, Output: partial}
	if m.kind == gpu.CountAll || m.kind == gpu.Count || m.kind == gpu.Sum {
		a.Kind, a.Output = gpu.Sum, gpu.SumType(partial)
	}
	return a
}

// mergeable reports whether partial sums are exact and fit whenever the sum does. A sum of
// floats would be rounded for each part, and the sum of some values of 128 bits may be
// larger than the sum of all.
func (m measure) mergeable() bool {
	if m.kind != gpu.Sum {
		return true
	}
	t := m.arg.Type()
	return t.IsInteger() && t.Kind != gpu.HugeInt || t.Kind == gpu.Decimal && t.Precision <= gpu.MaxNarrowPrecision
}

// countedRows is the least number of rows for each value of a group, by estimate, for which values are counted before
// they are sorted.
const countedRows = 4

// ofValues reports whether a call takes the distinct values of its argument, or these with the number of
// their rows.
func ofValues(c expr.AggregateCall) bool {
	return c.Distinct && c.Registers == nil || counted(c)
}

// counted reports whether a call needs no more of the rows of a group than its values and their numbers.
func counted(c expr.AggregateCall) bool {
	if c.Sorted == nil {
		return false
	}
	k := c.Sorted.Kind
	return k == window.Mode && len(c.Sorted.Order) == 0 || k == window.QuantileCont || k == window.QuantileDisc
}

// groupsValues reports whether a group is by groupedTwice: if it has aggregates of distinct values and
// none that sorts rows; or if those that sort rows only need the number of each value, and values have many rows by
// estimate.
func (s *stepBinder) groupsValues(in Node, keys []*expr.Expr, calls []expr.AggregateCall) bool {
	if !needSort(calls) {
		return slices.ContainsFunc(calls, func(c expr.AggregateCall) bool { return c.Distinct })
	}
	if slices.ContainsFunc(calls, func(c expr.AggregateCall) bool {
		return c.Sorted != nil && !counted(c) ||
			c.Registers != nil
	}) {
		return false
	}
	n := valuesOf(in.Rel(), keys, calls)
	return n > 0 && n*countedRows <= in.Rel().Rows
}

// valuesOf estimates the number of values of all groups that calls take, 0 if it is unknown. Columns are taken
// for independent. It may read samples of them.
func valuesOf(in *Relation, keys []*expr.Expr, calls []expr.AggregateCall) float64 {
	var values []*expr.Expr
	sum, groups := 0.0, 1.0
	for _, k := range keys {
		groups *= differentOf(in, k)
	}
	for _, c := range calls {
		if ofValues(c) && !slices.ContainsFunc(values, c.Arg.Equal) {
			n := groups * differentOf(in, c.Arg)
			if n == 0 {
				return 0
			}
			values, sum = append(values, c.Arg), sum+n
		}
	}
	return sum
}

// differentOf estimates the number of values of an expression, 0 if it is unknown.
func differentOf(in *Relation, e *expr.Expr) float64 {
	if b := e.Branches(); b != nil {
		x, y := differentOf(in, b[0]), differentOf(in, b[1])
		return (x + y) * min(x, y, 1)
	}
	// A function of columns has at most as many values as the columns together.
	n, most := exprStats(e, in).distinct, 1.0
	for _, c := range e.Columns() {
		k, _ := in.Stats[c].keys()
		most *= k
	}
	if n == 0 || most > 0 && most < n {
		return most
	}
	return n
}

// groupedTwice is grouped for calls of which some are over distinct values. A first
// group-by, by the keys and the distinct values, has each value once. A second one, by the
// keys, aggregates the values, and merges what the first has aggregated of all rows.
//
// Modes and quantiles take the distinct values too, with the number of the rows of each. The second group-by then sorts
// these.
//
// A number of distinct values that may be estimated takes their registers as distinct values (expr.Registers), and
// what a register keeps as a measure of its own. Each group has at most 4096 rows of them.
//
// With several distinct arguments each row goes into the first group-by once for each: with
// this argument and null for the others, which aggregates ignore. The other aggregates take
// the rows of the first variant; or if their partial results cannot be merged exactly, those
// of a variant of their own, in which all rows of a group are one part.
//
// With grouping sets, for which setsOfParts is true, the groups of the first group-by go
// into the second one, once for each set.
func (s *stepBinder) groupedTwice(in Node, keys []*expr.Expr, names []string, calls []expr.AggregateCall, sets [][]bool,
	always [][]gpu.Scalar) Node {
	var values []*expr.Expr // the distinct arguments
	var measures []measure
	uses := make([][]int, len(calls)) // positions in values or measures
	value := func(x *expr.Expr) int {
		at := slices.IndexFunc(values, x.Equal)
		if at < 0 {
			at = len(values)
			values = append(values, x)
		}
		return at
	}
	use := func(m measure) int {
		at := slices.IndexFunc(measures, func(n measure) bool {
			return n.call().Equal(m.call()) && (n.register == nil) == (m.register == nil)
		})
		if at < 0 {
			at = len(measures)
			measures = append(measures, m)
		}
		return at
	}
	for i, c := range calls {
		switch {
		case c.Registers != nil:
			value(c.Registers.Number)
			uses[i] = []int{use(measure{gpu.Min, c.Registers.Least, c.Registers.Number})}
		case ofValues(c):
			uses[i] = []int{value(c.Arg)}
		case c.Kind == gpu.Avg:
			uses[i] = []int{use(measure{kind: gpu.Sum, arg: c.Arg}), use(measure{kind: gpu.Count, arg: c.Arg})}
		default:
			uses[i] = []int{use(measure{kind: c.Kind, arg: c.Arg})}
		}
	}
	home, variants := 0, len(values) // home is the variant of the measures
	if slices.ContainsFunc(measures, func(m measure) bool { return !m.mergeable() }) {
		home, variants = variants, variants+1
	}
	if variants > 1 {
		for i, m := range measures {
			if m.kind == gpu.CountAll {
				measures[i] = measure{kind: gpu.Count, arg: expr.And()}
			}
		}
	}
	times := -1 // the measure that counts the rows of a value
	if slices.ContainsFunc(calls, counted) {
		times = use(measure{kind: gpu.CountAll}) // in all variants
	}
	first := s.firstGroups(in, keys, names, values, measures, home, variants)
	if times >= 0 {
		first.expect(valuesOf(in.Rel(), keys, calls))
	}

	var below Node = first
	nkeys, schema := len(keys), first.Schema
	byKeys := make([]int, nkeys)
	for i := range byKeys {
		byKeys[i] = i
	}
	inputs := nkeys // the columns of first after the keys
	if sets != nil {
		var columns []*expr.Expr
		for i := range byKeys {
			columns = append(columns, expr.Column(scopeOf(below), i))
		}
		below, columns, always = s.expandSets(below, columns, names, sets)
		byKeys = nil
		for _, k := range columns {
			c, _ := k.IsColumn()
			byKeys = append(byKeys, c)
		}
		names = append(names[:nkeys:nkeys], expr.SetColumn)
		nkeys++
	}
	var aggs []Aggregate
	names = slices.Clone(names)
	sorted := needSort(calls)
	add := func(a Aggregate, name string) (column int) {
		if sorted && a.Sorted == nil {
			a.Sorted = &window.GroupFunction{Kind: window.Aggregate, Aggregate: a.Kind, Value: a.Input, Key: -1,
				Filter: -1, Output: a.Output}
		}
		aggs, names = append(aggs, a), append(names, name)
		return nkeys + len(aggs) - 1
	}
	at := make([]int, len(calls))
	for i, c := range calls {
		if !ofValues(c) {
			continue
		}
		a, name := Aggregate{Kind: c.Kind, Input: inputs + uses[i][0], Output: c.Output},
			c.Kind.String()+" "+c.Arg.String()
		if c.Sorted != nil {
			name = c.String()
			a.Sorted = sortedFunction(c, a.Input, func(*expr.Expr) int { return -1 })
			if a.Sorted.Distinct = false; !c.Distinct {
				a.Sorted.Key = inputs + len(values) + times
			}
		}
		at[i] = add(a, name)
	}
	merged := make([][]int, len(measures))
	for i, m := range measures {
		input := inputs + len(values) + i
		f := schema.Fields[input]
		list := []Aggregate{m.merged(input, f.Type)}
		if m.register != nil {
			list = []Aggregate{{Kind: gpu.Count, Input: input, Output: gpu.Of(gpu.Int64)},
				{Kind: gpu.Sum, Input: input, Output: gpu.SumType(f.Type)}}
		}
		for _, a := range list {
			merged[i] = append(merged[i], add(a, a.Kind.String()+" ("+f.Name+")"))
		}
	}
	second := newGroup(s.name, below, byKeys, aggs, names, always, s.groupAlgorithm())
	return s.mergedCalls(second, nkeys, calls, func(i int) []int {
		if ofValues(calls[i]) {
			return at[i : i+1]
		}
		var columns []int
		for _, m := range uses[i] {
			columns = append(columns, merged[m]...)
		}
		return columns
	})
}

// firstGroups groups by the keys and the distinct values.
func (s *stepBinder) firstGroups(in Node, keys []*expr.Expr, names []string, values []*expr.Expr, measures []measure,
	home, variants int) *Group {
	exprs := slices.Concat(keys, values)
	names = slices.Clone(names)
	for _, v := range values {
		names = append(names, v.String())
	}
	inputs := make([]int, len(measures))
	nulls := make([][]int, variants)
	// only adds an expression that one variant has.
	only := func(c, variant int) {
		for v := range nulls {
			if v != variant {
				nulls[v] = append(nulls[v], c)
			}
		}
	}
	for i := range values {
		only(len(keys)+i, i)
	}
	for i, m := range measures {
		inputs[i] = -1
		if m.arg != nil {
			inputs[i] = len(exprs)
			variant := home
			if m.register != nil {
				variant = slices.IndexFunc(values, m.register.Equal)
			}
			only(len(exprs), variant)
			exprs, names = append(exprs, m.arg), append(names, m.arg.String())
		}
	}
	tables := append(tablesOf(in.Rel(), keys), make([]*expr.Tables, len(exprs)-len(keys))...)
	var rows Node = newProject(in.Rel().Step, in, exprs, names, tables)
	if variants > 1 {
		rows = newExpand(s.name, rows, nulls, false)
	}
	by := make([]int, len(keys)+len(values))
	for i := range by {
		by[i] = i
	}
	var aggs []Aggregate
	names = slices.Clone(names[:len(by)])
	for i, m := range measures {
		aggs = append(aggs, m.partial(inputs[i]))
		names = append(names, m.call().String())
	}
	return newGroup(s.name, rows, by, aggs, names, nil, s.groupAlgorithm())
}

// mergedCalls computes keys and calls from the columns of a group-by. from has the columns
// of a call: its result, a sum of counts, a sum and a sum of counts, or what expr.Estimate takes.
func (s *stepBinder) mergedCalls(g Node, nkeys int, calls []expr.AggregateCall, from func(call int) []int) Node {
	whole := scopeOf(g)
	exprs := columnsOf(g)[:nkeys]
	names, tables := slices.Clone(g.Rel().Schema.Names()[:nkeys]), slices.Clone(g.Rel().tables[:nkeys])
	for i, c := range calls {
		columns := from(i)
		x := expr.Column(whole, columns[0])
		switch {
		case c.Registers != nil:
			x = compute(expr.Estimate, whole, columns)
		case c.Distinct, c.Sorted != nil:
		case c.Kind == gpu.CountAll || c.Kind == gpu.Count:
			x = compute("CAST(coalesce(%s, 0) AS BIGINT)", whole, columns)
		case c.Kind == gpu.Avg:
			x = compute("CAST(%s AS DOUBLE) / CAST(%s AS DOUBLE)", whole, columns)
		}
		exprs, names, tables = append(exprs, x), append(names, c.String()), append(tables, nil)
	}
	return newProject(s.name, g, exprs, names, tables)
}

// compute binds an expression over some columns of a scope, whose names take the places of
// %s in the format.
func compute(format string, whole *expr.Scope, columns []int) *expr.Expr {
	scope := &expr.Scope{Schema: &gpu.Schema{}, Fold: host.Fold}
	var names []any
	for _, c := range columns {
		f := whole.Schema.Fields[c]
		names = append(names, `"`+strings.ReplaceAll(f.Name, `"`, `""`)+`"`)
		scope.Schema.Fields = append(scope.Schema.Fields, f)
		scope.Ranges = append(scope.Ranges, whole.Ranges[c])
	}
	n, err := syntax.Parse(fmt.Sprintf(format, names...))
	if err == nil {
		var e *expr.Expr
		if e, err = expr.Bind(n, scope); err == nil {
			return e.Remap(func(i int) int { return columns[i] })
		}
	}
	panic(fmt.Sprintf("logical: "+format+": %v", append(names, err)...))
}
