package emulator_test

import (
	"math"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda/emulator"
)

// driver is the part of the library that the tests call.
type driver struct {
	t       *testing.T
	context uintptr
	module  uintptr

	Init   func(flags uint32) int32 `lib:"cuInit"`
	Retain func(ctx *uintptr,
		device int32) int32 `lib:"cuDevicePrimaryCtxRetain"`
	Release    func(device int32) int32 `lib:"cuDevicePrimaryCtxRelease_v2"`
	SetCurrent func(ctx uintptr) int32  `lib:"cuCtxSetCurrent"`
	Alloc      func(p *uint64,
		n uint64) int32 `lib:"cuMemAlloc_v2"`
	Free func(p uint64) int32 `lib:"cuMemFree_v2"`
	Up   func(to uint64, from unsafe.Pointer,
		n uint64) int32 `lib:"cuMemcpyHtoD_v2"`
	Down func(to unsafe.Pointer, from,
		n uint64) int32 `lib:"cuMemcpyDtoH_v2"`
	Load func(module *uintptr,
		image unsafe.Pointer) int32 `lib:"cuModuleLoadData"`
	Unload   func(module uintptr) int32 `lib:"cuModuleUnload"`
	Function func(f *uintptr, module uintptr,
		name string) int32 `lib:"cuModuleGetFunction"`
	SetAttribute func(f uintptr, attribute,
		value int32) int32 `lib:"cuFuncSetAttribute"`
	Pinned func(p *uintptr, n uint64,
		flags uint32) int32 `lib:"cuMemHostAlloc"`
	FreePinned func(p uintptr) int32 `lib:"cuMemFreeHost"`
	NewStream  func(s *uintptr,
		flags uint32) int32 `lib:"cuStreamCreate"`
	FreeStream  func(s uintptr) int32 `lib:"cuStreamDestroy_v2"`
	Synchronize func(s uintptr) int32 `lib:"cuStreamSynchronize"`
	UpOn        func(to uint64, from uintptr, n uint64,
		stream uintptr) int32 `lib:"cuMemcpyHtoDAsync_v2"`
	WaitFor  func(e uintptr) int32 `lib:"cuEventSynchronize"`
	NewEvent func(e *uintptr,
		flags uint32) int32 `lib:"cuEventCreate"`
	FreeEvent func(e uintptr) int32 `lib:"cuEventDestroy_v2"`
	Record    func(e,
		stream uintptr) int32 `lib:"cuEventRecord"`
	Elapsed func(ms *float32, from,
		to uintptr) int32 `lib:"cuEventElapsedTime"`
	Reserve func(p *uint64, n, align, hint,
		flags uint64) int32 `lib:"cuMemAddressReserve"`
	Unreserve func(p,
		n uint64) int32 `lib:"cuMemAddressFree"`
	Create func(h *uint64, n uint64, p unsafe.Pointer,
		f uint64) int32 `lib:"cuMemCreate"`
	Drop func(h uint64) int32 `lib:"cuMemRelease"`
	Map  func(p, n, offset, h,
		flags uint64) int32 `lib:"cuMemMap"`
	Unmap func(p,
		n uint64) int32 `lib:"cuMemUnmap"`
	Access func(p, n uint64, description unsafe.Pointer,
		c uint64) int32 `lib:"cuMemSetAccess"`
	FailAt func(function string, n int64,
		code int32) `lib:"emulatorFailAt"`
	Calls    func(function string) int64 `lib:"emulatorCalls"`
	Live     func() int64                `lib:"emulatorLive"`
	Schedule func(seed uint64)           `lib:"emulatorSchedule"`
	Launch   func(f uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, args,
		extra unsafe.Pointer) int32 `lib:"cuLaunchKernel"`
}

const (
	invalidValue      = 1
	invalidContext    = 201
	illegalAddress    = 700
	outOfResources    = 701
	misalignedAddress = 716
	launchFailed      = 719
)

func open(t *testing.T) *driver {
	library, err := purego.Dlopen(emulator.BuildKernels(t, "testdata/checks.cu"), purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	d := &driver{t: t}
	bind(d, library)
	require.Zero(t, d.Init(0))
	require.Zero(t, d.Retain(&d.context, 0))
	lockThread(t)
	require.Zero(t, d.SetCurrent(d.context))
	image := [1]byte{}
	require.Zero(t, d.Load(&d.module, unsafe.Pointer(&image)))
	t.Cleanup(func() {
		d.Schedule(0)
		d.Release(0)
		require.Zero(t, d.Live(), "nothing is left over")
	})
	return d
}

type numbers struct {
	out uint64
	n   int64
}

func (d *driver) launch(kernel string, grid, block, shared uint32, args numbers) int32 {
	d.t.Helper()
	var f uintptr
	require.Zero(d.t, d.Function(&f, d.module, kernel))
	return d.launchFunction(f, grid, block, shared, args)
}

func (d *driver) launchFunction(f uintptr, grid, block, shared uint32, args numbers) int32 {
	pointers := [1]unsafe.Pointer{unsafe.Pointer(&args)}
	return d.Launch(f, grid, 1, 1, block, 1, 1, shared, 0, unsafe.Pointer(&pointers), nil)
}

func (d *driver) alloc(bytes int) uint64 {
	d.t.Helper()
	var p uint64
	require.Zero(d.t, d.Alloc(&p, uint64(bytes)))
	require.Zero(d.t, p%256, "allocations are aligned to 256 bytes")
	return p
}

// results runs a kernel of n threads in total and returns what each thread wrote.
func (d *driver) results(kernel string, grid, block uint32) []uint64 {
	d.t.Helper()
	out := make([]uint64, grid*block)
	p := d.alloc(8 * len(out))
	require.Zero(d.t, d.launch(kernel, grid, block, 0, numbers{p, int64(len(out))}))
	require.Zero(d.t, d.Down(unsafe.Pointer(&out[0]), p, uint64(8*len(out))))
	require.Zero(d.t, d.Free(p))
	return out
}

func TestManyThreadsCostLittle(t *testing.T) {
	d := open(t)
	begin := time.Now()
	out := d.results("check_iota", 4096, 256)
	require.Less(t, time.Since(begin), 10*time.Second, "a million threads")
	for i, v := range out {
		if uint64(i) != v {
			require.Equal(t, uint64(i), v)
		}
	}
}

func TestBarriersAndShuffles(t *testing.T) {
	d := open(t)
	for _, seed := range []uint64{0, 1, 2, 3} {
		d.Schedule(seed)
		for _, block := range []uint32{32, 256, 1024} {
			for i, v := range d.results("check_scan", 3, block) {
				k, n := uint64(i)%uint64(block), uint64(block)
				require.Equal(t, k*(k-1)/2<<32|n*(n-1)/2, v, "thread %d of %d", k, block)
			}
		}
		for i, v := range d.results("check_barriers", 2, 64) {
			require.Equal(t, uint64(1<<16|0<<8|7), v, "thread %d", i)
		}
	}
}

func TestLanesMeetByMask(t *testing.T) {
	d := open(t)
	for i, v := range d.results("check_lanes", 1, 64) {
		lane := uint64(i % 32)
		var want uint64
		switch {
		case lane%2 == 1:
			want = 31 << 40
		case lane%4 == 0:
			want = 0x11100000
		case lane < 16:
			want = 0x4444
		default:
			want = 0x44440000
		}
		require.Equal(t, want<<8|31, v, "lane %d", lane)
	}
}

func TestScheduleChangesTheOrder(t *testing.T) {
	d := open(t)
	plain := d.results("check_order", 1, 64)
	d.Schedule(7)
	require.NotEqual(t, plain, d.results("check_order", 1, 64))
	require.Equal(t, d.results("check_order", 1, 64), d.results("check_order", 1, 64), "a seed gives one order")
}

func TestMemoryIsPoisoned(t *testing.T) {
	d := open(t)
	p := d.alloc(1000)
	out := make([]byte, 1000)
	require.Zero(t, d.Down(unsafe.Pointer(&out[0]), p, 1000))
	for _, b := range out {
		require.Equal(t, byte(0xcb), b)
	}
	require.Zero(t, d.Free(p))
	for range 2 {
		p = d.alloc(64 * 16)
		require.Zero(t, d.launch("check_poison", 1, 64, 512, numbers{p, 0}))
		words := make([]uint64, 128)
		require.Zero(t, d.Down(unsafe.Pointer(&words[0]), p, 1024))
		for _, w := range words {
			require.Equal(t, uint64(0xcbcbcbcbcbcbcbcb), w)
		}
		require.Zero(t, d.Free(p))
	}
}

func TestWhatIsWrongFailsAndSticks(t *testing.T) {
	for _, c := range []struct {
		name, kernel string
		block        uint32
		at           int64
		code         int32
	}{
		{"right behind an allocation", "check_write_at", 32, 1000, illegalAddress},
		{"far behind an allocation", "check_write_at", 32, 8192, illegalAddress},
		{"misaligned", "check_misaligned", 32, 4, misalignedAddress},
		{"outside of a shared array", "check_index", 64, 1, misalignedAddress},
		{"a barrier that a thread left", "check_divergence", 64, 0, launchFailed},
		{"lanes that never meet", "check_deadlock", 32, 0, launchFailed},
		{"a lane outside of its mask", "check_mask", 32, 0, launchFailed},
		{"an endless wait", "check_spin", 32, 0, launchFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			p := d.alloc(1000)
			require.Equal(t, c.code, d.launch(c.kernel, 1, c.block, 0, numbers{p, c.at}))
			var f uintptr
			require.Equal(t, c.code, d.Function(&f, d.module, "check_iota"), "the error sticks")
			require.Equal(t, c.code, d.Free(p))
			require.Zero(t, d.Release(0), "it ends with the context, and the memory with it")
			require.Zero(t, d.Retain(&d.context, 0))
			require.Len(t, d.results("check_scan", 2, 256), 512, "kernels run again")
		})
	}
}

func TestWriteBeforeAnAllocation(t *testing.T) {
	d := open(t)
	p := d.alloc(1000)
	require.Zero(t, d.launch("check_write_at", 1, 32, 0, numbers{p, -1}))
	require.Equal(t, int32(illegalAddress), d.Free(p))
}

func TestArgumentsAreChecked(t *testing.T) {
	d := open(t)
	p := d.alloc(1000)
	host := make([]byte, 2000)
	require.Equal(t, int32(invalidValue), d.Up(p, unsafe.Pointer(&host[0]), 1001), "beyond the end")
	require.Equal(t, int32(invalidValue), d.Down(unsafe.Pointer(&host[0]), p+500, 501))
	require.Equal(t, int32(invalidValue), d.Up(uint64(uintptr(unsafe.Pointer(&host[0]))), unsafe.Pointer(&host[1000]),
		10), "to host memory")
	args := numbers{p, 1}
	require.Equal(t, int32(invalidValue), d.launch("check_iota", 0, 32, 0, args), "no blocks")
	require.Equal(t, int32(invalidValue), d.launch("check_iota", 1, 1025, 0, args))
	require.Equal(t, int32(invalidValue), d.launch("check_bounds", 1, 160, 0, args), "more threads than the bound")
	require.Zero(t, d.launch("check_bounds", 1, 128, 0, args))
	var f uintptr
	require.Zero(t, d.Function(&f, d.module, "check_iota"))
	require.Equal(t, int32(invalidValue), d.launchFunction(f, 1, 32, 64<<10, args), "more shared memory than asked for")
	require.Zero(t, d.SetAttribute(f, 8, 64<<10))
	require.Zero(t, d.launchFunction(f, 1, 32, 64<<10, args))
	var other, same uintptr
	image := [8]byte{1}
	require.Zero(t, d.Load(&other, unsafe.Pointer(&image)))
	require.Zero(t, d.Function(&same, other, "check_iota"))
	require.Equal(t, int32(invalidValue), d.launchFunction(same, 1, 32, 64<<10, args), "asked for in another module")
	require.Zero(t, d.SetAttribute(same, 8, 50<<10))
	require.Zero(t, d.launchFunction(f, 1, 32, 64<<10, args))
	require.Zero(t, d.Unload(other))
	// testdata/resources.txt says that check_resources has 1,000 bytes of static shared memory and 80 registers.
	require.Zero(t, d.Function(&f, d.module, "check_resources"))
	require.Equal(t, int32(invalidValue), d.launchFunction(f, 1, 32, 48<<10-999, args),
		"static and dynamic shared memory together")
	require.Zero(t, d.launchFunction(f, 1, 32, 48<<10-1000, args))
	require.Equal(t, int32(invalidValue), d.SetAttribute(f, 8, 227<<10-999), "more shared memory than a block can have")
	require.Zero(t, d.SetAttribute(f, 8, 227<<10-1000))
	require.Zero(t, d.launchFunction(f, 1, 32, 227<<10-1000, args))
	require.Equal(t, int32(outOfResources), d.launchFunction(f, 1, 832, 0, args), "26 warps of 80 registers")
	require.Zero(t, d.launchFunction(f, 1, 800, 0, args))
	size := uint64(unsafe.Sizeof(args)) - 8
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&args)
	pins.Pin(&size)
	// pairs of a tag and a pointer
	extra := []uintptr{1, uintptr(unsafe.Pointer(&args)), 2, uintptr(unsafe.Pointer(&size)), 0}
	require.Equal(t, int32(invalidValue), d.Launch(f, 1, 1, 1, 32, 1, 1, 0, 0, nil, unsafe.Pointer(&extra[0])),
		"arguments of another size")
	require.Zero(t, d.SetCurrent(0))
	require.Equal(t, int32(invalidContext), d.Free(p), "no context is current")
	require.Zero(t, d.SetCurrent(d.context))
	require.Zero(t, d.Free(p))
	require.Equal(t, int32(invalidValue), d.Free(p), "freed twice")
}

func TestFaultsAreInjected(t *testing.T) {
	d := open(t)
	calls := d.Calls("cuMemAlloc")
	d.FailAt("cuMemAlloc_v2", 2, 2)
	p := d.alloc(10)
	var q uint64
	require.Equal(t, int32(2), d.Alloc(&q, 10))
	require.Equal(t, calls+2, d.Calls("cuMemAlloc"))
	require.Equal(t, int64(1), d.Live())
	require.Zero(t, d.Free(p))
}

func TestCopiesOfPageLockedMemoryAreMadeWhenTheyAreWaitedFor(t *testing.T) {
	d := open(t)
	var host, stream, event uintptr
	require.Zero(t, d.Pinned(&host, 8, 0))
	require.Zero(t, d.NewStream(&stream, 1))
	require.Zero(t, d.NewEvent(&event, 0))
	value := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&host))), 8) // the address is no Go pointer
	p, q := d.alloc(8), d.alloc(8)
	value[0] = 1
	require.Zero(t, d.UpOn(p, host, 8, stream))
	require.Zero(t, d.Record(event, stream))
	value[0] = 2 // before the copy was made
	require.Zero(t, d.UpOn(q, host, 8, stream))
	require.Zero(t, d.WaitFor(event))
	value[0] = 3 // before the second copy was made
	require.Zero(t, d.Synchronize(stream))
	var got [2]byte
	require.Zero(t, d.Down(unsafe.Pointer(&got[0]), p, 1))
	require.Zero(t, d.Down(unsafe.Pointer(&got[1]), q, 1))
	require.Equal(t, [2]byte{2, 3}, got)

	require.Zero(t, d.UpOn(p, host, 8, stream))
	require.Zero(t, d.Free(p), "the copy is under way")
	require.Equal(t, int32(illegalAddress), d.Synchronize(stream))
}

func TestRacesAndReadsOfWhatNobodyWroteAreFound(t *testing.T) {
	t.Setenv(emulator.Races, "1")
	for kernel, want := range map[string]int32{"check_race_lanes": launchFailed, "check_race_warps": launchFailed,
		"check_race_reuse": launchFailed, "check_no_race": 0, "check_unwritten": launchFailed, "check_iota": 0} {
		t.Run(kernel, func(t *testing.T) {
			d := open(t)
			p := d.alloc(2 * 64 * 8)
			require.Equal(t, want, d.launch(kernel, 1, 64, 64*8, numbers{p, 64}))
			if want != 0 {
				return // the context is broken
			}
			var out [64]uint64
			require.Zero(t, d.Down(unsafe.Pointer(&out[0]), p, 64*8))
			require.Equal(t, int32(illegalAddress), d.Down(unsafe.Pointer(&out[0]), p+8, 64*8),
				"one value more than was written")
		})
	}
}

func TestEventsTakeTheTime(t *testing.T) {
	d := open(t)
	var a, b, untimed uintptr
	require.Zero(t, d.NewEvent(&a, 0))
	require.Zero(t, d.NewEvent(&b, 0))
	require.Zero(t, d.NewEvent(&untimed, 2))
	var ms float32
	require.NotZero(t, d.Elapsed(&ms, a, b), "not recorded")
	for _, e := range []uintptr{a, untimed, b} {
		require.Zero(t, d.Record(e, 0))
		time.Sleep(time.Millisecond)
	}
	require.Zero(t, d.Elapsed(&ms, a, b))
	require.InDelta(t, 1000, ms, 999)
	require.NotZero(t, d.Elapsed(&ms, a, untimed))
	for _, e := range []uintptr{a, b, untimed} {
		require.Zero(t, d.FreeEvent(e))
	}
}

func TestPinnedAndMappedMemory(t *testing.T) {
	d := open(t)
	var host uintptr
	require.Zero(t, d.Pinned(&host, 1<<20, 0))
	const part = 2 << 20
	var p, h1, h2 uint64
	properties := [64]byte{}
	require.Zero(t, d.Reserve(&p, 4*part, 0, 0, 0))
	require.Zero(t, d.Create(&h1, part, unsafe.Pointer(&properties), 0))
	require.Zero(t, d.Create(&h2, part, unsafe.Pointer(&properties), 0))
	require.Zero(t, d.Map(p, part, 0, h1, 0))
	require.Zero(t, d.Map(p+part, part, 0, h2, 0))
	require.Zero(t, d.Access(p, 2*part, unsafe.Pointer(&properties), 1))
	require.Zero(t, d.launch("check_iota", 2*part/8/256, 256, 0, numbers{p, 2 * part / 8}))
	out := make([]uint64, 4)
	require.Zero(t, d.Down(unsafe.Pointer(&out[0]), p+part-16, 32), "across the two allocations")
	require.Equal(t, []uint64{part/8 - 2, part/8 - 1, part / 8, part/8 + 1}, out)
	require.Equal(t, int32(invalidValue), d.Down(unsafe.Pointer(&out[0]), p+2*part-16, 32), "beyond what is mapped")
	require.Zero(t, d.Unmap(p, 2*part))
	require.Zero(t, d.Drop(h1))
	require.Zero(t, d.Drop(h2))
	require.Zero(t, d.Unreserve(p, 4*part))
	require.Zero(t, d.FreePinned(host))
	require.Less(t, d.Live(), int64(math.MaxInt32))
}
