package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gstream/gstream/sink/staging"
)

// manifest lists the files of an output in its directory, so that the next output may
// replace these files and no others.
type manifest struct {
	CreatedBy string `json:"created_by"`
	Files     []part `json:"files"`
	// PartitionBy has the columns of the folders.
	PartitionBy []string `json:"partition_by,omitempty"`
	// Others are names of objects that may be there, and that are no part of the output: those of a run that has not
	// committed, or of an earlier output. Local outputs have none.
	Others []string `json:"others,omitempty"`
	Run    string   `json:"run,omitempty"` // of the run that has written the manifest of objects
}

type part struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// maxManifest bounds the size of a manifest. It is enough for more than a million files.
const maxManifest = 128 << 20

// readManifest returns nil if there is no manifest, or something else under its name.
func readManifest(file string) (*manifest, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, err
	}
	var m manifest
	if json.Unmarshal(text, &m) != nil {
		return nil, nil
	}
	return &m, nil
}

func (m *manifest) write(f outFile) error {
	m.CreatedBy = createdBy()
	text, err := json.MarshalIndent(m, "", " ")
	if err == nil {
		_, err = f.WriteAt(append(text, '\n'), 0)
	}
	return err
}

// foreign lists the entries of a directory and the folders below it, except files of the manifest and those that were
// read, by name and size, and folders of such files. Without a manifest it lists all entries. Where files were read,
// files about them do not count, such as _SUCCESS and .part-0.parquet.crc of Spark.
func (m *manifest) foreign(dir string, read map[part]bool) (names []string, err error) {
	own := maps.Clone(read)
	if own == nil {
		own = map[part]bool{}
	}
	if m != nil {
		for _, p := range m.Files {
			own[p] = true
		}
	}
	folders := map[string]bool{}
	for p := range own {
		for f := path.Dir(p.Name); f != "." && f != "/"; f = path.Dir(f) {
			folders[f] = true
		}
	}
	err = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if e.IsDir() {
			if !folders[name] {
				names = append(names, name)
				return fs.SkipDir
			}
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		manifest := m != nil && name == staging.LockName
		if len(read) > 0 && info.Mode().IsRegular() && describesFiles(e.Name()) {
			return nil
		}
		if !info.Mode().IsRegular() || !manifest && !own[part{name, info.Size()}] {
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// describesFiles reports whether a file has only what follows from the Parquet files next to it.
func describesFiles(name string) bool {
	switch name {
	case "_SUCCESS", "_metadata", "_common_metadata":
		return true
	}
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".crc")
}
