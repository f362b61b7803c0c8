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

var joinKinds = []string{"inner", "left", "right", "full", "semi", "anti", "cross"}

// joinCondition is the condition of a join, sorted by use.
type joinCondition struct {
	left, right []*expr.Expr // key expressions over each side
	nullSafe    []bool
	onLeft      []*expr.Expr // conjuncts over a single side
	onRight     []*expr.Expr
	residual    []*expr.Expr // conjuncts over both sides, left columns first
	using       [][2]int     // columns of the left and the right side that appear once
}

// exchanged returns the condition of the join with its sides exchanged. It has no
// residual.
func (c *joinCondition) exchanged() *joinCondition {
	return &joinCondition{left: c.right, right: c.left, nullSafe: c.nullSafe, onLeft: c.onRight, onRight: c.onLeft}
}

func (s *stepBinder) join(left Node) Node {
	j := s.step.Join
	right, _ := s.lookup(j.With, ".join.with")
	if right == nil {
		return nil
	}
	kind := cmp.Or(j.Kind, "inner")
	if !slices.Contains(joinKinds, kind) {
		s.faultf(".join.kind", "unknown kind of join %q; it must be one of %s", j.Kind, strings.Join(joinKinds, ", "))
		return nil
	}
	if j.As != "" && slices.ContainsFunc(left.Rel().tables, func(t []string) bool { return len(t) > 0 && strings.EqualFold(t[0], j.As) }) {
		s.faultf(".join.as", "the step's input has a table %q already; give %q another name", j.As, j.With)
		return nil
	}
	if j.As != "" {
		right = withTables(right, func([]string) []string { return []string{j.As} })
	}
	l, r := apart(left, right, cmp.Or(j.As, j.With))
	var c joinCondition
	if kind == "cross" {
		// One key, which all rows have in common.
		c = joinCondition{left: []*expr.Expr{expr.And()}, right: []*expr.Expr{expr.And()}, nullSafe: []bool{false}}
	}
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
		if len(e.Columns()) == 0 {
			s.faultf(sub, "the condition %q uses no column", text)
			return nil
		}
		c.add(e, l.Rel().Schema.Len())
	}
	if !s.applicable(&c, kind) {
		return nil
	}
	n, err := s.joined(&c, left, l, r, kind)
	if err != nil {
		s.faultf(".join", "%v", err)
		return nil
	}
	return n
}

// joined makes a join of a kind. Its two sides are l and r; a semi or anti join has the
// columns of left, which are those of l in the tables that they had before.
func (s *stepBinder) joined(c *joinCondition, left, l, r Node, kind string) (Node, error) {
	nleft, nright := l.Rel().Schema.Len(), r.Rel().Schema.Len()
	switch kind {
	case "semi":
		return c.build(s.name, left, r, JoinSpec{Kind: join.Semi})
	case "anti":
		return c.build(s.name, left, r, JoinSpec{Kind: join.Anti})
	case "right":
		n, err := c.exchanged().build(s.name, r, l, JoinSpec{Kind: join.Left, Written: kind})
		if err != nil {
			return nil, err
		}
		cols := c.columns(nleft, nright, true)
		for i, col := range cols {
			if cols[i] = col + nright; col >= nleft {
				cols[i] = col - nleft
			}
		}
		return pick(n, cols), nil
	case "full":
		return c.full(s.name, l, r)
	}
	spec := JoinSpec{Kind: join.Inner, build: s.step.Join.Build}
	switch kind {
	case "left":
		spec.Kind = join.Left
	case "cross":
		spec.Written = kind
	}
	n, err := c.build(s.name, l, r, spec)
	if err != nil || len(c.using) == 0 {
		return n, err
	}
	return pick(n, c.columns(nleft, nright, false)), nil
}

// full makes a full join of two parts: a left join, and the rows of the right side without
// a match, from an anti join. Both parts read both sides.
func (c *joinCondition) full(step string, l, r Node) (Node, error) {
	for _, side := range []struct {
		Node
		conditions []*expr.Expr
	}{{l, append(slices.Clone(c.left), c.onLeft...)}, {r, append(slices.Clone(c.right), c.onRight...)}} {
		again := repeat(side.Node)
		if again.why == "" && !again.have(expr.And(side.conditions...).Columns()) {
			again.why = byDigits
		}
		if again.why != "" {
			return nil, fmt.Errorf("a full join reads its sides twice, and %q may have other rows each time: %s", side.Rel().Step, again.why)
		}
	}
	nleft, nright := l.Rel().Schema.Len(), r.Rel().Schema.Len()
	matched, err := c.build(step, l, r, JoinSpec{Kind: join.Left, Written: "full"})
	if err != nil {
		return nil, err
	}
	matched = pick(matched, c.columns(nleft, nright, false))
	rest, err := c.exchanged().build(step, r, l, JoinSpec{Kind: join.Anti, Written: "full"})
	if err != nil {
		return nil, err
	}
	m, scope := matched.Rel(), scopeOf(rest)
	var exprs []*expr.Expr
	for _, col := range c.columns(nleft, nright, true) {
		if col < nleft {
			exprs = append(exprs, expr.Null(l.Rel().Schema.Fields[col]))
		} else {
			exprs = append(exprs, expr.Column(scope, col-nleft))
		}
	}
	parts := []Node{matched, newProject(step, rest, exprs, m.Schema.Names(), m.tables)}
	types := make([]gpu.Type, len(exprs))
	for i, e := range exprs {
		types[i], _ = expr.CommonType(m.Schema.Fields[i].Type, e.Type()) // columns of USING have one, others are equal
	}
	for i := range parts {
		if parts[i], err = castTo(parts[i], types); err != nil {
			return nil, err
		}
	}
	return newUnion(step, parts), nil
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

// applicable refuses conditions that this kind of join cannot apply.
func (s *stepBinder) applicable(c *joinCondition, kind string) bool {
	switch {
	case len(c.left) == 0:
		s.faultf(".join.on", "the join has no equality between a column of its input and one of %q; write one as in \"a = b\", or pair all rows with kind: cross and filter the pairs", s.step.Join.With)
	case kind != "inner" && len(c.residual) > 0:
		s.faultf(".join.on", "a %s join can compare the two sides with = and IS NOT DISTINCT FROM only, not with %q", kind, c.residual[0])
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

// build makes the join: keys as columns of equal type, the residual above it, conjuncts of
// a single side below it. Those of a side whose rows stay without a match decide only
// which rows can match, so they are keys that must be true.
func (c *joinCondition) build(step string, left, right Node, spec JoinSpec) (Node, error) {
	nleft, nright := left.Rel().Schema.Len(), right.Rel().Schema.Len()
	l, r := left, newFilter(right.Rel().Step, right, c.onRight)
	lk, rk, nullSafe := slices.Clone(c.left), slices.Clone(c.right), slices.Clone(c.nullSafe)
	if spec.Kind == join.Left || spec.Kind == join.Anti {
		for _, p := range c.onLeft {
			lk, rk, nullSafe = append(lk, p), append(rk, expr.And()), append(nullSafe, false)
		}
	} else {
		l = newFilter(left.Rel().Step, left, c.onLeft)
	}
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
	spec.NullSafe = nullSafe
	l, spec.LeftKeys = extend(l, lk)
	r, spec.RightKeys = extend(r, rk)
	var n Node = newJoin(step, l, r, spec)
	wide := l.Rel().Schema.Len()
	var cols []int
	for i := range nleft {
		cols = append(cols, i)
	}
	if spec.Kind == join.Inner || spec.Kind == join.Left {
		for i := range nright {
			cols = append(cols, wide+i)
		}
	}
	if len(cols) < n.Rel().Schema.Len() {
		n = pick(n, cols)
	}
	return newFilter(step, n, c.residual), nil
}
