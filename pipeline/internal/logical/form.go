package logical

import (
	"fmt"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/job"
)

// CheckForm returns the mistakes in a query that can be found without tables: names of
// sources and steps, the syntax of expressions, and functions that do not exist.
func CheckForm(q Query) job.Diagnostics {
	b := &binder{query: q, named: map[string]*Relation{}}
	for _, name := range q.Sources {
		b.named[name] = nil
	}
	for i := range q.Steps {
		step := &q.Steps[i]
		s := stepBinder{binder: b, at: fmt.Sprintf("steps[%d]", i), name: job.StepName(q.Steps, i), step: step}
		if step.From != "" {
			s.lookup(step.From, ".from")
		}
		if step.SQL != "" {
			if _, err := s.query.Values.ParseStatements(step.SQL); err != nil {
				s.exprDiagnostic(nil, ".sql", step.SQL, err, "")
			}
		}
		s.form(step.Filter, ".filter")
		s.form(step.Qualify, ".qualify")
		s.formOf(step.Select, ".select")
		s.formOf(step.Distinct, ".distinct")
		if jn := step.Join; jn != nil {
			if jn.With != "" {
				s.lookup(jn.With, ".join.with")
			}
			for k, on := range jn.On {
				s.form(on, fmt.Sprintf(".join.on[%d]", k))
			}
		}
		if g := step.Group; g != nil {
			s.formOf(g.By, ".group.by")
			s.formOf(g.Aggregates, ".group.aggregates")
		}
		for k, text := range step.Sort {
			sub := fmt.Sprintf(".sort[%d]", k)
			if body, _, err := parseSortKey(text); err != nil {
				s.faultf(sub, "%v", err)
			} else {
				s.form(body, sub)
			}
		}
		if u := step.Unnest; u != nil {
			s.form(u.List, ".unnest.list")
		}
		for k, name := range step.Union {
			s.lookup(name, fmt.Sprintf(".union[%d]", k))
		}
		b.named[s.name] = nil
	}
	return b.faults
}

// form checks an expression, if there is one.
func (s *stepBinder) form(text, sub string) {
	if text == "" {
		return
	}
	if err := expr.CheckForm(text, s.query.Values); err != nil {
		s.exprDiagnostic(nil, sub, text, err, "")
	}
}

func (s *stepBinder) formOf(list job.Columns, path string) {
	for i, c := range list {
		sub := fmt.Sprintf("%s[%d]", path, i)
		star, err := (*syntax.Star)(nil), error(nil)
		if c.Name == "" {
			star, err = s.query.Values.ParseStar(c.Expr)
		}
		switch {
		case err != nil:
			s.exprDiagnostic(nil, sub, c.Expr, err, "")
		case star != nil:
			for _, x := range star.Replace {
				s.form(x.Text, sub)
			}
		default:
			text, _ := splitAlias(s.query.Values, c)
			s.form(text, sub)
		}
	}
}
