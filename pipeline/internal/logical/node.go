package logical

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/source"
)

// Node is one relation of the logical plan. Nodes are immutable; a rewrite makes new
// ones. Columns are identified by position.
type Node interface {
	Rel() *Relation
}

// Relation describes the rows of a node.
type Relation struct {
	Step   string // the step or source of the query that it comes from
	Schema *gpu.Schema
	tables []*expr.Tables // the names of tables by which each column can be qualified
	Stats  []ColumnStats
	Rows   float64 // estimate
	// unreadable are columns that would be here too. A step that takes all columns
	// refuses them; only a step that names its columns drops them.
	unreadable []unreadable
}

// Rel implements Node.
func (r *Relation) Rel() *Relation { return r }

// ColumnStats are estimates about a column. They come from what files declare, so a plan
// uses them for speed only.
type ColumnStats struct {
	bound    *expr.Range // of integer-like values; nil when unknown
	distinct float64     // values before any filter; 0 when unknown
	counted  bool        // no sample would tell distinct better
	unique   bool        // of the values before any filter and join, no two are equal
	ruledOut float64     // fraction of the values that no row has because of filters of the column
	Bytes    float64     // average bytes of a value
	sample   *sample     // rows of the table that the column comes from, or nil
	column   int         // of the table
}

// The kinds of nodes.
type (
	// Scan reads a table. It may leave out rows that do not meet a predicate of Prune.
	Scan struct {
		Relation
		Table  source.Table
		Prune  []source.Predicate
		Hidden []bool  // for each predicate: its values are not shown
		sample *sample // nil if the table has none
	}
	// Filter keeps the rows for which all conjuncts are true.
	Filter struct {
		Relation
		In        Node
		Conjuncts []*expr.Expr
		// Sampled is the number of rows of a table from which Rows was estimated; 0 if that
		// was by statistics alone.
		Sampled int
	}
	// Project computes columns.
	Project struct {
		Relation
		In    Node
		Exprs []*expr.Expr
	}
	// Join has the columns of the left side, then those of the right side, except in semi
	// and anti joins. A mark join has a BOOLEAN instead, which says whether there is a match.
	Join struct {
		Relation
		Left, Right Node
		JoinSpec
		BuildLeft bool
		Why       string // the reason for the build side
		Order     string // the reason for the order of a chain of joins, of which this is the last
	}
	// Expand has each row of its input once for each variant, which is a set of columns.
	// These are null in the variant. If Numbered, a last column has the number of the
	// variant.
	Expand struct {
		Relation
		In       Node
		Variants [][]int
		Numbered bool
	}
	// Group has one row for each group: its keys, then the aggregates. Always has the keys
	// of the groups of an input without rows; any row belongs to a group of each.
	Group struct {
		Relation
		In         Node
		Keys       []int
		Aggregates []Aggregate
		Always     [][]gpu.Scalar
		Algorithm  string // "" leaves the choice to the group-by
		Hint       gpu.GroupHint
		// expected is the number of groups if more is known of it than the statistics of the keys; 0 otherwise.
		expected float64
	}
	// Window has the columns of its input, then one for each window function. Rows of equal
	// values in Partition are a partition, which Order orders.
	Window struct {
		Relation
		In        Node
		Partition []int
		Order     []SortKey
		Functions []window.Function
	}
	// Sort orders rows, and keeps Limit of them after the first Offset.
	Sort struct {
		Relation
		In            Node
		Keys          []SortKey
		Offset, Limit int64 // a Limit of -1 keeps all
	}
	// Limit keeps Count rows after the first Offset.
	Limit struct {
		Relation
		In            Node
		Offset, Count int64
	}
	// Union has the rows of its inputs, one input after the other.
	Union struct {
		Relation
		Ins []Node
	}
	// Held has the rows of a step that several steps read, which are computed once. Nodes of one
	// Share have the same rows. Conditions of those that read them stay above.
	Held struct {
		Relation
		In    Node
		Share *Share
	}
)

// Share identifies a step whose rows are held.
type Share struct{ Step string }

// JoinSpec describes the join of two relations: key columns of equal type, by position on
// each side.
type JoinSpec struct {
	Kind                join.Kind
	LeftKeys, RightKeys []int
	NullSafe            []bool
	// Residual are conditions on pairs of rows with equal keys, over the columns of the left
	// side and then of the right side. Pairs on which one is not true do not match.
	Residual []*expr.Expr
	// AllPairs says that the key is the same in all rows: all pairs of rows are compared.
	AllPairs bool
	// Range finds the pairs in place of keys, of which there are none then; nil if there is
	// no range.
	Range     *Range
	Algorithm string      // "" leaves the choice to the join
	mark      string      // name of the column of a mark join
	kept      []join.Kind // what the join was: conditions drop the rows that it kept
	build     string      // "auto", "left" or "right"
	fixed     bool        // the join keeps its place among others
}

// keepsLeft reports whether a kind of join returns left rows without a match.
func keepsLeft(k join.Kind) bool {
	return k == join.Left || k == join.Full || k == join.Anti || k == join.Mark
}

// keepsRight reports whether a kind of join returns right rows without a match.
func keepsRight(k join.Kind) bool { return k == join.Right || k == join.Full }

// Name returns the kind of the join in the words of the query.
func (n *Join) Name() string {
	if n.Kind == join.Inner && n.AllPairs && len(n.Residual) == 0 {
		return "cross"
	}
	return n.Kind.String()
}

// Conditions describes what is compared.
func (n *Join) Conditions() (list []string) {
	for i := range n.LeftKeys {
		if n.AllPairs {
			break
		}
		left, right := n.Left.Rel().Schema.Fields[n.LeftKeys[i]].Name, n.Right.Rel().Schema.Fields[n.RightKeys[i]].Name
		if left == right {
			left, _ = scopeOf(n.Left).Qualified(n.LeftKeys[i])
			right, _ = scopeOf(n.Right).Qualified(n.RightKeys[i])
		}
		op := "="
		if n.NullSafe[i] {
			op = "IS NOT DISTINCT FROM"
		}
		list = append(list, fmt.Sprintf("%s %s %s", left, op, right))
	}
	if n.Range != nil {
		list = append(list, n.Range.String())
	}
	for _, p := range n.Residual {
		text := p.String()
		if o := p.Origin(); o != nil && o.Step != n.Step {
			text += ", from " + o.Step
		}
		list = append(list, text)
	}
	for _, k := range n.kept {
		list = append(list, fmt.Sprintf("was a %v join, but a condition drops the rows without a match that it kept",
			k))
	}
	if n.AllPairs {
		list = append(list, "compares all pairs of rows: there is no equality of the two sides")
		if len(n.Residual) == 0 {
			list = []string{"all pairs of rows"}
		}
	}
	return list
}

// Unique reports whether no two rows of a node can have equal values in all of the columns:
// they contain the keys of a group-by.
func Unique(n Node, columns []int) bool {
	switch n := n.(type) {
	case *Filter:
		return Unique(n.In, columns)
	case *Window:
		return Unique(n.In, slices.DeleteFunc(slices.Clone(columns),
			func(c int) bool { return c >= n.In.Rel().Schema.Len() }))
	case *Sort:
		return Unique(n.In, columns)
	case *Limit:
		return Unique(n.In, columns)
	case *Held:
		return Unique(n.In, columns)
	case *Project:
		var below []int
		for _, c := range columns {
			if in, bare := n.Exprs[c].IsColumn(); bare {
				below = append(below, in)
			}
		}
		return Unique(n.In, below)
	case *Join:
		return !n.Kind.Pairs() && Unique(n.Left,
			slices.DeleteFunc(slices.Clone(columns), func(c int) bool { return c >= n.Left.Rel().Schema.Len() }))
	case *Group:
		for k := range n.Keys {
			if !slices.Contains(columns, k) {
				return false
			}
		}
		return true
	}
	return false
}

// Aggregate is an aggregate function of a column of the input.
type Aggregate struct {
	Kind   gpu.AggregateKind
	Input  int // -1 for count(*)
	Output gpu.Type
	// Sorted is set in a group with an aggregate that needs the rows of a group together.
	// It has the columns of the aggregate, also that of Input.
	Sorted *window.GroupFunction
}

// Columns returns the columns of the input that the aggregate needs.
func (a Aggregate) Columns() []int {
	switch {
	case a.Sorted != nil:
		return a.Sorted.Columns()
	case a.Input >= 0:
		return []int{a.Input}
	}
	return nil
}

// passesValues reports whether the aggregate is one of the values of its input.
func (a Aggregate) passesValues() bool {
	if a.Sorted == nil || a.Sorted.Kind == window.Aggregate {
		return a.Kind == gpu.Min || a.Kind == gpu.Max
	}
	switch a.Sorted.Kind {
	case window.FirstValue, window.LastValue, window.ArgMin, window.ArgMax, window.QuantileDisc, window.Mode:
		return true
	}
	return false
}

// SortKey is a column by which rows are sorted.
type SortKey struct {
	Column                 int
	Descending, NullsFirst bool
}

func newScan(name string, t source.Table) *Scan {
	s := t.Schema()
	n := &Scan{Relation: Relation{Step: name, Schema: s, Rows: float64(t.Rows())}, Table: t, sample: newSample(t)}
	for _, u := range t.Unreadable() {
		n.unreadable = append(n.unreadable, unreadable{u, name, expr.TablesOf(name)})
	}
	for i, f := range s.Fields {
		n.tables = append(n.tables, expr.TablesOf(name))
		stats := scanStats(f.Type, t.Stats(i), n.Rows)
		stats.sample, stats.column = n.sample, i
		n.Stats = append(n.Stats, stats)
	}
	return n
}

// newFilter leaves out conjuncts that are true of every row, such as IS NOT NULL of a
// column without nulls.
func newFilter(step string, in Node, conjuncts []*expr.Expr) Node {
	conjuncts = slices.DeleteFunc(slices.Clone(conjuncts), func(e *expr.Expr) bool {
		v, constant := e.Constant()
		return constant && v == gpu.BoolScalar(true)
	})
	if len(conjuncts) == 0 {
		return in
	}
	n := &Filter{Relation: *in.Rel(), In: in, Conjuncts: conjuncts}
	n.Step = step
	kept, left := 0.0, map[int]float64(nil)
	kept, left, n.Sampled = filterSelectivity(conjuncts, in)
	n.Rows *= kept
	n.Stats = slices.Clone(n.Stats)
	for c, share := range left {
		n.Stats[c].ruledOut = 1 - (1-n.Stats[c].ruledOut)*share
	}
	return n
}

func newProject(step string, in Node, exprs []*expr.Expr, names []string, tables []*expr.Tables) *Project {
	n := &Project{Relation: Relation{Step: step, Rows: in.Rel().Rows, tables: tables}, In: in, Exprs: exprs}
	fields := make([]gpu.Field, len(exprs))
	for i, e := range exprs {
		fields[i] = gpu.Field{Name: names[i], Type: e.Type(), Nullable: e.Nullable(), Annotation: e.Annotation()}
		n.Stats = append(n.Stats, exprStats(e, in.Rel()))
	}
	n.Schema = gpu.NewSchema(fields...)
	return n
}

// columnsOf returns the columns of a node as expressions.
func columnsOf(in Node) []*expr.Expr {
	scope := scopeOf(in)
	exprs := make([]*expr.Expr, in.Rel().Schema.Len())
	for i := range exprs {
		exprs[i] = expr.Column(scope, i)
	}
	return exprs
}

// tablesOf returns the tables of expressions over a relation: those of a bare column, and
// none for what is computed.
func tablesOf(r *Relation, exprs []*expr.Expr) []*expr.Tables {
	tables := make([]*expr.Tables, len(exprs))
	for i, e := range exprs {
		if c, ok := e.IsColumn(); ok {
			tables[i] = r.tables[c]
		}
	}
	return tables
}

// pick projects a node to some of its columns.
func pick(in Node, cols []int) Node {
	r := in.Rel()
	scope := scopeOf(in)
	var exprs []*expr.Expr
	var names []string
	var tables []*expr.Tables
	for _, c := range cols {
		exprs = append(exprs, expr.Column(scope, c))
		names = append(names, r.Schema.Fields[c].Name)
		tables = append(tables, r.tables[c])
	}
	return keepUnreadable(newProject(r.Step, in, exprs, names, tables), in)
}

// extend adds computed columns to a node, for keys that are expressions. It returns the
// position of every expression; a bare column keeps its position.
func extend(in Node, exprs []*expr.Expr) (Node, []int) {
	r := in.Rel()
	all, names, tables := columnsOf(in), slices.Clone(r.Schema.Names()), slices.Clone(r.tables)
	at := make([]int, len(exprs))
	for i, e := range exprs {
		if c, ok := e.IsColumn(); ok {
			at[i] = c
			continue
		}
		at[i] = len(all)
		all, names, tables = append(all, e), append(names, e.String()), append(tables, nil)
	}
	if len(all) == r.Schema.Len() {
		return in, at
	}
	return keepUnreadable(newProject(r.Step, in, all, names, tables), in), at
}

func newJoin(step string, left, right Node, spec JoinSpec) *Join {
	l, r := left.Rel(), right.Rel()
	n := &Join{Relation: Relation{Step: step}, Left: left, Right: right, JoinSpec: spec}
	n.tables = append(n.tables, l.tables...)
	n.Stats = append(n.Stats, l.Stats...)
	n.unreadable = l.unreadable
	var fields []gpu.Field
	for _, f := range l.Schema.Fields {
		f.Nullable = f.Nullable || keepsRight(spec.Kind)
		fields = append(fields, f)
	}
	switch {
	case spec.Kind == join.Mark:
		n.tables = append(n.tables, nil)
		n.Stats = append(n.Stats, ColumnStats{distinct: 2, Bytes: float64(gpu.Of(gpu.Bool).Width())})
		fields = append(fields, gpu.Field{Name: spec.mark, Type: gpu.Of(gpu.Bool)})
	case spec.Kind.Pairs():
		n.tables = append(n.tables, r.tables...)
		n.Stats = append(n.Stats, r.Stats...)
		n.unreadable = slices.Concat(l.unreadable, r.unreadable)
		for _, f := range r.Schema.Fields {
			f.Nullable = f.Nullable || keepsLeft(spec.Kind)
			fields = append(fields, f)
		}
	}
	n.Schema = gpu.NewSchema(fields...)
	n.Rows = joinRows(l, r, spec)
	n.BuildLeft, n.Why = chooseBuild(l, r, spec)
	return n
}

// VariantType is the type of the column that numbers the variants of an Expand.
var VariantType = gpu.Of(gpu.Int8)

func newExpand(step string, in Node, variants [][]int, numbered bool) *Expand {
	n := &Expand{Relation: *in.Rel(), In: in, Variants: variants, Numbered: numbered}
	n.Step = step
	n.Rows *= float64(len(variants))
	fields := slices.Clone(n.Schema.Fields)
	n.Stats = slices.Clone(n.Stats)
	nulls := map[int]bool{}
	for _, columns := range variants {
		for _, c := range columns {
			fields[c].Nullable, nulls[c] = true, true
		}
	}
	for c := range nulls {
		if d := &n.Stats[c].distinct; numbered && *d > 0 {
			*d++ // null
		} else {
			// The columns have their values in different rows, so the product of their
			// numbers of values says nothing about the number of rows.
			*d = 0
		}
	}
	if numbered {
		fields = append(fields, gpu.Field{Name: expr.SetColumn, Type: VariantType})
		n.tables = append(n.tables[:len(n.tables):len(n.tables)], nil)
		// The nulls are counted as values of their columns, so the number adds few groups.
		n.Stats = append(n.Stats, ColumnStats{distinct: 1, Bytes: float64(VariantType.Width())})
	}
	n.Schema = gpu.NewSchema(fields...)
	return n
}

func newGroup(step string, in Node, keys []int, aggs []Aggregate, names []string, always [][]gpu.Scalar,
	algorithm string) *Group {
	r := in.Rel()
	n := &Group{Relation: Relation{Step: step}, In: in, Keys: keys, Aggregates: aggs, Always: always,
		Algorithm: algorithm}
	var fields []gpu.Field
	for i, k := range keys {
		f := r.Schema.Fields[k]
		f.Name = names[i]
		fields = append(fields, f)
		n.tables = append(n.tables, r.tables[k])
		n.Stats = append(n.Stats, r.Stats[k])
	}
	for i, a := range aggs {
		// Every aggregate of an empty input is null, except counts.
		holistic := a.Sorted != nil && a.Sorted.Kind != window.Aggregate
		counts := !holistic && (a.Kind == gpu.CountAll || a.Kind == gpu.Count)
		nullable := !counts && (holistic || len(keys) == 0 || len(always) > 0 ||
			a.Input >= 0 && r.Schema.Fields[a.Input].Nullable)
		f := gpu.Field{Name: names[len(keys)+i], Type: a.Output, Nullable: nullable}
		if a.passesValues() {
			f.Annotation = r.Schema.Fields[a.Input].Annotation
		}
		fields = append(fields, f)
		n.tables = append(n.tables, nil)
		n.Stats = append(n.Stats, aggregateStats(a, r))
	}
	n.Schema = gpu.NewSchema(fields...)
	n.Rows, n.Hint = estimateGroups(r, keys)
	return n
}

// expect sets the expected number of groups, unless it is 0.
func (n *Group) expect(groups float64) {
	if n.expected = groups; groups > 0 {
		n.Rows = min(n.Rows, groups)
		n.Hint.Groups = toInt(n.Rows)
	}
}

// over returns the same group-by of another input of the same columns.
func (n *Group) over(in Node) *Group {
	out := newGroup(n.Step, in, n.Keys, n.Aggregates, n.Schema.Names(), n.Always, n.Algorithm)
	out.expect(n.expected)
	return out
}

func newHeld(in Node, share *Share) *Held {
	return &Held{Relation: *in.Rel(), In: in, Share: share}
}

// worthHolding reports whether the rows of a node cost more than to read and filter tables.
func worthHolding(n Node) bool {
	switch n := n.(type) {
	case *Scan, *Held:
		return false
	case *Filter, *Project, *Union:
		return slices.ContainsFunc(Inputs(n), worthHolding)
	}
	return true
}

func newWindow(step string, in Node, partition []int, order []SortKey, functions []window.Function,
	names []string) *Window {
	n := &Window{Relation: *in.Rel(), In: in, Partition: partition, Order: order, Functions: functions}
	n.Step = step
	fields := slices.Clone(n.Schema.Fields)
	n.tables, n.Stats = slices.Clone(n.tables), slices.Clone(n.Stats)
	for i, f := range functions {
		field := gpu.Field{Name: names[i], Type: f.Output, Nullable: f.Nullable()}
		stats := ColumnStats{Bytes: float64(f.Output.Width())}
		if f.PassesValues() {
			field.Annotation = n.Schema.Fields[f.Value].Annotation
			stats.Bytes = n.Stats[f.Value].Bytes
			if f.Default >= 0 && n.Schema.Fields[f.Default].Annotation != field.Annotation {
				field.Annotation = gpu.NoAnnotation
			}
		}
		fields = append(fields, field)
		n.tables, n.Stats = append(n.tables, nil), append(n.Stats, stats)
	}
	n.Schema = gpu.NewSchema(fields...)
	return n
}

func newSort(step string, in Node, keys []SortKey, offset, limit int64) *Sort {
	n := &Sort{Relation: *in.Rel(), In: in, Keys: keys, Offset: offset, Limit: limit}
	n.Step = step
	if limit >= 0 {
		n.Rows = min(max(n.Rows-float64(offset), 0), float64(limit))
	}
	return n
}

func newLimit(step string, in Node, offset, count int64) *Limit {
	n := &Limit{Relation: *in.Rel(), In: in, Offset: offset, Count: count}
	n.Step = step
	n.Rows = min(max(n.Rows-float64(offset), 0), float64(count))
	return n
}

// newUnion concatenates relations of the same column types.
func newUnion(step string, ins []Node) *Union {
	n := &Union{Relation: *ins[0].Rel(), Ins: ins}
	n.Step = step
	fields := append([]gpu.Field(nil), n.Schema.Fields...)
	n.Stats = append([]ColumnStats(nil), n.Stats...)
	for _, in := range ins[1:] {
		r := in.Rel()
		n.Rows += r.Rows
		for i, f := range r.Schema.Fields {
			fields[i].Nullable = fields[i].Nullable || f.Nullable
			if fields[i].Annotation != f.Annotation {
				fields[i].Annotation = gpu.NoAnnotation
			}
			n.Stats[i] = n.Stats[i].union(r.Stats[i])
		}
	}
	n.Schema = gpu.NewSchema(fields...)
	return n
}

// scopeOf returns the scope of expressions over a node's columns.
func scopeOf(n Node) *expr.Scope {
	r := n.Rel()
	s := &expr.Scope{Schema: r.Schema, Qualifiers: r.tables, Fold: host.Fold}
	for _, st := range r.Stats {
		s.Ranges = append(s.Ranges, st.bound)
	}
	return s
}
