package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMessagesSayWhatToDo has mistakes of new users, and what the message says.
func TestMessagesSayWhatToDo(t *testing.T) {
	for step, want := range map[string]string{
		"filter: nvl(n, 1) = 1":    `:4:11: filter 1: there is no function "nvl"; coalesce(x, y) does that`,
		"filter: to_char(n) = '1'": "strftime(x, format) makes text of a date, x::VARCHAR of anything else",
		"select: explode(n)":       `there is no function "explode"; unnest(x) does that`,
		"select: getdate()":        "now() does that",
		"select: lenght(s)":        `there is no function "lenght"; did you mean "length"?`,
		"select: xyz(s)":           `there is no function "xyz"`,
		"filter: 'x' = url":        `:4:15: YAML ends a value that begins with a quote at the next quote; quote all of it: "'x' = url"`,
		`filter: "x" = 'url'`:      `quote all of it: '"x" = ''url'''`,
		"where: n > 1":             `:4:3: unknown key "where"; a filter step has a condition: filter`,
		"having: n > 1":            "a filter step after the group has such a condition: filter",
		"query: select 1":          "; a step with a query is sql",
		"order_by: n":              "; that is sort",
		"group_by: n":              "; that is by in group: {by: …, aggregates: …}",
		"fliter: n > 1":            `unknown key "fliter" (did you mean "filter"?)`,
		"filter: [a, b]":           ":4:11: step 1: filter must be a single value, not a list",
		"select: [n, {x: [1]}]":    "step 1: select, item 2 must be a single value",
		"limit: many":              `step 1: limit.count is "many"; it must be a whole number`,
		"select: last(n) ignore nulls over ()": ":4:19: select 1: IGNORE NULLS stands before the closing " +
			"parenthesis, as in last(x IGNORE NULLS)",
		"select: first(n) respect nulls over ()": "RESPECT NULLS stands before the closing parenthesis, as in " +
			"first(x RESPECT NULLS)",
	} {
		j, err := Parse("job.yaml", []byte("sources: {t: t}\noutput: {parquet: out}\nsteps:\n- "+step+"\n"),
			LoadOptions{})
		if err == nil {
			err = Lint(j, LintOptions{NoData: true})
		}
		require.ErrorIs(t, err, ErrJob, step)
		require.ErrorContains(t, err, want, step)
		if want == `there is no function "xyz"` {
			require.NotContains(t, err.Error(), "did you mean")
		}
	}
}

// TestSuggestionsAreNear has names with which nothing has to do that gstream knows.
func TestSuggestionsAreNear(t *testing.T) {
	for _, name := range []string{"nvl", "to_char", "unnest", "foo", "my_function", "xml"} {
		err := Lint(New("x").Read("t", "t").Filter(name+"(n)").Job(), LintOptions{NoData: true})
		require.ErrorContains(t, err, "function", name)
		require.NotContains(t, err.Error(), "did you mean", name)
	}
}

// TestLintGoesOnBehindAMistake has mistakes in steps that follow each other.
func TestLintGoesOnBehindAMistake(t *testing.T) {
	j, err := Parse("job.yaml",
		[]byte("sources: {t: ../examples/quickstart/data/nation.parquet}\noutput: {parquet: out}\nsteps:\n- filter: "+
			"nowhere = 1\n- filter: n_name =\n- {limit: 1, sort: n_name}\n- select: lenght(n_name)\n- "+
			"union: nothing\n"), LoadOptions{})
	require.NoError(t, err)
	err = Lint(j, LintOptions{})
	for _, want := range []string{`:4:11: filter 1: there is no column "nowhere"`, ":5:1", "a step does one thing",
		`there is no function "lenght"`, `named "nothing"`} {
		require.ErrorContains(t, err, want)
	}
}
