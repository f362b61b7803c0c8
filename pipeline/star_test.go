package pipeline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStarExcludesReplacesAndRenames(t *testing.T) {
	for src, want := range map[string]string{
		"* exclude (name, user_id)":                         `[{"manager":null,"pay":9}]`,
		"* EXCLUDE name":                                    `[{"user_id":1,"manager":null,"pay":9}]`,
		"u.* exclude (u.name, u.manager)":                   `[{"user_id":1,"pay":9}]`,
		`* replace (pay * 2 as pay, upper("name") as name)`: `[{"user_id":1,"manager":null,"name":"ADA","pay":18}]`,
		"* exclude (manager) replace (pay + 1 as pay) rename (user_id as id, name as who)": `[{"id":1,"who":"Ada","pay":10}]`,
		"* rename pay as wage": `[{"user_id":1,"manager":null,"name":"Ada","wage":9}]`,
		"* exclude (manager, user_id, name) replace (row_number() over (order by pay desc) as pay)": `[{"pay":1}]`,
	} {
		b := staff(t).From("u").Filter("user_id = 1").Select(src)
		requireRows(t, b, want)
	}
}

func TestMistakesInAStarArePointedOut(t *testing.T) {
	for src, want := range map[string]string{
		"* exclude (nam)":                         `EXCLUDE: * has no column "nam"`,
		"* exclude (pay) replace (1 as pay)":      `REPLACE: column "pay" is in EXCLUDE already`,
		"* replace (pay)":                         "expected AS",
		"* rename (pay to x)":                     "expected AS",
		"* exclude ()":                            "expected the name of a column",
		"* exclude (pay":                          "expected )",
		"* without (pay)":                         "expected EXCLUDE, REPLACE, RENAME or the end",
		"* replace (pai + 1 as pay)":              `there is no column "pai"; did you mean "pay"?`,
		"* exclude (user_id, manager, name, pay)": "EXCLUDE leaves no column",
		"* rename (pay as name)":                  `two columns are named "name"`,
		"nobody.* exclude (a)":                    `no column "a"`,
	} {
		_, err := staff(t).From("u").Select(src).WriteTo(&Collector{}).Plan()
		require.ErrorContains(t, err, want, src)
		require.False(t, strings.Contains(err.Error(), "panic"), src)
	}
}
