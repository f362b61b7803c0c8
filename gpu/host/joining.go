package host

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/join"
)

// table implements gpu.Table.
type table struct {
	dev *Device
	*join.Table
}

// BuildTable implements gpu.Queue.
func (q *queue) BuildTable(l *gpu.Lease, keys []gpu.Column, nullSafe []bool, ranks uint64) (gpu.Table, error) {
	if err := q.check(keys); err != nil {
		return nil, err
	}
	t, err := join.BuildTable(q.dev.cores, l, keys, nullSafe, ranks)
	if err != nil {
		return nil, q.fail(err)
	}
	return &table{q.dev.device(), t}, nil
}

// Match implements gpu.Table.
func (t *table) Match(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column) (gpu.Matcher, error) {
	q, err := t.dev.queue(gq, keys)
	if err != nil {
		return nil, err
	}
	return q.matcher(t.Table.Match(q.dev.cores, l, keys))
}

// MatchPartitions implements gpu.Queue.
func (q *queue) MatchPartitions(l *gpu.Lease, build, probe gpu.Partitioned, _ gpu.Probing) (gpu.Matcher, error) {
	if err := q.check([]gpu.Column{build.Key, build.Offsets, build.Chain, probe.Key, probe.Offsets,
		probe.Chain}); err != nil {
		return nil, err
	}
	if err := gpu.CheckPartitions(build, probe); err != nil {
		return nil, err
	}
	return q.matcher(join.MatchPartitions(q.dev.cores, l, build, probe))
}

// MatchSorted implements gpu.Queue.
func (q *queue) MatchSorted(l *gpu.Lease, build, probe []gpu.SortKey, nullSafe []bool) (gpu.Matcher, error) {
	if err := q.check(gpu.KeyColumns(build), gpu.KeyColumns(probe)); err != nil {
		return nil, err
	}
	if err := gpu.CheckMerge(build, probe, nullSafe); err != nil {
		return nil, err
	}
	return q.matcher(join.MatchSorted(q.dev.cores, l, build, probe, nullSafe))
}

// MatchRange implements gpu.Queue.
func (q *queue) MatchRange(l *gpu.Lease, build gpu.Column, lower, upper *gpu.Bound) (gpu.Matcher, error) {
	if err := q.check([]gpu.Column{build}, gpu.BoundColumns(lower, upper)); err != nil {
		return nil, err
	}
	if err := gpu.CheckRange(build, lower, upper); err != nil {
		return nil, err
	}
	return q.matcher(join.MatchRange(q.dev.cores, l, build, lower, upper))
}

// matcher implements gpu.Matcher.
type matcher struct {
	dev *Device
	*join.Matcher
}

// matcher returns a matcher of the queue's device, or notes why there is none.
func (q *queue) matcher(m *join.Matcher, err error) (gpu.Matcher, error) {
	if err != nil {
		return nil, q.fail(err)
	}
	return &matcher{q.dev.device(), m}, nil
}

// Next implements gpu.Matcher.
func (m *matcher) Next(gq gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	q, err := m.dev.queue(gq)
	if err != nil {
		return probe, build, false, err
	}
	probe, build, more, err = m.Matcher.Next(q.dev.cores, l, limit)
	return probe, build, more, q.fail(err)
}

// Join implements gpu.Matcher.
func (m *matcher) Join(q gpu.Queue, l *gpu.Lease, probe, build []gpu.Column,
	limit int) ([]gpu.Column, int, bool, error) {
	at := m.Position()
	cols, rows, more, err := gpu.NextAndGather(m, q, l, probe, build, limit)
	if err != nil {
		m.Rewind(at)
	}
	return cols, rows, more, err
}

// Matched implements gpu.Matcher.
func (m *matcher) Matched(gq gpu.Queue, l *gpu.Lease) (gpu.Column, error) {
	q, err := m.dev.queue(gq)
	if err != nil {
		return gpu.Column{}, err
	}
	out, err := m.Matcher.Matched(q.dev.cores, l)
	return out, q.fail(err)
}

// NewBitmap implements gpu.Queue.
func (q *queue) NewBitmap(l *gpu.Lease, n int) (gpu.Column, error) {
	if err := q.check(); err != nil {
		return gpu.Column{}, err
	}
	if err := gpu.CheckBitmapRows(n); err != nil {
		return gpu.Column{}, err
	}
	out, err := join.NewMarks(l, n)
	return out, q.fail(err)
}

// SetBits implements gpu.Queue.
func (q *queue) SetBits(_ *gpu.Lease, bitmap, ids gpu.Column) error {
	if err := q.check([]gpu.Column{bitmap, ids}); err != nil {
		return err
	}
	if err := gpu.CheckSetBits(bitmap, ids); err != nil {
		return err
	}
	return q.fail(join.SetBits(q.dev.cores, bitmap, ints(ids)))
}

// AddUnmatched implements gpu.Queue.
func (q *queue) AddUnmatched(l *gpu.Lease, probe, build, rest gpu.Column) (outProbe, outBuild gpu.Column, err error) {
	if err := q.check([]gpu.Column{probe, build, rest}); err != nil {
		return outProbe, outBuild, err
	}
	if err := gpu.CheckUnmatched(probe, build, rest); err != nil {
		return outProbe, outBuild, err
	}
	outProbe, outBuild, err = join.AddUnmatched(l, probe, build, rest)
	return outProbe, outBuild, q.fail(err)
}
