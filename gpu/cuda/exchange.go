package cuda

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
)

var _ gpu.Exchanging = (*queue)(nil)

// The layouts of exchange.cu.
type (
	exchangeRun struct {
		tuples   uint64
		rows, to uint32
	}
	exchangePartitionArgs struct {
		runs, out, starts, counts, mul uint64
		shift, bits                    uint32
	}
	exchangePart     struct{ tuples, starts, counts uint64 }
	exchangeJoinArgs struct {
		parts, result, mul           uint64
		builds, probes, perBin, bits uint32
		partitions, capacity         uint32
		slotShift, slotBits          uint32
	}
	exchangeSumsArgs struct {
		runs, result, mul uint64
		shift, bits       uint32
	}
)

const (
	exchangeThreads = 1024 // EXCHANGE_THREADS of exchange.cu
	exchangeTile    = 4096 // EXCHANGE_TILE
	// exchangeStatic is the static shared memory of exchange_join, rounded up.
	exchangeStatic = 18 << 10
	// exchangeSlots are the bits of the slots of a table.
	exchangeSlots = 13
	// exchangeRow is the number of bytes of a tuple in a table.
	exchangeRow = 18
	// mostTableRows bounds the rows of a table: 16 bits number them.
	mostTableRows = 1<<16 - 8
)

// peerArrival is the end of copies on the stream of copies from peers.
type peerArrival struct {
	dev *Device // of the stream
	end event
}

// Await implements gpu.Arrival.
func (a *peerArrival) Await(gq gpu.Queue) error {
	q, ok := gq.(*queue)
	if !ok {
		return gpu.ErrOtherDevice(a.dev, gq.Device())
	}
	if a.end == 0 {
		return q.err
	}
	d := q.dev
	d.computing.Lock()
	err := d.follow(d.compute, a.end)
	d.computing.Unlock()
	a.dev.recycle(a.end)
	a.end = 0
	return q.fail("wait for tuples of other GPUs", err)
}

// Fetch implements gpu.Exchanging.
func (q *queue) Fetch(l *gpu.Lease, copies []gpu.TupleCopy) (gpu.Arrival, error) {
	d := q.dev
	if q.err != nil {
		return nil, q.err
	}
	if err := gpu.CheckCopies(copies); err != nil {
		return nil, err
	}
	if len(copies) == 0 {
		return &peerArrival{dev: d}, nil
	}
	d.receiving.Lock()
	defer d.receiving.Unlock()
	t := &transfer{q: q, lease: l, name: "exchange tuples"}
	t.begin(d.in)
	for _, c := range copies {
		to, err := d.member(c.To)
		t.fail(err)
		from, err := d.member(c.Tuples)
		t.fail(err)
		if t.err == nil && to != d && from != d {
			t.fail(gpu.ErrOtherDevice(d, to))
		}
		if t.err != nil || c.Rows == 0 {
			continue
		}
		n := int64(c.Rows) * 16
		t.fail(d.ctx.do(cuMemcpyPeerAsync, c.To.Data.Addr()+uintptr(c.At)*16, to.ctx.handle,
			c.Tuples.Data.Addr()+uintptr(c.Start)*16, from.ctx.handle, uintptr(n), uintptr(d.in)))
		t.bytes += n
	}
	t.finish(d.in)
	var end event
	if t.err == nil {
		var err error
		end, err = d.record(d.in)
		t.fail(err)
	}
	if t.err != nil {
		_ = d.ctx.do(cuStreamSynchronize, uintptr(d.in)) // copies may still be running
		d.recycle(t.start, t.stop)
		return nil, q.fail("exchange tuples", t.err)
	}
	d.trace.moved(t, laneIn, nil)
	return &peerArrival{d, end}, nil
}

// member returns the device of the group whose memory has a column.
func (d *Device) member(c gpu.Column) (*Device, error) {
	home := gpu.Residence([]gpu.Column{c})
	if home == d.budget || c.Len == 0 {
		return d, nil
	}
	i := slices.IndexFunc(d.peers, func(p *Device) bool { return p.budget == home })
	if i < 0 {
		return nil, fmt.Errorf("tuples are not in memory of %s, nor in that of a GPU of its group", d.id())
	}
	return d.peers[i], nil
}

// runs copies the addresses and sizes of runs to the device. to has the field of each.
func (o *op) runs(runs []gpu.TupleRun, to []uint32) *gpu.Buffer {
	list := make([]exchangeRun, len(runs))
	for i, r := range runs {
		o.takes(r.Tuples)
		list[i] = exchangeRun{addr(r.Tuples.Data) + 16*uint64(r.Start), uint32(r.Rows), to[i]}
	}
	if len(list) == 0 {
		return nil
	}
	return upload(o, list)
}

// PartitionRuns implements gpu.Exchanging.
func (q *queue) PartitionRuns(l *gpu.Lease, to gpu.Column, runs []gpu.TupleRun,
	d gpu.Digit) (out gpu.PartitionedRuns, err error) {
	o := q.begin("partition runs", l)
	defer end(o, &out, &err)
	if err := gpu.CheckRuns(to, runs, d); err != nil {
		return out, err
	}
	o.takes(to)
	first, n := make([]uint32, len(runs)), 0
	for i, r := range runs {
		first[i] = uint32(n)
		n += gpu.RunRoom(r.Rows, d.Bits)
	}
	list := o.runs(runs, first)
	ways := 1 << d.Bits
	column := func() gpu.Column {
		return gpu.Column{Type: gpu.Of(gpu.Uint32), Len: len(runs) * ways,
			Data: o.keep(o.alloc(int64(len(runs)*ways) * 4))}
	}
	out = gpu.PartitionedRuns{Tuples: to, Starts: column(), Counts: column(), Runs: len(runs), Bits: d.Bits}
	launch(o, "exchange_partition", len(runs), exchangeThreads,
		16*exchangeTile+ways*(16*(gpu.TupleLine-1)+16),
		exchangePartitionArgs{runs: addr(list), out: addr(to.Data), starts: addr(out.Starts.Data),
			counts: addr(out.Counts.Data), mul: max(d.Factor, 1), shift: uint32(d.Shift), bits: uint32(d.Bits)})
	return out, nil
}

// CountMatches implements gpu.Exchanging.
func (q *queue) CountMatches(l *gpu.Lease, build, probe []gpu.PartitionedRuns, perBin int,
	digit gpu.Digit) (pairs, sum uint64, err error) {
	o := q.begin("count matches", l)
	var found [2]uint64
	defer func() { pairs, sum = found[0], found[1] }()
	defer end(o, &found, &err)
	if err := gpu.CheckMatches(build, probe, perBin, digit); err != nil {
		return 0, 0, err
	}
	var parts []exchangePart
	for _, p := range slices.Concat(build, probe) {
		o.takes(p.Tuples, p.Starts, p.Counts)
		parts = append(parts, exchangePart{addr(p.Tuples.Data), addr(p.Starts.Data), addr(p.Counts.Data)})
	}
	result := o.alloc(16)
	if o.err != nil {
		return 0, 0, nil
	}
	o.fill(result, 0, 16, 0)
	slots := min(exchangeSlots, digit.Shift)
	shared := q.dev.props.sharedPerBlock - exchangeStatic
	a := exchangeJoinArgs{parts: addr(upload(o, parts)), result: addr(result), mul: max(digit.Factor, 1),
		builds: uint32(len(build)), probes: uint32(len(probe)), perBin: uint32(perBin), bits: uint32(digit.Bits),
		partitions: uint32(build[0].Runs / perBin << digit.Bits),
		capacity:   uint32(min((shared-4<<slots)/exchangeRow, mostTableRows) &^ 1),
		slotShift:  uint32(digit.Shift - slots), slotBits: uint32(slots)}
	launch(o, "exchange_join", min(q.dev.props.multiprocessors, int(a.partitions)), exchangeThreads,
		int(a.capacity)*exchangeRow+4<<slots, a)
	o.read(result, 0, gpu.BytesOf(found[:]))
	return 0, 0, nil
}

// SumTuples implements gpu.Exchanging.
func (q *queue) SumTuples(l *gpu.Lease, runs []gpu.TupleRun, digits []int,
	d gpu.Digit) (keys, values, wrong uint64, err error) {
	o := q.begin("sum tuples", l)
	var sums [3]uint64
	defer func() { keys, values, wrong = sums[0], sums[1], sums[2] }()
	defer end(o, &sums, &err)
	if err := gpu.CheckSums(runs, digits); err != nil {
		return 0, 0, 0, err
	}
	of := make([]uint32, len(digits))
	for i, digit := range digits {
		of[i] = uint32(digit)
	}
	list, result := o.runs(runs, of), o.alloc(24)
	if o.err != nil {
		return 0, 0, 0, nil
	}
	o.fill(result, 0, 24, 0)
	launch(o, "exchange_sums", len(runs), exchangeThreads, 0,
		exchangeSumsArgs{addr(list), addr(result), max(d.Factor, 1), uint32(d.Shift), uint32(d.Bits)})
	o.read(result, 0, gpu.BytesOf(sums[:]))
	return 0, 0, 0, nil
}
