package join

import (
	"context"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// work is the queue of pairs of partitions that a join out of core still has to join. Lanes of the
// device take groups from the front. Other devices and lanes of the CPU split pairs off from the
// back of the last groups.
type work struct {
	taking sync.Mutex
	groups []group
	begun  int           // number of groups, the first ones, that lanes have taken
	reader *spill.Reader // of all groups that fit memory, in order; nil with several lanes
}

// group is the pairs of partitions [from, to), which are joined together.
type group struct {
	from, to int
	ahead    bool            // the reader reads them
	split    bool            // they were split off
	items    operators.Items // at the time when the group was begun
}

// leastPiece is the number of bytes up to which several pairs are split off together.
const leastPiece = 64 << 10

// Parts implements operators.Source: a part is a group of pairs of partitions.
func (o *outOfCore) Parts() int { return len(o.groups) }

// Items implements operators.Divisible.
func (o *outOfCore) Items(part int) operators.Items {
	o.taking.Lock()
	defer o.taking.Unlock()
	if g := o.groups[part]; part >= o.begun {
		return operators.Items{N: g.to - g.from, Bytes: o.bytes(g.from, g.to)}
	}
	return o.groups[part].items
}

// bytes returns the bytes of pairs.
func (o *outOfCore) bytes(from, to int) int64 {
	return o.build.Bytes(from, to) + o.probe.Bytes(from, to)
}

// begin takes a group from the queue.
func (o *outOfCore) begin(ctx context.Context, t operators.Task, part int) group {
	o.taking.Lock()
	defer o.taking.Unlock()
	if t.Lanes == 1 && o.reader == nil {
		o.readAhead(ctx, t)
	}
	o.begun = max(o.begun, part+1)
	g := &o.groups[part]
	g.items = operators.Items{N: g.to - g.from, Bytes: o.bytes(g.from, g.to)}
	return *g
}

// readAhead makes the reader of all groups that are joined in memory. A single lane joins them in
// order, so that it reads the next group while it joins one.
func (o *outOfCore) readAhead(ctx context.Context, t operators.Task) {
	var ranges []spill.Range
	for i := range o.groups {
		g := &o.groups[i]
		if g.ahead = !o.barren(g.from, g.to) && !o.large(t, g.from, g.to); g.ahead {
			ranges = append(ranges, spill.Range{Partitions: o.build, Span: spill.Span{From: g.from, To: g.to}},
				spill.Range{Partitions: o.probe, Span: spill.Span{From: g.from, To: g.to}})
		}
	}
	o.reader = spill.NewReader(ctx, t.Lease, ranges)
}

// Split implements operators.Divisible. It splits off the last pairs of the last group that has
// pairs which fit the memory of a lane of the task.
func (o *outOfCore) Split(t operators.Task, want func(left, piece int64) bool) *operators.Piece {
	if !o.portable(t.Device.Properties()) {
		return nil
	}
	o.taking.Lock()
	defer o.taking.Unlock()
	left := int64(0)
	for _, g := range o.groups[o.begun:] {
		left += o.bytes(g.from, g.to)
	}
	for i := len(o.groups) - 1; i >= o.begun; i-- {
		g := &o.groups[i]
		if g.from == g.to {
			continue
		}
		from, to := g.to-1, g.to
		for from > g.from && o.bytes(from-1, to) <= leastPiece {
			from--
		}
		p := &operators.Piece{Items: operators.Items{N: to - from, Bytes: o.bytes(from, to)}}
		// The result takes about as much memory as both sides.
		if o.large(t, from, to) || o.during(t, from, to)+p.Bytes > t.Lease.Available()/int64(t.Lanes) {
			continue
		}
		if !want(left, p.Bytes) {
			return nil
		}
		if g.ahead && !o.reader.Cut(to, from) {
			continue // it is being read
		}
		g.to, g.ahead = from, g.ahead && from > g.from
		p.Emit = func(ctx context.Context, t operators.Task, emit operators.Emit) error {
			err := o.join(ctx, t, group{from: from, to: to, split: true}, emit)
			if err == nil {
				o.drop(from, to)
			}
			return err
		}
		return p
	}
	return nil
}

// portable reports whether a device with some properties joins pairs with the same result as any
// other device.
func (o *outOfCore) portable(p gpu.Properties) bool {
	return o.FirstPass == nil && (o.Algorithm == "" || slices.Contains(AlgorithmsOn(p), o.Algorithm)) &&
		(o.Residual == nil || o.Residual.Program.Portable())
}

// Emit implements operators.Source. It joins the rows of a group. The lane that takes the first
// group releases the partitions in memory, which are no longer needed.
func (o *outOfCore) Emit(ctx context.Context, t operators.Task, part int, emit operators.Emit) error {
	if part == 0 {
		o.giveBack()
	}
	return o.join(ctx, t, o.begin(ctx, t, part), emit)
}

// join joins pairs of partitions, and drops them unless they are split off.
func (o *outOfCore) join(ctx context.Context, t operators.Task, g group, emit operators.Emit) (err error) {
	from, to := g.from, g.to
	if !g.ahead && o.barren(from, to) {
		o.drop(from, to)
		return nil
	}
	s := o.Spec
	s.BuildRows, s.ProbeRows, s.PairRows = o.build.Rows(from, to), o.probe.Rows(from, to), 0
	in := newOutOfCore(s, o.depth+1)
	defer func() {
		if closeErr := in.Close(); err == nil {
			err = closeErr
		}
	}()
	in.heavyHitters, in.partial = o.heavyHitters, true
	large := o.large(t, from, to)
	t.Lanes = 1
	switch {
	case large && in.spills(t):
		in.start(t)
	case large:
		return o.emitBlocked(ctx, t, from, to, emit)
	}
	side, err := in.NewLocal(t)
	if err != nil {
		return err
	}
	read := func(of *spill.Partitions, schema *gpu.Schema, take func(*gpu.Stride) error) (err error) {
		if g.ahead {
			err = o.inBatches(t, of, schema, func(add func(*gpu.Stride) error) error {
				return o.reader.Next(t.Queue, func(s *gpu.Stride, _ int) error { return add(s) })
			}, take)
		} else {
			err = o.batches(ctx, t, of, schema, from, to, take)
		}
		if err == nil && !g.split { // after an error the reader may still be reading
			of.Drop(from, to)
		}
		return err
	}
	err = read(o.build, o.Build, func(s *gpu.Stride) error { return side.Push(ctx, 0, s) })
	if err == nil {
		err = side.Combine(ctx)
	}
	if closeErr := side.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := in.Finalize(ctx, t); err != nil {
		return err
	}
	return in.stream(ctx, t, func(push func(*gpu.Stride) error) error { return read(o.probe, o.Probe, push) }, emit)
}
