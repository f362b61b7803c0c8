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
	BytesOfDevice      int64 // of the bytes, those that a device has encoded
	// ForCPU says why the device of the output encodes none of it. It is empty if there is no device, or if it does.
	ForCPU string
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

// Encoder is a Sink that can encode columns where they lie, in the memory of a device.
type Encoder interface {
	Sink
	// Keeps has true for each column of a stride, in memory of the device, that Write will take as it is; the others
	// must be host-addressable. It is nil if none is. Any goroutine may call it.
	Keeps(s *gpu.Stride) []bool
}

// Wrapper is a Sink around another one.
type Wrapper interface{ Unwrap() Sink }

// EncoderOf returns the Encoder that a sink is or wraps, or nil.
func EncoderOf(s Sink) Encoder {
	for {
		switch x := s.(type) {
		case Encoder:
			return x
		case Wrapper:
			s = x.Unwrap()
		default:
			return nil
		}
	}
}
