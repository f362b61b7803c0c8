package groupby

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Phase is the part of a group-by that an operator does. Between the phases rows of partial aggregates may be exchanged
// between devices.
type Phase uint8

// The phases.
const (
	Whole   Phase = iota // from rows to groups
	Partial              // from rows to rows of partial aggregates; a group may have several
	Merge                // from rows of partial aggregates to groups
)

// Split returns the two phases of a group-by. A group-by with arg_min or arg_max cannot be split, because the state of
// those is on one device.
func (s *Spec) Split() (partial, merge *Spec) {
	first, last := *s, *s
	first.Phase, last.Phase = Partial, Merge
	first.Out, first.Always, last.Algorithm = s.partials(), nil, ""
	return &first, &last
}

// partials returns the schema of rows of partial aggregates: the keys, then the aggregates.
func (s *Spec) partials() *gpu.Schema {
	out := operators.PickFields(s.In, s.Keys)
	list, _ := s.partialAggregates()
	for _, m := range list {
		out.Fields = append(out.Fields, gpu.Field{Name: m.kind.String(), Type: s.partial(m), Nullable: true})
	}
	return out
}

// Input returns the schema of the input: In, or that of rows of partial aggregates. InputKeys returns the positions of
// the keys in it, and InputColumns those of all columns that the group-by reads.
func (s *Spec) Input() *gpu.Schema {
	if s.Phase == Merge {
		return s.partials()
	}
	return s.In
}

// InputKeys returns the positions of the keys in Input.
func (s *Spec) InputKeys() []int {
	if s.Phase != Merge {
		return s.Keys
	}
	keys := make([]int, len(s.Keys))
	for i := range keys {
		keys[i] = i
	}
	return keys
}

// partialColumn returns a partial aggregate of groups in its partial type, in the phase that passes partial aggregates
// on. A decimal is the integer of its digits.
func (o *hashGroupBy) partialColumn(t operators.Task, x groups, i, from, to int) (gpu.Column, error) {
	c, err := x.column(t, i, from, to)
	c.Type = o.partial(o.accumulated[i])
	return c, o.naming(i, err)
}
