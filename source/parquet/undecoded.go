package parquet

import (
	"math"
	"slices"

	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
)

// A scan for a device that decodes pages (source.DecodeOptions.Pages) hands over the columns of a stride as they are in
// the file, if the device can decode all their pages. Only dictionaries of strings whose codes are kept are decoded on
// the CPU, because all strides of a row group share them.

// keepPages returns column i of a stride in pages. ok is false if the CPU must decode the column. pages is used to
// decode dictionaries.
func (r *reader) keepPages(plan *stridePlan, i int, pages *pageReader) (col gpu.Column, ok bool, err error) {
	for _, s := range plan.segments {
		if c := s.chunks[i]; !deviceDecodes(c.col, c.meta) {
			return col, false, nil
		}
	}
	b := pagesBuilder{pages: pages, Pages: &gpu.Pages{}, at: location{column: r.schema.Fields[i].Name, rowGroup: -1}}
	defer func() {
		if err != nil {
			err = b.at.place(err)
		}
	}()
	defer guard(&err)
	r.readTogether(plan, i)
	for _, s := range plan.segments {
		if ok, err = b.add(s.chunks[i], s.from, s.to); !ok || err != nil {
			return col, false, err
		}
		if err := s.chunks[i].finish(s.to); err != nil {
			return col, false, err
		}
	}
	if col, ok, err = b.column(r.schema.Fields[i].Type, plan.rows); !ok || err != nil {
		return gpu.Column{}, false, err
	}
	b.Decode = func() (gpu.Column, error) { return r.decodeAgain(plan, i) }
	return col, true, nil
}

// readTogether makes the chunks of a column of a stride follow each other in memory, so that the column is
// copied to the device in few pieces. If memory for that is denied, they are read as if the CPU decoded them.
func (r *reader) readTogether(plan *stridePlan, i int) {
	sizes, total := make([]int64, len(plan.segments)), int64(0)
	for k, s := range plan.segments {
		sizes[k] = s.chunks[i].wholeSize(s.from, s.to)
		total += sizes[k]
	}
	if total == 0 {
		return
	}
	all, err := r.lease.Alloc(total)
	if err != nil {
		return
	}
	defer all.Release()
	at := int64(0)
	for k, s := range plan.segments {
		if sizes[k] > 0 {
			s.chunks[i].readInto(all.View(at, sizes[k]))
			at += sizes[k]
		}
	}
}

// deviceCodecs are the codecs that a device decompresses.
var deviceCodecs = map[format.CompressionCodec]gpu.PageCodec{format.Uncompressed: gpu.PageUncompressed,
	format.Snappy: gpu.PageSnappy, format.Zstd: gpu.PageZstd, format.Lz4Raw: gpu.PageLZ4,
	format.Lz4: gpu.PageHadoopLZ4}

// deviceDecodes reports whether a device can decode the pages of a chunk, as far as the metadata says.
func deviceDecodes(c leaf, meta *chunk) bool {
	if c.constant != nil || c.widens() {
		return false
	}
	if _, ok := deviceCodecs[meta.codec]; !ok {
		return false
	}
	_, ok := c.stored()
	return ok
}

// InPages implements source.Paged.
func (t *Table) InPages(columns []int) bool {
	for _, f := range t.files {
		for g := range f.groups {
			for _, c := range columns {
				if !deviceDecodes(f.cols[c], &f.groups[g].chunks[c]) {
					return false
				}
			}
		}
	}
	return true
}

// storedForm is how the values of a column are stored: see gpu.Pages.
type storedForm struct {
	form          gpu.StoredForm
	bytes, digits int
	least, most   int64
}

// stored returns how a device converts stored values to values of the column. ok is false for types whose values only
// the CPU converts.
func (c leaf) stored() (f storedForm, ok bool) {
	t := c.field.Type
	f = storedForm{bytes: c.physicalWidth(), least: math.MinInt64, most: math.MaxInt64}
	switch c.physical {
	case format.Boolean:
		f.form = gpu.StoredBits
		return f, t.Kind == gpu.Bool
	case format.ByteArray:
		return f, t.IsVar()
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
	at       int64 // position of its first byte in the column
}

// add adds rows [from, to) of a chunk. ok is false if the device cannot decode a page.
func (b *pagesBuilder) add(c *encodedChunk, from, to int64) (ok bool, err error) {
	b.at.path, b.at.rowGroup = c.file.path, c.group
	if n := len(b.chunks); n == 0 || b.chunks[n-1] != c {
		b.chunks = append(b.chunks, c)
	}
	for row := from; row < to; {
		p, err := c.find(row)
		if err != nil {
			return false, err
		}
		g, ok := p.undecoded(c)
		if !ok {
			return false, nil
		}
		end := min(p.to, to)
		g.Skip, g.Rows = int(row-p.from), int(end-row)
		if ok, err := b.take(c, p, &g); !ok || err != nil {
			return false, err
		}
		b.coded = g.Coded && (b.coded || len(b.Data) == 0)
		b.Data, b.parts = append(b.Data, g), append(b.parts, len(b.chunks)-1)
		row = end
	}
	return true, nil
}

// take adds the bytes of a page. ok is false if the device cannot decode them.
func (b *pagesBuilder) take(c *encodedChunk, p *page, g *gpu.Page) (ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadLocked(p); err != nil {
		return false, err
	}
	if err := p.verify(); err != nil {
		return false, err
	}
	if !walk(b.Pages, g, p.bytes[max(g.Levels, 0):]) {
		return false, nil
	}
	if g.At = b.size; p.size == 0 {
		return true, nil
	}
	block, from := p.block.Whole()
	from += int64(cap(p.block.Bytes()) - cap(p.bytes))
	to := from + int64(p.size)
	for _, x := range slices.Backward(b.pieces) {
		if x.block == block && x.from <= from && to <= x.to {
			g.At = x.at + from - x.from // a dictionary between data pages
			return true, nil
		}
	}
	last := len(b.pieces) - 1
	if last < 0 || b.pieces[last].block != block || b.pieces[last].to > from {
		b.pieces = append(b.pieces, piece{block, from, from, b.size})
		last++
	}
	x := &b.pieces[last]
	b.size += to - x.to
	x.to = to
	g.At = b.size - int64(p.size)
	return true, nil
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

// undecoded returns what a device must know of a page. ok is false if it cannot decode the page.
func (p *page) undecoded(c *encodedChunk) (g gpu.Page, ok bool) {
	g = gpu.Page{Size: p.size, Raw: p.rawSize, Values: int(p.values), Coded: p.coded()}
	switch {
	case p.kind == format.DictionaryPage:
		//lint:ignore SA1019 older writers use it
		ok, g.Coded = p.encoding == format.Plain || p.encoding == format.PlainDictionary, false
	case g.Coded:
		ok = c.col.physical != format.Boolean
	default:
		g.Encoding, ok = c.col.deviceEncoding(p.encoding)
	}
	if !g.Coded && g.Values > maxConverted {
		f, _ := c.col.stored()
		ok = ok && g.Encoding == gpu.StoredPlain && f.form == gpu.StoredValues && !c.col.field.Type.Wide
	}
	compressed := c.meta.codec != format.Uncompressed
	switch {
	case p.kind == format.DataPageV2:
		// If levels and the number of nulls contradict each other, the CPU decides.
		if p.repBytes != 0 || p.defBytes < 0 || p.defBytes > p.size || p.rawSize < p.defBytes ||
			p.defBytes == 0 && p.nulls != 0 || p.defBytes > 0 && !c.col.optional {
			return g, false
		}
		g.Levels, g.Raw = p.defBytes, p.rawSize-p.defBytes
		compressed = compressed && p.compressed
	case p.kind == format.DataPage && c.col.optional:
		if p.levelEncoding != format.RLE {
			return g, false
		}
		g.Levels = gpu.LevelsInBody
	}
	body := p.size - max(g.Levels, 0)
	if compressed {
		g.Codec = deviceCodecs[c.meta.codec]
		return g, ok && g.Raw/maxExpansion(c.meta.codec) <= body
	}
	return g, ok && g.Raw == body
}

// column returns the column of the pages that were added. ok is false if the CPU must decode it.
func (b *pagesBuilder) column(t gpu.Type, rows int) (col gpu.Column, ok bool, err error) {
	f, _ := b.chunks[0].col.stored()
	b.Form, b.Stored, b.Digits, b.Least, b.Most = f.form, f.bytes, f.digits, f.least, f.most
	entries := 0
	for _, c := range b.chunks {
		b.Optional = b.Optional || c.col.optional
		if g, _ := c.col.stored(); g != f {
			return col, false, nil // files of one table may differ
		}
		if c.dict.page != nil {
			entries += int(c.dict.page.values)
		}
	}
	col = gpu.Column{Type: t, Len: rows, Pages: b.Pages}
	if t.IsVar() && b.coded && entries <= rows/4 {
		col.Dict, ok, err = b.keepCodes(t, rows)
	} else {
		ok, err = b.addDictionaries()
	}
	if !ok || err != nil {
		return col, false, err
	}
	var views []*gpu.Buffer
	for _, x := range b.pieces {
		views = append(views, x.block.View(x.from, x.to-x.from))
	}
	col.Data = gpu.Joined(views)
	return col, true, nil
}

// keepCodes decodes the dictionaries of a column of strings, and returns one with all their values.
func (b *pagesBuilder) keepCodes(t gpu.Type, rows int) (d *gpu.Dictionary, ok bool, err error) {
	all := columnDecoder{lease: b.pages.lease, t: t, rows: rows, state: coded, width: 4}
	defer all.discard()
	base := make([]int, len(b.chunks))
	for i, c := range b.chunks {
		if c.dict.page == nil {
			return nil, false, nil // the CPU says so
		}
		b.at.path, b.at.rowGroup = c.file.path, c.group
		b.pages.seek(c, 0, 0)
		if err := b.pages.once(&c.dict.load, b.pages.loadDictionary); err != nil {
			return nil, false, err
		}
		base[i] = all.entries
		if err := all.another(c.dict.shared, 0, 0); err != nil {
			return nil, false, err
		}
	}
	if len(all.parts) > 1 {
		if err := all.mergeVar(); err != nil || all.state != coded {
			return nil, false, err
		}
	}
	for k := range b.Data {
		c := b.chunks[b.parts[k]]
		b.Data[k].Base, b.Data[k].Entries = base[b.parts[k]], c.dict.n()
	}
	d = all.parts[0].dict
	all.parts = nil
	return d, true, nil
}

// addDictionaries adds the dictionary pages of the chunks that have coded pages.
func (b *pagesBuilder) addDictionaries() (ok bool, err error) {
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
				return false, nil // the CPU says so
			}
			b.at.path, b.at.rowGroup = c.file.path, c.group
			page, ok := c.dict.page.undecoded(c)
			if !ok || page.Values < 0 || page.Values > page.Raw {
				return false, nil
			}
			if ok, err := b.take(c, c.dict.page, &page); !ok || err != nil {
				return false, err
			}
			page.Rows = page.Values
			d = len(b.Dictionaries)
			of[part], b.Dictionaries = d, append(b.Dictionaries, page)
		}
		g.Dictionary, g.Entries = d, b.Dictionaries[d].Values
	}
	return true, nil
}

// decodeAgain decodes column i of a stride on the CPU. It reads the pages again.
func (r *reader) decodeAgain(plan *stridePlan, i int) (col gpu.Column, err error) {
	again := &stridePlan{rows: plan.rows}
	fresh := map[*encodedChunk]*encodedChunk{}
	for _, s := range plan.segments {
		c := s.chunks[i]
		if fresh[c] == nil {
			fresh[c] = newChunkOf(r.lease, c.file, c.group, c.col, c.meta, nil)
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
