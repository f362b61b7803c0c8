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
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/operators/expand"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// layout maps columns of a node to their positions in the stage's strides.
type layout map[rel.ID]int

func (l layout) remap(e *expr.Expr) *expr.Expr { return e.Remap(l.of) }

// of returns the position of a column, -1 without one.
func (l layout) of(id rel.ID) int {
	if at, ok := l[id]; ok {
		return at
	}
	return -1
}

func (l layout) all(ids []rel.ID) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = l.of(id)
	}
	return out
}

// required is the set of a node's columns that are used above it. With anyNumber, it does not matter above the node how
// many rows are equal, as long as there is one: the right side of a semi join, and the rows of DISTINCT.
type required map[rel.ID]bool

const anyNumber = rel.None

// like returns the set with anyNumber if another set has it.
func (n required) like(other required) required {
	if other[anyNumber] {
		return n.with(anyNumber)
	}
	return n
}

func requiredOf(ids ...rel.ID) required { return required{}.with(ids...) }

// with returns the set with more columns.
func (n required) with(ids ...rel.ID) required {
	out := make(required, len(n)+len(ids))
	maps.Copy(out, n)
	for _, id := range ids {
		out[id] = true
	}
	return out
}

// among returns the columns of a list that are in the set.
func (n required) among(ids []rel.ID) []rel.ID {
	var out []rel.ID
	for _, id := range ids {
		if n[id] {
			out = append(out, id)
		}
	}
	return out
}

// laidOut returns the schema of columns of a node, and where in it each column is.
func laidOut(r *rel.Relation, ids []rel.ID) (*gpu.Schema, layout) {
	at := layout{}
	for i, id := range ids {
		at[id] = i
	}
	return r.Schema(ids), at
}

// Lower decides how the rows of a logical plan are computed: those of one output, or those of each input of a
// rel.Outputs. The error is a *job.Diagnostic of the step whose operator refuses it.
func Lower(name string, e *logical.Estimator, o rel.Output) (*Plan, error) {
	o.Root = onceEach(o.Root)
	outs := []rel.Output{o}
	if several, ok := o.Root.(*rel.Outputs); ok {
		outs = nil
		for i, in := range several.Ins {
			outs = append(outs, rel.Output{Root: in, Columns: several.Of[i]})
		}
	}
	l := &lowering{Estimator: e, looking: true, held: map[*rel.Share]*holding{}, paths: map[*Stage]*scanPath{},
		loops: map[*rel.Loop]*Stage{}}
	p := &Plan{Name: name}
	err := l.lowerOutputs(p, outs)
	if l.looking = false; err == nil && len(l.held) > 0 {
		for _, h := range l.held {
			h.stage = nil
		}
		l.countReaders(o.Root, nil)
		err = l.lowerOutputs(p, outs)
	}
	if err != nil {
		return nil, err
	}
	for _, out := range p.Outputs {
		out.Root.order(false)
	}
	return p, nil
}

// lowerOutputs lowers all outputs of a plan.
func (l *lowering) lowerOutputs(p *Plan, outs []rel.Output) error {
	p.Outputs = nil
	for _, o := range outs {
		root, at, err := l.lower(o.Root, requiredOf(o.Columns...))
		if err != nil {
			return err
		}
		p.Outputs = append(p.Outputs, Output{Root: root, Permutation: at.all(o.Columns), Schema: o.Schema()})
	}
	return nil
}

// onceEach materializes recursions, so that one that several nodes read has one stage. The nodes may have become
// different ones since the binder made one of them for all.
func onceEach(root rel.Node) rel.Node {
	held := map[*rel.Loop]rel.Node{}
	return rel.Remembered(func(n rel.Node, again func(rel.Node) rel.Node) rel.Node {
		n = rel.WithInputs(n, again)
		r, ok := n.(*rel.Recursive)
		if !ok {
			return n
		}
		if held[r.Loop] == nil {
			held[r.Loop] = rel.NewMaterialized(r, &rel.Share{Step: r.Origin.Step})
		}
		return held[r.Loop]
	})(root)
}

// lowering lowers one plan. If steps are held, it does so twice: the first pass finds out which of
// their columns are used, and by how many readers.
type lowering struct {
	*logical.Estimator
	looking bool
	held    map[*rel.Share]*holding
	paths   map[*Stage]*scanPath
	loops   map[*rel.Loop]*Stage // recursions whose steps are being lowered
}

// countReaders counts the readers of held steps. The step of a recursion, nil outside of one, reads rows that do not
// depend on its working table in each iteration.
func (l *lowering) countReaders(n rel.Node, loop *rel.Loop) {
	if held, ok := n.(*rel.Materialized); ok {
		h := l.held[held.Share]
		if h == nil { // it is below a join that goes
			return
		}
		h.kept = h.kept || loop != nil && !rel.Reads(held.In, loop)
		if h.readers++; h.readers > 1 {
			return
		}
		if h.kept {
			loop = nil
		}
	}
	if n, ok := n.(*rel.Recursive); ok {
		l.countReaders(n.Anchor, loop)
		l.countReaders(n.Step, n.Loop)
		return
	}
	for _, in := range rel.Inputs(n) {
		l.countReaders(in, loop)
	}
}

// holding is a step whose rows are held.
type holding struct {
	readers int
	kept    bool     // for the iterations of a recursion
	need    required // columns that a reader uses
	number  bool     // a reader uses the number of equal rows
	stage   *Stage   // of the first reader
	lay     layout
}

// order tells the joins below a group-by that the order of their rows does not matter: the order of
// groups is undefined, and few aggregates depend on the order of their input. It matters to sorts,
// which are stable, to limits, and to window functions, for rows with equal keys. any means that
// the order of the rows of this stage does not matter.
func (s *Stage) order(any bool) {
	switch spec := s.Spec.(type) {
	case *Join:
		spec.Spec.AnyOrder = any
	case *Group:
		any = spec.Sorted == nil // an aggregate may depend on the order of its values
	case *Sort, *Limit, *Window, *Materialize, *Recursive:
		any = false
	}
	for _, in := range s.Inputs {
		in.order(any)
	}
}

// lower makes the stages that compute the needed columns of a node. It prunes columns: no unused
// column is read, carried or computed. A projection that only picks or renames columns has no
// stage.
func (l *lowering) lower(n rel.Node, need required) (*Stage, layout, error) {
	st, lay, err := l.lowerNode(n, need)
	if err != nil {
		return nil, nil, err
	}
	if st.At != "" { // it is the stage of a node below, which is complete
		return st, lay, nil
	}
	st.At = n.Rel().Origin.Step
	if st.RowBytes == 0 {
		st.RowBytes = l.rowBytes(st.Schema, lay, n)
	}
	// Make the operator once here, so that a step is refused before the run.
	if _, err := st.Spec.Operator(gpu.Capabilities{ArgMinMax: true}); err != nil {
		return nil, nil, &job.Diagnostic{Step: st.Step, Msg: err.Error()}
	}
	return st, lay, nil
}

// writtenAt returns the steps where expressions were written, or step if that is unknown or if all
// are columns.
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

// failures returns where the expressions that may fail in a program were written.
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

// rowBytes estimates the bytes of a row of the strides of a stage. The statistics of the columns of
// the node give the sizes of strings.
func (l *lowering) rowBytes(schema *gpu.Schema, lay layout, n rel.Node) float64 {
	bytes := make([]float64, schema.Len())
	for i, f := range schema.Fields {
		bytes[i] = float64(gpu.NewSchema(f).RowBytes())
	}
	for _, c := range n.Rel().Columns {
		if at, ok := lay[c]; ok && schema.Fields[at].Type.IsVar() {
			if b := l.Column(n, c).Bytes; b > 0 {
				bytes[at] = b
			}
		}
	}
	sum := 0.0
	for _, b := range bytes {
		sum += b
	}
	return sum
}

func (l *lowering) lowerNode(n rel.Node, need required) (*Stage, layout, error) {
	switch n := n.(type) {
	case *rel.Scan:
		return l.lowerScan(n, need)
	case *rel.Filter:
		return l.lowerFilter(n, need)
	case *rel.Project:
		return l.lowerProject(n, need)
	case *rel.Join:
		return l.lowerJoin(n, need)
	case *rel.Expand:
		return l.lowerExpand(n, need)
	case *rel.Unnest:
		return l.lowerUnnest(n, need)
	case *rel.Group:
		return l.lowerGroup(n, need)
	case *rel.Window:
		return l.lowerWindow(n, need)
	case *rel.Sort:
		return l.lowerSort(n, need)
	case *rel.Limit:
		return l.lowerLimit(n, need)
	case *rel.Union:
		return l.lowerUnion(n, need)
	case *rel.Materialized:
		return l.lowerMaterialized(n, need)
	case *rel.Values:
		return l.lowerValues(n, need)
	case *rel.Recursive:
		return l.lowerRecursive(n)
	case *rel.Working:
		return l.lowerWorking(n)
	case *rel.SetOperation, *rel.Apply: // rules have replaced them
	}
	panic(fmt.Sprintf("physical: there is no operator for a node of type %T", n))
}

// stageOf returns the stage of a node.
func (l *lowering) stageOf(n rel.Node, inputs ...*Stage) *Stage {
	return &Stage{Step: n.Rel().Origin.Step, Rows: l.Rows(n), Inputs: inputs}
}

// refused is the error of a node that cannot be computed.
func refused(n rel.Node, err error) error {
	return &job.Diagnostic{Step: n.Rel().Origin.Step, Msg: err.Error()}
}

func (l *lowering) lowerScan(n *rel.Scan, need required) (*Stage, layout, error) {
	scan := &Scan{Source: n.Origin.Step, Prune: n.Prune, Table: n.Table}
	st := l.stageOf(n)
	used := need.among(n.Columns)
	schema, lay := laidOut(n.Rel(), used)
	st.Spec, st.Schema = scan, schema
	for _, c := range used {
		scan.Columns = append(scan.Columns, n.At(c))
		st.RowBytes += l.Column(n, c).Bytes
	}
	st.Detail = []string{n.Table.Describe(), "columns: " + listOf(st.Schema.Names())}
	if _, text := n.Table.(source.Estimated); text {
		return st, lay, nil // its rows are in no groups
	}
	for i, p := range n.Prune {
		st.Detail = append(st.Detail, "skips row groups without: "+describePredicate(source.SchemaInside(n.Table), p,
			n.Hidden[i]))
	}
	return st, lay, nil
}

func (l *lowering) lowerFilter(n *rel.Filter, need required) (*Stage, layout, error) {
	pred := expr.And(n.Conjuncts...)
	in, lay, err := l.lower(n.In, need.with(pred.Columns()...))
	if err != nil {
		return nil, nil, err
	}
	condition := lay.remap(expr.AllTrue(n.Conjuncts...))
	prog, inputs, err := expr.Compile(in.Schema, condition)
	if err != nil {
		return nil, nil, refused(n, err)
	}
	st := l.stageOf(n, in)
	st.Step, st.Failures = writtenAt(n.Conjuncts, n.Origin.Step), failures(prog, condition)
	kept := need.among(n.Columns)
	keep, out := lay.all(kept), layout{}
	st.Schema = &gpu.Schema{}
	for i, c := range kept {
		out[c] = i
		st.Schema.Fields = append(st.Schema.Fields, in.Schema.Fields[keep[i]])
	}
	st.Detail, st.From, st.Cost = []string{pred.String()}, keep, streamCost
	if sampled := l.Sampled(n); sampled > 0 {
		st.Detail = append(st.Detail, fmt.Sprintf("estimated from %s sampled rows", humanize.Comma(int64(sampled))))
	}
	first := in.Scan() != nil && l.decidesFirst(in, inputs, n)
	if first {
		st.Detail = append(st.Detail, "decides first: the scan reads its other columns where rows are left")
	}
	st.Spec = &Filter{In: in.Schema, Program: prog, Inputs: inputs, Keep: keep, First: first}
	return st, out, nil
}

func (l *lowering) lowerProject(n *rel.Project, need required) (*Stage, layout, error) {
	for i, c := range n.Columns {
		if !need[c] && n.Exprs[i].Asserts() {
			need = need.with(c)
		}
	}
	below, bare := required{}, true
	for i, c := range n.Columns {
		if !need[c] {
			continue
		}
		for _, in := range n.Exprs[i].Columns() {
			below[in] = true
		}
		_, col := n.Exprs[i].IsColumn()
		bare = bare && col
	}
	in, lay, err := l.lower(n.In, below.like(need))
	if err != nil {
		return nil, nil, err
	}
	out := layout{}
	if bare {
		for i, c := range n.Columns {
			if need[c] {
				from, _ := n.Exprs[i].IsColumn()
				out[c] = lay.of(from)
			}
		}
		return in, out, nil
	}
	st := l.stageOf(n, in)
	st.Schema, st.Cost = &gpu.Schema{}, streamCost
	var exprs []*expr.Expr
	for i, c := range n.Columns {
		if !need[c] {
			continue
		}
		out[c] = len(exprs)
		exprs = append(exprs, lay.remap(n.Exprs[i]))
		from := -1
		if in, bare := exprs[len(exprs)-1].IsColumn(); bare {
			from = in
		}
		st.From = append(st.From, from)
		st.Schema.Fields = append(st.Schema.Fields, n.Field(c))
		if from < 0 {
			st.Computed++
			st.Detail = append(st.Detail, fmt.Sprintf("%s: %v %v", n.Name(c), n.Exprs[i], n.Exprs[i].Type()))
		}
	}
	prog, inputs, err := expr.Compile(in.Schema, exprs...)
	if err != nil {
		return nil, nil, refused(n, err)
	}
	st.Step, st.Failures = writtenAt(exprs, n.Origin.Step), failures(prog, exprs...)
	st.Spec = &Project{Out: st.Schema, Program: prog, Inputs: inputs}
	return st, out, nil
}

func (l *lowering) lowerJoin(n *rel.Join, need required) (*Stage, layout, error) {
	left, right := n.Left.Rel(), n.Right.Rel()
	outLeft, outRight := need.among(left.Columns), []rel.ID(nil)
	if n.Kind.Pairs() {
		outRight = need.among(right.Columns)
	}
	if need[anyNumber] && n.Kind == join.Inner && n.Range == nil && n.AsOf == nil && n.Algorithm == "" &&
		n.Build.Side == rel.NoSide && (len(outLeft) == 0 || len(outRight) == 0) {
		return l.lowerJoin(semi(n, len(outRight) > 0), need)
	}
	compared := requiredOf(expr.And(n.Residual...).Columns()...)
	keyLeft, keyRight := n.LeftKeys, n.RightKeys
	if n.Range != nil {
		key, bounds := []rel.ID{n.Range.Key}, slices.DeleteFunc([]rel.ID{n.Range.Lower, n.Range.Upper},
			func(c rel.ID) bool { return c == rel.None })
		if keyLeft, keyRight = bounds, key; n.Range.Left {
			keyLeft, keyRight = key, bounds
		}
	}
	if a := n.AsOf; a != nil {
		keyLeft, keyRight = append(slices.Clone(keyLeft), a.Left), append(slices.Clone(keyRight), a.Right)
	}
	if n.Kind == join.Left && len(outRight) == 0 && n.Range == nil && !expr.And(n.Residual...).
		MayFail() && (n.AsOf != nil || logical.Unique(n.Right, n.RightKeys)) {
		// Each left row has at most one match, and no column of it is used.
		return l.lower(n.Left, requiredOf(outLeft...))
	}
	lower := func(side rel.Node, out, keys []rel.ID) (*Stage, layout, error) {
		below := requiredOf(out...).with(keys...).with(compared.among(side.Rel().Columns)...)
		if !n.Kind.Pairs() && side == n.Right {
			return l.lower(side, below.with(anyNumber))
		}
		return l.lower(side, below.like(need))
	}
	leftStage, leftLay, err := lower(n.Left, outLeft, keyLeft)
	if err != nil {
		return nil, nil, err
	}
	rightStage, rightLay, err := lower(n.Right, outRight, keyRight)
	if err != nil {
		return nil, nil, err
	}
	st := l.stageOf(n)
	st.Schema = &gpu.Schema{}
	spec := join.Spec{Kind: n.Kind, NullSafe: n.NullSafe, Out: st.Schema, Algorithm: n.Algorithm}
	out := layout{}
	take := func(lay layout, ids []rel.ID) []int {
		for _, c := range ids {
			out[c] = len(st.Schema.Fields)
			st.Schema.Fields = append(st.Schema.Fields, n.Field(c))
		}
		return lay.all(ids)
	}
	build := l.Build(n)
	built, builtKeys, probed := n.Right, n.RightKeys, n.Left
	probeLay, buildLay := leftLay, rightLay
	if build.Side == rel.LeftSide {
		built, builtKeys, probed = n.Left, n.LeftKeys, n.Right
		probeLay, buildLay = rightLay, leftLay
		spec.Kind = exchanged(n.Kind)
		spec.ProbeKeys, spec.ProbeOut = rightLay.all(n.RightKeys), take(rightLay, outRight)
		spec.BuildKeys, spec.BuildOut = leftLay.all(n.LeftKeys), take(leftLay, outLeft)
		st.Inputs = []*Stage{rightStage, leftStage}
	} else {
		spec.ProbeKeys, spec.ProbeOut = leftLay.all(n.LeftKeys), take(leftLay, outLeft)
		spec.BuildKeys, spec.BuildOut = rightLay.all(n.RightKeys), take(rightLay, outRight)
		st.Inputs = []*Stage{leftStage, rightStage}
	}
	spec.Probe, spec.Build = st.Inputs[0].Schema, st.Inputs[1].Schema
	if n.Kind == join.Mark {
		out[n.Mark] = len(st.Schema.Fields)
		st.Schema.Fields = append(st.Schema.Fields, n.Field(n.Mark))
	}
	if len(n.Residual) > 0 {
		pair := maps.Clone(probeLay) // over the probe side, then the build side
		for c, at := range buildLay {
			pair[c] = spec.Probe.Len() + at
		}
		condition := pair.remap(expr.AllTrue(n.Residual...))
		if spec.Residual, err = compileResidual(spec.Probe, spec.Build, condition); err != nil {
			return nil, nil, refused(n, err)
		}
		st.Failures = failures(spec.Residual.Program, condition)
	}
	if n.Range != nil {
		spec.Range = &join.Range{Build: buildLay.of(n.Range.Key), Lower: -1, Upper: -1,
			LowerStrict: n.Range.LowerStrict, UpperStrict: n.Range.UpperStrict}
		if c := n.Range.Lower; c != rel.None {
			spec.Range.Lower = probeLay.of(c)
		}
		if c := n.Range.Upper; c != rel.None {
			spec.Range.Upper = probeLay.of(c)
		}
		st.Sorted = st.Inputs[1].Rows * float64(spec.Build.Len())
	}
	if a := n.AsOf; a != nil {
		spec.AsOf = &join.AsOf{Probe: probeLay.of(a.Left), Build: buildLay.of(a.Right), Forward: a.Forward,
			Strict: a.Strict}
		st.Sorted = st.Inputs[1].Rows * float64(spec.Build.Len())
	}
	st.Pairs = l.Compared(n)
	spec.ProbeRows, spec.BuildRows = l.estimated(probed), l.estimated(built)
	if n.Kind == join.Inner && len(n.Residual) == 0 {
		spec.PairRows = l.estimated(n)
	}
	if n.Range == nil && n.AsOf == nil {
		spec.KeyRange = l.KeyRange(built, builtKeys)
		spec.UniqueBuild = logical.Unique(built, builtKeys)
	}
	st.Detail = append(n.Conditions(), fmt.Sprintf("builds %s: %s", st.Inputs[1].At, describeBuild(n.What(), build)))
	if n.Order != nil {
		st.Detail = append(st.Detail, describeOrder(n.Order))
	}
	st.Cost = l.ProbeCost(n)
	if !spec.Kind.KeepsBuild() && !spec.Kind.OfBuild() {
		st.From = slices.Concat(spec.ProbeOut, slices.Repeat([]int{-1}, len(st.Schema.Fields)-len(spec.ProbeOut)))
	}
	st.Spec = &Join{What: n.What() + " join", Spec: spec}
	l.filterProbe(st, spec, l.ProbeMatch(n))
	return st, out, nil
}

// semi returns an inner join as a semi join, of the right side if only its columns are used.
func semi(n *rel.Join, right bool) *rel.Join {
	spec, l, r := n.JoinSpec, n.Left, n.Right
	if spec.Kind = join.Semi; right {
		l, r, spec.LeftKeys, spec.RightKeys = r, l, spec.RightKeys, spec.LeftKeys
	}
	out := rel.NewJoin(n.Origin, l, r, spec)
	out.Order = n.Order
	return out
}

// exchanged returns the kind of a join with its sides exchanged.
func exchanged(k join.Kind) join.Kind {
	switch k {
	case join.Left:
		return join.Right
	case join.Right:
		return join.Left
	case join.Semi:
		return join.RightSemi
	case join.Anti:
		return join.RightAnti
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
func (l *lowering) estimated(n rel.Node) int64 { return int64(max(1, min(l.Rows(n), math.MaxInt64/2))) }

func (l *lowering) lowerExpand(n *rel.Expand, need required) (*Stage, layout, error) {
	used := need.among(n.Columns)
	from := map[rel.ID]rel.ID{} // columns of the input
	for _, c := range n.Copies {
		from[c.Out] = c.From
	}
	var below []rel.ID
	for _, c := range used {
		if _, copied := from[c]; !copied && c != n.Number {
			from[c] = c
		}
		if c != n.Number {
			below = append(below, from[c])
		}
	}
	in, lay, err := l.lower(n.In, requiredOf(below...))
	if err != nil {
		return nil, nil, err
	}
	schema, out := laidOut(n.Rel(), used)
	st := l.stageOf(n, in)
	st.Schema = schema
	var variants []expand.Variant
	for i, nulls := range n.Variants {
		var exprs []*expr.Expr
		var kept []string
		for k, c := range used {
			f := schema.Fields[k]
			switch {
			case c == n.Number:
				exprs = append(exprs, expr.Literal(gpu.IntScalar(f.Type, int64(i))))
			case slices.Contains(nulls, c):
				exprs = append(exprs, expr.Null(f))
			default:
				exprs = append(exprs, expr.Column(&expr.Scope{Schema: in.Schema}, lay.of(from[c])))
				kept = append(kept, f.Name)
			}
		}
		prog, inputs, err := expr.Compile(in.Schema, exprs...)
		if err != nil {
			return nil, nil, refused(n, err)
		}
		variants = append(variants, expand.Variant{Program: prog, Inputs: inputs})
		st.Detail = append(st.Detail, "each row once with "+cmp.Or(strings.Join(kept, ", "), "nulls alone"))
	}
	st.Spec = &Expand{Out: st.Schema, Variants: variants}
	return st, out, nil
}

func (l *lowering) lowerUnnest(n *rel.Unnest, need required) (*Stage, layout, error) {
	used := need.among(n.Columns)
	var below, elements, lists []rel.ID
	for _, c := range used {
		if k := slices.Index(n.Elements, c); k >= 0 {
			elements, lists = append(elements, c), append(lists, n.Lists[k])
		} else {
			below = append(below, c)
		}
	}
	if len(lists) == 0 { // any of them has the number of elements
		lists = []rel.ID{slices.MinFunc(n.Lists, func(a, b rel.ID) int {
			return cmp.Compare(n.Field(a).Type.TypicalBytes(), n.Field(b).Type.TypicalBytes())
		})}
	}
	in, lay, err := l.lower(n.In, requiredOf(append(below, lists...)...))
	if err != nil {
		return nil, nil, err
	}
	schema, out := laidOut(n.Rel(), used)
	st := l.stageOf(n, in)
	st.Schema = schema
	spec := &Unnest{}
	spec.Out, spec.Lists = schema, lay.all(lists)
	for _, c := range used {
		if k := slices.Index(elements, c); k >= 0 {
			spec.Keep = append(spec.Keep, -1-k)
		} else {
			spec.Keep = append(spec.Keep, lay.of(c))
		}
	}
	names := phrase.Some(n.Schema(lists).Names(), 8, ", ")
	st.Spec, st.Detail = spec, []string{"each row once for each element of " + names}
	return st, out, nil
}

func (l *lowering) lowerGroup(n *rel.Group, need required) (*Stage, layout, error) {
	used, kept := slices.Clone(n.Keys), slices.Clone(n.Keys)
	for _, a := range n.Aggregates {
		if need[a.Out] {
			used, kept = append(used, a.Columns()...), append(kept, a.Out)
		}
	}
	below := requiredOf(used...)
	if len(kept) == len(n.Keys) {
		below = below.with(anyNumber)
	}
	in, lay, err := l.lower(n.In, below)
	if err != nil {
		return nil, nil, err
	}
	st := l.stageOf(n, in)
	schema, out := laidOut(n.Rel(), kept)
	st.Schema = schema
	hint := l.GroupHint(n)
	spec := groupby.Spec{In: in.Schema, Keys: lay.all(n.Keys), Out: st.Schema, Hint: hint, Algorithm: n.Algorithm,
		Always: n.Always}
	sorted := window.GroupSpec{In: in.Schema, Keys: spec.Keys, Out: st.Schema, Always: n.Always}
	for _, a := range n.Aggregates {
		if !need[a.Out] {
			continue
		}
		agg := groupby.Aggregate{Kind: a.Kind, Input: -1, Output: a.Output}
		if a.Input != rel.None {
			agg.Input = lay.of(a.Input)
		}
		spec.Aggregates = append(spec.Aggregates, agg)
		if a.Sorted != nil {
			sorted.Functions = append(sorted.Functions, a.Sorted.Remap(lay.of))
		}
		st.Detail = append(st.Detail, n.Name(a.Out))
	}
	by := "one group"
	if len(n.Keys) > 0 {
		by = "by " + strings.Join(n.Schema(n.Keys).Names(), ", ")
	}
	if len(sorted.Functions) > 0 {
		list, ok := accumulated(sorted.Functions)
		few := l.Rows(n.In) < argMinMaxRows*float64(hint.Groups) &&
			slices.ContainsFunc(list, func(a groupby.Aggregate) bool { return a.ArgMinMax != nil })
		if !ok || few {
			st.Spec, st.Detail = &Group{Sorted: &sorted}, append([]string{by, sortsGroups}, st.Detail...)
			return st, out, nil
		}
		spec.Aggregates = list
		st.Spec, st.Detail = &Group{Hash: &spec, Sorted: &sorted}, append([]string{by}, st.Detail...)
		return st, out, nil
	}
	if hint.Dense {
		by += fmt.Sprintf(" (indexed directly: %d to %d)", hint.Lo, hint.Hi)
	}
	st.Spec, st.Detail = &Group{Hash: &spec}, append([]string{by}, st.Detail...)
	return st, out, nil
}

// argMinMaxRows is the number of rows per group, by estimate, from which a device that has the states of
// arg_min, first and so on accumulates them. With fewer rows, it is cheaper to sort them.
const argMinMaxRows = 16

// accumulated returns functions as aggregates that a device with the state of arg_min can accumulate,
// if all are: those that a single row of the group decides, products, and those that do not depend on an
// order.
func accumulated(functions []window.GroupFunction) (list []groupby.Aggregate, ok bool) {
	for _, f := range functions {
		a := groupby.Aggregate{Kind: gpu.ArgValue, Input: f.Value, Output: f.Output}
		arg := &groupby.ArgMinMax{Order: slices.Clone(f.Order), Filter: f.Filter}
		switch {
		case f.Distinct:
			return nil, false
		case f.Kind == window.Aggregate:
			a.Kind, arg = f.Aggregate, nil
		case f.Kind == window.FirstValue:
		case f.Kind == window.LastValue: // the first one in reverse
			arg.Last = true
			for i, k := range arg.Order {
				arg.Order[i].Descending, arg.Order[i].NullsFirst = !k.Descending, !k.NullsFirst
			}
		case f.Kind == window.ArgMin || f.Kind == window.ArgMax:
			arg.Order = append([]sort.Key{{Column: f.Key, Descending: f.Kind == window.ArgMax}}, f.Order...)
			arg.Columns = []int{f.Key, f.Value}
		default:
			return nil, false
		}
		if f.IgnoreNulls {
			arg.Columns = append(arg.Columns, f.Value)
		}
		a.ArgMinMax = arg
		list = append(list, a)
	}
	return list, true
}

func (l *lowering) lowerWindow(n *rel.Window, need required) (*Stage, layout, error) {
	kept := need.among(n.In.Rel().Columns)
	computed := need.among(n.Out)
	if len(computed) == 0 {
		return l.lower(n.In, requiredOf(kept...))
	}
	used := slices.Concat(kept, n.Partition)
	for _, k := range n.Order {
		used = append(used, k.Column)
	}
	for i, f := range n.Functions {
		if need[n.Out[i]] {
			used = append(used, f.Columns()...)
		}
	}
	in, lay, err := l.lower(n.In, requiredOf(used...))
	if err != nil {
		return nil, nil, err
	}
	st := l.stageOf(n, in)
	var out layout
	st.Schema, out = laidOut(n.Rel(), append(kept, computed...))
	spec := window.Spec{In: in.Schema, Partition: lay.all(n.Partition), Keep: lay.all(kept), Out: st.Schema}
	keys, order := sortKeys(n.Rel(), n.Order, lay)
	spec.Order = keys
	if len(n.Partition) > 0 {
		st.Detail = append(st.Detail, "partition by "+strings.Join(n.Schema(n.Partition).Names(), ", "))
	}
	if len(order) > 0 {
		st.Detail = append(st.Detail, "order by "+strings.Join(order, ", "))
	}
	for i, f := range n.Functions {
		if need[n.Out[i]] {
			spec.Functions = append(spec.Functions, f.Remap(lay.of))
			st.Detail = append(st.Detail, n.Name(n.Out[i]))
		}
	}
	st.Spec = &Window{spec}
	return st, out, nil
}

// sortKeys returns the keys of an order in the strides of a stage, and their descriptions.
func sortKeys(r *rel.Relation, keys []rel.SortKey, lay layout) (out []sort.Key, texts []string) {
	for _, k := range keys {
		out = append(out, sort.Key{Column: lay.of(k.Column), Descending: k.Descending, NullsFirst: k.NullsFirst})
		texts = append(texts, describeKey(r, k))
	}
	return out, texts
}

func (l *lowering) lowerSort(n *rel.Sort, need required) (*Stage, layout, error) {
	var used []rel.ID
	for _, k := range n.Keys {
		used = append(used, k.Column)
	}
	below := need.with(used...)
	if n.Limit >= 0 || n.Offset > 0 {
		delete(below, anyNumber)
	}
	in, lay, err := l.lower(n.In, below)
	if err != nil {
		return nil, nil, err
	}
	keys, texts := sortKeys(n.Rel(), n.Keys, lay)
	st := l.stageOf(n, in)
	st.Schema, st.Detail = in.Schema, []string{strings.Join(texts, ", ")}
	if n.Limit >= 0 {
		st.Detail = append(st.Detail, limitDetail(n.Offset, n.Limit)...)
	}
	st.Spec = &Sort{sort.Spec{In: in.Schema, Keys: keys, Offset: n.Offset, Limit: n.Limit}}
	return st, lay, nil
}

func (l *lowering) lowerLimit(n *rel.Limit, need required) (*Stage, layout, error) {
	in, lay, err := l.lower(n.In, requiredOf(need.among(n.Columns)...))
	if err != nil {
		return nil, nil, err
	}
	st := l.stageOf(n, in)
	st.Spec, st.Schema, st.Detail = &Limit{in.Schema, n.Offset, n.Count}, in.Schema, limitDetail(n.Offset, n.Count)
	return st, lay, nil
}

func (l *lowering) lowerUnion(n *rel.Union, need required) (*Stage, layout, error) {
	union := &Union{}
	st := l.stageOf(n)
	schema, out := laidOut(n.Rel(), need.among(n.Columns))
	st.Spec, st.Schema = union, schema
	for i, in := range n.Ins {
		var from []rel.ID
		for k, c := range n.Columns {
			if need[c] {
				from = append(from, n.From[i][k])
			}
		}
		child, lay, err := l.lower(in, requiredOf(from...).like(need))
		if err != nil {
			return nil, nil, err
		}
		st.Inputs = append(st.Inputs, child)
		union.Columns = append(union.Columns, lay.all(from))
	}
	return st, out, nil
}

func (l *lowering) lowerValues(n *rel.Values, need required) (*Stage, layout, error) {
	used := need.among(n.Columns)
	values := &Values{Rows: make([][]gpu.Scalar, len(n.Rows))}
	for _, c := range used {
		at := slices.Index(n.Columns, c)
		for i, row := range n.Rows {
			values.Rows[i] = append(values.Rows[i], row[at])
		}
	}
	st := l.stageOf(n)
	schema, lay := laidOut(n.Rel(), used)
	st.Spec, st.Schema, st.Detail = values, schema, []string{"columns: " + listOf(schema.Names())}
	return st, lay, nil
}

// lowerHeld makes the first reader of a step hold its rows, and the others read them there.
func (l *lowering) lowerMaterialized(n *rel.Materialized, need required) (*Stage, layout, error) {
	h := l.held[n.Share]
	if h == nil {
		h = &holding{need: required{}}
		l.held[n.Share] = h
	}
	if l.looking {
		h.number = h.number || !need[anyNumber]
		before := len(h.need)
		h.need = h.need.with(need.among(n.Columns)...)
		if h.stage == nil || len(h.need) > before { // else what is below needs no more columns than before
			var err error
			if h.stage, h.lay, err = l.lower(n.In, h.need); err != nil {
				return nil, nil, err
			}
		}
		return h.stage, h.lay, nil
	}
	if h.readers == 1 && !h.kept {
		return l.lower(n.In, need)
	}
	rows := l.Rows(n)
	if h.stage != nil {
		return &Stage{Step: n.Share.Step, Spec: &Materialized{h.stage},
			Detail: []string{"rows that are held for several steps"}, Schema: h.stage.Schema, Rows: rows}, h.lay, nil
	}
	below := h.need
	if !h.number {
		below = below.with(anyNumber)
	}
	in, lay, err := l.lower(n.In, below)
	if err != nil {
		return nil, nil, err
	}
	detail := fmt.Sprintf("for %d steps that read them", h.readers)
	if h.kept {
		detail = "for all iterations of a recursion"
	}
	h.stage = &Stage{Step: n.Share.Step, Spec: &Materialize{In: in.Schema}, Detail: []string{detail}, Schema: in.Schema,
		Rows: rows, Inputs: []*Stage{in}}
	h.lay = lay
	return h.stage, lay, nil
}

// lowerRecursive lowers a recursion with all its columns: each one may decide later iterations.
func (l *lowering) lowerRecursive(n *rel.Recursive) (*Stage, layout, error) {
	anchor, anchorLay, err := l.lower(n.Anchor, requiredOf(n.AnchorColumns...))
	if err != nil {
		return nil, nil, err
	}
	st := l.stageOf(n)
	schema, lay := laidOut(n.Rel(), n.Columns)
	st.Step, st.Schema = fmt.Sprintf("%s: %s", n.Origin.Step, n.Loop.Name), schema
	outer := l.loops[n.Loop]
	l.loops[n.Loop] = st
	step, stepLay, err := l.lower(n.Step, requiredOf(n.StepColumns...))
	l.loops[n.Loop] = outer
	if err != nil {
		return nil, nil, err
	}
	st.Inputs = []*Stage{anchor, step}
	st.Spec = &Recursive{Out: schema, All: n.All, Anchor: anchorLay.all(n.AnchorColumns),
		Step: stepLay.all(n.StepColumns)}
	if st.Detail = []string{"the second input is computed until it adds no row"}; !n.All {
		st.Detail[0] = "the second input is computed until it adds no row that is new"
	}
	return st, lay, nil
}

func (l *lowering) lowerWorking(n *rel.Working) (*Stage, layout, error) {
	of := l.loops[n.Loop]
	st := l.stageOf(n)
	_, lay := laidOut(n.Rel(), n.Columns)
	st.Step, st.Spec, st.Schema = of.Step, &Working{of}, of.Schema
	st.Detail = []string{"rows of the last iteration"}
	return st, lay, nil
}
