// Package staging makes temporaries: the hidden files and folders next to a target in
// which an output is written until it gets its name. It owns their names, and the lock
// that says that the process that writes one is alive. So the next process that writes
// into the folder can remove the temporaries of killed processes.
//
// A lock ends with its process, whatever the number, container or machine of the process,
// and no two processes have it. So a temporary that can be locked belongs to nobody. A
// temporary that cannot be locked, as on a file system without locks, is left alone.
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
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// LockName is the file in a temporary folder that its process keeps locked. It stays in
// the folder, where readers of folders skip hidden files.
const LockName = ".gstream-manifest.json"

// Part returns the name of file number i in a folder.
func Part(i int) string { return fmt.Sprintf("part-%05d.parquet", i) }

var (
	temporary = regexp.MustCompile(`^\..*\.gstream-[0-9a-f]{12}\.tmp$`)
	partition = regexp.MustCompile(`^[^=]+=[^=]*$`)
	part      = regexp.MustCompile(`^part-[0-9]{5,}(-[0-9a-f]{12})?\.parquet$`)
)

// name returns a new name for a temporary of a target. The name has no equals sign: a
// folder such as .k=1 is not hidden to readers.
func name(target string) (string, error) {
	var r [6]byte
	if _, err := rand.Read(r[:]); err != nil {
		return "", err
	}
	hidden := "." + strings.ReplaceAll(filepath.Base(target), "=", "-")
	return Sibling(filepath.Join(filepath.Dir(target), hidden), ".gstream-"+hex.EncodeToString(r[:])+".tmp"), nil
}

// maxName is the most bytes of a name in a file system.
const maxName = 255

// Sibling returns the path of a target with a suffix. A name that would be too long loses
// its end before the suffix.
func Sibling(target, suffix string) string {
	folder, name := filepath.Split(target)
	if most := maxName - len(suffix); len(name) > most {
		for !utf8.RuneStart(name[most]) && most > 0 {
			most--
		}
		name = name[:most]
	}
	return folder + name + suffix
}

// attempts bounds the names that are tried. Another name is needed only when a sweeping
// process came between the creation of a temporary and its lock.
const attempts = 100

// File makes a temporary for a target that is a file. It is locked until it is closed. It
// has the access of a file that it will replace, apart from what Finish does.
func File(target string) (f *os.File, err error) {
	access, err := AccessOf(target)
	if err != nil {
		return nil, err
	}
	for range attempts {
		path, err := name(target)
		if err != nil {
			return nil, err
		}
		if f, err = create(path); errors.Is(err, errSwept) {
			continue
		}
		if err == nil {
			if err = access.Give(path, false); err != nil {
				err = errors.Join(err, f.Close(), os.Remove(path))
				return nil, err
			}
		}
		return f, err
	}
	return nil, errSwept
}

// Folder makes a temporary for a target that is a folder. It returns the file in the
// folder that is locked until it is closed. It has the access of a folder that it will
// replace, as a file of File has.
func Folder(target string) (path string, lock *os.File, err error) {
	access, err := AccessOf(target)
	if err != nil {
		return "", nil, err
	}
	manifest, err := AccessOf(filepath.Join(target, LockName))
	if err != nil {
		return "", nil, err
	}
	for range attempts {
		if path, err = name(target); err != nil {
			return "", nil, err
		}
		if err := Step("mkdir", path); err != nil {
			return "", nil, err
		}
		if err := os.Mkdir(path, 0o777); err != nil {
			return "", nil, err
		}
		lock, err := create(filepath.Join(path, LockName))
		switch {
		case err == nil:
			if err = errors.Join(access.Give(path, false), manifest.Give(lock.Name(), false)); err != nil {
				return "", nil, errors.Join(err, lock.Close(), Remove(path))
			}
			return path, lock, nil
		case !errors.Is(err, errSwept) && !errors.Is(err, fs.ErrNotExist):
			return "", nil, errors.Join(err, Remove(path))
		}
	}
	return "", nil, errSwept
}

var errSwept = errors.New("another process removes the temporaries as fast as they are made")

// create makes a file and locks it, if the file system has locks.
func create(path string) (*os.File, error) {
	if err := Step("create", path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	err = Lock(f)
	if !errors.Is(err, ErrLocked) && same(f, path) {
		return f, nil
	}
	f.Close() // another process has removed it
	return nil, errSwept
}

// ErrLocked means that another process has a lock.
var ErrLocked = errors.New("another process has it locked")

// Lock locks a file until it is closed. It does not wait. An error other than ErrLocked
// means that there are no locks.
func Lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// Same reports whether a path still names an open file, which another process may have replaced before it was locked.
func Same(f *os.File, path string) bool { return same(f, path) }

// same reports whether a path still names the open file, and it is a regular file.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil || !a.Mode().IsRegular() {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// Sweep removes the temporaries in a folder whose process has ended, once it has recovered the changes of such
// processes (see Commit). It leaves those that it cannot remove for the next time. The error is that of Recover.
func Sweep(folder string) error {
	left, err := recoverIn(folder)
	if err != nil {
		return err
	}
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		path, err := filepath.Abs(filepath.Join(folder, e.Name()))
		if err == nil && temporary.MatchString(e.Name()) && !left[path] {
			sweep(path, e.IsDir(), Remove)
		}
	}
	return nil
}

// SweepFolders removes the folders that Folder has made for a target, and all that is in them, if their process has
// ended. It leaves those that it cannot remove for the next time.
func SweepFolders(target string) {
	entries, _ := os.ReadDir(filepath.Dir(target))
	for _, e := range entries {
		if e.IsDir() && temporary.MatchString(e.Name()) && strings.HasPrefix(e.Name(), "."+filepath.Base(target)+".") {
			sweep(filepath.Join(filepath.Dir(target), e.Name()), true, RemoveFolder)
		}
	}
}

// RemoveFolder removes a folder that Folder has made, and all that is in it. The locked file is the last, because
// the folder is swept by it.
func RemoveFolder(path string) error {
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		if e.Name() != LockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, e.Name())))
		}
	}
	if err == nil {
		err = os.RemoveAll(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func sweep(path string, folder bool, remove func(string) error) {
	lockPath := path
	if folder {
		lockPath = filepath.Join(path, LockName)
	}
	f, err := os.OpenFile(lockPath, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if folder && errors.Is(err, fs.ErrNotExist) {
			removeEmpty(path)
		}
		return
	}
	defer f.Close()
	// The process may have given the file its name in the meantime.
	if Lock(f) == nil && conclusive(f) && same(f, lockPath) && remove(path) != nil && folder {
		f.Close() // NFS keeps an open file in its folder
		_ = os.Remove(path)
	}
}

// locking are the file systems whose locks everybody sees who can open a file. On others,
// such as FUSE, a lock may be visible on one machine only.
var locking = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC,
	unix.RAMFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */, unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
	unix.SMB2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC,
}

// conclusive reports whether a lock that was taken proves that no other process has the
// file. On file systems whose locks other machines may not see, a day without a change
// must have passed too.
func conclusive(f *os.File) bool {
	var s unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &s) == nil && slices.Contains(locking, int64(s.Type)) {
		return true
	}
	info, err := f.Stat()
	return err == nil && time.Since(info.ModTime()) > 24*time.Hour
}

// removeEmpty removes a folder that has at most folders of partitions without files.
func removeEmpty(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if e.IsDir() && partition.MatchString(e.Name()) {
			removeEmpty(filepath.Join(folder, e.Name()))
		}
	}
	_ = os.Remove(folder) // if it is empty
}

// Remove removes a file. For a folder it removes the parts, those in folders such as y=2024
// too, the locked file and then, if it is empty, the folder. It is no error if something
// does not exist. It leaves temporaries that a journal needs.
func Remove(path string) error {
	if isKept(path) {
		return nil
	}
	info, err := os.Lstat(path)
	var names []string
	if err == nil && info.IsDir() {
		names, err = parts(path)
		// The locked file is the last, because the folder is swept by it.
		names = append(names, filepath.Join(path, LockName))
	}
	for _, n := range append(names, path) {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			if err = Step("remove", n); err == nil {
				err = os.Remove(n)
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// parts lists the parts in a folder and in the partitions in it, and these, each behind what
// it contains.
func parts(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		name := filepath.Join(folder, e.Name())
		switch {
		case e.IsDir() && partition.MatchString(e.Name()):
			below, err := parts(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			names = append(append(names, below...), name)
		case part.MatchString(e.Name()):
			names = append(names, name)
		}
	}
	return names, err
}

// maxLinks is the limit at which the system gives up too.
const maxLinks = 40

// Resolve returns the path at which a file is made when path is written to: the target of
// a link, even if there is no such file yet.
func Resolve(path string) (string, error) {
	if trimmed := strings.TrimRight(path, "/"); trimmed != "" {
		path = trimmed // or else the link itself is not seen
	}
	for range maxLinks {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return filepath.Clean(path), nil // writing will return the error
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
