package join

import (
	"context"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// algorithm finds the pairs of rows with equal keys. It knows nothing about the kind of the join,
// residual conditions and the result, which belong to the operator.
type algorithm interface {
	// build prepares the build side, which it takes over, even on error. It is called once, with a
	// queue that uses the whole device.
	build(ctx context.Context, t operators.Task, side *gpu.Stride) (built, error)
}

// built is a prepared build side. Lanes match with it concurrently, each with its own task.
type built interface {
	// columns returns the columns that the build row ids of matches index, by position in the
	// schema of the build side. They have each row of the build side once, in an order that the
	// algorithm chooses. The columns of Spec.kept are present; others may be empty.
	columns() []gpu.Column
	// least is the number of probe rows that a match should have. A lane collects strides until it
	// has as many; at the end of the input it may have fewer. 0 means that every stride is matched
	// as it arrives.
	least() int
	// match returns the pairs of a probe stride, which is borrowed and must outlive the match.
	match(t operators.Task, probe *gpu.Stride) (matching, error)
	release()
}

// matching is the match of a probe stride with the build side. Its probe row ids index probe. An
// algorithm that reorders the rows has two options. Its columns may be reordered copies, which are
// released with its Matcher. Or the Matcher translates ids of reordered rows to ids of the original
// rows.
type matching struct {
	gpu.Matcher
	// probe has the columns by position in the schema of the probe side. Only those of Spec.used
	// must be present.
	probe []gpu.Column
	// ordered says that pairs come in the order of the rows of the probe stride, and that probe has
	// this order.
	ordered bool
}

// named is an algorithm and the name by which Spec.Algorithm forces it.
type named struct {
	name string
	make func(*Spec) algorithm
	// outputs says that it needs the capability gpu.Capabilities.PairOutputs.
	outputs bool
}

var algorithms = []named{
	{name: "npj", make: func(s *Spec) algorithm { return npj{s} }},
	{name: "phj-ur", make: func(s *Spec) algorithm { return phj{Spec: s, collect: true, bits: partitionBits} }},
	{name: "phj-tr", make: func(s *Spec) algorithm {
		return phj{Spec: s, transform: true, collect: true,
			bits: partitionBits}
	}},
	{name: "smj-ur", make: func(s *Spec) algorithm { return smj{Spec: s, radix: true} }},
	{name: "smj-tr", make: func(s *Spec) algorithm { return smj{Spec: s, transform: true, radix: true} }},
	{name: "mpj", make: func(s *Spec) algorithm { return smj{Spec: s} }},
	{name: "large-s", make: largeS},
	{name: tritonName, make: largeS},
	{name: "bucket", make: func(s *Spec) algorithm { return bucket{s} }},
	{name: "rhj-double", make: rhj(gpu.Probing{Output: gpu.PairsCounted}), outputs: true},
	{name: "rhj-pages", make: rhj(gpu.Probing{Output: gpu.PairsPaged}), outputs: true},
	{name: "rhj-direct", make: rhj(gpu.Probing{Output: gpu.PairsDirect}), outputs: true},
	{name: "rhj-whole", make: rhj(gpu.Probing{Output: gpu.PairsDirect, Whole: true}), outputs: true},
}

// Algorithms returns the names of the algorithms that Spec.Algorithm may force.
func Algorithms() (names []string) {
	for _, a := range algorithms {
		names = append(names, a.name)
	}
	return names
}

// AlgorithmsOn returns the names of the algorithms for a device.
func AlgorithmsOn(p gpu.Properties) (names []string) {
	for _, a := range algorithms {
		if !a.outputs || p.PairOutputs {
			names = append(names, a.name)
		}
	}
	return names
}

// RunsOn returns an error if a job asks for an algorithm that the device does not have.
func (s *Spec) RunsOn(p gpu.Properties) error {
	if s.Algorithm == "" || slices.Contains(AlgorithmsOn(p), s.Algorithm) {
		return nil
	}
	return fmt.Errorf("the join algorithm %s is for a GPU, and this is %s: leave out the algorithm, take another, or "+
		"run with %v", s.Algorithm, p.Name, gpu.UseGPU)
}

// algorithm returns the algorithm with a name, one of Algorithms, or that of a range or of an ASOF join.
func (s *Spec) algorithm(name string) algorithm {
	switch {
	case s.Range != nil:
		return byRange{s}
	case s.AsOf != nil:
		return asOf{s}
	}
	return algorithms[slices.Index(Algorithms(), name)].make(s)
}

// used returns the positions of the probe columns that the result or the conditions need. kept
// returns those of the build side.
func (s *Spec) used() []int {
	at := slices.Clone(s.ProbeOut)
	for _, r := range s.checks {
		at = append(at, r.Probe...)
	}
	return at
}

func (s *Spec) kept() []int {
	at := slices.Clone(s.BuildOut)
	for _, r := range s.checks {
		at = append(at, r.Build...)
	}
	return at
}

// keeps reports whether the column of the build side at a position is among kept.
func (s *Spec) keeps(i int) bool { return slices.Contains(s.kept(), i) }

// drop releases the columns of a build side that are not kept.
func (s *Spec) drop(side *gpu.Stride) {
	for i := range side.Cols {
		if !s.keeps(i) {
			side.Cols[i].Release()
			side.Cols[i] = gpu.Column{}
		}
	}
}

// rowBytes returns the bytes of a row in the columns at some positions, or in all columns. Strings
// count as 16 bytes.
func rowBytes(schema *gpu.Schema, at []int) (n int) {
	if at == nil {
		for i := range schema.Fields {
			at = append(at, i)
		}
	}
	for _, i := range at {
		t := schema.Fields[i].Type
		if t.IsVar() {
			n += 16
		} else {
			n += max(t.Width(), 1)
		}
	}
	return max(n, 1)
}
