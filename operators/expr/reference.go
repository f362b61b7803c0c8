package expr

import (
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
)

// Entry describes a function, an operator, a type or a date part for the reference. It comes from
// the tables of the binder.
type Entry struct {
	Chapter string   `json:"chapter"`
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	// Syntax shows the arguments, as in round(x[, digits]).
	Syntax string `json:"syntax"`
	// Result describes the type of the result.
	Result string `json:"result"`
	// Nulls says when the result is null.
	Nulls    string    `json:"nulls"`
	About    string    `json:"about"`
	Examples []Example `json:"examples,omitempty"`
}

// Example is a constant expression and its result as text, NULL for null.
type Example struct {
	SQL    string `json:"sql"`
	Result string `json:"result"`
}

// Reference returns all entries, chapter by chapter.
func Reference() []Entry {
	var out []Entry
	add := func(e Entry, examples string) {
		if e.Nulls == "" {
			e.Nulls = "if an argument is"
		}
		e.Examples = parseExamples(examples)
		out = append(out, e)
	}
	for _, b := range syntax.BinaryOperators {
		o := operators[b.Name]
		add(Entry{Chapter: "Operators", Name: b.Name, Aliases: strings.Fields(b.Spellings),
			Syntax: "x " + b.Name + " y",
			Result: o.result, Nulls: o.nulls, About: o.about}, o.examples)
	}
	for _, f := range formTable {
		add(Entry{Chapter: "Operators", Name: f.name, Syntax: f.syntax, Result: f.result, Nulls: f.nulls,
			About: f.about}, f.examples)
	}
	for _, c := range chapters {
		for _, f := range c.functions {
			add(Entry{Chapter: c.title, Name: f.name, Aliases: strings.Fields(f.aliases),
				Syntax: f.name + "(" + f.args + ")", Result: f.result, Nulls: f.nulls, About: f.about}, f.examples)
		}
	}
	for _, p := range syntax.DateParts {
		e := Entry{Chapter: "Parts of dates", Name: strings.ToLower(p.Name),
			Aliases: strings.Fields(strings.ToLower(p.Aliases)), Result: datePartResult(p.Part),
			Nulls: "if the date is null or infinite", About: p.About}
		e.Syntax = "date_part('" + e.Name + "', d)"
		argument, result, _ := strings.Cut(p.Example, " → ")
		add(e, "date_part('"+e.Name+"', "+strings.Trim(argument, "()")+") → "+result)
	}
	for _, t := range syntax.Types {
		names := strings.Fields(t.Names)
		add(Entry{Chapter: "Types", Name: names[0], Aliases: names[1:], Syntax: "x::" + names[0], Result: names[0],
			About: t.About}, t.Examples)
	}
	return out
}

func parseExamples(lines string) []Example {
	var out []Example
	for line := range strings.Lines(lines) {
		sql, result, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " → ")
		out = append(out, Example{sql, result})
	}
	return out
}
