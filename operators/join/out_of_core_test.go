package join

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// outOfCoreCase is a join out of core of rows of a key and a value.
type outOfCoreCase struct {
	kind      Kind
	algorithm string
	lanes     int // 0: one
	typ       gpu.Type
	key       int // position
	nullable  bool
	always    bool  // all rows go to disk
	coded     bool  // values of the probe side are strings, and each stride has a dictionary of its own
	rows      int64 // the estimate of the rows of each side
	asOf      *AsOf // by the value
}

// run joins the sides, rows of a key and a value, and returns the rows of the result in order, the choice and
// what went to host memory.
func (c outOfCoreCase) run(t *testing.T, dev gpu.Device,
	probe, build [][2]int64) (out []string, choice string, spilled spill.Stats) {
	t.Helper()
	fields := make([]gpu.Field, 2)
	fields[c.key] = gpu.Field{Name: "key", Type: c.typ, Nullable: c.nullable}
	fields[1-c.key] = gpu.Field{Name: "value", Type: c.typ}
	schema := gpu.NewSchema(fields...)
	sides := map[bool]*gpu.Schema{false: schema, true: schema}
	value := c.typ
	if c.coded {
		value = gpu.Of(gpu.String)
		sides[true] = gpu.NewSchema(fields[0], gpu.Field{Name: "value", Type: value})
	}
	s := Spec{Kind: c.kind, Algorithm: c.algorithm, Probe: sides[true], Build: schema, ProbeKeys: []int{c.key},
		BuildKeys: []int{c.key}, NullSafe: []bool{false},
		ProbeOut: []int{c.key, 1 - c.key}, BuildRows: c.rows, ProbeRows: c.rows, AsOf: c.asOf}
	names := []gpu.Field{{Name: "key", Type: c.typ, Nullable: true}, {Name: "value", Type: value, Nullable: true}}
	if c.kind.OfBuild() {
		s.ProbeOut, s.BuildOut, names = nil, []int{1 - c.key}, []gpu.Field{{Name: "value", Type: c.typ}}
	}
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
	q, err := dev.NewQueue("join")
	require.NoError(t, err)
	l, down := dev.Budget().Lease("join"), dev.HostBudget().Lease("down")
	task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: 1000, Lanes: max(c.lanes, 1), Spill: store}
	each := func(rows [][2]int64, ofProbe bool, push func(number int, s *gpu.Stride) error) {
		number := 0
		for part := range slices.Chunk(rows, 700) {
			cols := make([][]gpu.Scalar, 2)
			for _, r := range part {
				for i, v := range []int64{r[c.key], r[1-c.key]} {
					cols[i] = append(cols[i], gpu.IntScalar(c.typ, v))
				}
			}
			in := []gpu.Column{gpu.ColumnOf(c.typ, cols[0]), gpu.ColumnOf(c.typ, cols[1])}
			if ofProbe && c.coded {
				var words []gpu.Scalar
				codes := make([]int32, len(part))
				for i, r := range part {
					words, codes[i] = append(words, gpu.StringScalar(strconv.FormatInt(r[1], 10))), int32(i)
				}
				in[1] = gpu.Column{Type: value, Len: len(part), Data: gpu.WrapBytes(gpu.BytesOf(codes)),
					Dict: &gpu.Dictionary{Values: gpu.ColumnOf(value, words)}}
			}
			up, err := q.Upload(l, &gpu.Stride{Schema: sides[ofProbe], Rows: len(part), Cols: in})
			require.NoError(t, err)
			require.NoError(t, push(number%task.Lanes, up))
			number++
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
	var locals []operators.Local
	for range task.Lanes {
		local, err := j.NewLocal(task)
		require.NoError(t, err)
		locals = append(locals, local)
	}
	each(build, false, func(i int, s *gpu.Stride) error { return locals[i].Push(ctx, 0, s) })
	for _, local := range locals {
		require.NoError(t, local.Combine(ctx))
		require.NoError(t, local.Close())
	}
	require.NoError(t, j.Finalize(ctx, task))
	var lanes []operators.Lane
	for range task.Lanes {
		lane, err := j.NewLane(task)
		require.NoError(t, err)
		lanes = append(lanes, lane)
	}
	each(probe, true, func(i int, s *gpu.Stride) error { return lanes[i].Push(ctx, s, emit) })
	for _, lane := range lanes {
		require.NoError(t, lane.Flush(ctx, emit))
		require.NoError(t, lane.Close())
	}
	src := j.Deferred()
	require.NotNil(t, src, "it is out of core")
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
func (c outOfCoreCase) want(probe, build [][2]int64) (out []string) {
	at, seen := map[int64][]int64{}, map[[2]int64]bool{}
	for _, b := range build {
		at[b[0]] = append(at[b[0]], b[1])
	}
	for _, p := range probe {
		matches := at[p[0]]
		if c.asOf != nil {
			slices.Sort(matches)
			i, equal := slices.BinarySearch(matches, p[1])
			switch {
			case c.asOf.Forward && equal && c.asOf.Strict:
				i++
			case !c.asOf.Forward && !(equal && !c.asOf.Strict):
				i--
			}
			if i < 0 || i == len(matches) {
				matches = nil
			} else {
				matches = matches[i : i+1]
			}
		}
		for _, m := range matches {
			seen[[2]int64{p[0], m}] = true
		}
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
		if c.kind.KeepsBuild() && !seen[b] {
			out = append(out, fmt.Sprintf("NULL|NULL|%d", b[1]))
		}
		if c.kind.OfBuild() && seen[b] == (c.kind == RightSemi) {
			out = append(out, strconv.FormatInt(b[1], 10))
		}
	}
	slices.Sort(out)
	return out
}

// drawSides draws rows of both sides. The build side has so many keys, and the probe side some others.
func drawSides(rnd *rand.Rand, probes, builds int, keys int64) (probe, build [][2]int64) {
	for i := range probes {
		probe = append(probe, [2]int64{rnd.Int64N(keys*9/7) - keys/7, int64(i)})
	}
	for i := range builds {
		build = append(build, [2]int64{rnd.Int64N(keys), int64(i)})
	}
	return probe, build
}

// TestPartitionsThatStay joins with a build side of which a part stays in memory, in groups that take many turns.
func TestPartitionsThatStay(t *testing.T) {
	cpu, err := host.Open(host.Options{Threads: 2, Memory: 2 << 20})
	require.NoError(t, err)
	share := regexp.MustCompile(`out of core: (\d+) of 256 partitions stay in memory`)
	for _, dev := range []gpu.Device{cpu, cudatest.Open(t, cuda.Options{Memory: 8 << 20})} {
		kind, batches := dev.Properties().Kind, dev.Properties().PartitionedJoins
		rnd := rand.New(rand.NewPCG(7, 8))
		builds, probes := 60_000, 10_000
		kinds := []Kind{Inner, Left, Right, Full, Semi, Anti, Mark, RightSemi, RightAnti}
		if batches { // rows are joined in batches of 43,690
			builds, probes, kinds = 300_000, 150_000, []Kind{Inner, Full, Mark, RightAnti}
		}
		for i, k := range kinds {
			if batches && !gputest.Takes(min(gputest.ThinOr(t, 3), 3), i) {
				continue
			}
			// The estimate of the rows is right, too small, too large, or there is none.
			c := outOfCoreCase{kind: k, typ: gpu.Of(gpu.Int64),
				rows: []int64{int64(builds), 0, 1000, int64(2 * builds)}[i%4], coded: i == 1}
			if !batches {
				c.lanes = 1 + i%2
			}
			n := probes
			if c.coded {
				n = 3000 // not enough for a turn of each group
			}
			probe, build := drawSides(rnd, n, builds, int64(builds))
			got, choice, _ := c.run(t, dev, probe, build)
			what := fmt.Sprintf("%v on %s: %+v: %s", k, kind, c, choice)
			require.True(t, slices.Equal(c.want(probe, build), got), what)
			stay := share.FindStringSubmatch(choice)
			require.NotNil(t, stay, what)
			n, err := strconv.Atoi(stay[1])
			require.NoError(t, err)
			require.Greater(t, n, 40, what)
			require.Less(t, n, 256, what)
		}
	}
	require.NoError(t, cpu.Close())
}

// TestAllPartitionsStay joins with a build side that is out of core since the estimate of its rows is too large. All of
// it is one join in memory again.
func TestAllPartitionsStay(t *testing.T) {
	cpu, err := host.Open(host.Options{Threads: 2, Memory: 4 << 20})
	require.NoError(t, err)
	for _, dev := range []gpu.Device{cpu, cudatest.Open(t, cuda.Options{Memory: 8 << 20})} {
		rnd := rand.New(rand.NewPCG(9, 10))
		for i, k := range []Kind{Inner, Full, Anti, RightSemi} {
			c := outOfCoreCase{kind: k, typ: gpu.Of(gpu.Int64), rows: 1 << 24, lanes: 1 + i%2}
			probe, build := drawSides(rnd, 30_000, 36_000, 36_000)
			got, choice, _ := c.run(t, dev, probe, build)
			require.Contains(t, choice, "out of core: 256 of 256 partitions stay in memory")
			require.True(t, slices.Equal(c.want(probe, build), got), "%v on %s", k, dev.Properties().Kind)
		}
	}
	require.NoError(t, cpu.Close())
}

// TestAsOfOutOfCore joins each row with the nearest one, where all rows go to disk, a part stays, or a single key has
// more rows than fit.
func TestAsOfOutOfCore(t *testing.T) {
	cpu, err := host.Open(host.Options{Threads: 2, Memory: 1 << 20})
	require.NoError(t, err)
	for _, dev := range []gpu.Device{cpu, cudatest.Open(t, cuda.Options{Memory: 2 << 20})} {
		rnd := rand.New(rand.NewPCG(11, 12))
		kinds := []Kind{Inner, Left, Right, Full, Semi, Anti, Mark}
		if dev.Properties().PartitionedJoins {
			kinds = []Kind{Inner, Full}
		}
		for i, k := range kinds {
			for j, keys := range []int64{25_000, 2} {
				if len(kinds) == 2 && i != j { // an emulator is slow
					continue
				}
				c := outOfCoreCase{kind: k, typ: gpu.Of(gpu.Int64), lanes: 1 + i%2, always: i%3 == 0,
					asOf: &AsOf{Probe: 1, Build: 1, Forward: (i+j)%2 == 0, Strict: i&2 == 0}}
				probe, build := drawSides(rnd, 5_000, 50_000, keys)
				for i := range probe {
					probe[i][1] *= 10 // as late as build rows
				}
				rnd.Shuffle(len(build), func(i, j int) { build[i], build[j] = build[j], build[i] })
				got, choice, _ := c.run(t, dev, probe, build)
				what := fmt.Sprintf("%v on %s: %+v, %+v: %s", k, dev.Properties().Kind, c, *c.asOf, choice)
				require.Equal(t, keys == 2, strings.Contains(choice, "joined block by block"), what)
				require.True(t, slices.Equal(c.want(probe, build), got), what)
			}
		}
	}
	require.NoError(t, cpu.Close())
}
