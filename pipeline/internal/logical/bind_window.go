package logical

import (
	"fmt"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// windows holds the window functions of a step. Several expressions of the step may use one.
type windows struct {
	*stepBinder
	in    *Relation
	calls []expr.WindowCall
	uses  []int // calls[uses[i]] is "$window<i>" of the expressions
}

// parse parses an expression over the input of the step, and replaces its window functions by names
// of columns. It returns nil after a mistake.
func (w *windows) parse(text, sub string) syntax.Node {
	n, err := w.query.Values.Parse(text)
	if err == nil {
		if n, err = w.add(n, w.scopeAt(w.in, sub)); err == nil {
			return n
		}
	}
	w.exprDiagnostic(w.in, sub, text, err, "")
	return nil
}

// add binds the window functions of an expression, and returns it with names of columns in their places.
func (w *windows) add(n syntax.Node, scope *expr.Scope) (syntax.Node, error) {
	found, n, err := expr.BindWindows(n, scope, len(w.uses))
	for _, c := range found {
		at := slices.IndexFunc(w.calls, c.Equal)
		if at < 0 {
			at = len(w.calls)
			w.calls = append(w.calls, c)
		}
		w.uses = append(w.uses, at)
	}
	return n, err
}

// windowed is the input of a step with the results of its window functions.
type windowed struct {
	*stepBinder
	in    *Relation
	node  rel.Node    // has the columns of in, and the results
	scope *expr.Scope // the columns of in, then the window functions that expressions use
}

// node computes the window functions: one node for each window, above a projection of the
// arguments, and one group-by for the aggregates of each set of partitions that no window computes.
func (w *windows) node() *windowed {
	var exprs []*expr.Expr
	use := func(e *expr.Expr) int {
		if e == nil {
			return -1
		}
		exprs = append(exprs, e)
		return len(exprs) - 1
	}
	functions := make([]window.Function, len(w.calls))
	keys := make([][]int, len(w.calls)) // of the partition, then of the order
	for i, c := range w.calls {
		if c.Group != nil {
			continue
		}
		for _, p := range c.Partition {
			keys[i] = append(keys[i], use(p))
		}
		for _, k := range c.Order {
			keys[i] = append(keys[i], use(k.Expr))
		}
		bound := func(b expr.WindowBound) window.Bound {
			return window.Bound{Kind: b.Kind, Offset: b.Offset, Key: use(b.Key), Value: use(b.Value)}
		}
		functions[i] = window.Function{Kind: c.Kind, Aggregate: c.Aggregate, Value: use(c.Value), Offset: use(c.Offset),
			Default:     use(c.Default),
			IgnoreNulls: c.IgnoreNulls, Frame: window.Frame{Unit: c.Frame.Unit, From: bound(c.Frame.From),
				To: bound(c.Frame.To), Exclude: c.Frame.Exclude}, Output: c.Output}
		functions[i].Least, functions[i].Most, functions[i].Bounded = bounds(c.Offset)
	}
	node, at := rel.Extend(w.in.node, exprs, nil)
	position := func(e int) rel.ID { return at[e] }
	columns := make([]rel.ID, len(w.calls))
	for i, c := range w.calls {
		if c.Group != nil || slices.ContainsFunc(w.calls[:i], func(d expr.WindowCall) bool {
			return d.Group == nil && c.SameWindow(d)
		}) {
			continue
		}
		var out []rel.ID
		var list []window.Function
		for j, d := range w.calls[i:] {
			if d.Group == nil && c.SameWindow(d) {
				f := functions[i+j].Remap(position)
				columns[i+j] = w.md.Add(rel.Column{Field: windowField(node.Rel(), f, d.String())})
				list, out = append(list, f), append(out, columns[i+j])
			}
		}
		var partition []rel.ID
		var order []rel.SortKey
		for k, e := range keys[i] {
			if k < len(c.Partition) {
				partition = append(partition, at[e])
			} else {
				key := c.Order[k-len(c.Partition)]
				order = append(order,
					rel.SortKey{Column: at[e], Descending: key.Descending, NullsFirst: key.NullsFirst})
			}
		}
		node = rel.NewWindow(w.here(), node, partition, order, list, out)
	}
	node = w.joinGroups(node, columns)
	out := &windowed{stepBinder: w.stepBinder, in: w.in, node: node, scope: w.stepBinder.scope(w.in)}
	out.scope.Schema = &gpu.Schema{Fields: slices.Clone(out.scope.Schema.Fields)}
	for i, call := range w.uses {
		f := node.Rel().Field(columns[call])
		f.Name = expr.WindowColumn(i)
		out.add(f, nil, columns[call])
	}
	return out
}

// joinGroups joins the rows of a node with the aggregates of their partitions, for the calls that have a Group. It sets
// their columns.
func (w *windows) joinGroups(node rel.Node, columns []rel.ID) rel.Node {
	done := make([]bool, len(w.calls))
	for i, c := range w.calls {
		if c.Group == nil || done[i] {
			continue
		}
		var calls []expr.AggregateCall
		var of []int
		for j, d := range w.calls[i:] {
			if d.Group != nil && slices.EqualFunc(c.Partition, d.Partition, (*expr.Expr).Equal) {
				calls, of, done[i+j] = append(calls, *d.Group), append(of, i+j), true
			}
		}
		names := make([]string, len(c.Partition))
		for k, p := range c.Partition {
			names[k] = p.String()
		}
		made := w.groupBy(w.in.node, c.Partition, names, calls, nil)
		right, ids := rel.Renamed(made.node, slices.Concat(made.keys, made.calls), "")
		on := joinCondition{left: c.Partition, right: right.Rel().Exprs(ids[:len(made.keys)]),
			nullSafe: slices.Repeat([]bool{true}, len(made.keys))}
		joined, err := on.build(w.here(), node, right, rel.JoinSpec{Kind: join.Inner})
		if err != nil {
			panic(fmt.Sprintf("logical: a key and itself have no common type: %v", err))
		}
		node = joined
		for k, j := range of {
			columns[j] = ids[len(made.keys)+k]
		}
	}
	return node
}

// windowField describes the column of a window function over the rows of an input.
func windowField(in *rel.Relation, f window.Function, name string) gpu.Field {
	field := gpu.Field{Name: name, Type: f.Output, Nullable: f.Nullable()}
	if f.PassesValues() {
		field.Annotation = in.Field(f.Value).Annotation
		if f.Default >= 0 && in.Field(f.Default).Annotation != field.Annotation {
			field.Annotation = gpu.NoAnnotation
		}
	}
	return field
}

// nearRows is the largest offset, if it differs from row to row, for which rows up to this distance
// are kept in memory together.
const nearRows = 1 << 16

// bounds returns bounds of the values of an offset that are not null, if these bounds are known and
// at most nearRows from 0.
func bounds(offset *expr.Expr) (least, most int64, ok bool) {
	if offset == nil {
		return 0, 0, false
	}
	r, limit := offset.Range(), int64(nearRows)
	if v, constant := offset.Constant(); constant {
		if !v.Valid {
			return 0, 0, true
		}
		r, limit = &expr.Range{Lo: v.Int, Hi: v.Int}, math.MaxInt32
	}
	if r == nil || r.Lo.Less(gpu.Int128From(-limit)) || gpu.Int128From(limit).Less(r.Hi) {
		return 0, 0, false
	}
	return r.Lo.Int64(), r.Hi.Int64(), true
}

// add adds a column to the scope.
func (w *windowed) add(f gpu.Field, r *expr.Range, id rel.ID) {
	s := w.scope
	n := len(s.Schema.Fields)
	s.Schema.Fields, s.IDs = append(s.Schema.Fields, f), append(s.IDs[:n:n], id)
	s.Qualifiers = append(s.Qualifiers[:n:n], nil)
	before := s.Range
	s.Range = func(column int) *expr.Range {
		if column == n {
			return r
		}
		return before(column)
	}
}

// bind binds an expression that parse has returned, over the columns of the node. It returns
// nil after a fault.
func (w *windowed) bind(n syntax.Node, text, sub string) *expr.Expr {
	w.scope.Origin = w.origin(sub)
	e, err := expr.Bind(n, w.scope)
	if err != nil {
		w.exprDiagnostic(w.in, sub, text, err, "")
		return nil
	}
	return e
}

// qualify keeps the rows of the node on which a condition is true. parse has returned the
// condition. It may use columns of the select list by their names in the list, unless the input has
// a column of that name.
func (w *windowed) qualify(n syntax.Node, items []item) bool {
	text := w.step.Qualify
	selected := map[rel.ID]*expr.Expr{}
	for _, x := range items {
		if len(w.scope.Named(x.name)) == 0 {
			c := rel.Computed(x.name, x.expr)
			id := w.md.Add(c)
			selected[id] = x.expr
			w.add(c.Field, x.expr.Range(), id)
		}
	}
	w.scope.Origin = w.origin(".qualify")
	e, err := expr.Bind(n, w.scope)
	if err != nil {
		w.exprDiagnostic(w.in, ".qualify", text, err, "")
		return false
	}
	if e.Type().Kind != gpu.Bool {
		w.faultf(".qualify", "the condition %q is a value of type %v; a condition must be BOOLEAN, as in %q", text,
			e.Type(), text+" = …")
		return false
	}
	e = e.Substitute(func(id rel.ID) *expr.Expr { return selected[id] })
	w.node = rel.NewFilter(w.here(), w.node, expr.Conjuncts(e))
	return true
}

// qualified is the step qualify: the rows of its input on which a condition over window
// functions is true.
func (s *stepBinder) qualified(in *Relation) *Relation {
	w := &windows{stepBinder: s, in: in}
	n := w.parse(s.step.Qualify, ".qualify")
	if n == nil {
		return nil
	}
	out := w.node()
	if !out.qualify(n, nil) {
		return nil
	}
	return in.over(out.node)
}
