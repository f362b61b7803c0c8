package join

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
)

// Choice is the algorithm of a join and a reason in one line.
type Choice struct{ Algorithm, Why string }

// String returns the line that explain shows.
func (c Choice) String() string { return "algorithm " + c.Algorithm + ": " + c.Why }

// rates are the constants of the cost model: nanoseconds on one GPU.
type rates struct {
	machine string
	l2      int64 // bytes, for a GPU that explain has not opened
	// build is a row that goes into the table of NPJ.
	build float64
	// near and far are a random access of a row to the table or to a column, in the
	// second-level cache and beyond it.
	near, far float64
	// stream is a byte that a pass of a partition or a copy reads or writes.
	stream float64
	// match is a byte that the match of partitions reads or writes.
	match float64
	// gain is how many times faster than NPJ an algorithm must be that collects rows,
	// since these take memory, and none of them comes out before the last has come.
	gain float64
}

// measured are the rates of one H200: rows of a key and two payloads of 4 bytes that lie on
// the device, 2^27 of them joined with 2^20 to 2^27 rows of distinct keys. NPJ took 5.7 to
// 38.9 ms, PHJ-TR 3.7 to 7.7. PHJ-UR has not been measured: its gathers count as far
// accesses.
var measured = rates{machine: "H200", l2: 60 << 20, build: 0.167, near: 0.014, far: 0.041, stream: 1 / 3200.0, match: 1 / 1600.0, gain: 1.25}

// circumstances are what a choice depends on besides the Spec. Zeros are not known.
type circumstances struct {
	device gpu.Properties
	memory int64 // the budget
	lanes  int
	stride int // rows of a stride of the probe side
}

// Plan returns the algorithm that a join will probably take on a device, by the planner's
// estimates. The join chooses when the rows of its build side are known. Properties that
// are not known count as those of the GPU that was measured.
func (s Spec) Plan(device gpu.Properties) Choice {
	s.filters = s.conditions()
	return s.choose(circumstances{device: device})
}

// choose returns the algorithm for a number of build rows, by rules and then by the cost of
// transformation, match and materialisation (Wu et al., SIGMOD 2025, §4.1.4 and §5.1.10).
// Skew does not count: the match of partitions cuts large ones. SMJ and MPJ are not
// chosen: they sort all bits of a key, where PHJ partitions by at most 16 of them.
func (s *Spec) choose(c circumstances) Choice {
	switch {
	case s.Algorithm != "":
		return Choice{s.Algorithm, "the job says so"}
	case c.device.Kind != "cuda":
		return s.chooseOnCPU(c)
	case !s.direct():
		return Choice{"npj", "a table finds keys that are not one number of 4 or 8 bytes"}
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
	if s.footprint() <= r.l2 {
		return Choice{"npj", build + " fits the L2 cache"}
	}
	if s.ProbeRows == 0 {
		return Choice{"npj", "the rows of the probe side are not known"}
	}
	npj := r.npj(s)
	tr, ur := r.phj(s, c, true), r.phj(s, c, false)
	best, cost := "phj-tr", tr
	if ur < tr {
		best, cost = "phj-ur", ur
	}
	if npj <= r.gain*cost {
		return Choice{"npj", fmt.Sprintf("%s is larger than the L2 cache, but partitioning would take %s, a table %s", build, milliseconds(cost), milliseconds(npj))}
	}
	return Choice{best, fmt.Sprintf("%s is larger than the L2 cache: about %s, with a table %s", build, milliseconds(cost), milliseconds(npj))}
}

// The CPU on which algorithms were measured, an Intel Xeon with 2 MiB of L2 a core: two
// cores joined 2·10⁷ rows of a key and two payloads of 4 bytes. With keys of a narrow range
// NPJ needs 1.2 s of the cores for 5·10⁶ build rows, PHJ-TR 2.5. With other keys they need
// 0.79 and 0.94 for 10⁵, 1.33 and 1.37 for 10⁶, 2.06 and 1.67 for 2·10⁶, 2.7 and 2.0 for
// 5·10⁶; there PHJ-UR needs 2.4, SMJ-UR 2.6, SMJ-TR 2.8, MPJ 2.4.
const (
	cpuL2 = 2 << 20 // bytes
	// cpuCaches is the footprint of NPJ, in sizes of L2, from which PHJ-TR is faster.
	cpuCaches = 16
	// spread is the range of keys, as a multiple of their number, up to which a device
	// makes a direct table.
	spread = 64
)

// chooseOnCPU takes one table, unless the keys surely need a hash table that is far larger
// than the cache, nobody sees the order, and batches are as large as they should be.
func (s *Spec) chooseOnCPU(c circumstances) Choice {
	cache := c.device.L2
	if cache == 0 {
		cache = cpuL2
	}
	rows := float64(s.BuildRows)
	switch {
	case s.KeyRange > 0 && s.KeyRange <= spread*rows && s.direct():
		return Choice{"npj", "a direct table: the keys are in a range of " + approximate(s.KeyRange)}
	case !s.AnyOrder:
		return Choice{"npj", "it keeps the order of the rows"}
	case s.KeyRange == 0 || !s.direct() || s.ProbeRows < s.BuildRows || s.hasTexts() || s.footprint() <= cpuCaches*cache,
		c.memory > 0 && s.batch(c.memory, c.lanes, int(s.BuildRows)) < int(s.BuildRows):
		return Choice{"npj", "one table is fastest on the CPU"}
	}
	return Choice{"phj-tr", fmt.Sprintf("a hash table of about %s is far larger than the L2 cache", humanize.IBytes(uint64(s.footprint())))}
}

// hasTexts reports whether the probe side has texts. With several dictionaries these are not
// collected.
func (s *Spec) hasTexts() bool {
	return slices.ContainsFunc(s.Probe.Fields, func(f gpu.Field) bool { return f.Type.IsVar() })
}

// approximate formats a number of values in two digits.
func approximate(n float64) string {
	v, prefix := humanize.ComputeSI(n)
	return fmt.Sprintf("%.2g%s", v, prefix)
}

func milliseconds(ns float64) string { return fmt.Sprintf("%.3g ms", ns/1e6) }

// footprint returns the bytes that the accesses of NPJ hit: the table, with its link and its
// free room about 8 bytes a row, and the columns of the build side in the result.
func (s *Spec) footprint() int64 {
	row := 8
	if kept := s.kept(); len(kept) > 0 {
		row += rowBytes(s.Build, kept)
	}
	return s.BuildRows * int64(row)
}

// matches is the estimate of the pairs.
func (s *Spec) matches() float64 {
	if s.PairRows > 0 {
		return float64(s.PairRows)
	}
	return float64(s.ProbeRows)
}

// npj is the time of NPJ: the build, and for each probe row an access to the table and one
// to each column of the build side.
func (r rates) npj(s *Spec) float64 {
	miss := max(0, 1-float64(r.l2)/float64(s.footprint()))
	access := r.near + miss*(r.far-r.near)
	return float64(s.BuildRows)*r.build + access*(float64(s.ProbeRows)+s.matches()*float64(len(s.kept())))
}

// phj is the time of a partitioned join: the passes over both sides, collecting the probe
// rows, and the match, which reads the whole build side for each batch. PHJ-UR gathers the
// columns of the pairs, in random order.
func (r rates) phj(s *Spec, c circumstances, transform bool) float64 {
	width := s.Probe.Fields[s.ProbeKeys[0]].Type.Width()
	probe, build := movedBytes(s.Probe, s.ProbeKeys[0], s.used(), transform), movedBytes(s.Build, s.BuildKeys[0], s.kept(), transform)
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
	passes := float64((partitionBits(c.device, int(s.BuildRows), max(build, width+4)) + 7) / 8)
	batch := p
	switch {
	case s.hasTexts() && c.stride > 0:
		batch = float64(c.stride)
	case c.memory > 0:
		batch = float64(s.batch(c.memory, c.lanes, int(s.BuildRows)))
	}
	batches := max(1, p/batch)
	ns := 2*passes*r.stream*(n*float64(build)+p*float64(probe)) + // transformation
		r.match*(batches*n*float64(build)+p*float64(probe)+m*float64(out))
	if batches > 1 || c.stride > 0 && p > float64(c.stride) {
		ns += 2 * r.stream * p * float64(rowBytes(s.Probe, nil)) // collecting
	}
	if !transform {
		ns += r.far * m * float64(len(s.used())+len(s.kept()))
	}
	return ns
}

// movedBytes returns the bytes of a row that a partition moves.
func movedBytes(schema *gpu.Schema, key int, need []int, transform bool) int {
	if !transform {
		return schema.Fields[key].Type.Width() + 4
	}
	return rowBytes(schema, append(slices.DeleteFunc(slices.Clone(need), func(i int) bool { return i == key }), key))
}

// partitionBits returns how many bits of a hash make partitions of a build side of rows of
// some bytes. Seven tenths of the fast memory are for the rows of a table and 6 bytes more
// a row. On a GPU this is the shared memory of a block; probe rows and buckets have the
// rest. On a CPU it is the second-level cache.
func partitionBits(p gpu.Properties, rows, rowBytes int) uint {
	fast := p.Shared
	if fast == 0 {
		fast = p.L2
	}
	if fast == 0 { // not known: a size that most devices have
		fast = 128 << 10
	}
	table := max(int(fast)*7/10/(rowBytes+6), 1)
	return uint(min(bits.Len(uint(max(rows-1, 0)/table)), 16))
}

// batch returns how many probe rows an algorithm collects that reads the whole build side
// for each match: as many as the build side has, so that at least half of the reading is
// for probe rows. The rows, put together and reordered, take three times their memory,
// which is at most a quarter of the budget for all lanes.
func (s *Spec) batch(memory int64, lanes, buildRows int) int {
	most := memory / 4 / 3 / int64(max(lanes, 1)) / int64(rowBytes(s.Probe, nil))
	return int(min(int64(buildRows), max(most, 1), gpu.MaxRows))
}
