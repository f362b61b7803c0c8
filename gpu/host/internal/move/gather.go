// Package move moves rows of columns on CPU cores: it selects, gathers, scatters, concatenates and
// partitions them.
package move

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Select returns the rows in which a BOOLEAN column is true, or is not true.
func Select(cores parallel.Cores, l *gpu.Lease, pred gpu.Column, want bool) (gpu.Column, error) {
	n := pred.Len
	words, valid := gpu.Words(pred.Data, n), gpu.Words(pred.Valid, n)
	truth := func(w int) uint64 {
		x := words[w]
		if valid != nil {
			x &= valid[w]
		}
		if !want {
			x = ^x
		}
		if w == n/64 {
			x &= 1<<(n%64) - 1
		}
		return x
	}
	starts := make([]int, (n+parallel.Grain-1)/parallel.Grain+1)
	err := cores.For(n, parallel.Grain, func(lo, hi int) error {
		count := 0
		for w := lo / 64; w < (hi+63)/64; w++ {
			count += bits.OnesCount64(truth(w))
		}
		starts[lo/parallel.Grain+1] = count
		return nil
	})
	if err != nil {
		return gpu.Column{}, err
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	total := starts[len(starts)-1]
	buf, err := l.Alloc(int64(total) * 4)
	if err != nil {
		return gpu.Column{}, err
	}
	ids := gpu.Values[int32](buf, total)
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		out := ids[starts[lo/parallel.Grain]:starts[lo/parallel.Grain+1]]
		k := 0
		for w := lo / 64; w < (hi+63)/64; w++ {
			x := truth(w)
			base := int32(w * 64)
			if x == math.MaxUint64 {
				for j := range out[k : k+64] {
					out[k+j] = base + int32(j)
				}
				k += 64
				continue
			}
			for ; x != 0; x &= x - 1 {
				out[k] = base + int32(bits.TrailingZeros64(x))
				k++
			}
		}
		return nil
	})
	if err != nil {
		buf.Release()
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: total, Data: buf}, nil
}

// gathering is one column of a Gather.
type gathering struct {
	in, out gpu.Column
	// starts are the byte offsets of the tasks in a column of bytes.
	starts []int64
}

// Gather returns rows of columns by their ids. With outer, an id of -1 stands for a row of nulls.
func Gather(cores parallel.Cores, l *gpu.Lease, cols []gpu.Column, ids []int32, outer bool) ([]gpu.Column, error) {
	n := len(ids)
	var b builder
	if len(cols) > 0 && n == cols[0].Len && isIdentity(ids) {
		for _, c := range cols {
			b.cols = append(b.cols, c.Retain())
		}
		return b.cols, nil
	}
	work := make([]gathering, len(cols))
	tasks := (n + parallel.Grain - 1) / parallel.Grain
	for i, c := range cols {
		out := gpu.Column{Type: c.Type, Len: n, Dict: c.Dict}
		if c.Dict != nil {
			c.Dict.Values.Retain()
		}
		err := func() (err error) {
			if c.Valid != nil || outer {
				if out.Valid, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
					return err
				}
			}
			switch {
			case c.Dict == nil && c.Type.Kind == gpu.Bool:
				out.Data, err = l.Alloc(gpu.BitmapBytes(n))
			case c.Dict == nil && c.Type.IsVar():
				work[i].starts = make([]int64, tasks+1)
				out.Offsets, err = l.Alloc(int64(n+1) * 4)
			default:
				out.Data, err = l.Alloc(int64(n) * int64(c.DataWidth()))
			}
			return err
		}()
		b.cols = append(b.cols, out)
		if err != nil {
			return b.fail(err)
		}
		work[i].in, work[i].out = c, out
	}
	var nulls = make([]atomic.Bool, len(cols))
	err := cores.For(n, parallel.Grain, func(lo, hi int) error {
		for i := range work {
			g := &work[i]
			if g.starts != nil {
				g.starts[lo/parallel.Grain+1] = g.lengths(ids, lo, hi)
			} else {
				g.values(ids, lo, hi, outer)
			}
			if g.out.Valid != nil && gatherBitmap(gpu.Words(g.out.Valid, n), gpu.Words(g.in.Valid, g.in.Len), ids, lo,
				hi, true) {
				nulls[i].Store(true)
			}
		}
		return nil
	})
	if err != nil {
		return b.fail(err)
	}
	bytes := false
	for i := range work {
		g := &work[i]
		if g.out.Valid != nil && !nulls[i].Load() {
			g.out.Valid.Release()
			g.out.Valid = nil
			b.cols[i].Valid = nil
		}
		if g.starts == nil {
			continue
		}
		bytes = true
		for p := 1; p < len(g.starts); p++ {
			g.starts[p] += g.starts[p-1]
		}
		total := g.starts[tasks]
		if total > math.MaxInt32 {
			return b.fail(gpu.TooManyBytes(total, n))
		}
		if b.cols[i].Data, err = l.Alloc(total); err != nil {
			return b.fail(err)
		}
		g.out.Data = b.cols[i].Data
		if n == 0 {
			gpu.Values[int32](g.out.Offsets, 1)[0] = 0
		}
	}
	if bytes {
		err = cores.For(n, parallel.Grain, func(lo, hi int) error {
			for i := range work {
				if work[i].starts != nil {
					work[i].bytes(ids, lo, hi)
				}
			}
			return nil
		})
		if err != nil {
			return b.fail(err)
		}
	}
	return b.cols, nil
}

func isIdentity(ids []int32) bool {
	for i, id := range ids {
		if int(id) != i {
			return false
		}
	}
	return true
}

// values gathers rows [lo, hi) of a column that is not String or Binary without a
// dictionary.
func (g *gathering) values(ids []int32, lo, hi int, outer bool) {
	in, out := g.in, g.out
	if in.Len == 0 { // every id is -1
		if lo == 0 {
			clear(out.Data.Bytes())
		}
		return
	}
	switch in.DataWidth() {
	case 0:
		gatherBitmap(gpu.Words(out.Data, out.Len), gpu.Words(in.Data, in.Len), ids, lo, hi, false)
	case 1:
		gatherValues[uint8](out, in, ids, lo, hi, outer)
	case 2:
		gatherValues[uint16](out, in, ids, lo, hi, outer)
	case 4:
		gatherValues[uint32](out, in, ids, lo, hi, outer)
	case 8:
		gatherValues[uint64](out, in, ids, lo, hi, outer)
	case 16:
		gatherValues[gpu.Int128](out, in, ids, lo, hi, outer)
	}
}

func gatherValues[T any](out, in gpu.Column, ids []int32, lo, hi int, outer bool) {
	src := gpu.Values[T](in.Data, in.Len)
	dst := gpu.Values[T](out.Data, out.Len)[lo:hi]
	ids = ids[lo:hi]
	if !outer {
		for i, id := range ids {
			dst[i] = src[id]
		}
		return
	}
	for i, id := range ids {
		dst[i] = src[max(id, 0)]
	}
}

// gatherBitmap gathers bits [lo, hi) of a bitmap. A nil source means all ones, and an id of -1
// means 0. It reports whether any bit is 0.
func gatherBitmap(dst, src []uint64, ids []int32, lo, hi int, want bool) (zeros bool) {
	for w := lo / 64; w < (hi+63)/64; w++ {
		part := ids[w*64 : min(w*64+64, hi)]
		var x uint64
		for j, id := range part {
			bit := uint64(^uint32(id) >> 31) // 0 for -1
			if src != nil {
				row := uint(max(id, 0))
				bit &= src[row/64] >> (row % 64)
			}
			x |= bit << (j % 64)
		}
		dst[w] = x
		if want && bits.OnesCount64(x) != len(part) {
			zeros = true
		}
	}
	return zeros
}

// lengths writes the length of every row of [lo, hi) in place of its offset, and returns their sum.
func (g *gathering) lengths(ids []int32, lo, hi int) int64 {
	src := gpu.Values[int32](g.in.Offsets, g.in.Len+1)
	dst := gpu.Values[int32](g.out.Offsets, g.out.Len+1)
	valid := gpu.Words(g.in.Valid, g.in.Len)
	var sum int64
	for i := lo; i < hi; i++ {
		id := ids[i]
		var n int32
		if id >= 0 && (valid == nil || valid[uint(id)/64]>>(uint(id)%64)&1 != 0) {
			n = src[id+1] - src[id]
		}
		dst[i+1] = n
		sum += int64(n)
	}
	return sum
}

// bytes turns lengths into offsets and copies the bytes of rows [lo, hi).
func (g *gathering) bytes(ids []int32, lo, hi int) {
	src := gpu.Values[int32](g.in.Offsets, g.in.Len+1)
	dst := gpu.Values[int32](g.out.Offsets, g.out.Len+1)
	from, to := g.in.Data.Bytes(), g.out.Data.Bytes()
	at := int32(g.starts[lo/parallel.Grain])
	if lo == 0 {
		dst[0] = 0
	}
	for i := lo; i < hi; i++ {
		n := dst[i+1]
		if n > 0 {
			s := src[ids[i]]
			copy(to[at:at+n], from[s:s+n])
			at += n
		}
		dst[i+1] = at
	}
}

// builder collects the columns of a result, and releases them after an error.
type builder struct{ cols []gpu.Column }

func (b *builder) fail(err error) ([]gpu.Column, error) {
	gpu.ReleaseColumns(b.cols)
	return nil, err
}
