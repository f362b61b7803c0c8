package eval

import (
	"slices"

	"github.com/gstream/gstream/gpu"
)

// dictResults are the registers that depend on a single dictionary-coded input. They are computed
// once per dictionary value, and rows look them up by code. The last value of each is for null.
type dictResults struct {
	registers []int // ascending
	inputs    []int // input of each register
	values    []gpu.Column
}

func (d *dictResults) find(r int) int {
	i, ok := slices.BinarySearch(d.registers, r)
	if !ok {
		return -1
	}
	return i
}

func (d *dictResults) has(r int) bool { return d.find(r) >= 0 }

// isString reports whether a register's result can stay dictionary-coded.
func (d *dictResults) isString(r int) bool {
	i := d.find(r)
	return i >= 0 && d.values[i].Type.IsVar()
}

func (d *dictResults) release() { gpu.ReleaseColumns(d.values) }

// evalDictionaries computes the parts of the program that depend on a dictionary with
// fewer values than rows.
func (e *evaluation) evalDictionaries() error {
	has := func(input int) bool {
		d := e.in[input].Dict
		return d != nil && d.Values.Len > 0 && d.Values.Len < e.n
	}
	for _, part := range e.p.InputParts(has, func(int) bool { return false }) {
		if err := e.evalDictionary(part); err != nil {
			return err
		}
	}
	e.dicts.sort()
	return nil
}

func (d *dictResults) sort() {
	order := make([]int, len(d.registers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return d.registers[a] - d.registers[b] })
	s := dictResults{}
	for _, i := range order {
		s.registers = append(s.registers, d.registers[i])
		s.inputs = append(s.inputs, d.inputs[i])
		s.values = append(s.values, d.values[i])
	}
	*d = s
}

// evalDictionary evaluates a part of the program over the values of its input's dictionary and a
// null. It ignores an error unless memory was denied, because perhaps no row has the value: the part
// then runs on rows.
func (e *evaluation) evalDictionary(part gpu.InputPart) error {
	values, err := e.withNull(e.in[part.Input].Dict.Values)
	defer values.Release()
	if err != nil {
		return err
	}
	cols, err := Run(e.cores, e.lease, part.Program, []gpu.Column{values}, values.Len)
	if gpu.IsOutOfMemory(err) {
		return err
	}
	if err != nil {
		return nil
	}
	for i, r := range part.Registers {
		e.dicts.registers = append(e.dicts.registers, r)
		e.dicts.inputs = append(e.dicts.inputs, part.Input)
		e.dicts.values = append(e.dicts.values, cols[i])
	}
	return nil
}

// withNull returns the values of a dictionary followed by a null. It shares the bytes of strings.
// The caller releases it, even after an error.
func (e *evaluation) withNull(c gpu.Column) (out gpu.Column, err error) {
	n := c.Len
	out = gpu.Column{Type: c.Type, Len: n + 1}
	if out.Valid, err = e.lease.Alloc(gpu.BitmapBytes(n + 1)); err != nil {
		return out, err
	}
	valid := gpu.Words(out.Valid, n+1)
	fill(valid, ^uint64(0))
	valid[n/64] &^= 1 << (n % 64)
	if c.Type.IsVar() {
		if out.Offsets, err = e.lease.Alloc(int64(n+2) * 4); err != nil {
			return out, err
		}
		offsets := gpu.Values[int32](out.Offsets, n+2)
		copy(offsets, gpu.Values[int32](c.Offsets, n+1))
		offsets[n+1] = offsets[n]
		out.Data = c.Data.Retain()
		return out, nil
	}
	size := int64(n+1) * int64(c.Type.Width())
	if c.Type.Kind == gpu.Bool {
		size = gpu.BitmapBytes(n + 1)
	}
	if out.Data, err = e.lease.Alloc(size); err != nil {
		return out, err
	}
	clear(out.Data.Bytes())
	copy(out.Data.Bytes(), c.Data.Bytes())
	return out, nil
}

// batchCodes returns the codes of a dictionary input for the rows of the batch. A null row has the
// code after the last one.
func (f *frame) batchCodes(input int) []int32 {
	if codes := f.codes[input]; codes != nil {
		return codes
	}
	c := &f.e.in[input]
	codes := gpu.Values[int32](c.Data, c.Len)[f.lo : f.lo+f.n]
	if valid := wordsFrom(c.Valid, f.lo, f.n, c.Len); valid != nil {
		codes = withNullCode(blockOf[int32](f), codes, valid, int32(c.Dict.Values.Len))
	}
	f.codes[input] = codes
	return codes
}

func withNullCode(out, codes []int32, valid []uint64, null int32) []int32 {
	for i, c := range codes {
		if valid[i>>6]>>(i&63)&1 == 0 {
			c = null
		}
		out[i] = c
	}
	return out[:len(codes)]
}

// mapCodes looks up the values of a dictionary result for the rows of the batch.
func (f *frame) mapCodes(r int) {
	i := f.e.dicts.find(r)
	c := &f.e.dicts.values[i]
	codes := f.batchCodes(f.e.dicts.inputs[i])
	v := &f.vecs[r]
	v.raw, v.bits, v.valid = nil, nil, nil
	f.gather(v, c, codes)
	if c.Valid != nil {
		v.valid = f.bitmap()[:f.words()]
		takeBits(v.valid, gpu.Words(c.Valid, c.Len), codes)
	}
}

// gather copies the values at codes from a plain column.
func (f *frame) gather(v *vec, c *gpu.Column, codes []int32) {
	if c.Type.IsVar() {
		v.str = f.texts()[:f.n]
		if c.Len == 0 {
			fill(v.str, "")
			return
		}
		offsets, data := gpu.Values[int32](c.Offsets, c.Len+1), c.Data.Bytes()
		for i, code := range codes {
			if v.str[i] = ""; uint(code) < uint(c.Len) {
				v.str[i] = view(data, offsets[code], offsets[code+1])
			}
		}
		return
	}
	if c.Type.Kind == gpu.Bool {
		v.bits = f.bitmap()[:f.words()]
		if c.Len > 0 {
			takeBits(v.bits, gpu.Words(c.Data, c.Len), codes)
		}
		return
	}
	v.raw = nil
	if c.Len == 0 {
		f.raw(v)
		return
	}
	switch c.Type.Width() {
	case 1:
		takeValues(dst[uint8](f, v), gpu.Values[uint8](c.Data, c.Len), codes)
	case 2:
		takeValues(dst[uint16](f, v), gpu.Values[uint16](c.Data, c.Len), codes)
	case 4:
		takeValues(dst[uint32](f, v), gpu.Values[uint32](c.Data, c.Len), codes)
	case 8:
		takeValues(dst[uint64](f, v), gpu.Values[uint64](c.Data, c.Len), codes)
	case 16:
		takeValues(dst[gpu.Int128](f, v), gpu.Values[gpu.Int128](c.Data, c.Len), codes)
	}
}

func takeValues[T any](out, values []T, codes []int32) {
	for i, c := range codes {
		out[i] = gpu.Lookup(values, c)
	}
}

func takeBits(out, bits []uint64, codes []int32) {
	for w := range out {
		var word uint64
		for j, c := range codes[w*64 : min(w*64+64, len(codes))] {
			word |= gpu.Lookup(bits, c>>6) >> (c & 63) & 1 << (j & 63)
		}
		out[w] = word
	}
}

// dictColumn returns a string result that stays dictionary-coded: the input's codes over
// new values.
func (e *evaluation) dictColumn(r int) (gpu.Column, error) {
	i := e.dicts.find(r)
	in, values := e.in[e.dicts.inputs[i]], e.dicts.values[i]
	dict := values.Retain()
	dict.Valid.Release()
	dict.Valid = nil
	out := gpu.Column{Type: values.Type, Len: e.n, Dict: &gpu.Dictionary{Values: dict}}
	null := in.Dict.Values.Len
	words := gpu.Words(values.Valid, values.Len)
	if in.Valid == nil && (words == nil || allSet(words, null)) {
		out.Data = in.Data.Retain()
		return out, nil
	}
	var err error
	if out.Data, err = e.lease.Alloc(int64(e.n) * 4); err == nil {
		out.Valid, err = e.lease.Alloc(gpu.BitmapBytes(e.n))
	}
	if err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	codes := gpu.Values[int32](out.Data, e.n)
	copy(codes, gpu.Values[int32](in.Data, e.n))
	if in.Valid != nil {
		withNullCode(codes, codes, gpu.Words(in.Valid, e.n), int32(null))
	}
	valid := gpu.Words(out.Valid, e.n)
	if words == nil {
		fill(valid, ^uint64(0))
	} else {
		takeBits(valid, words, codes)
	}
	if allSet(valid, e.n) {
		out.Valid.Release()
		out.Valid = nil
	}
	return out, nil
}
