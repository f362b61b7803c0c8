package groupby

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
)

// Leader says which row of a group has the value of a Lead aggregate: the first in an order; of
// rows that are equal in it, the first of the input.
type Leader struct {
	Order []sort.Key
	// Last selects the last of the rows that are equal in the order, instead of the first.
	Last bool
	// The row must not be null in any of Columns, and true in the BOOLEAN column Filter, -1 for
	// none.
	Columns []int
	Filter  int
}

// leader is a Leader with the measures [at, end): the position, the keys of the order, and the
// value.
type leader struct {
	*Leader
	at, end int
}

// lead says which rows a Leader may select. Leaders with the same lead share a column of positions.
type lead struct {
	columns []int
	filter  int
}

func (l *Leader) lead(s *gpu.Schema) lead {
	columns := slices.DeleteFunc(slices.Clone(l.Columns), func(c int) bool { return !s.Fields[c].Nullable })
	slices.Sort(columns)
	return lead{slices.Compact(columns), l.Filter}
}

// leadRows returns the distinct leads. Their columns of positions follow the columns of the input.
func (s *Spec) leadRows() (list []lead) {
	for _, a := range s.Aggregates {
		if a.Leader == nil {
			continue
		}
		if p := a.Leader.lead(s.In); !slices.ContainsFunc(list, p.equal) {
			list = append(list, p)
		}
	}
	return list
}

func (p lead) equal(q lead) bool { return p.filter == q.filter && slices.Equal(p.columns, q.columns) }

// positioned returns the schema of the input with the positions of leads.
func (s *Spec) positioned(leads []lead) *gpu.Schema {
	if len(leads) == 0 {
		return s.In
	}
	in := &gpu.Schema{Fields: slices.Clone(s.In.Fields)}
	for range leads {
		in.Fields = append(in.Fields, gpu.Field{Name: "position", Type: gpu.Of(gpu.Int64), Nullable: true})
	}
	return in
}

// positionRows is the binary logarithm of the maximum number of rows of a morsel. Beyond it
// positions would not have the order of the input.
const positionRows = 35

// position adds the positions of leads to a stride of a morsel.
func (l *local) position(number int, s *gpu.Stride) error {
	if len(l.leads) == 0 {
		return nil
	}
	if number != l.number {
		l.number, l.before = number, 0
	}
	first := int64(number)<<positionRows + l.before
	l.before += int64(s.Rows)
	t := l.task
	none, err := t.Queue.Marks(t.Lease, s.Rows)
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
	for _, p := range l.leads {
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
// they are null for rows that the leader may not select.
func (p lead) program(s *gpu.Stride, rows gpu.Column, first int64) (*gpu.Program, []gpu.Column) {
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

// leadersOf has the leaders of the groups of a table. Its measures begin at number at, and are
// columns cols of the table's strides.
type leadersOf struct {
	gpu.Leaders
	at   int
	cols []int
}

// newLeaders returns the leaders of a table. inputs are the columns of the measures in its strides.
func (o *hashGroupBy) newLeaders(t operators.Task, inputs []int) (out []leadersOf, err error) {
	for _, l := range o.leaders {
		spec := gpu.Leader{Last: l.Last}
		for _, k := range l.Order {
			spec.Order = append(spec.Order, gpu.Direction{Descending: k.Descending, NullsFirst: k.NullsFirst})
		}
		for _, m := range o.measured[l.at:l.end] {
			spec.Columns = append(spec.Columns, o.final(m))
		}
		x, err := t.Queue.NewLeaders(t.Lease, spec)
		if err != nil {
			for _, x := range out {
				x.Release()
			}
			return nil, err
		}
		out = append(out, leadersOf{x, l.at, inputs[l.at:l.end]})
	}
	return out, nil
}
