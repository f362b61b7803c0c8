package parquet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/sink/staging"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxRowGroups is the maximum number of row groups in a file, because the format numbers them
	// by INT16.
	maxRowGroups = math.MaxInt16
)

// Writer writes strides to a file, or to a directory of files. It implements sink.Sink.
type Writer struct {
	opt     Options
	schema  *gpu.Schema
	columns []column
	most    int64 // bytes of the rows that wait in a row group, or in partitions
	out     target

	// The files of other writers that the output adopts, and their folder.
	adopts  string
	adopted []Part

	// Write owns these: the destination of all rows, or the splitter that divides them. Row groups of
	// whole go to dealt in turn, if there are any.
	whole *destination
	dealt []*destination
	turn  int
	split *splitter
	// chosen says that the first row group has been sampled for the encodings of floats.
	chosen bool
	ended  bool
	// The rows of a file, and the bytes from which on it gets no more row groups; 0 for no bound.
	fileRows, fileBytes int64

	workers sync.WaitGroup
	short   sync.Mutex // held by the worker that waits for memory
	devices []*deviceEncoder

	mu    sync.Mutex
	more  bool          // Write is about to queue more row groups, so that tasks for the device wait for them
	wake  sync.Cond     // a row group was encoded or written, or the sink failed
	queue []*group      // row groups to be encoded and written, in order
	tasks []task        // what no worker has taken, in order: files to be written, and columns of the queue
	idle  []*encoder    // encoders of workers that found no task
	files []*fileWriter // open files, the most recently used one last
	stats sink.Stats

	run context.Context // ends with the sink's error, by end
	end context.CancelCauseFunc
}

var _ sink.Staged = (*Writer)(nil)

// destination has rows that go into one file after the other: all rows, or those of a partition.
type destination struct {
	folder string // in the directory of the output; "" for the directory itself
	// of is the destination whose rows these are, of which only some lie in memory of one device; nil otherwise. Only
	// the pending row group is then used.
	of *destination

	// The row group that is being collected. Write owns it.
	pending      []keptRows
	pendingRows  int
	pendingBytes int64
	fileRows     int64 // rows handed to the current file
	groupIndex   int   // number in the current file
	fullFiles    int   // that all row groups were handed to

	// These belong to the Writer, under its lock.
	file *fileWriter // file of the next row group; nil before the first
	next int         // number of the next file
}

// Create returns a writer for path, which is a directory if opt.Directory says so.
// Nothing appears at path before Commit. If the target exists and opt.Overwrite is not set, the
// error matches os.ErrExist.
func Create(path string, schema *gpu.Schema, opt Options) (*Writer, error) {
	return create(disk{}, path, schema, opt)
}

func create(s storage, path string, schema *gpu.Schema, opt Options) (*Writer, error) {
	w, err := newWriter(path, schema, opt)
	if err != nil {
		return nil, err
	}
	if staging.IsObject(path) {
		w.out, err = newObjects(w.run, path, w.opt)
	} else {
		var o *output
		o, err = newOutput(s, path, w.opt)
		w.out = localTarget{o}
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// newWriter returns a writer without a target.
func newWriter(path string, schema *gpu.Schema, opt Options) (*Writer, error) {
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
	if err := CheckColumns(schema, opt); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w := &Writer{opt: opt, schema: schema, whole: &destination{}, fileRows: opt.RowsPerFile,
		most: grant.OutputRows.Of(opt.Lease.Limit())}
	directory := opt.Directory(path)
	switch {
	case len(opt.PartitionBy) > 0:
		w.whole, w.split = nil, newSplitter(schema, opt)
		w.schema = w.split.schema
		schema = w.schema
	case opt.Files > 0 && opt.Sorted == nil:
		for i := range opt.Files {
			w.dealt = append(w.dealt, &destination{next: i})
		}
	case directory && opt.Files == 0 && opt.RowsPerFile == 0:
		w.fileBytes = partBytes
	}
	w.run, w.end = context.WithCancelCause(context.Background())
	w.wake.L = &w.mu
	var err error
	if w.columns, err = columnsOf(schema, opt); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	codec := opt.codec()
	for range opt.Threads {
		w.idle = append(w.idle, &encoder{codec: codec, delta: opt.Encoding == "auto", lease: opt.Lease,
			pageRows: opt.PageRows, pageBytes: opt.PageBytes})
	}
	w.devices, w.stats.ForCPU = newDeviceEncoders(opt)
	if opt.FromOneDevice(!opt.AnyOrder) {
		w.devices = w.devices[:min(len(w.devices), 1)]
	}
	for _, d := range w.devices {
		if d.pending.of = w.whole; w.split != nil {
			w.split.devices = append(w.split.devices, &deviceSplitter{encoder: d})
		}
	}
	return w, nil
}

// columnsOf returns the columns of a file.
func columnsOf(schema *gpu.Schema, opt Options) (out []column, err error) {
	names := map[string]bool{}
	for _, f := range schema.Fields {
		if names[f.Name] {
			return nil, fmt.Errorf("two columns are named %q; give one another name", f.Name)
		}
		names[f.Name] = true
		if !utf8.ValidString(f.Name) {
			return nil, fmt.Errorf("the column name %q is not UTF-8, as names in Parquet are; give it another", f.Name)
		}
		c, err := newColumn(f)
		if err != nil {
			return nil, err
		}
		c.dictionary = opt.Dictionary == "auto" && (len(opt.DictionaryColumns) == 0 ||
			slices.Contains(opt.DictionaryColumns, f.Name))
		c.bloom = slices.Contains(opt.BloomFilters, f.Name)
		for i := range c.leaves {
			c.leaves[i].dictionary = c.dictionary && !c.leaves[i].interval
		}
		out = append(out, c)
	}
	return out, nil
}

// keptRows is a range of rows of a stride that is kept for a row group.
type keptRows struct {
	stride   *gpu.Stride
	from, to int
}

// group is a row group in the queue.
type group struct {
	kept   []keptRows
	rows   int
	bytes  int64 // bytes of the kept rows
	to     *destination
	last   bool // the last row group of the file
	left   int  // columns left to encode, then to write
	chunks []*encodedChunk
	device []int // the columns that lie in memory of a device
	// encoder is the device that encodes them. Those of which other rows lie elsewhere are copied to the host.
	encoder *deviceEncoder
	// brought has the rows of the columns that were copied from a device to the host; the kept rows lack these columns.
	brought [][]rowRange
	onGPU   bool // until these are encoded

	file   *fileWriter // set once the group is laid out
	starts []int64     // offsets of the chunks in the file
}

// chunk is a column of a row group.
type chunk struct {
	group  *group
	column int
}

// task encodes a chunk. If it has a file, it writes the waiting chunks of the file; if it is for the device, it encodes
// all columns of the row group that lie there.
type task struct {
	chunk
	file   *fileWriter
	device bool
}

func (g *group) release() {
	for _, p := range g.kept {
		p.stride.Release()
	}
	g.kept = nil
	for _, b := range g.brought {
		releaseRanges(b)
	}
	g.brought = nil
	for _, c := range g.chunks {
		if c != nil {
			c.release()
		}
	}
}

// Write implements sink.Sink. It blocks while too many row groups are in the queue. It
// returns the error of an earlier row group.
func (w *Writer) Write(ctx context.Context, s *gpu.Stride) error {
	defer s.Release()
	if w.ended {
		return errors.New("the sink has ended")
	}
	err := w.failure()
	if err == nil {
		err = s.Check()
	}
	switch {
	case err != nil:
	case w.split != nil:
		err = w.divide(ctx, s)
	default:
		w.divideSorted(s.Rows)
		to := w.whole
		if d := w.encoderOf(s.Cols); d != nil {
			s.ChargeTo(d.lease)
			if w.opt.AnyOrder && len(w.devices) > 1 && w.fileRows == 0 {
				to = &d.pending
			}
		}
		w.expectMore(len(w.devices) > 0)
		err = w.collect(ctx, to, keptRows{s, 0, s.Rows})
		w.expectMore(false)
	}
	if err != nil {
		w.fail(err) // rows are missing, so nothing may be committed
	}
	return err
}

// divideSorted decides the rows of each file when the first sorted rows arrive.
func (w *Writer) divideSorted(rows int) {
	if w.opt.Files > 0 && w.opt.Sorted != nil && w.fileRows == 0 && rows > 0 {
		n := int64(w.opt.Files)
		w.fileRows = max((w.opt.Sorted()-1)/n+1, int64(w.opt.RowGroupRows))
	}
}

// left returns how many more rows the current file of a destination may have. The last one of a
// number of files takes all that are left.
func (w *Writer) left(d *destination) int64 {
	pending := int64(d.pendingRows)
	if d.of != nil {
		d = d.of
	}
	if w.fileRows == 0 || w.opt.Files > 0 && d.fullFiles == w.opt.Files-1 {
		return math.MaxInt64
	}
	return w.fileRows - d.fileRows - pending
}

// collect adds rows to the pending row group of a destination, and queues it when it is full. A row
// group of large values ends early. The caller keeps its references to the stride.
func (w *Writer) collect(ctx context.Context, d *destination, rows keptRows) error {
	s := rows.stride
	perRow := float64(s.Bytes()) / float64(max(s.Rows, 1))
	for from := rows.from; from < rows.to; {
		n := int(min(int64(rows.to-from), int64(w.opt.RowGroupRows-d.pendingRows), w.left(d)))
		if room := float64(w.most - d.pendingBytes); perRow*float64(n) > room {
			n = min(n, max(1, int(room/perRow)))
		}
		d.pending = append(d.pending, keptRows{s.Retain(), from, from + n})
		d.pendingRows += n
		d.pendingBytes += int64(perRow * float64(n))
		from += n
		full := w.left(d) == 0
		if full || d.pendingRows == w.opt.RowGroupRows || d.pendingBytes >= w.most {
			if err := w.hand(ctx, d, full); err != nil {
				return err
			}
		}
	}
	return nil
}

// failure is the sink's error, nil for none.
func (w *Writer) failure() error { return context.Cause(w.run) }

func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(err)
}

// failLocked sets the error of the sink, unless err is nil or there is an error. The
// caller holds the lock.
func (w *Writer) failLocked(err error) {
	if err != nil {
		w.end(err)
		w.wake.Broadcast()
	}
}

// hand queues the pending rows of a destination as a row group for the encoders.
func (w *Writer) hand(ctx context.Context, d *destination, last bool) error {
	g := &group{kept: d.pending, rows: d.pendingRows, bytes: d.pendingBytes, left: len(w.columns),
		chunks: make([]*encodedChunk, len(w.columns)), brought: make([][]rowRange, len(w.columns))}
	if len(w.devices) > 0 {
		g.device = g.onDevice(len(w.columns))
		if g.onGPU = len(g.device) > 0; g.onGPU {
			g.encoder = w.encoderOf(g.columnsOf(g.device[0]))
		}
	}
	d.pending, d.pendingRows, d.pendingBytes = nil, 0, 0
	switch {
	case w.dealt != nil:
		d = w.dealt[w.turn]
		w.turn = (w.turn + 1) % len(w.dealt)
	case d.of != nil:
		d = d.of
	}
	if (w.split != nil || w.fileBytes > 0) && d.groupIndex+1 == maxRowGroups {
		last = true // the rows continue in another file
	}
	g.to, g.last = d, last
	d.fileRows += int64(g.rows)
	if d.groupIndex++; d.groupIndex > maxRowGroups {
		g.release()
		return gpu.Exceeded("%s: a Parquet file has at most %d row groups; raise row_group_rows, or set rows_per_file",
			w.out.named(), maxRowGroups)
	}
	if err := w.chooseSplit(g); err != nil {
		g.release()
		return err
	}
	if last {
		d.fileRows, d.groupIndex = 0, 0
		d.fullFiles++
	}
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wake.Broadcast()
	})()
	w.mu.Lock()
	for w.failure() == nil && ctx.Err() == nil && !w.room(g) {
		more := w.more
		w.more = false
		w.wakeWorkers()
		w.wake.Wait()
		w.more = more
	}
	err := w.failure()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		w.mu.Unlock()
		g.release()
		return err
	}
	w.queue = append(w.queue, g)
	if len(g.device) > 0 {
		w.tasks = append(w.tasks, task{chunk: chunk{group: g}, device: true})
	}
	for i := range w.columns {
		if !slices.Contains(g.device, i) {
			w.tasks = append(w.tasks, task{chunk: chunk{g, i}})
		}
	}
	w.wakeWorkers()
	w.mu.Unlock()
	return nil
}

// room reports whether a row group may be queued. The queue may always have enough row groups to
// keep every worker busy, and one that is being written. One column may take longer than all others
// together, so the queue has one row group per worker, if there is memory. Encoded row groups that
// wait for their file count by their encoded bytes only: the more of them there are, the more files
// are written at a time. Row groups that only the device encodes take none of the memory of workers, and the
// device has several of them at a time. If too little memory is left to encode, row groups are encoded one after
// the other. The caller holds the lock.
func (w *Writer) room(g *group) bool {
	most := grant.OutputQueue.Of(w.opt.Lease.Limit())
	encoding, bytes, encoded := 0, int64(0), int64(0)
	add := func(q *group) {
		if len(q.device) < len(w.columns) {
			encoding, bytes = encoding+1, bytes+q.bytes
		}
	}
	add(g)
	onGPU := int64(0)
	for _, d := range w.devices {
		onGPU += d.waiting(w.queue)
	}
	for _, q := range w.queue {
		if q.file == nil {
			add(q)
			continue
		}
		for _, k := range q.chunks {
			encoded += k.pages.size
		}
	}
	switch n := len(w.queue); {
	case n > 0 && w.opt.Lease.Available() < 2*g.bytes+onGPU:
		return false
	case n < 1+(w.opt.Threads+len(w.columns)-1)/len(w.columns):
		return true
	}
	return encoding <= w.opt.Threads+1 && bytes+encoded <= most && g.encoder.room(w.queue, g)
}

// work runs tasks until there are none.
func (w *Writer) work(e *encoder) {
	defer w.workers.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		t, ok := w.nextTask()
		if !ok {
			break
		}
		switch {
		case t.file != nil:
			w.writeFile(t.file)
			continue
		case t.device:
			w.workOnDevice(t.group)
			continue
		}
		w.mu.Unlock()
		k, err := w.encodeColumn(e, t.group, t.column)
		w.mu.Lock()
		w.encoded(t.group, t.column, k, err)
	}
	w.idle = append(w.idle, e)
}

// nextTask takes the first task. Those for a device that has enough to do stay for the workers that wait for it. The
// caller holds the lock.
func (w *Writer) nextTask() (t task, ok bool) {
	i := slices.IndexFunc(w.tasks, func(t task) bool {
		return !t.device || t.group.encoder.working < deviceTasks && !w.more
	})
	if i < 0 {
		return t, false
	}
	t = w.tasks[i]
	w.tasks = slices.Delete(w.tasks, i, i+1)
	return t, true
}

// wakeWorkers starts idle workers for the waiting tasks. The caller holds the lock.
func (w *Writer) wakeWorkers() {
	for range min(len(w.tasks), len(w.idle)) {
		last := len(w.idle) - 1
		e := w.idle[last]
		w.idle = w.idle[:last]
		w.workers.Add(1)
		go w.work(e)
	}
}

// encodeColumn encodes one column of a row group.
func (w *Writer) encodeColumn(e *encoder, g *group, i int) (*encodedChunk, error) {
	if err := w.failure(); err != nil {
		return nil, err
	}
	ranges := g.ranges(i)
	defer w.traced(w.schema.Fields[i].Name, time.Now())
	k, err := e.encode(&w.columns[i], ranges, g.rows)
	if errors.Is(err, gpu.ErrBudget) {
		k, err = w.encodePatiently(e, &w.columns[i], ranges, g.rows)
	}
	g.releaseColumn(i)
	return k, err
}

func (w *Writer) traced(what string, begin time.Time) {
	if w.opt.Trace != nil {
		w.opt.Trace(what, begin)
	}
}

// encoded records an encoded column, and lays out the row groups that are complete and next in
// order. The caller holds the lock.
func (w *Writer) encoded(g *group, i int, k *encodedChunk, err error) {
	g.chunks[i] = k
	w.failLocked(err)
	g.left--
	for _, head := range slices.Clone(w.queue) {
		if head.file != nil {
			continue
		}
		if head.left > 0 {
			break
		}
		w.failLocked(w.layOut(head))
		if w.failure() != nil {
			w.leave(head)
		}
	}
	w.wakeWorkers()
}

// layOut assigns the offsets of a row group in the current file, and lets its columns be written,
// before all encoding. The caller holds the lock.
func (w *Writer) layOut(g *group) error {
	if w.failure() != nil {
		return nil
	}
	if err := w.open(g.to); err != nil {
		return err
	}
	g.file = g.to.file
	var err error
	g.chunks = flat(g.chunks)
	if g.starts, err = g.file.layOut(g.rows, g.chunks); err != nil {
		return err
	}
	g.left = len(g.chunks)
	g.file.unwritten++
	for i := range g.chunks {
		g.file.waiting = append(g.file.waiting, chunk{g, i})
	}
	w.wake.Broadcast() // there may be room
	if !g.file.writing {
		g.file.writing = true
		w.tasks = slices.Insert(w.tasks, 0, task{file: g.file})
	}
	if g.last || w.fileBytes > 0 && g.file.size >= w.fileBytes {
		g.file.full, g.to.file = true, nil
	}
	return nil
}

// open makes the next file of a destination, unless it has one. The caller holds the lock.
func (w *Writer) open(d *destination) error {
	if d.file != nil {
		i := slices.Index(w.files, d.file)
		w.files = append(slices.Delete(w.files, i, i+1), d.file)
		return nil
	}
	file, path, err := w.out.create(d.folder, d.next)
	if err != nil {
		return err
	}
	f, err := newFile(file, path, w.opt.Sync, w.columns, w.opt.Metadata)
	if err != nil {
		return err
	}
	d.file, f.to = f, d
	d.next++
	w.files = append(w.files, f)
	return nil
}

// writeFile writes the waiting chunks of a file. It ends the file after the last chunk of its last
// row group. One worker at a time writes to a file, because the system lets only one at a time: the
// others write to other files, or encode. The caller holds the lock, which is released meanwhile.
func (w *Writer) writeFile(f *fileWriter) {
	for len(f.waiting) > 0 {
		c := f.waiting[0]
		f.waiting = f.waiting[1:]
		w.mu.Unlock()
		err := w.writeChunk(c)
		w.mu.Lock()
		w.written(c.group, err)
	}
	f.writing = false
	if !f.full || f.unwritten > 0 {
		f = w.spare()
	}
	if f != nil && w.failure() == nil {
		w.mu.Unlock()
		err := w.endFile(f)
		w.mu.Lock()
		w.failLocked(err)
	}
}

// writeChunk writes a chunk at its offset.
func (w *Writer) writeChunk(c chunk) error {
	if err := w.failure(); err != nil {
		return err
	}
	defer w.traced("write", time.Now())
	return c.group.file.writeChunk(c.group.chunks[c.column], c.group.starts[c.column])
}

// written records a written chunk. The caller holds the lock.
func (w *Writer) written(g *group, err error) {
	w.failLocked(err)
	if g.left--; g.left > 0 {
		return
	}
	g.file.unwritten--
	w.stats.Rows += int64(g.rows)
	for _, k := range g.chunks {
		w.stats.Bytes += k.pages.size
		if k.ofDevice {
			w.stats.BytesOfDevice += k.pages.size
		}
	}
	w.leave(g)
}

// maxOpenFiles bounds the open files of partitions.
const maxOpenFiles = 100

// spare returns the least recently used file, to be ended so that others can be opened. Its
// partition continues in another file. It returns nil if few files are open. The caller holds the
// lock.
func (w *Writer) spare() *fileWriter {
	if w.split == nil || len(w.files) <= max(w.out.mostOpen()-2*w.opt.Threads-4, 1) {
		return nil // row groups in the queue may each open one more
	}
	for _, f := range w.files {
		if f.unwritten == 0 && !f.full && f.to.file == f {
			f.full, f.to.file = true, nil
			return f
		}
	}
	return nil
}

// leave removes a row group from the queue. The caller holds the lock.
func (w *Writer) leave(g *group) {
	g.release()
	w.queue = slices.DeleteFunc(w.queue, func(q *group) bool { return q == g })
	w.wake.Broadcast()
}

// endFile ends a file whose row groups are written.
func (w *Writer) endFile(f *fileWriter) error {
	data := f.size
	err := f.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = slices.DeleteFunc(w.files, func(o *fileWriter) bool { return o == f })
	if err == nil {
		w.out.complete(f.path, f.size, f.rows)
		w.stats.Files++
		w.stats.Bytes += f.size - data + int64(len(magic))
	}
	return err
}

// Stats implements sink.Sink.
func (w *Writer) Stats() sink.Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// RemoveTemporary removes the temporary file or directory of the output. It is for callers that end
// the process without Abort.
func (w *Writer) RemoveTemporary() error { return w.out.removeTemporary() }

// Commit implements sink.Sink.
func (w *Writer) Commit(ctx context.Context) error {
	if w.ended {
		return errors.New("the sink has ended")
	}
	err := w.complete(ctx)
	if err == nil {
		err = w.out.publish(ctx)
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	w.ended = true
	return nil
}

// Stage implements sink.Staged.
func (w *Writer) Stage(ctx context.Context) ([]staging.Change, error) {
	if w.ended {
		return nil, errors.New("the sink has ended")
	}
	err := w.complete(ctx)
	var changes []staging.Change
	if err == nil {
		changes, err = w.out.stage(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return changes, nil
}

// Published implements sink.Staged.
func (w *Writer) Published() error {
	w.ended = true
	return w.out.published()
}

// complete writes everything that is left.
func (w *Writer) complete(ctx context.Context) error {
	if w.split != nil {
		if err := w.divideRest(ctx); err != nil {
			return err
		}
	} else if err := w.handRest(ctx); err != nil {
		return err
	}
	w.workers.Wait()
	w.freeIdle()
	if err := w.failure(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := w.adopt(); err != nil {
		return err
	}
	if len(w.files) == 0 && w.stats.Files == 0 && !w.mayBeEmpty() { // no rows
		if err := w.openEmpty(); err != nil {
			return err
		}
	}
	var ends errgroup.Group
	ends.SetLimit(w.opt.Threads)
	for _, f := range slices.Clone(w.files) {
		ends.Go(func() error { return w.endFile(f) })
	}
	if err := ends.Wait(); err != nil {
		return err
	}
	return w.closeDevice()
}

// handRest queues the last row groups: the rows of all devices that wait, together if they fit one row group.
func (w *Writer) handRest(ctx context.Context) error {
	last := w.whole
	for _, d := range w.devices {
		p := &d.pending
		if last.pendingRows > 0 && (last.pendingRows+p.pendingRows > w.opt.RowGroupRows ||
			last.pendingBytes+p.pendingBytes > w.most) {
			if err := w.hand(ctx, last, false); err != nil {
				return err
			}
		}
		last.pending = append(last.pending, p.pending...)
		last.pendingRows += p.pendingRows
		last.pendingBytes += p.pendingBytes
		p.pending, p.pendingRows, p.pendingBytes = nil, 0, 0
	}
	if last.pendingRows == 0 {
		return nil
	}
	return w.hand(ctx, last, false)
}

// mayBeEmpty reports whether the output needs no file: it adds to one that exists, or is a part of one.
func (w *Writer) mayBeEmpty() bool {
	switch out := w.out.(type) {
	case *parts, *objectParts:
		return true
	case localTarget:
		if !out.into {
			return false
		}
		_, err := os.Lstat(out.target)
		return err == nil
	case *objects:
		return out.existed && (out.appends || out.partitions)
	}
	return false
}

// openEmpty makes a file with only a schema. In a partitioned output, which then has no folders, it
// also has the partition columns.
func (w *Writer) openEmpty() (err error) {
	if w.split == nil {
		return w.open(w.whole)
	}
	if w.columns, err = columnsOf(w.split.withKeys(), w.opt); err != nil {
		return err
	}
	return w.open(&destination{})
}

// Abort implements sink.Sink.
func (w *Writer) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	w.fail(errors.New("the sink was aborted"))
	w.workers.Wait()
	w.freeIdle()
	w.dropPending()
	for _, f := range w.files {
		f.abandon()
	}
	w.files = nil
	return errors.Join(w.closeDevice(), w.out.discard())
}

// dropPending releases the rows that are not queued.
func (w *Writer) dropPending() {
	all := []*destination{w.whole}
	if w.split != nil {
		all = w.split.release()
	}
	for i, d := range w.devices {
		if all = append(all, &d.pending); w.split != nil {
			all = append(all, w.split.devices[i].pending...)
		}
	}
	for _, d := range all {
		for _, p := range d.pending {
			p.stride.Release()
		}
		d.pending = nil
	}
}

// schemaElements returns the schema of a file.
func schemaElements(columns []column) []format.SchemaElement {
	out := []format.SchemaElement{{Name: "schema"}}
	out[0].NumChildren.Set(int32(len(columns)))
	for i := range columns {
		if c := &columns[i]; c.node != nil {
			out = append(out, c.node.elements()...)
		} else {
			out = append(out, c.element())
		}
	}
	return out
}
