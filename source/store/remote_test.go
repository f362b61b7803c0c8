package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/source"
)

// quick shortens the pauses of retries, and the time without progress.
func quick(t *testing.T) {
	first, longest := firstPause, longestPause
	firstPause, longestPause = time.Millisecond, 4*time.Millisecond
	t.Cleanup(func() {
		CloseIdle()
		firstPause, longestPause = first, longest
	})
}

// impatient makes a request without progress end soon. A busy machine may delay right answers as long.
func impatient(t *testing.T) {
	before := stall
	stall = 50 * time.Millisecond
	t.Cleanup(func() { stall = before })
}

// secret stands for a signature in an address.
const secret = "X-Amz-Signature=5ec7e7"

// content is what the servers of these tests send.
var content = func() []byte {
	b := make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}()

// serve starts a server that sends content. fault, if it is not nil, may answer a request in its place; n is the number
// of the request.
func serve(t *testing.T, fault func(n int, w http.ResponseWriter, r *http.Request) bool) (address string,
	count func() int) {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if k := int(n.Add(1)) - 1; fault != nil && fault(k, w, r) {
			return
		}
		w.Header().Set("Etag", `"one"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/x.parquet?" + secret, func() int { return int(n.Load()) }
}

// readAll opens an address, and reads ranges of it.
func readAll(ctx context.Context, address string) error {
	f, err := Open(ctx, address, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Version().Size != int64(len(content)) {
		return fmt.Errorf("%d bytes", f.Version().Size)
	}
	for _, r := range [][2]int{{0, 4}, {1000, 900_000}, {len(content) - 8, len(content)}, {2 << 20, len(content)}} {
		got := make([]byte, r[1]-r[0])
		if n, err := f.ReadAt(ctx, got, int64(r[0])); err != nil || n != len(got) {
			return err
		}
		if !bytes.Equal(got, content[r[0]:r[1]]) {
			return fmt.Errorf("wrong bytes of range %v", r)
		}
	}
	return nil
}

// cut sends some bytes of a range, and closes the connection.
func cut(bytes int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		var from, to int
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
		c, out, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		fmt.Fprintf(out, "HTTP/1.1 206 Partial Content\r\nEtag: \"one\"\r\nContent-Length: %d\r\n"+
			"Content-Range: bytes %d-%d/%d\r\n\r\n", to+1-from, from, to, len(content))
		_, _ = out.Write(content[from:min(from+bytes, to+1)])
		out.Flush()
		c.Close()
	}
}

// ranged sends a range with headers that a test changes.
func ranged(change func(h http.Header, from, to int) []byte) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		var from, to int
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
		h := w.Header()
		h.Set("Etag", `"one"`)
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(content)))
		body := change(h, from, to+1)
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(body)
	}
}

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no "+secret, code) }
}

// faults are answers that may come once. The read continues after them.
var faults = map[string]func(http.ResponseWriter, *http.Request){
	"429": status(429), "500": status(500), "502": status(502), "503": status(503), "504": status(504),
	"cut at once": cut(0), "cut": cut(300 << 10), "cut late": cut(899_000 - 1),
	"no answer": func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	},
	"no progress": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"no HTTP": func(w http.ResponseWriter, _ *http.Request) {
		c, out, _ := w.(http.Hijacker).Hijack()
		fmt.Fprintf(out, "%s\r\n\r\n", secret)
		out.Flush()
		c.Close()
	},
	"another range": ranged(func(h http.Header, from, to int) []byte {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+1, to, len(content)))
		return content[from+1 : to]
	}),
	"a longer range": ranged(func(h http.Header, from, to int) []byte {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content), len(content)+1))
		return content[from:to]
	}),
	"no range": ranged(func(h http.Header, from, to int) []byte {
		h.Del("Content-Range")
		return content[from:to]
	}),
	"a wrong length": ranged(func(_ http.Header, from, to int) []byte {
		return append([]byte{1}, content[from:to]...)
	}),
	"a shorter range": ranged(func(h http.Header, from, to int) []byte {
		half := from + max((to-from)/2, 1)
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, half-1, len(content)))
		return content[from:half]
	}),
}

func TestReadsContinueAfterFaults(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	quick(t)
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			if name == "no progress" {
				impatient(t)
			}
			address, count := serve(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
				if n%3 == 0 {
					return false
				}
				fault(w, r)
				return true
			})
			require.NoError(t, readAll(t.Context(), address))
			require.Greater(t, count(), 5)
			require.Less(t, count(), 40)
		})
	}
}

// TestABodyThatBreaksIsContinuedWhereItBroke counts the bytes that are asked for.
func TestABodyThatBreaksIsContinuedWhereItBroke(t *testing.T) {
	quick(t)
	var asked []string
	address, _ := serve(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
		asked = append(asked, r.Header.Get("Range")+" "+r.Header.Get("If-Match"))
		if n > 0 {
			cut(100_000)(w, r)
		}
		return n > 0
	})
	f, err := Open(t.Context(), address, nil)
	require.NoError(t, err)
	got := make([]byte, 1_000_000) // ten bodies, more than may break without progress
	_, err = f.ReadAt(t.Context(), got, 500)
	require.NoError(t, err)
	require.Equal(t, content[500:1_000_500], got)
	require.Len(t, asked, 11)
	require.Equal(t, `bytes=100500-1000499 "one"`, asked[2])
}

// hostile are answers that come each time, and parts of the error that they must make.
var hostile = map[string]struct {
	answer func(http.ResponseWriter, *http.Request)
	want   string
}{
	"503":        {status(503), "503 Service Unavailable (after 8 tries)"},
	"404":        {status(404), "404 Not Found: check the address"},
	"403":        {status(403), "whether a signed one has expired"},
	"401":        {status(401), "it asks for a right"},
	"400":        {status(400), "400 Bad Request"},
	"no HTTP":    {faults["no HTTP"], "what arrived is not HTTP (after 8 tries)"},
	"no body":    {cut(0), "the connection broke before all bytes had arrived (after 8 tries)"},
	"stalls":     {faults["no progress"], noProgress},
	"no range":   {faults["no range"], "another range than the one that was asked for (after 8 tries)"},
	"more range": {faults["a longer range"], "another"},
	"redirects": {func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/again?"+secret, http.StatusFound)
	}, "redirects more than 5 times"},
	"a bad redirect": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://[::"+secret)
		w.WriteHeader(http.StatusFound)
	}, "the connection broke, or what arrived is not HTTP"},
	"all bytes, without ranges": {func(w http.ResponseWriter, _ *http.Request) {
		for { // an endless body
			if _, err := w.Write(content); err != nil {
				return
			}
		}
	}, "does not send parts of files"},
	"a header without end": {func(w http.ResponseWriter, _ *http.Request) {
		c, out, _ := w.(http.Hijacker).Hijack()
		fmt.Fprint(out, "HTTP/1.1 206 Partial Content\r\n")
		for i := range 1 << 14 {
			if _, err := fmt.Fprintf(out, "X-%d: %s\r\n", i, strings.Repeat(secret, 100)); err != nil {
				break
			}
		}
		c.Close()
	}, "the connection broke"},
	"an encoding": {ranged(func(h http.Header, from, to int) []byte {
		h.Set("Content-Encoding", "gzip")
		return content[from:to]
	}), "encoded bytes"},
	"drops of a body": {func(w http.ResponseWriter, r *http.Request) {
		var at, end int
		ranged(func(_ http.Header, from, to int) []byte {
			at, end = from, to
			return nil
		})(w, r)
		for ; r.Context().Err() == nil; at++ {
			_, _ = w.Write(content[min(at, end):min(at+1, end)])
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}, noProgress},
}

const noProgress = "there was no progress for"

func TestHostileAnswersAreErrors(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	quick(t)
	for _, stalls := range []bool{false, true} {
		t.Run(fmt.Sprint("stalls ", stalls), func(t *testing.T) {
			if stalls {
				impatient(t)
			}
			for name, c := range hostile {
				if strings.HasPrefix(c.want, noProgress) != stalls {
					continue
				}
				for _, from := range []int{0, 1} { // the first request finds the object, and the second reads
					t.Run(fmt.Sprint(name, from), func(t *testing.T) {
						t.Parallel()
						address, _ := serve(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
							if n >= from {
								c.answer(w, r)
							}
							return n >= from
						})
						err := readAll(t.Context(), address)
						require.Error(t, err)
						if from == 1 || name != "more range" {
							assert.ErrorContains(t, err, c.want)
						}
						assert.NotContains(t, err.Error(), "5ec7e7")
					})
				}
			}
		})
	}
}

func TestAnObjectThatChangesIsAnError(t *testing.T) {
	quick(t)
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"its ETag in an answer": ranged(func(h http.Header, from, to int) []byte {
			h.Set("Etag", `"two"`)
			return content[from:to]
		}),
		"its size": ranged(func(h http.Header, from, to int) []byte {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(content)+1))
			return content[from:to]
		}),
		"a condition": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPreconditionFailed) },
		"shorter":     status(http.StatusRequestedRangeNotSatisfiable),
	} {
		address, _ := serve(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n > 1 {
				answer(w, r)
			}
			return n > 1
		})
		err := readAll(t.Context(), address)
		require.ErrorIs(t, err, source.ErrChanged, name)
		require.NotContains(t, err.Error(), "5ec7e7")
	}
}

// TestWithoutAnETagTheTimeCounts also has an ETag that is weak, which If-Match does not compare.
func TestWithoutAnETagTheTimeCounts(t *testing.T) {
	quick(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, etag := range []string{"", `W/"one"`} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if etag != "" {
				w.Header().Set("Etag", etag)
			}
			http.ServeContent(w, r, "", at, bytes.NewReader(content))
		}))
		require.NoError(t, readAll(t.Context(), s.URL))
		f, err := Open(t.Context(), s.URL, nil)
		require.NoError(t, err)
		at = at.Add(time.Second)
		_, err = f.ReadAt(t.Context(), make([]byte, 10), 0)
		require.ErrorIs(t, err, source.ErrChanged)
		s.Close()
	}
}

func TestCancellingEndsReadsAtOnce(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	t.Cleanup(CloseIdle)
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"no progress": faults["no progress"], "a pause": status(503)} {
		address, _ := serve(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n > 0 {
				answer(w, r)
			}
			return n > 0
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(io.ErrClosedPipe) })
		begin := time.Now()
		require.ErrorIs(t, readAll(ctx, address), io.ErrClosedPipe, name)
		require.Less(t, time.Since(begin), 2*time.Second, name)
	}
}

func TestEmptyAndShortObjects(t *testing.T) {
	for _, size := range []int{0, 1, 2} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(content[:size]))
		}))
		f, err := Open(t.Context(), s.URL, nil)
		require.NoError(t, err)
		require.EqualValues(t, size, f.Version().Size)
		b := make([]byte, 10)
		n, err := f.ReadAt(t.Context(), b, 0)
		require.Equal(t, io.EOF, err)
		require.Equal(t, content[:size], b[:n])
		s.Close()
	}
}

func TestPathsForPeople(t *testing.T) {
	for path, want := range map[string]string{
		"a/b?c.parquet": "a/b?c.parquet", "s3://b/k?[a]*": "s3://b/k?[a]*", "https://h/x": "https://h/x",
		"https://user:word@h/x": "https://h/x",
	} {
		assert.Equal(t, want, Display(path))
	}
	a, b := Display("https://u:w@h/x?"+secret), Display("https://h/x?"+secret+"1")
	assert.Regexp(t, `^https://h/x\?\(hidden, [0-9a-f]{8}\)$`, a)
	assert.NotEqual(t, a, b)
	for path, want := range map[string]string{
		"ftp://h/x": "ftp:// are not supported", "file:///x": "without file://", "https:///x": "not an address",
		"https://u:w@h/x": "a password", "https://h/*.parquet": "name each file", "s3://b": "the name of a bucket",
		"s3://bucket/a\nb": "control character", "http://h/%zz": "not an address",
	} {
		err := Check(path)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), ":w@")
		_, err = Stat(t.Context(), path)
		var named *fs.PathError
		require.ErrorAs(t, err, &named)
	}
}
