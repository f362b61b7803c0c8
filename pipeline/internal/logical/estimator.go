package logical

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/source"
)

// Estimator estimates the rows of nodes and the values of their columns on demand, and remembers
// the answers. It uses the statistics of tables, and samples of tables where the statistics do not
// suffice. One goroutine uses it.
type Estimator struct {
	ctx     context.Context
	rows    map[rel.Node]float64
	filters map[*rel.Filter]filtered
	columns map[columnOf]ColumnStats
	samples map[source.Table]*sample
	small   map[source.Table]*sample // all rows of small tables
	// expected is the largest number of groups of some keys, by their IDs, where a rule or the
	// binder knows more than the statistics of each key tell.
	expected map[string]float64
	err      error
}

// NewEstimator returns an estimator. Its samples end with the context.
func NewEstimator(ctx context.Context) *Estimator {
	return &Estimator{ctx: ctx, rows: map[rel.Node]float64{}, filters: map[*rel.Filter]filtered{},
		columns: map[columnOf]ColumnStats{}, samples: map[source.Table]*sample{},
		small:    map[source.Table]*sample{},
		expected: map[string]float64{}}
}

// Err returns the first error of a sample: a table cannot be read, or the context has ended. An estimate without its
// sample is a guess.
func (e *Estimator) Err() error { return e.err }

type columnOf struct {
	node rel.Node
	id   rel.ID
}

// filtered is the share of the rows of a Filter that passes.
type filtered struct {
	kept    float64            // fraction of the rows
	left    map[rel.ID]float64 // for columns that are compared with constants: fraction of their values
	sampled int                // rows of the sample from which kept was estimated; 0 if it was statistics alone
	blocks  float64            // share of the blocks of the sample with rows that pass; 1 without a sample
	passing *passing           // the rows that pass, of a small table; or nil
}

// ColumnStats are estimates about a column. They come from what files declare, so a plan
// uses them for speed only.
type ColumnStats struct {
	bound    *expr.Range // of integer-like values; nil when unknown
	distinct float64     // values before any filter; 0 when unknown
	counted  bool        // a sample would not improve distinct
	unique   bool        // no two values are equal, before any filter and join
	ruledOut float64     // fraction of the values that filters of the column exclude
	Bytes    float64     // average bytes of a value
	sample   *sample     // rows of the table that the column comes from, or nil
	column   int         // of the table
}

// statsOf returns the statistics of a column.
type statsOf func(rel.ID) ColumnStats

// columnsOf returns the statistics of the columns of a node.
func (e *Estimator) columnsOf(n rel.Node) statsOf {
	return func(id rel.ID) ColumnStats { return e.Column(n, id) }
}

// mostRows bounds estimates, so that those of chains of joins and unions stay finite.
const mostRows = 1e18

// A recursion is expected to have expectedIterations iterations. Each is expected to read expectedWorking rows, or as
// many as the anchor has if these are more, and to add as many as its step then has. A recursion often begins with one
// row and grows: with expectedWorking rows, a join in its step builds a table that is smaller than that, and the
// working table in place of a larger one.
const (
	expectedIterations = 10
	expectedWorking    = 1000
)

// Know sets the rows of a node, for callers that know more than the estimator.
func (e *Estimator) Know(n rel.Node, rows float64) { e.rows[n] = min(rows, mostRows) }

// Rows estimates the rows of a node.
func (e *Estimator) Rows(n rel.Node) float64 {
	rows, ok := e.rows[n]
	if !ok {
		rows = min(e.countRows(n), mostRows)
		e.rows[n] = rows
	}
	return rows
}

func (e *Estimator) countRows(n rel.Node) float64 {
	switch n := n.(type) {
	case *rel.Scan:
		return float64(n.Table.Rows())
	case *rel.Filter:
		return e.Rows(n.In) * e.filter(n).kept
	case *rel.Project:
		return e.Rows(n.In)
	case *rel.Join:
		return e.joinRows(n)
	case *rel.Expand:
		return e.Rows(n.In) * float64(len(n.Variants))
	case *rel.Unnest:
		return e.Rows(n.In) * elementsOfList
	case *rel.Group:
		rows, _ := e.groups(n)
		return rows
	case *rel.Window:
		return e.Rows(n.In)
	case *rel.Sort:
		if n.Limit < 0 {
			return e.Rows(n.In)
		}
		return min(max(e.Rows(n.In)-float64(n.Offset), 0), float64(n.Limit))
	case *rel.Limit:
		return min(max(e.Rows(n.In)-float64(n.Offset), 0), float64(n.Count))
	case *rel.Union, *rel.Outputs:
		rows := 0.0
		for _, in := range rel.Inputs(n) {
			rows += e.Rows(in)
		}
		return rows
	case *rel.Values:
		return float64(len(n.Rows))
	case *rel.SetOperation:
		l, r := e.Rows(n.Left), e.Rows(n.Right)
		switch n.Op {
		case rel.UnionOf:
			return l + r
		case rel.Intersect:
			return min(l, r)
		}
		return l
	case *rel.Apply:
		l := e.Rows(n.Left)
		switch n.Kind {
		case join.Inner:
			return l * e.Rows(n.Right)
		case join.Left:
			return l * max(e.Rows(n.Right), 1)
		}
		return l
	case *rel.Materialized:
		return e.Rows(n.In)
	case *rel.Recursive:
		return e.Rows(n.Anchor) + expectedIterations*e.Rows(n.Step)
	case *rel.Working:
		return n.Loop.Rows
	}
	panic("logical: unknown node")
}

// Column estimates the values of a column of a node.
func (e *Estimator) Column(n rel.Node, id rel.ID) ColumnStats {
	n = e.unchanged(n, id)
	key := columnOf{n, id}
	c, ok := e.columns[key]
	if !ok {
		c = e.countValues(n, id)
		e.columns[key] = c
	}
	return c
}

// unchanged returns the first node below a node that may change the values of a column. Column remembers them there:
// at every node, a chain of filters over a wide table would take memory for each column of each filter.
func (e *Estimator) unchanged(n rel.Node, id rel.ID) rel.Node {
	for {
		switch m := n.(type) {
		case *rel.Filter:
			f := e.filter(m)
			if _, compared := f.left[id]; compared || f.passing != nil {
				return n
			}
			n = m.In
		case *rel.Sort:
			n = m.In
		case *rel.Limit:
			n = m.In
		case *rel.Materialized:
			n = m.In
		default:
			return n
		}
	}
}

// countValues is Column of a node that unchanged returns.
func (e *Estimator) countValues(n rel.Node, id rel.ID) ColumnStats {
	switch n := n.(type) {
	case *rel.Scan:
		at := n.At(id)
		if at < 0 {
			return ColumnStats{} // of a row around a dependent join
		}
		c := scanStats(n.Field(id).Type, n.Table.Stats(at), e.Rows(n))
		c.sample, c.column = e.sample(n.Table), at
		return c
	case *rel.Filter:
		c, f := e.Column(n.In, id), e.filter(n)
		if f.passing != nil && c.bound != nil {
			return f.passing.narrowed(c)
		}
		if left, compared := f.left[id]; compared {
			c.ruledOut = 1 - (1-c.ruledOut)*left
		}
		return c
	case *rel.Project:
		if !n.Has(id) {
			return ColumnStats{}
		}
		return exprStats(n.Expr(id), e.columnsOf(n.In))
	case *rel.Join:
		switch {
		case n.Kind == join.Mark && id == n.Mark:
			return ColumnStats{distinct: 2, Bytes: float64(gpu.Of(gpu.Bool).Width())}
		case n.Left.Rel().Has(id):
			return e.Column(n.Left, id)
		}
		return e.Column(n.Right, id)
	case *rel.Expand:
		return e.expanded(n, id)
	case *rel.Unnest:
		if slices.Contains(n.Elements, id) {
			return ColumnStats{Bytes: float64(max(n.Field(id).Type.Width(), 8))}
		}
		return e.Column(n.In, id)
	case *rel.Group:
		if i := slices.IndexFunc(n.Aggregates, func(a rel.Aggregate) bool { return a.Out == id }); i >= 0 {
			if a := n.Aggregates[i]; !a.PassesValues() {
				return ColumnStats{Bytes: float64(a.Output.Width())}
			}
			id = n.Aggregates[i].Input
		}
		return e.Column(n.In, id)
	case *rel.Window:
		i := slices.Index(n.Out, id)
		if i < 0 {
			return e.Column(n.In, id)
		}
		f := n.Functions[i]
		c := ColumnStats{Bytes: float64(f.Output.Width())}
		if f.PassesValues() {
			c.Bytes = e.Column(n.In, f.Value).Bytes
		}
		return c
	case *rel.Union:
		i := slices.Index(n.Columns, id)
		if i < 0 {
			return ColumnStats{}
		}
		c := e.Column(n.Ins[0], n.From[0][i])
		for k, in := range n.Ins[1:] {
			c = c.union(e.Column(in, n.From[k+1][i]))
		}
		return c
	case *rel.Values:
		return valuesStats(n, id)
	case *rel.SetOperation:
		i := slices.Index(n.Columns, id)
		if i < 0 {
			return ColumnStats{}
		}
		c := e.Column(n.Left, n.LeftColumns[i])
		if n.Op == rel.UnionOf {
			c = c.union(e.Column(n.Right, n.RightColumns[i]))
		}
		return c
	case *rel.Apply:
		switch {
		case n.Kind == join.Mark && id == n.Mark:
			return ColumnStats{distinct: 3, Bytes: float64(gpu.Of(gpu.Bool).Width())}
		case n.Right.Rel().Has(id):
			return e.Column(n.Right, id)
		}
		return e.Column(n.Left, id)
	case *rel.Recursive:
		i := slices.Index(n.Columns, id)
		if i < 0 {
			return ColumnStats{}
		}
		c := e.Column(n.Anchor, n.AnchorColumns[i]).union(e.Column(n.Step, n.StepColumns[i]))
		return ColumnStats{Bytes: c.Bytes} // iterations make other values
	case *rel.Working:
		c := ColumnStats{Bytes: float64(n.Field(id).Type.Width())}
		if i := slices.Index(n.Columns, id); i >= 0 && i < len(n.Loop.Bytes) {
			c.Bytes = n.Loop.Bytes[i]
		}
		return c
	}
	panic("logical: unknown node")
}

// valuesStats counts the values of a column of constants.
func valuesStats(n *rel.Values, id rel.ID) ColumnStats {
	at := slices.Index(n.Columns, id)
	if at < 0 {
		return ColumnStats{}
	}
	t := n.Field(id).Type
	c := ColumnStats{counted: true, Bytes: float64(t.Width())}
	seen, bytes := map[string]bool{}, 0
	for _, row := range n.Rows {
		v := row[at]
		if bytes += len(v.Str); !v.Valid {
			continue
		}
		seen[v.String()] = true
		switch {
		case !integerLike(t):
		case c.bound == nil:
			c.bound = &expr.Range{Lo: v.Int, Hi: v.Int}
		case v.Int.Less(c.bound.Lo):
			c.bound.Lo = v.Int
		case c.bound.Hi.Less(v.Int):
			c.bound.Hi = v.Int
		}
	}
	c.distinct = float64(len(seen))
	c.unique = len(seen) > 0 && len(seen) == len(n.Rows)
	if t.IsVar() {
		c.Bytes = float64(bytes)/max(float64(len(n.Rows)), 1) + 4
	}
	return c
}

// elementsOfList is the number of elements of a list, as nobody knows it.
const elementsOfList = 4

// expanded estimates the values of a column of an Expand.
func (e *Estimator) expanded(n *rel.Expand, id rel.ID) ColumnStats {
	numbered := n.Number != rel.None
	if numbered && id == n.Number {
		// The nulls are counted as values of their columns, so the number adds few groups.
		return ColumnStats{distinct: 1, Bytes: float64(rel.VariantType.Width())}
	}
	i := slices.IndexFunc(n.Copies, func(c rel.Copy) bool { return c.Out == id })
	if i < 0 {
		return e.Column(n.In, id)
	}
	c := e.Column(n.In, n.Copies[i].From)
	if numbered && c.distinct > 0 {
		c.distinct++ // null
	} else {
		// The columns have their values in different rows, so the product of their numbers of
		// values does not bound the number of groups.
		c.distinct = 0
	}
	return c
}

// scanStats turns a file's statistics of a column into estimates.
func scanStats(t gpu.Type, s source.ColumnStats, rows float64) ColumnStats {
	c := ColumnStats{distinct: float64(s.Distinct), counted: s.Distinct > 0, Bytes: float64(t.Width())}
	if t.IsVar() && rows > 0 {
		c.Bytes = float64(s.Bytes)/rows + 4
	}
	if s.HasRange && integerLike(t) && s.Min.Valid && s.Max.Valid {
		c.bound = &expr.Range{Lo: s.Min.Int, Hi: s.Max.Int}
		if c.distinct == 0 {
			// A column with far more rows than its range has integers has nearly all of them. A
			// column with exactly as many rows has each integer once: it is a generated key.
			w := width(c.bound)
			c.distinct, c.counted = min(rows, w), w == rows || w*fullRange <= rows && t.Scale == 0
		}
	}
	c.unique = c.counted && rows > 0 && c.distinct == rows
	return c
}

// union returns the statistics of the values of both columns together.
func (c ColumnStats) union(d ColumnStats) ColumnStats {
	out := ColumnStats{distinct: max(c.distinct, d.distinct), Bytes: max(c.Bytes, d.Bytes)}
	if c.bound != nil && d.bound != nil {
		r := *c.bound
		if d.bound.Lo.Less(r.Lo) {
			r.Lo = d.bound.Lo
		}
		if r.Hi.Less(d.bound.Hi) {
			r.Hi = d.bound.Hi
		}
		out.bound = &r
	}
	return out
}

// exprStats estimates the values of an expression.
func exprStats(e *expr.Expr, of statsOf) ColumnStats {
	if c, ok := e.IsColumn(); ok {
		return of(c)
	}
	s := ColumnStats{bound: e.Range(), Bytes: float64(e.Type().Width())}
	if e.Type().IsVar() {
		s.Bytes = 16
	}
	// A function of columns has at most as many values as the columns together.
	d := 1.0
	for _, c := range e.Columns() {
		d *= of(c).distinct
	}
	if s.bound != nil && width(s.bound) < maxDistinct && (d == 0 || width(s.bound) < d) {
		d = width(s.bound)
	}
	s.distinct = d
	return s
}

// filter estimates the share of the rows that pass a filter. A sample answers the conditions on a
// table that statistics cannot answer. The rows of a small table answer all.
func (e *Estimator) filter(n *rel.Filter) filtered {
	f, ok := e.filters[n]
	if !ok {
		f = e.keep(n.Conjuncts, n.In)
		e.filters[n] = f
	}
	return f
}

func (e *Estimator) keep(conjuncts []*expr.Expr, in rel.Node) (f filtered) {
	of := e.columnsOf(in)
	if scan, ok := in.(*rel.Scan); ok {
		if p := e.smallTable(scan.Table).pass(expr.And(conjuncts...).Remap(scan.At)); p != nil {
			_, f.left = selectivity(conjuncts, of)
			f.kept, f.blocks = p.share()
			f.sampled, f.passing = p.all, p
			return f
		}
		answered, others := partition(conjuncts, func(c *expr.Expr) bool { return inStatistics(c, of) })
		if len(others) > 0 {
			condition := expr.And(others...).Remap(scan.At)
			if kept, blocks, rows, ok := e.sample(scan.Table).selectivity(condition); ok {
				f.kept, f.left = selectivity(answered, of)
				f.kept *= kept
				f.sampled, f.blocks = rows, blocks
				return f
			}
		}
	}
	f.kept, f.left = selectivity(conjuncts, of)
	f.blocks = 1
	return f
}

// Blocks estimates the share of blocks of blockRows consecutive rows of a table in which at least one row passes a
// filter. Rows that pass are spread evenly, unless a sample shows that they lie together.
func (e *Estimator) Blocks(n *rel.Filter) float64 {
	f := e.filter(n)
	return min(f.blocks, BlocksOf(f.kept))
}

// BlocksOf returns the share of blocks with at least one of some rows that are spread evenly. share is the share of
// these rows.
func BlocksOf(share float64) float64 { return 1 - math.Pow(1-min(share, 1), blockRows) }

// Sampled returns the number of rows of a sample from which the rows of a filter were estimated; 0 if that was by
// statistics alone.
func (e *Estimator) Sampled(n *rel.Filter) int { return e.filter(n).sampled }

// matchKeys estimates the number of pairs of rows with equal keys, and the share of the left rows
// that occur in a pair.
func (e *Estimator) matchKeys(left, right rel.Node, leftKeys, rightKeys []rel.ID) (pairs, share float64) {
	var keys []keyPair
	values := 1.0 // of the right side
	for i := range leftKeys {
		p := keyPair{e.Column(left, leftKeys[i]), e.Column(right, rightKeys[i])}
		keys = append(keys, p)
		_, n, _, part := p.values()
		values *= n / part
	}
	l, r := e.Rows(left), e.Rows(right)
	if values = min(values, r); values == 0 {
		values = r
	}
	all := matching(keys, l, r)
	return l * r / all, min(1, values/all)
}

// sides returns the statistics of the columns of both sides of a join.
func (e *Estimator) sides(n *rel.Join) statsOf {
	return func(id rel.ID) ColumnStats {
		if n.Left.Rel().Has(id) {
			return e.Column(n.Left, id)
		}
		return e.Column(n.Right, id)
	}
}

func (e *Estimator) joinRows(n *rel.Join) float64 {
	pairs, share := e.matchKeys(n.Left, n.Right, n.LeftKeys, n.RightKeys)
	conditions := n.Residual
	if n.Range != nil {
		conditions = slices.Concat(n.Range.Conditions, conditions)
	}
	kept, _ := selectivity(conditions, e.sides(n))
	l, r := e.Rows(n.Left), e.Rows(n.Right)
	if n.AsOf != nil {
		pairs = l * share
	}
	pairs *= kept
	matched := min(l*share, pairs)
	switch n.Kind {
	case join.Left:
		return pairs + l - matched
	case join.Right:
		return max(pairs, r)
	case join.Full:
		return max(pairs+l-matched, r)
	case join.Semi:
		return matched
	case join.Anti:
		return l - matched
	case join.Mark:
		return l
	}
	return pairs
}

// keptRows is the ratio of rows from which a join builds the side whose rows are all kept. It is
// cheaper to stream that side: its order is kept, and nothing has to be recorded about rows that
// had a match.
const keptRows = 2

// Build decides which side of a join is built, the side with fewer rows where the job and the kind of the join leave
// the choice. The other side streams.
func (e *Estimator) Build(n *rel.Join) rel.Build {
	switch {
	case n.AsOf != nil || n.Kind == join.Mark:
		return rel.Build{Side: rel.RightSide, Reason: rel.StreamsLeft}
	case n.Build.Side != rel.NoSide:
		return n.Build
	case !n.Kind.Pairs() && n.Range == nil:
		return e.buildOne(n)
	}
	factorLeft, factorRight := 1.0, 1.0
	switch n.Kind {
	case join.Left:
		factorLeft = keptRows
	case join.Right:
		factorRight = keptRows
	}
	l, r := e.Rows(n.Left), e.Rows(n.Right)
	left, reason := l*factorLeft < r*factorRight, rel.FewerRows
	if n.Range != nil {
		left, reason = n.Range.Left, rel.RangeKey
	}
	if left {
		return rel.Build{Side: rel.LeftSide, Reason: reason, BuildRows: l, ProbeRows: r}
	}
	return rel.Build{Side: rel.RightSide, Reason: reason, BuildRows: r, ProbeRows: l}
}

// buildOne is Build of a semi or an anti join, which builds its left side if that has far fewer rows. Then it makes all
// pairs of rows with equal keys, which otherwise only a condition on pairs needs: these must not be too many.
func (e *Estimator) buildOne(n *rel.Join) rel.Build {
	l, r := e.Rows(n.Left), e.Rows(n.Right)
	b := rel.Build{Side: rel.RightSide, Reason: rel.StreamsLeft}
	if n.AllPairs || l*keptRows >= r {
		return b
	}
	if pairs, _ := e.matchKeys(n.Left, n.Right, n.LeftKeys, n.RightKeys); len(n.Residual) > 0 || pairs <= r {
		b = rel.Build{Side: rel.LeftSide, Reason: rel.FewerRows, BuildRows: l, ProbeRows: r}
	}
	return b
}

// denseFactor is the most slots per input row of a group table that keys index directly. denseSlots
// slots are always allowed.
const (
	denseFactor = 8
	denseSlots  = 1 << 16
)

// groups estimates the rows of a group-by, and returns the hint for its table. If the number of
// values of a key is unknown, the groups are at least those of the other keys, and at least the
// square root of the rows.
func (e *Estimator) groups(n *rel.Group) (float64, gpu.GroupHint) {
	rows := e.Rows(n.In)
	var keys []ColumnStats
	for _, k := range n.Keys {
		keys = append(keys, e.Column(n.In, k))
	}
	groups, known := groupsOf(rows, keys)
	if most, ok := e.expected[fmt.Sprint(n.Keys)]; ok {
		groups, known = min(groups, most), true
	}
	hint := gpu.GroupHint{Rows: toInt(rows), Most: toInt(min(mostGroups(keys), rows))}
	if known {
		hint.Groups = toInt(groups)
	}
	if len(keys) == 1 {
		b, t := keys[0].bound, n.Field(n.Keys[0]).Type
		if b != nil && integerLike(t) && !t.Wide && b.Lo.IsInt64() && b.Hi.IsInt64() &&
			width(b) <= max(denseFactor*rows, denseSlots) {
			hint.Lo, hint.Hi, hint.Dense = b.Lo.Int64(), b.Hi.Int64(), true
		}
	}
	return groups, hint
}

// mostGroups returns an upper bound of the groups by keys, 0 if there is none. Keys of one table have together at most
// as many values as the table has rows, and a null.
func mostGroups(keys []ColumnStats) float64 {
	most, tables := 1.0, map[*sample]float64{}
	for _, k := range keys {
		values := math.Inf(1)
		if k.distinct > 0 {
			values = k.distinct + 1
		}
		if k.sample == nil {
			most *= values
			continue
		}
		if tables[k.sample] == 0 {
			tables[k.sample] = 1
		}
		tables[k.sample] *= values
	}
	for table, values := range tables {
		most *= min(values, table.rows+1)
	}
	if math.IsInf(most, 0) {
		return 0
	}
	return most
}

// groupsOf estimates the groups of rows by keys, and reports whether the number of values of every
// key is known.
func groupsOf(rows float64, keys []ColumnStats) (groups float64, known bool) {
	groups, known = 1.0, true
	for _, k := range keys {
		if k.distinct > 0 {
			groups *= k.distinct
		} else {
			known = false
		}
	}
	if !known {
		groups = max(groups, math.Sqrt(rows))
	}
	return min(groups, max(rows, 1)), known
}

// Expect sets the largest number of groups that keys make. It ignores 0, which means unknown.
func (e *Estimator) Expect(keys []rel.ID, groups float64) {
	if groups > 0 {
		e.expected[fmt.Sprint(keys)] = groups
	}
}

// GroupHint returns what the table of a group-by may expect.
func (e *Estimator) GroupHint(n *rel.Group) gpu.GroupHint {
	_, hint := e.groups(n)
	return hint
}

// KeyRange returns the number of values from the least to the greatest of a single key that
// is an integer, a date or the like, or 0 if it is not known.
func (e *Estimator) KeyRange(n rel.Node, keys []rel.ID) float64 {
	if len(keys) != 1 {
		return 0
	}
	b := e.Column(n, keys[0]).bound
	if b == nil || !integerLike(n.Rel().Field(keys[0]).Type) {
		return 0
	}
	return width(b)
}
