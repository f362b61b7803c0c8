package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// TestWindowsAndSortedGroupsGiveOneAnswer runs random window functions, and aggregates of
// sorted rows, with strides of any length, any number of threads and any budget, on both
// devices. Parts have the rows of some strides. A budget that is too small gives an error, and
// nothing is left behind.
func TestWindowsAndSortedGroupsGiveOneAnswer(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	first, cases := gputest.Seed(t), gputest.Cases(t, 20)
	answered, refused, failed := 0, 0, 0
	for seed := first; seed < first+uint64(cases); seed++ {
		r := rand.New(rand.NewPCG(seed, 17))
		draw := drawWindow
		if seed%2 == 0 {
			draw = drawSortedGroups
		}
		c := draw(r)
		about := fmt.Sprintf("GSTREAM_SEED=%d\n%s", seed, c)
		run := func(opt RunOptions) ([][]string, []gpu.Type, error) {
			b := New("random")
			for _, table := range c.tables {
				cols := make([]gpu.Column, len(table.schema.Fields))
				for i, f := range table.schema.Fields {
					values := make([]gpu.Scalar, len(table.rows))
					for k, row := range table.rows {
						values[k] = row[i]
					}
					cols[i] = gpu.ColumnOf(f.Type, values)
				}
				rec := ArrowRecord(&gpu.Stride{Schema: table.schema, Cols: cols, Rows: len(table.rows)})
				data, err := ArrowTable(rec.Schema(), rec)
				require.NoError(t, err)
				b.ReadTable(table.name, data)
			}
			var out collected
			b.WriteTo(&out)
			for i := range c.steps {
				b.job.Steps = append(b.job.Steps, c.steps[i].job()...)
			}
			_, err := b.Run(context.Background(), opt)
			rows := normalized(out.rows, out.types)
			slices.SortFunc(rows, slices.Compare)
			return rows, out.types, err
		}
		want, types, err := run(RunOptions{Use: Host, Threads: 1})
		if err != nil { // the bound of a range of an unsigned number, as in DuckDB
			require.ErrorContains(t, err, "is out of the range of U", about)
			failed++
			continue
		}
		for i := range 5 {
			var d gpu.Device
			memory := int64(1) << (13 + r.IntN(16))
			if i < 4 {
				d, err = host.Open(host.Options{Threads: []int{1, 2, 3, 16}[r.IntN(4)], Memory: memory})
			} else {
				d, err = cuda.Open(cuda.Options{Memory: memory, HostMemory: 16 << 20, Library: library})
			}
			require.NoError(t, err)
			rows := 1 + r.IntN(100)
			if i == 4 {
				rows += 30 // the emulator takes a second for each hundred of parts
			}
			got, _, err := run(RunOptions{Device: smallStrides{d, rows}, Threads: 1 + r.IntN(3), SpillDir: t.TempDir(),
				SpillAlways: r.IntN(2) == 0})
			if errors.Is(err, gpu.ErrBudget) {
				refused++
			} else {
				answered++
				require.NoError(t, err, about)
				require.Len(t, got, len(want), about)
				for k := range want {
					for x := range want[k] {
						require.True(t, near(want[k][x], got[k][x], types[x], c.columns, x),
							"row %d, column %d: %s and %s, strides of %d rows on %s\n%s", k, x+1, want[k][x], got[k][x],
							rows, d.Properties().Name, about)
					}
				}
			}
			for _, b := range []*gpu.Budget{d.Budget(), d.HostBudget()} {
				assert.Empty(t, b.Leaks(), about)
				used, _ := b.Used()
				assert.Zero(t, used, about)
			}
			require.NoError(t, d.Close())
		}
	}
	assert.Less(t, failed, cases/4+2)
	if cases >= 40 { // of fewer it may be otherwise by chance
		assert.Greater(t, answered, 3*(cases-failed))
		assert.Positive(t, refused, "some budgets are too small")
	}
}

// visits has ties, nulls and a group of nulls.
func visits(t *testing.T) *Builder {
	return New("visits").ReadTable("t", record(t, []arrow.Field{
		{Name: "k", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "at", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, `[
		{"k": "a", "at": 1, "x": 10}, {"k": "a", "at": 2, "x": null}, {"k": "a", "at": 2, "x": 30}, {"k": "a", "at": 5, "x": 40},
		{"k": "b", "at": 3, "x": 7}, {"k": null, "at": null, "x": 1}, {"k": null, "at": 4, "x": 2}]`))
}

func TestWindowFunctions(t *testing.T) {
	for name, c := range map[string]struct {
		of   *Builder
		want string
	}{
		"ranks": {visits(t).Select("at", "row_number() over (partition by k order by at, x) as n",
			"rank() over (partition by k order by at) as r",
			"dense_rank() over (partition by k order by at) as d").Filter("at < 9").Sort("at", "n"),
			`[{"at":1,"n":1,"r":1,"d":1}, {"at":2,"n":2,"r":2,"d":2}, {"at":2,"n":3,"r":2,"d":2}, {"at":3,"n":1,"r":1,"d":1}, {"at":4,"n":1,"r":1,"d":1}, {"at":5,"n":4,"r":4,"d":3}]`},
		"a running sum, and the rest of an expression": {visits(t).Select("k", "x",
			"100 * sum(x) over (partition by k order by at, x) / sum(x) over (partition "+
				"by k) as share").Filter("k = 'a'").Sort("x"),
			`[{"k":"a","x":10,"share":12.5}, {"k":"a","x":30,"share":50}, {"k":"a","x":40,"share":100}, {"k":"a","x":null,"share":50}]`},
		"values of other rows": {visits(t).Select("at", "lag(x, 1, -1) over (order by at, x) as l",
			"first_value(x ignore nulls) over (order by at desc nulls last, x rows between 1 following and unbounded "+
				"following) as f").Filter("at is not null").Sort("at", "l"),
			`[{"at":1,"l":-1,"f":1}, {"at":2,"l":10,"f":10}, {"at":2,"l":30,"f":10}, {"at":3,"l":null,"f":30}, {"at":4,"l":7,"f":7}, {"at":5,"l":2,"f":2}]`},
		"the best two of each": {visits(t).Qualify("row_number() over (partition by k order by x desc) <= 2").Sort("k",
			"x desc"),
			`[{"k":"a","at":5,"x":40}, {"k":"a","at":2,"x":30}, {"k":"b","at":3,"x":7}, {"k":null,"at":4,"x":2}, {"k":null,"at":null,"x":1}]`},
		"nobody needs it": {visits(t).Select("at", "count(*) over () as n").Select("at").Filter("at = 1"),
			`[{"at":1}]`},
		"a condition on the partition comes first": {visits(t).Select("k",
			"count(*) over (partition by k) as n").Filter("k = 'b'"),
			`[{"k":"b","n":1}]`},
		"over a name of the list": {func() *Builder {
			b := visits(t).Select("k", "rank() over (partition by k order by at desc nulls last) as place")
			b.job.Steps[0].Qualify = "place = 1"
			return b.Sort("k")
		}(), `[{"k":"a","place":1}, {"k":"b","place":1}, {"k":null,"place":1}]`},
		"the most frequent": {visits(t).Group([]string{"k"}, "mode(at) as m",
			"mode(x) filter (where x > 5) as big").Sort("k"),
			`[{"k":"a","m":2,"big":10}, {"k":"b","m":3,"big":7}, {"k":null,"m":4,"big":null}]`},
		"ties in an order": {New("ties").ReadTable("t",
			record(t, []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64},
				{Name: "v", Type: arrow.PrimitiveTypes.Int64}},
				`[{"id":1,"v":5},{"id":2,"v":5},{"id":3,"v":7},{"id":4,"v":7},{"id":5,"v":5}]`)).
			Group(nil, "arg_min(id, v order by id desc) as a", "arg_max(id, v order by id desc) as b",
				"min_by(id, v order by v, id) as c", "max_by(id, v order by -id) as d",
				"mode(id order by id desc) as e", "mode(v // 5 order by id desc) as f",
				"mode(v order by id) filter (where id > 1 and id < 5) as g", "mode(id order by v desc, id) as h",
				"mode(id order by v desc, id) filter (where id <> 3) as i", "arg_min(distinct id, v order by v) as j"),
			`[{"a":5,"b":4,"c":1,"d":4,"e":5,"f":1,"g":7,"h":3,"i":4,"j":1}]`},
		"in an order": {visits(t).Group([]string{"k"}, "string_agg(x, '>' order by at desc, x) as s",
			"first(x order by at desc nulls last) as f", "median(x) as m", "count(distinct at) as n").Sort("k"),
			`[{"k":"a","s":"40>30>10","f":40,"m":30,"n":3}, {"k":"b","s":"7","f":7,"m":7,"n":1}, {"k":null,"s":"2>1","f":2,"m":1.5,"n":1}]`},
		"of no rows": {visits(t).Filter("x > 100").Group(nil, "median(x) as m", "string_agg(k) as s", "count(*) as n",
			"sum(x) as t"),
			`[{"m":null,"s":null,"n":0,"t":null}]`},
		"grouping sets": {visits(t).GroupWith(Group{By: Columns{{Expr: "k"}}, Sets: [][]string{{"k"}, {}},
			Aggregates: Columns{{Name: "m", Expr: "median(x)"}, {Name: "g", Expr: "grouping(k)"}}}).Sort("g", "k"),
			`[{"k":"a","m":30,"g":0}, {"k":"b","m":7,"g":0}, {"k":null,"m":1.5,"g":0}, {"k":null,"m":8.5,"g":1}]`},
	} {
		t.Run(name, func(t *testing.T) {
			var out Collector
			_, err := c.of.WriteTo(&out).Run(context.Background(), RunOptions{Use: Host})
			require.NoError(t, err)
			require.Len(t, out.Records(), 1)
			text, err := out.Records()[0].MarshalJSON()
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(text))
		})
	}
}

// TestAWindowIsOrderedByStringsOfWhichSomeHaveADictionary has a function that does not need the key itself.
func TestAWindowIsOrderedByStringsOfWhichSomeHaveADictionary(t *testing.T) {
	rows := `{"s": "b"}, {"s": "a"}, {"s": null}`
	table := func() source.Table {
		return record(t, []arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}},
			"["+strings.Repeat(rows+", ", 40)+rows+"]")
	}
	coded := filepath.Join(t.TempDir(), "coded.parquet")
	d := RunOptions{Device: hosttest.Open(t)}
	_, err := New("file").ReadTable("t", table()).Write(coded, ParquetOptions{}).Run(t.Context(), d)
	require.NoError(t, err)
	var out collected
	_, err = New("window").Read("coded", coded).ReadTable("plain", table()).From("coded").Union("plain").
		Select("s", "row_number() over (order by s) as n").Group([]string{"s"},
		"max(n) as last").Sort("last").Select("s", "last").WriteTo(&out).Run(t.Context(), d)
	require.NoError(t, err)
	require.Len(t, out.rows, 3)
	for i, last := range []string{"82", "164", "246"} {
		require.Equal(t, last, *out.rows[i][1])
	}
	require.Equal(t, "a", *out.rows[0][0])
}

// TestTextsWithNullsOrderRows sorts by the text column z of testdata/texts_with_nulls.parquet: 9,000 rows in row groups
// of 1,000, a tenth of z is null, most of it one value and the rest distinct; half of k is null. Rows of several
// dictionaries then have codes at nulls that are none of a dictionary.
func TestTextsWithNullsOrderRows(t *testing.T) {
	const file = "testdata/texts_with_nulls.parquet"
	jobs := map[string]func(b *Builder) *Builder{
		"row_number": func(b *Builder) *Builder {
			return b.Select("id",
				"row_number() over (partition by k order by z) as n")
		},
		"rank": func(b *Builder) *Builder {
			return b.Select("id",
				"rank() over (order by z desc nulls first) as n")
		},
		"string_agg": func(b *Builder) *Builder {
			return b.Group([]string{"k"}, "string_agg(z, '|' order by z) as s", "min(id) as id")
		},
		"first": func(b *Builder) *Builder {
			return b.Group([]string{"k"}, "first(id order by z) as f",
				"min(id) as id")
		},
	}
	for name, steps := range jobs {
		t.Run(name, func(t *testing.T) {
			run := func(opt RunOptions) [][]*string {
				var out collected
				_, err := steps(New(name).Read("t", file)).Sort("id").WriteTo(&out).Run(t.Context(), opt)
				require.NoError(t, err)
				return out.rows
			}
			want := run(RunOptions{Use: Host, Threads: 1})
			require.NotEmpty(t, want)
			require.Equal(t, want, run(RunOptions{Use: Host, Threads: 2}))
			require.Equal(t, want,
				run(RunOptions{Device: cudatest.Open(t, cuda.Options{Memory: 64 << 20, HostMemory: 32 << 20})}))
		})
	}
}
