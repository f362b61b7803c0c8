package store

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"
	"gopkg.in/ini.v1"
)

// s3 is an object store that speaks S3: Amazon's, or the one that AWS_ENDPOINT_URL names.
type s3 struct{}

var bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{2,254}$`)

// s3Path is a path s3://bucket/key.
type s3Path struct{ bucket, key string }

// splitBucket returns the parts of a path s3://bucket/key, gs://bucket/key or az://container/key.
func splitBucket(path string) (p s3Path, err error) {
	p.bucket, p.key, _ = strings.Cut(path[len("s3://"):], "/")
	if !bucketName.MatchString(p.bucket) {
		return p, errors.New("not an address as in " + Scheme(path) + "://bucket/folder/file.parquet: the " +
			"name of a bucket has 3 to 255 letters, digits, dots, dashes and underscores")
	}
	if strings.ContainsFunc(p.key, func(r rune) bool { return r < ' ' }) {
		return p, errors.New("the name of the object has a control character")
	}
	return p, nil
}

// settings say how to reach S3.
type settings struct {
	endpoint *url.URL // nil for Amazon's
	region   string
}

// settingsNow reads the settings as the SDKs of AWS do: from the environment, or else from the profile in the shared
// configuration file.
func settingsNow() (s settings, err error) {
	profile := profileNow()
	endpoint := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), profile["endpoint_url"])
	s.region = cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), profile["region"], "us-east-1")
	if !regionText.MatchString(s.region) {
		return s, final(syscall.EINVAL, "AWS_REGION is not the name of a region, as eu-central-1 is")
	}
	if endpoint == "" {
		return s, nil
	}
	s.endpoint, err = url.Parse(endpoint)
	if err != nil || s.endpoint.Host == "" || s.endpoint.User != nil || s.endpoint.RawQuery != "" ||
		s.endpoint.Scheme != "http" && s.endpoint.Scheme != "https" {
		return s, final(syscall.EINVAL, "AWS_ENDPOINT_URL is not an address as in https://host:9000")
	}
	return s, nil
}

// profileNow returns the keys of the profile in the shared configuration file. A file that is missing or damaged has
// none.
func profileNow() map[string]string {
	path, name := os.Getenv("AWS_CONFIG_FILE"), cmp.Or(os.Getenv("AWS_PROFILE"), "default")
	if home, err := os.UserHomeDir(); path == "" && err == nil {
		path = filepath.Join(home, ".aws", "config")
	}
	file, err := ini.Load(path)
	if err != nil {
		return nil
	}
	for _, section := range []string{"profile " + name, name} {
		if s, err := file.GetSection(section); err == nil && (section != name || name == "default") {
			return s.KeysHash()
		}
	}
	return nil
}

// identity has the credentials of the process.
var identity struct {
	sync.Mutex
	provider credentials.Provider // that has them; nil if nothing has
	value    credentials.Value
	asked    time.Time
	from     string // the environment that was asked
}

// anonymousFor is the time after which credentials are searched again if there were none.
const anonymousFor = time.Minute

// credentialsNow returns the credentials that the SDKs of AWS would find: in the environment, in the profile (also by a
// process or single sign-on), or of the instance, container or pod. Without any, requests are anonymous.
func credentialsNow(ctx context.Context) (credentials.Value, error) {
	identity.Lock()
	defer identity.Unlock()
	var from []string
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY",
		"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "HOME"} {
		from = append(from, os.Getenv(name))
	}
	environment := strings.Join(from, "\x00")
	if environment == identity.from && (identity.provider != nil && !identity.provider.IsExpired() ||
		identity.provider == nil && time.Since(identity.asked) < anonymousFor) {
		return identity.value, nil
	}
	providers := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") ||
		os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
		providers = append(providers, &credentials.IAM{})
	}
	cc := &credentials.CredContext{Client: &http.Client{Timeout: connecting, Transport: transport}, Context: ctx}
	identity.provider, identity.value = nil, credentials.Value{SignerType: credentials.SignatureAnonymous}
	for _, p := range providers {
		value, err := p.RetrieveWithCredContext(cc)
		if ctx.Err() != nil {
			return value, context.Cause(ctx)
		}
		if err == nil && value.AccessKeyID != "" && value.SecretAccessKey != "" {
			identity.provider, identity.value = p, value
			break
		}
		if _, file := p.(*credentials.FileAWSCredentials); file && os.Getenv("AWS_PROFILE") != "" {
			// The error may have a line of the file.
			return value, final(fs.ErrPermission, "the profile that AWS_PROFILE names has no credentials in the "+
				"shared configuration and credentials files, or they have expired (aws sso login renews those of a "+
				"sign-on)")
		}
	}
	identity.asked, identity.from = time.Now(), environment
	return identity.value, nil
}

// regions has the regions of buckets that are not in the region of the settings.
var regions sync.Map

// prepare makes a request for an object, or for the bucket if the path has no key.
func (s3) prepare(ctx context.Context, method, path string, query url.Values) (*http.Request, error) {
	p, err := splitBucket(path)
	if err != nil {
		return nil, final(syscall.EINVAL, "%v", err)
	}
	set, err := settingsNow()
	if err != nil {
		return nil, err
	}
	if r, ok := regions.Load(p.bucket); ok && set.endpoint == nil {
		set.region = r.(string)
	}
	base := set.endpoint
	if base == nil {
		host := "s3." + set.region + ".amazonaws.com"
		if strings.HasPrefix(set.region, "cn-") {
			host += ".cn"
		}
		base = &url.URL{Scheme: "https", Host: host}
	}
	at := *base
	at.Path = strings.TrimRight(at.Path, "/")
	if set.endpoint == nil && s3utils.IsVirtualHostSupported(*base, p.bucket) {
		at.Host = p.bucket + "." + at.Host
	} else {
		at.Path += "/" + p.bucket
	}
	at.Path += "/" + p.key
	at.RawPath = s3utils.EncodePath(at.Path)
	at.RawQuery = s3utils.QueryEncode(query)
	to := target{p.bucket, set.region, set.endpoint == nil}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, targetKey{}, to), method, at.String(), nil)
	if err != nil {
		return nil, final(syscall.EINVAL, "not an address as in s3://bucket/folder/file.parquet")
	}
	req.URL.RawPath = at.RawPath
	return req, nil
}

// target is where a request goes.
type target struct {
	bucket, region string
	amazon         bool
}

// targetKey is the key of the target in the context of a request.
type targetKey struct{}

// emptyHash is the SHA-256 hash of a request without a body.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

var s3Client = &http.Client{Transport: transport,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// send sends a request. If the bucket is in another region, the next request goes there.
func (s3) send(req *http.Request) (*http.Response, error) {
	to := req.Context().Value(targetKey{}).(target)
	value, err := credentialsNow(req.Context())
	if err != nil {
		return nil, err
	}
	if !value.SignerType.IsAnonymous() {
		if req.Header.Get("X-Amz-Content-Sha256") == "" {
			req.Header.Set("X-Amz-Content-Sha256", emptyHash)
		}
		signed := signer.SignV4(*req, value.AccessKeyID, value.SecretAccessKey, value.SessionToken, to.region)
		req.Header = signed.Header
	}
	answer, err := s3Client.Do(req)
	if err != nil {
		return nil, err
	}
	region := answer.Header.Get("X-Amz-Bucket-Region")
	if to.amazon && answer.StatusCode >= 300 && region != to.region && regionText.MatchString(region) {
		answer.Body.Close()
		regions.Store(to.bucket, region)
		return nil, mayPass("the bucket is in the region %s", region)
	}
	return answer, nil
}

func (s3) advise(req *http.Request, status int, code string) string {
	where := "at " + req.URL.Host
	switch {
	case code == "NoSuchBucket":
		return "there is no such bucket " + where + "; check its name, and AWS_ENDPOINT_URL and AWS_REGION"
	case code == "SignatureDoesNotMatch", code == "InvalidAccessKeyId", code == "ExpiredToken", code == "InvalidToken":
		return "the credentials are not accepted " + where + "; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, " +
			"AWS_SESSION_TOKEN and AWS_PROFILE, and AWS_ENDPOINT_URL"
	case code == "RequestTimeTooSkewed":
		return "the clock of this machine is wrong"
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		if req.Header.Get("Authorization") == "" {
			return "no credentials were found, so the request was anonymous; set AWS_ACCESS_KEY_ID and " +
				"AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
		}
		return "the credentials are not accepted, or do not permit to do this with the object " + where + "; check " +
			"AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the policies"
	case status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect ||
		status == http.StatusBadRequest && code != "":
		return "the bucket may be in another region or at another endpoint; check AWS_REGION and AWS_ENDPOINT_URL"
	case status == http.StatusNotFound:
		return "there is no such object or bucket " + where
	}
	return ""
}

func (s s3) stat(ctx context.Context, path string) (Version, error) { return stat(ctx, s, path) }

func (s s3) open(ctx context.Context, path string, v *Version) (File, error) {
	return open(ctx, s, path, v)
}

// listing is a page of a listing.
type listing struct {
	IsTruncated           bool
	NextContinuationToken string
	EncodingType          string
	Contents              []struct {
		Key, ETag, LastModified string
		Size                    int64
	}
}

// maxEmptyPages bounds the pages of a listing in a row that have no object.
const maxEmptyPages = 100

func (s s3) list(ctx context.Context, prefix string, f func(path string, v Version) error) error {
	return listObjects(ctx, s, prefix, func(path string, v Version, _ time.Time) error { return f(path, v) })
}

// listObjects lists objects by pages, in the form of S3, with the times at which they were written.
func listObjects(ctx context.Context, s server, prefix string, f func(string, Version, time.Time) error) error {
	bucket := Scheme(prefix) + "://"
	p, err := splitBucket(prefix)
	if err != nil {
		return err
	}
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {p.key}}
	return eachPage(ctx, prefix, func(token string) (string, int, error) {
		if token != "" {
			query.Set("continuation-token", token)
		}
		var page listing
		err := persist(ctx, func() (bool, error) {
			page = listing{}
			return false, pageOf(ctx, s, bucket+p.bucket+"/", query, &page)
		})
		if err != nil {
			return "", 0, err
		}
		for _, c := range page.Contents {
			if page.EncodingType == "url" {
				if c.Key, err = url.QueryUnescape(c.Key); err != nil {
					c.Key = ""
				}
			}
			if !strings.HasPrefix(c.Key, p.key) || c.Size < 0 {
				return "", 0, errNotAskedFor
			}
			modified, _ := time.Parse(time.RFC3339, c.LastModified)
			v := listed(c.Size, c.ETag, modified)
			if err := f(bucket+p.bucket+"/"+c.Key, v, modified); err != nil {
				return "", 0, err
			}
		}
		switch {
		case !page.IsTruncated:
			return "", 0, nil
		case page.NextContinuationToken == "":
			return "", 0, errNoEnd
		}
		return page.NextContinuationToken, len(page.Contents), nil
	})
}

var (
	errNoEnd       = final(syscall.EIO, "the listing has no end")
	errNotAskedFor = final(syscall.EIO, "the server lists objects that were not asked for")
)

// eachPage reads the pages of a listing. page reads the one that has a marker, "" for the first one, and returns the
// marker of the next one, "" for none, and the number of its objects.
func eachPage(ctx context.Context, prefix string, page func(marker string) (string, int, error)) error {
	marker, empty := "", 0
	for {
		next, objects, err := page(marker)
		if empty++; objects > 0 {
			empty = 0
		}
		switch {
		case err != nil:
			return asPathError(ctx, "list", prefix, err)
		case next == "":
			return nil
		case next == marker || empty > maxEmptyPages:
			return asPathError(ctx, "list", prefix, errNoEnd)
		}
		marker = next
	}
}

// listed returns the version of an object in a listing.
func listed(size int64, etag string, modified time.Time) Version {
	v := Version{Size: size}
	if etag = `"` + strings.Trim(etag, `"`) + `"`; isStrong(etag) {
		v.ETag = etag
	} else {
		v.Modified = modified.UTC().Truncate(time.Second) // as in the header of an answer
	}
	return v
}

// pageOf reads a page of a listing.
func pageOf(ctx context.Context, s server, bucket string, query url.Values, page any) error {
	a, err := do(s, ctx, request{method: http.MethodGet, path: bucket, query: query}, http.StatusOK)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := io.ReadAll(io.LimitReader(a, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(b) > maxAnswer:
		return final(syscall.EIO, "a page of the listing has more than %d bytes", maxAnswer)
	case xml.Unmarshal(b, page) != nil:
		return mayPass("the listing cannot be read: it is not the XML of an object store; check the endpoint")
	}
	return nil
}
