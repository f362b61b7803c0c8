package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pageFacts is what a browser finds on a page.
type pageFacts struct {
	Errors []string // of scripts
	Title  string
	Text   string
	Colors int // colours of the first canvas
	// Of pictures: the texts and boxes, what is outside the picture or its box, texts that lie on each other, and
	// arrows with an end that is not at a box.
	Texts, Boxes, Arrows int
	Outside, Overlapping []string
	Loose                []string
	Bars, Bounds         int
	Chosen               string // of the page of a plan: the text of a stage after a click
}

// chromium returns the program, which GSTREAM_CHROMIUM may name. It skips the test if there is none.
func chromium(t *testing.T) string {
	program := os.Getenv("GSTREAM_CHROMIUM")
	if program == "" {
		var err error
		if program, err = exec.LookPath("chromium"); err != nil {
			t.Skip("chromium is not installed; it is a package of Debian")
		}
	}
	return program
}

// open opens pages in headless Chromium, all at once, and returns what is on them.
func open(t *testing.T, pages map[string][]byte) map[string]pageFacts {
	checks, err := os.ReadFile("testdata/pages.html")
	require.NoError(t, err)
	var names []string
	for name := range pages {
		names = append(names, name)
	}
	list, err := json.Marshal(names)
	require.NoError(t, err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		page, ok := pages[name]
		switch {
		case name == "":
			_, _ = w.Write(bytes.Replace(checks, []byte("PAGES"), list, 1))
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprint(w, "<!doctype html><script>window.faults = []; onerror = m => { faults.push(m) }</script>")
			_, _ = w.Write(page)
		}
	}))
	defer s.Close()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), chromium(t), "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--window-size=1300,1000",
		"--virtual-time-budget=20000", "--dump-dom", s.URL+"/")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	m := regexp.MustCompile(`(?s)<pre id="result">(.*?)</pre>`).FindSubmatch(out)
	require.NotNil(t, m, "%s\n%s", out, &stderr)
	found := map[string]pageFacts{}
	require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &found), "%s", m[1])
	require.Len(t, found, len(pages))
	return found
}

// TestPagesAndPicturesInABrowser opens all that gstream writes for a browser, and the pictures of the documentation.
func TestPagesAndPicturesInABrowser(t *testing.T) {
	chromium(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	pages := map[string][]byte{}
	for _, name := range []string{"docs/architecture.svg", "docs/gpu.svg", "examples/bench/h200-joins.svg",
		"examples/bench/h200-groupby.svg", "examples/bench/h200-primitives.svg"} {
		pages[name], err = os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
	}
	dir := t.TempDir()
	job := filepath.Join(dir, "job.yaml")
	data := filepath.Join(root, "examples/quickstart/data")
	require.NoError(t, os.WriteFile(job, fmt.Appendf(nil, `name: "<b>orders</b>"
sources: {orders: %s/orders.parquet, lineitem: %s/lineitem.parquet}
steps:
  - from: lineitem
    join: {with: orders, on: l_orderkey = o_orderkey}
  - sort: [l_comment, l_shipdate]
output: {parquet: %s/out.parquet, overwrite: true}
`, data, data, dir), 0o666))
	timeline, bars := filepath.Join(dir, "timeline.html"), filepath.Join(dir, "bars.svg")
	for _, args := range [][]string{
		{"run", job, "--threads", "2", "--timeline", timeline, "--device", "host", "--host-memory", "16MiB",
			"--spill-dir", dir},
		{"bench", "--from", filepath.Join(root, "examples/bench/h200-joins.json"), "--plot", bars},
	} {
		code, _, stderr := gstream(args...)
		require.Equal(t, exitOK, code, stderr)
	}
	for name, path := range map[string]string{"timeline": timeline, "bars": bars} {
		pages[name], err = os.ReadFile(path)
		require.NoError(t, err)
	}
	for name, args := range map[string][]string{"plan": {"explain", job, "--format", "html", "--rules"},
		"ran": {"explain", job, "--format", "html", "--analyze", "--device", "host"}} {
		code, stdout, stderr := gstream(args...)
		require.Equal(t, exitOK, code, stderr)
		pages[name] = []byte(stdout)
	}
	found := open(t, pages)
	for name, f := range found {
		require.Empty(t, f.Errors, name)
		require.Empty(t, f.Outside, name)
		require.Empty(t, f.Loose, name)
		require.Empty(t, f.Overlapping, name)
	}
	f := found["timeline"]
	require.Contains(t, f.Title, "<b>orders</b> on ")
	for _, text := range []string{"sort 2: sort", "Who waited for whom", "decoding of lineitem: scan", "spill write",
		"60,175"} {
		require.Contains(t, f.Text, text)
	}
	require.Greater(t, f.Colors, 5)
	for name, text := range map[string]string{"plan": "Rules of the planner", "ran": "rows out"} {
		f := found[name]
		require.Equal(t, 5, f.Boxes, name) // and the output
		require.Equal(t, 4, f.Arrows, name)
		require.Contains(t, f.Text, text)
		require.Contains(t, f.Chosen, "lineitem")
	}
	require.Contains(t, found["ran"].Text, "60,175 rows, about 60k expected")
	require.Contains(t, found["ran"].Text, "bound by")
	require.Greater(t, found["docs/architecture.svg"].Arrows, 20)
	require.Equal(t, 9, found["bars"].Bars)
	require.Equal(t, 9, found["bars"].Bounds)
	require.Equal(t, 19, found["examples/bench/h200-joins.svg"].Bars, "with those of other code")
	require.Zero(t, found["examples/bench/h200-groupby.svg"].Bars, "its cases are a scale")
}
