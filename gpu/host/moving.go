package host

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/move"
)

var (
	_ gpu.Experimental = (*queue)(nil)
	_ gpu.Interleaver  = (*Device)(nil)
)

// Interleave implements gpu.Device.
func (d *Device) Interleave(device, _ *gpu.Lease, n int64, _ float64) (*gpu.Buffer, error) {
	return device.Alloc(n)
}

// Select implements gpu.Queue.
func (q *queue) Select(l *gpu.Lease, pred gpu.Column, want bool) (gpu.Column, error) {
	if err := q.check([]gpu.Column{pred}); err != nil {
		return gpu.Column{}, err
	}
	if pred.Type.Kind != gpu.Bool {
		return gpu.Column{}, fmt.Errorf("select wants a BOOLEAN column, not %v", pred.Type)
	}
	out, err := move.Select(q.dev.cores, l, pred, want)
	return out, q.fail(err)
}

// Gather implements gpu.Queue.
func (q *queue) Gather(l *gpu.Lease, cols []gpu.Column, ids gpu.Column, outer bool) ([]gpu.Column, error) {
	if err := q.check(cols, []gpu.Column{ids}); err != nil {
		return nil, err
	}
	if err := gpu.CheckIDs(ids); err != nil {
		return nil, err
	}
	out, err := move.Gather(q.dev.cores, l, cols, gpu.Values[int32](ids.Data, ids.Len), outer)
	return out, q.fail(err)
}

// GatherParts implements gpu.Queue.
func (q *queue) GatherParts(l *gpu.Lease, parts []gpu.Column, ids gpu.Column) (gpu.Column, error) {
	if err := q.check(parts, []gpu.Column{ids}); err != nil {
		return gpu.Column{}, err
	}
	if err := gpu.CheckIDs(ids); err != nil {
		return gpu.Column{}, err
	}
	if len(parts) == 0 || !parts[0].Type.IsVar() {
		return gpu.Column{}, fmt.Errorf("gather from parts wants columns of bytes")
	}
	out, err := move.GatherParts(q.dev.cores, l, parts, gpu.Values[int32](ids.Data, ids.Len))
	return out, q.fail(err)
}

// Scatter implements gpu.Queue.
func (q *queue) Scatter(l *gpu.Lease, cols []gpu.Column, ids gpu.Column, n int) ([]gpu.Column, error) {
	if err := q.check(cols, []gpu.Column{ids}); err != nil {
		return nil, err
	}
	if err := gpu.CheckIDs(ids); err != nil {
		return nil, err
	}
	if err := gpu.CheckScatter(cols, ids, n); err != nil {
		return nil, err
	}
	out, err := move.Scatter(q.dev.cores, l, cols, ids, n)
	return out, q.fail(err)
}

// Concat implements gpu.Queue.
func (q *queue) Concat(l *gpu.Lease, parts []gpu.Column) (gpu.Column, error) {
	if err := q.check(parts); err != nil {
		return gpu.Column{}, err
	}
	out, err := move.Concat(q.dev.cores, l, parts)
	return out, q.fail(err)
}

// Cut implements gpu.Queue.
func (q *queue) Cut(l *gpu.Lease, cols []gpu.Column, bounds []int) (parts [][]gpu.Column, err error) {
	if err := gpu.CheckBounds(cols, bounds); err != nil {
		return nil, err
	}
	for i := range len(bounds) - 1 {
		part := make([]gpu.Column, len(cols))
		parts = append(parts, part)
		for k, c := range cols {
			if part[k], err = q.Slice(l, c, bounds[i], bounds[i+1]); err != nil {
				for _, p := range parts {
					gpu.ReleaseColumns(p)
				}
				return nil, err
			}
		}
	}
	return parts, nil
}

// Elements implements gpu.Queue.
func (q *queue) Elements(l *gpu.Lease, lists gpu.Column) (gpu.Elements, error) {
	if err := q.check([]gpu.Column{lists}); err != nil {
		return gpu.Elements{}, err
	}
	if lists.Type.Kind != gpu.List && lists.Type.Kind != gpu.Map {
		return gpu.Elements{}, fmt.Errorf("elements of a %v, not of a LIST", lists.Type)
	}
	e, err := move.Elements(l, lists)
	return e, q.fail(err)
}

// Unnest implements gpu.Queue.
func (q *queue) Unnest(l *gpu.Lease, lists []gpu.Column, from, to int) (ids gpu.Column, elements []gpu.Column,
	err error) {
	if err := q.check(lists); err != nil {
		return ids, nil, err
	}
	if err := gpu.CheckLists(lists, from, to); err != nil {
		return ids, nil, err
	}
	ids, elements, err = move.Unnest(l, lists, from, to)
	return ids, elements, q.fail(err)
}

// Slice implements gpu.Queue.
func (q *queue) Slice(l *gpu.Lease, c gpu.Column, from, to int) (gpu.Column, error) {
	if err := q.check([]gpu.Column{c}); err != nil {
		return gpu.Column{}, err
	}
	if from < 0 || from > to || to > c.Len {
		return gpu.Column{}, fmt.Errorf("slice [%d, %d) of a column of %d rows", from, to, c.Len)
	}
	out, err := move.Slice(l, c, from, to)
	return out, q.fail(err)
}

// Partition implements gpu.Queue.
func (q *queue) Partition(l *gpu.Lease, cols []gpu.Column, key gpu.Column,
	d gpu.Digit) ([]gpu.Column, gpu.Column, error) {
	if err := q.check(cols, []gpu.Column{key}); err != nil {
		return nil, gpu.Column{}, err
	}
	if err := d.Check(key); err != nil {
		return nil, gpu.Column{}, err
	}
	for _, c := range cols {
		if c.Len != key.Len {
			return nil, gpu.Column{}, fmt.Errorf("partition of a column of %d rows by a key of %d", c.Len, key.Len)
		}
	}
	out, offsets, err := move.Partition(q.dev.cores, l, cols, key, d)
	return out, offsets, q.fail(err)
}

// PartitionUnordered implements gpu.Queue.
func (q *queue) PartitionUnordered(l *gpu.Lease, cols []gpu.Column, key gpu.Column,
	d gpu.Digit) (out []gpu.Column, offsets, ends gpu.Column, err error) {
	out, offsets, err = q.Partition(l, cols, key, d)
	return out, offsets, ends, err
}

// PartitionBuckets implements gpu.Queue.
func (q *queue) PartitionBuckets(l *gpu.Lease, key gpu.Column, d gpu.Digit) (gpu.Buckets, error) {
	if err := q.check([]gpu.Column{key}); err != nil {
		return gpu.Buckets{}, err
	}
	if err := gpu.CheckBuckets(key, d); err != nil {
		return gpu.Buckets{}, err
	}
	out, err := move.PartitionBuckets(q.dev.cores, l, key, d)
	return out, q.fail(err)
}

// PartitionTuples implements gpu.Queue.
func (q *queue) PartitionTuples(l *gpu.Lease, to, key, value gpu.Column, d gpu.Digit,
	how gpu.TuplePass) (offsets []int, err error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if err := gpu.CheckTuples(q.dev, to, key, value, d, how); err != nil {
		return nil, err
	}
	offsets, err = move.PartitionTuples(q.dev.cores, l, to, key, value, d)
	return offsets, q.fail(err)
}

// SplitTuples implements gpu.Queue.
func (q *queue) SplitTuples(l *gpu.Lease, tuples gpu.Column, key, value gpu.Type) (out []gpu.Column, err error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if err := gpu.CheckSplit(q.dev, tuples, key, value); err != nil {
		return nil, err
	}
	out, err = move.SplitTuples(q.dev.cores, l, tuples, key, value)
	return out, q.fail(err)
}

// SampleKeys implements gpu.Queue.
func (q *queue) SampleKeys(_ *gpu.Lease, key gpu.Column) (s gpu.KeySample, err error) {
	if err := q.check([]gpu.Column{key}); err != nil {
		return s, err
	}
	if err := gpu.CheckSample(key); err != nil {
		return s, err
	}
	return move.Sample(key), nil
}
