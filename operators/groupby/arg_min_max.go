package groupby

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
)

// ArgMinMax says which row of a group has the value of an ArgValue aggregate: the first in an order; of
// rows that are equal in it, the first of the input.
type ArgMinMax struct {
	Order []sort.Key
	// Last selects the last of the rows that are equal in the order, instead of the first.
	Last bool
	// The row must not be null in any of Columns, and true in the BOOLEAN column Filter, -1 for
	// none.
	Columns []int
	Filter  int
}

// argMinMax is an ArgMinMax with the partial aggregates [at, end): the position, the keys of the order, and the
// value.
type argMinMax struct {
	*ArgMinMax
	at, end int
}

// candidates says which rows an ArgMinMax may select. Those with the same candidates share a column
// of positions.
type candidates struct {
	columns []int
	filter  int
}

func (l *ArgMinMax) candidates(s *gpu.Schema) candidates {
	columns := slices.DeleteFunc(slices.Clone(l.Columns), func(c int) bool { return !s.Fields[c].Nullable })
	slices.Sort(columns)
	return candidates{slices.Compact(columns), l.Filter}
}

// candidateRows returns the distinct candidates. Their columns of positions follow the columns of the input.
func (s *Spec) candidateRows() (list []candidates) {
	for _, a := range s.Aggregates {
		if a.ArgMinMax == nil {
			continue
		}
		if p := a.ArgMinMax.candidates(s.In); !slices.ContainsFunc(list, p.equal) {
			list = append(list, p)
		}
	}
	return list
}

func (p candidates) equal(q candidates) bool {
	return p.filter == q.filter && slices.Equal(p.columns, q.columns)
}

// positioned returns the schema of the input with the positions of candidates.
func (s *Spec) positioned(sets []candidates) *gpu.Schema {
	if len(sets) == 0 {
		return s.In
	}
	in := &gpu.Schema{Fields: slices.Clone(s.In.Fields)}
	for range sets {
		in.Fields = append(in.Fields, gpu.Field{Name: "position", Type: gpu.Of(gpu.Int64), Nullable: true})
	}
	return in
}

// positionRows is the binary logarithm of the maximum number of rows of a morsel. Beyond it
// positions would not have the order of the input.
const positionRows = 35

// position adds the positions of candidates to a stride of a morsel.
func (l *local) position(number int, s *gpu.Stride) error {
	if len(l.candidates) == 0 {
		return nil
	}
	if number != l.morsel {
		l.morsel, l.before = number, 0
	}
	first := int64(number)<<positionRows + l.before
	l.before += int64(s.Rows)
	t := l.task
	none, err := t.Queue.NewBitmap(t.Lease, s.Rows)
	if err != nil {
		return err
	}
	defer none.Release()
	rows, err := t.Queue.Select(t.Lease, none, false)
	if err != nil {
		return err
	}
	defer rows.Release()
	cols := s.Cols[:len(s.Cols):len(s.Cols)]
	for _, p := range l.candidates {
		prog, in := p.program(s, rows, first)
		out, err := t.Queue.Eval(t.Lease, prog, in, s.Rows)
		if err != nil {
			gpu.ReleaseColumns(cols[len(s.Cols):])
			return err
		}
		cols = append(cols, out[0])
	}
	s.Cols, s.Schema = cols, l.In
	return nil
}

// program returns the program that computes positions, and its inputs. Positions count from first;
// they are null for rows that may not be selected.
func (p candidates) program(s *gpu.Stride, rows gpu.Column, first int64) (*gpu.Program, []gpu.Column) {
	long, truth := gpu.Of(gpu.Int64), gpu.Of(gpu.Bool)
	in := []gpu.Column{rows}
	for _, c := range p.columns {
		in = append(in, s.Cols[c])
	}
	if p.filter >= 0 {
		in = append(in, s.Cols[p.filter])
	}
	prog := &gpu.Program{}
	for _, c := range in {
		prog.Inputs = append(prog.Inputs, c.Type)
	}
	add := func(i gpu.Instr) int {
		i.Mask, i.Text = -1, "position"
		prog.Code = append(prog.Code, i)
		return len(in) + len(prog.Code) - 1
	}
	at := add(gpu.Instr{Op: gpu.OpAdd, Type: long, Args: []int{
		add(gpu.Instr{Op: gpu.OpCast, Type: long, Args: []int{0}}),
		add(gpu.Instr{Op: gpu.OpConst, Type: long, Value: gpu.IntScalar(long, first)})}})
	var conditions []int
	for i := range p.columns {
		conditions = append(conditions, add(gpu.Instr{Op: gpu.OpIsNotNull, Type: truth, Args: []int{1 + i}}))
	}
	if p.filter >= 0 {
		conditions = append(conditions, len(in)-1)
	}
	if len(conditions) > 0 {
		may := conditions[0]
		if len(conditions) > 1 {
			may = add(gpu.Instr{Op: gpu.OpAnd, Type: truth, Args: conditions})
		}
		null := add(gpu.Instr{Op: gpu.OpConst, Type: long, Value: gpu.Null(long)})
		at = add(gpu.Instr{Op: gpu.OpSelect, Type: long, Args: []int{may, at, null}})
	}
	prog.Outputs = []int{at}
	return prog, in
}

// argMinMaxState has the selected rows of the groups of a table. Its partial aggregates begin at number at, and are
// columns cols of the table's strides.
type argMinMaxState struct {
	gpu.ArgMinMaxState
	at   int
	cols []int
}

// newArgMinMax returns the states of a table. inputs are the columns of the partial aggregates in its strides.
func (o *hashGroupBy) newArgMinMax(t operators.Task, inputs []int) (out []argMinMaxState, err error) {
	for _, l := range o.argMinMax {
		spec := gpu.ArgMinMax{Last: l.Last}
		for _, k := range l.Order {
			spec.Order = append(spec.Order, gpu.Direction{Descending: k.Descending, NullsFirst: k.NullsFirst})
		}
		for _, m := range o.accumulated[l.at:l.end] {
			spec.Columns = append(spec.Columns, o.final(m))
		}
		x, err := t.Queue.NewArgMinMax(t.Lease, spec)
		if err != nil {
			for _, x := range out {
				x.Release()
			}
			return nil, err
		}
		out = append(out, argMinMaxState{x, l.at, inputs[l.at:l.end]})
	}
	return out, nil
}
