package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline"
)

// TestExitCodesAreDocumented compares the exit codes with the table of the README and the help.
func TestExitCodesAreDocumented(t *testing.T) {
	want := []int{exitOK}
	for _, code := range exitCodes {
		want = append(want, code)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		want = append(want, stopped{s}.exitCode())
	}
	slices.Sort(want)
	want = slices.Compact(want)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, help, _ := gstream("help")
	for name, text := range map[string]string{"README": string(readme), "help": help} {
		for _, code := range want {
			pattern := fmt.Sprintf(`(?m)^\| %d \|`, code)
			if name == "help" {
				pattern = fmt.Sprintf(`\b%d\b`, code)
			}
			require.Regexp(t, regexp.MustCompile(pattern), text, strconv.Itoa(code))
		}
	}
}

func TestAnErrorOfNoClassIsADefect(t *testing.T) {
	require.Equal(t, exitDefect, exitCode(errors.New("anything")))
	require.Equal(t, exitJob, exitCode(usageError(errors.New("anything"))))
	require.Equal(t, exitData, exitCode(gpu.Failed("in x: divided by zero")))
	require.Equal(t, exitIO, exitCode(&pipeline.Diagnostic{Err: syscall.EMFILE}))
}
