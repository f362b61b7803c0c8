package groupby

import (
	"context"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// partitions returns the range of partitions [from, to) of a part.
func (o *hashGroupBy) partitions(part int) (from, to int) {
	return part << o.shift, (part + 1) << o.shift
}

// count returns the number of partitions of a part, and their bytes; 0 if the groups are in a
// table.
func (o *hashGroupBy) count(part int) operators.Items {
	if o.only != nil || len(o.few) > 0 || o.groups == 0 {
		return operators.Items{}
	}
	from, to := o.partitions(part)
	return operators.Items{N: to - from, Bytes: o.alone.Bytes(from, to) + o.held.Bytes(from, to)}
}

// begin claims a part. It returns false if the part was split off.
func (o *hashGroupBy) begin(part int) bool {
	items := o.count(part) // outside of the lock, as it takes others
	o.taking.Lock()
	defer o.taking.Unlock()
	if part >= o.end {
		return false
	}
	o.begun, o.items[part] = max(o.begun, part+1), items
	return true
}

// Items implements operators.Divisible.
func (o *hashGroupBy) Items(part int) operators.Items {
	o.taking.Lock()
	defer o.taking.Unlock()
	if part >= o.begun && part < o.end {
		return o.count(part)
	}
	return o.items[part]
}

// Split implements operators.Divisible. A piece is the last part.
func (o *hashGroupBy) Split(t operators.Task, want func(left, piece int64) bool) *operators.Piece {
	if !o.portable() {
		return nil
	}
	o.taking.Lock()
	defer o.taking.Unlock()
	if o.begun >= o.end {
		return nil
	}
	left := int64(0)
	for part := o.begun; part < o.end; part++ {
		left += o.count(part).Bytes
	}
	part := o.end - 1
	from, to := o.partitions(part)
	p := &operators.Piece{Items: o.count(part)}
	// A table, rows that are read, and the result.
	groups := o.alone.Rows(from, to) + o.held.Rows(from, to)
	if p.N == 0 || groups*o.groupBytes()+2*p.Bytes > t.Lease.Available()/int64(t.Lanes) || !want(left, p.Bytes) {
		return nil
	}
	if o.reader != nil && !o.reader.Cut(to, from) {
		return nil // it is being read
	}
	o.end = part
	p.Emit = func(ctx context.Context, t operators.Task, emit operators.Emit) error {
		t.Lanes = 1
		err := o.emitPart(ctx, t, part, true, emit)
		if err == nil {
			o.alone.Drop(from, to)
			o.held.Drop(from, to)
		}
		return err
	}
	return p
}

// portable reports whether all devices merge groups to identical bits, which sums and products of
// floats rule out.
func (o *hashGroupBy) portable() bool {
	return !slices.ContainsFunc(o.accumulated, func(m partialAggregate) bool {
		return m.kind == gpu.Product ||
			m.kind == gpu.Sum && o.final(m).IsFloat()
	})
}
