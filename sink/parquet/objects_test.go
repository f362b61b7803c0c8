package parquet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	reader "github.com/gstream/gstream/source/parquet"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/source/store/storetest"
)

// lake is the address of the bucket of the store that a test uses, and use sets the environment to reach it.
var (
	lake string
	use  func(t testing.TB, endpoint string)
)

// inEachStore runs a test with a store of each kind.
func inEachStore(t *testing.T, test func(t *testing.T, endpoint string)) {
	for _, cloud := range storetest.Clouds {
		t.Run(cloud.Lake[:2], func(t *testing.T) {
			storetest.Quick(t)
			endpoint := cloud.Start(t)
			lake, use = cloud.Lake, cloud.Use
			use(t, endpoint)
			test(t, endpoint)
		})
	}
}

// names lists the objects whose names begin with a prefix, and how many uploads there are.
func namesOf(t *testing.T, prefix string) (names []string, uploads int) {
	require.NoError(t, store.List(t.Context(), prefix, func(path string, _ store.Version) error {
		names = append(names, strings.TrimPrefix(path, prefix))
		return nil
	}))
	require.NoError(t, store.Uploads(t.Context(), prefix, func(store.Pending) error {
		uploads++
		return nil
	}))
	return names, uploads
}

// outputsOf are outputs of each form.
var outputsOf = map[string]Options{
	"one.parquet": {}, "files/": {}, "dealt": {Files: 3, RowGroupRows: 50}, "rows": {RowsPerFile: 130},
	"days/k": {PartitionBy: []string{"k"}, RowGroupRows: 40},
}

func TestObjectsHaveTheRowsOfFiles(t *testing.T) { inEachStore(t, objectsHaveTheRows) }

func objectsHaveTheRows(t *testing.T, _ string) {
	ignored := goleak.IgnoreCurrent() // of the gateway
	defer func() {
		store.CloseIdle()
		goleak.VerifyNone(t, ignored)
	}()
	first := partitioned(rand.New(rand.NewPCG(1, 1)), 600, gpu.Of(gpu.Int64), 5)
	second := partitioned(rand.New(rand.NewPCG(2, 1)), 400, gpu.Of(gpu.Int64), 4)
	for name, opt := range outputsOf {
		opt.Lease = hosttest.Budget(t, 0).Lease("sink")
		path := lake + name
		w, err := Create(path, first.schema, opt)
		require.NoError(t, err)
		require.NoError(t, first.tryWrite(w))
		require.Equal(t, first.rows("k", "s"), readRows(t, path, reader.OpenOptions{}, "k", "s"), name)
		_, err = Create(path, first.schema, opt)
		require.ErrorIs(t, err, os.ErrExist, name)
		require.NoError(t, second.replace(path, opt))
		require.Equal(t, second.rows("k", "s"), readRows(t, path, reader.OpenOptions{}, "k", "s"), name)
		names, uploads := namesOf(t, path)
		require.Zero(t, uploads)
		require.Len(t, names, w2files(t, path)+1, name) // and the manifest, or ""
		require.NoError(t, opt.Lease.Close())
	}
	lease := hosttest.Budget(t, 0).Lease("sink")
	opt := Options{Lease: lease, Overwrite: true}
	_, err := store.Put(t.Context(), lake+"files/notes.txt", []byte("mine"), store.Condition{})
	require.NoError(t, err)
	_, err = Create(lake+"files/", first.schema, opt)
	require.ErrorContains(t, err, "what no earlier output has left there as it is now: notes.txt")
	require.NoError(t, store.Delete(t.Context(), lake+"files/"+".gstream-manifest.json"))
	_, err = Create(lake+"files/", first.schema, opt)
	require.ErrorContains(t, err, "without the object .gstream-manifest.json")
	for path, want := range map[string]string{strings.TrimSuffix(lake, "/"): "names only a bucket",
		"https://h/x.parquet": "cannot be written to a web server",
		strings.Replace(lake, "/lake", "/lakes", 1) + "x.parquet": "there is no such "} {
		_, err = Create(path, first.schema, opt)
		require.ErrorContains(t, err, want)
	}
	opt.Discard = true
	w, err := Create(lake+"discarded/", first.schema, opt)
	require.NoError(t, err)
	require.NoError(t, first.tryWrite(w))
	names, uploads := namesOf(t, lake+"discarded")
	require.Empty(t, names)
	require.Zero(t, uploads)
	require.NoError(t, lease.Close())
}

// TestRowsAreAddedToObjectsAndPartitionsReplaced appends to folders, and replaces the partitions that a run has.
func TestRowsAreAddedToObjectsAndPartitionsReplaced(t *testing.T) { inEachStore(t, rowsAreAdded) }

func rowsAreAdded(t *testing.T, _ string) {
	lease := hosttest.Budget(t, 0).Lease("sink")
	first := partitioned(rand.New(rand.NewPCG(1, 1)), 600, gpu.Of(gpu.Int64), 5)
	second := partitioned(rand.New(rand.NewPCG(2, 1)), 400, gpu.Of(gpu.Int64), 4)
	write := func(tab table, path string, opt Options) error {
		opt.Lease = lease
		w, err := Create(path, tab.schema, opt)
		if err != nil {
			return err
		}
		return tab.tryWrite(w)
	}
	both := append(first.rows("k", "s"), second.rows("k", "s")...)
	// To a folder of a copy, without a manifest, and then to our own.
	copied := lake + "copied/part-00007.parquet"
	require.NoError(t, write(first, copied, Options{}))
	require.NoError(t, write(second, lake+"copied", Options{Append: true, RowsPerFile: 100}))
	require.Equal(t, both, rowsInOrder(t, lake+"copied", reader.OpenOptions{}, "k", "s"), "added behind the others")
	require.NoError(t, write(first, lake+"copied", Options{Append: true, RowsPerFile: 250}))
	require.Equal(t, append(slices.Clone(both), first.rows("k", "s")...),
		rowsInOrder(t, lake+"copied", reader.OpenOptions{}, "k", "s"))
	require.ErrorContains(t, write(first, lake+"copied/", Options{Overwrite: true}), "what no earlier output has left")
	require.Error(t, write(first, lake+"x.parquet", Options{Append: true}))

	// Each partition of the second run replaces that of the first, and the others stay.
	path, opt := lake+"days", Options{PartitionBy: []string{"k"}, OverwritePartitions: true}
	require.NoError(t, write(first, path, opt))
	require.NoError(t, write(second, path, opt))
	keys := map[string]bool{}
	for _, k := range second.values[1] {
		keys[k.String()] = true
	}
	want := second.rows("k", "s")
	for i, row := range first.rows("k", "s") {
		if !keys[first.values[1][i].String()] {
			want = append(want, row)
		}
	}
	slices.Sort(want)
	require.Greater(t, len(want), 400)
	require.Equal(t, want, readRows(t, path, reader.OpenOptions{}, "k", "s"))
	names, uploads := namesOf(t, path)
	require.Zero(t, uploads)
	require.Len(t, names, w2files(t, path)+1, "what was replaced is removed")
	// The last run fails while it replaces: what was there stays.
	opt.Lease = lease
	w, err := Create(path, first.schema, opt)
	require.NoError(t, err)
	w.out.(*objects).killed = func(i int) bool { return i == 1 }
	require.ErrorIs(t, first.tryWrite(w), errKilled)
	require.Equal(t, want, readRows(t, path, reader.OpenOptions{}, "k", "s"))
	var nothing table
	nothing.schema = first.schema
	require.NoError(t, write(nothing, path, Options{PartitionBy: []string{"k"}, Append: true}))
	require.Equal(t, want, readRows(t, path, reader.OpenOptions{}, "k", "s"))
	require.NoError(t, lease.Close())
}

// w2files returns the number of files that a source finds, 0 for one that has the path itself.
func w2files(t *testing.T, path string) int {
	files, err := reader.Files(t.Context(), []string{path})
	require.NoError(t, err)
	if len(files) == 1 && files[0] == path {
		return 0
	}
	return len(files)
}

// TestARunThatWasKilledLeavesTheEarlierObjects has a run that claims a folder, and ends between two of its objects.
func TestARunThatWasKilledLeavesTheEarlierObjects(t *testing.T) {
	inEachStore(t, killedLeavesTheEarlier)
}

func killedLeavesTheEarlier(t *testing.T, _ string) {
	tab := partitioned(rand.New(rand.NewPCG(1, 1)), 600, gpu.Of(gpu.Int64), 5)
	half := partitioned(rand.New(rand.NewPCG(2, 1)), 300, gpu.Of(gpu.Int64), 4)
	for _, earlier := range []bool{false, true} {
		opt := Options{Lease: hosttest.Budget(t, 0).Lease("sink"), RowsPerFile: 100, Overwrite: earlier}
		path := fmt.Sprintf("%skilled-%v", lake, earlier)
		if earlier {
			require.NoError(t, tab.replace(path, opt))
		}
		w, err := Create(path, half.schema, opt)
		require.NoError(t, err)
		for _, s := range half.strides {
			require.NoError(t, w.Write(t.Context(), s.Retain()))
		}
		o := w.out.(*objects)
		o.killed = func(i int) bool { return i == 1 }
		require.ErrorIs(t, w.Commit(t.Context()), errKilled)
		names, _ := namesOf(t, path)
		require.NotEmpty(t, names)
		if !earlier {
			_, err = reader.Files(t.Context(), []string{path})
			require.ErrorIs(t, err, os.ErrNotExist)
		} else {
			require.Equal(t, tab.rows("k"), readRows(t, path, reader.OpenOptions{}, "k"))
			require.Equal(t, tab.rows("k"), readRows(t, path+"/part-*.parquet", reader.OpenOptions{}, "k"))
		}
		w, err = Create(path, half.schema, opt)
		require.NoError(t, err)
		require.NoError(t, half.tryWrite(w))
		require.Equal(t, half.rows("k"), readRows(t, path, reader.OpenOptions{}, "k"))
		names, uploads := namesOf(t, path)
		require.Len(t, names, w2files(t, path)+1)
		require.Zero(t, uploads)
		require.NoError(t, opt.Lease.Close())
	}
}

// TestFaultsOfAStoreLeaveTheOldOrTheNewObjects writes through a proxy that breaks connections before and after the
// store has a request, refuses and delays. GSTREAM_SOAK is the number of runs.
func TestFaultsOfAStoreLeaveTheOldOrTheNewObjects(t *testing.T) { inEachStore(t, faultsLeaveOldOrNew) }

func faultsLeaveOldOrNew(t *testing.T, endpoint string) {
	old := partitioned(rand.New(rand.NewPCG(1, 1)), 300, gpu.Of(gpu.Int64), 4)
	tab := partitioned(rand.New(rand.NewPCG(2, 1)), 600, gpu.Of(gpu.Int64), 5)
	runs, _ := strconv.Atoi(os.Getenv("GSTREAM_SOAK"))
	failed, n := 0, 0
	for seed := range uint64(max(runs, 10)) {
		for name, opt := range outputsOf {
			if n++; runs == 0 && n%3 != 0 {
				continue
			}
			r := rand.New(rand.NewPCG(seed, 7))
			opt.Lease = hosttest.Budget(t, 0).Lease("sink")
			path := fmt.Sprintf("%s%d/%s", lake, seed, name)
			existing := r.IntN(2) == 0
			use(t, endpoint)
			if existing {
				require.NoError(t, old.replace(path, opt))
			}
			share := []float64{0.02, 0.1, 0.3, 0.6}[r.IntN(4)]
			faults := storetest.Random(seed, share, storetest.Cut, storetest.Refuse, storetest.Drop, storetest.Delay)
			ctx, cancel := context.WithCancel(t.Context())
			var requests atomic.Int64
			last := 1 << 30
			if r.IntN(4) == 0 {
				last = r.IntN(40)
			}
			use(t, storetest.Proxy(t, endpoint, func(q *http.Request) storetest.Fault {
				if q.Method == http.MethodDelete {
					return storetest.Delay // cleaning up is not what fails here
				}
				if requests.Add(1) == int64(last) {
					cancel()
				}
				return faults(q)
			}))
			opt.Overwrite = existing
			w, err := Create(path, tab.schema, opt)
			if err == nil {
				for _, s := range tab.strides {
					if err = w.Write(ctx, s.Retain()); err != nil {
						err = errors.Join(err, w.Abort())
						break
					}
				}
				if err == nil {
					err = w.Commit(ctx)
				}
			}
			cancel()
			require.NoError(t, opt.Lease.Close(), "seed %d of %s: %v", seed, name, err)
			use(t, endpoint)
			names, uploads := namesOf(t, path)
			what := fmt.Sprintf("seed %d of %s: %v: %v", seed, name, err, names)
			if share < 0.6 {
				require.Zero(t, uploads, what)
			}
			files, missing := reader.Files(t.Context(), []string{path})
			var rows []string
			if missing == nil {
				rows = readRows(t, path, reader.OpenOptions{}, "k", "s")
			}
			if err == nil {
				require.Equal(t, tab.rows("k", "s"), rows, what)
				continue
			}
			failed++
			// The answer to the commit may be what was lost.
			switch {
			case existing && len(rows) != 600:
				require.Equal(t, old.rows("k", "s"), rows, what)
			case len(files) > 0:
				require.Equal(t, tab.rows("k", "s"), rows, what)
			}
		}
	}
	t.Logf("%d outputs, of which %d failed", n, failed)
}
