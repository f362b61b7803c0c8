package parquet

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/gstream/gstream/source/store"
)

// expandRemote lists the files that a path in a store names, as expandOne does. It adds their versions, so that opening
// them asks for nothing but their footers.
func expandRemote(ctx context.Context, address string, versions map[string]Version) ([]string, error) {
	if err := store.Check(address); err != nil {
		return nil, &fs.PathError{Op: "read", Path: store.Display(address), Err: err}
	}
	listable := store.Scheme(address) == "s3" // a web server has no list of its files
	root, key := address, ""
	if listable {
		i := strings.Index(address, "://") + len("://")
		bucket, rest, _ := strings.Cut(address[i:], "/")
		root, key = address[:i]+bucket, rest
	}
	if !listable || !isPattern(key) && key != "" && !strings.HasSuffix(key, "/") {
		v, err := store.Stat(ctx, address)
		if err == nil {
			versions[address] = v
			return []string{address}, nil
		}
		if !listable || !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	parts := strings.Split(strings.TrimSuffix(key, "/"), "/")
	literal := slices.IndexFunc(parts, isPattern) // the first part that is not a name
	if literal < 0 {
		literal = len(parts)
	}
	prefix := root + "/"
	if literal > 0 && key != "" {
		prefix += strings.Join(parts[:literal], "/") + "/"
	}
	none := "there is no *.parquet object below it, and it is none itself (names that begin with . or _ do not " +
		"count, except folders such as _k=1)"
	if literal < len(parts) {
		prefix += parts[literal][:strings.IndexAny(parts[literal], "*?[")]
		none = "no object matches this pattern"
	}
	tree := objectNames{}
	err := store.List(ctx, prefix, func(at string, v Version) error {
		tree.add(root, at, v)
		return nil
	})
	if err != nil {
		return nil, err
	}
	tree.sort()
	w := fileList{path: address, seen: map[string]bool{}, names: tree}
	if literal < len(parts) {
		err = w.patternIn(root, parts)
	} else {
		err = unlessAbsent(w.folder(strings.TrimSuffix(prefix, "/")))
	}
	if err == nil && len(w.files) == 0 {
		err = &fs.PathError{Op: "read", Path: address, Err: &notFound{none}}
	}
	for _, file := range w.files {
		versions[file] = tree[file].version
	}
	return w.files, err
}

// objectNames are the objects of a listing by their addresses, and the folders that their names make.
type objectNames map[string]*objectName

// objectName is an object, a folder, or both.
type objectName struct {
	name    string
	version Version
	object  bool
	entries []fs.DirEntry // of a folder
}

// add adds an object below a root, and the folders above it. An object whose name ends with a slash only marks a
// folder.
func (t objectNames) add(root, at string, v Version) {
	if strings.HasSuffix(at, "/") || t[at] != nil && t[at].object {
		return
	}
	for child := (*objectName)(nil); ; {
		n, known := t[at]
		if !known {
			n = &objectName{name: at[strings.LastIndexByte(at, '/')+1:]}
			t[at] = n
		}
		if child == nil {
			n.version, n.object = v, true
		} else {
			n.entries = append(n.entries, objectEntry{child})
		}
		if known && (child != nil || len(n.entries) > 0) || at == root {
			return // the folders above it have it
		}
		child, at = n, at[:strings.LastIndexByte(at, '/')]
	}
}

// sort brings the entries of all folders into the order of their names.
func (t objectNames) sort() {
	for _, n := range t {
		slices.SortFunc(n.entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
}

func (t objectNames) stat(at string) (fs.FileInfo, error) {
	if n := t[at]; n != nil {
		return objectEntry{n}, nil
	}
	return nil, &fs.PathError{Op: "read", Path: at, Err: fs.ErrNotExist}
}

func (t objectNames) lstat(at string) (fs.FileInfo, error) { return t.stat(at) }
func (t objectNames) join(folder, name string) string      { return folder + "/" + name }

func (t objectNames) readDir(folder string) ([]fs.DirEntry, error) {
	n := t[folder]
	if n == nil {
		return nil, &fs.PathError{Op: "read", Path: folder, Err: fs.ErrNotExist}
	}
	return n.entries, nil
}

// objectEntry is an object or a folder as an entry of a folder.
type objectEntry struct{ *objectName }

func (e objectEntry) Name() string               { return e.name }
func (e objectEntry) IsDir() bool                { return !e.object }
func (e objectEntry) Type() fs.FileMode          { return e.Mode() }
func (e objectEntry) Info() (fs.FileInfo, error) { return e, nil }
func (e objectEntry) Size() int64                { return e.version.Size }
func (e objectEntry) ModTime() time.Time         { return time.Time{} }
func (e objectEntry) Sys() any                   { return nil }

func (e objectEntry) Mode() fs.FileMode {
	if e.object {
		return 0o444
	}
	return fs.ModeDir | 0o555
}
