package text

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/sink/staging"
)

// Format is a format of text.
type Format string

// The formats.
const (
	CSV  Format = "csv"
	JSON Format = "json" // an object on each line
)

// Options configure an output.
type Options struct {
	Format Format
	// Delimiter is the character between the fields of CSV; "" is a comma.
	Delimiter string
	// NoHeader leaves the names of the columns out of CSV.
	NoHeader bool
	// Null is the text of a null in CSV. Values that are equal to it are in quotes.
	Null string
	// Overwrite replaces a file that exists. Sync waits at the end until the file is on disk.
	Overwrite, Sync bool

	// Discard writes nothing to standard output, and removes an object at Commit.
	Discard bool `json:"-"`
	// Lease pays for the text of strides until it is written.
	Lease *gpu.Lease `json:"-"`
	// Threads bounds the strides that are encoded at a time; 0 means GOMAXPROCS.
	Threads int `json:"-"`
	// Trace, if set, is called after every task.
	Trace func(what string, begin time.Time) `json:"-"`
}

func (o *Options) header() bool { return !o.NoHeader }

func (o *Options) delimiter() byte {
	if o.Delimiter == "" {
		return ','
	}
	return o.Delimiter[0]
}

// Check returns an error for options that are wrong whatever the columns.
func (o *Options) Check() error {
	if d := o.Delimiter; d != "" && (len(d) != 1 || d[0] >= 0x80 || strings.Contains("\"\n\r\x00", d)) {
		return fmt.Errorf("delimiter is %q; it must be one ASCII character, and neither a quote nor a line break", d)
	}
	if strings.ContainsAny(o.Null, "\"\n\r"+string(o.delimiter())) {
		return fmt.Errorf("the text of a null is %q; it must be one without quotes, delimiters and line breaks",
			o.Null)
	}
	return nil
}

// FormatOf returns the format that the name of a file says, "" for another one. The name may end in .gz or .zst.
func FormatOf(path string) Format {
	path = strings.ToLower(path)
	if ext := filepath.Ext(path); ext == ".gz" || ext == ".zst" {
		path = strings.TrimSuffix(path, ext)
	}
	switch filepath.Ext(path) {
	case ".csv", ".tsv":
		return CSV
	case ".json", ".jsonl", ".ndjson":
		return JSON
	}
	return ""
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
func Create(path string, schema *gpu.Schema, opt Options) (*Writer, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	w := &Writer{path: path, opt: opt, encoder: newEncoder(schema, opt), compress: uncompressed}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	switch strings.ToLower(filepath.Ext(path)) {
	case ".gz":
		w.compress = gzipped
	case ".zst":
		w.compress = zstandard
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
	if text := w.encoder.header(nil); len(text) > 0 {
		t := &task{ready: make(chan struct{})}
		t.text, t.err = w.compress(text)
		close(t.ready)
		w.pending <- t
	}
	return w, nil
}

func (w *Writer) exists() error {
	return fmt.Errorf("%s: %w; remove it, choose another name, or use %v", w.path, os.ErrExist, gpu.Overwrite)
}

// Writer is a sink.Sink.
type Writer struct {
	path     string
	opt      Options
	encoder  *encoder
	compress func([]byte) ([]byte, error)
	file     staging.Staged // nil for standard output
	out      io.Writer
	pending  chan *task // in the order of the rows
	done     chan struct{}
	ctx      context.Context
	cancel   context.CancelCauseFunc
	ended    bool
	rows     atomic.Int64
	bytes    atomic.Int64
	staged   atomic.Bool // the file may be getting its name
}

var _ sink.Staged = (*Writer)(nil)

// task is a stride that is encoded.
type task struct {
	ready chan struct{} // closed when it is encoded
	rows  int
	text  []byte
	paid  int64 // bytes that the lease pays for
	err   error
}

// writeAll writes the texts of strides, in order.
func (w *Writer) writeAll() {
	defer close(w.done)
	for t := range w.pending {
		<-t.ready
		if t.err == nil && w.ctx.Err() == nil {
			begin := time.Now()
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
	// The text of numbers has about three times their bytes.
	t.paid = 3*s.Bytes() + int64(s.Rows*len(s.Cols))
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
		t.text, t.err = w.compress(w.encoder.rows(make([]byte, 0, t.paid/2), s))
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
		*err = gpu.Panicked("a writer of text", p, debug.Stack())
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
	var change staging.Change
	if local, ok := w.file.(localFile); !ok {
		err = errors.Join(err, sink.ErrNotLocal)
	} else if err == nil {
		change, err = local.Stage(w.opt.Sync)
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
	f, ok := w.file.(localFile)
	if w.file = nil; !ok {
		return nil
	}
	return f.Close()
}

// localFile is a file that can get its name together with others.
type localFile interface {
	Stage(sync bool) (staging.Change, error)
	Close() error
}

// end waits until everything is written.
func (w *Writer) end() {
	if !w.ended {
		w.ended = true
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

func uncompressed(text []byte) ([]byte, error) { return text, nil }

func gzipped(text []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(text)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// zstdEncoder compresses texts of any number of goroutines.
var zstdEncoder, _ = zstd.NewWriter(nil)

func zstandard(text []byte) ([]byte, error) { return zstdEncoder.EncodeAll(text, nil), nil }
