package pipeline

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// twiceJob reads a table twice, by two scans with one name.
func twiceJob(data, file string) *Builder {
	return New("twice").Read("orders", data+"orders.parquet").
		Select("o_orderkey as k", "o_custkey % 7 as c").
		Join("orders", "k = o_orderkey").
		Write(file, sinkparquet.Options{Overwrite: true})
}

// sumOf adds up the device's work in all parts of a report.
func sumOf(r *Report) ActivityReport {
	parts := []*ActivityReport{r.Output.Activity}
	for i := range r.Stages {
		parts = append(parts, r.Stages[i].Activity)
	}
	var sum ActivityReport
	for _, p := range parts {
		if p != nil {
			sum.Launches += p.Launches
			sum.Kernels += p.Kernels
			sum.BytesUp += p.BytesUp
			sum.BytesDown += p.BytesDown
			sum.CopyingUp += p.CopyingUp
			sum.CopyingDown += p.CopyingDown
			sum.Decoding += p.Decoding
		}
	}
	return sum
}

// reported converts an activity to the form of a report, without the shares of the link.
func reported(a gpu.Activity) ActivityReport {
	return ActivityReport{Launches: a.Launches, Kernels: a.Busy, BytesUp: a.BytesUp, BytesDown: a.BytesDown,
		CopyingUp: a.Up, CopyingDown: a.Down, Decoding: a.Decode}
}

func withoutLink(a *ActivityReport) ActivityReport {
	out := *a
	out.FractionUp, out.FractionDown = 0, 0
	return out
}

func TestActivityIsCountedOnceForATableThatIsReadTwice(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	r, err := twiceJob(fewRows(t), filepath.Join(t.TempDir(), "out.parquet")).Run(context.Background(),
		RunOptions{Device: d, Timeline: true})
	require.NoError(t, err)
	scans := 0
	for _, s := range r.Stages {
		if s.Kind == "scan" {
			scans++
			require.NotNil(t, s.Activity)
			require.Positive(t, s.Activity.BytesUp)
		}
	}
	require.Equal(t, 2, scans)
	require.Equal(t, reported(d.Activity()), withoutLink(r.Activity), "the run's is the device's own")
	require.Equal(t, withoutLink(r.Activity), sumOf(r))
}

func TestRunsThatShareADeviceReportTheirOwnActivity(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	data := fewRows(t)
	run := func() *Report {
		r, err := twiceJob(data, filepath.Join(t.TempDir(), "out.parquet")).Run(context.Background(),
			RunOptions{Device: d, Timeline: true})
		require.NoError(t, err)
		return r
	}
	alone := run()
	again := run()
	reports := make([]*Report, 2)
	var wg sync.WaitGroup
	for i := range reports {
		wg.Go(func() { reports[i] = run() })
	}
	wg.Wait()
	bytes := func(spans []gpu.Span) (sum int64) {
		for _, s := range spans {
			sum += s.Bytes
		}
		return sum
	}
	var total ActivityReport
	for _, r := range append(reports, alone, again) {
		a := r.Activity
		require.Equal(t, alone.Activity.Launches, a.Launches)
		require.Equal(t, alone.Activity.BytesUp, a.BytesUp)
		require.Equal(t, alone.Activity.BytesDown, a.BytesDown)
		require.Equal(t, a.BytesUp+a.BytesDown, bytes(r.Spans), "the timeline is the run's own")
		total.Launches += a.Launches
		total.Kernels += a.Kernels
		total.BytesUp += a.BytesUp
		total.BytesDown += a.BytesDown
		total.CopyingUp += a.CopyingUp
		total.CopyingDown += a.CopyingDown
		total.Decoding += a.Decoding
	}
	require.Equal(t, reported(d.Activity()), total, "the runs' together are the device's own")
}

func TestAScanCountsTheTimeOfItsDecoders(t *testing.T) {
	r, err := twiceJob(quickstart, filepath.Join(t.TempDir(), "out.parquet")).Run(context.Background(),
		RunOptions{Use: Host, Threads: 1})
	require.NoError(t, err)
	for _, s := range r.Stages {
		if s.Kind == "scan" {
			require.Positive(t, s.Scan.Decode)
			require.GreaterOrEqual(t, s.Busy, s.Scan.Decode)
			require.LessOrEqual(t, s.Scan.Decode, r.Wall, "by one thread")
		}
	}
}

func TestWhatSpillsIsInTheActivityOfItsStageAndOnTheTimeline(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	r, err := New("sorted").Read("orders", "../examples/quickstart/data/orders.parquet").
		Select("o_orderkey", "o_totalprice").Sort("o_totalprice").
		Write(filepath.Join(t.TempDir(), "out.parquet"), sinkparquet.Options{}).
		Run(context.Background(), RunOptions{Device: d, Timeline: true, SpillAlways: true, SpillDir: t.TempDir()})
	require.NoError(t, err)
	sort := r.Stages[len(r.Stages)-1]
	require.Equal(t, "sort", sort.Kind)
	require.Positive(t, sort.Spill.Host.In)
	require.Positive(t, sort.Spill.Disk.In)
	require.GreaterOrEqual(t, sort.Activity.BytesDown, sort.Spill.Host.In)
	require.Equal(t, withoutLink(r.Activity), sumOf(r))
	bytes := map[string]int64{}
	for _, s := range r.Spans {
		if s.Stage == "sort 2: sort" || s.Stage == "sort 2: sort, spilled" {
			bytes[s.Lane] += s.Bytes
			require.LessOrEqual(t, s.Start, s.End)
		}
	}
	require.Equal(t, sort.Spill.Disk.In, bytes["spill write"])
	require.Equal(t, sort.Spill.Disk.Out, bytes["spill read"])
	require.GreaterOrEqual(t, bytes["copy down"], sort.Spill.Host.In)
	var page strings.Builder
	require.NoError(t, WriteTimeline(&page, r))
	require.Contains(t, page.String(), `"spill write","spill read"`)
}
