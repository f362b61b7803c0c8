package parquet

import (
	"math"
	"slices"

	"github.com/parquet-go/parquet-go/bloom"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// bloomBits is the number of bits of a Bloom filter for each distinct value. With 10, about one absent value in a
// hundred is taken for one that is there.
const bloomBits = 10

// hashFixed hashes n PLAIN values of fixed width for the chunk's Bloom filter.
func (p *pageWriter) hashFixed(plain []byte, n int) (err error) {
	if !p.column.bloom {
		return nil
	}
	if p.hashes, err = take[uint64](p.lease, &p.hashed, n); err != nil {
		return err
	}
	h := bloom.XXH64{}
	switch p.column.width {
	case 4:
		h.MultiSum64Uint32(p.hashes, view[uint32](plain, n))
	case 8:
		h.MultiSum64Uint64(p.hashes, view[uint64](plain, n))
	default:
		h.MultiSum64Uint128(p.hashes, view[[16]byte](plain, n))
	}
	p.hashEqualFloats(plain, n)
	return nil
}

// hashEqualFloats adds the other zero if there is one of them, and the usual NaN if there is any, since SQL takes these
// for equal.
func (p *pageWriter) hashEqualFloats(plain []byte, n int) {
	h := bloom.XXH64{}
	switch p.column.physical {
	case format.Float:
		zero, nan := zeroOrNaN(view[float32](plain, n))
		if zero {
			p.hashes = append(p.hashes, h.Sum64Uint32(0), h.Sum64Uint32(1<<31))
		}
		if nan {
			p.hashes = append(p.hashes, h.Sum64Uint32(math.Float32bits(float32(math.NaN()))))
		}
	case format.Double:
		zero, nan := zeroOrNaN(view[float64](plain, n))
		if zero {
			p.hashes = append(p.hashes, h.Sum64Uint64(0), h.Sum64Uint64(1<<63))
		}
		if nan {
			p.hashes = append(p.hashes, h.Sum64Uint64(0x7ff8000000000000)) // math.NaN has another payload
		}
	}
}

// zeroOrNaN reports whether one of the values is a zero, and whether one is a NaN.
func zeroOrNaN[T float32 | float64](values []T) (zero, nan bool) {
	for _, v := range values {
		zero, nan = zero || v == 0, nan || v != v
	}
	return zero, nan
}

// bloomFilter appends the Bloom filter of the hashed values to the chunk, after its last page.
func (p *pageWriter) bloomFilter() error {
	slices.Sort(p.hashes)
	distinct := slices.Compact(p.hashes)
	head, size, err := bloomHead(int64(len(distinct)))
	if err != nil {
		return err
	}
	bits, err := take[byte](p.lease, &p.filter, size)
	if err != nil {
		return err
	}
	clear(bits)
	bloom.MakeSplitBlockFilter(bits).InsertBulk(distinct)
	k := p.chunk
	k.meta.BloomFilterOffset, k.meta.BloomFilterLength = k.pages.size, int32(len(head)+size)
	if err := k.pages.append(head); err != nil {
		return err
	}
	return k.pages.append(bits)
}

// bloomHead returns the size of a Bloom filter of a number of values that differ, and the bytes of the file before it.
func bloomHead(distinct int64) (head []byte, size int, err error) {
	size = max(bloom.NumSplitBlocksOf(distinct, bloomBits), 1) * bloom.BlockSize
	head, err = thrift.Marshal(new(thrift.CompactProtocol), &format.BloomFilterHeader{NumBytes: int32(size),
		Algorithm:   format.BloomFilterAlgorithm{Value: new(format.SplitBlockAlgorithm)},
		Hash:        format.BloomFilterHash{Value: new(format.XxHash)},
		Compression: format.BloomFilterCompression{Value: new(format.BloomFilterUncompressed)}})
	return head, size, err
}
