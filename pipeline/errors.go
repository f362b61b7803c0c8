package pipeline

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/source"
)

// Class returns the class of an error, one of the errors below, or nil if it has none.
func Class(err error) error { return class.Of(err) }

// The classes of errors, for errors.Is. An error of Load, Plan and Run has one of them, which
// says what can be done about it, unless a table or a target of the caller has failed in a way
// of its own. The command gstream ends with the exit code of the class, and with 1 for other
// errors.
//
//	class         exit code  cause                                                    the same again
//	ErrDefect     1          gstream itself failed                                    –
//	ErrDevice     1          the GPU or its driver failed                             may succeed
//	ErrJob        2          the job: its file, its variables, its expressions        fails
//	ErrData       3          the data: a damaged file, a value that an expression     fails
//	                         cannot take, more than a column or a file can hold
//	ErrBudget     4          memory or spill files: a budget or the machine's         may succeed with more
//	ErrChanged    5          another process wrote to an input while it was read      may succeed
//	ErrOutput     5          the output cannot be started, for example as it exists   may succeed
//	ErrFile       5          the system cannot read or write a file                   may succeed
//	ErrCancelled  130        the context of the run ended, for whatever cause         may succeed
var (
	ErrDefect  = class.ErrDefect
	ErrDevice  = class.ErrDevice
	ErrJob     = class.ErrJob
	ErrData    = source.ErrData
	ErrBudget  = gpu.ErrBudget
	ErrOutput  = class.ErrOutput
	ErrFile    = class.ErrFile
	ErrChanged = source.ErrChanged
	// ErrCancelled matches errors that match context.Canceled, context.DeadlineExceeded or the
	// cause that the context was given too.
	ErrCancelled = class.ErrCancelled
)
