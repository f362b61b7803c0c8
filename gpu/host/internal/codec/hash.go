package codec

import (
	"math/bits"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/move"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// hashNull is the hash of a null.
const hashNull = 0xa0761d6478bd642f

// combine adds the hash of one more column to the hash of a row. It is not symmetric, so
// equal columns do not cancel each other.
func combine(h, v, seed uint64) uint64 { return word.Mix(bits.RotateLeft64(h, 23)^v, seed) }

// Hash returns the hash of each row of key columns, with a seed.
func Hash(cores parallel.Cores, l *gpu.Lease, keys []gpu.Column, seed uint64) (gpu.Column, error) {
	n := 0
	if len(keys) > 0 {
		n = keys[0].Len
	}
	buf, err := l.Alloc(int64(n) * 8)
	if err != nil {
		return gpu.Column{}, err
	}
	out := gpu.Values[uint64](buf, n)
	dicts := make([]memory.Array[uint64], len(keys))
	defer memory.ReleaseAll(dicts)
	for k, c := range keys {
		if c.Dict == nil {
			continue
		}
		if c.Dict.Values.Len > n { // most values have no row
			if c.Type.IsVar() {
				continue
			}
			plain, err := move.Expand(cores, l, c)
			if err != nil {
				buf.Release()
				return gpu.Column{}, err
			}
			defer plain.Release()
			keys = slices.Clone(keys)
			keys[k] = plain
			continue
		}
		if dicts[k], err = memory.New[uint64](l, c.Dict.Values.Len); err != nil {
			buf.Release()
			return gpu.Column{}, err
		}
		hashValues(dicts[k].V, c.Dict.Values, 0, seed)
	}
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		var tmp [512]uint64
		for at := lo; at < hi; at += len(tmp) {
			rows := out[at:min(at+len(tmp), hi)]
			for k, c := range keys {
				hashes := tmp[:len(rows)]
				if dict := dicts[k].V; len(dict) > 0 {
					for i, code := range gpu.Values[int32](c.Data, n)[at : at+len(rows)] {
						hashes[i] = gpu.Lookup(dict, code)
					}
				} else if c.Dict != nil && c.Dict.Values.Len > n {
					hashCodes(hashes, c, at, seed)
				} else if c.Dict == nil {
					hashValues(hashes, c, at, seed)
				}
				if c.Valid != nil {
					valid := gpu.Words(c.Valid, n)
					for i := range hashes {
						row := uint(at + i)
						null := valid[row/64]>>(row%64)&1 - 1 // all ones, or 0 for a value
						hashes[i] = hashes[i]&^null | hashNull&null
					}
				}
				if k == 0 {
					copy(rows, hashes)
					continue
				}
				for i, h := range hashes {
					rows[i] = combine(rows[i], h, seed)
				}
			}
		}
		return nil
	})
	if err != nil {
		buf.Release()
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Uint64), Len: n, Data: buf}, nil
}

// hashCodes hashes rows [at, at+len(out)) of a column of text with a dictionary. It ignores validity.
func hashCodes(out []uint64, c gpu.Column, at int, seed uint64) {
	values := c.Dict.Values
	off, data := gpu.Values[int32](values.Offsets, values.Len+1), values.Data.Bytes()
	for i, code := range gpu.Values[int32](c.Data, c.Len)[at : at+len(out)] {
		if code := uint(code); code < uint(values.Len) { // otherwise it is the code of a null
			out[i] = word.HashBytes(data[off[code]:off[code+1]], seed)
		}
	}
}

// hashValues hashes rows [at, at+len(out)) of a plain column. It ignores validity.
func hashValues(out []uint64, c gpu.Column, at int, seed uint64) {
	switch {
	case c.Type.IsVar():
		off, data := gpu.Values[int32](c.Offsets, c.Len+1), c.Data.Bytes()
		for i := range out {
			out[i] = word.HashBytes(data[off[at+i]:off[at+i+1]], seed)
		}
	case c.Type.Wide:
		for i, v := range gpu.Values[gpu.Int128](c.Data, c.Len)[at : at+len(out)] {
			out[i] = word.Mix(v.Lo, seed)
			if !v.IsInt64() {
				out[i] = word.Mix(out[i]^uint64(v.Hi), seed)
			}
		}
	default:
		word.Load(out, c, at)
		for i, v := range out {
			out[i] = word.Mix(v, seed)
		}
	}
}
