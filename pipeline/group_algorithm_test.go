package pipeline

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/source"
)

// TestTheNamesOfGroupAlgorithmsAreThoseOfTheOperator compares the names of a job file and the check
// of a job in Go with the operator's list.
func TestTheNamesOfGroupAlgorithmsAreThoseOfTheOperator(t *testing.T) {
	field, ok := reflect.TypeFor[Group]().FieldByName("Algorithm")
	require.True(t, ok)
	require.Equal(t, strings.Join(groupby.Algorithms(), ","), field.Tag.Get("enum"))
	grouped := func(algorithm string) *Builder {
		return measured(t).GroupWith(Group{By: Columns{{Expr: "x"}}, Aggregates: Columns{{Expr: "count(*) as n"}},
			Algorithm: algorithm})
	}
	_, err := grouped("by-hand").Plan()
	require.ErrorContains(t, err, `there is no algorithm "by-hand" for groups; the algorithms are hgb-g, hgb, `)
	_, err = grouped("pgb-tr").WriteTo(&Collector{}).Run(context.Background(), RunOptions{Device: hosttest.Open(t)})
	require.ErrorContains(t, err, "the group-by algorithm pgb-tr aggregates in the shared memory of a GPU")
	p, err := grouped("sgb-tr").WriteTo(&Collector{}).Plan()
	require.NoError(t, err)
	require.Contains(t, p.Explain(Host).String(), "algorithm sgb-tr: the job says so")
	require.NoError(t, p.Close())
}

// TestAGroupByIsChosenForAGPU plans groups of a large table.
func TestAGroupByIsChosenForAGPU(t *testing.T) {
	for by, want := range map[string]string{
		"id":          "algorithm hgb-g: strides of few rows",
		"few":         "algorithm hgb-g: strides of few rows",
		"[few, many]": "algorithm hgb-g: strides of few rows",
	} {
		table := newPlanTable(1e8).column("id", gpu.Of(gpu.Int64), 1, 1e8).column("few", gpu.Of(gpu.Int64), 1,
			100).column("many", gpu.Of(gpu.Int64), 1, 3e4)
		job, err := Parse("job.yaml",
			[]byte("sources: {big: b}\noutput: {parquet: out.parquet}\nsteps: [{group: {by: "+by+
				", aggregates: {s: sum(id)}}}]"), LoadOptions{})
		require.NoError(t, err)
		p, err := newPlan(t.Context(), job, map[string]source.Table{"big": table}, nil)
		require.NoError(t, err)
		require.Contains(t, p.Explain("cuda:0").String(), want, by)
		require.NotContains(t, p.Explain(Host).String(), "algorithm", by)
		require.NoError(t, p.Close())
	}
}
