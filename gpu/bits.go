package gpu

// AppendBits copies n bits from bit from of src to bit at of dst. Bits of dst from bit at
// on must be zero.
func AppendBits(dst []byte, at int, src []byte, from, n int) {
	for n > 0 {
		// Up to the next byte boundary of either side.
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

// SetBits sets n bits from bit at on. They must be zero.
func SetBits(dst []byte, at, n int) {
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
