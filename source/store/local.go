package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// local is the local file system.
type local struct{}

func versionOf(info fs.FileInfo) Version {
	v := Version{Size: info.Size(), Modified: info.ModTime().UTC()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		v.Device, v.Inode = uint64(s.Dev), s.Ino
	}
	return v
}

func (local) stat(_ context.Context, path string) (Version, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Version{}, err
	}
	return versionOf(info), nil
}

func (local) open(_ context.Context, path string, v *Version) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%s: is a directory", path)
	case v != nil && versionOf(info) != *v:
		err = v.Changed(versionOf(info))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &localFile{f, versionOf(info)}, nil
}

func (local) list(context.Context, string, func(string, Version) error) error {
	return errors.New("internal error: a local folder is read entry by entry; please report it")
}

// localFile is an open file. Reads fail if the file changes.
type localFile struct {
	*os.File
	version Version
}

func (f *localFile) Version() Version { return f.version }

// ReadAt implements File. It checks the version after it has read the bytes, because a file may be overwritten while it
// is open.
func (f *localFile) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if changed := f.Unchanged(); changed != nil {
		return 0, changed
	}
	return n, err
}

// Unchanged returns an error if the file has another version now, for those who use the methods of os.File.
func (f *localFile) Unchanged() error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if now := versionOf(info); now != f.version {
		return f.version.Changed(now)
	}
	return nil
}
