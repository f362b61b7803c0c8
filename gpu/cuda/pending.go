package cuda

import (
	"errors"

	"github.com/gstream/gstream/gpu"
)

// The primitives below have no kernels yet.
var errPending = errors.New("not on the GPU yet")

func (q *queue) BuildTable(*gpu.Lease, []gpu.Column, []bool) (gpu.Table, error) {
	return nil, errPending
}
