package expr

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// formula computes an aggregate from counts, averages and variances. In its text n is the number
// of rows of which all arguments have a value, ax and ay are the averages of these rows, and vx and vy the variances,
// var_pop. vs is the variance of the sums y + x, and vd that of the differences y - x, so (vs - vd) / 4 is the
// covariance. s3 and s4 are the sums of the third and fourth powers of the distances to zero, and lx the average of the
// logarithms.
type formula struct {
	args int // y and x, or x alone
	text string
}

const (
	covariance = "((vs - vd) / 4)"
	third      = "(s3 / n - 3 * vx * ax - ax * ax * ax)" // central moments, from sums
	fourth     = "(s4 / n - 4 * ax * (s3 / n) + 6 * ax * ax * vx + 3 * ax * ax * ax * ax)"
	slope      = "(" + covariance + " / vx)"
	noValue    = "CAST('nan' AS DOUBLE)"
)

var formulas = map[string]formula{
	"covar_pop":  {2, "CASE WHEN n > 0 THEN " + covariance + " END"},
	"covar_samp": {2, "CASE WHEN n > 1 THEN " + covariance + " * n / (n - 1) END"},
	"corr": {2, "CASE WHEN vx = 0 OR vy = 0 THEN " + noValue +
		" WHEN n > 0 THEN greatest(least(" + covariance + " / (sqrt(vx) * sqrt(vy)), 1e0), -1e0) END"},
	"regr_count":     {2, "CAST(n AS BIGINT)"},
	"regr_avgx":      {2, "ax"},
	"regr_avgy":      {2, "ay"},
	"regr_sxx":       {2, "n * vx"},
	"regr_syy":       {2, "n * vy"},
	"regr_sxy":       {2, "n * " + covariance},
	"regr_slope":     {2, "CASE WHEN vx = 0 THEN " + noValue + " WHEN n > 0 THEN " + slope + " END"},
	"regr_intercept": {2, "CASE WHEN vx > 0 THEN ay - " + slope + " * ax END"},
	"regr_r2": {2, "CASE WHEN vx = 0 THEN NULL WHEN vy = 0 THEN 1e0 WHEN n > 0 THEN least(" + covariance + " * " +
		covariance + " / vx / vy, 1e0) END"},
	"sem": {1, "CASE WHEN n > 0 THEN sqrt(vx) / sqrt(n) END"},
	"skewness": {1, "CASE WHEN n > 2 AND vx > 0 THEN sqrt(n * (n - 1)) / (n - 2) * " + third +
		" / (vx * sqrt(vx)) END"},
	"kurtosis_pop": {1, "CASE WHEN vx > 0 THEN " + fourth + " / (vx * vx) - 3 END"},
	"kurtosis": {1, "CASE WHEN n > 3 AND vx > 0 THEN (n - 1) * ((n + 1) * " + fourth +
		" / (vx * vx) - 3 * (n - 1)) / ((n - 2) * (n - 3)) END"},
	"geomean": {1, "exp(lx)"}, "geometric_mean": {1, "exp(lx)"},
}

func init() {
	for name, f := range formulas {
		aggregates[name] = aggregate{takes: double, formula: &f}
	}
}

// formula replaces an aggregate by its formula. call returns the node that replaces one of the aggregates in it.
func (b *binder) formula(n *syntax.Call, f *formula,
	call func(*syntax.Call) (syntax.Node, error)) (syntax.Node, error) {
	switch {
	case n.Star || len(n.Args) != f.args:
		return nil, b.errorf(n, "%s takes %s, found %s", n.Name, arity(f.args, f.args), found(n))
	case n.Distinct:
		return nil, b.errorf(n, "DISTINCT is not possible in %s", n.Name)
	case n.IgnoreNulls:
		return nil, b.errorf(n, "IGNORE NULLS is not possible in %s, which ignores nulls", n.Name)
	}
	if err := b.aggregateInside(n); err != nil {
		return nil, err
	}
	if _, err := b.aggregateOrder(n); err != nil { // the result does not depend on it
		return nil, err
	}
	args, err := b.moments(n)
	if err != nil {
		return nil, err
	}
	x, y := args[len(args)-1], args[0]
	at := func(op string) syntax.Node { return &syntax.Binary{Base: syntax.At(n, y, x), Op: op, L: y, R: x} }
	float := &syntax.Cast{Base: syntax.At(n, x), X: x, Type: gpu.Of(gpu.Float64)}
	square := times(n, float, float)
	parts := map[string]struct {
		function string
		arg      syntax.Node
	}{
		"n": {"count", x}, "ax": {"avg", x}, "ay": {"avg", y}, "vx": {"var_pop", x}, "vy": {"var_pop", y},
		"vs": {"var_pop", at("+")}, "vd": {"var_pop", at("-")},
		"s3": {"fsum", times(n, square, float)}, "s4": {"fsum", times(n, square, square)},
		"lx": {"avg", &syntax.Call{Base: syntax.At(n, x), Name: "ln", Args: []syntax.Node{x}}},
	}
	known := map[string]string{}
	tree, err := syntax.Parse(f.text)
	if err != nil {
		return nil, err
	}
	return syntax.Replace(tree, func(node syntax.Node) (syntax.Node, error) {
		name, ok := node.(*syntax.Name)
		if !ok {
			return nil, nil
		}
		part := parts[name.Parts[0]]
		text, ok := known[name.Parts[0]]
		if !ok {
			inner := &syntax.Call{Base: syntax.At(n, part.arg), Name: part.function, Args: []syntax.Node{part.arg},
				Filter: n.Filter, Over: n.Over}
			column, err := b.variance(inner, aggregates[part.function], call)
			if column == nil && err == nil {
				column, err = call(inner)
			}
			if err != nil {
				return nil, err
			}
			if text = column.String(); part.function == "count" {
				text = "CAST(" + text + " AS DOUBLE)"
			}
			known[name.Parts[0]] = text
		}
		return syntax.Parse(text)
	})
}

// moments returns the arguments of a formula, null unless all of them have a value. Integers and decimals stay exact
// if their sums have room, others become DOUBLE.
func (b *binder) moments(n *syntax.Call) ([]syntax.Node, error) {
	out, exact, scale := make([]syntax.Node, len(n.Args)), true, uint8(0)
	b.lazy++ // the arguments are not evaluated on rows that FILTER excludes
	defer func() { b.lazy-- }()
	for i, a := range n.Args {
		x, err := b.argument(&syntax.Call{Base: n.Base, Name: n.Name, Args: []syntax.Node{a}}, number)
		if err != nil {
			return nil, err
		}
		exact = exact && unitBits(x) >= 0 && unitBits(x) < maxUnits-1 && (i == 0 || x.typ.Scale == scale)
		scale = x.typ.Scale
	}
	for i, a := range n.Args {
		to := gpu.Of(gpu.Float64)
		if exact && scale == 0 {
			to = gpu.Of(gpu.Int64)
		}
		if out[i] = a; !exact || scale == 0 {
			out[i] = &syntax.Cast{Base: syntax.At(n, a), X: a, Type: to}
		}
	}
	if len(out) == 1 {
		return out, nil
	}
	for i := range out {
		other := n.Args[1-i]
		known := &syntax.Is{Base: syntax.At(n, other), X: other, What: "NULL", Not: true}
		out[i] = &syntax.Case{Base: syntax.At(n, known, out[i]), Whens: [][2]syntax.Node{{known, out[i]}}}
	}
	return out, nil
}
