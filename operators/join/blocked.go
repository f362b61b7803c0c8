package join

import (
	"context"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// blocked joins two partitions whose build side does not fit, and whose rows no hash separates, because
// most of them have the same key (a heavy hitter). The build side is cut into blocks that fit, and
// all probe rows stream past each block (a blocked nested loop join). Some kinds ask whether a
// probe row has a match in any block. For these, rest keeps the probe rows without a match in the
// blocks so far. An ASOF join has the rows nearest in time in its first block, so that rows with a match need no other.
type blocked struct {
	*outOfCore
	task operators.Task
	emit operators.Emit
	rest *spill.Partitions // nil before the first block: all probe rows
	// all has the probe rows.
	all func(ctx context.Context, take func(*gpu.Stride) error) error
}

// emitBlocked emits the join of partitions [from, to).
func (o *outOfCore) emitBlocked(ctx context.Context, t operators.Task, from, to int, emit operators.Emit) (err error) {
	o.heavyHitters.Add(1)
	h := &blocked{outOfCore: o, task: t, emit: emit}
	h.all = func(ctx context.Context, take func(*gpu.Stride) error) error {
		return o.batches(ctx, t, o.probe, o.Probe, from, to, take)
	}
	defer func() {
		if closeErr := h.rest.Close(); err == nil {
			err = closeErr
		}
	}()
	var block []*gpu.Stride
	defer func() {
		for _, s := range block {
			s.Release()
		}
	}()
	bytes, rows := int64(0), int64(0)
	room := t.Share(grant.JoinBlock)
	join := func() error {
		strides := block
		block, bytes, rows = nil, 0, 0
		return h.block(ctx, strides)
	}
	rowsOf := func(take func(*gpu.Stride) error) error {
		if o.AsOf != nil {
			return o.byTime(ctx, t, from, to, take)
		}
		return o.batches(ctx, t, o.build, o.Build, from, to, take)
	}
	err = rowsOf(func(s *gpu.Stride) error {
		block, bytes, rows = append(block, s), bytes+s.Bytes(), rows+int64(s.Rows)
		if during, _ := h.memory(t, bytes, rows); during < room {
			return nil
		}
		return join()
	})
	if err == nil && rows > 0 {
		err = join()
	}
	if err == nil {
		err = h.unmatched(ctx)
	}
	o.drop(from, to)
	return err
}

// block joins the probe rows with some rows of the build side, which it takes over.
func (h *blocked) block(ctx context.Context, build []*gpu.Stride) error {
	switch h.Kind {
	case Inner, Left, Right, Full, RightSemi, RightAnti:
		pairs, probe, more := h.Spec, h.all, h.Kind.KeepsProbe()
		switch h.Kind { // build rows have been compared with all probe rows
		case Left:
			pairs.Kind = Inner
		case Full:
			pairs.Kind = Right
		}
		if h.AsOf != nil {
			probe, more = h.left, true
		}
		if !more {
			return h.join(ctx, pairs, build, probe, h.emit)
		}
		if err := h.join(ctx, pairs, retain(build), probe, h.emit); err != nil {
			release(build)
			return err
		}
	case Semi, Mark:
		if err := h.join(ctx, h.matching(Semi, h.Kind == Semi), retain(build), h.left, h.matched); err != nil {
			release(build)
			return err
		}
	}
	return h.keepUnmatched(ctx, build)
}

// matching returns the spec of a join of another kind, which returns probe rows: the columns of the
// result, or all columns.
func (h *blocked) matching(kind Kind, result bool) Spec {
	s := h.Spec
	s.Kind, s.BuildOut = kind, nil
	if !result {
		s.Out, s.ProbeOut = h.Probe, make([]int, h.Probe.Len())
		for i := range s.ProbeOut {
			s.ProbeOut[i] = i
		}
	}
	return s
}

// left calls take with the probe rows without a match so far.
func (h *blocked) left(ctx context.Context, take func(*gpu.Stride) error) error {
	if h.rest == nil {
		return h.all(ctx, take)
	}
	return h.batches(ctx, h.task, h.rest, h.Probe, 0, 1, take)
}

// keepUnmatched keeps the probe rows in rest that have no match in a block.
func (h *blocked) keepUnmatched(ctx context.Context, build []*gpu.Stride) error {
	t := h.task
	rest := t.Spill.NewPartitions(t.Lease.Name(), t.Lease, h.Probe, 1)
	err := h.join(ctx, h.matching(Anti, false), build, h.left, func(s *gpu.Stride) error {
		return rest.Append(s, 0, []int{0, s.Rows})
	})
	if closeErr := h.rest.Close(); err == nil {
		err = closeErr
	}
	h.rest = rest
	return err
}

// matched emits probe rows that have a match.
func (h *blocked) matched(s *gpu.Stride) error {
	if h.Kind == Mark {
		return h.emitMarked(s, true)
	}
	return h.emit(s)
}

// unmatched emits the probe rows that have no match in any block.
func (h *blocked) unmatched(ctx context.Context) error {
	switch h.Kind {
	case Anti, Left, Full:
		s := h.Spec
		if s.Kind == Full {
			s.Kind = Left
		}
		return h.join(ctx, s, nil, h.left, h.emit)
	case Mark:
		return h.left(ctx, func(s *gpu.Stride) error { return h.emitMarked(s, false) })
	}
	return nil
}

// emitMarked emits probe rows with the same mark for all.
func (h *blocked) emitMarked(s *gpu.Stride, mark bool) error {
	defer s.Release()
	matches, err := constant(h.task, gpu.BoolScalar(mark), s.Rows)
	if err != nil {
		return err
	}
	out := &gpu.Stride{Schema: h.Out, Rows: s.Rows}
	for _, c := range operators.Pick(s.Cols, h.ProbeOut) {
		out.Cols = append(out.Cols, c.Retain())
	}
	out.Cols = append(out.Cols, matches)
	return h.emit(out)
}

// join joins rows with a build side in memory, which it takes over.
func (h *blocked) join(ctx context.Context, s Spec, build []*gpu.Stride,
	probe func(context.Context, func(*gpu.Stride) error) error, emit operators.Emit) (err error) {
	in := newOutOfCore(s, mostDepth)
	defer func() {
		if closeErr := in.Close(); err == nil {
			err = closeErr
		}
	}()
	for i, b := range build {
		if err := in.pending.Push(ctx, 0, b); err != nil {
			release(build[i+1:])
			return err
		}
	}
	if err := in.Finalize(ctx, h.task); err != nil {
		return err
	}
	return in.stream(ctx, h.task, func(push func(*gpu.Stride) error) error { return probe(ctx, push) }, emit)
}

// retain returns strides that share the columns of others.
func retain(strides []*gpu.Stride) []*gpu.Stride {
	out := slices.Clone(strides)
	for i, s := range strides {
		out[i] = s.Retain()
	}
	return out
}

func release(strides []*gpu.Stride) {
	for _, s := range strides {
		s.Release()
	}
}
