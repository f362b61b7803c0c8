package parquet

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"golang.org/x/sync/errgroup"
)

// OpenOptions configure the opening of files.
type OpenOptions struct {
	// Threads bounds the footers that are read concurrently; 0 means GOMAXPROCS.
	Threads int
}

// Table presents the files of one scan as one table. It implements source.Table. It keeps
// no file open.
type Table struct {
	schema  *gpu.Schema
	files   []*file
	refused []source.Unreadable
	rows    int64
}

var _ source.Table = (*Table)(nil)

// Open reads the footers of the files that the paths name. A path is a file, a folder or
// a pattern. A folder means its *.parquet files at any depth. docs/job-file.md has the
// rules. The order is that of the paths, and of the names within each.
//
// A path that cannot be read is an error of package os. Wrong content, or files whose
// schemas differ, are a source.ErrData. Columns match by name. A column that is optional
// in one file is nullable in the table.
func Open(paths []string, opt OpenOptions) (*Table, error) {
	names, err := expand(paths)
	if err != nil {
		return nil, err
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	type footer struct {
		columns []leaf
		refused []source.Unreadable
	}
	t := &Table{files: make([]*file, len(names))}
	footers := make([]footer, len(names))
	var g errgroup.Group
	g.SetLimit(threads)
	for i, name := range names {
		g.Go(func() (err error) {
			f := &footers[i]
			t.files[i], f.columns, f.refused, err = readFile(name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	t.schema = &gpu.Schema{}
	for _, c := range footers[0].columns {
		t.schema.Fields = append(t.schema.Fields, c.field)
	}
	t.refused = footers[0].refused
	var faults []error
	for i, f := range t.files {
		t.rows += f.rows
		faults = append(faults, t.adopt(f, footers[i].columns, footers[i].refused)...)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: the files do not have one schema: %w", source.ErrData, errors.Join(faults...))
	}
	return t, nil
}

// adopt brings the columns of a file into the order of the table's schema, and reports
// how they differ from it.
func (t *Table) adopt(f *file, columns []leaf, refused []source.Unreadable) (faults []error) {
	first := t.files[0].path
	byName := make(map[string]int, len(columns))
	for i, c := range columns {
		byName[c.field.Name] = i
	}
	f.cols = make([]leaf, t.schema.Len())
	order := make([]int, t.schema.Len())
	for i := range t.schema.Fields {
		want := &t.schema.Fields[i]
		j, ok := byName[want.Name]
		if !ok {
			faults = append(faults, fmt.Errorf("%s has no column %q that can be read, but %s has", f.path, want.Name, first))
			continue
		}
		delete(byName, want.Name)
		f.cols[i], order[i] = columns[j], j
		if got := columns[j].field.Type; got != want.Type {
			faults = append(faults, fmt.Errorf("%s: column %q is %v, in %s it is %v", f.path, want.Name, got, first, want.Type))
		}
		want.Nullable = want.Nullable || columns[j].optional
		if columns[j].field.Annotation != want.Annotation {
			want.Annotation = gpu.NoAnnotation
		}
	}
	for _, c := range columns {
		if _, extra := byName[c.field.Name]; extra {
			faults = append(faults, fmt.Errorf("%s has a column %q, but %s has none that can be read", f.path, c.field.Name, first))
		}
	}
	if len(faults) > 0 {
		return faults
	}
	for g := range f.groups {
		chunks := make([]chunk, len(order))
		for i, j := range order {
			chunks[i] = f.groups[g].chunks[j]
		}
		f.groups[g].chunks = chunks
	}
	for _, r := range refused {
		if !slices.ContainsFunc(t.refused, func(q source.Unreadable) bool { return q.Name == r.Name }) {
			t.refused = append(t.refused, r)
		}
	}
	return nil
}

// Schema implements source.Table.
func (t *Table) Schema() *gpu.Schema { return t.schema }

// Rows implements source.Table.
func (t *Table) Rows() int64 { return t.rows }

// Unreadable implements source.Table.
func (t *Table) Unreadable() []source.Unreadable { return t.refused }

// Describe implements source.Table.
func (t *Table) Describe() string {
	size, groups := int64(0), 0
	for _, f := range t.files {
		size += f.size
		groups += len(f.groups)
	}
	what := t.files[0].path
	if n := len(t.files); n > 1 {
		what += fmt.Sprintf(" and %d more files", n-1)
	}
	return fmt.Sprintf("%s (%s rows, %d row groups, %s)", what, humanize.Comma(t.rows), groups, humanize.IBytes(uint64(size)))
}

// Close implements source.Table.
func (t *Table) Close() error { return nil }

// handle opens a file when the first chunk is fetched from it, and closes it after the
// last one. So the number of open files depends on the chunks that are being fetched, not
// on the table.
type handle struct {
	path string
	size int64
	mu   sync.Mutex
	file *os.File
	refs int
}

func (h *handle) acquire() (*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refs == 0 {
		f, err := os.Open(h.path)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && info.Size() != h.size {
			err = fmt.Errorf("%s: %w", h.path, badf("it had %d bytes when the scan was planned and now has %d", h.size, info.Size()))
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		h.file = f
	}
	h.refs++
	return h.file, nil
}

func (h *handle) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refs--; h.refs == 0 {
		h.file.Close()
		h.file = nil
	}
}
