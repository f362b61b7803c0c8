package gpubench

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
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/spill"
)

// spillRatios are the sizes of the build side as multiples of the budget of device memory.
var spillRatios = []float64{0.5, 1, 2, 4, 8}

// tuple is the schema of the sides: 16 bytes a row.
var tuple = gpu.NewSchema(gpu.Field{Name: "key", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "payload", Type: gpu.Of(gpu.Int64)})

// spill joins two sides of equally many rows of 16 bytes, which lie in page-locked host
// memory, through the public operator (Lutz et al., SIGMOD 2022, §6.2): build keys are unique,
// and each probe row has one match. The build side is half to eight times the budget of device
// memory. The result of 24 bytes a row stays on the device, or is copied down. The bound is that
// of the link, phase by phase (build, probe, pairs of partitions): the bytes that the phase
// moved, at the rate of each direction or of both.
func (b *bench) spill() error {
	p, ok := b.dev.(gpu.Profiled)
	if !ok {
		return ErrNoLink
	}
	link, err := p.Link()
	if err != nil {
		return err
	}
	for _, ratio := range spillRatios {
		rows := int(ratio * float64(b.dev.Budget().Limit()) / 16)
		if b.opt.Rows > 0 {
			rows = int(ratio * float64(b.opt.Rows))
		}
		if int64(rows)*16*7/2 > b.dev.HostBudget().Limit() || rows > gpu.MaxRows {
			break // the sides and what spills of both do not fit host memory
		}
		s := &spilling{bench: b, link: link}
		err := s.draw(rows)
		for _, down := range []bool{false, true} {
			if err == nil {
				err = s.time(ratio, down)
			}
		}
		s.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// Spill is what a run of the benchmark spill did, one of those in the middle.
type Spill struct {
	Spilled float64      `json:"spilled"` // share of the rows of both sides
	Choice  string       `json:"choice"`  // of the join
	Phases  []SpillPhase `json:"phases"`
}

// SpillPhase is a phase of a join out of core: the build side, the probe side, the pairs of
// partitions.
type SpillPhase struct {
	Name  string        `json:"name"`
	Time  time.Duration `json:"time_ns"`
	Up    int64         `json:"bytes_up"`
	Down  int64         `json:"bytes_down"`
	Bound time.Duration `json:"bound_ns"` // the least time for these bytes
}

// spilling is the two sides of a join out of core.
type spilling struct {
	*bench
	link         gpu.Link
	build, probe []*gpu.Stride
	rows         int
}

// draw makes the sides in page-locked memory.
func (s *spilling) draw(rows int) (err error) {
	s.rows = rows
	if s.build, err = s.side(func(i int, _ *rand.Rand) uint64 { return uint64(i) }); err == nil {
		s.probe, err = s.side(func(_ int, rnd *rand.Rand) uint64 { return rnd.Uint64N(uint64(rows)) })
	}
	return err
}

// side makes strides whose row i has the key of number(i).
func (s *spilling) side(number func(i int, rnd *rand.Rand) uint64) (strides []*gpu.Stride, err error) {
	step := s.dev.StrideRows(16)
	for from := 0; from < s.rows; from += step {
		n := min(step, s.rows-from)
		st := &gpu.Stride{Schema: tuple, Rows: n}
		for range tuple.Fields {
			data, err := s.h.Alloc(int64(n) * 8)
			if err != nil {
				st.Release()
				return strides, err
			}
			st.Cols = append(st.Cols, gpu.Column{Type: gpu.Of(gpu.Int64), Len: n, Data: data})
		}
		keys, payload := gpu.Values[uint64](st.Cols[0].Data, n), gpu.Values[uint64](st.Cols[1].Data, n)
		parallel(n, func(a, z int) {
			rnd := rand.New(rand.NewPCG(uint64(from), uint64(a)))
			for i := a; i < z; i++ {
				keys[i] = number(from+i, rnd) * 0x9e3779b97f4a7c15 // a bijection: keys are far apart
				payload[i] = uint64(from + i)
			}
		})
		strides = append(strides, st)
	}
	return strides, nil
}

func (s *spilling) release() {
	for _, st := range slices.Concat(s.build, s.probe) {
		st.Release()
	}
}

// time reports the median of several runs.
func (s *spilling) time(ratio float64, down bool) error {
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
		run, err := s.once(down)
		if err != nil {
			return err
		}
		if i > 0 {
			runs = append(runs, timed{run, time.Since(begin)})
		}
	}
	slices.SortFunc(runs, func(x, y timed) int { return cmp.Compare(x.wall, y.wall) })
	middle := runs[len(runs)/2]
	what := "kept on the device"
	if down {
		what = "copied down"
	}
	s.each(Result{Benchmark: s.name, Case: fmt.Sprintf("build side %.1f × the budget, result %s", ratio, what), Rows: int64(2 * s.rows),
		Bytes: middle.bytes, Time: middle.wall, Wall: middle.wall, Runs: s.runs, Bound: "link", BoundRate: float64(middle.bytes) / middle.bound.Seconds(), Spill: &middle.Spill})
	return nil
}

// outOfCoreRun is what one run moved over the link, and the least time for it.
type outOfCoreRun struct {
	Spill
	bytes int64
	bound time.Duration
}

// once joins once and checks the number of rows.
func (s *spilling) once(down bool) (run outOfCoreRun, err error) {
	store := spill.NewStore(s.dev, spill.Options{Dir: os.TempDir()})
	l := s.dev.Budget().Lease("join")
	t := operators.Task{Device: s.dev, Queue: s.q, Lease: l, StrideRows: s.dev.StrideRows(24), Lanes: 1, Spill: store}
	o, err := join.New(join.Spec{Probe: tuple, Build: tuple, ProbeKeys: []int{0}, BuildKeys: []int{0}, NullSafe: []bool{false}, AnyOrder: true,
		ProbeOut: []int{0, 1}, BuildOut: []int{1}, BuildRows: int64(s.rows), ProbeRows: int64(s.rows), UniqueBuild: true,
		Out: gpu.NewSchema(tuple.Fields[0], tuple.Fields[1], gpu.Field{Name: "build", Type: tuple.Fields[1].Type})})
	if err != nil {
		return run, err
	}
	pairs := 0
	var copied int64 // down, of the result
	out := s.output()
	emit := func(st *gpu.Stride) error {
		pairs += st.Rows
		if !down {
			st.Release()
			return nil
		}
		copied += st.Bytes()
		return out.put(s.ctx, st)
	}
	var up, low int64 // bytes before the phase
	phase := func(name string, work func() error) error {
		begin := time.Now()
		err := work()
		u, d := l.Activity().BytesUp, store.Stats("join").Host.In+copied
		moved := func(n int64, rate float64) time.Duration { return time.Duration(float64(n) / rate * 1e9) }
		p := SpillPhase{Name: name, Time: time.Since(begin), Up: u - up, Down: d - low}
		p.Bound = max(moved(p.Up, s.link.Up), moved(p.Down, s.link.Down), moved(p.Up+p.Down, s.link.Both))
		run.Phases = append(run.Phases, p)
		run.bound += p.Bound
		run.bytes += p.Up + p.Down
		up, low = u, d
		return err
	}
	var lane operators.Lane
	for _, x := range []struct {
		name string
		work func() error
	}{
		{"build", func() error { return s.pushBuild(o, t) }},
		{"probe", func() (err error) {
			if lane, err = o.NewLane(t); err == nil {
				err = s.ahead(l, s.probe, func(st *gpu.Stride) error { return lane.Push(s.ctx, st, emit) })
			}
			if err == nil {
				err = lane.Flush(s.ctx, emit)
			}
			return err
		}},
		{"pairs", func() error {
			src := o.Deferred()
			if src == nil {
				return out.end()
			}
			for part := range src.Parts() {
				if err := src.Emit(s.ctx, t, part, emit); err != nil {
					return err
				}
			}
			return out.end()
		}},
	} {
		if err == nil {
			err = phase(x.name, x.work)
		}
	}
	if c, ok := o.(operators.Choosing); ok {
		run.Choice = c.Choice()
	}
	if lane != nil {
		err = errors.Join(err, lane.Close())
	}
	err = errors.Join(err, out.end())
	s.dev.(gpu.Profiled).Settle()
	run.Spilled = float64(store.Stats("join").Host.In) / float64(32*s.rows)
	err = errors.Join(err, o.Close(), store.Close(), l.Close())
	if err == nil && pairs != s.rows {
		err = fmt.Errorf("%w: %d pairs, want %d", ErrWrong, pairs, s.rows)
	}
	return run, err
}

// output copies strides down on a goroutine of its own, as the runner does.
type output struct {
	strides chan *gpu.Stride
	ended   chan struct{}
	once    sync.Once
	err     error // set when ended is closed
}

func (s *spilling) output() *output {
	o := &output{strides: make(chan *gpu.Stride, 2), ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		o.err = gpu.Behind(context.WithoutCancel(s.ctx), s.dev, "bench spill, output", s.h, func(context.Context) (*gpu.Stride, error) {
			if st, ok := <-o.strides; ok {
				return st, nil
			}
			return nil, io.EOF
		}, func(st *gpu.Stride) error {
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

// pushBuild collects and finalizes the build side.
func (s *spilling) pushBuild(o join.Join, t operators.Task) (err error) {
	local, err := o.NewLocal(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	n := 0
	err = s.ahead(t.Lease, s.build, func(st *gpu.Stride) error {
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

// ahead calls take with strides in host memory, which are copied up ahead of it.
func (s *spilling) ahead(l *gpu.Lease, strides []*gpu.Stride, take func(*gpu.Stride) error) (err error) {
	q, err := s.dev.NewQueue("bench spill, copies")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	a := gpu.NewAhead(s.ctx, func(ctx context.Context, a *gpu.Ahead) error {
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
