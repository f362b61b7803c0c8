package parquet

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
)

// A scan for a device that decodes pages (source.DecodeOptions.Pages) hands over the columns of a stride as they are in
// the file, if the device can decode all their pages. Only dictionaries of strings whose codes are kept are decoded on
// the CPU, because all strides of a row group share them.

// The functions below return the reason why the CPU must decode a column, for the report. The reason is empty if the
// device can decode the column.
const (
	reasonHeader     = "a page whose header contradicts its content"
	reasonValues     = "pages of more than 2²⁴ values"
	reasonDictionary = "pages that refer to a missing dictionary"
	reasonLarge      = "ZSTD pages of more than 128 MiB" // zstdPageMost
	reasonLargeGzip  = "GZIP pages of more than 4 MiB"   // gzipPageMost
	reasonZstd       = "a ZSTD page that the device cannot decode"
)

// keepPages returns column i of a stride in pages, or the reason why the CPU must decode the column. pages is used to
// decode dictionaries.
func (r *reader) keepPages(plan *stridePlan, i int, pages *pageReader) (col gpu.Column, reason string, err error) {
	for _, s := range plan.segments {
		if reason = leftToCPU(s.chunks[i].col, s.chunks[i].meta); reason != "" {
			return col, reason, nil
		}
	}
	b := pagesBuilder{pages: pages, Pages: &gpu.Pages{}, at: location{column: r.schema.Fields[i].Name, rowGroup: -1}}
	defer func() {
		if err != nil {
			err = b.at.place(err)
		}
	}()
	defer guard(&err)
	defer b.release()
	b.at.path, b.at.rowGroup = plan.segments[0].file.path, plan.segments[0].group
	if err := r.readTogether(plan, i); err != nil {
		return col, "", err
	}
	for _, s := range plan.segments {
		if reason, err = b.add(s.chunks[i], s.from, s.to); reason != "" || err != nil {
			return col, reason, err
		}
		if err := s.chunks[i].finish(s.to); err != nil {
			return col, "", err
		}
	}
	if col, reason, err = b.column(r.schema.Fields[i].Type, plan.rows); reason != "" || err != nil {
		return gpu.Column{}, reason, err
	}
	var first sync.Once // a device may decode again after it was denied memory
	b.Decode = func(reason string) (gpu.Column, error) {
		col, err := r.decodeAgain(plan, i)
		if err == nil {
			n := plan.bytes(r.columns[i])
			first.Do(func() { r.count(i, -n, n, reason) })
		}
		return col, err
	}
	return col, "", nil
}

// readTogether makes the chunks of a column of a stride follow each other in memory, so that the column is
// copied to the device in few pieces, and reads them. If the budget has no room for that, they are read later, as if
// the CPU decoded them.
func (r *reader) readTogether(plan *stridePlan, i int) error {
	sizes, total := make([]int64, len(plan.segments)), int64(0)
	for k, s := range plan.segments {
		sizes[k] = s.chunks[i].wholeSize(s.from, s.to)
		total += sizes[k]
	}
	if total == 0 {
		return nil
	}
	all, err := r.lease.Alloc(total)
	if budget := (*gpu.BudgetError)(nil); errors.As(err, &budget) {
		return nil
	}
	if err != nil {
		return err
	}
	defer all.Release()
	at := int64(0)
	var chunks []*encodedChunk
	for k, s := range plan.segments {
		if sizes[k] > 0 {
			s.chunks[i].readInto(all.View(at, sizes[k]))
			chunks = append(chunks, s.chunks[i])
			at += sizes[k]
		}
	}
	if r.remote {
		readObjects(chunks)
	} else {
		r.readAtOnce(chunks)
	}
	return nil
}

// readQueue is the chunks that wait to be read, in the order of the strides that want them. All cores read the first
// ones, so that strides become ready one after the other and not all at the same time.
type readQueue struct {
	mu    sync.Mutex
	reads []queuedRead
}

// queuedRead is a chunk to read.
type queuedRead struct {
	chunk *encodedChunk
	of    *readBatch
}

// readBatch is the chunks of a column of a stride.
type readBatch struct {
	left atomic.Int64  // chunks that are not read yet
	done chan struct{} // closed when there are none
}

func (q *readQueue) push(chunks []*encodedChunk) *readBatch {
	b := &readBatch{done: make(chan struct{})}
	b.left.Store(int64(len(chunks)))
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range chunks {
		q.reads = append(q.reads, queuedRead{c, b})
	}
	return b
}

// readFirst reads the first chunk. It returns false if there is none.
func (q *readQueue) readFirst() bool {
	q.mu.Lock()
	if len(q.reads) == 0 {
		q.mu.Unlock()
		return false
	}
	first := q.reads[0]
	q.reads = q.reads[1:]
	q.mu.Unlock()
	first.chunk.readNow()
	if first.of.left.Add(-1) == 0 {
		close(first.of.done)
	}
	return true
}

// readAtOnce reads chunks into the memory of readInto. A core reads the page cache at 2 to 3 GB/s, so idle ones help.
// If a read fails, the chunk is read again when its pages are wanted, and that error counts.
func (r *reader) readAtOnce(chunks []*encodedChunk) {
	if len(chunks) == 0 {
		return
	}
	b := r.reads.push(chunks)
	for range len(chunks) - 1 {
		select {
		case r.slots <- struct{}{}:
			r.workers.Go(func() {
				defer func() { <-r.slots }()
				for r.reads.readFirst() {
				}
			})
			continue
		default:
		}
		break
	}
	for b.left.Load() > 0 && r.reads.readFirst() {
	}
	<-b.done
}

// gzipPageMost is the number of bytes of output of a GZIP page that a device decodes. One lane decodes the symbols of a
// page, 25 to 40 MB/s of output, and a core of a CPU makes 100 to 140 MB/s. So sixteen cores are faster than a device
// that has less than some 80 pages at a time, and a stride has 64 MiB of a column of 8-byte values.
const gzipPageMost = 4 << 20

// deviceCodecs are the codecs that a device decompresses.
var deviceCodecs = map[format.CompressionCodec]gpu.PageCodec{format.Uncompressed: gpu.PageUncompressed,
	format.Snappy: gpu.PageSnappy, format.Zstd: gpu.PageZstd, format.Lz4Raw: gpu.PageLZ4,
	format.Lz4: gpu.PageHadoopLZ4, format.Gzip: gpu.PageGzip}

// leftToCPU returns the reason why a device cannot decode the pages of a chunk, as far as the metadata says.
func leftToCPU(c leaf, meta *chunk) (reason string) {
	if c.constant != nil {
		return "a file lacks the column"
	}
	if c.node != nil || c.maxDef > 1 {
		return "nested columns"
	}
	if _, ok := deviceCodecs[meta.codec]; !ok {
		return "codec " + meta.codec.String()
	}
	if _, ok := c.stored(); ok {
		return ""
	}
	if _, ok := c.storedInFile(); ok {
		return "column type differs from the table's"
	}
	if c.isWideDecimal() {
		return fmt.Sprintf("decimals of more than %d digits", gpu.MaxPrecision)
	}
	return fmt.Sprintf("%v stored as %v", c.field.Type, c.physical)
}

// InPages implements source.Paged.
func (t *Table) InPages(columns []int) bool {
	for _, f := range t.files {
		for g := range f.groups {
			for _, c := range columns {
				if leftToCPU(f.cols[c], &f.groups[g].chunks[c]) != "" {
					return false
				}
			}
		}
	}
	return true
}

// SlowPages implements source.Paged.
func (t *Table) SlowPages(columns []int) bool {
	bytes, slow := int64(0), int64(0)
	for _, f := range t.files {
		for g := range f.groups {
			for _, c := range columns {
				m := &f.groups[g].chunks[c]
				bytes += m.rawSize
				if slices.Contains(slowCodecs, m.codec) {
					slow += m.rawSize
				}
			}
		}
	}
	return slow > bytes/2
}

var slowCodecs = []format.CompressionCodec{format.Zstd, format.Gzip, format.Lz4Raw, format.Lz4}

// storedForm is how the values of a column are stored: see gpu.Pages.
type storedForm struct {
	form          gpu.StoredForm
	bytes, digits int
	least, most   int64
	factor        int64
	unsigned      bool
}

// stored returns how a device converts stored values to values of the table's column. ok is false for types whose
// values only the CPU converts.
func (c leaf) stored() (f storedForm, ok bool) {
	if f, ok = c.storedInFile(); ok && c.widens() {
		ok = f.widen(c.field.Type, c.as)
	}
	return f, ok
}

// widen changes how values of a type are stored, so that they become values of a wider type (see widen). ok is false if
// only the CPU converts them. Values that the device leaves to the CPU because of their size are out of bounds.
func (f *storedForm) widen(from, to gpu.Type) (ok bool) {
	switch {
	case from.IsVar():
		return false // the CPU decides whether bytes are text
	case f.form == gpu.StoredBigEndian:
		return to.Kind == gpu.Decimal && from.Scale == to.Scale
	case f.form != gpu.StoredValues:
		return false
	case from.IsFloat():
		f.form = gpu.StoredSingle
		return from.Kind == gpu.Float32 && to.Kind == gpu.Float64
	}
	f.unsigned = from.Kind == gpu.Uint32 || from.Kind == gpu.Uint64
	if f.unsigned {
		f.least = 0
	}
	if to.IsFloat() {
		f.form = gpu.StoredWhole
		return from.IsInteger()
	}
	by := factor(from, to)
	if !by.IsInt64() || by.Int64() < 1 {
		return false
	}
	f.form, f.factor = gpu.StoredScaled, by.Int64()
	if inf := from.Infinity(); inf != 0 {
		f.least, f.most = max(f.least, 1-inf), min(f.most, inf-1)
	}
	lo, hi := to.Bounds()
	if to.Kind == gpu.Time {
		lo, hi = gpu.Int128{}, gpu.Int128From(math.MaxInt64)
	}
	if to.Width() <= 8 && lo.IsInt64() && hi.IsInt64() {
		f.least, f.most = max(f.least, lo.Int64()/f.factor), min(f.most, hi.Int64()/f.factor)
		return true
	}
	return !gpu.MulInt64(f.least, f.factor).Less(lo) && !hi.Less(gpu.MulInt64(f.most, f.factor))
}

// storedInFile is stored for values of the file's type.
func (c leaf) storedInFile() (f storedForm, ok bool) {
	t := c.field.Type
	f = storedForm{bytes: c.physicalWidth(), least: math.MinInt64, most: math.MaxInt64}
	switch c.physical {
	case format.Boolean:
		f.form = gpu.StoredBits
		return f, t.Kind == gpu.Bool
	case format.ByteArray:
		if t.Kind == gpu.Decimal {
			f.form, f.digits = gpu.StoredBigEndian, int(t.Precision)
		}
		return f, t.IsVar() || t.Kind == gpu.Decimal
	case format.FixedLenByteArray:
		switch {
		case c.isHalf():
			f.form = gpu.StoredHalf
		case t.IsVar():
			f.form = gpu.StoredBytes
		default:
			f.form, f.digits = gpu.StoredBigEndian, int(t.Precision)
		}
		return f, f.form != gpu.StoredBigEndian || t.Kind == gpu.Decimal
	case format.Int96:
		f.form = gpu.StoredInt96
		return f, true
	case format.Float, format.Double:
		return f, f.bytes == t.Width()
	case format.Int32, format.Int64:
	default:
		return f, false
	}
	switch t.Kind {
	case gpu.Decimal, gpu.Int8, gpu.Int16, gpu.Uint8, gpu.Uint16:
		if !t.Wide { // any integer is a decimal of more digits
			lo, hi := t.Bounds()
			f.least, f.most = int64(lo.Lo), int64(hi.Lo)
		}
		return f, true
	case gpu.Time:
		f.least, f.most = 0, t.Unit.PerDay()
		return f, true
	}
	return f, f.bytes == t.Width()
}

// pagesBuilder collects the pages of a column.
type pagesBuilder struct {
	*gpu.Pages
	pages  *pageReader
	at     location // of the page that was looked at last
	pieces []piece
	size   int64 // bytes of pieces
	coded  bool  // all data pages are coded
	chunks []*encodedChunk
	parts  []int // for each page of Data, the position of its chunk in chunks
}

// piece is a range of bytes of a block, which has pages and the headers between them.
type piece struct {
	block    *gpu.Buffer
	from, to int64
	at       int64         // position of its first byte in the column
	chunk    *encodedChunk // of its last page
}

// mostBetween bounds the bytes between two pages of a chunk in a piece, which are copied with them: a header, and short
// pages without wanted rows. Between the pages of two chunks there may be a dictionary, which most columns need.
const mostBetween = 4 << 10

// add adds rows [from, to) of a chunk, or returns the reason why the device cannot decode a page.
func (b *pagesBuilder) add(c *encodedChunk, from, to int64) (reason string, err error) {
	b.at.path, b.at.rowGroup = c.file.path, c.group
	first := len(b.chunks) == 0 || b.chunks[len(b.chunks)-1] != c
	if first {
		b.chunks = append(b.chunks, c)
	}
	for row := from; row < to; first = false {
		p, err := c.find(row)
		if err != nil {
			return "", err
		}
		if first && p.coded() && c.dict.page != nil && !c.col.field.Type.IsVar() {
			// The dictionary comes before the first page, so both are in one piece. Strings may keep their codes.
			if err := b.hold(c, c.dict.page, &gpu.Page{}); err != nil {
				return "", err
			}
		}
		g, reason := p.undecoded(c)
		if reason != "" {
			return reason, nil
		}
		end := min(p.to, to)
		g.Skip, g.Rows = int(row-p.from), int(end-row)
		if reason, err := b.take(c, p, &g); reason != "" || err != nil {
			return reason, err
		}
		b.coded = g.Coded && (b.coded || len(b.Data) == 0)
		b.Data, b.parts = append(b.Data, g), append(b.parts, len(b.chunks)-1)
		row = end
	}
	return "", nil
}

// take adds the bytes of a page, or returns the reason why the device cannot decode them.
func (b *pagesBuilder) take(c *encodedChunk, p *page, g *gpu.Page) (reason string, err error) {
	if err := b.hold(c, p, g); err != nil {
		return "", err
	}
	if !walk(b.Pages, g, p.bytes[max(g.Levels, 0):]) {
		if g.Raw > zstdPageMost {
			return reasonLarge, nil
		}
		return reasonZstd, nil
	}
	return "", nil
}

// release releases the pieces.
func (b *pagesBuilder) release() {
	for _, x := range b.pieces {
		x.block.Release()
	}
}

// hold adds the bytes of a page to the pieces, which keep their memory: another stride may drop a dictionary.
func (b *pagesBuilder) hold(c *encodedChunk, p *page, g *gpu.Page) error {
	held, encoded, err := c.pageBytes(p)
	if err != nil {
		return err
	}
	defer held.Release()
	if g.At = b.size; p.size == 0 {
		return nil
	}
	block, from := held.Whole()
	from += int64(cap(held.Bytes()) - cap(encoded))
	to := from + int64(p.size)
	for _, x := range slices.Backward(b.pieces) {
		if x.block == block && x.from <= from && to <= x.to {
			g.At = x.at + from - x.from // a dictionary
			return nil
		}
	}
	last := len(b.pieces) - 1
	if last < 0 || b.pieces[last].block != block || b.pieces[last].to > from ||
		b.pieces[last].chunk == c && from-b.pieces[last].to > mostBetween {
		b.pieces = append(b.pieces, piece{block.Retain(), from, from, b.size, c})
		last++
	}
	x := &b.pieces[last]
	b.size += to - x.to
	x.to, x.chunk = to, c
	g.At = b.size - int64(p.size)
	return nil
}

// walk adds to the pages of a column what a device must know about the compressed body of a page. ok is false if it
// cannot decompress the body.
func walk(x *gpu.Pages, g *gpu.Page, body []byte) (ok bool) {
	if g.Codec != gpu.PageZstd {
		return true
	}
	g.ZstdFrom = len(x.Zstd)
	x.Zstd, ok = zstdBlocks(x.Zstd, body, g.Raw)
	g.ZstdTo = len(x.Zstd)
	return ok
}

// maxConverted is the number of values up to which a page may take memory on a device for values in another form.
const maxConverted = 1 << 24

// deviceEncoding returns the encoding of a page whose values are not codes. ok is false if only the CPU decodes it.
func (c leaf) deviceEncoding(e format.Encoding) (g gpu.StoredEncoding, ok bool) {
	bytes, integers := c.physical == format.ByteArray, c.physical == format.Int32 || c.physical == format.Int64
	switch e {
	case format.Plain:
		return gpu.StoredPlain, true
	case format.RLE:
		return gpu.StoredRuns, c.physical == format.Boolean
	case format.DeltaBinaryPacked:
		return gpu.StoredDelta, integers
	case format.DeltaLengthByteArray:
		return gpu.StoredDeltaLength, bytes
	case format.DeltaByteArray:
		return gpu.StoredDeltaBytes, bytes || c.physical == format.FixedLenByteArray
	case format.ByteStreamSplit:
		return gpu.StoredStreamSplit, c.physicalWidth() > 0 && c.physical != format.Int96
	}
	return g, false
}

// undecoded returns what a device must know of a page, or the reason why it cannot decode the page.
func (p *page) undecoded(c *encodedChunk) (g gpu.Page, reason string) {
	g = gpu.Page{Size: p.size, Raw: p.rawSize, Values: int(p.values), Coded: p.coded()}
	ok := true
	switch {
	case p.kind == format.DictionaryPage:
		//lint:ignore SA1019 older writers use it
		ok, g.Coded = p.encoding == format.Plain || p.encoding == format.PlainDictionary, false
	case g.Coded:
		ok = c.col.physical != format.Boolean
	default:
		g.Encoding, ok = c.col.deviceEncoding(p.encoding)
	}
	if !ok {
		return g, fmt.Sprintf("encoding %v of %v", p.encoding, c.col.physical)
	}
	if !g.Coded && g.Values > maxConverted {
		f, _ := c.col.stored()
		if g.Encoding != gpu.StoredPlain || f.form != gpu.StoredValues || c.col.field.Type.Wide {
			return g, reasonValues
		}
	}
	compressed := c.meta.codec != format.Uncompressed
	switch {
	case p.kind == format.DataPageV2:
		// If levels and the number of nulls contradict each other, the CPU decides.
		if p.repBytes != 0 || p.defBytes < 0 || p.defBytes > p.size || p.rawSize < p.defBytes ||
			p.defBytes == 0 && p.nulls != 0 || p.defBytes > 0 && !c.col.optional {
			return g, reasonHeader
		}
		g.Levels, g.Raw = p.defBytes, p.rawSize-p.defBytes
		compressed = compressed && p.compressed
	case p.kind == format.DataPage && c.col.optional:
		if p.levelEncoding != format.RLE {
			return g, fmt.Sprintf("encoding %v of definition levels", p.levelEncoding)
		}
		g.Levels = gpu.LevelsInBody
	}
	body := p.size - max(g.Levels, 0)
	if compressed {
		g.Codec = deviceCodecs[c.meta.codec]
		ok = g.Raw/maxExpansion(c.meta.codec) <= body
		if ok && g.Codec == gpu.PageGzip && g.Raw > gzipPageMost {
			return g, reasonLargeGzip
		}
	} else {
		ok = g.Raw == body
	}
	if !ok {
		return g, reasonHeader
	}
	return g, ""
}

// column returns the column of the pages that were added, or the reason why the CPU must decode it.
func (b *pagesBuilder) column(t gpu.Type, rows int) (col gpu.Column, reason string, err error) {
	f, _ := b.chunks[0].col.stored()
	b.Form, b.Stored, b.Digits, b.Least, b.Most = f.form, f.bytes, f.digits, f.least, f.most
	b.Factor, b.Unsigned = f.factor, f.unsigned
	entries := 0
	for _, c := range b.chunks {
		b.Optional = b.Optional || c.col.optional
		if g, _ := c.col.stored(); g != f {
			return col, "files store the column in different ways", nil
		}
		if c.dict.page != nil {
			entries += int(c.dict.page.values)
		}
	}
	col = gpu.Column{Type: t, Len: rows, Pages: b.Pages}
	if t.IsVar() && b.coded && entries <= rows/4 {
		col.Dict, reason, err = b.keepCodes(t, rows)
	} else {
		reason, err = b.addDictionaries()
	}
	if reason != "" || err != nil {
		return col, reason, err
	}
	var views []*gpu.Buffer
	for _, x := range b.pieces {
		views = append(views, x.block.View(x.from, x.to-x.from))
	}
	if len(views) == 1 { // which a device copies faster than several
		col.Data = views[0]
	} else {
		col.Data = gpu.Joined(views)
	}
	return col, "", nil
}

// keepCodes decodes the dictionaries of a column of strings, and returns one with all their values, or the reason why
// the CPU must decode the column.
func (b *pagesBuilder) keepCodes(t gpu.Type, rows int) (d *gpu.Dictionary, reason string, err error) {
	all := columnDecoder{lease: b.pages.lease, t: t, rows: rows, state: coded, width: 4}
	defer all.discard()
	base := make([]int, len(b.chunks))
	for i, c := range b.chunks {
		if c.dict.page == nil {
			return nil, reasonDictionary, nil // the error is the CPU's
		}
		b.at.path, b.at.rowGroup = c.file.path, c.group
		b.pages.seek(c, 0, 0)
		if err := b.pages.once(&c.dict.load, b.pages.loadDictionary); err != nil {
			return nil, "", err
		}
		base[i] = all.entries
		if err := all.another(c.dict.shared, 0, 0); err != nil {
			return nil, "", err
		}
	}
	if len(all.parts) > 1 {
		if err := all.mergeVar(); err != nil {
			return nil, "", err
		}
		if all.state != coded {
			return nil, "dictionaries of row groups that are too large together", nil
		}
	}
	for k := range b.Data {
		c := b.chunks[b.parts[k]]
		b.Data[k].Base, b.Data[k].Entries = base[b.parts[k]], c.dict.n()
	}
	d = all.parts[0].dict
	all.parts = nil
	return d, "", nil
}

// addDictionaries adds the dictionary pages of the chunks that have coded pages, or returns the reason why the device
// cannot decode one.
func (b *pagesBuilder) addDictionaries() (reason string, err error) {
	of := map[int]int{} // chunk to dictionary
	for k := range b.Data {
		g := &b.Data[k]
		if !g.Coded {
			continue
		}
		part := b.parts[k]
		c := b.chunks[part]
		d, found := of[part]
		if !found {
			if c.dict.page == nil {
				return reasonDictionary, nil // the error is the CPU's
			}
			b.at.path, b.at.rowGroup = c.file.path, c.group
			page, reason := c.dict.page.undecoded(c)
			if reason == "" && (page.Values < 0 || page.Values > page.Raw) {
				reason = reasonHeader
			}
			if reason != "" {
				return reason, nil
			}
			if reason, err := b.take(c, c.dict.page, &page); reason != "" || err != nil {
				return reason, err
			}
			page.Rows = page.Values
			d = len(b.Dictionaries)
			of[part], b.Dictionaries = d, append(b.Dictionaries, page)
		}
		g.Dictionary, g.Entries = d, b.Dictionaries[d].Values
	}
	return "", nil
}

// decodeAgain decodes column i of a stride on the CPU. It reads the pages again, maybe after the end of the scan.
func (r *reader) decodeAgain(plan *stridePlan, i int) (col gpu.Column, err error) {
	again := &stridePlan{rows: plan.rows}
	fresh := map[*encodedChunk]*encodedChunk{}
	for _, s := range plan.segments {
		c := s.chunks[i]
		if fresh[c] == nil {
			fresh[c] = newChunkOf(r.ctx, r.lease, c.file, c.group, c.col, c.meta, nil)
			defer fresh[c].discard()
		}
		c = fresh[c]
		c.wanted = append(c.wanted, rowRange{s.from, s.to})
		c.left += s.to - s.from
		chunks := make([]*encodedChunk, i+1)
		chunks[i] = c
		again.segments = append(again.segments, segment{s.file, s.group, s.from, s.to, chunks})
	}
	pages := &pageReader{lease: r.lease, ready: func() {}}
	defer pages.free()
	pages.start()
	return r.decodeColumn(again, i, pages)
}
