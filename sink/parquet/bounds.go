package parquet

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
)

// maxBound is the maximum size in bytes of a string or binary bound; longer bounds are truncated.
const maxBound = 64

// bounds are the least and the greatest value of a page or a chunk in PLAIN encoding. There are
// none if there is no value, or no order of the values.
type bounds struct {
	min, max []byte
	ok       bool
}

// fixedBounds returns the bounds of PLAIN values. There is at least one.
func (c *column) fixedBounds(plain []byte, n int) bounds {
	switch {
	case n == 0, c.interval:
		return bounds{}
	case c.isUUID():
		var b varBounds
		for i := range n {
			b.add(plain[16*i : 16*i+16])
		}
		return b.finish(c.field.Type)
	case c.physical == format.FixedLenByteArray:
		lo, hi := plain[:16], plain[:16]
		for i := 1; i < n; i++ {
			v := plain[16*i : 16*i+16]
			if less128(v, lo) {
				lo = v
			} else if less128(hi, v) {
				hi = v
			}
		}
		return bounds{append([]byte(nil), lo...), append([]byte(nil), hi...), true}
	case c.physical == format.Float:
		lo, hi, ok := floatBounds(view[float32](plain, n))
		return bounds{le32(math.Float32bits(lo)), le32(math.Float32bits(hi)), ok}
	case c.physical == format.Double:
		lo, hi, ok := floatBounds(view[float64](plain, n))
		return bounds{le64(math.Float64bits(lo)), le64(math.Float64bits(hi)), ok}
	}
	unsigned := c.field.Type.IsUnsigned()
	switch {
	case c.width == 4 && unsigned:
		lo, hi := intBounds(view[uint32](plain, n))
		return bounds{le32(lo), le32(hi), true}
	case c.width == 4:
		lo, hi := intBounds(view[int32](plain, n))
		return bounds{le32(uint32(lo)), le32(uint32(hi)), true}
	case unsigned:
		lo, hi := intBounds(view[uint64](plain, n))
		return bounds{le64(lo), le64(hi), true}
	}
	lo, hi := intBounds(view[int64](plain, n))
	return bounds{le64(uint64(lo)), le64(uint64(hi)), true}
}

func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func intBounds[T int32 | int64 | uint32 | uint64](v []T) (lo, hi T) {
	lo, hi = v[0], v[0]
	for _, x := range v {
		lo, hi = min(lo, x), max(hi, x)
	}
	return lo, hi
}

// floatBounds widens zeros, as the format demands. It is not ok if there is a NaN, which readers
// order above all other values or ignore.
func floatBounds[T float32 | float64](v []T) (lo, hi T, ok bool) {
	lo, hi, ok = T(math.Inf(1)), T(math.Inf(-1)), true
	for _, x := range v {
		if x < lo {
			lo = x
		}
		if x > hi {
			hi = x
		}
		ok = ok && x == x
	}
	if lo == 0 {
		lo = T(math.Copysign(0, -1))
	}
	if hi == 0 {
		hi = 0
	}
	return lo, hi, ok
}

// less128 compares big-endian two's complement values of 16 bytes.
func less128(a, b []byte) bool {
	x, y := int64(binary.BigEndian.Uint64(a)), int64(binary.BigEndian.Uint64(b))
	return x < y || x == y && binary.BigEndian.Uint64(a[8:]) < binary.BigEndian.Uint64(b[8:])
}

// varBounds collects the bounds of strings or binaries. It borrows the values until
// finish.
type varBounds struct {
	lo, hi []byte
	any    bool
}

func (b *varBounds) add(v []byte) {
	switch {
	case !b.any:
		b.lo, b.hi, b.any = v, v, true
	case string(v) < string(b.lo):
		b.lo = v
	case string(v) > string(b.hi):
		b.hi = v
	}
}

// finish returns the bounds as copies. A long lower bound is truncated to a prefix, a
// long upper bound to the next greater prefix. If there is no such prefix, the page has
// no bounds.
func (b *varBounds) finish(t gpu.Type) bounds {
	if !b.any {
		return bounds{}
	}
	// An empty bound must not be nil, which means no bound.
	lo := append([]byte{}, cut(b.lo, t)...)
	hi := append([]byte{}, cut(b.hi, t)...)
	if len(hi) == len(b.hi) {
		return bounds{lo, hi, true}
	}
	if t.Kind == gpu.String {
		hi = nextString(hi)
	} else {
		hi = nextBytes(hi)
	}
	return bounds{lo, hi, hi != nil}
}

// cut returns at most maxBound bytes of v, and only whole characters of a String.
func cut(v []byte, t gpu.Type) []byte {
	if len(v) <= maxBound {
		return v
	}
	n := maxBound
	if t.Kind == gpu.String {
		for n > maxBound-utf8.UTFMax && !utf8.RuneStart(v[n]) {
			n--
		}
	}
	return v[:n]
}

// nextBytes returns the least value above all values that start with v.
func nextBytes(v []byte) []byte {
	for i := len(v) - 1; i >= 0; i-- {
		if v[i] != 0xff {
			v[i]++
			return v[:i+1]
		}
	}
	return nil
}

// nextString is nextBytes in whole characters.
func nextString(v []byte) []byte {
	for len(v) > 0 {
		r, n := utf8.DecodeLastRune(v)
		if r == utf8.RuneError && n <= 1 {
			return nil // not UTF-8: no bound is better than a wrong bound
		}
		v = v[:len(v)-n]
		if r++; r == 0xD800 {
			r = 0xE000 // the first after the surrogates
		}
		if r <= utf8.MaxRune {
			return utf8.AppendRune(v, r)
		}
	}
	return nil
}

// compare compares two bounds in the order of the column's type.
func (c *column) compare(a, b []byte) int {
	switch {
	case c.physical == format.ByteArray, c.isUUID():
		return bytes.Compare(a, b)
	case c.physical == format.Boolean:
		return int(a[0]) - int(b[0])
	case c.physical == format.FixedLenByteArray:
		switch {
		case less128(a, b):
			return -1
		case less128(b, a):
			return 1
		}
		return 0
	case c.physical == format.Float:
		return cmp.Compare(math.Float32frombits(binary.LittleEndian.Uint32(a)),
			math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case c.physical == format.Double:
		return cmp.Compare(math.Float64frombits(binary.LittleEndian.Uint64(a)),
			math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	var x, y uint64
	if c.width == 4 {
		x, y = uint64(binary.LittleEndian.Uint32(a))<<32, uint64(binary.LittleEndian.Uint32(b))<<32
	} else {
		x, y = binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)
	}
	if c.field.Type.IsUnsigned() {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(int64(x), int64(y))
}

// union extends b to cover o.
func (c *column) union(b *bounds, o bounds) {
	switch {
	case !o.ok:
	case !b.ok:
		*b = o
	default:
		if c.compare(o.min, b.min) < 0 {
			b.min = o.min
		}
		if c.compare(o.max, b.max) > 0 {
			b.max = o.max
		}
	}
}

// order returns the order of the pages' bounds.
func (c *column) order(pages []bounds) format.BoundaryOrder {
	up, down := true, true
	var last *bounds
	for i := range pages {
		p := &pages[i]
		if !p.ok {
			continue
		}
		if last != nil {
			lo, hi := c.compare(last.min, p.min), c.compare(last.max, p.max)
			up = up && lo <= 0 && hi <= 0
			down = down && lo >= 0 && hi >= 0
		}
		last = p
	}
	switch {
	case up:
		return format.Ascending
	case down:
		return format.Descending
	}
	return format.Unordered
}
