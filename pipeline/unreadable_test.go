package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// nestedTable is a table with columns that cannot be read.
type nestedTable struct {
	*planTable
	unreadable []source.Unreadable
}

func (t *nestedTable) Unreadable() []source.Unreadable { return t.unreadable }

// nestedTables are logs and old, which have the same columns, and bare, which has no
// readable column.
func nestedTables() map[string]source.Table {
	integer := gpu.Of(gpu.Int64)
	tags := source.Unreadable{Name: "Tags", Type: "VARCHAR[]", Reason: "it is nested"}
	took := source.Unreadable{Name: "took", Type: "FIXED_LEN_BYTE_ARRAY", Reason: "its type is unknown"}
	return map[string]source.Table{
		"logs": &nestedTable{newPlanTable(10).column("id", integer, 1, 10).column("size", integer, 1, 10),
			[]source.Unreadable{tags, took}},
		"old": &nestedTable{newPlanTable(10).column("id", integer, 1, 10).column("size", integer, 1, 10),
			[]source.Unreadable{tags, took}},
		"users": newPlanTable(10).column("user", integer, 1, 10).column("age", integer, 1, 10),
		"bare":  &nestedTable{newPlanTable(10), []source.Unreadable{tags}},
		"none":  newPlanTable(10),
	}
}

func TestColumnsThatCannotBeReadAreNotLost(t *testing.T) {
	const tags, took = `column "Tags" (VARCHAR[]) of logs cannot be read: it is nested`,
		`column "took" (FIXED_LEN_BYTE_ARRAY) of logs cannot be read: its type is unknown`
	for steps, want := range map[string]string{
		`[{from: logs, filter: id > 3}]`: "filter 1: " + tags +
			"; " + took + "; add a step that selects the others, as in select: [id, size]",
		`[{from: logs, sort: size % 3}]`: tags,
		`[{from: logs, limit: 3}]`:       tags,
		`[{from: logs, select: ['*']}]`: "* has columns that " +
			"cannot be read: " + tags,
		`[{from: logs, select: [logs.*]}]`: "logs.* has columns " +
			"that cannot be read: " + tags,
		`[{from: users, join: {with: logs, on: id = user}}, {select: [logs.*, age]}]`:          tags,
		`[{from: users, join: {with: logs, on: id = user}}, {sort: age + 1}, {select: ['*']}]`: tags,
		`[{from: users, join: {with: logs, on: id = user + 1}}]`:                               tags,
		`[{from: logs, join: {with: old, using: id}}]`:                                         `column "Tags" (VARCHAR[]) of old`,
		`[{from: logs, union: users}]`: "do not have the " +
			"same columns: " + tags,
		`[{from: users, union: logs}]`: "do not have the " +
			"same columns: " + tags,
		`[{from: logs, union: old}]`:    tags,
		`[{from: bare, filter: 1 = 1}]`: `column "Tags" (VARCHAR[]) of bare cannot be read: it is nested; add a step that selects the others`,
		`[{from: none, limit: 3}]`: "limit 1: there is " +
			"no column to write: no column is in none, fake",
		`[{from: none, union: none}]`: "no column is in none, fake",
		// By name, in any case.
		`[{from: logs, select: [id, tags]}]`:                 tags,
		`[{from: logs, select: [id, logs.tags]}]`:            tags,
		`[{from: logs, select: [id, Tags.a]}]`:               tags,
		`[{from: logs, filter: took is null}, {select: id}]`: took,
		`[{from: logs, sort: took}, {select: id}]`:           took,
		`[{from: logs, sort: 2}, {select: id}]`: "the sort key 2 is the " +
			"position of a column, but " + tags,
		`[{from: logs, group: {by: [id], aggregates: {n: count(took)}}}]`:            took,
		`[{from: logs, group: {by: [tags]}}]`:                                        tags,
		`[{from: logs, join: {with: old, using: tags}}, {select: logs.id}]`:          tags,
		`[{from: users, join: {with: logs, on: user = took}}, {select: age}]`:        took,
		`[{from: logs, select: [id]}, {filter: took is null}]`:                       `there is no column "took"`,
		`[{from: logs, select: [id]}, {union: users}]`:                               "has 2 columns and the step's input has 1",
		`[{from: users, join: {with: logs, on: id = user}}, {select: [users.tags]}]`: `table "users" has no column "tags"`,
		// Valid queries.
		`[{from: logs, select: [id, size]}]`:                                                    "",
		`[{from: logs, filter: id > 3}, {sort: size % 2}, {select: [size]}]`:                    "",
		`[{from: logs, group: {by: id, aggregates: {n: count(*)}}}]`:                            "",
		`[{from: bare, group: {aggregates: {n: count(*)}}}]`:                                    "",
		`[{from: bare, select: [1 as one]}]`:                                                    "",
		`[{from: users, join: {with: logs, on: id = user}}, {select: [users.*, size]}]`:         "",
		`[{from: users, join: {with: logs, on: id = user, kind: semi}}]`:                        "",
		`[{from: users, join: {with: logs, on: id = user, kind: anti}}]`:                        "",
		`[{from: logs, union: old}, {group: {by: id}}]`:                                         "",
		`[{name: l, from: logs, select: [id, size]}, {from: users, union: l}, {select: ['*']}]`: "",
	} {
		job, err := Parse("job.yaml",
			[]byte("sources: {logs: l, old: o, users: u, bare: b, none: n}\noutput: {parquet: out}\nsteps: "+steps+
				"\n"), LoadOptions{})
		require.NoError(t, err, steps)
		if err := requirePlan(t, job, nestedTables(), want); err != nil {
			require.ErrorContains(t, err, "job.yaml:3:")
		}
	}
}

func TestColumnsThatCannotBeReadAreNotLostInGo(t *testing.T) {
	read := func() *Builder {
		return New("nested").ReadTable("logs", nestedTables()["logs"]).WriteTo(new(Collector))
	}
	_, err := read().Plan()
	require.ErrorContains(t, err, `logs: column "Tags" (VARCHAR[]) of logs cannot be read: it is nested`)
	_, err = read().Select("*").Plan()
	require.ErrorContains(t, err, `select 1: * has columns that cannot be read: column "Tags"`)
	p, err := read().Select("id").Plan()
	require.NoError(t, err)
	require.NoError(t, p.Close())
}
