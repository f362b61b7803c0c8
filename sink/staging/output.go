package staging

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Output is a file that is written under a temporary name next to its target.
type Output struct {
	*os.File
	target    string // with links resolved
	overwrite bool
}

// CheckFile returns an error for a target that exists and is not a file, or must not be replaced. An error about the
// latter is an fs.ErrExist.
func CheckFile(path string, overwrite bool) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	switch {
	case err != nil:
	case info.IsDir():
		err = errors.New("it is a folder, which is not replaced by a file; name a file in it")
	case !info.Mode().IsRegular():
		err = errors.New("it is not a file and is never replaced; name a file")
	case !overwrite:
		return &fs.PathError{Op: "write", Path: path, Err: fs.ErrExist}
	default:
		return nil
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}

// Create makes the temporary of a target. It removes temporaries next to it whose process was killed.
func Create(path string, overwrite bool) (*Output, error) {
	target, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	if err := CheckFile(target, overwrite); err != nil {
		return nil, err
	}
	if err := Sweep(filepath.Dir(target)); err != nil {
		return nil, err
	}
	f, err := File(target)
	if err != nil {
		return nil, err
	}
	return &Output{f, target, overwrite}, nil
}

// Commit gives the file its name and closes it. With sync it waits until file and name are on disk. After an error
// there is no output.
func (o *Output) Commit(sync bool) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Abort())
		}
	}()
	if sync {
		if err := o.Sync(); err != nil {
			return err
		}
	}
	if err := CheckFile(o.target, o.overwrite); err != nil { // it may have changed
		return err
	}
	if err := Finish(o.Name(), o.target); err != nil {
		return err
	}
	if err := Rename(o.Name(), o.target, o.overwrite); err != nil {
		return err
	}
	if sync {
		if err := SyncFolder(filepath.Dir(o.target)); err != nil {
			return errors.Join(err, o.Close())
		}
	}
	return o.Close()
}

// Stage completes the file under its temporary name, and returns the change that gives it its name. With sync it waits
// until the file is on disk.
func (o *Output) Stage(sync bool) (Change, error) {
	if sync {
		if err := o.Sync(); err != nil {
			return Change{}, err
		}
	}
	if err := CheckFile(o.target, o.overwrite); err != nil {
		return Change{}, err
	}
	return Change{Temporary: o.Name(), Target: o.target, Replace: o.overwrite, Sync: sync}, Finish(o.Name(), o.target)
}

// Abort removes the temporary.
func (o *Output) Abort() error {
	_ = o.Close()
	return Remove(o.Name())
}

// Rename renames a file or folder. Without replace it fails with fs.ErrExist when the name is taken.
func Rename(from, to string, replace bool) error {
	if replace {
		if err := Step("rename", to); err != nil {
			return err
		}
		return os.Rename(from, to)
	}
	err := RenameWith(from, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, errors.ErrUnsupported) {
		// Check first. Between the check and the rename another process may take the
		// name.
		if _, err := os.Lstat(to); err == nil {
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		}
		return os.Rename(from, to)
	}
	return err
}

// RenameWith is a rename with flags of renameat2, which not all file systems support: errors.ErrUnsupported.
func RenameWith(from, to string, flags uint) error {
	if err := Step("rename", to); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return errors.ErrUnsupported
	case err != nil:
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// SyncFolder waits until the names in a folder are on disk.
func SyncFolder(path string) error {
	if err := Step("sync", path); err != nil {
		return err
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
