package parquet

import (
	"encoding/binary"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
)

// growable is a buffer of a lease that is reused as long as it is large enough.
type growable struct{ buf *gpu.Buffer }

// take returns n bytes, followed by slack. The old contents are lost.
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

// pageBuffers hold a decoded page: its uncompressed bytes, and the values of the less
// frequent encodings in PLAIN.
type pageBuffers struct{ body, plain growable }

func (b *pageBuffers) release() {
	b.body.release()
	b.plain.release()
}

// pageState is a position in a page from which values can be taken. It is valid as long as the
// buffers of the page. A copy is an independent position.
type pageState struct {
	reps      hybrid // repetition levels, if the leaf is in a list
	levels    hybrid // definition levels, if hasLevels
	hasLevels bool
	coded     bool // values are codes into the dictionary
	codes     hybrid
	plain     []byte // the remaining values in PLAIN encoding
	bit       int    // number of booleans taken from plain
}

// pageReader returns the values of rows [row, to) of a column chunk, page by page. It must not be
// used concurrently. Tasks reuse its buffers one after another.
type pageReader struct {
	lease    *gpu.Lease
	ready    func() // called when the shared work of this task has ended
	mayDefer bool   // no row has been returned yet, so the task may be deferred instead of waiting

	*encodedChunk
	convert conversion
	row, to int64

	// The current page, or nil.
	page    *page
	sharing bool // the page is shared: it was decoded into its own buffers
	left    int  // number of rows of [row, to) that are left in the page
	// The last shared page that the task used, and the number of its rows that the task has taken.
	last      *page
	lastTaken int64
	pageState
	bufs       *pageBuffers // buffers of the page that is being decoded
	own        pageBuffers
	scratchBuf growable
}

// start prepares the reader for a task.
func (c *pageReader) start() { c.mayDefer, c.page, c.last = true, nil, nil }

// abandon releases the current page of a task that has failed, unless other tasks use it, so that
// the task can start again in as little memory as before.
func (c *pageReader) abandon() {
	switch {
	case c.page == nil:
	case c.sharing:
		c.quit(c.page)
	default:
		c.drop(c.page)
	}
	c.page = nil
}

// seek moves the reader to rows [from, to) of a chunk, which must be wanted rows.
func (c *pageReader) seek(k *encodedChunk, from, to int64) {
	c.encodedChunk, c.page, c.row, c.to, c.left = k, nil, from, to, 0
	if k.col.physicalWidth() > 0 && !k.col.field.Type.IsVar() {
		c.convert = k.col.conversion()
	}
}

// free releases the buffers.
func (c *pageReader) free() {
	c.own.release()
	c.scratchBuf.release()
}

func (c *pageReader) values(n int) ([]byte, error)  { return c.bufs.plain.take(c.lease, n) }
func (c *pageReader) scratch(n int) ([]byte, error) { return c.scratchBuf.take(c.lease, n) }

// taken advances by n rows of the current page.
func (c *pageReader) taken(n int) {
	c.row += int64(n)
	c.left -= n
	if c.sharing {
		c.lastTaken += int64(n)
	}
	if c.left > 0 || c.page == nil {
		return
	}
	if c.sharing {
		c.leave(c.page, c.lastTaken, mark{c.row, c.pageState})
	} else {
		c.drop(c.page)
	}
	c.page = nil
}

// nextPage makes the page that contains the next row current.
func (c *pageReader) nextPage() error {
	if c.col.constant != nil {
		return c.constantPage(*c.col.constant)
	}
	p, err := c.find(c.row)
	if err != nil {
		return err
	}
	if p.coded() {
		if err := c.once(&c.dict.load, c.loadDictionary); err != nil {
			return err
		}
	}
	end := min(p.to, c.to)
	c.sharing = p.wanted > end-c.row
	at := mark{row: p.from}
	if c.sharing {
		at, err = c.share(p)
	} else {
		c.page = p
		err = c.decodePage(p, &c.own)
		at.at = c.pageState
	}
	if err != nil {
		return err
	}
	c.page, c.left, c.pageState = p, int(end-c.row), at.at
	if c.row > at.row {
		return c.skip(int(c.row - at.row))
	}
	return nil
}

// share begins the use of a page from which other strides take rows too. It returns the last known
// position that is not after the next row. The task uses the page until it calls leave or quit.
func (c *pageReader) share(p *page) (mark, error) {
	if c.last != p {
		c.last, c.lastTaken = p, 0
	}
	for {
		if err := c.once(&p.decode, func() error { return c.decodeShared(p) }); err != nil {
			return mark{}, err
		}
		if at, ok := c.join(p, c.row); ok {
			return at, nil
		}
	}
}

// busyError means that another task is decoding a page or dictionary that this task needs.
type busyError struct{ done <-chan struct{} }

func (busyError) Error() string { return "another task decodes the page" }

// once does work whose result several tasks need, unless it has been done. If another task is doing
// it, once waits or returns a busyError.
func (c *pageReader) once(s *shared, work func() error) error {
	for {
		done, busy := c.claim(s)
		if done {
			return nil
		}
		if busy == nil {
			break
		}
		if c.mayDefer {
			return busyError{busy}
		}
		<-busy
	}
	ok := false
	defer func() {
		c.settle(s, ok)
		c.ready()
	}()
	err := work()
	ok = err == nil
	return err
}

// decodeShared decodes a page into the page's own buffers.
func (c *pageReader) decodeShared(p *page) error {
	c.own.release() // an earlier page, which may be as large, is no longer needed
	if err := c.decodePage(p, &p.bufs); err != nil {
		p.bufs.release()
		c.drop(p)
		return err
	}
	if p.transcoded() && !c.hasLevels {
		p.bufs.body.release() // all values are in PLAIN
		c.drop(p)
	}
	c.keep(p, mark{p.from, c.pageState})
	return nil
}

// decodePage decodes a page so that its values can be taken, beginning with the first.
func (c *pageReader) decodePage(p *page, bufs *pageBuffers) error {
	c.bufs = bufs
	if err := c.load(p); err != nil {
		return err
	}
	if err := p.verify(); err != nil {
		return err
	}
	var err error
	if p.kind == format.DataPage {
		err = c.dataPageV1(p)
	} else {
		err = c.dataPageV2(p)
	}
	if err == nil && p.decompressed(c.meta.codec) {
		c.drop(p) // all of it is in bufs
	}
	return err
}

// decompress returns the bytes of head, followed by the bytes that b decompresses to, in a buffer
// of the page.
func (c *pageReader) decompress(head, b []byte, size int) ([]byte, error) {
	if c.meta.codec == format.Uncompressed {
		if len(b) != size {
			return nil, badf("an uncompressed page has %d bytes, its header says %d", len(b), size)
		}
		return b, nil
	}
	if size/maxExpansion(c.meta.codec) > len(b) {
		return nil, badf("a page header claims that %d bytes decompress to %d", len(b), size)
	}
	out, err := c.bufs.body.take(c.lease, len(head)+size)
	if err != nil {
		return nil, c.blamePage(err, size)
	}
	out = out[copy(out, head):]
	if len(b) == 0 && size == 0 {
		return out, nil // a page of nulls has no compressed bytes
	}
	return out, decompress(c.meta.codec, out, b)
}

// loadDictionary decodes the dictionary of the chunk, if it has one.
func (c *pageReader) loadDictionary() error {
	p := c.dict.page
	if p == nil {
		return nil
	}
	// Other strides of the row group may leave the dictionary to a device meanwhile.
	block, encoded, err := c.pageBytes(p)
	if err != nil {
		return err
	}
	defer block.Release()
	//lint:ignore SA1019 older writers use it
	if p.encoding != format.Plain && p.encoding != format.PlainDictionary {
		return badf("a dictionary page has encoding %v", p.encoding)
	}
	c.bufs = &c.own
	b, err := c.decompress(nil, encoded, p.rawSize)
	if err != nil {
		return err
	}
	if err := c.dict.decode(c, b, int(p.values)); err != nil {
		c.dict.release()
		return err
	}
	c.drop(p)
	return nil
}

func (c *pageReader) dataPageV1(p *page) error {
	b, err := c.decompress(nil, p.bytes, p.rawSize)
	if err != nil {
		return err
	}
	c.hasLevels = false
	var levels []byte
	if c.col.maxRep > 0 {
		if p.repEncoding != format.RLE {
			return badf("repetition levels have encoding %v, only RLE is supported", p.repEncoding)
		}
		if levels, b, err = takeLevels(b, "repetition"); err != nil {
			return err
		}
		c.reps = hybrid{src: levels, width: levelBits(c.col.maxRep)}
	}
	if c.col.optional {
		if p.levelEncoding != format.RLE {
			return badf("definition levels have encoding %v, only RLE is supported", p.levelEncoding)
		}
		if levels, b, err = takeLevels(b, "definition"); err != nil {
			return err
		}
		c.setLevels(levels, int(p.values))
	}
	return c.setValues(p.encoding, b, int(p.values))
}

// takeLevels splits the levels of a page off, whose size is in front of them.
func takeLevels(b []byte, kind string) (levels, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, badf("a data page of %d bytes has no %s levels", len(b), kind)
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n > len(b)-4 {
		return nil, nil, badf("a data page claims %d bytes of %s levels in %d", n, kind, len(b)-4)
	}
	return b[4 : 4+n], b[4+n:], nil
}

func (c *pageReader) dataPageV2(p *page) error {
	b, rep, def := p.bytes, p.repBytes, p.defBytes
	if rep < 0 || def < 0 || rep > len(b) || def > len(b)-rep || p.rawSize < rep+def {
		return badf("a data page claims %d + %d bytes of levels in %d", rep, def, len(b))
	}
	levels, rest := b[:rep+def], b[rep+def:]
	if p.compressed {
		var err error
		if rest, err = c.decompress(levels, rest, p.rawSize-rep-def); err != nil {
			return err
		}
		if p.decompressed(c.meta.codec) {
			levels = c.bufs.body.buf.Bytes()[:rep+def]
		}
	}
	c.reps = hybrid{src: levels[:rep], width: levelBits(c.col.maxRep)}
	levels, c.hasLevels = levels[rep:], false
	// If the levels and the count of nulls contradict each other, the levels are right. If there
	// are no levels, only the count is used.
	if c.col.optional && (def > 0 || p.nulls != 0) {
		c.setLevels(levels, int(p.values))
	}
	return c.setValues(p.encoding, rest, int(p.values))
}

// setLevels starts the definition levels of a page, unless they are all ones.
func (c *pageReader) setLevels(b []byte, rows int) {
	c.levels = hybrid{src: b, width: max(levelBits(c.col.maxDef), 1), top: c.col.maxDef}
	c.hasLevels = rows > 0 && !c.levels.allOnes(rows)
}

// noCodes is the body of a data page without codes. It states a code width of zero.
var noCodes = make([]byte, 1, 1+slack)

// setValues sets up the values of a page.
func (c *pageReader) setValues(e format.Encoding, b []byte, rows int) error {
	c.plain, c.bit, c.coded = nil, 0, false
	switch e {
	//lint:ignore SA1019 older writers use it
	case format.RLEDictionary, format.PlainDictionary:
		if len(b) == 0 {
			b = noCodes // a page of nulls may omit even the code width
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
	// The other encodings contain the number of values, which the number of nulls determines.
	values := rows
	if c.hasLevels {
		levels := c.levels
		bitmap, err := c.scratch(int(gpu.BitmapBytes(rows)))
		if err != nil {
			return err
		}
		if values, err = levels.bitmap(bitmap, 0, rows); err != nil {
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
func (c *pageReader) booleanRuns(b []byte, n int) error {
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
func (c *pageReader) takePlain(n, width int) ([]byte, error) {
	if uint64(n)*uint64(width) > uint64(len(c.plain)) {
		return nil, badf("a data page promises %d values of %d bytes more, it has %d bytes", n, width, len(c.plain))
	}
	b := c.plain[:n*width]
	c.plain = c.plain[n*width:]
	return b, nil
}

// takeCodes decodes the next dictionary codes and checks that they are in range. T can represent
// every code of the dictionary.
func takeCodes[T code](c *pageReader, dst []T) error {
	if c.codes.width > 8*uint(unsafe.Sizeof(T(0))) {
		return takeWideCodes(c, dst)
	}
	if err := decode(&c.codes, dst); err != nil {
		return err
	}
	if c.dict.n()>>c.codes.width > 0 {
		return nil // every code of this width is in range
	}
	if top, ok := outside(dst, c.dict.n()); !ok {
		return badf("a code of %d points behind the dictionary of %d values", top, c.dict.n())
	}
	return nil
}

// takeWideCodes is takeCodes for pages whose codes have more bits than T. Codes in range do not
// need the extra bits.
func takeWideCodes[T code](c *pageReader, dst []T) error {
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

// outside returns a code that is not in [0, n). ok is false if there is none.
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

// within reports whether the codes of width bits that are packed in words are at most last. Codes
// of less than 32 bits are moved to lanes of twice their width. Each lane then computes last minus
// the code. A code above last sets the top bit of its lane. A lane can only borrow from the next
// one if its own code is above last, so a borrow never hides the result.
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

// skip skips n rows of the current page.
func (c *pageReader) skip(n int) error {
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
	switch {
	case c.coded:
		return c.codes.skip(m)
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
func (c *pageReader) takeBytes() ([]byte, error) {
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
