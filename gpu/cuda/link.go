package cuda

import (
	"fmt"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

// Link implements gpu.Profiled.
func (d *Device) Link() (gpu.Link, error) { return d.link() }

// linkRuns is the number of measurements of each direction, by copies of grant.LinkTest bytes. The
// best one counts, because the speed is an upper bound. All runs together take about 10 ms.
const linkRuns = 3

// measureLink measures copies up, down, in both directions at once, and within the
// device.
func (d *Device) measureLink() (gpu.Link, error) {
	if err := d.Wait(); err != nil {
		return gpu.Link{}, err
	}
	size := grant.LinkTest.Of(min(d.budget.Limit(), d.host.Limit()))
	m := &linkTest{d: d, size: size}
	link := m.measure()
	if m.err != nil {
		return gpu.Link{}, fmt.Errorf("measure the link of %s: %w", d.props.name, m.err)
	}
	return link, nil
}

type linkTest struct {
	d    *Device
	size int64
	err  error
}

func (m *linkTest) measure() gpu.Link {
	device, host := m.d.budget.Lease("link test"), m.d.host.Lease("link test")
	var bufs [4]*gpu.Buffer // two on the device, two on the host
	for i := range bufs {
		l := device
		if i >= 2 {
			l = host
		}
		b, err := l.Alloc(m.size)
		m.note(err)
		bufs[i] = b
	}
	defer func() {
		m.note(m.d.ctx.do(cuCtxSynchronize))
		for _, b := range bufs {
			b.Release()
		}
		m.note(device.Close())
		m.note(host.Close())
	}()
	// The pool allocated the memory for the stream of kernels: other streams may use it once the
	// kernels launched so far have finished.
	m.note(m.d.ctx.do(cuCtxSynchronize))
	if m.err != nil {
		return gpu.Link{}
	}
	up := func() { m.note(m.d.copyUp(host, bufs[0].Addr(), bufs[2].Addr(), m.size)) }
	down := func() { m.note(m.d.copyDown(host, bufs[3].Addr(), bufs[1].Addr(), m.size)) }
	within := func() {
		m.note(m.d.ctx.do(cuMemcpyDtoDAsync, bufs[0].Addr(), bufs[1].Addr(), uintptr(m.size), uintptr(m.d.compute)))
	}
	return gpu.Link{
		Up:   m.rate(1, up, m.d.up),
		Down: m.rate(1, down, m.d.down),
		Both: m.rate(2, func() { up(); down() }, m.d.up, m.d.down),
		Copy: m.rate(2, within, m.d.compute),
	}
}

func (m *linkTest) note(err error) {
	if m.err == nil {
		m.err = err
	}
}

// rate returns the speed in bytes per second of work on some streams that moves m.size bytes times
// times. It runs the work once to warm up.
func (m *linkTest) rate(times int64, work func(), on ...stream) float64 {
	m.once(work, on)
	best := 0.0
	for range linkRuns {
		took := m.once(work, on)
		best = max(best, float64(times*m.size)/took.Seconds())
	}
	return best
}

// once returns the time of work by the GPU's clock, from the start of the first stream
// until all streams have finished.
func (m *linkTest) once(work func(), on []stream) time.Duration {
	start := m.record(on[0])
	for _, s := range on[1:] {
		m.follow(s, start)
	}
	work()
	for _, s := range on[1:] {
		end := m.record(s)
		m.follow(on[0], end)
		m.d.recycle(end)
	}
	stop := m.record(on[0])
	defer m.d.recycle(start, stop)
	if m.err == nil {
		m.note(m.d.wait(stop))
	}
	if m.err != nil {
		return time.Second // an error: the value is not used
	}
	return max(m.d.trace.between(start, stop), time.Nanosecond)
}

func (m *linkTest) record(s stream) (e event) {
	if m.err == nil {
		var err error
		e, err = m.d.record(s)
		m.note(err)
	}
	return e
}

func (m *linkTest) follow(s stream, e event) {
	if m.err == nil {
		m.note(m.d.follow(s, e))
	}
}
