package parquet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxRowGroups is what the format can number in one file.
	maxRowGroups = math.MaxInt16
	// maxRowGroupBytes ends a row group of large values before its rows.
	maxRowGroupBytes = 512 << 20
)

// Writer writes strides to a file, or to a directory of files. It implements
// sink.Sink.
type Writer struct {
	opt     Options
	schema  *gpu.Schema
	columns []column
	out     *output

	// The row group being collected; Write owns it.
	pending      []slab
	pendingRows  int
	pendingBytes int64
	fileRows     int64 // rows handed to the current file
	fileIndex    int
	groupIndex   int // in the current file
	ended        bool

	workers sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond  // a row group was written, or the sink failed
	queue   []*group   // handed over and not yet written, in order
	tasks   []task     // columns of the queue that no worker has taken, in order
	idle    []*encoder // of workers that found no task
	writing bool       // a goroutine is writing the head of the queue
	file    *fileWriter
	stats   sink.Stats
	err     error
}

var _ sink.Sink = (*Writer)(nil)

// Create starts writing at path. With opt.RowsPerFile the path is a directory.
// Nothing appears under it before Commit. A target that exists is an error that
// matches os.ErrExist, unless opt.Overwrite is set.
func Create(path string, schema *gpu.Schema, opt Options) (*Writer, error) {
	return create(disk{}, path, schema, opt)
}

func create(s storage, path string, schema *gpu.Schema, opt Options) (*Writer, error) {
	opt.EnsureDefaults()
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("options of %s: %w", path, err)
	}
	if opt.Lease == nil {
		return nil, errors.New("writing Parquet needs a lease for its row groups")
	}
	if schema.Len() == 0 {
		return nil, fmt.Errorf("%s: a Parquet file needs at least one column", path)
	}
	w := &Writer{opt: opt, schema: schema}
	w.wake.L = &w.mu
	names := map[string]bool{}
	for _, f := range schema.Fields {
		if names[f.Name] {
			return nil, fmt.Errorf("%s: two columns are named %q; give one another name", path, f.Name)
		}
		names[f.Name] = true
		c, err := newColumn(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		c.dictionary = opt.Dictionary == "auto" && (len(opt.DictionaryColumns) == 0 || slices.Contains(opt.DictionaryColumns, f.Name))
		w.columns = append(w.columns, c)
	}
	for _, name := range opt.DictionaryColumns {
		if !names[name] {
			return nil, fmt.Errorf("%s: dictionary_columns names %q, which is not a column", path, name)
		}
	}
	codec := opt.codec()
	for range opt.Threads {
		w.idle = append(w.idle, &encoder{codec: codec, lease: opt.Lease, pageRows: opt.PageRows, pageBytes: opt.PageBytes})
	}
	var err error
	if w.out, err = newOutput(s, path, opt.Overwrite, opt.RowsPerFile > 0); err != nil {
		return nil, err
	}
	return w, nil
}

// slab is a range of rows of a stride that is kept for a row group.
type slab struct {
	stride   *gpu.Stride
	from, to int
}

// group is a row group on its way.
type group struct {
	pieces []slab
	rows   int
	file   int
	last   bool // the file ends with it
	left   int  // columns to encode
	chunks []*chunk
}

// task encodes one column of a row group.
type task struct {
	group  *group
	column int
}

func (g *group) release() {
	for _, p := range g.pieces {
		p.stride.Release()
	}
	g.pieces = nil
	for _, c := range g.chunks {
		if c != nil {
			c.pages.release()
		}
	}
}

// Write implements sink.Sink. It blocks while too many row groups are on their
// way. An error of an earlier row group comes back here.
func (w *Writer) Write(ctx context.Context, s *gpu.Stride) error {
	defer s.Release()
	if w.ended {
		return errors.New("the sink has ended")
	}
	err := w.failure()
	if err == nil {
		err = w.collect(ctx, s)
	}
	if err != nil {
		w.fail(err) // rows are missing now: nothing may be committed
	}
	return err
}

// collect adds the rows of a stride to the pending row group and hands on those
// that are full.
func (w *Writer) collect(ctx context.Context, s *gpu.Stride) error {
	if err := s.Check(); err != nil {
		return err
	}
	perRow := float64(s.Bytes()) / float64(max(s.Rows, 1))
	for from := 0; from < s.Rows; {
		n := min(s.Rows-from, w.opt.RowGroupRows-w.pendingRows)
		if w.opt.RowsPerFile > 0 {
			n = int(min(int64(n), w.opt.RowsPerFile-w.fileRows-int64(w.pendingRows)))
		}
		if room := float64(maxRowGroupBytes - w.pendingBytes); perRow*float64(n) > room {
			n = min(n, max(1, int(room/perRow)))
		}
		kept := &gpu.Stride{Schema: s.Schema, Rows: s.Rows, Cols: make([]gpu.Column, len(s.Cols))}
		for i, c := range s.Cols {
			kept.Cols[i] = c.Retain()
		}
		w.pending = append(w.pending, slab{kept, from, from + n})
		w.pendingRows += n
		w.pendingBytes += int64(perRow * float64(n))
		from += n
		full := w.opt.RowsPerFile > 0 && w.fileRows+int64(w.pendingRows) == w.opt.RowsPerFile
		if full || w.pendingRows == w.opt.RowGroupRows || w.pendingBytes >= maxRowGroupBytes {
			if err := w.hand(ctx, full); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.wake.Broadcast()
}

// hand gives the pending rows to the encoders as a row group.
func (w *Writer) hand(ctx context.Context, last bool) error {
	g := &group{pieces: w.pending, rows: w.pendingRows, file: w.fileIndex, last: last,
		left: len(w.columns), chunks: make([]*chunk, len(w.columns))}
	w.pending, w.pendingRows, w.pendingBytes = nil, 0, 0
	w.fileRows += int64(g.rows)
	if w.groupIndex++; w.groupIndex > maxRowGroups {
		g.release()
		return fmt.Errorf("%s: a Parquet file has at most %d row groups; raise row_group_rows or set rows_per_file", w.out.target, maxRowGroups)
	}
	if last {
		w.fileIndex, w.fileRows, w.groupIndex = w.fileIndex+1, 0, 0
	}
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wake.Broadcast()
	})()
	// Enough row groups to keep every worker busy, and one being written.
	limit := 1 + (w.opt.Threads+len(w.columns)-1)/len(w.columns)
	w.mu.Lock()
	for w.err == nil && ctx.Err() == nil && len(w.queue) >= limit {
		w.wake.Wait()
	}
	err := w.err
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		w.mu.Unlock()
		g.release()
		return err
	}
	w.queue = append(w.queue, g)
	for i := range w.columns {
		w.tasks = append(w.tasks, task{g, i})
	}
	for range min(len(w.tasks), len(w.idle)) {
		last := len(w.idle) - 1
		e := w.idle[last]
		w.idle = w.idle[:last]
		w.workers.Add(1)
		go w.work(e)
	}
	w.mu.Unlock()
	return nil
}

// work runs tasks until there are none.
func (w *Writer) work(e *encoder) {
	defer w.workers.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.tasks) > 0 {
		t := w.tasks[0]
		w.tasks = w.tasks[1:]
		w.mu.Unlock()
		k, err := w.encodeColumn(e, t.group, t.column)
		w.mu.Lock()
		w.encoded(t.group, t.column, k, err)
	}
	w.idle = append(w.idle, e)
}

// encodeColumn encodes one column of a row group.
func (w *Writer) encodeColumn(e *encoder, g *group, i int) (*chunk, error) {
	if err := w.failure(); err != nil {
		return nil, err
	}
	pieces := make([]piece, len(g.pieces))
	for j, p := range g.pieces {
		pieces[j] = piece{p.stride.Cols[i], p.from, p.to}
	}
	defer w.traced(w.schema.Fields[i].Name, time.Now())
	k, err := e.encode(&w.columns[i], pieces, g.rows)
	for _, p := range g.pieces {
		p.stride.Cols[i].Release()
		p.stride.Cols[i] = gpu.Column{}
	}
	return k, err
}

func (w *Writer) traced(what string, begin time.Time) {
	if w.opt.Trace != nil {
		w.opt.Trace(what, begin)
	}
}

// encoded takes an encoded column and writes the row groups that are complete
// and next in line. The lock is held.
func (w *Writer) encoded(g *group, i int, k *chunk, err error) {
	g.chunks[i] = k
	if err != nil && w.err == nil {
		w.err = err
		w.wake.Broadcast()
	}
	g.left--
	if w.writing {
		return
	}
	for len(w.queue) > 0 && w.queue[0].left == 0 {
		head := w.queue[0]
		if w.err == nil {
			w.writing = true
			w.mu.Unlock()
			err := w.writeGroup(head)
			w.mu.Lock()
			w.writing = false
			if err != nil && w.err == nil {
				w.err = err
			}
		}
		head.release()
		w.queue = w.queue[1:]
		w.wake.Broadcast()
	}
}

// writeGroup writes a row group behind the others. One goroutine at a time runs
// it.
func (w *Writer) writeGroup(g *group) error {
	if w.file == nil {
		f, err := newFile(w.out.storage, w.out.part(g.file), w.columns)
		if err != nil {
			return err
		}
		w.file = f
	}
	defer w.traced("write", time.Now())
	before := w.file.size
	if err := w.file.append(g.rows, g.chunks); err != nil {
		return err
	}
	w.count(int64(g.rows), w.file.size-before, 0)
	if g.last {
		return w.endFile()
	}
	return nil
}

func (w *Writer) count(rows, bytes, files int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Rows += rows
	w.stats.Bytes += bytes
	w.stats.Files += files
}

func (w *Writer) endFile() error {
	f := w.file
	w.file = nil
	before := f.size
	if err := f.end(); err != nil {
		return err
	}
	w.count(0, f.size-before, 1)
	return nil
}

// Stats implements sink.Sink.
func (w *Writer) Stats() sink.Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Temporary returns the file or directory that holds the output until Commit,
// for those who end the process without Abort.
func (w *Writer) Temporary() string { return w.out.temporary }

// Commit implements sink.Sink.
func (w *Writer) Commit(ctx context.Context) error {
	if w.ended {
		return errors.New("the sink has ended")
	}
	err := w.commit(ctx)
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	w.ended = true
	return nil
}

func (w *Writer) commit(ctx context.Context) error {
	if w.pendingRows > 0 {
		if err := w.hand(ctx, false); err != nil {
			return err
		}
	}
	w.workers.Wait()
	if err := w.failure(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if w.file == nil && w.stats.Files == 0 { // no rows: a file with a schema
		f, err := newFile(w.out.storage, w.out.part(0), w.columns)
		if err != nil {
			return err
		}
		w.file = f
	}
	if w.file != nil {
		if err := w.endFile(); err != nil {
			return err
		}
	}
	return w.out.publish()
}

// Abort implements sink.Sink.
func (w *Writer) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	w.fail(errors.New("the sink was aborted"))
	w.workers.Wait()
	for _, p := range w.pending {
		p.stride.Release()
	}
	w.pending = nil
	if w.file != nil {
		w.file.abandon()
		w.file = nil
	}
	return w.out.discard()
}

// schemaElements returns the schema of a file.
func schemaElements(columns []column) []format.SchemaElement {
	out := []format.SchemaElement{{Name: "schema"}}
	out[0].NumChildren.Set(int32(len(columns)))
	for i := range columns {
		out = append(out, columns[i].element())
	}
	return out
}
