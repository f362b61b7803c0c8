// Package word turns values of columns into words of 64 bits, which sorts, hash tables and aggregates
// work on: it loads, orders, hashes and stores them.
package word

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// Block is the number of words of a block. Loops over rows work in blocks, which stay in the first
// cache level, so that the independent loads of a block are in flight together.
const Block = 512

// Load loads rows [at, at+len(out)) of a plain column of at most 8 bytes per value as words:
// integers sign- or zero-extended, floats as canonical bits.
func Load(out []uint64, c gpu.Column, at int) {
	n := at + len(out)
	switch c.Type.Kind {
	case gpu.Bool:
		words := gpu.Words(c.Data, c.Len)
		for i := range out {
			out[i] = words[(at+i)/64] >> ((at + i) % 64) & 1
		}
	case gpu.Int8:
		extend(out, gpu.Values[int8](c.Data, n)[at:])
	case gpu.Int16:
		extend(out, gpu.Values[int16](c.Data, n)[at:])
	case gpu.Int32, gpu.Date:
		extend(out, gpu.Values[int32](c.Data, n)[at:])
	case gpu.Uint8:
		extend(out, gpu.Values[uint8](c.Data, n)[at:])
	case gpu.Uint16:
		extend(out, gpu.Values[uint16](c.Data, n)[at:])
	case gpu.Uint32:
		extend(out, gpu.Values[uint32](c.Data, n)[at:])
	case gpu.Float32:
		for i, v := range gpu.Values[float32](c.Data, n)[at:] {
			out[i] = uint64(math.Float32bits(Canonical(v)))
		}
	case gpu.Float64:
		for i, v := range gpu.Values[float64](c.Data, n)[at:] {
			out[i] = math.Float64bits(Canonical(v))
		}
	default:
		copy(out, gpu.Values[uint64](c.Data, n)[at:])
	}
}

// extend loads integers that are narrower than a word.
func extend[T int8 | int16 | int32 | uint8 | uint16 | uint32](out []uint64, in []T) {
	for i, v := range in {
		out[i] = uint64(int64(v))
	}
}

// Canonical returns the same bits for all floats that are equal in SQL.
func Canonical[T float32 | float64](v T) T {
	switch {
	case v == 0:
		return 0
	case v != v:
		return T(math.NaN())
	}
	return v
}

// Log2Ceil returns the smallest b with 1<<b ≥ n.
func Log2Ceil(n int) uint { return uint(bits.Len(uint(max(n, 1) - 1))) }

// ToOrdered returns a function that turns the words of a type into unsigned integers with the same
// order.
func ToOrdered(t gpu.Type) func(words []uint64) {
	switch {
	case t.Kind == gpu.Float32:
		return func(words []uint64) {
			for i, w := range words {
				words[i] = w ^ (uint64(int64(w<<32)>>63)>>32 | 1<<31)
			}
		}
	case t.Kind == gpu.Float64:
		return func(words []uint64) {
			for i, w := range words {
				words[i] = w ^ (uint64(int64(w)>>63) | 1<<63)
			}
		}
	case t.IsUnsigned() || t.Kind == gpu.Bool:
		return func([]uint64) {}
	}
	return func(words []uint64) {
		for i, w := range words {
			words[i] = w ^ 1<<63
		}
	}
}

// FromOrdered undoes ToOrdered for one word.
func FromOrdered(t gpu.Type, w uint64) uint64 {
	switch {
	case t.Kind == gpu.Float32:
		return w ^ (uint64(int64(^w<<32)>>63)>>32 | 1<<31)
	case t.Kind == gpu.Float64:
		return w ^ (uint64(int64(^w)>>63) | 1<<63)
	case t.IsUnsigned() || t.Kind == gpu.Bool:
		return w
	}
	return w ^ 1<<63
}

// Store stores a word as row i of a plain column of 1, 2, 4 or 8 bytes per value.
func Store(out gpu.Column, i int, v uint64) {
	switch n := out.Len; out.Type.Width() {
	case 1:
		gpu.Values[uint8](out.Data, n)[i] = uint8(v)
	case 2:
		gpu.Values[uint16](out.Data, n)[i] = uint16(v)
	case 4:
		gpu.Values[uint32](out.Data, n)[i] = uint32(v)
	case 8:
		gpu.Values[uint64](out.Data, n)[i] = v
	}
}

// Prefix returns the first eight bytes of a string as a big-endian number, with zeros after the end. Strings
// with different prefixes have the order of their prefixes.
func Prefix(b []byte) (p uint64) {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	for i, c := range b {
		p |= uint64(c) << (56 - 8*i)
	}
	return p
}
