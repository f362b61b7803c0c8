package parquet

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// rowRange is a range of rows of a column of one stride.
type rowRange struct {
	col      gpu.Column
	from, to int
}

// values views n values of a buffer from position from on.
func values[T any](b *gpu.Buffer, from, n int) []T { return gpu.Values[T](b, from+n)[from:] }

// view views n PLAIN values. Their bytes come from slices of wider types, so they are
// aligned, or the platform does not need alignment.
func view[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// validity concatenates the bitmaps of the ranges. It returns nil when no row is null.
func (e *encoder) validity(ranges []rowRange, rows int) (valid []byte, nulls int, err error) {
	for _, p := range ranges {
		if p.col.Valid != nil {
			n := p.to - p.from
			nulls += n - countBits(p.col.Valid.Bytes(), p.from, n)
		}
	}
	if nulls == 0 {
		return nil, 0, nil
	}
	if valid, err = take[byte](e.lease, &e.valid, int(gpu.BitmapBytes(rows))); err != nil {
		return nil, 0, err
	}
	clear(valid)
	at := 0
	for _, p := range ranges {
		n := p.to - p.from
		if p.col.Valid == nil {
			gpu.SetBits(valid, at, n)
		} else {
			gpu.AppendBits(valid, at, p.col.Valid.Bytes(), p.from, n)
		}
		at += n
	}
	return valid, nulls, nil
}

// denseValues returns the non-null values of a fixed-width column in PLAIN encoding. It does not
// copy a single range that is already stored in that form.
func (e *encoder) denseValues(c *column, ranges []rowRange, count int) ([]byte, error) {
	if p := ranges[0]; len(ranges) == 1 && p.col.Dict == nil && count == p.to-p.from && c.scale == 1 &&
		c.field.Type.Width() == c.width && c.width <= 8 {
		return p.col.Data.Bytes()[p.from*c.width : p.to*c.width], nil
	}
	out, err := take[byte](e.lease, &e.dense, count*c.width)
	if err != nil {
		return nil, err
	}
	rest := out
	for _, p := range ranges {
		if rest, err = e.append(c, rest, p); err != nil {
			return nil, fmt.Errorf("column %q: %w", c.field.Name, err)
		}
	}
	return out, nil
}

// append writes the non-null values of a range to the start of dst, and returns the rest of dst.
func (e *encoder) append(c *column, dst []byte, p rowRange) ([]byte, error) {
	n := p.to - p.from
	data := p.col
	var codes []int32
	if data.Dict != nil {
		codes = values[int32](data.Data, p.from, n)
		data = data.Dict.Values
	}
	var valid []byte
	if p.col.Valid != nil {
		valid = p.col.Valid.Bytes()
	}
	s := selection{codes: codes, valid: valid, from: p.from, n: n, block: &e.block}
	t := c.field.Type
	switch t.Kind {
	case gpu.Binary:
		return fixedBytes(dst, data, s, c.width)
	case gpu.Int8:
		return widen[int8, int32](dst, data.Data, s, 1)
	case gpu.Int16:
		return widen[int16, int32](dst, data.Data, s, 1)
	case gpu.Uint8:
		return widen[uint8, int32](dst, data.Data, s, 1)
	case gpu.Uint16:
		return widen[uint16, int32](dst, data.Data, s, 1)
	case gpu.Time:
		if c.width == 4 {
			return widen[int64, int32](dst, data.Data, s, c.scale)
		}
		return widen[int64, int64](dst, data.Data, s, 1)
	case gpu.Decimal:
		switch {
		case c.width == 16 && t.Wide:
			return bigEndian128(dst, data.Data, s), nil
		case c.width == 16:
			return bigEndian64(dst, data.Data, s), nil
		case t.Wide:
			return narrowDecimal(dst, data.Data, s, c.width)
		case c.width == 4:
			return widen[int64, int32](dst, data.Data, s, 1)
		}
		return widen[int64, int64](dst, data.Data, s, 1)
	}
	if c.width == 4 {
		return widen[int32, int32](dst, data.Data, s, 1)
	}
	return widen[int64, int64](dst, data.Data, s, c.scale)
}

// selection has the values to take from a buffer: those of the valid rows of [from, from+n), by
// their codes if there are any.
type selection struct {
	codes   []int32
	valid   []byte
	from, n int
	block   *[blockRows]int32 // scratch of each
}

// blockRows is the number of positions that each passes at a time. They stay in the
// first-level cache.
const blockRows = 1024

// each calls f with the positions of the values, in blocks.
func (s selection) each(f func(positions []int32)) {
	for lo := 0; lo < s.n; lo += blockRows {
		hi := min(lo+blockRows, s.n)
		if s.codes != nil && s.valid == nil {
			f(s.codes[lo:hi])
			continue
		}
		// Every position is stored; the next one overwrites the position of a null. This avoids a
		// branch that is hard to predict.
		k := 0
		for i := lo; i < hi; i++ {
			s.block[k&(blockRows-1)] = int32(s.from + i)
			if s.codes != nil {
				s.block[k&(blockRows-1)] = s.codes[i]
			}
			if s.valid == nil {
				k++
			} else {
				k += int(s.valid[(s.from+i)>>3] >> ((s.from + i) & 7) & 1)
			}
		}
		f(s.block[:k])
	}
}

// widen converts integers to another width and multiplies them. The product must not
// overflow. An infinite timestamp stays infinite.
func widen[S int8 | int16 | int32 | int64 | uint8 | uint16, D int32 | int64](dst []byte, src *gpu.Buffer, s selection,
	scale int64) ([]byte, error) {
	var d D
	size := int(unsafe.Sizeof(d))
	out := view[D](dst, len(dst)/size)
	j, lost := 0, false
	if s.codes == nil && s.valid == nil && scale == 1 {
		for _, v := range values[S](src, s.from, s.n) {
			out[j] = D(v)
			lost = lost || int64(out[j]) != int64(v)
			j++
		}
	} else {
		in := gpu.Values[S](src, int(src.Size())/int(unsafe.Sizeof(*new(S))))
		least, most := math.MinInt64/scale, math.MaxInt64/scale
		s.each(func(positions []int32) {
			to := out[j : j+len(positions)]
			for k, i := range positions {
				v := int64(in[i])
				if scale != 1 && size == 8 && infinite(v) {
					to[k] = D(v)
					continue
				}
				to[k] = D(v * scale)
				lost = lost || v < least || v > most || int64(to[k]) != v*scale
			}
			j += len(positions)
		})
	}
	if lost {
		return nil, gpu.Exceeded("a value is out of the range of the column's type in Parquet")
	}
	return dst[j*size:], nil
}

func infinite(v int64) bool { return v == math.MaxInt64 || v == -math.MaxInt64 }

func bigEndian128(dst []byte, src *gpu.Buffer, s selection) []byte {
	in := gpu.Values[gpu.Int128](src, int(src.Size())/16)
	s.each(func(positions []int32) {
		for _, i := range positions {
			binary.BigEndian.PutUint64(dst, uint64(in[i].Hi))
			binary.BigEndian.PutUint64(dst[8:], in[i].Lo)
			dst = dst[16:]
		}
	})
	return dst
}

// bigEndian64 writes decimals that are stored in 8 bytes, sign-extended to 16.
func bigEndian64(dst []byte, src *gpu.Buffer, s selection) []byte {
	in := gpu.Values[int64](src, int(src.Size())/8)
	s.each(func(positions []int32) {
		for _, i := range positions {
			binary.BigEndian.PutUint64(dst, uint64(in[i]>>63))
			binary.BigEndian.PutUint64(dst[8:], uint64(in[i]))
			dst = dst[16:]
		}
	})
	return dst
}

// fixedBytes writes binary values: UUIDs and intervals. Each must have the width.
func fixedBytes(dst []byte, src gpu.Column, s selection, width int) ([]byte, error) {
	offsets := gpu.Values[int32](src.Offsets, src.Len+1)
	data := src.Data.Bytes()
	wrong := false
	s.each(func(positions []int32) {
		for _, i := range positions {
			wrong = wrong || int(offsets[i+1]-offsets[i]) != width
			dst = dst[copy(dst[:width], data[offsets[i]:offsets[i+1]]):]
		}
	})
	if wrong {
		return nil, gpu.Exceeded("a UUID has 16 bytes, and a value has another length")
	}
	return dst, nil
}

// narrowDecimal writes decimals of few digits that are stored in 16 bytes.
func narrowDecimal(dst []byte, src *gpu.Buffer, s selection, width int) ([]byte, error) {
	in := gpu.Values[gpu.Int128](src, int(src.Size())/16)
	lost := false
	s.each(func(positions []int32) {
		for _, i := range positions {
			v := in[i].Int64()
			lost = lost || !in[i].IsInt64() || width == 4 && int64(int32(v)) != v
			if width == 4 {
				binary.LittleEndian.PutUint32(dst, uint32(v))
			} else {
				binary.LittleEndian.PutUint64(dst, uint64(v))
			}
			dst = dst[width:]
		}
	})
	if lost {
		return nil, gpu.Exceeded("a decimal value has more digits than its type")
	}
	return dst, nil
}
