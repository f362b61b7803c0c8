package aggregate

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/sorting"
)

const (
	// treeFan is the number of children of a node of a tree: values, or nodes of the level below.
	treeFan = 16
	// treeRows is the length from which a range is read from the tree.
	treeRows = 4 * treeFan
	// rangeGrain is the number of ranges that a core takes at a time.
	rangeGrain = 1 << 14
)

// folding is a monoid over rows: S is the fold of some rows, and its zero value is the fold of
// none. add adds one row to a fold, and merge adds the fold of later rows.
type folding[S any] struct {
	zero  S
	add   func(s *S, row int)
	merge func(s *S, other S)
	// slide turns the fold of [a, b) into a fold that begins at from, if that is less work than a
	// new fold; the caller then extends it to [from, to). a <= from <= b <= to. It reports whether
	// it did. It may be nil.
	slide func(s *S, a, from int) bool
}

// tree has the folds of treeFan rows each, the folds of treeFan of these, and so on. It is built
// when it is first needed.
type tree[S any] struct {
	folding[S]
	cores  parallel.Cores
	lease  *gpu.Lease
	rows   int
	once   sync.Once
	err    error
	levels []memory.Array[S]
}

func (t *tree[S]) build() error {
	t.once.Do(func() {
		for n := t.rows; n > treeFan; {
			nodes := (n + treeFan - 1) / treeFan
			level, err := memory.New[S](t.lease, nodes)
			if err != nil {
				t.err = err
				return
			}
			t.err = t.cores.For(nodes, parallel.Grain/treeFan, func(from, to int) error {
				for i := from; i < to; i++ {
					s := t.zero
					lo, hi := i*treeFan, min((i+1)*treeFan, n)
					if len(t.levels) == 0 {
						for r := lo; r < hi; r++ {
							t.add(&s, r)
						}
					} else {
						for _, below := range t.levels[len(t.levels)-1].V[lo:hi] {
							t.merge(&s, below)
						}
					}
					level.V[i] = s
				}
				return nil
			})
			t.levels = append(t.levels, level)
			if t.err != nil {
				return
			}
			n = nodes
		}
	})
	return t.err
}

// fold returns the fold of rows [lo, hi). It adds rows and nodes in their order.
func (t *tree[S]) fold(lo, hi int) (S, error) {
	s := t.zero
	if hi-lo < treeRows {
		for r := lo; r < hi; r++ {
			t.add(&s, r)
		}
		return s, nil
	}
	if err := t.build(); err != nil {
		return s, err
	}
	t.climb(&s, -1, lo, hi)
	return s, nil
}

// climb adds nodes [lo, hi) of a level; level -1 is the rows.
func (t *tree[S]) climb(s *S, level, lo, hi int) {
	add := func(from, to int) {
		if level >= 0 {
			for _, n := range t.levels[level].V[from:to] {
				t.merge(s, n)
			}
			return
		}
		for r := from; r < to; r++ {
			t.add(s, r)
		}
	}
	up, down := (lo+treeFan-1)/treeFan, hi/treeFan
	if level+1 == len(t.levels) || up >= down {
		add(lo, hi)
		return
	}
	add(lo, up*treeFan)
	t.climb(s, level+1, up, down)
	add(down*treeFan, hi)
}

func (t *tree[S]) release() {
	for i := range t.levels {
		t.levels[i].Release()
	}
}

// foldRanges calls write with the fold of each range of rows. It processes the ranges in order, in
// tasks of whole bitmap words, and computes a fold from the previous one if possible.
func foldRanges[S any](cores parallel.Cores, l *gpu.Lease, f folding[S], rows int, from, to []int32,
	write func(i int, s *S) error) error {
	t := &tree[S]{folding: f, cores: cores, lease: l, rows: rows}
	defer t.release()
	return cores.For(len(from), rangeGrain, func(first, last int) error {
		s := t.zero
		a, b := 0, 0 // s is the fold of [a, b)
		for i := first; i < last; i++ {
			lo, hi := int(from[i]), int(to[i])
			if lo >= hi {
				none := t.zero
				if err := write(i, &none); err != nil {
					return err
				}
				continue
			}
			if keeps := lo >= a && lo < b && hi >= b && hi-b < treeRows &&
				(lo == a || t.slide != nil && t.slide(&s, a, lo)); keeps {
				for r := b; r < hi; r++ {
					t.add(&s, r)
				}
			} else {
				var err error
				if s, err = t.fold(lo, hi); err != nil {
					return err
				}
			}
			a, b = lo, hi
			if err := write(i, &s); err != nil {
				return err
			}
		}
		return nil
	})
}

// counted is the fold of values that are not null, and their number.
type counted[T any] struct {
	n int64
	v T
}

// Fold returns an aggregate of each range [from[i], to[i]) of rows.
func Fold(cores parallel.Cores, l *gpu.Lease, a gpu.Aggregate, c gpu.Column, from, to []int32) (gpu.Column, error) {
	out := gpu.Column{Type: a.Output, Len: len(from)}
	if err := foldInto(cores, l, a, c, from, to, &out); err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	return out, nil
}

// foldInto writes the result of foldRows to out. After an error the caller releases what there is.
func foldInto(cores parallel.Cores, l *gpu.Lease, a gpu.Aggregate, c gpu.Column, from, to []int32,
	out *gpu.Column) (err error) {
	if err := allocValues(l, out); err != nil {
		return err
	}
	if a.Kind == gpu.Count {
		return foldCounts(cores, l, c, from, to, gpu.Values[int64](out.Data, out.Len))
	}
	if out.Valid, err = l.Alloc(gpu.BitmapBytes(out.Len)); err != nil {
		return err
	}
	valid := gpu.Words(out.Valid, out.Len)
	clear(valid)
	switch {
	case a.Kind == gpu.Sum && c.Type.IsFloat():
		load, sums := doubles(c), gpu.Values[float64](out.Data, out.Len)
		return foldValues(cores, l, c, from, to, valid, monoid[twofold]{
			add:   func(s *twofold, row int) { s.add(load(row)) },
			merge: func(s *twofold, other twofold) { s.add(other.hi); s.lo += other.lo },
			write: func(i int, s twofold) error { sums[i] = s.value(); return nil },
		})
	case a.Kind == gpu.Sum:
		if done, err := foldNarrow(cores, l, c, from, to, valid, gpu.Values[gpu.Int128](out.Data, out.Len)); done ||
			err != nil {
			return err
		}
		load := wideValues(c)
		return foldValues(cores, l, c, from, to, valid, monoid[int192]{
			add:    func(s *int192, row int) { s.add(load(row)) },
			merge:  func(s *int192, other int192) { s.merge(other) },
			remove: func(s *int192, row int) { s.subtract(load(row)) },
			write: func(i int, s int192) error {
				v := gpu.Int128{Lo: s.lo, Hi: int64(s.mid)}
				if s.top != v.Hi>>63 {
					return gpu.Failed("sum overflows 128 bits")
				}
				if out.Type.Kind == gpu.Decimal && !v.FitsPrecision(int(out.Type.Precision)) {
					return gpu.Failed("sum %s does not fit %v", v.Format(int(out.Type.Scale)), out.Type)
				}
				gpu.Values[gpu.Int128](out.Data, out.Len)[i] = v
				return nil
			},
		})
	case a.Kind == gpu.Product:
		factors, products := gpu.Values[float64](c.Data, c.Len), gpu.Values[float64](out.Data, out.Len)
		return foldValues(cores, l, c, from, to, valid, monoid[float64]{
			zero:  1,
			add:   func(s *float64, row int) { *s *= factors[row] },
			merge: func(s *float64, other float64) { *s *= other },
			write: func(i int, s float64) error { products[i] = s; return nil },
		})
	}
	return foldBits(cores, l, a.Kind, c, from, to, valid, out)
}

// foldNarrow sums ranges of integers of at most 8 bytes. It returns false, without a result, if a
// sum may overflow 64 bits.
func foldNarrow(cores parallel.Cores, l *gpu.Lease, c gpu.Column, from, to []int32, valid []uint64,
	out []gpu.Int128) (bool, error) {
	switch {
	case c.Type.Wide || c.Type.Kind == gpu.Uint64:
		return false, nil
	case c.Type.Width() == 8:
		return foldPrefixes(cores, l, c, gpu.Values[int64](c.Data, c.Len), from, to, valid, out)
	case c.Type.Kind == gpu.Uint32:
		return foldPrefixes(cores, l, c, gpu.Values[uint32](c.Data, c.Len), from, to, valid, out)
	case c.Type.Width() == 4:
		return foldPrefixes(cores, l, c, gpu.Values[int32](c.Data, c.Len), from, to, valid, out)
	case c.Type.Kind == gpu.Uint16:
		return foldPrefixes(cores, l, c, gpu.Values[uint16](c.Data, c.Len), from, to, valid, out)
	case c.Type.Width() == 2:
		return foldPrefixes(cores, l, c, gpu.Values[int16](c.Data, c.Len), from, to, valid, out)
	case c.Type.Kind == gpu.Uint8:
		return foldPrefixes(cores, l, c, gpu.Values[uint8](c.Data, c.Len), from, to, valid, out)
	}
	return foldPrefixes(cores, l, c, gpu.Values[int8](c.Data, c.Len), from, to, valid, out)
}

// sumBefore is the sum of the values of all rows before a row, and the number of these values that
// are not null.
type sumBefore struct {
	row    int
	sum, n int64
}

// prefixes has the sums before every prefixRows rows.
type prefixes[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32] struct {
	values []T
	valid  []uint64 // nil without nulls
	before []sumBefore
}

const prefixRows = 64

// foldPrefixes computes each sum as the difference of two prefix sums. Most ranges begin and end a
// few rows after the previous range.
func foldPrefixes[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](cores parallel.Cores, l *gpu.Lease,
	c gpu.Column,
	values []T, from, to []int32, valid []uint64, out []gpu.Int128) (bool, error) {
	before, err := memory.New[sumBefore](l, c.Len/prefixRows+1)
	if err != nil {
		return true, err
	}
	defer before.Release()
	x := prefixes[T]{values, gpu.Words(c.Valid, c.Len), before.V}
	var all atomic.Uint64
	err = cores.For(len(before.V), parallel.Grain/prefixRows, func(first, last int) error {
		size := int64(0)
		for b := first; b < last; b++ {
			p := sumBefore{row: b * prefixRows}
			for _, v := range values[p.row:min(p.row+prefixRows, c.Len)] {
				size |= int64(v) ^ int64(v)>>63
			}
			x.move(&p, min(p.row+prefixRows, c.Len))
			before.V[b] = p
		}
		all.Or(uint64(size))
		return nil
	})
	if err != nil {
		return true, err
	}
	if high, most := bits.Mul64(uint64(c.Len), all.Load()+1); high != 0 || most > math.MaxInt64 {
		return false, nil
	}
	sum := sumBefore{}
	for b, p := range before.V {
		sum.row = b * prefixRows
		before.V[b] = sum
		sum.sum, sum.n = sum.sum+p.sum, sum.n+p.n
	}
	return true, cores.For(len(from), rangeGrain, func(first, last int) error {
		var lo, hi sumBefore
		for i := first; i < last; i++ {
			out[i] = gpu.Int128{}
			if from[i] >= to[i] {
				continue
			}
			x.seek(&lo, int(from[i]))
			x.seek(&hi, int(to[i]))
			out[i] = gpu.Int128From(hi.sum - lo.sum)
			if hi.n > lo.n {
				valid[i/64] |= 1 << (i % 64)
			}
		}
		return nil
	})
}

// seek sets p to the sum before a row.
func (x *prefixes[T]) seek(p *sumBefore, row int) {
	if row < p.row || row-p.row > prefixRows {
		*p = x.before[row/prefixRows]
	}
	x.move(p, row)
}

// move adds the values up to a row.
func (x *prefixes[T]) move(p *sumBefore, row int) {
	if x.valid == nil {
		p.n += int64(row - p.row)
		for _, v := range x.values[p.row:row] {
			p.sum += int64(v)
		}
	} else {
		for r := p.row; r < row; r++ {
			if x.valid[r/64]>>(r%64)&1 != 0 {
				p.n++
				p.sum += int64(x.values[r])
			}
		}
	}
	p.row = row
}

// monoid is a folding of values that are not null. remove removes a row from a fold; nil if that is
// impossible.
type monoid[T any] struct {
	zero   T
	add    func(s *T, row int)
	merge  func(s *T, other T)
	remove func(s *T, row int)
	write  func(i int, s T) error
}

// foldValues folds the values that are not null. It sets the bit in valid of each range that has
// such a value.
func foldValues[T any](cores parallel.Cores, l *gpu.Lease, c gpu.Column, from, to []int32, valid []uint64,
	m monoid[T]) error {
	f := folding[counted[T]]{
		zero: counted[T]{v: m.zero},
		add: func(s *counted[T], row int) {
			if c.IsValid(row) {
				s.n++
				m.add(&s.v, row)
			}
		},
		merge: func(s *counted[T], other counted[T]) {
			s.n += other.n
			m.merge(&s.v, other.v)
		},
	}
	if m.remove != nil {
		f.slide = func(s *counted[T], a, from int) bool {
			if from-a > treeRows {
				return false
			}
			for r := a; r < from; r++ {
				if c.IsValid(r) {
					s.n--
					m.remove(&s.v, r)
				}
			}
			return true
		}
	}
	return foldRanges(cores, l, f, c.Len, from, to, func(i int, s *counted[T]) error {
		if s.n > 0 {
			valid[i/64] |= 1 << (i % 64)
		}
		return m.write(i, s.v)
	})
}

// foldCounts counts the values of ranges that are not null, by prefix counts for each word of the
// bitmap.
func foldCounts(cores parallel.Cores, l *gpu.Lease, c gpu.Column, from, to []int32, out []int64) error {
	words := gpu.Words(c.Valid, c.Len)
	before, err := memory.New[int32](l, len(words)+1)
	if err != nil {
		return err
	}
	defer before.Release()
	n := int32(0)
	for i, w := range words {
		before.V[i] = n
		n += int32(bits.OnesCount64(w))
	}
	rank := func(row int32) int32 {
		if words == nil {
			return row
		}
		if int(row/64) == len(words) { // the end of the last word
			return n
		}
		return before.V[row/64] + int32(bits.OnesCount64(words[row/64]&(1<<(row%64)-1)))
	}
	return cores.For(len(from), rangeGrain, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			out[i] = 0
			if from[i] < to[i] {
				out[i] = int64(rank(to[i]) - rank(from[i]))
			}
		}
		return nil
	})
}

// foldBits folds integers by a bit operation.
func foldBits(cores parallel.Cores, l *gpu.Lease, kind gpu.AggregateKind, c gpu.Column, from, to []int32,
	valid []uint64,
	out *gpu.Column) error {
	load, width := wideValues(c), c.Type.Width()
	dst := out.Data.Bytes()
	m := monoid[gpu.Int128]{write: func(i int, s gpu.Int128) error {
		copy(dst[i*width:(i+1)*width], gpu.BytesOf([]gpu.Int128{s}))
		return nil
	}}
	switch kind {
	case gpu.BitAnd:
		m.zero = gpu.Int128From(-1)
		m.merge = func(s *gpu.Int128, v gpu.Int128) { s.Lo, s.Hi = s.Lo&v.Lo, s.Hi&v.Hi }
	case gpu.BitOr:
		m.merge = func(s *gpu.Int128, v gpu.Int128) { s.Lo, s.Hi = s.Lo|v.Lo, s.Hi|v.Hi }
	default:
		m.merge = func(s *gpu.Int128, v gpu.Int128) { s.Lo, s.Hi = s.Lo^v.Lo, s.Hi^v.Hi }
	}
	m.add = func(s *gpu.Int128, row int) { m.merge(s, load(row)) }
	return foldValues(cores, l, c, from, to, valid, m)
}

// int192 is a sum of at most 2^63 integers of 128 bits.
type int192 struct {
	lo, mid uint64
	top     int64
}

func (s *int192) add(v gpu.Int128) { s.merge(int192{v.Lo, uint64(v.Hi), v.Hi >> 63}) }

func (s *int192) merge(v int192) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, v.lo, 0)
	s.mid, carry = bits.Add64(s.mid, v.mid, carry)
	s.top += v.top + int64(carry)
}

func (s *int192) subtract(v gpu.Int128) {
	var borrow uint64
	s.lo, borrow = bits.Sub64(s.lo, v.Lo, 0)
	s.mid, borrow = bits.Sub64(s.mid, uint64(v.Hi), borrow)
	s.top -= v.Hi>>63 + int64(borrow)
}

// wideValues returns a function that loads a value of an integer or decimal column.
func wideValues(c gpu.Column) func(row int) gpu.Int128 {
	n := c.Len
	switch {
	case c.Type.Wide:
		v := gpu.Values[gpu.Int128](c.Data, n)
		return func(i int) gpu.Int128 { return v[i] }
	case c.Type.Kind == gpu.Uint64:
		v := gpu.Values[uint64](c.Data, n)
		return func(i int) gpu.Int128 { return gpu.Int128FromUint(v[i]) }
	case c.Type.Width() == 8:
		return widened(gpu.Values[int64](c.Data, n))
	case c.Type.Kind == gpu.Uint32:
		return widened(gpu.Values[uint32](c.Data, n))
	case c.Type.Width() == 4:
		return widened(gpu.Values[int32](c.Data, n))
	case c.Type.Kind == gpu.Uint16:
		return widened(gpu.Values[uint16](c.Data, n))
	case c.Type.Width() == 2:
		return widened(gpu.Values[int16](c.Data, n))
	case c.Type.Kind == gpu.Uint8:
		return widened(gpu.Values[uint8](c.Data, n))
	}
	return widened(gpu.Values[int8](c.Data, n))
}

func widened[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](v []T) func(row int) gpu.Int128 {
	return func(i int) gpu.Int128 { return gpu.Int128From(int64(v[i])) }
}

// doubles returns a function that loads a value of a float column.
func doubles(c gpu.Column) func(row int) float64 {
	if c.Type.Kind == gpu.Float32 {
		v := gpu.Values[float32](c.Data, c.Len)
		return func(i int) float64 { return float64(v[i]) }
	}
	v := gpu.Values[float64](c.Data, c.Len)
	return func(i int) float64 { return v[i] }
}

// Extreme returns for each range of rows [from[i], to[i]) the first row in the order of a key, or
// -1 if all keys of the range are null. Of equal rows it is the first one, or the last one if last is
// set.
func Extreme(cores parallel.Cores, l *gpu.Lease, key gpu.SortKey, last bool, from, to []int32) (gpu.Column, error) {
	c := key.Column
	ids, err := memory.New[int32](l, len(from))
	if err != nil {
		return gpu.Column{}, err
	}
	compare, least := sorting.CompareColumns(c, c), 0
	if last {
		least = 1
	}
	if key.Descending {
		ascending := compare
		compare = func(i, j int) int { return -ascending(i, j) }
	}
	// A fold is 1 + the id of its row, or 0 for no row.
	merge := func(s *int32, other int32) {
		if other != 0 && (*s == 0 || compare(int(other)-1, int(*s)-1) < least) {
			*s = other
		}
	}
	f := folding[int32]{
		add: func(s *int32, row int) {
			if c.IsValid(row) {
				merge(s, int32(row)+1)
			}
		},
		merge: merge,
		slide: func(s *int32, _, from int) bool { return int(*s)-1 >= from },
	}
	err = foldRanges(cores, l, f, c.Len, from, to, func(i int, s *int32) error {
		ids.V[i] = *s - 1
		return nil
	})
	if err != nil {
		ids.Release()
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: len(from), Data: ids.Buf}, nil
}
