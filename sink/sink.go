// Package sink defines the destination of strides. Formats are sub-packages. A sink's output
// appears atomically, on Commit.
package sink

import (
	"context"

	"github.com/gstream/gstream/gpu"
)

// Stats counts what a sink has written so far.
type Stats struct {
	Rows, Bytes, Files int64
}

// Sink takes the strides of a result. One goroutine calls Write; any may call Stats. A
// sink ends with exactly one of Commit and Abort.
type Sink interface {
	// Write takes ownership of the stride and releases it, also on error. Strides must be
	// host-addressable. Rows are written in the order of the calls.
	Write(ctx context.Context, s *gpu.Stride) error
	// Commit flushes the output, syncs it, and gives it its name. After an error nothing
	// has appeared, and the sink is aborted.
	Commit(ctx context.Context) error
	// Abort removes everything that was written. It is idempotent, and does nothing after
	// Commit.
	Abort() error
	Stats() Stats
}
