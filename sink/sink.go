// Package sink defines the destination of strides. Formats are sub-packages. A sink's output
// appears atomically, on Commit.
package sink

import (
	"context"
	"errors"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink/staging"
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

// OnDevice is a device that encodes columns which lie in its memory, and the lease that pays for them and for encoding.
type OnDevice struct {
	Device gpu.Device
	Lease  *gpu.Lease
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

// Staged is a Sink whose output can get its name together with others.
type Staged interface {
	Sink
	// Stage does all of Commit but the last step. It returns the changes that give the output its name. After an error
	// the sink is aborted. After a success it ends with either Published or Abort.
	Stage(ctx context.Context) ([]staging.Change, error)
	// Published ends the sink once the changes are made.
	Published() error
}

// ErrDecided is an error of a commit that comes too late to undo it: outputs may be complete.
var ErrDecided = staging.ErrDecided

// CommitAll commits sinks: all of them or, after an error, none, even if the process is killed in the middle (see
// staging.Commit). Sinks that are not Staged, such as those in memory, are committed once all others are complete.
func CommitAll(ctx context.Context, sinks []Sink) (err error) {
	if len(sinks) == 1 {
		return sinks[0].Commit(ctx)
	}
	left := sinks
	var staged []Staged
	defer func() {
		if err != nil {
			for _, s := range staged {
				if errors.Is(err, staging.ErrDecided) { // what is left must stay
					_ = s.Published()
					continue
				}
				err = errors.Join(err, s.Abort())
			}
			for _, s := range left {
				err = errors.Join(err, s.Abort())
			}
		}
	}()
	var changes []staging.Change
	var others []Sink
	for len(left) > 0 {
		s, ok := left[0].(Staged)
		if left = left[1:]; !ok {
			others = append(others, sinks[len(sinks)-len(left)-1])
			continue
		}
		list, err := s.Stage(ctx)
		if err != nil {
			for _, o := range others {
				err = errors.Join(err, o.Abort())
			}
			return err
		}
		staged, changes = append(staged, s), append(changes, list...)
	}
	for i, s := range others {
		left = others[i+1:]
		if err := s.Commit(ctx); err != nil {
			return err
		}
	}
	if err := staging.Commit(changes); err != nil {
		return err
	}
	for _, s := range staged {
		err = errors.Join(err, s.Published())
	}
	staged = nil
	return err
}
