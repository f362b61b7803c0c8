package cuda

import (
	"cmp"
	stdcontext "context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/gstream/gstream/gpu"
)

// ncclCall is a function of NCCL.
type ncclCall int

// The functions of NCCL that we use, in the order of their names below.
const (
	ncclGetUniqueID ncclCall = iota
	ncclCommInitRank
	ncclCommGetAsyncError
	ncclCommAbort
	ncclGroupStart
	ncclGroupEnd
	ncclSend
	ncclRecv
	ncclGetErrorString
	ncclGetLastError
	ncclCalls
)

// ncclSymbols are the names under which the library exports the functions. The first form of CommInitRank takes the id
// by value, the one here by its address.
var ncclSymbols = [ncclCalls]string{"ncclGetUniqueId", "ncclCommInitRankScalable",
	"ncclCommGetAsyncError", "ncclCommAbort", "ncclGroupStart", "ncclGroupEnd", "ncclSend", "ncclRecv",
	"ncclGetErrorString", "ncclGetLastError"}

const (
	ncclLibrary    = "libnccl.so.2"
	ncclNeeded     = "2.23"
	ncclIDBytes    = 128
	ncclUint8      = 1
	ncclInProgress = 7
)

// nccl is the library, opened at run time.
type nccl struct{ addr [ncclCalls]uintptr }

// openedNCCL has the libraries that are open, by their paths.
var openedNCCL struct {
	sync.Mutex
	by map[string]*nccl
}

// openNCCL opens the library, once.
func openNCCL(library string) (*nccl, error) {
	openedNCCL.Lock()
	defer openedNCCL.Unlock()
	if n := openedNCCL.by[library]; n != nil {
		return n, nil
	}
	// Only collective operations use NVLink's multicast, and its set-up fails in some containers.
	if os.Getenv("NCCL_NVLS_ENABLE") == "" {
		_ = os.Setenv("NCCL_NVLS_ENABLE", "0")
	}
	path := cmp.Or(library, ncclLibrary)
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be opened (%w): install NCCL %s or newer, or name its folder in "+
			"LD_LIBRARY_PATH", path, err, ncclNeeded)
	}
	n := &nccl{}
	for c, name := range ncclSymbols {
		if n.addr[c], err = purego.Dlsym(lib, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: install NCCL %s or newer", path, name, ncclNeeded)
		}
	}
	if openedNCCL.by == nil {
		openedNCCL.by = map[string]*nccl{}
	}
	openedNCCL.by[library] = n
	return n, nil
}

// do calls a function.
//
//go:uintptrescapes
func (n *nccl) do(c ncclCall, args ...uintptr) error {
	code, _, _ := purego.SyscallN(n.addr[c], args...)
	if int32(code) == 0 {
		return nil
	}
	text := func(c ncclCall, arg uintptr) string {
		s, _, _ := purego.SyscallN(n.addr[c], arg)
		return cString(s)
	}
	e := fmt.Sprintf("%s: %s (%d)", ncclSymbols[c], text(ncclGetErrorString, code), int32(code))
	if last := strings.TrimSpace(text(ncclGetLastError, 0)); last != "" {
		e += ": " + last
	}
	return errors.New(e)
}

// cString returns the text at an address, at most a page of it.
func cString(at uintptr) string {
	if at == 0 {
		return ""
	}
	p := *(**byte)(unsafe.Pointer(&at))
	n := 0
	for n < 4096 && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return strings.Clone(unsafe.String(p, n))
}

// CommunicatorID returns a name for the communicators of several processes, of which one has a device. One of them
// makes it, and the others learn it from that one.
func CommunicatorID(device gpu.Device) ([]byte, error) {
	_, n, err := ncclOf(device)
	if err != nil {
		return nil, err
	}
	id := make([]byte, ncclIDBytes)
	return id, n.do(ncclGetUniqueID, uintptr(unsafe.Pointer(&id[0])))
}

// communicator implements gpu.Communicator by NCCL: over NVLink or shared memory within a machine, and over the network
// between machines, from device memory to device memory where the network card can read it.
type communicator struct {
	*nccl
	dev    *Device
	handle uintptr
	stream stream
	aborts sync.Once
}

// NewCommunicator connects the GPUs of size processes, of which this one is a rank. It waits for all of them to do so,
// or for ctx to end; the process can then only end.
func NewCommunicator(ctx stdcontext.Context, device gpu.Device, id []byte, rank, size int) (gpu.Communicator, error) {
	d, n, err := ncclOf(device)
	if err != nil {
		return nil, err
	}
	if err := d.Wait(); err != nil {
		return nil, err
	}
	if len(id) != ncclIDBytes {
		return nil, fmt.Errorf("the name of a communicator has %d bytes, not %d", len(id), ncclIDBytes)
	}
	c := &communicator{nccl: n, dev: d}
	done := make(chan error, 1)
	go func() {
		own := append([]byte(nil), id...)
		done <- c.inContext(func() error {
			return n.do(ncclCommInitRank, uintptr(unsafe.Pointer(&c.handle)), uintptr(size), uintptr(rank), 1,
				uintptr(unsafe.Pointer(&own[0])), 0)
		})
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		return nil, stdcontext.Cause(ctx)
	}
	if err == nil {
		err = d.ctx.do(cuStreamCreate, uintptr(unsafe.Pointer(&c.stream)), streamNonBlocking)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect %s to those of other ranks: %w", d.id(), err), c.Close())
	}
	return c, nil
}

// ncclOf returns the library for a device. A driver's library that the device's options name has NCCL too.
func ncclOf(device gpu.Device) (*Device, *nccl, error) {
	d, ok := device.(*Device)
	if !ok {
		return nil, nil, fmt.Errorf("NCCL connects GPUs, and this process runs on %s: choose a GPU, or send rows by "+
			"TCP", device.Known().Name)
	}
	n, err := openNCCL(d.opt.Library)
	return d, n, err
}

// inContext calls a function on a thread to which the context of the GPU is current.
func (c *communicator) inContext(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.dev.ctx.do(cuCtxSetCurrent, c.dev.ctx.handle); err != nil {
		return err
	}
	return f()
}

// Alloc implements gpu.Communicator. The memory is for the stream of the communicator.
func (c *communicator) Alloc(l *gpu.Lease, n int64) (*gpu.Buffer, error) {
	return l.AllocFrom(streamPool{c.dev.pool, c.stream}, n)
}

// Exchange implements gpu.Communicator.
func (c *communicator) Exchange(ctx stdcontext.Context, ready []gpu.Event, send, receive []gpu.Part) error {
	defer stdcontext.AfterFunc(ctx, c.abort)() // it ends a call that waits for another rank
	for _, e := range ready {
		if err := c.dev.followKernels(c.stream, e); err != nil {
			return err
		}
	}
	err := c.inContext(func() error {
		err := c.do(ncclGroupStart)
		part := func(call ncclCall, p gpu.Part) {
			if err == nil {
				err = c.do(call, p.Buffer.Addr(), uintptr(p.Bytes), ncclUint8, uintptr(p.Rank), c.handle,
					uintptr(c.stream))
			}
		}
		for _, p := range send {
			part(ncclSend, p)
		}
		for _, p := range receive {
			part(ncclRecv, p)
		}
		return errors.Join(err, c.do(ncclGroupEnd))
	})
	if err == nil {
		err = c.wait(ctx)
	}
	if ctx.Err() != nil {
		err = stdcontext.Cause(ctx)
	}
	if err != nil {
		// Memory that is released now must not be written any more.
		c.abort()
		_ = c.dev.ctx.do(cuStreamSynchronize, uintptr(c.stream))
	}
	return err
}

// wait waits for what the stream does, and looks for failures of other ranks meanwhile.
func (c *communicator) wait(ctx stdcontext.Context) error {
	e, err := c.dev.record(c.stream)
	if err != nil {
		return err
	}
	defer c.dev.recycle(e)
	pause := 10 * time.Microsecond
	for ctx.Err() == nil {
		var failed *Error
		err := c.dev.ctx.do(cuEventQuery, uintptr(e))
		if err == nil || !errors.As(err, &failed) || failed.Code != notReady {
			return err
		}
		var state int32
		err = c.do(ncclCommGetAsyncError, c.handle, uintptr(unsafe.Pointer(&state)))
		if err == nil && state != 0 && state != ncclInProgress {
			text, _, _ := purego.SyscallN(c.addr[ncclGetErrorString], uintptr(state))
			err = fmt.Errorf("NCCL: %s (%d)", cString(text), state)
		}
		if err != nil {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, time.Millisecond)
	}
	return stdcontext.Cause(ctx)
}

// notReady is the driver's code of work that has not ended.
const notReady = 600

// abort ends all calls, and the communicator.
func (c *communicator) abort() {
	c.aborts.Do(func() {
		if c.handle != 0 {
			_ = c.inContext(func() error { return c.do(ncclCommAbort, c.handle) })
		}
	})
}

// Close implements gpu.Communicator. Nothing is under way, so that aborting loses nothing, and waits for nobody.
func (c *communicator) Close() error {
	c.abort()
	if c.stream == 0 {
		return nil
	}
	return c.dev.ctx.do(cuStreamDestroy, uintptr(c.stream))
}
