package bench

import (
	"fmt"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/operators/window"
)

// windowCase is a function over the columns key, order and value, of 4 bytes each. Without
// partition all rows are one partition. With group it returns one row for each key.
type windowCase struct {
	name      string
	partition bool
	function  window.Function
	group     *window.GroupFunction
}

// windowCases are the functions that the benchmark measures.
func windowCases() []windowCase {
	whole := window.Frame{To: window.Bound{Kind: window.UnboundedFollowing}}
	rows := func(before, after int64) window.Frame {
		return window.Frame{Unit: window.Rows, From: window.Bound{Kind: window.Preceding, Offset: before},
			To: window.Bound{Kind: window.Following, Offset: after}}
	}
	running := window.Frame{Unit: window.Rows, To: window.Bound{Kind: window.CurrentRow}}
	aggregate := func(kind gpu.AggregateKind, f window.Frame) window.Function {
		out := gpu.Of(gpu.Int32)
		if kind == gpu.Sum {
			out = gpu.SumType(out)
		}
		return window.Function{Kind: window.Aggregate, Aggregate: kind, Value: 2, Offset: -1, Default: -1, Frame: f,
			Output: out}
	}
	long := gpu.Of(gpu.Int64)
	rank := window.Function{Kind: window.RowNumber, Value: -1, Offset: -1, Default: -1, Output: long}
	quantile := window.GroupFunction{Kind: window.QuantileDisc, Value: 2, Key: -1, Filter: -1, IgnoreNulls: true,
		Fraction: 0.5, Numerator: 1, Denominator: 2, Output: gpu.Of(gpu.Int32)}
	return []windowCase{
		{"row_number", true, rank, nil},
		{"row_number of all rows", false, rank, nil},
		{"lag", true, window.Function{Kind: window.Lag, Value: 2, Offset: -1, Default: -1, Output: gpu.Of(gpu.Int32)},
			nil},
		{"running sum", true, aggregate(gpu.Sum, running), nil},
		{"sum of the partition", true, aggregate(gpu.Sum, whole), nil},
		{"sum of 21 rows", true, aggregate(gpu.Sum, rows(10, 10)), nil},
		{"max of 21 rows", true, aggregate(gpu.Max, rows(10, 10)), nil},
		{"max of 2001 rows", true, aggregate(gpu.Max, rows(1000, 1000)), nil},
		{"median", true, window.Function{}, &quantile},
	}
}

// window drives the operator of window functions with one stride of three columns of 4 bytes. It
// counts the bytes of the columns, once in and once out, and of the function's result.
func (b *bench) window() error {
	rate, err := b.copyRate()
	if err != nil {
		return err
	}
	values, err := b.columns(b.rows, 2)
	if err != nil {
		return err
	}
	defer gpu.ReleaseColumns(values)
	for _, bits := range []int{10, 20} {
		if 1<<bits > b.rows {
			break
		}
		keys, err := b.column(b.rows, func(v []uint32, rnd *rand.Rand) {
			for i := range v {
				v[i] = spread(rnd.Uint32() >> (32 - bits))
			}
		})
		if err != nil {
			return err
		}
		for _, c := range windowCases() {
			name := fmt.Sprintf("%s, 2^%d partitions", c.name, bits)
			if !c.partition {
				if name = c.name; bits > 10 {
					continue
				}
			}
			bytes := int64(b.rows) * int64(24+c.function.Output.Width())
			if c.group != nil {
				bytes = int64(b.rows) * 12
			}
			err := b.time(name, b.rows, bytes, "copy", rate, func() error {
				return b.windowOnce(c, []gpu.Column{keys, values[0], values[1]})
			})
			if err != nil {
				keys.Release()
				return err
			}
		}
		keys.Release()
	}
	return nil
}

// windowOnce runs a case over columns, which remain the caller's.
func (b *bench) windowOnce(c windowCase, cols []gpu.Column) (err error) {
	schema := &gpu.Schema{}
	s := &gpu.Stride{Schema: schema, Rows: cols[0].Len}
	for i, col := range cols {
		s.Cols = append(s.Cols, col.Retain())
		schema.Fields = append(schema.Fields, gpu.Field{Name: fmt.Sprint("c", i), Type: col.Type})
	}
	out := append(schema.Fields[:3:3], gpu.Field{Name: "f", Type: c.function.Output})
	var op window.Window
	if c.group != nil {
		op, err = window.NewGroups(window.GroupSpec{In: schema, Keys: []int{0},
			Functions: []window.GroupFunction{*c.group},
			Out:       gpu.NewSchema(schema.Fields[0], gpu.Field{Name: "f", Type: c.group.Output})})
	} else {
		spec := window.Spec{In: schema, Order: []sort.Key{{Column: 1}}, Functions: []window.Function{c.function},
			Keep: []int{0, 1, 2}, Out: gpu.NewSchema(out...)}
		if c.partition {
			spec.Partition = []int{0}
		}
		op, err = window.New(spec)
	}
	if err != nil {
		s.Release()
		return err
	}
	defer op.Close()
	t := operators.Task{Device: b.dev, Queue: b.q, Lease: b.l, StrideRows: max(1, b.dev.StrideRows(16)), Lanes: 1}
	lane, err := op.NewLocal(t)
	if err != nil {
		s.Release()
		return err
	}
	defer lane.Close()
	if err := lane.Push(b.ctx, 0, s); err != nil {
		return err
	}
	if err := lane.Combine(b.ctx); err != nil {
		return err
	}
	if err := op.Finalize(b.ctx, t); err != nil {
		return err
	}
	rows := 0
	for part := range op.Parts() {
		err := op.Emit(b.ctx, t, part, func(s *gpu.Stride) error {
			rows += s.Rows
			s.Release()
			return nil
		})
		if err != nil {
			return err
		}
	}
	if n := cols[0].Len; c.group == nil && rows != n {
		return fmt.Errorf("%w: %d rows of %d", ErrWrong, rows, n)
	}
	return nil
}
