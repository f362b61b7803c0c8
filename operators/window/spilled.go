package window

import (
	"context"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
)

const (
	// While rows are computed, they take about workFactor times their bytes, and workBytes per row.
	workFactor = 3
	workBytes  = 32
)

// spills reports whether rows may spill: partitioned by hashes of keys, or as a sequence.
func (o *collection) spills(t operators.Task) bool {
	return t.Spill != nil && (len(o.keys) > 0 || o.sequence != nil)
}

// bytes returns the bytes of collected strides.
func bytes(own []cut) (n int64) {
	for _, c := range own {
		n += c.rows.Bytes()
	}
	return n
}

// work estimates the memory that lanes need besides the rows if they compute all parts at once.
func (o *collection) work() int64 {
	return bytes(o.held) + workBytes*o.rows
}

// start makes rows spill: those that lanes hold, and all later ones. A further column has the
// number of their stride in the order of the input, because strides are read back in any order.
func (o *collection) start(t operators.Task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started.Load() {
		return
	}
	if o.sequence != nil {
		o.started.Store(true)
		return
	}
	fields := append(slices.Clone(o.in.Fields), gpu.Field{Name: "stride", Type: gpu.Of(gpu.Int64)})
	o.numbered = gpu.NewSchema(fields...)
	o.spilled = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, o.numbered, 1<<fanOut)
	o.started.Store(true)
}

// spill takes ownership of collected strides, also on error, and lets them spill.
func (o *collection) spill(t operators.Task, own []cut) error {
	for i, c := range own {
		err := o.spillOne(t, c)
		if err != nil {
			for _, c := range own[i+1:] {
				c.rows.Release()
			}
			return err
		}
	}
	return nil
}

func (o *collection) spillOne(t operators.Task, c cut) error {
	if c.offsets == nil {
		if err := o.partition(t, &c); err != nil {
			c.rows.Release()
			return err
		}
	}
	number := gpu.Of(gpu.Int64)
	cols, err := t.Queue.Eval(t.Lease, &gpu.Program{Outputs: []int{0},
		Code: []gpu.Instr{{Op: gpu.OpConst, Type: number, Value: gpu.IntScalar(number, int64(c.number)<<32|int64(c.at)),
			Mask: -1}}}, nil, c.rows.Rows)
	if err != nil {
		c.rows.Release()
		return err
	}
	c.rows.Schema, c.rows.Cols = o.numbered, append(c.rows.Cols, cols...)
	return o.spilled.Append(c.rows, 0, c.offsets)
}

// group groups the partitions into parts that fit memory.
func (o *collection) group(t operators.Task) {
	room := t.Share(grant.WindowParts)
	need := func(from, to int) int64 {
		return workFactor*o.spilled.Bytes(from, to) + workBytes*o.spilled.Rows(from, to)
	}
	for from := 0; from < o.spilled.Len(); {
		to := from + 1
		for to < o.spilled.Len() && need(from, to+1) <= room {
			to++
		}
		if o.spilled.Rows(from, to) > 0 {
			o.parts = append(o.parts, part{from: from, to: to})
		}
		from = to
	}
}

// read returns the rows of a part that may have spilled.
func (o *collection) read(ctx context.Context, t operators.Task, p part) (strides []*gpu.Stride, err error) {
	if n := o.spilled.Rows(p.from, p.to); n > gpu.MaxRows {
		return nil, tooMany(n)
	}
	err = o.spilled.Each(ctx, t.Queue, t.Lease, p.from, p.to, func(s *gpu.Stride, _ int) error {
		strides = append(strides, s)
		return nil
	})
	if err != nil {
		for _, s := range strides {
			s.Release()
		}
		return nil, err
	}
	o.spilled.Drop(p.from, p.to)
	return strides, nil
}

func tooMany(rows int64) error {
	return gpu.Exceeded("%d rows in an order: in memory at most %d are possible at once", rows, gpu.MaxRows)
}
