package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/source"
)

// Bounds of requests. Tests shorten the times.
var (
	// tries bounds how often a request is sent that brings nothing.
	tries = 8
	// firstPause is the first pause before a request is sent again. It doubles up to longestPause.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// stall is the time in which a request must bring leastProgress bytes, or end.
	stall = 30 * time.Second
	// connecting bounds the time to connect.
	connecting = 10 * time.Second
)

// SetPauses sets the first and the longest pause before a request is sent again, for tests. It returns a function that
// restores them.
func SetPauses(first, longest time.Duration) (restore func()) {
	before, most := firstPause, longestPause
	firstPause, longestPause = first, longest
	return func() { firstPause, longestPause = before, most }
}

const (
	leastProgress = 64 << 10
	// partBytes is the size from which a read is split into requests that run at the same time.
	partBytes = 8 << 20
	// tailBytes is the number of bytes at the end of an object that the first read of them fetches. Most footers are
	// shorter.
	tailBytes = 64 << 10
	// maxAnswer bounds the body of an answer that is not a range: a page of a listing.
	maxAnswer = 8 << 20
	// maxErrorBody bounds the part of the body of an error that is looked at.
	maxErrorBody = 64 << 10
	maxRedirects = 5
	// maxRequests bounds the requests of the process that run at the same time. One brings some 80 MB/s from S3.
	maxRequests = 64
)

// requests has an item for each request that is running.
var requests = make(chan struct{}, maxRequests)

// transport speaks HTTP 1.1, with a connection for each request that is running: one connection of HTTP 2 for all of
// them would be slower.
var transport = &http.Transport{
	Proxy:                  http.ProxyFromEnvironment,
	DialContext:            (&net.Dialer{Timeout: connecting, KeepAlive: 15 * time.Second}).DialContext,
	TLSHandshakeTimeout:    connecting,
	ExpectContinueTimeout:  time.Second,
	MaxIdleConnsPerHost:    maxRequests,
	IdleConnTimeout:        30 * time.Second,
	MaxResponseHeaderBytes: 256 << 10,
	DisableCompression:     true, // ranges are of the bytes as they are stored
	Protocols:              http1(),
}

func http1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// CloseIdle closes the connections that no request uses. They would be closed 30 seconds after their last request.
func CloseIdle() { transport.CloseIdleConnections() }

// server is what stores of objects differ in.
type server interface {
	// prepare makes a request for an object of a path, with all headers but those of signatures.
	prepare(ctx context.Context, method, path string, query url.Values) (*http.Request, error)
	// send signs a request, and sends it.
	send(*http.Request) (*http.Response, error)
	// advise says what to do about an answer with an error, "" if it does not know.
	advise(req *http.Request, status int, code string) string
}

// failure is a request that has failed.
type failure struct {
	msg   string
	kind  error         // fs.ErrNotExist, fs.ErrPermission, or syscall.EIO for others
	again bool          // it may succeed later
	after time.Duration // the least pause before that
}

func (f *failure) Error() string { return f.msg }
func (f *failure) Unwrap() error { return f.kind }

// mayPass returns a failure after which the request may be sent again.
func mayPass(format string, args ...any) *failure {
	return &failure{msg: fmt.Sprintf(format, args...), kind: syscall.EIO, again: true}
}

// final returns a failure that stays.
func final(kind error, format string, args ...any) *failure {
	return &failure{msg: fmt.Sprintf(format, args...), kind: kind}
}

// persist calls do until it succeeds, fails for good, or has failed too often in a row without progress.
func persist(ctx context.Context, do func() (progress bool, err error)) error {
	for failed, pause := 0, firstPause; ; {
		progress, err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var f *failure
		if !errors.As(err, &f) || !f.again {
			return err
		}
		if progress {
			failed, pause = 0, firstPause
		}
		if failed++; failed == tries {
			return final(f.kind, "%s (after %d tries)", f.msg, tries)
		}
		wait := max(pause/2+rand.N(pause/2+1), min(f.after, longestPause))
		slog.Debug("a request to a store is sent again", "why", f.msg, "failed", failed, "pause", wait)
		pause = min(2*pause, longestPause)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// errStalled is the cause of a request that was ended because it made no progress.
var errStalled = errors.New("stalled")

// answer is a response whose body ends with an error if it makes no progress. Its request counts as running until it
// is closed.
type answer struct {
	*http.Response
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	got    int // bytes since the timer was set
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.Body.Read(p)
	if a.got += n; a.got >= leastProgress {
		a.got = 0
		a.timer.Reset(stall)
	}
	if err != nil && err != io.EOF {
		err = broken(a.ctx, err)
	}
	return n, err
}

func (a *answer) close() {
	a.timer.Stop()
	if a.Response != nil {
		a.Body.Close()
	}
	a.cancel(nil)
	<-requests
}

// broken returns the failure of a connection. It does not have the address, which may be a key.
func broken(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return mayPass("there was no progress for %v", stall)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var wrong *url.Error
	if errors.As(err, &wrong) {
		err = wrong.Err
	}
	var f *failure
	var dns *net.DNSError
	var op *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return mayPass("the connection broke before all bytes had arrived")
	case errors.As(err, &dns) && dns.IsNotFound:
		return final(syscall.EIO, "there is no host %s; check the address", dns.Name)
	case errors.As(err, &op) && op.Op == "dial" && op.Addr != nil:
		return mayPass("cannot connect to %s: %v", op.Addr, op.Err)
	case errors.As(err, &op):
		return mayPass("the connection broke: %v", op.Err)
	case isCertificate(err):
		return final(syscall.EIO, "the certificate of the server is not trusted: %v; check the address, or add the "+
			"authority to the system's certificates (SSL_CERT_FILE names a file of them)", err)
	case errors.As(err, &record):
		return final(syscall.EIO, "the server does not speak TLS; check whether its address begins with http://")
	}
	// Other texts may have a part of an answer, or the address that it redirects to.
	return mayPass("the connection broke, or what arrived is not HTTP")
}

// request is a request for an object of a path.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         []byte        // nil for none; its hash is in the header
	stall        time.Duration // the most time without progress; 0 for the usual one
}

// sent is the body of a request, which counts as progress.
type sent struct {
	*bytes.Reader
	progress func()
	got      int
}

func (b *sent) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p[:min(len(p), leastProgress)])
	if b.got += n; b.got >= leastProgress {
		b.got = 0
		b.progress()
	}
	return n, err
}

func (b *sent) Close() error { return nil }

// do sends a request once, and returns its answer, whose status is one of those that are wanted. The caller closes it.
func do(s server, ctx context.Context, r request, wanted ...int) (*answer, error) {
	select {
	case requests <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	a := &answer{}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(max(stall, r.stall), func() { a.cancel(errStalled) })
	req, err := s.prepare(a.ctx, r.method, r.path, r.query)
	if err == nil {
		for k, v := range r.header {
			req.Header[k] = v
		}
		if r.body != nil {
			req.ContentLength = int64(len(r.body))
			req.Body = &sent{Reader: bytes.NewReader(r.body), progress: func() { a.timer.Reset(max(stall, r.stall)) }}
			if len(r.body) == 0 {
				req.Body = http.NoBody
			}
		}
		a.Response, err = s.send(req)
	}
	if err != nil {
		err = broken(a.ctx, err)
		a.close()
		return nil, err
	}
	for _, status := range wanted {
		if a.StatusCode == status {
			return a, nil
		}
	}
	defer a.close()
	return nil, failureOf(s, req, a)
}

var (
	codeText   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.]{0,63}$`)
	regionText = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// failureOf returns the failure of an answer with an error.
func failureOf(s server, req *http.Request, a *answer) error {
	var body struct{ Code string }
	b, err := io.ReadAll(io.LimitReader(a, maxErrorBody))
	if err != nil || xml.Unmarshal(b, &body) != nil || !codeText.MatchString(body.Code) {
		body.Code = ""
	}
	if code := a.Header.Get("X-Ms-Error-Code"); body.Code == "" && codeText.MatchString(code) {
		body.Code = code
	}
	status := a.StatusCode
	if a.ctx.Err() != nil && !errors.Is(context.Cause(a.ctx), errStalled) {
		return context.Cause(a.ctx)
	}
	f := final(syscall.EIO, "the server answers %s", strings.TrimSpace(fmt.Sprintf("%d %s", status,
		http.StatusText(status))))
	if body.Code != "" {
		f.msg += " (" + body.Code + ")"
	}
	switch status {
	case http.StatusNotFound, http.StatusGone:
		f.kind = fs.ErrNotExist
	case http.StatusUnauthorized, http.StatusForbidden:
		f.kind = fs.ErrPermission
	case http.StatusPreconditionFailed:
		f.kind = fs.ErrExist
	case http.StatusConflict:
		if body.Code == "BlobAlreadyExists" {
			f.kind = fs.ErrExist
		}
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.again = true
		if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && seconds > 0 {
			f.after = time.Duration(min(seconds, 60)) * time.Second
		}
	}
	if advice := s.advise(req, status, body.Code); advice != "" {
		f.msg += ": " + advice
	}
	return f
}

// isStrong reports whether an ETag may be used in If-Match.
func isStrong(etag string) bool {
	return strings.HasPrefix(etag, `"`) && len(etag) > 2 && len(etag) < 1024
}

// versionIn returns the version in an answer, for an object of a size.
func versionIn(h http.Header, size int64) Version {
	v := Version{Size: size}
	if etag := h.Get("Etag"); isStrong(etag) {
		v.ETag = etag
	} else if t, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		v.Modified = t.UTC()
	}
	return v
}

// contentRange is the value of a header such as "bytes 0-99/1000".
var contentRange = regexp.MustCompile(`^bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})$`)

// rangeIn returns the range [from, to) of an answer, and the size of the object.
func rangeIn(h http.Header) (from, to, size int64, ok bool) {
	m := contentRange.FindStringSubmatch(h.Get("Content-Range"))
	if m == nil {
		return 0, 0, 0, false
	}
	from, _ = strconv.ParseInt(m[1], 10, 64)
	to, _ = strconv.ParseInt(m[2], 10, 64)
	size, _ = strconv.ParseInt(m[3], 10, 64)
	to++
	return from, to, size, from < to && to <= size
}

// object is a version of an object.
type object struct {
	server
	path    string
	version Version

	tail chan []byte // the last bytes, once they were read
}

func newObject(s server, path string, v Version) *object {
	o := &object{server: s, path: path, version: v, tail: make(chan []byte, 1)}
	o.tail <- nil
	return o
}

func (o *object) Version() Version { return o.version }
func (o *object) Close() error     { return nil }

// ReadAt implements File. The first read near the end of the object reads all of its last bytes, since reads of the
// parts of a footer follow.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	end, short := off+int64(len(p)), error(nil)
	if end > o.version.Size {
		end, short = o.version.Size, io.EOF
		p = p[:max(end-off, 0)]
	}
	if len(p) == 0 {
		return 0, short
	}
	start := max(o.version.Size-tailBytes, 0)
	if off >= start {
		tail, err := o.lastBytes(ctx, start)
		if err != nil {
			return 0, err
		}
		return copy(p, tail[off-start:]), short
	}
	var parts errgroup.Group
	n := max(len(p)/partBytes, 1)
	read, each := make([]int, n), (len(p)+n-1)/n
	for i := range n {
		part := p[i*each : min((i+1)*each, len(p))]
		parts.Go(func() (err error) {
			read[i], err = o.read(ctx, part, off+int64(i*each))
			return err
		})
	}
	if err := parts.Wait(); err != nil {
		return 0, err
	}
	return len(p), short
}

// lastBytes returns the bytes from start on.
func (o *object) lastBytes(ctx context.Context, start int64) (tail []byte, err error) {
	select {
	case tail = <-o.tail:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { o.tail <- tail }()
	if tail == nil {
		b := make([]byte, o.version.Size-start)
		if _, err = o.read(ctx, b, start); err != nil {
			return nil, err
		}
		tail = b
	}
	return tail, nil
}

// read fills p with the bytes at an offset, by as many requests as it takes.
func (o *object) read(ctx context.Context, p []byte, off int64) (n int, err error) {
	err = persist(ctx, func() (bool, error) {
		k, err := o.readOnce(ctx, p[n:], off+int64(n))
		n += k
		return k >= leastProgress, err
	})
	return n, err
}

// readOnce fills p with the bytes at an offset. n is the number of the bytes that have arrived.
func (o *object) readOnce(ctx context.Context, p []byte, off int64) (n int, err error) {
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)}}
	if o.version.ETag != "" {
		header["If-Match"] = []string{o.version.ETag}
	}
	a, err := do(o.server, ctx, request{method: http.MethodGet, path: o.path, header: header},
		http.StatusPartialContent, http.StatusOK, http.StatusPreconditionFailed,
		http.StatusRequestedRangeNotSatisfiable)
	if err != nil {
		return 0, err
	}
	defer a.close()
	from, to, size, ranged := rangeIn(a.Header)
	now := versionIn(a.Header, size)
	switch {
	case a.StatusCode == http.StatusPreconditionFailed, a.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		now := o.version
		now.ETag = "another"
		return 0, o.version.Changed(now)
	case a.StatusCode == http.StatusOK && a.ContentLength == o.version.Size && off == 0 &&
		int64(len(p)) == o.version.Size:
		now.Size, from, to = o.version.Size, 0, o.version.Size // all bytes, as they were asked for
	case a.StatusCode == http.StatusOK:
		return 0, final(syscall.EIO, "%s", noRanges)
	case !ranged || from != off || to > off+int64(len(p)):
		return 0, mayPass("the server answers with another range than the one that was asked for")
	}
	if now != o.version {
		return 0, o.version.Changed(now)
	}
	if a.ContentLength >= 0 && a.ContentLength != to-from {
		return 0, mayPass("the server announces %d bytes for a range of %d", a.ContentLength, to-from)
	}
	if e := a.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return 0, final(syscall.EIO, "the server sends encoded bytes (Content-Encoding), whose ranges have no meaning")
	}
	whole := p
	p = p[:to-from]
	for n < len(p) {
		k, err := a.Read(p[n:])
		if n += k; err == io.EOF && n < len(p) {
			return n, mayPass("the body of the answer ended after %d of %d bytes", n, len(p))
		} else if err != nil && err != io.EOF {
			return n, err
		}
	}
	if len(p) < len(whole) {
		return n, mayPass("the server answers with a shorter range than the one that was asked for")
	}
	// A connection is used again once the end of the body was read.
	if k, _ := a.Read(make([]byte, 1)); k > 0 {
		return 0, mayPass("the body of the answer has more bytes than its range")
	}
	return n, nil
}

const noRanges = "the server does not send parts of files (it ignores Range), and Parquet files are read by parts; " +
	"download the file, or serve it from a server with ranges, such as nginx, Apache or an object store"

// find returns the current version of an object, and the header of the answer. It asks for the first byte, because
// addresses that are signed for GET do not answer HEAD, and because answers to HEAD do not say why they fail.
func find(ctx context.Context, s server, path string) (v Version, header http.Header, err error) {
	err = persist(ctx, func() (_ bool, err error) {
		v, header, err = findOnce(ctx, s, path)
		return false, err
	})
	return v, header, asPathError(ctx, "open", path, err)
}

func findOnce(ctx context.Context, s server, path string) (Version, http.Header, error) {
	a, err := do(s, ctx, request{method: http.MethodGet, path: path, header: http.Header{"Range": {"bytes=0-0"}}},
		http.StatusPartialContent, http.StatusOK, http.StatusRequestedRangeNotSatisfiable)
	if err != nil {
		return Version{}, nil, err
	}
	defer a.close()
	from, to, size, ok := rangeIn(a.Header)
	switch {
	case a.StatusCode == http.StatusRequestedRangeNotSatisfiable,
		a.StatusCode == http.StatusOK && a.ContentLength == 0,
		a.ContentLength == 0 && strings.HasSuffix(a.Header.Get("Content-Range"), "/0"):
		return versionIn(a.Header, 0), a.Header, nil // an empty file has no first byte
	case a.StatusCode == http.StatusOK && a.ContentLength == 1:
		return versionIn(a.Header, 1), a.Header, nil
	case a.StatusCode == http.StatusOK:
		return Version{}, nil, final(syscall.EIO, "%s", noRanges)
	case !ok || from != 0 || to != 1:
		return Version{}, nil, mayPass("the server answers with another range than the one that was asked for")
	}
	return versionIn(a.Header, size), a.Header, nil
}

// stat returns the current version of an object.
func stat(ctx context.Context, s server, path string) (Version, error) {
	v, _, err := find(ctx, s, path)
	return v, err
}

// open opens a version of an object, or the current one for nil.
func open(ctx context.Context, s server, path string, v *Version) (File, error) {
	if v == nil {
		now, _, err := find(ctx, s, path)
		if err != nil {
			return nil, err
		}
		v = &now
	}
	return newObject(s, path, *v), nil
}

// asPathError adds the operation and the path to an error, unless the context has ended or the error has them.
func asPathError(ctx context.Context, op, path string, err error) error {
	var named *fs.PathError
	if err == nil || ctx.Err() != nil || errors.As(err, &named) || errors.Is(err, source.ErrChanged) {
		return err
	}
	return &fs.PathError{Op: op, Path: Display(path), Err: err}
}
