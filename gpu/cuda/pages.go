package cuda

import (
	"cmp"
	"math"
	"slices"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Columns in pages (gpu.Pages) are decoded by kernels, on a stream of their own: strides that were copied up ahead are
// decoded while kernels of earlier strides run, several together if they wait (pages_group.go). The host waits for the
// end of it in Wait, where it learns whether the pages are right, how many nulls there are, and how many bytes strings
// have.

// pageSlack is the number of bytes after a page that kernels may read, and do not use.
const pageSlack = 16

// The layouts of pages.cu.
type (
	pageArgs struct {
		src, body, dict, lengths                                            uint64
		row                                                                 int64
		size, raw, levels, values, skip, rows, entries, base, column, coded int32
		dictionary, _                                                       int32
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
	pageSplit  struct {
		walk        int64
		page, start int32
	}
	snappyArgs struct {
		pages, status, work, next, split, of, walks, starts, whole uint64
		count, walkers                                             int32
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
	formBits
)

// What the values of a page are: Coded of pages.cuh.
const (
	pagePlain int32 = iota
	pageCoded
	pageArray
	pageAll
)

const (
	pageThreads   = 256
	snappyBlocks  = 4                  // blocks of a multiprocessor that decompress at a time
	snappyPart    = 64 << 10           // PART
	snappySegment = 1 << 10            // SEGMENT
	segmentWalks  = 64                 // WALKS
	walkerBytes   = 32 * snappySegment // of a page that a block walks through, unless that are too many blocks
	mostWalkers   = 16                 // blocks that walk through a page
	pieceRows     = 16 << 10           // rows of a page that a block decodes, if it need not begin with the first one
)

// decoding is the decoding of a stride's columns in pages, from the copies of the pages until Wait.
type decoding struct {
	d     *Device
	lease *gpu.Lease
	err   error
	// copied is the end of the copies, until launched is closed: when the kernels have been launched, or could not be.
	// launched is nil before the copies have begun.
	copied   event
	launched chan struct{}
	begin    event // of the kernels, if this is the first decoding of its group
	end      event
	cols     []gpu.Column // what the columns in pages become
	columns  []pageColumn
	batch    pageBatch
	table    pageTable
	work     *gpu.Buffer // memory that only the decoding needs; released once the columns are complete
	status   uint64      // its address on the device
	slot     *readSlot   // of the status, if there was one
	read     []pageStatus
	unread   bool // the status is not in read yet
}

// pageColumn is a column that is being decoded. Until complete, Offsets of strings has their lengths.
type pageColumn struct {
	at                int // in the stride
	pages             *gpu.Pages
	own, dictionaries int    // its status, and that of its dictionary pages or -1
	from, to          int    // its pages in the data of the batch
	strings           uint64 // addresses of strings
	valid             int64  // position of the bitmap in work
}

// alloc returns memory for the stream of decoding. It returns nil for n = 0 and after an error.
func (w *decoding) alloc(n int64) *gpu.Buffer {
	if w.err != nil || n == 0 {
		return nil
	}
	b, err := w.lease.AllocFrom(streamPool{w.d.pool, w.d.decode}, n)
	w.err = err
	return b
}

func (w *decoding) do(call func() error) {
	if w.err == nil {
		w.err = call()
	}
}

// launchPages launches a kernel on the stream of decoding.
func launchPages[A any](w *decoding, name string, grid, block int, args A) {
	if w.err != nil || grid == 0 {
		return
	}
	k := w.d.kernels
	f, err := taking[A](k, name)
	if err == nil {
		err = start(k, f, w.d.decode, name, grid, block, 0, args)
	}
	w.err = err
}

// newDecoding allocates memory for the columns of a stride that are in pages, and lays out the tables of their pages.
// What must be done next is copyPages. After an error the caller releases the columns and the decoding.
func (d *Device) newDecoding(l *gpu.Lease, s *gpu.Stride) *decoding {
	w := &decoding{d: d, lease: l, cols: make([]gpu.Column, len(s.Cols))}
	b := &w.batch
	b.begin(s)
	for i, c := range s.Cols {
		if c.Pages != nil {
			w.cols[i] = b.add(w, i, c)
		}
	}
	w.table = b.layOut()
	return w
}

// copyPages starts the copies of the pages of a stride, and writes the columns that they become to cols, which has
// their dictionaries. All that the decoding needs is in one piece of memory: work, then the bytes of the columns in
// pages, then the table of pages. What must be done once the copies have ended is decodeGroup. After an error the
// caller releases cols and the decoding.
func (t *transfer) copyPages(s *gpu.Stride, cols []gpu.Column, w *decoding) {
	d, b := t.q.dev, &w.batch
	for _, c := range w.columns {
		w.cols[c.at].Dict = cols[c.at].Dict
		cols[c.at] = w.cols[c.at]
	}
	size := b.work + b.bytes + int64(len(w.table.bytes))
	if w.err == nil {
		w.work, w.err = t.lease.AllocFrom(streamPool{d.pool, d.up}, size)
	}
	if t.fail(w.err); t.err != nil {
		return
	}
	w.place()
	t.begin(d.up) // the memory may have been in use until now
	to := w.work.Addr() + uintptr(b.work)
	for _, c := range s.Cols {
		if c.Pages != nil {
			t.copyUp(to, c.Data, c.Data.Size())
			to += uintptr(c.Data.Size())
		}
	}
	t.copyTable(to, w.table.bytes)
}

// copyTable copies bytes up, from page-locked memory that is released with the stride.
func (t *transfer) copyTable(to uintptr, table []byte) {
	if t.err != nil {
		return
	}
	d := t.q.dev
	var err error
	if t.table, err = d.pinned.block(int64(len(table))); err == nil {
		copy(t.table.mem, table)
		err = d.copyUp(t.lease, to, t.table.addr, int64(len(table)))
	}
	t.fail(err)
}

// arguments returns the arguments of kernels, and the address of the table of pages.
func (w *decoding) arguments() (args pagesArgs, snappy snappyArgs, at uint64) {
	t := &w.table
	base := addr(w.work)
	at = base + uint64(t.before)
	args = pagesArgs{pages: at + t.pages, columns: at + t.columns, status: at + t.status}
	snappy = snappyArgs{pages: args.pages, status: args.status, work: at + t.work, next: at + t.next,
		split: at + t.split, of: at + t.of, walks: base + t.walks, starts: base + t.starts, whole: base + t.whole,
		count: t.count, walkers: t.walkers}
	return args, snappy, at
}

// clear clears bitmaps.
func (w *decoding) clear() {
	if n := w.batch.valid; n > 0 {
		w.do(func() error {
			return w.d.ctx.do(cuMemsetD8Async, w.work.Addr()+uintptr(w.table.valid), 0, uintptr(n),
				uintptr(w.d.decode))
		})
	}
	for _, bits := range w.batch.bits {
		w.do(func() error {
			return w.d.ctx.do(cuMemsetD8Async, bits.Addr(), 0, uintptr(bits.Size()), uintptr(w.d.decode))
		})
	}
}

// pageBatch is the pages of a stride, and the columns that they become. After these come the columns of dictionaries.
// Until place, addresses in them are positions in the memory of the decoding.
type pageBatch struct {
	columns            []pageColumnArgs
	pages              []batchPage // those of dictionaries, then those of data
	dictionaries, data []batchPage // parts of pages
	work, bytes, valid int64       // sizes of work, of the columns in pages, and of bitmaps
	zstd               zstdBatch
	lz4, hadoop, gzip  []int32 // pages with these codecs, of all
	conversions        pageConversions
	bits               []*gpu.Buffer // of columns of booleans
}

// batchPage is a page.
type batchPage struct {
	pageArgs
	codec gpu.PageCodec // unless it is PageUncompressed, the body is in work
	again bool          // the entry before is of the same page
	zstd  []gpu.ZstdBlock
	// Pages whose values become an array have a conversion.
	converts   bool
	conversion pageConversion
}

// begin makes room for the pages of a stride.
func (b *pageBatch) begin(s *gpu.Stride) {
	dictionaries, data := 0, 0
	for _, c := range s.Cols {
		if c.Pages != nil {
			for _, g := range c.Pages.Dictionaries {
				dictionaries += pieces(g, c)
			}
			for _, g := range c.Pages.Data {
				data += pieces(g, c)
			}
		}
	}
	b.pages = make([]batchPage, dictionaries+data)
	b.dictionaries, b.data = b.pages[:0:dictionaries], b.pages[dictionaries:dictionaries]
}

// reserve returns the position of n bytes in work.
func (b *pageBatch) reserve(n int64) uint64 {
	at := b.work
	b.work += (n + pageSlack - 1) / pageSlack * pageSlack
	return uint64(at)
}

// add adds a column, and returns what it becomes.
func (b *pageBatch) add(w *decoding, at int, c gpu.Column) gpu.Column {
	p := c.Pages
	col := gpu.Column{Type: c.Type, Len: c.Len}
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
		out.out, out.strings = addr(col.Offsets), b.reserve(int64(c.Len)*8)
	case c.Type.Kind == gpu.Bool:
		out.form, out.width = formBits, 1
		col.Data = w.alloc(gpu.BitmapBytes(c.Len))
		out.out = addr(col.Data)
		b.bits = append(b.bits, col.Data)
	default:
		col.Data = w.alloc(int64(c.Len) * int64(out.width))
		out.out = addr(col.Data)
	}
	if p.Optional {
		out.valid = uint64(b.valid)
		b.valid += gpu.BitmapBytes(c.Len)
	}
	b.columns = append(b.columns, out)
	starts := b.addDictionaries(&x, c)
	row := int64(0)
	x.from = len(b.data)
	for _, g := range p.Data {
		a := b.page(g, c, x.own)
		a.row = row
		if g.Coded && c.Dict == nil {
			values := b.columns[x.dictionaries]
			start := uint64(starts[g.Dictionary])
			a.dictionary = int32(x.dictionaries)
			if out.form == formStrings {
				a.dict, a.lengths = values.strings+8*start, values.out+4*start
			} else {
				a.dict = values.out + uint64(out.width)*start
			}
		}
		row += int64(g.Rows)
		b.data = appendPieces(b.data, a, pieces(g, c))
	}
	x.to = len(b.data)
	b.bytes += c.Data.Size()
	w.columns = append(w.columns, x)
	return col
}

// addDictionaries adds the dictionary pages of a column, which become a column of their own, and returns the position
// in it of the first value of each.
func (b *pageBatch) addDictionaries(x *pageColumn, c gpu.Column) (starts []int64) {
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
		b.dictionaries = appendPieces(b.dictionaries, a, pieces(g, c))
	}
	out := b.columns[x.own]
	out.valid = 0
	if out.form == formStrings {
		out.strings = b.reserve(entries * 8)
		out.out = b.reserve(entries * 4)
	} else {
		out.out = b.reserve(entries * int64(out.width))
	}
	b.columns = append(b.columns, out)
	return starts
}

// pieces returns how many blocks decode a page. Values of a fixed width that are stored as they are need nothing of
// the values before them.
func pieces(g gpu.Page, c gpu.Column) int {
	if g.Coded || g.Levels != 0 || c.Type.IsVar() || converts(g, c) {
		return 1
	}
	return max(1, blocks(g.Rows, pieceRows))
}

// appendPieces adds a page to pages as n entries that share its rows.
func appendPieces(pages []batchPage, a batchPage, n int) []batchPage {
	skip, row, rows := a.skip, a.row, a.rows
	for k := range int32(n) {
		from, to := int64(rows)*int64(k)/int64(n), int64(rows)*int64(k+1)/int64(n)
		a.skip, a.row, a.rows, a.again = skip+int32(from), row+from, int32(to-from), k > 0
		pages = append(pages, a)
	}
	return pages
}

// page returns the arguments of a page of the column that is being added.
func (b *pageBatch) page(g gpu.Page, c gpu.Column, column int) batchPage {
	src := uint64(b.bytes + g.At)
	a := batchPage{pageArgs: pageArgs{src: src, body: src + uint64(max(g.Levels, 0)), size: int32(g.Size),
		raw: int32(g.Raw), levels: int32(g.Levels), values: int32(g.Values), skip: int32(g.Skip), rows: int32(g.Rows),
		entries: int32(g.Entries), base: int32(g.Base), column: int32(column), coded: flag(g.Coded),
		dictionary: int32(column)}}
	if a.converts = converts(g, c); a.converts {
		a.conversion, a.coded = b.reserveConversion(g, c)
		a.dict, a.lengths = a.conversion.values, a.conversion.lengths
	}
	if a.codec = g.Codec; g.Codec != gpu.PageUncompressed {
		a.zstd, a.body = c.Pages.Zstd[g.ZstdFrom:g.ZstdTo], b.reserve(int64(g.Raw)+pageSlack)
	}
	return a
}

// pageTable is what kernels read about pages, in one piece of memory, which also has the status of the columns. The
// fields are positions in it.
type pageTable struct {
	bytes                                         []byte
	before                                        int64 // bytes before it in the memory of the decoding
	pages, columns, status, next, work, split, of uint64
	lz4, hadoop, gzip, checksums                  uint64
	valid, walks, starts, whole                   uint64 // positions in the memory of the decoding
	count                                         int32  // of work
	splits                                        int    // of split
	walkers                                       int32
}

var zeros [15]byte

// put adds values, and returns their position.
func put[T any](t *pageTable, values []T) uint64 {
	at := (t.before+int64(len(t.bytes))+15)/16*16 - t.before
	t.bytes = append(append(t.bytes, zeros[:at-int64(len(t.bytes))]...), gpu.BytesOf(values)...)
	return uint64(at)
}

// layOut returns the table of pages, those of dictionaries first. The largest pages are decompressed first.
func (b *pageBatch) layOut() (t pageTable) {
	pages := b.pages
	compressed := make([]int32, 0, len(pages))
	for i := range pages {
		p := &pages[i]
		if p.again {
			continue
		}
		if p.converts {
			b.conversions.add(int32(i), p.conversion)
		}
		switch p.codec {
		case gpu.PageSnappy:
			compressed = append(compressed, int32(i))
		case gpu.PageLZ4:
			b.lz4 = append(b.lz4, int32(i))
		case gpu.PageHadoopLZ4:
			b.hadoop = append(b.hadoop, int32(i))
		case gpu.PageGzip:
			b.gzip = append(b.gzip, int32(i))
		case gpu.PageZstd:
			b.zstd.add(int32(i), p.zstd)
		}
	}
	slices.SortStableFunc(compressed, func(x, y int32) int { return cmp.Compare(pages[y].raw, pages[x].raw) })
	work := make([]snappyWork, 0, 4*len(compressed))
	var split []pageSplit
	of := make([]int32, len(pages))
	starts, walks, most := int32(0), int64(0), int64(0)
	for _, i := range compressed {
		p := &pages[i]
		parts := (p.raw-1)/snappyPart + 1
		if parts < 2 {
			work = append(work, snappyWork{i, -1})
			continue
		}
		for k := range parts {
			work = append(work, snappyWork{i, k})
		}
		of[i] = int32(len(split))
		split = append(split, pageSplit{walk: walks, page: i, start: starts})
		starts += 2*parts + 1
		body := int64(p.size - max(p.levels, 0))
		walks += (body + snappySegment - 1) / snappySegment * segmentWalks
		most = max(most, body)
	}
	t.count, t.splits = int32(len(work)), len(split)
	t.walkers = int32(min((most+walkerBytes-1)/walkerBytes, mostWalkers))
	t.valid = b.reserve(b.valid)
	t.walks, t.starts, t.whole = b.reserve(walks*8), b.reserve(int64(starts)*4), b.reserve(int64(len(split))*4)
	b.zstd.reserve(b)
	t.before = b.work + b.bytes
	t.bytes = make([]byte, 0, len(pages)*int(unsafe.Sizeof(pageArgs{})+unsafe.Sizeof(pageSplit{}))+
		len(work)*int(unsafe.Sizeof(snappyWork{}))+4<<10)
	args := make([]pageArgs, len(pages)) // written by place
	t.pages, t.columns, t.status = put(&t, args), put(&t, b.columns), put(&t, make([]pageStatus, len(b.columns)))
	t.next, t.work, t.split, t.of = put(&t, make([]uint32, 1)), put(&t, work), put(&t, split), put(&t, of)
	t.lz4, t.hadoop = put(&t, b.lz4), put(&t, b.hadoop)
	b.putGzip(&t, pages)
	b.zstd.put(&t)
	b.conversions.at = put(&t, b.conversions.list)
	put(&t, make([]byte, pageSlack)) // a table without compressed pages is short, and kernels read behind pages
	return t
}

// place writes the pages and columns with their addresses to the table.
func (w *decoding) place() {
	b, t, base := &w.batch, &w.table, addr(w.work)
	for i := range w.columns {
		x := &w.columns[i]
		own := &b.columns[x.own]
		if x.pages.Optional {
			x.valid = int64(own.valid + t.valid)
			own.valid += base + t.valid
		}
		if own.form == formStrings {
			own.strings += base
			x.strings = own.strings
		}
		if x.dictionaries >= 0 {
			b.columns[x.dictionaries].out += base
			b.columns[x.dictionaries].strings += base
		}
	}
	bytes := base + uint64(b.work)
	pages := make([]pageArgs, 0, len(b.pages))
	for i := range b.pages {
		p := &b.pages[i]
		p.src += bytes
		if p.codec != gpu.PageUncompressed {
			p.body += base
		} else {
			p.body += bytes
		}
		p.dict += base
		p.lengths += base
		pages = append(pages, p.pageArgs)
	}
	copy(t.bytes[t.pages:], gpu.BytesOf(pages))
	copy(t.bytes[t.columns:], gpu.BytesOf(b.columns))
	b.zstd.place(t, base)
	b.conversions.place(t, base)
}

// readStatus starts the copy of the status to the host, and notes the end of the decoding.
func (w *decoding) readStatus() {
	if w.err != nil {
		return
	}
	n := len(gpu.BytesOf(w.read))
	w.unread = true
	if w.slot = w.d.readback.take(n); w.slot != nil {
		launchPages(w, "read_bytes", 1, pageThreads,
			readBytesArgs{src: w.status, dst: uint64(w.slot.addr), n: int64(n)})
	}
	w.do(func() (err error) {
		w.end, err = w.d.record(w.d.decode)
		return err
	})
}

// wait waits for the end of the decoding on the device, and reads the status.
func (w *decoding) wait() error {
	if w.launched != nil {
		<-w.launched
	}
	if w.err != nil || !w.unread {
		return w.err
	}
	if err := w.d.wait(w.end); err != nil {
		return err
	}
	to := gpu.BytesOf(w.read)
	if w.slot != nil {
		copy(to, w.slot.mem)
	} else if err := w.d.ctx.do(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(w.status),
		uintptr(len(to)), uintptr(w.d.decode)); err != nil {
		return err // otherwise the bytes have arrived, since they are pageable
	}
	w.unread = false
	w.giveBack()
	return nil
}

// giveBack returns what the device lends.
func (w *decoding) giveBack() {
	if w.slot != nil {
		w.d.readback.give(w.slot)
		w.slot = nil
	}
	if w.begin != 0 && w.end != 0 {
		w.d.trace.decoded(w)
	} else {
		w.d.recycle(w.begin, w.end)
	}
	w.begin, w.end = 0, 0
}

// release waits for the kernels of the decoding, and releases what only they need.
func (w *decoding) release() {
	if w.launched != nil {
		<-w.launched
	}
	if w.unread || w.err != nil {
		_ = w.d.ctx.do(cuStreamSynchronize, uintptr(w.d.decode))
	}
	w.giveBack()
	w.work.Release()
	w.work = nil
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
		if w.work == nil { // an earlier call was denied memory
			w.work, col.Data = col.Data, nil
		}
		full := w.read[c.own].bad == pagesFull
		var room *gpu.Buffer
		var err error
		if full {
			room, err = w.enlarge(c)
		}
		switch {
		case err != nil:
		case w.bad(c):
			err = q.decodeOnHost(s, c, w.lease)
		default:
			err = q.completeColumn(col, c, w)
		}
		room.Release()
		if gpu.IsOutOfMemory(err) { // the stride may be released instead, and has no use for this Data
			if full {
				w.read[c.own].bad = pagesFull // what was released is needed again
			}
			col.Data.Release()
			col.Data, w.work = w.work, nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// completeColumn copies the bitmap, if there are nulls, and the characters of strings.
func (q *queue) completeColumn(col *gpu.Column, c pageColumn, w *decoding) (err error) {
	status := w.read[c.own]
	if status.nulls == 0 && c.strings == 0 {
		return nil
	}
	var out gpu.Column
	o := q.begin("decode pages", w.lease)
	defer func() {
		end(o, &out, &err)
		if err == nil {
			col.Valid = out.Valid
			if c.strings != 0 {
				col.Data = out.Data
			}
		}
	}()
	if status.nulls > 0 {
		n := gpu.BitmapBytes(col.Len)
		out.Valid = o.keep(o.alloc(n))
		o.copy(out.Valid, 0, w.work, c.valid, n)
	}
	if c.strings != 0 {
		out.Data = o.keep(o.alloc(int64(status.bytes)))
		o.scan(col.Offsets, col.Len, true)
		launch(o, "pages_characters", blocks(col.Len, pageThreads), pageThreads, 0, charactersArgs{strings: c.strings,
			offsets: addr(col.Offsets), out: addr(out.Data), n: int64(col.Len)})
	}
	return nil
}

// decodeOnHost replaces a column that has bad pages by what the CPU decodes, which reports the error.
func (q *queue) decodeOnHost(s *gpu.Stride, c pageColumn, l *gpu.Lease) error {
	col, err := c.pages.Decode("a page that the device cannot decode")
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
