package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/operators/expr/exprtest"
)

// aggregateCall is a call of an aggregate over column a3 of aggregateTable.
type aggregateCall struct {
	text  string
	exact bool
	wild  bool // it is compared over the limits of a type too
}

// aggregateTable is a table with a key of few values, a column that distinguishes rows, and one of a type.
func aggregateTable(r *rand.Rand, typ string, wild bool) *randomCase {
	g := &caseGenerator{r: r, c: &randomCase{}, types: []string{typ}, wild: wild}
	for len(g.c.tables) == 0 || len(g.c.tables[0].rows) < 20 || len(g.c.tables[0].rows) > 100 {
		g.c.tables, g.relations = nil, nil
		g.table("a")
	}
	t := &g.c.tables[0]
	t.schema.Fields[1] = gpu.Field{Name: "a2", Type: gpu.Of(gpu.Int32)}
	for i, k := range r.Perm(len(t.rows)) {
		t.rows[i][0], t.rows[i][1] = gpu.IntScalar(gpu.Of(gpu.Int64), int64(r.IntN(4))),
			gpu.IntScalar(gpu.Of(gpu.Int32), int64(k))
		if r.IntN(8) == 0 {
			t.rows[i][0] = gpu.Null(gpu.Of(gpu.Int64))
		}
	}
	return g.c
}

// aggregateCalls returns all aggregates of a type, with and without FILTER and DISTINCT.
func aggregateCalls(t gpu.Type) (all []aggregateCall) {
	add := func(exact, wild, distinct bool, format string) {
		for _, d := range []string{"", "DISTINCT "} {
			if d != "" && !distinct {
				continue
			}
			for _, f := range []string{"", " FILTER (WHERE a2 % 3 > 0)", " FILTER (WHERE a1 = 2)"} {
				all = append(all, aggregateCall{fmt.Sprintf(format, d+"a3") + f, exact, wild})
			}
		}
	}
	integer := t.IsInteger()
	add(true, true, true, "count(%s)")
	for _, f := range []string{"min(%s)", "max(%s)"} {
		add(true, true, true, f)
	}
	for _, f := range []string{"first(%s ORDER BY a2)", "last(%s ORDER BY a2 DESC)", "any_value(%s ORDER BY a2)",
		"arg_min(%s, a2)", "arg_max(%s, a2)", "arg_min(a2, %s)",
		"arg_min(%s, a2 %% 3 ORDER BY a2 DESC)", "max_by(a2, %s ORDER BY a2 DESC)", "mode(%s ORDER BY a2 DESC)"} {
		add(true, true, false, f)
	}
	add(true, true, true, "quantile_disc(%s, 0.3)")
	add(true, true, true, "mode(%s ORDER BY a3 DESC)")
	switch {
	case t.Kind == gpu.String:
		add(true, true, false, "string_agg(%s, ', ' ORDER BY a2)")
		add(true, true, true, "string_agg(%s, ', ' ORDER BY a3)")
	case t.Kind == gpu.Bool:
		for _, f := range []string{"bool_and(%s)", "bool_or(%s)", "count_if(%s)", "sum(%s)"} {
			add(true, true, true, f)
		}
	case t.IsNumeric():
		add(!t.IsFloat(), !t.IsFloat(), true, "sum(%s)")
		add(false, !t.IsFloat(), true, "avg(%s)")
		if !t.IsFloat() { // DuckDB's are NaN over an infinity
			add(false, false, true, "favg(%s)")
			add(false, false, true, "fsum(%s)")
		}
		add(false, false, true, "median(%s)")
		add(false, false, true, "quantile_cont(%s, 0.25)")
		for _, f := range []string{"product(%s)", "var_samp(%s)", "var_pop(%s)", "stddev_samp(%s)", "stddev_pop(%s)"} {
			add(false, false, true, f)
		}
	}
	if integer {
		for _, f := range []string{"bit_and(%s)", "bit_or(%s)", "bit_xor(%s)"} {
			add(true, true, true, f)
		}
	}
	return all
}

// grouped is a table grouped by its key with some calls.
func (c *randomCase) grouped(calls []aggregateCall) *randomCase {
	s := randomStep{verb: "group", name: "s1", from: "a", exprs: []named{{exprtest.Leaf(exprtest.Integer, "a1"), "k"}}}
	columns := []randomColumn{{"k", exprtest.Integer, true}}
	for i, call := range calls {
		name := fmt.Sprint("f", i)
		s.aggregates = append(s.aggregates, named{exprtest.Leaf(exprtest.Number, call.text), name})
		columns = append(columns, randomColumn{name, exprtest.Number, call.exact})
	}
	out := *c
	out.steps, out.columns = []randomStep{s}, columns
	return &out
}

// repeated is a case whose tables have each row several times, so that values are counted before they are sorted.
func (c *randomCase) repeated(times int) *randomCase {
	out := *c
	out.tables = slices.Clone(c.tables)
	for i := range out.tables {
		out.tables[i].rows = slices.Repeat(out.tables[i].rows, times)
	}
	return &out
}

// aggregateSteps puts calls into as few groups as possible: the aggregates of sorted rows apart from the others and
// from those that a CPU accumulates, and sums
// that may be beyond their type one by one. Those of the numbers of values come last, after the others.
func aggregateSteps(t gpu.Type, calls []aggregateCall) (steps [][]aggregateCall) {
	sorted, others, counted, led := []aggregateCall{}, []aggregateCall{}, []aggregateCall{}, []aggregateCall{}
	for _, call := range calls {
		switch name, _, _ := strings.Cut(call.text, "("); {
		case t.Wide && (name == "sum" || name == "avg"):
			steps = append(steps, []aggregateCall{call})
		case slices.Contains([]string{"count", "min", "max", "sum", "avg", "bool_and", "bool_or", "count_if", "favg",
			"fsum"}, name):
			others = append(others, call)
		case strings.HasPrefix(name, "bit_"): // either way
			others, sorted = append(others, call), append(sorted, call)
		case name == "median" || strings.HasPrefix(name, "quantile_"):
			sorted, counted = append(sorted, call), append(counted, call)
		case slices.Contains([]string{"first", "last", "any_value", "arg_min", "arg_max", "max_by"}, name) ||
			name == "product" && !strings.Contains(call.text, "DISTINCT"):
			sorted, led = append(sorted, call), append(led, call) // either way
		default:
			sorted = append(sorted, call)
		}
	}
	steps = append(steps, others, sorted, append(counted, others...))
	distinct := func(c aggregateCall) bool { return strings.Contains(c.text, "DISTINCT") }
	return append(steps, append(led, slices.DeleteFunc(slices.Clone(others), distinct)...))
}

// aggregateTypes are those that tables have.
func aggregateTypes() []string { return slices.Compact(slices.Sorted(slices.Values(randomTypes))) }

// TestEveryAggregateOfEveryType compares each aggregate of each type, with FILTER and DISTINCT, with DuckDB's, and
// groups by keys of the type. Values are ordinary ones, and for aggregates with one right answer also
// the limits of the type.
func TestEveryAggregateOfEveryType(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	d := &pipelineDuel{t: t, duck: exprtest.StartDuckDB(t), dir: t.TempDir()}
	seed := gputest.SeedOr(t, 1)
	thin := gputest.ThinOr(t, 13)
	for i, typ := range aggregateTypes() {
		for w, wild := range []bool{false, true} {
			if !gputest.Takes(thin, i+w+1) {
				continue
			}
			table := aggregateTable(rand.New(rand.NewPCG(seed+uint64(i), 17)), typ, wild)
			d.write(table)
			value := table.tables[0].schema.Fields[2].Type
			calls := slices.DeleteFunc(aggregateCalls(value), func(call aggregateCall) bool {
				return wild && !call.wild || typ == "TIMESTAMP_NS" && strings.HasPrefix(call.text, "quantile_cont")
			})
			byValue := table.grouped([]aggregateCall{{"count(*)", true, true}, {"sum(a2)", true, true},
				{"count(DISTINCT a1)", true, true}})
			byValue.steps[0].exprs[0].expr = exprtest.Leaf(exprtest.Text, "a3")
			cases := []*randomCase{byValue}
			steps := aggregateSteps(value, calls)
			for _, step := range steps {
				cases = append(cases, table.grouped(step))
			}
			cases[len(cases)-1] = table.repeated(64).grouped(steps[len(steps)-1])
			for i, c := range cases {
				if i == len(cases)-1 {
					d.write(c)
				}
				before := d.full
				if kind, text := d.compare(c, seed); kind != "" {
					t.Errorf("GSTREAM_SEED=%d: %s: %s\n%s", seed, kind, text, c)
				} else if d.full == before && len(c.steps[0].aggregates) > 1 {
					t.Errorf("GSTREAM_SEED=%d: both fail\n%s", seed, c)
				}
			}
		}
	}
	t.Logf("%d rows of %d results compared", d.rows, d.full)
}

// TestEveryAggregateOnAGPU compares the aggregates of types of each kind on the CPU and on a GPU.
func TestEveryAggregateOnAGPU(t *testing.T) {
	dev := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	seed, thin := gputest.SeedOr(t, 1), gputest.ThinOr(t, 9)
	for i, typ := range []string{"BIGINT", "UTINYINT", "UBIGINT", "DOUBLE", "DECIMAL(12,2)", "DECIMAL(30,6)", "BOOLEAN",
		"VARCHAR", "TIMESTAMP"} {
		if !gputest.Takes(thin, i+int(seed)) {
			continue
		}
		table := aggregateTable(rand.New(rand.NewPCG(seed+uint64(i), 19)), typ, true)
		d := &pipelineDuel{t: t, dir: t.TempDir()}
		value := table.tables[0].schema.Fields[2].Type
		calls := slices.DeleteFunc(aggregateCalls(value), func(call aggregateCall) bool { return !call.wild })
		steps := aggregateSteps(value, calls)
		for i, step := range steps {
			if i == len(steps)-1 {
				table = table.repeated(64)
			}
			c := table.grouped(step)
			d.writeFile(table.tables[0])
			want, wantErr := d.run(c, rand.New(rand.NewPCG(seed, 5)))
			b := New("random").Read("a", d.path(table.tables[0]))
			var got collected
			b.WriteTo(&got)
			b.job.Steps = append(b.job.Steps, c.steps[0].job()...)
			_, err := b.Run(context.Background(),
				RunOptions{Device: smallStrides{dev, 50 * (1 + i/(len(steps)-1)*16)}, SpillDir: t.TempDir()})
			if wantErr != nil { // a sum beyond its type
				require.ErrorContains(t, wantErr, "overflow")
				require.ErrorContains(t, err, "overflow")
				continue
			}
			require.NoError(t, err, typ)
			ours, theirs := normalized(got.rows, got.types), normalized(want.rows, want.types)
			slices.SortFunc(ours, slices.Compare)
			slices.SortFunc(theirs, slices.Compare)
			require.Len(t, ours, len(theirs))
			for r := range ours {
				for k := range ours[r] {
					require.True(t, near(theirs[r][k], ours[r][k], want.types[k], c.columns, k),
						"%s of %s: CPU %s, GPU %s", c.steps[0].aggregates[max(k-1, 0)].expr, typ, theirs[r][k],
						ours[r][k])
				}
			}
		}
	}
}

// TestModesAndQuantilesOfCountedValues repeats the rows of a table, so that values are counted before they are sorted,
// and wants the modes and quantiles of the table itself, whose rows are sorted.
func TestModesAndQuantilesOfCountedValues(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	seed := gputest.SeedOr(t, 1)
	calls := []aggregateCall{{text: "mode(a3)"}, {text: "mode(a3) FILTER (WHERE a2 > 10)"}, {text: "mode(DISTINCT a3)"},
		{text: "quantile_disc(a3, 0.3)"},
		{text: "quantile_disc(a3, -0.999) FILTER (WHERE a2 > 10)"}, {text: "quantile_disc(DISTINCT a3, 0.6)"},
		{text: "max(a3)"}, {text: "count(DISTINCT a3)"}}
	counted := 0
	for i, typ := range aggregateTypes() {
		table := aggregateTable(rand.New(rand.NewPCG(seed+uint64(i), 23)), typ, true)
		r := rand.New(rand.NewPCG(seed+uint64(i), 29))
		for row := range table.tables[0].rows { // more ties, and values with more rows than others
			if r.IntN(3) > 0 {
				table.tables[0].rows[row][2] = table.tables[0].rows[row/4][2]
			}
		}
		var results [2][][]string
		for k, c := range []*randomCase{table.grouped(calls), table.repeated(400).grouped(calls)} {
			d := &pipelineDuel{t: t, dir: t.TempDir()}
			d.writeFile(c.tables[0])
			b := New("random").Read("a", d.path(c.tables[0]))
			b.job.Steps = append(b.job.Steps, c.steps[0].job()...)
			plan, err := b.WriteTo(&collected{}).Plan()
			require.NoError(t, err)
			if stages := strings.Count(plan.Explain(Host).String(), "group ("); k == 0 {
				require.Equal(t, 1, stages)
			} else if stages == 2 {
				counted++
			}
			got, err := d.run(c, r)
			require.NoError(t, err, typ)
			results[k] = normalized(got.rows, got.types)
			slices.SortFunc(results[k], slices.Compare)
		}
		require.Equal(t, results[0], results[1], typ)
	}
	require.Greater(t, 3*counted, 2*len(aggregateTypes()), "values of most types are counted")
}
