package eval

import (
	"math"

	"github.com/gstream/gstream/gpu"
)

// linearSet is the largest set that is searched linearly.
const linearSet = 8

// valueSet holds the operands of OpIn: up to linearSet in a list, more in a map.
type valueSet[T comparable] struct {
	list []T
	many map[T]struct{}
}

func makeSet[T comparable](values []gpu.Scalar, get func(gpu.Scalar) T) *valueSet[T] {
	s := &valueSet[T]{}
	for _, v := range values {
		s.list = append(s.list, get(v))
	}
	if len(s.list) > linearSet {
		s.many = make(map[T]struct{}, len(s.list))
		for _, v := range s.list {
			s.many[v] = struct{}{}
		}
	}
	return s
}

// newSet prepares the set of OpIn for arguments of type t.
func newSet(values []gpu.Scalar, t gpu.Type) any {
	switch {
	case t.IsVar():
		return makeSet(values, func(v gpu.Scalar) string { return v.Str })
	case t.IsFloat():
		return makeSet(values, func(v gpu.Scalar) uint64 { return floatKey(v.Float) })
	case t.Wide:
		return makeSet(values, func(v gpu.Scalar) gpu.Int128 { return v.Int })
	}
	return makeSet(values, func(v gpu.Scalar) int64 { return v.Int.Int64() })
}

// floatKey returns the same value for all floats that are equal in SQL, and different values for
// others.
func floatKey(x float64) uint64 {
	if x != x {
		return math.Float64bits(math.NaN())
	}
	return math.Float64bits(x + 0) // -0 + 0 is +0
}

// find sets bit i of out where a[i] is in the set.
func find[K comparable](s *valueSet[K], out []uint64, a []K) {
	for w := range out {
		var word uint64
		for j, x := range a[w*64 : min(w*64+64, len(a))] {
			hit := false
			if s.many != nil {
				_, hit = s.many[x]
			} else {
				for _, y := range s.list {
					hit = hit || x == y
				}
			}
			word |= b2u(hit) << (j & 63)
		}
		out[w] = word
	}
}

// in runs OpIn.
func (f *frame) in(s *instruction, v *vec) error {
	a := &f.vecs[s.Args[0]]
	v.valid = a.valid
	out := f.bitsOf(v)
	switch set := s.set.(type) {
	case *valueSet[string]:
		find(set, out, a.str[:f.n])
	case *valueSet[uint64]:
		keys := blockOf[uint64](f)
		if a.typ.Kind == gpu.Float32 {
			for i, x := range vals[float32](a, f.n) {
				keys[i] = floatKey(float64(x))
			}
		} else {
			for i, x := range vals[float64](a, f.n) {
				keys[i] = floatKey(x)
			}
		}
		find(set, out, keys)
	case *valueSet[gpu.Int128]:
		find(set, out, vals[gpu.Int128](a, f.n))
	case *valueSet[int64]:
		find(set, out, f.int64s(a))
	}
	return nil
}
