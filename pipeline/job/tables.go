package job

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
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
			for k, path := range source.Parquet {
				source.Parquet[k] = Path(j.PathInSQL(string(path)))
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
	if filepath.IsAbs(path) || elsewhere(path) != "" || j.dir == "" {
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
			return name, Source{Parquet: Paths{Path(name)}}
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
	return strings.HasSuffix(strings.ToLower(name), ".parquet") || strings.ContainsAny(name, "*/")
}

// TableCall returns the files of a call of read_parquet, and the name of its table. The error is a *syntax.Error.
func TableCall(t *syntax.TableFunction) (name string, s Source, err error) {
	if t.Call.Name != "read_parquet" && t.Call.Name != "parquet_scan" {
		return "", s, nil
	}
	wrong := func(n syntax.Node, what string) error {
		return syntax.NewError(n.Source(), n.Pos(), "%s", what)
	}
	if len(t.Call.Args) == 0 {
		return "", s, wrong(t.Call, "read_parquet takes the path of files, as in read_parquet('x/*.parquet')")
	}
	args := t.Call.Args
	if list, ok := args[0].(*syntax.Row); ok && len(args) == 1 {
		args = list.Items // ['x.parquet', 'y.parquet']
	}
	for _, a := range args {
		text, ok := a.(*syntax.StringLiteral)
		if !ok {
			return "", s, wrong(a, "read_parquet takes paths in quotes, as in read_parquet('x.parquet', 'y.parquet')")
		}
		s.Parquet = append(s.Parquet, Path(text.Text))
	}
	name = t.Call.String()
	for _, a := range t.Named {
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
