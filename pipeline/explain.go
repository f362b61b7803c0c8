package pipeline

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/pipeline/execution"
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
	// Expectations and Others are the plans of the rows that do not meet expectations, and of the outputs after the
	// first one.
	Expectations []*OutputExplained `json:"expectations,omitempty"`
	Others       []*OutputExplained `json:"other_outputs,omitempty"`
	// Unsampled is why a table of which the planner wanted to see some rows could not be read. The estimates are
	// guesses then.
	Unsampled string `json:"unsampled,omitempty"`
	// Tasks are the fragments of a run in tasks. Root is the plan of the process that writes the outputs then.
	Tasks  *TasksExplained `json:"tasks,omitempty"`
	Rules  []RuleApplied   `json:"rules,omitempty"`  // of the planner, if it was asked to trace them
	Actual *Report         `json:"actual,omitempty"` // report of a run
}

// OutputExplained is the plan of an output, or of the rows that do not meet an expectation.
type OutputExplained struct {
	Output string          `json:"output"`
	Schema []ColumnInfo    `json:"schema"`
	Root   *StageExplained `json:"plan"`
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
func (p *Plan) Explain(device string) *Explanation { return p.ExplainChoice(&Choice{Device: device}) }

// ExplainChoice describes the plan on the device that ChooseDevice returned. On several GPUs it has the exchanges of
// rows between them.
func (p *Plan) ExplainChoice(c *Choice) *Explanation {
	stages := p.stages
	if c.GPUs > 1 {
		stages = runner.Distribute(stages, p.targets, c.GPUs, true, RunOptions{})
	}
	return p.explain(stages, c.Device)
}

// explain describes stages of the plan.
func (p *Plan) explain(stages *physical.Plan, device string) *Explanation {
	e := &Explanation{Job: stages.Name, Rules: p.rules}
	if p.unsampled != nil {
		e.Unsampled = p.unsampled.Error()
	}
	written := 0
	for _, o := range stages.Outputs {
		out := &OutputExplained{Root: explainStage(o.Root, device)}
		for _, f := range o.Schema.Fields {
			out.Schema = append(out.Schema, ColumnInfo{f.Name, f.TypeName(), f.Nullable})
		}
		if o.Expect != nil {
			out.Output = fmt.Sprintf("%s: expect %s", o.Expect.Step, o.Expect.Text)
			e.Expectations = append(e.Expectations, out)
			continue
		}
		if out.Output = p.targets[written].Describe(); written == 0 {
			e.Output, e.Schema, e.Root = out.Output, out.Schema, out.Root
		} else {
			e.Others = append(e.Others, out)
		}
		written++
	}
	e.countRuns()
	return e
}

// Analyze adds the report of a run of the plan.
func (e *Explanation) Analyze(r *Report) {
	e.Actual = r
	at := 0
	for _, root := range e.roots() {
		root.visit(func(s *StageExplained) {
			s.Actual = &r.Stages[at]
			at++
		})
	}
}

// roots are the last stages of the outputs, in the order in which they run.
func (e *Explanation) roots() (list []*StageExplained) {
	for _, x := range e.Expectations {
		list = append(list, x.Root)
	}
	list = append(list, e.Root)
	for _, o := range e.Others {
		list = append(list, o.Root)
	}
	if e.Tasks != nil {
		for _, f := range e.Tasks.Fragments {
			list = append(list, f.Root)
		}
	}
	return list
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
	for _, root := range e.roots() {
		count(root, "")
	}
	for _, root := range e.roots() {
		root.visit(func(s *StageExplained) {
			if s.Runs = runs[s.at]; s.Runs > 1 {
				s.Detail = append(s.Detail[:len(s.Detail):len(s.Detail)],
					fmt.Sprintf("runs %d times, once for each step that reads it", s.Runs))
			}
		})
	}
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
	columns := func(schema []ColumnInfo) {
		list := make([]string, len(schema))
		for i, c := range schema {
			list[i] = c.Name + " " + c.Type
		}
		fmt.Fprintf(&b, "    %s\n", strings.Join(list, ", "))
	}
	columns(e.Schema)
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
		for line := range strings.Lines(r.UseText()) {
			fmt.Fprintf(&b, "    %s\n", strings.TrimSpace(line))
		}
		o := r.Output
		fmt.Fprintf(&b, "    wrote %s rows, %s, busy %.3f s, waited %.3f s%s\n", humanize.Comma(o.Rows),
			humanize.IBytes(uint64(o.Bytes)), o.Busy.Seconds(), o.Wait.Seconds(), o.Activity)
	}
	d := drawing{Builder: &b}
	if e.Actual == nil {
		d.findEqual(e.roots()...)
	}
	d.draw(e.Root, "", 1, true)
	for _, o := range e.Others {
		fmt.Fprintf(&b, "write %s\n", o.Output)
		columns(o.Schema)
		d.draw(o.Root, "", 1, true)
	}
	for _, x := range e.Expectations {
		fmt.Fprintf(&b, "%s; the rows that do not meet it:\n", x.Output)
		d.draw(x.Root, "", 1, true)
	}
	if e.Tasks != nil {
		e.Tasks.draw(&b, &d)
	}
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

// drawing draws stages. Stages that are computed for each of several readers, with equal stages below them, are drawn
// once.
type drawing struct {
	*strings.Builder
	ids     map[*StageExplained]int // equal for stages that are drawn alike, with all stages below them
	readers map[int]int             // by ID: the stages that read one that is drawn alike, through different stages
	labels  map[int]int             // by ID, of those with several readers that are drawn: #1, #2 and so on
}

// findEqual gives stages their IDs.
func (d *drawing) findEqual(roots ...*StageExplained) {
	d.ids, d.readers, d.labels = map[*StageExplained]int{}, map[int]int{}, map[int]int{}
	known := map[string]int{}
	find := func(s *StageExplained) {
		var key []byte
		for _, text := range append([]string{s.Kind, s.Step, s.Device}, s.Detail...) {
			key = append(strconv.AppendInt(key, int64(len(text)), 10), ' ')
			key = append(key, text...)
		}
		key = strconv.AppendFloat(key, s.Rows, 'g', -1, 64)
		for _, in := range s.Inputs {
			key = strconv.AppendInt(append(key, ' '), int64(d.ids[in]), 10)
		}
		id, ok := known[string(key)]
		if !ok {
			id = len(known)
			known[string(key)] = id
			for _, in := range s.Inputs { // those of an equal stage are not drawn
				d.readers[d.ids[in]]++
			}
		}
		d.ids[s] = id
	}
	for _, root := range roots {
		root.visit(find)
	}
}

// again labels a stage that is drawn several times, and reports whether it has been drawn.
func (d *drawing) again(s *StageExplained) (label string, drawn bool) {
	id, ok := d.ids[s]
	if !ok || len(s.Inputs) == 0 || d.readers[id] < 2 {
		return "", false
	}
	n, drawn := d.labels[id]
	if !drawn {
		n = len(d.labels) + 1
		d.labels[id] = n
		return fmt.Sprintf(", #%d", n), false
	}
	return fmt.Sprintf(", as #%d", n), true
}

func (d *drawing) draw(s *StageExplained, indent string, level int, last bool) {
	b := d.Builder
	branch, below := "├─ ", indent+"│  "
	if last {
		branch, below = "└─ ", indent+"   "
	}
	if level >= deepest {
		indent, branch, below = "", fmt.Sprintf("└─ level %d: ", level), "   "
	}
	rows := fmt.Sprintf("about %s rows", logical.Approximate(s.Rows))
	if s.Actual != nil {
		rows += fmt.Sprintf(" (%s in fact)", humanize.Comma(s.Actual.RowsOut))
	}
	label, drawn := d.again(s)
	fmt.Fprintf(b, "%s%s%s (%s)  %s, %s%s\n", indent, branch, s.Kind, s.Step, rows, s.Device, label)
	if drawn {
		return
	}
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
		fmt.Fprintf(b, "%sactual: %s rows in, %s out, busy %.3f s, waited %.3f s, blocked %.3f s, peak %s%s; %s\n",
			detail, humanize.Comma(a.RowsIn),
			humanize.Comma(a.RowsOut), a.Busy.Seconds(), a.Wait.Seconds(), a.Blocked.Seconds(),
			humanize.IBytes(uint64(a.Peak)), a.Activity, a.Bound())
	}
	if a := s.Actual; a != nil && a.Iterations > 0 {
		fmt.Fprintf(b, "%sactual iterations: %s\n", detail, humanize.Comma(a.Iterations))
	}
	if a := s.Actual; a != nil && a.Dropped > 0 {
		fmt.Fprintf(b, "%sdropped by filters of joins: %s rows\n", detail, humanize.Comma(a.Dropped))
	}
	if a := s.Actual; a != nil && a.Scan != nil && a.Scan.BytesFirst > 0 {
		fmt.Fprintf(b, "%s%s\n", detail, execution.Filtered(a.Scan))
	}
	for i, in := range s.Inputs {
		d.draw(in, below, level+1, i == len(s.Inputs)-1)
	}
}
