package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
)

// sendBatch is the strides that one launch sends, each on its share of the multiprocessors. (Kernels of one stride
// each, several at a time, are as fast, and need as many streams.)
const sendBatch = 16

// sendsAhead is the launches that may be under way before receivers have taken the first of them.
const sendsAhead = 2

// layout is how the tuples of a side travel, and where they arrive. A device sends each chunk of its rows as regions,
// ways of them. Consecutive ways belong to a device. All regions have the same room.
type layout struct {
	side, chunks, ways int
	// direct says that kernels store into the memory of the receivers. Otherwise they store into that of the sender,
	// and engines copy.
	direct  bool
	batch   int // chunks that one launch sends
	devices int
	room    int // tuples of a region
	slots   int // chunks that have room at a time
	cpu     int // the last ways: those of the CPU, which stay in the memory of the sender
}

// addCopies adds the copies alone, which bound others. link expects them first.
func (s *distributed) addCopies() []layout {
	n := len(s.members)
	if n == 1 {
		return nil
	}
	alone := func(name string, push bool) {
		c := s.addCase(spreadCase{name: name, bound: func(time.Duration) (string, time.Duration) {
			return "copy engines", s.link(s.perPair() * n)
		}})
		c.run = func() (time.Duration, error) {
			c.rows = int64(s.perPair()) * int64(n*(n-1))
			c.bytes = c.rows * 16
			return s.copies(push)
		}
	}
	alone("copies alone, pulled", false)
	alone("copies alone, pushed", true)
	return []layout{s.layout(probeSide, 1, n, false)}
}

// addExchanges adds the exchanges of the probe side.
func (s *distributed) addExchanges() (layouts []layout) {
	n := len(s.members)
	if n == 1 {
		return nil
	}
	rows := int64(s.sizes[probeSide])
	for _, chunks := range s.chunks() {
		for _, direct := range []bool{true, false} {
			if chunks > mostChunks && !direct {
				continue
			}
			x := s.layout(probeSide, chunks, n, direct)
			layouts = append(layouts, x)
			s.addCase(spreadCase{name: "exchange, " + x.String(), rows: rows * int64(n), bytes: rows * int64(n-1) * 16,
				bound: func(time.Duration) (string, time.Duration) { return "copy engines", s.link(int(rows)) },
				run:   func() (time.Duration, error) { return s.exchange(x) }})
		}
	}
	return layouts
}

// layout returns the layout of chunks of a side that travel as ways regions.
func (s *distributed) layout(side, chunks, ways int, direct bool) layout {
	return s.layoutOf(side, chunks, ways, direct, 1)
}

// layoutOf is layout if only a share of the rows travels.
func (s *distributed) layoutOf(side, chunks, ways int, direct bool, share float64) layout {
	mean := int(share*float64((s.sizes[side]+chunks-1)/chunks/ways)) + 1
	x := layout{side: side, chunks: chunks, ways: ways, direct: direct, batch: 1, devices: len(s.members),
		slots: chunks, room: (s.roomOf(mean) + gpu.SendTail + gpu.TupleLine) &^ (gpu.TupleLine - 1)}
	if direct && chunks > mostChunks {
		x.batch = min(sendBatch, gpu.SendRegions/ways)
	}
	return x
}

func (x layout) String() string {
	plane := "stores"
	if !x.direct {
		plane = "partition then copies"
	}
	if x.chunks == 1 {
		return plane
	}
	return fmt.Sprintf("%s, %d strides", plane, x.chunks)
}

// of returns the ways [from, to) of a device.
func (x layout) of(device int) (from, to int) {
	n, ways := x.devices, x.ways-x.cpu
	return (device*ways + n - 1) / n, ((device+1)*ways + n - 1) / n
}

// most returns the most ways of a device; arriving the tuples of a chunk that have room in a receiver; resulting those
// of the second pass.
func (x layout) most() int     { return (x.ways - x.cpu + x.devices - 1) / x.devices }
func (x layout) arriving() int { return x.devices * x.most() * x.room }
func (x layout) resulting(d gpu.Digit) int {
	return x.devices * x.most() * gpu.RunRoom(x.room, d.Bits)
}

// arrives returns where the regions of a sender and a chunk arrive, for a way of a receiver: the first of them has
// way 0.
func (x layout) arrives(chunk, sender, way int) int {
	return chunk%x.slots*x.arriving() + (sender*x.most()+way)*x.room
}

// leaves returns where a region of a chunk is in the memory of its sender.
func (x layout) leaves(chunk, way int) int { return (chunk%x.slots*x.ways + way) * x.room }

// sending is an exchange of a side.
type sending struct {
	layout
	// counts are the results of SendTuples by batch and sender, arrivals the ends of what arrives by batch, sender and
	// receiver.
	counts   [][]atomic.Pointer[gpu.Column]
	arrivals [][][]atomic.Pointer[gpu.Arrival]
	// marks are those of the regions, if kernels poll for them.
	marks *marking
	// sources return the rows of a chunk by sender, if not those of its columns. heavy are the heavy keys, or nil.
	sources []func(chunk int) gpu.TupleSource
	heavy   *heavyKeys
}

func (x layout) sending() *sending {
	out := &sending{layout: x, sources: make([]func(int) gpu.TupleSource, x.devices)}
	for range (x.chunks + x.batch - 1) / x.batch {
		out.counts = append(out.counts, make([]atomic.Pointer[gpu.Column], x.devices))
		by := make([][]atomic.Pointer[gpu.Arrival], x.devices)
		for i := range by {
			by[i] = make([]atomic.Pointer[gpu.Arrival], x.devices)
		}
		out.arrivals = append(out.arrivals, by)
	}
	return out
}

// source returns the rows of a chunk.
func (x *sending) source(m *member, chunk int) gpu.TupleSource {
	if f := x.sources[m.at]; f != nil {
		return f(chunk)
	}
	from, to := m.chunk(x.side, chunk, x.chunks)
	return gpu.TupleSource{Key: m.view(m.cols[x.side][0], from, to), Value: m.view(m.cols[x.side][1], from, to)}
}

// chunksOf returns the chunks [from, to) of a batch.
func (x *sending) chunksOf(batch int) (from, to int) {
	return batch * x.batch, min((batch+1)*x.batch, x.chunks)
}

// published waits until another member has stored a pointer.
func published[T any](s *distributed, at *atomic.Pointer[T]) (*T, error) {
	v := at.Load()
	for w := (waiter{}); v == nil; v = at.Load() {
		if s.failed.Load() {
			return nil, errors.New("another device has failed")
		}
		w.pause()
	}
	return v, nil
}

// send sends a batch by hash.
func (m *member) send(x *sending, batch int) error {
	heavy, err := x.heavy.of(m, x.side)
	if err != nil {
		return err
	}
	return m.sendBy(x, batch, gpu.TupleRoute{Digit: m.first(), Heavy: heavy})
}

// sendBy sends a batch.
func (m *member) sendBy(x *sending, batch int, by gpu.TupleRoute) error {
	var sources []gpu.TupleSource
	var regions []gpu.TupleRun
	first, last := x.chunksOf(batch)
	for c := first; c < last; c++ {
		sources = append(sources, x.source(m, c))
		for d, receiver := range m.members {
			from, to := x.of(d)
			for w := from; w < to; w++ {
				r := gpu.TupleRun{Tuples: receiver.received[x.side], Start: x.arrives(c, m.at, w-from), Rows: x.room,
					Width: m.width}
				if !x.direct && d != m.at {
					r.Tuples, r.Start = m.sent[x.side], x.leaves(c, w)
				}
				regions = append(regions, r)
			}
		}
		for w := x.ways - x.cpu; w < x.ways; w++ {
			regions = append(regions, gpu.TupleRun{Tuples: m.sent[x.side], Start: x.leaves(c, w), Rows: x.room,
				Width: m.width})
		}
	}
	counts, err := m.x.SendTuples(m.l, sources, by, regions)
	if err != nil {
		return err
	}
	m.counts = append(m.counts, counts)
	x.counts[batch][m.at].Store(&counts)
	if err := m.mark(x, regions, counts); err != nil {
		return err
	}
	if x.direct {
		end, err := m.x.Launched()
		if err != nil {
			return err
		}
		m.arrivals = append(m.arrivals, end)
		for d := range m.members {
			x.arrivals[batch][m.at][d].Store(&end)
		}
		return nil
	}
	return m.copy(x, batch)
}

// mark writes the marks of regions that are sent, if kernels poll for them.
func (m *member) mark(x *sending, regions []gpu.TupleRun, counts gpu.Column) error {
	if x.marks == nil {
		return nil
	}
	var marks []gpu.TupleRun
	for i := range regions {
		r := &regions[i]
		r.Counts, r.Region = counts, i
		to := x.marks.here[m.at]
		for d, receiver := range m.members {
			if r.Tuples.Data == receiver.received[x.side].Data {
				to = x.marks.there[d]
			}
		}
		marks = append(marks, x.marks.of(to, r.Start))
	}
	return m.x.MarkTuples(m.l, regions, marks)
}

// copy copies the tuples of a batch to the other devices, in the order of a ring. One device at a time sends to another
// one: a copy waits for the one from the next device in the ring to the same receiver.
func (m *member) copy(x *sending, batch int) error {
	n := len(m.members)
	for step := 1; step < n; step++ {
		d := (m.at + step) % n
		var after []gpu.Arrival
		if step > 1 {
			other, err := published(m.distributed, &x.arrivals[batch][(m.at+1)%n][d])
			if err != nil {
				return err
			}
			after = append(after, *other)
		}
		from, to := x.of(d)
		var copies []gpu.TupleCopy
		for c, last := x.chunksOf(batch); c < last; c++ {
			copies = append(copies, gpu.TupleCopy{To: m.members[d].received[x.side], At: x.arrives(c, m.at, 0),
				TupleRun: gpu.TupleRun{Tuples: m.sent[x.side], Start: x.leaves(c, from), Rows: (to - from) * x.room,
					Width: m.width}})
			if k := x.marks; k != nil {
				marks := k.of(k.here[m.at], x.leaves(c, from))
				marks.Rows *= to - from
				copies = append(copies, gpu.TupleCopy{To: k.there[d], At: k.of(k.there[d], x.arrives(c, m.at, 0)).Start,
					TupleRun: marks})
			}
		}
		end, err := m.x.CopyTuples(m.l, copies, after...)
		if err != nil {
			return err
		}
		m.arrivals = append(m.arrivals, end)
		x.arrivals[batch][m.at][d].Store(&end)
	}
	return nil
}

// await makes the kernels of a device wait for what others send to it in a batch.
func (m *member) await(x *sending, batch int) error {
	for s := range m.members {
		if s == m.at {
			continue
		}
		end, err := published(m.distributed, &x.arrivals[batch][s][m.at])
		if err != nil {
			return err
		}
		if err := (*end).Await(m.q); err != nil {
			return err
		}
	}
	return nil
}

// arrived returns the regions of a chunk that a device receives: those of its first way, by sender, then the next.
func (m *member) arrived(x *sending, chunk int) (runs []gpu.TupleRun, ways []int) {
	batch := chunk / x.batch
	from, to := x.of(m.at)
	for w := from; w < to; w++ {
		for s := range m.members {
			runs = append(runs, gpu.TupleRun{Tuples: m.received[x.side], Start: x.arrives(chunk, s, w-from),
				Rows: x.room, Counts: *x.counts[batch][s].Load(), Region: (chunk-batch*x.batch)*x.ways + w,
				Width: m.width})
			ways = append(ways, w)
		}
	}
	return runs, ways
}

// exchange exchanges the probe side. Receivers take each batch before the sender begins the one after the next.
func (s *distributed) exchange(how layout) (time.Duration, error) {
	defer s.endRun()
	x := how.sending()
	took, err := s.all(func(m *member) error {
		for b := range len(x.counts) + sendsAhead {
			if b >= sendsAhead {
				if err := m.await(x, b-sendsAhead); err != nil {
					return err
				}
			}
			if b < len(x.counts) {
				if err := m.send(x, b); err != nil {
					return err
				}
			}
		}
		return m.settle()
	})
	if err != nil {
		return 0, err
	}
	var keys, values, wrong atomic.Uint64
	_, err = s.all(func(m *member) error {
		for c := range x.chunks {
			runs, ways := m.arrived(x, c)
			k, v, w, err := m.x.SumTuples(m.l, runs, ways, x.ways, m.first())
			if err != nil {
				return err
			}
			keys.Add(k)
			values.Add(v)
			wrong.Add(w)
		}
		return nil
	})
	if err == nil {
		err = s.complete()
	}
	if got := [2]uint64{keys.Load(), values.Load()}; err == nil && (got != s.sums[probeSide] || wrong.Load() > 0) {
		err = fmt.Errorf("%w: %d tuples of a wrong device, sums of keys and values %d, want %d", ErrWrong, wrong.Load(),
			got, s.sums[probeSide])
	}
	return took, err
}

// errNoRoom means that more tuples came than expected.
var errNoRoom = errors.New("tuples had no room in the regions that they were sent to")

// complete returns an error if a region had too little room.
func (s *distributed) complete() error {
	var lost atomic.Int64
	_, err := s.all(func(m *member) error {
		n, err := m.x.Overruns(m.l, m.counts)
		lost.Add(int64(n))
		return err
	})
	if n := lost.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%d %w", n, errNoRoom)
	}
	return err
}

// perPair is the number of tuples that each device sends to each other one in copies.
func (s *distributed) perPair() int {
	return max(1, min(s.members[0].received[probeSide].Len, s.members[0].sent[probeSide].Len)/len(s.members))
}

// copies copies between all pairs of devices, in the order of a ring. Either the receivers start the copies, or the
// senders. The copies of a device are enqueued together, while all are idle.
func (s *distributed) copies(push bool) (time.Duration, error) {
	defer s.endRun()
	n, rows := len(s.members), s.perPair()
	before := make([]time.Duration, n)
	took := make([]time.Duration, n)
	wall, err := s.all(func(m *member) error {
		before[m.at] = m.l.Activity().In
		var list []gpu.TupleCopy
		for j := 1; j < n; j++ {
			from, to := s.members[(m.at+j)%n], m
			if push {
				from, to = m, from
			}
			at := (from.at - to.at - 1 + n) % n
			list = append(list, gpu.TupleCopy{To: to.received[probeSide], At: at * rows,
				TupleRun: gpu.TupleRun{Tuples: from.sent[probeSide], Start: 0, Rows: rows}})
		}
		arrival, err := m.x.CopyTuples(m.l, list)
		if err == nil {
			m.arrivals = append(m.arrivals, arrival)
			err = arrival.Await(m.q)
		}
		return errors.Join(err, m.settle())
	})
	if err != nil {
		return 0, err
	}
	for i, m := range s.members {
		if p, ok := m.q.Device().(gpu.Profiled); ok {
			p.Settle()
			took[i] = m.l.Activity().In - before[i]
		}
	}
	return cmp.Or(slices.Max(took), wall), nil
}
