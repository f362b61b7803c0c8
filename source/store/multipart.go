package store

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Uploads by parts in the form of S3, which Google Cloud Storage has too. The header of a request has the hash of its
// body in the form of the store.

// beginMultipart announces an upload.
func beginMultipart(ctx context.Context, w writer, u *Upload) (string, error) {
	var answer struct{ UploadId string }
	err := exchange(ctx, w, request{method: http.MethodPost, path: w.at(u), query: url.Values{"uploads": {""}},
		header: http.Header{w.tokenHeader(): {u.token}}}, &answer, http.StatusOK)
	return answer.UploadId, err
}

// sendPart sends a part.
func sendPart(ctx context.Context, w writer, u *Upload, number int, data []byte, header http.Header) (string, error) {
	return send(ctx, w, request{method: http.MethodPut, path: w.at(u), header: header, body: data, query: url.Values{
		"partNumber": {strconv.Itoa(number + 1)}, "uploadId": {u.id}}}, etagOf)
}

func etagOf(h http.Header) string { return h.Get("Etag") }

// send sends a request with a body, and returns what a function finds in the header of the answer.
func send(ctx context.Context, s server, r request, find func(http.Header) string) (string, error) {
	a, err := do(s, ctx, r, http.StatusOK, http.StatusCreated)
	if err != nil {
		return "", err
	}
	defer a.close()
	_, err = io.Copy(io.Discard, io.LimitReader(a, maxErrorBody))
	return find(a.Header), err
}

// joinParts makes an object of the parts of an upload.
func joinParts(ctx context.Context, w writer, u *Upload, header func(body []byte) http.Header) error {
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Parts   []uploaded
	}{Parts: u.parts})
	if err != nil {
		return err
	}
	return exchange(ctx, w, request{method: http.MethodPost, path: w.at(u), query: url.Values{"uploadId": {u.id}},
		header: header(body), body: body, stall: assembling}, nil, http.StatusOK)
}

// makeEmpty makes the empty object of an upload, which has no parts, and ends the upload.
func makeEmpty(ctx context.Context, w writer, u *Upload, header http.Header) error {
	header[w.tokenHeader()] = []string{u.token}
	_, err := send(ctx, w, request{method: http.MethodPut, path: u.path, header: header, body: []byte{}}, etagOf)
	if err == nil {
		_ = w.abort(ctx, Pending{Path: u.path, Number: u.id, at: w.at(u)})
	}
	return err
}

// abortMultipart ends an upload.
func abortMultipart(ctx context.Context, w writer, p Pending) error {
	return remove(ctx, w, p.at, url.Values{"uploadId": {p.Number}})
}

// listMultipart lists uploads by pages.
func listMultipart(ctx context.Context, w writer, prefix string, f func(Pending) error) error {
	p, err := splitBucket(prefix)
	if err != nil {
		return err
	}
	bucket := Scheme(prefix) + "://" + p.bucket + "/"
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
			return false, pageOf(ctx, w, bucket, query, &page)
		})
		if err != nil {
			return err
		}
		for _, u := range page.Upload {
			if page.EncodingType == "url" {
				if key, err := url.QueryUnescape(u.Key); err == nil {
					u.Key = key
				}
			}
			began, _ := time.Parse(time.RFC3339, u.Initiated)
			if n++; !strings.HasPrefix(u.Key, p.key) || len(u.UploadId) > maxName || n > MaxListed {
				return final(syscall.EIO, "the server lists what was not asked for, or too much")
			}
			if err := f(Pending{bucket + u.Key, u.UploadId, began, bucket + u.Key}); err != nil {
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

// The uploads of S3.

func (s3) tokenHeader() string        { return "X-Amz-Meta-Gstream-Upload" }
func (s3) at(u *Upload) string        { return u.path }
func (s3) tagOf(h http.Header) string { return etagOf(h) }

func (s s3) begin(ctx context.Context, u *Upload) (string, error) { return beginMultipart(ctx, s, u) }

func (s s3) part(ctx context.Context, u *Upload, number int, data []byte) (string, error) {
	return sendPart(ctx, s, u, number, data, hashed(data))
}

func (s s3) complete(ctx context.Context, u *Upload, replace bool) error {
	header := func(body []byte) http.Header {
		return ifMatch(hashed(body), Condition{Absent: !replace})
	}
	if len(u.parts) == 0 {
		return makeEmpty(ctx, s, u, header(nil))
	}
	return joinParts(ctx, s, u, header)
}

func (s s3) abort(ctx context.Context, p Pending) error { return abortMultipart(ctx, s, p) }

func (s s3) uploads(ctx context.Context, prefix string, f func(Pending) error) error {
	return listMultipart(ctx, s, prefix, f)
}

func (s s3) put(ctx context.Context, path string, content []byte, c Condition) (string, error) {
	header := ifMatch(hashed(content), c)
	header["Content-Type"] = []string{manifestType}
	return send(ctx, s, request{method: http.MethodPut, path: path, header: header, body: content}, etagOf)
}

const manifestType = "application/json"

// ifMatch adds a condition to a header, in the form of HTTP.
func ifMatch(h http.Header, c Condition) http.Header {
	if c.Absent {
		h["If-None-Match"] = []string{"*"}
	} else if c.Tag != "" {
		h["If-Match"] = []string{c.Tag}
	}
	return h
}

// The uploads of Google Cloud Storage. An upload by parts has no condition there. So it makes an object of another
// name, of which a second request, with a condition, makes that of the path: a composition of one object, which copies
// no bytes. Objects of such names are not listed.

// googleTemporary is the end of the name of the object that an upload makes.
const googleTemporary = ".gstream-upload"

func (google) tokenHeader() string { return "X-Goog-Meta-Gstream-Upload" }
func (google) at(u *Upload) string { return u.path + "." + u.token + googleTemporary }

// targetOfGoogle returns the path of an upload that makes an object of a name; ok is false if none does.
func targetOfGoogle(at string) (path string, ok bool) {
	path, ok = strings.CutSuffix(at, googleTemporary)
	dot := len(path) - 2*tokenBytes - 1
	if !ok || dot <= 0 || path[dot] != '.' {
		return "", false
	}
	return path[:dot], true
}

// tagOf returns the generation of an object.
func (google) tagOf(h http.Header) string { return h.Get("X-Goog-Generation") }

func (s google) begin(ctx context.Context, u *Upload) (string, error) {
	return beginMultipart(ctx, s, u)
}

func (s google) part(ctx context.Context, u *Upload, number int, data []byte) (string, error) {
	return sendPart(ctx, s, u, number, data, md5Of(data))
}

func (s google) complete(ctx context.Context, u *Upload, replace bool) error {
	condition := Condition{Absent: !replace}
	if len(u.parts) == 0 {
		return makeEmpty(ctx, s, u, ifGeneration(http.Header{}, condition))
	}
	err := joinParts(ctx, s, u, func([]byte) http.Header { return http.Header{} })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // if there is no upload, an earlier try has made the object, or the next request fails
	}
	made, err := splitBucket(s.at(u))
	if err != nil {
		return err
	}
	type component struct{ Name string }
	body, err := xml.Marshal(struct {
		XMLName   xml.Name `xml:"ComposeRequest"`
		Component component
	}{Component: component{made.key}})
	if err != nil {
		return err
	}
	header := ifGeneration(http.Header{}, condition)
	header[s.tokenHeader()] = []string{u.token}
	return exchange(ctx, s, request{method: http.MethodPut, path: u.path, query: url.Values{"compose": {""}},
		header: header, body: body, stall: assembling}, nil, http.StatusOK)
}

func (s google) abort(ctx context.Context, p Pending) error {
	if p.Number != "" {
		if err := abortMultipart(ctx, s, p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return remove(ctx, s, p.at, nil)
}

// uploads lists also the uploads whose object was made.
func (s google) uploads(ctx context.Context, prefix string, f func(Pending) error) error {
	err := listMultipart(ctx, s, prefix, func(p Pending) error {
		target, ok := targetOfGoogle(p.at)
		if !ok {
			target = p.Path
		}
		p.Path = target
		return f(p)
	})
	if err != nil {
		return err
	}
	return listObjects(ctx, s, prefix, func(path string, v Version, modified time.Time) error {
		if target, ok := targetOfGoogle(path); ok {
			return f(Pending{Path: target, Began: modified, at: path})
		}
		return nil
	})
}

func (s google) put(ctx context.Context, path string, content []byte, c Condition) (string, error) {
	header := ifGeneration(md5Of(content), c)
	header["Content-Type"] = []string{manifestType}
	return send(ctx, s, request{method: http.MethodPut, path: path, header: header, body: content}, s.tagOf)
}

// md5Of returns the header that has the hash of a body, which the store compares.
func md5Of(body []byte) http.Header {
	h := md5.Sum(body)
	return http.Header{"Content-Md5": {base64.StdEncoding.EncodeToString(h[:])}}
}

// ifGeneration adds a condition to a header.
func ifGeneration(h http.Header, c Condition) http.Header {
	if c.Absent {
		c.Tag = "0"
	}
	if c.Tag != "" {
		h["X-Goog-If-Generation-Match"] = []string{c.Tag}
	}
	return h
}
