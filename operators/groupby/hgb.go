package groupby

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// hgb is the hash group-by in tables of blocks (HGB of Wu et al., SIGMOD 2025, §4.2; Karnagel et
// al., ADMS 2015, §5.1): each block of a GPU aggregates its rows in shared memory, and the tables
// are merged in the end.
type hgb struct{ *hashGroupBy }

func (a hgb) aggregate(t operators.Task, s *gpu.Stride, by key) (*gpu.Stride, error) {
	return a.inTables(t, by, gpu.Partitioned{Key: by.Column}, s.Cols, a.hint(by))
}

// hint returns the hint for tables of all rows.
func (o *hashGroupBy) hint(by key) gpu.GroupHint {
	return gpu.GroupHint{Groups: o.expected(), Dense: by.dense, Lo: int64(by.lo), Hi: int64(by.lo + by.span),
		Skewed: o.skewed.Load()}
}

// inTables aggregates rows by their key in tables of blocks. values are the columns by position in
// the input.
func (o *hashGroupBy) inTables(t operators.Task, by key, rows gpu.Partitioned, values []gpu.Column,
	hint gpu.GroupHint) (*gpu.Stride, error) {
	list, inputs := o.aggregates()
	in := make([]gpu.Column, len(list))
	for i, c := range inputs {
		switch {
		case c < 0:
		case list[i].Kind == gpu.Count && values[c].Valid == nil: // as many as rows; pgb does not move these values
			list[i].Kind = gpu.CountAll
		default:
			in[i] = values[c]
		}
	}
	cols, err := t.Queue.AggregatePartitions(t.Lease, rows, list, in, hint)
	if err != nil {
		return nil, err
	}
	out := &gpu.Stride{Schema: o.partials, Rows: cols[0].Len, Cols: cols}
	if by.packed == nil {
		return out, nil
	}
	keys, err := by.packed.Unpack(t.Queue, t.Lease, cols[0])
	if err != nil {
		out.Release()
		return nil, err
	}
	cols[0].Release()
	out.Cols = append(keys, cols[1:]...)
	return out, nil
}

// fitsTables returns an error if tables of blocks do not have the aggregates.
func (o *hashGroupBy) fitsTables() error {
	list, _ := o.aggregates()
	for _, a := range list {
		if gpu.CanAggregate(a) != nil {
			return errAggregates
		}
	}
	if why := o.unfit.Load(); why != nil {
		return *why
	}
	return nil
}

// key returns the key of the rows of a stride, which the caller releases: the only key if it is an
// integer of 4 or 8 bytes without nulls, otherwise all keys packed. key makes the packing if there
// is none.
func (o *hashGroupBy) key(t operators.Task, s *gpu.Stride, packing *gpu.Packing) (key, error) {
	if len(o.Keys) == 1 && isBits(s.Cols[o.Keys[0]]) {
		return key{Column: s.Cols[o.Keys[0]], domain: o.planned()}, nil
	}
	keys := operators.Pick(s.Cols, o.Keys)
	if *packing == nil {
		types := make([]gpu.Type, len(keys))
		for i, k := range keys {
			types[i] = k.Type
		}
		p, err := t.Queue.NewPacking(t.Lease, types)
		if err != nil {
			return key{}, err
		}
		*packing = p
	}
	packed, err := (*packing).Pack(t.Queue, t.Lease, keys, s.Rows)
	if err != nil {
		return key{}, err
	}
	k := key{Column: packed.Key(), packed: packed}
	k.domain = domain{bytes: k.Type.Width(), dense: true, span: 1<<packed.Bits() - 1}
	return k, nil
}

// release releases a packed key.
func (k key) release() {
	if k.packed != nil {
		k.packed.Release()
	}
}

// unpack releases the packing, which has all strings so far.
func (l *local) unpack() {
	if l.packing != nil {
		l.packing.Release()
		l.packing = nil
	}
}
