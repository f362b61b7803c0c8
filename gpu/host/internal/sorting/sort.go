// Package sorting sorts and compares rows on CPU cores, and finds runs of equal rows.
package sorting

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/move"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// keyDigits is a key column as integers of a known width. add shifts the integers of rows from at
// on to the left, and adds them to out, where these bits are zero.
type keyDigits struct {
	bits uint
	add  func(out []uint64, at int, shift uint)
}

// digitsOf returns the integers that load loads.
func digitsOf(bits uint, load func(out []uint64, at int)) keyDigits {
	return keyDigits{bits, func(out []uint64, at int, shift uint) {
		var tmp [word.Block]uint64
		load(tmp[:len(out)], at)
		for i, v := range tmp[:len(out)] {
			out[i] |= v << shift
		}
	}}
}

// above returns the integers without their lowest bits.
func (k keyDigits) above(lowest uint) keyDigits {
	return digitsOf(k.bits-lowest, func(out []uint64, at int) {
		clear(out)
		k.add(out, at, 0)
		for i := range out {
			out[i] >>= lowest
		}
	})
}

// Sort returns the ids of rows in the order of keys; equal rows keep their order. Every key
// becomes an unsigned integer with the same order, as narrow as its values allow; strings become
// ranks. A 64-bit word has the row id and as many bits of the keys as fit. The sort is a stable
// least-significant-digit radix sort of such words, the last bits of the keys first.
func Sort(cores parallel.Cores, l *gpu.Lease, keys []gpu.SortKey) (gpu.Column, error) {
	n := keys[0].Column.Len
	r := radix{cores: cores, lease: l, n: n, idBits: uint(bits.Len(uint(n)))}
	defer r.release()
	var parts []keyDigits
	for _, k := range keys {
		p, ranks, err := digitsOfKey(cores, l, k)
		defer ranks.Release()
		if err != nil {
			return gpu.Column{}, err
		}
		parts = append(parts, p...)
	}
	// The keys of each word, from the least significant on.
	words, room := [][]keyDigits{nil}, 64-r.idBits
	for _, p := range slices.Backward(parts) {
		for p.bits > room { // the shift drops the upper bits
			words[len(words)-1] = append(words[len(words)-1], keyDigits{room, p.add})
			words, p, room = append(words, nil), p.above(room), 64-r.idBits
		}
		words[len(words)-1] = append(words[len(words)-1], p)
		room -= p.bits
	}
	ids, err := memory.New[int32](l, n)
	if err != nil {
		return gpu.Column{}, err
	}
	last := len(words) - 1
	for _, w := range words[:last] {
		if err == nil {
			err = r.word(w, nil)
		}
	}
	if err == nil {
		err = r.word(words[last], ids.V)
	}
	if err != nil {
		ids.Release()
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: ids.Buf}, nil
}

// radix sorts words of a key and, in the lowest bits, a row id.
type radix struct {
	cores  parallel.Cores
	lease  *gpu.Lease
	n      int
	idBits uint
	// Before the first pass the words are computed from parts of keys, the least significant first;
	// afterwards they are in own. A pass writes them to next. Buffers are allocated when they are
	// needed.
	parts     []keyDigits
	own, next memory.Array[uint64]
	sorted    bool // the words are in own
}

func (r *radix) release() {
	r.own.Release()
	r.next.Release()
}

// addKeys adds keys of parts, for rows from at on, to out, shifted to the left.
func addKeys(parts []keyDigits, out []uint64, at int, shift uint) {
	for _, p := range parts {
		p.add(out, at, shift)
		shift += p.bits
	}
}

// each calls f for blocks of the words [lo, hi).
func (r *radix) each(lo, hi int, f func(at int, words []uint64)) {
	var tmp [word.Block]uint64
	for at := lo; at < hi; at += len(tmp) {
		n := min(len(tmp), hi-at)
		if r.sorted {
			f(at, r.own.V[at:at+n])
			continue
		}
		for i := range tmp[:n] {
			tmp[i] = uint64(at + i)
		}
		addKeys(r.parts, tmp[:n], at, r.idBits)
		f(at, tmp[:n])
	}
}

// room makes room for the words of a pass.
func (r *radix) room() (err error) {
	if r.next.V == nil {
		r.next, err = memory.New[uint64](r.lease, r.n)
	}
	return err
}

// word sorts by one word, whose key consists of parts. If ids is not nil, it receives the row ids.
func (r *radix) word(parts []keyDigits, ids []int32) error {
	mask := uint64(1)<<r.idBits - 1
	if r.parts = parts; r.sorted { // by the words of less significant keys
		if err := r.room(); err != nil {
			return err
		}
		err := r.cores.For(r.n, parallel.Grain, func(lo, hi int) error {
			for at := lo; at < hi; at += word.Block {
				block := r.next.V[at:min(at+word.Block, hi)]
				clear(block)
				addKeys(parts, block, at, 0)
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = r.cores.For(r.n, parallel.Grain, func(lo, hi int) error {
			for i, w := range r.own.V[lo:hi] {
				r.own.V[lo+i] = r.next.V[w&mask]<<r.idBits | w&mask
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	width := uint(0)
	for _, p := range parts {
		width += p.bits
	}
	// As few passes as digits allow, of nearly equal width.
	passes := (width + maxDigit - 1) / maxDigit
	for p := range passes {
		from, to := width*p/passes, width*(p+1)/passes
		var out []int32
		if p == passes-1 {
			out = ids
		}
		if done, err := r.pass(r.idBits+from, to-from, out); err != nil || done && out != nil {
			return err
		}
	}
	if ids == nil {
		return nil
	}
	return r.cores.For(r.n, parallel.Grain, func(lo, hi int) error {
		r.each(lo, hi, func(at int, words []uint64) {
			for i, w := range words {
				ids[at+i] = int32(w & mask)
			}
		})
		return nil
	})
}

// maxDigit bounds the bits of a digit: a pass writes to as many positions as the digit has values.
const maxDigit = 12

// pass is one stable counting pass over bits [shift, shift+width). It writes the words or, unless ids is nil, only
// their row ids. It does nothing, and returns false, if all rows have the same digit.
func (r *radix) pass(shift, width uint, ids []int32) (bool, error) {
	n, fanout := r.n, 1<<width
	mask, id := uint64(fanout-1), uint64(1)<<r.idBits-1
	size := max(parallel.Grain, (n/r.cores.Threads+63)/64*64)
	tasks := (n + size - 1) / size
	next := make([]int32, tasks*fanout)
	err := r.cores.For(n, size, func(lo, hi int) error {
		count := next[lo/size*fanout:][:fanout]
		r.each(lo, hi, func(_ int, words []uint64) {
			for _, w := range words {
				count[w>>shift&mask]++
			}
		})
		return nil
	})
	if err != nil {
		return false, err
	}
	at, used := int32(0), 0
	for b := range fanout {
		before := at
		for k := range tasks {
			at, next[k*fanout+b] = at+next[k*fanout+b], at
		}
		if at != before {
			used++
		}
	}
	if used <= 1 {
		return false, nil
	}
	if ids == nil {
		if err := r.room(); err != nil {
			return false, err
		}
	}
	err = r.cores.For(n, size, func(lo, hi int) error {
		to, words := next[lo/size*fanout:][:fanout], r.next.V
		r.each(lo, hi, func(_ int, block []uint64) {
			if ids != nil {
				for _, w := range block {
					b := w >> shift & mask
					t := to[b]
					to[b] = t + 1
					ids[t] = int32(w & id)
				}
				return
			}
			for _, w := range block {
				b := w >> shift & mask
				t := to[b]
				to[b] = t + 1
				words[t] = w
			}
		})
		return nil
	})
	if ids == nil {
		r.own, r.next, r.sorted = r.next, r.own, true
	}
	return true, err
}

// digitsOfKey turns a sort key into ordered integers: one bit for nulls if there are any, and one or
// two integers for the value. For strings the integers are ranks, which the caller releases
// afterwards.
func digitsOfKey(cores parallel.Cores, l *gpu.Lease, k gpu.SortKey) (digits []keyDigits, ranks memory.Array[uint32],
	err error) {
	c := k.Column
	var load func(out []uint64, at int)
	switch {
	case c.Type.IsVar() || c.Dict != nil:
		load, ranks, err = rankValues(cores, l, c)
	case c.Type.Wide:
		digits, err = wideDigits(cores, k)
		return digits, ranks, err
	default:
		flip := word.ToOrdered(c.Type)
		load = func(out []uint64, at int) {
			word.Load(out, c, at)
			flip(out)
		}
	}
	if err == nil {
		digits, err = compressKey(cores, k, load)
	}
	return digits, ranks, err
}

// compressKey narrows a key to the range of its values, inverts it for descending order, and adds the
// position of nulls.
func compressKey(cores parallel.Cores, k gpu.SortKey, load func(out []uint64, at int)) ([]keyDigits, error) {
	c := k.Column
	tasks := (c.Len + parallel.Grain - 1) / parallel.Grain
	los, his := make([]uint64, tasks), make([]uint64, tasks)
	err := cores.For(c.Len, parallel.Grain, func(from, to int) error {
		lo, hi := uint64(math.MaxUint64), uint64(0)
		var tmp [word.Block]uint64
		for at := from; at < to; at += len(tmp) {
			w := tmp[:min(len(tmp), to-at)]
			load(w, at)
			if c.Valid == nil {
				for _, v := range w {
					lo, hi = min(lo, v), max(hi, v)
				}
				continue
			}
			for i, v := range w {
				if c.IsValid(at + i) {
					lo, hi = min(lo, v), max(hi, v)
				}
			}
		}
		los[from/parallel.Grain], his[from/parallel.Grain] = lo, hi
		return nil
	})
	if err != nil {
		return nil, err
	}
	lo, hi := uint64(math.MaxUint64), uint64(0)
	for i := range los {
		lo, hi = min(lo, los[i]), max(hi, his[i])
	}
	if lo > hi { // there is no value
		lo, hi = 0, 0
	}
	width := uint(bits.Len64(hi - lo))
	if add := linear(c, k.Descending, lo, hi); add != nil {
		return []keyDigits{{width, add}}, nil
	}
	out := []keyDigits{digitsOf(width, func(out []uint64, at int) {
		load(out, at)
		if k.Descending {
			for i, v := range out {
				out[i] = hi - v
			}
		} else {
			for i, v := range out {
				out[i] = v - lo
			}
		}
		if c.Valid != nil {
			for i := range out {
				if !c.IsValid(at + i) {
					out[i] = 0
				}
			}
		}
	})}
	if c.Valid != nil {
		out = append([]keyDigits{nullDigit(k)}, out...)
	}
	return out, nil
}

// linear returns the function of compress for a column of integers of at most 8 bytes without
// nulls, as a single loop; nil for other columns. lo and hi are the least and the greatest value,
// with the sign bit flipped for signed types.
func linear(c gpu.Column, descending bool, lo, hi uint64) func(out []uint64, at int, shift uint) {
	if c.Valid != nil || c.Dict != nil {
		return nil
	}
	factor, term := uint64(1), 1<<63-lo
	if c.Type.IsUnsigned() {
		term = -lo
	}
	if descending {
		factor, term = -factor, -term+hi-lo
	}
	switch {
	case c.Type.Wide || c.Type.IsFloat() || c.Type.Kind == gpu.Bool || c.Type.IsVar():
		return nil
	case c.Type.Width() == 8:
		return linearOf[uint64](c, factor, term)
	case c.Type.Kind == gpu.Uint32:
		return linearOf[uint32](c, factor, term)
	case c.Type.Width() == 4:
		return linearOf[int32](c, factor, term)
	case c.Type.Kind == gpu.Uint16:
		return linearOf[uint16](c, factor, term)
	case c.Type.Width() == 2:
		return linearOf[int16](c, factor, term)
	case c.Type.Kind == gpu.Uint8:
		return linearOf[uint8](c, factor, term)
	}
	return linearOf[int8](c, factor, term)
}

func linearOf[T int8 | int16 | int32 | uint8 | uint16 | uint32 | uint64](c gpu.Column,
	factor, term uint64) func(out []uint64, at int, shift uint) {
	values := gpu.Values[T](c.Data, c.Len)
	return func(out []uint64, at int, shift uint) {
		factor, term := factor<<shift, term<<shift
		for i, v := range values[at:][:len(out)] {
			out[i] += uint64(int64(v))*factor + term
		}
	}
}

// nullDigit returns one bit that puts nulls before or after the values.
func nullDigit(k gpu.SortKey) keyDigits {
	return digitsOf(1, func(out []uint64, at int) {
		for i := range out {
			out[i] = 0
			if k.Column.IsValid(at+i) == k.NullsFirst {
				out[i] = 1
			}
		}
	})
}

// wideDigits splits 16-byte values into a signed upper and an unsigned lower word.
func wideDigits(cores parallel.Cores, k gpu.SortKey) ([]keyDigits, error) {
	values := gpu.Values[gpu.Int128](k.Column.Data, k.Column.Len)
	upper, err := compressKey(cores, k, func(out []uint64, at int) {
		for i := range out {
			out[i] = uint64(values[at+i].Hi) ^ 1<<63
		}
	})
	if err != nil {
		return nil, err
	}
	lower, err := compressKey(cores, k, func(out []uint64, at int) {
		for i := range out {
			out[i] = values[at+i].Lo
		}
	})
	if err != nil {
		return nil, err
	}
	return append(upper, lower[len(lower)-1]), nil
}

// rankValues sorts the values of a string column, or of a dictionary of any type, by comparison, and
// assigns equal ranks to equal values. load loads the ranks of rows.
func rankValues(cores parallel.Cores, l *gpu.Lease, c gpu.Column) (load func(out []uint64, at int),
	ranks memory.Array[uint32], err error) {
	if c.Dict != nil && c.Dict.Values.Len > c.Len { // most values have no row
		plain, err := move.Expand(cores, l, c)
		if err != nil {
			return nil, ranks, err
		}
		defer plain.Release()
		c = plain
	}
	values := c
	if c.Dict != nil {
		values = c.Dict.Values
	}
	if !values.Type.IsVar() {
		return nil, ranks, fmt.Errorf("sort by a dictionary of %v: only strings are dictionary-coded", values.Type)
	}
	n := values.Len
	off, data := gpu.Values[int32](values.Offsets, n+1), values.Data.Bytes()
	// The first eight bytes decide most comparisons.
	type item struct {
		prefix uint64
		row    int32
	}
	ordered, err := memory.New[item](l, n)
	if err != nil {
		return nil, ranks, err
	}
	defer func() { ordered.Release() }()
	items := ordered.V
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			items[i] = item{word.Prefix(data[off[i]:off[i+1]]), int32(i)}
		}
		return nil
	})
	if err != nil {
		return nil, ranks, err
	}
	compare := func(a, b item) int {
		switch {
		case a.prefix < b.prefix:
			return -1
		case a.prefix > b.prefix:
			return 1
		}
		return bytes.Compare(data[off[a.row]:off[a.row+1]], data[off[b.row]:off[b.row+1]])
	}
	// Runs are sorted in parallel, then merged in pairs.
	run := max((n+cores.Threads-1)/cores.Threads, 1)
	err = cores.For(n, run, func(lo, hi int) error {
		slices.SortFunc(items[lo:hi], compare)
		return nil
	})
	if err != nil {
		return nil, ranks, err
	}
	for ; run < n; run *= 2 {
		into, err := memory.New[item](l, n)
		if err != nil {
			return nil, ranks, err
		}
		merged := into.V
		err = cores.For(n, 2*run, func(lo, hi int) error {
			mid := min(lo+run, hi)
			a, b, out := items[lo:mid], items[mid:hi], merged[lo:hi]
			for i := range out {
				if len(b) == 0 || len(a) > 0 && compare(a[0], b[0]) <= 0 {
					out[i], a = a[0], a[1:]
				} else {
					out[i], b = b[0], b[1:]
				}
			}
			return nil
		})
		ordered.Release()
		ordered, items = into, merged
		if err != nil {
			return nil, ranks, err
		}
	}
	if ranks, err = memory.New[uint32](l, n); err != nil {
		return nil, ranks, err
	}
	rank := ranks.V
	r := uint32(0)
	for i, it := range items {
		if i > 0 && compare(items[i-1], it) != 0 {
			r++
		}
		rank[it.row] = r
	}
	if c.Dict == nil {
		return func(out []uint64, at int) {
			for i, v := range rank[at : at+len(out)] {
				out[i] = uint64(v)
			}
		}, ranks, nil
	}
	codes := gpu.Values[int32](c.Data, c.Len)
	return func(out []uint64, at int) {
		for i, code := range codes[at : at+len(out)] {
			out[i] = uint64(gpu.Lookup(rank, code))
		}
	}, ranks, nil
}
