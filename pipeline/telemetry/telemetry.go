// Package telemetry sends the report of a run to where operators of many jobs look: as metrics for Prometheus, and as
// spans for OpenTelemetry. It needs no library of either: metrics are a file for the textfile collector of the node
// exporter, since a job ends before it could be asked, and spans are sent by OTLP over HTTP, in JSON.
package telemetry

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gstream/gstream/pipeline"
)

// Check returns an error for a destination that Send does not know. It opens nothing.
func Check(to string) error {
	switch u, err := url.Parse(to); {
	case strings.HasSuffix(to, ".prom") && !strings.Contains(to, "://"):
		return nil
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return nil
	}
	return fmt.Errorf("%q: it must be a file FILE.prom, for metrics of Prometheus, or the address of a collector of "+
		"OpenTelemetry, as http://localhost:4318, for spans", to)
}

// Send sends the report of a run that ended at a time, also of one that failed. to is a file that ends in .prom, which
// is replaced as a whole, or the address of a collector that takes OTLP over HTTP. The environment variable TRACEPARENT
// may name the span around the run, as W3C Trace Context does. Send waits up to 10 seconds for a collector. The error
// has no class: the run itself is not affected.
func Send(ctx context.Context, to string, r *pipeline.Report, ended time.Time) error {
	if err := Check(to); err != nil {
		return err
	}
	if strings.HasSuffix(to, ".prom") && !strings.Contains(to, "://") {
		var b bytes.Buffer
		if err := WriteMetrics(&b, r, ended); err != nil {
			return err
		}
		return replace(to, b.Bytes())
	}
	return post(ctx, to, r, ended)
}

// replace writes a file under another name first, because the collector may read it at any time.
func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// WriteMetrics writes a report as metrics in the text format of Prometheus. All are gauges of the last run, and have
// the name of the job as a label.
func WriteMetrics(w io.Writer, r *pipeline.Report, ended time.Time) error {
	var b strings.Builder
	metric := func(name, help string) func(v float64, labels ...string) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
		return func(v float64, labels ...string) {
			fmt.Fprintf(&b, "%s{job_name=\"%s\"", name, escape(r.Job))
			for i := 0; i < len(labels); i += 2 {
				fmt.Fprintf(&b, ",%s=\"%s\"", labels[i], escape(labels[i+1]))
			}
			fmt.Fprintf(&b, "} %s\n", strconv.FormatFloat(v, 'g', -1, 64))
		}
	}
	success := 0.0
	if r.Done {
		success = 1
	}
	metric("gstream_run_success", "1 if the last run has ended without an error, 0 otherwise.")(success)
	metric("gstream_run_end_timestamp_seconds", "When the last run ended.")(float64(ended.UnixMilli()) / 1e3)
	metric("gstream_run_duration_seconds", "Time of the last run.")(r.Wall.Seconds())
	metric("gstream_output_rows", "Rows of the output.")(float64(r.Output.Rows))
	metric("gstream_output_bytes", "Bytes of the output.")(float64(r.Output.Bytes))
	memory := metric("gstream_peak_memory_bytes", "Peaks of memory: reserved on the host and the device, and resident.")
	memory(float64(r.PeakHost), "memory", "host")
	memory(float64(r.PeakDevice), "memory", "device")
	memory(float64(r.PeakRSS), "memory", "resident")
	spilled := metric("gstream_spilled_bytes", "Bytes of rows that did not fit memory.")
	spilled(float64(r.Spill.Host.In), "to", "host")
	spilled(float64(r.Spill.Disk.In), "to", "disk")
	busy := metric("gstream_stage_busy_seconds", "Working time of a stage, of all threads.")
	for i, s := range r.Stages {
		busy(s.Busy.Seconds(), "stage", stage(i, s))
	}
	rows := metric("gstream_stage_rows", "Rows that a stage has returned.")
	for i, s := range r.Stages {
		rows(float64(s.RowsOut), "stage", stage(i, s))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// stage names a stage. The number makes the name unique in a plan.
func stage(i int, s pipeline.StageReport) string {
	return fmt.Sprintf("%d %s (%s)", i+1, s.Step, s.Kind)
}

func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "�"))
}

// The parts of an export of spans, as OTLP has them in JSON.
type (
	attribute struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
	span struct {
		TraceID    string         `json:"traceId"`
		SpanID     string         `json:"spanId"`
		ParentID   string         `json:"parentSpanId,omitempty"`
		Name       string         `json:"name"`
		Kind       int            `json:"kind"`
		Start      string         `json:"startTimeUnixNano"`
		End        string         `json:"endTimeUnixNano"`
		Attributes []attribute    `json:"attributes,omitempty"`
		Status     map[string]any `json:"status,omitempty"`
	}
	scopeSpans struct {
		Scope map[string]any `json:"scope"`
		Spans []span         `json:"spans"`
	}
	resourceSpans struct {
		Resource map[string]any `json:"resource"`
		Scopes   []scopeSpans   `json:"scopeSpans"`
	}
)

func text(key, value string) attribute {
	return attribute{key, map[string]any{"stringValue": strings.ToValidUTF8(value, "�")}}
}

func number(key string, value int64) attribute {
	return attribute{key, map[string]any{"intValue": strconv.FormatInt(value, 10)}}
}

func seconds(key string, value time.Duration) attribute {
	return attribute{key, map[string]any{"doubleValue": value.Seconds()}}
}

// traceParent is the value of TRACEPARENT.
var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

func id(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// spans returns the spans of a run and of its stages.
func spans(r *pipeline.Report, ended time.Time) []span {
	began := ended.Add(-r.Wall)
	at := func(d time.Duration) string { return strconv.FormatInt(began.Add(d).UnixNano(), 10) }
	root := span{TraceID: id(16), SpanID: id(8), Name: "gstream run " + r.Job, Kind: 1, Start: at(0), End: at(r.Wall),
		Attributes: []attribute{text("gstream.job", r.Job), text("gstream.device", r.Device),
			text("gstream.target", r.Output.Target), number("gstream.rows", r.Output.Rows),
			number("gstream.bytes", r.Output.Bytes), number("gstream.peak_rss_bytes", r.PeakRSS)}}
	if m := traceParent.FindStringSubmatch(os.Getenv("TRACEPARENT")); m != nil {
		root.TraceID, root.ParentID = m[1], m[2]
	}
	root.Status = map[string]any{"code": 1}
	if !r.Done {
		root.Status = map[string]any{"code": 2, "message": strings.ToValidUTF8(r.Error, "�")}
	}
	all := []span{root}
	for i, s := range r.Stages {
		if s.Ended == 0 {
			continue // it never began
		}
		all = append(all, span{TraceID: root.TraceID, SpanID: id(8), ParentID: root.SpanID, Name: stage(i, s), Kind: 1,
			Start: at(s.Began), End: at(s.Ended), Attributes: []attribute{text("gstream.step", s.Step),
				text("gstream.kind", s.Kind), number("gstream.rows_in", s.RowsIn),
				number("gstream.rows_out", s.RowsOut),
				seconds("gstream.busy_seconds", s.Busy), seconds("gstream.wait_seconds", s.Wait),
				seconds("gstream.blocked_seconds", s.Blocked), number("gstream.peak_bytes", s.Peak),
				number("gstream.spilled_bytes", s.Spill.Host.In+s.Spill.Disk.In), text("gstream.bound", s.Bound())}})
	}
	return all
}

// patience bounds the time to send spans.
const patience = 10 * time.Second

// post sends spans to a collector.
func post(ctx context.Context, to string, r *pipeline.Report, ended time.Time) error {
	body, err := json.Marshal(map[string]any{"resourceSpans": []resourceSpans{{
		Resource: map[string]any{"attributes": []attribute{text("service.name", "gstream")}},
		Scopes: []scopeSpans{{Scope: map[string]any{"name": "github.com/gstream/gstream"},
			Spans: spans(r, ended)}}}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if u, err := url.Parse(to); err == nil && strings.Trim(u.Path, "/") == "" {
		to = strings.TrimRight(to, "/") + "/v1/traces"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)); err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("send spans to %s: the collector answers %s", to, answer.Status)
	}
	return nil
}
