package cuda

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Columns in pages (gpu.Pages) are decoded by kernels, on streams of their own: strides that were copied up ahead are
// decoded while kernels of earlier strides run, and several of them at a time, because the pages of one stride do not
// keep the device busy. The host waits for the end of it in Wait, where it learns whether the pages are right, how many
// nulls there are, and how many bytes strings have.

// decodeStreams is the number of strides that are decoded at a time.
const decodeStreams = 4

// pageSlack is the number of bytes after a page that kernels may read, and do not use.
const pageSlack = 16

// The layouts of pages.cu.
type (
	pageArgs struct {
		src, body, dict, lengths                                            uint64
		row                                                                 int64
		size, raw, levels, values, skip, rows, entries, base, column, coded int32
	}
	pageColumnArgs struct {
		out, strings, valid       uint64
		least, most               int64
		stored, width, form, text int32
	}
	pageStatus struct {
		bad, nulls uint32
		bytes      uint64
	}
	pagesArgs struct {
		pages, columns, status uint64
		first, _               int32
	}
	snappyWork struct{ page, part int32 }
	snappyArgs struct {
		pages, status, work, next, split, first, of, starts, whole uint64
		count, splits                                              int32
	}
	charactersArgs struct {
		strings, offsets, out uint64
		n                     int64
	}
)

// The forms of pages.cu.
const (
	formValues int32 = iota
	formCodes
	formStrings
)

const (
	pageThreads  = 256
	splitThreads = 512
	snappyBlocks = 4        // blocks of a multiprocessor that decompress at a time
	snappyPart   = 64 << 10 // PART
)

// decodePool is the pool for memory that a stream of decoding writes first.
type decodePool struct {
	*pool
	on stream
}

// Allocate implements gpu.Allocator.
func (p decodePool) Allocate(size int64) ([]byte, uintptr, error) {
	addr, err := p.take(size, p.on)
	return nil, addr, err
}

// decoding is the decoding of a stride's columns in pages, from the launch of its kernels until Wait.
type decoding struct {
	d       *Device
	lease   *gpu.Lease
	on      stream
	err     error
	end     event
	columns []pageColumn
	scratch []*gpu.Buffer // released once the columns are complete
	status  uint64        // its address on the device
	slot    *readSlot     // of the status, if there was one
	read    []pageStatus
}

// pageColumn is a column that is being decoded. Until complete, Offsets of strings has their lengths.
type pageColumn struct {
	at                int // in the stride
	pages             *gpu.Pages
	own, dictionaries int         // its status, and that of its dictionary pages or -1
	strings           *gpu.Buffer // addresses of strings
}

// alloc returns memory for the stream of the decoding. It returns nil for n = 0 and after an error.
func (w *decoding) alloc(n int64) *gpu.Buffer {
	if w.err != nil || n == 0 {
		return nil
	}
	b, err := w.lease.AllocFrom(decodePool{w.d.pool, w.on}, n)
	w.err = err
	return b
}

// temporary is alloc of memory that is released in Wait.
func (w *decoding) temporary(n int64) *gpu.Buffer {
	b := w.alloc(n)
	if b != nil {
		w.scratch = append(w.scratch, b)
	}
	return b
}

func (w *decoding) do(call func() error) {
	if w.err == nil {
		w.err = call()
	}
}

// clear sets the bytes of a buffer to zero.
func (w *decoding) clear(b *gpu.Buffer) {
	if b != nil {
		w.do(func() error {
			return w.d.ctx.do(cuMemsetD8Async, b.Addr(), 0, uintptr(b.Size()), uintptr(w.on))
		})
	}
}

func launchPages[A any](w *decoding, name string, grid, block int, args A) {
	if w.err != nil || grid == 0 {
		return
	}
	k := w.d.kernels
	f, err := taking[A](k, name)
	if err == nil {
		err = start(k, f, w.on, name, grid, block, 0, args)
	}
	w.err = err
}

// decode starts to decode the columns of a stride that are in pages, once the event has happened. The bytes of their
// pages are on the device, and belong to the decoding from now on. decode replaces the columns in cols by what they
// become; strings lack their characters until complete. After an error nothing is left of these columns.
func (d *Device) decode(l *gpu.Lease, cols []gpu.Column, copied event) (*decoding, error) {
	w := &decoding{d: d, lease: l}
	w.on, w.err = d.decodeStream()
	var b pageBatch
	for i, c := range cols {
		if c.Pages != nil {
			cols[i] = b.add(w, i, c)
		}
	}
	pages := b.layOut(w)
	table := b.table(pages)
	at := table.write(w)
	args := pagesArgs{pages: at + table.pages, columns: at + table.columns, status: at + table.status}
	w.status, w.read = at+table.status, make([]pageStatus, len(b.columns))
	snappy := snappyArgs{pages: args.pages, status: args.status, work: at + table.work, next: at + table.next,
		split: at + table.split, first: at + table.first, of: at + table.of, count: table.count, splits: table.splits,
		starts: addr(w.temporary(int64(table.starts) * 4)), whole: addr(w.temporary(int64(table.splits) * 4))}
	w.do(func() error { return d.follow(w.on, copied) })
	launchPages(w, "pages_split", int(snappy.splits), splitThreads, snappy)
	launchPages(w, "pages_snappy", min(blocks(int(snappy.count), pageThreads/32), d.props.multiprocessors*snappyBlocks),
		pageThreads, snappy)
	launchPages(w, "pages_whole", int(snappy.splits), 32, snappy)
	b.zstd.decompress(w, args)
	w.decompressLZ4(args, b.lz4, false)
	w.decompressLZ4(args, b.hadoop, true)
	launchPages(w, "pages_decode", len(b.dictionaries), pageThreads, args)
	args.first = int32(len(b.dictionaries))
	launchPages(w, "pages_decode", len(b.data), pageThreads, args)
	w.readStatus()
	if w.err != nil {
		_ = d.ctx.do(cuStreamSynchronize, uintptr(d.up))
		w.release()
		for _, c := range w.columns {
			cols[c.at].Release()
			cols[c.at] = gpu.Column{}
		}
		return nil, w.err
	}
	return w, nil
}

// decodeStream returns the next stream for decoding. The caller holds uploads.
func (d *Device) decodeStream() (stream, error) {
	at := d.decodings % decodeStreams
	d.decodings++
	if d.decoders[at] == 0 {
		if err := d.ctx.do(cuStreamCreate, uintptr(unsafe.Pointer(&d.decoders[at])), streamNonBlocking); err != nil {
			return 0, err
		}
	}
	return d.decoders[at], nil
}

// pageBatch is the pages of a stride, and the columns that they become. After these come the columns of dictionaries.
type pageBatch struct {
	columns            []pageColumnArgs
	dictionaries, data []batchPage
	body               int64   // bytes of the pages that are decompressed
	compressed         []int32 // pages with Snappy, of all
	lz4, hadoop        []int32 // likewise
	zstd               zstdBatch
}

// batchPage is a page and, if it is compressed, the place of its body among the decompressed ones.
type batchPage struct {
	pageArgs
	codec gpu.PageCodec
	zstd  []gpu.ZstdBlock
}

// add adds a column, and returns what it becomes.
func (b *pageBatch) add(w *decoding, at int, c gpu.Column) gpu.Column {
	p := c.Pages
	w.scratch = append(w.scratch, c.Data)
	col := gpu.Column{Type: c.Type, Len: c.Len, Dict: c.Dict}
	x := pageColumn{at: at, pages: p, own: len(b.columns), dictionaries: -1}
	out := pageColumnArgs{stored: int32(p.Stored), width: int32(c.Type.Width()), least: p.Least, most: p.Most,
		text: flag(c.Type.Kind == gpu.String)}
	switch {
	case c.Dict != nil:
		out.form = formCodes
		col.Data = w.alloc(int64(c.Len) * 4)
		out.out = addr(col.Data)
	case c.Type.IsVar():
		out.form = formStrings
		col.Offsets = w.alloc(int64(c.Len+1) * 4)
		x.strings = w.temporary(int64(c.Len) * 8)
		out.out, out.strings = addr(col.Offsets), addr(x.strings)
	default:
		col.Data = w.alloc(int64(c.Len) * int64(out.width))
		out.out = addr(col.Data)
	}
	if p.Optional {
		col.Valid = w.alloc(gpu.BitmapBytes(c.Len))
		w.clear(col.Valid)
		out.valid = addr(col.Valid)
	}
	b.columns = append(b.columns, out)
	starts := b.addDictionaries(w, &x, c)
	row := int64(0)
	for _, g := range p.Data {
		a := b.page(g, c, x.own)
		a.row = row
		if g.Coded && c.Dict == nil {
			values := b.columns[x.dictionaries]
			start := uint64(starts[g.Dictionary])
			if out.form == formStrings {
				a.dict, a.lengths = values.strings+8*start, values.out+4*start
			} else {
				a.dict = values.out + uint64(out.width)*start
			}
		}
		row += int64(g.Rows)
		b.data = append(b.data, a)
	}
	w.columns = append(w.columns, x)
	return col
}

// addDictionaries adds the dictionary pages of a column, which become a column of their own, and returns the position
// in it of the first value of each.
func (b *pageBatch) addDictionaries(w *decoding, x *pageColumn, c gpu.Column) (starts []int64) {
	if len(c.Pages.Dictionaries) == 0 {
		return nil
	}
	x.dictionaries = len(b.columns)
	entries := int64(0)
	for _, g := range c.Pages.Dictionaries {
		a := b.page(g, c, x.dictionaries)
		a.row = entries
		starts = append(starts, entries)
		entries += int64(g.Values)
		b.dictionaries = append(b.dictionaries, a)
	}
	out := b.columns[x.own]
	out.valid, out.strings = 0, 0
	if out.form == formStrings {
		out.strings = addr(w.temporary(entries * 8))
		out.out = addr(w.temporary(entries * 4))
	} else {
		out.out = addr(w.temporary(entries * int64(out.width)))
	}
	b.columns = append(b.columns, out)
	return starts
}

// page returns the arguments of a page of a column.
func (b *pageBatch) page(g gpu.Page, c gpu.Column, column int) batchPage {
	src := addr(c.Data) + uint64(g.At)
	a := batchPage{pageArgs: pageArgs{src: src, body: src + uint64(max(g.Levels, 0)), size: int32(g.Size),
		raw: int32(g.Raw), levels: int32(g.Levels), values: int32(g.Values), skip: int32(g.Skip), rows: int32(g.Rows),
		entries: int32(g.Entries), base: int32(g.Base), column: int32(column), coded: flag(g.Coded)}}
	if a.codec = g.Codec; g.Codec != gpu.PageUncompressed {
		a.zstd, a.body = c.Pages.Zstd[g.ZstdFrom:g.ZstdTo], uint64(b.body)
		b.body += (int64(g.Raw) + 2*pageSlack - 1) / pageSlack * pageSlack
	}
	return a
}

// layOut returns all pages, those of dictionaries first.
func (b *pageBatch) layOut(w *decoding) (pages []pageArgs) {
	bodies := w.temporary(b.body)
	w.clear(bodies) // kernels read behind a page, and pages that are wrong leave bytes unwritten
	body := addr(bodies)
	for _, list := range [][]batchPage{b.dictionaries, b.data} {
		for _, p := range list {
			if p.codec != gpu.PageUncompressed {
				p.body += body
			}
			switch p.codec {
			case gpu.PageSnappy:
				b.compressed = append(b.compressed, int32(len(pages)))
			case gpu.PageLZ4:
				b.lz4 = append(b.lz4, int32(len(pages)))
			case gpu.PageHadoopLZ4:
				b.hadoop = append(b.hadoop, int32(len(pages)))
			case gpu.PageZstd:
				b.zstd.add(int32(len(pages)), p.zstd)
			}
			pages = append(pages, p.pageArgs)
		}
	}
	return pages
}

// pageTable is what kernels read about pages, in one piece of memory, which also has the status of the columns. The
// fields are positions in it.
type pageTable struct {
	bytes                                                []byte
	pages, columns, status, next, work, split, first, of uint64
	count, splits, starts                                int32 // numbers of work, split and of the parts of split
}

// put adds values, and returns their position.
func put[T any](t *pageTable, values []T) uint64 {
	at := (len(t.bytes) + 15) / 16 * 16
	t.bytes = append(append(t.bytes, make([]byte, at-len(t.bytes))...), gpu.BytesOf(values)...)
	return uint64(at)
}

// table returns the table of pages. The largest ones are decompressed first.
func (b *pageBatch) table(pages []pageArgs) (t pageTable) {
	slices.SortStableFunc(b.compressed, func(x, y int32) int { return cmp.Compare(pages[y].raw, pages[x].raw) })
	var work []snappyWork
	var split, first []int32
	of := make([]int32, len(pages))
	for _, i := range b.compressed {
		parts := (pages[i].raw-1)/snappyPart + 1
		if parts < 2 {
			work = append(work, snappyWork{i, -1})
			continue
		}
		for k := range parts {
			work = append(work, snappyWork{i, k})
		}
		of[i] = int32(len(split))
		split, first = append(split, i), append(first, t.starts)
		t.starts += parts + 1
	}
	t.count, t.splits = int32(len(work)), int32(len(split))
	t.pages, t.columns, t.status = put(&t, pages), put(&t, b.columns), put(&t, make([]pageStatus, len(b.columns)))
	t.next, t.work, t.split = put(&t, make([]uint32, 1)), put(&t, work), put(&t, split)
	t.first, t.of = put(&t, first), put(&t, of)
	return t
}

// write copies the table to the device, and returns its address. The driver has copied it when write returns.
func (t *pageTable) write(w *decoding) uint64 {
	b := w.temporary(int64(len(t.bytes)))
	if b != nil {
		w.do(func() error {
			return w.d.ctx.do(cuMemcpyHtoDAsync, b.Addr(), uintptr(unsafe.Pointer(unsafe.SliceData(t.bytes))),
				uintptr(len(t.bytes)), uintptr(w.on))
		})
		runtime.KeepAlive(t.bytes)
	}
	return addr(b)
}

// readStatus starts the copy of the status to the host.
func (w *decoding) readStatus() {
	n := len(gpu.BytesOf(w.read))
	if w.err != nil {
		return
	}
	if w.slot = w.d.readback.take(n); w.slot != nil {
		launchPages(w, "read_bytes", 1, pageThreads,
			readBytesArgs{src: w.status, dst: uint64(w.slot.addr), n: int64(n)})
	}
	w.do(func() (err error) {
		w.end, err = w.d.record(w.on)
		return err
	})
}

// wait waits for the end of the decoding on the device, and reads the status.
func (w *decoding) wait() error {
	if w.end == 0 {
		return nil
	}
	if err := w.d.wait(w.end); err != nil {
		return err
	}
	to := gpu.BytesOf(w.read)
	if w.slot != nil {
		copy(to, w.slot.mem)
	} else if err := w.d.ctx.do(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(w.status),
		uintptr(len(to)), uintptr(w.on)); err != nil { // it returns once the bytes have arrived, which are pageable
		return err
	}
	w.giveBack()
	return nil
}

// giveBack returns what the device lends.
func (w *decoding) giveBack() {
	if w.slot != nil {
		w.d.readback.give(w.slot)
		w.slot = nil
	}
	w.d.recycle(w.end)
	w.end = 0
}

// release waits for the kernels of the decoding, and releases what only they need.
func (w *decoding) release() {
	if w.end != 0 || w.err != nil {
		_ = w.d.ctx.do(cuStreamSynchronize, uintptr(w.on))
	}
	w.giveBack()
	for _, b := range w.scratch {
		b.Release()
	}
	w.scratch = nil
}

// bad reports whether a page of a column, or of its dictionary, is wrong.
func (w *decoding) bad(c pageColumn) bool {
	return w.read[c.own].bad != 0 || c.dictionaries >= 0 && w.read[c.dictionaries].bad != 0 ||
		w.read[c.own].bytes > math.MaxInt32
}

// complete makes ordinary columns of a stride from what a decoding has decoded. It waits for the decoding. If memory
// is denied, it may be called again.
func (q *queue) complete(s *gpu.Stride, w *decoding) error {
	if err := w.wait(); err != nil {
		return q.fail("decode pages", err)
	}
	for ; len(w.columns) > 0; w.columns = w.columns[1:] {
		c := w.columns[0]
		col := &s.Cols[c.at]
		if scratch := col.Data.Pieces(); scratch != nil { // an earlier call was denied memory
			w.scratch, col.Data = scratch, nil
		}
		var err error
		if w.bad(c) {
			err = q.decodeOnHost(s, c, w.lease)
		} else {
			err = q.completeColumn(col, c, w)
		}
		if gpu.IsOutOfMemory(err) { // the stride may be released instead, and has no use for this Data
			col.Data.Release()
			col.Data, w.scratch = gpu.Joined(w.scratch), nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// completeColumn copies the characters of strings, and drops a bitmap without nulls.
func (q *queue) completeColumn(col *gpu.Column, c pageColumn, w *decoding) (err error) {
	status := w.read[c.own]
	if status.nulls == 0 {
		col.Valid.Release()
		col.Valid = nil
	}
	if c.strings == nil {
		return nil
	}
	o := q.begin("decode strings", w.lease)
	var chars *gpu.Buffer
	defer func() {
		end(o, &chars, &err)
		if err == nil {
			col.Data = chars
		}
	}()
	chars = o.keep(o.alloc(max(int64(status.bytes), 1)))
	o.scan(col.Offsets, col.Len, true)
	launch(o, "pages_characters", blocks(col.Len, pageThreads), pageThreads, 0, charactersArgs{strings: addr(c.strings),
		offsets: addr(col.Offsets), out: addr(chars), n: int64(col.Len)})
	return nil
}

// decodeOnHost replaces a column that has bad pages by what the CPU decodes, which reports the error.
func (q *queue) decodeOnHost(s *gpu.Stride, c pageColumn, l *gpu.Lease) error {
	col, err := c.pages.Decode()
	if err != nil {
		return err
	}
	one := &gpu.Stride{Schema: &gpu.Schema{Fields: s.Schema.Fields[c.at : c.at+1]}, Cols: []gpu.Column{col},
		Rows: s.Rows}
	up, err := q.Upload(l, one)
	if err != nil {
		one.Release()
		return err
	}
	s.Cols[c.at].Release()
	s.Cols[c.at] = up.Cols[0]
	return nil
}
