package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// words returns a stride of columns of 8 bytes.
func words(cols ...[]uint64) *gpu.Stride {
	st := &gpu.Stride{Rows: len(cols[0])}
	for _, c := range cols {
		st.Cols = append(st.Cols, gpu.Column{Type: gpu.Of(gpu.Int64), Len: len(c), Data: gpu.WrapBytes(gpu.BytesOf(c))})
	}
	return st
}

// keysOf returns the keys of numbers.
func keysOf(numbers ...uint64) (keys []uint64) {
	for _, n := range numbers {
		keys = append(keys, n*keyFactor)
	}
	return keys
}

func TestSpillCheckFindsWrongRows(t *testing.T) {
	probe := words(keysOf(2, 0, 2, 1), []uint64{0, 1, 2, 3})
	check := func(of spillCase, strides ...*gpu.Stride) error {
		k := &spillCheck{spilling: &spilling{of: of, rows: 4, inputs: [2][]*gpu.Stride{nil, {probe}}}}
		for _, st := range strides {
			k.stride(st)
		}
		return k.end()
	}
	join := spillCase{family: "join"}
	require.NoError(t, check(join, words(keysOf(2, 1), []uint64{2, 3}, []uint64{2, 1}),
		words(keysOf(0, 2), []uint64{1, 0}, []uint64{0, 2})))
	require.ErrorIs(t, check(join, words(keysOf(2, 1, 0, 2), []uint64{2, 3, 1, 0}, []uint64{2, 1, 0, 1})), ErrWrong,
		"another build row")
	require.ErrorIs(t, check(join, words(keysOf(2, 1, 1, 2), []uint64{2, 3, 1, 0}, []uint64{2, 1, 1, 2})), ErrWrong,
		"another probe row")
	require.ErrorIs(t, check(join, words(keysOf(2, 1, 2, 2), []uint64{2, 3, 0, 0}, []uint64{2, 1, 2, 2})), ErrWrong,
		"a row twice")
	require.ErrorIs(t, check(join, words(keysOf(2), []uint64{1 << 40}, []uint64{2})), ErrWrong,
		"no row of the probe side")

	groups := spillCase{family: "groupby"}
	sums := func(values ...uint64) *gpu.Stride {
		st := words(keysOf(0, 1, 2, 3), values)
		st.Cols[1].Type = gpu.SumType(gpu.Of(gpu.Int64))
		return st
	}
	require.NoError(t, check(groups, sums(3, 0, 3, 0, 3, 0, 3, 0)))
	require.ErrorIs(t, check(groups, sums(3, 0, 2, 0, 3, 0, 3, 0)), ErrWrong)

	sort, numbers := spillCase{family: "sort"}, []uint64{1, 3, 0, 2} // in the order of their keys as BIGINT
	require.NoError(t, check(sort, words(keysOf(numbers...), numbers)))
	require.NoError(t, check(sort, words(keysOf(numbers[:2]...), numbers[:2]),
		words(keysOf(numbers[2:]...), numbers[2:])))
	require.ErrorIs(t, check(sort, words(keysOf(1, 3, 0, 0), []uint64{1, 3, 0, 0})), ErrWrong, "a row twice")
	require.ErrorIs(t, check(sort, words(keysOf(1, 0, 3, 2), []uint64{1, 0, 3, 2})), ErrWrong, "not in order")
	require.ErrorIs(t, check(sort, words(keysOf(numbers[2:]...), numbers[2:]),
		words(keysOf(numbers[:2]...), numbers[:2])), ErrWrong, "strides not in order")
}
