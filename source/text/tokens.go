package text

import (
	"encoding/binary"
	"math/bits"
)

// batchRows is the number of rows that are tokenized before their columns are parsed. Their text and fields stay in the
// caches of a core.
const batchRows = 1024

// tokenizer finds the fields of rows.
type tokenizer struct {
	Dialect
	columns int // of the file
	rows    int // most rows of a batch
	// base has for each column of the file where its fields begin in fields. Columns that are not read share a place.
	base   []int
	fields []token
	starts []int32 // offset of each row
	count  int     // rows of the batch
	bad    []badRow
	keys   jsonKeys
	padded bool // columns that a row lacks at its end are null
}

// token is a field: the offsets of its text, and whether it has escapes.
type token uint64

func newToken(f field) token {
	t := token(f.from)<<32 | token(f.to)<<1
	if f.escaped {
		t |= 1
	}
	return t
}

func (t token) from() int     { return int(t >> 32) }
func (t token) to() int       { return int(uint32(t) >> 1) }
func (t token) escaped() bool { return t&1 != 0 }

// badRow is a row with a defect.
type badRow struct {
	from, to int // offsets of the row, without its line break
	what     defect
	fields   int
}

// newTokenizer returns a tokenizer that keeps the fields of some columns: kept[i] is the i-th list of its fields.
func newTokenizer(d Dialect, columns int, kept []int) *tokenizer {
	t := &tokenizer{Dialect: d, columns: columns, base: make([]int, columns)}
	t.rows = min(batchRows, max(1<<17/(len(kept)+1), 16))
	for i := range t.base {
		t.base[i] = len(kept) * t.rows
	}
	for i, c := range kept {
		t.base[c] = i * t.rows
	}
	t.fields = make([]token, (len(kept)+1)*t.rows)
	t.starts = make([]int32, t.rows)
	return t
}

// column returns the fields of the i-th kept column.
func (t *tokenizer) column(i int) []token { return t.fields[i*t.rows:][:t.count] }

// memory returns the bytes of a tokenizer.
func (t *tokenizer) memory() int64 { return int64(8*len(t.fields) + 4*len(t.starts) + 8*len(t.base)) }

// drop removes rows of the batch, which are in ascending order.
func (t *tokenizer) drop(rows []int) {
	for c := 0; c+t.rows <= len(t.fields)-t.rows; c += t.rows {
		compact(t.fields[c:c+t.count], rows)
	}
	compact(t.starts[:t.count], rows)
	t.count -= len(rows)
}

func compact[T any](list []T, drop []int) {
	to := drop[0]
	for i := drop[0]; i < len(list); i++ {
		if len(drop) > 0 && drop[0] == i {
			drop = drop[1:]
			continue
		}
		list[to] = list[i]
		to++
	}
}

const (
	ones  = 0x0101010101010101
	low7  = 0x7f7f7f7f7f7f7f7f
	move8 = 0x0102040810204080
)

// differs has the highest bit of each byte clear in which x is zero, and set in the others. Lower bits are undefined.
func differs(x uint64) uint64 { return (x&low7 + low7) | x }

// find returns a bit for each of 64 bytes that is one of three.
func find(text []byte, a, b, c uint64) (mask uint64) {
	_ = text[63]
	for i := 0; i < 64; i += 8 {
		w := binary.LittleEndian.Uint64(text[i : i+8])
		m := ^(differs(w^a) & differs(w^b) & differs(w^c)) >> 7 & ones
		mask |= m * move8 >> 56 << i
	}
	return mask
}

// find2 is find for two bytes.
func find2(text []byte, a, b uint64) (mask uint64) {
	_ = text[63]
	for i := 0; i < 64; i += 8 {
		w := binary.LittleEndian.Uint64(text[i : i+8])
		m := ^(differs(w^a) & differs(w^b)) >> 7 & ones
		mask |= m * move8 >> 56 << i
	}
	return mask
}

// tokenize finds the fields of the next batch of rows in the text of a block from an offset on, and returns the offset
// behind them. Rows with a defect are added to bad and are not in the batch. If stop is set, the batch ends at the
// first of them.
func (t *tokenizer) tokenize(text []byte, at int, stop bool) int {
	var (
		n        = len(text)
		all      = text[:n+padding]
		delim    = t.Delimiter
		newline  = t.Newline
		quote    = t.Quote
		delims   = uint64(delim) * ones
		newlines = uint64(newline) * ones
		quotes   = uint64(quote) * ones
		base     = t.base
		fields   = t.fields
		row      = 0
		column   = 0
		start    = at // of the row
		from     = at // of the field
		known    token
		what     defect
	)
	for window := at; window < n; {
		var mask uint64
		if quote != 0 {
			mask = find(all[window:window+64], delims, newlines, quotes)
		} else {
			mask = find2(all[window:window+64], delims, newlines)
		}
		if left := n - window; left < 64 {
			mask &= 1<<left - 1
		}
		next := window + 64
		for ; mask != 0; mask &= mask - 1 {
			i := window + bits.TrailingZeros64(mask)
			switch c := text[i]; {
			case c == delim:
				v := token(from)<<32 | token(i)<<1
				if known != 0 {
					v, known = known, 0
				}
				if column < len(base) {
					fields[base[column]+row] = v
				}
				column++
				from = i + 1
				continue
			case c == newline:
				to := i
				if newline == '\n' && to > from && text[to-1] == '\r' {
					to--
				}
				v := token(from)<<32 | token(to)<<1
				empty := column == 0 && to == from && known == 0
				if known != 0 {
					v, known = known, 0
				}
				if column < len(base) {
					fields[base[column]+row] = v
				}
				column++
				if t.padded && what == sound && !empty {
					for ; column < len(base); column++ {
						fields[base[column]+row] = token(n)<<32 | token(n+1)<<1
					}
				}
				first := start
				from, start = i+1, i+1
				switch {
				case column == len(base) && what == sound:
					t.starts[row] = int32(first)
					row++
				case empty: // a line without text
				default:
					if what == sound {
						if what = fewColumns; column > len(base) {
							what = manyColumns
						}
					}
					t.bad = append(t.bad, badRow{from: first, to: to, what: what, fields: column})
					what = sound
					if stop {
						t.count = row
						return i + 1
					}
				}
				column = 0
				if row == t.rows {
					t.count = row
					return i + 1
				}
				continue
			}
			// A quote: one that begins a field changes what follows.
			k := from
			for k < i && text[k] == ' ' && delim != ' ' {
				k++
			}
			if k < i || known != 0 {
				continue
			}
			f, end, bad := t.field(text, from)
			known = newToken(f)
			if bad != sound {
				what = bad
			}
			next = end
			break
		}
		window = next
	}
	t.count = row
	if start < n {
		t.bad = append(t.bad, badRow{from: start, to: n, what: unterminated, fields: column})
	}
	return n
}
