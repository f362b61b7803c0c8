package pipeline

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

func TestFaultsOfExpressionsStandAtTheirLocationInTheFile(t *testing.T) {
	const wrong = "nowhere"
	for name, step := range map[string]string{
		"plain":             "filter: a + b > nowhere",
		"plain, first":      "filter: nowhere = 1",
		"many lines":        "filter: a = 1\n      and b = 2 and\n      nowhere = 3",
		"single quotes":     "filter: 'd = ''x'' or nowhere = 3'",
		"double quotes":     `filter: "\"a\" = 1 and nowhere = 3"`,
		"literal block":     "filter: |\n      a = 1\n        and nowhere = 3\n      and b = 2",
		"folded block":      "filter: >-\n      a = 1\n      and nowhere = 3",
		"not ASCII":         "filter: d = 'äöü' and nowhere = 'ß'",
		"list":              "select: [a, b + nowhere, d]",
		"list with alias":   "select:\n    - a\n    - b + nowhere as c",
		"mapping":           "select: {x: a, y: b * nowhere}",
		"mapping in a list": "select:\n    - x: a\n    - y: b * nowhere",
		"group key":         "group: {by: [a + nowhere]}",
		"aggregate":         "group: {by: a, aggregates: {n: count(*), m: 1 + sum(b * nowhere)}}",
		"column not a key":  "group:\n      by: a\n      aggregates:\n        n: \"count(*) + nowhere\"",
		"sort":              "sort: [b, a + nowhere desc nulls first]",
		"join":              "join: {with: u, on: t.a = u.a and t.b = u.nowhere}",
		"behind a variable": "filter: a = ${one} and b = ${one} and nowhere = 1",
		"behind a value":    "filter: a = ${five} and d <> ${text} and nowhere = 1",
		"behind a literal":  "filter: d = '${five} ${text}' and nowhere = 1",
		"behind a dollar":   "filter: d = '$$' and nowhere = 1",
		"cast":              "select: [a::varchar, b::int + nowhere::int as c]",
		"cast in braces":    "group: {by: [a::varchar as x, nowhere::int as y], aggregates: {n: count(*)}}",
		"inside a variable": "filter: a = 1 and ${nowhere} = 1",
	} {
		t.Run(name, func(t *testing.T) {
			src := "vars: {one: {default: '1000 + 1', type: sql}, nowhere: {default: nowhere, type: sql}, five: 5, " +
				"text: abc}\nsources: {t: t, u: u}\nsteps:\n  - from: t\n    " + step + "\noutput: {parquet: out}\n"
			at := strings.LastIndex(src, wrong)
			if strings.HasSuffix(src[:at], "u.") {
				at -= 2 // a name begins with its table
			}
			if i := strings.LastIndex(src, "${"+wrong); i >= 0 {
				at = i
			}
			start := strings.LastIndexByte(src[:at], '\n') + 1
			want := Location{Line: strings.Count(src[:at], "\n") + 1, Column: utf8.RuneCountInString(src[start:at]) + 1}
			job, err := Parse("job.yaml", []byte(src), LoadOptions{})
			require.NoError(t, err)
			_, err = newPlan(t.Context(), job, map[string]source.Table{"t": emptyTable(t), "u": emptyTable(t)}, nil)
			var faults Diagnostics
			require.ErrorAs(t, err, &faults)
			require.Len(t, faults, 1)
			assert.Equal(t, want, faults[0].Location, faults[0].Msg)
			assert.Contains(t, faults[0].Msg, wrong)
			assert.NotContains(t, faults[0].Msg, "line ")
		})
	}
}

func TestFaultsOfJobsBuiltInGoSayWhereInTheExpression(t *testing.T) {
	_, err := New("job").ReadTable("t", emptyTable(t)).Filter("a = 1 and nowhere = 2").Write("out",
		sinkparquet.Options{}).Plan()
	assert.ErrorContains(t, err, `filter 1: line 1, column 11: there is no column "nowhere"`)
}
