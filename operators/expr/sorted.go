package expr

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
)

// sortedAggregate binds an aggregate that needs all rows of a group at once.
func (b *binder) sortedAggregate(n *syntax.Call, f aggregate) (call AggregateCall, err error) {
	lo, hi := 1, 1
	switch n.Name {
	case "quantile_cont", "quantile_disc", "quantile":
		lo, hi = 2, 2
	case "string_agg", "group_concat", "listagg":
		hi = 2
	}
	if f.sorted == window.ArgMin || f.sorted == window.ArgMax {
		lo, hi = 2, 2
	}
	if n.Star || len(n.Args) < lo || len(n.Args) > hi {
		return call, b.errorf(n, "%s takes %s, found %s", n.Name, arity(lo, hi), found(n))
	}
	if n.Filter != nil {
		// The argument is not evaluated on rows that the filter excludes.
		b.lazy++
		defer func() { b.lazy-- }()
	}
	s := &SortedCall{Kind: f.sorted, text: n.String()}
	call = AggregateCall{Kind: gpu.Count, Distinct: n.Distinct, Sorted: s}
	if call.Arg, err = b.argument(n, f.takes); err != nil {
		return call, err
	}
	call.Arg = typed(call.Arg)
	arg := call.Arg
	if s.Order, err = b.aggregateOrder(n); err != nil {
		return call, err
	}
	call.Output = call.Arg.typ
	switch f.sorted {
	case window.FirstValue, window.LastValue:
		s.IgnoreNulls, call.Distinct = n.Name == "any_value", false
	case window.ArgMin, window.ArgMax:
		call.Distinct = false // the result does not depend on it
		if s.Key, err = b.windowKey(n.Args[1]); err != nil {
			return call, err
		}
	case window.QuantileCont, window.QuantileDisc:
		err = b.quantile(n, &call)
	case window.Mode:
		s.IgnoreNulls = true
	case window.StringAgg:
		err = b.stringAgg(n, &call)
	default:
		s.Order, s.IgnoreNulls, call.Output = nil, true, gpu.Of(gpu.Float64)
	}
	if err == nil {
		err = b.distinctOrder(n, s.Order, arg, s.Key)
	}
	if err == nil && n.Filter != nil {
		err = b.sortedFilter(n, &call)
	}
	return call, err
}

// aggregateOrder binds the keys of ORDER BY among the arguments of an aggregate. As in a sort step, a key that
// uses no column is an error: it is a mistake, such as a column in the wrong quotes.
func (b *binder) aggregateOrder(n *syntax.Call) ([]WindowKey, error) {
	for _, k := range n.Order {
		nowhere := &binder{scope: &Scope{Schema: gpu.NewSchema(), Fold: b.scope.Fold, Now: b.scope.Now}, src: b.src}
		if _, err := nowhere.windowKey(k.X); err != nil {
			continue
		}
		if _, err := b.windowKey(k.X); err == nil {
			return nil,
				b.errorf(k.X,
					"the ORDER BY key %s of %s uses no column, so it is the same in every row; write the "+
						"name of a column",
					syntax.Cut(k.X.String(), 60), n.Name)
		}
	}
	return b.orderKeys(n.Order)
}

// distinctOrder checks that the keys of ORDER BY of DISTINCT values are among these values.
func (b *binder) distinctOrder(n *syntax.Call, order []WindowKey, values ...*Expr) error {
	for _, k := range order {
		same := func(x *Expr) bool {
			return x != nil && (k.Expr.Equal(x) || x.isInterval() && k.Expr.Equal(LengthOf(x)))
		}
		if n.Distinct && !slices.ContainsFunc(values, same) {
			return b.errorf(n, "%s of DISTINCT values can only be in the order of these values", n.Name)
		}
	}
	return nil
}

// sortedFilter binds the FILTER of a call. The argument becomes null where the condition is not
// true. Functions that see nulls also need the condition itself.
func (b *binder) sortedFilter(n *syntax.Call, call *AggregateCall) error {
	if call.Distinct {
		// The rows of one value stay together in the order.
		cond, err := b.bind(n.Filter)
		if err == nil {
			cond, err = b.boolean(n.Filter, cond, "FILTER")
		}
		if err != nil {
			return err
		}
		for i, k := range call.Sorted.Order {
			if call.Sorted.Order[i].Expr,
				err = b.choose(n, cond, k.Expr, Null(gpu.Field{Type: k.Expr.typ})); err != nil {
				return err
			}
		}
	}
	sees := call.Sorted.Kind == window.FirstValue || call.Sorted.Kind == window.LastValue
	if err := b.filterArgument(n, call); err != nil || !sees {
		return err
	}
	cond, err := b.bind(n.Filter)
	if err == nil {
		cond, err = b.boolean(n.Filter, cond, "FILTER")
	}
	call.Sorted.Filter = cond
	return err
}

// quantile binds the fraction of a quantile, and the argument in the type in which values are
// interpolated. Values of a type without arithmetic are not interpolated.
func (b *binder) quantile(n *syntax.Call, call *AggregateCall) (err error) {
	s := call.Sorted
	s.IgnoreNulls, s.Order, s.Fraction, s.Numerator, s.Denominator = true, nil, 0.5, 1, 2
	if len(n.Args) > 1 {
		if err := b.fractionOf(n, s); err != nil {
			return err
		}
	}
	if s.Kind == window.QuantileDisc {
		return nil
	}
	switch t := call.Arg.typ; {
	case t.IsInteger():
		call.Output = gpu.Of(gpu.Float64)
		call.Arg, err = b.convert(n, call.Arg, call.Output, false)
	case t.Kind == gpu.Date:
		call.Output = gpu.TimestampOf(gpu.Microsecond, false)
		call.Arg, err = b.convert(n, call.Arg, call.Output, false)
	case t.IsVar() || t.Kind == gpu.Bool:
		if n.Name != "median" {
			return b.errorf(n, "%s needs a number, a date or a time, found %v; quantile_disc takes values of any type",
				n.Name, t)
		}
		s.Kind = window.QuantileDisc
	}
	return err
}

// maxFraction bounds the digits of a fraction, so that the fraction times a number of rows fits 64
// bits.
const maxFraction = 9

// fractionOf binds the second argument of a quantile: a constant from -1 to 1. A negative one
// counts from the greatest value.
func (b *binder) fractionOf(n *syntax.Call, s *SortedCall) error {
	x, err := b.bind(n.Args[1])
	if err != nil {
		return err
	}
	v, constant := x.Constant()
	switch {
	case !constant:
		return b.errorf(n.Args[1], "the fraction of %s must be a constant", n.Name)
	case !v.Valid:
		return b.errorf(n.Args[1], "the fraction of %s cannot be NULL", n.Name)
	case !x.typ.IsNumeric():
		return b.errorf(n.Args[1], "the fraction of %s must be a number, found %v", n.Name, x.typ)
	}
	s.Fraction, s.Denominator = v.Float, 0
	if !v.Type.IsFloat() {
		s.Fraction = v.Int.Decimal(int(v.Type.Scale))
		if v.Type.Scale <= maxFraction {
			s.Numerator, s.Denominator = max(v.Int.Int64(), -v.Int.Int64()), gpu.Pow10(int(v.Type.Scale)).Int64()
		}
	}
	if !(s.Fraction >= -1 && s.Fraction <= 1) {
		return b.errorf(n.Args[1], "the fraction of %s must be in the range from -1 to 1", n.Name)
	}
	if s.Descending = s.Fraction < 0; s.Descending {
		s.Fraction = -s.Fraction
	}
	return nil
}

// stringAgg binds the separator, and the argument as a VARCHAR.
func (b *binder) stringAgg(n *syntax.Call, call *AggregateCall) (err error) {
	s := call.Sorted
	s.IgnoreNulls, s.Separator, call.Output = true, ",", gpu.Of(gpu.String)
	if call.Arg, err = b.convert(n, call.Arg, call.Output, false); err != nil || len(n.Args) < 2 {
		return err
	}
	x, err := b.bind(n.Args[1])
	if err != nil {
		return err
	}
	v, constant := x.Constant()
	switch {
	case !constant:
		return b.errorf(n.Args[1], "the separator of %s must be a constant", n.Name)
	case x.literal == nullLiteral || !v.Valid:
		call.Arg = Null(gpu.Field{Type: call.Output}) // all is null
	case v.Type.Kind != gpu.String:
		return b.errorf(n.Args[1], "the separator of %s must be a VARCHAR, found %v", n.Name, v.Type)
	default:
		s.Separator = v.Str
	}
	return nil
}
