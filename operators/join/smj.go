package join

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
)

// smj is the sort-merge join: both sides are sorted, the build side once, and a merge path finds
// the pairs (Rui & Tu, SSDBM 2017, §3.3.2). Probe rows are collected, since each match reads the
// keys of the whole build side.
//
// A direct key is sorted by its unsigned bits. SMJ-UR sorts it with the row ids, SMJ-TR with all
// columns (Wu et al., SIGMOD 2025, §3.1.1 and §4.1.3). Keys with nulls, and all other keys, are
// sorted by Queue.Sort, and columns are gathered in the sorted order. MPJ sorts all keys by MPS,
// the merge sort by merge path (Rui & Tu, §3.3.1): Experimental.MergeSort.
type smj struct {
	*Spec
	transform bool // TR
	radix     bool // by bits; otherwise by comparisons
}

// smjBuilt is a sorted build side.
type smjBuilt struct {
	smj
	rows   int // least
	sorted *sorted
	side   *gpu.Stride // the columns that pairs index
}

// sorted has the keys of a side in sorted order. It owns them.
type sorted struct {
	keys []gpu.Column
	ids  gpu.Column   // row ids; empty for TR
	cols []gpu.Column // by position in the side, for TR
}

func (s *sorted) all() []gpu.Column {
	return append(append([]gpu.Column{s.ids}, s.keys...), s.cols...)
}

func (s *sorted) release() { gpu.ReleaseColumns(s.all()) }

func (a smj) build(_ context.Context, t operators.Task, side *gpu.Stride) (built, error) {
	b := &smjBuilt{smj: a, rows: a.batch(t.Share(grant.JoinBatch), side.Rows)}
	var err error
	if b.sorted, err = a.sort(t, side.Cols, a.BuildKeys, a.kept()); err != nil {
		side.Release()
		return nil, err
	}
	a.drop(side)
	if a.transform {
		side.Release()
		side.Cols = b.sorted.cols
	}
	b.side = side
	return b, nil
}

// sort returns a sorted copy of a side.
func (a smj) sort(t operators.Task, cols []gpu.Column, keys, need []int) (*sorted, error) {
	by := operators.Pick(cols, keys)
	if a.direct() {
		by = []gpu.Column{unsigned(by[0])} // the same order on both sides, even if only one has nulls
	}
	if a.radix && a.direct() && by[0].Valid == nil {
		return a.sortBits(t, by[0], cols, need)
	}
	sort := t.Queue.Sort
	if !a.radix {
		x, err := gpu.ExperimentalOf(t.Queue)
		if err != nil {
			return nil, err
		}
		sort = x.MergeSort
	}
	ids, err := sort(t.Lease, sortKeys(by))
	if err != nil {
		return nil, err
	}
	out := &sorted{ids: ids}
	if out.keys, err = t.Queue.Gather(t.Lease, by, ids, false); err == nil && a.transform {
		out.cols, err = a.gather(t, cols, need, ids)
		out.ids.Release()
		out.ids = gpu.Column{}
	}
	if err != nil {
		out.release()
		return nil, err
	}
	return out, nil
}

// gather returns the needed columns, by position, in the order of ids.
func (a smj) gather(t operators.Task, cols []gpu.Column, need []int, ids gpu.Column) ([]gpu.Column, error) {
	moved, err := t.Queue.Gather(t.Lease, operators.Pick(cols, need), ids, false)
	if err != nil {
		return nil, err
	}
	return place(len(cols), need, moved), nil
}

// place returns n columns, with the moved columns at their positions. It takes them over. A
// position may occur twice.
func place(n int, at []int, moved []gpu.Column) []gpu.Column {
	out := make([]gpu.Column, n)
	for i, c := range moved {
		out[at[i]].Release()
		out[at[i]] = c
	}
	return out
}

// sortBits sorts a side by the bits of a key without nulls, in digits of 16 bits, least significant
// first. Columns of fixed width move with the key. If there are strings, the row ids move too, and
// strings are gathered at the end.
func (a smj) sortBits(t operators.Task, key gpu.Column, cols []gpu.Column, need []int) (*sorted, error) {
	move := []gpu.Column{key}
	var fixed, texts []int
	if a.transform {
		for _, c := range need {
			if cols[c].Type.IsVar() && cols[c].Dict == nil {
				texts = append(texts, c)
			} else {
				move, fixed = append(move, cols[c]), append(fixed, c)
			}
		}
	}
	rows := !a.transform || len(texts) > 0
	if rows {
		move = append(move, gpu.RowNumbers(key.Len))
	}
	owned := []gpu.Column(nil)
	for at := 0; at < 8*key.Type.Width(); at += 16 {
		moved, offsets, err := t.Queue.Partition(t.Lease, move, digits(move[0]), gpu.Digit{Shift: uint(at), Bits: 16})
		gpu.ReleaseColumns(owned)
		if err != nil {
			return nil, err
		}
		offsets.Release()
		move, owned = moved, moved
	}
	out := &sorted{keys: owned[:1:1]}
	owned = owned[1:]
	if rows {
		out.ids = owned[len(owned)-1]
		owned = owned[:len(owned)-1]
	}
	if !a.transform {
		return out, nil
	}
	if len(texts) > 0 {
		far, err := t.Queue.Gather(t.Lease, operators.Pick(cols, texts), out.ids, false)
		if err != nil {
			gpu.ReleaseColumns(owned)
			out.release()
			return nil, err
		}
		owned = append(owned, far...)
		out.ids.Release()
		out.ids = gpu.Column{}
	}
	out.cols = place(len(cols), append(fixed, texts...), owned)
	return out, nil
}

func sortKeys(cols []gpu.Column) []gpu.SortKey {
	keys := make([]gpu.SortKey, len(cols))
	for i, c := range cols {
		keys[i].Column = c
	}
	return keys
}

func (b *smjBuilt) columns() []gpu.Column { return b.side.Cols }
func (b *smjBuilt) least() int            { return b.rows }

func (b *smjBuilt) match(t operators.Task, probe *gpu.Stride) (matching, error) {
	x, err := gpu.ExperimentalOf(t.Queue)
	if err != nil {
		return matching{}, err
	}
	s, err := b.sort(t, probe.Cols, b.ProbeKeys, b.used())
	if err != nil {
		return matching{}, err
	}
	m, err := x.MatchSorted(t.Lease, sortKeys(b.sorted.keys), sortKeys(s.keys), b.NullSafe)
	if err != nil {
		s.release()
		return matching{}, err
	}
	owned := owner{m, s.all()}
	if b.transform {
		return matching{Matcher: owned, probe: s.cols}, nil
	}
	return matching{Matcher: &mapped{Matcher: owned, probe: s.ids, build: b.sorted.ids, rows: probe.Rows},
		probe: probe.Cols}, nil
}

func (b *smjBuilt) release() {
	b.sorted.release()
	if !b.transform {
		b.side.Release()
	}
}
