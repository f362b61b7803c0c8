package operators

import (
	"math"

	"github.com/gstream/gstream/gpu"
)

// Rows has the rows of many strides, for gathers by row id. Most columns are concatenated. A string
// column whose bytes may exceed the limit of one column stays in its original parts.
type Rows struct {
	Schema *gpu.Schema
	N      int
	// Cols are the concatenated columns. A column in parts is empty here.
	Cols  []gpu.Column
	parts [][]gpu.Column
}

// CollectRows makes Rows from strides, which it takes over, even on error. It always concatenates
// the columns at the positions in whole. As in ConcatStrides, the peak of memory is one column
// above the total.
func CollectRows(t Task, schema *gpu.Schema, strides []*gpu.Stride, whole []int) (*Rows, error) {
	defer func() {
		for _, s := range strides {
			s.Release()
		}
	}()
	r := &Rows{Schema: schema, Cols: make([]gpu.Column, schema.Len()), parts: make([][]gpu.Column, schema.Len())}
	for _, s := range strides {
		r.N += s.Rows
	}
	inOne := make([]bool, schema.Len())
	for _, c := range whole {
		inOne[c] = true
	}
	for i, f := range schema.Fields {
		parts := make([]gpu.Column, 0, len(strides))
		coded, plain := true, true
		bytes := int64(0)
		for _, s := range strides {
			c := s.Cols[i]
			s.Cols[i] = gpu.Column{}
			parts = append(parts, c)
			if !c.AllNull() { // nulls go with any coding
				coded, plain = coded && c.Dict != nil, plain && c.Dict == nil
			}
			bytes += c.Data.Size()
		}
		fits := coded || plain && bytes <= math.MaxInt32
		if f.Type.IsVar() && !fits && !inOne[i] && len(parts) > 1 {
			r.parts[i] = parts
			continue
		}
		if len(parts) == 0 {
			parts = append(parts, gpu.ColumnOf(f.Type, nil))
		}
		var err error
		r.Cols[i], err = t.Queue.Concat(t.Lease, parts)
		gpu.ReleaseColumns(parts)
		if err != nil {
			r.Release()
			return nil, err
		}
	}
	return r, nil
}

// Gather returns the rows at ids, in that order.
func (r *Rows) Gather(t Task, ids gpu.Column) (*gpu.Stride, error) {
	var whole []gpu.Column
	for i, c := range r.Cols {
		if r.parts[i] == nil {
			whole = append(whole, c)
		}
	}
	cols, err := t.Queue.Gather(t.Lease, whole, ids, false)
	if err != nil {
		return nil, err
	}
	out := &gpu.Stride{Schema: r.Schema, Rows: ids.Len}
	for _, parts := range r.parts {
		if parts == nil {
			out.Cols, cols = append(out.Cols, cols[0]), cols[1:]
			continue
		}
		c, err := t.Queue.GatherParts(t.Lease, parts, ids)
		if err != nil {
			out.Release()
			gpu.ReleaseColumns(cols)
			return nil, err
		}
		out.Cols = append(out.Cols, c)
	}
	return out, nil
}

// A range of ids needs no copy if it begins at a multiple of aligned ids, 256 bytes.
const aligned = 64

// GatherRange returns the rows at ids [from, to), in that order.
func (r *Rows) GatherRange(t Task, ids gpu.Column, from, to int) (*gpu.Stride, error) {
	if from < to && from%aligned == 0 {
		part := gpu.Column{Type: ids.Type, Len: to - from, Data: ids.Data.View(int64(from)*4, int64(to-from)*4)}
		defer part.Release()
		return r.Gather(t, part)
	}
	part, err := t.Queue.Slice(t.Lease, ids, from, to)
	if err != nil {
		return nil, err
	}
	defer part.Release()
	return r.Gather(t, part)
}

// Keep keeps only the columns at the given positions, under the names of schema.
func (r *Rows) Keep(at []int, schema *gpu.Schema) {
	kept := &Rows{Schema: schema, N: r.N}
	for _, c := range at {
		kept.Cols = append(kept.Cols, r.Cols[c].Retain())
		kept.parts = append(kept.parts, r.parts[c])
		for _, p := range r.parts[c] {
			p.Retain()
		}
	}
	r.Release()
	*r = *kept
}

// Release drops all references.
func (r *Rows) Release() {
	gpu.ReleaseColumns(r.Cols)
	for _, parts := range r.parts {
		gpu.ReleaseColumns(parts)
	}
	r.Cols, r.parts = nil, nil
}
