package staging

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/source/store"
)

// Several files and folders get their names together by a journal, a hidden file in each folder that has temporaries
// of the changes. It lists all changes, and the process keeps it locked.
//
//	.gstream-ID.journal  the changes are not decided: whoever finds it without its process undoes them
//	.gstream-ID.commit   they are decided: whoever finds it without its process makes them
//
// The journal of the first folder decides for all. Its rename is the point at which the new state counts. Each change
// can be made and undone from wherever it was interrupted, as the journal has the numbers of the old and the
// new files (inodes). What was replaced is kept under a temporary name until all changes are made.

// Change gives a temporary the name of its target. What has that name gets the name of the temporary, and is removed
// once all changes are made.
type Change struct {
	Temporary string
	Target    string // with links resolved
	// Replace says that there may be something at Target. Otherwise that is an error, an fs.ErrExist.
	Replace bool
	// Owned are the names of files and folders in what is replaced that are removed with it, each folder behind what it
	// has. Files that this package names need not be among them.
	Owned []string
	// Remove says that the target goes, and that there is nothing new. Temporary is a name that is free.
	Remove bool
	// Sync waits until the changes are on disk: it makes Commit do so for all of them.
	Sync bool
	// Remote, if set, is a change in an object store; the fields above have no meaning then.
	Remote *Remote
	// Verify, if set, is called with the path of what was replaced. After an error all changes are undone.
	Verify func(replaced string) error
}

// Remote is a change in an object store, made by one request: an upload is completed, or a manifest is written.
type Remote struct {
	Path    string
	Upload  *store.UploadState `json:",omitempty"`
	Replace bool               `json:",omitempty"`
	// Manifest is written if the object has the tag, or if there is none for "".
	Manifest []byte `json:",omitempty"`
	Tag      string `json:"ETag,omitempty"`

	// Appear makes the change. Undo undoes it; it is nil if that is not possible, as an object was replaced.
	Appear func() error `json:"-"`
	Undo   func() error `json:"-"`
}

// appear makes the change in place of a process that was killed.
func (r *Remote) appear() error {
	ctx, end := context.WithTimeout(context.Background(), cleaning)
	defer end()
	if r.Upload != nil {
		return r.Upload.Complete(ctx, r.Replace)
	}
	_, err := store.Put(ctx, r.Path, r.Manifest, store.Condition{Absent: r.Tag == "", Tag: r.Tag})
	if errors.Is(err, fs.ErrExist) {
		return nil // it was written, or another output has taken the folder
	}
	return err
}

// ErrDecided is the error of Commit if some changes in object stores were made, cannot be undone, and others fail.
var ErrDecided = errors.New("outputs have appeared in part")

// errStopped is the error of Commit if changes can be neither made nor undone now, as on a disk that is full. The
// journal and the temporaries stay for Recover.
var errStopped = errors.New("outputs have appeared in part, and cannot be undone now")

// keptTemporaries are temporaries of this process that a journal needs, so that Remove leaves them.
var keptTemporaries sync.Map

// isKept reports whether a path is such a temporary, or in one.
func isKept(path string) bool {
	path, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		if _, ok := keptTemporaries.Load(path); ok {
			return true
		}
	}
	return false
}

// appearAll makes changes in object stores: all or, after an error, none, unless the error is ErrDecided. Changes that
// can be undone are the first.
func appearAll(remote []*Remote) error {
	slices.SortStableFunc(remote, func(x, y *Remote) int {
		order := func(r *Remote) int {
			if r.Undo == nil {
				return 1
			}
			return 0
		}
		return order(x) - order(y)
	})
	for i, r := range remote {
		err := Step("appear", r.Path)
		if err == nil {
			err = r.Appear()
		}
		if err == nil {
			continue
		}
		if i > 0 && remote[i-1].Undo == nil {
			return fmt.Errorf("%w, since %s has replaced an object: %w", ErrDecided,
				store.Display(remote[i-1].Path), err)
		}
		for _, r := range slices.Backward(remote[:i]) {
			err = errors.Join(err, r.Undo())
		}
		return err
	}
	return nil
}

// change is a Change in a journal.
type change struct {
	Temporary string `json:"temporary"`
	Target    string `json:"target"`
	New       *inode `json:"new,omitempty"` // nil if there is nothing new
	Old       *inode `json:"old,omitempty"` // nil if there was nothing
	// Owned are those of Change.
	Owned []string `json:"owned,omitempty"`
}

// inode is the number of a file or folder.
type inode struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"inode"`
}

func inodeOf(path string) (*inode, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("%s: the file system has no numbers of files", path)
	}
	return &inode{uint64(s.Dev), s.Ino}, nil
}

func (n *inode) is(other *inode) bool { return n != nil && other != nil && *n == *other }

// journal has the changes that are made together.
type journal struct {
	// Decides is the path, without its ending, of the journal that decides.
	Decides string   `json:"decides"`
	Folders []string `json:"folders"` // that have a journal, the deciding one first
	Sync    bool     `json:"sync,omitempty"`
	Changes []change `json:"changes"`
	// Remote are the changes in object stores, which follow the others.
	Remote []*Remote `json:"remote,omitempty"`

	locks []*os.File
	state string // the ending of the journal that decides
}

const (
	undecided = ".journal"
	decided   = ".commit"
)

var journalName = regexp.MustCompile(`^\.gstream-[0-9a-f]{12}\.(journal|commit)$`)

// Before, if set, is called before each operation of an output that changes a local file system. It is for tests, which
// end the process there, or return the error with which the operation fails.
var Before func(operation, path string) error

// Step calls Before.
func Step(operation, path string) error {
	if Before == nil {
		return nil
	}
	return Before(operation, path)
}

// Commit makes changes, all of them or, after an error, none. If the process is killed in the middle, the next call of
// Sweep or Recover for one of the folders makes or undoes them. Until then, a reader may see some of the changes: each
// file or folder is whole, either the old or the new one.
//
// If an operation fails and so does that which undoes it, as on a disk that is full, the journal and the temporaries
// stay, and the error says so.
//
// Changes in object stores follow those of files. They are part of the journal. Without changes of files there is no
// journal: if the process is killed between two of them, the first ones stay.
func Commit(all []Change) error {
	var changes []Change
	var remote []*Remote
	for _, c := range all {
		if c.Remote != nil {
			remote = append(remote, c.Remote)
		} else {
			changes = append(changes, c)
		}
	}
	if len(changes) == 0 {
		return appearAll(remote)
	}
	j, err := newJournal(changes)
	if err != nil {
		return err
	}
	j.Remote = remote
	if err = j.begin(); err == nil {
		if err = j.decide(decided); err == nil {
			if err = j.forward(changes); err == nil {
				err = appearAll(remote)
			}
			switch {
			case err == nil:
				return j.end()
			case errors.Is(err, ErrDecided):
				j.unlock()
				return fmt.Errorf("%w; gstream recover %s makes the others appear", err, j.Folders[0])
			}
			err = errors.Join(err, j.decide(undecided))
		}
		if j.state == decided {
			return j.stop(err)
		}
		if back := j.backward(); back != nil {
			return j.stop(errors.Join(err, back))
		}
	}
	return errors.Join(err, j.remove())
}

// stop ends a commit that can be neither completed nor undone. What Recover needs stays.
func (j *journal) stop(err error) error {
	for i := range j.Changes {
		keptTemporaries.Store(j.Changes[i].top(), true)
	}
	j.unlock()
	what := "undoes"
	if j.state == decided {
		what = "completes"
	}
	return fmt.Errorf("%w: %w; once the cause is gone, gstream recover %s %s them", errStopped, err, j.Folders[0], what)
}

func newJournal(changes []Change) (*journal, error) {
	j, targets := &journal{}, map[string]bool{}
	for _, c := range changes {
		j.Sync = j.Sync || c.Sync
		var err error
		x := change{Owned: c.Owned}
		if x.Temporary, err = filepath.Abs(c.Temporary); err != nil {
			return nil, err
		}
		if x.Target, err = filepath.Abs(c.Target); err != nil {
			return nil, err
		}
		if x.Old, err = inodeOf(x.Target); err != nil {
			return nil, err
		}
		if x.Old != nil && !c.Replace && !c.Remove {
			return nil, &fs.PathError{Op: "write", Path: c.Target, Err: fs.ErrExist}
		}
		if x.New, err = inodeOf(x.Temporary); err != nil {
			return nil, err
		}
		if (x.New == nil) != c.Remove {
			return nil, &fs.PathError{Op: "rename", Path: x.Temporary, Err: fs.ErrNotExist}
		}
		if targets[x.Target] {
			return nil, fmt.Errorf("%s is written twice", c.Target)
		}
		targets[x.Target] = true
		if folder := filepath.Dir(x.top()); !slices.Contains(j.Folders, folder) {
			j.Folders = append(j.Folders, folder)
		}
		j.Changes = append(j.Changes, x)
	}
	var id [6]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	j.Decides = filepath.Join(j.Folders[0], ".gstream-"+hex.EncodeToString(id[:]))
	return j, nil
}

// top returns the temporary of a change, or the temporary folder that it is in.
func (c *change) top() string {
	for at := c.Temporary; at != filepath.Dir(at); at = filepath.Dir(at) {
		if temporary.MatchString(filepath.Base(at)) {
			return at
		}
	}
	return c.Temporary
}

// at returns the path of the journal in a folder.
func (j *journal) at(folder, state string) string {
	return filepath.Join(folder, filepath.Base(j.Decides)) + state
}

// begin writes the journals, undecided.
func (j *journal) begin() error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	j.state = undecided
	for _, folder := range j.Folders {
		path := j.at(folder, undecided)
		if err := Step("create", path); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := Lock(f); errors.Is(err, ErrLocked) {
			f.Close()
			return fmt.Errorf("%s: %w", path, err)
		}
		j.locks = append(j.locks, f)
		if err := Step("write", path); err != nil {
			return err
		}
		if _, err := f.Write(text); err != nil {
			return err
		}
		if j.Sync {
			if err := errors.Join(f.Sync(), SyncFolder(folder)); err != nil {
				return err
			}
		}
	}
	return nil
}

// decide changes the state of the deciding journal. After an error it has the old one, as far as that is possible.
func (j *journal) decide(to string) error {
	from := j.state
	if err := j.rename(to); err != nil || !j.Sync {
		return err
	}
	if err := SyncFolder(j.Folders[0]); err != nil {
		return errors.Join(err, j.rename(from))
	}
	return nil
}

// rename changes the ending of the deciding journal.
func (j *journal) rename(to string) error {
	if err := Rename(j.Decides+j.state, j.Decides+to, true); err != nil {
		return err
	}
	j.state = to
	return nil
}

// aside returns the name that a replaced target has for a moment on file systems that cannot exchange names.
func (c *change) aside() string { return c.Temporary + ".old" }

// forward makes all changes. The changes of Commit have the functions that verify them.
func (j *journal) forward(changes []Change) error {
	for i := range j.Changes {
		c := &j.Changes[i]
		if err := c.forward(); err != nil {
			return err
		}
		if changes == nil || changes[i].Verify == nil || c.Old == nil {
			continue
		}
		replaced := c.Temporary
		if at, err := inodeOf(c.aside()); err == nil && at.is(c.Old) {
			replaced = c.aside()
		}
		if err := changes[i].Verify(replaced); err != nil {
			return err
		}
	}
	return j.sync()
}

func (j *journal) sync() error {
	if !j.Sync {
		return nil
	}
	done := map[string]bool{}
	for _, c := range j.Changes {
		if folder := filepath.Dir(c.Target); !done[folder] {
			done[folder] = true
			if err := SyncFolder(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (c *change) forward() error {
	now, err := inodeOf(c.Target)
	switch {
	case err != nil:
		return err
	case c.New == nil:
		if !now.is(c.Old) {
			return nil // it is gone
		}
		return rename(c.Target, c.Temporary)
	case now.is(c.New):
		return nil
	case now == nil:
		return rename(c.Temporary, c.Target)
	case !now.is(c.Old):
		return &fs.PathError{Op: "write", Path: c.Target, Err: fs.ErrExist}
	}
	err = exchange(c.Temporary, c.Target)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err := rename(c.Target, c.aside()); err != nil {
		return err
	}
	return rename(c.Temporary, c.Target)
}

// backward undoes all changes that were made, the last one first.
func (j *journal) backward() error {
	var errs []error
	for _, c := range slices.Backward(j.Changes) {
		errs = append(errs, c.backward())
	}
	return errors.Join(append(errs, j.sync())...)
}

func (c *change) backward() error {
	now, err := inodeOf(c.Target)
	if err != nil {
		return err
	}
	kept, err := inodeOf(c.Temporary)
	if err != nil {
		return err
	}
	if now.is(c.New) {
		if kept != nil {
			return exchange(c.Temporary, c.Target)
		}
		if err := rename(c.Target, c.Temporary); err != nil {
			return err
		}
		now, kept = nil, c.New
	}
	aside, err := inodeOf(c.aside())
	switch {
	case err != nil:
		return err
	case now == nil && aside.is(c.Old):
		return rename(c.aside(), c.Target)
	case now == nil && kept.is(c.Old):
		return rename(c.Temporary, c.Target)
	}
	return nil
}

func rename(from, to string) error { return Rename(from, to, false) }

// exchanges is swap, apart from tests on file systems without it.
var exchanges = swap

func swap(a, b string) error { return RenameWith(a, b, unix.RENAME_EXCHANGE) }

func exchange(a, b string) error { return exchanges(a, b) }

// end removes what was replaced, and then the journals. What cannot be removed now is swept later.
func (j *journal) end() error {
	for _, c := range j.Changes {
		for _, path := range []string{c.Temporary, c.aside()} {
			if at, err := inodeOf(path); c.Old != nil && err == nil && at.is(c.Old) {
				for _, name := range c.Owned {
					if Step("remove", filepath.Join(path, name)) == nil {
						_ = os.Remove(filepath.Join(path, name))
					}
				}
				_ = Remove(path)
			}
		}
	}
	return j.remove()
}

// remove removes the journals. The deciding one is the last: without it, another one says that the changes are to be
// undone.
func (j *journal) remove() error {
	defer j.unlock()
	for i, folder := range slices.Backward(j.Folders) {
		path := j.at(folder, undecided)
		if i == 0 {
			path = j.at(folder, j.state)
		}
		err := Step("remove", path)
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if j.Sync && i > 0 {
			if err := SyncFolder(folder); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *journal) unlock() {
	for _, f := range j.locks {
		f.Close()
	}
	j.locks = nil
}

// maxJournal bounds the bytes of a journal that is read.
const maxJournal = 1 << 30

// Recover makes or undoes the changes of processes that were killed while they gave several files their names, as far
// as the folder has a part of them. It leaves those of processes that live.
func Recover(folder string) error {
	_, err := recoverIn(folder)
	return err
}

// recoverIn is Recover. It returns the temporaries of changes that it has left.
func recoverIn(folder string) (left map[string]bool, err error) {
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	entries, _ := os.ReadDir(folder)
	left = map[string]bool{}
	for _, e := range entries {
		if !journalName.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		j, wrong := recoverBy(filepath.Join(folder, e.Name()))
		if err = errors.Join(err, wrong); j != nil {
			for i := range j.Changes {
				left[j.Changes[i].top()] = true
			}
		}
	}
	return left, err
}

// recoverBy makes or undoes the changes of a journal. It returns the journal if it leaves them.
func recoverBy(path string) (*journal, error) {
	f, j, err := openJournal(path)
	if err != nil || j == nil {
		return nil, err
	}
	defer f.Close()
	if Lock(f) != nil || !conclusive(f) || !same(f, path) {
		return j, nil // its process lives
	}
	j.state = undecided
	if strings.TrimSuffix(strings.TrimSuffix(path, undecided), decided) == j.Decides {
		if strings.HasSuffix(path, decided) {
			j.state = decided
		}
	} else if _, err := os.Lstat(j.Decides + decided); err == nil {
		j.state = decided
	}
	if main := j.Decides + j.state; main != path {
		// Another process may recover by the deciding journal at the same time.
		f, decides, err := openJournal(main)
		if err != nil {
			return j, err
		}
		if decides != nil {
			defer f.Close()
			if Lock(f) != nil || !same(f, main) {
				return j, nil
			}
		}
	}
	if j.state == decided {
		err := j.forward(nil)
		for _, r := range j.Remote {
			if err == nil {
				err = r.appear()
			}
		}
		if err != nil {
			return j, fmt.Errorf("complete the outputs of a run that was killed (%s): %w", path, err)
		}
		j.release()
		return nil, j.end()
	}
	if err := j.backward(); err != nil {
		return j, fmt.Errorf("undo the outputs of a run that was killed (%s): %w", path, err)
	}
	j.release()
	return nil, j.remove()
}

// release lets Remove remove the temporaries.
func (j *journal) release() {
	for i := range j.Changes {
		keptTemporaries.Delete(j.Changes[i].top())
	}
}

// openJournal opens a journal. It is nil if there is none, or a part of one: its process has changed nothing yet. A
// journal that another user can have written is none, since it may name any file.
func openJournal(path string) (*os.File, *journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	if a := accessOf(info); a == nil || a.uid != os.Geteuid() || a.mode&0o022 != 0 || !info.Mode().IsRegular() {
		f.Close()
		return nil, nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	j := &journal{}
	if json.Unmarshal(text, j) == nil && j.valid(path) {
		return f, j, nil
	}
	defer f.Close()
	if Lock(f) == nil && conclusive(f) && same(f, path) && strings.HasSuffix(path, undecided) {
		return nil, nil, os.Remove(path)
	}
	return nil, nil, nil
}

// valid reports whether a journal that was read is one: a folder may have files of anybody. Its changes rename
// temporaries, whose names nothing else has.
func (j *journal) valid(path string) bool {
	if !filepath.IsAbs(j.Decides) || len(j.Folders) == 0 || filepath.Dir(j.Decides) != j.Folders[0] ||
		!slices.Contains(j.Folders, filepath.Dir(path)) || !journalName.MatchString(filepath.Base(j.Decides)+decided) ||
		!strings.HasPrefix(filepath.Base(path), filepath.Base(j.Decides)+".") {
		return false
	}
	return !slices.ContainsFunc(j.Changes, func(c change) bool {
		return slices.ContainsFunc(c.Owned, func(name string) bool { return !filepath.IsLocal(name) }) ||
			!filepath.IsAbs(c.Temporary) || !filepath.IsAbs(c.Target) || filepath.Clean(c.Target) != c.Target ||
			filepath.Clean(c.Temporary) != c.Temporary || !temporary.MatchString(filepath.Base(c.top()))
	})
}
