package join

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// outOfCore is a join whose build side may be larger than the budget: a hybrid hash join, as
// the Triton join is (Lutz et al., SIGMOD 2022, §4). As long as the build side fits, it is the
// join in memory. When it takes too much, both sides are partitioned by a hash of their keys.
// The first partitions of the build side stay in memory, and probe rows for them are joined on
// arrival. All other rows may spill. When all lanes have been flushed, lanes take the other
// partitions in pairs, each a join of its own, which may be out of core again, with another
// hash.
type outOfCore struct {
	*equiJoin // of all rows or, out of core, of the partitions in memory
	seed      uint64
	depth     int // joins around this one

	collecting sync.Mutex
	started    atomic.Bool // out of core
	build      *spill.Partitions
	probe      *spill.Partitions
	likely     int           // partitions that probably stay in memory: the first ones
	resident   int           // those that do, at most as many
	hot        *atomic.Int32 // groups that no hash separates, of all joins within each other
	work
	triton
}

const (
	// outBits is the number of bits of the hash that select a partition.
	outBits = 8
	// buildShare is the share of the budget that the partitions that stay take at most while
	// their rows are copied and their table is built, and residentShare afterwards, when strides
	// stream past them. pairBudget is the share of the build sides of all lanes later on, one
	// part in so many.
	buildShare    = 0.85
	residentShare = 0.5
	pairBudget    = 3
	// tableBytes is about what the table of NPJ takes a row, and offsetBytes what partitions
	// take.
	tableBytes, offsetBytes = 24, 4
	// mostDepth bounds the joins within each other. Rows that as many hashes do not separate
	// have one key.
	mostDepth = 3
)

// spills reports whether both sides can be partitioned, or be put down as they are if no keys part them.
func (o *outOfCore) spills(t operators.Task) bool {
	return t.Spill != nil && (o.fanOut() > 1 && o.depth < mostDepth || o.depth == 0)
}

// fanOut is the number of partitions. Without keys, in a join by a range, all rows are in one.
func (o *outOfCore) fanOut() int {
	if len(o.BuildKeys) == 0 {
		return 1
	}
	return 1 << outBits
}

// memory returns the memory of a part of the build side while its table is built, and afterwards.
// Partitions are made in two passes, each of which copies the rows, and NPJ needs its table.
func (o *outOfCore) memory(t operators.Task, bytes, rows int64) (during, after int64) {
	if t.Device.Properties().Kind == "cuda" && o.direct() {
		return 3*bytes + rows*offsetBytes, bytes + rows*offsetBytes
	}
	return 2*bytes + rows*tableBytes, bytes + rows*tableBytes
}

// during returns the memory that it takes to build the table of partitions.
func (o *outOfCore) during(t operators.Task, from, to int) int64 {
	n, _ := o.memory(t, o.build.Bytes(from, to), o.build.Rows(from, to))
	return n
}

// NewLocal implements operators.Blocking. It is for the build side.
func (o *outOfCore) NewLocal(t operators.Task) (operators.Local, error) {
	if err := o.runsOn(t.Device.Properties()); err != nil {
		return nil, err
	}
	t.Lease.Advise("the join's build side must fit: filter it or select fewer of its columns, or join with the smaller side as build side")
	if (t.Spill.Always() || o.Algorithm == tritonName) && o.depth == 0 && o.spills(t) {
		o.start(t)
	}
	return &buildSide{task: t, join: o, own: operators.Collected{Lease: t.Lease}}, nil
}

// buildSide is the strides of the build side that one lane has collected.
type buildSide struct {
	task operators.Task
	join *outOfCore
	own  operators.Collected
}

// Push implements operators.Local.
func (b *buildSide) Push(ctx context.Context, number int, s *gpu.Stride) error {
	if err := b.own.Push(ctx, number, s); err != nil {
		return err
	}
	if b.join.depth == 0 && !b.join.started.Load() && b.join.spills(b.task) && b.task.Crowds(b.own.Bytes) {
		b.join.start(b.task)
	}
	if b.join.started.Load() {
		return b.join.holdBuild(b.task, &b.own)
	}
	return nil
}

// Combine implements operators.Local.
func (b *buildSide) Combine(context.Context) error {
	b.join.collecting.Lock()
	defer b.join.collecting.Unlock()
	b.join.pending.Append(&b.own)
	return nil
}

// Close implements operators.Local.
func (b *buildSide) Close() error { return b.own.Close() }

// start makes the join go out of core. Lanes then partition what they have collected.
func (o *outOfCore) start(t operators.Task) {
	o.collecting.Lock()
	defer o.collecting.Unlock()
	if o.started.Load() {
		return
	}
	o.seed = rand.Uint64()
	build, probe := o.plan(t)
	o.build = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, build, o.fanOut())
	o.probe = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, probe, o.fanOut())
	if o.Algorithm == tritonName {
		o.started.Store(true)
		return
	}
	o.likely = o.fanOut()
	row := int64(o.Build.RowBytes())
	for budget := float64(t.Lease.Limit()); o.likely > 0 && o.BuildRows > 0; o.likely-- {
		rows := o.BuildRows * int64(o.likely) / int64(o.fanOut())
		if during, after := o.memory(t, rows*row, rows); float64(during) <= buildShare*budget && float64(after) <= residentShare*budget {
			break
		}
	}
	if o.likely < o.build.Len() {
		o.build.Keep = o.likely
	}
	o.started.Store(true)
}

// holdBuild partitions collected strides and holds them where they can spill. Rows that will
// probably stay are strides of their own: those of the highest partitions spill first.
func (o *outOfCore) holdBuild(t operators.Task, own *operators.Collected) error {
	for own.Rows > 0 {
		strides, _ := own.First(1)
		if o.tuples {
			if err := o.scatter(t, strides[0], o.BuildKeys[0], o.build); err != nil {
				return err
			}
			continue
		}
		s, offsets, err := o.partition(t, strides[0], o.BuildKeys)
		if err != nil {
			return err
		}
		low, high, err := cut(t, s, offsets, o.likely)
		if err != nil {
			return err
		}
		if low.Stride != nil {
			if err := o.build.Append(low.Stride, 0, low.offsets); err != nil {
				high.release()
				return err
			}
		}
		if high.Stride != nil {
			if err := o.build.Append(high.Stride, o.likely, high.offsets); err != nil {
				return err
			}
		}
	}
	return nil
}

// partitioned is rows in order of partition.
type partitioned struct {
	*gpu.Stride       // nil for no rows
	offsets     []int // starts of the partitions, and the end
}

func (p partitioned) release() {
	if p.Stride != nil {
		p.Release()
	}
}

// cut cuts partitioned rows, which it takes over, into those of the first n partitions and the
// others.
func cut(t operators.Task, s *gpu.Stride, offsets []int, n int) (low, high partitioned, err error) {
	at := offsets[n]
	low.offsets, high.offsets = offsets[:n+1], slices.Clone(offsets[n:])
	for i := range high.offsets {
		high.offsets[i] -= at
	}
	switch {
	case s.Rows == 0:
		s.Release()
	case at == s.Rows:
		low.Stride = s
	case at == 0:
		high.Stride = s
	default:
		defer s.Release()
		if low.Stride, err = operators.SliceStride(t, s, 0, at); err != nil {
			return partitioned{}, partitioned{}, err
		}
		if high.Stride, err = operators.SliceStride(t, s, at, s.Rows); err != nil {
			low.release()
			return partitioned{}, partitioned{}, err
		}
	}
	return low, high, nil
}

// partition partitions a stride of either side, which it takes over.
func (o *outOfCore) partition(t operators.Task, s *gpu.Stride, keys []int) (*gpu.Stride, []int, error) {
	if o.fanOut() == 1 {
		return s, []int{0, s.Rows}, nil
	}
	defer s.Release()
	hash, err := t.Queue.Hash(t.Lease, operators.Pick(s.Cols, keys), o.seed)
	if err != nil {
		return nil, nil, err
	}
	defer hash.Release()
	return operators.PartitionStride(t, s, hash, gpu.Digit{Shift: 64 - outBits, Bits: outBits})
}

// Finalize implements operators.Blocking.
func (o *outOfCore) Finalize(ctx context.Context, t operators.Task) error {
	bytes, rows := o.pending.Bytes(), int64(o.pending.Rows)
	if !o.started.Load() && o.spills(t) && t.Lease.MakeRoom(bytes+rows*tableBytes) != nil {
		o.start(t)
	}
	if o.started.Load() {
		if err := o.holdBuild(t, &o.pending); err != nil {
			return err
		}
		if err := o.stay(ctx, t); err != nil {
			return err
		}
		o.partial = true
		t.Filter = operators.NoFilter // it would not know the rows that spill
	}
	return o.equiJoin.Finalize(ctx, t)
}

// stay chooses the partitions that stay in memory, and cuts the others into groups.
func (o *outOfCore) stay(ctx context.Context, t operators.Task) error {
	if !t.Spill.Always() {
		// What has to be held in memory to be joined spills first. Rows of fewer partitions
		// than are likely are cut from their strides.
		more := func(to int) int64 { return o.during(t, 0, to) - o.build.Held(0, to) }
		_ = t.Lease.MakeRoom(min(more(o.likely)*9/8, t.Lease.Limit()*3/4))
		room := t.Lease.Available() * 8 / 9
		for o.resident = o.likely; o.resident > 0 && more(o.resident) > room; {
			o.resident--
		}
	}
	room := t.Lease.Limit() / int64(pairBudget*t.Lanes)
	for from := o.resident; from < o.build.Len(); {
		to := from + 1
		for to < o.build.Len() && o.during(t, from, to+1) <= room {
			to++
		}
		o.groups = append(o.groups, group{from: from, to: to})
		from = to
	}
	err := o.build.Each(ctx, t.Queue, t.Lease, 0, o.resident, func(s *gpu.Stride, _ int) error {
		return o.pending.Push(ctx, 0, s)
	})
	if err != nil {
		return err
	}
	o.build.Drop(0, o.resident)
	return nil
}

// NewLane implements operators.Streaming. It is for the probe side.
func (o *outOfCore) NewLane(t operators.Task) (operators.Lane, error) {
	in, err := o.equiJoin.NewLane(t)
	if err != nil || !o.started.Load() {
		return in, err
	}
	return &outerLane{Lane: in, join: o, task: t}, nil
}

// outerLane is a lane of the probe side of a join out of core.
type outerLane struct {
	operators.Lane // of the partitions in memory
	join           *outOfCore
	task           operators.Task
	now            operators.Collected // rows for it, until they are as many as a stride has
}

// Push implements operators.Lane.
func (l *outerLane) Push(ctx context.Context, s *gpu.Stride, emit operators.Emit) error {
	o := l.join
	if o.tuples {
		return o.scatter(l.task, s, o.ProbeKeys[0], o.probe)
	}
	s, offsets, err := o.partition(l.task, s, o.ProbeKeys)
	if err != nil {
		return err
	}
	now, later, err := cut(l.task, s, offsets, o.resident)
	if err != nil {
		return err
	}
	if later.Stride != nil {
		if err := o.probe.Append(later.Stride, o.resident, later.offsets); err != nil {
			now.release()
			return err
		}
	}
	if now.Stride == nil {
		return nil
	}
	if l.now.Rows+now.Rows > l.task.StrideRows {
		if err := l.joinNow(ctx, emit); err != nil {
			now.release()
			return err
		}
	}
	return l.now.Push(ctx, 0, now.Stride)
}

// joinNow joins the rows for partitions in memory.
func (l *outerLane) joinNow(ctx context.Context, emit operators.Emit) error {
	if l.now.Rows == 0 {
		return nil
	}
	s, err := operators.ConcatStrides(l.task, l.join.Probe, l.now.Take())
	if err != nil {
		return err
	}
	return l.Lane.Push(ctx, s, emit)
}

// Flush implements operators.Lane.
func (l *outerLane) Flush(ctx context.Context, emit operators.Emit) error {
	if err := l.joinNow(ctx, emit); err != nil {
		return err
	}
	return l.Lane.Flush(ctx, emit)
}

// Close implements operators.Lane.
func (l *outerLane) Close() error { return errors.Join(l.now.Close(), l.Lane.Close()) }

// Deferred implements operators.Deferring.
func (o *outOfCore) Deferred() operators.Source {
	if !o.started.Load() {
		return nil
	}
	return o
}

// barren reports whether no row comes out of partitions.
func (o *outOfCore) barren(from, to int) bool {
	return o.build.Rows(from, to) == 0 && (o.probe.Rows(from, to) == 0 || o.Kind == Inner || o.Kind == Right || o.Kind == Semi)
}

// large reports whether the build side of partitions does not fit the memory of a lane.
func (o *outOfCore) large(t operators.Task, from, to int) bool {
	return o.during(t, from, to) > t.Lease.Limit()/int64(operators.Crowded*t.Lanes)
}

// batches calls take with the rows of partitions, in batches.
func (o *outOfCore) batches(ctx context.Context, t operators.Task, of *spill.Partitions, schema *gpu.Schema, from, to int, take func(*gpu.Stride) error) error {
	return o.inBatches(t, of, schema, func(add func(*gpu.Stride) error) error {
		return of.Each(ctx, t.Queue, t.Lease, from, to, func(s *gpu.Stride, _ int) error { return add(s) })
	}, take)
}

func (o *outOfCore) drop(from, to int) {
	o.build.Drop(from, to)
	o.probe.Drop(from, to)
}

// stream joins all rows of a probe side in one lane.
func (o *outOfCore) stream(ctx context.Context, t operators.Task, rows func(push func(*gpu.Stride) error) error, emit operators.Emit) (err error) {
	lane, err := o.NewLane(t)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := lane.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := rows(func(s *gpu.Stride) error { return lane.Push(ctx, s, emit) }); err != nil {
		return err
	}
	if err := lane.Flush(ctx, emit); err != nil {
		return err
	}
	for part := range o.Parts() {
		if err := o.Emit(ctx, t, part, emit); err != nil {
			return err
		}
	}
	return nil
}

// Choice implements operators.Choosing.
func (o *outOfCore) Choice() string {
	inner := o.equiJoin.Choice()
	if inner == "" || !o.started.Load() {
		return inner
	}
	text := fmt.Sprintf("%s; out of core: %s of %d partitions stay in memory", inner, humanize.Comma(int64(o.resident)), o.build.Len())
	if o.Algorithm == tritonName {
		text = fmt.Sprintf("%s; out of core: %d partitions%s", inner, o.build.Len(), o.how())
	}
	if n := o.hot.Load(); n > 0 && o.fanOut() == 1 {
		text += "; joined block by block"
	} else if n > 0 {
		text += fmt.Sprintf("; %d too large for memory, with many rows of one key, joined block by block", n)
	}
	return text
}

// Close implements operators.Operator.
func (o *outOfCore) Close() error {
	o.reader.Close()
	err := o.equiJoin.Close()
	for _, p := range []*spill.Partitions{o.build, o.probe} {
		if closeErr := p.Close(); err == nil {
			err = closeErr
		}
	}
	return err
}

// Demand implements operators.Demanding.
func (o *outOfCore) Demand(e operators.Expected) operators.Demand {
	d := operators.Demand{Bytes: e.Bytes + e.Rows*tableBytes}
	d.Spilled = func(room float64) float64 {
		if o.Algorithm == tritonName {
			return max(0, e.Bytes+e.ProbeBytes-tritonShare*room)
		}
		if e.Bytes <= room/operators.Crowded && d.Bytes <= room {
			return 0
		}
		stay := min(residentShare*room/d.Bytes, buildShare*room/(d.Bytes+e.Bytes))
		return max(0, 1-stay) * (e.Bytes + e.ProbeBytes)
	}
	return d
}
