package move

import (
	"math"
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

// wordsIn returns the words of 8 bytes of a run's tuples of any width.
func wordsIn(r gpu.TupleRun) []uint64 {
	n := r.Bytes() / 8
	return gpu.Values[uint64](r.Tuples.Data, (r.Start+r.Rows)*n)[r.Start*n:]
}

// filled returns the tuples of a run, before and after the hole. SendTuples of a CPU makes no holes, but that of a GPU.
func filled(r gpu.TupleRun) [2][]tuple[uint64] {
	front, back := ends(r)
	return around(tuplesIn(r), front, back)
}

// ends returns the number of tuples before the hole of a run, and of those after it.
func ends(r gpu.TupleRun) (front, back int) {
	if r.Counts.Len == 0 {
		return r.Rows, 0
	}
	counts := gpu.Values[uint32](r.Counts.Data, r.Counts.Len)[2*r.Region:]
	return int(min(counts[0], uint32(r.Rows-gpu.SendTail))), int(counts[1])
}

// around returns the first items of a region and the last ones.
func around[T any](t []T, front, back int) [2][]T { return [2][]T{t[:front], t[len(t)-back:]} }

// pairOf returns the key of a tuple, and the sum of its values.
func pairOf(words []uint64) tuple[uint64] {
	if len(words) == 1 {
		return tuple[uint64]{words[0] & math.MaxUint32, words[0] >> 32}
	}
	out := tuple[uint64]{key: words[0]}
	for _, v := range words[1:] {
		out.value += v
	}
	return out
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
	// Those of tuples that have not 16 bytes: keys and sums of values by row, and words in order of the ways.
	keys, sums [sendTile]uint64
	words      []uint64
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
		next, lost := next[2*s*ways:], &next[len(next)-1]
		to, send := regions[s*ways:(s+1)*ways], (*sender).send
		if source.Width() != 16 {
			send = (*sender).sendWords
		}
		err = cores.ForWorkers(source.Key.Len, sendTile, func(worker, lo, hi int) error {
			if senders[worker] == nil {
				senders[worker] = &sender{}
			}
			for ; lo < hi; lo += sendTile {
				send(senders[worker], source, lo, min(lo+sendTile, hi), by, hot, to, next, lost)
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

// send writes a tile of tuples of 16 bytes: it puts the tuples of a way together, and then copies each way as a whole.
func (s *sender) send(source gpu.TupleSource, lo, hi int, by gpu.TupleRoute, hot *heavy, to []gpu.TupleRun,
	next []atomic.Uint32, lost *atomic.Uint32) {
	keys := gpu.Values[uint64](source.Key.Data, hi)[lo:]
	values := gpu.Values[uint64](source.Value.Data, hi)[lo:]
	first := s.route(keys, values, by, len(to), hot)
	at, way := first, s.way[:len(keys)]
	for i, k := range keys {
		w := way[i]
		s.tile[at[w]%sendTile] = tuple[uint64]{k, values[i]}
		at[w]++
	}
	for w, r := range to {
		if place, n := s.place(w, r, next, lost); n > 0 {
			copy(tuplesIn(r)[place:], s.tile[first[w]:first[w]+n])
		}
	}
}

// sendWords is send for tuples of other widths.
func (s *sender) sendWords(source gpu.TupleSource, lo, hi int, by gpu.TupleRoute, hot *heavy, to []gpu.TupleRun,
	next []atomic.Uint32, lost *atomic.Uint32) {
	n, rows := source.Width()/8, hi-lo
	s.words = slices.Grow(s.words[:0], n*sendTile)[:n*sendTile]
	keys, sums, words := s.keys[:rows], s.sums[:rows], s.words
	var columns [][]uint64
	if n == 1 {
		narrow, values := gpu.Values[uint32](source.Key.Data, hi)[lo:], gpu.Values[uint32](source.Value.Data, hi)[lo:]
		for i := range keys {
			keys[i], sums[i] = uint64(narrow[i]), uint64(values[i])
		}
	} else {
		copy(keys, gpu.Values[uint64](source.Key.Data, hi)[lo:])
		clear(sums)
		for _, c := range append([]gpu.Column{source.Value}, source.More...) {
			columns = append(columns, gpu.Values[uint64](c.Data, hi)[lo:])
			for i, v := range columns[len(columns)-1] {
				sums[i] += v
			}
		}
	}
	first := s.route(keys, sums, by, len(to), hot)
	at := first
	for i, k := range keys {
		w := s.way[i]
		one := words[int(at[w])*n:]
		at[w]++
		if n == 1 {
			one[0] = k | sums[i]<<32
			continue
		}
		one[0] = k
		for c, values := range columns {
			one[1+c] = values[i]
		}
	}
	for w, r := range to {
		if place, rows := s.place(w, r, next, lost); rows > 0 {
			copy(wordsIn(r)[place*n:], words[int(first[w])*n:int(first[w]+rows)*n])
		}
	}
}

// place reserves room for the tuples of a way in its region. It returns the first place, and the tuples that have room.
func (s *sender) place(way int, r gpu.TupleRun, next []atomic.Uint32, lost *atomic.Uint32) (place int, n uint32) {
	if n = s.count[way]; n == 0 {
		return 0, 0
	}
	at, limit := next[2*way].Add(n)-n, uint32(r.Rows-gpu.SendTail)
	if room := limit - min(at, limit); n > room {
		lost.Add(n - room)
		n = room
	}
	return int(at), n
}

// route finds the ways of a tile's tuples, and where those of each way begin in the tile. Tuples of heavy keys are
// last.
func (s *sender) route(keys, values []uint64, by gpu.TupleRoute, ways int, hot *heavy) (first [noWay + 1]uint32) {
	s.digits(keys, by, ways)
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
	for w := range noWay {
		first[w+1] = first[w] + s.count[w]
	}
	return first
}

// digits finds the ways of keys, and counts them.
func (s *sender) digits(keys []uint64, by gpu.TupleRoute, ways int) {
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
		to := wordsIn(gpu.TupleRun{Tuples: c.To, Start: c.At, Rows: c.Rows, Width: c.Width})
		from := wordsIn(c.TupleRun)
		err := cores.For(len(from), parallel.Grain, func(lo, hi int) error {
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
		if runs[r].Bytes() != 16 {
			partitionWords(to, runs[r], d, at[r], first, n)
			return nil
		}
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
	out = gpu.PartitionedRuns{Tuples: to, Starts: column(starts.Buf), Counts: column(counts.Buf), Runs: len(runs),
		Bits: d.Bits}
	if len(runs) > 0 {
		out.Width = runs[0].Width
	}
	return out, nil
}

// partitionWords partitions a run of tuples that have not 16 bytes. at is the first tuple of its room.
func partitionWords(to gpu.Column, r gpu.TupleRun, d gpu.Digit, at int, first, count []uint32) {
	n, digit := r.Bytes()/8, digitOf(d)
	front, back := ends(r)
	in, rows := around(wordsIn(r), front*n, back*n), gpu.Values[uint64](to.Data, to.Len*2)
	for _, part := range in {
		for i := 0; i < len(part); i += n {
			count[digit(pairOf(part[i:i+n]).key)]++
		}
	}
	next, row := make([]int, len(first)), at
	for p := range first {
		first[p], next[p] = uint32(row), row
		row += (int(count[p]) + gpu.TupleLine - 1) / gpu.TupleLine * gpu.TupleLine
	}
	for _, part := range in {
		for i := 0; i < len(part); i += n {
			p := digit(pairOf(part[i : i+n]).key)
			copy(rows[next[p]*n:(next[p]+1)*n], part[i:i+n])
			next[p]++
		}
	}
}

// matchPart is a part of a side.
type matchPart struct {
	rows           []tuple[uint64]
	words          []uint64 // of tuples that have not 16 bytes, which have perTuple words
	perTuple       int
	starts, counts []uint32
	bits           uint
}

func matchParts(side []gpu.PartitionedRuns) (out []matchPart) {
	for _, p := range side {
		n := p.Runs << p.Bits
		one := matchPart{starts: gpu.Values[uint32](p.Starts.Data, n), counts: gpu.Values[uint32](p.Counts.Data, n),
			bits: p.Bits, perTuple: gpu.TupleRun{Width: p.Width}.Bytes() / 8}
		if one.perTuple == 2 {
			one.rows = gpu.Values[tuple[uint64]](p.Tuples.Data, p.Tuples.Len)
		} else {
			one.words = gpu.Values[uint64](p.Tuples.Data, 2*p.Tuples.Len)
		}
		out = append(out, one)
	}
	return out
}

// run returns the tuples of a run, in place or in the memory of other ones.
func (p *matchPart) run(i int, other []tuple[uint64]) []tuple[uint64] {
	from, to := int(p.starts[i]), int(p.starts[i]+p.counts[i])
	if p.words == nil {
		return p.rows[from:to]
	}
	other = other[:0]
	for ; from < to; from++ {
		other = append(other, pairOf(p.words[from*p.perTuple:(from+1)*p.perTuple]))
	}
	return other
}

// eachRun calls f with the tuples of a partition, run by run.
func eachRun(side []matchPart, perBin, partition int, f func([]tuple[uint64])) {
	var rows []tuple[uint64]
	for at := range side {
		p := &side[at]
		bin, digit := partition>>p.bits, partition&(1<<p.bits-1)
		for r := bin * perBin; r < (bin+1)*perBin; r++ {
			rows = p.run(r<<p.bits|digit, rows)
			f(rows)
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
