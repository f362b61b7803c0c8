package text

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// file is a file of a table.
type file struct {
	path    string // for people
	address string // where it is
	version store.Version
	layout  *layout
	// partitions has the values of the columns that have one in each file.
	partitions []gpu.Scalar
	// standard is set if the file is standard input.
	standard *standardInput
}

// Standard is the path of standard input.
const Standard = "-"

// standardInput is read once. The sample is kept for the scan.
type standardInput struct {
	*store.Pipe
	sample bytes.Buffer
	taken  atomic.Bool
}

// reader returns what is read: first the sample, and then the rest. A sampler gets the sample.
func (s *standardInput) reader(ctx context.Context, sampler bool) (io.Reader, error) {
	if sampler {
		return bytes.NewReader(s.sample.Bytes()), nil
	}
	if s.taken.Swap(true) {
		return nil, errors.New("standard input can be read once: name it in one place of the job")
	}
	return io.MultiReader(bytes.NewReader(s.sample.Bytes()), s.Reader(ctx)), nil
}

// extension returns the end of the name of a file, in lower case.
func extension(address string) string {
	if s := store.Scheme(address); s == "http" || s == "https" {
		address, _, _ = strings.Cut(address, "?")
	}
	return strings.ToLower(filepath.Ext(address))
}

// compressed reports whether the name of a file says that it is compressed.
func compressed(address string) bool {
	return extension(address) == ".gz" || extension(address) == ".zst"
}

// input is an open file: its text, without a byte order mark and compression.
type input struct {
	file   *file
	ctx    context.Context
	opened store.File // nil for standard input
	text   *bufio.Reader
	close  func()
	read   int64 // bytes of the file
	header bool  // the first row is not checked yet
	line   int64 // number of the next line, from 1
}

const (
	inputBuffer = 64 << 10
	// maxWindow bounds the memory of a decompressor.
	maxWindow = 64 << 20
)

// open opens a file, which must have the version that the table was opened with. A sampler reads only its begin. The
// lease, nil for none, pays for what is read ahead of an object.
func (f *file) open(ctx context.Context, sampler bool, lease *gpu.Lease) (*input, error) {
	in := &input{file: f, ctx: ctx, line: 1, close: func() {}}
	if f.standard != nil {
		text, err := f.standard.reader(ctx, sampler)
		if err != nil {
			return nil, err
		}
		return in.start(counter{text, &in.read}), nil
	}
	var err error
	if in.opened, err = store.Open(ctx, f.address, &f.version); err != nil {
		return nil, in.failed(err)
	}
	var text io.Reader
	if local, ok := in.opened.(io.Reader); ok {
		text = counter{local, &in.read}
	} else {
		var memory store.Memory
		if lease != nil {
			memory = lease
		}
		r := store.NewReader(ctx, in.opened, memory)
		text, in.close = counter{r, &in.read}, r.Close
	}
	switch extension(f.address) {
	case ".gz":
		var z *gzip.Reader
		if z, err = gzip.NewReader(bufio.NewReaderSize(text, inputBuffer)); err == nil {
			text = z
		}
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(text, zstd.WithDecoderMaxWindow(maxWindow)); err == nil {
			before := in.close
			text, in.close = z, func() { z.Close(); before() }
		}
	}
	if err == io.EOF {
		text, err = strings.NewReader(""), nil // an empty file is not compressed either
	}
	if err != nil {
		in.end()
		return nil, in.damaged(err)
	}
	return in.start(text), nil
}

// start sets the text, without a byte order mark.
func (in *input) start(text io.Reader) *input {
	in.text = bufio.NewReaderSize(text, inputBuffer)
	if mark, _ := in.text.Peek(3); string(mark) == "\ufeff" {
		_, _ = in.text.Discard(3)
	}
	return in
}

type counter struct {
	r io.Reader
	n *int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

// damaged is the error of a file that cannot be read or decompressed.
func (in *input) damaged(err error) error {
	var failed *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) || in.opened == nil || in.ctx.Err() != nil:
		return err
	case errors.Is(err, source.ErrChanged):
		return in.failed(err)
	case errors.Is(err, source.ErrData):
		return fmt.Errorf("%s: %w", in.file.path, err)
	}
	return fmt.Errorf("%s: %w", in.file.path, badf("it cannot be decompressed: %v", err))
}

// failed adds the path to an error that the file has changed.
func (in *input) failed(err error) error {
	if errors.Is(err, source.ErrChanged) {
		return fmt.Errorf("%s: %w", in.file.path, err)
	}
	return err
}

// unchanged returns an error if the file is no longer the one that the table was opened with. Reads of objects have
// compared their versions.
func (in *input) unchanged() error {
	local, ok := in.opened.(interface{ Unchanged() error })
	if !ok {
		return nil
	}
	return in.failed(local.Unchanged())
}

// skip drops lines, and the empty lines after them.
func (in *input) skip(lines int64) error {
	for {
		if lines <= 0 {
			start, _ := in.text.Peek(2)
			if len(start) == 0 || start[0] != '\n' && string(start) != "\r\n" {
				return nil
			}
		}
		for {
			_, err := in.text.ReadSlice('\n')
			if err == io.EOF {
				return nil
			}
			if err == nil {
				break
			}
			if err != bufio.ErrBufferFull {
				return in.damaged(err)
			}
		}
		lines--
		in.line++
	}
}

// fill reads until buf is full or the file ends, which it reports.
func (in *input) fill(buf []byte) (n int, ended bool, err error) {
	for n < len(buf) && err == nil {
		var more int
		more, err = in.text.Read(buf[n:])
		n += more
	}
	if err == io.EOF { // an io.ErrUnexpectedEOF is the end of a compressed file that is cut off
		return n, true, in.unchanged()
	}
	return n, false, in.damaged(err)
}

func (in *input) end() {
	in.close()
	if in.opened != nil {
		in.opened.Close()
	}
}
