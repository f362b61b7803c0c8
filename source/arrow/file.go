package arrow

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source/store"
)

// Standard is the path of standard input.
const Standard = "-"

var (
	magic   = []byte("ARROW1")
	feather = []byte("FEA1") // version 1 of Feather, another format
)

const (
	// maxMetadata bounds the bytes of the metadata of a message and of a footer, maxBlocks the messages of a file.
	maxMetadata, maxBlocks = 64 << 20, 1 << 20
	// headBytes is what is read at least of a file, to find its schema, and window what is read ahead of metadata.
	headBytes, localWindow, remoteWindow = 64 << 10, 4 << 10, 64 << 10
)

// file is a file of a table, or standard input.
type file struct {
	path    string // for people
	address string // where it is
	version store.Version
	fields  []Field
	// blocks are the messages after the schema, in order. Those of a sequential file are found when it is read.
	blocks     []block
	sequential bool
	before     int   // record batches in front of those of a share
	start      int64 // of a sequential file: where the first message after the schema begins
	rows       int64
	exact      bool
	pipe       *store.Pipe // of standard input, after the schema
	taken      atomic.Bool // the rest of standard input is read
}

// block is where a message is.
type block struct {
	offset   int64
	metadata int64 // bytes of the metadata with its prefix
	body     int64
	records  bool // or else a dictionary, or something that is skipped
}

func (b block) end() int64 { return b.offset + b.metadata + b.body }

// window reads metadata of a file, with what follows it.
type window struct {
	ctx   context.Context
	file  store.File
	size  int64
	ahead int64
	from  int64
	bytes []byte
}

// at returns n bytes at an offset.
func (w *window) at(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || n > maxMetadata || off > w.size || n > w.size-off {
		return nil, badf("the file ends, at %d bytes, before %d bytes of metadata at %d", w.size, n, off)
	}
	if off < w.from || off+n > w.from+int64(len(w.bytes)) {
		b := make([]byte, min(max(n, w.ahead), w.size-off))
		if got, err := w.file.ReadAt(w.ctx, b, off); got < len(b) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		w.from, w.bytes = off, b
	}
	return w.bytes[off-w.from:][:n], nil
}

// prefix returns the bytes of the prefix of a message, and of the metadata after it, 0 at the end of the stream.
func prefix(b []byte) (prefix, metadata int64, err error) {
	n := int64(int32(binary.LittleEndian.Uint32(b)))
	prefix = 4
	if uint32(n) == continuation {
		prefix, n = 8, int64(int32(binary.LittleEndian.Uint32(b[4:])))
	}
	if n < 0 || n > maxMetadata {
		return 0, 0, badf("it is no message of Arrow's format")
	}
	return prefix, n, nil
}

// message reads the metadata of the message at an offset. It is nil at the end of the stream.
func (w *window) message(off int64) (*message, block, error) {
	if off == w.size { // the end of a stream may be missing
		return nil, block{}, nil
	}
	head, err := w.at(off, min(8, w.size-off))
	if err != nil {
		return nil, block{}, err
	}
	if len(head) < 8 {
		head = append(bytes.Clone(head), make([]byte, 8-len(head))...)
	}
	p, n, err := prefix(head)
	if err != nil || n == 0 {
		return nil, block{}, err
	}
	b, err := w.at(off+p, n)
	if err != nil {
		return nil, block{}, err
	}
	m, err := messageOf(b)
	if err != nil {
		return nil, block{}, err
	}
	blk := block{off, p + n, m.body, m.header == headerRecords}
	if m.body > w.size-off-p-n {
		return nil, block{}, badf("the file ends, at %d bytes, before a message of %d bytes at %d", w.size, m.body, off)
	}
	return m, blk, nil
}

// openFile reads the schema of a file and finds its messages.
func openFile(ctx context.Context, f *file) (err error) {
	defer guard(&err)
	in, err := store.Open(ctx, f.address, &f.version)
	if err != nil {
		return err
	}
	defer in.Close()
	w := &window{ctx: ctx, file: in, size: in.Version().Size, ahead: headBytes}
	head, err := w.at(0, min(w.size, headBytes))
	if err != nil {
		return err
	}
	remote := store.Scheme(f.address) != ""
	if w.ahead = localWindow; remote {
		w.ahead = remoteWindow
	}
	switch {
	case bytes.HasPrefix(head, feather):
		return badf("it is Feather version 1, which is another format than Arrow's; write the file again with a " +
			"current version")
	case bytes.HasPrefix(head, magic):
		return f.openIndexed(w, remote)
	}
	m, b, err := w.message(0)
	if m == nil {
		if err == nil {
			err = badf("it has no schema")
		}
		return notArrow(err)
	}
	if f.fields, err = m.schema(); err != nil {
		return notArrow(err)
	}
	if f.start = b.end(); remote {
		f.sequential = true
		return nil
	}
	f.exact = true
	for off := f.start; ; {
		m, b, err := w.message(off)
		if err != nil || m == nil {
			return err
		}
		if len(f.blocks) == maxBlocks {
			return badf("the file has more than %d messages", maxBlocks)
		}
		if b.records {
			f.rows += max(m.longOf(m.table, 0), 0)
		}
		f.blocks = append(f.blocks, b)
		off = b.end()
	}
}

func notArrow(err error) error { return fmt.Errorf("not a file of Arrow's IPC format: %w", err) }

// fewBlocks is the number of record batches whose rows are counted when a remote file is opened. Each takes a request.
const fewBlocks = 16

// openIndexed opens a file with a footer.
func (f *file) openIndexed(w *window, remote bool) error {
	tail := int64(len(magic) + 4)
	if w.size < 8+tail {
		return badf("the file ends after %d bytes", w.size)
	}
	first, b, err := w.message(8)
	if err == nil && first == nil {
		err = badf("it has no schema")
	}
	if err != nil {
		return err
	}
	if f.fields, err = first.schema(); err != nil {
		return err
	}
	from := max(w.size-w.ahead, 0)
	if _, err := w.at(from, w.size-from); err != nil {
		return err
	}
	end, err := w.at(w.size-tail, tail)
	if err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(end))
	if !bytes.Equal(end[4:], magic) || n > w.size-tail {
		return badf("it has no footer: its end is cut off")
	}
	text, err := w.at(w.size-tail-n, n)
	if err != nil {
		return err
	}
	footer := newFlat(text)
	root := int(footer.number(0))
	for _, slot := range []int{2, 3} { // dictionaries, and then record batches
		at, n := footer.structs(footer.field(root, slot), 24)
		if n > maxBlocks {
			return badf("the file has more than %d messages", maxBlocks)
		}
		for i := range n {
			at := at + 24*i
			b := block{footer.long(at), int64(int32(footer.number(at + 8))), footer.long(at + 16), slot == 3}
			if b.offset < 8 || b.metadata < 8 || b.body < 0 || b.offset > w.size || b.metadata > w.size-b.offset ||
				b.body > w.size-b.offset-b.metadata {
				return badf("the footer has a message of %d bytes at %d, and the file %d bytes", b.body, b.offset,
					w.size)
			}
			f.blocks = append(f.blocks, b)
		}
	}
	if footer.bad {
		return badf("the footer is damaged")
	}
	counted, records := 0, 0
	for _, b = range f.blocks {
		if !b.records {
			continue
		}
		if records++; remote && counted == fewBlocks {
			continue
		}
		m, _, err := w.message(b.offset)
		if err != nil {
			return err
		}
		if m == nil || m.header != headerRecords {
			return badf("the footer has a record batch at %d, and the file something else", b.offset)
		}
		f.rows += max(m.longOf(m.table, 0), 0)
		counted++
	}
	if f.exact = counted == records; !f.exact {
		f.rows = f.rows / int64(counted) * int64(records)
	}
	return nil
}

// openStandard reads the schema from standard input.
func openStandard(ctx context.Context, f *file) (err error) {
	defer guard(&err)
	f.sequential, f.pipe = true, store.NewPipe(os.Stdin)
	s := &stream{in: f.pipe.Reader(ctx), pay: func(int64) error { return nil }}
	m, err := s.message()
	if err == io.EOF {
		err = badf("it is empty")
	}
	if err != nil {
		return notArrow(err)
	}
	f.fields, err = m.schema()
	return err
}

// stream reads the messages of a sequential file.
type stream struct {
	in  io.Reader
	pay func(int64) error
}

// message reads the metadata of the next message. The caller reads its body. At the end the error is io.EOF.
func (s *stream) message() (*message, error) {
	var head [8]byte
	if _, err := io.ReadFull(s.in, head[:4]); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = badf("it ends in the middle of a message")
		}
		return nil, err
	}
	if bytes.HasPrefix(head[:], magic[:4]) {
		return nil, badf("it is an Arrow file, which is read from its end; name the file itself, or send a stream " +
			"(of the writer of streams)")
	}
	if binary.LittleEndian.Uint32(head[:]) == continuation {
		if _, err := io.ReadFull(s.in, head[4:]); err != nil {
			return nil, cutOff(err)
		}
	}
	_, n, err := prefix(head[:])
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	b, _, err := s.read(n, func(int64) error { return nil })
	if err != nil {
		return nil, err
	}
	return messageOf(b)
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badf("it ends in the middle of a message")
	}
	return err
}

// chunk is what is read at first of a message whose end is not known to exist.
const chunk = 1 << 20

// read reads n bytes. It pays for memory as far as bytes arrive, twice at most, and returns what it has paid.
func (s *stream) read(n int64, pay func(int64) error) (b []byte, paid int64, err error) {
	for int64(len(b)) < n {
		size := min(n, max(2*int64(len(b)), chunk))
		if err = pay(size - int64(cap(b))); err != nil {
			return nil, paid, err
		}
		paid += size - int64(cap(b))
		larger := make([]byte, size)
		from := copy(larger, b)
		if _, err = io.ReadFull(s.in, larger[from:]); err != nil {
			return nil, paid, cutOff(err)
		}
		b = larger
	}
	return b, paid, nil
}

// dictionary is the values of a dictionary in memory that a lease pays for until nobody uses it.
type dictionary struct {
	values arrow.Array
	paid   int64
	uses   atomic.Int64
}

func (d *dictionary) release(l *gpu.Lease) {
	if d.uses.Add(-1) == 0 {
		l.Unreserve(d.paid)
	}
}
