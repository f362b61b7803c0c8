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

// Options say where a Store keeps rows that exceed the memory.
type Options struct {
	// Dir is the folder for files; "" is DefaultDir. None keeps rows in memory only.
	Dir string
	// Limit bounds the bytes on disk; 0 is four fifths of the space that is free when the
	// first file is made.
	Limit int64
	// Compress compresses blocks by LZ4, except blocks that would not become smaller.
	Compress bool
	// Always moves each stride to disk when it is appended. It is for tests.
	Always bool
	// Trace, when set, is called after each write to disk and each read, on any goroutine, with
	// the name of the Partitions, the start and the bytes.
	Trace func(name string, write bool, begin time.Time, bytes int64)
}

// trace calls Options.Trace after a write or a read.
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

// DefaultLimit returns the default of Options.Limit for a folder: four fifths of the free space.
func DefaultLimit(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	free := float64(st.Bavail) * float64(st.Bsize)
	return max(1, int64(min(grant.DiskBudget.Part(free), math.MaxInt64/2))), nil
}

// Store keeps the rows of the operators of one run. It is safe for concurrent use. A nil Store
// keeps rows in the memory in which they are made.
type Store struct {
	opt    Options
	device gpu.Device
	disk   *gpu.Budget
	opened sync.Once // sets the limit of disk

	mu     sync.Mutex
	queues []gpu.Queue           // free queues for downloads, of a device that has its own memory
	owners map[*gpu.Lease]*owner // by the lease of the memory of the device
	movers [tiers]map[*mover]bool
	kicks  [tiers]chan struct{} // wake the goroutines that move strides; nil until they are needed
	moving sync.WaitGroup

	scratch sync.Pool // *block
}

// tier is a place for rows.
type tier int

// The tiers, fastest first. A device computes in the first one.
const (
	deviceTier tier = iota
	hostTier
	diskTier
	tiers
)

// owner has what Partitions of one lease share: the lease of their host memory, if the device has
// its own memory, and the bytes that have moved, by tier. Its lease outlives the Partitions,
// because queues keep copies of dictionaries.
type owner struct {
	lease *gpu.Lease
	moved [tiers]counters
}

// counters are the bytes that went into and came out of a tier.
type counters struct{ in, out, again, unread, now, peak atomic.Int64 }

// read counts bytes that were read, as read again if seen is set, and sets seen.
func (c *counters) read(n int64, seen *bool) {
	c.out.Add(n)
	if *seen {
		c.again.Add(n)
	}
	*seen = true
}

// gone counts released bytes, as unread unless seen is set.
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

// TierStats is the traffic of a tier in bytes. When the tier is empty, In + Again = Out + Unread.
//
//	In      moved into the tier
//	Out     read from it, by an operator or to be moved to the next tier
//	Again   the part of Out that had been read before
//	Unread  released without having been read
//	Now     in the tier
//	Peak    maximum of Now
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

// Stats is the traffic of a store: with page-locked host memory, for a device that has its own
// memory, and with files.
type Stats struct {
	Host TierStats `json:"host"`
	Disk TierStats `json:"disk"`
}

// NewStore returns the store of a run on a device. It makes no file until one is needed.
func NewStore(d gpu.Device, o Options) *Store {
	if o.Dir == "" {
		o.Dir = DefaultDir()
	}
	s := &Store{opt: o, device: d, owners: map[*gpu.Lease]*owner{}}
	s.disk = gpu.NewBudget("disk", gpu.SpillLimit, o.Limit, nil)
	s.scratch.New = func() any { return &block{file: bufio.NewReaderSize(nil, 256<<10)} }
	return s
}

// Always reports whether operators should spill all rows that they can, for tests.
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

// Close closes the store, and returns an error if Partitions are not closed. The queues that have
// read them must be closed.
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

// discrete reports whether the device has its own memory.
func (s *Store) discrete() bool { return s != nil && s.device.Budget() != s.device.HostBudget() }

// copiesUp reports whether rows that a queue reads go to the memory of the device, over a link.
func (s *Store) copiesUp(q gpu.Queue) bool {
	return s.discrete() && q.Device().Budget() == s.device.Budget()
}

// elsewhere reports whether a queue belongs to the CPU or another GPU, and the device has its own memory.
func (s *Store) elsewhere(q gpu.Queue) bool { return s.discrete() && !s.copiesUp(q) }

// queue returns a free queue of the device, which the caller returns by giveBack.
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

// down copies a stride to host memory. Several goroutines may call it at once, so that a copy
// begins when the copy before ends.
func (s *Store) down(l *gpu.Lease, st *gpu.Stride) (*gpu.Stride, error) {
	q, err := s.queue()
	if err != nil {
		return nil, err
	}
	defer s.giveBack(q)
	return q.Download(l, st)
}

// enter registers a mover with the goroutine that moves strides of its tier, and leave unregisters
// it.
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
	// The goroutine may be moving strides of it.
	m.working.Lock()
	defer m.working.Unlock()
	m.gone = true
}

// copiers is the number of goroutines that copy strides to host memory: while one waits for the end
// of its copy, another begins.
const copiers = 2

// kick makes goroutines move strides of a tier until the budget has enough free memory.
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

// file makes a file without a name, which disappears however the process ends. Its permissions are
// 0600.
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

// Add adds the traffic of another store. The sum of the peaks is an upper bound, because they may
// be at different times.
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
