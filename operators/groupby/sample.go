package groupby

import "github.com/gstream/gstream/gpu"

// A sample is pieces of the key of a stride.
const (
	samplePieces = 16
	sampledKeys  = 1 << 14
	// sampleUnseen is the share of rows, one in so many, that may have keys the sample lacks.
	sampleUnseen = 30
)

// isOne is the program of x = 1.
var isOne = &gpu.Program{Inputs: []gpu.Type{gpu.Of(gpu.Int64)}, Outputs: []int{2}, Code: []gpu.Instr{
	{Op: gpu.OpConst, Type: gpu.Of(gpu.Int64), Value: gpu.IntScalar(gpu.Of(gpu.Int64), 1), Mask: -1},
	{Op: gpu.OpEq, Type: gpu.Of(gpu.Bool), Args: []int{0, 1}, Mask: -1}}}

// sample counts the keys of a part of the first stride, when the planner says that they are too many for tables of
// blocks. There may be few of them in truth, or few that nearly all rows have. Once in a sample is about
// how often a key that it lacks comes next (Good, Biometrika 1953).
func (l *local) sample(by key) error {
	l.keysSampled.Store(true)
	t := l.task
	piece := min(sampledKeys, by.Len) / samplePieces
	var parts []gpu.Column
	defer func() { gpu.ReleaseColumns(parts) }()
	for i := range samplePieces {
		from := i * (by.Len / samplePieces)
		c, err := t.Queue.Slice(t.Lease, by.Column, from, from+piece)
		if err != nil {
			return err
		}
		parts = append(parts, c)
	}
	keys, err := t.Queue.Concat(t.Lease, parts)
	if err != nil {
		return err
	}
	defer keys.Release()
	found, once, err := l.singles(keys)
	if err != nil {
		return err
	}
	missed := once * (by.Len / keys.Len)
	switch {
	case found > l.blockSlots(t.Device.Properties(), by.bytes, false)/2 || once > keys.Len/sampleUnseen:
	case once == 0:
		l.expect.Store(int64(found))
	default:
		l.skewed.Store(true)
		l.expect.Store(int64(min(l.expected(), found+missed)))
	}
	return nil
}

// singles returns how many keys there are, and how many of them come once.
func (l *local) singles(keys gpu.Column) (found, once int, err error) {
	t := l.task
	x := &table{keys: []int{0}, inputs: []int{-1}}
	if x.groups, err = t.Queue.NewGroups(t.Lease, []gpu.Type{keys.Type}, gpu.GroupHint{Groups: keys.Len}); err != nil {
		return 0, 0, err
	}
	defer x.release()
	if x.accs, err = newAccumulators(t, []gpu.Aggregate{{Kind: gpu.CountAll, Output: gpu.Of(gpu.Int64)}}); err != nil {
		return 0, 0, err
	}
	if _, err := x.take(t, &gpu.Stride{Cols: []gpu.Column{keys}, Rows: keys.Len}); err != nil {
		return 0, 0, err
	}
	counts, err := x.measure(t, 0, 0, x.len())
	if err != nil {
		return 0, 0, err
	}
	defer counts.Release()
	ones, err := t.Queue.Eval(t.Lease, isOne, []gpu.Column{counts}, counts.Len)
	if err != nil {
		return 0, 0, err
	}
	defer gpu.ReleaseColumns(ones)
	ids, err := t.Queue.Select(t.Lease, ones[0], true)
	if err != nil {
		return 0, 0, err
	}
	defer ids.Release()
	return x.len(), ids.Len, nil
}
