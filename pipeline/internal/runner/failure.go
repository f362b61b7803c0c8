package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/class"
)

// errStop ends the pipelines whose rows nobody needs any more, such as those below a
// limit that is reached. It is not a failure.
var errStop = errors.New("no more rows are needed")

// operatorError is an error with the name of its operator.
type operatorError struct {
	where string
	err   error
}

func (e *operatorError) Error() string { return e.where + ": " + e.err.Error() }
func (e *operatorError) Unwrap() error { return e.err }

// explain adds the name of the operator to an error. Errors of a scan name files instead.
func (o *opRun) explain(err error) error {
	if o.Table != nil {
		return err
	}
	return explain(o.Name(), err)
}

// explain adds where an error happened, unless the error has that: refusals do, and errors
// of later operators in a chain.
func explain(where string, err error) error {
	var panicked *panicError
	var named *operatorError
	var refused *gpu.AllocError
	if err == nil || err == errStop || errors.Is(err, gpu.ErrBudget) || errors.Is(err, context.Canceled) ||
		errors.As(err, &panicked) || errors.As(err, &named) || errors.As(err, &refused) {
		return err
	}
	return &operatorError{where, err}
}

// with adds the error of a close to err, unless err has it already: Close of a queue
// returns the failure that sticks to it again.
func with(err, closed error) error {
	if closed == nil || errors.Is(err, closed) {
		return err
	}
	return errors.Join(err, closed)
}

// outputError is an error of Target.Create.
type outputError struct{ error }

func (e *outputError) Unwrap() error        { return e.error }
func (e *outputError) Is(target error) bool { return target == class.ErrOutput }

// panicError is a panic from which a run has recovered.
type panicError struct {
	where string
	value any
	stack []byte
}

func newPanicError(where string, value any) error {
	return &panicError{where, value, debug.Stack()}
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%s: internal error: %v; please report it with this trace:\n%s", e.where, e.value, e.stack)
}

// Is makes errors.Is(err, class.ErrDefect) true.
func (e *panicError) Is(target error) bool { return target == class.ErrDefect }

// recoverInto turns a panic into an error that says where it happened.
func recoverInto(err *error, where string) {
	if p := recover(); p != nil {
		*err = newPanicError(where, p)
	}
}
