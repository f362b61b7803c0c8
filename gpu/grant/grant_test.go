package grant_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/grant"
)

// TestWhatIsGrantedIsThere adds up what may be in use at a time: no more than the budget in a frugal run, whose end
// gstream check promises, and in an ordinary one no more than the table says.
func TestWhatIsGrantedIsThere(t *testing.T) {
	ordinary, frugal := 0.0, 0.0
	for _, p := range grant.Phases() {
		sum := p.Sum()
		t.Logf("%s, %s, frugal %v: %.3f", p.Memory, p.Name, p.Frugal, sum)
		switch {
		case p.Frugal:
			frugal = max(frugal, sum)
		case p.Memory == grant.OfGPUHost:
			// Pages that are decoded have what rows leave free that wait there.
			require.InDelta(t, 1, sum+grant.Headroom.Part(1), 1e-9, p.Name)
		default:
			ordinary = max(ordinary, sum)
		}
	}
	require.InDelta(t, grant.MostOrdinary, ordinary, 1e-9)
	require.InDelta(t, grant.MostFrugal, frugal, 1e-9)
}

// inOthers are shares that work and are in no phase by themselves.
var inOthers = []string{
	grant.FrugalResident.Name,  // a part of FrugalPipeline
	grant.GPUShortStride.Name,  // instead of GPUStride, where budgets are small
	grant.PagesStride.Name,     // instead of GPUStride, where budgets are large
	grant.SlowPagesStride.Name, // the same
	grant.GroupSlots.Name,      // slots, of tables
	grant.TritonStrides.Name,   // of strides, which move when others need their memory
	grant.KeyFilter.Name,       // a number of bytes
	grant.OperatorWork.Name,    // the same
	grant.LinkTest.Name,        // when all work is done
	grant.SelectIDs.Name,       // of what is free
	grant.PoolAhead.Name,       // for whoever comes first
	grant.PinnedAhead.Name,     // the same
}

// TestEveryShareIsCountedOnce finds each share that takes memory for work in a phase, and none that takes no memory.
func TestEveryShareIsCountedOnce(t *testing.T) {
	counted, seen := map[string]bool{}, map[string]bool{}
	for _, p := range grant.Phases() {
		for _, s := range p.Shares {
			counted[s.Name] = true
		}
	}
	require.Greater(t, len(grant.Table()), 40)
	for _, s := range grant.Table() {
		require.False(t, seen[s.Name], "%s twice", s.Name)
		seen[s.Name] = true
		takes := s.Use == grant.Works || s.Use == grant.Yields
		if !slices.Contains(inOthers, s.Name) {
			require.Equal(t, takes, counted[s.Name], s.Name)
		}
		require.NotEmpty(t, s.Per, s.Name)
		require.True(t, s.Num > 0 && s.Num < s.Den || s.Num == 0 && s.Most > 0, s.Name)
	}
}

func TestAShareIsDividedAmongThoseThatHaveIt(t *testing.T) {
	quarter := grant.Share{Num: 1, Den: 4, Most: 1000}
	for _, c := range []struct {
		share  grant.Share
		budget int64
		among  int
		want   int64
	}{
		{quarter, 400, 1, 100}, {quarter, 400, 0, 100}, {quarter, 400, 3, 33}, {quarter, 40000, 1, 1000},
		{quarter, 40000, 20, 500}, {quarter, 0, 1, 0}, {quarter, math.MaxInt64, 1, 1000},
		{grant.Share{Most: 7}, 3, 2, 7},
		{grant.Share{Num: 6, Den: 10}, 1000, 4, 150}, {grant.Share{Num: 3, Den: 4}, math.MaxInt64, 1, 3 << 61},
		{grant.Share{Num: 1, Den: 12}, 35, 1, 2},
	} {
		require.Equal(t, c.want, c.share.Among(c.budget, c.among), "%+v", c)
	}
	require.Equal(t, 150.0, grant.Share{Num: 6, Den: 10}.Part(250))
	require.Equal(t, 0.0, grant.Share{Most: 7}.Part(250))
}
