package join

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

// Choice is the algorithm of a join and a reason in one line.
type Choice struct{ Algorithm, Why string }

// String returns the line that explain shows.
func (c Choice) String() string { return "algorithm " + c.Algorithm + ": " + c.Why }

// rates are the constants of the cost model: nanoseconds on one GPU.
type rates struct {
	l2 int64 // bytes, used if explain has not opened the GPU
	// build is for inserting a row into the table of NPJ.
	build float64
	// near and far are for a random access of a row to the table or to a column, within the L2
	// cache and beyond it.
	near, far float64
	// stream is for a byte that a partitioning pass or a copy reads or writes.
	stream float64
	// buildMatch and probeMatch are for a row of either side in the match of partitions, match is
	// for a byte that the match reads or writes.
	buildMatch, probeMatch, match float64
	// gather is for a value that PHJ-UR gathers from beyond the L2 cache.
	gather float64
	// gain is how many times faster than NPJ an algorithm that collects rows must be. Collected
	// rows take memory, and none is emitted before the last one has arrived.
	gain float64
}

// measured are the rates of one H200. Rows on the device have a key and two payloads of 4 bytes.
// 2^27 rows were joined with 2^20 to 2^27 rows with distinct keys. NPJ took 5.8 to 38.9 ms, PHJ-TR
// 2.7 to 6.6, PHJ-UR 12.1 to 23.9 (examples/bench/h200-joins.txt).
var measured = rates{l2: 60 << 20, build: 0.167, near: 0.014, far: 0.041, stream: 1 / 2700.0,
	buildMatch: 0.0045, probeMatch: 0.0085, match: 1 / 8600.0, gather: 0.027, gain: 1.25}

// On the CPU one table is faster, or as fast, for all measured sizes. These are seconds of two
// cores of an Intel Xeon with 2 MiB of L2 each, for 2·10⁷ probe rows of a key and two payloads of 4
// bytes, by the number of build rows, whose keys are distinct and sparse:
//
//	build rows  10⁵   10⁶   5·10⁶  2·10⁷  4·10⁷
//	NPJ         0.27  0.49  1.05   3.6    4.7
//	PHJ-TR      0.59  1.19  1.62   3.6    5.2
//
// With 5·10⁶ build rows PHJ-UR took 2.4, SMJ-UR 2.6, SMJ-TR 2.7 and MPJ 2.4; with a direct table
// NPJ took 0.82.

// A table uses ranks instead of hashes if the range of its keys has at most spread values per key,
// plus leastRanks. Its bitmap then has at most 16 bytes per key, no more than a hash table, plus
// 16 KiB.
const (
	spread     = 64
	leastRanks = 1 << 16
)

// circumstances are the inputs of a choice besides the Spec. Zero means unknown.
type circumstances struct {
	device gpu.Properties
	memory int64 // the budget
	lanes  int
	stride int // rows of a stride of the probe side
	// outOfCore says that only a part of the build side is in memory. Then the order of the rows
	// does not matter.
	outOfCore bool
}

// Plan returns the algorithm that a join will probably choose on a device, by the planner's
// estimates. The join itself chooses once the number of its build rows is known. Unknown properties
// count as those of the GPU that was measured.
func (s Spec) Plan(device gpu.Properties) Choice {
	s.checks = s.conditions()
	return s.choose(circumstances{device: device})
}

// choose returns the algorithm for a number of build rows, by rules and then by the cost of
// transformation, match and materialisation (Wu et al., SIGMOD 2025, §4.1.4 and §5.1.10).
//
// Skew is not sampled, since no choice depends on it. With skew the accesses of NPJ and of PHJ-UR
// hit caches, and the match of partitions splits large ones, but the ranking of the algorithms
// stays the same. These are milliseconds for 2^27 probe rows with foreign keys by Zipf 0, 1 and 2:
//
//	build rows  2^22           2^24              2^27
//	PHJ-TR      3.9, 4.1, 4.1  4.3, 4.5, 4.4     7.1, 7.3, 6.9
//	NPJ         8.3, 7.0, 5.7  18.1, 14.5, 12.2  37.1, 30.0, 25.0
//	PHJ-UR                                       23.9, 18.0, 9.3
//
// SMJ and MPJ are never chosen: they sort all bits of a key, while PHJ partitions by at most 16
// bits. BUCKET and RHJ are never chosen either: PHJ-UR and PHJ-TR beat them unless a key has very
// many pairs. With 2^14 pairs per key, double probe took 30 ms for 2^31 pairs, and PHJ-TR 40.
func (s *Spec) choose(c circumstances) Choice {
	switch {
	case s.Range != nil:
		return Choice{"range", "binary searches in the sorted build side"}
	case s.AsOf != nil:
		return Choice{"asof", "binary searches in the sorted times of each key"}
	case s.Algorithm != "":
		return Choice{s.Algorithm, "the job says so"}
	case !c.device.PartitionedJoins && s.KeyRange > 0 && s.KeyRange <= spread*float64(s.BuildRows) && s.direct():
		return Choice{"npj", "a direct table: the keys are in a range of " + approximate(s.KeyRange)}
	case !c.device.PartitionedJoins:
		return Choice{"npj", "one table is fastest on the CPU"}
	case !s.direct():
		return Choice{"npj", "a table finds keys that are not one number of 4 or 8 bytes"}
	case c.outOfCore:
		return Choice{"large-s", "it needs no table, which leaves memory for copies"}
	case !s.AnyOrder:
		return Choice{"npj", "it keeps the order of the rows"}
	case s.BuildRows == 0:
		return Choice{"npj", "the build side is empty, or its rows are not known"}
	}
	r := measured
	if c.device.L2 > 0 {
		r.l2 = c.device.L2
	}
	build := fmt.Sprintf("the build side of about %s", humanize.IBytes(uint64(s.footprint())))
	if s.ProbeRows == 0 {
		return Choice{"npj", "the rows of the probe side are not known"}
	}
	// Strides arrive over the link more slowly than a table in the cache is probed.
	if s.footprint() <= r.l2 && s.ProbeRows > int64(c.stride) {
		return Choice{"npj", build + " fits the L2 cache"}
	}
	npj := r.npj(s)
	tr, ur := r.phj(s, c, true), r.phj(s, c, false)
	best, cost := "phj-tr", tr
	if ur < tr {
		best, cost = "phj-ur", ur
	}
	if npj <= r.gain*cost {
		return Choice{"npj", fmt.Sprintf("%s takes about %s, partitioned %s", build, milliseconds(npj),
			milliseconds(cost))}
	}
	return Choice{best, fmt.Sprintf("%s takes about %s, with one table %s", build, milliseconds(cost),
		milliseconds(npj))}
}

// hasTexts reports whether the probe side has strings. Strings with different dictionaries are not
// collected.
func (s *Spec) hasTexts() bool {
	return slices.ContainsFunc(s.Probe.Fields, func(f gpu.Field) bool { return f.Type.IsVar() })
}

// approximate formats a number of values with two digits.
func approximate(n float64) string {
	v, prefix := humanize.ComputeSI(n)
	if v >= 99.5 {
		return fmt.Sprintf("%.0f%s", v, prefix)
	}
	return fmt.Sprintf("%.2g%s", v, prefix)
}

func milliseconds(ns float64) string { return fmt.Sprintf("%.3g ms", ns/1e6) }

// footprint returns the bytes that the accesses of NPJ touch: the table, which has about 8 bytes
// per row including its link and free slots, and the build columns of the result.
func (s *Spec) footprint() int64 {
	row := 8
	if kept := s.kept(); len(kept) > 0 {
		row += rowBytes(s.Build, kept)
	}
	return s.BuildRows * int64(row)
}

// matches estimates the number of pairs.
func (s *Spec) matches() float64 {
	if s.PairRows > 0 {
		return float64(s.PairRows)
	}
	return float64(s.ProbeRows)
}

// npj estimates the time of NPJ: the build, and for each probe row one access to the table and one
// to each build column of the result.
func (r rates) npj(s *Spec) float64 {
	access := r.near + r.misses(s)*(r.far-r.near)
	return float64(s.BuildRows)*r.build + access*(float64(s.ProbeRows)+s.matches()*float64(len(s.kept())))
}

// misses estimates the share of random accesses to the build side that miss the L2 cache.
func (r rates) misses(s *Spec) float64 { return max(0, 1-float64(r.l2)/float64(s.footprint())) }

// phj estimates the time of a partitioned join: the passes over both sides, collecting the probe
// rows, and the match, which reads the whole build side for each batch. PHJ-UR also gathers the
// columns of the pairs, in random order.
func (r rates) phj(s *Spec, c circumstances, transform bool) float64 {
	width := s.Probe.Fields[s.ProbeKeys[0]].Type.Width()
	probe, build := movedBytes(s.Probe, s.ProbeKeys[0], s.used(), transform),
		movedBytes(s.Build, s.BuildKeys[0], s.kept(), transform)
	out := 8
	if transform {
		out = 0
		for _, side := range []struct {
			schema *gpu.Schema
			at     []int
		}{{s.Probe, s.used()}, {s.Build, s.kept()}} {
			if len(side.at) > 0 {
				out += rowBytes(side.schema, side.at)
			}
		}
	}
	n, p, m := float64(s.BuildRows), float64(s.ProbeRows), s.matches()
	passes := passesOf(partitionBits(c.device, int(s.BuildRows), max(build, width+4)),
		width == 4 && (!transform || fours(s.Build, s.kept()) && fours(s.Probe, s.used())))
	batch := p
	switch {
	case s.hasTexts() && c.stride > 0:
		batch = float64(c.stride)
	case c.memory > 0:
		batch = float64(s.batch(grant.JoinBatch.Among(c.memory, c.lanes), int(s.BuildRows)))
	}
	batch = max(batch, float64(c.stride)) // a stride is not cut
	batches := max(1, p/batch)
	ns := 2*passes*r.stream*(n*float64(build)+p*float64(probe)) + // transformation
		r.buildMatch*batches*n + r.probeMatch*p + r.match*(batches*n*float64(build)+p*float64(probe)+m*float64(out))
	if batch < p && batch > float64(c.stride) || c.stride > 0 && p > float64(c.stride) {
		ns += 2 * r.stream * p * float64(rowBytes(s.Probe, nil)) // collecting
	}
	if !transform {
		ns += r.gather * m * (float64(len(s.used())) + r.misses(s)*float64(len(s.kept())))
	}
	return ns
}

// passesOf returns the cost of partitioning by so many bits, in passes of 8 bits. For columns of 4
// bytes, one pass by 9 bits takes as long as 1.4 passes of 8 bits.
func passesOf(bits uint, fours bool) float64 {
	if bits == 9 && fours {
		return 1.4
	}
	return float64((bits + 7) / 8)
}

// fours reports whether all columns have 4 bytes per value, and nothing else.
func fours(schema *gpu.Schema, columns []int) bool {
	return !slices.ContainsFunc(columns, func(i int) bool {
		t := schema.Fields[i].Type
		return t.IsVar() || t.Width() != 4 || schema.Fields[i].Nullable
	})
}

// movedBytes returns the bytes of a row that a partition moves.
func movedBytes(schema *gpu.Schema, key int, need []int, transform bool) int {
	if !transform {
		return schema.Fields[key].Type.Width() + 4
	}
	return rowBytes(schema, append(slices.DeleteFunc(slices.Clone(need), func(i int) bool { return i == key }), key))
}

// partitionBits returns the number of hash bits by which to partition a build side, such that the
// rows of a partition and 6 more bytes per row fit seven tenths of the fast memory. On a GPU this
// is the shared memory of a block; probe rows and buckets use the rest. On a CPU it is the L2
// cache.
func partitionBits(p gpu.Properties, rows, rowBytes int) uint {
	fast := p.Shared
	if fast == 0 {
		fast = p.L2
	}
	if fast == 0 { // unknown: a size that most devices have
		fast = 128 << 10
	}
	table := max(int(fast)*7/10/(rowBytes+6), 1)
	return uint(min(bits.Len(uint(max(rows-1, 0)/table)), 16))
}

// batch returns how many probe rows to collect for an algorithm that reads the whole build side for
// each match. It is the number of build rows, so that at least half of the rows read are probe
// rows. Concatenated and reordered, the rows take three times their memory, at most room.
func (s *Spec) batch(room int64, buildRows int) int {
	most := room / 3 / int64(rowBytes(s.Probe, nil))
	return int(min(int64(buildRows), max(most, 1), gpu.MaxRows))
}
