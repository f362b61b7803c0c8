package join

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
)

// TestKeysOfEveryTypeOnTheCPU joins by one key of each type, with nulls on neither, one or
// both sides, and compares with pairs of equal values.
func TestKeysOfEveryTypeOnTheCPU(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	dev, err := host.Open(host.Options{Threads: 2})
	require.NoError(t, err)
	keysOfEveryType(t, dev, 100, 1)
	require.NoError(t, dev.Close())
}

func TestKeysOfEveryTypeOnAGPU(t *testing.T) {
	keysOfEveryType(t, cudatest.Open(t, cuda.Options{Memory: 256 << 20}), 30, 10)
}

// keysOfEveryType joins sides of n rows. It takes one in thin of all cases.
func keysOfEveryType(t *testing.T, dev gpu.Device, n, thin int) {
	rnd := rand.New(rand.NewPCG(5, 6))
	ints := func(typ gpu.Type) (out []gpu.Scalar) {
		lo, hi := typ.Bounds()
		for _, v := range []gpu.Int128{lo, hi, {}, gpu.Int128From(1)} {
			out = append(out, gpu.Scalar{Type: typ, Valid: true, Int: v})
		}
		if lo.Hi < 0 {
			out = append(out, gpu.IntScalar(typ, -1))
		}
		return out
	}
	values := map[gpu.Type][]gpu.Scalar{}
	for kind := gpu.Int8; kind <= gpu.HugeInt; kind++ {
		values[gpu.Of(kind)] = ints(gpu.Of(kind))
	}
	for _, typ := range []gpu.Type{gpu.DecimalOf(9, 2), gpu.DecimalOf(38, 2), gpu.Of(gpu.Date),
		gpu.TimestampOf(gpu.Microsecond, true)} {
		values[typ] = ints(typ)
	}
	values[gpu.TimeOf(gpu.Microsecond)] = []gpu.Scalar{gpu.IntScalar(gpu.TimeOf(gpu.Microsecond), 0),
		gpu.IntScalar(gpu.TimeOf(gpu.Microsecond), 86399999999)}
	values[gpu.Of(gpu.Bool)] = []gpu.Scalar{gpu.BoolScalar(false), gpu.BoolScalar(true)}
	for _, kind := range []gpu.Kind{gpu.Float32, gpu.Float64} {
		for _, f := range []float64{0, math.Copysign(0, -1), 1.5, -1.5, math.NaN(), math.Inf(1), math.Inf(-1)} {
			values[gpu.Of(kind)] = append(values[gpu.Of(kind)], gpu.FloatScalar(gpu.Of(kind), f))
		}
	}
	for _, s := range []string{"", "a", "b", "a text of many bytes"} {
		values[gpu.Of(gpu.String)] = append(values[gpu.Of(gpu.String)], gpu.StringScalar(s))
		values[gpu.Of(gpu.Binary)] = append(values[gpu.Of(gpu.Binary)],
			gpu.Scalar{Type: gpu.Of(gpu.Binary), Valid: true, Str: s})
	}
	for _, algorithm := range AlgorithmsOn(dev.Properties()) {
		for typ, from := range values {
			for flags := range 8 { // nulls on the probe side, nulls on the build side, null-safe
				if rnd.IntN(thin) > 0 {
					continue
				}
				draw := func(nulls bool) (out []gpu.Scalar) {
					for range n {
						v := from[rnd.IntN(len(from))]
						if nulls && rnd.IntN(4) == 0 {
							v = gpu.Null(typ)
						}
						out = append(out, v)
					}
					return out
				}
				nullSafe := flags&4 != 0
				probe, build := draw(flags&1 != 0), draw(flags&2 != 0)[:n-rnd.IntN(3)]
				var want [][2]int64
				for i, p := range probe {
					for j, b := range build {
						if p.Valid && b.Valid && p.Compare(b) == 0 || nullSafe && !p.Valid && !b.Valid {
							want = append(want, [2]int64{int64(i), int64(j)})
						}
					}
				}
				got := pairsBy(t, dev, algorithm, typ, nullSafe, probe, build)
				slices.SortFunc(got, func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
				require.Equal(t, want, got, fmt.Sprintf("%s by a key of %v, flags %d", algorithm, typ, flags))
			}
		}
	}
}

// pairsBy returns the row numbers of the pairs of equal keys, which an inner join finds.
func pairsBy(t *testing.T, dev gpu.Device, algorithm string, typ gpu.Type, nullSafe bool,
	probe, build []gpu.Scalar) (out [][2]int64) {
	ctx := context.Background()
	row := gpu.Of(gpu.Int64)
	schema := gpu.NewSchema(gpu.Field{Name: "row", Type: row}, gpu.Field{Name: "key", Type: typ, Nullable: true})
	j, err := New(Spec{Algorithm: algorithm, Probe: schema, Build: schema, ProbeKeys: []int{1}, BuildKeys: []int{1},
		NullSafe: []bool{nullSafe},
		ProbeOut: []int{0}, BuildOut: []int{0},
		Out: gpu.NewSchema(gpu.Field{Name: "p", Type: row}, gpu.Field{Name: "b", Type: row})})
	require.NoError(t, err)
	l, down := dev.Budget().Lease("join"), dev.HostBudget().Lease("down")
	q, err := dev.NewQueue("join")
	require.NoError(t, err)
	task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: 64, Lanes: 1}
	stride := func(keys []gpu.Scalar) *gpu.Stride {
		rows := make([]gpu.Scalar, len(keys))
		for i := range rows {
			rows[i] = gpu.IntScalar(row, int64(i))
		}
		key := gpu.ColumnOf(typ, keys)
		if typ.IsVar() && len(rows)%3 == 0 {
			key = coded(typ, keys)
		}
		s, err := q.Upload(l, &gpu.Stride{Schema: schema, Rows: len(keys),
			Cols: []gpu.Column{gpu.ColumnOf(row, rows), key}})
		require.NoError(t, err)
		return s
	}
	local, err := j.NewLocal(task)
	require.NoError(t, err)
	require.NoError(t, local.Push(ctx, 0, stride(build)))
	require.NoError(t, local.Combine(ctx))
	require.NoError(t, local.Close())
	require.NoError(t, j.Finalize(ctx, task))
	lane, err := j.NewLane(task)
	require.NoError(t, err)
	emit := func(s *gpu.Stride) error {
		s, err := q.Download(down, s)
		if err != nil {
			return err
		}
		defer s.Release()
		for i := range s.Rows {
			out = append(out, [2]int64{gpu.Values[int64](s.Cols[0].Data, s.Rows)[i],
				gpu.Values[int64](s.Cols[1].Data, s.Rows)[i]})
		}
		return nil
	}
	require.NoError(t, lane.Push(ctx, stride(probe), emit))
	require.NoError(t, lane.Flush(ctx, emit))
	require.NoError(t, lane.Close())
	require.NoError(t, j.Close())
	require.NoError(t, q.Close())
	require.NoError(t, l.Close(), algorithm)
	require.NoError(t, down.Close())
	return out
}

// coded returns strings in a dictionary.
func coded(typ gpu.Type, values []gpu.Scalar) gpu.Column {
	var distinct []gpu.Scalar
	codes := make([]int32, len(values))
	for i, v := range values {
		at := slices.IndexFunc(distinct, func(d gpu.Scalar) bool { return d.Str == v.Str })
		if at < 0 {
			at = len(distinct)
			distinct = append(distinct, gpu.Scalar{Type: typ, Valid: true, Str: v.Str})
		}
		codes[i] = int32(at)
	}
	return gpu.Column{Type: typ, Len: len(values), Valid: gpu.ColumnOf(typ, values).Valid,
		Data: gpu.WrapBytes(gpu.BytesOf(codes)),
		Dict: &gpu.Dictionary{Values: gpu.ColumnOf(typ, distinct)}}
}
