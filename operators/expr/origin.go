package expr

import "github.com/gstream/gstream/operators/expr/syntax"

// Origin is where an expression was written. Nodes that a rewrite makes have no origin.
type Origin struct {
	Step string // of the query
	Path string // of the value in the query, such as "steps[2].filter"
}

// At returns the expression with another origin.
func (e *Expr) At(o *Origin) *Expr {
	c := *e
	c.origin = o
	return &c
}

// Origin returns where the expression, or else a part of it, was written; nil if that is unknown.
func (e *Expr) Origin() (o *Origin) {
	e.walk(func(e *Expr) {
		if o == nil {
			o = e.origin
		}
	})
	return o
}

// Origins sets the origins of those parts of the expression that have none yet: by the text of the
// part, or else by that of the whole expression.
func (e *Expr) Origins(origins map[string]Origin) {
	if len(origins) == 0 {
		return
	}
	e.walk(func(part *Expr) {
		if len(part.args) == 0 {
			return
		}
		text := part.text(maxText)
		known, there := origins[text]
		if !there || known != (Origin{}) {
			return
		}
		o := part.Origin()
		if o == nil {
			o = e.Origin()
		}
		if o != nil {
			origins[text] = *o
		}
	})
}

// written sets the origin of the expressions of a text, and hides their constants if the text
// contains hidden values.
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
