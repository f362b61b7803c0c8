package physical

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/expand"
	"github.com/gstream/gstream/operators/filter"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/limit"
	"github.com/gstream/gstream/operators/materialize"
	"github.com/gstream/gstream/operators/partition"
	"github.com/gstream/gstream/operators/project"
	"github.com/gstream/gstream/operators/recursive"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/operators/unnest"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/source"
)

// Spec says what a stage does: one of the types of this file. It is data, which Encode writes. Columns are positions in
// the strides of the inputs.
type Spec interface {
	// Name is the stage's work in reports.
	Name() string
	// Operator makes the operator of one run on a device. It is nil for a scan, values, a union and a reader of held
	// rows or of a working table, which have none.
	Operator(on gpu.Capabilities) (operators.Operator, error)
}

// chooser is a Spec of an operator that chooses an algorithm when it runs.
type chooser interface {
	// Choose returns a line about the algorithm that it will probably take on a device, or "".
	Choose(gpu.Properties) string
	// RunsOn returns an error if the job forces an algorithm that is not for a device.
	RunsOn(gpu.Properties) error
}

// The specs.
type (
	// Scan reads columns of a table. Prune are conjuncts; rows that do not meet them may be left out.
	Scan struct {
		Source  string // the name of the table in the plan
		Columns []int  // positions in the table
		Prune   []source.Predicate
		// Table is the source when it is open. A plan that is decoded is told it.
		Table source.Table `json:"-"`
	}
	// Filter keeps the rows on which a program is true, and some of their columns. First says that it decides which
	// rows of the other columns the scan below it reads (source.First).
	Filter struct {
		In      *gpu.Schema
		Program *gpu.Program
		Inputs  []int // columns of the program's inputs
		Keep    []int
		First   bool `json:",omitempty"`
	}
	// Project computes columns.
	Project struct {
		Out     *gpu.Schema
		Program *gpu.Program
		Inputs  []int
	}
	// Join has the probe side as the first input of its stage, and the build side as the second.
	Join struct {
		What string // the kind of the join as written, such as "left join"
		Spec join.Spec
	}
	// Expand has each row once for each variant.
	Expand struct {
		Out      *gpu.Schema
		Variants []expand.Variant
	}
	// Unnest has each row once for each element of a list.
	Unnest struct{ unnest.Spec }
	// Group accumulates the groups by Hash, or sorts their rows by Sorted. With both, it is Hash on devices that have
	// the state of arg_min and arg_max.
	Group struct {
		Hash   *groupby.Spec
		Sorted *window.GroupSpec
	}
	// Window computes window functions.
	Window struct{ window.Spec }
	// Sort sorts rows, and is a top-k with a limit.
	Sort struct{ sort.Spec }
	// Limit keeps Count rows after the first Offset.
	Limit struct {
		In            *gpu.Schema
		Offset, Count int64
	}
	// Partition adds the partition of each row, for other tasks.
	Partition struct{ partition.Spec }
	// Union has the rows of its inputs one after the other. Columns are those of each input in the order of the result.
	Union struct{ Columns [][]int }
	// Values has rows of constants.
	Values struct{ Rows [][]gpu.Scalar }
	// Materialize keeps the rows of a step that several steps read or, with Sample, the rows below an Exchange by
	// ranges, of whose keys it has a sample.
	Materialize struct {
		In     *gpu.Schema
		Sample []sort.Key `json:",omitempty"`
	}
	// Materialized has the rows that another stage holds.
	Materialized struct {
		By *Stage `json:"-"`
	}
	// Recursive has the rows of its first input, the anchor, and after them those of its second input, the step, which
	// is computed again and again until it adds no row. Anchor and Step are columns of the inputs in the order of the
	// result. Without All, rows that are equal to earlier ones are left out.
	Recursive struct {
		Out          *gpu.Schema
		All          bool
		Anchor, Step []int
	}
	// Working has the rows that the last iteration of a Recursive stage has added. It is below the step of that stage.
	Working struct {
		Of *Stage `json:"-"`
	}
)

// Name implements Spec.
func (s *Scan) Name() string { return "scan" }

// Name implements Spec.
func (s *Filter) Name() string { return "filter" }

// Name implements Spec.
func (s *Project) Name() string { return "project" }

// Name implements Spec.
func (s *Join) Name() string { return s.What }

// Name implements Spec.
func (s *Expand) Name() string { return "expand" }

// Name implements Spec.
func (s *Unnest) Name() string { return "unnest" }

// Name implements Spec.
func (s *Group) Name() string { return "group" }

// Name implements Spec.
func (s *Window) Name() string { return "window" }

// Name implements Spec.
func (s *Sort) Name() string {
	if s.Spec.Limit >= 0 {
		return "top-k"
	}
	return "sort"
}

// Name implements Spec.
func (s *Limit) Name() string { return "limit" }

// Name implements Spec.
func (s *Partition) Name() string { return "partition" }

// Name implements Spec.
func (s *Union) Name() string { return "union" }

// Name implements Spec.
func (s *Values) Name() string { return "values" }

// Name implements Spec.
func (s *Materialize) Name() string { return "hold" }

// Name implements Spec.
func (s *Materialized) Name() string { return "held" }

// Name implements Spec.
func (s *Recursive) Name() string { return "recursion" }

// Name implements Spec.
func (s *Working) Name() string { return "working table" }

// Operator implements Spec.
func (s *Scan) Operator(gpu.Capabilities) (operators.Operator, error) { return nil, nil }

// Hosted returns the names of the operations of a spec that have no kernels, so that a GPU leaves them to the CPU.
func Hosted(s Spec) []string {
	switch s := s.(type) {
	case *Filter:
		return s.Program.Hosted()
	case *Project:
		return s.Program.Hosted()
	}
	return nil
}

// Operator implements Spec.
func (s *Filter) Operator(gpu.Capabilities) (operators.Operator, error) {
	return filter.New(s.In, s.Program, s.Inputs, s.Keep), nil
}

// Operator implements Spec.
func (s *Project) Operator(gpu.Capabilities) (operators.Operator, error) {
	return project.New(s.Out, s.Program, s.Inputs), nil
}

// Operator implements Spec.
func (s *Join) Operator(gpu.Capabilities) (operators.Operator, error) { return join.New(s.Spec) }

// Operator implements Spec.
func (s *Expand) Operator(gpu.Capabilities) (operators.Operator, error) {
	return expand.New(s.Out, s.Variants), nil
}

// Operator implements Spec.
func (s *Unnest) Operator(gpu.Capabilities) (operators.Operator, error) {
	return unnest.New(s.Spec), nil
}

// sortsGroups describes a group-by that sorts.
const sortsGroups = "sorts the rows of each group"

// hashes reports whether the groups are accumulated on a device.
func (s *Group) hashes(on gpu.Capabilities) bool {
	return s.Hash != nil && (s.Sorted == nil || on.ArgMinMax)
}

// Operator implements Spec.
func (s *Group) Operator(on gpu.Capabilities) (operators.Operator, error) {
	if s.hashes(on) {
		return groupby.New(*s.Hash)
	}
	return window.NewGroups(*s.Sorted)
}

// Operator implements Spec.
func (s *Window) Operator(gpu.Capabilities) (operators.Operator, error) { return window.New(s.Spec) }

// Operator implements Spec.
func (s *Sort) Operator(gpu.Capabilities) (operators.Operator, error) { return sort.New(s.Spec) }

// Operator implements Spec.
func (s *Limit) Operator(gpu.Capabilities) (operators.Operator, error) {
	return limit.New(s.In, s.Offset, s.Count), nil
}

// Operator implements Spec.
func (s *Partition) Operator(gpu.Capabilities) (operators.Operator, error) {
	return partition.New(s.Spec), nil
}

// Operator implements Spec.
func (s *Union) Operator(gpu.Capabilities) (operators.Operator, error) { return nil, nil }

// Operator implements Spec.
func (s *Values) Operator(gpu.Capabilities) (operators.Operator, error) { return nil, nil }

// Operator implements Spec.
func (s *Materialize) Operator(gpu.Capabilities) (operators.Operator, error) {
	rows := materialize.New(s.In)
	if len(s.Sample) > 0 {
		rows.Sample = sort.NewSample(s.In, s.Sample)
	}
	return rows, nil
}

// Operator implements Spec.
func (s *Materialized) Operator(gpu.Capabilities) (operators.Operator, error) { return nil, nil }

// Operator implements Spec.
func (s *Recursive) Operator(gpu.Capabilities) (operators.Operator, error) {
	return recursive.New(s.Out, s.All), nil
}

// Operator implements Spec.
func (s *Working) Operator(gpu.Capabilities) (operators.Operator, error) { return nil, nil }

// Choose implements chooser.
func (s *Join) Choose(device gpu.Properties) string { return s.Spec.Plan(device).String() }

// RunsOn implements chooser.
func (s *Join) RunsOn(device gpu.Properties) error { return s.Spec.RunsOn(device) }

// Choose implements chooser.
func (s *Group) Choose(device gpu.Properties) string {
	switch {
	case s.hashes(device.Capabilities):
		return s.Hash.Plan(device).String()
	case s.Hash == nil:
		return "" // the stage's details say it
	}
	return sortsGroups
}

// RunsOn implements chooser.
func (s *Group) RunsOn(device gpu.Properties) error {
	if s.Sorted != nil {
		return nil
	}
	return s.Hash.RunsOn(device)
}

// Bind sets the table of a scan. It must have the columns that the scan reads.
func (s *Scan) Bind(t source.Table, schema *gpu.Schema) error {
	if t == nil {
		return fmt.Errorf("there is no table %q", s.Source)
	}
	all := source.SchemaInside(t)
	for i, c := range s.Columns {
		if c < 0 || c >= all.Len() || all.Fields[c].Type != schema.Fields[i].Type {
			return fmt.Errorf("the table %q does not have column %d of type %v", s.Source, c, schema.Fields[i].Type)
		}
	}
	for _, p := range s.Prune {
		if p.Column < 0 || p.Column >= all.Len() {
			return fmt.Errorf("the table %q does not have column %d", s.Source, p.Column)
		}
	}
	s.Table = t
	return nil
}
