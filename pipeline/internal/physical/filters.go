package physical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// fewMatches is the share of rows with a match below which a join filters the scan of its
// probe side.
const fewMatches = 0.5

// Times of a row on a CPU core, in nanoseconds, on a Xeon of 2023: of a filter or projection,
// and of the test of a Bloom filter with the gathers of the rows that pass.
const (
	streamCost = 3
	bloomCost  = 15
)

// scanPath leads from a stage down its first inputs to a scan, past stages that may leave out rows.
type scanPath struct {
	scan *Stage
	from []int   // of each column of the stage, the column of the scan from which it comes unchanged, or -1
	work float64 // estimated time of all rows on the path
}

// scanBelow returns the path from a stage to a scan, nil if there is none.
func (l *lowering) scanBelow(st *Stage) *scanPath {
	p, ok := l.paths[st]
	if ok {
		return p
	}
	if st.Scan() != nil {
		p = &scanPath{scan: st, from: make([]int, len(st.Schema.Fields))}
		for i := range p.from {
			p.from[i] = i
		}
	} else if st.From != nil {
		if below := l.scanBelow(st.Inputs[0]); below != nil {
			p = &scanPath{scan: below.scan, from: slices.Clone(st.From), work: below.work + st.Cost*st.Inputs[0].Rows}
			for i, c := range p.from {
				if c >= 0 {
					p.from[i] = below.from[c]
				}
			}
		}
	}
	l.paths[st] = p
	return p
}

const (
	// mostBlocks is the share of a table's blocks of rows with rows that pass a filter from which the filter does not
	// decide first: too few pages would be left out.
	mostBlocks = 0.5
	// firstBytes is the least size of the columns of a scan for which a filter decides first.
	firstBytes = 16 << 20
	// mostTried is the share of rows with a match up to which the keys of a join may decide first. Only a trial shows
	// whether these rows lie together.
	mostTried = 0.1
)

// decidesFirst reports whether a filter on a scan should decide which rows of the scan's other columns are read. inputs
// are the columns of the filter.
func (l *lowering) decidesFirst(scan *Stage, inputs []int, n *rel.Filter) bool {
	return readsLess(scan, inputs) && l.Blocks(n) <= mostBlocks
}

// readsLess reports whether a scan has other columns than some, and so many bytes that these may be read first.
func readsLess(scan *Stage, columns []int) bool {
	spec := scan.Scan()
	all, first := int64(0), int64(0)
	for i, c := range spec.Columns {
		bytes := spec.Table.Stats(c).Bytes
		all += bytes
		if slices.Contains(columns, i) {
			first += bytes
		}
	}
	return all >= firstBytes && first < all
}

// filterProbe lets a join filter the scan of its probe side, if rows without a match do not reach
// its result and the keys come unchanged from one scan. matches is the share of the probe rows with
// a match. Residual conditions only rule out more pairs.
func (l *lowering) filterProbe(st *Stage, spec join.Spec, matches float64) {
	if len(spec.ProbeKeys) == 0 || spec.Kind != join.Inner && spec.Kind != join.Semi && spec.Kind != join.Right &&
		!spec.Kind.OfBuild() || slices.Contains(spec.NullSafe, true) {
		return
	}
	path := l.scanBelow(st.Inputs[0])
	if path == nil {
		return
	}
	at, cols := path.scan, slices.Clone(spec.ProbeKeys)
	for i, c := range cols {
		if cols[i] = path.from[c]; cols[i] < 0 {
			return
		}
	}
	work := path.work + st.Cost*st.Inputs[0].Rows // of rows on their way through the join
	f := &JoinFilter{Join: st, Columns: cols, Matches: matches, First: matches <= mostTried && readsLess(at, cols)}
	if matches < fewMatches {
		f.Few, f.Bloom = true, work*(1-matches) > bloomCost*at.Rows
	}
	at.Filters = append(at.Filters, f)
	if f.Few {
		what := "bounds"
		if f.Bloom {
			what = "bounds and Bloom filter"
		}
		var names []string
		for _, c := range cols {
			names = append(names, at.Schema.Fields[c].Name)
		}
		at.Detail = append(at.Detail, fmt.Sprintf("%s of the keys from step %q: %s", what, st.Step,
			strings.Join(names, ", ")))
	}
}
