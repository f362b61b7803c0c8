package pipeline

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/source/store/storetest"
)

// storesLake is the variable with the address of the bucket that inStores writes to.
const storesLake = "GSTREAM_TEST_LAKE"

// inStores writes a number into a local file, an object and a folder of objects.
func inStores(v int, overwrite bool) *Builder {
	opt := ParquetOptions{Overwrite: overwrite}
	parts := opt
	parts.PartitionBy = []string{"k"}
	lake := os.Getenv(storesLake)
	return New("stores").SQL(fmt.Sprintf("select %d as v, k from range(3) t(k)", v)).As("all").
		WriteAll(Output{CSV: "local.csv", Options: opt}, Output{Arrow: Path(lake + "one.arrow"), Options: opt},
			Output{Parquet: Path(lake + "folder"), Options: parts})
}

// stored returns what the outputs of inStores have.
func stored(t *testing.T, dir string) string {
	lake := os.Getenv(storesLake)
	var all []string
	for _, path := range []string{filepath.Join(dir, "local.csv"), lake + "one.arrow", lake + "folder"} {
		text := sqlRows(t, "select distinct v from '"+path+"'", nil)
		all = append(all, strings.Join(strings.Fields(text), ""))
	}
	return strings.Join(all, " ")
}

// inEachStore runs a test with a store of each kind.
func inEachStore(t *testing.T, test func(t *testing.T, cloud storetest.Cloud)) {
	for _, cloud := range storetest.Clouds {
		t.Run(cloud.Lake[:2], func(t *testing.T) {
			storetest.Quick(t)
			t.Setenv(storesLake, cloud.Lake)
			test(t, cloud)
		})
	}
}

func TestOutputsInStoresAppearTogether(t *testing.T) { inEachStore(t, appearTogether) }

func appearTogether(t *testing.T, cloud storetest.Cloud) {
	gateway := cloud.Start(t)
	dir := t.TempDir()
	t.Chdir(dir)
	var fault atomic.Pointer[func(*http.Request) bool] // a request may outlive its run
	cloud.Use(t, storetest.Proxy(t, gateway, func(r *http.Request) storetest.Fault {
		if f := fault.Load(); f != nil && (*f)(r) {
			return storetest.Drop
		}
		return storetest.None
	}))
	run := func(v int, overwrite bool) error {
		_, err := inStores(v, overwrite).Run(t.Context(), RunOptions{Use: Host})
		return err
	}
	same := func(v int) string {
		one := fmt.Sprintf(`[{"v":%d}]`, v)
		return one + " " + one + " " + one
	}
	var manifests atomic.Int64
	require.NoError(t, run(1, false))
	require.Equal(t, same(1), stored(t, dir))
	require.ErrorIs(t, run(2, false), os.ErrExist)
	require.Equal(t, same(1), stored(t, dir))
	require.NoError(t, run(2, true))
	require.Equal(t, same(2), stored(t, dir))
	for name, f := range map[string]func(r *http.Request) bool{
		"the object is not completed": func(r *http.Request) bool {
			q := r.URL.Query()
			return strings.Contains(r.URL.Path, "one.arrow") && (r.Method == http.MethodPost && !q.Has("uploads") ||
				q.Get("comp") == "blocklist")
		},
		"the manifest is not written": func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, staging.LockName)
		},
		"only the first manifest is written": func(r *http.Request) bool {
			manifest := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, staging.LockName)
			return manifest && manifests.Add(1) > 1
		},
		"no part is sent": func(r *http.Request) bool { return r.Method == http.MethodPut },
	} {
		fault.Store(&f)
		require.Error(t, run(3, true), name)
		fault.Store(nil)
		require.Equal(t, same(2), stored(t, dir), name)
		uploads := 0
		require.NoError(t, store.Uploads(t.Context(), cloud.Lake, func(store.Pending) error {
			uploads++
			return nil
		}))
		require.Zero(t, uploads, name)
	}
	require.NoError(t, run(3, true))
	require.Equal(t, same(3), stored(t, dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing hidden is left")
}

func TestAKilledRunLeavesAllOutputsInStoresOrNone(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	inEachStore(t, killedInStores)
}

func killedInStores(t *testing.T, cloud storetest.Cloud) {
	cloud.Use(t, cloud.Start(t))
	dir := t.TempDir()
	t.Chdir(dir)
	_, err := inStores(1, false).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	old, states := stored(t, dir), map[string]int{}
	for n := 1; ; n++ {
		killed := runKilled(t, n, "stores", dir)
		require.NoError(t, staging.Recover(dir))
		now := stored(t, dir)
		require.Contains(t, []string{old, strings.ReplaceAll(old, "1", "2")}, now, "killed before operation %d", n)
		if states[now]++; !killed {
			break
		}
		if now != old {
			_, err := inStores(1, true).Run(t.Context(), RunOptions{Use: Host})
			require.NoError(t, err)
		}
	}
	require.Greater(t, states[old], 2, "kills before the commit")
	require.Greater(t, states[strings.ReplaceAll(old, "1", "2")], 3, "kills after it")
}
