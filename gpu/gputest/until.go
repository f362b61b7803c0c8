package gputest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testUntil cancels a queue's context. Primitives work before, and fail with the cause afterwards.
func testUntil(t *testing.T, open Open) {
	b := setUp(t, open)
	const n = 1000
	keys := b.up(gpu.ColumnOf(gpu.Of(gpu.Int64), b.integers(gpu.Of(gpu.Int64), n, 40)))[0]
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(n - 1 - i)
	}
	ids := b.ids(order)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	q, err := b.dev.NewQueue("until")
	require.NoError(t, err)
	q.Until(ctx)
	calls := map[string]func() ([]gpu.Column, error){
		"hash": func() ([]gpu.Column, error) {
			c, err := q.Hash(b.l, []gpu.Column{keys}, 1)
			return []gpu.Column{c}, err
		},
		"sort": func() ([]gpu.Column, error) {
			c, err := q.Sort(b.l, []gpu.SortKey{{Column: keys}})
			return []gpu.Column{c}, err
		},
		"concat": func() ([]gpu.Column, error) {
			c, err := q.Concat(b.l, []gpu.Column{keys, keys})
			return []gpu.Column{c}, err
		},
		"gather": func() ([]gpu.Column, error) {
			return q.Gather(b.l, []gpu.Column{keys}, ids, false)
		},
	}
	for name, call := range calls {
		out, err := call()
		require.NoError(t, err, name)
		gpu.ReleaseColumns(out)
	}
	// Other queues can use the results of a queue that has ended.
	text := gpu.Of(gpu.String)
	groups, err := q.NewGroups(b.l, []gpu.Type{text}, gpu.GroupHint{})
	require.NoError(t, err)
	defer groups.Release()
	count, err := q.NewAccumulator(b.l, gpu.Aggregate{Kind: gpu.Max, Input: text, Output: text})
	require.NoError(t, err)
	defer count.Release()
	texts := b.up(gpu.ColumnOf(text,
		generate(4000, func(i int) gpu.Scalar { return gpu.StringScalar(fmt.Sprint("text ", i)) })))
	update := func(q gpu.Queue) {
		a, err := groups.Assign(q, b.l, texts, texts[0].Len)
		require.NoError(t, err)
		require.NoError(t, count.Update(q, a, texts[0], groups.Len()))
		a.Release()
	}
	update(q)
	table, err := q.BuildTable(b.l, texts, []bool{false}, 1<<20)
	require.NoError(t, err)
	defer table.Release()
	end := errors.New("the run has ended")
	cancel(end)
	for name, call := range calls {
		out, err := call()
		require.ErrorIs(t, err, end, name)
		gpu.ReleaseColumns(out)
	}
	_ = q.Close()
	update(b.q)
	out, err := groups.Keys(b.q, b.l, 0, groups.Len())
	require.NoError(t, err)
	require.Equal(t, b.down(texts[0]), b.down(out[0]))
	gpu.ReleaseColumns(out)
	largest, err := count.Result(b.q, b.l, 0, groups.Len())
	require.NoError(t, err)
	require.Equal(t, b.down(texts[0]), b.down(largest))
	largest.Release()
	match, err := table.Match(b.q, b.l, texts)
	require.NoError(t, err)
	defer match.Release()
	probe, build, more, err := match.Next(b.q, b.l, texts[0].Len)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, texts[0].Len, probe.Len)
	probe.Release()
	build.Release()
}
