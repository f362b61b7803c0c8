package store

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// googleEnvironment sets the variables that say how to reach Google Cloud Storage, and no others.
func googleEnvironment(t *testing.T) {
	quick(t)
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GCE_METADATA_HOST",
		"STORAGE_EMULATOR_HOST"} {
		t.Setenv(name, "")
	}
}

func TestObjectsOfGoogleAreListedAndRead(t *testing.T) {
	googleEnvironment(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "":
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/lake/" && r.URL.Query().Get("continuation-token") == "":
			fmt.Fprintf(w, `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x`+
				`</NextContinuationToken><Contents><Key>a/é 1</Key><ETag>"one"</ETag><Size>%d</Size></Contents>`+
				`</ListBucketResult>`, len(content))
		case r.URL.Path == "/lake/":
			fmt.Fprintf(w, `<ListBucketResult><Contents><Key>a/2</Key><ETag>"one"</ETag><Size>%d</Size></Contents>`+
				`</ListBucketResult>`, len(content))
		case r.URL.Path == "/lake/a/é 1" && r.URL.EscapedPath() == "/lake/a/%C3%A9%201":
			w.Header().Set("Etag", `"one"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		case r.URL.Path == "/lake/secret":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(s.URL, "http://"))
	var paths []string
	require.NoError(t, List(t.Context(), "gs://lake/a/", func(path string, v Version) error {
		paths = append(paths, path)
		require.EqualValues(t, len(content), v.Size)
		return nil
	}))
	require.Equal(t, []string{"gs://lake/a/é 1", "gs://lake/a/2"}, paths)
	f, err := Open(t.Context(), paths[0], nil)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 5)
	_, err = f.ReadAt(t.Context(), b, 3)
	require.NoError(t, err)
	require.Equal(t, content[3:8], b)
	_, err = Stat(t.Context(), "gs://lake/none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Stat(t.Context(), "gs://lake/secret")
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "GOOGLE_APPLICATION_CREDENTIALS")
	require.ErrorContains(t, Check("gs://l/x"), "not an address as in gs://bucket")
	require.NoError(t, CheckOutput("gs://lake/x"))
	require.ErrorContains(t, CheckOutput("gs://lake"), "as in gs://bucket/folder/file.parquet")
}

// TestWritesToGoogleHaveATokenAndNoHeadersOfS3 refuses all requests but that for a token.
func TestWritesToGoogleHaveATokenAndNoHeadersOfS3(t *testing.T) {
	googleEnvironment(t)
	t.Setenv("GCE_METADATA_HOST", "machine")
	googleIdentity.until = time.Time{}
	var got *http.Request
	before := s3Client.Transport
	defer func() { s3Client.Transport = before }()
	s3Client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		answer := &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody}
		if r.URL.Host == "machine" {
			answer.StatusCode = http.StatusOK
			answer.Body = io.NopCloser(strings.NewReader(`{"access_token": "` + password + `", "expires_in": 3600}`))
		} else {
			got = r
		}
		return answer, nil
	})
	for _, write := range []func() error{
		func() error {
			_, err := Put(t.Context(), "gs://lake/x", content, Condition{Absent: true})
			require.Equal(t, "0", got.Header.Get("X-Goog-If-Generation-Match"))
			return err
		},
		func() error { return Delete(t.Context(), "gs://lake/x") },
		func() error {
			_, err := Begin(t.Context(), "gs://lake/x", nil)
			require.Len(t, got.Header.Get("X-Goog-Meta-Gstream-Upload"), 2*tokenBytes)
			return err
		},
	} {
		err := write()
		require.ErrorIs(t, err, fs.ErrPermission)
		require.NotContains(t, err.Error(), password)
		require.Equal(t, "Bearer "+password, got.Header.Get("Authorization"))
		for name := range got.Header {
			require.NotContains(t, name, "X-Amz")
		}
	}
}

func TestTokensOfGoogleAreThoseOfTheCredentials(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	status, asked := http.StatusOK, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		who := ""
		switch {
		case r.Method == http.MethodGet && r.Header.Get("Metadata-Flavor") == "Google":
			who = "machine"
		case r.FormValue("grant_type") == "refresh_token" && r.FormValue("refresh_token") == password:
			who = "user"
		default:
			parts := strings.Split(r.FormValue("assertion"), ".")
			if len(parts) != 3 {
				break
			}
			hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
			signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
			claim, _ := base64.RawURLEncoding.DecodeString(parts[1])
			var c struct{ Iss, Scope string }
			if rsa.VerifyPKCS1v15(&private.PublicKey, crypto.SHA256, hash[:], signature) == nil &&
				json.Unmarshal(claim, &c) == nil && strings.HasSuffix(c.Scope, "read_write") {
				who = c.Iss
			}
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"access_token": "token-of-%s", "expires_in": 3600}`, who)
	}))
	t.Cleanup(s.Close)
	googleEnvironment(t)
	file := filepath.Join(t.TempDir(), "key.json")
	write := func(account map[string]string) {
		text, err := json.Marshal(account)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	token := func() (string, error) {
		googleIdentity.until = time.Time{}
		return googleToken(context.Background())
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	service := map[string]string{"type": "service_account", "client_email": "robot", "token_uri": s.URL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
	write(service)
	got, err := token()
	require.NoError(t, err)
	require.Equal(t, "token-of-robot", got)
	_, err = googleToken(context.Background())
	require.NoError(t, err)
	require.Equal(t, 1, asked, "a token is kept")
	write(map[string]string{"type": "authorized_user", "refresh_token": password, "token_uri": s.URL})
	got, err = token()
	require.NoError(t, err)
	require.Equal(t, "token-of-user", got)
	status = http.StatusUnauthorized
	_, err = token()
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NotContains(t, err.Error(), password)
	require.NotContains(t, err.Error(), "token-of")
	for _, wrong := range []map[string]string{{"type": "external_account"}, {"type": "service_account",
		"private_key": password, "token_uri": s.URL}} {
		write(wrong)
		_, err = token()
		require.ErrorIs(t, err, fs.ErrPermission)
		require.NotContains(t, err.Error(), password)
	}
	status = http.StatusOK
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(s.URL, "http://"))
	got, err = token()
	require.NoError(t, err)
	require.Equal(t, "token-of-machine", got)
}
