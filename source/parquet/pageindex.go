package parquet

import (
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go/format"
)

// maxIndexBytes bounds a page index that is read to plan a scan.
const maxIndexBytes = 16 << 20

// pageRanges returns the rows of the pages of a row group that the page index
// does not rule out. It is not ok where there is no index, or one that does not
// fit the row group: pruning by it is then left out, and nothing is lost.
func (f *file) pageRanges(g *rowGroup, p source.Predicate) (ranges []rowRange, ok bool) {
	m := &g.chunks[p.Column]
	if m.columnIndex.size == 0 || m.offsetIndex.size == 0 || max(m.columnIndex.size, m.offsetIndex.size) > maxIndexBytes {
		return nil, false
	}
	var values format.ColumnIndex
	var offsets format.OffsetIndex
	if f.readStructure(m.columnIndex, &values) != nil || f.readStructure(m.offsetIndex, &offsets) != nil {
		return nil, false
	}
	pages := offsets.PageLocations
	n := len(pages)
	if n == 0 || len(values.NullPages) != n || len(values.MinValues) != n || len(values.MaxValues) != n || pages[0].FirstRowIndex != 0 {
		return nil, false
	}
	for i := range pages {
		end := g.rows
		if i+1 < n {
			end = pages[i+1].FirstRowIndex
		}
		from := pages[i].FirstRowIndex
		if from >= end || end > g.rows {
			return nil, false
		}
		if f.pageRefuted(&values, i, p) {
			continue
		}
		if last := len(ranges) - 1; last >= 0 && ranges[last].to == from {
			ranges[last].to = end
		} else {
			ranges = append(ranges, rowRange{from, end})
		}
	}
	return ranges, true
}

// pageRefuted says whether the predicate is true for no row of page i.
func (f *file) pageRefuted(x *format.ColumnIndex, i int, p source.Predicate) bool {
	switch {
	case p.Op == source.IsNull:
		return !x.NullPages[i] && len(x.NullCounts) == len(x.NullPages) && x.NullCounts[i] == 0
	case x.NullPages[i]:
		return true
	case p.Op == source.IsNotNull:
		return false
	}
	lo, hi, ok := f.cols[p.Column].bounds(x.MinValues[i], x.MaxValues[i])
	return ok && excludes(p, lo, hi)
}

// readStructure decodes the thrift structure at a range of the file.
func (f *file) readStructure(e extent, v any) (err error) {
	defer guard(&err)
	src, err := f.handle.acquire()
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
