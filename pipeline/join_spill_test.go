package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
)

// chain joins rows with seven build sides, of which the last is small. All have a text in each row.
func chain(t *testing.T) *Builder {
	b := New("chain").ReadTable("facts", numbers(t, 60_000))
	sizes := []int{25_000, 25_000, 25_000, 25_000, 25_000, 25_000, 1_000}
	for i, rows := range sizes {
		b = b.ReadTable(fmt.Sprint("n", i), numbers(t, rows)).From(fmt.Sprint("n", i)).Select(fmt.Sprint("i as k", i),
			fmt.Sprintf("repeat('x', 100) || i * 7919 %% 100003 as t%d", i)).As(fmt.Sprint("side", i))
	}
	keys, texts := []string{"i"}, []string{"count(*) as n", "sum(i) as s"}
	for i, rows := range sizes {
		keys, texts = append(keys, fmt.Sprintf("i * %d %% %d as f%d", 2*i+7, rows, i)),
			append(texts, fmt.Sprintf("max(t%d) as m%d", i, i))
	}
	b = b.From("facts").Select(keys...)
	for i := range sizes {
		b = b.JoinWith(Join{With: fmt.Sprint("side", i), On: []string{fmt.Sprintf("f%d = k%d", i, i)}, Build: "right",
			Order: "as written"})
	}
	return b.Group([]string{"i % 7 as g"}, texts...).Sort("g")
}

// TestAChainOfJoinsOutOfCore runs joins whose build sides share memory that has no room for them. The small one stays.
func TestAChainOfJoinsOutOfCore(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	run := func(budget int64) ([]string, *Report) {
		d, err := host.Open(host.Options{Threads: 2, Memory: budget})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		var out Collector
		report, err := chain(t).WriteTo(&out).Run(t.Context(),
			RunOptions{Device: smallStrides{d, 3000}, SpillDir: t.TempDir()})
		require.NoError(t, err)
		return textOf(&out), report
	}
	want, _ := run(1 << 30)
	for _, budget := range []int64{11 << 20, 9 << 20} {
		got, report := run(budget)
		require.Equal(t, want, got)
		var choices []string
		for _, s := range report.Stages {
			if strings.HasSuffix(s.Kind, "join") {
				choices = append(choices, s.Choice)
			}
		}
		require.Regexp(t, `out of core: \d{1,2} of 256 partitions stay`, choices[0])
		if small := choices[len(choices)-1]; strings.Contains(small, "out of core") {
			require.Contains(t, small, "256 of 256")
		}
	}
}
