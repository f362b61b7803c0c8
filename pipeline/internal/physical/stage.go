package physical

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// Plan has a tree of stages for each of its outputs, which are computed one after the other. Stages that hold rows are
// read by several outputs. It is immutable.
type Plan struct {
	Name    string // name of the job
	Outputs []Output
}

// Output is a tree of stages and the columns of its rows.
type Output struct {
	Root *Stage
	// Permutation maps each column of Schema to its position in the root's strides.
	Permutation []int
	Schema      *gpu.Schema
	// Expect, if set, says that the rows are not written: they do not meet an expectation.
	Expect *Expectation
}

// Expectation is a condition on the rows of a step. The rows of its output do not meet it.
type Expectation struct {
	Step string // whose rows it is about
	Text string // as in not_null: [a]
	Warn bool   // the run continues
}

// Written returns the outputs that are written, in order.
func (p *Plan) Written() (list []Output) {
	for _, o := range p.Outputs {
		if o.Expect == nil {
			list = append(list, o)
		}
	}
	return list
}

// Stage is a scan, an operator, or a union. Stages form a tree and are immutable. A run
// makes its own operators.
type Stage struct {
	Step   string // step of the job, or steps, by which its work was written
	At     string // step where it is done: a filter that has moved to a scan is done at that
	Spec   Spec
	Detail []string
	Schema *gpu.Schema // schema of the strides that it emits
	Inputs []*Stage    `json:"-"` // of a join: probe side, build side
	// Filters are the joins that may drop rows of a scan.
	Filters []*JoinFilter
	// Failures tells where the expressions were written that may fail in the stage, by their texts in errors.
	Failures map[string]expr.Origin

	Rows float64 // estimate
	// RowBytes is an estimate of the bytes of a row; of a scan, of a decoded row.
	RowBytes float64
	Pairs    float64 // of a join without an equality: estimate of the pairs that it compares
	Sorted   float64 // of a join by a range: estimate of the values of the rows that it sorts
	Computed int     // of a projection: the columns that are more than a column of the input
	Cost     float64 // estimated time of a row of the first input on a CPU core, in nanoseconds

	// Distribution says on which devices the rows are, in a plan for several devices.
	Distribution Distribution `json:",omitzero"`

	// From tells for each column from which column of the first input it comes unchanged, or
	// -1. It is nil if rows of that input cannot be left out without a change of other rows.
	From []int
}

// JoinFilter is a join whose build side rules out rows of a scan. The rows go from the scan to the
// probe side of the join.
type JoinFilter struct {
	Join    *Stage `json:"-"`
	Columns []int  // of the scan's strides: the keys
	// Few says that few rows of the scan have a match, by the estimate, so the bounds of the
	// keys may rule out parts of the table. Bloom says that it also pays to test every row.
	Few, Bloom bool
	// Matches is the share of the rows of the scan with a match, by the estimate.
	Matches float64
	// First says that the keys may decide which rows of its other columns the scan reads (source.First).
	First bool `json:",omitempty"`
}

// RunsOn returns an error, a *job.Diagnostic, if the job forces an algorithm that is not for a device.
func (p *Plan) RunsOn(device gpu.Properties) error {
	var refused error
	p.Visit(func(s *Stage) {
		c, ok := s.Spec.(chooser)
		if !ok || refused != nil {
			return
		}
		if err := c.RunsOn(device); err != nil {
			refused = &job.Diagnostic{Step: s.Step, Msg: err.Error()}
		}
	})
	return refused
}

// Visit calls f for each stage, after its inputs. It is the order of reports.
func (p *Plan) Visit(f func(*Stage)) {
	var visit func(*Stage)
	visit = func(s *Stage) {
		for _, in := range s.Inputs {
			visit(in)
		}
		f(s)
	}
	for _, o := range p.Outputs {
		visit(o.Root)
	}
}

// Bind gives the scans of a plan their tables, by the names of the sources.
func (p *Plan) Bind(tables map[string]source.Table) (err error) {
	p.Visit(func(s *Stage) {
		if scan := s.Scan(); scan != nil && err == nil {
			err = scan.Bind(tables[scan.Source], s.Schema)
		}
	})
	return err
}

// Scan returns the spec of a scan, nil for other stages.
func (s *Stage) Scan() *Scan {
	scan, _ := s.Spec.(*Scan)
	return scan
}

// Source returns how the stage reads rows that no other stage has: the scan of a table, or of values. It is nil for
// other stages.
func (s *Stage) Source() *Scan {
	values, ok := s.Spec.(*Values)
	if !ok {
		return s.Scan()
	}
	scan := &Scan{Table: source.NewValues(s.Schema, values.Rows)}
	for i := range s.Schema.Fields {
		scan.Columns = append(scan.Columns, i)
	}
	return scan
}

// Choose returns a line about the algorithm that the operator will probably take on a device, "" if there is no choice.
func (s *Stage) Choose(device gpu.Properties) string {
	if c, ok := s.Spec.(chooser); ok {
		return c.Choose(device)
	}
	return ""
}

// Kind returns what the stage does, in reports and errors.
func (s *Stage) Kind() string { return s.Spec.Name() }

// Name returns the stage's name in reports and errors.
func (s *Stage) Name() string { return s.Step + ": " + s.Kind() }
