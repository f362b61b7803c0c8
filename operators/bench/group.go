package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/transfer"
)

// Group has the additional figures of a result of the benchmark groupby.
type Group struct {
	Point
	Groups int64 `json:"groups"` // in the result
	// Transform and Aggregate are the times of these steps in the run with the median time. They
	// are 0 on a device that does not measure its work.
	Transform time.Duration `json:"transform_ns"`
	Aggregate time.Duration `json:"aggregate_ns"`
}

const aggregate = "aggregate"

// groupStep returns the step of a group-by that a span of a primitive belongs to.
func groupStep(span, _ string) string {
	name, _, _ := strings.Cut(span, ", ")
	if slices.Contains([]string{"hash", "partition", "sort", "concat", "slice", "gather"}, name) {
		return transform
	}
	return aggregate
}

// groupBy measures the group-by operator by workload and algorithm, as join measures joins. The
// result of the first run of each is compared with that of the table in device memory, whose sums
// must add up to those of the columns.
func (b *bench) groupBy() error {
	cases, err := chosenGroupings(b.opt.Cases, b.rows)
	if err != nil {
		return err
	}
	algorithms, err := groupAlgorithms.chosen(b.opt.Algorithms, b.dev.Properties())
	if err != nil {
		return err
	}
	rate, err := b.copyRate()
	if err != nil {
		return err
	}
	g := &groupBench{bench: b}
	defer g.release()
	var failed []error
	for _, w := range cases {
		failed = append(failed, g.run(w, algorithms, rate))
		if err := errors.Join(failed...); b.ctx.Err() != nil || gpu.IsFailure(err) {
			return err
		}
	}
	return errors.Join(failed...)
}

// groupBench has the rows of a workload on the device. The next workload reuses the same columns.
type groupBench struct {
	*bench
	grouped
	input []*gpu.Stride
	drawn [][]gpu.Column // columns by stride, the key first
	of    grouping       // their workload
	want  string
}

func (g *groupBench) release() {
	for _, cols := range g.drawn {
		gpu.ReleaseColumns(cols)
	}
	g.drawn = nil
}

// draw generates the rows of a workload on the device.
func (g *groupBench) draw(w grouping) error {
	same := g.of.rows == w.rows && g.of.value == w.value && g.of.columns == w.columns && g.of.form == w.form &&
		g.of.streams == w.streams && g.of.strideRows == w.strideRows && g.drawn != nil
	if !same {
		g.release()
	}
	wasDense := g.of.dense
	g.grouped, g.of, g.input = newGrouped(w), w, nil
	schema, perStride := w.schema(), g.strideRows()
	for at, from := 0, 0; from < w.rows; at, from = at+1, from+perStride {
		n := min(perStride, w.rows-from)
		if at == len(g.drawn) {
			g.drawn = append(g.drawn, make([]gpu.Column, schema.Len()))
		}
		for c := range g.drawn[at] {
			if same && (c >= w.keys() || w.streams && w.dense && wasDense) {
				continue
			}
			g.drawn[at][c].Release()
			g.drawn[at][c] = gpu.Column{}
			host, err := g.column(schema.Fields[c], c, from, n)
			if err == nil && !w.streams {
				host, err = g.up(host)
			}
			if err != nil {
				g.release()
				return err
			}
			g.drawn[at][c] = host
		}
		g.input = append(g.input, &gpu.Stride{Schema: schema, Cols: g.drawn[at], Rows: n})
	}
	return nil
}

// strideRows returns the rows of a stride.
func (g *groupBench) strideRows() int {
	usual := cmp.Or(g.grouping.strideRows, gpu.MaxRows)
	if g.streams {
		usual = g.dev.StrideRows(4 * (1 + g.grouping.columns))
	}
	return cmp.Or(g.opt.StrideRows, usual)
}

// column generates n rows of a column from row from on, in page-locked memory.
func (g *groupBench) column(f gpu.Field, c, from, n int) (gpu.Column, error) {
	random := func(i int) uint64 { return draw(payloadS+uint64(c), uint64(from+i)) }
	value, width := random, f.Type.Width()
	switch {
	case g.streams && g.dense && c == 0: // as Karnagel et al. generate col1
		value = func(i int) uint64 { return random(i) % 1e9 }
	case f.Type.IsVar():
		value, width = func(i int) uint64 { return uint64(g.numberAt(from + i)) }, 4
	case g.keys() == 2 && c < 2:
		value = func(i int) uint64 { return uint64(g.numberAt(from+i)) >> (10 * c) & (1<<10<<(30*c) - 1) }
	case c == 0:
		value = func(i int) uint64 { return g.keyAt(from + i) }
	case f.Type.Wide:
		value = func(i int) uint64 { return draw(payloadS+uint64(c), uint64(from+i/2)) >> (1 + i%2*30) }
	case f.Type.IsFloat():
		value = func(i int) uint64 { return math.Float64bits(float64(random(i)%1e8) / 128) }
	}
	rows := n
	if f.Type.Wide {
		n, width = 2*n, 8
	}
	out, err := g.values(n, width, value)
	if err != nil {
		return out, err
	}
	out.Type, out.Len = f.Type, rows
	if f.Type.IsVar() {
		words := make([]gpu.Scalar, g.groups)
		for i := range words {
			words[i] = gpu.StringScalar(fmt.Sprintf("key number %d", i))
		}
		out.Dict = &gpu.Dictionary{Values: gpu.ColumnOf(f.Type, words)}
	}
	if f.Nullable {
		bits, err := g.values(int(gpu.BitmapBytes(rows))/4, 4, func(i int) uint64 {
			word := uint64(0)
			for bit := range 32 {
				if draw(payloadS-1-uint64(c), uint64(from+32*i+bit))%10 > 0 {
					word |= 1 << bit
				}
			}
			return word
		})
		if err != nil {
			out.Release()
			return gpu.Column{}, err
		}
		out.Valid = bits.Data
	}
	return out, nil
}

// run measures a workload by several algorithms.
func (g *groupBench) run(w grouping, algorithms []string, rate float64) error {
	r := Result{Benchmark: g.name, Case: w.name(), Rows: int64(w.rows), Runs: g.runs, Bound: "copy", BoundRate: rate}
	point := func(algorithm string) *Group {
		return &Group{Point: Point{Family: w.family, Chart: w.chart, At: w.at, Algorithm: algorithm}}
	}
	fail := func(algorithm string, err error) error {
		r.Group = point(algorithm)
		r.Group.Error = err.Error()
		g.each(r)
		return fmt.Errorf("%s, %s: %w", r.Case, algorithm, err)
	}
	if p, ok := g.dev.(gpu.Profiled); w.streams {
		if !ok {
			return fail("", ErrNoLink)
		}
		link, err := p.Link()
		if err != nil {
			return err
		}
		r.Bound, r.BoundRate = "link up", link.Up
	}
	err := g.draw(w)
	if err == nil {
		g.want, err = g.check("hgb-g", true)
	}
	if err != nil {
		return fail(strings.Join(algorithms, ", "), err)
	}
	var failed []error
	for _, name := range algorithms {
		got := r
		got.Group = point(name)
		err := g.measure(name, &got)
		if err == nil {
			g.each(got)
			continue
		}
		failed = append(failed, fail(name, err))
		if g.ctx.Err() != nil || gpu.IsFailure(err) {
			break
		}
	}
	return errors.Join(failed...)
}

// check groups with an algorithm and returns the checksum of the result. With totals it requires
// that the sums add up to those of the columns.
func (g *groupBench) check(algorithm string, totals bool) (string, error) {
	sum, err := g.newChecksum()
	if err != nil {
		return "", err
	}
	defer sum.release()
	var all []*columnSum
	defer func() {
		for _, t := range all {
			t.release()
		}
	}()
	add := func(side, at int, c gpu.Column) error {
		for len(all) <= 2*at+side {
			t, err := g.newColumnSum(len(all)%2 == 1)
			if err != nil {
				return err
			}
			all = append(all, t)
		}
		return all[2*at+side].add(c)
	}
	totals = totals && g.kind == gpu.Sum && g.value == 4 && g.form == plain && !g.streams
	if _, err := g.once(algorithm, func(s *gpu.Stride) error {
		for i, c := range s.Cols[1:] {
			if totals {
				if err := add(1, i, c); err != nil {
					return err
				}
			}
		}
		return sum.add(s)
	}); err != nil {
		return "", err
	}
	if totals {
		for _, s := range g.input {
			for i, c := range s.Cols[1:] {
				if err := add(0, i, c); err != nil {
					return "", err
				}
			}
		}
		for i := 0; i < len(all); i += 2 {
			in, err := all[i].total()
			if err != nil {
				return "", err
			}
			out, err := all[i+1].total()
			if err != nil {
				return "", err
			}
			if in != out {
				return "", fmt.Errorf("%w: the sums of a column add up to %s, want %s", ErrWrong, out, in)
			}
		}
	}
	total, err := sum.total()
	return fmt.Sprintf("%d groups with the checksum %s", sum.rows, total), err
}

// columnSum is the sum of columns of one type.
type columnSum struct {
	b      *bench
	groups gpu.Groups
	sum    gpu.Accumulator
}

func (b *bench) newColumnSum(wide bool) (*columnSum, error) {
	t := gpu.Of(gpu.Int32)
	if wide {
		t = gpu.Of(gpu.HugeInt)
	}
	groups, err := b.q.NewGroups(b.l, nil, gpu.GroupHint{})
	if err != nil {
		return nil, err
	}
	acc, err := b.q.NewAccumulator(b.l, gpu.Aggregate{Kind: gpu.Sum, Input: t, Output: gpu.Of(gpu.HugeInt)})
	if err != nil {
		groups.Release()
		return nil, err
	}
	return &columnSum{b, groups, acc}, nil
}

func (c *columnSum) release() {
	c.groups.Release()
	c.sum.Release()
}

func (c *columnSum) add(v gpu.Column) error {
	one, err := c.groups.Assign(c.b.q, c.b.l, nil, v.Len)
	if err != nil {
		return err
	}
	defer one.Release()
	return c.sum.Update(c.b.q, one, v, 1)
}

func (c *columnSum) total() (string, error) {
	return (&checksum{b: c.b, groups: c.groups, sum: c.sum, rows: 1}).total()
}

// measure groups with an algorithm, once to check the result and then several times.
func (g *groupBench) measure(algorithm string, r *Result) error {
	got, err := g.check(algorithm, false)
	if err != nil {
		return err
	}
	if got != g.want {
		return fmt.Errorf("%w: %s, want %s", ErrWrong, got, g.want)
	}
	var runs []groupRun
	var walls []time.Duration
	for range g.runs {
		if err := g.ctx.Err(); err != nil {
			return err
		}
		run, err := g.once(algorithm, nil)
		if err != nil {
			return err
		}
		runs, walls = append(runs, run), append(walls, run.wall)
	}
	slices.SortFunc(runs, func(a, b groupRun) int { return cmp.Compare(a.time, b.time) })
	middle := runs[len(runs)/2]
	r.Time, r.Wall, r.Bytes = middle.time, median(walls), g.bytes(middle.groups)
	if g.streams {
		r.Time = r.Wall
	}
	r.Group.Groups, r.Group.Choice, r.Group.Memory, r.Group.Phases = middle.groups, middle.choice, middle.memory,
		middle.phases
	for _, p := range middle.phases {
		if p.Step == transform {
			r.Group.Transform += p.Time
		} else {
			r.Group.Aggregate += p.Time
		}
	}
	return nil
}

// groupRun has the times of one group-by.
type groupRun struct {
	time, wall     time.Duration
	groups, memory int64
	phases         []Phase
	choice         string
}

// once groups once. If check is not nil, it borrows all strides of the result, and the times are
// meaningless.
func (g *groupBench) once(algorithm string, check func(*gpu.Stride) error) (run groupRun, err error) {
	o, err := groupby.New(g.spec(algorithm))
	if err != nil {
		return run, err
	}
	t := operators.Task{Device: g.dev, Queue: g.q, Lease: g.dev.Budget().Lease("group-by"), StrideRows: g.strideRows(),
		Lanes: 1}
	p, profiled := g.dev.(gpu.Profiled)
	if profiled {
		p.Settle()
	}
	begin := time.Now()
	err = g.push(o, t, func(s *gpu.Stride) (err error) {
		defer s.Release()
		run.groups += int64(s.Rows)
		if check != nil {
			err = check(s)
		}
		return err
	})
	if c, ok := o.(operators.Choosing); ok {
		run.choice = c.Choice()
	}
	err = errors.Join(err, o.Close())
	if profiled {
		p.Settle()
	}
	run.wall = time.Since(begin)
	run.time = run.wall
	if profiled {
		run.time, run.phases = t.Lease.Activity().Busy, phases("", groupStep, p.Spans(t.Lease))
	}
	_, run.memory = t.Lease.Used()
	return run, errors.Join(err, t.Lease.Close())
}

// push drives the operator as a pipeline does.
func (g *groupBench) push(o groupby.GroupBy, t operators.Task, emit operators.Emit) (err error) {
	return g.drive(o, t, emit, func(push func(int, *gpu.Stride) error) error {
		if g.streams {
			return g.streamed(push)
		}
		return each(g.input, push)
	})
}

// each pushes strides, and keeps them.
func each(input []*gpu.Stride, push func(int, *gpu.Stride) error) error {
	for i, s := range input {
		if err := push(i, s.Retain()); err != nil {
			return err
		}
	}
	return nil
}

// drive pushes what feed pushes into an operator, and emits its result.
func (b *bench) drive(o groupby.GroupBy, t operators.Task, emit operators.Emit,
	feed func(push func(int, *gpu.Stride) error) error) (err error) {
	lane, err := o.NewLocal(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lane.Close()) }()
	if err := feed(func(i int, s *gpu.Stride) error { return lane.Push(b.ctx, i, s) }); err != nil {
		return err
	}
	if err := lane.Combine(b.ctx); err != nil {
		return err
	}
	if err := o.Finalize(b.ctx, t); err != nil {
		return err
	}
	for part := range o.Parts() {
		if err := o.Emit(b.ctx, t, part, emit); err != nil {
			return err
		}
	}
	return nil
}

// streamed copies the strides to the device ahead of their turn. Dense keys are computed there: the
// first column modulo the number of groups. Random keys are in the column.
func (g *groupBench) streamed(take func(int, *gpu.Stride) error) (err error) {
	ahead := transfer.NewAhead(g.ctx, func(ctx context.Context,
		a *transfer.Ahead) error {
		return g.copyAhead(ctx, a, g.input)
	})
	defer func() {
		if endErr := ahead.End(context.Canceled); err == nil {
			err = endErr
		}
	}()
	int32s := gpu.Of(gpu.Int32)
	key := &gpu.Program{Inputs: []gpu.Type{int32s}, Outputs: []int{2}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: int32s, Value: gpu.IntScalar(int32s, int64(g.groups)), Mask: -1},
		{Op: gpu.OpMod, Type: int32s, Args: []int{0, 1}, Mask: -1, Text: "key"}}}
	for i := 0; ; i++ {
		s, err := ahead.Take(g.ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err = g.q.Wait(s); err == nil && g.dense {
			var made []gpu.Column
			if made, err = g.q.Eval(g.l, key, s.Cols[:1], s.Rows); err == nil {
				s.Cols[0].Release()
				s.Cols[0] = made[0]
			}
		}
		if err != nil {
			s.Release()
			return err
		}
		if err := take(i, s); err != nil {
			return err
		}
	}
}
