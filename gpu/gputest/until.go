package gputest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testUntil ends a queue's context: primitives work before and fail with the cause after.
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
	end := errors.New("the run has ended")
	cancel(end)
	for name, call := range calls {
		out, err := call()
		require.ErrorIs(t, err, end, name)
		gpu.ReleaseColumns(out)
	}
	_ = q.Close()
}
