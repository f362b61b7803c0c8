package physical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/gstream/gstream/gpu"
)

// specs has an empty spec of each type, by its name in an encoded plan.
var specs = map[string]Spec{
	"scan": &Scan{}, "filter": &Filter{}, "project": &Project{}, "join": &Join{}, "expand": &Expand{},
	"unnest": &Unnest{},
	"group":  &Group{},
	"window": &Window{}, "sort": &Sort{}, "limit": &Limit{}, "partition": &Partition{}, "union": &Union{},
	"hold":   &Materialize{},
	"held":   &Materialized{},
	"values": &Values{}, "exchange": &Exchange{}, "recursion": &Recursive{}, "working table": &Working{},
}

// encodedPlan is a Plan in JSON. Stages come after their inputs.
type encodedPlan struct {
	Name    string
	Outputs []encodedOutput
	Stages  []encodedStage
}

// encodedOutput is an Output in JSON. Root is the position of its last stage.
type encodedOutput struct {
	Root        int
	Permutation []int
	Schema      *gpu.Schema
	Expect      *Expectation `json:",omitempty"`
}

// encodedStage is a Stage in JSON. Other stages are their positions in the list.
type encodedStage struct {
	Does string
	*Stage
	Spec         json.RawMessage
	Inputs       []int `json:",omitempty"`
	Materialized *int  `json:"Held,omitempty"` // the stage that materializes the rows of this one
	Of           *int  `json:",omitempty"`     // the recursion of a working table
	Filters      []encodedFilter
}

type encodedFilter struct {
	Join int
	*JoinFilter
}

// MarshalJSON implements json.Marshaler. Tables are named by their scans and not part of it.
func (p *Plan) MarshalJSON() ([]byte, error) {
	out := encodedPlan{Name: p.Name}
	at := map[*Stage]int{}
	var stages []*Stage
	p.Visit(func(s *Stage) {
		at[s] = len(stages)
		stages = append(stages, s)
	})
	for _, o := range p.Outputs {
		out.Outputs = append(out.Outputs, encodedOutput{at[o.Root], o.Permutation, o.Schema, o.Expect})
	}
	for _, s := range stages {
		e := encodedStage{Stage: s}
		for name, spec := range specs {
			if reflect.TypeOf(spec) == reflect.TypeOf(s.Spec) {
				e.Does = name
			}
		}
		if e.Does == "" {
			return nil, fmt.Errorf("a stage of type %T cannot be encoded", s.Spec)
		}
		var err error
		if e.Spec, err = json.Marshal(s.Spec); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
		for _, in := range s.Inputs {
			e.Inputs = append(e.Inputs, at[in])
		}
		if held, ok := s.Spec.(*Materialized); ok {
			by := at[held.By]
			e.Materialized = &by
		}
		if working, ok := s.Spec.(*Working); ok {
			of := at[working.Of]
			e.Of = &of
		}
		for _, f := range s.Filters {
			e.Filters = append(e.Filters, encodedFilter{at[f.Join], f})
		}
		out.Stages = append(out.Stages, e)
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler. The scans of the plan have no tables yet. It refuses what is no plan;
// whether programs compute anything sensible it does not know.
func (p *Plan) UnmarshalJSON(data []byte) error {
	var in encodedPlan
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return err
	}
	stages := make([]*Stage, len(in.Stages))
	used := make([]bool, len(in.Stages))
	for i, e := range in.Stages {
		empty, ok := specs[e.Does]
		if !ok || e.Stage == nil || e.Schema == nil {
			return fmt.Errorf("stage %d is none: it does %q", i, e.Does)
		}
		s := e.Stage
		s.Spec = reflect.New(reflect.TypeOf(empty).Elem()).Interface().(Spec)
		if err := json.Unmarshal(e.Spec, s.Spec); err != nil {
			return fmt.Errorf("stage %d, %s: %w", i, e.Does, err)
		}
		for _, k := range e.Inputs {
			if k < 0 || k >= i || used[k] {
				return fmt.Errorf("stage %d reads stage %d, which is not before it or has another reader", i, k)
			}
			used[k] = true
			s.Inputs = append(s.Inputs, stages[k])
		}
		stages[i] = s
	}
	out := Plan{Name: in.Name}
	for i, o := range in.Outputs {
		if o.Root < 0 || o.Root >= len(stages) || used[o.Root] || o.Schema == nil {
			return fmt.Errorf("output %d has no last stage of its own", i)
		}
		used[o.Root] = true
		out.Outputs = append(out.Outputs, Output{stages[o.Root], o.Permutation, o.Schema, o.Expect})
	}
	for i, e := range in.Stages {
		s := stages[i]
		if !used[i] {
			return fmt.Errorf("nothing reads stage %d", i)
		}
		if held, ok := s.Spec.(*Materialized); ok {
			if e.Materialized == nil || *e.Materialized < 0 || *e.Materialized >= len(stages) {
				return fmt.Errorf("stage %d reads the rows that no stage holds", i)
			}
			held.By = stages[*e.Materialized]
			if _, ok := held.By.Spec.(*Materialize); !ok {
				return fmt.Errorf("stage %d reads the rows that no stage holds", i)
			}
		}
		if working, ok := s.Spec.(*Working); ok {
			if e.Of == nil || *e.Of < 0 || *e.Of >= len(stages) {
				return fmt.Errorf("stage %d reads the working table of no stage", i)
			}
			working.Of = stages[*e.Of]
		}
		for _, f := range e.Filters {
			if f.JoinFilter == nil || f.Join < 0 || f.Join >= len(stages) {
				return fmt.Errorf("stage %d has a filter of no join", i)
			}
			if _, ok := stages[f.Join].Spec.(*Join); !ok {
				return fmt.Errorf("stage %d has a filter of no join", i)
			}
			f.JoinFilter.Join = stages[f.Join]
			s.Filters = append(s.Filters, f.JoinFilter)
		}
	}
	if len(out.Written()) == 0 {
		return errors.New("there is no output")
	}
	*p = out
	return p.check()
}
