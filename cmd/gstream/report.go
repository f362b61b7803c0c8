package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/sink/staging"
)

// printReport prints a table of a run that has succeeded.
func printReport(w io.Writer, r *pipeline.Report) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stage\trows in\trows out\tbytes out\tbusy\tdevice\tpeak memory\t")
	for _, s := range r.Stages {
		fmt.Fprintf(t, "%s (%s)\t%s\t%s\t%s\t%s\t%s\t%s\t\n", s.Step, s.Kind, humanize.Comma(s.RowsIn), humanize.Comma(s.RowsOut),
			size(s.BytesOut), seconds(s.Busy), s.Device, size(s.Peak))
	}
	o := r.Output
	fmt.Fprintf(t, "output\t%s\t%s\t%s\t%s\thost\t%s\t\n", humanize.Comma(o.Rows), humanize.Comma(o.Rows), size(o.Bytes), seconds(o.Busy), size(o.Peak))
	t.Flush()
	for _, s := range r.Stages {
		if s.Scan != nil && s.Scan.FilesRuled > 0 {
			fmt.Fprintf(w, "%s: did not open %s of %s files, by their folders\n", s.Step, humanize.Comma(s.Scan.FilesRuled), humanize.Comma(s.Scan.Files))
		}
		if s.Scan != nil && s.Scan.Skipped > 0 {
			fmt.Fprintf(w, "%s: skipped %d of %d row groups by their statistics\n", s.Step, s.Scan.Skipped, s.Scan.RowGroups)
		}
	}
	for _, s := range r.Stages {
		if text := s.Spill.String(); text != "" {
			fmt.Fprintf(w, "%s (%s) spilled to %s\n", s.Step, s.Kind, text)
		}
	}
	if c := r.Choice; c != nil && c.CUDA > 0 {
		fmt.Fprintln(w, c)
	}
	if a := r.Activity; a != nil {
		fmt.Fprintf(w, "on %s%s\n", r.Device, a)
	}
	fmt.Fprintf(w, "wrote %s rows (%s) to %s in %s, peak memory %s\n",
		humanize.Comma(o.Rows), size(o.Bytes), o.Target, seconds(r.Wall), size(r.PeakRSS))
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

// reportFile is the file of --report or --timeline. It is opened before the run, so that
// a path that cannot be written is refused before the work. It gets its name when it is
// complete.
type reportFile struct {
	flag string // name in errors
	path string
	file *os.File // nil without a report
	// stdout is set for the path -.
	stdout io.Writer
	// remove removes the temporary until the report is written.
	remove func() error
}

func openReport(flag, path string, stdout io.Writer) (*reportFile, error) {
	r := &reportFile{flag: flag, path: path, remove: func() error { return nil }}
	switch path {
	case "":
		return r, nil
	case "-":
		r.stdout = stdout
		return r, nil
	}
	var err error
	if info, statErr := os.Stat(path); statErr == nil && !info.Mode().IsRegular() {
		// A pipe or a terminal is written to directly, not replaced.
		r.file, err = os.OpenFile(path, os.O_WRONLY, 0)
	} else if r.path, err = staging.Resolve(path); err == nil {
		staging.Sweep(filepath.Dir(r.path))
		if r.file, err = staging.File(r.path); err == nil {
			name := r.file.Name()
			r.remove = func() error { return os.Remove(name) }
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return r, nil
}

// write writes the file and gives it its name.
func (r *reportFile) write(fill func(io.Writer) error) error {
	if r.stdout != nil {
		return fill(r.stdout)
	}
	if r.file == nil {
		return nil
	}
	if err := fill(r.file); err != nil {
		return fmt.Errorf("%s: %w", r.flag, err)
	}
	if r.temporary() {
		if err := os.Rename(r.file.Name(), r.path); err != nil {
			return fmt.Errorf("%s: %w", r.flag, err)
		}
	}
	err := r.file.Close()
	r.file = nil
	return err
}

func (r *reportFile) temporary() bool { return r.file != nil && r.file.Name() != r.path }

// close removes the file unless it was written.
func (r *reportFile) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	if r.temporary() {
		err = errors.Join(err, r.remove())
	}
	r.file = nil
	return err
}
