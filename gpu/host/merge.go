package host

import (
	"sort"

	"github.com/gstream/gstream/gpu"
)

// pairGrain is the pairs of a task that writes pairs.
const pairGrain = 1 << 16

// MatchSorted implements gpu.Queue. Tasks over the merge path find the first match of
// every probe row and the number of its matches. Tasks over the pairs then write them.
func (q *queue) MatchSorted(l *gpu.Lease, build, probe []gpu.SortKey, nullSafe []bool, kind gpu.JoinKind) (probeIDs, buildIDs gpu.Column, err error) {
	if err := q.check(gpu.KeyColumns(build), gpu.KeyColumns(probe)); err != nil {
		return probeIDs, buildIDs, err
	}
	probeIDs, buildIDs, err = q.dev.matchSorted(l, build, probe, nullSafe, kind)
	return probeIDs, buildIDs, q.fail(err)
}

func (d *Device) matchSorted(l *gpu.Lease, build, probe []gpu.SortKey, nullSafe []bool, kind gpu.JoinKind) (probeIDs, buildIDs gpu.Column, err error) {
	if err := gpu.CheckMerge(build, probe, nullSafe); err != nil {
		return probeIDs, buildIDs, err
	}
	m := merge{compare: compareRows(build, probe), builds: build[0].Column.Len, probes: probe[0].Column.Len, kind: kind}
	cols := make([]gpu.Column, len(probe))
	for k := range probe {
		cols[k] = probe[k].Column
	}
	dead, err := nullRows(l, cols, func(i int) bool { return nullSafe[i] }, m.probes)
	if err != nil {
		return probeIDs, buildIDs, err
	}
	defer dead.release()
	m.dead = dead.v
	firsts, err := l.Alloc(int64(m.probes) * 4)
	if err != nil {
		return probeIDs, buildIDs, err
	}
	defer firsts.Release()
	offsets, err := l.Alloc(int64(m.probes+1) * 8)
	if err != nil {
		return probeIDs, buildIDs, err
	}
	defer offsets.Release()
	m.first, m.offset = gpu.Values[int32](firsts, m.probes), gpu.Values[int64](offsets, m.probes+1)
	if err := d.parallel(m.builds+m.probes, grain, m.find); err != nil {
		return probeIDs, buildIDs, err
	}
	total := int64(0)
	for i, count := range m.offset[:m.probes] {
		m.offset[i] = total
		total += count
	}
	m.offset[m.probes] = total
	if total > gpu.MaxRows {
		return probeIDs, buildIDs, gpu.ErrTooManyPairs(total)
	}
	return m.pairs(d, l)
}

// merge is one run of MatchSorted.
type merge struct {
	compare        comparison // compares a build row with a probe row
	builds, probes int
	kind           gpu.JoinKind
	dead           []uint64 // bitmap of the probe rows with a null that matches nothing
	first          []int32  // the first match of each probe row
	offset         []int64  // the pairs of each probe row, later the pairs before it
}

// cut returns the number of build rows before the point at which the merge path crosses a
// diagonal. Among equal rows, probe rows come first.
func (m *merge) cut(diagonal int) int {
	low := max(diagonal-m.probes, 0)
	return low + sort.Search(min(diagonal, m.builds)-low, func(k int) bool {
		return m.compare(low+k, diagonal-1-low-k) >= 0
	})
}

// find walks the part of the path between two diagonals. When the path meets a probe row,
// the current build row is the first that is not less.
func (m *merge) find(from, to int) error {
	build := m.cut(from)
	last := -1 // first build row of the last run; the run ends before end
	end := 0
	for probe := from - build; build+probe < to && probe < m.probes; {
		c := 1
		if build < m.builds {
			c = m.compare(build, probe)
		}
		if c < 0 {
			build++
			continue
		}
		count := 0
		if c == 0 && (m.dead == nil || m.dead[probe/64]>>(probe%64)&1 == 0) {
			if build != last {
				last, end = build, m.runEnd(build, probe)
			}
			count = end - build
		}
		m.first[probe], m.offset[probe] = -1, int64(m.pairsOf(count))
		if count > 0 {
			m.first[probe] = int32(build)
		}
		probe++
	}
	return nil
}

// runEnd returns the end of the run of build rows from first on that equal a probe row.
// It looks ahead by distances that double, so short runs cost little.
func (m *merge) runEnd(first, probe int) int {
	ahead := 1
	for first+ahead < m.builds && m.compare(first+ahead, probe) == 0 {
		ahead *= 2
	}
	low, high := first+ahead/2+1, min(first+ahead, m.builds)
	return low + sort.Search(high-low, func(k int) bool { return m.compare(low+k, probe) != 0 })
}

// pairsOf returns the number of pairs of a probe row with a number of matches.
func (m *merge) pairsOf(matches int) int {
	switch m.kind {
	case gpu.Left:
		return max(matches, 1)
	case gpu.Semi:
		return min(matches, 1)
	case gpu.Anti:
		return 1 - min(matches, 1)
	}
	return matches
}

// pairs writes the pairs of all probe rows.
func (m *merge) pairs(d *Device, l *gpu.Lease) (probeIDs, buildIDs gpu.Column, err error) {
	n := int(m.offset[m.probes])
	column := func() (gpu.Column, error) {
		buf, err := l.Alloc(int64(n) * 4)
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: buf}, err
	}
	if probeIDs, err = column(); err != nil {
		return gpu.Column{}, gpu.Column{}, err
	}
	withBuild := m.kind == gpu.Inner || m.kind == gpu.Left
	if withBuild {
		if buildIDs, err = column(); err != nil {
			probeIDs.Release()
			return gpu.Column{}, gpu.Column{}, err
		}
	}
	probes, builds := gpu.Values[int32](probeIDs.Data, n), gpu.Values[int32](buildIDs.Data, buildIDs.Len)
	err = d.parallel(n, pairGrain, func(lo, hi int) error {
		row := sort.Search(m.probes, func(i int) bool { return m.offset[i+1] > int64(lo) })
		for at := lo; at < hi; row++ {
			j := at - int(m.offset[row]) // matches of the row that belong to the task before
			for end := min(int(m.offset[row+1]), hi); at < end; at++ {
				probes[at] = int32(row)
				if withBuild {
					builds[at] = m.match(row, j)
				}
				j++
			}
		}
		return nil
	})
	if err != nil {
		probeIDs.Release()
		buildIDs.Release()
		return gpu.Column{}, gpu.Column{}, err
	}
	return probeIDs, buildIDs, nil
}

// match returns the j-th match of a probe row, or -1 if it has none.
func (m *merge) match(row, j int) int32 {
	if m.first[row] < 0 {
		return -1
	}
	return m.first[row] + int32(j)
}
