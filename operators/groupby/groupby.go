// Package groupby has grouping and aggregation.
package groupby

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
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
	// Leader says from which row the value of a gpu.Lead is. Only a CPU has leaders.
	Leader *Leader
}

// Spec describes a group-by.
type Spec struct {
	In         *gpu.Schema
	Keys       []int
	Aggregates []Aggregate
	// Out names the keys, then the aggregates.
	Out  *gpu.Schema
	Hint gpu.GroupHint
	// Algorithm forces an algorithm by its name, one of Algorithms. "" chooses one for each
	// stride.
	Algorithm string
	// Always has the keys of the groups of an input without rows. Any row belongs to a group
	// of each. Without keys there is always one group.
	Always [][]gpu.Scalar
}

// measure is an aggregate that the device accumulates. Results share measures: an average
// is a sum divided by a count, and the count of a column without nulls is the count of
// rows.
type measure struct {
	kind  gpu.AggregateKind
	input int // -1 for count(*)
}

// leading returns the measures of the leaders, and adds them to the others: a column each, of which the last one is the
// value of an aggregate. No two share a measure.
func (s *Spec) leading(list []measure, parts [][]int) ([]measure, []leader) {
	var out []leader
	leads := s.leadRows()
	for i, a := range s.Aggregates {
		if a.Leader == nil {
			continue
		}
		x := leader{Leader: a.Leader, at: len(list)}
		position := slices.IndexFunc(leads, a.Leader.lead(s.In).equal)
		list = append(list, measure{gpu.Lead, s.In.Len() + position})
		for _, k := range a.Leader.Order {
			list = append(list, measure{gpu.Lead, k.Column})
		}
		list = append(list, measure{gpu.Lead, a.Input})
		x.end = len(list)
		out, parts[i] = append(out, x), []int{len(list) - 1}
	}
	return list, out
}

// measures returns the distinct measures of a spec, and for each aggregate the measure
// that is its result, or its sum and count.
func (s *Spec) measures() (list []measure, parts [][]int) {
	at := map[measure]int{}
	use := func(m measure) int {
		if m.kind == gpu.Count && !s.In.Fields[m.input].Nullable {
			m = measure{gpu.CountAll, -1}
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
		case gpu.Lead: // see leading
			parts = append(parts, nil)
		case gpu.Avg:
			parts = append(parts, []int{use(measure{gpu.Sum, a.Input}), use(measure{gpu.Count, a.Input})})
		default:
			parts = append(parts, []int{use(measure{a.Kind, a.Input})})
		}
	}
	return list, parts
}

// final returns the type of a measure's result.
func (s *Spec) final(m measure) gpu.Type {
	switch {
	case m.kind == gpu.CountAll || m.kind == gpu.Count:
		return gpu.Of(gpu.Int64)
	case m.kind != gpu.Sum:
		return s.In.Fields[m.input].Type
	}
	return gpu.SumType(s.In.Fields[m.input].Type)
}

// partial returns the type of a measure over some of the rows. Sums of integers and
// decimals have 128 bits, because the sum of some rows may be larger than the sum of all
// rows.
func (s *Spec) partial(m measure) gpu.Type {
	if t := s.final(m); m.kind != gpu.Sum || t.IsFloat() {
		return t
	}
	return gpu.Of(gpu.HugeInt)
}

// rawType returns the type of a measure over a single row. Integers and decimals that are summed keep
// their width: a sum of 128 bits takes integers of any type.
func (s *Spec) rawType(m measure) gpu.Type {
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

// groups is groups with their measures, by number.
type groups interface {
	len() int
	keyColumns(t operators.Task, from, to int) ([]gpu.Column, error)
	// measure returns a measure of groups [from, to), in its partial or in its final type.
	measure(t operators.Task, i, from, to int) (gpu.Column, error)
	release()
}

// rows is rows of partial aggregates of which no two have one key.
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

func (r rows) measure(t operators.Task, i, from, to int) (gpu.Column, error) {
	return t.Queue.Slice(t.Lease, r.Cols[r.keys+i], from, to)
}

func (r rows) release() { r.Stride.Release() }

// hashGroupBy is the group-by by hash tables. A lane aggregates its rows in a table of
// its own, or an algorithm makes rows of partial aggregates of each stride, which the lane
// merges in another table. When a table is large, the lane flushes the groups as rows of partial
// aggregates, and partitions them by hash. Partitions have no group in common. Each part
// of the result is made of some partitions, which one lane merges. Flushed groups spill;
// the tables of the lanes and those of the parts that are being merged must fit the
// device's budget.
type hashGroupBy struct {
	Spec
	seed     uint64 // of the hash by which groups are partitioned
	measured []measure
	parts    [][]int // for each aggregate, positions in measured
	leaders  []leader
	leads    []lead
	partials *gpu.Schema  // keys and measures
	raw      *gpu.Schema  // the same of rows that are groups of their own: what is summed is as it came, and no count(*)
	single   *gpu.Program // computes the measures of a raw row that are no column of it
	ofRaw    *hashGroupBy // of raw rows in tables of blocks; nil if there is none
	offset   *gpu.Program // computes the offset of a dense key from the least key; nil for other keys

	mu     sync.Mutex
	only   groups                           // all groups, when there is one lane and it did not flush
	chosen []Choice                         // algorithms in the order in which strides took them, each once
	expect atomic.Int64                     // groups of a stride, see expected
	unfit  atomic.Bool                      // a stride had values that tables of blocks do not take
	large  []atomic.Pointer[gpu.Dictionary] // by key, see expand
	held   *spill.Partitions                // otherwise rows of partial aggregates, of all lanes
	alone  *spill.Partitions                // and raw rows
	reader *spill.Reader                    // of the parts in order, for the only lane
	few    []*gpu.Stride                    // more of them, in strides of few rows that are not partitioned
	groups int                              // rows of few and held: at least the number of groups
	shift  uint                             // a part is 1<<shift partitions
	n      int                              // number of parts
	stride int                              // rows of a stride of the result

	// Parts of partitions are a queue: lanes have begun those below begun, and those from end on were split off.
	taking     sync.Mutex
	begun, end int
	items      []operators.Items // of the parts, when they were begun

	// keysSampled says that the keys of a stride were looked at, and skewed that nearly all of its rows were of few groups.
	keysSampled, skewed atomic.Bool
}

const (
	// fanOut is the number of bits of the hash that select a partition.
	fanOut = 8
	// fewGroups is the most flushed groups that are not partitioned, unless others are.
	fewGroups = 1 << 12
	// partGroups is the least number of groups that a part should have.
	partGroups = 1 << 14
	// flushGroups is the most groups of the table of one of several lanes.
	flushGroups = 1 << 16
	// tableBudget is the share of the budget, one part in so many, that the tables of all lanes
	// may have. They are copied twice when they are flushed.
	tableBudget = 8
	// indexBytes is the bytes of a slot of a table that is indexed by the key.
	indexBytes = 4
	// looseBudget is the share that rows of partial aggregates of a single lane may have until
	// they are partitioned.
	looseBudget = 16
	// partStrides is the strides of a part of a single lane: its kernels take longer than its launches.
	partStrides = 2
	// mergeBudget is the share that the rows of all parts may have that are merged at a time.
	mergeBudget = 8
	// A flushed table has cost more than it has saved if it had fewer than passReduction
	// rows a group, or hardly fewer groups than its input had runs of rows with one key.
	// The next passStrides strides then bypass the table, and twice as many each time that it is
	// so again, up to mostPassed.
	passReduction = 2
	passStrides   = 16
	mostPassed    = 256
	// sampleRows is the rows of a stride that tell how long its runs are, and how many groups it has.
	sampleRows = 1 << 13
	// directBudget is the least bytes of the budget for each slot of the lanes' direct
	// tables.
	directBudget = 256
	// directRows is the least rows for each of these slots, unless they are as few as the groups of a
	// table that is not flushed.
	directRows = 8
)

// New returns the group-by of a spec.
func New(s Spec) (GroupBy, error) {
	if s.Out.Len() != len(s.Keys)+len(s.Aggregates) {
		return nil, fmt.Errorf("group-by returns %d columns under %d names", len(s.Keys)+len(s.Aggregates), s.Out.Len())
	}
	if len(s.Keys) == 0 {
		s.Always = [][]gpu.Scalar{nil}
	}
	o := s.state()
	o.seed, o.partials, o.raw = rand.Uint64(), operators.PickFields(s.In, s.Keys), operators.PickFields(s.In, s.Keys)
	o.large = make([]atomic.Pointer[gpu.Dictionary], len(s.Keys))
	for _, m := range o.measured {
		o.partials.Fields = append(o.partials.Fields, gpu.Field{Name: m.kind.String(), Type: o.partial(m), Nullable: true})
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

// state returns what follows from a spec.
func (s Spec) state() *hashGroupBy {
	o := &hashGroupBy{leads: s.leadRows()}
	o.expect.Store(int64(s.Hint.Groups))
	o.measured, o.parts = s.measures()
	o.measured, o.leaders = s.leading(o.measured, o.parts)
	s.In = s.positioned(o.leads)
	o.Spec = s
	return o
}

// denseKey reports whether there is one integer-like key whose values are in the range of
// the hint, and returns the integer type in which the key is stored. Partitions are then
// ranges of the key, and the table of a part is indexed by the key.
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

// stored returns the type in which a column's values are stored: that of a decimal
// without its point.
func stored(t gpu.Type) gpu.Type {
	switch {
	case t.Kind != gpu.Decimal:
		return t
	case t.Wide:
		return gpu.Of(gpu.HugeInt)
	}
	return gpu.Of(gpu.Int64)
}

// computed reports whether a measure of a raw row is no column of the input.
func (s *Spec) computed(m measure) bool {
	return m.kind == gpu.Count || m.kind == gpu.Sum && s.rawType(m) != stored(s.In.Fields[m.input].Type)
}

// singles returns the program for the measures of a raw row that are computed, of their inputs.
func (o *hashGroupBy) singles() *gpu.Program {
	p := &gpu.Program{}
	for _, m := range o.measured {
		if o.computed(m) {
			p.Inputs = append(p.Inputs, o.In.Fields[m.input].Type)
		}
	}
	add := func(op gpu.Op, t gpu.Type, arg int) int {
		p.Code = append(p.Code, gpu.Instr{Op: op, Type: t, Args: []int{arg}, Mask: -1, Text: "group-by"})
		return len(p.Inputs) + len(p.Code) - 1
	}
	in := 0
	for _, m := range o.measured {
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
var ones = gpu.Program{Code: []gpu.Instr{{Op: gpu.OpConst, Type: gpu.Of(gpu.Int64), Value: gpu.IntScalar(gpu.Of(gpu.Int64), 1), Mask: -1}}, Outputs: []int{0}}

// counted adds count(*) to raw rows, which it takes over.
func (o *hashGroupBy) counted(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
	if s.Schema != o.raw || o.raw.Len() == o.partials.Len() {
		return s, nil
	}
	at := slices.Index(o.measured, measure{gpu.CountAll, -1})
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

// newLocalTable makes the table of a lane, with room for some groups. It has partial
// aggregates.
func (o *hashGroupBy) newLocalTable(t operators.Task, groups int) (*table, error) {
	hint := o.Hint
	switch {
	case t.Lanes > 1 && !o.direct(t):
		hint = gpu.GroupHint{Groups: groups}
	case t.Spill != nil && o.offset != nil && o.span() > uint64(t.Lease.Limit()/tableBudget/indexBytes):
		hint = gpu.GroupHint{Groups: min(hint.Groups, o.tableGroups(t.Lease.Limit(), t.Lanes))}
	}
	list, inputs := o.aggregates()
	return o.newTable(t, o.In, o.Keys, list, inputs, hint)
}

// aggregates returns the aggregates that a lane accumulates, and their input columns.
func (o *hashGroupBy) aggregates() (list []gpu.Aggregate, inputs []int) {
	for _, m := range o.measured {
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
	return !o.always(t) && o.directIn(t.Device.Budget().Limit(), t.Lanes)
}

// directIn is direct for a budget.
func (o *hashGroupBy) directIn(budget int64, lanes int) bool {
	return o.offset != nil && o.span() < min(uint64(budget/int64(directBudget*lanes)), max(flushGroups, uint64(o.Hint.Rows/(directRows*lanes))))
}

// span returns the greatest offset of a dense key.
func (o *hashGroupBy) span() uint64 { return uint64(o.Hint.Hi) - uint64(o.Hint.Lo) }

// newMerge makes a table for rows of partial aggregates. It has aggregates of their final types,
// or partial ones.
func (o *hashGroupBy) newMerge(t operators.Task, hint gpu.GroupHint, partial bool) (*table, error) {
	var list []gpu.Aggregate
	var inputs, keys []int
	for i := range o.Keys {
		keys = append(keys, i)
	}
	for i, m := range o.measured {
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

func (o *hashGroupBy) NewLocal(t operators.Task) (operators.Local, error) {
	t.Lease.Advise("the groups of the group-by must fit: filter its input or group by fewer keys")
	o.mu.Lock()
	if o.held == nil {
		o.held = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, o.partials, 1<<fanOut)
		o.alone = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, o.raw, 1<<fanOut)
	}
	o.mu.Unlock()
	if err := o.runsOn(t.Device.Properties()); err != nil {
		return nil, err
	}
	return &local{hashGroupBy: o, task: t}, nil
}

// local is the groups of one lane.
type local struct {
	*hashGroupBy
	task    operators.Task
	table   *table        // of rows; nil if it has none
	merged  *table        // of rows of partial aggregates; nil if it has none
	waiting []*gpu.Stride // rows of partial aggregates, to be merged together
	waits   int           // rows of waiting
	packing gpu.Packing   // of the keys, if they are several or no integer; nil if there is none
	pending []*gpu.Stride // strides of few rows, to be assigned together
	rows    int           // rows of pending
	bytes   int64         // bytes of pending
	few     []*gpu.Stride // partial aggregates that are not partitioned
	loose   []*gpu.Stride // partial aggregates, to be partitioned together
	flushed int           // rows of partial aggregates
	passing int           // strides that are still to bypass the table
	// bypassed is the strides that bypassed it since it was tried before; 0 if it was worth it.
	bypassed int
	sampled  bool // see manyGroups

	groupsFlushed int // groups of the table that was flushed last

	number int   // of the morsel whose rows came last
	before int64 // rows of it that came
}

// Strides of few rows, which selective filters and joins leave, wait in pending for
// others: an assignment costs some dozens of launches, however few its rows. They wait
// until together they have a quarter of a stride's rows, pendingBytes bytes, or the share
// 1/pendingBudget of the device's budget.
const (
	pendingBytes  = 64 << 20
	pendingBudget = 64
)

func (l *local) Push(_ context.Context, number int, s *gpu.Stride) error {
	if err := l.position(number, s); err != nil {
		s.Release()
		return err
	}
	bytes := s.Bytes()
	enough := l.enough(s.Rows, bytes)
	if enough || len(l.pending) > 0 && !oneCoding(l.pending[0], s) {
		if err := l.takePending(); err != nil {
			s.Release()
			return err
		}
	}
	if enough {
		return l.take(s)
	}
	l.pending = append(l.pending, s)
	l.rows += s.Rows
	l.bytes += bytes
	if l.enough(l.rows, l.bytes) {
		return l.takePending()
	}
	return nil
}

// enough reports whether a stride of so many rows and bytes is taken without waiting for
// others.
func (l *local) enough(rows int, bytes int64) bool {
	return rows >= l.task.StrideRows/4 || bytes >= min(pendingBytes, l.task.Device.Budget().Limit()/pendingBudget)
}

// oneCoding reports whether the columns of two strides have the same dictionaries, so
// that concatenation does not make them larger.
func oneCoding(a, b *gpu.Stride) bool {
	for i := range a.Cols {
		if a.Cols[i].Dict != b.Cols[i].Dict {
			return false
		}
	}
	return true
}

// takePending takes the pending strides as one stride.
func (l *local) takePending() error {
	if len(l.pending) == 0 {
		return nil
	}
	pending := l.pending
	l.pending, l.rows, l.bytes = nil, 0, 0
	s, err := operators.ConcatStrides(l.task, l.In, pending)
	if err != nil {
		return err
	}
	return l.take(s)
}

// take aggregates the rows of a stride, which it takes over: by an algorithm that makes rows of partial
// aggregates, or in the table of the lane.
func (l *local) take(s *gpu.Stride) error {
	defer s.Release()
	device := l.task.Device.Properties()
	c := l.decide(device, s.Rows, l.planned())
	var by key
	if l.named(c.Algorithm).tables {
		var err error
		if by, err = l.key(l.task, s, &l.packing); err == nil {
			defer by.release()
			if c = l.decide(device, s.Rows, by.domain); c.Algorithm == pgbTR && l.Algorithm == "" && !l.keysSampled.Load() {
				if err := l.sample(by); err != nil && !gpu.IsRefusal(err) {
					return err
				}
				c = l.decide(device, s.Rows, by.domain)
			}
		} else if c, err = l.instead(c, s.Rows, err); err != nil {
			return err
		}
	}
	for c.Algorithm != hgbG {
		out, err := l.algorithm(c.Algorithm).aggregate(l.task, s, by)
		if err == nil {
			l.took(c, out.Rows)
			return l.merge(out)
		}
		if c, err = l.instead(c, s.Rows, err); err != nil {
			return err
		}
	}
	err := l.takeRows(s)
	if groups := l.table.len(); groups > 0 {
		l.took(c, groups)
	}
	return err
}

// instead returns the algorithm for a stride that another one could not take, or the error if none can.
func (l *local) instead(c Choice, rows int, err error) (Choice, error) {
	switch {
	case gpu.IsRefusal(err):
		l.unpack()
	case !errors.Is(err, gpu.ErrManyGroups) && !errors.Is(err, gpu.ErrUnfit):
		return c, err
	}
	return l.fallback(c, rows, err), nil
}

// takeRows aggregates the rows of a stride in the table of the lane, and flushes one that has become
// large.
func (l *local) takeRows(s *gpu.Stride) (err error) {
	if l.passing == 0 && l.table == nil && (!l.sampled || l.bypassed > 0) {
		l.sampled = true
		if many, err := l.manyGroups(s); err != nil {
			return err
		} else if many {
			l.bypass()
		}
	}
	if l.passing > 0 {
		l.passing--
		return l.pass(s)
	}
	if l.table == nil {
		if l.table, err = l.newLocalTable(l.task, l.groupsFlushed); err != nil {
			return err
		}
	}
	failed, err := l.table.take(l.task, s)
	if failed < 0 && gpu.IsRefusal(err) && l.table.len() > 0 && !l.direct(l.task) {
		// The table is as it was. The groups of it that are flushed can spill.
		if err := l.flush(); err != nil {
			return err
		}
		if l.table, err = l.newLocalTable(l.task, l.groupsFlushed); err != nil {
			return err
		}
		failed, err = l.table.take(l.task, s)
	}
	if err != nil {
		return l.naming(failed, err)
	}
	if l.full(l.table.len()) && !l.direct(l.task) {
		if err := l.judge(s); err != nil {
			return err
		}
		return l.flush()
	}
	return nil
}

// merge takes rows of partial aggregates over, no two of one key. They wait for others, so that a stride
// of few groups costs no more launches than its own. Those of a single stride are the result.
func (l *local) merge(out *gpu.Stride) error {
	if l.Algorithm == sgbStride && len(l.waiting) > 0 && !l.full(l.waits+out.Rows) {
		both, err := l.mergeSorted(l.task, l.waiting[0], out)
		if err == nil {
			l.waiting[0], l.waits = both, both.Rows
			return nil
		}
		if !gpu.IsRefusal(err) {
			out.Release()
			return err
		}
	}
	if l.task.Lanes > 1 || l.full(l.waits+out.Rows) {
		return l.partitioned(out)
	}
	l.waiting = append(l.waiting, out)
	if l.waits += out.Rows; len(l.waiting) > 1 && l.waits > l.task.StrideRows/4 {
		return l.mergeWaiting()
	}
	return nil
}

// mergeWaiting merges the rows of partial aggregates that wait.
func (l *local) mergeWaiting() error {
	if len(l.waiting) == 0 {
		return nil
	}
	parts := make([]*gpu.Stride, len(l.waiting))
	for i, s := range l.waiting {
		parts[i] = s.Retain()
	}
	all, err := operators.ConcatStrides(l.task, l.hashGroupBy.partials, parts)
	if gpu.IsRefusal(err) {
		return l.partitionWaiting()
	}
	if err != nil {
		return err
	}
	l.dropWaiting()
	return l.mergeInto(all)
}

// partitionWaiting keeps the rows of partial aggregates that wait as flushed.
func (l *local) partitionWaiting() error {
	for len(l.waiting) > 0 {
		out := l.waiting[0]
		l.waiting, l.waits = l.waiting[1:], l.waits-out.Rows
		if err := l.partitioned(out); err != nil {
			return err
		}
	}
	return nil
}

func (l *local) dropWaiting() {
	for _, s := range l.waiting {
		s.Release()
	}
	l.waiting, l.waits = nil, 0
}

// mergeInto merges rows of partial aggregates in the table for them. They are flushed if they find no
// memory there.
func (l *local) mergeInto(out *gpu.Stride) (err error) {
	if l.merged == nil {
		l.merged, err = l.newMerge(l.task, gpu.GroupHint{Groups: out.Rows}, true)
	}
	failed := -1
	if err == nil {
		failed, err = l.merged.take(l.task, out)
	}
	if failed < 0 && gpu.IsRefusal(err) {
		return l.partitioned(out)
	}
	out.Release()
	if err != nil {
		return l.naming(failed, err)
	}
	if l.full(l.merged.len()) {
		return l.flush()
	}
	return nil
}

// full reports whether a table of some groups must be flushed. That of a single lane else has the result.
func (l *local) full(groups int) bool {
	if l.always(l.task) {
		return true
	}
	return (l.task.Lanes > 1 || l.task.Spill != nil) && len(l.Keys) > 0 && groups >= l.tableGroups(l.task.Lease.Limit(), l.task.Lanes)
}

// tableGroups returns the most groups of a lane's table between strides. Of several lanes, whose groups are merged anyway, it
// stays in the core's cache.
func (o *hashGroupBy) tableGroups(budget int64, lanes int) int {
	most := max(1, int(budget/int64(tableBudget*lanes)/o.groupBytes()))
	if lanes > 1 {
		most = min(most, flushGroups)
	}
	return most
}

// always reports whether all groups spill. A single group has no keys to be partitioned by.
func (o *hashGroupBy) always(t operators.Task) bool { return t.Spill.Always() && len(o.Keys) > 0 }

// groupBytes is about how many bytes a group takes in a table.
func (o *hashGroupBy) groupBytes() int64 {
	const index = 16 // slots and their hashes
	return int64(o.partials.RowBytes()) + index
}

// Demand implements operators.Demanding. Tables that are indexed by the key, or that one lane
// need not flush, do not spill. Rows of partial aggregates do.
func (o *hashGroupBy) Demand(e operators.Expected) operators.Demand {
	if len(o.Keys) == 0 || e.Out < 1 {
		return operators.Demand{}
	}
	group := max(float64(o.groupBytes()), e.OutBytes/e.Out)
	flushed := func(room float64) float64 {
		return group * partialRows(e.Rows, e.Out, float64(o.tableGroups(int64(min(room, math.MaxInt64/2)), e.Lanes)), e.Lanes)
	}
	d := operators.Demand{Bytes: flushed(math.Inf(1))}
	if o.offset != nil {
		d.Bytes = group * float64(e.Lanes) * (float64(o.span()) + 1)
	}
	d.Spilled = func(room float64) float64 {
		if o.directIn(int64(room), e.Lanes) || e.Lanes == 1 && group*e.Out <= room/tableBudget {
			return 0
		}
		return max(0, flushed(room)-spill.Room(room))
	}
	return d
}

// partialRows estimates the rows of partial aggregates that lanes make of rows of some groups
// in random order, if a lane's table is flushed when it has table groups. It takes
// −groups·ln(1 − table/groups) rows until a table has so many.
func partialRows(rows, groups, table float64, lanes int) float64 {
	if groups <= table {
		return min(rows, groups*float64(lanes))
	}
	reduction := -math.Log1p(-table/groups) * groups / table
	return max(min(groups, rows), rows/reduction)
}

// judge decides whether the next strides bypass the table. They do if it had nearly one
// group a row, or hardly fewer groups than there are runs of rows with one key, as in an
// input that is sorted by it.
func (l *local) judge(s *gpu.Stride) error {
	rows, groups := l.table.rows, l.table.groups.Len()
	if rows < passReduction*groups {
		l.bypass()
		return nil
	}
	a, firsts, err := l.task.Queue.Runs(l.task.Lease, operators.Pick(s.Cols, l.Keys))
	if err != nil {
		return err
	}
	defer a.Release()
	defer firsts.Release()
	if firsts.Len*rows < s.Rows*groups*5/4 {
		l.bypass()
	} else {
		l.bypassed = 0
	}
	return nil
}

// bypass makes the next strides bypass the table, twice as many as the last time.
func (l *local) bypass() {
	l.bypassed = min(max(2*l.bypassed, passStrides), mostPassed)
	l.passing = l.bypassed
}

// pass makes partial aggregates from a stride without the table: one row for each run of
// rows with one key, or for each row if runs are short.
func (l *local) pass(s *gpu.Stride) error {
	if short, err := l.shortRuns(s); err != nil {
		return err
	} else if short {
		return l.passRows(s)
	}
	a, firsts, err := l.task.Queue.Runs(l.task.Lease, operators.Pick(s.Cols, l.Keys))
	if err != nil {
		return err
	}
	defer a.Release()
	defer firsts.Release()
	out, err := l.ofRuns(l.task, s, a, firsts)
	if err != nil {
		return err
	}
	return l.partitioned(out)
}

// manyGroups reports whether the first rows of a stride have so few keys twice that a table that is flushed
// would have hardly two rows a group. n rows of g groups that are alike have about n²/2g keys twice.
func (l *local) manyGroups(s *gpu.Stride) (bool, error) {
	if l.task.Lanes == 1 && l.task.Spill == nil {
		return false, nil
	}
	most := l.tableGroups(l.task.Lease.Limit(), l.task.Lanes)
	n := max(sampleRows, 4*int(math.Sqrt(float64(most)))) // eight twice, of as many groups
	if s.Rows < max(flushGroups, n) || l.direct(l.task) || l.Hint.Groups > 0 && l.Hint.Groups <= most {
		return false, nil
	}
	keys, err := l.firstKeys(s, n)
	if err != nil {
		return false, err
	}
	defer gpu.ReleaseColumns(keys)
	var types []gpu.Type
	for _, k := range keys {
		types = append(types, k.Type)
	}
	groups, err := l.task.Queue.NewGroups(l.task.Lease, types, gpu.GroupHint{Groups: n})
	if err != nil {
		return false, err
	}
	defer groups.Release()
	a, err := groups.Assign(l.task.Queue, l.task.Lease, keys, n)
	if err != nil {
		return false, err
	}
	a.Release()
	return n-groups.Len() < n*n/(4*most), nil
}

// firstKeys returns the keys of the first n rows of a stride.
func (l *local) firstKeys(s *gpu.Stride, n int) (keys []gpu.Column, err error) {
	for _, k := range l.Keys {
		c, err := l.task.Queue.Slice(l.task.Lease, s.Cols[k], 0, n)
		if err != nil {
			gpu.ReleaseColumns(keys)
			return nil, err
		}
		keys = append(keys, c)
	}
	return keys, nil
}

// shortRuns reports whether the first rows of a stride have runs of one key that are too short to be worth
// aggregating.
func (l *local) shortRuns(s *gpu.Stride) (bool, error) {
	n := min(s.Rows, sampleRows)
	keys, err := l.firstKeys(s, n)
	if err != nil {
		return false, err
	}
	defer gpu.ReleaseColumns(keys)
	a, firsts, err := l.task.Queue.Runs(l.task.Lease, keys)
	if err != nil {
		return false, err
	}
	defer firsts.Release()
	a.Release()
	return firsts.Len > n/passReduction, nil
}

// keep adds the aggregates of a table to its keys and keeps them as flushed.
func (l *local) keep(out *gpu.Stride, x *table) error {
	if err := l.addMeasures(l.task, out, x); err != nil {
		return err
	}
	return l.partitioned(out)
}

// addMeasures adds the aggregates of a table to its keys. After an error it releases them.
func (o *hashGroupBy) addMeasures(t operators.Task, out *gpu.Stride, x *table) error {
	for i := range x.accs {
		c, err := x.measure(t, i, 0, out.Rows)
		if err != nil {
			out.Release()
			return o.naming(i, err)
		}
		out.Cols = append(out.Cols, c)
	}
	return nil
}

// partitioned keeps rows of partial aggregates, by partition unless they are few.
func (l *local) partitioned(rows *gpu.Stride) error {
	l.flushed += rows.Rows
	if rows.Rows <= fewGroups && !l.always(l.task) {
		l.few = append(l.few, rows)
		return nil
	}
	if l.task.Lanes > 1 || l.always(l.task) {
		return l.hold(l.task, rows)
	}
	if len(l.loose) > 0 && (l.loose[0].Schema != rows.Schema || !oneCoding(l.loose[0], rows)) {
		if err := l.holdLoose(); err != nil {
			rows.Release()
			return err
		}
	}
	l.loose = append(l.loose, rows)
	bytes := int64(0)
	for _, s := range l.loose {
		bytes += s.Bytes()
	}
	if bytes < l.task.Lease.Limit()/looseBudget {
		return nil
	}
	return l.holdLoose()
}

// holdLoose partitions the loose rows together: a partition of many rows is copied faster.
func (l *local) holdLoose() error {
	loose := l.loose
	l.loose = nil
	if len(loose) == 0 {
		return nil
	}
	rows, err := operators.ConcatStrides(l.task, loose[0].Schema, loose)
	if err != nil {
		return err
	}
	return l.hold(l.task, rows)
}

// passRows makes a row of partial aggregates from each row of a stride.
func (l *local) passRows(s *gpu.Stride) error {
	var cols, in []gpu.Column
	for _, m := range l.measured {
		if l.computed(m) {
			in = append(in, s.Cols[m.input])
		}
	}
	if len(in) > 0 {
		var err error
		if cols, err = l.task.Queue.Eval(l.task.Lease, l.single, in, s.Rows); err != nil {
			return err
		}
	}
	out := &gpu.Stride{Schema: l.raw, Rows: s.Rows}
	for _, k := range operators.Pick(s.Cols, l.Keys) {
		out.Cols = append(out.Cols, k.Retain())
	}
	for _, m := range l.measured {
		if m.kind == gpu.CountAll {
			continue
		}
		if l.computed(m) {
			out.Cols, cols = append(out.Cols, cols[0]), cols[1:]
			continue
		}
		c := s.Cols[m.input].Retain()
		if t := l.rawType(m); c.Type != t { // a decimal
			c.Type = t
			if c.Dict != nil {
				values := c.Dict.Values
				values.Type = t
				c.Dict = &gpu.Dictionary{Values: values}
			}
		}
		out.Cols = append(out.Cols, c)
	}
	return l.partitioned(out)
}

// flush turns the groups of both tables into rows of partial aggregates, and gives the tables back.
func (l *local) flush() error {
	if err := l.partitionWaiting(); err != nil {
		return err
	}
	l.unpack()
	for _, at := range []**table{&l.table, &l.merged} {
		x := *at
		if x.len() == 0 {
			continue
		}
		out := &gpu.Stride{Schema: l.hashGroupBy.partials, Rows: x.len()}
		var err error
		if out.Cols, err = x.keyColumns(l.task, 0, out.Rows); err != nil {
			return err
		}
		l.groupsFlushed = out.Rows
		if err := l.keep(out, x); err != nil {
			return err
		}
		x.release()
		*at = nil
	}
	return l.holdLoose()
}

// Combine hands the groups of the lane over.
func (l *local) Combine(context.Context) error {
	if err := l.takePending(); err != nil {
		return err
	}
	o := l.hashGroupBy
	if l.task.Lanes == 1 && l.flushed == 0 {
		if len(l.waiting) > 1 || l.merged != nil {
			if err := l.mergeWaiting(); err != nil {
				return err
			}
		}
		if l.flushed == 0 && l.handOver() {
			return nil
		}
	}
	if err := l.flush(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.groups += l.flushed
	o.few = append(o.few, l.few...)
	l.few = nil
	return nil
}

// handOver hands the groups of the lane over as the result if they are in one place.
func (l *local) handOver() bool {
	switch {
	case len(l.waiting) == 1 && l.table == nil:
		l.only, l.waiting = rows{l.waiting[0], len(l.Keys)}, nil
	case len(l.waiting) == 0 && l.table == nil && l.merged != nil:
		l.only, l.merged = l.merged, nil
	case len(l.waiting) == 0 && l.merged == nil && l.table != nil:
		l.only, l.table = l.table, nil
	default:
		return false
	}
	return true
}

// hold partitions rows of partial aggregates, by the hash of their keys or by ranges of a
// dense key, and holds them where they can spill. It takes them over.
func (o *hashGroupBy) hold(t operators.Task, rows *gpu.Stride) (err error) {
	defer func() { rows.Release() }()
	if err := o.expand(t, rows); err != nil {
		return err
	}
	var digits gpu.Column
	shift := uint(64 - fanOut)
	if o.offset != nil {
		key := rows.Cols[0]
		key.Type = o.offset.Inputs[0]
		cols, err := t.Queue.Eval(t.Lease, o.offset, []gpu.Column{key}, rows.Rows)
		if err != nil {
			return err
		}
		digits, shift = cols[0], o.keyShift()
	} else if digits, err = t.Queue.Hash(t.Lease, rows.Cols[:len(o.Keys)], o.seed); err != nil {
		return err
	}
	defer digits.Release()
	parts, offsets, err := operators.PartitionStride(t, rows, digits, gpu.Digit{Shift: shift, Bits: fanOut})
	if err != nil {
		return err
	}
	to := o.held
	if rows.Schema == o.raw {
		to = o.alone
	}
	rows.Release() // before Append makes room
	return to.Append(parts, 0, offsets)
}

// expand gives keys plain text whose dictionaries have more values than there are rows, if other rows have
// other such dictionaries. Rows of one partition would need values of each of them.
func (o *hashGroupBy) expand(t operators.Task, rows *gpu.Stride) error {
	for i := range o.Keys {
		c := rows.Cols[i]
		if !c.Type.IsVar() || c.Dict == nil || c.Dict.Values.Len <= rows.Rows {
			continue
		}
		if first := &o.large[i]; first.CompareAndSwap(nil, c.Dict) || first.Load() == c.Dict {
			continue
		}
		plain, err := t.Queue.Concat(t.Lease, []gpu.Column{c, gpu.ColumnOf(c.Type, nil)})
		if err != nil {
			return err
		}
		c.Release()
		rows.Cols[i] = plain
	}
	return nil
}

func (l *local) Close() error {
	for _, s := range l.pending {
		s.Release()
	}
	for _, s := range slices.Concat(l.few, l.loose) {
		s.Release()
	}
	l.dropWaiting()
	l.unpack()
	l.pending, l.few, l.loose = nil, nil, nil
	for _, x := range []*table{l.table, l.merged} {
		if x != nil {
			x.release()
		}
	}
	l.table, l.merged = nil, nil
	return nil
}

// naming adds to the error of a measure (-1 is none) the name of the first column of that
// measure. A refusal does not belong to one column.
func (o *hashGroupBy) naming(measure int, err error) error {
	if err == nil || gpu.IsRefusal(err) {
		return err
	}
	for i, parts := range o.parts {
		if slices.Contains(parts, measure) {
			return fmt.Errorf("%s: %w", o.Out.Fields[len(o.Keys)+i].Name, err)
		}
	}
	return err
}

// Finalize decides how many parts the result has.
func (o *hashGroupBy) Finalize(_ context.Context, t operators.Task) error {
	o.stride = t.StrideRows
	switch {
	case o.only != nil:
		o.n = (o.only.len() + o.stride - 1) / o.stride
	case o.groups > 0:
		bits := o.partBits(t)
		o.n, o.shift = 1<<bits, uint(fanOut-bits)
		for few := o.few; bits > 0 && len(few) > 0; few = o.few {
			o.few = few[1:]
			if err := o.hold(t, few[0]); err != nil {
				return err
			}
		}
	}
	if o.n == 0 && len(o.Always) > 0 {
		o.n = 1
	}
	o.end, o.items = o.n, make([]operators.Items, o.n)
	return nil
}

// partBits returns the binary logarithm of the number of parts: parts have partGroups groups or,
// on a device with one lane, partStrides strides; they are smaller if several would not fit the budget.
func (o *hashGroupBy) partBits(t operators.Task) int {
	if o.held.Rows(0, o.held.Len())+o.alone.Rows(0, o.alone.Len()) == 0 {
		return 0
	}
	part := partGroups
	if t.Lanes == 1 {
		part = max(part, partStrides*t.StrideRows)
	}
	n := bits.Len(uint(o.groups / part))
	for room := t.Lease.Limit() / int64(mergeBudget*t.Lanes); n < fanOut && int64(o.groups)*o.groupBytes()>>n > room; {
		n++
	}
	return min(n, fanOut)
}

// Parts implements operators.Source.
func (o *hashGroupBy) Parts() int { return o.n }

// Emit implements operators.Source. A part is a stride of the only table, or the groups
// of some partitions, which it merges.
func (o *hashGroupBy) Emit(ctx context.Context, t operators.Task, part int, emit operators.Emit) error {
	if o.only != nil && o.only.len() > 0 {
		from := part * o.stride
		return o.emit(t, o.only, from, min(from+o.stride, o.only.len()), emit)
	}
	if o.groups == 0 {
		return o.emitEmpty(t, emit)
	}
	if !o.begin(part) {
		return nil
	}
	return o.emitPart(ctx, t, part, false, emit)
}

// emitPart emits the groups of a part, which was split off or not.
func (o *hashGroupBy) emitPart(ctx context.Context, t operators.Task, part int, split bool, emit operators.Emit) error {
	merged, err := o.merge(ctx, t, part, split)
	if err != nil {
		return err
	}
	defer merged.release()
	for from := 0; from < merged.len(); from += o.stride {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := o.emit(t, merged, from, min(from+o.stride, merged.len()), emit); err != nil {
			return err
		}
	}
	return nil
}

// merge makes the groups of a part, whose rows are then given back unless it was split off. Raw rows may be
// aggregated in tables of blocks, others are in a table of the part.
func (o *hashGroupBy) merge(ctx context.Context, t operators.Task, part int, split bool) (_ groups, err error) {
	from, to := o.partitions(part)
	n := int(o.held.Rows(from, to) + o.alone.Rows(from, to))
	for _, s := range o.few {
		n += s.Rows
	}
	few := o.few
	if len(few) > 0 { // these are not partitioned, so there is one part
		o.few = nil
	}
	defer func() {
		for _, s := range few {
			if s != nil {
				s.Release()
			}
		}
	}()
	var merged *table
	var aggregated *gpu.Stride // of all rows, without a table
	defer func() {
		if err != nil {
			merged.release()
		}
	}()
	take := func(s *gpu.Stride) error {
		s, err := o.counted(t, s)
		if err != nil {
			return err
		}
		defer s.Release()
		if merged == nil {
			if merged, err = o.newMerge(t, o.partHint(part, n/t.Lanes), false); err != nil {
				return err
			}
		}
		failed, err := merged.take(t, s)
		return o.naming(failed, err)
	}
	whole := len(few) == 0 && o.held.Rows(from, to) == 0 && o.inBlocks(t, n)
	// Rows of one schema are assigned together.
	for i, p := range []*spill.Partitions{o.alone, o.held} {
		schema, batches, take := []*gpu.Schema{o.raw, o.partials}[i], t, take
		if whole && i == 0 {
			batches.StrideRows = gpu.MaxRows
			inTable := take
			take = func(s *gpu.Stride) (err error) {
				if aggregated, err = o.mergeInBlocks(t, s); err != nil || aggregated != nil {
					s.Release()
					return err
				}
				return inTable(s)
			}
		}
		err = operators.InBatches(batches, schema, func(add func(*gpu.Stride) error) error {
			for i, s := range few {
				if s != nil && s.Schema == schema {
					few[i] = nil
					if err := add(s); err != nil {
						return err
					}
				}
			}
			return o.read(ctx, t, p, part, split, func(s *gpu.Stride, _ int) error { return add(s) })
		}, take)
		if err != nil {
			return nil, err
		}
		if !split {
			p.Drop(from, to)
		}
	}
	if aggregated != nil {
		return rows{aggregated, len(o.Keys)}, nil
	}
	return merged, nil
}

// read calls take with the rows of a part: first with the raw ones, then with the others. One lane merges
// the parts in order, so that the rows of the next one are read meanwhile.
func (o *hashGroupBy) read(ctx context.Context, t operators.Task, p *spill.Partitions, part int, split bool, take func(*gpu.Stride, int) error) error {
	if t.Lanes > 1 || split {
		from, to := o.partitions(part)
		return p.Each(ctx, t.Queue, t.Lease, from, to, take)
	}
	return o.ahead(ctx, t).Next(t.Queue, take)
}

// ahead returns the reader of the parts that were not split off.
func (o *hashGroupBy) ahead(ctx context.Context, t operators.Task) *spill.Reader {
	o.taking.Lock()
	defer o.taking.Unlock()
	if o.reader == nil {
		var ranges []spill.Range
		for i := range o.end {
			from, to := o.partitions(i)
			for _, p := range []*spill.Partitions{o.alone, o.held} {
				ranges = append(ranges, spill.Range{Partitions: p, Span: spill.Span{From: from, To: to}})
			}
		}
		o.reader = spill.NewReader(ctx, t.Lease, ranges)
	}
	return o.reader
}

// emit emits groups [from, to).
func (o *hashGroupBy) emit(t operators.Task, x groups, from, to int, emit operators.Emit) error {
	out := &gpu.Stride{Schema: o.Out, Rows: to - from}
	var err error
	if out.Cols, err = x.keyColumns(t, from, to); err != nil {
		return err
	}
	for i := range o.Aggregates {
		c, err := o.result(t, x, i, from, to)
		if err != nil {
			out.Release()
			return err
		}
		out.Cols = append(out.Cols, c)
	}
	return emit(out)
}

// result returns aggregate i of groups [from, to).
func (o *hashGroupBy) result(t operators.Task, x groups, i, from, to int) (gpu.Column, error) {
	parts := o.parts[i]
	out, err := o.measure(t, x, parts[0], from, to)
	if err != nil || len(parts) == 1 {
		return out, err
	}
	defer out.Release()
	n, err := o.measure(t, x, parts[1], from, to)
	if err != nil {
		return gpu.Column{}, err
	}
	defer n.Release()
	avg, err := t.Queue.Eval(t.Lease, quotient(out.Type), []gpu.Column{out, n}, to-from)
	if err != nil {
		return gpu.Column{}, err
	}
	return avg[0], nil
}

// measure returns a measure of groups [from, to) in its final type. The partial sums of a decimal
// are integers that must have no more digits than it.
func (o *hashGroupBy) measure(t operators.Task, x groups, measure, from, to int) (gpu.Column, error) {
	out, err := x.measure(t, measure, from, to)
	want := o.final(o.measured[measure])
	if err == nil && out.Type != want {
		partial := out
		out, err = digits(t, partial, want)
		partial.Release()
	}
	return out, o.naming(measure, err)
}

// digits returns integers as the digits of a decimal of the most digits.
func digits(t operators.Task, c gpu.Column, want gpu.Type) (gpu.Column, error) {
	p := &gpu.Program{Inputs: []gpu.Type{c.Type}, Outputs: []int{1}, Code: []gpu.Instr{
		{Op: gpu.OpCast, Type: gpu.DecimalOf(gpu.MaxPrecision, 0), Args: []int{0}, Mask: -1, Text: "sum"}}}
	out, err := t.Queue.Eval(t.Lease, p, []gpu.Column{c}, c.Len)
	if err != nil {
		return gpu.Column{}, err
	}
	out[0].Type = want
	return out[0], nil
}

// emitEmpty emits the groups of no rows: counts are 0, all other aggregates are null.
func (o *hashGroupBy) emitEmpty(t operators.Task, emit operators.Emit) error {
	values := make([]gpu.Scalar, len(o.Aggregates))
	for i, a := range o.Aggregates {
		if values[i] = gpu.Null(a.Output); a.Kind == gpu.Count || a.Kind == gpu.CountAll {
			values[i] = gpu.IntScalar(a.Output, 0)
		}
	}
	return operators.EmitGroups(t, operators.PickFields(o.In, o.Keys), o.Always, values, o.Out, emit)
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
	o.reader.Close()
	return errors.Join(o.held.Close(), o.alone.Close())
}
