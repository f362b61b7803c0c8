package pipeline

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/internal/runner"
)

// Explanation is a plan for people and programs: the tree of stages from the output down
// to the scans.
type Explanation struct {
	Job    string          `json:"job,omitempty"`
	Output string          `json:"output"`
	Choice *Choice         `json:"device_choice,omitempty"` // set by the caller
	Schema []ColumnInfo    `json:"schema"`
	Root   *StageExplained `json:"plan"`
	// Unsampled is why a table of which the planner wanted to see some rows could not be read. The estimates are
	// guesses then.
	Unsampled string        `json:"unsampled,omitempty"`
	Rules     []RuleApplied `json:"rules,omitempty"`  // of the planner, if it was asked to trace them
	Actual    *Report       `json:"actual,omitempty"` // report of a run
}

// ColumnInfo is a column of the result.
type ColumnInfo struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Nullable bool   `json:"nullable"`
}

// StageExplained is one stage and its inputs.
type StageExplained struct {
	Step    string            `json:"step"`
	Kind    string            `json:"kind"`
	Detail  []string          `json:"detail,omitempty"`
	Columns []ColumnInfo      `json:"columns"`
	Rows    float64           `json:"estimated_rows"`
	Device  string            `json:"device"`
	Runs    int               `json:"runs"`             // number of times that the step runs, see countRuns
	Actual  *StageReport      `json:"actual,omitempty"` // report of a run
	at      string            // the step that does it
	Inputs  []*StageExplained `json:"inputs,omitempty"` // of a join: probe side, build side
}

// Explain describes the plan on a device of the given kind.
func (p *Plan) Explain(device string) *Explanation {
	e := &Explanation{Job: p.stages.Name, Output: p.output.Describe(), Rules: p.rules,
		Root: explainStage(p.stages.Root, device)}
	if p.unsampled != nil {
		e.Unsampled = p.unsampled.Error()
	}
	for _, f := range p.stages.Schema.Fields {
		e.Schema = append(e.Schema, ColumnInfo{f.Name, f.TypeName(), f.Nullable})
	}
	e.countRuns()
	return e
}

// Analyze adds the report of a run of the plan.
func (e *Explanation) Analyze(r *Report) {
	e.Actual = r
	at := 0
	e.Root.visit(func(s *StageExplained) {
		s.Actual = &r.Stages[at]
		at++
	})
}

// visit calls f for a stage after its inputs, which is the order of a report.
func (s *StageExplained) visit(f func(*StageExplained)) {
	for _, in := range s.Inputs {
		in.visit(f)
	}
	f(s)
}

// countRuns sets the number of times that each step runs. A step that several steps read runs once
// for each of them, unless its rows are materialized. Consecutive stages of one step are one run.
func (e *Explanation) countRuns() {
	runs := map[string]int{}
	var count func(s *StageExplained, above string)
	count = func(s *StageExplained, above string) {
		if s.at != above && s.Kind != "held" {
			runs[s.at]++
		}
		for _, in := range s.Inputs {
			count(in, s.at)
		}
	}
	count(e.Root, "")
	e.Root.visit(func(s *StageExplained) {
		if s.Runs = runs[s.at]; s.Runs > 1 {
			s.Detail = append(s.Detail[:len(s.Detail):len(s.Detail)],
				fmt.Sprintf("runs %d times, once for each step that reads it", s.Runs))
		}
	})
}

func explainStage(s *physical.Stage, device string) *StageExplained {
	e := &StageExplained{Step: s.Step, Kind: s.Kind(), Detail: s.Detail, Rows: s.Rows, Device: device, at: s.At}
	if s.Source() != nil {
		e.Device = Host
	}
	if choice := s.Choose(runner.Unopened(device)); choice != "" {
		e.Detail = append(e.Detail[:len(e.Detail):len(e.Detail)], choice)
	}
	for _, f := range s.Schema.Fields {
		e.Columns = append(e.Columns, ColumnInfo{f.Name, f.TypeName(), f.Nullable})
	}
	for _, in := range s.Inputs {
		e.Inputs = append(e.Inputs, explainStage(in, device))
	}
	return e
}

// String draws the tree.
func (e *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "write %s\n", e.Output)
	cols := make([]string, len(e.Schema))
	for i, c := range e.Schema {
		cols[i] = c.Name + " " + c.Type
	}
	fmt.Fprintf(&b, "    %s\n", strings.Join(cols, ", "))
	if e.Choice != nil {
		fmt.Fprintf(&b, "    %v\n", e.Choice)
	}
	if e.Unsampled != "" {
		fmt.Fprintf(&b, "    estimates are guesses, without a sample of a table: %s\n", e.Unsampled)
	}
	if r := e.Actual; r != nil {
		fmt.Fprintf(&b, "    took %.3f s on %s%s\n", r.Wall.Seconds(), r.Device, r.Activity)
		if l := r.Link; l != nil {
			fmt.Fprintf(&b, "    link: %.1f GB/s up, %.1f down, %.1f both ways, measured in this run\n", l.Up/1e9,
				l.Down/1e9, l.Both/1e9)
		}
		o := r.Output
		fmt.Fprintf(&b, "    wrote %s rows, %s, busy %.3f s, waited %.3f s%s\n", humanize.Comma(o.Rows),
			humanize.IBytes(uint64(o.Bytes)), o.Busy.Seconds(), o.Wait.Seconds(), o.Activity)
	}
	e.Root.draw(&b, "", 1, true)
	for _, r := range e.Rules {
		r.draw(&b)
	}
	return b.String()
}

// draw appends what a rule did.
func (r RuleApplied) draw(b *strings.Builder) {
	switch {
	case r.Rule == "":
		fmt.Fprintf(b, "\n%s:\n", r.Does)
	case !r.Changed:
		fmt.Fprintf(b, "\nrule %s changes nothing\n", r.Rule)
		return
	default:
		fmt.Fprintf(b, "\nrule %s: %s\n", r.Rule, r.Does)
	}
	for line := range strings.Lines(r.Plan) {
		fmt.Fprintf(b, "    %s", line)
	}
}

// deepest is the level from which stages are numbered instead of indented.
const deepest = 50

func (s *StageExplained) draw(b *strings.Builder, indent string, level int, last bool) {
	branch, below := "├─ ", indent+"│  "
	if last {
		branch, below = "└─ ", indent+"   "
	}
	if level >= deepest {
		branch, below = fmt.Sprintf("└─ level %d: ", level), indent
	}
	rows := fmt.Sprintf("about %s rows", logical.Approximate(s.Rows))
	if s.Actual != nil {
		rows += fmt.Sprintf(" (%s in fact)", humanize.Comma(s.Actual.RowsOut))
	}
	fmt.Fprintf(b, "%s%s%s (%s)  %s, %s\n", indent, branch, s.Kind, s.Step, rows, s.Device)
	detail := below + "     "
	if len(s.Inputs) > 0 {
		detail = below + "│    "
	}
	for _, d := range s.Detail {
		b.WriteString(detail)
		b.WriteString(d)
		b.WriteByte('\n')
	}
	if a := s.Actual; a != nil {
		if a.Choice != "" {
			fmt.Fprintf(b, "%sactual %s\n", detail, a.Choice)
		}
		fmt.Fprintf(b, "%sactual: %s rows in, %s out, busy %.3f s, waited %.3f s, blocked %.3f s, peak %s%s\n", detail,
			humanize.Comma(a.RowsIn),
			humanize.Comma(a.RowsOut), a.Busy.Seconds(), a.Wait.Seconds(), a.Blocked.Seconds(),
			humanize.IBytes(uint64(a.Peak)), a.Activity)
	}
	if a := s.Actual; a != nil && a.Dropped > 0 {
		fmt.Fprintf(b, "%sdropped by filters of joins: %s rows\n", detail, humanize.Comma(a.Dropped))
	}
	for i, in := range s.Inputs {
		in.draw(b, below, level+1, i == len(s.Inputs)-1)
	}
}
