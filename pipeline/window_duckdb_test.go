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
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/operators/expr/exprtest"
)

// drawWindow draws window functions over a table of many types.
func drawWindow(r *rand.Rand) *randomCase {
	return (&caseGenerator{r: r, c: &randomCase{}, types: randomTypes}).window()
}

func (g *caseGenerator) window() *randomCase {
	r := g.r
	g.table("a")
	in := g.relations[0]
	// A column whose values differ makes an order by all columns total.
	for i, k := range r.Perm(len(g.c.tables[0].rows)) {
		g.c.tables[0].rows[i][0] = gpu.IntScalar(g.c.tables[0].schema.Fields[0].Type, int64(k))
	}
	// The first column tells the rows apart when they are compared.
	exprs := []named{{exprtest.Leaf(exprtest.Integer, in.columns[0].name), in.columns[0].name}}
	columns := []randomColumn{in.columns[0]}
	for i := range 1 + r.IntN(4) {
		f, exact := g.windowFunction(in)
		name := fmt.Sprintf("w%d", i+1)
		exprs = append(exprs, named{exprtest.Leaf(exprtest.Number, f), name})
		columns = append(columns, randomColumn{name, exprtest.Number, exact})
	}
	for _, c := range in.columns[1:] {
		if r.IntN(3) > 0 {
			exprs = append(exprs, named{exprtest.Leaf(c.class, c.name), c.name})
			columns = append(columns, c)
		}
	}
	s := randomStep{verb: "select", from: "a", exprs: exprs}
	if r.IntN(3) == 0 {
		f, _ := g.windowFunction(in)
		s.qualify = fmt.Sprintf("%s <= %d", "row_number() OVER ("+g.over(in, true, false)+")", 1+r.IntN(3))
		if r.IntN(4) == 0 {
			s.qualify = f + " IS NOT NULL"
		}
	}
	g.add(s, columns, in.rows)
	g.c.columns = columns
	return g.c
}

// windowFunction draws a call with OVER. It reports whether the result is exact.
func (g *caseGenerator) windowFunction(in randomRelation) (call string, exact bool) {
	r := g.r
	col := in.columns[r.IntN(len(in.columns))]
	nulls := []string{"", "", " IGNORE NULLS", " RESPECT NULLS"}[r.IntN(4)]
	number := in.columns[0]
	for _, c := range in.columns {
		if c.class == exprtest.Integer && r.IntN(2) == 0 {
			number = c
		}
	}
	switch r.IntN(18) {
	case 0:
		return "row_number() OVER (" + g.over(in, true, true) + ")", true
	case 1:
		return "rank() OVER (" + g.over(in, false, true) + ")", true
	case 2:
		return "dense_rank() OVER (" + g.over(in, false, true) + ")", true
	case 3:
		return "percent_rank() OVER (" + g.over(in, false, true) + ")", true
	case 4:
		return "cume_dist() OVER (" + g.over(in, false, true) + ")", true
	case 5:
		return fmt.Sprintf("ntile(%d) OVER (%s)", 1+r.IntN(9), g.over(in, true, true)), true
	case 6, 7:
		f := []string{"lag", "lead"}[r.IntN(2)]
		args := col.name
		if r.IntN(2) == 0 {
			args += []string{", 1", ", 2", ", 0", ", -1", ", NULL", ", 7",
				", CAST(" + number.name + " AS INTEGER)"}[r.IntN(7)]
			if r.IntN(2) == 0 {
				args += []string{", NULL", ", " + col.name}[r.IntN(2)]
			}
		}
		return fmt.Sprintf("%s(%s%s) OVER (%s)", f, args, nulls, g.over(in, true, false)), true
	case 8:
		return fmt.Sprintf("%s(%s%s) OVER (%s)", []string{"first_value", "last_value", "first", "last"}[r.IntN(4)],
			col.name, nulls, g.over(in, true, true)), true
	case 9:
		n := []string{"1", "2", "3", "0", "-1", "NULL", "CAST(" + number.name + " AS INTEGER)"}[r.IntN(7)]
		return fmt.Sprintf("nth_value(%s, %s%s) OVER (%s)", col.name, n, nulls, g.over(in, true, true)), true
	case 10, 11:
		f := []string{"min", "max", "count"}[r.IntN(3)]
		filter := ""
		if r.IntN(3) == 0 {
			filter = fmt.Sprintf(" FILTER (WHERE %s > 1)", number.name)
		}
		return fmt.Sprintf("%s(%s)%s OVER (%s)", f, col.name, filter, g.over(in, r.IntN(2) == 0, true)), true
	case 12:
		return "count(*) OVER (" + g.over(in, r.IntN(2) == 0, true) + ")", true
	case 13, 14:
		call := fmt.Sprintf("%s(%s, %s)", []string{"arg_min", "arg_max"}[r.IntN(2)], col.name, in.columns[0].name)
		if r.IntN(3) == 0 {
			call = fmt.Sprintf("any_value(%s)", col.name)
		}
		filter := ""
		if r.IntN(3) == 0 {
			filter = fmt.Sprintf(" FILTER (WHERE %s > 1)", number.name)
		}
		return call + filter + " OVER (" + g.over(in, true, true) + ")", true
	}
	for _, c := range in.columns {
		if (c.class == exprtest.Number || c.class == exprtest.Integer) && r.IntN(2) == 0 {
			number = c
		}
	}
	f := []string{"sum", "avg", "sum", "avg", "product"}[r.IntN(5)]
	if r.IntN(6) == 0 {
		f = []string{"var_samp", "var_pop", "stddev", "stddev_pop"}[r.IntN(4)]
		number = in.columns[0]
		for _, c := range in.columns {
			if c.class == exprtest.Integer && r.IntN(2) == 0 && c.name != in.columns[0].name {
				number = c
			}
		}
		return fmt.Sprintf("%s(CAST(%s AS DECIMAL(12,3))) OVER (%s)", f, number.name, g.over(in, r.IntN(2) == 0, true)),
			false
	}
	return fmt.Sprintf("%s(%s) OVER (%s)", f, number.name, g.over(in, r.IntN(2) == 0, true)), false
}

// over draws the contents of OVER. A total order has all columns, of which one is distinct.
// In another order the frames have whole groups of peers.
func (g *caseGenerator) over(in randomRelation, total, frame bool) string {
	r := g.r
	var parts []string
	pick := func(n int) (names []string) {
		for range n {
			names = append(names, in.columns[r.IntN(len(in.columns))].name)
		}
		return names
	}
	if n := r.IntN(3); n > 0 && !g.overAll {
		parts = append(parts, "PARTITION BY "+strings.Join(pick(n), ", "))
	}
	direction := func() string {
		return []string{"", " DESC", " NULLS FIRST", " DESC NULLS FIRST", " ASC NULLS LAST"}[r.IntN(5)]
	}
	offset := func() string { return fmt.Sprint([]int{0, 1, 2, 5, 40}[r.IntN(5)]) }
	bounded := func(from, to string) string {
		text := "BETWEEN " + from + " AND " + to
		if g.overAll && strings.Contains(text, "UNBOUNDED") { // it would not spill
			return text
		}
		return text + []string{"", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"}[r.IntN(6)]
	}
	if frame && !total && r.IntN(3) == 0 {
		// A range over one key, which is a number or a time, or a constant.
		for _, c := range in.columns {
			distance, key := "", c.name
			constant := func(values ...string) {
				if r.IntN(6) == 0 {
					key = values[r.IntN(len(values))]
				}
			}
			switch c.class {
			case exprtest.Number, exprtest.Integer:
				distance = []string{"1", "2", "1.5", "0"}[r.IntN(4)]
				constant("3", "-2.5", "CAST(NULL AS INTEGER)", "CAST('nan' AS DOUBLE)")
			case exprtest.Date:
				distance = []string{"1", "INTERVAL 1 DAY", "INTERVAL 36 HOUR"}[r.IntN(3)]
				constant("DATE '2024-02-29'", "CAST(NULL AS DATE)")
			case exprtest.Timestamp:
				distance = "INTERVAL 1 DAY"
				constant("TIMESTAMP '2024-02-29 12:00:00'", "CAST(NULL AS TIMESTAMP)")
			}
			if distance == "" || r.IntN(2) == 0 {
				continue
			}
			bounds := [][2]string{{distance + " PRECEDING", "CURRENT ROW"},
				{"UNBOUNDED PRECEDING", distance + " PRECEDING"}, {distance + " PRECEDING", distance + " FOLLOWING"},
				{"CURRENT ROW", distance + " FOLLOWING"}, {distance + " FOLLOWING", "UNBOUNDED FOLLOWING"},
				{"CURRENT ROW", "CURRENT ROW"}}[r.IntN(6)]
			return strings.Join(append(parts, "ORDER BY "+key+direction(),
				"RANGE "+bounded(bounds[0], bounds[1])), " ")
		}
	}
	var keys []string
	switch {
	case total:
		for _, i := range r.Perm(len(in.columns)) {
			keys = append(keys, in.columns[i].name+direction())
		}
	case r.IntN(4) > 0:
		for _, k := range pick(1 + r.IntN(2)) {
			keys = append(keys, k+direction())
		}
	}
	if len(keys) > 0 {
		parts = append(parts, "ORDER BY "+strings.Join(keys, ", "))
	}
	if frame && r.IntN(3) > 0 {
		unit := []string{"GROUPS", "RANGE"}[r.IntN(2)]
		if total && r.IntN(2) == 0 {
			unit = "ROWS"
		}
		from := []string{"UNBOUNDED PRECEDING", offset() + " PRECEDING", "CURRENT ROW", offset() + " FOLLOWING"}
		to := []string{offset() + " PRECEDING", "CURRENT ROW", offset() + " FOLLOWING", "UNBOUNDED FOLLOWING"}
		if unit == "RANGE" {
			from, to = []string{from[0], from[2]}, []string{to[1], to[3]}
		}
		i := r.IntN(len(from))
		parts = append(parts, unit+" "+bounded(from[i], to[max(0, i-1)+r.IntN(len(to)-max(0, i-1))]))
	}
	return strings.Join(parts, " ")
}

// drawSortedGroups draws aggregates that need the rows of a group together, next to others.
func drawSortedGroups(r *rand.Rand) *randomCase {
	// DuckDB casts a TIMESTAMP_NS to TIMESTAMP to interpolate.
	types := slices.DeleteFunc(slices.Clone(randomTypes), func(t string) bool { return t == "TIMESTAMP_NS" })
	g := &caseGenerator{r: r, c: &randomCase{}, types: types}
	g.table("a")
	in := g.relations[0]
	for i, k := range r.Perm(len(g.c.tables[0].rows)) {
		g.c.tables[0].rows[i][0] = gpu.IntScalar(g.c.tables[0].schema.Fields[0].Type, int64(k))
	}
	s := randomStep{verb: "group", from: "a"}
	var columns []randomColumn
	for i := range r.IntN(3) {
		c := in.columns[1+r.IntN(len(in.columns)-1)]
		name := fmt.Sprintf("k%d", i+1)
		s.exprs = append(s.exprs, named{exprtest.Leaf(c.class, c.name), name})
		columns = append(columns, randomColumn{name, c.class, true})
	}
	for i := range 1 + r.IntN(4) {
		f, exact := g.sortedAggregate(in)
		name := fmt.Sprintf("f%d", i+1)
		s.aggregates = append(s.aggregates, named{exprtest.Leaf(exprtest.Number, f), name})
		columns = append(columns, randomColumn{name, exprtest.Number, exact})
	}
	g.add(s, columns, in.rows)
	g.c.columns = columns
	return g.c
}

// sortedAggregate draws an aggregate. It reports whether the result is exact.
func (g *caseGenerator) sortedAggregate(in randomRelation) (call string, exact bool) {
	r := g.r
	of := func(classes ...exprtest.Class) (name string) {
		name = in.columns[0].name
		for _, c := range in.columns {
			for _, class := range classes {
				if c.class == class && r.IntN(2) == 0 {
					name = c.name
				}
			}
		}
		return name
	}
	col := in.columns[r.IntN(len(in.columns))].name
	number, integer := of(exprtest.Number, exprtest.Integer), of(exprtest.Integer)
	filter, distinct := "", ""
	if r.IntN(3) == 0 {
		filter = fmt.Sprintf(" FILTER (WHERE %s > 1)", of(exprtest.Number, exprtest.Integer))
	}
	if r.IntN(4) == 0 {
		distinct = "DISTINCT "
	}
	fraction := []string{"0.5", "0.25", "0", "1", "-0.75", "-0.25", "0.125", "1e-1", "0.3", "0.999"}[r.IntN(10)]
	// Between values of a fixed unit, DuckDB's last digit is that of a rounded fraction.
	binary := []string{"0.5", "0.25", "0", "1", "-0.75", "-0.25", "0.125"}[r.IntN(7)]
	order := " ORDER BY " + in.columns[0].name + []string{"", " DESC"}[r.IntN(2)]
	if r.IntN(2) == 0 {
		order = " ORDER BY " + col + " DESC NULLS FIRST, " + in.columns[0].name
	}
	switch r.IntN(12) {
	case 0:
		return fmt.Sprintf("%s(%s%s)%s", []string{"var_samp", "var_pop", "stddev_samp", "stddev_pop", "variance",
			"stddev"}[r.IntN(6)], distinct, number, filter), false
	case 1:
		return fmt.Sprintf("%s(%s%s)%s", []string{"bit_and", "bit_or", "bit_xor"}[r.IntN(3)], distinct, integer,
			filter), true
	case 2:
		return fmt.Sprintf("product(%s%s)%s", distinct, number, filter), false
	case 3, 4:
		return fmt.Sprintf("%s(%s%s)%s", []string{"first", "last", "any_value", "arbitrary"}[r.IntN(4)], col, order,
			filter), true
	case 5:
		return fmt.Sprintf("%s(%s, %s)%s", []string{"arg_min", "arg_max", "min_by", "max_by"}[r.IntN(4)], col,
			in.columns[0].name, filter), true
	case 6:
		return fmt.Sprintf("median(%s%s)%s", distinct, number, filter), false
	case 7:
		return fmt.Sprintf("quantile_cont(%s%s, %s)%s", distinct,
			of(exprtest.Number, exprtest.Integer, exprtest.Date, exprtest.Timestamp), binary, filter), false
	case 8:
		return fmt.Sprintf("quantile_disc(%s%s, %s)%s", distinct, col, fraction, filter), true
	case 9, 10:
		text := of(exprtest.Text)
		if distinct != "" {
			return fmt.Sprintf("string_agg(DISTINCT %s, '; ' ORDER BY %[1]s%s)%s", text,
				[]string{"", " DESC"}[r.IntN(2)], filter), true
		}
		return fmt.Sprintf("string_agg(%s%s%s)%s", text, []string{"", ", ''", ", '--'"}[r.IntN(3)], order, filter), true
	}
	return fmt.Sprintf("%s(%s%s)%s", []string{"count", "min", "max", "sum", "avg"}[r.IntN(5)], distinct, number,
		filter), false
}

// TestRandomSortedGroupsGiveDuckDBsRows compares aggregates that need the rows of a group
// together with DuckDB's.
func TestRandomSortedGroupsGiveDuckDBsRows(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Parallel()
	d := &pipelineDuel{t: t, duck: exprtest.StartDuckDB(t), dir: t.TempDir()}
	first, cases := gputest.SeedOr(t, 1), gputest.Cases(t, 90)
	for seed := first; seed < first+uint64(cases); seed++ {
		d.duel(drawSortedGroups(rand.New(rand.NewPCG(seed, 13))), seed)
	}
	t.Logf("%d rows of %d results compared", d.rows, d.full)
}

// TestRandomWindowsGiveDuckDBsRows draws window functions, frames and qualify over tables of
// many types, and compares types and rows with DuckDB's.
func TestRandomWindowsGiveDuckDBsRows(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Parallel()
	d := &pipelineDuel{t: t, duck: exprtest.StartDuckDB(t), dir: t.TempDir()}
	first, cases := gputest.SeedOr(t, 1), gputest.Cases(t, 90)
	for seed := first; seed < first+uint64(cases); seed++ {
		d.duel(drawWindow(rand.New(rand.NewPCG(seed, 11))), seed)
	}
	t.Logf("%d rows of %d results compared", d.rows, d.full)
}

// TestRandomWindowsOverAllRowsSpill compares windows without partition keys, whose rows all spill, with DuckDB's.
func TestRandomWindowsOverAllRowsSpill(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Parallel()
	d := &pipelineDuel{t: t, duck: exprtest.StartDuckDB(t), dir: t.TempDir(), spill: true}
	first, cases := gputest.SeedOr(t, 1), gputest.Cases(t, 40)
	for seed := first; seed < first+uint64(cases); seed++ {
		g := &caseGenerator{r: rand.New(rand.NewPCG(seed, 37)), c: &randomCase{}, types: randomTypes, overAll: true}
		d.duel(g.window(), seed)
	}
	t.Logf("%d rows of %d results compared, %d windows spilled, %d did not", d.rows, d.full, d.spilled, d.held)
	require.Greater(t, d.spilled, 10*d.held)
}

// TestAggregatesOfPartitionsAreJoined compares aggregates of whole partitions, which a group-by and a join compute,
// with those of the same rows together with a function that needs their order.
func TestAggregatesOfPartitionsAreJoined(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	seed := gputest.SeedOr(t, 1)
	for i, typ := range aggregateTypes() {
		table := aggregateTable(rand.New(rand.NewPCG(seed+uint64(i), 31)), typ, true).repeated(8)
		var calls []string
		for _, call := range aggregateCalls(table.tables[0].schema.Fields[2].Type) {
			name, _, _ := strings.Cut(call.text, "(")
			if call.wild && !strings.Contains(call.text, "DISTINCT") &&
				slices.Contains([]string{"count", "min", "max", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or",
					"count_if"}, name) {
				calls = append(calls, call.text)
			}
		}
		calls = append(calls, "sum(a2)", "avg(a2)", "count(*)")
		for _, key := range []string{"a1", "a1, a1 % 2", "-a1"} {
			columns := []string{"row_number() OVER (PARTITION BY " + key + " ORDER BY a2) AS n",
				"max(a2) OVER (PARTITION BY a1 < 3) AS m"}
			different := []string{"n < 0"}
			for k, call := range calls {
				whole, ordered := fmt.Sprint("w", k), fmt.Sprint("o", k)
				columns = append(columns, fmt.Sprintf("%s OVER (PARTITION BY %s) AS %s", call, key, whole),
					fmt.Sprintf("%s OVER (PARTITION BY %s ORDER BY a2 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED "+
						"FOLLOWING) AS %s", call, key, ordered))
				different = append(different, whole+" IS DISTINCT FROM "+ordered)
			}
			d := &pipelineDuel{t: t, dir: t.TempDir()}
			d.writeFile(table.tables[0])
			var out collected
			b := New("windows").Read("a", d.path(table.tables[0])).Select(columns...).
				GroupWith(Group{Aggregates: Columns{{Name: "rows", Expr: "count(*)"},
					{Name: "different", Expr: "count(*) FILTER (WHERE " + strings.Join(different, " OR ") +
						")"}}}).WriteTo(&out)
			_, err := b.Run(context.Background(), RunOptions{Device: hosttest.Open(t), SpillDir: t.TempDir()})
			require.NoError(t, err, "%s by %s", typ, key)
			require.Equal(t, fmt.Sprint(len(table.tables[0].rows)), *out.rows[0][0])
			require.Equal(t, "0", *out.rows[0][1], "%s by %s", typ, key)
			plan, err := b.Plan()
			require.NoError(t, err)
			require.Equal(t, 2, strings.Count(plan.Explain(Host).String(), "a row for each partition"), "%s by %s", typ,
				key)
		}
	}
}
