package exchange

import (
	"context"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// File is what a task reads of a file. It is data.
type File struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Partitions are the partitions that are read, in ascending order; nil for all.
	Partitions []int `json:"partitions,omitempty"`
	// These rows are divided into Of shares, in order, by whole pages; Share is the one that is read. Of is 0 for all.
	Share int `json:"share,omitempty"`
	Of    int `json:"of,omitempty"`
}

// Table presents what a task reads of some files as one table. It implements source.Table. It keeps no file open.
type Table struct {
	schema *gpu.Schema
	files  []File
	groups []group
	total  Part
}

// group is pages of a file that follow each other, and become one stride.
type group struct {
	file  int
	pages []Page
	rows  int
	read  int64 // bytes in the file
	size  int64 // bytes of the stride, as an estimate
}

// Open returns the table of files. All must have the columns of a schema. The error is a source.ErrData for content
// that is wrong, also of another size, and one of package os for a file that cannot be read.
func Open(ctx context.Context, schema *gpu.Schema, files []File) (*Table, error) {
	t := &Table{schema: schema, files: files}
	for i, f := range files {
		x, err := ReadIndex(ctx, f.Path, f.Size)
		if err == nil {
			err = t.add(i, x)
		}
		if err != nil {
			return nil, fmt.Errorf("rows of an earlier task: %w", err)
		}
	}
	return t, nil
}

// add adds the pages of a file that are read.
func (t *Table) add(file int, x *Index) error {
	f := t.files[file]
	if !slices.EqualFunc(x.Schema.Fields, t.schema.Fields, func(a, b gpu.Field) bool { return a.Type == b.Type }) {
		return fmt.Errorf("%s: %w", store.Display(f.Path), badf("it has other columns than the plan"))
	}
	pages := x.Pages
	if f.Partitions != nil {
		pages = slices.DeleteFunc(pages, func(p Page) bool {
			_, ok := slices.BinarySearch(f.Partitions, p.Partition)
			return !ok
		})
	}
	for i, p := range pages {
		if f.Of == 0 || i*f.Of/len(pages) == f.Share {
			t.total.add(&p)
			t.place(file, p)
		}
	}
	return nil
}

// groupRows and groupBytes bound the rows of a group.
const (
	groupRows  = 1 << 20
	groupBytes = 32 << 20
)

// place adds a page to the last group, or begins one.
func (t *Table) place(file int, p Page) {
	if n := len(t.groups); n > 0 {
		g := &t.groups[n-1]
		last := &g.pages[len(g.pages)-1]
		if g.file == file && last.Offset+last.Stored == p.Offset && last.Joins(&p.Page) && g.rows+p.Rows <= groupRows &&
			g.size+p.Size <= groupBytes {
			g.pages = append(g.pages, p)
			g.rows, g.read, g.size = g.rows+p.Rows, g.read+p.Stored, g.size+t.sizeOf(&p)
			return
		}
	}
	t.groups = append(t.groups, group{file, []Page{p}, p.Rows, p.Stored, t.sizeOf(&p)})
}

// sizeOf estimates the bytes of the rows of a page in a stride: those of the page, and bits of all columns.
func (t *Table) sizeOf(p *Page) int64 { return p.Size + int64(t.schema.Len())*(int64(p.Rows)/8+64) }

// Total returns all rows that are read.
func (t *Table) Total() Part { return t.total }

// Schema implements source.Table.
func (t *Table) Schema() *gpu.Schema { return t.schema }

// Unreadable implements source.Table.
func (t *Table) Unreadable() []source.Unreadable { return nil }

// Rows implements source.Table.
func (t *Table) Rows() int64 { return t.total.Rows }

// Stats implements source.Table. A file has none.
func (t *Table) Stats(int) source.ColumnStats {
	return source.ColumnStats{Nulls: -1, Bytes: t.total.Bytes / int64(max(t.schema.Len(), 1))}
}

// Describe implements source.Table.
func (t *Table) Describe() string {
	return fmt.Sprintf("%d files of earlier tasks (%s rows, %s)", len(t.files), humanize.Comma(t.total.Rows),
		humanize.IBytes(uint64(t.total.Bytes)))
}

// Close implements source.Table.
func (t *Table) Close() error { return nil }

// LeastMemory implements source.Table: of the largest group, expanded, as it is stored, and one page of it expanded.
func (t *Table) LeastMemory(source.ScanOptions) (most int64) {
	for i := range t.groups {
		most = max(most, t.groups[i].memory())
	}
	return most
}

// memory returns the bytes that reading a group takes.
func (g *group) memory() int64 { return g.size + g.scratch() }

// scratch returns the bytes that reading a group takes besides those of the stride.
func (g *group) scratch() int64 {
	largest := int64(0)
	for i := range g.pages {
		largest = max(largest, g.pages[i].Size+g.pages[i].Stored)
	}
	return g.read + largest
}
