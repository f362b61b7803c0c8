package parquet

import (
	"golang.org/x/sync/errgroup"

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
}

// bytes is the share of a column chunk that the rows have, compressed.
func (s segment) bytes(column int) int64 {
	g := &s.file.groups[s.group]
	return int64(float64(g.chunks[column].size) / float64(g.rows) * float64(s.to-s.from))
}

// stridePlan is the segments of one stride, in order.
type stridePlan struct {
	segments []segment
	rows     int
	// continues says that the first segment is in the row group in which the
	// stride before ended: the cursors are handed on.
	continues bool
}

// scanPlan is everything that a scan will read, and what it leaves out.
type scanPlan struct {
	strides  []stridePlan
	progress source.Progress
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

// planScan prunes the row groups and cuts what is left into strides.
func (t *Table) planScan(opt source.ScanOptions, target, threads int) (scanPlan, error) {
	var p scanPlan
	cut := cutter{target: int64(target)}
	left, err := t.pruneAll(opt.Prune, threads)
	if err != nil {
		return p, err
	}
	for i, f := range t.files {
		for g, ranges := range left[i] {
			group := &f.groups[g]
			p.progress.RowGroups++
			kept := int64(0)
			for _, r := range ranges {
				kept += r.to - r.from
			}
			p.progress.RowsSkipped += group.rows - kept
			if kept == 0 {
				if group.rows > 0 {
					p.progress.Skipped++
				}
				continue
			}
			widest := int64(0)
			for _, c := range opt.Columns {
				widest = max(widest, group.chunks[c].rawSize)
			}
			p.progress.RowsTotal += kept
			cut.add(f, g, ranges, kept, widest)
		}
	}
	cut.flush()
	p.strides = cut.strides
	for _, stride := range p.strides {
		for _, s := range stride.segments {
			for _, c := range opt.Columns {
				p.progress.BytesTotal += s.bytes(c)
			}
		}
	}
	return p, nil
}

// cutter cuts row groups into strides of at most target rows: large row groups
// into equal pieces of their own, so that a stride has one dictionary a column,
// small ones together.
type cutter struct {
	target  int64
	strides []stridePlan
	open    stridePlan
}

func (c *cutter) flush() {
	if c.open.rows == 0 {
		return
	}
	if n := len(c.strides); n > 0 {
		last, first := c.strides[n-1].segments, c.open.segments[0]
		end := last[len(last)-1]
		c.open.continues = end.file == first.file && end.group == first.group
	}
	c.strides = append(c.strides, c.open)
	c.open = stridePlan{}
}

func (c *cutter) add(f *file, group int, ranges []rowRange, rows, widest int64) {
	target := c.target
	if widest > maxColumnBytes {
		target = min(target, max(1, int64(float64(f.groups[group].rows)*maxColumnBytes/float64(widest))))
	}
	piece := rows
	if rows*2 >= target {
		c.flush()
		pieces := (rows + target - 1) / target
		piece = (rows + pieces - 1) / pieces
	} else if int64(c.open.rows)+rows > target {
		c.flush()
	}
	limit := int64(c.open.rows) + piece
	for _, r := range ranges {
		for r.from < r.to {
			n := min(r.to-r.from, limit-int64(c.open.rows))
			c.open.segments = append(c.open.segments, segment{f, group, r.from, r.from + n})
			c.open.rows += int(n)
			r.from += n
			if int64(c.open.rows) == limit && rows*2 >= target {
				c.flush()
				limit = piece
			}
		}
	}
	if rows*2 >= target {
		c.flush()
	}
}
