package parquet

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gstream/gstream/source"
)

// handle opens a file when the first chunk is fetched from it, and closes it after the last chunk.
// So the number of open files depends on the number of chunks that are being fetched, not on the
// size of the table. Every opening must find the version of the file whose footer was read.
type handle struct {
	path    string
	version Version
	mu      sync.Mutex
	file    *versionFile
	refs    int
}

func versionOf(info fs.FileInfo) Version {
	v := Version{Size: info.Size(), Modified: info.ModTime().UTC()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		v.Device, v.Inode = uint64(s.Dev), s.Ino
	}
	return v
}

// versionFile is an open file. Reads fail if the file changes.
type versionFile struct {
	*os.File
	version Version
}

// openVersion opens the current version of a file.
func openVersion(path string) (*versionFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s: is a directory", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &versionFile{f, versionOf(info)}, nil
}

// ReadAt implements io.ReaderAt. It checks the version after it has read the bytes, because a file
// may be overwritten while it is open.
func (f *versionFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if info, failed := f.Stat(); failed != nil {
		return 0, failed
	} else if now := versionOf(info); now != f.version {
		return 0, f.version.changed(now)
	}
	return n, err
}

// changed returns an error if a file has another version now.
func (v Version) changed(now Version) error {
	how := "it was written to at " + now.Modified.Local().Format(time.DateTime)
	switch {
	case v.Size != now.Size:
		how = fmt.Sprintf("it had %d bytes and now has %d", v.Size, now.Size)
	case v.Device != now.Device || v.Inode != now.Inode:
		how = "another file has taken its name"
	}
	return fmt.Errorf("%w: %s; run the job again once nothing writes there", source.ErrChanged, how)
}

// acquire returns the open file. Each call must be followed by a call of release.
func (h *handle) acquire() (*versionFile, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refs == 0 {
		f, err := openVersion(h.path)
		if err != nil {
			return nil, err
		}
		if f.version != h.version {
			f.Close()
			return nil, h.version.changed(f.version)
		}
		h.file = f
	}
	h.refs++
	return h.file, nil
}

func (h *handle) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refs--; h.refs == 0 {
		h.file.Close()
		h.file = nil
	}
}
