package gpu

import (
	"cmp"
	"slices"
	"sync"
)

// Reclaimer is a holder of a budget's memory that can release some of it: a cache, or state that
// can spill. Any goroutine may call its methods, but never two at a time. The budget's lock is not
// held. The methods must neither reserve from the budget nor wait for a goroutine that may do so.
// So a holder that is using its memory under a lock of its own must offer nothing
// (sync.Mutex.TryLock).
type Reclaimer interface {
	// Reclaimable returns the bytes that could be released now, and the cost of releasing and
	// restoring them, in seconds per GiB. Caches cost less than state that spills.
	Reclaimable() (bytes int64, cost float64)
	// Reclaim releases at least want bytes if it can, and returns the number of bytes. They are no
	// longer reserved when it returns.
	Reclaim(want int64) (given int64)
}

// registration is a reclaimer of a budget.
type registration struct {
	Reclaimer
	mu   sync.Mutex // held while the reclaimer is called
	gone bool
}

// Register registers a holder with the budget. Before the budget denies a reservation that does not
// fit, holders release the missing bytes, cheapest first. If all holders together cannot release
// enough, none releases anything. Reservations that do not fit are served in order of arrival.
// Later reservations wait for them, so that none starves.
//
// After unregister returns, the reclaimer is not called any more. The reclaimer must not call
// unregister.
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

// reclaim makes holders release memory until n bytes are free, and reports whether they are. The
// caller holds the lock, before and after.
func (b *Budget) reclaim(n int64) bool {
	if len(b.reclaimers) == 0 && len(b.waiting) == 0 || n > b.limit {
		return false
	}
	turn := make(chan struct{})
	b.waiting = append(b.waiting, turn)
	locked := true
	defer func() {
		if !locked { // a holder has panicked
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

// offer is the memory that a holder can release.
type offer struct {
	*registration
	bytes int64
	cost  float64
}

// offersOf returns the offers of holders, sorted by cost. It returns none if all offers together
// are less than missing.
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

// offer returns the holder's offer, which is empty after unregister.
func (r *registration) offer() offer {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := offer{registration: r}
	if !r.gone {
		o.bytes, o.cost = r.Reclaimable()
	}
	return o
}

// reclaim makes the holder release memory, unless it is unregistered.
func (r *registration) reclaim(want int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone {
		r.Reclaim(want)
	}
}
