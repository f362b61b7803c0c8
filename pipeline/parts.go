package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source"
	sourceexchange "github.com/gstream/gstream/source/exchange"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// inParts returns the target of an output if the workers can write its files.
func (p *Plan) inParts(output int, to TaskOptions) (*parquetTarget, bool) {
	t, ok := p.targets[output].(*parquetTarget)
	return t, ok && t.opt.InParts(t.path) && (to.Local || sameFileSystem(t.path, to.Folder))
}

// sameFileSystem reports whether a local path and a folder are in one file system. The path need not exist.
func sameFileSystem(path, folder string) bool {
	if folder == "" || staging.IsObject(folder) {
		return false
	}
	device := func(path string) (uint64, bool) {
		path, err := filepath.Abs(path)
		info, wrong := os.Stat(path)
		for err == nil && errors.Is(wrong, fs.ErrNotExist) && path != filepath.Dir(path) {
			path = filepath.Dir(path)
			info, wrong = os.Stat(path)
		}
		if err != nil || wrong != nil {
			return 0, false
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		return uint64(s.Dev), ok
	}
	one, ok := device(path)
	other, also := device(folder)
	return ok && also && one == other
}

// partsOutput is an output whose files the tasks of a fragment write, into a folder next to it. The run moves those of
// the attempts that count into the output, and removes the folder.
type partsOutput struct {
	target *parquetTarget
	folder string
	lock   *os.File
	made   folders // that were made for the output
}

// partsDocument is the output of a task in JSON.
type partsDocument struct {
	Path    string // of the output, for people
	Folder  string // of the files
	Options sinkparquet.Options
}

// makeFolder makes the folder of the files. It belongs to the run: the next output there removes those of runs that
// were killed.
func (o *partsOutput) makeFolder(opt RunOptions) (err error) {
	target := filepath.Clean(o.target.path)
	if !opt.Discard {
		if target, err = staging.Resolve(target); err != nil {
			return err
		}
	}
	if target, err = filepath.Abs(target); err != nil {
		return err
	}
	if o.made, err = makeFolders(filepath.Dir(target)); err != nil {
		return err
	}
	if err := staging.Sweep(filepath.Dir(target)); err != nil {
		return err
	}
	if o.folder, o.lock, err = staging.Folder(target); err == nil && opt.Leftover != nil {
		opt.Leftover(o.remove)
	}
	return err
}

// document returns the output in the document of a task.
func (o *partsOutput) document() *partsDocument {
	return &partsDocument{o.target.path, o.folder, o.target.opt}
}

// check checks that the files of tasks are there, with the sizes and the rows that the tasks have written.
func (o *partsOutput) check(results []*TaskResult) error {
	for _, r := range results {
		var rows int64
		var paths []string
		sizes := map[string]int64{}
		for _, f := range r.Files {
			path := filepath.Join(o.folder, f.Name)
			paths, sizes[path], rows = append(paths, path), f.Bytes, rows+f.Rows
		}
		if len(paths) == 0 && r.total().Rows == 0 {
			continue
		}
		t, err := sourceparquet.Open(paths, sourceparquet.OpenOptions{NoPartitions: true})
		if err != nil {
			return fmt.Errorf("a file of the output: %w", err)
		}
		wrong := t.Rows() != rows || r.total().Rows != rows
		for path, size := range t.Files() {
			wrong = wrong || sizes[path] != size
		}
		if err := t.Close(); err != nil {
			return err
		}
		if wrong {
			return fmt.Errorf("%w: the files of the output that %s has written have %d rows in place of %d, or other "+
				"sizes", source.ErrData, r.Name, t.Rows(), r.total().Rows)
		}
	}
	return nil
}

// adopted returns the target that commits the files of the tasks, in their order.
func (o *partsOutput) adopted(results []*TaskResult) *parquetTarget {
	t := *o.target
	t.folder = o.folder
	for _, r := range results {
		t.parts = append(t.parts, r.Files...)
	}
	return &t
}

// sweep removes the folder, and those that were made for the output if there is none.
func (o *partsOutput) sweep() (err error) {
	if o.lock != nil {
		err = errors.Join(o.remove(), o.lock.Close())
	}
	return errors.Join(err, o.made.remove())
}

func (o *partsOutput) remove() error { return staging.RemoveFolder(o.folder) }

// check returns an error for a document that no run has made.
func (d *partsDocument) check() error {
	if d == nil {
		return nil
	}
	if d.Folder == "" || staging.IsObject(d.Folder) {
		return errors.New("its output has no folder")
	}
	d.Options.EnsureDefaults()
	return d.Options.Validate()
}

// partsTarget writes files of an output.
type partsTarget struct {
	*parquetTarget
	folder, attempt string
	writer          *sinkparquet.Writer
}

// Create implements Target.
func (t *partsTarget) Create(schema *gpu.Schema, opt TargetOptions) (sink.Sink, error) {
	w, err := sinkparquet.CreateParts(t.folder, t.attempt, schema, t.options(opt))
	if err != nil {
		return nil, err
	}
	if t.writer = w; opt.Leftover != nil {
		opt.Leftover(w.RemoveTemporary)
	}
	return w, nil
}

func (t *partsTarget) tell(r *TaskResult) {
	stats := t.writer.Stats()
	r.Files, r.Parts = t.writer.Parts(), []sourceexchange.Part{{Rows: stats.Rows, Bytes: stats.Bytes}}
}

func (t *partsTarget) remove(context.Context) error { return t.writer.RemoveTemporary() }
