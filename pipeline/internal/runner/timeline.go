package runner

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/execution"
)

// The lanes of the host and its disk on a timeline.
const (
	laneDecode = "decode"
	laneEncode = "encode"
	laneWrite  = "spill write"
	laneRead   = "spill read"
	laneCPU    = "CPU lanes"
	laneWork   = "lanes"
)

// maxHostSpans bounds the spans of the host that are kept.
const maxHostSpans = 1 << 17

// hostSpans collects the spans of decoding, encoding and spilling to disk.
type hostSpans struct {
	mu      sync.Mutex
	spans   []gpu.Span
	leftOut int64 // spans that were not kept
}

// trace returns the function that a source or sink calls after each task. It is nil when
// the run keeps no timeline.
func (r *run) trace(lane, stage string) func(string, time.Time) {
	if !r.opt.Timeline {
		return nil
	}
	return func(what string, begin time.Time) { r.span(lane, stage, what, begin, 0) }
}

// traceSpill is trace for the data that goes to disk and is read back.
func (r *run) traceSpill() func(string, bool, time.Time, int64) {
	if !r.opt.Timeline {
		return nil
	}
	return func(stage string, write bool, begin time.Time, bytes int64) {
		if write {
			r.span(laneWrite, stage, "write", begin, bytes)
		} else {
			r.span(laneRead, stage, "read", begin, bytes)
		}
	}
}

// span records a span that ends now.
func (r *run) span(lane, stage, what string, begin time.Time, bytes int64) {
	if !r.opt.Timeline {
		return
	}
	r = r.whole().first()
	start, end := begin.Sub(r.started), time.Since(r.started)
	r.keepSpan(gpu.Span{Lane: lane, Stage: stage, Name: what, Start: start, End: end, Bytes: bytes})
}

// keepSpan records a span. The run is the whole one.
func (r *run) keepSpan(s gpu.Span) {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if len(r.host.spans) == maxHostSpans {
		r.host.leftOut++
		return
	}
	r.host.spans = append(r.host.spans, s)
}

// merge returns the spans of devices and of the host in order.
func (h *hostSpans) merge(devices []gpu.Span) []gpu.Span {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := append(slices.Clone(h.spans), devices...)
	slices.SortFunc(out, func(a, b gpu.Span) int { return int(a.Start - b.Start) })
	return out
}

//go:embed timeline.html
var timelineHTML string

var timelinePage = template.Must(template.New("timeline").Parse(timelineHTML))

// WriteTimeline writes the spans of a report as a self-contained HTML page: lanes and queues as rows, time across, and
// who waited for whom.
func WriteTimeline(w io.Writer, r *execution.Report) error {
	lanes := []string{"set up", laneDecode, "copy up", "decode pages", "kernels", "copy down", laneWork, laneCPU,
		laneWrite, laneRead, laneEncode}
	hostLanes := len(lanes)
	type row struct {
		Lane  int   `json:"l"`
		Stage int   `json:"s"`
		Name  int   `json:"n"`
		Start int64 `json:"a"` // microseconds
		End   int64 `json:"b"`
		Bytes int64 `json:"z,omitempty"`
		// These are of lanes.
		Worker int   `json:"w,omitempty"`
		Rows   int64 `json:"m,omitempty"`
		For    int   `json:"f"` // -1 for work
	}
	index := map[string]int{}
	var names []string
	intern := func(s string) int {
		i, ok := index[s]
		if !ok {
			i = len(names)
			index[s], names = i, append(names, s)
		}
		return i
	}
	rows := []row{}
	for _, s := range r.Spans {
		if !slices.Contains(lanes, s.Lane) { // of one of several devices
			lanes = append(lanes, s.Lane)
		}
	}
	slices.Sort(lanes[hostLanes:])
	for _, s := range r.Spans {
		one := row{slices.Index(lanes, s.Lane), intern(s.Stage), intern(s.Name), s.Start.Microseconds(),
			s.End.Microseconds(), s.Bytes, s.Worker, s.Rows, -1}
		if s.For != "" {
			one.For = intern(s.For)
		}
		rows = append(rows, one)
	}
	data, err := json.Marshal(map[string]any{"lanes": lanes, "names": names, "spans": rows,
		"wall": r.Wall.Microseconds(), "title": r.Job, "device": r.Device, "leftOut": r.SpansLeftOut})
	if err != nil {
		return err
	}
	return timelinePage.Execute(w, template.JS(data)) //nolint:gosec // encoding/json escapes what ends a script
}
