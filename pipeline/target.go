package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	sinkarrow "github.com/gstream/gstream/sink/arrow"
	"github.com/gstream/gstream/sink/ordered"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/sink/staging"
	sinktext "github.com/gstream/gstream/sink/text"
)

// parquetTarget writes Parquet files.
type parquetTarget struct {
	path string
	opt  sinkparquet.Options
	// Files of the output that tasks have written, in a folder next to it.
	folder string
	parts  []sinkparquet.Part
}

func (t *parquetTarget) Create(schema *gpu.Schema, opt TargetOptions) (sink.Sink, error) {
	o := t.options(opt)
	o.Discard = opt.Discard
	o.Overwrite = o.Overwrite || opt.Overwrite && !o.Append && !o.OverwritePartitions
	return create(t.path, opt, func(path string) (temporary, error) {
		w, err := sinkparquet.Create(path, schema, o)
		if err == nil {
			w.Adopt(t.folder, t.parts)
		}
		return w, err
	})
}

// options returns the options of the output with those of a run.
func (t *parquetTarget) options(opt TargetOptions) sinkparquet.Options {
	o := t.opt
	o.Lease, o.Threads, o.Trace, o.Sorted = opt.Lease, opt.Threads, opt.Trace, opt.Sorted
	o.Devices, o.AnyOrder = opt.Devices, opt.AnyOrder
	return o
}

// enumTarget is a target that has columns of ENUM, as dictionaries of Arrow. Others get their texts.
type enumTarget interface{ takesEnums() }

func (*arrowTarget) takesEnums() {}
func (*Collector) takesEnums()   {}
func (RecordFunc) takesEnums()   {}

// textTarget writes a file of CSV or JSON lines, or standard output.
type textTarget struct {
	path string
	opt  sinktext.Options
}

func (t *textTarget) Create(schema *gpu.Schema, opt TargetOptions) (sink.Sink, error) {
	o := t.opt
	return createOne(t.path, opt, &o.Options, func(path string) (temporary, error) {
		return sinktext.Create(path, schema, o)
	})
}

func (t *textTarget) Describe() string { return describeOne(t.path) }

// Irrevocable implements Irrevocable.
func (t *textTarget) Irrevocable() bool { return t.path == ordered.Standard }

// arrowTarget writes a file of Arrow's IPC format, or standard output.
type arrowTarget struct {
	path string
	opt  sinkarrow.Options
}

func (t *arrowTarget) Create(schema *gpu.Schema, opt TargetOptions) (sink.Sink, error) {
	o := t.opt
	return createOne(t.path, opt, &o.Options, func(path string) (temporary, error) {
		return sinkarrow.Create(path, schema, o)
	})
}

func (t *arrowTarget) Describe() string { return describeOne(t.path) }

// Irrevocable implements Irrevocable.
func (t *arrowTarget) Irrevocable() bool { return t.path == ordered.Standard }

// createOne starts an output of one file, or standard output, by a function for which it sets the options.
func createOne(path string, opt TargetOptions, o *ordered.Options, start func(path string) (temporary, error)) (
	sink.Sink, error) {
	o.Lease, o.Threads, o.Trace, o.Discard = opt.Lease, opt.Threads, opt.Trace, opt.Discard
	o.Overwrite = o.Overwrite || opt.Overwrite
	if path == ordered.Standard {
		return start(path)
	}
	return create(path, opt, start)
}

func describeOne(path string) string {
	if path == ordered.Standard {
		return "standard output"
	}
	return path
}

// temporary is a sink whose output has a temporary name until Commit.
type temporary interface {
	sink.Sink
	RemoveTemporary() error
}

// create makes the folders of an output, and starts it by a function.
func create(to string, opt TargetOptions, start func(path string) (temporary, error)) (sink.Sink, error) {
	// The caller learns of the leftover before anything is created. Its remove waits for the lock,
	// until all parts are created.
	var made leftover
	made.mu.Lock()
	defer made.mu.Unlock()
	if opt.Leftover != nil {
		opt.Leftover(made.remove)
	}
	if staging.IsObject(to) {
		w, err := start(to)
		if err != nil {
			return nil, err
		}
		made.add(w.RemoveTemporary)
		return w, nil
	}
	f, err := makeFolders(filepath.Dir(filepath.Clean(to)))
	made.add(f.remove)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the folder of the output: %w", err), f.remove())
	}
	path := to
	if opt.Discard {
		path = staging.Sibling(filepath.Clean(path), fmt.Sprintf(".discarded-%d", os.Getpid()))
		if strings.HasSuffix(to, "/") {
			path += "/"
		}
	}
	w, err := start(path)
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	made.add(w.RemoveTemporary)
	if s, ok := w.(sink.Staged); ok && !opt.Discard {
		return &stagedSink{folderSink{w, f}, s}, nil
	}
	if opt.Discard {
		made.add(func() error { return os.RemoveAll(path) })
		return &folderSink{&discardSink{w, path}, f}, nil
	}
	return &folderSink{w, f}, nil
}

// leftover has what an output has created, for callers that end the process in the middle of a run.
type leftover struct {
	mu    sync.Mutex
	steps []func() error
}

// add adds a function that removes a part. The caller holds the lock.
func (l *leftover) add(remove func() error) { l.steps = append(l.steps, remove) }

// remove removes the parts, the last one first.
func (l *leftover) remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, remove := range slices.Backward(l.steps) {
		errs = append(errs, remove())
	}
	return errors.Join(errs...)
}

func (t *parquetTarget) Describe() string { return t.path }

func (t *parquetTarget) Divides() bool { return len(t.opt.PartitionBy) > 0 }

func (t *parquetTarget) FromOneDevice(ordered bool) bool { return t.opt.FromOneDevice(ordered) }

func (t *parquetTarget) EncodedByDevice(result *gpu.Schema) []bool {
	return t.opt.EncodedByDevice(result)
}

// folders are the folders that a run has created for its output, outermost first.
type folders []string

// makeFolders creates a folder and its missing parents. It returns the folders that it has created,
// even after an error.
func makeFolders(path string) (folders, error) {
	var missing folders
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) || p == filepath.Dir(p) {
			break
		}
		missing = append(missing, p)
	}
	slices.Reverse(missing)
	for i, p := range missing {
		if err := os.Mkdir(p, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return missing[:i], err
		}
	}
	return missing, nil
}

// remove removes the folders that are still empty.
func (f folders) remove() error {
	for _, p := range slices.Backward(f) {
		if os.Remove(p) != nil {
			break // it is no longer empty
		}
	}
	return nil
}

// discardSink removes its output as soon as it is complete.
type discardSink struct {
	sink.Sink
	path string
}

// Unwrap implements sink.Wrapper.
func (s *discardSink) Unwrap() sink.Sink { return s.Sink }

func (s *discardSink) Commit(ctx context.Context) error {
	return errors.Join(s.Sink.Commit(ctx), os.RemoveAll(s.path))
}

// folderSink is a sink whose output is in folders that were created for it.
type folderSink struct {
	sink.Sink
	folders folders
}

// Unwrap implements sink.Wrapper.
func (s *folderSink) Unwrap() sink.Sink { return s.Sink }

func (s *folderSink) Commit(ctx context.Context) error {
	err := s.Sink.Commit(ctx)
	_, discarded := s.Sink.(*discardSink)
	if err != nil || discarded {
		s.folders.remove()
	}
	return err
}

// stagedSink is a folderSink whose output can get its name together with others.
type stagedSink struct {
	folderSink
	staged sink.Staged
}

// Stage implements sink.Staged.
func (s *stagedSink) Stage(ctx context.Context) ([]staging.Change, error) {
	changes, err := s.staged.Stage(ctx)
	if err != nil {
		s.folders.remove()
	}
	return changes, err
}

// Published implements sink.Staged.
func (s *stagedSink) Published() error { return s.staged.Published() }

func (s *folderSink) Abort() error {
	return errors.Join(s.Sink.Abort(), s.folders.remove())
}
