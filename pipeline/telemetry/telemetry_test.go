package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
)

// report runs a job.
func report(t *testing.T) *pipeline.Report {
	r, err := pipeline.New("a \"job\"\n\\").Read("orders", "../../examples/quickstart/data/orders.parquet").
		Filter("o_totalprice > 1000").Sort("o_totalprice").WriteTo(&pipeline.Collector{}).
		Run(t.Context(), pipeline.RunOptions{Use: pipeline.Host})
	require.NoError(t, err)
	return r
}

// sample is a line of the text format.
var sample = regexp.MustCompile(`^([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} ([-+0-9.e]+)$`)

func TestMetricsAreInTheTextFormat(t *testing.T) {
	r := report(t)
	file := filepath.Join(t.TempDir(), "gstream.prom")
	for _, done := range []bool{true, false} {
		r.Done = done
		require.NoError(t, Send(t.Context(), file, r, time.Unix(1_800_000_000, 0)))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		values, helped := map[string]float64{}, map[string]bool{}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
				name, kind, _ := strings.Cut(rest, " ")
				require.Equal(t, "gauge", kind)
				require.False(t, helped[name], "the samples of a metric are together")
				helped[name] = true
				continue
			} else if strings.HasPrefix(line, "# HELP ") {
				continue
			}
			m := sample.FindStringSubmatch(line)
			require.NotNil(t, m, line)
			require.True(t, helped[m[1]], line)
			require.Contains(t, m[2], `job_name="a \"job\"\n\\"`)
			_, known := values[m[1]+m[2]]
			require.False(t, known, "a sample occurs once: %s", line)
			values[m[1]+m[2]], err = strconv.ParseFloat(m[3], 64)
			require.NoError(t, err)
		}
		label := `job_name="a \"job\"\n\\"`
		require.Equal(t, float64(r.Output.Rows), values["gstream_output_rows"+label])
		require.Equal(t, map[bool]float64{true: 1}[done], values["gstream_run_success"+label])
		require.Equal(t, 1.8e9, values["gstream_run_end_timestamp_seconds"+label])
		require.Equal(t, 15000.0, values["gstream_stage_rows"+label+`,stage="1 orders (scan)"`])
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestSpansReachACollector(t *testing.T) {
	r := report(t)
	var body []byte
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		require.Equal(t, "/v1/traces", q.URL.Path)
		require.Equal(t, "application/json", q.Header.Get("Content-Type"))
		body, _ = io.ReadAll(q.Body)
		w.WriteHeader(status)
	}))
	defer s.Close()
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	t.Setenv("TRACEPARENT", "00-"+trace+"-"+parent+"-01")
	ended := time.Now()
	require.NoError(t, Send(t.Context(), s.URL, r, ended))
	var sent struct{ ResourceSpans []resourceSpans }
	require.NoError(t, json.Unmarshal(body, &sent))
	all := sent.ResourceSpans[0].Scopes[0].Spans
	require.Len(t, all, len(r.Stages)+1)
	ids := map[string]bool{}
	at := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
		return n
	}
	for i, s := range all {
		require.Equal(t, trace, s.TraceID)
		require.False(t, ids[s.SpanID])
		ids[s.SpanID] = true
		require.LessOrEqual(t, at(s.Start), at(s.End))
		require.GreaterOrEqual(t, at(s.Start), at(all[0].Start))
		require.LessOrEqual(t, at(s.End), at(all[0].End))
		if i > 0 {
			require.Equal(t, all[0].SpanID, s.ParentID)
		}
	}
	require.Equal(t, parent, all[0].ParentID)
	require.Equal(t, ended.UnixNano(), at(all[0].End))
	require.Less(t, at(all[1].Start), at(all[3].End), "the scan begins before the sort ends")

	r.Done, r.Error = false, "no \xff room"
	require.NoError(t, Send(t.Context(), s.URL+"/v1/traces", r, ended))
	require.Contains(t, string(body), `"code":2,"message":"no � room"`)
	status = http.StatusBadRequest
	require.ErrorContains(t, Send(t.Context(), s.URL, r, ended), "400 Bad Request")
	s.Close()
	require.Error(t, Send(t.Context(), s.URL, r, ended))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the run was interrupted"))
	require.NoError(t, Send(ctx, filepath.Join(t.TempDir(), "x.prom"), r, ended), "also of a run that was interrupted")
	for _, to := range []string{"", "metrics.txt", "ftp://h/x", "http://", "s3://b/x.prom"} {
		require.ErrorContains(t, Check(to), "FILE.prom", to)
	}
}
