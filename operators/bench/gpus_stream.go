package bench

import (
	"fmt"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
)

const (
	// streamSlots is the chunks from host memory that may be exchanged at a time: a sender has at most two more under
	// way than the slowest receiver has joined.
	streamSlots = 4
	// streamsAhead is the chunks that are copied from host memory before their turn, pairsAhead the parts of the result
	// that are copied to host memory while others are made.
	streamsAhead, pairsAhead = 16, 2
)

// spreadStream is a join whose probe side is exchanged and joined chunk by chunk, so that it may have any size.
type spreadStream struct {
	sides            [2]layout
	fromHost, toHost bool
	// table says that the build side is a hash table in device memory. Otherwise both sides are partitioned again.
	table bool
}

// chunkJoin joins the build side with chunks of the probe side as they arrive.
type chunkJoin interface {
	// build makes the build side, which has arrived.
	build() error
	// probe joins a chunk that has arrived.
	probe(chunk int) error
	// end adds what was found to the result.
	end() error
	release()
}

// addStreams adds joins whose probe side comes from host memory or whose pairs go there, and the copies alone. A CPU
// has no such copies.
func (s *distributed) addStreams() (layouts []layout) {
	if !s.hasLink() {
		return nil
	}
	probe := int64(len(s.members) * s.sizes[probeSide])
	sides := s.fromHost().sides
	itself := func(c *spreadCase, name string) {
		c.bound = func(time.Duration) (string, time.Duration) { return name, c.median() }
	}
	up := s.addCase(spreadCase{name: "copies from host memory alone", form: "from host alone", rows: probe,
		bytes: probe * 16, run: s.up})
	itself(up, "links")
	down := s.addCase(spreadCase{name: "copies of pairs to host memory alone", form: "to host alone", rows: probe,
		bytes: probe * 24, run: s.down})
	itself(down, "links")
	add := func(name string, f spreadStream, bound *spreadCase) {
		f.sides = sides
		s.addCase(spreadCase{name: name, form: name, rows: probe, bytes: bound.bytes,
			bound: func(time.Duration) (string, time.Duration) { return bound.name, bound.median() },
			run:   func() (time.Duration, error) { return s.stream(f) }})
	}
	add("probe side in host memory", spreadStream{fromHost: true}, up)
	add("STREAM-OUT, pairs to host memory", spreadStream{toHost: true}, down)
	add("STREAM-OUT, probe side in host memory and pairs to it", spreadStream{fromHost: true, toHost: true}, down)
	return append(layouts, sides[:]...)
}

// hasLink reports whether copies cross a link, and have a clock.
func (s *distributed) hasLink() bool {
	_, ok := s.members[0].q.Device().(gpu.Profiled)
	return ok
}

// fromHost returns a stream whose probe side comes from host memory.
func (s *distributed) fromHost() spreadStream {
	f := spreadStream{sides: s.sides(len(s.members[0].inHost), true), fromHost: true}
	f.sides[probeSide].slots = streamSlots
	return f
}

// pairRows is the room for pairs of a chunk.
func (s *distributed) pairRows() int { return s.roomOf(s.members[0].inHost[0].Rows) }

// reservePairs allocates room for the pairs of a join on a device.
func (m *member) reservePairs() error {
	rows := max(m.roomOf(m.sizes[probeSide]), pairsAhead*m.pairRows())
	for range 3 {
		buf, err := m.l.Alloc(int64(rows) * 8)
		if err != nil {
			return err
		}
		m.pairs = append(m.pairs, gpu.Column{Type: gpu.Of(gpu.Uint64), Len: rows, Data: buf})
	}
	return nil
}

// pairSlot returns room for the pairs of a chunk.
func (m *member) pairSlot(chunk int) (out []gpu.Column) {
	rows := m.pairRows()
	from := chunk % pairsAhead * rows
	for _, c := range m.pairs {
		out = append(out, m.view(c, from, from+rows))
	}
	return out
}

// up copies the probe side from host memory to all devices.
func (s *distributed) up() (time.Duration, error) {
	return s.all(func(m *member) error {
		var ahead []*gpu.Stride
		for i := range len(m.inHost) + streamsAhead {
			if i >= streamsAhead {
				if err := m.q.Wait(ahead[i-streamsAhead]); err != nil {
					return err
				}
				ahead[i-streamsAhead].Release()
			}
			if i < len(m.inHost) {
				st, err := m.q.UploadAhead(m.l, m.inHost[i].Retain())
				if err != nil {
					return err
				}
				ahead = append(ahead, st)
			}
		}
		return m.settle()
	})
}

// down copies as many pairs to host memory as the joins have.
func (s *distributed) down() (time.Duration, error) {
	defer s.endRun()
	return s.all(func(m *member) error {
		for i := range m.inHost {
			if err := m.bring(m.q, m.pairSlot(i), m.inHost[i].Rows, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

var pairSchema = gpu.NewSchema(gpu.Field{Name: "key", Type: gpu.Of(gpu.Uint64)},
	gpu.Field{Name: "build", Type: gpu.Of(gpu.Uint64)}, gpu.Field{Name: "probe", Type: gpu.Of(gpu.Uint64)})

// bring copies pairs to host memory, and adds up their values if sum is not nil.
func (m *member) bring(q gpu.Queue, pairs []gpu.Column, rows int, sum *uint64) error {
	st := &gpu.Stride{Schema: pairSchema, Rows: rows}
	for _, c := range pairs {
		st.Cols = append(st.Cols, gpu.Column{Type: c.Type, Len: rows, Data: c.Data.View(0, int64(rows)*8)})
	}
	st, err := q.Download(m.h, st)
	if err != nil {
		return err
	}
	defer st.Release()
	if sum != nil {
		for _, c := range st.Cols[1:] {
			for _, v := range gpu.Values[uint64](c.Data, rows) {
				*sum += v
			}
		}
	}
	return nil
}

// pairsDown copies the pairs of a device to host memory on a goroutine of its own.
type pairsDown struct {
	m     *member
	q     gpu.Queue
	parts chan func() error
	room  chan struct{} // a token for each part that is under way
	end   sync.WaitGroup
	err   error
	sum   uint64
}

func (m *member) pairsDown() (*pairsDown, error) {
	q, err := m.q.Device().NewQueue("bench gpus, pairs")
	if err != nil {
		return nil, err
	}
	d := &pairsDown{m: m, q: q, parts: make(chan func() error, pairsAhead), room: make(chan struct{}, pairsAhead)}
	d.end.Go(func() {
		for f := range d.parts {
			if d.err == nil {
				d.err = f()
			}
			<-d.room
		}
	})
	return d, nil
}

// add copies pairs. The room of their part is used until then.
func (d *pairsDown) add(pairs []gpu.Column, rows int) {
	var sum *uint64
	if d.m.warmup {
		sum = &d.sum
	}
	d.parts <- func() error { return d.m.bring(d.q, pairs, rows, sum) }
}

func (d *pairsDown) close() error {
	close(d.parts)
	d.end.Wait()
	if err := d.q.Close(); d.err == nil {
		d.err = err
	}
	return d.err
}

// stream partitions the build side, and then exchanges, partitions and joins each chunk of the probe side.
func (s *distributed) stream(f spreadStream) (time.Duration, error) {
	defer s.endRun()
	build, probe := f.sides[buildSide].sending(), f.sides[probeSide].sending()
	var result, written found
	took, err := s.all(func(m *member) error { return m.stream(f, build, probe, &result, &written) })
	if err != nil {
		return 0, err
	}
	if s.warmup && f.toHost && written.sum.Load() != s.matches {
		return 0, fmt.Errorf("%w: the sum of the pairs in host memory is %d, want %d", ErrWrong, written.sum.Load(),
			s.matches)
	}
	return took, s.check(&result)
}

func (m *member) stream(f spreadStream, build, probe *sending, result, written *found) (err error) {
	ahead := make([]*gpu.Stride, probe.chunks)
	next := 0
	defer func() {
		for _, st := range ahead {
			if st != nil {
				st.Release()
			}
		}
	}()
	if f.fromHost {
		probe.sources[m.at] = func(chunk int) gpu.TupleSource {
			return gpu.TupleSource{Key: ahead[chunk].Cols[0], Value: ahead[chunk].Cols[1]}
		}
	}
	upload := func(until int) error {
		for ; f.fromHost && next < min(until, probe.chunks); next++ {
			if ahead[next], err = m.q.UploadAhead(m.l, m.inHost[next].Retain()); err != nil {
				return err
			}
		}
		return nil
	}
	var out *pairsDown
	if f.toHost {
		if out, err = m.pairsDown(); err != nil {
			return err
		}
		defer func() {
			if closeErr := out.close(); err == nil {
				err = closeErr
			}
			written.add(0, out.sum)
		}()
	}
	var j chunkJoin = &partitionedChunks{m: m, buildSide: build, probeSide: probe, out: out, result: result}
	if f.table {
		j = &tableChunks{m: m, buildSide: build, probeSide: probe, result: result}
	}
	defer j.release()
	if err := upload(streamsAhead); err != nil {
		return err
	}
	if err := m.send(build, 0); err != nil {
		return err
	}
	if err := m.await(build, 0); err != nil {
		return err
	}
	if err := j.build(); err != nil {
		return err
	}
	for c := range probe.chunks + 1 {
		if err := upload(c + streamsAhead); err != nil {
			return err
		}
		if c < probe.chunks {
			if f.fromHost {
				if err := m.q.Wait(ahead[c]); err != nil {
					return err
				}
			}
			if c >= 2 { // all have joined chunk c-4, whose slot this is, when they have sent chunk c-2
				if err := m.await(probe, c-2); err != nil {
					return err
				}
			}
			if err := m.send(probe, c); err != nil {
				return err
			}
			if f.fromHost {
				ahead[c].Release()
				ahead[c] = nil
			}
		}
		if c > 0 {
			if err := m.await(probe, c-1); err != nil {
				return err
			}
			if err := j.probe(c - 1); err != nil {
				return err
			}
		}
	}
	return j.end()
}

// partitionedChunks partitions the build side and each chunk again.
type partitionedChunks struct {
	m                    *member
	buildSide, probeSide *sending
	table                gpu.PartitionedRuns
	out                  *pairsDown // nil if the pairs are only counted
	result               *found
}

func (p *partitionedChunks) build() (err error) {
	p.table, err = p.m.secondPass(p.buildSide, 0, p.m.second())
	return err
}

func (p *partitionedChunks) end() error { return nil }
func (p *partitionedChunks) release()   { p.table.Release() }

func (p *partitionedChunks) probe(chunk int) error {
	m, out := p.m, p.out
	parted, err := m.secondPass(p.probeSide, chunk, m.second())
	if err != nil {
		return err
	}
	defer parted.Release()
	var pairs []gpu.Column
	if out != nil {
		out.room <- struct{}{}
		pairs = m.pairSlot(chunk)
	}
	n, sum, err := m.x.CountMatches(m.l, []gpu.PartitionedRuns{p.table}, []gpu.PartitionedRuns{parted}, len(m.members),
		m.second(), pairs...)
	if err == nil && out != nil && int(n) > pairs[0].Len {
		err = fmt.Errorf("%d pairs, and there is room for %d", n, pairs[0].Len)
	}
	if out != nil {
		if err != nil {
			<-out.room
		} else {
			out.add(pairs, int(n))
		}
	}
	p.result.add(n, sum)
	return err
}
