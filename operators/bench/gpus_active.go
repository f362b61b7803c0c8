package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/gstream/gstream/gpu"
)

// ActivePolls is what the kernels that poll for tuples did in the last run, on all devices.
type ActivePolls struct {
	// Launches are launches of such kernels: one for each device if tuples never came late. Mismatches are the pieces
	// that were looked at before all of their tuples had come.
	Launches   int `json:"launches"`
	Mismatches int `json:"mismatches"`
}

// addActive adds ACTIVE: a kernel on each device polls for chunks, checks their checksums, and inserts or probes them.
// GPJ by a hash table is the same with launches by the host.
func (s *distributed) addActive() (layouts []layout) {
	for _, chunks := range s.chunks() {
		if chunks != 4 && chunks != mostChunks && chunks != activeChunks {
			continue
		}
		// Stores into other devices would make the checksum of what is in their memory dear.
		sides := s.sides(chunks, len(s.members) == 1 || !s.hasLink())
		layouts = append(layouts, sides[:]...)
		s.addTable(fmt.Sprintf("ACTIVE, kernels that poll, %d chunks", chunks),
			func() (time.Duration, error) { return s.active(sides) })
		f := spreadStream{sides: sides, table: true}
		if chunks == activeChunks {
			s.addTable(fmt.Sprintf("the same, launches by the host, %d chunks", chunks),
				func() (time.Duration, error) { return s.stream(f) })
		}
	}
	return layouts
}

// activeChunks is a number of chunks so large that launches matter.
const activeChunks = 64

// marking is the marks of the regions of a side, by device: those of received regions, and those of regions before they
// are copied. A region has pieces of them.
type marking struct {
	*sending
	pieces      int
	there, here []gpu.Column
}

func (s *distributed) marking(x *sending) *marking {
	n := len(s.members)
	k := &marking{sending: x, pieces: gpu.TupleMarks(x.room), there: make([]gpu.Column, n), here: make([]gpu.Column, n)}
	x.marks = k
	return k
}

// clear makes the marks of a device, all zero. They are released at the end of the run.
func (k *marking) clear(m *member) (err error) {
	marks := func(regions int) (c gpu.Column) {
		if err == nil {
			c, err = m.x.Zeros(m.l, gpu.TupleType(8), regions*k.pieces)
			m.columns = append(m.columns, c)
		}
		return c
	}
	k.there[m.at] = marks(k.slots * k.arriving() / k.room)
	if !k.direct {
		k.here[m.at] = marks(k.slots * k.ways)
	}
	return err
}

// of returns the marks of a region that begins at a tuple, in the marks of a device.
func (k *marking) of(marks gpu.Column, start int) gpu.TupleRun {
	return gpu.TupleRun{Tuples: marks, Start: start / k.room * k.pieces, Rows: k.pieces}
}

// side returns what a device receives: for each chunk the regions of its first way, by sender, then the next.
func (k *marking) side(m *member) (side gpu.ActiveSide) {
	from, to := k.layout.of(m.at)
	for c := range k.chunks {
		for w := range to - from {
			for s := range m.members {
				r := gpu.TupleRun{Tuples: m.received[k.layout.side], Start: k.arrives(c, s, w), Rows: k.room}
				side.Regions = append(side.Regions, r)
				side.Marks = append(side.Marks, k.of(k.there[m.at], r.Start))
			}
		}
	}
	return side
}

// active joins both sides by kernels that poll. The host sends, and copies.
func (s *distributed) active(sides [2]layout) (time.Duration, error) {
	defer s.endRun()
	build, probe := s.marking(sides[buildSide].sending()), s.marking(sides[probeSide].sending())
	s.polled = make([]ActivePolls, len(s.members))
	if _, err := s.all(func(m *member) error { // nobody sends before all marks are zero
		return errors.Join(build.clear(m), probe.clear(m), m.settle())
	}); err != nil {
		return 0, err
	}
	var result found
	took, err := s.all(func(m *member) error {
		table, err := m.newTable()
		if err != nil {
			return err
		}
		j, err := m.x.NewActiveJoin(m.l, table, build.side(m), probe.side(m))
		if err != nil {
			return err
		}
		defer j.Release()
		joined := make(chan error, 1)
		go func() { joined <- m.poll(j, &result) }()
		err = m.sendAll(build.sending, probe.sending)
		if err != nil {
			s.failed.Store(true)
		}
		if err = errors.Join(err, <-joined); err != nil {
			return err
		}
		return m.fits(table)
	})
	if err != nil {
		return 0, err
	}
	return took, s.check(&result)
}

// sendAll sends sides, and waits until their copies have ended.
func (m *member) sendAll(sides ...*sending) error {
	for _, x := range sides {
		for c := range x.chunks {
			if err := m.send(x, c); err != nil {
				return err
			}
		}
	}
	for _, a := range m.arrivals {
		if err := a.Await(m.q); err != nil {
			return err
		}
	}
	return m.settle()
}

// poll runs the kernel that polls until all is joined, or another goroutine has failed.
func (m *member) poll(j gpu.ActiveJoin, result *found) error {
	q, err := m.q.Device().NewQueue("bench gpus, active")
	if err != nil {
		return err
	}
	defer q.Close()
	for {
		s, err := j.Poll(q)
		p := &m.distributed.polled[m.at]
		p.Launches, p.Mismatches = p.Launches+1, s.Mismatches
		switch {
		case err != nil:
			m.failed.Store(true)
			return err
		case s.Done == s.All:
			result.add(s.Pairs, s.Sum)
			return nil
		case m.failed.Load():
			return errors.New("tuples do not come: a device has failed")
		}
		time.Sleep(100 * time.Microsecond)
	}
}
