package pipeline

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/source"
)

// Class returns the class of an error, one of the errors below, or nil if it has none.
func Class(err error) error { return class.Of(err) }

// The classes of errors, for errors.Is. An error of Load, Plan and Run has one of them, which tells
// what can be done about it. Only errors of the caller's own tables and targets may have none. The
// command gstream ends with the exit code of the class, and with 1 for other errors. Most errors of
// ErrBudget wrap a *gpu.BudgetError: it has the stage that fills the memory, and the setting that
// raises the limit.
//
//	class         exit code  cause                                                    the same run again
//	ErrDefect     1          gstream itself failed                                    –
//	ErrDevice     1          the GPU or its driver failed                             may succeed
//	ErrJob        2          the job: its file, its variables, its expressions        fails
//	ErrData       3          the data: a damaged file, a value that an expression     fails
//	                         does not accept, more than a column or a file can hold
//	ErrBudget     4          memory or spill files: the budget or the machine's       may succeed with more
//	ErrChanged    5          another process wrote to an input while it was read      may succeed
//	ErrOutput     5          the output cannot be started, for example as it exists   may succeed
//	ErrFile       5          the system cannot read or write a file                   may succeed
//	ErrCancelled  130        the context of the run ended, for any reason             may succeed
var (
	ErrDefect  = class.ErrDefect
	ErrDevice  = class.ErrDevice
	ErrJob     = class.ErrJob
	ErrData    = source.ErrData
	ErrBudget  = gpu.ErrBudget
	ErrOutput  = class.ErrOutput
	ErrFile    = class.ErrFile
	ErrChanged = source.ErrChanged
	// ErrExpectation is an expectation that is not met. Such an error matches ErrData, too.
	ErrExpectation = class.ErrExpectation
	// An error that matches ErrCancelled also matches context.Canceled, context.DeadlineExceeded or
	// the cause with which the context was cancelled.
	ErrCancelled = class.ErrCancelled
)
