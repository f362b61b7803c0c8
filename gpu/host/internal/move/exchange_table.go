package move

import (
	"slices"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// entry is a tuple of a hash table, and the next one of its chain plus 1, or 0.
type entry struct {
	tuple[uint64]
	next uint32
	_    [12]byte
}

// tupleTable is a gpu.TupleTable.
type tupleTable struct {
	entries []entry
	heads   []uint32
	used    *uint64
	slot    func(key uint64) int
}

func tableOf(t gpu.TupleTable) tupleTable {
	return tupleTable{entries: gpu.Values[entry](t.Entries.Data, t.Entries.Len/2),
		heads: gpu.Values[uint32](t.Heads.Data, t.Heads.Len), used: &gpu.Values[uint64](t.Used.Data, 1)[0],
		slot: digitOf(t.Digit)}
}

// insert adds tuples.
func (t tupleTable) insert(rows []tuple[uint64]) {
	first := int(atomic.AddUint64(t.used, uint64(len(rows)))) - len(rows)
	for i, r := range rows[:max(0, min(len(rows), len(t.entries)-first))] {
		at := first + i
		t.entries[at] = entry{tuple: r, next: atomic.SwapUint32(&t.heads[t.slot(r.key)], uint32(at)+1)}
	}
}

// probe returns the pairs of tuples, and the sum of their values.
func (t tupleTable) probe(rows []tuple[uint64]) (pairs, sum uint64) {
	for _, r := range rows {
		for at := t.heads[t.slot(r.key)]; at > 0; {
			e := &t.entries[at-1]
			if e.key == r.key {
				pairs++
				sum += e.value + r.value
			}
			at = e.next
		}
	}
	return pairs, sum
}

// overTiles calls f with the tuples of runs, some thousand at a time.
func overTiles(cores parallel.Cores, runs []gpu.TupleRun, f func([]tuple[uint64])) error {
	var tiles [][]tuple[uint64]
	for _, r := range runs {
		for _, part := range filled(r) {
			tiles = slices.AppendSeq(tiles, slices.Chunk(part, sendTile))
		}
	}
	return cores.For(len(tiles), 1, func(i, _ int) error {
		f(tiles[i])
		return nil
	})
}

// InsertTuples adds the tuples of runs to a table.
func InsertTuples(cores parallel.Cores, t gpu.TupleTable, runs []gpu.TupleRun) error {
	return overTiles(cores, runs, tableOf(t).insert)
}

// ProbeTuples joins the tuples of runs with a table.
func ProbeTuples(cores parallel.Cores, t gpu.TupleTable, runs []gpu.TupleRun, result gpu.Column) error {
	table, to := tableOf(t), gpu.Values[uint64](result.Data, 2)
	return overTiles(cores, runs, func(rows []tuple[uint64]) {
		pairs, sum := table.probe(rows)
		atomic.AddUint64(&to[0], pairs)
		atomic.AddUint64(&to[1], sum)
	})
}

// markPiece is the tuples of a mark, and marked the bit that says that there is one.
const (
	markPiece = 4096
	marked    = 1 << 63
)

// pieceOf returns the tuples of a piece.
func pieceOf(parts [2][]tuple[uint64], piece int) (out [2][]tuple[uint64]) {
	from, to := piece*markPiece, (piece+1)*markPiece
	for i, p := range parts {
		out[i] = p[min(max(from, 0), len(p)):min(max(to, 0), len(p))]
		from, to = from-len(p), to-len(p)
	}
	return out
}

// checksum is the complement of a sum, so that memory of zeros has none.
func checksum(parts [2][]tuple[uint64]) (sum uint64) {
	for _, p := range parts {
		for _, t := range p {
			sum += t.key + t.value
		}
	}
	return ^sum
}

// MarkTuples writes the marks of regions: the checksums before the words that say that they are there.
func MarkTuples(cores parallel.Cores, regions, marks []gpu.TupleRun) error {
	return cores.For(len(regions), 1, func(r, _ int) error {
		parts, to := filled(regions[r]), tuplesIn(marks[r])
		for i := range to {
			atomic.StoreUint64(&to[i].key, checksum(pieceOf(parts, i)))
			atomic.StoreUint64(&to[i].value, marked|uint64(len(parts[1]))<<32|uint64(len(parts[0])))
		}
		return nil
	})
}

// ActiveJoin joins tuples that arrive.
type ActiveJoin struct {
	table tupleTable
	sides [2]gpu.ActiveSide
	done  [2][]bool // pieces, by side
	state gpu.ActiveState
}

// NewActiveJoin returns a join of the regions of two sides.
func NewActiveJoin(t gpu.TupleTable, build, probe gpu.ActiveSide) *ActiveJoin {
	j := &ActiveJoin{table: tableOf(t), sides: [2]gpu.ActiveSide{build, probe}}
	for i, s := range j.sides {
		for _, m := range s.Marks {
			j.done[i] = append(j.done[i], make([]bool, m.Rows)...)
		}
		j.state.All += len(j.done[i])
	}
	return j
}

// Poll takes the pieces that have arrived: those of the build side, and once it has all of them, those of the probe
// side.
func (j *ActiveJoin) Poll(cores parallel.Cores) (gpu.ActiveState, error) {
	for i := range j.sides {
		if i > 0 && slices.Contains(j.done[0], false) {
			break
		}
		if err := j.poll(cores, i); err != nil {
			return j.state, err
		}
	}
	return j.state, nil
}

func (j *ActiveJoin) poll(cores parallel.Cores, side int) error {
	var done, pairs, sum, mismatches atomic.Uint64
	s, pieces := j.sides[side], len(j.done[side])/max(len(j.sides[side].Marks), 1)
	err := cores.For(len(j.done[side]), 1, func(n, _ int) error {
		if j.done[side][n] {
			return nil
		}
		mark := &tuplesIn(s.Marks[n/pieces])[n%pieces]
		rows := atomic.LoadUint64(&mark.value)
		if rows == 0 {
			return nil
		}
		part := pieceOf(around(tuplesIn(s.Regions[n/pieces]), int(uint32(rows)), int(rows<<1>>33)), n%pieces)
		if checksum(part) != atomic.LoadUint64(&mark.key) {
			mismatches.Add(1)
			return nil
		}
		for _, rows := range part {
			if side == 0 {
				j.table.insert(rows)
				continue
			}
			n, v := j.table.probe(rows)
			pairs.Add(n)
			sum.Add(v)
		}
		j.done[side][n] = true
		done.Add(1)
		return nil
	})
	j.state.Done += int(done.Load())
	j.state.Mismatches += int(mismatches.Load())
	j.state.Pairs += pairs.Load()
	j.state.Sum += sum.Load()
	return err
}
