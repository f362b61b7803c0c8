package main

import (
	"context"
	"errors"
	"syscall"

	"github.com/gstream/gstream/operators/bench"
	"github.com/gstream/gstream/pipeline"
)

// The exit codes. The help of the root command documents them.
const (
	exitOK          = 0
	exitDefect      = 1 // gstream itself or the GPU failed
	exitJob         = 2
	exitData        = 3
	exitMemory      = 4
	exitIO          = 5
	exitInterrupted = 130
)

// errUsage is the class of mistakes in the command line.
var errUsage = errors.New("usage")

type usage struct{ error }

func (usage) Is(target error) bool { return target == errUsage }

func usageError(err error) error { return usage{err} }

// message returns the text of an error for the user.
func message(err error) string {
	if exitCode(err) == exitInterrupted {
		return "interrupted; nothing was written" // wherever it was noticed
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return err.Error() + "; allow more open files (ulimit -n), or use fewer --threads"
	}
	return err.Error()
}

// codeOf is exitCode, but returns the signal's code for a run that a signal stopped.
func codeOf(ctx context.Context, err error) int {
	code := exitCode(err)
	var s stopped
	if code == exitInterrupted && errors.As(context.Cause(ctx), &s) {
		return s.exitCode()
	}
	return code
}

// exitCodes has the exit code of each class of errors.
var exitCodes = map[error]int{pipeline.ErrDefect: exitDefect, pipeline.ErrDevice: exitDefect, pipeline.ErrJob: exitJob,
	pipeline.ErrData: exitData, pipeline.ErrBudget: exitMemory,
	pipeline.ErrChanged: exitIO, pipeline.ErrOutput: exitIO, pipeline.ErrFile: exitIO,
	pipeline.ErrCancelled: exitInterrupted}

// exitCode returns the exit code of an error. An error without a class is a defect.
func exitCode(err error) int {
	class := pipeline.Class(err)
	switch code, known := exitCodes[class]; {
	case err == nil:
		return exitOK
	case class == pipeline.ErrDefect, class == pipeline.ErrCancelled:
		return code
	case errors.Is(err, bench.ErrWrong):
		return exitDefect
	case errors.Is(err, errUsage):
		return exitJob
	case known:
		return code
	}
	return exitDefect
}
