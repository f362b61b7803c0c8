package tasks

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSharesHaveAllItemsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		weights := make([]int64, r.IntN(40))
		total, most := int64(0), int64(0)
		for i := range weights {
			weights[i] = r.Int64N(1 + r.Int64N(100))
			total, most = total+weights[i], max(most, weights[i])
		}
		n := 1 + r.IntN(12)
		bounds := Consecutive(weights, n)
		require.Len(t, bounds, n+1)
		require.True(t, slices.IsSorted(bounds))
		require.Zero(t, bounds[0])
		require.Equal(t, len(weights), bounds[n])
		for i := range n {
			sum := int64(0)
			for _, w := range weights[bounds[i]:bounds[i+1]] {
				sum += w
			}
			require.LessOrEqual(t, sum, total/int64(n)+most+1)
		}
		var items []int
		for _, share := range Packed(weights, n) {
			require.NotEmpty(t, share)
			sum := int64(0)
			for _, i := range share {
				sum += weights[i]
			}
			require.LessOrEqual(t, sum, total/int64(n)+most)
			items = append(items, share...)
		}
		slices.Sort(items)
		for i, w := range weights {
			_, ok := slices.BinarySearch(items, i)
			require.Equal(t, w > 0, ok)
		}
		require.Equal(t, items, slices.Compact(slices.Clone(items)))
		parts, last := make([]float64, len(weights)), Split{}
		for _, share := range Shared(weights, n) {
			for _, s := range share {
				require.GreaterOrEqual(t, s.Item*1000+s.Share, last.Item*1000+last.Share, "in order")
				parts[s.Item] += 1 / float64(s.Of)
				last = s
			}
		}
		for _, p := range parts {
			require.InDelta(t, 1, p, 1e-9)
		}
	}
}

func TestATaskThatIsLostTooOftenEndsTheSchedule(t *testing.T) {
	lost := errors.New("lost")
	for failures := range 4 {
		for _, again := range []bool{true, false} {
			s := Schedule{Failures: failures, Fragments: []Fragment{{Begin: func() ([]int64, error) {
				return []int64{1}, nil
			}, End: func() error { return nil }}}}
			attempts := 0
			for !s.Done() {
				a, ok, _ := s.Next(0)
				require.True(t, ok)
				attempts++
				s.Lost(a, again, lost)
			}
			want := failures + 1
			if !again {
				want = 1
			}
			require.Equal(t, want, attempts)
			require.Equal(t, lost, s.Err())
		}
	}
}

func TestAnErrorOfABarrierEndsTheSchedule(t *testing.T) {
	wrong := errors.New("wrong")
	none := func() ([]int64, error) { return nil, nil }
	for _, f := range []Fragment{{Begin: func() ([]int64, error) { return nil, wrong }},
		{Begin: none, End: func() error { return wrong }}} {
		s := Schedule{Fragments: []Fragment{{Begin: none, End: func() error { return nil }}, f}}
		s.Fragments[1].Inputs = []int{0}
		_, ok, _ := s.Next(0)
		require.False(t, ok)
		require.True(t, s.Done())
		require.Equal(t, wrong, s.Err())
	}
}
