package logical

import (
	"math"

	"github.com/gstream/gstream/pipeline/internal/rel"
)

// Times to look up a row in the table of a build side on a CPU core, in nanoseconds, on a Xeon
// of 2023: in a table of ranks, in a hash table in the cache and out of it, and by a string.
const (
	rankCost   = 4
	cachedCost = 6
	hashCost   = 12
	textCost   = 60
	// searchCost is the time of a step of a binary search.
	searchCost = 4
	// cachedRows is the build rows of a hash table that stays in the cache of a core.
	cachedRows = 1 << 17
	// rankSpread is the width of the range of keys up to which they make a table of ranks, as
	// a multiple of their number.
	rankSpread = 64
)

// sidesOf returns the probe side and the build side of a join, with their keys.
func (e *Estimator) sidesOf(n *rel.Join) (probe, build rel.Node, probeKeys, buildKeys []rel.ID) {
	if e.Build(n).Side == rel.LeftSide {
		return n.Right, n.Left, n.RightKeys, n.LeftKeys
	}
	return n.Left, n.Right, n.LeftKeys, n.RightKeys
}

// ProbeMatch estimates the share of the probe rows whose keys are on the build side.
func (e *Estimator) ProbeMatch(n *rel.Join) float64 {
	probe, build, probeKeys, keys := e.sidesOf(n)
	_, share := e.matchKeys(probe, build, probeKeys, keys)
	return share
}

// ProbeCost estimates the time of a probe row on a CPU core, in nanoseconds.
func (e *Estimator) ProbeCost(n *rel.Join) float64 {
	_, build, _, keys := e.sidesOf(n)
	rows := e.Rows(build)
	if n.Range != nil {
		return searchCost * math.Log2(rows+1) * float64(len(n.Range.Conditions))
	}
	for _, k := range keys {
		if build.Rel().Field(k).Type.IsVar() {
			return textCost
		}
	}
	if len(keys) == 1 {
		if b := e.Column(build, keys[0]).bound; b != nil && width(b) <= rankSpread*rows {
			return rankCost
		}
	}
	if rows <= cachedRows {
		return cachedCost
	}
	return hashCost
}
