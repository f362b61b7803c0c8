package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// pageLocked copies a column into page-locked memory, where a scan would decode it.
func pageLocked(l *gpu.Lease, c gpu.Column) (gpu.Column, error) {
	for _, b := range []**gpu.Buffer{&c.Data, &c.Offsets, &c.Valid} {
		if *b == nil {
			continue
		}
		to, err := l.Alloc((*b).Size())
		if err != nil {
			return c, err
		}
		copy(to.Bytes(), (*b).Bytes())
		*b = to
	}
	return c, nil
}

// codedColumn returns a column with a dictionary in page-locked memory. Its strings have
// the lengths 0 to 6 in turn.
func codedColumn(l *gpu.Lease, n int) (c gpu.Column, err error) {
	var values, codes []gpu.Scalar
	for i := range 7 {
		values = append(values, gpu.StringScalar(strings.Repeat("y", i)))
	}
	for i := range n {
		codes = append(codes, gpu.Scalar{Type: gpu.Of(gpu.Int32), Valid: true, Int: gpu.Int128From(int64(i % 7))})
	}
	dict, err := pageLocked(l, gpu.ColumnOf(gpu.Of(gpu.String), values))
	if err != nil {
		return c, err
	}
	c, err = pageLocked(l, gpu.ColumnOf(gpu.Of(gpu.Int32), codes))
	c.Type, c.Dict = gpu.Of(gpu.String), &gpu.Dictionary{Values: dict}
	return c, err
}

// roundTrip copies a stride up, gathers some of its rows and copies them down.
func roundTrip(d *Device) (err error) {
	q, err := d.NewQueue("round trip")
	if err != nil {
		return err
	}
	device, host := d.Budget().Lease("round trip"), d.HostBudget().Lease("round trip, host")
	defer func() {
		for _, c := range []interface{ Close() error }{q, device, host} {
			if cerr := c.Close(); err == nil {
				err = cerr
			}
		}
	}()
	text := make([]gpu.Scalar, 3000)
	for i := range text {
		text[i] = gpu.StringScalar(strings.Repeat("x", i%7))
	}
	truth := make([]gpu.Scalar, len(text))
	for i := range truth {
		truth[i] = gpu.BoolScalar(i%3 == 0)
	}
	coded, err := codedColumn(host, len(text))
	if err != nil {
		return err
	}
	s := &gpu.Stride{Rows: len(text), Schema: gpu.NewSchema(gpu.Field{Name: "t", Type: gpu.Of(gpu.String)},
		gpu.Field{Name: "b", Type: gpu.Of(gpu.Bool)}, gpu.Field{Name: "d", Type: gpu.Of(gpu.String)}),
		Cols: []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.String), text), gpu.ColumnOf(gpu.Of(gpu.Bool), truth), coded}}
	up, err := q.Upload(device, s)
	if err != nil {
		s.Release()
		return err
	}
	s = up
	defer s.Release()
	ids, err := q.Select(device, s.Cols[1], true)
	if err != nil {
		return err
	}
	defer ids.Release()
	cols, err := q.Gather(device, s.Cols, ids, false)
	if err != nil {
		return err
	}
	out, err := q.Download(host, &gpu.Stride{Schema: s.Schema, Cols: cols, Rows: ids.Len})
	if err != nil {
		gpu.ReleaseColumns(cols)
		return err
	}
	defer out.Release()
	for i := range out.Rows {
		if out.Rows != 1000 || len(out.Cols[0].VarValue(i)) != 3*i%7 || len(out.Cols[2].VarValue(i)) != 3*i%7 {
			return fmt.Errorf("row %d of %d is wrong", i, out.Rows)
		}
	}
	return tuplesThere(d, q, device, host)
}

// tuplesThere partitions tuples into an array over device and host memory.
func tuplesThere(d *Device, q gpu.Queue, device, host *gpu.Lease) error {
	tier, share := OnHost, 0.5
	if _, err := d.location(tier); err != nil {
		share = 1
	}
	var cols []gpu.Column
	defer func() { gpu.ReleaseColumns(cols) }()
	for range 2 {
		c, err := pageLocked(host, gpu.Column{Type: gpu.Of(gpu.Uint64), Len: 5000,
			Data: gpu.WrapBytes(make([]byte, 40000))})
		if err != nil {
			return err
		}
		cols = append(cols, c)
	}
	buf, err := d.Interleave(device, host, 3<<20, share)
	if err != nil {
		return err
	}
	to := gpu.Column{Type: gpu.TupleType(8), Len: 5000, Data: buf}
	defer to.Release()
	offsets, err := q.(gpu.Experimental).PartitionTuples(device, to, cols[0], cols[1], gpu.Digit{Bits: 3},
		gpu.TuplePass{})
	if err != nil {
		return err
	}
	out, err := q.(gpu.Experimental).SplitTuples(device, to, gpu.Of(gpu.Uint64), gpu.Of(gpu.Uint64))
	if err != nil {
		return err
	}
	gpu.ReleaseColumns(out)
	if offsets[1] != 5000 {
		return fmt.Errorf("%d tuples of a partition that has all", offsets[1])
	}
	return nil
}

var errInjected = errors.New("injected")

func TestAnyFailingCallIsAnErrorThatLeavesNothingBehind(t *testing.T) {
	keep := openTest(t, 0)
	defer func() { require.NoError(t, keep.Close()) }()
	failed := 0
	for n := 1; ; n++ {
		var mu sync.Mutex // the device measures on another goroutine
		calls, on := 0, false
		name := ""
		set := func(v bool) {
			mu.Lock()
			defer mu.Unlock()
			on = v
		}
		d, err := Open(Options{Library: library(t), HostMemory: 16 << 20, Fault: func(call string) error {
			mu.Lock()
			defer mu.Unlock()
			// Calls that give memory back do not fail: nothing can be done about a driver
			// that cannot free.
			if !on || strings.Contains(call, "Free") || strings.Contains(call, "Destroy") ||
				strings.Contains(call, "Unmap") || call == "cuMemRelease" {
				return nil
			}
			if calls++; calls == n {
				name = call
				return errInjected
			}
			return nil
		}})
		require.NoError(t, err)
		set(true)
		err = roundTrip(d)
		set(false)
		require.Empty(t, d.Budget().Leaks(), name)
		require.Empty(t, d.HostBudget().Leaks(), name)
		if err != nil {
			require.ErrorIs(t, err, errInjected, name)
			require.NoError(t, roundTrip(d), "the next run works after a failed %s", name)
			failed++
		}
		require.NoError(t, d.Close())
		if calls < n {
			require.NoError(t, err)
			break
		}
	}
	require.Greater(t, failed, 20)
}

func TestAStickyErrorMakesTheDeviceUnusable(t *testing.T) {
	d := openTest(t, 0)
	d.ctx.broken.Store(&Error{Call: "cuLaunchKernel", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS",
		Text: "an illegal memory access was encountered"})
	err := roundTrip(d)
	require.ErrorContains(t, err, "cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
	require.ErrorContains(t, err, "unusable for the rest of this process")
	require.ErrorContains(t, d.Close(), "ILLEGAL_ADDRESS")
}

func TestErrorsOfTheDriverNameCallCodeAndMeaning(t *testing.T) {
	d := openTest(t, 0)
	defer func() { require.NoError(t, d.Close()) }()
	err := d.ctx.do(cuMemcpyDtoDAsync, 0, 0, 1<<40, uintptr(d.compute))
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "cuMemcpyDtoDAsync_v2", e.Call)
	require.Equal(t, "CUDA_ERROR_INVALID_VALUE", e.Name)
	require.False(t, e.Sticky())
	require.NoError(t, roundTrip(d))
}

func TestAMissingDriverIsSaidInOneLine(t *testing.T) {
	_, err := Open(Options{Library: "libnothing.so.7"})
	require.ErrorIs(t, err, ErrNoDriver)
	require.EqualError(t, err, "no NVIDIA driver: libnothing.so.7 cannot be opened")
	_, err = Open(Options{Library: "libc.so.6"})
	require.ErrorContains(t, err, "too old: libc.so.6 has no cuInit; install driver 580")
}

func TestVirtualRangesSpanDeviceAndHost(t *testing.T) {
	d := openTest(t, 0)
	defer func() { require.NoError(t, d.Close()) }()
	v, err := d.Reserve(3 << 20)
	require.NoError(t, err)
	device, host := d.Budget().Lease("range"), d.HostBudget().Lease("range, host")
	defer func() {
		require.NoError(t, v.Close())
		require.NoError(t, device.Close())
		require.NoError(t, host.Close())
	}()
	require.Zero(t, v.Size()%v.Page())
	require.Error(t, v.Map(device, 1, v.Page(), OnDevice), "offsets are whole pages")
	require.Error(t, v.Map(device, v.Size(), v.Page(), OnDevice), "ranges end")
	d.Budget().SetFault(func(bool) error { return errInjected })
	require.ErrorIs(t, v.Map(device, 0, v.Page(), OnDevice), gpu.ErrBudget)
	d.Budget().SetFault(nil)
	require.NoError(t, v.Map(device, 0, v.Page(), OnDevice))
	used, _ := device.Used()
	require.Equal(t, v.Page(), used)
	second, lease := OnHost, host
	if _, err := d.location(OnHost); err != nil {
		t.Log("no memory on the host:", err)
		second, lease = OnDevice, device
	}
	require.NoError(t, v.Map(lease, v.Page(), v.Page(), second))
	want := []byte("across the border of two tiers")
	at := v.Addr() + uintptr(v.Page()) - 7
	require.NoError(t, d.ctx.do(cuMemcpyHtoDAsync, at, uintptrOf(want), uintptr(len(want)), uintptr(d.compute)))
	got := make([]byte, len(want))
	require.NoError(t, d.ctx.do(cuMemcpyDtoHAsync, uintptrOf(got), at, uintptr(len(got)), uintptr(d.compute)))
	require.NoError(t, d.ctx.do(cuCtxSynchronize))
	require.Equal(t, want, got)
}

func TestARangeThatKernelsMayUseStaysMapped(t *testing.T) {
	failing, unmapped := false, 0
	d, err := Open(Options{Library: library(t), HostMemory: 16 << 20, Fault: func(call string) error {
		if call == "cuMemUnmap" {
			unmapped++
		}
		if failing && call == "cuCtxSynchronize" {
			return errInjected
		}
		return nil
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	require.NoError(t, d.Wait())
	lease := d.Budget().Lease("range")
	for _, failing = range []bool{true, false} {
		v, err := d.Reserve(1)
		require.NoError(t, err)
		require.NoError(t, v.Map(lease, 0, v.Page(), OnDevice))
		if err := v.Close(); failing {
			require.ErrorIs(t, err, errInjected)
			require.Zero(t, unmapped)
		} else {
			require.NoError(t, err)
			require.Equal(t, 1, unmapped)
		}
		used, _ := lease.Used()
		require.Zero(t, used)
	}
	require.NoError(t, lease.Close())
}

func TestAnArrayOverDeviceAndHostIsGivenBackOnEveryPath(t *testing.T) {
	calls, failing := 0, 0
	d, err := Open(Options{Library: library(t), HostMemory: 16 << 20, Memory: 1 << 30, Fault: func(call string) error {
		// Calls that give memory back do not fail: nothing can be done about such a driver.
		if failing == 0 || !strings.HasPrefix(call, "cuMem") || strings.Contains(call, "Free") ||
			strings.Contains(call, "Unmap") || strings.Contains(call, "Release") {
			return nil
		}
		if calls++; calls == failing {
			return errInjected
		}
		return nil
	}})
	require.NoError(t, err)
	require.NoError(t, d.Wait())
	if _, err := d.location(OnHost); err != nil {
		t.Skip(err)
	}
	device, host := d.Budget().Lease("array"), d.HostBudget().Lease("array, host")
	used := func() []int64 {
		onDevice, _ := device.Used()
		onHost, _ := host.Used()
		return []int64{onDevice, onHost}
	}
	for failing = 1; ; failing++ {
		calls = 0
		b, err := d.Interleave(device, host, 15<<20, 0.25)
		if err == nil {
			require.Less(t, calls, failing)
			require.Equal(t, int64(15<<20), b.Size())
			require.Equal(t, []int64{4 << 20, 12 << 20}, used(), "2 of 8 pages are on the device")
			b.Release()
			break
		}
		require.ErrorIs(t, err, errInjected)
		require.Equal(t, []int64{0, 0}, used())
	}
	require.Greater(t, failing, 10)
	failing = 0
	_, err = d.Interleave(device, host, 64<<20, 0.5)
	require.ErrorIs(t, err, gpu.ErrBudget, "host memory has room for 16 MiB")
	for _, share := range []float64{0, 1} {
		b, err := d.Interleave(device, host, 5<<20, share)
		require.NoError(t, err)
		require.Equal(t, []int64{int64(share * (6 << 20)), int64((1 - share) * (6 << 20))}, used())
		b.Release()
	}
	require.NoError(t, device.Close())
	require.NoError(t, host.Close())
	require.NoError(t, d.Close())
}

func TestPinnedBlocksNeverSpanTwoSlabs(t *testing.T) {
	d := openWith(t, 0, 1<<30)
	defer func() { require.NoError(t, d.Close()) }()
	l := d.HostBudget().Lease("blocks")
	defer func() { require.NoError(t, l.Close()) }()
	for _, size := range []int64{60 << 20, slabSize + 1, 200 << 20, 250 << 20, 1000} {
		b, err := l.Alloc(size)
		require.NoError(t, err)
		require.Len(t, b.Bytes(), int(size))
		b.Bytes()[size-1] = 1
		b.Release()
	}
	require.Equal(t, len(d.pinned.slabs), len(d.pinned.free), "what is free is whole slabs")
}

func TestAheadMapsLittleMoreHostMemoryThanIsUsed(t *testing.T) {
	d, err := Open(Options{Library: library(t), HostMemory: 2 << 30, Memory: 1 << 26, Ahead: true})
	require.NoError(t, err)
	l := d.HostBudget().Lease("test")
	mapped := func() (n int64) {
		d.pinned.mu.Lock()
		defer d.pinned.mu.Unlock()
		for _, c := range d.pinned.slabs {
			n += c.size()
		}
		return n
	}
	var held []*gpu.Buffer
	take := func(n int64) {
		b, err := l.Alloc(n)
		require.NoError(t, err)
		held = append(held, b)
	}
	settles := func(n int64) {
		require.Eventually(t, func() bool { return mapped() == n }, 10*time.Second, time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, n, mapped())
	}
	settles(aheadSpare)
	take(100 << 20)
	settles(aheadSpare + slabSize)
	take(200 << 20) // more than a slab, as one block
	require.NoError(t, d.Wait())
	for range 4 {
		take(slabSize)
	}
	for _, b := range held {
		b.Release()
	}
	require.NoError(t, l.Close())
	require.NoError(t, d.Close())
}

func TestSpansOfTheDevicesWorkDoNotOverlap(t *testing.T) {
	d := openTest(t, 1<<28)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 5 {
				errs[i] = errors.Join(errs[i], roundTrip(d))
			}
		}()
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	spans, end := 0, time.Duration(0)
	for _, s := range d.Spans() {
		if s.Lane != laneKernels {
			continue
		}
		// Events have a resolution of half a microsecond.
		require.GreaterOrEqual(t, s.Start+2*time.Microsecond, end, "%s began before the one before it ended", s.Name)
		spans, end = spans+1, max(end, s.End)
	}
	require.GreaterOrEqual(t, spans, 40)
	require.NoError(t, d.Close())
}

func TestAheadGivesHostMemoryWhileTheGPUStarts(t *testing.T) {
	d, err := Open(Options{Library: library(t), HostMemory: 1 << 30, Ahead: true})
	require.NoError(t, err)
	l := d.HostBudget().Lease("early")
	b, err := l.Alloc(1 << 20)
	require.NoError(t, err)
	require.NoError(t, roundTrip(d))
	require.NoError(t, d.pinned.lockAt(l, b.Addr(), b.Size()))
	b.Release()
	require.NoError(t, l.Close())
	require.NoError(t, d.Close())
}

func TestMemoryThatCannotBeLockedIsSaidAndTriedAgain(t *testing.T) {
	var refuse atomic.Bool
	d, err := Open(Options{Library: library(t), HostMemory: 1 << 30, Ahead: true, Fault: func(call string) error {
		if refuse.Load() && strings.HasPrefix(call, "cuMemHostRegister") {
			return errInjected
		}
		return nil
	}})
	require.NoError(t, err)
	refuse.Store(true)
	err = roundTrip(d)
	require.ErrorIs(t, err, errInjected)
	require.ErrorContains(t, err, "page-lock 32 MiB of host memory")
	refuse.Store(false)
	require.NoError(t, roundTrip(d))
	require.NoError(t, d.Close())
}

// TestACopyIsRefusedMemoryThatCannotBeLocked makes the driver refuse to lock each segment
// of the memory from and to which a stride is copied, one after the other.
func TestACopyIsRefusedMemoryThatCannotBeLocked(t *testing.T) {
	var allowed atomic.Int64 // segments that may be locked before the driver refuses
	const all = 1 << 30
	allowed.Store(all)
	d, err := Open(Options{Library: library(t), Memory: 1 << 28, HostMemory: 1 << 30, Ahead: true,
		Fault: func(call string) error {
			if call == cuMemHostRegister.String() && allowed.Add(-1) < 0 {
				return &Error{Call: call, Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"}
			}
			return nil
		}})
	require.NoError(t, err)
	up, down := d.Budget().Lease("a scan"), d.HostBudget().Lease("an output")
	const rows = 70 << 17 // more bytes than two segments
	values, err := down.Alloc(8 * rows)
	require.NoError(t, err)
	for i := range rows {
		gpu.Values[int64](values, rows)[i] = int64(i) * 7919
	}
	want := bytes.Clone(values.Bytes())
	_, err = d.Link() // this locks some memory
	require.NoError(t, err)
	q, err := d.NewQueue("copies")
	require.NoError(t, err)
	type move func(l *gpu.Lease, s *gpu.Stride) (*gpu.Stride, error)
	insist := func(move move, l *gpu.Lease, s *gpu.Stride) *gpu.Stride {
		refused := 0
		used, _ := l.Used()
		for {
			allowed.Store(int64(min(refused, 1))) // locked memory stays locked
			out, err := move(l, s)
			if err == nil {
				require.GreaterOrEqual(t, refused, 2)
				allowed.Store(all)
				return out
			}
			require.True(t, gpu.IsOutOfMemory(err), "%v", err)
			require.NotErrorIs(t, err, gpu.ErrBudget)
			require.ErrorContains(t, err,
				l.Name()+": allocate 32 MiB of page-locked host memory: page-lock 32 MiB of host memory: "+
					"cuMemHostRegister_v2: CUDA_ERROR_OUT_OF_MEMORY")
			require.ErrorContains(t, err, "lower HostMemory")
			now, _ := l.Used()
			require.Equal(t, used, now, "nothing is left behind")
			refused++
		}
	}
	i64 := gpu.Of(gpu.Int64)
	s := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: i64}),
		Cols: []gpu.Column{{Type: i64, Len: rows, Data: values}}, Rows: rows}
	s = insist(q.UploadAhead, up, s)
	require.NoError(t, q.Wait(s))
	d.Settle() // gives the host memory back
	s = insist(q.Download, down, s)
	require.True(t, bytes.Equal(want, s.Cols[0].Data.Bytes()))
	s.Release()
	require.NoError(t, q.Close())
	require.NoError(t, up.Close())
	require.NoError(t, down.Close())
	require.NoError(t, d.Close())
}

func TestAGPUThatCannotBeStartedIsSaidByTheFirstQueue(t *testing.T) {
	_, err := Open(Options{Library: library(t), Ordinal: 77})
	require.ErrorIs(t, err, ErrUnusable)
	d, err := Open(Options{Library: library(t), HostMemory: 1 << 30, Ordinal: 77, Ahead: true})
	require.NoError(t, err)
	l := d.HostBudget().Lease("early")
	b, err := l.Alloc(1 << 20)
	require.NoError(t, err)
	_, err = d.NewQueue("q")
	require.ErrorIs(t, err, ErrUnusable)
	require.ErrorContains(t, err, "open GPU 77")
	_, err = l.Alloc(900 << 20)
	require.ErrorIs(t, err, ErrUnusable, "more than was taken in advance")
	_, err = d.Link()
	require.ErrorIs(t, err, ErrUnusable)
	require.Empty(t, d.Spans())
	require.Zero(t, d.Clock())
	b.Release()
	require.NoError(t, l.Close())
	require.NoError(t, d.Close())
}

func TestFreeSlabsAreGivenBackBeforeMoreIsMappedThanTheBudgetHas(t *testing.T) {
	const budget = 300 << 20
	d := openWith(t, 0, budget)
	defer func() { require.NoError(t, d.Close()) }()
	l := d.HostBudget().Lease("blocks")
	defer func() { require.NoError(t, l.Close()) }()
	mapped := func() (n int64) {
		for _, c := range d.pinned.slabs {
			n += c.size()
		}
		return n
	}
	keep, err := l.Alloc(1 << 20)
	require.NoError(t, err)
	for _, size := range []int64{129 << 20, 150 << 20, 170 << 20} { // none fits into the space of another
		b, err := l.Alloc(size)
		require.NoError(t, err)
		b.Bytes()[size-1] = 1
		b.Release()
		require.LessOrEqual(t, mapped(), int64(budget))
	}
	require.Len(t, keep.Bytes(), 1<<20)
	keep.Bytes()[0] = 1
	keep.Release()
	require.NoError(t, roundTrip(d))
}
