package join

import (
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// NewMarks returns the match bitmap of n rows, without matches.
func NewMarks(l *gpu.Lease, n int) (gpu.Column, error) {
	bits, err := memory.Zeros[uint64](l, (n+63)/64)
	if err != nil {
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Bool), Len: n, Data: bits.Buf}, nil
}

// SetBits sets the bits of rows in a match bitmap. Consecutive ids in the same word cause one access to
// it.
func SetBits(cores parallel.Cores, bitmap gpu.Column, rows []int32) error {
	words := gpu.Words(bitmap.Data, bitmap.Len)
	return cores.For(len(rows), parallel.Grain, func(lo, hi int) error {
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
	})
}

// AddUnmatched merges the probe rows of rest, which have no match, into pairs. Both are in the order of
// probe rows. The build row of an added pair is -1.
func AddUnmatched(l *gpu.Lease, probe, build, rest gpu.Column) (outProbe, outBuild gpu.Column, err error) {
	n := probe.Len + rest.Len
	toProbe, err := memory.New[int32](l, n)
	if err != nil {
		return outProbe, outBuild, err
	}
	toBuild, err := memory.New[int32](l, n)
	if err != nil {
		toProbe.Release()
		return outProbe, outBuild, err
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
