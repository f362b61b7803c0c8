package job

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink/ordered"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	sourcearrow "github.com/gstream/gstream/source/arrow"
	"github.com/gstream/gstream/source/store"
	sourcetext "github.com/gstream/gstream/source/text"
)

// Check lists the mistakes that it can find without opening anything. own names the sources that a
// Go caller provides, which need no files.
func (j *Job) Check(own []string) Diagnostics {
	var faults Diagnostics
	add := func(step, path, format string, args ...any) {
		faults = append(faults, &Diagnostic{File: j.FileOf(path), Location: j.Location(path), Step: step,
			Msg: fmt.Sprintf(format, args...)})
	}
	if len(j.Sources) == 0 && !slices.ContainsFunc(j.Steps, func(s Step) bool { return s.SQL != "" }) {
		add("", "sources", "the job has no sources")
	}
	files := map[string]Paths{}
	for name, s := range j.Sources {
		files[name] = s.Files()
	}
	for _, name := range sortedKeys(j.Sources) {
		if !slices.Contains(own, name) && len(files[name]) == 0 {
			add(name, SourcePath(name), "the source names no files")
		}
		if key, msg := j.checkFormat(name); msg != "" {
			add(name, SourcePath(name)+key, "%s", msg)
		}
		if s := j.Sources[name]; s.Optional && len(s.Schema.Columns) == 0 {
			add(name, SourcePath(name)+".optional",
				"the source may have no files, which would have its columns; give them by schema: {NAME: TYPE, …}")
		}
		for key, paths := range map[string]Paths{"parquet": j.Sources[name].Parquet, "csv": j.Sources[name].CSV,
			"json": j.Sources[name].JSON, "arrow": j.Sources[name].Arrow} {
			for i, path := range paths {
				if err := store.Check(string(path)); err != nil {
					add(name, fmt.Sprintf("%s.%s[%d]", SourcePath(name), key, i), "%s: %v", store.Display(string(path)),
						err)
				}
			}
		}
	}
	seen := map[string]string{}
	for i := range j.Steps {
		s := &j.Steps[i]
		path := StepPath(i)
		name := StepName(j.Steps, i)
		if _, ok := j.Sources[s.Name]; ok && s.Name != "" {
			add(name, path+".name", "a source has the same name")
		} else if other, ok := seen[name]; ok {
			add(name, path+".name", "%s has the same name", other)
		}
		seen[name] = fmt.Sprintf("step %d", i+1)
		switch v := s.verbs(); {
		case len(v) == 0:
			add(name, path,
				"the step does nothing; give it one of sql, filter, select, distinct, qualify, join, group, sort, "+
					"limit, unnest or union")
		case s.SQL != "" && (j.sql == nil || j.sql.Copy == nil) && j.copies(s):
			add(name, path+".sql", "COPY is not possible in a job, whose rows go to its output; write the query of "+
				"COPY")
		case len(v) > 1:
			add(name, path, "the step has %s; a step does one thing, so make it %d steps", strings.Join(v, " and "),
				len(v))
		}
		if jn := s.Join; jn != nil {
			switch {
			case jn.With == "":
				add(name, path+".join", "the join does not say with what")
			case jn.Kind == "cross" && len(jn.On)+len(jn.Using) > 0:
				add(name, path+".join",
					"a cross join has no condition; leave its kind out, or filter its rows in a step after it")
			case jn.Kind != "cross" && len(jn.On)+len(jn.Using) == 0:
				add(name, path+".join", "the join has no condition; give it on or using")
			}
			if !slices.Contains([]string{"", "auto", "as written"}, jn.Order) {
				add(name, path+".join.order", "order is %q; it must be auto or as written", jn.Order)
			}
			if jn.Order == "as written" && jn.Kind != "" && jn.Kind != "inner" {
				add(name, path+".join.order", "a %s join keeps its place anyway; leave order out", jn.Kind)
			}
			if jn.Build == "left" && jn.Kind == "mark" {
				add(name, path+".join.build", "a mark join can only build its right side")
			}
			if jn.Mark != "" && jn.Kind != "mark" {
				add(name, path+".join.mark", "only a join of kind: mark has a column %q", jn.Mark)
			}
		}
		if g := s.Group; g != nil {
			if len(g.By) == 0 && len(g.Aggregates) == 0 {
				add(name, path+".group", "the group has neither keys nor aggregates")
			}
			if key, msg := g.checkSets(); msg != "" {
				add(name, path+".group."+key, "%s", msg)
			}
		}
		for k := range s.Expect {
			if key, msg := s.Expect[k].mistake(); msg != "" {
				add(name, fmt.Sprintf("%s.expect[%d]%s", path, k, key), "%s", msg)
			}
		}
		if l := s.Limit; l != nil && (l.Count < 0 || l.Offset < 0) {
			add(name, path+".limit", "count and offset cannot be negative")
		}
	}
	return faults
}

// checkFormat returns a mistake in the format of a source, and the key that has it, with a point.
func (j *Job) checkFormat(name string) (key, msg string) {
	s := j.Sources[name]
	formats, kind := []string{}, "Parquet"
	for _, f := range []struct {
		key, kind string
		paths     Paths
	}{{"parquet", "Parquet", s.Parquet}, {"csv", "CSV", s.CSV}, {"json", "JSON", s.JSON},
		{"arrow", "Arrow", s.Arrow}} {
		if len(f.paths) > 0 {
			formats, kind = append(formats, f.key), f.kind
		}
	}
	if len(formats) > 1 {
		return "." + formats[1], fmt.Sprintf("the source has %s; a source has files of one format, so make it two "+
			"sources and a union", strings.Join(formats, " and "))
	}
	set := reflect.ValueOf(s.CSVOptions)
	for i, f := range structFields(set.Type()) {
		of := "CSV"
		switch f.name {
		case "types", "rejects", "ignore_errors", "union_by_name":
			of = "CSV or JSON"
		case "format":
			of = "JSON"
		}
		if !slices.Contains(strings.Split(of, " or "), kind) && !set.Field(i).IsZero() {
			return "." + f.name, fmt.Sprintf("%s is for files of %s, and these are of %s", f.name, of, kind)
		}
	}
	for _, path := range s.Parquet {
		switch p := string(path); {
		case p == sourcetext.Standard:
			return ".parquet", "standard input is read as CSV, JSON lines or Arrow: csv: -, json: - or arrow: -"
		case sourcetext.Named(p):
			return ".parquet", p + " has the name of a CSV file; name it with csv: PATH"
		case sourcetext.NamedJSON(p):
			return ".parquet", p + " has the name of a file of JSON lines; name it with json: PATH"
		case sourcearrow.Named(p):
			return ".parquet", p + " has the name of an Arrow file; name it with arrow: PATH"
		}
	}
	if kind == "Parquet" {
		return "", ""
	}
	switch {
	case kind == "Arrow" && len(s.Schema.Columns) > 0:
		return ".schema", "an Arrow file has the types of its columns; leave schema out, and cast columns in a select"
	case kind == "Arrow" && (s.Partitions.None || len(s.Partitions.Types) > 0):
		return ".partitions", kind + " has no columns in the names of folders; leave partitions out"
	case s.Optional:
		return ".optional", "files of " + kind + " cannot be optional; leave it out"
	case s.Schema.Strict:
		return ".schema", "files of " + kind + " must have the columns of the first one anyway, unless union_by_name " +
			"is set; leave schema: strict out"
	case kind == "Arrow":
		return "", ""
	}
	if err := s.text().Check(); err != nil {
		return "", err.Error()
	}
	return "", ""
}

// text returns the options of a source that are no types.
func (s *Source) text() sourcetext.Options {
	return sourcetext.Options{JSON: s.JSON != nil, Delimiter: s.Delimiter, Quote: s.Quote, Escape: s.Escape,
		Header: s.Header, Nulls: s.Nulls, Skip: s.Skip, DateFormat: s.DateFormat, TimestampFormat: s.TimestampFormat,
		Format: s.Format, NullPadding: s.NullPadding, UnionByName: s.UnionByName,
		AllVarchar: s.AllVarchar, IgnoreErrors: s.IgnoreErrors, Rejects: string(s.Rejects)}
}

// ReadText returns how the files of a source are read, with the types that it gives.
func (s *Source) ReadText(types, schema []gpu.Field) sourcetext.Options {
	opt := s.text()
	if opt.Types = types; schema != nil {
		opt.Schema = &gpu.Schema{Fields: schema}
	}
	return opt
}

// isAddress reports whether a path is not one of the local file system, as s3://bucket/key.
func isAddress(path string) bool { return store.Scheme(path) != "" }

// maxSets bounds the grouping sets of a group.
const maxSets = 64

// checkSets returns a mistake in the grouping sets, and the key that has it.
func (g *Group) checkSets() (key, msg string) {
	var given []string
	sets := len(g.Sets)
	if g.Sets != nil {
		given = append(given, "sets")
	}
	if g.Rollup {
		given, sets = append(given, "rollup"), len(g.By)+1
	}
	if g.Cube {
		given, sets = append(given, "cube"), 1<<min(len(g.By), 62)
	}
	switch {
	case len(given) == 0:
		return "", ""
	case len(given) > 1:
		return given[1], fmt.Sprintf("the group has %s; each says what the grouping sets are, so give one",
			strings.Join(given, " and "))
	case len(g.By) == 0:
		return given[0], fmt.Sprintf("%s needs keys; list in by all keys of the sets", given[0])
	case sets == 0:
		return given[0], "sets is empty, so there would be no group; leave it out to group by all keys"
	case sets > maxSets:
		return given[0],
			fmt.Sprintf("the group has %d grouping sets, and at most %d are possible; make several group steps and a "+
				"union of them", sets, maxSets)
	}
	return "", ""
}

// CheckRead reports steps whose rows no other step reads. The job has no other fault, so every name
// in it is known.
func (j *Job) CheckRead() (faults Diagnostics) {
	byName := map[string]int{}
	read := make([]bool, len(j.Steps))
	for i := range j.Steps {
		s := &j.Steps[i]
		names := slices.Clone(s.Union)
		if s.Join != nil {
			names = append(names, s.Join.With)
		}
		switch {
		case s.SQL != "":
			names = append(names, j.tablesOf(s)...)
		case s.From != "":
			names = append(names, s.From)
		case i > 0:
			read[i-1] = true
		}
		for _, name := range names {
			if at, ok := byName[name]; ok {
				read[at] = true
			}
		}
		byName[StepName(j.Steps, i)] = i
	}
	written := []string{}
	for _, o := range j.Written() {
		if written = append(written, o.From); o.From != "" {
			if at, ok := byName[o.From]; ok {
				read[at] = true
			}
		}
	}
	last := j.lastStep()
	for i, r := range read[:last+1] {
		switch d := (&Diagnostic{File: j.file, Location: j.Location(StepPath(i)), Step: StepName(j.Steps, i)}); {
		case r || i == last && slices.Contains(written, ""):
		case i == last:
			d.Msg = "no output has the rows of this step; name it in an output (from), or take it out"
			faults = append(faults, d)
		default:
			d.Msg = "no step reads the rows of this one, and the output has only those of the last step; name it in " +
				"a later step (from, with or union), or take it out"
			if len(j.Outputs) > 0 {
				d.Msg = "no step reads the rows of this one, and no output has them; name it in a later step (from, " +
					"with or union) or an output (from), or take it out"
			}
			faults = append(faults, d)
		}
	}
	return faults
}

// lastStep returns the position of the last step that the user wrote, -1 if there is none.
func (j *Job) lastStep() int {
	last := len(j.Steps) - 1
	for _, c := range j.checks {
		last = min(last, c.first-1)
	}
	return last
}

// CheckOutput lists the mistakes in the outputs of the job.
func (j *Job) CheckOutput() (faults Diagnostics) {
	add := func(at, format string, args ...any) {
		faults = append(faults, &Diagnostic{File: j.file, Location: j.Location(at), Step: "output",
			Msg: fmt.Sprintf(format, args...)})
	}
	if path, _ := j.Output.Path(); len(j.Outputs) > 0 && (path != "" || j.Output.From != "") {
		add("output", "the job has output and outputs; put all outputs into the list")
	}
	names := keys(j.Sources)
	for i := range j.Steps[:j.lastStep()+1] {
		names = append(names, StepName(j.Steps, i))
	}
	paths := make([]string, len(j.Written()))
	for i, o := range j.Written() {
		at := j.OutputPath(i)
		faults = append(faults, j.checkOutput(o, at)...)
		if o.From != "" && !slices.Contains(names, o.From) {
			add(at+".from", "there is no source or step named %q%s", o.From, DidYouMean(o.From, names))
		}
		path, key := o.Path()
		if path == "" {
			continue
		}
		if path == ordered.Standard && key != "parquet" {
			if len(j.Outputs) > 1 {
				add(at+"."+key, "standard output cannot be one of several outputs, which appear together or not at "+
					"all; name a file")
			}
			continue
		}
		if isAddress(path) {
			paths[i] = strings.TrimRight(path, "/")
		} else if whole, err := filepath.Abs(path); err == nil {
			paths[i] = whole
		}
		for k, other := range paths[:i] {
			if other == paths[i] || within(paths[i], other) || within(other, paths[i]) {
				add(at+"."+key, "%s is, or is in, another output of the job, %s; name another path", path,
					j.Written()[k].pathOf())
			}
		}
	}
	return faults
}

// within reports whether a path is below a folder.
func within(path, folder string) bool {
	return folder != "" && path != "" && strings.HasPrefix(path, folder+string(filepath.Separator))
}

func (o Output) pathOf() string {
	path, _ := o.Path()
	return path
}

// checkOutput lists the mistakes in one output. at is its path in the job.
func (j *Job) checkOutput(o Output, at string) (faults Diagnostics) {
	path, key := o.Path()
	add := func(key string, err error, format string, args ...any) {
		faults = append(faults, &Diagnostic{File: j.file, Location: j.Location(at + key), Step: "output",
			Msg: fmt.Sprintf(format, args...), Err: err})
	}
	if path == "" {
		msg := "the job has no output; give it output: {parquet: PATH}"
		if len(j.Outputs) > 0 {
			msg = "the output has no path; give it parquet: PATH, csv: PATH, json: PATH or arrow: PATH"
		}
		faults = append(faults, &Diagnostic{File: j.file, Location: j.Location(at), Msg: msg})
	}
	if isAddress(path) {
		if err := store.CheckOutput(path); err != nil {
			add("."+key, nil, "%s: %v", store.Display(path), err)
			return faults
		}
	}
	if key, msg := o.checkFormat(); msg != "" {
		add(key, nil, "%s", msg)
		return faults
	}
	if opt, ok := o.Text(); ok {
		if err := opt.Check(); err != nil {
			add("", nil, "%v", err)
		}
		if err := ordered.CheckTarget(path); err != nil && !isAddress(path) {
			add("."+key, err, "%v", err)
		}
		return faults
	}
	if opt, ok := o.ArrowOptions(); ok {
		if err := opt.Check(); err != nil {
			add(".compression", nil, "%v", err)
		}
		if err := ordered.CheckTarget(path); err != nil && !isAddress(path) {
			add("."+key, err, "%v", err)
		}
		return faults
	}
	if filepath.Base(path) == "-" {
		add(".parquet", nil, "standard output cannot take the rows, as a file appears when it is complete; name a "+
			"file, or write csv: -, json: - or arrow: -")
		return faults
	}
	opt := o.Options
	opt.EnsureDefaults()
	if err := opt.Validate(); err != nil {
		faults = append(faults, &Diagnostic{File: j.file, Location: j.Location(at), Step: "output",
			Msg: err.Error()})
	}
	if err := sinkparquet.CheckTarget(string(o.Parquet), opt); err != nil {
		faults = append(faults, &Diagnostic{File: j.file, Location: j.Location(at + ".parquet"), Step: "output",
			Msg: err.Error(), Err: err})
	}
	return faults
}

// formatNames are the formats of outputs, by their keys.
var formatNames = map[string]string{"parquet": "Parquet", "csv": "CSV", "json": "JSON lines", "arrow": "Arrow"}

// checkFormat returns a mistake in the format of the output, and the key that has it, with a point.
func (o *Output) checkFormat() (key, msg string) {
	var formats []string
	for _, f := range []struct {
		key  string
		path Path
	}{{"parquet", o.Parquet}, {"csv", o.CSV}, {"json", o.JSON}, {"arrow", o.Arrow}} {
		if f.path != "" {
			formats = append(formats, f.key)
		}
	}
	path, format := o.Path()
	switch {
	case len(formats) > 1:
		return "." + formats[1], fmt.Sprintf("the output has %s; an output is one of them",
			strings.Join(formats, " and "))
	case format != "parquet" && strings.HasSuffix(path, "/"):
		return "." + format, "an output of " + formatNames[format] + " is one file; name a file"
	}
	text := reflect.ValueOf(o.TextOptions)
	for i, f := range structFields(text.Type()) {
		if format != "csv" && !text.Field(i).IsZero() {
			return "." + f.name, f.name + " is for an output of CSV; leave it out, or write csv: PATH"
		}
	}
	if format == "parquet" {
		return "", ""
	}
	if o.OverwritePartitions || o.OverwriteSources {
		return ".overwrite", "an output of " + formatNames[format] +
			" is one file, which is replaced by overwrite: true"
	}
	options := reflect.ValueOf(o.Options)
	for _, f := range structFields(options.Type()) {
		if f.name == "compression" && format == "arrow" {
			continue
		}
		if f.name != "overwrite" && f.name != "sync" && !options.FieldByIndex(f.index).IsZero() {
			msg := f.name + " is for an output of Parquet; leave it out"
			if f.name == "compression" {
				msg += ": the end of the name decides, .gz or .zst"
			}
			return "." + f.name, msg
		}
	}
	return "", ""
}

// Unreadable reports whether a source has an address that cannot be read.
func (j *Job) Unreadable(source string) bool {
	s := j.Sources[source]
	return slices.ContainsFunc(s.Files(), func(p Path) bool { return store.Check(string(p)) != nil })
}
