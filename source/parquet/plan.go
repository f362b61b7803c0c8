package parquet

import (
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// maxColumnBytes bounds what one column of one stride is expected to take; a
// stride of long strings gets fewer rows for it.
const maxColumnBytes = 256 << 20

// segment is a range of rows of one row group.
type segment struct {
	file     *file
	group    int
	from, to int64
	chunks   []*encodedChunk // of the columns of the scan
}

// bytes is the share of a column chunk that the rows have, compressed. The shares of
// segments that follow each other add up to that of the rows in all.
func (s segment) bytes(column int) int64 {
	g := &s.file.groups[s.group]
	perRow := float64(g.chunks[column].size) / float64(g.rows)
	return int64(perRow*float64(s.to)) - int64(perRow*float64(s.from))
}

// stridePlan is the segments of one stride, in order.
type stridePlan struct {
	segments []segment
	rows     int
}

// rowRange is rows [from, to) of a row group.
type rowRange struct{ from, to int64 }

// pruneAll returns what is left of each row group of each file. Page indexes and
// Bloom filters are read for it, by several threads.
func (t *Table) pruneAll(predicates []source.Predicate, threads int) ([][][]rowRange, error) {
	left := make([][][]rowRange, len(t.files))
	var work errgroup.Group
	work.SetLimit(threads)
	for i, f := range t.files {
		left[i] = make([][]rowRange, len(f.groups))
		for g := range f.groups {
			work.Go(func() (err error) {
				defer guard(&err)
				left[i][g] = f.prune(g, predicates)
				return nil
			})
		}
	}
	return left, work.Wait()
}

// strideRows is the rows of a full stride.
func strideRows(opt source.ScanOptions) int64 {
	if opt.StrideRows <= 0 {
		return defaultStrideRows
	}
	return int64(min(opt.StrideRows, gpu.MaxRows))
}

// planScan prunes the row groups. It returns what cuts the rest into strides, and how
// much there is.
func (t *Table) planScan(opt source.ScanOptions, threads int) (cut cutter, total source.Progress, err error) {
	cut.target, cut.columns, cut.lease = strideRows(opt), opt.Columns, opt.Lease
	left, err := t.pruneAll(opt.Prune, threads)
	if err != nil {
		return cut, total, err
	}
	for i, f := range t.files {
		for g, ranges := range left[i] {
			group := &f.groups[g]
			total.RowGroups++
			kept := int64(0)
			for _, r := range ranges {
				kept += r.to - r.from
			}
			total.RowsSkipped += group.rows - kept
			if kept == 0 {
				if group.rows > 0 {
					total.Skipped++
				}
				continue
			}
			if len(opt.Columns) == 0 {
				if err := f.countRows(g, opt.Lease); err != nil {
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

// widest is the uncompressed size of the largest of the columns.
func (g *rowGroup) widest(columns []int) (size int64) {
	for _, c := range columns {
		size = max(size, g.chunks[c].rawSize)
	}
	return size
}

// A row group is counted where it has more rows than countedRows and than so many for
// each byte of its smallest column: those of others are few, or cost more to count.
const (
	countedRows        = 1 << 20
	countedRowsPerByte = 1 << 10
)

// countRows checks the rows that a row group claims against its pages, for a scan that
// would not look at them.
func (f *file) countRows(group int, lease *gpu.Lease) (err error) {
	g := &f.groups[group]
	column := -1
	for i := range g.chunks {
		if column < 0 || g.chunks[i].size < g.chunks[column].size {
			column = i
		}
	}
	if column < 0 || g.rows <= max(countedRows, countedRowsPerByte*g.chunks[column].size) {
		return nil
	}
	defer func() {
		if !errors.Is(err, gpu.ErrBudget) {
			err = location{f.path, group, f.cols[column].field.Name}.wrap(err)
		}
	}()
	defer guard(&err)
	c := newEncodedChunk(lease, f, group, column, nil)
	defer c.discard()
	if err := c.passAll(); err != nil {
		return err
	}
	return c.finish(g.rows)
}

// cutter cuts row groups into strides of at most target rows: large row groups
// into equal strides of their own, so that a stride has one dictionary a column,
// small ones together. It cuts one when it is asked for: how many there are is what
// the files claim.
type cutter struct {
	target  int64
	columns []int      // of the scan
	lease   *gpu.Lease // of their chunks; nil when nothing will be decoded
	groups  []uncut    // in order
}

// uncut is what no stride has yet of a row group.
type uncut struct {
	file   *file
	group  int
	ranges []rowRange
	rows   int64
	own    int64           // rows of a stride of its own, 0 where it is put together with others
	chunks []*encodedChunk // of the columns, once it was cut
}

func (c *cutter) add(f *file, group int, ranges []rowRange, rows, widest int64) {
	target := c.target
	if widest > maxColumnBytes {
		target = min(target, max(1, int64(float64(f.groups[group].rows)*maxColumnBytes/float64(widest))))
	}
	u := uncut{file: f, group: group, ranges: ranges, rows: rows}
	if rows >= target-rows {
		strides := (rows-1)/target + 1
		u.own = (rows-1)/strides + 1
	}
	c.groups = append(c.groups, u)
}

// next returns the next stride, one without rows after the last.
func (c *cutter) next() (s stridePlan) {
	for len(c.groups) > 0 {
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
				u.chunks = append(u.chunks, newEncodedChunk(c.lease, u.file, u.group, i, wanted))
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
