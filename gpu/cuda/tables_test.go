package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
)

// side is a device with a queue and leases.
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

func (s *side) up(cols ...gpu.Column) []gpu.Column {
	fields := make([]gpu.Field, len(cols))
	for i, c := range cols {
		fields[i] = gpu.Field{Name: fmt.Sprint(i), Type: c.Type, Nullable: true}
	}
	stride, err := s.q.Upload(s.l, &gpu.Stride{Schema: gpu.NewSchema(fields...),
		Cols: append([]gpu.Column(nil), cols...), Rows: cols[0].Len})
	require.NoError(s.t, err)
	s.t.Cleanup(stride.Release)
	return stride.Cols
}

func (s *side) down(c gpu.Column) []gpu.Scalar {
	stride, err := s.q.Download(s.h,
		&gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type, Nullable: true}),
			Cols: []gpu.Column{c.Retain()}, Rows: c.Len})
	require.NoError(s.t, err)
	defer stride.Release()
	out := make([]gpu.Scalar, c.Len)
	for i := range out {
		out[i] = stride.Cols[0].ScalarAt(i)
	}
	return out
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

// fixedGroups is an assignment that a test makes.
type fixedGroups struct{ ids gpu.Column }

func (f fixedGroups) IDs() gpu.Column { return f.ids }
func (f fixedGroups) Release()        {}

func TestFloatSumsDoNotDependOnTheOrder(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	dev := newSide(t, openWith(t, 0, 1<<30))
	rnd := rand.New(rand.NewPCG(gputest.Seed(t), 8))
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

// TestKeysOfAPartitionAreSpreadOverATable looks at the runs of slots in use, or of full buckets, of a table over keys
// that a hash has selected. With one constant for both hashes the runs of slots had 100 on average, and 5 are expected.
func TestKeysOfAPartitionAreSpreadOverATable(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	s := newSide(t, openWith(t, 0, 1<<30))
	before := tableSeed
	defer func() { tableSeed = before }()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64)} {
		all := make([]gpu.Scalar, 1<<16)
		for i := range all {
			all[i] = gpu.IntScalar(typ, int64(i))
		}
		numbers := s.up(gpu.ColumnOf(typ, all))
		runs, used := 0.0, 0.0 // the squares of the runs, and their sum
		for range 10 {
			seed := rnd.Uint64()
			tableSeed = rnd.Uint64()
			hash, err := s.q.Hash(s.l, numbers, seed)
			require.NoError(t, err)
			var keys []gpu.Scalar
			for i, h := range s.down(hash) {
				if h.Int.Lo>>58 == 37 {
					keys = append(keys, all[i])
				}
			}
			hash.Release()
			made, err := s.q.BuildTable(s.l, s.up(gpu.ColumnOf(typ, keys)), []bool{false}, 0)
			require.NoError(t, err)
			run := 0.0
			for _, full := range append(made.(*table).full(t, s), false) {
				if full {
					run++
					continue
				}
				runs, used, run = runs+run*run, used+run, 0
			}
			made.Release()
		}
		require.Less(t, runs/used, 8.0, typ)
	}
}

// full reports which slots of an index, or which buckets of a table of rows, are in use.
func (t *table) full(test *testing.T, s *side) (out []bool) {
	from, slots, every, last := t.slots, make([]uint64, t.buckets*bucketSlots/2), bucketSlots/2, 32
	if from == nil {
		from, slots, every, last = t.index.slots, make([]uint64, 1<<t.index.bits), 1, 0
	}
	o := s.q.(*queue).begin("test", s.l)
	o.read(from, 0, gpu.BytesOf(slots))
	require.NoError(test, o.err)
	for i := every - 1; i < len(slots); i += every {
		out = append(out, slots[i]>>last != 0)
	}
	return out
}
