package move

import (
	"encoding/binary"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Partition returns columns in the stable order of rows by a digit of their key, and the first
// row of each digit. Every task makes a histogram, a scan over (partition, task) turns the counts
// into output offsets, and every task computes the positions of its rows. This order of offsets
// makes it stable. Plain columns of fixed width and of strings are scattered: the next values of a
// partition share a cache line until it is full. Other columns are gathered.
func Partition(cores parallel.Cores, l *gpu.Lease, cols []gpu.Column, key gpu.Column,
	d gpu.Digit) ([]gpu.Column, gpu.Column, error) {
	var to memory.Array[int32]
	var offsets []int
	var err error
	if key.Type.Width() == 4 {
		to, offsets, err = partition(cores, l, gpu.Values[uint32](key.Data, key.Len), d)
	} else {
		to, offsets, err = partition(cores, l, gpu.Values[uint64](key.Data, key.Len), d)
	}
	if err != nil {
		return nil, gpu.Column{}, err
	}
	defer to.Release()
	starts, err := memory.New[int32](l, len(offsets))
	if err != nil {
		return nil, gpu.Column{}, err
	}
	for p, at := range offsets {
		starts.V[p] = int32(at)
	}
	out, err := partitioned(cores, l, cols, to)
	if err != nil {
		starts.Release()
		return nil, gpu.Column{}, err
	}
	return out, gpu.Column{Type: gpu.Of(gpu.Int32), Len: len(starts.V), Data: starts.Buf}, nil
}

// partitioned returns columns with row i at to[i]. If the rows already have this order, as those of
// a table that is sorted by the key, the columns are shared.
func partitioned(cores parallel.Cores, l *gpu.Lease, cols []gpu.Column, to memory.Array[int32]) (out []gpu.Column,
	err error) {
	out = make([]gpu.Column, len(cols))
	if stays(to.V) {
		for i, c := range cols {
			if c.IsRowNumbers() {
				c.Data = to.Buf.Retain()
				out[i] = c
			} else {
				out[i] = c.Retain()
			}
		}
		return out, nil
	}
	var order memory.Array[int32] // the row at each position
	defer func() {
		order.Release()
		if err != nil {
			gpu.ReleaseColumns(out)
			out = nil
		}
	}()
	var gathered []gpu.Column
	var places []int // positions of these columns in cols
	for i, c := range cols {
		switch {
		case c.Type.IsVar() && c.Dict == nil && c.Valid == nil:
			out[i], err = scatteredText(cores, l, c, to.V)
		case c.IsRowNumbers() || c.Valid != nil || c.DataWidth() == 0:
			if order.Buf == nil {
				order, err = orderOf(cores, l, to.V)
			}
			if c.IsRowNumbers() { // in the new order the row numbers are the order itself
				if err == nil {
					c.Data = order.Buf.Retain()
					out[i] = c
				}
			} else {
				gathered, places = append(gathered, c), append(places, i)
			}
		default:
			out[i], err = scattered(cores, l, c, to.V)
		}
		if err != nil {
			return out, err
		}
	}
	moved, err := Gather(cores, l, gathered, order.V, false)
	if err != nil {
		return out, err
	}
	for i, c := range moved {
		out[places[i]] = c
	}
	return out, nil
}

// stays reports whether all rows keep their positions.
func stays(to []int32) bool {
	for i, at := range to {
		if int(at) != i {
			return false
		}
	}
	return true
}

// orderOf returns the row at each position, where row i is at to[i].
func orderOf(cores parallel.Cores, l *gpu.Lease, to []int32) (memory.Array[int32], error) {
	order, err := memory.New[int32](l, len(to))
	if err != nil {
		return order, err
	}
	return order, cores.For(len(to), parallel.Grain, func(lo, hi int) error {
		for r, at := range to[lo:hi] {
			order.V[at] = int32(lo + r)
		}
		return nil
	})
}

// scattered returns a plain column of fixed width with row i at to[i].
func scattered(cores parallel.Cores, l *gpu.Lease, c gpu.Column, to []int32) (gpu.Column, error) {
	buf, err := l.Alloc(int64(c.Len) * int64(c.DataWidth()))
	if err != nil {
		return gpu.Column{}, err
	}
	switch c.DataWidth() {
	case 1:
		err = scatterValues[uint8](cores, c, buf, to)
	case 2:
		err = scatterValues[uint16](cores, c, buf, to)
	case 4:
		err = scatterValues[uint32](cores, c, buf, to)
	case 8:
		err = scatterValues[uint64](cores, c, buf, to)
	default:
		err = scatterValues[gpu.Int128](cores, c, buf, to)
	}
	if err != nil {
		buf.Release()
		return gpu.Column{}, err
	}
	if c.Dict != nil {
		c.Dict.Values.Retain()
	}
	return gpu.Column{Type: c.Type, Len: c.Len, Data: buf, Dict: c.Dict}, nil
}

func scatterValues[T any](cores parallel.Cores, c gpu.Column, buf *gpu.Buffer, to []int32) error {
	in, out := gpu.Values[T](c.Data, c.Len), gpu.Values[T](buf, c.Len)
	return cores.For(c.Len, parallel.Grain, func(lo, hi int) error {
		in := in[lo:hi]
		for r, at := range to[lo:hi] {
			out[at] = in[r]
		}
		return nil
	})
}

// scatteredText returns a plain column of strings without nulls with row i at to[i].
func scatteredText(cores parallel.Cores, l *gpu.Lease, c gpu.Column, to []int32) (out gpu.Column, err error) {
	defer func() {
		if err != nil {
			out.Release()
			out = gpu.Column{}
		}
	}()
	n := c.Len
	out = gpu.Column{Type: c.Type, Len: n}
	if out.Offsets, err = l.Alloc(int64(n+1) * 4); err != nil {
		return out, err
	}
	if out.Data, err = l.Alloc(c.Data.Size()); err != nil {
		return out, err
	}
	from, ends := gpu.Values[int32](c.Offsets, n+1), gpu.Values[int32](out.Offsets, n+1)
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		for i, at := range to[lo:hi] {
			ends[at+1] = from[lo+i+1] - from[lo+i]
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	ends[0] = 0
	for i, length := range ends[1:] {
		ends[i+1] = ends[i] + length
	}
	in, text := c.Data.Bytes(), out.Data.Bytes()
	return out, cores.For(n, parallel.Grain, func(lo, hi int) error {
		for i, at := range to[lo:hi] {
			copyText(text[ends[at]:ends[at+1]], in[from[lo+i]:from[lo+i+1]])
		}
		return nil
	})
}

// copyText copies a string to a slice of the same length. Short strings are copied in words.
func copyText(to, from []byte) {
	n := len(from)
	if n < 8 || n > 64 || len(to) != n {
		copy(to, from)
		return
	}
	for i := 0; i+8 < n; i += 8 {
		binary.LittleEndian.PutUint64(to[i:], binary.LittleEndian.Uint64(from[i:]))
	}
	binary.LittleEndian.PutUint64(to[n-8:], binary.LittleEndian.Uint64(from[n-8:]))
}

// partition returns the position of each row in the stable order of rows by a digit of their key,
// and the first position of each digit. The caller releases the positions.
func partition[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease, key []K,
	digit gpu.Digit) (positions memory.Array[int32], offsets []int, err error) {
	n, fanout := len(key), 1<<digit.Bits
	mask, factor, shift := K(fanout-1), K(max(digit.Factor, 1)), digit.Shift
	size := max(parallel.Grain, (n/(4*cores.Threads)+63)/64*64)
	tasks := (n + size - 1) / size
	nexts, err := memory.Zeros[int32](l, tasks*fanout)
	if err != nil {
		return positions, nil, err
	}
	defer nexts.Release()
	next := nexts.V
	err = cores.For(n, size, func(lo, hi int) error {
		count := next[lo/size*fanout:][:fanout]
		for _, k := range key[lo:hi] {
			count[k*factor>>shift&mask]++
		}
		return nil
	})
	if err == nil {
		positions, err = memory.New[int32](l, n)
	}
	if err != nil {
		return positions, nil, err
	}
	offsets = make([]int, fanout+1)
	at := int32(0)
	for p := range fanout {
		offsets[p] = int(at)
		for k := range tasks {
			at, next[k*fanout+p] = at+next[k*fanout+p], at
		}
	}
	offsets[fanout] = n
	err = cores.For(n, size, func(lo, hi int) error {
		to := next[lo/size*fanout:][:fanout]
		for i, k := range key[lo:hi] {
			p := k * factor >> shift & mask
			positions.V[lo+i] = to[p]
			to[p]++
		}
		return nil
	})
	if err != nil {
		positions.Release()
	}
	return positions, offsets, err
}
