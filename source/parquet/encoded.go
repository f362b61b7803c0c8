package parquet

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
)

// readAhead is the least number of bytes that one read from a file asks for.
var readAhead = 256 << 10 // smaller in tests

// maxHeader bounds the size of a page header. Statistics of long values make headers long.
const maxHeader = 1 << 20

// encodedChunk is a column chunk between the file and the decoder. It has the bytes of fetched
// pages, in memory of the lease, and a directory of these pages. A page stays until all its wanted
// rows are released. Pages are fetched in order, up to the last one that a task has asked for. They
// are decoded in any order, by many goroutines. Pages without wanted rows are not fetched.
type encodedChunk struct {
	ctx    context.Context // ends reads from the file
	lease  *gpu.Lease
	file   *file
	group  int
	col    leaf
	meta   *chunk
	rows   int64      // rows of the chunk
	wanted []rowRange // the rows that the scan reads, in order
	dict   dictionary
	nested *nestedChunk // has the pages of a nested column

	mu   sync.Mutex
	src  io.ReaderAt // open while pages are fetched
	left int64       // number of wanted rows that are not released yet

	// The directory: the fetched pages that have wanted rows which are not released yet, in order.
	pages []*page
	next  int64 // first row after the pages that were fetched or skipped

	// The unread bytes of the chunk are win[pos:] and then [off, end) of the file.
	block *gpu.Buffer // memory of win and its slack
	whole *gpu.Buffer // memory for all bytes of the chunk, before they are read, or nil
	win   []byte
	pos   int
	off   int64
	end   int64
	spare int64 // bytes that the size of the chunk in the footer may omit
	ahead int64 // bytes of the last read of readRows
}

// page is an entry of the directory of a column chunk.
type page struct {
	from, to int64 // rows of the chunk
	wanted   int64 // how many of these rows the scan reads
	left     int64 // how many of the wanted rows are not released yet

	kind          format.PageType
	encoding      format.Encoding
	levelEncoding format.Encoding // of definition levels in version 1 data pages
	repEncoding   format.Encoding // of repetition levels
	values        int32
	nulls         int32 // of version 2 data pages, like the lengths of levels
	repBytes      int
	defBytes      int
	compressed    bool
	rawSize       int
	crc           uint32
	at            int64       // offset in the file of the bytes that follow the header
	size          int         // number of these bytes
	bytes         []byte      // the bytes, with slack; nil after they were dropped
	block         *gpu.Buffer // memory of bytes

	// A page whose rows belong to several strides is decoded once.
	decode shared
	users  int // number of tasks that are taking values of the page
	bufs   pageBuffers
	marks  []mark
}

// mark is a row of a decoded page and the position of its values.
type mark struct {
	row int64
	at  pageState
}

// shared is the state of work whose result several tasks need, and that is done once.
type shared struct {
	done bool
	busy chan struct{} // closed when the task that does the work ends; nil if no task does it
}

func newEncodedChunk(ctx context.Context, lease *gpu.Lease, f *file, group, column int,
	wanted []rowRange) *encodedChunk {
	return newChunkOf(ctx, lease, f, group, f.cols[column], &f.groups[group].chunks[column], wanted)
}

func newChunkOf(ctx context.Context, lease *gpu.Lease, f *file, group int, col leaf, m *chunk,
	wanted []rowRange) *encodedChunk {
	rows := f.groups[group].rows
	c := &encodedChunk{ctx: ctx, lease: lease, file: f, group: group, col: col, meta: m, rows: rows, wanted: wanted,
		off: m.start, end: m.start + m.size}
	c.left = c.wantedRows(0, rows)
	if col.node != nil && col.constant == nil {
		c.nested = newNestedChunk(c)
	}
	return c
}

// wantedRows returns the number of wanted rows in [from, to).
func (c *encodedChunk) wantedRows(from, to int64) (n int64) {
	i, _ := slices.BinarySearchFunc(c.wanted, from, func(r rowRange, row int64) int {
		if r.to <= row {
			return -1
		}
		return 1
	})
	for _, r := range c.wanted[i:] {
		if r.from >= to {
			break
		}
		n += min(r.to, to) - max(r.from, from)
	}
	return n
}

// wholeSize returns the bytes of memory in which the chunk can be read at once, if that did not begin and a task wants
// rows [from, to), which are all rows. Otherwise it returns 0.
func (c *encodedChunk) wholeSize(from, to int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from > 0 || to < c.rows || c.block != nil || c.whole != nil || c.off != c.meta.start ||
		len(c.wanted) != 1 || c.wanted[0] != (rowRange{0, c.rows}) {
		return 0
	}
	return c.end - c.off + slack
}

// readInto makes the first read of the chunk ask for all its bytes, into memory of wholeSize.
func (c *encodedChunk) readInto(b *gpu.Buffer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = b
}

// readNow does the first read of the chunk. Memory of readInto gets all bytes.
func (c *encodedChunk) readNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.fill(1)
}

// find returns the page of a wanted row. It fetches the pages up to this one.
func (c *encodedChunk) find(row int64) (*page, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.next <= row {
		if err := c.fetch(); err != nil {
			return nil, err
		}
	}
	i, _ := slices.BinarySearchFunc(c.pages, row, func(p *page, row int64) int {
		if p.to <= row {
			return -1
		}
		return 1
	})
	if i < len(c.pages) && c.pages[i].from <= row {
		return c.pages[i], nil
	}
	return nil, errors.New("internal error: a row of a page that was released is asked for; please report it")
}

// release releases the wanted rows [from, to), and the pages that have no other wanted rows.
func (c *encodedChunk) release(from, to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pages = slices.DeleteFunc(c.pages, func(p *page) bool {
		p.left -= max(0, min(p.to, to)-max(p.from, from))
		if p.left == 0 {
			p.release()
		}
		return p.left == 0
	})
	if c.left -= to - from; c.left == 0 {
		c.close()
	}
}

// discard releases everything that is left.
func (c *encodedChunk) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close()
}

// close releases the memory of the chunk. The caller holds the lock.
func (c *encodedChunk) close() {
	for _, p := range c.pages {
		p.release()
	}
	c.pages = nil
	if c.nested != nil {
		c.nested.discard()
	}
	c.closeWindow()
	if p := c.dict.page; p != nil {
		p.release()
	}
	c.dict.release()
	c.closeFile()
}

// claim reports whether shared work is done. If it is not and busy is nil, the caller
// must do it and call settle. Otherwise another task is doing it, and busy is closed when
// that task ends.
func (c *encodedChunk) claim(s *shared) (done bool, busy <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.done || s.busy != nil {
		return s.done, s.busy
	}
	s.busy = make(chan struct{})
	return false, nil
}

// settle ends shared work that was claimed.
func (c *encodedChunk) settle(s *shared, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(s.busy)
	s.busy, s.done = nil, done
}

// keep remembers a position of the values of a shared page.
func (c *encodedChunk) keep(p *page, m mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.marks = append(p.marks, m)
}

// join begins the use of a shared page by a task. It returns the last known position that is not
// after a row. ok is false if the page was forgotten after it was decoded.
func (c *encodedChunk) join(p *page, row int64) (best mark, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.decode.done {
		return mark{}, false
	}
	p.users++
	best = p.marks[0]
	for _, m := range p.marks {
		if best.row < m.row && m.row <= row {
			best = m
		}
	}
	return best, true
}

// leave ends the use of a shared page by a task. taken is the number of the page's rows that the
// task has taken, next the position after them. If no other task needs the page, it is forgotten.
// Otherwise next is kept.
func (c *encodedChunk) leave(p *page, taken int64, next mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.users--
	switch {
	case p.left == taken:
		p.forget()
	case next.row < p.to:
		p.marks = append(p.marks, next)
	}
}

// quit ends the use of a shared page by a task that has failed. The page is forgotten unless other
// tasks are using it.
func (c *encodedChunk) quit(p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.users--; p.users == 0 {
		p.forget()
	}
}

// fetch adds the next page to the directory, or skips a page that is not needed. It may be called
// again after memory was denied. The caller holds the lock.
func (c *encodedChunk) fetch() error {
	h, head, err := c.header()
	if err != nil {
		return err
	}
	if err := c.checkPage(h); err != nil {
		return err
	}
	p := newPage(h)
	rows, data := pageRows(h)
	switch {
	case data && (rows < 0 || rows > c.rows-c.next):
		return badf("a data page claims %d rows, the row group has %d left", rows, c.rows-c.next)
	case data:
		p.from, p.to = c.next, c.next+rows
		p.wanted = c.wantedRows(p.from, p.to)
		p.left = p.wanted
	case h.Type == format.DictionaryPage && c.dict.page != nil:
		return badf("there are two dictionary pages")
	}
	if p.wanted == 0 && h.Type != format.DictionaryPage {
		// Pages of unknown types are skipped too.
		c.pass(int(h.CompressedPageSize))
		c.next = max(c.next, p.to)
		return nil
	}
	if p.bytes, err = c.fill(int(h.CompressedPageSize)); err != nil {
		c.pos -= head
		return err
	}
	p.block = c.block.Retain()
	p.at, p.size = c.end-c.unread(), len(p.bytes)
	if c.pos += p.size; c.pos == len(c.win) {
		c.closeWindow() // so that only the page keeps this memory alive
	}
	if h.Type == format.DictionaryPage {
		c.dict.page, c.spare = p, int64(head+p.size)
		return nil
	}
	c.pages, c.next = append(c.pages, p), p.to
	return nil
}

// load fetches the bytes of a page again if they were dropped. That happens if a task was denied
// memory after it had decoded the page.
func (c *encodedChunk) load(p *page) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loadLocked(p)
}

func (c *encodedChunk) loadLocked(p *page) error {
	if p.block != nil {
		return nil
	}
	b, err := c.lease.Alloc(int64(p.size) + slack)
	if err != nil {
		return c.blamePage(err, p.size)
	}
	if err := c.read(b.Bytes()[:p.size], p.at); err != nil {
		b.Release()
		return err
	}
	p.block, p.bytes = b, b.Bytes()[:p.size]
	return nil
}

// pageBytes returns the bytes of a page, which are right by its header and checksum, and a reference to their memory.
func (c *encodedChunk) pageBytes(p *page) (block *gpu.Buffer, encoded []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadLocked(p); err != nil {
		return nil, nil, err
	}
	if err := p.verify(); err != nil {
		return nil, nil, err
	}
	return p.block.Retain(), p.bytes, nil
}

// drop releases the bytes of a page whose values are taken or decoded.
func (c *encodedChunk) drop(p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.block.Release()
	p.block, p.bytes = nil, nil
}

// read fills b from the file. It opens the file if necessary. The caller holds the lock.
func (c *encodedChunk) read(b []byte, at int64) error {
	if c.src == nil {
		src, err := c.file.handle.acquire(c.ctx)
		if err != nil {
			return err
		}
		c.src = src
	}
	return readFull(c.src, b, at)
}

// passAll reads the headers of all pages up to the last row. No row of the chunk is wanted.
func (c *encodedChunk) passAll() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.next < c.rows {
		if err := c.fetch(); err != nil {
			return err
		}
	}
	return nil
}

// finish ends fetching if the wanted rows end before row to, so that the file need not stay open
// until these rows are decoded. If to is the end of the chunk, finish also checks that the pages
// have no more rows.
func (c *encodedChunk) finish(to int64) error {
	if c.col.constant != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.wanted); n > 0 && to < c.wanted[n-1].to {
		return nil
	}
	if to == c.rows {
		if err := c.checkEnd(); err != nil {
			return err
		}
	}
	c.closeFile()
	c.forgetWindow()
	return nil
}

// forgetWindow releases the unread bytes, which are read again if they are wanted.
func (c *encodedChunk) forgetWindow() {
	c.off = c.end - c.unread()
	c.closeWindow()
}

// closeWindow releases the unread bytes. Fetched pages keep their bytes.
func (c *encodedChunk) closeWindow() {
	c.block.Release()
	c.whole.Release()
	c.block, c.whole, c.win, c.pos = nil, nil, nil, 0
}

// checkEnd checks that there are no rows after the last page. The caller holds the lock.
func (c *encodedChunk) checkEnd() error {
	c.spare = 0
	next := c.file.layout.after(c.meta.start)
	for c.unread() > 0 && c.end-c.unread() < next {
		h, _, err := c.header()
		if errors.Is(err, gpu.ErrBudget) {
			return err
		}
		if err != nil || c.checkPage(h) != nil {
			return nil // not a page: some writers leave a gap
		}
		if rows, _ := pageRows(h); rows > 0 {
			return badf("its pages hold more than the %d rows of the row group", c.rows)
		}
		c.pass(int(h.CompressedPageSize))
	}
	return nil
}

func (c *encodedChunk) closeFile() {
	if c.src != nil {
		c.file.handle.release()
		c.src = nil
	}
}

// fill makes n unread bytes of the chunk contiguous and returns them. It returns fewer only at the
// end of the chunk.
func (c *encodedChunk) fill(n int) ([]byte, error) {
	have := c.win[c.pos:]
	if len(have) >= n || c.off == c.end {
		return have[:min(n, len(have))], nil
	}
	most := int64(len(have)) + c.end - c.off
	n = int(min(int64(n), most))
	want := int(min(int64(max(n, c.leastRead())), most))
	b := c.whole
	if c.whole = nil; b.Size() == most+slack {
		want = int(most)
	} else {
		b.Release()
		var err error
		if b, err = c.lease.Alloc(int64(want) + slack); err != nil {
			return nil, c.blamePage(err, n)
		}
	}
	win := b.Bytes()[:want]
	fresh := win[copy(win, have):]
	if err := c.read(fresh, c.off); err != nil {
		b.Release()
		return nil, err
	}
	c.block.Release()
	c.block, c.win, c.pos = b, win, 0
	c.off += int64(len(fresh))
	return c.win[:n], nil
}

// header reads the next page header. It also returns the size of the header in the file.
func (c *encodedChunk) header() (*format.PageHeader, int, error) {
	for want := 128; ; want *= 4 {
		b, err := c.fill(want)
		if err != nil {
			return nil, 0, err
		}
		h := new(format.PageHeader)
		n, err := unmarshalCompact(b, h)
		if errors.Is(err, io.ErrUnexpectedEOF) && (len(b) == want && want < maxHeader || c.extend()) {
			continue
		}
		if len(b) == 0 {
			return nil, 0, badf("the pages end %d rows early", c.rows-c.next)
		}
		if err != nil {
			return nil, 0, badf("a page header cannot be decoded: %v", err)
		}
		c.pos += n
		return h, n, nil
	}
}

// unread returns the number of bytes of the chunk that were not read yet.
func (c *encodedChunk) unread() int64 { return int64(len(c.win)-c.pos) + c.end - c.off }

// extend adds the bytes to the chunk that its size omits, if any. Old writers did not count the
// page of the dictionary, or the header of this page. The omitted bytes end where the next part of
// the file starts.
func (c *encodedChunk) extend() bool {
	n := min(c.spare, c.file.layout.after(c.meta.start)-c.end)
	c.spare = 0
	c.end += max(n, 0)
	return n > 0
}

// checkPage checks that the chunk has the bytes of a page.
func (c *encodedChunk) checkPage(h *format.PageHeader) error {
	n := int64(h.CompressedPageSize)
	if n < 0 || h.UncompressedPageSize < 0 {
		return badf("a page header claims %d bytes, %d uncompressed", n, h.UncompressedPageSize)
	}
	if left := c.unread(); n > left && !(c.extend() && n <= c.unread()) {
		return badf("a page header claims %d bytes, the column chunk has %d left", n, left)
	}
	return nil
}

// pass skips n bytes of the chunk. The bytes that are not in memory are never read.
func (c *encodedChunk) pass(n int) {
	k := min(n, len(c.win)-c.pos)
	c.pos += k
	c.off += int64(n - k)
}

// pageRows returns the rows that the header of a data page claims. Other pages have none.
func pageRows(h *format.PageHeader) (rows int64, data bool) {
	switch h.Type {
	case format.DataPage:
		return int64(h.DataPageHeader.V.NumValues), true
	case format.DataPageV2:
		return int64(h.DataPageHeaderV2.V.NumValues), true
	}
	return 0, false
}

// newPage returns the parts of a header that a decoder needs. If a header lacks the part for its
// page type, the page gets an encoding that does not exist.
func newPage(h *format.PageHeader) *page {
	p := &page{kind: h.Type, encoding: noEncoding, rawSize: int(h.UncompressedPageSize), crc: uint32(h.CRC)}
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		d := &h.DataPageHeader.V
		p.encoding, p.levelEncoding, p.values = d.Encoding, d.DefinitionLevelEncoding, d.NumValues
		p.repEncoding = d.RepetitionLevelEncoding
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		d := &h.DataPageHeaderV2.V
		p.encoding, p.values, p.nulls = d.Encoding, d.NumValues, d.NumNulls
		p.repBytes, p.defBytes = int(d.RepetitionLevelsByteLength), int(d.DefinitionLevelsByteLength)
		p.compressed = !d.IsCompressed.Valid || d.IsCompressed.V
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		p.encoding, p.values = h.DictionaryPageHeader.V.Encoding, h.DictionaryPageHeader.V.NumValues
	}
	return p
}

const noEncoding format.Encoding = -1

// coded reports whether the values of the page are codes into the dictionary.
func (p *page) coded() bool {
	//lint:ignore SA1019 older writers use it
	return p.encoding == format.RLEDictionary || p.encoding == format.PlainDictionary
}

// verify checks the page against its header and its checksum.
func (p *page) verify() error {
	if p.encoding == noEncoding {
		return badf("a page of type %v has no header of that type", p.kind)
	}
	if p.crc != 0 && crc32.ChecksumIEEE(p.bytes) != p.crc {
		return badf("a page of %d bytes does not match its checksum", len(p.bytes))
	}
	return nil
}

// transcoded reports whether the values were converted to PLAIN.
func (p *page) transcoded() bool { return p.encoding != format.Plain && !p.coded() }

// decompressed reports whether a decoded page no longer needs its encoded bytes.
func (p *page) decompressed(codec format.CompressionCodec) bool {
	return codec != format.Uncompressed && (p.kind == format.DataPage || p.compressed)
}

func (p *page) release() {
	p.bufs.release()
	p.block.Release()
	p.block, p.bytes, p.marks = nil, nil, nil
}

// forget releases the memory of a shared page. The next task that needs it decodes it
// again.
func (p *page) forget() {
	p.release()
	p.decode.done = false
}
