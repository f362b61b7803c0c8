package join

import (
	"context"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Range is the condition that a key of the build side is between bounds of the probe side. A null
// key or bound matches nothing.
type Range struct {
	Build        int // column of the build side: the key
	Lower, Upper int // columns of the probe side with the type of the key; -1 for none
	// LowerStrict and UpperStrict say that a key that equals the bound does not match.
	LowerStrict, UpperStrict bool
}

func (s *Spec) validateRange() error {
	r := s.Range
	if len(s.ProbeKeys)+len(s.BuildKeys)+len(s.NullSafe) > 0 || s.Algorithm != "" {
		return fmt.Errorf("a join by a range has neither equal keys nor the choice of an algorithm")
	}
	if r.Lower < 0 && r.Upper < 0 {
		return fmt.Errorf("a join by a range without bounds")
	}
	key := s.Build.Fields[r.Build]
	for _, c := range []int{r.Lower, r.Upper} {
		if c >= 0 && s.Probe.Fields[c].Type != key.Type {
			return fmt.Errorf("join key %q is %v, but its bound %q is %v", key.Name, key.Type, s.Probe.Fields[c].Name,
				s.Probe.Fields[c].Type)
		}
	}
	return nil
}

// byRange joins by a range. The build side is sorted by its key, so the matches of a probe row are
// consecutive, and two binary searches find them. Only pairs in the range are compared.
type byRange struct{ *Spec }

func (a byRange) build(_ context.Context, t operators.Task, side *gpu.Stride) (built, error) {
	defer side.Release()
	cols, err := a.sortSide(t, side, []int{a.Range.Build})
	return &sortedSide{a.Spec, cols}, err
}

// sortSide returns the columns of a build side by which it sorts, and those that are kept, in sorted order. It releases
// each unsorted column once its sorted copy exists.
func (s *Spec) sortSide(t operators.Task, side *gpu.Stride, by []int) ([]gpu.Column, error) {
	order, err := t.Queue.Sort(t.Lease, sortKeys(operators.Pick(side.Cols, by)))
	if err != nil {
		return nil, err
	}
	defer order.Release()
	cols := make([]gpu.Column, len(side.Cols))
	for i, c := range side.Cols {
		if slices.Contains(by, i) || s.keeps(i) {
			sorted, err := t.Queue.Gather(t.Lease, []gpu.Column{c}, order, false)
			if err != nil {
				gpu.ReleaseColumns(cols)
				return nil, err
			}
			cols[i] = sorted[0]
		}
		c.Release()
		side.Cols[i] = gpu.Column{}
	}
	return cols, nil
}

// sortedSide is the columns of a build side in the order of its key.
type sortedSide struct {
	*Spec
	cols []gpu.Column
}

func (b *sortedSide) columns() []gpu.Column { return b.cols }
func (b *sortedSide) least() int            { return 0 }

func (b *sortedSide) match(t operators.Task, probe *gpu.Stride) (matching, error) {
	bound := func(column int, strict bool) *gpu.Bound {
		if column < 0 {
			return nil
		}
		return &gpu.Bound{Column: probe.Cols[column], Strict: strict}
	}
	m, err := t.Queue.MatchRange(t.Lease, b.cols[b.Range.Build], bound(b.Range.Lower, b.Range.LowerStrict),
		bound(b.Range.Upper, b.Range.UpperStrict))
	return matching{m, probe.Cols, true}, err
}

func (b *sortedSide) release() {
	gpu.ReleaseColumns(b.cols)
	b.cols = nil
}
