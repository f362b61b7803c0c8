package parquet

import (
	"errors"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// scratch is memory of a lease that is reused.
type scratch struct{ buf *gpu.Buffer }

// take returns n elements with unspecified contents. They are valid until the next take.
func take[T any](l *gpu.Lease, s *scratch, n int) ([]T, error) {
	var t T
	if size := int64(n) * int64(unsafe.Sizeof(t)); s.buf.Size() < size {
		s.release()
		b, err := l.Alloc(size + size/8)
		if err != nil {
			return nil, err
		}
		s.buf = b
	}
	return gpu.Values[T](s.buf, n), nil
}

func (s *scratch) release() {
	s.buf.Release()
	s.buf = nil
}

// pageScratch is append-only scratch on the Go heap. The size of a page or a dictionary
// bounds it.
type pageScratch struct {
	packed     []byte
	plain      []byte // values of a String or Binary column
	varEntries []byte // distinct values of a String or Binary column in PLAIN encoding
	starts     []int  // starts of the distinct values
	body       []byte // the page under construction
	packedRun  []byte // codes of the page under construction
	packedOut  []byte // the compressed page
}

func (p *pageScratch) size() int64 {
	return int64(cap(p.packed) + cap(p.plain) + cap(p.varEntries) + 8*cap(p.starts) + cap(p.body) + cap(p.packedRun) +
		cap(p.packedOut))
}

// free releases the scratch.
func (e *encoder) free() {
	for _, s := range []*scratch{&e.valid, &e.dense, &e.codes, &e.translate, &e.seen, &e.fixedEntries,
		&e.table.memory, &e.hashed, &e.filter} {
		s.release()
	}
	e.entries, e.hashes = nil, nil
	e.pageScratch = pageScratch{}
	e.count()
}

// count makes the lease pay for the current scratch on the Go heap, or drops the scratch
// if there is no memory for it.
func (e *encoder) count() {
	n := e.pageScratch.size()
	if more := n - e.counted; more > 0 && e.lease.Reserve(more) != nil {
		e.entries = nil
		e.pageScratch = pageScratch{}
		n = 0
	}
	if n < e.counted {
		e.lease.Unreserve(e.counted - n)
	}
	e.counted = n
}

// encodePatiently encodes a column that was denied memory, as soon as there is some. It fails if no
// memory is taken or released meanwhile. One worker at a time does so, and holds no memory while it
// waits, so that workers cannot deadlock.
func (w *Writer) encodePatiently(e *encoder, c *column, ranges []rowRange, rows int) (*encodedChunk, error) {
	w.short.Lock()
	defer w.short.Unlock()
	left, still := int64(-1), false
	for {
		if err := w.failure(); err != nil {
			return nil, err
		}
		w.freeIdle()
		k, err := e.encode(c, ranges, rows)
		var short *gpu.BudgetError
		if !errors.As(err, &short) {
			return k, err
		}
		e.free()
		before := left
		left = w.opt.Lease.Available()
		switch {
		case left > before: // it may have been released since
			still = false
		case left == before && still:
			short.Hint = "or set a lower row_group_rows: a row group is held until it is encoded"
			return nil, err
		default:
			still = !w.opt.Lease.AwaitMore(w.run, left)
		}
	}
}

// freeIdle releases the scratch of workers that have no task.
func (w *Writer) freeIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.idle {
		e.free()
	}
}
