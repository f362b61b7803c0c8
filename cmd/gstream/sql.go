package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gstream/gstream/pipeline"
)

// sqlFlags are the flags of gstream sql.
type sqlFlags struct {
	runFlags
	file, format string
	params       []string
	rows         int64
	width        int
}

func newSQL(left *leftovers) *cobra.Command {
	f := sqlFlags{runFlags: runFlags{left: left, session: &pipeline.Session{}}}
	cmd := &cobra.Command{
		Use:   "sql [QUERY]",
		Short: "Run SQL queries over files of Parquet, CSV, JSON lines and Arrow",
		Long: `sql runs the statements of a text in DuckDB's dialect, one after the other: of the
argument, of a file (-f query.sql), or of standard input (-f -). A table is a Parquet
file, a folder or a pattern by its path or address (s3://, gs://, az://, https://) in single quotes, a
file of CSV, JSON lines or Arrow by its path, or a view. read_csv('-'), read_json('-') and
read_arrow('-') are standard input.

  SELECT …, FROM …, WITH …   prints rows
  COPY (SELECT …) TO 'path' (PARTITION_BY (a), COMPRESSION zstd, OVERWRITE)
                             writes Parquet files and prints the report of the run;
                             the options are those of the output of a job, and DuckDB's.
                             To x.csv or x.jsonl, also with .gz or .zst, it writes text,
                             to x.arrow or x.arrows Arrow; '-' with (FORMAT csv), json or
                             arrow is standard output
  CREATE VIEW v AS …         names a query for the statements after it
  CREATE TEMP TABLE t AS …   does too; each statement that reads it computes its rows
  EXPLAIN …                  prints how a statement would run, and EXPLAIN ANALYZE how it
                             did, as gstream explain, also with --format json
  DESCRIBE …                 prints the columns of a query or table and their types
  SUMMARIZE …                prints a row of statistics for each column
  SET name = value           sets threads, memory_limit, temp_directory, device and others
                             for the statements after it

A table has the types under the names, and shows the first 40 rows. csv, json and markdown
have all rows and whole values; gstream show --help describes them. --rows bounds either.

A parameter is a value: $day, or $1, or ?, which is the next number. --param gives it. A
number, true, false and null are what they look like; everything else is a text, which
becomes a date or a number where the query needs one, and so is a value in single quotes.

Without a query, on a terminal, sql is a shell: it has a history and completes names, a
statement ends with a semicolon, Ctrl-C ends a query, and .help lists its commands.`,
		Example: `  gstream sql "SELECT count(*) FROM 'data/orders.parquet'"
  gstream sql "FROM 'data/*.parquet' WHERE o_orderdate = \$day" --param day=2026-01-31
  gstream sql -f report.sql --format csv > report.csv
  gstream sql "COPY (FROM 'in/*.parquet' ORDER BY id) TO 'out/' (COMPRESSION zstd)"
  gstream sql "EXPLAIN ANALYZE SELECT a, sum(b) FROM 'x.parquet' GROUP BY a"
  gstream sql "SUMMARIZE 'data/orders.parquet'"`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.sql,
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "file with the text; - is standard input")
	cmd.Flags().StringArrayVarP(&f.params, "param", "p", nil,
		"value of a parameter, as in --param day=2026-01-31 or --param 1=10 (repeatable)")
	cmd.Flags().StringVar(&f.format, "format", "table", "form of printed rows: table, csv, json or markdown")
	complete(cmd, "format", rowFormats...)
	cmd.Flags().Int64Var(&f.rows, "rows", -1, "maximum number of rows to print (default: 40 in a table, otherwise all)")
	cmd.Flags().IntVar(&f.width, "width", 0,
		"width of a table in characters (default: that of the terminal, or 120 if there is none); -1 is unbounded")
	f.registerMachine(cmd)
	f.registerRun(cmd)
	return cmd
}

// tableRows is the number of rows that a table has unless --rows says another.
const tableRows = 40

func (f *sqlFlags) sql(cmd *cobra.Command, args []string) (err error) {
	if f.rows < -1 {
		return usageError(fmt.Errorf("--rows %d: must not be negative", f.rows))
	}
	if _, err := newRowWriter(f.format, nil, 0); err != nil {
		return err
	}
	if f.hostMemory != "" {
		ballast = nil
	}
	if f.file == "" && len(args) == 0 && interactive(cmd) {
		return f.shell(cmd)
	}
	text, err := f.text(cmd, args)
	if err != nil {
		return err
	}
	params, err := f.parameters()
	if err != nil {
		return err
	}
	statements, err := f.session.Parse(f.name(), text, params)
	if err != nil {
		return err
	}
	if err := f.checkFiles(statements); err != nil {
		return err
	}
	devices := devicePool{}
	if !f.left.ends {
		defer func() { err = errors.Join(err, devices.close()) }()
	}
	if len(statements) == 0 {
		return usageError(errors.New("the text has no statement"))
	}
	return f.statements(cmd, statements, devices)
}

// statements runs statements one after the other, with an empty line between the results of two.
func (f *sqlFlags) statements(cmd *cobra.Command, list []*pipeline.Statement, devices devicePool) error {
	printed := false
	for _, st := range list {
		prints := st.Kind == pipeline.QueryStatement || st.Kind == pipeline.ExplainStatement
		if prints && printed {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		printed = printed || prints
		if err := f.statement(cmd, st, devices); err != nil {
			return err
		}
	}
	return nil
}

// text returns the text of the argument, of the file or of standard input.
func (f *sqlFlags) text(cmd *cobra.Command, args []string) (string, error) {
	switch {
	case f.file != "" && len(args) > 0:
		return "", usageError(errors.New("there are a query and --file; give one of them"))
	case f.file == "-":
		return readText(cmd.InOrStdin())
	case f.file != "":
		file, err := os.Open(f.file)
		if err != nil {
			return "", err
		}
		defer file.Close()
		return readText(file)
	case len(args) == 0:
		return "", usageError(fmt.Errorf("give a query, or a file by --file; see %s --help", cmd.CommandPath()))
	}
	return args[0], nil
}

// readText reads a text. Of one that is longer than a text may be it reads so much that the parser refuses it.
func readText(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, pipeline.MaxSQL+1))
	return strings.TrimPrefix(string(text), "\ufeff"), err
}

// name is the name of the text in errors.
func (f *sqlFlags) name() string {
	if f.file == "-" {
		return "standard input"
	}
	return f.file
}

var numberValue = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)

// parameters returns the values of --param.
func (f *sqlFlags) parameters() (pipeline.Params, error) {
	params := pipeline.Params{}
	for _, p := range f.params {
		name, value, ok := strings.Cut(p, "=")
		if name = strings.TrimPrefix(name, "$"); !ok || name == "" {
			return nil, usageError(fmt.Errorf("--param %s: must be name=value", p))
		}
		if _, ok := params[name]; ok {
			return nil, usageError(fmt.Errorf("--param %s: the parameter has a value already", p))
		}
		switch {
		case numberValue.MatchString(value):
			params[name] = json.Number(strings.TrimPrefix(value, "+"))
		case strings.EqualFold(value, "true"), strings.EqualFold(value, "false"):
			params[name], _ = strconv.ParseBool(strings.ToLower(value))
		case strings.EqualFold(value, "null"):
			params[name] = nil
		case len(value) > 1 && value[0] == '\'' && value[len(value)-1] == '\'':
			params[name] = strings.ReplaceAll(value[1:len(value)-1], "''", "'")
		default:
			params[name] = value
		}
	}
	return params, nil
}

// checkFiles refuses a file of --report and --timeline for several runs, and for none.
func (f *sqlFlags) checkFiles(statements []*pipeline.Statement) error {
	copies := 0
	for _, st := range statements {
		if st.Kind == pipeline.CopyStatement {
			copies++
		}
	}
	for flag, path := range map[string]string{"--report": f.report, "--timeline": f.timeline,
		"--cpu-profile": f.cpuProfile, "--telemetry": strings.Join(f.telemetry, " ")} {
		if path != "" && copies == 0 {
			return usageError(fmt.Errorf("%s %s: only the run of a COPY has one; EXPLAIN ANALYZE prints what a query "+
				"did", flag, path))
		}
	}
	return f.checkReports(copies, "COPY")
}

// statement runs a statement.
func (f *sqlFlags) statement(cmd *cobra.Command, st *pipeline.Statement, devices devicePool) error {
	switch st.Kind {
	case pipeline.DefineStatement, pipeline.SetStatement:
		return st.Apply(cmd.Context())
	case pipeline.CopyStatement:
		return f.runJob(cmd, "COPY", st.Job, devices)
	case pipeline.ExplainStatement:
		job, err := st.Job()
		if err != nil {
			return err
		}
		var target pipeline.Target
		if !st.Writes() {
			target = &rowTarget{rows: noRows{}}
		}
		format := "text"
		if f.format == "json" {
			format = f.format
		}
		return f.explained(cmd, job, target, format, st.Analyze, false)
	}
	return f.query(cmd, st)
}

// query prints the rows of a query.
func (f *sqlFlags) query(cmd *cobra.Command, st *pipeline.Statement) error {
	most := f.rows
	if most < 0 && f.format == "table" {
		most = tableRows
	}
	target := &rowTarget{most: most}
	if most < 0 {
		target.most = math.MaxInt64
	}
	stdout, err := cmd.OutOrStdout(), error(nil)
	out := bufio.NewWriterSize(stdout, 64<<10)
	if target.rows, err = newRowWriter(f.format, out, tableWidth(f.width, stdout)); err != nil {
		return err
	}
	kind := f.progress
	if file, ok := stdout.(*os.File); ok && kind == "auto" && f.format != "table" && term.IsTerminal(int(file.Fd())) {
		kind = "none" // it would erase rows
	}
	_, err = f.watched(cmd, kind, func(show progress) (*pipeline.Report, error) {
		return f.fetch(cmd, st, most, target, show)
	})
	if err != nil {
		return err // without printing the buffer
	}
	total := int64(-1)
	if target.seen.Load() <= target.most {
		total = target.seen.Load()
	}
	if err := target.rows.end(target.shown(), total); err != nil {
		return err
	}
	return out.Flush()
}

// fetch runs a query into a target. most is the number of rows that are wanted, negative for all.
func (f *sqlFlags) fetch(cmd *cobra.Command, st *pipeline.Statement, most int64, target pipeline.Target,
	show progress) (_ *pipeline.Report, err error) {
	opt, err := f.options(cmd)
	if err != nil {
		return nil, err
	}
	if opt.Threads > 0 {
		runtime.GOMAXPROCS(opt.Threads)
	}
	job, err := st.Job()
	if err != nil {
		return nil, err
	}
	var p *pipeline.Plan
	if most < 0 {
		p, err = pipeline.NewPlanWith(cmd.Context(), job, pipeline.PlanOptions{WithoutRules: f.withoutRules,
			Target: target})
	} else {
		var preview *pipeline.Preview
		// One more row, which is not shown, tells whether there are more.
		if preview, err = pipeline.NewPreview(cmd.Context(), job, "", min(most, math.MaxInt64-1)+1,
			target); err == nil {
			p = preview.Plan
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	opt.Progress, opt.Interval = show.update, show.interval()
	return p.Run(cmd.Context(), opt)
}
