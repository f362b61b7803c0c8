package store

import (
	"context"
	"encoding/base64"
	"fmt"
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

// azureEnvironment sets the variables that say how to reach Azure Blob Storage, and no others.
func azureEnvironment(t *testing.T) {
	quick(t)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("PATH", "")
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "AZURE_") || strings.HasPrefix(name, "IDENTITY_") {
			t.Setenv(name, "")
		}
	}
	azureIdentity.until = time.Time{}
}

func TestTokensOfAzureAreThoseOfTheCredentials(t *testing.T) {
	var asked []string
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, expires := "", "3600"
		switch {
		case r.FormValue("client_secret") == password && r.URL.Path == "/tenant/oauth2/v2.0/token":
			who = "principal"
		case r.FormValue("client_assertion") == "assertion":
			who = "workload"
		case r.Header.Get("X-Identity-Header") == password:
			who, expires = "service", `"3600"`
		case r.Header.Get("Metadata") == "true" && r.FormValue("resource") == azureResource:
			who = "machine"
		}
		asked = append(asked, who)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"access_token": "token-of-%s", "expires_in": %s}`, who, expires)
	}))
	t.Cleanup(s.Close)
	azureEnvironment(t)
	check := func(want string) {
		t.Helper()
		azureIdentity.until = time.Time{}
		got, err := azureToken(t.Context())
		require.NoError(t, err)
		require.Equal(t, "token-of-"+want, got)
	}
	t.Setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", s.URL)
	check("machine")
	t.Setenv("IDENTITY_ENDPOINT", s.URL)
	t.Setenv("IDENTITY_HEADER", password)
	check("service")
	assertion := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(assertion, []byte("assertion\n"), 0o600))
	t.Setenv("AZURE_AUTHORITY_HOST", s.URL)
	t.Setenv("AZURE_TENANT_ID", "tenant")
	t.Setenv("AZURE_CLIENT_ID", "client")
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", assertion)
	check("workload")
	t.Setenv("AZURE_CLIENT_SECRET", password)
	check("principal")
	n := len(asked)
	_, err := azureToken(t.Context())
	require.NoError(t, err)
	require.Len(t, asked, n, "a token is kept")
	azureIdentity.until, status = time.Time{}, http.StatusUnauthorized
	_, err = azureToken(t.Context())
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NotContains(t, err.Error(), password)
}

func TestRequestsToAzureHaveCredentials(t *testing.T) {
	azureEnvironment(t)
	var got *http.Request
	before := s3Client.Transport
	defer func() { s3Client.Transport = before }()
	s3Client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if got = r; r.URL.Host == "machine" {
			return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
		}
		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Header: http.Header{
			"X-Ms-Error-Code": {"AuthorizationFailure"}}}, nil
	})
	t.Setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://machine")
	stat := func(want string) {
		t.Helper()
		_, err := Stat(t.Context(), "az://lake/a b.csv")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "5ec7e7")
	}
	stat("set AZURE_STORAGE_ACCOUNT")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "lakes")
	stat("the request was anonymous")
	require.Equal(t, "https://lakes.blob.core.windows.net/lake/a%20b.csv", got.URL.String())
	require.Equal(t, azureVersion, got.Header.Get("X-Ms-Version"))
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2021&sig=5ec7e7%2B")
	stat("403 Forbidden (AuthorizationFailure): the credentials are not accepted, or do not permit")
	require.Equal(t, "sig=5ec7e7%2B&sv=2021", got.URL.RawQuery)
	t.Setenv("AZURE_STORAGE_KEY", "5ec7e7!")
	stat("not in base64")
	t.Setenv("AZURE_STORAGE_KEY", base64.StdEncoding.EncodeToString([]byte(password)))
	stat("not accepted")
	require.Contains(t, got.Header.Get("Authorization"), "SharedKey lakes:")
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=other;AccountKey=NWVjN2U3;EndpointSuffix=core.china.cn")
	stat("not accepted")
	require.Equal(t, "other.blob.core.china.cn", got.URL.Host)
	for _, wrong := range []string{"BlobEndpoint=ftp://x", "BlobEndpoint=https://u:5ec7e7@x",
		"BlobEndpoint=https://x?sig=5ec7e7"} {
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", wrong)
		stat("the endpoint of the storage account is not an address")
	}
	require.ErrorContains(t, Check("az://l/x"), "not an address as in az://bucket")
}

// TestASignatureOfAzureIsThatOfTheSDK has a request that the SDK of Azure has signed.
func TestASignatureOfAzureIsThatOfTheSDK(t *testing.T) {
	req, err := http.NewRequest(http.MethodPut, "https://acc.blob.core.windows.net/lake/a%20b/%C3%A9.csv?"+
		"comp=block&blockid=QUE%3D", strings.NewReader("hello"))
	require.NoError(t, err)
	req.Header = http.Header{"Content-Md5": {"MDEyMzQ1Njc4OWFiY2RlZg=="}, "Content-Type": {"application/octet-stream"},
		"X-Ms-Version": {"2026-12-06"}, "X-Ms-Date": {"Sat, 28 Nov 2026 23:04:15 GMT"}}
	s := azureSettings{account: "acc", key: []byte(password)}
	require.Equal(t, "AyWZUqarpc8hTYI6HUlpVL4aXu2UywnS4zBI6bWq4mk=", s.sign(req))
}

// TestACancelledCompletionIsSettled has a request to make an object that is under way when the context ends. It must
// not make the object later, when it was taken for aborted.
func TestACancelledCompletionIsSettled(t *testing.T) {
	azureEnvironment(t)
	t.Setenv("AZURE_STORAGE_ACCOUNT", "lakes")
	t.Setenv("AZURE_STORAGE_KEY", "NWVjN2U3")
	ctx, cancel := context.WithCancel(t.Context())
	requests := 0
	before := s3Client.Transport
	defer func() { s3Client.Transport = before }()
	s3Client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodHead { // it is not made yet
			return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
		}
		if requests++; requests == 1 {
			cancel()
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		require.Equal(t, "*", r.Header.Get("If-None-Match"))
		return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
	})
	u, err := Begin(ctx, "az://lake/x", nil)
	require.NoError(t, err)
	require.NoError(t, u.Complete(ctx, false))
	require.Equal(t, 2, requests)
	require.ErrorIs(t, u.Complete(ctx, false), context.Canceled)
	require.Equal(t, 2, requests, "nothing is sent once the context has ended")
}
