package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
)

// Expectation is a condition on the rows of a step: exactly one of its fields besides Severity.
type Expectation struct {
	NotNull    []string          `yaml:"not_null" sql:"true" doc:"Columns without nulls."`
	Unique     []string          `yaml:"unique" sql:"true" doc:"Columns whose values together are in one row only. Rows with a null in one of them do not count."`
	Accepted   map[string]Values `yaml:"accepted" doc:"Columns and the values that they may have, as in {status: [open, closed]}. A null is accepted."`
	References map[string]string `yaml:"references" doc:"Columns whose values must be in a column of a source or step, as in {customer: customers.id}. A null needs no match."`
	Where      string            `yaml:"where" sql:"true" doc:"SQL condition that is false for no row. It may be null, as that of a CHECK constraint."`
	Rows       *RowBounds        `yaml:"rows" doc:"Least and greatest number of rows, as in {min: 1}."`
	Severity   string            `yaml:"severity" doc:"error ends the run, and nothing is written; warn reports the rows and continues." enum:"error,warn" default:"error"`
}

// Values are the values that a column may have, as texts. In an expression such a text takes the type of the column.
type Values []string

// RowBounds bound a number of rows. Nil is no bound.
type RowBounds struct {
	Min *int64 `yaml:"min" doc:"Least number of rows."`
	Max *int64 `yaml:"max" doc:"Greatest number of rows."`
}

// Check is an expectation of a step as further steps, the last of which has the rows that do not meet it.
type Check struct {
	Of   string // the step
	Text string // the expectation, as in not_null: [a]
	Warn bool
	Step string // name of the last of its steps
	// first is the position of the first of its steps.
	first int
}

// Checks returns the checks that WithChecks has added.
func (j *Job) Checks() []Check { return j.checks }

// WrittenSteps returns the names of the steps or sources whose rows the outputs have. A name is "" if there is no such
// step.
func (j *Job) WrittenSteps() (names []string) {
	for _, o := range j.Written() {
		name := o.From
		if last := j.lastStep(); name == "" && last >= 0 {
			name = StepName(j.Steps, last)
		} else if name == "" && len(j.Sources) == 1 {
			name = keys(j.Sources)[0]
		}
		names = append(names, name)
	}
	return names
}

// LastStep returns the name of the last step, or of the only source, as WrittenSteps does.
func (j *Job) LastStep() []string {
	last := *j
	last.Output, last.Outputs = Output{}, nil
	return last.WrittenSteps()
}

// WithChecks returns a job whose expectations are steps after all others. Mistakes in them are found as those of any
// steps, at the places of the expectations.
func (j *Job) WithChecks() *Job {
	if len(j.checks) > 0 {
		return j
	}
	out := *j
	out.Steps, out.locations, out.origins = slices.Clone(j.Steps), maps.Clone(j.locations), maps.Clone(j.origins)
	if out.locations == nil {
		out.locations = map[string]Location{}
	}
	for i := range j.Steps {
		s := &j.Steps[i]
		for k := range s.Expect {
			for _, c := range s.Expect[k].conditions() {
				out.addCheck(i, fmt.Sprintf("%s.expect[%d]", StepPath(i), k), c, s.Expect[k].Severity == "warn")
			}
		}
	}
	if len(out.checks) == 0 {
		return j
	}
	return &out
}

// condition is a part of an expectation: its text, and the steps that find the rows that do not meet it. The first step
// reads the rows. at is the key of the part, with a point.
type condition struct {
	text, at string
	steps    []Step
}

// addCheck adds the steps of a condition on step i.
func (j *Job) addCheck(i int, path string, c condition, warn bool) {
	of := StepName(j.Steps, i)
	check := Check{Of: of, Text: c.text, Warn: warn, first: len(j.Steps)}
	for k, s := range c.steps {
		s.Name = fmt.Sprintf("%s: expect %s", of, c.text)
		if check.Step = s.Name; k < len(c.steps)-1 {
			s.Name += fmt.Sprintf(" (%d)", k+1)
		}
		if s.Join != nil {
			s.Join.With = j.Steps[len(j.Steps)-1].Name // the values that are referred to
		}
		if s.Join != nil || k == 0 && s.From == "" {
			s.From = of
		}
		to := StepPath(len(j.Steps))
		j.locations[to] = j.Location(path + c.at)
		if o := j.origins[path+".where"]; o != nil {
			j.locations[to+".filter"], j.origins[to+".filter"] = j.Location(path+".where"), o
		}
		j.Steps = append(j.Steps, s)
	}
	j.checks = append(j.checks, check)
}

// kinds returns the kinds of the expectation that are set.
func (e *Expectation) kinds() (list []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{{"not_null", e.NotNull != nil}, {"unique", e.Unique != nil}, {"accepted", e.Accepted != nil},
		{"references", e.References != nil}, {"where", e.Where != ""}, {"rows", e.Rows != nil}} {
		if k.set {
			list = append(list, k.name)
		}
	}
	return list
}

// mistake returns a mistake in the form of the expectation, and the key that has it, with a point.
func (e *Expectation) mistake() (key, msg string) {
	kinds := e.kinds()
	switch {
	case len(kinds) == 0:
		return "", "the expectation is empty; give it one of not_null, unique, accepted, references, where or rows"
	case len(kinds) > 1:
		return "." + kinds[1], fmt.Sprintf("the expectation has %s; make it %d expectations",
			strings.Join(kinds, " and "), len(kinds))
	case e.Severity != "" && e.Severity != "error" && e.Severity != "warn":
		return ".severity", fmt.Sprintf("severity is %q; it must be error or warn", e.Severity)
	case e.Rows != nil && e.Rows.Min == nil && e.Rows.Max == nil:
		return ".rows", "rows needs min, max or both, as in rows: {min: 1}"
	case e.Rows != nil && e.Rows.Min != nil && e.Rows.Max != nil && *e.Rows.Min > *e.Rows.Max:
		return ".rows", fmt.Sprintf("no number of rows is at least %d and at most %d", *e.Rows.Min, *e.Rows.Max)
	}
	for _, list := range [][]string{e.NotNull, e.Unique} {
		if list != nil && len(list) == 0 {
			return "." + kinds[0], kinds[0] + " names no columns"
		}
	}
	for _, column := range sortedKeys(e.Accepted) {
		if len(e.Accepted[column]) == 0 {
			return ".accepted", fmt.Sprintf("accepted has no values of %q", column)
		}
	}
	for _, column := range sortedKeys(e.References) {
		if _, _, ok := target(e.References[column]); !ok {
			return ".references", fmt.Sprintf("%q is not a column of a source or step; write {%s: customers.id}",
				e.References[column], column)
		}
	}
	return "", ""
}

// target returns the relation and the column that a reference names: the column is behind the last point.
func target(reference string) (relation, column string, ok bool) {
	at := strings.LastIndexByte(reference, '.')
	if strings.HasSuffix(reference, `"`) {
		at = strings.LastIndex(strings.TrimSuffix(reference, `"`), `."`)
	}
	if at <= 0 || at == len(reference)-1 {
		return "", "", false
	}
	return strings.Trim(reference[:at], `"`), reference[at+1:], true
}

// conditions returns the parts of the expectation. One with a mistake has none.
func (e *Expectation) conditions() (list []condition) {
	if _, msg := e.mistake(); msg != "" {
		return nil
	}
	join := func(columns []string, test string) string {
		parts := make([]string, len(columns))
		for i, c := range columns {
			parts[i] = "(" + c + ")" + test
		}
		return strings.Join(parts, map[string]string{" IS NULL": " OR ", " IS NOT NULL": " AND "}[test])
	}
	const count, referred = "rows_of_key", "referenced_value"
	switch {
	case e.NotNull != nil:
		list = append(list, condition{"not_null: [" + strings.Join(e.NotNull, ", ") + "]", ".not_null",
			[]Step{{Filter: join(e.NotNull, " IS NULL")}}})
	case e.Unique != nil:
		g := &Group{Aggregates: Columns{{count, "count(*)"}}}
		for _, c := range e.Unique {
			g.By = append(g.By, Column{"", c})
		}
		list = append(list, condition{"unique: [" + strings.Join(e.Unique, ", ") + "]", ".unique",
			[]Step{{Filter: join(e.Unique, " IS NOT NULL")}, {Group: g}, {Filter: count + " > 1"}}})
	case e.Where != "":
		list = append(list, condition{"where: " + e.Where, ".where", []Step{{Filter: "NOT (" + e.Where + ")"}}})
	case e.Rows != nil:
		var tests, texts []string
		if n := e.Rows.Min; n != nil {
			tests, texts = append(tests, fmt.Sprintf("rows < %d", *n)), append(texts, fmt.Sprintf("min: %d", *n))
		}
		if n := e.Rows.Max; n != nil {
			tests, texts = append(tests, fmt.Sprintf("rows > %d", *n)), append(texts, fmt.Sprintf("max: %d", *n))
		}
		list = append(list, condition{"rows: {" + strings.Join(texts, ", ") + "}", ".rows",
			[]Step{{Group: &Group{Aggregates: Columns{{"rows", "count(*)"}}}}, {Filter: strings.Join(tests, " OR ")}}})
	}
	for _, column := range sortedKeys(e.Accepted) {
		values := make([]string, len(e.Accepted[column]))
		for i, v := range e.Accepted[column] {
			values[i] = syntax.Quote(v)
		}
		list = append(list, condition{
			fmt.Sprintf("accepted: {%s: [%s]}", column, strings.Join(e.Accepted[column], ", ")), ".accepted",
			[]Step{{Filter: fmt.Sprintf("(%s) NOT IN (%s)", column, strings.Join(values, ", "))}}})
	}
	for _, column := range sortedKeys(e.References) {
		relation, key, _ := target(e.References[column])
		list = append(list, condition{fmt.Sprintf("references: {%s: %s}", column, e.References[column]), ".references",
			[]Step{{From: relation, Select: Columns{{referred, key}}},
				{Join: &Join{Kind: "anti", On: []string{fmt.Sprintf("(%s) = %s", column, referred)}}},
				{Filter: fmt.Sprintf("(%s) IS NOT NULL", column)}}})
	}
	return list
}
