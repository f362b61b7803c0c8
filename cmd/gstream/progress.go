package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"golang.org/x/term"

	"github.com/gstream/gstream/pipeline"
)

// progress shows the state of a run at every interval, and how it ended. The report is nil if the
// run never began.
type progress interface {
	update(*pipeline.Report)
	interval() time.Duration
	end(r *pipeline.Report, err error, exitCode int)
}

func newProgress(kind string, w io.Writer) (progress, error) {
	switch kind {
	case "auto":
		if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return &liveProgress{w: w, size: func() (int, int, error) { return term.GetSize(int(f.Fd())) }}, nil
		}
		return noProgress{}, nil
	case "plain":
		return plainProgress{w}, nil
	case "json":
		return jsonProgress{json.NewEncoder(w)}, nil
	case "none":
		return noProgress{}, nil
	}
	return nil, usageError(fmt.Errorf("--progress %s: must be auto, plain, json or none", kind))
}

type noProgress struct{}

func (noProgress) update(*pipeline.Report) {}
func (noProgress) interval() time.Duration { return time.Hour }

func (noProgress) end(*pipeline.Report, error, int) {}

// jsonProgress writes records, one per line: a report of type progress every second, and one of type
// done at the end. Log messages are the only other records in the stream.
type jsonProgress struct{ enc *json.Encoder }

// record is a report. The last one has the exit code.
type record struct {
	Type     string `json:"type"` // "progress" or "done"
	ExitCode *int   `json:"exit_code,omitempty"`
	*pipeline.Report
}

func (p jsonProgress) update(r *pipeline.Report) {
	_ = p.enc.Encode(record{Type: "progress", Report: r})
}
func (jsonProgress) interval() time.Duration { return time.Second }

func (p jsonProgress) end(r *pipeline.Report, err error, code int) {
	_ = p.enc.Encode(record{Type: "done", ExitCode: &code, Report: ended(r, err)})
}

// ended returns the report of a run with its error. r is nil for a run that never began.
func ended(r *pipeline.Report, err error) *pipeline.Report {
	out := pipeline.Report{Stages: []pipeline.StageReport{}}
	if r != nil {
		out = *r
	}
	if err != nil {
		out.Done, out.Error = false, message(err)
	}
	return &out
}

// plainProgress writes one short line every second, for logs.
type plainProgress struct{ w io.Writer }

func (p plainProgress) update(r *pipeline.Report) {
	if inTasks(r) {
		fmt.Fprintln(p.w, strings.Join(append([]string{fmt.Sprintf("%s: %s", r.Wall.Round(time.Second), tasksEnded(r))},
			fragmentsAtWork(r)...), ", "))
		return
	}
	read, then := phases(r)
	parts := []string{fmt.Sprintf("%s: read %s", r.Wall.Round(time.Second), percent(read.fraction()))}
	if then.total > 0 {
		parts[0] += ", all " + percent(read.and(then).fraction())
	}
	for _, s := range r.Stages {
		if s.State == "running" {
			parts = append(parts, fmt.Sprintf("%s (%s) %s rows%s", s.Step, s.Kind, humanize.Comma(s.RowsOut),
				iterations(s)))
		}
	}
	parts = append(parts, fmt.Sprintf("wrote %s rows", humanize.Comma(r.Output.Rows)))
	for _, text := range []string{spilled(r), byDevice(r)} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	fmt.Fprintln(p.w, strings.Join(parts, ", "))
}

func (plainProgress) interval() time.Duration          { return time.Second }
func (plainProgress) end(*pipeline.Report, error, int) {}

// inTasks reports whether tasks are at work. Then a report has no stages: see pipeline.Plan.RunTasks.
func inTasks(r *pipeline.Report) bool { return len(r.Tasks) > 0 && len(r.Stages) == 0 }

// tasksEnded tells how many tasks of the fragments that have begun have ended.
func tasksEnded(r *pipeline.Report) string {
	ended, tasks, begun, lost, running := 0, 0, 0, 0, 0
	for _, f := range r.Tasks {
		ended, tasks, lost, running = ended+f.Ended, tasks+f.Tasks, lost+f.Lost, running+f.Running
		if f.Tasks > 0 {
			begun++
		}
	}
	text := fmt.Sprintf("%d of %s ended, of %d of %d fragments", ended, english.Plural(tasks, "task", ""), begun,
		len(r.Tasks))
	if running > 0 {
		text += fmt.Sprintf(", %d running", running)
	}
	if lost > 0 {
		text += fmt.Sprintf(", %s lost", english.Plural(lost, "attempt", ""))
	}
	return text
}

// fragmentsAtWork has a text for each fragment whose tasks have not all ended.
func fragmentsAtWork(r *pipeline.Report) (out []string) {
	for _, f := range r.Tasks {
		if f.Tasks == 0 || f.Ended == f.Tasks {
			continue
		}
		text := fmt.Sprintf("fragment %d (%s): %d of %d", f.Fragment, f.Does, f.Ended, f.Tasks)
		if f.Rows > 0 {
			text += fmt.Sprintf(", %s rows", humanize.Comma(f.Rows))
		}
		if f.Slowest > 0 {
			text += fmt.Sprintf(", the slowest took %s", f.Slowest.Round(100*time.Millisecond))
		}
		out = append(out, text)
	}
	return out
}

// liveProgress redraws a block of lines on a terminal, one line for each stage. It starts after one
// second, so a short run shows nothing.
type liveProgress struct {
	w     io.Writer
	size  func() (width, height int, err error)
	lines int
	eta   estimator
}

func (p *liveProgress) interval() time.Duration { return 250 * time.Millisecond }

func (p *liveProgress) update(r *pipeline.Report) {
	left, trusted := p.eta.estimate(r)
	if r.Wall < time.Second {
		return
	}
	width, height, err := p.size()
	if err != nil || width < 20 || height < 4 {
		width, height = 80, 24
	}
	var b strings.Builder
	p.erase(&b)
	line := func(format string, args ...any) {
		text := []rune(fmt.Sprintf(format, args...))
		b.WriteString(string(text[:min(len(text), width-1)]) + "\n")
		p.lines++
	}
	if inTasks(r) {
		line("%s  %s", r.Wall.Round(time.Second), tasksEnded(r))
		at := fragmentsAtWork(r)
		shown := max(min(len(at), height-3), 0)
		for _, text := range at[:shown] {
			line("  %s", text)
		}
		if shown < len(at) {
			line("  and %d more", len(at)-shown)
		}
		_, _ = io.WriteString(p.w, b.String())
		return
	}
	read, then := phases(r)
	head := fmt.Sprintf("%s  %s  read %s", r.Wall.Round(time.Second), bar(read.and(then).fraction()),
		percent(read.fraction()))
	if then.total > 0 {
		head += fmt.Sprintf(", then %s", percent(then.fraction()))
	}
	if trusted {
		head += fmt.Sprintf("  about %s left", left)
	}
	if text := spilled(r); text != "" {
		head += "  " + text
	}
	line("%s", head)
	if text := byDevice(r); text != "" {
		line("  %s", text)
	}
	shown, hidden := visible(r.Stages, height-3-p.lines)
	for _, s := range shown {
		done := fmt.Sprintf("%15s rows %9.1f s", humanize.Comma(s.RowsOut), s.Busy.Seconds())
		if s.Scan != nil && s.Scan.BytesTotal > 0 {
			done += "  " + percent(float64(s.Scan.BytesRead)/float64(s.Scan.BytesTotal))
		}
		done += iterations(s)
		line("  %-36s %-8s %s", clip(fmt.Sprintf("%s (%s)", s.Step, s.Kind), 36), s.State, done)
	}
	if hidden > 0 {
		line("  and %d more", hidden)
	}
	line("  %-36s %-8s %15s rows %9.1f s  %s", "output", "", humanize.Comma(r.Output.Rows), r.Output.Busy.Seconds(),
		size(r.Output.Bytes))
	io.WriteString(p.w, b.String())
}

// iterations describes how far a recursion is; it is empty for other stages.
func iterations(s pipeline.StageReport) string {
	if s.Iterations == 0 {
		return ""
	}
	return fmt.Sprintf(" in %s iterations", humanize.Comma(s.Iterations))
}

// spilled describes how much is spilled to which tier; it is empty if nothing is spilled.
func spilled(r *pipeline.Report) string {
	var tiers []string
	for _, t := range []struct {
		name string
		now  int64
	}{{"host", r.Spill.Host.Now}, {"disk", r.Spill.Disk.Now}} {
		if t.now > 0 {
			tiers = append(tiers, size(t.now)+" "+t.name)
		}
	}
	if len(tiers) == 0 {
		return ""
	}
	return "spilled " + strings.Join(tiers, " + ")
}

// byDevice has the rows of the stages on each of several GPUs, and their share; it is empty for one.
func byDevice(r *pipeline.Report) string {
	var list []string
	for _, d := range r.Devices {
		list = append(list, fmt.Sprintf("%s %s rows (%s)", d.Device, humanize.Comma(d.Rows), percent(d.Share)))
	}
	return strings.Join(list, ", ")
}

// visible chooses the stages that fit n lines. Running stages have priority, then those that are done.
func visible(stages []pipeline.StageReport, n int) (shown []pipeline.StageReport, hidden int) {
	keep := make([]bool, len(stages))
	left := max(n, 0)
	for _, state := range []string{"running", "done", "waiting"} {
		for i, s := range stages {
			if s.State == state && left > 0 {
				keep[i] = true
				left--
			}
		}
	}
	for i, s := range stages {
		if keep[i] {
			shown = append(shown, s)
		}
	}
	return shown, len(stages) - len(shown)
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// erase moves to the first of the lines drawn before and clears them.
func (p *liveProgress) erase(b *strings.Builder) {
	if p.lines > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", p.lines)
	}
	p.lines = 0
}

func (p *liveProgress) end(*pipeline.Report, error, int) {
	var b strings.Builder
	p.erase(&b)
	io.WriteString(p.w, b.String())
}

// phase is a part of a run: how many rows it has done, and how many there will be, by estimate.
type phase struct{ done, total float64 }

func (p phase) and(q phase) phase { return phase{p.done + q.done, p.total + q.total} }

// fraction returns the part that is done, or -1 if it is unknown.
func (p phase) fraction() float64 {
	if p.total == 0 {
		return -1
	}
	return p.done / p.total
}

// largePhase is the number of rows from which a stage that collects all rows counts as a phase.
const largePhase = 1e6

// phases returns how far the run has read its input, by bytes, and how far the stages that collect all rows have
// returned them: sorts, window functions, and groups of which there are many. For scans that have not begun it uses an
// overestimate.
func phases(r *pipeline.Report) (read, then phase) {
	var bytes, allBytes int64
	for _, s := range r.Stages {
		if s.Scan != nil {
			bytes += s.Scan.BytesRead
			allBytes += s.Scan.BytesTotal
			read.total += max(float64(s.Scan.RowsTotal), s.Estimate)
		}
	}
	if allBytes == 0 {
		return phase{}, phase{}
	}
	read.total = max(read.total, 1)
	read.done = read.total * float64(bytes) / float64(allBytes)
	for _, s := range r.Stages {
		if s.Kind != "sort" && s.Kind != "window" && s.Kind != "group" {
			continue
		}
		rows := s.Estimate
		if s.Kind != "group" && bytes >= allBytes {
			rows = float64(s.RowsIn) // it has them all
		}
		if rows = max(rows, float64(s.RowsOut)); rows >= largePhase {
			then.done += float64(s.RowsOut)
			then.total += rows
		}
	}
	return read, then
}

// bar draws a fraction.
func bar(f float64) string {
	const width = 10
	full := int(min(max(f, 0), 1)*width + 0.5)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full) + " " + percent(f)
}

// estimator estimates how long a run will take, and decides whether the estimate is reliable.
type estimator struct {
	guesses []guess
	// began is when all input was read, and the stages that had collected it began to return it; 0 before.
	began time.Duration
}

// guess is an estimate of the time of the whole run. at is the time at which it was made.
type guess struct{ at, whole time.Duration }

const (
	minGuesses = 8    // this many guesses must agree
	agreement  = 0.15 // within this fraction of the whole time
)

// estimate returns the time left, by the speed of the current phase, and whether it is reliable. It is reliable if all
// of these hold:
//   - no other phase follows: while the input is read, no sort or large group-by collects its rows;
//   - no scan is waiting, because it may be slower, and there is no recursion, which reads its input once;
//   - all guesses from the second half of the time of the phase agree.
func (e *estimator) estimate(r *pipeline.Report) (time.Duration, bool) {
	read, then := phases(r)
	f := read.fraction()
	for _, s := range r.Stages {
		if s.Kind == "recursion" || s.Kind == "scan" && s.State == "waiting" {
			return 0, false
		}
	}
	if then.total > 0 {
		if f < 1 || then.done == 0 {
			return 0, false
		}
		if e.began == 0 {
			e.began, e.guesses = r.Wall, nil
		}
		f = then.fraction()
	}
	if f < 0.05 || f > 0.99 {
		return 0, false
	}
	spent := r.Wall - e.began
	last := guess{r.Wall, e.began + time.Duration(float64(spent)/f)}
	e.guesses = append(e.guesses, last)
	for e.guesses[0].at < e.began+spent/2 {
		e.guesses = e.guesses[1:]
	}
	for _, g := range e.guesses {
		if (g.whole - last.whole).Abs() > time.Duration(agreement*float64(last.whole)) {
			return 0, false
		}
	}
	return (last.whole - r.Wall).Round(time.Second), len(e.guesses) >= minGuesses
}

func percent(f float64) string {
	if f < 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.0f %%", 100*f)
}
