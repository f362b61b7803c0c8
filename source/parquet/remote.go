package parquet

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gstream/gstream/source/store"
)

// expandRemote lists the files that a path in a store names, as expandOne does. It adds their versions, so that opening
// them asks for nothing but their footers.
func expandRemote(ctx context.Context, address string, output *outputPath, versions map[string]Version) (
	[]string, error) {
	if err := store.Check(address); err != nil {
		return nil, &fs.PathError{Op: "read", Path: store.Display(address), Err: err}
	}
	listable := store.Listable(address) // a web server has no list of its files
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
	own := ""
	if output != nil && isRemote(output.path) && !strings.HasPrefix(prefix, output.path) {
		// The output may be absent now, and among the files in the next run.
		own = output.object()
		if strings.HasPrefix(own, prefix) {
			tree.add(root, own, Version{})
		}
	}
	tree.sort()
	w := fileList{path: address, seen: map[string]bool{}, names: tree}
	if literal < len(parts) {
		err = w.patternIn(root, parts)
	} else {
		err = unlessAbsent(w.folder(strings.TrimSuffix(prefix, "/")))
	}
	if err == nil && slices.Contains(w.files, own) {
		err = output.refuse(address)
	}
	if err == nil {
		w.files, err = committed(ctx, w.files)
	}
	if err == nil && len(w.files) == 0 {
		err = &fs.PathError{Op: "read", Path: address, Err: &notFound{none}}
	}
	for _, file := range w.files {
		versions[file] = tree[file].version
	}
	return w.files, err
}

// ownPart are the names of files that runs of gstream write into folders of a store. Other writers, and copies of local
// folders, have other names.
var ownPart = regexp.MustCompile(`^part-[0-9]{5,}-[0-9a-f]{12}\.parquet$`)

const (
	manifestName = ".gstream-manifest.json"
	maxManifest  = 128 << 20
)

// committed leaves out the files of runs that have not committed, or whose output was replaced: those that the manifest
// of their folder does not list. A folder without a manifest is a copy, and all its files count.
func committed(ctx context.Context, files []string) (kept []string, err error) {
	listed := map[string]map[string]bool{} // by folder; nil for one without a manifest
	for _, file := range files {
		i := strings.LastIndexByte(file, '/')
		if !ownPart.MatchString(file[i+1:]) {
			kept = append(kept, file)
			continue
		}
		folder := file[:i]
		for strings.Contains(folder[strings.LastIndexByte(folder, '/')+1:], "=") {
			folder = folder[:strings.LastIndexByte(folder, '/')] // of a partition
		}
		names, known := listed[folder]
		if !known {
			if names, err = listedIn(ctx, folder); err != nil {
				return nil, err
			}
			listed[folder] = names
		}
		if names == nil || names[file[len(folder)+1:]] {
			kept = append(kept, file)
		}
	}
	return kept, nil
}

// listedIn returns the files in the manifest of a folder, nil if there is none.
func listedIn(ctx context.Context, folder string) (map[string]bool, error) {
	path := folder + "/" + manifestName
	text, _, err := store.Get(ctx, path, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m struct {
		Files []struct {
			Name string `json:"name"`
		} `json:"files"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not the list of the files of an " +
			"output; write the output again, or remove this object if all files in the folder are to be read")}
	}
	names := map[string]bool{}
	for _, f := range m.Files {
		names[f.Name] = true
	}
	return names, nil
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
