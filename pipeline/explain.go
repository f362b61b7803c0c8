package pipeline

import (
	"fmt"
	"strings"
)

// Explanation is a plan for people and programs: the tree of stages from the
// output down to the scans.
type Explanation struct {
	Job    string          `json:"job,omitempty"`
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

// StageExplained is one stage and what feeds it.
type StageExplained struct {
	Step    string            `json:"step"`
	Kind    string            `json:"kind"`
	Detail  []string          `json:"detail,omitempty"`
	Columns []ColumnInfo      `json:"columns"`
	Rows    float64           `json:"estimated_rows"`
	Device  string            `json:"device"`
	Inputs  []*StageExplained `json:"inputs,omitempty"` // of a join: streamed side, built side
}

// Explain describes the plan on a device of the given kind.
func (p *Plan) Explain(device string) *Explanation {
	e := &Explanation{Job: p.job.Name, Output: p.output.Describe(), Root: explainStage(p.root, device)}
	for _, f := range p.schema.Fields {
		e.Schema = append(e.Schema, ColumnInfo{f.Name, f.Type.String(), f.Nullable})
	}
	return e
}

func explainStage(s *stage, device string) *StageExplained {
	e := &StageExplained{Step: s.step, Kind: s.kind, Detail: s.detail, Rows: s.rows, Device: device}
	if s.kind == "scan" {
		e.Device = "host"
	}
	for _, f := range s.schema.Fields {
		e.Columns = append(e.Columns, ColumnInfo{f.Name, f.Type.String(), f.Nullable})
	}
	for _, in := range s.inputs {
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
	e.Root.draw(&b, "", true)
	return b.String()
}

func (s *StageExplained) draw(b *strings.Builder, indent string, last bool) {
	branch, below := "├─ ", indent+"│  "
	if last {
		branch, below = "└─ ", indent+"   "
	}
	fmt.Fprintf(b, "%s%s%s (%s)  about %s rows, %s\n", indent, branch, s.Kind, s.Step, approximate(s.Rows), s.Device)
	detail := below + "     "
	if len(s.Inputs) > 0 {
		detail = below + "│    "
	}
	for _, d := range s.Detail {
		fmt.Fprintf(b, "%s%s\n", detail, d)
	}
	for i, in := range s.Inputs {
		in.draw(b, below, i == len(s.Inputs)-1)
	}
}
