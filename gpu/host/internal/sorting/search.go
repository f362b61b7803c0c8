package sorting

import (
	"cmp"
	"sort"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Search finds each bound in a range [from[i], to[i]) of rows, which are in the order of the key. It
// returns the first row that is not before the bound or, with after, the first row after it.
func Search(cores parallel.Cores, l *gpu.Lease, key gpu.SortKey, bound gpu.Column, after bool,
	from, to []int32) (gpu.Column, error) {
	n := len(from)
	out, err := memory.New[int32](l, n)
	if err != nil {
		return gpu.Column{}, err
	}
	find := Finder(key, bound, after)
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			out.V[i] = to[i]
			if from[i] < to[i] {
				out.V[i] = int32(find(int(from[i]), int(to[i]), i))
			}
		}
		return nil
	})
	if err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: out.Buf}, nil
}

// Finder returns a function that finds bound i among the rows [from, to) of the key, as Search does.
func Finder(key gpu.SortKey, bound gpu.Column, after bool) func(from, to, i int) int {
	c := key.Column
	if t := c.Type; !key.Descending && c.Valid == nil && bound.Valid == nil && !t.IsVar() && !t.IsFloat() && !t.Wide {
		switch w := t.Width(); {
		case w == 4 && t.IsUnsigned():
			return finder[uint32](c, bound, after)
		case w == 4:
			return finder[int32](c, bound, after)
		case w == 8 && t.IsUnsigned():
			return finder[uint64](c, bound, after)
		case w == 8:
			return finder[int64](c, bound, after)
		}
	}
	compare, least := CompareKey(key, bound), 0
	if after {
		least = 1
	}
	return func(from, to, i int) int {
		return from + sort.Search(to-from, func(k int) bool { return compare(from+k, i) >= least })
	}
}

// finder is Finder for ascending numbers without nulls. Its loops have no branch that depends on a value: a processor
// could not predict it.
func finder[T cmp.Ordered](key, bound gpu.Column, after bool) func(from, to, i int) int {
	x, y := gpu.Values[T](key.Data, key.Len), gpu.Values[T](bound.Data, bound.Len)
	if after {
		return func(from, to, i int) int {
			v := y[i]
			for n := to - from; n > 0; {
				half := (n + 1) / 2
				if x[from+half-1] <= v {
					from += half
					n -= half
				} else {
					n = half - 1
				}
			}
			return from
		}
	}
	return func(from, to, i int) int {
		v := y[i]
		for n := to - from; n > 0; {
			half := (n + 1) / 2
			if x[from+half-1] < v {
				from += half
				n -= half
			} else {
				n = half - 1
			}
		}
		return from
	}
}
