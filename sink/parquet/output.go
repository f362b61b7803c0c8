package parquet

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// storage is what the sink does to a file system, so that tests can make any
// of it fail.
type storage interface {
	create(path string) (outFile, error) // must not exist
	mkdir(path string) error             // must not exist
	rmdir(path string) error             // must be empty
	// rename gives a file or directory its name; without replace it fails with
	// fs.ErrExist when the name is taken.
	rename(from, to string, replace bool) error
	syncDir(path string) error
	remove(path string) error // with everything below; no error when absent
}

type outFile interface {
	WriteAt(p []byte, off int64) (int, error)
	// startWriteback lets the system begin to write a range to the disk, so that
	// Sync has less to wait for.
	startWriteback(off, n int64)
	Sync() error
	Close() error
}

// disk is the file system.
type disk struct{}

func (disk) create(path string) (outFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

type diskFile struct{ *os.File }

func (f diskFile) startWriteback(off, n int64) {
	// A hint: what goes wrong comes back from Sync.
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

func (disk) mkdir(path string) error { return os.Mkdir(path, 0o777) }

func (disk) rmdir(path string) error { return unix.Rmdir(path) }

func (disk) rename(from, to string, replace bool) error {
	if replace {
		return os.Rename(from, to)
	}
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		// The file system has no such rename: look first, with the gap that has.
		if _, err := os.Lstat(to); err == nil {
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		}
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (disk) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (disk) remove(path string) error { return os.RemoveAll(path) }

// output is a target that is built under a temporary name beside it.
type output struct {
	storage   storage
	target    string
	temporary string
	overwrite bool
	sync      bool
	directory bool
	parents   []string // directories above target that were made for it, outermost first
}

// newOutput picks a temporary name for a target and checks that the target may
// be written.
func newOutput(s storage, target string, overwrite, directory, sync bool) (*output, error) {
	target = filepath.Clean(target)
	o := &output{storage: s, target: target, overwrite: overwrite, directory: directory, sync: sync}
	if err := o.check(); err != nil {
		return nil, err
	}
	var r [6]byte
	if _, err := rand.Read(r[:]); err != nil {
		return nil, err
	}
	name := "." + filepath.Base(target) + ".gstream-" + hex.EncodeToString(r[:]) + ".tmp"
	o.temporary = filepath.Join(filepath.Dir(target), name)
	err := o.makeParents(filepath.Dir(target))
	if err == nil && directory {
		err = s.mkdir(o.temporary)
	}
	if err != nil {
		o.removeParents()
		return nil, err
	}
	return o, nil
}

// makeParents makes a directory and those above it that are not there.
func (o *output) makeParents(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if above := filepath.Dir(dir); above != dir {
		if err := o.makeParents(above); err != nil {
			return err
		}
	}
	err := o.storage.mkdir(dir)
	if errors.Is(err, fs.ErrExist) {
		return nil // made by another process since
	}
	if err == nil {
		o.parents = append(o.parents, dir)
	}
	return err
}

// removeParents removes the directories that were made and are still empty; in
// the others somebody else has put something.
func (o *output) removeParents() {
	for len(o.parents) > 0 {
		last := len(o.parents) - 1
		if o.storage.rmdir(o.parents[last]) != nil {
			return
		}
		o.parents = o.parents[:last]
	}
}

// check refuses a target that is there and must not be replaced.
func (o *output) check() error {
	info, err := os.Lstat(o.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !o.overwrite:
		return o.exists()
	case info.IsDir() && !o.directory:
		return fmt.Errorf("%s is a directory; it is not replaced by a file", o.target)
	}
	return nil
}

func (o *output) exists() error {
	return fmt.Errorf("%s: %w; remove it, choose another name, or use --overwrite", o.target, os.ErrExist)
}

// part returns the path under which file number i is written.
func (o *output) part(i int) string {
	if o.directory {
		return filepath.Join(o.temporary, fmt.Sprintf("part-%05d.parquet", i))
	}
	return o.temporary
}

// publish makes the output appear under its name. With sync its files are on the
// disk.
func (o *output) publish() error {
	if o.directory && o.sync {
		if err := o.storage.syncDir(o.temporary); err != nil {
			return err
		}
	}
	old := ""
	if o.directory && o.overwrite {
		// A directory cannot be replaced by a rename: the old one steps aside.
		old = o.temporary + ".old"
		if err := o.storage.rename(o.target, old, false); errors.Is(err, fs.ErrNotExist) {
			old = ""
		} else if err != nil {
			return err
		}
	}
	err := o.storage.rename(o.temporary, o.target, o.overwrite && !o.directory)
	if errors.Is(err, fs.ErrExist) {
		err = o.exists()
	} else if err == nil && o.sync {
		if err = o.syncParents(); err != nil && (o.directory || !o.overwrite || len(o.parents) > 0) {
			// It may be gone after a crash, so it is not there now either.
			err = errors.Join(err, o.storage.remove(o.target))
		}
	}
	switch {
	case old == "":
		return err
	case err != nil:
		return errors.Join(err, o.storage.rename(old, o.target, false))
	}
	return o.storage.remove(old)
}

// syncParents makes the names of the target and of the directories made for it
// last through a crash.
func (o *output) syncParents() error {
	for _, dir := range o.parents {
		if err := o.storage.syncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return o.storage.syncDir(filepath.Dir(o.target))
}

// discard removes what was written, and the directories made for it.
func (o *output) discard() error {
	err := o.storage.remove(o.temporary)
	o.removeParents()
	return err
}
