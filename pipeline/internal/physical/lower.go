package physical

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expand"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/job"
)

// layout maps the position of a node's column to its position in the stage's strides, or
// to -1.
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

// with returns the set with more columns.
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

// fields returns the schema of the columns of the set, and where in it each column is.
func (n required) fields(schema *gpu.Schema) (*gpu.Schema, layout) {
	out, at := &gpu.Schema{}, make(layout, len(n))
	for c, used := range n {
		at[c] = -1
		if used {
			at[c] = len(out.Fields)
			out.Fields = append(out.Fields, schema.Fields[c])
		}
	}
	return out, at
}

// Lower decides how the rows of a logical plan are computed. The error is a
// *job.Diagnostic of the step whose operator refuses it.
func Lower(name string, n logical.Node) (*Plan, error) {
	schema := n.Rel().Schema
	all := slices.Repeat(required{true}, schema.Len())
	l := &lowering{looking: true, held: map[*logical.Share]*holding{}}
	root, at, err := l.lower(n, all)
	if l.looking = false; err == nil && len(l.held) > 0 {
		for _, h := range l.held {
			h.stage = nil
		}
		l.countReaders(n)
		root, at, err = l.lower(n, all)
	}
	if err != nil {
		return nil, err
	}
	root.order(false)
	return &Plan{Name: name, Root: root, Permutation: at, Schema: schema}, nil
}

// lowering lowers one plan. When it finds steps whose rows are held, it does so twice: the first
// time it looks which of their columns are used, and by how many.
type lowering struct {
	looking bool
	held    map[*logical.Share]*holding
}

// countReaders counts the readers of held steps.
func (l *lowering) countReaders(n logical.Node) {
	if held, ok := n.(*logical.Held); ok {
		h := l.held[held.Share]
		if h == nil { // it is below a join that goes
			return
		}
		if h.readers++; h.readers > 1 {
			return
		}
	}
	for _, in := range logical.Inputs(n) {
		l.countReaders(in)
	}
}

// holding is a step whose rows are held.
type holding struct {
	readers int
	need    required // columns that a reader uses
	stage   *Stage   // of the first reader
	lay     layout
}

// order tells the joins below a group-by that nobody sees the order of their rows: that of
// groups is not defined, and few aggregates depend on the order of their values. Sorts are
// stable, limits count rows, and window functions depend on the order of rows with equal
// keys, so the order of their input is seen. any says that the
// order of the rows of this stage is not.
func (s *Stage) order(any bool) {
	switch spec := s.Spec.(type) {
	case *Join:
		spec.Spec.AnyOrder = any
	case *Group:
		any = spec.Sorted == nil // an aggregate may depend on the order of its values
	case *Sort, *Limit, *Window, *Hold:
		any = false
	}
	for _, in := range s.Inputs {
		in.order(any)
	}
}

// lower makes the stages that compute the needed columns of a node. Columns are pruned
// here: no unused column is read, carried or computed. A projection that only picks or
// renames columns costs nothing.
func (l *lowering) lower(n logical.Node, need required) (*Stage, layout, error) {
	st, lay, err := l.lowerNode(n, need)
	if err != nil {
		return nil, nil, err
	}
	if st.At == "" {
		st.At = n.Rel().Step
	}
	if st.RowBytes == 0 {
		st.RowBytes = rowBytes(st.Schema, lay, n.Rel().Stats)
	}
	// The operator is made once here, so that it refuses a step before the run.
	if _, err := st.Spec.Operator(gpu.Capabilities{Leaders: true}); err != nil {
		return nil, nil, &job.Diagnostic{Step: st.Step, Msg: err.Error()}
	}
	return st, lay, nil
}

// writtenAt returns the step, or the steps, where expressions were written: step if nobody
// knows, or if all are columns.
func writtenAt(list []*expr.Expr, step string) string {
	var steps []string
	seen := map[string]bool{}
	for _, e := range list {
		if o := e.Origin(); o != nil && !seen[o.Step] {
			seen[o.Step] = true
			steps = append(steps, o.Step)
		}
	}
	return cmp.Or(strings.Join(steps, ", "), step)
}

// failures returns where the expressions were written that may fail in a program.
func failures(p *gpu.Program, list ...*expr.Expr) map[string]expr.Origin {
	if !slices.ContainsFunc(list, (*expr.Expr).MayFail) {
		return nil
	}
	out := map[string]expr.Origin{}
	for _, in := range p.Code {
		if in.Text != "" {
			out[in.Text] = expr.Origin{}
		}
	}
	for _, e := range list {
		e.Origins(out)
	}
	maps.DeleteFunc(out, func(_ string, o expr.Origin) bool { return o == expr.Origin{} })
	return out
}

// rowBytes estimates the bytes of a row of a stage's strides: for a string by the statistics of
// its node's column.
func rowBytes(schema *gpu.Schema, lay layout, stats []logical.ColumnStats) float64 {
	bytes := make([]float64, schema.Len())
	for i, f := range schema.Fields {
		bytes[i] = float64(gpu.NewSchema(f).RowBytes())
	}
	for c, at := range lay {
		if at >= 0 && schema.Fields[at].Type.IsVar() && stats[c].Bytes > 0 {
			bytes[at] = stats[c].Bytes
		}
	}
	sum := 0.0
	for _, b := range bytes {
		sum += b
	}
	return sum
}

func (l *lowering) lowerNode(n logical.Node, need required) (*Stage, layout, error) {
	switch n := n.(type) {
	case *logical.Scan:
		return l.lowerScan(n, need)
	case *logical.Filter:
		return l.lowerFilter(n, need)
	case *logical.Project:
		return l.lowerProject(n, need)
	case *logical.Join:
		return l.lowerJoin(n, need)
	case *logical.Expand:
		return l.lowerExpand(n, need)
	case *logical.Group:
		return l.lowerGroup(n, need)
	case *logical.Window:
		return l.lowerWindow(n, need)
	case *logical.Sort:
		return l.lowerSort(n, need)
	case *logical.Limit:
		return l.lowerLimit(n, need)
	case *logical.Union:
		return l.lowerUnion(n, need)
	case *logical.Held:
		return l.lowerHeld(n, need)
	}
	panic("physical: unknown node")
}

func (l *lowering) lowerScan(n *logical.Scan, need required) (*Stage, layout, error) {
	scan := &Scan{Source: n.Step, Prune: n.Prune, Table: n.Table}
	st := &Stage{Step: n.Step, Spec: scan, Rows: n.Rows, Schema: &gpu.Schema{}}
	lay := make(layout, len(need))
	for c, used := range need {
		lay[c] = -1
		if used {
			lay[c] = len(scan.Columns)
			scan.Columns = append(scan.Columns, c)
			st.Schema.Fields = append(st.Schema.Fields, n.Schema.Fields[c])
			st.RowBytes += n.Stats[c].Bytes
		}
	}
	st.Detail = []string{n.Table.Describe(), "columns: " + listOf(st.Schema.Names())}
	for i, p := range n.Prune {
		st.Detail = append(st.Detail, "skips row groups without: "+describePredicate(n.Schema, p, n.Hidden[i]))
	}
	return st, lay, nil
}

func (l *lowering) lowerFilter(n *logical.Filter, need required) (*Stage, layout, error) {
	pred := expr.And(n.Conjuncts...)
	in, lay, err := l.lower(n.In, need.with(pred.Columns()...))
	if err != nil {
		return nil, nil, err
	}
	condition := lay.remap(expr.AllTrue(n.Conjuncts...))
	prog, inputs, err := expr.Compile(in.Schema, condition)
	if err != nil {
		return nil, nil, &job.Diagnostic{Step: n.Step, Msg: err.Error()}
	}
	st := &Stage{Step: writtenAt(n.Conjuncts, n.Step), Rows: n.Rows, Inputs: []*Stage{in}, Schema: &gpu.Schema{},
		Failures: failures(prog, condition)}
	var keep []int
	out := make(layout, len(need))
	for c, used := range need {
		out[c] = -1
		if used {
			out[c] = len(keep)
			keep = append(keep, lay[c])
			st.Schema.Fields = append(st.Schema.Fields, in.Schema.Fields[lay[c]])
		}
	}
	st.Detail, st.From, st.Cost = []string{pred.String()}, keep, streamCost
	if n.Sampled > 0 {
		st.Detail = append(st.Detail, fmt.Sprintf("estimated from %s sampled rows", humanize.Comma(int64(n.Sampled))))
	}
	st.Spec = &Filter{In: in.Schema, Program: prog, Inputs: inputs, Keep: keep}
	return st, out, nil
}

func (l *lowering) lowerProject(n *logical.Project, need required) (*Stage, layout, error) {
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
	in, lay, err := l.lower(n.In, below)
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
	st := &Stage{Rows: n.Rows, Inputs: []*Stage{in}, Schema: &gpu.Schema{}, Cost: streamCost}
	var exprs []*expr.Expr
	for c, used := range need {
		out[c] = -1
		if !used {
			continue
		}
		out[c] = len(exprs)
		exprs = append(exprs, lay.remap(n.Exprs[c]))
		from := -1
		if in, bare := exprs[len(exprs)-1].IsColumn(); bare {
			from = in
		}
		st.From = append(st.From, from)
		st.Schema.Fields = append(st.Schema.Fields, n.Schema.Fields[c])
		if _, col := n.Exprs[c].IsColumn(); !col {
			st.Computed++
			st.Detail = append(st.Detail, fmt.Sprintf("%s: %v %v", n.Schema.Fields[c].Name, n.Exprs[c],
				n.Exprs[c].Type()))
		}
	}
	prog, inputs, err := expr.Compile(in.Schema, exprs...)
	if err != nil {
		return nil, nil, &job.Diagnostic{Step: n.Step, Msg: err.Error()}
	}
	st.Step, st.Failures = writtenAt(exprs, n.Step), failures(prog, exprs...)
	st.Spec = &Project{Out: st.Schema, Program: prog, Inputs: inputs}
	return st, out, nil
}

func (l *lowering) lowerJoin(n *logical.Join, need required) (*Stage, layout, error) {
	nleft := n.Left.Rel().Schema.Len()
	needLeft, needRight := need[:nleft], make(required, n.Right.Rel().Schema.Len())
	if n.Kind.Pairs() {
		copy(needRight, need[nleft:])
	}
	compared := expr.And(n.Residual...).Columns() // of the left side, then of the right
	split, _ := slices.BinarySearch(compared, nleft)
	ofRight := make([]int, len(compared)-split)
	for i, c := range compared[split:] {
		ofRight[i] = c - nleft
	}
	keyLeft, keyRight := n.LeftKeys, n.RightKeys
	if n.Range != nil {
		key, bounds := []int{n.Range.Key}, slices.DeleteFunc([]int{n.Range.Lower, n.Range.Upper},
			func(c int) bool { return c < 0 })
		if keyLeft, keyRight = bounds, key; n.Range.Left {
			keyLeft, keyRight = key, bounds
		}
	}
	if n.Kind == join.Left && !slices.Contains(needRight, true) && n.Range == nil && !expr.And(n.Residual...).
		MayFail() && logical.Unique(n.Right, n.RightKeys) {
		// Each left row has one match at most, of which nobody sees anything.
		in, lay, err := l.lower(n.Left, needLeft)
		return in, append(lay, slices.Repeat(layout{-1}, len(needRight))...), err
	}
	left, leftLay, err := l.lower(n.Left, needLeft.with(keyLeft...).with(compared[:split]...))
	if err != nil {
		return nil, nil, err
	}
	right, rightLay, err := l.lower(n.Right, needRight.with(keyRight...).with(ofRight...))
	if err != nil {
		return nil, nil, err
	}
	st := &Stage{Step: n.Step, Rows: n.Rows, Schema: &gpu.Schema{}}
	spec := join.Spec{Kind: n.Kind, NullSafe: n.NullSafe, Out: st.Schema, Algorithm: n.Algorithm}
	out := make(layout, len(need))
	take := func(side *Stage, lay layout, from int, cols required) (at []int) {
		for c, used := range cols {
			if n.Kind.Pairs() || from == 0 {
				out[from+c] = -1
			}
			if used {
				out[from+c] = len(st.Schema.Fields)
				at = append(at, lay[c])
				st.Schema.Fields = append(st.Schema.Fields, n.Schema.Fields[from+c])
			}
		}
		return at
	}
	leftKeys, rightKeys := leftLay.all(n.LeftKeys), rightLay.all(n.RightKeys)
	built, builtKeys, probed := n.Right, n.RightKeys, n.Left
	residual := slices.Concat(leftLay, rightLay) // over the probe side, then the build side
	if n.BuildLeft {
		built, builtKeys, probed = n.Left, n.LeftKeys, n.Right
		spec.Kind = exchanged(n.Kind)
		spec.Probe, spec.ProbeKeys, spec.ProbeOut = right.Schema, rightKeys, take(right, rightLay, nleft, needRight)
		spec.Build, spec.BuildKeys, spec.BuildOut = left.Schema, leftKeys, take(left, leftLay, 0, needLeft)
		st.Inputs = []*Stage{right, left}
		for c := range leftLay {
			residual[c] += right.Schema.Len()
		}
	} else {
		spec.Probe, spec.ProbeKeys, spec.ProbeOut = left.Schema, leftKeys, take(left, leftLay, 0, needLeft)
		spec.Build, spec.BuildKeys, spec.BuildOut = right.Schema, rightKeys, take(right, rightLay, nleft, needRight)
		st.Inputs = []*Stage{left, right}
		for c := range rightLay {
			residual[nleft+c] += left.Schema.Len()
		}
	}
	if n.Kind == join.Mark {
		out[nleft] = len(st.Schema.Fields)
		st.Schema.Fields = append(st.Schema.Fields, n.Schema.Fields[nleft])
	}
	if len(n.Residual) > 0 {
		condition := residual.remap(expr.AllTrue(n.Residual...))
		if spec.Residual, err = compileResidual(spec.Probe, spec.Build, condition); err != nil {
			return nil, nil, &job.Diagnostic{Step: n.Step, Msg: err.Error()}
		}
		st.Failures = failures(spec.Residual.Program, condition)
	}
	if n.Range != nil {
		probeLay, buildLay := leftLay, rightLay
		if n.BuildLeft {
			probeLay, buildLay = rightLay, leftLay
		}
		spec.Range = &join.Range{Build: buildLay[n.Range.Key], Lower: -1, Upper: -1, LowerStrict: n.Range.LowerStrict,
			UpperStrict: n.Range.UpperStrict}
		if c := n.Range.Lower; c >= 0 {
			spec.Range.Lower = probeLay[c]
		}
		if c := n.Range.Upper; c >= 0 {
			spec.Range.Upper = probeLay[c]
		}
		st.Sorted = st.Inputs[1].Rows * float64(spec.Build.Len())
	}
	st.Pairs = n.Compared()
	spec.ProbeRows, spec.BuildRows = estimated(probed), estimated(built)
	if n.Kind == join.Inner && len(n.Residual) == 0 {
		spec.PairRows = estimated(n)
	}
	if n.Range == nil {
		spec.KeyRange = logical.KeyRange(built, builtKeys)
		spec.UniqueBuild = logical.Unique(built, builtKeys)
	}
	st.Detail = append(n.Conditions(), fmt.Sprintf("builds %s: %s", st.Inputs[1].At, n.Why))
	if n.Order != "" {
		st.Detail = append(st.Detail, n.Order)
	}
	st.Cost = n.ProbeCost()
	if !spec.Kind.KeepsBuild() {
		st.From = slices.Concat(spec.ProbeOut, slices.Repeat([]int{-1}, len(st.Schema.Fields)-len(spec.ProbeOut)))
	}
	st.Spec = &Join{What: n.Name() + " join", Spec: spec}
	filterProbe(st, spec, n.ProbeMatch())
	return st, out, nil
}

// exchanged returns the kind of a join with its sides exchanged.
func exchanged(k join.Kind) join.Kind {
	switch k {
	case join.Left:
		return join.Right
	case join.Right:
		return join.Left
	}
	return k
}

// compileResidual compiles a condition over the columns of the probe side and then of the
// build side.
func compileResidual(probe, build *gpu.Schema, condition *expr.Expr) (*join.Residual, error) {
	program, inputs, err := expr.Compile(&gpu.Schema{Fields: slices.Concat(probe.Fields, build.Fields)}, condition)
	if err != nil {
		return nil, err
	}
	r := &join.Residual{Program: program}
	for _, c := range inputs {
		if c < probe.Len() {
			r.Probe = append(r.Probe, c)
		} else {
			r.Build = append(r.Build, c-probe.Len())
		}
	}
	return r, nil
}

// estimated returns the estimated rows of a node, at least 1.
func estimated(n logical.Node) int64 { return int64(max(1, min(n.Rel().Rows, math.MaxInt64/2))) }

func (l *lowering) lowerExpand(n *logical.Expand, need required) (*Stage, layout, error) {
	width := n.In.Rel().Schema.Len() // of the columns before the number
	in, lay, err := l.lower(n.In, need[:width])
	if err != nil {
		return nil, nil, err
	}
	schema, out := need.fields(n.Schema)
	st := &Stage{Step: n.Step, Rows: n.Rows, Inputs: []*Stage{in}, Schema: schema}
	var variants []expand.Variant
	for i, nulls := range n.Variants {
		var exprs []*expr.Expr
		var kept []string
		for _, c := range need.list() {
			f := n.Schema.Fields[c]
			switch {
			case c == width:
				exprs = append(exprs, expr.Literal(gpu.IntScalar(f.Type, int64(i))))
			case slices.Contains(nulls, c):
				exprs = append(exprs, expr.Null(f))
			default:
				exprs = append(exprs, expr.Column(&expr.Scope{Schema: in.Schema}, lay[c]))
				kept = append(kept, f.Name)
			}
		}
		prog, inputs, err := expr.Compile(in.Schema, exprs...)
		if err != nil {
			return nil, nil, &job.Diagnostic{Step: n.Step, Msg: err.Error()}
		}
		variants = append(variants, expand.Variant{Program: prog, Inputs: inputs})
		st.Detail = append(st.Detail, "each row once with "+cmp.Or(strings.Join(kept, ", "), "nulls alone"))
	}
	st.Spec = &Expand{Out: st.Schema, Variants: variants}
	return st, out, nil
}

func (l *lowering) lowerGroup(n *logical.Group, need required) (*Stage, layout, error) {
	below := make(required, n.In.Rel().Schema.Len()).with(n.Keys...)
	for i, a := range n.Aggregates {
		if need[len(n.Keys)+i] {
			below = below.with(a.Columns()...)
		}
	}
	in, lay, err := l.lower(n.In, below)
	if err != nil {
		return nil, nil, err
	}
	st := &Stage{Step: n.Step, Rows: n.Rows, Inputs: []*Stage{in}, Schema: &gpu.Schema{}}
	spec := groupby.Spec{In: in.Schema, Keys: lay.all(n.Keys), Out: st.Schema, Hint: n.Hint, Algorithm: n.Algorithm,
		Always: n.Always}
	sorted := window.GroupSpec{In: in.Schema, Keys: spec.Keys, Out: st.Schema, Always: n.Always}
	out := make(layout, len(need))
	var names []string
	for c := range out {
		out[c] = -1
		isKey := c < len(n.Keys)
		if !isKey && !need[c] {
			continue
		}
		out[c] = len(st.Schema.Fields)
		st.Schema.Fields = append(st.Schema.Fields, n.Schema.Fields[c])
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
		if a.Sorted != nil {
			sorted.Functions = append(sorted.Functions, a.Sorted.Remap(func(c int) int { return lay[c] }))
		}
		st.Detail = append(st.Detail, n.Schema.Fields[c].Name)
	}
	by := "one group"
	if len(names) > 0 {
		by = "by " + strings.Join(names, ", ")
	}
	if len(sorted.Functions) > 0 {
		list, ok := accumulated(sorted.Functions)
		few := n.In.Rel().Rows < leaderRows*float64(n.Hint.Groups) &&
			slices.ContainsFunc(list, func(a groupby.Aggregate) bool { return a.Leader != nil })
		if !ok || few {
			st.Spec, st.Detail = &Group{Sorted: &sorted}, append([]string{by, sortsGroups}, st.Detail...)
			return st, out, nil
		}
		spec.Aggregates = list
		st.Spec, st.Detail = &Group{Hash: &spec, Sorted: &sorted}, append([]string{by}, st.Detail...)
		return st, out, nil
	}
	if n.Hint.Dense {
		by += fmt.Sprintf(" (indexed directly: %d to %d)", n.Hint.Lo, n.Hint.Hi)
	}
	st.Spec, st.Detail = &Group{Hash: &spec}, append([]string{by}, st.Detail...)
	return st, out, nil
}

// leaderRows is the least number of rows a group, by estimate, for which a device that can keeps the leaders of groups.
// With fewer, sorting all rows costs less.
const leaderRows = 16

// accumulated returns functions as aggregates that a device with leaders accumulates, if it can: those that one row of
// a group decides, products, and all that need no order.
func accumulated(functions []window.GroupFunction) (list []groupby.Aggregate, ok bool) {
	for _, f := range functions {
		a := groupby.Aggregate{Kind: gpu.Lead, Input: f.Value, Output: f.Output}
		leader := &groupby.Leader{Order: slices.Clone(f.Order), Filter: f.Filter}
		switch {
		case f.Distinct:
			return nil, false
		case f.Kind == window.Aggregate:
			a.Kind, leader = f.Aggregate, nil
		case f.Kind == window.FirstValue:
		case f.Kind == window.LastValue: // the first one in reverse
			leader.Last = true
			for i, k := range leader.Order {
				leader.Order[i].Descending, leader.Order[i].NullsFirst = !k.Descending, !k.NullsFirst
			}
		case f.Kind == window.ArgMin || f.Kind == window.ArgMax:
			leader.Order = append([]sort.Key{{Column: f.Key, Descending: f.Kind == window.ArgMax}}, f.Order...)
			leader.Columns = []int{f.Key, f.Value}
		default:
			return nil, false
		}
		if f.IgnoreNulls {
			leader.Columns = append(leader.Columns, f.Value)
		}
		a.Leader = leader
		list = append(list, a)
	}
	return list, true
}

func (l *lowering) lowerWindow(n *logical.Window, need required) (*Stage, layout, error) {
	width := n.In.Rel().Schema.Len()
	if !slices.Contains(need[width:], true) {
		in, lay, err := l.lower(n.In, need[:width])
		return in, append(lay, slices.Repeat(layout{-1}, len(n.Functions))...), err
	}
	below := need[:width].with(n.Partition...)
	for _, k := range n.Order {
		below[k.Column] = true
	}
	for i, f := range n.Functions {
		if need[width+i] {
			below = below.with(f.Columns()...)
		}
	}
	in, lay, err := l.lower(n.In, below)
	if err != nil {
		return nil, nil, err
	}
	st := &Stage{Step: n.Step, Rows: n.Rows, Inputs: []*Stage{in}}
	var out layout
	st.Schema, out = need.fields(n.Schema)
	spec := window.Spec{In: in.Schema, Partition: lay.all(n.Partition), Keep: lay.all(need[:width].list()),
		Out: st.Schema}
	var partition, order []string
	for _, k := range n.Partition {
		partition = append(partition, n.Schema.Fields[k].Name)
	}
	for _, k := range n.Order {
		spec.Order = append(spec.Order, sort.Key{Column: lay[k.Column], Descending: k.Descending,
			NullsFirst: k.NullsFirst})
		order = append(order, describeKey(n.Schema, k))
	}
	if len(partition) > 0 {
		st.Detail = append(st.Detail, "partition by "+strings.Join(partition, ", "))
	}
	if len(order) > 0 {
		st.Detail = append(st.Detail, "order by "+strings.Join(order, ", "))
	}
	for i, f := range n.Functions {
		if need[width+i] {
			spec.Functions = append(spec.Functions, f.Remap(func(c int) int { return lay[c] }))
			st.Detail = append(st.Detail, n.Schema.Fields[width+i].Name)
		}
	}
	st.Spec = &Window{spec}
	return st, out, nil
}

func (l *lowering) lowerSort(n *logical.Sort, need required) (*Stage, layout, error) {
	var cols []int
	for _, k := range n.Keys {
		cols = append(cols, k.Column)
	}
	in, lay, err := l.lower(n.In, need.with(cols...))
	if err != nil {
		return nil, nil, err
	}
	spec := sort.Spec{In: in.Schema, Offset: n.Offset, Limit: n.Limit}
	st := &Stage{Step: n.Step, Rows: n.Rows, Inputs: []*Stage{in}, Schema: in.Schema}
	var keys []string
	for _, k := range n.Keys {
		spec.Keys = append(spec.Keys, sort.Key{Column: lay[k.Column], Descending: k.Descending,
			NullsFirst: k.NullsFirst})
		keys = append(keys, describeKey(n.Schema, k))
	}
	st.Detail = []string{strings.Join(keys, ", ")}
	if n.Limit >= 0 {
		st.Detail = append(st.Detail, limitDetail(n.Offset, n.Limit)...)
	}
	st.Spec = &Sort{spec}
	return st, lay, nil
}

func (l *lowering) lowerLimit(n *logical.Limit, need required) (*Stage, layout, error) {
	in, lay, err := l.lower(n.In, need)
	if err != nil {
		return nil, nil, err
	}
	st := &Stage{Step: n.Step, Spec: &Limit{in.Schema, n.Offset, n.Count}, Schema: in.Schema, Rows: n.Rows,
		Inputs: []*Stage{in}}
	st.Detail = limitDetail(n.Offset, n.Count)
	return st, lay, nil
}

func (l *lowering) lowerUnion(n *logical.Union, need required) (*Stage, layout, error) {
	schema, out := need.fields(n.Schema)
	union := &Union{}
	st := &Stage{Step: n.Step, Spec: union, Rows: n.Rows, Schema: schema}
	for _, in := range n.Ins {
		child, lay, err := l.lower(in, need)
		if err != nil {
			return nil, nil, err
		}
		st.Inputs = append(st.Inputs, child)
		union.Columns = append(union.Columns, lay.all(need.list()))
	}
	return st, out, nil
}

// lowerHeld makes the first reader of a step hold its rows, and the others read them there.
func (l *lowering) lowerHeld(n *logical.Held, need required) (*Stage, layout, error) {
	h := l.held[n.Share]
	if h == nil {
		h = &holding{need: make(required, len(need))}
		l.held[n.Share] = h
	}
	if l.looking {
		grown := h.stage == nil
		for c, used := range need {
			grown = grown || used && !h.need[c]
			h.need[c] = h.need[c] || used
		}
		if grown { // else what is below needs no more columns than before
			var err error
			if h.stage, h.lay, err = l.lower(n.In, h.need); err != nil {
				return nil, nil, err
			}
		}
		return h.stage, h.lay, nil
	}
	if h.readers == 1 {
		return l.lower(n.In, need)
	}
	if h.stage != nil {
		return &Stage{Step: n.Share.Step, Spec: &Held{h.stage},
			Detail: []string{"rows that are held for several steps"}, Schema: h.stage.Schema, Rows: n.Rows}, h.lay, nil
	}
	in, lay, err := l.lower(n.In, h.need)
	if err != nil {
		return nil, nil, err
	}
	h.stage = &Stage{Step: n.Share.Step, Spec: &Hold{in.Schema},
		Detail: []string{fmt.Sprintf("for %d steps that read them", h.readers)}, Schema: in.Schema, Rows: n.Rows,
		Inputs: []*Stage{in}}
	h.lay = lay
	return h.stage, lay, nil
}
