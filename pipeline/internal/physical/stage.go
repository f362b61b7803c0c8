package physical

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// Plan is a tree of stages and the columns of its result. It is immutable.
type Plan struct {
	Name string // name of the job
	Root *Stage
	// Permutation maps each column of Schema to its position in the root's strides.
	Permutation []int
	Schema      *gpu.Schema
}

// Stage is a scan, an operator, or a union. Stages form a tree and are immutable. A run
// makes its own operators.
type Stage struct {
	Step   string // step of the job, or steps, by which its work was written
	At     string // step where it is done: a filter that has moved to a scan is done at that
	Kind   string // "scan", "filter", "join" …
	Detail []string
	Exprs  []*expr.Expr // that it evaluates, as compiled
	Schema *gpu.Schema  // schema of the strides that it emits
	Rows   float64      // estimate
	// RowBytes is an estimate of the bytes of a row; of a scan, of a decoded row.
	RowBytes float64
	Inputs   []*Stage // of a join: probe side, build side
	Pairs    float64  // of a join without an equality: estimate of the pairs that it compares
	Sorted   float64  // of a join by a range: estimate of the values of the rows that it sorts

	Table   source.Table       // of a scan
	Columns []int              // positions in the table
	Prune   []source.Predicate // conjuncts; rows that do not meet them may be left out
	// Filters are the joins that may drop rows of a scan.
	Filters []*Filter

	Cost float64 // estimated time of a row of the first input on a CPU core, in nanoseconds

	// From tells for each column from which column of the first input it comes unchanged, or
	// -1. It is nil if rows of that input cannot be left out without a change of other rows.
	From []int

	// Make makes the operator for one run on a device. Scans and unions have none.
	Make func(device gpu.Capabilities) (operators.Operator, error)
	// RunsOn returns an error if the job forces an algorithm that is not for a device. Joins and groups have it.
	RunsOn func(gpu.Properties) error
	// sorted says of a group that its aggregates depend on the order of the rows.
	sorted bool
	// anyOrder tells the operator that nobody sees the order of its rows. Joins have it.
	anyOrder func()
	// Choose returns a line about the algorithm that the operator will probably take on a
	// device. Joins and groups have it.
	Choose func(device gpu.Properties) string

	Permutation [][]int // of a union: the columns of each input in output order

	// Held is the stage that holds the rows of this one, which has no inputs then: the rows of a
	// step that several steps read are held for the first, and the others read them.
	Held *Stage
}

// Filter is a join whose build side rules out rows of a scan. The rows go from the scan to the
// probe side of the join.
type Filter struct {
	Join    *Stage
	Columns []int // of the scan's strides: the keys
	// Few says that few rows of the scan have a match, by the estimate, so the bounds of the
	// keys may rule out parts of the table. Bloom says that it also pays to test every row.
	Few, Bloom bool
	// Matches is the share of the rows of the scan with a match, by the estimate.
	Matches float64
}

// RunsOn returns an error, a *job.Diagnostic, if the job forces an algorithm that is not for a device.
func (p *Plan) RunsOn(device gpu.Properties) error {
	var visit func(*Stage) error
	visit = func(s *Stage) error {
		for _, in := range s.Inputs {
			if err := visit(in); err != nil {
				return err
			}
		}
		if s.RunsOn != nil {
			if err := s.RunsOn(device); err != nil {
				return &job.Diagnostic{Step: s.Step, Msg: err.Error()}
			}
		}
		return nil
	}
	return visit(p.Root)
}

// Name returns the stage's name in reports and errors.
func (s *Stage) Name() string { return s.Step + ": " + s.Kind }
