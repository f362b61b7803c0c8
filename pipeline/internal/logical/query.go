package logical

import (
	"errors"
	"fmt"

	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// Query is the input of a logical plan, whatever language the user wrote it in.
type Query struct {
	Sources []string // names of all sources, in order
	Steps   []job.Step
	Text    Text
	// Written are the names of the sources and steps whose rows are written, "" for the last step. Nil means the last
	// step alone.
	Written []string
	Values  syntax.Values // of variables in expressions
	// Texts runs a plan of one column of VARCHAR and returns its values, for PIVOT, whose columns are values of a
	// table. It returns ErrNoRows if some table cannot be read yet. Nil means that no table can be read: the columns of
	// PIVOT are then unknown, and Bind skips whatever depends on them.
	Texts func(rel.Output) ([]string, error)
	// Files lists the files of a pattern, in order. Nil means that no file can be read.
	Files func(pattern string) ([]string, error)
}

// Until returns the query that ends with a step. It is the query itself for the name of a source, or "".
func (q Query) Until(step string) Query {
	for i := range q.Steps {
		if job.StepName(q.Steps, i) == step {
			q.Steps = q.Steps[:i+1]
			break
		}
	}
	return q
}

// ErrNoRows is the error of Query.Texts if a table has no rows yet.
var ErrNoRows = errors.New("the rows of a table are not known")

// Text is the text that the user wrote. Diagnostics point to the values of a query in it.
// A path such as "steps[2].filter" or "sources.orders" identifies a value.
type Text interface {
	// File returns the name of the text; it is empty for a query built in Go.
	File() string
	// FileOf returns the name of the text that has the value at a path.
	FileOf(path string) string
	// Location returns the location of a value, or else of the nearest value around it. The zero Location
	// means unknown.
	Location(path string) job.Location
	// LocationIn returns the location of the byte at an offset of an expression. The expression is the
	// value at path, or a part of it. It is false if the location is unknown.
	LocationIn(path, expression string, offset int) (job.Location, bool)
}

// Locate returns the diagnostics in err, or one that wraps err. Diagnostics of a step without a
// location, such as those of an operator, get the location of the step.
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
				d.File, d.Location = q.Text.File(), q.Text.Location(fmt.Sprintf("steps[%d]", i))
			}
		}
	}
	return all
}
