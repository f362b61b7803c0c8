package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
)

// key and password are credentials that no error may have.
const key, password = "AKIAEXAMPLE", "5ec7e7password"

// environment sets the variables that say how to reach S3, and no others.
func environment(t *testing.T, endpoint string) {
	quick(t)
	for _, name := range []string{"AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION",
		"AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", password)
}

// bucket starts a store with one bucket, which lists keys, some on a page, and has content under each of them.
func bucket(t *testing.T, keys []string, page int, requests *[]*http.Request) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests = append(*requests, r)
		if r.URL.Path != "/bucket/" {
			w.Header().Set("Etag", `"one"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
			return
		}
		q := r.URL.Query()
		from, _ := strconv.Atoi(q.Get("continuation-token"))
		to := min(from+page, len(keys))
		fmt.Fprint(w, `<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType>`)
		for _, k := range keys[from:to] {
			if strings.HasPrefix(k, q.Get("prefix")) {
				fmt.Fprintf(w, `<Contents><Key>%s</Key><ETag>&quot;one&quot;</ETag><Size>%d</Size></Contents>`,
					strings.ReplaceAll(strings.ReplaceAll(k, " ", "+"), "é", "%C3%A9"), len(content))
			}
		}
		fmt.Fprintf(w, "<IsTruncated>%v</IsTruncated><NextContinuationToken>%d</NextContinuationToken>"+
			"</ListBucketResult>", to < len(keys), to)
	}))
	t.Cleanup(s.Close)
	environment(t, s.URL)
}

func TestObjectsAreListedByPages(t *testing.T) {
	var requests []*http.Request
	keys := []string{"a/1.parquet", "a/2 é.parquet", "a/3/x.parquet", "b/4.parquet"}
	bucket(t, keys, 2, &requests)
	found := map[string]Version{}
	require.NoError(t, List(t.Context(), "s3://bucket/a/", func(path string, v Version) error {
		found[path] = v
		return nil
	}))
	v := Version{Size: int64(len(content)), ETag: `"one"`}
	require.Equal(t, map[string]Version{"s3://bucket/a/1.parquet": v, "s3://bucket/a/2 é.parquet": v,
		"s3://bucket/a/3/x.parquet": v}, found)
	require.NoError(t, readAll(t.Context(), "s3://bucket/a/2 é.parquet"))
	last := requests[len(requests)-1]
	require.Equal(t, "/bucket/a/2%20%C3%A9.parquet", last.URL.EscapedPath())
	require.Equal(t, `"one"`, last.Header.Get("If-Match"))
	require.Contains(t, last.Header.Get("Authorization"), "Credential="+key)
}

// TestAnswersOfAStoreAreBounded checks that hostile listings and errors of the store are errors, without credentials.
func TestAnswersOfAStoreAreBounded(t *testing.T) {
	xml := func(format string, args ...any) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, format, args...) }
	}
	refuse := func(status int, code string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s %s</Message></Error>", code, password,
				r.Header.Get("Authorization"))
		}
	}
	const more = "<a><IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken></a>"
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"no XML":            {xml("<a"), "it is not the XML of an object store"},
		"no end":            {xml(more, "x"), "no end"},
		"no token":          {xml("<a><IsTruncated>true</IsTruncated></a>"), "no end"},
		"other key":         {xml("<a><Contents><Key>x</Key></Contents></a>"), "not asked for"},
		"less than nothing": {xml("<a><Contents><Key>a/x</Key><Size>-1</Size></Contents></a>"), "not asked for"},
		"a long key": {xml("<a><Contents><Key>a/%s</Key></Contents></a>",
			strings.Repeat("x/", 1<<12)), "too long"},
		"an endless page": {func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(bytes.Repeat([]byte("<a>"), 1000)); err != nil {
					return
				}
			}
		}, "more than 8388608 bytes"},
		"endless pages": {func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("continuation-token"))
			fmt.Fprintf(w, more, strconv.Itoa(n+1))
		}, "no end"},
		"no bucket":    {refuse(404, "NoSuchBucket"), "404 Not Found (NoSuchBucket): there is no such bucket at"},
		"forbidden":    {refuse(403, "AccessDenied"), "403 Forbidden (AccessDenied): the credentials are not accepted"},
		"a wrong key":  {refuse(403, "SignatureDoesNotMatch"), "check AWS_ACCESS_KEY_ID"},
		"a wrong time": {refuse(403, "RequestTimeTooSkewed"), "the clock of this machine"},
		"a region":     {refuse(301, "PermanentRedirect"), "check AWS_REGION and AWS_ENDPOINT_URL"},
		"slow down":    {refuse(503, "SlowDown"), "503 Service Unavailable (SlowDown) (after 8 tries)"},
		"a bad code":   {refuse(400, password+"\x1b[2J"), "400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(c.answer))
			defer s.Close()
			environment(t, s.URL)
			err := List(t.Context(), "s3://bucket/a/", func(string, Version) error { return nil })
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "s3://bucket/a/")
			require.NotContains(t, err.Error(), "5ec7e7")
			require.NotContains(t, err.Error(), key)
		})
	}
}

// TestCredentialsComeFromWhereTheSDKsLook has a store that refuses all others.
func TestCredentialsComeFromWhereTheSDKsLook(t *testing.T) {
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got = r.Header.Get("Authorization"); got == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Etag", `"one"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer s.Close()
	stat := func() error {
		_, err := Stat(t.Context(), "s3://bucket/x.parquet")
		return err
	}
	environment(t, "")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	aws := filepath.Join(os.Getenv("HOME"), ".aws")
	require.NoError(t, os.Mkdir(aws, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(aws, "config"), fmt.Appendf(nil,
		"[default]\nendpoint_url = %s\n[profile lake]\nregion = eu-central-1\nendpoint_url = %s\n", s.URL, s.URL),
		0o666))
	require.ErrorContains(t, stat(), "no credentials were found, so the request was anonymous")
	require.NoError(t, os.WriteFile(filepath.Join(aws, "credentials"), fmt.Appendf(nil,
		"[lake]\naws_access_key_id = %s\naws_secret_access_key = %s\n", key, password), 0o666))
	t.Setenv("AWS_PROFILE", "lake")
	require.NoError(t, stat())
	require.Contains(t, got, key+"/"+time.Now().UTC().Format("20060102")+"/eu-central-1/s3/")
	t.Setenv("AWS_PROFILE", "other")
	t.Setenv("AWS_ENDPOINT_URL", s.URL)
	err := stat()
	require.ErrorContains(t, err, "the profile that AWS_PROFILE names has no credentials")
	require.NotContains(t, err.Error(), key)
	t.Setenv("AWS_ACCESS_KEY_ID", "FROMENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	t.Setenv("AWS_REGION", "us-west-2")
	require.NoError(t, stat())
	require.Contains(t, got, "FROMENV/")
	require.Contains(t, got, "/us-west-2/s3/")
	for name, value := range map[string]string{"AWS_REGION": "a/" + password,
		"AWS_ENDPOINT_URL": "http://u:" + password + "@h"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			err := stat()
			require.ErrorContains(t, err, name+" is not")
			require.NotContains(t, err.Error(), password)
		})
	}
}

// TestRequestsGoToTheRegionOfTheBucket has Amazon's addresses: the host has the bucket and the region.
func TestRequestsGoToTheRegionOfTheBucket(t *testing.T) {
	environment(t, "")
	t.Setenv("AWS_REGION", "us-east-1")
	var hosts []string
	before := s3Client.Transport
	defer func() { s3Client.Transport = before }()
	s3Client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		hosts = append(hosts, r.URL.Host+r.URL.Path)
		h := http.Header{"X-Amz-Bucket-Region": {"eu-west-3"}, "Content-Range": {"bytes 0-0/7"}}
		status := http.StatusMovedPermanently
		if strings.Contains(r.URL.Host, "eu-west-3") {
			status = http.StatusPartialContent
		}
		return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}, nil
	})
	for _, name := range []string{"s3://my-bucket/a/b.parquet", "s3://my.bucket/a/b.parquet"} {
		v, err := Stat(t.Context(), name)
		require.NoError(t, err)
		require.EqualValues(t, 7, v.Size)
	}
	require.Equal(t, []string{"my-bucket.s3.us-east-1.amazonaws.com/a/b.parquet",
		"my-bucket.s3.eu-west-3.amazonaws.com/a/b.parquet", "s3.us-east-1.amazonaws.com/my.bucket/a/b.parquet",
		"s3.eu-west-3.amazonaws.com/my.bucket/a/b.parquet"}, hosts)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnObjectIsReadInTheVersionThatWasListed(t *testing.T) {
	var requests []*http.Request
	bucket(t, nil, 1, &requests)
	f, err := Open(context.Background(), "s3://bucket/x.parquet", &Version{Size: int64(len(content)), ETag: `"zero"`})
	require.NoError(t, err)
	require.Empty(t, requests)
	_, err = f.ReadAt(t.Context(), make([]byte, 9), 0)
	require.ErrorIs(t, err, source.ErrChanged)
}

// TestACancelledBeginIsNotLost has a request to begin an upload that is under way when the context ends. The store
// takes it, so its number must arrive, or nobody would abort the upload.
func TestACancelledBeginIsNotLost(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	uploads := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.URL.Query().Has("uploads"):
			cancel()
			time.Sleep(20 * time.Millisecond)
			uploads["7"] = true
			_, _ = io.WriteString(w, "<R><UploadId>7</UploadId></R>")
		case r.Method == http.MethodDelete:
			delete(uploads, r.URL.Query().Get("uploadId"))
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = io.WriteString(w, "<R></R>")
		}
	}))
	defer s.Close()
	environment(t, s.URL)
	u, err := Begin(ctx, "s3://lake/x", nil)
	require.NoError(t, err)
	require.Len(t, uploads, 1)
	require.ErrorIs(t, u.Part(ctx, 0, []byte("rows")), context.Canceled)
	require.NoError(t, u.Abort(t.Context()))
	require.Empty(t, uploads)
}
