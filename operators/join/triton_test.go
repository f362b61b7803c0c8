package join

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// tritonCase is a Triton join of rows of a key and a value.
type tritonCase struct {
	kind     Kind
	typ      gpu.Type
	key      int // position
	nullable bool
	always   bool  // all rows go to disk
	rows     int64 // the estimate of the rows of each side
}

// run joins the sides, rows of a key and a value, and returns the rows of the result in order, the choice and
// what went to host memory.
func (c tritonCase) run(t *testing.T, dev gpu.Device, probe, build [][2]int64) (out []string, choice string, spilled spill.Stats) {
	t.Helper()
	fields := make([]gpu.Field, 2)
	fields[c.key] = gpu.Field{Name: "key", Type: c.typ, Nullable: c.nullable}
	fields[1-c.key] = gpu.Field{Name: "value", Type: c.typ}
	schema := gpu.NewSchema(fields...)
	s := Spec{Kind: c.kind, Algorithm: tritonName, Probe: schema, Build: schema, ProbeKeys: []int{c.key}, BuildKeys: []int{c.key}, NullSafe: []bool{false},
		ProbeOut: []int{c.key, 1 - c.key}, BuildRows: c.rows, ProbeRows: c.rows}
	names := []gpu.Field{{Name: "key", Type: c.typ, Nullable: true}, {Name: "value", Type: c.typ, Nullable: true}}
	if c.kind.Pairs() {
		s.BuildOut = []int{1 - c.key}
		names = append(names, gpu.Field{Name: "other", Type: c.typ, Nullable: true})
	}
	if c.kind == Mark {
		names = append(names, gpu.Field{Name: "match", Type: gpu.Of(gpu.Bool)})
	}
	s.Out = gpu.NewSchema(names...)
	j, err := New(s)
	require.NoError(t, err)
	store := spill.NewStore(dev, spill.Options{Dir: t.TempDir(), Always: c.always})
	q, err := dev.NewQueue("triton")
	require.NoError(t, err)
	l, down := dev.Budget().Lease("triton"), dev.HostBudget().Lease("down")
	task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: 1000, Lanes: 1, Spill: store}
	each := func(rows [][2]int64, push func(*gpu.Stride) error) {
		for part := range slices.Chunk(rows, 700) {
			cols := make([][]gpu.Scalar, 2)
			for _, r := range part {
				for i, v := range []int64{r[c.key], r[1-c.key]} {
					cols[i] = append(cols[i], gpu.IntScalar(c.typ, v))
				}
			}
			up, err := q.Upload(l, &gpu.Stride{Schema: schema, Rows: len(part), Cols: []gpu.Column{gpu.ColumnOf(c.typ, cols[0]), gpu.ColumnOf(c.typ, cols[1])}})
			require.NoError(t, err)
			require.NoError(t, push(up))
		}
	}
	emit := func(s *gpu.Stride) error {
		s, err := q.Download(down, s)
		if err != nil {
			return err
		}
		defer s.Release()
		for r := range s.Rows {
			var row []string
			for _, c := range s.Cols {
				row = append(row, c.ScalarAt(r).String())
			}
			out = append(out, strings.Join(row, "|"))
		}
		return nil
	}
	ctx := t.Context()
	local, err := j.NewLocal(task)
	require.NoError(t, err)
	each(build, func(s *gpu.Stride) error { return local.Push(ctx, 0, s) })
	require.NoError(t, local.Combine(ctx))
	require.NoError(t, local.Close())
	require.NoError(t, j.Finalize(ctx, task))
	lane, err := j.NewLane(task)
	require.NoError(t, err)
	each(probe, func(s *gpu.Stride) error { return lane.Push(ctx, s, emit) })
	require.NoError(t, lane.Flush(ctx, emit))
	require.NoError(t, lane.Close())
	src := j.Deferred()
	require.NotNil(t, src, "it is out of core from the first row on")
	for part := range src.Parts() {
		require.NoError(t, src.Emit(ctx, task, part, emit))
	}
	choice, spilled = j.(operators.Choosing).Choice(), store.Stats(l)
	require.NoError(t, j.Close())
	require.NoError(t, store.Close())
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
	require.NoError(t, down.Close())
	slices.Sort(out)
	return out, choice, spilled
}

// want joins by a map.
func (c tritonCase) want(probe, build [][2]int64) (out []string) {
	at, seen := map[int64][]int64{}, map[int64]bool{}
	for _, b := range build {
		at[b[0]] = append(at[b[0]], b[1])
	}
	for _, p := range probe {
		matches := at[p[0]]
		seen[p[0]] = true
		row := fmt.Sprintf("%d|%d", p[0], p[1])
		switch {
		case c.kind == Semi && len(matches) > 0, c.kind == Anti && len(matches) == 0:
			out = append(out, row)
		case c.kind == Mark:
			out = append(out, fmt.Sprintf("%s|%v", row, len(matches) > 0))
		case c.kind.Pairs():
			for _, m := range matches {
				out = append(out, fmt.Sprintf("%s|%d", row, m))
			}
			if len(matches) == 0 && c.kind.KeepsProbe() {
				out = append(out, row+"|NULL")
			}
		}
	}
	for _, b := range build {
		if c.kind.KeepsBuild() && !seen[b[0]] {
			out = append(out, fmt.Sprintf("NULL|NULL|%d", b[1]))
		}
	}
	slices.Sort(out)
	return out
}

func tritonSides(rnd *rand.Rand, probes, builds int) (probe, build [][2]int64) {
	for i := range probes {
		probe = append(probe, [2]int64{rnd.Int64N(900) - 100, int64(i)})
	}
	for i := range builds {
		build = append(build, [2]int64{rnd.Int64N(700), int64(i)})
	}
	return probe, build
}

func TestTriton(t *testing.T) {
	cpu, err := host.Open(host.Options{Threads: 2})
	require.NoError(t, err)
	for _, dev := range []gpu.Device{cpu, cudatest.Open(t, cuda.Options{Memory: 256 << 20})} {
		kind := dev.Properties().Kind
		rnd := rand.New(rand.NewPCG(5, 6))
		for k := Inner; k <= Mark; k++ {
			for i, c := range []tritonCase{{typ: gpu.Of(gpu.Int64)}, {typ: gpu.Of(gpu.Int32), key: 1, always: true}, {typ: gpu.Of(gpu.Int64), nullable: true},
				{typ: gpu.Of(gpu.Int64), key: 1, rows: 1 << 40}} {
				if kind == "cuda" && (int(k)+i)%3 == 2 { // an emulator is slow
					continue
				}
				c.kind = k
				probe, build := tritonSides(rnd, 1500+i, 1000)
				got, choice, spilled := c.run(t, dev, probe, build)
				what := fmt.Sprintf("%v on %s: %+v", k, kind, c)
				require.Equal(t, c.want(probe, build), got, what)
				switch {
				case c.nullable:
					require.Contains(t, choice, "out of core: 256 partitions, made in device memory", what)
				case c.always:
					require.Equal(t, spilled.Disk.In, spilled.Disk.Out, what)
					require.Positive(t, spilled.Disk.In, what)
				case kind == "cuda" && c.rows > 0: // nearly nothing of so many rows stays
					require.Contains(t, choice, "tuples, 100 % of them written to host memory", what)
					require.Equal(t, int64(16*(len(probe)+len(build))), spilled.Host.In, what)
				case kind == "cuda":
					require.Contains(t, choice, "tuples, 0 % of them written to host memory", what)
				}
			}
		}
	}
	require.NoError(t, cpu.Close())
}

// TestTritonOfOneKey joins rows of one key that no hash separates, in little memory.
func TestTritonOfOneKey(t *testing.T) {
	dev, err := host.Open(host.Options{Threads: 1, Memory: 1 << 20})
	require.NoError(t, err)
	var probe, build [][2]int64
	for i := range int64(20000) {
		build = append(build, [2]int64{7, i})
	}
	probe = [][2]int64{{7, 1}, {8, 2}}
	for _, kind := range []Kind{Inner, Left} {
		c := tritonCase{kind: kind, typ: gpu.Of(gpu.Int64)}
		got, choice, _ := c.run(t, dev, probe, build)
		require.Equal(t, c.want(probe, build), got)
		require.Contains(t, choice, "too large for memory, with many rows of one key")
	}
	require.NoError(t, dev.Close())
}
