package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/bench"
	"github.com/gstream/gstream/pipeline"
)

// benchReport is the output of gstream bench --json.
type benchReport struct {
	Device  gpu.Properties `json:"device"`
	Date    time.Time      `json:"date"`
	Version string         `json:"version"`
	Results []bench.Result `json:"results"`
}

// benchFlags are the flags of gstream bench.
type benchFlags struct {
	left                     *leftovers
	device, json, plot       string
	from, reference          string
	timeline                 string
	hostMemory, deviceMemory string
	tableMemory              string
	gpus                     int
	all                      bool // all benchmarks that the device supports
	opt                      bench.Options
}

func newBench(left *leftovers) *cobra.Command {
	f := benchFlags{left: left}
	names, what := bench.Names()
	var list strings.Builder
	for i, n := range names {
		fmt.Fprintf(&list, "  %-10s %s\n", n, what[i])
	}
	cmd := &cobra.Command{
		Use:   "bench BENCHMARK...",
		Short: "Measure the primitives of a device, joins and group-bys",
		Long: `bench measures primitives, and operators made of them, on data that it generates. It
prints rows per second, bytes per second (counting only bytes that must be moved), and the
fraction of a bound: the rate of a plain copy or of the link, measured in the same run. Each
figure is the median of several runs, on a GPU by the GPU's clock. Wall ms is wall-clock
time, which includes launches, waits and allocations.

transfer, stream and spill measure the link to a GPU; on the CPU, name other benchmarks.
spill drives joins, group-bys and sorts whose state is half to eight times --device-memory,
for joins up to 32 times; set a small one. Its cases are
` + strings.Join(bench.SpillFamilies(), ", ") + `, or all.

gpus measures several GPUs, as --device cuda:0,1, cuda:all or --gpus 4 give: copies between
them, the exchange of 2^28 tuples of 16 bytes in the memory of each (--rows), and their join
with a quarter as many build rows (--build-rows), by 1, 2, 4 GPUs and so on. It takes less
rows if the memory is too small. The bound is the time of the copies alone, or that of one
GPU with the rows of one. Every result is checked. Its cases, for --cases, are
` + strings.Join(bench.SpreadFamilies(), ", ") + `.
With --cases one GPU is enough.

figures joins tables of the sizes of figures 9 to 20 of Thostrup et al. (SIGMOD 2023), which are
in host memory, by GPUs and on all cores of the CPU, and prints what the paper says next to it.
--cases selects figures: ` + strings.Join(bench.Figures(), ", ") + `. --rows N stands for
1.2 billion tuples of a GPU, and scales all sizes; the default is what fits memory. all leaves it out.
13 to 15 are queries of chain. In 15 as many machines without GPUs as cost the same (--gpu-cost)
each have a share of the fact table: the time is that of one, and leaves out their network.

chain runs queries 2.1 and 3.1 of the Star Schema Benchmark, and others with fewer filters and
with one to four joins, on 1, 2, 4 GPUs and so on, and on all cores of the CPU. Each is one pass
over a fact table in host memory of --rows rows, 6,000,000 for each unit of the scale factor
(default 20). The bound is the time of the copies of its columns alone. Every result is checked.

disk stores 4 GiB (--rows times 16 bytes) under --host-memory, and reads them again. What does
not fit goes to $TMPDIR or /var/tmp, both compressed and uncompressed. The bound is the rate of
that disk without the page cache.

join drives the join operator with the workloads of the papers. --cases selects them:
` + strings.Join(bench.Families(), ", ") + `
or all, or a part of a case's name, or both as in widths:8. --algorithm selects algorithms.
Each result is compared with the correct one before it is timed. The time is also given by
side (build: until the build side is finalized; probe: from there) and, on a GPU, by step:
transform (hash, partition, sort), match, materialise. --rows N replaces 2^27 rows, and
scales all other sizes in proportion.

groupby drives the group-by operator in the same way, with 2^28 rows. Its cases are
` + strings.Join(bench.GroupFamilies(), ", ") + `. The steps are
transform (hash, partition, sort, gather) and aggregate.

Benchmarks, or all of them:
` + list.String(),
		Example: "  gstream bench all                                  # on a GPU\n  gstream bench partition sort " +
			"--json results.json --plot results.svg\n  gstream bench join --algorithm all --cases acceptance,zipf " +
			"--json joins.json --plot joins.svg\n  gstream bench --from joins.json --plot joins.svg --reference " +
			"published.json\n  gstream bench groupby --algorithm chosen,hgb-g,pgb-tr --cases " +
			"groups\n  gstream bench join --rows 1000000 --device host\n  gstream bench spill --device-memory 1GiB " +
			"--host-memory 60GiB --cases all",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && f.from == "" {
				return usageError(fmt.Errorf("bench takes the names of benchmarks: all, %s", strings.Join(names, ", ")))
			}
			return nil
		},
		ValidArgs: append(names, "all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.from != "" {
				return f.redraw()
			}
			if f.all = len(args) == 1 && args[0] == "all"; f.all {
				args = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "figures" })
			}
			return f.run(cmd, args)
		},
	}
	registerDevice(cmd, &f.device)
	cmd.Flags().IntVar(&f.gpus, "gpus", 0, "number of GPUs for the benchmark gpus: the first ones in the driver's "+
		"numbering (0: those that --device names); with --device host, the parts into which the cores are divided")
	cmd.Flags().IntVar(&f.opt.BuildRows, "build-rows", 0,
		"build rows of each device in the benchmark gpus (default: a quarter of the rows)")
	cmd.Flags().IntVar(&f.opt.Rows, "rows", 0, "rows of the input (default: depends on the benchmark)")
	cmd.Flags().IntVar(&f.opt.Runs, "runs", 7, "number of timed runs of each case")
	cmd.Flags().StringSliceVar(&f.opt.Cases, "cases", nil,
		"cases of join, groupby and spill: all, families, parts of names, or both as in join:0.5 (default "+
			"acceptance; for spill join); of gpus families, of figures numbers (default all)")
	cmd.Flags().StringSliceVar(&f.opt.Algorithms, "algorithm", nil,
		"algorithms of join and groupby: all, names, or chosen, the operator's own choice (default chosen)")
	cmd.Flags().IntVar(&f.opt.StrideRows, "stride-rows", 0,
		"maximum rows of the input and output strides of join and groupby (default: a table is one stride), and of "+
			"those of the fact table of chain")
	cmd.Flags().StringVar(&f.json, "json", "", "write the results as JSON to this file")
	cmd.Flags().StringVar(&f.plot, "plot", "", "draw the results as an SVG picture to this file")
	cmd.Flags().StringVar(&f.from, "from", "", "draw the results of an earlier --json, and measure nothing")
	cmd.Flags().StringVar(&f.reference, "reference", "", "results of other code for the picture, as JSON: a list of "+
		"{chart, at, rows, name, ms}")
	cmd.Flags().StringVar(&f.timeline, "timeline", "",
		"write an HTML page that shows what the GPU did when to this file")
	cmd.Flags().StringVar(&f.hostMemory, "host-memory", "", "budget of host memory, as in 16GiB")
	cmd.Flags().Float64Var(&f.opt.GPUCost, "gpu-cost", 1, "price of a GPU in machines without GPUs, for figure 15")
	cmd.Flags().StringVar(&f.tableMemory, "table-memory", "", "memory of each GPU for the build side of the hybrid "+
		"joins of gpus, 32 bytes a row (default: that of 0, 25, 50, 75 and 100 % of the rows); the CPU joins the rest")
	cmd.Flags().StringVar(&f.deviceMemory, "device-memory", "", "budget of device memory, as in 8GiB")
	return cmd
}

func (f *benchFlags) run(cmd *cobra.Command, names []string) (err error) {
	if f.opt.Rows < 0 || f.opt.Rows > gpu.MaxRows || f.opt.StrideRows < 0 || f.opt.StrideRows > gpu.MaxRows ||
		f.opt.Runs < 1 {
		return usageError(fmt.Errorf("--rows and --stride-rows must be between 0 and %d and --runs at least 1",
			gpu.MaxRows))
	}
	known, _ := bench.Names()
	for _, n := range names {
		if !strings.Contains(" "+strings.Join(known, " ")+" ", " "+n+" ") {
			return usageError(fmt.Errorf("no benchmark is named %q; there are %s", n, strings.Join(known, ", ")))
		}
	}
	for _, flag := range []string{"cases", "algorithm", "stride-rows"} {
		with := []string{"join", "groupby"}
		switch flag {
		case "cases":
			with = append(with, "spill", "gpus", "figures")
		case "stride-rows":
			with = append(with, "chain")
		}
		if cmd.Flags().Changed(flag) && !slices.ContainsFunc(with,
			func(n string) bool { return slices.Contains(names, n) }) {
			return usageError(fmt.Errorf("--%s applies only to the benchmarks %s: name one of them too", flag,
				strings.Join(with, ", ")))
		}
	}
	for _, n := range names {
		if err := f.opt.Check(n); err != nil {
			return usageError(err)
		}
	}
	if err := checkDevice(f.device); err != nil {
		return err
	}
	opt := pipeline.RunOptions{Use: f.device, GPUs: f.gpus, Alone: f.left.ends}
	if err := parseSizes(map[string]sizeFlag{"host-memory": {f.hostMemory, &opt.HostMemory},
		"device-memory": {f.deviceMemory, &opt.DeviceMemory},
		"table-memory":  {f.tableMemory, &f.opt.TableMemory}}); err != nil {
		return err
	}
	d, err := f.open(opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	report := benchReport{Device: d.Properties(), Date: time.Now().UTC().Truncate(time.Second), Version: version()}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s, %s\n", report.Device.Name, report.Device.Details)
	var failed error
	for _, n := range names {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		line := benchLine
		switch n {
		case "join":
			line = joinLine
		case "groupby":
			line = groupLine
		case "spill":
			line = spillLine
		case "gpus":
			line = gpusLine
		case "figures":
			line = figuresLine
		case "chain":
			line = chainLine
		}
		fmt.Fprintln(t, line(nil))
		err := bench.Run(cmd.Context(), d, n, f.opt, func(r bench.Result) {
			report.Results = append(report.Results, r)
			fmt.Fprintln(t, line(&r))
		})
		if errors.Is(err, bench.ErrNoLink) || errors.Is(err, bench.ErrNoSpill) ||
			errors.Is(err, bench.ErrOneDevice) {
			if f.all {
				continue
			}
			err = usageError(err)
		}
		if failed = errors.Join(err, t.Flush()); failed != nil {
			break
		}
	}
	if len(report.Results) == 0 {
		return failed
	}
	// The results so far are written even after an error.
	return errors.Join(failed,
		writeTo(f.json, func(w io.Writer) error { return printJSON(w, report) }),
		f.draw(report),
		writeTo(f.timeline, func(w io.Writer) error { return benchTimeline(w, d, names) }))
}

// open opens the device, or devices that share the cores.
func (f *benchFlags) open(opt pipeline.RunOptions) (gpu.Device, error) {
	if f.device != pipeline.Host || f.gpus < 2 {
		return pipeline.OpenDevice(opt)
	}
	opt.Threads = max(1, runtime.GOMAXPROCS(0)/f.gpus)
	opt.HostMemory = cmp.Or(opt.HostMemory, opt.DeviceMemory, host.FreeMemory()/2) / int64(f.gpus)
	var members []gpu.Device
	for range f.gpus {
		d, err := pipeline.OpenDevice(opt)
		if err != nil {
			return nil, err // of the first one: the options are the same for all
		}
		members = append(members, d)
	}
	return gpu.NewGroup(members), nil
}

// benchLine returns the columns of a result. joinLine, groupLine and spillLine do this for the
// benchmarks join, groupby and spill. For nil they return the headings.
func benchLine(r *bench.Result) string {
	if r == nil {
		return "benchmark\tcase\trows\tms\twall ms\tG rows/s\tGB/s\tof bound\tbound GB/s\t"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t", r.Benchmark, r.Case, humanize.Comma(r.Rows), ms(r.Time), ms(r.Wall),
		rates(*r))
}

func joinLine(r *bench.Result) string {
	if r == nil {
		return "family\tcase\talgorithm\tpairs\tms\twall ms\tbuild ms\tprobe ms\ttransform ms\tmatch ms\tmaterialise " +
			"ms\tmemory\tG rows/s\tGB/s\tof bound\tbound GB/s\tchoice\t"
	}
	j := r.Join
	if j.Error != "" {
		return fmt.Sprintf("%s\t%s\t%s\tfailed\t", j.Family, r.Case, j.Algorithm)
	}
	choice := ""
	if j.Algorithm == bench.Chosen {
		choice = j.Choice
	}
	steps := "\t\t"
	if len(j.Phases) > 0 {
		steps = ms(j.Transform) + "\t" + ms(j.Match) + "\t" + ms(j.Materialise)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", j.Family, r.Case, j.Algorithm,
		humanize.Comma(j.Pairs), ms(r.Time), ms(r.Wall),
		ms(j.Build), ms(j.Probe), steps, humanize.IBytes(uint64(j.Memory)), rates(*r), choice)
}

func groupLine(r *bench.Result) string {
	if r == nil {
		return "family\tcase\talgorithm\tgroups\tms\twall ms\ttransform ms\taggregate ms\tmemory\tG rows/s\tGB/s\tof " +
			"bound\tbound GB/s\tchoice\t"
	}
	g := r.Group
	if g.Error != "" {
		return fmt.Sprintf("%s\t%s\t%s\tfailed\t", g.Family, r.Case, g.Algorithm)
	}
	choice := ""
	if g.Algorithm == bench.Chosen {
		choice = g.Choice
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", g.Family, r.Case, g.Algorithm,
		humanize.Comma(g.Groups), ms(r.Time), ms(r.Wall),
		ms(g.Transform), ms(g.Aggregate), humanize.IBytes(uint64(g.Memory)), rates(*r), choice)
}

func spillLine(r *bench.Result) string {
	if r == nil {
		return "case\trows\tspilled\tms\tG rows/s\tGB/s\tof bound\tbound GB/s\tphases: ms, of bound\tchoice\t"
	}
	var phases []string
	for _, p := range r.Spill.Phases {
		phases = append(phases, fmt.Sprintf("%s %s, %.0f %%", p.Name, ms(p.Time),
			100*p.Bound.Seconds()/p.Time.Seconds()))
	}
	return fmt.Sprintf("%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t", r.Case, humanize.Comma(r.Rows), r.Spill.Spilled, ms(r.Wall),
		rates(*r), strings.Join(phases, "; "), r.Spill.Choice)
}

// gpusLine has the bytes that leave each device, and the bound of the same.
func gpusLine(r *bench.Result) string {
	if r == nil {
		return "devices\tcase\trows\tms\tG rows/s\tGB/s out of each\tof bound\tbound ms\tspeed-up\t" +
			"ms of the first device\t"
	}
	s := r.Spread
	bound := time.Duration(float64(r.Time) * r.Fraction())
	out, speedup := "", ""
	if s.Out > 0 {
		out = fmt.Sprintf("%.1f", s.Out/1e9)
	}
	if s.Speedup > 0 {
		speedup = fmt.Sprintf("%.2f", s.Speedup)
	}
	var phases []string
	for _, p := range s.Phases {
		phases = append(phases, p.Name+" "+ms(p.Time))
	}
	if p := s.Polls; p != nil {
		phases = append(phases, fmt.Sprintf("of all: %d launches that poll, %d pieces that were looked at too early",
			p.Launches, p.Mismatches))
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%.2f\t%s\t%.0f %%\t%s %s\t%s\t%s\t", s.Devices, r.Case, humanize.Comma(r.Rows),
		ms(r.Time), r.RowsPerSecond()/1e9, out, 100*r.Fraction(), r.Bound, ms(bound), speedup,
		strings.Join(phases, "; "))
}

// chainLine has the rates of star queries.
func chainLine(r *bench.Result) string {
	if r == nil {
		return "devices\tcase\tscale factor\tgroups\tms\tG rows/s\tGB/s\tof bound\tbound GB/s\tspeed-up\tover the CPU\t"
	}
	c := r.Chain
	devices := "CPU"
	if c.Devices > 0 {
		devices = fmt.Sprint(c.Devices)
	}
	times := func(x float64) string {
		if x == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%s\t%s\t%.3g\t%d\t%s\t%s\t%s\t%s\t", devices, r.Case, c.ScaleFactor, c.Groups, ms(r.Time),
		rates(*r), times(c.Speedup), times(c.OverCPU))
}

func figuresLine(r *bench.Result) string {
	if r == nil {
		return "figure\tvaried (build ⋈ probe rows of a device)\talgorithm\tdevices\tms\tG rows/s\tof the first\t" +
			"in the paper\t"
	}
	f := r.Spread.Figure
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%s\t%.2f\t%.2f\t%s\t", f.Number, f.Varied, f.Algorithm, r.Spread.Devices,
		ms(r.Time), r.RowsPerSecond()/1e9, f.Over, f.Paper)
}

func ms(t time.Duration) string { return fmt.Sprintf("%.3f", t.Seconds()*1e3) }

func rates(r bench.Result) string {
	return fmt.Sprintf("%.2f\t%.1f\t%.0f %%\t%s %.1f", r.RowsPerSecond()/1e9, r.Rate()/1e9, 100*r.Fraction(), r.Bound,
		r.BoundRate/1e9)
}

// benchTimeline draws the work of devices that record it.
func benchTimeline(w io.Writer, d gpu.Device, names []string) error {
	r := &pipeline.Report{Job: "bench " + strings.Join(names, ", "), Device: d.Properties().Name}
	var devices []gpu.Profiled
	for _, d := range gpu.DevicesOf(d) {
		if p, ok := d.(gpu.Profiled); ok {
			devices = append(devices, p)
			r.Wall = max(r.Wall, p.Clock())
		}
	}
	start := time.Now().Add(-r.Wall)
	for _, d := range devices {
		prefix := ""
		if len(devices) > 1 {
			prefix = d.Known().ID + " "
		}
		r.Spans = append(r.Spans, gpu.SpansSince(d, start, prefix)...)
	}
	return pipeline.WriteTimeline(w, r)
}

// redraw draws the results of an earlier run.
func (f *benchFlags) redraw() error {
	text, err := os.ReadFile(f.from)
	if err != nil {
		return err
	}
	var r benchReport
	if err := json.Unmarshal(text, &r); err != nil {
		return usageError(fmt.Errorf("--from %s: it is not a file that --json has written: %w", f.from, err))
	}
	if f.plot == "" {
		return usageError(errors.New("--from is for --plot"))
	}
	return f.draw(r)
}

// draw writes the picture, if it is wanted.
func (f *benchFlags) draw(r benchReport) error {
	var refs []published
	if f.reference != "" {
		text, err := os.ReadFile(f.reference)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &refs); err != nil {
			return usageError(fmt.Errorf("--reference %s: it is not a list of {chart, at, rows, name, ms}: %w",
				f.reference, err))
		}
	}
	return writeTo(f.plot, func(w io.Writer) error { return plot(w, r, refs) })
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
