package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// Preview is the plan of a job whose output is the first rows of one of its steps.
type Preview struct {
	*Plan
	// LeftOut describes the columns of a step or source that are missing from the result because
	// they cannot be read. In a run that would write them, and in a preview of the result of a job
	// with steps, they are an error.
	LeftOut []string
	// Rows is the number of rows of the step if the plan knows it, as for a source, or else -1.
	Rows int64

	most int64
	part bool // of a step or source that is not the last one
}

// NewPreview plans the first rows of a step or source. step is its name in reports; "" means the
// job's result. The rows go to the target; the job's output is neither checked nor created. Steps
// after the named one may have mistakes. A run reads no more than these rows need: some thousand
// rows of a source or a filter, but the whole input of a group-by. Columns of the same name are
// renamed to the names under which expressions find them, such as u.name and m.name. The errors are
// those of NewPlan.
func NewPreview(ctx context.Context, j *Job, step string, rows int64, target Target) (*Preview, error) {
	p := &Preview{Rows: -1, most: rows, part: step != ""}
	if rows < 0 || target == nil {
		return nil, Diagnostics{{Msg: "a preview needs a target and a number of rows that is not negative"}}
	}
	until, err := jobUntil(j, step)
	if err != nil {
		return nil, err
	}
	if p.Plan, err = newPlanOf(ctx, until, nil, target, p, PlanOptions{}); err != nil {
		return nil, err
	}
	if len(until.Steps) == 0 {
		for _, t := range p.tables { // there is exactly one
			if e, ok := t.(source.Estimated); !ok || e.RowsExact() {
				p.Rows = t.Rows()
			}
		}
	}
	return p, nil
}

// rowsOf returns the rows of the preview of a query.
func (p *Preview) rowsOf(e *logical.Estimator, q logical.Query, last *logical.Relation) (r *logical.Relation,
	err error) {
	if !p.part && len(q.Steps) > 0 {
		if last, err = q.Output(e, last, false); err != nil {
			return nil, err
		}
	}
	r, p.LeftOut, err = q.Preview(e, last, p.most)
	return r, err
}

// jobUntil returns the job that ends with a step, or that has only a source. Its locations are
// those of the whole job.
func jobUntil(j *Job, step string) (*Job, error) {
	if step == "" {
		return j, nil
	}
	until := *j
	var names []string
	for i := range j.Steps {
		name := job.StepName(j.Steps, i)
		if name == step {
			until.Steps = j.Steps[:i+1]
			return &until, nil
		}
		names = append(names, name)
	}
	if s, ok := j.Sources[step]; ok {
		until.Sources, until.Steps = map[string]Source{step: s}, nil
		return &until, nil
	}
	names = append(names, slices.Sorted(maps.Keys(j.Sources))...)
	var list []string
	for _, name := range names {
		list = append(list, strconv.Quote(name))
	}
	return nil, Diagnostics{{File: j.File(), Msg: fmt.Sprintf("the job has no step or source named %q%s; it has %s",
		step, job.DidYouMean(step, names), phrase.Some(list, 20, ", "))}}
}
