package gpu_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// holder is a holder of memory that it can release.
type holder struct {
	lease *gpu.Lease
	cost  float64
	mu    sync.Mutex
	held  int64
	asked []int64 // arguments of Reclaim
	wait  chan struct{}
}

func (h *holder) Reclaimable() (int64, float64) {
	if !h.mu.TryLock() {
		return 0, h.cost
	}
	defer h.mu.Unlock()
	return h.held, h.cost
}

func (h *holder) Reclaim(want int64) int64 {
	if !h.mu.TryLock() {
		return 0
	}
	defer h.mu.Unlock()
	if h.wait != nil {
		<-h.wait
	}
	h.asked = append(h.asked, want)
	given := min(want, h.held)
	h.held -= given
	h.lease.Unreserve(given)
	return given
}

func newHolder(t *testing.T, b *gpu.Budget, name string, held int64, cost float64) *holder {
	t.Helper()
	h := &holder{lease: b.Lease(name), cost: cost, held: held}
	require.NoError(t, h.lease.Reserve(held))
	return h
}

func TestHoldersGiveBackWhatIsMissingTheCheapestFirst(t *testing.T) {
	b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
	spills, cache := newHolder(t, b, "sort", 400, 2), newHolder(t, b, "cache", 300, 0.1)
	unregister := b.Register(spills)
	defer b.Register(cache)()
	l := b.Lease("scan")
	require.NoError(t, l.Reserve(300))
	require.Empty(t, cache.asked, "it fitted")
	require.NoError(t, l.Reserve(200))
	require.Equal(t, []int64{200}, cache.asked)
	require.Empty(t, spills.asked)
	require.NoError(t, l.Reserve(150))
	require.Equal(t, []int64{200, 150}, cache.asked)
	require.Equal(t, []int64{50}, spills.asked, "the rest of it")
	require.ErrorIs(t, l.Reserve(351), gpu.ErrBudget)
	require.Equal(t, []int64{50}, spills.asked, "all that there is would not be enough")
	unregister()
	require.ErrorIs(t, l.Reserve(100), gpu.ErrBudget)
	require.Equal(t, []int64{50}, spills.asked)
	require.Equal(t, int64(350), spills.held)
}

func TestReservationsAreServedInOrderOfArrival(t *testing.T) {
	b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
	h := newHolder(t, b, "holder", 800, 1)
	h.wait = make(chan struct{})
	defer b.Register(h)()
	release := sync.OnceFunc(func() { close(h.wait) })
	defer release()
	l, small := b.Lease("large"), b.Lease("small")
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	reserve := func(l *gpu.Lease, n int64) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := l.Reserve(n)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, fmt.Sprint(l.Name(), " ", err == nil))
		}()
		time.Sleep(20 * time.Millisecond)
	}
	reserve(l, 900)
	reserve(small, 100) // it fits the free memory, and would starve the large one
	mu.Lock()
	require.Empty(t, order)
	mu.Unlock()
	require.ErrorIs(t, b.CacheLease("cache").Reserve(1), gpu.ErrBudget, "caches do not come before those who wait")
	release()
	wg.Wait()
	require.ElementsMatch(t, []string{"large true", "small true"}, order)
	require.Equal(t, []int64{700, 100}, h.asked)
}

func TestAHolderThatPanicsLeavesTheBudgetUsable(t *testing.T) {
	b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
	l := b.Lease("holder")
	require.NoError(t, l.Reserve(1000))
	unregister := b.Register(panicking{})
	require.Panics(t, func() { _ = l.Reserve(1) })
	unregister()
	require.ErrorIs(t, l.Reserve(1), gpu.ErrBudget)
	l.Unreserve(1)
	require.NoError(t, l.Reserve(1))
}

type panicking struct{}

func (panicking) Reclaimable() (int64, float64) { return 1000, 0 }
func (panicking) Reclaim(int64) int64           { panic("a defect") }

func TestRandomHoldersNeitherDeadlockNorExceedTheBudget(t *testing.T) {
	const limit, workers, rounds = 1000, 8, 2000
	b := gpu.NewBudget("host", gpu.HostMemory, limit, &heap{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	done := make(chan struct{})
	var wg sync.WaitGroup
	served := make([]int, workers)
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			h := &holder{lease: b.Lease(fmt.Sprint("holder ", w)), cost: rnd.Float64()}
			unregister := b.Register(h)
			for round := range rounds {
				h.mu.Lock() // held while it reserves, like the lock of an operator at work
				n := rnd.Int64N(limit / 4)
				if w == 0 {
					n = limit * 3 / 4 // one large reservation among many small ones
				}
				switch err := h.lease.Reserve(n); {
				case err == nil:
					h.held += n
					served[w]++
				case round%2 == 0:
					h.lease.Unreserve(h.held)
					h.held = 0
				}
				if now, _ := b.Used(); now < 0 || now > limit {
					t.Errorf("%d bytes of %d are reserved", now, limit)
				}
				h.mu.Unlock()
				if round%64 == 63 { // unregister and register again
					unregister()
					unregister = b.Register(h)
				}
			}
			unregister()
			h.lease.Unreserve(h.held)
			if err := h.lease.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("reservations wait for each other")
	}
	for w, n := range served {
		require.Positive(t, n, "holder %d", w)
	}
	now, peak := b.Used()
	require.Zero(t, now)
	require.LessOrEqual(t, peak, int64(limit))
	require.Empty(t, b.Leaks())
}

func TestARefusalNamesWhoseStateFillsTheBudget(t *testing.T) {
	b := gpu.NewBudget("host", gpu.HostMemory, 1000<<10, &heap{})
	one, two, scan := b.Lease("join orders"), b.Lease("join orders"), b.Lease("scan lineitem")
	cache := b.CacheLease("free blocks")
	two.Advise("a smaller build side helps")
	require.NoError(t, one.Reserve(300<<10))
	require.NoError(t, two.Reserve(350<<10))
	require.NoError(t, scan.Reserve(320<<10))
	require.NoError(t, cache.Reserve(5<<10))
	require.EqualError(t, scan.Reserve(100<<10),
		"join orders: holds 650 KiB of the budget of 1000 KiB of host memory, so that scan lineitem, "+
			"which needs 100 KiB more, finds only 25 KiB left; raise it with HostMemory (a smaller "+
			"build side helps)")
	require.EqualError(t, one.Reserve(100<<10),
		"join orders: needs 100 KiB more of host memory, but only 25 KiB of the budget of 1000 KiB is left; "+
			"raise it with HostMemory (a smaller build side helps)")
	require.EqualError(t, scan.Reserve(400<<10),
		"scan lineitem: needs 400 KiB more of host memory, but only 25 KiB of the budget of 1000 KiB is left; "+
			"raise it with HostMemory", "it would hold the most")
	require.Len(t, b.Leaks(), 3, "what is cached is no leak")
	used, _ := b.Used()
	require.Equal(t, int64(970<<10), used)
}
