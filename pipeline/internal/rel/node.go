package rel

import (
	"maps"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/source"
)

// Node is one relation of a query. Nodes are immutable; a rewrite makes new ones.
type Node interface {
	Rel() *Relation
}

// Relation is what all nodes have.
type Relation struct {
	Origin   expr.Origin // the step or source of the query that the node comes from
	Columns  []ID        // none occurs twice
	Metadata *Metadata
	nulls    map[ID]bool // columns that an outer join fills with nulls
}

// Rel implements Node.
func (r *Relation) Rel() *Relation { return r }

// Has reports whether the rows have a column.
func (r *Relation) Has(id ID) bool { return slices.Contains(r.Columns, id) }

// HasAll reports whether the rows have all of some columns.
func (r *Relation) HasAll(ids []ID) bool {
	has := r.Has
	if len(ids) > 8 {
		columns := r.set()
		has = func(id ID) bool { return columns[id] }
	}
	return !slices.ContainsFunc(ids, func(id ID) bool { return !has(id) })
}

// set returns the columns of the rows, for callers that look up many.
func (r *Relation) set() map[ID]bool {
	columns := make(map[ID]bool, len(r.Columns))
	for _, id := range r.Columns {
		columns[id] = true
	}
	return columns
}

// Field describes a column of the rows.
func (r *Relation) Field(id ID) gpu.Field {
	f := r.Metadata.Column(id).Field
	f.Nullable = f.Nullable || r.nulls[id]
	return f
}

// Name returns the name of a column.
func (r *Relation) Name(id ID) string { return r.Metadata.Column(id).Name }

// Schema returns the schema of some columns.
func (r *Relation) Schema(columns []ID) *gpu.Schema {
	s := &gpu.Schema{}
	for _, c := range columns {
		s.Fields = append(s.Fields, r.Field(c))
	}
	return s
}

// Expr returns a column as an expression.
func (r *Relation) Expr(id ID) *expr.Expr { return expr.ColumnOf(id, r.Field(id), nil) }

// Exprs returns columns as expressions.
func (r *Relation) Exprs(ids []ID) []*expr.Expr {
	exprs := make([]*expr.Expr, len(ids))
	for i, id := range ids {
		exprs[i] = r.Expr(id)
	}
	return exprs
}

// Output is the rows of a query: some columns of a node, in order.
type Output struct {
	Root    Node
	Columns []ID
}

// Schema returns the schema of the rows.
func (o Output) Schema() *gpu.Schema { return o.Root.Rel().Schema(o.Columns) }

// The kinds of nodes.
type (
	// Outputs is the root of a plan with several outputs, which may share nodes. Of has the columns of each input that
	// are written.
	Outputs struct {
		Relation
		Ins []Node
		Of  [][]ID
	}
	// Scan reads a table. Its columns are those of the table, in order, then those inside of nested ones. It may leave
	// out rows that do not meet a predicate of Prune, whose columns are positions in the table.
	Scan struct {
		Relation
		Table  source.Table
		Prune  []source.Predicate
		Hidden []bool // for each predicate: its values are not shown
	}
	// Filter keeps the rows for which all conjuncts are true.
	Filter struct {
		Relation
		In        Node
		Conjuncts []*expr.Expr
	}
	// Project computes its columns. One that has the ID of an input column is that column.
	Project struct {
		Relation
		In    Node
		Exprs []*expr.Expr // of each column
	}
	// Join has the columns of the left side, and of the right side if its kind has pairs. A mark join has Mark instead,
	// a BOOLEAN that says whether there is a match.
	Join struct {
		Relation
		Left, Right Node
		JoinSpec
		Order *ChainOrder // of the chain of joins of which this is the last, nil for others
	}
	// Expand has each row of its input once for each variant. It has the columns of the input; copies of some, which
	// are null in some variants; and, unless it is None, Number, the number of the variant.
	Expand struct {
		Relation
		In       Node
		Copies   []Copy
		Variants [][]ID // of each variant, the copies that are null
		Number   ID
	}
	// Unnest has each row of its input once for each element of a list. It has the columns of the input and the
	// elements. Several Lists are fields of the elements of one list, each as a list, so they have equal lengths.
	Unnest struct {
		Relation
		In              Node
		Lists, Elements []ID
	}
	// Group has one row for each group: its keys, then the aggregates. Always has the keys of the groups of an input
	// without rows; any row belongs to a group of each.
	Group struct {
		Relation
		In         Node
		Keys       []ID
		Aggregates []Aggregate
		Always     [][]gpu.Scalar
		Algorithm  string // "" leaves the choice to the group-by
	}
	// Window has the columns of its input, then one for each window function: Out. Rows of equal values in Partition
	// are a partition, which Order orders.
	Window struct {
		Relation
		In        Node
		Partition []ID
		Order     []SortKey
		Functions []window.Function
		Out       []ID
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
	// Union has the rows of its inputs, one input after the other. From has the columns of each input that become the
	// columns of the union.
	Union struct {
		Relation
		Ins  []Node
		From [][]ID
	}
	// Values has rows of constants, each with a value for each column.
	Values struct {
		Relation
		Rows [][]gpu.Scalar
	}
	// SetOperation combines the rows of two sides with as many columns of the same types. Rows whose values are equal
	// or null in the same columns are the same row.
	SetOperation struct {
		Relation
		Op          SetOp
		All         bool // of n and m equal rows there are n+m, min(n, m) or n-m, instead of 1 or 0
		Left, Right Node
		// LeftColumns and RightColumns are the columns of the sides that become the columns of the node.
		LeftColumns, RightColumns []ID
	}
	// Apply is a dependent join. For each row of the left side it computes the right side, whose expressions may use
	// the columns Outer of that row, and joins the row with the rows of the right side on which all Conditions are
	// true. It has the columns of a Join of its kind. The Mark of a mark join is null where no condition is false and
	// one is null, so that it is the value of IN and ANY, and without conditions of EXISTS.
	Apply struct {
		Relation
		Left, Right Node
		Kind        join.Kind
		Outer       []ID
		Conditions  []*expr.Expr
		Mark        ID
	}
	// Materialized has the rows of a step that several steps read, which are computed once. Nodes
	// of one Share have the same rows. Each reader tests its conditions above.
	Materialized struct {
		Relation
		In    Node
		Share *Share
	}
	// Recursive has the rows of Anchor, and after them those of Step, iteration by iteration, until one adds no row: a
	// recursive common table expression. In each iteration the Working nodes of the Loop have the rows that the
	// iteration before has added, in the first one those of Anchor. Without All, a row that is equal to an earlier one
	// is left out, so that a later iteration does not read it either.
	Recursive struct {
		Relation
		Anchor, Step Node
		// AnchorColumns and StepColumns are the columns of the inputs that become the columns of the node.
		AnchorColumns, StepColumns []ID
		Loop                       *Loop
		All                        bool
	}
	// Working has the rows that the last iteration of a recursion has added: its working table. It has a column for
	// each one of the recursion, in order.
	Working struct {
		Relation
		Loop *Loop
	}
)

// SetOp is a kind of SetOperation.
type SetOp uint8

// The set operations.
const (
	UnionOf   SetOp = iota // rows of either side
	Intersect              // rows of both sides
	Except                 // rows of the left side that the right side does not have
)

// String returns the SQL word in lower case.
func (o SetOp) String() string { return [...]string{"union", "intersect", "except"}[o] }

// Copy is a column that has the values of another one where they are not replaced by null.
type Copy struct{ Out, From ID }

// Loop identifies a recursion. Rows, and Bytes of a value of each column, are estimates about its working table.
type Loop struct {
	Name  string
	Rows  float64
	Bytes []float64
}

// Share identifies a step whose rows are held.
type Share struct{ Step string }

// SortKey is a column by which rows are sorted.
type SortKey struct {
	Column                 ID
	Descending, NullsFirst bool
}

// Aggregate is an aggregate function of a column of the input.
type Aggregate struct {
	Out    ID
	Kind   gpu.AggregateKind
	Input  ID // None for count(*)
	Output gpu.Type
	// Sorted is set in a group with an aggregate that needs the rows of a group together.
	// It has the columns of the aggregate, also that of Input.
	Sorted *window.GroupFunction
}

// Columns returns the columns of the input that the aggregate needs.
func (a Aggregate) Columns() []ID {
	switch {
	case a.Sorted != nil:
		return a.Sorted.Columns()
	case a.Input >= 0:
		return []ID{a.Input}
	}
	return nil
}

// PassesValues reports whether the aggregate is one of the values of its input.
func (a Aggregate) PassesValues() bool {
	if a.Sorted == nil || a.Sorted.Kind == window.Aggregate {
		return a.Kind == gpu.Min || a.Kind == gpu.Max
	}
	switch a.Sorted.Kind {
	case window.FirstValue, window.LastValue, window.ArgMin, window.ArgMax, window.QuantileDisc, window.Mode:
		return true
	}
	return false
}

// Field describes the column of the aggregate over the rows of an input.
func (a Aggregate) Field(name string, in *Relation, keys int, always [][]gpu.Scalar) gpu.Field {
	// Every aggregate of an empty input is null, except counts.
	holistic := a.Sorted != nil && a.Sorted.Kind != window.Aggregate
	counts := !holistic && (a.Kind == gpu.CountAll || a.Kind == gpu.Count)
	f := gpu.Field{Name: name, Type: a.Output, Nullable: !counts && (holistic || keys == 0 || len(always) > 0 ||
		a.Input >= 0 && in.Field(a.Input).Nullable)}
	if a.PassesValues() {
		f.Annotation = in.Field(a.Input).Annotation
	}
	return f
}

// above returns a relation of the columns of an input and new ones.
func above(in Node, origin expr.Origin, more ...ID) Relation {
	r := *in.Rel()
	r.Origin = origin
	r.Columns = append(r.Columns[:len(r.Columns):len(r.Columns)], more...)
	return r
}

// of returns a relation of columns over an input, whose nulls some of them may have.
func of(in Node, origin expr.Origin, columns []ID) Relation {
	r := in.Rel()
	return Relation{Origin: origin, Columns: columns, Metadata: r.Metadata, nulls: r.nulls}
}

// NewScan makes a column for each one of a table, and for each one inside of nested ones.
func NewScan(m *Metadata, origin expr.Origin, t source.Table) *Scan {
	n := &Scan{Relation: Relation{Origin: origin, Metadata: m}, Table: t}
	for _, f := range t.Schema().Fields {
		n.Columns = append(n.Columns, m.Add(Column{f, origin.Step}))
	}
	for _, i := range n.Inside() {
		n.Columns = append(n.Columns, m.Add(Column{i.Field, origin.Step}))
	}
	return n
}

// Inside describes the columns inside of nested ones, which are the last ones of the scan.
func (n *Scan) Inside() []source.Inside {
	if s, ok := n.Table.(source.Nested); ok {
		return s.Inside()
	}
	return nil
}

// At returns the position of a column in the table.
func (n *Scan) At(id ID) int { return slices.Index(n.Columns, id) }

// NewFilter leaves out conjuncts that are true of every row, such as IS NOT NULL of a column without nulls.
func NewFilter(origin expr.Origin, in Node, conjuncts []*expr.Expr) Node {
	conjuncts = slices.DeleteFunc(slices.Clone(conjuncts), func(e *expr.Expr) bool {
		v, constant := e.Constant()
		return constant && v == gpu.BoolScalar(true)
	})
	if len(conjuncts) == 0 {
		return in
	}
	return &Filter{Relation: above(in, origin), In: in, Conjuncts: conjuncts}
}

// NewProject computes columns, which the metadata describes.
func NewProject(origin expr.Origin, in Node, columns []ID, exprs []*expr.Expr) *Project {
	return &Project{Relation: of(in, origin, columns), In: in, Exprs: exprs}
}

// Expr returns how a column is computed.
func (n *Project) Expr(id ID) *expr.Expr { return n.Exprs[slices.Index(n.Columns, id)] }

// Source returns the input column that a column is; it is false if the column is computed.
func (n *Project) Source(id ID) (ID, bool) { return n.Expr(id).IsColumn() }

// Extend adds computed columns to a node, for keys that are expressions. It returns the column of every expression,
// which for a bare column is this one. A name other than "" makes a column of its own for one of another name.
func Extend(in Node, exprs []*expr.Expr, names []string) (Node, []ID) {
	r := in.Rel()
	columns, all := slices.Clone(r.Columns), r.Exprs(r.Columns)
	ids := make([]ID, len(exprs))
	for i, e := range exprs {
		name := ""
		if names != nil {
			name = names[i]
		}
		c, bare := e.IsColumn()
		if bare && r.Has(c) && (name == "" || r.Name(c) == name) {
			ids[i] = c
			continue
		}
		if name == "" {
			name = e.String()
		}
		ids[i] = r.Metadata.Add(Computed(name, e))
		columns, all = append(columns, ids[i]), append(all, e)
	}
	if len(columns) == len(r.Columns) {
		return in, ids
	}
	return NewProject(r.Origin, in, columns, all), ids
}

// Computed describes the column of an expression.
func Computed(name string, e *expr.Expr) Column {
	return Column{Field: gpu.Field{Name: name, Type: e.Type(), Nullable: e.Nullable(), Annotation: e.Annotation()}}
}

// Renamed returns columns of a node under new IDs. table, unless it is "", is their table in messages.
func Renamed(in Node, columns []ID, table string) (*Project, []ID) {
	r := in.Rel()
	ids := make([]ID, len(columns))
	for i, c := range columns {
		column := r.Metadata.Column(c)
		column.Field = r.Field(c)
		if table != "" {
			column.Table = table
		}
		ids[i] = r.Metadata.Add(column)
	}
	return NewProject(r.Origin, in, ids, r.Exprs(columns)), ids
}

// Shares reports whether two nodes have a column in common, so that they cannot be joined.
func Shares(a, b Node) bool {
	columns := a.Rel().set()
	return slices.ContainsFunc(b.Rel().Columns, func(id ID) bool { return columns[id] })
}

// NewJoin makes a join of two sides without a common column.
func NewJoin(origin expr.Origin, left, right Node, spec JoinSpec) *Join {
	return &Join{Relation: joined(origin, left, right, spec.Kind, spec.Mark), Left: left, Right: right, JoinSpec: spec}
}

// joined returns the relation of a join.
func joined(origin expr.Origin, left, right Node, kind join.Kind, mark ID) Relation {
	out := above(left, origin)
	l, r := left.Rel(), right.Rel()
	switch {
	case kind == join.Mark:
		out.Columns = append(out.Columns, mark)
	case kind.Pairs():
		out.Columns = append(out.Columns, r.Columns...)
	}
	var filled []ID
	if KeepsRight(kind) {
		filled = l.Columns
	}
	if KeepsLeft(kind) && kind.Pairs() {
		filled = slices.Concat(filled, r.Columns)
	}
	if len(filled)+len(r.nulls) > 0 {
		out.nulls = map[ID]bool{}
		maps.Copy(out.nulls, l.nulls)
		maps.Copy(out.nulls, r.nulls)
		for _, c := range filled {
			out.nulls[c] = true
		}
	}
	return out
}

// VariantType is the type of the column that numbers the variants of an Expand.
var VariantType = gpu.Of(gpu.Int8)

// NewExpand makes variants of the rows.
func NewExpand(origin expr.Origin, in Node, copies []Copy, variants [][]ID, number ID) *Expand {
	n := &Expand{Relation: above(in, origin), In: in, Copies: copies, Variants: variants, Number: number}
	for _, c := range copies {
		n.Columns = append(n.Columns, c.Out)
	}
	if number != None {
		n.Columns = append(n.Columns, number)
	}
	return n
}

// NewUnnest repeats rows.
func NewUnnest(origin expr.Origin, in Node, lists, elements []ID) *Unnest {
	return &Unnest{Relation: above(in, origin, elements...), In: in, Lists: lists, Elements: elements}
}

// NewGroup makes groups.
func NewGroup(origin expr.Origin, in Node, keys []ID, aggs []Aggregate, always [][]gpu.Scalar,
	algorithm string) *Group {
	n := &Group{Relation: of(in, origin, slices.Clone(keys)), In: in, Keys: keys, Aggregates: aggs, Always: always,
		Algorithm: algorithm}
	for _, a := range aggs {
		n.Columns = append(n.Columns, a.Out)
	}
	return n
}

// NewWindow computes window functions.
func NewWindow(origin expr.Origin, in Node, partition []ID, order []SortKey, functions []window.Function,
	out []ID) *Window {
	return &Window{Relation: above(in, origin, out...), In: in, Partition: partition, Order: order,
		Functions: functions, Out: out}
}

// NewSort sorts rows.
func NewSort(origin expr.Origin, in Node, keys []SortKey, offset, limit int64) *Sort {
	return &Sort{Relation: above(in, origin), In: in, Keys: keys, Offset: offset, Limit: limit}
}

// NewLimit keeps some rows.
func NewLimit(origin expr.Origin, in Node, offset, count int64) *Limit {
	return &Limit{Relation: above(in, origin), In: in, Offset: offset, Count: count}
}

// NewUnion concatenates rows. The columns of from have the types of columns.
func NewUnion(origin expr.Origin, ins []Node, from [][]ID, columns []ID) *Union {
	r := Relation{Origin: origin, Columns: columns, Metadata: ins[0].Rel().Metadata}
	return &Union{Relation: r, Ins: ins, From: from}
}

// NewOutputs returns the root of several outputs, which is an Output itself.
func NewOutputs(outs ...Output) Output {
	n := &Outputs{}
	for _, o := range outs {
		n.Ins, n.Of = append(n.Ins, o.Root), append(n.Of, o.Columns)
	}
	n.describe()
	return Output{n, n.Columns}
}

// describe sets the columns of the node: those that are written, each once.
func (n *Outputs) describe() {
	n.Relation = of(n.Ins[0], expr.Origin{Step: "output", Path: "output"}, nil)
	n.nulls = map[ID]bool{}
	seen := map[ID]bool{}
	for i, in := range n.Ins {
		for _, c := range n.Of[i] {
			if !seen[c] {
				seen[c], n.Columns = true, append(n.Columns, c)
			}
			n.nulls[c] = n.nulls[c] || in.Rel().nulls[c]
		}
	}
}

// NewValues makes rows of constants, of columns that the metadata describes.
func NewValues(m *Metadata, origin expr.Origin, columns []ID, rows [][]gpu.Scalar) *Values {
	return &Values{Relation: Relation{Origin: origin, Columns: columns, Metadata: m}, Rows: rows}
}

// NewSetOperation combines the rows of two sides. The columns of the sides have the types of columns.
func NewSetOperation(origin expr.Origin, op SetOp, all bool, left, right Node, leftColumns, rightColumns,
	columns []ID) *SetOperation {
	r := Relation{Origin: origin, Columns: columns, Metadata: left.Rel().Metadata}
	return &SetOperation{Relation: r, Op: op, All: all, Left: left, Right: right, LeftColumns: leftColumns,
		RightColumns: rightColumns}
}

// NewApply makes a dependent join of two sides without a common column. mark is None unless it is a mark join.
func NewApply(origin expr.Origin, kind join.Kind, left, right Node, outer []ID, conditions []*expr.Expr,
	mark ID) *Apply {
	return &Apply{Relation: joined(origin, left, right, kind, mark), Left: left, Right: right, Kind: kind, Outer: outer,
		Conditions: conditions, Mark: mark}
}

// NewMaterialized materializes the rows of a step.
func NewMaterialized(in Node, share *Share) *Materialized {
	return &Materialized{Relation: *in.Rel(), In: in, Share: share}
}

// NewRecursive makes a recursion. The columns of the inputs have the types of columns, which are nullable.
func NewRecursive(origin expr.Origin, loop *Loop, all bool, anchor, step Node, anchorColumns, stepColumns,
	columns []ID) *Recursive {
	r := Relation{Origin: origin, Columns: columns, Metadata: anchor.Rel().Metadata}
	return &Recursive{Relation: r, Anchor: anchor, Step: step, AnchorColumns: anchorColumns, StepColumns: stepColumns,
		Loop: loop, All: all}
}

// NewWorking makes a reader of the working table of a recursion, with columns that the metadata describes.
func NewWorking(m *Metadata, origin expr.Origin, loop *Loop, columns []ID) *Working {
	return &Working{Relation: Relation{Origin: origin, Columns: columns, Metadata: m}, Loop: loop}
}

// Reads reports whether a node, or one below it, reads the working table of a recursion.
func Reads(n Node, loop *Loop) (reads bool) {
	Visit(n, func(n Node) {
		if w, ok := n.(*Working); ok && w.Loop == loop {
			reads = true
		}
	})
	return reads
}
