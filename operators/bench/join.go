package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/join"
)

// ErrWrong means that an operator returned rows that do not follow from its data.
var ErrWrong = errors.New("wrong result")

// Join has the additional figures of a result of the benchmark join.
type Join struct {
	Point
	BuildRows int64 `json:"build_rows"`
	ProbeRows int64 `json:"probe_rows"`
	Pairs     int64 `json:"pairs"`
	// Build and Probe are times of the run with the median time: until the build side is finalized,
	// and from there. Transform, Match and Materialise are its times by step. They are 0 on a
	// device that does not measure its work.
	Build       time.Duration `json:"build_ns"`
	Probe       time.Duration `json:"probe_ns"`
	Transform   time.Duration `json:"transform_ns"`
	Match       time.Duration `json:"match_ns"`
	Materialise time.Duration `json:"materialise_ns"`
}

// Point is the result of an operator with an algorithm on a workload, as a point of a chart.
type Point struct {
	Family    string `json:"family"`
	Chart     string `json:"chart"` // the chart with the point
	At        string `json:"at"`    // its position there: the value of the parameter
	Algorithm string `json:"algorithm"`
	// Choice is the algorithm that ran and the reason, in one line.
	Choice string  `json:"choice"`
	Phases []Phase `json:"phases,omitempty"` // of the run with the median time
	// Memory is the peak of device memory of the operator, without its inputs.
	Memory int64 `json:"memory_bytes"`
	// Error says why the case could not be measured with this algorithm.
	Error string `json:"error,omitempty"`
}

// Phase is the work of one primitive, or of a part of it, in an operator.
type Phase struct {
	Side  string        `json:"side,omitempty"` // of a join: "build" until the build side is finalized, then "probe"
	Step  string        `json:"step"`           // "transform", "match", "materialise" or "aggregate"
	Name  string        `json:"name"`           // as in gpu.Span
	Time  time.Duration `json:"time_ns"`
	Count int           `json:"count"`
}

// The steps of a join.
const (
	transform   = "transform"
	match       = "match"
	materialise = "materialise"
)

// step returns the step of a primitive's span; before is the step of the previous span. A gather or
// a scatter belongs to the transformation, unless something was matched before. A match that also
// writes the result counts as match.
func step(span, before string) string {
	name, phase, _ := strings.Cut(span, ", ")
	switch {
	case phase == materialise:
		return materialise
	case slices.Contains([]string{"hash", "partition", "partition into buckets", "sort", "merge sort", "concat",
		"slice", "evaluate"}, name):
		return transform
	case name != "gather" && name != "scatter":
		return match
	case before == match || before == materialise:
		return materialise
	}
	return transform
}

// join measures the join operator by workload and algorithm. The operator is driven as a pipeline
// drives it. The first run of each is not timed: its result is compared with the correct one. If a
// case fails, its result says so, and the other cases are still measured. A workload that is a
// point of several charts is measured once.
func (b *bench) join() error {
	cases, err := chosenWorkloads(b.opt.Cases, b.rows)
	if err != nil {
		return err
	}
	algorithms, err := joinAlgorithms.chosen(b.opt.Algorithms, b.dev.Properties())
	if err != nil {
		return err
	}
	rate, err := b.copyRate()
	if err != nil {
		return err
	}
	var failed []error
	measured := map[workload][]Result{}
	for _, w := range cases {
		same := w
		same.family, same.chart, same.at = "", "", ""
		for _, r := range measured[same] {
			j := *r.Join
			j.Family, j.Chart, j.At = w.family, w.chart, w.at
			r.Join = &j
			b.each(r)
		}
		if len(measured[same]) > 0 {
			continue
		}
		failed = append(failed, b.joinCase(w, algorithms, rate, func(r Result) {
			measured[same] = append(measured[same], r)
			b.each(r)
		}))
		if err := errors.Join(failed...); b.ctx.Err() != nil || gpu.IsFailure(err) {
			return err
		}
	}
	return errors.Join(failed...)
}

// joinCase generates the data of a workload and joins it with several algorithms.
func (b *bench) joinCase(w workload, algorithms []string, rate float64, each func(Result)) error {
	r := Result{Benchmark: b.name, Case: w.name(), Rows: int64(w.build + w.probe), Runs: b.runs, Bound: "copy",
		BoundRate: rate}
	fail := func(algorithm string, err error) error {
		r.Join = w.result(algorithm)
		r.Join.Error = err.Error()
		each(r)
		return fmt.Errorf("%s, %s: %w", r.Case, r.Join.Algorithm, err)
	}
	d := newData(w)
	j := &joined{bench: b, workload: w}
	defer j.release()
	err := j.draw(d)
	if err == nil {
		j.want, err = b.answer(d, w.spec(Chosen).Out)
	}
	if err != nil {
		return fail(strings.Join(algorithms, ", "), err)
	}
	var failed []error
	for _, name := range algorithms {
		got := r
		err := j.measure(name, &got)
		if err == nil {
			each(got)
			continue
		}
		failed = append(failed, fail(name, err))
		if b.ctx.Err() != nil || gpu.IsFailure(err) {
			break
		}
	}
	return errors.Join(failed...)
}

// result is the part of a result that is known before the join.
func (w workload) result(algorithm string) *Join {
	return &Join{Point: Point{Family: w.family, Chart: w.chart, At: w.at, Algorithm: algorithm},
		BuildRows: int64(w.build), ProbeRows: int64(w.probe)}
}

// joined is a workload on the device.
type joined struct {
	*bench
	workload
	build, probe []*gpu.Stride
	want         answer
}

func (j *joined) release() {
	releaseStrides(j.build)
	releaseStrides(j.probe)
}

// draw generates both sides on the device.
func (j *joined) draw(d *data) (err error) {
	perStride := cmp.Or(j.opt.StrideRows, gpu.MaxRows)
	if j.build, err = j.table(j.schema("r"), j.workload.build, perStride, d.buildValue); err != nil {
		return err
	}
	j.probe, err = j.table(j.schema("s"), j.workload.probe, perStride, d.probeValue)
	return err
}

// measure joins with an algorithm, once to check the result and then several times.
func (j *joined) measure(algorithm string, r *Result) error {
	sum, err := j.newChecksum()
	if err != nil {
		return err
	}
	defer sum.release()
	if _, err := j.once(algorithm, sum.add); err != nil {
		return err
	}
	total, err := sum.total()
	if err != nil {
		return err
	}
	if sum.rows != j.want.pairs || total != j.want.sum {
		return fmt.Errorf("%w: %d pairs with the checksum %s, want %d with %s", ErrWrong, sum.rows, total, j.want.pairs,
			j.want.sum)
	}
	var runs []joinRun
	var walls []time.Duration
	for range j.runs {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		run, err := j.once(algorithm, nil)
		if err != nil {
			return err
		}
		runs, walls = append(runs, run), append(walls, run.wall)
	}
	slices.SortFunc(runs, func(a, b joinRun) int { return cmp.Compare(a.time(), b.time()) })
	middle := runs[len(runs)/2]
	r.Time, r.Wall, r.Bytes = middle.time(), median(walls), j.bytes(j.want.pairs)
	r.Join = j.result(algorithm)
	r.Join.Choice = middle.choice
	r.Join.Pairs, r.Join.Build, r.Join.Probe, r.Join.Memory, r.Join.Phases = j.want.pairs, middle.build, middle.probe,
		middle.memory, middle.phases
	for _, p := range middle.phases {
		switch p.Step {
		case transform:
			r.Join.Transform += p.Time
		case match:
			r.Join.Match += p.Time
		case materialise:
			r.Join.Materialise += p.Time
		}
	}
	return nil
}

// joinRun has the times of one join.
type joinRun struct {
	build, probe, wall time.Duration
	phases             []Phase
	memory             int64
	choice             string
}

func (r joinRun) time() time.Duration { return r.build + r.probe }

// mostRows bounds the rows of an emitted stride, unless Options.StrideRows is set: most results are
// a single stride.
const mostRows = 1 << 28

// once joins once. If check is not nil, it borrows all strides of the result, and the times are
// meaningless.
func (j *joined) once(algorithm string, check func(*gpu.Stride) error) (run joinRun, err error) {
	spec := j.spec(algorithm)
	o, err := join.New(spec)
	if err != nil {
		return run, err
	}
	// Each side has its own lease, because the device counts its work by leases.
	t := operators.Task{Device: j.dev, Queue: j.q, StrideRows: cmp.Or(j.opt.StrideRows, mostRows), Lanes: 1}
	build, probe := t, t
	build.Lease, probe.Lease = j.dev.Budget().Lease("join, build side"), j.dev.Budget().Lease("join, probe side")
	pairs := int64(0)
	emit := func(s *gpu.Stride) (err error) {
		defer s.Release()
		pairs += int64(s.Rows)
		if check != nil {
			err = check(s)
		}
		return err
	}
	p, profiled := j.dev.(gpu.Profiled)
	if profiled {
		p.Settle()
	}
	begin := time.Now()
	err = j.pushBuild(o, build)
	run.build = time.Since(begin)
	if err == nil {
		err = j.pushProbe(o, probe, emit)
	}
	if c, ok := o.(operators.Choosing); ok {
		run.choice = c.Choice()
	}
	err = errors.Join(err, o.Close())
	if profiled {
		p.Settle()
	}
	run.wall = time.Since(begin)
	run.probe = run.wall - run.build
	if profiled {
		run.build, run.probe = build.Lease.Activity().Busy, probe.Lease.Activity().Busy
		run.phases = append(phases("build", step, p.Spans(build.Lease)), phases("probe", step, p.Spans(probe.Lease))...)
	}
	_, b := build.Lease.Used()
	_, m := probe.Lease.Used()
	run.memory = b + m
	err = errors.Join(err, build.Lease.Close(), probe.Lease.Close())
	if err == nil && pairs != j.want.pairs {
		err = fmt.Errorf("%w: %d pairs, want %d", ErrWrong, pairs, j.want.pairs)
	}
	return run, err
}

func (j *joined) pushBuild(o join.Join, t operators.Task) (err error) {
	local, err := o.NewLocal(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	for i, s := range j.build {
		if err := local.Push(j.ctx, i, s.Retain()); err != nil {
			return err
		}
	}
	if err := local.Combine(j.ctx); err != nil {
		return err
	}
	return o.Finalize(j.ctx, t)
}

func (j *joined) pushProbe(o join.Join, t operators.Task, emit operators.Emit) (err error) {
	lane, err := o.NewLane(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lane.Close()) }()
	for _, s := range j.probe {
		if err := lane.Push(j.ctx, s.Retain(), emit); err != nil {
			return err
		}
	}
	return lane.Flush(j.ctx, emit)
}

// phases adds up the spans of a side's kernels by name and step, in order of their first
// appearance.
func phases(side string, step func(span, before string) string, spans []gpu.Span) (out []Phase) {
	before := transform
	for _, s := range spans {
		if s.Lane != "kernels" {
			continue
		}
		before = step(s.Name, before)
		at := slices.IndexFunc(out, func(p Phase) bool { return p.Name == s.Name && p.Step == before })
		if at < 0 {
			at, out = len(out), append(out, Phase{Side: side, Step: before, Name: s.Name})
		}
		out[at].Time += s.End - s.Start
		out[at].Count++
	}
	return out
}
