package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/sink"
	sinkexchange "github.com/gstream/gstream/sink/exchange"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source"
	sourceexchange "github.com/gstream/gstream/source/exchange"
	"github.com/gstream/gstream/source/store"
)

// taskVersion is the version of the format of task documents and of their results.
const taskVersion = 4

// taskDocument is a task in JSON: a part of a plan for one process, with the files that it reads and the name of what
// it writes.
type taskDocument struct {
	Version int    `json:"task_version"`
	Plan    int    `json:"plan_version"`
	Run     string `json:"run"`  // of all tasks of a run
	Name    string `json:"name"` // such as "fragment 2, task 3 of 8"
	Written written
	Tables  map[string]*sharedTable
	// Rows are those of earlier tasks, by the names of the scans.
	Rows   map[string]*rowsOfTasks
	Stages *physical.Plan
	// Out is the path of what the task writes, without an end: the result is Out.json, and the rows of an attempt are
	// in Out-ATTEMPT.rows.
	Out        string
	Partitions int
	Sample     []int `json:",omitempty"`
	// Output, if set, is the output of which the task writes files, in place of rows for other tasks.
	Output *partsDocument `json:",omitempty"`
}

// rowsOfTasks is what a task reads of the rows of earlier tasks, in order.
type rowsOfTasks struct {
	Schema *gpu.Schema
	Files  []sourceexchange.File
}

// TaskResult is the result of a task. It is written as JSON by the first attempt that succeeds.
type TaskResult struct {
	Version int    `json:"task_version"`
	Run     string `json:"run"`
	Name    string `json:"name"`
	Attempt string `json:"attempt"`
	// Path and Size are those of the file of rows, Parts its partitions, and Pages where they are.
	Path  string                `json:"path"`
	Size  int64                 `json:"size"`
	Parts []sourceexchange.Part `json:"parts"`
	Pages []sourceexchange.Page `json:"pages"`
	// Files are those of the output that the task has written, in place of rows for other tasks.
	Files []sinkparquet.Part `json:"files,omitempty"`
	// Read is what the task has read of the rows of earlier tasks, by the names of its scans.
	Read   map[string]sourceexchange.Part `json:"read,omitempty"`
	Device string                         `json:"device"`
	Wall   time.Duration                  `json:"wall_ns"`
	// Bytes is what it has read from tables, as they are stored.
	Bytes int64 `json:"bytes_read"`
}

// file returns the file of rows, of which some pages are read.
func (r *TaskResult) file(pages []sourceexchange.Page) sourceexchange.File {
	return sourceexchange.File{Path: r.Path, Size: r.Size, Pages: pages}
}

// total returns all rows that the task has written.
func (r *TaskResult) total() (all sourceexchange.Part) {
	for _, p := range r.Parts {
		all.Add(p)
	}
	return all
}

// resultPath returns the path of the result of a task.
func (d *taskDocument) resultPath() string { return d.Out + ".json" }

// RunTask runs a task: a document that RunTasks has made. It writes the rows and the result to the paths that the
// document names. If the task has a result already, RunTask returns that, so a task may run any number of times, also
// at the same time: the first attempt that ends counts, and others remove what they wrote. Run only documents from a
// trusted source: they read and write whatever files they name.
func RunTask(ctx context.Context, document []byte, opt RunOptions) (_ *TaskResult, err error) {
	defer func() { err = class.Mark(ctx, err) }()
	d, err := decodeTask(document)
	if err != nil {
		return nil, err
	}
	if known, err := d.result(ctx); known != nil || err != nil {
		return known, err
	}
	p, rows, err := d.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	defer p.Close()
	return d.run(ctx, p, rows, opt)
}

// RunTaskFile is RunTask of a document in a file or an object.
func RunTaskFile(ctx context.Context, path string, opt RunOptions) (*TaskResult, error) {
	document, err := readSmall(ctx, path)
	if err != nil {
		return nil, class.Mark(ctx, fmt.Errorf("read a task: %w", err))
	}
	return RunTask(ctx, document, opt)
}

// ResultOfTask returns the result of the task of a document in a file or an object, or nil if there is none yet.
func ResultOfTask(ctx context.Context, path string) (*TaskResult, error) {
	document, err := readSmall(ctx, path)
	if err != nil {
		return nil, class.Mark(ctx, fmt.Errorf("read a task: %w", err))
	}
	d, err := decodeTask(document)
	if err != nil {
		return nil, err
	}
	return d.result(ctx)
}

// decodeTask returns the task of a document.
func decodeTask(document []byte) (*taskDocument, error) {
	var version struct {
		Version int `json:"task_version"`
		Plan    int `json:"plan_version"`
	}
	if err := json.Unmarshal(document, &version); err != nil {
		return nil, fmt.Errorf("%w: decode the task: %w", ErrJob, err)
	}
	if version.Version != taskVersion || version.Plan != planVersion {
		return nil, fmt.Errorf("%w: decode the task: it is of version %d.%d, and this program runs version %d.%d: use "+
			"one version of gstream on all machines", ErrJob, version.Version, version.Plan, taskVersion, planVersion)
	}
	var d taskDocument
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, fmt.Errorf("%w: decode the task: %w", ErrJob, err)
	}
	if d.Stages == nil || d.Out == "" || len(d.Stages.Outputs) != 1 || d.Partitions < 1 ||
		d.Partitions > sourceexchange.MaxPartitions || d.Run == "" || d.Output != nil && d.Partitions > 1 {
		return nil, fmt.Errorf("%w: decode the task: it is incomplete", ErrJob)
	}
	if err := d.Output.check(); err != nil {
		return nil, fmt.Errorf("%w: decode the task: %w", ErrJob, err)
	}
	return &d, nil
}

// result returns the result of the task, nil if there is none yet.
func (d *taskDocument) result(ctx context.Context) (*TaskResult, error) {
	text, err := readSmall(ctx, d.resultPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read its result: %w", d.Name, err)
	}
	var r TaskResult
	if err := json.Unmarshal(text, &r); err != nil || r.Run != d.Run || r.Name != d.Name ||
		len(r.Parts) != d.Partitions {
		return nil, fmt.Errorf("%s: %w: %s is not its result", d.Name, source.ErrData, d.resultPath())
	}
	return &r, nil
}

// open opens what the task reads. It returns the rows of earlier tasks by the names of the scans.
func (d *taskDocument) open(ctx context.Context) (p *Plan, rows map[string]*sourceexchange.Table, err error) {
	plan := &Plan{written: d.Written, tables: map[string]source.Table{}, stages: d.Stages}
	defer func() {
		if err != nil {
			plan.Close()
		}
	}()
	for name, shared := range d.Tables {
		if plan.tables[name], err = shared.open(ctx); err != nil {
			delete(plan.tables, name)
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if rows, err = openRows(d.Rows, plan.tables); err != nil {
		return nil, nil, err
	}
	return plan, rows, plan.stages.Bind(plan.tables)
}

// openRows opens rows of tasks, and adds them to tables.
func openRows(all map[string]*rowsOfTasks, tables map[string]source.Table) (
	rows map[string]*sourceexchange.Table, err error) {
	rows = map[string]*sourceexchange.Table{}
	for name, r := range all {
		if r == nil || r.Schema == nil || tables[name] != nil {
			return nil, fmt.Errorf("%w: the rows %q have no columns, or a name twice", ErrJob, name)
		}
		if rows[name], err = sourceexchange.Open(r.Schema, r.Files); err != nil {
			return nil, err
		}
		tables[name] = rows[name]
	}
	return rows, nil
}

// run runs the task over open tables.
func (d *taskDocument) run(ctx context.Context, p *Plan, rows map[string]*sourceexchange.Table, opt RunOptions) (
	*TaskResult, error) {
	var random [6]byte
	rand.Read(random[:])
	r := &TaskResult{Version: taskVersion, Run: d.Run, Name: d.Name, Attempt: hex.EncodeToString(random[:]),
		Read: map[string]sourceexchange.Part{}}
	var target taskTarget = &rowsTarget{path: d.Out + "-" + r.Attempt + ".rows", partitions: d.Partitions,
		sample: d.Sample}
	if d.Output != nil {
		target = &partsTarget{parquetTarget: &parquetTarget{path: d.Output.Path, opt: d.Output.Options},
			to: sinkparquet.PartOptions{Folder: d.Output.Folder, First: d.Output.First, Number: d.Output.Number,
				Attempt: d.Output.Attempts + r.Attempt[len(d.Output.Attempts):]}}
	}
	p.targets = []Target{target}
	report, err := p.Run(ctx, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	r.Size, r.Device, r.Wall = report.Output.Bytes, report.Device, report.Wall
	target.tell(r)
	for _, s := range report.Stages {
		if s.Scan != nil {
			r.Bytes += s.Scan.BytesRead
		}
	}
	for name, t := range rows {
		r.Read[name] = t.Total()
		r.Bytes -= t.Total().Bytes
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	err = writeOnce(ctx, d.resultPath(), text)
	if err == nil {
		return r, nil
	}
	removed := target.remove(context.WithoutCancel(ctx))
	if !errors.Is(err, fs.ErrExist) {
		return nil, errors.Join(fmt.Errorf("%s: write its result: %w", d.Name, err), removed)
	}
	first, err := d.result(ctx)
	return first, errors.Join(err, removed)
}

// taskTarget is what a task writes.
type taskTarget interface {
	Target
	// tell adds to a result what was written.
	tell(r *TaskResult)
	// remove removes it.
	remove(ctx context.Context) error
}

// rowsTarget writes the rows of a task.
type rowsTarget struct {
	path       string
	partitions int
	sample     []int
	writer     *sinkexchange.Writer
}

// Create implements Target.
func (t *rowsTarget) Create(schema *gpu.Schema, opt TargetOptions) (sink.Sink, error) {
	o := sinkexchange.Options{Partitions: t.partitions, Sample: t.sample}
	return createOne(t.path, opt, &o.Options, func(path string) (temporary, error) {
		w, err := sinkexchange.Create(path, schema, o)
		t.writer = w
		return w, err
	})
}

func (t *rowsTarget) tell(r *TaskResult) {
	x := t.writer.Index()
	r.Path, r.Parts, r.Pages = t.path, x.Parts(), x.Pages
}

func (t *rowsTarget) remove(ctx context.Context) error { return remove(ctx, t.path) }

// Describe implements Target.
func (t *rowsTarget) Describe() string { return store.Display(t.path) }

// takesEnums implements enumTarget.
func (*rowsTarget) takesEnums() {}

// maxSmall bounds the bytes of a document and of a result.
const maxSmall = 256 << 20

// readSmall reads a small file or object.
func readSmall(ctx context.Context, path string) ([]byte, error) {
	if staging.IsObject(path) {
		text, _, err := store.Get(ctx, path, maxSmall)
		return text, err
	}
	return os.ReadFile(path)
}

// writeOnce writes a small file or object unless there is one: then the error is fs.ErrExist.
func writeOnce(ctx context.Context, path string, text []byte) error {
	if staging.IsObject(path) {
		_, err := store.Put(ctx, path, text, store.Condition{Absent: true})
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".result-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path) // unlike a rename, it fails if there is one
}

// remove removes a file or an object.
func remove(ctx context.Context, path string) error {
	if staging.IsObject(path) {
		return store.Delete(ctx, path)
	}
	return os.Remove(path)
}

// under returns the path of a file in a folder, which may be a prefix of objects.
func under(folder, name string) string {
	if staging.IsObject(folder) {
		return strings.TrimSuffix(folder, "/") + "/" + name
	}
	return filepath.Join(folder, name)
}
