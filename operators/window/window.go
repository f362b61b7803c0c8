package window

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/spill"
)

// Kind is the kind of a function.
type Kind uint8

// The kinds of functions. Aggregate is an aggregate of the frame. The kinds from ArgMin are
// aggregates of groups; only ArgMin and ArgMax are window functions, too.
const (
	Aggregate Kind = iota
	RowNumber
	Rank
	DenseRank
	PercentRank
	CumeDist
	Ntile
	Lag
	Lead
	FirstValue
	LastValue
	NthValue
	ArgMin
	ArgMax
	QuantileCont
	QuantileDisc
	Mode
	StringAgg
	VarSamp
	VarPop
	StddevSamp
	StddevPop
)

// Unit is the unit of the bounds of a frame.
type Unit uint8

// The units: values of the key, rows, groups of peers.
const (
	Range Unit = iota
	Rows
	Groups
)

// BoundKind is the kind of one end of a frame.
type BoundKind uint8

// The ends of a frame.
const (
	UnboundedPreceding BoundKind = iota
	Preceding
	CurrentRow
	Following
	UnboundedFollowing
)

// Bound is one end of a frame. Offset is a number of rows or groups. With Range, a bound with an
// offset is the position of the value in column Value among the values in column Key.
type Bound struct {
	Kind       BoundKind
	Offset     int64
	Key, Value int
}

// Exclusion is the rows that a frame leaves out.
type Exclusion uint8

// The exclusions: none, the current row, the row and its peers, its peers without the row.
const (
	NoOthers Exclusion = iota
	ExcludeRow
	ExcludeGroup
	ExcludeTies
)

// Frame defines the rows of a partition that a function sees.
type Frame struct {
	Unit     Unit
	From, To Bound
	Exclude  Exclusion `json:",omitempty"`
}

// Whole reports whether the frame of each row is all rows of its partition, in a window with or without an order.
func (f Frame) Whole(ordered bool) bool {
	if !ordered {
		f = f.withoutOrder()
	}
	return f.From.Kind == UnboundedPreceding && f.To.Kind == UnboundedFollowing && f.Exclude == NoOthers
}

// withoutOrder returns the frame in a window without an order. All rows of a partition are then
// peers, so a frame of RANGE or GROUPS has all of them or none.
func (f Frame) withoutOrder() Frame {
	switch {
	case f.Unit == Rows:
		return f
	case f.From.Kind == Following && f.From.Offset > 0 || f.To.Kind == Preceding && f.To.Offset > 0:
		return Frame{Unit: Rows, From: Bound{Kind: CurrentRow}, To: Bound{Kind: Preceding, Offset: 1}}
	}
	return Frame{Unit: Rows, From: wholeFrame.From, To: wholeFrame.To, Exclude: f.Exclude}
}

var (
	wholeFrame = Frame{Unit: Rows, From: Bound{Kind: UnboundedPreceding}, To: Bound{Kind: UnboundedFollowing}}
	rowFrame   = Frame{Unit: Rows, From: Bound{Kind: CurrentRow}, To: Bound{Kind: CurrentRow}}
)

// Function is one window function.
type Function struct {
	Kind Kind
	// Aggregate is the aggregate of the kind Aggregate.
	Aggregate gpu.AggregateKind
	// Value, Offset and Default are columns, -1 for none. Value is the argument. Offset is a
	// BIGINT: a number of rows, or of buckets for ntile; ArgMin and ArgMax compare it, and it has
	// any type. Default is the value of lag and lead outside of the partition.
	Value, Offset, Default int
	// Least and Most bound the non-null offsets of lag, lead and nth_value, if Bounded.
	Least, Most int64
	Bounded     bool
	IgnoreNulls bool
	Frame       Frame
	Output      gpu.Type
}

// Spec describes window functions over one window.
type Spec struct {
	In        *gpu.Schema
	Partition []int
	Order     []sort.Key
	Functions []Function
	// Keep are the columns of the input that the result has, before the columns of the functions.
	Keep []int
	Out  *gpu.Schema
}

// Window is the operator: Blocking, and then a Source.
type Window interface {
	operators.Blocking
	operators.Source
}

const (
	// fanOut is the number of bits of the hash that select a partition.
	fanOut = 8
	// fewRows is the maximum number of rows of a stride that is not partitioned, unless others are.
	fewRows = 1 << 12
	// partRows is the least average number of rows of a part, because a part takes some hundred
	// kernel launches on a GPU, however few its rows. It is less if eight strides have fewer rows,
	// or if memory is short.
	partRows = 1 << 13
	// seed is the seed of the hash. It is the same in all runs, because the order of the result
	// depends on it.
	seed = 0x9e3779b97f4a7c15
)

// New returns the operator of a spec.
func New(s Spec) (Window, error) {
	if s.Out.Len() != len(s.Keep)+len(s.Functions) {
		return nil, fmt.Errorf("window returns %d columns under %d names", len(s.Keep)+len(s.Functions), s.Out.Len())
	}
	if len(s.Order) == 0 {
		s.Functions = slices.Clone(s.Functions)
		for i := range s.Functions {
			s.Functions[i].Frame = s.Functions[i].Frame.withoutOrder()
		}
	}
	o := &windows{Spec: s}
	o.collection = collection{in: s.In, out: s.Out, keys: s.Partition, compute: o.compute, emitSequence: o.emitSequence}
	if o.stream = newStream(&s); o.stream != nil {
		var err error
		if o.sequence, err = newSequence(&s); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// windows is the operator of a Spec.
type windows struct {
	Spec
	collection
	stream *stream // of a window over all rows; nil if all rows must be in memory
}

// collection collects the rows of all lanes, partitioned by a hash of keys if there are any, and
// then computes them part by part.
type collection struct {
	in, out *gpu.Schema
	keys    []int
	// compute computes a part. It takes ownership of the strides, which have the columns of in, and
	// after them the number of the stride if they have spilled.
	compute func(t operators.Task, schema *gpu.Schema, strides []*gpu.Stride) (output, error)
	// sequence keeps the rows if they spill and there are no keys, and emitSequence emits them; see
	// streamed.go. It is nil if all rows must be in memory.
	sequence     operators.Blocking
	emitSequence func(ctx context.Context, t operators.Task, emit operators.Emit) error

	mu     sync.Mutex
	held   []cut
	rows   int64
	shift  uint // a part is 1<<shift partitions
	parts  []part
	stride int

	started  atomic.Bool       // rows may spill
	spilled  *spill.Partitions // all rows, once started is set
	numbered *gpu.Schema       // schema of spilled
}

// cut is a collected stride, ordered by partition.
type cut struct {
	number  int // of the morsel
	at      int // of the stride among those of the lane
	rows    *gpu.Stride
	offsets []int // starts of the partitions; nil when the rows are not partitioned
}

// part is a range of partitions: [from, to) of spilled rows, or 1<<shift partitions of rows in
// memory. Or it is the rows [from, to) of the output of a large part, which all cores have
// computed.
type part struct {
	at       int
	large    output
	from, to int
}

// output has the rows of the result of a part.
type output interface {
	length() int
	// emit emits rows [from, to).
	emit(t operators.Task, from, to int, emit operators.Emit) error
	release()
}

func (o *collection) Schema() *gpu.Schema { return o.out }

// Demand implements operators.Demanding: the bytes of all rows and of their order.
func (o *collection) Demand(e operators.Expected) operators.Demand {
	const order = 4 // bytes of a row's id
	d := operators.Demand{Bytes: e.Bytes + e.Rows*order}
	if d.Fixed = d.Bytes; len(o.keys) > 0 || o.sequence != nil {
		d.Fixed = 0
		d.Spilled = func(room float64) float64 {
			if d.Bytes <= grant.SpillBelow.Part(room) {
				return 0
			}
			return max(0, e.Bytes-spill.Room(room))
		}
	}
	return d
}

func (o *collection) NewLocal(t operators.Task) (operators.Local, error) {
	t.Lease.Advise("the step must hold all rows of a partition: select fewer columns, or filter first")
	if o.spills(t) && t.Spill.Always() {
		o.start(t)
	}
	return &local{collection: o, task: t}, nil
}

// local has the rows that one lane has collected.
type local struct {
	*collection
	task      operators.Task
	own       []cut
	strides   int // so far
	rows      int64
	sequenced operators.Local // of the sequence, once it keeps the rows
}

func (l *local) Push(ctx context.Context, number int, s *gpu.Stride) error {
	s.ChargeTo(l.task.Lease)
	l.strides, l.rows = l.strides+1, l.rows+int64(s.Rows)
	c := cut{number: number, at: l.strides, rows: s}
	if s.Rows > fewRows && len(l.keys) > 0 {
		if err := l.partition(l.task, &c); err != nil {
			c.rows.Release()
			return err
		}
	}
	l.own = append(l.own, c)
	if !l.started.Load() && l.spills(l.task) && l.task.ShouldSpill(func() int64 { return bytes(l.own) }) {
		l.start(l.task)
	}
	if !l.started.Load() {
		return nil
	}
	own := l.own
	l.own = nil
	if l.sequence != nil {
		return l.pushSequence(ctx, own)
	}
	return l.spill(l.task, own)
}

func (l *local) Combine(ctx context.Context) error {
	if l.sequenced != nil {
		if err := l.sequenced.Combine(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.collection.rows += l.rows
	l.held = append(l.held, l.own...)
	l.own = nil
	return nil
}

func (l *local) Close() error {
	for _, c := range l.own {
		c.rows.Release()
	}
	l.own = nil
	if l.sequenced != nil {
		return l.sequenced.Close()
	}
	return nil
}

// partition partitions the rows of a cut by the hash of the keys.
func (o *collection) partition(t operators.Task, c *cut) error {
	hash, err := t.Queue.Hash(t.Lease, operators.Pick(c.rows.Cols, o.keys), seed)
	if err != nil {
		return err
	}
	defer hash.Release()
	parts, offsets, err := operators.PartitionStride(t, c.rows, hash, gpu.Digit{Shift: 64 - fanOut, Bits: fanOut})
	if err != nil {
		return err
	}
	c.rows.Release()
	c.rows, c.offsets = parts, offsets
	return nil
}

// Finalize decides how many parts the result has. Its queue uses all cores, and computes a part
// that has most of the rows, for example all rows if there are no keys.
func (o *collection) Finalize(ctx context.Context, t operators.Task) error {
	o.stride = t.StrideRows
	if !o.started.Load() && o.spills(t) && o.work() > t.Lease.Available() {
		o.start(t)
	}
	if o.started.Load() && o.sequence != nil {
		return o.finalizeSequence(ctx, t)
	}
	if o.started.Load() {
		held := o.held
		o.held = nil
		if err := o.spill(t, held); err != nil {
			return err
		}
		o.group(t)
		return nil
	}
	slices.SortStableFunc(o.held, func(a, b cut) int { return a.number - b.number })
	width := 0
	if len(o.keys) > 0 {
		// A part of half a stride is sorted within the cache of a core.
		least := max(t.StrideRows/2, min(partRows, 8*t.StrideRows))
		width = min(fanOut, bits.Len64(uint64(o.rows/int64(least))))
	}
	o.shift = uint(fanOut - width)
	for i := range o.held {
		if c := &o.held[i]; width > 0 && c.offsets == nil {
			if err := o.partition(t, c); err != nil {
				return err
			}
		}
	}
	for at := range 1 << width {
		switch n := o.rowsOf(at); {
		case n == 0:
		case int64(2*n) > o.rows && t.Lanes > 1:
			r, err := o.computed(t, at)
			if err != nil {
				return err
			}
			for from := 0; from < r.length(); from += o.stride {
				o.parts = append(o.parts, part{at: at, large: r, from: from, to: min(from+o.stride, r.length())})
			}
		default:
			o.parts = append(o.parts, part{at: at})
		}
	}
	return nil
}

// rangeOf returns the range of a part's rows in a cut.
func (o *collection) rangeOf(c cut, at int) (from, to int) {
	if o.shift == fanOut {
		return 0, c.rows.Rows
	}
	return c.offsets[at<<o.shift], c.offsets[(at+1)<<o.shift]
}

// rowsOf returns the number of rows of a part.
func (o *collection) rowsOf(at int) (n int) {
	for _, c := range o.held {
		from, to := o.rangeOf(c, at)
		n += to - from
	}
	return n
}

// Parts implements operators.Source.
func (o *collection) Parts() int { return len(o.parts) }

// Emit implements operators.Source.
func (o *collection) Emit(ctx context.Context, t operators.Task, i int, emit operators.Emit) error {
	p := o.parts[i]
	if o.started.Load() && o.sequence != nil {
		return o.emitSequence(ctx, t, emit)
	}
	if p.large != nil {
		return p.large.emit(t, p.from, p.to, emit)
	}
	r, err := o.resultOf(ctx, t, p)
	if err != nil {
		return err
	}
	defer r.release()
	for from := 0; from < r.length(); from += o.stride {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.emit(t, from, min(from+o.stride, r.length()), emit); err != nil {
			return err
		}
	}
	return nil
}

// resultOf computes a part.
func (o *collection) resultOf(ctx context.Context, t operators.Task, p part) (output, error) {
	if !o.started.Load() {
		return o.computed(t, p.at)
	}
	strides, err := o.read(ctx, t, p)
	if err != nil {
		return nil, err
	}
	return o.compute(t, o.numbered, strides)
}

func (o *collection) Close() error {
	for _, c := range o.held {
		c.rows.Release()
	}
	o.held = nil
	for _, p := range o.parts {
		if p.large != nil && p.from == 0 {
			p.large.release()
		}
	}
	o.parts = nil
	if o.sequence != nil {
		return o.sequence.Close()
	}
	return o.spilled.Close()
}

// result has the rows of a part, their order, and the functions of the rows in this order.
type result struct {
	*windows
	rows      *operators.Rows
	ids       gpu.Column
	functions []gpu.Column
}

func (r *result) length() int { return r.rows.N }

func (r *result) release() {
	r.rows.Release()
	r.ids.Release()
	gpu.ReleaseColumns(r.functions)
}

func (r *result) emit(t operators.Task, from, to int, emit operators.Emit) error {
	s, err := r.rows.GatherRange(t, r.ids, from, to)
	if err != nil {
		return err
	}
	s.Schema = r.Out
	for _, f := range r.functions {
		c, err := t.Queue.Slice(t.Lease, f, from, to)
		if err != nil {
			s.Release()
			return err
		}
		s.Cols = append(s.Cols, c)
	}
	return emit(s)
}

// take returns the strides of a part. A part of all rows takes the held strides themselves.
func (o *collection) take(t operators.Task, at int) (strides []*gpu.Stride, err error) {
	if o.shift == fanOut {
		for _, c := range o.held {
			strides = append(strides, c.rows)
		}
		o.held = nil
		return strides, nil
	}
	for i := range o.held {
		c := &o.held[i]
		from, to := o.rangeOf(*c, at)
		if from == to {
			continue
		}
		s, err := operators.SliceStride(t, c.rows, from, to)
		if err != nil {
			for _, s := range strides {
				s.Release()
			}
			return nil, err
		}
		strides = append(strides, s)
	}
	return strides, nil
}

// computed computes a part whose rows have not spilled.
func (o *collection) computed(t operators.Task, at int) (output, error) {
	if n := o.rowsOf(at); n > gpu.MaxRows {
		return nil, tooMany(int64(n))
	}
	strides, err := o.take(t, at)
	if err != nil {
		return nil, err
	}
	return o.compute(t, o.in, strides)
}

// compute sorts the rows of a part and computes the functions.
func (o *windows) compute(t operators.Task, schema *gpu.Schema, strides []*gpu.Stride) (_ output, err error) {
	rows, err := operators.CollectRows(t, schema, strides, usedColumns(o.Partition, o.Order, o.Functions))
	if err != nil {
		return nil, err
	}
	r := &result{windows: o, rows: rows}
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	if r.ids, err = o.sorted(t, rows, o.Order); err != nil {
		return nil, err
	}
	c, err := newCalculation(t, o.Partition, o.Order, rows, o.used(), r.ids)
	if err != nil {
		return nil, err
	}
	defer c.release()
	// Columns that are not in the result are no longer needed.
	rows.Keep(o.Keep, &gpu.Schema{Fields: o.Out.Fields[:len(o.Keep)]})
	for _, f := range o.Functions {
		out, err := c.function(f)
		if err != nil {
			return nil, err
		}
		r.functions = append(r.functions, out)
	}
	return r, nil
}

// used returns the columns that the functions need, ascending.
func (o *windows) used() []int { return usedColumns(o.Partition, o.peerKeys(), o.Functions) }

// peerKeys returns the order, if functions of sorted rows need its keys to find peers.
func (o *windows) peerKeys() []sort.Key {
	if slices.ContainsFunc(o.Functions, Function.seesPeers) {
		return o.Order
	}
	return nil
}

func usedColumns(partition []int, order []sort.Key, functions []Function) []int {
	cols := slices.Clone(partition)
	for _, k := range order {
		cols = append(cols, k.Column)
	}
	for _, f := range functions {
		cols = append(cols, f.Columns()...)
	}
	slices.Sort(cols)
	return slices.Compact(cols)
}

// seesPeers reports whether the value of a function depends on which rows are peers.
func (f Function) seesPeers() bool {
	switch f.Kind {
	case RowNumber, Ntile, Lag, Lead:
		return false
	case Rank, DenseRank, PercentRank, CumeDist:
		return true
	}
	peers := func(b Bound) bool {
		return b.Kind == CurrentRow && f.Frame.Unit != Rows ||
			f.Frame.Unit == Groups && (b.Kind == Preceding || b.Kind == Following)
	}
	return peers(f.Frame.From) || peers(f.Frame.To) || f.Frame.Exclude >= ExcludeGroup
}

// Columns returns the columns that a function needs besides the keys of its window.
func (f Function) Columns() []int {
	cols := f.arguments()
	for _, b := range []Bound{f.Frame.From, f.Frame.To} {
		if f.Frame.Unit == Range && (b.Kind == Preceding || b.Kind == Following) {
			cols = append(cols, b.Key, b.Value)
		}
	}
	return cols
}

// arguments returns the columns of the arguments, each once.
func (f Function) arguments() (cols []int) {
	for _, c := range []int{f.Value, f.Offset, f.Default} {
		if c >= 0 && !slices.Contains(cols, c) {
			cols = append(cols, c)
		}
	}
	return cols
}

// Nullable reports whether a function may return null.
func (f Function) Nullable() bool {
	switch f.Kind {
	case Aggregate:
		return f.Aggregate != gpu.CountAll && f.Aggregate != gpu.Count
	case Ntile, Lag, Lead, FirstValue, LastValue, NthValue, ArgMin, ArgMax:
		return true
	}
	return false
}

// PassesValues reports whether a function returns values of column Value, or, for lag and lead, of
// column Default.
func (f Function) PassesValues() bool {
	switch f.Kind {
	case Aggregate:
		return f.Aggregate == gpu.Min || f.Aggregate == gpu.Max
	case Lag, Lead, FirstValue, LastValue, NthValue, ArgMin, ArgMax:
		return true
	}
	return false
}

// Remap returns the function over other positions of columns.
func (f Function) Remap(at func(int) int) Function {
	for _, c := range []*int{&f.Value, &f.Offset, &f.Default} {
		if *c >= 0 {
			*c = at(*c)
		}
	}
	for _, b := range []*Bound{&f.Frame.From, &f.Frame.To} {
		if f.Frame.Unit == Range && (b.Kind == Preceding || b.Kind == Following) {
			b.Key, b.Value = at(b.Key), at(b.Value)
		}
	}
	return f
}

// sorted returns the row ids sorted by the keys, an order, and the order of the input.
func (o *collection) sorted(t operators.Task, rows *operators.Rows, order []sort.Key) (gpu.Column, error) {
	var keys []gpu.SortKey
	for _, k := range o.keys {
		keys = append(keys, gpu.SortKey{Column: rows.Cols[k]})
	}
	for _, k := range order {
		keys = append(keys, gpu.SortKey{Column: rows.Cols[k.Column], Descending: k.Descending,
			NullsFirst: k.NullsFirst})
	}
	if n := o.in.Len(); len(rows.Cols) > n {
		keys = append(keys, gpu.SortKey{Column: rows.Cols[n]})
	}
	if len(keys) == 0 {
		return allRows(t, rows.N)
	}
	return t.Queue.Sort(t.Lease, keys)
}

// allRows returns the ids of n rows.
func allRows(t operators.Task, n int) (gpu.Column, error) {
	none, err := t.Queue.NewBitmap(t.Lease, n)
	if err != nil {
		return none, err
	}
	defer none.Release()
	return t.Queue.Select(t.Lease, none, false)
}
