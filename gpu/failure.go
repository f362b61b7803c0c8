package gpu

import (
	"errors"
	"fmt"
)

// failure is an error that sticks to its queue.
type failure struct {
	err  error
	text string // of the expression whose values fail; otherwise ""
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Failed formats an error that sticks to its queue: for values that fail, or a device that fails.
func Failed(format string, args ...any) error { return &failure{err: fmt.Errorf(format, args...)} }

// FailedIn is Failed for values of an expression, the Text of an instruction.
func FailedIn(text, format string, args ...any) error {
	return &failure{fmt.Errorf("in %s: %s", text, fmt.Sprintf(format, args...)), text}
}

// FailedExpression returns the text of the expression whose values fail, or "" for any other error.
func FailedExpression(err error) string {
	var f *failure
	if !errors.As(err, &f) {
		return ""
	}
	return f.text
}

// ErrPanic is the class of panics that became errors. They are defects of the code, whatever the
// data.
var ErrPanic = errors.New("internal error")

// Panicked returns an ErrPanic that sticks to its queue, with the stack of the panic.
func Panicked(where string, value any, stack []byte) error {
	return Failed("%w in %s: %v; please report it with this trace:\n%s", ErrPanic, where, value, stack)
}

// ErrLimit is the class of errors for data that exceeds what a column, a file or a device can hold.
var ErrLimit = errors.New("above a limit")

// exceeded is an ErrLimit.
type exceeded struct{ error }

func (e exceeded) Unwrap() error        { return e.error }
func (e exceeded) Is(target error) bool { return target == ErrLimit }

// Exceeded formats an ErrLimit.
func Exceeded(format string, args ...any) error { return exceeded{fmt.Errorf(format, args...)} }

// TooManyBytes is the ErrLimit of a column whose strings have more bytes than its offsets can address: at least as many
// as given.
func TooManyBytes(bytes int64, rows int) error {
	return Exceeded("a column of %d rows holds at least %d bytes of text, above the limit of 2 GiB a stride: lower "+
		"the stride size", rows, bytes)
}

// TooManyRows is the ErrLimit of more rows than row ids can address.
func TooManyRows(rows int) error {
	return Exceeded("%d rows are more than the %d that row ids can address", rows, MaxRows)
}

// IsFailure reports whether an error sticks to its queue.
func IsFailure(err error) bool {
	var f *failure
	return errors.As(err, &f)
}
