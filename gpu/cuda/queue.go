package cuda

import (
	"bytes"
	stdcontext "context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

var errClosed = errors.New("queue is closed")

// queue is an ordered stream of primitives. The queues of a device share its streams. A queue's own
// state is its error, its name in reports, and the dictionaries that it has copied.
type queue struct {
	dev  *Device
	name string
	err  error
	ctx  stdcontext.Context // ends the queue, unless it is nil
	// upDicts and downDicts are the dictionaries of the last strides, by column. The
	// strides of one row group share them.
	upDicts, downDicts map[int][]moved
}

// moved is a dictionary on both sides of the link.
type moved struct{ from, to *gpu.Dictionary }

// For each column the last dictionary is kept and, if it is small, also some earlier small ones.
// Many row groups have the same few values in one of a few orders, and a kept dictionary need not
// be processed again.
const (
	keptDicts = 8
	fewBytes  = 16 << 10
)

// NewQueue implements gpu.Device.
func (d *Device) NewQueue(name string) (gpu.Queue, error) {
	if err := d.Wait(); err != nil {
		return nil, err
	}
	if e := d.ctx.broken.Load(); e != nil {
		return nil, e
	}
	return &queue{dev: d, name: name, upDicts: map[int][]moved{}, downDicts: map[int][]moved{}}, nil
}

// Lanes implements gpu.Device. There is one lane, because the queues of a device share
// its streams.
func (d *Device) Lanes() int { return 1 }

// NewLaneQueue implements gpu.Device.
func (d *Device) NewLaneQueue(name string) (gpu.Queue, error) { return d.NewQueue(name) }

// queue returns gq as a queue that can run with state of this device.
func (d *Device) queue(gq gpu.Queue) (*queue, error) {
	q, ok := gq.(*queue)
	if !ok || q.dev != d {
		return nil, gpu.ErrOtherDevice(d, gq.Device())
	}
	return q, nil
}

// Device implements gpu.Queue.
func (q *queue) Device() gpu.Device { return q.dev }

// Until implements gpu.Queue.
func (q *queue) Until(ctx stdcontext.Context) { q.ctx = ctx }

// Close implements gpu.Queue. It waits for the copies up in progress, which free their
// host memory.
func (q *queue) Close() error {
	if q.err == errClosed {
		return nil
	}
	for _, dicts := range []map[int][]moved{q.upDicts, q.downDicts} {
		for _, list := range dicts {
			forget(list)
		}
	}
	q.upDicts, q.downDicts = nil, nil
	q.dev.Settle()
	err := q.err
	q.err = errClosed
	return err
}

// fail makes the error of a primitive stick if it is a failure, and returns it. An error of the
// driver is a failure, unless it is out of budget: fail adds what was being done. If the device
// failed during an allocation, every later call fails.
func (q *queue) fail(what string, err error) error {
	if gpu.IsOutOfMemory(err) {
		return err
	}
	var e *Error
	if errors.As(err, &e) && err != q.err {
		err = gpu.Failed("%s on %s: %w", what, q.dev.props.name, err)
	}
	if q.err == nil && gpu.IsFailure(err) {
		q.err = err
	}
	return err
}

// Upload implements gpu.Queue. Kernels that are launched later wait for the copies; the caller does
// not. The copies have their own references to the columns, so s remains the caller's if memory is
// denied after they have started.
func (q *queue) Upload(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) {
	copied := &gpu.Stride{Schema: s.Schema, Rows: s.Rows}
	for _, c := range s.Cols {
		copied.Cols = append(copied.Cols, c.Retain())
	}
	out, a, err := q.send(l, copied)
	if err != nil {
		copied.Release()
		return nil, err
	}
	if err := q.arrive(out, a); err != nil {
		out.Release()
		return nil, err
	}
	s.Release()
	return out, nil
}

// arrival is the end of the copies of a stride, the lease that pays for the stride, and the decoding of its columns in
// pages, if it has any.
type arrival struct {
	end      event
	lease    *gpu.Lease
	decoding *decoding
}

// Wait implements gpu.Queue. Kernels that are launched later wait for the copies of the stride. The
// first of these kernels turn encoded columns into ordinary ones. If memory for them is denied,
// Wait may be called again, and does not wait for the copies again.
func (q *queue) Wait(s *gpu.Stride) error {
	d := q.dev
	d.mu.Lock()
	a, ok := d.arrivals[s]
	delete(d.arrivals, s)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	err := q.arrive(s, a)
	if gpu.IsOutOfMemory(err) {
		d.mu.Lock()
		d.arrivals[s] = arrival{lease: a.lease, decoding: a.decoding}
		d.mu.Unlock()
	}
	return err
}

// arrive is Wait for a stride that was copied up ahead.
func (q *queue) arrive(s *gpu.Stride, a arrival) (err error) {
	d := q.dev
	if a.end != 0 {
		d.computing.Lock()
		err = d.follow(d.compute, a.end)
		d.computing.Unlock()
		if err != nil {
			// The memory may be freed next, so the copies must be over.
			_ = d.ctx.do(cuStreamSynchronize, uintptr(d.up))
			if d.in != 0 {
				_ = d.ctx.do(cuStreamSynchronize, uintptr(d.in))
			}
			err = q.fail("wait for a stride", err)
		}
	}
	if a.decoding != nil {
		if err == nil {
			err = q.complete(s, a.decoding)
		}
		if !gpu.IsOutOfMemory(err) {
			a.decoding.release()
		}
	}
	d.recycle(a.end) // the decoding has been launched, if there is one
	isEncoded := func(c gpu.Column) bool { return c.CodeWidth != 0 }
	if err != nil || !slices.ContainsFunc(s.Cols, isEncoded) {
		return err
	}
	cols, err := q.unpack(a.lease, s.Cols)
	if err == nil {
		gpu.ReleaseColumns(s.Cols)
		s.Cols = cols
	}
	return err
}

// unpack turns encoded columns into ordinary ones.
func (q *queue) unpack(l *gpu.Lease, cols []gpu.Column) (out []gpu.Column, err error) {
	o := q.begin("unpack", l)
	defer end(o, &out, &err)
	for _, c := range cols {
		if c.CodeWidth != 0 {
			c = o.unpack(c)
		} else {
			c = o.retainColumn(c)
		}
		out = append(out, c)
	}
	return out, nil
}

// unpack widens the codes of an encoded column to int32; if the column is not a string,
// it looks their values up. In a column without a dictionary it widens the values.
func (o *op) unpack(c gpu.Column) gpu.Column {
	if c.Dict == nil {
		wide := o.keep(o.alloc(int64(c.Len) * 8))
		launch(o, "widen_values", blocks(c.Len, 256), 256, 0,
			widenArgs{src: addr(c.Data), dst: addr(wide), n: int64(c.Len)})
		return gpu.Column{Type: c.Type, Len: c.Len, Data: wide, Valid: o.retain(c.Valid)}
	}
	codes := c.Data
	if c.CodeWidth < 4 {
		codes = o.alloc(int64(c.Len) * 4)
		launch(o, fmt.Sprintf("widen_%d", c.CodeWidth), blocks(c.Len, 256), 256, 0,
			widenArgs{src: addr(c.Data), dst: addr(codes), n: int64(c.Len)})
	}
	c.Data, c.CodeWidth = codes, 0
	if c.Type.IsVar() {
		return o.retainColumn(c)
	}
	return o.decode(c)
}

// UploadAhead implements gpu.Queue. The copies run on their own stream. The host memory is released
// once they have finished.
func (q *queue) UploadAhead(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error) {
	out, a, err := q.send(l, s)
	if err != nil {
		return nil, err
	}
	q.dev.mu.Lock()
	q.dev.arrivals[out] = a
	q.dev.mu.Unlock()
	return out, nil
}

// send starts the copies of a stride.
func (q *queue) send(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, arrival, error) {
	if q.err != nil {
		return nil, arrival{}, q.err
	}
	switch home := gpu.Residence(s.Cols); home {
	case nil:
	case q.dev.budget:
		return s, arrival{}, nil
	default:
		return q.receive(l, s, home)
	}
	if err := gpu.CheckHostMemory(s.Cols, nil); err != nil {
		return nil, arrival{}, q.fail("copy a stride up", err)
	}
	t := &transfer{q: q, lease: l, name: "copy up"}
	for _, c := range s.Cols { // first, so that locking does not count as time of the copies
		if err := q.dev.pinned.lockColumn(l, c); err != nil {
			return nil, arrival{}, q.fail("copy a stride up", err)
		}
	}
	var w *decoding
	if s.HasPages() {
		w = q.dev.newDecoding(l, s)
	}
	q.dev.uploads.Lock()
	defer q.dev.uploads.Unlock()
	t.begin(q.dev.up)
	cols := make([]gpu.Column, len(s.Cols))
	for i, c := range s.Cols {
		cols[i] = t.column(i, c, q.upDicts, t.upload)
	}
	if w != nil {
		t.copyPages(s, cols, w)
	}
	t.finish(q.dev.up)
	var copied event
	if t.err == nil {
		var err error
		copied, err = q.dev.record(q.dev.up)
		t.fail(err)
	}
	if t.err != nil {
		// Copies may still be running from and to memory that is released now.
		_ = q.dev.ctx.do(cuStreamSynchronize, uintptr(q.dev.up))
		if w != nil {
			w.release()
		}
		t.table.release()
		gpu.ReleaseColumns(cols)
		t.settle(q.upDicts)
		q.dev.recycle(t.start, t.stop)
		return nil, arrival{}, q.fail("copy a stride up", t.err)
	}
	if w != nil {
		q.dev.decodeLater(w, copied)
	}
	t.settle(q.upDicts)
	out := &gpu.Stride{Schema: s.Schema, Cols: cols, Rows: s.Rows}
	q.dev.trace.moved(t, laneUp, func() {
		s.Release()
		t.table.release()
	})
	return out, arrival{copied, l, w}, nil
}

// Download implements gpu.Queue. The copies run on their own stream. They wait for the kernels that
// produced the stride (Stride.SetReady), or else for all kernels launched so far. The caller waits
// for the copies. The lease pays for host memory.
func (q *queue) Download(l *gpu.Lease, s *gpu.Stride) (out *gpu.Stride, err error) {
	if q.err != nil {
		return nil, q.err
	}
	if err := gpu.CheckHostMemory(s.Cols, q.dev.budget); err != nil {
		return nil, q.fail("copy a stride down", err)
	}
	if s.Rows > 0 && gpu.CheckHostMemory(s.Cols, nil) == nil { // the CPU made it
		s.ChargeTo(l)
		return s, nil
	}
	if isShort(s) {
		return q.downloadShort(l, s)
	}
	t := &transfer{q: q, lease: l, name: "copy down"}
	cols := make([]gpu.Column, len(s.Cols))
	t.down(s.Ready, func() {
		for i, c := range s.Cols {
			cols[i] = t.column(i, c, q.downDicts, t.download)
		}
	})
	t.settle(q.downDicts)
	if t.err != nil {
		gpu.ReleaseColumns(cols)
		return nil, q.fail("copy a stride down", t.err)
	}
	s.Release()
	return &gpu.Stride{Schema: s.Schema, Cols: cols, Rows: s.Rows}, nil
}

// isShort reports whether a stride has only a few numbers, such as counts or offsets. Its buffers
// may be larger.
func isShort(s *gpu.Stride) bool {
	n := int64(0)
	for _, c := range s.Cols {
		if c.Dict != nil || c.Type.IsVar() {
			return false
		}
		bits := gpu.BitmapBytes(c.Len)
		if c.Valid != nil {
			n += bits
		}
		if c.Type.Kind == gpu.Bool {
			n += bits
		} else {
			n += int64(c.Len) * int64(c.DataWidth())
		}
	}
	return n <= readbackBytes
}

// downloadShort is Download for numbers that need not wait for large copies.
func (q *queue) downloadShort(l *gpu.Lease, s *gpu.Stride) (out *gpu.Stride, err error) {
	o := q.begin("copy down", l)
	t := &transfer{q: q, lease: l}
	cols := make([]gpu.Column, len(s.Cols))
	for i, c := range s.Cols {
		cols[i] = t.plain(c, func(b *gpu.Buffer, n int64) *gpu.Buffer {
			if n = min(n, b.Size()); o.err != nil || n == 0 {
				return nil
			}
			to, err := l.Alloc(n)
			if err != nil {
				o.fail(err)
				return nil
			}
			if src := b.Bytes(); src != nil { // it was never on the device
				copy(to.Bytes(), src)
			} else {
				o.read(b, 0, to.Bytes())
			}
			return to
		})
	}
	out = &gpu.Stride{Schema: s.Schema, Cols: cols, Rows: s.Rows}
	end(o, &out, &err)
	if err != nil {
		gpu.ReleaseColumns(cols)
		return nil, err
	}
	s.Release()
	return out, nil
}

// transfer is the copy of one stride over the link.
type transfer struct {
	q           *queue
	lease       *gpu.Lease
	name        string
	err         error
	start, stop event
	bytes       int64
	fresh       map[int]moved // dictionaries that come with this stride, by column
	table       pinnedBlock   // of pages, if there are any
}

func (t *transfer) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// begin records the beginning of the copies. The last call counts.
func (t *transfer) begin(s stream) {
	if t.err == nil {
		t.q.dev.recycle(t.start)
		var err error
		t.start, err = t.q.dev.record(s)
		t.fail(err)
	}
}

func (t *transfer) finish(s stream) {
	if t.err == nil {
		var err error
		t.stop, err = t.q.dev.record(s)
		t.fail(err)
	}
}

// down makes copies to the host, once the kernels before an event have ended, and waits for them. After an error no
// copy is running.
func (t *transfer) down(until gpu.Event, copies func()) {
	d := t.q.dev
	d.downloads.Lock()
	t.fail(d.followKernels(d.down, until))
	t.begin(d.down)
	copies()
	t.finish(d.down)
	d.downloads.Unlock()
	if t.err == nil {
		t.fail(d.wait(t.stop))
	}
	if t.err != nil {
		_ = d.ctx.do(cuStreamSynchronize, uintptr(d.down))
		d.recycle(t.start, t.stop)
		return
	}
	d.trace.moved(t, laneDown, nil)
}

// column copies a column. It copies the dictionary unless an equal one of that column has
// been copied and kept.
func (t *transfer) column(at int, c gpu.Column, dicts map[int][]moved,
	move func(*gpu.Buffer, int64) *gpu.Buffer) gpu.Column {
	out := t.plain(c, move)
	if c.Dict == nil {
		return out
	}
	list := dicts[at]
	i := slices.IndexFunc(list, func(m moved) bool { return m.from == c.Dict || equalDictionaries(m.from, c.Dict) })
	if i < 0 {
		to := t.plain(c.Dict.Values, move)
		if t.err != nil {
			out.Dict = &gpu.Dictionary{Values: to} // released when the copies that have started are done
			return out
		}
		c.Dict.Values.Retain()
		m := moved{from: c.Dict, to: &gpu.Dictionary{Values: to}}
		if t.fresh == nil {
			t.fresh = map[int]moved{}
		}
		t.fresh[at] = m
		i, list = 0, []moved{m}
	}
	out.Dict = list[i].to
	out.Dict.Values.Retain()
	return out
}

// settle keeps the dictionaries of the stride in the queue, or after an error forgets
// them.
func (t *transfer) settle(dicts map[int][]moved) {
	for at, m := range t.fresh {
		list := dicts[at]
		switch {
		case t.err != nil:
			forget([]moved{m})
			continue
		case len(list) == keptDicts || len(list) > 0 && !(isSmall(list[0].from) && isSmall(m.from)):
			forget(list)
			list = list[:0]
		}
		dicts[at] = append(list, m)
	}
}

// isSmall reports whether a dictionary has few bytes.
func isSmall(d *gpu.Dictionary) bool { return d.Values.Bytes() <= fewBytes }

// forget releases dictionaries.
func forget(list []moved) {
	for _, m := range list {
		m.from.Values.Release()
		m.to.Values.Release()
	}
}

// equalDictionaries reports whether two small dictionaries on the host have the same
// bytes.
func equalDictionaries(a, b *gpu.Dictionary) bool {
	x, y := a.Values, b.Values
	if x.Type != y.Type || x.Len != y.Len || x.Valid != nil || y.Valid != nil || !isSmall(a) || !isSmall(b) {
		return false
	}
	used := x.Len * x.Type.Width()
	if x.Type.IsVar() {
		if x.Offsets.Bytes() == nil || y.Offsets.Bytes() == nil ||
			!slices.Equal(gpu.Values[int32](x.Offsets, x.Len+1), gpu.Values[int32](y.Offsets, y.Len+1)) {
			return false
		}
		used = int(gpu.Values[int32](x.Offsets, x.Len+1)[x.Len])
	}
	left, right := x.Data.Bytes(), y.Data.Bytes()
	return len(left) >= used && len(right) >= used && bytes.Equal(left[:used], right[:used])
}

// plain copies a column without its dictionary. It copies the bytes of the rows, which
// may be fewer than those of the buffers.
func (t *transfer) plain(c gpu.Column, move func(*gpu.Buffer, int64) *gpu.Buffer) gpu.Column {
	out := gpu.Column{Type: c.Type, Len: c.Len, CodeWidth: c.CodeWidth, Pages: c.Pages}
	switch {
	case c.Pages != nil: // see transfer.pages
		return out
	case c.Dict == nil && c.Type.IsVar():
		out.Offsets = move(c.Offsets, int64(c.Len+1)*4)
		out.Data = move(c.Data, c.Data.Size())
	case c.Dict == nil && c.Type.Kind == gpu.Bool:
		out.Data = move(c.Data, gpu.BitmapBytes(c.Len))
	default:
		out.Data = move(c.Data, int64(c.Len)*int64(c.DataWidth()))
	}
	out.Valid = move(c.Valid, gpu.BitmapBytes(c.Len))
	return out
}

// upload copies n bytes of a buffer up.
func (t *transfer) upload(b *gpu.Buffer, n int64) *gpu.Buffer {
	if n = min(n, b.Size()); t.err != nil || n == 0 {
		return nil
	}
	out, err := t.lease.AllocFrom(streamPool{t.q.dev.pool, t.q.dev.up}, n)
	if err != nil {
		t.fail(err)
		return nil
	}
	t.copyUp(out.Addr(), b, n)
	return out
}

// copyUp puts the copy of n bytes of a buffer on the stream of copies up.
func (t *transfer) copyUp(to uintptr, b *gpu.Buffer, n int64) {
	if t.err != nil || n == 0 {
		return
	}
	if pieces := b.Pieces(); pieces != nil {
		t.fail(t.q.dev.copyUpJoined(t.lease, to, pieces, n))
	} else {
		src := b.Bytes()[:n]
		t.fail(t.q.dev.copyUp(t.lease, to, uintptr(unsafe.Pointer(unsafe.SliceData(src))), n))
		runtime.KeepAlive(src)
	}
	t.bytes += n
}

// download copies n bytes of a buffer down.
func (t *transfer) download(b *gpu.Buffer, n int64) *gpu.Buffer {
	if n = min(n, b.Size()); t.err != nil || n == 0 {
		return nil
	}
	out, err := t.lease.Alloc(n)
	if err != nil {
		t.fail(err)
		return nil
	}
	if src := b.Bytes(); src != nil { // it was never on the device
		copy(out.Bytes(), src)
		return out
	}
	t.fail(t.q.dev.copyDown(t.lease, out.Addr(), b.Addr(), n))
	t.bytes += n
	return out
}

// copyUp puts the copy of n bytes of host memory on the stream of copies up. Out-of-budget errors
// name the lease.
func (d *Device) copyUp(l *gpu.Lease, dst, src uintptr, n int64) error {
	return d.pinned.eachLocked(l, src, n, func(at uintptr, n int64, _ bool) error {
		return d.ctx.do(cuMemcpyHtoDAsync, dst+at-src, at, uintptr(n), uintptr(d.up))
	})
}

// copyAttributes is the driver's CUmemcpyAttributes.
type copyAttributes struct {
	order    int32 // 1: sources are read in the order of the stream
	from, to location
	flags    uint32
}

const (
	// batchedPiece is the size from which the driver copies many pieces faster than a kernel, some
	// 50 GB/s compared with 36. Pieces of 32 KB are copied faster by a kernel.
	batchedPiece = 48 << 10
	// mostBatched bounds the pieces of one call of the driver. For calls with 256 and with 512
	// pieces, driver 580.159.04 sometimes makes a corrupt push buffer (Xid 32 in the log of the
	// operating system): processes ended with CUDA_ERROR_LAUNCH_FAILED, and this is probably why
	// rows were missing. With 128, 64 and 32 pieces it never happened.
	mostBatched = 32
)

// copyUpJoined puts copies of several buffers to consecutive addresses, n bytes in all, on the stream of copies up.
// A kernel reads the short pieces, the driver copies the others.
func (d *Device) copyUpJoined(l *gpu.Lease, dst uintptr, pieces []*gpu.Buffer, n int64) error {
	var short copies
	var to, from, sizes []uintptr // of the others
	for _, b := range pieces {
		src := b.Bytes()
		src = src[:min(int64(len(src)), n)]
		n -= int64(len(src))
		if len(src) == 0 {
			continue
		}
		err := d.pinned.eachLocked(l, uintptr(unsafe.Pointer(unsafe.SliceData(src))), int64(len(src)),
			func(at uintptr, n int64, locked bool) error {
				here := dst
				dst += uintptr(n)
				switch {
				case !locked: // a kernel cannot read it
					return d.ctx.do(cuMemcpyHtoDAsync, here, at, uintptr(n), uintptr(d.up))
				case n < batchedPiece:
					short.add(uint64(here), uint64(at), n)
				default:
					to, from, sizes = append(to, here), append(from, at), append(sizes, uintptr(n))
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	for len(to) > 0 {
		attributes, first, count := copyAttributes{order: 1}, uintptr(0), min(len(to), mostBatched)
		err := d.ctx.do(cuMemcpyBatchAsync, uintptr(unsafe.Pointer(&to[0])), uintptr(unsafe.Pointer(&from[0])),
			uintptr(unsafe.Pointer(&sizes[0])),
			uintptr(count), uintptr(unsafe.Pointer(&attributes)), uintptr(unsafe.Pointer(&first)), 1, uintptr(d.up))
		if err != nil {
			return err
		}
		to, from, sizes = to[count:], from[count:], sizes[count:]
	}
	f, err := taking[copyPartsArgs](d.kernels, copyPartsKernel)
	short.launches(func(chunks int, a copyPartsArgs) {
		if err == nil {
			err = start(d.kernels, f, d.up, copyPartsKernel, chunks, copyPartsThreads, 0, a)
		}
	})
	runtime.KeepAlive(pieces)
	return err
}

// copyDown puts the copy of n bytes to host memory on the stream of copies down. Out-of-budget
// errors name the lease.
func (d *Device) copyDown(l *gpu.Lease, dst, src uintptr, n int64) error {
	return d.pinned.eachLocked(l, dst, n, func(at uintptr, n int64, _ bool) error {
		return d.ctx.do(cuMemcpyDtoHAsync, at, src+at-dst, uintptr(n), uintptr(d.down))
	})
}
