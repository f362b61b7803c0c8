package execution

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// Report says what a run did, or how far it has come.
type Report struct {
	Job     string        `json:"job,omitempty"`
	Device  string        `json:"device"` // name
	Kind    string        `json:"device_kind"`
	Choice  *Choice       `json:"device_choice,omitempty"` // of a run that opened its own device
	Threads int           `json:"threads"`                 // that decode and encode
	Wall    time.Duration `json:"wall_ns"`
	// PeakHost and PeakDevice are the most bytes reserved from the budgets, by all
	// runs that share the device; PeakRSS is the most memory the whole process has
	// held.
	PeakHost   int64 `json:"peak_host_bytes"`
	PeakDevice int64 `json:"peak_device_bytes"`
	PeakRSS    int64 `json:"peak_rss_bytes"`
	Done       bool  `json:"done"` // the output is complete
	// Error is why it is not, of a run that has ended.
	Error string `json:"error,omitempty"`
	// Activity is the sum over the stages and the output of a run on a GPU, and
	// Link what the GPU is connected by, measured at the end of the run.
	Activity *ActivityReport `json:"activity,omitempty"`
	Link     *LinkReport     `json:"link,omitempty"`
	// Spans are the pieces of work of a finished run, in order of start, by the
	// run's clock, when Options.Timeline asked for them.
	Spans  []gpu.Span    `json:"-"`
	Stages []StageReport `json:"stages"`
	Output OutputReport  `json:"output"`
}

// StageReport is one stage; inputs come before their consumers.
type StageReport struct {
	Step     string `json:"step"`
	Kind     string `json:"kind"`
	Device   string `json:"device"`
	State    string `json:"state"` // "waiting", "running" or "done"
	RowsIn   int64  `json:"rows_in"`
	RowsOut  int64  `json:"rows_out"`
	BytesOut int64  `json:"bytes_out"`
	// Busy is the time of work of all lanes, of a scan also that of all goroutines that
	// decode: on many cores it may be more than the wall's. So may be the times below.
	Busy time.Duration `json:"busy_ns"`
	// Wait is the time without input, or for a scan the time until decoders had
	// a stride; Blocked the time until the next stage took one.
	Wait     time.Duration `json:"wait_ns"`
	Blocked  time.Duration `json:"blocked_ns"`
	Peak     int64         `json:"peak_bytes"`
	Estimate float64       `json:"estimated_rows"`
	// Activity is what the stage did on a device that measures it, a GPU.
	Activity *ActivityReport `json:"activity,omitempty"`
	// Scan is the progress of a scan, nil for other stages. Until the scan has
	// begun its totals are estimates.
	Scan *source.Progress `json:"scan,omitempty"`
}

// ActivityReport is a stage's or a run's use of a GPU: device time by the GPU's
// own clock, from events around every primitive and every copy.
type ActivityReport struct {
	Launches    int64         `json:"kernel_launches"`
	Kernels     time.Duration `json:"kernel_ns"`
	BytesUp     int64         `json:"bytes_up"`
	BytesDown   int64         `json:"bytes_down"`
	CopyingUp   time.Duration `json:"copy_up_ns"`
	CopyingDown time.Duration `json:"copy_down_ns"`
	// FractionUp and FractionDown are the rate of the copies while they ran, over
	// the rate measured of the link in that direction.
	FractionUp   float64 `json:"link_fraction_up,omitempty"`
	FractionDown float64 `json:"link_fraction_down,omitempty"`
}

// LinkReport is the link to the GPU as measured in the run, bytes a second.
type LinkReport struct {
	Up   float64 `json:"up"`
	Down float64 `json:"down"`
	Both float64 `json:"both"`
}

// String says what was done on the GPU, as the end of a line; nothing for nil.
func (a *ActivityReport) String() string {
	if a == nil {
		return ""
	}
	var b strings.Builder
	if a.Launches > 0 {
		fmt.Fprintf(&b, "; %d kernels, %.3f s on the GPU", a.Launches, a.Kernels.Seconds())
	}
	copied := func(bytes int64, took time.Duration, way string, share float64) {
		if bytes > 0 && took > 0 {
			fmt.Fprintf(&b, "; %s %s at %.1f GB/s, %.0f %% of the link", humanize.IBytes(uint64(bytes)), way, float64(bytes)/took.Seconds()/1e9, 100*share)
		}
	}
	copied(a.BytesUp, a.CopyingUp, "up", a.FractionUp)
	copied(a.BytesDown, a.CopyingDown, "down", a.FractionDown)
	return b.String()
}

// OutputReport is what the sink has written.
type OutputReport struct {
	Target string        `json:"target"`
	Rows   int64         `json:"rows"`
	Bytes  int64         `json:"bytes"`
	Files  int64         `json:"files"`
	Busy   time.Duration `json:"busy_ns"`
	Wait   time.Duration `json:"wait_ns"`
	Peak   int64         `json:"peak_bytes"`
	// Activity is the copying of the result from a GPU.
	Activity *ActivityReport `json:"activity,omitempty"`
}
