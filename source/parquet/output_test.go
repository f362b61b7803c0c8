package parquet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASourceThatIncludesTheOutputIsRefused(t *testing.T) {
	dir := tree(t, "in/a.parquet", "in/sub/b.parquet", "in/_k=1/c.parquet", "link -> in", "other/d.parquet",
		"other/link.parquet -> ../in/a.parquet", "other/part -> ../in/sub",
		"elsewhere -> other")
	t.Chdir(dir)
	file := func(path string) *Output { return &Output{Path: path} }
	folder := func(path string, keys ...string) *Output {
		return &Output{Path: path, Folder: true, PartitionBy: keys}
	}
	for _, c := range []struct {
		output   *Output
		included string // sources
		others   string
	}{
		{file("in/out.parquet"),
			"in . link " + dir + " */*.parquet in/*.parquet **/*.parquet in/** * lin* link/*.parquet in/o*.parquet",
			"in/a.parquet other in/sub in/_k=1 in/a*.parquet **/a.parquet */*/*.parquet"},
		{file(dir + "/link/out.parquet"), "in . link */*.parquet", "other in/sub"},
		{file("in/new/deeper/out.parquet"), "in . **/*.parquet */*/*/*.parquet", "in/*.parquet in/sub other"},
		// a link to it
		{file("in/a.parquet"), "in . */*.parquet other other/*.parquet",
			"in/sub in/a.parquet link/a.parquet other/link.parquet"},
		{file("in/sub/b.parquet"), "in . **/*.parquet other/*/*.parquet */part/*.parquet", "other in/a.parquet"},
		{file("in/out.pq"), "in/*", "in . in/*.parquet"},
		{file("in/_out.parquet"), "in/*.parquet", "in ."}, // hidden in a folder only
		{file("in/.out.parquet"), "in/.*.parquet", "in . in/*"},
		{file("in/_k=1/out.parquet"), "in in/_k=1 in/*/*.parquet", "in/sub in/*.parquet"},
		{folder("in/out"), "in . in/*/*.parquet in/** in/*", "in/*.parquet in/out in/out/*.parquet in/out/** other"},
		{folder("in/sub"), "in . in/** other/*", "in/sub in/sub/b.parquet link/sub link/sub/*.parquet"},
		{folder("in/_out"), "in/** in/*/*.parquet", "in"},
		{folder("in/_out", "k"), "in/** in/*/k=1/*.parquet in/_out*/*/*.parquet",
			"in in/*/*.parquet in/*/j=1/*.parquet"},
		{folder("in/j=1", "k"), "in in/** in/*/*/*.parquet", "in/*.parquet in/j=1 in/j=2*/*/*"},
		{folder("other/sub"), "other other/** . elsewhere", "in link elsewhere/link.parquet"},
	} {
		for _, path := range strings.Fields(c.included) {
			_, err := expand([]string{"in/a.parquet", path}, OpenOptions{Outputs: []*Output{c.output}})
			require.ErrorIs(t, err, ErrOutput, "%s with %v", path, OpenOptions{Outputs: []*Output{c.output}})
			require.ErrorContains(t, err, path+": ")
			require.ErrorContains(t, err, c.output.Path)
		}
		for _, path := range strings.Fields(c.others) {
			_, err := expand([]string{path}, OpenOptions{Outputs: []*Output{c.output}})
			if err != nil {
				require.ErrorIs(t, err, os.ErrNotExist, "%s with %v", path, OpenOptions{Outputs: []*Output{c.output}})
			}
		}
	}
	// What is refused is what would be read.
	for output, c := range map[string]string{
		"in/out.parquet":            "in . link */*.parquet * lin* link/*.parquet **/*.parquet",
		"in/out/part-00000.parquet": "in . in/*/*.parquet in/** in/*",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(output), 0o777))
		require.NoError(t, os.WriteFile(output, nil, 0o666))
		for _, path := range strings.Fields(c) {
			files, err := Files(t.Context(), []string{path})
			require.NoError(t, err)
			require.Condition(t, func() bool {
				for _, f := range files {
					if strings.HasSuffix(f, strings.TrimPrefix(output, "in")) {
						return true
					}
				}
				return false
			}, "%s reads %v", path, files)
		}
	}
}
