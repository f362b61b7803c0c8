package pipeline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
)

// checked has rows with a null, a key that occurs twice, and a status that is misspelt.
func checked(t *testing.T) source.Table {
	return record(t, []arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "the status", Type: arrow.BinaryTypes.String, Nullable: true}},
		`[{"k": 1, "the status": "open"}, {"k": 2, "the status": "closed"}, {"k": 2, "the status": "clsed"},
		{"k": null, "the status": null}, {"k": 7, "the status": "open"}, {"k": 7, "the status": "open"},
		{"k": null, "the status": "open"}]`)
}

func TestExpectations(t *testing.T) {
	two, nine := int64(2), int64(9)
	cases := []struct {
		text   string
		expect Expectation
		rows   int64
		first  string
	}{
		{"not_null: [k]", Expectation{NotNull: []string{"k"}}, 2, "k = NULL, the status = NULL"},
		{`not_null: [k, "the status"]`, Expectation{NotNull: []string{"k", `"the status"`}}, 2,
			"k = NULL, the status = NULL"},
		{"not_null: [k + 1]", Expectation{NotNull: []string{"k + 1"}}, 2, "k = NULL, the status = NULL"},
		{"unique: [k]", Expectation{Unique: []string{"k"}}, 2, ""},
		{`unique: [k, "the status"]`, Expectation{Unique: []string{"k", `"the status"`}}, 1,
			"k = 7, the status = open, rows_of_key = 2"},
		{`accepted: {"the status": [open, closed]}`,
			Expectation{Accepted: map[string]Values{`"the status"`: {"open", "closed"}}}, 1,
			"k = 2, the status = clsed"},
		{"accepted: {k: [1, 2, 7]}", Expectation{Accepted: map[string]Values{"k": {"1", "2", "7"}}}, 0, ""},
		{"references: {k: other.g}", Expectation{References: map[string]string{"k": "other.g"}}, 0, ""},
		{`references: {k: "the small".g}`, Expectation{References: map[string]string{"k": `"the small".g`}}, 4, ""},
		{"where: k < 7", Expectation{Where: "k < 7"}, 2, "k = 7, the status = open"},
		{"where: k < 7 or true", Expectation{Where: "k < 7 or true"}, 0, ""},
		{"rows: {min: 2, max: 9}", Expectation{Rows: &RowBounds{Min: &two, Max: &nine}}, 0, ""},
		{"rows: {min: 9}", Expectation{Rows: &RowBounds{Min: &nine}}, 1, "rows = 7"},
		{"rows: {max: 2}", Expectation{Rows: &RowBounds{Max: &two}}, 1, "rows = 7"},
	}
	onBothDevices(t, func(t *testing.T, opt RunOptions) {
		for _, severity := range []string{"", "warn"} {
			out := filepath.Join(t.TempDir(), "out.parquet")
			b := New("checked").ReadTable("t", checked(t)).ReadTable("other", thousand(t)).
				From("other").Filter("g < 2").As("the small").From("t").Select("*").As("rows")
			for _, c := range cases {
				c.expect.Severity = severity
				b.Expect(c.expect)
			}
			b.From("the small").Group([]string{"g"}, "count(*) as n").As("others").
				WriteAll(Output{From: "rows", Parquet: Path(out)}, Output{Parquet: Path(out + "2")})
			report, err := b.Run(t.Context(), opt)
			require.Len(t, report.Expectations, len(cases))
			for i, c := range cases {
				e := report.Expectations[i]
				require.Equal(t, c.text, e.Expects)
				require.Equal(t, "rows", e.Step)
				require.Equal(t, c.rows, e.Rows, c.text)
				if c.first != "" {
					require.Equal(t, c.first, e.First(), c.text)
				}
				if severity == "" && c.rows > 0 {
					require.ErrorContains(t, err, "rows: expect "+c.text)
				}
			}
			if severity == "warn" {
				require.NoError(t, err)
				require.FileExists(t, out)
				require.FileExists(t, out+"2")
				continue
			}
			require.ErrorIs(t, err, ErrExpectation)
			require.ErrorIs(t, Class(err), ErrData)
			require.ErrorContains(t, err, "rows: expect rows: {min: 9}: 1 row does not meet it, as rows = 7; "+
				"nothing is written")
			entries, err := os.ReadDir(filepath.Dir(out))
			require.NoError(t, err)
			require.Empty(t, entries)
		}
	})
}

func TestMistakesInExpectationsAreAtTheirPlaces(t *testing.T) {
	for text, want := range map[string]string{
		"{not_null: [z]}":                     `job.yaml:4:12: `,
		"{where: k > 2 and z}":                "job.yaml:4:19: ",
		"{accepted: {k: [a]}}":                "job.yaml:4:12: ",
		"{references: {k: other}}":            `"other" is not a column of a source or step`,
		"{references: {k: others.k}}":         `there is no source or earlier step named "others"`,
		"{}":                                  "the expectation is empty",
		"{not_null: k, unique: k}":            "the expectation has not_null and unique",
		"{rows: {}}":                          "rows needs min, max or both",
		"{rows: {min: 3, max: 2}}":            "no number of rows is at least 3 and at most 2",
		"{where: 'k > 1', severity: nothing}": "it must be one of error, warn",
		"{unique: []}":                        "unique names no columns",
		"{accepted: {k: []}}":                 `accepted has no values of "k"`,
	} {
		j, err := Parse("job.yaml", []byte("sources: {t: t.parquet}\nsteps:\n- {name: x, filter: k > 1, expect: [\n"+
			text+"]}\noutput: {parquet: out}\n"), LoadOptions{})
		if err == nil {
			_, err = newPlan(t.Context(), j, map[string]source.Table{"t": checked(t)}, nil)
		}
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, ErrJob, text)
	}
}
