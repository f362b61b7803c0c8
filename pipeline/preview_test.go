package pipeline

import (
	"path/filepath"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/sink/parquet"
)

// previewJob is a job over a table with the columns a and b, 1 to 5.
func previewJob(t *testing.T, steps string) *Job {
	folder := t.TempDir()
	path := filepath.Join(folder, "t.parquet")
	rows := `[{"a":1,"b":1},{"a":2,"b":2},{"a":3,"b":3},{"a":4,"b":4},{"a":5,"b":5}]`
	table := record(t, []arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64},
		{Name: "b", Type: arrow.PrimitiveTypes.Int64}}, rows)
	_, err := New("make").ReadTable("t", table).Write(path, parquet.Options{}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.NoError(t, err)
	job, err := Parse(filepath.Join(folder, "job.yaml"),
		[]byte("sources: {t: t.parquet, u: t.parquet}\nsteps: "+steps+"\noutput: {parquet: out.parquet}\n"),
		LoadOptions{})
	require.NoError(t, err)
	return job
}

// previewed returns the columns and the number of rows of a preview.
func previewed(t *testing.T, job *Job, step string, rows int64) (names []string, n int64) {
	t.Helper()
	var c Collector
	p, err := NewPreview(t.Context(), job, step, rows, &c)
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	for _, r := range c.Records() {
		n += r.NumRows()
	}
	require.NoFileExists(t, string(job.Output.Parquet))
	return p.Schema().Names(), n
}

func TestPreviewIsOfAStep(t *testing.T) {
	job := previewJob(t, `[
		{name: most, from: t, filter: a > 1},
		{name: both, join: {with: u, on: most.a = u.a}},
		{name: twice, select: [most.a, u.b, most.a + u.a as "2a"]},
		{group: {by: [], aggregates: {s: sum(a)}}},
		{name: wrong, filter: nope}]`)
	for _, c := range []struct {
		step    string
		columns []string
		rows    int64
	}{
		{"t", []string{"a", "b"}, 3}, {"most", []string{"a", "b"}, 3},
		{"both", []string{"most.a", "most.b", "u.a", "u.b"}, 3},
		{"twice", []string{"a", "b", "2a"}, 3}, {"group 4", []string{"s"}, 1},
	} {
		names, rows := previewed(t, job, c.step, 3)
		assert.Equal(t, c.columns, names, c.step)
		assert.Equal(t, c.rows, rows, c.step)
	}
	_, rows := previewed(t, job, "most", 0)
	assert.Zero(t, rows)
	for step, want := range map[string]string{
		"":      `job.yaml:7:25: wrong: `,
		"wrong": `job.yaml:7:25: wrong: `,
		"mots":  `no step or source named "mots" (did you mean "most"?); it has "most", "both", "twice", "group 4", "wrong", "t", "u"`,
	} {
		_, err := NewPreview(t.Context(), job, step, 1, &Collector{})
		require.ErrorIs(t, err, ErrJob)
		require.ErrorContains(t, err, want)
	}
}

func TestPreviewOfTheResultRefusesWhatARunRefuses(t *testing.T) {
	job := previewJob(t, `[{from: t, join: {with: u, on: t.a = u.a}}]`)
	_, err := NewPreview(t.Context(), job, "", 1, &Collector{})
	require.ErrorContains(t, err, `two columns are named "a"`)
	job = previewJob(t, `[{name: lost, from: t, limit: 1}, {from: t, limit: 2}]`)
	_, err = NewPreview(t.Context(), job, "", 1, &Collector{})
	require.ErrorContains(t, err, "lost: no step reads the rows of this one")
	_, rows := previewed(t, job, "lost", 9)
	assert.Equal(t, int64(1), rows)
	_, err = NewPreview(t.Context(), job, "", 1, nil)
	require.ErrorIs(t, err, ErrJob)
	_, err = NewPreview(t.Context(), job, "", -1, &Collector{})
	require.ErrorIs(t, err, ErrJob)
}

func TestPreviewNumbersColumnsWithoutAName(t *testing.T) {
	job := previewJob(t, `[
		{name: x, from: t, select: [a + 1 as c]},
		{name: y, from: t, select: [a + 1 as c]},
		{name: z, from: x, join: {with: y, on: x.c = y.c}},
		{name: v, from: z, filter: x.c > 0}]`)
	names, _ := previewed(t, job, "v", 1)
	assert.Len(t, names, 2)
	assert.NotEqual(t, names[0], names[1])
}
