package parquet

import (
	"encoding/binary"
	"math"

	"github.com/gstream/gstream/gpu"
)

// A column that is missing from a file has a constant value in the file's rows: null, or the value
// in the name of a folder. It is read as a chunk of one page with a dictionary of this one value,
// so that it has the same forms as other columns.

// constantLeaf returns a column whose value is v in all rows of a file.
func constantLeaf(field gpu.Field, v gpu.Scalar) leaf {
	return leaf{field: field, as: field.Type, constant: &v, optional: !v.Valid, maxDef: levelOf(!v.Valid)}
}

func levelOf(optional bool) uint8 {
	if optional {
		return 1
	}
	return 0
}

// constantChunk returns the chunk of a constant column in a row group.
func (c leaf) constantChunk(rows int64) chunk {
	size := int64(len(c.constant.Str))
	out := chunk{rawSize: rows * size, dictionarySize: size, stats: chunkStats{hasRange: c.constant.Valid}}
	if !c.constant.Valid {
		out.stats.nulls = rows
	}
	return out
}

// constantPage sets up the remaining rows as one page with the constant.
func (c *pageReader) constantPage(v gpu.Scalar) error {
	n := int(c.to - c.row)
	c.page, c.sharing, c.left, c.pageState = nil, false, n, pageState{}
	all := hybrid{width: 1, repeat: true, left: n}
	switch {
	case !v.Valid:
		c.hasLevels, c.levels = true, all
		return nil
	case v.Type.Kind == gpu.Bool:
		c.bufs = &c.own
		bits, err := c.values(int(gpu.BitmapBytes(n)))
		if err != nil {
			return err
		}
		setBits(bits, 0, n, v.Int.Lo != 0)
		c.plain = bits
		return nil
	}
	c.coded, c.codes = true, all
	return c.once(&c.dict.load, func() error { return c.dict.constant(c.lease, v) })
}

// constant makes the dictionary of one value.
func (d *dictionary) constant(l *gpu.Lease, v gpu.Scalar) (err error) {
	out := gpu.Column{Type: v.Type, Len: 1}
	size := max(v.Type.Width(), len(v.Str))
	if out.Data, err = l.Alloc(int64(size) + slack); err != nil {
		return err
	}
	b := out.Data.Bytes()
	switch {
	case v.Type.IsVar():
		if out.Offsets, err = l.Alloc(2 * 4); err != nil {
			out.Release()
			return err
		}
		offsets := int32s(out.Offsets.Bytes())
		offsets[0], offsets[1] = 0, int32(len(v.Str))
		copy(b, v.Str)
	case v.Type.Kind == gpu.Float32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v.Float)))
	case v.Type.Kind == gpu.Float64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(v.Float))
	default:
		var whole [16]byte
		binary.LittleEndian.PutUint64(whole[:], v.Int.Lo)
		binary.LittleEndian.PutUint64(whole[8:], uint64(v.Int.Hi))
		copy(b[:size], whole[:])
	}
	d.shared = &gpu.Dictionary{Values: out}
	return nil
}
