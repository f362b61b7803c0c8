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

// IsFailure reports whether an error sticks to its queue.
func IsFailure(err error) bool {
	var f *failure
	return errors.As(err, &f)
}
