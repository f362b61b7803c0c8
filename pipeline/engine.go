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
	result, err := RunTaskFile(ctx, path, e.Options)
	if err != nil && ctx.Err() == nil && MayPass(err) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return result, err
}

// Describe implements Engine.
func (e *InProcess) Describe() string { return "in this process" }

// MayPass reports whether an error of a task may be over when the task runs again: of a device, a file or a store.
func MayPass(err error) bool {
	return errors.Is(err, ErrDevice) || errors.Is(err, ErrFile) || errors.Is(err, ErrOutput)
}
