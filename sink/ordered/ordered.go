package ordered

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/sink/staging"
)

// Options configure an output.
type Options struct {
	// Overwrite replaces a file that exists. Sync waits at the end until the file is on disk.
	Overwrite, Sync bool
	// Discard writes nothing to standard output, and removes an object at Commit.
	Discard bool `json:"-"`
	// Lease pays for the bytes of strides until they are written.
	Lease *gpu.Lease `json:"-"`
	// Threads bounds the strides that are encoded at a time; 0 means GOMAXPROCS.
	Threads int `json:"-"`
	// Trace, if set, is called after every task.
	Trace func(what string, begin time.Time) `json:"-"`
}

// Encoder makes the bytes of a file.
type Encoder interface {
	// Begin returns the first bytes of the file.
	Begin() ([]byte, error)
	// Memory returns an estimate of the bytes that Encode allocates.
	Memory(s *gpu.Stride) int64
	// Encode returns the bytes of a stride, for which there are about size bytes of memory. Any goroutine may call it.
	Encode(s *gpu.Stride, size int) ([]byte, error)
	// Wrote is called, in order, before bytes of Begin and of Encode are written at an offset of the file.
	Wrote(offset int64, b []byte)
	// End returns the last bytes of the file, which are written at an offset.
	End(offset int64) ([]byte, error)
}

// Standard is the path of standard output.
const Standard = "-"

// CheckTarget returns an error for a target that no option allows to replace. It is for plans; Create checks
// everything.
func CheckTarget(path string) error {
	if path == Standard {
		return nil
	}
	return staging.CheckFile(path, true)
}

// Create starts an output.
func Create(path string, e Encoder, opt Options) (*Writer, error) {
	w := &Writer{path: path, opt: opt, encoder: e}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	first, err := e.Begin()
	if err != nil {
		return nil, err
	}
	switch {
	case path == Standard && opt.Discard:
		w.out = io.Discard
	case path == Standard:
		w.out = os.Stdout
	default:
		f, err := staging.Stage(w.ctx, path, opt.Overwrite, opt.Lease)
		if errors.Is(err, os.ErrExist) {
			err = w.exists()
		}
		if err != nil {
			return nil, err
		}
		w.file, w.out = f, f
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	w.pending = make(chan *task, threads)
	w.done = make(chan struct{})
	go w.writeAll()
	w.pending <- &task{ready: ready, text: first}
	return w, nil
}

func (w *Writer) exists() error {
	return fmt.Errorf("%s: %w; remove it, choose another name, or use %v", w.path, os.ErrExist, gpu.Overwrite)
}

// Writer is a sink.Sink.
type Writer struct {
	path    string
	opt     Options
	encoder Encoder
	file    staging.Staged // nil for standard output
	out     io.Writer
	pending chan *task // in the order of the rows
	done    chan struct{}
	ctx     context.Context
	cancel  context.CancelCauseFunc
	ended   bool
	rows    atomic.Int64
	bytes   atomic.Int64
	staged  atomic.Bool // the file may be getting its name
}

var _ sink.Staged = (*Writer)(nil)

// task is a stride that is encoded.
type task struct {
	ready chan struct{} // closed when it is encoded
	rows  int
	last  bool // what ends the file
	text  []byte
	paid  int64 // bytes that the lease pays for
	err   error
}

// ready is closed.
var ready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// writeAll writes the bytes of strides, in order.
func (w *Writer) writeAll() {
	defer close(w.done)
	for t := range w.pending {
		<-t.ready
		if t.last {
			t.text, t.err = w.encoder.End(w.bytes.Load())
		}
		if t.err == nil && w.ctx.Err() == nil {
			begin := time.Now()
			if !t.last {
				w.encoder.Wrote(w.bytes.Load(), t.text)
			}
			_, t.err = w.out.Write(t.text)
			w.trace("write", begin)
		}
		w.opt.Lease.Unreserve(t.paid)
		if t.err != nil {
			w.cancel(t.err)
			continue
		}
		w.rows.Add(int64(t.rows))
		w.bytes.Add(int64(len(t.text)))
	}
}

func (w *Writer) trace(what string, begin time.Time) {
	if w.opt.Trace != nil {
		w.opt.Trace(what, begin)
	}
}

// Write implements sink.Sink.
func (w *Writer) Write(ctx context.Context, s *gpu.Stride) error {
	if err := w.failed(ctx); err != nil {
		s.Release()
		return err
	}
	t := &task{ready: make(chan struct{}), rows: s.Rows}
	t.paid = w.encoder.Memory(s)
	if err := w.opt.Lease.Patiently(ctx, func() error { return w.opt.Lease.Reserve(t.paid) }); err != nil {
		s.Release()
		return err
	}
	select {
	case w.pending <- t:
	case <-w.ctx.Done():
		w.opt.Lease.Unreserve(t.paid)
		s.Release()
		return context.Cause(w.ctx)
	}
	go func() {
		defer close(t.ready)
		defer s.Release()
		defer guard(&t.err)
		begin := time.Now()
		t.text, t.err = w.encoder.Encode(s, int(t.paid/2))
		w.trace("encode", begin)
	}()
	return nil
}

// failed returns the error of the output or of a context.
func (w *Writer) failed(ctx context.Context) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// guard turns a panic into an error.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = gpu.Panicked("a writer of a file", p, debug.Stack())
	}
}

// Commit implements sink.Sink.
func (w *Writer) Commit(ctx context.Context) error {
	w.end()
	err := w.failed(ctx)
	if w.file == nil {
		return err
	}
	if err != nil {
		return errors.Join(err, w.remove())
	}
	f := w.file
	w.file = nil
	if w.opt.Discard {
		return f.Abort()
	}
	if err = f.Commit(ctx, w.opt.Sync); errors.Is(err, os.ErrExist) {
		err = w.exists()
	}
	return err
}

// Stage implements sink.Staged. Rows that went to standard output stay there.
func (w *Writer) Stage(ctx context.Context) ([]staging.Change, error) {
	w.end()
	err := w.failed(ctx)
	if w.file == nil {
		return nil, err
	}
	if w.opt.Discard {
		return nil, errors.Join(err, w.remove())
	}
	var change staging.Change
	if err == nil {
		change, err = w.file.Stage(ctx, w.opt.Sync)
	}
	if errors.Is(err, os.ErrExist) {
		err = w.exists()
	}
	if err != nil {
		return nil, errors.Join(err, w.remove())
	}
	w.staged.Store(true)
	return []staging.Change{change}, nil
}

// Published implements sink.Staged.
func (w *Writer) Published() error {
	f := w.file
	if w.file = nil; f == nil {
		return nil
	}
	return f.Published()
}

// end waits until everything is written.
func (w *Writer) end() {
	if !w.ended {
		w.ended = true
		if w.ctx.Err() == nil {
			w.pending <- &task{ready: ready, last: true}
		}
		close(w.pending)
		<-w.done
	}
}

// Abort implements sink.Sink.
func (w *Writer) Abort() error {
	w.cancel(errors.New("the output is abandoned"))
	w.end()
	return w.remove()
}

// RemoveTemporary removes what was written, for a process that ends in the middle of a run.
func (w *Writer) RemoveTemporary() error {
	if w.file == nil || w.staged.Load() {
		return nil
	}
	return w.file.RemoveTemporary()
}

func (w *Writer) remove() error {
	if w.file == nil {
		return nil
	}
	return w.file.Abort()
}

// Stats implements sink.Sink.
func (w *Writer) Stats() sink.Stats {
	return sink.Stats{Rows: w.rows.Load(), Bytes: w.bytes.Load(), Files: 1}
}
