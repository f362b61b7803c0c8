package logical

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// Output returns the rows of the last step in the form of an output. It returns an error if an
// output cannot have some of the columns. enums says that it has columns of ENUM; else they become texts.
func (q Query) Output(e *Estimator, last *Relation, enums bool) (*Relation, error) {
	if f := q.checkColumns(last); f != nil {
		return nil, f
	}
	last, err := storable(e, last, enums)
	if err != nil {
		return nil, err
	}
	if f := q.checkNames(e, last); f != nil {
		return nil, f
	}
	return last, nil
}

// Preview returns the first rows of the query for people to see. Columns of the same name are
// renamed to the names under which expressions find them. Columns that cannot be read are left out,
// and their descriptions returned. It returns an error if no column is left.
func (q Query) Preview(e *Estimator, last *Relation, rows int64) (*Relation, []string, error) {
	if len(last.columns) == 0 {
		return nil, nil, q.checkColumns(last)
	}
	var leftOut []string
	for _, u := range last.unreadable {
		leftOut = append(leftOut, u.String())
	}
	origin := last.node.Rel().Origin
	if names, renamed := distinctNames(scopeOf(e, last)); renamed {
		items := last.items(e)
		for i := range items {
			items[i].name = names[i]
		}
		last = project(origin, last.node, items)
	}
	last, err := storable(e, last, false)
	if err != nil {
		return nil, nil, err
	}
	return last.over(rel.NewLimit(origin, last.node, 0, rows)), leftOut, nil
}

// distinctNames returns the names of all columns. Those that several columns have are
// replaced by qualified ones, or else get a number.
func distinctNames(scope *expr.Scope) (names []string, renamed bool) {
	names = scope.Schema.Names()
	count, taken := map[string]int{}, map[string]bool{}
	for _, name := range names {
		count[name]++
		taken[name] = true
	}
	for c, name := range names {
		if count[name] == 1 {
			continue
		}
		full, ok := scope.Qualified(c)
		for n := 1; !ok || taken[full]; n++ {
			full, ok = fmt.Sprintf("%s:%d", name, n), true
		}
		names[c], taken[full], renamed = full, true, true
	}
	return names, renamed
}

// checkColumns refuses an output that would lack columns that cannot be read, and one
// without columns.
func (q Query) checkColumns(r *Relation) *job.Diagnostic {
	f := &job.Diagnostic{File: q.Text.File(), Location: q.Text.Location("sources." + r.step()), Step: r.step()}
	if n := len(q.Steps); n > 0 {
		f.Location, f.Step = q.Text.Location(fmt.Sprintf("steps[%d]", n-1)), job.StepName(q.Steps, n-1)
	}
	switch {
	case len(r.unreadable) > 0:
		f.Msg = fmt.Sprintf("%s; add a step that selects the others%s", describeUnreadable(r.unreadable),
			suggestColumns(r))
	case len(r.columns) == 0:
		f.Msg = "there is no column to write"
		if empty := emptySources(r.node); len(empty) > 0 {
			f.Msg += ": no column is in " + phrase.Some(empty, 5, ", ")
		}
	default:
		return nil
	}
	return f
}

// emptySources describes the sources of a node's rows that have no columns.
func emptySources(n rel.Node) (list []string) {
	rel.Visit(n, func(n rel.Node) {
		if scan, ok := n.(*rel.Scan); ok && len(scan.Columns) == 0 {
			list = append(list, fmt.Sprintf("%s, %s", scan.Origin.Step, scan.Table.Describe()))
		}
	})
	return list
}

// storable casts columns for which Parquet and Arrow have no type. HUGEINT, the type of
// sums of integers, becomes DECIMAL(38,0), which holds a value or fails. An ENUM becomes a VARCHAR, with the annotation
// that it is one, unless the output has columns of ENUM; inside of nested values it always does.
func storable(e *Estimator, r *Relation, enums bool) (*Relation, error) {
	fields := r.Schema().Fields
	types := make([]gpu.Type, len(fields))
	for i, f := range fields {
		switch types[i] = f.Type; {
		case f.Type.Kind == gpu.HugeInt:
			types[i] = gpu.DecimalOf(gpu.MaxPrecision, 0)
		case f.Type.IsNested() || f.Type.IsEnum() && !enums:
			types[i] = f.Type.WithoutEnums()
		}
	}
	return castTo(e, r, types, &expr.Origin{Step: "output", Path: "output"})
}

// checkNames refuses an output with two columns of one name.
func (q Query) checkNames(e *Estimator, last *Relation) *job.Diagnostic {
	scope := scopeOf(e, last)
	seen := map[string]int{}
	for c, name := range scope.Schema.Names() {
		first, ok := seen[name]
		if !ok {
			seen[name] = c
			continue
		}
		f := &job.Diagnostic{File: q.Text.File(), Location: q.Text.Location(fmt.Sprintf("steps[%d]", len(q.Steps)-1)),
			Step: "output",
			Msg:  fmt.Sprintf("two columns are named %q; name them apart in a select step", name)}
		x, okX := scope.Qualified(first)
		y, okY := scope.Qualified(c)
		if okX && okY {
			f.Msg += fmt.Sprintf(", as in select: [%s, %s as other]", x, y)
		}
		return f
	}
	return nil
}
