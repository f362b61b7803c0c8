package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
)

// sideFields returns the columns of a side: a key, a number and a text.
func sideFields(name string) []arrow.Field {
	return []arrow.Field{{Name: name + "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: name + "v", Type: arrow.PrimitiveTypes.Int64},
		{Name: name + "s", Type: arrow.BinaryTypes.String, Nullable: true}}
}

// sidesOfAJoin draws the rows of two sides, a and b. hot of ten rows of the build side have one key.
func sidesOfAJoin(rows, hot int) (probe, build string) {
	r := rand.New(rand.NewPCG(3, 4))
	side := func(name string, n, keys, hot int) string {
		var list []string
		for i := range n {
			key, text := fmt.Sprint(r.IntN(keys)), fmt.Sprintf(`"text %d"`, r.IntN(50))
			if r.IntN(10) < hot {
				key = "7"
			}
			if r.IntN(20) == 0 {
				key = "null"
			}
			if r.IntN(9) == 0 {
				text = "null"
			}
			list = append(list, fmt.Sprintf(`{"%[1]sk": %[2]s, "%[1]sv": %[3]d, "%[1]ss": %[4]s}`, name, key, i, text))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	return side("a", 2*rows, rows, 0), side("b", rows, rows, hot)
}

// besideCase is a join on a GPU with the CPU beside it.
type besideCase struct {
	join   Join
	then   func(*Builder) *Builder // steps behind the join
	device gpu.Device
	opt    RunOptions
}

func (c besideCase) run(t *testing.T, ctx context.Context, probe, build string) (rows []string, of StageReport, err error) {
	t.Helper()
	var out Collector
	j := c.join
	j.With, j.On = "b", []string{"ak = bk"}
	if !slices.Contains([]string{"semi", "anti", "mark"}, j.Kind) {
		j.Build = "right"
	}
	b := New("beside").ReadTable("a", record(t, sideFields("a"), probe)).ReadTable("b", record(t, sideFields("b"), build)).From("a").JoinWith(j).As("both")
	if c.then != nil {
		b = c.then(b)
	}
	opt := c.opt
	opt.Device, opt.SpillDir = c.device, t.TempDir()
	report, err := b.WriteTo(&out).Run(ctx, opt)
	for _, b := range []*gpu.Budget{c.device.Budget(), c.device.HostBudget()} {
		require.Empty(t, b.Leaks(), "%v", err)
		used, _ := b.Used()
		require.Zero(t, used, "%v", err)
	}
	if report != nil {
		for _, s := range report.Stages {
			if strings.HasSuffix(s.Kind, "join") {
				of = s
			}
		}
	}
	rows = textOf(&out)
	slices.Sort(rows)
	return rows, of, err
}

// TestPairsOfPartitionsAreJoinedOnEither joins all kinds on a GPU with the CPU beside it, and compares the rows with
// those of the CPU alone.
func TestPairsOfPartitionsAreJoinedOnEither(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	cpu, err := host.Open(host.Options{Threads: 1, Memory: 64 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, cpu.Close()) }()
	for _, memory := range []int64{64 << 20, 1 << 20} {
		d, err := cuda.Open(cuda.Options{Library: library, Memory: memory, HostMemory: 16 << 20})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		always := memory == 64<<20
		rows := 1500
		if !always {
			rows = 20000
		}
		probe, build := sidesOfAJoin(rows, 0)
		for _, kind := range []string{"inner", "left", "right", "full", "semi", "anti", "mark"} {
			if !always && kind != "inner" && kind != "full" {
				continue
			}
			j := Join{Kind: kind}
			if !always {
				j.Algorithm = "npj" // the others need more memory
			}
			for name, then := range map[string]func(*Builder) *Builder{
				"output": nil,
				"group":  func(b *Builder) *Builder { return b.Group([]string{"ak % 50 as m"}, "count(*) as n", "sum(av) as v") },
				"filter": func(b *Builder) *Builder { return b.Filter("av % 3 = 0") },
			} {
				if !always && name != "output" || name != "output" && (kind == "semi" || kind == "right") {
					continue
				}
				want, _, err := besideCase{join: j, then: then, device: cpu}.run(t, t.Context(), probe, build)
				require.NoError(t, err)
				for _, takes := range []string{BesideAll, BesideAny} {
					what := fmt.Sprintf("%s join, then %s, %s, %d of memory", kind, name, takes, memory)
					got, stage, err := besideCase{j, then, smallStrides{d, 500}, RunOptions{Use: CUDA + BesideHost, Threads: 3, BesideTakes: takes, SpillAlways: always}}.
						run(t, t.Context(), probe, build)
					require.NoError(t, err, what)
					require.Equal(t, want, got, what)
					require.Len(t, stage.Shares, 2, what)
					gpu, cpu := stage.Shares[0], stage.Shares[1]
					require.Equal(t, "cuda:0", gpu.Device)
					require.Equal(t, "host", cpu.Device)
					if always {
						require.Equal(t, int64(256), gpu.Pairs+cpu.Pairs, what)
					}
					if takes == BesideAll {
						require.Zero(t, gpu.Pairs, what)
						require.Positive(t, cpu.Pairs, what)
						require.Positive(t, cpu.Bytes, what)
						require.Positive(t, cpu.Busy, what)
					}
					if always {
						require.Equal(t, stage.RowsOut, gpu.RowsOut+cpu.RowsOut, what)
					}
				}
			}
		}
	}
}
