package logical

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/job"
)

var joinKinds = map[string]gpu.JoinKind{"": gpu.Inner, "inner": gpu.Inner, "left": gpu.Left, "semi": gpu.Semi, "anti": gpu.Anti}

// joinCondition is the condition of a join, sorted by use.
type joinCondition struct {
	left, right []*expr.Expr // key expressions over each side
	nullSafe    []bool
	onLeft      []*expr.Expr // conjuncts over a single side
	onRight     []*expr.Expr
	residual    []*expr.Expr // conjuncts over both sides, left columns first
}

func (s *stepBinder) join(left Node) Node {
	j := s.step.Join
	right, _ := s.lookup(j.With, ".join.with")
	if right == nil {
		return nil
	}
	kind, ok := joinKinds[j.Kind]
	if !ok {
		s.faultf(".join.kind", "unknown kind of join %q; it must be inner, left, semi or anti", j.Kind)
		return nil
	}
	var c joinCondition
	for i, name := range j.Using {
		if !s.using(&c, left, right, name, fmt.Sprintf(".join.using[%d]", i)) {
			return nil
		}
	}
	both := newJoin(s.name, left, right, JoinSpec{Kind: gpu.Inner, build: "right"})
	for i, text := range j.On {
		sub := fmt.Sprintf(".join.on[%d]", i)
		e := s.condition(text, both, sub)
		if e == nil {
			return nil
		}
		if len(e.Columns()) == 0 {
			s.faultf(sub, "the condition %q uses no column", text)
			return nil
		}
		c.add(e, left.Rel().Schema.Len())
	}
	if !s.applicable(&c, kind) {
		return nil
	}
	n, err := c.build(s.name, left, right, kind, j.Build)
	if err != nil {
		s.faultf(".join", "%v", err)
		return nil
	}
	if len(j.Using) > 0 && (kind == gpu.Inner || kind == gpu.Left) {
		return dropUsing(n, left, right, j.Using)
	}
	return n
}

// applicable refuses conditions that this kind of join cannot apply.
func (s *stepBinder) applicable(c *joinCondition, kind gpu.JoinKind) bool {
	switch {
	case len(c.left) == 0:
		s.faultf(".join.on", "the join has no equality between a column of its input and one of %q; write one as in \"a = b\"", s.step.Join.With)
	case kind != gpu.Inner && len(c.residual) > 0:
		s.faultf(".join.on", "a %v join can compare the two sides with = and IS NOT DISTINCT FROM only, not with %q", kind, c.residual[0])
	case (kind == gpu.Left || kind == gpu.Anti) && len(c.onLeft) > 0:
		s.faultf(".join.on", "a %v join cannot have a condition on its input alone (%q); put it into a filter step", kind, c.onLeft[0])
	default:
		return true
	}
	return false
}

func (s *stepBinder) using(c *joinCondition, left, right Node, name, sub string) bool {
	l, okLeft := s.usingColumn(left, "the step's input", name, sub)
	r, okRight := s.usingColumn(right, fmt.Sprintf("%q", s.step.Join.With), name, sub)
	if !okLeft || !okRight {
		return false
	}
	c.left = append(c.left, expr.Column(scopeOf(left), l))
	c.right = append(c.right, expr.Column(scopeOf(right), r))
	c.nullSafe = append(c.nullSafe, false)
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
// those of the left side.
func (c *joinCondition) add(e *expr.Expr, nleft int) {
	toRight := func(col int) int { return col - nleft }
	for _, p := range expr.Conjuncts(e) {
		l, r := sides(p, nleft)
		a, b, nullSafe, equality := expr.Equality(p)
		switch {
		case l && !r:
			c.onLeft = append(c.onLeft, p)
		case r && !l:
			c.onRight = append(c.onRight, p.Remap(toRight))
		case equality && only(a, nleft, true) && only(b, nleft, false):
			c.left, c.right, c.nullSafe = append(c.left, a), append(c.right, b.Remap(toRight)), append(c.nullSafe, nullSafe)
		case equality && only(a, nleft, false) && only(b, nleft, true):
			c.left, c.right, c.nullSafe = append(c.left, b), append(c.right, a.Remap(toRight)), append(c.nullSafe, nullSafe)
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

// build makes the join: conjuncts of a single side below it, keys as columns of equal
// type, the residual above it.
func (c *joinCondition) build(step string, left, right Node, kind gpu.JoinKind, build string) (Node, error) {
	nleft, nright := left.Rel().Schema.Len(), right.Rel().Schema.Len()
	l := newFilter(left.Rel().Step, left, c.onLeft)
	r := newFilter(right.Rel().Step, right, c.onRight)
	lk, rk := slices.Clone(c.left), slices.Clone(c.right)
	for i := range lk {
		t, ok := expr.CommonType(lk[i].Type(), rk[i].Type())
		if !ok {
			return nil, fmt.Errorf("cannot compare %q of type %v with %q of type %v; cast one of them", lk[i], lk[i].Type(), rk[i], rk[i].Type())
		}
		var err error
		if lk[i], err = expr.Cast(lk[i], t, host.Fold); err != nil {
			return nil, err
		}
		if rk[i], err = expr.Cast(rk[i], t, host.Fold); err != nil {
			return nil, err
		}
	}
	spec := JoinSpec{Kind: kind, NullSafe: c.nullSafe, build: build}
	l, spec.LeftKeys = extend(l, lk)
	r, spec.RightKeys = extend(r, rk)
	var n Node = newJoin(step, l, r, spec)
	wide := l.Rel().Schema.Len()
	var cols []int
	for i := range nleft {
		cols = append(cols, i)
	}
	if kind == gpu.Inner || kind == gpu.Left {
		for i := range nright {
			cols = append(cols, wide+i)
		}
	}
	if len(cols) < n.Rel().Schema.Len() {
		n = pick(n, cols)
	}
	return newFilter(step, n, c.residual), nil
}

// dropUsing drops the right side's copies of the columns of USING.
func dropUsing(n, left, right Node, using []string) Node {
	nleft := left.Rel().Schema.Len()
	drop := map[int]bool{}
	for _, u := range using {
		for _, c := range scopeOf(right).Named(u) {
			drop[nleft+c] = true
		}
	}
	var cols []int
	for i := range n.Rel().Schema.Len() {
		if !drop[i] {
			cols = append(cols, i)
		}
	}
	return pick(n, cols)
}
