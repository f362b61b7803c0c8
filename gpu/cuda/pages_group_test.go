package cuda

import (
	"errors"
	"math"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// errLeftToCPU is what the CPU says of pages that kernels have found to be damaged.
var errLeftToCPU = errors.New("left to the CPU")

// pagesOf returns a stride of a column of numbers from first on, in pages that are compressed in turn. One of damaged
// pages has an element of Snappy that reaches behind its beginning.
func pagesOf(t *testing.T, l *gpu.Lease, first int64, pages []int, damaged bool) *gpu.Stride {
	x := &gpu.Pages{Stored: 8, Least: math.MinInt64, Most: math.MaxInt64,
		Decode: func(string) (gpu.Column, error) { return gpu.Column{}, errLeftToCPU }}
	c := gpu.Column{Type: gpu.Of(gpu.Int64), Pages: x}
	var all []byte
	for i, n := range pages {
		values := make([]int64, n)
		for k := range values {
			values[k] = first + int64(c.Len+k)
		}
		g := gpu.Page{At: int64(len(all)), Raw: 8 * n, Values: n, Rows: n}
		body := gpu.BytesOf(values)
		if i%2 == 0 {
			g.Codec, body = gpu.PageSnappy, snappy.Encode(nil, body)
			if damaged {
				body[lengthBytes(8*n)] = 2 // a copy at the beginning
			}
		}
		g.Size = len(body)
		all = append(all, body...)
		x.Data = append(x.Data, g)
		c.Len += n
	}
	data, err := l.Alloc(int64(len(all)) + pageSlack)
	require.NoError(t, err)
	clear(data.Bytes()[copy(data.Bytes(), all):])
	c.Data = data.View(0, int64(len(all)))
	data.Release()
	return &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "x", Type: c.Type}), Cols: []gpu.Column{c}, Rows: c.Len}
}

// lengthBytes is the size of a length before the elements of Snappy.
func lengthBytes(n int) (size int) {
	for size = 1; n >= 128; size++ {
		n >>= 7
	}
	return size
}

// Strides with one page and with many, with small pages and with pages of several parts, share the launches of a group.
// A damaged one concerns no other.
func TestStridesThatWaitAreDecodedTogether(t *testing.T) {
	d := openTest(t, 0)
	defer func() { require.NoError(t, d.Close()) }()
	lease, other, host := d.Budget().Lease("scan"), d.Budget().Lease("another scan"), d.HostBudget().Lease("pages")
	q, err := d.NewQueue("group")
	require.NoError(t, err)
	x := &d.decodings
	x.mu.Lock()
	require.False(t, x.busy)
	x.busy = true // as if a group were being decoded
	x.mu.Unlock()
	shapes := [][]int{{100}, {20_000, 3, 9_000}, {1}, {17_000}, {5, 5, 5, 5, 5, 5}, {2_000}, {700, 700}, {40}, {1, 1},
		{60}, {33}}
	const damaged, another = 3, 10
	var strides []*gpu.Stride
	for i, pages := range shapes {
		l := lease
		if i == another {
			l = other
		}
		s, err := q.UploadAhead(l, pagesOf(t, host, int64(i)<<40, pages, i == damaged))
		require.NoError(t, err)
		strides = append(strides, s)
	}
	x.mu.Lock()
	require.Len(t, x.waiting, len(shapes))
	x.mu.Unlock()
	before := len(d.Spans(lease, other))
	d.decodeStrides()
	for i, s := range strides {
		err := q.Wait(s)
		if i == damaged {
			require.ErrorIs(t, err, errLeftToCPU)
			s.Release()
			continue
		}
		require.NoError(t, err)
		down, err := q.Download(host, s)
		require.NoError(t, err)
		for k, v := range gpu.Values[int64](down.Cols[0].Data, down.Rows) {
			require.Equal(t, int64(i)<<40+int64(k), v)
		}
		down.Release()
		s.Release()
	}
	groups := 0
	for _, p := range d.Spans(lease, other)[before:] {
		if p.Lane == lanePages {
			groups++
		}
	}
	require.Equal(t, 3, groups) // eight strides, two, and that of the other scan
	require.NoError(t, q.Close())
	for _, l := range []*gpu.Lease{lease, other, host} {
		require.NoError(t, l.Close())
	}
}
