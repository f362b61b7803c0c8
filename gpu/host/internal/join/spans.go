package join

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
)

// spans has the matches of probe rows with a sorted build side: the first match of each row, and
// the number of consecutive matches from it on. It is a lookup.
type spans struct{ first, count memory.Array[int32] }

func newSpans(l *gpu.Lease, rows int) (s spans, err error) {
	if s.first, err = memory.New[int32](l, rows); err == nil {
		s.count, err = memory.New[int32](l, rows)
	}
	return s, err
}

func (s *spans) pairs(out *pairs, lo, hi, limit int) (next int, err error) {
	for r := lo; r < hi; r++ {
		first, count := s.first.V[r], s.count.V[r]
		if err := out.room(int(count)); err != nil {
			return 0, err
		}
		for j := range count {
			out.add(int32(r), first+j)
		}
		if out.len() >= limit {
			return r + 1, nil
		}
	}
	return hi, nil
}

func (s *spans) matched(lo, hi int, bits []uint64) {
	for r, count := range s.count.V[lo:hi] {
		if count > 0 {
			bits[(lo+r)/64] |= 1 << ((lo + r) % 64)
		}
	}
}

func (s *spans) release() {
	s.first.Release()
	s.count.Release()
}
