package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// MinPart is the least size of a part of an upload, except for the last one.
	MinPart = 5 << 20
	// MaxParts bounds the parts of an upload.
	MaxParts = 10_000
	// assembling is the time that a store may take to make an object of its parts.
	assembling = 10 * time.Minute
	// tokenHeader has the number of an upload, by which its object is recognized.
	tokenHeader = "X-Amz-Meta-Gstream-Upload"
)

// CheckOutput returns an error if no object with such a path can be written. It opens nothing.
func CheckOutput(path string) error {
	switch s := Scheme(path); s {
	case "s3":
		if err := Check(path); err != nil {
			return err
		}
		if p, _ := splitBucket(path); p.key == "" {
			return errors.New("it names only a bucket; name an object or a folder in it, as in " +
				"s3://bucket/folder/file.parquet")
		}
		return nil
	case "http", "https":
		return errors.New("a file cannot be written to a web server; name a local file, or an object in a store that " +
			"speaks S3 (s3://)")
	case "gs":
		return errors.New("objects of Google Cloud Storage can be read, and not be written yet; write to a " +
			"local file, and copy it")
	default:
		return Check(path)
	}
}

// Upload writes an object by parts. The object appears as a whole, at Complete. Methods may be called by several
// goroutines, Complete after all calls of Part.
type Upload struct {
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
	var token [16]byte
	if _, err := rand.Read(token[:]); err != nil {
		return nil, err
	}
	u := &Upload{path: path, token: hex.EncodeToString(token[:])}
	var answer struct{ UploadId string }
	times := 0
	err := persist(ctx, func() (bool, error) {
		times++
		return false, exchange(ctx, request{method: http.MethodPost, path: path, query: url.Values{"uploads": {""}},
			header: http.Header{tokenHeader: {u.token}}}, &answer, http.StatusOK)
	})
	if err == nil && (answer.UploadId == "" || len(answer.UploadId) > maxName) {
		err = final(syscall.EIO, "the server begins an upload without a number")
	}
	u.id = answer.UploadId
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
		if p.Path == u.path && !others[p.Number] && (!begun || p.Number != u.id) {
			lost = append(lost, p)
		}
		return nil
	})
	for _, p := range lost {
		_ = p.Abort(ctx)
	}
}

// exchange sends a request once, and reads the answer, XML, into a value; nil for none.
func exchange(ctx context.Context, r request, into any, wanted ...int) error {
	a, err := do(s3{}, ctx, r, wanted...)
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
		return mayPass("the answer cannot be read: it is not XML as in S3; check AWS_ENDPOINT_URL")
	}
	return nil
}

// hashed returns the header that has the hash of a body.
func hashed(body []byte) http.Header {
	h := sha256.Sum256(body)
	return http.Header{"X-Amz-Content-Sha256": {hex.EncodeToString(h[:])}}
}

// Part sends a part, number 0, 1 … of the object. All but the last one have MinPart bytes or more. The caller must not
// change data afterwards.
func (u *Upload) Part(ctx context.Context, number int, data []byte) error {
	if number >= MaxParts {
		return asPathError(ctx, "write", u.path, final(syscall.EFBIG, "an object has at most %d parts", MaxParts))
	}
	header := hashed(data)
	query := url.Values{"partNumber": {strconv.Itoa(number + 1)}, "uploadId": {u.id}}
	var etag string
	err := persist(ctx, func() (bool, error) {
		a, err := do(s3{}, ctx, request{method: http.MethodPut, path: u.path, query: query, header: header,
			body: data}, http.StatusOK)
		if err != nil {
			return false, err
		}
		defer a.close()
		_, err = io.Copy(io.Discard, io.LimitReader(a, maxErrorBody))
		if etag = a.Header.Get("Etag"); etag == "" || len(etag) > maxName {
			return false, final(syscall.EIO, "the server takes a part without an ETag")
		}
		return false, err
	})
	if err != nil {
		return asPathError(ctx, "write", u.path, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.parts) <= number {
		u.parts = append(u.parts, uploaded{})
	}
	u.parts[number] = uploaded{PartNumber: number + 1, ETag: etag}
	return nil
}

// Complete makes the object of its parts. Unless it replaces an object, it fails with fs.ErrExist if there is one. If
// the answers do not say whether the object was made, Complete looks for it.
func (u *Upload) Complete(ctx context.Context, replace bool) error {
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Parts   []uploaded
	}{Parts: u.parts})
	if err != nil {
		return err
	}
	header := hashed(body)
	if !replace {
		header["If-None-Match"] = []string{"*"}
	}
	first := true
	err = persist(ctx, func() (bool, error) {
		if !first && u.made(ctx) {
			return true, nil
		}
		first = false
		return false, exchange(ctx, request{method: http.MethodPost, path: u.path,
			query: url.Values{"uploadId": {u.id}}, header: header, body: body, stall: assembling}, nil, http.StatusOK)
	})
	if err != nil && u.made(ctx) {
		return nil
	}
	return asPathError(ctx, "write", u.path, err)
}

// made reports whether the object is that of this upload.
func (u *Upload) made(ctx context.Context) bool {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer end()
	var token string
	err := persist(ctx, func() (bool, error) {
		a, err := do(s3{}, ctx, request{method: http.MethodHead, path: u.path}, http.StatusOK)
		if err == nil {
			token = a.Header.Get(tokenHeader)
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
	u := &Upload{path: s.Path, id: s.Number, token: s.Token, parts: s.Parts}
	err := u.Complete(ctx, replace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
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
	return Pending{Path: u.path, Number: u.id}.Abort(ctx)
}

// Pending is an upload that has not ended.
type Pending struct {
	Path, Number string
	Began        time.Time
}

// Abort ends the upload, and removes its parts. It is no error if the upload has ended.
func (p Pending) Abort(ctx context.Context) error {
	err := persist(ctx, func() (bool, error) {
		return false, exchange(ctx, request{method: http.MethodDelete, path: p.Path,
			query: url.Values{"uploadId": {p.Number}}}, nil, http.StatusNoContent, http.StatusOK)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return asPathError(ctx, "abort the upload of", p.Path, err)
}

// Uploads calls f with the uploads of all objects whose path begins with a prefix, in any order.
func Uploads(ctx context.Context, prefix string, f func(Pending) error) error {
	p, err := splitBucket(prefix)
	if err != nil {
		return err
	}
	bucket := "s3://" + p.bucket + "/"
	query := url.Values{"uploads": {""}, "prefix": {p.key}, "encoding-type": {"url"}}
	for n := 0; ; {
		var page struct {
			IsTruncated                       bool
			NextKeyMarker, NextUploadIdMarker string
			EncodingType                      string
			Upload                            []struct{ Key, UploadId, Initiated string }
		}
		err := persist(ctx, func() (bool, error) {
			page.Upload, page.IsTruncated = nil, false
			return false, pageOf(ctx, s3{}, bucket, query, &page)
		})
		if err != nil {
			return asPathError(ctx, "list the uploads of", prefix, err)
		}
		for _, u := range page.Upload {
			if page.EncodingType == "url" {
				if key, err := url.QueryUnescape(u.Key); err == nil {
					u.Key = key
				}
			}
			began, _ := time.Parse(time.RFC3339, u.Initiated)
			if n++; !strings.HasPrefix(u.Key, p.key) || len(u.UploadId) > maxName || n > MaxListed {
				return asPathError(ctx, "list the uploads of", prefix, final(syscall.EIO,
					"the server lists what was not asked for, or too much"))
			}
			if err := f(Pending{bucket + u.Key, u.UploadId, began}); err != nil {
				return err
			}
		}
		if !page.IsTruncated || len(page.Upload) == 0 {
			return nil
		}
		query.Set("key-marker", page.NextKeyMarker)
		query.Set("upload-id-marker", page.NextUploadIdMarker)
	}
}

// Condition says when Put writes an object.
type Condition struct {
	Absent bool   // only if there is none of the name
	ETag   string // only if the object has this ETag; "" for any
}

// Put writes a small object in one request, and returns its ETag. It fails with fs.ErrExist if the condition does not
// hold. If the answers do not say whether the object was written, Put compares its content.
func Put(ctx context.Context, path string, content []byte, c Condition) (etag string, err error) {
	header := hashed(content)
	header["Content-Type"] = []string{"application/json"}
	if c.Absent {
		header["If-None-Match"] = []string{"*"}
	} else if c.ETag != "" {
		header["If-Match"] = []string{c.ETag}
	}
	times := 0
	err = persist(ctx, func() (bool, error) {
		times++
		a, err := do(s3{}, ctx, request{method: http.MethodPut, path: path, header: header, body: content},
			http.StatusOK)
		if err != nil {
			return false, err
		}
		defer a.close()
		etag = a.Header.Get("Etag")
		_, err = io.Copy(io.Discard, io.LimitReader(a, maxErrorBody))
		return false, err
	})
	if err != nil && (times > 1 || ctx.Err() != nil) {
		ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
		defer end()
		if now, tag, readErr := Get(ctx, path, len(content)); readErr == nil && bytes.Equal(now, content) {
			return tag, nil
		}
	}
	return etag, asPathError(ctx, "write", path, err)
}

// Get reads a small object of at most a number of bytes, and returns its ETag.
func Get(ctx context.Context, path string, most int) (content []byte, etag string, err error) {
	f, err := Open(ctx, path, nil)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	v := f.Version()
	if v.Size > int64(most) {
		return nil, "", asPathError(ctx, "read", path, final(syscall.EFBIG, "it has more than %d bytes", most))
	}
	content = make([]byte, v.Size)
	if _, err := f.ReadAt(ctx, content, 0); err != nil && err != io.EOF {
		return nil, "", asPathError(ctx, "read", path, err)
	}
	return content, v.ETag, nil
}

// Delete removes an object. It is no error if there is none.
func Delete(ctx context.Context, path string) error {
	err := persist(ctx, func() (bool, error) {
		return false, exchange(ctx, request{method: http.MethodDelete, path: path}, nil, http.StatusNoContent,
			http.StatusOK)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return asPathError(ctx, "remove", path, err)
}
