// Package manifest checks that compiled kernels match their sources, without a compiler.
// A manifest next to the fatbins lists the sources and the kernels of each fatbin.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// File is the name of the manifest in the directory of the kernels.
const File = "manifest.json"

// script compiles the kernels. It has the compiler version and the flags, so a change of
// it makes every fatbin stale.
const script = "build.sh"

// Entry is one fatbin: the SHA-256 of its sources and of the fatbin, and its kernels.
type Entry struct {
	Sources string   `json:"sources"`
	Fatbin  string   `json:"fatbin"`
	Kernels []string `json:"kernels"`
}

// Kernels returns the fatbin of each kernel in a manifest.
func Kernels(list []byte) (map[string]string, error) {
	var all map[string]Entry
	if err := json.Unmarshal(list, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	out := map[string]string{}
	for source, e := range all {
		for _, name := range e.Kernels {
			out[name] = fatbin(source)
		}
	}
	return out, nil
}

func fatbin(source string) string { return strings.TrimSuffix(source, ".cu") + ".fatbin" }

// Stale returns the sources in dir whose fatbin is missing or differs from the manifest,
// and the fatbins without a source.
func Stale(dir string) ([]string, error) {
	have := map[string]Entry{}
	if b, err := os.ReadFile(filepath.Join(dir, File)); err == nil {
		if err := json.Unmarshal(b, &have); err != nil {
			return nil, fmt.Errorf("%s: %w", File, err)
		}
	}
	want, err := entries(dir)
	if err != nil {
		return nil, err
	}
	var stale []string
	for name, e := range want {
		if have[name].Sources != e.Sources || have[name].Fatbin != e.Fatbin {
			stale = append(stale, name)
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			stale = append(stale, name)
		}
	}
	sort.Strings(stale)
	return stale, nil
}

// Write writes the manifest of the fatbins in dir.
func Write(dir string) error {
	all, err := entries(dir)
	if err != nil {
		return err
	}
	seen := map[string]string{}
	for name, e := range all {
		if e.Fatbin == "" {
			return fmt.Errorf("%s has no fatbin", name)
		}
		if e.Kernels, err = kernelsIn(filepath.Join(dir, name)); err != nil {
			return err
		}
		for _, k := range e.Kernels {
			if other, ok := seen[k]; ok {
				return fmt.Errorf("kernel %s is in %s and in %s", k, name, other)
			}
			seen[k] = name
		}
		all[name] = e
	}
	b, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, File), append(b, '\n'), 0o644)
}

var declaration = regexp.MustCompile(`extern\s+"C"\s+__global__\s+void\s+(\w+)\s*\(`)

// kernelsIn lists the kernels of a source. It runs the C++ preprocessor, $CXX or g++.
func kernelsIn(source string) ([]string, error) {
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	text, err := exec.Command(cxx, "-E", "-P", "-x", "c++", "-std=c++17", "-D__launch_bounds__(...)=", source).Output()
	if err != nil {
		return nil, fmt.Errorf("list the kernels of %s with %s: %w", source, cxx, err)
	}
	names := []string{}
	for _, m := range declaration.FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names, nil
}

func entries(dir string) (map[string]Entry, error) {
	sources, err := filepath.Glob(filepath.Join(dir, "*.cu"))
	if err != nil {
		return nil, err
	}
	out := map[string]Entry{}
	for _, path := range sources {
		h := sha256.New()
		seen := map[string]bool{}
		for _, name := range []string{script, filepath.Base(path)} {
			if err := add(h, dir, name, seen); err != nil {
				return nil, err
			}
		}
		e := Entry{Sources: hex.EncodeToString(h.Sum(nil))}
		if b, err := os.ReadFile(fatbin(path)); err == nil {
			sum := sha256.Sum256(b)
			e.Fatbin = hex.EncodeToString(sum[:])
		}
		out[filepath.Base(path)] = e
	}
	return out, nil
}

var include = regexp.MustCompile(`(?m)^\s*#\s*include\s+"([^"]+)"`)

// add hashes a file and the files that it includes, each once.
func add(h io.Writer, dir, name string, seen map[string]bool) error {
	if seen[name] {
		return nil
	}
	seen[name] = true
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%s %d\n", name, len(b))
	_, _ = h.Write(b)
	for _, m := range include.FindAllSubmatch(b, -1) {
		if err := add(h, dir, string(m[1]), seen); err != nil {
			return err
		}
	}
	return nil
}
