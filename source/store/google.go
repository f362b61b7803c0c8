package store

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// google is Google Cloud Storage, by its XML interface, whose reads and listings are those of S3. Requests have a token
// of OAuth.
type google struct{}

const googleHost = "https://storage.googleapis.com"

func (google) prepare(ctx context.Context, method, path string, query url.Values) (*http.Request, error) {
	p, err := splitBucket(path)
	if err != nil {
		return nil, final(syscall.EINVAL, "%v", err)
	}
	host := cmp.Or(os.Getenv("STORAGE_EMULATOR_HOST"), googleHost)
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	base, err := url.Parse(host)
	if err != nil || base.Host == "" || base.User != nil || base.Scheme != "http" && base.Scheme != "https" {
		return nil, final(syscall.EINVAL, "STORAGE_EMULATOR_HOST is not an address as in localhost:9023")
	}
	at := url.URL{Scheme: base.Scheme, Host: base.Host, Path: "/" + p.bucket + "/" + p.key}
	at.RawPath, at.RawQuery = s3utils.EncodePath(at.Path), s3utils.QueryEncode(query)
	req, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return nil, final(syscall.EINVAL, "not an address as in gs://bucket/folder/file.parquet")
	}
	req.URL.RawPath = at.RawPath
	return req, nil
}

func (google) send(req *http.Request) (*http.Response, error) {
	if os.Getenv("STORAGE_EMULATOR_HOST") == "" {
		token, err := googleToken(req.Context())
		if err != nil {
			return nil, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	return s3Client.Do(req)
}

func (google) advise(req *http.Request, status int, code string) string {
	switch {
	case code == "NoSuchBucket":
		return "there is no such bucket; check its name"
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		if req.Header.Get("Authorization") == "" {
			return "no credentials were found, so the request was anonymous; set GOOGLE_APPLICATION_CREDENTIALS, or " +
				"run gcloud auth application-default login"
		}
		return "the credentials are not accepted, or do not permit to do this with the object; check " +
			"GOOGLE_APPLICATION_CREDENTIALS and the roles of the account (Storage Object Viewer to read, Storage " +
			"Object User to write)"
	case status == http.StatusNotFound:
		return "there is no such object or bucket"
	}
	return ""
}

func (g google) stat(ctx context.Context, path string) (Version, error) { return stat(ctx, g, path) }

func (g google) open(ctx context.Context, path string, v *Version) (File, error) {
	return open(ctx, g, path, v)
}

func (g google) list(ctx context.Context, prefix string, f func(path string, v Version) error) error {
	return listObjects(ctx, g, prefix, func(path string, v Version, _ time.Time) error {
		if _, temporary := targetOfGoogle(path); temporary {
			return nil
		}
		return f(path, v)
	})
}

// googleAccount is a file of credentials.
type googleAccount struct {
	Type         string `json:"type"`
	ClientEmail  string `json:"client_email"` // of a service account
	PrivateKey   string `json:"private_key"`
	KeyID        string `json:"private_key_id"`
	TokenURI     string `json:"token_uri"`
	ClientID     string `json:"client_id"` // of a user
	ClientSecret string `json:"client_secret"`
	RefreshToken string `json:"refresh_token"`
}

const (
	googleTokens = "https://oauth2.googleapis.com/token"
	googleScope  = "https://www.googleapis.com/auth/devstorage.read_write"
	// metadataWait bounds the search for the server of metadata, which only machines of Google have.
	metadataWait = 2 * time.Second
	// early is the time before its end at which a token is renewed.
	early = time.Minute
)

// tokens keeps a token of OAuth for the process.
type tokens struct {
	sync.Mutex
	token string
	until time.Time
	from  string // the environment that was asked
}

// get returns the token that was got from the variables of an environment, or else a new one, which lives for a time.
func (t *tokens) get(names []string, fetch func() (string, time.Duration, error)) (string, error) {
	t.Lock()
	defer t.Unlock()
	var from []string
	for _, name := range append(names, "HOME") {
		from = append(from, os.Getenv(name))
	}
	environment := strings.Join(from, "\x00")
	if environment == t.from && time.Now().Before(t.until) {
		return t.token, nil
	}
	token, lives, err := fetch()
	if err != nil {
		return "", err
	}
	t.token, t.from, t.until = token, environment, time.Now().Add(max(lives-early, time.Second))
	return token, nil
}

var googleIdentity tokens

// googleToken returns a token of the credentials that the SDKs of Google would find: the file that
// GOOGLE_APPLICATION_CREDENTIALS names, that of gcloud auth application-default login, or those of the machine or pod.
// It is "" if there are none. Errors have no part of the credentials.
func googleToken(ctx context.Context) (string, error) {
	return googleIdentity.get([]string{"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GCE_METADATA_HOST"},
		func() (string, time.Duration, error) { return newGoogleToken(ctx) })
}

func newGoogleToken(ctx context.Context) (token string, lives time.Duration, err error) {
	path, given := os.LookupEnv("GOOGLE_APPLICATION_CREDENTIALS")
	if given = given && path != ""; !given {
		folder := os.Getenv("CLOUDSDK_CONFIG")
		if home, err := os.UserHomeDir(); folder == "" && err == nil {
			folder = filepath.Join(home, ".config", "gcloud")
		}
		path = filepath.Join(folder, "application_default_credentials.json")
	}
	text, err := os.ReadFile(path)
	if err != nil && given {
		return "", 0, final(fs.ErrPermission, "the file that GOOGLE_APPLICATION_CREDENTIALS names cannot be read")
	}
	if err != nil {
		return metadataToken(ctx)
	}
	var a googleAccount
	if json.Unmarshal(text, &a) != nil {
		return "", 0, final(fs.ErrPermission, "the file of credentials of Google is not JSON")
	}
	form := url.Values{}
	switch a.Type {
	case "service_account":
		assertion, err := a.assertion(time.Now())
		if err != nil {
			return "", 0, final(fs.ErrPermission, "the file of credentials of Google has no RSA key (private_key)")
		}
		form.Set("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
		form.Set("assertion", assertion)
	case "authorized_user":
		form.Set("grant_type", "refresh_token")
		form.Set("client_id", a.ClientID)
		form.Set("client_secret", a.ClientSecret)
		form.Set("refresh_token", a.RefreshToken)
	default:
		return "", 0, final(fs.ErrPermission, "the file of credentials of Google is of a type that is not supported; "+
			"a service account and gcloud auth application-default login are")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cmp.Or(a.TokenURI, googleTokens),
		strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, final(fs.ErrPermission, "the file of credentials of Google has a token_uri that is no address")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return askToken(req, googleAdvice)
}

// assertion returns the signed claim of a service account.
func (a *googleAccount) assertion(now time.Time) (string, error) {
	block, _ := pem.Decode([]byte(a.PrivateKey))
	if block == nil {
		return "", errors.New("no key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return "", errors.New("no RSA key")
	}
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"alg": "RS256", "typ": "JWT", "kid": a.KeyID}) + "." + part(map[string]any{
		"iss": a.ClientEmail, "scope": googleScope, "aud": cmp.Or(a.TokenURI, googleTokens), "iat": now.Unix(),
		"exp": now.Add(time.Hour).Unix()})
	hash := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

// metadataToken returns the token of the machine or pod, "" if it is none of Google's.
func metadataToken(ctx context.Context) (string, time.Duration, error) {
	host := os.Getenv("GCE_METADATA_HOST")
	ctx, end := context.WithTimeout(ctx, metadataWait)
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/computeMetadata/v1/instance/"+
		"service-accounts/default/token", cmp.Or(host, "metadata.google.internal")), nil)
	if err != nil {
		return "", 0, final(fs.ErrPermission, "GCE_METADATA_HOST is not the name of a host")
	}
	req.Header.Set("Metadata-Flavor", "Google")
	token, lives, err := askToken(req, googleAdvice)
	if err != nil && host == "" {
		return "", anonymousFor + early, nil
	}
	return token, lives, err
}

const googleAdvice = "the credentials of Google give no token; check GOOGLE_APPLICATION_CREDENTIALS, or run gcloud " +
	"auth application-default login again"

// askToken sends a request for a token of OAuth. The answer is not part of an error, which has advice.
func askToken(req *http.Request, advice string) (token string, lives time.Duration, err error) {
	answer, err := s3Client.Do(req)
	if err != nil {
		return "", 0, mayPass("the server of tokens at %s does not answer", req.URL.Host)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
	if err != nil || answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests {
		return "", 0, mayPass("the server of tokens at %s answers with %d", req.URL.Host, answer.StatusCode)
	}
	var got struct {
		Token   string      `json:"access_token"`
		Expires json.Number `json:"expires_in"`
	}
	if answer.StatusCode != http.StatusOK || json.Unmarshal(text, &got) != nil || !isToken(got.Token) {
		return "", 0, final(fs.ErrPermission, "%s (the answer has the status %d)", advice, answer.StatusCode)
	}
	seconds, _ := got.Expires.Int64()
	return got.Token, time.Duration(min(max(seconds, 0), 86400)) * time.Second, nil
}

// isToken reports whether a text can be a token in a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
