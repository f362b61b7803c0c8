package operators

import (
	"cmp"
	"context"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// Collected has strides that lanes have collected in any order, with the numbers of their morsels.
// The zero value is empty.
type Collected struct {
	// Lease, if set, pays for the strides instead of the lease of the operator that made them.
	Lease   *gpu.Lease
	Rows    int
	strides []numbered
}

type numbered struct {
	number int
	stride *gpu.Stride
}

// Push takes a stride over.
func (c *Collected) Push(_ context.Context, number int, s *gpu.Stride) error {
	if c.Lease != nil {
		s.ChargeTo(c.Lease)
	}
	c.strides = append(c.strides, numbered{number, s})
	c.Rows += s.Rows
	return nil
}

// Append moves the strides of another collection into this one.
func (c *Collected) Append(other *Collected) {
	c.strides = append(c.strides, other.strides...)
	c.Rows += other.Rows
	other.strides, other.Rows = nil, 0
}

// First removes and returns the strides that were pushed first, up to about so many bytes, and the
// numbers of their morsels.
func (c *Collected) First(bytes int64) (strides []*gpu.Stride, numbers []int) {
	for bytes > 0 && len(c.strides) > 0 {
		x := c.strides[0]
		c.strides = c.strides[1:]
		c.Rows -= x.stride.Rows
		bytes -= x.stride.Bytes()
		strides, numbers = append(strides, x.stride), append(numbers, x.number)
	}
	return strides, numbers
}

// Bytes returns the bytes of the strides.
func (c *Collected) Bytes() (n int64) {
	for _, x := range c.strides {
		n += x.stride.Bytes()
	}
	return n
}

// Sort orders the strides like the input.
func (c *Collected) Sort() {
	slices.SortStableFunc(c.strides, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
}

// Take returns the strides in the order of the input, and leaves the collection empty.
func (c *Collected) Take() []*gpu.Stride {
	c.Sort()
	out := make([]*gpu.Stride, len(c.strides))
	for i, s := range c.strides {
		out[i] = s.stride
	}
	c.strides, c.Rows = nil, 0
	return out
}

// Close releases the strides.
func (c *Collected) Close() error {
	for _, s := range c.strides {
		s.stride.Release()
	}
	c.strides, c.Rows = nil, 0
	return nil
}
