package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// errStop ends the pipelines whose rows nobody needs any more, such as those below a
// limit that is reached. It is not a failure.
var errStop = errors.New("no more rows are needed")

// operatorError is an error with the name of its operator.
type operatorError struct {
	where  string
	err    error
	stage  *physical.Stage // nil if the work belongs to no stage
	origin *expr.Origin    // of the expression whose values fail, if that is the error
}

func (e *operatorError) Error() string { return e.where + ": " + e.err.Error() }
func (e *operatorError) Unwrap() error { return e.err }

// explain adds the name of the operator to an error. Errors of a scan name files instead.
func (o *opRun) explain(err error) error {
	if o.scan != nil {
		return err
	}
	return o.failed(err)
}

// failed is explain for the work of a scan other than reading.
func (o *opRun) failed(err error) error { return explainAt(o.Name(), o.Stage, err) }

// explain adds where an error happened, unless the error has that.
func explain(where string, err error) error { return explainAt(where, nil, err) }

// explainAt adds where an error happened, unless the error has that: out-of-budget errors do, and errors
// of later operators in a chain.
func explainAt(where string, stage *physical.Stage, err error) error {
	var panicked *panicError
	var named *operatorError
	var denied *gpu.AllocError
	if err == nil || err == errStop || errors.Is(err, gpu.ErrBudget) || errors.Is(err, context.Canceled) ||
		errors.As(err, &panicked) || errors.As(err, &named) || errors.As(err, &denied) {
		return err
	}
	return &operatorError{where: where, stage: stage, err: err}
}

// attribute changes the step of an error whose expression fails on a value, from the operator that
// evaluated the expression to the step that wrote it. The expression is that of one of the plan's
// stages, most likely the stage of the error.
func attribute(p *physical.Plan, err error) {
	var named *operatorError
	text := gpu.FailedExpression(err)
	if text == "" || !errors.As(err, &named) {
		return
	}
	var found *expr.Origin
	look := func(s *physical.Stage) {
		if o, ok := s.Failures[text]; ok && found == nil {
			found = &o
		}
	}
	if named.stage != nil {
		look(named.stage)
	}
	p.Visit(look) // a queue may report a failure later
	if named.origin = found; found != nil {
		named.where = found.Step
	}
}

// FailedAt returns the step whose values fail, and the location of the expression that computes
// them, nil if it is unknown. The step is "" for other errors, and for errors that belong to no
// step.
func FailedAt(err error) (step string, origin *expr.Origin) {
	var named *operatorError
	switch {
	case !errors.As(err, &named):
		return "", nil
	case named.origin != nil:
		return named.origin.Step, named.origin
	case named.stage != nil:
		return named.stage.Step, nil
	}
	return "", nil
}

// with adds the error of a close to err, unless err contains it already: Close of a queue returns
// the failure that sticks to the queue again.
func with(err, closed error) error {
	if closed == nil || contains(err, closed) {
		return err
	}
	return errors.Join(err, closed)
}

// contains reports whether an error contains another one, or all errors that are joined in that, or says the same:
// each queue of a device that fails has an error of its own.
func contains(err, other error) bool {
	list, joined := other.(interface{ Unwrap() []error })
	if !joined {
		return err != nil && (errors.Is(err, other) || strings.Contains(err.Error(), other.Error()))
	}
	return !slices.ContainsFunc(list.Unwrap(), func(one error) bool { return !contains(err, one) })
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
