// Package join finds the matching rows of two sides on CPU cores: by hash tables, by partitions, by
// sorted keys and by bounds.
package join

import (
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Matcher returns the pairs of probe rows [at, to), which it looks up in order: gpu.Matcher without a
// queue.
type Matcher struct {
	lookup lookup
	rows   int // of the probe side
	at, to int
	chains *chains // of sides in chains of buckets, otherwise nil
}

// lookup finds the matches of probe rows. It is safe for concurrent use.
type lookup interface {
	// pairs appends the pairs of probe rows [lo, hi), in the order of the rows, until there are at
	// least limit pairs. It stops between two rows, and returns the first row that it has not
	// looked up.
	pairs(out *pairs, lo, hi, limit int) (next int, err error)
	// matched sets the bits of those rows in [lo, hi) that have a match. lo is a multiple
	// of 64.
	matched(lo, hi int, bits []uint64)
	release()
}

// probeGrain is the number of rows of a task of a lookup.
const probeGrain = 1 << 13

// pairs is a list of matches in memory of a lease.
type pairs struct {
	lease        *gpu.Lease
	probe, build memory.Array[int32]
}

// room makes room for n more pairs.
func (p *pairs) room(n int) error {
	if err := p.probe.Reserve(p.lease, n); err != nil {
		return err
	}
	return p.build.Reserve(p.lease, n)
}

func (p *pairs) release() {
	p.probe.Release()
	p.build.Release()
}

func (p *pairs) len() int { return len(p.probe.V) }

// add appends a pair. There must be room for it.
func (p *pairs) add(probe, build int32) {
	p.probe.V, p.build.V = append(p.probe.V, probe), append(p.build.V, build)
}

// cut drops the pairs from the k-th on, but keeps all pairs of the row of pair k-1, or drops all of
// them if more than most pairs would be left. It returns the row after the remaining pairs.
func (p *pairs) cut(k, most int) (next int) {
	rows := p.probe.V
	last := rows[k-1]
	next = int(last) + 1
	for k < len(rows) && rows[k] == last {
		k++
	}
	if k > most {
		next = int(last)
		for k > 0 && rows[k-1] == last {
			k--
		}
	}
	p.probe.V, p.build.V = rows[:k], p.build.V[:k]
	return next
}

// columns concatenates lists of pairs into columns. The memory of a single list is reused without a
// copy.
func columns(l *gpu.Lease, lists []*pairs) (probe, build gpu.Column, err error) {
	if len(lists) == 1 {
		p := lists[0]
		probe = gpu.Column{Type: gpu.Of(gpu.Int32), Len: p.len(), Data: p.probe.Buf}
		build = gpu.Column{Type: gpu.Of(gpu.Int32), Len: p.len(), Data: p.build.Buf}
		*p = pairs{}
		return probe, build, nil
	}
	column := func(pick func(p *pairs) []int32) (gpu.Column, error) {
		total := 0
		for _, p := range lists {
			total += p.len()
		}
		buf, err := l.Alloc(int64(total) * 4)
		if err != nil {
			return gpu.Column{}, err
		}
		out := gpu.Values[int32](buf, total)
		for _, p := range lists {
			out = out[copy(out, pick(p)):]
		}
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: total, Data: buf}, nil
	}
	if probe, err = column(func(p *pairs) []int32 { return p.probe.V }); err != nil {
		return gpu.Column{}, gpu.Column{}, err
	}
	if build, err = column(func(p *pairs) []int32 { return p.build.V }); err != nil {
		probe.Release()
		return gpu.Column{}, gpu.Column{}, err
	}
	return probe, build, nil
}

// Next returns the next pairs, and whether there may be more (see gpu.Matcher). If memory is denied,
// the same call works once there is room.
func (m *Matcher) Next(cores parallel.Cores, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	probe, build, next, err := m.next(cores, l, max(1, min(limit, gpu.MaxRows)))
	if err != nil {
		return probe, build, false, err
	}
	m.at = next
	if m.chains != nil {
		toRows(m.chains.probe, probe)
		toRows(m.chains.build, build)
	}
	return probe, build, m.at < m.to, nil
}

// Position returns the first probe row that has not been looked up, for Rewind.
func (m *Matcher) Position() int { return m.at }

// Rewind continues at a position that Position returned.
func (m *Matcher) Rewind(at int) { m.at = at }

// next returns the next pairs and the row after them. A task does nothing if earlier tasks have
// already found enough pairs.
func (m *Matcher) next(cores parallel.Cores, l *gpu.Lease, limit int) (probe, build gpu.Column, next int, err error) {
	rest, grain := m.to-m.at, probeGrain
	if cores.Threads == 1 {
		grain = max(rest, 1)
	}
	type part struct {
		pairs
		next  int
		ended bool
	}
	found := make([]part, (rest+grain-1)/grain)
	defer func() {
		for i := range found {
			found[i].release()
		}
	}()
	var mu sync.Mutex
	ended, total := 0, 0 // tasks that have ended without a gap, and their pairs
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for ; ended < len(found) && found[ended].ended && total < limit; ended++ {
			total += found[ended].len()
		}
		return total >= limit
	}
	err = cores.For(rest, grain, func(lo, hi int) (err error) {
		if enough() {
			return nil
		}
		f := &found[lo/grain]
		f.lease = l
		f.next, err = m.lookup.pairs(&f.pairs, m.at+lo, m.at+hi, limit)
		mu.Lock()
		f.ended = true
		mu.Unlock()
		return err
	})
	if err != nil {
		return probe, build, 0, err
	}
	next = m.to
	n := 0
	var lists []*pairs
	for i := range found {
		f := &found[i]
		lists = append(lists, &f.pairs)
		if n+f.len() >= limit {
			if next = f.next; n+f.len() > limit {
				next = f.cut(limit-n, gpu.MaxRows-n)
			}
			break
		}
		n += f.len()
	}
	probe, build, err = columns(l, lists)
	return probe, build, next, err
}

// Matched returns the bitmap of the probe rows that have a match.
func (m *Matcher) Matched(cores parallel.Cores, l *gpu.Lease) (gpu.Column, error) {
	bits, err := memory.Zeros[uint64](l, (m.rows+63)/64)
	if err != nil {
		return gpu.Column{}, err
	}
	err = cores.For(m.rows, probeGrain, func(lo, hi int) error {
		m.lookup.matched(lo, hi, bits.V)
		return nil
	})
	if err != nil {
		bits.Release()
		return gpu.Column{}, err
	}
	out := gpu.Column{Type: gpu.Of(gpu.Bool), Len: m.rows, Data: bits.Buf}
	if m.chains == nil || len(m.chains.probe) == 0 {
		return out, nil
	}
	defer out.Release()
	return m.chains.matched(l, out)
}

// Release releases what the matcher has allocated.
func (m *Matcher) Release() {
	m.lookup.release()
	if m.chains != nil {
		gpu.ReleaseColumns(m.chains.keys)
	}
}
