package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source"
	sourceexchange "github.com/gstream/gstream/source/exchange"
	sourceparquet "github.com/gstream/gstream/source/parquet"
	"github.com/gstream/gstream/source/store"
)

// inParts returns the target of an output if the workers can write its files.
func (p *Plan) inParts(output int, to TaskOptions) (*parquetTarget, bool) {
	t, ok := p.targets[output].(*parquetTarget)
	return t, ok && t.opt.InParts(t.path) && (to.Local || sameStorage(t.path, to.Folder))
}

// sameStorage reports whether a path and a folder are in one file system, or in stores of one kind. The path need not
// exist.
func sameStorage(path, folder string) bool {
	if folder == "" || staging.IsObject(folder) || staging.IsObject(path) {
		return store.Scheme(path) == store.Scheme(folder) && folder != ""
	}
	device := func(path string) (device uint64, known bool) {
		path, err := filepath.Abs(path)
		if err != nil {
			return 0, false
		}
		v, err := store.Stat(context.Background(), path)
		for errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
			path = filepath.Dir(path)
			v, err = store.Stat(context.Background(), path)
		}
		return v.Device, err == nil && v.Inode != 0
	}
	one, ok := device(path)
	other, also := device(folder)
	return ok && also && one == other
}

// partsOutput is an output whose files the tasks of a fragment write: local ones into a folder next to it, or uploads
// of objects. The output adopts those of the attempts that count, and the run removes the others.
type partsOutput struct {
	target   *parquetTarget
	folder   string
	attempts string // begin with these digits
	first    int    // of sinkparquet.PartOptions
	lock     *os.File
	made     folders // that were made for the output
}

// partsDocument is the output of a task in JSON.
type partsDocument struct {
	Path    string // of the output, for people
	Folder  string // of the files, or the output in a store
	First   int    `json:",omitempty"`
	Number  int    // of the task
	Options sinkparquet.Options
	// Attempts are the digits with which the names of attempts begin.
	Attempts string
}

// begin makes the folder of local files. It belongs to the run: the next output there removes those of runs that were
// killed.
func (o *partsOutput) begin(ctx context.Context, opt RunOptions) (err error) {
	if staging.IsObject(o.target.path) {
		o.folder = o.target.path
		if o.first, err = sinkparquet.FirstPart(ctx, o.folder, o.target.opt); err == nil && opt.Leftover != nil {
			opt.Leftover(o.remove)
		}
		return err
	}
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
func (o *partsOutput) document(task int) *partsDocument {
	return &partsDocument{Path: o.target.path, Folder: o.folder, First: o.first, Number: task, Options: o.target.opt,
		Attempts: o.attempts}
}

// check checks that the files of tasks are there, with the sizes and the rows that the tasks have written. Of an object
// a store checks the parts when it joins them.
func (o *partsOutput) check(results []*TaskResult) error {
	for _, r := range results {
		var rows int64
		var paths []string
		sizes := map[string]int64{}
		for _, f := range r.Files {
			path := filepath.Join(o.folder, f.Name)
			paths, sizes[path], rows = append(paths, path), f.Bytes, rows+f.Rows
		}
		if staging.IsObject(o.folder) && r.total().Rows == rows || len(paths) == 0 && r.total().Rows == 0 {
			continue
		}
		if staging.IsObject(o.folder) {
			return fmt.Errorf("%w: the files of the output that %s has written have %d rows in place of %d",
				source.ErrData, r.Name, rows, r.total().Rows)
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

// sweep removes what tasks have written and the output has not adopted, and the folders that were made for an output
// that there is not.
func (o *partsOutput) sweep() (err error) {
	if o.folder != "" {
		err = o.remove()
	}
	if o.lock != nil {
		err = errors.Join(err, o.lock.Close())
	}
	return errors.Join(err, o.made.remove())
}

func (o *partsOutput) remove() error {
	if !staging.IsObject(o.folder) {
		return staging.RemoveFolder(o.folder)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return sinkparquet.AbortParts(ctx, o.folder, o.attempts)
}

// check returns an error for a document that no run has made.
func (d *partsDocument) check() error {
	if d == nil {
		return nil
	}
	if d.Folder == "" || d.First < 0 || d.Number < 0 || !attemptDigits.MatchString(d.Attempts) {
		return errors.New("its output has no folder, or it is no part of it")
	}
	d.Options.EnsureDefaults()
	return d.Options.Validate()
}

// attemptDigits is how names of attempts begin.
var attemptDigits = regexp.MustCompile("^[0-9a-f]{6}$")

// partsTarget writes files of an output.
type partsTarget struct {
	*parquetTarget
	to     sinkparquet.PartOptions
	writer *sinkparquet.Writer
}

// Create implements Target.
func (t *partsTarget) Create(schema *gpu.Schema, opt TargetOptions) (sink.Sink, error) {
	w, err := sinkparquet.CreateParts(t.to, schema, t.options(opt))
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
