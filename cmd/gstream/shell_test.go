package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
)

// typed runs texts in a shell, and returns what it prints.
func typed(t *testing.T, texts ...string) (stdout, stderr string) {
	t.Helper()
	var out, wrong bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	cmd.SetErr(&wrong)
	cmd.SetContext(t.Context())
	f := sqlFlags{runFlags: runFlags{left: &leftovers{}, session: &pipeline.Session{Dir: data}, joinFilters: "auto",
		device: "host", progress: "none"}, format: "csv", rows: -1}
	s := &shell{sqlFlags: &f, cmd: cmd, devices: devicePool{}}
	require.NoError(t, s.loop(func() (string, error) {
		if len(texts) == 0 {
			return "", io.EOF
		}
		text := texts[0]
		texts = texts[1:]
		return text, nil
	}))
	return out.String(), wrong.String()
}

func TestTheShellRemembersViewsAndSettings(t *testing.T) {
	out, wrong := typed(t, "CREATE VIEW n AS FROM 'nation.parquet';", "",
		"CREATE TEMP TABLE m AS SELECT count(*) AS c FROM n;",
		"SET threads = 1; FROM m;", "SELECT c + 1 AS d\nFROM m;", ".tables")
	require.Equal(t, "c\n25\nd\n26\nm\nn\n", out)
	require.Empty(t, wrong)
}

func TestTheShellGoesOnAfterAMistake(t *testing.T) {
	out, wrong := typed(t, "CREATE VIEW v AS SELECT 1 AS a;", "SELECT\nb FROM v;", "CREATE VIEW w AS SELECT b FROM v;",
		"FROM w;",
		"CREATE VIEW v AS SELECT 2 AS a;", "CREATE OR REPLACE VIEW v AS SELECT 2 AS a;", "FROM v;", ".tabels", ".timer",
		"quit;",
		"SELECT 'not read';")
	require.Equal(t, "a\n2\n", out)
	require.Equal(t, `gstream: line 2, column 1: there is no column "b"; did you mean "a"?
    b FROM v;
    ^
gstream: line 1, column 25: there is no column "b"; did you mean "a"?
    CREATE VIEW w AS SELECT b FROM v;
                            ^
gstream: line 1, column 6: there is no table "w" (did you mean "v"?); a file is a table by its path in quotes, as in FROM 'x.parquet'
    FROM w;
         ^
gstream: line 1, column 1: there is a table "v" already; CREATE OR REPLACE replaces it
    CREATE VIEW v AS SELECT 2 AS a;
    ^
gstream: there is no command .tabels; .help lists the commands
gstream: .timer takes on or off
`, wrong)
}

func TestTheShellTimes(t *testing.T) {
	out, wrong := typed(t, ".timer on", "SELECT 1 AS a;", ".timer off", "SELECT 2 AS a;", ".help")
	require.Regexp(t, `^a\n1\ntook 0\.\d+ s\na\n2\nA statement ends with a semicolon`, out)
	require.Empty(t, wrong)
}

func TestTheShellEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	s := &shell{sqlFlags: &sqlFlags{runFlags: runFlags{left: &leftovers{}}}, cmd: cmd, devices: devicePool{}}
	hangs := make(chan struct{})
	defer close(hangs)
	err := s.loop(func() (string, error) {
		cancel(io.ErrClosedPipe)
		<-hangs
		return "", io.EOF
	})
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestInputEndsWithASemicolon(t *testing.T) {
	for text, complete := range map[string]bool{"": true, " \n": true, ".help": true, "quit": true, "SELECT 1": false,
		"SELECT 1;": true, "SELECT 1; -- why": true, "SELECT ';": false, "SELECT ';'": false, "SELECT 1 /* ;": false,
		`SELECT "a;`: false, "SELECT $$;": false, "SELECT E'\\';": false, "SELECT \x01": true, "SELECT 1;\nSELECT": false} {
		require.Equal(t, complete, isInput(text), text)
	}
}

func TestTheShellCompletes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	nation, err := os.ReadFile(data + "/nation.parquet")
	require.NoError(t, err)
	for _, name := range []string{"nation.parquet", "sub/a b.parquet", ".hidden.parquet", "note.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nation, 0o644))
	}
	session := &pipeline.Session{Dir: dir}
	list, err := session.Parse("", "CREATE VIEW things AS SELECT n_name AS \"A name\", n_regionkey FROM "+
		"'nation.parquet'", nil)
	require.NoError(t, err)
	require.NoError(t, list[0].Apply(t.Context()))
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	c := &completer{shell: &shell{sqlFlags: &sqlFlags{runFlags: runFlags{session: session}}, cmd: cmd},
		columns: map[string][]string{}}
	for text, want := range map[string][]string{
		".ti":                               {".timer off", ".timer on"},
		"FROM 'n":                           {"'nation.parquet'"},
		"FROM '":                            {"'nation.parquet'", "'sub/"},
		"FROM read_parquet('sub/":           {"read_parquet('sub/a b.parquet'"},
		"FROM th":                           {"things"},
		"FROM things SELECT n_r":            {"n_regionkey"},
		"FROM things SELECT max(n_re":       {"max(n_regionkey"},
		"FROM things t SELECT t.n_":         {"t.n_regionkey"},
		"FROM things SELECT \"A":            {`"A name"`},
		"SELECT approx_":                    {"approx_count_distinct("},
		"FROM 'nation.parquet' WHERE N_NAM": {"n_name"},
		"SUMMA":                             {"SUMMARIZE"},
	} {
		words, typed := c.complete(text, "")
		require.Equal(t, want, words, text)
		for _, w := range words {
			require.Equal(t, len(typed), len(text[len(text)-len(typed):]), w)
		}
	}
	words, _ := c.complete("SELECT n_re", " FROM things;")
	require.Equal(t, []string{"n_regionkey"}, words)
}
