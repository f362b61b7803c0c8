package physical

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/source"
)

// Plan is a tree of stages and the columns of its result. It is immutable.
type Plan struct {
	Name string // of the job
	Root *Stage
	// Permutation is the position in the root's strides of each column of Schema.
	Permutation []int
	Schema      *gpu.Schema
}

// Stage is a scan, an operator, or a union. Stages form a tree and are immutable;
// a run makes its own operators.
type Stage struct {
	Step   string // of the job
	Kind   string // "scan", "filter", "join" …
	Detail []string
	Schema *gpu.Schema // of the strides it emits
	Rows   float64     // estimate
	Inputs []*Stage    // of a join: probe side, build side

	Table    source.Table       // of a scan
	Columns  []int              // of the table
	Prune    []source.Predicate // conjuncts that rows must meet; what does not may be left out
	RowBytes float64            // of a decoded row, estimate

	// Make makes the operator of a stage that is no scan and no union, one for a run.
	Make func() (operators.Operator, error)

	Permutation [][]int // of a union: columns of each input, in output order
}

// Name is how reports and errors call the stage.
func (s *Stage) Name() string { return s.Step + ": " + s.Kind }

// RowBytes is the width of a row, strings counted as 16 bytes.
func RowBytes(s *gpu.Schema) int {
	n := 0
	for _, f := range s.Fields {
		if f.Type.IsVar() {
			n += 16
		}
		n += f.Type.Width()
	}
	return n
}
