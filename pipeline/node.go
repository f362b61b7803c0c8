package pipeline

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/source"
)

// node is one relation of the logical plan. Nodes are immutable: a rewrite
// makes new ones. Columns are known by position.
type node interface {
	rel() *relation
}

// relation is what every node says of its rows.
type relation struct {
	step   string // the step or source of the job it comes from
	schema *gpu.Schema
	quals  []string // the name that qualifies each column, "" for none
	stats  []columnStats
	rows   float64 // estimate
	// unreadable are columns that would be here, too. Whatever takes all columns
	// refuses them; only steps that name their columns leave them behind.
	unreadable []unreadable
}

func (r *relation) rel() *relation { return r }

// columnStats is what is believed of a column. It is derived from what files
// claim, so plans use it for speed only.
type columnStats struct {
	bound    *expr.Range // of integer-like values, nil when unknown
	distinct float64     // values before any filter, 0 when unknown
	bytes    float64     // of a value, on average
}

type (
	scanNode struct {
		relation
		table source.Table
		prune []source.Predicate
	}
	filterNode struct {
		relation
		in        node
		conjuncts []*expr.Expr
	}
	projectNode struct {
		relation
		in    node
		exprs []*expr.Expr
	}
	joinNode struct {
		relation
		left, right node
		joinSpec
		buildLeft bool
		why       string // why that side is built
	}
	groupNode struct {
		relation
		in         node
		keys       []int
		aggregates []aggregate
		hint       gpu.GroupHint
	}
	sortNode struct {
		relation
		in            node
		keys          []sortKey
		offset, limit int64 // limit is -1 for none
	}
	limitNode struct {
		relation
		in            node
		offset, count int64
	}
	unionNode struct {
		relation
		ins []node
	}
)

// joinSpec is how two relations are joined: key columns of equal type, by
// position on either side.
type joinSpec struct {
	kind                gpu.JoinKind
	leftKeys, rightKeys []int
	nullSafe            []bool
	build               string // "auto", "left" or "right"
}

type aggregate struct {
	kind   gpu.AggregateKind
	input  int // -1 for count(*)
	output gpu.Type
}

type sortKey struct {
	column                 int
	descending, nullsFirst bool
}

func newScan(name string, t source.Table) *scanNode {
	s := t.Schema()
	n := &scanNode{relation: relation{step: name, schema: s, rows: float64(t.Rows())}, table: t}
	for _, u := range t.Unreadable() {
		n.unreadable = append(n.unreadable, unreadable{u, name})
	}
	for i, f := range s.Fields {
		n.quals = append(n.quals, name)
		n.stats = append(n.stats, scanStats(f.Type, t.Stats(i), n.rows))
	}
	return n
}

func newFilter(step string, in node, conjuncts []*expr.Expr) node {
	if len(conjuncts) == 0 {
		return in
	}
	n := &filterNode{relation: *in.rel(), in: in, conjuncts: conjuncts}
	n.step = step
	n.rows *= selectivity(conjuncts, in.rel())
	return n
}

func newProject(step string, in node, exprs []*expr.Expr, names, quals []string) *projectNode {
	n := &projectNode{relation: relation{step: step, rows: in.rel().rows, quals: quals}, in: in, exprs: exprs}
	fields := make([]gpu.Field, len(exprs))
	for i, e := range exprs {
		fields[i] = gpu.Field{Name: names[i], Type: e.Type(), Nullable: e.Nullable(), Annotation: e.Annotation()}
		n.stats = append(n.stats, exprStats(e, in.rel()))
	}
	n.schema = gpu.NewSchema(fields...)
	return n
}

// pick projects a node to some of its columns.
func pick(in node, cols []int) node {
	r := in.rel()
	scope := scopeOf(in)
	var exprs []*expr.Expr
	var names, quals []string
	for _, c := range cols {
		exprs = append(exprs, expr.Column(scope, c))
		names = append(names, r.schema.Fields[c].Name)
		quals = append(quals, r.quals[c])
	}
	return keepUnreadable(newProject(r.step, in, exprs, names, quals), in)
}

// extend adds computed columns to a node, for keys that are expressions. It
// returns the position of every expression; bare columns are where they were.
func extend(in node, exprs []*expr.Expr) (node, []int) {
	r := in.rel()
	scope := scopeOf(in)
	var all []*expr.Expr
	names, quals := append([]string(nil), r.schema.Names()...), append([]string(nil), r.quals...)
	for i := range names {
		all = append(all, expr.Column(scope, i))
	}
	at := make([]int, len(exprs))
	for i, e := range exprs {
		if c, ok := e.IsColumn(); ok {
			at[i] = c
			continue
		}
		at[i] = len(all)
		all, names, quals = append(all, e), append(names, e.String()), append(quals, "")
	}
	if len(all) == r.schema.Len() {
		return in, at
	}
	return keepUnreadable(newProject(r.step, in, all, names, quals), in), at
}

func newJoin(step string, left, right node, spec joinSpec) *joinNode {
	l, r := left.rel(), right.rel()
	n := &joinNode{relation: relation{step: step}, left: left, right: right, joinSpec: spec}
	n.quals = append(n.quals, l.quals...)
	n.stats = append(n.stats, l.stats...)
	n.unreadable = l.unreadable
	fields := append([]gpu.Field(nil), l.schema.Fields...)
	if spec.kind == gpu.Inner || spec.kind == gpu.Left {
		n.quals = append(n.quals, r.quals...)
		n.stats = append(n.stats, r.stats...)
		n.unreadable = slices.Concat(l.unreadable, r.unreadable)
		for _, f := range r.schema.Fields {
			f.Nullable = f.Nullable || spec.kind == gpu.Left
			fields = append(fields, f)
		}
	}
	n.schema = gpu.NewSchema(fields...)
	n.rows = joinRows(l, r, spec)
	n.buildLeft, n.why = chooseBuild(l, r, spec)
	return n
}

func newGroup(step string, in node, keys []int, aggs []aggregate, names []string) *groupNode {
	r := in.rel()
	n := &groupNode{relation: relation{step: step}, in: in, keys: keys, aggregates: aggs}
	var fields []gpu.Field
	for i, k := range keys {
		f := r.schema.Fields[k]
		f.Name = names[i]
		fields = append(fields, f)
		n.quals = append(n.quals, r.quals[k])
		n.stats = append(n.stats, r.stats[k])
	}
	for i, a := range aggs {
		// Over an empty input every aggregate but a count is null.
		counts := a.kind == gpu.CountAll || a.kind == gpu.Count
		nullable := !counts && (len(keys) == 0 || a.input >= 0 && r.schema.Fields[a.input].Nullable)
		f := gpu.Field{Name: names[len(keys)+i], Type: a.output, Nullable: nullable}
		if a.kind == gpu.Min || a.kind == gpu.Max {
			f.Annotation = r.schema.Fields[a.input].Annotation
		}
		fields = append(fields, f)
		n.quals = append(n.quals, "")
		n.stats = append(n.stats, aggregateStats(a, r))
	}
	n.schema = gpu.NewSchema(fields...)
	n.rows, n.hint = estimateGroups(r, keys)
	return n
}

func newSort(step string, in node, keys []sortKey, offset, limit int64) *sortNode {
	n := &sortNode{relation: *in.rel(), in: in, keys: keys, offset: offset, limit: limit}
	n.step = step
	if limit >= 0 {
		n.rows = min(max(n.rows-float64(offset), 0), float64(limit))
	}
	return n
}

func newLimit(step string, in node, offset, count int64) *limitNode {
	n := &limitNode{relation: *in.rel(), in: in, offset: offset, count: count}
	n.step = step
	n.rows = min(max(n.rows-float64(offset), 0), float64(count))
	return n
}

// newUnion puts relations of the same column types one after the other.
func newUnion(step string, ins []node) *unionNode {
	n := &unionNode{relation: *ins[0].rel(), ins: ins}
	n.step = step
	fields := append([]gpu.Field(nil), n.schema.Fields...)
	n.stats = append([]columnStats(nil), n.stats...)
	for _, in := range ins[1:] {
		r := in.rel()
		n.rows += r.rows
		for i, f := range r.schema.Fields {
			fields[i].Nullable = fields[i].Nullable || f.Nullable
			if fields[i].Annotation != f.Annotation {
				fields[i].Annotation = gpu.NoAnnotation
			}
			n.stats[i] = n.stats[i].union(r.stats[i])
		}
	}
	n.schema = gpu.NewSchema(fields...)
	return n
}

// scopeOf is what expressions over a node's columns may use.
func scopeOf(n node) *expr.Scope {
	r := n.rel()
	s := &expr.Scope{Schema: r.schema, Qualifiers: r.quals, Fold: host.Fold}
	for _, st := range r.stats {
		s.Ranges = append(s.Ranges, st.bound)
	}
	return s
}
