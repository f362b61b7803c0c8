package join

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// algorithm finds the pairs of rows with equal keys. It knows nothing of the kind of the
// join, of residual conditions and of the result: these are the operator's.
type algorithm interface {
	// build prepares the build side, which it takes over, also on error. It is called
	// once, with a queue that uses the whole device.
	build(ctx context.Context, t operators.Task, side *gpu.Stride) (built, error)
}

// built is a build side. Lanes match with it at the same time, each with its own task.
type built interface {
	// columns returns the columns that the build row ids of all matches index, by position
	// in the schema of the build side. They have the rows of the build side, each once, in
	// the order that the algorithm likes. The columns of Spec.kept are there; others may
	// be empty.
	columns() []gpu.Column
	// least is the number of probe rows that a match should have. A lane collects
	// strides until it has as many; at the end of the input it has fewer. 0 takes every
	// stride as it comes.
	least() int
	// match returns the pairs of a probe stride, which is borrowed and outlives the match.
	match(t operators.Task, probe *gpu.Stride) (matching, error)
	release()
}

// matching is the match of a probe stride with the build side. Its probe row ids index
// probe: an algorithm that reorders the rows may have columns of its own, which are
// released with its Matcher. A Matcher may also translate ids of reordered rows to ids of
// the original ones.
type matching struct {
	gpu.Matcher
	// probe has the columns by position in the schema of the probe side, of which only
	// those of Spec.used need be there.
	probe []gpu.Column
	// ordered says that pairs come in order of the rows of the probe stride, and probe is
	// in this order.
	ordered bool
}

// algorithms are the algorithms by name.
var algorithms = map[string]func(*Spec) algorithm{
	"npj": func(s *Spec) algorithm { return npj{s} },
}

// chosen returns the algorithm of a join.
func (s *Spec) chosen() (algorithm, error) {
	if s.Range != nil {
		return byRange{s}, nil
	}
	name := s.Algorithm
	if name == "" {
		name = "npj"
	}
	if make := algorithms[name]; make != nil {
		return make(s), nil
	}
	return nil, fmt.Errorf("no join algorithm has the name %q: choose one of %s", name, strings.Join(slices.Sorted(maps.Keys(algorithms)), ", "))
}

// used returns the positions of the columns of the probe side that the result or the
// residual condition need. kept returns those of the build side.
func (s *Spec) used() []int {
	if s.Residual == nil {
		return s.ProbeOut
	}
	return slices.Concat(s.ProbeOut, s.Residual.Probe)
}

func (s *Spec) kept() []int {
	if s.Residual == nil {
		return s.BuildOut
	}
	return slices.Concat(s.BuildOut, s.Residual.Build)
}
