package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTelemetryTellsOfRunsThatFailToo sends reports of runs, of a COPY and of a job that cannot be planned.
func TestTelemetryTellsOfRunsThatFailToo(t *testing.T) {
	var spans string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		spans = string(b)
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "gstream.prom")
	metrics := func() string {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(b)
	}
	job, _ := jobFile(t, "  - limit: 3", "")
	code, _, stderr := gstream("run", job, "--telemetry", file, "--telemetry", s.URL)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, metrics(), "} 3\n")
	require.Contains(t, metrics(), "gstream_run_success{")
	require.Contains(t, spans, `"gstream.rows","value":{"intValue":"3"}`)
	code, _, _ = gstream("run", job, "--telemetry", file) // the output exists
	require.Equal(t, exitIO, code)
	require.Regexp(t, `gstream_run_success\{job_name="[^"]+"\} 0\n`, metrics())
	s.Close()
	code, _, stderr = gstream("run", job, "--overwrite", "--telemetry", s.URL)
	require.Equal(t, exitOK, code, "a run does not fail for its telemetry")
	require.Contains(t, stderr, "the report was not sent")
	code, _, stderr = gstream("sql", "COPY (SELECT 1 AS a) TO '"+t.TempDir()+"/a.parquet'", "--telemetry", file)
	require.Equal(t, exitOK, code, stderr)
	require.Regexp(t, `gstream_output_rows\{job_name="[^"]+"\} 1\n`, metrics())
	for _, args := range [][]string{{"run", job, "--telemetry", "x"}, {"run", job, job, "--telemetry", file},
		{"sql", "SELECT 1", "--telemetry", file}} {
		code, _, stderr = gstream(args...)
		require.Equal(t, exitJob, code, "%v %s", args, stderr)
	}
}
