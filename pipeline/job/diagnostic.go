package job

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/class"
)

// ErrInvalid is the class of every error that the job itself causes: its file, its variables, its
// expressions. Match it with errors.Is.
var ErrInvalid = class.ErrJob

// Diagnostic is one mistake in a job.
type Diagnostic struct {
	File string // empty for a job built in Go
	Location
	Step string // name of the step or source; empty elsewhere
	Msg  string
	Err  error // the cause if it is outside of the job, such as an unreadable file
}

func (f *Diagnostic) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
		}
		b.WriteString(": ")
	} else if f.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", f.Line, f.Column)
	}
	if f.Step != "" {
		b.WriteString(f.Step + ": ")
	}
	b.WriteString(f.Msg)
	return b.String()
}

// Unwrap returns the cause, or ErrInvalid if the job itself is the cause.
func (f *Diagnostic) Unwrap() error {
	if f.Err != nil {
		return f.Err
	}
	return ErrInvalid
}

// Is reports whether the cause has a class.
func (f *Diagnostic) Is(target error) bool { return f.Err != nil && class.Of(f.Err) == target }

// Diagnostics are all mistakes found in a job, in the order of the file.
type Diagnostics []*Diagnostic

func (fs Diagnostics) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults.
func (fs Diagnostics) Unwrap() []error {
	errs := make([]error, len(fs))
	for i, f := range fs {
		errs[i] = f
	}
	return errs
}

// DidYouMean returns ` (did you mean "x"?)` for the candidate nearest to name, or "" if none is
// near.
func DidYouMean(name string, candidates []string) string {
	if best := syntax.Nearest(name, candidates); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}
