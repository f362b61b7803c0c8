package job

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// decoder fills a Job from a YAML tree, directed by the struct tags of Job. It continues after a
// fault, so that one pass finds all faults. It records the location of every value.
type decoder struct {
	job    *Job
	dir    string // folder of the job file
	vars   variables
	sql    bool // the value is an expression, or contains expressions
	faults Diagnostics
}

// document decodes the whole job. It decodes the variables first, without expanding them,
// because all other values may use them.
func (d *decoder) document(root ast.Node) {
	v := reflect.ValueOf(d.job).Elem()
	entries, ok := d.mapping(root, "the job")
	if !ok {
		return
	}
	for _, e := range entries {
		if e.name == "vars" {
			raw := *d
			raw.vars = variables{}
			raw.decode(e.value, reflect.ValueOf(&d.job.Vars).Elem(), "vars")
			d.faults = raw.faults
		}
	}
	d.vars.declared = d.job.Vars
	d.fields(entries, v, "", "vars")
}

// hints suggests keys of a step for keys that other languages have.
var hints = map[string]string{
	"where":    "a filter step has a condition: filter",
	"having":   "a filter step after the group has such a condition: filter",
	"query":    "a step with a query is sql",
	"order_by": "that is sort", "order by": "that is sort", "orderby": "that is sort",
	"group_by":   "that is by in group: {by: …, aggregates: …}",
	"group by":   "that is by in group: {by: …, aggregates: …}",
	"aggregate":  "that is aggregates in group: {by: …, aggregates: …}",
	"aggregates": "that is a key of group: {by: …, aggregates: …}",
	"by":         "that is a key of group: {by: …, aggregates: …}", "on": "that is a key of join: {with: …, on: …}",
	"with":    "that is a key of join: {with: …, on: …}",
	"project": "that is select", "columns": "that is select", "offset": "that is a key of limit: {count: …, offset: …}",
	"union_all": "that is union", "parquet": "files are read under sources and written under output",
}

var (
	stepAt = regexp.MustCompile(`^steps\[(\d+)\]\.?`)
	itemAt = regexp.MustCompile(`\[(\d+)\]`)
)

// shown formats a path in the job for people, counting from 1: "step 3: filter".
func shown(path string) string {
	number := func(digits string) string {
		n, _ := strconv.Atoi(digits)
		return strconv.Itoa(n + 1)
	}
	if m := stepAt.FindStringSubmatch(path); m != nil {
		rest := path[len(m[0]):]
		if path = "step " + number(m[1]); rest != "" {
			path += ": " + rest
		}
	}
	return itemAt.ReplaceAllStringFunc(path, func(at string) string { return ", item " + number(at[1:len(at)-1]) })
}

// entry is one key of a mapping.
type entry struct {
	name  string
	key   Location
	value ast.Node
}

// mapping returns the entries of a mapping in the order of the file.
func (d *decoder) mapping(n ast.Node, what string) ([]entry, bool) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		d.faultf(locationOf(n), "%s must be a mapping of keys to values, not %s", shown(what), nodeKind(n))
		return nil, false
	}
	var out []entry
	seen := map[string]bool{}
	for _, v := range values {
		name, ok := scalarText(v.Key)
		switch {
		case !ok || v.Key.IsMergeKey():
			d.faultf(locationOf(v.Key), "a key must be a plain word")
		case seen[name]:
			d.faultf(locationOf(v.Key), "key %q appears twice", name)
		default:
			seen[name] = true
			out = append(out, entry{name, locationOf(v.Key), v.Value})
		}
	}
	return out, true
}

// fields decodes the entries of a mapping into a struct, except the key skip, which the caller has
// decoded.
func (d *decoder) fields(entries []entry, v reflect.Value, path, skip string) {
	fields := structFields(v.Type())
	seen := map[string]bool{}
	for _, e := range entries {
		f, ok := fields.find(e.name)
		if !ok {
			hint := DidYouMean(e.name, fields.names())
			if other := hints[strings.ToLower(e.name)]; v.Type() == reflect.TypeFor[Step]() && other != "" {
				hint = "; " + other
			}
			d.faultf(e.key, "unknown key %q%s", e.name, hint)
			continue
		}
		seen[e.name] = true
		if e.name == skip {
			continue
		}
		sub := joinPath(path, e.name)
		if e.name == "overwrite" && d.overwrite(e.value, v, sub) {
			continue
		}
		at := len(d.faults)
		d.sql = f.sql
		d.decode(e.value, v.FieldByIndex(f.index), sub)
		d.sql = false
		if len(d.faults) == at && f.enum != nil {
			if val := v.FieldByIndex(f.index).String(); !slices.Contains(f.enum, val) {
				d.faultf(d.job.locations[sub], "%s is %q; it must be one of %s%s", e.name, val,
					strings.Join(f.enum, ", "), DidYouMean(val, f.enum))
			}
		}
	}
	for _, f := range fields {
		if f.required && !seen[f.name] {
			d.faultf(d.job.Location(path), "key %q is missing", f.name)
		}
	}
}

// overwrite decodes overwrite: partitions and overwrite: sources of an output. It returns false for other values.
func (d *decoder) overwrite(n ast.Node, output reflect.Value, path string) bool {
	e, ok := expanded{}, false
	if _, scalar := scalarText(n); scalar {
		e, ok = d.text(n, path)
	}
	o, isOutput := output.Addr().Interface().(*Output)
	if !ok || !isOutput || !o.setOverwrite(e.text) {
		return false
	}
	d.job.locations[path] = locationOf(n)
	return true
}

// setOverwrite sets what an output overwrites. It returns false unless that is partitions or sources.
func (o *Output) setOverwrite(what string) bool {
	switch what {
	case "partitions":
		o.OverwritePartitions = true
	case "sources":
		o.Overwrite, o.OverwriteSources = true, true
	default:
		return false
	}
	return true
}

// decode fills v from n. path is the value's path in the job.
func (d *decoder) decode(n ast.Node, v reflect.Value, path string) {
	d.job.locations[path] = locationOf(n)
	if _, null := n.(*ast.NullNode); null || n == nil {
		if v.Type() != reflect.TypeFor[Var]() {
			d.faultf(locationOf(n), "%s has no value", shown(path))
		}
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *Path:
		if e, ok := d.text(n, path); ok {
			*p = d.path(e)
		}
		return
	case *Size:
		d.size(n, p, path)
		return
	case *Columns:
		if b, ok := n.(*ast.BoolNode); ok && strings.HasSuffix(path, ".distinct") {
			if !b.Value {
				d.faultf(locationOf(n), "%s is false; leave it out, or name columns", shown(path))
			}
			*p = Columns{{"", "*"}}
			return
		}
		d.columns(n, p, path)
		return
	case *Schema:
		var rule string
		rule, p.Columns = d.types(n, path, "unify", "strict")
		p.Strict = rule == "strict"
		return
	case *Partitions:
		var rule string
		rule, p.Types = d.types(n, path, "auto", "none")
		p.None = rule == "none"
		return
	case *ColumnTypes:
		if _, ok := scalarText(n); ok {
			d.faultf(locationOf(n), "%s must be a mapping of column names to types", shown(path))
			return
		}
		_, *p = d.types(n, path)
		return
	case *Var:
		if text, ok := scalarText(n); ok {
			p.Default, p.looks = &text, looksLike(n)
			return
		}
		if entries, ok := d.mapping(n, path); ok {
			d.fields(entries, v, path, "")
			for _, e := range entries {
				if e.name == "default" {
					p.looks = looksLike(e.value)
				}
			}
		}
		return
	case *Source:
		switch n.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
		default:
			d.decode(n, reflect.ValueOf(&p.Parquet).Elem(), path+".parquet")
			if s := SourceOf(texts(p.Parquet)...); s.Parquet == nil {
				*p = s
			}
			return
		}
	case *Limit:
		if _, ok := scalarText(n); ok {
			d.decode(n, reflect.ValueOf(&p.Count).Elem(), path+".count")
			return
		}
	case *Unnest:
		if _, ok := scalarText(n); ok {
			d.decode(n, reflect.ValueOf(&p.List).Elem(), path+".list")
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		if entries, ok := d.mapping(n, path); ok {
			d.fields(entries, v, path, "")
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), path)
	case reflect.Map:
		entries, ok := d.mapping(n, path)
		if !ok {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for _, e := range entries {
			val := reflect.New(v.Type().Elem()).Elem()
			d.decode(e.value, val, joinPath(path, e.name))
			v.SetMapIndex(reflect.ValueOf(e.name), val)
		}
	case reflect.Slice:
		d.list(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

// list decodes a sequence. A scalar is a list of one.
func (d *decoder) list(n ast.Node, v reflect.Value, path string) {
	values := []ast.Node{n}
	if seq, ok := n.(*ast.SequenceNode); ok {
		if d.splitAtComma(seq) {
			return
		}
		values = seq.Values
	} else if _, ok := scalarText(n); !ok {
		d.faultf(locationOf(n), "%s must be a list, not %s", shown(path), nodeKind(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(values), len(values)))
	for i, e := range values {
		d.decode(e, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	e, ok := d.text(n, path)
	if !ok {
		return
	}
	var err error
	want := "a value of another form"
	switch v.Kind() {
	case reflect.String:
		v.SetString(e.text)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(e.text)
		v.SetBool(b)
		want = "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var i int64
		i, err = strconv.ParseInt(strings.ReplaceAll(e.text, "_", ""), 10, v.Type().Bits())
		v.SetInt(i)
		want = "a whole number"
	case reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(e.text, 64)
		v.SetFloat(f)
		want = "a number"
	default:
		err = fmt.Errorf("no values of type %v", v.Type())
	}
	if err != nil {
		d.faultf(locationOf(n), "%s is %q; it must be %s", shown(path), e.text, want)
	}
}

// types decodes a mapping of names to types, or the name of a rule.
func (d *decoder) types(n ast.Node, path string, rules ...string) (rule string, columns []SchemaColumn) {
	if _, ok := scalarText(n); ok {
		e, ok := d.text(n, path)
		if ok && !slices.Contains(rules, e.text) {
			d.faultf(locationOf(n), "%s is %q; it must be %s, or a mapping of column names to types%s", shown(path),
				e.text, strings.Join(rules, ", "), DidYouMean(e.text, rules))
		}
		return e.text, nil
	}
	entries, ok := d.mapping(n, path)
	if m, flow := n.(*ast.MappingNode); !ok || flow && m.IsFlowStyle && d.mappingSplitAtComma(entries) {
		return "", nil
	}
	if len(entries) == 0 {
		d.faultf(locationOf(n), "%s names no columns", shown(path))
	}
	for _, c := range entries {
		sub := joinPath(path, c.name)
		d.job.locations[sub] = locationOf(c.value)
		if e, ok := d.text(c.value, sub); ok {
			columns = append(columns, SchemaColumn{c.name, e.text})
		}
	}
	return "", columns
}

func (d *decoder) size(n ast.Node, p *Size, path string) {
	e, ok := d.text(n, path)
	if !ok {
		return
	}
	b, err := ParseSize(e.text)
	if err != nil {
		d.faultf(locationOf(n), "%s: %v", shown(path), err)
	}
	*p = b
}

// ParseSize parses a number of bytes such as 512MiB, 8GB or 1048576.
func ParseSize(s string) (Size, error) {
	b, err := humanize.ParseBytes(s)
	if err != nil || int64(b) <= 0 {
		return 0, fmt.Errorf("%q is not a size; write it as 512MiB or 8GB", s)
	}
	return Size(b), nil
}

// columns decodes a list of expressions and {name: expression} entries, or a single
// mapping.
func (d *decoder) columns(n ast.Node, c *Columns, path string) {
	*c = Columns{}
	add := func(name string, n ast.Node, at Location) {
		path := fmt.Sprintf("%s[%d]", path, len(*c))
		d.job.locations[path] = at
		if e, ok := d.text(n, path); ok {
			*c = append(*c, Column{name, e.text})
		}
	}
	items := []ast.Node{n}
	if seq, ok := n.(*ast.SequenceNode); ok {
		if d.splitAtComma(seq) {
			return
		}
		items = seq.Values
	}
	for _, item := range items {
		if _, ok := scalarText(item); ok {
			add("", item, locationOf(item))
			continue
		}
		entries, _ := d.mapping(item, "a column")
		if m, ok := item.(*ast.MappingNode); ok && m.IsFlowStyle && d.mappingSplitAtComma(entries) {
			return
		}
		for _, e := range entries {
			add(e.name, e.value, locationOf(e.value))
		}
	}
}

// splitAtComma reports items of a [list] that are parts of one expression. In brackets YAML ends an
// item at every comma, even within parentheses.
func (d *decoder) splitAtComma(seq *ast.SequenceNode) bool {
	if !seq.IsFlowStyle {
		return false
	}
	for i := 0; i < len(seq.Values); i++ {
		whole, _ := plainText(seq.Values[i])
		for k := i + 1; k < len(seq.Values) && openParentheses(whole) > 0; k++ {
			next, ok := plainText(seq.Values[k])
			if !ok {
				break
			}
			if whole += ", " + next; openParentheses(whole) == 0 {
				d.faultf(locationOf(seq.Values[i]), "YAML ends %s at its comma; quote it: [%q]", seq.Values[i].String(),
					whole)
				return true
			}
		}
	}
	return false
}

// mappingSplitAtComma is splitAtComma for {name: expression}, where the text after the comma is a
// key without a value.
func (d *decoder) mappingSplitAtComma(entries []entry) bool {
	for i := 0; i+1 < len(entries); i++ {
		whole, _ := plainText(entries[i].value)
		for k := i + 1; k < len(entries) && openParentheses(whole) > 0; k++ {
			if _, empty := entries[k].value.(*ast.NullNode); !empty {
				break
			}
			if whole += ", " + entries[k].name; openParentheses(whole) == 0 {
				d.faultf(locationOf(entries[i].value), "YAML ends %s at its comma; quote it: {%s: %q}",
					entries[i].value.String(), entries[i].name, whole)
				return true
			}
		}
	}
	return false
}

// plainText returns the text of a scalar without quotes.
func plainText(n ast.Node) (string, bool) {
	if s, ok := n.(*ast.StringNode); ok && s.GetToken().Type != token.StringType {
		return "", false
	}
	return scalarText(n)
}

// openParentheses counts the parentheses that are open at the end of a text, ignoring quoted texts.
// It returns -1 if a parenthesis is closed that was not open.
func openParentheses(s string) int {
	open, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(':
			open++
		case c == ')':
			if open--; open < 0 {
				return -1
			}
		}
	}
	return open
}

// text returns a scalar with its variables expanded.
func (d *decoder) text(n ast.Node, path string) (expanded, bool) {
	s, ok := scalarText(n)
	if !ok {
		d.faultf(locationOf(n), "%s must be a single value, not %s", shown(path), nodeKind(n))
		return expanded{}, false
	}
	if d.vars.env == nil {
		return expanded{text: s}, true
	}
	e, err := d.vars.expandAll(s, d.sql)
	if err != nil {
		d.faultf(locationOf(n), "%s: %v", shown(path), err)
		return expanded{}, false
	}
	d.job.origins[path] = &origin{s, e.text, e.segments}
	maps.Copy(d.job.values, e.values)
	return e, true
}

func texts(paths Paths) (list []string) {
	for _, p := range paths {
		list = append(list, string(p))
	}
	return list
}

func (d *decoder) path(e expanded) Path {
	if e.text == "" || e.text == "-" || e.outside || filepath.IsAbs(e.text) || isAddress(e.text) {
		return Path(e.text)
	}
	path := filepath.Join(d.dir, e.text)
	if strings.HasSuffix(e.text, "/") {
		path += "/" // of an output that is a folder
	}
	return Path(path)
}

// scalarText returns the text of a scalar as written, without quotes and block markers.
func scalarText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimRight(n.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	case *ast.MappingNode:
		if len(n.Values) == 1 && !n.IsFlowStyle {
			return castText(n.Values[0])
		}
	case *ast.MappingValueNode:
		return castText(n)
	}
	return "", false
}

// castText returns the text of "a::b". In YAML it is a plain scalar, but within braces or brackets
// the parser treats it as a mapping of a to :b.
func castText(n *ast.MappingValueNode) (string, bool) {
	key, isKey := n.Key.(*ast.StringNode)
	value, isValue := n.Value.(*ast.StringNode)
	if !isKey || !isValue || !strings.HasPrefix(value.Value, ":") {
		return "", false
	}
	k, v := locationOf(key), locationOf(value)
	if k.Line != v.Line || k.Column+utf8.RuneCountInString(key.Value)+1 != v.Column {
		return "", false
	}
	return key.Value + ":" + value.Value, true
}

func nodeKind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode:
		return "a YAML anchor or alias (use vars)"
	case *ast.TagNode:
		return "a YAML tag"
	}
	if _, ok := scalarText(n); ok {
		return "a single value"
	}
	return "nothing"
}

// locationOf returns the location of the start of a node. For a mapping it is that of the first key,
// not of the first colon.
func locationOf(n ast.Node) Location {
	switch m := n.(type) {
	case nil:
		return Location{}
	case *ast.MappingNode:
		if len(m.Values) > 0 && !m.IsFlowStyle {
			return locationOf(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return locationOf(m.Key)
	case *ast.SequenceNode:
		if len(m.Values) > 0 && !m.IsFlowStyle {
			return locationOf(m.Values[0])
		}
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return Location{}
	}
	return Location{t.Position.Line, t.Position.Column}
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func keys[V any](m map[string]V) []string { return slices.Collect(maps.Keys(m)) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
