package parquet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Files lists the files that paths name, as Open reads them.
func Files(paths []string) ([]string, error) { return expand(paths) }

// expand lists the files that paths name. Those of a pattern or a folder are in order of
// name.
func expand(paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, errors.New("no Parquet file is named: give a file, a pattern or a folder")
	}
	var out []string
	for _, p := range paths {
		names, err := expandOne(p)
		if err != nil {
			return nil, err
		}
		out = append(out, names...)
	}
	return out, nil
}

func expandOne(path string) ([]string, error) {
	w := fileList{seen: map[string]bool{}}
	var none string
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		none = "there is no *.parquet in this folder or below it (names that begin with . or _ do not count, except folders such as _k=1)"
		err = w.folder(path)
	case err == nil:
		err = w.file(path, info)
	case isPattern(path):
		none = "no file matches this pattern"
		err = w.pattern(path)
	}
	if err == nil && len(w.files) == 0 {
		err = &fs.PathError{Op: "read", Path: path, Err: &notFound{none}}
	}
	return w.files, err
}

// notFound is os.ErrNotExist with a message of its own.
type notFound struct{ msg string }

func (e *notFound) Error() string { return e.msg }
func (e *notFound) Unwrap() error { return fs.ErrNotExist }

// fileList collects files.
type fileList struct {
	files []string
	seen  map[string]bool
}

func (w *fileList) file(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		// A pipe would block, and an endless file has no footer.
		return &fs.PathError{Op: "read", Path: path, Err: errors.New("neither a file nor a folder")}
	}
	if !w.seen[path] {
		w.seen[path] = true
		w.files = append(w.files, path)
	}
	return nil
}

// folder adds every *.parquet in a folder and in the folders below it.
func (w *fileList) folder(path string) error {
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		below := filepath.Join(path, e.Name())
		switch {
		case err != nil:
		case hidden(e.Name(), e.IsDir(), "._"):
		case e.IsDir():
			err = w.folder(below)
		case strings.EqualFold(filepath.Ext(below), ".parquet"):
			var info fs.FileInfo
			if info, err = os.Stat(below); err == nil && !info.IsDir() {
				err = w.file(below, info)
			}
		}
	}
	return err
}

// hidden reports whether a name begins with one of the marks of a hidden file or folder.
// The folder of a partition, such as _k=1, is never hidden.
func hidden(name string, folder bool, marks string) bool {
	return strings.IndexAny(name, marks) == 0 && !(folder && strings.Contains(name, "="))
}

func isPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

// pattern adds the files that match a pattern. It also reads folders that match, except
// where ** has read them already.
func (w *fileList) pattern(path string) error {
	const separator = string(filepath.Separator)
	folder := "."
	if filepath.IsAbs(path) {
		folder = separator
	}
	parts := strings.Split(strings.Trim(filepath.Clean(path), separator), separator)
	if parts[len(parts)-1] == "**" {
		parts = append(parts, "*")
	}
	err := w.match(folder, parts, !slices.Contains(parts, "**"))
	if errors.Is(err, filepath.ErrBadPattern) {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("not a pattern: a [ has no ]")}
	}
	return err
}

// match adds the files below a folder that match the parts of a pattern.
func (w *fileList) match(folder string, parts []string, folders bool) error {
	part, rest := parts[0], parts[1:]
	next := func(path string) error {
		if len(rest) > 0 {
			return w.match(path, rest, folders)
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			return w.file(path, info)
		case folders:
			return w.folder(path)
		}
		return nil
	}
	if part == "**" {
		if err := w.match(folder, rest, folders); err != nil {
			return err
		}
	} else {
		path := filepath.Join(folder, part)
		_, err := os.Lstat(path)
		switch {
		case err == nil: // an existing name means itself, whatever it looks like
			return next(path)
		case !isPattern(part):
			return unlessAbsent(err)
		}
	}
	entries, err := os.ReadDir(folder)
	err = unlessAbsent(err)
	for _, e := range entries {
		below := filepath.Join(folder, e.Name())
		switch {
		case err != nil:
		case hidden(e.Name(), e.IsDir(), ".") && !strings.HasPrefix(part, "."):
		case part == "**":
			if e.IsDir() {
				err = w.match(below, parts, folders)
			}
		default:
			var ok bool
			if ok, err = filepath.Match(strings.ReplaceAll(part, "[!", "[^"), e.Name()); ok {
				err = next(below)
			}
		}
	}
	return err
}

// unlessAbsent returns err, or nil if it means that something does not exist.
func unlessAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}
