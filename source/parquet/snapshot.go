package parquet

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source/store"
)

// Snapshot identifies the files of a table and the versions in which they were opened. It can be
// encoded: another process can open the same table with it.
type Snapshot struct {
	Listing
	Versions []Version // version of each path
	// Options of the table.
	Strict bool        `json:",omitempty"`
	Schema *gpu.Schema `json:",omitempty"`
	// Ruled is the number of files that the table excludes by their folders. If Empty is set, the
	// table has no rows, and Paths has only the file that its columns come from.
	Ruled int  `json:",omitempty"`
	Empty bool `json:",omitempty"`
	// Share of Of shares of the rows is what the table has, unless Of is 0.
	Share int `json:",omitempty"`
	Of    int `json:",omitempty"`
}

// Snapshot returns the files of the table, with absolute paths.
func (t *Table) Snapshot() (*Snapshot, error) {
	s := t.snapshot
	s.Paths = slices.Clone(s.Paths)
	for i, path := range s.Paths {
		if store.Display(path) != path {
			return nil, fmt.Errorf("%s: the address has a query, which may be a key, so it cannot be part of a plan",
				store.Display(path))
		}
		if isRemote(path) {
			continue
		}
		var err error
		if s.Paths[i], err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// Open opens the table again. It returns a source.ErrChanged if a file has another version.
func (s *Snapshot) Open() (*Table, error) {
	if len(s.Versions) != len(s.Paths) {
		return nil, fmt.Errorf("a table has %d files in %d versions", len(s.Paths), len(s.Versions))
	}
	for _, p := range s.Partitions {
		if len(p.Values) != len(s.Paths) {
			return nil, fmt.Errorf("a table has %d files and %d values of the folders of column %q", len(s.Paths),
				len(p.Values), p.Field.Name)
		}
	}
	l := s.Listing
	l.versions = map[string]Version{}
	for i, path := range l.Paths {
		if isRemote(path) {
			l.versions[path] = s.Versions[i] // the first read fails if there is another one
		}
	}
	var keep func(int) bool
	if s.Empty {
		keep = func(int) bool { return false }
	}
	t, err := l.Open(keep, OpenOptions{Strict: s.Strict, Schema: s.Schema})
	if err != nil {
		return nil, err
	}
	for i, v := range t.snapshot.Versions {
		if v != s.Versions[i] {
			return nil, fmt.Errorf("%s: %w", s.Paths[i], s.Versions[i].Changed(v))
		}
	}
	t.ruled = s.Ruled
	t.snapshot.Ruled = s.Ruled
	if s.Share != 0 || s.Of != 0 {
		return t.Share(s.Share, s.Of)
	}
	return t, nil
}
