package expr

import (
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// hideIn marks all constants of an expression as hidden. It cannot distinguish the constants that
// functions or comparisons derive from a hidden value.
func hideIn(h syntax.Hidden, es ...*Expr) {
	if len(h) == 0 {
		return
	}
	for _, e := range es {
		if e != nil {
			e.walk(func(e *Expr) { e.hidden = e.hidden || e.op != opColumn })
		}
	}
}

// Hidden reports whether a constant of the expression is hidden.
func (e *Expr) Hidden() (yes bool) {
	e.walk(func(e *Expr) { yes = yes || e.hidden })
	return yes
}

// writeConstant writes a constant of an expression.
func (e *Expr) writeConstant(b *strings.Builder, v gpu.Scalar) {
	if e.hidden {
		b.WriteString(syntax.Mask)
		return
	}
	writeScalar(b, v)
}

// expressions returns the expressions of a call. Some may be nil.
func (c AggregateCall) expressions() []*Expr {
	list := []*Expr{c.Arg}
	if c.Registers != nil {
		list = append(list, c.Registers.Number, c.Registers.Least)
	}
	if c.Sorted != nil {
		list = append(list, c.Sorted.Key, c.Sorted.Filter)
		for _, k := range c.Sorted.Order {
			list = append(list, k.Expr)
		}
	}
	return list
}

// expressions returns the expressions of a call. Some may be nil.
func (c WindowCall) expressions() []*Expr {
	list := append([]*Expr{c.Value, c.Offset, c.Default}, c.Partition...)
	for _, k := range c.Order {
		list = append(list, k.Expr)
	}
	for _, bound := range []WindowBound{c.Frame.From, c.Frame.To} {
		list = append(list, bound.Key, bound.Value)
	}
	if c.Group != nil {
		list = append(list, c.Group.expressions()...)
	}
	return list
}
