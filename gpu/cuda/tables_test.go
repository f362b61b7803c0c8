package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// side is a device that a test compares with another.
type side struct {
	t    *testing.T
	dev  gpu.Device
	q    gpu.Queue
	l, h *gpu.Lease
}

func newSide(t *testing.T, dev gpu.Device) *side {
	q, err := dev.NewQueue(t.Name())
	require.NoError(t, err)
	s := &side{t: t, dev: dev, q: q, l: dev.Budget().Lease(t.Name()), h: dev.HostBudget().Lease(t.Name() + " host")}
	t.Cleanup(func() {
		require.NoError(t, s.q.Close())
		require.NoError(t, s.l.Close())
		require.NoError(t, s.h.Close())
		require.NoError(t, dev.Close())
	})
	return s
}

// bothSides returns the host and the GPU.
func bothSides(t *testing.T) (cpu, gpu *side) {
	skipWithRaceDetector(t)
	h, err := host.Open(host.Options{})
	require.NoError(t, err)
	return newSide(t, h), newSide(t, openWith(t, 0, 1<<30))
}

func (s *side) up(cols ...gpu.Column) []gpu.Column {
	fields := make([]gpu.Field, len(cols))
	for i, c := range cols {
		fields[i] = gpu.Field{Name: fmt.Sprint(i), Type: c.Type, Nullable: true}
	}
	stride, err := s.q.Up(s.l, &gpu.Stride{Schema: gpu.NewSchema(fields...), Cols: append([]gpu.Column(nil), cols...), Rows: cols[0].Len})
	require.NoError(s.t, err)
	s.t.Cleanup(stride.Release)
	return stride.Cols
}

func (s *side) down(c gpu.Column) []gpu.Scalar {
	stride, err := s.q.Down(s.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type, Nullable: true}), Cols: []gpu.Column{c.Retain()}, Rows: c.Len})
	require.NoError(s.t, err)
	defer stride.Release()
	out := make([]gpu.Scalar, c.Len)
	for i := range out {
		out[i] = stride.Cols[0].ScalarAt(i)
	}
	return out
}

// keyColumns are columns of n keys, some of them null: numbers of 4 and 8 bytes,
// a wide range, strings, and strings by code.
func keyColumns(rnd *rand.Rand, n, distinct int) map[string][]gpu.Column {
	draw := func(t gpu.Type, nulls int, value func(k int64) gpu.Scalar) gpu.Column {
		out := make([]gpu.Scalar, n)
		for i := range out {
			out[i] = value(rnd.Int64N(int64(distinct)))
			if nulls > 0 && rnd.IntN(nulls) == 0 {
				out[i] = gpu.Null(t)
			}
		}
		return gpu.ColumnOf(t, out)
	}
	number := func(t gpu.Type) func(int64) gpu.Scalar {
		return func(k int64) gpu.Scalar { return gpu.IntScalar(t, k*int64(1+t.Width()/8*1_000_003)) }
	}
	str := gpu.Of(gpu.String)
	text := func(k int64) gpu.Scalar { return gpu.StringScalar(fmt.Sprint("key number ", k)) }
	i32, i64, dec := gpu.Of(gpu.Int32), gpu.Of(gpu.Int64), gpu.DecimalOf(38, 2)
	codes := make([]int32, n)
	words := make([]gpu.Scalar, distinct)
	for i := range codes {
		codes[i] = int32(rnd.IntN(distinct))
	}
	for k := range words {
		words[k] = text(int64(k / 2))
	}
	coded := gpu.Column{Type: str, Len: n, Data: gpu.WrapBytes(gpu.BytesOf(codes)), Dict: &gpu.Dictionary{Values: gpu.ColumnOf(str, words)}}
	return map[string][]gpu.Column{
		"int32":           {draw(i32, 0, number(i32))},
		"int32 and null":  {draw(i32, 40, number(i32))},
		"int64 and null":  {draw(i64, 40, number(i64))},
		"decimal":         {draw(dec, 40, number(dec))},
		"text and null":   {draw(str, 40, text)},
		"text by code":    {coded},
		"number and text": {draw(i64, 40, number(i64)), draw(str, 40, text)},
	}
}

func sliceAll(s *side, cols []gpu.Column, from, to int) []gpu.Column {
	out := make([]gpu.Column, len(cols))
	for i, c := range cols {
		var err error
		out[i], err = s.q.Slice(s.l, c, from, to)
		require.NoError(s.t, err)
	}
	return out
}

// assignAll assigns groups to strides of the columns and returns the ids of all rows
// and the keys of all groups.
func (s *side) assignAll(cols []gpu.Column, strides ...int) (ids []int64, keys [][]gpu.Scalar) {
	cols = s.up(cols...)
	types := make([]gpu.Type, len(cols))
	for i, c := range cols {
		types[i] = c.Type
	}
	g, err := s.q.NewGroups(s.l, types, gpu.GroupHint{})
	require.NoError(s.t, err)
	defer g.Release()
	from := 0
	for _, n := range strides {
		part := sliceAll(s, cols, from, from+n)
		a, err := g.Assign(s.q, s.l, part, n)
		require.NoError(s.t, err)
		for _, id := range s.down(a.IDs()) {
			ids = append(ids, id.Int.Int64())
		}
		a.Release()
		gpu.ReleaseColumns(part)
		from += n
	}
	out, err := g.Keys(s.q, s.l, 0, g.Len())
	require.NoError(s.t, err)
	for _, c := range out {
		keys = append(keys, s.down(c))
	}
	gpu.ReleaseColumns(out)
	return ids, keys
}

// Strides far larger than the first batch of an index, with keys that are new all the
// way, take every path of its growth.
func TestGroupsAreNumberedAsTheyAppear(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, distinct := range []int{9, 70_000} {
		const n = 150_000
		for name, cols := range keyColumns(rnd, n, distinct) {
			t.Run(fmt.Sprint(name, " of ", distinct), func(t *testing.T) {
				cpu, dev := bothSides(t)
				strides := []int{100, n - 5100, 5000}
				wantIDs, wantKeys := cpu.assignAll(cols, strides...)
				ids, keys := dev.assignAll(cols, strides...)
				require.Equal(t, wantIDs, ids)
				require.Equal(t, wantKeys, keys)
			})
		}
	}
}

// pairsOf joins and returns all pairs in order.
func (s *side) pairsOf(build, probe []gpu.Column, kind gpu.JoinKind, limit int) (out [][2]int64) {
	build, probe = s.up(build...), s.up(probe...)
	table, err := s.q.BuildTable(s.l, build, make([]bool, len(build)))
	require.NoError(s.t, err)
	defer table.Release()
	for from := 0; from < probe[0].Len; {
		p, b, next, err := table.Probe(s.q, s.l, probe, kind, from, limit)
		require.NoError(s.t, err)
		rows := s.down(p)
		matches := make([]gpu.Scalar, len(rows))
		if kind == gpu.Inner || kind == gpu.Left {
			matches = s.down(b)
		}
		for i := range rows {
			out = append(out, [2]int64{rows[i].Int.Int64(), matches[i].Int.Int64()})
		}
		p.Release()
		b.Release()
		from = next
	}
	return out
}

func TestPairsComeInBuildOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	build, probe := keyColumns(rnd, 70_000, 60_000), keyColumns(rnd, 70_000, 90_000)
	for name := range build {
		t.Run(name, func(t *testing.T) {
			cpu, dev := bothSides(t)
			for kind := gpu.Inner; kind <= gpu.Anti; kind++ {
				require.Equal(t, cpu.pairsOf(build[name], probe[name], kind, math.MaxInt32), dev.pairsOf(build[name], probe[name], kind, 30_000), kind)
			}
		})
	}
}

// One key of the build side has most of its rows, so that a tile's pairs are more than
// a block writes.
func TestRowsThatMatchManyOthers(t *testing.T) {
	i64 := gpu.Of(gpu.Int64)
	build, probe := make([]gpu.Scalar, 30_000), make([]gpu.Scalar, 100)
	for i := range build {
		build[i] = gpu.IntScalar(i64, int64(max(i-29_000, 0)))
	}
	for i := range probe {
		probe[i] = gpu.IntScalar(i64, int64(max(i-90, 0)*50))
	}
	cpu, dev := bothSides(t)
	for _, limit := range []int{1, 100_000, math.MaxInt32} {
		want := cpu.pairsOf([]gpu.Column{gpu.ColumnOf(i64, build)}, []gpu.Column{gpu.ColumnOf(i64, probe)}, gpu.Inner, math.MaxInt32)
		require.Equal(t, want, dev.pairsOf([]gpu.Column{gpu.ColumnOf(i64, build)}, []gpu.Column{gpu.ColumnOf(i64, probe)}, gpu.Inner, limit))
	}
}

// aggregate folds values into groups, a stride at a time.
func (s *side) aggregate(a gpu.Aggregate, groups int, ids []int64, values ...[]gpu.Scalar) ([]gpu.Scalar, error) {
	acc, err := s.q.NewAccumulator(s.l, a)
	require.NoError(s.t, err)
	defer acc.Release()
	i32 := gpu.Of(gpu.Int32)
	for _, v := range values {
		keys := make([]gpu.Scalar, len(v))
		for i := range keys {
			keys[i] = gpu.IntScalar(i32, ids[i])
		}
		cols := s.up(gpu.ColumnOf(i32, keys), gpu.ColumnOf(a.Input, v))
		if err := acc.Update(s.q, fixedGroups{cols[0]}, cols[1], groups); err != nil {
			return nil, err
		}
	}
	c, err := acc.Result(s.q, s.l, 0, groups)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return s.down(c), nil
}

// fixedGroups is an assignment made by a test.
type fixedGroups struct{ ids gpu.Column }

func (f fixedGroups) IDs() gpu.Column { return f.ids }
func (f fixedGroups) Release()        {}

func TestFloatSumsDoNotDependOnTheOrder(t *testing.T) {
	_, dev := bothSides(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	f64 := gpu.Of(gpu.Float64)
	a := gpu.Aggregate{Kind: gpu.Sum, Input: f64, Output: f64}
	for _, groups := range []int{1, 3, 2000} {
		n := 20_000
		values, ids := make([]gpu.Scalar, n), make([]int64, n)
		for i := range values {
			values[i] = gpu.FloatScalar(f64, math.Ldexp(rnd.NormFloat64(), rnd.IntN(120)-60))
			ids[i] = int64(i % groups)
		}
		want, err := dev.aggregate(a, groups, ids, values)
		require.NoError(t, err)
		rnd.Shuffle(n, func(i, j int) { values[i], values[j], ids[i], ids[j] = values[j], values[i], ids[j], ids[i] })
		got, err := dev.aggregate(a, groups, ids, values)
		require.NoError(t, err)
		require.Equal(t, want, got, "to the last bit")
	}
}

func TestSumsAreThoseOfTheHost(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int8), gpu.Of(gpu.Uint32), gpu.Of(gpu.Int64), gpu.Of(gpu.Uint64), gpu.Of(gpu.HugeInt), gpu.DecimalOf(18, 3), gpu.DecimalOf(38, 0)} {
		t.Run(typ.String(), func(t *testing.T) {
			cpu, dev := bothSides(t)
			a := gpu.Aggregate{Kind: gpu.Sum, Input: typ, Output: gpu.SumType(typ)}
			// In shared memory with copies for lanes and without, and in device memory.
			for _, shape := range [][2]int{{1, 10_000}, {40, 10_000}, {7000, 120_000}, {9000, 10_000}} {
				groups, n := shape[0], shape[1]
				var strides [][]gpu.Scalar
				ids := make([]int64, n)
				for i := range ids {
					ids[i] = rnd.Int64N(int64(groups))
				}
				for range 3 {
					values := make([]gpu.Scalar, n)
					for i := range values {
						k := rnd.Uint64() << (64 - 8*min(typ.Width(), 8))
						values[i] = gpu.IntScalar(typ, int64(k)>>(64-8*min(typ.Width(), 8)))
						if typ.IsUnsigned() {
							values[i].Int = gpu.Int128FromUint(k >> (64 - 8*typ.Width()))
						}
						if typ.Wide {
							values[i].Int = gpu.Int128{Lo: k, Hi: rnd.Int64() >> 18}
						}
						if i%50 == 0 {
							values[i] = gpu.Null(typ)
						}
					}
					strides = append(strides, values)
				}
				want, err := cpu.aggregate(a, groups, ids, strides...)
				require.NoError(t, err)
				got, err := dev.aggregate(a, groups, ids, strides...)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		})
	}
}

func TestASumThatDoesNotFitSaysWhich(t *testing.T) {
	cpu, dev := bothSides(t)
	typ := gpu.DecimalOf(38, 2)
	values, ids := make([]gpu.Scalar, 30), make([]int64, 30)
	for i := range values {
		values[i], ids[i] = gpu.Scalar{Type: typ, Valid: true, Int: gpu.Pow10(36)}, int64(i%2)
		if i%2 == 1 {
			values[i].Int = gpu.Pow10(37).Neg()
		}
	}
	a := gpu.Aggregate{Kind: gpu.Sum, Input: typ, Output: typ}
	_, want := cpu.aggregate(a, 2, ids, values)
	_, got := dev.aggregate(a, 2, ids, values)
	require.ErrorContains(t, got, want.Error())
	require.Error(t, cpu.q.Close())
	require.Error(t, dev.q.Close())
	for _, s := range []*side{cpu, dev} {
		q, err := s.dev.NewQueue("fresh")
		require.NoError(t, err)
		s.q = q
	}
}
