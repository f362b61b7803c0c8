// Package sort orders rows: all of them, or the first few.
package sort

import (
	"context"
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Key is one column of the order.
type Key struct {
	Column                 int
	Descending, NullsFirst bool
}

// Spec describes a sort. The first key is most significant. Rows with equal keys keep
// their order.
type Spec struct {
	In   *gpu.Schema
	Keys []Key
	// Offset rows are skipped, then Limit rows are returned. A Limit of -1 returns all.
	Offset, Limit int64
	// Out, if set, is the schema of the result of a top-k: the first columns of In, or all of them and the position of
	// each row, a BIGINT, which is the number of its morsel. nil means In.
	Out *gpu.Schema `json:",omitempty"`
}

// IsTopK reports whether a sort that returns so many rows after an offset keeps only these, rather than all rows.
func IsTopK(offset, limit int64) bool {
	return limit >= 0 && limit <= topRows && offset <= topRows-limit
}

// WithPosition returns a schema with the column of positions of Spec.Out.
func WithPosition(s *gpu.Schema) *gpu.Schema {
	return gpu.NewSchema(append(s.Fields[:s.Len():s.Len()], gpu.Field{Name: "morsel", Type: gpu.Of(gpu.Int64)})...)
}

// Sort is the operator: Blocking, and then a Source.
type Sort interface {
	operators.Blocking
	operators.Source
}

// New returns the sort of a spec: a top-k if offset + limit is at most topRows, otherwise a full
// sort.
func New(s Spec) (Sort, error) {
	if len(s.Keys) == 0 {
		return nil, fmt.Errorf("sort wants at least one key")
	}
	o := &sorter{Spec: s, held: s.In, numbered: WithPosition(s.In), top: -1}
	if IsTopK(s.Offset, s.Limit) {
		o.top = int(s.Offset + s.Limit)
		o.held = o.numbered
	}
	if o.Out == nil {
		o.Out = s.In
	}
	for i, f := range o.Out.Fields {
		if o.Out != s.In && (o.top < 0 || i >= o.held.Len() || f.Type != o.held.Fields[i].Type) {
			return nil, fmt.Errorf("sort of rows that cannot return column %d, %s", i, f.Name)
		}
	}
	return o, nil
}

// topRows bounds the rows that a top-k keeps.
const topRows = 1 << 20

// sorter collects the rows of all lanes and sorts them with all cores. Lanes then gather ranges of
// the result. Rows that take much of the budget become sorted runs, which may spill (external.go).
//
// A top-k drops rows earlier: a lane with many more rows than needed sorts them and keeps the
// first. If its rows exceed the budget, but are too few to drop half of them, it makes runs like a
// sort. In a top-k, and in the runs of several lanes, an additional column has the number of each
// row's morsel, so that rows with equal keys keep their order.
type sorter struct {
	Spec
	held     *gpu.Schema // schema of the collected strides
	numbered *gpu.Schema // In and the number of the morsel
	top      int         // rows to keep, -1 for all

	mu         sync.Mutex
	rows       operators.Collected
	all        *operators.Rows // set by Finalize
	ids        gpu.Column      // the order of the rows
	from, to   int             // range of ids that is the result
	strideRows int
	external
}

func (o *sorter) Schema() *gpu.Schema { return o.Out }

func (o *sorter) NewLocal(t operators.Task) (operators.Local, error) {
	if o.top < 0 {
		t.Lease.Advise("the sort holds all its rows: select fewer columns, filter first, or add a limit")
	}
	return &local{sorter: o, task: t, own: operators.Collected{Lease: t.Lease}}, nil
}

// local has the rows that one lane has collected.
type local struct {
	*sorter
	task operators.Task
	own  operators.Collected
}

func (l *local) Push(ctx context.Context, number int, s *gpu.Stride) error {
	switch {
	case l.top == 0:
		s.Release()
		return nil
	case l.top < 0:
		if err := l.own.Push(ctx, number, s); err != nil {
			return err
		}
		return l.makeRuns(l.task, &l.own, false)
	}
	held, err := l.withNumber(l.task, s, number)
	if err != nil {
		return err
	}
	rows := held.Rows
	if err := l.own.Push(ctx, number, held); err != nil {
		return err
	}
	// Cut if most collected rows cannot be in the result, or if they take much memory.
	crowded := l.crowded(l.task, &l.own)
	if rows > l.top || l.own.Rows > 2*l.top && (crowded || l.own.Rows > 2*l.top+l.task.StrideRows) {
		return l.cut(ctx)
	}
	if crowded {
		return l.makeRuns(l.task, &l.own, false)
	}
	return nil
}

// withNumber returns a stride with the number of its morsel as the last column. It takes the stride
// over.
func (o *sorter) withNumber(t operators.Task, s *gpu.Stride, number int) (*gpu.Stride, error) {
	order, err := t.Queue.Eval(t.Lease, constant(number), nil, s.Rows)
	if err != nil {
		s.Release()
		return nil, err
	}
	return &gpu.Stride{Schema: o.numbered, Cols: append(s.Cols[:len(s.Cols):len(s.Cols)], order...), Rows: s.Rows}, nil
}

// constant returns the program of a BIGINT column of one value.
func constant(v int) *gpu.Program {
	t := gpu.Of(gpu.Int64)
	return &gpu.Program{Code: []gpu.Instr{{Op: gpu.OpConst, Type: t, Value: gpu.IntScalar(t, int64(v)), Mask: -1}},
		Outputs: []int{0}}
}

// cut sorts the rows of the lane and keeps the first top rows.
func (l *local) cut(ctx context.Context) error {
	all, ids, err := l.sorted(l.task, l.held, l.own.Take())
	if err != nil {
		return err
	}
	defer all.Release()
	defer ids.Release()
	s, err := all.GatherRange(l.task, ids, 0, min(l.top, ids.Len))
	if err != nil {
		return err
	}
	return l.own.Push(ctx, 0, s)
}

func (l *local) Combine(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows.Append(&l.own)
	return nil
}

func (l *local) Close() error { return l.own.Close() }

// sorted takes strides over and returns their rows, and the order of the rows.
func (o *sorter) sorted(t operators.Task, schema *gpu.Schema,
	strides []*gpu.Stride) (*operators.Rows, gpu.Column, error) {
	by := o.Keys
	if schema != o.In {
		by = append(by[:len(by):len(by)], Key{Column: o.In.Len()})
	}
	whole := make([]int, len(by))
	for i, k := range by {
		whole[i] = k.Column
	}
	all, err := operators.CollectRows(t, schema, strides, whole)
	if err != nil {
		return nil, gpu.Column{}, err
	}
	keys := make([]gpu.SortKey, len(by))
	for i, k := range by {
		keys[i] = gpu.SortKey{Column: all.Cols[k.Column], Descending: k.Descending, NullsFirst: k.NullsFirst}
	}
	ids, err := t.Queue.Sort(t.Lease, keys)
	if err != nil {
		all.Release()
		return nil, gpu.Column{}, err
	}
	return all, ids, nil
}

func (o *sorter) Finalize(_ context.Context, t operators.Task) error {
	o.strideRows = t.StrideRows
	if len(o.runs) > 0 || o.top < 0 && (o.rows.Rows > gpu.MaxRows || t.Spill.Always() && o.rows.Rows > 0) {
		o.rows.Sort()
		if err := o.makeRuns(t, &o.rows, true); err != nil {
			return err
		}
		return o.plan(t)
	}
	if o.rows.Rows == 0 {
		return nil
	}
	var err error
	if o.all, o.ids, err = o.sorted(t, o.held, o.rows.Take()); err != nil {
		return err
	}
	if o.held != o.Out {
		o.all.Keep(operators.First(o.Out.Len()), o.Out)
	}
	o.from = int(min(o.Offset, int64(o.ids.Len)))
	o.to = o.ids.Len
	if o.Limit >= 0 {
		o.to = o.from + int(min(o.Limit, int64(o.to-o.from)))
	}
	return nil
}

// Parts implements operators.Source: a part is a stride, or a range of the keys.
func (o *sorter) Parts() int {
	switch {
	case len(o.runs) > 0 && o.whole():
		return o.ranges()
	case len(o.runs) > 0:
		return 1
	case o.all == nil:
		return 0
	}
	return (o.to - o.from + o.strideRows - 1) / o.strideRows
}

// Emit implements operators.Source.
func (o *sorter) Emit(ctx context.Context, t operators.Task, part int, emit operators.Emit) error {
	if len(o.runs) > 0 {
		return o.emitRuns(ctx, t, part, emit)
	}
	from := o.from + part*o.strideRows
	return emitRows(ctx, t, o.all, o.ids, from, min(from+o.strideRows, o.to), emit)
}

// emitRows emits a stride of the rows at ids [from, to). If it is denied memory, it waits for
// strides on their way to the output.
func emitRows(ctx context.Context, t operators.Task, all *operators.Rows, ids gpu.Column, from, to int,
	emit operators.Emit) error {
	var s *gpu.Stride
	err := t.Lease.Patiently(ctx, func() (err error) {
		s, err = all.GatherRange(t, ids, from, to)
		return err
	})
	if err != nil {
		return err
	}
	return emit(s)
}

func (o *sorter) Close() error {
	o.rows.Close()
	if err := o.external.close(); err != nil {
		return err
	}
	if o.all != nil {
		o.all.Release()
		o.ids.Release()
		o.all, o.ids = nil, gpu.Column{}
	}
	return nil
}
