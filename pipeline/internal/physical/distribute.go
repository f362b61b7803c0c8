package physical

import (
	"fmt"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/sort"
)

// alwaysBroadcast is the bytes of a build side up to which it goes to all devices whatever the probe side is, since
// the probe side then stays where it is and keeps its order.
const alwaysBroadcast = 64 << 20

// leastRanges is the bytes of the rows of a sort from which they are exchanged by ranges.
const leastRanges = 16 << 20

// leastReduction is the number of input rows per group from which a group-by aggregates before its rows are exchanged.
const leastReduction = 2

// Distribute returns a plan for several devices that gives the same rows. The devices share scans, stride by stride,
// and the stages above them run on all devices. An Exchange moves rows where a stage needs rows that belong
// together on one device:
//
//   - A join sends its build side to all devices, or both sides to the device that the hash of their keys selects,
//     whichever moves fewer bytes to a device. A join that returns build rows without a match needs the latter.
//   - A group-by aggregates on each device, exchanges its groups by the hash of their keys, and merges them. It
//     exchanges the rows themselves if there are nearly as many groups.
//   - Window functions and aggregates that depend on the order of rows exchange rows by their keys.
//   - A sort exchanges rows by ranges of its keys, so that each device sorts one. It gathers few rows.
//   - A top-k is computed on each device first. If rows with equal keys have an order, their positions in it go with
//     them.
//   - Limits, and window functions and aggregates without keys, gather the rows.
//
// Where rows are already as a stage needs them, there is no exchange. A plan with a recursion stays on the first
// device.
// The rows of a written output come from all devices, or from the first one if gathers says why, for the number of the
// output and whether its rows have an order. Those of other outputs come from the first one if gathers says why for
// the number -1.
func (p *Plan) Distribute(devices int, gathers func(output int, ordered bool) string, exchanges Exchanges) *Plan {
	recursive := false
	p.Visit(func(s *Stage) {
		_, loop := s.Spec.(*Recursive)
		recursive = recursive || loop
	})
	if recursive || devices < 2 {
		return p
	}
	return p.distribute(gathers, &distributing{devices: float64(devices), exchanges: exchanges})
}

// distribute is Distribute of a plan without a recursion.
func (p *Plan) distribute(gathers func(int, bool) string, d *distributing) *Plan {
	d.stages = map[*Stage]*Stage{}
	out := &Plan{Name: p.Name}
	written := 0
	for _, o := range p.Outputs {
		o.Root = d.stage(o.Root)
		output := -1
		if o.Expect == nil {
			output = written
			written++
		}
		if why := gathers(output, o.Root.Distribution.Ordered); why != "" {
			o.Root = gather(o.Root, why)
		}
		out.Outputs = append(out.Outputs, o)
	}
	for _, s := range d.stages {
		var filters []*JoinFilter
		for _, f := range s.Filters {
			filter := *f
			if filter.Join = d.stages[f.Join]; filter.Join.probes(s) {
				filters = append(filters, &filter)
			}
		}
		s.Filters = filters
	}
	return out
}

// probes reports whether rows of a scan reach the probe side of a join on the device that reads them.
func (s *Stage) probes(scan *Stage) bool {
	for at := s; len(at.Inputs) > 0; {
		if at = at.Inputs[0]; at == scan {
			return true
		}
		if _, ok := at.Spec.(*Exchange); ok {
			return false
		}
	}
	return false
}

// Exchanges says where joins and group-bys exchange rows by their keys.
type Exchanges uint8

// The values of Exchanges. All but the first are for tests.
const (
	ExchangesThatPay Exchanges = iota
	ExchangesAlways            // wherever that is possible
	ExchangesNever             // only where there is no other way
)

// distributing distributes one plan.
type distributing struct {
	devices   float64
	exchanges Exchanges
	tasks     bool              // the devices are tasks, in whose order the rows are
	stages    map[*Stage]*Stage // of the old plan, in the new one
}

// stage returns the stage of the new plan that has the rows of a stage of the old one.
func (d *distributing) stage(old *Stage) *Stage {
	if s, ok := d.stages[old]; ok {
		return s
	}
	s := *old
	s.Inputs, s.Filters = slices.Clone(old.Inputs), slices.Clone(old.Filters)
	for i, in := range old.Inputs {
		s.Inputs[i] = d.stage(in)
	}
	out := d.place(&s)
	d.stages[old] = out
	return out
}

// place puts exchanges below a stage, if it needs them, and sets its distribution. It returns the stage that has the
// rows of the old one.
func (d *distributing) place(s *Stage) *Stage {
	in := func() Distribution { return s.Inputs[0].Distribution }
	switch spec := s.Spec.(type) {
	case *Scan:
		s.Distribution = Distribution{Spread: Anywhere, Ordered: true}
	case *Values:
	case *Materialized:
		by := d.stage(spec.By)
		s.Spec, s.Distribution = &Materialized{By: by}, d.held(by.Distribution)
	case *Filter, *Project, *Expand, *Unnest, *Partition:
		s.Distribution = in().through(s.From)
	case *Union:
		s.Distribution.Ordered = true
		for _, i := range s.Inputs {
			if i.Distribution.Spread != OnFirst {
				s.Distribution.Spread = Anywhere
				s.Distribution.Ordered = s.Distribution.Ordered && i.Distribution.Ordered
			}
		}
	case *Join:
		d.join(s, spec)
	case *Group:
		return d.group(s, spec)
	case *Window:
		d.together(s, spec.Partition, true)
	case *Sort:
		return d.sort(s, spec)
	case *Limit:
		if in := s.Inputs[0]; d.tasks && in.Distribution.Spread != OnFirst && spec.Count < math.MaxInt64-spec.Offset {
			first := *s // each task stops once it has as many rows as are wanted of all
			first.Spec = &Limit{In: spec.In, Count: spec.Offset + spec.Count}
			first.Inputs = []*Stage{in}
			first.Distribution = Distribution{Spread: Anywhere, Ordered: in.Distribution.Ordered}
			s.Inputs[0] = &first
		}
		d.gather(s, 0, "one device counts the rows")
	case *Materialize:
		s.Distribution = d.held(in())
	default:
		panic(fmt.Sprintf("physical: stages of type %T are not distributed", spec))
	}
	return s
}

// held returns the distribution of rows that are held. Tasks take them as they were written, by whatever task.
func (d *distributing) held(in Distribution) Distribution {
	if d.tasks && in.Spread != OnFirst {
		return Distribution{Spread: Anywhere, Ordered: in.Ordered}
	}
	return in
}

// through returns the distribution of rows whose columns come from the columns of rows that are distributed in this
// way, -1 for none. Without from, it is not known.
func (d Distribution) through(from []int) Distribution {
	if d.Spread != ByHash {
		return d
	}
	out := d
	out.Keys = make([]int, len(d.Keys))
	for i, k := range d.Keys {
		if out.Keys[i] = slices.Index(from, k); out.Keys[i] < 0 {
			return Distribution{Spread: Anywhere, Ordered: d.Ordered}
		}
	}
	return out
}

// exchange puts an exchange below an input of a stage.
func exchange(s *Stage, input int, spec *Exchange) {
	below := s.Inputs[input]
	spec.In = below.Schema
	spec.Ordered = spec.Ordered && below.Distribution.Ordered
	x := &Stage{Step: below.Step, At: below.At, Spec: spec, Detail: spec.detail(), Schema: below.Schema,
		Inputs: []*Stage{below}, Rows: below.Rows, RowBytes: below.RowBytes}
	switch spec.Kind {
	case Gather:
		x.Distribution = Distribution{Ordered: spec.Ordered}
	case Broadcast:
		x.Distribution = Distribution{Spread: Everywhere, Ordered: spec.Ordered}
	case Hash:
		x.Distribution = Distribution{Spread: ByHash, Keys: spec.Keys}
	case Range:
		x.Distribution = Distribution{Spread: Anywhere}
	}
	s.Inputs[input] = x
}

// gather returns a stage with the rows of a stage, in order, on the first device. why says so to people.
func gather(s *Stage, why string) *Stage {
	if s.Distribution.Spread == OnFirst {
		return s
	}
	reader := &Stage{Inputs: []*Stage{s}}
	exchange(reader, 0, &Exchange{Kind: Gather, Ordered: true})
	x := reader.Inputs[0]
	x.Detail = append(x.Detail, why)
	return x
}

// gather makes a stage have all rows of an input, in order, on the first device, where the stage then is.
func (d *distributing) gather(s *Stage, input int, why string) {
	s.Inputs[input] = gather(s.Inputs[input], why)
	s.Distribution = Distribution{}
}

// sort distributes a sort.
func (d *distributing) sort(s *Stage, spec *Sort) *Stage {
	in := s.Inputs[0]
	most := spec.Offset + spec.Limit
	switch {
	case in.Distribution.Spread == OnFirst:
		s.Distribution = Distribution{}
	case sort.IsTopK(spec.Offset, spec.Limit):
		first, each, last := *s, *spec, *spec
		each.Offset, each.Limit = 0, most
		if in.Distribution.Ordered && !d.tasks {
			// Rows with equal keys have the order of their positions.
			each.Out = sort.WithPosition(spec.In)
			last.In, last.Out = each.Out, spec.In
			last.Keys = append(slices.Clone(spec.Keys), sort.Key{Column: spec.In.Len()})
			first.Schema = each.Out
			first.RowBytes += 8
		}
		first.Spec, first.Distribution = &each, in.Distribution
		first.Rows = min(in.Rows, float64(most)*d.devices)
		s.Spec, s.Inputs = &last, []*Stage{&first}
		exchange(s, 0, &Exchange{Kind: Gather, Ordered: d.tasks})
		s.Distribution = Distribution{}
	case !d.wants(in.bytes() >= leastRanges):
		d.gather(s, 0, "one device sorts few rows")
	default:
		s.Inputs[0] = &Stage{Step: in.Step, At: in.At, Spec: &Materialize{In: in.Schema, Sample: spec.Keys},
			Detail: []string{"samples its keys"}, Schema: in.Schema, Inputs: []*Stage{in}, Rows: in.Rows,
			RowBytes: in.RowBytes, Distribution: in.Distribution}
		exchange(s, 0, &Exchange{Kind: Range, By: spec.Keys, Ordered: true})
		s.Distribution = Distribution{Spread: Anywhere, Ordered: true}
		if spec.Offset > 0 || spec.Limit >= 0 {
			each := *spec
			each.Offset, each.Limit = 0, -1
			first := *s
			first.Spec = &each
			first.Rows = in.Rows
			count := spec.Limit
			if count < 0 {
				count = math.MaxInt64
			}
			s.Spec, s.Inputs = &Limit{In: spec.In, Offset: spec.Offset, Count: count}, []*Stage{&first}
			d.gather(s, 0, "one device counts the rows")
		}
	}
	return s
}

// together makes a stage have all rows with equal keys on one device. It runs on the first device if there is no key.
func (d *distributing) together(s *Stage, keys []int, ordered bool) {
	in := s.Inputs[0].Distribution
	switch {
	case len(keys) == 0:
		why := "there are no keys by which devices could share the rows"
		if _, ok := s.Spec.(*Window); ok {
			why = "window functions without PARTITION BY need all rows on one device"
		}
		d.gather(s, 0, why)
		return
	case in.Spread == OnFirst:
		s.Distribution = Distribution{}
		return
	case in.Spread != ByHash || !subset(in.Keys, keys):
		exchange(s, 0, &Exchange{Kind: Hash, Keys: keys, Ordered: ordered})
		in = s.Inputs[0].Distribution
	}
	s.Distribution = Distribution{Spread: Anywhere}
	if group, ok := s.Spec.(*Group); ok { // the keys are the first columns of groups
		at := make([]int, len(in.Keys))
		for i, k := range in.Keys {
			at[i] = slices.Index(group.keys(), k)
		}
		s.Distribution = Distribution{Spread: ByHash, Keys: at}
	}
}

// subset reports whether all of some columns are among others. Rows that are placed by the hash of some keys are
// together for groups by more keys.
func subset(of, columns []int) bool {
	return !slices.ContainsFunc(of, func(c int) bool { return !slices.Contains(columns, c) })
}

// keys returns the columns by which rows are grouped.
func (s *Group) keys() []int {
	if s.Hash != nil {
		return s.Hash.InputKeys()
	}
	return s.Sorted.Keys
}

// always reports whether there are groups even without rows. A row would belong to each of them.
func (s *Group) always() bool {
	return s.Hash != nil && len(s.Hash.Always) > 0 || s.Sorted != nil && len(s.Sorted.Always) > 0
}

// group distributes a group-by.
func (d *distributing) group(s *Stage, spec *Group) *Stage {
	in := s.Inputs[0].Distribution
	keys := spec.keys()
	if spec.always() { // of groups without rows: only one device may return them
		keys = nil
	}
	if spec.Hash != nil && spec.Hash.Phase == groupby.Partial {
		// Rows of partial aggregates, which a task writes, may be several per group.
		if s.Distribution = in; in.Spread != OnFirst {
			s.Distribution = Distribution{Spread: Anywhere}
		}
		return s
	}
	merges := spec.Hash != nil && spec.Hash.Phase == groupby.Merge
	if merges || spec.Sorted != nil || in.Spread == OnFirst ||
		in.Spread == ByHash && len(keys) > 0 && subset(in.Keys, keys) ||
		len(keys) > 0 && d.wants(s.Rows*leastReduction > s.Inputs[0].Rows) {
		d.together(s, keys, spec.Sorted != nil)
		return s
	}
	first, last := *s, *s
	partial, merge := spec.Hash.Split()
	first.Spec, first.Schema = &Group{Hash: partial}, partial.Out
	first.Rows = min(s.Inputs[0].Rows, s.Rows*d.devices)
	first.RowBytes, first.From = 0, nil
	for _, f := range partial.Out.Fields {
		first.RowBytes += float64(gpu.NewSchema(f).RowBytes())
	}
	first.Distribution = Distribution{Spread: Anywhere}
	last.Spec, last.Inputs = &Group{Hash: merge}, []*Stage{&first}
	if len(keys) == 0 {
		exchange(&last, 0, &Exchange{Kind: Gather})
		last.Distribution = Distribution{}
		return &last
	}
	d.together(&last, merge.InputKeys(), false)
	return &last
}

// join distributes a join.
func (d *distributing) join(s *Stage, spec *Join) {
	probe, build := s.Inputs[0], s.Inputs[1]
	on := []Spread{probe.Distribution.Spread, build.Distribution.Spread}
	returnsBuild := spec.Spec.Kind.KeepsBuild() || spec.Spec.Kind.OfBuild()
	hashed := len(spec.Spec.ProbeKeys) > 0
	switch {
	case on[0] == OnFirst && on[1] == OnFirst:
		s.Distribution = Distribution{}
	case on[0] == OnFirst && !(hashed && d.wants(build.bytes() > alwaysBroadcast)), returnsBuild && !hashed:
		for i := range s.Inputs {
			if on[i] != OnFirst {
				exchange(s, i, &Exchange{Kind: Gather, Ordered: !spec.Spec.AnyOrder})
			}
		}
		s.Distribution = Distribution{}
	case !returnsBuild && on[0] != OnFirst && (!hashed || d.broadcasts(probe, build)):
		exchange(s, 1, &Exchange{Kind: Broadcast, Ordered: !spec.Spec.AnyOrder})
		s.Distribution = probe.Distribution.through(s.From)
	default:
		d.repartition(s, spec.Spec)
	}
}

// bytes returns the estimate of the bytes of the rows of a stage.
func (s *Stage) bytes() float64 { return s.Rows * s.RowBytes }

// broadcasts reports whether a device receives fewer bytes if the build side goes to all devices than if both sides are
// exchanged, or few anyway.
func (d *distributing) broadcasts(probe, build *Stage) bool {
	return !d.wants(build.bytes() > alwaysBroadcast && build.bytes()*d.devices > build.bytes()+probe.bytes())
}

// wants reports whether rows are exchanged by their keys: if it pays, or as a test says.
func (d *distributing) wants(pays bool) bool {
	return d.exchanges == ExchangesAlways || pays && d.exchanges != ExchangesNever
}

// repartition sends both sides of a join to the device that the hash of their keys selects, unless they are already
// there.
func (d *distributing) repartition(s *Stage, spec join.Spec) {
	sides := [][]int{spec.ProbeKeys, spec.BuildKeys}
	// Rows of one side may be placed by some of the keys. The other side follows.
	by := make([]int, len(spec.ProbeKeys)) // positions among the keys
	for i := range by {
		by[i] = i
	}
	placed := func(side int) []int {
		in := s.Inputs[side].Distribution
		if in.Spread != ByHash {
			return nil
		}
		at := make([]int, len(in.Keys))
		for i, k := range in.Keys {
			if at[i] = slices.Index(sides[side], k); at[i] < 0 {
				return nil
			}
		}
		return at
	}
	for side := range sides {
		if at := placed(side); at != nil {
			by = at
			break
		}
	}
	for side, keys := range sides {
		if !slices.Equal(placed(side), by) {
			picked := make([]int, len(by))
			for i, k := range by {
				picked[i] = keys[k]
			}
			exchange(s, side, &Exchange{Kind: Hash, Keys: picked})
		}
	}
	s.Distribution = Distribution{Spread: Anywhere}
	// Pairs are placed by the keys of both sides. Of a row without a match, the columns of the other side are null.
	at := func(keys, out []int, offset int) []int {
		found := make([]int, len(by))
		for i, k := range by {
			if found[i] = slices.Index(out, keys[k]); found[i] < 0 {
				return nil
			}
			found[i] += offset
		}
		return found
	}
	if keys := at(spec.ProbeKeys, spec.ProbeOut, 0); keys != nil && !spec.Kind.KeepsBuild() {
		s.Distribution = Distribution{Spread: ByHash, Keys: keys}
	} else if keys := at(spec.BuildKeys, spec.BuildOut, len(spec.ProbeOut)); keys != nil && !spec.Kind.KeepsProbe() {
		s.Distribution = Distribution{Spread: ByHash, Keys: keys}
	}
}
