package expr

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
)

// maxUnits bounds the bits of a number such that the sum of squares over 2^40 rows fits 128 bits.
const maxUnits = 42

// variance replaces a variance or a standard deviation of integers or decimals by sums and a count,
// which need no sorted rows, and returns the tree. It returns nil for other types, for DISTINCT,
// and for numbers that may be too large. call returns the node that replaces one of the aggregates.
//
// The sums are exact, of x in units of its last digit. Let q be the integer nearest to the mean,
// and r the rest of the sum, Σx - nq. Then the squares of the distances to the mean add up to Σx² -
// 2qΣx + nq² - r²/n. All terms but the last are integers, so no digits cancel.
//
// An aggregate that has a formula is replaced by that, and so is the average of intervals.
func (b *binder) variance(n *syntax.Call, f aggregate,
	call func(*syntax.Call) (syntax.Node, error)) (syntax.Node, error) {
	switch {
	case f.formula != nil:
		return b.formula(n, f.formula, call)
	case f.document:
		return b.documentOf(n, call)
	}
	if tree, err := b.intervalAverage(n, f, call); tree != nil || err != nil {
		return tree, err
	}
	if f.sorted < window.VarSamp || n.Distinct || n.Star || len(n.Args) != 1 || aggregateIn(n.Args[0]) != nil {
		return nil, nil
	}
	b.lazy++ // the argument is not evaluated on rows that FILTER excludes
	x, err := b.bind(n.Args[0])
	b.lazy--
	if err != nil {
		return nil, err
	}
	wide := unitBits(x)
	if wide < 0 || wide > maxUnits {
		return nil, nil
	}
	units := n.Args[0]
	if s := int(x.typ.Scale); s > 0 {
		units = times(n, units, &syntax.NumberLiteral{Base: syntax.At(n), Text: "1" + strings.Repeat("0", s)})
	}
	units = &syntax.Cast{Base: syntax.At(n, units), X: units, Type: gpu.Of(gpu.Int64)}
	square := units
	if 2*wide > 62 {
		square = &syntax.Cast{Base: syntax.At(n, square), X: square, Type: hugeint}
	}
	square = times(n, square, units)
	var names []any
	for _, c := range []struct {
		name string
		arg  syntax.Node
	}{{"count", units}, {"sum", units}, {"sum", square}} {
		column, err := call(&syntax.Call{Base: syntax.At(n, c.arg), Name: c.name, Args: []syntax.Node{c.arg},
			Filter: n.Filter, Over: n.Over})
		if err != nil {
			return nil, err
		}
		names = append(names, column.String())
	}
	less := 0
	if f.sorted == window.VarSamp || f.sorted == window.StddevSamp {
		less = 1
	}
	mean := fmt.Sprintf("((2 * %[2]s + CASE WHEN %[2]s < 0 THEN -%[1]s ELSE %[1]s END) // nullif(2 * %[1]s, 0))",
		names...)
	rest := fmt.Sprintf("CAST(%[2]s - %[1]s * %[4]s AS DOUBLE)", append(names, mean)...)
	squares := fmt.Sprintf("greatest(CAST(%[3]s - 2 * %[4]s * %[2]s + %[1]s * %[4]s * %[4]s AS DOUBLE) - %[5]s * "+
		"%[5]s / %[1]s, 0e0)", append(names, mean, rest)...)
	text := fmt.Sprintf("CASE WHEN %s > %d THEN %s / (%[1]s - %[2]d) / 1e%[4]d END", names[0], less, squares,
		2*x.typ.Scale)
	if f.sorted == window.StddevSamp || f.sorted == window.StddevPop {
		text = "sqrt(" + text + ")"
	}
	return syntax.Parse(text)
}

// times returns the product of two trees, located at a call.
func times(at *syntax.Call, x, y syntax.Node) syntax.Node {
	return &syntax.Binary{Base: syntax.At(at, x, y), Op: "*", L: x, R: y}
}

// unitBits returns the bits of the largest value of an integer or a decimal, in units of its
// last digit, or -1 for other numbers.
func unitBits(x *Expr) int {
	t := x.typ
	if x.literal == nullLiteral || !t.IsInteger() && t.Kind != gpu.Decimal {
		return -1
	}
	r := x.rng
	if r == nil {
		r = typeRange(t)
	}
	units := 0
	for _, v := range []gpu.Int128{r.Lo, r.Hi} {
		hi, lo := v.Abs()
		if hi > 0 {
			return 128
		}
		units = max(units, bits.Len64(lo))
	}
	return units
}
