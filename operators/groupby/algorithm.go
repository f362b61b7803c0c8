package groupby

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// algorithm makes rows of partial aggregates from a stride, one for each key. It borrows the stride
// and the key of its rows; only algorithms with tables of blocks are given a key. After
// gpu.ErrManyGroups, gpu.ErrUnfit or a lack of memory (gpu.IsOutOfMemory) another algorithm may
// aggregate the stride.
type algorithm interface {
	aggregate(t operators.Task, s *gpu.Stride, by key) (*gpu.Stride, error)
}

// key has one integer for each row of a stride: its key, or all of its keys packed.
type key struct {
	gpu.Column
	domain
	packed gpu.PackedKeys // nil if the column is the only key
}

// domain is what is known about the values of a key.
type domain struct {
	bytes    int
	dense    bool   // values are in lo … lo + span
	lo, span uint64 // of the integer type of the key
}

// named is an algorithm and the name by which Spec.Algorithm forces it.
type named struct {
	name string
	make func(*hashGroupBy) algorithm // nil: the table of the lane
	// tables says that the algorithm needs tables of blocks: gpu.Capabilities.BlockTables.
	tables bool
}

const (
	hgbG      = "hgb-g"
	pgbTR     = "pgb-tr"
	pgbUR     = "pgb-ur"
	sgbStride = "sgb-stride"
)

var algorithms = []named{
	{name: hgbG},
	{name: "hgb", make: func(o *hashGroupBy) algorithm { return hgb{o} }, tables: true},
	{name: "hgb-t", make: func(o *hashGroupBy) algorithm { return hgbT{o} }, tables: true},
	{name: "sgb-ur", make: func(o *hashGroupBy) algorithm { return sgb{hashGroupBy: o} }},
	{name: "sgb-tr", make: func(o *hashGroupBy) algorithm { return sgb{hashGroupBy: o, transform: true} }},
	{name: "sgb-de-tr", make: func(o *hashGroupBy) algorithm { return sgb{hashGroupBy: o, encode: true} }},
	{name: sgbStride, make: func(o *hashGroupBy) algorithm { return sgb{hashGroupBy: o, transform: true} }},
	{name: pgbUR, make: func(o *hashGroupBy) algorithm { return pgb{hashGroupBy: o} }, tables: true},
	{name: pgbTR, make: func(o *hashGroupBy) algorithm { return pgb{hashGroupBy: o, transform: true} }, tables: true},
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
		if !a.tables || p.BlockTables {
			names = append(names, a.name)
		}
	}
	return names
}

// RunsOn returns an error if a device does not have the algorithm that a job asks for.
func (s *Spec) RunsOn(p gpu.Properties) error {
	if s.Algorithm == "" || slices.Contains(AlgorithmsOn(p), s.Algorithm) {
		return nil
	}
	return fmt.Errorf("the group-by algorithm %s aggregates in the shared memory of a GPU, and this is %s: leave out "+
		"the algorithm, take another, or run with %v", s.Algorithm, p.Name, gpu.UseGPU)
}

func (o *hashGroupBy) named(name string) named {
	return algorithms[slices.Index(Algorithms(), name)]
}

func (o *hashGroupBy) algorithm(name string) algorithm { return o.named(name).make(o) }

// Reasons against tables of blocks.
var (
	errAggregates = errors.New("minima and maxima of strings, booleans and 16-byte values")
)
