package pipeline

import (
	"context"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host/hosttest"
)

// smallTable has the columns x and y in three rows.
func smallTable(t *testing.T) *Builder {
	return New("small").ReadTable("t",
		record(t, []arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64},
			{Name: "y", Type: arrow.BinaryTypes.String}},
			`[{"x": 1, "y": "b"}, {"x": 2, "y": "c"}, {"x": 2, "y": "a"}]`))
}

func requireRows(t *testing.T, b *Builder, want string) {
	var c Collector
	_, err := b.WriteTo(&c).Run(context.Background(), RunOptions{Device: hosttest.Open(t)})
	require.NoError(t, err)
	require.Len(t, c.Records(), 1)
	text, err := c.Records()[0].MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, want, string(text))
}

func TestKeysByPositionInGo(t *testing.T) {
	requireRows(t, smallTable(t).Sort("1 desc", "2"), `[{"x":2,"y":"a"},{"x":2,"y":"c"},{"x":1,"y":"b"}]`)
	requireRows(t, smallTable(t).Group([]string{"1"}, "count(*) as n").Sort("1"), `[{"x":1,"n":1},{"x":2,"n":2}]`)
}

func TestAUnionOfTextAndNumbersIsText(t *testing.T) {
	union := smallTable(t).Select("x + 0.5 as v", "x > 1 as w").As("numbers").From("t").Select("y as v",
		"'?' as w").Union("numbers").Sort("v", "w")
	requireRows(t, union,
		`[{"v":"1.5","w":"false"},{"v":"2.5","w":"true"},{"v":"2.5","w":"true"},{"v":"a","w":"?"},{"v":"b","w":"?"},{"v":"c","w":"?"}]`)
}

func TestConstantKeysAndUnreadStepsInGo(t *testing.T) {
	var c Collector
	for want, b := range map[string]*Builder{
		"sort 1: the sort key 3 is out of range":  smallTable(t).Sort("3"),
		"sort 1: the sort key 'x' uses no column": smallTable(t).Sort("'x'"),
		"group 1: the group key 1 + 1 uses no":    smallTable(t).Group([]string{"1 + 1"}),
		"the ORDER BY key 'x' of first uses no col": smallTable(t).Group([]string{"y"},
			"first(x order by 'x' desc) as f"),
		"the ORDER BY key (1 + 1) of sum uses no": smallTable(t).Group([]string{"y"},
			"sum(x order by x, 1 + 1) as f"),
		"filter 1: no step reads the rows": smallTable(t).Filter("x > 1").From("t").Sort("x"),
		"big: no step reads the rows of this one": smallTable(t).Filter("x > 1").As("big").From("t").Filter("x < 2").
			From("t").Union("filter 2"),
		"filter 3: no step reads the rows of this o": smallTable(t).Filter("x > 1").Filter("x > 2").Filter("x > 3").
			From("t").Union("filter 2"),
	} {
		p, err := b.WriteTo(&c).Plan()
		require.ErrorIs(t, err, ErrJob)
		require.ErrorContains(t, err, want)
		require.Nil(t, p)
	}
}
