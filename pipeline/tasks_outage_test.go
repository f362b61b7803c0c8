package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/source/store/storetest"
)

// TestTasksWhoseStoreFailsGiveTheRowsOrAnError runs a job in tasks through a proxy in front of a store that fails now
// and then, is gone for some requests, or for good.
func TestTasksWhoseStoreFailsGiveTheRowsOrAnError(t *testing.T) {
	storetest.Quick(t)
	endpoint := storetest.Gateway(t, t.TempDir())
	dir := t.TempDir()
	tables := writeRankTables(t, dir)
	seed, ends := gputest.Seed(t), map[string]int{}
	var want collected
	query := rankQueries["hash, range"]
	p, err := rankPlan(tables, query, func(b *Builder) *Builder { return b.WriteTo(&want) })()
	require.NoError(t, err)
	_, err = p.Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.NoError(t, p.Close())
	for n := range 3 * gputest.Cases(t, 2) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		var requests, from, until atomic.Int64
		now := storetest.Random(seed+uint64(n), 0.1, storetest.Cut, storetest.Refuse, storetest.Drop, storetest.Delay)
		kind := []string{"now and then", "for some requests", "for good"}[n%3]
		switch kind {
		case "for some requests":
			from.Store(int64(r.IntN(150)))
			until.Store(from.Load() + int64(r.IntN(60)))
		case "for good":
			from.Store(int64(r.IntN(150)))
			until.Store(1 << 40)
		}
		storetest.Use(t, storetest.Proxy(t, endpoint, func(q *http.Request) storetest.Fault {
			switch at := requests.Add(1); {
			case at > from.Load() && at <= until.Load():
				return storetest.Drop
			case kind == "now and then":
				return now(q)
			}
			return storetest.None
		}))
		work := "s3://" + storetest.Bucket + "/work"
		var got collected
		p, err := rankPlan(tables, query, func(b *Builder) *Builder { return b.WriteTo(&got) })()
		require.NoError(t, err)
		opt := RunOptions{Use: Host, Threads: 1, HostMemory: 64 << 20, Exchanges: Always, SpillDir: t.TempDir()}
		begin := time.Now()
		_, err = p.RunTasks(t.Context(), opt, TaskOptions{Engine: &InProcess{opt}, Workers: 3, Folder: work,
			LeastBytes: 1})
		require.NoError(t, p.Close())
		require.Less(t, time.Since(begin), time.Minute)
		if err == nil {
			require.Equal(t, want, got)
			ends[kind+": rows"]++
		} else {
			require.True(t, errors.Is(err, ErrFile) || errors.Is(err, ErrOutput), "%v", err)
			ends[kind+": error"]++
		}
		until.Store(0)
		left := 0
		require.NoError(t, store.List(context.Background(), work, func(string, store.Version) error {
			left++
			return nil
		}))
		if left > 0 { // the store failed again when they were to be removed, and the error says so
			require.ErrorContains(t, err, "list "+work, kind)
		}
		storetest.Use(t, endpoint)
		require.NoError(t, store.List(context.Background(), work, func(name string, _ store.Version) error {
			return store.Delete(context.Background(), name)
		}))
	}
	t.Log(ends)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, filepath.Join(dir, "has only the tables"))
}
