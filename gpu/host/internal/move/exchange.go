package move

import (
	"math/bits"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// tuplesIn returns the tuples of a run that has no hole.
func tuplesIn(r gpu.TupleRun) []tuple[uint64] {
	return gpu.Values[tuple[uint64]](r.Tuples.Data, r.Start+r.Rows)[r.Start:]
}

// filled returns the tuples of a run, before and after the hole. SendTuples of a CPU makes no holes, but that of a GPU.
func filled(r gpu.TupleRun) [2][]tuple[uint64] {
	t := tuplesIn(r)
	if r.Counts.Len == 0 {
		return [2][]tuple[uint64]{t}
	}
	counts := gpu.Values[uint32](r.Counts.Data, r.Counts.Len)[2*r.Region:]
	return around(t, int(min(counts[0], uint32(r.Rows-gpu.SendTail))), int(counts[1]))
}

// around returns the first tuples of a region and the last ones.
func around(t []tuple[uint64], front, back int) [2][]tuple[uint64] {
	return [2][]tuple[uint64]{t[:front], t[len(t)-back:]}
}

// digitOf returns a function that takes a digit of a key.
func digitOf(d gpu.Digit) func(key uint64) int {
	factor, mask := max(d.Factor, 1), uint64(1)<<d.Bits-1
	return func(key uint64) int { return int(key * factor >> d.Shift & mask) }
}

// sendTile is the rows that a core partitions at a time: their tuples stay in its cache until they are written, region
// by region.
const sendTile = 1 << 14

// noWay is the way of a tuple that is not sent.
const noWay = gpu.SendRegions

// sender is what a core has for a tile.
type sender struct {
	way   [sendTile]uint8         // by row
	tile  [sendTile]tuple[uint64] // in order of their ways
	count [noWay + 1]uint32       // by way
}

// SendTuples writes tuples into the regions of their digits.
func SendTuples(cores parallel.Cores, l *gpu.Lease, sources []gpu.TupleSource, by gpu.TupleRoute,
	regions []gpu.TupleRun) (gpu.Column, error) {
	counts, err := memory.New[uint32](l, gpu.SendCounts(len(regions)))
	if err != nil {
		return gpu.Column{}, err
	}
	hot, ways := newHeavy(by.Heavy), len(regions)/len(sources)
	senders := make([]*sender, cores.Threads)
	next := make([]atomic.Uint32, len(counts.V))
	for s, source := range sources {
		keys := gpu.Values[uint64](source.Key.Data, source.Key.Len)
		values := gpu.Values[uint64](source.Value.Data, source.Value.Len)
		next, lost := next[2*s*ways:], &next[len(next)-1]
		to := make([][]tuple[uint64], ways)
		for w, r := range regions[s*ways : (s+1)*ways] {
			to[w] = tuplesIn(r)[:r.Rows-gpu.SendTail]
		}
		err = cores.ForWorkers(len(keys), sendTile, func(worker, lo, hi int) error {
			if senders[worker] == nil {
				senders[worker] = &sender{}
			}
			for ; lo < hi; lo += sendTile {
				end := min(lo+sendTile, hi)
				senders[worker].send(keys[lo:end], values[lo:end], by, ways, hot, to, next, lost)
			}
			return nil
		})
		if err != nil {
			counts.Release()
			return gpu.Column{}, err
		}
	}
	for i := range next {
		counts.V[i] = next[i].Load()
	}
	return gpu.Column{Type: gpu.Of(gpu.Uint32), Len: len(counts.V), Data: counts.Buf}, nil
}

// send writes a tile: it puts the tuples of a way together, and then copies each way as a whole.
func (s *sender) send(keys, values []uint64, by gpu.TupleRoute, ways int, hot *heavy, to [][]tuple[uint64],
	next []atomic.Uint32, lost *atomic.Uint32) {
	s.route(keys, by, ways)
	if hot != nil {
		own := hot.tile()
		for i, k := range keys {
			if own.take(hot, k, values[i]) {
				s.count[s.way[i]]--
				s.way[i] = noWay
				s.count[noWay]++
			}
		}
		own.add(hot)
	}
	var at [noWay + 1]uint32 // in the tile
	for w := range noWay {
		at[w+1] = at[w] + s.count[w]
	}
	first, way := at, s.way[:len(keys)]
	for i, k := range keys {
		w := way[i]
		s.tile[at[w]%sendTile] = tuple[uint64]{k, values[i]}
		at[w]++
	}
	for w, region := range to {
		n := s.count[w]
		if n == 0 {
			continue
		}
		place := next[2*w].Add(n) - n
		room := uint32(len(region)) - min(place, uint32(len(region)))
		if n > room {
			lost.Add(n - room)
			n = room
		}
		copy(region[min(int(place), len(region)):], s.tile[first[w]:first[w]+n])
	}
}

// route finds the ways of a tile's tuples, and counts them.
func (s *sender) route(keys []uint64, by gpu.TupleRoute, ways int) {
	clear(s.count[:])
	way := s.way[:len(keys)]
	if by.Splitters.Len > 0 {
		splitters := gpu.Values[uint64](by.Splitters.Data, by.Splitters.Len)
		for i, k := range keys {
			d := sort.Search(len(splitters), func(i int) bool { return splitters[i] > k })
			way[i] = uint8(d * ways >> by.Bits)
			s.count[way[i]]++
		}
		return
	}
	factor, shift, mask, bits := max(by.Factor, 1), by.Shift&63, uint64(1)<<by.Bits-1, by.Bits&63
	for i, k := range keys {
		w := uint8((k * factor >> shift & mask) * uint64(ways) >> bits)
		way[i] = w
		s.count[w]++
	}
}

// heavy finds keys whose tuples are not sent.
type heavy struct {
	at   map[uint64]int
	sums []heavySum // of all devices, by key; nil for the build side
	mu   sync.Mutex
	out  []uint64 // Own of the build side, Result of the probe side
}

// heavySum is a number of tuples or pairs, and a sum of values.
type heavySum struct{ n, sum uint64 }

// newHeavy returns nil if there are no heavy keys.
func newHeavy(k gpu.HeavyKeys) *heavy {
	if k.Keys.Len == 0 {
		return nil
	}
	h := &heavy{at: map[uint64]int{}}
	for i, key := range gpu.Values[uint64](k.Keys.Data, k.Keys.Len) {
		h.at[key] = i
	}
	if len(k.All) == 0 {
		h.out = gpu.Values[uint64](k.Own.Data, k.Own.Len)
		return h
	}
	h.sums, h.out = make([]heavySum, k.Keys.Len), gpu.Values[uint64](k.Result.Data, 2)
	for _, c := range k.All {
		for i, v := range gpu.Values[heavySum](c.Data, k.Keys.Len) {
			h.sums[i] = heavySum{h.sums[i].n + v.n, h.sums[i].sum + v.sum}
		}
	}
	return h
}

// heavyTile is what a core has added up: by key for the build side, in all for the probe side.
type heavyTile []heavySum

func (h *heavy) tile() heavyTile {
	switch {
	case h == nil:
		return nil
	case h.sums == nil:
		return make(heavyTile, len(h.at))
	}
	return make(heavyTile, 1)
}

// take adds up a tuple if its key is heavy.
func (t heavyTile) take(h *heavy, key, value uint64) bool {
	if h == nil {
		return false
	}
	i, ok := h.at[key]
	if ok && h.sums == nil {
		t[i] = heavySum{t[i].n + 1, t[i].sum + value}
	} else if ok {
		t[0] = heavySum{t[0].n + h.sums[i].n, t[0].sum + h.sums[i].sum + h.sums[i].n*value}
	}
	return ok
}

// add adds the sums to those of the device.
func (t heavyTile) add(h *heavy) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, v := range t {
		h.out[2*i] += v.n
		h.out[2*i+1] += v.sum
	}
}

// CopyTuples copies runs of tuples.
func CopyTuples(cores parallel.Cores, copies []gpu.TupleCopy) error {
	for _, c := range copies {
		to, from := tuplesIn(gpu.TupleRun{Tuples: c.To, Start: c.At, Rows: c.Rows}), tuplesIn(c.TupleRun)
		err := cores.For(c.Rows, parallel.Grain, func(lo, hi int) error {
			copy(to[lo:hi], from[lo:hi])
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// PartitionRuns partitions each run of tuples by a digit, one run on one core. It is fast if a run fits the cache.
func PartitionRuns(cores parallel.Cores, l *gpu.Lease, to gpu.Column, runs []gpu.TupleRun,
	d gpu.Digit) (out gpu.PartitionedRuns, err error) {
	ways, factor, shift, mask := 1<<d.Bits, max(d.Factor, 1), d.Shift&63, uint64(1)<<d.Bits-1
	starts, err := memory.New[uint32](l, len(runs)*ways)
	if err != nil {
		return out, err
	}
	counts, err := memory.New[uint32](l, len(runs)*ways)
	if err != nil {
		starts.Release()
		return out, err
	}
	at := make([]int, len(runs)) // of the room of each run
	for i := range runs[:max(len(runs)-1, 0)] {
		at[i+1] = at[i] + gpu.RunRoom(runs[i].Rows, d.Bits)
	}
	rows := gpu.Values[tuple[uint64]](to.Data, to.Len)
	err = cores.For(len(runs), 1, func(r, _ int) error {
		first, n := starts.V[r*ways:(r+1)*ways], counts.V[r*ways:(r+1)*ways]
		clear(n)
		in := filled(runs[r])
		for _, part := range in {
			for i := range part {
				n[part[i].key*factor>>shift&mask]++
			}
		}
		var next [1 << gpu.MaxRunBits]uint32
		row := uint32(at[r])
		for p := range ways {
			first[p], next[p] = row, row
			row += (n[p] + gpu.TupleLine - 1) / gpu.TupleLine * gpu.TupleLine
		}
		for _, part := range in {
			for i := range part {
				p := part[i].key * factor >> shift & mask
				rows[next[p]] = part[i]
				next[p]++
			}
		}
		return nil
	})
	if err != nil {
		starts.Release()
		counts.Release()
		return out, err
	}
	column := func(b *gpu.Buffer) gpu.Column {
		return gpu.Column{Type: gpu.Of(gpu.Uint32), Len: len(runs) * ways, Data: b}
	}
	return gpu.PartitionedRuns{Tuples: to, Starts: column(starts.Buf), Counts: column(counts.Buf), Runs: len(runs),
		Bits: d.Bits}, nil
}

// matchPart is a part of a side.
type matchPart struct {
	rows           []tuple[uint64]
	starts, counts []uint32
	bits           uint
}

func matchParts(side []gpu.PartitionedRuns) (out []matchPart) {
	for _, p := range side {
		n := p.Runs << p.Bits
		out = append(out, matchPart{gpu.Values[tuple[uint64]](p.Tuples.Data, p.Tuples.Len),
			gpu.Values[uint32](p.Starts.Data, n), gpu.Values[uint32](p.Counts.Data, n), p.Bits})
	}
	return out
}

// eachRun calls f with the tuples of a partition, run by run.
func eachRun(side []matchPart, perBin, partition int, f func([]tuple[uint64])) {
	for _, p := range side {
		bin, digit := partition>>p.bits, partition&(1<<p.bits-1)
		for r := bin * perBin; r < (bin+1)*perBin; r++ {
			i := r<<p.bits | digit
			f(p.rows[p.starts[i] : p.starts[i]+p.counts[i]])
		}
	}
}

// matchTable is the build tuples of a partition in order of their slots.
type matchTable struct {
	rows   []tuple[uint64]
	start  []uint32 // by slot: its first row; then their number
	factor uint64
	shift  uint
	mask   uint64
}

// build makes the table. The slots are about as many as the rows.
func (t *matchTable) build(side []matchPart, perBin, partition int, d gpu.Digit) {
	n := 0
	eachRun(side, perBin, partition, func(rows []tuple[uint64]) { n += len(rows) })
	slots := min(d.Shift, uint(bits.Len(uint(n))))
	t.factor, t.shift, t.mask = max(d.Factor, 1), (d.Shift-slots)&63, uint64(1)<<slots-1
	t.rows = slices.Grow(t.rows[:0], n)[:n]
	// A slot is counted two places further on, so that start[s+1] is where the next row of slot s goes meanwhile.
	t.start = slices.Grow(t.start[:0], 1<<slots+2)[:1<<slots+2]
	clear(t.start)
	eachRun(side, perBin, partition, func(rows []tuple[uint64]) {
		for i := range rows {
			t.start[t.slot(rows[i].key)+2]++
		}
	})
	for s := 2; s < len(t.start); s++ {
		t.start[s] += t.start[s-1]
	}
	eachRun(side, perBin, partition, func(rows []tuple[uint64]) {
		for _, row := range rows {
			at := &t.start[t.slot(row.key)+1]
			t.rows[*at] = row
			*at++
		}
	})
}

func (t *matchTable) slot(key uint64) uint64 { return key * t.factor >> t.shift & t.mask }

// probe returns the number of pairs of a run with the table, and the sum of the values of both sides.
func (t *matchTable) probe(rows []tuple[uint64]) (pairs, sum uint64) {
	table, factor, shift, mask := t.rows, t.factor, t.shift&63, t.mask
	start := t.start[:mask+2]
	for i := range rows {
		key, value := rows[i].key, rows[i].value
		s := key * factor >> shift & mask
		for at, end := start[s], start[s+1]; at < end; at++ {
			if b := &table[at]; b.key == key {
				pairs++
				sum += b.value + value
			}
		}
	}
	return pairs, sum
}

// pairs calls f for all pairs of a run with the table.
func (t *matchTable) pairs(rows []tuple[uint64], f func(build, probe tuple[uint64])) {
	for _, row := range rows {
		s := t.slot(row.key)
		for _, b := range t.rows[t.start[s]:t.start[s+1]] {
			if b.key == row.key {
				f(b, row)
			}
		}
	}
}

// CountMatches joins the partitions of two sides, one partition on one core. It is fast if the build tuples of a
// partition fit the cache.
func CountMatches(cores parallel.Cores, build, probe []gpu.PartitionedRuns, perBin int,
	d gpu.Digit, out []gpu.Column) (pairs, sum uint64, err error) {
	var allPairs, total, written atomic.Uint64
	var to [3][]uint64
	for i, c := range out {
		to[i] = gpu.Values[uint64](c.Data, c.Len)
	}
	tables, left, right := make([]matchTable, cores.Threads), matchParts(build), matchParts(probe)
	partitions := build[0].Runs / perBin << d.Bits
	err = cores.ForWorkers(partitions, 1, func(worker, partition, _ int) error {
		t := &tables[worker]
		t.build(left, perBin, partition, d)
		var n, values uint64
		eachRun(right, perBin, partition, func(rows []tuple[uint64]) {
			found, sum := t.probe(rows)
			n, values = n+found, values+sum
			if len(out) == 0 || found == 0 {
				return
			}
			at := written.Add(found) - found
			t.pairs(rows, func(b, p tuple[uint64]) {
				if at < uint64(len(to[0])) {
					to[0][at], to[1][at], to[2][at] = b.key, b.value, p.value
				}
				at++
			})
		})
		allPairs.Add(n)
		total.Add(values)
		return nil
	})
	return allPairs.Load(), total.Load(), err
}

// GroupTuples groups the partitions of parts, one partition on one core.
func GroupTuples(cores parallel.Cores, parts []gpu.PartitionedRuns, perBin int, out []gpu.Column) (int, error) {
	var next atomic.Int64
	var to [3][]uint64
	for i, c := range out {
		to[i] = gpu.Values[uint64](c.Data, c.Len)
	}
	side := matchParts(parts)
	err := cores.For(parts[0].Runs/perBin<<parts[0].Bits, 1, func(partition, _ int) error {
		groups := map[uint64]heavySum{}
		eachRun(side, perBin, partition, func(rows []tuple[uint64]) {
			for _, t := range rows {
				g := groups[t.key]
				groups[t.key] = heavySum{g.n + 1, g.sum + t.value}
			}
		})
		at := int(next.Add(int64(len(groups)))) - len(groups)
		for key, g := range groups {
			if at < len(to[0]) {
				to[0][at], to[1][at], to[2][at] = key, g.sum, g.n
			}
			at++
		}
		return nil
	})
	return int(next.Load()), err
}

// CollectTuples copies the tuples of runs to columns.
func CollectTuples(cores parallel.Cores, l *gpu.Lease, runs []gpu.TupleRun) (keys, values gpu.Column, err error) {
	places := make([]int, len(runs)+1)
	for i, r := range runs {
		in := filled(r)
		places[i+1] = places[i] + len(in[0]) + len(in[1])
	}
	n := places[len(runs)]
	k, err := memory.New[uint64](l, n)
	if err != nil {
		return keys, values, err
	}
	v, err := memory.New[uint64](l, n)
	if err != nil {
		k.Release()
		return keys, values, err
	}
	err = cores.For(len(runs), 1, func(r, _ int) error {
		at := places[r]
		for _, part := range filled(runs[r]) {
			for _, t := range part {
				k.V[at], v.V[at] = t.key, t.value
				at++
			}
		}
		return nil
	})
	if err != nil {
		k.Release()
		v.Release()
		return keys, values, err
	}
	column := func(b *gpu.Buffer) gpu.Column { return gpu.Column{Type: gpu.Of(gpu.Uint64), Len: n, Data: b} }
	return column(k.Buf), column(v.Buf), nil
}

// SumTuples adds up the keys and values of runs, and counts tuples of another region than that of their run.
func SumTuples(cores parallel.Cores, runs []gpu.TupleRun, regions []int, ways int, d gpu.Digit) (keys, values,
	wrong uint64, err error) {
	var allKeys, allValues, allWrong atomic.Uint64
	digit := digitOf(d)
	err = cores.For(len(runs), 1, func(r, _ int) error {
		var k, v, w uint64
		for _, part := range filled(runs[r]) {
			for _, t := range part {
				k, v = k+t.key, v+t.value
				if digit(t.key)*ways>>d.Bits != regions[r] {
					w++
				}
			}
		}
		allKeys.Add(k)
		allValues.Add(v)
		allWrong.Add(w)
		return nil
	})
	return allKeys.Load(), allValues.Load(), allWrong.Load(), err
}
