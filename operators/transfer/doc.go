// Package transfer copies strides between the host and a device while kernels run. Ahead copies up,
// before the turn of each stride, and Behind copies down, after it. The package decides how many
// strides are in flight, and when to repeat a copy that was denied memory. The copies themselves
// are primitives of gpu.Queue.
package transfer
