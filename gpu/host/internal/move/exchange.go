package move

import (
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

// sendTile is the rows that a core partitions at a time.
const sendTile = 1 << 14

// SendTuples writes tuples into the regions of their digits.
func SendTuples(cores parallel.Cores, l *gpu.Lease, sources []gpu.TupleSource, by gpu.TupleRoute,
	regions []gpu.TupleRun) (gpu.Column, error) {
	counts, err := memory.New[uint32](l, gpu.SendCounts(len(regions)))
	if err != nil {
		return gpu.Column{}, err
	}
	hot := newHeavy(by.Heavy)
	d, digit, ways := by.Digit, digitOf(by.Digit), len(regions)/len(sources)
	if by.Splitters.Len > 0 {
		splitters := gpu.Values[uint64](by.Splitters.Data, by.Splitters.Len)
		digit = func(key uint64) int {
			return sort.Search(len(splitters), func(i int) bool { return splitters[i] > key })
		}
	}
	next := make([]atomic.Uint32, len(counts.V))
	for s, source := range sources {
		keys := gpu.Values[uint64](source.Key.Data, source.Key.Len)
		values := gpu.Values[uint64](source.Value.Data, source.Value.Len)
		regions, next, lost := regions[s*ways:(s+1)*ways], next[2*s*ways:], &next[len(next)-1]
		err = cores.For(len(keys), sendTile, func(lo, hi int) error {
			at, way := make([]uint32, ways), make([]int, sendTile)
			own := hot.tile()
			defer own.add(hot)
			for ; lo < hi; lo += sendTile {
				part := keys[lo:min(lo+sendTile, hi)]
				clear(at)
				for i, k := range part {
					if way[i] = -1; own.take(hot, k, values[lo+i]) {
						continue
					}
					way[i] = digit(k) * ways >> d.Bits
					at[way[i]]++
				}
				for w, n := range at {
					at[w] = next[2*w].Add(n) - n
					if limit := uint32(regions[w].Rows - gpu.SendTail); at[w]+n > limit {
						lost.Add(at[w] + n - max(at[w], limit))
					}
				}
				for i, w := range way[:len(part)] {
					if w < 0 {
						continue
					}
					if r := regions[w]; int(at[w]) < r.Rows-gpu.SendTail {
						tuplesIn(r)[at[w]] = tuple[uint64]{part[i], values[lo+i]}
					}
					at[w]++
				}
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

// PartitionRuns partitions each run of tuples by a digit, one run on one core.
func PartitionRuns(cores parallel.Cores, l *gpu.Lease, to gpu.Column, runs []gpu.TupleRun,
	d gpu.Digit) (out gpu.PartitionedRuns, err error) {
	ways, digit := 1<<d.Bits, digitOf(d)
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
			for _, t := range part {
				n[digit(t.key)]++
			}
		}
		next, row := make([]uint32, ways), uint32(at[r])
		for p := range ways {
			first[p], next[p] = row, row
			row += (n[p] + gpu.TupleLine - 1) / gpu.TupleLine * gpu.TupleLine
		}
		for _, part := range in {
			for _, t := range part {
				p := digit(t.key)
				rows[next[p]] = t
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

// eachRun calls f with the tuples of a partition, run by run.
func eachRun(side []gpu.PartitionedRuns, perBin, partition int, f func([]tuple[uint64])) {
	for _, p := range side {
		n := p.Runs << p.Bits
		starts, counts := gpu.Values[uint32](p.Starts.Data, n), gpu.Values[uint32](p.Counts.Data, n)
		bin, digit := partition>>p.Bits, partition&(1<<p.Bits-1)
		for r := bin * perBin; r < (bin+1)*perBin; r++ {
			i := r<<p.Bits | digit
			f(tuplesIn(gpu.TupleRun{Tuples: p.Tuples, Start: int(starts[i]), Rows: int(counts[i])}))
		}
	}
}

// matchTable is a chained hash table of the build tuples of a partition.
type matchTable struct {
	rows []tuple[uint64]
	head []int32 // by slot: the last row, plus 1
	next []int32 // by row: the previous row of its slot, plus 1
}

// CountMatches joins the partitions of two sides, one partition on one core.
func CountMatches(cores parallel.Cores, build, probe []gpu.PartitionedRuns, perBin int,
	d gpu.Digit, out []gpu.Column) (pairs, sum uint64, err error) {
	var allPairs, total, written atomic.Uint64
	var to [3][]uint64
	for i, c := range out {
		to[i] = gpu.Values[uint64](c.Data, c.Len)
	}
	tables := make([]matchTable, cores.Threads)
	partitions := build[0].Runs / perBin << d.Bits
	err = cores.ForWorkers(partitions, 1, func(worker, partition, _ int) error {
		t := &tables[worker]
		t.rows = t.rows[:0]
		eachRun(build, perBin, partition, func(rows []tuple[uint64]) { t.rows = append(t.rows, rows...) })
		bits := min(d.Shift, 12)
		slot := digitOf(gpu.Digit{Shift: d.Shift - bits, Bits: bits, Factor: d.Factor})
		t.head = slices.Grow(t.head[:0], 1<<bits)[:1<<bits]
		t.next = slices.Grow(t.next[:0], len(t.rows))[:len(t.rows)]
		clear(t.head)
		for i, row := range t.rows {
			s := slot(row.key)
			t.next[i], t.head[s] = t.head[s], int32(i+1)
		}
		var n, values uint64
		eachRun(probe, perBin, partition, func(rows []tuple[uint64]) {
			for _, row := range rows {
				for i := t.head[slot(row.key)]; i > 0; i = t.next[i-1] {
					b := t.rows[i-1]
					if b.key != row.key {
						continue
					}
					n++
					values += b.value + row.value
					if len(out) == 0 {
						continue
					}
					if at := written.Add(1) - 1; at < uint64(len(to[0])) {
						to[0][at], to[1][at], to[2][at] = b.key, b.value, row.value
					}
				}
			}
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
	err := cores.For(parts[0].Runs/perBin<<parts[0].Bits, 1, func(partition, _ int) error {
		groups := map[uint64]heavySum{}
		eachRun(parts, perBin, partition, func(rows []tuple[uint64]) {
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
