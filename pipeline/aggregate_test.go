package pipeline

import (
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"
)

// measured has duplicates, nulls, NaN and both zeros. The sum of w is small, but the sum
// over the rows with x = 1 has more than 38 digits.
func measured(t *testing.T) *Builder {
	return New("aggregates").ReadTable("t", record(t, []arrow.Field{
		{Name: "k", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "b", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "w", Type: &arrow.Decimal128Type{Precision: 38}, Nullable: true}}, `[
		{"k": "a", "x": 1, "b": true, "w": "60000000000000000000000000000000000000"},
		{"k": "a", "x": 1, "b": null, "w": "60000000000000000000000000000000000000"},
		{"k": "a", "x": 2, "b": false, "w": "-60000000000000000000000000000000000000"},
		{"k": "a", "x": 3, "b": false, "w": "-60000000000000000000000000000000000001"},
		{"k": null, "x": 3, "b": true, "w": null},
		{"k": null, "x": 3, "b": true, "w": "5"},
		{"k": "c", "x": null, "b": null, "w": null}]`))
}

func TestAggregatesOfSomeRowsAndOfDistinctValues(t *testing.T) {
	for name, c := range map[string]struct {
		by         []string
		aggregates []string
		want       string
	}{
		"one distinct argument": {[]string{"k"},
			[]string{"count(distinct x) as n", "sum(distinct x) as s", "avg(distinct x) as a"},
			`[{"k":"a","n":3,"s":"6","a":2}, {"k":"c","n":0,"s":null,"a":null}, {"k":null,"n":1,"s":"3","a":3}]`},
		"beside others that are merged": {[]string{"k"},
			[]string{"count(distinct x) as n", "count(*) as rows", "count(x) as xs", "sum(x) as s", "avg(x) as a",
				"min(x) as lo", "max(b) as hi"},
			`[{"k":"a","n":3,"rows":4,"xs":4,"s":"7","a":1.75,"lo":1,"hi":true}, {"k":"c","n":0,"rows":1,"xs":0,"s":null,"a":null,"lo":null,"hi":null},
			  {"k":null,"n":1,"rows":2,"xs":2,"s":"6","a":3,"lo":3,"hi":true}]`},
		"beside a sum that cannot be merged": {[]string{"k"},
			[]string{"count(distinct x) as n", "sum(w) as w", "count(*) as rows"},
			`[{"k":"a","n":3,"w":"-1","rows":4}, {"k":"c","n":0,"w":null,"rows":1}, {"k":null,"n":1,"w":"5","rows":2}]`},
		"several arguments": {[]string{"k"}, []string{"count(distinct x) as x", "count(distinct b) as b",
			"sum(distinct w) as w", "count(*) - count(distinct x) as d"},
			`[{"k":"a","x":3,"b":2,"w":"-60000000000000000000000000000000000001","d":1}, {"k":"c","x":0,"b":0,"w":null,"d":1}, {"k":null,"x":1,"b":1,"w":"5","d":1}]`},
		"with a filter": {[]string{"k"}, []string{"count(distinct x) filter (where b) as n",
			"sum(x) filter (where x > 1) as s", "count(*) filter (where b is null) as rows"},
			`[{"k":"a","n":1,"s":"5","rows":1}, {"k":"c","n":0,"s":null,"rows":1}, {"k":null,"n":1,"s":"6","rows":0}]`},
		"without keys": {nil, []string{"count(distinct k) as k", "count(distinct x) as x", "count(*) as n"},
			`[{"k":2,"x":3,"n":7}]`},
		"of an argument that is a key": {[]string{"x"}, []string{"count(distinct x) as n", "count(distinct k) as k"},
			`[{"x":1,"n":1,"k":1}, {"x":2,"n":1,"k":1}, {"x":3,"n":1,"k":1}, {"x":null,"n":0,"k":1}]`},
		"of a constant": {nil, []string{"count(distinct 1) as one", "sum(distinct 2) as two",
			"count(distinct null) as none"},
			`[{"one":1,"two":"2","none":0}]`},
		"booleans": {[]string{"k"}, []string{"bool_and(b) as every", "bool_or(b) as some", "bool_and(x > 1) as big",
			"count_if(b) as n", "sum(b) as s"},
			`[{"k":"a","every":false,"some":true,"big":false,"n":"1","s":"1"}, {"k":"c","every":null,"some":null,"big":null,"n":null,"s":null},
			  {"k":null,"every":true,"some":true,"big":true,"n":"2","s":"2"}]`},
		"what a filter leaves out is not evaluated": {nil, []string{"sum(6 // (x - 1)) filter (where x > 1) as s"},
			`[{"s":"15"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			b := measured(t).Group(c.by, c.aggregates...)
			if len(c.by) > 0 {
				b.Sort(c.by...)
			}
			requireRows(t, b, c.want)
		})
	}
}

func TestAggregatesOfDistinctValuesOverNoRows(t *testing.T) {
	none := func() *Builder { return measured(t).Filter("x > 100") }
	requireRows(t, none().Group(nil, "count(distinct x) as n", "count(*) as rows", "count(b) as bs", "sum(x) as s",
		"sum(w) as w", "count(distinct w) as ws", "count_if(b) as c"),
		`[{"n":0,"rows":0,"bs":0,"s":null,"w":null,"ws":0,"c":null}]`)
	_, rows := cells(t, none().Group([]string{"k"}, "count(distinct x) as n", "count(*) as rows"))
	require.Empty(t, rows)
}

func TestAggregatesOfColumnsOfOneName(t *testing.T) {
	requireRows(t, smallTable(t).Select("x as k", "x + 1 as y").As("u").From("t").Join("u", "t.x = u.k and u.y = 2").
		Group(nil, "max(t.y) as a", "max(u.y) as b", "count(distinct t.y) as c", "sum(distinct u.y) as d"),
		`[{"a":"b","b":2,"c":1,"d":"2"}]`)
}

func TestDistinctRows(t *testing.T) {
	requireRows(t, measured(t).Distinct("k", "x > 1 as big").Sort("k", "big"),
		`[{"k":"a","big":false}, {"k":"a","big":true}, {"k":"c","big":null}, {"k":null,"big":true}]`)
	requireRows(t, measured(t).Select("k").Distinct().Sort("k"), `[{"k":"a"}, {"k":"c"}, {"k":null}]`)
	requireRows(t, measured(t).Distinct("*").Group(nil, "count(*) as n"), `[{"n":7}]`)
	_, err := measured(t).Distinct("k", "x as k").WriteTo(&Collector{}).Plan()
	require.ErrorContains(t, err, `distinct 1: two columns are named "k"`)
}
