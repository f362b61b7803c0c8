package spill

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"

	"github.com/pierrec/lz4/v4"

	"github.com/gstream/gstream/gpu"
)

// A block has rows of one partition in a file. All numbers are little-endian.
//
//	header   20 bytes: bytes that follow, bytes of the rows when expanded, rows, number of
//	         the stride in its run, and the CRC-32C of the header before it and of the bytes
//	         that follow
//	columns  for each column: its values, then its validity if layout.valid is set
//
// Values are the bytes of the column; bits for Bool; the lengths of all values and then
// their bytes for String and Binary; codes for a column with a dictionary, which the run
// keeps in memory. A block whose two sizes differ is compressed by LZ4.
const (
	headerBytes = 20
	// blockBytes is the target size of a block. A long value makes a larger block.
	blockBytes = 512 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// block is scratch memory for one block.
type block struct {
	raw    []byte // rows, after space for a header
	stored []byte // compressed rows, after space for a header
	lz     lz4.Compressor
	file   *bufio.Reader // what is read
}

// layout describes the blocks of a run.
type layout struct {
	schema *gpu.Schema
	// dicts has the dictionary of each coded column, nil for other columns.
	dicts []*gpu.Dictionary
	// codes translates the codes of other dictionaries to those of dicts, by column; nil where it
	// is the same dictionary.
	codes []map[*gpu.Dictionary][]int32
	// valid says which columns have validity.
	valid []bool
	// texts are the columns whose blocks have strings instead of codes.
	texts []int
}

// encode returns the block of rows [from, to) of a stride in host memory. number is the number of
// the stride in the run. The block is valid until the next call.
func (b *block) encode(lay *layout, s *gpu.Stride, number, from, to int, compress bool) ([]byte, error) {
	out := append(b.raw[:0], make([]byte, headerBytes)...)
	for i, c := range s.Cols {
		out = appendColumn(out, c, from, to, lay.dicts[i] != nil)
		if lay.valid[i] {
			out = appendValidity(out, c, from, to)
		}
	}
	b.raw = out
	if len(out) > math.MaxInt32 {
		return nil, gpu.Exceeded("%d rows of %d bytes are too many for one block", to-from, len(out))
	}
	size := len(out) - headerBytes
	if compress {
		if need := headerBytes + lz4.CompressBlockBound(size); cap(b.stored) < need {
			b.stored = make([]byte, need)
		}
		small := b.stored[:cap(b.stored)]
		// Incompressible rows are stored as they are.
		if n, err := b.lz.CompressBlock(out[headerBytes:], small[headerBytes:]); err == nil && n > 0 && n < size {
			out = small[:headerBytes+n]
		}
	}
	binary.LittleEndian.PutUint32(out, uint32(len(out)-headerBytes))
	binary.LittleEndian.PutUint32(out[4:], uint32(size))
	binary.LittleEndian.PutUint32(out[8:], uint32(to-from))
	binary.LittleEndian.PutUint32(out[12:], uint32(number))
	binary.LittleEndian.PutUint32(out[16:], checksum(out))
	return out, nil
}

// checksum returns the checksum of a block.
func checksum(block []byte) uint32 {
	return crc32.Update(crc32.Checksum(block[:16], castagnoli), castagnoli, block[headerBytes:])
}

// sumIn returns the checksum that a block has.
func sumIn(block []byte) uint32 { return binary.LittleEndian.Uint32(block[16:headerBytes]) }

// decode reads the next block and adds its rows to out. limit is the maximum size of the block with
// its header.
func (b *block) decode(r io.Reader, limit int64, lay *layout, out *assembly) (read int64, err error) {
	if cap(b.stored) < headerBytes {
		b.stored = make([]byte, headerBytes, blockBytes)
	}
	head := b.stored[:headerBytes]
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, err
	}
	stored, size, rows := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:]),
		binary.LittleEndian.Uint32(head[8:])
	read = headerBytes + int64(stored)
	if read > limit || stored > size || size > math.MaxInt32 || rows > math.MaxInt32 {
		return 0, errDamaged
	}
	if int64(cap(b.stored)) < read {
		b.stored = append(make([]byte, 0, read), head...)
	}
	all := b.stored[:read]
	if _, err := io.ReadFull(r, all[headerBytes:]); err != nil {
		return 0, err
	}
	if checksum(all) != sumIn(all) {
		return 0, errDamaged
	}
	if out.skip(int(binary.LittleEndian.Uint32(all[12:]))) {
		return read, nil
	}
	data := all[headerBytes:]
	if stored != size {
		if cap(b.raw) < int(size) {
			b.raw = make([]byte, size)
		}
		n, err := lz4.UncompressBlock(data, b.raw[:size])
		if err != nil || n != int(size) {
			return 0, errDamaged
		}
		data = b.raw[:size]
	}
	return read, out.add(lay, data, int(rows))
}

// appendColumn appends the values of rows [from, to).
func appendColumn(out []byte, c gpu.Column, from, to int, coded bool) []byte {
	switch {
	case coded:
		return append(out, c.Data.Bytes()[from*4:to*4]...)
	case c.Type.IsVar():
		lengths := len(out)
		out = append(out, make([]byte, 4*(to-from))...)
		if c.Dict == nil {
			offsets := gpu.Values[int32](c.Offsets, c.Len+1)[from : to+1]
			for i := range to - from {
				binary.LittleEndian.PutUint32(out[lengths+4*i:], uint32(offsets[i+1]-offsets[i]))
			}
			return append(out, c.Data.Bytes()[offsets[0]:offsets[to-from]]...)
		}
		texts := codedTextOf(c)
		for i := from; i < to; i++ {
			v := texts.at(i)
			binary.LittleEndian.PutUint32(out[lengths+4*(i-from):], uint32(len(v)))
			out = append(out, v...)
		}
		return out
	case c.Type.Kind == gpu.Bool:
		return appendBits(out, c.Data.Bytes(), from, to)
	}
	w := c.Type.Width()
	if c.Dict == nil {
		return append(out, c.Data.Bytes()[from*w:to*w]...)
	}
	values, codes := c.Dict.Values.Data.Bytes(), gpu.Values[int32](c.Data, c.Len)
	for i := from; i < to; i++ {
		at := 0
		if c.IsValid(i) { // the code of a null is unspecified
			at = int(codes[i]) * w
		}
		if c.Dict.Values.Len == 0 {
			out = append(out, make([]byte, w)...)
			continue
		}
		out = append(out, values[at:at+w]...)
	}
	return out
}

// appendValidity appends the validity of rows [from, to), also of a column without nulls.
func appendValidity(out []byte, c gpu.Column, from, to int) []byte {
	if c.Valid != nil {
		return appendBits(out, c.Valid.Bytes(), from, to)
	}
	at := len(out)
	out = append(out, make([]byte, (to-from+7)/8)...)
	gpu.SetBits(out[at:], 0, to-from)
	return out
}

// appendBits appends bits [from, to) of src in whole bytes.
func appendBits(out, src []byte, from, to int) []byte {
	at := len(out)
	out = append(out, make([]byte, (to-from+7)/8)...)
	gpu.AppendBits(out[at:], 0, src, from, to-from)
	return out
}
