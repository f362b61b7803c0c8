package cuda

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Group is several GPUs of one machine. They share page-locked memory and its budget, and a queue of one of them copies
// strides from the memory of the others.
type Group struct {
	*gpu.Group
	devices []*Device
}

// MostGPUs bounds the GPUs of a group.
const MostGPUs = 64

// OpenGroup opens GPUs as a group, by their numbers. Options apply to each of them, except HostMemory, which is for all
// together.
func OpenGroup(opt Options, ordinals []int) (*Group, error) {
	all, err := open(opt, ordinals)
	if err != nil {
		return nil, err
	}
	var members []gpu.Device
	for _, d := range all {
		members = append(members, d)
	}
	return &Group{gpu.NewGroup(members), all}, nil
}

// Works reports whether all GPUs have started and no failure has broken one.
func (g *Group) Works() bool {
	return !slices.ContainsFunc(g.devices, func(d *Device) bool { return !d.Works() })
}

// closeAll closes GPUs, the first one last because it has their page-locked memory.
func closeAll(all []*Device) {
	for _, d := range slices.Backward(all) {
		_ = d.Close()
	}
}

// receive starts the copies of a stride from the memory of another GPU of the group. They wait for the kernels that
// produced the stride. It is released once they have finished. All copies to a GPU are on one stream, so that one peer
// sends at a time: several at once are slower.
func (q *queue) receive(l *gpu.Lease, s *gpu.Stride, home *gpu.Budget) (*gpu.Stride, arrival, error) {
	d := q.dev
	i := slices.IndexFunc(d.peers, func(p *Device) bool { return p.budget == home })
	if i < 0 {
		return nil, arrival{}, q.fail("copy a stride", gpu.CheckHostMemory(s.Cols, nil))
	}
	peer := d.peers[i]
	t := &transfer{q: q, lease: l, name: "copy from " + peer.id()}
	copyOf := func(b *gpu.Buffer, n int64) *gpu.Buffer { return t.copyFrom(peer, b, n) }
	d.receiving.Lock()
	defer d.receiving.Unlock()
	if err := d.followKernelsOf(peer, d.in, s.Ready); err != nil {
		if FailedGPU(err) == peer.id() {
			err = fmt.Errorf("%s: %w", peer.id(), err)
		}
		t.fail(err)
	}
	t.begin(d.in)
	cols := make([]gpu.Column, len(s.Cols))
	for k, c := range s.Cols {
		cols[k] = t.column(k+(i+1)*len(s.Cols), c, q.upDicts, copyOf) // each peer has dictionaries of its own
	}
	copied := t.received(s.Release)
	t.settle(q.upDicts)
	if t.err != nil {
		gpu.ReleaseColumns(cols)
		return nil, arrival{}, q.fail("copy a stride from "+peer.id(), t.err)
	}
	return &gpu.Stride{Schema: s.Schema, Cols: cols, Rows: s.Rows}, arrival{copied, l, nil}, nil
}

// received ends copies on the stream of copies from peers, and returns the event of their end. It calls done once they
// have ended. After an error no copy is running, and done is not called.
func (t *transfer) received(done func()) (copied event) {
	d := t.q.dev
	t.finish(d.in)
	if t.err == nil {
		var err error
		copied, err = d.record(d.in)
		t.fail(err)
	}
	if t.err != nil {
		_ = d.ctx.do(cuStreamSynchronize, uintptr(d.in)) // copies may still be running
		d.recycle(t.start, t.stop)
		return 0
	}
	d.trace.moved(t, laneIn, done)
	return copied
}

// copyFrom copies n bytes of a buffer of another GPU. The buffer may also be in host memory.
func (t *transfer) copyFrom(peer *Device, b *gpu.Buffer, n int64) *gpu.Buffer {
	d := t.q.dev
	if n = min(n, b.Size()); t.err != nil || n == 0 {
		return nil
	}
	out, err := t.lease.AllocFrom(streamPool{d.pool, d.in}, n)
	if err != nil {
		t.fail(err)
		return nil
	}
	if src := b.Bytes(); src != nil {
		t.fail(d.pinned.eachLocked(t.lease, uintptr(unsafe.Pointer(unsafe.SliceData(src))), n,
			func(at uintptr, part int64, _ bool) error {
				from := at - uintptr(unsafe.Pointer(unsafe.SliceData(src)))
				return d.ctx.do(cuMemcpyHtoDAsync, out.Addr()+from, at, uintptr(part), uintptr(d.in))
			}))
		runtime.KeepAlive(src)
	} else {
		t.fail(d.ctx.do(cuMemcpyPeerAsync, out.Addr(), d.ctx.handle, b.Addr(), peer.ctx.handle, uintptr(n),
			uintptr(d.in)))
	}
	t.bytes += n
	return out
}

// admit gives the GPUs of the group access to the memory of this one. It does so before the memory is in use: a change
// of the access while a copy engine works on the memory, even that of its own GPU, is a fault of the GPU (Xid 31,
// driver 580). Without access, the driver copies through host memory.
func (d *Device) admit() {
	var access []accessDesc
	for _, peer := range d.peers {
		if peer.failure != nil {
			continue // the run ends with it
		}
		var can int32
		err := d.ctx.do(cuDeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), uintptr(peer.props.ordinal),
			uintptr(d.props.ordinal))
		if err == nil && can != 0 {
			to := location{locationDevice, int32(peer.props.ordinal)}
			access = append(access, accessDesc{location: to, flags: 3})
			continue
		}
		d.warnOfDetour(err, peer)
	}
	if len(access) == 0 {
		return
	}
	if err := d.ctx.do(cuMemPoolSetAccess, d.pool.handle, uintptr(unsafe.Pointer(&access[0])),
		uintptr(len(access))); err != nil {
		d.warnOfDetour(err, d.peers...)
		return
	}
	d.admitted = access
}

// admits reports whether another GPU has access to the memory of this one.
func (d *Device) admits(peer *Device) bool {
	return slices.ContainsFunc(d.admitted, func(a accessDesc) bool {
		return a.location.id == int32(peer.props.ordinal)
	})
}

// warnOfDetour logs that GPUs have no access to the memory of this one.
func (d *Device) warnOfDetour(err error, peers ...*Device) {
	for _, peer := range peers {
		slog.Warn("a GPU has no access to the memory of another one: rows go through host memory, which is slower",
			"gpu", peer.id(), "peer", d.id(), "error", err)
	}
}
