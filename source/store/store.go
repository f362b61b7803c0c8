// Package store reads files, wherever they are: in the local file system, in object stores that speak S3, in Google
// Cloud Storage, in Azure Blob Storage, and on web servers. A path says where: s3://bucket/key, gs://bucket/key,
// az://container/key, http://host/path, https://host/path, or a path of the local file system. Objects of stores are
// written by uploads of parts.
//
// # Requests
//
// Objects are read by ranges. A request that may succeed later is sent again after a pause that doubles, with jitter:
// one that is answered with 429, 500, 502, 503 or 504, whose connection breaks, that makes no progress, or whose body
// ends early. It continues at the byte that was reached. Every answer must be of the version of the object that was
// found first, by its ETag: otherwise reads fail with source.ErrChanged.
//
// # Trust
//
// Answers are untrusted. Lengths, ranges, redirects and the size of listings are checked and bounded. Errors have
// no text of a server, except for a short code, and no part of a path that may be a key: see Display.
package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/gstream/gstream/source"
)

// Version identifies the content of a file. Of a local file: a replaced file has another inode, and a file that was
// overwritten has another size or time. Of an object: its ETag, or its time if it has no strong ETag.
type Version struct {
	Device, Inode uint64
	Size          int64
	Modified      time.Time
	ETag          string `json:",omitempty"`
}

// Changed returns a source.ErrChanged if a file has another version now.
func (v Version) Changed(now Version) error {
	how := "it was written to"
	switch {
	case v.Size != now.Size:
		how = fmt.Sprintf("it had %d bytes and now has %d", v.Size, now.Size)
	case v.ETag != now.ETag:
		how = "another object has taken its name (its ETag has changed)"
	case v.Device != now.Device || v.Inode != now.Inode:
		how = "another file has taken its name"
	case !now.Modified.IsZero():
		how = "it was written to at " + now.Modified.Local().Format(time.DateTime)
	}
	return fmt.Errorf("%w: %s; run the job again once nothing writes there", source.ErrChanged, how)
}

// Identity is a file in a version, in JSON.
type Identity struct {
	Path    string // absolute
	Version Version
}

// IdentityOf returns a file in a version. The address of a web server with a query is an error, since it may be a key.
func IdentityOf(path string, v Version) (Identity, error) {
	if Display(path) != path {
		return Identity{}, fmt.Errorf("%s: the address has a query, which may be a key", Display(path))
	}
	if Scheme(path) == "" {
		var err error
		if path, err = filepath.Abs(path); err != nil {
			return Identity{}, err
		}
	}
	return Identity{path, v}, nil
}

// File is one version of a file, open for reads. It is safe for concurrent use.
type File interface {
	// ReadAt fills p with the bytes at an offset, as io.ReaderAt does. It ends with the context. It fails with a
	// source.ErrChanged if the file has another version.
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
	Version() Version
	Close() error
}

// store is where the files of a scheme are. Errors that a path does not exist are fs.ErrNotExist.
type store interface {
	// stat returns the current version.
	stat(ctx context.Context, path string) (Version, error)
	// open opens a version, or the current one for nil. It may leave it to the first read to find that there is another
	// one.
	open(ctx context.Context, path string, v *Version) (File, error)
	// list calls f with the path of every file that begins with a prefix, in any order.
	list(ctx context.Context, prefix string, f func(path string, v Version) error) error
}

var scheme = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+)://`)

// Scheme returns the scheme of a path in lower case, such as s3, or "" for a path of the local file system.
func Scheme(path string) string {
	if m := scheme.FindStringSubmatch(path); m != nil {
		return strings.ToLower(m[1])
	}
	return ""
}

// Check returns an error if files with such a path cannot be read. It opens nothing.
func Check(path string) error {
	switch s := Scheme(path); s {
	case "":
		return nil
	case "s3", "gs", "az":
		_, err := splitBucket(path)
		return err
	case "http", "https":
		_, err := parseHTTP(path)
		return err
	case "file":
		return fmt.Errorf("write the path without %s", path[:len("file://")])
	default:
		return fmt.Errorf("addresses that begin with %s:// are not supported (s3://, gs://, az://, http:// and "+
			"https:// are); copy the files, or mount them as a folder", s)
	}
}

// Listable reports whether there are lists of the files with such an address: not of those of a web server.
func Listable(path string) bool { s := Scheme(path); return s == "s3" || s == "gs" || s == "az" }

// Display returns a path for people: of the address of a web server without its query, which may be a key. A number
// distinguishes addresses with different queries.
func Display(path string) string {
	if s := Scheme(path); s != "http" && s != "https" {
		return path
	}
	head, hidden := path, ""
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		head, hidden = path[:i], path[i:]
	}
	if i := strings.Index(head, "://") + 3; strings.Contains(head[i:], "@") {
		host, rest, _ := strings.Cut(head[i:], "/")
		head = head[:i] + host[strings.LastIndex(host, "@")+1:] + "/" + rest // a user and a password
	}
	if hidden == "" {
		return head
	}
	number := sha256.Sum256([]byte(hidden))
	return fmt.Sprintf("%s?(hidden, %x)", head, number[:4])
}

// of returns the store of a path.
func of(path string) (store, error) {
	if err := Check(path); err != nil {
		return nil, &fs.PathError{Op: "read", Path: Display(path), Err: err}
	}
	switch Scheme(path) {
	case "s3":
		return s3{}, nil
	case "gs":
		return google{}, nil
	case "az":
		return azure{}, nil
	case "http", "https":
		return web{}, nil
	}
	return local{}, nil
}

// Stat returns the version that a file has now.
func Stat(ctx context.Context, path string) (Version, error) {
	s, err := of(path)
	if err != nil {
		return Version{}, err
	}
	return s.stat(ctx, path)
}

// Open opens a version of a file, or its current version for nil. It fails with a source.ErrChanged if the file has
// another one. Of an object, the first read may be the one that fails.
func Open(ctx context.Context, path string, v *Version) (File, error) {
	s, err := of(path)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, path, v)
}

// MaxListed bounds the number of files in a listing.
const MaxListed = 1 << 20

// maxName bounds the bytes of a path in a listing, maxNames those of all.
const maxName, maxNames = 4 << 10, 256 << 20

// List calls f with every file whose path begins with a prefix, in any order. It is for object stores.
func List(ctx context.Context, prefix string, f func(path string, v Version) error) error {
	s, err := of(prefix)
	if err != nil {
		return err
	}
	n, size := 0, 0
	return s.list(ctx, prefix, func(path string, v Version) error {
		n++
		if size += len(path); n > MaxListed || size > maxNames || len(path) > maxName {
			return &fs.PathError{Op: "list", Path: Display(prefix), Err: fmt.Errorf("there are more than %d objects, "+
				"or their names are too long; name them by a longer prefix", MaxListed)}
		}
		return f(path, v)
	})
}

// parseHTTP returns the address of a file on a web server. Errors do not have its parts.
func parseHTTP(path string) (*url.URL, error) {
	u, err := url.Parse(path)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("not an address as in https://host/file.parquet")
	case u.User != nil:
		return nil, errors.New("a user and a password in an address are not supported, since addresses are shown in " +
			"plans and reports")
	case strings.Contains(u.Path, "*"):
		return nil, errors.New("a web server has no list of its files, so a pattern has no meaning there; name each " +
			"file")
	}
	return u, nil
}
