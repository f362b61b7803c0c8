package cuda

import (
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
)

// Keys of joins and group-bys become values of 32 bits or rows of 64-bit words, which are equal if
// and only if the keys are. Values are packed next to each other at their width, floats in a
// canonical form, strings and binaries as codes of an interner. A single column of 4 or 8 bytes is
// used without a copy.

// How kernels load a column's values, as in keys.cuh.
const (
	loadBit = iota
	loadI8
	loadI16
	loadI32
	loadI64
	loadU8
	loadU16
	loadU32
	loadU64
	loadF32
	loadF64
	loadWide
)

// loadOf returns the load kind of values of a type.
func loadOf(t gpu.Type) int32 {
	switch t.Kind {
	case gpu.Bool:
		return loadBit
	case gpu.Int8:
		return loadI8
	case gpu.Int16:
		return loadI16
	case gpu.Int32, gpu.Date:
		return loadI32
	case gpu.Uint8:
		return loadU8
	case gpu.Uint16:
		return loadU16
	case gpu.Uint32, gpu.String, gpu.Binary, gpu.List, gpu.Struct, gpu.Map, gpu.Interval: // codes
		return loadU32
	case gpu.Uint64:
		return loadU64
	case gpu.Float32:
		return loadF32
	case gpu.Float64:
		return loadF64
	case gpu.Decimal, gpu.HugeInt:
		if t.Wide {
			return loadWide
		}
	}
	return loadI64
}

// interner maps equal strings to equal codes, dense from 0, and stores the strings.
type interner struct {
	*index
	mu sync.Mutex
	// known caches the codes of the values of earlier dictionaries.
	known map[*gpu.Dictionary]*gpu.Buffer
}

// smallDictionary is the size up to which all values of a dictionary are interned at its first use,
// even if a batch has fewer rows.
const smallDictionary = 1024

// maxKnown bounds the number of dictionaries whose codes are cached, since a stream may bring new
// ones without end.
const maxKnown = 256

func newInterner(l *gpu.Lease) *interner {
	return &interner{index: newIndex(byteKeys, 0, l, false), known: map[*gpu.Dictionary]*gpu.Buffer{}}
}

func (in *interner) release() {
	in.forget()
	in.index.release()
}

func (in *interner) forget() {
	for _, b := range in.known {
		b.Release()
	}
	clear(in.known)
}

// codes returns the codes of a column of strings: for each row or, with byValue, for each
// value of its dictionary. With insert, new strings get codes; otherwise unknown strings
// have code -1.
func (in *interner) codes(o *op, c gpu.Column, insert bool) (codes *gpu.Buffer, byValue bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if c.Dict == nil || c.Dict.Values.Len > max(c.Len, smallDictionary) {
		r := keyRows{n: c.Len, texts: textsOf(c), valid: addr(c.Valid)}
		codes = o.alloc(int64(c.Len) * 4)
		in.look(o, r, codes, insert)
		return codes, false
	}
	if codes = in.known[c.Dict]; codes != nil {
		return codes, true
	}
	v := c.Dict.Values
	r := keyRows{n: v.Len, texts: textsOf(v)}
	if !insert { // a string that is unknown now may get a code later
		codes = o.alloc(int64(v.Len) * 4)
		in.look(o, r, codes, false)
		return codes, true
	}
	codes = o.allocFrom(in.lease, int64(v.Len)*4)
	in.look(o, r, codes, true)
	if o.failed() {
		codes.Release()
		return nil, true
	}
	if codes != nil {
		if len(in.known) >= maxKnown {
			o.flush()
			in.forget()
		}
		in.known[c.Dict] = codes
	}
	return codes, true
}

func (in *interner) look(o *op, r keyRows, codes *gpu.Buffer, insert bool) {
	if insert {
		in.assign(o, r, codes)
	} else {
		in.find(o, r, codes)
	}
}

// values returns the interned strings as a column, in order of code. The column borrows
// the interner's memory.
func (in *interner) values(t gpu.Type) gpu.Column {
	return gpu.Column{Type: t, Len: in.n, Offsets: in.store, Data: in.texts}
}

// textsOf returns a column of strings in the form that kernels use.
func textsOf(c gpu.Column) texts {
	if c.Dict != nil {
		v := c.Dict.Values
		return texts{offsets: addr(v.Offsets), bytes: addr(v.Data), codes: addr(c.Data)}
	}
	return texts{offsets: addr(c.Offsets), bytes: addr(c.Data)}
}

// codec packs the key columns of one table or group-by.
type codec struct {
	types    []gpu.Type
	interner []*interner // by column; nil for types of fixed width
	fields   []field
	kind     string // exactKeys or wordKeys
	words    int    // of a key, unless kind is exactKeys
}

// field is the bits of a column in the packed key.
type field struct {
	word, shift, bits int
	null              int // number of its null bit, counted from word 0; -1: a null is not a key, or has its own slot
}

// maxKeys bounds the key columns: their null bits share a word.
const maxKeys = 60

// newCodec returns the codec of some types. withNull tells which columns have a null bit.
func newCodec(types []gpu.Type, withNull []bool, l *gpu.Lease) *codec {
	c := &codec{types: types, interner: make([]*interner, len(types)), fields: make([]field, len(types)),
		kind: wordKeys}
	bit := 0
	for i := range types {
		c.fields[i].null = -1
		if withNull[i] {
			c.fields[i].null = bit
			bit++
		}
	}
	for i, t := range types {
		w := t.Width() * 8
		switch {
		case t.IsVar():
			w = 32
			c.interner[i] = newInterner(l)
		case t.Kind == gpu.Bool:
			w = 1
		}
		if bit%64+w > 64 {
			bit = (bit + 63) / 64 * 64
		}
		p := &c.fields[i]
		p.word, p.shift, p.bits = bit/64, bit%64, min(w, 64)
		bit += w
	}
	c.words = (bit + 63) / 64
	if bit <= 32 {
		c.kind = exactKeys
	}
	return c
}

func (c *codec) release() {
	for _, in := range c.interner {
		if in != nil {
			in.release()
		}
	}
}

// strings returns the states of the interners, for restore.
func (c *codec) strings() []indexState {
	states := make([]indexState, len(c.interner))
	for i, in := range c.interner {
		if in != nil {
			states[i] = in.indexState
		}
	}
	return states
}

// restore resets the interners to earlier states after an error.
func (c *codec) restore(o *op, states []indexState) {
	for i, in := range c.interner {
		if in != nil {
			in.forget() // it may have codes of the failed call
			in.index.restore(o, states[i])
		}
	}
}

type keyColumn struct {
	data, valid, codes         uint64
	load                       int32
	word, shift, bits, null, _ int32
}

type packArgs struct {
	columns, exact, words uint64
	n                     int64
	count, width          int32
}

// check checks that columns have the types of the codec and n rows.
func (c *codec) check(cols []gpu.Column, n int) error {
	if len(cols) != len(c.types) {
		return fmt.Errorf("%d key columns, planned for %d", len(cols), len(c.types))
	}
	for i, col := range cols {
		if col.Type != c.types[i] {
			return fmt.Errorf("key column %d has type %v, the table's has %v", i, col.Type, c.types[i])
		}
		if col.Len != n {
			return fmt.Errorf("key column %d has %d rows, others %d", i, col.Len, n)
		}
	}
	return nil
}

// pack returns the keys of rows in the form that an index uses, without valid. With insert, new
// strings are interned.
func (c *codec) pack(o *op, cols []gpu.Column, n int, insert bool) keyRows {
	columns := make([]keyColumn, len(cols))
	for i, col := range cols {
		p := c.fields[i]
		k := keyColumn{data: addr(col.Data), valid: addr(col.Valid), load: loadOf(col.Type),
			word: int32(p.word), shift: int32(p.shift), bits: int32(p.bits), null: int32(p.null)}
		if c.interner[i] != nil {
			codes, byValue := c.interner[i].codes(o, col, insert)
			if byValue {
				k.codes = addr(codes)
			} else {
				k.data = addr(codes)
			}
		}
		columns[i] = k
	}
	r := keyRows{n: n}
	if n == 0 {
		return r
	}
	if k := columns[0]; len(columns) == 1 && k.null < 0 && k.codes == 0 && usedAsIs(k.load) {
		r.keys = k.data
		return r
	}
	list := upload(o, columns)
	a := packArgs{columns: addr(list), n: int64(n), count: int32(len(columns)), width: int32(c.words)}
	if c.kind == exactKeys {
		r.keys = addr(o.alloc(int64(n) * 4))
		a.exact = r.keys
	} else {
		r.keys = addr(o.alloc(int64(n) * int64(c.words) * 8))
		a.words = r.keys
	}
	launch(o, "pack_keys", blocks(n, 256), 256, 0, a)
	return r
}

// usedAsIs reports whether the values of a column are keys without packing.
func usedAsIs(load int32) bool {
	switch load {
	case loadI32, loadU32, loadI64, loadU64, loadWide:
		return true
	}
	return false
}

type andArgs struct {
	bitmaps, out uint64
	words        int64
	count        int32
}

// rowsWithKey returns the bitmap of the rows without a null in any column that is not in
// skip, or nil when there can be no null.
func (o *op) rowsWithKey(cols []gpu.Column, skip []bool, n int) *gpu.Buffer {
	var bitmaps []uint64
	var one *gpu.Buffer
	for i, c := range cols {
		if c.Valid != nil && !skip[i] {
			bitmaps = append(bitmaps, addr(c.Valid))
			one = c.Valid
		}
	}
	if len(bitmaps) < 2 {
		return one
	}
	list, out := upload(o, bitmaps), o.alloc(gpu.BitmapBytes(n))
	words := int(gpu.BitmapBytes(n) / 4)
	launch(o, "and_bits", blocks(words, 256), 256, 0,
		andArgs{bitmaps: addr(list), out: addr(out), words: int64(words), count: int32(len(bitmaps))})
	return out
}

// upload copies a small list to the device, as scratch of the op.
func upload[T any](o *op, list []T) *gpu.Buffer {
	src := gpu.BytesOf(list)
	b := o.alloc(int64(len(src)))
	o.write(b, 0, src)
	return b
}
