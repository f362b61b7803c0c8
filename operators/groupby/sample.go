package groupby

import (
	"errors"

	"github.com/gstream/gstream/gpu"
)

// A sample is pieces of the key of a stride.
const (
	samplePieces = 16
	sampledKeys  = 1 << 16
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
	count := gpu.Of(gpu.Int64)
	groups, err := t.Queue.AggregatePartitions(t.Lease, gpu.Partitioned{Key: keys}, []gpu.Aggregate{{Kind: gpu.CountAll, Output: count}}, []gpu.Column{{}}, gpu.GroupHint{})
	if errors.Is(err, gpu.ErrManyGroups) {
		return nil
	}
	if err != nil {
		return err
	}
	defer gpu.ReleaseColumns(groups)
	ones, err := t.Queue.Eval(t.Lease, isOne, groups[1:], groups[1].Len)
	if err != nil {
		return err
	}
	defer gpu.ReleaseColumns(ones)
	singles, err := t.Queue.Select(t.Lease, ones[0], true)
	if err != nil {
		return err
	}
	defer singles.Release()
	found, once := groups[0].Len, singles.Len
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
