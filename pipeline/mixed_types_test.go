package pipeline

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

func TestAColumnOfMixedTypesRefusesTheJobsThatUseIt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.parquet")
	writeNulls(t, file)
	for name, x := range map[string]string{"in/p=1/a.parquet": "i as X", "in/p=2/b.parquet": "s as x",
		"in/p=3/c.parquet": "i as x"} {
		_, err := New("part").Read("t", file).Select(x, "i", "s").Write(filepath.Join(dir, name),
			sinkparquet.Options{}).Run(context.Background(), RunOptions{Use: Host})
		require.NoError(t, err)
	}
	read := func() *Builder { return New("mixed").Read("t", filepath.Join(dir, "in")) }
	given := New("mixed").ReadWith("t", Source{Parquet: Paths{Path(filepath.Join(dir, "in"))},
		Schema: Schema{Columns: []SchemaColumn{{Name: "i", Type: "BIGINT"}, {Name: "s", Type: "VARCHAR"}}}})
	for name, b := range map[string]*Builder{
		"other columns": read().Select("i", "s"), "a filter": read().Filter("p < 3 and i > 1").Select("i", "s"),
		"no columns":      read().Group(nil, "count(*) as n"),
		"all of a schema": given.Filter("true"), "files without it": read().Filter("p <> 2").Select("x"),
	} {
		_, err := b.WriteTo(&Collector{}).Run(context.Background(), RunOptions{Use: Host})
		require.NoError(t, err, name)
	}
	for name, b := range map[string]*Builder{"it": read().Select("x"), "all": read().Filter("i > 1"),
		"a star": read().Select("*"), "a key": read().Sort("x").Select("i")} {
		_, err := b.WriteTo(&Collector{}).Run(context.Background(), RunOptions{Use: Host})
		require.ErrorIs(t, err, ErrJob, name)
		require.ErrorContains(t, err, `(BIGINT or VARCHAR) of t cannot be read: it is BIGINT in `, name)
		require.ErrorContains(t, err, "under schema: of the source", name)
	}
}
