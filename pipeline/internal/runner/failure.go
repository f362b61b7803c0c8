package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

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
	origin *expr.Origin // of the expression whose values fail, if that is the error
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
	return &operatorError{where: where, err: err}
}

// attribute names the step that wrote an expression whose values fail, in place of the operator
// that evaluated it: one of a plan's stages, most likely the one that the error names.
func attribute(p *physical.Plan, err error) {
	var named *operatorError
	text := gpu.FailedExpression(err)
	if text == "" || !errors.As(err, &named) {
		return
	}
	var visit func(s *physical.Stage, every bool)
	visit = func(s *physical.Stage, every bool) {
		if every || s.Name() == named.where {
			for _, e := range s.Exprs {
				if named.origin == nil {
					named.origin = e.OriginOf(text)
				}
			}
		}
		for _, in := range s.Inputs {
			visit(in, every)
		}
	}
	if visit(p.Root, false); named.origin == nil {
		visit(p.Root, true) // a queue tells of a failure later
	}
	if o := named.origin; o != nil {
		named.where = o.Step
	}
}

// Origin returns where the expression was written whose values fail, nil if that is not the error.
func Origin(err error) *expr.Origin {
	var named *operatorError
	if !errors.As(err, &named) {
		return nil
	}
	return named.origin
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
