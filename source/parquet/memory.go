package parquet

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// memory is an upper bound of the bytes that a task takes, by the metadata.
type memory struct {
	column  int64 // values of the rows, while they grow
	chunk   int64 // bytes of pages, and decoded pages of two strides, with the dictionary
	scratch int64 // scratch of the worker; consecutive tasks share it
}

func (m memory) total() int64 { return m.column + m.chunk + m.scratch }

// memory returns the memory for decoding a column of the stride.
func (s *stridePlan) memory(column int, encoded bool) (m memory) {
	pages := int64(0)
	for _, g := range s.segments {
		k, col, rows := &g.file.groups[g.group].chunks[column], &g.file.cols[column], g.to-g.from
		share := float64(rows) / float64(max(g.file.groups[g.group].rows, 1))
		fetched, raw := k.pageBytes()
		dictionary := min(k.rawSize, 4*k.dictionarySize)
		if col.as.IsVar() {
			// The characters are copied when they outgrow their room.
			m.column += 4*(rows+1) + 2*int64(float64(k.rawSize)*share)
			m.chunk += 2 * dictionary
		} else {
			m.column += rows * int64(max(col.as.Width(), 1))
			m.chunk += dictionary * int64(max(col.as.Width(), 1)) / int64(max(col.physicalWidth(), 1))
		}
		if encoded {
			m.column += 4 * rows // the codes, when they are given up
		}
		if col.optional {
			m.column += gpu.BitmapBytes(int(rows))
		}
		pages = max(pages, 2*min(k.size, max(int64(readAhead), fetched))+2*raw)
		m.scratch = max(m.scratch, 2*raw)
	}
	m.chunk += pages // row groups follow one another
	return m
}

// largePage bounds pages if the footer does not say how many there are.
const largePage = 16 << 20

// pageBytes returns the most bytes of a page of the chunk, in the file and decompressed:
// twice the average if the footer says how many pages there are.
func (k *chunk) pageBytes() (fetched, raw int64) {
	if k.dataPages == 0 {
		return min(k.size, largePage), min(k.rawSize, largePage)
	}
	return min(k.size, 2*k.size/k.dataPages), min(k.rawSize, 2*k.rawSize/k.dataPages)
}

// LeastMemory implements source.Table.
func (t *Table) LeastMemory(opt source.ScanOptions) int64 {
	cut := cutter{target: strideRows(opt), columns: opt.Columns}
	for _, f := range t.files {
		for g := range f.groups {
			if rows := f.groups[g].rows; rows > 0 {
				cut.add(f, g, []rowRange{{0, rows}}, rows, f.groups[g].widest(opt.Columns))
			}
		}
	}
	least := int64(0)
	for {
		s := cut.next()
		if s.rows == 0 {
			return least
		}
		if len(cut.groups) > 0 && cut.groups[0].own > 0 && cut.groups[0].ranges[0].from > 0 {
			cut.groups = cut.groups[1:] // all other strides are at most as large
		}
		sum, scratch := int64(0), int64(0)
		for _, c := range opt.Columns {
			m := s.memory(c, opt.Decode.Encoded)
			sum += m.column + m.chunk
			scratch = max(scratch, m.scratch)
		}
		least = max(least, sum+scratch)
	}
}
