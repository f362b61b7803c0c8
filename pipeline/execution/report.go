package execution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/spill"
)

// Report describes a run, finished or in progress.
type Report struct {
	Job     string        `json:"job,omitempty"`
	Device  string        `json:"device"` // name of the device
	Kind    string        `json:"device_kind"`
	Choice  *Choice       `json:"device_choice,omitempty"` // if the run opened its own device
	Threads int           `json:"threads"`                 // that decode and encode
	Wall    time.Duration `json:"wall_ns"`
	// PeakHost and PeakDevice are the peaks of bytes reserved from the budgets, by all runs that
	// share the device, of several devices the first one. PeakRSS is the peak resident memory of the process.
	PeakHost   int64 `json:"peak_host_bytes"`
	PeakDevice int64 `json:"peak_device_bytes"`
	PeakRSS    int64 `json:"peak_rss_bytes"`
	Done       bool  `json:"done"` // the run has ended and its output is complete
	// Restarted is the reason why the run was denied memory at first. It then restarted in one
	// lane, with short strides.
	Restarted string `json:"restarted,omitempty"`
	// Lost are the GPUs that failed, in this order. After each of them the run started again without it.
	Lost []LostGPU `json:"lost,omitempty"`
	// Skipped is the reason why there was nothing to do (gstream run --resume).
	Skipped string `json:"skipped,omitempty"`
	// Error is the reason why the run failed.
	Error string `json:"error,omitempty"`
	// Activity is the sum over the stages and the output of a run on a GPU. Link is the
	// link to the GPU, measured at the end of the run.
	Activity *ActivityReport `json:"activity,omitempty"`
	Link     *LinkReport     `json:"link,omitempty"`
	// Tasks are the fragments of a run on several workers. The stages are those of its last part.
	Tasks []FragmentReport `json:"tasks,omitempty"`
	// Devices are those of a run on several devices with memory of their own.
	Devices []DeviceReport `json:"devices,omitempty"`
	// Use is what a finished run kept busy.
	Use *Use `json:"use,omitempty"`
	// Spill is the traffic of rows that did not fit memory, over all stages.
	Spill spill.Stats `json:"spill"`
	// Spans are the spans of work of a finished run, ordered by start, by the run's clock, if
	// Options.Timeline is set. SpansLeftOut is the number of those that were too many.
	Spans        []gpu.Span    `json:"-"`
	SpansLeftOut int64         `json:"-"`
	Stages       []StageReport `json:"stages"`
	// Expectations are those of all steps, in the order of the steps.
	Expectations []ExpectationReport `json:"expectations,omitempty"`
	// Outputs are those of the job. Output is the only one, or the sum of several.
	Outputs []OutputReport `json:"outputs"`
	Output  OutputReport   `json:"output"`
}

// Total sets Output to the sum of Outputs.
func (r *Report) Total() {
	if len(r.Outputs) == 1 {
		r.Output = r.Outputs[0]
		return
	}
	sum, names := OutputReport{}, make([]string, len(r.Outputs))
	for i, o := range r.Outputs {
		names[i] = o.Target
		sum.Rows, sum.Bytes, sum.Files = sum.Rows+o.Rows, sum.Bytes+o.Bytes, sum.Files+o.Files
		sum.Busy, sum.Wait, sum.Peak = sum.Busy+o.Busy, sum.Wait+o.Wait, max(sum.Peak, o.Peak)
		sum.BytesOfDevice += o.BytesOfDevice
		if sum.ForCPU = cmp.Or(sum.ForCPU, o.ForCPU); o.Activity != nil {
			sum.Activity = sum.Activity.plus(o.Activity)
		}
	}
	sum.Target = strings.Join(names, ", ")
	r.Output = sum
}

// FragmentReport describes the tasks of a fragment of a plan.
type FragmentReport struct {
	Fragment int    `json:"fragment"`
	Does     string `json:"does"`
	Tasks    int    `json:"tasks"`   // 0 if they have not begun
	Ended    int    `json:"ended"`   // of them
	Running  int    `json:"running"` // attempts
	Lost     int    `json:"lost"`    // attempts that failed, of tasks that ran again
	// RowsRead and BytesRead are those of earlier tasks, BytesOfTables the bytes of tables, and Rows and Bytes what was
	// written for later tasks or into an output.
	RowsRead      int64 `json:"rows_read"`
	BytesRead     int64 `json:"bytes_read"`
	BytesOfTables int64 `json:"bytes_of_tables"`
	Rows          int64 `json:"rows"`
	Bytes         int64 `json:"bytes"`
	// Wall is the time from the first task to the end of the last, Slowest that of the slowest task.
	Wall        time.Duration `json:"wall_ns"`
	Slowest     time.Duration `json:"slowest_ns"`
	SlowestTask int           `json:"slowest_task"`
	// SlowestShare is the bytes that the slowest task has read, as a multiple of the mean of the tasks. Far above 1 the
	// task had more work, else its machine was slower. It is 0 for one task, or without input.
	SlowestShare float64 `json:"slowest_share"`
}

// ExpectationReport tells how many rows do not meet an expectation.
type ExpectationReport struct {
	Step    string `json:"step"`
	Expects string `json:"expects"`
	// Warn says that the run continues if it is not met.
	Warn bool `json:"warn,omitempty"`
	// Rows is the number of rows that do not meet it: for unique, of keys that several rows have; for rows, 1. Sample
	// has the first ones, as texts.
	Rows    int64      `json:"rows"`
	Columns []string   `json:"columns"`
	Sample  [][]string `json:"sample,omitempty"`
}

// First describes the first row that does not meet the expectation. It is "" if all do.
func (e *ExpectationReport) First() string {
	if len(e.Sample) == 0 {
		return ""
	}
	const most = 12 // columns of a line; Sample has all
	var parts []string
	for i, value := range e.Sample[0][:min(most, len(e.Sample[0]))] {
		parts = append(parts, e.Columns[i]+" = "+value)
	}
	if len(e.Columns) > most {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}

// String returns what gstream run prints at the end: a table of the stages, and what was
// skipped, spilled and written. It has no line break at the end.
func (r *Report) String() string {
	if r.Skipped != "" {
		return fmt.Sprintf("%s: nothing to do: %s", r.Job, r.Skipped)
	}
	var b strings.Builder
	size := func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stage\trows in\trows out\tbytes out\tbusy\tdevice\tpeak memory\t")
	for _, s := range r.Stages {
		fmt.Fprintf(t, "%s (%s)\t%s\t%s\t%s\t%s\t%s\t%s\t\n", s.Step, s.Kind, humanize.Comma(s.RowsIn),
			humanize.Comma(s.RowsOut),
			size(s.BytesOut), seconds(s.Busy), s.Device, size(s.Peak))
	}
	for _, o := range r.Outputs {
		name := "output"
		if len(r.Outputs) > 1 {
			name = "output " + o.Target
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\thost\t%s\t\n", name, humanize.Comma(o.Rows), humanize.Comma(o.Rows),
			size(o.Bytes), seconds(o.Busy), size(o.Peak))
	}
	t.Flush()
	for _, f := range r.Tasks {
		fmt.Fprintf(&b, "fragment %d (%s): %s, %s rows read, %s rows and %s written, %s; the slowest task, %d, took %s",
			f.Fragment, f.Does, english.Plural(f.Tasks, "task", ""), humanize.Comma(f.RowsRead), humanize.Comma(f.Rows),
			size(f.Bytes), seconds(f.Wall), f.SlowestTask, seconds(f.Slowest))
		if f.SlowestShare > 0 {
			fmt.Fprintf(&b, ", and read %.1f times as much as the mean", f.SlowestShare)
		}
		if f.Lost > 0 {
			fmt.Fprintf(&b, "; %s lost and run again", english.Plural(f.Lost, "attempt", ""))
		}
		b.WriteByte('\n')
	}
	o := r.Output
	for _, l := range r.Lost {
		fmt.Fprintf(&b, "%s failed, so the run started again without it: %s\n", l.Device, l.Error)
	}
	if r.Restarted != "" {
		fmt.Fprintf(&b, "memory was short, so the run started again in one lane, with short strides: %s\n", r.Restarted)
	}
	for _, s := range r.Stages {
		if s.Scan != nil && s.Scan.FilesRuled > 0 {
			fmt.Fprintf(&b, "%s: did not open %s of %s files, by their folders\n", s.Step,
				humanize.Comma(s.Scan.FilesRuled), humanize.Comma(s.Scan.Files))
		}
		if s.Scan != nil && s.Scan.Rejected > 0 {
			fmt.Fprintf(&b, "%s: left out %s rows that could not be read\n", s.Step, humanize.Comma(s.Scan.Rejected))
		}
		if s.Scan != nil && s.Scan.Skipped > 0 {
			fmt.Fprintf(&b, "%s: skipped %d of %d row groups by their statistics\n", s.Step, s.Scan.Skipped,
				s.Scan.RowGroups)
		}
		if s.Scan != nil && s.Scan.BytesFirst > 0 {
			fmt.Fprintf(&b, "%s: %s\n", s.Step, Filtered(s.Scan))
		}
		if s.Scan != nil && s.Scan.BytesPages > 0 {
			fmt.Fprintf(&b, "%s: the device decoded %s of %s\n", s.Step, size(s.Scan.BytesPages),
				size(s.Scan.BytesRead))
		}
		if s.Scan != nil {
			if text := leftToCPU(s.Scan.Columns); text != "" {
				fmt.Fprintf(&b, "%s: the CPU decoded %s\n", s.Step, text)
			}
		}
	}
	for _, s := range r.Stages {
		if len(s.ByCPU) > 0 {
			fmt.Fprintf(&b, "%s (%s): the CPU evaluated %s\n", s.Step, s.Kind, strings.Join(s.ByCPU, ", "))
		}
	}
	if o.BytesOfDevice > 0 {
		fmt.Fprintf(&b, "output: the device encoded %s of %s\n", size(o.BytesOfDevice), size(o.Bytes))
	}
	if o.ForCPU != "" {
		fmt.Fprintf(&b, "output: the CPU encoded %s: %s\n", size(o.Bytes), o.ForCPU)
	}
	for _, s := range r.Stages {
		if text := s.Spill.String(); text != "" {
			fmt.Fprintf(&b, "%s (%s) spilled to %s\n", s.Step, s.Kind, text)
		}
	}
	for _, s := range r.Stages {
		if s.Iterations > 0 {
			fmt.Fprintf(&b, "%s: %s iterations\n", s.Step, humanize.Comma(s.Iterations))
		}
	}
	for _, s := range r.Stages {
		if len(s.Shares) > 1 && slices.ContainsFunc(s.Shares, func(x Share) bool { return x.Partitions > 0 }) {
			var shares []string
			for _, x := range s.Shares {
				shares = append(shares, x.String())
			}
			fmt.Fprintf(&b, "%s (%s) shared: %s\n", s.Step, s.Kind, strings.Join(shares, "; "))
		}
	}
	for _, e := range r.Expectations {
		switch verdict := "not met"; {
		case e.Rows > 0:
			if e.Warn {
				verdict = "warning"
			}
			fmt.Fprintf(&b, "%s: expect %s: %s: %s rows, as %s\n", e.Step, e.Expects, verdict, humanize.Comma(e.Rows),
				e.First())
		case r.Done:
			fmt.Fprintf(&b, "%s: expect %s: met\n", e.Step, e.Expects)
		}
	}
	if c := r.Choice; c != nil && c.CUDA > 0 {
		fmt.Fprintln(&b, c)
	}
	if a := r.Activity; a != nil {
		fmt.Fprintf(&b, "on %s%s\n", r.Device, a)
	}
	for _, d := range r.Devices {
		fmt.Fprintln(&b, d)
	}
	switch {
	case r.Done:
		files := ""
		if o.Files > 1 {
			files = fmt.Sprintf(", %s files", humanize.Comma(o.Files))
		}
		fmt.Fprintf(&b, "wrote %s rows (%s%s) to %s in %s, peak memory %s", humanize.Comma(o.Rows), size(o.Bytes),
			files, o.Target, seconds(r.Wall), size(r.PeakRSS))
	case r.Error != "":
		fmt.Fprintf(&b, "failed after %s: %s", seconds(r.Wall), r.Error)
	default:
		fmt.Fprintf(&b, "running for %s", seconds(r.Wall))
	}
	return b.String()
}

// leftToCPU lists the columns of a scan that the CPU decoded although the device decodes pages, the largest first. The
// list is empty if there are none.
func leftToCPU(columns []source.Decoded) string {
	const most = 4 // columns of a line; JSON has all
	columns = slices.DeleteFunc(slices.Clone(columns), func(d source.Decoded) bool { return d.Reason == "" })
	slices.SortStableFunc(columns, func(a, b source.Decoded) int { return cmp.Compare(b.ByCPU, a.ByCPU) })
	var parts []string
	for _, d := range columns[:min(most, len(columns))] {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", d.Column, humanize.IBytes(uint64(d.ByCPU)), d.Reason))
	}
	if more := len(columns) - most; more > 0 {
		parts = append(parts, "and "+english.Plural(more, "more column", "more columns"))
	}
	return strings.Join(parts, ", ")
}

// StageReport describes one stage. Inputs come before their consumers.
type StageReport struct {
	Step   string `json:"step"`
	Kind   string `json:"kind"`
	Device string `json:"device"`
	State  string `json:"state"` // "waiting", "running" or "done"
	// Choice is the algorithm that the stage chose in this run, and the reason.
	Choice string `json:"choice,omitempty"`
	// ByCPU are the functions that the CPU evaluated for a GPU, which has no kernels for them.
	ByCPU    []string `json:"by_cpu,omitempty"`
	RowsIn   int64    `json:"rows_in"`
	RowsOut  int64    `json:"rows_out"`
	BytesOut int64    `json:"bytes_out"`
	// Busy is the working time of all lanes; for a scan it includes all goroutines that decode. On
	// several cores it may exceed the time of the run, and so may the times below.
	Busy time.Duration `json:"busy_ns"`
	// Wait is the time spent waiting for input; for a scan it is the time spent waiting for
	// decoders. Blocked is the time spent waiting for the next stage to accept a stride.
	Wait    time.Duration `json:"wait_ns"`
	Blocked time.Duration `json:"blocked_ns"`
	// Began and Ended are when a lane first and last worked on the stage, from the start of the run.
	Began time.Duration `json:"began_ns"`
	Ended time.Duration `json:"ended_ns"`
	Peak  int64         `json:"peak_bytes"`
	// Spill is the traffic of rows of the stage that did not fit memory.
	Spill    spill.Stats `json:"spill"`
	Estimate float64     `json:"estimated_rows"`
	// Dropped is the number of rows of a scan that join filters have dropped. RowsOut does not
	// count them.
	Dropped int64 `json:"rows_dropped,omitempty"`
	// Iterations is how often a recursion has computed its step. The counters of the stages of the step are sums.
	Iterations int64 `json:"iterations,omitempty"`
	// Activity is the stage's work on a GPU.
	Activity *ActivityReport `json:"activity,omitempty"`
	// Shares tells how many partitions of a join or group-by out of core each processor took: first
	// the device, then the CPU if it was asked to help. In a run on several devices it has each of them.
	Shares []Share `json:"shares,omitempty"`
	// Scan is the progress of a scan; nil for other stages. Its totals are estimates
	// until the scan has begun.
	Scan *source.Progress `json:"scan,omitempty"`
}

// Add adds the work of the stage on another device of the run.
func (s *StageReport) Add(o StageReport) {
	if !strings.Contains(s.Device, o.Device) {
		s.Device += ", " + o.Device
	}
	if o.State == "running" || s.State != o.State && s.State == "done" {
		s.State = "running"
	}
	s.Choice = cmp.Or(s.Choice, o.Choice)
	s.RowsIn, s.RowsOut, s.BytesOut = s.RowsIn+o.RowsIn, s.RowsOut+o.RowsOut, s.BytesOut+o.BytesOut
	s.Busy, s.Wait, s.Blocked = s.Busy+o.Busy, s.Wait+o.Wait, s.Blocked+o.Blocked
	if o.Began > 0 && (s.Began == 0 || o.Began < s.Began) {
		s.Began = o.Began
	}
	s.Ended, s.Peak = max(s.Ended, o.Ended), s.Peak+o.Peak
	s.Spill.Add(o.Spill)
	s.Dropped += o.Dropped
	s.Activity = s.Activity.plus(o.Activity)
	s.Shares = append(s.Shares, o.Shares...)
	if o.Scan != nil {
		s.Scan = o.Scan // of the device that opened the table
	}
}

// Work returns the time in which the stage worked: on a GPU that of its kernels or copies, otherwise that of its
// lanes.
func (s *StageReport) Work() time.Duration {
	if a := s.Activity; a != nil {
		return max(a.Kernels+a.Decoding, a.CopyingUp, a.CopyingDown)
	}
	return s.Busy
}

// Bound says where most of the time of the stage went.
func (s *StageReport) Bound() string {
	parts := []share{{"bound by its own work", float64(s.Busy)}, {"waits for its input", float64(s.Wait)},
		{"waits for the next stage", float64(s.Blocked)}}
	if s.Scan != nil {
		parts[0].what, parts[1].what = "bound by decoding", "bound by reading and decoding"
	}
	if a := s.Activity; a != nil {
		// What the GPU does is the work. Lanes of the host wait for it, and count as busy.
		parts[0] = slices.MaxFunc([]share{{"bound by kernels", float64(a.Kernels)},
			{"bound by decoding pages", float64(a.Decoding)}, {"bound by copies up", float64(a.CopyingUp)},
			{"bound by copies down", float64(a.CopyingDown)}},
			func(x, y share) int { return cmp.Compare(x.part, y.part) })
	}
	all, most := 0.0, parts[0]
	for _, p := range parts {
		if all += p.part; p.part > most.part {
			most = p
		}
	}
	switch {
	case all < float64(time.Millisecond):
		return "hardly any work"
	case most.part < all/2:
		return "bound by nothing alone"
	}
	return most.what
}

// Share is the work of one processor on the partitions of a join or group-by out of core.
type Share struct {
	Device     string        `json:"device"`
	Partitions int64         `json:"partitions"` // for a join, pairs of partitions; 0 if rows did not go out of core
	Bytes      int64         `json:"bytes"`      // of their rows
	RowsOut    int64         `json:"rows_out"`
	Busy       time.Duration `json:"busy_ns"` // of all its lanes
}

// Add adds the work of the same processor elsewhere.
func (s *Share) Add(o Share) {
	s.Partitions, s.Bytes = s.Partitions+o.Partitions, s.Bytes+o.Bytes
	s.RowsOut, s.Busy = s.RowsOut+o.RowsOut, s.Busy+o.Busy
}

// String describes the share as a part of a line.
func (s Share) String() string {
	return fmt.Sprintf("%s %s of %s, %s rows out", s.Device,
		english.Plural(int(s.Partitions), "partition", "partitions"), humanize.IBytes(uint64(s.Bytes)),
		humanize.Comma(s.RowsOut))
}

// ActivityReport is the use of a GPU by a stage or a run. Device times are measured by the GPU's
// clock, with events around every primitive and every copy.
type ActivityReport struct {
	Launches    int64         `json:"kernel_launches"`
	Kernels     time.Duration `json:"kernel_ns"`
	BytesUp     int64         `json:"bytes_up"`
	BytesDown   int64         `json:"bytes_down"`
	CopyingUp   time.Duration `json:"copy_up_ns"`
	CopyingDown time.Duration `json:"copy_down_ns"`
	// BytesIn are the bytes that GPUs copied from each other.
	BytesIn   int64         `json:"bytes_from_peers,omitempty"`
	CopyingIn time.Duration `json:"copy_from_peers_ns,omitempty"`
	// Decoding is the time in which the GPU decoded pages.
	Decoding time.Duration `json:"decode_pages_ns"`
	// FractionUp and FractionDown are the rates of the copies while they ran, as fractions of the
	// measured rate of the link in that direction.
	FractionUp   float64 `json:"link_fraction_up,omitempty"`
	FractionDown float64 `json:"link_fraction_down,omitempty"`
}

// LinkReport has the speeds of the link to the GPU, measured in the run, in bytes per second.
type LinkReport struct {
	Up   float64 `json:"up"`
	Down float64 `json:"down"`
	Both float64 `json:"both"`
}

// plus returns the sum of the work of two parts of a run. a may be nil.
func (a *ActivityReport) plus(b *ActivityReport) *ActivityReport {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	sum := *a
	sum.Launches, sum.Kernels, sum.Decoding = sum.Launches+b.Launches, sum.Kernels+b.Kernels, sum.Decoding+b.Decoding
	sum.BytesUp, sum.BytesDown = sum.BytesUp+b.BytesUp, sum.BytesDown+b.BytesDown
	sum.BytesIn, sum.CopyingIn = sum.BytesIn+b.BytesIn, sum.CopyingIn+b.CopyingIn
	sum.CopyingUp, sum.CopyingDown = sum.CopyingUp+b.CopyingUp, sum.CopyingDown+b.CopyingDown
	sum.FractionUp, sum.FractionDown = max(sum.FractionUp, b.FractionUp), max(sum.FractionDown, b.FractionDown)
	return &sum
}

// LostGPU is a GPU that failed in mid-run.
type LostGPU struct {
	Device string `json:"device"` // as in "cuda:1"
	Error  string `json:"error"`
}

// DeviceReport is the part of one of several devices in a run.
type DeviceReport struct {
	Device string `json:"device"` // as in "cuda:1"
	// Rows is the number of rows that the stages have returned on the device, Peak the peak of bytes reserved from its
	// budget.
	Rows int64 `json:"rows_out"`
	Peak int64 `json:"peak_bytes"`
	// Share is the part of the rows of all devices.
	Share float64 `json:"share_of_rows"`
	// Activity is the work for the stages, and the encoding of the output. Copies of the output to the host are only in
	// the sum of the run.
	Activity *ActivityReport `json:"activity,omitempty"`
}

// String returns a line for people.
func (d DeviceReport) String() string {
	return fmt.Sprintf("on %s: %s rows of stages (%.0f %%), peak memory %s%s", d.Device, humanize.Comma(d.Rows),
		100*d.Share, humanize.IBytes(uint64(d.Peak)), d.Activity)
}

// String describes the work on the GPU as the end of a line. It is empty for nil.
func (a *ActivityReport) String() string {
	if a == nil {
		return ""
	}
	var b strings.Builder
	if a.Launches > 0 {
		fmt.Fprintf(&b, "; %d kernels, %.3f s on the GPU", a.Launches, a.Kernels.Seconds())
	}
	if a.Decoding > 0 {
		fmt.Fprintf(&b, "; %.3f s decoding pages", a.Decoding.Seconds())
	}
	copied := func(bytes int64, took time.Duration, way string, share float64) {
		if bytes > 0 && took > 0 {
			fmt.Fprintf(&b, "; %s %s at %.1f GB/s, %.0f %% of the link", humanize.IBytes(uint64(bytes)), way,
				float64(bytes)/took.Seconds()/1e9, 100*share)
		}
	}
	copied(a.BytesUp, a.CopyingUp, "up", a.FractionUp)
	copied(a.BytesDown, a.CopyingDown, "down", a.FractionDown)
	if a.BytesIn > 0 && a.CopyingIn > 0 {
		fmt.Fprintf(&b, "; %s from other GPUs at %.1f GB/s", humanize.IBytes(uint64(a.BytesIn)),
			float64(a.BytesIn)/a.CopyingIn.Seconds()/1e9)
	}
	return b.String()
}

// Filtered describes what a filter that decides first has skipped in a scan.
func Filtered(p *source.Progress) string {
	return fmt.Sprintf("a filter read %s first, and skipped %s rows with %s", humanize.IBytes(uint64(p.BytesFirst)),
		humanize.Comma(p.RowsFiltered), humanize.IBytes(uint64(p.BytesFiltered)))
}

// OutputReport describes what the sink has written.
type OutputReport struct {
	Target string        `json:"target"`
	Rows   int64         `json:"rows"`
	Bytes  int64         `json:"bytes"`
	Files  int64         `json:"files"`
	Busy   time.Duration `json:"busy_ns"`
	Wait   time.Duration `json:"wait_ns"`
	Peak   int64         `json:"peak_bytes"`
	// BytesOfDevice is the part of Bytes that the device has encoded; the CPU has encoded the rest.
	BytesOfDevice int64 `json:"bytes_encoded_by_device"`
	// ForCPU says why the device encodes none of the output, if it could encode others.
	ForCPU string `json:"encoded_by_cpu_because,omitempty"`
	// Activity is the copies of the result from a GPU.
	Activity *ActivityReport `json:"activity,omitempty"`
}
