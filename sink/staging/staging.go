// Package staging makes the temporaries under which an output is written until
// it gets its name: hidden files and folders beside the target. It owns their
// names and the lock that says that the process which writes one is alive, so
// that the next process that writes into the folder can remove those of killed
// ones.
//
// A lock ends with its process, whatever its number, container or machine, and
// no two processes have it. So a temporary that can be locked belongs to nobody;
// one that cannot be locked, as on a file system without locks, is left alone.
package staging

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LockName is the file in a temporary folder that its process holds locked. It
// stays in the folder, where readers of folders pass over hidden files.
const LockName = ".gstream-manifest.json"

// Part is the name of file number i in a folder.
func Part(i int) string { return fmt.Sprintf("part-%05d.parquet", i) }

var (
	temporary = regexp.MustCompile(`^\..*\.gstream-[0-9a-f]{12}\.tmp$`)
	part      = regexp.MustCompile(`^part-[0-9]{5,}\.parquet$`)
)

// name returns a new name for a temporary of a target.
func name(target string) (string, error) {
	var r [6]byte
	if _, err := rand.Read(r[:]); err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".gstream-"+hex.EncodeToString(r[:])+".tmp"), nil
}

// attempts bounds the names that are tried: another is needed only where a
// process that sweeps was between the making of a temporary and its lock.
const attempts = 100

// File makes a temporary for a target that is a file. It is locked until it is
// closed.
func File(target string) (f *os.File, err error) {
	for range attempts {
		path, err := name(target)
		if err != nil {
			return nil, err
		}
		if f, err = create(path); !errors.Is(err, errSwept) {
			return f, err
		}
	}
	return nil, errSwept
}

// Folder makes a temporary for a target that is a folder, and returns the file in
// it that is locked until it is closed.
func Folder(target string) (path string, lock *os.File, err error) {
	for range attempts {
		if path, err = name(target); err != nil {
			return "", nil, err
		}
		if err := os.Mkdir(path, 0o777); err != nil {
			return "", nil, err
		}
		lock, err := create(filepath.Join(path, LockName))
		switch {
		case err == nil:
			return path, lock, nil
		case !errors.Is(err, errSwept) && !errors.Is(err, fs.ErrNotExist):
			return "", nil, errors.Join(err, Remove(path))
		}
	}
	return "", nil, errSwept
}

var errSwept = errors.New("another process removes the temporaries as fast as they are made")

// create makes a file and locks it, where the file system has locks.
func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	err = Lock(f)
	if !errors.Is(err, ErrLocked) && same(f, path) {
		return f, nil
	}
	f.Close() // what another process removes
	return nil, errSwept
}

// ErrLocked says that another process has a lock.
var ErrLocked = errors.New("another process has it locked")

// Lock locks a file until it is closed. It does not wait. An error other than
// ErrLocked says that there are no locks here.
func Lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// same says whether a path still is the open file, and that is a file.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil || !a.Mode().IsRegular() {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// Sweep removes the temporaries in a folder whose process is gone. What cannot be
// removed is left for the next time.
func Sweep(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if temporary.MatchString(e.Name()) {
			sweep(filepath.Join(folder, e.Name()), e.IsDir())
		}
	}
}

func sweep(path string, folder bool) {
	lockPath := path
	if folder {
		lockPath = filepath.Join(path, LockName)
	}
	f, err := os.OpenFile(lockPath, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if folder && errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(path) // if it is empty
		}
		return
	}
	defer f.Close()
	// The process may have given the file its name since.
	if Lock(f) == nil && conclusive(f) && same(f, lockPath) && Remove(path) != nil && folder {
		f.Close() // NFS keeps an open file in its folder
		_ = os.Remove(path)
	}
}

// locking are the file systems whose locks are seen by all who can open a file.
// On others, as FUSE, a lock may be seen on one machine only.
var locking = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */, unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC,
}

// conclusive says whether a lock that was had means that no process has the file.
// Where locks may not be seen from other machines, a day without a change must
// have passed, too.
func conclusive(f *os.File) bool {
	var s unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &s) == nil && slices.Contains(locking, int64(s.Type)) {
		return true
	}
	info, err := f.Stat()
	return err == nil && time.Since(info.ModTime()) > 24*time.Hour
}

// Remove removes a file, or of a folder its parts, the file that is locked and,
// when that was all, the folder. What is not there is no error.
func Remove(path string) error {
	info, err := os.Lstat(path)
	var names []string
	if err == nil && info.IsDir() {
		var entries []fs.DirEntry
		entries, err = os.ReadDir(path)
		for _, e := range entries {
			if part.MatchString(e.Name()) {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
		// As long as anything is left, so is the file by which it is swept.
		names = append(names, filepath.Join(path, LockName))
	}
	for _, n := range append(names, path) {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.Remove(n)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// maxLinks is where the system gives links up, too.
const maxLinks = 40

// Resolve returns the path at which a file is made when path is written to: where
// it leads when it is a link, also one whose file is not there yet.
func Resolve(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return filepath.Clean(path), nil // what is wrong shows when it is written
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real, nil
		}
		link, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(link) {
			folder, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", err
			}
			link = filepath.Join(folder, link)
		}
		path = link
	}
	return "", &fs.PathError{Op: "follow", Path: path, Err: syscall.ELOOP}
}
