package job

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	sinktext "github.com/gstream/gstream/sink/text"
	sourcearrow "github.com/gstream/gstream/source/arrow"
	sourcetext "github.com/gstream/gstream/source/text"
)

// SQLForm says how ToSQL writes what SQL can say in several ways. Names of tables reach further in a job than in SQL,
// so that only some forms may be possible.
type SQLForm struct {
	// Inline makes a step whose only reader is the next step a part of that step's query, even if it has a name.
	// Otherwise it is a common table expression, and the tables in it have no names after it.
	Inline bool
	// Within puts conditions before a join into a query in FROM. Otherwise they stand in WHERE, where their names may
	// be those of columns of both sides.
	Within bool
}

// SQLForms are the forms, the most readable first.
var SQLForms = []SQLForm{{}, {Within: true}, {Inline: true}, {Inline: true, Within: true}}

// ToSQL returns the job as an SQL text, with the values of its variables. Steps become the clauses of one SELECT as
// long as their order is that of SQL; a step with a name becomes a common table expression. What has no form in SQL is
// an error at its place, and what only affects the time becomes a comment.
//
// The text may be wrong if names mean something else in it: the caller compares the columns of both plans.
func (j *Job) ToSQL(form SQLForm) (string, error) {
	if j.sql != nil {
		return "", Diagnostics{{File: j.file, Location: j.Location("query"), Msg: "the job is SQL already"}}
	}
	c := &converter{job: j, form: form, relations: map[string]string{}, readers: readers(j.Steps)}
	c.named = slices.ContainsFunc(j.Steps, func(s Step) bool { return s.SQL != "" })
	if len(j.Outputs) > 0 {
		c.faultf("outputs", "output", "several outputs that appear together have no form in SQL, where each COPY is a "+
			"run of its own; convert a job with one output")
	} else if j.Output.From != "" && !slices.Equal(j.WrittenSteps(), j.LastStep()) {
		c.faultf("output.from", "output", "the output of a step that is not the last one has no form in SQL; make "+
			"it the last step")
	}
	for i := range j.Steps {
		if j.Steps[i].Expect != nil {
			c.faultf(StepPath(i)+".expect", StepName(j.Steps, i), "an expectation has no form in SQL; take it out")
		}
	}
	for _, name := range sortedKeys(j.Sources) {
		c.source(name)
	}
	last := c.steps()
	options := c.output()
	if len(c.faults) > 0 {
		return "", c.faults
	}
	return c.text(last, options), nil
}

// converter turns a job into SQL.
type converter struct {
	job       *Job
	form      SQLForm
	readers   map[string]int // of steps by their names
	named     bool           // tables of a step sql are found by name: sources are common table expressions
	relations map[string]string
	ctes      []string // name AS (query)
	left      []string // what SQL does not say
	faults    Diagnostics
}

func (c *converter) faultf(path, step, format string, args ...any) {
	c.faults = append(c.faults, &Diagnostic{File: c.job.file, Location: c.job.Location(path), Step: step,
		Msg: fmt.Sprintf(format, args...)})
}

// source makes the text by which FROM names a source.
func (c *converter) source(name string) {
	s, path := c.job.Sources[name], SourcePath(name)
	switch {
	case s.Optional:
		c.faultf(path, name, "a source whose files may be missing has no form in SQL")
	case len(s.Partitions.Types) > 0 || s.Parquet != nil && (s.Schema.Strict || len(s.Schema.Columns) > 0):
		c.faultf(path, name, "the schema and the types of partitions of a source have no form in SQL; leave them out, "+
			"and cast the columns in a select")
	}
	var files []string
	for _, p := range s.Parquet {
		files = append(files, syntax.Quote(string(p)))
	}
	table := strings.Join(files, ", ")
	switch {
	case s.Parquet == nil && len(s.Files()) > 0:
		table = s.readCall()
	case len(files) == 0: // a table of the program
		c.relations[name] = syntax.QuoteName(name)
		return
	case len(files) == 1 && !s.Partitions.None:
	case s.Partitions.None:
		table = "read_parquet([" + table + "], hive_partitioning = false)"
	default:
		table = "read_parquet([" + table + "])"
	}
	if c.named {
		c.ctes = append(c.ctes, syntax.QuoteName(name)+" AS (FROM "+table+")")
		table = syntax.QuoteName(name)
	} else {
		table += " AS " + syntax.QuoteName(name)
	}
	c.relations[name] = table
}

// readCall makes the call that reads the files of a source of another format than Parquet.
func (s *Source) readCall() string {
	var files, options []string
	for _, p := range s.Files() {
		files = append(files, syntax.Quote(string(p)))
	}
	text := func(name, value string) {
		if value != "" {
			options = append(options, name+" = "+syntax.Quote(value))
		}
	}
	types := func(name string, columns []SchemaColumn) {
		var list []string
		for _, c := range columns {
			list = append(list, syntax.Quote(c.Name)+": "+syntax.Quote(c.Type))
		}
		if list != nil {
			options = append(options, name+" = {"+strings.Join(list, ", ")+"}")
		}
	}
	text("delim", s.Delimiter)
	if s.Quote == "none" {
		options = append(options, "quote = ''")
	} else {
		text("quote", s.Quote)
	}
	text("escape", s.Escape)
	if s.Header != nil {
		options = append(options, fmt.Sprintf("header = %v", *s.Header))
	}
	if s.Nulls != nil {
		var list []string
		for _, n := range s.Nulls {
			list = append(list, syntax.Quote(n))
		}
		options = append(options, "nullstr = ["+strings.Join(list, ", ")+"]")
	}
	if s.Skip > 0 {
		options = append(options, fmt.Sprintf("skip = %d", s.Skip))
	}
	text("dateformat", s.DateFormat)
	text("timestampformat", s.TimestampFormat)
	types("types", s.Types)
	types("columns", s.Schema.Columns)
	if s.AllVarchar {
		options = append(options, "all_varchar = true")
	}
	for _, o := range []struct {
		text string
		on   bool
	}{{"null_padding = true", s.NullPadding}, {"union_by_name = true", s.UnionByName},
		{"ignore_errors = true", s.IgnoreErrors}, {"hive_partitioning = false", s.Partitions.None}} {
		if o.on {
			options = append(options, o.text)
		}
	}
	text("format", s.Format)
	text("rejects", string(s.Rejects))
	call, named := "read_csv(", sourcetext.Named
	if s.JSON != nil {
		call, named = "read_json(", sourcetext.NamedJSON
	}
	if s.Arrow != nil {
		call, named = "read_arrow(", sourcearrow.Named
	}
	if options == nil && len(files) == 1 && named(string(s.Files()[0])) {
		return files[0]
	}
	return call + strings.Join(append([]string{"[" + strings.Join(files, ", ") + "]"}, options...), ", ") + ")"
}

// block is a SELECT whose later clauses are still free.
type block struct {
	from     string
	where    []string
	items    []string // * without any
	distinct bool
	group    string
	having   []string
	qualify  string
	order    string
	limit    string
	whole    string // a query that is none of these
	// renames says that a name in a later clause could mean a column of the input instead of one of items.
	renames bool
}

// projected reports whether the columns of the block are no longer those of its tables.
func (b *block) projected() bool {
	return b.items != nil || b.distinct || b.group != "" || b.qualify != ""
}

// ended reports whether only LIMIT may follow.
func (b *block) ended() bool { return b.order != "" || b.limit != "" || b.whole != "" }

// steps returns the block of the last step.
func (c *converter) steps() *block {
	last := &block{}
	for _, from := range c.relations { // the only source, unless a step names another
		last.from = from
	}
	for i := range c.job.Steps {
		s := &c.job.Steps[i]
		if s.From != "" && (i == 0 || s.From != c.job.Steps[i-1].Name || c.relations[s.From] != "") {
			last = &block{from: c.relations[s.From]}
		}
		last = c.step(i, last)
		if s.Name != "" && i < len(c.job.Steps)-1 && !(c.form.Inline && c.readers[s.Name] < 2 && c.nextReads(i)) {
			name := syntax.QuoteName(s.Name)
			c.ctes = append(c.ctes, name+" AS (\n"+indent(last.text())+"\n)")
			c.relations[s.Name] = name
			last = &block{from: name}
		}
	}
	return last
}

// readers counts the steps that name a step.
func readers(steps []Step) map[string]int {
	n := map[string]int{}
	for _, s := range steps {
		n[s.From]++
		if s.Join != nil {
			n[s.Join.With]++
		}
		for _, u := range s.Union {
			n[u]++
		}
	}
	return n
}

// nextReads reports whether step i is the input of the next one.
func (c *converter) nextReads(i int) bool {
	from := c.job.Steps[i+1].From
	return from == "" && c.readers[c.job.Steps[i].Name] == 0 || from == c.job.Steps[i].Name
}

// over returns a block that reads the rows of another one.
func (c *converter) over(b *block, free bool) *block {
	if free {
		return b
	}
	return &block{from: "(\n" + indent(b.text()) + "\n) AS rows"}
}

// step adds a step to a block.
func (c *converter) step(i int, in *block) *block {
	s, path := &c.job.Steps[i], StepPath(i)
	name := StepName(c.job.Steps, i)
	text := func(src string) string { return c.expression(path, name, src) }
	switch {
	case s.SQL != "":
		return &block{whole: strings.TrimRight(strings.TrimSpace(text(s.SQL)), ";")}
	case s.Filter != "":
		switch {
		case !in.projected() && !in.ended():
			in.where = append(in.where, text(s.Filter))
		case in.group != "" && in.qualify == "" && !in.ended() && !in.renames:
			in.having = append(in.having, text(s.Filter))
		default:
			in = c.over(in, false)
			in.where = append(in.where, text(s.Filter))
		}
	case s.Join != nil:
		return c.join(i, in)
	case s.Group != nil:
		in = c.over(in, !in.projected() && !in.ended())
		c.group(i, in)
	case s.Select != nil, s.Distinct != nil:
		in = c.over(in, !in.projected() && !in.ended())
		columns := s.Select
		if s.Distinct != nil {
			columns, in.distinct = s.Distinct, true
		}
		in.items = c.items(path, name, columns)
		if s.Qualify != "" {
			in.qualify = text(s.Qualify)
		}
	case s.Qualify != "":
		in = c.over(in, !in.projected() && !in.ended())
		in.qualify = text(s.Qualify)
	case s.Sort != nil:
		in = c.over(in, !in.ended() && (!in.projected() || !slices.ContainsFunc(s.Sort, computed)))
		var keys []string
		for _, k := range s.Sort {
			keys = append(keys, text(k))
		}
		in.order = strings.Join(keys, ", ")
	case s.Limit != nil:
		in = c.over(in, in.limit == "" && in.whole == "")
		in.limit = fmt.Sprintf("LIMIT %d", s.Limit.Count)
		if s.Limit.Offset > 0 {
			in.limit += fmt.Sprintf(" OFFSET %d", s.Limit.Offset)
		}
	case s.Unnest != nil:
		in = c.over(in, !in.projected() && !in.ended() && len(in.where) == 0)
		u := s.Unnest
		table := "unnest(" + text(u.List) + ")"
		if u.Ordinality != "" {
			table += " WITH ORDINALITY"
		}
		columns := []string{cmp.Or(u.As, "unnest")}
		if u.Ordinality != "" {
			columns = append(columns, u.Ordinality)
		}
		table += fmt.Sprintf(" AS elements_%d(%s)", i+1, names(columns))
		if u.Outer {
			in.from += "\nLEFT JOIN " + table + " ON true"
		} else {
			in.from += "\nCROSS JOIN " + table
		}
	case s.Union != nil:
		all := "SELECT * FROM " + in.from
		if !reflect.DeepEqual(*in, block{from: in.from}) {
			all = "SELECT * FROM (\n" + indent(in.text()) + "\n) AS rows"
		}
		for _, u := range s.Union {
			all += "\nUNION ALL\nSELECT * FROM " + c.relations[u]
		}
		return &block{whole: all}
	}
	return in
}

// sortKey is a key of a sort that is a name or a number.
var sortKey = regexp.MustCompile(`(?i)^\s*("[^"]*"|[a-z_0-9]+)(\s+(asc|desc))?(\s+nulls\s+(first|last))?\s*$`)

// computed reports whether a key of a sort is an expression: in ORDER BY its names could mean columns of the tables.
func computed(key string) bool { return !sortKey.MatchString(key) }

func (c *converter) join(i int, in *block) *block {
	s, path := c.job.Steps[i].Join, StepPath(i)
	name := StepName(c.job.Steps, i)
	kind := map[string]string{"": "JOIN", "inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN",
		"full": "FULL JOIN",
		"semi": "SEMI JOIN", "anti": "ANTI JOIN", "cross": "CROSS JOIN"}[s.Kind]
	if kind == "" {
		c.faultf(path, name, "a %s join has no form in SQL; write IN or EXISTS in a select", s.Kind)
	}
	for _, hint := range []struct{ what, value string }{{"build", s.Build}, {"order", s.Order},
		{"algorithm", s.Algorithm}} {
		if hint.value != "" && hint.value != "auto" {
			c.left = append(c.left, fmt.Sprintf("%s: %s of the join of step %q", hint.what, hint.value, name))
		}
	}
	// A condition before a join that keeps right rows is not one after it.
	keepsRight := s.Kind == "right" || s.Kind == "full"
	in = c.over(in, !in.projected() && !in.ended() && !(keepsRight && len(in.where) > 0))
	with := c.relations[s.With]
	if s.As != "" {
		with = strings.TrimSuffix(with, " AS "+syntax.QuoteName(s.With)) + " AS " + syntax.QuoteName(s.As)
	}
	if c.form.Within && len(in.where) > 0 {
		table := tableName.FindStringSubmatch(in.from)
		if in.from = "(\n" + indent(in.text()) + "\n) AS rows"; table != nil {
			in.from = strings.TrimSuffix(in.from, "rows") + table[1]
		}
		in.where = nil
	}
	in.from += "\n" + kind + " " + with
	var on []string
	for _, x := range s.On {
		on = append(on, c.expression(path, name, x))
	}
	if len(on) > 0 {
		in.from += " ON " + and(on, " AND ")
	}
	if len(s.Using) > 0 {
		in.from += " USING (" + names(s.Using) + ")"
	}
	return in
}

// tableName finds the name of the table in a FROM of one table.
var tableName = regexp.MustCompile(`^[^\n]*?("[^"]*"|[A-Za-z_][A-Za-z_0-9]*)$`)

func (c *converter) group(i int, in *block) {
	g, path := c.job.Steps[i].Group, StepPath(i)
	name := StepName(c.job.Steps, i)
	if g.Algorithm != "" {
		c.left = append(c.left, fmt.Sprintf("algorithm: %s of the group of step %q", g.Algorithm, name))
	}
	columns := append(slices.Clone(g.By), g.Aggregates...)
	in.items, in.renames = c.items(path, name, columns), c.renames(columns)
	called := map[string]string{} // how GROUP BY names a key
	var all []string
	for _, col := range g.By {
		x, as := c.job.values.SplitAlias(col.Expr)
		if as == "" {
			as = strings.Trim(x, `"`)
		}
		if col.Name != "" {
			as = col.Name
		}
		called[as] = syntax.QuoteName(as)
		if in.renames {
			called[as] = c.expression(path, name, x)
		}
		all = append(all, called[as])
		if _, err := strconv.Atoi(strings.TrimSpace(x)); err == nil {
			c.faultf(path, name,
				"the key %s is the position of a column, which SQL does not have in a select list; write the "+
					"name of the column", col.Expr)
		}
	}
	list := strings.Join(all, ", ")
	switch {
	case g.Rollup:
		in.group = "ROLLUP (" + list + ")"
	case g.Cube:
		in.group = "CUBE (" + list + ")"
	case len(g.Sets) > 0:
		var sets []string
		for _, set := range g.Sets {
			var of []string
			for _, key := range set {
				of = append(of, called[key])
			}
			sets = append(sets, "("+strings.Join(of, ", ")+")")
		}
		in.group = "GROUPING SETS (" + strings.Join(sets, ", ") + ")"
	case len(g.By) > 0 && groupingCall.MatchString(strings.Join(in.items, " ")):
		in.group = list
	case len(g.By) > 0:
		in.group = "ALL"
	default:
		in.group = "()"
	}
}

// groupingCall finds grouping(a, b), whose keys GROUP BY must name.
var groupingCall = regexp.MustCompile(`(?i)\bgrouping(_id)?\s*\(`)

// renames reports whether a name that is given to a column is also that of another column of the input which an
// expression reads: a condition on the name could mean either.
func (c *converter) renames(columns Columns) bool {
	used, given := map[string]bool{}, []string(nil)
	for _, col := range columns {
		x, as := c.job.values.SplitAlias(col.Expr)
		if col.Name != "" {
			as = col.Name
		}
		n, err := c.job.values.Parse(x)
		if err != nil {
			return true // the binder reports it
		}
		if name, ok := n.(*syntax.Name); ok && strings.EqualFold(name.Parts[len(name.Parts)-1], as) {
			continue
		}
		_, _ = syntax.ReplaceDeep(n, func(n syntax.Node) (syntax.Node, error) {
			switch n := n.(type) {
			case *syntax.Name:
				used[strings.ToLower(n.Parts[len(n.Parts)-1])] = true
			case *syntax.Call:
				if groupingCall.MatchString(n.Name + "(") {
					return n, nil // of keys
				}
			}
			return nil, nil
		})
		if as != "" {
			given = append(given, strings.ToLower(as))
		}
	}
	return slices.ContainsFunc(given, func(name string) bool { return used[name] })
}

// items returns the elements of a select list.
func (c *converter) items(path, name string, columns Columns) (out []string) {
	for _, col := range columns {
		text := c.expression(path, name, col.Expr)
		if col.Name != "" {
			text += " AS " + syntax.QuoteName(col.Name)
		}
		out = append(out, text)
	}
	return out
}

// expression returns an expression with the values of its variables.
func (c *converter) expression(path, step, src string) string {
	text := strings.TrimSpace(src)
	for part, v := range c.job.values {
		if !strings.HasPrefix(part, "$") || !strings.Contains(text, part) {
			continue
		}
		if v.Hidden {
			c.faultf(path, step, "%s is a value from the environment, which the SQL would show", part)
			continue
		}
		text = strings.ReplaceAll(text, part, v.SQL)
	}
	if strings.Contains(text, "--") { // the rest of the line would be a comment
		text += "\n"
	}
	return text
}

// and joins conditions.
func and(conditions []string, sep string) string {
	list := slices.Clone(conditions)
	for i, x := range list {
		n, err := syntax.Parse(x)
		if logic, ok := n.(*syntax.Logic); len(list) > 1 && (err != nil || ok && logic.Op == "OR") {
			list[i] = "(" + x + ")"
		}
	}
	return strings.Join(list, sep)
}

func names(list []string) string {
	var out []string
	for _, n := range list {
		out = append(out, syntax.QuoteName(n))
	}
	return strings.Join(out, ", ")
}

// text returns the query of a block, without a semicolon.
func (b *block) text() string {
	if b.whole != "" {
		if b.order+b.limit == "" {
			return b.whole
		}
		return (&block{from: "(\n" + indent(b.whole) + "\n) AS rows", order: b.order, limit: b.limit}).text()
	}
	items, word := "*", "SELECT "
	if b.distinct {
		word = "SELECT DISTINCT "
	}
	if b.items != nil {
		if items = strings.Join(b.items, ", "); len(items) > 90 {
			items = strings.Join(b.items, ",\n       ")
		}
	}
	lines := []string{word + items, "FROM " + b.from}
	if len(b.where) > 0 {
		lines = append(lines, "WHERE "+and(b.where, "\n  AND "))
	}
	if b.group != "" && b.group != "()" {
		lines = append(lines, "GROUP BY "+b.group)
	}
	if len(b.having) > 0 {
		lines = append(lines, "HAVING "+and(b.having, "\n   AND "))
	}
	if b.qualify != "" {
		lines = append(lines, "QUALIFY "+b.qualify)
	}
	if b.order != "" {
		lines = append(lines, "ORDER BY "+b.order)
	}
	if b.limit != "" {
		lines = append(lines, b.limit)
	}
	return strings.Join(lines, "\n")
}

// size writes a size, "" for none.
func size(s Size) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB", "B"} {
		if one := Size(1) << (40 - 10*i); s > 0 && s%one == 0 {
			return fmt.Sprintf("%d%s", s/one, unit)
		}
	}
	return ""
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// output returns the options of COPY.
func (c *converter) output() (options []string) {
	if opt, ok := c.job.Output.Text(); ok {
		if sinktext.FormatOf(string(c.job.Output.CSV)+string(c.job.Output.JSON)) != opt.Format {
			options = append(options, "FORMAT "+string(opt.Format))
		}
		if d := c.job.Output.Delimiter; d != "" {
			options = append(options, "DELIMITER "+syntax.Quote(d))
		}
		if opt.NoHeader {
			options = append(options, "HEADER false")
		}
		if opt.Null != "" {
			options = append(options, "NULL "+syntax.Quote(opt.Null))
		}
	}
	if path, key := c.job.Output.Path(); key == "arrow" && !sourcearrow.Named(path) {
		options = append(options, "FORMAT arrow")
	}
	if c.job.Output.OverwritePartitions {
		options = append(options, "OVERWRITE partitions")
	}
	value := reflect.ValueOf(c.job.Output.Options)
	for _, f := range structFields(reflect.TypeFor[sinkparquet.Options]()) {
		v, name := value.FieldByIndex(f.index), strings.ToUpper(f.name)
		switch {
		case v.IsZero():
		case v.Kind() == reflect.Map:
			c.left = append(c.left, f.name+" of the output")
		case f.name == "overwrite" && c.job.Output.OverwriteSources:
			options = append(options, "OVERWRITE sources")
		case v.Kind() == reflect.Bool:
			options = append(options, name)
		case v.Kind() == reflect.Slice:
			options = append(options, name+" ("+names(v.Interface().([]string))+")")
		default:
			options = append(options, fmt.Sprintf("%s %v", name, v.Interface()))
		}
	}
	return options
}

// text returns the statements.
func (c *converter) text(last *block, options []string) string {
	var out strings.Builder
	for _, l := range c.left {
		out.WriteString("-- left out, since SQL does not say it: " + l + "\n")
	}
	m := c.job.Memory
	for _, s := range []struct{ name, value string }{{"host_memory", size(m.Host)}, {"device_memory", size(m.Device)},
		{"spill_dir", m.Spill.Dir}, {"spill_limit", size(m.Spill.Limit)}, {"spill_compression", m.Spill.Compression}} {
		if s.value != "" {
			fmt.Fprintf(&out, "SET %s = %s;\n", s.name, syntax.Quote(s.value))
		}
	}
	query := last.text()
	if len(c.ctes) > 0 {
		query = "WITH " + strings.Join(c.ctes, ",\n") + "\n" + query
	}
	path, _ := c.job.Output.Path()
	if path == "" {
		return out.String() + query + ";\n"
	}
	out.WriteString("COPY (\n" + indent(query) + "\n) TO " + syntax.Quote(path))
	if len(options) > 0 {
		out.WriteString(" (" + strings.Join(options, ", ") + ")")
	}
	return out.String() + ";\n"
}
