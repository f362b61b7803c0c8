package pipeline

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/job"
)

// output returns the rows of the query as an output can have them: the last step's,
// or an error when there are columns that it cannot have.
func (q query) output(last node) (node, error) {
	if f := q.checkColumns(last); f != nil {
		return nil, f
	}
	last, err := storable(last)
	if err != nil {
		return nil, err
	}
	if f := q.checkNames(last.rel().schema); f != nil {
		return nil, f
	}
	return last, nil
}

// checkColumns refuses an output without the columns that cannot be read, and one
// without any column.
func (q query) checkColumns(last node) *job.Diagnostic {
	r := last.rel()
	f := &job.Diagnostic{File: q.Text.File(), Place: q.Text.Place("sources." + r.step), Step: r.step}
	if n := len(q.Steps); n > 0 {
		f.Place, f.Step = q.Text.Place(fmt.Sprintf("steps[%d]", n-1)), job.StepName(q.Steps, n-1)
	}
	switch {
	case len(r.unreadable) > 0:
		f.Msg = fmt.Sprintf("%s; add a step that selects the others%s", describeUnreadable(r.unreadable), suggestColumns(r))
	case r.schema.Len() == 0:
		f.Msg = "there is no column to write"
		if empty := emptySources(last); len(empty) > 0 {
			f.Msg += ": no column is in " + some(empty, 5, ", ")
		}
	default:
		return nil
	}
	return f
}

// emptySources describes the sources of a node's rows that have no columns.
func emptySources(n node) (list []string) {
	switch n := n.(type) {
	case *scanNode:
		if n.schema.Len() == 0 {
			list = []string{fmt.Sprintf("%s, %s", n.step, n.table.Describe())}
		}
	case *filterNode:
		return emptySources(n.in)
	case *projectNode:
		return emptySources(n.in)
	case *sortNode:
		return emptySources(n.in)
	case *limitNode:
		return emptySources(n.in)
	case *unionNode:
		for _, in := range n.ins {
			list = append(list, emptySources(in)...)
		}
	}
	return list
}

// storable casts what Parquet and Arrow have no type for: HUGEINT, as sums of
// integers are, becomes DECIMAL(38,0), which holds all of its values or fails.
func storable(n node) (node, error) {
	fields := n.rel().schema.Fields
	types := make([]gpu.Type, len(fields))
	for i, f := range fields {
		if types[i] = f.Type; f.Type.Kind == gpu.HugeInt {
			types[i] = gpu.DecimalOf(gpu.MaxPrecision, 0)
		}
	}
	return castTo(n, types)
}

// checkNames refuses an output with two columns of one name.
func (q query) checkNames(s *gpu.Schema) *job.Diagnostic {
	seen := map[string]bool{}
	for _, name := range s.Names() {
		if seen[name] {
			return &job.Diagnostic{File: q.Text.File(), Place: q.Text.Place(fmt.Sprintf("steps[%d]", len(q.Steps)-1)), Step: "output",
				Msg: fmt.Sprintf("two columns are named %q; name them apart in a select step", name)}
		}
		seen[name] = true
	}
	return nil
}
