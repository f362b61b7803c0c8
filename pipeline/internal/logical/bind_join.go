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
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// joinKinds are the kinds of joins in the words of a job. A cross join is an inner join
// without a condition.
var joinKinds = map[string]join.Kind{"": join.Inner, "inner": join.Inner, "cross": join.Inner, "left": join.Left,
	"right": join.Right,
	"full":  join.Full, "semi": join.Semi, "anti": join.Anti, "mark": join.Mark}

// joinCondition is the condition of a join, split by what each part needs.
type joinCondition struct {
	left, right []*expr.Expr // key expressions over each side
	nullSafe    []bool
	onLeft      []*expr.Expr // conjuncts over a single side
	onRight     []*expr.Expr
	residual    []*expr.Expr // conjuncts over both sides
	using       [][2]int     // positions of a left and a right column that appear as one column
}

func (s *stepBinder) join(left *Relation) *Relation {
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
	if kind == join.Mark && slices.Contains(left.names(), mark) {
		s.faultf(".join.mark", "the step's input has a column %q already; give the mark another name with mark", mark)
		return nil
	}
	if j.As != "" && slices.ContainsFunc(left.columns,
		func(c column) bool { return c.tables != nil && strings.EqualFold(c.tables.First(), j.As) }) {
		s.faultf(".join.as", "the step's input has a table %q already; give %q another name", j.As, j.With)
		return nil
	}
	if j.As != "" {
		s.table(j.As)
		right = withTables(right, func(*expr.Tables) *expr.Tables { return expr.TablesOf(j.As) })
	}
	l, r := aliased(left, right, cmp.Or(j.As, j.With))
	var c joinCondition
	for i, name := range j.Using {
		if !s.using(&c, l, r, name, fmt.Sprintf(".join.using[%d]", i)) {
			return nil
		}
	}
	both := &Relation{node: rel.NewJoin(s.here(), l.node, r.node, rel.JoinSpec{Kind: join.Inner}),
		columns: slices.Concat(l.columns, r.columns), unreadable: slices.Concat(l.unreadable, r.unreadable)}
	for i, text := range j.On {
		sub := fmt.Sprintf(".join.on[%d]", i)
		e := s.condition(text, both, sub)
		if e == nil {
			return nil
		}
		c.add(e, l.node, r.node)
	}
	spec := rel.JoinSpec{Kind: kind, Algorithm: j.Algorithm}
	switch j.Build {
	case "left":
		spec.Build = rel.Build{Side: rel.LeftSide, Reason: rel.AskedFor}
	case "right":
		spec.Build = rel.Build{Side: rel.RightSide, Reason: rel.AskedFor}
	}
	spec.Fixed = j.Order == "as written" || j.Algorithm != "" || spec.Build.Side != rel.NoSide
	if kind == join.Mark {
		spec.Mark = s.md.Add(rel.Column{Field: gpu.Field{Name: mark, Type: gpu.Of(gpu.Bool)}})
	}
	n, err := c.build(s.here(), l.node, r.node, spec)
	if err != nil {
		s.faultf(".join", "%v", err)
		return nil
	}
	switch {
	case kind == join.Mark: // qualified as the left side was before
		out := left.over(n)
		out.columns = append(left.columns[:len(left.columns):len(left.columns)], column{id: spec.Mark})
		return out
	case !kind.Pairs():
		return left.over(n)
	}
	out := both.over(n)
	if len(c.using) > 0 {
		if out, err = c.merged(s.estimator, s.here(), out, len(l.columns), kind); err != nil {
			s.faultf(".join", "%v", err)
			return nil
		}
	}
	return out
}

// merged returns a join in which each pair of columns of USING is one column, at the position of
// the left one. Its value comes from the side whose rows are all kept; from the left side first if
// both are.
func (c *joinCondition) merged(e *Estimator, origin expr.Origin, in *Relation, nleft int,
	kind join.Kind) (*Relation, error) {
	columns := c.columns(nleft, len(in.columns)-nleft, kind == join.Right)
	out := in.over(in.node)
	out.columns = nil
	if kind != join.Full {
		for _, col := range columns {
			out.columns = append(out.columns, in.columns[col])
		}
		return out, nil
	}
	all := in.items(e)
	var items []item
	for _, col := range columns {
		x := all[col]
		for _, u := range c.using {
			if u[0] != col {
				continue
			}
			first, second, err := sameType(x.expr, all[nleft+u[1]].expr)
			if err != nil {
				return nil, err
			}
			x.expr = expr.Coalesce(first, second)
		}
		items = append(items, x)
	}
	out = project(origin, in.node, items)
	out.unreadable = in.unreadable
	return out, nil
}

// sameType casts two expressions to their common type, in which they are compared.
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

// columns returns the positions of the columns of a join among the columns of both sides. A pair of
// USING appears once, at the position of its left column. ofRight takes the right column of the
// pair.
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

func (s *stepBinder) using(c *joinCondition, left, right *Relation, name, sub string) bool {
	l, okLeft := s.usingColumn(left, "the step's input", name, sub)
	r, okRight := s.usingColumn(right, fmt.Sprintf("%q", s.step.Join.With), name, sub)
	if !okLeft || !okRight {
		return false
	}
	c.left = append(c.left, expr.Column(s.scope(left), l).At(s.origin(sub)))
	c.right = append(c.right, expr.Column(s.scope(right), r).At(s.origin(sub)))
	c.nullSafe = append(c.nullSafe, false)
	c.using = append(c.using, [2]int{l, r})
	return true
}

// usingColumn finds a column on one side of a join.
func (s *stepBinder) usingColumn(r *Relation, side, name, sub string) (int, bool) {
	switch found := s.scope(r).Named(name); len(found) {
	case 1:
		return found[0], true
	case 0:
		if u, ok := r.findUnreadable("", name); ok {
			s.faultf(sub, "%v", u)
		} else {
			s.faultf(sub, "%s has no column %q%s", side, name, job.DidYouMean(name, r.names()))
		}
	default:
		s.faultf(sub, "%s has %d columns %q; say with on which of them is meant", side, len(found), name)
	}
	return -1, false
}

// add assigns the conjuncts of a condition over both sides to the parts of c. A conjunct of one
// side that may fail becomes residual, where it only sees pairs with equal keys. So does one with columns of the rows
// around a subquery, which belong to no side.
func (c *joinCondition) add(e *expr.Expr, left, right rel.Node) {
	for _, p := range expr.Conjuncts(e) {
		outer := func(id rel.ID) bool { return !left.Rel().Has(id) && !right.Rel().Has(id) }
		if slices.ContainsFunc(p.Columns(), outer) {
			c.residual = append(c.residual, p)
			continue
		}
		l, r := sides(p, left)
		a, b, nullSafe, equality := expr.Equality(p)
		v, constant := p.Constant()
		switch {
		case constant && v != gpu.BoolScalar(true):
			// No pair matches, for example if a compared column has nothing but nulls. Null keys
			// match nothing.
			null := expr.Literal(gpu.Null(gpu.Of(gpu.Int32)))
			c.left, c.right, c.nullSafe = append(c.left, null), append(c.right, null), append(c.nullSafe, false)
		case l && !r && !p.MayFail():
			c.onLeft = append(c.onLeft, p)
		case r && !l && !p.MayFail():
			c.onRight = append(c.onRight, p)
		case equality && only(a, left, true) && only(b, left, false):
			c.left, c.right, c.nullSafe = append(c.left, a), append(c.right, b), append(c.nullSafe, nullSafe)
		case equality && only(a, left, false) && only(b, left, true):
			c.left, c.right, c.nullSafe = append(c.left, b), append(c.right, a), append(c.nullSafe, nullSafe)
		default:
			c.residual = append(c.residual, p)
		}
	}
}

// sides reports whether an expression uses columns of the left side of a join, and other columns.
func sides(e *expr.Expr, left rel.Node) (l, r bool) {
	for _, c := range e.Columns() {
		if left.Rel().Has(c) {
			l = true
		} else {
			r = true
		}
	}
	return l, r
}

// only reports whether an expression uses columns of one side and none of the other.
func only(e *expr.Expr, left rel.Node, ofLeft bool) bool {
	l, r := sides(e, left)
	return l == ofLeft && r != ofLeft
}

// build makes the join. Its keys are columns of equal type. Its residual has the conditions over
// both sides. Conditions over one side become filters below the join; but if all rows of this side
// are kept, its conditions only decide which rows match, so they come first in the residual.
func (c *joinCondition) build(origin expr.Origin, left, right rel.Node, spec rel.JoinSpec) (*rel.Join, error) {
	l, r := left, right
	if rel.KeepsLeft(spec.Kind) {
		spec.Residual = append(spec.Residual, c.onLeft...)
	} else {
		l = rel.NewFilter(left.Rel().Origin, left, c.onLeft)
	}
	if rel.KeepsRight(spec.Kind) {
		spec.Residual = append(spec.Residual, c.onRight...)
	} else {
		r = rel.NewFilter(right.Rel().Origin, right, c.onRight)
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
	if len(lk) == 0 { // a key that all rows have in common: all pairs of rows are compared, but by an ASOF join
		spec.AllPairs, spec.NullSafe = spec.AsOf == nil, []bool{false}
		lk, rk = []*expr.Expr{expr.And()}, []*expr.Expr{expr.And()}
	}
	l, spec.LeftKeys = rel.Extend(l, lk, nil)
	r, spec.RightKeys = rel.Extend(r, rk, nil)
	return rel.NewJoin(origin, l, r, spec), nil
}
