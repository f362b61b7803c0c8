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

// scanFilter is a filter that a join applies in the scan of its probe side.
type scanFilter struct {
	*physical.JoinFilter
	keys   *operators.KeyFilter
	scan   *opRun
	always bool
	// tested and dropped count rows.
	tested, dropped atomic.Int64
}

// A filter stops testing if it has dropped less than one in usefulShare of the first trialRows
// rows.
const (
	trialRows   = 1 << 19
	usefulShare = 4
)

// veryFewMatches is a share of rows that have a match. Below it, a scan for a discrete device waits
// for the bounds of a join's keys. Otherwise it begins before the build side is complete.
const veryFewMatches = 0.1

// kind returns how the run uses a filter. On a discrete device no row is tested: decoding is the
// bottleneck of its jobs, and the host would take longer to drop a row than the link to copy it. A
// join of 6·10⁷ rows of which 1/350 match took 0.28 s on an H200, and 1.2 s when the host dropped
// the others, stride by stride, before the copies.
func (r *run) kind(f *physical.JoinFilter) operators.FilterKind {
	switch {
	case r.opt.JoinFilters == execution.Never:
		return operators.NoFilter
	case discrete(r.device) && r.opt.JoinFilters != execution.Always && f.Matches >= veryFewMatches:
		return operators.NoFilter
	case discrete(r.device) && r.mayDecideFirst(f):
		return operators.TableFilter
	case discrete(r.device):
		return operators.BoundsFilter
	case r.opt.JoinFilters == execution.Always || f.Bloom:
		return operators.BloomFilter
	case f.Few:
		return operators.BoundsFilter
	}
	return operators.NoFilter
}

// mayDecideFirst reports whether the keys of a join may decide which rows of other columns a scan reads.
func (r *run) mayDecideFirst(f *physical.JoinFilter) bool {
	return f.First && r.opt.FilterFirst != execution.Never || r.opt.FilterFirst == execution.Always
}

// filterOf returns the kind of filter that a scan needs from an operator.
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

// filtered reports whether joins of the pipeline filter a scan, which then waits for their
// build sides.
func (p *pipelineRun) filtered(scan *opRun) bool {
	return slices.ContainsFunc(scan.Filters, func(f *physical.JoinFilter) bool {
		return p.run.kind(f) != operators.NoFilter &&
			slices.ContainsFunc(p.ops, func(o *opRun) bool { return o.Stage == f.Join })
	})
}

// scanFilters returns the filters for the strides of a scan, and adds predicates to the options
// that rule out rows by statistics. The build sides of the pipeline's joins must be complete.
func (p *pipelineRun) scanFilters(scan *opRun, opt *source.ScanOptions) (out []*scanFilter) {
	for _, f := range scan.Filters {
		keys := p.keysOf(f)
		if keys == nil {
			continue
		}
		opt.Prune = slices.Concat(opt.Prune, bounds(keys, f, scan))
		if keys.Tests() {
			out = append(out, &scanFilter{JoinFilter: f, keys: keys, scan: scan,
				always: p.run.opt.JoinFilters == execution.Always})
		}
	}
	return out
}

// keysOf returns the filter of a join of the pipeline whose build side is complete. It is nil if the run does not use
// it, and if the join is out of core.
func (p *pipelineRun) keysOf(f *physical.JoinFilter) *operators.KeyFilter {
	at := slices.IndexFunc(p.ops, func(o *opRun) bool { return o.Stage == f.Join })
	if at < 0 || p.run.kind(f) == operators.NoFilter {
		return nil
	}
	return p.ops[at].op.(operators.Filtering).KeyFilter()
}

// mostOfRange is a share of a column's range. Bounds that cover more of the range are not worth the
// time to read the page indexes.
const mostOfRange = 0.9

// mostPruned is the number of keys up to which a scan looks for each of them in statistics and Bloom filters.
const mostPruned = 128

// bounds returns the bounds of a filter's keys, or the keys themselves if they are few, as predicates on the table of a
// scan.
func bounds(keys *operators.KeyFilter, f *physical.JoinFilter, scan *opRun) (out []source.Predicate) {
	for i, c := range f.Columns {
		column := scan.scan.Columns[c]
		if values, ok := keys.Values(i); ok && len(values) <= mostPruned {
			out = append(out, source.Predicate{Column: column, Op: source.In, Values: values})
			continue
		}
		least, greatest, ok := keys.Bounds(i)
		if !ok {
			continue
		}
		if !least.Valid { // no value can match
			out = append(out, source.Predicate{Column: column, Op: source.In})
			continue
		}
		if all := scan.scan.Table.Stats(column); all.HasRange &&
			width(least, greatest) > mostOfRange*width(all.Min, all.Max) {
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

// apply drops rows of a stride, of which it takes ownership. It returns nil if no row is left.
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
