package spill

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

// Partitions has rows of one schema in a number of partitions. Rows are appended in strides that
// are ordered by partition, and read partition by partition. It is safe for concurrent use.
//
// When the budget of a tier is nearly full, strides of that tier move to the next one, those of the
// highest partitions first. Strides that are written to disk together become one run, ordered by
// partition.
type Partitions struct {
	store  *Store
	name   string
	schema *gpu.Schema
	lease  *gpu.Lease // pays for strides in the memory of the device
	disk   *gpu.Lease
	*owner
	// Ordered says that each partition is in one stride. Each then passes the first partition of a
	// stride to its function.
	Ordered bool
	// Keep is the number of partitions, from the first on, that are evicted last. A stride with
	// rows of only these partitions moves only if no other stride can release memory. If Keep is
	// neither none nor all of the partitions, strides of the others leave a device that has its own
	// memory as soon as they take grant.SpillEarly of its budget.
	Keep int
	// Free is the bytes that strides leave free in the budget of a device that has its own memory,
	// once more bytes have been appended than the budget. Before that, and at least, they leave
	// grant.SpillFree.
	Free int64

	movers []*mover // by tier

	mu     sync.Mutex
	landed sync.Cond // a piece has stopped moving
	rows   []int64   // of each partition
	starts []int     // of sequences of partitions, see Run
	bytes  int64     // of all strides that were appended
	total  int64     // rows of them
	pieces []*piece
	runs   []*run
	file   *os.File
	end    int64 // of the file
	failed bool  // a write failed, so nothing more is written
}

// piece is a stride in memory with rows of one or several partitions.
type piece struct {
	at      tier
	stride  *gpu.Stride
	first   int   // partition
	rank    int   // of that partition in its sequence
	offsets []int // of the partitions from first on, and the end
	bytes   int64
	busy    int    // readers and movers
	moving  bool   // to the next tier
	seen    []bool // by partition: read from host memory
}

func (x *piece) last() int { return x.first + len(x.offsets) - 2 }

// within returns the range of rows of a piece that are in partitions [from, to).
func (x *piece) within(from, to int) (begin, end int) {
	from, to = max(from, x.first), min(to, x.last()+1)
	if from >= to {
		return 0, 0
	}
	return x.offsets[from-x.first], x.offsets[to-x.first]
}

// each calls a function with the bytes of each of partitions [from, to) of a piece in host memory, and whether they
// were read from it. The caller holds the lock.
func (x *piece) each(from, to int, do func(partition int, bytes int64, seen *bool)) {
	if x.seen == nil {
		x.seen = make([]bool, len(x.offsets)-1)
	}
	upto := func(row int) int64 { return int64(float64(x.bytes) * (float64(row) / float64(x.offsets[len(x.seen)]))) }
	for i := max(from, x.first) - x.first; i < min(to-x.first, len(x.seen)); i++ {
		do(x.first+i, upto(x.offsets[i+1])-upto(x.offsets[i]), &x.seen[i])
	}
}

// NewPartitions returns n empty partitions. The lease pays for strides in the memory of the device.
// Errors contain the name.
func (s *Store) NewPartitions(name string, l *gpu.Lease, schema *gpu.Schema, n int) *Partitions {
	p := &Partitions{store: s, name: name, schema: schema, lease: l, rows: make([]int64, n)}
	p.landed.L = &p.mu
	if s == nil {
		return p
	}
	p.disk, p.owner = s.disk.Lease(name), s.owner(l, name)
	p.register(l, s.device.Budget(), deviceTier)
	if s.discrete() {
		p.register(p.owner.lease, s.device.HostBudget(), hostTier)
	}
	return p
}

func (p *Partitions) register(l *gpu.Lease, b *gpu.Budget, t tier) {
	m := &mover{Partitions: p, from: t, lease: l}
	m.unregister = b.Register(m)
	p.movers = append(p.movers, m)
	p.store.enter(m)
}

// Len returns the number of partitions.
func (p *Partitions) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.rows)
}

// Grow adds a partition after the others and returns its number.
func (p *Partitions) Grow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows = append(p.rows, 0)
	return len(p.rows) - 1
}

// Run adds a sequence of n partitions after the others, and returns the number of the first.
// Strides of the highest partitions move first, counted from the start of their sequence.
func (p *Partitions) Run(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := len(p.rows)
	p.starts = append(p.starts, first)
	p.rows = append(p.rows, make([]int64, n)...)
	return first
}

// Rows returns the number of rows of partitions [from, to).
func (p *Partitions) Rows(from, to int) (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count(from, to)
}

// count is Rows for callers that hold the lock.
func (p *Partitions) count(from, to int) (n int64) {
	for _, rows := range p.rows[from:to] {
		n += rows
	}
	return n
}

// Bytes estimates the memory of the rows of partitions [from, to), by the mean size of all appended
// rows.
func (p *Partitions) Bytes(from, to int) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	rows := p.count(from, to)
	return int64(float64(p.bytes) * float64(rows) / float64(max(p.total, 1)))
}

// Held returns the bytes of strides in the memory of the device that have only rows of partitions
// [from, to).
func (p *Partitions) Held(from, to int) (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.pieces {
		if x.at == deviceTier && x.first >= from && x.last() < to {
			n += x.bytes
		}
	}
	return n
}

// Room returns the bytes that rows may take of a budget before they move to the next tier.
func Room(budget float64) float64 { return budget - grant.SpillFree.Part(budget) }

// Append takes ownership of a stride of the device, also on error. Its rows are ordered by
// partition, from partition first on; offsets has the starts of the partitions and the end of the
// last one. If little memory is left, strides of any Partitions leave the memory of the device.
func (p *Partitions) Append(s *gpu.Stride, first int, offsets []int) error {
	return p.append(deviceTier, p.lease, s, first, offsets)
}

// HostLease returns the lease that pays for strides in host memory, nil if the device has no
// memory of its own.
func (p *Partitions) HostLease() *gpu.Lease {
	if p.store == nil {
		return nil
	}
	return p.owner.lease
}

// AppendHost is Append of a stride that is in host memory already, for which HostLease pays.
func (p *Partitions) AppendHost(s *gpu.Stride, first int, offsets []int) error {
	return p.append(hostTier, p.owner.lease, s, first, offsets)
}

func (p *Partitions) append(at tier, l *gpu.Lease, s *gpu.Stride, first int, offsets []int) error {
	if n := len(offsets) - 1; n < 1 || first < 0 || first+n > p.Len() || offsets[0] != 0 || offsets[n] != s.Rows ||
		!slices.IsSorted(offsets) {
		s.Release()
		return fmt.Errorf("%d rows in %d partitions from partition %d on, of %d: not rows in order of partition",
			s.Rows, n, first, p.Len())
	}
	if s.Rows == 0 {
		s.Release()
		return nil
	}
	s.ChargeTo(l)
	if at == deviceTier && p.store.discrete() {
		s.SetReady(p.store.device)
	}
	x := &piece{at: at, stride: s, first: first, offsets: offsets, bytes: s.Bytes()}
	if at == hostTier {
		p.moved[hostTier].add(x.bytes)
	}
	p.mu.Lock()
	x.rank = first
	if i, found := slices.BinarySearch(p.starts, first); found {
		x.rank = 0
	} else if i > 0 {
		x.rank = first - p.starts[i-1]
	}
	for i := range len(offsets) - 1 {
		p.rows[first+i] += int64(offsets[i+1] - offsets[i])
	}
	p.bytes += x.bytes
	p.total += int64(s.Rows)
	p.pieces = append(p.pieces, x)
	p.mu.Unlock()
	if p.store == nil {
		return nil
	}
	for _, m := range p.movers {
		if p.store.opt.Always {
			m.Reclaim(math.MaxInt64)
		}
		if m.crowded() {
			p.store.kick(m.from)
		}
		// A failure is ignored: a later reservation fails if it does not fit.
		_ = m.lease.MakeRoom(m.soon())
	}
	return nil
}

// mover releases the memory of one tier.
type mover struct {
	*Partitions
	from       tier
	lease      *gpu.Lease // of the tier
	unregister func()
	// working is held by goroutines that move strides: exclusively to write to disk, shared to copy
	// to host memory.
	working sync.RWMutex
	gone    bool // the Partitions are closed
}

// The costs of moving rows to the next tier and of reading them again, in seconds per GiB.
const (
	linkCost = 0.04
	diskCost = 1
)

// mostWritten is the maximum number of bytes that are written as one run, so that a partition of it
// fits a stride.
const mostWritten = 1 << 30

// to returns the tier to which strides move.
func (m *mover) to() tier {
	if m.from == deviceTier && m.store.discrete() {
		return hostTier
	}
	return diskTier
}

// spare returns the bytes of the budget that strides leave free for others. If less is available,
// another goroutine moves strides. Operators take a share of the budget of the memory in which they
// compute.
func (m *mover) spare() int64 {
	if m.from == hostTier {
		return grant.Headroom.Of(m.lease.Limit())
	}
	return grant.SpillFree.Of(m.lease.Limit())
}

// soon is spare for strides that the goroutine of the caller moves.
func (m *mover) soon() int64 {
	if m.from == hostTier {
		return grant.HeadroomSoon.Of(m.lease.Limit())
	}
	return grant.SpillSoon.Of(m.lease.Limit())
}

// crowded reports whether strides should move.
func (m *mover) crowded() bool {
	limit, room := m.lease.Limit(), m.spare()
	m.mu.Lock()
	if m.to() == hostTier && m.bytes > limit {
		room = max(room, m.Free)
	}
	if m.to() == hostTier && m.Keep > 0 && m.Keep < len(m.rows) && m.bytes > grant.SpillEarly.Of(limit) {
		room = limit
	}
	m.mu.Unlock()
	return m.lease.Available() < room
}

// idle reports whether a piece can move.
func (m *mover) idle(x *piece) bool { return x.at == m.from && x.busy == 0 }

// Reclaimable implements gpu.Reclaimer.
func (m *mover) Reclaimable() (bytes int64, cost float64) {
	if cost = diskCost; m.to() == hostTier {
		cost = linkCost
	}
	return m.reclaimable(true), cost
}

// reclaimable returns the bytes that reclaim can release.
func (m *mover) reclaimable(all bool) (bytes int64) {
	m.mu.Lock() // no goroutine reserves memory while it holds this lock
	defer m.mu.Unlock()
	if m.failed || m.to() == diskTier && m.store.opt.Dir == None {
		return 0
	}
	for _, x := range m.pieces {
		// reclaim waits for pieces that are moving.
		if m.idle(x) && (all || x.last() >= m.Keep) || x.at == m.from && x.moving {
			bytes += x.bytes
		}
	}
	return bytes
}

// Reclaim implements gpu.Reclaimer.
func (m *mover) Reclaim(want int64) (given int64) { return m.reclaim(want, true) }

// reclaim is Reclaim, with or without strides of partitions to keep.
func (m *mover) reclaim(want int64, all bool) (given int64) {
	if m.to() == hostTier {
		return m.copyDown(want, all)
	}
	m.working.Lock()
	defer m.working.Unlock()
	if m.gone {
		return 0
	}
	var victims []*piece
	for bytes := max(want, grant.SpillMove.Of(m.lease.Limit())); bytes > 0; {
		x := m.take(all)
		if x == nil {
			break
		}
		victims, bytes = append(victims, x), bytes-x.bytes
	}
	var err error
	for len(victims) > 0 && err == nil {
		n, bytes := 1, victims[0].bytes
		for ; !m.Ordered && n < len(victims) && bytes+victims[n].bytes <= mostWritten; n++ {
			bytes += victims[n].bytes
		}
		if err = m.write(victims[:n], m.from == hostTier); err == nil {
			victims, given = victims[n:], given+bytes
		}
	}
	m.stay(victims, err)
	return given
}

// copyDown copies strides to host memory. If others copy the last strides, it waits for them.
func (m *mover) copyDown(want int64, all bool) (given int64) {
	m.working.RLock()
	defer m.working.RUnlock()
	for given < want && !m.gone {
		x := m.take(false)
		if x == nil {
			if n := m.await(); n > 0 {
				given += n
				continue
			}
			if all {
				x = m.take(true)
			}
		}
		if x == nil {
			break
		}
		// Readers may share the stride until the piece has landed.
		up := x.stride.Retain()
		up.Ready = x.stride.Ready
		down, err := m.store.down(m.owner.lease, up)
		if err != nil {
			up.Release()
			m.stay([]*piece{x}, err)
			break
		}
		m.moved[hostTier].add(x.bytes)
		m.mu.Lock()
		x.stride.Release()
		x.stride, x.at, x.moving = down, hostTier, false
		x.busy--
		m.landed.Broadcast()
		m.mu.Unlock()
		given += x.bytes
	}
	return given
}

// await waits for a piece that another goroutine copies, and returns its bytes; 0 if there is none,
// or if the copy failed.
func (m *mover) await() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.pieces, func(x *piece) bool { return x.at == m.from && x.moving })
	if i < 0 {
		return 0
	}
	x := m.pieces[i]
	for x.moving && x.at == m.from { // it may be moving to the tier after that by now
		m.landed.Wait()
	}
	if x.at == m.from {
		return 0
	}
	return x.bytes
}

// take marks the piece of the highest partitions that can move as moving, and returns it, nil if
// there is none. Unless all is set, it leaves pieces of partitions to keep.
func (m *mover) take(all bool) (x *piece) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.pieces {
		if m.idle(o) && (all || o.last() >= m.Keep) && (x == nil || o.rank > x.rank) {
			x = o
		}
	}
	if x != nil {
		x.busy++
		x.moving = true
	}
	return x
}

// stay marks pieces as no longer moving, and records the error of their move, if there was one.
func (m *mover) stay(pieces []*piece, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range pieces {
		x.busy--
		x.moving = false
	}
	m.landed.Broadcast()
	if err != nil {
		m.failed = !gpu.IsOutOfMemory(err) // there may be memory later
		for _, m := range m.movers {
			m.lease.Kept(err)
		}
	}
}

// view returns rows [from, to) of a stride in host memory, and shares the values of fixed
// width and the bytes of strings with it.
func view(l *gpu.Lease, s *gpu.Stride, from, to int) (_ *gpu.Stride, err error) {
	if from == 0 && to == s.Rows {
		return s.Retain(), nil
	}
	n := to - from
	out := &gpu.Stride{Schema: s.Schema, Rows: n}
	alloc := func(size int64) (b *gpu.Buffer) {
		if err == nil {
			b, err = l.Alloc(size)
		}
		return b
	}
	bits := func(src *gpu.Buffer) *gpu.Buffer {
		if src == nil {
			return nil
		}
		dst := alloc(gpu.BitmapBytes(n))
		if err == nil {
			clear(dst.Bytes())
			gpu.AppendBits(dst.Bytes(), 0, src.Bytes(), from, n)
		}
		return dst
	}
	for _, c := range s.Cols {
		part := gpu.Column{Type: c.Type, Len: n, Dict: c.Dict}
		if c.Dict != nil {
			c.Dict.Values.Retain()
		}
		switch w := int64(c.DataWidth()); {
		case w > 0:
			part.Data = c.Data.View(int64(from)*w, int64(n)*w)
		case c.Type.Kind == gpu.Bool:
			part.Data = bits(c.Data)
		default:
			offsets := gpu.Values[int32](c.Offsets, c.Len+1)[from : to+1]
			if part.Offsets = alloc(int64(n+1) * 4); err == nil {
				for i, o := range offsets {
					gpu.Values[int32](part.Offsets, n+1)[i] = o - offsets[0]
				}
			}
			if c.Data != nil {
				part.Data = c.Data.View(int64(offsets[0]), int64(offsets[n]-offsets[0]))
			}
		}
		part.Valid = bits(c.Valid)
		out.Cols = append(out.Cols, part)
		if err != nil {
			out.Release()
			return nil, err
		}
	}
	return out, nil
}

// Drop releases the memory and the disk space of partitions [from, to), which are not read any
// more. A piece is released with the last of its partitions that has rows.
func (p *Partitions) Drop(from, to int) { p.DropSpans([]Span{{from, to}}) }

// DropSpans is Drop for several spans. It takes some nanoseconds per piece and per dropped
// partition, and one nanosecond per existing partition if pieces have lost their first and last
// partitions.
func (p *Partitions) DropSpans(spans []Span) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range spans {
		clear(p.rows[s.From:s.To])
	}
	var next []int // by partition: the first partition from it on that has rows
	empty := func(first, n int) bool {
		if p.rows[first] > 0 || p.rows[first+n-1] > 0 {
			return false
		}
		if next == nil {
			next = make([]int, len(p.rows)+1)
			next[len(p.rows)] = len(p.rows)
			for i := len(p.rows) - 1; i >= 0; i-- {
				if next[i] = next[i+1]; p.rows[i] > 0 {
					next[i] = i
				}
			}
		}
		return next[first] >= first+n
	}
	p.pieces = slices.DeleteFunc(p.pieces, func(x *piece) bool {
		if x.busy > 0 || !empty(x.first, len(x.offsets)-1) {
			return false
		}
		if x.at == hostTier {
			p.moved[hostTier].now.Add(-x.bytes)
			x.each(x.first, x.last()+1, func(_ int, n int64, seen *bool) { p.moved[hostTier].gone(n, *seen) })
		}
		x.stride.Release()
		return true
	})
	for _, r := range p.runs {
		for _, s := range spans {
			p.punch(r, s.From, s.To)
		}
	}
	p.runs = slices.DeleteFunc(p.runs, func(r *run) bool {
		done := empty(r.first, r.partitions())
		if done {
			p.punch(r, 0, len(p.rows))
			r.layout.release()
		}
		return done
	})
}

// Close releases all partitions, which must not be in use. A nil *Partitions is closed.
func (p *Partitions) Close() (err error) {
	if p == nil {
		return nil
	}
	for _, m := range p.movers {
		m.unregister()
		p.store.leave(m)
	}
	p.movers = nil
	p.Drop(0, p.Len())
	if p.file != nil {
		err = p.file.Close()
		p.file = nil
	}
	if p.disk != nil {
		if closeErr := p.disk.Close(); err == nil {
			err = closeErr
		}
	}
	return err
}
