// Package class sorts errors by what can be done about them.
package class

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/source"
)

// The classes, besides those of other packages.
var (
	ErrJob       = errors.New("invalid job")
	ErrFile      = errors.New("a file cannot be read or written")
	ErrOutput    = errors.New("output cannot be written")
	ErrCancelled = errors.New("cancelled")
	ErrDevice    = errors.New("the GPU failed")
	ErrDefect    = errors.New("defect in gstream")
	// ErrExpectation is an expectation that is not met. Its class is source.ErrData.
	ErrExpectation = errors.New("an expectation is not met")
)

// Of returns the class of an error, nil if it has none. An error of several causes, such as
// one of a run and one of what follows, has the class that comes first here: an interrupt
// appears as the error of whatever it interrupts, and a mistake of a job may wrap one of a file.
func Of(err error) error {
	var driver *cuda.Error
	var refused *gpu.BudgetError
	var pathError *fs.PathError
	var linkError *os.LinkError
	var errno syscall.Errno
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil:
		return nil
	case is(ErrDefect), is(gpu.ErrPanic):
		return ErrDefect
	case is(ErrCancelled), is(context.Canceled):
		return ErrCancelled
	case is(ErrJob):
		return ErrJob
	case is(syscall.ENOSPC), is(syscall.EDQUOT), errors.As(err, &refused) && refused.Cause != nil &&
		Of(refused.Cause) == ErrFile:
		return ErrFile // memory is denied because the disk takes no rows
	case gpu.IsOutOfMemory(err), is(syscall.ENOMEM):
		return gpu.ErrBudget
	case is(source.ErrChanged):
		return source.ErrChanged
	case is(source.ErrData), is(gpu.ErrLimit):
		return source.ErrData
	case errors.As(err, &driver):
		return ErrDevice
	case gpu.IsFailure(err):
		return source.ErrData
	case is(ErrOutput):
		return ErrOutput
	case is(ErrFile), errors.As(err, &pathError), errors.As(err, &linkError), errors.As(err, &errno), is(syscall.EIO),
		is(fs.ErrExist), is(fs.ErrNotExist), is(fs.ErrPermission):
		return ErrFile
	}
	return nil
}

// Mark returns an error that matches its class. ctx is the context of what failed: if it has
// ended, an error that is its cause is a cancellation, whatever the cause is.
func Mark(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	of := Of(err)
	if ctx.Err() != nil && of != ErrDefect && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err())) {
		of = ErrCancelled
	}
	if of == nil || errors.Is(err, of) {
		return err
	}
	return classed{err, of}
}

// Named returns an error of the class with a text, as a class gives it by Error; the error itself if there is none.
func Named(err error, text string) error {
	for _, c := range []error{ErrJob, ErrFile, ErrOutput, ErrCancelled, ErrDevice, ErrDefect, gpu.ErrBudget,
		source.ErrChanged, source.ErrData} {
		if c.Error() == text {
			return classed{err, c}
		}
	}
	return err
}

// classed is an error of a class.
type classed struct{ err, class error }

func (c classed) Error() string        { return c.err.Error() }
func (c classed) Unwrap() error        { return c.err }
func (c classed) Is(target error) bool { return target == c.class }
