package execution

import (
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
)

// Target creates the sink of a run.
type Target interface {
	// Create starts the output.
	Create(schema *gpu.Schema, opt TargetOptions) (sink.Sink, error)
	// Describe returns one line for plans and reports.
	Describe() string
}

// Encoded is a Target whose sink encodes columns.
type Encoded interface {
	Target
	// EncodedByDevice reports for each column of a result whether devices with the capability EncodePages encode it.
	EncodedByDevice(result *gpu.Schema) []bool
	// Divides reports whether the sink divides the rows among folders.
	Divides() bool
	// FromOneDevice reports whether the sink takes only rows of one device as they are. ordered says that the rows of
	// all devices have an order.
	FromOneDevice(ordered bool) bool
}

// Irrevocable is a Target whose rows cannot be taken back once they are written, as those of standard output. A run
// that has written some does not start again.
type Irrevocable interface {
	Target
	// Irrevocable reports whether the target is one.
	Irrevocable() bool
}

// TargetOptions configure the sink that a target creates.
type TargetOptions struct {
	// Lease pays for the memory of the sink.
	Lease *gpu.Lease
	// Devices can encode columns that lie in their memory.
	Devices []sink.OnDevice
	// AnyOrder says that rows need not be in the order of the calls of Write.
	AnyOrder bool
	// Threads bounds the sink's goroutines; 0 means GOMAXPROCS.
	Threads int
	// Sorted, if set, says that the rows come out of a sort. It returns how many there will be, at
	// least by estimate, once the first of them have arrived.
	Sorted func() int64
	// Overwrite replaces an existing output.
	Overwrite bool
	// Trace, if set, is called after every task of encoding or writing.
	Trace func(what string, begin time.Time)
	// Discard writes the output under another name and removes it at Commit.
	Discard bool
	// Leftover, if set, is called with a function that removes a temporary file or folder, which
	// exists only until the sink ends.
	Leftover func(remove func() error)
}
