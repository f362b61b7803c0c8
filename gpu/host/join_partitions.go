package host

import (
	"github.com/gstream/gstream/gpu"
)

// JoinPartitions implements gpu.Queue: a chained table a partition, small enough
// for the cache, and partitions side by side.
func (q *queue) JoinPartitions(l *gpu.Lease, build, probe gpu.Partitioned, kind gpu.JoinKind) (probeIDs, buildIDs gpu.Column, err error) {
	if err := q.check([]gpu.Column{build.Key, probe.Key}); err != nil {
		return probeIDs, buildIDs, err
	}
	if err := gpu.CheckPartitions(build, probe); err != nil {
		return probeIDs, buildIDs, q.fail(err)
	}
	found := make([]pairs, len(build.Offsets)-1)
	err = q.dev.parallel(len(found), 1, func(p, _ int) error {
		if build.Key.Type.Width() == 4 {
			found[p] = joinPartition(gpu.Values[uint32](build.Key.Data, build.Key.Len), gpu.Values[uint32](probe.Key.Data, probe.Key.Len), build, probe, p, kind)
		} else {
			found[p] = joinPartition(gpu.Values[uint64](build.Key.Data, build.Key.Len), gpu.Values[uint64](probe.Key.Data, probe.Key.Len), build, probe, p, kind)
		}
		return nil
	})
	if err != nil {
		return probeIDs, buildIDs, q.fail(err)
	}
	total := 0
	for _, f := range found {
		total += len(f.probe)
	}
	if total > gpu.MaxRows {
		return probeIDs, buildIDs, q.fail(gpu.ErrTooManyPairs(int64(total)))
	}
	column := func(pick func(p *pairs) []int32) (gpu.Column, error) {
		buf, err := l.Alloc(int64(total) * 4)
		if err != nil {
			return gpu.Column{}, err
		}
		out := gpu.Values[int32](buf, total)
		for i := range found {
			out = out[copy(out, pick(&found[i])):]
		}
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: total, Data: buf}, nil
	}
	if probeIDs, err = column(func(p *pairs) []int32 { return p.probe }); err != nil {
		return gpu.Column{}, gpu.Column{}, q.fail(err)
	}
	if kind == gpu.Inner || kind == gpu.Left {
		if buildIDs, err = column(func(p *pairs) []int32 { return p.build }); err != nil {
			probeIDs.Release()
			return gpu.Column{}, gpu.Column{}, q.fail(err)
		}
	}
	return probeIDs, buildIDs, nil
}

// joinPartition joins partition p of both sides.
func joinPartition[K uint32 | uint64](buildKeys, probeKeys []K, build, probe gpu.Partitioned, p int, kind gpu.JoinKind) pairs {
	from, to := build.Offsets[p], build.Offsets[p+1]
	bits := log2ceil(to - from)
	head, next := make([]int32, 1<<bits), make([]int32, to-from) // rows of the partition + 1
	bucket := func(k K) uint64 { return mix(uint64(k), tableSeed) >> (63 - bits) >> 1 }
	for i := to - from - 1; i >= 0; i-- {
		if build.Key.IsValid(from + i) {
			b := bucket(buildKeys[from+i])
			next[i], head[b] = head[b], int32(i+1)
		}
	}
	var out pairs
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
				out.probe, out.build = append(out.probe, int32(r)), append(out.build, int32(from)+i-1)
			}
		}
		switch {
		case kind == gpu.Semi && matched, kind == gpu.Anti && !matched:
			out.probe = append(out.probe, int32(r))
		case kind == gpu.Left && !matched:
			out.probe, out.build = append(out.probe, int32(r)), append(out.build, -1)
		}
	}
	return out
}
