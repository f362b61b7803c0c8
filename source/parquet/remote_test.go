package parquet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/source/store/storetest"
)

// bucket is the address of the bucket of these tests.
const bucket = "s3://" + storetest.Bucket + "/"

// TestPatternsAndFoldersNameTheSameObjectsAsFiles compares an object store with the folder that it serves.
func TestPatternsAndFoldersNameTheSameObjectsAsFiles(t *testing.T) {
	var names []string
	for _, n := range globTree {
		if !strings.Contains(n, " -> ") {
			names = append(names, n)
		}
	}
	dir := tree(t, append(names, "a-b/1.parquet", "a/1.parquet.d/x.parquet", "y=2024/m=1/_k=2/p.parquet",
		"y=2024/m=1/_k/q.parquet", "é ?+&.parquet", "with space/a%20b.parquet")...)
	storetest.Use(t, storetest.Folder(t, dir))
	for _, pattern := range []string{
		"*.parquet", "**/*.parquet", "a/**", "a/**/*.parquet", "**/b/*.parquet", "**/b/**/*.parquet", "**/**/c/*",
		"a**/*.parquet", "*/e*.parquet", ".*.parquet", ".hid/*.parquet", ".hid", "_und", "[a-z]?.parquet", "ext",
		"a/x[1].parquet", "a/x[[]1].parquet", "t1.parquet", "d*", "y=*", "y=2024/**/*.parquet", "y=2024", "*", "**",
		"é*", "ext/", "a", "with space/*", "none", "none*", "none/*.parquet", "a/[x", "a/1.parquet", "",
	} {
		want, wrong := Files(t.Context(), []string{filepath.Join(dir, pattern)})
		for i := range want {
			rel, err := filepath.Rel(dir, want[i])
			require.NoError(t, err)
			want[i] = bucket + rel
		}
		l, err := expand([]string{bucket + pattern}, OpenOptions{})
		if wrong != nil {
			require.Error(t, err, pattern)
			require.ErrorContains(t, err, bucket+pattern)
			require.Equal(t, errors.Is(wrong, os.ErrNotExist), errors.Is(err, os.ErrNotExist), "%s: %v", pattern, err)
			continue
		}
		require.NoError(t, err, pattern)
		require.Equal(t, want, l.Paths, pattern)
		for _, path := range l.Paths {
			now, err := store.Stat(t.Context(), path)
			require.NoError(t, err)
			require.Equal(t, now, l.versions[path])
		}
	}
}

// remotePaths are addresses of test data, and the files that they stand for.
func remotePaths(endpoint string) map[string]string {
	web := endpoint + "/web/"
	return map[string]string{
		bucket + "types.parquet": "types.parquet", bucket + "enc*.parquet": "enc*.parquet",
		bucket + "page-index.parquet":                "page-index.parquet",
		web + "bloom.parquet?X-Amz-Signature=5ec7e7": "bloom.parquet",
	}
}

// columnsOf are the options of a scan of all columns.
func columnsOf(table *Table) (opt source.ScanOptions) {
	for i := range table.Schema().Fields {
		opt.Columns = append(opt.Columns, i)
	}
	return opt
}

// readTable reads all columns of a table.
func readTable(t *testing.T, paths []string) (content, error) {
	table, err := Open(paths, OpenOptions{Context: t.Context()})
	if err != nil {
		return content{}, err
	}
	opt := columnsOf(table)
	opt.StrideRows = 1000
	opt.Lease = hosttest.Budget(t, 0).Lease("scan")
	defer func() { require.NoError(t, opt.Lease.Close()) }()
	return readAll(table, opt)
}

// TestRowsOfAStoreAreThoseOfItsFiles reads through a proxy with faults, from versitygw if it is there.
func TestRowsOfAStoreAreThoseOfItsFiles(t *testing.T) {
	for name, start := range map[string]func(testing.TB, string) string{"folder": storetest.Folder,
		"versitygw": storetest.Gateway} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { goleak.VerifyNone(t, exceptDevice) })
			endpoint := start(t, "testdata")
			for seed := range uint64(3) {
				if name == "versitygw" && seed != 1 {
					continue
				}
				var faults []storetest.Fault
				switch seed {
				case 1:
					faults = []storetest.Fault{storetest.Cut, storetest.Refuse, storetest.Delay, storetest.Lie,
						storetest.Unranged}
				case 2:
					faults = []storetest.Fault{storetest.NewETag}
				}
				proxy := storetest.Proxy(t, endpoint, func(r *http.Request) storetest.Fault { return storetest.None })
				if len(faults) > 0 {
					proxy = storetest.Proxy(t, endpoint, storetest.Random(seed, 0.3, faults...))
				}
				storetest.Use(t, proxy)
				for path, file := range remotePaths(proxy) {
					if name == "versitygw" && strings.HasPrefix(path, "http") {
						continue
					}
					files, err := Files(t.Context(), []string{filepath.Join("testdata", file)})
					require.NoError(t, err)
					want, err := readTable(t, files)
					require.NoError(t, err)
					got, err := readTable(t, []string{path})
					if seed == 2 && err != nil {
						require.ErrorIs(t, err, source.ErrChanged)
						continue
					}
					require.NoError(t, err, path)
					require.Equal(t, want, got, path)
				}
			}
		})
	}
}

// TestACancelledScanOfAStoreEndsAtOnce has a store that answers no more.
func TestACancelledScanOfAStoreEndsAtOnce(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t, exceptDevice) })
	endpoint := storetest.Folder(t, "testdata")
	stopped := make(chan struct{})
	var stop bool
	proxy := storetest.Proxy(t, endpoint, func(r *http.Request) storetest.Fault {
		if stop {
			select {
			case <-stopped:
			case <-r.Context().Done():
			}
		}
		return storetest.None
	})
	storetest.Use(t, proxy)
	table, err := Open([]string{bucket + "types.parquet"}, OpenOptions{})
	require.NoError(t, err)
	stop = true
	defer close(stopped)
	for _, end := range []string{"the scan", "the reader"} {
		opt := columnsOf(table)
		opt.Lease = hosttest.Budget(t, 0).Lease("scan")
		ctx, cancel := context.WithCancel(t.Context())
		r, err := table.Scan(ctx, opt)
		require.NoError(t, err)
		begin := time.Now()
		time.AfterFunc(20*time.Millisecond, func() {
			if end == "the scan" {
				cancel()
			} else {
				r.Close()
			}
		})
		_, err = r.Read(t.Context())
		require.Error(t, err)
		require.NoError(t, r.Close())
		require.Less(t, time.Since(begin), 2*time.Second, end)
		require.NoError(t, opt.Lease.Close())
		cancel()
	}
}

func TestASnapshotOfAStoreIsOpenedInItsVersion(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "x.parquet"), b, 0o666))
	}
	write("types.parquet")
	endpoint := storetest.Folder(t, dir)
	storetest.Use(t, endpoint)
	for _, path := range []string{bucket + "x.parquet", endpoint + "/web/x.parquet"} {
		write("types.parquet")
		table, err := Open([]string{path}, OpenOptions{})
		require.NoError(t, err)
		s, err := table.Snapshot()
		require.NoError(t, err)
		again, err := s.Open()
		require.NoError(t, err)
		require.Equal(t, table.Rows(), again.Rows())
		write("bloom.parquet")
		_, err = s.Open()
		require.ErrorIs(t, err, source.ErrChanged)
	}
	table, err := Open([]string{endpoint + "/web/x.parquet?X-Amz-Signature=5ec7e7"}, OpenOptions{})
	require.NoError(t, err)
	require.NotContains(t, table.Describe(), "5ec7e7")
	_, err = table.Snapshot()
	require.ErrorContains(t, err, "has a query, which may be a key")
	require.NotContains(t, err.Error(), "5ec7e7")
}

// TestObjectsAreReadAtEveryMemoryLimit compares the rows of objects with those of files: with the least memory of a
// scan, in which nothing is read ahead, and with more.
func TestObjectsAreReadAtEveryMemoryLimit(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Cleanup(func() { goleak.VerifyNone(t, exceptDevice) })
	for _, dir := range []string{"testdata", filepath.Join("..", "..", "examples", "quickstart", "data")} {
		storetest.Use(t, storetest.Folder(t, dir))
		files, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
		require.NoError(t, err)
		for n, file := range files {
			if !gputest.Takes(gputest.ThinOr(t, 5), n) {
				continue
			}
			object := bucket + filepath.Base(file)
			table, opt := everyColumn(t, object)
			opt.StrideRows = []int{50, 1000, 0}[n%3]
			if table.Rows() > 10_000 {
				opt.StrideRows = 0
			}
			least := table.LeastMemory(opt)
			opt.Columns = nil
			want, _, err := scanOnce(t, 0, []string{file}, opt)
			require.NoError(t, err)
			for _, limit := range []int64{0, least, least * 5 / 4, 4 * least} {
				got, _, err := scanOnce(t, limit, []string{object}, opt)
				require.NoError(t, err, "%s with %d bytes", object, limit)
				requireSame(t, want, got)
			}
		}
	}
}

func TestADeviceReadsObjects(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("no device decodes pages")
	}
	storetest.Use(t, storetest.Folder(t, "testdata"))
	opt := source.ScanOptions{StrideRows: 1000, Decode: source.DecodeOptions{Pages: true}}
	want, _, err := scanOnce(t, 0, []string{"testdata/statistics.parquet"}, opt)
	require.NoError(t, err)
	got, _, err := scanOnce(t, 0, []string{bucket + "statistics.parquet"}, opt)
	require.NoError(t, err)
	requireSame(t, want, got)
}

// TestColumnChunksThatLieTogetherAreReadByOneRequest counts requests, and how many run at the same time.
func TestColumnChunksThatLieTogetherAreReadByOneRequest(t *testing.T) {
	dir := filepath.Join("..", "..", "examples", "quickstart", "data")
	var requests, running, most atomic.Int64
	endpoint := storetest.Proxy(t, storetest.Folder(t, dir), func(r *http.Request) storetest.Fault {
		requests.Add(1)
		now := running.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		time.Sleep(20 * time.Millisecond)
		running.Add(-1)
		return storetest.None
	})
	storetest.Use(t, endpoint)
	object := bucket + "lineitem.parquet"
	table, opt := everyColumn(t, object)
	groups := len(table.files[0].groups)
	opened := requests.Swap(0)
	opt.Lease = hosttest.Budget(t, 0).Lease("scan")
	opt.Decode.Threads = 1
	_, err := readAll(table, opt)
	require.NoError(t, err)
	require.NoError(t, opt.Lease.Close())
	require.LessOrEqual(t, opened, int64(4))
	require.LessOrEqual(t, requests.Load(), int64(2*groups), "%d row groups of %d columns", groups, len(opt.Columns))
	require.GreaterOrEqual(t, most.Load(), int64(min(groups, 2)))
}

// TestMetadataOfObjectsTakesFewRequests counts those for the footer, and for a Bloom filter. A server that claims a
// footer of gigabytes gets no memory for it.
func TestMetadataOfObjectsTakesFewRequests(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(filepath.Join("testdata", "bloom.parquet"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bloom.parquet"), b, 0o666))
	var requests atomic.Int64
	storetest.Use(t, storetest.Proxy(t, storetest.Folder(t, dir), func(*http.Request) storetest.Fault {
		requests.Add(1)
		return storetest.None
	}))
	table, err := Open([]string{bucket + "bloom.parquet"}, OpenOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, requests.Swap(0), "one finds the object, and one reads its last bytes")
	for _, g := range table.files[0].groups {
		for _, c := range g.chunks {
			if c.bloom.size > 0 {
				_, err := table.files[0].someInBloom(t.Context(), c.bloom, make([]uint64, 100))
				require.NoError(t, err)
				require.EqualValues(t, 1, requests.Swap(0))
			}
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const size = 1 << 40
		var from, to int64
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, size))
		if to-from < 1<<20 {
			w.WriteHeader(http.StatusPartialContent)
			end := make([]byte, to-from+1)
			if to == size-1 {
				copy(end[len(end)-8:], "\xff\xff\xff\xffPAR1")
			}
			_, _ = w.Write(end)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Open([]string{server.URL}, OpenOptions{})
	require.ErrorContains(t, err, "403 Forbidden")
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}
