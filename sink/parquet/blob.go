package parquet

import "github.com/gstream/gstream/gpu"

// blobBlock is the maximum size of a block of a blob, unless an append needs more. Each smaller
// block doubles the size of the blob, because most columns of a wide table have few bytes.
const blobBlock = 256 << 10

// blob has append-only bytes for which a lease pays: the encoded pages of a column chunk.
type blob struct {
	lease  *gpu.Lease
	blocks []*gpu.Buffer
	filled []int // used bytes of each block
	size   int64
}

func (b *blob) append(p []byte) error {
	before := b.size
	b.size += int64(len(p))
	if n := len(b.blocks) - 1; n >= 0 {
		k := copy(b.blocks[n].Bytes()[b.filled[n]:], p)
		b.filled[n] += k
		p = p[k:]
	}
	if len(p) == 0 {
		return nil
	}
	buf, err := b.lease.Alloc(max(int64(len(p)), min(before, blobBlock)))
	if err != nil {
		return err
	}
	b.blocks = append(b.blocks, buf)
	b.filled = append(b.filled, copy(buf.Bytes(), p))
	return nil
}

// adopt makes a buffer the only bytes of an empty blob, which releases it.
func (b *blob) adopt(buf *gpu.Buffer) {
	b.blocks, b.filled, b.size = []*gpu.Buffer{buf}, []int{int(buf.Size())}, buf.Size()
}

// each calls f for the blocks in order.
func (b *blob) each(f func(p []byte) error) error {
	for i, buf := range b.blocks {
		if err := f(buf.Bytes()[:b.filled[i]]); err != nil {
			return err
		}
	}
	return nil
}

func (b *blob) release() {
	for _, buf := range b.blocks {
		buf.Release()
	}
	b.blocks, b.filled = nil, nil
}
