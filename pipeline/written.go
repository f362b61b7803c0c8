package pipeline

import (
	"errors"
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/internal/runner"
	"github.com/gstream/gstream/pipeline/job"
)

// written is what a plan keeps of its job: the defaults of its runs, and the locations that errors
// name. It implements logical.Text.
type written struct {
	Name  string   // of the file, "" for a job built in Go
	Steps []string // the names of the steps
	// Locations has the locations of steps, sources and expressions that may fail, by their paths in
	// the job.
	Locations map[string]job.Location `json:"Places,omitempty"`
	Memory    job.Memory
	// Set are the settings of an SQL text.
	Set settings `json:",omitzero"`
	// Hidden are the values that must not be shown.
	Hidden syntax.Values `json:",omitempty"`
}

// writtenOf returns the parts of a job that its stages need.
func writtenOf(j *Job, stages *physical.Plan) written {
	w := written{Name: j.File(), Locations: map[string]job.Location{}, Memory: j.Memory, Hidden: syntax.Values{}}
	note := func(path string) {
		if at := j.Location(path); at != (job.Location{}) {
			w.Locations[path] = at
		}
	}
	for i := range j.Steps {
		w.Steps = append(w.Steps, job.StepName(j.Steps, i))
		note(job.StepPath(i))
	}
	for name := range j.Sources {
		note(job.SourcePath(name))
	}
	stages.Visit(func(s *physical.Stage) {
		for _, o := range s.Failures {
			note(o.Path)
		}
	})
	for part, v := range j.Values() {
		if v.Hidden {
			w.Hidden[part] = v
		}
	}
	return w
}

// options returns the options of a run with the settings of the job.
func (w *written) options(opt RunOptions) RunOptions { return w.Set.over(opt.For(w.Memory)) }

// File implements logical.Text.
func (w *written) File() string { return w.Name }

// FileOf implements logical.Text.
func (w *written) FileOf(string) string { return w.Name }

// Location implements logical.Text.
func (w *written) Location(path string) job.Location { return w.Locations[path] }

// LocationIn implements logical.Text.
func (w *written) LocationIn(string, string, int) (job.Location, bool) { return job.Location{}, false }

// explain adds the location in the job file to the error of a run, and hides values that must not
// be shown.
func (w *written) explain(err error) error {
	if err = w.place(w.locate(err)); err == nil {
		return nil
	}
	// Rows may contain such values, as name || ${env:TOKEN} does.
	if text := w.Hidden.Hide(err.Error()); text != err.Error() {
		return shown{text, err}
	}
	return err
}

// shown is an error with another text.
type shown struct {
	text string
	error
}

func (s shown) Error() string { return s.text }
func (s shown) Unwrap() error { return s.error }

// place adds the location in the job file to a mistake of a step.
func (w *written) place(err error) error {
	if mistake := (*Diagnostic)(nil); errors.As(err, &mistake) && mistake.Step != "" {
		steps := make([]job.Step, len(w.Steps))
		for i, name := range w.Steps {
			steps[i].Name = name
		}
		return logical.Query{Steps: steps, Text: w}.Locate(err)
	}
	return err
}

// located is an error of values with the location of the step in the job file.
type located struct {
	place string
	error
}

func (l located) Error() string { return l.place + ": " + l.error.Error() }
func (l located) Unwrap() error { return l.error }

// locate adds the location of the step to an error of values.
func (w *written) locate(err error) error {
	step, o := runner.FailedAt(err)
	if !gpu.IsFailure(err) || w.Name == "" || step == "" {
		return err
	}
	var location job.Location
	if o != nil {
		location = w.Locations[o.Path]
	}
	if at, ok := w.Locations[job.SourcePath(step)]; ok {
		location = at
	}
	for i, name := range w.Steps {
		if location.Line == 0 && name == step {
			location = w.Locations[job.StepPath(i)]
		}
	}
	if location.Line == 0 {
		return err
	}
	return located{fmt.Sprintf("%s:%d:%d", w.Name, location.Line, location.Column), err}
}
