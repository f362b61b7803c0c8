package host

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/gstream/gstream/gpu"
)

const (
	// mixA and mixB are odd constants with evenly spread bits. Any such numbers would work.
	mixA = 0x9e3779b97f4a7c15
	mixB = 0xd6e8feb86659fd93
	// hashNull is the hash of a null.
	hashNull = 0xa0761d6478bd642f
)

// tableSeed is the seed of the hash tables of this process. No result depends on it:
// groups are numbered as they appear, and matches come in build order.
var tableSeed = rand.Uint64()

// mix is a 64-bit finaliser: it folds the two halves of a 128-bit product.
func mix(x, seed uint64) uint64 {
	hi, lo := bits.Mul64(x^seed, mixA)
	return hi ^ lo
}

// tableMix is mix for hash tables, with another constant. The keys of a partition, which Hash
// selects, have similar products with the first constant: with it, keys that are close to each
// other would collide in a few slots of a table, whatever the seeds.
func tableMix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^tableSeed, mixB)
	return hi ^ lo
}

// combine adds the hash of one more column to the hash of a row. It is not symmetric, so
// equal columns do not cancel each other.
func combine(h, v, seed uint64) uint64 { return mix(bits.RotateLeft64(h, 23)^v, seed) }

// hashBytes hashes a string eight bytes at a time.
func hashBytes(b []byte, seed uint64) uint64 {
	h := uint64(len(b)) * mixA
	for len(b) >= 8 {
		h = mix(h^binary.LittleEndian.Uint64(b), seed)
		b = b[8:]
	}
	return mix(h^loadShort(b), seed)
}

// loadShort loads less than 8 bytes as a little-endian integer.
func loadShort(b []byte) (x uint64) {
	if n := len(b); n >= 4 {
		return uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[n-4:]))<<(8*(n-4))
	}
	for i, c := range b {
		x |= uint64(c) << (8 * i)
	}
	return x
}

// Hash implements gpu.Queue.
func (q *queue) Hash(l *gpu.Lease, keys []gpu.Column, seed uint64) (gpu.Column, error) {
	if err := q.check(keys); err != nil {
		return gpu.Column{}, err
	}
	n := 0
	if len(keys) > 0 {
		n = keys[0].Len
	}
	buf, err := l.Alloc(int64(n) * 8)
	if err != nil {
		return gpu.Column{}, q.fail(err)
	}
	out := gpu.Values[uint64](buf, n)
	dicts := make([]array[uint64], len(keys))
	defer releaseArrays(dicts)
	for k, c := range keys {
		if c.Dict == nil {
			continue
		}
		if c.Dict.Values.Len > n { // most values have no row
			if c.Type.IsVar() {
				continue
			}
			plain, err := q.dev.expand(l, c)
			if err != nil {
				buf.Release()
				return gpu.Column{}, q.fail(err)
			}
			defer plain.Release()
			keys = slices.Clone(keys)
			keys[k] = plain
			continue
		}
		if dicts[k], err = newArray[uint64](l, c.Dict.Values.Len); err != nil {
			buf.Release()
			return gpu.Column{}, q.fail(err)
		}
		hashValues(dicts[k].v, c.Dict.Values, 0, seed)
	}
	err = q.dev.parallel(n, grain, func(lo, hi int) error {
		var tmp [512]uint64
		for at := lo; at < hi; at += len(tmp) {
			rows := out[at:min(at+len(tmp), hi)]
			for k, c := range keys {
				hashes := tmp[:len(rows)]
				if dict := dicts[k].v; len(dict) > 0 {
					for i, code := range gpu.Values[int32](c.Data, n)[at : at+len(rows)] {
						hashes[i] = gpu.Lookup(dict, code)
					}
				} else if c.Dict != nil && c.Dict.Values.Len > n {
					hashCodes(hashes, c, at, seed)
				} else if c.Dict == nil {
					hashValues(hashes, c, at, seed)
				}
				if c.Valid != nil {
					for i := range hashes {
						if !c.IsValid(at + i) {
							hashes[i] = hashNull
						}
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
		return gpu.Column{}, q.fail(err)
	}
	return gpu.Column{Type: gpu.Of(gpu.Uint64), Len: n, Data: buf}, nil
}

// hashCodes hashes rows [at, at+len(out)) of a column of text with a dictionary. It ignores validity.
func hashCodes(out []uint64, c gpu.Column, at int, seed uint64) {
	values := c.Dict.Values
	off, data := gpu.Values[int32](values.Offsets, values.Len+1), values.Data.Bytes()
	for i, code := range gpu.Values[int32](c.Data, c.Len)[at : at+len(out)] {
		if code := uint(code); code < uint(values.Len) { // otherwise it is the code of a null
			out[i] = hashBytes(data[off[code]:off[code+1]], seed)
		}
	}
}

// hashValues hashes rows [at, at+len(out)) of a plain column. It ignores validity.
func hashValues(out []uint64, c gpu.Column, at int, seed uint64) {
	switch {
	case c.Type.IsVar():
		off, data := gpu.Values[int32](c.Offsets, c.Len+1), c.Data.Bytes()
		for i := range out {
			out[i] = hashBytes(data[off[at+i]:off[at+i+1]], seed)
		}
	case c.Type.Wide:
		for i, v := range gpu.Values[gpu.Int128](c.Data, c.Len)[at : at+len(out)] {
			out[i] = mix(v.Lo, seed)
			if !v.IsInt64() {
				out[i] = mix(out[i]^uint64(v.Hi), seed)
			}
		}
	default:
		loadWords(out, c, at)
		for i, v := range out {
			out[i] = mix(v, seed)
		}
	}
}
