package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/source"
)

// originPlan plans steps over tables a and b of a number n, which is 0 in a row, and a text s.
func originPlan(t *testing.T, steps string) *Plan {
	t.Helper()
	j, err := Parse("job.yaml", []byte("sources: {a: a, b: b}\noutput: {parquet: out}\nsteps:\n"+steps), LoadOptions{})
	require.NoError(t, err)
	table := func(n string) source.Table {
		return record(t, []arrow.Field{{Name: n, Type: arrow.PrimitiveTypes.Int64},
			{Name: "s", Type: arrow.BinaryTypes.String}}, fmt.Sprintf(`[{%q: 0, "s": "x"}, {%q: 2, "s": "y"}]`, n, n))
	}
	p, err := newPlan(t.Context(), j, map[string]source.Table{"a": table("n"), "b": table("m")}, &Collector{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// origins are steps of which the one named bad has the expression that fails. It stands where @ does.
var origins = map[string]string{
	"a filter":              "- {from: a, filter: n < 5}\n- {name: bad, filter: @1 // n = 1}",
	"a filter below a sort": "- {from: a, sort: s}\n- {name: bad, filter: @1 // n = 1}",
	"a filter of several": "- {name: x, from: a, filter: n // 1 < 5}\n- {name: bad, filter: @1 // n = 1}\n- " +
		"{name: y, filter: n // 2 < 5}",
	"a filter below a left one": "- {from: a, join: {with: b, kind: left, on: n = m}}\n- {name: bad, filter: @1 // n " +
		"= 1}\n- select: n",
	"a condition of a join": "- {from: a, join: {with: b, on: a.s = b.s}}\n- {name: bad, filter: @m // n = " +
		"1}\n- select: n",
	"on":               "- {name: bad, from: a, join: {with: b, kind: semi, on: [a.s = b.s, @m // n = 1]}}",
	"a key of a join":  "- {name: bad, from: a, join: {with: b, kind: semi, on: @1 // n = m}}",
	"a column":         "- {name: bad, from: a, select: [n, @1 // n as x]}\n- sort: x",
	"a sum":            "- {from: a, filter: n < 5}\n- {name: bad, group: {aggregates: {x: @sum(1 // n)}}}",
	"a key of a group": "- {name: bad, from: a, group: {by: @1 // n, aggregates: {c: count(*)}}}",
	"a number of values": "- {name: bad, from: a, group: {aggregates: {c: count(distinct n), x: " +
		"@count(distinct 1 // n)}}}",
	"behind a sum": "- {name: bad, from: a, group: {by: s, aggregates: {x: @1 // sum(n)}}}",
	"a sort":       "- {from: a, filter: n < 5}\n- {name: bad, sort: [s, @1 // n desc]}",
	"a window":     "- {from: a, filter: n < 5}\n- {name: bad, select: [n, @sum(1 // n) over (order by s) as x]}",
	"a key of a window": "- {from: a, filter: n < 5}\n- {name: bad, select: [n, @row_number() over " +
		"(partition by 1 // n) as x]}",
	"qualify": "- {from: a, select: [n, s]}\n- {name: bad, qualify: @1 // n = row_number() over " +
		"(order by s)}",
	"distinct": "- {name: bad, from: a, distinct: @1 // n}",
	"a projection in a join": "- {name: bad, from: a, select: [n, @1 // n as x]}\n- {join: {with: b, kind: " +
		"semi, on: x = m}}",
}

func TestAFailingExpressionIsNamedAfterItsStep(t *testing.T) {
	for device, open := range map[string]func(*testing.T) gpu.Device{
		"host": func(*testing.T) gpu.Device { return nil },
		"cuda": func(t *testing.T) gpu.Device { return cudatest.Open(t, cuda.Options{Memory: 1 << 28}) },
	} {
		for name, steps := range origins {
			t.Run(device+"/"+name, func(t *testing.T) {
				before, _, ok := strings.Cut(steps, "@")
				require.True(t, ok)
				line := strings.Count(before, "\n") + 4
				column := len(before) - strings.LastIndex(before, "\n")
				opt := RunOptions{Device: open(t), Threads: 1}
				if opt.Device == nil {
					opt.Use = Host
				}
				p := originPlan(t, strings.Replace(steps, "@", "", 1))
				report, err := p.Run(t.Context(), opt)
				require.ErrorIs(t, err, ErrData)
				require.True(t, strings.HasPrefix(err.Error(), fmt.Sprintf("job.yaml:%d:%d: bad: in ", line, column)),
					err.Error())
				require.Equal(t, err.Error(), report.Error)
			})
		}
	}
}

func TestFiltersHaveTheirOwnNames(t *testing.T) {
	p := originPlan(t, "- {name: small, from: a, filter: n < 5}\n- {name: joined, join: {with: b, on: a.s = b.s}}\n- "+
		"{name: larger, filter: n >= 0 and m > n - 1}\n- select: n\n- {name: last, filter: n > -1}")
	text := p.Explain("host").String()
	require.Contains(t, text, "filter (small, larger, last)")
	require.Contains(t, text, "(m > (n - 1)), from larger")
	report, err := p.Run(t.Context(), RunOptions{Use: Host, Threads: 1})
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(report.Stages,
		func(s StageReport) bool { return s.Kind == "filter" && s.Step == "small, larger, last" }), "%v", report)
}

// The step of an error is known by more than its text.
func TestTheStepOfAnErrorMayHaveAnyName(t *testing.T) {
	for _, steps := range []string{
		"- {from: a, select: [\"cast(99999999999999999999999999999999999999 as decimal(38, 0)) as x\"]}\n- {name: " +
			"'price: cast', group: {aggregates: {x: sum(x)}}}",
		"- {from: a, filter: n < 5}\n- {name: 'price: cast', select: [1 // n as x]}",
	} {
		_, err := originPlan(t, steps).Run(t.Context(), RunOptions{Use: Host, Threads: 1})
		require.ErrorIs(t, err, ErrData)
		require.Regexp(t, `^job\.yaml:5:\d+: price: cast: `, err.Error())
	}
}
