package expr

import (
	"slices"

	"github.com/gstream/gstream/gpu"
)

// Or returns the disjunction of predicates, FALSE if there are none. It has each term once. Equalities of a column with
// constants become one IN, which statistics of files can answer.
func Or(es ...*Expr) *Expr {
	type value struct {
		column int
		gpu.Scalar
	}
	var args []*Expr
	sets, had, known := map[int]*Expr{}, map[value]bool{}, map[string][]*Expr{}
	for _, e := range es {
		for _, t := range Disjuncts(e) {
			column, list, ok := members(t)
			if !ok {
				text := t.String()
				if !slices.ContainsFunc(known[text], t.Equal) {
					args, known[text] = append(args, t), append(known[text], t)
				}
				continue
			}
			set := sets[column]
			if set == nil {
				set = &Expr{op: gpu.OpIn, typ: t.typ, column: -1, args: t.args[:1], nullable: t.args[0].nullable,
					origin: t.Origin()}
				sets[column], args = set, append(args, set)
			}
			set.hidden = set.hidden || t.Hidden()
			for _, v := range list {
				if at := (value{column, v}); !had[at] {
					had[at], set.set = true, append(set.set, v)
				}
			}
		}
	}
	for i, a := range args {
		if a.op == gpu.OpIn && sets[a.args[0].column] == a && len(a.set) == 1 {
			c := newConstant(a.set[0])
			c.hidden = a.hidden
			args[i] = Equal(a.args[0], c, false).At(a.origin)
		}
	}
	return newLogic(gpu.OpOr, args)
}

// members returns the column of a predicate that is true where the column has one of some values, and these values.
func members(e *Expr) (column int, values []gpu.Scalar, ok bool) {
	if e.op != gpu.OpEq && e.op != gpu.OpIn || e.args[0].op != opColumn {
		return 0, nil, false
	}
	x := e.args[0]
	if e.op == gpu.OpIn {
		return x.column, e.set, true
	}
	v, ok := e.args[1].Constant()
	if !ok || !v.Valid || !v.Type.SameSQL(x.typ) || x.typ.Kind == gpu.Decimal && !x.typ.Wide && !v.Int.IsInt64() {
		return 0, nil, false
	}
	v.Type = x.typ
	return x.column, []gpu.Scalar{v}, true
}

// Disjuncts splits a predicate at its top-level ORs.
func Disjuncts(e *Expr) []*Expr {
	if e.op != gpu.OpOr {
		return []*Expr{e}
	}
	var out []*Expr
	for _, a := range e.args {
		out = append(out, Disjuncts(a)...)
	}
	return out
}

// Factor returns conjuncts of which a predicate is the conjunction. Those that all terms of an OR have come out of it:
// (a AND b) OR (a AND c) is a, and b OR c.
func Factor(e *Expr) []*Expr {
	terms := Disjuncts(e)
	if len(terms) < 2 {
		return Conjuncts(e)
	}
	lists := make([][]*Expr, len(terms))
	for i, t := range terms {
		lists[i] = Conjuncts(t)
	}
	var common []*Expr
	for _, c := range lists[0] {
		if !slices.ContainsFunc(lists, func(list []*Expr) bool { return !slices.ContainsFunc(list, c.Equal) }) {
			common = append(common, c)
		}
	}
	if len(common) == 0 {
		return []*Expr{e}
	}
	var rest []*Expr
	for _, list := range lists {
		list = slices.DeleteFunc(list, func(c *Expr) bool { return slices.ContainsFunc(common, c.Equal) })
		if len(list) == 0 {
			return common // the other terms are part of this one
		}
		rest = append(rest, And(list...))
	}
	return append(common, Or(rest...))
}

// Equality returns the two sides of l = r or l IS NOT DISTINCT FROM r. nullSafe is set for the
// latter, for which a null equals a null.
func Equality(e *Expr) (l, r *Expr, nullSafe, ok bool) {
	if e.op != gpu.OpEq && e.op != gpu.OpNotDistinct {
		return nil, nil, false, false
	}
	return e.args[0], e.args[1], e.op == gpu.OpNotDistinct, true
}

// Inequality returns the two sides of l < r, l <= r, l > r or l >= r, and which of these it
// is.
func Inequality(e *Expr) (l, r *Expr, op ComparisonOp, ok bool) {
	if op, ok = statisticsOps[e.op]; !ok || op < Lt || op > Ge {
		return nil, nil, 0, false
	}
	return e.args[0], e.args[1], op, true
}

// Equal returns l = r, or with nullSafe l IS NOT DISTINCT FROM r. Both have the same type.
func Equal(l, r *Expr, nullSafe bool) *Expr {
	e := &Expr{op: gpu.OpEq, typ: gpu.Of(gpu.Bool), column: -1, args: []*Expr{l, r}, nullable: l.nullable || r.nullable,
		fails: l.fails || r.fails}
	if nullSafe {
		e.op, e.nullable = gpu.OpNotDistinct, false
	}
	return e
}

// Coalesce returns x, or y where x is null. Both have the same type.
func Coalesce(x, y *Expr) *Expr {
	there := &Expr{op: gpu.OpIsNotNull, typ: gpu.Of(gpu.Bool), column: -1, args: []*Expr{x}, fails: x.fails}
	e := &Expr{op: gpu.OpSelect, typ: x.typ, column: -1, args: []*Expr{there, x, y}, nullable: x.nullable && y.nullable,
		rng: x.rng.union(y.rng), fails: x.fails || y.fails}
	if x.annotation == y.annotation {
		e.annotation = x.annotation
	}
	return e
}

// Required returns x where a condition is true. Elsewhere it fails with a message, once the row is evaluated.
func Required(condition, x *Expr, message string) *Expr {
	fail := &Expr{op: gpu.OpCast, typ: gpu.Of(gpu.Bool), column: -1, message: message, fails: true,
		args: []*Expr{newConstant(gpu.StringScalar("false, but it has a message"))}}
	holds := &Expr{op: gpu.OpSelect, typ: fail.typ, column: -1, args: []*Expr{condition, And(), fail}, fails: true}
	otherwise := Null(gpu.Field{Type: x.typ})
	return &Expr{op: gpu.OpSelect, typ: x.typ, column: -1, args: []*Expr{holds, x, otherwise}, nullable: x.nullable,
		annotation: x.annotation, rng: x.rng, fails: true}
}

// Coalesced returns the operands of Coalesce.
func Coalesced(e *Expr) (x, y *Expr, ok bool) {
	if e.op != gpu.OpSelect || e.args[0].op != gpu.OpIsNotNull || e.args[0].args[0] != e.args[1] {
		return nil, nil, false
	}
	return e.args[1], e.args[2], true
}
