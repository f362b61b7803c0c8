package sort

import (
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// sampled is the number of rows that a Sample has of each stride that is as long as all before it.
const sampled = 1 << 13

// Sample has the keys of some rows, evenly spread: of n rows at most about sampled × (1 + ln(n / sampled)).
// Splitters divide the rows into ranges by it (DeWitt, Naughton, Schneider: Parallel sorting on a shared-nothing
// architecture using probabilistic splitting, PDIS 1991). Lanes add strides concurrently.
type Sample struct {
	keys   []Key
	schema *gpu.Schema // of the keys

	mu   sync.Mutex
	seen int64
	rows []weighted
}

// weighted is rows of a sample. Each of them stands for a number of rows.
type weighted struct {
	*gpu.Stride
	weight int64
}

// NewSample returns an empty sample of rows of a schema.
func NewSample(in *gpu.Schema, keys []Key) *Sample {
	return &Sample{keys: keys, schema: operators.PickFields(in, columns(keys))}
}

// AddKeys adds keys of rows, in host memory that nobody pays for. Each of them stands for a number of rows.
func (s *Sample) AddKeys(rows [][]gpu.Scalar, weight int64) error {
	out, err := keyStride(s.schema, rows)
	if err == nil && len(rows) > 0 {
		s.rows = append(s.rows, weighted{out, max(weight, 1)})
	}
	return err
}

// KeyStride returns keys of rows of a schema as a stride in host memory that nobody pays for.
func KeyStride(in *gpu.Schema, by []Key, rows [][]gpu.Scalar) (*gpu.Stride, error) {
	return keyStride(operators.PickFields(in, columns(by)), rows)
}

func keyStride(schema *gpu.Schema, rows [][]gpu.Scalar) (*gpu.Stride, error) {
	out := &gpu.Stride{Schema: schema, Rows: len(rows)}
	for i, f := range schema.Fields {
		column := make([]gpu.Scalar, len(rows))
		for r, key := range rows {
			if len(key) != schema.Len() || key[i].Type != f.Type {
				return nil, fmt.Errorf("the keys of a sample have other types than those of the rows")
			}
			column[r] = key[i]
		}
		out.Cols = append(out.Cols, gpu.ColumnOf(f.Type, column))
	}
	return out, nil
}

// Keys is keys of rows, each of which stands for a number of rows.
type Keys struct {
	Rows   [][]gpu.Scalar
	Weight int64
}

// Keys returns the keys of a sample in host memory.
func (s *Sample) Keys() (out []Keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.rows {
		k := Keys{Weight: x.weight}
		for row := range x.Rows {
			var key []gpu.Scalar
			for _, c := range x.Cols {
				key = append(key, c.ScalarAt(row))
			}
			k.Rows = append(k.Rows, key)
		}
		out = append(out, k)
	}
	return out
}

// columns returns the columns of keys.
func columns(keys []Key) []int {
	out := make([]int, len(keys))
	for i, k := range keys {
		out[i] = k.Column
	}
	return out
}

// Add adds rows of a stride, which remains the caller's. The lease of the task pays for their keys.
func (s *Sample) Add(t operators.Task, rows *gpu.Stride) error {
	s.mu.Lock()
	begin := s.seen
	s.seen += int64(rows.Rows)
	s.mu.Unlock()
	step := 1 + (begin+int64(rows.Rows))/sampled
	var ids []int32
	// Rows are in blocks of step rows. Of each one there is a row at a position that looks random, so that periodic
	// keys do not deceive.
	for block := begin / step; block*step < begin+int64(rows.Rows); block++ {
		at := block*step + int64(uint64(uint32(block)*0x9e3779b9)*uint64(step)>>32) - begin
		if at >= 0 && at < int64(rows.Rows) {
			ids = append(ids, int32(at))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	where, err := operators.IDs(t, ids)
	if err != nil {
		return err
	}
	defer where.Release()
	cols, err := t.Queue.Gather(t.Lease, operators.Pick(rows.Cols, columns(s.keys)), where, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = append(s.rows, weighted{&gpu.Stride{Schema: s.schema, Cols: cols, Rows: len(ids)}, step})
	return nil
}

// ToHost copies the rows to host memory, for which a lease pays.
func (s *Sample) ToHost(q gpu.Queue, l *gpu.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.rows {
		down, err := q.Download(l, x.Stride)
		if err != nil {
			return err
		}
		s.rows[i].Stride = down
	}
	return nil
}

// Close releases the rows.
func (s *Sample) Close() {
	for _, x := range s.rows {
		x.Release()
	}
	s.rows = nil
}

// Splitters divides all rows of samples, which are in host memory, into n ranges of about equal numbers of rows. It
// returns the keys of the first row of each range but the first, in host memory, for which a lease pays: fewer than n-1
// if there are fewer rows. Rows with equal keys are in one range.
func Splitters(t operators.Task, l *gpu.Lease, samples []*Sample, n int) (*gpu.Stride, error) {
	schema, keys := samples[0].schema, samples[0].keys
	var strides []*gpu.Stride
	var weights []int64
	all := int64(0)
	release := func() {
		for _, s := range strides {
			s.Release()
		}
	}
	for _, s := range samples {
		for _, x := range s.rows {
			own := x.Retain()
			up, err := t.Queue.Upload(t.Lease, own)
			if err != nil {
				own.Release()
				release()
				return nil, err
			}
			strides = append(strides, up)
			for range x.Rows {
				weights = append(weights, x.weight)
			}
			all += int64(x.Rows) * x.weight
		}
	}
	if len(strides) == 0 {
		none := &gpu.Stride{Schema: schema}
		for _, f := range schema.Fields {
			none.Cols = append(none.Cols, gpu.ColumnOf(f.Type, nil))
		}
		return none, nil
	}
	o := &sorter{Spec: Spec{In: schema, Keys: keysOf(keys)}}
	rows, ids, err := o.sorted(t, schema, strides)
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	defer ids.Release()
	order, err := operators.Ints(t, ids)
	if err != nil {
		return nil, err
	}
	var at []int32
	before := int64(0)
	for i, id := range order {
		if len(at) < n-1 && before*int64(n) >= int64(len(at)+1)*all {
			at = append(at, int32(i))
		}
		before += weights[id]
	}
	first, err := o.rowsAt(t, rows, ids, at)
	if err != nil {
		return nil, err
	}
	down, err := t.Queue.Download(l, first)
	if err != nil {
		first.Release()
		return nil, fmt.Errorf("copy the splitters to the host: %w", err)
	}
	return down, nil
}

// keysOf returns the keys of rows that have only these columns.
func keysOf(keys []Key) []Key {
	out := make([]Key, len(keys))
	for i, k := range keys {
		out[i] = Key{Column: i, Descending: k.Descending, NullsFirst: k.NullsFirst}
	}
	return out
}

// RangeOf returns an Int32 column with the range of each row of a stride: the number of splitters that are not after
// it. The splitters are in memory of the device. It searches the splitters of equal keys before a key by the next key.
// It costs two searches a key, of 4 bytes per row each.
func RangeOf(t operators.Task, splitters *gpu.Stride, keys []Key, s *gpu.Stride) (gpu.Column, error) {
	bounds, err := t.Queue.Eval(t.Lease, constants(0, splitters.Rows), nil, s.Rows)
	if err != nil {
		return gpu.Column{}, err
	}
	from, to := bounds[0], bounds[1]
	defer func() { gpu.ReleaseColumns([]gpu.Column{from, to}) }()
	for i, k := range keys {
		by := gpu.SortKey{Column: splitters.Cols[i], Descending: k.Descending, NullsFirst: k.NullsFirst}
		after, err := t.Queue.Search(t.Lease, by, s.Cols[k.Column], true, from, to)
		if err != nil {
			return gpu.Column{}, err
		}
		if i == len(keys)-1 {
			return after, nil
		}
		first, err := t.Queue.Search(t.Lease, by, s.Cols[k.Column], false, from, to)
		if err != nil {
			after.Release()
			return gpu.Column{}, err
		}
		gpu.ReleaseColumns([]gpu.Column{from, to})
		from, to = first, after
	}
	return gpu.Column{}, fmt.Errorf("ranges without keys")
}

// constants returns the program of two INTEGER columns of one value each.
func constants(a, b int) *gpu.Program {
	t := gpu.Of(gpu.Int32)
	p := &gpu.Program{Outputs: []int{0, 1}}
	for _, v := range []int{a, b} {
		p.Code = append(p.Code, gpu.Instr{Op: gpu.OpConst, Type: t, Value: gpu.IntScalar(t, int64(v)), Mask: -1})
	}
	return p
}
