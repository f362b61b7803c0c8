package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gstream/gstream/operators/expr/syntax"
	sinktext "github.com/gstream/gstream/sink/text"
	sourcearrow "github.com/gstream/gstream/source/arrow"
)

// SQL is a statement of an SQL text with the definitions that it may use.
type SQL struct {
	File string // of the text, for errors; empty for a text that is not from a file
	// Before has definitions of other texts. It ends with a line break, unless it is empty.
	Before string
	// Text has the statement, at its place in the text that the user wrote, and the definitions before it.
	Text   string
	Values syntax.Values // of parameters
	Dir    string        // to which paths are relative; "" means the working directory
	// Copy is the statement if it is COPY, which has the output.
	Copy *syntax.Copy
}

// FromSQL returns a job with one step, the statement. The error is a *syntax.Error at a mistake in the output.
func FromSQL(s SQL) (*Job, error) {
	j := &Job{Name: "sql", Sources: map[string]Source{}, Steps: []Step{{SQL: s.Before + s.Text}}, file: s.File,
		dir:    s.Dir,
		values: s.Values, sql: &s}
	if s.File != "" {
		j.Name = strings.TrimSuffix(filepath.Base(s.File), filepath.Ext(s.File))
	}
	if s.Copy == nil {
		return j, nil
	}
	var err error
	j.Output, err = copyOutput(s.Copy)
	for _, p := range []*Path{&j.Output.Parquet, &j.Output.CSV, &j.Output.JSON, &j.Output.Arrow} {
		path := string(*p)
		if path == "" || path == "-" || filepath.IsAbs(path) || isAddress(path) || s.Dir == "" {
			continue
		}
		if *p = Path(filepath.Join(s.Dir, path)); strings.HasSuffix(path, "/") {
			*p += "/" // a folder
		}
	}
	return j, err
}

// query makes the SQL text of the file that the job names its only step.
func (d *decoder) query() {
	j, at := d.job, d.job.Location("query")
	if len(j.Steps) > 0 {
		d.faultf(at, "the job has steps and a query; the rows are those of one of them, so leave the other out")
		return
	}
	text, err := readQuery(string(j.Query))
	if err != nil {
		fault := &Diagnostic{File: j.file, Location: at, Msg: "query: " + err.Error()}
		if errors.As(err, new(*fs.PathError)) {
			fault.Err = err
		}
		d.faults = append(d.faults, fault)
		return
	}
	names, err := syntax.Parameters(text)
	if err != nil {
		names = nil // the binder reports it
	}
	for _, name := range names {
		// Case does not count in SQL.
		declared := slices.DeleteFunc(sortedKeys(j.Vars), func(v string) bool { return !strings.EqualFold(v, name) })
		if len(declared) == 0 {
			d.faultf(at, "query: %s has the parameter $%s, and the job has no variable of this name%s; declare it "+
				"under vars",
				j.Query, name, DidYouMean(name, sortedKeys(j.Vars)))
			continue
		}
		x := expression{variables: &d.vars}
		val, err := d.vars.value(declared[0], nil)
		if err == nil && x.typeOf(declared[0]) == typeSQL {
			err = fmt.Errorf("the variable %s is of type sql, and a parameter is a value; give it another type",
				declared[0])
		}
		var literal string
		if err == nil {
			literal, err = x.literal(declared[0], val.text)
		}
		if err != nil {
			d.faultf(at, "query: %v", err)
			continue
		}
		j.values[syntax.ParameterKey(name)] = syntax.Value{SQL: literal, Text: val.text, Hidden: val.env}
	}
	j.Steps = []Step{{SQL: text}}
	j.locations[StepPath(0)] = at
	j.sql = &SQL{File: string(j.Query), Text: text}
}

// readQuery reads a file with an SQL text.
func readQuery(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxJobBytes {
		return "", fmt.Errorf("%s is not a file with a text of at most %d bytes", path, maxJobBytes)
	}
	text, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(text)) == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return strings.TrimPrefix(string(text), "\ufeff"), err
}

// FileOf returns the name of the file that has the value at a path of the job.
func (j *Job) FileOf(path string) string {
	if j.sql == nil {
		return j.file
	}
	for at := path; at != ""; at = parentPath(at) {
		if at == StepPath(0)+".sql" || j.named[at] {
			return j.sql.File
		}
	}
	return j.file
}

// locationIn returns the location of a byte of the step's text, unless it is in the definitions of other texts.
func (s *SQL) locationIn(offset int) (Location, bool) {
	if offset -= len(s.Before); offset < 0 || offset > len(s.Text) {
		return Location{}, false
	}
	before := s.Text[:offset]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return Location{strings.Count(before, "\n") + 1, utf8.RuneCountInString(line) + 1}, true
}

// Whole returns an error without the name of the step, if the job is one statement, and without the name of a table
// that is in the message.
func (j *Job) Whole(err error) error {
	var faults Diagnostics
	if j.sql == nil || !errors.As(err, &faults) {
		return err
	}
	for _, d := range faults {
		if d.Step == StepName(j.Steps, 0) || strings.HasPrefix(d.Msg, d.Step+":") {
			d.Step = ""
		}
	}
	return err
}

// copyNames are the options that COPY has by other names than the output of a job: those of DuckDB.
var copyNames = map[string]string{"compression_level": "level", "row_group_size": "row_group_rows"}

// copyInstead are options of DuckDB that are not possible, with what to write instead.
var copyInstead = map[string]string{
	"overwrite_or_ignore": "OVERWRITE replaces an earlier output; other files are never touched",
	"file_size_bytes":     "ROWS_PER_FILE bounds the rows of a file, and FILES the number of files",
	"per_thread_output":   "FILES is the number of files that are written at the same time",
	"row_groups_per_file": "ROWS_PER_FILE bounds the rows of a file",
	"filename_pattern":    "files are named part-00000.parquet and so on",
	"file_extension":      "files are named part-00000.parquet and so on",
	"row_group_size_bytes": "ROW_GROUP_SIZE is the number of rows of a row group; a row group has at most 512 MiB in " +
		"any case",
	"field_ids":         "columns have no field IDs",
	"kv_metadata":       "METADATA is a key of the output of a job file",
	"metadata":          "METADATA is a key of the output of a job file",
	"encryption_config": "files are not encrypted",
}

// copyFormat returns the format of COPY: that of FORMAT, or else of the name.
func copyFormat(c *syntax.Copy) (string, error) {
	for _, o := range c.Options {
		if !strings.EqualFold(o.Name, "format") {
			continue
		}
		text, _ := optionText(o.Value)
		switch format := strings.ToLower(text); format {
		case "parquet", "csv", "json", "arrow":
			return format, nil
		}
		return "", syntax.NewError(o.Source(), o.Pos(), "COPY writes Parquet, CSV, JSON lines and Arrow: FORMAT "+
			"must be parquet, csv, json or arrow")
	}
	if format := sinktext.FormatOf(c.To); format != "" {
		return string(format), nil
	}
	if sourcearrow.Named(c.To) {
		return "arrow", nil
	}
	if ext := strings.ToLower(filepath.Ext(c.To)); slices.Contains([]string{".txt", ".xlsx", ".avro", ".orc"}, ext) {
		return "", syntax.NewError(c.Source(), c.Pos(), "COPY writes Parquet, CSV, JSON lines and Arrow, and %s has "+
			"the name of another format; name it .parquet, .csv, .jsonl or .arrow, or add (FORMAT parquet)", c.To)
	}
	return "parquet", nil
}

// textNames are the options that COPY has for CSV by other names than the output of a job.
var textNames = map[string]string{"delim": "delimiter", "sep": "delimiter", "nullstr": "nulls", "null": "nulls"}

// copyOutput returns the output that COPY describes.
func copyOutput(c *syntax.Copy) (out Output, err error) {
	format, err := copyFormat(c)
	if err != nil {
		return Output{Parquet: Path(c.To)}, err
	}
	names, target := copyNames, reflect.ValueOf(&out.Options).Elem()
	options := structFields(target.Type())
	switch format {
	case "parquet":
		out.Parquet = Path(c.To)
	case "json":
		out.JSON = Path(c.To)
	case "arrow":
		out.Arrow = Path(c.To)
	default:
		out.CSV, names = Path(c.To), textNames
	}
	if format != "parquet" {
		options = slices.DeleteFunc(slices.Clone(options), func(f field) bool {
			return f.name != "overwrite" && f.name != "sync" && (f.name != "compression" || format != "arrow")
		})
	}
	seen := map[string]bool{}
	for _, o := range c.Options {
		wrong := func(format string, args ...any) error {
			return syntax.NewError(o.Source(), o.Pos(), format, args...)
		}
		name := strings.ToLower(o.Name)
		if other, ok := names[name]; ok {
			name = other
		}
		if seen[name] {
			return out, wrong("the option %s appears twice", strings.ToUpper(o.Name))
		}
		seen[name] = true
		if name == "format" {
			continue
		}
		if f, ok := structFields(reflect.TypeFor[TextOptions]()).find(name); ok && format == "csv" {
			if msg := setText(&out.TextOptions, f.name, o.Value); msg != "" {
				return out, wrong("%s %s", strings.ToUpper(o.Name), msg)
			}
			continue
		}
		if text, ok := optionText(o.Value); ok && name == "overwrite" && format == "parquet" &&
			out.setOverwrite(strings.ToLower(text)) {
			continue
		}
		f, ok := options.find(name)
		if instead := copyInstead[name]; instead != "" && format == "parquet" {
			return out, wrong("COPY has no option %s: %s", strings.ToUpper(o.Name), instead)
		}
		if !ok {
			list := append(options.names(), "format")
			switch format {
			case "parquet":
				list = append(list, "compression_level", "row_group_size")
			case "csv":
				list = append(list, "delimiter", "header", "null")
			}
			list = slices.DeleteFunc(list, func(n string) bool {
				return n == "metadata" || n == "level" || n == "row_group_rows"
			})
			what := ""
			if format != "parquet" {
				what = " of " + formatNames[format]
			}
			return out, wrong("COPY%s has no option %s%s; it has %s", what, strings.ToUpper(o.Name),
				DidYouMean(name, list), strings.Join(list, ", "))
		}
		if msg := setOption(target.FieldByIndex(f.index), f, o.Value); msg != "" {
			return out, wrong("%s %s", strings.ToUpper(o.Name), msg)
		}
	}
	return out, nil
}

// setText sets an option of CSV. It returns what is wrong with the value.
func setText(o *TextOptions, name string, n syntax.Node) string {
	text, ok := optionText(n)
	if name == "header" {
		on, err := strconv.ParseBool(text)
		if n == nil {
			on, err = true, nil
		}
		if o.Header = &on; err != nil {
			return "must be true or false"
		}
		return ""
	}
	if !ok {
		return "takes a text in quotes"
	}
	if name == "delimiter" {
		o.Delimiter = strings.Replace(text, `\t`, "\t", 1)
	} else {
		o.Null = text
	}
	return ""
}

// setOption sets an option of COPY. It returns what is wrong with the value.
func setOption(v reflect.Value, f field, n syntax.Node) string {
	if n == nil { // a name without a value
		if v.Kind() != reflect.Bool {
			return "needs a value, as in " + strings.ToUpper(f.name) + " …"
		}
		v.SetBool(true)
		return ""
	}
	if v.Kind() == reflect.Slice {
		items := []syntax.Node{n}
		if row, ok := n.(*syntax.Row); ok {
			items = row.Items
		}
		for _, x := range items {
			text, ok := optionText(x)
			if !ok {
				return "takes the names of columns, as in " + strings.ToUpper(f.name) + " (a, b)"
			}
			v.Set(reflect.Append(v, reflect.ValueOf(text)))
		}
		return ""
	}
	text, ok := optionText(n)
	if !ok {
		return "takes one value"
	}
	switch v.Kind() {
	case reflect.Bool:
		on, err := strconv.ParseBool(text)
		if err != nil {
			return "must be true or false"
		}
		v.SetBool(on)
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Sprintf("is %s; it must be a whole number", n)
		}
		v.SetInt(i)
	default:
		text = strings.ToLower(text)
		if f.name == "compression" {
			text = strings.Replace(text, "uncompressed", "none", 1)
		}
		if f.enum != nil && !slices.Contains(f.enum, text) {
			return fmt.Sprintf("is %s; it must be one of %s%s", n, strings.Join(f.enum, ", "), DidYouMean(text, f.enum))
		}
		v.SetString(text)
	}
	return ""
}

// optionText returns the text of a word, a name, a string or a number.
func optionText(n syntax.Node) (string, bool) {
	switch n := n.(type) {
	case *syntax.StringLiteral:
		return n.Text, !n.Blob
	case *syntax.NumberLiteral:
		return n.Text, true
	case *syntax.WordLiteral:
		return strings.ToLower(n.Word), n.Word != "NULL"
	case *syntax.Name:
		return n.Parts[0], len(n.Parts) == 1
	case *syntax.Unary:
		if x, ok := n.X.(*syntax.NumberLiteral); ok && n.Op == "-" {
			return "-" + x.Text, true
		}
	}
	return "", false
}

// IsStatement reports whether the job is a statement of an SQL text, and not a job file.
func (j *Job) IsStatement() bool { return j.sql != nil && j.Query == "" }
