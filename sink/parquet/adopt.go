package parquet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source/store"
)

// Several writers, also of other processes, can write the files of one output. Each writes a part of the rows by
// CreateParts. The output adopts the files of the writers that count. Local files are in a folder next to the output,
// which renames them when it is committed. Objects are uploads to the output that are not complete, so nothing appears
// before the output is committed and completes them.

// Part is a file of a part of an output.
type Part struct {
	// Name is its path in the folder of all parts, such as y=2024/part-00000-0123456789ab.parquet.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Rows  int64  `json:"rows"`
	// Upload is that of an object.
	Upload *store.UploadState `json:"upload,omitempty"`
}

// PartOptions say where a writer writes a part of an output.
type PartOptions struct {
	// Folder is a local folder that exists, or the prefix of the objects of the output.
	Folder string
	// Attempt is 12 hexadecimal digits that no other writer has.
	Attempt string
	// First is FirstPart of an output in a store, and Number the position of the part in it: objects have their names
	// before it is known how many there are.
	First, Number int
}

// InParts reports whether several writers can write an output to a path: any number of files in a folder.
func (o *Options) InParts(path string) bool { return o.Directory(path) && o.Files == 0 }

// CreateParts returns a writer of a part of an output, with the options of the output. After Commit its files are
// there, and Parts returns them: none if there are no rows. After Abort they are not.
func CreateParts(to PartOptions, schema *gpu.Schema, opt Options) (*Writer, error) {
	w, err := newWriter(strings.TrimRight(to.Folder, "/")+"/", schema, opt)
	if err != nil {
		return nil, err
	}
	if !staging.IsObject(to.Folder) {
		w.out = &parts{PartOptions: to, storage: disk{}, durable: opt.Sync, folders: map[string]bool{}}
		return w, nil
	}
	to.Folder = strings.TrimRight(to.Folder, "/") + "/"
	w.out = &objectParts{objects: &objects{name: to.Folder, root: to.Folder, lease: opt.Lease, ctx: w.run},
		PartOptions: to}
	return w, nil
}

// FirstPart returns the number with which the names of new objects begin, behind those to which an output adds some.
func FirstPart(ctx context.Context, path string, opt Options) (first int, err error) {
	if !opt.Append || !staging.IsObject(path) {
		return 0, nil
	}
	o := &objects{name: path, root: strings.TrimRight(path, "/") + "/", appends: true}
	_, err = o.check(ctx)
	for _, n := range o.first {
		first = max(first, n)
	}
	return first, err
}

// AbortParts ends the uploads to an output of writers whose attempts begin with some digits.
func AbortParts(ctx context.Context, path, attempts string) (err error) {
	var mine []store.Pending
	// A user who may not list uploads leaves them to later outputs.
	_ = store.Uploads(ctx, strings.TrimRight(path, "/")+"/", func(p store.Pending) error {
		name := strings.TrimSuffix(p.Path, ".parquet")
		if ownPart.MatchString(p.Path) && strings.HasPrefix(name[strings.LastIndexByte(name, '-')+1:], attempts) {
			mine = append(mine, p)
		}
		return nil
	})
	for _, p := range mine {
		err = errors.Join(err, p.Abort(ctx))
	}
	return err
}

// Parts returns the files of a writer of CreateParts that is committed. In each folder they have the order of the rows.
func (w *Writer) Parts() (files []Part) {
	switch p := w.out.(type) {
	case *parts:
		files = p.ended
	case *objectParts:
		files = p.files
	}
	slices.SortFunc(files, func(x, y Part) int { return strings.Compare(x.Name, y.Name) })
	return files
}

// Adopt makes files of parts those of the output, in their order. folder is that of local files, next to the target. A
// writer that adopts files writes no rows.
func (w *Writer) Adopt(folder string, files []Part) { w.adopts, w.adopted = folder, files }

// adopter is a target that adopts files.
type adopter interface {
	// adopt adopts file number i of a folder of the output.
	adopt(from, folder string, i int, p Part) error
}

// adopt adopts the files.
func (w *Writer) adopt() error {
	if len(w.adopted) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out, ok := w.out.(adopter)
	if !ok || w.stats.Files > 0 || len(w.files) > 0 {
		return fmt.Errorf("%s: internal error: the output has other files than its parts; please report it",
			w.out.named())
	}
	next := map[string]int{}
	for _, p := range w.adopted {
		if !filepath.IsLocal(p.Name) {
			return fmt.Errorf("%s: a part of an output cannot be %q", w.out.named(), p.Name)
		}
		folder := strings.TrimPrefix(path.Dir(p.Name), ".")
		if err := out.adopt(w.adopts, folder, next[folder], p); err != nil {
			return err
		}
		next[folder]++
		w.stats.Rows, w.stats.Bytes, w.stats.Files = w.stats.Rows+p.Rows, w.stats.Bytes+p.Bytes, w.stats.Files+1
	}
	return nil
}

// adopt moves a file.
func (o *output) adopt(from, folder string, i int, p Part) error {
	from = filepath.Join(from, p.Name)
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != p.Bytes {
		return fmt.Errorf("%s: it has %d bytes, and was written with %d", from, info.Size(), p.Bytes)
	}
	to, err := o.part(folder, i)
	if err == nil {
		err = o.storage.rename(from, to, false)
	}
	if err == nil {
		err = o.fileAccess.Give(to, true)
	}
	if err == nil {
		o.ended(to, p.Bytes)
	}
	return err
}

// adopt takes over an upload.
func (o *objects) adopt(_, _ string, _ int, p Part) error {
	if p.Upload == nil || p.Upload.Path != o.root+p.Name || !ownPart.MatchString(p.Name) {
		return fmt.Errorf("%s: a part of an output cannot be %q", o.name, p.Name)
	}
	f, err := staging.AdoptObject(o.ctx, *p.Upload)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = append(o.open, f)
	o.ended = append(o.ended, part{p.Name, p.Bytes})
	return nil
}

// parts is a part of an output as a target.
type parts struct {
	PartOptions
	storage storage
	durable bool
	folders map[string]bool // that have files of this part
	ended   []Part

	mu    sync.Mutex
	begun []string // paths
}

func (p *parts) create(folder string, i int) (outFile, string, error) {
	at := p.Folder
	for name := range strings.SplitSeq(folder, "/") {
		if at = filepath.Join(at, name); folder == "" || p.folders[at] {
			continue
		}
		// Other parts have files there. The folder of all parts is gone if they are of no use any more.
		if err := p.storage.mkdir(at); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, "", err
		}
		p.folders[at] = true
	}
	file := filepath.Join(at, strings.TrimSuffix(staging.Part(i), ".parquet")+"-"+p.Attempt+".parquet")
	f, err := p.storage.create(file)
	if err == nil {
		p.mu.Lock()
		p.begun = append(p.begun, file)
		p.mu.Unlock()
	}
	return f, file, err
}

func (p *parts) complete(file string, size, rows int64) {
	name, err := filepath.Rel(p.Folder, file)
	if err != nil {
		name = file
	}
	p.ended = append(p.ended, Part{Name: filepath.ToSlash(name), Bytes: size, Rows: rows})
}

// publish waits until the names of the files are on disk, if the output does so.
func (p *parts) publish(context.Context) error {
	if !p.durable {
		return nil
	}
	for folder := range p.folders {
		if err := p.storage.syncDir(folder); err != nil {
			return err
		}
	}
	return p.storage.syncDir(p.Folder)
}

func (p *parts) stage(ctx context.Context) ([]staging.Change, error) { return nil, p.publish(ctx) }
func (p *parts) published() error                                    { return nil }

func (p *parts) discard() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, file := range p.begun {
		if wrong := os.Remove(file); !errors.Is(wrong, fs.ErrNotExist) {
			err = errors.Join(err, wrong)
		}
	}
	return err
}

func (p *parts) removeTemporary() error { return p.discard() }
func (p *parts) named() string          { return p.Folder }
func (p *parts) mostOpen() int          { return maxOpenFiles }

// objectParts is a part of an output in a store as a target.
type objectParts struct {
	*objects
	PartOptions
	files []Part
}

// create begins an object. The names of a part sort behind those of the parts before it.
func (p *objectParts) create(folder string, i int) (outFile, string, error) {
	name := fmt.Sprintf("%s-%06x%06x-%s.parquet", strings.TrimSuffix(staging.Part(p.First), ".parquet"), p.Number, i,
		p.Attempt)
	f := staging.NewObject(p.ctx, p.root+path.Join(folder, name), p.lease, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, f)
	return objectFile{f}, f.Path, nil
}

func (p *objectParts) complete(name string, size, rows int64) {
	p.files = append(p.files, Part{Name: strings.TrimPrefix(name, p.root), Bytes: size, Rows: rows})
}

// publish returns the uploads in Parts.
func (p *objectParts) publish(context.Context) (err error) {
	uploads := map[string]*staging.Object{}
	for _, f := range p.open {
		uploads[f.Path] = f
	}
	for i := range p.files {
		if p.files[i].Upload, err = uploads[p.root+p.files[i].Name].State(); err != nil {
			return err
		}
	}
	return nil
}

func (p *objectParts) stage(ctx context.Context) ([]staging.Change, error) {
	return nil, p.publish(ctx)
}
