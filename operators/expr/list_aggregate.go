package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
)

// listAggregates are the aggregates that have a function list_… of their own.
var listAggregates = words(`sum avg min max count first last any_value product string_agg median bool_and bool_or
	bit_and bit_or bit_xor var_samp var_pop stddev_samp stddev_pop sem skewness kurtosis kurtosis_pop
	approx_count_distinct mode histogram entropy mad`)

func words(s string) []string { return strings.Fields(s) }

// notOfLists are the aggregates that list_aggregate does not have.
var notOfLists = words("count_star arg_min argmin min_by arg_max argmax max_by corr covar_pop covar_samp " +
	"regr_count " +
	"regr_avgx regr_avgy regr_sxx regr_syy regr_sxy regr_slope regr_intercept regr_r2")

// bindListAggregate binds list_aggregate(list, 'sum', …).
func bindListAggregate(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
	list, err := b.listArgument(n)
	if err != nil {
		return nil, err
	}
	name, ok := n.Args[1].(*syntax.StringLiteral)
	if !ok {
		return nil, b.errorf(n.Args[1], "the aggregate of %s is the constant text of its name", n.Name)
	}
	return b.aggregated(n, list, strings.ToLower(name.Text), n.Args[2:])
}

// bindNamedAggregate binds list_sum(list) and others of listAggregates.
func bindNamedAggregate(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	return b.aggregated(n, list, strings.TrimPrefix(n.Name, "list_"), nil)
}

// aggregated binds an aggregate of the elements of a list, and its other arguments. As in a group-by, it is made of
// simple aggregates, which are operations over the elements.
func (b *binder) aggregated(n *syntax.Call, list *Expr, name string, more []syntax.Node) (*Expr, error) {
	if bodies := listFormulas[name]; bodies != nil {
		return b.listFormula(n, list, bodies, more)
	}
	f, ok := aggregates[name]
	if !ok || slices.Contains(notOfLists, name) {
		return nil, b.errorf(n, "there is no aggregate %q of lists%s", syntax.Cut(name, 60),
			syntax.Suggest(name, listAggregates))
	}
	if f.sorted == window.StringAgg && (name == "list" || name == "array_agg") {
		return list, nil
	}
	x := &syntax.Param{Base: syntax.At(n), Name: "$element"}
	call := &syntax.Call{Base: syntax.At(n, x), Name: name, Args: append([]syntax.Node{x}, more...)}
	var simple []*Expr
	add := func(c *syntax.Call) (syntax.Node, error) {
		e, err := b.folded(n, c, list, aggregates[c.Name])
		simple = append(simple, e)
		return &syntax.Name{Base: syntax.At(c), Parts: []string{AggregateColumn(len(simple) - 1)}}, err
	}
	var tree syntax.Node
	err := b.inBody([]string{x.Name}, []*Expr{b.newParam(theElement, list.typ.Element())}, func() (err error) {
		if tree, err = b.variance(call, f, add); tree == nil && err == nil {
			tree, err = add(call)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	tree, err = syntax.Replace(tree, func(node syntax.Node) (syntax.Node, error) {
		if name, ok := node.(*syntax.Name); ok {
			for i, e := range simple {
				if name.Parts[0] == AggregateColumn(i) {
					return &syntax.Resolved{Base: name.Base, Value: e}, nil
				}
			}
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return b.bind(tree)
}

// listFormulas are the aggregates of lists that other functions of the list _1 compute. Each text may use the results
// of those before it, from _2. They compare each element with each.
var listFormulas = map[string][]string{
	"mode": {eachValue, countsOfValues, "_2[list_position(_3, list_max(_3))]"},
	"histogram": {"list_sort(" + eachValue + ")", countsOfValues,
		"CASE WHEN len(_2) > 0 THEN map(_2, _3::UBIGINT[]) END"},
	"entropy": {eachValue, countsOfValues, "list_count(_1)::DOUBLE", "CASE WHEN _1 IS NOT NULL THEN " +
		"coalesce(list_sum(list_transform(_3, lambda c: c / _4 * log2(_4 / c))), 0e0) END"},
	"mad": {"list_median(_1)", "list_median(list_transform(_1, lambda x: abs(x - _2)))"},
}

const (
	eachValue      = "list_distinct(_1)"
	countsOfValues = "list_transform(_2, lambda x: len(list_filter(_1, lambda y: y = x)))"
)

// listFormula binds an aggregate of listFormulas.
func (b *binder) listFormula(n *syntax.Call, list *Expr, bodies []string, more []syntax.Node) (*Expr, error) {
	if len(more) > 0 {
		return nil, b.errorf(more[0], "the aggregate has no further arguments")
	}
	known := []*Expr{list}
	for _, body := range bodies {
		x, err := b.expand(n, body, known...)
		if err != nil {
			return nil, err
		}
		known = append(known, x)
	}
	return known[len(known)-1], nil
}

// folded binds an aggregate without a formula. It is called where its argument is a body, and the result stands around
// that.
func (b *binder) folded(n, c *syntax.Call, list *Expr, f aggregate) (*Expr, error) {
	if f.sorted != window.Aggregate {
		call, err := b.sortedAggregate(c, f)
		if err != nil {
			return nil, err
		}
		return b.sortedElements(n, c, list, call)
	}
	call, err := b.aggregate(c, f)
	if err != nil {
		return nil, err
	}
	switch {
	case call.Registers != nil:
		distinct, err := b.distinctElements(n, b.level-1, list, call.Arg)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "len(_1)", distinct)
	case call.Kind == gpu.Avg:
		sum, err := b.fold(n, list, gpu.Sum, call.Arg, gpu.SumType(call.Arg.typ))
		if err != nil {
			return nil, err
		}
		count, err := b.fold(n, list, gpu.Count, call.Arg, long)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "CAST(_1 AS DOUBLE) / _2", sum, count)
	}
	return b.fold(n, list, call.Kind, call.Arg, call.Output)
}

// fold returns the aggregate of a body over the elements of a list, null for a null list.
func (b *binder) fold(n syntax.Node, list *Expr, kind gpu.AggregateKind, body *Expr, t gpu.Type) (*Expr, error) {
	var err error
	switch kind {
	case gpu.Min, gpu.Max:
		body, err = b.canonical(n, body)
		t = body.typ
	case gpu.Count: // any type will do
		body, err = b.expand(n, "CASE WHEN _1 IS NOT NULL THEN true END", body)
	case gpu.Sum:
		body, err = newCast(b.scope.Fold, body, gpu.Nestable(body.typ), false)
	}
	if err != nil {
		return nil, err
	}
	out, err := b.op(n, Expr{op: gpu.OpFoldElements, n: int(kind), level: b.level - 1, typ: t, rng: typeRange(t),
		nullable: kind != gpu.Count || list.nullable, fails: kind == gpu.Sum && !t.IsFloat()}, list, body)
	if err != nil || kind != gpu.Count || !list.nullable {
		return out, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 END", list, out)
}

// present returns the value of a body as an element of a list, where it is not null.
func (b *binder) present(n syntax.Node, body *Expr) (*Expr, error) {
	there, err := b.isNull(n, body, true)
	if err != nil {
		return nil, err
	}
	one, err := b.nest(n, body)
	if err != nil {
		return nil, err
	}
	return b.onlyIf(n, there, one)
}

// some returns the list of the values of a body that are not null, in the order of flags.
func (b *binder) some(n syntax.Node, list *Expr, op gpu.Op, flags int, body *Expr) (*Expr, error) {
	one, err := b.present(n, body)
	if err != nil {
		return nil, err
	}
	b.level--
	defer func() { b.level++ }()
	bodies := []*Expr{one}
	if op == gpu.OpSortElements {
		bodies = []*Expr{body, one}
	}
	return b.each(n, op, flags, list, gpu.ListOf(gpu.Nestable(body.typ)), bodies...)
}

// sortedElements binds an aggregate that needs all elements at once.
func (b *binder) sortedElements(n, c *syntax.Call, list *Expr, call AggregateCall) (*Expr, error) {
	s := call.Sorted
	switch s.Kind {
	case window.FirstValue, window.LastValue:
		from, err := list, error(nil)
		if s.IgnoreNulls {
			if from, err = b.some(n, list, gpu.OpEachElement, 0, call.Arg); err != nil {
				return nil, err
			}
		}
		if s.Kind == window.LastValue {
			return b.element(n, from, position(-1), call.Output)
		}
		return b.element(n, from, position(1), call.Output)
	case window.StringAgg:
		separator := newConstant(gpu.StringScalar(s.Separator))
		body, err := b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 || _1 ELSE '' END", call.Arg, separator)
		if err != nil {
			return nil, err
		}
		joined, err := b.op(n, Expr{op: gpu.OpEachElement, typ: text, nullable: list.nullable, level: b.level - 1},
			list,
			body)
		if err != nil {
			return nil, err
		}
		count, err := b.fold(n, list, gpu.Count, call.Arg, long)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "CASE WHEN _2 > 0 THEN substring(_1, length(_3) + 1) END", joined, count, separator)
	case window.QuantileCont, window.QuantileDisc:
		return b.quantileOf(n, list, call)
	case window.VarSamp, window.VarPop, window.StddevSamp, window.StddevPop:
		return b.deviation(n, list, call.Arg, s.Kind)
	}
	return nil, b.errorf(c, "there is no aggregate %q of lists", c.Name)
}

// deviation binds a variance or a standard deviation of DOUBLEs, by their distances to the average.
func (b *binder) deviation(n *syntax.Call, list, x *Expr, kind window.Kind) (*Expr, error) {
	sum, err := b.fold(n, list, gpu.Sum, x, float)
	if err != nil {
		return nil, err
	}
	count, err := b.fold(n, list, gpu.Count, x, long)
	if err != nil {
		return nil, err
	}
	square, err := b.expand(n, "(_1 - _2 / _3) * (_1 - _2 / _3)", x, sum, count)
	if err != nil {
		return nil, err
	}
	squares, err := b.fold(n, list, gpu.Sum, square, float)
	if err != nil {
		return nil, err
	}
	less := 0
	if kind == window.VarSamp || kind == window.StddevSamp {
		less = 1
	}
	body := fmt.Sprintf("CASE WHEN _2 > %d THEN _1 / (_2 - %[1]d) END", less)
	if kind == window.StddevSamp || kind == window.StddevPop {
		body = "sqrt(" + body + ")"
	}
	return b.expand(n, body, squares, count)
}

// quantileOf binds a quantile: the value at a fraction of the sorted elements, or one between two of them.
func (b *binder) quantileOf(n *syntax.Call, list *Expr, call AggregateCall) (*Expr, error) {
	s := call.Sorted
	flags := 0
	if s.Descending {
		flags = gpu.SortDescending
	}
	sorted, err := b.some(n, list, gpu.OpSortElements, flags, call.Arg)
	if err != nil {
		return nil, err
	}
	count, err := bindCount(b, n, []*Expr{sorted})
	if err != nil {
		return nil, err
	}
	at := func(formula string, x ...*Expr) (*Expr, error) {
		i, err := b.expand(n, formula, x...)
		if err != nil {
			return nil, err
		}
		return b.element(n, sorted, i, gpu.Nestable(call.Arg.typ))
	}
	fraction := newConstant(gpu.FloatScalar(float, s.Fraction))
	if s.Kind == window.QuantileDisc {
		if s.Denominator > 0 {
			return at("greatest((_1 * _2 + _3 - 1) // _3, 1)", count, position(s.Numerator), position(s.Denominator))
		}
		return at("greatest(_1 - CAST(floor(_1 - _1 * _2) AS BIGINT), 1)", count, fraction)
	}
	if call.Output != float {
		return nil, b.errorf(n, "%s between elements of %v is not possible; cast them to DOUBLE, or take quantile_disc",
			n.Name, call.Arg.typ)
	}
	place, err := b.expand(n, "(_1 - 1) * _2", count, fraction)
	if err != nil {
		return nil, err
	}
	x, err := at("CAST(floor(_1) AS BIGINT) + 1", place)
	if err != nil {
		return nil, err
	}
	y, err := at("CAST(floor(_1) AS BIGINT) + 2", place)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _3 = floor(_3) THEN _1 ELSE _1 * (1 - (_3 - floor(_3))) + _2 * (_3 - floor(_3)) END",
		x,
		y, place)
}

// examplesOfAggregates are those of the functions of listAggregates.
var examplesOfAggregates = map[string]string{
	"sum": "list_sum([1, 2, NULL]) → 3", "avg": "list_avg([1, 2]) → 1.5", "min": "list_min([3, 1, NULL]) → 1",
	"max": "list_max(['a', 'b']) → b", "count": "list_count([1, NULL]) → 1", "first": "list_first([NULL, 1]) → NULL",
	"last": "list_last([1, 2]) → 2", "any_value": "list_any_value([NULL, 1]) → 1",
	"product": "list_product([2, 3]) → 6.0", "string_agg": "list_string_agg(['a', NULL, 'b']) → a,b",
	"median": "list_median([1, 2, 4, 5]) → 3.0", "bool_and": "list_bool_and([true, false]) → false",
	"bool_or": "list_bool_or([true, false]) → true", "bit_and": "list_bit_and([3, 6]) → 2",
	"bit_or": "list_bit_or([1, 2]) → 3", "bit_xor": "list_bit_xor([1, 3]) → 2",
	"var_samp": "list_var_samp([1, 3]) → 2.0",
	"var_pop":  "list_var_pop([1, 3]) → 1.0", "stddev_samp": "list_stddev_samp([2, 4, 6]) → 2.0",
	"stddev_pop": "list_stddev_pop([1, 3]) → 1.0", "sem": "list_sem([1, 3, 1, 3]) → 0.5",
	"skewness": "list_skewness([1, 2, 3]) → 0.0", "kurtosis": "list_kurtosis([1, 2]) → NULL",
	"kurtosis_pop":          "list_kurtosis_pop([1, 3]) → -2.0",
	"approx_count_distinct": "list_approx_count_distinct([1, 2, 1]) → 2",
	"mode":                  "list_mode([1, 2, 2]) → 2", "histogram": "list_histogram(['a', 'b', 'a']) → {a=2, b=1}",
	"entropy": "list_entropy([1, 2, 3, 4]) → 2.0", "mad": "list_mad([1, 2, 3, 10]) → 1.0",
}

// bindArrayToString binds array_to_string(list, separator).
func bindArrayToString(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
	list, err := b.listArgument(n)
	if err != nil {
		return nil, err
	}
	separator := n.Args[1:]
	if null, ok := separator[0].(*syntax.WordLiteral); ok && null.Word == "NULL" {
		separator = nil // the usual one
	}
	joined, err := b.aggregated(n, list, "string_agg", separator)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN len(_1) = 0 THEN '' ELSE _2 END", list, joined)
}
