package move

import (
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// textParts finds rows of a column of bytes that consists of several parts.
type textParts struct {
	parts  []gpu.Column
	starts []int   // first row of each part
	blocks []int32 // part of the first row of every block of 1<<textBlock rows
}

// textBlock is the logarithm of the rows of a block.
const textBlock = 10

func newTextParts(parts []gpu.Column) (p *textParts, nulls bool) {
	p = &textParts{parts: parts}
	rows := 0
	for k, c := range parts {
		p.starts = append(p.starts, rows)
		rows += c.Len
		nulls = nulls || c.Valid != nil
		for len(p.blocks)<<textBlock < rows {
			p.blocks = append(p.blocks, int32(k))
		}
	}
	return p, nulls
}

// row returns the bytes of a row, and whether it is not null.
func (p *textParts) row(id int) ([]byte, bool) {
	k := int(p.blocks[id>>textBlock])
	for k+1 < len(p.starts) && p.starts[k+1] <= id {
		k++
	}
	c := &p.parts[k]
	r := id - p.starts[k]
	if c.Valid != nil && !gpu.Bit(c.Valid.Bytes(), r) {
		return nil, false
	}
	if c.Dict != nil {
		r = int(gpu.Values[int32](c.Data, c.Len)[r])
		c = &c.Dict.Values
	}
	off := gpu.Values[int32](c.Offsets, c.Len+1)
	return c.Data.Bytes()[off[r]:off[r+1]], true
}

// GatherParts returns rows, by their ids, of a column of bytes that consists of several parts.
func GatherParts(cores parallel.Cores, l *gpu.Lease, parts []gpu.Column, ids []int32) (out gpu.Column, err error) {
	n := len(ids)
	from, nulls := newTextParts(parts)
	out = gpu.Column{Type: parts[0].Type, Len: n}
	defer func() {
		if err != nil {
			out.Release()
		}
	}()
	if out.Offsets, err = l.Alloc(int64(n+1) * 4); err != nil {
		return out, err
	}
	if nulls {
		if out.Valid, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return out, err
		}
		clear(out.Valid.Bytes())
	}
	offsets, valid := gpu.Values[int32](out.Offsets, n+1), gpu.Words(out.Valid, n)
	starts := make([]int64, (n+parallel.Grain-1)/parallel.Grain+1)
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		var sum int64
		for i := lo; i < hi; i++ {
			b, ok := from.row(int(ids[i]))
			if valid != nil && ok {
				valid[i/64] |= 1 << (i % 64)
			}
			offsets[i+1] = int32(len(b))
			sum += int64(len(b))
		}
		starts[lo/parallel.Grain+1] = sum
		return nil
	})
	if err != nil {
		return out, err
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	total := starts[len(starts)-1]
	if total > math.MaxInt32 {
		return out, gpu.TooManyBytes(total, n)
	}
	if out.Data, err = l.Alloc(total); err != nil {
		return out, err
	}
	offsets[0] = 0
	to := out.Data.Bytes()
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		at := starts[lo/parallel.Grain]
		for i := lo; i < hi; i++ {
			b, _ := from.row(int(ids[i]))
			at += int64(copy(to[at:], b))
			offsets[i+1] = int32(at)
		}
		return nil
	})
	return out, err
}
