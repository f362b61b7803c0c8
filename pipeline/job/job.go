// Package job is the job file: its structure (Job), the YAML that fills it (Load, Parse),
// its variables, and the checks that need no table. It also finds the place of a value in
// the file, so that later stages can point there.
//
// A job built in Go has the same structure and no file. The bytes of a file are
// untrusted: every mistake in them is a Diagnostic with its place, and all mistakes are
// listed.
package job

import (
	"fmt"

	"github.com/gstream/gstream/operators/expr/syntax"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// Job is the content of a job file, or what the Go builder fills in. The struct tags are
// its only description: the parser, the checks and the JSON Schema use them.
type Job struct {
	Name        string            `yaml:"name" doc:"Name of the job, for reports."`
	Description string            `yaml:"description" doc:"What the job is for."`
	Vars        map[string]Var    `yaml:"vars" doc:"Variables of the job: a default value, or {default, description}; without a default it must be set with --set name=value. Use them as ${name} in any value: in an expression it is a value, such as a text or a number, elsewhere it is text in its place. ${env:NAME} is an environment variable, ${env:NAME:-default} one with a default, $$ a dollar sign."`
	Memory      Memory            `yaml:"memory" doc:"Memory budgets."`
	Sources     map[string]Source `yaml:"sources" doc:"Tables to read, by name."`
	Steps       []Step            `yaml:"steps" doc:"What to do, in order. A step reads the step before it unless it says from."`
	Output      Output            `yaml:"output" doc:"Where the last step's rows go."`

	// file is the path of the job file, for errors; empty for a job built in Go.
	file string
	// places has the place of each value in the file, by its path in the structure, such
	// as "steps[2].filter".
	places map[string]Place
	// source is the text of the job file. origins are the values in it that may contain
	// expressions.
	source  string
	origins map[string]*origin
	// values are those of the variables in expressions, by the parts of their texts.
	values syntax.Values
}

// Values returns the values that stand for parts of the job's expressions, such as ${day}.
func (j *Job) Values() syntax.Values { return j.values }

// Var is a variable of a job file.
type Var struct {
	Default     *string `yaml:"default" doc:"Value when the variable is not set."`
	Type        string  `yaml:"type" doc:"What ${name} is in an expression. By default it is what the default looks like: a number, true or false, a date, and a text for all others and without a default. A text takes its type from the other operand, as '5' does. sql is no value but any piece of an expression: the name of a column, a condition." enum:"text,number,boolean,date,timestamp,sql"`
	Description string  `yaml:"description" doc:"What the variable is for."`
	// looks is the type that the default looks like.
	looks string
}

// Memory has the budgets of a run; 0 is the default of the device.
type Memory struct {
	Device Size `yaml:"device" doc:"Device memory (80 % of what is free by default), as in 8GiB."`
	Host   Size `yaml:"host" doc:"Host memory (half of what is free by default), as in 16GiB."`
	// Spill has the files for rows that fit neither.
	Spill Spill `yaml:"spill" doc:"Files for rows that do not fit memory."`
}

// Spill says where rows go that do not fit memory. Zeros are the defaults.
type Spill struct {
	Dir         string `yaml:"dir" doc:"Folder for files ($TMPDIR, or else /var/tmp by default), or none. The files have no names and vanish with the process."`
	Limit       Size   `yaml:"limit" doc:"Most bytes of the files, as in 100GiB (four fifths of the free space by default)."`
	Compression string `yaml:"compression" doc:"Compression of the files." enum:"lz4,none" default:"lz4"`
}

// Source is a table to read.
type Source struct {
	Parquet    Paths      `yaml:"parquet" doc:"Parquet files, folders and patterns with *, ?, [a-z] and **, read as one table. Paths are relative to the job file; those that begin with a variable given by --set or the environment are relative to the working directory."`
	Partitions Partitions `yaml:"partitions" doc:"Columns in the names of folders, as in y=2024/m=3: auto (default) finds them and their types, none takes the folders for plain ones. A mapping of names to SQL types, as in {y: INTEGER}, gives types."`
	Optional   bool       `yaml:"optional" doc:"The files may be missing: then the source has no rows, and the columns of its schema, which must be a mapping." default:"false"`
	Schema     Schema     `yaml:"schema" doc:"How columns of several files become those of one table: unify (default) finds for each column a type that holds the values of all files, and a column that a file lacks is null there; strict makes any difference an error. A mapping of names to SQL types, as in {id: BIGINT, price: 'DECIMAL(12,2)'}, gives the columns of the table, and the files are checked against it."`
}

// Schema says what the columns of a source are. The zero value unifies those of its files.
type Schema struct {
	// Strict makes it an error if files have different columns or types.
	Strict bool
	// Columns are the columns of the source, in order; empty for all columns of the files.
	Columns []SchemaColumn
}

// Partitions says how the names of folders become columns. The zero value finds them.
type Partitions struct {
	// None takes folders such as y=2024 for plain ones.
	None bool
	// Types are the types of some of the columns.
	Types []SchemaColumn
}

// SchemaColumn is a column of a source and its SQL type, such as DECIMAL(12,2).
type SchemaColumn struct{ Name, Type string }

// Step is one relation: an input and exactly one operation on it.
type Step struct {
	Name     string   `yaml:"name" doc:"Name by which later steps and errors refer to the step."`
	From     string   `yaml:"from" doc:"Source or step to read; the step before by default, or the only source."`
	Filter   string   `yaml:"filter" sql:"true" doc:"SQL condition that a row must meet to go on."`
	Select   Columns  `yaml:"select" sql:"true" doc:"Columns that go on: SQL expressions, 'expression as name', {name: expression}, or '*' for all, as in '* exclude (a) replace (b + 1 as b) rename (c as d)'."`
	Distinct Columns  `yaml:"distinct" sql:"true" doc:"Columns as in select, of which each different row goes on once (SELECT DISTINCT); true or '*' for all."`
	Qualify  string   `yaml:"qualify" sql:"true" doc:"SQL condition over window functions that a row must meet to go on, as in row_number() over (partition by a order by b) <= 3; in a step of its own, or in one with select or distinct, whose columns it may use by their names."`
	Join     *Join    `yaml:"join" doc:"Join with another source or step."`
	Group    *Group   `yaml:"group" doc:"One row a group, with aggregates."`
	Sort     []string `yaml:"sort" sql:"true" doc:"Order of rows: 'expression [asc|desc] [nulls first|nulls last]', most significant first; ascending with nulls last by default. A number is the position of a column of the input, from 1."`
	Limit    *Limit   `yaml:"limit" doc:"The first rows only: a number, or {count, offset}."`
	Union    []string `yaml:"union" doc:"Sources or steps whose rows follow those of the input (UNION ALL); columns are matched by position."`
}

// Join joins the step's input, which is the left side, with another relation.
type Join struct {
	With      string   `yaml:"with" doc:"Source or step on the right side." required:"true"`
	As        string   `yaml:"as" doc:"Name of the right side in expressions, as in 'm.name'; by default that of the source or step. A relation that is joined with itself needs one."`
	Kind      string   `yaml:"kind" doc:"Kind of join. A mark join has all rows of its input, with a BOOLEAN that says whether the row has a match." enum:"inner,left,right,full,semi,anti,mark,cross" default:"inner"`
	On        []string `yaml:"on" sql:"true" doc:"SQL conditions that all must hold. Without an equality (= or IS NOT DISTINCT FROM) or an inequality (<, <=, >, >=, BETWEEN) of the left and the right side all pairs of rows are compared. A cross join has none."`
	Using     []string `yaml:"using" doc:"Columns of the same name that must be equal; they appear once."`
	Mark      string   `yaml:"mark" doc:"Name of the BOOLEAN column of a mark join; matched by default."`
	Build     string   `yaml:"build" doc:"Side to hold in memory; by default the smaller one, by estimate. Semi, anti and mark joins hold the right one." enum:"auto,left,right" default:"auto"`
	Order     string   `yaml:"order" doc:"Whether an inner join may change places with the inner joins before and after it, by estimate (auto), or keeps its place (as written). A join with build or algorithm keeps its place too." enum:"auto,as written" default:"auto"`
	Algorithm string   `yaml:"algorithm" doc:"Algorithm of the join; chosen by default. It is for measurements: it changes the time, the memory and, except npj, the order of the rows." enum:"npj,phj-ur,phj-tr,smj-ur,smj-tr,mpj,large-s,triton,bucket,rhj-double,rhj-pages,rhj-direct,rhj-whole"`
}

// Group groups the step's input.
type Group struct {
	By         Columns    `yaml:"by" sql:"true" doc:"Group keys: SQL expressions, optionally named. A number is the position of a column of the input, from 1. Without keys all rows are one group."`
	Sets       [][]string `yaml:"sets" doc:"Grouping sets (GROUPING SETS): lists of keys by their names, as in [[a, b], [a], []]. The rows are grouped by the keys of each set, and the other keys are null; grouping(a, b) tells the sets apart. At most 64."`
	Rollup     bool       `yaml:"rollup" doc:"The sets of all keys, of all but the last one, and so on to the empty set (ROLLUP)."`
	Cube       bool       `yaml:"cube" doc:"The sets of all, some and none of the keys (CUBE), at most 6 keys."`
	Algorithm  string     `yaml:"algorithm" doc:"Algorithm of the group-by; chosen by default. It is for measurements: it changes the time and the memory." enum:"hgb-g,hgb,hgb-t,sgb-ur,sgb-tr,sgb-de-tr,sgb-stride,pgb-ur,pgb-tr"`
	Aggregates Columns    `yaml:"aggregates" sql:"true" doc:"Columns by name: SQL expressions over aggregates such as count(*), sum(x), count(distinct x) and avg(x) filter (where y > 0)."`
}

// Limit keeps the rows [Offset, Offset+Count).
type Limit struct {
	Count  int64 `yaml:"count" doc:"Number of rows that go on." required:"true"`
	Offset int64 `yaml:"offset" doc:"Number of rows to leave out first."`
}

// Output is the destination of the result, which is the rows of the last step.
type Output struct {
	Parquet             Path `yaml:"parquet" doc:"Parquet file to write, or the directory of parts when rows_per_file is set." required:"true"`
	sinkparquet.Options `yaml:",inline"`
}

// Path is a file path. In a job file it is relative to that file, unless it begins with a
// variable that was set from outside.
type Path string

// Paths is a list of paths or a single one.
type Paths []Path

// Size is a number of bytes. A job file writes it as 512MiB or 8GB.
type Size int64

// Column is an expression and the name of its result. The name is empty when the
// expression gives it ("a", "a + 1 as b", "*").
type Column struct{ Name, Expr string }

// Columns is a list of columns. In a job file it is a list of expressions and {name:
// expression} entries, or one mapping of names to expressions.
type Columns []Column

// Place is a position in a job file. The zero Place is unknown.
type Place struct{ Line, Column int }

// File is the path of the job file, empty for a job built in Go.
func (j *Job) File() string { return j.file }

// Place returns the place of a value in the job file, or else of the nearest value around
// it. A path in the structure such as "steps[2].filter" identifies the value. The zero
// Place is unknown.
func (j *Job) Place(path string) Place {
	for path != "" {
		if p, ok := j.places[path]; ok {
			return p
		}
		path = parentPath(path)
	}
	return Place{}
}

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

// verb returns the kind of the step, or "step" without one.
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
		{"filter", s.Filter != ""}, {"select", s.Select != nil}, {"distinct", s.Distinct != nil},
		{"join", s.Join != nil}, {"group", s.Group != nil},
		{"sort", s.Sort != nil}, {"limit", s.Limit != nil}, {"union", s.Union != nil},
		{"qualify", s.Qualify != "" && s.Select == nil && s.Distinct == nil},
	} {
		if k.set {
			v = append(v, k.name)
		}
	}
	return v
}
