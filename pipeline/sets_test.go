package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"
)

// sold has nulls in both keys.
func sold(t *testing.T) *Builder {
	return New("sets").ReadTable("t", record(t, []arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, `[
		{"a": 1, "b": "p", "x": 1},
		{"a": 1, "b": null, "x": 2},
		{"a": null, "b": "p", "x": 2}]`))
}

func TestGroupingSets(t *testing.T) {
	by := Columns{{Expr: "a"}, {Name: "kind", Expr: "b"}}
	for name, c := range map[string]struct {
		group Group
		want  string
	}{
		"a null of the data and a key left out are two groups": {Group{By: by, Sets: [][]string{{"a"}, {"a", "kind"}},
			Aggregates: Columns{{Name: "n", Expr: "count(*)"}, {Name: "g", Expr: "grouping(kind)"}}},
			`[{"g":0,"a":1,"kind":"p","n":1}, {"g":0,"a":1,"kind":null,"n":1}, {"g":0,"a":null,"kind":"p","n":1}, {"g":1,"a":1,"kind":null,"n":2}, {"g":1,"a":null,"kind":null,"n":1}]`},
		"arguments are not left out": {Group{By: by, Rollup: true,
			Aggregates: Columns{{Name: "s", Expr: "sum(a)"}, {Name: "g", Expr: "grouping(a, kind)"},
				{Name: "k", Expr: "coalesce(a, 7)"}}},
			`[{"g":0,"a":1,"kind":"p","s":"1","k":1}, {"g":0,"a":1,"kind":null,"s":"1","k":1}, {"g":0,"a":null,"kind":"p","s":null,"k":7}, {"g":1,"a":1,"kind":null,"s":"2","k":1}, {"g":1,"a":null,"kind":null,"s":null,"k":7},
			  {"g":3,"a":null,"kind":null,"s":"2","k":7}]`},
		"of distinct values, and of some rows": {Group{By: by, Cube: true,
			Aggregates: Columns{{Name: "d", Expr: "count(distinct x)"},
				{Name: "n", Expr: "count(*) filter (where x > 1)"}, {Name: "g", Expr: "grouping_id(kind, a)"}}},
			`[{"g":0,"a":1,"kind":"p","d":1,"n":0}, {"g":0,"a":1,"kind":null,"d":1,"n":1}, {"g":0,"a":null,"kind":"p","d":1,"n":1}, {"g":1,"a":null,"kind":"p","d":2,"n":1}, {"g":1,"a":null,"kind":null,"d":1,"n":1},
			  {"g":2,"a":1,"kind":null,"d":2,"n":1}, {"g":2,"a":null,"kind":null,"d":1,"n":1}, {"g":3,"a":null,"kind":null,"d":2,"n":2}]`},
		"a set twice gives its groups twice": {Group{By: Columns{{Expr: "a"}}, Sets: [][]string{{"a"}, {}, {"A"}},
			Aggregates: Columns{{Name: "n", Expr: "count(*)"}, {Name: "g", Expr: "grouping() + 10"}}},
			`[{"g":10,"a":1,"n":2}, {"g":10,"a":1,"n":2}, {"g":10,"a":null,"n":1}, {"g":10,"a":null,"n":1}, {"g":11,"a":null,"n":3}]`},
		"keys by position and by text": {Group{By: Columns{{Expr: "1"}, {Expr: "x % 2"}},
			Sets: [][]string{{"1"}, {"x % 2"}}, Aggregates: Columns{{Name: "g", Expr: "grouping()"}}},
			`[{"g":1,"a":1,"x % 2":null}, {"g":1,"a":null,"x % 2":null}, {"g":2,"a":null,"x % 2":0}, {"g":2,"a":null,"x % 2":1}]`},
		"without sets": {Group{By: Columns{{Expr: "a"}}, Aggregates: Columns{{Name: "g", Expr: "grouping(a)"}}},
			`[{"g":0,"a":1}, {"g":0,"a":null}]`},
	} {
		t.Run(name, func(t *testing.T) {
			b := sold(t).GroupWith(c.group)
			keys := []string{"g", "1", "2"}
			if len(c.group.By) == 1 {
				keys = keys[:2]
			}
			requireRows(t, b.Sort(keys...), c.want)
		})
	}
}

// TestTheEmptySetOfNoRowsIsOneGroup also filters the groups: a condition may leave no rows
// of an input that has some.
func TestTheEmptySetOfNoRowsIsOneGroup(t *testing.T) {
	cube := Group{By: Columns{{Expr: "a"}, {Expr: "b"}}, Sets: [][]string{{"a", "b"}, {}, {"b"}, {}},
		Aggregates: Columns{
			{Name: "n", Expr: "count(*)"}, {Name: "s", Expr: "sum(x)"}, {Name: "d", Expr: "count(distinct x)"},
			{Name: "g", Expr: "grouping(a, b)"}}}
	plain := cube
	plain.Aggregates = Columns{cube.Aggregates[0], cube.Aggregates[1], cube.Aggregates[3]}
	none := func() *Builder { return sold(t).Filter("x > 100") }
	requireRows(t, none().GroupWith(cube),
		`[{"a":null,"b":null,"n":0,"s":null,"d":0,"g":3}, {"a":null,"b":null,"n":0,"s":null,"d":0,"g":3}]`)
	requireRows(t, none().GroupWith(plain).Sort("g"),
		`[{"a":null,"b":null,"n":0,"s":null,"g":3}, {"a":null,"b":null,"n":0,"s":null,"g":3}]`)
	for _, b := range []*Builder{none().GroupWith(plain).Filter("a is not null"),
		sold(t).GroupWith(plain).Filter("a = 5"),
		none().GroupWith(Group{By: cube.By, Sets: [][]string{{"a"}, {"b"}}})} {
		_, rows := cells(t, b)
		require.Empty(t, rows)
	}
	requireRows(t, sold(t).GroupWith(plain).Filter("b is null and g = 3").Sort("g"),
		`[{"a":null,"b":null,"n":3,"s":"5","g":3}, {"a":null,"b":null,"n":3,"s":"5","g":3}]`)
}

// TestACubeOfSixKeys has the most sets there can be.
func TestACubeOfSixKeys(t *testing.T) {
	g := Group{Cube: true, Aggregates: Columns{{Name: "n", Expr: "count(*)"}, {Name: "g", Expr: "grouping()"}}}
	for i := range 6 {
		g.By = append(g.By, Column{Name: fmt.Sprintf("k%d", i), Expr: fmt.Sprintf("x + %d", i)})
	}
	b := sold(t).GroupWith(g).Group(nil, "count(*) as rows", "sum(n) as n", "sum(g) as g", "count(distinct g) as sets",
		"min(k0) as lo", "max(k5) as hi")
	var c Collector
	_, err := b.WriteTo(&c).Run(context.Background(), RunOptions{Use: Host, Threads: 2})
	require.NoError(t, err)
	require.Equal(t, []string{"127|192|3969|64|1|7"}, textOf(&c))
}

// TestGroupingSetsOfParts merges the groups of a set to those of another one, and groups the rows once.
func TestGroupingSetsOfParts(t *testing.T) {
	many := func(filter string) *Builder {
		b := sold(t).Union("t", "t", "t", "t", "t", "t").Filter(filter)
		return b.GroupWith(Group{By: Columns{{Expr: "a"}, {Expr: "b"}}, Cube: true,
			Aggregates: Columns{{Name: "n", Expr: "count(*)"}, {Name: "c", Expr: "count(a)"},
				{Name: "s", Expr: "sum(a)"}, {Name: "m", Expr: "avg(x)"},
				{Name: "hi", Expr: "max(x) filter (where x < 2)"},
				{Name: "g", Expr: "grouping(a, b)"}}}).Sort("g", "a", "b")
	}
	p, err := many("x < 100 or x is null").WriteTo(&Collector{}).Plan()
	require.NoError(t, err)
	require.Equal(t, 4, strings.Count(p.Explain("host").String(), "─ group "))
	require.NotContains(t, p.Explain("host").String(), "─ expand ")
	require.NoError(t, p.Close())
	requireRows(t, many("x < 100 or x is null"), `[
		{"a":1,"b":"p","n":7,"c":7,"s":"7","m":1,"hi":1,"g":0}, {"a":1,"b":null,"n":7,"c":7,"s":"7","m":2,"hi":null,"g":0}, {"a":null,"b":"p","n":7,"c":0,"s":null,"m":2,"hi":null,"g":0},
		{"a":1,"b":null,"n":14,"c":14,"s":"14","m":1.5,"hi":1,"g":1}, {"a":null,"b":null,"n":7,"c":0,"s":null,"m":2,"hi":null,"g":1},
		{"a":null,"b":"p","n":14,"c":7,"s":"7","m":1.5,"hi":1,"g":2}, {"a":null,"b":null,"n":7,"c":7,"s":"7","m":2,"hi":null,"g":2},
		{"a":null,"b":null,"n":21,"c":14,"s":"14","m":1.6666666666666667,"hi":1,"g":3}]`)
	requireRows(t, many("x > 100 or a > 9"), `[{"a":null,"b":null,"n":0,"c":0,"s":null,"m":null,"hi":null,"g":3}]`)
}
