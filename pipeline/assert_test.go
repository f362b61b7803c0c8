package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsOfExpressionsAreNotOptimisedAway(t *testing.T) {
	onBothDevices(t, func(t *testing.T, opt RunOptions) {
		run := func(query string) ([]string, error) {
			out := &Collector{}
			_, err := New("assert").ReadTable("t", thousand(t)).SQL(query).WriteTo(out).Run(t.Context(), opt)
			return textOf(out), err
		}
		for query, want := range map[string]string{
			"select case when k < 7 then k else error('k is ' || k) end as x from t":              "k is ",
			"select error('always') as x from t":                                                  "always",
			"select count(*) as n from (select k, error(name) as e from t where k = 5)":           "row 5",
			"select g from (select g, assert_true(k < 999, name) as e from t) where g = 9":        "row 999",
			"select g, n from (select g, count(*) as n, error('group') as e from t group by g)":   "group",
			"select k from t where k < 3 and assert_true(k < 2, 'too large') is null":             "too large",
			"select k from t where assert_true(k < 2) is null":                                    "the assertion",
			"select k from t where assert_true(k < 2, null) is null":                              "the assertion",
			"select k from t where assert_true(nullif(k, 3) >= 0, 'null: ' || k) is null":         "null: 3",
			"select coalesce(case when k < 500 then date '2026-01-01' end, error('none')) from t": "none",
		} {
			_, err := run(query)
			require.ErrorContains(t, err, want, query)
			require.ErrorIs(t, Class(err), ErrData, query)
		}
		for query, want := range map[string]string{
			"select sum(case when k >= 0 then k else error('k is ' || k) end)::bigint as x from t": "499500",
			"select count(*) as n from (select k, error(name) as e from t where k < 0)":            "0",
			"select count(*) as n from (select k, assert_true(k < 1000, name) as e from t)":        "1000",
			"select count(error(nullif(name, name))) as n from t":                                  "0",
			"select count(*) as n from t where k >= 0 or error('never') is null":                   "1000",
		} {
			rows, err := run(query)
			require.NoError(t, err, query)
			require.Equal(t, []string{want}, rows, query)
		}
	})
}
