package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/bloom"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxPage is the largest page that its header can describe.
const maxPage = math.MaxInt32 - 1<<20

// encoder encodes columns into column chunks. One goroutine owns it. It keeps only scratch memory
// between chunks.
type encoder struct {
	codec     compressor
	delta     bool // write integers as packed differences if that is smaller
	lease     *gpu.Lease
	pageRows  int
	pageBytes int

	// Scratch that grows with a row group.
	valid        scratch
	dense        scratch
	codes        scratch
	translate    scratch
	seen         scratch
	fixedEntries scratch
	table        hashTable
	hashed       scratch
	filter       scratch

	reps, defs []byte // levels of the entries of a leaf of a nested column, or nil

	pageScratch
	counted  int64 // bytes of pageScratch that the lease pays for
	block    [blockRows]int32
	entries  []byte // distinct values in PLAIN encoding, in fixedEntries or varEntries
	distinct int
	hashes   []uint64 // of the chunk's values, for its Bloom filter
}

// encodedChunk is a column chunk between the encoder and the file writer. Offsets in its
// metadata and index count from its first byte until it is placed in a file.
type encodedChunk struct {
	pages       blob // and the Bloom filter
	meta        format.ColumnMetaData
	offsetIndex format.OffsetIndex
	columnIndex *format.ColumnIndex // nil when a page has no bounds
	bounds      bounds
	unbounded   bool // a page has no bounds, so the chunk has none
	ofDevice    bool // a device has encoded it
	perPage     []bounds
	nullPages   []bool
	nullCounts  []int64
	leaves      []*encodedChunk // of a nested column, which has nothing else
}

// moveTo adds the position of the chunk in the file to its offsets.
func (k *encodedChunk) moveTo(at int64) {
	k.meta.DataPageOffset += at
	if k.meta.DictionaryPageOffset >= 0 {
		k.meta.DictionaryPageOffset += at
	} else {
		k.meta.DictionaryPageOffset = 0
	}
	if k.meta.BloomFilterLength > 0 {
		k.meta.BloomFilterOffset += at
	}
	for i := range k.offsetIndex.PageLocations {
		k.offsetIndex.PageLocations[i].Offset += at
	}
}

// forgetIndexes drops the indexes, which the file writer has encoded.
func (k *encodedChunk) forgetIndexes() {
	k.offsetIndex, k.columnIndex, k.perPage, k.nullPages, k.nullCounts = format.OffsetIndex{}, nil, nil, nil, nil
}

// encode encodes one column of a row group, which is in several ranges.
func (e *encoder) encode(c *column, ranges []rowRange, rows int) (*encodedChunk, error) {
	if c.node != nil {
		return e.encodeNested(c, ranges)
	}
	k := &encodedChunk{pages: blob{lease: e.lease}}
	defer e.count()
	if err := e.fill(k, c, ranges, rows); err != nil {
		k.pages.release()
		return nil, err
	}
	return k, nil
}

func (e *encoder) fill(k *encodedChunk, c *column, ranges []rowRange, rows int) (err error) {
	k.begin(c, e.codec, rows)
	valid, nulls, err := e.validity(ranges, rows)
	if err != nil {
		return err
	}
	if nulls > 0 && !c.field.Nullable {
		return fmt.Errorf("column %q has %d nulls, but its schema says that it has none", c.field.Name, nulls)
	}
	p := pageWriter{encoder: e, column: c, chunk: k, valid: valid, rows: rows}
	switch {
	case c.physical == format.Boolean:
		err = p.booleans(ranges, rows-nulls)
	case c.physical == format.ByteArray:
		err = p.variable(ranges, rows-nulls)
	default:
		err = p.fixed(ranges, rows-nulls)
	}
	if err != nil {
		return err
	}
	k.finish(c, int64(nulls))
	if c.bloom {
		return p.bloomFilter()
	}
	return nil
}

// begin begins the metadata of a chunk.
func (k *encodedChunk) begin(c *column, codec compressor, rows int) {
	path := c.path
	if path == nil {
		path = []string{c.field.Name}
	}
	k.meta = format.ColumnMetaData{
		Type:                 c.physical,
		PathInSchema:         path,
		Codec:                codec.CompressionCodec(),
		NumValues:            int64(rows),
		DictionaryPageOffset: -1,
	}
}

// finish completes the metadata after the last page.
func (k *encodedChunk) finish(c *column, nulls int64) {
	k.meta.TotalCompressedSize = k.pages.size
	k.meta.Statistics.NullCount = nulls
	if k.bounds.ok && !k.unbounded && !c.unordered() {
		k.meta.Statistics.MinValue, k.meta.Statistics.MaxValue = k.bounds.min, k.bounds.max
	}
	index := &format.ColumnIndex{
		NullPages:     k.nullPages,
		NullCounts:    k.nullCounts,
		BoundaryOrder: c.order(k.perPage),
	}
	for i, b := range k.perPage {
		if !b.ok && !k.nullPages[i] {
			return // if a page has no bounds, the chunk has no index
		}
		index.MinValues = append(index.MinValues, b.min)
		index.MaxValues = append(index.MaxValues, b.max)
	}
	k.columnIndex = index
}

// pageWriter cuts the values of a chunk into pages.
type pageWriter struct {
	*encoder
	column *column
	chunk  *encodedChunk
	valid  []byte // nil when no row is null
	rows   int
	row    int // first row of the next page
	begun  int // rows before it, of the leaf of a nested column, whose rows are entries
}

// next returns the end of the next page's rows, of which there are at most n, and the number of its
// non-null values.
func (p *pageWriter) next(n int) (to, count int) {
	to = min(p.rows, p.row+n)
	for !p.endsRow(to) {
		to++
	}
	if p.valid == nil {
		return to, to - p.row
	}
	return to, countBits(p.valid, p.row, to-p.row)
}

// endsRow reports whether an entry is the first one of a row, or the end. Pages of a leaf of a nested column have whole
// rows, as the page index requires.
func (p *pageWriter) endsRow(entry int) bool {
	return p.reps == nil || entry == p.rows || p.reps[entry] == 0
}

// begin starts the body of the page with the rows up to to.
func (p *pageWriter) begin(to int) (err error) {
	p.body = p.body[:0]
	if p.column.path == nil {
		if p.column.field.Nullable {
			p.body = levels(p.body, p.valid, p.row, to, &p.packed)
		}
		return nil
	}
	if p.column.maxRep > 0 {
		if p.body, err = appendLevels(p.body, p.reps[p.row:to], p.column.maxRep, &p.packed); err != nil {
			return err
		}
	}
	if p.column.maxDef > 0 {
		p.body, err = appendLevels(p.body, p.defs[p.row:to], p.column.maxDef, &p.packed)
	}
	return err
}

// rowsPerPage returns the rows of a page of fixed-width values, a multiple of eight.
func (e *encoder) rowsPerPage(width int) int { return rowsPerPage(e.pageRows, e.pageBytes, width) }

func rowsPerPage(pageRows, pageBytes, width int) int {
	return max(8, min(pageRows, pageBytes/max(width, 1))&^7)
}

func (p *pageWriter) fixed(ranges []rowRange, count int) error {
	width := p.column.width
	plain, err := p.denseValues(p.column, ranges, count)
	if err != nil {
		return err
	}
	codes, coded := []int32(nil), false
	if p.column.dictionary {
		if codes, coded, err = p.fixedDictionary(plain, count, width); err != nil {
			return err
		}
		coded = coded && p.distinct > 0
	}
	if coded {
		if err := p.hashFixed(p.entries, p.distinct); err != nil {
			return err
		}
		if err := p.dictionaryPage(); err != nil {
			return err
		}
	} else if err := p.hashFixed(plain, count); err != nil {
		return err
	}
	encoding := format.Plain
	switch {
	case coded:
		encoding = format.RLEDictionary
	case p.delta && (p.column.physical == format.Int32 || p.column.physical == format.Int64):
		encoding = format.DeltaBinaryPacked
	case p.column.split:
		encoding = format.ByteStreamSplit
	}
	at := 0
	for p.row < p.rows {
		to, n := p.next(p.rowsPerPage(width))
		if err := p.begin(to); err != nil {
			return err
		}
		part := plain[at*width : (at+n)*width]
		b := p.column.fixedBounds(part, n)
		switch encoding {
		case format.RLEDictionary:
			if err := p.appendCodes(codes[at : at+n]); err != nil {
				return err
			}
		case format.DeltaBinaryPacked:
			deltas, err := p.deltas(part, n)
			if err != nil {
				return err
			}
			if p.row == 0 && len(deltas) > len(part)/4*3 {
				encoding = format.Plain // for the whole chunk: its values are spread over all bits
				p.body = append(p.body, part...)
				break
			}
			p.body = append(p.body, deltas...)
		case format.ByteStreamSplit:
			streams, err := p.split(p.column, part, n)
			if err != nil {
				return err
			}
			p.body = append(p.body, streams...)
		default:
			p.body = append(p.body, part...)
		}
		if err := p.dataPage(to, n, b, encoding); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// deltas encodes n integers as differences, with the width that each block needs. It is
// several times faster than Snappy over PLAIN integers, and the result is smaller.
func (p *pageWriter) deltas(plain []byte, n int) ([]byte, error) {
	var err error
	if p.column.physical == format.Int32 {
		p.packedRun, err = (&delta.BinaryPackedEncoding{}).EncodeInt32(p.packedRun[:0], view[int32](plain, n))
	} else {
		p.packedRun, err = (&delta.BinaryPackedEncoding{}).EncodeInt64(p.packedRun[:0], view[int64](plain, n))
	}
	return p.packedRun, err
}

func (p *pageWriter) booleans(ranges []rowRange, count int) error {
	dense, err := take[byte](p.lease, &p.dense, int(gpu.BitmapBytes(count)))
	if err != nil {
		return err
	}
	clear(dense)
	at := 0
	for _, q := range ranges {
		n := q.to - q.from
		if q.col.Valid == nil {
			gpu.AppendBits(dense, at, q.col.Data.Bytes(), q.from, n)
			at += n
			continue
		}
		for i := q.from; i < q.to; i++ {
			if gpu.Bit(q.col.Valid.Bytes(), i) {
				if gpu.Bit(q.col.Data.Bytes(), i) {
					dense[at/8] |= 1 << (at % 8)
				}
				at++
			}
		}
	}
	at = 0
	for p.row < p.rows {
		to, n := p.next(max(8, p.pageRows&^7))
		if err := p.begin(to); err != nil {
			return err
		}
		head := len(p.body)
		p.body = append(p.body, make([]byte, (n+7)/8)...)
		gpu.AppendBits(p.body[head:], 0, dense, at, n)
		b := bounds{}
		if n > 0 {
			set := countBits(dense, at, n)
			lo, hi := byte(0), byte(0)
			if set == n {
				lo = 1
			}
			if set > 0 {
				hi = 1
			}
			b = bounds{[]byte{lo}, []byte{hi}, true}
		}
		if err := p.dataPage(to, n, b, format.Plain); err != nil {
			return err
		}
		at += n
	}
	return nil
}

func (p *pageWriter) variable(ranges []rowRange, count int) error {
	if p.column.dictionary {
		codes, ok, err := p.varDictionary(ranges, count)
		if err != nil {
			return err
		}
		if ok && p.distinct > 0 {
			return p.variableCoded(codes)
		}
	}
	return p.variablePlain(ranges, count)
}

func (p *pageWriter) variableCoded(codes []int32) error {
	if err := p.dictionaryPage(); err != nil {
		return err
	}
	if p.column.bloom {
		var err error
		if p.hashes, err = take[uint64](p.lease, &p.hashed, p.distinct); err != nil {
			return err
		}
		for i := range p.hashes {
			p.hashes[i] = bloom.XXH64{}.Sum64(p.entry(i))
		}
	}
	var all varBounds
	at := 0
	for p.row < p.rows {
		to, n := p.next(p.rowsPerPage(4))
		if err := p.begin(to); err != nil {
			return err
		}
		b, err := p.codedBounds(codes[at : at+n])
		if err != nil {
			return err
		}
		if b.any {
			all.add(b.lo)
			all.add(b.hi)
		}
		if err := p.appendCodes(codes[at : at+n]); err != nil {
			return err
		}
		if err := p.dataPage(to, n, b.finish(p.column.field.Type), format.RLEDictionary); err != nil {
			return err
		}
		at += n
	}
	p.chunk.bounds = all.finish(p.column.field.Type)
	return nil
}

// codedBounds returns the bounds of a page. It compares each distinct value once.
func (p *pageWriter) codedBounds(codes []int32) (b varBounds, err error) {
	seen, err := take[bool](p.lease, &p.seen, p.distinct)
	if err != nil {
		return b, err
	}
	clear(seen)
	for _, c := range codes {
		seen[c] = true
	}
	for i, s := range seen {
		if s {
			b.add(p.entry(i))
		}
	}
	return b, nil
}

// variablePlain writes plain values. A page ends at its limit of rows or of bytes,
// whichever comes first.
func (p *pageWriter) variablePlain(ranges []rowRange, count int) (err error) {
	if p.column.bloom {
		if p.hashes, err = take[uint64](p.lease, &p.hashed, count); err != nil {
			return err
		}
		p.hashes = p.hashes[:0]
	}
	var all, b varBounds
	t := p.column.field.Type
	flush := func(to, n int) error {
		// The values were collected in plain. The levels come before them.
		if err := p.begin(to); err != nil {
			return err
		}
		p.body = append(p.body, p.plain...)
		p.plain = p.plain[:0]
		if b.any {
			all.add(b.lo)
			all.add(b.hi)
		}
		done := b.finish(t)
		b = varBounds{}
		return p.dataPage(to, n, done, format.Plain)
	}
	p.plain = p.plain[:0]
	row, n := 0, 0
	for _, q := range ranges {
		v := q.col
		var codes []int32
		if v.Dict != nil {
			codes = gpu.Values[int32](v.Data, v.Len)
			v = v.Dict.Values
		}
		offsets := gpu.Values[int32](v.Offsets, v.Len+1)
		chars := v.Data.Bytes()
		var valid []byte
		if q.col.Valid != nil {
			valid = q.col.Valid.Bytes()
		}
		for i := q.from; i < q.to; i++ {
			if valid == nil || gpu.Bit(valid, i) {
				j := i
				if codes != nil {
					j = int(codes[i])
				}
				value := chars[offsets[j]:offsets[j+1]]
				if len(value) > maxPage || p.column.path != nil && len(p.plain) > maxPage-len(value)-4 {
					return gpu.Exceeded("column %q has a value of %d bytes, more than a Parquet page can hold",
						p.column.field.Name, len(value))
				}
				if len(p.plain)+4+len(value) > max(p.pageBytes, 4+len(value)) && p.endsRow(row) {
					if err := flush(row, n); err != nil {
						return err
					}
					n = 0
				}
				p.plain = binary.LittleEndian.AppendUint32(p.plain, uint32(len(value)))
				p.plain = append(p.plain, value...)
				if p.column.bloom {
					p.hashes = append(p.hashes, bloom.XXH64{}.Sum64(value))
				}
				b.add(value)
				n++
			}
			row++
			if row-p.row >= p.pageRows && p.endsRow(row) {
				if err := flush(row, n); err != nil {
					return err
				}
				n = 0
			}
		}
	}
	if p.row < p.rows {
		if err := flush(p.rows, n); err != nil {
			return err
		}
	}
	p.chunk.bounds = all.finish(t)
	return nil
}

// appendCodes appends the width of dictionary codes, and the codes, to the page.
func (p *pageWriter) appendCodes(codes []int32) error {
	width := bits.Len(uint(p.distinct - 1))
	p.body = append(p.body, byte(width))
	if width == 0 {
		// There is one distinct value: one run of code 0.
		p.body = binary.AppendUvarint(p.body, uint64(len(codes))<<1)
		return nil
	}
	var err error
	p.packedRun, err = (&rle.Encoding{BitWidth: width}).EncodeInt32(p.packedRun, codes)
	p.body = append(p.body, p.packedRun...)
	return err
}

// dictionaryPage writes the distinct values.
func (p *pageWriter) dictionaryPage() error {
	p.chunk.meta.DictionaryPageOffset = 0
	return p.page(dictionaryHead(p.distinct), p.entries)
}

// dataPage writes the body as the data page of the rows up to to, which have n non-null values. The
// next page begins after these rows.
func (p *pageWriter) dataPage(to, n int, b bounds, encoding format.Encoding) error {
	k := p.chunk
	if p.column.unordered() {
		b = bounds{}
	}
	start := k.pages.size
	if err := p.page(dataHead(to-p.row, encoding), p.body); err != nil {
		return err
	}
	k.addPage(p.column, encoding, dataPage{start: start, size: k.pages.size - start, row: p.begun, rows: to - p.row,
		nulls: to - p.row - n, bounds: b})
	if p.reps == nil {
		p.begun = to
	} else {
		p.begun += bytes.Count(p.reps[p.row:to], []byte{0})
	}
	p.row = to
	return nil
}

// dataPage is a data page in a chunk.
type dataPage struct {
	start, size      int64 // with the header
	row, rows, nulls int
	bounds           bounds
}

// addPage adds a data page to the metadata and to the indexes of a chunk.
func (k *encodedChunk) addPage(c *column, encoding format.Encoding, d dataPage) {
	if len(k.perPage) == 0 {
		k.meta.DataPageOffset = d.start
		k.meta.Encoding = thrift.Slice[format.Encoding]{encoding, format.RLE}
		if encoding == format.RLEDictionary {
			k.meta.Encoding = append(k.meta.Encoding, format.Plain)
		}
	}
	k.offsetIndex.PageLocations = append(k.offsetIndex.PageLocations, format.PageLocation{
		Offset:             d.start,
		CompressedPageSize: int32(d.size),
		FirstRowIndex:      int64(d.row),
	})
	k.perPage = append(k.perPage, d.bounds)
	k.nullPages = append(k.nullPages, d.nulls == d.rows)
	k.nullCounts = append(k.nullCounts, int64(d.nulls))
	if c.physical != format.ByteArray {
		c.union(&k.bounds, d.bounds)
		k.unbounded = k.unbounded || d.nulls < d.rows && !d.bounds.ok
	}
}

// dataHead returns the header of a data page, without its sizes.
func dataHead(rows int, encoding format.Encoding) *format.PageHeader {
	h := &format.PageHeader{Type: format.DataPage}
	h.DataPageHeader = thrift.New(format.DataPageHeader{
		NumValues:               int32(rows),
		Encoding:                encoding,
		DefinitionLevelEncoding: format.RLE,
		RepetitionLevelEncoding: format.RLE,
	})
	return h
}

// dictionaryHead returns the header of a dictionary page, without its sizes.
func dictionaryHead(values int) *format.PageHeader {
	h := &format.PageHeader{Type: format.DictionaryPage}
	h.DictionaryPageHeader = thrift.New(format.DictionaryPageHeader{NumValues: int32(values), Encoding: format.Plain})
	return h
}

// page compresses a page and appends it with its header.
func (p *pageWriter) page(h *format.PageHeader, body []byte) (err error) {
	if len(body) > maxPage {
		return gpu.Exceeded("column %q: a page of %d bytes is more than Parquet can hold; set a lower page_bytes",
			p.column.field.Name, len(body))
	}
	out := body
	if p.codec.CompressionCodec() != format.Uncompressed {
		p.packedOut, err = p.codec.Encode(p.packedOut[:0], body)
		if err != nil {
			return fmt.Errorf("column %q: compress a page: %w", p.column.field.Name, err)
		}
		out = p.packedOut
	}
	head, err := headBytes(h, len(body), len(out), crc32.ChecksumIEEE(out))
	if err != nil {
		return err
	}
	p.chunk.meta.TotalUncompressedSize += int64(len(head) + len(body))
	if err := p.chunk.pages.append(head); err != nil {
		return err
	}
	return p.chunk.pages.append(out)
}

// headBytes encodes the header of a page, with the sizes and the checksum of its body.
func headBytes(h *format.PageHeader, raw, size int, checksum uint32) ([]byte, error) {
	h.UncompressedPageSize, h.CompressedPageSize, h.CRC = int32(raw), int32(size), int32(checksum)
	return thrift.Marshal(new(thrift.CompactProtocol), h)
}
