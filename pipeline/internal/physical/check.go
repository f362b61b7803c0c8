package physical

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/sort"
)

// check refuses a plan whose stages do not fit together: columns that the inputs do not have, programs that read
// registers before they are written, and stages that wait for their own rows.
func (p *Plan) check() (err error) {
	for _, o := range p.Outputs {
		if len(o.Permutation) != o.Schema.Len() || !within(o.Permutation, o.Root.Schema.Len()) {
			return errors.New("the columns of an output are not those of its last stage")
		}
	}
	p.Visit(func(s *Stage) {
		if wrong := s.check(); wrong != nil && err == nil {
			err = fmt.Errorf("%s: %w", s.Name(), wrong)
		}
	})
	if err != nil {
		return err
	}
	const begun, ended = 1, 2
	state := map[*Stage]int{}
	var visit func(*Stage) error
	visit = func(s *Stage) error {
		if state[s] == begun {
			return fmt.Errorf("%s: the rows that it holds are read to make them", s.Name())
		}
		if state[s] == ended {
			return nil
		}
		state[s] = begun
		for _, in := range s.Inputs {
			if err := visit(in); err != nil {
				return err
			}
		}
		if held, ok := s.Spec.(*Materialized); ok {
			if err := visit(held.By); err != nil {
				return err
			}
		}
		state[s] = ended
		return nil
	}
	for _, o := range p.Outputs {
		if err := visit(o.Root); err != nil {
			return err
		}
		if len(loops{}.of(o.Root)) > 0 {
			return errors.New("a stage reads a working table outside of the step of its recursion")
		}
	}
	return nil
}

// loops has for each stage the recursions around it whose working tables it or a stage below it reads, also by rows
// that another stage holds.
type loops map[*Stage]map[*Stage]bool

// of returns the recursions of a stage, nil if there are none.
func (l loops) of(s *Stage) map[*Stage]bool {
	if of, known := l[s]; known {
		return of
	}
	var of map[*Stage]bool
	add := func(more map[*Stage]bool, but *Stage) {
		for r := range more {
			if r == but {
				continue
			}
			if of == nil {
				of = map[*Stage]bool{}
			}
			of[r] = true
		}
	}
	for i, in := range s.Inputs {
		if _, ok := s.Spec.(*Recursive); ok && i == 1 {
			add(l.of(in), s)
		} else {
			add(l.of(in), nil)
		}
	}
	switch spec := s.Spec.(type) {
	case *Materialized:
		add(l.of(spec.By), nil)
	case *Working:
		add(map[*Stage]bool{spec.Of: true}, nil)
	}
	l[s] = of
	return of
}

// Loops returns for each stage of the plan the recursions around it on whose iterations its rows depend. A stage that
// is missing depends on none.
func (p *Plan) Loops() map[*Stage]map[*Stage]bool {
	l := loops{}
	for _, o := range p.Outputs {
		l.of(o.Root)
	}
	return l
}

// within reports whether columns are of the first n ones.
func within(columns []int, n int) bool {
	return !slices.ContainsFunc(columns, func(c int) bool { return c < 0 || c >= n })
}

// columnsOf returns the columns of keys by which rows are sorted.
func columnsOf(keys []sort.Key) []int {
	columns := make([]int, len(keys))
	for i, k := range keys {
		columns[i] = k.Column
	}
	return columns
}

// check checks a stage besides its inputs.
func (s *Stage) check() error {
	want := 1
	var columns []int // of the first input
	var programs []*gpu.Program
	var inputs [][]int // of the programs
	var ins, outs []*gpu.Schema
	switch spec := s.Spec.(type) {
	case *Scan:
		want = 0
		if len(spec.Columns) != s.Schema.Len() {
			return errors.New("it does not read as many columns as it has")
		}
	case *Values:
		want = 0
		for i, row := range spec.Rows {
			if len(row) != s.Schema.Len() {
				return fmt.Errorf("row %d does not have as many values as it has columns", i)
			}
			for k, v := range row {
				if v.Type != s.Schema.Fields[k].Type {
					return fmt.Errorf("row %d has a value of another type than its column", i)
				}
			}
		}
	case *Materialized:
		if want = 0; !equal(spec.By.Schema, s.Schema) {
			return errors.New("the rows that it reads have other columns")
		}
	case *Working:
		if want = 0; spec.Of == nil || !equal(spec.Of.Schema, s.Schema) {
			return errors.New("the recursion whose rows it reads has other columns")
		}
	case *Recursive:
		want = 2
		outs = append(outs, spec.Out)
		for i, list := range [][]int{spec.Anchor, spec.Step} {
			if i >= len(s.Inputs) {
				break
			}
			in := s.Inputs[i].Schema
			if len(list) != s.Schema.Len() || !within(list, in.Len()) {
				return fmt.Errorf("input %d does not have its columns", i)
			}
			for k, c := range list {
				if in.Fields[c].Type != s.Schema.Fields[k].Type {
					return fmt.Errorf("column %d of input %d has another type", c, i)
				}
			}
		}
	case *Union:
		want = len(spec.Columns)
		for i, list := range spec.Columns {
			if i < len(s.Inputs) && (len(list) != s.Schema.Len() || !within(list, s.Inputs[i].Schema.Len())) {
				return fmt.Errorf("input %d does not have its columns", i)
			}
		}
		if want == 0 {
			return errors.New("it has no input")
		}
	case *Filter:
		ins = append(ins, spec.In)
		columns, programs, inputs = spec.Keep, []*gpu.Program{spec.Program}, [][]int{spec.Inputs}
	case *Project:
		outs = append(outs, spec.Out)
		programs, inputs = []*gpu.Program{spec.Program}, [][]int{spec.Inputs}
	case *Expand:
		outs = append(outs, spec.Out)
		for _, v := range spec.Variants {
			programs, inputs = append(programs, v.Program), append(inputs, v.Inputs)
		}
	case *Unnest:
		outs = append(outs, spec.Out)
		columns = slices.Clone(spec.Lists)
		for _, c := range spec.Keep {
			if c >= 0 {
				columns = append(columns, c)
			} else if -1-c >= len(spec.Lists) {
				return fmt.Errorf("it has no list %d", -1-c)
			}
		}
		if len(spec.Lists) == 0 || spec.Out == nil || len(spec.Keep) != spec.Out.Len() {
			return errors.New("it does not take a list apart")
		}
	case *Join:
		want = 2
		if spec.Spec.Probe == nil || spec.Spec.Build == nil {
			return errors.New("it lacks a side")
		}
		ins, outs = []*gpu.Schema{spec.Spec.Probe, spec.Spec.Build}, []*gpu.Schema{spec.Spec.Out}
		columns = slices.Concat(spec.Spec.ProbeKeys, spec.Spec.ProbeOut)
		n := spec.Spec.Build.Len()
		if !within(slices.Concat(spec.Spec.BuildKeys, spec.Spec.BuildOut), n) ||
			len(s.Inputs) == 2 && n != s.Inputs[1].Schema.Len() {
			return errors.New("its build side does not have its columns")
		}
		if r := spec.Spec.Range; r != nil && (!within([]int{r.Build}, n) ||
			!within([]int{max(r.Lower, 0), max(r.Upper, 0)}, spec.Spec.Probe.Len())) {
			return errors.New("its range is over columns that it does not have")
		}
		if a := spec.Spec.AsOf; a != nil && (!within([]int{a.Build}, n) ||
			!within([]int{a.Probe}, spec.Spec.Probe.Len())) {
			return errors.New("its times are columns that it does not have")
		}
		if r := spec.Spec.Residual; r != nil {
			columns = append(columns, r.Probe...)
			programs, inputs = []*gpu.Program{r.Program}, [][]int{slices.Concat(r.Probe, r.Build)}
			if !within(r.Build, n) {
				return errors.New("its condition is over columns that it does not have")
			}
		}
	case *Group:
		if spec.Hash == nil && spec.Sorted == nil {
			return errors.New("it has no aggregates")
		}
		if h := spec.Hash; h != nil {
			ins, outs = append(ins, h.Input()), append(outs, h.Out)
			columns = append(columns, h.InputKeys()...)
			for _, a := range h.Aggregates {
				if h.Phase == groupby.Merge {
					break // its input has all columns
				}
				columns = append(columns, max(a.Input, 0))
				if l := a.ArgMinMax; l != nil {
					columns = slices.Concat(columns, l.Columns, []int{max(l.Filter, 0)}, columnsOf(l.Order))
				}
			}
		}
		if w := spec.Sorted; w != nil {
			ins, outs = append(ins, w.In), append(outs, w.Out)
			columns = append(columns, w.Keys...)
			for _, f := range w.Functions {
				columns = append(columns, f.Columns()...)
			}
		}
		if len(s.Inputs) == 1 && s.Inputs[0].Schema.Len() == 0 { // it only counts rows
			columns = slices.DeleteFunc(columns, func(c int) bool { return c == 0 })
		}
	case *Window:
		ins, outs = append(ins, spec.In), append(outs, spec.Out)
		columns = slices.Concat(spec.Partition, spec.Keep, columnsOf(spec.Order))
		for _, f := range spec.Functions {
			columns = append(columns, f.Columns()...)
		}
	case *Sort:
		ins, columns = append(ins, spec.In), columnsOf(spec.Keys)
	case *Limit:
		ins = append(ins, spec.In)
	case *Partition:
		if ins, columns = append(ins, spec.In), slices.Concat(spec.Keys, columnsOf(spec.By)); spec.In == nil {
			return errors.New("it has no input")
		}
		if outs = append(outs, spec.Out()); spec.Parts < 1 || len(spec.Splitters) >= spec.Parts ||
			len(spec.Keys) == 0 && len(spec.By) == 0 {
			return errors.New("it has no partitions")
		}
		for _, key := range spec.Splitters {
			if len(key) != len(spec.By) || !within(columnsOf(spec.By), spec.In.Len()) {
				return errors.New("it has ranges of other keys")
			}
			for i, k := range spec.By {
				if key[i].Type != spec.In.Fields[k.Column].Type {
					return errors.New("it has ranges of keys of other types")
				}
			}
		}
	case *Materialize:
		ins, columns = append(ins, spec.In), columnsOf(spec.Sample)
	case *Exchange:
		ins, columns = append(ins, spec.In), slices.Concat(spec.Keys, columnsOf(spec.By))
	default:
		return fmt.Errorf("stages of type %T are not checked", spec)
	}
	if len(s.Inputs) != want {
		return fmt.Errorf("it has %d inputs in place of %d", len(s.Inputs), want)
	}
	if want == 0 {
		return nil
	}
	for i, in := range ins {
		if !equal(in, s.Inputs[i%want].Schema) {
			return errors.New("its input has other columns than it reads")
		}
	}
	for _, out := range outs {
		if !equal(out, s.Schema) {
			return errors.New("its rows have other columns than it says")
		}
	}
	n := s.Inputs[0].Schema.Len()
	if !within(columns, n) {
		return errors.New("its input does not have its columns")
	}
	both := n
	if want == 2 {
		both = max(n, s.Inputs[1].Schema.Len())
	}
	for i, p := range programs {
		if p == nil || len(p.Inputs) != len(inputs[i]) || !within(inputs[i], both) {
			return errors.New("a program has other inputs than columns")
		}
		if err := p.Check(); err != nil {
			return err
		}
	}
	if _, err := s.Spec.Operator(gpu.Capabilities{ArgMinMax: true}); err != nil {
		return err
	}
	if _, err := s.Spec.Operator(gpu.Capabilities{}); err != nil {
		return err
	}
	return nil
}

// equal reports whether columns have the same types. A schema that is missing equals none.
func equal(a, b *gpu.Schema) bool {
	return a != nil && b != nil &&
		slices.EqualFunc(a.Fields, b.Fields, func(x, y gpu.Field) bool { return x.Type == y.Type })
}
