package groupby

import (
	"errors"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
)

// newOfRaw returns the group-by that aggregates raw rows in tables of blocks; its groups are rows
// of partial aggregates. It is nil for text keys, for aggregates that such tables do not have, and
// for counts of values with nulls, which are numbers in raw rows.
func (o *hashGroupBy) newOfRaw() *hashGroupBy {
	text := func(f gpu.Field) bool { return f.Type.IsVar() }
	if o.Algorithm != "" && o.Algorithm != pgbTR && o.Algorithm != pgbUR || slices.ContainsFunc(o.raw.Fields, text) {
		return nil
	}
	r := &hashGroupBy{Spec: Spec{In: o.raw, Keys: operators.First(len(o.Keys)), Algorithm: o.Algorithm}, seed: o.seed,
		partials: o.partials}
	at := len(r.Keys)
	for _, m := range o.accumulated {
		switch m.kind {
		case gpu.CountAll:
		case gpu.Count:
			return nil
		default:
			m.input = at
			at++
		}
		r.accumulated = append(r.accumulated, m)
	}
	if len(r.Keys) == 0 || r.fitsTables() != nil {
		return nil
	}
	return r
}

// inBlocks reports whether a number of raw rows of a part is aggregated in tables of blocks. All of
// them are then in memory at once, and twice while they are partitioned.
func (o *hashGroupBy) inBlocks(t operators.Task, rows int) bool {
	return o.ofRaw != nil && t.Device.Properties().BlockTables && o.ofRaw.fitsTables() == nil &&
		rows <= gpu.MaxRows && int64(rows)*int64(o.raw.RowBytes()) <= t.Share(grant.GroupMerge)
}

// mergeInBlocks aggregates all raw rows of a part in tables of blocks. It borrows the rows, and
// returns nil if a table must merge them instead. It expects about as many groups as in the part
// before, and in the first part as many as rows.
func (o *hashGroupBy) mergeInBlocks(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
	r := o.ofRaw
	if slices.ContainsFunc(s.Cols, func(c gpu.Column) bool { return c.Dict != nil }) {
		return nil, nil
	}
	var packing gpu.Packing
	defer func() {
		if packing != nil {
			packing.Release()
		}
	}()
	known := r.expected() > 0
	if !known {
		r.expect.Store(int64(s.Rows))
	}
	by, err := r.key(t, s, &packing)
	var out *gpu.Stride
	if err == nil {
		defer by.release()
		name := o.Algorithm
		if name == "" {
			name = pgbTR
		}
		out, err = r.algorithm(name).aggregate(t, s, by)
	}
	switch {
	case err == nil:
		r.expect.Store(int64(out.Rows + out.Rows/16))
		return out, nil
	case errors.Is(err, gpu.ErrManyGroups) && known:
		r.expect.Store(0)
	case errors.Is(err, gpu.ErrManyGroups) || errors.Is(err, gpu.ErrUnfit):
		r.unfit.Store(&err)
	case !gpu.IsOutOfMemory(err):
		return nil, err
	}
	return nil, nil
}
