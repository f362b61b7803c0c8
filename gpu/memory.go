package gpu

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu/internal/spin"
)

// ErrBudget is the sentinel of every denied reservation of a memory budget. Match it with
// errors.Is, or the details with errors.As and *BudgetError.
var ErrBudget = errors.New("memory budget exceeded")

// BudgetError says which reservation a budget denied, what fills the budget, and what to
// change.
type BudgetError struct {
	Stage     string  // name of the lease that asked
	Tier      string  // "device", "host" or "disk"
	Asked     int64   // bytes
	Available int64   // bytes
	Limit     int64   // bytes
	Holder    string  // name of the lease or leases that hold the most, with the bytes that were denied
	Held      int64   // bytes that the holder has
	Setting   Setting // what raises the limit
	Hint      string  // other advice; may be empty
	// Cause is why the holder could not give memory back, such as a full disk; nil without one.
	Cause error
}

// Unwrap returns the cause.
func (e *BudgetError) Unwrap() error { return e.Cause }

// Error begins with the cause and the holder. The lease that asked comes next, if it is another one.
func (e *BudgetError) Error() string {
	text := func(n int64) string { return humanize.IBytes(clampUint(n)) }
	var s string
	if e.Holder == "" || e.Holder == e.Stage {
		s = fmt.Sprintf("%s: needs %s more of %s memory, but only %s of the budget of %s is left; raise it with %s",
			e.Stage, text(e.Asked), e.Tier, text(e.Available), text(e.Limit), e.Setting)
	} else {
		s = fmt.Sprintf("%s: holds %s of the budget of %s of %s memory, so that %s, which needs %s more, finds only "+
			"%s left; raise it with %s",
			e.Holder, text(e.Held), text(e.Limit), e.Tier, e.Stage, text(e.Asked), text(e.Available), e.Setting)
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	if e.Cause != nil {
		return fmt.Sprintf("%v (%s)", e.Cause, s)
	}
	return s
}

// Is makes errors.Is(err, ErrBudget) true.
func (e *BudgetError) Is(target error) bool { return target == ErrBudget }

// AllocError is a failed allocation that its budget had allowed.
type AllocError struct {
	Stage string // name of the lease that asked
	Tier  string // as in a BudgetError
	Size  int64  // bytes
	Err   error  // error of the allocator
}

func (e *AllocError) Error() string {
	return fmt.Sprintf("%s: allocate %s of %s memory: %v", e.Stage, humanize.IBytes(clampUint(e.Size)), e.Tier, e.Err)
}

func (e *AllocError) Unwrap() error { return e.Err }

// IsOutOfMemory reports whether memory was denied, by a budget or by an allocator. The
// call that was denied memory has changed nothing and may be repeated.
func IsOutOfMemory(err error) bool {
	var failed *AllocError
	return errors.Is(err, ErrBudget) || errors.As(err, &failed)
}

func clampUint(n int64) uint64 { return uint64(max(n, 0)) }

// Allocator allocates a device's buffers. Free takes back exactly what Allocate returned.
// Any goroutine may call both.
type Allocator interface {
	// Allocate returns size bytes at a device address that is aligned to 64 bytes. mem
	// views them if the host can address them; otherwise it is nil. The contents are
	// unspecified.
	Allocate(size int64) (mem []byte, addr uintptr, err error)
	Free(mem []byte, addr uintptr, size int64)
}

// Budget is the limit of one memory tier. It is safe for concurrent use.
type Budget struct {
	tier    string
	setting Setting
	alloc   Allocator

	mu         spin.Mutex
	limit      int64
	used, peak int64 // by ordinary leases
	cached     int64 // by leases of caches
	leases     map[*Lease]struct{}
	fault      atomic.Pointer[func(allocate bool) error]

	reclaimers []*registration
	waiting    []chan struct{} // reservations that do not fit, in order of arrival

	watchers []*watcher
	patience time.Duration
	moves    uint64 // how often memory was taken or released
}

// NewBudget returns a budget of limit bytes for a tier. setting is what raises the
// limit. A limit of 0 or less means no limit.
func NewBudget(tier string, setting Setting, limit int64, alloc Allocator) *Budget {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	return &Budget{tier: tier, setting: setting, limit: limit, alloc: alloc, patience: patience,
		leases: map[*Lease]struct{}{}}
}

// SetFault makes every reservation, and every allocation after its reservation, call f
// first; an error of f denies it. It is for tests. Caches do not call f. A
// nil f ends it.
func (b *Budget) SetFault(f func(allocate bool) error) {
	if f == nil {
		b.fault.Store(nil)
		return
	}
	b.fault.Store(&f)
}

// ask calls the fault.
func (l *Lease) ask(allocate bool) error {
	f := l.budget.fault.Load()
	if f == nil || l.cache {
		return nil
	}
	return (*f)(allocate)
}

// Limit returns the bytes of the budget.
func (b *Budget) Limit() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit
}

// SetLimit changes the limit, for a device that learns it after it is opened. Reserved
// memory stays reserved.
func (b *Budget) SetLimit(limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	b.wake()
}

// Used returns the bytes reserved now and at the peak, without those of caches.
func (b *Budget) Used() (now, peak int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.peak
}

// Lease opens a lease on the budget. Errors and leak reports have its name, which is the
// stage and the use of the memory, as in "join orders: build side".
func (b *Budget) Lease(name string) *Lease {
	return b.open(&Lease{name: name, budget: b})
}

// CacheLease opens a lease for memory of a cache, which a Reclaimer releases. A
// reservation on it takes only free memory: nobody is asked to give any back. Errors
// and leak reports leave it out.
func (b *Budget) CacheLease(name string) *Lease {
	return b.open(&Lease{name: name, budget: b, cache: true})
}

func (b *Budget) open(l *Lease) *Lease {
	b.mu.Lock()
	b.leases[l] = struct{}{}
	b.mu.Unlock()
	return l
}

// Leaks lists every open lease with its bytes, in order of name. The list is empty at the
// end of a run.
func (b *Budget) Leaks() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for l := range b.leases {
		if l.cache {
			continue
		}
		out = append(out, fmt.Sprintf("%s: %s in %d buffers", l.name, humanize.IBytes(clampUint(l.used.Load())),
			l.buffers.Load()))
	}
	sort.Strings(out)
	return out
}

// Lease is memory that one owner has reserved from one budget. Any goroutine may call
// Reserve and Alloc and release buffers. Close is called once.
type Lease struct {
	name    string
	budget  *Budget
	cache   bool
	advice  atomic.Pointer[string]
	failed  atomic.Pointer[error] // why memory was not released
	used    atomic.Int64
	peak    atomic.Int64
	buffers atomic.Int64
	closed  atomic.Bool

	activity activityCounter
}

// Advise sets the hint of errors in which the lease's memory fills the budget.
func (l *Lease) Advise(hint string) { l.advice.Store(&hint) }

// Kept sets the cause of errors in which the lease's memory fills the budget: the error that
// kept the memory from being released.
func (l *Lease) Kept(err error) { l.failed.Store(&err) }

// Name returns the name the lease was opened with.
func (l *Lease) Name() string { return l.name }

// Limit returns the limit of the lease's budget, in bytes.
func (l *Lease) Limit() int64 { return l.budget.Limit() }

// Available returns the unused bytes of the lease's budget. Memory of caches counts as
// unused, because they give it back.
func (l *Lease) Available() int64 {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	return l.budget.available()
}

func (b *Budget) available() int64 { return b.limit - b.used }

// Used returns the bytes reserved now and at the peak.
func (l *Lease) Used() (now, peak int64) { return l.used.Load(), l.peak.Load() }

// Reserve takes n bytes from the budget without allocating, for memory that is allocated
// elsewhere. If they do not fit, holders give memory back first; see Register. The error
// is a *BudgetError.
func (l *Lease) Reserve(n int64) error {
	b := l.budget
	fault := l.ask(false)
	b.mu.Lock()
	if fault != nil || !b.take(l, n) {
		err := b.outOfMemory(l, n)
		b.mu.Unlock()
		return err
	}
	b.mu.Unlock()
	l.count(n)
	return nil
}

// count adds to the bytes of the lease.
func (l *Lease) count(n int64) {
	used := l.used.Add(n)
	for {
		p := l.peak.Load()
		if used <= p || l.peak.CompareAndSwap(p, used) {
			return
		}
	}
}

// MakeRoom makes holders release memory until n bytes of the budget are free, as Reserve
// does, and reserves none. It does nothing if they are available.
func (l *Lease) MakeRoom(n int64) error {
	if l.Available() >= n {
		return nil
	}
	err := l.Reserve(n)
	if err == nil {
		l.Unreserve(n)
	}
	return err
}

// Unreserve releases n bytes of Reserve.
func (l *Lease) Unreserve(n int64) {
	l.used.Add(-n)
	b := l.budget
	b.mu.Lock()
	if l.cache {
		b.cached -= n
	} else {
		b.used -= n
		b.moves++
		b.wake()
	}
	b.mu.Unlock()
}

// left returns the free bytes.
func (b *Budget) left() int64 { return b.limit - b.used - b.cached }

// take counts n bytes for a lease, if they fit or holders can make room.
func (b *Budget) take(l *Lease, n int64) bool {
	fits := n == 0 || n > 0 && n <= b.left() && len(b.waiting) == 0
	switch {
	case !fits && (n < 0 || l.cache || !b.reclaim(n)):
		return false
	case l.cache:
		b.cached += n
	default:
		b.used += n
		b.peak = max(b.peak, b.used)
		b.moves++
	}
	return true
}

// outOfMemory returns the error of a reservation. Leases of one name count together.
func (b *Budget) outOfMemory(l *Lease, n int64) *BudgetError {
	e := &BudgetError{Stage: l.name, Tier: b.tier, Asked: n, Available: b.left(), Limit: b.limit, Setting: b.setting}
	held, advice, failed := map[string]int64{}, map[string]string{}, map[string]error{}
	for o := range b.leases {
		if o.cache {
			continue
		}
		held[o.name] += o.used.Load()
		if hint := o.advice.Load(); hint != nil {
			advice[o.name] = *hint
		}
		if err := o.failed.Load(); err != nil {
			failed[o.name] = *err
		}
	}
	e.Holder, e.Held = l.name, held[l.name]
	most := e.Held + max(n, 0)
	for name, bytes := range held {
		if bytes > most || bytes == most && name < e.Holder {
			e.Holder, e.Held, most = name, bytes, bytes
		}
	}
	e.Hint, e.Cause = advice[e.Holder], failed[e.Holder]
	return e
}

// Alloc reserves and allocates a buffer of n bytes with one reference and unspecified
// contents. The error is a *BudgetError or an *AllocError.
func (l *Lease) Alloc(n int64) (*Buffer, error) { return l.AllocFrom(l.budget.alloc, n) }

// AllocFrom is Alloc with another allocator than the budget's, for a device with several
// ways to the same memory.
func (l *Lease) AllocFrom(a Allocator, n int64) (*Buffer, error) {
	if err := l.Reserve(n); err != nil {
		return nil, err
	}
	var mem []byte
	var addr uintptr
	err := l.ask(true)
	if err == nil {
		mem, addr, err = a.Allocate(n)
	}
	if err != nil {
		l.Unreserve(n)
		return nil, &AllocError{Stage: l.name, Tier: l.budget.tier, Size: n, Err: err}
	}
	return l.buffer(a, mem, addr, n, n), nil
}

// Adopt makes a buffer of n bytes that the caller has allocated, and for which leases have paid
// that the allocator knows. The last release frees it there. Primitives take it as memory of the
// lease's budget.
func (l *Lease) Adopt(a Allocator, addr uintptr, n int64) *Buffer {
	return l.buffer(a, nil, addr, n, 0)
}

func (l *Lease) buffer(a Allocator, mem []byte, addr uintptr, n, paid int64) *Buffer {
	l.buffers.Add(1)
	b := &Buffer{mem: mem, addr: addr, size: n, paid: paid, lease: l, alloc: a}
	b.refs.Store(1)
	return b
}

// Close ends the lease. Buffers or reservations that are still in use are an error that
// names the lease; the lease then stays in the budget's leak report until they are
// released. A second Close does nothing.
func (l *Lease) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	if used, n := l.used.Load(), l.buffers.Load(); used != 0 || n != 0 {
		return fmt.Errorf("lease %q closed with %s in %d buffers still in use", l.name,
			humanize.IBytes(clampUint(used)), n)
	}
	l.forget()
	return nil
}

func (l *Lease) forget() {
	l.budget.mu.Lock()
	delete(l.budget.leases, l)
	l.budget.mu.Unlock()
}

// Buffer is a reference-counted block of device or host memory. A nil *Buffer
// is the empty buffer.
type Buffer struct {
	mem   []byte
	addr  uintptr
	size  int64
	paid  int64 // bytes that the lease pays for
	lease *Lease
	alloc Allocator
	whole *Buffer // the buffer that this one is a view of, or nil
	// pieces are the buffers that this one consists of, or nil.
	pieces []*Buffer
	refs   atomic.Int32
}

// WrapBytes makes a buffer from memory of the garbage collector. No lease counts it. It
// is for constants, tests and small dictionaries.
func WrapBytes(mem []byte) *Buffer {
	b := &Buffer{mem: mem, size: int64(len(mem)), addr: uintptr(unsafe.Pointer(unsafe.SliceData(mem)))}
	b.refs.Store(1)
	return b
}

// View returns n bytes from an offset on as a buffer with one reference, which keeps b. They
// must lie within b. Nobody pays for the view.
func (b *Buffer) View(offset, n int64) *Buffer {
	v := &Buffer{addr: b.addr + uintptr(offset), size: n, whole: b.Retain()}
	if b.mem != nil {
		v.mem = b.mem[offset : offset+n : offset+n]
	}
	v.refs.Store(1)
	return v
}

// Whole returns the buffer that this one is a view of, and the view's offset in it. A buffer that is no view
// is its own.
func (b *Buffer) Whole() (whole *Buffer, offset int64) {
	if b.whole == nil {
		return b, 0
	}
	whole, offset = b.whole.Whole()
	return whole, offset + int64(b.addr-b.whole.addr)
}

// Joined returns a buffer with one reference that consists of buffers in host memory, one after
// the other, and takes them over. It has neither an address nor bytes: only Upload takes it,
// and copies it into one piece.
func Joined(pieces []*Buffer) *Buffer {
	b := &Buffer{pieces: pieces}
	for _, p := range pieces {
		b.size += p.Size()
	}
	b.refs.Store(1)
	return b
}

// Pieces returns the buffers that a joined one consists of; nil for any other one.
func (b *Buffer) Pieces() []*Buffer {
	if b == nil {
		return nil
	}
	return b.pieces
}

// Bytes returns the buffer's memory, or nil if the host cannot address it.
func (b *Buffer) Bytes() []byte {
	if b == nil {
		return nil
	}
	return b.mem
}

// Addr returns the device address of the buffer.
func (b *Buffer) Addr() uintptr {
	if b == nil {
		return 0
	}
	return b.addr
}

// Size returns the size of the buffer in bytes.
func (b *Buffer) Size() int64 {
	if b == nil {
		return 0
	}
	return b.size
}

// Retain adds a reference and returns b.
func (b *Buffer) Retain() *Buffer {
	if b != nil {
		b.refs.Add(1)
	}
	return b
}

// Release drops a reference. The last one gives the memory back to its lease.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	switch n := b.refs.Add(-1); {
	case n == 0 && b.whole != nil:
		b.whole.Release()
		return
	case n == 0 && b.pieces != nil:
		for _, p := range b.pieces {
			p.Release()
		}
		return
	case n > 0 || b.lease == nil:
		return
	case n < 0:
		panic("gpu: buffer of lease " + strings.TrimSpace(b.lease.name) + " released twice")
	}
	l := b.lease
	b.alloc.Free(b.mem, b.addr, b.size)
	b.mem = nil
	l.Unreserve(b.paid)
	l.dropBuffer()
}

// dropBuffer counts one buffer less.
func (l *Lease) dropBuffer() {
	if l.buffers.Add(-1) == 0 && l.closed.Load() && l.used.Load() == 0 {
		l.forget()
	}
}

// chargeTo moves the charge for the buffer to another lease of the same budget, if the
// caller has its only reference.
func (b *Buffer) chargeTo(l *Lease) {
	if b == nil || b.lease == nil || b.lease == l || b.lease.budget != l.budget || b.refs.Load() != 1 {
		return
	}
	from := b.lease
	b.lease = l
	l.count(b.paid)
	l.buffers.Add(1)
	from.used.Add(-b.paid)
	from.dropBuffer()
}

// Values views the first n values of a host-addressable buffer as Go values. It panics
// when the buffer is shorter: callers check sizes where buffers are made.
func Values[T any](b *Buffer, n int) []T {
	if n == 0 {
		return nil
	}
	var t T
	mem := b.Bytes()
	if int64(n)*int64(unsafe.Sizeof(t)) > int64(len(mem)) {
		panic(fmt.Sprintf("gpu: %d values of %d bytes do not fit a buffer of %d", n, unsafe.Sizeof(t), len(mem)))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// BytesOf views a slice of fixed-width values as bytes.
func BytesOf[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(t)))
}
