package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/gstream/gstream/gpu"
)

// call is a function of the driver API.
type call int

// The functions of the driver that we use, in the order of their names below.
const (
	cuInit call = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetAttribute
	cuDeviceTotalMem
	cuDeviceCanAccessPeer
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuCtxSynchronize
	cuMemGetInfo
	cuMemPoolCreate
	cuMemPoolDestroy
	cuMemPoolSetAttribute
	cuMemPoolTrimTo
	cuMemPoolSetAccess
	cuMemAllocFromPoolAsync
	cuMemFreeAsync
	cuMemHostAlloc
	cuMemFreeHost
	cuMemHostRegister
	cuMemHostUnregister
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemcpyBatchAsync
	cuMemcpyPeerAsync
	cuMemsetD8Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamWaitEvent
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventQuery
	cuEventSynchronize
	cuEventElapsedTime
	cuModuleLoadData
	cuModuleUnload
	cuModuleGetFunction
	cuFuncGetAttribute
	cuFuncGetParamInfo
	cuFuncSetAttribute
	cuLaunchKernel
	cuMemAddressReserve
	cuMemAddressFree
	cuMemGetAllocationGranularity
	cuMemCreate
	cuMemRelease
	cuMemMap
	cuMemUnmap
	cuMemSetAccess
	calls
)

// symbols are the names under which the driver exports the functions. A suffix is the
// version of a function's arguments.
var symbols = [calls]string{
	"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
	"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceTotalMem_v2",
	"cuDeviceCanAccessPeer",
	"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent", "cuCtxSynchronize",
	"cuMemGetInfo_v2", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolSetAttribute", "cuMemPoolTrimTo",
	"cuMemPoolSetAccess",
	"cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister_v2",
	"cuMemHostUnregister",
	"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyBatchAsync_v2",
	"cuMemcpyPeerAsync", "cuMemsetD8Async",
	"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamWaitEvent",
	"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuEventElapsedTime",
	"cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction",
	"cuFuncGetAttribute", "cuFuncGetParamInfo", "cuFuncSetAttribute", "cuLaunchKernel",
	"cuMemAddressReserve", "cuMemAddressFree", "cuMemGetAllocationGranularity", "cuMemCreate", "cuMemRelease",
	"cuMemMap", "cuMemUnmap", "cuMemSetAccess",
}

// needed is the oldest driver that has every function above and that runs the PTX in the fatbins.
// GPUs for which the fatbins have no machine code need the PTX.
const needed = "580 (CUDA 13.0)"

func (c call) String() string { return symbols[c] }

// ErrNoDriver means that this machine has no NVIDIA driver. It is the only failure of Open that
// needs no warning.
var ErrNoDriver = errors.New("no NVIDIA driver")

// Error is a failed call of the driver.
type Error struct {
	Call string // the driver's function
	Code int    // CUresult
	Name string // such as CUDA_ERROR_OUT_OF_MEMORY
	Text string // the driver's description
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
	if hint := e.hint(); hint != "" {
		s += "; " + hint
	}
	return s
}

// failedOn is an error of the driver with the GPU that it is of.
type failedOn struct {
	error
	gpu string
}

func (e *failedOn) Unwrap() error { return e.error }

// FailedGPU returns the name of the GPU whose call of the driver has failed, as in "cuda:1", or "" for other errors. A
// queue that waits for the kernels of another GPU fails with an error of that.
func FailedGPU(err error) string {
	var f *failedOn
	if !errors.As(err, &f) {
		return ""
	}
	return f.gpu
}

// Sticky reports whether the error breaks the process's use of the GPU: all device memory
// is lost and every further call fails.
func (e *Error) Sticky() bool {
	switch e.Code {
	case 214, 220, // uncorrectable memory error, NVLink
		700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 721, 999:
		return true
	}
	return false
}

// PageLocks reports whether the call that failed page-locks host memory.
func (e *Error) PageLocks() bool {
	return e.Call == cuMemHostRegister.String() || e.Call == cuMemHostAlloc.String()
}

// hint returns what the user can do about the error.
func (e *Error) hint() string {
	switch {
	case e.Code == 2 && e.Call == cuMemHostRegister.String():
		return fmt.Sprintf("the system has no room for so much page-locked memory: lower %v, or stop what else runs",
			gpu.HostMemory)
	case e.Code == 2:
		return fmt.Sprintf("other programs use the GPU's memory: lower %v, or stop them", gpu.DeviceMemory)
	case e.Code == 100:
		return "no GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES"
	case e.Code == 209 || e.Code == 222:
		return "the driver does not run these kernels: install driver " + needed + " or newer"
	case e.Code == 304:
		return "the operating system refused: look at ulimit -l and at the permissions of /dev/nvidia*"
	case e.Code == 803 || e.Code == 804:
		return "the driver library and the kernel module differ in version: reboot, or reinstall the driver"
	case e.Sticky():
		return fmt.Sprintf("the GPU is unusable for the rest of this process: run again, or with %v; if it happens "+
			"again, report it with nvidia-smi's output and the lines of dmesg with Xid", gpu.UseHost)
	}
	return ""
}

// driver is the CUDA driver API, opened at run time. Any goroutine may call its methods.
type driver struct {
	addr    [calls]uintptr
	version int // as 13000 for CUDA 13.0

	starting   sync.Once
	startError error
}

// ErrUnusable is the class of every error of a machine that has a driver, but whose GPU cannot be
// started.
var ErrUnusable = errors.New("the GPU cannot be used")

// openDriver opens the driver library and binds its functions.
func openDriver(library string) (*driver, error) {
	if library == "" {
		library = "libcuda.so.1"
	}
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be opened", ErrNoDriver, library)
	}
	d := &driver{}
	for c, name := range symbols {
		addr, err := purego.Dlsym(lib, name)
		if err != nil {
			return nil, fmt.Errorf("the NVIDIA driver is too old: %s has no %s; install driver %s or newer", library,
				name, needed)
		}
		d.addr[c] = addr
	}
	return d, nil
}

// started reports whether something in the process has initialised the driver.
func (d *driver) started() bool {
	var n int32
	return d.do(cuDeviceGetCount, uintptr(unsafe.Pointer(&n))) == nil
}

// start initialises the driver, which takes a tenth of a second, plus some 0.3 s for each visible
// GPU after the first. The GPUs of a group start at the same time: the first one does it, and the others wait.
func (d *driver) start() error {
	d.starting.Do(func() {
		if err := d.do(cuInit, 0); err != nil {
			d.startError = fmt.Errorf("start the NVIDIA driver: %w", err)
			return
		}
		var version int32
		d.startError = d.do(cuDriverGetVersion, uintptr(unsafe.Pointer(&version)))
		d.version = int(version)
	})
	return d.startError
}

// do calls a function that needs no context.
//
//go:uintptrescapes
func (d *driver) do(c call, args ...uintptr) error {
	code, _, _ := purego.SyscallN(d.addr[c], args...)
	if code != 0 {
		return d.error(c, int(int32(code)))
	}
	return nil
}

func (d *driver) error(c call, code int) *Error {
	text := func(c call) string {
		var s *byte
		if r, _, _ := purego.SyscallN(d.addr[c], uintptr(code), uintptr(unsafe.Pointer(&s))); int32(r) != 0 ||
			s == nil {
			return "unknown"
		}
		b := unsafe.Slice(s, 256)
		n := 0
		for n < len(b) && b[n] != 0 {
			n++
		}
		return strings.Clone(string(b[:n]))
	}
	return &Error{Call: c.String(), Code: code, Name: text(cuGetErrorName), Text: text(cuGetErrorString)}
}

// context is the primary context of one GPU. A context is current to a thread, not to a
// goroutine, so every call first makes it current on its thread.
type context struct {
	*driver
	gpu    string // as in "cuda:1"
	handle uintptr
	// broken is the first sticky error. Every later call returns it.
	broken atomic.Pointer[Error]
	// fault, when set, may fail a call before it is made: for tests of failures.
	fault func(call string) error
}

// do calls a function of the driver in the context.
//
//go:uintptrescapes
func (c *context) do(fn call, args ...uintptr) error {
	if e := c.broken.Load(); e != nil {
		return c.failed(e)
	}
	if c.fault != nil {
		if err := c.fault(fn.String()); err != nil {
			return c.failed(err)
		}
	}
	runtime.LockOSThread()
	code, _, _ := purego.SyscallN(c.addr[cuCtxSetCurrent], c.handle)
	if code == 0 {
		code, _, _ = purego.SyscallN(c.addr[fn], args...)
	}
	runtime.UnlockOSThread()
	if code == 0 {
		return nil
	}
	e := c.error(fn, int(int32(code)))
	if e.Sticky() {
		c.broken.CompareAndSwap(nil, e)
	}
	return c.failed(e)
}

// failed notes the GPU of an error.
func (c *context) failed(err error) error { return &failedOn{err, c.gpu} }
