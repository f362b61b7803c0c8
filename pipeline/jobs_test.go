package pipeline

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
)

var update = flag.Bool("update", false, "write what the tests see into testdata")

// TestFaultsOfJobFiles compares the faults of every testdata/jobs/*.yaml with the .txt
// next to it. -update writes them.
func TestFaultsOfJobFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/jobs/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			job, err := Load(file, LoadOptions{Set: map[string]string{},
				LookupEnv: func(string) (string, bool) { return "", false }})
			if err == nil {
				var p *Plan
				if p, err = NewPlan(job); err == nil {
					p.Close()
				}
			}
			require.Error(t, err)
			var faults Diagnostics
			require.True(t, errors.As(err, &faults), "%v", err)
			want := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(err.Error()+"\n"), 0o644))
			}
			text, readErr := os.ReadFile(want)
			require.NoError(t, readErr)
			assert.Equal(t, string(text), err.Error()+"\n")
		})
	}
}

func FuzzJob(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range append(files, "job/testdata/small.yaml") {
		if src, err := os.ReadFile(file); err == nil {
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		job, err := Parse("job.yaml", src, LoadOptions{LookupEnv: func(string) (string, bool) { return "", false }})
		if err != nil {
			require.ErrorIs(t, err, ErrJob)
			return
		}
		// Fuzzed paths must not touch the machine, so the test provides the tables.
		own := map[string]source.Table{}
		for name := range job.Sources {
			own[name] = emptyTable(t)
		}
		p, err := newPlan(t.Context(), job, own, nil)
		var output *fs.PathError // a fuzzed name may be a folder
		if err != nil {
			require.True(t, errors.Is(err, ErrJob) || errors.As(err, &output), "%v", err)
			return
		}
		require.NotEmpty(t, p.Explain("host").String())
		require.NoError(t, p.Close())
	})
}

// emptyTable has the columns of the fuzzed jobs and no rows.
func emptyTable(t *testing.T) source.Table {
	var fields []arrow.Field
	for i, typ := range []arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32,
		&arrow.Decimal128Type{Precision: 15, Scale: 2}, arrow.BinaryTypes.String, arrow.FixedWidthTypes.Date32} {
		fields = append(fields, arrow.Field{Name: string(rune('a' + i)), Type: typ, Nullable: true})
	}
	table, err := ArrowTable(arrow.NewSchema(fields, nil))
	require.NoError(t, err)
	return table
}
