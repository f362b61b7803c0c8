package physical

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
)

// ExchangeKind says to which devices an Exchange sends a row.
type ExchangeKind uint8

// The kinds of exchanges.
const (
	// Gather sends all rows to the first device.
	Gather ExchangeKind = iota
	// Broadcast sends every row to every device.
	Broadcast
	// Hash sends a row to the device that the hash of its keys selects, so that rows with equal keys meet.
	Hash
	// Range sends a row to the device of its range of keys in an order. Rows of a device come before those of later
	// ones, and rows with equal keys meet. The ranges have about equal numbers of rows, by a sample of all rows, so a
	// Materialize below holds the rows until all have been seen.
	Range
)

// Exchange moves rows between the devices of a run. Its input has rows on several devices, or on the first one.
type Exchange struct {
	In   *gpu.Schema
	Kind ExchangeKind
	Keys []int      // of Hash
	By   []sort.Key `json:",omitempty"` // of Range
	// Ordered says that each device receives its rows in the order of the input of the plan. Otherwise they come in any
	// order.
	Ordered bool `json:",omitempty"`
}

// Name implements Spec.
func (s *Exchange) Name() string {
	return [...]string{"gather", "broadcast", "exchange", "exchange"}[s.Kind]
}

// Operator implements Spec.
func (s *Exchange) Operator(gpu.Capabilities) (operators.Operator, error) { return nil, nil }

// detail describes an exchange to people.
func (s *Exchange) detail() []string {
	var out []string
	keys, by := s.Keys, "by the hash of "
	if s.Kind == Range {
		keys, by = columnsOf(s.By), "by ranges of "
	}
	if len(keys) > 0 {
		names := make([]string, len(keys))
		for i, k := range keys {
			names[i] = s.In.Fields[k].Name
		}
		out = append(out, by+strings.Join(names, ", "))
	}
	if s.Ordered {
		out = append(out, "keeps the order")
	}
	return out
}

// Distribution says on which of several devices the rows of a stage are. The zero value is that of a plan for one
// device.
type Distribution struct {
	Spread Spread `json:",omitempty"`
	// Keys are the columns by whose hash the rows of ByHash are placed.
	Keys []int `json:",omitempty"`
	// Ordered says that rows of all devices have an order among them: that of the input of the plan or, above a sort,
	// that of the devices.
	Ordered bool `json:",omitempty"`
}

// On reports whether a device has rows of the stage. The first one has the number 0.
func (s *Stage) On(device int) bool { return device == 0 || s.Distribution.Spread != OnFirst }

// Spread is the kind of a Distribution.
type Spread uint8

// The spreads.
const (
	OnFirst    Spread = iota // all rows are on the first device
	Anywhere                 // every row is on one device, which nothing determines
	ByHash                   // every row is on the device that the hash of its keys selects
	Everywhere               // every row is on every device
)

// String describes where rows are.
func (d Distribution) String() string {
	switch d.Spread {
	case OnFirst:
		return "on the first device"
	case Everywhere:
		return "on every device"
	case ByHash:
		return fmt.Sprintf("by the hash of columns %v", d.Keys)
	}
	return "on all devices"
}

// OrderedInputs returns how many scans follow each other in the order of the rows of a stage: those of the inputs of a
// union.
func (s *Stage) OrderedInputs() int {
	switch spec := s.Spec.(type) {
	case *Union:
		n := 0
		for _, in := range s.Inputs {
			n += in.OrderedInputs()
		}
		return n
	case *Filter, *Project, *Expand, *Unnest, *Join, *Materialize, *Partition:
		return s.Inputs[0].OrderedInputs()
	case *Materialized:
		return spec.By.OrderedInputs()
	}
	return 1
}

// Positions reports whether an operator that collects rows has to know their positions in the order of the input of the
// plan, among the rows of all devices.
func (s *Stage) Positions() bool {
	switch spec := s.Spec.(type) {
	case *Materialize:
		return s.Distribution.Spread != OnFirst && s.Distribution.Ordered
	case *Sort:
		return spec.Out != nil && spec.Out.Len() > spec.In.Len()
	}
	return false
}
