package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/filter"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/limit"
	"github.com/gstream/gstream/operators/project"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// stage is a scan, an operator, or a union. Stages form a tree and are immutable;
// a run makes its own operators.
type stage struct {
	step   string // of the job
	kind   string // "scan", "filter", "join" …
	detail []string
	schema *gpu.Schema // of the strides it emits
	rows   float64     // estimate
	inputs []*stage    // of a join: probe side, build side

	table    source.Table // of a scan
	columns  []int
	prune    []source.Predicate
	rowBytes float64

	make func() (operators.Operator, error) // of an operator

	permutation [][]int // of a union: columns of each input, in output order
}

func (s *stage) name() string { return s.step + ": " + s.kind }

// layout says where a stage has put the columns of a node: by position of the
// node's column the position in the stage's strides, or -1.
type layout []int

func (l layout) remap(e *expr.Expr) *expr.Expr { return e.Remap(func(c int) int { return l[c] }) }

func (l layout) all(cols []int) []int {
	out := make([]int, len(cols))
	for i, c := range cols {
		out[i] = l[c]
	}
	return out
}

// required is the set of a node's columns that are used above it.
type required []bool

// with returns the set with more columns in it.
func (n required) with(cols ...int) required {
	out := slices.Clone(n)
	for _, c := range cols {
		out[c] = true
	}
	return out
}

// list returns the columns of the set in order.
func (n required) list() []int {
	var out []int
	for c, used := range n {
		if used {
			out = append(out, c)
		}
	}
	return out
}

// lower makes the stages that compute the needed columns of a node. This is
// where columns are pruned: nothing that is not needed is read, carried or
// computed, and a projection that only picks or renames costs nothing.
func lower(n node, need required) (*stage, layout, error) {
	st, lay, err := lowerNode(n, need)
	if err != nil {
		return nil, nil, err
	}
	if st.make != nil {
		// The operator is made once here, so that what it refuses is refused
		// before the run.
		if _, err := st.make(); err != nil {
			return nil, nil, &job.Diagnostic{Step: st.step, Msg: err.Error()}
		}
	}
	return st, lay, nil
}

func lowerNode(n node, need required) (*stage, layout, error) {
	switch n := n.(type) {
	case *scanNode:
		return n.lower(need)
	case *filterNode:
		return n.lower(need)
	case *projectNode:
		return n.lower(need)
	case *joinNode:
		return n.lower(need)
	case *groupNode:
		return n.lower(need)
	case *sortNode:
		return n.lower(need)
	case *limitNode:
		in, lay, err := lower(n.in, need)
		if err != nil {
			return nil, nil, err
		}
		st := &stage{step: n.step, kind: "limit", schema: in.schema, rows: n.rows, inputs: []*stage{in}}
		st.detail = limitDetail(n.offset, n.count)
		st.make = func() (operators.Operator, error) { return limit.New(in.schema, n.offset, n.count), nil }
		return st, lay, nil
	case *unionNode:
		return n.lower(need)
	}
	panic("pipeline: unknown node")
}

func (n *scanNode) lower(need required) (*stage, layout, error) {
	st := &stage{step: n.step, kind: "scan", rows: n.rows, table: n.table, prune: n.prune, schema: &gpu.Schema{}}
	lay := make(layout, len(need))
	for c, used := range need {
		lay[c] = -1
		if used {
			lay[c] = len(st.columns)
			st.columns = append(st.columns, c)
			st.schema.Fields = append(st.schema.Fields, n.schema.Fields[c])
			st.rowBytes += n.stats[c].bytes
		}
	}
	st.detail = []string{n.table.Describe(), "columns: " + listOf(st.schema.Names())}
	for _, p := range n.prune {
		st.detail = append(st.detail, "skips row groups without: "+describePredicate(n.schema, p))
	}
	return st, lay, nil
}

func (n *filterNode) lower(need required) (*stage, layout, error) {
	pred := expr.And(n.conjuncts...)
	in, lay, err := lower(n.in, need.with(pred.Columns()...))
	if err != nil {
		return nil, nil, err
	}
	prog, inputs, err := expr.Compile(in.schema, lay.remap(pred))
	if err != nil {
		return nil, nil, &job.Diagnostic{Step: n.step, Msg: err.Error()}
	}
	st := &stage{step: n.step, kind: "filter", rows: n.rows, inputs: []*stage{in}, schema: &gpu.Schema{}}
	var keep []int
	out := make(layout, len(need))
	for c, used := range need {
		out[c] = -1
		if used {
			out[c] = len(keep)
			keep = append(keep, lay[c])
			st.schema.Fields = append(st.schema.Fields, in.schema.Fields[lay[c]])
		}
	}
	st.detail = []string{pred.String()}
	st.make = func() (operators.Operator, error) { return filter.New(in.schema, prog, inputs, keep), nil }
	return st, out, nil
}

func (n *projectNode) lower(need required) (*stage, layout, error) {
	below := make(required, n.in.rel().schema.Len())
	bare := true
	for c, used := range need {
		if !used {
			continue
		}
		for _, in := range n.exprs[c].Columns() {
			below[in] = true
		}
		_, col := n.exprs[c].IsColumn()
		bare = bare && col
	}
	in, lay, err := lower(n.in, below)
	if err != nil {
		return nil, nil, err
	}
	out := make(layout, len(need))
	if bare {
		for c, used := range need {
			out[c] = -1
			if used {
				out[c] = lay[n.source(c)]
			}
		}
		return in, out, nil
	}
	st := &stage{step: n.step, kind: "project", rows: n.rows, inputs: []*stage{in}, schema: &gpu.Schema{}}
	var exprs []*expr.Expr
	for c, used := range need {
		out[c] = -1
		if !used {
			continue
		}
		out[c] = len(exprs)
		exprs = append(exprs, lay.remap(n.exprs[c]))
		st.schema.Fields = append(st.schema.Fields, n.schema.Fields[c])
		if _, col := n.exprs[c].IsColumn(); !col {
			st.detail = append(st.detail, fmt.Sprintf("%s: %v %v", n.schema.Fields[c].Name, n.exprs[c], n.exprs[c].Type()))
		}
	}
	prog, inputs, err := expr.Compile(in.schema, exprs...)
	if err != nil {
		return nil, nil, &job.Diagnostic{Step: n.step, Msg: err.Error()}
	}
	st.make = func() (operators.Operator, error) { return project.New(st.schema, prog, inputs), nil }
	return st, out, nil
}

func (n *joinNode) lower(need required) (*stage, layout, error) {
	nleft := n.left.rel().schema.Len()
	needLeft, needRight := need[:nleft], make(required, n.right.rel().schema.Len())
	copy(needRight, need[nleft:])
	left, leftLay, err := lower(n.left, needLeft.with(n.leftKeys...))
	if err != nil {
		return nil, nil, err
	}
	right, rightLay, err := lower(n.right, needRight.with(n.rightKeys...))
	if err != nil {
		return nil, nil, err
	}
	st := &stage{step: n.step, kind: n.kind.String() + " join", rows: n.rows, schema: &gpu.Schema{}}
	spec := join.Spec{Kind: n.kind, NullSafe: n.nullSafe, Out: st.schema}
	out := make(layout, len(need))
	take := func(side *stage, lay layout, from int, cols required) (at []int) {
		for c, used := range cols {
			out[from+c] = -1
			if used {
				out[from+c] = len(st.schema.Fields)
				at = append(at, lay[c])
				st.schema.Fields = append(st.schema.Fields, n.schema.Fields[from+c])
			}
		}
		return at
	}
	if n.kind == gpu.Semi || n.kind == gpu.Anti {
		needRight = nil
	}
	leftKeys, rightKeys := leftLay.all(n.leftKeys), rightLay.all(n.rightKeys)
	built := right
	if n.buildLeft {
		built = left
		spec.Probe, spec.ProbeKeys, spec.ProbeOut = right.schema, rightKeys, take(right, rightLay, nleft, needRight)
		spec.Build, spec.BuildKeys, spec.BuildOut = left.schema, leftKeys, take(left, leftLay, 0, needLeft)
		st.inputs = []*stage{right, left}
	} else {
		spec.Probe, spec.ProbeKeys, spec.ProbeOut = left.schema, leftKeys, take(left, leftLay, 0, needLeft)
		spec.Build, spec.BuildKeys, spec.BuildOut = right.schema, rightKeys, take(right, rightLay, nleft, needRight)
		st.inputs = []*stage{left, right}
	}
	ln, rn := n.left.rel().schema.Names(), n.right.rel().schema.Names()
	for i := range n.leftKeys {
		op := "="
		if n.nullSafe[i] {
			op = "IS NOT DISTINCT FROM"
		}
		st.detail = append(st.detail, fmt.Sprintf("%s %s %s", ln[n.leftKeys[i]], op, rn[n.rightKeys[i]]))
	}
	st.detail = append(st.detail, fmt.Sprintf("builds %s: %s", built.step, n.why))
	st.make = func() (operators.Operator, error) { return join.New(spec) }
	return st, out, nil
}

func (n *groupNode) lower(need required) (*stage, layout, error) {
	below := make(required, n.in.rel().schema.Len()).with(n.keys...)
	for i, a := range n.aggregates {
		if need[len(n.keys)+i] && a.input >= 0 {
			below[a.input] = true
		}
	}
	in, lay, err := lower(n.in, below)
	if err != nil {
		return nil, nil, err
	}
	st := &stage{step: n.step, kind: "group", rows: n.rows, inputs: []*stage{in}, schema: &gpu.Schema{}}
	spec := groupby.Spec{In: in.schema, Keys: lay.all(n.keys), Out: st.schema, Hint: n.hint}
	out := make(layout, len(need))
	var names []string
	for c := range out {
		out[c] = -1
		isKey := c < len(n.keys)
		if !isKey && !need[c] {
			continue
		}
		out[c] = len(st.schema.Fields)
		st.schema.Fields = append(st.schema.Fields, n.schema.Fields[c])
		if isKey {
			names = append(names, n.schema.Fields[c].Name)
			continue
		}
		a := n.aggregates[c-len(n.keys)]
		agg := groupby.Aggregate{Kind: a.kind, Input: -1, Output: a.output}
		if a.input >= 0 {
			agg.Input = lay[a.input]
		}
		spec.Aggregates = append(spec.Aggregates, agg)
		st.detail = append(st.detail, n.schema.Fields[c].Name)
	}
	by := "one group"
	if len(names) > 0 {
		by = "by " + strings.Join(names, ", ")
	}
	if n.hint.Dense {
		by += fmt.Sprintf(" (indexed directly: %d to %d)", n.hint.Lo, n.hint.Hi)
	}
	st.detail = append([]string{by}, st.detail...)
	st.make = func() (operators.Operator, error) { return groupby.New(spec) }
	return st, out, nil
}

func (n *sortNode) lower(need required) (*stage, layout, error) {
	var cols []int
	for _, k := range n.keys {
		cols = append(cols, k.column)
	}
	in, lay, err := lower(n.in, need.with(cols...))
	if err != nil {
		return nil, nil, err
	}
	spec := sort.Spec{In: in.schema, Offset: n.offset, Limit: n.limit}
	st := &stage{step: n.step, kind: "sort", rows: n.rows, inputs: []*stage{in}, schema: in.schema}
	var keys []string
	for _, k := range n.keys {
		spec.Keys = append(spec.Keys, sort.Key{Column: lay[k.column], Descending: k.descending, NullsFirst: k.nullsFirst})
		keys = append(keys, describeKey(n.schema, k))
	}
	st.detail = []string{strings.Join(keys, ", ")}
	if n.limit >= 0 {
		st.kind = "top-k"
		st.detail = append(st.detail, limitDetail(n.offset, n.limit)...)
	}
	st.make = func() (operators.Operator, error) { return sort.New(spec) }
	return st, lay, nil
}

func (n *unionNode) lower(need required) (*stage, layout, error) {
	st := &stage{step: n.step, kind: "union", rows: n.rows, schema: &gpu.Schema{}}
	out := make(layout, len(need))
	for c, used := range need {
		out[c] = -1
		if used {
			out[c] = len(st.schema.Fields)
			st.schema.Fields = append(st.schema.Fields, n.schema.Fields[c])
		}
	}
	for _, in := range n.ins {
		child, lay, err := lower(in, need)
		if err != nil {
			return nil, nil, err
		}
		st.inputs = append(st.inputs, child)
		st.permutation = append(st.permutation, lay.all(need.list()))
	}
	return st, out, nil
}
