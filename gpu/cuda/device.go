// Package cuda runs the primitives of package gpu on an NVIDIA GPU. It opens the driver at run
// time, so that one binary serves machines with and without a GPU, and it contains its kernels
// compiled. It owns the device's memory pool, and the page-locked host memory from which strides
// are copied. It knows nothing about files or operators. It never computes on the CPU what a kernel
// can compute.
//
// A device has three streams: copies up, kernels, copies down. All kernels of all queues
// run on one stream, in the order of their launch. Memory is freed in that order too, so
// a buffer may be released as soon as the last kernel that uses it has been launched.
package cuda

import (
	"cmp"
	"fmt"
	"sync"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/gpu/internal/machine"
)

// Options configure a device; the zero value uses most of the first GPU.
type Options struct {
	// Ordinal is the number of the GPU in the driver's numbering, with all GPUs visible that the environment allows.
	Ordinal int
	// Memory is the budget of device memory in bytes; 0 means 80 % of the free memory.
	Memory int64
	// HostMemory is the budget of page-locked host memory in bytes; 0 means half of the
	// free memory.
	HostMemory int64
	// Alone means that the process uses no other GPU, or those of a group. Then only they are made visible to the
	// driver, by the process's environment, because the driver takes some 0.3 s to start each
	// visible GPU. Alone has no effect if the driver has started, or if it is unknown which GPUs
	// exist.
	Alone bool
	// StrideBytes is the desired size in bytes of a column in a stride that crosses the link; 0
	// means the default.
	StrideBytes int64
	// Ahead makes Open return immediately and start the GPU in the background, which takes some
	// tenths of a second. Until then host memory can be allocated, so decoding can begin. Host and
	// device memory is reserved in advance, as far as the budgets allow. NewQueue waits until the
	// GPU has started, and returns the error if it cannot start.
	Ahead bool
	// Library is the library of the driver and of NCCL; "" means libcuda.so.1 and libnccl.so.2.
	Library string
	// Fault, when set, is called with the name of every driver function before the call,
	// and may fail it: for tests of failures.
	Fault func(call string) error
	// FaultOn is Fault with the number of the GPU.
	FaultOn func(ordinal int, call string) error
}

// properties are the properties of the GPU that determine the sizes of launches.
type properties struct {
	name              string
	multiprocessors   int
	sharedPerBlock    int // maximum bytes of a block
	l2                int // bytes
	major, minor      int // compute capability
	memory, free      int64
	hostNUMA, ordinal int
	virtualMemory     bool
}

// Device is one GPU as a gpu.Device.
type Device struct {
	ctx     *context
	props   properties
	opt     Options
	budget  *gpu.Budget
	host    *gpu.Budget
	pool    *pool
	pinned  *pinned
	kernels *kernels
	trace   *trace
	// readback is memory in which kernels store results for which the host waits.
	readback readback

	// The streams: copies up, kernels, decoding of pages, copies down, copies from peers.
	up, compute, decode, down, in stream
	// active has kernels that wait for memory to change, once there is one; its lock serialises their submission.
	active struct {
		sync.Mutex
		stream
	}
	// peers are the other GPUs of a group, from which strides are copied. started counts the GPUs of the group that
	// have not tried to start yet.
	peers   []*Device
	started *sync.WaitGroup
	// admitted are the GPUs that have access to the memory of this one.
	admitted []accessDesc

	// uploads serialises work on the stream of copies up, downloads work on the stream of
	// copies down, receiving work on that of copies from peers.
	uploads, downloads, receiving sync.Mutex

	// computing serialises the submission of a primitive's work to the stream of kernels,
	// and calls during which the driver launches nothing.
	computing sync.Mutex

	// ready is closed when the GPU has started. If it could not start, failure is the
	// error.
	ready   chan struct{}
	failure error
	// known is closed when the driver has told the memory of the GPU, or has failed.
	known        chan struct{}
	events       eventPool
	kernelEvents kernelEvents
	later        afterwards
	decodings    decodings
	reaped       sync.WaitGroup

	mu     sync.Mutex
	tables map[string]uintptr // by name
	// arrivals has the strides that were copied up ahead, before Wait is called.
	arrivals map[*gpu.Stride]arrival
	setUp    []setUpSpan

	link func() (gpu.Link, error)
}

// The driver's numbers of device attributes.
const (
	attrMultiprocessors = 16
	attrL2              = 38
	attrMajor           = 75
	attrMinor           = 76
	attrSharedOptIn     = 97
	attrVirtualMemory   = 102
	attrMemoryPools     = 115
	attrHostNUMA        = 134
	minMajor            = 8
	streamNonBlocking   = 1
	defaultColumnBytes  = 16 << 20
	pagesColumnBytes    = 64 << 20
	slowColumnBytes     = 256 << 20
	largestStride       = 1 << 26
	// aheadSpare is the number of bytes that Ahead maps in advance beyond those in use.
	aheadSpare = 1 << 29
)

// Count returns the number of GPUs. Without a driver the error matches ErrNoDriver.
func Count(library string) (int, error) {
	d, err := openDriver(library)
	if err != nil {
		return 0, err
	}
	if err := d.start(); err != nil {
		return 0, err
	}
	var n int32
	if err := d.do(cuDeviceGetCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return 0, fmt.Errorf("count GPUs: %w", err)
	}
	return int(n), nil
}

// Open opens a GPU.
func Open(opt Options) (*Device, error) {
	all, err := open(opt, []int{opt.Ordinal})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// open opens GPUs that share page-locked memory and its budget.
func open(opt Options, ordinals []int) (all []*Device, err error) {
	if opt.Memory < 0 || opt.HostMemory < 0 || opt.StrideBytes < 0 {
		return nil, fmt.Errorf("open GPU %d: memory sizes must not be negative", ordinals[0])
	}
	drv, err := openDriver(opt.Library)
	if err != nil {
		return nil, err
	}
	if opt.Alone {
		showAlone(drv, ordinals)
	}
	host := opt.HostMemory
	if host == 0 {
		_, free := machine.Memory()
		host = grant.HostBudget.Of(free)
	}
	var started sync.WaitGroup
	started.Add(len(ordinals))
	for _, n := range ordinals {
		d := &Device{opt: opt, started: &started, tables: map[string]uintptr{}, arrivals: map[*gpu.Stride]arrival{}}
		if d.opt.Ordinal = n; opt.FaultOn != nil {
			d.opt.Fault = func(call string) error { return opt.FaultOn(n, call) }
		}
		d.pool = &pool{dev: d}
		d.budget = gpu.NewBudget("device", gpu.DeviceMemory, opt.Memory, d.pool)
		if len(all) == 0 {
			d.pinned = newPinned(d)
			d.host = gpu.NewBudget(hostTier, gpu.HostMemory, host, d.pinned)
		} else {
			d.pinned, d.host = all[0].pinned, all[0].host
		}
		d.link = sync.OnceValues(d.measureLink)
		d.ready, d.known = make(chan struct{}), make(chan struct{})
		all = append(all, d)
	}
	for _, d := range all {
		for _, peer := range all {
			if peer != d {
				d.peers = append(d.peers, peer)
			}
		}
	}
	if opt.Ahead {
		all[0].pinned.premap(grant.PinnedAhead.Of(host))
	}
	for _, d := range all {
		go d.start(drv)
	}
	if opt.Ahead {
		return all, nil
	}
	for _, d := range all {
		err = cmp.Or(err, d.Wait())
	}
	if err != nil {
		closeAll(all)
		return nil, err
	}
	return all, nil
}

// start starts the GPU.
func (d *Device) start(drv *driver) {
	defer close(d.ready)
	end := d.setsUp("driver")
	handle, err := d.find(drv)
	end()
	close(d.known)
	if err == nil {
		err = d.open(drv, handle)
	}
	if err != nil {
		d.failure = fmt.Errorf("open GPU %d: %w: %w", d.opt.Ordinal, ErrUnusable, err)
	}
	d.started.Done()
	if err == nil && len(d.peers) > 0 {
		d.started.Wait()
		d.admit()
	}
}

// Wait waits until the GPU has started, and returns the error if it could not start.
func (d *Device) Wait() error {
	<-d.ready
	return d.failure
}

// Works reports whether the GPU has started and no failure has broken it.
func (d *Device) Works() bool { return d.Wait() == nil && d.ctx.broken.Load() == nil }

// find starts the driver, and finds the GPU. Until open knows how much of its memory is free, the budget is
// a share of all of it.
func (d *Device) find(drv *driver) (handle int32, err error) {
	if err := drv.start(); err != nil {
		return 0, err
	}
	var count int32
	if err := drv.do(cuDeviceGetCount, uintptr(unsafe.Pointer(&count))); err != nil {
		return 0, err
	}
	number, err := numbered(d.opt.Ordinal, int(count))
	if err != nil {
		return 0, err
	}
	if err := drv.do(cuDeviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(number)); err != nil {
		return 0, err
	}
	if err := d.readProperties(drv, handle); err != nil {
		return 0, err
	}
	if d.opt.Memory == 0 {
		d.budget.SetLimit(grant.DeviceBudget.Of(d.props.memory))
	}
	return handle, nil
}

func (d *Device) open(drv *driver, handle int32) error {
	if d.props.major < minMajor {
		return fmt.Errorf("%s has compute capability %d.%d, 8.0 (Ampere) is the least", d.props.name, d.props.major,
			d.props.minor)
	}
	d.ctx = &context{driver: drv, gpu: d.id(), fault: d.opt.Fault}
	end := d.setsUp("context")
	err := drv.do(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&d.ctx.handle)), uintptr(handle))
	end()
	if err != nil {
		return err
	}
	defer d.setsUp("streams and pool")()
	return d.openContext()
}

func (d *Device) readProperties(drv *driver, handle int32) error {
	p := &d.props
	p.ordinal = int(handle)
	var name [256]byte
	if err := drv.do(cuDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), uintptr(handle)); err != nil {
		return err
	}
	for i, c := range name {
		if c == 0 {
			p.name = string(name[:i])
			break
		}
	}
	var total uint64
	if err := drv.do(cuDeviceTotalMem, uintptr(unsafe.Pointer(&total)), uintptr(handle)); err != nil {
		return err
	}
	p.memory = int64(total)
	var virtual, pools int
	for _, a := range []struct {
		attribute int
		to        *int
	}{
		{attrMultiprocessors, &p.multiprocessors},
		{attrMajor, &p.major}, {attrMinor, &p.minor}, {attrSharedOptIn, &p.sharedPerBlock}, {attrL2, &p.l2},
		{attrVirtualMemory, &virtual}, {attrMemoryPools, &pools}, {attrHostNUMA, &p.hostNUMA},
	} {
		var v int32
		if err := drv.do(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a.attribute),
			uintptr(handle)); err != nil {
			return err
		}
		*a.to = int(v)
	}
	p.virtualMemory = virtual != 0
	if pools == 0 {
		return fmt.Errorf("%s has no stream-ordered memory pools", p.name)
	}
	return nil
}

func (d *Device) openContext() error {
	var free, total uint64
	if err := d.ctx.do(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total))); err != nil {
		return err
	}
	d.props.free = int64(free)
	streams := []*stream{&d.up, &d.compute, &d.decode, &d.down}
	if len(d.peers) > 0 {
		streams = append(streams, &d.in)
	}
	for _, s := range streams {
		if err := d.ctx.do(cuStreamCreate, uintptr(unsafe.Pointer(s)), streamNonBlocking); err != nil {
			return err
		}
	}
	if err := d.pool.open(); err != nil {
		return err
	}
	if d.opt.Memory == 0 {
		d.budget.SetLimit(grant.DeviceBudget.Of(d.props.free))
	}
	if err := d.readback.open(d); err != nil {
		return err
	}
	d.kernels = newKernels(d)
	for _, calls := range []*chan deferred{&d.later.copies, &d.later.kernels, &d.later.received} {
		*calls = make(chan deferred, 1024)
		d.reaped.Add(1)
		go d.reap(*calls)
	}
	var err error
	if d.trace, err = newTrace(d); err != nil {
		return err
	}
	if d.opt.Ahead {
		d.pool.prepare(grant.PoolAhead.Of(d.budget.Limit()))
	}
	return nil
}

const kind = "cuda"

var capabilities = gpu.Capabilities{BlockTables: true, PartitionedJoins: true, PairOutputs: true, SortedTables: true,
	DecodePages: true, EncodePages: true}

// Unopened returns the properties of a GPU that are known before one is opened.
func Unopened() gpu.Properties {
	return gpu.Properties{Name: "a GPU", Kind: kind, Capabilities: capabilities}
}

// Ordinal returns the number of the GPU, as in Options.
func (d *Device) Ordinal() int { return d.opt.Ordinal }

// id returns the name by which a job asks for the GPU.
func (d *Device) id() string { return fmt.Sprintf("cuda:%d", d.opt.Ordinal) }

// Known implements gpu.Device.
func (d *Device) Known() gpu.Properties {
	p := Unopened()
	p.ID = d.id()
	return p
}

// Properties implements gpu.Device.
func (d *Device) Properties() gpu.Properties {
	if err := d.Wait(); err != nil {
		return gpu.Properties{Name: "unusable GPU", Kind: kind, ID: d.id(), Details: err.Error(),
			Capabilities: capabilities}
	}
	details := fmt.Sprintf("compute capability %d.%d, driver for CUDA %d.%d", d.props.major, d.props.minor,
		d.ctx.version/1000, d.ctx.version%1000/10)
	return gpu.Properties{Name: d.props.name, Kind: kind, ID: d.id(), Cores: d.props.multiprocessors,
		Capabilities: capabilities,
		Memory:       d.props.memory, Free: d.props.free, L2: int64(d.props.l2), Shared: int64(d.props.sharedPerBlock),
		Details: details}
}

// Budget implements gpu.Device.
func (d *Device) Budget() *gpu.Budget { return d.budget }

// HostBudget implements gpu.Device.
func (d *Device) HostBudget() *gpu.Budget { return d.host }

// StrideRows implements gpu.Device. Copies below 8 MB waste the link, so a column of
// 8-byte values gets twice that, and a column of 4-byte values just enough. A whole
// stride is bounded, absolutely and as a share of the budgets of device and host, which
// hold several strides at a time, but not below grant.GPUShortStride, since the launches for a
// stride take as long as the link takes for so many bytes.
func (d *Device) StrideRows(rowBytes int) int {
	budget := min(d.budget.Limit(), d.host.Limit())
	share := grant.GPUStride.Of(budget)
	if short := grant.GPUShortStride.Of(budget); short == grant.GPUShortStride.Most {
		share = max(share, short)
	}
	return strideRows(rowBytes, cmp.Or(d.opt.StrideBytes, defaultColumnBytes), share)
}

// PagesStrideRows implements gpu.Device. The pages of four times as many rows keep a GPU busy, and take as much of
// the link as values do.
func (d *Device) PagesStrideRows(rowBytes int, slow bool) int {
	<-d.known
	rows := d.StrideRows(rowBytes)
	if d.opt.StrideBytes != 0 {
		return rows
	}
	budget, column := min(d.budget.Limit(), d.host.Limit()), int64(pagesColumnBytes)
	share := grant.PagesStride.Of(budget)
	if slow {
		column, share = slowColumnBytes, grant.SlowPagesStride.Of(budget)
	}
	return max(rows, strideRows(rowBytes, column, share))
}

// strideRows returns the rows of a stride of which a column of 8-byte values takes so many bytes, and all columns
// at most most.
func strideRows(rowBytes int, column, most int64) int {
	rows := min(column/8, most/int64(max(rowBytes, 1)), largestStride)
	return int(max(rows, 1<<10))
}

// Close waits for the device and releases all its resources.
func (d *Device) Close() error {
	var first error
	note := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	<-d.ready
	ownsPinned := d.pinned.dev == d
	if ownsPinned {
		d.pinned.stop()
	}
	if d.ctx == nil || d.ctx.handle == 0 {
		if ownsPinned {
			return d.pinned.close()
		}
		return nil
	}
	d.decodings.running.Wait()
	if d.later.kernels != nil {
		close(d.later.copies)
		close(d.later.kernels)
		close(d.later.received)
		d.reaped.Wait()
	}
	if d.compute != 0 {
		note(d.ctx.do(cuCtxSynchronize))
	}
	if d.trace != nil {
		d.trace.close()
	}
	for _, t := range d.tables {
		note(d.pool.free(t))
	}
	if d.kernels != nil {
		d.kernels.close()
	}
	note(d.readback.close(d))
	note(d.pool.close())
	if ownsPinned {
		note(d.pinned.close())
	}
	d.events.close(d)
	for _, s := range []stream{d.up, d.compute, d.decode, d.down, d.in, d.active.stream} {
		if s != 0 {
			note(d.ctx.do(cuStreamDestroy, uintptr(s)))
		}
	}
	if err := d.ctx.driver.do(cuDevicePrimaryCtxRelease, uintptr(d.props.ordinal)); err != nil {
		note(err)
	}
	if first != nil {
		return fmt.Errorf("close %s: %w", d.props.name, first)
	}
	return nil
}

// activeStream returns the stream of kernels that wait for memory to change. The caller holds its lock.
func (d *Device) activeStream() (stream, error) {
	if d.active.stream != 0 {
		return d.active.stream, nil
	}
	err := d.ctx.do(cuStreamCreate, uintptr(unsafe.Pointer(&d.active.stream)), streamNonBlocking)
	return d.active.stream, err
}

// table returns the device address of a constant table. The table is made and uploaded at
// the first call, and lives as long as the device.
func (d *Device) table(name string, make func() []byte) (uintptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if addr, ok := d.tables[name]; ok {
		return addr, nil
	}
	src := make()
	addr, err := d.pool.take(int64(len(src)), d.compute)
	if err != nil {
		return 0, &gpu.AllocError{Stage: "table " + name, Tier: "device", Size: int64(len(src)), Err: err}
	}
	// The source is pageable, so the driver has read it when the call returns.
	if err := d.ctx.do(cuMemcpyHtoDAsync, addr, uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)),
		uintptr(d.compute)); err != nil {
		_ = d.pool.free(addr)
		return 0, err
	}
	d.tables[name] = addr
	return addr, nil
}
