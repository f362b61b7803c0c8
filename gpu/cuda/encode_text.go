package cuda

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// The layouts of encode_text.cu.
type (
	textCut struct {
		row   int32
		bytes uint32
	}
	textChunk struct {
		parts, places, segments, counts, cuts, keys uint64
		partCount, rows, segmentCount               int32
		pageRows, pageBytes, capacity, logSlots, _  int32
	}
	textState struct {
		bytes                  uint64
		_, bad, pages, repeats uint32
	}
	textArgs struct {
		chunks, states, segments, multiplier uint64
		count, _                             int32
	}
)

const (
	textSegment = 2048 // SEGMENT
	textRun     = 2048 // TEXT_RUN
	// mostPage bounds the bytes of the values of a page that the device encodes.
	mostPage = 1 << 30
)

// textPlan says how strings of a chunk are encoded.
type textPlan struct {
	bad              bool      // the CPU must encode them
	coded            bool      // with a dictionary, unless it outgrows its limit
	bytes            int64     // of all values, each with its length
	cuts             []textCut // pages without a dictionary
	places, segments uint64    // see encode_text.cu
}

// surveyTexts plans the pages of those chunks that have strings. Plans of other chunks are zero.
func surveyTexts(o *op, given []gpu.Chunk) ([]textPlan, error) {
	plans := make([]textPlan, len(given))
	var mem, keys arena
	var parts []encodePart
	var chunks []textChunk
	var segments []encodePiece
	var of []int
	most := 0 // parts
	for i := range given {
		if c := &given[i]; hasTexts(c) {
			of, most = append(of, i), most+len(c.Parts)
		}
	}
	if len(of) == 0 {
		return plans, nil
	}
	chunks = make([]textChunk, len(of))
	for k, i := range of {
		c, t := &given[i], &chunks[k]
		rows := c.Len()
		*t = textChunk{parts: uint64(len(parts)), partCount: int32(len(c.Parts)), rows: int32(rows),
			segmentCount: int32((rows-1)/textSegment + 1), pageRows: int32(min(c.PlainRows, math.MaxInt32)),
			pageBytes: int32(min(c.PlainBytes, math.MaxInt32)), logSlots: -1}
		parts = append(parts, encodeParts(c)...)
		for s := range t.segmentCount {
			segments = append(segments, encodePiece{int32(k), s})
		}
		mem.take(&t.places, 4*int64(rows))
		mem.take(&t.segments, 8*int64(t.segmentCount+1))
		mem.take(&t.counts, 4*int64(t.segmentCount))
		if c.Dictionary {
			sample := math.Sqrt(256 * float64(rows/5))
			t.logSlots = int32(max(6, bits.Len64(2*uint64(sample))))
			keys.take(&t.keys, 8<<t.logSlots)
		}
	}
	partMem := o.upload(gpu.BytesOf(parts))
	for k := range chunks {
		chunks[k].parts = partMem + chunks[k].parts*uint64(unsafe.Sizeof(encodePart{}))
	}
	memory, keyMem := o.alloc(mem.size), o.alloc(keys.size)
	mem.place(memory)
	keys.place(keyMem)
	states := make([]textState, len(chunks))
	stateMem := o.alloc(int64(len(gpu.BytesOf(states))))
	args := textArgs{chunks: o.upload(gpu.BytesOf(chunks)), states: addr(stateMem),
		segments: o.upload(gpu.BytesOf(segments)), multiplier: dictionaryMultiplier, count: int32(len(chunks))}
	if o.err != nil {
		return nil, o.err
	}
	o.begins("lengths")
	o.fill(stateMem, 0, stateMem.Size(), 0)
	if keyMem != nil {
		o.fill(keyMem, 0, keyMem.Size(), 0xff)
	}
	launch(o, "encode_lengths", len(segments), encodeThreads, 0, args)
	launch(o, "encode_offsets", len(chunks), encodeThreads, 0, args)
	launch(o, "encode_cuts", blocks(len(chunks), encodeThreads/32), encodeThreads, 0, args)
	launch(o, "encode_repeats", len(chunks), encodeThreads, 0, args)
	if !o.read(stateMem, 0, gpu.BytesOf(states)) {
		return nil, o.err
	}
	cuts := 0
	for k, i := range of {
		s, t := states[k], &chunks[k]
		plans[i] = textPlan{bad: s.bad != 0 || s.pages > uint32(mostCuts(&given[i])), coded: s.repeats != 0,
			bytes: int64(s.bytes), places: t.places, segments: t.segments}
		if !plans[i].bad {
			t.capacity = int32(s.pages)
			cuts += int(s.pages)
		}
	}
	o.free(keyMem)
	return plans, o.readCuts(args, chunks, of, plans, cuts)
}

// readCuts sets the pages of plans. Their number is known now, and is the capacity of each chunk, so that one copy
// brings them all.
func (o *op) readCuts(args textArgs, chunks []textChunk, of []int, plans []textPlan, count int) error {
	table := o.alloc(int64(count) * int64(unsafe.Sizeof(textCut{})))
	at := addr(table)
	for k := range chunks {
		chunks[k].cuts = at
		at += uint64(chunks[k].capacity) * uint64(unsafe.Sizeof(textCut{}))
	}
	args.chunks = o.upload(gpu.BytesOf(chunks))
	launch(o, "encode_cuts", blocks(len(chunks), encodeThreads/32), encodeThreads, 0, args)
	cuts := make([]textCut, count)
	if !o.read(table, 0, gpu.BytesOf(cuts)) {
		return o.err
	}
	for k, i := range of {
		p, n := &plans[i], chunks[k].capacity
		p.cuts, cuts = cuts[:n:n], cuts[n:]
		for _, cut := range p.cuts {
			p.bad = p.bad || cut.bytes > mostPage
		}
	}
	return nil
}

// hasTexts reports whether a chunk has strings of any length.
func hasTexts(c *gpu.Chunk) bool { return c.Parts[0].Column.Type.IsVar() && c.Width == 0 }

// mostCuts bounds the pages of a chunk of strings without a dictionary: two pages have more rows or bytes than a page
// may have. Strings of dictionaries may have any number of bytes, so a chunk with more pages than this is for the CPU.
func mostCuts(c *gpu.Chunk) int {
	bytes, more := int64(4*c.Len()), int64(2)
	for _, p := range c.Parts {
		if p.Column.Dict != nil {
			more = 1 << 16
		} else {
			bytes += p.Column.Data.Size()
		}
	}
	return int(min(int64(c.Len()), 2*(int64(c.Len()/c.PlainRows)+bytes/int64(c.PlainBytes))+more))
}

// layOutTexts adds the pages of a chunk of strings without a dictionary.
func (e *encoding) layOutTexts(i int, page *int, mem *arena) {
	c := &e.chunks[i]
	cuts, part := e.texts[i].cuts, int32(0)
	for k, cut := range cuts {
		end := c.rows
		if k+1 < len(cuts) {
			end = cuts[k+1].row
		}
		part = e.partOf(c, part, cut.row)
		p := &e.pages[*page]
		*p = encodePage{chunk: int32(i), row: cut.row, rows: end - cut.row, part: part, bytes: cut.bytes}
		mem.take(&p.bits, int64(p.rows+31)/32*4)
		e.boundTable.take(&p.bounds, 2*boundBytes)
		e.addPieces(*page, 16+int64(p.rows/8)+int64(cut.bytes), mem)
		for r := range (p.rows-1)/textRun + 1 {
			e.runs = append(e.runs, encodePiece{int32(*page), r})
		}
		*page++
	}
	c.pages = int32(*page) - c.page
}

// partOf returns the number of the part of a chunk that has a row, which is not before that of the part from.
func (e *encoding) partOf(c *encodeChunk, from, row int32) int32 {
	for from+1 < c.partCount && e.parts[int(c.parts)+int(from)+1].row <= row {
		from++
	}
	return from
}
