package text

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// column collects the values of a column of a stride.
type column struct {
	field gpu.Field
	kept  bool // the scan reads it; otherwise its values are only checked
	place int  // of its fields in the tokenizer
	// position is that of the column in the file, or -1 for one that has a constant in all rows.
	position int
	constant gpu.Scalar
	nulls    nullTexts
	escape   Dialect
	json     *jsonEncoder // of a nested column of lines of JSON
	format   *timeFormat  // of a column of dates or times, or nil
	// parse parses fields as the values of rows from c.rows on, and adds the positions of those that are no values of
	// the type to bad.
	parse func(c *column, text []byte, fields []token, bad []int) []int

	rows    int // complete rows
	data    *gpu.Buffer
	offsets *gpu.Buffer
	bytes   []byte   // of strings and binaries
	mark    int      // bytes of the complete rows
	valid   []uint64 // a bit for each row that is not null
	hasNull bool
}

// nullTexts are the texts that stand for null.
type nullTexts struct {
	empty  bool
	others []string
}

func newNullTexts(list []string) (n nullTexts) {
	if list == nil {
		list = []string{""}
	}
	for _, s := range list {
		if s == "" {
			n.empty = true
		} else {
			n.others = append(n.others, s)
		}
	}
	return n
}

func (n *nullTexts) has(b []byte) bool {
	return len(b) == 0 && n.empty || len(n.others) > 0 && n.other(b)
}

func (n *nullTexts) other(b []byte) bool {
	for _, s := range n.others {
		if string(b) == s {
			return true
		}
	}
	return false
}

// newColumn returns the column of a field. others says that keys of JSON that are no fields of a STRUCT are left out.
func newColumn(f gpu.Field, nulls nullTexts, d Dialect, others bool) *column {
	c := &column{field: f, nulls: nulls, escape: d, parse: parseSlowly}
	switch f.Type.Kind {
	case gpu.List, gpu.Struct, gpu.Map:
		if d.JSON {
			c.json, c.parse = newJSONEncoder(f.Type, others, nil), parseJSON
		}
	case gpu.Int8:
		c.parse = parseIntegers[int8]
	case gpu.Int16:
		c.parse = parseIntegers[int16]
	case gpu.Int32:
		c.parse = parseIntegers[int32]
	case gpu.Int64:
		c.parse = parseIntegers[int64]
	case gpu.Uint8:
		c.parse = parseIntegers[uint8]
	case gpu.Uint16:
		c.parse = parseIntegers[uint16]
	case gpu.Uint32:
		c.parse = parseIntegers[uint32]
	case gpu.Float64:
		c.parse = parseDoubles
	case gpu.Decimal:
		if !f.Type.Wide {
			c.parse = parseDecimals
		}
	case gpu.Date:
		c.parse = parseDates
	case gpu.Timestamp:
		if !f.Type.UTC {
			c.parse = parseTimestamps
		}
	case gpu.String:
		c.parse = parseStrings
	}
	return c
}

// begin allocates the memory for rows of a stride.
func (c *column) begin(l *gpu.Lease, rows int) (err error) {
	c.rows, c.hasNull, c.bytes, c.mark = 0, false, c.bytes[:0], 0
	words := int(gpu.BitmapBytes(rows) / 8)
	if cap(c.valid) < words {
		c.valid = make([]uint64, words)
	}
	c.valid = c.valid[:words]
	for i := range c.valid {
		c.valid[i] = math.MaxUint64
	}
	t := c.field.Type
	switch {
	case t.IsVar():
		if c.offsets, err = l.Alloc(int64(rows+1) * 4); err == nil {
			gpu.Values[int32](c.offsets, rows+1)[0] = 0
		}
	case t.Kind == gpu.Bool:
		if c.data, err = l.Alloc(gpu.BitmapBytes(rows)); err == nil {
			clear(c.data.Bytes())
		}
	default:
		c.data, err = l.Alloc(int64(rows) * int64(t.Width()))
	}
	return err
}

// add adds rows to the complete ones.
func (c *column) add(rows int) {
	c.rows += rows
	c.mark = len(c.bytes)
}

// end returns the column of the complete rows.
func (c *column) end(l *gpu.Lease) (out gpu.Column, err error) {
	out = gpu.Column{Type: c.field.Type, Len: c.rows, Data: c.data, Offsets: c.offsets}
	c.data, c.offsets = nil, nil
	if out.Type.IsVar() {
		if len(c.bytes) > math.MaxInt32 {
			err = gpu.TooManyBytes(int64(len(c.bytes)), c.rows)
		} else if out.Data, err = l.Alloc(int64(c.mark)); err == nil {
			copy(out.Data.Bytes(), c.bytes[:c.mark])
		}
	}
	if err == nil && c.hasNull {
		if out.Valid, err = l.Alloc(gpu.BitmapBytes(c.rows)); err == nil {
			copy(gpu.Words(out.Valid, c.rows), c.valid)
		}
	}
	if err != nil {
		out.Release()
	}
	return out, err
}

// discard releases the memory of a stride that is not complete.
func (c *column) discard() {
	c.data.Release()
	c.offsets.Release()
	c.data, c.offsets = nil, nil
}

// setNull makes a row null. Its value must be defined too.
func (c *column) setNull(row int) {
	c.valid[row>>6] &^= 1 << (row & 63)
	c.hasNull = true
}

// setValid takes back setNull, which a repeated batch may have called for another row.
func (c *column) setValid(row int) { c.valid[row>>6] |= 1 << (row & 63) }

// slow parses a field with parseScalar, or in the format of the column.
func (c *column) slow(text []byte, f token) (gpu.Scalar, bool) {
	if c.format != nil {
		return c.format.parse(c.text(text, f), c.field.Type)
	}
	return parseScalar(c.text(text, f), c.field.Type)
}

// parseScalar parses a text in any form that a cast takes. Integers must be written without a fraction or an exponent,
// so that no value is rounded.
func parseScalar(s string, t gpu.Type) (gpu.Scalar, bool) {
	if t.IsInteger() && strings.ContainsAny(s, ".eE_") && !strings.HasPrefix(s, "0x") {
		return gpu.Scalar{}, false
	}
	return host.ParseText(s, t)
}

// text returns the text of a field.
func (c *column) text(text []byte, f token) string {
	return c.escape.value(text, field{f.from(), f.to(), f.escaped()})
}

// mismatch says why a field is no value of the column.
func (c *column) mismatch(text []byte, f token) string {
	if c.json != nil {
		c.json.why = ""
		c.json.column(nil, text, f)
		return c.json.why
	}
	reason := fmt.Sprintf("%s is no %v", quoted(c.text(text, f)), c.field.Type)
	if c.format != nil {
		reason += fmt.Sprintf(" in the format '%s'", c.format.text)
	}
	return reason
}

// expected is the end of an error about a text that is no date or time.
func (c *column) expected() string {
	if c.format != nil || c.json != nil {
		return ""
	}
	return c.field.Type.ExpectedText()
}

// parseConstant sets the constant of a column.
func parseConstant(c *column, _ []byte, fields []token, bad []int) []int {
	c.bytes = c.bytes[:c.mark]
	for i := range fields {
		if !c.constant.Valid {
			c.setNull(c.rows + i)
		}
		c.put(c.rows+i, c.constant)
	}
	return bad
}

// parseSlowly parses values of any type.
func parseSlowly(c *column, text []byte, fields []token, bad []int) []int {
	c.bytes = c.bytes[:c.mark]
	for i, f := range fields {
		row := c.rows + i
		v := gpu.Scalar{Type: c.field.Type}
		if !c.nulls.has(text[f.from():f.to()]) {
			var ok bool
			if v, ok = c.slow(text, f); !ok {
				bad = append(bad, i)
			}
		}
		if v.Valid {
			c.setValid(row)
		} else {
			c.setNull(row)
		}
		c.put(row, v)
	}
	return bad
}

// put stores a value.
func (c *column) put(row int, v gpu.Scalar) {
	t := c.field.Type
	if t.IsVar() {
		c.bytes = append(c.bytes, v.Str...)
		gpu.Values[int32](c.offsets, row+2)[row+1] = int32(len(c.bytes))
		return
	}
	data := c.data.Bytes()
	switch w := t.Width(); {
	case t.Kind == gpu.Bool:
		data[row>>3] = data[row>>3]&^(1<<(row&7)) | byte(v.Int.Lo&1)<<(row&7)
	case t.Kind == gpu.Float32:
		binary.LittleEndian.PutUint32(data[4*row:], math.Float32bits(float32(v.Float)))
	case t.Kind == gpu.Float64:
		binary.LittleEndian.PutUint64(data[8*row:], math.Float64bits(v.Float))
	case w == 1:
		data[row] = byte(v.Int.Lo)
	case w == 2:
		binary.LittleEndian.PutUint16(data[2*row:], uint16(v.Int.Lo))
	case w == 4:
		binary.LittleEndian.PutUint32(data[4*row:], uint32(v.Int.Lo))
	case w == 8:
		binary.LittleEndian.PutUint64(data[8*row:], v.Int.Lo)
	default:
		binary.LittleEndian.PutUint64(data[16*row:], v.Int.Lo)
		binary.LittleEndian.PutUint64(data[16*row+8:], uint64(v.Int.Hi))
	}
}

// slowly parses one value that a fast parser cannot.
func (c *column) slowly(text []byte, f token, i int, bad []int) []int {
	c.setValid(c.rows + i)
	v, ok := c.slow(text, f)
	if !ok {
		return append(bad, i)
	}
	c.put(c.rows+i, v)
	return bad
}

// digits parses 1 to 16 digits, which begin at an offset. 8 bytes follow them.
func digits(text []byte, from, n int) (uint64, bool) {
	if n > 8 {
		high, ok := digits(text, from, n-8)
		low, also := digits8(binary.LittleEndian.Uint64(text[from+n-8:]))
		return high*1e8 + low, ok && also
	}
	w := binary.LittleEndian.Uint64(text[from:])
	return digits8(w<<(64-8*n) | 0x3030303030303030>>(8*n))
}

// digits8 parses 8 digits, the first of which is the lowest byte.
func digits8(w uint64) (uint64, bool) {
	ok := w&0xf0f0f0f0f0f0f0f0|(w+0x0606060606060606)&0xf0f0f0f0f0f0f0f0>>4 == 0x3333333333333333
	w = (w & 0x0f0f0f0f0f0f0f0f) * 2561 >> 8
	w = (w & 0x00ff00ff00ff00ff) * 6553601 >> 16
	return (w & 0x0000ffff0000ffff) * 42949672960001 >> 32, ok
}

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32
}

func parseIntegers[T integer](c *column, text []byte, fields []token, bad []int) []int {
	out := gpu.Values[T](c.data, c.rows+len(fields))[c.rows:]
	for i, f := range fields {
		from, to := f.from(), f.to()
		if c.nulls.has(text[from:to]) {
			c.setNull(c.rows + i)
			out[i] = 0
			continue
		}
		at := from
		negative := text[at] == '-'
		if negative {
			at++
		}
		n := to - at
		if n < 1 || n > 16 || f.escaped() {
			bad = c.slowly(text, f, i, bad)
			continue
		}
		u, ok := digits(text, at, n)
		v := int64(u)
		if negative {
			v = -v
		}
		if !ok || int64(T(v)) != v {
			bad = c.slowly(text, f, i, bad)
			continue
		}
		if c.hasNull {
			c.setValid(c.rows + i)
		}
		out[i] = T(v)
	}
	return bad
}

// pow10 are the powers of ten that a float64 has exactly.
var pow10 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
	1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// number parses [-]digits[.digits] with at most 16 characters as an integer and the number of digits after the point.
func number(text []byte, from, to int) (v int64, fraction int, ok bool) {
	at := from
	negative := at < to && text[at] == '-'
	if negative {
		at++
	}
	n := to - at
	var u uint64
	switch {
	case n < 1 || n > 16:
		return 0, 0, false
	case n <= 8:
		w := binary.LittleEndian.Uint64(text[at:])
		if points := ^differs(w^'.'*ones) & (ones << 7) & (uint64(1)<<(8*n-1)<<1 - 1); points != 0 {
			p := bits.TrailingZeros64(points) &^ 7
			below := uint64(1)<<p - 1
			w = w&below | w>>8&^below
			n--
			fraction = n - p/8
			if n == 0 {
				return 0, 0, false
			}
		}
		u, ok = digits8(w<<(64-8*n) | 0x3030303030303030>>(8*n))
	default:
		point := -1
		ok = true
		for i := at; i < to; i++ {
			d := text[i] - '0'
			switch {
			case d <= 9:
				u = u*10 + uint64(d)
			case text[i] == '.' && point < 0:
				point = i
			default:
				return 0, 0, false
			}
		}
		if point >= 0 {
			fraction = to - point - 1
		}
	}
	v = int64(u)
	if negative {
		v = -v
	}
	return v, fraction, ok
}

// exact is number for a number whose digits are an integer that a float64 has exactly.
func exact(text []byte, from, to int) (v int64, fraction int, ok bool) {
	v, fraction, ok = number(text, from, to)
	return v, fraction, ok && v <= 1<<53 && v >= -1<<53 && !(v == 0 && text[from] == '-')
}

func parseDoubles(c *column, text []byte, fields []token, bad []int) []int {
	out := gpu.Values[float64](c.data, c.rows+len(fields))[c.rows:]
	for i, f := range fields {
		from, to := f.from(), f.to()
		if c.nulls.has(text[from:to]) {
			c.setNull(c.rows + i)
			out[i] = 0
			continue
		}
		v, fraction, ok := exact(text, from, to)
		if !ok || f.escaped() {
			bad = c.slowly(text, f, i, bad)
			continue
		}
		if c.hasNull {
			c.setValid(c.rows + i)
		}
		out[i] = float64(v) / pow10[fraction] // both are exact, so the quotient is rounded once
	}
	return bad
}

// powers are the powers of ten of 64 bits.
var powers = func() (p [19]int64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = 10 * p[i-1]
	}
	return p
}()

func parseDecimals(c *column, text []byte, fields []token, bad []int) []int {
	out := gpu.Values[int64](c.data, c.rows+len(fields))[c.rows:]
	scale, most := int(c.field.Type.Scale), powers[c.field.Type.Precision]
	for i, f := range fields {
		from, to := f.from(), f.to()
		if c.nulls.has(text[from:to]) {
			c.setNull(c.rows + i)
			out[i] = 0
			continue
		}
		v, fraction, ok := number(text, from, to)
		if !ok || f.escaped() || fraction > scale || v >= most || -v >= most {
			bad = c.slowly(text, f, i, bad)
			continue
		}
		p := powers[scale-fraction]
		w := v * p
		if w/p != v || w >= most || -w >= most {
			bad = c.slowly(text, f, i, bad)
			continue
		}
		if c.hasNull {
			c.setValid(c.rows + i)
		}
		out[i] = w
	}
	return bad
}

// two parses two digits.
func two(b []byte) (int, bool) {
	x, y := b[0]-'0', b[1]-'0'
	return int(x)*10 + int(y), x <= 9 && y <= 9
}

// days parses YYYY-MM-DD, 10 bytes, as days since 1970-01-01.
func days(b []byte) (int64, bool) {
	_ = b[9]
	century, ok1 := two(b)
	year, ok2 := two(b[2:])
	month, ok3 := two(b[5:])
	day, ok4 := two(b[8:])
	if !(ok1 && ok2 && ok3 && ok4) || b[4] != '-' || b[7] != '-' || month < 1 || month > 12 || day < 1 {
		return 0, false
	}
	y := century*100 + year
	if day > 28 && day > daysOf(y, month) || y == 0 {
		return 0, false
	}
	if month <= 2 {
		y, month = y-1, month+12
	}
	return int64(365*y+y/4-y/100+y/400+(153*(month-3)+2)/5+day-1) - 719468, true
}

func daysOf(year, month int) int {
	switch {
	case month == 2 && (year%4 != 0 || year%100 == 0 && year%400 != 0):
		return 28
	case month == 2:
		return 29
	case month == 4 || month == 6 || month == 9 || month == 11:
		return 30
	}
	return 31
}

func parseDates(c *column, text []byte, fields []token, bad []int) []int {
	out := gpu.Values[int32](c.data, c.rows+len(fields))[c.rows:]
	for i, f := range fields {
		from, to := f.from(), f.to()
		if c.nulls.has(text[from:to]) {
			c.setNull(c.rows + i)
			out[i] = 0
			continue
		}
		if to-from == 10 && !f.escaped() {
			if d, ok := days(text[from:to]); ok {
				if c.hasNull {
					c.setValid(c.rows + i)
				}
				out[i] = int32(d)
				continue
			}
		}
		bad = c.slowly(text, f, i, bad)
	}
	return bad
}

// moment parses YYYY-MM-DD HH:MM:SS[.fraction], with a T or a space, in units since 1970-01-01. The fraction has no
// more digits than the unit.
func moment(b []byte, u gpu.Unit) (int64, bool) {
	if len(b) < 19 || b[10] != ' ' && b[10] != 'T' || b[13] != ':' || b[16] != ':' {
		return 0, false
	}
	day, ok := days(b[:10])
	hour, ok1 := two(b[11:])
	minute, ok2 := two(b[14:])
	second, ok3 := two(b[17:])
	if !(ok && ok1 && ok2 && ok3) || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	v := day*86400 + int64(hour*3600+minute*60+second)
	if u == gpu.Nanosecond && (v < -9e9 || v > 9e9) {
		return 0, false // not in 64 bits
	}
	v *= u.PerSecond()
	if len(b) == 19 {
		return v, true
	}
	n := len(b) - 20
	if b[19] != '.' || n < 1 || n > u.Digits() {
		return 0, false
	}
	fraction := int64(0)
	for _, d := range b[20:] {
		if d -= '0'; d > 9 {
			return 0, false
		}
		fraction = fraction*10 + int64(d)
	}
	return v + fraction*powers[u.Digits()-n], true
}

func parseTimestamps(c *column, text []byte, fields []token, bad []int) []int {
	out := gpu.Values[int64](c.data, c.rows+len(fields))[c.rows:]
	for i, f := range fields {
		b := text[f.from():f.to()]
		if c.nulls.has(b) {
			c.setNull(c.rows + i)
			out[i] = 0
			continue
		}
		if v, ok := moment(b, c.field.Type.Unit); ok && !f.escaped() {
			c.setValid(c.rows + i)
			out[i] = v
			continue
		}
		bad = c.slowly(text, f, i, bad)
	}
	return bad
}

func parseStrings(c *column, text []byte, fields []token, bad []int) []int {
	offsets := gpu.Values[int32](c.offsets, c.rows+len(fields)+1)[c.rows+1:]
	out := c.bytes[:c.mark]
	for i, f := range fields {
		b := text[f.from():f.to()]
		switch {
		case c.nulls.has(b):
			c.setNull(c.rows + i)
		case f.escaped():
			c.setValid(c.rows + i)
			out = c.escape.unescape(out, b)
		default:
			if c.hasNull {
				c.setValid(c.rows + i)
			}
			out = append(out, b...)
		}
		offsets[i] = int32(len(out))
	}
	c.bytes = out
	return bad
}
