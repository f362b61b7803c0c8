package pipeline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/sink/staging"
)

// listed returns the files of a folder, and those that its manifest lists with the right sizes.
func listed(t *testing.T, dir string) (files, listed []string) {
	var manifest struct {
		Files []struct {
			Name  string
			Bytes int64
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, staging.LockName))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &manifest))
	for _, f := range manifest.Files {
		info, err := os.Stat(filepath.Join(dir, f.Name))
		require.NoError(t, err)
		require.Equal(t, f.Bytes, info.Size(), f.Name)
		listed = append(listed, f.Name)
	}
	all, _ := tree(t, dir)
	for name := range all {
		if name != staging.LockName {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files, listed
}

// days writes rows of some days into a folder. n is in all rows.
func days(path, where, n string, opt ParquetOptions) *Builder {
	opt.PartitionBy = []string{"day"}
	return New("days").SQL("select k % 4 as day, k, "+n+" as n from range(40) t(k) where "+where).
		Write(path, opt)
}

func sumsByDay(t *testing.T, path string) []string {
	out := &Collector{}
	_, err := New("sums").SQL("select day || ': ' || count(*) || ' rows, n = ' || min(n) || ' to ' || max(n) as s "+
		"from '"+path+"' group by day order by day").WriteTo(out).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	return textOf(out)
}

func TestAppendAndOverwritePartitions(t *testing.T) {
	onBothDevices(t, func(t *testing.T, opt RunOptions) {
		dir := filepath.Join(t.TempDir(), "days")
		run := func(b *Builder) {
			t.Helper()
			_, err := b.Run(t.Context(), opt)
			require.NoError(t, err)
			files, listed := listed(t, dir)
			require.Equal(t, files, listed, "the manifest is true")
		}
		add, replace := ParquetOptions{Append: true}, ParquetOptions{OverwritePartitions: true}
		run(days(dir, "k < 0", "1", add))
		files, _ := listed(t, dir)
		require.Equal(t, []string{"part-00000.parquet"}, files, "an output without rows")
		run(days(dir, "day < 2", "1", add))
		run(days(dir, "day < 1", "2", add))
		files, _ = listed(t, dir)
		require.Equal(t, []string{"day=0/part-00000.parquet", "day=0/part-00001.parquet", "day=1/part-00000.parquet"},
			files)
		require.Equal(t, []string{"0: 20 rows, n = 1 to 2", "1: 10 rows, n = 1 to 1"}, sumsByDay(t, dir))
		run(days(dir, "k < 0", "3", add))
		run(days(dir, "k < 0", "3", replace))
		run(days(dir, "day in (1, 3) and k > 20", "3", replace))
		want := []string{"0: 20 rows, n = 1 to 2", "1: 5 rows, n = 3 to 3", "3: 5 rows, n = 3 to 3"}
		require.Equal(t, want, sumsByDay(t, dir))
		run(days(dir, "day = 1", "4", ParquetOptions{Overwrite: true}))
		require.Equal(t, []string{"1: 10 rows, n = 4 to 4"}, sumsByDay(t, dir))
	})
}

func TestFoldersAreNotMixedUp(t *testing.T) {
	t.Chdir(t.TempDir())
	fails := func(b *Builder, want string) {
		t.Helper()
		before, _ := tree(t, ".")
		_, err := b.Run(t.Context(), RunOptions{Use: Host})
		require.ErrorContains(t, err, want)
		after, hidden := tree(t, ".")
		require.Equal(t, before, after)
		require.Empty(t, hidden)
	}
	works := func(b *Builder) {
		t.Helper()
		_, err := b.Run(t.Context(), RunOptions{Use: Host})
		require.NoError(t, err)
	}
	add, replace := ParquetOptions{Append: true}, ParquetOptions{OverwritePartitions: true}
	works(days("days", "true", "1", add))
	plain := func(path string, opt ParquetOptions) *Builder {
		return New("plain").SQL("select 1 as x").Write(path, opt)
	}
	fails(plain("days/", add), "its files are in folders by day, and the new ones would be by no columns")
	fails(plain("x.parquet", add), "nothing is added to a file")
	fails(plain("x/", ParquetOptions{Append: true, Overwrite: true}), "append and overwrite exclude each other")
	fails(plain("x/", replace), "overwrite: partitions needs partition_by")
	fails(days("days", "true", "1", ParquetOptions{}), "file already exists")
	works(plain("plain/", add))
	works(plain("plain/", add))
	fails(days("plain", "true", "1", replace), "its files are in folders by no columns")
	require.EqualValues(t, 2, rowsIn(t, "plain"))

	require.NoError(t, os.WriteFile("days/day=1/mine.txt", nil, 0o666))
	fails(days("days", "day < 2", "2", replace), "day=1/mine.txt")
	works(days("days", "day <> 1", "2", replace))
	works(days("days", "day = 1", "2", add))
	require.FileExists(t, "days/day=1/mine.txt")

	locked, err := os.Open("days/" + staging.LockName)
	require.NoError(t, err)
	require.NoError(t, staging.Lock(locked))
	fails(days("days", "day = 2", "2", add), "is being written by another process")
	require.NoError(t, locked.Close())
}

func TestFoldersOfOthersAreCompactedInPlace(t *testing.T) {
	t.Chdir(t.TempDir())
	names := []string{"part-0-c000.snappy.parquet", "part-1-c000.snappy.parquet"}
	for _, folder := range []string{"days/day=0", "days/day=1", "days/2026/x"} {
		for _, name := range names {
			_, err := New("x").SQL("select k from range(10) t(k)").Write(filepath.Join(folder, name), ParquetOptions{}).
				Run(t.Context(), RunOptions{Use: Host})
			require.NoError(t, err)
		}
	}
	require.NoError(t, os.Rename("days/2026", "2026"))
	require.NoError(t, os.WriteFile("days/_SUCCESS", nil, 0o666))
	require.NoError(t, os.WriteFile("days/day=1/."+names[0]+".crc", nil, 0o666))
	compact := func(from, where string, opt ParquetOptions) error {
		opt.PartitionBy = []string{"day"}
		_, err := New("compact").Read("days", from).Filter(where).Write("days", opt).
			Run(t.Context(), RunOptions{Use: Host})
		return err
	}
	require.ErrorContains(t, compact("days", "true", ParquetOptions{Overwrite: true}), "is a folder without the file")
	sources := ParquetOptions{Overwrite: true, OverwriteSources: true}
	require.ErrorContains(t, compact("days", "day = 1", sources), "day=0", "this file was not read")
	require.ErrorContains(t, compact("days/*/"+names[0], "true", sources), names[1])
	require.NoError(t, compact("days", "day = 1", ParquetOptions{OverwritePartitions: true}))
	require.EqualValues(t, 40, rowsIn(t, "days"))
	files, listed := listed(t, "days")
	require.Equal(t, []string{"_SUCCESS", "day=0/" + names[0], "day=0/" + names[1], "day=1/part-00000.parquet"}, files)
	require.Equal(t, files[3:], listed)
	require.NoError(t, compact("days", "true", sources))
	all, hidden := tree(t, ".")
	require.Empty(t, hidden)
	require.Len(t, all, 2+3, "the folders have the manifest and two files")
	require.EqualValues(t, 40, rowsIn(t, "days"))

	// Folders without columns in their names.
	_, err := New("compact").Read("t", "2026").Write("2026/", sources).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.EqualValues(t, 20, rowsIn(t, "2026"))
	require.NoDirExists(t, "2026/x")
}
