package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// The layouts of bucket.cu.
type (
	bucketArgs struct {
		key, valid, rows, owner, full, toKey, toRows, toOwner, heads, used, mul uint64
		n                                                                       int64
		buckets                                                                 uint64
		shift, mask, bits, _                                                    uint32
	}
	bucketHeadsArgs struct {
		heads         uint64
		partitions, _ uint32
	}
	bucketEndArgs struct {
		owner, heads, valid, offsets, key, rows uint64
		buckets, partitions, words, _           uint32
	}
)

const (
	bucketThreads = 512 // BUCKET_THREADS of bucket.cu
	bucketBits    = 8   // bits of the largest number of partitions of a pass, BUCKET_WAYS
)

// bucketSide has the rows of a side in buckets.
type bucketSide struct {
	partitions              int
	most                    int // number of buckets that are allocated
	key, rows, owner, heads *gpu.Buffer
	used                    *gpu.Buffer // the number of buckets
}

// PartitionBuckets implements gpu.Queue, in two passes for more than 8 bits. A bucket has the
// number of its partition, but no link to the next bucket. The chains are made by sorting the
// buckets by partition.
func (q *queue) PartitionBuckets(l *gpu.Lease, key gpu.Column, d gpu.Digit) (out gpu.Buckets, err error) {
	o := q.begin("partition into buckets", l)
	defer end(o, &out, &err)
	o.takes(key)
	if err := gpu.CheckBuckets(key, d); err != nil {
		return out, err
	}
	width := key.Type.Width()
	a := bucketArgs{key: addr(key.Data), valid: addr(key.Valid), mul: max(d.Factor, 1), n: int64(key.Len)}
	first := min(d.Bits, (d.Bits+1)/2)
	if d.Bits <= bucketBits {
		first = d.Bits
	}
	var side *bucketSide
	for done := uint(0); ; {
		bits := first
		if done > 0 {
			bits = d.Bits - first
		}
		done += bits
		before := side
		side = o.bucketSide(key.Len, width, done)
		if o.err != nil {
			return out, nil
		}
		if a.mask, a.bits = uint32(1)<<done-1, uint32(bits); done > 0 {
			a.shift = uint32(d.Shift + d.Bits - done)
		}
		if before != nil {
			a.key, a.valid, a.rows, a.owner, a.full, a.buckets = addr(before.key), 0, addr(before.rows),
				addr(before.owner), addr(before.heads), addr(before.used)
		}
		a.toKey, a.toRows, a.toOwner, a.heads, a.used = addr(side.key), addr(side.rows), addr(side.owner),
			addr(side.heads), addr(side.used)
		if key.Len > 0 {
			launch(o, fmt.Sprintf("bucket_pass_k%d", width),
				min(blocks(key.Len, gpu.BucketRows), 4*o.q.dev.props.multiprocessors), bucketThreads, 0, a)
		}
		if before != nil {
			o.free(before.key, before.rows, before.owner, before.heads, before.used)
		}
		if done == d.Bits {
			break
		}
	}
	var used [1]uint32
	if !o.read(side.used, 0, gpu.BytesOf(used[:])) {
		return out, nil
	}
	n := int(used[0])
	slots := n * gpu.BucketRows
	chain, offsets := o.bucketChains(side, n, d.Bits)
	valid := o.alloc(gpu.BitmapBytes(slots))
	launch(o, "bucket_end", blocks(max(slots/32, side.partitions+1), 256), 256, 0,
		bucketEndArgs{owner: addr(side.owner), heads: addr(side.heads), valid: addr(valid),
			offsets: addr(offsets), key: addr(side.key), rows: addr(side.rows), buckets: uint32(n),
			partitions: uint32(side.partitions), words: uint32(width / 4)})
	ids := gpu.Of(gpu.Int32)
	out.Key = gpu.Column{Type: key.Type, Len: slots, Data: o.shrink(side.key, int64(slots)*int64(width)),
		Valid: o.keep(valid)}
	out.Offsets = gpu.Column{Type: ids, Len: side.partitions + 1, Data: o.keep(offsets)}
	out.Chain = gpu.Column{Type: ids, Len: n, Data: o.keep(chain)}
	out.Rows = gpu.Column{Type: ids, Len: slots, Data: o.shrink(side.rows, int64(slots)*4)}
	return out, nil
}

// bucketSide allocates empty buckets for n rows.
func (o *op) bucketSide(n, width int, bits uint) *bucketSide {
	s := &bucketSide{partitions: 1 << bits}
	s.most = gpu.MostBuckets(n, bits)
	slots := int64(s.most) * gpu.BucketRows
	s.key, s.rows = o.alloc(slots*int64(width)), o.alloc(slots*4)
	s.owner, s.heads, s.used = o.alloc(int64(max(s.most, 1))*4), o.alloc(int64(s.partitions)*8), o.alloc(4)
	if o.err == nil {
		o.fill(s.used, 0, 4, 0)
		launch(o, "bucket_heads", blocks(s.partitions, 256), 256, 0,
			bucketHeadsArgs{heads: addr(s.heads), partitions: uint32(s.partitions)})
	}
	return s
}

// bucketChains returns the buckets in order of their partitions, and for each partition the
// number of buckets before it.
func (o *op) bucketChains(s *bucketSide, n int, bits uint) (chain, offsets *gpu.Buffer) {
	if n == 0 || bits == 0 {
		offsets = o.alloc(int64(s.partitions+1) * 4)
		if o.err != nil {
			return nil, nil
		}
		o.fill(offsets, 0, int64(s.partitions)*4, 0)
		o.write(offsets, int64(s.partitions)*4, gpu.BytesOf([]uint32{uint32(n)}))
		if n > 0 {
			chain = o.alloc(int64(n) * 4)
			launch(o, "sort_number", o.grid(n), 256, 0, sortNumberArgs{addr(chain), int64(n)})
		}
		return chain, offsets
	}
	chain = o.alloc(int64(n) * 4)
	return chain, o.radix(radixKey{buf: s.owner, width: 4, bits: bits}, n, []mover{{nil, chain, 4}}, nil, true)
}
