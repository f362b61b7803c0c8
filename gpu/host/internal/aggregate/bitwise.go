package aggregate

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// bitwise is bit_and, bit_or or bit_xor of integers, as words. Bits of a word above the width of
// the type are unspecified.
type bitwise struct {
	kind gpu.AggregateKind
	low  memory.Vector[uint64]
	high memory.Vector[uint64] // the upper halves of values of 16 bytes
}

// neutral is the neutral element of the operation.
func (s *bitwise) neutral() uint64 {
	if s.kind == gpu.BitAnd {
		return ^uint64(0)
	}
	return 0
}

func (s *bitwise) update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	halves := []*memory.Vector[uint64]{&s.low}
	if c.Type.Wide {
		halves = append(halves, &s.high)
	}
	for _, h := range halves {
		if err := h.Grow(l, groups, s.neutral()); err != nil {
			return err
		}
	}
	for i, h := range halves {
		if err := s.fold(cores, ids, h.V, c, i == 1); err != nil {
			return err
		}
	}
	return nil
}

// fold folds one half of the values into words.
func (s *bitwise) fold(cores parallel.Cores, ids []int32, words []uint64, c gpu.Column, upper bool) error {
	return fold(cores, ids, words, s.neutral(), func(st []uint64, lo, hi int) {
		eachHalf(c, lo, hi, upper, s.neutral(), func(at int, words []uint64) {
			rows := ids[at:][:len(words)]
			switch s.kind {
			case gpu.BitAnd:
				for i, w := range words {
					st[rows[i]] &= w
				}
			case gpu.BitOr:
				for i, w := range words {
					st[rows[i]] |= w
				}
			default:
				for i, w := range words {
					st[rows[i]] ^= w
				}
			}
		})
	}, func(dst *uint64, src uint64) {
		switch s.kind {
		case gpu.BitAnd:
			*dst &= src
		case gpu.BitOr:
			*dst |= src
		default:
			*dst ^= src
		}
	})
}

func (s *bitwise) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	if err := allocValues(l, out); err != nil {
		return err
	}
	for i, v := range s.low.V[from:to] {
		if out.Type.Wide {
			gpu.Values[gpu.Int128](out.Data, out.Len)[i] = gpu.Int128{Lo: v, Hi: int64(s.high.V[from+i])}
		} else {
			word.Store(*out, i, v)
		}
	}
	return nil
}

func (s *bitwise) release() {
	s.low.Release()
	s.high.Release()
}
