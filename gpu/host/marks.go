package host

import (
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Marks implements gpu.Queue.
func (q *queue) Marks(l *gpu.Lease, n int) (gpu.Column, error) {
	if err := q.check(); err != nil {
		return gpu.Column{}, err
	}
	if err := gpu.CheckMarkRows(n); err != nil {
		return gpu.Column{}, err
	}
	bits, err := memory.Zeros[uint64](l, (n+63)/64)
	if err != nil {
		return gpu.Column{}, q.fail(err)
	}
	return gpu.Column{Type: gpu.Of(gpu.Bool), Len: n, Data: bits.Buf}, nil
}

// Mark implements gpu.Queue. Consecutive ids in the same word cause one access to it.
func (q *queue) Mark(_ *gpu.Lease, marks, ids gpu.Column) error {
	if err := q.check([]gpu.Column{marks, ids}); err != nil {
		return err
	}
	if err := gpu.CheckMarks(marks, ids); err != nil {
		return err
	}
	words, rows := gpu.Words(marks.Data, marks.Len), gpu.Values[int32](ids.Data, ids.Len)
	return q.fail(q.dev.cores.For(len(rows), parallel.Grain, func(lo, hi int) error {
		for i := lo; i < hi; {
			w, set := rows[i]/64, uint64(0)
			for ; i < hi && rows[i]/64 == w; i++ {
				set |= 1 << (rows[i] % 64)
			}
			if atomic.LoadUint64(&words[w])&set != set {
				atomic.OrUint64(&words[w], set)
			}
		}
		return nil
	}))
}

// AddUnmatched implements gpu.Queue. It merges the two lists.
func (q *queue) AddUnmatched(l *gpu.Lease, probe, build, rest gpu.Column) (outProbe, outBuild gpu.Column, err error) {
	if err := q.check([]gpu.Column{probe, build, rest}); err != nil {
		return outProbe, outBuild, err
	}
	if err := gpu.CheckUnmatched(probe, build, rest); err != nil {
		return outProbe, outBuild, err
	}
	n := probe.Len + rest.Len
	toProbe, err := memory.New[int32](l, n)
	if err != nil {
		return outProbe, outBuild, q.fail(err)
	}
	toBuild, err := memory.New[int32](l, n)
	if err != nil {
		toProbe.Release()
		return outProbe, outBuild, q.fail(err)
	}
	p, b, r := gpu.Values[int32](probe.Data, probe.Len), gpu.Values[int32](build.Data, build.Len),
		gpu.Values[int32](rest.Data, rest.Len)
	for i, j, k := 0, 0, 0; k < n; k++ {
		if j == len(r) || i < len(p) && p[i] < r[j] {
			toProbe.V[k], toBuild.V[k] = p[i], b[i]
			i++
		} else {
			toProbe.V[k], toBuild.V[k] = r[j], -1
			j++
		}
	}
	ids := gpu.Column{Type: gpu.Of(gpu.Int32), Len: n}
	outProbe, outBuild = ids, ids
	outProbe.Data, outBuild.Data = toProbe.Buf, toBuild.Buf
	return outProbe, outBuild, nil
}
