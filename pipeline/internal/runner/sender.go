package runner

import (
	"context"
	"math/bits"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/partition"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// sender is a run that sends rows of an exchange.
type sender struct {
	*exchange
	from  int
	run   *run
	op    *opRun
	meter *meter
	task  operators.Task // its queue is nil until rows are routed
	// splitters are those of an exchange by ranges, in memory of the device, once they are known.
	splitters *gpu.Stride
	packs     []pack // by receiver
}

// pack is rows for a receiver that wait for more, so that it does not receive strides of a few rows.
type pack struct {
	parts []*gpu.Stride
	rows  int
}

// packedPart is the part of a stride's rows from which rows are sent as they are. The packs of all receivers together
// then have fewer rows than half a stride for each device of eight.
const packedPart = 4

func newSender(x *exchange, from int) *sender {
	s := &sender{exchange: x, from: from, run: x.runs[from], op: x.ops[from], packs: make([]pack, len(x.runs))}
	s.task = operators.Task{Device: s.run.device, Lease: s.op.lease,
		StrideRows: s.run.device.StrideRows(x.stage.Schema.RowBytes())}
	return s
}

// send sends the rows of a feed until it ends.
func (s *sender) send(f *channelFeed) (err error) {
	o := s.op
	defer func() {
		s.fail(err) // before its pipelines end for want of a receiver
		s.fail(f.end())
	}()
	defer recoverInto(&err, o.Name())
	f.start(s.ctx)
	s.meter = s.run.newMeter()
	defer s.meter.stop()
	defer func() { err = with(err, s.close()) }()
	for {
		resume := s.meter.idle(o, &o.waitIn, f.from.name)
		in, ok := f.from.out.receive(s.ctx)
		resume()
		if s.ctx.Err() != nil {
			if in.Stride != nil {
				in.Release()
			}
			return nil
		}
		if err := s.open(); err != nil {
			if in.Stride != nil {
				in.Release()
			}
			return err
		}
		if !ok {
			return s.unpack()
		}
		if !s.spec.Ordered {
			in.order = 0
		}
		for _, inbox := range s.inboxes {
			inbox.pass(s.from, in.order)
		}
		if in.Stride == nil {
			continue
		}
		o.rowsIn.Add(int64(in.Rows))
		o.state.Store(stateRunning)
		s.meter.turn(o)
		parts, err := s.route(in.Stride)
		s.meter.turn(nil)
		if err != nil {
			return o.explain(err)
		}
		if err := s.put(in.order, parts); err != nil {
			return err
		}
	}
}

// fail ends the run with an error, unless the exchange has ended.
func (s *sender) fail(err error) {
	if err != nil && context.Cause(s.ctx) != errStop {
		s.run.fail(err)
	}
}

// open opens the queue of the sender, if it routes rows, and waits for the splitters. It does so once the first rows
// have come, or none.
func (s *sender) open() (err error) {
	if s.task.Queue != nil || s.spec.Kind != physical.Hash && s.spec.Kind != physical.Range {
		return nil
	}
	if s.task.Queue, err = s.run.newQueue(s.op.Name(), false); err != nil {
		return s.op.failed(err)
	}
	s.task.Queue.Until(s.ctx)
	if s.ranges != nil {
		s.splitters, err = s.ranges.splitters(s)
	}
	return s.op.explain(err)
}

// close releases what the sender has.
func (s *sender) close() error {
	for _, p := range s.packs {
		for _, part := range p.parts {
			part.Release()
		}
	}
	if s.splitters != nil {
		s.splitters.Release()
	}
	if s.task.Queue == nil {
		return nil
	}
	return s.task.Queue.Close()
}

// put puts a part of a stride into each inbox, or into its pack. Parts may be nil. It takes them over.
func (s *sender) put(order int, parts []*gpu.Stride) (err error) {
	defer s.meter.idle(s.op, &s.op.waitOut, s.op.Name)()
	for to, part := range parts {
		switch {
		case part == nil:
		case err != nil || part.Rows == 0:
			part.Release()
		case s.spec.Kind == physical.Hash && !s.spec.Ordered:
			err = s.pack(to, part)
		default:
			err = s.deliver(to, order, part)
		}
	}
	return err
}

// deliver puts a stride into an inbox. An inbox whose receiver needs no more rows releases it.
func (s *sender) deliver(to, order int, part *gpu.Stride) error {
	part.SetReady(s.run.device)
	if err := s.inboxes[to].send(s.ctx, s.from, queued{part, order}); err != errStop {
		return err
	}
	return nil
}

// pack adds rows to the pack of a receiver, and delivers the pack if it has enough rows.
func (s *sender) pack(to int, part *gpu.Stride) error {
	p := &s.packs[to]
	p.parts, p.rows = append(p.parts, part), p.rows+part.Rows
	if p.rows < s.task.StrideRows/packedPart {
		return nil
	}
	return s.deliverPack(to)
}

// deliverPack delivers the pack of a receiver as one stride or, if there is no memory for it, as it came.
func (s *sender) deliverPack(to int) error {
	parts := s.packs[to].parts
	s.packs[to] = pack{}
	if len(parts) > 1 {
		same := make([]*gpu.Stride, len(parts))
		for i, part := range parts {
			same[i] = part.Retain()
		}
		whole, err := operators.ConcatStrides(s.task, s.stage.Schema, same)
		if err == nil || !gpu.IsOutOfMemory(err) {
			for _, part := range parts {
				part.Release()
			}
			if err != nil {
				return s.op.explain(err)
			}
			parts = []*gpu.Stride{whole}
		}
	}
	for i, part := range parts {
		if err := s.deliver(to, 0, part); err != nil {
			for _, left := range parts[i+1:] {
				left.Release()
			}
			return err
		}
	}
	return nil
}

// unpack delivers all packs.
func (s *sender) unpack() error {
	for to, p := range s.packs {
		if len(p.parts) > 0 {
			if err := s.deliverPack(to); err != nil {
				return err
			}
		}
	}
	return nil
}

// route returns the rows of a stride for each device. It takes the stride over.
func (s *sender) route(in *gpu.Stride) ([]*gpu.Stride, error) {
	t := s.task
	parts := make([]*gpu.Stride, len(s.runs))
	switch s.spec.Kind {
	case physical.Gather:
		parts[0] = in
		return parts, nil
	case physical.Broadcast:
		for i := range parts[1:] {
			parts[i] = in.Retain()
		}
		parts[len(parts)-1] = in
		return parts, nil
	}
	defer in.Release()
	to, err := s.destinations(in)
	if err != nil {
		return nil, err
	}
	defer to.Release()
	rows, offsets, err := operators.PartitionStride(t, in, to, gpu.Digit{Bits: uint(bits.Len(uint(len(parts) - 1)))})
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	return operators.CutStride(t, rows, offsets[:len(parts)+1])
}

// destinations returns a column of the device to which each row of a stride goes.
func (s *sender) destinations(in *gpu.Stride) (to gpu.Column, err error) {
	t := s.task
	if s.spec.Kind == physical.Range {
		return sort.RangeOf(t, s.splitters, s.spec.By, in)
	}
	return partition.ByHash(t, in, s.spec.Keys, s.seed, len(s.runs))
}
