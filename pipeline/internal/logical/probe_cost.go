package logical

import "math"

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

// ProbeMatch estimates the share of the probe rows whose keys are on the build side.
func (n *Join) ProbeMatch() float64 {
	probe, probeKeys, build, keys := n.Left.Rel(), n.LeftKeys, n.Right.Rel(), n.RightKeys
	if n.BuildLeft {
		probe, probeKeys, build, keys = build, keys, probe, probeKeys
	}
	_, share := matchKeys(probe, build, probeKeys, keys)
	return share
}

// ProbeCost estimates the time of a probe row on a CPU core, in nanoseconds.
func (n *Join) ProbeCost() float64 {
	build, keys := n.Right.Rel(), n.RightKeys
	if n.BuildLeft {
		build, keys = n.Left.Rel(), n.LeftKeys
	}
	if n.Range != nil {
		return searchCost * math.Log2(build.Rows+1) * float64(len(n.Range.conditions))
	}
	for _, k := range keys {
		if build.Schema.Fields[k].Type.IsVar() {
			return textCost
		}
	}
	if len(keys) == 1 {
		if b := build.Stats[keys[0]].bound; b != nil && width(b) <= rankSpread*build.Rows {
			return rankCost
		}
	}
	if build.Rows <= cachedRows {
		return cachedCost
	}
	return hashCost
}
