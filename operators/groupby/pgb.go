package groupby

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// pgb is the partition-based group-by (Wu et al., SIGMOD 2025, §4.3): the rows of a stride are
// partitioned by a hash of the key, so that the groups of a partition fit the shared memory of the
// block that aggregates them.
//
// PGB-TR partitions the values together with the key. PGB-UR partitions the row ids, and gathers
// the values in their order.
type pgb struct {
	*hashGroupBy
	transform bool
}

func (a pgb) aggregate(t operators.Task, s *gpu.Stride, by key) (*gpu.Stride, error) {
	hashed := by.Column
	hashed.Type = unsigned(by.Type)
	groups := a.expected()
	if groups == 0 {
		groups = min(s.Rows, unknownGroups)
	}
	bits := a.partitionBits(t.Device.Properties(), groups, by.bytes)
	digit := gpu.Digit{Shift: uint(8*by.bytes) - bits, Bits: bits, Factor: a.seed | 1}
	values := slices.Clone(s.Cols)
	at := a.moving(values, by)
	move := []gpu.Column{by.Column}
	if a.transform {
		move = append(move, operators.Pick(values, at)...)
	} else {
		move = append(move, gpu.RowNumbers(by.Len))
	}
	moved, offsets, ends, err := a.partition(t, move, hashed, digit)
	if err != nil {
		return nil, err
	}
	defer func() { gpu.ReleaseColumns(append(moved, offsets, ends)) }()
	if !a.transform {
		gathered, err := t.Queue.Gather(t.Lease, operators.Pick(values, at), moved[1], false)
		if err != nil {
			return nil, err
		}
		moved[1].Release()
		moved = append(moved[:1], gathered...)
	}
	if by.packed == nil {
		values[a.Keys[0]] = moved[0]
	}
	for i, c := range at {
		values[c] = moved[1+i]
	}
	return a.inTables(t, by, gpu.Partitioned{Key: moved[0], Offsets: offsets, Ends: ends}, values,
		gpu.GroupHint{Groups: groups})
}

// partition partitions the key and the values, or the key and row ids by which values are gathered.
// All columns have the same rows.
func (a pgb) partition(t operators.Task, move []gpu.Column, key gpu.Column,
	d gpu.Digit) (moved []gpu.Column, offsets, ends gpu.Column, err error) {
	if a.transform {
		return t.Queue.PartitionUnordered(t.Lease, move, key, d)
	}
	moved, offsets, err = t.Queue.Partition(t.Lease, move, key, d)
	return moved, offsets, ends, err
}

// moving returns the positions of the columns that are partitioned with the key. Of a column that
// is only counted, only the validity is moved, if there is one.
func (a pgb) moving(cols []gpu.Column, by key) (at []int) {
	for _, counts := range []bool{false, true} {
		for _, m := range a.accumulated {
			if m.input < 0 || by.packed == nil && m.input == a.Keys[0] || slices.Contains(at, m.input) ||
				(m.kind == gpu.Count) != counts {
				continue
			}
			c := &cols[m.input]
			switch {
			case counts && c.Valid == nil:
				continue
			case counts:
				*c = gpu.Column{Type: gpu.Of(gpu.Bool), Len: c.Len, Data: c.Valid, Valid: c.Valid}
			}
			at = append(at, m.input)
		}
	}
	return at
}
