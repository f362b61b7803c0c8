package transfer_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/transfer"
)

// onEach runs a test on the CPU and on a GPU or its emulator, with a budget of a size.
func onEach(t *testing.T, memory int64, test func(t *testing.T, d gpu.Device)) {
	t.Run("host", func(t *testing.T) {
		d, err := host.Open(host.Options{Threads: 2, Memory: memory})
		require.NoError(t, err)
		test(t, d)
		require.NoError(t, d.Close())
	})
	t.Run("cuda", func(t *testing.T) { test(t, cudatest.Open(t, cuda.Options{Memory: memory})) })
}

// TestBehind copies strides to the host in their order, of which one is denied memory at
// first, one for good, or after which the taker has enough.
func TestBehind(t *testing.T) { onEach(t, 64<<20, testBehind) }

func testBehind(t *testing.T, d gpu.Device) {
	q, err := d.NewQueue("up")
	require.NoError(t, err)
	l, h := d.Budget().Lease("strides"), d.HostBudget().Lease("copies")
	const strides, n = 12, 3000
	enough := errors.New("enough")
	for _, refused := range []int{-1, 0, 1, 5} {
		for _, last := range []int{strides, 4} {
			next, seen := 0, 0
			var calls atomic.Int64
			d.HostBudget().SetFault(func(bool) error {
				if calls.Add(1)-1 == int64(2*refused) { // reservation, allocation
					return errors.New("not now")
				}
				return nil
			})
			receive := func(context.Context) (*gpu.Stride, error) {
				if next == strides {
					return nil, io.EOF
				}
				values := make([]int64, n)
				values[7] = int64(next)
				next++
				return q.Upload(l,
					&gpu.Stride{Rows: n, Schema: gpu.NewSchema(gpu.Field{Name: "v", Type: gpu.Of(gpu.Int64)}),
						Cols: []gpu.Column{{Type: gpu.Of(gpu.Int64), Len: n,
							Data: gpu.WrapBytes(gpu.BytesOf(values))}}})
			}
			err := transfer.Behind(context.Background(), d, "behind", h, receive, nil, func(s *gpu.Stride) error {
				defer s.Release()
				require.Equal(t, int64(seen), gpu.Values[int64](s.Cols[0].Data, n)[7])
				if seen++; seen == last {
					return enough
				}
				return nil
			})
			require.ErrorIs(t, err, enough)
			require.Equal(t, last, seen)
			d.HostBudget().SetFault(nil)
		}
	}
	if d.Budget() != d.HostBudget() { // otherwise nothing is copied
		d.HostBudget().SetFault(func(bool) error { return errors.New("never") })
		err = transfer.Behind(context.Background(), d, "behind", h, func(ctx context.Context) (*gpu.Stride, error) {
			if ctx.Err() != nil {
				return nil, io.EOF
			}
			return q.Upload(l,
				&gpu.Stride{Rows: n, Schema: gpu.NewSchema(gpu.Field{Name: "v", Type: gpu.Of(gpu.Int64)}),
					Cols: []gpu.Column{{Type: gpu.Of(gpu.Int64), Len: n, Data: gpu.WrapBytes(make([]byte, 8*n))}}})
		}, nil, func(*gpu.Stride) error { panic("no stride") })
		require.True(t, gpu.IsOutOfMemory(err), "%v", err)
		d.HostBudget().SetFault(nil)
	}
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
	require.NoError(t, h.Close())
}

// TestAhead copies more strides up than the budget has room for at a time: those that find no room
// wait until others are taken.
func TestAhead(t *testing.T) { onEach(t, 4*aheadRows*8, testAhead) }

// aheadRows is the rows of a stride of TestAhead, of 8 bytes each.
const aheadRows = 70000

func testAhead(t *testing.T, dev gpu.Device) {
	const n, strides = aheadRows, 9
	q, err := dev.NewQueue("lane")
	require.NoError(t, err)
	l := dev.Budget().Lease("ahead")
	a := transfer.NewAhead(context.Background(), func(ctx context.Context, a *transfer.Ahead) (err error) {
		q, err := dev.NewQueue("ahead")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, q.Close()) }()
		k := 0
		return a.Copy(ctx, q, l, func(context.Context) (*gpu.Stride, error) {
			if k++; k > strides {
				return nil, io.EOF
			}
			return &gpu.Stride{Rows: n, Schema: gpu.NewSchema(gpu.Field{Name: "v", Type: gpu.Of(gpu.Int64)}),
				Cols: []gpu.Column{{Type: gpu.Of(gpu.Int64), Len: n,
					Data: gpu.WrapBytes(gpu.BytesOf(slices.Repeat([]int64{int64(k)}, n)))}}}, nil
		})
	})
	for k := range strides {
		s, err := a.Take(context.Background())
		require.NoError(t, err)
		require.NoError(t, q.Wait(s))
		h := dev.HostBudget().Lease("result")
		down, err := q.Download(h, s)
		require.NoError(t, err)
		require.EqualValues(t, k+1, down.Cols[0].ScalarAt(n-1).Int.Lo)
		down.Release()
		require.NoError(t, h.Close())
	}
	_, err = a.Take(context.Background())
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, a.End(nil))
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
}

// shortQueue denies memory for strides in pages.
type shortQueue struct{ gpu.Queue }

func (shortQueue) UploadAhead(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) {
	if s.HasPages() {
		return nil, gpu.ErrBudget
	}
	return s, nil
}

// TestAheadSaysWhyItDecodesPages copies a stride in pages for which the device has no memory.
func TestAheadSaysWhyItDecodesPages(t *testing.T) {
	d, err := host.Open(host.Options{Threads: 1, Memory: 1 << 20})
	require.NoError(t, err)
	defer d.Close()
	d.Budget().SetPatience(time.Millisecond)
	q, err := d.NewQueue("up")
	require.NoError(t, err)
	l := d.Budget().Lease("strides")
	reason := ""
	column := gpu.Column{Type: gpu.Of(gpu.Int64)}
	column.Pages = &gpu.Pages{Decode: func(r string) (gpu.Column, error) {
		reason = r
		return gpu.Column{Type: column.Type}, nil
	}}
	strides := []*gpu.Stride{{Cols: []gpu.Column{column}}}
	a := transfer.NewAhead(t.Context(), func(ctx context.Context, a *transfer.Ahead) error {
		return a.Copy(ctx, shortQueue{q}, l, func(context.Context) (*gpu.Stride, error) {
			if len(strides) == 0 {
				return nil, io.EOF
			}
			s := strides[0]
			strides = nil
			return s, nil
		})
	})
	s, err := a.Take(t.Context())
	require.NoError(t, err)
	s.Release()
	require.NoError(t, a.End(io.EOF))
	require.Equal(t, "device memory was short", reason)
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
}
