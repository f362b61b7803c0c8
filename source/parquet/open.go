package parquet

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
	"golang.org/x/sync/errgroup"
)

// OpenOptions configure the opening of files.
type OpenOptions struct {
	// Context ends the reads of footers, and the listing of an object store. nil means that nothing does.
	Context context.Context
	// Threads bounds the number of footers that are read concurrently. 0 means GOMAXPROCS, and more for object stores.
	Threads int
	// Strict makes it an error if files have different columns or types.
	Strict bool
	// Schema, if set, has the columns of the table and their types. Other columns of the files are
	// left out. It is an error if no file has a column, or if the type of a column in a file has
	// values that the given type cannot represent. A field becomes nullable if it is nullable in a
	// file.
	Schema *gpu.Schema
	// Partitions has the types of partition columns. The types of other partition columns follow
	// from their values. See List.
	Partitions []gpu.Field
	// NoPartitions treats folders such as y=2024 as ordinary folders.
	NoPartitions bool
	// Optional allows paths without files. If there is no file at all, the table has no rows and
	// the columns of Schema, which must be set.
	Optional bool
	// Output, if set, is the file or folder that the rows are written to. A folder or pattern that
	// includes it is an error, because the next run would read the rows of this one. A path that
	// names the output itself, or something in it, is allowed: the job then replaces its input.
	Outputs []*Output
}

// context returns the context of the options.
func (o *OpenOptions) context() context.Context {
	if o.Context == nil {
		return context.Background()
	}
	return o.Context
}

// threadsFor returns the number of goroutines that read the footers of files.
func threadsFor(paths []string) int {
	n := runtime.GOMAXPROCS(0)
	if slices.ContainsFunc(paths, isRemote) {
		n = max(n, remoteReads)
	}
	return n
}

// remote reports whether some files of a table are objects.
func (t *Table) remote() bool {
	return slices.ContainsFunc(t.files, func(f *file) bool { return isRemote(f.handle.path) })
}

// isRemote reports whether a path is not one of the local file system.
func isRemote(path string) bool { return store.Scheme(path) != "" }

// Table presents the files of one scan as one table. It implements source.Table. It keeps
// no file open.
type Table struct {
	schema  *gpu.Schema // the columns, then those inside of nested ones
	visible *gpu.Schema // the columns
	inside  [][]string  // the paths of the others
	files   []*file
	refused []source.Unreadable
	rows    int64
	first   string       // path of one of the files
	ruled   int          // number of files that were excluded by their folders
	shares  [][]rowRange // of each row group of each file, the rows that the table has; nil for all
	// snapshot names the files by the paths that the caller gave.
	snapshot Snapshot
	// metadata has the key-value pairs of the files.
	metadata map[string]string
}

var _ source.Described = (*Table)(nil)

// Files returns the sizes of the local files whose rows the table has, by their paths.
func (t *Table) Files() map[string]int64 {
	sizes := map[string]int64{}
	for _, f := range t.files {
		if !t.snapshot.Empty && !isRemote(f.handle.path) {
			sizes[f.handle.path] = f.size
		}
	}
	return sizes
}

// Open reads the footers of the files that paths name. A path is a file, a folder or a pattern. A
// folder stands for its *.parquet files at any depth. docs/job-file.md has the rules. The files are
// in the order of the paths, and within a path in the order of their names.
//
// A path that cannot be read is an error of package os. Wrong content is a source.ErrData, and so
// are columns whose types have no common type (gpu.CommonType). Columns are matched by their exact
// names first, then without regard to case. They have the order of the first file; columns that the
// first file lacks follow. A column that a file lacks is null in the rows of this file.
//
// A folder such as y=2024 in a path adds a column y to the table, after the others (List). If the
// files have a column with this name, in upper or lower case, the value in the path replaces its
// values.
func Open(paths []string, opt OpenOptions) (*Table, error) {
	l, err := List(paths, opt)
	if err != nil {
		return nil, err
	}
	return l.Open(nil, opt)
}

// Open is like the function Open for files that have been listed. If keep is not nil, it leaves out
// the files for which keep is false. If no file is left, the table has the columns of the first
// file and no rows.
func (l *Listing) Open(keep func(i int) bool, opt OpenOptions) (*Table, error) {
	if len(l.Paths) == 0 {
		return emptyTable(opt.Schema)
	}
	var names []string
	var kept []int
	for i, path := range l.Paths {
		if keep == nil || keep(i) {
			names, kept = append(names, path), append(kept, i)
		}
	}
	none := len(names) == 0
	if none {
		names, kept = l.Paths[:1], []int{0}
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = threadsFor(names)
	}
	ctx := opt.context()
	type footer struct {
		columns []leaf
		refused []source.Unreadable
	}
	t := &Table{files: make([]*file, len(names)), first: store.Display(names[0]), ruled: len(l.Paths) - len(names)}
	footers := make([]footer, len(names))
	var g errgroup.Group
	g.SetLimit(threads)
	for i, name := range names {
		g.Go(func() (err error) {
			f := &footers[i]
			if t.files[i], f.columns, f.refused, err = readFile(ctx, name, l.version(name)); err == nil && i > 0 {
				digest(t.files[i].metadata)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, f := range t.files {
		for _, p := range l.Partitions {
			f.values = append(f.values, p.Values[kept[i]])
		}
	}
	all := make([][]leaf, len(names))
	for i, f := range t.files {
		t.rows += f.rows
		all[i] = footers[i].columns
		if f.rows == 0 {
			adoptTypes(all[i], opt)
		}
		for _, r := range footers[i].refused {
			if l.partition(r.Name) < 0 && !slices.ContainsFunc(t.refused,
				func(q source.Unreadable) bool { return q.Name == r.Name }) {
				t.refused = append(t.refused, r)
			}
		}
	}
	if err := l.checkGiven(t.files, all, opt); err != nil {
		return nil, err
	}
	if err := t.unify(all, l, opt); err != nil {
		return nil, err
	}
	t.metadata = t.sharedMetadata(all[0])
	t.snapshot = Snapshot{Listing: l.of(kept), Strict: opt.Strict, Schema: opt.Schema, Ruled: t.ruled, Empty: none}
	for _, f := range t.files {
		t.snapshot.Versions = append(t.snapshot.Versions, f.handle.version)
	}
	if none {
		t.files, t.rows, t.ruled = nil, 0, len(l.Paths)
	}
	return t, nil
}

// emptyTable returns a table without files.
func emptyTable(schema *gpu.Schema) (*Table, error) {
	if schema == nil {
		return nil, errors.New("there are no files, and no schema says which columns they would have")
	}
	t := &Table{schema: gpu.NewSchema(slices.Clone(schema.Fields)...), first: "no files",
		snapshot: Snapshot{Schema: schema}}
	t.visible = t.schema
	for i := range t.schema.Fields {
		t.schema.Fields[i].Nullable = true
	}
	return t, nil
}

// Schema implements source.Table.
func (t *Table) Schema() *gpu.Schema { return t.visible }

// Inside implements source.Nested.
func (t *Table) Inside() []source.Inside {
	out := make([]source.Inside, len(t.inside))
	for i, path := range t.inside {
		at := t.visible.Len() + i
		out[i] = source.Inside{Column: t.visible.Index(path[0]), Path: path[1:], Field: t.schema.Fields[at]}
	}
	return out
}

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
	what := t.first
	if n := len(t.files); n > 1 {
		what += fmt.Sprintf(" and %d more files", n-1)
	}
	if t.ruled > 0 {
		return fmt.Sprintf("%s (%s rows, %d row groups, %s; %s of %s files not opened, by their folders)", what,
			humanize.Comma(t.rows), groups, humanize.IBytes(uint64(size)),
			humanize.Comma(int64(t.ruled)), humanize.Comma(int64(t.ruled+len(t.files))))
	}
	return fmt.Sprintf("%s (%s rows, %d row groups, %s)", what, humanize.Comma(t.rows), groups,
		humanize.IBytes(uint64(size)))
}

// Close implements source.Table.
func (t *Table) Close() error { return nil }
