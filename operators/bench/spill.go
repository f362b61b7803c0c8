package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/operators/transfer"
	"github.com/gstream/gstream/spill"
)

// spillCase is an operator whose state is a multiple of the budget of device memory.
type spillCase struct {
	family    string
	ratio     float64 // of the state to the budget
	zipf      float64 // exponent of the frequencies of foreign keys, 0 for uniform
	down      bool    // the result is copied to the host
	algorithm string  // of a join
	payloads  int     // columns of 8 bytes besides the key of a wide join
	text      bool    // plus a string column of 12 characters
	write     *writeCase
}

// SpillFamilies returns the names of the groups of cases of the benchmark spill.
func SpillFamilies() []string {
	return []string{"join", "npj", "zipf", "groupby", "sort", "triton", "cpu-part", "cpu-radix", "wide", "ways"}
}

func spillCases() (out []spillCase) {
	add := func(c spillCase) {
		out = append(out, c)
		c.down = true
		out = append(out, c)
	}
	for _, ratio := range []float64{0.5, 1, 2, 4, 8} {
		add(spillCase{family: "join", ratio: ratio})
		add(spillCase{family: "npj", ratio: ratio, algorithm: "npj"})
		if ratio < 1 {
			continue
		}
		add(spillCase{family: "triton", ratio: ratio, algorithm: "triton"})
		out = append(out, spillCase{family: "cpu-part", ratio: ratio, down: true, algorithm: "triton"})
		if ratio <= 4 { // all of it must fit host memory
			out = append(out, spillCase{family: "cpu-radix", ratio: ratio, algorithm: "phj-tr"})
		}
	}
	add(spillCase{family: "join", ratio: 32}) // with a budget of 256 MiB its rows fit host memory
	add(spillCase{family: "zipf", ratio: 4, zipf: 1})
	for _, family := range []string{"groupby", "sort"} {
		for _, ratio := range []float64{1, 2, 4, 8} {
			add(spillCase{family: family, ratio: ratio})
		}
	}
	for _, text := range []bool{false, true} {
		for _, n := range []int{1, 4, 8, 16} {
			out = append(out, spillCase{family: "wide", ratio: 4, payloads: n, text: text, down: true})
		}
	}
	for _, w := range wayCases() {
		out = append(out, spillCase{family: "ways", write: &w})
	}
	return out
}

// chosenSpills returns the cases that names select, see pickCases. Without names it returns "join".
func chosenSpills(names []string) ([]spillCase, error) {
	if len(names) == 0 {
		names = []string{"join"}
	}
	return pickCases("spill", names, SpillFamilies(), spillCases(), func(c spillCase) (family, text string) {
		return c.family, c.name()
	})
}

func (c spillCase) name() string {
	if c.write != nil {
		return c.write.name()
	}
	what := map[string]string{"join": "join, build side", "npj": "join by one table, build side",
		"zipf": "join, foreign keys by Zipf 1, build side", "groupby": "group-by, groups", "sort": "sort, rows",
		"triton": "Triton join, build side", "cpu-part": "Triton join partitioned by the CPU, build side",
		"cpu-radix": "join of the CPU, build side"}[c.family]
	if c.family == "wide" {
		what = fmt.Sprintf("join of %d payloads", c.payloads)
		if c.text {
			what += " and a text"
		}
		what += " a side, build side"
	}
	end := "kept on the device"
	if c.down {
		end = "copied down"
	}
	return fmt.Sprintf("%s %.1f × the budget, result %s", what, c.ratio, end)
}

// row is the schema of the inputs: 16 bytes per row.
var row = spillCase{}.schema()

// schema returns the schema of the inputs of a case.
func (c spillCase) schema() *gpu.Schema {
	long := gpu.Of(gpu.Int64)
	fields := []gpu.Field{{Name: "key", Type: long}}
	for i := range max(1, c.payloads) {
		fields = append(fields, gpu.Field{Name: fmt.Sprint("payload", i), Type: long})
	}
	if c.text {
		fields = append(fields, gpu.Field{Name: "text", Type: gpu.Of(gpu.String)})
	}
	return gpu.NewSchema(fields...)
}

// textBytes is the length of a string in a wide join.
const textBytes = 12

// rowBytes returns the bytes of a row of the inputs of a case.
func (c spillCase) rowBytes() int {
	n := 8 + 8*max(1, c.payloads)
	if c.text {
		n += 4 + textBytes
	}
	return n
}

// inputs returns a key that is equal for cases with the same inputs.
func (c spillCase) inputs() string {
	if c.algorithm != "" {
		c.family = "join"
	}
	return fmt.Sprint(c.family, c.ratio, c.zipf, c.payloads, c.text)
}

// spill drives operators whose state is a multiple of the budget of device memory. Rows of 16 bytes
// are in page-locked host memory. The state counts 16 bytes for each build row, group, or row to
// sort. The result stays on the device, or is copied to the host.
//
//   - A join of two sides of equally many rows (Lutz et al., SIGMOD 2022, §6.2): build keys are unique, each
//     probe row has one match. Its result has 24 bytes per row. Other families join the same sides: npj with
//     one table over each group of partitions that stay, triton by the Triton join, cpu-part by the Triton
//     join with its first pass on the CPU, and cpu-radix entirely on the CPU, with as much host memory as
//     needed. Wide joins have more columns on both sides; their state counts all bytes.
//   - A group-by with two rows per group, far from each other: the sum of a BIGINT, which is a HUGEINT.
//   - A sort by keys in random order.
//   - The first pass of a join alone, with all write strategies; see writes.
//
// The bound is the link, phase by phase: the bytes that the phase moved, at the rate of one
// direction or of both.
func (b *bench) spill() error {
	p, ok := b.dev.(gpu.Profiled)
	if !ok {
		return ErrNoLink
	}
	cases, err := chosenSpills(b.opt.Cases)
	if err != nil {
		return err
	}
	s := &spilling{bench: b}
	defer s.release()
	defer s.closeCPU()
	if s.link, err = p.Link(); err != nil {
		return err
	}
	w := &writes{bench: b, link: s.link}
	defer w.release()
	for _, c := range cases {
		run := s.run
		if c.write != nil {
			run = w.run
		}
		if err := run(c); err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
	}
	return nil
}

// Spill has the additional figures of a result of the benchmark spill, from a run with about the
// median time.
type Spill struct {
	Spilled float64      `json:"spilled"` // share of the bytes of the inputs
	Choice  string       `json:"choice"`  // of the operator
	Phases  []SpillPhase `json:"phases"`
}

// SpillPhase is a phase of an operator out of core: of a join the build side, the probe side and
// the pairs of partitions; of a write strategy the prefix sum and the writing; of other operators
// the input and the result.
type SpillPhase struct {
	Name  string        `json:"name"`
	Time  time.Duration `json:"time_ns"`
	Up    int64         `json:"bytes_up"`
	Down  int64         `json:"bytes_down"`
	Bound time.Duration `json:"bound_ns"` // the least time for these bytes
}

// newSpillPhase returns a phase and its bound.
func newSpillPhase(link gpu.Link, name string, took time.Duration, up, down int64) SpillPhase {
	moved := func(n int64, rate float64) time.Duration { return time.Duration(float64(n) / rate * 1e9) }
	return SpillPhase{Name: name, Time: took, Up: up, Down: down,
		Bound: max(moved(up, link.Up), moved(down, link.Down), moved(up+down, link.Both))}
}

// spilling runs cases. The next case reuses the inputs of a case if they are the same.
type spilling struct {
	*bench
	link   gpu.Link
	of     spillCase
	rows   int // of the state
	inputs [2][]*gpu.Stride
	cpu    *host.Device // for families that need it
}

// run measures a case, unless its inputs and the rows that spill do not fit host memory.
func (s *spilling) run(c spillCase) error {
	rows := int(c.ratio * float64(s.dev.Budget().Limit()) / float64(c.rowBytes()))
	if s.opt.Rows > 0 {
		rows = int(c.ratio * float64(s.opt.Rows))
	}
	if int64(rows)*int64(c.rowBytes())*7/2 > s.dev.HostBudget().Limit() || 2*rows > gpu.MaxRows {
		return nil
	}
	before := s.of
	s.of = c
	if s.rows == 0 || c.inputs() != before.inputs() {
		s.release()
		s.rows = rows
		if err := s.draw(); err != nil {
			return err
		}
	}
	if c.family != "cpu-part" && c.family != "cpu-radix" {
		return s.time(c)
	}
	if s.cpu == nil {
		var err error
		if s.cpu, err = host.Open(host.Options{}); err != nil {
			return err
		}
	}
	if c.family == "cpu-part" {
		return s.time(c)
	}
	q, err := s.cpu.NewQueue("bench spill")
	if err != nil {
		return err
	}
	defer q.Close()
	all := *s
	b := *s.bench
	b.dev, b.q = s.cpu, q
	all.bench = &b
	return all.time(c)
}

func (s *spilling) closeCPU() {
	if s.cpu != nil {
		_ = s.cpu.Close()
	}
}

// draw generates the inputs in page-locked memory.
func (s *spilling) draw() (err error) {
	var keys *zipf
	if s.of.zipf > 0 {
		keys = newZipf(s.rows, s.of.zipf)
	}
	number := func(i int, _ *rand.Rand) uint64 { return uint64(i) }
	if s.inputs[0], err = s.side(number); err != nil || s.of.family == "sort" {
		return err
	}
	switch {
	case s.of.family == "groupby":
		number = func(i int, _ *rand.Rand) uint64 { return uint64(s.rows - 1 - i) }
	case keys != nil:
		number = func(i int, _ *rand.Rand) uint64 { return uint64(keys.number(i)) }
	default:
		number = func(_ int, rnd *rand.Rand) uint64 { return rnd.Uint64N(uint64(s.rows)) }
	}
	s.inputs[1], err = s.side(number)
	return err
}

// side generates strides whose row i has the key with number(i).
func (s *spilling) side(number func(i int, rnd *rand.Rand) uint64) (strides []*gpu.Stride, err error) {
	schema := s.of.schema()
	step := s.dev.StrideRows(s.of.rowBytes())
	for from := 0; from < s.rows; from += step {
		n := min(step, s.rows-from)
		st := &gpu.Stride{Schema: schema, Rows: n}
		for _, f := range schema.Fields {
			c := gpu.Column{Type: f.Type, Len: n}
			width := int64(8)
			if f.Type.IsVar() {
				width = textBytes
				c.Offsets, err = s.h.Alloc(int64(n+1) * 4)
			}
			if err == nil {
				c.Data, err = s.h.Alloc(int64(n) * width)
			}
			st.Cols = append(st.Cols, c)
			if err != nil {
				st.Release()
				return strides, err
			}
		}
		keys := gpu.Values[uint64](st.Cols[0].Data, n)
		parallel(n, func(a, z int) {
			rnd := rand.New(rand.NewPCG(uint64(from), uint64(a)))
			for i := a; i < z; i++ {
				keys[i] = number(from+i, rnd) * keyFactor // a bijection: keys are far apart
				for k, c := range st.Cols[1:] {
					if !c.Type.IsVar() {
						gpu.Values[uint64](c.Data, n)[i] = uint64(from + i + k)
						continue
					}
					gpu.Values[int32](c.Offsets, n+1)[i+1] = int32(i+1) * textBytes
					text := c.Data.Bytes()[i*textBytes:][:textBytes]
					for at, v := textBytes-1, from+i; at >= 0; at, v = at-1, v/10 {
						text[at] = '0' + byte(v%10)
					}
				}
			}
		})
		if s.of.text {
			gpu.Values[int32](st.Cols[len(st.Cols)-1].Offsets, n+1)[0] = 0
		}
		strides = append(strides, st)
	}
	return strides, nil
}

func (s *spilling) release() {
	for i, side := range s.inputs {
		for _, st := range side {
			st.Release()
		}
		s.inputs[i] = nil
	}
	s.rows = 0
}

// time reports the median of several runs.
func (s *spilling) time(c spillCase) error {
	type timed struct {
		outOfCoreRun
		wall time.Duration
	}
	var runs []timed
	for i := range s.runs + 1 {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		begin := time.Now()
		var check *spillCheck
		if i == 0 && c.down { // this run is not timed
			check = &spillCheck{spilling: s}
		}
		run, err := s.once(c, check)
		if err != nil {
			return err
		}
		if i > 0 {
			runs = append(runs, timed{run, time.Since(begin)})
		}
	}
	slices.SortFunc(runs, func(x, y timed) int { return cmp.Compare(x.wall, y.wall) })
	middle := runs[len(runs)/2]
	s.each(Result{Benchmark: s.name, Case: c.name(), Rows: s.inputRows(), Bytes: middle.bytes, Time: middle.wall,
		Wall: middle.wall, Runs: s.runs,
		Bound: "link", BoundRate: float64(middle.bytes) / middle.bound.Seconds(), Spill: &middle.Spill})
	return nil
}

func (s *spilling) inputRows() (n int64) {
	for _, side := range s.inputs {
		for _, st := range side {
			n += int64(st.Rows)
		}
	}
	return n
}

// outOfCoreRun has the bytes that one run moved over the link, and the least time for them.
type outOfCoreRun struct {
	Spill
	bytes int64
	bound time.Duration
}

// phase is a part of a run.
type phase struct {
	name string
	work func() error
}

// once runs the operator once. It checks the number of rows and, if check is not nil, the rows that
// are copied down.
func (s *spilling) once(c spillCase, check *spillCheck) (run outOfCoreRun, err error) {
	store := spill.NewStore(s.dev, spill.Options{Dir: os.TempDir()})
	l := s.dev.Budget().Lease("state")
	t := operators.Task{Device: s.dev, Queue: s.q, Lease: l, StrideRows: s.dev.StrideRows(2*c.rowBytes() - 8), Lanes: 1,
		Spill: store}
	rows := 0
	var copied int64 // down, of the result
	out := s.output(check)
	emit := func(st *gpu.Stride) error {
		rows += st.Rows
		if !c.down {
			st.Release()
			return nil
		}
		copied += st.Bytes()
		st.SetReady(s.dev)
		return out.put(s.ctx, st)
	}
	o, phases, err := s.phases(t, emit)
	phases[len(phases)-1].work = func(last func() error) func() error {
		return func() error { return errors.Join(last(), out.end()) }
	}(phases[len(phases)-1].work)
	var up, low int64 // bytes before the phase
	for _, p := range phases {
		if err != nil {
			break
		}
		begin := time.Now()
		err = p.work()
		u, d := l.Activity().BytesUp, store.Stats(l).Host.In+copied
		x := newSpillPhase(s.link, p.name, time.Since(begin), u-up, d-low)
		run.Phases = append(run.Phases, x)
		run.bound += x.Bound
		run.bytes += x.Up + x.Down
		up, low = u, d
	}
	if c, ok := o.(operators.Choosing); ok {
		run.Choice = c.Choice()
	}
	err = errors.Join(err, out.end())
	if p, ok := s.dev.(gpu.Profiled); ok {
		p.Settle()
	} else { // the bytes that a GPU would have to read
		run.bytes = int64(c.rowBytes()) * s.inputRows()
		run.bound = newSpillPhase(s.link, "", 0, run.bytes, 0).Bound
	}
	run.Spilled = float64(store.Stats(l).Host.In) / float64(int64(c.rowBytes())*s.inputRows())
	err = errors.Join(err, o.Close(), store.Close(), l.Close())
	if err == nil && rows != s.rows {
		err = fmt.Errorf("%w: %d rows, want %d", ErrWrong, rows, s.rows)
	}
	if err == nil && check != nil {
		err = check.end()
	}
	return run, err
}

// phases returns the operator of the case, and its phases in order.
func (s *spilling) phases(t operators.Task, emit operators.Emit) (operators.Operator, []phase, error) {
	switch s.of.family {
	case "groupby":
		sum := gpu.SumType(row.Fields[1].Type)
		o, err := groupby.New(groupby.Spec{In: row, Keys: []int{0},
			Aggregates: []groupby.Aggregate{{Kind: gpu.Sum, Input: 1, Output: sum}},
			Out:        gpu.NewSchema(row.Fields[0], gpu.Field{Name: "sum", Type: sum}),
			Hint:       gpu.GroupHint{Rows: 2 * s.rows, Groups: s.rows}})
		return o, s.blocking(o, o, t, emit), err
	case "sort":
		o, err := sort.New(sort.Spec{In: row, Keys: []sort.Key{{Column: 0}}, Limit: -1})
		return o, s.blocking(o, o, t, emit), err
	}
	schema := s.of.schema()
	spec := join.Spec{Probe: schema, Build: schema, ProbeKeys: []int{0}, BuildKeys: []int{0}, NullSafe: []bool{false},
		AnyOrder: true, Algorithm: s.of.algorithm,
		BuildRows: int64(s.rows), ProbeRows: int64(s.rows), UniqueBuild: true}
	out := []gpu.Field{schema.Fields[0]}
	spec.ProbeOut = []int{0}
	for i, f := range schema.Fields[1:] {
		spec.ProbeOut = append(spec.ProbeOut, i+1)
		out = append(out, f)
	}
	for i, f := range schema.Fields[1:] {
		f.Name = "build " + f.Name
		spec.BuildOut = append(spec.BuildOut, i+1)
		out = append(out, f)
	}
	spec.Out = gpu.NewSchema(out...)
	ahead := s.ahead
	if s.of.family == "cpu-part" {
		q, err := s.cpu.NewQueue("bench spill")
		if err != nil {
			return nil, nil, err
		}
		spec.FirstPass = q
		ahead = s.asTheyLie
	}
	o, err := join.New(spec)
	return o, []phase{
		{"build", func() error { return s.collect(o, t, s.inputs[:1], ahead) }},
		{"probe", func() (err error) {
			lane, err := o.NewLane(t)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, lane.Close()) }()
			if err := ahead(t.Lease, s.inputs[1],
				func(st *gpu.Stride) error { return lane.Push(s.ctx, st, emit) }); err != nil {
				return err
			}
			return lane.Flush(s.ctx, emit)
		}},
		{"pairs", func() error { return s.emitAll(o.Deferred(), t, emit) }},
	}, err
}

// blocking returns the phases of an operator that consumes all rows before it returns any.
func (s *spilling) blocking(o operators.Blocking, src operators.Source, t operators.Task, emit operators.Emit) []phase {
	return []phase{
		{"input", func() error { return s.collect(o, t, s.inputs[:], s.ahead) }},
		{"result", func() error { return s.emitAll(src, t, emit) }},
	}
}

// emitAll emits all parts of a source, which may be nil.
func (s *spilling) emitAll(src operators.Source, t operators.Task, emit operators.Emit) error {
	if src == nil {
		return nil
	}
	for part := range src.Parts() {
		if err := src.Emit(s.ctx, t, part, emit); err != nil {
			return err
		}
	}
	return nil
}

// collect pushes the rows of inputs, and finalizes the operator.
func (s *spilling) collect(o operators.Blocking, t operators.Task, inputs [][]*gpu.Stride, ahead source) (err error) {
	local, err := o.NewLocal(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	n := 0
	err = ahead(t.Lease, slices.Concat(inputs...), func(st *gpu.Stride) error {
		n++
		return local.Push(s.ctx, n, st)
	})
	if err == nil {
		err = local.Combine(s.ctx)
	}
	if err == nil {
		err = o.Finalize(s.ctx, t)
	}
	return err
}

// output copies strides to the host on a goroutine of its own, as the runner does.
type output struct {
	strides chan *gpu.Stride
	ended   chan struct{}
	once    sync.Once
	err     error // set when ended is closed
}

func (s *spilling) output(check *spillCheck) *output {
	o := &output{strides: make(chan *gpu.Stride, 2), ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		o.err = transfer.Behind(context.WithoutCancel(s.ctx), s.dev, "bench spill, output", s.h,
			func(context.Context) (*gpu.Stride, error) {
				if st, ok := <-o.strides; ok {
					return st, nil
				}
				return nil, io.EOF
			}, nil, func(st *gpu.Stride) error {
				if check != nil {
					check.stride(st)
				}
				st.Release()
				return nil
			})
		for st := range o.strides { // after an error
			st.Release()
		}
	}()
	return o
}

func (o *output) put(ctx context.Context, st *gpu.Stride) error {
	select {
	case o.strides <- st:
		return nil
	case <-ctx.Done():
		st.Release()
		return context.Cause(ctx)
	}
}

// end waits for the copies. It may be called again.
func (o *output) end() error {
	o.once.Do(func() { close(o.strides) })
	<-o.ended
	return o.err
}

// source calls take with strides.
type source func(l *gpu.Lease, strides []*gpu.Stride, take func(*gpu.Stride) error) error

// asTheyLie is a source that passes on strides in host memory as they are.
func (s *spilling) asTheyLie(_ *gpu.Lease, strides []*gpu.Stride, take func(*gpu.Stride) error) error {
	for _, st := range strides {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if err := take(st.Retain()); err != nil {
			return err
		}
	}
	return nil
}

// ahead is a source that copies strides in host memory to the device ahead of take.
func (s *spilling) ahead(l *gpu.Lease, strides []*gpu.Stride, take func(*gpu.Stride) error) (err error) {
	q, err := s.dev.NewQueue("bench spill, copies")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	a := transfer.NewAhead(s.ctx, func(ctx context.Context, a *transfer.Ahead) error {
		next := 0
		return a.Copy(ctx, q, l, func(context.Context) (*gpu.Stride, error) {
			if next == len(strides) {
				return nil, io.EOF
			}
			next++
			return strides[next-1].Retain(), nil
		})
	})
	defer func() { err = errors.Join(err, a.End(errEnough)) }()
	for {
		st, err := a.Take(s.ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.q.Wait(st); err != nil {
			st.Release()
			return err
		}
		if err := take(st); err != nil {
			return err
		}
	}
}

// errEnough ends the copies of a side.
var errEnough = errors.New("enough")
