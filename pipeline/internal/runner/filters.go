package runner

import (
	"slices"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/source"
)

// scanFilter is the filter of a join in the scan of its probe side.
type scanFilter struct {
	*physical.Filter
	keys   *operators.KeyFilter
	scan   *opRun
	always bool
	// tested and dropped count rows.
	tested, dropped atomic.Int64
}

// A filter that has dropped less than one of usefulShare rows, once it has tested trialRows,
// tests no more.
const (
	trialRows   = 1 << 19
	usefulShare = 4
)

// kind returns how the run uses a filter. A scan for a discrete device starts before the
// build sides are complete, so it has none.
func (r *run) kind(f *physical.Filter) operators.FilterKind {
	switch {
	case discrete(r.device) || r.opt.JoinFilters == execution.Never:
		return operators.NoFilter
	case r.opt.JoinFilters == execution.Always || f.Bloom:
		return operators.BloomFilter
	case f.Few:
		return operators.BoundsFilter
	}
	return operators.NoFilter
}

// filterOf returns the kind of filter that a scan wants of an operator.
func (r *run) filterOf(o *opRun) operators.FilterKind {
	for _, p := range r.scans {
		for _, f := range p.from.Filters {
			if f.Join == o.Stage {
				return r.kind(f)
			}
		}
	}
	return operators.NoFilter
}

// scanFilters returns the filters for the strides of a scan, and adds to the options what
// they rule out by statistics. The build sides of the pipeline's joins are complete.
func (p *pipelineRun) scanFilters(scan *opRun, opt *source.ScanOptions) (out []*scanFilter) {
	for _, f := range scan.Filters {
		at := slices.IndexFunc(p.ops, func(o *opRun) bool { return o.Stage == f.Join })
		if at < 0 || p.run.kind(f) == operators.NoFilter {
			continue
		}
		keys := p.ops[at].op.(operators.Filtering).KeyFilter()
		if keys == nil { // the join is out of core
			continue
		}
		opt.Prune = slices.Concat(opt.Prune, bounds(keys, f, scan))
		if keys.Tests() {
			out = append(out, &scanFilter{Filter: f, keys: keys, scan: scan, always: p.run.opt.JoinFilters == execution.Always})
		}
	}
	return out
}

// mostOfRange is the share of a column's range from which bounds are not worth the time to
// read the page indexes.
const mostOfRange = 0.9

// bounds returns the bounds of a filter's keys as predicates on the table of a scan.
func bounds(keys *operators.KeyFilter, f *physical.Filter, scan *opRun) (out []source.Predicate) {
	for i, c := range f.Columns {
		column := scan.Columns[c]
		least, greatest, ok := keys.Bounds(i)
		if !ok {
			continue
		}
		if !least.Valid { // no value can match
			out = append(out, source.Predicate{Column: column, Op: source.In})
			continue
		}
		if all := scan.Table.Stats(column); all.HasRange && width(least, greatest) > mostOfRange*width(all.Min, all.Max) {
			continue
		}
		out = append(out, source.Predicate{Column: column, Op: source.Ge, Values: []gpu.Scalar{least}},
			source.Predicate{Column: column, Op: source.Le, Values: []gpu.Scalar{greatest}})
	}
	return out
}

// width returns the number of integers between two bounds.
func width(least, greatest gpu.Scalar) float64 {
	return greatest.Int.Float64() - least.Int.Float64() + 1
}

// apply drops rows of a stride, which it takes over. It returns nil when none is left.
func (f *scanFilter) apply(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
	if tested := f.tested.Load(); !f.always && tested >= trialRows && f.dropped.Load()*usefulShare < tested {
		return s, nil
	}
	rows := s.Rows
	out, dropped, err := f.keys.Drop(t, s, f.Columns)
	f.tested.Add(int64(rows))
	f.dropped.Add(int64(dropped))
	f.scan.metrics.dropped.Add(int64(dropped))
	return out, err
}
