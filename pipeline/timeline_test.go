package pipeline

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// TestATimelineOfTheCPUHasTheOperatorsOfEachLane checks that the spans of a lane do not overlap, have all the rows, and
// say what it waited for.
func TestATimelineOfTheCPUHasTheOperatorsOfEachLane(t *testing.T) {
	const data = "../examples/quickstart/data/"
	r, err := New("lanes").Read("lineitem", data+"lineitem.parquet").Read("orders", data+"orders.parquet").
		Join("orders", "l_orderkey = o_orderkey").Filter("o_totalprice > 1000").Sort("l_comment").
		Write(filepath.Join(t.TempDir(), "out.parquet"), sinkparquet.Options{}).
		Run(context.Background(), RunOptions{Use: Host, Threads: 3, Timeline: true})
	require.NoError(t, err)
	require.Zero(t, r.SpansLeftOut)
	lanes, rows, waits := map[int][]gpu.Span{}, map[string]int64{}, map[string]bool{}
	for _, s := range r.Spans {
		require.Equal(t, s.Worker > 0, s.Lane == "lanes")
		if s.Worker == 0 {
			continue
		}
		lanes[s.Worker] = append(lanes[s.Worker], s)
		require.LessOrEqual(t, s.End, r.Wall)
		require.Equal(t, s.For != "", s.Name == "wait")
		if s.For == "" {
			rows[s.Stage] += s.Rows
		} else {
			waits[s.Stage+" for "+s.For] = true
		}
	}
	require.Greater(t, len(lanes), 3, "lanes and the output")
	for n, spans := range lanes {
		slices.SortFunc(spans, func(a, b gpu.Span) int { return int(a.Start - b.Start) })
		for i := 1; i < len(spans); i++ {
			require.LessOrEqual(t, spans[i-1].End, spans[i].Start, "lane %d: %v %v", n, spans[i-1], spans[i])
		}
	}
	for _, s := range r.Stages {
		if s.Kind != "scan" {
			require.Equal(t, s.RowsIn, rows[s.Step+": "+s.Kind], s.Step)
		}
	}
	require.Equal(t, r.Output.Rows, rows["output"])
	require.True(t, waits["lineitem: scan for decoding of lineitem: scan"], "%v", waits)
	require.True(t, waits["output for sort 3: sort"], "%v", waits)
}

func TestThePageOfAPlanHasItsStagesAndNothingOfOthers(t *testing.T) {
	const data = "../examples/quickstart/data/"
	p, err := New(`<script>alert("x")</script>`).Read("nation", data+"nation.parquet").Filter("n_name < '</script><b>'").
		WriteTo(&Collector{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	e := p.Explain(Host)
	for _, ran := range []bool{false, true} {
		if ran {
			r, err := p.Run(context.Background(), RunOptions{Use: Host})
			require.NoError(t, err)
			e.Analyze(r)
		}
		var page strings.Builder
		require.NoError(t, e.WritePage(&page))
		text := page.String()
		require.Equal(t, 1, strings.Count(text, "<script>"), "of the page itself")
		require.NotContains(t, text, "<b>")
		require.Equal(t, len(e.Root.Inputs)+2, strings.Count(text, `class="stage"`))
		require.Equal(t, ran, strings.Contains(text, "waited for input"))
		require.NotContains(t, text, "http://")
	}
}
