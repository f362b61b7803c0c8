package parquet

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// readAhead is the bytes read from a file at a time, at least.
	readAhead = 256 << 10
	// maxHeader bounds a page header; statistics of long values make it long.
	maxHeader = 1 << 20
)

// growable is a buffer of a lease that is kept while it is large enough.
type growable struct{ buf *gpu.Buffer }

// take returns n bytes with slack behind them; what was there before is lost.
func (g *growable) take(l *gpu.Lease, n int) ([]byte, error) {
	if g.buf.Size() < int64(n)+slack {
		g.release()
		b, err := l.Alloc(int64(n) + slack)
		if err != nil {
			return nil, err
		}
		g.buf = b
	}
	return g.buf.Bytes()[:n], nil
}

func (g *growable) release() {
	g.buf.Release()
	g.buf = nil
}

// cursor reads the pages of one column chunk in order. One goroutine at a time
// uses it. Its buffers are reused from chunk to chunk.
type cursor struct {
	lease *gpu.Lease

	file  *file
	group int
	col   leaf
	meta  *chunk
	src   io.ReaderAt
	row   int64 // the next row of the row group to be taken

	// Unread bytes of the chunk: win[pos:] and then [off, end) of the file.
	window growable
	win    []byte
	pos    int
	off    int64
	end    int64
	spare  int64 // bytes that the size of the chunk may leave out

	rows     int64 // of the chunk
	rowsLeft int64 // of those, behind the current page
	convert  conversion
	dict     dictionary

	// The current page.
	body, plainBuf, scratchBuf growable
	left                       int    // rows not taken yet
	levels                     hybrid // definition levels, when hasLevels
	hasLevels                  bool
	coded                      bool // values are codes into dict
	codes                      hybrid
	plain                      []byte // rest of the values in PLAIN encoding
	bit                        int    // values taken from plain, for booleans
}

// open points the cursor at the first page of a chunk.
func (c *cursor) open(f *file, col leaf, group int, meta *chunk, rows int64) error {
	src, err := f.handle.acquire()
	if err != nil {
		return err
	}
	c.file, c.group, c.col, c.meta, c.src, c.row = f, group, col, meta, src, 0
	c.win, c.pos, c.off, c.end, c.spare = nil, 0, meta.start, meta.start+meta.size, 0
	c.rows, c.rowsLeft, c.left = rows, rows, 0
	if col.physicalWidth() > 0 && !col.field.Type.IsVar() {
		c.convert = col.conversion()
	}
	return nil
}

// close ends the chunk; the buffers stay for the next one.
func (c *cursor) close() {
	if c.file != nil {
		c.file.handle.release()
		c.file = nil
	}
	c.dict.release()
}

// free gives the buffers back.
func (c *cursor) free() {
	c.close()
	for _, g := range []*growable{&c.window, &c.body, &c.plainBuf, &c.scratchBuf} {
		g.release()
	}
}

func (c *cursor) values(n int) ([]byte, error)  { return c.plainBuf.take(c.lease, n) }
func (c *cursor) scratch(n int) ([]byte, error) { return c.scratchBuf.take(c.lease, n) }

// fill makes n unread bytes of the chunk contiguous and returns them; fewer
// only at the end of the chunk.
func (c *cursor) fill(n int) ([]byte, error) {
	have := c.win[c.pos:]
	if len(have) >= n || c.off == c.end {
		return have[:min(n, len(have))], nil
	}
	n = int(min(int64(n), int64(len(have))+c.end-c.off))
	want := int(min(int64(max(n, readAhead)), int64(len(have))+c.end-c.off))
	if c.window.buf.Size() < int64(want)+slack {
		b, err := c.lease.Alloc(int64(want) + slack)
		if err != nil {
			return nil, err
		}
		copy(b.Bytes(), have)
		c.window.release()
		c.window.buf = b
	} else {
		copy(c.window.buf.Bytes(), have)
	}
	c.win = c.window.buf.Bytes()[:want]
	fresh := c.win[len(have):]
	if err := readFull(c.src, fresh, c.off); err != nil {
		return nil, err
	}
	c.off += int64(len(fresh))
	c.pos = 0
	return c.win[:n], nil
}

// header reads the next page header.
func (c *cursor) header() (*format.PageHeader, error) {
	for want := 128; ; want *= 4 {
		b, err := c.fill(want)
		if err != nil {
			return nil, err
		}
		h := new(format.PageHeader)
		n, err := unmarshalCompact(b, h)
		if errors.Is(err, io.ErrUnexpectedEOF) && (len(b) == want && want < maxHeader || c.extend()) {
			continue
		}
		if len(b) == 0 {
			return nil, badf("the pages end %d rows early", c.rowsLeft)
		}
		if err != nil {
			return nil, badf("a page header cannot be decoded: %v", err)
		}
		c.pos += n
		return h, nil
	}
}

// unread is the bytes of the chunk behind what was read.
func (c *cursor) unread() int64 { return int64(len(c.win)-c.pos) + c.end - c.off }

// extend adds to the chunk what its size left out, if anything: old writers did not
// count the page of the dictionary, or the header of that. It lies before whatever
// follows in the file.
func (c *cursor) extend() bool {
	n := min(c.spare, c.file.places.after(c.meta.start)-c.end)
	c.spare = 0
	c.end += max(n, 0)
	return n > 0
}

// pageRows is the rows that the header of a data page claims; other pages have none.
func pageRows(h *format.PageHeader) (rows int64, data bool) {
	switch h.Type {
	case format.DataPage:
		return int64(h.DataPageHeader.V.NumValues), true
	case format.DataPageV2:
		return int64(h.DataPageHeaderV2.V.NumValues), true
	}
	return 0, false
}

// checkPage makes sure that the chunk has the bytes of a page.
func (c *cursor) checkPage(h *format.PageHeader) error {
	n := int64(h.CompressedPageSize)
	if n < 0 || h.UncompressedPageSize < 0 {
		return badf("a page header claims %d bytes, %d uncompressed", n, h.UncompressedPageSize)
	}
	if left := c.unread(); n > left && !(c.extend() && n <= c.unread()) {
		return badf("a page header claims %d bytes, the column chunk has %d left", n, left)
	}
	return nil
}

// payload returns the bytes of the page behind its header, with slack, until
// the next call.
func (c *cursor) payload(h *format.PageHeader) ([]byte, error) {
	n := int(h.CompressedPageSize)
	b, err := c.fill(n)
	if err != nil {
		return nil, err
	}
	c.pos += n
	if h.CRC != 0 && crc32.ChecksumIEEE(b) != uint32(h.CRC) {
		return nil, badf("a page of %d bytes does not match its checksum", n)
	}
	return b, nil
}

// pass moves over n bytes of the chunk, which are not read unless they have been.
func (c *cursor) pass(n int) {
	k := min(n, len(c.win)-c.pos)
	c.pos += k
	c.off += int64(n - k)
}

// finish makes sure that the pages of a chunk whose rows are all taken hold no more.
func (c *cursor) finish() error {
	c.spare = 0
	next := c.file.places.after(c.meta.start)
	for c.unread() > 0 && c.end-c.unread() < next {
		h, err := c.header()
		if err != nil || c.checkPage(h) != nil {
			return nil // no page: some writers leave room
		}
		if rows, _ := pageRows(h); rows > 0 {
			return badf("its pages hold more than the %d rows of the row group", c.rows)
		}
		c.pass(int(h.CompressedPageSize))
	}
	return nil
}

func (c *cursor) decompress(b []byte, size int) ([]byte, error) {
	if c.meta.codec == format.Uncompressed {
		if len(b) != size {
			return nil, badf("an uncompressed page has %d bytes, its header says %d", len(b), size)
		}
		return b, nil
	}
	if size/maxExpansion(c.meta.codec) > len(b) {
		return nil, badf("a page header claims that %d bytes decompress to %d", len(b), size)
	}
	out, err := c.body.take(c.lease, size)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 && size == 0 {
		return out, nil // a page of nulls: nothing was compressed
	}
	return out, decompress(c.meta.codec, out, b)
}

// nextPage makes the next data page current. A page of at most skip rows is
// passed over without decoding it; the rows passed over are returned.
func (c *cursor) nextPage(skip int64) (int64, error) {
	for {
		begin := c.end - c.unread()
		h, err := c.header()
		if err != nil {
			return 0, err
		}
		if err := c.checkPage(h); err != nil {
			return 0, err
		}
		if rows, data := pageRows(h); data && rows >= 0 && rows <= skip && rows <= c.rowsLeft {
			c.pass(int(h.CompressedPageSize))
			c.rowsLeft -= rows
			return rows, nil
		}
		b, err := c.payload(h)
		if err != nil {
			return 0, err
		}
		switch h.Type {
		case format.DictionaryPage:
			c.spare = c.end - c.unread() - begin
			if err := c.dictionaryPage(h, b); err != nil {
				return 0, err
			}
		case format.DataPage:
			return 0, c.dataPageV1(h, b)
		case format.DataPageV2:
			return 0, c.dataPageV2(h, b)
		case format.IndexPage:
		default:
			// Page types of the future are to be skipped.
		}
	}
}

func (c *cursor) dictionaryPage(h *format.PageHeader, b []byte) error {
	d := &h.DictionaryPageHeader
	if !d.Valid {
		return badf("a dictionary page has no dictionary header")
	}
	//lint:ignore SA1019 older writers use it
	if e := d.V.Encoding; e != format.Plain && e != format.PlainDictionary {
		return badf("a dictionary page has encoding %v", e)
	}
	if c.dict.shared != nil {
		return badf("there are two dictionary pages")
	}
	b, err := c.decompress(b, int(h.UncompressedPageSize))
	if err != nil {
		return err
	}
	return c.dict.load(c, b, int(d.V.NumValues))
}

func (c *cursor) dataPageV1(h *format.PageHeader, b []byte) error {
	d := &h.DataPageHeader
	if !d.Valid {
		return badf("a data page has no data header")
	}
	b, err := c.decompress(b, int(h.UncompressedPageSize))
	if err != nil {
		return err
	}
	c.hasLevels = false
	if c.col.optional {
		if e := d.V.DefinitionLevelEncoding; e != format.RLE {
			return badf("definition levels have encoding %v, only RLE is supported", e)
		}
		if len(b) < 4 {
			return badf("a data page of %d bytes has no definition levels", len(b))
		}
		n := int(binary.LittleEndian.Uint32(b))
		if n > len(b)-4 {
			return badf("a data page claims %d bytes of definition levels in %d", n, len(b)-4)
		}
		c.setLevels(b[4:4+n], d.V.NumValues)
		b = b[4+n:]
	}
	return c.setValues(d.V.Encoding, b, d.V.NumValues)
}

func (c *cursor) dataPageV2(h *format.PageHeader, b []byte) error {
	d := &h.DataPageHeaderV2
	if !d.Valid {
		return badf("a data page has no data header")
	}
	rep, def := int(d.V.RepetitionLevelsByteLength), int(d.V.DefinitionLevelsByteLength)
	if rep < 0 || def < 0 || rep > len(b) || def > len(b)-rep || int(h.UncompressedPageSize) < rep+def {
		return badf("a data page claims %d + %d bytes of levels in %d", rep, def, len(b))
	}
	levels, rest := b[rep:rep+def], b[rep+def:]
	if !d.V.IsCompressed.Valid || d.V.IsCompressed.V {
		var err error
		if rest, err = c.decompress(rest, int(h.UncompressedPageSize)-rep-def); err != nil {
			return err
		}
	}
	c.hasLevels = false
	// The levels are right where they and the count of nulls differ. Only a page without
	// any has nothing else to go by.
	if c.col.optional && (def > 0 || d.V.NumNulls != 0) {
		c.setLevels(levels, d.V.NumValues)
	}
	return c.setValues(d.V.Encoding, rest, d.V.NumValues)
}

// setLevels starts the definition levels of a page unless they are all ones.
func (c *cursor) setLevels(b []byte, rows int32) {
	c.levels = hybrid{src: b, width: 1}
	c.hasLevels = rows > 0 && !c.levels.allOnes(int(rows))
}

// noCodes is the body of a data page without a single code: a width of zero.
var noCodes = make([]byte, 1, 1+slack)

// setValues starts the values of a page.
func (c *cursor) setValues(e format.Encoding, b []byte, rows int32) error {
	if rows < 0 || int64(rows) > c.rowsLeft {
		return badf("a data page claims %d rows, the row group has %d left", rows, c.rowsLeft)
	}
	c.rowsLeft -= int64(rows)
	c.left = int(rows)
	c.plain, c.bit, c.coded = nil, 0, false
	switch e {
	//lint:ignore SA1019 older writers use it
	case format.RLEDictionary, format.PlainDictionary:
		if len(b) == 0 {
			b = noCodes // a page of nulls may leave out even the width
		}
		if b[0] > 32 {
			return badf("a data page has codes of %d bits", b[0])
		}
		c.coded = true
		c.codes = hybrid{src: b[1:], width: uint(b[0])}
		return nil
	case format.Plain:
		c.plain = b
		return nil
	}
	// The other encodings hold the number of values, which the nulls decide.
	values := int(rows)
	if c.hasLevels {
		levels := c.levels
		bitmap, err := c.scratch(int(gpu.BitmapBytes(int(rows))))
		if err != nil {
			return err
		}
		if values, err = levels.bitmap(bitmap, 0, int(rows)); err != nil {
			return err
		}
	}
	if c.col.physical == format.Boolean && e == format.RLE {
		return c.booleanRuns(b, values)
	}
	var err error
	c.plain, err = transcode(e, c.col.physical, b, values, c.col.physicalWidth(), c)
	return err
}

// booleanRuns turns run-length encoded booleans into a bitmap.
func (c *cursor) booleanRuns(b []byte, n int) error {
	if len(b) < 4 {
		return badf("a page of run-length encoded booleans has %d bytes", len(b))
	}
	size := int(binary.LittleEndian.Uint32(b))
	if size > len(b)-4 {
		return badf("a page of booleans claims %d bytes, it has %d", size, len(b)-4)
	}
	runs := hybrid{src: b[4 : 4+size], width: 1}
	out, err := c.values(int(gpu.BitmapBytes(n)))
	if err != nil {
		return err
	}
	c.plain = out
	_, err = runs.bitmap(out, 0, n)
	return err
}

// takePlain returns the next n fixed-width PLAIN values.
func (c *cursor) takePlain(n, width int) ([]byte, error) {
	if uint64(n)*uint64(width) > uint64(len(c.plain)) {
		return nil, badf("a data page promises %d values of %d bytes more, it has %d bytes", n, width, len(c.plain))
	}
	b := c.plain[:n*width]
	c.plain = c.plain[n*width:]
	return b, nil
}

// takeCodes decodes the next dictionary codes and checks their range. T has room
// for every code of the dictionary.
func takeCodes[T code](c *cursor, dst []T) error {
	if c.codes.width > 8*uint(unsafe.Sizeof(T(0))) {
		return takeWideCodes(c, dst)
	}
	if err := decode(&c.codes, dst); err != nil {
		return err
	}
	if c.dict.n()>>c.codes.width > 0 {
		return nil // every code of this width is inside
	}
	if top, ok := outside(dst, c.dict.n()); !ok {
		return badf("a code of %d points behind the dictionary of %d values", top, c.dict.n())
	}
	return nil
}

// takeWideCodes is takeCodes where the page has codes of more bits than T, which
// the dictionary does not need.
func takeWideCodes[T code](c *cursor, dst []T) error {
	var wide [1024]int32
	for len(dst) > 0 {
		k := min(len(dst), len(wide))
		if err := takeCodes(c, wide[:k]); err != nil {
			return err
		}
		for i, v := range wide[:k] {
			dst[i] = T(v)
		}
		dst = dst[k:]
	}
	return nil
}

// outside returns a code that is not in [0, n), and whether there is none.
func outside[T code](codes []T, n int) (found uint32, ok bool) {
	per := 8 / int(unsafe.Sizeof(T(0)))
	whole := len(codes) / per * per
	if n > 0 && within(typed[uint64](gpu.BytesOf(codes), whole/per), 64/uint(per), uint64(n-1)) {
		codes = codes[whole:]
	}
	for _, v := range codes {
		if int64(uint32(v)) >= int64(n) {
			return uint32(v), false
		}
	}
	return 0, true
}

// within says whether the codes of so many bits that lie in words are at most last.
// The top bit of a code's lane is set in its distance to last when it is larger, or
// in a code that has a lane to itself; a borrow from the lane below only follows on
// such a one. Codes of less than 32 bits get lanes of twice their size.
func within(words []uint64, width uint, last uint64) bool {
	bad, top := uint64(0), uint64(0x80000000_80000000)
	switch width {
	case 32:
		last |= last << 32
		for _, x := range words {
			bad |= x | (last - x)
		}
	default:
		ones := uint64(0x00000001_00000001)
		if width == 8 {
			ones = 0x0001_0001_0001_0001
		}
		even := ones<<width - ones
		last, top = last*ones, ones<<(2*width-1)
		for _, x := range words {
			bad |= (last - x&even) | (last - x>>width&even)
		}
	}
	return bad&top == 0
}

// skip passes over rows.
func (c *cursor) skip(rows int64) error {
	for rows > 0 {
		if c.left == 0 {
			passed, err := c.nextPage(rows)
			if err != nil {
				return err
			}
			rows -= passed
			continue
		}
		n := int(min(rows, int64(c.left)))
		if n == c.left {
			c.left = 0 // the rest of a page is dropped without decoding it
		} else if err := c.skipInPage(n); err != nil {
			return err
		}
		rows -= int64(n)
	}
	return nil
}

// skipInPage moves over n rows of the current page.
func (c *cursor) skipInPage(n int) error {
	m := n
	if c.hasLevels {
		bitmap, err := c.scratch(int(gpu.BitmapBytes(n)))
		if err != nil {
			return err
		}
		if m, err = c.levels.bitmap(bitmap, 0, n); err != nil {
			return err
		}
	}
	c.left -= n
	switch {
	case c.coded:
		var buf [1024]int32
		for m > 0 {
			k := min(m, len(buf))
			if err := decode(&c.codes, buf[:k]); err != nil {
				return err
			}
			m -= k
		}
	case c.col.physical == format.Boolean:
		c.bit += m
	case c.col.physical == format.ByteArray:
		for range m {
			if _, err := c.takeBytes(); err != nil {
				return err
			}
		}
	default:
		_, err := c.takePlain(m, c.col.physicalWidth())
		return err
	}
	return nil
}

// takeBytes returns the next PLAIN value of a BYTE_ARRAY column.
func (c *cursor) takeBytes() ([]byte, error) {
	if len(c.plain) < 4 {
		return nil, badf("a data page has fewer values than it promises")
	}
	n := uint64(binary.LittleEndian.Uint32(c.plain))
	if n > uint64(len(c.plain)-4) {
		return nil, badf("a value claims %d bytes, its page has %d left", n, len(c.plain)-4)
	}
	b := c.plain[4 : 4+n]
	c.plain = c.plain[4+n:]
	return b, nil
}
