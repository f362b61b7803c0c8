package store

import (
	"context"
	"io"
)

const (
	// blockBytes is the size of the blocks that are read ahead, and aheadBlocks their number.
	blockBytes, aheadBlocks = 4 << 20, 4
	// firstBytes is the size of a block that is read without memory of a budget: the first one, and others if memory is
	// short.
	firstBytes = 256 << 10
)

// Memory is a budget that pays for what is read ahead.
type Memory interface {
	Reserve(n int64) error
	Unreserve(n int64)
}

// Reader reads an object from its beginning to its end. One goroutine uses it.
type Reader struct {
	ctx    context.Context
	cancel context.CancelFunc
	file   File
	memory Memory // nil if nothing is read ahead
	at     int64  // of the next block
	queue  []*ahead
	rest   []byte // of the first block
}

// ahead is a block that is being read.
type ahead struct {
	bytes []byte
	paid  int64
	err   error
	done  chan struct{}
}

// NewReader returns a reader of a file. It reads up to 16 MiB ahead, for which memory pays, or nothing for nil. The
// caller closes it, and then the file.
func NewReader(ctx context.Context, f File, memory Memory) *Reader {
	r := &Reader{file: f, memory: memory}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next waits for the next block.
func (r *Reader) next() error {
	if len(r.queue) > 0 { // its first block was read
		r.release(r.queue[0])
		r.queue = r.queue[1:]
	}
	for len(r.queue) < aheadBlocks && r.at < r.file.Version().Size {
		size, paid := int64(firstBytes), int64(0)
		if r.memory != nil && r.at > 0 && r.memory.Reserve(blockBytes) == nil {
			size, paid = blockBytes, blockBytes
		} else if len(r.queue) > 0 {
			break
		}
		a := &ahead{bytes: make([]byte, min(size, r.file.Version().Size-r.at)), paid: paid, done: make(chan struct{})}
		go func(at int64) {
			defer close(a.done)
			if _, err := r.file.ReadAt(r.ctx, a.bytes, at); err != io.EOF {
				a.err = err
			}
		}(r.at)
		r.at += int64(len(a.bytes))
		r.queue = append(r.queue, a)
	}
	if len(r.queue) == 0 {
		return io.EOF
	}
	a := r.queue[0]
	<-a.done
	r.rest = a.bytes
	return a.err
}

func (r *Reader) release(a *ahead) {
	if a.paid > 0 {
		r.memory.Unreserve(a.paid)
	}
}

// Close ends the requests. It does not close the file.
func (r *Reader) Close() {
	r.cancel()
	for _, a := range r.queue {
		<-a.done
		r.release(a)
	}
	r.queue, r.rest = nil, nil
}
