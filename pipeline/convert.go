package pipeline

import (
	"context"
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/job"
)

// ToSQL returns a job as an SQL text with the same rows, in the dialect of Session, with the values of its variables.
// Paths are those of the job, relative to the working directory. The sources must exist: ToSQL plans the job and the
// text, and returns an error unless both have the same columns. Errors are those of NewPlan; Diagnostics with the place
// of what has no form in SQL, such as a mark join or the schema of a source; and an error for columns that would
// differ.
func ToSQL(ctx context.Context, j *Job) (string, error) {
	want, err := schemaOf(ctx, j)
	if err != nil {
		return "", err
	}
	for _, form := range job.SQLForms {
		var text string
		if text, err = j.ToSQL(form); err != nil {
			return "", err
		}
		var got *gpu.Schema
		if got, err = schemaOfSQL(ctx, text); err == nil {
			if err = sameColumns(want, got); err == nil {
				return text, nil
			}
		}
		err = fmt.Errorf("%s cannot be converted to SQL, where its names mean something else: %w", j.File(), err)
	}
	return "", err
}

// sameColumns returns an error unless two schemas have equal names and types.
func sameColumns(want, got *gpu.Schema) error {
	for i := range max(want.Len(), got.Len()) {
		switch {
		case i >= want.Len() || i >= got.Len():
			return fmt.Errorf("it has %d columns, not %d", got.Len(), want.Len())
		case want.Fields[i].Name != got.Fields[i].Name:
			return fmt.Errorf("column %d is %q, not %q; give it a name by as", i+1, got.Fields[i].Name,
				want.Fields[i].Name)
		case want.Fields[i].Type != got.Fields[i].Type:
			return fmt.Errorf("column %q is %v, not %v", want.Fields[i].Name, got.Fields[i].Type, want.Fields[i].Type)
		}
	}
	return nil
}

func schemaOf(ctx context.Context, j *Job) (*gpu.Schema, error) {
	var opt PlanOptions
	if path, _ := j.Output.Path(); path == "" {
		opt.Target = &Collector{}
	}
	p, err := NewPlanWith(ctx, j, opt)
	if err != nil {
		return nil, err
	}
	return p.Schema(), p.Close()
}

// schemaOfSQL returns the columns of the last statement of a text.
func schemaOfSQL(ctx context.Context, text string) (*gpu.Schema, error) {
	var s Session
	list, err := s.Parse("", text, nil)
	if err != nil {
		return nil, err
	}
	for _, st := range list[:len(list)-1] {
		if err := st.Apply(ctx); err != nil {
			return nil, err
		}
	}
	j, err := list[len(list)-1].Job()
	if err != nil {
		return nil, err
	}
	return schemaOf(ctx, j)
}
