package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/gpubench"
	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/source"
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

// errUsage is behind every mistake in the command line.
var errUsage = errors.New("usage")

type usage struct{ error }

func (usage) Is(target error) bool { return target == errUsage }

func usageError(err error) error { return usage{err} }

// message returns what people are told about an error.
func message(err error) string {
	if exitCode(err) == exitInterrupted {
		return "interrupted; nothing was written" // whatever noticed it
	}
	return err.Error()
}

// codeOf is exitCode; for a run that a signal has stopped it is the signal's code.
func codeOf(ctx context.Context, err error) int {
	code := exitCode(err)
	var s stopped
	if code == exitInterrupted && errors.As(context.Cause(ctx), &s) {
		return s.exitCode()
	}
	return code
}

// exitCode classifies an error. The order matters: an interrupt appears as the error of
// whatever it interrupted, and a job's fault may wrap a file's.
func exitCode(err error) int {
	var refused *gpu.AllocError
	var driver *cuda.Error
	var pathError *fs.PathError
	var linkError *os.LinkError
	var errno syscall.Errno
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, pipeline.ErrDefect), errors.Is(err, gpubench.ErrWrong):
		return exitDefect
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, errUsage), errors.Is(err, pipeline.ErrJob):
		return exitJob
	case errors.Is(err, gpu.ErrBudget), errors.As(err, &refused):
		return exitMemory
	case errors.Is(err, source.ErrChanged):
		return exitIO
	case errors.Is(err, source.ErrData):
		return exitData
	case errors.As(err, &driver):
		return exitDefect
	case errors.Is(err, pipeline.ErrOutput), errors.As(err, &pathError), errors.As(err, &linkError), errors.As(err, &errno),
		errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return exitIO
	}
	return exitData
}
