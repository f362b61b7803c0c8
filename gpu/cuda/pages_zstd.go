package cuda

import (
	"cmp"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// The layouts of pages_zstd.cu.
type (
	zstdBlock struct {
		literals, sequences                             uint64
		page, first, frame, window, kind, at, size, raw int32
		streams, tree, count, from, bytes               int32
		tables, _                                       [3]int32
	}
	zstdFrame struct {
		page, content, check int32
		_                    [2]uint32
	}
	zstdPage struct{ page, first, count int32 }
	zstdArgs struct {
		pages, status, blocks, frames, list, work, next uint64
		works, frameCount                               int32
	}
)

const (
	zstdThreads = 128
	copyThreads = 128
	zstdBlocks  = 8 // blocks of a multiprocessor that decode at a time
)

// zstdBatch is the ZSTD pages of a stride. Until place, literals and sequences are positions in their memory.
type zstdBatch struct {
	blocks              []zstdBlock
	frames              []zstdFrame
	pages               []zstdPage
	work                []int32
	literals, sequences int64 // bytes
	checked             bool
	// literalsAt and sequencesAt are positions in the memory of the decoding.
	literalsAt, sequencesAt uint64
	args                    zstdArgs // with positions in the table
}

// add adds a page.
func (z *zstdBatch) add(page int32, blocks []gpu.ZstdBlock) {
	from := int32(len(z.blocks))
	z.pages = append(z.pages, zstdPage{page, from, int32(len(blocks))})
	for _, b := range blocks {
		at := int32(len(z.blocks))
		if b.First {
			z.frames = append(z.frames, zstdFrame{page: page, content: int32(b.Content), check: int32(b.Check)})
			z.checked = z.checked || b.Check >= 0
		}
		x := zstdBlock{page: page, first: flag(b.First), frame: int32(len(z.frames) - 1), window: int32(b.Window),
			kind: int32(b.Kind), at: int32(b.At), size: int32(b.Size), raw: int32(b.Raw), streams: flag(b.Streams),
			tree: from + int32(b.Tree), count: int32(b.Sequences), from: int32(b.From), bytes: int32(b.To - b.From),
			literals: uint64(z.literals), sequences: uint64(z.sequences)}
		if b.Kind >= gpu.ZstdCompressed {
			z.literals += (int64(b.Raw) + pageSlack - 1) / pageSlack * pageSlack
			z.work = append(z.work, 2*at)
		}
		if b.Sequences > 0 {
			z.sequences += int64(b.Sequences) * 8
			z.work = append(z.work, 2*at+1)
		}
		for i, t := range b.Tables {
			x.tables[i] = from + int32(t)
		}
		z.blocks = append(z.blocks, x)
	}
}

// bytes estimates the work of an entry of work.
func (z *zstdBatch) bytes(work int32) int32 {
	b := z.blocks[work>>1]
	if work&1 != 0 {
		return 16 * b.count
	}
	return b.raw
}

// reserve takes memory for literals and sequences.
func (z *zstdBatch) reserve(b *pageBatch) {
	if len(z.pages) > 0 {
		z.literalsAt, z.sequencesAt = b.reserve(z.literals+pageSlack), b.reserve(z.sequences)
	}
}

// put adds what kernels read to a table.
func (z *zstdBatch) put(t *pageTable) {
	if len(z.pages) == 0 {
		return
	}
	slices.SortStableFunc(z.work, func(x, y int32) int { return cmp.Compare(z.bytes(y), z.bytes(x)) })
	z.args = zstdArgs{blocks: put(t, z.blocks), frames: put(t, z.frames), list: put(t, z.pages), work: put(t, z.work),
		next: put(t, make([]uint32, 1)), works: int32(len(z.work)), frameCount: int32(len(z.frames))}
}

// place writes the blocks with their addresses to a table. base is the address of the memory of the decoding.
func (z *zstdBatch) place(t *pageTable, base uint64) {
	for i := range z.blocks {
		b := &z.blocks[i]
		b.literals += base + z.literalsAt
		b.sequences += base + z.sequencesAt
		if b.kind < int32(gpu.ZstdCompressed) {
			b.literals = 0
		}
	}
	copy(t.bytes[z.args.blocks:], gpu.BytesOf(z.blocks))
}

// decompress starts the kernels that decompress the pages. at is the address of the table.
func (z *zstdBatch) decompress(w *decoding, pages pagesArgs, at uint64) {
	if len(z.pages) == 0 {
		return
	}
	a := z.args
	a.pages, a.status = pages.pages, pages.status
	for _, p := range []*uint64{&a.blocks, &a.frames, &a.list, &a.work, &a.next} {
		*p += at
	}
	launchPages(w, "pages_zstd_blocks", min(blocks(len(z.work), zstdThreads/32), w.d.props.multiprocessors*zstdBlocks),
		zstdThreads, a)
	launchPages(w, "pages_zstd_copy", len(z.pages), copyThreads, a)
	if z.checked {
		launchPages(w, "pages_zstd_check", blocks(len(z.frames), zstdThreads/4), zstdThreads, a)
	}
}
