package cuda

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync"

	"github.com/gstream/gstream/gpu"
)

var (
	_ gpu.Experimental = (*queue)(nil)
	_ gpu.Interleaver  = (*Device)(nil)
)

// The layouts of tuples.cu.
type (
	tupleArgs struct {
		key, value, out, starts, next, rest, buffers, mul uint64
		rows, bits, shift, granule, unit, capacity        uint32
	}
	tupleCountArgs struct {
		key, counts, mul     uint64
		rows, bits, shift, _ uint32
	}
	tupleSplitArgs struct {
		tuples, key, value uint64
		n                  int64
	}
)

const (
	tupleThreads  = 1024 // TUPLE_THREADS of tuples.cu
	tupleTile     = 4096 // TUPLE_TILE
	tupleSpares   = 128  // TUPLE_SPARES
	tupleLine     = 128  // bytes of an aligned write
	mostTupleFill = 1024 // bytes of a buffer in device memory
)

// tupleShared returns the bytes of shared memory of a write strategy, as the struct Tuples of
// tuples.cu has them.
func tupleShared(way gpu.WriteStrategy, ways, granule, width int) int {
	n := 4*(2*ways+tupleSpares) + 2*(3*ways+2*tupleSpares)
	if way != gpu.WriteStandard {
		n += tupleTile * width
	}
	if way == gpu.WriteShared || way == gpu.WriteHierarchical {
		n += ways * (granule - 1) * width
	}
	return n
}

// PartitionTuples implements gpu.Queue.
func (q *queue) PartitionTuples(l *gpu.Lease, to, key, value gpu.Column, d gpu.Digit,
	how gpu.TuplePass) (offsets []int, err error) {
	o := q.begin("partition tuples", l)
	defer end(o, &offsets, &err)
	if o.err != nil {
		return nil, nil
	}
	if err := gpu.CheckTuples(q.dev, to, key, value, d, how); err != nil {
		return nil, err
	}
	n, ways, width := key.Len, 1<<d.Bits, 2*key.Type.Width()
	for _, c := range []gpu.Column{to, key, value} {
		o.reach(c)
	}
	starts := o.alloc(int64(ways+1) * 4)
	claims := o.alloc(int64(ways) * 8)
	if o.err != nil {
		return nil, nil
	}
	o.begins("prefix")
	if how.HostPrefix {
		o.write(starts, 0, gpu.BytesOf(append(countTuples(key, d), 0)))
	} else {
		o.fill(starts, 0, int64(ways)*4, 0)
		launch(o, fmt.Sprintf("tuples_count_k%d", width/2), min(blocks(n, tupleTile), 2*q.dev.props.multiprocessors),
			tupleThreads, 4*ways,
			tupleCountArgs{key: addr(key.Data), counts: addr(starts), mul: max(d.Factor, 1), rows: uint32(n),
				bits: uint32(d.Bits), shift: uint32(d.Shift)})
	}
	o.scan(starts, ways, true)
	o.fill(claims, 0, int64(ways)*8, 0)
	o.begins("write")
	a := tupleArgs{key: addr(key.Data), value: addr(value.Data), out: addr(to.Data), starts: addr(starts),
		next: addr(claims), rest: addr(claims) + 4*uint64(ways),
		mul: max(d.Factor, 1), rows: uint32(n), bits: uint32(d.Bits), shift: uint32(d.Shift),
		granule: uint32(tupleLine / width)}
	for a.granule > 1 && tupleShared(how.Strategy, ways, int(a.granule), width) > q.dev.props.sharedPerBlock {
		a.granule /= 2
	}
	a.unit = a.granule
	grid := min(blocks(n, tupleTile), q.dev.props.multiprocessors)
	if how.Strategy == gpu.WriteHierarchical && grid > 0 {
		// Buffers that would never be full are useless.
		a.unit = uint32(tupleLine / width)
		few := bits.Len(uint(n/(2*grid*ways))) - 1
		a.capacity = uint32(min(mostTupleFill/width, max(int(a.unit), 1<<max(few, 0))))
		a.buffers = addr(o.alloc(int64(grid) * int64(ways+tupleSpares) * int64(a.capacity) * int64(width)))
	}
	launch(o, fmt.Sprintf("tuples_%s_k%d", how.Strategy, width/2), grid, tupleThreads,
		tupleShared(how.Strategy, ways, int(a.granule), width), a)
	at := make([]uint32, ways+1)
	if !o.read(starts, 0, gpu.BytesOf(at)) {
		o.idle() // the caller releases the memory of the tuples
		return nil, nil
	}
	offsets = make([]int, ways+1)
	for p, v := range at {
		offsets[p] = int(v)
	}
	return offsets, nil
}

// idle waits for the kernels launched so far: they use host memory, which is not freed in stream
// order.
func (o *op) idle() {
	o.flush()
	if err := o.q.dev.ctx.do(cuStreamSynchronize, uintptr(o.q.dev.compute)); err != nil {
		o.fail(err)
	}
}

// reach page-locks the memory of a column in host memory, so that kernels can access it.
func (o *op) reach(c gpu.Column) {
	if c.Data.Bytes() != nil {
		o.fail(o.q.dev.pinned.lockAt(o.lease, c.Data.Addr(), c.Data.Size()))
	}
}

// countTuples counts the rows of partitions on all cores.
func countTuples(key gpu.Column, d gpu.Digit) []uint32 {
	counts := make([]uint32, 1<<d.Bits)
	var mu sync.Mutex
	var wg sync.WaitGroup
	part := max(1<<16, blocks(key.Len, runtime.GOMAXPROCS(0)))
	for from := 0; from < key.Len; from += part {
		wg.Go(func() {
			var own []uint32
			if to := min(from+part, key.Len); key.Type.Width() == 4 {
				own = countDigits(gpu.Values[uint32](key.Data, key.Len)[from:to], d)
			} else {
				own = countDigits(gpu.Values[uint64](key.Data, key.Len)[from:to], d)
			}
			mu.Lock()
			defer mu.Unlock()
			for p, n := range own {
				counts[p] += n
			}
		})
	}
	wg.Wait()
	return counts
}

func countDigits[K uint32 | uint64](keys []K, d gpu.Digit) []uint32 {
	counts := make([]uint32, 1<<d.Bits)
	factor, mask := K(max(d.Factor, 1)), K(1)<<d.Bits-1
	for _, k := range keys {
		counts[k*factor>>d.Shift&mask]++
	}
	return counts
}

// SplitTuples implements gpu.Queue.
func (q *queue) SplitTuples(l *gpu.Lease, tuples gpu.Column, key, value gpu.Type) (out []gpu.Column, err error) {
	o := q.begin("split tuples", l)
	defer end(o, &out, &err)
	if o.err != nil {
		return nil, nil
	}
	if err := gpu.CheckSplit(q.dev, tuples, key, value); err != nil {
		return nil, err
	}
	o.reach(tuples)
	n, width := tuples.Len, int64(key.Width())
	for _, t := range []gpu.Type{key, value} {
		out = append(out, gpu.Column{Type: t, Len: n, Data: o.keep(o.alloc(int64(n) * width))})
	}
	launch(o, fmt.Sprintf("tuples_split_k%d", width), o.grid(n), 256, 0,
		tupleSplitArgs{addr(tuples.Data), addr(out[0].Data), addr(out[1].Data), int64(n)})
	if tuples.Data.Bytes() != nil {
		o.idle()
	}
	return out, nil
}

// Interleave implements gpu.Device.
func (d *Device) Interleave(device, host *gpu.Lease, n int64, share float64) (*gpu.Buffer, error) {
	if n == 0 {
		return device.Alloc(0)
	}
	if err := d.Wait(); err != nil {
		return nil, err
	}
	v, err := d.Reserve(n)
	if err != nil {
		return nil, err
	}
	pages := v.Size() / v.Page()
	onDevice := func(page int64) bool { return int64(float64(page+1)*share) > int64(float64(page)*share) }
	for from := int64(0); from < pages; {
		to := from + 1
		for to < pages && onDevice(to) == onDevice(from) {
			to++
		}
		tier, lease := OnHost, host
		if onDevice(from) {
			tier, lease = OnDevice, device
		}
		if err := v.Map(lease, from*v.Page(), (to-from)*v.Page(), tier); err != nil {
			if closeErr := v.Close(); closeErr != nil {
				err = fmt.Errorf("%w; give back the array: %w", err, closeErr)
			}
			return nil, err
		}
		from = to
	}
	return device.Adopt(virtualArray{v}, v.Addr(), n), nil
}

// virtualArray closes a Virtual when the buffer over it is released.
type virtualArray struct{ *Virtual }

// Allocate implements gpu.Allocator. It is never called.
func (virtualArray) Allocate(int64) ([]byte, uintptr, error) { panic("cuda: an array has one buffer") }

// Free implements gpu.Allocator. If the driver fails, the next call reports the error.
func (v virtualArray) Free([]byte, uintptr, int64) { _ = v.Close() }
