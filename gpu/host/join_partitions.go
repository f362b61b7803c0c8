package host

import (
	"github.com/gstream/gstream/gpu"
)

// MatchPartitions implements gpu.Queue. Each partition has a chained hash table, small
// enough for the cache. Cores work on different partitions.
func (q *queue) MatchPartitions(l *gpu.Lease, build, probe gpu.Partitioned, kind gpu.JoinKind) (probeIDs, buildIDs gpu.Column, err error) {
	if err := q.check([]gpu.Column{build.Key, probe.Key}); err != nil {
		return probeIDs, buildIDs, err
	}
	if err := gpu.CheckPartitions(build, probe); err != nil {
		return probeIDs, buildIDs, q.fail(err)
	}
	found := make([]pairs, len(build.Offsets)-1)
	lists := make([]*pairs, len(found))
	defer func() {
		for i := range found {
			found[i].release()
		}
	}()
	err = q.dev.parallel(len(found), 1, func(p, _ int) error {
		found[p], lists[p] = newPairs(l, kind), &found[p]
		if build.Key.Type.Width() == 4 {
			return joinPartition(&found[p], gpu.Values[uint32](build.Key.Data, build.Key.Len), gpu.Values[uint32](probe.Key.Data, probe.Key.Len), build, probe, p, kind)
		}
		return joinPartition(&found[p], gpu.Values[uint64](build.Key.Data, build.Key.Len), gpu.Values[uint64](probe.Key.Data, probe.Key.Len), build, probe, p, kind)
	})
	if err != nil {
		return probeIDs, buildIDs, q.fail(err)
	}
	total := 0
	for _, f := range lists {
		total += len(f.probe.v)
	}
	if total > gpu.MaxRows {
		return probeIDs, buildIDs, q.fail(gpu.ErrTooManyPairs(int64(total)))
	}
	probeIDs, buildIDs, err = columns(l, lists, kind)
	return probeIDs, buildIDs, q.fail(err)
}

// joinPartition joins partition p of both sides.
func joinPartition[K uint32 | uint64](out *pairs, buildKeys, probeKeys []K, build, probe gpu.Partitioned, p int, kind gpu.JoinKind) error {
	from, to := build.Offsets[p], build.Offsets[p+1]
	if probe.Offsets[p] == probe.Offsets[p+1] {
		return nil
	}
	bits := log2ceil(to - from)
	heads, err := newZeros[int32](out.lease, 1<<bits) // row within the partition + 1
	if err != nil {
		return err
	}
	defer heads.release()
	nexts, err := newArray[int32](out.lease, to-from)
	if err != nil {
		return err
	}
	defer nexts.release()
	head, next := heads.v, nexts.v
	bucket := func(k K) uint64 { return mix(uint64(k), tableSeed) >> (63 - bits) >> 1 }
	for i := to - from - 1; i >= 0; i-- {
		if build.Key.IsValid(from + i) {
			b := bucket(buildKeys[from+i])
			next[i], head[b] = head[b], int32(i+1)
		}
	}
	// Most probe rows have at most one match.
	if err := out.room(probe.Offsets[p+1] - probe.Offsets[p]); err != nil {
		return err
	}
	for r := probe.Offsets[p]; r < probe.Offsets[p+1]; r++ {
		matched := false
		if probe.Key.IsValid(r) {
			k := probeKeys[r]
			for i := head[bucket(k)]; i != 0; i = next[i-1] {
				if buildKeys[from+int(i)-1] != k {
					continue
				}
				matched = true
				if kind == gpu.Semi || kind == gpu.Anti {
					break
				}
				if err := out.room(1); err != nil {
					return err
				}
				out.add(int32(r), int32(from)+i-1)
			}
		}
		if err := out.room(1); err != nil {
			return err
		}
		switch {
		case kind == gpu.Semi && matched, kind == gpu.Anti && !matched:
			out.addProbe(int32(r))
		case kind == gpu.Left && !matched:
			out.add(int32(r), -1)
		}
	}
	return nil
}
