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
)

// Several writers, also of other processes, can write the files of one output. Each writes a part of the rows by
// CreateParts, into a folder next to the output. The output adopts the files of the writers that count: it moves them
// to their names when it is committed.

// Part is a file of a part of an output.
type Part struct {
	// Name is its path in the folder of all parts, such as y=2024/part-00000-0123456789ab.parquet.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Rows  int64  `json:"rows"`
}

// InParts reports whether several writers can write an output to a path: any number of files in a local directory.
func (o *Options) InParts(path string) bool {
	return o.Directory(path) && o.Files == 0 && !staging.IsObject(path)
}

// CreateParts returns a writer of a part of an output, with the options of the output. Its files have names with the
// attempt, 12 hexadecimal digits, in a folder that exists. After Commit they are there, and Parts returns them: none if
// there are no rows. After Abort they are not.
func CreateParts(folder, attempt string, schema *gpu.Schema, opt Options) (*Writer, error) {
	w, err := newWriter(folder+"/", schema, opt)
	if err == nil {
		w.out = &parts{storage: disk{}, folder: folder, attempt: attempt, durable: opt.Sync, folders: map[string]bool{}}
	}
	return w, err
}

// Parts returns the files of a writer of CreateParts that is committed. In each folder they have the order of the rows.
func (w *Writer) Parts() []Part {
	p, ok := w.out.(*parts)
	if !ok {
		return nil
	}
	slices.SortFunc(p.ended, func(x, y Part) int { return strings.Compare(x.Name, y.Name) })
	return p.ended
}

// Adopt makes files of a folder, which is next to the target, files of the output, in their order. They are moved at
// Commit. A writer that adopts files writes no rows.
func (w *Writer) Adopt(folder string, files []Part) { w.adopts, w.adopted = folder, files }

// adopt moves the files.
func (w *Writer) adopt() error {
	if len(w.adopted) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out, ok := w.out.(localTarget)
	if !ok || w.stats.Files > 0 || len(w.files) > 0 {
		return fmt.Errorf("%s: internal error: the output has other files than its parts; please report it",
			w.out.named())
	}
	next := map[string]int{}
	for _, p := range w.adopted {
		folder := strings.TrimPrefix(path.Dir(p.Name), ".")
		if !filepath.IsLocal(p.Name) {
			return fmt.Errorf("%s: a part of an output cannot be %q", out.name, p.Name)
		}
		if err := out.adopt(filepath.Join(w.adopts, p.Name), folder, next[folder], p.Bytes); err != nil {
			return err
		}
		next[folder]++
		w.stats.Rows, w.stats.Bytes, w.stats.Files = w.stats.Rows+p.Rows, w.stats.Bytes+p.Bytes, w.stats.Files+1
	}
	return nil
}

// adopt moves a file to file number i of a folder of the output.
func (o *output) adopt(from, folder string, i int, size int64) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != size {
		return fmt.Errorf("%s: it has %d bytes, and was written with %d", from, info.Size(), size)
	}
	to, err := o.part(folder, i)
	if err == nil {
		err = o.storage.rename(from, to, false)
	}
	if err == nil {
		err = o.fileAccess.Give(to, true)
	}
	if err == nil {
		o.ended(to, size)
	}
	return err
}

// parts is a part of an output as a target.
type parts struct {
	storage         storage
	folder, attempt string
	durable         bool
	folders         map[string]bool // that have files of this part
	ended           []Part

	mu    sync.Mutex
	begun []string // paths
}

func (p *parts) create(folder string, i int) (outFile, string, error) {
	at := p.folder
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
	file := filepath.Join(at, strings.TrimSuffix(staging.Part(i), ".parquet")+"-"+p.attempt+".parquet")
	f, err := p.storage.create(file)
	if err == nil {
		p.mu.Lock()
		p.begun = append(p.begun, file)
		p.mu.Unlock()
	}
	return f, file, err
}

func (p *parts) complete(file string, size, rows int64) {
	name, err := filepath.Rel(p.folder, file)
	if err != nil {
		name = file
	}
	p.ended = append(p.ended, Part{filepath.ToSlash(name), size, rows})
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
	return p.storage.syncDir(p.folder)
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
func (p *parts) named() string          { return p.folder }
func (p *parts) mostOpen() int          { return maxOpenFiles }
