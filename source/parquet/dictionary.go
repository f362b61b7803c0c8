package parquet

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
)

// dictionary is the dictionary of a column chunk. All strides of the chunk share it.
type dictionary struct {
	page   *page // nil if the chunk has no dictionary
	load   shared
	shared *gpu.Dictionary // nil until the page is decoded
}

// n returns the number of values of a decoded dictionary.
func (d *dictionary) n() int { return d.shared.Values.Len }

func (d *dictionary) release() {
	if d.shared != nil {
		d.shared.Values.Release()
		d.shared = nil
	}
}

// decode decodes the n values of a dictionary page.
func (d *dictionary) decode(c *pageReader, b []byte, n int) (err error) {
	if n < 0 || n > len(b) {
		return badf("a dictionary page claims %d values in %d bytes", n, len(b))
	}
	t, physical := c.col.as, c.col.physical
	width := c.col.physicalWidth()
	if physical == format.Boolean || width > 0 && n > len(b)/width || width == 0 && n > len(b)/4 {
		return badf("a dictionary page claims %d values of type %v in %d bytes", n, physical, len(b))
	}
	if t.IsVar() {
		return d.loadVar(c, b, n, width)
	}
	size := n * t.Width()
	data, err := c.lease.Alloc(int64(size) + slack)
	if err != nil {
		return err
	}
	d.shared = &gpu.Dictionary{Values: gpu.Column{Type: t, Len: n, Data: data}}
	values := data.Bytes()[:size]
	if physical == format.ByteArray {
		c.plain = b
		return decimalBytes(c, values, n)
	}
	return c.convert(values, b, n)
}

// decimalBytes converts the next n PLAIN values, which are decimals in byte arrays.
func decimalBytes(c *pageReader, dst []byte, n int) error {
	if c.col.widens() {
		return c.col.widened(func(dst []byte, _, n int, _ []byte) error { return storedDecimals(c, dst, n) })(dst, nil,
			n)
	}
	return storedDecimals(c, dst, n)
}

func storedDecimals(c *pageReader, dst []byte, n int) error {
	for i := range n {
		v, err := c.takeBytes()
		if err != nil {
			return err
		}
		if err := c.col.putDecimal(dst, i, v); err != nil {
			return err
		}
	}
	return nil
}

func (d *dictionary) loadVar(c *pageReader, b []byte, n, width int) error {
	size := n * width
	if width == 0 {
		size = len(b) - 4*n
	}
	values := gpu.Column{Type: c.col.as, Len: n}
	var err error
	if values.Offsets, err = c.lease.Alloc(int64(n+1) * 4); err != nil {
		return err
	}
	if values.Data, err = c.lease.Alloc(int64(size) + slack); err != nil {
		values.Release()
		return err
	}
	d.shared = &gpu.Dictionary{Values: values}
	offsets := int32s(values.Offsets.Bytes())
	offsets[0] = 0
	c.plain = b
	used, err := c.takeVar(offsets[1:], 0, n)
	if err != nil {
		return err
	}
	return c.copyVar(values.Data.Bytes()[:used+slack], offsets)
}

// takeVar reads the lengths of the next n PLAIN values of a String or Binary column and writes the
// end offset of each. The first value starts at offset base. takeVar returns the end of the last
// value. copyVar copies the values.
func (c *pageReader) takeVar(ends []int32, base, n int) (int, error) {
	if width := c.col.physicalWidth(); width > 0 {
		if uint64(n)*uint64(width) > uint64(len(c.plain)) {
			return 0, badf("a data page promises %d values of %d bytes more, it has %d bytes", n, width, len(c.plain))
		}
		if err := fitsOffsets(base + n*width); err != nil {
			return 0, err
		}
		for i := range ends[:n] {
			base += width
			ends[i] = int32(base)
		}
		return base, nil
	}
	b := c.plain
	pos := 0
	for i := range ends[:n] {
		if pos+4 > len(b) {
			return 0, badf("a data page has %d values, it promises %d more", i, n-i)
		}
		size := int(binary.LittleEndian.Uint32(b[pos:]))
		pos += 4 + size
		if pos > len(b) {
			return 0, badf("a value claims %d bytes, its page has %d left", size, len(b)-pos+size)
		}
		base += size
		ends[i] = int32(base)
	}
	return base, fitsOffsets(base)
}

// copyVar copies the values whose lengths takeVar has read from the page to dst. dst has slack
// bytes after the last value. There is one offset more than there are values.
func (c *pageReader) copyVar(dst []byte, offsets []int32) error {
	n := len(offsets) - 1
	if n == 0 {
		return nil
	}
	from, to := int(offsets[0]), int(offsets[n])
	if c.col.physicalWidth() > 0 {
		copy(dst[from:to], c.plain)
		c.plain = c.plain[to-from:]
		return nil
	}
	total := to - from + 4*n
	src := c.plain[: total+slack : cap(c.plain)]
	pos := 4
	at := from
	for _, end := range offsets[1:] {
		size := int(end) - at
		if size <= 32 {
			// Two copies of a fixed size are faster than one exact copy. The next value overwrites
			// the bytes that are written after the end of this value.
			*(*[16]byte)(dst[at:]) = *(*[16]byte)(src[pos:])
			*(*[16]byte)(dst[at+16:]) = *(*[16]byte)(src[pos+16:])
		} else {
			copy(dst[at:end], src[pos:pos+size])
		}
		at = int(end)
		pos += size + 4
	}
	c.plain = c.plain[total:]
	if c.col.field.Type.Kind == gpu.String {
		return checkUTF8(dst[from:to], offsets)
	}
	return nil
}

func fitsOffsets(n int) error {
	if n > maxVarBytes {
		return badf("the values of a stride take more than %d bytes; read it with fewer rows per stride", maxVarBytes)
	}
	return nil
}

// maxVarBytes is the largest number of bytes that the offsets of a column can address.
const maxVarBytes = 1<<31 - 1 - slack

// checkUTF8 validates consecutive strings in b. The first offset is the position of b in the
// column.
func checkUTF8(b []byte, offsets []int32) error {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:])&0x8080808080808080 != 0 {
			break
		}
	}
	if i+8 > len(b) && ascii(b[i:]) {
		return nil
	}
	base := offsets[0]
	for i, end := range offsets[1:] {
		if v := b[offsets[i]-base : end-base]; !utf8.Valid(v) {
			return badf("the string %.40q is not valid UTF-8", v)
		}
	}
	return nil
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
