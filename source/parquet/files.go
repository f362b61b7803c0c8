package parquet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const separator = string(filepath.Separator)

// Files lists the files that paths name. Open reads the same files.
func Files(ctx context.Context, paths []string) ([]string, error) {
	l, err := expand(paths, OpenOptions{Context: ctx})
	if err != nil {
		return nil, err
	}
	return l.Paths, nil
}

// expand lists the files that paths name. The files of a pattern or a folder are in the order of
// their names. expand returns an error for folders and patterns that include the output.
func expand(paths []string, opt OpenOptions) (*Listing, error) {
	if len(paths) == 0 {
		return nil, errors.New("no Parquet file is named: give a file, a pattern or a folder")
	}
	var targets []*outputPath
	for _, o := range opt.Outputs {
		target, err := newOutputPath(o)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	l := &Listing{versions: map[string]Version{}}
	for _, p := range paths {
		names, err := expandOne(opt.context(), p, targets, l.versions)
		if err != nil && !(opt.Optional && errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		l.Paths = append(l.Paths, names...)
	}
	return l, nil
}

func expandOne(ctx context.Context, path string, outputs []*outputPath, versions map[string]Version) ([]string, error) {
	if isRemote(path) {
		i := slices.IndexFunc(outputs, func(o *outputPath) bool { return o != nil && isRemote(o.path) })
		if i < 0 {
			return expandRemote(ctx, path, nil, versions)
		}
		return expandRemote(ctx, path, outputs[i], versions) // one that is remote is the only one
	}
	w := fileList{path: path, seen: map[string]bool{}, names: localNames{}}
	for _, output := range outputs {
		if output != nil && !output.named(path) {
			w.outputs = append(w.outputs, output)
		}
	}
	var none string
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		none = "there is no *.parquet in this folder or below it (names that begin with . or _ do not count, except " +
			"folders such as _k=1)"
		if err = w.checkFolder(path); err == nil {
			err = w.folder(path)
		}
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

// names are the files and folders that a path may name.
type names interface {
	stat(path string) (fs.FileInfo, error)
	lstat(path string) (fs.FileInfo, error)       // does not follow links
	readDir(folder string) ([]fs.DirEntry, error) // by name
	join(folder, name string) string
}

// localNames are those of the local file system.
type localNames struct{}

func (localNames) stat(path string) (fs.FileInfo, error)        { return os.Stat(path) }
func (localNames) lstat(path string) (fs.FileInfo, error)       { return os.Lstat(path) }
func (localNames) readDir(folder string) ([]fs.DirEntry, error) { return os.ReadDir(folder) }
func (localNames) join(folder, name string) string              { return filepath.Join(folder, name) }

// fileList collects files.
type fileList struct {
	path  string // the path that names the files
	names names
	files []string
	seen  map[string]bool
	// outputs must not be among the files.
	outputs []*outputPath
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

// folder adds every *.parquet file in a folder and in the folders below it.
func (w *fileList) folder(path string) error {
	entries, err := w.names.readDir(path)
	for _, e := range entries {
		below := w.names.join(path, e.Name())
		switch {
		case err != nil:
		case hidden(e.Name(), e.IsDir(), "._"):
		case e.IsDir():
			err = w.folder(below)
		case isParquet(e.Name()):
			var info fs.FileInfo
			if info, err = w.names.stat(below); err == nil && !info.IsDir() {
				if err = w.checkLink(below, e.Type()); err == nil {
					err = w.file(below, info)
				}
			}
		}
	}
	return err
}

func isParquet(name string) bool { return strings.EqualFold(filepath.Ext(name), ".parquet") }

// hidden reports whether the name of a file or folder begins with one of the characters that mark
// it as hidden. The folder of a partition, such as _k=1, is never hidden.
func hidden(name string, folder bool, marks string) bool {
	return strings.IndexAny(name, marks) == 0 && !(folder && strings.Contains(name, "="))
}

func isPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

// pattern adds the files that match a pattern, and the files in folders that match. With ** in the
// pattern, the files in folders match by themselves.
func (w *fileList) pattern(path string) error {
	folder := "."
	if filepath.IsAbs(path) {
		folder = separator
	}
	return w.patternIn(folder, strings.Split(strings.Trim(filepath.Clean(path), separator), separator))
}

// patternIn is pattern for the parts of a pattern below a folder.
func (w *fileList) patternIn(folder string, parts []string) error {
	if parts[len(parts)-1] == "**" {
		parts = append(parts, "*")
	}
	folders := !slices.Contains(parts, "**")
	err := w.checkPattern(folder, parts, folders)
	if err == nil {
		err = w.match(folder, parts, folders)
	}
	if errors.Is(err, filepath.ErrBadPattern) {
		err = &fs.PathError{Op: "read", Path: w.path, Err: errors.New("not a pattern: a [ has no ]")}
	}
	return err
}

// match adds the files below a folder that match the parts of a pattern.
func (w *fileList) match(folder string, parts []string, folders bool) error {
	part, rest := parts[0], parts[1:]
	next := func(path string, mode fs.FileMode) error {
		link := mode&fs.ModeSymlink != 0
		if len(rest) > 0 {
			if link {
				if err := w.checkPattern(path, rest, folders); err != nil {
					return err
				}
			}
			return w.match(path, rest, folders)
		}
		info, err := w.names.stat(path)
		if err == nil && link {
			if err = w.checkLink(path, mode); err == nil && folders && info.IsDir() {
				err = w.checkFolder(path)
			}
		}
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
		path := w.names.join(folder, part)
		info, err := w.names.lstat(path)
		switch {
		case err == nil: // an existing file has this very name, even if it looks like a pattern
			return next(path, info.Mode())
		case !isPattern(part):
			return unlessAbsent(err)
		}
	}
	entries, err := w.names.readDir(folder)
	err = unlessAbsent(err)
	for _, e := range entries {
		below := w.names.join(folder, e.Name())
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
				err = next(below, e.Type())
			}
		}
	}
	return err
}

// unlessAbsent returns err, or nil if err says that something does not exist.
func unlessAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}
