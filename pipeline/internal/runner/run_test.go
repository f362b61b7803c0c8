package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/limit"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/source"
)

var errInjected = errors.New("injected")

// faults fails the N-th operation of everything that shares it. 0 never fails.
type faults struct {
	at, seen atomic.Int64
	panics   bool
}

func (f *faults) next(what string) error {
	if n := f.seen.Add(1); n == f.at.Load() {
		if f.panics {
			panic(what)
		}
		return fmt.Errorf("%s: %w", what, errInjected)
	}
	return nil
}

var oneColumn = gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int64)})

// fakeTable gives strides of ten rows, counting up. After `waits` strides it
// waits for the end of the context.
type fakeTable struct {
	faults  *faults
	strides int
	waits   bool
	waiting chan struct{}
	scans   atomic.Int64
	least   int64  // memory
	begins  func() // called by each scan, unless nil
}

func (t *fakeTable) Schema() *gpu.Schema                  { return oneColumn }
func (t *fakeTable) Rows() int64                          { return int64(10 * t.strides) }
func (t *fakeTable) Stats(int) source.ColumnStats         { return source.ColumnStats{Nulls: -1} }
func (t *fakeTable) Unreadable() []source.Unreadable      { return nil }
func (t *fakeTable) LeastMemory(source.ScanOptions) int64 { return max(t.least, 80) }
func (t *fakeTable) Describe() string                     { return "fake" }
func (t *fakeTable) Close() error                         { return nil }
func (t *fakeTable) Scan(_ context.Context, opt source.ScanOptions) (source.Reader, error) {
	t.scans.Add(1)
	if t.begins != nil {
		t.begins()
	}
	return &fakeReader{table: t, lease: opt.Lease}, t.faults.next("scan")
}

type fakeReader struct {
	table *fakeTable
	lease *gpu.Lease
	given int
}

func (r *fakeReader) Schema() *gpu.Schema       { return oneColumn }
func (r *fakeReader) Progress() source.Progress { return source.Progress{} }
func (r *fakeReader) Close() error              { return nil }
func (r *fakeReader) Read(ctx context.Context) (*gpu.Stride, error) {
	if err := r.table.faults.next("read"); err != nil {
		return nil, err
	}
	if r.given == r.table.strides {
		if !r.table.waits {
			return nil, io.EOF
		}
		close(r.table.waiting)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b, err := r.lease.Alloc(80)
	if err != nil {
		return nil, err
	}
	for i := range 10 {
		gpu.Values[int64](b, 10)[i] = int64(10*r.given + i)
	}
	r.given++
	return &gpu.Stride{Schema: oneColumn, Rows: 10, Cols: []gpu.Column{{Type: gpu.Of(gpu.Int64), Len: 10, Data: b}}},
		nil
}

// fakeOperator is both kinds of operator: strides stream through it, and the strides that
// it collects are the parts of its result.
type fakeOperator struct {
	faults *faults
	mu     sync.Mutex
	held   operators.Collected
	parts  []*gpu.Stride
	count  int // number of parts
}

func (o *fakeOperator) Schema() *gpu.Schema { return oneColumn }

func (o *fakeOperator) NewLane(operators.Task) (operators.Lane, error) {
	return &fakeLane{fakeOperator: o}, o.faults.next("open")
}

// fakeLane keeps the last stride back until Flush.
type fakeLane struct {
	*fakeOperator
	last *gpu.Stride
}

func (l *fakeLane) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	if err := release(s, func() error { return l.faults.next("push") }); err != nil {
		return err
	}
	return l.swap(s, emit)
}

// swap emits the stride that is kept and keeps another one.
func (l *fakeLane) swap(s *gpu.Stride, emit operators.Emit) error {
	s, l.last = l.last, s
	if s == nil {
		return nil
	}
	return emit(s)
}

func (l *fakeLane) Flush(_ context.Context, emit operators.Emit) error {
	if err := l.faults.next("flush"); err != nil {
		return err
	}
	return l.swap(nil, emit)
}

func (l *fakeLane) Close() error {
	if l.last != nil {
		l.last.Release()
	}
	return nil
}

// release calls f and releases the stride when it fails.
func release(s *gpu.Stride, f func() error) error {
	ok := false
	defer func() {
		if !ok {
			s.Release()
		}
	}()
	err := f()
	ok = err == nil
	return err
}

func (o *fakeOperator) NewLocal(operators.Task) (operators.Local, error) {
	return &fakeLocal{fakeOperator: o}, o.faults.next("local")
}

type fakeLocal struct {
	*fakeOperator
	own operators.Collected
}

func (l *fakeLocal) Close() error { return l.own.Close() }
func (l *fakeLocal) Push(ctx context.Context, number int, s *gpu.Stride) error {
	if err := release(s, func() error { return l.faults.next("collect") }); err != nil {
		return err
	}
	return l.own.Push(ctx, number, s)
}

func (l *fakeLocal) Combine(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held.Append(&l.own)
	return l.faults.next("combine")
}

func (o *fakeOperator) Finalize(context.Context, operators.Task) error {
	o.parts = o.held.Take()
	o.count = len(o.parts)
	return o.faults.next("finalize")
}

func (o *fakeOperator) Parts() int { return o.count }
func (o *fakeOperator) Emit(_ context.Context, _ operators.Task, part int, emit operators.Emit) error {
	if err := o.faults.next("emit"); err != nil {
		return err
	}
	s := o.parts[part]
	o.parts[part] = nil
	return emit(s)
}

func (o *fakeOperator) Close() error {
	for _, s := range o.parts {
		if s != nil {
			s.Release()
		}
	}
	o.parts = nil
	return o.held.Close()
}

// fakeStreaming and fakeBlocking are each one kind of fakeOperator.
type (
	fakeStreaming struct{ operators.Streaming }
	fakeBlocking  struct {
		operators.Blocking
		operators.Source
	}
)

func streaming(f *faults) operators.Operator { return fakeStreaming{&fakeOperator{faults: f}} }

func blocking(f *faults) operators.Operator {
	o := &fakeOperator{faults: f}
	return fakeBlocking{o, o}
}

// fakeTarget counts rows and remembers how it ended.
type fakeTarget struct {
	faults *faults
	rows   int64
	ended  string
}

func (t *fakeTarget) Describe() string { return "fake" }
func (t *fakeTarget) Create(*gpu.Schema, execution.TargetOptions) (sink.Sink, error) {
	return t, t.faults.next("create")
}
func (t *fakeTarget) Write(_ context.Context, s *gpu.Stride) error {
	defer s.Release()
	t.rows += int64(s.Rows)
	return t.faults.next("write")
}
func (t *fakeTarget) Commit(context.Context) error {
	if err := t.faults.next("commit"); err != nil {
		t.ended += "abort"
		return err
	}
	t.ended += "commit"
	return nil
}
func (t *fakeTarget) Abort() error      { t.ended += "abort"; return nil }
func (t *fakeTarget) Stats() sink.Stats { return sink.Stats{} }

func scanOf(t *fakeTable) *physical.Stage {
	return &physical.Stage{Step: "t", Spec: &physical.Scan{Table: t, Columns: []int{0}}, Schema: oneColumn}
}

// fakeSpec is the spec of an operator of a test.
type fakeSpec struct {
	name string
	make func() (operators.Operator, error)
}

func (s fakeSpec) Name() string                                          { return s.name }
func (s fakeSpec) Operator(gpu.Capabilities) (operators.Operator, error) { return s.make() }

// operatorOf is the spec of one operator.
func operatorOf(name string, op operators.Operator) fakeSpec {
	return fakeSpec{name, func() (operators.Operator, error) { return op, nil }}
}

// fakePlan is a join of a union of two scans with a third scan, collected by an operator,
// and an operator after that.
func fakePlan(f *faults, target *fakeTarget) fakeJob {
	scan := func() *physical.Stage { return scanOf(&fakeTable{faults: f, strides: 5}) }
	union := &physical.Stage{Step: "both", Spec: &physical.Union{Columns: [][]int{{0}, {0}}}, Schema: oneColumn,
		Inputs: []*physical.Stage{scan(), scan()}}
	stageOf := func(step string, op func(*faults) operators.Operator, inputs ...*physical.Stage) *physical.Stage {
		return &physical.Stage{Step: step, Schema: oneColumn, Inputs: inputs,
			Spec: fakeSpec{"operator", func() (operators.Operator, error) { return op(f), f.next("make") }}}
	}
	match := stageOf("match", func(f *faults) operators.Operator { return &fakeOperator{faults: f} }, union, scan())
	return planOf(stageOf("after", streaming, stageOf("all", blocking, match)), target)
}

// fakeJob is a plan and the target of its rows.
type fakeJob struct {
	plan   *physical.Plan
	target execution.Target
}

func (j fakeJob) run(ctx context.Context, opt execution.Options) (*execution.Report, error) {
	return Run(ctx, j.plan, []execution.Target{j.target}, opt)
}

func planOf(root *physical.Stage, target execution.Target) fakeJob {
	out := physical.Output{Root: root, Permutation: []int{0}, Schema: oneColumn}
	return fakeJob{&physical.Plan{Outputs: []physical.Output{out}}, target}
}

func TestRunPassesEveryRowOnceAndCommits(t *testing.T) {
	defer goleak.VerifyNone(t)
	f, target := &faults{}, &fakeTarget{faults: &faults{}}
	report, err := fakePlan(f, target).run(context.Background(), execution.Options{Device: hosttest.Open(t)})
	require.NoError(t, err)
	assert.Equal(t, int64(100), target.rows)
	assert.Equal(t, "commit", target.ended)
	assert.True(t, report.Done)
	var stages []string
	for _, s := range report.Stages {
		stages = append(stages, fmt.Sprintf("%s: %s in %d out %d", s.Step, s.State, s.RowsIn, s.RowsOut))
	}
	assert.Equal(t, []string{"t: done in 0 out 50", "t: done in 0 out 50", "both: done in 100 out 100",
		"t: done in 0 out 50",
		"match: done in 150 out 100", "all: done in 100 out 100", "after: done in 100 out 100"}, stages)
}

func TestEveryFaultEndsTheRunCleanly(t *testing.T) {
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprintf("panics=%v", panics), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			d := hosttest.Open(t)
			for n := int64(1); ; n++ {
				require.Less(t, n, int64(200), "the run never succeeds")
				f := &faults{panics: panics}
				f.at.Store(n)
				target := &fakeTarget{faults: &faults{}}
				if !panics {
					target.faults = f
				}
				report, err := fakePlan(f, target).run(context.Background(), execution.Options{Device: d})
				if err == nil {
					assert.Equal(t, "commit", target.ended)
					assert.Greater(t, n, int64(40), "faults were injected")
					break
				}
				if panics {
					assert.ErrorContains(t, err, "internal error")
				} else {
					assert.ErrorIs(t, err, errInjected)
				}
				assert.False(t, report.Done)
				assert.NotContains(t, target.ended, "commit")
				assert.Empty(t, d.Budget().Leaks(), "after fault %d: %v", n, err)
			}
		})
	}
}

// lateDevice is a discrete device that returns queues once a table is being scanned.
type lateDevice struct {
	gpu.Device
	apart gpu.Device
	table *fakeTable
}

func (d lateDevice) HostBudget() *gpu.Budget { return d.apart.Budget() }
func (d lateDevice) NewQueue(name string) (gpu.Queue, error) {
	for range 1000 {
		if d.table.scans.Load() > 0 {
			return d.Device.NewQueue(name)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil, errors.New("nothing is scanned while the device starts")
}

func TestWhatAStageTakesFirstBeginsWhileTheDeviceStarts(t *testing.T) {
	for what, plan := range map[string]func(table *physical.Stage) *physical.Stage{
		"an input": func(table *physical.Stage) *physical.Stage {
			return &physical.Stage{Step: "o", Schema: oneColumn, Inputs: []*physical.Stage{table}}
		},
		"a build side": func(table *physical.Stage) *physical.Stage {
			probe := &physical.Stage{Step: "p", Spec: operatorOf("filter", streaming(&faults{})), Schema: oneColumn,
				Inputs: []*physical.Stage{scanOf(&fakeTable{faults: &faults{}, strides: 5})}}
			return &physical.Stage{Step: "j", Schema: oneColumn, Inputs: []*physical.Stage{probe, table}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			table, target := &fakeTable{faults: &faults{}, strides: 5}, &fakeTarget{faults: &faults{}}
			root := plan(scanOf(table))
			if root.Spec = operatorOf("filter", streaming(&faults{})); len(root.Inputs) > 1 {
				root.Spec = operatorOf("join", &fakeOperator{faults: &faults{}})
			}
			_, err := planOf(root, target).run(context.Background(),
				execution.Options{Device: lateDevice{hosttest.Open(t), hosttest.Open(t), table}})
			require.NoError(t, err)
			require.Equal(t, int64(50), target.rows)
		})
	}
}

func TestErrorsNameTheStage(t *testing.T) {
	f := &faults{}
	f.at.Store(1)
	op := &physical.Stage{Step: "match", Schema: oneColumn,
		Inputs: []*physical.Stage{scanOf(&fakeTable{faults: &faults{}, strides: 1})},
		Spec:   fakeSpec{"filter", func() (operators.Operator, error) { return streaming(f), nil }}}
	_, err := planOf(op, &fakeTarget{faults: &faults{}}).
		run(context.Background(), execution.Options{Device: hosttest.Open(t)})
	assert.EqualError(t, err, "match: filter: open: injected")
}

func TestCancelInTheMiddleLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(context.Background())
	table := &fakeTable{faults: &faults{}, strides: 3, waits: true, waiting: make(chan struct{})}
	target := &fakeTarget{faults: &faults{}}
	go func() {
		<-table.waiting
		cancel()
	}()
	_, err := planOf(scanOf(table), target).run(ctx, execution.Options{Device: hosttest.Open(t)})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "abort", target.ended)
}

func TestLimitEndsItsInputEarly(t *testing.T) {
	defer goleak.VerifyNone(t)
	// After its strides the source would wait for ever.
	table := &fakeTable{faults: &faults{}, strides: 3, waits: true, waiting: make(chan struct{})}
	st := &physical.Stage{Step: "first", Schema: oneColumn, Inputs: []*physical.Stage{scanOf(table)},
		Spec: fakeSpec{"limit", func() (operators.Operator, error) { return limit.New(oneColumn, 0, 20), nil }}}
	target := &fakeTarget{faults: &faults{}}
	_, err := planOf(st, target).run(context.Background(), execution.Options{Device: hosttest.Open(t)})
	require.NoError(t, err)
	assert.Equal(t, int64(20), target.rows)
	assert.Equal(t, "commit", target.ended)
}

// explode emits strides for ever in a Push.
func explode() operators.Operator {
	return fakeStreaming{&exploding{fakeOperator: fakeOperator{faults: &faults{}}}}
}

type exploding struct {
	operators.NoFlush
	fakeOperator
}

func (o *exploding) NewLane(operators.Task) (operators.Lane, error) { return o, nil }
func (o *exploding) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	defer s.Release()
	for {
		c := s.Cols[0].Retain()
		if err := emit(&gpu.Stride{Schema: s.Schema, Rows: s.Rows, Cols: []gpu.Column{c}}); err != nil {
			return err
		}
	}
}

func TestLimitEndsAnOperatorOfItsChainInTheMiddle(t *testing.T) {
	defer goleak.VerifyNone(t)
	table := &fakeTable{faults: &faults{}, strides: 3, waits: true, waiting: make(chan struct{})}
	many := &physical.Stage{Step: "many", Schema: oneColumn, Inputs: []*physical.Stage{scanOf(table)},
		Spec: fakeSpec{"join", func() (operators.Operator, error) { return explode(), nil }}}
	st := &physical.Stage{Step: "first", Schema: oneColumn, Inputs: []*physical.Stage{many},
		Spec: fakeSpec{"limit", func() (operators.Operator, error) { return limit.New(oneColumn, 5, 20), nil }}}
	target := &fakeTarget{faults: &faults{}}
	_, err := planOf(st, target).run(context.Background(), execution.Options{Device: hosttest.Open(t)})
	require.NoError(t, err)
	assert.Equal(t, int64(20), target.rows)
}

func TestCancelEndsAnOperatorInTheMiddle(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(context.Background())
	many := &physical.Stage{Step: "many", Schema: oneColumn,
		Inputs: []*physical.Stage{scanOf(&fakeTable{faults: &faults{}, strides: 1})},
		Spec:   fakeSpec{"join", func() (operators.Operator, error) { return explode(), nil }}}
	target := &cancelTarget{fakeTarget: fakeTarget{faults: &faults{}}, cancel: cancel}
	_, err := planOf(many, target).run(ctx, execution.Options{Device: hosttest.Open(t)})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "abort", target.ended)
}

// cancelTarget cancels the run at its third stride.
type cancelTarget struct {
	fakeTarget
	cancel func()
}

func (t *cancelTarget) Create(*gpu.Schema, execution.TargetOptions) (sink.Sink, error) { return t, nil }
func (t *cancelTarget) Write(ctx context.Context, s *gpu.Stride) error {
	if err := t.fakeTarget.Write(ctx, s); err != nil || t.rows < 30 {
		return err
	}
	t.cancel()
	return nil
}

func TestBuildSideIsReadBeforeTheProbeSideStarts(t *testing.T) {
	// A probe side that has started too early would hold strides meanwhile.
	build := &fakeTable{faults: &faults{}, strides: 3}
	probe := &fakeTable{faults: &faults{}, strides: 3}
	op := &orderOperator{fakeOperator: fakeOperator{faults: &faults{}}, probe: &probe.scans, t: t}
	join := &physical.Stage{Step: "match", Schema: oneColumn, Inputs: []*physical.Stage{scanOf(probe), scanOf(build)},
		Spec: fakeSpec{"join", func() (operators.Operator, error) { return op, nil }}}
	_, err := planOf(join, &fakeTarget{faults: &faults{}}).
		run(context.Background(), execution.Options{Device: hosttest.Open(t)})
	require.NoError(t, err)
	assert.Equal(t, int64(1), probe.scans.Load())
	assert.Equal(t, int64(1), build.scans.Load())
}

// orderOperator checks that its probe side has not started when its build side ends.
type orderOperator struct {
	fakeOperator
	probe *atomic.Int64
	t     *testing.T
}

func (o *orderOperator) Finalize(ctx context.Context, t operators.Task) error {
	assert.Equal(o.t, 30, o.held.Rows)
	assert.Zero(o.t, o.probe.Load())
	return o.fakeOperator.Finalize(ctx, t)
}

func TestBudgetIsEnforcedAndNamesTheStage(t *testing.T) {
	d, err := host.Open(host.Options{Threads: 1, Memory: 100})
	require.NoError(t, err)
	target := &fakeTarget{faults: &faults{}}
	_, err = fakePlan(&faults{}, target).run(context.Background(), execution.Options{Device: d})
	require.ErrorIs(t, err, gpu.ErrBudget)
	assert.ErrorContains(t, err, "t: scan")
	assert.ErrorContains(t, err, "RunOptions.HostMemory")
	assert.Empty(t, d.Budget().Leaks())
}

func TestAScanThatTheBudgetIsTooSmallForIsRefusedBeforeAnythingRuns(t *testing.T) {
	small, large := &fakeTable{faults: &faults{}, strides: 3}, &fakeTable{faults: &faults{}, strides: 3, least: 2 << 20}
	union := &physical.Stage{Step: "both", Spec: &physical.Union{Columns: [][]int{{0}, {0}}}, Schema: oneColumn,
		Inputs: []*physical.Stage{scanOf(small), scanOf(large)}}
	target := &fakeTarget{faults: &faults{}}
	_, err := planOf(union, target).run(context.Background(), execution.Options{Device: hosttest.Open(t)})
	require.ErrorIs(t, err, gpu.ErrBudget)
	require.ErrorContains(t, err, "t: scan: needs 2.0 MiB more")
	require.Zero(t, small.scans.Load())
	require.Empty(t, target.ended, "there was no output")
}

// ending emits its strides, and in Flush one row of -1 from each lane.
type ending struct{ *fakeOperator }

func (o ending) NewLane(operators.Task) (operators.Lane, error) { return endingLane{}, nil }

type endingLane struct{}

func (endingLane) Close() error                                                     { return nil }
func (endingLane) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error { return emit(s) }
func (endingLane) Flush(_ context.Context, emit operators.Emit) error {
	typ := oneColumn.Fields[0].Type
	return emit(&gpu.Stride{Schema: oneColumn, Rows: 1,
		Cols: []gpu.Column{gpu.ColumnOf(typ, []gpu.Scalar{gpu.IntScalar(typ, -1)})}})
}

// valuesTarget remembers the rows that it gets.
type valuesTarget struct {
	fakeTarget
	values []int64
}

func (t *valuesTarget) Create(*gpu.Schema, execution.TargetOptions) (sink.Sink, error) { return t, nil }
func (t *valuesTarget) Write(ctx context.Context, s *gpu.Stride) error {
	t.values = append(t.values, gpu.Values[int64](s.Cols[0].Data, s.Rows)...)
	return t.fakeTarget.Write(ctx, s)
}

// Two operators of a pipeline flush one row a lane. The rows come after all others, and
// those of the first operator pass through the second one. A limit ends the pipeline
// before, while and after its lanes are flushed.
func TestFlushedRowsComeAfterAllOthers(t *testing.T) {
	defer goleak.VerifyNone(t)
	const rows, lanes = 70, 3
	dev, err := host.Open(host.Options{Threads: lanes, Memory: 64 << 20})
	require.NoError(t, err)
	var want []int64
	for i := range int64(rows) {
		want = append(want, i)
	}
	want = append(want, slices.Repeat([]int64{-1}, 2*lanes)...)
	for _, most := range []int{-1, 15, rows, rows + 1, rows + 2*lanes, rows + 100} {
		st := scanOf(&fakeTable{faults: &faults{}, strides: rows / 10})
		for range 2 {
			st = &physical.Stage{Step: "ending", Schema: oneColumn, Inputs: []*physical.Stage{st},
				Spec: operatorOf("operator", fakeStreaming{ending{&fakeOperator{faults: &faults{}}}})}
		}
		some := want
		if most >= 0 {
			some = want[:min(most, len(want))]
			st = &physical.Stage{Step: "first", Schema: oneColumn, Inputs: []*physical.Stage{st},
				Spec: fakeSpec{"limit",
					func() (operators.Operator, error) { return limit.New(oneColumn, 0, int64(most)), nil }}}
		}
		target := &valuesTarget{fakeTarget: fakeTarget{faults: &faults{}}}
		_, err := planOf(st, target).run(context.Background(), execution.Options{Device: dev})
		require.NoError(t, err)
		require.Equal(t, some, target.values, "limit %d", most)
	}
	require.Empty(t, dev.Budget().Leaks())
	require.NoError(t, dev.Close())
}

// A run that is denied memory starts again once: in one lane, with a new output. The report has the reason.
func TestARunThatIsRefusedMemoryStartsAgain(t *testing.T) {
	for _, denials := range []int{1, 2} {
		runs := 0
		var lanes []int // of the second run, which has one
		make := func() (operators.Operator, error) {
			runs++
			denies := runs <= denials
			return operators.Stateless(oneColumn, func(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
				if denies {
					return nil, t.Lease.Reserve(1 << 50)
				}
				lanes = append(lanes, t.Lanes)
				return s.Retain(), nil
			}), nil
		}
		st := &physical.Stage{Step: "short", Spec: fakeSpec{"operator", make}, Schema: oneColumn,
			Inputs: []*physical.Stage{scanOf(&fakeTable{faults: &faults{}, strides: 3})}}
		target := &fakeTarget{faults: &faults{}}
		report, err := planOf(st, target).run(context.Background(), execution.Options{Device: hosttest.Open(t)})
		require.Contains(t, report.Restarted, "short: operator: needs 1.0 PiB more")
		if denials == 2 {
			require.ErrorIs(t, err, gpu.ErrBudget)
			require.Equal(t, "abortabort", target.ended)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "abortcommit", target.ended)
		require.Equal(t, []int{1, 1, 1}, lanes)
		require.Contains(t, report.String(), "started again")
	}
}
