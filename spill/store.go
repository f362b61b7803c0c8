package spill

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

// Options say where a Store keeps rows that do not fit memory.
type Options struct {
	// Dir is the folder for files; "" is DefaultDir. None keeps rows in memory only.
	Dir string
	// Limit bounds the bytes on disk; 0 is four fifths of the space that is free when the
	// first file is made.
	Limit int64
	// Compress writes blocks that LZ4 makes smaller in their small form.
	Compress bool
	// Always moves every stride to disk as soon as it is appended. It is for tests.
	Always bool
	// Trace, when set, is called after each write to disk and each read, on any goroutine, with
	// the name of the Partitions, the start and the bytes.
	Trace func(name string, write bool, begin time.Time, bytes int64)
}

// trace tells of a write or a read.
func (s *Store) trace(name string, write bool, begin time.Time, bytes int64) {
	if s.opt.Trace != nil {
		s.opt.Trace(name, write, begin, bytes)
	}
}

// None is the Options.Dir of a store that writes no files.
const None = "none"

// DefaultDir returns the folder for files if none is given: $TMPDIR, or else /var/tmp, because
// /tmp is in memory on many machines.
func DefaultDir() string {
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return dir
	}
	return "/var/tmp"
}

// DefaultLimit returns the most bytes of the files in a folder if no limit is given: four
// fifths of the free space.
func DefaultLimit(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	free := float64(st.Bavail) * float64(st.Bsize)
	return max(1, int64(min(grant.DiskBudget.Part(free), math.MaxInt64/2))), nil
}

// Store is where the operators of one run keep their rows. It is safe for concurrent use. A
// nil Store keeps rows where they are made.
type Store struct {
	opt    Options
	device gpu.Device
	disk   *gpu.Budget
	opened sync.Once // the limit of disk is known

	mu     sync.Mutex
	queues []gpu.Queue           // for copies down, those that nobody uses; of a device with memory of its own
	owners map[*gpu.Lease]*owner // by the lease of the memory of the device
	movers [tiers]map[*mover]bool
	kicks  [tiers]chan struct{} // of the goroutines that move; nil until they are needed
	moving sync.WaitGroup

	scratch sync.Pool // *block
}

// tier is a kind of memory.
type tier int

// The tiers, fastest first. In the first one a device computes.
const (
	deviceTier tier = iota
	hostTier
	diskTier
	tiers
)

// owner is what Partitions of one lease share: the lease of their host memory, if the device has
// memory of its own, and the bytes that have moved, by tier. Copies that a queue keeps, of
// dictionaries, outlive the Partitions.
type owner struct {
	lease *gpu.Lease
	moved [tiers]counters
}

// counters are the bytes that went into and came out of a tier.
type counters struct{ in, out, again, unread, now, peak atomic.Int64 }

// read counts bytes that were read, again if seen says so, which then says it.
func (c *counters) read(n int64, seen *bool) {
	c.out.Add(n)
	if *seen {
		c.again.Add(n)
	}
	*seen = true
}

// gone counts bytes that are released, and were never read unless seen says so.
func (c *counters) gone(n int64, seen bool) {
	if !seen {
		c.unread.Add(n)
	}
}

func (c *counters) add(n int64) {
	c.in.Add(n)
	now := c.now.Add(n)
	for {
		p := c.peak.Load()
		if now <= p || c.peak.CompareAndSwap(p, now) {
			return
		}
	}
}

// TierStats is the traffic of a tier in bytes. In is what was moved into the tier, Out what
// was read from it, by an operator or to be moved on, Again what of that had been read before, Unread what was
// released without having been read, Now what it holds, and Peak the most that it has held. When nothing is
// left, In + Again = Out + Unread.
type TierStats struct {
	In     int64 `json:"bytes_in"`
	Out    int64 `json:"bytes_out"`
	Again  int64 `json:"bytes_read_again"`
	Unread int64 `json:"bytes_unread"`
	Now    int64 `json:"bytes_now"`
	Peak   int64 `json:"bytes_peak"`
}

func (c *counters) stats() TierStats {
	return TierStats{c.in.Load(), c.out.Load(), c.again.Load(), c.unread.Load(), c.now.Load(), c.peak.Load()}
}

// Stats is the traffic of a store: with page-locked host memory, for a device that has
// memory of its own, and with files.
type Stats struct {
	Host TierStats `json:"host"`
	Disk TierStats `json:"disk"`
}

// NewStore returns the store of a run on a device. It makes no file before there is need.
func NewStore(d gpu.Device, o Options) *Store {
	if o.Dir == "" {
		o.Dir = DefaultDir()
	}
	s := &Store{opt: o, device: d, owners: map[*gpu.Lease]*owner{}}
	s.disk = gpu.NewBudget("disk", gpu.SpillLimit, o.Limit, nil)
	s.scratch.New = func() any { return &block{file: bufio.NewReaderSize(nil, 256<<10)} }
	return s
}

// Always reports whether operators should let all rows spill that they can, as tests want.
func (s *Store) Always() bool { return s != nil && s.opt.Always }

// Stats returns the traffic so far of all Partitions of a lease.
func (s *Store) Stats(l *gpu.Lease) (out Stats) {
	if s == nil {
		return out
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[l]; o != nil {
		out = Stats{Host: o.moved[hostTier].stats(), Disk: o.moved[diskTier].stats()}
	}
	return out
}

// Lease returns the lease that pays for rows of Partitions of a lease in host memory. It is nil if none has
// spilled, or if the device has no memory of its own.
func (s *Store) Lease(l *gpu.Lease) *gpu.Lease {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[l]; o != nil {
		return o.lease
	}
	return nil
}

// owner returns what Partitions of a lease share.
func (s *Store) owner(l *gpu.Lease, name string) *owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[l]
	if o == nil {
		o = &owner{}
		if s.discrete() {
			o.lease = s.device.HostBudget().Lease(name + ", spilled")
		}
		s.owners[l] = o
	}
	return o
}

// Close ends the store. Partitions that are not closed are an error. The queues that have read
// them are closed.
func (s *Store) Close() (err error) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	for _, c := range s.kicks {
		if c != nil {
			close(c)
		}
	}
	s.mu.Unlock()
	s.moving.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		if closeErr := q.Close(); err == nil {
			err = closeErr
		}
	}
	for _, o := range s.owners {
		if o.lease != nil {
			if closeErr := o.lease.Close(); err == nil {
				err = closeErr
			}
		}
	}
	if leaks := s.disk.Leaks(); err == nil && len(leaks) > 0 {
		err = fmt.Errorf("files were not given back: %v", leaks)
	}
	return err
}

// discrete reports whether the device has memory of its own.
func (s *Store) discrete() bool { return s != nil && s.device.Budget() != s.device.HostBudget() }

// copiesUp reports whether rows that a queue reads go to the memory of the device, over a link.
func (s *Store) copiesUp(q gpu.Queue) bool {
	return s.discrete() && q.Device().Budget() == s.device.Budget()
}

// onCPU reports whether a queue is of the CPU that works with a device with memory of its own.
func (s *Store) onCPU(q gpu.Queue) bool { return s.discrete() && !s.copiesUp(q) }

// queue returns a queue of the device that nobody uses. giveBack must follow.
func (s *Store) queue() (q gpu.Queue, err error) {
	s.mu.Lock()
	if n := len(s.queues); n > 0 {
		q, s.queues = s.queues[n-1], s.queues[:n-1]
	}
	s.mu.Unlock()
	if q == nil {
		q, err = s.device.NewQueue("spill")
	}
	return q, err
}

func (s *Store) giveBack(q gpu.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, q)
}

// down copies a stride to host memory. Several goroutines may, so that a copy begins when the
// one before ends.
func (s *Store) down(l *gpu.Lease, st *gpu.Stride) (*gpu.Stride, error) {
	q, err := s.queue()
	if err != nil {
		return nil, err
	}
	defer s.giveBack(q)
	return q.Download(l, st)
}

// enter makes a mover known to the goroutine that moves strides of its tier, and leave makes it
// unknown.
func (s *Store) enter(m *mover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.movers[m.from] == nil {
		s.movers[m.from] = map[*mover]bool{}
	}
	s.movers[m.from][m] = true
}

func (s *Store) leave(m *mover) {
	s.mu.Lock()
	delete(s.movers[m.from], m)
	s.mu.Unlock()
	// The goroutine may be at work for it.
	m.working.Lock()
	defer m.working.Unlock()
	m.gone = true
}

// copiers is the number of goroutines that copy strides to host memory: while one waits for the
// end of its copy, the copy of another begins.
const copiers = 2

// kick makes goroutines move strides of a tier until the budget has room.
func (s *Store) kick(t tier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kicks[t] == nil {
		n := 1
		if t == deviceTier && s.discrete() {
			n = copiers
		}
		s.kicks[t] = make(chan struct{}, n)
		for range n {
			s.moving.Go(func() { s.move(t, s.kicks[t]) })
		}
	}
	for range cap(s.kicks[t]) {
		select {
		case s.kicks[t] <- struct{}{}:
		default:
		}
	}
}

// move moves strides of a tier, those of the Partitions with the most bytes first.
func (s *Store) move(t tier, kicks <-chan struct{}) {
	for range kicks {
		for {
			var best *mover
			most := int64(0)
			s.mu.Lock()
			for m := range s.movers[t] {
				if bytes := m.reclaimable(false); bytes > most {
					best, most = m, bytes
				}
			}
			s.mu.Unlock()
			if best == nil || !best.crowded() || best.reclaim(1, false) == 0 {
				break
			}
		}
	}
}

// file makes a file that has no name, so that nothing is left of it when the process ends in
// whatever way. Its permissions are 0600.
func (s *Store) file() (*os.File, error) {
	f, err := newFile(s.opt.Dir)
	if err != nil {
		return nil, err
	}
	s.opened.Do(func() {
		if limit, err := DefaultLimit(s.opt.Dir); s.opt.Limit == 0 && err == nil {
			s.disk.SetLimit(limit)
		}
	})
	return f, nil
}

// CheckDir returns an error if files cannot be made in a folder, the Dir of Options.
func CheckDir(dir string) error {
	if dir == None {
		return nil
	}
	f, err := newFile(dir)
	if err == nil {
		err = f.Close()
	}
	return err
}

func newFile(dir string) (*os.File, error) {
	fail := func(err error) error {
		return fmt.Errorf("spill to %s: %w; choose another folder with %v", dir, err, gpu.SpillDir)
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	f := os.NewFile(uintptr(fd), filepath.Join(dir, "(a file without a name)"))
	if err == unix.EOPNOTSUPP || err == unix.EISDIR { // not every file system has files without names
		if f, err = os.CreateTemp(dir, "gstream-spill-*"); err != nil {
			return nil, fail(err)
		}
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return nil, fail(err)
		}
	} else if err != nil {
		return nil, fail(err)
	}
	return f, nil
}

// Add adds the traffic of others. The peaks need not have been at the same time.
func (s *Stats) Add(o Stats) {
	add := func(t *TierStats, o TierStats) {
		t.In, t.Out, t.Again, t.Unread = t.In+o.In, t.Out+o.Out, t.Again+o.Again, t.Unread+o.Unread
		t.Now, t.Peak = t.Now+o.Now, t.Peak+o.Peak
	}
	add(&s.Host, o.Host)
	add(&s.Disk, o.Disk)
}

// String describes the traffic in one line; it is empty if there was none.
func (s Stats) String() string {
	text := func(name string, t TierStats) string {
		if t.In == 0 {
			return ""
		}
		size := func(n int64) string { return humanize.IBytes(uint64(n)) }
		out := fmt.Sprintf("%s: %s written, %s read", name, size(t.In), size(t.Out))
		if t.Again > 0 {
			out += fmt.Sprintf(" (%s again)", size(t.Again))
		}
		if t.Unread > 0 {
			out += fmt.Sprintf(", %s given up unread", size(t.Unread))
		}
		return out + fmt.Sprintf(", %s at most", size(t.Peak))
	}
	h, d := text("host memory", s.Host), text("disk", s.Disk)
	if h != "" && d != "" {
		return h + "; " + d
	}
	return h + d
}
