package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/source"
)

// thousand is 1,000 rows: k counts them, g is one of ten groups.
func thousand(t *testing.T) source.Table {
	var rows []string
	for k := range 1000 {
		rows = append(rows, fmt.Sprintf(`{"k": %d, "g": %d, "name": "row %d"}`, k, k%10, k))
	}
	return record(t, []arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64},
		{Name: "g", Type: arrow.PrimitiveTypes.Int64}, {Name: "name", Type: arrow.BinaryTypes.String}},
		"["+strings.Join(rows, ",")+"]")
}

// ranked has a step "numbered" over the table, which only a window function can number.
func ranked(t *testing.T) *Builder {
	return New("held").ReadTable("t", thousand(t)).Select("k", "g", "name",
		"row_number() over (partition by g order by k desc) as n").As("numbered")
}

// heldCases are jobs of which several steps read one, with their results.
var heldCases = map[string]struct {
	job  func(t *testing.T) *Builder
	want string
	once bool // the step is computed once
}{
	"both sides of a join": {func(t *testing.T) *Builder {
		return ranked(t).Filter("n = 1").As("last").From("numbered").Join("last",
			"numbered.g = last.g and numbered.k = last.k - 10").Sort("numbered.k").Select("numbered.k",
			"numbered.name as before", "last.name as name").Limit(2)
	}, `[{"k":980,"before":"row 980","name":"row 990"},{"k":981,"before":"row 981","name":"row 991"}]`, true},
	"three parts of a union": {func(t *testing.T) *Builder {
		b := ranked(t).Select("n").As("a").From("numbered").Select("n").As("b").From("numbered").Select("n").Union("a",
			"b")
		return b.Group(nil, "count(*) as rows", "sum(n) as s", "count(distinct n) as d")
	}, `[{"rows":3000,"s":"151500","d":100}]`, true},
	"the order is kept": {func(t *testing.T) *Builder {
		return New("held").ReadTable("t", thousand(t)).Sort("g", "k desc").As("sorted").Group(nil, "max(k) as k",
			"count(*) as n").As("most").
			From("sorted").Select("k", "row_number() over () as n").Filter("n < 4").Union("most").Sort("n")
	}, `[{"k":990,"n":1},{"k":980,"n":2},{"k":970,"n":3},{"k":999,"n":1000}]`, true},
	"one reader stops early": {func(t *testing.T) *Builder {
		return ranked(t).Limit(5).Group(nil, "count(*) as rows").As("few").From("numbered").Group(nil,
			"count(*) as rows").Union("few").Sort("rows")
	}, `[{"rows":5},{"rows":1000}]`, true},
	"a held step reads a held step": {func(t *testing.T) *Builder {
		b := ranked(t).Group([]string{"g"}, "max(k) as m").As("groups").From("numbered").Join("groups",
			"numbered.k = groups.m").Select("numbered.k").As("joined")
		return b.From("joined").Group(nil, "sum(k) as s").As("sum").From("joined").JoinWith(Join{With: "sum",
			Kind: "cross"}).Group(nil, "count(*) as rows", "max(s) as s")
	}, `[{"rows":10,"s":"9945"}]`, true},
	"a filtered table is read again": {func(t *testing.T) *Builder {
		return New("held").ReadTable("t", thousand(t)).Filter("g < 5").As("some").Group(nil,
			"count(*) as rows").As("count").From("some").Filter("k < 20").Group(nil,
			"count(*) as rows").Union("count").Sort("rows")
	}, `[{"rows":10},{"rows":500}]`, false},
}

// TestAStepThatSeveralStepsReadIsComputedOnce runs the jobs on both devices, with and without
// room for the rows that are held.
func TestAStepThatSeveralStepsReadIsComputedOnce(t *testing.T) {
	for name, c := range heldCases {
		for device, open := range map[string]func(t *testing.T) gpu.Device{
			"host": func(t *testing.T) gpu.Device {
				d, err := host.Open(host.Options{Threads: 3, Memory: 64 << 20})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, d.Close()) })
				return d
			},
			"cuda": func(t *testing.T) gpu.Device { return cudatest.Open(t, cuda.Options{Memory: 64 << 20}) },
		} {
			for _, always := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/", device, "/", always), func(t *testing.T) {
					var out Collector
					r, err := c.job(t).WriteTo(&out).Run(t.Context(),
						RunOptions{Device: smallStrides{open(t), 70}, SpillAlways: always, SpillDir: t.TempDir()})
					require.NoError(t, err)
					require.Len(t, out.Records(), 1)
					text, err := out.Records()[0].MarshalJSON()
					require.NoError(t, err)
					require.JSONEq(t, c.want, string(text))
					scanned, written := int64(0), int64(0)
					for _, s := range r.Stages {
						if s.Kind == "scan" {
							scanned += s.RowsOut
						}
						if s.Kind == "hold" {
							written += s.Spill.Disk.In
						}
					}
					require.Equal(t, c.once, scanned <= 1000, "%d rows are scanned", scanned)
					require.Equal(t, always && c.once, written > 0, "%d bytes on disk", written)
				})
			}
		}
	}
}

// TestCheapStepsThatMakeMuchAreHeld has a chain whose steps would each be computed once for each reader.
func TestCheapStepsThatMakeMuchAreHeld(t *testing.T) {
	b := New("held").ReadTable("t", thousand(t)).Filter("k < 2").Select("k").As("s0")
	for i := range 10 {
		before := fmt.Sprintf("s%d", i)
		b.From(before).Union(before).As(fmt.Sprintf("s%d", i+1))
	}
	var out Collector
	r, err := b.Group([]string{"k"}, "count(*) as n").Sort("k").WriteTo(&out).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.Equal(t, []string{"0|1024", "1|1024"}, textOf(&out))
	require.Less(t, len(r.Stages), 200)
}

// TestAHeldStepThatFailsEndsTheRun also refuses each reservation in turn.
func TestAHeldStepThatFailsEndsTheRun(t *testing.T) {
	b := New("held").ReadTable("t", thousand(t)).Group([]string{"g"}, "sum(1 / (k - k)) as x",
		"cast(max(name) as bigint) as y").As("bad").Group(nil,
		"count(*) as n").As("n").From("bad").JoinWith(Join{With: "n", Kind: "cross"})
	var out Collector
	_, err := b.WriteTo(&out).Run(t.Context(), RunOptions{Use: Host})
	require.ErrorContains(t, err, "row 9")
	require.Empty(t, out.Records())

	for n := int64(0); ; n += 1 + n/gputest.StepOr(1<<20, 6) {
		d, err := host.Open(host.Options{Threads: 2, Memory: 64 << 20})
		require.NoError(t, err)
		d.Budget().SetPatience(1)
		var at atomic.Int64
		d.Budget().SetFault(func(bool) error {
			if at.Add(1) > n {
				return errors.New("no memory")
			}
			return nil
		})
		var out Collector
		_, err = heldCases["both sides of a join"].job(t).WriteTo(&out).Run(context.Background(),
			RunOptions{Device: onlyLane{smallStrides{d, 300}}, Threads: 1, SpillDir: t.TempDir()})
		d.Budget().SetFault(nil)
		require.Empty(t, d.Budget().Leaks())
		require.NoError(t, d.Close())
		if err == nil {
			require.Greater(t, n, int64(20))
			break
		}
		require.True(t, gpu.IsOutOfMemory(err), "%d: %v", n, err)
	}
}

// onlyLane is a device of one lane, so that faults come in order.
type onlyLane struct{ gpu.Device }

func (onlyLane) Lanes() int { return 1 }
