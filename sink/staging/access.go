package staging

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Access is the mode and the owner of a file or folder.
type Access struct {
	mode     uint32
	uid, gid int
}

// AccessOf returns the access of a file or folder, and nil if it does not exist.
func AccessOf(path string) (*Access, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return accessOf(info), nil
}

func accessOf(info fs.FileInfo) *Access {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	mode := s.Mode & 0o7777
	if !info.IsDir() {
		mode &= 0o777 // a table is not a program that runs as somebody else
	}
	return &Access{mode: mode, uid: int(s.Uid), gid: int(s.Gid)}
}

// Finish gives a temporary the access of the target that it will replace, if there is one.
func Finish(temporary, target string) error {
	a, err := AccessOf(target)
	if err != nil {
		return err
	}
	return a.Give(temporary, true)
}

// Give gives a file or folder this access; nil changes nothing. Unless it is finished, its
// owner can write to it whatever the mode. Where a process may not give files away, or a
// file system has no modes or owners, the file keeps those that it has.
func (a *Access) Give(path string, finished bool) error {
	if a == nil {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	now := accessOf(info)
	if now == nil {
		return nil
	}
	if now.gid != a.gid {
		err = possible(os.Chown(path, -1, a.gid))
	}
	if err == nil && now.uid != a.uid {
		err = possible(os.Chown(path, a.uid, -1))
	}
	mode := a.mode
	if !finished {
		mode |= 0o600
		if info.IsDir() {
			mode |= 0o700
		}
	}
	// The change of the owner removes bits of the mode.
	if err == nil && (now.mode != mode || now.uid != a.uid || now.gid != a.gid) {
		err = possible(unix.Chmod(path, mode))
	}
	return err
}

// possible returns no error where the process or the file system cannot do something.
func possible(err error) error {
	for _, no := range []error{unix.EPERM, unix.EINVAL, unix.ENOSYS, unix.ENOTSUP} {
		if errors.Is(err, no) {
			return nil
		}
	}
	return err
}
