package cuda

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
)

var _ gpu.Exchanging = (*queue)(nil)

// The layouts of exchange.cu.
type (
	exchangeSource struct {
		key     uint64
		values  [7]uint64
		rows, _ uint32
	}
	exchangeRegion struct {
		to    uint64
		limit uint32
		room  uint32
	}
	exchangeHeavy struct {
		keys, own uint64
		all       [gpu.HeavyGPUs]uint64
		result    uint64
		n, gpus   uint32
	}
	exchangeSendArgs struct {
		counts, mul               uint64
		shift, bits, ways, blocks uint32
		all, _                    uint32
		splitters                 uint64
		heavy                     exchangeHeavy
		sources                   [gpu.SendSources]exchangeSource
		regions                   [gpu.SendRegions]exchangeRegion
	}
	exchangeRun struct {
		tuples, counts uint64
		rows, to       uint32
	}
	exchangePartitionArgs struct {
		out, starts, counts, mul uint64
		shift, bits              uint32
		runs                     [exchangePass]exchangeRun
	}
	exchangePart     struct{ tuples, starts, counts uint64 }
	exchangeJoinArgs struct {
		parts, result, mul           uint64
		builds, probes, perBin, bits uint32
		partitions, capacity         uint32
		slotShift, slotBits          uint32
		out                          [3]uint64
		next, room                   uint64
	}
	exchangeGroupArgs struct {
		parts                   uint64
		out                     [3]uint64
		next, room, mul         uint64
		count, perBin, bits     uint32
		partitions, slotBits, _ uint32
	}
	exchangePlacesArgs struct {
		runs, places uint64
		n, _         uint32
	}
	exchangeColumnsArgs struct {
		runs, places, keys, values uint64
		blocks, _                  uint32
	}
	exchangeSumsArgs struct {
		runs, result, mul    uint64
		shift, bits, ways, _ uint32
	}
)

const (
	exchangeThreads = 1024 // EXCHANGE_THREADS of exchange.cu
	exchangeTile    = 4096 // EXCHANGE_TILE
	exchangePass    = 160  // EXCHANGE_PASS
	// exchangeStatic is the static shared memory of exchange_join, rounded up.
	exchangeStatic = 18 << 10
	// exchangeSlots are the bits of the slots of a table.
	exchangeSlots = 13
	// exchangeRow is the number of bytes of a tuple in a table.
	exchangeRow = 18
	// mostTableRows bounds the rows of a table: 16 bits number them.
	mostTableRows = 1<<16 - 8
)

// peerArrival is the end of work on a stream of a device.
type peerArrival struct {
	dev *Device // of the stream
	end event   // 0 for the end of nothing
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
	return q.fail("wait for tuples of other GPUs", err)
}

// Release implements gpu.Arrival.
func (a *peerArrival) Release() {
	a.dev.recycle(a.end)
	a.end = 0
}

// Launched implements gpu.Exchanging.
func (q *queue) Launched() (gpu.Arrival, error) {
	if q.err != nil {
		return nil, q.err
	}
	q.dev.computing.Lock()
	end, err := q.dev.record(q.dev.compute)
	q.dev.computing.Unlock()
	return &peerArrival{q.dev, end}, q.fail("launch kernels", err)
}

// exchangeKernel returns the kernel for tuples of a width.
func exchangeKernel(name string, width int) string {
	if width == 16 {
		return name
	}
	return fmt.Sprintf("%s_%d", name, width)
}

// exchangeShared returns the shared memory of a tile, and of what is left of each way of the tile before: Wide of
// exchange.cuh.
func exchangeShared(width, ways int) int {
	line, tile := gpu.TupleLine, exchangeTile
	if width > 16 {
		line, tile = 128/width, exchangeTile*16/width
	}
	return width * (tile + ways*(line-1))
}

// SendTuples implements gpu.Exchanging.
func (q *queue) SendTuples(l *gpu.Lease, sources []gpu.TupleSource, by gpu.TupleRoute,
	regions []gpu.TupleRun) (counts gpu.Column, err error) {
	d, heavy := by.Digit, by.Heavy
	o := q.begin("send tuples", l)
	defer end(o, &counts, &err)
	if err := gpu.CheckSend(sources, by, regions); err != nil {
		return counts, err
	}
	ways := len(regions) / len(sources)
	most := 0
	for _, s := range sources {
		most = max(most, s.Key.Len)
	}
	width := sources[0].Width()
	perSource := max(1, min(q.dev.props.multiprocessors/len(sources), blocks(most, exchangeTile/max(width/16, 1)),
		gpu.SendTail/gpu.TupleLine))
	a := exchangeSendArgs{mul: max(d.Factor, 1), shift: uint32(d.Shift), bits: uint32(d.Bits), ways: uint32(ways),
		blocks: uint32(perSource), all: uint32(len(regions))}
	for i, s := range sources {
		o.takes(s.Key, s.Value)
		o.takes(s.More...)
		a.sources[i] = exchangeSource{key: addr(s.Key.Data), rows: uint32(s.Key.Len)}
		for k, c := range append([]gpu.Column{s.Value}, s.More...) {
			a.sources[i].values[k] = addr(c.Data)
		}
	}
	for i, r := range regions {
		o.reaches(r.Tuples)
		a.regions[i] = exchangeRegion{to: addr(r.Tuples.Data) + uint64(width*r.Start),
			limit: uint32(r.Rows - gpu.SendTail), room: uint32(r.Rows)}
	}
	if by.Splitters.Len > 0 {
		o.takes(by.Splitters)
		a.splitters = addr(by.Splitters.Data)
	}
	if heavy.Keys.Len > 0 {
		o.takes(heavy.Keys, heavy.Own, heavy.Result)
		o.reaches(heavy.All...)
		a.heavy = exchangeHeavy{keys: addr(heavy.Keys.Data), own: addr(heavy.Own.Data), result: addr(heavy.Result.Data),
			n: uint32(heavy.Keys.Len), gpus: uint32(len(heavy.All))}
		for i, c := range heavy.All {
			a.heavy.all[i] = addr(c.Data)
		}
	}
	n := gpu.SendCounts(len(regions))
	counts = gpu.Column{Type: gpu.Of(gpu.Uint32), Len: n, Data: o.keep(o.alloc(int64(n) * 4))}
	if o.err != nil {
		return counts, nil
	}
	o.fill(counts.Data, 0, int64(n)*4, 0)
	a.counts = addr(counts.Data)
	launch(o, exchangeKernel("exchange_send", width), len(sources)*perSource, exchangeThreads,
		exchangeShared(width, ways)+12*ways+8<<d.Bits+4, a)
	return counts, nil
}

// Overruns implements gpu.Exchanging.
func (q *queue) Overruns(l *gpu.Lease, counts []gpu.Column) (rows int, err error) {
	o := q.begin("count overruns", l)
	defer end(o, &rows, &err)
	lost := make([]uint32, len(counts))
	for i, c := range counts {
		if o.takes(c) != nil || !o.read(c.Data, int64(c.Len-1)*4, gpu.BytesOf(lost[i:i+1])) {
			return 0, nil
		}
		rows += int(lost[i])
	}
	return rows, nil
}

// CopyTuples implements gpu.Exchanging.
func (q *queue) CopyTuples(l *gpu.Lease, copies []gpu.TupleCopy, after ...gpu.Arrival) (gpu.Arrival, error) {
	d := q.dev
	if q.err != nil {
		return nil, q.err
	}
	if err := gpu.CheckCopies(copies); err != nil {
		return nil, err
	}
	d.receiving.Lock()
	defer d.receiving.Unlock()
	t := &transfer{q: q, lease: l, name: "exchange tuples"}
	t.fail(d.followKernels(d.in, 0))
	for _, a := range after {
		if a, ok := a.(*peerArrival); ok && a.end != 0 {
			t.fail(d.follow(d.in, a.end))
		}
	}
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
		n := int64(c.Rows * c.Bytes())
		t.fail(d.ctx.do(cuMemcpyPeerAsync, c.To.Data.Addr()+uintptr(c.At*c.Bytes()), to.ctx.handle,
			c.Tuples.Data.Addr()+uintptr(c.Start*c.Bytes()), from.ctx.handle, uintptr(n), uintptr(d.in)))
		t.bytes += n
	}
	end := t.received(nil)
	if t.err != nil {
		return nil, q.fail("exchange tuples", t.err)
	}
	return &peerArrival{d, end}, nil
}

// reaches is takes for memory of any GPU of the group.
func (o *op) reaches(cols ...gpu.Column) {
	for _, c := range cols {
		if _, err := o.q.dev.member(c); err != nil {
			o.fail(err)
		}
	}
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

// runs returns the addresses and sizes of runs. to has the field of each.
func (o *op) runs(runs []gpu.TupleRun, to []uint32) []exchangeRun {
	list := make([]exchangeRun, len(runs))
	for i, r := range runs {
		o.takes(r.Tuples)
		list[i] = exchangeRun{tuples: addr(r.Tuples.Data) + uint64(r.Bytes()*r.Start), rows: uint32(r.Rows), to: to[i]}
		if r.Counts.Len > 0 {
			o.reaches(r.Counts)
			list[i].counts = addr(r.Counts.Data) + 8*uint64(r.Region)
		}
	}
	return list
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
	out = gpu.PartitionedRuns{Tuples: to, Starts: column(), Counts: column(), Runs: len(runs), Bits: d.Bits,
		Width: gpu.TupleRun{}.Bytes()}
	if len(runs) > 0 {
		out.Width = runs[0].Bytes()
	}
	a := exchangePartitionArgs{out: addr(to.Data), mul: max(d.Factor, 1), shift: uint32(d.Shift), bits: uint32(d.Bits)}
	for from := 0; from < len(list); from += exchangePass {
		part := list[from:min(from+exchangePass, len(list))]
		copy(a.runs[:], part)
		a.starts, a.counts = addr(out.Starts.Data)+uint64(4*from*ways), addr(out.Counts.Data)+uint64(4*from*ways)
		launch(o, exchangeKernel("exchange_partition", out.Width), len(part), exchangeThreads,
			exchangeShared(out.Width, ways)+16*ways, a)
	}
	return out, nil
}

// CountMatches implements gpu.Exchanging.
func (q *queue) CountMatches(l *gpu.Lease, build, probe []gpu.PartitionedRuns, perBin int,
	digit gpu.Digit, out ...gpu.Column) (pairs, sum uint64, err error) {
	o := q.begin("count matches", l)
	if len(out) > 0 {
		o.name = "write matches"
	}
	var found [3]uint64
	defer func() { pairs, sum = found[0], found[1] }()
	defer end(o, &found, &err)
	if err := gpu.CheckMatches(build, probe, perBin, digit, out); err != nil {
		return 0, 0, err
	}
	var parts []exchangePart
	for _, p := range slices.Concat(build, probe) {
		o.takes(p.Tuples, p.Starts, p.Counts)
		parts = append(parts, exchangePart{addr(p.Tuples.Data), addr(p.Starts.Data), addr(p.Counts.Data)})
	}
	o.takes(out...)
	result := o.alloc(24)
	if o.err != nil {
		return 0, 0, nil
	}
	o.fill(result, 0, 24, 0)
	slots := min(exchangeSlots, digit.Shift)
	shared := q.dev.props.sharedPerBlock - exchangeStatic
	a := exchangeJoinArgs{parts: addr(upload(o, parts)), result: addr(result), mul: max(digit.Factor, 1),
		builds: uint32(len(build)), probes: uint32(len(probe)), perBin: uint32(perBin), bits: uint32(digit.Bits),
		partitions: uint32(build[0].Runs / perBin << digit.Bits),
		capacity:   uint32(min((shared-4<<slots)/exchangeRow, mostTableRows) &^ 1),
		slotShift:  uint32(digit.Shift - slots), slotBits: uint32(slots), next: addr(result) + 16}
	for i, c := range out {
		a.out[i], a.room = addr(c.Data), uint64(c.Len)
	}
	launch(o, exchangeKernel("exchange_join", cmp.Or(build[0].Width, 16)),
		min(q.dev.props.multiprocessors, int(a.partitions)), exchangeThreads, int(a.capacity)*exchangeRow+4<<slots, a)
	o.read(result, 0, gpu.BytesOf(found[:]))
	return 0, 0, nil
}

// groupSlots are the bits of the slots of a table of exchange_group, and groupSlot the bytes of a slot.
const groupSlots, groupSlot = 13, 20

// GroupTuples implements gpu.Exchanging.
func (q *queue) GroupTuples(l *gpu.Lease, parts []gpu.PartitionedRuns, perBin int, d gpu.Digit,
	keys, sums, counts gpu.Column) (groups int, err error) {
	o := q.begin("group tuples", l)
	defer end(o, &groups, &err)
	out := []gpu.Column{keys, sums, counts}
	if err := gpu.CheckGroupTuples(parts, perBin, d, out...); err != nil {
		return 0, err
	}
	var list []exchangePart
	for _, p := range parts {
		o.takes(p.Tuples, p.Starts, p.Counts)
		list = append(list, exchangePart{addr(p.Tuples.Data), addr(p.Starts.Data), addr(p.Counts.Data)})
	}
	o.takes(out...)
	result := o.alloc(8)
	if o.err != nil {
		return 0, nil
	}
	o.fill(result, 0, 8, 0)
	slots := uint32(groupSlots)
	for int(groupSlot)<<slots > q.dev.props.sharedPerBlock-exchangeStatic {
		slots--
	}
	a := exchangeGroupArgs{parts: addr(upload(o, list)), next: addr(result), room: uint64(keys.Len),
		mul: max(d.Factor, 1), count: uint32(len(parts)), perBin: uint32(perBin), bits: uint32(d.Bits),
		partitions: uint32(parts[0].Runs / perBin << d.Bits), slotBits: slots}
	for i, c := range out {
		a.out[i] = addr(c.Data)
	}
	launch(o, "exchange_group", min(q.dev.props.multiprocessors, int(a.partitions)), exchangeThreads,
		groupSlot<<slots, a)
	var n [1]uint64
	o.read(result, 0, gpu.BytesOf(n[:]))
	return int(n[0]), nil
}

// CollectTuples implements gpu.Exchanging.
func (q *queue) CollectTuples(l *gpu.Lease, runs []gpu.TupleRun) (keys, values gpu.Column, err error) {
	o := q.begin("collect tuples", l)
	var out [2]gpu.Column
	defer func() { keys, values = out[0], out[1] }()
	defer end(o, &out, &err)
	if err := gpu.CheckCollect(runs); err != nil {
		return keys, values, err
	}
	list := upload(o, o.runs(runs, make([]uint32, len(runs))))
	places := o.alloc(int64(len(runs)+1) * 4)
	if o.err != nil {
		return keys, values, nil
	}
	launch(o, "exchange_places", 1, exchangeThreads, 0,
		exchangePlacesArgs{runs: addr(list), places: addr(places), n: uint32(len(runs))})
	var n [1]uint32
	if !o.read(places, int64(len(runs))*4, gpu.BytesOf(n[:])) {
		return keys, values, nil
	}
	for i := range out {
		out[i] = gpu.Column{Type: gpu.Of(gpu.Uint64), Len: int(n[0]), Data: o.keep(o.alloc(int64(n[0]) * 8))}
	}
	blocks := max(1, 2*q.dev.props.multiprocessors/max(len(runs), 1))
	launch(o, "exchange_columns", len(runs)*blocks, exchangeThreads, 0,
		exchangeColumnsArgs{runs: addr(list), places: addr(places), keys: addr(out[0].Data), values: addr(out[1].Data),
			blocks: uint32(blocks)})
	return keys, values, nil
}

// SumTuples implements gpu.Exchanging.
func (q *queue) SumTuples(l *gpu.Lease, runs []gpu.TupleRun, regions []int, ways int,
	d gpu.Digit) (keys, values, wrong uint64, err error) {
	o := q.begin("sum tuples", l)
	var sums [3]uint64
	defer func() { keys, values, wrong = sums[0], sums[1], sums[2] }()
	defer end(o, &sums, &err)
	if err := gpu.CheckSums(runs, regions); err != nil {
		return 0, 0, 0, err
	}
	of := make([]uint32, len(regions))
	for i, region := range regions {
		of[i] = uint32(region)
	}
	list, result := upload(o, o.runs(runs, of)), o.alloc(24)
	if o.err != nil {
		return 0, 0, 0, nil
	}
	o.fill(result, 0, 24, 0)
	launch(o, "exchange_sums", len(runs), exchangeThreads, 0,
		exchangeSumsArgs{runs: addr(list), result: addr(result), mul: max(d.Factor, 1), shift: uint32(d.Shift),
			bits: uint32(d.Bits), ways: uint32(ways)})
	o.read(result, 0, gpu.BytesOf(sums[:]))
	return 0, 0, 0, nil
}
