// Package storetest has object stores for tests: one that serves a folder, the program versitygw, those of Azure and
// Google in memory, and a proxy in front of any that cuts, delays, refuses and lies.
package storetest

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source/store"
)

// Bucket is the name of the only bucket.
const Bucket = "lake"

// The credentials of the stores.
const (
	Key    = "AKIATESTKEY"
	Secret = "5ec7e7testtest"
)

// Use sets the environment variables that say how to reach a store, and no others of AWS.
func Use(t testing.TB, endpoint string) {
	t.Helper()
	unset(t, "AWS_")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	t.Setenv("AWS_ACCESS_KEY_ID", Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", Secret)
	t.Cleanup(store.CloseIdle)
}

// unset empties the environment variables that begin with a prefix, and sets an empty home directory.
func unset(t testing.TB, prefix string) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, prefix) {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
}

// Folder serves the files of a folder: as objects of Bucket to requests with credentials, by pages of three, and as
// those of a web server below /web/.
func Folder(t testing.TB, dir string) (endpoint string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, web := strings.CutPrefix(r.URL.Path, "/web/")
		if !web {
			var ok bool
			key, ok = strings.CutPrefix(r.URL.Path, "/"+Bucket+"/")
			switch {
			case !strings.Contains(r.Header.Get("Authorization"), "Credential="+Key+"/"):
				refuse(w, http.StatusForbidden, "AccessDenied")
				return
			case !ok:
				refuse(w, http.StatusNotFound, "NoSuchBucket")
				return
			case r.URL.Query().Get("list-type") == "2":
				list(w, dir, r.URL.Query())
				return
			}
		}
		path := filepath.Join(dir, filepath.FromSlash(key))
		file, err := os.Open(path)
		if err != nil {
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil || info.IsDir() {
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("Etag", etag(info))
		http.ServeContent(w, r, "", time.Time{}, file)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func etag(info fs.FileInfo) string {
	return fmt.Sprintf(`"%x-%x"`, info.Size(), info.ModTime().UnixNano())
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

type object struct {
	Key, ETag string
	Size      int64
}

// list answers a request for a page of a listing.
func list(w http.ResponseWriter, dir string, query url.Values) {
	var all []object
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := os.Stat(path)
		if key := filepath.ToSlash(rel); err == nil && strings.HasPrefix(key, query.Get("prefix")) {
			all = append(all, object{url.QueryEscape(key), etag(info), info.Size()})
		}
		return nil
	})
	slices.SortFunc(all, func(a, b object) int { return strings.Compare(a.Key, b.Key) })
	from, _ := strconv.Atoi(query.Get("continuation-token"))
	to := min(from+3, len(all))
	b, _ := xml.Marshal(struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []object
	}{EncodingType: "url", IsTruncated: to < len(all), NextContinuationToken: strconv.Itoa(to), Contents: all[from:to]})
	_, _ = w.Write(b)
}

// Gateway starts versitygw, with a bucket that has the files of a folder as objects. It skips the test if the program
// is not there, which the variable GSTREAM_VERSITYGW may name.
func Gateway(t testing.TB, dir string) (endpoint string) {
	t.Helper()
	program := os.Getenv("GSTREAM_VERSITYGW")
	if program == "" {
		var err error
		if program, err = exec.LookPath("versitygw"); err != nil {
			t.Skip("versitygw is not installed: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0")
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	data := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(data, Bucket), 0o777))
	var output bytes.Buffer
	cmd := exec.Command(program, "posix", data)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+Key, "ROOT_SECRET_KEY="+Secret, "VGW_PORT="+address)
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 200 {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	endpoint = "http://" + address
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		return put(endpoint, filepath.ToSlash(rel), content)
	}), "%s", &output)
	return endpoint
}

// put writes an object.
func put(endpoint, key string, content []byte) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	u.Path = "/" + Bucket + "/" + key
	req, err := http.NewRequest(http.MethodPut, u.String(), bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	answer, err := http.DefaultClient.Do(signer.SignV4(*req, Key, Secret, "", "us-east-1"))
	if err != nil {
		return err
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("PUT %s: %s: %s", key, answer.Status, b)
	}
	return nil
}

// Fault is what a proxy does to an answer.
type Fault int

// The faults.
const (
	None     Fault = iota
	Cut            // breaks the connection in the middle of the body
	Refuse         // 503
	Delay          // by some milliseconds
	Lie            // announces another length
	NewETag        // another version
	Unranged       // no Content-Range
	Drop           // breaks the connection before the store has the request
)

// faultKey is the key of the fault in the context of a request.
type faultKey struct{}

// Quick shortens the pauses before requests are sent again.
func Quick(t testing.TB) { t.Cleanup(store.SetPauses(time.Millisecond, 8*time.Millisecond)) }

// Proxy starts a proxy in front of a store. fault says what it does to a request.
func Proxy(t testing.TB, endpoint string, fault func(r *http.Request) Fault) string {
	to, err := url.Parse(endpoint)
	require.NoError(t, err)
	back := &http.Transport{}
	proxy := &httputil.ReverseProxy{
		Transport: back,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // which is signed
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(a *http.Response) error {
			switch a.Request.Context().Value(faultKey{}) {
			case Cut:
				a.Body = &cutBody{a.Body, max(a.ContentLength/2, 0)}
			case Refuse:
				a.Body.Close()
				a.Body, a.ContentLength, a.Header = http.NoBody, 0, http.Header{}
				a.StatusCode, a.Status = http.StatusServiceUnavailable, "503 Service Unavailable"
			case Delay:
				time.Sleep(5 * time.Millisecond)
			case Lie:
				b, _ := io.ReadAll(io.LimitReader(a.Body, 100))
				a.Body.Close()
				a.Body, a.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
				a.Header.Set("Content-Length", strconv.Itoa(len(b)))
			case NewETag:
				a.Header.Set("Etag", `"another"`)
			case Unranged:
				a.Header.Del("Content-Range")
			}
			return nil
		},
		ErrorLog: quiet,
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := fault(r)
		if f == Drop {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), faultKey{}, f)))
	}))
	s.Config.ErrorLog = quiet
	s.Start()
	t.Cleanup(func() {
		s.Close()
		back.CloseIdleConnections()
	})
	return s.URL
}

// Random returns faults at random for a share of the requests, of those given.
func Random(seed uint64, share float64, of ...Fault) func(*http.Request) Fault {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 1))
	return func(*http.Request) Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() >= share {
			return None
		}
		return of[r.IntN(len(of))]
	}
}

// quiet takes the messages of servers about broken connections.
var quiet = log.New(io.Discard, "", 0)

// cutBody is a body that breaks.
type cutBody struct {
	io.ReadCloser
	left int64
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
