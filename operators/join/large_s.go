package join

// largeS is LARGE-S (Rui & Tu, SSDBM 2017, §3.4): the build side stays on the device in its
// partitions, and the probe side streams past it in chunks, which are the strides of the pipeline.
// It is PHJ-TR without collecting. The runner overlaps the copies of the next strides with the join
// of the current stride, as for every algorithm. Each stride reads the whole build side, so LARGE-S
// suits build sides that are not much larger than a stride. The join never chooses it: it uses npj
// or collects strides. Out of core, the join collects rows itself (outerLane).
func largeS(s *Spec) algorithm { return phj{Spec: s, transform: true, bits: partitionBits} }
