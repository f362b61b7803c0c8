package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/pipeline"
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
		if s.Scan != nil && s.Scan.Skipped > 0 {
			fmt.Fprintf(w, "%s: skipped %d of %d row groups by their statistics\n", s.Step, s.Scan.Skipped, s.Scan.RowGroups)
		}
	}
	fmt.Fprintf(w, "wrote %s rows (%s) to %s in %s, peak memory %s\n",
		humanize.Comma(o.Rows), size(o.Bytes), o.Target, seconds(r.Wall), size(r.PeakRSS))
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
