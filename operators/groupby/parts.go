package groupby

import (
	"context"
	"math/bits"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// hold takes ownership of rows of partial aggregates, partitions them by the hash of their keys or
// by ranges of a dense key, and keeps them where they can spill.
func (o *hashGroupBy) hold(t operators.Task, rows *gpu.Stride) (err error) {
	defer func() { rows.Release() }()
	if err := o.expand(t, rows); err != nil {
		return err
	}
	var digits gpu.Column
	shift := uint(64 - fanOut)
	if o.offset != nil {
		key := rows.Cols[0]
		key.Type = o.offset.Inputs[0]
		cols, err := t.Queue.Eval(t.Lease, o.offset, []gpu.Column{key}, rows.Rows)
		if err != nil {
			return err
		}
		digits, shift = cols[0], o.keyShift()
	} else if digits, err = t.Queue.Hash(t.Lease, rows.Cols[:len(o.Keys)], o.seed); err != nil {
		return err
	}
	defer digits.Release()
	parts, offsets, err := operators.PartitionStride(t, rows, digits, gpu.Digit{Shift: shift, Bits: fanOut})
	if err != nil {
		return err
	}
	to := o.held
	if rows.Schema == o.raw {
		to = o.alone
	}
	rows.Release() // before Append makes room
	return to.Append(parts, 0, offsets)
}

// expand decodes text keys whose dictionary has more values than there are rows, if other rows have
// other such dictionaries: a partition would need values of each of them.
func (o *hashGroupBy) expand(t operators.Task, rows *gpu.Stride) error {
	for i := range o.Keys {
		c := rows.Cols[i]
		if !c.Type.IsVar() || c.Dict == nil || c.Dict.Values.Len <= rows.Rows {
			continue
		}
		if first := &o.large[i]; first.CompareAndSwap(nil, c.Dict) || first.Load() == c.Dict {
			continue
		}
		plain, err := t.Queue.Concat(t.Lease, []gpu.Column{c, gpu.ColumnOf(c.Type, nil)})
		if err != nil {
			return err
		}
		c.Release()
		rows.Cols[i] = plain
	}
	return nil
}

// Finalize decides how many parts the result has.
func (o *hashGroupBy) Finalize(_ context.Context, t operators.Task) error {
	o.stride = t.StrideRows
	switch {
	case o.only != nil:
		o.n = (o.only.len() + o.stride - 1) / o.stride
	case o.groups > 0:
		bits := o.partBits(t)
		o.n, o.shift = 1<<bits, uint(fanOut-bits)
		for few := o.few; bits > 0 && len(few) > 0; few = o.few {
			o.few = few[1:]
			if err := o.hold(t, few[0]); err != nil {
				return err
			}
		}
	}
	if o.n == 0 && len(o.Always) > 0 {
		o.n = 1
	}
	o.end, o.items = o.n, make([]operators.Items, o.n)
	return nil
}

// partBits returns the binary logarithm of the number of parts. Parts have partGroups groups or, on
// a device with one lane, partStrides strides. They are smaller if one would exceed
// grant.GroupMerge.
func (o *hashGroupBy) partBits(t operators.Task) int {
	if o.held.Rows(0, o.held.Len())+o.alone.Rows(0, o.alone.Len()) == 0 {
		return 0
	}
	part := partGroups
	if t.Lanes == 1 {
		part = max(part, partStrides*t.StrideRows)
	}
	n := bits.Len(uint(o.groups / part))
	for room := t.Share(grant.GroupMerge); n < fanOut && int64(o.groups)*o.groupBytes()>>n > room; {
		n++
	}
	return min(n, fanOut)
}

// Parts implements operators.Source.
func (o *hashGroupBy) Parts() int { return o.n }

// Emit implements operators.Source. A part is a stride of the only table, or the groups of one or
// several partitions, which Emit merges.
func (o *hashGroupBy) Emit(ctx context.Context, t operators.Task, part int, emit operators.Emit) error {
	if o.only != nil && o.only.len() > 0 {
		from := part * o.stride
		return o.emit(t, o.only, from, min(from+o.stride, o.only.len()), emit)
	}
	if o.groups == 0 {
		return o.emitEmpty(t, emit)
	}
	if !o.begin(part) {
		return nil
	}
	return o.emitPart(ctx, t, part, false, emit)
}

// emitPart emits the groups of a part. split says that it was split off.
func (o *hashGroupBy) emitPart(ctx context.Context, t operators.Task, part int, split bool, emit operators.Emit) error {
	merged, err := o.merge(ctx, t, part, split)
	if err != nil {
		return err
	}
	defer merged.release()
	for from := 0; from < merged.len(); from += o.stride {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := o.emit(t, merged, from, min(from+o.stride, merged.len()), emit); err != nil {
			return err
		}
	}
	return nil
}

// merge makes the groups of a part, and releases its rows unless it was split off. A table merges
// the rows, or tables of blocks if all of them are raw.
func (o *hashGroupBy) merge(ctx context.Context, t operators.Task, part int, split bool) (_ groups, err error) {
	from, to := o.partitions(part)
	n := int(o.held.Rows(from, to) + o.alone.Rows(from, to))
	for _, s := range o.few {
		n += s.Rows
	}
	few := o.few
	if len(few) > 0 { // they are not partitioned, so there is one part
		o.few = nil
	}
	defer func() {
		for _, s := range few {
			if s != nil {
				s.Release()
			}
		}
	}()
	var merged *table
	var aggregated *gpu.Stride // of all rows, without a table
	defer func() {
		if err != nil {
			merged.release()
		}
	}()
	take := func(s *gpu.Stride) error {
		s, err := o.counted(t, s)
		if err != nil {
			return err
		}
		defer s.Release()
		if merged == nil {
			if merged, err = o.newMerge(t, o.partHint(part, n/t.Lanes), o.Phase == Partial); err != nil {
				return err
			}
		}
		failed, err := merged.take(t, s)
		return o.naming(failed, err)
	}
	whole := len(few) == 0 && o.held.Rows(from, to) == 0 && o.inBlocks(t, n)
	// Rows with one schema are assigned in common batches.
	for i, p := range []*spill.Partitions{o.alone, o.held} {
		schema, batches, take := []*gpu.Schema{o.raw, o.partials}[i], t, take
		if whole && i == 0 {
			batches.StrideRows = gpu.MaxRows
			inTable := take
			take = func(s *gpu.Stride) (err error) {
				if aggregated, err = o.mergeInBlocks(t, s); err != nil || aggregated != nil {
					s.Release()
					return err
				}
				return inTable(s)
			}
		}
		err = operators.InBatches(batches, schema, func(add func(*gpu.Stride) error) error {
			for i, s := range few {
				if s != nil && s.Schema == schema {
					few[i] = nil
					if err := add(s); err != nil {
						return err
					}
				}
			}
			return o.read(ctx, t, p, part, split, func(s *gpu.Stride, _ int) error { return add(s) })
		}, take)
		if err != nil {
			return nil, err
		}
		if !split {
			p.Drop(from, to)
		}
	}
	if aggregated != nil {
		return rows{aggregated, len(o.Keys)}, nil
	}
	return merged, nil
}

// read calls take with the rows of a part in p. A single lane merges the parts in order, so that
// the rows of the next part are read meanwhile.
func (o *hashGroupBy) read(ctx context.Context, t operators.Task, p *spill.Partitions, part int, split bool,
	take func(*gpu.Stride, int) error) error {
	if t.Lanes > 1 || split {
		from, to := o.partitions(part)
		return p.Each(ctx, t.Queue, t.Lease, from, to, take)
	}
	return o.ahead(ctx, t).Next(t.Queue, take)
}

// ahead returns the reader of the parts that were not split off.
func (o *hashGroupBy) ahead(ctx context.Context, t operators.Task) *spill.Reader {
	o.taking.Lock()
	defer o.taking.Unlock()
	if o.reader == nil {
		var ranges []spill.Range
		for i := range o.end {
			from, to := o.partitions(i)
			for _, p := range []*spill.Partitions{o.alone, o.held} {
				ranges = append(ranges, spill.Range{Partitions: p, Span: spill.Span{From: from, To: to}})
			}
		}
		o.reader = spill.NewReader(ctx, t.Lease, ranges)
	}
	return o.reader
}
