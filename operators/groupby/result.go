package groupby

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// emit emits groups [from, to).
func (o *hashGroupBy) emit(t operators.Task, x groups, from, to int, emit operators.Emit) error {
	out := &gpu.Stride{Schema: o.Out, Rows: to - from}
	var err error
	if out.Cols, err = x.keyColumns(t, from, to); err != nil {
		return err
	}
	columns, column := len(o.Aggregates), o.result
	if o.Phase == Partial {
		columns, column = len(o.accumulated), o.partialColumn
	}
	for i := range columns {
		c, err := column(t, x, i, from, to)
		if err != nil {
			out.Release()
			return err
		}
		out.Cols = append(out.Cols, c)
	}
	return emit(out)
}

// result returns aggregate i of groups [from, to).
func (o *hashGroupBy) result(t operators.Task, x groups, i, from, to int) (gpu.Column, error) {
	parts := o.parts[i]
	out, err := o.column(t, x, parts[0], from, to)
	if err != nil || len(parts) == 1 {
		return out, err
	}
	defer out.Release()
	n, err := o.column(t, x, parts[1], from, to)
	if err != nil {
		return gpu.Column{}, err
	}
	defer n.Release()
	avg, err := t.Queue.Eval(t.Lease, quotient(out.Type), []gpu.Column{out, n}, to-from)
	if err != nil {
		return gpu.Column{}, err
	}
	return avg[0], nil
}

// column returns a partial aggregate of groups [from, to) in its final type. Partial sums of a decimal are
// integers, which must fit the digits of the decimal.
func (o *hashGroupBy) column(t operators.Task, x groups, partial, from, to int) (gpu.Column, error) {
	out, err := x.column(t, partial, from, to)
	want := o.final(o.accumulated[partial])
	if err == nil && out.Type != want {
		partial := out
		out, err = digits(t, partial, want)
		partial.Release()
	}
	return out, o.naming(partial, err)
}

// digits returns integers as the digits of a decimal of type want. An integer of more than
// gpu.MaxPrecision digits is an error.
func digits(t operators.Task, c gpu.Column, want gpu.Type) (gpu.Column, error) {
	p := &gpu.Program{Inputs: []gpu.Type{c.Type}, Outputs: []int{1}, Code: []gpu.Instr{
		{Op: gpu.OpCast, Type: gpu.DecimalOf(gpu.MaxPrecision, 0), Args: []int{0}, Mask: -1, Text: "sum"}}}
	out, err := t.Queue.Eval(t.Lease, p, []gpu.Column{c}, c.Len)
	if err != nil {
		return gpu.Column{}, err
	}
	out[0].Type = want
	return out[0], nil
}

// emitEmpty emits the groups of no rows: counts are 0, all other aggregates are null.
func (o *hashGroupBy) emitEmpty(t operators.Task, emit operators.Emit) error {
	values := make([]gpu.Scalar, len(o.Aggregates))
	for i, a := range o.Aggregates {
		if values[i] = gpu.Null(a.Output); a.Kind == gpu.Count || a.Kind == gpu.CountAll {
			values[i] = gpu.IntScalar(a.Output, 0)
		}
	}
	return operators.EmitGroups(t, operators.PickFields(o.In, o.Keys), o.Always, values, o.Out, emit)
}
