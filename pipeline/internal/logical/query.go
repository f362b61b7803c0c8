package logical

import (
	"errors"
	"fmt"

	"github.com/gstream/gstream/pipeline/job"
)

// Query is what a logical plan is made of, whatever the user wrote it in.
type Query struct {
	Sources []string // the names of all sources, in order
	Steps   []job.Step
	Text    Text
}

// Text is what the user wrote, in which diagnostics point to the values of a query. A
// value is known by its path, as in "steps[2].filter" or "sources.orders".
type Text interface {
	// File names the text; empty for a query built in Go.
	File() string
	// Place returns where a value stands, or else what is around it; the zero Place
	// when that is unknown.
	Place(path string) job.Place
	// PlaceIn returns where the byte at an offset of an expression stands, which is
	// the value at path or part of it; false when that is unknown.
	PlaceIn(path, expression string, offset int) (job.Place, bool)
}

// Locate returns the diagnostics in err, or one that wraps it. Those of a step that
// have no place yet, as what an operator refuses, point to the step.
func (q Query) Locate(err error) job.Diagnostics {
	var all job.Diagnostics
	var one *job.Diagnostic
	switch {
	case errors.As(err, &all):
	case errors.As(err, &one):
		all = job.Diagnostics{one}
	default:
		all = job.Diagnostics{{Msg: err.Error(), Err: err}}
	}
	for _, d := range all {
		for i := range q.Steps {
			if d.File == "" && job.StepName(q.Steps, i) == d.Step {
				d.File, d.Place = q.Text.File(), q.Text.Place(fmt.Sprintf("steps[%d]", i))
			}
		}
	}
	return all
}
