package parquet

import (
	"context"

	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go/format"
)

// maxIndexBytes bounds the size of a page index that is read while a scan is planned.
const maxIndexBytes = 16 << 20

// pageRanges returns the rows of the pages of a row group that the page index does not rule out. ok
// is false if there is no page index, or one that does not fit the row group. Such an index is not
// used, and no row is lost.
func (f *file) pageRanges(ctx context.Context, g *rowGroup, p source.Predicate) (ranges []rowRange, ok bool) {
	m := &g.chunks[p.Column]
	if m.columnIndex.size == 0 || m.offsetIndex.size == 0 ||
		max(m.columnIndex.size, m.offsetIndex.size) > maxIndexBytes {
		return nil, false
	}
	var values format.ColumnIndex
	var offsets format.OffsetIndex
	if f.readStructure(ctx, m.columnIndex, &values) != nil || f.readStructure(ctx, m.offsetIndex, &offsets) != nil {
		return nil, false
	}
	pages, ok := rowsOfPages(&offsets, m, g.rows)
	c := f.cols[p.Column]
	if !ok || !c.plausible(&values, pages, m.stats) {
		return nil, false
	}
	for i, page := range pages {
		if c.pageRefuted(&values, i, p) {
			continue
		}
		if last := len(ranges) - 1; last >= 0 && ranges[last].to == page.from {
			ranges[last].to = page.to
		} else {
			ranges = append(ranges, page)
		}
	}
	return ranges, true
}

// rowsOfPages returns the row range of each page of a chunk. ok is false unless the pages are
// consecutive in the row group and in the file.
func rowsOfPages(x *format.OffsetIndex, m *chunk, rows int64) ([]rowRange, bool) {
	n := len(x.PageLocations)
	if n == 0 || x.PageLocations[0].FirstRowIndex != 0 {
		return nil, false
	}
	out := make([]rowRange, n)
	at := m.start
	for i, l := range x.PageLocations {
		end := rows
		if i+1 < n {
			end = x.PageLocations[i+1].FirstRowIndex
		}
		out[i] = rowRange{l.FirstRowIndex, end}
		size := int64(l.CompressedPageSize)
		if l.FirstRowIndex >= end || end > rows || size <= 0 || l.Offset < at || size > m.start+m.size-l.Offset {
			return nil, false
		}
		at = l.Offset + size
	}
	return out, true
}

// plausible reports whether a column index agrees with the schema, with the statistics of the chunk
// and with itself. If it does not, no part of it is used.
func (c leaf) plausible(x *format.ColumnIndex, pages []rowRange, s chunkStats) bool {
	n := len(pages)
	counted := len(x.NullCounts) > 0
	if len(x.NullPages) != n || len(x.MinValues) != n || len(x.MaxValues) != n || counted && len(x.NullCounts) != n {
		return false
	}
	nulls, values := int64(0), false
	for i, page := range pages {
		rows := page.to - page.from
		null := x.NullPages[i]
		least := int64(0) // nulls of the page
		if null {
			least = rows
		}
		if counted {
			least = x.NullCounts[i]
			if least < 0 || least > rows || null != (least == rows) {
				return false
			}
		}
		nulls += least
		values = values || !null
		if lo, hi := x.MinValues[i], x.MaxValues[i]; !null && c.hasBounds() &&
			(c.reversed(lo, hi) || s.hasRange && c.outside(lo, hi, s)) {
			return false
		}
	}
	switch {
	case s.nulls >= 0 && (nulls > s.nulls || counted && nulls != s.nulls):
		return false
	case s.hasRange && !values:
		return false
	}
	return true
}

// pageRefuted reports whether the predicate is true for no row of page i.
func (c leaf) pageRefuted(x *format.ColumnIndex, i int, p source.Predicate) bool {
	switch {
	case p.Op == source.IsNull:
		return len(x.NullCounts) > 0 && x.NullCounts[i] == 0
	case x.NullPages[i]:
		return true
	case p.Op == source.IsNotNull || !c.hasBounds():
		return false
	}
	lo, hi, ok := c.bounds(x.MinValues[i], x.MaxValues[i])
	return ok && excludes(p, lo, hi)
}

// readStructure decodes the thrift structure at a range of the file.
func (f *file) readStructure(ctx context.Context, e extent, v any) (err error) {
	defer guard(&err)
	src, err := f.handle.acquire(ctx)
	if err != nil {
		return err
	}
	defer f.handle.release()
	b := make([]byte, e.size)
	if err := readFull(src, b, e.start); err != nil {
		return err
	}
	_, err = unmarshalCompact(b, v)
	return err
}

// intersect returns the rows that are in both lists of ranges.
func intersect(a, b []rowRange) (out []rowRange) {
	for len(a) > 0 && len(b) > 0 {
		r := rowRange{max(a[0].from, b[0].from), min(a[0].to, b[0].to)}
		if r.from < r.to {
			out = append(out, r)
		}
		if a[0].to < b[0].to {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}
