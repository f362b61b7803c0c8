package syntax

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// statementCase is a line of testdata/statements.txt.
type statementCase struct {
	section, text, mistake string
}

func statementCases(t testing.TB) (cases []statementCase) {
	data, err := os.ReadFile("testdata/statements.txt")
	require.NoError(t, err)
	section := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "== "):
			section = line[3:]
		case line != "" && section != "":
			text, mistake, _ := strings.Cut(line, " ## ")
			cases = append(cases, statementCase{section, strings.ReplaceAll(text, `\n`, "\n"), mistake})
		}
	}
	require.Greater(t, len(cases), 800)
	return cases
}

// TestStatements parses the texts of testdata/statements.txt. The printed form of each tree has the same tree.
func TestStatements(t *testing.T) {
	for _, c := range statementCases(t) {
		statements, err := ParseStatements(c.text)
		if c.section != "accepted" {
			var mistake *Error
			require.ErrorAs(t, err, &mistake, c.text)
			require.NotEmpty(t, c.mistake, c.text)
			require.Contains(t, mistake.Msg, c.mistake, c.text)
			continue
		}
		require.NoError(t, err, c.text)
		requireReparsed(t, statements)
	}
}

// requireReparsed parses the printed form of statements and compares the trees.
func requireReparsed(t *testing.T, statements []Statement) {
	t.Helper()
	var printed strings.Builder
	for _, s := range statements {
		printed.WriteString(s.String() + ";\n")
	}
	again, err := ParseStatements(printed.String())
	require.NoError(t, err, printed.String())
	if difference := treesDiffer(reflect.ValueOf(statements), reflect.ValueOf(again)); difference != "" {
		t.Fatalf("%s\ndiffers after it is parsed again: %s", printed.String(), difference)
	}
}

// treesDiffer returns where two trees differ, apart from positions and texts, or "".
func treesDiffer(a, b reflect.Value) string {
	switch a.Kind() {
	case reflect.Interface, reflect.Pointer:
		if a.IsNil() || b.IsNil() || a.Elem().Type() != b.Elem().Type() {
			if a.IsNil() && b.IsNil() {
				return ""
			}
			return "a node"
		}
		return treesDiffer(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != b.Len() {
			return "a length"
		}
		for i := range a.Len() {
			if d := treesDiffer(a.Index(i), b.Index(i)); d != "" {
				return d
			}
		}
	case reflect.Array:
		for i := range a.Len() {
			if d := treesDiffer(a.Index(i), b.Index(i)); d != "" {
				return d
			}
		}
	case reflect.Struct:
		if a.Type() == reflect.TypeFor[Base]() {
			return ""
		}
		for i := range a.NumField() {
			name := a.Type().Field(i).Name
			if name == "at" || name == "Text" && a.Type() == reflect.TypeFor[StarColumn]() {
				continue
			}
			if d := treesDiffer(a.Field(i), b.Field(i)); d != "" {
				return a.Type().Name() + "." + name + ": " + d
			}
		}
	default:
		if !a.Equal(b) {
			return "a value"
		}
	}
	return ""
}

// TestDuckDBParsesTheSameStatements needs a Python with duckdb, which GSTREAM_PYTHON names.
func TestDuckDBParsesTheSameStatements(t *testing.T) {
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb")
	}
	cases := statementCases(t)
	var texts []string
	for _, c := range cases {
		texts = append(texts, c.text)
		if c.section == "accepted" { // DuckDB also reads what is printed
			statements, err := ParseStatements(c.text)
			require.NoError(t, err)
			var printed []string
			for _, s := range statements {
				printed = append(printed, s.String())
			}
			texts = append(texts, strings.Join(printed, "; "))
		}
	}
	in, err := json.Marshal(texts)
	require.NoError(t, err)
	cmd := exec.Command(python, "-c", `
import duckdb, json, sys
con = duckdb.connect()
def mistake(text):
    try:
        con.extract_statements(text)
        return ""
    except duckdb.Error as e:
        return str(e)
json.dump([mistake(text) for text in json.load(sys.stdin)], sys.stdout)`)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(in)), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var mistakes []string
	require.NoError(t, json.Unmarshal(out, &mistakes))
	require.Len(t, mistakes, len(texts))
	for _, c := range cases {
		if c.section == "mistakes" {
			require.NotEmpty(t, mistakes[0], "DuckDB accepts %s", c.text)
		} else {
			require.Empty(t, mistakes[0], c.text)
		}
		mistakes = mistakes[1:]
		if c.section == "accepted" {
			require.Empty(t, mistakes[0], "the printed form of %s", c.text)
			mistakes = mistakes[1:]
		}
	}
}
