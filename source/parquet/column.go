package parquet

import (
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
)

// columnDecoder collects one column of one stride from the pages of the stride's segments.
type columnDecoder struct {
	lease   *gpu.Lease
	t       gpu.Type
	rows    int
	encoded bool // keep dictionary codes, and store values of 8 bytes in 4, where possible

	data  *gpu.Buffer // values or bits; codes while state is coded
	valid *gpu.Buffer // nil until the first null

	// narrow means that all 8-byte values so far fit int32, and that data stores them as int32.
	narrow bool

	// state is coded until the first page without codes.
	state   colState
	width   int // bytes of a code
	parts   []part
	entries int // total number of values in the dictionaries of parts

	// For String and Binary only.
	offsets *gpu.Buffer
	chars   *gpu.Buffer
	used    int     // bytes of chars in use
	said    float64 // expected bytes of all rows, from the footer
}

type colState uint8

const (
	undecided colState = iota // all values so far are null
	coded
	plain
)

// part is a range of rows whose codes belong to one dictionary. base is the code of the
// dictionary's first value.
type part struct {
	dict     *gpu.Dictionary
	from, to int
	base     int
}

// read appends the rows of a page reader, starting at row at.
func (b *columnDecoder) read(c *pageReader, at int) error {
	b.said = float64(c.meta.rawSize) / float64(max(c.rows, 1)) * float64(b.rows)
	for c.row < c.to {
		if c.left == 0 {
			if err := c.nextPage(); err != nil {
				return err
			}
		}
		k := c.left
		m := k
		if c.hasLevels {
			var err error
			if m, err = b.levels(c, at, k); err != nil {
				return err
			}
		}
		if err := b.append(c, at, k, m); err != nil {
			return err
		}
		c.taken(k)
		c.mayDefer = false
		at += k
	}
	return nil
}

// append appends n rows of the current page that contain m values, whose validity is known.
func (b *columnDecoder) append(c *pageReader, at, n, m int) error {
	switch {
	case m == 0:
		return b.readNulls(at, n)
	case c.coded && c.dict.shared == nil:
		return badf("a data page needs a dictionary, but there is none")
	case b.t.IsVar():
		return b.readVar(c, at, n, m)
	case b.t.Kind == gpu.Bool:
		return b.readBool(c, at, n, m)
	}
	return b.readFixed(c, at, n, m)
}

// levels copies the definition levels of n rows into the validity bitmap, and returns the
// number of rows that are not null.
func (b *columnDecoder) levels(c *pageReader, at, n int) (int, error) {
	if c.levels.allOnes(n) {
		return n, nil
	}
	if b.valid == nil {
		buf, err := b.lease.Alloc(gpu.BitmapBytes(b.rows))
		if err != nil {
			return 0, err
		}
		b.valid = buf
		setBits(buf.Bytes(), 0, int(buf.Size())*8, true)
	}
	return c.levels.bitmap(b.valid.Bytes(), at, n)
}

// alloc returns the data buffer. It allocates it on first use.
func (b *columnDecoder) alloc(size int64) ([]byte, error) {
	if b.data == nil {
		buf, err := b.lease.Alloc(size)
		if err != nil {
			return nil, err
		}
		b.data = buf
	}
	return b.data.Bytes(), nil
}

// readNulls appends n null rows. It does not use the reader: its page may have another encoding
// than the pages before, and its chunk may have no dictionary.
func (b *columnDecoder) readNulls(at, n int) error {
	switch {
	case b.t.Kind == gpu.Bool:
		data, err := b.alloc(gpu.BitmapBytes(b.rows))
		if err != nil {
			return err
		}
		setBits(data, at, n, false)
	case b.state == undecided:
		// The code that decides the layout also fills in these nulls.
	case b.state == coded:
		clear(b.data.Bytes()[at*b.width : (at+n)*b.width])
	case b.t.IsVar():
		ends := int32s(b.offsets.Bytes())[at+1 : at+n+1]
		for i := range ends {
			ends[i] = int32(b.used)
		}
	default:
		w := b.valueWidth()
		clear(b.data.Bytes()[at*w : (at+n)*w])
	}
	return nil
}

// readFixed appends n rows that contain m values. It decodes the values into the last m of the n
// positions, then moves each value to its row.
func (b *columnDecoder) readFixed(c *pageReader, at, n, m int) error {
	if err := b.decideFixed(c, at); err != nil {
		return err
	}
	if b.state == coded {
		return b.readCodes(c, at, n, m)
	}
	var err error
	if b.narrow {
		err = b.takeNarrow(c, at+n-m, m)
	} else {
		err = b.takeValues(c, at+n-m, m)
	}
	if err != nil || m == n {
		return err
	}
	data := b.data.Bytes()
	switch b.valueWidth() {
	case 1:
		spread(typed[uint8](data, b.rows), b.valid.Bytes(), at, n, m)
	case 2:
		spread(typed[uint16](data, b.rows), b.valid.Bytes(), at, n, m)
	case 4:
		spread(typed[uint32](data, b.rows), b.valid.Bytes(), at, n, m)
	case 8:
		spread(typed[uint64](data, b.rows), b.valid.Bytes(), at, n, m)
	case 16:
		spread(typed[gpu.Int128](data, b.rows), b.valid.Bytes(), at, n, m)
	}
	return nil
}

// valueWidth returns the bytes of a value in data.
func (b *columnDecoder) valueWidth() int {
	if b.narrow {
		return 4
	}
	return b.t.Width()
}

// takeValues decodes m values of a page reader to the rows from at on.
func (b *columnDecoder) takeValues(c *pageReader, at, m int) error {
	w := b.t.Width()
	return c.takeValues(b.data.Bytes()[at*w:(at+m)*w], m, w)
}

// takeNarrow is takeValues for a narrow column. It widens the column to 8 bytes in two cases: a
// value does not fit although the statistics said so, or the chunk has another physical type, which
// happens when the next file begins.
func (b *columnDecoder) takeNarrow(c *pageReader, at, m int) error {
	if !c.coded && (c.col.physical != format.Int64 || c.col.widens()) {
		if err := b.widenValues(at); err != nil {
			return err
		}
		return b.takeValues(c, at, m)
	}
	if !c.coded {
		src, err := c.takePlain(m, 8)
		if err != nil || shorten(gpu.Values[int32](b.data, b.rows)[at:], typed[int64](src, m)) {
			return err
		}
		if err := b.widenValues(at); err != nil {
			return err
		}
		return c.convert(b.data.Bytes()[at*8:(at+m)*8], src, m)
	}
	var codes [1024]int32
	dict := gpu.Values[int64](c.dict.shared.Values.Data, c.dict.n())
	for m > 0 {
		k := min(m, len(codes))
		if err := takeCodes(c, codes[:k]); err != nil {
			return err
		}
		if !shortenCoded(gpu.Values[int32](b.data, b.rows)[at:], dict, codes[:k]) {
			if err := b.widenValues(at); err != nil {
				return err
			}
			lookup(gpu.Values[int64](b.data, b.rows)[at:], dict, codes[:k])
			return b.takeValues(c, at+k, m-k)
		}
		at, m = at+k, m-k
	}
	return nil
}

// shorten writes each value in 4 bytes, and reports whether all values fit.
func shorten(dst []int32, values []int64) bool {
	dst = dst[:len(values)]
	lost := int64(0)
	for i, v := range values {
		short := int32(v)
		dst[i] = short
		lost |= int64(short) ^ v
	}
	return lost == 0
}

// shortenCoded is shorten for the dictionary values of codes.
func shortenCoded(dst []int32, dict []int64, codes []int32) bool {
	dst = dst[:len(codes)]
	lost := int64(0)
	for i, c := range codes {
		v := dict[c]
		short := int32(v)
		dst[i] = short
		lost |= int64(short) ^ v
	}
	return lost == 0
}

// widenValues widens rows [0, rows) of a narrow column, and all later rows, to 8 bytes.
func (b *columnDecoder) widenValues(rows int) error {
	buf, err := b.lease.Alloc(int64(b.rows) * 8)
	if err != nil {
		return err
	}
	wide := gpu.Values[int64](buf, b.rows)
	for i, v := range gpu.Values[int32](b.data, b.rows)[:rows] {
		wide[i] = int64(v)
	}
	b.data.Release()
	b.data, b.narrow = buf, false
	return nil
}

// takeValues decodes m values of fixed width.
func (c *pageReader) takeValues(dst []byte, m, width int) error {
	switch {
	case c.coded:
		return c.gather(dst, m, width)
	case c.col.physical == format.ByteArray:
		return decimalBytes(c, dst, m)
	case c.col.physical == format.Boolean:
		return c.col.widened(func(dst []byte, _, n int, _ []byte) error { return takeBools(c, dst, n) })(dst, nil, m)
	}
	src, err := c.takePlain(m, c.col.physicalWidth())
	if err != nil {
		return err
	}
	return c.convert(dst, src, m)
}

// takeBools takes the next n booleans and writes one byte for each.
func takeBools(c *pageReader, dst []byte, n int) error {
	if c.bit+n > 8*len(c.plain) {
		return badf("a data page has fewer booleans than it promises")
	}
	for i := range n {
		dst[i] = 0
		if gpu.Bit(c.plain, c.bit+i) {
			dst[i] = 1
		}
	}
	c.bit += n
	return nil
}

// spread moves the m values at the end of rows [at, at+n) to the valid rows. A null row gets the
// value of a neighbour, or zero.
func spread[T any](dst []T, valid []byte, at, n, m int) {
	j, end := at+n-m, at+n
	i := at
	for ; i < j && j < end; i++ {
		dst[i] = dst[j]
		j += int(valid[i>>3] >> (i & 7) & 1)
	}
	if j == end {
		clear(dst[i:end])
	}
}

// gather decodes m codes and writes the values of the dictionary.
func (c *pageReader) gather(dst []byte, m, width int) error {
	var codes [1024]int32
	for m > 0 {
		k := min(m, len(codes))
		if err := takeCodes(c, codes[:k]); err != nil {
			return err
		}
		lookupAs(dst, c.dict.shared.Values, codes[:k])
		dst = dst[k*width:]
		m -= k
	}
	return nil
}

// lookupAs writes the values that codes have in a fixed-width dictionary.
func lookupAs[C code](dst []byte, values gpu.Column, codes []C) {
	n, dict := len(codes), values.Data.Bytes()
	switch values.Type.Width() {
	case 1:
		lookup(typed[uint8](dst, n), typed[uint8](dict, values.Len), codes)
	case 2:
		lookup(typed[uint16](dst, n), typed[uint16](dict, values.Len), codes)
	case 4:
		lookup(typed[uint32](dst, n), typed[uint32](dict, values.Len), codes)
	case 8:
		lookup(typed[uint64](dst, n), typed[uint64](dict, values.Len), codes)
	case 16:
		lookup(typed[gpu.Int128](dst, n), typed[gpu.Int128](dict, values.Len), codes)
	}
}

func lookup[T any, C code](dst, dict []T, codes []C) {
	dst = dst[:len(codes)]
	for i, c := range codes {
		dst[i] = dict[c]
	}
}

// readBool appends n rows of a Bool column that contain m values.
func (b *columnDecoder) readBool(c *pageReader, at, n, m int) error {
	data, err := b.alloc(gpu.BitmapBytes(b.rows))
	if err != nil {
		return err
	}
	if c.coded || c.bit+m > 8*len(c.plain) {
		return badf("a data page has fewer booleans than it promises")
	}
	bits := c.plain[:len(c.plain):cap(c.plain)]
	if m == n {
		copyBits(data, at, bits[:cap(bits)], c.bit, n)
		c.bit += n
		return nil
	}
	valid := b.valid.Bytes()
	for i := at; i < at+n; i++ {
		if gpu.Bit(valid, i) {
			putBit(data, i, gpu.Bit(bits, c.bit))
			c.bit++
		} else {
			putBit(data, i, false)
		}
	}
	return nil
}

// decideFixed decides the layout of a fixed-width column at its first value. It changes the layout
// from codes to values at a page without codes, or when the dictionaries become too large together.
func (b *columnDecoder) decideFixed(c *pageReader, at int) error {
	switch {
	case b.state == undecided:
		// Assume that later row groups have dictionaries of similar size.
		groups := max(1, int(int64(b.rows)/max(c.rows, 1)))
		if c.coded && b.encoded && !c.meta.uncoded && b.fits(c.dict.n()*groups) {
			b.width = codeWidth(c.dict.n())
			return b.startFixed(coded, b.width, at)
		}
		b.narrow = b.encoded && c.fitsInt32()
		return b.startFixed(plain, b.valueWidth(), at)
	case b.state == coded && !(c.coded && (b.current(c) || b.fits(b.entries+c.dict.n()))):
		return b.expandFixed(at)
	}
	return nil
}

// fits reports whether codes into a dictionary of that many entries take less memory than the
// values.
func (b *columnDecoder) fits(entries int) bool {
	return codeWidth(entries) < b.t.Width() && entries <= b.rows/4
}

// fitsInt32 reports whether a chunk stores its values as 8-byte integers and all fit 4 bytes
// according to its statistics. The precision of a decimal must allow any int32. A time of day is
// never narrowed.
func (c *pageReader) fitsInt32() bool {
	t := c.col.field.Type
	if c.col.physical != format.Int64 || c.col.widens() || t.Width() != 8 || t.Kind == gpu.Time ||
		t.Kind == gpu.Decimal && t.Precision < 10 || !c.meta.stats.hasRange {
		return false
	}
	lo, hi, ok := c.col.bounds(c.meta.stats.min, c.meta.stats.max)
	return ok && lo.Int.IsInt64() && hi.Int.IsInt64() && lo.Int.Int64() >= math.MinInt32 &&
		hi.Int.Int64() <= math.MaxInt32
}

// current reports whether the last codes belong to the reader's dictionary.
func (b *columnDecoder) current(c *pageReader) bool {
	n := len(b.parts)
	return n > 0 && b.parts[n-1].dict == c.dict.shared
}

// codeWidth returns the number of bytes of a code into a dictionary of n values.
func codeWidth(n int) int {
	switch {
	case n <= 1<<8:
		return 1
	case n <= 1<<16:
		return 2
	}
	return 4
}

// startFixed allocates the values or codes of all rows. nulls is the number of leading rows, which
// are null.
func (b *columnDecoder) startFixed(s colState, width, nulls int) error {
	data, err := b.alloc(int64(b.rows) * int64(width))
	if err == nil {
		clear(data[:nulls*width])
		b.state = s
	}
	return err
}

// expandFixed replaces the codes of rows [0, rows) by values.
func (b *columnDecoder) expandFixed(rows int) error {
	if err := b.mergeFixed(); err != nil {
		return err
	}
	codes := b.data
	defer codes.Release()
	b.data = nil
	if err := b.startFixed(plain, b.t.Width(), 0); err != nil {
		return err
	}
	dst, values := b.data.Bytes(), b.parts[0].dict.Values
	switch b.width {
	case 1:
		lookupAs(dst, values, gpu.Values[uint8](codes, rows))
	case 2:
		lookupAs(dst, values, gpu.Values[uint16](codes, rows))
	case 4:
		lookupAs(dst, values, gpu.Values[int32](codes, rows))
	}
	b.dropParts()
	return nil
}

// mergeFixed concatenates several dictionaries into one.
func (b *columnDecoder) mergeFixed() error {
	if len(b.parts) == 1 {
		return nil
	}
	width := b.t.Width()
	data, err := b.lease.Alloc(int64(b.entries) * int64(width))
	if err != nil {
		return err
	}
	for _, p := range b.parts {
		v := p.dict.Values
		copy(data.Bytes()[p.base*width:], v.Data.Bytes()[:v.Len*width])
	}
	b.merged(gpu.Column{Type: b.t, Len: b.entries, Data: data})
	return nil
}

// merged replaces all dictionaries by one.
func (b *columnDecoder) merged(values gpu.Column) {
	b.dropParts()
	b.parts = append(b.parts, part{dict: &gpu.Dictionary{Values: values}, to: b.rows})
}

// readVar appends n rows of a String or Binary column that contain m values.
func (b *columnDecoder) readVar(c *pageReader, at, n, m int) error {
	if err := b.decide(c, at); err != nil {
		return err
	}
	switch {
	case b.state == coded:
		return b.readCodes(c, at, n, m)
	case c.coded:
		return b.readExpanded(c, at, n, m)
	}
	return b.readPlain(c, at, n, m)
}

// decide decides the layout of a String or Binary column at its first value. It changes the layout
// from codes to values at the first page without codes.
func (b *columnDecoder) decide(c *pageReader, at int) error {
	switch {
	case b.state == undecided && c.coded && !(b.encoded && c.meta.uncoded):
		b.width = 4
		if b.encoded {
			b.width = codeWidth(c.dict.n())
		}
		return b.startFixed(coded, b.width, at)
	case b.state == undecided:
		if err := b.startPlain(); err != nil {
			return err
		}
		clear(int32s(b.offsets.Bytes())[:at+1])
	case b.state == coded && !c.coded:
		return b.expand(at)
	}
	return nil
}

func (b *columnDecoder) startPlain() (err error) {
	b.state = plain
	b.offsets, err = b.lease.Alloc(int64(b.rows+1) * 4)
	return err
}

// readCodes appends n rows that contain the codes of m values.
func (b *columnDecoder) readCodes(c *pageReader, at, n, m int) error {
	if b.current(c) {
		b.parts[len(b.parts)-1].to = at + n
	} else {
		if err := b.another(c.dict.shared, at, at+n); err != nil {
			return err
		}
	}
	switch b.width {
	case 1:
		return readCodesAs[uint8](b, c, at, n, m)
	case 2:
		return readCodesAs[uint16](b, c, at, n, m)
	}
	return readCodesAs[int32](b, c, at, n, m)
}

// another adds a dictionary, which rows [from, to) use.
func (b *columnDecoder) another(dict *gpu.Dictionary, from, to int) error {
	p := part{dict: dict, from: from, to: to, base: b.entries}
	if b.entries += dict.Values.Len; b.entries > math.MaxInt32 {
		return badf("the dictionaries of a stride have %d values", b.entries)
	}
	if err := b.widen(codeWidth(b.entries), from); err != nil {
		return err
	}
	dict.Values.Retain()
	b.parts = append(b.parts, p)
	return nil
}

func readCodesAs[T code](b *columnDecoder, c *pageReader, at, n, m int) error {
	codes := gpu.Values[T](b.data, b.rows)
	fresh := codes[at+n-m : at+n]
	if err := takeCodes(c, fresh); err != nil {
		return err
	}
	if last := len(b.parts) - 1; last > 0 {
		base := T(b.parts[last].base)
		for i := range fresh {
			fresh[i] += base
		}
	}
	if m < n {
		spread(codes, b.valid.Bytes(), at, n, m)
	}
	return nil
}

// widen makes the codes of rows [0, rows), and later ones, at least width bytes wide.
func (b *columnDecoder) widen(width, rows int) error {
	if width <= b.width {
		return nil
	}
	buf, err := b.lease.Alloc(int64(b.rows) * int64(width))
	if err != nil {
		return err
	}
	narrow := gpu.Column{Len: rows, Data: b.data, CodeWidth: b.width}
	if width == 2 {
		copyCodes(gpu.Values[uint16](buf, rows), narrow)
	} else {
		copyCodes(gpu.Values[int32](buf, rows), narrow)
	}
	b.data.Release()
	b.data, b.width = buf, width
	return nil
}

func copyCodes[T code](dst []T, from gpu.Column) {
	for i := range dst {
		dst[i] = T(from.Code(i))
	}
}

// reserve allocates n more bytes of characters, which complete the first rows, and slack after
// them. It estimates the size of all rows from the first rows, but not above twice the need or the
// size in the footer, whichever is larger.
func (b *columnDecoder) reserve(n, rows int) error {
	need := int64(b.used) + int64(n) + slack
	if b.chars.Size() >= need {
		return nil
	}
	alike := float64(need) * float64(b.rows) / float64(max(rows, 1))
	likely := min(alike, max(b.said, 2*float64(need)), maxVarBytes) * 1.05
	buf, err := b.lease.Alloc(max(need, int64(likely)))
	if err != nil {
		return err
	}
	copy(buf.Bytes(), b.chars.Bytes()[:b.used])
	b.chars.Release()
	b.chars = buf
	return nil
}

// readPlain appends PLAIN values.
func (b *columnDecoder) readPlain(c *pageReader, at, n, m int) error {
	offsets := int32s(b.offsets.Bytes())
	// Write the offsets of the values at the end of the rows' positions, as if the nulls came
	// first.
	first := at + n - m
	offsets[first] = int32(b.used)
	used, err := c.takeVar(offsets[first+1:at+n+1], b.used, m)
	if err != nil {
		return err
	}
	grow := used - b.used
	if err := b.reserve(grow, at+n); err != nil {
		return err
	}
	if err := c.copyVar(b.chars.Bytes(), offsets[first:at+n+1]); err != nil {
		return err
	}
	if m < n {
		spreadOffsets(offsets, b.valid.Bytes(), at, n, m, int32(b.used))
	}
	b.used = used
	return nil
}

// spreadOffsets turns the end offsets of m values, which are in the last positions of rows [at,
// at+n), into the end offsets of all n rows. A null ends at the end of the previous row.
func spreadOffsets(offsets []int32, valid []byte, at, n, m int, start int32) {
	offsets[at] = start
	end := start
	j := at + n - m + 1
	for i := at; i < at+n && i+1 < j; i++ {
		if gpu.Bit(valid, i) {
			end = offsets[j]
			j++
		}
		offsets[i+1] = end
	}
}

// readExpanded appends the values of codes to a column that stores values.
func (b *columnDecoder) readExpanded(c *pageReader, at, n, m int) error {
	mem, err := c.scratch(4 * n)
	if err != nil {
		return err
	}
	codes := int32s(mem)
	if err := takeCodes(c, codes[n-m:]); err != nil {
		return err
	}
	if m < n {
		spreadAt(codes, b.valid.Bytes(), at, n, m)
	}
	return b.appendCodes(&c.dict.shared.Values, codes, 0, at)
}

// spreadAt is spread for a slice of codes whose position 0 is row at.
func spreadAt(codes []int32, valid []byte, at, n, m int) {
	j := n - m
	i := 0
	for ; i < j && j < n; i++ {
		codes[i] = codes[j]
		j += int(valid[(at+i)>>3] >> ((at + i) & 7) & 1)
	}
	if j == n {
		clear(codes[i:])
	}
}

// appendCodes appends the values of codes at row at. base is the code of the dictionary's first
// value. Null rows get no characters.
func (b *columnDecoder) appendCodes(dict *gpu.Column, codes []int32, base, at int) error {
	from := int32s(dict.Offsets.Bytes())
	chars := dict.Data.Bytes()
	var valid []byte
	if b.valid != nil {
		valid = b.valid.Bytes()
	}
	offsets := int32s(b.offsets.Bytes())
	offsets[at] = int32(b.used)
	end := b.used
	for i, code := range codes {
		if valid == nil || gpu.Bit(valid, at+i) {
			code -= int32(base)
			end += int(from[code+1] - from[code])
		}
		if end > maxVarBytes {
			return fitsOffsets(end)
		}
		offsets[at+i+1] = int32(end)
	}
	if err := b.reserve(end-b.used, at+len(codes)); err != nil {
		return err
	}
	dst := b.chars.Bytes()
	for i, code := range codes {
		if o := offsets[at+i]; o < offsets[at+i+1] {
			code -= int32(base)
			copy(dst[o:offsets[at+i+1]], chars[from[code]:from[code+1]])
		}
	}
	b.used = end
	return nil
}

// expand replaces the codes of rows [0, rows) by values.
func (b *columnDecoder) expand(rows int) error {
	if err := b.widen(4, rows); err != nil {
		return err
	}
	if err := b.startPlain(); err != nil {
		return err
	}
	codes := int32s(b.data.Bytes())
	offsets := int32s(b.offsets.Bytes())
	offsets[0] = 0
	at := 0
	nulls := func(to int) {
		for ; at < to; at++ {
			offsets[at+1] = int32(b.used)
		}
	}
	for _, p := range b.parts {
		nulls(p.from)
		if err := b.appendCodes(&p.dict.Values, codes[p.from:p.to], p.base, p.from); err != nil {
			return err
		}
		at = p.to
	}
	nulls(rows)
	b.dropParts()
	b.data.Release()
	b.data = nil
	return nil
}

func (b *columnDecoder) dropParts() {
	for _, p := range b.parts {
		p.dict.Values.Release()
	}
	b.parts = nil
}

// column returns the collected column and empties the decoder.
func (b *columnDecoder) column() (gpu.Column, error) {
	c := gpu.Column{Type: b.t, Len: b.rows}
	if b.t.IsVar() {
		if err := b.finishVar(&c); err != nil {
			return gpu.Column{}, err
		}
	} else if err := b.finishFixed(&c); err != nil {
		return gpu.Column{}, err
	}
	c.Valid = b.valid
	*b = columnDecoder{}
	return c, nil
}

func (b *columnDecoder) finishFixed(c *gpu.Column) error {
	if b.state == undecided && b.t.Kind != gpu.Bool { // all rows are null
		if err := b.startFixed(plain, b.t.Width(), b.rows); err != nil {
			return err
		}
	}
	if b.data == nil { // there are no rows
		if _, err := b.alloc(0); err != nil {
			return err
		}
	}
	if b.state == coded {
		if err := b.mergeFixed(); err != nil {
			return err
		}
		c.Dict, c.CodeWidth = b.parts[0].dict, b.width
	}
	if b.narrow {
		c.CodeWidth = 4
	}
	c.Data = b.data
	return nil
}

func (b *columnDecoder) finishVar(c *gpu.Column) error {
	if b.state == undecided { // all rows are null
		if err := b.startPlain(); err != nil {
			return err
		}
		clear(int32s(b.offsets.Bytes()))
	}
	if b.state == coded && len(b.parts) > 1 {
		if err := b.mergeVar(); err != nil {
			return err
		}
	}
	if b.state == coded {
		c.Data, c.Dict = b.data, b.parts[0].dict
		if b.encoded {
			c.CodeWidth = b.width
		}
		return nil
	}
	if b.chars == nil {
		if err := b.reserve(0, b.rows); err != nil {
			return err
		}
	}
	c.Data, c.Offsets = b.chars, b.offsets
	return nil
}

// mergeVar concatenates several dictionaries into one. If the dictionaries have more than a quarter
// as many values as the column has rows, it replaces the codes by values instead.
func (b *columnDecoder) mergeVar() error {
	size := 0
	for _, p := range b.parts {
		size += int(p.dict.Values.Data.Size())
	}
	if b.entries > b.rows/4 || size > maxVarBytes {
		return b.expand(b.rows)
	}
	merged := gpu.Column{Type: b.t, Len: b.entries}
	var err error
	if merged.Offsets, err = b.lease.Alloc(int64(b.entries+1) * 4); err != nil {
		return err
	}
	if merged.Data, err = b.lease.Alloc(int64(size)); err != nil {
		merged.Release()
		return err
	}
	offsets := int32s(merged.Offsets.Bytes())
	offsets[0] = 0
	used := int32(0)
	for _, p := range b.parts {
		v := p.dict.Values
		from := int32s(v.Offsets.Bytes())
		for i := range v.Len {
			offsets[p.base+i+1] = used + from[i+1]
		}
		copy(merged.Data.Bytes()[used:], v.Data.Bytes()[:from[v.Len]])
		used += from[v.Len]
	}
	b.merged(merged)
	return nil
}

// discard releases the collected column.
func (b *columnDecoder) discard() {
	b.dropParts()
	for _, buf := range []*gpu.Buffer{b.data, b.valid, b.offsets, b.chars} {
		buf.Release()
	}
	*b = columnDecoder{}
}
