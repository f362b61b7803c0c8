package eval

import (
	"encoding/binary"
	"math"

	"github.com/gstream/gstream/gpu"
)

// The constants of the hash of DuckDB's hash().
const (
	sqlHashFactor = 0xd6e8feb86659fd93
	sqlHashNull   = 0xbf58476d1ce4e5b9
)

// sqlMix is the hash of 64 bits.
func sqlMix(x uint64) uint64 {
	x = (x ^ x>>32) * sqlHashFactor
	x = (x ^ x>>32) * sqlHashFactor
	return x ^ x>>32
}

// sqlHashText is the hash of bytes.
func sqlHashText(s string) uint64 {
	h := 0xe17a1465 ^ uint64(len(s))*0xc6a4a7935bd1e995
	for ; len(s) >= 8; s = s[8:] {
		h = (h ^ binary.LittleEndian.Uint64([]byte(s[:8]))) * sqlHashFactor
	}
	if s != "" {
		var rest [8]byte
		copy(rest[:], s)
		h = (h ^ binary.LittleEndian.Uint64(rest[:])) * sqlHashFactor
	}
	return sqlMix(h)
}

// sqlHashBits returns the bits of a float that are hashed. -0 has the bits of 0, and all NaNs have
// the same bits.
func sqlHashBits(x float64, single bool) uint64 {
	switch {
	case x == 0:
		return 0
	case x != x && single:
		return 0x7fc00000
	case x != x:
		return 0x7ff8000000000000
	case single:
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(x)
}

// sqlHash runs OpHash.
func (f *frame) sqlHash(s *instruction, v *vec) error {
	x, out := &f.vecs[s.Args[0]], dst[uint64](f, v)
	var whole []gpu.Int128
	if !x.typ.IsVar() && !x.typ.IsFloat() && x.typ.Kind != gpu.Bool {
		whole = f.wide(x)
	}
	for i := range out {
		h := uint64(sqlHashNull)
		if x.valid == nil || x.valid[i>>6]>>(i&63)&1 != 0 {
			switch {
			case x.typ.IsVar():
				h = sqlHashText(x.str[i])
			case x.typ.Kind == gpu.Bool:
				h = sqlMix(x.bits[i>>6] >> (i & 63) & 1)
			case x.typ.Kind == gpu.Float32:
				h = sqlMix(sqlHashBits(float64(vals[float32](x, f.n)[i]), true))
			case x.typ.Kind == gpu.Float64:
				h = sqlMix(sqlHashBits(vals[float64](x, f.n)[i], false))
			default:
				n := whole[i]
				switch x.typ.HashBits() {
				case 32:
					h = sqlMix(uint64(uint32(n.Lo)))
				case 64:
					h = sqlMix(n.Lo)
				default:
					h = sqlMix(n.Lo) ^ sqlMix(uint64(n.Hi))
				}
			}
		}
		if len(s.Args) > 1 {
			before := vals[uint64](&f.vecs[s.Args[1]], f.n)[i]
			h ^= (before ^ before>>32) * sqlHashFactor
		}
		out[i] = h
	}
	return nil
}
