package execution

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// Check is the memory that a run is expected to need, and to spill, under its budgets. All of it
// depends on the plan's estimates of rows, so a run may need more or less.
type Check struct {
	Job      string       `json:"job,omitempty"`
	Device   string       `json:"device"`
	Kind     string       `json:"device_kind"`
	Finishes bool         `json:"finishes"`
	Problems []Problem    `json:"refusals"` // why it does not finish
	Stages   []StageCheck `json:"stages"`   // those that keep rows, inputs before their consumers
	Tiers    []TierCheck  `json:"tiers"`    // fastest first
	// LinkUp and LinkDown are the bytes of spilled rows that cross the link to a GPU.
	LinkUp   int64 `json:"link_bytes_up"`
	LinkDown int64 `json:"link_bytes_down"`
	// Estimate is the time of the run by the model that chooses the device. It does not include the
	// cost of spilling.
	Estimate time.Duration `json:"estimate_ns"`
	// Tasks is set for a run in tasks. The rest is of the process that writes the outputs then.
	Tasks *TasksForecast `json:"tasks,omitempty"`
}

// Problem is a reason why a run would fail.
type Problem struct {
	Stage string `json:"stage,omitempty"` // the one that needs most of the tier that is too small
	Tier  string `json:"tier"`
	Needs int64  `json:"needs_bytes"`
	Limit int64  `json:"limit_bytes"`
	Why   string `json:"why"`
	Hint  string `json:"hint"` // what to change
}

// StageCheck is the memory that a stage is expected to need.
type StageCheck struct {
	Step string  `json:"step"`
	Kind string  `json:"kind"`
	Rows float64 `json:"estimated_rows"` // rows of its result
	// Holds is the bytes that it keeps if nothing spills, Fixed is the part of Holds that cannot
	// spill. Host and Disk are the bytes that spill to these tiers.
	Holds int64 `json:"holds_bytes"`
	Fixed int64 `json:"must_fit_bytes"`
	Host  int64 `json:"spills_to_host_bytes"`
	Disk  int64 `json:"spills_to_disk_bytes"`
}

// The tiers of a Check. On the CPU there is no tier of a device.
const (
	TierDevice = "device memory"
	TierHost   = "host memory"
	TierDisk   = "disk"
)

// TierCheck is what a tier is expected to hold. Rows that spill are written to the next tier, and
// read from it once.
type TierCheck struct {
	Tier    string `json:"tier"`
	Device  string `json:"device,omitempty"` // of the device's memory, if there are several
	Setting string `json:"setting"`          // the flag that sets the limit
	Dir     string `json:"dir,omitempty"`    // of the disk
	Limit   int64  `json:"limit_bytes"`
	// Needs is the peak of bytes if nothing spills to the next tier; on the disk, before
	// compression. Fixed is the peak of bytes that cannot spill.
	Needs int64 `json:"needs_bytes"`
	Fixed int64 `json:"must_fit_bytes"`
	// Spilled are the bytes that move to the next tier.
	Spilled int64 `json:"spilled_bytes"`
}

// String describes the check as text.
func (c *Check) String() string {
	var b strings.Builder
	bytes := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return humanize.IBytes(uint64(n))
	}
	if len(c.Stages) > 0 {
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "stage\trows out\tholds\tmust fit\tto host\tto disk\t")
		for _, s := range c.Stages {
			fmt.Fprintf(t, "%s (%s)\t%s\t%s\t%s\t%s\t%s\t\n", s.Step, s.Kind, humanize.Comma(int64(s.Rows)),
				bytes(s.Holds), bytes(s.Fixed), bytes(s.Host), bytes(s.Disk))
		}
		t.Flush()
	}
	if c.Tasks != nil {
		c.Tasks.table(&b)
		b.WriteString("the process that writes the outputs:\n")
	}
	for _, t := range c.Tiers {
		tier := t.Tier
		if t.Device != "" {
			tier += " of " + t.Device
		}
		fmt.Fprintf(&b, "%s: needs %s of %s (%s)", tier, humanize.IBytes(uint64(t.Needs)),
			humanize.IBytes(uint64(t.Limit)), t.Setting)
		if t.Spilled > 0 {
			fmt.Fprintf(&b, "; %s spill", humanize.IBytes(uint64(t.Spilled)))
		}
		if t.Dir != "" {
			fmt.Fprintf(&b, " in %s, before compression", t.Dir)
		}
		b.WriteByte('\n')
	}
	if c.LinkDown > 0 {
		fmt.Fprintf(&b, "link: %s of spilled rows down, %s up\n", humanize.IBytes(uint64(c.LinkDown)),
			humanize.IBytes(uint64(c.LinkUp)))
	}
	fmt.Fprintf(&b, "time: about %.2g s on %s, not counting what spills\n", c.Estimate.Seconds(), c.Device)
	if c.Finishes {
		b.WriteString("The run will finish")
	} else {
		b.WriteString("The run would fail")
	}
	b.WriteString(", by estimates of rows; it may need more or less.\n")
	for _, r := range c.Problems {
		fmt.Fprintf(&b, "  %s; %s\n", r.Why, r.Hint)
	}
	return b.String()
}
