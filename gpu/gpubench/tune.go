package gpubench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/gstream/gstream/gpu"
)

type joiner interface {
	Partitioned(l *gpu.Lease, build, probe gpu.Partitioned) interface {
		Join(gpu.Queue, *gpu.Lease, []gpu.Column, []gpu.Column, int) ([]gpu.Column, int, bool, error)
		Release()
	}
}

func mix64(x uint64) uint64 { x *= 0x9e3779b97f4a7c15; x ^= x >> 29; return x * 0xbf58476d1ce4e5b9 }

// tune: "logR,logS,width,payloads,bits,match,zipf ..."
func (b *bench) tune() error {
	rate, err := b.copyRate()
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(os.Getenv("TUNE")) {
		var lr, ls, width, pay, bits int
		var match, zipf float64
		if _, err := fmt.Sscanf(c, "%d,%d,%d,%d,%d,%g,%g", &lr, &ls, &width, &pay, &bits, &match, &zipf); err != nil {
			return err
		}
		nr, ns := 1<<lr, 1<<ls
		typ := gpu.Of(gpu.Uint32)
		if width == 8 {
			typ = gpu.Of(gpu.Uint64)
		}
		col := func(n int, f func(i int, rnd *rand.Rand) uint64) (gpu.Column, error) {
			h, err := b.hostColumn(n*width/4, func(v []uint32, rnd *rand.Rand) {})
			if err != nil {
				return h, err
			}
			h.Type, h.Len = typ, n
			parallelFill(n, func(lo, hi int) {
				rnd := rand.New(rand.NewPCG(uint64(lo), 77))
				for i := lo; i < hi; i++ {
					x := f(i, rnd)
					if width == 4 {
						gpu.Values[uint32](h.Data, n)[i] = uint32(x)
					} else {
						gpu.Values[uint64](h.Data, n)[i] = x
					}
				}
			})
			return b.up(h)
		}
		key := func(x uint64) uint64 {
			if width == 4 {
				return uint64(spread(uint32(x)))
			}
			return mix64(x)
		}
		perm := func(i int) uint64 { return uint64(uint32(i)*0x9e3779b1) & uint64(nr-1) }
		zs := newZipf(zipf, nr)
		domain := float64(nr) / match
		var cols [2][]gpu.Column
		add := func(side int, c gpu.Column, e error) {
			if e != nil {
				err = e
			}
			cols[side] = append(cols[side], c)
		}
		c0, e := col(nr, func(i int, _ *rand.Rand) uint64 { return key(perm(i)) })
		add(0, c0, e)
		c1, e := col(ns, func(i int, rnd *rand.Rand) uint64 {
			if zipf > 0 {
				return key(zs(rnd))
			}
			return key(uint64(rnd.Float64() * domain))
		})
		add(1, c1, e)
		for side, n := range []int{nr, ns} {
			for range pay {
				c, e := col(n, func(i int, rnd *rand.Rand) uint64 { return rnd.Uint64() })
				add(side, c, e)
			}
		}
		if err != nil {
			return err
		}
		bytes := int64(nr+ns)*int64(width)*int64(1+pay) + int64(float64(ns)*match)*int64(width)*int64(1+2*pay)
		rows := 0
		err = b.time(c, nr+ns, bytes, "copy", rate, func() error {
			var sides [2]gpu.Partitioned
			var parts [2][]gpu.Column
			defer func() { gpu.ReleaseColumns(parts[0]); gpu.ReleaseColumns(parts[1]) }()
			for s := range sides {
				out, offsets, err := b.q.Partition(b.l, cols[s], cols[s][0], uint(8*width-bits), uint(bits))
				if err != nil {
					return err
				}
				parts[s] = out
				sides[s] = gpu.Partitioned{Key: out[0], Offsets: offsets}
			}
			m := b.q.(joiner).Partitioned(b.l, sides[0], sides[1])
			defer m.Release()
			out, n, more, err := m.Join(b.q, b.l, parts[1], parts[0][1:], math.MaxInt32)
			if err != nil {
				return err
			}
			gpu.ReleaseColumns(out)
			rows = n
			if more {
				return fmt.Errorf("more")
			}
			return nil
		})
		fmt.Println("#", c, "pairs", rows)
		gpu.ReleaseColumns(cols[0])
		gpu.ReleaseColumns(cols[1])
		if err != nil {
			return err
		}
	}
	return nil
}

func parallelFill(n int, f func(lo, hi int)) {
	const step = 1 << 20
	done := make(chan struct{}, 64)
	sem := make(chan struct{}, 16)
	k := 0
	for lo := 0; lo < n; lo += step {
		k++
		go func() { sem <- struct{}{}; f(lo, min(lo+step, n)); <-sem; done <- struct{}{} }()
	}
	for range k {
		<-done
	}
}

// newZipf draws from a Zipf distribution by inversion of its integral.
func newZipf(s float64, n int) func(*rand.Rand) uint64 {
	h := func(x float64) float64 {
		if s == 1 {
			return math.Log(x)
		}
		return (math.Pow(x, 1-s) - 1) / (1 - s)
	}
	top := h(float64(n) + 0.5)
	low := h(0.5)
	return func(rnd *rand.Rand) uint64 {
		u := low + rnd.Float64()*(top-low)
		var x float64
		if s == 1 {
			x = math.Exp(u)
		} else {
			x = math.Pow(u*(1-s)+1, 1/(1-s))
		}
		return min(uint64(x+0.5), uint64(n)) - 1
	}
}
