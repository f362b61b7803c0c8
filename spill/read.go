package spill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

const (
	// readers is the number of goroutines that read for a caller of Each on a device that has its
	// own memory and one lane. They read ahead unitsAhead units of maximum size or, if this is
	// more, grant.ReadAhead of the budgets. On the CPU each lane has one goroutine, which reads
	// ahead one unit.
	readers    = 3
	unitsAhead = 4
	// mostText is the maximum number of bytes of pieces with text that are concatenated.
	mostText = 1 << 30
)

// Each calls a function with all rows of partitions [from, to), in strides of the device, in any
// order. The function takes ownership of the strides, for which the lease pays. If the partitions
// are Ordered, the rows of a stride are consecutive and in order of partition, and first is the
// first partition of the stride. Meanwhile rows may move to the next tier. Missing rows are an
// error.
//
// The queue may be one of another GPU, or of the CPU, whose budget is the HostBudget of the device: then the strides
// are in memory of that GPU, or in host memory.
//
// Cost: rows in the memory of the device are copied within it, or to the other processor. Other rows are read ahead,
// and uploaded while the caller works, if the queue is of the device.
func (p *Partitions) Each(ctx context.Context, q gpu.Queue, l *gpu.Lease, from, to int,
	take func(s *gpu.Stride, first int) error) error {
	r := NewReader(ctx, l, []Range{{p, Span{from, to}, nil}})
	defer r.Close()
	return r.Next(q, take)
}

// Span is a range of partitions [From, To).
type Span struct{ From, To int }

// Range is a span of partitions. If they are Ordered, it may have further spans, in ascending
// order. No appended stride has rows of two spans. A stride that is read may have rows of several
// consecutive spans.
type Range struct {
	*Partitions
	Span
	More []Span
}

// Reader reads ranges one after the other. Goroutines read and upload ahead of the caller, also
// rows of later ranges. One goroutine owns a Reader.
type Reader struct {
	ctx    context.Context
	stop   context.CancelCauseFunc
	ranges []Range
	lease  *gpu.Lease
	at     int // the range that the caller reads next
	begun  bool
	up     bool           // goroutines upload what they read
	wg     sync.WaitGroup // of the goroutines

	mu       sync.Mutex
	changed  sync.Cond        // an item came or was taken, or the context has ended
	readings map[int]*reading // by range; those that goroutines or the caller are reading
	ahead    int              // the range that the goroutines read
	bytes    int64            // of units that are read and not yet passed to the caller
	most     int64            // maximum of bytes before goroutines read a further unit
}

// errClosed ends the goroutines of a Reader.
var errClosed = errors.New("the reader of spilled rows is closed")

// NewReader returns a reader of ranges, which the caller closes. The lease pays for the strides.
// Rows of the ranges must not be dropped before they are read.
func NewReader(ctx context.Context, l *gpu.Lease, ranges []Range) *Reader {
	r := &Reader{ranges: ranges, lease: l, readings: map[int]*reading{}}
	r.changed.L = &r.mu
	r.ctx, r.stop = context.WithCancelCause(ctx)
	return r
}

// Close ends the reader. A nil *Reader is closed.
func (r *Reader) Close() {
	if r == nil {
		return
	}
	r.stop(errClosed)
	r.wg.Wait()
	var q gpu.Queue
	for _, x := range r.readings {
		for _, i := range x.items {
			if i.up && q == nil {
				if q, i.err = x.store.device.NewQueue(x.name); i.err == nil {
					defer q.Close()
				}
			}
			i.forget(q)
		}
	}
	r.readings = nil
}

// reading returns the state of a range. The caller holds the lock.
func (r *Reader) reading(i int) *reading {
	x := r.readings[i]
	if x == nil {
		of := r.ranges[i]
		x = &reading{Partitions: of.Partitions, lease: r.lease, read: map[*piece]bool{}}
		for _, s := range append([]Span{of.Span}, of.More...) {
			if s.From < s.To {
				x.spans = append(x.spans, s)
			}
		}
		r.readings[i] = x
	}
	return x
}

// Next calls a function with all rows of the next range, as Each does.
func (r *Reader) Next(q gpu.Queue, take func(s *gpu.Stride, first int) error) error {
	r.mu.Lock()
	x := r.reading(r.at)
	r.mu.Unlock()
	x.left = 0
	for _, s := range x.spans {
		x.left += x.Rows(s.From, s.To)
	}
	err := x.onDevice(r.ctx, q, take)
	if err == nil && (x.left > 0 || r.begun) {
		r.begin(q)
		err = r.receive(x, q, take)
	}
	// Rows that the goroutines did not find have left the memory of the device since.
	for before := int64(-1); err == nil && x.left > 0 && x.left != before; {
		before = x.left
		if err = x.onDevice(r.ctx, q, take); err == nil {
			err = x.readBelow(r.ctx, q, take)
		}
	}
	if err == nil && x.left != 0 {
		err = fmt.Errorf("%s: partitions %v have %d rows fewer than were put there: a defect in gstream", x.name,
			x.spans, x.left)
	}
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.readings, r.at) // goroutines have finished it
		r.at++
		r.ahead = max(r.ahead, r.at)
	}
	return err
}

// Cut shortens the ranges that end at partition end, so that they end at partition to. It does
// nothing, and returns false, if the reader may have begun to read one of them. Next leaves out
// ranges that become empty.
func (r *Reader) Cut(end, to int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := max(r.at, r.ahead)
	for i, x := range r.ranges {
		if x.To == end && x.From < end && i <= begun {
			return false
		}
	}
	for i := begun + 1; i < len(r.ranges); i++ {
		if x := &r.ranges[i]; x.To == end {
			x.To = max(x.From, to)
		}
	}
	rest := slices.DeleteFunc(r.ranges[min(begun+1, len(r.ranges)):],
		func(x Range) bool { return x.From == x.To && x.More == nil })
	r.ranges = r.ranges[:min(begun+1, len(r.ranges))+len(rest)]
	return true
}

// begin starts the goroutines, unless they run.
func (r *Reader) begin(q gpu.Queue) {
	if r.begun {
		return
	}
	r.begun = true
	n := 1
	r.most = 1
	r.mu.Lock()
	p := r.ranges[0].Partitions
	r.mu.Unlock()
	if p.store.copiesUp(q) {
		n, r.most, r.up = readers, max(unitsAhead*p.batch(), p.share(grant.ReadAhead)), true
	}
	for range n {
		r.wg.Go(r.readAhead)
	}
	context.AfterFunc(r.ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
}

// readAhead reads units until there are no more.
func (r *Reader) readAhead() {
	var q gpu.Queue
	for {
		x, u := r.next()
		if x == nil {
			return
		}
		var i item
		if q == nil && r.up {
			if q, i.err = x.store.device.NewQueue(x.name); i.err == nil {
				defer q.Close()
			}
		}
		if i.err == nil {
			if i = x.fetch(q, u); errors.Is(i.err, gpu.ErrBudget) {
				i = item{again: true}
			}
		}
		i.bytes = u.bytes
		r.mu.Lock()
		x.fetching--
		x.items = append(x.items, i)
		r.changed.Broadcast()
		r.mu.Unlock()
		if i.err != nil {
			return
		}
	}
}

// next returns the next unit and its range, as soon as there is memory for it; nil after the last
// unit, and when the context has ended.
func (r *Reader) next() (*reading, *unit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.bytes >= r.most && r.ctx.Err() == nil {
		r.changed.Wait()
	}
	for ; r.ahead < len(r.ranges) && r.ctx.Err() == nil; r.ahead++ {
		x := r.reading(r.ahead)
		if u := x.next(); u != nil {
			x.fetching++
			r.bytes += u.bytes
			return x, u
		}
		x.searched = true
		r.changed.Broadcast()
	}
	return nil, nil
}

// receive passes to the caller what goroutines have read of a range.
func (r *Reader) receive(x *reading, q gpu.Queue, take func(*gpu.Stride, int) error) error {
	for {
		r.mu.Lock()
		for len(x.items) == 0 && (x.fetching > 0 || !x.searched && r.ahead <= r.at) && r.ctx.Err() == nil {
			r.changed.Wait()
		}
		if r.ctx.Err() != nil {
			r.mu.Unlock()
			return context.Cause(r.ctx)
		}
		if len(x.items) == 0 {
			r.mu.Unlock()
			return nil
		}
		i := x.items[0]
		x.items = x.items[1:]
		r.bytes -= i.bytes
		r.changed.Broadcast()
		r.mu.Unlock()
		if err := x.arrive(r.ctx, i, q, take); err != nil {
			return err
		}
	}
}

// reading is one range of a Reader.
type reading struct {
	*Partitions
	spans []Span // that are not empty
	lease *gpu.Lease
	left  int64 // rows that the caller has not seen

	// The lock of the Reader guards what follows.
	items    []item // what goroutines have read
	fetching int    // units that they are reading
	searched bool   // they have found all units

	// The lock of the Partitions guards what follows.
	read  map[*piece]bool // pieces that have been read, or are being read
	found [tiers][]*piece // pieces that were unread when unread last searched
	units []unit          // pages of runs that are still to be read
}

// unit is what one goroutine reads at a time: parts of pieces in host memory, or pages of a run
// except the rows of some pieces.
type unit struct {
	bytes  int64
	pieces []*held
	run    *run
	from   int // page of the run
	to     int
	skip   map[*piece]bool
}

// held is a piece that is being read, and its stride. A busy piece does not begin to move. A piece
// that is already moving gets another stride when it has moved, so held shares the stride.
type held struct {
	*piece
	stride *gpu.Stride
	shared bool
}

// span returns the number of the first span that ends after a partition, or the number of spans if
// there is none.
func (r *reading) span(partition int) int {
	i, _ := slices.BinarySearchFunc(r.spans, partition, func(s Span, p int) int {
		if s.To <= p {
			return -1
		}
		return 1
	})
	return i
}

// within returns the range of rows of a piece that are to be read.
func (r *reading) within(x *piece) (begin, end int) {
	i := r.span(x.first)
	if i == len(r.spans) {
		return 0, 0
	}
	return x.within(r.spans[i].From, r.spans[i].To)
}

// firstOf returns the first partition of a piece that is to be read.
func (r *reading) firstOf(x *piece) int { return max(x.first, r.spans[r.span(x.first)].From) }

// follows reports whether the rows to be read of piece y directly follow those of piece x.
func (r *reading) follows(x, y *piece) bool {
	i, k := r.span(x.first), r.span(y.first)
	if i == k {
		return x.last()+1 == y.first
	}
	return i+1 == k && x.last()+1 >= r.spans[i].To && y.first <= r.spans[k].From
}

// give passes a stride to the caller of Each.
func (r *reading) give(s *gpu.Stride, first int, take func(*gpu.Stride, int) error) error {
	r.left -= int64(s.Rows)
	return take(s, first)
}

// unread returns the pieces of a tier with unread rows; if the partitions are Ordered, those of the
// lowest partitions first. Pieces that have moved to the tier since the last search are found once
// there are no others. The caller holds the lock.
func (r *reading) unread(at tier) iter.Seq[*piece] {
	is := func(x *piece) bool { return x.at == at && !r.read[x] }
	for len(r.found[at]) > 0 && !is(r.found[at][0]) {
		r.found[at] = r.found[at][1:]
	}
	if len(r.found[at]) == 0 {
		for _, x := range r.pieces {
			if begin, end := r.within(x); is(x) && begin < end {
				r.found[at] = append(r.found[at], x)
			}
		}
		if r.Ordered {
			slices.SortStableFunc(r.found[at], func(x, y *piece) int { return cmp.Compare(x.first, y.first) })
		}
	}
	return func(yield func(*piece) bool) {
		for _, x := range r.found[at] {
			if is(x) && !yield(x) {
				return
			}
		}
	}
}

// hold marks a piece as read and busy: to move it would not free its memory. The caller holds the
// lock.
func (r *reading) hold(x *piece) *held {
	r.read[x] = true
	x.busy++
	if x.moving {
		return &held{x, x.stride.Retain(), true}
	}
	return &held{x, x.stride, false}
}

// idle ends the use of pieces.
func (r *reading) idle(u ...*held) {
	for _, x := range u {
		if x.shared {
			x.stride.Release()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range u {
		x.busy--
	}
}

// done ends the use of a unit. If it is put back, it is still to be read.
func (r *reading) done(u *unit, putBack bool) {
	for _, x := range u.pieces {
		r.idle(x)
	}
	if !putBack {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range u.pieces {
		delete(r.read, x.piece)
	}
	if u.run != nil {
		r.units = append(r.units, *u)
	}
}

// below returns the lease that pays for rows that are read from host memory and from disk.
func (r *reading) below() *gpu.Lease {
	if r.store.discrete() {
		return r.owner.lease
	}
	return r.lease
}

// nextOnDevice returns pieces in the memory of the device with unread rows, and marks them as read:
// one piece, or several with parts of their rows that can be concatenated; nil if there is none.
// Pieces cannot move while they are read. A reader on another processor takes few at a time, because the
// device may need their memory.
func (r *reading) nextOnDevice(elsewhere bool) (u []*held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := slices.ContainsFunc(r.schema.Fields, func(f gpu.Field) bool { return f.Type.IsVar() })
	bytes, all, most := int64(0), int64(0), r.batch()
	if r.store.discrete() && !elsewhere {
		most = r.share(grant.PutBatch)
	}
	for x := range r.unread(deviceTier) {
		if n := len(u); n > 0 && r.Ordered && !r.follows(u[n-1].piece, x) {
			break
		}
		from, to := r.within(x)
		whole := to-from == x.stride.Rows
		all += x.bytes
		// The text of a concatenated column has a maximum size, and few rows of a piece may have
		// most of its text.
		if len(u) > 0 && (whole || texts && (all > mostText || coded(x.stride)) || bytes >= most ||
			elsewhere && all > 4*r.batch()) {
			break
		}
		u = append(u, r.hold(x))
		if whole {
			break
		}
		bytes += x.bytes * int64(to-from) / int64(x.stride.Rows)
	}
	return u
}

// coded reports whether a stride has text in a dictionary.
func coded(s *gpu.Stride) bool {
	return slices.ContainsFunc(s.Cols, func(c gpu.Column) bool { return c.Type.IsVar() && c.Dict != nil })
}

// fromDevice returns the rows of pieces in the memory of the device, for a queue of the device or
// of another processor.
func (r *reading) fromDevice(to gpu.Queue, u []*held) (*gpu.Stride, error) {
	if !r.store.elsewhere(to) {
		return r.onePiece(to, r.lease, u)
	}
	q, err := r.store.queue()
	if err != nil {
		r.idle(u...)
		return nil, err
	}
	defer r.store.giveBack(q)
	s, err := r.onePiece(q, r.Partitions.lease, u)
	if err != nil {
		return nil, err
	}
	var moved *gpu.Stride
	if to.Device().Budget() == r.store.device.HostBudget() {
		moved, err = q.Download(r.lease, s)
	} else {
		s.SetReady(r.store.device)
		moved, err = to.Upload(r.lease, s)
	}
	if err != nil {
		s.Release()
	}
	return moved, err
}

// onePiece returns the rows of pieces in the memory of the device. It does not copy a single, whole
// piece.
func (r *reading) onePiece(q gpu.Queue, l *gpu.Lease, u []*held) (_ *gpu.Stride, err error) {
	out := &gpu.Stride{Schema: r.schema}
	defer func() {
		r.idle(u...)
		if err != nil {
			out.Release()
		}
	}()
	for _, x := range u {
		from, to := r.within(x.piece)
		out.Rows += to - from
	}
	for i := range r.schema.Fields {
		var parts []gpu.Column
		for _, x := range u {
			from, to := r.within(x.piece)
			c := x.stride.Cols[i]
			var part gpu.Column
			if len(u) == 1 || c.Valid != nil || c.Dict == nil && c.Type.Kind == gpu.Bool {
				part, err = q.Slice(l, c, from, to)
			} else if c.Dict == nil && c.Type.IsVar() {
				part = gpu.Column{Type: c.Type, Len: to - from, Data: c.Data.Retain(),
					Offsets: c.Offsets.View(int64(from)*4, int64(to-from+1)*4)}
			} else {
				w := int64(c.DataWidth())
				part = gpu.Column{Type: c.Type, Len: to - from, Data: c.Data.View(int64(from)*w, int64(to-from)*w),
					Dict: c.Dict}
				if c.Dict != nil {
					c.Dict.Values.Retain()
				}
			}
			if err != nil {
				break
			}
			parts = append(parts, part)
		}
		var c gpu.Column
		if err == nil {
			c, err = q.Concat(l, parts)
		}
		gpu.ReleaseColumns(parts)
		if err != nil {
			return nil, err
		}
		out.Cols = append(out.Cols, c)
	}
	return out, nil
}

// batch returns the maximum number of bytes of a unit, unless a partition of a run has more.
func (p *Partitions) batch() int64 { return p.share(grant.ReadBatch) }

// share returns a lane's part of a share of the budgets of device and host.
func (p *Partitions) share(s grant.Share) int64 {
	if p.store == nil {
		return s.Most
	}
	d := p.store.device
	return s.Among(min(d.Budget().Limit(), d.HostBudget().Limit()), d.Lanes())
}

// next returns the next unit, and marks its pieces as read; nil if there is none.
func (r *reading) next() *unit {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := &unit{}
	for x := range r.unread(hostTier) {
		// Rows in between may be in another tier.
		if n := len(u.pieces); u.bytes >= r.batch() || n > 0 && r.Ordered && !r.follows(u.pieces[n-1].piece, x) {
			break
		}
		u.pieces = append(u.pieces, r.hold(x))
		from, to := r.within(x)
		u.bytes += x.bytes * int64(to-from) / int64(x.stride.Rows)
	}
	if len(u.pieces) > 0 {
		return u
	}
	for _, in := range r.runs {
		if len(r.units) > 0 {
			break
		}
		r.cut(in)
	}
	if len(r.units) == 0 {
		return nil
	}
	*u, r.units = r.units[0], r.units[1:]
	return u
}

// cut makes units of the pages of a run that has unread rows. The caller holds the lock.
func (r *reading) cut(in *run) {
	i := r.span(in.first)
	if i == len(r.spans) || r.spans[i].From >= in.first+in.partitions() {
		return
	}
	skip, some := map[*piece]bool{}, false
	for _, x := range in.pieces {
		begin, end := r.within(x)
		skip[x] = r.read[x]
		some = some || begin < end && !r.read[x]
		r.read[x] = true
	}
	if !some {
		return
	}
	from, to := max(r.spans[i].From, in.first)-in.first, min(r.spans[i].To-in.first, in.partitions())
	for from < to {
		u := unit{run: in, from: from, skip: skip}
		for sum := (extent{}); from < to; from++ {
			in.addTo(&sum, from)
			if from > u.from && (sum.raw > r.batch() || !sum.fits()) {
				break
			}
			u.bytes += in.pages[from].raw
		}
		u.to = from
		r.units = append(r.units, u)
	}
}

// item is a stride that was read.
type item struct {
	stride *gpu.Stride
	first  int
	bytes  int64 // of the unit
	up     bool  // on the device, or being copied to it
	again  bool  // there was no memory for the unit: the caller reads one
	err    error
}

// forget releases a stride that is not used. The queue is nil after a failure of the device.
func (i item) forget(q gpu.Queue) {
	if i.stride == nil {
		return
	}
	if i.up && q != nil {
		_ = q.Wait(i.stride)
	}
	i.stride.Release()
}

// onDevice passes the rows in the memory of the device to the caller.
func (r *reading) onDevice(ctx context.Context, q gpu.Queue, take func(*gpu.Stride, int) error) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		u := r.nextOnDevice(r.store.elsewhere(q))
		if u == nil {
			return nil
		}
		first := r.firstOf(u[0].piece)
		s, err := r.fromDevice(q, u)
		if err == nil {
			err = r.give(s, first, take)
		}
		if err != nil {
			return err
		}
	}
}

// readBelow passes the rows in host memory and on disk to the caller, without goroutines.
func (r *reading) readBelow(ctx context.Context, q gpu.Queue, take func(*gpu.Stride, int) error) error {
	for ctx.Err() == nil {
		if some, err := r.readUnit(ctx, q, take); err != nil || !some {
			return err
		}
	}
	return context.Cause(ctx)
}

// readUnit passes the next unit to the caller, and reports whether there was one. Denied memory, it
// waits until others release some: strides stay in memory until the rows of their units have been
// uploaded.
func (r *reading) readUnit(ctx context.Context, q gpu.Queue, take func(*gpu.Stride, int) error) (some bool, err error) {
	var u *unit
	var i item
	_ = r.below().Patiently(ctx, func() error {
		if u = r.next(); u == nil {
			return nil
		}
		i = r.fetch(nil, u)
		return i.err
	})
	if u == nil {
		return false, nil
	}
	return true, r.arrive(ctx, i, q, take)
}

// arrive makes an item usable and gives it to the caller.
func (r *reading) arrive(ctx context.Context, i item, q gpu.Queue, take func(*gpu.Stride, int) error) (err error) {
	switch {
	case i.again:
		_, err := r.readUnit(ctx, q, take)
		return err
	case i.err != nil:
		return i.err
	case i.up:
		err = q.Wait(i.stride)
	case r.store.discrete(): // a queue of the CPU concatenates values in several pieces
		var up *gpu.Stride
		if up, err = q.Upload(r.lease, i.stride); err == nil {
			i.stride = up
		}
	}
	switch {
	case err != nil:
		i.stride.Release()
		return err
	case i.stride.Rows == 0:
		i.stride.Release()
		return nil
	}
	return r.give(i.stride, i.first, take)
}

// fetch reads a unit, and uploads it ahead if a queue is given. It puts back a unit for which there
// is no memory.
func (r *reading) fetch(q gpu.Queue, u *unit) (i item) {
	if u.run != nil {
		i.first = u.run.first + u.from
		i.stride, i.err = r.readPages(r.below(), u)
	} else {
		i.first = r.firstOf(u.pieces[0].piece)
		i.stride, i.err = r.gather(u)
	}
	r.done(u, errors.Is(i.err, gpu.ErrBudget))
	if i.err != nil || q == nil {
		return i
	}
	// If there is no memory, the caller uploads the stride when it has released some.
	up, err := q.UploadAhead(r.lease, i.stride)
	switch {
	case err == nil:
		i.stride, i.up = up, true
	case !gpu.IsOutOfMemory(err):
		i.stride.Release()
		i = item{err: err}
	}
	return i
}

// note counts the bytes that were read of pieces in host memory.
func (r *reading) note(u *unit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range u.pieces {
		s := r.spans[r.span(x.first)]
		x.each(s.From, s.To, func(_ int, n int64, seen *bool) { r.moved[hostTier].read(n, seen) })
	}
}

// gather returns the rows of pieces in host memory, concatenated. It shares their values of fixed
// width and the bytes of strings, and computes validity, Bools, offsets and codes of one dictionary
// on several cores.
func (r *reading) gather(u *unit) (*gpu.Stride, error) {
	parts := make([]*gpu.Stride, 0, len(u.pieces))
	defer func() {
		for _, s := range parts {
			s.Release()
		}
	}()
	for _, x := range u.pieces {
		from, to := r.within(x.piece)
		part, err := view(r.owner.lease, x.stride, from, to)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if len(parts) == 1 {
		s := parts[0]
		parts = nil
		r.note(u)
		return s, nil
	}
	lay := newLayout(r.schema, parts)
	defer lay.release()
	if err := lay.unite(r.owner.lease, parts); err != nil {
		return nil, err
	}
	sum := extent{bytes: make([]int64, len(lay.texts))}
	for _, s := range parts {
		sum.rows += int64(s.Rows)
		for n, i := range lay.texts {
			sum.bytes[n] += stringBytes(s.Cols[i], 0, s.Rows)
		}
	}
	if !sum.fits() {
		return nil, gpu.Exceeded("%s: %d rows with %d bytes of strings do not fit one stride", r.name, sum.rows,
			slices.Max(sum.bytes))
	}
	a, err := newAssembly(r.owner.lease, &lay, sum, parts)
	if err != nil {
		return nil, err
	}
	var copying sync.WaitGroup
	for i := range a.stride.Cols {
		copying.Go(func() {
			rows := 0
			for _, s := range parts {
				a.copyColumn(&lay, i, s.Cols[i], rows)
				rows += s.Rows
			}
		})
	}
	copying.Wait()
	a.rows = int(sum.rows)
	r.note(u)
	return a.done(), nil
}
