package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gpubench"
	"github.com/gstream/gstream/pipeline"
)

// benchReport is the output of gstream bench --json.
type benchReport struct {
	Device  gpu.Properties    `json:"device"`
	Date    time.Time         `json:"date"`
	Version string            `json:"version"`
	Results []gpubench.Result `json:"results"`
}

// benchFlags are the flags of gstream bench.
type benchFlags struct {
	device, json, plot       string
	timeline                 string
	hostMemory, deviceMemory string
	all                      bool // all benchmarks that the device supports
	opt                      gpubench.Options
}

func newBench() *cobra.Command {
	var f benchFlags
	names, what := gpubench.Names()
	var list strings.Builder
	for i, n := range names {
		fmt.Fprintf(&list, "  %-10s %s\n", n, what[i])
	}
	cmd := &cobra.Command{
		Use:   "bench BENCHMARK...",
		Short: "Measure the primitives of a device",
		Long: `bench measures primitives on data that it draws itself: rows a second, bytes a
second of what must be moved at least, and the fraction of the bound, the rate of
a plain copy or of the link, which it measures in the same run. Each figure is the
median of several runs, on a GPU by the GPU's own clock; beside it stands the time by
the wall's, in which launches, waits and allocations are.

transfer and stream measure the link to a GPU, so on the CPU name the others.

Benchmarks, or all of them:
` + list.String(),
		Example: "  gstream bench all                                  # on a GPU\n  gstream bench partition sort --json results.json --plot results.svg\n  gstream bench join --rows 1000000 --device host",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(fmt.Errorf("bench takes the names of benchmarks: all, %s", strings.Join(names, ", ")))
			}
			return nil
		},
		ValidArgs: append(names, "all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.all = len(args) == 1 && args[0] == "all"; f.all {
				args = names
			}
			return f.run(cmd, args)
		},
	}
	registerDevice(cmd, &f.device)
	cmd.Flags().IntVar(&f.opt.Rows, "rows", 0, "rows of the input (default: what suits the benchmark)")
	cmd.Flags().IntVar(&f.opt.Runs, "runs", 7, "how often to time each case")
	cmd.Flags().StringVar(&f.json, "json", "", "write the results as JSON to this file")
	cmd.Flags().StringVar(&f.plot, "plot", "", "draw the results as an SVG picture to this file")
	cmd.Flags().StringVar(&f.timeline, "timeline", "", "write a picture of what the GPU did when as an HTML page to this file")
	cmd.Flags().StringVar(&f.hostMemory, "host-memory", "", "budget of host memory, as in 16GiB")
	cmd.Flags().StringVar(&f.deviceMemory, "device-memory", "", "budget of device memory, as in 8GiB")
	return cmd
}

func (f *benchFlags) run(cmd *cobra.Command, names []string) (err error) {
	if f.opt.Rows < 0 || f.opt.Rows > gpu.MaxRows || f.opt.Runs < 1 {
		return usageError(fmt.Errorf("--rows must be between 0 and %d and --runs at least 1", gpu.MaxRows))
	}
	known, _ := gpubench.Names()
	for _, n := range names {
		if !strings.Contains(" "+strings.Join(known, " ")+" ", " "+n+" ") {
			return usageError(fmt.Errorf("no benchmark is named %q; there are %s", n, strings.Join(known, ", ")))
		}
	}
	if err := checkDevice(f.device); err != nil {
		return err
	}
	opt := pipeline.RunOptions{Use: f.device}
	if err := parseSizes(map[string]sizeFlag{"host-memory": {f.hostMemory, &opt.HostMemory}, "device-memory": {f.deviceMemory, &opt.DeviceMemory}}); err != nil {
		return err
	}
	d, err := pipeline.OpenDevice(opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	report := benchReport{Device: d.Properties(), Date: time.Now().UTC().Truncate(time.Second), Version: version()}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s, %s\n", report.Device.Name, report.Device.Details)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "benchmark\tcase\trows\tms\twall ms\tG rows/s\tGB/s\tof bound\tbound GB/s\t")
	for _, n := range names {
		err := gpubench.Run(cmd.Context(), d, n, f.opt, func(r gpubench.Result) {
			report.Results = append(report.Results, r)
			fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%.3f\t%.2f\t%.1f\t%.0f %%\t%s %.1f\t\n", r.Benchmark, r.Case, humanize.Comma(r.Rows),
				r.Time.Seconds()*1e3, r.Wall.Seconds()*1e3, r.RowsPerSecond()/1e9, r.Rate()/1e9, 100*r.Fraction(), r.Bound, r.BoundRate/1e9)
		})
		if errors.Is(err, gpubench.ErrNoLink) {
			if f.all {
				continue
			}
			err = usageError(err)
		}
		if err != nil {
			return errors.Join(t.Flush(), err)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return errors.Join(
		writeTo(f.json, func(w io.Writer) error { return printJSON(w, report) }),
		writeTo(f.plot, func(w io.Writer) error { return plot(w, report) }),
		writeTo(f.timeline, func(w io.Writer) error { return benchTimeline(w, d, names) }))
}

// benchTimeline draws the work of a device that measures it.
func benchTimeline(w io.Writer, d gpu.Device, names []string) error {
	r := &pipeline.Report{Job: "bench " + strings.Join(names, ", "), Device: d.Properties().Name}
	if p, ok := d.(gpu.Profiled); ok {
		r.Spans = p.Spans()
		r.Wall = p.Clock()
	}
	return pipeline.WriteTimeline(w, r)
}

// writeTo writes a file, unless its path is empty.
func writeTo(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// plot draws each case as a bar: its rate as a fraction of its bound.
func plot(w io.Writer, r benchReport) error {
	const bar, gap, left, width = 16, 6, 380, 420
	height := len(r.Results)*(bar+gap) + 60
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12">`+"\n", left+width+200, height)
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14">%s, %s, %s: rate as a fraction of the bound</text>`+"\n", xml(r.Device.Name), xml(r.Device.Details), r.Date.Format(time.DateOnly))
	for pct := 0; pct <= 100; pct += 25 {
		x := left + width*pct/100
		fmt.Fprintf(&b, `<line x1="%d" y1="36" x2="%d" y2="%d" stroke="#ddd"/><text x="%d" y="%d" fill="#666" text-anchor="middle">%d %%</text>`+"\n", x, x, height-20, x, height-6, pct)
	}
	for i, res := range r.Results {
		y := 40 + i*(bar+gap)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+bar-4, xml(res.Benchmark+": "+res.Case))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#3b7dd8"/>`, left, y, min(res.Fraction(), 1.2)*width, bar)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.0f %%, %.2f G rows/s, %.1f GB/s</text>`+"\n", left+min(res.Fraction(), 1.2)*width+6, y+bar-4, 100*res.Fraction(), res.RowsPerSecond()/1e9, res.Rate()/1e9)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func xml(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
