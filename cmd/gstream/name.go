package main

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
	sourcearrow "github.com/gstream/gstream/source/arrow"
	"github.com/gstream/gstream/source/store"
	sourcetext "github.com/gstream/gstream/source/text"
)

var (
	noWord   = regexp.MustCompile(`[^A-Za-z0-9]+`)
	reserved = regexp.MustCompile(`^(null|true|false|yes|no|on|off|y|n)$`) // in YAML
)

// sourceName returns a name for the table of a path: an identifier that needs no quotes. It is made
// of the name of the file, or of the nearest folder whose name has letters or digits.
func sourceName(path string) string {
	path, _, _ = strings.Cut(store.Display(path), "?(") // without the query of an address
	path = filepath.Clean(path)
	base := strings.TrimSuffix(filepath.Base(path), ".parquet")
	if namesData(path) {
		for _, end := range []string{".gz", ".zst"} {
			base = strings.TrimSuffix(base, end)
		}
		base = strings.TrimSuffix(base, filepath.Ext(base))
	}
	for noWord.ReplaceAllString(base, "") == "" && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		base = filepath.Base(path)
	}
	return identifier(base)
}

// namesData reports whether a path has the name of a file of CSV, JSON lines or Arrow.
func namesData(path string) bool {
	return sourcetext.Named(path) || sourcetext.NamedJSON(path) || sourcearrow.Named(path)
}

func identifier(s string) string {
	name := strings.ToLower(strings.Trim(noWord.ReplaceAllString(s, "_"), "_"))
	switch {
	case name == "":
		return "rows"
	case name[0] >= '0' && name[0] <= '9', reserved.MatchString(name), syntax.QuoteName(name) != name:
		return "t_" + name
	}
	return name
}
