package cuda

import (
	"slices"
	"sync"
)

// A stride has too few pages to keep all multiprocessors busy until the last one: its kernels run one after the other,
// and the longest page of each decides when the next one begins. So all strides whose pages have been copied by the
// time that the stream is free are decoded together.

// mostGrouped is the number of strides that are decoded together (MOST_GROUPED of pages.cuh).
const mostGrouped = 8

// pageGroup is the arguments of a kernel for several strides. Blocks up to ends[i] are those of stride i.
type pageGroup[A any] struct {
	of   [mostGrouped]A
	ends [mostGrouped]uint32
}

// add adds the arguments for a stride, and its number of blocks.
func (g *pageGroup[A]) add(args A, blocks int) {
	if blocks == 0 {
		return
	}
	before := uint32(0)
	for i, end := range g.ends {
		if end == 0 {
			g.of[i], g.ends[i] = args, before+uint32(blocks)
			return
		}
		before = end
	}
}

// launch launches the kernel for all strides. An error is that of w.
func (g *pageGroup[A]) launch(w *decoding, name string, threads int) {
	grid := uint32(0)
	for _, end := range g.ends {
		grid = max(grid, end)
	}
	launchPages(w, name, int(grid), threads, *g)
}

// decodings is the strides whose copies have begun, and whose pages are not being decoded yet.
type decodings struct {
	mu      sync.Mutex
	waiting []*decoding // in the order of their copies
	busy    bool        // a goroutine decodes
	running sync.WaitGroup
}

// decodeLater lets another goroutine decode a stride, once its copies have ended.
func (d *Device) decodeLater(w *decoding, copied event) {
	w.copied, w.launched = copied, make(chan struct{})
	x := &d.decodings
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting = append(x.waiting, w)
	if !x.busy {
		x.busy = true
		x.running.Go(d.decodeStrides)
	}
}

// decodeStrides launches the kernels of strides until none is waiting, a group after the other.
func (d *Device) decodeStrides() {
	x := &d.decodings
	var last event // the end of the last group
	defer func() { d.recycle(last) }()
	for {
		x.mu.Lock()
		if len(x.waiting) == 0 {
			x.busy = false
			x.mu.Unlock()
			return
		}
		first := x.waiting[0]
		x.mu.Unlock()
		var err error
		if last != 0 {
			err = d.wait(last)
			d.recycle(last)
			last = 0
		}
		group := x.take(func(w *decoding) bool { return w.lease == first.lease && d.happened(w.copied) })
		if err == nil {
			last, err = d.decodeGroup(group)
		}
		for _, w := range group {
			if w.err == nil {
				w.err = err
			}
			close(w.launched)
		}
	}
}

// take returns the first of the strides that wait, and those after it that belong to its group.
func (x *decodings) take(belongs func(w *decoding) bool) (group []*decoding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 1
	for n < min(len(x.waiting), mostGrouped) && belongs(x.waiting[n]) {
		n++
	}
	group = slices.Clone(x.waiting[:n])
	x.waiting = slices.Delete(x.waiting, 0, n)
	return group
}

// decodeGroup launches the kernels of strides, and returns their end.
func (d *Device) decodeGroup(group []*decoding) (end event, err error) {
	first := group[0]
	for _, w := range group {
		if err = d.follow(d.decode, w.copied); err != nil {
			return 0, err
		}
	}
	if first.begin, err = d.record(d.decode); err != nil {
		return 0, err
	}
	var walk, split, decompress, whole pageGroup[snappyArgs]
	var dictionaries, data pageGroup[pagesArgs]
	for _, w := range group {
		args, snappy, _ := w.arguments()
		splits, parts := w.table.splits, blocks(int(w.table.count), pageThreads/32)
		w.clear()
		walk.add(snappy, splits*int(snappy.walkers))
		split.add(snappy, splits)
		decompress.add(snappy, min(parts, d.props.multiprocessors*snappyBlocks))
		whole.add(snappy, splits)
		dictionaries.add(args, len(w.batch.dictionaries))
		args.first = int32(len(w.batch.dictionaries))
		data.add(args, len(w.batch.data))
	}
	walk.launch(first, "pages_walk", pageThreads)
	split.launch(first, "pages_split", pageThreads)
	decompress.launch(first, "pages_snappy", pageThreads)
	whole.launch(first, "pages_whole", 32)
	for _, w := range group {
		args, _, at := w.arguments()
		w.batch.zstd.decompress(w, args, at)
		w.decompressLZ4(args, w.batch.lz4, at+w.table.lz4, false)
		w.decompressLZ4(args, w.batch.hadoop, at+w.table.hadoop, true)
		w.decompressGzip(args, at)
		w.batch.conversions.convert(w, args, at)
	}
	dictionaries.launch(first, "pages_decode", pageThreads)
	data.launch(first, "pages_decode", pageThreads)
	for _, w := range group {
		args, _, _ := w.arguments()
		w.status, w.read = args.status, make([]pageStatus, len(w.batch.columns))
		if w.readStatus(); w.err != nil {
			return 0, w.err
		}
	}
	return d.record(d.decode)
}
