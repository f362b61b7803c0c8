package move

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Decode returns an ordinary column, with its values in one buffer and without an encoding, for
// any column. It has its own references.
func Decode(cores parallel.Cores, l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	c, err := joined(l, c)
	if err != nil {
		return gpu.Column{}, err
	}
	defer c.Release()
	return decodeValues(cores, l, c)
}

// joined returns a column with the pieces of its values in one buffer, with its own references.
func joined(l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	out := c.Retain()
	pieces := c.Data.Pieces()
	if pieces == nil {
		return out, nil
	}
	data, err := l.Alloc(c.Data.Size())
	if err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	at := 0
	for _, p := range pieces {
		at += copy(data.Bytes()[at:], p.Bytes())
	}
	out.Data.Release()
	out.Data = data
	return out, nil
}

// decodeValues returns an ordinary column for an encoded one, with its own references.
func decodeValues(cores parallel.Cores, l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	switch {
	case c.CodeWidth == 0:
		return c.Retain(), nil
	case c.Dict == nil:
		return widen(l, c)
	}
	out := c.Retain()
	out.CodeWidth = 0
	if c.CodeWidth < 4 {
		codes, err := l.Alloc(int64(c.Len) * 4)
		if err != nil {
			out.Release()
			return gpu.Column{}, err
		}
		wide := gpu.Values[int32](codes, c.Len)
		for i := range wide {
			wide[i] = int32(c.Code(i))
		}
		c.Data.Release()
		out.Data = codes
	}
	if c.Type.IsVar() {
		return out, nil
	}
	defer out.Release()
	return Expand(cores, l, out)
}

// widen returns an encoded column without a dictionary with its values widened to 8
// bytes.
func widen(l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	values, err := l.Alloc(int64(c.Len) * 8)
	if err != nil {
		return gpu.Column{}, err
	}
	wide := gpu.Values[int64](values, c.Len)
	for i, v := range gpu.Values[int32](c.Data, c.Len) {
		wide[i] = int64(v)
	}
	return gpu.Column{Type: c.Type, Len: c.Len, Data: values, Valid: c.Valid.Retain()}, nil
}
