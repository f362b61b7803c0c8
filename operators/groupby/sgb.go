package groupby

import (
	"math/bits"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// sgb is the sort-based group-by (Wu et al., SIGMOD 2025, §3.2.2 and §4.1.3): the rows of a stride
// are sorted by their keys, and runs of equal keys are aggregated.
//
// SGB-UR sorts row ids, and gathers the values in their order. SGB-TR moves the values with an
// integer key in the passes of a radix sort; it sorts other keys as SGB-UR does. SGB-DE-TR first
// encodes the keys by a dictionary, so that any key is a number of few bits.
type sgb struct {
	*hashGroupBy
	transform, encode bool
}

func (a sgb) aggregate(t operators.Task, s *gpu.Stride, _ key) (*gpu.Stride, error) {
	switch key := s.Cols[a.Keys[0]]; {
	case a.encode:
		return a.encoded(t, s)
	case a.transform && len(a.Keys) == 1 && isBits(key):
		by := key
		by.Type = unsigned(key.Type)
		sorted, err := a.sortBits(t, s, by, 8*key.Type.Width(), a.columns(s, true))
		if err != nil {
			return nil, err
		}
		defer sorted.Release()
		return a.runs(t, sorted)
	}
	keys := make([]gpu.SortKey, len(a.Keys))
	for i, k := range a.Keys {
		keys[i].Column = s.Cols[k]
	}
	ids, err := t.Queue.Sort(t.Lease, keys)
	if err != nil {
		return nil, err
	}
	defer ids.Release()
	at := a.columns(s, true)
	moved, err := t.Queue.Gather(t.Lease, operators.Pick(s.Cols, at), ids, false)
	if err != nil {
		return nil, err
	}
	sorted := placed(s, at, moved)
	defer sorted.Release()
	return a.runs(t, sorted)
}

// columns returns the positions of the columns that are aggregated, and of the keys.
func (a sgb) columns(s *gpu.Stride, keys bool) (at []int) {
	if keys {
		for _, k := range a.Keys {
			if !slices.Contains(at, k) {
				at = append(at, k)
			}
		}
	}
	for _, m := range a.accumulated {
		if m.input >= 0 && !slices.Contains(at, m.input) {
			at = append(at, m.input)
		}
	}
	return at
}

// placed returns a stride like s that has only the moved columns, at their positions.
func placed(s *gpu.Stride, at []int, moved []gpu.Column) *gpu.Stride {
	out := &gpu.Stride{Schema: s.Schema, Rows: s.Rows, Cols: make([]gpu.Column, len(s.Cols))}
	for i, c := range at {
		out.Cols[c] = moved[i]
	}
	return out
}

// sortBits sorts columns of a stride by the lowest bits of a key, which it moves, too, unless it is
// one of them.
func (a sgb) sortBits(t operators.Task, s *gpu.Stride, key gpu.Column, width int, at []int) (*gpu.Stride, error) {
	move := append([]gpu.Column{key}, operators.Pick(s.Cols, at)...)
	var owned []gpu.Column
	for from := 0; from < width; from += 16 {
		moved, offsets, err := t.Queue.Partition(t.Lease, move, move[0],
			gpu.Digit{Shift: uint(from), Bits: uint(min(16, width-from))})
		gpu.ReleaseColumns(owned)
		if err != nil {
			return nil, err
		}
		offsets.Release()
		move, owned = moved, moved
	}
	if owned == nil { // one group
		for i := range move {
			move[i] = move[i].Retain()
		}
	}
	move[0].Release()
	return placed(s, at, move[1:]), nil
}

// runs aggregates the runs of equal keys of sorted rows.
func (a sgb) runs(t operators.Task, sorted *gpu.Stride) (*gpu.Stride, error) {
	to, firsts, err := t.Queue.Runs(t.Lease, operators.Pick(sorted.Cols, a.Keys))
	if err != nil {
		return nil, err
	}
	defer to.Release()
	defer firsts.Release()
	return a.ofRuns(t, sorted, to, firsts)
}

// encoded encodes the keys by a dictionary, and sorts the rows by the codes.
func (a sgb) encoded(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
	var types []gpu.Type
	for _, k := range a.Keys {
		types = append(types, a.In.Fields[k].Type)
	}
	dictionary, err := t.Queue.NewGroups(t.Lease, types, gpu.GroupHint{Groups: a.expected()})
	if err != nil {
		return nil, err
	}
	defer dictionary.Release()
	codes, err := dictionary.Assign(t.Queue, t.Lease, operators.Pick(s.Cols, a.Keys), s.Rows)
	if err != nil {
		return nil, err
	}
	defer codes.Release()
	n := dictionary.Len()
	at := a.columns(s, false)
	move := &gpu.Stride{Schema: s.Schema, Rows: s.Rows, Cols: append(slices.Clone(s.Cols), codes.IDs())}
	code := codes.IDs()
	code.Type = gpu.Of(gpu.Uint32)
	sorted, err := a.sortBits(t, move, code, bits.Len(uint(max(n-1, 0))), append(at, len(s.Cols)))
	if err != nil {
		return nil, err
	}
	defer sorted.Release()
	to, firsts, err := t.Queue.Runs(t.Lease, sorted.Cols[len(s.Cols):])
	if err != nil {
		return nil, err
	}
	defer to.Release()
	defer firsts.Release()
	x, err := a.accumulate(t, sorted, to, n)
	if err != nil {
		return nil, err
	}
	defer x.release()
	out := &gpu.Stride{Schema: a.partials, Rows: n}
	if out.Cols, err = dictionary.Keys(t.Queue, t.Lease, 0, n); err != nil { // in the order of the runs
		return nil, err
	}
	if err := a.addPartialAggregates(t, out, x); err != nil {
		return nil, err
	}
	return out, nil
}

// ofRuns returns a row of partial aggregates for each run of rows of a stride with equal keys.
func (o *hashGroupBy) ofRuns(t operators.Task, s *gpu.Stride, runs gpu.Assignment,
	firsts gpu.Column) (*gpu.Stride, error) {
	x, err := o.accumulate(t, s, runs, firsts.Len)
	if err != nil {
		return nil, err
	}
	defer x.release()
	out := &gpu.Stride{Schema: o.partials, Rows: firsts.Len}
	if out.Cols, err = t.Queue.Gather(t.Lease, operators.Pick(s.Cols, o.Keys), firsts, false); err != nil {
		return nil, err
	}
	if err := o.addPartialAggregates(t, out, x); err != nil {
		return nil, err
	}
	return out, nil
}

// accumulate aggregates the rows of a stride that are assigned to groups.
func (o *hashGroupBy) accumulate(t operators.Task, s *gpu.Stride, to gpu.Assignment, groups int) (*table, error) {
	list, inputs := o.aggregates()
	x := &table{inputs: inputs}
	if err := o.accumulators(t, x, list); err != nil {
		x.release()
		return nil, err
	}
	if failed, err := x.update(t, s, to, groups); err != nil {
		x.release()
		return nil, o.naming(failed, err)
	}
	return x, nil
}

// isBits reports whether rows may be partitioned by the bits of a key.
func isBits(c gpu.Column) bool {
	w := c.Type.Width()
	return c.Dict == nil && c.Valid == nil && !c.Type.IsFloat() && !c.Type.IsVar() && (w == 4 || w == 8)
}

// unsigned returns the type of the bits of a key of 4 or 8 bytes.
func unsigned(t gpu.Type) gpu.Type {
	if t.Width() == 4 {
		return gpu.Of(gpu.Uint32)
	}
	return gpu.Of(gpu.Uint64)
}
