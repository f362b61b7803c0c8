package expr_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
)

// duckTable is the table of testdata/cases.py.
func duckTable(t testing.TB) *table {
	return newTable(t,
		[]string{"i8 tinyint", "1", "-5", "0", `\N`, "100"},
		[]string{"i16 smallint", "2", "-300", "0", `\N`, "30000"},
		[]string{"i32 integer", "7", "-70000", "0", `\N`, "2000000000"},
		[]string{"i64 bigint", "70", "-5000000000", "0", `\N`, "4000000000000000000"},
		[]string{"u8 utinyint", "2", "200", "0", `\N`, "9"},
		[]string{"u16 usmallint", "3", "60000", "0", `\N`, "8"},
		[]string{"u32 uinteger", "4", "4000000000", "0", `\N`, "7"},
		[]string{"u64 ubigint", "5", "18000000000000000000", "0", `\N`, "6"},
		[]string{"f32 float", "1.5", "-0.25", "0", `\N`, "1e10"},
		[]string{"f64 double", "2.25", "-1e10", "0", `\N`, "0.1"},
		[]string{"d4 decimal(4,2)", "1.25", "-99.99", "0", `\N`, "10.01"},
		[]string{"d15 decimal(15,2)", "100.05", "-12345678.90", "0", `\N`, "9999999.99"},
		[]string{"d18 decimal(18,6)", "3.141592", "-0.000001", "0", `\N`, "123456789012.000001"},
		[]string{"d38 decimal(38,10)", "12345678901234567890.0123456789", "-0.5", "0", `\N`, "1"},
		[]string{"dt date", "1994-01-31", "1969-12-31", "2000-02-29", `\N`, "2024-12-30"},
		[]string{"ts timestamp", "1994-01-31 10:11:12.5", "1969-12-31 23:59:59.999999", "2016-02-29 00:00:00", `\N`,
			"2024-12-30 12:00:00"},
		[]string{"tm time", "10:11:12.123", "00:00:00", "23:59:59.999999", `\N`, "12:00:00"},
		[]string{"tn timestamp_ns", "1994-01-31 10:11:12.123456789", "2001-02-03 04:05:06", "1970-01-01 00:00:00", `\N`,
			"2024-12-30 12:00:00.5"},
		[]string{"bo boolean", "true", "false", "true", `\N`, "false"},
		[]string{"s varchar", "abc", "Äöü %_x", "", `\N`, "  Green forest  "},
		[]string{"bl blob", "ab", `\x00\xFF`, "", `\N`, "xyz"},
		[]string{"h hugeint", "91", "-170141183460469231731687303715884105728", "0", `\N`,
			"170141183460469231731687303715884105727"},
		[]string{"di date", "infinity", "-infinity", "5881580-07-10", `\N`, "2020-02-29"},
		[]string{"ti timestamp", "infinity", "-infinity", "294247-01-10 04:00:54.775806", `\N`,
			"2020-02-29 10:11:12.131415"},
		// DuckDB reads milliseconds of files as microseconds, and its table has these.
		[]string{"tms timestamp_ms", "2020-01-01 00:00:00.5", "1969-12-31 23:59:59.999", "2020-01-01 00:00:00", `\N`,
			"2020-02-29 10:11:12.131"},
	)
}

// TestExpressionsGiveDuckDBsTypesAndValues runs the cases that testdata/cases.py had
// DuckDB evaluate. It compares the values as DuckDB's text.
func TestExpressionsGiveDuckDBsTypesAndValues(t *testing.T) {
	tab := duckTable(t)
	data, err := os.ReadFile("testdata/cases.tsv")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	require.Greater(t, len(lines), 300)
	for _, line := range lines {
		fields := strings.Split(line, "\t")
		src, typ, want := fields[0], fields[1], fields[2:]
		t.Run(src, func(t *testing.T) {
			e, err := bind(src, &expr.Scope{Schema: tab.schema})
			if err == nil {
				_, err = evaluate(t, tab.schema, tab.cols, tab.rows, e)
			}
			if typ == "ERROR" {
				require.Error(t, err, "DuckDB refuses it")
				return
			}
			require.NoError(t, err)
			if typ == "NULL" {
				typ = e.Type().String() // the type of NULL does not matter
			}
			if typ == "JSON" {
				assert.Equal(t, gpu.JSON, e.Annotation())
			}
			assert.Equal(t, strings.ReplaceAll(typ, "JSON", "VARCHAR"), e.Type().String())
			text, err := expr.Cast(e, gpu.Of(gpu.String), host.Fold)
			require.NoError(t, err)
			got, err := evaluate(t, tab.schema, tab.cols, tab.rows, text)
			require.NoError(t, err)
			for i, v := range got[0] {
				g := v.Str
				if !v.Valid {
					g = `\N`
				}
				assert.Equal(t, normal(want[i]), normal(g), "row %d", i)
			}
		})
	}
}

// normal removes the sign of NaN, which has no meaning.
func normal(s string) string {
	if s == "-nan" {
		return "nan"
	}
	return s
}
