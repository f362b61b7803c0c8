package host

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// The benchmarks report Mrows/s, and GB/s of the bytes that the primitive must read and
// write at least, next to the GB/s of a plain copy on the same cores.

const benchRows = 1 << 22

type benchmark struct {
	*testing.B
	q gpu.Queue
	l *gpu.Lease
}

func newBenchmark(b *testing.B) *benchmark {
	d, err := Open(Options{})
	require.NoError(b, err)
	q, err := d.NewQueue("bench")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, d.Close()) })
	return &benchmark{b, q, d.Budget().Lease("bench")}
}

// run times f, which moves at least bytes bytes per row.
func (b *benchmark) run(rows int, bytes float64, f func() error) {
	require.NoError(b, f())
	b.ResetTimer()
	for range b.N {
		require.NoError(b, f())
	}
	perSecond := float64(rows) * float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(perSecond/1e6, "Mrows/s")
	b.ReportMetric(perSecond*bytes/1e9, "GB/s")
}

func (b *benchmark) int64s(v []int64) gpu.Column {
	buf, err := b.l.Alloc(int64(len(v)) * 8)
	require.NoError(b, err)
	copy(gpu.Values[int64](buf, len(v)), v)
	return gpu.Column{Type: gpu.Of(gpu.Int64), Len: len(v), Data: buf}
}

// keys returns keys of rows rows: "clustered" like l_orderkey, with four consecutive rows
// a key and three quarters of the range unused; "random", the same keys in random order;
// "sparse", keys of 64 bits.
func keys(kind string, rows, distinct int) []int64 {
	rnd := rand.New(rand.NewPCG(1, 2))
	out := make([]int64, rows)
	for i := range out {
		k := int64(i * distinct / rows)
		if kind != "clustered" {
			k = rnd.Int64N(int64(distinct))
		}
		out[i] = k/8*32 + k%8
		if kind == "sparse" {
			out[i] = int64(word.Mix(uint64(k), word.TableSeed))
		}
	}
	return out
}

func BenchmarkCopy(bb *testing.B) {
	b := newBenchmark(bb)
	src, dst := b.int64s(make([]int64, benchRows*4)), b.int64s(make([]int64, benchRows*4))
	dev := b.q.Device().(*Device)
	b.run(benchRows*4, 16, func() error {
		return dev.cores.For(benchRows*4, parallel.Grain, func(lo, hi int) error {
			copy(dst.Data.Bytes()[lo*8:hi*8], src.Data.Bytes()[lo*8:])
			return nil
		})
	})
}

func BenchmarkJoin(bb *testing.B) {
	for _, kind := range []string{"clustered", "random", "sparse"} {
		build := keys(kind, benchRows/4, benchRows/4)
		if kind != "clustered" {
			seen := map[int64]bool{}
			unique := build[:0]
			for _, k := range build {
				if !seen[k] {
					seen[k] = true
					unique = append(unique, k)
				}
			}
			build = unique
		}
		bb.Run("build/"+kind, func(bb *testing.B) {
			b := newBenchmark(bb)
			col := b.int64s(build)
			b.run(len(build), 8, func() error {
				t, err := b.q.BuildTable(b.l, []gpu.Column{col}, []bool{false}, 1<<20)
				if err == nil {
					t.Release()
				}
				return err
			})
		})
		bb.Run("probe/"+kind, func(bb *testing.B) {
			b := newBenchmark(bb)
			t, err := b.q.BuildTable(b.l, []gpu.Column{b.int64s(build)}, []bool{false}, 1<<20)
			require.NoError(b, err)
			const stride = 1 << 17
			var strides []gpu.Column
			probe := keys(kind, benchRows, benchRows/4)
			for at := 0; at < benchRows; at += stride {
				strides = append(strides, b.int64s(probe[at:at+stride]))
			}
			b.run(benchRows, 16, func() error {
				for _, s := range strides {
					match, err := t.Match(b.q, b.l, []gpu.Column{s})
					if err != nil {
						return err
					}
					p, m, _, err := match.Next(b.q, b.l, math.MaxInt)
					match.Release()
					if err != nil {
						return err
					}
					p.Release()
					m.Release()
				}
				return nil
			})
		})
	}
}

func BenchmarkGroupBy(bb *testing.B) {
	for _, c := range []struct {
		name, kind string
		groups     int
		hint       gpu.GroupHint
	}{
		{"4 groups", "random", 4, gpu.GroupHint{}},
		{"clustered dense", "clustered", benchRows / 4, gpu.GroupHint{Dense: true, Hi: benchRows}},
		{"random dense", "random", benchRows / 4, gpu.GroupHint{Dense: true, Hi: benchRows}},
		{"clustered", "clustered", benchRows / 4, gpu.GroupHint{}},
		{"random", "random", benchRows / 4, gpu.GroupHint{}},
	} {
		bb.Run(c.name, func(bb *testing.B) {
			b := newBenchmark(bb)
			const stride = 1 << 17
			ks := keys(c.kind, benchRows, c.groups)
			var strides []gpu.Column
			for at := 0; at < benchRows; at += stride {
				strides = append(strides, b.int64s(ks[at:at+stride]))
			}
			typ := gpu.Of(gpu.Int64)
			b.run(benchRows, 16, func() error {
				g, err := b.q.NewGroups(b.l, []gpu.Type{typ}, c.hint)
				if err != nil {
					return err
				}
				defer g.Release()
				acc, err := b.q.NewAccumulator(b.l, gpu.Aggregate{Kind: gpu.Sum, Input: typ, Output: gpu.SumType(typ)})
				if err != nil {
					return err
				}
				defer acc.Release()
				for _, s := range strides {
					a, err := g.Assign(b.q, b.l, []gpu.Column{s}, s.Len)
					if err != nil {
						return err
					}
					err = acc.Update(b.q, a, s, g.Len())
					a.Release()
					if err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func BenchmarkSort(bb *testing.B) {
	b := newBenchmark(bb)
	date := make([]int64, benchRows)
	for i := range date {
		date[i] = rand.Int64N(2526)
	}
	cols := []gpu.SortKey{{Column: b.int64s(date)}, {Column: b.int64s(keys("clustered", benchRows, benchRows/4))}}
	b.run(benchRows, 20, func() error {
		ids, err := b.q.Sort(b.l, cols)
		ids.Release()
		return err
	})
}

func BenchmarkGather(bb *testing.B) {
	for _, name := range []string{"ascending", "random"} {
		bb.Run(name, func(bb *testing.B) {
			b := newBenchmark(bb)
			col := b.int64s(make([]int64, benchRows))
			buf, err := b.l.Alloc(benchRows * 2)
			require.NoError(b, err)
			ids := gpu.Column{Type: gpu.Of(gpu.Int32), Len: benchRows / 2, Data: buf}
			for i := range ids.Len {
				id := 2 * i
				if name == "random" {
					id = rand.IntN(benchRows)
				}
				gpu.Values[int32](buf, ids.Len)[i] = int32(id)
			}
			b.run(benchRows/2, 20, func() error {
				out, err := b.q.Gather(b.l, []gpu.Column{col}, ids, false)
				gpu.ReleaseColumns(out)
				return err
			})
		})
	}
}

func BenchmarkMatchPartitions(bb *testing.B) {
	b := newBenchmark(bb)
	const bits = 10
	cut := func(keys []int64) gpu.Partitioned {
		col := b.int64s(keys)
		hash, err := b.q.Hash(b.l, []gpu.Column{col}, 1)
		require.NoError(b, err)
		cols, offsets, err := b.q.Partition(b.l, []gpu.Column{col}, hash, gpu.Digit{Shift: 64 - bits, Bits: bits})
		require.NoError(b, err)
		return gpu.Partitioned{Key: cols[0], Offsets: offsets}
	}
	distinct := make([]int64, benchRows/4)
	for i := range distinct {
		distinct[i] = int64(word.Mix(uint64(i), word.TableSeed))
	}
	build, probe := cut(distinct), cut(keys("sparse", benchRows, benchRows/4))
	b.run(benchRows, 16, func() error {
		m, err := b.q.MatchPartitions(b.l, build, probe, gpu.Probing{})
		if err != nil {
			return err
		}
		defer m.Release()
		for more := true; more; {
			var p, match gpu.Column
			if p, match, more, err = m.Next(b.q, b.l, 1<<20); err != nil {
				return err
			}
			p.Release()
			match.Release()
		}
		return nil
	})
}
