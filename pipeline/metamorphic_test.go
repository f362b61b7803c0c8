package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/operators/groupby"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/spill"
)

// smallStrides is a device with another stride length.
type smallStrides struct {
	gpu.Device
	rows int
}

func (d smallStrides) StrideRows(int) int { return d.rows }

// randomTable writes a table with values of every kind: nulls, NaN, infinities, empty and
// long strings. Floats are multiples of a quarter, so their sums do not depend on the
// order. Column names begin with the prefix.
func randomTable(t *testing.T, r *rand.Rand, prefix, path string) {
	var fields []arrow.Field
	for _, f := range []struct {
		name string
		typ  arrow.DataType
	}{
		{"k", arrow.PrimitiveTypes.Int64}, {"i", arrow.PrimitiveTypes.Int32}, {"s", arrow.BinaryTypes.String},
		{"d", &arrow.Decimal128Type{Precision: 12, Scale: 2}}, {"f", arrow.PrimitiveTypes.Float64},
		{"t", arrow.FixedWidthTypes.Date32},
	} {
		fields = append(fields, arrow.Field{Name: prefix + "_" + f.name, Type: f.typ, Nullable: true})
	}
	schema := arrow.NewSchema(fields, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	words := []string{"", "a", "A", "b", "ü", "a%b", "Green forest", strings.Repeat("long ", 30)}
	for range []int{0, 1, 40, 150}[r.IntN(4)] {
		for c := range fields {
			if r.IntN(8) == 0 {
				b.Field(c).AppendNull()
				continue
			}
			switch f := b.Field(c).(type) {
			case *array.Int64Builder:
				f.Append(int64(r.IntN(12)))
			case *array.Int32Builder:
				f.Append(int32(r.IntN(2000) - 1000))
			case *array.StringBuilder:
				f.Append(words[r.IntN(len(words))])
			case *array.Decimal128Builder:
				f.Append(decimal128.FromI64(int64(r.IntN(2000) - 1000)))
			case *array.Float64Builder:
				f.Append([]float64{math.NaN(), math.Inf(1), 0, 1.25, -3.5, float64(r.IntN(100)) / 4}[r.IntN(6)])
			case *array.Date32Builder:
				f.Append(arrow.Date32(9000 + r.IntN(50)))
			}
		}
	}
	rec := b.NewRecord()
	defer rec.Release()
	table, err := ArrowTable(schema, rec)
	require.NoError(t, err)
	_, err = New("table").ReadTable("t", table).Write(path,
		sinkparquet.Options{RowGroupRows: 64, PageRows: 16}).Run(context.Background(), RunOptions{Threads: 1})
	require.NoError(t, err)
}

// pipelineCase is a random pipeline, as a job and as SQL.
type pipelineCase struct {
	r      *rand.Rand
	steps  []Step
	ctes   []string
	cols   []metaColumn
	names  int
	joined int
	// grouped says that the order of the rows is not promised: after a group-by, until a
	// sort by all columns.
	grouped bool
	// joined rows have an order unless the join spills, until they are sorted by all columns.
	inJoinOrder bool
	helped      int // joins of which the CPU with a GPU took pairs
}

// metaColumn is a column of a random pipeline and the kind of its values: a letter of
// randomTable's columns, or n for other numbers.
type metaColumn struct {
	name string
	kind byte
}

func metaColumns(prefix string) []metaColumn {
	var out []metaColumn
	for _, k := range []byte("kisdft") {
		out = append(out, metaColumn{prefix + "_" + string(k), k})
	}
	return out
}

func (p *pipelineCase) any() metaColumn { return p.cols[p.r.IntN(len(p.cols))] }

func (p *pipelineCase) fresh() string {
	p.names++
	return fmt.Sprintf("x%d", p.names)
}

func (p *pipelineCase) prev() string { return fmt.Sprintf("s%d", len(p.steps)) }

// add appends a step and the equivalent SQL.
func (p *pipelineCase) add(s Step, sql string, args ...any) {
	p.ctes = append(p.ctes, fmt.Sprintf("s%d AS (%s)", len(p.steps)+1, fmt.Sprintf(sql, args...)))
	s.Name = fmt.Sprintf("s%d", len(p.steps)+1)
	p.steps = append(p.steps, s)
}

func (p *pipelineCase) condition() string {
	c := p.any()
	pick := func(options ...string) string { return fmt.Sprintf(options[p.r.IntN(len(options))], c.name) }
	switch c.kind {
	case 's':
		return pick("%s like 'a%%'", "%s = ''", "%s is null", "%s in ('a', 'b', null)", "length(%s) > 1",
			"upper(%s) <> 'A'")
	case 't':
		return pick("%s >= date '1994-09-01'", "%s is not null", "extract(day from %s) < 15",
			"not (%s between date '1994-09-01' and date '1994-09-20')")
	case 'f':
		return pick("%s > 1", "%s is not null", "%s = 'NaN'::double", "%s < 20.5 or true = false",
			"coalesce(%s, 0) <> 1.25")
	}
	return pick("%s > 3", "%s <= 7", "%s is distinct from 5", "%s is null or 1 = 2", "%[1]s + 1 > 2 and %[1]s < 100",
		"case when %s < 5 then true else false end")
}

func (p *pipelineCase) step() {
	prev := p.prev()
	switch n := p.r.IntN(8); {
	case n == 6:
		p.distinct(prev)
	case n == 0 || n == 1:
		c := p.condition()
		if p.r.IntN(3) == 0 {
			c = "(" + c + ") or not (" + p.condition() + ")"
		}
		p.add(Step{Filter: c}, "SELECT * FROM %s WHERE %s", prev, c)
	case n == 2:
		keep := slices.Clone(p.cols)
		p.r.Shuffle(len(keep), func(i, j int) { keep[i], keep[j] = keep[j], keep[i] })
		keep = keep[:1+p.r.IntN(len(keep))]
		var cols Columns
		var list []string
		for _, c := range keep {
			cols, list = append(cols, Column{Expr: c.name}), append(list, c.name)
		}
		if c := keep[0]; c.kind != 's' && c.kind != 't' {
			x := p.fresh()
			e := fmt.Sprintf("%s * 2", c.name)
			cols, list, keep = append(cols, Column{Name: x, Expr: e}), append(list, e+" AS "+x),
				append(keep, metaColumn{x, c.kind})
			if c.kind != 'f' {
				keep[len(keep)-1].kind = 'n'
			}
		}
		p.cols = keep
		p.add(Step{Select: cols}, "SELECT %s FROM %s", strings.Join(list, ", "), prev)
	case n == 3 && p.joined < 2:
		p.join(prev)
	case n == 4:
		p.group(prev)
	case n == 5:
		p.add(Step{Union: []string{prev}, From: prev}, "SELECT * FROM %s UNION ALL SELECT * FROM %s", prev, prev)
	default:
		p.sort(prev, true)
	}
}

func (p *pipelineCase) join(prev string) {
	table := []string{"b", "c"}[p.joined]
	ops := []string{" = ", " = ", " is not distinct from "}
	if p.r.IntN(6) == 0 {
		ops = []string{" < ", " >= ", " <> "} // ranges, or all pairs of rows
	}
	var on []string
	for range 1 + p.r.IntN(2) {
		left := p.any()
		right := metaColumn{table + "_k", 'k'}
		switch {
		case strings.IndexByte("sdft", left.kind) >= 0:
			right = metaColumn{table + "_" + string(left.kind), left.kind}
		case p.r.IntN(2) == 0:
			right = metaColumn{table + "_i", 'i'}
		}
		on = append(on, left.name+ops[p.r.IntN(3)]+right.name)
	}
	kind := []string{"inner", "left", "right", "full", "semi", "anti", "mark"}[p.r.IntN(7)]
	left := p.cols
	if p.r.IntN(3) == 0 {
		// A condition that decides only which pairs match.
		p.cols = append(slices.Clone(left), metaColumns(table)...)
		on = append(on, p.condition(), p.any().name+" is not distinct from "+p.any().name)
		if c := p.cols[len(p.cols)-1-p.r.IntN(6)]; p.r.IntN(2) == 0 || left[0].kind != c.kind {
			on = on[:len(on)-1]
		} else {
			on[len(on)-1] = left[0].name + " <= " + c.name
		}
		p.cols = left
	}
	p.joined++
	p.inJoinOrder = true
	build := "auto"
	if strings.Contains("inner left right full", kind) {
		build = []string{"auto", "left", "right"}[p.r.IntN(3)]
	}
	step := Step{Join: &Join{With: table, Kind: kind, On: on, Build: build}}
	if kind == "mark" {
		step.Join.Mark = p.fresh()
		p.add(step, "SELECT *, EXISTS (SELECT 1 FROM %[2]s WHERE (%[3]s)) AS %[4]s FROM %[1]s", prev, table,
			strings.Join(on, ") AND ("), step.Join.Mark)
		number := p.fresh()
		e := fmt.Sprintf("case when %s then 1 else 0 end as %s", step.Join.Mark, number)
		list, cols := []string{e}, Columns{{Expr: e}}
		for _, c := range left {
			list, cols = append(list, c.name), append(cols, Column{Expr: c.name})
		}
		p.cols = append([]metaColumn{{number, 'n'}}, left...)
		p.add(Step{Select: cols}, "SELECT %s FROM %s", strings.Join(list, ", "), p.prev())
		return
	}
	p.add(step, "SELECT * FROM %s %s JOIN %s ON (%s)", prev, kind, table, strings.Join(on, ") AND ("))
	if kind != "semi" && kind != "anti" {
		p.cols = append(slices.Clone(left), metaColumns(table)...)
	}
}

func (p *pipelineCase) group(prev string) {
	var g Group
	var cols []metaColumn
	var list, by []string
	for range p.r.IntN(3) {
		c := p.any()
		if slices.Contains(cols, c) {
			continue
		}
		cols, list, by = append(cols, c), append(list, c.name), append(by, c.name)
		g.By = append(g.By, Column{Expr: c.name})
	}
	for range 1 + p.r.IntN(3) {
		c, x := p.any(), p.fresh()
		f := []string{"count", "min", "max", "sum", "avg"}[p.r.IntN(5)]
		distinct, filter := "", ""
		if p.r.IntN(3) == 0 {
			distinct = "distinct "
		}
		if p.r.IntN(4) == 0 {
			filter = " filter (where " + p.condition() + ")"
		}
		kind := c.kind
		switch f {
		case "count":
			kind = 'n'
		case "sum", "avg":
			if kind == 's' || kind == 't' {
				f, kind = "count", 'n'
			} else if f == "avg" {
				kind = 'f'
			} else if kind != 'f' {
				kind = 'n'
			}
		}
		e := fmt.Sprintf("%s(%s%s)%s", f, distinct, c.name, filter)
		sql := e
		if f == "sum" && (c.kind == 'k' || c.kind == 'i') {
			sql += "::DECIMAL(38,0)"
		}
		if f == "avg" {
			// The last digits of an average depend on how it is computed.
			e, sql = "floor("+e+")", "floor("+e+")"
		}
		g.Aggregates = append(g.Aggregates, Column{Name: x, Expr: e})
		cols, list = append(cols, metaColumn{x, kind}), append(list, sql+" AS "+x)
	}
	groups := ""
	if len(by) > 0 {
		groups = " GROUP BY " + strings.Join(by, ", ")
	}
	if len(by) > 0 && p.r.IntN(3) == 0 {
		sets, lists := drawSets(p.r, by)
		g.Rollup, g.Cube, g.Sets = sets == "rollup", sets == "cube", lists
		groups = groupBy(sets, by, lists)
		x, e := p.fresh(), drawGrouping(p.r, by)
		g.Aggregates = append(g.Aggregates, Column{Name: x, Expr: e})
		cols, list = append(cols, metaColumn{x, 'n'}), append(list, e+" AS "+x)
	}
	sql := fmt.Sprintf("SELECT %s FROM %s%s", strings.Join(list, ", "), prev, groups)
	p.cols = cols
	p.grouped = len(by) > 0
	p.add(Step{Group: &g}, "%s", sql)
}

// distinct drops equal rows.
func (p *pipelineCase) distinct(prev string) {
	p.r.Shuffle(len(p.cols), func(i, j int) { p.cols[i], p.cols[j] = p.cols[j], p.cols[i] })
	p.cols = p.cols[:1+p.r.IntN(min(3, len(p.cols)))]
	var list []string
	var cols Columns
	for _, c := range p.cols {
		list, cols = append(list, c.name), append(cols, Column{Expr: c.name})
	}
	p.grouped = true
	p.add(Step{Distinct: cols}, "SELECT DISTINCT %s FROM %s", strings.Join(list, ", "), prev)
}

// sort orders by all columns, so that only equal rows have no order. It may drop the
// first rows.
func (p *pipelineCase) sort(prev string, limit bool) {
	var keys []string
	for _, c := range p.cols {
		keys = append(keys, c.name+[]string{"", " desc", " nulls first", " desc nulls first"}[p.r.IntN(4)])
	}
	sql := fmt.Sprintf("SELECT * FROM %s ORDER BY %s", prev, strings.Join(keys, ", "))
	p.grouped, p.inJoinOrder = false, false
	if !limit {
		p.add(Step{Sort: keys}, "%s", sql)
		return
	}
	l := Limit{Count: int64(p.r.IntN(30)), Offset: int64(p.r.IntN(4))}
	p.add(Step{Sort: keys}, "%s", sql)
	p.add(Step{Limit: &l}, "%s LIMIT %d OFFSET %d", sql, l.Count, l.Offset)
}

// run runs the pipeline and returns its rows as text, and whether some spilled. It sorts rows
// without an order.
func (p *pipelineCase) run(t *testing.T, tables map[string]string,
	opt RunOptions) (rows []string, spilled bool, err error) {
	var c Collector
	b := New("random").Read("a", tables["a"]).Read("b", tables["b"]).Read("c", tables["c"]).WriteTo(&c)
	b.job.Steps = slices.Clone(p.steps)
	if opt.Device != nil { // groups by a drawn algorithm
		names := append(groupby.AlgorithmsOn(opt.Device.Properties()), "")
		for i, s := range b.job.Steps {
			if s.Group != nil {
				g := *s.Group
				g.Algorithm = names[p.r.IntN(len(names))]
				b.job.Steps[i].Group = &g
			}
		}
	}
	report, err := b.Run(context.Background(), opt)
	if err != nil {
		return nil, false, err
	}
	for _, s := range report.Stages {
		for _, x := range []spill.TierStats{s.Spill.Host, s.Spill.Disk} {
			if x.In+x.Again != x.Out+x.Unread || x.Now != 0 {
				return nil, false, fmt.Errorf("bytes of %s that spilled do not add up: %+v", s.Step, s.Spill)
			}
		}
		if len(s.Shares) > 1 && s.Shares[1].Partitions > 0 {
			p.helped++
		}
	}
	// a join keeps no order then
	rows, spilled = textOf(&c), report.Spill.Host.In+report.Spill.Disk.In > 0 || report.Restarted != ""
	if p.grouped {
		slices.Sort(rows)
	}
	return rows, spilled, nil
}

// textOf returns the collected rows as text.
func textOf(c *Collector) (rows []string) {
	for _, rec := range c.Records() {
		for i := range int(rec.NumRows()) {
			var row []string
			for _, col := range rec.Columns() {
				row = append(row, col.ValueStr(i))
			}
			rows = append(rows, strings.Join(row, "|"))
		}
	}
	return rows
}

func newPipelineCase(r *rand.Rand) *pipelineCase {
	p := &pipelineCase{r: r, cols: metaColumns("a")}
	p.add(Step{From: "a", Select: Columns{{Expr: "*"}}}, "SELECT * FROM a")
	for range 1 + r.IntN(5) {
		p.step()
	}
	if r.IntN(3) == 0 {
		p.sort(p.prev(), false)
	}
	return p
}

// TestRandomPipelinesGiveOneAnswer runs random pipelines over random tables with strides
// of any length, 1 to 64 lanes and any budget, on the CPU, on a GPU, and on a GPU with the CPU as co-processor, and
// with all state spilled. Each run gives the same rows, in the same order where it is promised, or is refused
// by its budget, and leaves nothing behind. With GSTREAM_PYTHON set to a Python with duckdb, DuckDB must
// agree.
func TestRandomPipelinesGiveOneAnswer(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	type question struct{ Seed, SQL, File string }
	var questions []question
	answered, refused, spills, helped := 0, 0, 0, 0
	first, cases := gputest.Seed(t), gputest.Cases(t, 40)
	// In one of fifty rounds the CPU helps in no case: then there are more cases.
	for seed := first; seed < first+uint64(cases) || cases >= 40 && helped == 0 && seed < first+160; seed++ {
		r := rand.New(rand.NewPCG(seed, 3))
		p := newPipelineCase(r)
		tables := map[string]string{}
		with := []string{}
		for _, name := range []string{"a", "b", "c"} {
			tables[name] = filepath.Join(dir, fmt.Sprintf("%s%d.parquet", name, seed))
			randomTable(t, r, name, tables[name])
			with = append(with, fmt.Sprintf("%s AS (SELECT * FROM read_parquet('%s'))", name, tables[name]))
		}
		sql := "WITH " + strings.Join(append(with, p.ctes...), ",\n") + "\nSELECT * FROM " + p.prev()
		about := fmt.Sprintf("GSTREAM_SEED=%d\n%s", seed, sql)
		want, _, err := p.run(t, tables, RunOptions{Use: Host, Threads: 1, JoinFilters: Never, FilterFirst: Never})
		require.NoError(t, err, about)
		for i := range 7 {
			var d gpu.Device
			memory := int64(1) << (12 + r.IntN(18))
			if i == 4+int(seed%2) {
				continue // either run on the GPU
			}
			always := i > 4 // the last run on the GPU, and one more on the CPU
			rows, threads, several := 1+r.IntN(200), []int{1, 2, 3, 16, 64}[r.IntN(5)], 1
			if r.IntN(2) == 0 {
				several, threads = []int{2, 3, 4, 8}[r.IntN(4)], 1+r.IntN(2)
			}
			switch {
			case i < 4 || i == 6:
				d = hosts(t, several, threads, memory, rows)
			case several > 1:
				d = gpus(t, library, several, memory, rows)
			default:
				one, err := cuda.Open(cuda.Options{Memory: memory, HostMemory: 16 << 20, Library: library})
				require.NoError(t, err)
				d = smallStrides{one, rows}
			}
			use := CUDA + WithHost // nothing works with the CPU
			if i == 4 && r.IntN(2) == 0 {
				use = CUDA
			}
			got, spilled, err := p.run(t, tables,
				RunOptions{Device: d, Use: use, Exchanges: someExchanges(r),
					HostTakes: []string{HostTakesAny, HostTakesAll}[r.IntN(2)],
					Threads:   1 + r.IntN(3), JoinFilters: []string{Auto, Always, Always, Never}[i%4],
					FilterFirst: []string{Always, Never, Always, Auto}[i%4],
					SpillDir:    dir, SpillAlways: always, SpillCompression: []string{"lz4", "none"}[r.IntN(2)]})
			want := want
			if spilled {
				spills++
			}
			if p.inJoinOrder && (spilled || several > 1) {
				want = slices.Sorted(slices.Values(want))
				slices.Sort(got)
			}
			if errors.Is(err, gpu.ErrBudget) {
				refused++
			} else {
				require.NoError(t, err, about)
				require.Equal(t, want, got, "strides of %d rows on %s, %s", rows, d.Properties().Name, about)
				answered++
			}
			for _, one := range gpu.DevicesOf(d) {
				for _, b := range []*gpu.Budget{one.Budget(), one.HostBudget()} {
					assert.Empty(t, b.Leaks(), about)
					used, _ := b.Used()
					assert.Zero(t, used, about)
				}
			}
			require.NoError(t, d.Close())
		}
		helped += p.helped
		file := filepath.Join(dir, fmt.Sprintf("result%d.parquet", seed))
		b := New("random").Read("a", tables["a"]).Read("b", tables["b"]).Read("c", tables["c"]).Write(file,
			sinkparquet.Options{})
		b.job.Steps = p.steps
		_, err = b.Run(context.Background(), RunOptions{Threads: 2})
		require.NoError(t, err, about)
		questions = append(questions, question{fmt.Sprint(seed), sql, file})
	}
	assert.Greater(t, answered, cases/2)
	if cases >= 40 { // of fewer there may be none
		assert.Positive(t, refused, "some budgets are too small")
		assert.Positive(t, spills, "some rows do not fit")
		assert.Positive(t, helped, "the CPU takes pairs of some joins")
	}
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb, so the answers are not compared with DuckDB's")
	}
	text, err := json.Marshal(questions)
	require.NoError(t, err)
	cmd := exec.Command(python, "testdata/compare.py")
	cmd.Stdin = strings.NewReader(string(text))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, fmt.Sprintf("%d equal\n", len(questions)), string(out))
}
