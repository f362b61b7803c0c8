package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"github.com/gstream/gstream/pipeline"
)

// progress shows the state of a run while it goes on. The first update comes a
// second after the start, so short runs show nothing.
type progress interface {
	update(*pipeline.Report)
	end()
}

func newProgress(kind string, w io.Writer) (progress, error) {
	switch kind {
	case "auto":
		if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return &liveProgress{file: f}, nil
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
func (noProgress) end()                    {}

// jsonProgress writes one report a line.
type jsonProgress struct{ enc *json.Encoder }

func (p jsonProgress) update(r *pipeline.Report) { _ = p.enc.Encode(r) }
func (jsonProgress) end()                        {}

// plainProgress writes one short line an update, for logs.
type plainProgress struct{ w io.Writer }

func (p plainProgress) update(r *pipeline.Report) {
	parts := []string{fmt.Sprintf("%s: read %s", r.Wall.Round(time.Second), percent(readFraction(r)))}
	for _, s := range r.Stages {
		if s.State == "running" {
			parts = append(parts, fmt.Sprintf("%s (%s) %s rows", s.Step, s.Kind, humanize.Comma(s.RowsOut)))
		}
	}
	parts = append(parts, fmt.Sprintf("wrote %s rows", humanize.Comma(r.Output.Rows)))
	fmt.Fprintln(p.w, strings.Join(parts, ", "))
}

func (plainProgress) end() {}

// liveProgress redraws a block of lines on a terminal, one a stage.
type liveProgress struct {
	file  *os.File
	lines int
}

func (p *liveProgress) update(r *pipeline.Report) {
	width, _, err := term.GetSize(int(p.file.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	var b strings.Builder
	p.erase(&b)
	line := func(format string, args ...any) {
		text := []rune(fmt.Sprintf(format, args...))
		b.WriteString(string(text[:min(len(text), width-1)]) + "\n")
		p.lines++
	}
	head := fmt.Sprintf("%s  read %s", r.Wall.Round(time.Second), percent(readFraction(r)))
	if eta, ok := remaining(r); ok {
		head += fmt.Sprintf("  about %s left", eta)
	}
	line("%s", head)
	for _, s := range r.Stages {
		done := fmt.Sprintf("%15s rows", humanize.Comma(s.RowsOut))
		if s.Scan != nil && s.Scan.BytesTotal > 0 {
			done += "  " + percent(float64(s.Scan.BytesRead)/float64(s.Scan.BytesTotal))
		}
		line("  %-32s %-8s %s", fmt.Sprintf("%s (%s)", s.Step, s.Kind), s.State, done)
	}
	line("  %-32s %-8s %15s rows  %s", "output", "", humanize.Comma(r.Output.Rows), humanize.IBytes(uint64(r.Output.Bytes)))
	io.WriteString(p.file, b.String())
}

// erase moves to the first of the lines drawn before and clears them.
func (p *liveProgress) erase(b *strings.Builder) {
	if p.lines > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", p.lines)
	}
	p.lines = 0
}

func (p *liveProgress) end() {
	var b strings.Builder
	p.erase(&b)
	io.WriteString(p.file, b.String())
}

// readFraction is how much of the input has been read, by bytes; -1 until every
// scan has begun.
func readFraction(r *pipeline.Report) float64 {
	var read, total int64
	for _, s := range r.Stages {
		if s.Kind != "scan" {
			continue
		}
		if s.Scan == nil {
			return -1
		}
		read += s.Scan.BytesRead
		total += s.Scan.BytesTotal
	}
	if total == 0 {
		return -1
	}
	return float64(read) / float64(total)
}

// remaining estimates the time left from how fast the input is read. That can be
// trusted while rows stream through to the output and enough has been read; not
// when a sort or a group-by holds them back until its input has ended.
func remaining(r *pipeline.Report) (time.Duration, bool) {
	f := readFraction(r)
	for _, s := range r.Stages {
		if s.Kind == "sort" || s.Kind == "group" && s.Estimate > 1e6 {
			return 0, false
		}
	}
	if f < 0.05 || f > 0.99 || r.Wall < 2*time.Second {
		return 0, false
	}
	return time.Duration(float64(r.Wall) * (1 - f) / f).Round(time.Second), true
}

func percent(f float64) string {
	if f < 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.0f %%", 100*f)
}
