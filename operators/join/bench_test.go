package join

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
)

// BenchmarkAlgorithms joins 20 million rows with 5 million rows of distinct keys in random
// order, each with a key and two payloads of 4 bytes, in two lanes of the CPU. Keys are
// dense (1 to 5 million) or spread. cpu-s is the time of the cores, which other programs do
// not change much.
func BenchmarkAlgorithms(b *testing.B) {
	b.Run("dense", func(b *testing.B) { benchmark(b, 5_000_000, func(i int) int32 { return int32(i) }) })
	b.Run("spread", func(b *testing.B) {
		benchmark(b, 5_000_000, func(i int) int32 { return int32(uint32(i) * 0x9e3779b1) })
	})
	for _, builds := range []int{100_000, 1_000_000, 20_000_000} {
		b.Run(fmt.Sprint("spread", builds),
			func(b *testing.B) { benchmark(b, builds, func(i int) int32 { return int32(uint32(i) * 0x9e3779b1) }) })
	}
}

func benchmark(b *testing.B, builds int, key func(i int) int32) {
	const probes, lanes = 20_000_000, 2
	rnd := rand.New(rand.NewPCG(1, 2))
	typ := gpu.Of(gpu.Int32)
	field := func(name string) gpu.Field { return gpu.Field{Name: name, Type: typ} }
	schema := gpu.NewSchema(field("key"), field("a"), field("b"))
	column := func(n int, value func(i int) int32) gpu.Column {
		v := make([]int32, n)
		for i := range v {
			v[i] = value(i)
		}
		return gpu.Column{Type: typ, Len: n, Data: gpu.WrapBytes(gpu.BytesOf(v))}
	}
	order := rnd.Perm(builds)
	build := &gpu.Stride{Schema: schema, Rows: builds, Cols: []gpu.Column{
		column(builds, func(i int) int32 { return key(order[i]) }),
		column(builds, func(i int) int32 { return int32(i) }), column(builds, func(i int) int32 { return -int32(i) })}}
	dev, err := host.Open(host.Options{Threads: lanes})
	require.NoError(b, err)
	rows := dev.StrideRows(12)
	var strides []*gpu.Stride
	for at := 0; at < probes; at += rows {
		n := min(rows, probes-at)
		random := func(int) int32 { return rnd.Int32() }
		strides = append(strides, &gpu.Stride{Schema: schema, Rows: n, Cols: []gpu.Column{
			column(n, func(int) int32 { return key(rnd.IntN(builds)) }), column(n, random), column(n, random)}})
	}
	shared := func(s *gpu.Stride) *gpu.Stride {
		out := *s
		out.Cols = nil
		for _, c := range s.Cols {
			out.Cols = append(out.Cols, c.Retain())
		}
		return &out
	}
	for _, algorithm := range AlgorithmsOn(dev.Properties()) {
		b.Run(algorithm, func(b *testing.B) {
			before := cpuTime(b)
			defer func() { b.ReportMetric((cpuTime(b)-before).Seconds()/float64(b.N), "cpu-s/op") }()
			for range b.N {
				ctx := context.Background()
				j, err := New(Spec{Algorithm: algorithm, Probe: schema, Build: schema, ProbeKeys: []int{0},
					BuildKeys: []int{0}, NullSafe: []bool{false}, UniqueBuild: true,
					ProbeOut: []int{0, 1, 2}, BuildOut: []int{1, 2},
					Out: gpu.NewSchema(field("key"), field("a"), field("b"), field("c"), field("d"))})
				require.NoError(b, err)
				l := dev.Budget().Lease("join")
				q, err := dev.NewQueue("build")
				require.NoError(b, err)
				task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: rows, Lanes: lanes}
				local, err := j.NewLocal(task)
				require.NoError(b, err)
				require.NoError(b, local.Push(ctx, 0, shared(build)))
				require.NoError(b, local.Combine(ctx))
				require.NoError(b, j.Finalize(ctx, task))
				var all errgroup.Group
				var found [lanes]int
				for i := range lanes {
					all.Go(func() error {
						task := task
						var err error
						if task.Queue, err = dev.NewLaneQueue("probe"); err != nil {
							return err
						}
						lane, err := j.NewLane(task)
						if err != nil {
							return err
						}
						emit := func(s *gpu.Stride) error {
							found[i] += s.Rows
							s.Release()
							return nil
						}
						for k := i; k < len(strides); k += lanes {
							if err := lane.Push(ctx, shared(strides[k]), emit); err != nil {
								return err
							}
						}
						if err := lane.Flush(ctx, emit); err != nil {
							return err
						}
						return lane.Close()
					})
				}
				require.NoError(b, all.Wait())
				require.Equal(b, probes, found[0]+found[1])
				require.NoError(b, j.Close())
				require.NoError(b, l.Close())
			}
		})
	}
	require.NoError(b, dev.Close())
}

// cpuTime returns the time of all cores that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
