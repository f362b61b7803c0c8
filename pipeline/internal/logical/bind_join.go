package logical

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/job"
)

// joinKinds are the kinds of joins in the words of a job. A cross join is an inner join
// without a condition.
var joinKinds = map[string]join.Kind{"": join.Inner, "inner": join.Inner, "cross": join.Inner, "left": join.Left,
	"right": join.Right,
	"full":  join.Full, "semi": join.Semi, "anti": join.Anti, "mark": join.Mark}

// joinCondition is the condition of a join, sorted by use.
type joinCondition struct {
	left, right []*expr.Expr // key expressions over each side
	nullSafe    []bool
	onLeft      []*expr.Expr // conjuncts over a single side
	onRight     []*expr.Expr
	residual    []*expr.Expr // conjuncts over both sides, left columns first
	using       [][2]int     // columns of the left and the right side that appear once
}

func (s *stepBinder) join(left Node) Node {
	j := s.step.Join
	right, _ := s.lookup(j.With, ".join.with")
	if right == nil {
		return nil
	}
	kind, ok := joinKinds[j.Kind]
	if !ok {
		s.faultf(".join.kind", "unknown kind of join %q; it must be one of %s", j.Kind,
			"inner, left, right, full, semi, anti, mark, cross")
		return nil
	}
	if j.Algorithm != "" && !slices.Contains(join.Algorithms(), j.Algorithm) {
		s.faultf(".join.algorithm", "there is no algorithm %q for joins; the algorithms are %s", j.Algorithm,
			strings.Join(join.Algorithms(), ", "))
		return nil
	}
	mark := cmp.Or(j.Mark, "matched")
	if kind == join.Mark && slices.Contains(left.Rel().Schema.Names(), mark) {
		s.faultf(".join.mark", "the step's input has a column %q already; give the mark another name with mark", mark)
		return nil
	}
	if j.As != "" && slices.ContainsFunc(left.Rel().tables,
		func(t *expr.Tables) bool { return t != nil && strings.EqualFold(t.First(), j.As) }) {
		s.faultf(".join.as", "the step's input has a table %q already; give %q another name", j.As, j.With)
		return nil
	}
	if j.As != "" {
		s.table(j.As)
		right = withTables(right, func(*expr.Tables) *expr.Tables { return expr.TablesOf(j.As) })
	}
	l, r := apart(left, right, cmp.Or(j.As, j.With))
	var c joinCondition
	for i, name := range j.Using {
		if !s.using(&c, l, r, name, fmt.Sprintf(".join.using[%d]", i)) {
			return nil
		}
	}
	both := newJoin(s.name, l, r, JoinSpec{Kind: join.Inner, build: "right"})
	for i, text := range j.On {
		sub := fmt.Sprintf(".join.on[%d]", i)
		e := s.condition(text, both, sub)
		if e == nil {
			return nil
		}
		c.add(e, l.Rel().Schema.Len())
	}
	spec := JoinSpec{Kind: kind, Algorithm: j.Algorithm, mark: mark, build: j.Build}
	spec.fixed = j.Order == "as written" || j.Algorithm != "" || j.Build == "left" || j.Build == "right"
	if !kind.Pairs() {
		l = left // in the tables that it had before
	}
	n, err := c.build(s.name, l, r, spec)
	if err == nil && len(c.using) > 0 && kind.Pairs() {
		n, err = c.merged(s.name, n, l.Rel().Schema.Len(), kind)
	}
	if err != nil {
		s.faultf(".join", "%v", err)
		return nil
	}
	return n
}

// merged returns a join with its columns of USING once, in the place of the left one. It is
// the side that keeps its rows which has the value, the left one before the right one.
func (c *joinCondition) merged(step string, in Node, nleft int, kind join.Kind) (Node, error) {
	r := in.Rel()
	if kind != join.Full {
		return pick(in, c.columns(nleft, r.Schema.Len()-nleft, kind == join.Right)), nil
	}
	all := columnsOf(in)
	var exprs []*expr.Expr
	var names []string
	var tables []*expr.Tables
	for _, col := range c.columns(nleft, r.Schema.Len()-nleft, false) {
		e := all[col]
		for _, u := range c.using {
			if u[0] != col {
				continue
			}
			x, y, err := sameType(e, all[nleft+u[1]])
			if err != nil {
				return nil, err
			}
			e = expr.Coalesce(x, y)
		}
		exprs, names, tables = append(exprs, e), append(names, r.Schema.Fields[col].Name), append(tables, r.tables[col])
	}
	return keepUnreadable(newProject(step, in, exprs, names, tables), in), nil
}

// sameType casts two expressions to the type in which they are compared.
func sameType(x, y *expr.Expr) (_, _ *expr.Expr, err error) {
	t, ok := gpu.CommonType(x.Type(), y.Type())
	switch {
	case ok:
	case x.Annotation() == gpu.AllNull:
		return expr.Literal(gpu.Null(y.Type())), y, nil
	case y.Annotation() == gpu.AllNull:
		return x, expr.Literal(gpu.Null(x.Type())), nil
	default:
		return nil, nil, fmt.Errorf("cannot compare %q of type %v with %q of type %v; cast one of them", x, x.Type(), y,
			y.Type())
	}
	if x, err = expr.Cast(x, t, host.Fold); err == nil {
		y, err = expr.Cast(y, t, host.Fold)
	}
	return x, y, err
}

// columns returns the columns of a join among those of its left and then its right side.
// A column of USING appears once, in the place of the left one. ofRight takes the right
// one for it.
func (c *joinCondition) columns(nleft, nright int, ofRight bool) []int {
	var cols []int
	for col := range nleft + nright {
		if !slices.ContainsFunc(c.using, func(u [2]int) bool { return nleft+u[1] == col }) {
			cols = append(cols, col)
		}
	}
	if ofRight {
		for _, u := range c.using {
			cols[u[0]] = nleft + u[1]
		}
	}
	return cols
}

func (s *stepBinder) using(c *joinCondition, left, right Node, name, sub string) bool {
	l, okLeft := s.usingColumn(left, "the step's input", name, sub)
	r, okRight := s.usingColumn(right, fmt.Sprintf("%q", s.step.Join.With), name, sub)
	if !okLeft || !okRight {
		return false
	}
	c.left = append(c.left, expr.Column(scopeOf(left), l).At(s.origin(sub)))
	c.right = append(c.right, expr.Column(scopeOf(right), r).At(s.origin(sub)))
	c.nullSafe = append(c.nullSafe, false)
	c.using = append(c.using, [2]int{l, r})
	return true
}

// usingColumn finds a column on one side of a join.
func (s *stepBinder) usingColumn(in Node, side, name, sub string) (int, bool) {
	r := in.Rel()
	switch found := scopeOf(in).Named(name); len(found) {
	case 1:
		return found[0], true
	case 0:
		if u, ok := r.findUnreadable("", name); ok {
			s.faultf(sub, "%v", u)
		} else {
			s.faultf(sub, "%s has no column %q%s", side, name, job.DidYouMean(name, r.Schema.Names()))
		}
	default:
		s.faultf(sub, "%s has %d columns %q; say with on which of them is meant", side, len(found), name)
	}
	return -1, false
}

// add sorts the conjuncts of a condition over both sides. The first nleft columns are
// those of the left side. A conjunct of one side that may fail stays among those over both,
// which see only pairs with equal keys.
func (c *joinCondition) add(e *expr.Expr, nleft int) {
	toRight := func(col int) int { return col - nleft }
	for _, p := range expr.Conjuncts(e) {
		l, r := sides(p, nleft)
		a, b, nullSafe, equality := expr.Equality(p)
		v, constant := p.Constant()
		switch {
		case constant && v != gpu.BoolScalar(true):
			// No pair matches, such as with a column of nothing but nulls: nor do null keys.
			null := expr.Literal(gpu.Null(gpu.Of(gpu.Int32)))
			c.left, c.right, c.nullSafe = append(c.left, null), append(c.right, null), append(c.nullSafe, false)
		case l && !r && !p.MayFail():
			c.onLeft = append(c.onLeft, p)
		case r && !l && !p.MayFail():
			c.onRight = append(c.onRight, p.Remap(toRight))
		case equality && only(a, nleft, true) && only(b, nleft, false):
			c.left, c.right, c.nullSafe = append(c.left, a), append(c.right, b.Remap(toRight)),
				append(c.nullSafe, nullSafe)
		case equality && only(a, nleft, false) && only(b, nleft, true):
			c.left, c.right, c.nullSafe = append(c.left, b), append(c.right, a.Remap(toRight)),
				append(c.nullSafe, nullSafe)
		default:
			c.residual = append(c.residual, p)
		}
	}
}

// sides reports whether an expression uses columns below nleft, and columns from nleft
// on.
func sides(e *expr.Expr, nleft int) (left, right bool) {
	for _, c := range e.Columns() {
		left = left || c < nleft
		right = right || c >= nleft
	}
	return
}

// only reports whether an expression uses columns of one side and none of the other.
func only(e *expr.Expr, nleft int, left bool) bool {
	l, r := sides(e, nleft)
	return l == left && r != left
}

// build makes the join: keys as columns of equal type, and a residual of conditions over both
// sides. Conditions of a single side are below it. Those of a side whose rows stay without a
// match decide only which rows can match, so they are in the residual, before the others.
func (c *joinCondition) build(step string, left, right Node, spec JoinSpec) (Node, error) {
	nleft, nright := left.Rel().Schema.Len(), right.Rel().Schema.Len()
	l, r := left, right
	if keepsLeft(spec.Kind) {
		spec.Residual = append(spec.Residual, c.onLeft...)
	} else {
		l = newFilter(left.Rel().Step, left, c.onLeft)
	}
	if keepsRight(spec.Kind) {
		for _, p := range c.onRight {
			spec.Residual = append(spec.Residual, p.Remap(func(col int) int { return nleft + col }))
		}
	} else {
		r = newFilter(right.Rel().Step, right, c.onRight)
	}
	spec.Residual = append(spec.Residual, c.residual...)
	lk, rk := slices.Clone(c.left), slices.Clone(c.right)
	for i := range lk {
		var err error
		if lk[i], rk[i], err = sameType(lk[i], rk[i]); err != nil {
			return nil, err
		}
	}
	spec.NullSafe = slices.Clone(c.nullSafe)
	l, spec.LeftKeys = extend(l, lk)
	r, spec.RightKeys = extend(r, rk)
	wide := l.Rel().Schema.Len()
	for i, p := range spec.Residual {
		spec.Residual[i] = p.Remap(func(col int) int {
			if col >= nleft {
				col += wide - nleft
			}
			return col
		})
	}
	if len(lk) == 0 {
		l, r, spec = allPairs(l, r, spec)
	}
	n := newJoin(step, l, r, spec)
	var cols []int
	for i := range nleft {
		cols = append(cols, i)
	}
	wide = n.Left.Rel().Schema.Len()
	switch {
	case spec.Kind.Pairs():
		for i := range nright {
			cols = append(cols, wide+i)
		}
	case spec.Kind == join.Mark:
		cols = append(cols, wide)
	}
	if len(cols) < n.Schema.Len() {
		return pick(n, cols), nil
	}
	return n, nil
}

// allPairs gives a join without an equality a key that all rows have in common, so that it
// compares all pairs of rows by its residual.
func allPairs(l, r Node, spec JoinSpec) (Node, Node, JoinSpec) {
	wide := l.Rel().Schema.Len()
	spec.AllPairs, spec.NullSafe = true, []bool{false}
	l, spec.LeftKeys = extend(l, []*expr.Expr{expr.And()})
	r, spec.RightKeys = extend(r, []*expr.Expr{expr.And()})
	spec.Residual = slices.Clone(spec.Residual)
	for i, p := range spec.Residual {
		spec.Residual[i] = p.Remap(func(col int) int {
			if col >= wide {
				col++
			}
			return col
		})
	}
	return l, r, spec
}
