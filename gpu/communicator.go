package gpu

import "context"

// Communicator moves buffers between the devices of several processes, its ranks, over whatever connects them. One
// goroutine uses it.
type Communicator interface {
	// Alloc allocates a buffer of the device into which Exchange receives.
	Alloc(l *Lease, n int64) (*Buffer, error)
	// Exchange sends parts to other ranks and receives parts from them, all at the same time. It waits until all have
	// been sent and have arrived. ready are the points at which kernels have produced what is sent. The parts that one
	// rank sends to another one are those that the other one receives from it, in the same order, with equal bytes. All
	// ranks make calls in the same order. After an error, or once ctx has ended, the communicator can only be closed.
	Exchange(ctx context.Context, ready []Event, send, receive []Part) error
	// Close ends the use of the communicator. It does not wait for other ranks.
	Close() error
}

// Part is bytes at the beginning of a buffer that are sent to a rank, or received from it.
type Part struct {
	Rank   int
	Buffer *Buffer
	Bytes  int64
}
