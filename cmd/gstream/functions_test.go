package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFunctionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/functions.md")
	require.NoError(t, err)
	_, out, _ := gstream("functions", "--format", "markdown")
	require.Equal(t, out, string(page), "docs/functions.md is stale: go generate ./cmd/gstream")
}

func TestFunctionsPrintsWhatMatches(t *testing.T) {
	code, out, stderr := gstream("functions", "DATE_TRUNC")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, out, "date_trunc(part, d)")
	assert.Contains(t, out, "also     datetrunc")
	assert.Contains(t, out, "→ 2024-03-01 00:00:00")
	assert.NotContains(t, out, "date_part(")

	_, out, _ = gstream("functions")
	assert.Contains(t, out, "\nText ")
	assert.Contains(t, out, "abs(x)")

	code, out, _ = gstream("functions", "||", "--format", "json")
	require.Equal(t, exitOK, code)
	var list []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list, 1)

	code, _, stderr = gstream("functions", "path_join")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, "does not have DuckDB's function path_join yet")
	code, _, stderr = gstream("functions", "nosuchthing")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, `"nosuchthing"`)
}
