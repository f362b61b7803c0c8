package gpu

import (
	"cmp"
	"slices"
	"sync"
)

// Reclaimer is a holder of memory of a budget that can give some of it back: a cache,
// or state that can spill. Its methods may be called from any goroutine, never two at
// a time, and without the budget's lock. They neither reserve from the budget nor wait
// for anybody who may be doing so: a holder at work on its memory, under a lock of its
// own, has nothing to give (sync.Mutex.TryLock).
type Reclaimer interface {
	// Reclaimable returns the bytes that could be given back now, and what that costs:
	// seconds a GiB to give it back and to have it again. Caches cost less than what
	// spills.
	Reclaimable() (bytes int64, cost float64)
	// Reclaim gives back at least want bytes if it can, and returns how many. They are
	// reserved no longer when it returns.
	Reclaim(want int64) (given int64)
}

// registration is a reclaimer of a budget.
type registration struct {
	Reclaimer
	mu   sync.Mutex // held while the reclaimer is asked
	gone bool
}

// Register makes a holder known to the budget. A reservation that does not fit has
// holders give back what is missing, those of the least cost first, before it is
// refused. Reservations that do not fit are served one after the other, in order of
// arrival, and those that come meanwhile wait behind them, so that none starves. Where
// all that can be given back is not enough, nothing is.
//
// The reclaimer is not asked any more once unregister returns, which is not called
// from it.
func (b *Budget) Register(r Reclaimer) (unregister func()) {
	x := &registration{Reclaimer: r}
	b.mu.Lock()
	b.reclaimers = append(b.reclaimers, x)
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		b.reclaimers = slices.DeleteFunc(b.reclaimers, func(o *registration) bool { return o == x })
		b.mu.Unlock()
		x.mu.Lock()
		x.gone = true
		x.mu.Unlock()
	}
}

// reclaim has holders give back memory until n bytes are left, and says whether they
// are. It is called with the lock held, and holds it when it returns.
func (b *Budget) reclaim(n int64) bool {
	if len(b.reclaimers) == 0 && len(b.waiting) == 0 || n > b.limit {
		return false
	}
	turn := make(chan struct{})
	b.waiting = append(b.waiting, turn)
	locked := true
	defer func() {
		if !locked { // a holder panicked
			b.mu.Lock()
			defer b.mu.Unlock()
		}
		b.waiting = b.waiting[1:]
		if len(b.waiting) > 0 {
			close(b.waiting[0])
		}
	}()
	unlocked := func(f func()) {
		locked = false
		b.mu.Unlock()
		f()
		b.mu.Lock()
		locked = true
	}
	if len(b.waiting) > 1 {
		unlocked(func() { <-turn })
	}
	if missing := n - b.left(); missing > 0 {
		holders := slices.Clone(b.reclaimers)
		var offers []offer
		unlocked(func() { offers = offersOf(holders, missing) })
		for _, o := range offers {
			if missing = n - b.left(); missing > 0 {
				unlocked(func() { o.reclaim(missing) })
			}
		}
	}
	return n <= b.left()
}

// offer is what a holder can give back.
type offer struct {
	*registration
	bytes int64
	cost  float64
}

// offersOf asks holders what they can give back, and sorts them by cost: none when all
// together have less than is missing.
func offersOf(holders []*registration, missing int64) (offers []offer) {
	total := int64(0)
	for _, h := range holders {
		if o := h.offer(); o.bytes > 0 {
			offers = append(offers, o)
			total += o.bytes
		}
	}
	if total < missing {
		return nil
	}
	slices.SortStableFunc(offers, func(x, y offer) int { return cmp.Compare(x.cost, y.cost) })
	return offers
}

// offer asks what the holder can give back, nothing when it is gone.
func (r *registration) offer() offer {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := offer{registration: r}
	if !r.gone {
		o.bytes, o.cost = r.Reclaimable()
	}
	return o
}

// reclaim has the holder give back memory unless it is gone.
func (r *registration) reclaim(want int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone {
		r.Reclaim(want)
	}
}
