package parquet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source/store"
)

// objects is an output in an object store: one object, or a folder of them. Objects are written by uploads, and appear
// at publish.
//
// Of a folder, the manifest says which objects are the output: those that Files lists. Objects of a run have names that
// no other run gives. A run first writes a manifest that adds the names of its objects to Others, so that whoever comes
// after a killed run knows them. Then its objects appear. Then it writes the manifest that lists them in Files: this is
// the commit. Each manifest is written on condition that it replaces the one that was read. So there is one output
// at each moment, whatever processes write at the same time.
type objects struct {
	name      string // as given
	root      string // of a folder, with a slash at the end; or the object
	id        string // in the names of the files
	overwrite bool
	directory bool
	discarded bool // write everything, and nothing appears
	// appends keeps the files of earlier outputs; partitions keeps those of other partitions than this run writes.
	appends, partitions bool
	partitionBy         []string
	existed             bool           // there were objects when the output was begun
	first               map[string]int // the number of the first file of a folder, which has a slash at its end
	lease               *gpu.Lease
	ctx                 context.Context
	others              map[string]bool // uploads of other processes of the one object

	mu      sync.Mutex
	open    []*staging.Object
	ended   []part
	claimed string // ETag of the manifest that claims the folder, once it was written
	staged  bool   // all objects of a folder are there
	// undoing undoes what stage has done, until the output is published; cleanUp ends a publication.
	undoing func() error
	cleanUp func()

	// killed, if set by a test, stops the commit at an object, as the end of the process does.
	killed func(i int) bool
}

// ownPart are the names of files of objects.
var ownPart = regexp.MustCompile(`(^|/)part-[0-9]{5,}(-[0-9a-f]{12}){1,2}\.parquet$`)

// requests bounds the requests of an output that run at the same time.
const requests = 16

// newObjects checks that a target may be written. ctx ends when the sink fails.
func newObjects(ctx context.Context, name string, opt Options) (_ *objects, err error) {
	o := &objects{name: name, root: name, overwrite: opt.Overwrite, directory: opt.Directory(name), lease: opt.Lease,
		ctx: ctx, discarded: opt.Discard, appends: opt.Append, partitions: opt.OverwritePartitions,
		partitionBy: opt.PartitionBy}
	switch {
	case opt.OverwriteSources:
		return nil, &fs.PathError{Op: "write", Path: store.Display(name), Err: errors.New("overwrite: sources is for " +
			"local folders; overwrite: true replaces the whole output, and append: true adds to it")}
	case opt.Append && !o.directory:
		return nil, appendsToFile(name)
	}
	if err := store.CheckOutput(name); err != nil {
		return nil, &fs.PathError{Op: "write", Path: store.Display(name), Err: err}
	}
	var id [6]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	o.id = hex.EncodeToString(id[:])
	if !o.directory {
		o.others, err = staging.CheckObject(ctx, name, o.overwrite)
		if errors.Is(err, os.ErrExist) {
			err = o.exists()
		}
		return o, err
	}
	o.root = strings.TrimRight(name, "/") + "/"
	if _, err := o.check(ctx); err != nil {
		return nil, err
	}
	_, err = staging.SweepUploads(ctx, o.root, ownPart.MatchString)
	return o, err
}

func (o *objects) exists() error {
	return fmt.Errorf("%s: %w; remove it, choose another name, or use %v", o.name, os.ErrExist, gpu.Overwrite)
}

// found is what a folder has.
type found struct {
	manifest
	etag    string   // of the manifest, "" if there is none
	foreign []string // objects that no manifest lists, as they are now
}

// check returns what a folder has. It returns an error for a folder that must not be written.
func (o *objects) check(ctx context.Context) (f found, err error) {
	text, etag, err := store.Get(ctx, o.root+staging.LockName, maxManifest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if f.etag = etag; json.Unmarshal(text, &f.manifest) != nil {
		f.manifest = manifest{}
	}
	own := map[string]int64{"": 0, staging.LockName: -1}
	for _, p := range f.Files {
		own[p.Name] = p.Bytes
	}
	for _, name := range f.Others {
		own[name] = -1
	}
	first := map[string]int{}
	err = store.List(ctx, o.root, func(at string, v store.Version) error {
		name := strings.TrimPrefix(at, o.root)
		if m := numberedPart.FindStringSubmatch(name); m != nil && o.appends {
			n, err := strconv.Atoi(m[2])
			if err == nil {
				first[m[1]] = max(first[m[1]], n+1)
			}
		}
		size, ok := own[name]
		if ok && (size < 0 || size == v.Size) || strings.HasSuffix(name, "/") && v.Size == 0 {
			return nil
		}
		f.foreign = append(f.foreign, name)
		return nil
	})
	if err != nil {
		return f, err
	}
	if o.first == nil {
		o.first = first // the objects of the run have these numbers
		o.existed = len(f.Files)+len(f.foreign) > 0
	}
	switch {
	case o.appends, o.partitions:
		return f, nil
	case (len(f.foreign) > 0 || len(f.Files) > 0) && !o.overwrite:
		return f, o.exists()
	}
	return f, o.mayReplace(f, f.foreign)
}

// numberedPart is the name of a file of a folder, ours or a copy's: its folder with a slash, and its number.
var numberedPart = regexp.MustCompile(`^(.*/|)part-([0-9]{5,9})(?:-[0-9a-f]{12}){0,2}\.parquet$`)

// mayReplace returns an error if there are objects that no earlier output has left there.
func (o *objects) mayReplace(f found, foreign []string) error {
	switch {
	case len(foreign) == 0:
		return nil
	case f.etag == "":
		return notReplaced(o.name,
			fmt.Sprintf("is a folder without the object %s, in which an output says which objects are its own, so "+
				"nothing there is replaced: %s; remove them or name another folder", staging.LockName,
				phrase.Some(foreign, 5, ", ")))
	}
	return notReplaced(o.name,
		fmt.Sprintf("is a folder with what no earlier output has left there as it is now: %s; move it elsewhere "+
			"or name another folder", phrase.Some(foreign, 5, ", ")))
}

// keep returns the files of an earlier output that stay, and the names of those that are replaced.
func (o *objects) keep(f found) (kept []part, replaced []string, err error) {
	if !o.appends && !o.partitions {
		for _, p := range f.Files {
			replaced = append(replaced, p.Name)
		}
		return nil, replaced, nil
	}
	written := map[string]bool{} // folders of partitions
	for _, p := range o.ended {
		written[path.Dir(p.Name)] = o.partitions
	}
	for _, p := range f.Files {
		if written[path.Dir(p.Name)] {
			replaced = append(replaced, p.Name)
		} else {
			kept = append(kept, p)
		}
	}
	var foreign []string
	for _, name := range f.foreign {
		if written[path.Dir(name)] {
			foreign = append(foreign, name)
		}
	}
	return kept, replaced, o.mayReplace(f, foreign)
}

func (o *objects) named() string { return o.name }

// create begins file number i of a folder of the output.
func (o *objects) create(folder string, i int) (outFile, string, error) {
	at := o.root
	if o.directory {
		if folder != "" {
			folder += "/"
		}
		at += folder + strings.TrimSuffix(staging.Part(i+o.first[folder]), ".parquet") + "-" + o.id + ".parquet"
	}
	f := staging.NewObject(o.ctx, at, o.lease, o.others)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = append(o.open, f)
	return objectFile{f}, at, nil
}

type objectFile struct{ *staging.Object }

func (objectFile) startWriteback(off, n int64) {}

// mostOpen returns how many files may be open: they take an eighth of the memory at most.
func (o *objects) mostOpen() int {
	limit := o.lease.Limit()
	return int(min(max(limit/8/staging.PartBytes(limit), 4), maxOpenFiles))
}

// complete records a complete file.
func (o *objects) complete(name string, size, _ int64) {
	o.ended = append(o.ended, part{strings.TrimPrefix(name, o.root), size})
}

// publish makes the objects appear.
func (o *objects) publish(ctx context.Context) error {
	if !o.directory && !o.discarded && len(o.open) > 0 {
		return o.one(o.open[0].Commit(ctx, o.overwrite))
	}
	changes, err := o.stage(ctx)
	if err != nil || len(changes) == 0 {
		return err
	}
	if err := changes[0].Remote.Appear(); err != nil {
		return errors.Join(err, o.discard())
	}
	return o.published()
}

// stage makes the objects of a folder appear, for those who do not read its manifest, and returns the change that makes
// them the output.
func (o *objects) stage(ctx context.Context) ([]staging.Change, error) {
	switch {
	case o.discarded:
		return nil, o.discard()
	case len(o.open) == 0:
		return nil, nil // no rows were added
	case !o.directory:
		r, err := o.open[0].Stage(ctx, o.overwrite)
		if err != nil {
			return nil, o.one(err)
		}
		appear := r.Appear
		r.Appear = func() error { return o.one(appear()) }
		return []staging.Change{{Remote: r}}, nil
	}
	// Check again, because the target may have changed since the output was begun.
	found, err := o.check(ctx)
	if err != nil {
		return nil, err
	}
	kept, replaced, err := o.keep(found)
	if err != nil {
		return nil, err
	}
	before, etag := found.manifest, found.etag
	claim := before
	claim.Others = append([]string(nil), before.Others...)
	for _, p := range o.ended {
		claim.Others = append(claim.Others, p.Name)
	}
	if o.claimed, err = o.put(ctx, claim, etag); err != nil {
		return nil, err
	}
	appear := func(i int) error {
		if o.killed != nil && o.killed(i) {
			return errKilled
		}
		return o.open[i].Commit(ctx, false)
	}
	if err := o.each(ctx, len(o.open), appear); errors.Is(err, errKilled) {
		return nil, err
	} else if err != nil {
		return nil, errors.Join(err, o.undo(before))
	}
	after := manifest{Files: append(kept, o.ended...), PartitionBy: o.partitionBy,
		Others: append(append([]string(nil), before.Others...), replaced...)}
	sortParts(after.Files)
	text, err := o.text(after)
	if err != nil {
		return nil, errors.Join(err, o.undo(before))
	}
	o.undoing = func() error { return o.undo(before) }
	o.mu.Lock()
	o.staged = true
	o.mu.Unlock()
	r := &staging.Remote{Path: o.root + staging.LockName, Manifest: text, Tag: o.claimed, Undo: o.discard}
	r.Appear = func() error {
		tag, err := o.put(ctx, after, o.claimed)
		if err == nil {
			o.claimed = tag // which undo replaces
		}
		return err
	}
	o.cleanUp = func() {
		// What cannot be removed now, the next output removes.
		if len(after.Others) > 0 && o.remove(ctx, after.Others) == nil {
			tag := o.claimed
			after.Others = nil
			_, _ = o.put(ctx, after, tag)
		}
	}
	return []staging.Change{{Remote: r}}, nil
}

// one is an error about the one object of an output.
func (o *objects) one(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return o.exists()
	}
	return err
}

// published removes what was replaced.
func (o *objects) published() error {
	if o.undoing = nil; o.cleanUp != nil {
		o.cleanUp()
	}
	return nil
}

// text returns the text of a manifest of this run.
func (o *objects) text(m manifest) ([]byte, error) {
	m.CreatedBy, m.Run = createdBy(), o.id
	text, err := json.MarshalIndent(m, "", " ")
	return append(text, '\n'), err
}

// put writes the manifest if it still is one with an ETag, "" for none.
func (o *objects) put(ctx context.Context, m manifest, etag string) (string, error) {
	text, err := o.text(m)
	if err != nil {
		return "", err
	}
	tag, err := store.Put(ctx, o.root+staging.LockName, text, store.Condition{Absent: etag == "",
		Tag: etag})
	if errors.Is(err, fs.ErrExist) {
		err = notReplaced(o.name, "is being written by another process (its "+staging.LockName+" has changed); run "+
			"the job again if its rows are not those that were wanted")
	}
	return tag, err
}

// undo restores the manifest, and removes the objects of this run. It does nothing if another process has the folder,
// or if this run has written the last manifest after all: the objects are listed there.
func (o *objects) undo(before manifest) error {
	ctx, end := context.WithTimeout(context.Background(), undoTime)
	defer end()
	text, etag, err := store.Get(ctx, o.root+staging.LockName, maxManifest)
	var now manifest
	if err != nil || json.Unmarshal(text, &now) != nil || now.Run == o.id && etag != o.claimed {
		return err
	}
	var names []string
	for _, p := range o.ended {
		names = append(names, p.Name)
	}
	// Uploads end first: an object must not appear after it was removed.
	if err := errors.Join(o.discard(), o.remove(ctx, names)); err != nil || etag != o.claimed {
		return err
	}
	if len(before.Files) == 0 && o.remove(ctx, before.Others) == nil {
		return store.Delete(ctx, o.root+staging.LockName)
	}
	_, err = o.put(ctx, before, o.claimed)
	return err
}

// errKilled stands for the end of the process.
var errKilled = errors.New("killed")

// undoTime bounds the time to undo a commit that has failed.
const undoTime = 2 * time.Minute

// remove removes objects of the folder.
func (o *objects) remove(ctx context.Context, names []string) error {
	return o.each(ctx, len(names), func(i int) error { return store.Delete(ctx, o.root+names[i]) })
}

// each calls f for the numbers below n, several at the same time, and returns the first error.
func (o *objects) each(ctx context.Context, n int, f func(i int) error) error {
	var work errgroup.Group
	work.SetLimit(requests)
	for i := range n {
		work.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f(i)
		})
	}
	return work.Wait()
}

// discard ends all uploads, and undoes stage.
func (o *objects) discard() error {
	if undo := o.undoing; undo != nil {
		o.undoing = nil
		return undo()
	}
	o.mu.Lock()
	open := o.open
	o.mu.Unlock()
	return o.each(context.Background(), len(open), func(i int) error { return open[i].Abort() })
}

// removeTemporary ends all uploads, for a process that ends while others write.
func (o *objects) removeTemporary() error {
	o.mu.Lock()
	open, staged := o.open, o.staged
	o.mu.Unlock()
	if staged {
		return nil // the next output removes what is not listed
	}
	return o.each(context.Background(), len(open), func(i int) error { return open[i].RemoveTemporary() })
}
