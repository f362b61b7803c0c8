package logical

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// numbers is a table of one column, a.
type numbers struct{}

func (numbers) Schema() *gpu.Schema {
	return gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int64)})
}
func (numbers) Rows() int64                          { return 1000 }
func (numbers) Stats(int) source.ColumnStats         { return source.ColumnStats{Distinct: 100} }
func (numbers) Unreadable() []source.Unreadable      { return nil }
func (numbers) LeastMemory(source.ScanOptions) int64 { return 0 }
func (numbers) Describe() string                     { return "numbers" }
func (numbers) Close() error                         { return nil }
func (numbers) Scan(context.Context, source.ScanOptions) (source.Reader, error) {
	return nil, errors.New("a plan reads no rows")
}

// sqlText is a query in another language than that of job files.
type sqlText string

func (sqlText) File() string { return "query.sql" }

func (t sqlText) Location(string) job.Location { return job.Location{Line: 1, Column: 1} }

func (t sqlText) FileOf(string) string { return t.File() }

func (t sqlText) LocationIn(path, expression string, offset int) (job.Location, bool) {
	return job.Location{Line: 1, Column: strings.Index(string(t), expression) + offset + 1}, true
}

func bindSQL(e *Estimator, condition string) (*Relation, job.Diagnostics) {
	q := Query{Sources: []string{"t"}, Steps: []job.Step{{Filter: condition}},
		Text: sqlText("FROM t WHERE " + condition)}
	return Bind(e, q, map[string]source.Table{"t": numbers{}})
}

func TestAPlanNeedsNoJobFile(t *testing.T) {
	e := NewEstimator(t.Context())
	r, faults := bindSQL(e, "a = 1")
	require.Empty(t, faults)
	f, ok := r.Output().Root.(*rel.Filter)
	require.True(t, ok)
	require.Equal(t, 10.0, e.Rows(f))
	require.IsType(t, &rel.Scan{}, f.In)
}

func TestDiagnosticsPointIntoTheTextOfTheQuery(t *testing.T) {
	_, faults := bindSQL(NewEstimator(t.Context()), "a = 1 and nowhere = 2")
	require.Len(t, faults, 1)
	require.ErrorIs(t, faults, job.ErrInvalid)
	require.True(t, strings.HasPrefix(faults.Error(), `query.sql:1:24: filter 1: there is no column "nowhere"`),
		faults.Error())
	_, faults = bindSQL(NewEstimator(t.Context()), "a + 1")
	require.EqualError(t, faults,
		`query.sql:1:1: filter 1: the condition "a + 1" is a value of type BIGINT; a condition must be BOOLEAN, as in "a + 1 = …"`)
}

func TestWhatAnOperatorRefusesStandsAtItsStep(t *testing.T) {
	j, err := job.Parse("job.yaml",
		[]byte("sources: {t: t}\noutput: {parquet: out}\nsteps:\n- limit: 1\n- {name: few, limit: 1}\n"),
		job.LoadOptions{})
	require.NoError(t, err)
	q := Query{Sources: []string{"t"}, Steps: j.Steps, Text: j}
	require.EqualError(t, q.Locate(&job.Diagnostic{Step: "few", Msg: "no"}), "job.yaml:5:3: few: no")
	require.EqualError(t, q.Locate(job.Diagnostics{{Step: "few", Msg: "no"}, {Msg: "nor"}}),
		"job.yaml:5:3: few: no\nnor")
	cause := errors.New("no")
	require.EqualError(t, q.Locate(cause), "no")
	require.ErrorIs(t, q.Locate(cause), cause)
}

func TestUniqueColumnsContainTheKeysOfAGroup(t *testing.T) {
	bind := func(steps ...job.Step) rel.Output {
		q := Query{Sources: []string{"t"}, Steps: steps, Text: sqlText("")}
		e := NewEstimator(t.Context())
		r, faults := Bind(e, q, map[string]source.Table{"t": numbers{}})
		require.Empty(t, faults)
		return Optimize(e, r.Output(), Options{})
	}
	unique := func(o rel.Output, at ...int) bool {
		var columns []rel.ID
		for _, i := range at {
			columns = append(columns, o.Columns[i])
		}
		return Unique(o.Root, columns)
	}
	group := job.Step{Group: &job.Group{By: job.Columns{{Expr: "a"}, {Expr: "a % 7", Name: "b"}},
		Aggregates: job.Columns{{Expr: "count(*)", Name: "n"}}}}
	require.False(t, unique(bind(job.Step{Select: job.Columns{{Expr: "*"}}}), 0), "a table promises nothing")
	require.True(t, unique(bind(group), 0, 1))
	require.True(t, unique(bind(group), 2, 1, 0))
	require.False(t, unique(bind(group), 0), "a key is missing")
	require.False(t, unique(bind(group), 0, 2))
	after := []job.Step{group, {Filter: "n > 3"}, {Sort: []string{"n"}}, {Limit: &job.Limit{Count: 5}},
		{Select: job.Columns{{Expr: "b + 1", Name: "c"}, {Expr: "b"}, {Expr: "a", Name: "d"}}}}
	require.True(t, unique(bind(after...), 1, 2))
	require.False(t, unique(bind(after...), 0, 2), "a computed column")
	joined := func(kind string) rel.Output {
		return bind(append([]job.Step{group},
			job.Step{Join: &job.Join{With: "t", As: "u", Kind: kind, On: []string{"b = u.a"}}})...)
	}
	require.True(t, unique(joined("semi"), 0, 1))
	require.True(t, unique(joined("mark"), 0, 1, 3))
	require.False(t, unique(joined("inner"), 0, 1), "the join may repeat rows")
	require.True(t, unique(bind(job.Step{Group: &job.Group{Aggregates: job.Columns{{Expr: "sum(a)", Name: "s"}}}})),
		"there is one row")
}
