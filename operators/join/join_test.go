package join

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
)

// Both sides have a key that may be null, a text that may be null, a number that may be
// null, a text that may not, and a bound of keys that may be null.
var side = gpu.NewSchema(
	gpu.Field{Name: "key", Type: gpu.Of(gpu.Int64), Nullable: true},
	gpu.Field{Name: "text", Type: gpu.Of(gpu.String), Nullable: true},
	gpu.Field{Name: "number", Type: gpu.Of(gpu.Int32), Nullable: true},
	gpu.Field{Name: "name", Type: gpu.Of(gpu.String)},
	gpu.Field{Name: "bound", Type: gpu.Of(gpu.Int64), Nullable: true})

// draw draws n rows of a side, with about so many distinct keys.
func draw(rnd *rand.Rand, n, distinct int) [][]gpu.Scalar {
	out := make([][]gpu.Scalar, n)
	for i := range out {
		row := []gpu.Scalar{gpu.IntScalar(side.Fields[0].Type, rnd.Int64N(int64(distinct))),
			gpu.StringScalar(fmt.Sprint("t", rnd.IntN(2))),
			gpu.IntScalar(side.Fields[2].Type, rnd.Int64N(10)), gpu.StringScalar(fmt.Sprint("row ", i)),
			gpu.IntScalar(side.Fields[4].Type, rnd.Int64N(int64(distinct)))}
		for _, c := range []int{0, 1, 2, 4} {
			if rnd.IntN(8) == 0 {
				row[c] = gpu.Null(row[c].Type)
			}
		}
		out[i] = row
	}
	return out
}

// Keys that algorithms have got wrong: those that differ only in their upper half, one that
// all rows have, and none.
var hardKeys = []func(rnd *rand.Rand) gpu.Scalar{
	func(rnd *rand.Rand) gpu.Scalar { return gpu.IntScalar(side.Fields[0].Type, rnd.Int64N(9)<<32|7) },
	func(*rand.Rand) gpu.Scalar { return gpu.IntScalar(side.Fields[0].Type, -1) },
	func(*rand.Rand) gpu.Scalar { return gpu.Null(side.Fields[0].Type) },
}

// example is a join of two sides.
type example struct {
	kind         Kind
	algorithm    string
	keys         []int
	by           *Range // in place of keys
	asOf         *AsOf
	nullSafe     bool
	residual     bool // number < number
	texts        bool // the result has strings of the build side
	hard         bool // hardKeys
	probe, build [][]gpu.Scalar
	stride       int // most rows of a stride that the join should emit
	pushed       int // rows of the strides that it gets
	lanes        int
}

func (e example) String() string {
	return fmt.Sprintf(
		"%v, %s, keys %v, range %+v, as of %+v, null-safe %v, residual %v, texts %v, %d x %d rows, strides of %d "+
			"from %d, %d lanes",
		e.kind, e.algorithm, e.keys, e.by, e.asOf, e.nullSafe, e.residual, e.texts, len(e.probe), len(e.build),
		e.stride,
		e.pushed, e.lanes)
}

func (e example) spec() Spec {
	s := Spec{Kind: e.kind, Algorithm: e.algorithm, Probe: side, Build: side, ProbeKeys: e.keys, BuildKeys: e.keys,
		Range: e.by, AsOf: e.asOf,
		NullSafe: slices.Repeat([]bool{e.nullSafe}, len(e.keys)), ProbeOut: []int{3, 0}}
	if e.kind.OfBuild() {
		s.ProbeOut = nil
	}
	if e.kind.Pairs() || e.kind.OfBuild() {
		s.BuildOut = []int{2}
		if e.texts {
			s.BuildOut = []int{1, 2, 3}
		}
	}
	if e.residual {
		number := side.Fields[2].Type
		s.Residual = &Residual{Probe: []int{2}, Build: []int{2},
			Program: &gpu.Program{Inputs: []gpu.Type{number, number}, Outputs: []int{2},
				Code: []gpu.Instr{{Op: gpu.OpLt, Type: gpu.Of(gpu.Bool), Args: []int{0, 1}, Mask: -1}}}}
	}
	fields := slices.Concat(operators.PickFields(side, s.ProbeOut).Fields,
		operators.PickFields(side, s.BuildOut).Fields)
	for i := range fields {
		fields[i].Nullable = true
	}
	if e.kind == Mark {
		fields = append(fields, gpu.Field{Name: "match", Type: gpu.Of(gpu.Bool)})
	}
	s.Out = gpu.NewSchema(fields...)
	return s
}

// want joins the sides by nested loops.
func (e example) want() (out []string) {
	s := e.spec()
	text := func(probe, build []gpu.Scalar, more ...string) {
		var row []string
		pick := func(from []gpu.Scalar, at []int) {
			for _, c := range at {
				if from == nil {
					row = append(row, "NULL")
				} else {
					row = append(row, from[c].String())
				}
			}
		}
		pick(probe, s.ProbeOut)
		pick(build, s.BuildOut)
		out = append(out, strings.Join(append(row, more...), "|"))
	}
	matches := func(p, b []gpu.Scalar) bool {
		for _, k := range e.keys {
			if x, y := p[k], b[k]; !(x.Valid && y.Valid && x.Compare(y) == 0 || e.nullSafe && !x.Valid && !y.Valid) {
				return false
			}
		}
		if r := e.by; r != nil {
			key := b[r.Build]
			for _, bound := range []struct {
				column, sign int
				strict       bool
			}{{r.Lower, 1, r.LowerStrict}, {r.Upper, -1, r.UpperStrict}} {
				if bound.column < 0 {
					continue
				}
				if x := p[bound.column]; !key.Valid || !x.Valid || key.Compare(x)*bound.sign < 0 ||
					bound.strict && key.Compare(x) == 0 {
					return false
				}
			}
		}
		return !e.residual || p[2].Valid && b[2].Valid && p[2].Compare(b[2]) < 0
	}
	found := make([]bool, len(e.build))
	for _, p := range e.probe {
		some := false
		nearest := e.nearest(p, matches)
		for i, b := range e.build {
			if matches(p, b) && (e.asOf == nil || i == nearest) {
				some, found[i] = true, true
				if e.kind.Pairs() {
					text(p, b)
				}
			}
		}
		switch {
		case e.kind == Mark:
			text(p, nil, gpu.BoolScalar(some).String())
		case e.kind == Semi && some, e.kind == Anti && !some, e.kind.KeepsProbe() && !some:
			text(p, nil)
		}
	}
	for i, b := range e.build {
		if e.kind.KeepsBuild() && !found[i] || e.kind.OfBuild() && found[i] == (e.kind == RightSemi) {
			text(nil, b)
		}
	}
	return out
}

// nearest returns the build row that an ASOF join pairs with a probe row, -1 for none. Of rows with one time it is the
// one next to the time in the stable order.
func (e example) nearest(p []gpu.Scalar, matches func(p, b []gpu.Scalar) bool) int {
	at := -1
	if e.asOf == nil {
		return at
	}
	time := p[e.asOf.Probe]
	for i, b := range e.build {
		x := b[e.asOf.Build]
		if !matches(p, b) || !time.Valid || !x.Valid || e.asOf.Strict && x.Compare(time) == 0 {
			continue
		}
		if e.asOf.Forward {
			if x.Compare(time) >= 0 && (at < 0 || x.Compare(e.build[at][e.asOf.Build]) < 0) {
				at = i
			}
		} else if x.Compare(time) <= 0 && (at < 0 || x.Compare(e.build[at][e.asOf.Build]) >= 0) {
			at = i
		}
	}
	return at
}

// run joins the sides on a device and returns the rows in their order.
func (e example) run(t *testing.T, dev gpu.Device) []string {
	t.Helper()
	join, err := New(e.spec())
	require.NoError(t, err)
	l, down := dev.Budget().Lease("join"), dev.HostBudget().Lease("down")
	ctx := context.Background()
	rows, mu := map[int][]string{}, sync.Mutex{}
	most := e.stride
	if dev.Properties().PartitionedJoins && !slices.Contains([]string{"npj", "smj-ur", "smj-tr", "mpj", ""},
		e.algorithm) {
		most = max(most, 1<<17) // the least limit of a matcher of partitions on a GPU
	}
	emit := func(q gpu.Queue, number int) operators.Emit {
		return func(s *gpu.Stride) error {
			assert.Positive(t, s.Rows, "no empty strides")
			if e.kind.Pairs() {
				assert.LessOrEqual(t, s.Rows, most+len(e.build), e.String())
			}
			s, err := q.Download(down, s)
			if err != nil {
				return err
			}
			defer s.Release()
			mu.Lock()
			defer mu.Unlock()
			if err := s.Check(); err != nil {
				return err
			}
			for r := range s.Rows {
				var row []string
				for _, c := range s.Cols {
					row = append(row, c.ScalarAt(r).String())
				}
				rows[number] = append(rows[number], strings.Join(row, "|"))
			}
			return nil
		}
	}
	cut := func(q gpu.Queue, table [][]gpu.Scalar, number int) (*gpu.Stride, error) {
		part := table[number*e.pushed : min((number+1)*e.pushed, len(table))]
		s := &gpu.Stride{Schema: side, Rows: len(part)}
		for c, f := range side.Fields {
			var values []gpu.Scalar
			for _, row := range part {
				values = append(values, row[c])
			}
			s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, values))
		}
		return q.Upload(l, s)
	}
	// lanes works on the morsels of a table: lane i on those from i on, one of e.lanes.
	lanes := func(table [][]gpu.Scalar, open func(operators.Task) (push func(number int, s *gpu.Stride) error, end,
		close func() error, err error)) {
		var all errgroup.Group
		for i := range e.lanes {
			all.Go(func() error {
				q, err := dev.NewLaneQueue("lane")
				if err != nil {
					return err
				}
				push, end, closing,
					err := open(operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: e.stride, Lanes: e.lanes})
				if err != nil {
					return err
				}
				for n := i; n*e.pushed < len(table); n += e.lanes {
					s, err := cut(q, table, n)
					if err != nil {
						return err
					}
					if err := push(n, s); err != nil {
						return err
					}
				}
				for _, f := range []func() error{end, closing, q.Close} {
					if err := f(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, all.Wait(), e)
	}
	lanes(e.build, func(task operators.Task) (func(int, *gpu.Stride) error, func() error, func() error, error) {
		local, err := join.NewLocal(task)
		return func(n int, s *gpu.Stride) error { return local.Push(ctx, n, s) },
			func() error { return local.Combine(ctx) }, local.Close, err
	})
	q, err := dev.NewQueue("build")
	require.NoError(t, err)
	require.NoError(t, join.Finalize(ctx, operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: e.stride,
		Lanes: e.lanes}))
	lanes(e.probe, func(task operators.Task) (func(int, *gpu.Stride) error, func() error, func() error, error) {
		lane, err := join.NewLane(task)
		return func(n int, s *gpu.Stride) error { return lane.Push(ctx, s, emit(task.Queue, n)) },
			func() error { return lane.Flush(ctx, emit(task.Queue, len(e.probe))) }, lane.Close, err
	})
	require.NoError(t, join.Close())
	require.NoError(t, q.Close())
	require.NoError(t, l.Close(), "%v: everything is given back", e)
	require.NoError(t, down.Close())
	out := []string{}
	for _, n := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[n]...)
	}
	return out
}

func (e example) check(t *testing.T, dev gpu.Device) {
	t.Helper()
	want, got := append([]string{}, e.want()...), e.run(t, dev)
	if e.algorithm != "npj" { // others do not keep the order
		slices.Sort(want)
		slices.Sort(got)
	}
	require.Equal(t, want, got, e)
}

// examples returns joins of all kinds, with and without residual conditions, null-safe
// keys, duplicates, hard keys, empty sides, and strides that are much smaller than the result.
func examples(dev gpu.Device) (out []example) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for kind := Inner; kind <= RightAnti; kind++ {
		for _, algorithm := range AlgorithmsOn(dev.Properties()) {
			for flags := range 16 {
				for _, n := range [][3]int{{0, 0, 1}, {0, 20, 5}, {20, 0, 5}, {1, 1, 1}, {90, 60, 7}, {80, 50, 200}} {
					e := example{kind: kind, algorithm: algorithm, keys: []int{0}, nullSafe: flags&1 != 0,
						residual: flags&2 != 0, texts: flags&4 != 0,
						probe: draw(rnd, n[0], n[2]), build: draw(rnd, n[1], n[2])}
					if flags&8 != 0 {
						e.keys = []int{0, 1}
					}
					for _, sizes := range [][3]int{{1, 30, 1}, {3, 17, 3}, {40, 40, 2}, {1000, 1000, 1}} {
						e.stride, e.pushed, e.lanes = sizes[0], sizes[1], sizes[2]
						out = append(out, e)
					}
				}
			}
		}
		for _, algorithm := range AlgorithmsOn(dev.Properties()) {
			for flags := range 4 {
				for i, key := range hardKeys {
					e := example{kind: kind, algorithm: algorithm, keys: []int{0}, nullSafe: flags&1 != 0,
						residual: flags&2 != 0, hard: true,
						probe: draw(rnd, 40+i, 1), build: draw(rnd, 30+i, 1), stride: 50, pushed: 17, lanes: 2}
					for _, row := range slices.Concat(e.probe, e.build) {
						row[0] = key(rnd)
					}
					out = append(out, e)
				}
			}
		}
		for flags := range 16 {
			for _, n := range [][3]int{{0, 0, 1}, {0, 20, 5}, {20, 0, 5}, {1, 1, 1}, {50, 60, 7}, {80, 50, 30}} {
				e := example{kind: kind, keys: []int{1}, nullSafe: flags&1 != 0, texts: flags&2 != 0,
					asOf:  &AsOf{Probe: 4, Build: 0, Forward: flags&4 != 0, Strict: flags&8 != 0},
					probe: draw(rnd, n[0], n[2]), build: draw(rnd, n[1], n[2])}
				if flags%3 == 0 {
					e.keys, e.asOf.Probe, e.asOf.Build = []int{2, 1}, 3, 3
				}
				for _, sizes := range [][3]int{{3, 17, 3}, {40, 40, 2}, {1000, 1000, 1}} {
					e.stride, e.pushed, e.lanes = sizes[0], sizes[1], sizes[2]
					out = append(out, e)
				}
			}
		}
		for flags := range 4 {
			for _, r := range []Range{{Build: 0, Lower: 0, Upper: 4}, {Build: 0, Lower: 4, Upper: 0, LowerStrict: true},
				{Build: 4, Lower: -1, Upper: 0}, {Build: 3, Lower: 3, Upper: -1, LowerStrict: true}} {
				for _, n := range [][3]int{{0, 0, 1}, {0, 20, 5}, {20, 0, 5}, {1, 1, 1}, {50, 60, 7}, {80, 50, 200}} {
					e := example{kind: kind, by: &r, residual: flags&1 != 0, texts: flags&2 != 0,
						probe: draw(rnd, n[0], n[2]), build: draw(rnd, n[1], n[2])}
					for _, sizes := range [][3]int{{3, 17, 3}, {40, 40, 2}, {1000, 1000, 1}} {
						e.stride, e.pushed, e.lanes = sizes[0], sizes[1], sizes[2]
						out = append(out, e)
					}
				}
			}
		}
	}
	return out
}

func TestAllKindsOnTheCPU(t *testing.T) {
	dev, err := host.Open(host.Options{Threads: 2})
	require.NoError(t, err)
	thin := gputest.ThinOr(t, 31)
	for i, e := range examples(dev) {
		if gputest.Takes(thin, i) {
			e.check(t, dev)
		}
	}
	require.Empty(t, dev.Budget().Leaks())
	require.NoError(t, dev.Close())
}

func TestAllKindsOnAGPU(t *testing.T) {
	dev := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	rnd := rand.New(rand.NewPCG(3, 4))
	all := examples(dev)
	seen := map[string]bool{}
	thin := gputest.ThinOr(t, 31)
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, e := range all {
		// An emulator is slow: one example for each kind, algorithm, residual condition
		// unless keys are hard, and size of the sides; a third of these if the suite is thin.
		what := fmt.Sprint(e.kind, e.algorithm, e.by != nil, e.asOf != nil, e.residual && !e.hard, len(e.probe),
			len(e.build))
		if !seen[what] && (e.stride > 1 || len(e.probe) < 50) {
			seen[what] = true
			if !gputest.Takes(thin, len(seen)) {
				continue
			}
			e.lanes = 1
			e.check(t, dev)
		}
	}
}

// TestAlgorithmsOfAGPUSaySoOnTheCPU forces algorithms that only a GPU has.
func TestAlgorithmsOfAGPUSaySoOnTheCPU(t *testing.T) {
	dev, err := host.Open(host.Options{Threads: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	for _, algorithm := range []string{"rhj-double", "rhj-pages", "rhj-direct", "rhj-whole"} {
		j, err := New(example{kind: Inner, keys: []int{0}, algorithm: algorithm}.spec())
		require.NoError(t, err)
		_, err = j.NewLocal(operators.Task{Device: dev})
		require.ErrorContains(t, err, "the join algorithm "+algorithm+" is for a GPU")
		require.NoError(t, j.Close())
	}
}

func TestRefusedSpecs(t *testing.T) {
	for want, change := range map[string]func(s *Spec){
		`no join algorithm has the name "fast": choose one of npj`: func(s *Spec) { s.Algorithm = "fast" },
		"join returns 3 columns under 2 names": func(s *Spec) {
			s.Out = gpu.NewSchema(s.Out.Fields[:2]...)
		},
		"a semi join returns no columns of its build side":       func(s *Spec) { s.Kind = Semi },
		"a right anti join returns no columns of its probe side": func(s *Spec) { s.Kind = RightAnti },
		"the residual condition of a join has 0 values, want 1": func(s *Spec) {
			s.Residual = &Residual{Program: &gpu.Program{}}
		},
		"a join by a range has neither equal keys nor": func(s *Spec) { s.Range = &Range{} },
		"a join by a range without bounds": func(s *Spec) {
			byRangeOf(s,
				Range{Build: 0, Lower: -1, Upper: -1})
		},
		`join key "key" is BIGINT, but its bound "text" is VARCHAR`: func(s *Spec) {
			byRangeOf(s,
				Range{Build: 0, Lower: 0, Upper: 1})
		},
		`the time "text" is VARCHAR, but "key" is BIGINT`:   func(s *Spec) { s.AsOf = &AsOf{Probe: 1} },
		"an ASOF join has neither other conditions nor the": func(s *Spec) { s.AsOf, s.Algorithm = &AsOf{}, "npj" },
	} {
		s := example{kind: Inner, keys: []int{0}}.spec()
		change(&s)
		_, err := New(s)
		require.ErrorContains(t, err, want)
	}
}

// byRangeOf makes a join one by a range.
func byRangeOf(s *Spec, r Range) {
	s.ProbeKeys, s.BuildKeys, s.NullSafe, s.Range = nil, nil, nil, &r
}

// colliding is an algorithm that matches by the first of several keys alone, as if all hashes
// of the others collided: the condition that keys are equal has to find the pairs.
type colliding struct{ *Spec }

func (a colliding) build(ctx context.Context, t operators.Task, s *gpu.Stride) (built, error) {
	a.checks = append([]*Residual{a.equalKeys()}, a.checks...)
	first := *a.Spec
	first.ProbeKeys, first.BuildKeys, first.NullSafe = a.ProbeKeys[:1], a.BuildKeys[:1], a.NullSafe[:1]
	return phj{Spec: &first, collect: true, bits: partitionBits}.build(ctx, t, s)
}

func init() {
	algorithms = append(algorithms, named{name: "colliding", make: func(s *Spec) algorithm { return colliding{s} }})
}
