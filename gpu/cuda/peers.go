package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

// PeerLink is the way from the memory of one GPU of a group to another one.
type PeerLink struct {
	From, To string
	// Direct says that To has access to the memory of From. Otherwise the driver copies through host memory.
	Direct bool
	// Rate is the bytes per second of a copy.
	Rate float64
	// Changed says that the bytes that arrived were not those that were sent.
	Changed bool
}

// PeerLinks copies between all pairs of GPUs, one pair after the other: some milliseconds for each.
func (g *Group) PeerLinks() (out []PeerLink, err error) {
	for _, d := range g.devices {
		if err := d.Wait(); err != nil {
			return nil, err
		}
	}
	for _, to := range g.devices {
		for _, from := range to.peers {
			l, err := to.measurePeer(from)
			if err != nil {
				return nil, fmt.Errorf("copy from %s to %s: %w", from.id(), to.id(), err)
			}
			out = append(out, l)
		}
	}
	return out, nil
}

// measurePeer copies random bytes from another GPU, and compares what arrives.
func (d *Device) measurePeer(from *Device) (out PeerLink, err error) {
	m := &linkTest{d: d, size: grant.LinkTest.Of(min(d.budget.Limit(), from.budget.Limit(), d.host.Limit()/2))}
	there, here, host := from.budget.Lease("peer test"), d.budget.Lease("peer test"), d.host.Lease("peer test")
	var bufs [4]*gpu.Buffer // there, here, and two on the host
	for i, l := range []*gpu.Lease{there, here, host, host} {
		bufs[i], err = l.Alloc(m.size)
		m.note(err)
	}
	settle := func() {
		m.note(from.ctx.do(cuCtxSynchronize))
		m.note(d.ctx.do(cuCtxSynchronize))
	}
	defer func() {
		settle()
		for _, b := range bufs {
			b.Release()
		}
		err = errors.Join(m.err, there.Close(), here.Close(), host.Close())
	}()
	settle() // the memory belongs to the kernels until now
	if m.err != nil {
		return out, nil
	}
	sent, arrived := bufs[2].Bytes(), bufs[3].Bytes()
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	_, _ = rand.NewChaCha8(seed).Read(sent)
	m.note(from.copyUp(host, bufs[0].Addr(), bufs[2].Addr(), m.size))
	settle()
	out = PeerLink{From: from.id(), To: d.id(), Direct: from.admits(d)}
	out.Rate = m.rate(1, func() {
		m.note(d.ctx.do(cuMemcpyPeerAsync, bufs[1].Addr(), d.ctx.handle, bufs[0].Addr(), from.ctx.handle,
			uintptr(m.size), uintptr(d.in)))
	}, d.in)
	settle()
	m.note(d.copyDown(host, bufs[3].Addr(), bufs[1].Addr(), m.size))
	settle()
	out.Changed = m.err == nil && !bytes.Equal(sent, arrived)
	return out, nil
}
