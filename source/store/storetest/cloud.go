package storetest

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gstream/gstream/source/store"
)

// Cloud is a kind of object store.
type Cloud struct {
	Lake  string                               // the address of Bucket
	Start func(t testing.TB) (endpoint string) // starts a store with an empty bucket
	Use   func(t testing.TB, endpoint string)  // sets the environment to reach it
}

// Clouds are the stores that outputs are written to. That of S3 is versitygw, see Gateway.
var Clouds = []Cloud{
	{"s3://" + Bucket + "/", func(t testing.TB) string { return Gateway(t, t.TempDir()) }, Use},
	{"gs://" + Bucket + "/", Google, UseGoogle},
	{"az://" + Bucket + "/", Azure, UseAzure},
}

// The account of Azure and its key.
const (
	AzureAccount = "testaccount"
	azureKey     = "NWVjN2U3dGVzdHRlc3Q="
)

// UseAzure sets the environment variables that say how to reach a store of Azure.
func UseAzure(t testing.TB, endpoint string) {
	unset(t, "AZURE_")
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", fmt.Sprintf("AccountName=%s;AccountKey=%s;BlobEndpoint=%s/%s",
		AzureAccount, azureKey, endpoint, AzureAccount))
	t.Cleanup(store.CloseIdle)
}

// UseGoogle sets the environment variables that say how to reach a store of Google.
func UseGoogle(t testing.TB, endpoint string) {
	unset(t, "GOOGLE_")
	t.Setenv("STORAGE_EMULATOR_HOST", endpoint)
	t.Cleanup(store.CloseIdle)
}

// blob is an object in memory.
type blob struct {
	content    []byte
	generation int
	written    time.Time
	meta       http.Header
}

// upload is an upload of Google, or the blocks of an object of Azure.
type upload struct {
	key   string
	began time.Time
	meta  http.Header
	parts map[string][]byte // by number or by name
}

// memory holds the objects of a store.
type memory struct {
	mu      sync.Mutex
	last    int // generation or upload
	blobs   map[string]*blob
	uploads map[string]*upload // by number; of Azure by key
}

// serve starts a store in memory. answer is called by one request at a time.
func serve(t testing.TB, answer func(m *memory, w http.ResponseWriter, r *http.Request, body []byte)) string {
	m := &memory{blobs: map[string]*blob{}, uploads: map[string]*upload{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		answer(m, w, r, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// write stores an object.
func (m *memory) write(key string, content []byte, h http.Header) *blob {
	m.last++
	meta := http.Header{}
	for name, value := range h {
		if strings.Contains(name, "-Meta-") {
			meta[name] = value
		}
	}
	m.blobs[key] = &blob{content, m.last, time.Now(), meta}
	return m.blobs[key]
}

func (b *blob) etag() string { return fmt.Sprintf(`"0x%d"`, b.generation) }

// read answers a request for an object.
func (b *blob) read(w http.ResponseWriter, r *http.Request) {
	maps.Copy(w.Header(), b.meta)
	w.Header().Set("Etag", b.etag())
	w.Header().Set("X-Goog-Generation", strconv.Itoa(b.generation))
	http.ServeContent(w, r, "", b.written, strings.NewReader(string(b.content)))
}

// page returns the keys of a page of three that begin with a prefix, and the marker of the next page.
func (m *memory) page(prefix, marker string) (keys []string, next string) {
	first, _ := hex.DecodeString(marker)
	for _, k := range slices.Sorted(maps.Keys(m.blobs)) {
		if !strings.HasPrefix(k, prefix) || k < string(first) {
			continue
		}
		if len(keys) == 3 {
			return keys, hex.EncodeToString([]byte(k))
		}
		keys = append(keys, k)
	}
	return keys, ""
}

// wrongHash reports whether a body is not that of its hash, or has none.
func wrongHash(h http.Header, body []byte) bool {
	sum := md5.Sum(body)
	return h.Get("Content-Md5") != base64.StdEncoding.EncodeToString(sum[:])
}

func refuseAzure(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Ms-Error-Code", code)
	refuse(w, status, code)
}

// Azure starts a store that speaks as Azure Blob Storage does, as far as it is documented. It checks signatures.
func Azure(t testing.TB) (endpoint string) { return serve(t, (*memory).azure) }

func (m *memory) azure(w http.ResponseWriter, r *http.Request, body []byte) {
	q := r.URL.Query()
	name, ok := strings.CutPrefix(r.URL.Path, "/"+AzureAccount+"/"+Bucket)
	key := strings.TrimPrefix(name, "/")
	old, exists := m.blobs[key]
	none, match := r.Header.Get("If-None-Match"), r.Header.Get("If-Match")
	write := r.Method == http.MethodPut && q.Get("comp") != "block"
	switch {
	case r.Header.Get("Authorization") != "SharedKey "+AzureAccount+":"+signatureOfAzure(r, len(body)):
		refuseAzure(w, http.StatusForbidden, "AuthenticationFailed")
	case r.Header.Get("X-Ms-Version") == "" || r.Header.Get("X-Ms-Date") == "":
		refuseAzure(w, http.StatusBadRequest, "MissingRequiredHeader")
	case !ok || name != "" && name[0] != '/':
		refuseAzure(w, http.StatusNotFound, "ContainerNotFound")
	case q.Get("comp") == "list" && q.Get("restype") == "container":
		keys, next := m.page(q.Get("prefix"), q.Get("marker"))
		fmt.Fprint(w, "\ufeff"+xml.Header+"<EnumerationResults><Blobs>")
		for _, k := range keys {
			b := m.blobs[k]
			fmt.Fprint(w, "<Blob><Name>")
			_ = xml.EscapeText(w, []byte(k))
			fmt.Fprintf(w, "</Name><Properties><Last-Modified>%s</Last-Modified><Etag>%s</Etag><Content-Length>%d"+
				"</Content-Length></Properties></Blob>", b.written.UTC().Format(http.TimeFormat),
				strings.Trim(b.etag(), `"`), len(b.content))
		}
		fmt.Fprintf(w, "</Blobs><NextMarker>%s</NextMarker></EnumerationResults>", next)
	case write && none == "*" && exists:
		refuseAzure(w, http.StatusConflict, "BlobAlreadyExists")
	case match != "" && (!exists || match != old.etag()):
		refuseAzure(w, http.StatusPreconditionFailed, "ConditionNotMet")
	case r.Method == http.MethodPut && wrongHash(r.Header, body):
		refuseAzure(w, http.StatusBadRequest, "Md5Mismatch")
	case r.Method == http.MethodPut && q.Get("comp") == "block":
		m.block(w, key, q.Get("blockid"), body)
	case r.Method == http.MethodPut && q.Get("comp") == "blocklist":
		m.blockList(w, r, key, body)
	case r.Method == http.MethodPut && r.Header.Get("X-Ms-Blob-Type") != "BlockBlob":
		refuseAzure(w, http.StatusBadRequest, "MissingRequiredHeader")
	case r.Method == http.MethodPut:
		m.created(w, m.write(key, body, r.Header))
		delete(m.uploads, key)
	case !exists:
		refuseAzure(w, http.StatusNotFound, "BlobNotFound")
	case r.Method == http.MethodDelete:
		delete(m.blobs, key)
		w.WriteHeader(http.StatusAccepted)
	default:
		old.read(w, r)
	}
}

func (m *memory) created(w http.ResponseWriter, b *blob) {
	w.Header().Set("Etag", b.etag())
	w.WriteHeader(http.StatusCreated)
}

// block stores a block of an object of Azure.
func (m *memory) block(w http.ResponseWriter, key, name string, body []byte) {
	u := m.uploads[key]
	if u == nil {
		u = &upload{parts: map[string][]byte{}}
		m.uploads[key] = u
	}
	for other := range u.parts {
		if len(other) != len(name) {
			refuseAzure(w, http.StatusBadRequest, "InvalidBlobOrBlock")
			return
		}
	}
	if _, err := base64.StdEncoding.DecodeString(name); err != nil || name == "" {
		refuseAzure(w, http.StatusBadRequest, "InvalidQueryParameterValue")
		return
	}
	if len(body) == 0 {
		refuseAzure(w, http.StatusBadRequest, "InvalidHeaderValue")
		return
	}
	u.parts[name] = body
	w.WriteHeader(http.StatusCreated)
}

// blockList makes an object of blocks, and forgets all others.
func (m *memory) blockList(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	var list struct {
		XMLName xml.Name `xml:"BlockList"`
		Latest  []string
	}
	if xml.Unmarshal(body, &list) != nil {
		refuseAzure(w, http.StatusBadRequest, "InvalidXmlDocument")
		return
	}
	var content []byte
	for _, name := range list.Latest {
		part, ok := []byte(nil), false
		if u := m.uploads[key]; u != nil {
			part, ok = u.parts[name]
		}
		if !ok {
			refuseAzure(w, http.StatusBadRequest, "InvalidBlockList")
			return
		}
		content = append(content, part...)
	}
	delete(m.uploads, key)
	m.created(w, m.write(key, content, r.Header))
}

// signatureOfAzure returns the signature that a request should have.
func signatureOfAzure(r *http.Request, length int) string {
	var b strings.Builder
	b.WriteString(r.Method)
	for _, name := range []string{"Content-Encoding", "Content-Language", "", "Content-MD5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		b.WriteByte('\n')
		if name != "" {
			b.WriteString(r.Header.Get(name))
		} else if length > 0 {
			b.WriteString(strconv.Itoa(length))
		}
	}
	var own []string
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			own = append(own, "\n"+lower+":"+r.Header.Get(name))
		}
	}
	slices.Sort(own)
	path, query, _ := strings.Cut(r.RequestURI, "?")
	resource := []string{}
	for part := range strings.SplitSeq(query, "&") {
		if name, value, ok := strings.Cut(part, "="); ok {
			name, _ = url.QueryUnescape(name)
			value, _ = url.QueryUnescape(value)
			resource = append(resource, "\n"+name+":"+value)
		}
	}
	slices.Sort(resource)
	b.WriteString(strings.Join(own, "") + "\n/" + AzureAccount + path + strings.Join(resource, ""))
	key, _ := base64.StdEncoding.DecodeString(azureKey)
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, b.String())
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Google starts a store that speaks as the XML interface of Google Cloud Storage does, as far as it is documented.
func Google(t testing.TB) (endpoint string) { return serve(t, (*memory).google) }

// minPart is the least size of a part that is not the last one.
const minPart = 5 << 20

func (m *memory) google(w http.ResponseWriter, r *http.Request, body []byte) {
	q := r.URL.Query()
	key, ok := strings.CutPrefix(r.URL.Path, "/"+Bucket+"/")
	old, exists := m.blobs[key]
	generation := r.Header.Get("X-Goog-If-Generation-Match")
	now := 0
	if exists {
		now = old.generation
	}
	u := m.uploads[q.Get("uploadId")]
	byParts := q.Has("uploads") || q.Has("uploadId")
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") {
			refuse(w, http.StatusBadRequest, "InvalidArgument")
			return
		}
	}
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case byParts && generation != "", r.Method != http.MethodGet && r.Header.Get("If-None-Match")+
		r.Header.Get("If-Match") != "":
		refuse(w, http.StatusBadRequest, "NotImplemented")
	case q.Has("uploadId") && u == nil:
		refuse(w, http.StatusNotFound, "NoSuchUpload")
	case r.Method == http.MethodGet && key == "":
		m.listGoogle(w, q)
	case generation != "" && generation != strconv.Itoa(now):
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPost && q.Has("uploads"):
		m.last++
		number := fmt.Sprintf("upload-%d", m.last)
		m.uploads[number] = &upload{key, time.Now(), r.Header, map[string][]byte{}}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", number)
	case r.Method == http.MethodPost && u != nil:
		m.join(w, q.Get("uploadId"), body)
	case r.Method == http.MethodDelete && u != nil:
		delete(m.uploads, q.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut && q.Has("compose"):
		m.compose(w, r, key, body)
	case r.Method == http.MethodPut && len(body) > 0 && wrongHash(r.Header, body):
		refuse(w, http.StatusBadRequest, "BadDigest")
	case r.Method == http.MethodPut && u != nil:
		if len(body) == 0 || u.key != key {
			refuse(w, http.StatusBadRequest, "InvalidArgument")
			return
		}
		u.parts[q.Get("partNumber")] = body
		w.Header().Set("Etag", `"part-`+q.Get("partNumber")+`"`)
	case r.Method == http.MethodPut:
		w.Header().Set("X-Goog-Generation", strconv.Itoa(m.write(key, body, r.Header).generation))
	case !exists:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	case r.Method == http.MethodDelete:
		delete(m.blobs, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		old.read(w, r)
	}
}

// listGoogle answers a request for a page of a listing, of objects or of uploads.
func (m *memory) listGoogle(w http.ResponseWriter, q url.Values) {
	if q.Has("uploads") {
		fmt.Fprint(w, "<ListMultipartUploadsResult><EncodingType>url</EncodingType>")
		for _, number := range slices.Sorted(maps.Keys(m.uploads)) {
			if u := m.uploads[number]; strings.HasPrefix(u.key, q.Get("prefix")) {
				fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>",
					url.QueryEscape(u.key), number, u.began.UTC().Format(time.RFC3339))
			}
		}
		fmt.Fprint(w, "</ListMultipartUploadsResult>")
		return
	}
	keys, next := m.page(q.Get("prefix"), q.Get("continuation-token"))
	fmt.Fprintf(w, "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>%v</IsTruncated>"+
		"<NextContinuationToken>%s</NextContinuationToken>", next != "", next)
	for _, k := range keys {
		b := m.blobs[k]
		fmt.Fprintf(w, "<Contents><Key>%s</Key><ETag>%s</ETag><LastModified>%s</LastModified><Size>%d</Size>"+
			"</Contents>", url.QueryEscape(k), strings.ReplaceAll(b.etag(), `"`, "&quot;"),
			b.written.UTC().Format(time.RFC3339Nano), len(b.content))
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

// join makes an object of the parts of an upload.
func (m *memory) join(w http.ResponseWriter, number string, body []byte) {
	var list struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []struct {
			PartNumber int
			ETag       string
		}
	}
	u := m.uploads[number]
	var content []byte
	err := xml.Unmarshal(body, &list)
	for i, p := range list.Part {
		part := u.parts[strconv.Itoa(p.PartNumber)]
		if part == nil || i > 0 && p.PartNumber <= list.Part[i-1].PartNumber ||
			p.ETag != fmt.Sprintf(`"part-%d"`, p.PartNumber) {
			refuse(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		if i < len(list.Part)-1 && len(part) < minPart {
			refuse(w, http.StatusBadRequest, "EntityTooSmall")
			return
		}
		content = append(content, part...)
	}
	if err != nil || len(list.Part) == 0 {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	delete(m.uploads, number)
	m.write(u.key, content, u.meta)
	fmt.Fprint(w, "<CompleteMultipartUploadResult/>")
}

// compose makes an object of others.
func (m *memory) compose(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	var list struct {
		XMLName   xml.Name `xml:"ComposeRequest"`
		Component []struct{ Name string }
	}
	if err := xml.Unmarshal(body, &list); err != nil || len(list.Component) == 0 {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var content []byte
	for _, c := range list.Component {
		b := m.blobs[c.Name]
		if b == nil {
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		content = append(content, b.content...)
	}
	w.Header().Set("X-Goog-Generation", strconv.Itoa(m.write(key, content, r.Header).generation))
}
