package exchange

import (
	"cmp"
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
	// Pages are those that are read, in order. The reader does not look at the index of the file.
	Pages []Page `json:"pages"`
}

// Select returns the pages of some partitions, of pages that are ordered by partition. They are divided into a number
// of shares, in order: the result is one of them. 0 shares are one.
func Select(pages []Page, partitions []int, share, of int) (out []Page) {
	for _, p := range partitions {
		from, _ := slices.BinarySearchFunc(pages, p, func(x Page, p int) int { return cmp.Compare(x.Partition, p) })
		for ; from < len(pages) && pages[from].Partition == p; from++ {
			out = append(out, pages[from])
		}
	}
	return ShareOf(out, share, of)
}

// ShareOf returns a share of pages, as Select does.
func ShareOf(pages []Page, share, of int) []Page {
	if of <= 1 {
		return pages
	}
	n := len(pages)
	return pages[(share*n+of-1)/of : ((share+1)*n+of-1)/of]
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

// Open returns the table of files, which have the columns of a schema. It reads nothing. The error is a source.ErrData
// for pages that no file can have. Scans find out whether a file is there, and has them.
func Open(schema *gpu.Schema, files []File) (*Table, error) {
	t := &Table{schema: schema, files: files}
	for i, f := range files {
		at := int64(len(Magic))
		for _, p := range f.Pages {
			err := p.Check(schema)
			if err == nil && (p.Offset < at || p.Offset > f.Size || p.Stored > f.Size-p.Offset) {
				err = badf("a page is at byte %d of %d", p.Offset, f.Size)
			}
			if err != nil {
				return nil, fmt.Errorf("rows of an earlier task: %s: %w", store.Display(f.Path), err)
			}
			at = p.Offset + p.Stored
			t.total.add(&p)
			t.place(i, p)
		}
	}
	return t, nil
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
