package cuda

import (
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// The layouts of encode_filter.cu.
type (
	filterChunk struct {
		keys, filter, out uint64
		logSlots          int32
		blocks            uint32
	}
	filterArgs struct{ chunks, states, pages, results, filters, counts uint64 }
)

// filterBlocks is FILTER_BLOCKS of encode_filter.cu. A block of a filter has filterBlock bytes.
const filterBlocks, filterBlock = 16, 32

// layOutFilter reserves the set of hashes of a chunk, in a table whose bits are all set at first.
func (e *encoding) layOutFilter(c *encodeChunk, table *arena) {
	c.filter = int32(len(e.filters))
	e.filters = append(e.filters, filterChunk{logSlots: int32(max(6, bits.Len64(2*uint64(c.rows)+4)))})
	f := &e.filters[c.filter]
	table.take(&f.keys, (1<<f.logSlots+1)*8)
}

// hash collects the hashes of all values.
func (e *encoding) hash() {
	e.filterArgs = filterArgs{chunks: e.args.chunks, states: e.args.states, pages: e.args.pages,
		results: e.args.results, filters: e.upload(gpu.BytesOf(e.filters))}
	e.filterCounts = make([]uint64, len(e.filters))
	counts := e.alloc(int64(len(e.filters)) * 8)
	if counts != nil {
		e.fill(counts, 0, counts.Size(), 0)
	}
	e.countMem, e.filterArgs.counts = counts, addr(counts)
	launch(e.op, "encode_hashes", e.data, encodeThreads, 0, e.filterArgs)
}

// readFilterCounts reads the number of hashes of each filter, and reports whether it could.
func (e *encoding) readFilterCounts() bool {
	return len(e.filters) == 0 || e.read(e.countMem, 0, gpu.BytesOf(e.filterCounts))
}

// placeFilter notes the size of a filter, and its place in the output.
func (e *encoding) placeFilter(filter int32, at int64, size int) {
	f := &e.filters[filter]
	f.blocks, f.out = uint32(size/filterBlock), uint64(at)
}

// putFilters makes the filters of the output.
func (e *encoding) putFilters(to *gpu.Buffer) {
	var mem arena
	for i := range e.filters {
		if f := &e.filters[i]; f.blocks > 0 {
			mem.take(&f.filter, int64(f.blocks)*filterBlock)
			f.out += addr(to)
		}
	}
	if mem.size == 0 {
		return
	}
	b := e.alloc(mem.size)
	mem.place(b)
	e.filterArgs.filters = e.upload(gpu.BytesOf(e.filters))
	if b != nil {
		e.fill(b, 0, b.Size(), 0)
	}
	launch(e.op, "encode_filters", len(e.filters)*filterBlocks, encodeThreads, 0, e.filterArgs)
	launch(e.op, "encode_filtered", len(e.filters)*filterBlocks, encodeThreads, 0, e.filterArgs)
}
