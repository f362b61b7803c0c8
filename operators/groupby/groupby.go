package groupby

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// Aggregate is one aggregate of a group-by.
type Aggregate struct {
	Kind gpu.AggregateKind
	// Input is the column to aggregate, -1 for count(*).
	Input int
	// Output is the type of the result; see gpu.Aggregate.
	Output gpu.Type
	// ArgMinMax says which row has the value of a gpu.ArgValue. Only a CPU has its state.
	ArgMinMax *ArgMinMax `json:"Leader"`
}

// Spec describes a group-by.
type Spec struct {
	In         *gpu.Schema
	Keys       []int
	Aggregates []Aggregate
	// Out names the keys, then the aggregates.
	Out  *gpu.Schema
	Hint gpu.GroupHint
	// Algorithm forces the algorithm of this name, one of Algorithms(). "" chooses one for each
	// stride.
	Algorithm string
	// Always has the keys of the groups of an input without rows. A row of input would belong to
	// each of these groups. Without keys there is always one group.
	Always [][]gpu.Scalar
	// Phase is the part of the group-by that the operator does, see Split.
	Phase Phase `json:",omitempty"`
}

// partialAggregate is an aggregate that the device accumulates. Aggregates share partial aggregates: an average is a
// sum divided by a count, and the count of a column without nulls is the count of rows.
type partialAggregate struct {
	kind  gpu.AggregateKind
	input int // -1 for count(*)
}

// argMinMaxPartials returns the arg_min and arg_max states, and list with their partial aggregates appended.
// The last partial aggregate of a state is the value of an aggregate. States share no partial aggregates.
func (s *Spec) argMinMaxPartials(list []partialAggregate, parts [][]int) ([]partialAggregate, []argMinMax) {
	var out []argMinMax
	sets := s.candidateRows()
	for i, a := range s.Aggregates {
		if a.ArgMinMax == nil {
			continue
		}
		x := argMinMax{ArgMinMax: a.ArgMinMax, at: len(list)}
		position := slices.IndexFunc(sets, a.ArgMinMax.candidates(s.In).equal)
		list = append(list, partialAggregate{gpu.ArgValue, s.In.Len() + position})
		for _, k := range a.ArgMinMax.Order {
			list = append(list, partialAggregate{gpu.ArgValue, k.Column})
		}
		list = append(list, partialAggregate{gpu.ArgValue, a.Input})
		x.end = len(list)
		out, parts[i] = append(out, x), []int{len(list) - 1}
	}
	return list, out
}

// partialAggregates returns the distinct partial aggregates of a spec, and for each aggregate the number of the
// partial aggregate that is its result, or the numbers of its sum and count.
func (s *Spec) partialAggregates() (list []partialAggregate, parts [][]int) {
	at := map[partialAggregate]int{}
	use := func(m partialAggregate) int {
		if m.kind == gpu.Count && !s.In.Fields[m.input].Nullable {
			m = partialAggregate{gpu.CountAll, -1}
		}
		i, ok := at[m]
		if !ok {
			i = len(list)
			at[m] = i
			list = append(list, m)
		}
		return i
	}
	for _, a := range s.Aggregates {
		switch a.Kind {
		case gpu.ArgValue: // see argMinMaxPartials
			parts = append(parts, nil)
		case gpu.Avg:
			sum, count := use(partialAggregate{gpu.Sum, a.Input}), use(partialAggregate{gpu.Count, a.Input})
			parts = append(parts, []int{sum, count})
		default:
			parts = append(parts, []int{use(partialAggregate{a.Kind, a.Input})})
		}
	}
	return list, parts
}

// final returns the type of a partial aggregate's result.
func (s *Spec) final(m partialAggregate) gpu.Type {
	switch {
	case m.kind == gpu.CountAll || m.kind == gpu.Count:
		return gpu.Of(gpu.Int64)
	case m.kind != gpu.Sum:
		return s.In.Fields[m.input].Type
	}
	return gpu.SumType(s.In.Fields[m.input].Type)
}

// partial returns the type of a partial aggregate before it is final. Sums of integers and decimals have
// 128 bits, because the sum of some rows may be larger than the sum of all rows.
func (s *Spec) partial(m partialAggregate) gpu.Type {
	if t := s.final(m); m.kind != gpu.Sum || t.IsFloat() {
		return t
	}
	return gpu.Of(gpu.HugeInt)
}

// rawType returns the type of a partial aggregate of a single row. Integers and decimals to be summed keep
// their width, because a sum of 128 bits takes integers of any type.
func (s *Spec) rawType(m partialAggregate) gpu.Type {
	if t := s.final(m); m.kind != gpu.Sum || t.IsFloat() {
		return t
	}
	return stored(s.In.Fields[m.input].Type)
}

// quotient returns the program of an average: a sum divided by a count, as DOUBLE.
func quotient(sum gpu.Type) *gpu.Program {
	double := gpu.Of(gpu.Float64)
	return &gpu.Program{
		Inputs: []gpu.Type{sum, gpu.Of(gpu.Int64)},
		Code: []gpu.Instr{
			{Op: gpu.OpCast, Type: double, Args: []int{0}, Mask: -1, Text: "avg"},
			{Op: gpu.OpCast, Type: double, Args: []int{1}, Mask: -1, Text: "avg"},
			{Op: gpu.OpDiv, Type: double, Args: []int{2, 3}, Mask: -1, Text: "avg"},
		},
		Outputs: []int{4},
	}
}

// groups has groups, by number, with their partial aggregates.
type groups interface {
	len() int
	keyColumns(t operators.Task, from, to int) ([]gpu.Column, error)
	// column returns a partial aggregate of groups [from, to), in its partial or in its final type.
	column(t operators.Task, i, from, to int) (gpu.Column, error)
	release()
}

// rows has partial aggregates with distinct keys.
type rows struct {
	*gpu.Stride
	keys int
}

func (r rows) len() int { return r.Rows }

func (r rows) keyColumns(t operators.Task, from, to int) (out []gpu.Column, err error) {
	for _, k := range r.Cols[:r.keys] {
		c, err := t.Queue.Slice(t.Lease, k, from, to)
		if err != nil {
			gpu.ReleaseColumns(out)
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func (r rows) column(t operators.Task, i, from, to int) (gpu.Column, error) {
	return t.Queue.Slice(t.Lease, r.Cols[r.keys+i], from, to)
}

func (r rows) release() { r.Stride.Release() }

// hashGroupBy is the group-by. A lane aggregates its rows in its own table, or an algorithm makes
// rows of partial aggregates from each stride, which the lane merges in another table. When a table
// is large, the lane flushes its groups as rows of partial aggregates, and partitions them by hash.
// No group is in two partitions. A part of the result has one or several partitions, which one lane
// merges. Flushed groups spill; the tables of the lanes, and those of the parts that are being
// merged, must fit the device's budget.
type hashGroupBy struct {
	Spec
	seed        uint64 // of the hash by which groups are partitioned
	accumulated []partialAggregate
	parts       [][]int // for each aggregate, positions in accumulated
	argMinMax   []argMinMax
	candidates  []candidates
	partials    *gpu.Schema // keys and partial aggregates
	// raw has the keys and partial aggregates of raw rows, which are groups of one row: values to be summed
	// are those of the input, and count(*) is left out.
	raw    *gpu.Schema
	single *gpu.Program // computes the partial aggregates of a raw row that are not columns of it
	ofRaw  *hashGroupBy // aggregates raw rows in tables of blocks; nil if it cannot
	offset *gpu.Program // computes the offset of a dense key from the least key; nil for other keys

	mu     sync.Mutex
	only   groups                           // all groups, when there is one lane and it did not flush
	chosen []Choice                         // algorithms in the order in which strides took them, each once
	expect atomic.Int64                     // groups of a stride, see expected
	unfit  atomic.Pointer[error]            // why tables of blocks did not take the values of a stride
	large  []atomic.Pointer[gpu.Dictionary] // by key, see expand
	texts  []distinct                       // by key
	lanes  atomic.Int32                     // that have been made
	held   *spill.Partitions                // otherwise rows of partial aggregates, of all lanes
	alone  *spill.Partitions                // and raw rows
	reader *spill.Reader                    // of the parts in order, for the only lane
	few    []*gpu.Stride                    // further rows of both kinds, in small strides that are not partitioned
	groups int                              // rows of few and held: at least the number of groups
	shift  uint                             // a part is 1<<shift partitions
	n      int                              // number of parts
	stride int                              // rows of a stride of the result

	// Parts with partitions are a queue: lanes have begun parts below begun; parts from end are
	// split off.
	taking     sync.Mutex
	begun, end int
	items      []operators.Items // of the parts, when they were begun

	// keysSampled says that the keys of a stride were sampled, and skewed that few groups had
	// nearly all of its rows.
	keysSampled, skewed atomic.Bool
}

const (
	// fanOut is the number of bits of the hash that select a partition.
	fanOut = 8
	// fewGroups is the maximum number of flushed groups that are not partitioned, unless others
	// are.
	fewGroups = 1 << 12
	// partGroups is the least number of groups that a part should have.
	partGroups = 1 << 14
	// flushGroups is the maximum number of groups of a lane's table, if there are several lanes.
	flushGroups = 1 << 16
	// indexBytes is the size in bytes of a slot of a table that is indexed by the key.
	indexBytes = 4
	// partStrides is the least number of strides per part for a single lane, so that kernels take
	// longer than their launches.
	partStrides = 2
	// A flushed table has cost more than it has saved if it had fewer than passReduction rows per
	// group, or nearly as many groups as its input had runs of rows with one key. The next
	// passStrides strides then bypass the table, and twice as many each further time, up to
	// mostPassed.
	passReduction = 2
	passStrides   = 16
	mostPassed    = 256
	// sampleRows is the number of rows of a stride by which the length of its runs and its groups
	// are estimated.
	sampleRows = 1 << 13
	// directRows is the least number of rows per slot of the lanes' direct tables, unless the slots
	// are as few as the groups of a table that is not flushed, and per group of tables that are flushed at the
	// planner's bound of the groups.
	directRows = 8
)

// New returns the group-by of a spec.
func New(s Spec) (GroupBy, error) {
	if s.Phase != Partial && s.Out.Len() != len(s.Keys)+len(s.Aggregates) {
		return nil, fmt.Errorf("group-by returns %d columns under %d names", len(s.Keys)+len(s.Aggregates), s.Out.Len())
	}
	for _, a := range s.Aggregates {
		if a.Kind > gpu.ArgValue || (a.Kind == gpu.ArgValue) != (a.ArgMinMax != nil) {
			return nil, fmt.Errorf("group-by has no aggregate of kind %d", a.Kind)
		}
		if a.Kind == gpu.CountAll && a.Input != -1 || a.Kind != gpu.CountAll && (a.Input < 0 || a.Input >= s.In.Len()) {
			return nil, fmt.Errorf("%v of column %d, of %d columns", a.Kind, a.Input, s.In.Len())
		}
	}
	if len(s.Keys) == 0 && s.Phase != Partial {
		s.Always = [][]gpu.Scalar{nil}
	}
	if s.Phase != Whole && slices.ContainsFunc(s.Aggregates, func(a Aggregate) bool { return a.ArgMinMax != nil }) {
		return nil, fmt.Errorf("arg_min and arg_max are not computed in phases")
	}
	o := s.state()
	o.seed, o.partials, o.raw = rand.Uint64(), operators.PickFields(s.In, s.Keys), operators.PickFields(s.In, s.Keys)
	o.large, o.texts = make([]atomic.Pointer[gpu.Dictionary], len(s.Keys)), make([]distinct, len(s.Keys))
	for _, m := range o.accumulated {
		o.partials.Fields = append(o.partials.Fields,
			gpu.Field{Name: m.kind.String(), Type: o.partial(m), Nullable: true})
		if m.kind == gpu.CountAll {
			continue
		}
		o.raw.Fields = append(o.raw.Fields, gpu.Field{Name: m.kind.String(), Type: o.rawType(m), Nullable: true})
	}
	o.single = o.singles()
	o.ofRaw = o.newOfRaw()
	if t, ok := o.denseKey(); ok {
		o.offset = offset(t, s.Hint.Lo)
	}
	return o, nil
}

// state returns the group-by with what follows from its spec.
func (s Spec) state() *hashGroupBy {
	o := &hashGroupBy{candidates: s.candidateRows()}
	o.expect.Store(int64(s.Hint.Groups))
	o.accumulated, o.parts = s.partialAggregates()
	o.accumulated, o.argMinMax = s.argMinMaxPartials(o.accumulated, o.parts)
	s.In = s.positioned(o.candidates)
	o.Spec = s
	return o
}

// denseKey reports whether the only key is stored as an integer and its values are in the range of
// the hint, and returns that integer type. Partitions are then ranges of the key, and the table of
// a part is indexed by the key.
func (o *hashGroupBy) denseKey() (gpu.Type, bool) {
	if len(o.Keys) != 1 || !o.Hint.Dense {
		return gpu.Type{}, false
	}
	f := o.In.Fields[o.Keys[0]]
	switch t := f.Type; {
	case f.Nullable || t.Wide || t.IsVar() || t.IsFloat() || t.IsUnsigned():
		return t, false
	case t.Width() == 4:
		return gpu.Of(gpu.Int32), true
	default:
		return gpu.Of(gpu.Int64), t.Width() == 8
	}
}

// offset returns the program that subtracts lo from a key that is stored as t.
func offset(t gpu.Type, lo int64) *gpu.Program {
	long := gpu.Of(gpu.Int64)
	p := &gpu.Program{Inputs: []gpu.Type{t}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: long, Value: gpu.IntScalar(long, lo), Mask: -1}}}
	in := 0
	if t != long {
		p.Code = append(p.Code, gpu.Instr{Op: gpu.OpCast, Type: long, Args: []int{0}, Mask: -1})
		in = 2
	}
	p.Code = append(p.Code, gpu.Instr{Op: gpu.OpSub, Type: long, Args: []int{in, 1}, Mask: -1})
	p.Outputs = []int{len(p.Code)} // the last register; there is one input
	return p
}

// keyShift returns the number of low bits of a dense key's offset that do not select a
// partition.
func (o *hashGroupBy) keyShift() uint {
	return uint(max(bits.Len64(uint64(o.Hint.Hi)-uint64(o.Hint.Lo))-fanOut, 0))
}

// stored returns the type in which a column's values are stored: an integer type for a decimal.
func stored(t gpu.Type) gpu.Type {
	switch {
	case t.Kind != gpu.Decimal:
		return t
	case t.Wide:
		return gpu.Of(gpu.HugeInt)
	}
	return gpu.Of(gpu.Int64)
}

// computed reports whether a partial aggregate of a raw row is computed, and not a column of the input.
func (s *Spec) computed(m partialAggregate) bool {
	return m.kind == gpu.Count || m.kind == gpu.Sum && s.rawType(m) != stored(s.In.Fields[m.input].Type)
}

// singles returns the program that computes those partial aggregates of a raw row that are not columns.
func (o *hashGroupBy) singles() *gpu.Program {
	p := &gpu.Program{}
	for _, m := range o.accumulated {
		if o.computed(m) {
			p.Inputs = append(p.Inputs, o.In.Fields[m.input].Type)
		}
	}
	add := func(op gpu.Op, t gpu.Type, arg int) int {
		p.Code = append(p.Code, gpu.Instr{Op: op, Type: t, Args: []int{arg}, Mask: -1, Text: "group-by"})
		return len(p.Inputs) + len(p.Code) - 1
	}
	in := 0
	for _, m := range o.accumulated {
		if !o.computed(m) {
			continue
		}
		out := in
		if m.kind == gpu.Count {
			out = add(gpu.OpIsNotNull, gpu.Of(gpu.Bool), in)
		}
		p.Outputs = append(p.Outputs, add(gpu.OpCast, o.rawType(m), out))
		in++
	}
	return p
}

// ones is the program for count(*) of single rows.
var ones = gpu.Program{Code: []gpu.Instr{{Op: gpu.OpConst, Type: gpu.Of(gpu.Int64),
	Value: gpu.IntScalar(gpu.Of(gpu.Int64), 1), Mask: -1}}, Outputs: []int{0}}

// counted adds count(*) to raw rows, of which it takes ownership.
func (o *hashGroupBy) counted(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
	if s.Schema != o.raw || o.raw.Len() == o.partials.Len() {
		return s, nil
	}
	at := slices.Index(o.accumulated, partialAggregate{gpu.CountAll, -1})
	count, err := t.Queue.Eval(t.Lease, &ones, nil, s.Rows)
	if err != nil {
		s.Release()
		return nil, err
	}
	s.Cols = slices.Insert(s.Cols, len(o.Keys)+at, count[0])
	return s, nil
}

// GroupBy is the operator: Blocking, and then a Source.
type GroupBy interface {
	operators.Blocking
	operators.Source
}

func (o *hashGroupBy) Schema() *gpu.Schema { return o.Out }

// newLocalTable makes the table of a lane, with space for a number of groups. It has partial
// aggregates.
func (o *hashGroupBy) newLocalTable(t operators.Task, groups int) (*table, error) {
	hint := o.Hint
	switch {
	case t.Lanes > 1 && !o.direct(t):
		hint = gpu.GroupHint{Groups: groups}
	case t.Spill != nil && o.offset != nil && o.span() > uint64(grant.GroupTables.Of(t.Budget())/indexBytes):
		hint = gpu.GroupHint{Groups: min(hint.Groups, o.tableGroups(t.Budget(), t.Lanes))}
	}
	list, inputs := o.aggregates()
	return o.newTable(t, o.In, o.Keys, list, inputs, hint)
}

// aggregates returns the aggregates that a lane accumulates, and their input columns.
func (o *hashGroupBy) aggregates() (list []gpu.Aggregate, inputs []int) {
	for _, m := range o.accumulated {
		a := gpu.Aggregate{Kind: m.kind, Output: o.partial(m)}
		if m.input >= 0 {
			a.Input = o.In.Fields[m.input].Type
		}
		list, inputs = append(list, a), append(inputs, m.input)
	}
	return list, inputs
}

// direct reports whether each lane may have a slot for every possible key. Such tables
// are small compared with the budget, and they are not flushed.
func (o *hashGroupBy) direct(t operators.Task) bool {
	return !o.always(t) && o.directIn(t.Budget(), t.Lanes)
}

// directIn is direct for a budget.
func (o *hashGroupBy) directIn(budget int64, lanes int) bool {
	return o.offset != nil && o.span() < min(uint64(grant.GroupSlots.Among(budget, lanes)),
		max(flushGroups, uint64(o.Hint.Rows/(directRows*lanes))))
}

// span returns the greatest offset of a dense key.
func (o *hashGroupBy) span() uint64 { return uint64(o.Hint.Hi) - uint64(o.Hint.Lo) }

// newMerge makes a table that merges rows of partial aggregates, into aggregates of their final
// types or of their partial types.
func (o *hashGroupBy) newMerge(t operators.Task, hint gpu.GroupHint, partial bool) (*table, error) {
	var list []gpu.Aggregate
	var inputs, keys []int
	for i := range o.Keys {
		keys = append(keys, i)
	}
	for i, m := range o.accumulated {
		a := gpu.Aggregate{Kind: m.kind, Input: o.partial(m), Output: o.final(m)}
		if partial {
			a.Output = o.partial(m)
		}
		if m.kind == gpu.Count || m.kind == gpu.CountAll {
			a.Kind = gpu.Sum
		}
		list, inputs = append(list, a), append(inputs, len(keys)+i)
	}
	return o.newTable(t, o.partials, keys, list, inputs, hint)
}

// partHint returns the hint for the table of a part.
func (o *hashGroupBy) partHint(part, groups int) gpu.GroupHint {
	hint := gpu.GroupHint{Groups: groups}
	if o.offset != nil && o.n > 1 {
		shift := o.keyShift() + o.shift
		hint.Dense, hint.Lo = true, o.Hint.Lo+int64(part)<<shift
		hint.Hi = hint.Lo + (1<<shift - 1)
	}
	return hint
}

// naming adds the name of the first result column that has a partial aggregate (-1 for none) to an error of
// that partial aggregate. An error of memory does not belong to one column.
func (o *hashGroupBy) naming(partial int, err error) error {
	if err == nil || gpu.IsOutOfMemory(err) {
		return err
	}
	for i, parts := range o.parts {
		if slices.Contains(parts, partial) {
			return fmt.Errorf("%s: %w", o.Out.Fields[len(o.Keys)+i].Name, err)
		}
	}
	return err
}

func (o *hashGroupBy) Close() error {
	if o.only != nil {
		o.only.release()
		o.only = nil
	}
	for _, s := range o.few {
		s.Release()
	}
	o.few = nil
	for i := range o.texts {
		o.texts[i].release()
	}
	o.reader.Close()
	return errors.Join(o.held.Close(), o.alone.Close())
}
