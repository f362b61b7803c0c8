package job

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
	sourcearrow "github.com/gstream/gstream/source/arrow"
	"github.com/gstream/gstream/source/store"
	sourcetext "github.com/gstream/gstream/source/text"
)

// WithFiles returns a job in which the files that SQL names are sources, by the text that names them. Mistakes in the
// SQL are left to the binder.
func (j *Job) WithFiles() *Job {
	out := j
	for i := range j.Steps {
		for _, t := range j.tableRefs(&j.Steps[i]) {
			name, source := TableFiles(t)
			if name == "" {
				continue
			}
			if _, ok := out.Sources[name]; ok {
				continue
			}
			for _, paths := range []Paths{source.Parquet, source.CSV, source.JSON, source.Arrow} {
				for k, path := range paths {
					paths[k] = Path(j.PathInSQL(string(path)))
				}
			}
			if source.Rejects != "" {
				source.Rejects = Path(j.PathInSQL(string(source.Rejects)))
			}
			if out == j {
				c := *j
				c.Sources, c.locations, c.named = map[string]Source{}, map[string]Location{}, map[string]bool{}
				maps.Copy(c.Sources, j.Sources)
				maps.Copy(c.locations, j.locations)
				out = &c
			}
			out.Sources[name] = source
			if at, ok := j.LocationIn(StepPath(i)+".sql", j.Steps[i].SQL, t.Pos()); ok {
				out.locations[SourcePath(name)], out.named[SourcePath(name)] = at, true
			}
		}
	}
	return out
}

// PathInSQL returns the path that a path in SQL means: relative to the folder of the job.
func (j *Job) PathInSQL(path string) string {
	if filepath.IsAbs(path) || isAddress(path) || j.dir == "" || path == sourcetext.Standard {
		return path
	}
	return filepath.Join(j.dir, path)
}

// tableRefs returns the tables in the SQL of a step.
func (j *Job) tableRefs(s *Step) (list []syntax.TableRef) {
	if s.SQL == "" {
		return nil
	}
	statements, err := j.values.ParseStatements(s.SQL)
	if err != nil {
		return nil
	}
	for _, st := range statements {
		syntax.EachTable(st, func(t syntax.TableRef) { list = append(list, t) })
	}
	return list
}

// copies reports whether the SQL of a step has a COPY.
func (j *Job) copies(s *Step) bool {
	statements, err := j.values.ParseStatements(s.SQL)
	return err == nil && slices.ContainsFunc(statements, func(n syntax.Statement) bool {
		_, ok := n.(*syntax.Copy)
		return ok
	})
}

// tablesOf returns the names of tables in the SQL of a step.
func (j *Job) tablesOf(s *Step) (names []string) {
	for _, t := range j.tableRefs(s) {
		if t, ok := t.(*syntax.TableName); ok {
			names = append(names, strings.Join(t.Parts, "."))
		}
	}
	return names
}

// TableFiles returns the files that a table of FROM names by their path, and the name of the table. It is "" for the
// name of a table, and for a call with a mistake.
func TableFiles(t syntax.TableRef) (name string, s Source) {
	switch t := t.(type) {
	case *syntax.TableName:
		if name := strings.Join(t.Parts, "."); t.Path || looksLikePath(name) {
			return store.Display(name), SourceOf(name)
		}
	case *syntax.TableFunction:
		name, s, err := TableCall(t)
		if err == nil {
			return name, s
		}
	}
	return "", Source{}
}

// looksLikePath reports whether a name in double quotes, or without quotes, is a path.
func looksLikePath(name string) bool {
	return strings.HasSuffix(strings.ToLower(name), ".parquet") || sourcetext.Named(name) ||
		sourcetext.NamedJSON(name) || sourcearrow.Named(name) || strings.ContainsAny(name, "*/")
}

// TableCall returns the files of a call of read_parquet, read_csv, read_json or read_arrow, and the name of its table.
// The error is a *syntax.Error.
func TableCall(t *syntax.TableFunction) (name string, s Source, err error) {
	paths := &s.Parquet
	switch t.Call.Name {
	case "read_parquet", "parquet_scan":
	case "read_csv", "read_csv_auto":
		paths = &s.CSV
	case "read_json", "read_json_auto", "read_ndjson", "read_ndjson_auto":
		paths = &s.JSON
		if strings.HasPrefix(t.Call.Name, "read_nd") {
			s.Format = sourcetext.JSONLines
		}
	case "read_arrow":
		paths = &s.Arrow
	default:
		return "", s, nil
	}
	wrong := func(n syntax.Node, what string) error {
		return syntax.NewError(n.Source(), n.Pos(), "%s", what)
	}
	if len(t.Call.Args) == 0 {
		return "", s, wrong(t.Call, t.Call.Name+" takes the path of files, as in "+t.Call.Name+"('x/*')")
	}
	args := t.Call.Args
	if list, ok := args[0].(*syntax.Row); ok && len(args) == 1 {
		args = list.Items // ['x.parquet', 'y.parquet']
	}
	for _, a := range args {
		text, ok := a.(*syntax.StringLiteral)
		if !ok {
			return "", s, wrong(a, t.Call.Name+" takes paths in quotes, as in "+t.Call.Name+"(['x', 'y'])")
		}
		*paths = append(*paths, Path(text.Text))
	}
	name = t.Call.String()
	for _, path := range s.Files() {
		if shown := store.Display(string(path)); shown != string(path) {
			quote := func(path string) string { return strings.ReplaceAll(path, "'", "''") }
			name = strings.ReplaceAll(name, quote(string(path)), quote(shown))
		}
	}
	if s.Text() != nil {
		for _, a := range t.Named {
			name += ", " + a.Name + " = " + fmt.Sprint(a.Value)
		}
		return name, s, s.csvOptions(t)
	}
	for _, a := range t.Named {
		if s.Arrow != nil {
			return "", s, syntax.NewError(t.Source(), a.Pos(), "read_arrow has no option %s; it has none", a.Name)
		}
		word, ok := a.Value.(*syntax.WordLiteral)
		on := ok && word.Word == "TRUE"
		if !ok || word.Word == "NULL" {
			return "", s, syntax.NewError(t.Source(), a.Pos(), "%s must be true or false", a.Name)
		}
		switch strings.ToLower(a.Name) {
		case "hive_partitioning":
			s.Partitions.None = !on
		case "union_by_name":
			s.Schema.Strict = !on
		default:
			return "", s, syntax.NewError(t.Source(), a.Pos(),
				"read_parquet has no option %s; it has hive_partitioning and union_by_name", a.Name)
		}
		name += ", " + a.Name + " = " + word.Word
	}
	return name, s, nil
}

// csvNames are the options of read_csv, by DuckDB's names, and the keys of a source that they are.
var csvNames = map[string]string{"delim": "delimiter", "sep": "delimiter", "delimiter": "delimiter", "quote": "quote",
	"escape": "escape", "header": "header", "nullstr": "nulls", "skip": "skip", "types": "types", "dtypes": "types",
	"columns": "schema", "rejects": "rejects", "dateformat": "dateformat", "date_format": "dateformat",
	"timestampformat": "timestampformat", "timestamp_format": "timestampformat", "all_varchar": "all_varchar",
	"ignore_errors": "ignore_errors", "null_padding": "null_padding", "union_by_name": "union_by_name",
	"hive_partitioning": "partitions"}

// csvInstead are options of DuckDB that read_csv has not, with what to write instead.
var csvInstead = map[string]string{
	"store_rejects": "REJECTS = 'FILE' writes such rows to a file",
	"names":         "COLUMNS gives the names and the types of all columns",
	"compression":   "the end of the name of a file decides: .gz or .zst",
	"auto_detect":   "what is given is not detected",
}

// csvOptions sets the options of a call of read_csv or read_json.
func (s *Source) csvOptions(t *syntax.TableFunction) error {
	seen := map[string]bool{}
	for _, a := range t.Named {
		wrong := func(format string, args ...any) error {
			return syntax.NewError(t.Source(), a.Pos(), format, args...)
		}
		key, call := csvNames[strings.ToLower(a.Name)], t.Call.Name
		names := slices.Sorted(maps.Keys(csvNames))
		if s.JSON != nil {
			names = []string{"columns", "format", "hive_partitioning", "ignore_errors", "rejects", "types",
				"union_by_name"}
			if strings.EqualFold(a.Name, "format") {
				key = "format"
			} else if !slices.Contains(names, key) && key != "schema" && key != "partitions" {
				key = ""
			}
		}
		if instead := csvInstead[strings.ToLower(a.Name)]; instead != "" {
			return wrong("%s has no option %s: %s", call, a.Name, instead)
		}
		if key == "" {
			return wrong("%s has no option %s%s; it has %s", call, a.Name, DidYouMean(strings.ToLower(a.Name), names),
				strings.Join(names, ", "))
		}
		if seen[key] {
			return wrong("%s is given twice", a.Name)
		}
		seen[key] = true
		text, isText := optionText(a.Value)
		switch key {
		case "types", "schema":
			columns, ok := structOf(a.Value)
			if !ok {
				return wrong("%s takes names and types, as in %s = {'day': 'DATE'}", a.Name, a.Name)
			}
			if key == "types" {
				s.Types = columns
			} else {
				s.Schema.Columns = columns
			}
		case "nulls":
			items := []syntax.Node{a.Value}
			if row, ok := a.Value.(*syntax.Row); ok {
				items = row.Items
			}
			for _, x := range items {
				text, ok := x.(*syntax.StringLiteral)
				if !ok {
					return wrong("nullstr takes texts in quotes, as in nullstr = ['', 'NA']")
				}
				s.Nulls = append(s.Nulls, text.Text)
			}
		case "header", "all_varchar", "ignore_errors", "null_padding", "union_by_name", "partitions":
			on, err := strconv.ParseBool(text)
			if err != nil || !isText {
				return wrong("%s must be true or false", a.Name)
			}
			switch key {
			case "header":
				s.Header = &on
			case "all_varchar":
				s.AllVarchar = on
			case "null_padding":
				s.NullPadding = on
			case "union_by_name":
				s.UnionByName = on
			case "partitions":
				s.Partitions.None = !on
			default:
				s.IgnoreErrors = on
			}
		case "skip":
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || !isText {
				return wrong("skip must be a whole number")
			}
			s.Skip = n
		default:
			if _, ok := a.Value.(*syntax.StringLiteral); !ok {
				return wrong("%s takes a text in quotes", a.Name)
			}
			switch key {
			case "delimiter":
				if s.Delimiter = text; text == `\t` {
					s.Delimiter = "\t"
				}
			case "quote":
				if s.Quote = text; text == "" {
					s.Quote = "none"
				}
			case "escape":
				s.Escape = text
			case "dateformat":
				s.DateFormat = text
			case "timestampformat":
				s.TimestampFormat = text
			case "rejects":
				s.Rejects = Path(text)
			case "format":
				s.Format = text
			}
		}
	}
	return nil
}

// structOf returns the names and types of {'name': 'type', …}.
func structOf(n syntax.Node) (columns ColumnTypes, ok bool) {
	s, ok := n.(*syntax.Struct)
	if !ok {
		return nil, false
	}
	for i, x := range s.Values {
		text, ok := x.(*syntax.StringLiteral)
		if !ok {
			return nil, false
		}
		columns = append(columns, SchemaColumn{s.Names[i], text.Text})
	}
	return columns, len(columns) > 0
}
