package parquet

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// maxColumnBytes bounds the expected bytes of one column of one stride. A stride of long strings
// has fewer rows because of it.
const maxColumnBytes = 256 << 20

// segment is a range of rows of one row group.
type segment struct {
	file     *file
	group    int
	from, to int64
	chunks   []*encodedChunk // chunks of the columns that the scan reads
}

// bytes returns the share of these rows in the compressed bytes of a column chunk. The shares of
// consecutive segments add up to the share of all their rows.
func (s segment) bytes(column int) int64 {
	g := &s.file.groups[s.group]
	perRow := float64(g.chunks[column].size) / float64(g.rows)
	return int64(perRow*float64(s.to)) - int64(perRow*float64(s.from))
}

// stridePlan has the segments of one stride, in order.
type stridePlan struct {
	segments []segment
	rows     int
}

// bytes returns the compressed bytes of a column in the stride.
func (p *stridePlan) bytes(column int) (n int64) {
	for _, s := range p.segments {
		n += s.bytes(column)
	}
	return n
}

// rowRange is the range [from, to) of rows of a row group.
type rowRange struct{ from, to int64 }

// pruneAll returns the rows of each row group of each file that remain after pruning. Several
// threads read page indexes and Bloom filters.
func (t *Table) pruneAll(ctx context.Context, predicates []source.Predicate, threads int) ([][][]rowRange, error) {
	left := make([][][]rowRange, len(t.files))
	var work errgroup.Group
	work.SetLimit(threads)
	for i, f := range t.files {
		left[i] = make([][]rowRange, len(f.groups))
		for g := range f.groups {
			work.Go(func() (err error) {
				defer guard(&err)
				if t.shares == nil {
					left[i][g] = f.prune(ctx, g, predicates)
				} else if own := t.shares[i][g]; own.from < own.to {
					left[i][g] = own.within(f.prune(ctx, g, predicates))
				}
				return nil
			})
		}
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return left, context.Cause(ctx)
}

// strideRows returns the number of rows of a full stride.
func strideRows(opt source.ScanOptions) int64 {
	if opt.StrideRows <= 0 {
		return defaultStrideRows
	}
	return int64(min(opt.StrideRows, gpu.MaxRows))
}

// planScan prunes the row groups. It returns a cutter that cuts the remaining rows into strides,
// and the total amount of work.
func (t *Table) planScan(ctx context.Context, opt source.ScanOptions, threads int) (cut cutter, total source.Progress,
	err error) {
	cut.target, cut.columns, cut.lease = strideRows(opt), opt.Columns, opt.Lease
	left, err := t.pruneAll(ctx, opt.Prune, threads)
	if err != nil {
		return cut, total, err
	}
	total.Files, total.FilesRuled = int64(len(t.files)+t.ruled), int64(t.ruled)
	for i, f := range t.files {
		for g, ranges := range left[i] {
			group := &f.groups[g]
			own := group.rows
			if t.shares != nil {
				if own = t.shares[i][g].to - t.shares[i][g].from; own == 0 {
					continue
				}
			}
			total.RowGroups++
			kept := int64(0)
			for _, r := range ranges {
				kept += r.to - r.from
			}
			total.RowsSkipped += own - kept
			if kept == 0 {
				if own > 0 {
					total.Skipped++
				}
				continue
			}
			if !f.reads(opt.Columns) {
				if err := f.countRows(ctx, g, opt.Lease); err != nil {
					return cut, total, err
				}
			}
			for _, c := range opt.Columns {
				for _, r := range ranges {
					total.BytesTotal += segment{file: f, group: g, from: r.from, to: r.to}.bytes(c)
				}
			}
			total.RowsTotal += kept
			cut.add(f, g, ranges, kept, group.widest(opt.Columns))
		}
	}
	return cut, total, nil
}

// widest returns the uncompressed size of the largest of the columns.
func (g *rowGroup) widest(columns []int) (size int64) {
	for _, c := range columns {
		size = max(size, g.chunks[c].rawSize)
	}
	return size
}

// The rows of a row group are counted if there are more than countedRows, and more than
// countedRowsPerByte for each byte of the smallest column. Other row groups have fewer rows, or
// take longer to count.
const (
	countedRows        = 1 << 20
	countedRowsPerByte = 1 << 10
)

// reads reports whether one of the columns is stored in the file.
func (f *file) reads(columns []int) bool {
	return slices.ContainsFunc(columns, func(i int) bool { return f.cols[i].constant == nil })
}

// countRows checks the number of rows that a row group claims against its pages. It is for a scan
// that does not read these pages.
func (f *file) countRows(ctx context.Context, group int, lease *gpu.Lease) (err error) {
	g := &f.groups[group]
	if g.smallest == nil || g.rows <= max(countedRows, countedRowsPerByte*g.smallest.size) {
		return nil
	}
	defer func() { err = location{f.path, group, g.counted.field.Name}.place(err) }()
	defer guard(&err)
	col := g.counted
	col.constant = nil // read the pages of the column, although they have only nulls
	c := newChunkOf(ctx, lease, f, group, col, g.smallest, nil)
	defer c.discard()
	if err := c.passAll(); err != nil {
		return err
	}
	return c.finish(g.rows)
}

// cutter cuts row groups into strides of at most target rows. A large row group is cut into equal
// strides of its own, so that a stride has one dictionary per column. Small row groups are
// combined. The cutter makes one stride at a time, because the total number of strides comes from
// untrusted files.
type cutter struct {
	target  int64
	columns []int           // columns that the scan reads
	lease   *gpu.Lease      // lease for the memory of the chunks; nil if nothing will be decoded
	ctx     context.Context // ends the reads of the chunks
	groups  []uncut         // in order
	rows    int64           // of groups
	open    bool            // more row groups will be added
	// least, unless it is 0, ends a stride of small row groups that has so many rows. While the cutter is open, it
	// waits for so many rows, so strides do not depend on when row groups are added.
	least int64
}

// uncut is the part of a row group that no stride contains yet.
type uncut struct {
	file   *file
	group  int
	ranges []rowRange
	rows   int64
	own    int64           // rows of a stride if the row group has strides of its own; 0 if row groups are combined
	chunks []*encodedChunk // chunks of the columns, from the first cut on
}

func (c *cutter) add(f *file, group int, ranges []rowRange, rows, widest int64) {
	target := c.target
	if widest > maxColumnBytes {
		target = min(target, max(1, int64(float64(f.groups[group].rows)*maxColumnBytes/float64(widest))))
	}
	c.rows += rows
	u := uncut{file: f, group: group, ranges: ranges, rows: rows}
	if rows >= target-rows {
		strides := (rows-1)/target + 1
		u.own = (rows-1)/strides + 1
	}
	c.groups = append(c.groups, u)
}

// next returns the next stride. After the last stride, and while an open cutter has too few rows, it returns one
// without rows.
func (c *cutter) next() (s stridePlan) {
	if c.open && c.rows < c.least {
		return s
	}
	defer func() { c.rows -= int64(s.rows) }()
	for len(c.groups) > 0 && (c.least == 0 || int64(s.rows) < c.least) {
		u := &c.groups[0]
		n := min(u.rows, u.own)
		if u.own == 0 {
			n = u.rows
		}
		if s.rows > 0 && (u.own > 0 || int64(s.rows)+n > c.target) {
			break
		}
		own := u.own > 0
		if u.chunks == nil && c.lease != nil {
			wanted := slices.Clone(u.ranges)
			for _, i := range c.columns {
				u.chunks = append(u.chunks, newEncodedChunk(c.ctx, c.lease, u.file, u.group, i, wanted))
			}
		}
		s.take(u, n)
		if u.rows == 0 {
			c.groups = c.groups[1:]
		}
		if own {
			break
		}
	}
	return s
}

// take moves n rows of a row group into the stride.
func (s *stridePlan) take(u *uncut, n int64) {
	s.rows += int(n)
	u.rows -= n
	for n > 0 {
		r := &u.ranges[0]
		k := min(n, r.to-r.from)
		s.segments = append(s.segments, segment{u.file, u.group, r.from, r.from + k, u.chunks})
		n -= k
		if r.from += k; r.from == r.to {
			u.ranges = u.ranges[1:]
		}
	}
}
