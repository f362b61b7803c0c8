package physical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/partition"
	"github.com/gstream/gstream/operators/sort"
)

// Fragment is a part of a plan that tasks compute, on whatever machine: the stages between two exchanges. Each task
// computes a part of the rows, and writes them for the tasks of the fragments that read them.
type Fragment struct {
	Number int    // its position in the list of fragments
	Name   string // the step that it computes
	Does   []string
	Root   *Stage
	// Sends says how the rows are divided: by the hash or by ranges of keys, or not at all.
	Sends ExchangeKind
	Keys  []int      // of Hash
	By    []sort.Key // of Range
	// Samples are keys of which the tasks keep a sample, for the ranges of a fragment that reads their rows.
	Samples []sort.Key
	// Reads has what comes from other fragments, by the scans in the tree that stand for it.
	Reads map[*Stage]*Received
	// Scans are the tables that it reads, which its tasks share.
	Scans []*Stage
	// Spread says that several tasks may compute the fragment. Otherwise there is one.
	Spread bool
	// Sections are the inputs of unions that follow each other. A task computes rows of one.
	Sections int
	// Writes, if set, is the output that has the rows, and no other fragment: each task writes files of it.
	Writes *Output
	// Here says that this process computes the fragment, because nobody else can read its table.
	Here bool
	// Rows and Bytes are estimates of what it sends.
	Rows, Bytes float64

	sectionOf map[*Stage]int // of the inputs of unions that are sections
}

// Received is rows of another fragment that a fragment reads.
type Received struct {
	From *Fragment
	// Takes says which rows a task reads: all of them (Broadcast), those of its partitions (Hash, Range), all of them
	// in the only task (Gather), or a share of them, in order (Shared).
	Takes Takes
}

// Takes says which rows of a fragment a task reads.
type Takes uint8

// The values of Takes.
const (
	TakesAll        Takes = iota // every task reads all rows
	TakesPartitions              // a task reads the partitions that belong to it
	TakesShare                   // a task reads a share of the rows, in order
)

// String names what a task takes.
func (t Takes) String() string {
	return [...]string{"all rows", "its partitions", "a share of the rows"}[t]
}

// Cut cuts a plan into fragments for tasks, each after those that it reads, and the plan of the process that collects
// their rows: the outputs, with scans of the rows of fragments. workers is the number of tasks that run at a time. here
// says which tables no other process can read. A plan with a recursion stays whole.
//
// inParts says of which written outputs tasks can write files. A fragment whose rows are those of such an output writes
// it. The plan of the last process then has a scan without rows.
//
// Exchanges are cut, and steps whose rows are held. Rows that are divided by ranges are written twice: a fragment
// samples their keys, and one divides them once the splitters are known.
func (p *Plan) Cut(workers int, exchanges Exchanges, here func(*Scan) bool, inParts func(output int) bool) (*Plan,
	[]*Fragment, map[*Stage]*Received) {
	recursive := false
	p.Visit(func(s *Stage) {
		_, loop := s.Spec.(*Recursive)
		recursive = recursive || loop
	})
	if recursive {
		return p, nil, nil
	}
	written := func(int, bool) string { return "the last process writes the output" }
	d := p.distribute(written, &distributing{devices: float64(max(workers, 2)), exchanges: exchanges,
		tasks: true})
	c := &cutting{here: here, exchanged: map[*Stage]*Fragment{}}
	last := &Fragment{Reads: map[*Stage]*Received{}, Number: -1}
	out := &Plan{Name: p.Name}
	for _, o := range d.Outputs {
		o.Root = c.tree(o.Root, last, map[*Stage]*Stage{})
		out.Outputs = append(out.Outputs, o)
	}
	c.write(out, last, inParts)
	return out, c.fragments, last.Reads
}

// write finds the fragments that write outputs of the last plan.
func (c *cutting) write(out *Plan, last *Fragment, inParts func(output int) bool) {
	readers := map[*Fragment]int{}
	for _, f := range append(slices.Clone(c.fragments), last) {
		for _, in := range f.Reads {
			readers[in.From]++
		}
	}
	written := 0
	for _, o := range out.Outputs {
		if o.Expect != nil {
			continue
		}
		if in := last.Reads[o.Root]; in != nil && inParts(written) && readers[in.From] == 1 && !in.From.Here &&
			in.From.Sends == Gather && len(in.From.Samples) == 0 {
			in.From.Writes = &o
			o.Root.Rows, o.Root.Detail = 0, []string{fmt.Sprintf("fragment %d has written its files",
				in.From.Number+1)}
		}
		written++
	}
}

type cutting struct {
	here      func(*Scan) bool
	fragments []*Fragment
	exchanged map[*Stage]*Fragment // by the exchange, the stage that holds rows, or the scan
}

// tree returns a copy of a tree of a fragment, with scans in place of what comes from other fragments.
func (c *cutting) tree(s *Stage, f *Fragment, copies map[*Stage]*Stage) *Stage {
	switch spec := s.Spec.(type) {
	case *Exchange:
		return c.exchange(s, spec, f)
	case *Materialize:
		return f.receive(s, c.held(s), share(s))
	case *Materialized:
		return f.receive(s, c.held(spec.By), share(s))
	case *Scan:
		if c.here(spec) && f.Number >= 0 && !f.Here {
			return f.receive(s, c.scanned(s), TakesShare)
		}
	}
	return c.copied(s, f, copies)
}

// share returns how a task takes rows that are held.
func share(s *Stage) Takes {
	if s.Distribution.Spread == OnFirst {
		return TakesAll
	}
	return TakesShare
}

// copied returns a copy of a stage over copies of its inputs.
func (c *cutting) copied(s *Stage, f *Fragment, copies map[*Stage]*Stage) *Stage {
	out := *s
	copies[s] = &out
	out.Inputs = slices.Clone(s.Inputs)
	for i, in := range s.Inputs {
		out.Inputs[i] = c.tree(in, f, copies)
	}
	if s.Scan() != nil {
		f.Scans = append(f.Scans, &out)
	}
	// The joins above a scan are copied before it.
	out.Filters = nil
	for _, filter := range s.Filters {
		if join, ok := copies[filter.Join]; ok {
			one := *filter
			one.Join = join
			out.Filters = append(out.Filters, &one)
		}
	}
	return &out
}

// divide numbers the sections below a stage. It returns false if there is no union.
func (f *Fragment) divide(s *Stage) bool {
	if s.Distribution.Spread == OnFirst || len(s.Inputs) == 0 {
		return false
	}
	if _, union := s.Spec.(*Union); !union {
		return f.divide(s.Inputs[0])
	}
	for _, in := range s.Inputs {
		if !f.divide(in) {
			f.sectionOf[in] = f.Sections
			f.Sections++
		}
	}
	return true
}

// receive adds a scan of rows of a fragment in place of a stage.
func (f *Fragment) receive(s *Stage, from *Fragment, takes Takes) *Stage {
	scan := &Scan{Source: fmt.Sprintf("rows of fragment %d", from.Number+1)}
	for i := range s.Schema.Fields {
		scan.Columns = append(scan.Columns, i)
	}
	out := &Stage{Step: s.Step, At: s.At, Spec: scan, Schema: s.Schema, Rows: s.Rows, RowBytes: s.RowBytes,
		Distribution: s.Distribution, Detail: []string{fmt.Sprintf("%v of fragment %d", takes, from.Number+1)}}
	f.Reads[out] = &Received{from, takes}
	return out
}

// add adds the fragment that computes a stage.
func (c *cutting) add(root *Stage, here bool) *Fragment {
	f := &Fragment{Name: root.Step, Reads: map[*Stage]*Received{}, sectionOf: map[*Stage]int{}, Here: here,
		Spread: root.Distribution.Spread != OnFirst && !here, Rows: root.Rows, Bytes: root.bytes()}
	f.Root = c.tree(root, f, map[*Stage]*Stage{})
	if f.Spread {
		f.divide(f.Root)
	}
	f.Sections = max(f.Sections, 1)
	f.Number = len(c.fragments)
	c.fragments = append(c.fragments, f)
	var describe func(*Stage)
	describe = func(s *Stage) {
		for _, in := range s.Inputs {
			describe(in)
		}
		f.Does = append(f.Does, s.Kind())
	}
	describe(f.Root)
	return f
}

// held returns the fragment that computes the rows that a stage holds.
func (c *cutting) held(s *Stage) *Fragment {
	f := c.exchanged[s]
	if f == nil {
		f = c.add(s.Inputs[0], false)
		c.exchanged[s] = f
	}
	return f
}

// scanned returns the fragment that reads a table which only this process can read.
func (c *cutting) scanned(s *Stage) *Fragment {
	f := c.exchanged[s]
	if f == nil {
		f = c.add(s, true)
		c.exchanged[s] = f
	}
	return f
}

// exchange returns the scan of the rows of an exchange.
func (c *cutting) exchange(s *Stage, spec *Exchange, f *Fragment) *Stage {
	from := c.exchanged[s]
	if from == nil {
		below := s.Inputs[0]
		if spec.Kind == Range { // tasks keep a sample in place of a stage
			below = below.Inputs[0]
		}
		from = c.add(below, false)
		switch spec.Kind {
		case Hash:
			from.Sends, from.Keys = Hash, spec.Keys
		case Range:
			from.Samples = spec.By
			divides := &Fragment{Name: from.Name, Does: []string{"partition by ranges"}, Number: len(c.fragments),
				Reads: map[*Stage]*Received{}, Spread: true, Sections: 1, Sends: Range, By: spec.By, Rows: from.Rows,
				Bytes: from.Bytes}
			divides.Root = divides.receive(below, from, TakesShare)
			c.fragments = append(c.fragments, divides)
			from = divides
		}
		c.exchanged[s] = from
	}
	switch spec.Kind {
	case Hash, Range:
		return f.receive(s, from, TakesPartitions)
	}
	return f.receive(s, from, TakesAll)
}

// Divisible returns the scan of partitions whose rows may be divided further, among tasks that all read the whole of
// the other partitions: the probe side of joins, if each of its rows has its result alone. It is nil if there is none.
func (f *Fragment) Divisible() *Stage {
	for at := f.Root; ; at = at.Inputs[0] {
		switch spec := at.Spec.(type) {
		case *Filter, *Project, *Expand, *Unnest:
		case *Join:
			if spec.Spec.Kind.KeepsBuild() || spec.Spec.Kind.OfBuild() {
				return nil
			}
		case *Group:
			if spec.Hash == nil || spec.Hash.Phase != groupby.Partial {
				return nil
			}
		case *Scan:
			if in := f.Reads[at]; in == nil || in.Takes != TakesPartitions || at == f.Root {
				return nil
			}
			return at
		default:
			return nil
		}
	}
}

// Task returns the plan of a task of a fragment: a share, of several, of a section. The scans of the plan are copies of
// those of the fragment, by which copies names them. Rows that are on one device belong to the first share.
func (f *Fragment) Task(section, share, of int) (plan *Plan, copies map[*Stage]*Stage) {
	copies = map[*Stage]*Stage{}
	var tree func(s *Stage, spread bool) *Stage
	tree = func(s *Stage, spread bool) *Stage {
		one := s.Distribution.Spread == OnFirst
		if at, ok := f.sectionOf[s]; ok && at != section || spread && one && share > 0 {
			return &Stage{Step: s.Step, At: s.At, Spec: &Values{}, Schema: s.Schema}
		}
		out := *s
		copies[s] = &out
		out.Inputs, out.Filters = slices.Clone(s.Inputs), nil
		for i, in := range s.Inputs {
			out.Inputs[i] = tree(in, spread && !one)
		}
		for _, filter := range s.Filters {
			if join, ok := copies[filter.Join]; ok {
				same := *filter
				same.Join = join
				out.Filters = append(out.Filters, &same)
			}
		}
		if s.Distribution.Spread != Everywhere {
			out.Rows, out.Pairs, out.Sorted = s.Rows/float64(of), s.Pairs/float64(of), s.Sorted/float64(of)
		}
		out.Distribution = Distribution{}
		return &out
	}
	root := tree(f.Root, f.Spread)
	all := make([]int, root.Schema.Len())
	for i := range all {
		all[i] = i
	}
	o := Output{Root: root, Permutation: all, Schema: root.Schema}
	if f.Writes != nil {
		o.Permutation, o.Schema = f.Writes.Permutation, f.Writes.Schema
	}
	return &Plan{Name: f.Name, Outputs: []Output{o}}, copies
}

// Partition adds to the plan of a task that its rows are divided into parts, and ordered by them.
func (f *Fragment) Partition(plan *Plan, parts int, seed uint64, splitters [][]gpu.Scalar) {
	o := &plan.Outputs[0]
	spec := partition.Spec{In: o.Root.Schema, Parts: parts, Keys: f.Keys, Seed: seed, By: f.By, Splitters: splitters}
	out := spec.Out()
	divided := &Stage{Step: o.Root.Step, At: o.Root.At, Spec: &Partition{spec}, Schema: out, Inputs: []*Stage{o.Root},
		Rows: o.Root.Rows, RowBytes: o.Root.RowBytes + 4}
	last := out.Len() - 1
	o.Root = &Stage{Step: o.Root.Step, At: o.Root.At, Schema: out, Inputs: []*Stage{divided}, Rows: o.Root.Rows,
		RowBytes: divided.RowBytes, Spec: &Sort{sort.Spec{In: out, Keys: []sort.Key{{Column: last}}, Limit: -1}}}
	o.Permutation, o.Schema = append(o.Permutation, last), out
}

// String describes a fragment in one line.
func (f *Fragment) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s", f.Name, strings.Join(f.Does, ", "))
	names := func(columns []int) string {
		var out []string
		for _, c := range columns {
			out = append(out, f.Root.Schema.Fields[c].Name)
		}
		return strings.Join(out, ", ")
	}
	switch {
	case f.Sends == Hash:
		fmt.Fprintf(&out, ", partitioned by the hash of %s", names(f.Keys))
	case f.Sends == Range:
		fmt.Fprintf(&out, " of %s", names(columnsOf(f.By)))
	case len(f.Samples) > 0:
		fmt.Fprintf(&out, ", with a sample of %s", names(columnsOf(f.Samples)))
	}
	if f.Writes != nil {
		out.WriteString(", into the output")
	}
	if f.Here {
		out.WriteString(", in this process")
	}
	return out.String()
}
