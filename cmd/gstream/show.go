package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/pipeline"
)

// showFlags are the flags of gstream show.
type showFlags struct {
	runFlags
	step, format string
	rows         int64
	width        int
}

// previewStride is the stride size for the first rows of files: 8,192 rows of 8-byte values.
const previewStride = 64 << 10

func newShow(left *leftovers) *cobra.Command {
	f := showFlags{runFlags: runFlags{left: left, joinFilters: pipeline.Auto}}
	cmd := &cobra.Command{
		Use:   "show FILE|JOB",
		Short: "Show the first rows of Parquet, CSV, JSON or Arrow files, or of the result or a step of a job",
		Long: `show prints the first rows of a Parquet, CSV, JSON or Arrow file, a folder or a pattern in quotes, or those
that a job would write. Parquet files may be in an object store or on a web server, as
s3://bucket/orders/*.parquet (or gs://, az://) or https://host/orders.parquet. It writes no file. With
--step it shows the rows of a step or a source of the job, by its name in reports
("filter 2" if it has none); later steps may have mistakes. It reads only what these
rows need: a few thousand rows of a file or a
filter, but the whole input of a sort or a group.

A table has the types under the names. A value that does not fit its column ends with ….
Columns that do not fit the terminal are left out from the middle, and the last line says
how many. NULL is a null and 'NULL' is a string. Control characters are written as \n or
\x1b. The other formats have all columns and whole values:

  csv       with a header; quoted as in RFC 4180; a null is empty, an empty string is ""
  json      an array with an object for each row; numbers have all their digits
  markdown  a table for a page`,
		Example: `  gstream show data/orders.parquet
  gstream show 'data/orders-*.parquet' --rows 100 --format csv > first.csv
  gstream show job.yaml
  gstream show job.yaml --step "orders of 1995" --rows 3
  gstream show job.yaml --format json | jq '.[0]'`,
		Args: args(1, "one file or one job file"),

		ValidArgsFunction: completeFiles("parquet", "yaml", "yml"),
		RunE:              func(cmd *cobra.Command, args []string) error { return f.show(cmd, args[0]) },
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.step, "step", "", "show the rows of this step or source of the job")
	cmd.Flags().Int64Var(&f.rows, "rows", 10, "maximum number of rows to show; 0 shows names and types")
	cmd.Flags().StringVar(&f.format, "format", "table", "form of the output: table, csv, json or markdown")
	complete(cmd, "format", rowFormats...)
	cmd.Flags().IntVar(&f.width, "width", 0,
		"width of a table in characters (default: that of the terminal, or 120 if there is none); -1 is unbounded")
	f.registerMachine(cmd)
	return cmd
}

func (f *showFlags) show(cmd *cobra.Command, path string) error {
	opt, err := f.options(cmd)
	if err != nil {
		return err
	}
	if f.rows < 0 {
		return usageError(fmt.Errorf("--rows %d: must not be negative", f.rows))
	}
	if opt.Threads > 0 {
		runtime.GOMAXPROCS(opt.Threads)
	}
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
	target := &rowTarget{most: f.rows}
	if target.rows, err = newRowWriter(f.format, out, tableWidth(f.width, cmd.OutOrStdout())); err != nil {
		return err
	}
	job, file, err := f.jobOf(path)
	if err != nil {
		return err
	}
	// One more row, which is not shown, tells whether there are more.
	p, err := pipeline.NewPreview(cmd.Context(), job, f.step, min(f.rows, math.MaxInt64-1)+1, target)
	if err != nil {
		return ofFile(file, err)
	}
	defer p.Close()
	if opt.StrideSize == 0 && p.Rows >= 0 && f.rows < previewStride/8 {
		opt.StrideSize = previewStride
	}
	if file && opt.Chooses() {
		opt.Use = pipeline.Host
	}
	if _, err := p.Run(cmd.Context(), opt); err != nil {
		return err // without printing the buffer
	}
	if target.total = p.Rows; p.Rows < 0 && target.seen.Load() <= f.rows {
		target.total = target.seen.Load()
	}
	if err := target.rows.end(target.shown(), target.total); err != nil {
		return err
	}
	if len(p.LeftOut) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "gstream: left out: %s\n", escapeText(phrase.Some(p.LeftOut, 5, "; ")))
	}
	return out.Flush()
}

// tableWidth returns the width of a table in characters, by --width; -1 means that it is unbounded.
func tableWidth(width int, out io.Writer) int {
	if width != 0 {
		return width
	}
	if file, ok := out.(*os.File); ok {
		if w, _, err := term.GetSize(int(file.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 120
}

// jobOf returns the job that reads a file, folder or pattern, or loads a job file.
func (f *showFlags) jobOf(path string) (job *pipeline.Job, file bool, err error) {
	isJob, err := isJobFile(path)
	if err != nil {
		return nil, false, err
	}
	if isJob {
		job, err = f.load(path)
		return job, false, err
	}
	for flag, given := range map[string]bool{"--step": f.step != "", "--set": len(f.set) > 0} {
		if given {
			return nil, false, usageError(fmt.Errorf("%s works only with a job file, and %s is read as Parquet", flag,
				path))
		}
	}
	return pipeline.New("show").Read(sourceName(path), path).Job(), true, nil
}

// ofFile returns the cause of an error about the source that stands for a file. The cause names the file.
func ofFile(file bool, err error) error {
	var faults pipeline.Diagnostics
	if file && errors.As(err, &faults) && len(faults) == 1 && faults[0].Err != nil {
		return faults[0].Err
	}
	return err
}

// otherData are extensions of data files that gstream does not read.
var otherData = []string{".txt", ".xlsx", ".avro", ".orc"}

// isJobFile distinguishes job files from Parquet files: by their names, or else by their first bytes.
func isJobFile(path string) (bool, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml":
		return true, nil
	case ".parquet":
		return false, nil
	}
	if namesData(path) {
		return false, nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil // a pattern, a folder, or nothing: opening it returns the error
	}
	if slices.Contains(otherData, strings.ToLower(filepath.Ext(path))) {
		return false,
			usageError(fmt.Errorf("%s: gstream reads Parquet, CSV, JSON lines and Arrow, and job files in YAML; "+
				"write the rows to such a file first", path))
	}
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	var magic [4]byte
	_, err = io.ReadFull(file, magic[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return err == nil && !slices.Contains([]string{"PAR1", "PARE"}, string(magic[:])), err
}

// rowCount describes the number of rows shown. total is -1 if it is unknown.
func rowCount(shown, total int64) string {
	switch {
	case total < 0:
		return "first " + plural(shown, "row") + ", and there are more"
	case shown < total:
		return fmt.Sprintf("first %s of %s", humanize.Comma(shown), plural(total, "row"))
	}
	return plural(total, "row")
}

func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return humanize.Comma(n) + " " + what
}

// escapeText escapes what a terminal would not show as it is: control characters, characters that
// change the direction of text or have no width, and bytes that are not UTF-8.
func escapeText(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == '\uFFFD' }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\uFFFD' && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}
