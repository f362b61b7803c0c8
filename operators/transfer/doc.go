// Package transfer copies strides between the host and a device while kernels run: Ahead up,
// before the turn of each stride, and Behind down, after it. It decides how many strides are
// under way and when a copy that was refused memory is tried again. The copies themselves are
// primitives of gpu.Queue.
package transfer
