package store

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// azure is Azure Blob Storage, by its REST interface. A path az://container/key names a blob in the storage account of
// the environment.
type azure struct{}

// azureVersion is the version of the interface.
const azureVersion = "2021-12-02"

// azureSettings say how to reach an account.
type azureSettings struct {
	account  string
	endpoint *url.URL
	key      []byte // nil for none
	sas      url.Values
}

var azureAccountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)

// The account and key of the emulator Azurite, which are the same everywhere.
const (
	azuriteAccount = "devstoreaccount1"
	azuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// azureSettingsNow reads the settings from the environment, as the command line of Azure does. Errors have no values.
func azureSettingsNow() (s azureSettings, err error) {
	parts := map[string]string{}
	for part := range strings.SplitSeq(os.Getenv("AZURE_STORAGE_CONNECTION_STRING"), ";") {
		name, value, _ := strings.Cut(part, "=")
		parts[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	if strings.EqualFold(parts["usedevelopmentstorage"], "true") {
		parts = map[string]string{"accountname": azuriteAccount, "accountkey": azuriteKey,
			"blobendpoint": "http://127.0.0.1:10000/" + azuriteAccount}
	}
	s.account = cmp.Or(parts["accountname"], os.Getenv("AZURE_STORAGE_ACCOUNT"))
	endpoint := cmp.Or(parts["blobendpoint"], os.Getenv("AZURE_STORAGE_SERVICE_ENDPOINT"))
	switch {
	case endpoint == "" && s.account == "":
		return s, final(syscall.EINVAL, "no storage account is named; set AZURE_STORAGE_ACCOUNT or "+
			"AZURE_STORAGE_CONNECTION_STRING")
	case endpoint == "" && !azureAccountName.MatchString(s.account):
		return s, final(syscall.EINVAL, "AZURE_STORAGE_ACCOUNT is not the name of an account: it has 3 to 24 "+
			"lower-case letters and digits")
	case endpoint == "":
		endpoint = cmp.Or(parts["defaultendpointsprotocol"], "https") + "://" + s.account + ".blob." +
			cmp.Or(parts["endpointsuffix"], "core.windows.net")
	}
	s.endpoint, err = url.Parse(endpoint)
	if err != nil || s.endpoint.Host == "" || s.endpoint.User != nil || s.endpoint.RawQuery != "" ||
		s.endpoint.Scheme != "http" && s.endpoint.Scheme != "https" {
		return s, final(syscall.EINVAL, "the endpoint of the storage account is not an address as in "+
			"https://account.blob.core.windows.net; check AZURE_STORAGE_CONNECTION_STRING and "+
			"AZURE_STORAGE_SERVICE_ENDPOINT")
	}
	if s.account == "" {
		s.account, _, _ = strings.Cut(s.endpoint.Host, ".")
	}
	if key := cmp.Or(parts["accountkey"], os.Getenv("AZURE_STORAGE_KEY")); key != "" {
		if s.key, err = base64.StdEncoding.DecodeString(key); err != nil {
			return s, final(fs.ErrPermission, "the key of the storage account is not in base64; check "+
				"AZURE_STORAGE_KEY and AZURE_STORAGE_CONNECTION_STRING")
		}
	}
	sas := cmp.Or(parts["sharedaccesssignature"], os.Getenv("AZURE_STORAGE_SAS_TOKEN"))
	if s.sas, err = url.ParseQuery(strings.TrimPrefix(sas, "?")); err != nil {
		return s, final(fs.ErrPermission, "the shared access signature is not a query as in sv=…&sig=…; check "+
			"AZURE_STORAGE_SAS_TOKEN and AZURE_STORAGE_CONNECTION_STRING")
	}
	return s, nil
}

func (azure) prepare(ctx context.Context, method, path string, query url.Values) (*http.Request, error) {
	p, err := splitBucket(path)
	if err != nil {
		return nil, final(syscall.EINVAL, "%v", err)
	}
	set, err := azureSettingsNow()
	if err != nil {
		return nil, err
	}
	at := *set.endpoint
	at.Path = strings.TrimRight(at.Path, "/") + "/" + p.bucket
	if p.key != "" {
		at.Path += "/" + p.key
	}
	at.RawPath, at.RawQuery = s3utils.EncodePath(at.Path), s3utils.QueryEncode(query)
	req, err := http.NewRequestWithContext(context.WithValue(ctx, targetKey{}, set), method, at.String(), nil)
	if err != nil {
		return nil, final(syscall.EINVAL, "not an address as in az://container/folder/file.parquet")
	}
	req.URL.RawPath = at.RawPath
	return req, nil
}

// send signs a request with the key of the account, adds a shared access signature, or a token of Microsoft Entra.
func (azure) send(req *http.Request) (*http.Response, error) {
	set := req.Context().Value(targetKey{}).(azureSettings)
	req.Header.Set("X-Ms-Version", azureVersion)
	req.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
	switch {
	case set.key != nil:
		req.Header.Set("Authorization", "SharedKey "+set.account+":"+set.sign(req))
	case len(set.sas) > 0:
		q := req.URL.Query()
		maps.Copy(q, set.sas)
		req.URL.RawQuery = s3utils.QueryEncode(q)
	default:
		token, err := azureToken(req.Context())
		if err != nil {
			return nil, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	return s3Client.Do(req)
}

// sign returns the signature of a request with the key of the account.
func (s *azureSettings) sign(req *http.Request) string {
	length := ""
	if req.ContentLength > 0 {
		length = strconv.FormatInt(req.ContentLength, 10)
	}
	h := req.Header
	lines := []string{req.Method, h.Get("Content-Encoding"), h.Get("Content-Language"), length, h.Get("Content-Md5"),
		h.Get("Content-Type"), "", h.Get("If-Modified-Since"), h.Get("If-Match"), h.Get("If-None-Match"),
		h.Get("If-Unmodified-Since"), h.Get("Range")}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			lines = append(lines, lower+":"+strings.TrimSpace(h.Get(name)))
		}
	}
	lines = append(lines, "/"+s.account+req.URL.EscapedPath())
	query := req.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		slices.Sort(query[name])
		lines = append(lines, strings.ToLower(name)+":"+strings.Join(query[name], ","))
	}
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(strings.Join(lines, "\n")))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (azure) advise(req *http.Request, status int, code string) string {
	where := "at " + req.URL.Host
	switch {
	case code == "ContainerNotFound":
		return "there is no such container " + where + "; check its name, and AZURE_STORAGE_ACCOUNT"
	case code == "InvalidBlobOrBlock", code == "InvalidBlockList":
		return "another process writes the same object"
	case status == http.StatusForbidden || status == http.StatusUnauthorized ||
		status == http.StatusConflict && code == "PublicAccessNotPermitted":
		if req.Header.Get("Authorization") == "" && !req.URL.Query().Has("sig") {
			return "no credentials were found, so the request was anonymous; set AZURE_STORAGE_KEY, " +
				"AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, or run az login"
		}
		return "the credentials are not accepted, or do not permit to do this with the object " + where + "; check " +
			"AZURE_STORAGE_ACCOUNT, and the roles of the account (Storage Blob Data Reader to read, Storage Blob " +
			"Data Contributor to write)"
	case status == http.StatusNotFound:
		return "there is no such object or container " + where
	}
	return ""
}

func (s azure) stat(ctx context.Context, path string) (Version, error) { return stat(ctx, s, path) }

func (s azure) open(ctx context.Context, path string, v *Version) (File, error) {
	return open(ctx, s, path, v)
}

// azureListing is a page of a listing.
type azureListing struct {
	XMLName xml.Name `xml:"EnumerationResults"`
	Blobs   struct {
		Blob []struct {
			Name struct {
				Text    string `xml:",chardata"`
				Encoded bool   `xml:",attr"`
			}
			Properties struct {
				Size         int64  `xml:"Content-Length"`
				Etag         string `xml:"Etag"`
				Modified     string `xml:"Last-Modified"`
				ResourceType string
			}
		}
	}
	NextMarker string
}

func (s azure) list(ctx context.Context, prefix string, f func(path string, v Version) error) error {
	p, err := splitBucket(prefix)
	if err != nil {
		return err
	}
	container := "az://" + p.bucket
	query := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {p.key}}
	return eachPage(ctx, prefix, func(marker string) (string, int, error) {
		if marker != "" {
			query.Set("marker", marker)
		}
		var page azureListing
		err := persist(ctx, func() (bool, error) {
			page = azureListing{}
			return false, pageOf(ctx, s, container, query, &page)
		})
		if err != nil {
			return "", 0, err
		}
		for _, b := range page.Blobs.Blob {
			name := b.Name.Text
			if b.Name.Encoded {
				if name, err = url.PathUnescape(name); err != nil {
					name = ""
				}
			}
			if !strings.HasPrefix(name, p.key) || b.Properties.Size < 0 {
				return "", 0, errNotAskedFor
			}
			if b.Properties.ResourceType == "directory" {
				continue // of an account that has folders
			}
			modified, _ := http.ParseTime(b.Properties.Modified)
			if err := f(container+"/"+name, listed(b.Properties.Size, b.Properties.Etag, modified)); err != nil {
				return "", 0, err
			}
		}
		return page.NextMarker, len(page.Blobs.Blob), nil
	})
}

// An upload sends blocks, which the object is made of by one request with a condition. Nothing ends an upload: the
// store forgets blocks after a week, or when the object is written. The number of an upload is the beginning of the
// names of its blocks.

func (azure) tokenHeader() string        { return "X-Ms-Meta-Gstreamupload" }
func (azure) at(u *Upload) string        { return u.path }
func (azure) tagOf(h http.Header) string { return etagOf(h) }

func (azure) begin(_ context.Context, u *Upload) (string, error) { return u.token, nil }

func (s azure) part(ctx context.Context, u *Upload, number int, data []byte) (string, error) {
	name := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%05d", u.id, number))
	_, err := send(ctx, s, request{method: http.MethodPut, path: u.path, header: md5Of(data), body: data,
		query: url.Values{"comp": {"block"}, "blockid": {name}}}, etagOf)
	return name, err
}

func (s azure) complete(ctx context.Context, u *Upload, replace bool) error {
	type blocks struct {
		XMLName xml.Name `xml:"BlockList"`
		Latest  []string
	}
	var list blocks
	for _, p := range u.parts {
		list.Latest = append(list.Latest, p.ETag)
	}
	body, err := xml.Marshal(list)
	if err != nil {
		return err
	}
	header := ifMatch(md5Of(body), Condition{Absent: !replace})
	header[s.tokenHeader()] = []string{u.token}
	_, err = send(ctx, s, request{method: http.MethodPut, path: u.path, query: url.Values{"comp": {"blocklist"}},
		header: header, body: body, stall: assembling}, etagOf)
	return err
}

func (azure) abort(context.Context, Pending) error { return nil }

// uploads finds none. It fails if there is no such container.
func (s azure) uploads(ctx context.Context, prefix string, _ func(Pending) error) error {
	p, err := splitBucket(prefix)
	if err != nil {
		return err
	}
	query := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {p.key}, "maxresults": {"1"}}
	return persist(ctx, func() (bool, error) {
		return false, pageOf(ctx, s, "az://"+p.bucket, query, &azureListing{})
	})
}

func (s azure) put(ctx context.Context, path string, content []byte, c Condition) (string, error) {
	header := ifMatch(md5Of(content), c)
	header["Content-Type"], header["X-Ms-Blob-Type"] = []string{manifestType}, []string{"BlockBlob"}
	return send(ctx, s, request{method: http.MethodPut, path: path, header: header, body: content}, etagOf)
}

var azureIdentity tokens

const (
	azureResource = "https://storage.azure.com/"
	azureAdvice   = "the credentials of Azure give no token; check AZURE_TENANT_ID, AZURE_CLIENT_ID, " +
		"AZURE_CLIENT_SECRET and AZURE_FEDERATED_TOKEN_FILE"
)

// azureToken returns a token of the credentials that the SDKs of Azure would find: of a service principal in the
// environment, of the workload of a pod, of the managed identity of the machine or service, or of az login. It is "" if
// there are none. Errors have no part of the credentials.
func azureToken(ctx context.Context) (string, error) {
	return azureIdentity.get([]string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_CONFIG_DIR",
		"AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST", "AZURE_POD_IDENTITY_AUTHORITY_HOST", "IDENTITY_ENDPOINT",
		"IDENTITY_HEADER"}, func() (string, time.Duration, error) { return newAzureToken(ctx) })
}

func newAzureToken(ctx context.Context) (string, time.Duration, error) {
	form := url.Values{"client_id": {os.Getenv("AZURE_CLIENT_ID")}, "grant_type": {"client_credentials"},
		"scope": {azureResource + ".default"}}
	secret, file := os.Getenv("AZURE_CLIENT_SECRET"), os.Getenv("AZURE_FEDERATED_TOKEN_FILE")
	switch tenant := os.Getenv("AZURE_TENANT_ID"); {
	case tenant == "" || secret == "" && file == "":
		return machineTokenOfAzure(ctx)
	case secret != "":
		form.Set("client_secret", secret)
	default:
		assertion, err := os.ReadFile(file)
		if err != nil {
			return "", 0, final(fs.ErrPermission, "the file that AZURE_FEDERATED_TOKEN_FILE names cannot be read")
		}
		form.Set("client_assertion", strings.TrimSpace(string(assertion)))
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
	}
	host := strings.TrimRight(cmp.Or(os.Getenv("AZURE_AUTHORITY_HOST"), "https://login.microsoftonline.com"), "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, host+"/"+url.PathEscape(os.Getenv("AZURE_TENANT_ID"))+
		"/oauth2/v2.0/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, final(fs.ErrPermission, "AZURE_AUTHORITY_HOST is not an address")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return askToken(req, azureAdvice)
}

// machineTokenOfAzure returns the token of the managed identity of the machine or service, or else of az login.
func machineTokenOfAzure(ctx context.Context) (string, time.Duration, error) {
	asked, end := context.WithTimeout(ctx, metadataWait)
	defer end()
	query := url.Values{"resource": {azureResource}}
	if id := os.Getenv("AZURE_CLIENT_ID"); id != "" {
		query.Set("client_id", id)
	}
	at, service := os.Getenv("IDENTITY_ENDPOINT"), os.Getenv("IDENTITY_HEADER") != ""
	if service {
		query.Set("api-version", "2019-08-01")
	} else {
		at = cmp.Or(os.Getenv("AZURE_POD_IDENTITY_AUTHORITY_HOST"), "http://169.254.169.254") +
			"/metadata/identity/oauth2/token"
		query.Set("api-version", "2018-02-01")
	}
	req, err := http.NewRequestWithContext(asked, http.MethodGet, at+"?"+query.Encode(), nil)
	if err != nil {
		return "", 0, final(fs.ErrPermission, "IDENTITY_ENDPOINT is not an address")
	}
	req.Header.Set("Metadata", "true")
	if service {
		req.Header.Set("X-Identity-Header", os.Getenv("IDENTITY_HEADER"))
	}
	token, lives, err := askToken(req, azureAdvice)
	if err == nil || service {
		return token, lives, err
	}
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	return commandTokenOfAzure(ctx)
}

// commandTokenOfAzure returns the token of az login, "" if there is none.
func commandTokenOfAzure(ctx context.Context) (string, time.Duration, error) {
	path, err := exec.LookPath("az")
	if err != nil {
		return "", anonymousFor + early, nil
	}
	text, err := exec.CommandContext(ctx, path, "account", "get-access-token", "--resource", azureResource, "-o",
		"json").Output()
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	var got struct {
		Token   string `json:"accessToken"`
		Expires int64  `json:"expires_on"`
	}
	if err != nil || json.Unmarshal(text, &got) != nil || !isToken(got.Token) {
		return "", anonymousFor + early, nil
	}
	lives := 5 * time.Minute // of a command line that does not say it
	if got.Expires > 0 {
		lives = time.Until(time.Unix(got.Expires, 0))
	}
	return got.Token, lives, nil
}
