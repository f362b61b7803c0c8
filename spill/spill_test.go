package spill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
)

var schema = gpu.NewSchema(
	gpu.Field{Name: "row", Type: gpu.Of(gpu.Int64)},
	gpu.Field{Name: "flag", Type: gpu.Of(gpu.Bool), Nullable: true},
	gpu.Field{Name: "small", Type: gpu.Of(gpu.Int16), Nullable: true},
	gpu.Field{Name: "wide", Type: gpu.DecimalOf(30, 2)},
	gpu.Field{Name: "text", Type: gpu.Of(gpu.String), Nullable: true},
	gpu.Field{Name: "word", Type: gpu.Of(gpu.String), Nullable: true},
	gpu.Field{Name: "day", Type: gpu.Of(gpu.Date), Nullable: true})

// words are the dictionary of some columns named word and day.
var words, days = gpu.ColumnOf(gpu.Of(gpu.String), texts("", "one", "two", "a longer one")),
	gpu.ColumnOf(gpu.Of(gpu.Date), ints(gpu.Of(gpu.Date), 1, 2, 3, 400))

func texts(v ...string) (out []gpu.Scalar) {
	for _, s := range v {
		out = append(out, gpu.StringScalar(s))
	}
	return out
}

func ints(t gpu.Type, v ...int64) (out []gpu.Scalar) {
	for _, i := range v {
		out = append(out, gpu.IntScalar(t, i))
	}
	return out
}

// draw returns a stride of rows whose first column counts from base, in random partitions.
func draw(rnd *rand.Rand, base, rows, partitions int) (*gpu.Stride, []int) {
	s := &gpu.Stride{Schema: schema, Rows: rows}
	coded := rnd.IntN(2) == 0
	for i, f := range schema.Fields {
		if dict := []*gpu.Column{5: &words, 6: &days}; coded && i >= 5 {
			codes := make([]gpu.Scalar, rows)
			for r := range codes {
				codes[r] = gpu.IntScalar(gpu.Of(gpu.Int32), rnd.Int64N(4))
				if rnd.IntN(5) == 0 {
					codes[r] = gpu.Null(codes[r].Type)
				}
			}
			c := gpu.ColumnOf(gpu.Of(gpu.Int32), codes)
			c.Type, c.Dict = f.Type, &gpu.Dictionary{Values: *dict[i]}
			s.Cols = append(s.Cols, c)
			continue
		}
		values := make([]gpu.Scalar, rows)
		for r := range values {
			switch {
			case i == 0:
				values[r] = gpu.IntScalar(f.Type, int64(base+r))
			case f.Nullable && rnd.IntN(6) == 0:
				values[r] = gpu.Null(f.Type)
			case f.Type.Kind == gpu.Bool:
				values[r] = gpu.BoolScalar(rnd.IntN(2) == 0)
			case f.Type.IsVar():
				values[r] = gpu.StringScalar(strings.Repeat("x", rnd.IntN(20)))
			default:
				values[r] = gpu.IntScalar(f.Type, rnd.Int64N(2000)-1000)
			}
		}
		s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, values))
	}
	offsets := []int{0}
	for range partitions - 1 {
		offsets = append(offsets, rnd.IntN(rows+1))
	}
	slices.Sort(offsets)
	return s, append(offsets, rows)
}

// strings of the rows of a stride in host memory.
func rowsOf(s *gpu.Stride) (out []string) {
	for r := range s.Rows {
		var b strings.Builder
		for _, c := range s.Cols {
			fmt.Fprintf(&b, "%v|", c.ScalarAt(r))
		}
		out = append(out, b.String())
	}
	return out
}

// devices are the devices of the tests, with a budget of device memory and one of host memory.
var devices = map[string]func(t *testing.T, memory, hostMemory int64) gpu.Device{
	"host": func(t *testing.T, memory, _ int64) gpu.Device {
		d, err := host.Open(host.Options{Threads: 2, Memory: memory})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	},
	"cuda": func(t *testing.T, memory, hostMemory int64) gpu.Device {
		return cudatest.Open(t, cuda.Options{Memory: memory, HostMemory: hostMemory})
	},
}

// bench is a store on a device.
type bench struct {
	t     *testing.T
	dev   gpu.Device
	store *Store
	lease *gpu.Lease
	queue gpu.Queue
}

func open(t *testing.T, d gpu.Device, o Options) *bench {
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	q, err := d.NewQueue("test")
	require.NoError(t, err)
	return &bench{t, d, NewStore(d, o), d.Budget().Lease("state"), q}
}

// close checks that everything was released, by other leases too.
func (b *bench) close(others ...*gpu.Lease) {
	require.NoError(b.t, b.queue.Close())
	require.NoError(b.t, b.store.Close())
	stats := b.store.Stats(b.lease)
	for _, x := range []TierStats{stats.Host, stats.Disk} {
		require.Equal(b.t, x.In+x.Again, x.Out+x.Unread, "%+v", stats)
		require.Zero(b.t, x.Now)
	}
	for _, l := range append(others, b.lease) {
		require.NoError(b.t, l.Close())
	}
	require.Empty(b.t, b.dev.Budget().Leaks())
	require.Empty(b.t, b.dev.HostBudget().Leaks())
}

// up copies a stride to the device.
func (b *bench) up(s *gpu.Stride) *gpu.Stride {
	move := func(s *gpu.Stride) (*gpu.Stride, error) { return gpuCopy(b.lease, s) }
	if b.store.discrete() {
		move = func(s *gpu.Stride) (*gpu.Stride, error) { return b.queue.Upload(b.lease, s) }
	}
	up, err := move(s)
	require.NoError(b.t, err)
	return up
}

// read returns the rows of partitions [from, to).
func (b *bench) read(p *Partitions, from, to int) (rows []string, err error) {
	l := b.dev.HostBudget().Lease("reader")
	defer l.Close()
	type part struct {
		first int
		rows  []string
	}
	var parts []part
	err = p.Each(context.Background(), b.queue, b.lease, from, to, func(s *gpu.Stride, first int) error {
		left := l.Available()
		down, err := b.queue.Download(l, s)
		// pieces that are read ahead cannot move
		for errors.Is(err, gpu.ErrBudget) && l.AwaitMore(context.Background(), left) {
			left = l.Available()
			down, err = b.queue.Download(l, s)
		}
		if err != nil {
			s.Release()
			return err
		}
		parts = append(parts, part{first, rowsOf(down)})
		down.Release()
		return nil
	})
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(x.first, y.first) })
	for _, x := range parts {
		rows = append(rows, x.rows...)
	}
	return rows, err
}

// sameRows compares rows in any order.
func sameRows(t *testing.T, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
}

func TestRowsComeBackFromEveryTier(t *testing.T) {
	for name, device := range devices {
		for _, c := range []struct {
			name         string
			memory, host int64
			always       bool
		}{{"memory", 64 << 20, 64 << 20, false}, {"below", 512 << 10, 64 << 20, false},
			{"disk", 512 << 10, 128 << 10, false}, {"always", 64 << 20, 64 << 20, true}} {
			for _, compress := range []bool{false, true} {
				if compress && c.name == "memory" || !compress && gputest.Race {
					continue // nothing is written, or the goroutines are the same
				}
				t.Run(fmt.Sprint(name, "/", c.name, "/", compress), func(t *testing.T) {
					rnd := rand.New(rand.NewPCG(1, 2))
					b := open(t, device(t, c.memory, c.host), Options{Always: c.always, Compress: compress})
					const fanOut = 16
					p := b.store.NewPartitions("state", b.lease, schema, fanOut)
					want := make([][]string, fanOut)
					for i := range 30 {
						first := rnd.IntN(3)
						s, offsets := draw(rnd, i*1000, 1+rnd.IntN(900), fanOut-first)
						all := rowsOf(s)
						for f := range fanOut - first {
							want[first+f] = append(want[first+f], all[offsets[f]:offsets[f+1]]...)
						}
						require.NoError(t, p.Append(b.up(s), first, offsets))
					}
					stats := b.store.Stats(b.lease)
					if name == "cuda" {
						require.Equal(t, c.name != "memory", stats.Host.In > 0, "%v", stats)
					}
					toDisk := c.always || c.name == "disk" || name == "host" && c.name == "below"
					if toDisk { // goroutines move rows there
						require.Eventually(t, func() bool { return b.store.Stats(b.lease).Disk.In > 0 }, 10*time.Second,
							time.Millisecond, "%v", stats)
					} else {
						require.Zero(t, stats.Disk.In, "%v", stats)
					}
					for _, by := range []int{1, 5, fanOut} {
						for from := 0; from < fanOut; from += by {
							to := min(from+by, fanOut)
							got, err := b.read(p, from, to)
							require.NoError(t, err)
							all := slices.Concat(want[from:to]...)
							require.Equal(t, int64(len(all)), p.Rows(from, to))
							sameRows(t, all, got)
						}
					}
					mean := p.Bytes(0, fanOut) / p.Rows(0, fanOut)
					p.Drop(0, 7)
					require.Equal(t, mean, p.Bytes(7, fanOut)/p.Rows(7, fanOut), "of the rows that are left")
					got, err := b.read(p, 7, fanOut)
					require.NoError(t, err)
					sameRows(t, slices.Concat(want[7:]...), got)
					p.Drop(7, fanOut)
					require.Zero(t, b.store.Stats(b.lease).Disk.Now)
					require.Zero(t, b.store.Stats(b.lease).Host.Now)
					require.NoError(t, p.Close())
					b.close()
				})
			}
		}
	}
}

func TestOrderedPartitionsComeBackInOrder(t *testing.T) {
	for name, device := range devices {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, 4))
			b := open(t, device(t, 1<<20, 256<<10), Options{})
			const strides, each = 50, 4
			p := b.store.NewPartitions("run", b.lease, schema, strides*each)
			p.Ordered = true
			var want []string
			for i := range strides {
				s, offsets := draw(rnd, i*1000, 500, each)
				want = append(want, rowsOf(s)...)
				require.NoError(t, p.Append(b.up(s), i*each, offsets))
			}
			require.Positive(t, b.store.Stats(b.lease).Disk.In)
			got, err := b.read(p, 0, strides*each)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.NoError(t, p.Close())
			b.close()
		})
	}
}

func TestBytesReadAgainAndNeverAreCounted(t *testing.T) {
	for name, device := range devices {
		for _, always := range []bool{false, true} { // rows of a GPU are in host memory otherwise
			if name == "host" && !always {
				continue
			}
			t.Run(fmt.Sprint(name, always), func(t *testing.T) {
				b := open(t, device(t, 1<<20, 64<<20), Options{Always: always})
				p := b.store.NewPartitions("state", b.lease, schema, 4)
				for i := range 60 {
					s, offsets := draw(rand.New(rand.NewPCG(7, 8)), i*1000, 1000, 4)
					require.NoError(t, p.Append(b.up(s), 0, offsets))
				}
				_, err := b.read(p, 0, 2)
				require.NoError(t, err)
				_, err = b.read(p, 1, 2)
				require.NoError(t, err)
				stats := func() TierStats {
					if s := b.store.Stats(b.lease); !always {
						return s.Host
					}
					return b.store.Stats(b.lease).Disk
				}
				x := stats()
				require.Positive(t, x.Again)
				require.Less(t, x.Again, x.Out/2, "one of the two was read again")
				require.Zero(t, x.Unread)
				require.NoError(t, p.Close())
				require.Equal(t, x.In-(x.Out-x.Again), stats().Unread, "%+v", stats())
				require.Positive(t, stats().Unread)
				b.close()
			})
		}
	}
}

// TestReadersAndMoversAtTheSameTime reads partitions while others take their memory.
func TestReadersAndMoversAtTheSameTime(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	b := open(t, devices["host"](t, 4<<20, 0), Options{Compress: true})
	const fanOut = 32
	p := b.store.NewPartitions("state", b.lease, schema, fanOut)
	rows := make([]int64, fanOut)
	for i := range 60 {
		s, offsets := draw(rnd, i*1000, 800, fanOut)
		for f := range rows {
			rows[f] += int64(offsets[f+1] - offsets[f])
		}
		require.NoError(t, p.Append(b.up(s), 0, offsets))
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			l := b.dev.Budget().Lease("reader")
			q, err := b.dev.NewLaneQueue("reader")
			require.NoError(t, err)
			for f := range fanOut {
				seen := map[string]bool{}
				err := p.Each(context.Background(), q, l, f, f+1, func(s *gpu.Stride, _ int) error {
					for r := range s.Rows {
						seen[s.Cols[0].ScalarAt(r).String()] = true
					}
					s.Release()
					return nil
				})
				if err != nil || int64(len(seen)) != rows[f] {
					t.Errorf("partition %d: %d of %d rows, %v", f, len(seen), rows[f], err)
				}
			}
			_ = q.Close()
			_ = l.Close()
		})
	}
	wg.Go(func() {
		l := b.dev.Budget().Lease("other")
		for n := int64(1 << 20); n < 4<<20; n += 100 << 10 {
			if l.Reserve(n) == nil {
				l.Unreserve(n)
			}
		}
		_ = l.Close()
	})
	wg.Wait()
	require.NoError(t, p.Close())
	b.close()
}

// copied is a device whose copies to the host call back when they are done.
type copied struct {
	gpu.Device
	done func()
}

func (d copied) NewQueue(name string) (gpu.Queue, error) {
	q, err := d.Device.NewQueue(name)
	return copiedQueue{q, d.done}, err
}

// TestOthersReadRowsOfAGPU reads partitions by a queue of the CPU, or of another GPU, from every tier, while a queue of
// the GPU reads others.
func TestOthersReadRowsOfAGPU(t *testing.T) {
	library := cudatest.Library(t)
	n, err := cuda.Count(library)
	require.NoError(t, err)
	for _, c := range []struct {
		name         string
		memory, host int64
		always       bool
		strides      int
		gpu          bool // another GPU reads, too
	}{{"memory", 64 << 20, 64 << 20, false, 20, true}, {"below", 1 << 20, 64 << 20, false, 60, false},
		{"disk", 1 << 20, 512 << 10, false, 60, true}, {"always", 64 << 20, 64 << 20, true, 60, false}} {
		read := func(t *testing.T, d, other gpu.Device) {
			b := open(t, d, Options{Always: c.always})
			q, err := other.NewLaneQueue("other")
			require.NoError(t, err)
			l, down := other.Budget().Lease("other"), d.HostBudget().Lease("down")
			const fanOut = 16
			p := b.store.NewPartitions("state", b.lease, schema, fanOut)
			rnd := rand.New(rand.NewPCG(1, 2))
			want := make([][]string, fanOut)
			for i := range c.strides {
				s, offsets := draw(rnd, i*1000, 1+rnd.IntN(900), fanOut)
				all := rowsOf(s)
				for f := range fanOut {
					want[f] = append(want[f], all[offsets[f]:offsets[f+1]]...)
				}
				require.NoError(t, p.Append(b.up(s), 0, offsets))
			}
			var byGPU []string
			var gpuErr error
			done := make(chan bool)
			go func() {
				defer close(done)
				byGPU, gpuErr = b.read(p, 0, fanOut/2)
			}()
			for f := fanOut / 2; f < fanOut; f++ {
				var got []string
				require.NoError(t, p.Each(t.Context(), q, l, f, f+1, func(s *gpu.Stride, first int) error {
					require.NoError(t, gpu.CheckMemory(other, s.Cols))
					require.Equal(t, f, first)
					s, err := q.Download(down, s)
					require.NoError(t, err)
					got = append(got, rowsOf(s)...)
					s.Release()
					return nil
				}))
				sameRows(t, want[f], got)
				p.Drop(f, f+1)
			}
			<-done
			require.NoError(t, gpuErr)
			sameRows(t, slices.Concat(want[:fanOut/2]...), byGPU)
			require.NoError(t, p.Close())
			require.NoError(t, q.Close())
			b.close(l, down)
		}
		t.Run(c.name+" by the CPU", func(t *testing.T) {
			d := devices["cuda"](t, c.memory, c.host)
			cpu, err := host.Open(host.Options{Threads: 1, Budget: d.HostBudget()})
			require.NoError(t, err)
			read(t, d, cpu)
			require.NoError(t, cpu.Close())
		})
		if !c.gpu || n < 2 {
			continue
		}
		t.Run(c.name+" by a GPU", func(t *testing.T) {
			g, err := cuda.OpenGroup(cuda.Options{Library: library, Memory: c.memory, HostMemory: c.host}, []int{0, 1})
			require.NoError(t, err)
			read(t, g.Devices[0], g.Devices[1])
			require.NoError(t, g.Close())
		})
	}
}

// TestAReaderLeavesOutWhatIsCut cuts ranges of a reader that it has not begun, and none that it has.
func TestAReaderLeavesOutWhatIsCut(t *testing.T) {
	for name, device := range devices {
		t.Run(name, func(t *testing.T) {
			b := open(t, device(t, 64<<20, 64<<20), Options{Always: true})
			p := b.store.NewPartitions("state", b.lease, schema, 12)
			s, offsets := draw(rand.New(rand.NewPCG(1, 1)), 0, 3000, 12)
			all := rowsOf(s)
			require.NoError(t, p.Append(b.up(s), 0, offsets))
			r := NewReader(t.Context(), b.lease,
				[]Range{{p, Span{0, 3}, nil}, {p, Span{3, 6}, nil}, {p, Span{6, 9}, nil}, {p, Span{9, 12}, nil}})
			l := b.dev.HostBudget().Lease("reader")
			next := func(from, to int) {
				t.Helper()
				var got []string
				require.NoError(t, r.Next(b.queue, func(s *gpu.Stride, _ int) error {
					down, err := b.queue.Download(l, s)
					got = append(got, rowsOf(down)...)
					down.Release()
					return err
				}))
				sameRows(t, slices.Clone(all[offsets[from]:offsets[to]]), got)
			}
			require.False(t, r.Cut(3, 1), "the first range is next")
			require.True(t, r.Cut(9, 8))
			require.True(t, r.Cut(12, 9), "nothing is left of it")
			next(0, 3)
			require.False(t, r.Cut(3, 1))
			next(3, 6)
			next(6, 8)
			require.Len(t, r.ranges, 3)
			r.Close()
			require.NoError(t, p.Close())
			b.close(l)
		})
	}
}

// TestRangesOfSpansOfRuns reads spans of several runs of pages at a time, of which some are in each tier.
func TestRangesOfSpansOfRuns(t *testing.T) {
	const runs, pages, step = 5, 12, 3
	for name, device := range devices {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(4, 4))
			b := open(t, device(t, 16<<20, 16<<20), Options{})
			p := b.store.NewPartitions("state", b.lease, schema, 0)
			p.Ordered = true
			of := map[int][]string{} // the rows of each page
			for range runs {
				begin := p.Run(pages)
				require.Equal(t, len(of), begin)
				for at := begin; at < begin+pages; at += step {
					s, offsets := draw(rnd, 100*at, 60, step)
					all := rowsOf(s)
					for i := range step {
						of[at+i] = all[offsets[i]:offsets[i+1]]
					}
					require.NoError(t, p.Append(b.up(s), at, offsets))
				}
			}
			require.Equal(t, runs*pages, p.Len())
			l := b.dev.HostBudget().Lease("reader")
			strides, pieces := 0, 0
			for round := range 12 {
				if m := p.movers[round/2%len(p.movers)]; round%2 == 1 {
					m.Reclaim(m.reclaimable(true)/4 + 1)
				}
				var ranges []Range
				var want [][]string
				for range 3 {
					x := Range{Partitions: p}
					var rows []string
					for r := range runs {
						s := Span{r*pages + rnd.IntN(pages), (r + 1) * pages}
						s.To -= rnd.IntN(s.To - s.From + 1)
						pieces += (s.To+step-1)/step - s.From/step
						for page := s.From; page < s.To; page++ {
							rows = append(rows, of[page]...)
						}
						if r == 0 {
							x.Span = s
						} else {
							x.More = append(x.More, s)
						}
					}
					ranges, want = append(ranges, x), append(want, rows)
				}
				r := NewReader(t.Context(), b.lease, ranges)
				for i := range ranges {
					type part struct {
						first int
						rows  []string
					}
					var parts []part
					require.NoError(t, r.Next(b.queue, func(s *gpu.Stride, first int) error {
						down, err := b.queue.Download(l, s)
						parts = append(parts, part{first, rowsOf(down)})
						down.Release()
						return err
					}))
					slices.SortFunc(parts, func(x, y part) int { return cmp.Compare(x.first, y.first) })
					var got []string
					for _, x := range parts {
						got = append(got, x.rows...)
					}
					require.Equal(t, want[i], got, "round %d, range %d", round, i)
					strides += len(parts)
				}
				r.Close()
			}
			require.Less(t, strides, pieces, "rows of several runs come together")
			require.Positive(t, b.store.Stats(b.lease).Disk.In)
			p.DropSpans([]Span{{0, pages}, {2 * pages, 5 * pages}})
			require.Equal(t, p.Rows(0, p.Len()), p.Rows(pages, 2*pages))
			require.NoError(t, p.Close())
			b.close(l)
		})
	}
}

// TestFirstPagesOfRunsStay moves the last pages of all runs first.
func TestFirstPagesOfRunsStay(t *testing.T) {
	b := open(t, devices["host"](t, 16<<20, 0), Options{})
	p := b.store.NewPartitions("state", b.lease, schema, 0)
	p.Ordered = true
	rnd := rand.New(rand.NewPCG(5, 5))
	for range 3 {
		begin := p.Run(4)
		for i := range 4 {
			s, offsets := draw(rnd, 0, 10, 1)
			require.NoError(t, p.Append(b.up(s), begin+i, offsets))
		}
	}
	var order []int
	for x := p.movers[0].take(true); x != nil; x = p.movers[0].take(true) {
		order = append(order, x.first%4)
		defer p.movers[0].stay([]*piece{x}, nil)
	}
	require.Equal(t, []int{3, 3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0}, order)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		b.close()
	})
}

type copiedQueue struct {
	gpu.Queue
	done func()
}

func (q copiedQueue) Download(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) {
	down, err := q.Queue.Download(l, s)
	q.done()
	return down, err
}

// TestAStrideIsReadWhileItLands reads rows after their copy to the host, before the mover says
// where they are.
func TestAStrideIsReadWhileItLands(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 4 << 20, HostMemory: 4 << 20})
	var read func()
	b := open(t, copied{d, func() {
		if read != nil {
			f := read
			read = nil
			f()
		}
	}}, Options{})
	b.queue.(copiedQueue).Close()
	var err error
	b.queue, err = d.NewQueue("test")
	require.NoError(t, err)
	p := b.store.NewPartitions("state", b.lease, schema, 4)
	s, offsets := draw(rand.New(rand.NewPCG(1, 1)), 0, 1000, 4)
	want := rowsOf(s)
	require.NoError(t, p.Append(b.up(s), 0, offsets))
	var got []string
	read = func() { got, err = b.read(p, 0, 4) }
	require.Positive(t, p.movers[deviceTier].Reclaim(1))
	require.NoError(t, err)
	sameRows(t, want, got)
	require.NoError(t, p.Close())
	b.close()
}

// TestRowsMoveThoughTheirLockIsHeld refuses no memory because a reader looks for rows just then.
func TestRowsMoveThoughTheirLockIsHeld(t *testing.T) {
	for name, device := range devices {
		t.Run(name, func(t *testing.T) {
			b := open(t, device(t, 4<<20, 4<<20), Options{})
			p := b.store.NewPartitions("state", b.lease, schema, 4)
			s, offsets := draw(rand.New(rand.NewPCG(1, 1)), 0, 1000, 4)
			require.NoError(t, p.Append(b.up(s), 0, offsets))
			all := b.lease.Available() + 1 // more than is free
			p.mu.Lock()
			go func() {
				time.Sleep(20 * time.Millisecond)
				p.mu.Unlock()
			}()
			require.NoError(t, b.lease.Reserve(all))
			b.lease.Unreserve(all)
			require.NoError(t, p.Close())
			b.close()
		})
	}
}

// TestAStrideThatMovesOnHoldsNobodyUp lets a stride land in host memory and begin to move to disk before the one that
// waits for it sees that it has landed.
func TestAStrideThatMovesOnHoldsNobodyUp(t *testing.T) {
	b := open(t, devices["cuda"](t, 64<<20, 64<<20), Options{})
	p := b.store.NewPartitions("state", b.lease, schema, 4)
	s, offsets := draw(rand.New(rand.NewPCG(1, 1)), 0, 100, 4)
	require.NoError(t, p.Append(b.up(s), 0, offsets))
	m, x := p.movers[0], p.pieces[0]
	require.Same(t, x, m.take(true))
	given := make(chan int64)
	go func() { given <- m.await() }()
	time.Sleep(10 * time.Millisecond)
	p.mu.Lock()
	x.at, x.moving = hostTier, false
	p.landed.Broadcast()
	x.moving = true
	p.mu.Unlock()
	select {
	case n := <-given:
		require.Contains(t, []int64{0, x.bytes}, n) // 0 if it began to wait too late
	case <-time.After(10 * time.Second):
		require.Fail(t, "it waits for the next movement too")
	}
	p.mu.Lock()
	x.at, x.moving, x.busy = deviceTier, false, 0
	p.mu.Unlock()
	require.NoError(t, p.Close())
	b.close()
}

// TestMoreRowsThanTheBudgetLeaveMuchOfItFree has rows of which a quarter of the budget is left free, until they are
// more than it has room for.
func TestMoreRowsThanTheBudgetLeaveMuchOfItFree(t *testing.T) {
	d := devices["cuda"](t, 16<<20, 64<<20)
	b := open(t, d, Options{})
	p := b.store.NewPartitions("rows", b.lease, narrow, 64)
	p.Free = b.lease.Limit() / 2
	fill, h := filler(t, d, b, p)
	fill(0, 22) // 11 MiB, and a quarter is free
	require.Less(t, b.lease.Available(), b.lease.Limit()/2)
	require.Zero(t, b.store.Stats(b.lease).Host.In)
	fill(22, 40) // 20 MiB
	require.Eventually(t, func() bool { return b.lease.Available() >= b.lease.Limit()/2 }, 10*time.Second,
		time.Millisecond)
	require.NoError(t, p.Close())
	b.close(h)
}

// TestRowsThatAreNotToBeKeptLeaveSoon has rows of which the first partitions are to be kept. The others leave
// once there is a quarter of the budget, before it is short.
func TestRowsThatAreNotToBeKeptLeaveSoon(t *testing.T) {
	d := devices["cuda"](t, 16<<20, 64<<20)
	b := open(t, d, Options{})
	p := b.store.NewPartitions("rows", b.lease, narrow, 64)
	p.Keep = 6
	fill, h := filler(t, d, b, p)
	fill(0, 1)
	fill(9, 10) // a 16th of the budget in all
	require.Zero(t, b.store.Stats(b.lease).Host.In)
	fill(1, 9)
	require.Eventually(t, func() bool { return b.store.Stats(b.lease).Host.In == 2<<20 }, 10*time.Second,
		time.Millisecond)
	require.Equal(t, int64(3<<20), p.Held(0, 6))
	require.NoError(t, p.Close())
	b.close(h)
}

var narrow = gpu.NewSchema(gpu.Field{Name: "row", Type: gpu.Of(gpu.Int64)})

// filler returns a function that appends half a MiB to each of partitions [from, to), and the lease that it
// takes the memory of the rows from.
func filler(t *testing.T, d gpu.Device, b *bench, p *Partitions) (fill func(from, to int), h *gpu.Lease) {
	const rows = 1 << 16
	h = d.HostBudget().Lease("rows")
	return func(from, to int) {
		for i := from; i < to; i++ {
			data, err := h.Alloc(rows * 8)
			require.NoError(t, err)
			clear(data.Bytes())
			s := b.up(&gpu.Stride{Schema: narrow, Rows: rows,
				Cols: []gpu.Column{{Type: gpu.Of(gpu.Int64), Len: rows, Data: data}}})
			require.NoError(t, p.Append(s, i, []int{0, rows}))
		}
	}, h
}

func TestAFlippedBitOnDiskIsAnError(t *testing.T) {
	for _, compress := range []bool{false, true} {
		rnd := rand.New(rand.NewPCG(7, 8))
		b := open(t, devices["host"](t, 64<<20, 0), Options{Always: true, Compress: compress})
		p := b.store.NewPartitions("join orders", b.lease, schema, 4)
		s, offsets := draw(rnd, 0, 700, 4)
		want := rowsOf(s)
		require.NoError(t, p.Append(b.up(s), 0, offsets))
		for at := int64(0); at < p.end; at += 1 + p.end/200 {
			var old [1]byte
			_, err := p.file.ReadAt(old[:], at)
			require.NoError(t, err)
			_, err = p.file.WriteAt([]byte{old[0] ^ 1<<(at%8)}, at)
			require.NoError(t, err)
			_, err = b.read(p, 0, 4)
			require.ErrorIs(t, err, errDamaged, "byte %d", at)
			require.ErrorContains(t, err, "join orders: read what was spilled to "+b.store.opt.Dir)
			_, err = p.file.WriteAt(old[:], at)
			require.NoError(t, err)
		}
		require.NoError(t, p.file.Truncate(p.end-1))
		_, err := b.read(p, 0, 4)
		require.ErrorIs(t, err, errDamaged)
		require.NoError(t, p.file.Truncate(0))
		_, err = b.read(p, 0, 4)
		require.ErrorIs(t, err, errDamaged)
		require.Len(t, want, 700)
		require.NoError(t, p.Close())
		b.close()
	}
}

func TestAFullDiskLeavesRowsInMemoryAndSaysSo(t *testing.T) {
	err := fillDisk(t, 300<<10)
	require.ErrorContains(t, err, "raise it with SpillLimit")
	require.NotErrorIs(t, err, syscall.ENOSPC)
	err = fillDisk(t, 0)
	require.ErrorContains(t, err,
		"the disk is nearly full: the files would take more than 300 KiB, four fifths of what was free in ")
	require.ErrorContains(t, err, "free some space, or choose another folder with SpillDir")
	require.NotContains(t, err.Error(), "SpillLimit")
	require.ErrorIs(t, err, syscall.ENOSPC)
}

// fillDisk puts rows into a store until it refuses some, with a limit of the files; without one the disk has 300 KiB.
func fillDisk(t *testing.T, limit int64) error {
	rnd := rand.New(rand.NewPCG(9, 10))
	b := open(t, devices["host"](t, 2<<20, 0), Options{Limit: limit})
	if limit == 0 {
		b.store.opened.Do(func() { b.store.disk.SetLimit(300 << 10) })
	}
	p := b.store.NewPartitions("sort", b.lease, schema, 4)
	var want []string
	var err error
	for i := 0; err == nil; i++ {
		s, offsets := draw(rnd, i*1000, 900, 4)
		rows := rowsOf(s)
		own := b.dev.Budget().Lease("scan")
		var up *gpu.Stride
		up, err = gpuCopy(own, s)
		if err == nil {
			want = append(want, rows...)
			require.NoError(t, p.Append(up, 0, offsets))
		}
		require.NoError(t, own.Close())
	}
	require.ErrorIs(t, err, gpu.ErrBudget)
	require.ErrorContains(t, err, "state: holds")
	require.NotEmpty(t, want)
	full := err
	b.dev.Budget().SetLimit(64 << 20)
	got, err := b.read(p, 0, 4)
	require.NoError(t, err)
	sameRows(t, want, got)
	require.NoError(t, p.Close())
	b.close()
	return full
}

// gpuCopy copies a stride of the Go heap to memory of a lease.
func gpuCopy(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) {
	out := &gpu.Stride{Schema: s.Schema, Rows: s.Rows}
	var err error
	move := func(b *gpu.Buffer) *gpu.Buffer {
		if b == nil || err != nil {
			return nil
		}
		var to *gpu.Buffer
		if to, err = l.Alloc(b.Size()); err != nil {
			return nil
		}
		copy(to.Bytes(), b.Bytes())
		return to
	}
	for _, c := range s.Cols {
		c.Data, c.Offsets, c.Valid = move(c.Data), move(c.Offsets), move(c.Valid)
		out.Cols = append(out.Cols, c)
	}
	if err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

func TestAFolderThatCannotHaveFilesIsNamed(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	b := open(t, devices["host"](t, 1<<20, 0), Options{Dir: "/nowhere/at/all"})
	p := b.store.NewPartitions("sort", b.lease, schema, 4)
	var err error
	for i := 0; err == nil; i++ {
		s, offsets := draw(rnd, i*1000, 900, 4)
		var own *gpu.Stride
		if own, err = gpuCopy(b.lease, s); err == nil {
			require.NoError(t, p.Append(own, 0, offsets))
		}
	}
	var refused *gpu.BudgetError
	require.True(t, errors.As(err, &refused))
	require.EqualError(t, refused.Cause,
		"spill to /nowhere/at/all: no such file or directory; choose another folder with SpillDir")
	require.NoError(t, p.Close())
	b.close()
}

func TestFilesArePrivateAndHaveNoNames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	b := open(t, devices["host"](t, 64<<20, 0), Options{Always: true})
	p := b.store.NewPartitions("sort", b.lease, schema, 4)
	s, offsets := draw(rnd, 0, 700, 4)
	require.NoError(t, p.Append(b.up(s), 0, offsets))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(p.file.Fd()), &st))
	require.Equal(t, uint32(0o600), st.Mode&0o777)
	require.Zero(t, st.Nlink)
	files, err := os.ReadDir(b.store.opt.Dir)
	require.NoError(t, err)
	require.Empty(t, files)
	require.NoError(t, p.Close())
	b.close()
}

func TestRowsThatAreNotInOrderOfPartitionAreAMistake(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	b := open(t, devices["host"](t, 64<<20, 0), Options{})
	p := b.store.NewPartitions("sort", b.lease, schema, 4)
	for _, offsets := range [][]int{{0}, {0, 5, 3, 10}, {1, 10}, {0, 9}, {0, 1, 2, 3, 4, 10}} {
		s, _ := draw(rnd, 0, 10, 4)
		require.Error(t, p.Append(b.up(s), 0, offsets), "%v", offsets)
	}
	s, _ := draw(rnd, 0, 10, 4)
	require.Error(t, p.Append(b.up(s), 4, []int{0, 10}))
	require.Zero(t, p.Rows(0, 4))
	require.NoError(t, p.Close())
	b.close()
}

// TestDictionariesUnite has strides with dictionaries of their own, which their rows share after they are joined.
func TestDictionariesUnite(t *testing.T) {
	b := open(t, devices["host"](t, 64<<20, 0), Options{})
	word := gpu.NewSchema(gpu.Field{Name: "word", Type: gpu.Of(gpu.String), Nullable: true})
	stride := func(rows int, words ...string) *gpu.Stride {
		codes, valid := make([]int32, rows), make([]byte, gpu.BitmapBytes(rows))
		for r := range codes {
			codes[r] = int32(r % (len(words) + 1)) // that of a null is none
			if int(codes[r]) < len(words) {
				gpu.SetBits(valid, r, 1)
			}
		}
		values := gpu.ColumnOf(gpu.Of(gpu.String), texts(words...))
		return &gpu.Stride{Schema: word, Rows: rows,
			Cols: []gpu.Column{{Type: gpu.Of(gpu.String), Len: rows, Data: gpu.WrapBytes(gpu.BytesOf(codes)),
				Valid: gpu.WrapBytes(valid), Dict: &gpu.Dictionary{Values: values}}}}
	}
	parts := []*gpu.Stride{stride(20, "one", "two"), stride(25, "", "two", "three"), stride(3, "one")}
	var want []string
	for _, s := range parts {
		want = append(want, rowsOf(s)...)
	}
	for _, few := range []bool{true, false} {
		if !few { // an entry for each row is as large as the rows
			parts[2] = stride(3, "four", "five", "six")
		}
		lay := newLayout(word, parts)
		require.NoError(t, lay.unite(b.lease, parts))
		require.Equal(t, few, lay.dicts[0] != nil)
		if few {
			require.Empty(t, lay.texts)
			require.Equal(t, 4, lay.dicts[0].Values.Len)
			a, err := newAssembly(b.lease, &lay, extent{rows: 48}, parts)
			require.NoError(t, err)
			for i, row := range []int{0, 20, 45} {
				a.copyColumn(&lay, 0, parts[i].Cols[0], row)
			}
			a.rows = 48
			s := a.done()
			require.Equal(t, want, rowsOf(s))
			s.Release()
		}
		lay.release()
	}
	b.close()
}
