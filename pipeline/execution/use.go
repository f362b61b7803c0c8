package execution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Use says what a finished run kept busy, so that one sees what limits it. Shares are parts of the time of the run
// after Start. Several can be close to 1, because all of this happens at the same time.
type Use struct {
	// Start is when the GPU was ready. It is 0 on the CPU, and for a GPU that was ready before the run.
	Start time.Duration `json:"device_ready_ns"`
	// Cores is the processor time of the process, as a share of that of the run's threads over the whole run. Other
	// work of the process counts, too.
	Cores float64 `json:"cores"`
	// Decoding, Kernels, Up and Down are the shares of the time in which the GPU decoded pages, ran other kernels, and
	// copied.
	Decoding float64 `json:"decode_pages"`
	Kernels  float64 `json:"kernels"`
	Up       float64 `json:"copy_up"`
	Down     float64 `json:"copy_down"`
	// FromDisks are the bytes that the process read from disks, and not from the page cache, for this and other work.
	FromDisks int64 `json:"bytes_from_disks"`
}

// busyEnough is the share of the time from which on something limits a run.
const busyEnough = 0.6

// shares are what may limit a run.
func (u *Use) shares() []share {
	return []share{{"cores", u.Cores}, {"decoding pages", u.Decoding}, {"kernels", u.Kernels}, {"copies up", u.Up},
		{"copies down", u.Down}}
}

type share struct {
	what string
	part float64
}

// limit returns what was busy for most of the time, or how to see why nothing was. read is the number of bytes that the
// scans have read.
func (u *Use) limit(wall time.Duration, read int64) string {
	if u.Start > wall/2 {
		return "the start of the GPU"
	}
	most := slices.MaxFunc(u.shares(), func(a, b share) int { return cmp.Compare(a.part, b.part) })
	switch {
	case most.part >= busyEnough:
		return most.what
	case read > 0 && u.FromDisks > read/2:
		return "disks"
	}
	return "nothing alone; the timeline shows what waits for what"
}

// UseText says in two lines what a run kept busy, and what limits it. It is empty if the run has not ended.
func (r *Report) UseText() string {
	u := r.Use
	if u == nil {
		return ""
	}
	var busy []string
	for _, s := range u.shares() {
		if s.part >= 0.005 {
			busy = append(busy, fmt.Sprintf("%s %.0f %%", s.what, 100*s.part))
		}
	}
	text := "busy: " + strings.Join(busy, ", ")
	if u.Start > 0 {
		text += fmt.Sprintf("; the GPU was ready after %.3f s", u.Start.Seconds())
	}
	if u.FromDisks > 0 {
		text += fmt.Sprintf("; %s came from disks", humanize.IBytes(uint64(u.FromDisks)))
	}
	read := int64(0)
	for _, s := range r.Stages {
		if s.Scan != nil {
			read += s.Scan.BytesRead
		}
	}
	return text + "\nwhat limits the run: " + u.limit(r.Wall, read)
}
