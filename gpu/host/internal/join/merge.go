package join

import (
	"sort"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/codec"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/sorting"
)

// MatchSorted returns a matcher for the rows of two sorted sides with the same key. Tasks over the
// merge path find the first match of every probe row and the number of its matches.
func MatchSorted(cores parallel.Cores, l *gpu.Lease, build, probe []gpu.SortKey, nullSafe []bool) (*Matcher, error) {
	cols := gpu.KeyColumns(probe)
	m := &merge{compare: sorting.CompareRows(build, probe), builds: build[0].Column.Len, probes: cols[0].Len}
	dead, err := codec.NullRows(l, cols, func(i int) bool { return nullSafe[i] }, m.probes)
	defer dead.Release()
	m.dead = dead.V
	if err == nil {
		m.spans, err = newSpans(l, m.probes)
	}
	if err == nil {
		err = cores.For(m.builds+m.probes, parallel.Grain, m.find)
	}
	m.compare, m.dead = nil, nil
	if err != nil {
		m.release()
		return nil, err
	}
	return &Matcher{lookup: m, rows: m.probes, to: m.probes}, nil
}

// merge has the matches of sorted sides.
type merge struct {
	spans
	compare        sorting.Comparison // compares a build row with a probe row
	builds, probes int
	dead           []uint64 // bitmap of the probe rows with a null that matches nothing
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
		m.first.V[probe], m.count.V[probe] = int32(build), int32(count)
		probe++
	}
	return nil
}

// runEnd returns the end of the run of build rows from first on that equal a probe row. It searches
// with doubling distances, so short runs cost little.
func (m *merge) runEnd(first, probe int) int {
	ahead := 1
	for first+ahead < m.builds && m.compare(first+ahead, probe) == 0 {
		ahead *= 2
	}
	low, high := first+ahead/2+1, min(first+ahead, m.builds)
	return low + sort.Search(high-low, func(k int) bool { return m.compare(low+k, probe) != 0 })
}
