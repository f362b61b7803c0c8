package move

import (
	"slices"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// tuplesIn returns the tuples of a run.
func tuplesIn(r gpu.TupleRun) []tuple[uint64] {
	return gpu.Values[tuple[uint64]](r.Tuples.Data, r.Start+r.Rows)[r.Start:]
}

// digitOf returns a function that takes a digit of a key.
func digitOf(d gpu.Digit) func(key uint64) int {
	factor, mask := max(d.Factor, 1), uint64(1)<<d.Bits-1
	return func(key uint64) int { return int(key * factor >> d.Shift & mask) }
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
		in := tuplesIn(runs[r])
		for _, t := range in {
			n[digit(t.key)]++
		}
		next, row := make([]uint32, ways), uint32(at[r])
		for p := range ways {
			first[p], next[p] = row, row
			row += (n[p] + gpu.TupleLine - 1) / gpu.TupleLine * gpu.TupleLine
		}
		for _, t := range in {
			p := digit(t.key)
			rows[next[p]] = t
			next[p]++
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
	d gpu.Digit) (pairs, sum uint64, err error) {
	var allPairs, total atomic.Uint64
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
					if b := t.rows[i-1]; b.key == row.key {
						n++
						values += b.value + row.value
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

// SumTuples adds up the keys and values of runs, and counts tuples with another digit than that of their run.
func SumTuples(cores parallel.Cores, runs []gpu.TupleRun, digits []int, d gpu.Digit) (keys, values, wrong uint64,
	err error) {
	var allKeys, allValues, allWrong atomic.Uint64
	digit := digitOf(d)
	err = cores.For(len(runs), 1, func(r, _ int) error {
		var k, v, w uint64
		for _, t := range tuplesIn(runs[r]) {
			k, v = k+t.key, v+t.value
			if digit(t.key) != digits[r] {
				w++
			}
		}
		allKeys.Add(k)
		allValues.Add(v)
		allWrong.Add(w)
		return nil
	})
	return allKeys.Load(), allValues.Load(), allWrong.Load(), err
}
