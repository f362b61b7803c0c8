package parquet

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// badf returns an error about the content of a file.
func badf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", source.ErrData, fmt.Sprintf(format, args...))
}

// guard turns a panic of the calling function into an error. It is used with defer around the
// decoding of untrusted bytes. A decoder that panics is a defect, whatever the file contains.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = gpu.Panicked("a decoder", p, debug.Stack())
	}
}

// location is the position of an error in a file.
type location struct {
	path     string
	rowGroup int // -1 for the whole file
	column   string
}

func (p location) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case p.rowGroup < 0:
		return fmt.Errorf("%s: %w", p.path, err)
	case p.column == "":
		return fmt.Errorf("%s: row group %d: %w", p.path, p.rowGroup, err)
	}
	return fmt.Errorf("%s: row group %d, column %q: %w", p.path, p.rowGroup, p.column, err)
}

// place is wrap, but for denied memory, which is no matter of the file.
func (p location) place(err error) error {
	if errors.Is(err, gpu.ErrBudget) {
		return err
	}
	return p.wrap(err)
}
