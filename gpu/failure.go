package gpu

import (
	"errors"
	"fmt"
)

// failure is an error that sticks to its queue.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Failed formats an error that sticks to its queue: values that fail, or a device that
// does.
func Failed(format string, args ...any) error { return &failure{fmt.Errorf(format, args...)} }

// ErrPanic is the sentinel behind panics that became errors: defects of the code, whatever the data are.
var ErrPanic = errors.New("internal error")

// Panicked returns an ErrPanic that sticks to its queue, with the stack of the panic.
func Panicked(where string, value any, stack []byte) error {
	return Failed("%w in %s: %v; please report it with this trace:\n%s", ErrPanic, where, value, stack)
}

// ErrLimit is the sentinel behind errors of data that exceed what a column, a file or a device can hold.
var ErrLimit = errors.New("above a limit")

// exceeded is an ErrLimit.
type exceeded struct{ error }

func (e exceeded) Unwrap() error        { return e.error }
func (e exceeded) Is(target error) bool { return target == ErrLimit }

// Exceeded formats an ErrLimit.
func Exceeded(format string, args ...any) error { return exceeded{fmt.Errorf(format, args...)} }

// IsFailure reports whether an error sticks to its queue.
func IsFailure(err error) bool {
	var f *failure
	return errors.As(err, &f)
}
