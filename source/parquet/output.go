package parquet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrOutput is the error for a folder or pattern that includes the output of the same job.
var ErrOutput = errors.New("the output is among the files of the source")

// Output is a file or folder that will be written from the rows of a source.
type Output struct {
	Path string
	// Folder means that the output is a folder of files. PartitionBy has the columns of the folders
	// in it.
	Folder      bool
	PartitionBy []string
}

// outputPath is an output with its path after all links are resolved.
type outputPath struct {
	Output
	path string
}

func newOutputPath(o *Output) (*outputPath, error) {
	if o == nil {
		return nil, nil
	}
	if isRemote(o.Path) {
		return &outputPath{*o, strings.TrimRight(o.Path, "/")}, nil
	}
	path, err := realPath(o.Path)
	return &outputPath{*o, path}, err
}

// realPath returns the absolute path with all links resolved. Its last parts need not exist.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	above := filepath.Dir(path)
	if err == nil || above == path {
		return real, err
	}
	if above, err = realPath(above); err != nil {
		return "", err
	}
	return filepath.Join(above, filepath.Base(path)), nil
}

// names returns the parts of the path from a folder to one of the output's files. A part such as
// k=* stands for any value. ok is false if the output is not below the folder.
func (o *outputPath) names(folder string) (names []string, ok bool) {
	real, err := realPath(folder)
	if err != nil {
		return nil, false
	}
	name, err := filepath.Rel(real, o.path)
	if err != nil || name == ".." || strings.HasPrefix(name, ".."+separator) {
		return nil, false
	}
	if name != "." {
		names = strings.Split(name, separator)
	}
	if o.Folder {
		for _, key := range o.PartitionBy {
			names = append(names, key+"=*")
		}
		names = append(names, "part-00000.parquet")
	}
	return names, true
}

// object returns the address of one of the output's files in a store.
func (o *outputPath) object() string {
	at := o.path
	if o.Folder {
		for _, key := range o.PartitionBy {
			at += "/" + key + "=0"
		}
		at += "/part-00000.parquet"
	}
	return at
}

// contains reports whether a path is that of the output, or below it.
func (o *outputPath) contains(path string) bool {
	real, err := realPath(path)
	return err == nil && (real == o.path || strings.HasPrefix(real, o.path+separator))
}

// named reports whether a path of a source begins with the path of the output. The job then
// replaces its input.
func (o *outputPath) named(path string) bool {
	parts := strings.Split(filepath.Clean(path), separator)
	if _, err := os.Stat(path); err != nil {
		if i := slices.IndexFunc(parts, isPattern); i >= 0 {
			parts = parts[:i]
		}
	}
	literal := strings.Join(parts, separator)
	if literal == "" && len(parts) > 0 {
		literal = separator
	}
	return literal != "" && o.contains(literal)
}

// refuse returns the error of a source that includes the output.
func (o *outputPath) refuse(path string) error {
	return fmt.Errorf("%s: %w: each run would read the rows of the run before from %s; write it to another folder, "+
		"or name the files to read without it", path, ErrOutput, o.Path)
}

// inFolder reports whether a walk of a folder finds a file whose path below the folder has these
// parts.
func inFolder(names []string) bool {
	last := len(names) - 1
	for _, name := range names[:last] {
		if hidden(name, true, "._") {
			return false
		}
	}
	return last >= 0 && !hidden(names[last], false, "._") && isParquet(names[last])
}

// inPattern reports whether a pattern matches a file whose path has these parts.
func inPattern(parts, names []string, folders bool) bool {
	if len(parts) == 0 {
		return len(names) == 0 || folders && inFolder(names)
	}
	if len(names) == 0 {
		return false
	}
	part, name, folder := parts[0], names[0], len(names) > 1
	if hidden(name, folder, ".") && !strings.HasPrefix(part, ".") {
		return false
	}
	if part == "**" {
		return inPattern(parts[1:], names, folders) || folder && inPattern(parts, names[1:], folders)
	}
	ok, _ := filepath.Match(strings.ReplaceAll(part, "[!", "[^"), name)
	if key, any := strings.CutSuffix(name, "*"); any && strings.HasPrefix(part, key) {
		ok = true
	}
	return (ok || part == name) && inPattern(parts[1:], names[1:], folders)
}

// checkFolder returns an error for a folder that includes the output.
func (w *fileList) checkFolder(path string) error {
	for _, o := range w.outputs {
		if names, ok := o.names(path); ok && inFolder(names) {
			return o.refuse(w.path)
		}
	}
	return nil
}

// checkPattern returns an error for a pattern that includes the output below a folder.
func (w *fileList) checkPattern(folder string, parts []string, folders bool) error {
	for _, o := range w.outputs {
		if names, ok := o.names(folder); ok && inPattern(parts, names, folders) {
			return o.refuse(w.path)
		}
	}
	return nil
}

// checkLink returns an error for a link to the output.
func (w *fileList) checkLink(path string, mode fs.FileMode) error {
	for _, o := range w.outputs {
		if mode&fs.ModeSymlink != 0 && o.contains(path) {
			return o.refuse(w.path)
		}
	}
	return nil
}
