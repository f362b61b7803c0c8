package pipeline

import (
	"bytes"
	"context"
	"encoding/base64"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	sourcearrow "github.com/gstream/gstream/source/arrow"
)

func TestMetadataGoesOnWithTheColumnsThatItDescribes(t *testing.T) {
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb and pyarrow")
	}
	dir := t.TempDir()
	out, err := exec.Command(python, "testdata/metadata.py", "write", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	read := func() *Builder {
		return New("metadata").Read("t", filepath.Join(dir, "in.parquet")).Read("d", filepath.Join(dir, "dim.parquet"))
	}
	for name, c := range map[string]struct {
		job *Builder
		opt sinkparquet.Options
	}{
		"copy":     {job: New("copy").Read("t", filepath.Join(dir, "in.parquet"))},
		"filter":   {job: read().Filter("i > 1").Sort("i")},
		"select":   {job: read().Select("i", "geom as shape", "key")},
		"second":   {job: read().Select("other", "i + 1 as i")},
		"computed": {job: read().Select("i + 1 as i", "geom || other as geom")},
		"order":    {job: read().Select("c", "t", "i", "geom", "other", "key")},
		"joined": {job: read().Join("d", "t.i = d.k").Select("i", "v", "t"),
			opt: sinkparquet.Options{Metadata: map[string]string{"mine": "yes"}}},
		"zones-out": {job: New("zones").Read("z", filepath.Join(dir, "zones.parquet")).Select("i * 2 as twice", "i",
			"t as moment", "s", "l", "b", "plain", "u", "t")},
		"given": {job: New("given").Read("t", filepath.Join(dir, "in.parquet")),
			opt: sinkparquet.Options{Metadata: map[string]string{"author": "you", "run": "2"}}},
	} {
		_, err := c.job.Write(filepath.Join(dir, name+".parquet"), c.opt).Run(context.Background(),
			RunOptions{Use: Host})
		require.NoError(t, err, name)
	}
	_, err = read().Select("*", "i % 2 + 1 as k").Write(filepath.Join(dir, "parts"),
		sinkparquet.Options{PartitionBy: []string{"k"}}).Run(context.Background(), RunOptions{Use: Host})
	require.NoError(t, err)
	out, err = exec.Command(python, "testdata/metadata.py", "check", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestMetadataOfAnyTextIsHarmless(t *testing.T) {
	c := carried{from: []string{"a"}, to: map[string][]string{"a": {"a", "b"}}}
	for _, text := range []string{"", "null", "[]", "{", "1", `{"columns": 1}`, `{"columns": []}`,
		`{"columns": {"x": {}}}`, `{"columns": [null, 1, {"name": 1}]}`, strings.Repeat("[", 100000),
		strings.Repeat(`{"columns":`, 20000)} {
		require.Empty(t, c.geo(text), "%.30s", text)
		require.Empty(t, c.pandas(text), "%.30s", text)
	}
	require.JSONEq(t, `{"columns": {"a": 1, "b": 1}, "primary_column": "a", "n": 12345678901234567890}`,
		c.geo(`{"columns": {"a": 1}, "primary_column": 7, "n": 12345678901234567890}`))
	require.JSONEq(t, `{"columns": [{"name": "a"}], "index_columns": []}`,
		c.pandas(`{"columns": [{"name": "a"}, {"name": "b"}], "index_columns": ["b", {"kind": "range"}, 3]}`))
}

func TestAnArrowSchemaOfAnyTextIsHarmless(t *testing.T) {
	one := ArrowSchema(gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.TimestampOf(gpu.Microsecond, true)},
		gpu.Field{Name: "b", Type: gpu.Of(gpu.String)}))
	var b bytes.Buffer
	require.NoError(t, ipc.NewWriter(&b, ipc.WithSchema(one)).Close())
	good := b.Bytes()
	require.Len(t, sourcearrow.DecodeSchema(base64.StdEncoding.EncodeToString(good)), 2)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		bad := bytes.Clone(good)
		for range 1 + r.IntN(3) {
			bad[r.IntN(len(bad))] = byte(r.IntN(256))
		}
		sourcearrow.DecodeSchema(base64.StdEncoding.EncodeToString(bad[:r.IntN(len(bad)+1)]))
	}
	for _, text := range []string{"", "?", "AAAA", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xFF}, 100))} {
		require.Nil(t, sourcearrow.DecodeSchema(text))
	}
}

func TestAJobFileSetsMetadata(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t,
		os.WriteFile(path,
			[]byte("vars: {day: x}\nsources: {t: t.parquet}\noutput: {parquet: o.parquet, metadata: {author: me, "+
				"day: '${day}', \"a b\": 3}}\n"), 0o666))
	j, err := Load(path, LoadOptions{Set: map[string]string{"day": "2026-01-02"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"author": "me", "day": "2026-01-02", "a b": "3"}, j.Output.Metadata)
	bad := sinkparquet.Options{Metadata: map[string]string{"": "x", "k": "\xff"}}
	bad.EnsureDefaults()
	require.ErrorContains(t, bad.Validate(), `metadata "": a key is a text`)
	require.ErrorContains(t, bad.Validate(), `metadata "k"`)
}
