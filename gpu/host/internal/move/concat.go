package move

import (
	"fmt"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/intern"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Concat returns the rows of columns of the same type, one after another.
func Concat(cores parallel.Cores, l *gpu.Lease, parts []gpu.Column) (gpu.Column, error) {
	if len(parts) == 0 {
		return gpu.Column{}, fmt.Errorf("concat of no columns has no type")
	}
	if len(parts) == 1 {
		return parts[0].Retain(), nil
	}
	out := gpu.Column{Type: parts[0].Type}
	nulls := false
	for _, p := range parts {
		if p.Type != out.Type {
			return gpu.Column{}, fmt.Errorf("concat of %v and %v", out.Type, p.Type)
		}
		out.Len += p.Len
		nulls = nulls || p.Valid != nil
	}
	if out.Len > gpu.MaxRows {
		return gpu.Column{}, gpu.TooManyRows(out.Len)
	}
	parts, release, err := oneCoding(cores, l, parts, out.Len)
	if err != nil {
		return gpu.Column{}, err
	}
	defer release()
	parts = slices.DeleteFunc(slices.Clone(parts), func(p gpu.Column) bool { return p.Len == 0 })
	switch len(parts) {
	case 0:
		parts = []gpu.Column{gpu.ColumnOf(out.Type, nil)}
	case 1:
		return parts[0].Retain(), nil
	}
	if out.Dict = parts[0].Dict; out.Dict != nil {
		out.Dict.Values.Retain()
	}
	fail := func(err error) (gpu.Column, error) {
		out.Release()
		return gpu.Column{}, err
	}
	if nulls {
		if out.Valid, err = l.Alloc(gpu.BitmapBytes(out.Len)); err != nil {
			return fail(err)
		}
		at := 0
		for _, p := range parts {
			copyBits(gpu.Words(out.Valid, out.Len), at, gpu.Words(p.Valid, p.Len), 0, p.Len)
			at += p.Len
		}
	}
	starts := make([]int64, len(parts)+1)
	switch {
	case out.Dict == nil && out.Type.IsVar():
		rows := make([]int, len(parts))
		at := 0
		for i, p := range parts {
			rows[i] = at
			at += p.Len
			off := gpu.Values[int32](p.Offsets, p.Len+1)
			starts[i+1] = starts[i] + int64(off[p.Len]-off[0])
		}
		if starts[len(parts)] > math.MaxInt32 {
			return fail(gpu.TooManyBytes(starts[len(parts)], out.Len))
		}
		if out.Offsets, err = l.Alloc(int64(out.Len+1) * 4); err != nil {
			return fail(err)
		}
		if out.Data, err = l.Alloc(starts[len(parts)]); err != nil {
			return fail(err)
		}
		dst := gpu.Values[int32](out.Offsets, out.Len+1)
		dst[0] = 0
		err = cores.For(len(parts), 1, func(i, _ int) error {
			p := parts[i]
			off := gpu.Values[int32](p.Offsets, p.Len+1)
			shift := int32(starts[i]) - off[0]
			to := dst[rows[i]+1:]
			for j, o := range off[1:] {
				to[j] = o + shift
			}
			copy(out.Data.Bytes()[starts[i]:], p.Data.Bytes()[off[0]:off[p.Len]])
			return nil
		})
	case out.Dict == nil && out.Type.Kind == gpu.Bool:
		if out.Data, err = l.Alloc(gpu.BitmapBytes(out.Len)); err != nil {
			return fail(err)
		}
		at := 0
		for _, p := range parts {
			copyBits(gpu.Words(out.Data, out.Len), at, gpu.Words(p.Data, p.Len), 0, p.Len)
			at += p.Len
		}
	default:
		width := int64(out.DataWidth())
		for i, p := range parts {
			starts[i+1] = starts[i] + int64(p.Len)*width
		}
		if out.Data, err = l.Alloc(starts[len(parts)]); err != nil {
			return fail(err)
		}
		err = cores.For(len(parts), 1, func(i, _ int) error {
			copy(out.Data.Bytes()[starts[i]:starts[i+1]], parts[i].Data.Bytes())
			return nil
		})
	}
	if err != nil {
		return fail(err)
	}
	return out, nil
}

// oneCoding returns the parts with one common dictionary, if all have the same or dictionaries that together
// have few values compared with the rows; otherwise it returns them without dictionaries. Parts of nulls
// get any dictionary. release releases the new columns.
func oneCoding(cores parallel.Cores, l *gpu.Lease, parts []gpu.Column, rows int) (out []gpu.Column, release func(),
	err error) {
	var made []gpu.Column
	release = func() { gpu.ReleaseColumns(made) }
	if parts, made, err = codeNulls(l, parts); err != nil {
		return nil, nil, err
	}
	nulls := len(made)
	same, coded, values := true, true, 0
	for _, p := range parts {
		if p.Dict == nil {
			coded, same = false, same && parts[0].Dict == nil
			continue
		}
		values += p.Dict.Values.Len
		same = same && p.Dict == parts[0].Dict
	}
	if same {
		return parts, release, nil
	}
	if !coded || values > rows/2 || !parts[0].Type.IsVar() {
		for _, p := range parts {
			p, err = Expand(cores, l, p)
			if err != nil {
				release()
				return nil, nil, err
			}
			made = append(made, p)
		}
		return made[nulls:], release, nil
	}
	// One dictionary of the distinct values, and the codes of each part in it.
	in := intern.New(l)
	defer in.Release()
	for _, p := range parts {
		codes, err := in.Dictionary(p)
		if err != nil {
			release()
			return nil, nil, err
		}
		buf, err := l.Alloc(int64(p.Len) * 4)
		if err != nil {
			release()
			return nil, nil, err
		}
		c := gpu.Column{Type: p.Type, Len: p.Len, Data: buf, Valid: p.Valid.Retain()}
		made = append(made, c)
		from, to := gpu.Values[int32](p.Data, p.Len), gpu.Values[int32](buf, p.Len)
		if len(codes) == 0 {
			clear(to)
			continue
		}
		err = cores.For(p.Len, parallel.Grain, func(lo, hi int) error {
			for i, code := range from[lo:hi] {
				to[lo+i] = int32(gpu.Lookup(codes, code))
			}
			return nil
		})
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	dict, err := in.Values(l, parts[0].Type)
	if err != nil {
		release()
		return nil, nil, err
	}
	made = append(made, dict) // release drops it: every user has its own reference
	shared := &gpu.Dictionary{Values: dict}
	coding := made[nulls:][:len(parts)]
	for i := range coding {
		dict.Retain()
		coding[i].Dict = shared
	}
	return coding, release, nil
}

// codeNulls gives parts of strings that are all null the dictionary of a part that has one. made has the new
// columns.
func codeNulls(l *gpu.Lease, parts []gpu.Column) (out, made []gpu.Column, err error) {
	var dict *gpu.Dictionary
	for _, p := range parts {
		if p.Dict != nil && p.Type.IsVar() {
			dict = p.Dict
			break
		}
	}
	out = parts
	for i, p := range parts {
		if dict == nil || p.Dict == dict || !p.AllNull() {
			continue
		}
		codes, err := l.Alloc(int64(p.Len) * 4)
		if err != nil {
			gpu.ReleaseColumns(made)
			return nil, nil, err
		}
		clear(codes.Bytes())
		coded := gpu.Column{Type: p.Type, Len: p.Len, Data: codes, Valid: p.Valid, Dict: dict}
		coded.Valid.Retain()
		coded.Dict.Values.Retain()
		if len(made) == 0 {
			out = slices.Clone(parts)
		}
		out[i], made = coded, append(made, coded)
	}
	return out, made, nil
}

// Expand returns the rows of c as a plain column.
func Expand(cores parallel.Cores, l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	if c.Dict == nil {
		return c.Retain(), nil
	}
	codes, outer := gpu.Values[int32](c.Data, c.Len), c.Valid != nil
	if outer {
		ids, err := memory.New[int32](l, c.Len)
		if err != nil {
			return gpu.Column{}, err
		}
		defer ids.Release()
		valid := gpu.Words(c.Valid, c.Len)
		for i, code := range codes {
			null := int32(valid[uint(i)/64]>>(uint(i)%64)&1) - 1 // -1, or 0 for a value
			ids.V[i] = code | null
		}
		codes = ids.V
	} else if c.Len == c.Dict.Values.Len && isIdentity(codes) {
		return c.Dict.Values.Retain(), nil
	}
	out, err := Gather(cores, l, []gpu.Column{c.Dict.Values}, codes, outer)
	if err != nil {
		return gpu.Column{}, err
	}
	return out[0], nil
}

// copyBits copies n bits from bit s of src to bit t of dst. A nil src is all ones.
func copyBits(dst []uint64, t int, src []uint64, s, n int) {
	for n > 0 {
		k := min(n, 64-t%64)
		x := ^uint64(0)
		if src != nil {
			x = src[s/64] >> (s % 64)
			if s%64 != 0 && s/64+1 < len(src) {
				x |= src[s/64+1] << (64 - s%64)
			}
		}
		mask := ^uint64(0)
		if k < 64 {
			mask = 1<<k - 1
		}
		dst[t/64] = dst[t/64]&^(mask<<(t%64)) | (x&mask)<<(t%64)
		s, t, n = s+k, t+k, n-k
	}
}

// Slice returns rows [from, to) of a column.
func Slice(l *gpu.Lease, c gpu.Column, from, to int) (gpu.Column, error) {
	if from == 0 && to == c.Len {
		return c.Retain(), nil
	}
	n := to - from
	out := gpu.Column{Type: c.Type, Len: n, Dict: c.Dict}
	if c.Dict != nil {
		c.Dict.Values.Retain()
	}
	err := func() (err error) {
		if c.Valid != nil {
			if out.Valid, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
				return err
			}
			copyBits(gpu.Words(out.Valid, n), 0, gpu.Words(c.Valid, c.Len), from, n)
		}
		switch {
		case c.Dict == nil && c.Type.Kind == gpu.Bool:
			if out.Data, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
				return err
			}
			copyBits(gpu.Words(out.Data, n), 0, gpu.Words(c.Data, c.Len), from, n)
		case c.Dict == nil && c.Type.IsVar():
			off := gpu.Values[int32](c.Offsets, c.Len+1)[from : to+1]
			if out.Offsets, err = l.Alloc(int64(n+1) * 4); err != nil {
				return err
			}
			for i, o := range off {
				gpu.Values[int32](out.Offsets, n+1)[i] = o - off[0]
			}
			if out.Data, err = l.Alloc(int64(off[n] - off[0])); err != nil {
				return err
			}
			copy(out.Data.Bytes(), c.Data.Bytes()[off[0]:off[n]])
		default:
			width := c.DataWidth()
			if out.Data, err = l.Alloc(int64(n * width)); err != nil {
				return err
			}
			copy(out.Data.Bytes(), c.Data.Bytes()[from*width:to*width])
		}
		return nil
	}()
	if err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	return out, nil
}
