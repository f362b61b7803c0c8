package parquet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/sink/staging"
)

// storage has the file system operations of the sink, so that tests can make each of them fail.
type storage interface {
	// stage makes the temporary file or folder of a target. It returns a file that is locked until
	// it is closed: the temporary file, or the manifest.
	stage(target string, folder bool) (path string, lock outFile, err error)
	create(path string) (outFile, error)
	mkdir(path string) error // it must not exist
	rmdir(path string) error // it must be empty
	// rename renames a file or folder. Without replace it fails with fs.ErrExist when the
	// name is taken.
	rename(from, to string, replace bool) error
	exchange(a, b string) error // errors.ErrUnsupported on systems without it
	syncDir(path string) error
	finish(temporary, target string) error // staging.Finish
	remove(path string) error              // like staging.Remove
}

type outFile interface {
	WriteAt(p []byte, off int64) (int, error)
	// startWriteback lets the system start writing a range to disk, so that Sync waits less.
	startWriteback(off, n int64)
	Sync() error
	Close() error
}

// disk is the file system.
type disk struct{}

func (disk) stage(target string, folder bool) (string, outFile, error) {
	if folder {
		path, lock, err := staging.Folder(target)
		return path, diskFile{lock}, err
	}
	f, err := staging.File(target)
	if err != nil {
		return "", nil, err
	}
	return f.Name(), diskFile{f}, nil
}

func (disk) create(path string) (outFile, error) {
	if err := staging.Step("create", path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

type diskFile struct{ *os.File }

func (f diskFile) WriteAt(p []byte, off int64) (int, error) {
	if err := staging.Step("write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f diskFile) startWriteback(off, n int64) {
	// This is a hint. Sync returns the errors.
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

func (disk) mkdir(path string) error {
	if err := staging.Step("mkdir", path); err != nil {
		return err
	}
	return os.Mkdir(path, 0o777)
}

func (disk) rmdir(path string) error {
	if err := staging.Step("rmdir", path); err != nil {
		return err
	}
	return unix.Rmdir(path)
}

func (disk) rename(from, to string, replace bool) error { return staging.Rename(from, to, replace) }

func (disk) exchange(a, b string) error { return staging.RenameWith(a, b, unix.RENAME_EXCHANGE) }

func (disk) syncDir(path string) error { return staging.SyncFolder(path) }

func (disk) finish(temporary, target string) error { return staging.Finish(temporary, target) }

func (disk) remove(path string) error { return staging.Remove(path) }

// output is a target that is built under a temporary name next to it.
type output struct {
	storage   storage
	name      string // as given
	target    string // name with links resolved
	temporary string
	lock      outFile // lock of the temporary
	overwrite bool
	sync      bool
	directory bool
	// into says that files are added to a directory that exists, or with partitions replace some of its folders. read
	// has the files of the directory, by their names in it, that may be replaced like those of an earlier output.
	into, partitions bool
	read             map[part]bool
	made             []string        // directories in the target that were made for the new files, outermost first
	parents          []string        // directories above target that were made for it, outermost first
	manifest         manifest        // for a directory
	folders          map[string]bool // that were made in the temporary directory
	earlier          *os.File        // locked manifest of an earlier output, while that is replaced
	// staged says that the temporary may be getting its name, so that only this goroutine removes it.
	staged atomic.Bool
	// The access of files and folders in a directory: those of an earlier output.
	fileAccess, folderAccess *staging.Access
}

// newOutput checks that a target may be written and makes its temporary. It removes
// temporaries next to it whose process was killed.
func newOutput(s storage, name string, opt Options) (*output, error) {
	directory := opt.Directory(name)
	o := &output{storage: s, name: name, overwrite: opt.Overwrite, directory: directory, sync: opt.Sync,
		into: opt.Append || opt.OverwritePartitions, partitions: opt.OverwritePartitions}
	o.manifest.PartitionBy = opt.PartitionBy
	if opt.Append && !directory {
		return nil, appendsToFile(name)
	}
	var err error
	if o.target, err = staging.Resolve(name); err != nil {
		return nil, err
	}
	if opt.OverwritePartitions || opt.OverwriteSources {
		if err := o.mayReplace(opt.Read); err != nil {
			return nil, err
		}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.directory {
		if err := o.earlierAccess(); err != nil {
			return nil, err
		}
	}
	if err := staging.Sweep(filepath.Dir(o.target)); err != nil {
		return nil, err
	}
	if err = o.makeParents(filepath.Dir(o.target)); err == nil {
		o.temporary, o.lock, err = s.stage(o.target, directory)
	}
	if err != nil {
		o.removeParents()
		return nil, err
	}
	return o, nil
}

// earlierAccess finds the access of the files and folders of an earlier output, by its first file:
// all have the same access.
func (o *output) earlierAccess() error {
	m, err := readManifest(filepath.Join(o.target, staging.LockName))
	if err != nil || m == nil || len(m.Files) == 0 || !filepath.IsLocal(m.Files[0].Name) {
		return err
	}
	first := filepath.Join(o.target, m.Files[0].Name)
	if o.fileAccess, err = staging.AccessOf(first); err == nil {
		o.folderAccess, err = staging.AccessOf(filepath.Dir(first))
	}
	return err
}

// makeParents makes a directory and its missing parents.
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
		return nil // another process has made it
	}
	if err == nil {
		o.parents = append(o.parents, dir)
	}
	return err
}

// removeParents removes the directories that were made and are still empty. The others have files
// of other programs.
func (o *output) removeParents() {
	for len(o.parents) > 0 {
		last := len(o.parents) - 1
		if o.storage.rmdir(o.parents[last]) != nil {
			return
		}
		o.parents = o.parents[:last]
	}
}

// CheckTarget returns an error for a target that no option allows to replace, such as a device. It
// is for plans; Create checks everything.
func CheckTarget(path string, opt Options) error {
	if opt.Append && path != "" && !opt.Directory(path) {
		return appendsToFile(path)
	}
	if path == "" || staging.IsObject(path) {
		return nil // a job without an output has an error of its own
	}
	info, err := os.Stat(filepath.Clean(path))
	if err != nil {
		return nil // it does not exist, or Create returns the error
	}
	return checkKind(path, info.Mode(), opt.Directory(path))
}

// checkKind returns an error for a target that is not a file or, for a directory of files, not a
// directory.
func checkKind(path string, mode fs.FileMode, directory bool) error {
	what := ""
	switch {
	case mode.IsDir() && !directory:
		what = "is a folder, which is not replaced by a file; name a file in it, or end the path with / (or set " +
			"files, rows_per_file or partition_by) for a folder of files"
	case mode.IsDir():
	case mode.IsRegular() && directory:
		what = "is a file, which is not replaced by the folder that files, rows_per_file, partition_by or a / at the " +
			"end of the path asks for; name a folder"
	case mode.IsRegular():
	case mode&fs.ModeDevice != 0:
		what = fmt.Sprintf("is a device, which is never replaced; name a file (%v removes it at the end)", gpu.Discard)
	case mode&fs.ModeNamedPipe != 0:
		what = "is a named pipe, which is never replaced, and Parquet cannot be written into a pipe; name a file"
	case mode&fs.ModeSocket != 0:
		what = "is a socket, which is never replaced; name a file"
	default:
		what = "is not a file and is never replaced; name a file"
	}
	if what != "" {
		return notReplaced(path, what)
	}
	return nil
}

// notReplaced returns the error for a target that is not replaced.
func notReplaced(path, what string) error {
	return &fs.PathError{Op: "write", Path: path, Err: errors.New("it " + what)}
}

// check returns an error for a target that exists and must not be replaced.
func (o *output) check() error {
	info, err := os.Stat(o.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if err := checkKind(o.name, info.Mode(), o.directory); err != nil {
		return err
	}
	if !o.overwrite && !o.into {
		return o.exists()
	}
	if !o.directory {
		return nil
	}
	if err := unix.Access(o.target, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "replace", Path: o.name, Err: err}
	}
	if o.into {
		return nil // stageInto checks the folders that it replaces
	}
	return o.checkReplaced(o.target)
}

// checkReplaced returns an error for a directory that has anything but the files of an earlier
// output.
func (o *output) checkReplaced(dir string) error {
	m, err := readManifest(filepath.Join(dir, staging.LockName))
	if err != nil {
		return err
	}
	foreign, err := m.foreign(dir, o.read)
	switch {
	case err != nil:
		return err
	case len(foreign) == 0:
		return nil
	case m == nil:
		return notReplaced(o.name,
			fmt.Sprintf("is a folder without the file %s, in which an output says which files are its own, so "+
				"nothing there is replaced: %s; remove the folder or name another",
				staging.LockName, phrase.Some(foreign, 5, ", ")))
	}
	return notReplaced(o.name,
		fmt.Sprintf("is a folder with what no earlier output has left there as it is now: %s; move it elsewhere or "+
			"name another folder", phrase.Some(foreign, 5, ", ")))
}

func (o *output) exists() error {
	return fmt.Errorf("%s: %w; remove it, choose another name, or use %v", o.name, os.ErrExist, gpu.Overwrite)
}

// part returns the path at which file number i of a folder of the output is written. It
// makes the folder.
func (o *output) part(folder string, i int) (string, error) {
	if !o.directory {
		return o.temporary, nil
	}
	at := o.temporary
	for name := range strings.SplitSeq(folder, "/") {
		if at = filepath.Join(at, name); folder == "" || o.folders[at] {
			continue
		}
		if err := o.storage.mkdir(at); err != nil {
			return "", err
		}
		if err := o.folderAccess.Give(at, false); err != nil {
			return "", err
		}
		if o.folders == nil {
			o.folders = map[string]bool{}
		}
		o.folders[at] = true
	}
	return filepath.Join(at, staging.Part(i)), nil
}

// ended records a complete file.
func (o *output) ended(path string, size int64) {
	name, err := filepath.Rel(o.temporary, path)
	if err != nil {
		name = filepath.Base(path)
	}
	o.manifest.Files = append(o.manifest.Files, part{filepath.ToSlash(name), size})
}

// publish gives the output its name. With sync its files are on disk before that.
func (o *output) publish() error {
	if _, err := os.Lstat(o.target); (o.into || len(o.read) > 0) && err == nil {
		changes, err := o.stage()
		if err == nil {
			err = staging.Commit(changes)
		}
		if err != nil {
			return err
		}
		return o.published()
	}
	if err := o.finishDirectory(); err != nil {
		return err
	}
	// Check again, because the target may have changed since the output was begun.
	if err := o.check(); err != nil {
		return err
	}
	if err := o.storage.finish(o.temporary, o.target); err != nil {
		return err
	}
	if _, err := os.Lstat(o.target); o.directory && err == nil {
		return o.replaceDirectory()
	}
	err := o.storage.rename(o.temporary, o.target, !o.directory && o.overwrite)
	if errors.Is(err, fs.ErrExist) {
		err = o.exists()
	} else if err == nil && o.sync {
		if err = o.syncParents(); err != nil && (o.directory || !o.overwrite || len(o.parents) > 0) {
			// The name may be lost in a crash, so the output is removed now.
			err = errors.Join(err, o.storage.remove(o.target))
		}
	}
	if err == nil {
		o.lock.Close()
	}
	return err
}

// sortParts brings files into the order of their names.
func sortParts(files []part) {
	slices.SortFunc(files, func(a, b part) int { return strings.Compare(a.Name, b.Name) })
}

// stage completes the output under its temporary name. It returns the changes that give it its name.
func (o *output) stage() ([]staging.Change, error) {
	if _, err := os.Lstat(o.target); o.into && err == nil {
		return o.stageInto()
	}
	if err := o.finishDirectory(); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := o.storage.finish(o.temporary, o.target); err != nil {
		return nil, err
	}
	c := staging.Change{Temporary: o.temporary, Target: o.target, Replace: o.overwrite, Sync: o.sync}
	if o.directory {
		if err := o.lockEarlier(); err != nil {
			return nil, err
		}
		c.Verify = o.checkReplaced
		if len(o.read) > 0 {
			var err error
			if c.Owned, err = owned(o.target); err != nil {
				return nil, err
			}
		}
	}
	if o.sync {
		for _, dir := range o.parents {
			if err := o.storage.syncDir(filepath.Dir(dir)); err != nil {
				return nil, err
			}
		}
	}
	o.staged.Store(true)
	return []staging.Change{c}, nil
}

// published ends the output once it has its name.
func (o *output) published() error {
	o.unlockEarlier()
	err := o.lock.Close()
	if o.into { // what is left of it is swept later
		_ = o.storage.remove(o.temporary)
	}
	return err
}

// lockEarlier locks the manifest of an earlier output. Other processes that replace or sweep that output wait for it.
func (o *output) lockEarlier() error {
	earlier, err := os.Open(filepath.Join(o.target, staging.LockName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if errors.Is(staging.Lock(earlier), staging.ErrLocked) || !staging.Same(earlier, earlier.Name()) {
		earlier.Close()
		return notReplaced(o.name, "is being written by another process")
	}
	o.earlier = earlier
	return nil
}

func (o *output) unlockEarlier() {
	if o.earlier != nil {
		o.earlier.Close()
		o.earlier = nil
	}
}

// finishDirectory writes the manifest of a directory.
func (o *output) finishDirectory() error {
	if !o.directory {
		return nil
	}
	sortParts(o.manifest.Files)
	if err := o.manifest.write(o.lock); err != nil {
		return err
	}
	if !o.sync {
		return nil
	}
	if err := o.lock.Sync(); err != nil {
		return err
	}
	for folder := range o.folders {
		if err := o.storage.syncDir(folder); err != nil {
			return err
		}
	}
	return o.storage.syncDir(o.temporary)
}

// replaceDirectory gives the output the name of an earlier output, and removes the earlier output.
// It removes nothing else, whatever other processes do meanwhile.
func (o *output) replaceDirectory() error {
	if err := o.lockEarlier(); err != nil {
		return err
	}
	defer o.unlockEarlier()
	old, undo, err := o.swapIn()
	if err != nil {
		return err
	}
	if err = o.checkReplaced(old); err == nil && o.sync {
		err = o.syncParents()
	}
	if err != nil {
		return errors.Join(err, undo())
	}
	// The output has its name. Remains of the earlier output that cannot be removed
	// now are swept later.
	o.lock.Close()
	o.unlockEarlier() // before it is removed, as in discard
	_ = o.storage.remove(old)
	return nil
}

// swapIn gives the output the name of an existing directory. It returns the new path of
// that directory and a function that undoes the change.
func (o *output) swapIn() (old string, undo func() error, err error) {
	err = o.storage.exchange(o.temporary, o.target)
	if !errors.Is(err, errors.ErrUnsupported) {
		return o.temporary, func() error { return o.storage.exchange(o.temporary, o.target) }, err
	}
	// Use two renames. The earlier output does not get the name of a temporary: if the process is
	// killed between the renames, it is the only output.
	old = strings.TrimSuffix(o.temporary, ".tmp") + ".old"
	if err := o.storage.rename(o.target, old, false); err != nil {
		return "", nil, err
	}
	back := func() error { return o.storage.rename(old, o.target, false) }
	if err := o.storage.rename(o.temporary, o.target, false); err != nil {
		return "", nil, errors.Join(err, back())
	}
	return old, func() error { return errors.Join(o.storage.rename(o.target, o.temporary, false), back()) }, nil
}

// syncParents makes the names of the target, and of the directories made for it, survive
// a crash.
func (o *output) syncParents() error {
	for _, dir := range o.parents {
		if err := o.storage.syncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return o.storage.syncDir(filepath.Dir(o.target))
}

// discard removes everything that was written, and the directories made for it.
func (o *output) discard() error {
	o.unlockEarlier()
	o.lock.Close() // first, because NFS keeps an open file in its folder
	err := o.storage.remove(o.temporary)
	for _, dir := range slices.Backward(o.made) {
		_ = o.storage.rmdir(dir) // if it is empty
	}
	o.removeParents()
	return err
}
