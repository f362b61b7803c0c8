package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/sink/staging"
)

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// reportFile is the file of --report or --timeline. It is opened before the run, so that a path that
// cannot be written is an error before the work. It gets its name once it is complete.
type reportFile struct {
	flag string // name in errors
	path string
	file *os.File // nil without a report
	// stdout is set for the path -.
	stdout io.Writer
	// remove removes the temporary file, until the report is written.
	remove func() error
}

func openReport(flag, path string, stdout io.Writer) (*reportFile, error) {
	r := &reportFile{flag: flag, path: path, remove: func() error { return nil }}
	switch path {
	case "":
		return r, nil
	case "-":
		r.stdout = stdout
		return r, nil
	}
	var err error
	if info, statErr := os.Stat(path); statErr == nil && !info.Mode().IsRegular() {
		// A pipe or a terminal is written to directly, not replaced.
		r.file, err = os.OpenFile(path, os.O_WRONLY, 0)
	} else if r.path, err = staging.Resolve(path); err == nil {
		_ = staging.Sweep(filepath.Dir(r.path))
		if r.file, err = staging.File(r.path); err == nil {
			name := r.file.Name()
			r.remove = func() error { return os.Remove(name) }
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return r, nil
}

// write writes the file and renames it to its final name.
func (r *reportFile) write(fill func(io.Writer) error) error {
	if r.stdout != nil {
		return fill(r.stdout)
	}
	if r.file == nil {
		return nil
	}
	if err := fill(r.file); err != nil {
		return fmt.Errorf("%s: %w", r.flag, err)
	}
	if r.temporary() {
		err := staging.Finish(r.file.Name(), r.path)
		if err == nil {
			err = os.Rename(r.file.Name(), r.path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.flag, err)
		}
	}
	err := r.file.Close()
	r.file = nil
	return err
}

func (r *reportFile) temporary() bool { return r.file != nil && r.file.Name() != r.path }

// close closes the file, and removes it unless write succeeded.
func (r *reportFile) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	if r.temporary() {
		err = errors.Join(err, r.remove())
	}
	r.file = nil
	return err
}
