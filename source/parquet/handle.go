package parquet

import (
	"context"
	"io"
	"sync"

	"github.com/gstream/gstream/source/store"
)

// handle opens a file when the first chunk is fetched from it, and closes it after the last chunk.
// So the number of open files depends on the number of chunks that are being fetched, not on the
// size of the table. Every opening must find the version of the file whose footer was read.
type handle struct {
	path    string
	version Version
	mu      sync.Mutex
	file    store.File
	refs    int
}

// Version identifies the content of a file.
type Version = store.Version

// readerAt is an open file, for reads that end with a context.
type readerAt struct {
	ctx  context.Context
	file store.File
}

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r.file.ReadAt(r.ctx, p, off) }

// acquire returns the open file. Reads from it end with the context. Each call must be followed by a call of release.
func (h *handle) acquire(ctx context.Context) (io.ReaderAt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refs == 0 {
		f, err := store.Open(ctx, h.path, &h.version)
		if err != nil {
			return nil, err
		}
		h.file = f
	}
	h.refs++
	return readerAt{ctx, h.file}, nil
}

func (h *handle) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refs--; h.refs == 0 {
		h.file.Close()
		h.file = nil
	}
}
