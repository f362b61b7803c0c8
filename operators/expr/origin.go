package expr

import "github.com/gstream/gstream/operators/expr/syntax"

// Origin is where an expression was written. The nodes that a rewrite makes have none.
type Origin struct {
	Step string // of the query
	Path string // of the value in the query, such as "steps[2].filter"
}

// At returns the expression as one that was written elsewhere.
func (e *Expr) At(o *Origin) *Expr {
	c := *e
	c.origin = o
	return &c
}

// Origin returns where the expression, or else a part of it, was written; nil if nobody knows.
func (e *Expr) Origin() (o *Origin) {
	e.walk(func(e *Expr) {
		if o == nil {
			o = e.origin
		}
	})
	return o
}

// OriginOf returns where the part of the expression with a text was written; nil if there is no
// such part, or nobody knows. The text is that of an instruction.
func (e *Expr) OriginOf(text string) (o *Origin) {
	e.walk(func(part *Expr) {
		if o == nil && len(part.args) > 0 && part.text(maxText) == text {
			if o = part.Origin(); o == nil {
				o = e.Origin()
			}
		}
	})
	return o
}

// written marks expressions of a text: with where it was written, and with what is not shown of them.
func (s *Scope) written(n syntax.Node, es ...*Expr) {
	hideIn(n.Hides(), es...)
	if s.Origin == nil {
		return
	}
	for _, e := range es {
		if e != nil {
			e.walk(func(e *Expr) {
				if e.origin == nil && e.op != opColumn {
					e.origin = s.Origin
				}
			})
		}
	}
}
