package expr

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
)

// AggregateCall is one call of an aggregate function.
type AggregateCall struct {
	Kind gpu.AggregateKind
	Arg  *Expr // nil for count(*)
	// Distinct says that each value of Arg counts once. It is never set for Min, Max, BitAnd and
	// BitOr, whose results do not depend on it.
	Distinct bool
	// Registers is set for approx_count_distinct.
	Registers *Registers
	Output    gpu.Type
	// Sorted is set for an aggregate that needs all rows of a group at once.
	Sorted *SortedCall
}

// SortedCall describes an aggregate that sees the rows of a group in an order. See
// window.GroupFunction.
type SortedCall struct {
	Kind                   window.Kind
	Key, Filter            *Expr
	Order                  []WindowKey
	IgnoreNulls            bool
	Fraction               float64
	Numerator, Denominator int64
	Descending             bool
	Separator              string
	text                   string
}

// Equal reports whether two calls over the same schema are the same.
func (c AggregateCall) Equal(d AggregateCall) bool {
	if c.Arg == nil || d.Arg == nil {
		return c.Kind == d.Kind && c.Arg == d.Arg
	}
	return c.Kind == d.Kind && c.Distinct == d.Distinct && (c.Registers == nil) == (d.Registers == nil) &&
		c.Arg.Equal(d.Arg) && c.Sorted.equal(d.Sorted)
}

func (c *SortedCall) equal(d *SortedCall) bool {
	if c == nil || d == nil {
		return c == d
	}
	return c.Kind == d.Kind && sameExpr(c.Key, d.Key) && sameExpr(c.Filter, d.Filter) &&
		slices.EqualFunc(c.Order, d.Order, WindowKey.equal) &&
		c.IgnoreNulls == d.IgnoreNulls && c.Fraction == d.Fraction && c.Numerator == d.Numerator &&
		c.Denominator == d.Denominator && c.Descending == d.Descending && c.Separator == d.Separator
}

// String describes the call.
func (c AggregateCall) String() string {
	if c.Sorted != nil {
		return c.Sorted.text
	}
	text := c.Kind.String()
	switch {
	case c.Registers != nil:
		text = "approx_count_distinct"
	case c.Distinct:
		text += " distinct"
	}
	if c.Arg != nil {
		text += " " + c.Arg.String()
	}
	return text
}

// aggregate is an aggregate function and how it is computed.
type aggregate struct {
	kind  gpu.AggregateKind
	takes argument
	// sorted is the function over the rows of a group; window.Aggregate means that kind computes
	// it.
	sorted window.Kind
	// estimate says that each value counts once, and that the result may be an estimate.
	estimate bool
	// formula, unless it is nil, computes it from other aggregates.
	formula *formula
	// document says that it is one of jsonAggregates.
	document bool
}

// argument is the kind of argument that an aggregate function accepts.
type argument uint8

const (
	anything argument = iota
	number
	addend // a number, or a BOOLEAN, which is 1 or 0
	double // a number, as a DOUBLE
	integer
	condition // a BOOLEAN
	indicator // a BOOLEAN, which is 1 or 0
)

var aggregates = map[string]aggregate{
	"count": {kind: gpu.Count}, "count_star": {kind: gpu.CountAll}, "min": {kind: gpu.Min}, "max": {kind: gpu.Max},
	"sum": {kind: gpu.Sum, takes: addend}, "avg": {kind: gpu.Avg, takes: number},
	"mean": {kind: gpu.Avg, takes: number},
	"fsum": {kind: gpu.Sum, takes: double}, "kahan_sum": {kind: gpu.Sum, takes: double},
	"sumkahan": {kind: gpu.Sum, takes: double}, "favg": {kind: gpu.Avg, takes: double},
	"bool_and": {kind: gpu.Min, takes: condition}, "bool_or": {kind: gpu.Max, takes: condition},
	"count_if": {kind: gpu.Sum, takes: indicator}, "countif": {kind: gpu.Sum, takes: indicator},
	"approx_count_distinct": {kind: gpu.Count, estimate: true},
	"product":               {kind: gpu.Product, takes: double}, "bit_and": {kind: gpu.BitAnd, takes: integer},
	"bit_or": {kind: gpu.BitOr, takes: integer}, "bit_xor": {kind: gpu.BitXor, takes: integer},
	"first": {sorted: window.FirstValue}, "last": {sorted: window.LastValue}, "arbitrary": {sorted: window.FirstValue},
	"any_value": {sorted: window.FirstValue},
	"arg_min":   {sorted: window.ArgMin}, "argmin": {sorted: window.ArgMin}, "min_by": {sorted: window.ArgMin},
	"arg_max": {sorted: window.ArgMax}, "argmax": {sorted: window.ArgMax}, "max_by": {sorted: window.ArgMax},
	"median": {sorted: window.QuantileCont}, "quantile_cont": {sorted: window.QuantileCont},
	"quantile": {sorted: window.QuantileDisc}, "quantile_disc": {sorted: window.QuantileDisc},
	"mode":       {sorted: window.Mode},
	"string_agg": {sorted: window.StringAgg}, "group_concat": {sorted: window.StringAgg},
	"listagg": {sorted: window.StringAgg},
	"list":    {sorted: window.StringAgg}, "array_agg": {sorted: window.StringAgg},
	"var_samp": {takes: double, sorted: window.VarSamp}, "variance": {takes: double, sorted: window.VarSamp},
	"var_pop":     {takes: double, sorted: window.VarPop},
	"stddev_samp": {takes: double, sorted: window.StddevSamp}, "stddev": {takes: double, sorted: window.StddevSamp},
	"stddev_pop": {takes: double, sorted: window.StddevPop},
}

// IsAggregate reports whether a function, by its name in lower case, is an aggregate.
func IsAggregate(name string) bool {
	_, ok := aggregates[name]
	return ok
}

// AggregateColumn returns the name of the column that replaces call i in the tree that
// BindAggregates returns.
func AggregateColumn(i int) string { return fmt.Sprintf("$agg%d", i) }

// BindAggregates finds the aggregate calls in a tree and binds their arguments over s. It returns
// each distinct call once, and the tree with every call replaced by a reference to its
// AggregateColumn. That tree can be bound over the columns of a group-by. The error is a
// *syntax.Error.
func BindAggregates(n syntax.Node, s *Scope) (calls []AggregateCall, post syntax.Node, err error) {
	b := &binder{scope: s, src: n.Source()}
	defer func() { err = n.Hides().Hide(err) }()
	seen := map[string][]int{} // calls of the same text, which may mean different columns
	add := func(c *syntax.Call) (syntax.Node, error) {
		list := c.Name == "list" || c.Name == "array_agg"
		var call AggregateCall
		var err error
		if list {
			call, err = b.listAggregate(c)
		} else {
			call, err = b.aggregate(c, aggregates[c.Name])
		}
		if err != nil {
			return nil, err
		}
		key, i := c.String(), len(calls)
		if at := slices.IndexFunc(seen[key], func(j int) bool { return call.Equal(calls[j]) }); at >= 0 {
			i = seen[key][at]
		} else {
			seen[key] = append(seen[key], i)
			s.written(n, call.expressions()...)
			calls = append(calls, call)
		}
		column := &syntax.Name{Base: syntax.At(c), Parts: []string{AggregateColumn(i)}}
		if list {
			return &syntax.Call{Base: syntax.At(c, column), Name: listFunction, Args: []syntax.Node{column}}, nil
		}
		return column, nil
	}
	post, err = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		c, ok := n.(*syntax.Call)
		if !ok {
			return nil, nil
		}
		if c.Over != nil {
			return nil,
				b.errorf(c, "the window function %s is not allowed here; compute it in a select step after the group",
					c.Name)
		}
		f, ok := aggregates[c.Name]
		if !ok {
			return nil, nil
		}
		if tree, err := b.variance(c, f, add); tree != nil || err != nil {
			return tree, err
		}
		return add(c)
	})
	if err != nil {
		return nil, nil, err
	}
	return calls, post, nil
}

func (b *binder) aggregate(n *syntax.Call, f aggregate) (call AggregateCall, err error) {
	if err := b.aggregateInside(n); err != nil {
		return call, err
	}
	switch {
	case n.IgnoreNulls:
		return call, b.errorf(n, "IGNORE NULLS is possible with OVER only; any_value ignores nulls")
	case f.sorted != window.Aggregate:
		return b.sortedAggregate(n, f)
	}
	if _, err := b.aggregateOrder(n); err != nil { // the result does not depend on it
		return call, err
	}
	call = AggregateCall{Kind: f.kind, Output: gpu.Of(gpu.Int64)}
	switch rows := f.kind == gpu.CountAll || f.kind == gpu.Count && !f.estimate && len(n.Args) == 0; {
	case n.Star && (f.estimate || f.kind != gpu.Count && f.kind != gpu.CountAll):
		return call, b.errorf(n, "%s takes 1 argument, found *", n.Name)
	case f.kind == gpu.CountAll && len(n.Args) > 0:
		return call, b.errorf(n, "%s takes no arguments, found %d", n.Name, len(n.Args))
	case n.Star || rows:
		call.Kind = gpu.CountAll
	case len(n.Args) != 1:
		return call, b.errorf(n, "%s takes 1 argument, found %d", n.Name, len(n.Args))
	}
	if n.Filter != nil {
		// The argument is not evaluated on rows that the filter excludes.
		b.lazy++
		defer func() { b.lazy-- }()
	}
	if call.Kind != gpu.CountAll {
		if call.Arg, err = b.argument(n, f.takes); err != nil {
			return call, err
		}
		call.Distinct = (n.Distinct || f.estimate) && !idempotent(f.kind)
	}
	if n.Filter != nil {
		if err := b.filterArgument(n, &call); err != nil {
			return call, err
		}
	}
	if f.estimate {
		if call.Registers, err = b.registers(n, call.Arg); err != nil {
			return call, err
		}
	}
	if call.Kind == gpu.Product {
		call.Sorted = &SortedCall{Kind: window.Aggregate, text: n.String()}
	}
	switch call.Kind {
	case gpu.Min, gpu.Max, gpu.Product, gpu.BitAnd, gpu.BitOr, gpu.BitXor:
		call.Output = call.Arg.typ
	case gpu.Sum:
		call.Output = gpu.SumType(call.Arg.typ)
	case gpu.Avg:
		call.Output = gpu.Of(gpu.Float64)
	}
	return call, nil
}

// aggregateInside returns an error if an argument of an aggregate has an aggregate.
func (b *binder) aggregateInside(n *syntax.Call) error {
	for _, arg := range n.Children() {
		if arg == nil || arg == n.Filter {
			continue
		}
		if inner := aggregateIn(arg); inner != nil {
			return b.errorf(inner, "the aggregate %s is not allowed inside another one; compute it in a group step "+
				"before", inner.Name)
		}
	}
	return nil
}

// idempotent reports whether an aggregate of distinct values equals that of all values.
func idempotent(k gpu.AggregateKind) bool {
	return k == gpu.Min || k == gpu.Max || k == gpu.BitAnd || k == gpu.BitOr
}

// argument binds the argument of an aggregate function.
func (b *binder) argument(n *syntax.Call, takes argument) (*Expr, error) {
	x, err := b.bind(n.Args[0])
	if err != nil {
		return nil, err
	}
	if takes == condition || takes == indicator {
		if x.typ.IsNumeric() {
			return nil, b.errorf(n, "%s needs a condition (BOOLEAN), found %v", n.Name, x.typ)
		}
		if x, err = b.boolean(n, x, n.Name); err != nil {
			return nil, err
		}
	}
	if x.literal == nullLiteral {
		x = newConstant(gpu.Null(gpu.Of(gpu.Int32))) // as in Bind
	}
	truth := x.typ.Kind == gpu.Bool
	switch {
	case truth && (takes == indicator || takes == addend):
		return b.convert(n, x, gpu.Of(gpu.Int32), false)
	case takes == anything || truth && takes == condition:
		return x, nil
	case takes == integer && !x.typ.IsInteger():
		return nil, b.errorf(n, "%s needs an integer, found %v", n.Name, x.typ)
	case !x.typ.IsNumeric():
		return nil, b.errorf(n, "%s needs a number, found %v", n.Name, x.typ)
	case takes == double:
		return b.convert(n, x, gpu.Of(gpu.Float64), false)
	}
	return x, nil
}

// filterArgument makes the argument of a call null on rows that its FILTER excludes. Aggregates
// ignore nulls, so count(*) becomes the count of a value that is TRUE.
func (b *binder) filterArgument(n *syntax.Call, call *AggregateCall) error {
	if inner := aggregateIn(n.Filter); inner != nil {
		return b.errorf(inner, "the aggregate %s is not allowed in FILTER; compute it in a group step before",
			inner.Name)
	}
	cond, err := b.bind(n.Filter)
	if err != nil {
		return err
	}
	if cond, err = b.boolean(n.Filter, cond, "FILTER"); err != nil {
		return err
	}
	if call.Kind == gpu.CountAll {
		call.Kind, call.Arg = gpu.Count, newConstant(gpu.BoolScalar(true))
	}
	x, err := b.choose(n, cond, call.Arg, Null(gpu.Field{Type: call.Arg.typ}))
	if err != nil {
		return err
	}
	if x != call.Arg {
		// The values that remain are unchanged.
		annotated := *x
		annotated.annotation = call.Arg.annotation
		x = &annotated
	}
	call.Arg = x
	return nil
}

// aggregateIn returns an aggregate call in a tree, or nil.
func aggregateIn(n syntax.Node) (found *syntax.Call) {
	_, _ = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		if c, ok := n.(*syntax.Call); ok && found == nil {
			if _, ok := aggregates[c.Name]; ok {
				found = c
			}
		}
		return nil, nil
	})
	return found
}
