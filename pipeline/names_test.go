package pipeline

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// twoCases is a table whose columns differ only in case.
func twoCases(t *testing.T) *Builder {
	return New("cases").ReadTable("t",
		record(t, []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64},
			{Name: "ID", Type: arrow.PrimitiveTypes.Int64}},
			`[{"id": 1, "ID": 20}, {"id": 2, "ID": 10}]`))
}

func TestColumnsThatDifferByCaseAloneAreSelectedByName(t *testing.T) {
	requireRows(t, twoCases(t).Select("id", "ID"), `[{"id":1,"ID":20},{"id":2,"ID":10}]`)
	requireRows(t, twoCases(t).Select("t.ID", "id + 1 as next").Sort("t.ID"), `[{"ID":10,"next":3},{"ID":20,"next":2}]`)
	requireRows(t, twoCases(t).Group([]string{"ID", "id"}).Sort("ID"), `[{"id":2,"ID":10},{"id":1,"ID":20}]`)
	requireRows(t, twoCases(t).JoinWith(Join{With: "t", Using: []string{"ID"}}).Select("t.ID").Sort("ID"),
		`[{"ID":10},{"ID":20}]`)
	path := filepath.Join(t.TempDir(), "t.parquet")
	_, err := twoCases(t).Select("ID", "id").Write(path, parquet.Options{}).Run(t.Context(),
		RunOptions{Device: hosttest.Open(t)})
	require.NoError(t, err)
	requireRows(t, New("read").Read("t", path).Select("id", "ID"), `[{"id":1,"ID":20},{"id":2,"ID":10}]`)
}

func TestNamesOfSeveralColumnsAreAmbiguous(t *testing.T) {
	integer := gpu.Of(gpu.Int64)
	tables := func() map[string]source.Table {
		return map[string]source.Table{
			"t": newPlanTable(10).column("id", integer, 1, 10).column("ID", integer, 1, 10),
			"u": newPlanTable(10).column("Id", integer, 1, 10).column("x", integer, 1, 10),
		}
	}
	for steps, want := range map[string]string{
		`[{from: t, select: [iD]}]`:                                 `column "iD" is ambiguous: write t.ID or t.id`,
		`[{from: t, select: [t.iD]}]`:                               `column "iD" of table "t" is ambiguous: write t.ID or t.id`,
		`[{from: u, join: {with: t, using: iD}}]`:                   `"t" has 2 columns "iD"`,
		`[{from: t, join: {with: u, using: Id}}]`:                   `the step's input has 2 columns "Id"`,
		`[{from: u, join: {with: u, on: u.x = u.x}}]`:               `column "x" of table "u" is ambiguous: several columns have this name`,
		`[{from: t, select: [id, t.id as id]}]`:                     `two columns are named "id"`,
		`[{from: t, group: {by: [id], aggregates: {id: max(ID)}}}]`: `two columns are named "id"`,
	} {
		job, err := Parse("job.yaml", []byte("sources: {t: t, u: u}\noutput: {parquet: out}\nsteps: "+steps+"\n"),
			LoadOptions{})
		require.NoError(t, err, steps)
		_, err = newPlan(t.Context(), job, tables(), nil)
		require.ErrorIs(t, err, ErrJob, steps)
		require.ErrorContains(t, err, want, steps)
	}
}
