package text

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// Options say how files are read. What is missing is found by a sample of the first file.
type Options struct {
	// JSON means objects of JSON. Then only Format, Types, Schema, UnionByName, Partitions, IgnoreErrors, Rejects and
	// Preview apply.
	JSON bool
	// Format says where objects of JSON are: JSONLines, JSONArray, JSONUnstructured, or "" for what a file begins with.
	Format string
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
	// NullPadding makes the columns null that a row of CSV lacks at its end.
	NullPadding bool
	// UnionByName samples all files, whose columns may differ. A column is null in the rows of files that lack it.
	UnionByName bool
	// Partitions are columns that have one value in each file. They replace columns of the files with their names.
	Partitions []Partition
	// IgnoreErrors leaves rows out that cannot be read. Progress has their number.
	IgnoreErrors bool
	// Rejects, if set, is the file to which rows are written that cannot be read.
	Rejects string
	// Preview leaves such rows out, and writes no file.
	Preview bool
}

// Partition is a column with the value of each file.
type Partition struct {
	Field  gpu.Field
	Values []gpu.Scalar `json:"-"` // as the paths
}

// Check returns an error for options that are wrong whatever the files.
func (o Options) Check() error {
	if _, ok := jsonForms[o.Format]; !ok {
		return fmt.Errorf("the format of JSON is %q; it must be auto, newline_delimited, array or unstructured",
			o.Format)
	}
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
	case o.Schema != nil && o.UnionByName && !o.JSON:
		return errors.New("schema has all columns of the files; leave union_by_name out")
	case o.Schema != nil && len(o.Types) > 0:
		return errors.New("schema has the types of all columns; leave types out")
	}
	return nil
}

// Table presents files as one table. It implements source.Table. It keeps no file open.
type Table struct {
	files     []*file
	options   Options // without a context
	skip      int64
	sampler   bool   // standard input has only the sample
	others    bool   // keys of JSON that are no columns are left out
	given     []bool // columns of JSON whose types are given
	schema    *gpu.Schema
	united    *gpu.Schema // its columns that are united by name, without partitions; nil if none are
	constants map[int]int // columns of the schema that are partitions, by their numbers
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
	t := newTable(opt)
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
	sampled := t.files[:1]
	if opt.UnionByName {
		sampled = t.files
	}
	if err := t.describe(opt, sampled); err != nil {
		return nil, err
	}
	return t, nil
}

// newTable returns a table without files.
func newTable(opt Options) *Table {
	t := &Table{options: opt, skip: opt.Skip, nulls: newNullTexts(opt.Nulls), rejects: opt.Rejects,
		rejecting: opt.Rejects != "" || opt.IgnoreErrors}
	t.options.Context = nil
	if opt.NullPadding {
		t.nulls.others = append(t.nulls.others, nullMark)
	}
	return t
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

// sampleFile reads the sample of a file.
func (t *Table) sampleFile(file *file, opt Options) (*sniffer, error) {
	ctx := opt.context()
	if std := file.standard; std != nil {
		if _, err := io.CopyN(&std.sample, std.Reader(ctx), sampleBytes); err != nil && err != io.EOF {
			return nil, err
		}
		t.size = int64(std.sample.Len())
	}
	in, err := file.open(ctx, true, nil)
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
	if std := file.standard; std != nil {
		ended = std.sample.Len() < sampleBytes
	}
	text = text[:n]
	s := &sniffer{opt: opt, nulls: t.nulls}
	s.dates, _ = newTimeFormat(opt.DateFormat) // Check has seen them
	s.times, _ = newTimeFormat(opt.TimestampFormat)
	if opt.JSON {
		s.d, s.form = Dialect{Newline: '\n', JSON: true}, findForm(opt.Format, text)
	}
	if err = s.take(text, ended); err != nil {
		return nil, fmt.Errorf("%s: %w", file.path, err)
	}
	if !opt.JSON {
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
			if err = s.take(append(text, more[:k]...), all); err != nil {
				return nil, fmt.Errorf("%s: %w", file.path, err)
			}
			if end = s.d.cut(s.text); all {
				end = len(s.text)
			}
			if end == 0 {
				return nil, fmt.Errorf("%s, %s %d: %w", file.path, s.form.unit(), in.line,
					badf("a row has more than %d bytes", maxRow))
			}
		}
		s.text = s.text[:end]
	}
	if at := checkText(s.text); at >= 0 {
		if !t.rejecting {
			line := in.line + int64(strings.Count(string(s.text[:at]), string(s.d.Newline)))
			return nil, notUTF8(file.path, s.form, line)
		}
	}
	if !opt.JSON {
		s.split()
	}
	if len(s.rows) > 0 && len(s.rows[len(s.rows)-1]) > maxColumns {
		return nil, fmt.Errorf("%s, line %d: %w", file.path, in.line, badf("a row has %s columns, and at most %s "+
			"are possible", humanize.Comma(int64(len(s.rows[len(s.rows)-1]))), humanize.Comma(maxColumns)))
	}
	if in.read > 0 && t.unsized {
		s.ratio = float64(n) / float64(in.read)
	}
	return s, nil
}

// take sets the text of the sample, the begin of a file or all of it.
func (s *sniffer) take(text []byte, whole bool) (err error) {
	s.text, s.whole = text, whole
	if s.form != jsonLines {
		s.text, err = s.form.lines(text, whole)
	}
	return err
}

func notUTF8(path string, form jsonForm, line int64) error {
	return fmt.Errorf("%s, %s %d: %w", path, form.unit(), line,
		badf("the text is not UTF-8; convert the file, as with iconv"))
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

// Describe implements source.Table.
func (t *Table) Describe() string {
	if len(t.files) == 0 { // the share of a task
		return "no file"
	}
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
	switch l := t.files[0].layout; {
	case l.form != jsonLines:
		return "JSON"
	case l.dialect.JSON:
		return "JSON lines"
	}
	return "CSV"
}

// Identity returns the files in their versions, and the options. It fails for standard input.
func (t *Table) Identity() (any, error) {
	files, err := t.identities()
	if err != nil {
		return nil, err
	}
	return []any{files, t.options}, nil
}

func (t *Table) identities() (out []store.Identity, err error) {
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
	return out, nil
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
