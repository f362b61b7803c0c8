package parquet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/sink/staging"
)

// An output into a directory that exists adds files to it, or replaces the folders of partitions. Its changes are those
// of single files and folders, and of the manifest, which then lists what is there. They are made together (see
// staging.Commit).

func appendsToFile(name string) error {
	return &fs.PathError{Op: "append", Path: name, Err: errors.New("nothing is added to a file; end the path with / " +
		"(or set files, rows_per_file or partition_by) for a folder of files")}
}

// mayReplace notes the files of the target among those that were read.
func (o *output) mayReplace(read map[string]int64) error {
	target, err := filepath.Abs(o.target)
	if err != nil {
		return err
	}
	for file, size := range read {
		if name, err := filepath.Rel(target, file); err == nil && filepath.IsLocal(name) {
			if o.read == nil {
				o.read = map[part]bool{}
			}
			o.read[part{filepath.ToSlash(name), size}] = true
		}
	}
	return nil
}

// stageInto completes the files of an output into a directory. It returns the changes that bring them there.
func (o *output) stageInto() (changes []staging.Change, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := o.lockEarlier(); err != nil {
		return nil, err
	}
	now, err := readManifest(filepath.Join(o.target, staging.LockName))
	if err != nil {
		return nil, err
	}
	if now == nil {
		now = &manifest{}
	}
	sortParts(o.manifest.Files)
	if len(o.manifest.Files) == 0 {
		return nil, nil
	}
	changes, err = o.removeEmpty(now)
	if err != nil {
		return nil, err
	}
	var more []staging.Change
	if o.partitions {
		more, err = o.replacePartitions(now)
	} else {
		more, err = o.addFiles(now)
	}
	if err != nil {
		return nil, err
	}
	changes = append(changes, more...)
	now.PartitionBy = o.manifest.PartitionBy
	sortParts(now.Files)
	if err := now.write(o.lock); err != nil {
		return nil, err
	}
	if o.sync {
		if err := o.lock.Sync(); err != nil {
			return nil, err
		}
	}
	own, target := filepath.Join(o.temporary, staging.LockName), filepath.Join(o.target, staging.LockName)
	if err := o.storage.finish(own, target); err != nil {
		return nil, err
	}
	o.staged.Store(true)
	return append(changes, staging.Change{Temporary: own, Target: target, Replace: true, Sync: o.sync}), nil
}

// keysOf returns the columns of the folders in the name of a file.
func keysOf(name string) (keys []string) {
	for folder := range strings.SplitSeq(path.Dir(name), "/") {
		if key, _, ok := strings.Cut(folder, "="); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// removeEmpty returns an error if the folders of earlier files are those of other columns. It removes the file of an
// earlier partitioned output that has no rows.
func (o *output) removeEmpty(now *manifest) (changes []staging.Change, err error) {
	if len(now.Files) == 0 {
		return nil, nil
	}
	have, want := now.PartitionBy, o.manifest.PartitionBy
	if len(have) == 0 {
		have = keysOf(now.Files[0].Name)
	}
	describe := func(keys []string) string {
		if len(keys) == 0 {
			return "no columns"
		}
		return phrase.Some(keys, 5, ", ")
	}
	if !slices.Equal(have, want) {
		return nil, &fs.PathError{Op: "write into", Path: o.name, Err: fmt.Errorf("its files are in folders by %s, "+
			"and the new ones would be by %s, so no source could read both; set partition_by as it was, or name "+
			"another folder", describe(have), describe(want))}
	}
	now.Files = slices.DeleteFunc(now.Files, func(p part) bool {
		empty := len(want) > 0 && !strings.Contains(p.Name, "/")
		if empty {
			changes = append(changes, staging.Change{Target: filepath.Join(o.target, p.Name), Remove: true,
				Temporary: filepath.Join(o.temporary, "removed-"+p.Name), Sync: o.sync})
		}
		return empty
	})
	return changes, nil
}

var partNumber = regexp.MustCompile(`^part-([0-9]{5,18})\.parquet$`)

// addFiles adds the files to the manifest of the target.
func (o *output) addFiles(now *manifest) (changes []staging.Change, err error) {
	next := map[string]int{}
	for _, p := range o.manifest.Files {
		folder := path.Dir(p.Name)
		number, known := next[folder]
		if !known {
			if err := o.makeFolder(folder); err != nil {
				return nil, err
			}
			entries, err := os.ReadDir(filepath.Join(o.target, folder))
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if m := partNumber.FindStringSubmatch(e.Name()); m != nil {
					if n, err := strconv.Atoi(m[1]); err == nil {
						number = max(number, n+1)
					}
				}
			}
		}
		next[folder] = number + 1
		name := path.Join(folder, staging.Part(number))
		now.Files = append(now.Files, part{name, p.Bytes})
		changes = append(changes, staging.Change{Temporary: filepath.Join(o.temporary, p.Name),
			Target: filepath.Join(o.target, name), Sync: o.sync})
	}
	return changes, nil
}

// makeFolder makes a folder of the target that does not exist.
func (o *output) makeFolder(folder string) error {
	at := o.target
	for name := range strings.SplitSeq(folder, "/") {
		if at = filepath.Join(at, name); name == "." {
			continue
		}
		err := o.storage.mkdir(at)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			o.made = append(o.made, at)
			err = o.folderAccess.Give(at, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replacePartitions replaces the folders that have new files, also in the manifest of the target.
func (o *output) replacePartitions(now *manifest) (changes []staging.Change, err error) {
	earlier := map[part]bool{}
	for _, p := range now.Files {
		earlier[p] = true
	}
	replaced := map[string]bool{}
	for _, p := range o.manifest.Files {
		folder := path.Dir(p.Name)
		if replaced[folder] {
			continue
		}
		replaced[folder] = true
		check := func(dir string) error { return o.checkPartition(dir, folder, earlier) }
		target := filepath.Join(o.target, folder)
		if err := check(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		own, err := owned(target)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := o.makeFolder(path.Dir(folder)); err != nil {
			return nil, err
		}
		temporary := filepath.Join(o.temporary, folder)
		if o.sync {
			if err := o.storage.syncDir(temporary); err != nil {
				return nil, err
			}
		}
		if err := o.storage.finish(temporary, target); err != nil {
			return nil, err
		}
		changes = append(changes, staging.Change{Temporary: temporary, Target: target, Replace: true, Verify: check,
			Owned: own, Sync: o.sync})
	}
	now.Files = slices.DeleteFunc(now.Files, func(p part) bool { return replaced[path.Dir(p.Name)] })
	for _, p := range o.manifest.Files {
		if replaced[path.Dir(p.Name)] {
			now.Files = append(now.Files, p)
		}
	}
	return changes, nil
}

// owned lists what is in a directory that may be replaced, each folder behind what it has.
func owned(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		name, err := filepath.Rel(dir, at)
		names = append(names, name)
		return err
	})
	slices.Reverse(names)
	return names, err
}

// checkPartition returns an error for a directory, which is or was a folder of the target, that has anything but files
// of the manifest and files that were read.
func (o *output) checkPartition(dir, folder string, earlier map[part]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var foreign []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		name := path.Join(folder, e.Name())
		p := part{name, info.Size()}
		if !info.Mode().IsRegular() || !earlier[p] && !o.read[p] && !(len(o.read) > 0 && describesFiles(e.Name())) {
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		return notReplaced(o.name, fmt.Sprintf("has a folder to be replaced with what no earlier output has left "+
			"there as it is now: %s; move it elsewhere, or read all files of the folder in the job",
			phrase.Some(foreign, 5, ", ")))
	}
	return nil
}
