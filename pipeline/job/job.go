// Package job reads job files: their structure (Job), the YAML that fills it (Load, Parse),
// variables, and the checks that need no table. It also finds the location of a value in
// the file, so that later errors can point there.
//
// A job built in Go has the same structure and no file. The bytes of a file are
// untrusted: every mistake in them is a Diagnostic with its location, and all mistakes are
// listed.
package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
	sinkarrow "github.com/gstream/gstream/sink/arrow"
	"github.com/gstream/gstream/sink/ordered"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	sinktext "github.com/gstream/gstream/sink/text"
	sourcearrow "github.com/gstream/gstream/source/arrow"
	sourcetext "github.com/gstream/gstream/source/text"
)

// Job is the content of a job file, or of the Go builder. The struct tags are its only
// description: the parser, the checks, the JSON Schema and docs/job-file.md use them.
type Job struct {
	Name        string            `yaml:"name" doc:"Name of the job, for reports."`
	Description string            `yaml:"description" doc:"What the job is for."`
	Vars        map[string]Var    `yaml:"vars" doc:"Variables of the job: a default value, or {default, description}; without a default it must be set with --set name=value. Use them as ${name} in any value: in an expression it is a value, such as a text or a number; elsewhere its text is inserted. ${env:NAME} is an environment variable, ${env:NAME:-default} one with a default, $$ a dollar sign."`
	Memory      Memory            `yaml:"memory" doc:"Memory budgets."`
	Sources     map[string]Source `yaml:"sources" doc:"Tables to read, by name."`
	Steps       []Step            `yaml:"steps" doc:"Operations, in order. A step reads the previous step unless it has from."`
	Query       Path              `yaml:"query" doc:"File with an SQL query, in place of steps, as in query: report.sql. Its tables are the sources, and Parquet files by their paths in quotes, relative to the job file. Its parameters, such as $day, are the variables of the job."`
	Output      Output            `yaml:"output" doc:"Destination of the last step's rows."`
	Outputs     []Output          `yaml:"outputs" doc:"Several outputs, in place of output. They share their steps, and appear together or not at all."`

	// file is the path of the job file, for errors; empty for a job built in Go.
	file string
	// locations maps a path in the structure, such as "steps[2].filter", to the location of
	// the value in the file.
	locations map[string]Location
	// source is the text of the job file. origins are the values in it that may contain
	// expressions.
	source  string
	origins map[string]*origin
	// dir is the folder to which paths in SQL are relative.
	dir string
	// sql is the text of a job that FromSQL has made or that has a query; nil for other jobs.
	sql *SQL
	// named are the paths of sources that SQL names by their files.
	named map[string]bool
	// values maps parts of expressions to the values of their variables.
	values syntax.Values
	// checks are the expectations of the steps, once WithChecks has made steps of them.
	checks []Check
}

// Values returns the values of the variables in the job's expressions, such as ${day}.
func (j *Job) Values() syntax.Values { return j.values }

// Var is a variable of a job file.
type Var struct {
	Default     *string `yaml:"default" doc:"Value when the variable is not set."`
	Type        string  `yaml:"type" doc:"Type of ${name} in an expression. If it is missing, the form of the default decides: a number, true or false, a date; anything else, or no default, is a text. A text takes its type from the other operand, as '5' does. sql is not a value but any part of an expression: the name of a column, a condition." enum:"text,number,boolean,date,timestamp,sql"`
	Description string  `yaml:"description" doc:"What the variable is for."`
	// looks is the type that the form of the default suggests.
	looks string
}

// Memory has the budgets of a run; 0 means the default of the device.
type Memory struct {
	Device Size `yaml:"device" doc:"Device memory, as in 8GiB. The default is 80 % of free memory."`
	Host   Size `yaml:"host" doc:"Host memory, as in 16GiB. The default is half of free memory."`
	// Spill has the files for rows that fit neither.
	Spill Spill `yaml:"spill" doc:"Files for rows that do not fit memory."`
}

// Spill says where rows go that do not fit memory. Zeros mean the defaults.
type Spill struct {
	Dir         string `yaml:"dir" doc:"Folder for the files, or none. The default is $TMPDIR, or else /var/tmp. The files have no names and vanish with the process."`
	Limit       Size   `yaml:"limit" doc:"Maximum size of all files, as in 100GiB. The default is four fifths of the free space."`
	Compression string `yaml:"compression" doc:"Compression of the files." enum:"lz4,none" default:"lz4"`
}

// Source is a table to read.
type Source struct {
	Parquet    Paths `yaml:"parquet" doc:"Parquet files, folders and patterns with *, ?, [a-z] and **, read as one table, also as addresses s3://bucket/key, gs://bucket/key, az://container/key and https://host/file. Paths are relative to the job file; a path that begins with a variable from --set or the environment is relative to the working directory."`
	CSV        Paths `yaml:"csv" doc:"CSV files and patterns, read as one table; - is standard input; .gz and .zst are decompressed. A path alone, as in x: data/x.csv, is csv if it ends in .csv or .tsv, also before .gz or .zst. What the keys below do not give, a sample of the first 20,480 rows decides, as in DuckDB ([CSV](csv.md))."`
	JSON       Paths `yaml:"json" doc:"Files of JSON and patterns: an object on each line, or a list of objects (format). A path alone is json if it ends in .jsonl, .ndjson or .json, also before .gz or .zst. Lists are LISTs, and objects STRUCTs or MAPs. Of the keys below, format, types, union_by_name, ignore_errors, rejects, partitions and schema apply."`
	Arrow      Paths `yaml:"arrow" doc:"Files of Arrow's IPC format and patterns, read as one table: Arrow files (Feather version 2) and Arrow streams, whatever their names; - is a stream on standard input. A path alone is arrow if it ends in .arrow, .arrows, .feather or .ipc. All files have the columns and types of the first one."`
	CSVOptions `yaml:",inline"`
	Partitions Partitions `yaml:"partitions" doc:"Columns in the names of folders, as in y=2024/m=3: auto (default) finds them and their types; none treats the folders as ordinary folders. A mapping of names to SQL types, as in {y: INTEGER}, sets types."`
	Optional   bool       `yaml:"optional" doc:"The files may be missing. The source then has no rows, and the columns of its schema, which must be a mapping." default:"false"`
	Schema     Schema     `yaml:"schema" doc:"How columns of several files become columns of one table. unify (default) finds for each column a type that holds the values of all files; a column is null in the rows of files that lack it. strict makes any difference an error. A mapping of names to SQL types, as in {id: BIGINT, price: 'DECIMAL(12,2)'}, sets the columns of the table, and the files are checked against it. For CSV it has all columns, in the order of the file."`
}

// CSVOptions say how CSV files are read.
type CSVOptions struct {
	Delimiter       string      `yaml:"delimiter" doc:"CSV: the character between fields. Without it, the sample decides between , | ; and a tab."`
	Quote           string      `yaml:"quote" doc:"CSV: the character around fields with delimiters or line breaks in them, or none. Without it, the sample decides between \" and '."`
	Escape          string      `yaml:"escape" doc:"CSV: the character before a quote in a quoted field. The default is the quote itself, or \\ if the sample says so."`
	Header          *bool       `yaml:"header" doc:"CSV: whether the first row has the names of the columns. Without it, the sample decides. Without a header, columns are named column0, column1 and so on."`
	Nulls           []string    `yaml:"nulls" doc:"CSV: the texts that mean null, quoted or not, as in ['', NA]. The default is the empty text."`
	Skip            int64       `yaml:"skip" doc:"CSV: the number of lines before the header, which are not read."`
	DateFormat      string      `yaml:"dateformat" doc:"CSV: the format of dates, as strptime reads it, as in %d/%m/%Y. Without it, dates are written as 2020-12-31, or in the one other form that fits all dates of the sample."`
	TimestampFormat string      `yaml:"timestampformat" doc:"CSV: the format of timestamps, as in '%d.%m.%Y %H:%M'. Without it as for dates."`
	Types           ColumnTypes `yaml:"types" doc:"CSV: SQL types of some columns, as in {price: 'DECIMAL(12,2)'}. The sample decides the others."`
	NullPadding     bool        `yaml:"null_padding" doc:"CSV: whether columns that a row lacks at its end are null. Without it, such a row is an error." default:"false"`
	UnionByName     bool        `yaml:"union_by_name" doc:"CSV or JSON: whether files may have other columns than the first one. All files are sampled, and columns are matched by name. A column is null in the rows of files that lack it, and has a type for the values of all files." default:"false"`
	Format          string      `yaml:"format" doc:"JSON: where the objects are: each on a line (newline_delimited), in one list (array), or one behind the other, over any lines (unstructured). Without it, the begin of the file decides." enum:"auto,newline_delimited,array,unstructured" default:"auto"`
	AllVarchar      bool        `yaml:"all_varchar" doc:"CSV: whether all columns are VARCHAR whose types are not given." default:"false"`
	IgnoreErrors    bool        `yaml:"ignore_errors" doc:"CSV: whether rows that cannot be read are left out. The report has their number. rejects also writes them to a file." default:"false"`
	Rejects         Path        `yaml:"rejects" doc:"CSV: file for rows that cannot be read: a CSV file with file, line, column, reason and text of each. Without it, the first such row is an error. It is complete when it appears, once all rows have been read, and it replaces one of an earlier run."`
}

// ColumnTypes are the types of some columns.
type ColumnTypes []SchemaColumn

// Files returns the paths of a source, whatever their format.
func (s *Source) Files() Paths { return slices.Concat(s.Parquet, s.CSV, s.JSON, s.Arrow) }

// Text returns the paths of a source of CSV or JSON lines.
func (s *Source) Text() Paths { return slices.Concat(s.CSV, s.JSON) }

// SourceOf returns the source of paths: of CSV, JSON lines or Arrow if all are named so.
func SourceOf(paths ...string) (s Source) {
	list := make(Paths, len(paths))
	for i, p := range paths {
		list[i] = Path(p)
	}
	all := func(named func(string) bool) bool {
		return len(paths) > 0 && !slices.ContainsFunc(paths, func(p string) bool { return !named(p) })
	}
	switch {
	case all(sourcetext.Named):
		s.CSV = list
	case all(sourcetext.NamedJSON):
		s.JSON = list
	case all(sourcearrow.Named):
		s.Arrow = list
	default:
		s.Parquet = list
	}
	return s
}

// Schema says which columns a source has. The zero value unifies those of its files.
type Schema struct {
	// Strict makes it an error if files have different columns or types.
	Strict bool
	// Columns are the columns of the source, in order; empty for all columns of the files.
	Columns []SchemaColumn
}

// Partitions says how the names of folders become columns. The zero value finds the columns and
// their types.
type Partitions struct {
	// None treats folders such as y=2024 as ordinary folders.
	None bool
	// Types are the types of some of the columns.
	Types []SchemaColumn
}

// SchemaColumn is a column of a source and its SQL type, such as DECIMAL(12,2).
type SchemaColumn struct{ Name, Type string }

// Step is one relation: an input and exactly one operation on it.
type Step struct {
	Name     string        `yaml:"name" doc:"Name by which later steps and errors refer to the step."`
	From     string        `yaml:"from" doc:"Source or step to read. The default is the previous step, or the only source."`
	Filter   string        `yaml:"filter" sql:"true" doc:"SQL condition. The rows on which it is true remain."`
	Select   Columns       `yaml:"select" sql:"true" doc:"Columns of the result: SQL expressions, 'expression as name', {name: expression}, or '*' for all, as in '* exclude (a) replace (b + 1 as b) rename (c as d)'."`
	Distinct Columns       `yaml:"distinct" sql:"true" doc:"Columns as in select; of equal rows one remains (SELECT DISTINCT). true or '*' means all columns."`
	Qualify  string        `yaml:"qualify" sql:"true" doc:"SQL condition over window functions, as in row_number() over (partition by a order by b) <= 3. The rows on which it is true remain. It is a step of its own, or part of a step with select or distinct, whose columns it may use by name."`
	SQL      string        `yaml:"sql" sql:"true" doc:"SQL query whose tables are sources, earlier steps, and Parquet files by their paths in quotes, as in SELECT count(*) FROM 'x/*.parquet'. CREATE VIEW and CREATE TEMP TABLE may stand before it."`
	Join     *Join         `yaml:"join" doc:"Join with another source or step."`
	Group    *Group        `yaml:"group" doc:"One row for each group, with aggregates."`
	Sort     []string      `yaml:"sort" sql:"true" doc:"Order of rows: 'expression [asc|desc] [nulls first|nulls last]', most significant first; ascending with nulls last by default. A number is the position of a column of the input, from 1."`
	Limit    *Limit        `yaml:"limit" doc:"Keeps only the first rows: a number, or {count, offset}."`
	Expect   []Expectation `yaml:"expect" doc:"What must be true of the rows of this step. If it is not, the run fails with exit code 3, and nothing is written."`
	Unnest   *Unnest       `yaml:"unnest" doc:"One row for each element of a list: an SQL expression with a LIST, or {list, as, ordinality, outer}."`
	Union    []string      `yaml:"union" doc:"Sources or steps whose rows follow those of the input (UNION ALL); columns are matched by position."`
}

// Join joins the step's input, which is the left side, with another relation.
type Join struct {
	With      string   `yaml:"with" doc:"Source or step on the right side." required:"true"`
	As        string   `yaml:"as" doc:"Name of the right side in expressions, as in 'm.name'. The default is the name of the source or step. A relation that is joined with itself needs one."`
	Kind      string   `yaml:"kind" doc:"Kind of join. A mark join returns all rows of its input, with a BOOLEAN that says whether the row has a match." enum:"inner,left,right,full,semi,anti,mark,cross" default:"inner"`
	On        []string `yaml:"on" sql:"true" doc:"SQL conditions that all must be true. Without an equality (= or IS NOT DISTINCT FROM) or an inequality (<, <=, >, >=, BETWEEN) of the left and the right side, all pairs of rows are compared. A cross join has none."`
	Using     []string `yaml:"using" doc:"Columns of the same name that must be equal. They appear once in the result."`
	Mark      string   `yaml:"mark" doc:"Name of the BOOLEAN column of a mark join. The default is matched."`
	Build     string   `yaml:"build" doc:"Build side. The default is the smaller side, by estimate; for mark joins the right side." enum:"auto,left,right" default:"auto"`
	Order     string   `yaml:"order" doc:"auto lets an inner join change places with the inner joins before and after it, by estimate. as written keeps its place, and so does a join with build or algorithm." enum:"auto,as written" default:"auto"`
	Algorithm string   `yaml:"algorithm" doc:"Forces an algorithm, for measurements. It changes the time, the memory and, except npj, the order of the rows." enum:"npj,phj-ur,phj-tr,smj-ur,smj-tr,mpj,large-s,triton,bucket,rhj-double,rhj-pages,rhj-direct,rhj-whole"`
}

// Group groups the step's input.
type Group struct {
	By         Columns    `yaml:"by" sql:"true" doc:"Group keys: SQL expressions, optionally named. A number is the position of a column of the input, from 1. Without keys, all rows are one group."`
	Sets       [][]string `yaml:"sets" doc:"Grouping sets (GROUPING SETS), at most 64: lists of keys by name, as in [[a, b], [a], []]. The rows are grouped by the keys of each set, and the other keys are null. grouping(a, b) distinguishes the sets."`
	Rollup     bool       `yaml:"rollup" doc:"The sets of all keys, of all but the last one, and so on to the empty set (ROLLUP)."`
	Cube       bool       `yaml:"cube" doc:"All subsets of the keys, which are at most 6 (CUBE)."`
	Algorithm  string     `yaml:"algorithm" doc:"Forces an algorithm, for measurements. It changes the time and the memory." enum:"hgb-g,hgb,hgb-t,sgb-ur,sgb-tr,sgb-de-tr,sgb-stride,pgb-ur,pgb-tr"`
	Aggregates Columns    `yaml:"aggregates" sql:"true" doc:"Columns by name: SQL expressions over aggregates such as count(*), sum(x), count(distinct x) and avg(x) filter (where y > 0)."`
}

// Limit keeps the rows [Offset, Offset+Count).
type Limit struct {
	Count  int64 `yaml:"count" doc:"Number of rows to keep." required:"true"`
	Offset int64 `yaml:"offset" doc:"Number of rows to skip first."`
}

// Unnest repeats the rows of the step's input for the elements of a list.
type Unnest struct {
	List       string `yaml:"list" sql:"true" doc:"SQL expression with a LIST, as in orders or map_entries(tags)." required:"true"`
	As         string `yaml:"as" doc:"Name of the column of the elements, which follows those of the input." default:"unnest"`
	Ordinality string `yaml:"ordinality" doc:"Name of a further column with the position of the element, from 1."`
	Outer      bool   `yaml:"outer" doc:"Whether a row whose list is empty or null stays, with a null for the element." default:"false"`
}

// Output is a destination of the rows of a step.
type Output struct {
	From                string `yaml:"from" doc:"Source or step whose rows are written. The default is the last step."`
	Parquet             Path   `yaml:"parquet" doc:"Parquet file to write. With files, rows_per_file or partition_by, or a / at the end, as in out/, it is a folder of files; a / alone makes files of about 128 MiB."`
	CSV                 Path   `yaml:"csv" doc:"CSV file to write, in place of parquet; - is standard output. A name that ends in .gz or .zst is compressed. Of the keys below, delimiter, header, nulls, overwrite and sync apply."`
	JSON                Path   `yaml:"json" doc:"File of JSON lines to write, in place of parquet: an object for each row. Otherwise as csv, without delimiter, header and nulls."`
	Arrow               Path   `yaml:"arrow" doc:"File of Arrow's IPC format to write, in place of parquet: an Arrow file (Feather version 2), or a stream if the name ends in .arrows or is -, standard output. Of the keys below, compression (none by default, lz4 or zstd), overwrite and sync apply."`
	TextOptions         `yaml:",inline"`
	sinkparquet.Options `yaml:",inline"`
}

// TextOptions say how CSV is written.
type TextOptions struct {
	Delimiter string `yaml:"delimiter" doc:"CSV: the character between fields. The default is a comma, in a .tsv file a tab."`
	Header    *bool  `yaml:"header" doc:"CSV: whether the first line has the names of the columns. The default is true."`
	Null      string `yaml:"nulls" doc:"CSV: the text of a null. The default is no text; an empty text is then in quotes."`
}

// Written returns the outputs of the job.
func (j *Job) Written() []Output {
	if len(j.Outputs) > 0 {
		return j.Outputs
	}
	return []Output{j.Output}
}

// OutputPath returns the path of output i of Written, for Location.
func (j *Job) OutputPath(i int) string {
	if len(j.Outputs) > 0 {
		return fmt.Sprintf("outputs[%d]", i)
	}
	return "output"
}

// Path returns the path of an output, whatever its format, and the key that has it.
func (o *Output) Path() (path, key string) {
	switch {
	case o.CSV != "":
		return string(o.CSV), "csv"
	case o.JSON != "":
		return string(o.JSON), "json"
	case o.Arrow != "":
		return string(o.Arrow), "arrow"
	}
	return string(o.Parquet), "parquet"
}

// Text returns the options of an output of CSV or JSON lines. ok is false for others.
func (o *Output) Text() (opt sinktext.Options, ok bool) {
	path, key := o.Path()
	if key != "csv" && key != "json" {
		return opt, false
	}
	opt = sinktext.Options{Format: sinktext.Format(key), Delimiter: o.Delimiter, Null: o.Null,
		NoHeader: o.Header != nil && !*o.Header, Options: o.ordered()}
	if opt.Delimiter == "" && strings.Contains(strings.ToLower(filepath.Base(path)), ".tsv") {
		opt.Delimiter = "\t"
	}
	return opt, true
}

// ArrowOptions returns the options of an output of Arrow. ok is false for others.
func (o *Output) ArrowOptions() (opt sinkarrow.Options, ok bool) {
	_, key := o.Path()
	return sinkarrow.Options{Compression: o.Compression, Options: o.ordered()}, key == "arrow"
}

// ordered returns the options of an output that is one file.
func (o *Output) ordered() ordered.Options {
	return ordered.Options{Overwrite: o.Overwrite, Sync: o.Sync}
}

// Path is a file path. In a job file it is relative to that file, unless it begins with a
// variable that was set on the command line or in the environment.
type Path string

// Paths is a list of paths or a single one.
type Paths []Path

// Size is a number of bytes. A job file writes it as 512MiB or 8GB.
type Size int64

// Column is an expression and the name of its result. The name is empty when the
// expression has it ("a", "a + 1 as b", "*").
type Column struct{ Name, Expr string }

// Columns is a list of columns. In a job file it is a list of expressions and {name:
// expression} entries, or one mapping of names to expressions.
type Columns []Column

// Location is a position in a job file. The zero Location means that it is unknown.
type Location struct{ Line, Column int }

// File is the path of the job file, empty for a job built in Go.
func (j *Job) File() string { return j.file }

// Location returns the location of a value in the job file, or else of the nearest value around
// it. A path in the structure such as "steps[2].filter" identifies the value.
func (j *Job) Location(path string) Location {
	for path != "" {
		if p, ok := j.locations[path]; ok {
			return p
		}
		path = parentPath(path)
	}
	return Location{}
}

// StepPath returns the path of step i, and SourcePath that of a source, for Location.
func StepPath(i int) string         { return fmt.Sprintf("steps[%d]", i) }
func SourcePath(name string) string { return "sources." + name }

func parentPath(path string) string {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '.' || path[i] == '[' {
			return path[:i]
		}
	}
	return ""
}

// StepName returns the name of step i in errors and reports.
func StepName(steps []Step, i int) string {
	s := &steps[i]
	if s.Name != "" {
		return s.Name
	}
	return fmt.Sprintf("%s %d", s.verb(), i+1)
}

// verb returns the kind of the step, or "step" if it has none.
func (s *Step) verb() string {
	if v := s.verbs(); len(v) > 0 {
		return v[0]
	}
	return "step"
}

func (s *Step) verbs() []string {
	var v []string
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"sql", s.SQL != ""}, {"filter", s.Filter != ""}, {"select", s.Select != nil}, {"distinct", s.Distinct != nil},
		{"join", s.Join != nil}, {"group", s.Group != nil},
		{"sort", s.Sort != nil}, {"limit", s.Limit != nil}, {"unnest", s.Unnest != nil},
		{"union", s.Union != nil},
		{"qualify", s.Qualify != "" && s.Select == nil && s.Distinct == nil},
	} {
		if k.set {
			v = append(v, k.name)
		}
	}
	return v
}
