package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline/internal/logical"
)

// rulesOf plans steps over the tables of TestPlans, and calls applied after each rule.
func rulesOf(t *testing.T, file string, applied func(logical.Rule, logical.Node, logical.Node)) {
	p, err := newPlanOf(planJob(t, file), planTables(), nil, nil, PlanOptions{applied: applied})
	if err == nil {
		require.NoError(t, p.Close())
	}
}

// TestRules compares the trees below and above a rule with testdata/rules/<rule>/*.txt.
func TestRules(t *testing.T) {
	files, err := filepath.Glob("testdata/rules/*/*.yaml")
	require.NoError(t, err)
	tested := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "testdata/rules/"), func(t *testing.T) {
			var got string
			rulesOf(t, file, func(r logical.Rule, before, after logical.Node) {
				if r.Name == filepath.Base(filepath.Dir(file)) {
					tested[r.Name] = true
					got = fmt.Sprintf("%s\n%s: %s\n\n%s", logical.Print(before), r.Name, r.Doc, logical.Print(after))
					require.NotEqual(t, logical.Print(before), logical.Print(after))
				}
			})
			want := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(got), 0o644))
			}
			text, err := os.ReadFile(want)
			require.NoError(t, err)
			require.Equal(t, string(text), got)
		})
	}
	for _, r := range logical.Rules {
		require.True(t, tested[r.Name], "the rule %s has a test", r.Name)
	}
}

// TestRulesKeepTheColumns checks all plans after each rule.
func TestRulesKeepTheColumns(t *testing.T) {
	files, err := filepath.Glob("testdata/plans/*.yaml")
	require.NoError(t, err)
	more, err := filepath.Glob("testdata/rules/*/*.yaml")
	require.NoError(t, err)
	for _, file := range slices.Concat(files, more) {
		rulesOf(t, file, func(r logical.Rule, before, after logical.Node) {
			require.NoError(t, logical.Check(before), "%s before %s", file, r.Name)
			require.NoError(t, logical.Check(after), "%s after %s", file, r.Name)
			require.NoError(t, logical.SameColumns(before, after), "%s after %s", file, r.Name)
		})
	}
}
