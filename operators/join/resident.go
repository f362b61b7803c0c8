package join

import (
	"context"
	"errors"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

const (
	// The partitions that stay form at most residentGroups joins. They are made one after the
	// other, so that only the rows of one group are copied at a time.
	residentGroups = 4
	// scratchBytes is approximately what a match of partitions on a GPU takes besides rows.
	scratchBytes = 1 << 20
)

// staying is the partitions of a join out of core that stay in memory.
type staying struct {
	resident  int         // number of partitions, the first ones
	stayed    int64       // their rows
	kept      int64       // their bytes, or those of all rows if the join is not out of core
	width     int         // partitions of a group
	whole     bool        // all partitions stay, in one group
	residents []*resident // the groups
}

// canStay reports whether so many rows of the build side can stay in memory and leave enough of the
// budget for streams.
func (o *outOfCore) canStay(t operators.Task, bytes, rows int64) bool {
	_, after := o.memory(t, bytes, rows)
	room := t.Grant.Resident
	if room == 0 {
		room = t.Share(grant.Resident)
	}
	return after <= room
}

// stay chooses the partitions that stay in memory and makes their joins.
func (o *outOfCore) stay(ctx context.Context, t operators.Task) error {
	if n := o.build.Len(); o.canStay(t, o.build.Bytes(0, n), o.build.Rows(0, n)) && o.Algorithm != tritonName {
		o.likely = n // there are fewer rows than expected
	}
	o.width = max(o.width, (o.likely+residentGroups-1)/residentGroups)
	if !t.Spill.Always() {
		// more returns the bytes that the first partitions need beyond what they take now: for
		// their joins, plus the larger of two: memory to make the join of the largest group, and a
		// quarter of the budget for streams.
		more := func(to int) int64 {
			making := int64(0)
			for from := 0; from < to; from += o.width {
				end := min(from+o.width, to)
				making = max(making, o.during(t, from, end)-o.build.Bytes(from, end))
			}
			if t.Device.Properties().SortedTables && o.direct() {
				making += scratchBytes
			}
			_, after := o.memory(t, o.build.Bytes(0, to), o.build.Rows(0, to))
			return after - o.build.Held(0, to) + max(making, t.Share(grant.StreamRoom))
		}
		// Other rows spill first. If fewer partitions stay than expected, their rows are cut from
		// the strides.
		_ = t.Lease.MakeRoom(min(more(o.likely)*9/8, t.Share(grant.ResidentRoom)))
		room := t.Lease.Available() * 8 / 9
		for o.resident = o.likely; o.resident > 0 && (more(o.resident) > room ||
			!o.canStay(t, o.build.Bytes(0, o.resident), o.build.Rows(0, o.resident))); {
			o.resident--
		}
	}
	all := o.build.Len()
	o.whole = o.resident == all && t.Lease.MakeRoom(o.during(t, 0, all)-o.build.Held(0, all)) == nil
	if o.whole {
		o.width = all
	}
	o.stayed = o.build.Rows(0, o.resident)
	_, o.kept = o.memory(t, o.build.Bytes(0, o.resident), o.stayed)
	for from := 0; from < o.resident || from == 0; from += o.width {
		if err := o.add(ctx, t, from, min(from+o.width, o.resident)); err != nil {
			return err
		}
	}
	o.choice.Store(o.residents[0].choice.Load())
	return nil
}

// ResidentBytes implements operators.Resident.
func (s *staying) ResidentBytes() int64 { return s.kept }

// resident is the join of the partitions [from, to) that stay in memory.
type resident struct {
	*equiJoin
	from, to int
}

// add makes the join of the partitions [from, to) that stay.
func (o *outOfCore) add(ctx context.Context, t operators.Task, from, to int) error {
	in := &resident{equiJoin: &equiJoin{Spec: o.Spec, partial: !o.whole}, from: from, to: to}
	in.checks = in.conditions()
	o.residents = append(o.residents, in)
	err := o.build.Each(ctx, t.Queue, t.Lease, in.from, in.to, func(s *gpu.Stride, _ int) error {
		return in.pending.Push(ctx, 0, s)
	})
	if err != nil {
		return err
	}
	o.build.Drop(in.from, in.to)
	t.Filter = operators.NoFilter // it would lack the keys of rows that spill
	return in.Finalize(ctx, t)
}

// giveBack releases the partitions in memory.
func (o *outOfCore) giveBack() {
	for _, in := range o.residents {
		in.Close()
	}
}

// NewLane implements operators.Streaming. It is for the probe side.
func (o *outOfCore) NewLane(t operators.Task) (operators.Lane, error) {
	if !o.started.Load() {
		return o.equiJoin.NewLane(t)
	}
	l := &outerLane{join: o, task: t}
	l.renew()
	for _, in := range o.residents {
		l.in = append(l.in, &lane{equiJoin: in.equiJoin, Task: t})
	}
	rows := int(o.stayed) // all algorithms but NPJ read the whole build side for each match
	if c := o.choice.Load(); c.Algorithm == "npj" || o.Range != nil || o.AsOf != nil {
		rows = t.StrideRows * len(l.in)
	}
	rows = o.batch(t.Share(grant.JoinBatch)/int64(max(t.Grant.Joins, 1)), max(rows, t.StrideRows))
	l.turn = int64(max(1, rows*rowBytes(o.Probe, nil)/len(l.in)))
	return l, nil
}

// outerLane is a lane of the probe side of a join out of core. It collects the rows for partitions
// in memory. Whenever all groups have had a turn, it distributes these rows to the groups. The
// groups take turns to join theirs, so that copies of the next strides run while one group joins.
type outerLane struct {
	join *outOfCore
	task operators.Task
	in   []*lane           // of the groups of partitions in memory
	now  *spill.Partitions // rows for them that are not yet distributed
	turn int64             // bytes of rows after which the next group has its turn
	came int64             // bytes that arrived since the last turn
	next int               // the group whose turn it is
}

// Push implements operators.Lane.
func (l *outerLane) Push(ctx context.Context, s *gpu.Stride, emit operators.Emit) error {
	o := l.join
	if o.whole {
		return l.in[0].Push(ctx, s, emit)
	}
	if o.tuples {
		return o.scatter(l.task, s, o.ProbeKeys[0], o.probe)
	}
	s, offsets, err := o.partition(l.task, s, o.ProbeKeys)
	if err != nil {
		return err
	}
	err = cut(l.task, s, offsets, []int{o.resident, o.fanOut()}, func(s *gpu.Stride, first int, offsets []int) error {
		if first < o.resident {
			l.came += s.Bytes()
			return l.now.Append(s, first, offsets)
		}
		return o.probe.Append(s, first, offsets)
	})
	for ; err == nil && l.came >= l.turn; l.came -= l.turn {
		if err = l.joinNext(emit); err == nil && l.next == 0 {
			err = l.deal(ctx, emit)
		}
	}
	return err
}

// joinNext joins the rows that were distributed to the group whose turn it is.
func (l *outerLane) joinNext(emit operators.Emit) error {
	i := l.next
	l.next = (i + 1) % len(l.in)
	return l.in[i].joinPending(emit)
}

// deal distributes the rows for partitions in memory to their groups.
func (l *outerLane) deal(ctx context.Context, emit operators.Emit) error {
	for i, r := range l.join.residents {
		err := l.now.Each(ctx, l.task.Queue, l.task.Lease, r.from, r.to,
			func(s *gpu.Stride, _ int) error { return l.in[i].collect(s, emit) })
		if err != nil {
			return err
		}
	}
	if err := l.now.Close(); err != nil {
		return err
	}
	l.renew()
	return nil
}

// renew makes an empty Partitions for the next rows to distribute. These are evicted last.
func (l *outerLane) renew() {
	l.now = l.task.Spill.NewPartitions(l.task.Lease.Name(), l.task.Lease, l.join.Probe, l.join.fanOut())
	l.now.Keep = l.join.fanOut()
}

// Flush implements operators.Lane.
func (l *outerLane) Flush(ctx context.Context, emit operators.Emit) error {
	if err := l.deal(ctx, emit); err != nil {
		return err
	}
	for _, in := range l.in {
		if err := in.Flush(ctx, emit); err != nil {
			return err
		}
	}
	return nil
}

// Close implements operators.Lane.
func (l *outerLane) Close() error {
	err := l.now.Close()
	for _, in := range l.in {
		err = errors.Join(err, in.Close())
	}
	return err
}
