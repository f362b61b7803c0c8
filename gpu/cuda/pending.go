package cuda

import (
	"errors"

	"github.com/gstream/gstream/gpu"
)

// The primitives below have no kernels yet.
var errPending = errors.New("not on the GPU yet")

func (q *queue) Hash(*gpu.Lease, []gpu.Column) (gpu.Column, error) { return gpu.Column{}, errPending }

func (q *queue) Partition(*gpu.Lease, []gpu.Column, gpu.Column, uint, uint) ([]gpu.Column, []int, error) {
	return nil, nil, errPending
}

func (q *queue) Sort(*gpu.Lease, []gpu.SortKey) (gpu.Column, error) { return gpu.Column{}, errPending }

func (q *queue) BuildTable(*gpu.Lease, []gpu.Column, []bool) (gpu.Table, error) {
	return nil, errPending
}

func (q *queue) NewGroups(*gpu.Lease, []gpu.Type, gpu.GroupHint) (gpu.Groups, error) {
	return nil, errPending
}

func (q *queue) NewAccumulator(*gpu.Lease, gpu.Aggregate) (gpu.Accumulator, error) {
	return nil, errPending
}
