package pipeline_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestREADMEShowsAProgramThatIsCompiled compares the program of the README with
// examples/program.
func TestREADMEShowsAProgramThatIsCompiled(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, shown, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok)
	shown, _, _ = strings.Cut(shown, "```")
	program, err := os.ReadFile("../examples/program/main.go")
	require.NoError(t, err)
	require.Equal(t, string(program), shown)
}
