package pipeline

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/source"
)

// staff is a table of people, who have a manager or none, and one of their desks.
func staff(t *testing.T) *Builder {
	return New("staff").ReadTable("u", record(t, []arrow.Field{
		{Name: "user_id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "manager", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "name", Type: arrow.BinaryTypes.String}, {Name: "pay", Type: arrow.PrimitiveTypes.Int64}},
		`[{"user_id": 1, "manager": null, "name": "Ada", "pay": 9}, {"user_id": 2, "manager": 1, "name": "Bo", "pay": 5},
		  {"user_id": 3, "manager": 1, "name": "Cy", "pay": 10}, {"user_id": 4, "manager": 2, "name": "Di", "pay": 2}]`)).
		ReadTable("desks",
			record(t, []arrow.Field{{Name: "name", Type: arrow.BinaryTypes.String},
				{Name: "desk", Type: arrow.PrimitiveTypes.Int32}},
				`[{"name": "Bo", "desk": 20}, {"name": "Flo", "desk": 60}, {"name": "Ada", "desk": 10}]`))
}

func managers(t *testing.T, kind string) *Builder {
	return staff(t).JoinWith(Join{With: "u", As: "m", Kind: kind, On: []string{"u.manager = m.user_id"}})
}

func TestASelfJoinTellsItsSidesApart(t *testing.T) {
	requireRows(t, managers(t, "").Select("u.name", "m.name as boss"),
		`[{"name":"Bo","boss":"Ada"},{"name":"Cy","boss":"Ada"},{"name":"Di","boss":"Bo"}]`)
	requireRows(t, managers(t, "").Filter("u.pay > m.pay").Select("U.NAME"), `[{"name":"Cy"}]`)
	requireRows(t, managers(t, "").Sort("m.name desc", "u.name desc").Select("m.*"),
		`[{"user_id":2,"manager":1,"name":"Bo","pay":5},{"user_id":1,"manager":null,"name":"Ada","pay":9},{"user_id":1,"manager":null,"name":"Ada","pay":9}]`)
	// Aggregates of two columns of one name are two aggregates.
	requireRows(t, managers(t, "").Group([]string{"m.name as boss"}, "sum(u.pay) - sum(m.pay) as more").Sort("boss"),
		`[{"boss":"Ada","more":"-3"},{"boss":"Bo","more":"-3"}]`)
	// The names stay after a named step, and the step's name is one too.
	requireRows(t, managers(t, "").Select("u.*",
		"m.name as boss").As("pairs").Filter("pairs.boss = 'Bo' and pairs.name = u.name").Select("u.name", "boss"),
		`[{"name":"Di","boss":"Bo"}]`)
	requireRows(t, managers(t, "").As("pairs").Filter("m.name = 'Bo'").Select("u.name", "m.name as boss"),
		`[{"name":"Di","boss":"Bo"}]`)
}

func TestTheRightSideOfAJoinMayBeAStep(t *testing.T) {
	// As in SQL, m hides that its rows are those of u.
	requireRows(t, staff(t).Filter("pay > 4").As("m").From("u").Join("m", "u.manager = m.user_id").Select("u.name",
		"m.name as boss").Filter("boss < 'B'"),
		`[{"name":"Bo","boss":"Ada"},{"name":"Cy","boss":"Ada"}]`)
	requireRows(t, staff(t).Filter("pay > 4").As("m").From("u").Select("*").As("w").Join("m",
		"w.manager = m.user_id").Select("w.name", "m.name as boss", "u.pay"),
		`[{"name":"Bo","boss":"Ada","pay":5},{"name":"Cy","boss":"Ada","pay":10},{"name":"Di","boss":"Bo","pay":2}]`)
	// A step with the source on its right side: u is the source.
	requireRows(t, staff(t).Filter("pay < 6").As("low").Join("u", "low.manager = u.user_id").Select("low.name",
		"u.name as boss"), `[{"name":"Bo","boss":"Ada"},{"name":"Di","boss":"Bo"}]`)
	// A semi join leaves the names of its input alone.
	requireRows(t, staff(t).Filter("pay < 6").As("low").JoinWith(Join{With: "u", Kind: "semi",
		On: []string{"low.manager = u.user_id"}}).Select("u.name"), `[{"name":"Bo"},{"name":"Di"}]`)
	// Three tables of one source.
	requireRows(t, managers(t, "left").JoinWith(Join{With: "u", As: "mm", Kind: "left",
		On: []string{"m.manager = mm.user_id"}}).Select("u.name", "m.name as boss", "mm.name as top"),
		`[{"name":"Ada","boss":null,"top":null},{"name":"Bo","boss":"Ada","top":null},{"name":"Cy","boss":"Ada","top":null},{"name":"Di","boss":"Bo","top":"Ada"}]`)
}

func TestARightJoinKeepsTheRowsOfTheRightSide(t *testing.T) {
	requireRows(t, managers(t, "right").Select("u.name", "m.name as boss"),
		`[{"name":"Bo","boss":"Ada"},{"name":"Cy","boss":"Ada"},{"name":"Di","boss":"Bo"},{"name":null,"boss":"Cy"},{"name":null,"boss":"Di"}]`)
	requireRows(t,
		staff(t).JoinWith(Join{With: "desks", Kind: "right", Using: []string{"name"}}).Filter("manager is null"),
		`[{"user_id":null,"manager":null,"name":"Flo","pay":null,"desk":60},{"user_id":1,"manager":null,"name":"Ada","pay":9,"desk":10}]`)
	// A condition on the right side decides only which of its rows can match.
	requireRows(t,
		staff(t).JoinWith(Join{With: "desks", Kind: "right",
			On: []string{"u.name = desks.name", "desk > 10", "pay < 9"}}).Select("desk", "u.name"),
		`[{"desk":20,"name":"Bo"},{"desk":60,"name":null},{"desk":10,"name":null}]`)
}

func TestALeftJoinMayHaveAConditionOnItsInput(t *testing.T) {
	on := []string{"u.name = desks.name", "pay < 9"}
	requireRows(t, staff(t).JoinWith(Join{With: "desks", Kind: "left", On: on}).Select("u.name", "desk"),
		`[{"name":"Ada","desk":null},{"name":"Bo","desk":20},{"name":"Cy","desk":null},{"name":"Di","desk":null}]`)
	requireRows(t, staff(t).JoinWith(Join{With: "desks", Kind: "anti", On: on}).Select("u.name"),
		`[{"name":"Ada"},{"name":"Cy"},{"name":"Di"}]`)
}

func TestAFullJoinKeepsTheRowsOfBothSides(t *testing.T) {
	requireRows(t,
		staff(t).JoinWith(Join{With: "desks", Kind: "full", Using: []string{"name"}}).Sort("name").Select("name", "pay",
			"desk"),
		`[{"name":"Ada","pay":9,"desk":10},{"name":"Bo","pay":5,"desk":20},{"name":"Cy","pay":10,"desk":null},{"name":"Di","pay":2,"desk":null},{"name":"Flo","pay":null,"desk":60}]`)
	requireRows(t,
		staff(t).JoinWith(Join{With: "desks", Kind: "full",
			On: []string{"u.name = desks.name", "pay < 9", "desk < 50"}}).Sort("pay", "desk").Select("u.name", "desk"),
		`[{"name":"Di","desk":null},{"name":"Bo","desk":20},{"name":"Ada","desk":null},{"name":"Cy","desk":null},{"name":null,"desk":10},{"name":null,"desk":60}]`)
}

func TestACrossJoinPairsAllRows(t *testing.T) {
	requireRows(t, staff(t).Filter("pay < 9").As("low").JoinWith(Join{With: "desks",
		Kind: "cross"}).Filter("low.name <> desks.name").Sort("low.name", "desk").Select("low.name", "desk"),
		`[{"name":"Bo","desk":10},{"name":"Bo","desk":60},{"name":"Di","desk":10},{"name":"Di","desk":20},{"name":"Di","desk":60}]`)
	var none Collector
	_, err := staff(t).Filter("pay < 0").As("low").JoinWith(Join{With: "desks",
		Kind: "cross"}).Select("desk").WriteTo(&none).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.Empty(t, textOf(&none))
}

func TestAMarkJoinSaysWhichRowsHaveAMatch(t *testing.T) {
	marked := func(mark string, on ...string) *Builder {
		return staff(t).JoinWith(Join{With: "desks", Kind: "mark", Mark: mark, On: on})
	}
	requireRows(t, marked("", "u.name = desks.name").Select("u.name", "matched"),
		`[{"name":"Ada","matched":true},{"name":"Bo","matched":true},{"name":"Cy","matched":false},{"name":"Di","matched":false}]`)
	requireRows(t, marked("sits", "u.name = desks.name", "pay < 9", "desk > pay").Filter("sits").Select("u.name"),
		`[{"name":"Bo"}]`)
	requireRows(t, marked("sits", "u.name = desks.name").Select("pay"), `[{"pay":9},{"pay":5},{"pay":10},{"pay":2}]`)
}

// TestEveryKindOfJoinMayHaveAnyCondition has conditions over both sides without an equality,
// and with one.
func TestEveryKindOfJoinMayHaveAnyCondition(t *testing.T) {
	joined := func(kind string, on ...string) *Builder {
		return staff(t).JoinWith(Join{With: "desks", Kind: kind, On: on}).Sort("u.name", "desk").Select("u.name",
			"desk")
	}
	const between = "desk between 2 * pay and 4 * pay"
	requireRows(t, joined("", between),
		`[{"name":"Ada","desk":20},{"name":"Bo","desk":10},{"name":"Bo","desk":20},{"name":"Cy","desk":20}]`)
	requireRows(t, joined("left", between),
		`[{"name":"Ada","desk":20},{"name":"Bo","desk":10},{"name":"Bo","desk":20},{"name":"Cy","desk":20},{"name":"Di","desk":null}]`)
	requireRows(t, joined("right", between),
		`[{"name":"Ada","desk":20},{"name":"Bo","desk":10},{"name":"Bo","desk":20},{"name":"Cy","desk":20},{"name":null,"desk":60}]`)
	requireRows(t, joined("full", between, "u.name <> desks.name"),
		`[{"name":"Ada","desk":20},{"name":"Bo","desk":10},{"name":"Cy","desk":20},{"name":"Di","desk":null},{"name":null,"desk":60}]`)
	semi := func(kind string) *Builder {
		return staff(t).JoinWith(Join{With: "desks", Kind: kind, On: []string{between}}).Select("u.name")
	}
	requireRows(t, semi("semi"), `[{"name":"Ada"},{"name":"Bo"},{"name":"Cy"}]`)
	requireRows(t, semi("anti"), `[{"name":"Di"}]`)
	requireRows(t, joined("left", "u.name = desks.name", "desk < 2 * pay"),
		`[{"name":"Ada","desk":10},{"name":"Bo","desk":null},{"name":"Cy","desk":null},{"name":"Di","desk":null}]`)
}

// TestTheNamesOfAlgorithmsAreThoseOfTheOperator compares the names of a job file and the
// check of a job in Go with the operator's list.
func TestTheNamesOfAlgorithmsAreThoseOfTheOperator(t *testing.T) {
	field, ok := reflect.TypeFor[Join]().FieldByName("Algorithm")
	require.True(t, ok)
	require.Equal(t, strings.Join(join.Algorithms(), ","), field.Tag.Get("enum"))
	_, err := staff(t).JoinWith(Join{With: "desks", On: []string{"u.name = desks.name"},
		Algorithm: "nested-loops"}).Plan()
	require.ErrorContains(t, err, `there is no algorithm "nested-loops" for joins; the algorithms are npj, `)
}

// TestEveryAlgorithmGivesTheRowsOfTheJoin forces each algorithm, on one key, on a text, on
// two keys and on nulls, with conditions besides the keys.
func TestEveryAlgorithmGivesTheRowsOfTheJoin(t *testing.T) {
	for _, algorithm := range join.AlgorithmsOn(host.Unopened()) {
		joined := func(j Join) *Builder {
			j.Algorithm = algorithm
			return staff(t).JoinWith(j)
		}
		boss := Join{With: "u", As: "m", On: []string{"u.manager = m.user_id"}}
		requireRows(t, joined(boss).Sort("u.name").Select("u.name", "m.name as boss"),
			`[{"name":"Bo","boss":"Ada"},{"name":"Cy","boss":"Ada"},{"name":"Di","boss":"Bo"}]`)
		boss.Kind, boss.On = "full", append(boss.On, "u.pay > m.pay")
		requireRows(t, joined(boss).Sort("u.name", "m.name").Select("u.name", "m.name as boss"),
			`[{"name":"Ada","boss":null},{"name":"Bo","boss":null},{"name":"Cy","boss":"Ada"},{"name":"Di","boss":null},{"name":null,"boss":"Bo"},{"name":null,"boss":"Cy"},{"name":null,"boss":"Di"}]`)
		desk := Join{With: "desks", Kind: "left", On: []string{"u.name = desks.name"}}
		requireRows(t, joined(desk).Sort("u.name").Select("u.name", "desk"),
			`[{"name":"Ada","desk":10},{"name":"Bo","desk":20},{"name":"Cy","desk":null},{"name":"Di","desk":null}]`)
		desk.Kind, desk.On = "anti", append(desk.On, "pay + 1 = desk")
		requireRows(t, joined(desk).Sort("u.name").Select("u.name"), `[{"name":"Bo"},{"name":"Cy"},{"name":"Di"}]`)
		same := Join{With: "u", As: "m", Kind: "semi",
			On: []string{"u.manager is not distinct from m.manager", "u.user_id <> m.user_id"}}
		requireRows(t, joined(same).Sort("u.name").Select("u.name"), `[{"name":"Bo"},{"name":"Cy"}]`)
		same.Kind, same.Mark = "mark", "alone"
		requireRows(t, joined(same).Sort("u.name").Select("u.name", "not alone as alone"),
			`[{"name":"Ada","alone":true},{"name":"Bo","alone":false},{"name":"Cy","alone":false},{"name":"Di","alone":true}]`)
	}
}

// TestTheAlgorithmIsExplained looks at the plan and at the choice of a run.
func TestTheAlgorithmIsExplained(t *testing.T) {
	for algorithm, want := range map[string]string{"": "algorithm npj: one table is fastest on the CPU",
		"phj-tr": "algorithm phj-tr: the job says so"} {
		p, err := staff(t).JoinWith(Join{With: "u", As: "m", On: []string{"u.manager = m.user_id"},
			Algorithm: algorithm}).Select("u.name").WriteTo(&Collector{}).Plan()
		require.NoError(t, err)
		e := p.Explain(Host)
		require.Contains(t, e.String(), "│    "+want+"\n")
		r, err := p.Run(context.Background(), RunOptions{Device: hosttest.Open(t)})
		require.NoError(t, err)
		e.Analyze(r)
		require.Contains(t, e.String(), "│    actual "+want+"\n")
		require.NoError(t, p.Close())
	}
}

// TestAPartitionedJoinIsChosenWhereNobodySeesTheOrder plans a join of large tables for a GPU.
func TestAPartitionedJoinIsChosenWhereNobodySeesTheOrder(t *testing.T) {
	large := func(name string) source.Table {
		return newPlanTable(1e8).column("id", gpu.Of(gpu.Int64), 1, 1e8).column(name, gpu.Of(gpu.Int64), 1, 100)
	}
	const npj, phj = "algorithm npj: it keeps the order of the rows", "algorithm phj-tr: the build side of about"
	for steps, want := range map[string]string{
		"group: {aggregates: {s: sum(x + y)}}":                                       phj,
		"filter: x > y}, {select: [x, y]}, {group: {by: x, aggregates: {s: sum(y)}}": phj,
		"select: [x, y]":                                   npj,
		"sort: x}, {select: [x, y]":                        npj,
		"limit: 9}, {group: {aggregates: {s: sum(x + y)}}": npj,
	} {
		job, err := Parse("job.yaml",
			[]byte("sources: {big: b, other: o}\noutput: {parquet: out.parquet}\nsteps: [{from: big, join: {with: "+
				"other, on: big.id = other.id}}, {"+steps+"}]"), LoadOptions{})
		require.NoError(t, err, steps)
		p, err := newPlan(t.Context(), job, map[string]source.Table{"big": large("x"), "other": large("y")}, nil)
		require.NoError(t, err, steps)
		for _, device := range []string{"cuda:0", CUDA + WithHost} {
			require.Contains(t, p.Explain(device).String(), want, steps)
		}
		require.NoError(t, p.Close())
	}
}
