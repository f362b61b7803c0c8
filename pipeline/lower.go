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
	"github.com/gstream/gstream/pipeline/internal/logical"
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

// rowBytes is the width of a row, strings counted as 16 bytes.
func rowBytes(s *gpu.Schema) int {
	n := 0
	for _, f := range s.Fields {
		if f.Type.IsVar() {
			n += 16
		}
		n += f.Type.Width()
	}
	return n
}

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
func lower(n logical.Node, need required) (*stage, layout, error) {
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

func lowerNode(n logical.Node, need required) (*stage, layout, error) {
	switch n := n.(type) {
	case *logical.Scan:
		return lowerScan(n, need)
	case *logical.Filter:
		return lowerFilter(n, need)
	case *logical.Project:
		return lowerProject(n, need)
	case *logical.Join:
		return lowerJoin(n, need)
	case *logical.Group:
		return lowerGroup(n, need)
	case *logical.Sort:
		return lowerSort(n, need)
	case *logical.Limit:
		return lowerLimit(n, need)
	case *logical.Union:
		return lowerUnion(n, need)
	}
	panic("pipeline: unknown node")
}

func lowerScan(n *logical.Scan, need required) (*stage, layout, error) {
	st := &stage{step: n.Step, kind: "scan", rows: n.Rows, table: n.Table, prune: n.Prune, schema: &gpu.Schema{}}
	lay := make(layout, len(need))
	for c, used := range need {
		lay[c] = -1
		if used {
			lay[c] = len(st.columns)
			st.columns = append(st.columns, c)
			st.schema.Fields = append(st.schema.Fields, n.Schema.Fields[c])
			st.rowBytes += n.Stats[c].Bytes
		}
	}
	st.detail = []string{n.Table.Describe(), "columns: " + listOf(st.schema.Names())}
	for _, p := range n.Prune {
		st.detail = append(st.detail, "skips row groups without: "+describePredicate(n.Schema, p))
	}
	return st, lay, nil
}

func lowerFilter(n *logical.Filter, need required) (*stage, layout, error) {
	pred := expr.And(n.Conjuncts...)
	in, lay, err := lower(n.In, need.with(pred.Columns()...))
	if err != nil {
		return nil, nil, err
	}
	prog, inputs, err := expr.Compile(in.schema, lay.remap(pred))
	if err != nil {
		return nil, nil, &job.Diagnostic{Step: n.Step, Msg: err.Error()}
	}
	st := &stage{step: n.Step, kind: "filter", rows: n.Rows, inputs: []*stage{in}, schema: &gpu.Schema{}}
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

func lowerProject(n *logical.Project, need required) (*stage, layout, error) {
	below := make(required, n.In.Rel().Schema.Len())
	bare := true
	for c, used := range need {
		if !used {
			continue
		}
		for _, in := range n.Exprs[c].Columns() {
			below[in] = true
		}
		_, col := n.Exprs[c].IsColumn()
		bare = bare && col
	}
	in, lay, err := lower(n.In, below)
	if err != nil {
		return nil, nil, err
	}
	out := make(layout, len(need))
	if bare {
		for c, used := range need {
			out[c] = -1
			if used {
				out[c] = lay[n.Source(c)]
			}
		}
		return in, out, nil
	}
	st := &stage{step: n.Step, kind: "project", rows: n.Rows, inputs: []*stage{in}, schema: &gpu.Schema{}}
	var exprs []*expr.Expr
	for c, used := range need {
		out[c] = -1
		if !used {
			continue
		}
		out[c] = len(exprs)
		exprs = append(exprs, lay.remap(n.Exprs[c]))
		st.schema.Fields = append(st.schema.Fields, n.Schema.Fields[c])
		if _, col := n.Exprs[c].IsColumn(); !col {
			st.detail = append(st.detail, fmt.Sprintf("%s: %v %v", n.Schema.Fields[c].Name, n.Exprs[c], n.Exprs[c].Type()))
		}
	}
	prog, inputs, err := expr.Compile(in.schema, exprs...)
	if err != nil {
		return nil, nil, &job.Diagnostic{Step: n.Step, Msg: err.Error()}
	}
	st.make = func() (operators.Operator, error) { return project.New(st.schema, prog, inputs), nil }
	return st, out, nil
}

func lowerJoin(n *logical.Join, need required) (*stage, layout, error) {
	nleft := n.Left.Rel().Schema.Len()
	needLeft, needRight := need[:nleft], make(required, n.Right.Rel().Schema.Len())
	copy(needRight, need[nleft:])
	left, leftLay, err := lower(n.Left, needLeft.with(n.LeftKeys...))
	if err != nil {
		return nil, nil, err
	}
	right, rightLay, err := lower(n.Right, needRight.with(n.RightKeys...))
	if err != nil {
		return nil, nil, err
	}
	st := &stage{step: n.Step, kind: n.Kind.String() + " join", rows: n.Rows, schema: &gpu.Schema{}}
	spec := join.Spec{Kind: n.Kind, NullSafe: n.NullSafe, Out: st.schema}
	out := make(layout, len(need))
	take := func(side *stage, lay layout, from int, cols required) (at []int) {
		for c, used := range cols {
			out[from+c] = -1
			if used {
				out[from+c] = len(st.schema.Fields)
				at = append(at, lay[c])
				st.schema.Fields = append(st.schema.Fields, n.Schema.Fields[from+c])
			}
		}
		return at
	}
	if n.Kind == gpu.Semi || n.Kind == gpu.Anti {
		needRight = nil
	}
	leftKeys, rightKeys := leftLay.all(n.LeftKeys), rightLay.all(n.RightKeys)
	built := right
	if n.BuildLeft {
		built = left
		spec.Probe, spec.ProbeKeys, spec.ProbeOut = right.schema, rightKeys, take(right, rightLay, nleft, needRight)
		spec.Build, spec.BuildKeys, spec.BuildOut = left.schema, leftKeys, take(left, leftLay, 0, needLeft)
		st.inputs = []*stage{right, left}
	} else {
		spec.Probe, spec.ProbeKeys, spec.ProbeOut = left.schema, leftKeys, take(left, leftLay, 0, needLeft)
		spec.Build, spec.BuildKeys, spec.BuildOut = right.schema, rightKeys, take(right, rightLay, nleft, needRight)
		st.inputs = []*stage{left, right}
	}
	ln, rn := n.Left.Rel().Schema.Names(), n.Right.Rel().Schema.Names()
	for i := range n.LeftKeys {
		op := "="
		if n.NullSafe[i] {
			op = "IS NOT DISTINCT FROM"
		}
		st.detail = append(st.detail, fmt.Sprintf("%s %s %s", ln[n.LeftKeys[i]], op, rn[n.RightKeys[i]]))
	}
	st.detail = append(st.detail, fmt.Sprintf("builds %s: %s", built.step, n.Why))
	st.make = func() (operators.Operator, error) { return join.New(spec) }
	return st, out, nil
}

func lowerGroup(n *logical.Group, need required) (*stage, layout, error) {
	below := make(required, n.In.Rel().Schema.Len()).with(n.Keys...)
	for i, a := range n.Aggregates {
		if need[len(n.Keys)+i] && a.Input >= 0 {
			below[a.Input] = true
		}
	}
	in, lay, err := lower(n.In, below)
	if err != nil {
		return nil, nil, err
	}
	st := &stage{step: n.Step, kind: "group", rows: n.Rows, inputs: []*stage{in}, schema: &gpu.Schema{}}
	spec := groupby.Spec{In: in.schema, Keys: lay.all(n.Keys), Out: st.schema, Hint: n.Hint}
	out := make(layout, len(need))
	var names []string
	for c := range out {
		out[c] = -1
		isKey := c < len(n.Keys)
		if !isKey && !need[c] {
			continue
		}
		out[c] = len(st.schema.Fields)
		st.schema.Fields = append(st.schema.Fields, n.Schema.Fields[c])
		if isKey {
			names = append(names, n.Schema.Fields[c].Name)
			continue
		}
		a := n.Aggregates[c-len(n.Keys)]
		agg := groupby.Aggregate{Kind: a.Kind, Input: -1, Output: a.Output}
		if a.Input >= 0 {
			agg.Input = lay[a.Input]
		}
		spec.Aggregates = append(spec.Aggregates, agg)
		st.detail = append(st.detail, n.Schema.Fields[c].Name)
	}
	by := "one group"
	if len(names) > 0 {
		by = "by " + strings.Join(names, ", ")
	}
	if n.Hint.Dense {
		by += fmt.Sprintf(" (indexed directly: %d to %d)", n.Hint.Lo, n.Hint.Hi)
	}
	st.detail = append([]string{by}, st.detail...)
	st.make = func() (operators.Operator, error) { return groupby.New(spec) }
	return st, out, nil
}

func lowerSort(n *logical.Sort, need required) (*stage, layout, error) {
	var cols []int
	for _, k := range n.Keys {
		cols = append(cols, k.Column)
	}
	in, lay, err := lower(n.In, need.with(cols...))
	if err != nil {
		return nil, nil, err
	}
	spec := sort.Spec{In: in.schema, Offset: n.Offset, Limit: n.Limit}
	st := &stage{step: n.Step, kind: "sort", rows: n.Rows, inputs: []*stage{in}, schema: in.schema}
	var keys []string
	for _, k := range n.Keys {
		spec.Keys = append(spec.Keys, sort.Key{Column: lay[k.Column], Descending: k.Descending, NullsFirst: k.NullsFirst})
		keys = append(keys, describeKey(n.Schema, k))
	}
	st.detail = []string{strings.Join(keys, ", ")}
	if n.Limit >= 0 {
		st.kind = "top-k"
		st.detail = append(st.detail, limitDetail(n.Offset, n.Limit)...)
	}
	st.make = func() (operators.Operator, error) { return sort.New(spec) }
	return st, lay, nil
}

func lowerLimit(n *logical.Limit, need required) (*stage, layout, error) {
	in, lay, err := lower(n.In, need)
	if err != nil {
		return nil, nil, err
	}
	st := &stage{step: n.Step, kind: "limit", schema: in.schema, rows: n.Rows, inputs: []*stage{in}}
	st.detail = limitDetail(n.Offset, n.Count)
	st.make = func() (operators.Operator, error) { return limit.New(in.schema, n.Offset, n.Count), nil }
	return st, lay, nil
}

func lowerUnion(n *logical.Union, need required) (*stage, layout, error) {
	st := &stage{step: n.Step, kind: "union", rows: n.Rows, schema: &gpu.Schema{}}
	out := make(layout, len(need))
	for c, used := range need {
		out[c] = -1
		if used {
			out[c] = len(st.schema.Fields)
			st.schema.Fields = append(st.schema.Fields, n.Schema.Fields[c])
		}
	}
	for _, in := range n.Ins {
		child, lay, err := lower(in, need)
		if err != nil {
			return nil, nil, err
		}
		st.inputs = append(st.inputs, child)
		st.permutation = append(st.permutation, lay.all(need.list()))
	}
	return st, out, nil
}
