package pipeline

import (
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
)

// variablesPlan plans steps over a table of people, with variables.
func variablesPlan(t *testing.T, vars, steps string, opt LoadOptions) (*Plan, error) {
	src := "vars: " + vars + "\nsources: {people: people.parquet}\nsteps:\n" + steps +
		"\noutput: {parquet: out.parquet}\n"
	j, err := Parse("job.yaml", []byte(src), opt)
	if err != nil {
		return nil, err
	}
	fields := []arrow.Field{{Name: "name", Type: arrow.BinaryTypes.String},
		{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "day", Type: arrow.FixedWidthTypes.Date32},
		{Name: `od"d`, Type: arrow.PrimitiveTypes.Int64}, {Name: "yes", Type: arrow.FixedWidthTypes.Boolean}}
	table := record(t, fields,
		`[{"name": "O'Brien", "n": 5, "day": 19723, "od\"d": 1, "yes": true}, {"name": "x", "n": -3, "day": 19724, "od\"d": 2, "yes": false},
		{"name": "a\\b", "n": 7, "day": 19725, "od\"d": 3, "yes": false}, {"name": "$5", "n": 8, "day": 19726, "od\"d": 4, "yes": false}]`)
	return newPlan(t.Context(), j, map[string]source.Table{"people": table}, &Collector{})
}

// TestAVariableInAnExpressionIsAValue has the numbers n of the rows that a filter keeps.
func TestAVariableInAnExpressionIsAValue(t *testing.T) {
	for name, c := range map[string]struct {
		vars, filter string
		set          map[string]string
		want         string
	}{
		"a quote":              {"{v: }", "name = ${v}", map[string]string{"v": "O'Brien"}, "5"},
		"a condition":          {"{v: }", "name = ${v}", map[string]string{"v": "x' or '1'='1"}, ""},
		"a condition, default": {`{v: "x' or '1'='1"}`, "name = '${v}'", nil, ""},
		"in a literal":         {"{v: }", "name like '${v}%'", map[string]string{"v": "O'"}, "5"},
		"in an escaped one":    {"{v: }", `"name = E'${v}'"`, map[string]string{"v": `a\b`}, "7"},
		"beside a dollar":      {"{v: 5}", "name = '$$${v}' or name = $$$$O'Brien$$$$", nil, "5 8"},
		"in a comment":         {"{v: }", `"name = ${v} /* ${v} */ -- ${v}"`, map[string]string{"v": "O'Brien"}, "5"},
		"in a comment in one": {"{v: }", `"name = ${v} /* a /* b */ it's '${v}' */"`,
			map[string]string{"v": "*/ or true /*"}, ""},
		"a name":              {"{v: }", `'"${v}" = 2'`, map[string]string{"v": `od"d`}, "-3"},
		"a text for a number": {"{v: }", "n = ${v}", map[string]string{"v": "7"}, "7"},
		"a text for a date":   {"{v: }", "day >= ${v}", map[string]string{"v": "2024-01-03"}, "7 8"},
		"a number":            {"{v: 1}", "n - ${v} = -2 and 0 - ${v} = 5", map[string]string{"v": "-5"}, ""},
		"a negative number":   {"{v: -3}", "n -${v} = 8", nil, "5"},
		"a decimal":           {"{v: 1.5}", "n * ${v} = 7.5", nil, "5"},
		"a declared number":   {"{v: {type: number}}", "n * ${v} = 14", map[string]string{"v": "2"}, "7"},
		"a boolean":           {"{v: false}", "yes = ${v}", map[string]string{"v": "true"}, "5"},
		"a date":              {"{v: 2024-01-01}", "day = ${v} + 1", nil, "-3"},
		"a date in a literal": {"{v: 2024-01-01}", "day = date '${v}'", nil, "5"},
		"a declared date": {"{v: {type: date, default: '2024-01-02'}}", "day < ${v} + interval 1 day", nil,
			"5 -3"},
		"a timestamp": {"{v: {type: timestamp}}", "day + time '00:00' > ${v}",
			map[string]string{"v": "2024-01-03 12:00:00"}, "8"},
		"a text that is none": {"{v: {type: text, default: 5}}", "name = '$' || ${v}", nil, ""},
		"sql":                 {"{v: {type: sql}}", "${v}", map[string]string{"v": "n = 5 or n = 8"}, "5 8"},
		"sql of a value":      {"{v: {type: sql, default: 'n = 5'}}", "${v} and yes", nil, "5"},
		"the environment": {"{v: '${env:V}'}", "name = ${env:V} and name = ${v} and name like '${env:V}%'", nil,
			"5"},
		"a default of that": {"{}", "n = ${env:W:-7}", nil, "7"},
		"a number of that":  {"{v: {type: number, default: '${env:N}'}}", "n = ${v}", nil, "-3"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a text that is none" {
				c.filter = "name = '$$' || ${v}"
				c.want = "8"
			}
			env := map[string]string{"V": "O'Brien", "N": "-3"}
			opt := LoadOptions{Set: c.set, LookupEnv: func(n string) (string, bool) { v, ok := env[n]; return v, ok }}
			p, err := variablesPlan(t, c.vars, "- filter: "+c.filter+"\n- select: n", opt)
			require.NoError(t, err)
			_, err = p.Run(t.Context(), RunOptions{Use: Host, Threads: 1})
			require.NoError(t, err)
			require.Equal(t, c.want, strings.Join(textOf(p.targets[0].(*Collector)), " "))
		})
	}
}

func TestAVariableOfAnotherTypeIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ vars, filter, value, want string }{
		"a number": {"{v: 5}", "n = ${v}", "abc",
			`job.yaml:4:11: step 1: filter: v is "abc", but its default is a number`},
		"a number and more": {"{v: {type: number}}", "n = ${v}", "1 or true",
			`v is "1 or true", which is no number`},
		"a boolean": {"{v: true}", "yes = ${v}", "maybe",
			`v is "maybe", but its default is a true or false`},
		"a date": {"{v: 2024-01-01}", "day = ${v}", "today", `v is "today", but its default is a date`},
		"a declared date": {"{v: {type: date}}", "day = ${v}", "today",
			`job.yaml:4:17: filter 1: in CAST('today' AS DATE)`},
		"a backslash": {"{v: }", `"name = E'\\${v}'"`, "' or true --",
			"a variable is not possible behind a backslash"},
		"no type": {"{v: {type: column}}", "day = ${v}", "today",
			`type is "column"; it must be one of text, number`},
		"dollar quotes": {"{v: }", "name = $$$$${v}$$$$", "a", "a variable is not possible in $$…$$"},
		"sql of the system": {"{w: {type: sql, default: '${env:E}'}, v: }", "${w}", "a",
			"the variable w is of type sql"},
		"a name of the system": {"{v: }", `'"${env:E}" = 1'`, "a", "which is not possible in a name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := variablesPlan(t, c.vars, "- filter: "+c.filter,
				LoadOptions{Set: map[string]string{"v": c.value},
					LookupEnv: func(string) (string, bool) { return "e", true }})
			require.ErrorIs(t, err, ErrJob)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestValuesOfTheEnvironmentAreNotShown has jobs with a value of the environment, some of which fail.
func TestValuesOfTheEnvironmentAreNotShown(t *testing.T) {
	const secret = "hunter2-and-more"
	for name, c := range map[string]struct {
		vars, steps string
		fails       string // part of the error
	}{
		"a comparison":       {"{}", "- filter: name = ${env:S}", ""},
		"a literal":          {"{}", "- filter: name like '${env:S}%'", ""},
		"a list":             {"{}", "- filter: name in ('a', ${env:S}, 'b')", ""},
		"a function":         {"{}", "- filter: regexp_matches(name, ${env:S}) and upper(${env:S}) <> name", ""},
		"a variable":         {"{v: '${env:S}'}", "- filter: name = ${v} || '${v}'", ""},
		"a name of a column": {"{}", "- select: ['concat(name, ${env:S})', \"md5('${env:S}')\"]", ""},
		"an aggregate": {"{}",
			"- group: {by: \"name || '${env:S}'\", aggregates: \"string_agg(name, '${env:S}' order by n)\"}", ""},
		"a window": {"{}", "- select: \"lag(name, 1, '${env:S}') over (order by n)\"", ""},
		"a join": {"{}",
			"- join: {with: people, as: p, kind: semi, on: 'people.n = p.n and p.name < ${env:S}'}", ""},
		"a cast":              {"{}", "- filter: n = ${env:S}", "in "},
		"a cast of a literal": {"{}", "- filter: day = date '${env:S}'", "in "},
		"a cast on rows":      {"{}", "- filter: n > 0 and (name || ${env:S})::integer = 1", "in "},
		"no operator":         {"{}", "- filter: day + 'a' + ${env:S}", "filter 1"},
		"syntax":              {"{}", "- filter: name ${env:S}", "the value of ${env:S}"},
		"a wrong number": {"{v: {type: number, default: '${env:S}'}}", "- filter: n = ${v}",
			"the value of ${v} is no number"},
		"a function that refuses": {"{}", "- select: date_trunc('${env:S}', day)", "***"},
	} {
		t.Run(name, func(t *testing.T) {
			env := func(n string) (string, bool) { return secret, n == "S" }
			p, err := variablesPlan(t, c.vars, c.steps, LoadOptions{LookupEnv: env})
			var text string
			if err == nil {
				text = p.Explain("host").String()
				var report *Report
				if report, err = p.Run(t.Context(), RunOptions{Use: Host, Threads: 1}); err == nil {
					text += report.String()
				}
				for _, f := range p.Schema().Fields {
					text += f.Name
				}
			}
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				text += err.Error()
			} else {
				require.NoError(t, err)
			}
			require.NotContains(t, strings.ToLower(text), "hunter2", text)
		})
	}
}
