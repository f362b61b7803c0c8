package text

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// Options say how files are read. What is missing is found by a sample of the first file.
type Options struct {
	// JSON means lines of JSON. Then only Types, Schema, Rejects and Preview apply.
	JSON bool
	// Context, if set, ends a wait for standard input.
	Context   context.Context
	Delimiter string // one character
	Quote     string // one character, or none
	Escape    string // one character; by default the quote
	Header    *bool  // whether the first row has the names of the columns
	// Nulls are the texts that stand for null, also in quotes; nil for the empty text.
	Nulls []string
	// Skip is the number of lines before the header.
	Skip int64
	// DateFormat and TimestampFormat are formats of strptime in which DATEs and TIMESTAMPs are written.
	DateFormat, TimestampFormat string
	// Types has the types of some columns, by name.
	Types []gpu.Field
	// Schema, if set, has the names and types of all columns, in order. A header must have the same names.
	Schema *gpu.Schema
	// AllVarchar makes all columns VARCHAR whose types are not given.
	AllVarchar bool
	// IgnoreErrors leaves rows out that cannot be read. Progress has their number.
	IgnoreErrors bool
	// Rejects, if set, is the file to which rows are written that cannot be read.
	Rejects string
	// Preview leaves such rows out, and writes no file.
	Preview bool
}

// Check returns an error for options that are wrong whatever the files.
func (o Options) Check() error {
	return errors.Join(one("delimiter", o.Delimiter, false), one("quote", o.Quote, true),
		one("escape", o.Escape, false), o.distinct(), checkTimeFormat("dateformat", o.DateFormat),
		checkTimeFormat("timestampformat", o.TimestampFormat))
}

func (o Options) distinct() error {
	switch {
	case o.Delimiter != "" && (o.Delimiter == o.Quote || o.Delimiter == o.Escape):
		return errors.New("the delimiter cannot be the quote or the escape")
	case o.Skip < 0:
		return errors.New("skip cannot be negative")
	case o.Schema != nil && len(o.Types) > 0:
		return errors.New("schema has the types of all columns; leave types out")
	}
	return nil
}

// Table presents files as one table. It implements source.Table. It keeps no file open.
type Table struct {
	files     []*file
	options   Options // without a context
	dialect   Dialect
	skip      int64
	hasHeader bool
	sampler   bool   // standard input has only the sample
	others    bool   // keys of JSON that are no columns are left out
	given     []bool // columns of JSON whose types are given
	names     []string
	schema    *gpu.Schema
	formats   []*timeFormat // of dates and times of CSV; nil for the usual one
	nulls     nullTexts
	rejecting bool   // bad rows are left out
	rejects   string // and written to this file, unless it is empty
	size      int64  // bytes of all files
	rows      int64
	exact     bool    // the number of rows is exact
	rowBytes  float64 // text of a row, on average
	unsized   bool    // files are compressed
}

var (
	_ source.Table     = (*Table)(nil)
	_ source.Sampler   = (*Table)(nil)
	_ source.Estimated = (*Table)(nil)
)

// Open samples the first of the files, and returns the table of all of them, in order. A file whose name ends in .gz or
// .zst is decompressed. The other files must have the columns of the first one. A file that cannot be read is an error
// of package os. Wrong content is a source.ErrData, as far as the sample shows it.
func Open(paths []string, opt Options) (*Table, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	t := &Table{options: opt, skip: opt.Skip, nulls: newNullTexts(opt.Nulls), rejects: opt.Rejects,
		rejecting: opt.Rejects != "" || opt.IgnoreErrors}
	t.options.Context = nil
	for _, path := range paths {
		if path == Standard {
			if len(paths) > 1 {
				return nil, errors.New("standard input is a source of its own; leave the other files out")
			}
			t.files = []*file{{path: "standard input", standard: &standardInput{Pipe: store.NewPipe(os.Stdin)}}}
			break
		}
		f := &file{path: store.Display(path), address: path}
		if store.Scheme(path) == "" {
			info, err := os.Stat(path)
			if err != nil {
				return nil, err
			}
			if !info.Mode().IsRegular() {
				return nil, fmt.Errorf("%s: not a file; a folder of files is read by a pattern, as in %s/*.csv", path,
					path)
			}
			if opt.Rejects != "" && sameFile(info, opt.Rejects) {
				return nil, fmt.Errorf("%s: the file of rejects cannot be a file that is read", path)
			}
		}
		var err error
		if f.version, err = store.Stat(opt.context(), path); err != nil {
			return nil, err
		}
		t.files = append(t.files, f)
		t.size += f.version.Size
		t.unsized = t.unsized || compressed(path)
	}
	if len(t.files) == 0 {
		return nil, errors.New("no file is named")
	}
	if opt.Preview {
		t.rejects = ""
	}
	s, err := t.sampleFile(opt)
	if err != nil {
		return nil, err
	}
	describe := t.describe
	if opt.JSON {
		describe = t.describeJSON
	}
	if err := describe(s); err != nil {
		return nil, fmt.Errorf("%s: %w", t.files[0].path, err)
	}
	return t, nil
}

// context returns the context of Open.
func (o *Options) context() context.Context {
	if o.Context == nil {
		return context.Background()
	}
	return o.Context
}

func sameFile(info os.FileInfo, path string) bool {
	other, err := os.Stat(path)
	return err == nil && os.SameFile(info, other)
}

// sampleFile reads the sample of the first file.
func (t *Table) sampleFile(opt Options) (*sniffer, error) {
	ctx := opt.context()
	if std := t.files[0].standard; std != nil {
		if _, err := io.CopyN(&std.sample, std.Reader(ctx), sampleBytes); err != nil && err != io.EOF {
			return nil, err
		}
		t.size = int64(std.sample.Len())
	}
	in, err := t.files[0].open(ctx, true, nil)
	if err != nil {
		return nil, err
	}
	defer in.end()
	if err := in.skip(opt.Skip); err != nil {
		return nil, err
	}
	text := make([]byte, sampleBytes)
	n, ended, err := in.fill(text)
	if err != nil {
		return nil, err
	}
	if std := t.files[0].standard; std != nil {
		ended = std.sample.Len() < sampleBytes
	}
	s := &sniffer{opt: opt, text: text[:n], whole: ended, nulls: t.nulls}
	s.dates, _ = newTimeFormat(opt.DateFormat) // Check has seen them
	s.times, _ = newTimeFormat(opt.TimestampFormat)
	if opt.JSON {
		s.d = Dialect{Newline: '\n', JSON: true}
	} else {
		s.findDialect()
	}
	if !ended {
		end := s.d.cut(s.text)
		if end == 0 { // a row that is longer than the sample
			more := make([]byte, maxRow-n)
			k, all, err := in.fill(more)
			if err != nil {
				return nil, err
			}
			s.text, s.whole = append(s.text, more[:k]...), all
			if end = s.d.cut(s.text); all {
				end = len(s.text)
			}
			if end == 0 {
				return nil, fmt.Errorf("%s, line %d: %w", in.file.path, in.line,
					badf("a row has more than %d bytes", maxRow))
			}
		}
		s.text = s.text[:end]
	}
	if at := checkText(s.text); at >= 0 {
		if !t.rejecting {
			line := in.line + int64(strings.Count(string(s.text[:at]), string(s.d.Newline)))
			return nil, notUTF8(in.file.path, line)
		}
	}
	if !opt.JSON {
		s.split()
	}
	if len(s.rows) > 0 && len(s.rows[len(s.rows)-1]) > maxColumns {
		return nil, fmt.Errorf("%s, line %d: %w", in.file.path, in.line, badf("a row has %s columns, and at most %s "+
			"are possible", humanize.Comma(int64(len(s.rows[len(s.rows)-1]))), humanize.Comma(maxColumns)))
	}
	if in.read > 0 && t.unsized {
		t.rowBytes = float64(n) / float64(in.read) // the ratio of the compression, for now
	}
	return s, nil
}

func notUTF8(path string, line int64) error {
	return fmt.Errorf("%s, line %d: %w", path, line, badf("the text is not UTF-8; convert the file, as with iconv"))
}

// describe sets what a sample tells about the table.
func (t *Table) describe(s *sniffer) error {
	t.dialect = s.d
	columns := s.width()
	opt := s.opt
	if opt.Schema != nil {
		columns = opt.Schema.Len()
	}
	switch {
	case opt.Header != nil:
		t.hasHeader = *opt.Header
	case opt.Schema != nil:
		t.hasHeader = len(s.rows) > 0 && slices.EqualFunc(columnNames(s.rows[0]), opt.Schema.Names(), strings.EqualFold)
	default:
		t.hasHeader = s.hasHeader(columns)
	}
	first := 0
	if t.hasHeader && len(s.rows) > 0 {
		t.names, first = columnNames(s.rows[0]), 1
		columns = len(t.names)
	} else {
		t.names = madeNames(max(columns, 1))
		columns = len(t.names)
	}
	t.schema = &gpu.Schema{Fields: make([]gpu.Field, columns)}
	types, formats := s.types(first, columns)
	if opt.AllVarchar {
		types, formats = slices.Repeat([]gpu.Type{gpu.Of(gpu.String)}, columns), make([]*timeFormat, columns)
	}
	if opt.Schema != nil {
		if err := t.give(opt.Schema); err != nil {
			return err
		}
	} else {
		given := map[string]gpu.Type{}
		for _, f := range opt.Types {
			i := slices.IndexFunc(t.names, func(name string) bool { return strings.EqualFold(name, f.Name) })
			if i < 0 {
				return badf("there is no column %q, whose type is given; the columns are %s", f.Name,
					strings.Join(t.names[:min(len(t.names), 20)], ", "))
			}
			given[t.names[i]] = f.Type
		}
		for i, typ := range types {
			if g, ok := given[t.names[i]]; ok {
				typ = g
			}
			t.schema.Fields[i] = gpu.Field{Name: t.names[i], Type: typ, Nullable: true}
		}
	}
	for i, f := range t.schema.Fields {
		if f.Type.Kind != types[i].Kind || f.Type.UTC {
			formats[i] = nil // that of another type
		}
		switch {
		case formats[i] != nil || f.Type.UTC:
		case f.Type.Kind == gpu.Date:
			formats[i] = s.dates
		case f.Type.Kind == gpu.Timestamp:
			formats[i] = s.times
		}
	}
	t.formats = formats
	t.setRows(s, int64(max(len(s.rows)-first, 0)), int64(first), s.sound(columns))
	return nil
}

// describeJSON is describe for lines of JSON.
func (t *Table) describeJSON(s *sniffer) error {
	t.dialect, t.nulls = s.d, nullTexts{others: []string{nullMark}}
	names, types, rows, what, line := s.sniffJSON()
	switch {
	case len(names) > maxColumns:
		return badf("the objects have more than %d keys", maxColumns)
	case what != sound && s.opt.Schema == nil && !t.rejecting:
		hint := ""
		if bytes.HasPrefix(bytes.TrimSpace(s.text), []byte("[")) {
			hint = "; the file is a list, and lines of JSON have an object each"
		}
		return badf("line %d: %s%s", line+1, what.describe(0, 0), hint)
	}
	t.schema = &gpu.Schema{}
	for i, name := range names {
		if i < len(types) {
			t.schema.Fields = append(t.schema.Fields, gpu.Field{Name: name, Type: types[i], Nullable: true})
		}
	}
	t.names = names
	if s.opt.Schema != nil {
		t.names, t.others = s.opt.Schema.Names(), true
		t.schema.Fields = slices.Clone(s.opt.Schema.Fields)
		for i := range t.schema.Fields {
			t.schema.Fields[i].Nullable = true
		}
	}
	t.given = slices.Repeat([]bool{s.opt.Schema != nil}, len(t.names))
	for _, f := range s.opt.Types {
		i := slices.Index(t.names, f.Name)
		if i < 0 {
			return badf("there is no column %q, whose type is given; the columns are %s", f.Name,
				strings.Join(t.names[:min(len(t.names), 20)], ", "))
		}
		t.schema.Fields[i].Type, t.given[i] = f.Type, true
	}
	if len(t.schema.Fields) == 0 {
		return badf("the file has no objects with keys, which would be its columns; give them by schema")
	}
	t.size = max(t.size, 1)
	t.setRows(s, int64(rows), 0, what == sound)
	return nil
}

// setRows sets the number of rows, by that of the sample.
func (t *Table) setRows(s *sniffer, rows, header int64, sound bool) {
	ratio := max(t.rowBytes, 1)
	t.rowBytes = float64(len(s.text)) / float64(max(rows+header, 1))
	t.rows, t.exact = rows, s.whole && len(t.files) == 1 && !t.rejecting && sound
	if !t.exact {
		t.rows = max(int64(float64(t.size)*ratio/max(t.rowBytes, 1)), rows+1)
	}
}

// sound reports whether all rows of the sample have the columns of the table.
func (s *sniffer) sound(columns int) bool {
	return !slices.ContainsFunc(s.rows, func(row []string) bool { return len(row) != columns })
}

// give sets the columns that the caller knows.
func (t *Table) give(schema *gpu.Schema) error {
	if t.hasHeader {
		if !slices.EqualFunc(t.names, schema.Names(), strings.EqualFold) {
			return badf("the header has the columns %s, and the schema %s; a schema has all columns of the file, in "+
				"their order; to give the types of some, use types",
				strings.Join(t.names[:min(len(t.names), 20)], ", "), strings.Join(schema.Names(), ", "))
		}
	} else {
		t.names = schema.Names()
	}
	t.schema.Fields = slices.Clone(schema.Fields)
	for i := range t.schema.Fields {
		t.schema.Fields[i].Nullable = true
	}
	return nil
}

// Schema implements source.Table.
func (t *Table) Schema() *gpu.Schema { return t.schema }

// Rows implements source.Table. It is an estimate unless RowsExact.
func (t *Table) Rows() int64 { return t.rows }

// IsStream implements source.Stream.
func (t *Table) IsStream() bool { return len(t.files) == 1 && t.files[0].standard != nil }

// RowsExact implements source.Estimated.
func (t *Table) RowsExact() bool { return t.exact }

// Unreadable implements source.Table.
func (t *Table) Unreadable() []source.Unreadable { return nil }

// Stats implements source.Table. A file has none.
func (t *Table) Stats(int) source.ColumnStats {
	return source.ColumnStats{Nulls: -1, Bytes: t.size / int64(t.schema.Len())}
}

// Dialect returns how rows and fields are separated, and whether there is a header.
func (t *Table) Dialect() (d Dialect, header bool) { return t.dialect, t.hasHeader }

// Describe implements source.Table.
func (t *Table) Describe() string {
	what, about := t.files[0].path, ""
	if n := len(t.files); n > 1 {
		what += fmt.Sprintf(" and %d more files", n-1)
	}
	if !t.exact {
		about = "about "
	}
	return fmt.Sprintf("%s (%s, %s%s rows, %s)", what, t.format(), about, humanize.Comma(t.rows),
		humanize.IBytes(uint64(t.size)))
}

func (t *Table) format() string {
	if t.dialect.JSON {
		return "JSON lines"
	}
	return "CSV"
}

// Identity returns the files in their versions, and the options. It fails for standard input.
func (t *Table) Identity() (any, error) {
	var out []store.Identity
	for _, f := range t.files {
		if f.standard != nil {
			return nil, errors.New("standard input has no version")
		}
		one, err := store.IdentityOf(f.address, f.version)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return []any{out, t.options}, nil
}

// Close implements source.Table.
func (t *Table) Close() error { return nil }

const (
	defaultStrideRows = 1 << 17
	leastBlock        = 64 << 10
	mostBlock         = 8 << 20
)

// blockBytes returns the bytes of text that are about the rows of a stride.
func (t *Table) blockBytes(opt source.ScanOptions) int {
	rows := opt.StrideRows
	if rows <= 0 {
		rows = defaultStrideRows
	}
	n := min(max(int(t.rowBytes*float64(rows)), leastBlock), mostBlock)
	if threads := int64(max(opt.Decode.Threads, 1)); !t.unsized {
		n = min(n, max(int(t.size/(4*threads)), leastBlock)) // all threads have work
	}
	return n
}

// blockMemory returns an estimate of the bytes of a block while it is parsed, and of its strides.
func (t *Table) blockMemory(opt source.ScanOptions) int64 {
	text := int64(t.blockBytes(opt))
	rows := int64(float64(text)/max(t.rowBytes, 1)) + 1
	width := int64(0)
	for _, c := range opt.Columns {
		width += int64(t.schema.Fields[c].Type.Width()) + 1
		if t.schema.Fields[c].Type.IsVar() {
			width += 4
		}
	}
	// The text, what follows it, the text of strings in scratch memory and in the stride.
	return 4*text + rows*width
}

// LeastMemory implements source.Table.
func (t *Table) LeastMemory(opt source.ScanOptions) int64 { return t.blockMemory(opt) }

// Sample implements source.Sampler. The rows are the first rows of the table.
func (t *Table) Sample(ctx context.Context, lease *gpu.Lease, columns []int, rows int) (*gpu.Stride, error) {
	opt := source.ScanOptions{Columns: columns, StrideRows: rows, Lease: lease,
		Decode: source.DecodeOptions{Threads: 1, Inflight: 1}}
	u := *t
	u.rejects, u.sampler = "", true // a sample writes no file
	r, err := u.Scan(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s, err := r.Read(ctx)
	if err == io.EOF {
		return nil, errors.New("the table has no rows")
	}
	return s, err
}

// headroom is what strides that are read later leave free for others.
func headroom(l *gpu.Lease) int64 { return grant.Headroom.Of(l.Limit()) }
