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
	sides    [2]layout
	fromHost [2]bool // by side: it comes from host memory
	toHost   bool
	// table says that the build side is a hash table in device memory. Otherwise both sides are partitioned again.
	table bool
	// blocking says that all of the probe side is exchanged before any of it is joined.
	blocking bool
	cpu      *cpuJoin // joins the ways of the CPU, if there are any
}

// probeFromHost says that the probe side comes from host memory.
var probeFromHost = [2]bool{probeSide: true}

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
	add("probe side in host memory", spreadStream{fromHost: probeFromHost}, up)
	add("STREAM-OUT, pairs to host memory", spreadStream{toHost: true}, down)
	add("STREAM-OUT, probe side in host memory and pairs to it",
		spreadStream{fromHost: probeFromHost, toHost: true}, down)
	return append(layouts, sides[:]...)
}

// tupleSource returns the rows of a stride.
func tupleSource(st *gpu.Stride) gpu.TupleSource {
	return gpu.TupleSource{Key: st.Cols[0], Value: st.Cols[1], More: st.Cols[2:]}
}

// hasLink reports whether copies cross a link, and have a clock.
func (s *distributed) hasLink() bool {
	_, ok := s.members[0].q.Device().(gpu.Profiled)
	return ok
}

// fromHost returns a stream whose probe side comes from host memory.
func (s *distributed) fromHost() spreadStream {
	return spreadStream{sides: [2]layout{s.layout(buildSide, 1, 1<<s.bits, true), s.hostLayout(probeSide)},
		fromHost: probeFromHost}
}

// hostLayout returns the layout of a side that comes from host memory.
func (s *distributed) hostLayout(side int) layout {
	chunks := len(s.members[0].inHost[side])
	whole := float64(s.hostChunk(side)*chunks) / float64(s.sizes[side]) // the last chunk may be shorter
	x := s.layoutOf(side, chunks, 1<<s.bits, true, whole)
	if side == probeSide {
		x.slots = min(chunks, streamSlots)
	}
	return x
}

// pairRows is the room for pairs of a chunk.
func (s *distributed) pairRows() int { return s.roomOf(s.hostChunk(probeSide)) }

// reservePairs allocates room for the pairs of a join on a device.
func (m *member) reservePairs() error {
	rows := pairsAhead * m.pairRows()
	if !m.hostOnly {
		rows = max(rows, m.roomOf(m.sizes[probeSide]))
	}
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
		in := uploads{m: m, from: m.inHost[probeSide]}
		defer in.close()
		for range in.from {
			if err := in.next(); err != nil {
				return err
			}
		}
		return m.settle()
	})
}

// uploads copies strides from host memory to the device of a member, some of them before their turn.
type uploads struct {
	m      *member
	from   []*gpu.Stride
	there  []*gpu.Stride // copied, or under way, and not released
	copied int
	now    *gpu.Stride // whose turn it is
}

// next makes the kernels of the device wait for the next stride, and releases the one before.
func (u *uploads) next() error {
	for ; u.copied < len(u.from) && len(u.there) < streamsAhead; u.copied++ {
		st, err := u.m.q.UploadAhead(u.m.l, u.from[u.copied].Retain())
		if err != nil {
			u.from[u.copied].Release()
			return err
		}
		u.there = append(u.there, st)
	}
	u.done()
	u.now, u.there = u.there[0], u.there[1:]
	return u.m.q.Wait(u.now)
}

// done releases the stride whose turn it is, if there is one.
func (u *uploads) done() {
	if u.now != nil {
		u.now.Release()
		u.now = nil
	}
}

func (u *uploads) close() {
	u.done()
	for _, st := range u.there {
		st.Release()
	}
	u.there = nil
}

// down copies as many pairs to host memory as the joins have.
func (s *distributed) down() (time.Duration, error) {
	defer s.endRun()
	return s.all(func(m *member) error {
		for i := range m.inHost[probeSide] {
			if err := m.bring(m.q, m.pairSlot(i), m.inHost[probeSide][i].Rows, nil); err != nil {
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

// downloads copies tuples of a device to host memory on a goroutine of its own.
type downloads struct {
	m     *member
	q     gpu.Queue
	parts chan func() error
	room  chan struct{} // a token for each part that is under way
	end   sync.WaitGroup
	err   error
	sum   uint64
}

func (m *member) downloads() (*downloads, error) {
	q, err := m.q.Device().NewQueue("bench gpus, downloads")
	if err != nil {
		return nil, err
	}
	d := &downloads{m: m, q: q, parts: make(chan func() error, pairsAhead), room: make(chan struct{}, pairsAhead)}
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
func (d *downloads) add(pairs []gpu.Column, rows int) {
	var sum *uint64
	if d.m.warmup {
		sum = &d.sum
	}
	d.parts <- func() error { return d.m.bring(d.q, pairs, rows, sum) }
}

func (d *downloads) close() error {
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
	in := uploads{m: m}
	defer in.close()
	for side, x := range []*sending{build, probe} {
		if f.fromHost[side] {
			in.from = append(in.from, m.inHost[side]...)
			x.sources[m.at] = func(int) gpu.TupleSource {
				return tupleSource(in.now)
			}
		}
	}
	var out *downloads
	if f.toHost || f.cpu != nil {
		if out, err = m.downloads(); err != nil {
			return err
		}
		defer func() {
			if closeErr := out.close(); err == nil {
				err = closeErr
			}
			written.add(0, out.sum)
		}()
	}
	send := func(x *sending, chunk int) error {
		if f.fromHost[x.side] {
			if err := in.next(); err != nil {
				return err
			}
			defer in.done()
		}
		if f.cpu == nil {
			return m.send(x, chunk)
		}
		return m.sendToCPU(x, chunk, f.cpu, out)
	}
	var j chunkJoin = &partitionedChunks{m: m, buildSide: build, probeSide: probe, out: out, result: result,
		pairs: f.toHost}
	if f.table {
		j = &tableChunks{m: m, buildSide: build, probeSide: probe, result: result}
	}
	defer j.release()
	for c := range build.chunks {
		if err := send(build, c); err != nil {
			return err
		}
	}
	for c := range build.chunks {
		if err := m.await(build, c); err != nil {
			return err
		}
	}
	if err := j.build(); err != nil {
		return err
	}
	behind := 1
	if f.blocking {
		behind = probe.chunks
	}
	for c := range probe.chunks + behind {
		if c < probe.chunks {
			if c >= 2 && !f.blocking { // all have joined chunk c-4, whose slot this is, when they have sent chunk c-2
				if err := m.await(probe, c-2); err != nil {
					return err
				}
			}
			if err := send(probe, c); err != nil {
				return err
			}
		}
		if c -= behind; c >= 0 {
			if err := m.await(probe, c); err != nil {
				return err
			}
			if err := j.probe(c); err != nil {
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
	table                []gpu.PartitionedRuns
	pairs                bool // they are copied to host memory, by out
	out                  *downloads
	result               *found
}

func (p *partitionedChunks) build() error {
	for c := range p.buildSide.chunks {
		t, err := p.m.secondPass(p.buildSide, c, p.m.second())
		if err != nil {
			return err
		}
		p.table = append(p.table, t)
	}
	return nil
}

func (p *partitionedChunks) end() error { return nil }

func (p *partitionedChunks) release() {
	for _, t := range p.table {
		t.Release()
	}
}

func (p *partitionedChunks) probe(chunk int) error {
	m := p.m
	parted, err := m.secondPass(p.probeSide, chunk, m.second())
	if err != nil {
		return err
	}
	defer parted.Release()
	var pairs []gpu.Column
	if p.pairs {
		p.out.room <- struct{}{}
		pairs = m.pairSlot(chunk)
	}
	n, sum, err := m.x.CountMatches(m.l, p.table, []gpu.PartitionedRuns{parted}, len(m.members), m.second(), pairs...)
	if err == nil && p.pairs && int(n) > pairs[0].Len {
		err = fmt.Errorf("%d pairs, and there is room for %d", n, pairs[0].Len)
	}
	if p.pairs {
		if err != nil {
			<-p.out.room
		} else {
			p.out.add(pairs, int(n))
		}
	}
	p.result.add(n, sum)
	return err
}
