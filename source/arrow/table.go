package arrow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// Named reports whether the name of a file is that of Arrow's IPC format.
func Named(path string) bool {
	path = strings.ToLower(path)
	if s := store.Scheme(path); s == "http" || s == "https" {
		path, _, _ = strings.Cut(path, "?") // a query
	}
	return slices.Contains([]string{".arrow", ".arrows", ".feather", ".ipc"}, filepath.Ext(path))
}

// fileTable presents files of Arrow's IPC format as one table. It implements source.Table. It keeps no file open.
type fileTable struct {
	files      []*file
	schema     *gpu.Schema
	fields     []int // of the columns in the schema of a file
	unreadable []source.Unreadable
	size       int64
	rows       int64
	exact      bool
	widest     []int64 // bytes of each column in the first record batch of a file, at most
	batchRows  int64   // rows of the first record batch of a file, at most
}

// sampledTable is a fileTable that can be read again.
type sampledTable struct{ *fileTable }

// Open returns the table of files, in order, whether they are Arrow files or Arrow streams. Standard is standard input,
// a stream. The other files must have the columns and types of the first one; dictionaries and the widths of offsets
// may differ. A file that cannot be read is an error of package os. Wrong content is a source.ErrData, as far as the
// metadata shows it.
func Open(ctx context.Context, paths []string) (source.Table, error) {
	t := &fileTable{exact: true}
	for _, path := range paths {
		f := &file{path: store.Display(path), address: path}
		var err error
		if path == Standard {
			if len(paths) > 1 {
				return nil, errors.New("standard input is a source of its own; leave the other files out")
			}
			f.path = "standard input"
			err = openStandard(ctx, f)
		} else {
			if f.version, err = store.Stat(ctx, path); err != nil {
				return nil, err
			}
			err = openFile(ctx, f)
		}
		if err == nil {
			err = t.add(ctx, f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	if len(t.files) == 0 {
		return nil, errors.New("no file is named")
	}
	if t.IsStream() {
		t.rows, t.exact = 1e6, false
		return t, nil
	}
	return sampledTable{t}, nil
}

// add adds a file.
func (t *fileTable) add(ctx context.Context, f *file) error {
	schema, fields := &gpu.Schema{}, []int{}
	var unreadable []source.Unreadable
	for i := range f.fields {
		one := &f.fields[i]
		field, err := fieldOf(one)
		if err != nil {
			what := fmt.Sprintf("type %d", one.kind)
			if one.Type != nil {
				what = one.Type.String()
			}
			unreadable = append(unreadable, source.Unreadable{Name: one.Name, Type: what, Reason: err.Error()})
			continue
		}
		schema.Fields, fields = append(schema.Fields, field), append(fields, i)
	}
	if len(f.fields) == 0 {
		return badf("the schema has no columns")
	}
	if t.files = append(t.files, f); len(t.files) == 1 {
		t.schema, t.fields, t.unreadable = schema, fields, unreadable
		t.widest = make([]int64, len(fields))
	} else if err := t.agrees(f, schema, unreadable); err != nil {
		return err
	}
	t.size += f.version.Size
	t.rows += f.rows
	if t.exact = t.exact && f.exact; f.sequential {
		t.rows += max(f.version.Size/int64(max(t.schema.RowBytes(), 1)), 1)
	}
	return t.measure(ctx, f)
}

// agrees returns an error if a file has other columns than the first one.
func (t *fileTable) agrees(f *file, schema *gpu.Schema, unreadable []source.Unreadable) error {
	for i := range max(schema.Len(), t.schema.Len()) {
		want, got := "none", "none"
		if i < t.schema.Len() {
			want = fmt.Sprintf("%q of type %v", t.schema.Fields[i].Name, t.schema.Fields[i].Type)
		}
		if i < schema.Len() {
			got = fmt.Sprintf("%q of type %v", schema.Fields[i].Name, schema.Fields[i].Type)
		}
		if want != got {
			return badf("column %d is %s, and in %s it is %s; files with other columns are sources of their own", i+1,
				got, t.files[0].path, want)
		}
		if schema.Fields[i].Nullable {
			t.schema.Fields[i].Nullable = true
		}
	}
	for i, u := range t.unreadable {
		if i >= len(unreadable) || u.Name != unreadable[i].Name {
			return badf("the column %q of %s is not in it", u.Name, t.files[0].path)
		}
	}
	if len(f.fields) != len(t.files[0].fields) || len(unreadable) != len(t.unreadable) {
		return badf("it has %d columns, and %s has %d", len(f.fields), t.files[0].path, len(t.files[0].fields))
	}
	return nil
}

// fieldOf returns the column of a field.
func fieldOf(f *Field) (gpu.Field, error) {
	if f.Type == nil {
		return gpu.Field{}, errors.New(f.Why)
	}
	return columnField(f.Field)
}

// measure learns the sizes of columns from the first record batch of a file.
func (t *fileTable) measure(ctx context.Context, f *file) error {
	i := slices.IndexFunc(f.blocks, func(b block) bool { return b.records })
	if i < 0 {
		return nil
	}
	in, err := store.Open(ctx, f.address, &f.version)
	if err != nil {
		return err
	}
	defer in.Close()
	w := &window{ctx: ctx, file: in, size: in.Version().Size}
	m, _, err := w.message(f.blocks[i].offset)
	if err != nil || m == nil {
		return err
	}
	l, err := m.layoutOf(m.table, f.fields)
	if err != nil {
		return fmt.Errorf("record batch 0: %w", err)
	}
	t.batchRows = max(t.batchRows, l.rows)
	for c, k := range t.fields {
		n := l.bytes(k)
		if l.codec != codecNone {
			n *= 4 // as an estimate
		}
		t.widest[c] = max(t.widest[c], n)
	}
	return nil
}

func guard(err *error) {
	if p := recover(); p != nil {
		*err = gpu.Panicked("a reader of Arrow files", p, debug.Stack())
	}
}

// Schema implements source.Table.
func (t *fileTable) Schema() *gpu.Schema { return t.schema }

// Rows implements source.Table. It is an estimate unless RowsExact.
func (t *fileTable) Rows() int64 { return t.rows }

// RowsExact implements source.Estimated.
func (t *fileTable) RowsExact() bool { return t.exact }

// IsStream implements source.Stream.
func (t *fileTable) IsStream() bool { return len(t.files) == 1 && t.files[0].pipe != nil }

// Unreadable implements source.Table.
func (t *fileTable) Unreadable() []source.Unreadable { return t.unreadable }

// Stats implements source.Table. A file has none.
func (t *fileTable) Stats(int) source.ColumnStats {
	return source.ColumnStats{Nulls: -1, Bytes: t.size / int64(max(t.schema.Len(), 1))}
}

// Describe implements source.Table.
func (t *fileTable) Describe() string {
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
	return fmt.Sprintf("%s (Arrow, %s%s rows, %s)", what, about, humanize.Comma(t.rows),
		humanize.IBytes(uint64(t.size)))
}

// Identity returns the files in their versions. It fails for standard input.
func (t *fileTable) Identity() (any, error) { return t.identities() }

func (t *fileTable) identities() (out []store.Identity, err error) {
	for _, f := range t.files {
		if f.pipe != nil {
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
func (t *fileTable) Close() error { return nil }

const defaultStrideRows = 1 << 17

// batchMemory returns an estimate of the bytes of a record batch while its rows are copied, and of a stride.
func (t *fileTable) batchMemory(opt source.ScanOptions) (n int64) {
	read := &gpu.Schema{}
	for _, c := range opt.Columns {
		read.Fields = append(read.Fields, t.schema.Fields[c])
		n += t.widest[c] + t.widest[c]/4
	}
	rows := int64(opt.StrideRows)
	if t.batchRows > 0 {
		rows = min(rows, t.batchRows)
	}
	return n + 2*rows*int64(read.RowBytes())
}

// LeastMemory implements source.Table.
func (t *fileTable) LeastMemory(opt source.ScanOptions) int64 {
	if opt.StrideRows <= 0 {
		opt.StrideRows = defaultStrideRows
	}
	return t.batchMemory(opt)
}

// ExplainMemory implements source.Explainer.
func (t *fileTable) ExplainMemory(source.ScanOptions) string {
	if t.batchRows < defaultStrideRows || len(t.files) == 0 {
		return ""
	}
	return fmt.Sprintf("a record batch of %s is read at once, and has %s rows", t.files[0].path,
		humanize.Comma(t.batchRows))
}

// Sample implements source.Sampler. The rows are the first rows of the table.
func (t sampledTable) Sample(ctx context.Context, lease *gpu.Lease, columns []int, rows int) (*gpu.Stride, error) {
	r, err := t.Scan(ctx, source.ScanOptions{Columns: columns, StrideRows: rows, Lease: lease,
		Decode: source.DecodeOptions{Threads: 1, Inflight: 1}})
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
