package parquet

import (
	"encoding/binary"
	"github.com/gstream/gstream/gpu"
	"math/bits"
)

// countBits returns the number of set bits among n bits from bit at on.
func countBits(b []byte, at, n int) (set int) {
	for ; n > 0 && at%8 != 0; at, n = at+1, n-1 {
		set += int(b[at/8] >> (at % 8) & 1)
	}
	i := at / 8
	for ; n >= 64; n, i = n-64, i+8 {
		set += bits.OnesCount64(binary.LittleEndian.Uint64(b[i:]))
	}
	for j := range n {
		set += int(b[i+j/8] >> (j % 8) & 1)
	}
	return set
}

// levels appends the definition levels of rows [from, to) in the hybrid encoding, after
// its length. valid is nil when no row is null.
func levels(dst []byte, valid []byte, from, to int, scratch *[]byte) []byte {
	head := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	n := to - from
	if valid == nil || countBits(valid, from, n) == n {
		dst = binary.AppendUvarint(dst, uint64(n)<<1)
		dst = append(dst, 1)
	} else {
		groups := (n + 7) / 8
		dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
		packed := grow(scratch, groups)
		clear(packed)
		gpu.AppendBits(packed, 0, valid, from, n)
		dst = append(dst, packed...)
	}
	binary.LittleEndian.PutUint32(dst[head:], uint32(len(dst)-head-4))
	return dst
}

// grow returns n elements of a scratch slice with unspecified contents.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n+n/8)
	}
	return (*s)[:n]
}
