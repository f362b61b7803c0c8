// Package sink defines where strides go. Formats are sub-packages. A sink's
// output appears as a whole on Commit, or not at all.
package sink

import (
	"context"

	"github.com/gstream/gstream/gpu"
)

// Stats is what a sink has written so far.
type Stats struct {
	Rows, Bytes, Files int64
}

// Sink takes the strides of a result. Write is called by one goroutine, Stats
// by any. Exactly one of Commit and Abort ends a sink.
type Sink interface {
	// Write takes the stride over and releases it, also on error. Strides must
	// be host-addressable. Rows are written in the order they come.
	Write(ctx context.Context, s *gpu.Stride) error
	// Commit flushes, syncs and makes the output appear under its name. After
	// an error nothing has appeared and Abort has been done.
	Commit(ctx context.Context) error
	// Abort removes everything that was written. It is idempotent, and after
	// Commit it does nothing.
	Abort() error
	Stats() Stats
}
