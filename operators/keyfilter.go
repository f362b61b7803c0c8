package operators

import (
	"errors"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

// Filtering is a Blocking operator whose collected rows exclude rows of its streaming input, as the
// build side of an inner join does for its probe side.
type Filtering interface {
	Blocking
	// KeyFilter returns the filter that Task.Filter has asked for, once the operator is finalised.
	// It is nil if the operator has none.
	KeyFilter() *KeyFilter
}

// FilterKind is the information in a KeyFilter.
type FilterKind uint8

// The kinds of filters: none, the bounds of the keys, bounds with a Bloom filter, and bounds with a hash table of the
// keys in memory of the device.
const (
	NoFilter FilterKind = iota
	BoundsFilter
	BloomFilter
	TableFilter
)

// KeyFilter tells which keys the build side of a join may have, by their bounds, and by a blocked
// Bloom filter over their hashes (Putze et al., Cache-, hash- and space-efficient Bloom filters,
// WEA 2007) or a hash table. A row that it drops has no match. About one in fifty rows without a match passes the Bloom
// filter. It is safe for concurrent use.
type KeyFilter struct {
	min, max []gpu.Scalar   // by key
	bounded  []bool         // by key
	values   [][]gpu.Scalar // by key: the different values, if there are few
	buf      *gpu.Buffer
	blocks   []filterBlock // empty if there are too many keys
	table    gpu.Table     // nil without one
}

// filterBlock is half a cache line. A key has one bit in each word.
type filterBlock [4]uint64

const (
	filterBits = 12 // per key
	// filterGrain is the number of keys that one goroutine adds.
	filterGrain = 1 << 18
)

// filterSeed is the seed of the hashes in filters. No result depends on it.
var filterSeed = rand.Uint64()

// NewKeyFilter makes the filter that a task asks for, nil for none, from the rows of key columns. A
// Bloom filter requires them in host-addressable memory. The task's lease pays for it until
// Release. Cost: two passes over the keys for their bounds, one for their hashes, and one random
// access to the Bloom filter per row. Keys of a GPU are copied to the host for their bounds.
func NewKeyFilter(t Task, keys []gpu.Column, rows int) (*KeyFilter, error) {
	if t.Filter == NoFilter {
		return nil, nil
	}
	f := &KeyFilter{min: make([]gpu.Scalar, len(keys)), max: make([]gpu.Scalar, len(keys)),
		bounded: make([]bool, len(keys)), values: make([][]gpu.Scalar, len(keys))}
	for i, k := range keys {
		var err error
		if f.bounded[i], err = f.look(t, i, k); err != nil {
			return nil, err
		}
	}
	if t.Filter == TableFilter {
		return f, f.build(t, keys, rows)
	}
	size := (int64(rows)*filterBits/8 + 31) / 32 * 32
	if t.Filter != BloomFilter || size == 0 || size > grant.KeyFilter.Most {
		return f, nil
	}
	hashes, err := t.Queue.Hash(t.Lease, keys, filterSeed)
	if err != nil {
		return nil, err
	}
	defer hashes.Release()
	if f.buf, err = t.Lease.Alloc(size); err != nil {
		return nil, err
	}
	f.blocks = gpu.Values[filterBlock](f.buf, int(size/32))
	clear(f.blocks)
	h := gpu.Values[uint64](hashes.Data, rows)
	var adding sync.WaitGroup
	for at := 0; at < rows; at += filterGrain {
		adding.Go(func() { f.add(h[at:min(at+filterGrain, rows)]) })
	}
	adding.Wait()
	return f, nil
}

// build makes the table of more keys than the filter knows by value: of one key with bounds. Without memory there is
// no table.
func (f *KeyFilter) build(t Task, keys []gpu.Column, rows int) (err error) {
	if rows <= mostValues || len(keys) != 1 || !f.bounded[0] {
		return nil
	}
	f.table, err = t.Queue.BuildTable(t.Lease, keys, []bool{false}, tableRanks*uint64(rows))
	if gpu.IsOutOfMemory(err) {
		f.table, err = nil, nil
	}
	return err
}

// tableRanks is the number of values in the range of the keys, for each row, up to which a table has a bitmap of them.
const tableRanks = 32

// mostDown bounds the bytes of a key that are copied to the host for its bounds.
const mostDown = 64 << 20

// mostValues is the number of rows up to which a filter knows the values of its keys.
const mostValues = 1024

// look finds out the bounds of key i, and its values if they are few. ok is false if it has no bounds: because of its
// type, or because it is too large to copy to the host.
func (f *KeyFilter) look(t Task, i int, key gpu.Column) (ok bool, err error) {
	k := key.Type
	f.min[i], f.max[i] = gpu.Null(k), gpu.Null(k)
	ok = !k.Wide && !k.IsFloat() && !k.IsVar() && k.Kind != gpu.Bool && key.Dict == nil
	few := key.Len <= mostValues && !k.IsFloat() && k.Kind != gpu.Bool
	if !ok && !few || t.Device.Budget() != t.Device.HostBudget() && key.Bytes() > mostDown {
		return false, nil
	}
	l := t.Device.HostBudget().Lease("bounds of the keys of a join")
	defer func() { err = errors.Join(err, l.Close()) }()
	q := t.Queue
	if key.Dict != nil { // a queue keeps dictionaries that it has copied, so t.Queue would keep memory of l
		if q, err = t.Device.NewQueue(l.Name()); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, q.Close()) }()
	}
	s := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "key", Type: k, Nullable: true}),
		Cols: []gpu.Column{key.Retain()}, Rows: key.Len}
	down, err := q.Download(l, s)
	if err != nil {
		s.Release()
		return false, err
	}
	defer down.Release()
	if ok {
		f.min[i], f.max[i] = bounds(down.Cols[0])
	}
	if few {
		f.values[i] = different(down.Cols[0])
	}
	return ok, nil
}

// different returns the different values of a column in host memory, without nulls, in ascending order.
func different(c gpu.Column) []gpu.Scalar {
	seen := map[gpu.Scalar]bool{}
	for i := range c.Len {
		if v := c.ScalarAt(i); v.Valid {
			seen[v] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), gpu.Scalar.Compare)
}

// bounds returns the bounds of a column of integers of up to 8 bytes.
func bounds(c gpu.Column) (least, greatest gpu.Scalar) {
	if c.Type.IsUnsigned() {
		switch c.Type.Width() {
		case 1:
			return extremes(c, gpu.Values[uint8](c.Data, c.Len))
		case 2:
			return extremes(c, gpu.Values[uint16](c.Data, c.Len))
		case 4:
			return extremes(c, gpu.Values[uint32](c.Data, c.Len))
		default:
			return extremes(c, gpu.Values[uint64](c.Data, c.Len))
		}
	}
	switch c.Type.Width() {
	case 1:
		return extremes(c, gpu.Values[int8](c.Data, c.Len))
	case 2:
		return extremes(c, gpu.Values[int16](c.Data, c.Len))
	case 4:
		return extremes(c, gpu.Values[int32](c.Data, c.Len))
	default:
		return extremes(c, gpu.Values[int64](c.Data, c.Len))
	}
}

func extremes[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](c gpu.Column,
	values []T) (least, greatest gpu.Scalar) {
	least, greatest = gpu.Null(c.Type), gpu.Null(c.Type)
	first := 0
	for first < len(values) && !c.IsValid(first) {
		first++
	}
	if first == len(values) {
		return least, greatest
	}
	lo, hi := values[first], values[first]
	if c.Valid == nil {
		lo, hi = slices.Min(values), slices.Max(values)
	} else {
		for i, v := range values {
			if c.IsValid(i) {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	return scalar(c.Type, lo), scalar(c.Type, hi)
}

func scalar[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](t gpu.Type, v T) gpu.Scalar {
	s := gpu.Scalar{Type: t, Valid: true, Int: gpu.Int128From(int64(v))}
	if t.IsUnsigned() {
		s.Int = gpu.Int128FromUint(uint64(v))
	}
	return s
}

// place returns the block of a hash, which its upper bits select, and the bits in that block, which
// its lower bits select.
func (f *KeyFilter) place(h uint64) (*filterBlock, filterBlock) {
	at, _ := bits.Mul64(h, uint64(len(f.blocks)))
	return &f.blocks[at], filterBlock{1 << (h & 63), 1 << (h >> 6 & 63), 1 << (h >> 12 & 63), 1 << (h >> 18 & 63)}
}

func (f *KeyFilter) add(hashes []uint64) {
	for _, h := range hashes {
		b, mask := f.place(h)
		for i, m := range mask {
			atomic.OrUint64(&b[i], m)
		}
	}
}

// Release releases the memory of a filter, which may be nil.
func (f *KeyFilter) Release() {
	if f != nil {
		f.buf.Release()
		f.buf, f.blocks = nil, nil
		if f.table != nil {
			f.table.Release()
			f.table = nil
		}
	}
}

// Bounds returns the least and the greatest value of key i, nulls if there is no value. ok is false
// for keys that are not stored as integers of up to 8 bytes.
func (f *KeyFilter) Bounds(i int) (least, greatest gpu.Scalar, ok bool) {
	return f.min[i], f.max[i], f.bounded[i]
}

// Values returns the different values of key i, without nulls. ok is false if they are too many to be known.
func (f *KeyFilter) Values(i int) (values []gpu.Scalar, ok bool) {
	return f.values[i], f.values[i] != nil
}

// Tests reports whether the filter tests single rows, and not only bounds.
func (f *KeyFilter) Tests() bool { return len(f.blocks) > 0 }

// Decides reports whether the filter has a table, by which Matched tells which rows have a match.
func (f *KeyFilter) Decides() bool { return f.table != nil }

// Matched returns a Bool column without nulls that says for each row of key columns, in memory of the filter's device,
// whether it has a match.
func (f *KeyFilter) Matched(q gpu.Queue, l *gpu.Lease, keys []gpu.Column) (gpu.Column, error) {
	m, err := f.table.Match(q, l, keys)
	if err != nil {
		return gpu.Column{}, err
	}
	defer m.Release()
	return m.Matched(q, l)
}

// Rows are dropped only if they are at least 1/leastDropped of a stride. To gather all other rows
// costs more than to keep a few.
const leastDropped = 8

// Drop returns the rows of a stride whose keys, the columns at the given positions, may have a
// match, and the number of dropped rows. It takes the stride over. The result is nil if no row is
// left.
func (f *KeyFilter) Drop(t Task, s *gpu.Stride, columns []int) (_ *gpu.Stride, dropped int, err error) {
	defer func() {
		if err != nil {
			s.Release()
		}
	}()
	hashes, err := t.Queue.Hash(t.Lease, Pick(s.Cols, columns), filterSeed)
	if err != nil {
		return nil, 0, err
	}
	defer hashes.Release()
	bitmap, err := t.Lease.Alloc(gpu.BitmapBytes(s.Rows))
	if err != nil {
		return nil, 0, err
	}
	truth := gpu.Column{Type: gpu.Of(gpu.Bool), Len: s.Rows, Data: bitmap}
	defer truth.Release()
	kept := f.test(gpu.Values[uint64](hashes.Data, s.Rows), gpu.Words(bitmap, s.Rows))
	dropped = s.Rows - kept
	switch {
	case kept == 0:
		s.Release()
		return nil, dropped, nil
	case dropped*leastDropped < s.Rows:
		return s, 0, nil
	}
	ids, err := t.Queue.Select(t.Lease, truth, true)
	if err != nil {
		return nil, 0, err
	}
	defer ids.Release()
	cols, err := t.Queue.Gather(t.Lease, s.Cols, ids, false)
	if err != nil {
		return nil, 0, err
	}
	out := &gpu.Stride{Schema: s.Schema, Cols: cols, Rows: kept}
	s.Release()
	return out, dropped, nil
}

// test writes a bit for each hash that says whether a key may have it, and returns the number of
// set bits.
func (f *KeyFilter) test(hashes []uint64, out []uint64) (kept int) {
	for w := range out {
		word := uint64(0)
		for i, h := range hashes[w*64 : min(w*64+64, len(hashes))] {
			b, m := f.place(h)
			missing := m[0]&^b[0] | m[1]&^b[1] | m[2]&^b[2] | m[3]&^b[3]
			word |= (^(missing | -missing) >> 63) << i
		}
		out[w] = word
		kept += bits.OnesCount64(word)
	}
	return kept
}
