package gputest

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testBitmaps sets bits from two queues at the same time: rows in few bitmap words, so that both
// queues change the same words, and rows that are spread, in any order, some of them twice.
func testBitmaps(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, n := range upTo(20000, []int{0, 1, 31, 32, 33, 63, 64, 65, 127, 513, 16385, 300001}) {
		bitmap, err := b.q.NewBitmap(b.l, n)
		require.NoError(t, err)
		require.Nil(t, bitmap.Valid)
		want := make([]gpu.Scalar, n)
		for i := range want {
			want[i] = gpu.BoolScalar(false)
		}
		requireSame(t, want, b.down(bitmap), "a new bitmap")
		const queues, calls = 2, 6
		var lists [queues][calls]gpu.Column
		for k := range lists {
			for c := range lists[k] {
				ids := make([]int32, 0, n/3)
				for len(ids) < n/3 {
					id := b.rnd.IntN(n)
					if c%2 == 0 {
						id = len(ids)*2 + k // neighbours of both queues in turn
					}
					want[id] = gpu.BoolScalar(true)
					ids = append(ids, int32(id))
				}
				lists[k][c] = b.ids(ids)
			}
		}
		var at sync.WaitGroup
		errs := make([]error, queues)
		for k := range lists {
			q, err := b.dev.NewQueue("bitmap")
			require.NoError(t, err)
			at.Go(func() {
				for _, ids := range lists[k] {
					if errs[k] = q.SetBits(b.l, bitmap, ids); errs[k] != nil {
						break
					}
				}
				if err := q.Close(); errs[k] == nil {
					errs[k] = err
				}
			})
		}
		at.Wait()
		require.Equal(t, make([]error, queues), errs)
		requireSame(t, want, b.down(bitmap), "bits of two queues")
		bitmap.Release()
	}
}

// testAddUnmatched adds rows to the pairs of no row, of some and of all.
func testAddUnmatched(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, n := range upTo(3000, []int{0, 1, 2, 33, 257, 3000, 40000}) {
		for _, some := range []float64{0, 0.02, 0.5, 1} {
			for _, left := range []float64{0, 0.6, 1} { // of the rows without a pair
				var probe, build, rest, wantProbe, wantBuild []int32
				for r := range int32(n) {
					switch {
					case b.rnd.Float64() < some:
						for range 1 + b.rnd.IntN(3) {
							probe, build = append(probe, r), append(build, int32(b.rnd.IntN(1000)))
							wantProbe, wantBuild = append(wantProbe, r), append(wantBuild, build[len(build)-1])
						}
					case b.rnd.Float64() < left:
						rest, wantProbe, wantBuild = append(rest, r), append(wantProbe, r), append(wantBuild, -1)
					}
				}
				p, m, err := b.q.AddUnmatched(b.l, b.ids(probe), b.ids(build), b.ids(rest))
				require.NoError(t, err)
				require.True(t, slices.Equal(wantProbe, b.int32s(p)), "probe rows of %d, %v, %v", n, some, left)
				require.True(t, slices.Equal(wantBuild, b.int32s(m)), "build rows of %d, %v, %v", n, some, left)
			}
		}
	}
}
