package logical

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// unnest replaces dependent joins (Neumann and Kemper, Unnesting Arbitrary Queries, BTW 2015). No subquery is computed
// once for each row around it.
//
// A subquery whose conditions on the rows around it can move up to the dependent join becomes the right side of a join
// by these conditions. An aggregate on the way gets the compared columns as keys. For any other subquery the domain is
// computed: the distinct values of the outer columns that it uses. The subquery is then computed for all rows of the
// domain at once, and joined with the rows around it by the values.
func unnest(_ *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	n = rel.WithInputs(n, again)
	if a, ok := n.(*rel.Apply); ok {
		return independent(a)
	}
	return n
}

// independent returns a node with the rows of a dependent join whose sides have no dependent joins.
func independent(a *rel.Apply) rel.Node {
	u := &unnesting{Apply: a, is: map[rel.ID]bool{}}
	used := usedBy(a.Right)
	for _, c := range a.Left.Rel().Columns {
		if used[c] {
			u.outer, u.is[c] = append(u.outer, c), true
		}
	}
	switch r := a.Right.(type) {
	case *rel.Project:
		if len(u.outer) == 0 && !isOpen(r) {
			break
		}
		if n := u.overProject(r); n != nil {
			return n
		}
	case *rel.Group:
		if len(u.outer) > 0 && oneRow(r) && len(a.Conditions) == 0 && (a.Kind == join.Inner || a.Kind == join.Left) {
			return u.aggregated(r)
		}
	}
	right := a.Right
	if len(u.outer) == 0 {
		if len(a.Conditions) == 0 && !a.Kind.Pairs() {
			right = rel.NewLimit(a.Origin, right, 0, 1) // whether there is a row decides
		}
		return u.joined(a.Kind, a.Left, right, pulled{}, a.Conditions, a.Mark)
	}
	if n, p, ok := u.pull(right); ok {
		return u.joined(a.Kind, a.Left, n, p, a.Conditions, a.Mark)
	}
	n, p := u.byDomain(right)
	return u.joined(a.Kind, u.Left, n, p, a.Conditions, a.Mark)
}

// unnesting replaces one dependent join.
type unnesting struct {
	*rel.Apply
	outer  []rel.ID // the columns of the left side that the right side uses
	is     map[rel.ID]bool
	domain rel.Node // nil before it is needed
	held   map[*rel.Materialized]heldForDomain
	// within is the recursion whose step is computed for all rows of the domain, nil outside of a step. carries is the
	// recursion that it becomes, with the outer columns besides its own.
	within  *rel.Recursive
	carries *rel.Loop
}

// heldForDomain is a materialized node that is computed for all rows of the domain. It is computed once, so that those
// who read it agree on the numbers of its rows.
type heldForDomain struct {
	node rel.Node
	ids  []rel.ID
}

// usedBy returns the columns that the expressions of a node and of those below it use.
func usedBy(n rel.Node) map[rel.ID]bool {
	used := map[rel.ID]bool{}
	rel.Visit(n, func(n rel.Node) {
		for _, e := range expressionsOf(n) {
			for _, c := range e.Columns() {
				used[c] = true
			}
		}
	})
	return used
}

// isOpen reports whether a node uses columns that no node below it makes: those of a query around several subqueries. A
// value that may fail is then computed above the dependent join, for rows that need it only.
func isOpen(n rel.Node) bool {
	used := usedBy(n)
	rel.Visit(n, func(n rel.Node) {
		for _, c := range n.Rel().Columns {
			delete(used, c)
		}
	})
	return len(used) > 0
}

// expressionsOf returns the expressions of a node. Everything else in a node names columns of its inputs.
func expressionsOf(n rel.Node) []*expr.Expr {
	switch n := n.(type) {
	case *rel.Filter:
		return n.Conjuncts
	case *rel.Project:
		return n.Exprs
	case *rel.Join:
		return n.Residual
	case *rel.Apply:
		return n.Conditions
	}
	return nil
}

// correlated reports whether an expression uses outer columns.
func (u *unnesting) correlated(e *expr.Expr) bool {
	return slices.ContainsFunc(e.Columns(), func(c rel.ID) bool { return u.is[c] })
}

// depends reports whether a node uses outer columns, or reads the working table that carries them.
func (u *unnesting) depends(n rel.Node) bool {
	if u.within != nil && rel.Reads(n, u.within.Loop) {
		return true
	}
	used := usedBy(n)
	return slices.ContainsFunc(u.outer, func(c rel.ID) bool { return used[c] })
}

// pulled are conditions that moved up out of a node.
type pulled struct {
	// Each value of outer, over the left side of the dependent join, equals the column inner of the node.
	outer    []*expr.Expr
	inner    []rel.ID
	nullSafe bool
	// others are conditions over both.
	others []*expr.Expr
}

func (p pulled) with(q pulled) pulled {
	return pulled{slices.Concat(p.outer, q.outer), slices.Concat(p.inner, q.inner), false, slices.Concat(p.others,
		q.others)}
}

// columns returns the columns of the node that the conditions need.
func (p pulled) columns(u *unnesting, n rel.Node) []rel.ID {
	ids := slices.Clone(p.inner)
	for _, e := range p.others {
		for _, c := range e.Columns() {
			if !u.is[c] && n.Rel().Has(c) {
				ids = append(ids, c)
			}
		}
	}
	return distinctIDs(ids)
}

// joined joins a left side with the node out of which conditions moved.
func (u *unnesting) joined(kind join.Kind, left, right rel.Node, p pulled, conditions []*expr.Expr,
	mark rel.ID) rel.Node {
	c := joinCondition{}
	var aware []bool
	for i, x := range p.outer {
		c.left, c.right = append(c.left, x), append(c.right, right.Rel().Expr(p.inner[i]))
		c.nullSafe, aware = append(c.nullSafe, p.nullSafe), append(aware, false)
	}
	for _, e := range p.others {
		before := len(c.left)
		c.add(e, left, right)
		aware = append(aware, slices.Repeat([]bool{false}, len(c.left)-before)...)
	}
	for _, e := range conditions {
		before := len(c.left)
		if kind == join.Mark {
			c.compare(e, right)
		} else {
			c.add(e, left, right)
		}
		nullable := kind == join.Mark && e.Nullable()
		aware = append(aware, slices.Repeat([]bool{nullable}, len(c.left)-before)...)
	}
	spec := rel.JoinSpec{Kind: kind, Mark: mark}
	if slices.Contains(aware, true) {
		spec.NullAware = aware
	}
	n, err := c.build(u.Origin, left, right, spec)
	if err != nil {
		panic(fmt.Sprintf("logical: compared values have no common type: %v", err))
	}
	return n
}

// compare adds a condition of IN as keys of a mark join, which can be unknown.
func (c *joinCondition) compare(e *expr.Expr, right rel.Node) {
	x, y, ok := comparedSides(e, right)
	if !ok {
		panic("logical: a comparison with a subquery mixes its columns with those of the rows around it")
	}
	c.left, c.right, c.nullSafe = append(c.left, x), append(c.right, y), append(c.nullSafe, false)
}

// comparedSides returns the values that a condition of IN compares: one without columns of the right side, and one
// with nothing else. It is false if a value has both.
func comparedSides(e *expr.Expr, right rel.Node) (x, y *expr.Expr, ok bool) {
	inside := func(e *expr.Expr) (some, all bool) {
		all = true
		for _, id := range e.Columns() {
			some, all = some || right.Rel().Has(id), all && right.Rel().Has(id)
		}
		return some, all
	}
	if a, b, _, equality := expr.Equality(e); equality {
		someA, allA := inside(a)
		someB, allB := inside(b)
		switch {
		case !someA && someB && allB:
			return a, b, true
		case !someB && someA && allA:
			return b, a, true
		case someA || someB:
			return nil, nil, false
		}
	}
	some, all := inside(e) // it has been simplified, or compares values around the subquery
	switch {
	case !some:
		return e, expr.And(), true
	case all:
		return expr.And(), e, true
	}
	return nil, nil, false
}

// pull moves the conditions that use outer columns up out of a node. It is false if the node uses outer columns in
// another way.
func (u *unnesting) pull(n rel.Node) (rel.Node, pulled, bool) {
	if !u.depends(n) {
		return n, pulled{}, true
	}
	var in rel.Node
	var p pulled
	ok := false
	if ins := rel.Inputs(n); len(ins) == 1 {
		if in, p, ok = u.pull(ins[0]); !ok {
			return nil, p, false
		}
	}
	equalities := len(p.others) == 0
	origin := n.Rel().Origin
	switch n := n.(type) {
	case *rel.Filter:
		return u.pullConditions(origin, n.Conjuncts, in, p)
	case *rel.Project:
		if slices.ContainsFunc(n.Exprs, u.correlated) {
			return nil, p, false
		}
		columns, exprs := slices.Clone(n.Columns), slices.Clone(n.Exprs)
		for _, c := range p.columns(u, in) {
			if !slices.Contains(columns, c) {
				columns, exprs = append(columns, c), append(exprs, in.Rel().Expr(c))
			}
		}
		return rel.NewProject(origin, in, columns, exprs), p, true
	case *rel.Join:
		return u.pullJoin(n)
	case *rel.Group:
		if !equalities || len(n.Always) > 0 || oneRow(n) {
			return nil, p, false
		}
		keys := distinctIDs(slices.Concat(n.Keys, p.inner))
		return rel.NewGroup(origin, in, keys, n.Aggregates, nil, n.Algorithm), p, true
	case *rel.Window:
		if !equalities {
			return nil, p, false
		}
		return rel.NewWindow(origin, in, distinctIDs(slices.Concat(p.inner, n.Partition)), n.Order, n.Functions,
				n.Out), p,
			true
	case *rel.Sort:
		if n.Limit < 0 && n.Offset == 0 {
			return in, p, true
		}
		return firstRows(n, in, p.inner, n.Keys, n.Offset, n.Limit), p, equalities
	case *rel.Limit:
		return firstRows(n, in, p.inner, orderOf(n.In), n.Offset, n.Count), p, equalities
	}
	return nil, p, false
}

// pullConditions keeps the rows on which conditions without outer columns are true, and moves the others up.
func (u *unnesting) pullConditions(origin expr.Origin, conditions []*expr.Expr, in rel.Node, p pulled) (rel.Node,
	pulled, bool) {
	var own []*expr.Expr
	for _, e := range conditions {
		if !u.correlated(e) {
			own = append(own, e)
		}
	}
	out := rel.NewFilter(origin, in, own)
	for _, e := range conditions {
		if !u.correlated(e) {
			continue
		}
		x, y, nullSafe, ok := expr.Equality(e)
		if ok && !nullSafe {
			if u.inside(x) && u.around(y) {
				x, y = y, x
			}
			if u.around(x) && u.inside(y) {
				if x, y, err := sameType(x, y); err == nil {
					wide, ids := rel.Extend(out, []*expr.Expr{y}, nil)
					out = wide
					p.outer, p.inner = append(p.outer, x), append(p.inner, ids[0])
					continue
				}
			}
		}
		p.others = append(p.others, e)
	}
	return out, p, true
}

// around reports whether an expression uses outer columns only, and inside whether it uses none.
func (u *unnesting) around(e *expr.Expr) bool {
	columns := e.Columns()
	return len(columns) > 0 && !slices.ContainsFunc(columns, func(c rel.ID) bool { return !u.is[c] })
}

func (u *unnesting) inside(e *expr.Expr) bool { return !u.correlated(e) }

func (u *unnesting) pullJoin(n *rel.Join) (rel.Node, pulled, bool) {
	left, p, ok := u.pull(n.Left)
	if !ok {
		return nil, p, false
	}
	right, q, ok := u.pull(n.Right)
	if !ok {
		return nil, p, false
	}
	spec := n.JoinSpec
	if n.Kind != join.Inner || n.AsOf != nil {
		if u.depends(n.Right) || slices.ContainsFunc(n.Residual, u.correlated) || rel.KeepsRight(n.Kind) {
			return nil, p, false
		}
		return rel.NewJoin(n.Origin, left, right, spec), p, true
	}
	right, q = apartFrom(left, right, q)
	p = p.with(q)
	spec.Residual = nil
	var correlated []*expr.Expr
	for _, e := range n.Residual {
		if u.correlated(e) {
			correlated = append(correlated, e)
		} else {
			spec.Residual = append(spec.Residual, e)
		}
	}
	out := rel.NewJoin(n.Origin, left, right, spec)
	return u.pullConditions(n.Origin, correlated, out, p)
}

// apartFrom gives columns of the right side of a join that the left side also has other IDs. Both sides may have pulled
// the same column out of a query that both read.
func apartFrom(left, right rel.Node, q pulled) (rel.Node, pulled) {
	r := right.Rel()
	columns := slices.Clone(r.Columns)
	by := map[rel.ID]rel.ID{}
	for i, c := range columns {
		if left.Rel().Has(c) {
			column := r.Metadata.Column(c)
			column.Field = r.Field(c)
			columns[i] = r.Metadata.Add(column)
			by[c] = columns[i]
		}
	}
	if len(by) == 0 {
		return right, q
	}
	id := func(c rel.ID) rel.ID {
		if to, ok := by[c]; ok {
			return to
		}
		return c
	}
	out := q.with(pulled{})
	for i, c := range q.inner {
		out.inner[i] = id(c)
	}
	for i, e := range q.others {
		out.others[i] = e.Remap(id)
	}
	return rel.NewProject(r.Origin, right, columns, r.Exprs(r.Columns)), out
}

// orderOf returns the keys of a node that only sorts; nil for other nodes.
func orderOf(n rel.Node) []rel.SortKey {
	if s, ok := n.(*rel.Sort); ok && s.Limit < 0 && s.Offset == 0 {
		return s.Keys
	}
	return nil
}

// firstRows keeps the rows of LIMIT and OFFSET of each partition.
func firstRows(n, in rel.Node, partition []rel.ID, order []rel.SortKey, offset, count int64) rel.Node {
	origin := n.Rel().Origin
	in, number := ranked(origin, in, distinctIDs(partition), order)
	keep := []*expr.Expr{computeOf(fmt.Sprintf("%%s > %d", offset), in, number)}
	if count >= 0 && count < 1<<61 {
		keep = append(keep, computeOf(fmt.Sprintf("%%s <= %d", offset+count), in, number))
	}
	return rel.NewFilter(origin, in, keep)
}

// overProject computes a projection of the right side above the join. It is nil where that is not possible, as for an
// outer join that can fill up the columns with nulls.
func (u *unnesting) overProject(r *rel.Project) rel.Node {
	if u.Kind.Pairs() && u.Kind != join.Inner && (!oneRow(r) || len(u.Conditions) > 0) {
		return nil
	}
	of := func(id rel.ID) *expr.Expr {
		if r.Has(id) {
			return r.Expr(id)
		}
		return nil
	}
	conditions := make([]*expr.Expr, len(u.Conditions))
	for i, e := range u.Conditions {
		conditions[i] = e.Substitute(of)
		if _, _, ok := comparedSides(conditions[i], r.In); !ok && u.Kind == join.Mark {
			return nil
		}
	}
	below := independent(rel.NewApply(u.Origin, u.Kind, u.Left, r.In, u.outer, conditions, u.Mark))
	if !u.Kind.Pairs() {
		return below
	}
	columns, exprs := slices.Clone(u.Left.Rel().Columns), u.Left.Rel().Exprs(u.Left.Rel().Columns)
	return rel.NewProject(u.Origin, below, append(columns, r.Columns...), append(exprs, r.Exprs...))
}

// aggregated joins aggregates of all rows of a subquery: one row for each row of the left side.
func (u *unnesting) aggregated(g *rel.Group) rel.Node {
	in, p, ok := u.pull(g.In)
	if !ok || len(p.others) > 0 {
		in, p = u.byDomain(g.In)
	}
	return u.filledGroup(g, u.Left, in, p)
}

// filledGroup joins rows with the aggregates of their groups. Counts are 0 for rows without a group.
func (u *unnesting) filledGroup(g *rel.Group, left, in rel.Node, p pulled) rel.Node {
	aggs := slices.Clone(g.Aggregates)
	columns, exprs := slices.Clone(left.Rel().Columns), left.Rel().Exprs(left.Rel().Columns)
	for i, a := range aggs {
		if g.Field(a.Out).Nullable {
			continue
		}
		aggs[i].Out = u.Metadata.Add(rel.Column{Field: g.Field(a.Out)})
	}
	keys := distinctIDs(p.inner)
	grouped := rel.NewGroup(g.Origin, in, keys, aggs, nil, g.Algorithm)
	n := u.joined(join.Left, left, grouped, p, nil, rel.None)
	for i, a := range aggs {
		e := n.Rel().Expr(a.Out)
		if a.Out != g.Aggregates[i].Out {
			e = computeOf("coalesce(%s, 0)", n, a.Out)
		}
		columns, exprs = append(columns, g.Aggregates[i].Out), append(exprs, e)
	}
	return rel.NewProject(u.Origin, n, columns, exprs)
}

// byDomain returns a node for all rows of the domain, and its columns that equal the outer columns.
func (u *unnesting) byDomain(n rel.Node) (rel.Node, pulled) {
	n, ids := u.forDomain(n)
	return n, pulled{outer: u.Left.Rel().Exprs(u.outer), inner: ids, nullSafe: true}
}

// readDomain returns the domain for one more reader.
func (u *unnesting) readDomain() (rel.Node, []rel.ID) {
	if u.within != nil { // the rows of the domain whose recursion has not ended
		w, ids := u.carried(nil)
		return rel.NewGroup(u.Origin, w, ids, nil, nil, ""), ids
	}
	if u.domain == nil {
		if worthHolding(u.Left) {
			if _, held := u.Left.(*rel.Materialized); !held {
				a := *u.Apply
				a.Left = rel.NewMaterialized(u.Left, &rel.Share{Step: u.Origin.Step})
				u.Apply = &a
			}
		}
		u.domain = rel.NewGroup(u.Origin, u.Left, u.outer, nil, nil, "")
	}
	n, ids := rel.Renamed(u.domain, u.outer, "")
	return n, ids
}

// with replaces outer columns in expressions by columns of the domain.
func (u *unnesting) with(in rel.Node, ids []rel.ID, exprs []*expr.Expr) []*expr.Expr {
	out := make([]*expr.Expr, len(exprs))
	for i, e := range exprs {
		out[i] = e.Substitute(func(id rel.ID) *expr.Expr {
			if at := slices.Index(u.outer, id); at >= 0 {
				return in.Rel().Expr(ids[at])
			}
			return nil
		})
	}
	return out
}

// forDomain is byDomain; its columns ids are in the order of the outer columns.
func (u *unnesting) forDomain(n rel.Node) (_ rel.Node, ids []rel.ID) {
	origin := n.Rel().Origin
	if !u.depends(n) {
		d, ids := u.readDomain()
		return rel.NewJoin(origin, d, n, allPairs(&d, &n)), ids
	}
	switch n := n.(type) {
	case *rel.Filter:
		in, ids := u.forDomain(n.In)
		return rel.NewFilter(origin, in, u.with(in, ids, n.Conjuncts)), ids
	case *rel.Project:
		in, ids := u.forDomain(n.In)
		columns, exprs := slices.Clone(n.Columns), u.with(in, ids, n.Exprs)
		for _, id := range ids {
			columns, exprs = append(columns, id), append(exprs, in.Rel().Expr(id))
		}
		return rel.NewProject(origin, in, columns, exprs), ids
	case *rel.Join:
		return u.joinForDomain(n)
	case *rel.Group:
		in, ids := u.forDomain(n.In)
		if len(n.Always) > 0 {
			return u.alwaysGrouped(n, in, ids)
		}
		if len(n.Keys) > 0 {
			return rel.NewGroup(origin, in, slices.Concat(n.Keys, ids), n.Aggregates, nil, n.Algorithm), ids
		}
		d, outer := u.readDomain()
		p := pulled{outer: d.Rel().Exprs(outer), inner: ids, nullSafe: true}
		return u.filledGroup(n, d, in, p), outer
	case *rel.Window:
		in, ids := u.forDomain(n.In)
		return rel.NewWindow(origin, in, slices.Concat(ids, n.Partition), n.Order, n.Functions, n.Out), ids
	case *rel.Sort:
		in, ids := u.forDomain(n.In)
		if n.Limit < 0 && n.Offset == 0 {
			return in, ids
		}
		return firstRows(n, in, ids, n.Keys, n.Offset, n.Limit), ids
	case *rel.Limit:
		in, ids := u.forDomain(n.In)
		return firstRows(n, in, ids, orderOf(n.In), n.Offset, n.Count), ids
	case *rel.Union:
		var ins []rel.Node
		var from [][]rel.ID
		for i, in := range n.Ins {
			in, more := u.forDomain(in)
			ins, from = append(ins, in), append(from, slices.Concat(n.From[i], more))
		}
		ids := u.newColumns()
		return rel.NewUnion(origin, ins, from, slices.Concat(n.Columns, ids)), ids
	case *rel.SetOperation:
		left, l := u.forDomain(n.Left)
		right, r := u.forDomain(n.Right)
		ids := u.newColumns()
		return rel.NewSetOperation(origin, n.Op, n.All, left, right, slices.Concat(n.LeftColumns, l),
			slices.Concat(n.RightColumns, r), slices.Concat(n.Columns, ids)), ids
	case *rel.Unnest:
		in, ids := u.forDomain(n.In)
		return rel.NewUnnest(origin, in, n.Lists, n.Elements), ids
	case *rel.Expand:
		in, ids := u.forDomain(n.In)
		return rel.NewExpand(origin, in, n.Copies, n.Variants, n.Number), ids
	case *rel.Materialized:
		return u.heldForDomain(n)
	case *rel.Recursive:
		return u.recursiveForDomain(n)
	case *rel.Working: // of the recursion itself
		return u.carried(n.Columns)
	}
	panic(fmt.Sprintf("logical: a node of type %T cannot depend on the rows around it", n))
}

func (u *unnesting) heldForDomain(n *rel.Materialized) (rel.Node, []rel.ID) {
	if h, ok := u.held[n]; ok {
		ids := u.newColumns()
		exprs := append(h.node.Rel().Exprs(n.Columns), h.node.Rel().Exprs(h.ids)...)
		return rel.NewProject(n.Origin, h.node, slices.Concat(n.Columns, ids), exprs), ids
	}
	in, ids := u.forDomain(n.In)
	if u.held == nil {
		u.held = map[*rel.Materialized]heldForDomain{}
	}
	u.held[n] = heldForDomain{rel.NewMaterialized(in, n.Share), ids}
	return u.held[n].node, ids
}

// alwaysGrouped groups the rows of the domain. Each value of the domain also has the groups that are always there, such
// as the one of all rows in grouping sets: a full join adds those without rows.
func (u *unnesting) alwaysGrouped(g *rel.Group, in rel.Node, ids []rel.ID) (rel.Node, []rel.ID) {
	var left rel.Node
	left, outer := u.readDomain()
	var keys []rel.ID
	for _, k := range g.Keys {
		column := u.Metadata.Column(k)
		column.Field = g.Field(k)
		keys = append(keys, u.Metadata.Add(column))
	}
	always := rel.Node(rel.NewValues(u.Metadata, g.Origin, keys, g.Always))
	left = rel.NewJoin(g.Origin, left, always, allPairs(&left, &always))
	grouped := rel.NewGroup(g.Origin, in, slices.Concat(g.Keys, ids), g.Aggregates, nil, g.Algorithm)
	right, made := rel.Renamed(grouped, grouped.Columns, "")
	n := len(g.Keys) + len(ids)
	spec := rel.JoinSpec{Kind: join.Full, LeftKeys: slices.Concat(keys, outer), RightKeys: made[:n],
		NullSafe: slices.Repeat([]bool{true}, n)}
	both := rel.NewJoin(g.Origin, left, right, spec)
	exprs := make([]*expr.Expr, len(made))
	for i, id := range made {
		switch {
		case i < n:
			exprs[i] = expr.Coalesce(both.Expr(spec.LeftKeys[i]), both.Expr(id))
		case grouped.Field(grouped.Columns[i]).Nullable:
			exprs[i] = both.Expr(id)
		default:
			exprs[i] = computeOf("coalesce(%s, 0)", both, id)
		}
	}
	out := u.newColumns()
	return rel.NewProject(g.Origin, both, slices.Concat(g.Keys, out, grouped.Columns[n:]), exprs), out
}

// newColumns makes columns like the outer ones.
func (u *unnesting) newColumns() (ids []rel.ID) {
	for _, c := range u.outer {
		column := u.Metadata.Column(c)
		column.Field = u.Left.Rel().Field(c)
		ids = append(ids, u.Metadata.Add(column))
	}
	return ids
}

// allPairs adds the key that all rows of two sides have in common, and returns the join by it.
func allPairs(left, right *rel.Node) rel.JoinSpec {
	spec := rel.JoinSpec{Kind: join.Inner, AllPairs: true, NullSafe: []bool{false}}
	*left, spec.LeftKeys = rel.Extend(*left, []*expr.Expr{expr.And()}, nil)
	*right, spec.RightKeys = rel.Extend(*right, []*expr.Expr{expr.And()}, nil)
	return spec
}

func (u *unnesting) joinForDomain(n *rel.Join) (rel.Node, []rel.ID) {
	spec := n.JoinSpec
	left, right := n.Left, n.Right
	var ids, others []rel.ID
	onLeft := u.depends(left) || rel.KeepsLeft(n.Kind) || !n.Kind.Pairs()
	onRight := u.depends(right) || rel.KeepsRight(n.Kind)
	if !onRight || n.AsOf != nil {
		onLeft = true // the residual uses them, or they say which right rows may be nearest
	}
	if onLeft {
		left, ids = u.forDomain(left)
	}
	if onRight {
		right, others = u.forDomain(right)
	}
	switch {
	case onLeft && onRight:
		if spec.AllPairs {
			spec.AllPairs, spec.LeftKeys, spec.RightKeys, spec.NullSafe, spec.NullAware = false, nil, nil, nil, nil
		}
		more := len(ids)
		spec.LeftKeys, spec.RightKeys = slices.Concat(spec.LeftKeys, ids), slices.Concat(spec.RightKeys, others)
		spec.NullSafe = slices.Concat(spec.NullSafe, slices.Repeat([]bool{true}, more))
		if spec.NullAware != nil {
			spec.NullAware = slices.Concat(spec.NullAware, slices.Repeat([]bool{false}, more))
		}
	case onRight:
		ids = others
	}
	both := rel.NewJoin(n.Origin, left, right, rel.JoinSpec{Kind: join.Inner})
	spec.Residual = u.with(both, ids, n.Residual)
	out := rel.NewJoin(n.Origin, left, right, spec)
	switch {
	case n.Kind == join.Right:
		return out, others
	case n.Kind == join.Full:
		columns, exprs := slices.Clone(n.Columns), out.Exprs(n.Columns)
		made := u.newColumns()
		for i := range ids {
			columns = append(columns, made[i])
			exprs = append(exprs, expr.Coalesce(out.Expr(ids[i]), out.Expr(others[i])))
		}
		return rel.NewProject(n.Origin, out, columns, exprs), made
	}
	return out, ids
}

// recursiveForDomain carries the outer columns through a recursion, in columns of the working table. So one recursion
// has the rows of the recursions of all rows of the domain.
func (u *unnesting) recursiveForDomain(n *rel.Recursive) (rel.Node, []rel.ID) {
	anchor, of := u.forDomain(n.Anchor)
	loop := *n.Loop
	inner := &unnesting{Apply: u.Apply, outer: u.outer, is: u.is, within: n, carries: &loop}
	step, more := inner.forDomain(n.Step)
	ids := u.newColumns()
	return rel.NewRecursive(n.Origin, &loop, n.All, anchor, step, slices.Concat(n.AnchorColumns, of),
		slices.Concat(n.StepColumns, more), slices.Concat(n.Columns, ids)), ids
}

// carried returns the working table of the recursion that carries the outer columns, and these columns. The columns of
// the recursion itself are new ones if there are none.
func (u *unnesting) carried(columns []rel.ID) (rel.Node, []rel.ID) {
	if columns == nil {
		for _, c := range u.within.Columns {
			columns = append(columns, u.Metadata.Add(u.Metadata.Column(c)))
		}
	}
	ids := u.newColumns()
	return rel.NewWorking(u.Metadata, u.Origin, u.carries, slices.Concat(columns, ids)), ids
}
