package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/internal/runner"
	"github.com/gstream/gstream/pipeline/internal/tasks"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source"
	sourceexchange "github.com/gstream/gstream/source/exchange"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/spill"
)

// Engine runs tasks somewhere.
type Engine interface {
	// Run runs a task and returns once it has ended: see RunTask. path is that of its document. worker is the number of
	// the worker, from 0 on, that does nothing else at the time. An error that ErrLost matches may be over in another
	// attempt. Others end the run.
	Run(ctx context.Context, worker int, path string) (*TaskResult, error)
	// Describe returns a line for people.
	Describe() string
}

// ErrLost is the class of errors of a task that may succeed if it runs again: its process was killed, a device or a
// disk has failed, or a store did not answer.
var ErrLost = errors.New("the task was lost")

// TaskOptions configure RunTasks.
type TaskOptions struct {
	Engine Engine
	// Workers is the number of tasks that run at the same time.
	Workers int
	// Folder is for the files by which tasks exchange rows: a folder that all workers see, or a prefix of objects. A
	// run makes a folder of its own in it, and removes it at the end. "" means the folder of spilled rows.
	Folder string
	// Local says that all workers run on this machine, so that they can write files of outputs. Otherwise they do so if
	// an output is in the file system of Folder, or in a store of the same kind.
	Local bool
	// LeastBytes is the bytes of input from which another task pays; 0 means 32 MiB.
	LeastBytes int64
	// Patience is how many times the median time of its fragment a task takes before it also runs on an idle worker;
	// 0 means 3, and a negative one never.
	Patience float64
}

// The defaults of TaskOptions.
const (
	leastTaskBytes  = 32 << 20
	partsPerWorker  = 4 // partitions of an exchange
	taskFailures    = 3 // attempts of a task that may be lost
	leastPatience   = 2 * time.Second
	defaultPatience = 3
)

// RunTasks is Run on several workers, which are processes on this machine or on others. The plan is cut at its
// exchanges into fragments. Each fragment is computed by tasks, which read shares of the tables and rows of earlier
// tasks. The last ones write the files of an output that is a folder of any number of Parquet files. This process reads
// the rows of the other outputs and writes them, and commits all outputs together.
//
// The rows and their order are those of Run. The report is that of the last part, with the fragments in Report.Tasks.
// Tasks share the rows of Parquet, the record batches of Arrow, and the files of CSV and JSON. Tables that cannot be
// shared are read by this process, for the tasks.
func (p *Plan) RunTasks(ctx context.Context, opt RunOptions, to TaskOptions) (_ *Report, err error) {
	defer func() { err = class.Mark(ctx, err) }()
	cut := p.cut(opt, to)
	if len(cut.fragments) == 0 {
		return p.Run(ctx, opt)
	}
	r := newTaskRun(p, cut, opt, to)
	if err := r.makeFolder(); err != nil {
		return nil, fmt.Errorf("make the folder of the tasks: %w", err)
	}
	defer func() { err = errors.Join(err, r.sweep()) }()
	for _, f := range r.fragments {
		if f.output != nil {
			defer func() { err = errors.Join(err, f.output.sweep()) }()
			if err := f.output.begin(ctx, r.opt); err != nil {
				return nil, fmt.Errorf("begin an output: %w", err)
			}
		}
	}
	stop := r.watch()
	defer stop()
	if err := r.runFragments(ctx); err != nil {
		return nil, p.written.explain(err)
	}
	stop()
	return r.finish(ctx, cut)
}

func newTaskRun(p *Plan, cut cutPlan, opt RunOptions, to TaskOptions) *taskRun {
	r := &taskRun{plan: p, opt: p.written.options(opt), to: to, run: fmt.Sprintf("%016x", rand.Uint64()),
		seed: rand.Uint64(), begun: time.Now(), parts: to.partitions()}
	for _, f := range cut.fragments {
		one := &fragmentRun{taskRun: r, Fragment: f, rows: map[*physical.Stage]string{}}
		if to := cut.outputs[f]; to != nil {
			one.output = &partsOutput{target: to, attempts: fmt.Sprintf("%06x", rand.Uint32()>>8)}
		}
		for s := range f.Reads {
			one.rows[s] = fmt.Sprintf("rows %d", len(one.rows)+1)
		}
		r.fragments = append(r.fragments, one)
	}
	return r
}

// makeFolder makes the folder of the run.
func (r *taskRun) makeFolder() (err error) {
	parent := r.to.Folder
	if staging.IsObject(parent) {
		r.folder = under(parent, fmt.Sprintf("gstream-tasks-%s-%s", r.begun.UTC().Format("20060102T150405Z"), r.run))
		return nil
	}
	if parent == "" {
		if parent = r.opt.SpillDir; parent == "" || parent == spill.None {
			parent = spill.DefaultDir()
		}
	}
	if parent, err = filepath.Abs(parent); err != nil {
		return err
	}
	target := filepath.Join(parent, "gstream-tasks")
	staging.SweepFolders(target) // of runs that were killed
	if r.folder, r.lock, err = staging.Folder(target); err != nil {
		return err
	}
	if r.opt.Leftover != nil {
		r.opt.Leftover(func() error { return staging.RemoveFolder(r.folder) })
	}
	return os.Chmod(r.folder, 0o700)
}

// watch reports the progress of the tasks until the function that it returns is called.
func (r *taskRun) watch() (stop func()) {
	if r.opt.Progress == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		t := time.NewTicker(cmp.Or(r.opt.Interval, time.Second))
		defer t.Stop()
		for {
			select {
			case <-t.C:
				r.opt.Progress(&Report{Job: r.plan.stages.Name, Wall: time.Since(r.begun), Tasks: r.report(),
					Stages: []StageReport{}})
			case <-ended:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(ended); watching.Wait() })
}

// taskRun is a run of tasks.
type taskRun struct {
	plan      *Plan
	opt       RunOptions
	to        TaskOptions
	fragments []*fragmentRun
	run       string
	seed      uint64
	parts     int // partitions of an exchange
	begun     time.Time
	folder    string
	lock      *os.File // of the folder, in the local file system

	mu sync.Mutex // of results, which reports read meanwhile
}

// fragmentRun is a fragment in a run.
type fragmentRun struct {
	*taskRun
	*physical.Fragment
	rows      map[*physical.Stage]string // names of the scans of what it reads
	packed    [][]tasks.Split            // partitions, by share
	divided   *physical.Stage            // whose partitions may be divided; nil for none
	documents []string                   // paths, by task
	names     []string
	results   []*TaskResult
	output    *partsOutput          // that the tasks write; nil for none
	sent      []sourceexchange.Part // by all tasks, by partition, once all have ended
	splitters [][]gpu.Scalar        // of a fragment by ranges
	began     time.Time
	ended     time.Time
	lost      int
	running   int // attempts
}

// runFragments runs all tasks.
func (r *taskRun) runFragments(ctx context.Context) error {
	s := &tasks.Schedule{Failures: taskFailures, Patience: defaultPatience, Least: leastPatience}
	if r.to.Patience != 0 {
		s.Patience = max(r.to.Patience, 0)
	}
	for _, f := range r.fragments {
		var inputs []int
		for _, in := range f.Reads {
			inputs = append(inputs, in.From.Number)
		}
		s.Fragments = append(s.Fragments, tasks.Fragment{Inputs: inputs,
			Begin: func() ([]int64, error) { return f.begin(ctx) }, End: f.end})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type event struct {
		tasks.Attempt
		worker int
		result *TaskResult
		err    error
	}
	events := make(chan event)
	var free []int
	for i := range max(r.to.Workers, 1) {
		free = append(free, i)
	}
	workers := len(free)
	stops := map[tasks.Attempt]context.CancelFunc{}
	clock := func() time.Duration { return time.Since(r.begun) }
	for !s.Done() || len(free) < workers {
		var timer <-chan time.Time
		for len(free) > 0 && ctx.Err() == nil && !s.Done() {
			a, ok, until := s.Next(clock())
			if !ok {
				if until > 0 {
					timer = time.After(max(until-clock(), time.Millisecond))
				}
				break
			}
			worker := free[0]
			free = free[1:]
			one, stop := context.WithCancel(ctx)
			stops[a] = stop
			r.count(a, 1)
			go func() {
				result, err := r.fragments[a.Fragment].attempt(one, a.Task, worker)
				r.count(a, -1)
				events <- event{a, worker, result, err}
			}()
		}
		if s.Done() || ctx.Err() != nil {
			for _, stop := range stops {
				stop()
			}
			if len(free) == workers {
				break
			}
		}
		select {
		case <-timer:
			continue
		case <-ctx.Done():
			if len(free) == workers {
				continue
			}
			e := <-events
			free = append(free, e.worker)
			stops[e.Attempt]()
			delete(stops, e.Attempt)
			continue
		case e := <-events:
			free = append(free, e.worker)
			stops[e.Attempt]()
			delete(stops, e.Attempt)
			f := r.fragments[e.Fragment]
			switch {
			case e.err == nil:
				r.mu.Lock()
				f.results[e.Task] = e.result
				r.mu.Unlock()
				if s.Ended(e.Attempt, clock()); s.Err() == nil {
					slog.Debug("task", "name", f.names[e.Task], "rows", e.result.total().Rows, "wall", e.result.Wall)
				}
			case s.Open(e.Attempt):
				r.mu.Lock()
				f.lost++
				r.mu.Unlock()
				again := errors.Is(e.err, ErrLost)
				if again {
					slog.Warn("a task was lost", "task", f.names[e.Task], "error", e.err)
				}
				s.Lost(e.Attempt, again, e.err)
			default:
				s.Lost(e.Attempt, false, e.err)
			}
			for a, stop := range stops { // of no use any more
				if !s.Open(a) {
					stop()
				}
			}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return s.Err()
}

// count adds to the number of attempts that run.
func (r *taskRun) count(a tasks.Attempt, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fragments[a.Fragment].running += n
}

// attempt runs a task once.
func (f *fragmentRun) attempt(ctx context.Context, task, worker int) (*TaskResult, error) {
	if !f.Here {
		result, err := f.to.Engine.Run(ctx, worker, f.documents[task])
		if err == nil && (result == nil || result.Run != f.run || result.Name != f.names[task] ||
			len(result.Parts) != f.partitions()) {
			err = fmt.Errorf("%s: the engine returned the result of another task", f.names[task])
		}
		return result, err
	}
	// Only this process can read the table.
	d, err := f.document(task, 0, 0, 1)
	if err != nil {
		return nil, err
	}
	p := &Plan{written: f.plan.written, tables: f.plan.tables, stages: d.Stages}
	return d.run(ctx, p, nil, f.opt)
}

// partitions returns the number of partitions of the rows of the fragment.
func (f *fragmentRun) partitions() int {
	if f.Sends == physical.Hash || f.Sends == physical.Range {
		return f.parts
	}
	return 1
}

// begin makes the documents of the tasks, and returns the bytes that they read.
func (f *fragmentRun) begin(ctx context.Context) (weights []int64, err error) {
	f.mu.Lock()
	f.began = time.Now()
	f.mu.Unlock()
	if f.Sends == physical.Range {
		if err := f.split(ctx); err != nil {
			return nil, err
		}
	}
	weights = f.divide()
	n := len(weights) / f.Sections
	for section := range f.Sections {
		for share := range n {
			if f.Here {
				f.documents = append(f.documents, "")
				continue
			}
			d, err := f.document(len(f.documents), section, share, n)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(d)
			if err != nil {
				return nil, err
			}
			path := d.Out + ".task.json"
			if err := writeOnce(ctx, path, text); err != nil {
				return nil, fmt.Errorf("write a task for the workers: %w", err)
			}
			f.documents = append(f.documents, path)
		}
	}
	return weights, nil
}

// divide decides how many tasks there are, and what each of them reads. It returns the bytes that each reads.
func (f *fragmentRun) divide() (weights []int64) {
	shares := f.shares()
	f.pack(len(shares))
	for range f.Sections {
		weights = append(weights, shares...)
	}
	for i := range weights {
		f.names = append(f.names, fmt.Sprintf("fragment %d, task %d of %d", f.Number+1, i+1, len(weights)))
	}
	f.mu.Lock()
	f.results = make([]*TaskResult, len(weights))
	f.mu.Unlock()
	return weights
}

// leastBytes returns the bytes of input from which another task pays.
func (o TaskOptions) leastBytes() int64 { return cmp.Or(o.LeastBytes, leastTaskBytes) }

// partitions returns the number of partitions of an exchange.
func (o TaskOptions) partitions() int {
	if o.Workers <= 1 {
		return 1
	}
	return min(partsPerWorker*o.Workers, sourceexchange.MaxPartitions)
}

// tasks returns how many tasks share an input.
func (o TaskOptions) tasks(bytes int64) int {
	least := o.leastBytes()
	return int(min(max((bytes+least-1)/least, 1), int64(max(o.Workers, 1)), int64(o.partitions())))
}

// shares decides how many tasks of a section compute the fragment, and returns the bytes that each of them reads.
func (f *fragmentRun) shares() []int64 {
	bytes, all := bytesOfTables(f.Fragment), int64(0) // that tasks share, and that each of them reads
	for _, in := range f.Reads {
		for _, p := range f.fragments[in.From.Number].sent {
			if in.Takes == physical.TakesAll {
				all += p.Bytes
			} else {
				bytes += p.Bytes
			}
		}
	}
	n := 1
	if f.Spread {
		n = f.to.tasks(bytes)
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = bytes/int64(n) + all
	}
	return out
}

// document returns the document of a task.
func (f *fragmentRun) document(task, section, share, of int) (*taskDocument, error) {
	d := &taskDocument{Version: taskVersion, Plan: planVersion, Run: f.run, Name: f.names[task],
		Written: f.plan.written, Tables: map[string]*sharedTable{}, Rows: map[string]*rowsOfTasks{},
		Partitions: f.partitions(), Out: under(f.folder, fmt.Sprintf("%d-%d", f.Number+1, task+1))}
	for _, k := range f.Samples {
		d.Sample = append(d.Sample, k.Column)
	}
	plan, copies := f.Task(section, share, of)
	for _, s := range f.Scans {
		name := s.Scan().Source
		if f.Here || copies[s] == nil || d.Tables[name] != nil {
			continue
		}
		t, err := shareTable(s.Scan().Table)
		if err != nil {
			return nil, err
		}
		t.take(share, of)
		d.Tables[name] = t
	}
	for s, in := range f.Reads {
		one := copies[s]
		if one == nil {
			continue
		}
		name := f.rows[s]
		spec := *one.Scan()
		spec.Source, one.Spec = name, &spec
		from := f.fragments[in.From.Number]
		d.Rows[name] = &rowsOfTasks{Schema: s.Schema, Files: from.files(s, in.Takes, f, share, of)}
	}
	if f.output != nil {
		d.Output = f.output.document(task)
	}
	if f.partitions() > 1 {
		f.Partition(plan, f.parts, f.seed, f.splitters)
	}
	d.Stages = plan
	return d, nil
}

// files returns what a share of a fragment reads of the rows of f in a scan.
func (f *fragmentRun) files(scan *physical.Stage, takes physical.Takes, by *fragmentRun, share, of int) (
	out []sourceexchange.File) {
	switch takes {
	case physical.TakesPartitions:
		out = f.partitionFiles(by.packed[share], scan != by.divided)
	case physical.TakesShare:
		weights := make([]int64, len(f.results))
		for i, r := range f.results {
			weights[i] = r.total().Rows
		}
		for _, s := range tasks.Shared(weights, of)[share] {
			r := f.results[s.Item]
			out = append(out, r.file(sourceexchange.ShareOf(r.Pages, s.Share, s.Of)))
		}
	default:
		for _, r := range f.results {
			out = append(out, r.file(r.Pages))
		}
	}
	return out
}

// pack decides which partitions belong to each of some shares: of all fragments whose partitions the fragment reads, as
// rows with equal keys of both must meet. Small ones are together in a share. One that is too large is divided among
// several, if the fragment allows it. Those of ranges are consecutive.
func (f *fragmentRun) pack(shares int) {
	f.divided = f.Divisible()
	least := f.to.leastBytes() / 4
	weights, divisible, ranges := make([]int64, f.parts), make([]bool, f.parts), false
	for s, in := range f.Reads {
		if in.Takes != physical.TakesPartitions {
			continue
		}
		from := f.fragments[in.From.Number]
		ranges = ranges || from.Sends == physical.Range
		for i, p := range from.sent {
			weights[i] += p.Bytes + 1 // no partition is left out
			divisible[i] = divisible[i] || s == f.divided && p.Bytes > least
		}
	}
	f.packed = make([][]tasks.Split, shares)
	if ranges {
		bounds := tasks.Consecutive(weights, shares)
		for share := range f.packed {
			for i := bounds[share]; i < bounds[share+1]; i++ {
				f.packed[share] = append(f.packed[share], tasks.Split{Item: i, Of: 1})
			}
		}
		return
	}
	weights, splits := tasks.Even(weights, shares, func(i int) bool { return divisible[i] })
	for share, items := range tasks.Packed(weights, shares) {
		for _, i := range items {
			f.packed[share] = append(f.packed[share], splits[i])
		}
	}
}

// partitionFiles returns what a share reads of the partitions of a fragment. whole says that it reads all rows of a
// partition that is divided.
func (f *fragmentRun) partitionFiles(splits []tasks.Split, whole bool) (out []sourceexchange.File) {
	var mine []int
	for _, s := range splits {
		if (s.Of == 1 || whole) && !slices.Contains(mine, s.Item) {
			mine = append(mine, s.Item)
		}
	}
	slices.Sort(mine)
	for n, r := range f.results {
		if pages := sourceexchange.Select(r.Pages, mine, 0, 0); len(pages) > 0 {
			out = append(out, r.file(pages))
		}
		for _, s := range splits {
			if s.Of == 1 || whole {
				continue
			}
			// Files take turns in who gets the first pages.
			if p := sourceexchange.Select(r.Pages, []int{s.Item}, (s.Share+n)%s.Of, s.Of); len(p) > 0 {
				out = append(out, r.file(p))
			}
		}
	}
	return out
}

// end checks that the tasks have read what was written for them, each row once.
func (f *fragmentRun) end() error {
	f.mu.Lock()
	f.ended = time.Now()
	f.mu.Unlock()
	for s, in := range f.Reads {
		var read, want sourceexchange.Part
		tasks := 0
		for _, r := range f.results {
			if part, ok := r.Read[f.rows[s]]; ok {
				read.Add(part)
				tasks++
			}
		}
		from := f.fragments[in.From.Number]
		times := f.reads(s, in.Takes, tasks)
		for i, p := range from.sent {
			want.Add(p.Times(times[min(i, len(times)-1)]))
		}
		if read != want {
			return fmt.Errorf("%w: fragment %d (%s): %d tasks have read %d rows of fragment %d in place of %d, or "+
				"other rows than were written", source.ErrData, f.Number+1, f.Name, tasks, read.Rows, from.Number+1,
				want.Rows)
		}
	}
	if f.output != nil {
		if err := f.output.check(f.results); err != nil {
			return fmt.Errorf("fragment %d (%s): %w", f.Number+1, f.Name, err)
		}
	}
	f.sent = make([]sourceexchange.Part, f.partitions())
	for _, r := range f.results {
		for i, p := range r.Parts {
			f.sent[i].Add(p)
		}
	}
	return nil
}

// reads returns how often each partition that a scan reads is read by some tasks; one number is of all.
func (f *fragmentRun) reads(s *physical.Stage, takes physical.Takes, readers int) []int {
	switch {
	case takes == physical.TakesAll:
		return []int{readers}
	case takes == physical.TakesShare || s == f.divided:
		return []int{1}
	}
	out := make([]int, f.parts)
	for _, splits := range f.packed {
		for at, split := range splits {
			if !slices.ContainsFunc(splits[:at], func(x tasks.Split) bool { return x.Item == split.Item }) {
				out[split.Item]++
			}
		}
	}
	return out
}

// split decides the ranges of a fragment by a sample of the rows that it reads.
func (f *fragmentRun) split(ctx context.Context) (err error) {
	var samples []sourceexchange.Sample
	for _, in := range f.Reads {
		for _, r := range f.fragments[in.From.Number].results {
			x, err := sourceexchange.ReadIndex(ctx, r.Path, r.Size)
			if err != nil {
				return err
			}
			samples = append(samples, x.Sample)
		}
	}
	f.splitters, err = runner.Splitters(f.Root.Schema, f.By, samples, f.parts)
	return err
}

// finish runs the last part of the plan in this process.
func (r *taskRun) finish(ctx context.Context, cut cutPlan) (report *Report, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	out := &Plan{written: r.plan.written, tables: map[string]source.Table{}, stages: cut.last,
		targets: slices.Clone(r.plan.targets)}
	for s, in := range cut.reads {
		f := r.fragments[in.From.Number]
		var files []sourceexchange.File
		if f.output == nil {
			files = f.files(s, in.Takes, f, 0, 1)
		}
		if s.Scan().Table, err = sourceexchange.Open(s.Schema, files); err != nil {
			return nil, err
		}
	}
	for i, t := range out.targets {
		for _, f := range r.fragments {
			if f.output != nil && f.output.target == t {
				out.targets[i] = f.output.adopted(f.results)
			}
		}
	}
	report, err = out.Run(ctx, r.opt)
	if report != nil {
		report.Wall = time.Since(r.begun)
		report.Tasks = r.report()
	}
	return report, err
}

// report returns what became of the fragments.
func (r *taskRun) report() (out []execution.FragmentReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fragments {
		one := execution.FragmentReport{Fragment: f.Number + 1, Does: f.String(), Tasks: len(f.results), Lost: f.lost,
			Running: f.running}
		if !f.began.IsZero() {
			one.Wall = time.Since(f.began)
		}
		if !f.ended.IsZero() {
			one.Wall = f.ended.Sub(f.began)
		}
		var slowest int64
		for i, t := range f.results {
			if t == nil {
				continue
			}
			one.Ended++
			all := t.total()
			one.Rows, one.Bytes = one.Rows+all.Rows, one.Bytes+all.Bytes
			bytes := t.Bytes
			for _, p := range t.Read {
				one.RowsRead, one.BytesRead, bytes = one.RowsRead+p.Rows, one.BytesRead+p.Bytes, bytes+p.Bytes
			}
			one.BytesOfTables += t.Bytes
			if t.Wall > one.Slowest {
				one.Slowest, one.SlowestTask, slowest = t.Wall, i+1, bytes
			}
		}
		if all := one.BytesRead + one.BytesOfTables; one.Ended > 1 && all > 0 {
			one.SlowestShare = float64(slowest) * float64(one.Ended) / float64(all)
		}
		out = append(out, one)
	}
	return out
}

// sweep removes the folder of the tasks, also if the context has ended.
func (r *taskRun) sweep() error {
	if r.lock != nil {
		return errors.Join(staging.RemoveFolder(r.folder), r.lock.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var paths []string
	err := store.List(ctx, r.folder+"/", func(path string, _ store.Version) error {
		paths = append(paths, path)
		return nil
	})
	for _, path := range paths {
		err = errors.Join(err, store.Delete(ctx, path))
	}
	// Uploads of workers that were killed. A user who may not list uploads leaves them to the rules of the bucket.
	_ = store.Uploads(ctx, r.folder+"/", func(p store.Pending) error { return p.Abort(ctx) })
	return err
}
