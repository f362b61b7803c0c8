package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"
)

const (
	// MinPart is the least size of a part of an upload, except for the last one.
	MinPart = 5 << 20
	// MaxParts bounds the parts of an upload.
	MaxParts = 10_000
	// tokenBytes is the size of the number that an upload gives itself.
	tokenBytes = 16
	// assembling is the time that a store may take to make an object of its parts.
	assembling = 10 * time.Minute
)

// writer is a store that objects can be written to. Its methods send a request once, or a few.
type writer interface {
	server
	// tokenHeader has the number of an upload, by which its object is recognized.
	tokenHeader() string
	// at returns the object that an upload makes, if it is another one than that of its path.
	at(u *Upload) string
	// begin announces an upload, and returns its number.
	begin(ctx context.Context, u *Upload) (number string, err error)
	// part sends a part that is not empty, and returns by what the store knows it.
	part(ctx context.Context, u *Upload, number int, data []byte) (etag string, err error)
	// complete makes the object of the parts, or an empty one. It fails with fs.ErrExist if there is one and it must
	// not be replaced.
	complete(ctx context.Context, u *Upload, replace bool) error
	abort(ctx context.Context, p Pending) error
	// uploads is Uploads. It sends requests again.
	uploads(ctx context.Context, prefix string, f func(Pending) error) error
	// put is Put. tagOf returns the tag of the object of an answer.
	put(ctx context.Context, path string, content []byte, c Condition) (tag string, err error)
	tagOf(h http.Header) string
}

// writerOf returns the store of a path that CheckOutput accepts.
func writerOf(path string) (writer, error) {
	s, err := of(path)
	if err != nil {
		return nil, err
	}
	w, ok := s.(writer)
	if !ok {
		return nil, &fs.PathError{Op: "write", Path: Display(path), Err: errors.New("this is no object store")}
	}
	return w, nil
}

// CheckOutput returns an error if no object with such a path can be written. It opens nothing.
func CheckOutput(path string) error {
	switch s := Scheme(path); s {
	case "s3", "gs", "az":
		if err := Check(path); err != nil {
			return err
		}
		if p, _ := splitBucket(path); p.key == "" {
			return fmt.Errorf("it names only a bucket; name an object or a folder in it, as in "+
				"%s://bucket/folder/file.parquet", s)
		}
		return nil
	case "http", "https":
		return errors.New("a file cannot be written to a web server; name a local file, or an object in a store " +
			"(s3://, gs://, az://)")
	default:
		return Check(path)
	}
}

// Upload writes an object by parts. The object appears as a whole, at Complete. Methods may be called by several
// goroutines, Complete after all calls of Part.
type Upload struct {
	w        writer
	path, id string
	token    string // in the metadata of the object

	mu    sync.Mutex
	parts []uploaded // by number
}

// uploaded is a part that the store has.
type uploaded struct {
	XMLName    xml.Name `xml:"Part"`
	PartNumber int
	ETag       string
}

// Begin begins the upload of an object. The caller ends it with Complete or Abort. If an answer is lost, the store may
// have an upload whose number has not arrived: Begin aborts all other uploads of the path, except for those whose
// numbers are in others.
func Begin(ctx context.Context, path string, others map[string]bool) (*Upload, error) {
	var token [tokenBytes]byte
	if _, err := rand.Read(token[:]); err != nil {
		return nil, err
	}
	w, err := writerOf(path)
	if err != nil {
		return nil, err
	}
	u := &Upload{w: w, path: path, token: hex.EncodeToString(token[:])}
	times := 0
	err = persist(ctx, func() (_ bool, err error) {
		times++
		// A request that is under way is not cancelled: it could begin an upload later, which nobody would end.
		ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
		defer end()
		u.id, err = w.begin(ctx, u)
		return false, err
	})
	if err == nil && (u.id == "" || len(u.id) > maxName) {
		err = final(syscall.EIO, "the server begins an upload without a number")
	}
	if times > 1 || err != nil && ctx.Err() != nil {
		u.abortLost(ctx, err == nil, others)
	}
	if err != nil {
		return nil, asPathError(ctx, "write", path, err)
	}
	return u, nil
}

// cleaning bounds the time to remove what an interrupted output has left.
const cleaning = 30 * time.Second

// abortLost aborts the uploads of the path whose numbers have not arrived.
func (u *Upload) abortLost(ctx context.Context, begun bool, others map[string]bool) {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer end()
	var lost []Pending
	_ = Uploads(ctx, u.path, func(p Pending) error {
		if p.Path == u.path && p.Number != "" && !others[p.Number] && (!begun || p.Number != u.id) {
			lost = append(lost, p)
		}
		return nil
	})
	for _, p := range lost {
		_ = p.Abort(ctx)
	}
}

// exchange sends a request once, and reads the answer, XML, into a value; nil for none.
func exchange(ctx context.Context, s server, r request, into any, wanted ...int) error {
	a, err := do(s, ctx, r, wanted...)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := io.ReadAll(io.LimitReader(a, maxAnswer+1))
	var failed struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	switch {
	case err != nil:
		return err
	case len(b) > maxAnswer:
		return final(syscall.EIO, "the answer has more than %d bytes", maxAnswer)
	case xml.Unmarshal(b, &failed) == nil:
		// An error after the status was sent.
		if !codeText.MatchString(failed.Code) {
			failed.Code = "no code"
		}
		if failed.Code == "PreconditionFailed" {
			return final(fs.ErrExist, "the server answers with an error (%s)", failed.Code)
		}
		return mayPass("the server answers with an error (%s)", failed.Code)
	case into != nil && xml.Unmarshal(b, into) != nil:
		return mayPass("the answer cannot be read: it is not the XML of an object store; check the endpoint")
	}
	return nil
}

// hashed returns the header that has the hash of a body.
func hashed(body []byte) http.Header {
	h := sha256.Sum256(body)
	return http.Header{"X-Amz-Content-Sha256": {hex.EncodeToString(h[:])}}
}

// Part sends a part, number 0, 1 … of the object. All but the last one have MinPart bytes or more. An object has an
// empty part only if it is empty. The caller must not change data afterwards.
func (u *Upload) Part(ctx context.Context, number int, data []byte) error {
	if number >= MaxParts {
		return asPathError(ctx, "write", u.path, final(syscall.EFBIG, "an object has at most %d parts", MaxParts))
	}
	var etag string
	if len(data) > 0 {
		err := persist(ctx, func() (_ bool, err error) {
			etag, err = u.w.part(ctx, u, number, data)
			if err == nil && (etag == "" || len(etag) > maxName) {
				err = final(syscall.EIO, "the server takes a part without an ETag")
			}
			return false, err
		})
		if err != nil {
			return asPathError(ctx, "write", u.path, err)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.parts) <= number {
		u.parts = append(u.parts, uploaded{})
	}
	if len(data) == 0 {
		u.parts = u.parts[:number] // an empty part is not sent
		return nil
	}
	u.parts[number] = uploaded{PartNumber: number + 1, ETag: etag}
	return nil
}

// settle sends a request that makes something visible, as persist does. If the context ends while the request may be
// under way, settle sends it once more: its answer says what has become of the first one, which can do nothing later.
func settle(ctx context.Context, do func(ctx context.Context) (progress bool, err error)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := persist(ctx, func() (bool, error) { return do(ctx) })
	if err == nil || ctx.Err() == nil {
		return err
	}
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer end()
	return persist(ctx, func() (bool, error) { return do(ctx) })
}

// Complete makes the object of its parts. Unless it replaces an object, it fails with fs.ErrExist if there is one. If
// the answers do not say whether the object was made, Complete looks for it.
func (u *Upload) Complete(ctx context.Context, replace bool) error {
	first := true
	err := settle(ctx, func(ctx context.Context) (bool, error) {
		if !first && u.made(ctx) {
			return true, nil
		}
		first = false
		return false, u.w.complete(ctx, u, replace)
	})
	if err != nil && !u.made(ctx) {
		return asPathError(ctx, "write", u.path, err)
	}
	if at := u.w.at(u); at != u.path {
		ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
		defer end()
		_ = Delete(ctx, at) // or else a later output removes it
	}
	return nil
}

// made reports whether the object is that of this upload.
func (u *Upload) made(ctx context.Context) bool {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer end()
	var token string
	err := persist(ctx, func() (bool, error) {
		a, err := do(u.w, ctx, request{method: http.MethodHead, path: u.path}, http.StatusOK)
		if err == nil {
			token = a.Header.Get(u.w.tokenHeader())
			a.close()
		}
		return false, err
	})
	return err == nil && token == u.token
}

// UploadState is an upload whose parts are all sent, for a process that completes it in place of another one.
type UploadState struct {
	Path, Number, Token string
	Parts               []uploaded
}

// State returns the upload as data. No call of Part may be running.
func (u *Upload) State() UploadState { return UploadState{u.path, u.id, u.token, u.parts} }

// Complete makes the object, as Complete of the upload does. It is no error if the upload has ended: it was completed
// or aborted before.
func (s UploadState) Complete(ctx context.Context, replace bool) error {
	u, err := s.Upload()
	if err != nil {
		return err
	}
	err = u.Complete(ctx, replace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Upload returns the upload, which the caller ends.
func (s UploadState) Upload() (*Upload, error) {
	w, err := writerOf(s.Path)
	if err != nil {
		return nil, err
	}
	return &Upload{w: w, path: s.Path, id: s.Number, token: s.Token, parts: s.Parts}, nil
}

// Remove removes the object that Complete has made. It leaves an object of others.
func (u *Upload) Remove(ctx context.Context) error {
	if !u.made(ctx) {
		return nil
	}
	return Delete(ctx, u.path)
}

// Abort ends an upload, and removes its parts. No call of Part may be running.
func (u *Upload) Abort(ctx context.Context) error {
	return Pending{Path: u.path, Number: u.id, at: u.w.at(u)}.Abort(ctx)
}

// Pending is an upload that has not ended.
type Pending struct {
	Path, Number string // Number is "" if all parts were joined
	Began        time.Time
	at           string // the object that it makes
}

// Abort ends the upload, and removes its parts. It is no error if the upload has ended.
func (p Pending) Abort(ctx context.Context) error {
	w, err := writerOf(p.Path)
	if err != nil {
		return err
	}
	err = persist(ctx, func() (bool, error) { return false, w.abort(ctx, p) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return asPathError(ctx, "abort the upload of", p.Path, err)
}

// Uploads calls f with the uploads of all objects whose path begins with a prefix, in any order. Some stores have no
// list of them, and forget them after some days.
func Uploads(ctx context.Context, prefix string, f func(Pending) error) error {
	w, err := writerOf(prefix)
	if err != nil {
		return err
	}
	return asPathError(ctx, "list the uploads of", prefix, w.uploads(ctx, prefix, f))
}

// Condition says when Put writes an object.
type Condition struct {
	Absent bool   // only if there is none of the name
	Tag    string // only if the object has this tag; "" for any
}

// Put writes a small object in one request, and returns its tag, by which conditions know its version. It fails with
// fs.ErrExist if the condition does not hold. If the answers do not say whether the object was written, Put compares
// its content.
func Put(ctx context.Context, path string, content []byte, c Condition) (tag string, err error) {
	w, err := writerOf(path)
	if err != nil {
		return "", err
	}
	times := 0
	err = settle(ctx, func(ctx context.Context) (_ bool, err error) {
		times++
		tag, err = w.put(ctx, path, content, c)
		return false, err
	})
	if err != nil && (times > 1 || ctx.Err() != nil) {
		ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
		defer end()
		if now, tag, readErr := Get(ctx, path, len(content)); readErr == nil && bytes.Equal(now, content) {
			return tag, nil
		}
	}
	return tag, asPathError(ctx, "write", path, err)
}

// Get reads a small object of at most a number of bytes, and returns its tag.
func Get(ctx context.Context, path string, most int) (content []byte, tag string, err error) {
	w, err := writerOf(path)
	if err != nil {
		return nil, "", err
	}
	v, header, err := find(ctx, w, path)
	if err != nil {
		return nil, "", err
	}
	f := newObject(w, path, v)
	if v.Size > int64(most) {
		return nil, "", asPathError(ctx, "read", path, final(syscall.EFBIG, "it has more than %d bytes", most))
	}
	content = make([]byte, v.Size)
	if _, err := f.ReadAt(ctx, content, 0); err != nil && err != io.EOF {
		return nil, "", asPathError(ctx, "read", path, err)
	}
	return content, w.tagOf(header), nil
}

// Delete removes an object. It is no error if there is none.
func Delete(ctx context.Context, path string) error {
	w, err := writerOf(path)
	if err != nil {
		return err
	}
	err = persist(ctx, func() (bool, error) { return false, remove(ctx, w, path, nil) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return asPathError(ctx, "remove", path, err)
}

// remove sends a request to remove an object, or an upload of it.
func remove(ctx context.Context, s server, path string, query url.Values) error {
	return exchange(ctx, s, request{method: http.MethodDelete, path: path, query: query}, nil, http.StatusNoContent,
		http.StatusOK, http.StatusAccepted)
}
