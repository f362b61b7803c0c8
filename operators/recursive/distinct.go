package recursive

import (
	"context"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/materialize"
	"github.com/gstream/gstream/spill"
)

const (
	// fanOut is the number of bits of the hash by which distinct rows that do not fit memory are partitioned.
	fanOut = 6
	// leastRows is the number of distinct rows of a stride that is partitioned, when memory is short.
	leastRows = 1 << 13
	slot      = 16 // bytes of a group in the index of its table
)

// distinct has the distinct rows of all iterations so far.
type distinct struct {
	schema *gpu.Schema
	types  []gpu.Type
	seed   uint64
	groups gpu.Groups        // of the rows; nil before the first iteration, and once they are partitioned
	known  int               // groups that have been emitted
	bytes  int64             // of these rows in groups, about
	rows   *spill.Partitions // by hash; nil while they are in groups
}

func newDistinct(schema *gpu.Schema) *distinct {
	d := &distinct{schema: schema, seed: rand.Uint64()}
	for _, f := range schema.Fields {
		d.types = append(d.types, f.Type)
	}
	return d
}

// add emits those rows that differ from all before. Its task has one lane.
func (d *distinct) add(ctx context.Context, t operators.Task, in *materialize.Rows, emit operators.Emit) (err error) {
	t.Lease.Advise("the distinct rows of a recursive query must fit, or a 64th of them with a folder to spill to: " +
		"select fewer of its columns")
	if t.Spill.Always() && d.known > 0 && d.rows == nil {
		if err := d.partition(t); err != nil {
			return err
		}
	}
	var rest *spill.Partitions // of the rows that are not in groups
	defer func() {
		if closed := rest.Close(); err == nil {
			err = closed
		}
	}()
	reader := in.Reader()
	defer reader.Close()
	for part := range reader.Parts() {
		if err := reader.Emit(ctx, t, part, func(s *gpu.Stride) error {
			if d.rows == nil && d.bytes < t.Share(grant.GroupTables) {
				err := d.assign(t, s, emit)
				if err == nil || !gpu.IsOutOfMemory(err) {
					s.Release()
					return err
				}
			}
			if d.rows == nil {
				if err := d.partition(t); err != nil {
					s.Release()
					return err
				}
			}
			if rest == nil {
				rest = d.partitions(t)
			}
			return d.divide(t, s, rest)
		}); err != nil {
			return err
		}
	}
	if rest == nil {
		return nil
	}
	for p := range rest.Len() {
		if rest.Rows(p, p+1) > 0 {
			if err := d.merge(ctx, t, rest, p, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// assign emits the new rows of a stride, which it borrows. If memory is denied, no row has been emitted.
func (d *distinct) assign(t operators.Task, s *gpu.Stride, emit operators.Emit) (err error) {
	if d.groups == nil {
		groups, err := t.Queue.NewGroups(t.Lease, d.types, gpu.GroupHint{})
		if err != nil {
			return err
		}
		d.groups = groups
	}
	out, err := d.unseen(t, d.groups, d.known, s)
	if err != nil || out == nil {
		return err
	}
	d.known += out.Rows
	d.bytes += out.Bytes() + int64(slot*out.Rows)
	return emit(out)
}

// unseen adds the rows of a stride to groups, and returns those from group known on: nil if there are none.
func (d *distinct) unseen(t operators.Task, groups gpu.Groups, known int, s *gpu.Stride) (*gpu.Stride, error) {
	a, err := groups.Assign(t.Queue, t.Lease, s.Cols, s.Rows)
	if err != nil {
		return nil, err
	}
	a.Release()
	if groups.Len() == known {
		return nil, nil
	}
	return d.keys(t, groups, known, groups.Len())
}

// keys returns the rows of some groups. Those that may spill have no dictionaries, which would stay in memory for each
// of many short runs on disk.
func (d *distinct) keys(t operators.Task, groups gpu.Groups, from, to int) (*gpu.Stride, error) {
	cols, err := groups.Keys(t.Queue, t.Lease, from, to)
	if err != nil {
		return nil, err
	}
	out := &gpu.Stride{Schema: d.schema, Rows: to - from, Cols: cols}
	for i, c := range cols {
		if c.Dict == nil || d.rows == nil {
			continue
		}
		if cols[i], err = t.Queue.Concat(t.Lease, []gpu.Column{c, gpu.ColumnOf(c.Type, nil)}); err != nil {
			cols[i] = c
			out.Release()
			return nil, err
		}
		c.Release()
	}
	return out, nil
}

func (d *distinct) partitions(t operators.Task) *spill.Partitions {
	return t.Spill.NewPartitions(t.Lease.Name(), t.Lease, d.schema, 1<<fanOut)
}

// partition moves the rows that have been emitted out of the groups.
func (d *distinct) partition(t operators.Task) error {
	d.rows = d.partitions(t)
	step := min(t.StrideRows, leastRows)
	for from := 0; from < d.known; from += step {
		s, err := d.keys(t, d.groups, from, min(from+step, d.known))
		if err == nil {
			err = d.divide(t, s, d.rows)
		}
		if err != nil {
			return err
		}
	}
	d.release()
	return nil
}

func (d *distinct) release() {
	if d.groups != nil {
		d.groups.Release()
		d.groups = nil
	}
}

// divide partitions a stride, which it takes over, by the hash of its rows.
func (d *distinct) divide(t operators.Task, s *gpu.Stride, to *spill.Partitions) error {
	defer s.Release()
	hash, err := t.Queue.Hash(t.Lease, s.Cols, d.seed)
	if err != nil {
		return err
	}
	defer hash.Release()
	parts, offsets, err := operators.PartitionStride(t, s, hash, gpu.Digit{Shift: 64 - fanOut, Bits: fanOut})
	if err != nil {
		return err
	}
	return to.Append(parts, 0, offsets)
}

// merge emits the new rows of a partition.
func (d *distinct) merge(ctx context.Context, t operators.Task, rest *spill.Partitions, p int,
	emit operators.Emit) error {
	groups, err := t.Queue.NewGroups(t.Lease, d.types, gpu.GroupHint{Groups: int(d.rows.Rows(p, p+1))})
	if err != nil {
		return err
	}
	defer groups.Release()
	if err := d.rows.Each(ctx, t.Queue, t.Lease, p, p+1, func(s *gpu.Stride, _ int) error {
		defer s.Release()
		a, err := groups.Assign(t.Queue, t.Lease, s.Cols, s.Rows)
		if err == nil {
			a.Release()
		}
		return err
	}); err != nil {
		return err
	}
	known := groups.Len()
	return rest.Each(ctx, t.Queue, t.Lease, p, p+1, func(s *gpu.Stride, _ int) error {
		defer s.Release()
		out, err := d.unseen(t, groups, known, s)
		if err != nil || out == nil {
			return err
		}
		again, err := d.keys(t, groups, known, groups.Len()) // buffers of their own, so that either can spill
		if err != nil {
			out.Release()
			return err
		}
		known = groups.Len()
		if err := d.rows.Append(again, p, []int{0, again.Rows}); err != nil {
			out.Release()
			return err
		}
		return emit(out)
	})
}

func (d *distinct) close() error {
	d.release()
	return d.rows.Close()
}
