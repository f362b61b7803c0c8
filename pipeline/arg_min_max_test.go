package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
)

// TestLeadersAreThoseOfSortedRows compares aggregates that a row of each group decides with the same ones next to the
// mode, for which the rows of the groups are sorted: for all kinds of values, however the rows are cut and spilled.
func TestArgMinMaxAreThoseOfSortedRows(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Parallel()
	const rows = 6000
	var calls []string
	for _, x := range strings.Fields("i few word zeros real wide huge day at no bytes none") {
		for _, format := range []string{"first(%s)", "last(%s)", "any_value(%s)", "arg_min(%s, word)",
			"arg_max(%s, real)", "arg_max(word, %s)", "arg_min(i, %s)", "first(i order by %s)",
			"last(i order by %s desc)",
			"first(word order by few desc nulls first, %s nulls first, zeros)", "last(%s order by no, word)",
			"arg_max(i, %s order by i desc)", "arg_min(%s, few order by real desc nulls first, word)",
			"first(%s) filter (where i %% 7 = 3)", "any_value(%[1]s order by %[1]s desc) filter (where no)"} {
			calls = append(calls, fmt.Sprintf(format, x))
		}
	}
	calls = append(calls, "count(*)", "sum(i)", "avg(few)", "max(word)", "product(i % 2 + 1)",
		"first(10 // (i - 5)) filter (where i <> 5)")
	for name, key := range map[string]string{"few groups": "nullif(i // 1500, 2)", "many groups": "i * 7 % 181",
		"texts": "left(word, 6)", "runs": "i // 40"} {
		t.Run(name, func(t *testing.T) {
			job := func(mode bool, algorithm string) *Builder {
				group := Group{By: Columns{{Name: "k", Expr: key}}, Algorithm: algorithm}
				columns := []string{"k"}
				for i, c := range calls {
					name := fmt.Sprint("x", i)
					group.Aggregates, columns = append(group.Aggregates, Column{Name: name, Expr: c}),
						append(columns, name)
				}
				if mode {
					group.Aggregates, columns = append(group.Aggregates, Column{Name: "m", Expr: "mode(i // 2)"}),
						append(columns, "m is null")
				} else {
					columns = append(columns, "false")
				}
				return numbered(t, rows).GroupWith(group).Sort("k").Select(columns...)
			}
			run := func(b *Builder, strideRows int, opt RunOptions) string {
				d, err := host.Open(host.Options{Threads: opt.Threads, Memory: 1 << 28})
				require.NoError(t, err)
				defer func() { require.NoError(t, d.Close()) }()
				var out Collector
				opt.Device = smallStrides{d, strideRows}
				_, err = b.WriteTo(&out).Run(context.Background(), opt)
				require.NoError(t, err)
				return strings.Join(textOf(&out), "\n")
			}
			const sorts = "sorts the rows of each group"
			explained := func(b *Builder, device string) string {
				p, err := b.WriteTo(&Collector{}).Plan()
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close()) }()
				return p.Explain(device).String()
			}
			require.Contains(t, explained(job(true, ""), Host), sorts)
			require.NotContains(t, explained(job(false, ""), Host), sorts)
			require.Contains(t, explained(job(false, ""), "cuda:0"), sorts)
			want := run(job(true, ""), rows, RunOptions{Threads: 1})
			require.Equal(t, want, run(job(false, ""), rows, RunOptions{Threads: 1}))
			require.Equal(t, want, run(job(false, ""), 777, RunOptions{Threads: 3}))
			require.Equal(t, want, run(job(false, "sgb-ur"), 777, RunOptions{Threads: 2}))
			require.Equal(t, want, run(job(false, "sgb-stride"), 3000, RunOptions{Threads: 1}))
			require.Equal(t, want, run(job(false, "sgb-de-tr"), 3000, RunOptions{Threads: 2}))
			require.Equal(t, want, run(job(false, ""), 3000,
				RunOptions{Threads: 2, SpillAlways: true, SpillDir: t.TempDir()}))
		})
	}
}
