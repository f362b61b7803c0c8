package parquet

import (
	"encoding/binary"
	"math/bits"

	"github.com/parquet-go/parquet-go/format"
)

// The less frequent encodings are converted to PLAIN, page by page, so that all later code has one
// encoding to handle.

// maxDeltaBlock bounds the block size of a delta-encoded page, and so the number of values that a
// few bytes can represent. Writers use blocks of 128 to 2048.
const maxDeltaBlock = 1 << 14

// buffers provides memory for a conversion to PLAIN: one buffer for the values, one for temporary
// data.
type buffers interface {
	values(n int) ([]byte, error)
	scratch(n int) ([]byte, error)
}

// transcode returns the values of a data page in PLAIN encoding. The page has n values. width is
// the number of bytes of a fixed-width value.
func transcode(e format.Encoding, physical format.Type, src []byte, n, width int, get buffers) ([]byte, error) {
	switch {
	case e == format.DeltaBinaryPacked && (physical == format.Int32 || physical == format.Int64):
		if err := deltaPlausible(src, n); err != nil {
			return nil, err
		}
		out, err := get.values(n * width)
		if err != nil {
			return nil, err
		}
		_, err = deltaBinary(src, n, func(i int, v int64) {
			if width == 4 {
				binary.LittleEndian.PutUint32(out[4*i:], uint32(v))
			} else {
				binary.LittleEndian.PutUint64(out[8*i:], uint64(v))
			}
		})
		return out, err
	case e == format.ByteStreamSplit && width > 0 && physical != format.Int96:
		if len(src) != n*width {
			return nil, badf("a BYTE_STREAM_SPLIT page of %d values has %d bytes, not %d", n, len(src), n*width)
		}
		out, err := get.values(len(src))
		if err != nil {
			return nil, err
		}
		for k := range width {
			stream := src[k*n : (k+1)*n]
			for i, b := range stream {
				out[i*width+k] = b
			}
		}
		return out, nil
	case e == format.DeltaLengthByteArray && physical == format.ByteArray:
		return deltaLength(src, n, get)
	case e == format.DeltaByteArray && (physical == format.ByteArray || physical == format.FixedLenByteArray):
		return deltaByteArray(src, n, width, get)
	}
	return nil, badf("encoding %v of %v values is not supported", e, physical)
}

// deltaBinary decodes n DELTA_BINARY_PACKED values and returns the rest of src.
func deltaBinary(src []byte, n int, put func(i int, v int64)) (rest []byte, err error) {
	short := badf("a DELTA_BINARY_PACKED page ends early")
	head := func() uint64 {
		v, k := binary.Uvarint(src)
		if k <= 0 {
			err = short
			return 0
		}
		src = src[k:]
		return v
	}
	block, minis, total, first := head(), head(), head(), head()
	if err != nil {
		return nil, err
	}
	if total != uint64(n) {
		return nil, badf("a DELTA_BINARY_PACKED page claims %d values, its header %d", total, n)
	}
	if minis == 0 || minis > 1<<16 || block > maxDeltaBlock || block%minis != 0 || block/minis%8 != 0 {
		return nil, badf("a DELTA_BINARY_PACKED page has blocks of %d values in %d parts", block, minis)
	}
	per := int(block / minis)
	value := zigzag(first)
	if n > 0 {
		put(0, value)
	}
	for i := 1; i < n; {
		least := zigzag(head())
		if err != nil || uint64(len(src)) < minis {
			return nil, short
		}
		widths := src[:minis]
		src = src[minis:]
		for _, w := range widths {
			if i >= n {
				break // miniblocks after the last value are not stored
			}
			size := per / 8 * int(w)
			if w > 64 || len(src) < size {
				return nil, short
			}
			for j := 0; j < per && i < n; j++ {
				value += least + int64(bitsAt(src[:size], j*int(w), uint(w)))
				put(i, value)
				i++
			}
			src = src[size:]
		}
	}
	return src, nil
}

// deltaPlausible checks that a delta-encoded page can contain n values. The check comes before
// memory is allocated for them.
func deltaPlausible(src []byte, n int) error {
	if n/maxDeltaBlock > len(src) {
		return badf("a delta-encoded page of %d bytes claims %d values", len(src), n)
	}
	return nil
}

func zigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// bitsAt reads w ≤ 64 bits at a bit position. All of them are inside b.
func bitsAt(b []byte, at int, w uint) uint64 {
	if w == 0 {
		return 0
	}
	i, shift := at/8, uint(at%8)
	if i+9 <= len(b) {
		v := binary.LittleEndian.Uint64(b[i:]) >> shift
		if shift+w > 64 {
			v |= uint64(b[i+8]) << (64 - shift)
		}
		return v & (^uint64(0) >> (64 - w))
	}
	var tail [9]byte
	copy(tail[:], b[i:])
	v := binary.LittleEndian.Uint64(tail[:]) >> shift
	if shift+w > 64 {
		v |= uint64(tail[8]) << (64 - shift)
	}
	return v & (^uint64(0) >> (64 - w))
}

// deltaLength decodes DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes.
func deltaLength(src []byte, n int, get buffers) ([]byte, error) {
	if err := deltaPlausible(src, n); err != nil {
		return nil, err
	}
	out, err := get.values(len(src) + 4*n)
	if err != nil {
		return nil, err
	}
	// Write the lengths to the positions that they would have if no value had bytes.
	total := uint64(0)
	bad := false
	data, err := deltaBinary(src, n, func(i int, v int64) {
		bad = bad || v < 0 || v > int64(len(src))
		total += uint64(v)
		binary.LittleEndian.PutUint32(out[4*i:], uint32(v))
	})
	if err != nil {
		return nil, err
	}
	if bad || total > uint64(len(data)) {
		return nil, badf("the lengths of a DELTA_LENGTH_BYTE_ARRAY page exceed its bytes")
	}
	// Go from the last value to the first, so that a value never overwrites a length that is still
	// to be moved.
	end, from := 4*n+int(total), int(total)
	for i := n - 1; i >= 0; i-- {
		k := int(binary.LittleEndian.Uint32(out[4*i:]))
		end -= k
		from -= k
		copy(out[end:], data[from:from+k])
		end -= 4
		binary.LittleEndian.PutUint32(out[end:], uint32(k))
	}
	return out[:4*n+int(total)], nil
}

// deltaByteArray decodes DELTA_BYTE_ARRAY: every value is a prefix of the previous value and a
// suffix. The decoded page can be far larger than its encoding, so the size is computed before
// memory is allocated. width is 0 for variable lengths.
func deltaByteArray(src []byte, n, width int, get buffers) ([]byte, error) {
	if err := deltaPlausible(src, n); err != nil {
		return nil, err
	}
	mem, err := get.scratch(8 * n)
	if err != nil {
		return nil, err
	}
	lengths := int32s(mem)
	prefix, suffix := lengths[:n], lengths[n:]
	bad := false
	keep := func(dst []int32) func(int, int64) {
		return func(i int, v int64) {
			bad = bad || v < 0 || v > 1<<30
			dst[i] = int32(v)
		}
	}
	src, err = deltaBinary(src, n, keep(prefix))
	if err == nil {
		src, err = deltaBinary(src, n, keep(suffix))
	}
	if err != nil {
		return nil, err
	}
	total, suffixes, last := uint64(0), uint64(0), int32(0)
	for i := range prefix {
		bad = bad || prefix[i] > last || i == 0 && prefix[i] != 0
		last = prefix[i] + suffix[i]
		bad = bad || last < 0 || width > 0 && int(last) != width
		total += uint64(last)
		suffixes += uint64(suffix[i])
		if bad {
			break
		}
	}
	if bad || suffixes > uint64(len(src)) {
		return nil, badf("the lengths of a DELTA_BYTE_ARRAY page do not fit its bytes")
	}
	head := 4
	if width > 0 {
		head = 0
	}
	if hi, lo := bits.Mul64(uint64(n), 4); hi != 0 || total+lo > 1<<31 {
		return nil, badf("a DELTA_BYTE_ARRAY page has %d bytes of values", total)
	}
	out, err := get.values(int(total) + head*n)
	if err != nil {
		return nil, err
	}
	at, before := 0, 0
	for i := range prefix {
		p, s := int(prefix[i]), int(suffix[i])
		if head > 0 {
			binary.LittleEndian.PutUint32(out[at:], uint32(p+s))
			at += head
		}
		copy(out[at:at+p], out[before:before+p])
		copy(out[at+p:at+p+s], src[:s])
		src = src[s:]
		before = at
		at += p + s
	}
	return out, nil
}
