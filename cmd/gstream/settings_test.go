package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
)

// TestSettingsAreFlags finds the flag of each setting that an error may name.
func TestSettingsAreFlags(t *testing.T) {
	run, _, err := newRoot(&leftovers{}).Find([]string{"run"})
	require.NoError(t, err)
	for s := gpu.DeviceMemory; s <= gpu.Variables; s++ {
		if s == gpu.Discard { // a command
			continue
		}
		flag, _, _ := strings.Cut(s.String(), " ")
		require.True(t, strings.HasPrefix(flag, "--") && run.Flags().Lookup(flag[2:]) != nil, "setting %d is %q", s, s)
	}
	require.Equal(t, "--device host", gpu.UseHost.String())
	require.Equal(t, "--set day=VALUE", gpu.Variables.To("day=VALUE"))
	require.Equal(t, "--param day=VALUE", gpu.Parameters.To("day=VALUE"))
}

// namesFlags are the packages next to the command whose strings name flags: what only the command uses, and the
// documentation of job files.
var namesFlags = []string{"cmd/gstream", "operators/bench", "pipeline/job"}

// flagsOfOthers are flags of programs that gstream runs: of az.
var flagsOfOthers = []string{`"--resource"`}

// TestOnlyTheCommandKnowsItsFlags looks for flags in strings of other packages, which name a gpu.Setting.
func TestOnlyTheCommandKnowsItsFlags(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	flag := regexp.MustCompile(`(^|[\s"(])--[a-z][a-z-]+`)
	fset := token.NewFileSet()
	goFiles(t, func(name string, text []byte) {
		allowed := slices.Contains(namesFlags, path.Dir(name)) || strings.HasPrefix(name, "examples/")
		if strings.HasSuffix(name, "_test.go") || allowed {
			return
		}
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if ok && l.Kind == token.STRING && !slices.Contains(flagsOfOthers, l.Value) {
				assert.NotRegexp(t, flag, l.Value, "%s names a flag of the command: use a gpu.Setting",
					fset.Position(l.Pos()))
			}
			return true
		})
	})
}
