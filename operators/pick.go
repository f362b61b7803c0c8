package operators

import (
	"slices"

	"github.com/gstream/gstream/gpu"
)

// Pick returns the columns at the given positions, borrowed.
func Pick(cols []gpu.Column, at []int) []gpu.Column {
	out := make([]gpu.Column, len(at))
	for i, c := range at {
		out[i] = cols[c]
	}
	return out
}

// First returns the positions of the first n columns.
func First(n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	return at
}

// PickFields returns a schema of the fields at the given positions.
func PickFields(s *gpu.Schema, at []int) *gpu.Schema {
	out := make([]gpu.Field, len(at))
	for i, c := range at {
		out[i] = s.Fields[c]
	}
	return gpu.NewSchema(out...)
}

// ConcatStrides concatenates strides, column by column. It releases each source column as soon as
// it is copied, so the peak of memory is one column above the total. It takes the strides over,
// even on error.
func ConcatStrides(t Task, schema *gpu.Schema, strides []*gpu.Stride) (*gpu.Stride, error) {
	defer func() {
		for _, s := range strides {
			s.Release()
		}
	}()
	out := &gpu.Stride{Schema: schema}
	for _, s := range strides {
		out.Rows += s.Rows
	}
	for i, f := range schema.Fields {
		parts := make([]gpu.Column, 0, len(strides))
		for _, s := range strides {
			parts = append(parts, s.Cols[i])
		}
		if len(parts) == 0 {
			parts = append(parts, gpu.ColumnOf(f.Type, nil))
		}
		c, err := t.Queue.Concat(t.Lease, parts)
		if err != nil {
			out.Release()
			return nil, err
		}
		out.Cols = append(out.Cols, c)
		for _, s := range strides {
			s.Cols[i].Release()
			s.Cols[i] = gpu.Column{}
		}
	}
	return out, nil
}

// InBatches calls take with the strides that each adds, concatenated into batches of about
// Task.StrideRows rows. take and add take the strides over.
func InBatches(t Task, schema *gpu.Schema, each func(add func(*gpu.Stride) error) error,
	take func(*gpu.Stride) error) (err error) {
	var pending []*gpu.Stride
	rows := 0
	defer func() {
		for _, s := range pending {
			s.Release()
		}
	}()
	batch := func() error {
		strides := pending
		pending, rows = nil, 0
		s, err := ConcatStrides(t, schema, strides)
		if err != nil {
			return err
		}
		return take(s)
	}
	err = each(func(s *gpu.Stride) error {
		pending, rows = append(pending, s), rows+s.Rows
		if rows < t.StrideRows {
			return nil
		}
		return batch()
	})
	if err != nil || rows == 0 {
		return err
	}
	return batch()
}

// PartitionStride partitions a stride, which remains the caller's, by a digit of a key. It returns
// the partitioned rows, and the offsets of the partitions including the end. It waits for the
// device.
func PartitionStride(t Task, s *gpu.Stride, key gpu.Column, d gpu.Digit) (*gpu.Stride, []int, error) {
	cols, starts, err := t.Queue.Partition(t.Lease, s.Cols, key, d)
	if err != nil {
		return nil, nil, err
	}
	defer starts.Release()
	offsets, err := Ints(t, starts)
	if err != nil {
		gpu.ReleaseColumns(cols)
		return nil, nil, err
	}
	return &gpu.Stride{Schema: s.Schema, Cols: cols, Rows: s.Rows}, offsets, nil
}

// SliceStride returns rows [from, to) of a stride. The stride remains the caller's.
func SliceStride(t Task, s *gpu.Stride, from, to int) (*gpu.Stride, error) {
	parts, err := CutStride(t, s, []int{from, to})
	if err != nil {
		return nil, err
	}
	return parts[0], nil
}

// CutStride returns rows [bounds[i], bounds[i+1]) of a stride for each i. The stride remains the
// caller's.
func CutStride(t Task, s *gpu.Stride, bounds []int) (parts []*gpu.Stride, err error) {
	cols, err := t.Queue.Cut(t.Lease, s.Cols, bounds)
	for i, part := range cols {
		parts = append(parts, &gpu.Stride{Schema: s.Schema, Cols: part, Rows: bounds[i+1] - bounds[i]})
	}
	return parts, err
}

// EmitGroups emits a row for each group: its keys, which have the types of a schema, followed by
// values that are the same for all groups. out names the columns.
func EmitGroups(t Task, keys *gpu.Schema, groups [][]gpu.Scalar, values []gpu.Scalar, out *gpu.Schema,
	emit Emit) error {
	n := len(groups)
	s := &gpu.Stride{Schema: out, Rows: n}
	for i, f := range keys.Fields {
		key := make([]gpu.Scalar, n)
		for g := range groups {
			key[g] = groups[g][i]
		}
		s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, key))
	}
	for _, v := range values {
		s.Cols = append(s.Cols, gpu.ColumnOf(v.Type, slices.Repeat([]gpu.Scalar{v}, n)))
	}
	up, err := t.Queue.Upload(t.Lease, s)
	if err != nil {
		s.Release()
		return err
	}
	return emit(up)
}

// IDs returns row ids as a column of the device.
func IDs(t Task, ids []int32) (gpu.Column, error) {
	values := gpu.WrapBytes(gpu.BytesOf(ids))
	s := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "ids", Type: gpu.Of(gpu.Int32)}), Rows: len(ids),
		Cols: []gpu.Column{{Type: gpu.Of(gpu.Int32), Len: len(ids), Data: values}}}
	up, err := t.Queue.Upload(t.Lease, s)
	if err != nil {
		s.Release()
		return gpu.Column{}, err
	}
	return up.Cols[0], nil
}

// Ints returns the values of a short Int32 column without nulls. It waits for the device.
func Ints(t Task, c gpu.Column) (out []int, err error) {
	l := t.Device.HostBudget().Lease(t.Lease.Name())
	defer func() {
		if closeErr := l.Close(); err == nil {
			err = closeErr
		}
	}()
	s := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "values", Type: c.Type}), Cols: []gpu.Column{c.Retain()},
		Rows: c.Len}
	down, err := t.Queue.Download(l, s)
	if err != nil {
		s.Release()
		return nil, err
	}
	defer down.Release()
	for _, v := range gpu.Values[int32](down.Cols[0].Data, c.Len) {
		out = append(out, int(v))
	}
	return out, nil
}
