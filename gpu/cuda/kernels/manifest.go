//go:build ignore

// Manifest lists the stale kernels of the current directory, or writes its manifest.
// build.sh runs it.
package main

import (
	"fmt"
	"os"

	"github.com/gstream/gstream/gpu/cuda/internal/manifest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manifest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 1 && args[0] == "write" {
		return manifest.Write(".")
	}
	stale, err := manifest.Stale(".")
	for _, name := range stale {
		fmt.Println(name)
	}
	return err
}
