package text

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// layout is how the rows of a file are written. Files share it, unless columns are united by name.
type layout struct {
	dialect Dialect
	form    jsonForm
	header  bool     // the first row has the names of the columns
	names   []string // of the columns of the file
	path    string   // of the file that was sampled, for people
	// columns has the position in the file of each column of the table, -1 for one that the file lacks. It is nil if
	// the positions are the same.
	columns []int
	formats []*timeFormat // of dates and times, by column of the file; nil for the usual one
}

// place returns the position in a file of a column of the table, or else the value that it has in all rows.
func (t *Table) place(f *file, column int) (position int, constant *gpu.Scalar) {
	if k, ok := t.constants[column]; ok {
		return -1, &f.partitions[k]
	}
	if f.layout.columns == nil {
		return column, nil
	}
	if position = f.layout.columns[column]; position >= 0 {
		return position, nil
	}
	null := gpu.Null(t.schema.Fields[column].Type)
	return -1, &null
}

// sampled is what the sample of a file tells.
type sampled struct {
	*sniffer
	layout *layout
	types  []gpu.Type // of the columns of the file
	first  int        // rows before the first one with values
}

// describe samples files, the first one or all of them, and sets the columns of the table. A share of a table knows
// those that are united by name.
func (t *Table) describe(opt Options, files []*file) error {
	var samples []sampled
	root := newJSONNode()
	for _, f := range files {
		s, err := t.sampleFile(f, opt)
		if err != nil {
			return err
		}
		of := sampled{sniffer: s}
		if opt.JSON {
			of.layout, err = t.describeJSON(s, root)
		} else {
			of = s.describe()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		of.layout.path = f.path
		if samples = append(samples, of); len(samples) > 1 {
			of.text, of.rows = nil, nil // only the first one is looked at again
		}
	}
	for i, f := range t.files {
		f.layout = samples[min(i, len(samples)-1)].layout
	}
	var err error
	if opt.JSON {
		err = t.columnsOfJSON(opt, root)
	} else {
		err = t.columnsOf(opt, samples)
	}
	first := "a share without files"
	if len(files) > 0 {
		first = files[0].path
	}
	if err != nil {
		return fmt.Errorf("%s: %w", first, err)
	}
	if len(t.schema.Fields) == 0 {
		return fmt.Errorf("%s: %w", first, badf("the file has no objects with keys, which would be its "+
			"columns; give them by schema"))
	}
	if opt.UnionByName {
		t.united = gpu.NewSchema(slices.Clone(t.schema.Fields)...)
	}
	t.addPartitions(opt.Partitions)
	if len(samples) > 0 {
		t.setRows(samples[0])
	}
	return nil
}

// describe returns the layout of a file of CSV, and the types of its columns.
func (s *sniffer) describe() (of sampled) {
	l, columns, opt := &layout{dialect: s.d}, s.width(), s.opt
	if opt.Schema != nil {
		columns = opt.Schema.Len()
	}
	switch {
	case opt.Header != nil:
		l.header = *opt.Header
	case opt.Schema != nil:
		l.header = len(s.rows) > 0 && slices.EqualFunc(columnNames(s.rows[0]), opt.Schema.Names(), strings.EqualFold)
	default:
		l.header = s.hasHeader(columns)
	}
	of = sampled{sniffer: s, layout: l}
	if l.header && len(s.rows) > 0 {
		l.names, of.first = columnNames(s.rows[0]), 1
	} else {
		l.names = madeNames(max(columns, 1))
	}
	of.types, l.formats = s.types(of.first, len(l.names))
	if opt.AllVarchar {
		of.types = slices.Repeat([]gpu.Type{gpu.Of(gpu.String)}, len(l.names))
		l.formats = make([]*timeFormat, len(l.names))
	}
	return of
}

// columnsOf sets the columns of a table of CSV: those of the first sample, or by name those of all samples.
func (t *Table) columnsOf(opt Options, samples []sampled) error {
	at := map[string]int{} // columns of the table by name
	t.schema = &gpu.Schema{}
	if t.united != nil {
		t.schema.Fields = slices.Clone(t.united.Fields)
		return t.placeColumns(samples)
	}
	for _, s := range samples {
		for i, name := range s.layout.names {
			c, ok := at[strings.ToLower(name)]
			if !ok {
				c = len(t.schema.Fields)
				at[strings.ToLower(name)] = c
				t.schema.Fields = append(t.schema.Fields, gpu.Field{Name: name, Type: s.types[i], Nullable: true})
				continue
			}
			f := &t.schema.Fields[c]
			f.Type = unite(f.Type, s.types[i])
		}
	}
	switch {
	case len(t.schema.Fields) > maxColumns:
		return badf("the files have more than %d columns", maxColumns)
	case opt.Schema != nil:
		if err := t.give(samples[0].layout, opt.Schema); err != nil {
			return err
		}
	default:
		for _, f := range opt.Types {
			c, ok := at[strings.ToLower(f.Name)]
			if !ok {
				return noColumn(f.Name, t.schema.Names())
			}
			t.schema.Fields[c].Type = f.Type
		}
	}
	return t.placeColumns(samples)
}

// placeColumns finds the columns of the table in the files that were sampled.
func (t *Table) placeColumns(samples []sampled) error {
	for _, s := range samples {
		position := map[string]int{}
		for i, name := range s.layout.names {
			position[strings.ToLower(name)] = i
		}
		s.layout.columns = nil
		for c, f := range t.schema.Fields {
			i, ok := position[strings.ToLower(f.Name)]
			if !ok {
				i = -1
			}
			s.layout.columns = append(s.layout.columns, i)
			if ok {
				s.setFormat(&s.layout.formats[i], s.types[i], t.schema.Fields[c].Type)
			}
		}
	}
	if len(samples) == 1 && t.united == nil {
		samples[0].layout.columns = nil
	}
	return nil
}

func noColumn(name string, names []string) error {
	return badf("there is no column %q, whose type is given; the columns are %s", name,
		strings.Join(names[:min(len(names), 20)], ", "))
}

// setFormat sets the format of a column of a file by the type that it has in the table.
func (s *sniffer) setFormat(format **timeFormat, sampled, now gpu.Type) {
	if now.Kind != sampled.Kind || now.UTC {
		*format = nil // that of another type
	}
	switch {
	case *format != nil || now.UTC:
	case now.Kind == gpu.Date:
		*format = s.dates
	case now.Kind == gpu.Timestamp:
		*format = s.times
	}
}

// unite returns the type of a column that has two types in two files: one that holds the values of both, as they are
// written.
func unite(a, b gpu.Type) gpu.Type {
	order := func(t gpu.Type) int {
		return slices.Index([]gpu.Kind{gpu.Int64, gpu.HugeInt, gpu.Float64}, t.Kind)
	}
	dates := func(t gpu.Type) int {
		return slices.Index([]gpu.Type{gpu.Of(gpu.Date), gpu.TimestampOf(gpu.Microsecond, false),
			gpu.TimestampOf(gpu.Microsecond, true)}, t)
	}
	for _, rank := range []func(gpu.Type) int{order, dates} {
		if x, y := rank(a), rank(b); x >= 0 && y >= 0 {
			if x < y {
				return b
			}
			return a
		}
	}
	if a == b {
		return a
	}
	return gpu.Of(gpu.String)
}

// describeJSON returns the layout of a file of JSON, and adds the keys of its sample to a node.
func (t *Table) describeJSON(s *sniffer, root *jsonNode) (*layout, error) {
	rows, what, line := s.sniffJSON(root)
	switch {
	case len(root.names) > maxColumns:
		return nil, badf("the objects have more than %d keys", maxColumns)
	case what != sound && s.opt.Schema == nil && !t.rejecting:
		hint := ""
		if s.form == jsonLines && bytes.HasPrefix(bytes.TrimSpace(s.text), []byte("[")) {
			hint = "; the file is a list, which the format array reads"
		}
		return nil, badf("%s %d: %s%s", s.form.unit(), line+1, what.describe(0, 0), hint)
	}
	s.sampled, s.defects = int64(rows), what != sound
	return &layout{dialect: s.d, form: s.form}, nil
}

// columnsOfJSON sets the columns of a table of JSON: the keys of the samples.
func (t *Table) columnsOfJSON(opt Options, root *jsonNode) error {
	t.nulls = nullTexts{others: []string{nullMark}}
	t.schema = &gpu.Schema{}
	if t.united != nil {
		t.schema.Fields, root.names = slices.Clone(t.united.Fields), nil
	}
	for _, name := range root.names {
		t.schema.Fields = append(t.schema.Fields, gpu.Field{Name: name, Type: root.keys[name].typ(), Nullable: true})
	}
	if opt.Schema != nil {
		t.others = true
		t.schema.Fields = slices.Clone(opt.Schema.Fields)
		for i := range t.schema.Fields {
			t.schema.Fields[i].Nullable = true
		}
	}
	t.given = slices.Repeat([]bool{opt.Schema != nil}, len(t.schema.Fields))
	for _, f := range opt.Types {
		i := slices.Index(t.schema.Names(), f.Name)
		if i < 0 {
			return noColumn(f.Name, t.schema.Names())
		}
		t.schema.Fields[i].Type, t.given[i] = f.Type, true
	}
	for _, f := range t.files {
		f.layout.names = t.schema.Names()
	}
	t.size = max(t.size, 1)
	return nil
}

// addPartitions adds the columns that have one value in each file.
func (t *Table) addPartitions(partitions []Partition) {
	t.constants = map[int]int{}
	for k, p := range partitions {
		named := func(f gpu.Field) bool { return strings.EqualFold(f.Name, p.Field.Name) }
		c := slices.IndexFunc(t.schema.Fields, named)
		if c < 0 {
			c = len(t.schema.Fields)
			t.schema.Fields = append(t.schema.Fields, gpu.Field{})
		}
		t.schema.Fields[c], t.constants[c] = p.Field, k
		for i, f := range t.files {
			f.partitions = append(f.partitions, p.Values[i])
		}
	}
}

// setRows sets the number of rows, by that of a sample.
func (t *Table) setRows(s sampled) {
	rows, header := s.sampled, int64(s.first)
	sound := !s.defects
	if !s.d.JSON {
		rows = int64(max(len(s.rows)-s.first, 0))
		sound = !slices.ContainsFunc(s.rows, func(row []string) bool {
			return len(row) > len(s.layout.names) || len(row) < len(s.layout.names) && !s.opt.NullPadding
		})
	}
	t.rowBytes = float64(len(s.text)) / float64(max(rows+header, 1))
	t.rows, t.exact = rows, s.whole && len(t.files) == 1 && !t.rejecting && sound
	if !t.exact {
		t.rows = max(int64(float64(t.size)*max(s.ratio, 1)/max(t.rowBytes, 1)), rows+1)
	}
}

// give sets the columns that the caller knows.
func (t *Table) give(l *layout, schema *gpu.Schema) error {
	if l.header {
		if !slices.EqualFunc(l.names, schema.Names(), strings.EqualFold) {
			return badf("the header has the columns %s, and the schema %s; a schema has all columns of the file, in "+
				"their order; to give the types of some, use types",
				strings.Join(l.names[:min(len(l.names), 20)], ", "), strings.Join(schema.Names(), ", "))
		}
	} else {
		l.names = schema.Names()
	}
	t.schema.Fields = slices.Clone(schema.Fields)
	for i := range t.schema.Fields {
		t.schema.Fields[i].Nullable = true
	}
	return nil
}
