package host

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// Sort implements gpu.Queue. Every key becomes an unsigned integer of the same order, as
// narrow as its values allow; strings become ranks. Keys that together fit one 64-bit
// word are sorted at once, others word by word from the last. Each sort is a stable
// least-significant-digit radix sort of (word, row id).
func (q *queue) Sort(l *gpu.Lease, keys []gpu.SortKey) (gpu.Column, error) {
	if err := q.check(gpu.KeyColumns(keys)); err != nil {
		return gpu.Column{}, err
	}
	out, err := q.dev.sort(l, keys)
	return out, q.fail(err)
}

// keyDigits is one key column as integers of a known width. load loads rows from at on.
type keyDigits struct {
	bits uint
	load func(out []uint64, at int)
}

func (d *Device) sort(l *gpu.Lease, keys []gpu.SortKey) (gpu.Column, error) {
	if err := gpu.CheckSort(keys); err != nil {
		return gpu.Column{}, err
	}
	n := keys[0].Column.Len
	var parts []keyDigits
	for _, k := range keys {
		p, ranks, err := d.keyDigits(l, k)
		defer ranks.release()
		if err != nil {
			return gpu.Column{}, err
		}
		parts = append(parts, p...)
	}
	// Words of at most 64 bits, the most significant first.
	var words [][]keyDigits
	width := uint(65)
	for _, p := range parts {
		if width+p.bits > 64 {
			words = append(words, nil)
			width = 0
		}
		words[len(words)-1] = append(words[len(words)-1], p)
		width += p.bits
	}
	size := int64(n)
	bufs := make([]*gpu.Buffer, 0, 4)
	defer func() {
		for _, b := range bufs {
			b.Release()
		}
	}()
	for _, s := range []int64{8 * size, 8 * size, 4 * size, 4 * size} {
		b, err := l.Alloc(s)
		if err != nil {
			return gpu.Column{}, err
		}
		bufs = append(bufs, b)
	}
	r := radix{dev: d,
		key: gpu.Values[uint64](bufs[0], n), key2: gpu.Values[uint64](bufs[1], n),
		row: gpu.Values[int32](bufs[2], n), row2: gpu.Values[int32](bufs[3], n)}
	for i := range r.row {
		r.row[i] = int32(i)
	}
	for w := len(words) - 1; w >= 0; w-- {
		if err := r.word(words[w], w == len(words)-1); err != nil {
			return gpu.Column{}, err
		}
	}
	keep := 2
	if n > 0 && &r.row[0] == &gpu.Values[int32](bufs[3], n)[0] {
		keep = 3
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: bufs[keep].Retain()}, nil
}

// radix has the keys and row ids of a sort, and a second buffer for each.
type radix struct {
	dev       *Device
	key, key2 []uint64
	row, row2 []int32
}

// word sorts by one word made of parts. With first the rows are in input order, otherwise
// in the order of the words sorted before.
func (r *radix) word(parts []keyDigits, first bool) error {
	n := len(r.row)
	load := r.key
	if !first {
		load = r.key2
	}
	width := uint(0)
	for _, p := range parts {
		width += p.bits
	}
	err := r.dev.parallel(n, grain, func(lo, hi int) error {
		var tmp [probeBlock]uint64
		for at := lo; at < hi; at += len(tmp) {
			m := min(len(tmp), hi-at)
			dst := load[at : at+m]
			clear(dst)
			for _, p := range parts {
				p.load(tmp[:m], at)
				for i, v := range tmp[:m] {
					dst[i] = dst[i]<<p.bits | v
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !first {
		err := r.dev.parallel(n, grain, func(lo, hi int) error {
			for i := lo; i < hi; i++ {
				r.key[i] = r.key2[r.row[i]]
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	// As few passes as digits of at most 11 bits allow, of nearly equal width.
	passes := (width + 10) / 11
	for p := range passes {
		from, to := width*p/passes, width*(p+1)/passes
		if err := r.pass(from, to-from); err != nil {
			return err
		}
	}
	return nil
}

// pass is one stable counting pass over bits [shift, shift+width).
func (r *radix) pass(shift, width uint) error {
	n, fanout := len(r.row), 1<<width
	mask := uint64(fanout - 1)
	size := max(grain, (n/r.dev.threads+63)/64*64)
	tasks := (n + size - 1) / size
	next := make([]int32, tasks*fanout)
	err := r.dev.parallel(n, size, func(lo, hi int) error {
		count := next[lo/size*fanout:][:fanout]
		for _, k := range r.key[lo:hi] {
			count[k>>shift&mask]++
		}
		return nil
	})
	if err != nil {
		return err
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
	if used <= 1 { // all rows have this digit
		return nil
	}
	err = r.dev.parallel(n, size, func(lo, hi int) error {
		to := next[lo/size*fanout:][:fanout]
		rows := r.row[lo:hi]
		for i, k := range r.key[lo:hi] {
			b := k >> shift & mask
			t := to[b]
			to[b] = t + 1
			r.key2[t], r.row2[t] = k, rows[i]
		}
		return nil
	})
	r.key, r.key2 = r.key2, r.key
	r.row, r.row2 = r.row2, r.row
	return err
}

// keyDigits turns a sort key into ordered integers: one bit for nulls if there are any,
// and one or two integers for the value. For strings they read ranks, which the caller
// releases afterwards.
func (d *Device) keyDigits(l *gpu.Lease, k gpu.SortKey) (digits []keyDigits, ranks array[uint32], err error) {
	c := k.Column
	var load func(out []uint64, at int)
	switch {
	case c.Type.IsVar() || c.Dict != nil:
		load, ranks, err = d.ranks(l, c)
	case c.Type.Wide:
		digits, err = d.wideDigits(k)
		return digits, ranks, err
	default:
		flip := orderFlip(c.Type)
		load = func(out []uint64, at int) {
			loadWords(out, c, at)
			flip(out)
		}
	}
	if err == nil {
		digits, err = d.compress(k, load)
	}
	return digits, ranks, err
}

// compress narrows a key to the range of its values, inverts it for descending order, and
// gives nulls their position.
func (d *Device) compress(k gpu.SortKey, load func(out []uint64, at int)) ([]keyDigits, error) {
	c := k.Column
	tasks := (c.Len + grain - 1) / grain
	los, his := make([]uint64, tasks), make([]uint64, tasks)
	err := d.parallel(c.Len, grain, func(from, to int) error {
		lo, hi := uint64(math.MaxUint64), uint64(0)
		var tmp [probeBlock]uint64
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
		los[from/grain], his[from/grain] = lo, hi
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
	out := []keyDigits{{bits: uint(bits.Len64(hi - lo)), load: func(out []uint64, at int) {
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
	}}}
	if c.Valid != nil {
		out = append([]keyDigits{nullDigit(k)}, out...)
	}
	return out, nil
}

// nullDigit returns one bit that puts nulls before or after the values.
func nullDigit(k gpu.SortKey) keyDigits {
	return keyDigits{bits: 1, load: func(out []uint64, at int) {
		for i := range out {
			out[i] = 0
			if k.Column.IsValid(at+i) == k.NullsFirst {
				out[i] = 1
			}
		}
	}}
}

// wideDigits splits 16-byte values into a signed upper and an unsigned lower word.
func (d *Device) wideDigits(k gpu.SortKey) ([]keyDigits, error) {
	values := gpu.Values[gpu.Int128](k.Column.Data, k.Column.Len)
	upper, err := d.compress(k, func(out []uint64, at int) {
		for i := range out {
			out[i] = uint64(values[at+i].Hi) ^ 1<<63
		}
	})
	if err != nil {
		return nil, err
	}
	lower, err := d.compress(k, func(out []uint64, at int) {
		for i := range out {
			out[i] = values[at+i].Lo
		}
	})
	if err != nil {
		return nil, err
	}
	return append(upper, lower[len(lower)-1]), nil
}

// ranks sorts the values of a string column, or of a dictionary of any type, by
// comparison, and gives equal values equal ranks. load loads the ranks of rows.
func (d *Device) ranks(l *gpu.Lease, c gpu.Column) (load func(out []uint64, at int), ranks array[uint32], err error) {
	if c.Dict != nil && c.Dict.Values.Len > c.Len { // most values have no row
		plain, err := d.expand(l, c)
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
	ordered, err := newArray[item](l, n)
	if err != nil {
		return nil, ranks, err
	}
	defer func() { ordered.release() }()
	items := ordered.v
	err = d.parallel(n, grain, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			items[i] = item{prefix(data[off[i]:off[i+1]]), int32(i)}
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
	run := max((n+d.threads-1)/d.threads, 1)
	err = d.parallel(n, run, func(lo, hi int) error {
		slices.SortFunc(items[lo:hi], compare)
		return nil
	})
	if err != nil {
		return nil, ranks, err
	}
	for ; run < n; run *= 2 {
		into, err := newArray[item](l, n)
		if err != nil {
			return nil, ranks, err
		}
		merged := into.v
		err = d.parallel(n, 2*run, func(lo, hi int) error {
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
		ordered.release()
		ordered, items = into, merged
		if err != nil {
			return nil, ranks, err
		}
	}
	if ranks, err = newArray[uint32](l, n); err != nil {
		return nil, ranks, err
	}
	rank := ranks.v
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
			out[i] = 0
			if int(code) < len(rank) {
				out[i] = uint64(rank[code])
			}
		}
	}, ranks, nil
}

// prefix returns the first eight bytes as a big-endian number.
func prefix(b []byte) uint64 {
	var p uint64
	for i := range 8 {
		p <<= 8
		if i < len(b) {
			p |= uint64(b[i])
		}
	}
	return p
}
