package cuda

import "github.com/gstream/gstream/gpu"

// Unnest implements gpu.Queue.
func (q *queue) Unnest(l *gpu.Lease, lists []gpu.Column, from, to int) (ids gpu.Column, elements []gpu.Column,
	err error) {
	if err := gpu.CheckLists(lists, from, to); err != nil {
		return ids, nil, err
	}
	defer func() {
		if err != nil {
			ids.Release()
			gpu.ReleaseColumns(elements)
			ids, elements = gpu.Column{}, nil
		}
	}()
	for k, c := range lists {
		part, err := q.Slice(l, c, from, to)
		if err != nil {
			return ids, elements, err
		}
		e, err := q.Elements(l, part)
		part.Release()
		if err != nil {
			return ids, elements, err
		}
		one, err := q.Eval(l, firstOf(c.Type), []gpu.Column{e.Values}, e.Rows.Len)
		switch {
		case k == 0:
			ids = e.Rows.Retain()
		case err == nil:
			err = q.sameRows(l, ids, e.Rows)
		}
		e.Release()
		elements = append(elements, one...)
		if err != nil {
			return ids, elements, err
		}
	}
	if from > 0 {
		below := ids
		ids, err = q.plus(l, below, from)
		below.Release()
	}
	return ids, elements, err
}

// plus returns row ids that are larger by n.
func (q *queue) plus(l *gpu.Lease, ids gpu.Column, n int) (gpu.Column, error) {
	p := &gpu.Program{Inputs: []gpu.Type{ids.Type}, Outputs: []int{2}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: ids.Type, Value: gpu.IntScalar(ids.Type, int64(n)), Mask: -1},
		{Op: gpu.OpAdd, Type: ids.Type, Args: []int{0, 1}, Mask: -1, Text: "unnest"}}}
	sum, err := q.Eval(l, p, []gpu.Column{ids}, ids.Len)
	if err != nil {
		return gpu.Column{}, err
	}
	return sum[0], nil
}

// firstOf returns a program for the first element of lists.
func firstOf(list gpu.Type) *gpu.Program {
	return &gpu.Program{Inputs: []gpu.Type{list}, Outputs: []int{2}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: gpu.Of(gpu.Int64), Value: gpu.IntScalar(gpu.Of(gpu.Int64), 1), Mask: -1},
		{Op: gpu.OpElement, Type: list.Element(), Args: []int{0, 1}, Mask: -1, Text: "unnest"}}}
}

// sameRows returns gpu.ErrUneven if the elements of two columns belong to other rows.
func (q *queue) sameRows(l *gpu.Lease, x, y gpu.Column) error {
	if x.Len != y.Len {
		return gpu.ErrUneven
	}
	p := &gpu.Program{Inputs: []gpu.Type{x.Type, y.Type}, Outputs: []int{2}, Code: []gpu.Instr{
		{Op: gpu.OpEq, Type: gpu.Of(gpu.Bool), Args: []int{0, 1}, Mask: -1}}}
	same, err := q.Eval(l, p, []gpu.Column{x, y}, x.Len)
	if err != nil {
		return err
	}
	defer gpu.ReleaseColumns(same)
	other, err := q.Select(l, same[0], false)
	if err == nil && other.Len > 0 {
		err = gpu.ErrUneven
	}
	other.Release()
	return err
}
