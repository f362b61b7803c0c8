package parquet

import (
	"encoding/binary"
	"math/bits"
)

// appendBits copies n bits from bit from of src to bit at of dst. Bits of dst from bit at
// on must be zero.
func appendBits(dst []byte, at int, src []byte, from, n int) {
	for n > 0 {
		// As many bits as end at a byte of either side.
		k := min(n, 8-at%8, 8-from%8)
		v := src[from/8] >> (from % 8) & (1<<k - 1)
		dst[at/8] |= v << (at % 8)
		at, from, n = at+k, from+k, n-k
		if at%8 == 0 && from%8 == 0 {
			whole := n / 8
			copy(dst[at/8:], src[from/8:from/8+whole])
			at, from, n = at+8*whole, from+8*whole, n-8*whole
		}
	}
}

// setBits sets n bits from bit at on. They must be zero.
func setBits(dst []byte, at, n int) {
	for ; n > 0 && at%8 != 0; at, n = at+1, n-1 {
		dst[at/8] |= 1 << (at % 8)
	}
	for i := range n / 8 {
		dst[at/8+i] = 0xff
	}
	for i := n &^ 7; i < n; i++ {
		dst[(at+i)/8] |= 1 << ((at + i) % 8)
	}
}

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
		appendBits(packed, 0, valid, from, n)
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
