package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"
)

// zeroTables returns a builder that reads a, in which x is 0 in the row without a partner in b, and b, in
// which y is 0 in the row without a partner in a. The row of a whose x is 0 is alone in its group g.
func zeroTables(t *testing.T) *Builder {
	fields := func(names ...string) (fields []arrow.Field) {
		for _, n := range names {
			fields = append(fields, arrow.Field{Name: n, Type: arrow.PrimitiveTypes.Int64, Nullable: true})
		}
		return fields
	}
	a, b := fields("k", "x", "g"), fields("k", "y")
	return New("zeros").
		ReadTable("a",
			record(t, a,
				`[{"k": 1, "x": 0, "g": 0}, {"k": 2, "x": 1, "g": 7}, {"k": 3, "x": 2, "g": 7}, {"k": 3, "x": 3, "g": 7}]`)).
		ReadTable("b", record(t, b, `[{"k": 2, "y": 5}, {"k": 3, "y": 6}, {"k": 4, "y": 0}]`)).
		ReadTable("empty", record(t, b, `[]`)).
		ReadTable("one", record(t, b, `[{"k": 1, "y": 1}]`))
}

// TestAFilterSeesNoRowThatAnEarlierStepRemoves divides by a column that is zero only in rows that a step
// before the filter removes.
func TestAFilterSeesNoRowThatAnEarlierStepRemoves(t *testing.T) {
	const divide = "10 // x > 4" // x is 1 or 2
	join := func(kind, with string) Join {
		return Join{With: with, Kind: kind, On: []string{"a.k = " + with + ".k"}}
	}
	for name, c := range map[string]struct {
		steps func(b *Builder) *Builder
		rows  int
	}{
		"inner join": {func(b *Builder) *Builder { return b.JoinWith(join("inner", "b")).Filter(divide) }, 2},
		"inner join, right": {func(b *Builder) *Builder {
			return b.JoinWith(join("inner",
				"b")).Filter("10 // y = 2")
		}, 1},
		"semi join": {func(b *Builder) *Builder { return b.JoinWith(join("semi", "b")).Filter(divide) }, 2},
		"anti join": {func(b *Builder) *Builder { return b.JoinWith(join("anti", "one")).Filter(divide) }, 2},
		"right join": {func(b *Builder) *Builder {
			return b.JoinWith(join("right",
				"b")).Filter("10 // x > 4")
		}, 2},
		"left join, right": {func(b *Builder) *Builder {
			return b.JoinWith(join("left",
				"b")).Filter("10 // y = 2")
		}, 1},
		"left join, no match": {func(b *Builder) *Builder {
			return b.JoinWith(join("left",
				"b")).Filter("y is not null and " + divide)
		}, 2},
		"mark join": {func(b *Builder) *Builder {
			return b.JoinWith(join("mark",
				"b")).Filter("matched").Filter(divide)
		}, 2},
		"full join": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "b", Kind: "full",
				Using: []string{"k"}}).Filter("x > 0").Filter("10 // (k - 1) > 4")
		}, 3},
		"cross join with nothing": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "empty",
				Kind: "cross"}).Filter(divide)
		}, 0},
		"cross join by a filter": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "b", Kind: "cross"}).Filter("a.k = b.k").Filter(divide)
		}, 2},
		"on of an inner join": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "b", On: []string{"a.k = b.k", divide, "10 // y > 0"}})
		}, 2},
		"on of a semi join": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "b", Kind: "semi", On: []string{"a.k = b.k", divide, "10 // y > 0"}})
		}, 2},
		"on of a left join": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "b", Kind: "left", On: []string{"a.k = b.k", "10 // y > 0"}})
		}, 4},
		"on after another condition": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "b", Kind: "left", On: []string{"x > 0", "b.k > 1", "10 // x > b.k"}})
		}, 8},
		"either side": {func(b *Builder) *Builder {
			return b.JoinWith(join("inner", "b")).Filter("10 // x = 10 and y = 5 or 10 // x = 5 and y = 6")
		}, 2},
		"joins in another order": {func(b *Builder) *Builder {
			return b.JoinWith(join("inner", "b")).JoinWith(Join{With: "a", As: "c", On: []string{"b.k = c.k"}}).
				JoinWith(Join{With: "one", Kind: "inner", As: "d",
					On: []string{"d.y = a.x"}}).Filter("10 // a.x > 4 and 10 // c.x > 4")
		}, 1},
		"group": {func(b *Builder) *Builder {
			return b.Group([]string{"g"}, "count(*) as n").Filter("n > 1").Filter("10 // g = 1")
		}, 1},
		"window": {func(b *Builder) *Builder {
			return b.Select("*", "count(*) over (partition by g) as n").Filter("n > 1").Filter("10 // g = 1")
		}, 3},
		"qualify": {func(b *Builder) *Builder {
			return b.Qualify("count(*) over (partition by g) > 1").Filter("10 // g = 1")
		}, 3},
		"projection": {func(b *Builder) *Builder {
			return b.Select("x", "x + k as s").Filter("s > 1").Filter(divide)
		}, 2},
		"limit": {func(b *Builder) *Builder { return b.Sort("x desc").Limit(3).Filter(divide) }, 2},
		"held": {func(b *Builder) *Builder {
			return b.Sort("x").Limit(4).As("every").Filter("x > 0").As("positive").From("every").
				JoinWith(Join{With: "positive", Kind: "semi", On: []string{"every.k = positive.k"}}).Filter(divide)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var out Collector
			_, err := c.steps(zeroTables(t).From("a")).Group(nil, "count(*) as n").WriteTo(&out).Run(t.Context(),
				RunOptions{Use: Host, Threads: 1, JoinFilters: Never})
			require.NoError(t, err)
			require.Equal(t, []string{fmt.Sprint(c.rows)}, textOf(&out))
		})
	}
}

// TestConditionsThatCannotFailStillMove has a condition that may fail, and behind it one that cannot.
func TestConditionsThatCannotFailStillMove(t *testing.T) {
	for name, c := range map[string]struct {
		steps func(b *Builder) *Builder
		want  []string // the filters and what they stand above, from the top
	}{
		"join": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "b", Kind: "semi",
				On: []string{"a.k = b.k"}}).Filter("10 // x > 4").Filter("g = 7")
		}, []string{"((10 // x) > 4)", "semi join", "(g = 7)", "scan", "scan"}},
		"left join": {func(b *Builder) *Builder {
			return b.JoinWith(Join{With: "b", Kind: "left",
				On: []string{"a.k = b.k"}}).Filter("10 // x > 4").Filter("y is null").Filter("10 // g = 1").Select("g")
		}, []string{"((y IS NULL) AND ((10 // g) = 1))", "left join", "scan", "((10 // x) > 4)", "scan"}},
		"sort": {func(b *Builder) *Builder { return b.Sort("x").Filter("10 // x > 4") },
			[]string{"sort", "((10 // x) > 4)", "scan"}},
		"group": {func(b *Builder) *Builder {
			return b.Group([]string{"g"}, "count(*) as n").Filter("10 // g = 1").Filter("n > 1")
		}, []string{"(n > 1)", "group", "((10 // g) = 1)", "scan"}},
		"window": {func(b *Builder) *Builder {
			return b.Select("*", "count(*) over (partition by g order by x) as n").Filter("10 // g = 1").Filter("n > 1")
		}, []string{"(n > 1)", "window", "((10 // g) = 1)", "scan"}},
		"projection": {func(b *Builder) *Builder {
			return b.Select("x", "k + 1 as s").Filter("10 // x > 4").Filter("s > 1")
		}, []string{"(s > 1)", "project", "((10 // x) > 4)", "scan"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := c.steps(zeroTables(t).From("a")).WriteTo(&Collector{}).Plan()
			require.NoError(t, err)
			defer p.Close()
			var got []string
			var walk func(s *StageExplained)
			walk = func(s *StageExplained) {
				if s.Kind == "filter" {
					got = append(got, s.Detail[0])
				} else {
					got = append(got, s.Kind)
				}
				for _, in := range s.Inputs {
					walk(in)
				}
			}
			walk(p.Explain("host").Root)
			require.Equal(t, strings.Join(c.want, "\n"), strings.Join(got, "\n"))
		})
	}
}
