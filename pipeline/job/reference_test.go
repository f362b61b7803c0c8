package job

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateReference = flag.Bool("update", false, "write docs/job-file.md")

const referenceFile = "../../docs/job-file.md"

// reference returns the tables of docs/job-file.md, made from the struct tags of Job.
func reference() string {
	var b strings.Builder
	for _, s := range []struct {
		title string
		typ   reflect.Type
	}{
		{"The job", reflect.TypeFor[Job]()},
		{"vars: a variable", reflect.TypeFor[Var]()},
		{"memory", reflect.TypeFor[Memory]()},
		{"spill", reflect.TypeFor[Spill]()},
		{"sources: a source", reflect.TypeFor[Source]()},
		{"steps: a step", reflect.TypeFor[Step]()},
		{"expect: an expectation", reflect.TypeFor[Expectation]()},
		{"rows", reflect.TypeFor[RowBounds]()},
		{"join", reflect.TypeFor[Join]()},
		{"group", reflect.TypeFor[Group]()},
		{"limit", reflect.TypeFor[Limit]()},
		{"output, outputs: an output", reflect.TypeFor[Output]()},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| key | value | |\n|---|---|---|\n", s.title)
		for _, f := range structFields(s.typ) {
			notes := f.doc
			if f.enum != nil {
				notes += " One of `" + strings.Join(f.enum, "`, `") + "`."
			}
			if f.def != "" {
				notes += " Default `" + f.def + "`."
			}
			if f.required {
				notes += " Required."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, valueName(f.typ), strings.ReplaceAll(notes, "|", `\|`))
		}
	}
	return b.String()
}

// valueName describes the values of a type in a job file.
func valueName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Path]():
		return "path"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Columns]():
		return "columns"
	case reflect.TypeFor[Values]():
		return "list: text"
	case reflect.TypeFor[RowBounds]():
		return "rows"
	case reflect.TypeFor[ColumnTypes]():
		return "types by name"
	case reflect.TypeFor[Partitions]():
		return "`auto`, `none` or types by name"
	case reflect.TypeFor[Schema]():
		return "`unify`, `strict` or types by name"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return valueName(t.Elem())
	case reflect.Struct:
		return strings.ToLower(t.Name())
	case reflect.Map:
		return valueName(t.Elem()) + " by name"
	case reflect.Slice:
		return "list: " + valueName(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	}
	return "number"
}

// TestReferenceDescribesEveryKey compares docs/job-file.md with the structure of job
// files. -update writes it.
func TestReferenceDescribesEveryKey(t *testing.T) {
	text, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	const begin = "<!-- The tables below are written by go test ./pipeline/job -run Reference -update. -->\n"
	const end = "\n<!-- End of the tables. -->\n"
	head, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "the comment before the tables is gone")
	got, tail, ok := strings.Cut(rest, end)
	require.True(t, ok, "the comment after the tables is gone")
	want := reference()
	if *updateReference {
		require.NoError(t, os.WriteFile(referenceFile, []byte(head+begin+want+end+tail), 0o644))
		got = want
	}
	assert.Equal(t, want, got)
	assert.NotRegexp(t, `\| +\|\n\|`, strings.ReplaceAll(want, "| key | value | |\n", ""), "a key has no description")
}
