package cuda

import (
	"sync"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// stream and event are handles of the driver.
type (
	stream uintptr
	event  uintptr
)

// eventBlocking makes a thread that waits for an event sleep instead of spin, because the cores are
// busy with decoding.
const eventBlocking = 1

// eventPool keeps events for reuse.
type eventPool struct {
	mu   sync.Mutex
	free []event
	all  []event
}

// event returns an event that measures time. recycle returns it to the pool.
func (d *Device) event() (event, error) {
	p := &d.events
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		e := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return e, nil
	}
	p.mu.Unlock()
	var e event
	if err := d.ctx.do(cuEventCreate, uintptr(unsafe.Pointer(&e)), eventBlocking); err != nil {
		return 0, err
	}
	p.mu.Lock()
	p.all = append(p.all, e)
	p.mu.Unlock()
	return e, nil
}

func (d *Device) recycle(events ...event) {
	p := &d.events
	p.mu.Lock()
	for _, e := range events {
		if e != 0 {
			p.free = append(p.free, e)
		}
	}
	p.mu.Unlock()
}

func (p *eventPool) close(d *Device) {
	for _, e := range p.all {
		_ = d.ctx.do(cuEventDestroy, uintptr(e))
	}
	p.all, p.free = nil, nil
}

// record puts a new event on a stream.
func (d *Device) record(s stream) (event, error) {
	e, err := d.event()
	if err != nil {
		return 0, err
	}
	if err := d.ctx.do(cuEventRecord, uintptr(e), uintptr(s)); err != nil {
		d.recycle(e)
		return 0, err
	}
	return e, nil
}

// follow makes later work on stream s wait for the event.
func (d *Device) follow(s stream, e event) error {
	return d.ctx.do(cuStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

// wait blocks until the event has happened.
func (d *Device) wait(e event) error { return d.ctx.do(cuEventSynchronize, uintptr(e)) }

// happened reports whether an event has happened.
func (d *Device) happened(e event) bool { return d.ctx.do(cuEventQuery, uintptr(e)) == nil }

// deferred is a call to make once an event has happened.
type deferred struct {
	event event
	do    func(err error)
}

// afterwards is the calls that are deferred, in order. Those after copies do not wait for kernels: they give host
// memory back, which the next strides need.
type afterwards struct{ copies, kernels, received chan deferred }

// after calls do on another goroutine, once the event has happened or failed and all calls that were deferred earlier
// to the same channel have returned. Event 0 has always happened.
func after(to chan<- deferred, e event, do func(err error)) { to <- deferred{e, do} }

// reap makes the deferred calls, in order.
func (d *Device) reap(calls <-chan deferred) {
	defer d.reaped.Done()
	for w := range calls {
		var err error
		if w.event != 0 {
			err = d.wait(w.event)
		}
		if err != nil { // memory must not be released before its copy has ended
			_ = d.ctx.do(cuCtxSynchronize)
		}
		w.do(err)
	}
}

// kernelEvents are events in the stream of kernels that copies down wait for.
type kernelEvents struct {
	mu     sync.Mutex
	last   gpu.Event
	events [64]event // the last events; event i is events[i % 64]
}

// RecordEvent implements gpu.EventRecorder. After a failure it returns 0, which means no point in
// time; the next primitive reports the failure.
func (d *Device) RecordEvent() gpu.Event {
	if d.Wait() != nil {
		return 0
	}
	m := &d.kernelEvents
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &m.events[(m.last+1)%gpu.Event(len(m.events))]
	if *e == 0 {
		var err error
		if *e, err = d.event(); err != nil {
			return 0
		}
	}
	if d.ctx.do(cuEventRecord, uintptr(*e), uintptr(d.compute)) != nil {
		return 0
	}
	m.last++
	return m.last
}

// followKernels makes later work on a stream wait for the kernels that were launched before an
// event. If there is no event, or it is older than the events that are kept, the work waits for all
// kernels that have been launched.
func (d *Device) followKernels(s stream, until gpu.Event) error {
	return d.followKernelsOf(d, s, until)
}

// followKernelsOf is followKernels of the kernels of another device.
func (d *Device) followKernelsOf(of *Device, s stream, until gpu.Event) error {
	m := &of.kernelEvents
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := gpu.Event(len(m.events)); until > 0 && until+n > m.last {
		return d.follow(s, m.events[until%n])
	}
	e, err := of.record(of.compute)
	if err != nil {
		return err
	}
	defer of.recycle(e)
	return d.follow(s, e)
}
