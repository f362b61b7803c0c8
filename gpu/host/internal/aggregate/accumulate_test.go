package aggregate

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

func TestRowsOfARunAreFoldedByOneCore(t *testing.T) {
	for _, length := range []int{1, 7, 20, 5000, 30000} {
		ids := make([]int32, 100003)
		for i := range ids {
			ids[i] = int32(i / length)
		}
		var mu sync.Mutex
		tasks := make([]int, max(100003/length+1, fewGroups+1))
		rows := 0
		err := fold(parallel.Cores{Threads: 3}, ids, tasks, 0, func(_ []int, lo, hi int) {
			mu.Lock()
			defer mu.Unlock()
			rows += hi - lo
			for i := lo; i < hi; i++ {
				if i == lo || ids[i] != ids[i-1] {
					tasks[ids[i]]++
				}
			}
		}, nil)
		require.NoError(t, err)
		require.Equal(t, len(ids), rows, "runs of %d", length)
		for run, n := range tasks[:ids[len(ids)-1]+1] {
			require.Equal(t, 1, n, "tasks with rows of run %d of %d rows", run, length)
		}
	}
}
