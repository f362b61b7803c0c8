package cuda

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// The layouts of encode.cu.
type (
	encodePart struct {
		data, valid, offsets, chars uint64
		from                        int64
		row, rows, entries, bytes   int32
	}
	encodeChunk struct {
		parts, keys, firsts, codes, marks, before, order, entries uint64
		places, segments                                          uint64
		scale                                                     int64
		partCount, rows                                           int32
		fromWidth, width                                          int32
		form, nullable, delta, split, page, pages, dictionary     int32
		logSlots, pageRows, capacity, filter, _                   int32
	}
	chunkState struct{ _, bad, distinct, full uint32 }
	encodePage struct {
		dense, wide, body, bits, slots, groups uint64
		strings, lengths, bounds               uint64
		chunk, row, rows, part, piece, pieces  int32
		bytes                                  uint32
		_                                      int32
	}
	pageResult struct {
		least, most                                   uint64
		raw, size, checksum, nulls, unbounded, deltas uint32
	}
	encodePiece struct{ page, index int32 }
	pieceResult struct{ _, _, _ uint32 } // size, checksum, position
	pieceJoint  struct{ _ [8]uint32 }
	encodeArgs  struct {
		chunks, states, pages, results, pieces, ends, packed, joints, scratch uint64
		next, out, places, runs, checksums, multiplier                        uint64
		count, allPages, slot, _                                              int32
	}
)

// The forms of encode.cu.
const (
	encodeSigned int32 = iota
	encodeUnsigned
	encodeFloat
	encodeStrings // with a dictionary
	encodeTexts   // strings without one
	encodeWide    // of 16 bytes
	encodeUnsignedWide
	encodeBools
)

const (
	encodeThreads = 256
	encodePieces  = 4        // PIECE_WARPS
	slotBlocks    = 16       // SLOT_BLOCKS
	pieceBytes    = 64 << 10 // PIECE
	// pieceSlot is the room for a compressed piece, with the length of the page before it and the slack of load32.
	pieceSlot   = (64 + pieceBytes + pieceBytes/6) / 16 * 16
	zstdScratch = 128 << 10 // ZSTD_SCRATCH
	// joinedChunks is the number of bytes of chunks that are copied to the host together.
	joinedChunks = 8 << 20
	// boundBytes is the room for a bound of strings: its length, and its first bytes (BOUND).
	boundBytes = 4 + gpu.TextBound
	// mostDictionary is the room for a dictionary of strings (MOST_DICTIONARY).
	mostDictionary = 4<<20 + 4
)

// residentPieces is the number of blocks that compress pieces on a multiprocessor at a time, by codec.
var residentPieces = [...]int{gpu.PageUncompressed: 6, gpu.PageSnappy: 6, gpu.PageLZ4: 6, gpu.PageZstd: 4}

// dictionaryMultiplier is the factor of multiplicative hashing. It differs in every process, so that nobody can
// choose values that all collide.
var dictionaryMultiplier = rand.Uint64() | 1

// EncodePages implements gpu.PageEncoder.
func (q *queue) EncodePages(l, host *gpu.Lease, chunks []gpu.Chunk) (out []gpu.EncodedChunk, err error) {
	o := q.begin("encode pages", l)
	defer end(o, &out, &err)
	for i := range chunks {
		for _, p := range chunks[i].Parts {
			o.takes(p.Column)
		}
		if err := chunks[i].Check(); err != nil {
			return nil, err
		}
	}
	if o.err != nil || len(chunks) == 0 {
		return nil, o.err
	}
	texts, err := surveyTexts(o, chunks)
	if err != nil {
		return nil, err
	}
	out = make([]gpu.EncodedChunk, len(chunks))
	var todo []int
	for i := range chunks {
		if out[i].Unable = texts[i].bad; !out[i].Unable {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		if todo, err = encodeChunks(o, host, chunks, texts, todo, out); err != nil {
			releaseChunks(out)
			return nil, err
		}
	}
	return out, nil
}

// encodeChunks encodes some of the chunks into out. It returns those that must be encoded again, as strings whose
// dictionary does not pay off.
func encodeChunks(o *op, host *gpu.Lease, chunks []gpu.Chunk, texts []textPlan, todo []int,
	out []gpu.EncodedChunk) (again []int, err error) {
	e := encoding{op: o}
	for _, i := range todo {
		e.given, e.texts = append(e.given, chunks[i]), append(e.texts, texts[i])
	}
	e.layOut()
	e.launch()
	if !o.read(e.stateMem, 0, gpu.BytesOf(e.states)) || !o.read(e.resultMem, 0, gpu.BytesOf(e.results)) ||
		!o.read(e.boundMem, 0, e.bounds) || !e.readFilterCounts() {
		return nil, o.err
	}
	done, err := e.collect(host)
	if err != nil {
		return nil, err
	}
	for k, i := range todo {
		out[i] = done[k]
		if done[k].Unable && e.states[k].bad == 0 {
			texts[i].coded = false
			again = append(again, i)
		}
	}
	return again, nil
}

// releaseChunks releases what chunks that are not delivered have.
func releaseChunks(chunks []gpu.EncodedChunk) {
	for _, c := range chunks {
		c.Data.Release()
	}
}

// encoding is a call of EncodePages, for some of its chunks.
type encoding struct {
	*op
	given   []gpu.Chunk
	texts   []textPlan // of each chunk
	parts   []encodePart
	chunks  []encodeChunk
	states  []chunkState
	pages   []encodePage // those of rows first, then dictionaries
	data    int          // the number of pages of rows
	results []pageResult
	pieces  []encodePiece

	runs []encodePiece // of rows of pages of strings without a dictionary

	stateMem, resultMem *gpu.Buffer
	hashes              bool // there are chunks of strings or of 16-byte values with a dictionary
	wide                bool // there are chunks of 16-byte values
	filters             []filterChunk
	filterArgs          filterArgs
	countMem            *gpu.Buffer
	filterCounts        []uint64 // of the hashes of each filter, where countMem has them
	boundTable          arena
	boundMem            *gpu.Buffer
	bounds              []byte // of pages, where boundMem has them
	args                encodeArgs
}

// arena lays out memory: first the sizes, then the address.
type arena struct {
	size int64
	from []*uint64 // that get the address
}

// take reserves n bytes, whose address goes to p.
func (a *arena) take(p *uint64, n int64) {
	*p = uint64(a.size)
	a.size += (n + 15) &^ 15
	a.from = append(a.from, p)
}

func (a *arena) place(b *gpu.Buffer) {
	for _, p := range a.from {
		*p += addr(b)
	}
}

// encodeSlack is the number of bytes after a body that kernels may read.
const encodeSlack = 16

// bodyBytes bounds the bytes of the body of a page: levels, and the largest of plain values, differences and codes.
func bodyBytes(rows, width int64) int64 {
	deltas := 40 + (rows/128+1)*(14+128*width)
	codes := 64 + (rows/8+1)*33
	return 16 + rows/8 + max(deltas, codes)
}

// layOut makes the tables of chunks, pages and pieces, and their memory.
func (e *encoding) layOut() {
	var mem, table, clear arena // all bits of table are set at first, those of clear are not
	parts, dictionaries, bodies, filters := 0, 0, 0, 0
	for i := range e.given {
		c := &e.given[i]
		parts += len(c.Parts)
		if c.Filter != nil {
			filters++
		}
		if e.isText(i) {
			bodies += len(e.texts[i].cuts)
			continue
		}
		bodies += (c.Len()-1)/c.PageRows + 1
		if c.Dictionary {
			dictionaries++
		}
	}
	e.parts = make([]encodePart, 0, parts)
	e.filters = make([]filterChunk, 0, filters)
	e.chunks = make([]encodeChunk, len(e.given))
	e.states = make([]chunkState, len(e.given))
	e.pages = make([]encodePage, bodies+dictionaries)
	e.results = make([]pageResult, len(e.pages))
	page, dictionary := 0, bodies
	e.data = bodies
	for _, text := range []bool{true, false} { // pieces of strings take the longest, so they are compressed first
		for i := range e.given {
			if e.isText(i) == text {
				e.layOutChunk(i, &page, &dictionary, &mem, &table, &clear)
			}
		}
	}
	e.args = encodeArgs{multiplier: dictionaryMultiplier, allPages: int32(len(e.pages)), slot: pieceSlot}
	pieces := int64(len(e.pieces))
	clear.take(&e.args.next, 4)
	mem.take(&e.args.ends, pieces*int64(unsafe.Sizeof(pieceResult{})))
	if e.codec() != gpu.PageUncompressed {
		mem.take(&e.args.packed, pieces*pieceSlot)
	}
	switch e.codec() {
	case gpu.PageLZ4:
		mem.take(&e.args.joints, pieces*int64(unsafe.Sizeof(pieceJoint{})))
	case gpu.PageZstd:
		mem.take(&e.args.scratch, int64(e.pieceBlocks())*encodePieces*zstdScratch)
	}
	partMem := e.upload(gpu.BytesOf(e.parts))
	for i := range e.chunks {
		e.chunks[i].parts = partMem + e.chunks[i].parts*uint64(unsafe.Sizeof(encodePart{}))
	}
	for _, a := range []struct {
		*arena
		fill int
	}{{&mem, -1}, {&table, 0xff}, {&clear, 0}} {
		b := e.alloc(max(a.size, 16))
		a.place(b)
		if a.fill >= 0 && b != nil {
			e.fill(b, 0, b.Size(), byte(a.fill))
		}
	}
	if e.boundTable.size > 0 {
		e.boundMem = e.alloc(e.boundTable.size)
		e.boundTable.place(e.boundMem)
		e.bounds = make([]byte, e.boundTable.size)
		if e.boundMem != nil {
			e.fill(e.boundMem, 0, e.boundMem.Size(), 0)
		}
	}
	e.args.chunks, e.args.pages = e.upload(gpu.BytesOf(e.chunks)), e.upload(gpu.BytesOf(e.pages))
	e.args.pieces, e.args.runs = e.upload(gpu.BytesOf(e.pieces)), e.upload(gpu.BytesOf(e.runs))
	e.stateMem = e.alloc(int64(len(gpu.BytesOf(e.states))))
	e.resultMem = e.alloc(int64(len(gpu.BytesOf(e.results))))
	for _, b := range []*gpu.Buffer{e.stateMem, e.resultMem} {
		if b != nil {
			e.fill(b, 0, b.Size(), 0)
		}
	}
	e.args.states, e.args.results = addr(e.stateMem), addr(e.resultMem)
	e.args.checksums = e.table("encode: checksums", checksumTables)
}

// upload returns the address of a copy of host memory.
func (o *op) upload(src []byte) uint64 {
	b := o.alloc(int64(len(src)))
	o.write(b, 0, src)
	return addr(b)
}

// isText reports whether a chunk has strings without a dictionary.
func (e *encoding) isText(i int) bool {
	return hasTexts(&e.given[i]) && !e.texts[i].coded
}

// encodeParts returns the parts of a chunk.
func encodeParts(c *gpu.Chunk) (out []encodePart) {
	row := int32(0)
	for _, p := range c.Parts {
		n := int32(p.To - p.From)
		part := encodePart{data: addr(p.Column.Data), valid: addr(p.Column.Valid), from: int64(p.From), row: row,
			rows: n}
		switch d := p.Column.Dict; {
		case d != nil:
			part.offsets, part.chars, part.entries = addr(d.Values.Offsets), addr(d.Values.Data), int32(d.Values.Len)
			part.bytes = int32(min(d.Values.Data.Size(), math.MaxInt32))
		case p.Column.Type.IsVar():
			part.data, part.offsets, part.chars = 0, addr(p.Column.Offsets), addr(p.Column.Data)
			part.entries, part.bytes = int32(p.Column.Len), int32(min(p.Column.Data.Size(), math.MaxInt32))
		}
		out = append(out, part)
		row += n
	}
	return out
}

// layOutChunk adds a chunk with its pages from page on, and its dictionary.
func (e *encoding) layOutChunk(i int, page, dictionary *int, mem, table, clear *arena) {
	given := &e.given[i]
	t := given.Parts[0].Column.Type
	c := &e.chunks[i]
	*c = encodeChunk{parts: uint64(len(e.parts)), scale: given.Scale, partCount: int32(len(given.Parts)),
		rows: int32(given.Len()), fromWidth: int32(t.Width()), width: int32(given.Width),
		nullable: flag(given.Nullable), delta: flag(given.Delta && !t.IsFloat()), split: flag(given.Split),
		page: int32(*page), dictionary: -1}
	c.pageRows, c.filter = int32(given.PageRows), -1
	if given.Filter != nil {
		e.layOutFilter(c, table)
	}
	switch {
	case given.Width == 16:
		c.form, e.wide, e.hashes = encodeWide, true, e.hashes || given.Dictionary
		if t.IsVar() {
			c.form = encodeUnsignedWide
		}
	case e.isText(i):
		c.form, c.width, c.delta = encodeTexts, 0, 0
		c.places, c.segments = e.texts[i].places, e.texts[i].segments
	case t.IsVar():
		c.form, c.width, c.delta, e.hashes = encodeStrings, 8, 0, true
	case t.Kind == gpu.Bool:
		c.form, c.width = encodeBools, 1
	case t.IsFloat():
		c.form = encodeFloat
	case t.IsUnsigned():
		c.form = encodeUnsigned
	}
	e.parts = append(e.parts, encodeParts(given)...)
	if c.form == encodeTexts {
		e.layOutTexts(i, page, mem)
		return
	}
	rows, width := int64(c.rows), int64(c.width)
	part := int32(0)
	for row := int32(0); row < c.rows; row += int32(given.PageRows) {
		part = e.partOf(c, part, row)
		n := min(int64(given.PageRows), rows-int64(row))
		p := &e.pages[*page]
		*p = encodePage{chunk: int32(i), row: row, rows: int32(n), part: part}
		if width == 16 {
			mem.take(&p.wide, n*width+encodeSlack)
			e.boundTable.take(&p.bounds, 2*boundBytes)
		}
		if width < 16 || given.Dictionary {
			mem.take(&p.dense, n*min(width, 8)+encodeSlack)
		}
		e.addPieces(*page, bodyBytes(n, width), mem)
		mem.take(&p.bits, (n+31)/32*4)
		if given.Dictionary {
			mem.take(&p.slots, n*4)
			mem.take(&p.groups, 12*(n/8+1))
		}
		if c.form == encodeStrings {
			mem.take(&p.strings, n*8)
			mem.take(&p.lengths, n*4)
			e.boundTable.take(&p.bounds, 2*boundBytes)
		}
		*page++
	}
	c.pages = int32(*page) - c.page
	if !given.Dictionary {
		return
	}
	c.dictionary = int32(*dictionary)
	most := rows / 5 // values of a dictionary
	c.logSlots = int32(max(6, bits.Len64(uint64(2*most))))
	slots := int64(1)<<c.logSlots + 1
	table.take(&c.keys, slots*8)
	table.take(&c.firsts, slots*4)
	mem.take(&c.codes, slots*4)
	clear.take(&c.marks, (rows+31)/32*4)
	mem.take(&c.before, (rows+31)/32*4)
	e.pages[*dictionary] = encodePage{chunk: int32(i)}
	bytes := most * width
	if c.form == encodeStrings || width == 16 {
		if c.form == encodeStrings {
			bytes = min(e.texts[i].bytes, mostDictionary)
		}
		c.capacity = int32(min(bytes, math.MaxInt32-1))
		mem.take(&c.order, most*4)
	}
	e.addPieces(*dictionary, bytes, mem)
	mem.from = append(mem.from, &c.entries)
	c.entries = e.pages[*dictionary].body
	*dictionary++
}

// addPieces adds the pieces of a page whose body has at most some bytes.
func (e *encoding) addPieces(page int, most int64, mem *arena) {
	p := &e.pages[page]
	mem.take(&p.body, most+encodeSlack)
	p.piece = int32(len(e.pieces))
	p.pieces = int32((most-1)/pieceBytes + 1)
	for k := range p.pieces {
		e.pieces = append(e.pieces, encodePiece{int32(page), k})
	}
}

// codec returns the codec of all chunks.
func (e *encoding) codec() gpu.PageCodec { return e.given[0].Codec }

// pieceBlocks returns the number of blocks of the kernels that compress, whose warps take piece after piece. Warps of
// encode_zstd have scratch.
func (e *encoding) pieceBlocks() int {
	return min(blocks(len(e.pieces), encodePieces), e.q.dev.props.multiprocessors*residentPieces[e.codec()])
}

// launch launches the kernels that encode.
func (e *encoding) launch() {
	run := func(name string, grid, threads int) { launch(e.op, name, grid, threads, 0, e.args) }
	e.begins("values")
	run("encode_values", e.data, encodeThreads)
	if len(e.runs) > 0 {
		run("encode_texts", e.data, encodeThreads)
	}
	if e.wide {
		run("encode_wide", e.data, encodeThreads)
	}
	e.begins("dictionaries")
	if len(e.pages) > e.data {
		n := len(e.chunks)
		run("encode_sample", n, encodeThreads)
		run("encode_insert", e.data, encodeThreads)
		run("encode_mark", n*slotBlocks, encodeThreads)
		run("encode_rank", n, encodeThreads)
		run("encode_entries", n*slotBlocks, encodeThreads)
		if e.hashes {
			run("encode_verify", e.data, encodeThreads)
			run("encode_strings", n, encodeThreads)
			run("encode_bounds", e.data, encodeThreads)
		}
	}
	e.begins("bodies")
	run("encode_body", e.data, encodeThreads)
	run("encode_plain", e.data, encodeThreads)
	run("encode_copy", len(e.runs), encodeThreads)
	if len(e.filters) > 0 {
		e.begins("hashes")
		e.hash()
	}
	e.begins("compression")
	e.args.count = int32(len(e.pieces))
	switch e.codec() {
	case gpu.PageZstd:
		run("encode_zstd", e.pieceBlocks(), encodePieces*32)
	case gpu.PageLZ4:
		run("encode_lz4", e.pieceBlocks(), encodePieces*32)
		run("encode_lz4_joints", blocks(len(e.pieces), encodeThreads), encodeThreads)
	default:
		run("encode_pieces", e.pieceBlocks(), encodePieces*32)
	}
	run("encode_ends", blocks(len(e.pages), encodeThreads/32), encodeThreads)
}

// hasDictionary reports whether a chunk has a dictionary.
func (e *encoding) hasDictionary(i int) bool {
	return e.chunks[i].dictionary >= 0 && e.states[i].full == 0
}

// describe returns a chunk with its pages, the heads of these, the dictionary first and the filter last, and its size.
// places gets where the bodies are in the chunk.
func (e *encoding) describe(i int, places []int64) (out gpu.EncodedChunk, heads [][]byte, at int64, err error) {
	c := &e.chunks[i]
	first := e.results[c.page]
	encoding := gpu.PlainPage
	switch {
	case e.states[i].bad != 0 || c.form == encodeStrings && !e.hasDictionary(i):
		return gpu.EncodedChunk{Unable: true}, nil, 0, nil
	case e.hasDictionary(i):
		encoding = gpu.CodedPage
	case c.delta != 0 && first.deltas <= (uint32(e.pages[c.page].rows)-first.nulls)*uint32(c.width)/4*3:
		encoding = gpu.DeltaPage
	case c.split != 0:
		encoding = gpu.SplitPage
	}
	add := func(number int32, p gpu.EncodedPage) (gpu.EncodedPage, error) {
		r := e.results[number]
		p.At, p.Size, p.Raw, p.Checksum = at, int(r.size), int(r.raw), r.checksum
		head, err := e.given[i].Head(p)
		p.Head = len(head)
		heads = append(heads, head)
		places[number] = at + int64(len(head))
		at += int64(len(head) + p.Size)
		return p, err
	}
	if encoding == gpu.CodedPage {
		p, err := add(c.dictionary, gpu.EncodedPage{Encoding: gpu.DictionaryPage, Rows: int(e.states[i].distinct)})
		if err != nil {
			return out, nil, 0, err
		}
		out.Dictionary = &p
	}
	for k := c.page; k < c.page+c.pages; k++ {
		r, rows := e.results[k], int(e.pages[k].rows)
		p := gpu.EncodedPage{Encoding: encoding, Rows: rows, Nulls: int(r.nulls),
			Bounded: int(r.nulls) < rows && r.unbounded == 0, Least: bound(c, r.least), Most: bound(c, r.most)}
		if e.pages[k].bounds != 0 && p.Bounded {
			p.LeastText, p.MostText = e.textBounds(k)
		}
		if p, err = add(k, p); err != nil {
			return out, nil, 0, err
		}
		out.Pages = append(out.Pages, p)
	}
	if c.filter >= 0 {
		head, size, err := e.given[i].Filter(int64(e.filterCounts[c.filter]))
		if err != nil {
			return out, nil, 0, err
		}
		out.Filter = at
		heads = append(heads, head)
		e.placeFilter(c.filter, at+int64(len(head)), size)
		at += int64(len(head) + size)
	}
	return out, heads, at, nil
}

// move moves a chunk behind the chunks before it.
func (e *encoding) move(i int, places []int64, by int64) {
	c := &e.chunks[i]
	for k := c.page; k < c.page+c.pages; k++ {
		if places[k] >= 0 {
			places[k] += by
		}
	}
	if c.dictionary >= 0 && places[c.dictionary] >= 0 {
		places[c.dictionary] += by
	}
	if c.filter >= 0 && e.filters[c.filter].blocks > 0 {
		e.filters[c.filter].out += uint64(by)
	}
}

// textBounds returns the bounds of a page of strings or 16-byte values.
func (e *encoding) textBounds(page int32) (least, most []byte) {
	at := e.bounds[e.pages[page].bounds-addr(e.boundMem):]
	text := func(b []byte) []byte { return b[4 : 4+min(int(binary.LittleEndian.Uint32(b)), gpu.TextBound)] }
	return text(at), text(at[boundBytes:])
}

// bound returns the value of a bound as it is in the file.
func bound(c *encodeChunk, key uint64) uint64 {
	const top = 1 << 63
	switch {
	case c.form == encodeUnsigned, c.form == encodeBools:
	case c.form == encodeSigned, key&top != 0:
		key ^= top
	default:
		key = ^key
	}
	if c.form == encodeFloat && c.width == 4 {
		key >>= 32
	}
	return key
}

// collect copies the encoded chunks to the host, with their heads.
func (e *encoding) collect(host *gpu.Lease) (out []gpu.EncodedChunk, err error) {
	places := make([]int64, len(e.pages))
	for i := range places {
		places[i] = -1
	}
	heads := make([][][]byte, len(e.chunks))
	starts := make([]int64, len(e.chunks)+1)
	out = make([]gpu.EncodedChunk, len(e.chunks))
	errs := make([]error, len(e.chunks))
	inParallel(len(e.chunks), func(i int) {
		out[i], heads[i], starts[i+1], errs[i] = e.describe(i, places)
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := range e.chunks {
		e.move(i, places, starts[i])
		starts[i+1] += starts[i]
	}
	total := starts[len(e.chunks)]
	if total == 0 {
		return out, nil
	}
	to, placed := e.alloc(total), e.alloc(int64(len(places))*8)
	e.write(placed, 0, gpu.BytesOf(places))
	e.args.out, e.args.places = addr(to), addr(placed)
	e.begins("output")
	e.fill(to, 0, total, 0) // the gaps for heads
	gather := "encode_gather"
	if e.codec() == gpu.PageLZ4 {
		gather = "encode_lz4_gather"
	}
	launch(e.op, gather, len(e.pieces), encodeThreads, 0, e.args)
	e.putFilters(to)
	if e.failed() {
		return nil, e.err
	}
	defer func() {
		if err != nil {
			releaseChunks(out)
		}
	}()
	for i := 0; i < len(out); {
		k := i + 1
		for k < len(out) && starts[k+1]-starts[i] <= joinedChunks {
			k++
		}
		if n := starts[k] - starts[i]; n > 0 {
			down, err := e.q.copyEncoded(host, to, starts[i], n)
			if err != nil {
				return nil, err
			}
			for ; i < k; i++ {
				if out[i].Unable {
					continue
				}
				out[i].Data = down.View(starts[i]-(starts[k]-n), starts[i+1]-starts[i])
				putHeads(&out[i], heads[i])
			}
			down.Release()
		}
		i = k
	}
	return out, nil
}

// putHeads writes the heads of the pages of a chunk, the dictionary first, and that of its filter.
func putHeads(c *gpu.EncodedChunk, heads [][]byte) {
	if c.Dictionary != nil {
		copy(c.Data.Bytes()[c.Dictionary.At:], heads[0])
		heads = heads[1:]
	}
	for i, p := range c.Pages {
		copy(c.Data.Bytes()[p.At:], heads[i])
	}
	if c.Filter > 0 {
		copy(c.Data.Bytes()[c.Filter:], heads[len(c.Pages)])
	}
}

// copyEncoded copies bytes to host memory, after all kernels that have been launched, and waits for them.
func (q *queue) copyEncoded(host *gpu.Lease, from *gpu.Buffer, at, n int64) (*gpu.Buffer, error) {
	t := &transfer{q: q, lease: host, name: "copy down", bytes: n}
	down, err := host.Alloc(n)
	if err != nil {
		return nil, err
	}
	t.down(0, func() {
		if t.err == nil {
			t.fail(q.dev.copyDown(host, down.Addr(), from.Addr()+uintptr(at), n))
		}
	})
	if t.err != nil {
		down.Release()
		return nil, t.err
	}
	return down, nil
}

// checksumTables returns the tables of checksum.cuh: those to find the checksum of four bytes at a time, and the powers
// x^(2^k).
var checksumTables = sync.OnceValue(func() []byte {
	var t [4*256 + 32]uint32
	copy(t[:256], crc32.IEEETable[:])
	for k := 256; k < 4*256; k++ {
		below := t[k-256]
		t[k] = below>>8 ^ t[below&255]
	}
	power := uint32(1) << 30 // x
	for k := range 32 {
		t[4*256+k] = power
		power = timesPolynomial(power, power)
	}
	return gpu.BytesOf(t[:])
})

// timesPolynomial multiplies two remainders of the checksum.
func timesPolynomial(x, y uint32) (product uint32) {
	for k := 31; k >= 0; k-- {
		if x>>k&1 != 0 {
			product ^= y
		}
		if y&1 != 0 {
			y = y>>1 ^ crc32.IEEE
		} else {
			y >>= 1
		}
	}
	return product
}
