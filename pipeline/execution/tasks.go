package execution

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/dustin/go-humanize/english"
)

// TasksForecast is what is expected of a run in tasks, by the estimates of rows.
type TasksForecast struct {
	Engine string `json:"engine,omitempty"` // where the tasks run
	// Written and Read are the bytes that all tasks write to and read from the files between them, before compression.
	Written   int64              `json:"work_dir_bytes_written"`
	Read      int64              `json:"work_dir_bytes_read"`
	Fragments []FragmentForecast `json:"fragments,omitempty"`
}

// FragmentForecast is what is expected of the tasks of a fragment, all together.
type FragmentForecast struct {
	Fragment int            `json:"fragment"`
	Does     string         `json:"does"`
	Tasks    int            `json:"estimated_tasks"`
	Here     bool           `json:"in_this_process,omitempty"` // as no worker can read its table
	Reads    []FragmentRead `json:"reads,omitempty"`
	Rows     float64        `json:"estimated_rows"`   // that are written for later tasks or into the output
	Output   string         `json:"output,omitempty"` // that its tasks write
	Written  int64          `json:"bytes_written"`
	Read     int64          `json:"bytes_read"` // of rows of earlier tasks
	Tables   int64          `json:"bytes_of_tables"`
	Tiers    []TierCheck    `json:"tiers_of_a_task,omitempty"`
}

// FragmentRead is what each task of a fragment reads of another one.
type FragmentRead struct {
	Fragment int    `json:"fragment"`
	Takes    string `json:"takes"`
}

// TasksText returns the number of tasks in words.
func (f FragmentForecast) TasksText() string { return english.Plural(f.Tasks, "task", "") }

// Where says that a fragment does not run on workers.
func (f FragmentForecast) Where() string {
	if f.Here {
		return ", in the process that runs the job"
	}
	return ""
}

// To says where the rows of a fragment go.
func (f FragmentForecast) To() string {
	if f.Output != "" {
		return "into files of " + f.Output
	}
	return humanize.IBytes(uint64(f.Written))
}

// Traffic returns the bytes between tasks in words.
func (t TasksForecast) Traffic() string {
	return fmt.Sprintf("tasks write %s for each other and read %s, before compression",
		humanize.IBytes(uint64(t.Written)), humanize.IBytes(uint64(t.Read)))
}

// table appends a line for each fragment.
func (t TasksForecast) table(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "fragment\ttasks\tof tables\tread\twritten\tmemory of a task\tlimit\t")
	for _, f := range t.Fragments {
		var needs, limit []string
		for _, tier := range f.Tiers {
			if tier.Tier == TierDisk && tier.Needs == 0 {
				continue
			}
			needs = append(needs, humanize.IBytes(uint64(tier.Needs)))
			limit = append(limit, humanize.IBytes(uint64(tier.Limit)))
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t\n", f.Fragment, f.Tasks, humanize.IBytes(uint64(f.Tables)),
			humanize.IBytes(uint64(f.Read)), humanize.IBytes(uint64(f.Written)), strings.Join(needs, " + "),
			strings.Join(limit, " + "))
	}
	w.Flush()
	fmt.Fprintf(b, "work folder: %s\n", t.Traffic())
}
