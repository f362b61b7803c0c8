package expr_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/exprtest"
)

// TestTimesInRandomFormatsAreDuckDBs reads text of random formats, some of it damaged, with
// try_strptime.
func TestTimesInRandomFormatsAreDuckDBs(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	r := rand.New(rand.NewPCG(gputest.SeedOr(t, 1), 3))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	specs := [][]string{{"%Y", "2024", "0", "1999", "9999", "71"}, {"%y", "68", "69", "5"},
		{"%m", "2", "02", "12", "13", "0"}, {"%d", "29", "31", "1", "32"}, {"%-d", "9", "09"},
		{"%j", "366", "1", "060", "0"},
		{"%H", "7", "23", "24", "00"}, {"%I", "12", "1", "0", "13"}, {"%p", "pm", "AM", "Pm", "p"},
		{"%M", "59", "60", "0"}, {"%S", "59", "60", "5"}, {"%f", "5", "123456", "0001", "1234567"}, {"%g", "123", "9"},
		{"%n", "123456789", "7"},
		{"%b", "feb", "MAR", "may", "ma"}, {"%B", "March", "may", "JUNE", "Sept"}, {"%a", "Mon", "tue"},
		{"%A", "friday", "Sun"}, {"%z", "+02", "-0230", "+01:30:15", "+1", "Z", "+02:60", "+023"},
		{" ", " ", "  ", "\t", ""}, {"T", "T", "t"}, {"%%", "%"}, {"%c", "2024-03-15 10:11:12"}}
	refused := 0
	for range gputest.Cases(t, 150) {
		format := ""
		var parts [][]string
		for range 1 + r.IntN(5) {
			s := specs[r.IntN(len(specs))]
			separator := one("-", " ", ":", "", ".")
			format += s[0] + separator
			parts = append(parts, append([]string{separator}, s[1:]...))
		}
		rows := make([]gpu.Scalar, 40)
		literals := make([]string, len(rows))
		for i := range rows {
			text := ""
			for _, p := range parts {
				text += p[1+r.IntN(1+r.IntN(len(p)-1))] + p[0]
			}
			switch r.IntN(8) {
			case 0:
				text = one(" ", "\n", "") + text + one(" ", "x", "  \t")
			case 1:
				text = one("epochs", "infin", "infinity 1") // DuckDB's try_strptime of "infinity" is 1900-01-01
			case 2:
				at := r.IntN(len(text) + 1)
				text = text[:at] + one("9", "-", " ", "a") + text[at:]
			}
			rows[i], literals[i] = gpu.StringScalar(text), fmt.Sprintf("(%d, %s)", i, exprtest.Quote(text))
		}
		call := "try_strptime(t, " + exprtest.Quote(format) + ")"
		a := duck.Ask(exprtest.Question{SQL: "SELECT " + call + "::VARCHAR, typeof(" + call + ") FROM (VALUES " +
			strings.Join(literals, ", ") + ") v(i, t) ORDER BY i", Optimize: true})[0]
		schema := gpu.NewSchema(gpu.Field{Name: "t", Type: gpu.Of(gpu.String), Nullable: true})
		e, err := bind(call, &expr.Scope{Schema: schema})
		if err != nil {
			refused++
			require.True(t, a.Error != "" || strings.Contains(*a.Rows[0][1], "_NS") || strings.Count(format, "%j") > 1,
				"%s: %v", call, err)
			continue
		}
		require.Empty(t, a.Error, call)
		require.Equal(t, *a.Rows[0][1], duckType(e.Type()), call)
		text, err := expr.Cast(e, gpu.Of(gpu.String), nil)
		require.NoError(t, err)
		got, err := evaluate(t, schema, []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.String), rows)}, len(rows), text)
		require.NoError(t, err, call)
		for i, v := range got[0] {
			want, ours := "NULL", "NULL"
			if s := a.Rows[i][0]; s != nil {
				want = *s
			}
			if v.Valid {
				ours = v.Str
			}
			assert.Equal(t, want, ours, "%s of %q", call, rows[i].Str)
		}
	}
	require.Less(t, refused, gputest.Cases(t, 150)/2)
}
