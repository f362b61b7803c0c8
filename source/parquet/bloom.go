package parquet

import (
	"context"
	"encoding/binary"
	"io"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go/bloom"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxBloomHeader is an upper bound of the size of a Bloom filter's header.
	maxBloomHeader = 64
	// maxBloomValues bounds the number of values that are looked up while a scan is planned. Each
	// value reads a block in every row group.
	maxBloomValues = 128
)

// absent reports whether the Bloom filter of a row group proves that the row group has none of the
// values of an equality. A damaged filter proves nothing: the row group is then read, and no row is
// lost.
func (f *file) absent(ctx context.Context, g *rowGroup, p source.Predicate) bool {
	m := &g.chunks[p.Column]
	if m.bloom.size == 0 || p.Op != source.Eq && p.Op != source.In || len(p.Values) > maxBloomValues {
		return false
	}
	var hashes []uint64
	for _, v := range p.Values {
		if !v.Valid {
			continue // a comparison with null is never true
		}
		h, ok := f.cols[p.Column].bloomHash(v)
		if !ok {
			return false
		}
		hashes = append(hashes, h)
	}
	some, err := f.someInBloom(ctx, m.bloom, hashes)
	return err == nil && !some
}

// wholeBloom bounds the bytes of a Bloom filter of an object that is read by one request, not block by block.
const wholeBloom = 4 << 20

// readOnce reads a range of a file at once, when the first of its bytes is asked for.
type readOnce struct {
	io.ReaderAt
	at    extent
	bytes []byte
}

// ReadAt implements io.ReaderAt, for bytes of the range.
func (p *readOnce) ReadAt(b []byte, off int64) (int, error) {
	if p.bytes == nil {
		bytes := make([]byte, p.at.size)
		if err := readFull(p.ReaderAt, bytes, p.at.start); err != nil {
			return 0, err
		}
		p.bytes = bytes
	}
	n := copy(b, p.bytes[min(max(off-p.at.start, 0), p.at.size):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// someInBloom reports whether the filter at a range of the file contains one of the hashes.
func (f *file) someInBloom(ctx context.Context, at extent, hashes []uint64) (some bool, err error) {
	defer guard(&err)
	src, err := f.handle.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer f.handle.release()
	if isRemote(f.handle.path) && at.size <= wholeBloom {
		src = &readOnce{ReaderAt: src, at: at}
	}
	head := make([]byte, min(maxBloomHeader, at.size))
	if err := readFull(src, head, at.start); err != nil {
		return false, err
	}
	var h format.BloomFilterHeader
	n, err := unmarshalCompact(head, &h)
	if err != nil {
		return false, err
	}
	_, split := h.Algorithm.Value.(*format.SplitBlockAlgorithm)
	_, xx := h.Hash.Value.(*format.XxHash)
	_, plain := h.Compression.Value.(*format.BloomFilterUncompressed)
	size := int64(h.NumBytes)
	if !split || !xx || !plain || size < bloom.BlockSize || size%bloom.BlockSize != 0 {
		return false, badf("a Bloom filter is damaged or of a kind that is not supported")
	}
	if size != at.size-int64(n) {
		return false, badf("a Bloom filter claims %d bytes, it has %d", size, at.size-int64(n))
	}
	blocks := io.NewSectionReader(src, at.start+int64(n), size)
	for _, hash := range hashes {
		if some, err = bloom.CheckSplitBlock(blocks, size, hash); some || err != nil {
			return some, err
		}
	}
	return false, nil
}

// bloomHash returns the hash of a value in the PLAIN encoding of the column. ok is false if equal
// values have several encodings.
func (c leaf) bloomHash(v gpu.Scalar) (uint64, bool) {
	t := c.field.Type
	if !v.Type.SameSQL(t) {
		return 0, false
	}
	h := bloom.XXH64{}
	switch c.physical {
	case format.Int32:
		if t.IsUnsigned() {
			return h.Sum64Uint32(uint32(v.Int.Lo)), v.Int.Hi == 0 && v.Int.Lo <= math.MaxUint32
		}
		return h.Sum64Uint32(uint32(v.Int.Lo)), v.Int.IsInt64() && int64(int32(v.Int.Lo)) == int64(v.Int.Lo)
	case format.Int64:
		return h.Sum64Uint64(v.Int.Lo), v.Int.IsInt64() || t.IsUnsigned() && v.Int.Hi == 0
	case format.Float:
		x := float32(v.Float)
		return h.Sum64Uint32(math.Float32bits(x)), x != 0 && float64(x) == v.Float
	case format.Double:
		return h.Sum64Uint64(math.Float64bits(v.Float)), v.Float != 0 && v.Float == v.Float
	case format.ByteArray:
		return h.Sum64([]byte(v.Str)), t.IsVar()
	case format.FixedLenByteArray:
		if t.IsVar() {
			return h.Sum64([]byte(v.Str)), len(v.Str) == c.length
		}
		if t.IsFloat() {
			return 0, false
		}
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], uint64(v.Int.Hi))
		binary.BigEndian.PutUint64(b[8:], v.Int.Lo)
		return h.Sum64(b[:]), c.length == len(b)
	}
	return 0, false
}
