package parquet

import (
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/source"
)

// memory is an upper bound of the bytes that a task takes, from the metadata.
type memory struct {
	column  int64 // values of the rows, while they grow
	chunk   int64 // shared by the strides of the chunk: unread bytes, a decoded page, dictionaries
	scratch int64 // released by the task itself: bytes of a page, and the page while it is decoded
	page    int64 // the part of chunk and scratch for the largest page
	of      *file // the file with this page
}

func (m memory) total() int64 { return m.column + m.chunk + m.scratch }

// memory returns the memory that decoding a column of the stride takes. One page is decoded at a
// time. Before the next page is fetched, the compressed bytes of the page are released, and so is a
// decoded page whose rows have all been taken.
func (s *stridePlan) memory(column int, encoded bool) (m memory) {
	shared := int64(0)
	for _, g := range s.segments {
		group, col, rows := &g.file.groups[g.group], &g.file.cols[column], g.to-g.from
		k := &group.chunks[column]
		if col.node != nil && col.constant == nil {
			n := k.nestedMemory(col, rows, group.rows)
			m.column += n.column + 4*(rows+1) + gpu.BitmapBytes(int(rows))
			m.chunk += n.chunk
			m.scratch = max(m.scratch, n.scratch)
			if n.page > m.page {
				m.page, m.of = n.page, g.file
			}
			continue
		}
		share := float64(rows) / float64(max(group.rows, 1))
		dictionary := min(k.rawSize, 4*k.dictionarySize)
		if col.as.IsVar() {
			// The characters are copied when they outgrow their buffer.
			m.column += 4*(rows+1) + 2*int64(float64(k.rawSize)*share)
			m.chunk += 2 * dictionary
		} else {
			m.column += rows * int64(max(col.as.Width(), 1))
			m.chunk += dictionary * int64(max(col.as.Width(), 1)) / int64(max(col.physicalWidth(), 1))
		}
		if encoded {
			m.column += 4 * rows // the codes, until values have replaced them
		}
		if col.optional {
			m.column += gpu.BitmapBytes(int(rows))
		}
		if k.size == 0 {
			continue // a constant
		}
		p := k.largestPage(group.rows, col.physicalWidth())
		window := min(k.size, int64(readAhead)) + slack
		// A page with rows of several strides stays until the last of them has taken its rows.
		stays, passes := p.decoded, max(window, p.fetched)
		if k.codec == format.Uncompressed {
			stays, passes = stays+passes, 0
		}
		if rows == group.rows {
			stays, passes = 0, stays+passes
		}
		shared = max(shared, window+stays)
		m.scratch = max(m.scratch, window+passes+min(k.size, k.dictionarySize)+dictionary+p.scratch)
		if page := stays + passes + p.scratch; page > m.page {
			m.page, m.of = page, g.file
		}
	}
	m.chunk += shared // row groups follow one another
	return m
}

// nestedMemory returns the memory for some rows of a nested column. A page of each leaf is decoded at a time.
func (k *chunk) nestedMemory(col *leaf, rows, of int64) (m memory) {
	m.column = 2 * int64(float64(k.rawSize)*float64(rows)/float64(max(of, 1)))
	for i := range k.parts {
		part := &k.parts[i]
		p := part.largestPage(part.values, col.parts[i].physicalWidth())
		page := p.fetched + p.decoded + p.scratch
		m.chunk += min(part.size, int64(readAhead)) + slack + 4*part.dictionarySize + page + 1<<16
		m.scratch = max(m.scratch, page)
		m.page = max(m.page, 2*page)
	}
	return m
}

// pageMemory is an upper bound of the bytes for a page of a chunk.
type pageMemory struct {
	fetched int64 // bytes in the file
	decoded int64 // additional bytes once values can be taken from it
	scratch int64 // additional bytes while values are taken
}

// largePage bounds the size of pages whose number is not in the footer.
const largePage = 16 << 20

// largestPage estimates the memory for the largest page of a chunk. It assumes twice the average
// size if the footer has the number of pages.
func (k *chunk) largestPage(rows int64, width int) (p pageMemory) {
	raw := min(k.rawSize, largePage)
	p.fetched = min(k.size, largePage)
	if k.dataPages > 0 {
		p.fetched, raw = min(k.size, 2*k.size/k.dataPages), min(k.rawSize, 2*k.rawSize/k.dataPages)
	}
	rows = min(rows, int64(float64(rows)*float64(raw)/float64(max(k.rawSize, 1)))+1)
	if k.codec != format.Uncompressed {
		p.decoded = raw + slack
	}
	if k.transcoded {
		p.decoded += max(raw, rows*int64(width)) + slack
		p.scratch = 4 * rows
		if width == 0 {
			p.decoded += 4 * rows
		}
	}
	p.fetched += slack
	p.scratch += 4*rows + slack
	return p
}

// LeastMemory implements source.Table.
func (t *Table) LeastMemory(opt source.ScanOptions) int64 {
	least, _ := t.least(opt)
	return least
}

// ExplainMemory implements source.Explainer.
func (t *Table) ExplainMemory(opt source.ScanOptions) string {
	least, largest := t.least(opt)
	if largest.of == nil || largest.page < least/2 {
		return ""
	}
	return fmt.Sprintf("a page of column %q of %s takes %s of that while it is decoded, whatever the rows of "+
		"a stride; %s",
		largest.column, largest.of.path, humanize.IBytes(uint64(largest.page)), smallerPages)
}

const smallerPages = "rewrite the file with smaller pages or row groups, or do not read the column"

// blamePage adds the size of a page, n bytes, to an out-of-budget error if the page is a large part
// of the budget. LeastMemory is too small in this case, because the footer does not have the sizes
// of pages.
func (c *encodedChunk) blamePage(err error, n int) error {
	var refused *gpu.BudgetError
	if errors.As(err, &refused) && refused.Holder == refused.Stage && int64(n) > grant.LargePage.Of(refused.Limit) {
		refused.Hint = fmt.Sprintf("a page of column %q of %s has %s; %s", c.col.field.Name, c.file.path,
			humanize.IBytes(uint64(n)), smallerPages)
	}
	return err
}

// costly is the column whose page takes the most memory in a stride.
type costly struct {
	memory
	column string
}

// least returns the result of LeastMemory, and the column that takes most of it.
func (t *Table) least(opt source.ScanOptions) (least int64, largest costly) {
	cut := cutter{target: strideRows(opt), columns: opt.Columns}
	for _, f := range t.files {
		for g := range f.groups {
			if rows := f.groups[g].rows; rows > 0 {
				cut.add(f, g, []rowRange{{0, rows}}, rows, f.groups[g].widest(opt.Columns))
			}
		}
	}
	for {
		s := cut.next()
		if s.rows == 0 {
			return least, largest
		}
		if len(cut.groups) > 0 && cut.groups[0].own > 0 && cut.groups[0].ranges[0].from > 0 {
			cut.groups = cut.groups[1:] // all other strides are at most as large
		}
		sum, scratch, widest := int64(0), int64(0), costly{}
		for _, c := range opt.Columns {
			m := s.memory(c, opt.Decode.Encoded)
			sum += m.column + m.chunk
			scratch = max(scratch, m.scratch)
			if m.page > widest.page {
				widest = costly{m, t.schema.Fields[c].Name}
			}
		}
		if sum+scratch > least {
			least, largest = sum+scratch, widest
		}
	}
}
