package main

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/gstream/gstream"

// layers are the packages, from the lowest to the highest, and what each may import: packages of
// this module, all of which stand above it in the table, and modules of others that are not for
// everybody (see owned). A star is any name. The first row that matches counts. Tests may import
// anything, and so may packages for tests.
var layers = []struct{ room, imports string }{
	{"gpu/phrase", ""},
	{"gpu/grant", ""},
	{"gpu/internal/machine", ""},
	{"gpu/internal/spin", ""},
	{"gpu", "gpu/internal/spin"},
	{"gpu/regex", "gpu"},
	{"gpu/jsontext", "gpu"},
	{"gpu/host/internal/parallel", "gpu"},
	{"gpu/host/internal/memory", "gpu gpu/internal/spin"},
	{"gpu/host/internal/word", "gpu"},
	{"gpu/host/internal/eval", "gpu gpu/jsontext gpu/regex gpu/host/internal/parallel"},
	{"gpu/host/internal/intern", "gpu gpu/host/internal/memory gpu/host/internal/parallel gpu/host/internal/word"},
	{"gpu/host/internal/move", "gpu gpu/host/internal/intern gpu/host/internal/memory gpu/host/internal/parallel"},
	{"gpu/host/internal/sorting",
		"gpu gpu/host/internal/memory gpu/host/internal/move gpu/host/internal/parallel gpu/host/internal/word"},
	{"gpu/host/internal/aggregate", "gpu gpu/host/internal/memory gpu/host/internal/move " +
		"gpu/host/internal/parallel gpu/host/internal/sorting gpu/host/internal/word"},
	{"gpu/host/internal/codec", "gpu gpu/host/internal/intern gpu/host/internal/memory gpu/host/internal/move " +
		"gpu/host/internal/parallel gpu/host/internal/word"},
	{"gpu/host/internal/group", "gpu gpu/host/internal/codec gpu/host/internal/memory gpu/host/internal/move " +
		"gpu/host/internal/parallel gpu/host/internal/word"},
	{"gpu/host/internal/join", "gpu gpu/host/internal/codec gpu/host/internal/memory " +
		"gpu/host/internal/parallel gpu/host/internal/sorting gpu/host/internal/word"},
	{"gpu/host", "gpu gpu/grant gpu/internal/machine gpu/host/internal/*"},
	{"gpu/cuda/internal/manifest", ""},
	{"gpu/cuda", "gpu gpu/grant gpu/internal/machine gpu/jsontext gpu/regex gpu/cuda/internal/manifest " +
		"github.com/ebitengine/purego"},
	{"gpu/cuda/kernels", "gpu/cuda/internal/manifest"},
	{"spill", "gpu gpu/grant"},
	{"source", "gpu"},
	{"source/store", "source github.com/minio/minio-go"},
	{"source/parquet", "source source/store gpu gpu/grant gpu/host gpu/phrase github.com/parquet-go/parquet-go"},
	{"source/arrow", "source source/store gpu gpu/grant github.com/apache/arrow"},
	{"source/text", "source source/store gpu gpu/grant gpu/host"},
	{"source/exchange", "source source/store spill gpu gpu/grant"},
	{"sink/staging", "gpu source/store"},
	{"sink", "gpu sink/staging"},
	{"sink/parquet", "sink sink/staging source/store gpu gpu/grant gpu/phrase github.com/parquet-go/parquet-go"},
	{"sink/ordered", "sink sink/staging gpu"},
	{"sink/text", "sink/ordered gpu"},
	{"sink/exchange", "sink/ordered source/exchange spill gpu"},
	{"sink/arrow", "sink/ordered source/arrow gpu github.com/apache/arrow"},
	{"operators", "gpu gpu/grant spill"},
	{"operators/expand", "gpu operators"},
	{"operators/filter", "gpu operators"},
	{"operators/limit", "gpu operators"},
	{"operators/project", "gpu operators"},
	{"operators/transfer", "gpu"},
	{"operators/unnest", "gpu operators"},
	{"operators/sort", "gpu gpu/grant spill operators"},
	{"operators/partition", "gpu operators operators/sort"},
	{"operators/materialize", "gpu spill operators operators/sort"},
	{"operators/recursive", "gpu gpu/grant spill operators operators/materialize"},
	{"operators/join", "gpu gpu/grant spill operators operators/sort"},
	{"operators/groupby", "gpu gpu/grant spill operators operators/sort"},
	{"operators/window", "gpu gpu/grant spill operators operators/materialize operators/sort"},
	{"operators/expr/syntax", "gpu"},
	{"operators/expr", "gpu gpu/jsontext gpu/phrase gpu/regex operators/expr/syntax operators/window"},
	{"operators/bench", "gpu gpu/host spill operators operators/*"},
	{"pipeline/internal/class", "gpu gpu/cuda source"},
	{"pipeline/job", "gpu operators/expr/syntax pipeline/internal/class sink/* source/* " +
		"github.com/goccy/go-yaml"},
	{"pipeline/ranks", "gpu"},
	{"pipeline/execution", "gpu pipeline/job pipeline/ranks sink source spill"},
	{"pipeline/internal/rel",
		"gpu operators/expr operators/expr/syntax operators/join operators/window source"},
	{"pipeline/internal/logical",
		"gpu gpu/host gpu/phrase operators operators/* operators/expr/syntax pipeline/job pipeline/internal/* source"},
	{"pipeline/internal/physical",
		"gpu gpu/phrase operators operators/* operators/expr/syntax pipeline/job pipeline/internal/* source spill"},
	{"pipeline/internal/runner",
		"gpu gpu/cuda gpu/grant gpu/host operators operators/* pipeline/execution pipeline/internal/* pipeline/job " +
			"pipeline/ranks sink source source/exchange spill"},
	// The relational tree, its rules and statistics.
	{"pipeline/internal/*",
		"gpu gpu/phrase operators operators/* operators/expr/syntax pipeline/job pipeline/internal/* source"},
	{"pipeline", "gpu gpu/phrase operators/expr operators/expr/syntax pipeline/execution pipeline/internal/* " +
		"pipeline/job pipeline/ranks sink sink/* source source/* spill github.com/apache/arrow"},
	{"pipeline/sqldriver", "gpu pipeline sink"},
	{"pipeline/temporal", "pipeline go.temporal.io/sdk"},
	{"pipeline/telemetry", "pipeline"},
	{"cmd/gstream", "gpu gpu/* operators/bench operators/expr operators/expr/syntax pipeline " +
		"pipeline/ranks pipeline/telemetry pipeline/temporal sink sink/* source " +
		"source/* spill " +
		"github.com/spf13/cobra github.com/mattn/go-runewidth github.com/reeflective/readline"},
	{"examples/program", "pipeline"},
}

// forTests are the packages that only tests and other packages for tests import.
var forTests = []string{"gpu/gputest", "gpu/host/hosttest", "gpu/cuda/cudatest", "gpu/cuda/emulator",
	"operators/expr/exprtest", "source/store/storetest"}

// owned are the modules of others that only some packages import.
var owned = []string{"github.com/ebitengine/purego", "github.com/parquet-go/parquet-go", "github.com/apache/arrow",
	"github.com/goccy/go-yaml", "github.com/spf13/cobra", "github.com/mattn/go-runewidth",
	"github.com/reeflective/readline", "github.com/minio/minio-go", "go.temporal.io/sdk",
	"github.com/stretchr/testify"}

// files calls f with each file of the module whose name has one of the endings, by its path from
// the root, and its text.
func files(t *testing.T, f func(name string, text []byte), endings ...string) {
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if d.IsDir() {
			if base := d.Name(); rel != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") ||
				base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains(endings, filepath.Ext(name)) || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(name)
		f(filepath.ToSlash(rel), text)
		return err
	}))
}

// goFiles calls f with each Go file of the module proper: not of examples/compare.
func goFiles(t *testing.T, f func(name string, text []byte)) {
	files(t, func(name string, text []byte) {
		if !strings.HasPrefix(name, "examples/compare/") {
			f(name, text)
		}
	}, ".go")
}

// row returns the number of the row of layers of a package, -1 if there is none.
func row(room string) int {
	return slices.IndexFunc(layers, func(l struct{ room, imports string }) bool {
		ok, _ := path.Match(l.room, room)
		return ok
	})
}

func TestImportsGoDownwards(t *testing.T) {
	fset, used := token.NewFileSet(), map[int]bool{}
	goFiles(t, func(name string, text []byte) {
		room := path.Dir(name)
		if strings.HasSuffix(name, "_test.go") || slices.Contains(forTests, room) {
			return
		}
		at := row(room)
		if at < 0 {
			assert.Fail(t, "a package without a row", "%s: say in layers (rules_test.go) what it may import", room)
			return
		}
		used[at] = true
		may := strings.Fields(layers[at].imports)
		file, err := parser.ParseFile(fset, name, text, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			inside, own := strings.CutPrefix(imported, module+"/")
			if !own {
				i := slices.IndexFunc(owned,
					func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") })
				assert.True(t, i < 0 || slices.Contains(may, owned[i]), "%s imports %s, which is for other packages",
					name, imported)
				continue
			}
			assert.NotContains(t, forTests, inside, "%s imports a package for tests", name)
			ok := slices.ContainsFunc(may,
				func(pattern string) bool { ok, _ := path.Match(pattern, inside); return ok })
			assert.True(t, ok, "%s imports %s, which the row of %s in layers (rules_test.go) does not allow", name,
				inside, room)
			// the compiler finds cycles of these
			above := row(inside) <= at || strings.HasPrefix(inside, "pipeline/internal/")
			assert.True(t, above, "layers (rules_test.go): %s stands below %s, which imports it", inside, room)
		}
	})
	for i, l := range layers {
		assert.True(t, used[i] || strings.Contains(l.room, "*"),
			"there is no package %s: remove its row from layers (rules_test.go)", l.room)
	}
}

// namesDevices are the files outside of a device's package that name its kind: where users do.
var namesDevices = []string{"pipeline/execution/options.go"}

func TestDevicesAreNamedInTheirPackagesOnly(t *testing.T) {
	fset := token.NewFileSet()
	goFiles(t, func(name string, text []byte) {
		if strings.HasSuffix(name, "_test.go") || path.Dir(name) == "gpu/cuda" || slices.Contains(namesDevices, name) {
			return
		}
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Value == `"cuda"` && !strings.HasPrefix(name, "gpu/cuda/") {
				assert.Fail(t, "a device by its name", "%s: ask a device for a capability (gpu.Properties)",
					fset.Position(l.Pos()))
			}
			return true
		})
	})
}

// TestOnlyTheTableGrantsMemory looks for parts of budgets that are computed next to gpu/grant, which has them all.
func TestOnlyTheTableGrantsMemory(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	part := regexp.MustCompile(`(Limit|Budget)\(\)\)* */ *[(\w]|Limit\(\)\)* *\*|[*/] *(int64|float64)?\(?[\w.()]+\.Limit\(\)`)
	require.Regexp(t, part, "room := t.Lease.Limit() / int64(8*t.Lanes)")
	require.Regexp(t, part, "0.6*float64(d.Budget().Limit())")
	goFiles(t, func(name string, text []byte) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "operators/bench/") ||
			slices.Contains(forTests, path.Dir(name)) {
			return
		}
		line := 0
		for l := range strings.Lines(string(text)) {
			if line++; !strings.HasPrefix(strings.TrimSpace(l), "//") && !strings.Contains(l, "grant.") {
				assert.NotRegexp(t, part, l, "%s:%d: a part of a budget: use a share of gpu/grant", name, line)
			}
		}
	})
}

// privateWords are words that stand for something else than they do elsewhere, and what to write.
var privateWords = []struct{ word, write string }{
	{`surely`, "the rule"},
	{`hardly`, "the number or the rule"},
	{`many enough`, "the number"},
	{`beside`, "next to, besides, together with, while, compared with"},
	{`(?:give|gives|gave|given|giving) back`, "release, return"},
	{`(?:bytes|rows|values|bits|seconds) an? (?:row|value|second|key|group|stride|lane|core|batch|GiB|GB)`, "per"},
	{`put together`, "combine, concatenate"},
	{`(?:tell|tells|told|telling) (?:\w+ )?apart`, "distinguish"},
	{`(?:is|are|was|were|be) refused memory`, "deny"},
	{`memory is refused`, "deny"},
	{`(?:go|goes|went|going) on`, "continue, pass on"},
	{`(?:in|as) so many`, "the number"},
	{`is nothing to`, "ignore"},
	{`and the like`, "the others"},
	{`in one go`, "at once, in one read"},
	{`by way of`, "via"},
	{`refusals?`, "out of memory, an error"},
}

// oldWords are the files and folders whose comments still have private words. The list shrinks.
var oldWords = []string{"gpu/cuda/kernels/"}

// TestCommentsAndDocumentsUseTheWordsOfTheField looks for words in comments of Go and CUDA files,
// and in documents outside of code.
func TestCommentsAndDocumentsUseTheWordsOfTheField(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	code := regexp.MustCompile("(?s)```.*?```|`[^`]*`|\\]\\([^)]*\\)")
	comment := regexp.MustCompile(`(?m)(?:^|\s)//.*$`)
	var words []*regexp.Regexp
	for _, w := range privateWords {
		words = append(words, regexp.MustCompile(`(?i)\b`+w.word+`\b`))
	}
	check := func(name, text string, line int) {
		for i, w := range words {
			if found := w.FindString(text); found != "" {
				assert.Fail(t, "a private word", "%s:%d: %q: write %s", name, line, found, privateWords[i].write)
			}
		}
	}
	files(t, func(name string, text []byte) {
		if slices.ContainsFunc(oldWords, func(old string) bool { return strings.HasPrefix(name, old) }) {
			return
		}
		prose := string(text)
		if strings.HasSuffix(name, ".md") {
			prose = code.ReplaceAllStringFunc(prose,
				func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
		}
		line := 0
		for l := range strings.Lines(prose) {
			line++
			if !strings.HasSuffix(name, ".md") {
				l = comment.FindString(strings.TrimRight(l, "\n"))
			}
			check(name, l, line)
		}
	}, ".go", ".cu", ".cuh", ".md")
}

// maxColumns is the length of a line; a tab takes tabColumns.
const maxColumns, tabColumns = 120, 4

// TestLinesAreAtMost120Columns leaves out lines with a raw string, such as the tag of a field,
// which cannot be split.
func TestLinesAreAtMost120Columns(t *testing.T) {
	files(t, func(name string, text []byte) {
		fset := token.NewFileSet()
		file := fset.AddFile(name, -1, len(text))
		var s scanner.Scanner
		s.Init(file, text, nil, 0)
		raw := map[int]bool{}
		for {
			pos, kind, literal := s.Scan()
			if kind == token.EOF {
				break
			}
			if kind == token.STRING && literal[0] == '`' {
				for line := range strings.Count(literal, "\n") + 1 {
					raw[file.Line(pos)+line] = true
				}
			}
		}
		line := 0
		for l := range strings.Lines(string(text)) {
			line++
			l = strings.TrimRight(l, "\n")
			columns := utf8.RuneCountInString(l) + (tabColumns-1)*strings.Count(l, "\t")
			if columns > maxColumns && !raw[line] {
				assert.Fail(t, "a long line", "%s:%d has %d columns, %d at most", name, line, columns, maxColumns)
			}
		}
	}, ".go")
}
