package parquet

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// Sample implements source.Sampler. Half of the rows are the first rows of the first row group. The
// other half are the first rows of the row group in the middle of the table: in a sorted table they
// have other values.
func (t *Table) Sample(ctx context.Context, lease *gpu.Lease, columns []int, rows int) (_ *gpu.Stride, err error) {
	opt := source.ScanOptions{Columns: columns, StrideRows: rows, Lease: lease}
	plan := t.samplePlan(ctx, opt)
	r := t.newReader(opt, source.Progress{})
	s := &gpu.Stride{Schema: r.schema, Rows: plan.rows}
	defer func() {
		for _, g := range plan.segments {
			for _, c := range g.chunks {
				c.discard()
			}
		}
		if err != nil {
			s.Release()
		}
	}()
	if t.remote() {
		var all []*encodedChunk
		for _, g := range plan.segments {
			all = append(all, g.chunks...)
		}
		readObjects(all)
	}
	pages := r.spare()
	defer pages.free()
	for i := range columns {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		col, err := r.run(&plan, i, pages)
		if err != nil {
			return nil, err
		}
		s.Cols = append(s.Cols, col)
	}
	return s, nil
}

// samplePlan chooses the rows of a sample.
func (t *Table) samplePlan(ctx context.Context, opt source.ScanOptions) (plan stridePlan) {
	type place struct {
		file  *file
		group int
	}
	var all []place
	total := int64(0)
	for _, f := range t.files {
		for g := range f.groups {
			if f.groups[g].rows > 0 {
				all = append(all, place{f, g})
				total += f.groups[g].rows
			}
		}
	}
	if len(all) == 0 {
		return plan
	}
	middle, before := 0, all[0].file.groups[all[0].group].rows
	for before <= total/2 && middle+1 < len(all) {
		middle++
		before += all[middle].file.groups[all[middle].group].rows
	}
	chosen := []place{all[0], all[middle]}
	if middle == 0 || opt.StrideRows < len(chosen) {
		chosen = chosen[:1]
	}
	for _, p := range chosen {
		n := min(int64(opt.StrideRows/len(chosen)), p.file.groups[p.group].rows)
		s := segment{file: p.file, group: p.group, to: n}
		for _, c := range opt.Columns {
			s.chunks = append(s.chunks, newEncodedChunk(ctx, opt.Lease, p.file, p.group, c, []rowRange{{0, n}}))
		}
		plan.segments = append(plan.segments, s)
		plan.rows += int(n)
	}
	return plan
}
