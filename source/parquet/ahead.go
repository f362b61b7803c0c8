package parquet

import (
	"errors"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
)

// The bytes of objects come with a delay of tens of milliseconds a request, so many requests run at the same time, for
// many bytes each. A scan of objects has more workers than slots for decoding. A worker reads the bytes of its task
// before it takes a slot: those of its rows at once, and with them those of other columns that lie next to them. It
// does so only if the budget has room for them besides the task. Otherwise the decoder reads small parts when it needs
// them, as from a local file.

const (
	// remoteReads is the number of reads of objects that run at the same time in a scan, or while footers are read.
	remoteReads = 32
	// remoteStrides bounds the strides of objects that are decoded at a time, for scans of few columns.
	remoteStrides = 16
	// mostAhead bounds the bytes of a column that are read at once.
	mostAhead = 64 << 20
	// mostJoined bounds the bytes of column chunks that are read by one request. A request for more takes longer than
	// two for the halves.
	mostJoined = 4 << 20
	// mostGap bounds the bytes between two chunks that are read by one request, which are read for nothing.
	mostGap = 256 << 10
	// remoteAhead is the least number of bytes of an object that one read asks for, if a share of the budget is free.
	remoteAhead = 1 << 20
	// longestAhead bounds the bytes that are read ahead of the rows of a task. Each read of a chunk may be twice as
	// long as the one before, because a scan that has read much of a chunk mostly reads all of it.
	longestAhead = 8 << 20
	// marginAhead is added to the estimate of the bytes of some rows of a chunk.
	marginAhead = 64 << 10
)

// readAhead reads the bytes of a task that are in objects, if there is memory. need is an upper bound of the memory of
// the task with these bytes.
func (r *reader) readAhead(plan *stridePlan, i int, need int64) error {
	if !r.remote || r.lease.Available() < 2*need {
		return nil
	}
	byDevice := r.pages && !slices.ContainsFunc(plan.segments, func(s segment) bool {
		return leftToCPU(s.chunks[i].col, s.chunks[i].meta) != ""
	})
	if byDevice {
		if err := r.readTogether(plan, i); err != nil {
			return err
		}
	}
	for k := range plan.segments {
		s := &plan.segments[k]
		c := s.chunks[i]
		if c.col.constant != nil || c.nested != nil || !isRemote(c.file.handle.path) {
			continue
		}
		var err error
		if !byDevice {
			err = r.readJoined(s, i)
		}
		if err == nil {
			err = c.readRows(s.to)
		}
		if err != nil && !errors.Is(err, gpu.ErrBudget) {
			return location{s.file.path, s.group, c.col.field.Name}.wrap(err)
		}
	}
	return nil
}

// leastRead is the least number of bytes that one read of the chunk asks for.
func (c *encodedChunk) leastRead() int {
	if isRemote(c.file.handle.path) && c.lease.Available() > remoteReads*remoteAhead {
		return max(readAhead, remoteAhead)
	}
	return readAhead
}

// readRows reads the bytes of rows up to a row, by their share in the bytes of the chunk, unless most of these rows are
// not wanted.
func (c *encodedChunk) readRows(to int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next >= to || c.whole != nil || 2*c.wantedRows(c.next, to) < to-c.next {
		return nil
	}
	last := c.meta.start + int64(float64(c.meta.size)*float64(to)/float64(c.rows)) + marginAhead
	n := min(last, c.end) - (c.end - c.unread())
	if n <= int64(len(c.win)-c.pos) {
		return nil
	}
	if c.lease.Available() > remoteReads*longestAhead {
		n = max(n, min(2*c.ahead, longestAhead))
	}
	c.ahead = n
	_, err := c.fill(int(min(n, mostAhead)))
	return err
}

// unbegun reports whether nothing of the chunk was read, and all its rows are wanted. The caller holds the lock.
func (c *encodedChunk) unbegun() bool {
	return c.block == nil && c.whole == nil && c.off == c.meta.start && c.next == 0 && c.left == c.rows
}

// readJoined reads column chunks of a row group that lie near the one of column i by one request, if there are some.
// Other tasks then find their bytes.
func (r *reader) readJoined(s *segment, i int) error {
	if s.from > 0 || s.to < s.chunks[i].rows || s.chunks[i].meta.size > mostJoined/2 {
		return nil
	}
	near := slices.Clone(s.chunks)
	near = slices.DeleteFunc(near, func(c *encodedChunk) bool { return c.col.constant != nil || c.nested != nil })
	slices.SortFunc(near, func(a, b *encodedChunk) int { return int(max(min(a.meta.start-b.meta.start, 1), -1)) })
	at := slices.Index(near, s.chunks[i])
	from, to := at, at+1
	bytes := func(from, to int) int64 {
		last := near[to-1].meta
		return last.start + last.size - near[from].meta.start
	}
	if !near[at].mu.TryLock() {
		return nil // another task reads it
	}
	defer func() {
		for _, c := range near[from:to] {
			c.mu.Unlock()
		}
	}()
	if !near[at].unbegun() {
		return nil
	}
	// add locks chunk k, if it may be read by the same request. The gap to its neighbour is behind chunk before.
	add := func(k, before int, size int64) bool {
		gap := near[before+1].meta.start - near[before].meta.start - near[before].meta.size
		if gap < 0 || gap > mostGap || size > mostJoined || !near[k].mu.TryLock() {
			return false
		}
		if !near[k].unbegun() {
			near[k].mu.Unlock()
			return false
		}
		return true
	}
	for to < len(near) && add(to, to-1, bytes(from, to+1)) {
		to++
	}
	for from > 0 && add(from-1, from-1, bytes(from-1, to)) {
		from--
	}
	if to-from < 2 {
		return nil
	}
	n := bytes(from, to)
	all, err := r.lease.Alloc(n + slack)
	if err != nil {
		return err
	}
	defer all.Release()
	start := near[from].meta.start
	if err := near[at].read(all.Bytes()[:n], start); err != nil {
		return err
	}
	for _, c := range near[from:to] {
		c.block = all.View(c.meta.start-start, c.meta.size+slack)
		c.win, c.pos, c.off = c.block.Bytes()[:c.meta.size], 0, c.end
	}
	return nil
}

// readObjects reads chunks into the memory of readInto, all at the same time.
func readObjects(chunks []*encodedChunk) {
	var all sync.WaitGroup
	running := make(chan struct{}, remoteReads)
	for _, c := range chunks {
		running <- struct{}{}
		all.Go(func() {
			c.readNow()
			<-running
		})
	}
	all.Wait()
}

// forgetAhead releases bytes that were read ahead of their tasks. They are read again. The caller holds the lock.
func (r *reader) forgetAhead() {
	for _, d := range r.open {
		for _, s := range d.plan.segments {
			for _, c := range s.chunks {
				if c.mu.TryLock() {
					c.forgetWindow()
					c.mu.Unlock()
				}
			}
		}
	}
}
