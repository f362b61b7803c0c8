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
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// rulesOf plans steps over the tables of TestPlans, and calls applied after each rule.
func rulesOf(t *testing.T, file string, applied func(logical.Rule, rel.Output, rel.Output)) {
	p, err := newPlanOf(t.Context(), planJob(t, file), planTables(), nil, nil, PlanOptions{applied: applied})
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
			rulesOf(t, file, func(r logical.Rule, before, after rel.Output) {
				if r.Name == filepath.Base(filepath.Dir(file)) {
					tested[r.Name] = true
					got = fmt.Sprintf("%s\n%s: %s\n\n%s", rel.Print(before.Root), r.Name, r.Doc, rel.Print(after.Root))
					require.NotEqual(t, rel.Print(before.Root), rel.Print(after.Root))
				}
			})
			require.NotEmpty(t, got)
			want := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(got), 0o644))
			}
			text, err := os.ReadFile(want)
			require.NoError(t, err)
			require.Equal(t, string(text), got)
		})
	}
	for rule := range treesOfRules() {
		tested[rule] = true
	}
	for _, r := range logical.Rules {
		require.True(t, tested[r.Name], "the rule %s has a test", r.Name)
	}
}

func TestRulesThatCannotBeLeftOut(t *testing.T) {
	for rule, want := range map[string]string{"limits": "",
		"set-operations": "cannot be left out: it replaces what has no",
		"limit":          `there is no rule "limit"; the rules are unnest, set-operations, interval-keys, `} {
		err := logical.Options{Without: []string{rule}}.Check()
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// TestRulesKeepTheColumns checks all plans after each rule.
func TestRulesKeepTheColumns(t *testing.T) {
	files, err := filepath.Glob("testdata/plans/*.yaml")
	require.NoError(t, err)
	more, err := filepath.Glob("testdata/rules/*/*.yaml")
	require.NoError(t, err)
	for _, file := range slices.Concat(files, more) {
		rulesOf(t, file, func(r logical.Rule, before, after rel.Output) {
			require.NoError(t, rel.Check(before), "%s before %s", file, r.Name)
			require.NoError(t, rel.Check(after), "%s after %s", file, r.Name)
			require.NoError(t, rel.SameRows(before, after), "%s after %s", file, r.Name)
		})
	}
}
