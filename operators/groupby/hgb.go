package groupby

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// hgb is the hash group-by in tables of blocks (HGB of Wu et al., SIGMOD 2025, §4.2; Karnagel et
// al., ADMS 2015, §5.1): each block of a GPU aggregates its rows in shared memory, and the tables
// are merged in the end.
type hgb struct{ *hashGroupBy }

func (a hgb) aggregate(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
	hint := a.Hint
	hint.Groups = a.expected()
	return a.inTables(t, gpu.Partitioned{Key: s.Cols[a.Keys[0]]}, s.Cols, hint)
}

// inTables aggregates rows by their key in the tables of blocks. values are columns by position in
// the input.
func (o *hashGroupBy) inTables(t operators.Task, rows gpu.Partitioned, values []gpu.Column, hint gpu.GroupHint) (*gpu.Stride, error) {
	list, inputs := o.aggregates()
	in := make([]gpu.Column, len(list))
	for i, c := range inputs {
		if c >= 0 {
			in[i] = values[c]
		}
	}
	cols, err := t.Queue.AggregatePartitions(t.Lease, rows, list, in, hint)
	if err != nil {
		return nil, err
	}
	return &gpu.Stride{Schema: o.partials, Rows: cols[0].Len, Cols: cols}, nil
}

// fitsTables returns an error when the rows of a stride cannot be aggregated in tables of blocks.
func (o *hashGroupBy) fitsTables(s *gpu.Stride) error {
	if len(o.Keys) != 1 {
		return errSeveralKeys
	}
	key := s.Cols[o.Keys[0]]
	if !isBits(key) {
		return errKey
	}
	list, _ := o.aggregates()
	for _, a := range list {
		if gpu.CanAggregate(a) != nil {
			return errAggregates
		}
	}
	if o.unfit.Load() {
		return gpu.ErrUnfit
	}
	return nil
}
