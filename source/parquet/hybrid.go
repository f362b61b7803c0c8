package parquet

import (
	"encoding/binary"
	"math/bits"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/bitpack"
)

// slack is the capacity of every page buffer beyond its length.
const slack = 64

// hybrid decodes Parquet's RLE/bit-packing hybrid encoding, a number of values at a time. Its input
// must have slack bytes of capacity beyond its length.
type hybrid struct {
	src   []byte // the input after the current run
	width uint   // bits of a value, at most 32
	top   uint8  // of definition levels of more than one bit: that of a value

	left   int    // values left in the current run
	repeat bool   // the run repeats value; otherwise it is packed
	value  uint32 // of a run that repeats it
	packed []byte // of a packed run
	done   int    // number of values that were taken from the packed run
}

// next starts the next run.
func (h *hybrid) next() error {
	for h.left == 0 {
		head, n := binary.Uvarint(h.src)
		if n <= 0 {
			return badf("a run of codes or levels ends early")
		}
		h.src = h.src[n:]
		if h.repeat = head&1 == 0; h.repeat {
			size := int(h.width+7) / 8
			if len(h.src) < size || head>>1 > 1<<31 {
				return badf("a repeated run of codes or levels ends early")
			}
			h.value = 0
			for i := range size {
				h.value |= uint32(h.src[i]) << (8 * i)
			}
			if uint64(h.value)>>h.width != 0 {
				return badf("a repeated code or level of %d has more than %d bits", h.value, h.width)
			}
			h.src = h.src[size:]
			h.left = int(head >> 1)
			continue
		}
		groups := head >> 1
		size := groups * uint64(h.width)
		if groups > 1<<28 || size > uint64(len(h.src)) {
			// Allow a truncated last group: some writers truncate it.
			if h.width == 0 || groups > 1<<28 {
				return badf("a packed run of codes or levels ends early")
			}
			h.left = len(h.src) * 8 / int(h.width)
			size = uint64(len(h.src))
			if h.left == 0 {
				return badf("a packed run of codes or levels ends early")
			}
		} else {
			h.left = int(groups) * 8
		}
		h.packed, h.done = h.src[:size], 0
		h.src = h.src[size:]
	}
	return nil
}

// code is a type into which values are decoded. Values with more bits than the type lose their
// upper bits.
type code interface{ uint8 | uint16 | int32 }

// decode fills dst with the next values.
func decode[T code](h *hybrid, dst []T) error {
	for len(dst) > 0 {
		if h.left == 0 {
			if err := h.next(); err != nil {
				return err
			}
		}
		n := min(len(dst), h.left)
		if h.repeat {
			v := T(h.value)
			for i := range dst[:n] {
				dst[i] = v
			}
		} else {
			unpack(h, dst[:n])
		}
		h.left -= n
		dst = dst[n:]
	}
	return nil
}

// skip skips the next n values.
func (h *hybrid) skip(n int) error {
	for n > 0 {
		if h.left == 0 {
			if err := h.next(); err != nil {
				return err
			}
		}
		k := min(n, h.left)
		if !h.repeat {
			h.done += k
		}
		h.left -= k
		n -= k
	}
	return nil
}

// unpack takes values of the packed run. dst is not longer than the rest of the run.
func unpack[T code](h *hybrid, dst []T) {
	if h.width == 0 {
		clear(dst)
		return
	}
	// Take single values up to the next group of eight, which starts at a byte boundary.
	for len(dst) > 0 && h.done%8 != 0 {
		dst[0] = T(h.one(h.done))
		h.done++
		dst = dst[1:]
	}
	if len(dst) == 0 {
		return
	}
	from := h.packed[h.done/8*int(h.width) : cap(h.packed)]
	whole := len(dst) &^ 7
	switch d := any(dst).(type) {
	case []int32:
		bitpack.Unpack(d, from, h.width)
		whole = len(dst)
	case []uint16:
		unpack16(d[:whole], from, h.width)
	case []uint8:
		unpack8(d[:whole], from, h.width)
	}
	for i := whole; i < len(dst); i++ {
		dst[i] = T(h.one(h.done + i))
	}
	h.done += len(dst)
}

// unpack8 unpacks values of at most 8 bits, eight at a time. Eight values have as many bytes as one
// value has bits. They are spread by splitting a word into halves, quarters and eighths. unpack8
// reads up to seven bytes after the last value. Shift counts are masked so that each shift compiles
// to one instruction.
func unpack8(dst []uint8, src []byte, width uint) {
	four := uint64(1)<<(4*width) - 1
	two := (uint64(1)<<(2*width) - 1) * 0x00000001_00000001
	one := (uint64(1)<<width - 1) * 0x0001_0001_0001_0001
	for ; len(dst) >= 8; dst, src = dst[8:], src[width:] {
		x := binary.LittleEndian.Uint64(src)
		x = x&four | x>>(4*width&63)&four<<32
		x = x&two | x>>(2*width&63)&two<<16
		x = x&one | x>>(width&63)&one<<8
		binary.LittleEndian.PutUint64(dst, x)
	}
}

// unpack16 unpacks values of at most 16 bits, eight at a time, like unpack8.
func unpack16(dst []uint16, src []byte, width uint) {
	two := uint64(1)<<(2*width) - 1
	one := (uint64(1)<<width - 1) * 0x00000001_00000001
	spread := func(x uint64) uint64 {
		x = x&two | x>>(2*width&63)&two<<32
		return x&one | x>>(width&63)&one<<16
	}
	to := gpu.BytesOf(dst)
	for ; len(to) >= 16; to, src = to[16:], src[width:] {
		binary.LittleEndian.PutUint64(to, spread(binary.LittleEndian.Uint64(src)))
		binary.LittleEndian.PutUint64(to[8:], spread(binary.LittleEndian.Uint64(src[width/2:])>>(width%2*4)))
	}
}

// one returns value i of the packed run.
func (h *hybrid) one(i int) int32 {
	bit := i * int(h.width)
	b := h.packed[bit/8 : bit/8+8 : cap(h.packed)]
	return int32(binary.LittleEndian.Uint64(b) >> (bit % 8) & (1<<h.width - 1))
}

// allOnes reports whether the next n definition levels are those of values, in a single repeated run. If they are, it
// takes them.
func (h *hybrid) allOnes(n int) bool {
	if h.left == 0 && h.next() != nil {
		return false // the decoding of the values will return the error
	}
	if !h.repeat || h.value != max(uint32(h.top), 1) || h.left < n {
		return false
	}
	h.left -= n
	return true
}

// bitmap writes the next n values, which are single bits or definition levels, to a bitmap from bit at on. It returns
// the number of set bits.
func (h *hybrid) bitmap(dst []byte, at, n int) (set int, err error) {
	if h.width > 1 {
		return h.defined(dst, at, n)
	}
	for n > 0 {
		if h.left == 0 {
			if err := h.next(); err != nil {
				return 0, err
			}
		}
		k := min(n, h.left)
		if h.repeat {
			if h.value > 1 {
				return 0, badf("a definition level of %d in a flat column", h.value)
			}
			setBits(dst, at, k, h.value == 1)
			set += k * int(h.value)
		} else {
			copyBits(dst, at, h.packed[:cap(h.packed)], h.done, k)
			set += countBits(dst, at, k)
			h.done += k
		}
		h.left -= k
		at += k
		n -= k
	}
	return set, nil
}

// defined is bitmap for definition levels of more than one bit.
func (h *hybrid) defined(dst []byte, at, n int) (set int, err error) {
	var levels [1024]uint8
	for n > 0 {
		k := min(n, len(levels))
		if err := decode(h, levels[:k]); err != nil {
			return 0, err
		}
		for i, v := range levels[:k] {
			if v > h.top {
				return 0, badf("a definition level of %d, at most %d are possible", v, h.top)
			}
			putBit(dst, at+i, v == h.top)
			if v == h.top {
				set++
			}
		}
		at, n = at+k, n-k
	}
	return set, nil
}

// setBits sets or clears n bits from bit at on.
func setBits(dst []byte, at, n int, v bool) {
	for ; n > 0 && at%8 != 0; at, n = at+1, n-1 {
		putBit(dst, at, v)
	}
	fill := byte(0)
	if v {
		fill = 0xff
	}
	whole := dst[at/8 : at/8+n/8]
	for i := range whole {
		whole[i] = fill
	}
	at, n = at+n&^7, n&7
	for i := range n {
		putBit(dst, at+i, v)
	}
}

func putBit(dst []byte, i int, v bool) {
	if v {
		dst[i/8] |= 1 << (i % 8)
	} else {
		dst[i/8] &^= 1 << (i % 8)
	}
}

// copyBits copies n bits from bit from of src to bit at of dst. src must have eight bytes of
// capacity after its last byte.
func copyBits(dst []byte, at int, src []byte, from, n int) {
	for ; n > 0 && at%8 != 0; at, from, n = at+1, from+1, n-1 {
		putBit(dst, at, src[from/8]>>(from%8)&1 != 0)
	}
	s, shift := src[from/8:], from%8
	d := dst[at/8:]
	i := 0
	for ; n >= 32; n, i = n-32, i+4 {
		binary.LittleEndian.PutUint32(d[i:], uint32(binary.LittleEndian.Uint64(s[i:])>>shift))
	}
	if n > 0 {
		rest := uint32(binary.LittleEndian.Uint64(s[i:]) >> shift)
		for j := range n {
			putBit(d, 8*i+j, rest>>j&1 != 0)
		}
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
