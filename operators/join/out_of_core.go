package join

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// outOfCore is a join whose build side may be larger than the budget: a hybrid hash join, like the
// Triton join (Lutz et al., SIGMOD 2022, §4). As long as the build side fits, it is the join in
// memory. When the build side takes too much memory, both sides are partitioned by a hash of their
// keys. The first partitions of the build side stay in memory, and probe rows for them are joined
// soon after they arrive. All other rows may spill. Once all lanes have been flushed, lanes take
// the other partitions in pairs. Each pair is a join of its own, which may go out of core again,
// with another hash.
type outOfCore struct {
	*equiJoin // of all rows, unless it is out of core
	seed      uint64
	depth     int // joins around this one

	collecting   sync.Mutex
	started      atomic.Bool // out of core
	build        *spill.Partitions
	probe        *spill.Partitions
	likely       int           // number of partitions, the first ones, that probably stay in memory
	heavyHitters *atomic.Int32 // groups that no hash separates, counted over all nested joins
	joins        int           // joins that hold memory while pairs of partitions are joined, this one included
	staying
	work
	triton
}

const (
	// outBits is the number of bits of the hash that select a partition.
	outBits = 8
	// Approximate bytes per row: tableBytes of the table of NPJ, uniqueBytes of that table on a GPU
	// if all rows have distinct keys of 8 bytes, offsetBytes of partitions.
	tableBytes, uniqueBytes, offsetBytes = 24, 6, 4
	// mostDepth bounds the nesting of joins. Rows that as many hashes do not separate have the same
	// key.
	mostDepth = 3
)

// spills reports whether both sides can spill: in partitions or, without keys, as they are.
func (o *outOfCore) spills(t operators.Task) bool {
	return t.Spill != nil && (o.fanOut() > 1 && o.depth < mostDepth || o.depth == 0)
}

// fanOut is the number of partitions. A join by a range has no keys and one partition.
func (o *outOfCore) fanOut() int {
	if len(o.BuildKeys) == 0 {
		return 1
	}
	return 1 << outBits
}

// memory returns the memory of a part of the build side while its table is built, and afterwards.
// The rows are copied once. They are copied once more by each of two partitioning passes, or by the
// sorts of a table on a GPU.
func (o *outOfCore) memory(t operators.Task, bytes, rows int64) (during, after int64) {
	copies, row := int64(1), int64(tableBytes)
	if t.Device.Properties().SortedTables && o.direct() {
		copies = 2
		switch {
		case o.Algorithm != "npj":
			row = offsetBytes
		case o.UniqueBuild && o.Build.Fields[o.BuildKeys[0]].Type.Width() == 8:
			copies, row = 1, uniqueBytes
		}
	}
	after = bytes + rows*row
	return after + copies*bytes, after
}

// during returns the memory that building the table of partitions [from, to) takes.
func (o *outOfCore) during(t operators.Task, from, to int) int64 {
	n, _ := o.memory(t, o.build.Bytes(from, to), o.build.Rows(from, to))
	return n
}

// NewLocal implements operators.Blocking. It is for the build side.
func (o *outOfCore) NewLocal(t operators.Task) (operators.Local, error) {
	if err := o.RunsOn(t.Device.Properties()); err != nil {
		return nil, err
	}
	t.Lease.Advise("the join's build side must fit: filter it or select fewer of its columns, or join with the " +
		"smaller side as build side")
	if (t.Spill.Always() || o.Algorithm == tritonName) && o.depth == 0 && o.spills(t) {
		o.start(t)
	}
	return &buildSide{task: t, join: o, own: operators.Collected{Lease: t.Lease}}, nil
}

// buildSide has the strides of the build side that one lane has collected.
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
	if b.join.depth == 0 && !b.join.started.Load() && b.join.spills(b.task) &&
		(b.task.ShouldSpill(b.own.Bytes) || b.join.exceeds(b.task, &b.own)) {
		b.join.start(b.task)
	}
	if b.join.started.Load() {
		return b.join.holdBuild(b.task, &b.own)
	}
	return nil
}

// exceeds reports whether the build side will probably not fit the budget: the estimate says so,
// and the lane has collected enough rows to believe it.
func (o *outOfCore) exceeds(t operators.Task, own *operators.Collected) bool {
	rows, row := float64(o.BuildRows), float64(o.Build.RowBytes())
	shares := t.Grant.Joins > 1 || t.Grant.Frugal && t.Grant.Resident > 0
	too := rows*(2*row+tableBytes) > float64(t.Budget()) ||
		shares && rows*(row+tableBytes) > float64(t.Grant.Resident)
	return too && own.Bytes() >= t.Share(grant.JoinEarly)
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

// start makes the join go out of core. From then on lanes partition the strides that they collect.
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
	o.width = 1
	if o.Algorithm == tritonName {
		o.started.Store(true)
		return
	}
	o.likely = o.fanOut()
	expected := min(o.BuildRows, 1<<40)
	for row := int64(o.Build.RowBytes()); expected > 0 && o.likely > 0; o.likely-- {
		if rows := expected * int64(o.likely) / int64(o.fanOut()); o.canStay(t, rows*row, rows) {
			break
		}
	}
	if o.likely < o.build.Len() {
		o.build.Keep = o.likely
	}
	o.width = max(o.width, (o.likely+residentGroups-1)/residentGroups)
	o.started.Store(true)
}

// holdBuild partitions collected strides and appends them to Partitions, where they can spill. Rows
// of each group that will probably stay are cut into strides of their own. So the memory of a group
// can be released when its table is built, and the rows of the highest partitions can spill first.
func (o *outOfCore) holdBuild(t operators.Task, own *operators.Collected) error {
	var ends []int
	for at := 0; at < o.likely; {
		at = min(at+o.width, o.likely)
		ends = append(ends, at)
	}
	if o.likely < o.build.Len() {
		ends = append(ends, o.build.Len())
	}
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
		if err := cut(t, s, offsets, ends, o.build.Append); err != nil {
			return err
		}
	}
	return nil
}

// cut cuts a partitioned stride, which it takes over, at the ends of groups of partitions. It calls
// take for each group with rows: with these rows, the group's first partition, and the offsets of
// its partitions, including the end.
func cut(t operators.Task, s *gpu.Stride, offsets, ends []int,
	take func(s *gpu.Stride, first int, offsets []int) error) error {
	bounds := []int{0}
	for _, end := range ends {
		bounds = append(bounds, offsets[end])
	}
	parts, err := operators.CutStride(t, s, bounds)
	s.Release()
	if err != nil {
		return err
	}
	first := 0
	for i, part := range parts {
		if err != nil || part.Rows == 0 {
			part.Release()
		} else {
			starts := slices.Clone(offsets[first : ends[i]+1])
			for k := range starts {
				starts[k] -= bounds[i]
			}
			err = take(part, first, starts)
		}
		first = ends[i]
	}
	return err
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
	if !o.started.Load() && o.spills(t) && (t.Grant.Frugal && t.Grant.Resident > 0 && !o.canStay(t, bytes, rows) ||
		t.Lease.MakeRoom(bytes+rows*tableBytes) != nil) {
		o.start(t)
	}
	if o.started.Load() {
		if err := o.holdBuild(t, &o.pending); err != nil {
			return err
		}
		if err := o.stay(ctx, t); err != nil {
			return err
		}
		o.group(t)
		return nil
	}
	_, o.kept = o.memory(t, bytes, rows)
	return o.equiJoin.Finalize(ctx, t)
}

// group cuts the partitions that do not stay into groups whose build sides fit memory.
func (o *outOfCore) group(t operators.Task) {
	o.joins = t.Grant.Joins
	room := t.Share(grant.JoinPairs)
	for from := o.resident; from < o.build.Len(); {
		to := from + 1
		for to < o.build.Len() && o.during(t, from, to+1) <= room {
			to++
		}
		o.groups = append(o.groups, group{from: from, to: to})
		from = to
	}
}

// Deferred implements operators.Deferring.
func (o *outOfCore) Deferred() operators.Source {
	if !o.started.Load() {
		return nil
	}
	return o
}

// barren reports whether partitions [from, to) cannot produce any row.
func (o *outOfCore) barren(from, to int) bool {
	return o.build.Rows(from, to) == 0 && (o.probe.Rows(from, to) == 0 || o.Kind == Inner || o.Kind == Right ||
		o.Kind == Semi || o.Kind.OfBuild())
}

// large reports whether the build side of partitions [from, to) exceeds the memory of a lane.
func (o *outOfCore) large(t operators.Task, from, to int) bool {
	t.Grant.Joins = o.joins
	return o.during(t, from, to) > t.Share(grant.JoinPair)
}

// batches calls take with the rows of partitions [from, to), in batches.
func (o *outOfCore) batches(ctx context.Context, t operators.Task, of *spill.Partitions, schema *gpu.Schema,
	from, to int, take func(*gpu.Stride) error) error {
	return o.inBatches(t, of, schema, func(add func(*gpu.Stride) error) error {
		return of.Each(ctx, t.Queue, t.Lease, from, to, func(s *gpu.Stride, _ int) error { return add(s) })
	}, take)
}

func (o *outOfCore) drop(from, to int) {
	o.build.Drop(from, to)
	o.probe.Drop(from, to)
}

// stream joins all rows of a probe side in one lane.
func (o *outOfCore) stream(ctx context.Context, t operators.Task, rows func(push func(*gpu.Stride) error) error,
	emit operators.Emit) (err error) {
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
	text := fmt.Sprintf("%s; out of core: %s of %d partitions stay in memory", inner, humanize.Comma(int64(o.resident)),
		o.build.Len())
	if o.Algorithm == tritonName {
		text = fmt.Sprintf("%s; out of core: %d partitions%s", inner, o.build.Len(), o.how())
	}
	if n := o.heavyHitters.Load(); n > 0 && o.fanOut() == 1 {
		text += "; joined block by block"
	} else if n > 0 {
		text += fmt.Sprintf("; %d too large for memory, with many rows of one key, joined block by block", n)
	}
	return text
}

// Close implements operators.Operator.
func (o *outOfCore) Close() error {
	o.reader.Close()
	o.giveBack()
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
			return max(0, e.Bytes+e.ProbeBytes-grant.TritonStrides.Part(room))
		}
		if e.Bytes <= grant.SpillBelow.Part(room) && d.Bytes <= room {
			return 0
		}
		return max(0, 1-grant.Resident.Part(room)/d.Bytes) * (e.Bytes + e.ProbeBytes)
	}
	return d
}
