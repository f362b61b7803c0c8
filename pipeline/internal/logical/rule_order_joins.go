package logical

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// maxExact is the number of tables of a chain up to which all orders are searched. With more
// tables, each step takes the cheapest join.
const maxExact = 10

// orderJoins orders chains of inner joins by their estimated sizes.
func orderJoins(e *Estimator, n rel.Node) rel.Node {
	o := ordering{estimator: e, leaves: map[rel.Node]int{}}
	o.rewritten = rel.Remembered(func(n rel.Node, again func(rel.Node) rel.Node) rel.Node {
		if leaves := o.count(n); leaves == 0 || leaves > maxLeaves || leaves == 2 && crosses(n) {
			return rel.WithInputs(n, again)
		}
		return o.chain(n)
	})
	return o.rewritten(n)
}

// crosses reports whether a chain of two tables pairs all their rows: no other order is possible.
func crosses(n rel.Node) bool {
	switch n := n.(type) {
	case *rel.Filter:
		return crosses(n.In)
	case *rel.Project:
		return crosses(n.In)
	case *rel.Join:
		return n.AllPairs
	}
	return false
}

// ordering orders the joins of a plan.
type ordering struct {
	estimator *Estimator
	rewritten func(rel.Node) rel.Node
	leaves    map[rel.Node]int
}

// maxLeaves is the number of tables up to which a chain is ordered, the width of a set. In a longer
// chain, the last joins keep their order.
const maxLeaves = 64

// count returns the number of tables of a chain: of an inner join, and of filters and projections
// of one. It is 0 for other nodes.
func (o *ordering) count(n rel.Node) int {
	leaves, ok := o.leaves[n]
	if ok {
		return leaves
	}
	switch n := n.(type) {
	case *rel.Join:
		if n.Kind == join.Inner && !n.Fixed {
			leaves = max(o.count(n.Left), 1) + max(o.count(n.Right), 1)
		}
	case *rel.Filter:
		leaves = o.count(n.In)
	case *rel.Project:
		leaves = o.count(n.In)
	}
	leaves = min(leaves, maxLeaves+1)
	o.leaves[n] = leaves
	return leaves
}

// chain orders the joins of a chain.
func (o *ordering) chain(n rel.Node) rel.Node {
	c := &chain{ordering: o, leafOf: map[rel.ID]rel.Node{}, kept: map[string][]join.Kind{}}
	columns, written := c.add(n)
	ordered := c.emit(c.choose(written))
	r, bare := n.Rel(), true
	exprs := make([]*expr.Expr, len(r.Columns))
	for i, id := range r.Columns {
		exprs[i] = columns[id].Expr
		column, ok := exprs[i].IsColumn()
		bare = bare && ok && column == id
	}
	if bare {
		return ordered
	}
	return rel.NewProject(r.Origin, ordered, r.Columns, exprs)
}

// chain is inner joins in any order. Its expressions are over the columns of all leaves.
type chain struct {
	*ordering
	leaves  []rel.Node
	leafOf  map[rel.ID]rel.Node // before conditions on leaves alone
	classes []class
	conds   []term // conditions over several leaves
	sorted  []int  // leaves from the one with the fewest rows on
	rows    map[set]float64
	kept    map[string][]join.Kind // of the joins as written, by their steps
}

// statsOf returns the statistics of a column of the leaves.
func (c *chain) statsOf(id rel.ID) ColumnStats { return c.estimator.Column(c.leafOf[id], id) }

// set is a set of at most maxLeaves leaves.
type set uint64

func (s set) has(t set) bool { return s&t == t }

// term is an expression and the leaves that it needs: those of its columns. An expression that may
// fail also needs all leaves that are joined before it as the query is written, so that it sees no
// more rows than there.
type term struct {
	*expr.Expr
	leaves set
	stats  ColumnStats
	values float64 // that filters of the columns do not rule out; 0 when unknown
}

// class holds expressions that are all equal. A class in which null equals null has two
// expressions.
type class struct {
	terms    []term
	nullSafe bool
	steps    []string // of the joins that compare them
}

// order is a tree of joins: a leaf, or two orders.
type order struct {
	leaves      set
	left, right *order
	origin      expr.Origin // of the join as written, which the join replaces
	cost        float64
	why         *rel.ChainOrder // it was chosen, for the last join of a chain
}

// add adds a node of the chain. It returns how its columns are computed from those of the leaves, and the order as
// written.
func (c *chain) add(n rel.Node) (map[rel.ID]term, *order) {
	if c.count(n) == 0 {
		return c.addLeaf(c.rewritten(n))
	}
	switch n := n.(type) {
	case *rel.Filter:
		columns, o := c.add(n.In)
		for _, e := range n.Conjuncts {
			c.conds = append(c.conds, newTerm(e, columns, o.leaves))
		}
		return columns, o
	case *rel.Project:
		return c.addProject(n)
	}
	j := n.(*rel.Join)
	step := j.Origin.Step
	c.kept[step] = j.Kept
	columns, l := c.addSide(j, j.Left)
	right, r := c.addSide(j, j.Right)
	for i := range j.LeftKeys {
		if j.AllPairs {
			break
		}
		c.equate(columns[j.LeftKeys[i]], right[j.RightKeys[i]], j.NullSafe[i], step)
	}
	maps.Copy(columns, right)
	o := &order{leaves: l.leaves | r.leaves, left: l, right: r, origin: j.Origin}
	for _, e := range j.Residual {
		c.conds = append(c.conds, newTerm(e, columns, o.leaves))
	}
	return columns, o
}

// addSide adds a side of a join. The key that all rows of a cross join have in common is no part of a leaf.
func (c *chain) addSide(j *rel.Join, n rel.Node) (map[rel.ID]term, *order) {
	p, ok := n.(*rel.Project)
	if !ok || !j.AllPairs || c.count(n) > 0 {
		return c.add(n)
	}
	return c.addProject(p)
}

// addProject adds the input of a projection.
func (c *chain) addProject(n *rel.Project) (map[rel.ID]term, *order) {
	columns, o := c.add(n.In)
	out := map[rel.ID]term{}
	for i, e := range n.Exprs {
		out[n.Columns[i]] = newTerm(e, columns, o.leaves)
	}
	return out, o
}

// addLeaf adds a leaf. The leaf gets new columns if it has a column of another leaf, which a
// projection above one of them has hidden.
func (c *chain) addLeaf(n rel.Node) (map[rel.ID]term, *order) {
	i, written := len(c.leaves), n.Rel().Columns
	ids := written
	if slices.ContainsFunc(written, func(id rel.ID) bool { return c.leafOf[id] != nil }) {
		n, ids = rel.Renamed(n, written, "")
	}
	c.leaves = append(c.leaves, n)
	columns := map[rel.ID]term{}
	for k, id := range ids {
		c.leafOf[id] = n
		columns[written[k]] = term{Expr: n.Rel().Expr(id), leaves: 1 << i}
	}
	return columns, &order{leaves: 1 << i}
}

// newTerm returns an expression over columns of a part of the chain, which has the given leaves.
func newTerm(e *expr.Expr, columns map[rel.ID]term, leaves set) term {
	t := term{Expr: e.Substitute(func(id rel.ID) *expr.Expr { return columns[id].Expr })}
	for _, id := range e.Columns() {
		t.leaves |= columns[id].leaves
	}
	if e.MayFail() {
		t.leaves |= leaves
	}
	return t
}

// equate adds an equality of a join. Two expressions that equal a third one are equal.
func (c *chain) equate(l, r term, nullSafe bool, step string) {
	k := class{terms: []term{l, r}, nullSafe: nullSafe, steps: []string{step}}
	if !nullSafe {
		c.classes = slices.DeleteFunc(c.classes, func(o class) bool {
			if o.nullSafe || !o.contains(l) && !o.contains(r) {
				return false
			}
			for _, t := range o.terms {
				if !k.contains(t) {
					k.terms = append(k.terms, t)
				}
			}
			k.steps = append(k.steps, o.steps...)
			return true
		})
	}
	c.classes = append(c.classes, k)
}

func (k *class) contains(t term) bool {
	return slices.ContainsFunc(k.terms, func(o term) bool { return o.leaves == t.leaves && o.Equal(t.Expr) })
}

// within returns the first term of the class that a set of leaves can compute, or nil.
func (k *class) within(s set) *term {
	for i := range k.terms {
		if s.has(k.terms[i].leaves) {
			return &k.terms[i]
		}
	}
	return nil
}

// keys calls f for each equality between two sets of leaves.
func (c *chain) keys(a, b set, f func(k *class, l, r *term)) {
	for i := range c.classes {
		k := &c.classes[i]
		if l, r := k.within(a), k.within(b); l != nil && r != nil {
			f(k, l, r)
		}
	}
}

func (c *chain) connected(a, b set) (yes bool) {
	c.keys(a, b, func(*class, *term, *term) { yes = true })
	return yes
}

// conditions returns the conditions of a join of a and b that its sides alone do not meet:
// conditions over both, and equalities that are no keys. For a single leaf, b is empty.
func (c *chain) conditions(a, b set) (all []*expr.Expr) {
	both := a | b
	alone := func(t term) bool { return b != 0 && (a.has(t.leaves) || b.has(t.leaves)) }
	for i := range c.classes {
		k := &c.classes[i]
		var first *term
		if b != 0 {
			if first = k.within(a); first == nil {
				first = k.within(b)
			}
		}
		for i, t := range k.terms {
			switch {
			case !both.has(t.leaves) || alone(t):
			case first == nil:
				first = &k.terms[i]
			default:
				all = append(all, expr.Equal(first.Expr, t.Expr, k.nullSafe))
			}
		}
	}
	for _, t := range c.conds {
		if both.has(t.leaves) && !alone(t) {
			all = append(all, t.Expr)
		}
	}
	return all
}

// choose returns the order with the least cost. It returns the order as written if no other one
// costs less.
func (c *chain) choose(written *order) *order {
	for i, leaf := range c.leaves {
		c.leaves[i] = rel.NewFilter(leaf.Rel().Origin, leaf, c.conditions(1<<i, 0))
	}
	for _, k := range c.classes {
		for i := range k.terms {
			t := &k.terms[i]
			t.stats = exprStats(t.Expr, c.statsOf)
			n, _ := t.stats.keys()
			t.values = n * (1 - t.stats.ruledOut)
		}
	}
	c.rows = map[set]float64{}
	for i := range c.leaves {
		c.sorted = append(c.sorted, i)
	}
	slices.SortStableFunc(c.sorted, func(a, b int) int {
		l, r := c.leaves[a], c.leaves[b]
		return cmp.Or(cmp.Compare(c.estimator.Rows(l), c.estimator.Rows(r)),
			cmp.Compare(l.Rel().Origin.Step, r.Rel().Origin.Step))
	})
	var steps []expr.Origin
	c.price(written, &steps)
	if len(c.leaves) < 3 {
		return written
	}
	greedy := len(c.leaves) > maxExact
	best := c.exact
	if greedy {
		best = c.greedy
	}
	o := best()
	why := &rel.ChainOrder{Tables: len(c.leaves), Greedy: greedy, Rows: o.cost, WrittenRows: written.cost}
	if o.cost >= written.cost*(1-1e-9) {
		why.Rows, written.why = written.cost, why
		return written
	}
	c.name(o, &steps)
	why.Reordered, o.why = true, why
	return o
}

// price computes the costs of the joins of an order, and lists their steps.
func (c *chain) price(o *order, steps *[]expr.Origin) {
	if o.left == nil {
		return
	}
	c.price(o.left, steps)
	c.price(o.right, steps)
	o.cost = c.join(o.left, o.right).cost
	*steps = append(*steps, o.origin)
}

// join returns the join of two orders. Its cost is the rows of its build side, which are held, and
// the rows of its result.
func (c *chain) join(l, r *order) *order {
	o := &order{leaves: l.leaves | r.leaves, left: l, right: r}
	o.cost = l.cost + r.cost + min(c.size(l.leaves), c.size(r.leaves)) + c.size(o.leaves)
	return o
}

// size estimates the rows of the join of a set of leaves, whatever the order.
func (c *chain) size(s set) float64 {
	if rows, ok := c.rows[s]; ok {
		return rows
	}
	rows, in := 1.0, set(0)
	for _, i := range c.sorted {
		if !s.has(1 << i) {
			continue
		}
		leaf := c.estimator.Rows(c.leaves[i])
		var keys []keyPair
		next := in | 1<<i
		for k := range c.classes {
			// If the leaf completes the class, it adds an equality. Of equal columns, the one with
			// the fewest values counts.
			var here, before *term
			for i := range c.classes[k].terms {
				t := &c.classes[k].terms[i]
				least := &here
				if in.has(t.leaves) {
					least = &before
				}
				if next.has(t.leaves) && (*least == nil || t.values > 0 && t.values < (*least).values) {
					*least = t
				}
			}
			if here != nil && before != nil {
				keys = append(keys, keyPair{before.stats, here.stats})
			}
		}
		rows = rows * leaf / matching(keys, max(rows, 1), max(leaf, 1))
		in = next
	}
	var conds []*expr.Expr
	for _, t := range c.conds {
		if s.has(t.leaves) && bits.OnesCount64(uint64(t.leaves)) > 1 {
			conds = append(conds, t.Expr)
		}
	}
	kept, _ := selectivity(conds, c.statsOf)
	c.rows[s] = rows * kept
	return rows * kept
}

// exact searches all orders: dynamic programming over the sets of leaves. A set whose parts no equality connects is a
// cross product; one that equalities connect is never made by one.
func (c *chain) exact() *order {
	best := make([]*order, 1<<len(c.leaves))
	for s := set(1); int(s) < len(best); s++ {
		if bits.OnesCount64(uint64(s)) == 1 {
			best[s] = &order{leaves: s}
			continue
		}
		first := s & -s // in the left part, so that each pair of parts is seen once
		crossed := true
		for a := (s - 1) & s; a > 0; a = (a - 1) & s {
			if a&first == 0 {
				continue
			}
			cross := !c.connected(a, s&^a)
			if cross && !crossed {
				continue
			}
			if o := c.join(best[a], best[s&^a]); best[s] == nil || crossed && !cross || o.cost < best[s].cost {
				best[s], crossed = o, cross
			}
		}
	}
	return best[len(best)-1]
}

// greedy takes the cheapest join of two parts until there is one part. It takes a cross product if no equality connects
// two parts.
func (c *chain) greedy() *order {
	var parts []*order
	for i := range c.leaves {
		parts = append(parts, &order{leaves: 1 << i})
	}
	for len(parts) > 1 {
		var best *order
		least, a, b, crossed := math.Inf(1), 0, 0, true
		for i, l := range parts {
			for k, r := range parts[i+1:] {
				cross := !c.connected(l.leaves, r.leaves)
				if cross && !crossed {
					continue
				}
				o := c.join(l, r)
				if cost := o.cost - l.cost - r.cost; best == nil || crossed && !cross || cost < least {
					best, least, a, b, crossed = o, cost, i, i+1+k, cross
				}
			}
		}
		parts[a] = best
		parts = slices.Delete(parts, b, b+1)
	}
	return parts[0]
}

// name gives each join the step of a join as written, if possible one that compares the same
// columns.
func (c *chain) name(o *order, steps *[]expr.Origin) {
	if o.left == nil {
		return
	}
	c.name(o.left, steps)
	c.name(o.right, steps)
	at, found := 0, false
	c.keys(o.left.leaves, o.right.leaves, func(k *class, _, _ *term) {
		for i, s := range *steps {
			if !found && slices.Contains(k.steps, s.Step) {
				at, found = i, true
			}
		}
	})
	o.origin = (*steps)[at]
	*steps = slices.Delete(*steps, at, at+1)
}

// emit makes the nodes of an order.
func (c *chain) emit(o *order) rel.Node {
	if o.left == nil {
		return c.leaves[bits.TrailingZeros64(uint64(o.leaves))]
	}
	spec := rel.JoinSpec{Kind: join.Inner, Kept: c.kept[o.origin.Step]}
	var l, r []*expr.Expr
	c.keys(o.left.leaves, o.right.leaves, func(k *class, x, y *term) {
		l, r = append(l, x.Expr), append(r, y.Expr)
		spec.NullSafe = append(spec.NullSafe, k.nullSafe)
	})
	if len(l) == 0 {
		spec.AllPairs, spec.NullSafe = true, []bool{false}
		l, r = []*expr.Expr{expr.And()}, []*expr.Expr{expr.And()}
	}
	left, leftKeys := rel.Extend(c.emit(o.left), l, nil)
	right, rightKeys := rel.Extend(c.emit(o.right), r, nil)
	spec.LeftKeys, spec.RightKeys = leftKeys, rightKeys
	spec.Residual = c.conditions(o.left.leaves, o.right.leaves)
	joined := rel.NewJoin(o.origin, left, right, spec)
	joined.Order = o.why
	c.estimator.Know(joined, c.size(o.leaves))
	return joined
}
