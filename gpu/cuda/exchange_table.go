package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// The layouts of exchange_table.cu.
type (
	exchangeTable struct {
		entries, heads, used, mul uint64
		shift, bits, capacity, _  uint32
	}
	exchangeTableArgs struct {
		runs, result uint64
		table        exchangeTable
		blocks, _    uint32
	}
	exchangeMarkRun struct {
		tuples, counts, marks uint64
		room, _               uint32
	}
	exchangeMarksArgs struct {
		runs      uint64
		pieces, _ uint32
	}
	exchangeMessage    struct{ tuples, marks uint64 }
	exchangeActiveArgs struct {
		messages, result, state  uint64
		table                    exchangeTable
		builds, probes           uint32
		buildRoom, probeRoom     uint32
		buildPieces, probePieces uint32
		polls, _                 uint32
	}
)

// exchangePolls is how often a block of exchange_active looks for its next tuples, more than half a microsecond apart.
const exchangePolls = 1 << 13

// exchangeState is the beginning of the state of exchange_active; then follows the next piece of each block.
// Its first number, the messages of the build side that are done, is read by blocks alone.
type exchangeState struct{ _, done, mismatches uint32 }

// Zeros implements gpu.TupleTables.
func (q *queue) Zeros(l *gpu.Lease, t gpu.Type, n int) (out gpu.Column, err error) {
	o := q.begin("zeros", l)
	defer end(o, &out, &err)
	if t.IsVar() || t.Width() == 0 || n < 0 {
		return out, fmt.Errorf("%d zeros of %v: want a type of fixed width", n, t)
	}
	size := int64(n) * int64(t.Width())
	out = gpu.Column{Type: t, Len: n, Data: o.keep(o.alloc(size))}
	o.fill(out.Data, 0, size, 0)
	return out, nil
}

// tupleTable returns the arguments of a table.
func (o *op) tupleTable(t gpu.TupleTable) exchangeTable {
	o.takes(t.Entries, t.Heads, t.Used)
	return exchangeTable{entries: addr(t.Entries.Data), heads: addr(t.Heads.Data), used: addr(t.Used.Data),
		mul: max(t.Digit.Factor, 1), shift: uint32(t.Digit.Shift), bits: uint32(t.Digit.Bits),
		capacity: uint32(t.Entries.Len / 2)}
}

// overRuns launches a kernel over the tuples of runs.
func (o *op) overRuns(kernel string, t gpu.TupleTable, runs []gpu.TupleRun, result gpu.Column) {
	if len(runs) == 0 {
		return
	}
	list := upload(o, o.runs(runs, make([]uint32, len(runs))))
	most := 0
	for _, r := range runs {
		most = max(most, r.Rows)
	}
	// Blocks that run at a time have the tuples of few runs, which share a part of the table.
	perRun := max(1, min(o.q.dev.props.multiprocessors, blocks(most, exchangeTile)))
	launch(o, kernel, len(runs)*perRun, exchangeThreads, 0, exchangeTableArgs{runs: addr(list),
		result: addr(result.Data), table: o.tupleTable(t), blocks: uint32(perRun)})
}

// InsertTuples implements gpu.TupleTables.
func (q *queue) InsertTuples(l *gpu.Lease, t gpu.TupleTable, runs []gpu.TupleRun) (err error) {
	o := q.begin("insert tuples", l)
	defer end(o, new(int), &err)
	if err := gpu.CheckTable(t, runs); err != nil {
		return err
	}
	o.overRuns("exchange_insert", t, runs, gpu.Column{})
	return nil
}

// ProbeTuples implements gpu.TupleTables.
func (q *queue) ProbeTuples(l *gpu.Lease, t gpu.TupleTable, runs []gpu.TupleRun, result gpu.Column) (err error) {
	o := q.begin("probe tuples", l)
	defer end(o, new(int), &err)
	if err := gpu.CheckTable(t, runs, result); err != nil {
		return err
	}
	o.takes(result)
	o.overRuns("exchange_probe", t, runs, result)
	return nil
}

// MarkTuples implements gpu.TupleTables.
func (q *queue) MarkTuples(l *gpu.Lease, regions, marks []gpu.TupleRun) (err error) {
	o := q.begin("mark tuples", l)
	defer end(o, new(int), &err)
	if err := gpu.CheckMarks(regions, marks, true); err != nil || len(regions) == 0 {
		return err
	}
	list := make([]exchangeMarkRun, len(regions))
	for i, r := range regions {
		o.reaches(r.Tuples, r.Counts, marks[i].Tuples)
		list[i] = exchangeMarkRun{tuples: tupleAddr(r), counts: addr(r.Counts.Data) + 8*uint64(r.Region),
			marks: tupleAddr(marks[i]), room: uint32(r.Rows)}
	}
	pieces := gpu.TupleMarks(regions[0].Rows)
	launch(o, "exchange_marks", len(regions)*pieces, exchangeThreads, 0,
		exchangeMarksArgs{runs: addr(upload(o, list)), pieces: uint32(pieces)})
	return nil
}

// tupleAddr returns the address of the first tuple of a run.
func tupleAddr(r gpu.TupleRun) uint64 { return addr(r.Tuples.Data) + 16*uint64(r.Start) }

// activeJoin implements gpu.ActiveJoin.
type activeJoin struct {
	dev             *Device
	lease           *gpu.Lease
	args            exchangeActiveArgs
	list            *gpu.Buffer // messages
	result, state   *gpu.Buffer
	blocks, all     int
	afterInitiation event // 0 once the stream has waited for it
}

// NewActiveJoin implements gpu.TupleTables.
func (q *queue) NewActiveJoin(l *gpu.Lease, t gpu.TupleTable, build, probe gpu.ActiveSide) (out gpu.ActiveJoin,
	err error) {
	o := q.begin("active join", l)
	defer end(o, &out, &err)
	if err := gpu.CheckActive(t, build, probe); err != nil {
		return nil, err
	}
	var list []exchangeMessage
	a := exchangeActiveArgs{table: o.tupleTable(t), polls: exchangePolls, builds: uint32(len(build.Regions)),
		probes: uint32(len(probe.Regions))}
	for i, s := range []gpu.ActiveSide{build, probe} {
		for k, r := range s.Regions {
			o.takes(r.Tuples, s.Marks[k].Tuples)
			list = append(list, exchangeMessage{tuples: tupleAddr(r), marks: tupleAddr(s.Marks[k])})
			room, pieces := uint32(r.Rows), uint32(gpu.TupleMarks(r.Rows))
			if i == 0 {
				a.buildRoom, a.buildPieces = room, pieces
			} else {
				a.probeRoom, a.probePieces = room, pieces
			}
		}
	}
	j := &activeJoin{dev: q.dev, lease: l, blocks: max(1, q.dev.props.multiprocessors*3/5),
		all: int(a.builds*a.buildPieces + a.probes*a.probePieces)}
	state := make([]uint32, unsafe.Sizeof(exchangeState{})/4, int(unsafe.Sizeof(exchangeState{}))/4+j.blocks)
	for i := range j.blocks {
		state = append(state, uint32(i))
	}
	j.list, j.state, j.result = o.keep(upload(o, list)), o.keep(upload(o, state)), o.keep(o.alloc(16))
	if o.err != nil {
		return nil, nil
	}
	o.fill(j.result, 0, 16, 0)
	a.messages, a.state, a.result = addr(j.list), addr(j.state), addr(j.result)
	j.args = a
	if o.failed() {
		return nil, nil
	}
	j.afterInitiation, err = q.dev.record(q.dev.compute)
	o.fail(err)
	return j, nil
}

// Release implements gpu.ActiveJoin.
func (j *activeJoin) Release() {
	j.dev.recycle(j.afterInitiation)
	j.afterInitiation = 0
	for _, b := range []*gpu.Buffer{j.list, j.result, j.state} {
		b.Release()
	}
}

// Poll implements gpu.ActiveJoin.
func (j *activeJoin) Poll(gq gpu.Queue) (out gpu.ActiveState, err error) {
	q, err := j.dev.queue(gq)
	if err != nil {
		return out, err
	}
	d := q.dev
	if q.err != nil {
		return out, q.err
	}
	var found [2]uint64
	var state [1]exchangeState
	err = j.poll(q, func(s stream) error {
		read := func(b *gpu.Buffer, to []byte) error {
			defer runtime.KeepAlive(to)
			return d.ctx.do(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(to))), b.Addr(),
				uintptr(len(to)), uintptr(s))
		}
		if err := read(j.result, gpu.BytesOf(found[:])); err != nil {
			return err
		}
		return read(j.state, gpu.BytesOf(state[:]))
	})
	out = gpu.ActiveState{Done: int(state[0].done), All: j.all, Pairs: found[0], Sum: found[1],
		Mismatches: int(state[0].mismatches)}
	return out, q.fail("active join", err)
}

// poll runs the kernel, waits for its end, and calls then.
func (j *activeJoin) poll(q *queue, then func(stream) error) error {
	d := j.dev
	d.active.Lock()
	defer d.active.Unlock()
	s, err := d.activeStream()
	if err != nil {
		return err
	}
	f, err := taking[exchangeActiveArgs](d.kernels, "exchange_active")
	if err != nil {
		return err
	}
	if j.afterInitiation != 0 {
		if err := d.follow(s, j.afterInitiation); err != nil {
			return err
		}
		d.recycle(j.afterInitiation)
		j.afterInitiation = 0
	}
	begin, err := d.record(s)
	if err != nil {
		return err
	}
	end, err := event(0), start(d.kernels, f, s, "exchange_active", j.blocks, exchangeThreads, 0, j.args)
	if err == nil {
		end, err = d.record(s)
	}
	if err == nil {
		// The copies that follow would keep the driver from launching other kernels if they waited for this one.
		err = d.wait(end)
	}
	if err != nil {
		d.recycle(begin, end)
		return err
	}
	d.trace.measure(begin, end, leaseSpan{gpu.Span{Lane: laneActive, Name: "active join"}, j.lease}, 1, nil)
	return then(s)
}
