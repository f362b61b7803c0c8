// Package partition decides to which partition an exchange sends each row, by the hash of its keys or by ranges of
// them. Partitions are devices of a run, or belong to tasks.
package partition

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
)

// ByHash returns an INTEGER column with the partition of each row, of parts, by the hash of its keys. It costs a hash
// and a division per row.
func ByHash(t operators.Task, in *gpu.Stride, keys []int, seed uint64, parts int) (to gpu.Column, err error) {
	hash, err := t.Queue.Hash(t.Lease, operators.Pick(in.Cols, keys), seed)
	if err != nil {
		return to, err
	}
	defer hash.Release()
	list, err := t.Queue.Eval(t.Lease, remainder(parts), []gpu.Column{hash}, in.Rows)
	if err != nil {
		return to, err
	}
	return list[0], nil
}

// remainder returns the program that divides a hash by a number and returns the remainder.
func remainder(n int) *gpu.Program {
	t, to := gpu.Of(gpu.Uint64), gpu.Of(gpu.Int32)
	return &gpu.Program{Inputs: []gpu.Type{t}, Outputs: []int{3}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: t, Value: gpu.IntScalar(t, int64(n)), Mask: -1},
		{Op: gpu.OpMod, Type: t, Args: []int{0, 1}, Mask: -1, Text: "partition"},
		{Op: gpu.OpCast, Type: to, Args: []int{2}, Mask: -1, Text: "partition"}}}
}

// Spec says how rows are divided.
type Spec struct {
	In    *gpu.Schema
	Parts int        // partitions
	Keys  []int      `json:",omitempty"` // by whose hash
	Seed  uint64     `json:",omitempty"` // of the hash
	By    []sort.Key `json:",omitempty"` // or by whose ranges
	// Splitters are the keys of the first row of each range but the first. There may be fewer than Parts-1.
	Splitters [][]gpu.Scalar `json:",omitempty"`
}

// Out returns the schema of the rows: that of the input, and the partition of each row, an INTEGER.
func (s *Spec) Out() *gpu.Schema {
	return gpu.NewSchema(append(s.In.Fields[:s.In.Len():s.In.Len()],
		gpu.Field{Name: "partition", Type: gpu.Of(gpu.Int32)})...)
}

// New returns the operator that adds the partition of each row, as the last column.
func New(s Spec) operators.Streaming { return &router{s, s.Out()} }

type router struct {
	Spec
	out *gpu.Schema
}

func (o *router) Schema() *gpu.Schema { return o.out }
func (o *router) Close() error        { return nil }

func (o *router) NewLane(t operators.Task) (operators.Lane, error) {
	l := &lane{router: o, task: t}
	if len(o.By) == 0 {
		return l, nil
	}
	s := &gpu.Stride{Schema: &gpu.Schema{}, Rows: len(o.Splitters)}
	for i, k := range o.By {
		f := o.In.Fields[k.Column]
		s.Schema.Fields = append(s.Schema.Fields, f)
		column := make([]gpu.Scalar, len(o.Splitters))
		for r, key := range o.Splitters {
			column[r] = key[i]
		}
		s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, column))
	}
	up, err := t.Queue.Upload(t.Lease, s)
	if err != nil {
		s.Release()
		return nil, err
	}
	l.splitters = up
	return l, nil
}

type lane struct {
	operators.NoFlush
	*router
	task      operators.Task
	splitters *gpu.Stride // in memory of the device; nil for a hash
}

func (l *lane) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	var to gpu.Column
	var err error
	if l.splitters != nil {
		to, err = sort.RangeOf(l.task, l.splitters, l.By, s)
	} else {
		to, err = ByHash(l.task, s, l.Keys, l.Seed, l.Parts)
	}
	if err != nil {
		s.Release()
		return err
	}
	out := &gpu.Stride{Schema: l.out, Cols: append(s.Cols[:len(s.Cols):len(s.Cols)], to), Rows: s.Rows}
	for _, c := range s.Cols {
		c.Retain()
	}
	s.Release()
	return emit(out)
}

func (l *lane) Close() error {
	if l.splitters != nil {
		l.splitters.Release()
	}
	return nil
}
