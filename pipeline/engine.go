package pipeline

import (
	"context"
	"errors"
	"fmt"
)

// InProcess runs tasks in this process, on devices of their own.
type InProcess struct{ Options RunOptions }

// Run implements Engine.
func (e *InProcess) Run(ctx context.Context, _ int, path string) (*TaskResult, error) {
	document, err := readSmall(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("read a task: %w", err)
	}
	result, err := RunTask(ctx, document, e.Options)
	if err != nil && ctx.Err() == nil && mayPass(err) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return result, err
}

// Describe implements Engine.
func (e *InProcess) Describe() string { return "in this process" }

// mayPass reports whether an error of a task may be over when it runs again: of a device, a file or a store.
func mayPass(err error) bool {
	return errors.Is(err, ErrDevice) || errors.Is(err, ErrFile) || errors.Is(err, ErrOutput)
}
