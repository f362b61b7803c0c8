package eval

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// output is one column of a result under construction.
type output struct {
	register int // the register that batches compute; -1 if col is complete
	col      gpu.Column
	nulls    atomic.Bool
	// parts are the bytes of a string column, one buffer for each batch.
	parts []*gpu.Buffer
}

// openOutputs allocates the columns. Outputs that are inputs or dictionary results are
// shared.
func (e *evaluation) openOutputs() error {
	e.outs = make([]output, len(e.p.Outputs))
	for i, r := range e.p.Outputs {
		e.outs[i].register = -1
		o := &e.outs[i]
		if r < len(e.in) {
			o.col = e.in[r].Retain()
			continue
		}
		if e.dicts.isString(r) {
			c, err := e.dictColumn(r)
			if err != nil {
				return err
			}
			o.col = c
			continue
		}
		o.register = r
		t := e.typeOf(r)
		o.col = gpu.Column{Type: t, Len: e.n}
		var err error
		if o.col.Valid, err = e.lease.Alloc(gpu.BitmapBytes(e.n)); err != nil {
			return err
		}
		switch {
		case t.IsVar():
			o.parts = make([]*gpu.Buffer, (e.n+batchRows-1)/batchRows)
			if o.col.Offsets, err = e.lease.Alloc(int64(e.n+1) * 4); err == nil {
				gpu.Values[int32](o.col.Offsets, 1)[0] = 0
			}
		case t.Kind == gpu.Bool:
			o.col.Data, err = e.lease.Alloc(gpu.BitmapBytes(e.n))
		default:
			o.col.Data, err = e.lease.Alloc(int64(e.n) * int64(t.Width()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// computeInto makes the batch compute a register in the memory of its output.
func (f *frame) computeInto(o *output) {
	if o.register < 0 || f.e.dicts.has(o.register) {
		return
	}
	v := &f.vecs[o.register]
	switch t := o.col.Type; {
	case t.IsVar() || v.constant:
	case t.Kind == gpu.Bool:
		v.bits = wordsFrom(o.col.Data, f.lo, f.n, o.col.Len)
	default:
		v.raw = unsafe.Pointer(&o.col.Data.Bytes()[f.lo*t.Width()])
	}
}

// store completes the rows of an output. It copies values that were not computed in its memory, and
// writes the validity.
func (f *frame) store(o *output) error {
	if o.register < 0 {
		return nil
	}
	v := &f.vecs[o.register]
	valid := wordsFrom(o.col.Valid, f.lo, f.n, o.col.Len)
	if v.valid == nil {
		fill(valid, uint64(math.MaxUint64))
	} else {
		copy(valid, v.valid)
		if !o.nulls.Load() && !allSet(v.valid, f.n) {
			o.nulls.Store(true)
		}
	}
	switch t := o.col.Type; {
	case t.IsVar():
		return f.storeStrings(o, v)
	case t.Kind == gpu.Bool:
		copy(wordsFrom(o.col.Data, f.lo, f.n, o.col.Len), v.bits)
	default:
		to := o.col.Data.Bytes()[f.lo*t.Width() : (f.lo+f.n)*t.Width()]
		if v.raw != unsafe.Pointer(&to[0]) {
			copy(to, unsafe.Slice((*byte)(v.raw), len(to)))
		}
	}
	return nil
}

func allSet(words []uint64, n int) bool {
	for _, w := range words[:n/64] {
		if w != math.MaxUint64 {
			return false
		}
	}
	rest := uint(n % 64)
	return rest == 0 || ^words[n/64]<<(64-rest) == 0
}

// storeStrings writes the lengths of a batch's strings as offsets within the batch, and
// their bytes to a buffer of the batch.
func (f *frame) storeStrings(o *output, v *vec) error {
	total := int64(0)
	offsets := gpu.Values[int32](o.col.Offsets, f.e.n+1)[f.lo+1 : f.lo+f.n+1]
	for i, s := range v.str[:f.n] {
		if v.valid == nil || v.valid[i>>6]>>(i&63)&1 != 0 {
			total += int64(len(s))
		}
		if total > math.MaxInt32 {
			return gpu.TooManyBytes(total, f.e.n)
		}
		offsets[i] = int32(total)
	}
	part, err := f.e.lease.Alloc(total)
	if err != nil {
		return err
	}
	data := part.Bytes()
	for i, s := range v.str[:f.n] {
		if v.valid == nil || v.valid[i>>6]>>(i&63)&1 != 0 {
			data = data[copy(data, s):]
		}
	}
	o.parts[f.lo/batchRows] = part
	return nil
}

// closeOutputs concatenates the strings of the batches, and drops validity bitmaps without nulls.
func (e *evaluation) closeOutputs() ([]gpu.Column, error) {
	cols := make([]gpu.Column, len(e.outs))
	for i := range e.outs {
		o := &e.outs[i]
		if o.register >= 0 {
			if !o.nulls.Load() {
				o.col.Valid.Release()
				o.col.Valid = nil
			}
			if o.col.Type.IsVar() {
				if err := e.joinStrings(o); err != nil {
					return nil, err
				}
			}
		}
	}
	for i := range e.outs {
		cols[i] = e.outs[i].col
	}
	return cols, nil
}

func (e *evaluation) joinStrings(o *output) error {
	starts := make([]int64, len(o.parts)+1)
	for i, part := range o.parts {
		starts[i+1] = starts[i] + part.Size()
	}
	total := starts[len(o.parts)]
	if total > math.MaxInt32 {
		return gpu.TooManyBytes(total, e.n)
	}
	data, err := e.lease.Alloc(total)
	if err != nil {
		return err
	}
	o.col.Data = data
	offsets := gpu.Values[int32](o.col.Offsets, e.n+1)[1:]
	err = e.cores.For(e.n, grain, func(lo, hi int) error {
		for ; lo < hi; lo += batchRows {
			k := lo / batchRows
			copy(data.Bytes()[starts[k]:], o.parts[k].Bytes())
			for j := range offsets[lo:min(lo+batchRows, e.n)] {
				offsets[lo+j] += int32(starts[k])
			}
		}
		return nil
	})
	o.releaseParts()
	return err
}

func (o *output) releaseParts() {
	for i, part := range o.parts {
		part.Release()
		o.parts[i] = nil
	}
}

func (e *evaluation) releaseOutputs() {
	for i := range e.outs {
		e.outs[i].releaseParts()
		e.outs[i].col.Release()
	}
}
