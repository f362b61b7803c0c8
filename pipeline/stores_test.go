package pipeline

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/source/store/storetest"
)

// inStores writes a number into a local file, an object and a folder of objects.
func inStores(v int, overwrite bool) *Builder {
	opt := ParquetOptions{Overwrite: overwrite}
	parts := opt
	parts.PartitionBy = []string{"k"}
	lake := "s3://" + storetest.Bucket + "/"
	return New("stores").SQL(fmt.Sprintf("select %d as v, k from range(3) t(k)", v)).As("all").
		WriteAll(Output{CSV: "local.csv", Options: opt}, Output{Arrow: Path(lake + "one.arrow"), Options: opt},
			Output{Parquet: Path(lake + "folder"), Options: parts})
}

// stored returns what the outputs of inStores have.
func stored(t *testing.T, dir string) string {
	lake := "s3://" + storetest.Bucket + "/"
	var all []string
	for _, path := range []string{filepath.Join(dir, "local.csv"), lake + "one.arrow", lake + "folder"} {
		text := sqlRows(t, "select distinct v from '"+path+"'", nil)
		all = append(all, strings.Join(strings.Fields(text), ""))
	}
	return strings.Join(all, " ")
}

func TestOutputsInStoresAppearTogether(t *testing.T) {
	storetest.Quick(t)
	gateway := storetest.Gateway(t, t.TempDir())
	dir := t.TempDir()
	t.Chdir(dir)
	fault := func(*http.Request) bool { return false }
	storetest.Use(t, storetest.Proxy(t, gateway, func(r *http.Request) storetest.Fault {
		if fault(r) {
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
	manifests := 0
	require.NoError(t, run(1, false))
	require.Equal(t, same(1), stored(t, dir))
	require.ErrorIs(t, run(2, false), os.ErrExist)
	require.Equal(t, same(1), stored(t, dir))
	require.NoError(t, run(2, true))
	require.Equal(t, same(2), stored(t, dir))
	for name, f := range map[string]func(r *http.Request) bool{
		"the object is not completed": func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "one.arrow") &&
				!r.URL.Query().Has("uploads")
		},
		"the manifest is not written": func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, staging.LockName)
		},
		"only the first manifest is written": func(r *http.Request) bool {
			manifest := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, staging.LockName)
			if manifest {
				manifests++
			}
			return manifest && manifests > 1
		},
		"no part is sent": func(r *http.Request) bool { return r.Method == http.MethodPut },
	} {
		fault = f
		require.Error(t, run(3, true), name)
		fault = func(*http.Request) bool { return false }
		require.Equal(t, same(2), stored(t, dir), name)
		uploads := 0
		require.NoError(t, store.Uploads(t.Context(), "s3://"+storetest.Bucket+"/", func(store.Pending) error {
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
	storetest.Quick(t)
	storetest.Use(t, storetest.Gateway(t, t.TempDir()))
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
