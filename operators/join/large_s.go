package join

// largeS is LARGE-S (Rui & Tu, SSDBM 2017, §3.4): the build side stays on the device in its
// partitions, and the probe side streams through in chunks, which are the strides of the
// pipeline. It is PHJ-TR without collecting. The runner overlaps the copies of the next
// strides with the join of this one, as it does for every algorithm. Each stride reads the
// whole build side, so this is for build sides that are not much larger than a stride;
// without a choice, the join has npj or collects strides. Out of core the join collects rows
// itself (outerLane).
func largeS(s *Spec) algorithm { return phj{Spec: s, transform: true, bits: partitionBits} }
