package join

import (
	"context"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// NewLane implements operators.Streaming. It is for the probe side.
func (o *equiJoin) NewLane(t operators.Task) (operators.Lane, error) {
	return &lane{equiJoin: o, Task: t}, nil
}

// lane is a lane of the probe side. Every kind of join is computed from the pairs of a Matcher:
//
//   - inner: the pairs for which the residual condition is true.
//   - left and full: the same, and the probe rows without such a pair, in the order of the
//     probe side if the pairs have this order.
//   - right and full: pairs also set bits in the match bitmap of the build side. The last lane to
//     end returns the build rows without a bit.
//   - right semi and right anti: pairs only set bits in the match bitmap of the build side. The last
//     lane to end returns the build rows with or without a bit.
//   - semi, anti, mark: the probe rows that have a match. With a residual condition, the bits of
//     a match bitmap, set by pairs, tell which.
type lane struct {
	*equiJoin
	operators.Task
	pending []*gpu.Stride // collected until they have as many rows as the algorithm wants
	rows    int           // of pending
}

// Push implements operators.Lane.
func (l *lane) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	least := l.built.least()
	if least == 0 {
		return l.join(s, emit)
	}
	if err := l.collect(s, emit); err != nil || l.rows < least {
		return err
	}
	return l.joinPending(emit)
}

// collect adds a stride, which it takes over, to the pending strides. If they cannot be
// concatenated with it, they are joined first.
func (l *lane) collect(s *gpu.Stride, emit operators.Emit) error {
	if !l.together(s) {
		if err := l.joinPending(emit); err != nil {
			s.Release()
			return err
		}
	}
	s.ChargeTo(l.Lease)
	l.pending, l.rows = append(l.pending, s), l.rows+s.Rows
	return nil
}

// together reports whether a stride and the pending strides can be concatenated: they do not have
// too many rows, and the strings of a column fit 2 GiB. Codes of different dictionaries
// are not concatenated, since their strings may have any size.
func (l *lane) together(s *gpu.Stride) bool {
	for i, c := range s.Cols {
		if !c.Type.IsVar() {
			continue
		}
		bytes := c.Data.Size()
		for _, p := range l.pending {
			if p.Cols[i].Dict != c.Dict {
				return false
			}
			bytes += p.Cols[i].Data.Size()
		}
		if c.Dict == nil && bytes > math.MaxInt32 {
			return false
		}
	}
	return l.rows+s.Rows <= gpu.MaxRows
}

// joinPending joins the strides that have been collected.
func (l *lane) joinPending(emit operators.Emit) error {
	strides := l.pending
	l.pending, l.rows = nil, 0
	if len(strides) == 0 {
		return nil
	}
	s, err := operators.ConcatStrides(l.Task, l.Probe, strides)
	if err != nil {
		return err
	}
	return l.join(s, emit)
}

// Flush implements operators.Lane.
func (l *lane) Flush(_ context.Context, emit operators.Emit) error {
	if err := l.joinPending(emit); err != nil {
		return err
	}
	if !l.Kind.KeepsBuild() && !l.Kind.OfBuild() || int(l.flushed.Add(1)) < l.Lanes {
		return nil
	}
	return l.buildRows(emit)
}

// Close implements operators.Lane.
func (l *lane) Close() error {
	for _, s := range l.pending {
		s.Release()
	}
	l.pending = nil
	return nil
}

// join joins a stride, which it takes over.
func (l *lane) join(s *gpu.Stride, emit operators.Emit) error {
	defer s.Release()
	m, err := l.built.match(l.Task, s)
	if err != nil {
		return err
	}
	defer m.Release()
	switch {
	case l.Kind.OfBuild():
		return l.markBuild(m)
	case !l.Kind.Pairs():
		return l.matchedRows(m, s.Rows, emit)
	case l.Kind == Inner && len(l.checks) == 0 && !l.coded:
		return l.allPairs(m, emit)
	}
	return l.pairs(m, s, emit)
}

// allPairs emits the pairs of an inner join.
func (l *lane) allPairs(m matching, emit operators.Emit) error {
	probe, build := operators.Pick(m.probe, l.ProbeOut), operators.Pick(l.built.columns(), l.BuildOut)
	for more := true; more; {
		cols, rows, left, err := m.Join(l.Queue, l.Lease, probe, build, l.StrideRows)
		if err != nil {
			return err
		}
		more = left
		if err := l.emit(&gpu.Stride{Schema: l.Out, Cols: cols, Rows: rows}, emit); err != nil {
			return err
		}
	}
	return nil
}

// emit emits a stride unless it is empty.
func (l *lane) emit(s *gpu.Stride, emit operators.Emit) error {
	if s.Rows == 0 {
		s.Release()
		return nil
	}
	return emit(s)
}

// next returns the next pairs for which all conditions are true.
func (l *lane) next(m matching) (p pairs, more bool, err error) {
	p.probe, p.build, more, err = m.Next(l.Queue, l.Lease, l.StrideRows)
	for _, r := range l.checks {
		if err != nil || p.probe.Len == 0 {
			break
		}
		err = l.filter(m, r, &p)
	}
	return p, more, err
}

// pairs are row ids of the probe and the build side. -1 means that there is no build row.
type pairs struct{ probe, build gpu.Column }

func (p *pairs) release() {
	p.probe.Release()
	p.build.Release()
}

// filter keeps the pairs for which a condition is true. After an error it leaves no pairs.
func (l *lane) filter(m matching, r *Residual, p *pairs) (err error) {
	all := *p
	*p = pairs{}
	defer all.release()
	in, err := l.Queue.Gather(l.Lease, operators.Pick(m.probe, r.Probe), all.probe, false)
	if err != nil {
		return err
	}
	defer func() { gpu.ReleaseColumns(in) }()
	build, err := l.Queue.Gather(l.Lease, operators.Pick(l.built.columns(), r.Build), all.build, false)
	if err != nil {
		return err
	}
	in = append(in, build...)
	truth, err := l.Queue.Eval(l.Lease, r.Program, in, all.probe.Len)
	if err != nil {
		return err
	}
	defer gpu.ReleaseColumns(truth)
	ids, err := l.Queue.Select(l.Lease, truth[0], true)
	if err != nil {
		return err
	}
	defer ids.Release()
	kept, err := l.Queue.Gather(l.Lease, []gpu.Column{all.probe, all.build}, ids, false)
	if err != nil {
		return err
	}
	*p = pairs{kept[0], kept[1]}
	return nil
}

// pairs emits the pairs of a stride and, for kinds that keep them, its rows without a match. Rows
// without a match can be put in their positions only if all pairs of the stride are known. If the
// pairs are too many, the stride is joined in halves.
func (l *lane) pairs(m matching, s *gpu.Stride, emit operators.Emit) error {
	var matches gpu.Column
	if l.Kind.KeepsProbe() {
		var err error
		if matches, err = l.Queue.NewBitmap(l.Lease, s.Rows); err != nil {
			return err
		}
		defer matches.Release()
	}
	for more := true; more; {
		p, left, err := l.next(m)
		if err != nil {
			return err
		}
		more = left
		if l.Kind.KeepsProbe() && more && m.ordered && s.Rows > 1 {
			p.release()
			return l.halves(s, emit)
		}
		if l.Kind.KeepsBuild() {
			err = l.Queue.SetBits(l.Lease, l.matches, p.build)
		}
		if err == nil && l.Kind.KeepsProbe() {
			err = l.Queue.SetBits(l.Lease, matches, p.probe)
			if err == nil && !more {
				err = l.addUnmatched(m, matches, &p, emit)
			}
		}
		if err == nil {
			err = l.emitPairs(m, p, emit)
		}
		p.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// halves joins the two halves of a stride, which is borrowed.
func (l *lane) halves(s *gpu.Stride, emit operators.Emit) error {
	for _, part := range [][2]int{{0, s.Rows / 2}, {s.Rows / 2, s.Rows}} {
		half, err := operators.SliceStride(l.Task, s, part[0], part[1])
		if err != nil {
			return err
		}
		if err := l.join(half, emit); err != nil {
			return err
		}
	}
	return nil
}

// addUnmatched adds the probe rows without a bit in the match bitmap to the last pairs of a stride.
// If the pairs are not in order, it emits them, and leaves only the added rows.
func (l *lane) addUnmatched(m matching, matches gpu.Column, p *pairs, emit operators.Emit) error {
	rest, err := l.Queue.Select(l.Lease, matches, false)
	if err != nil {
		return err
	}
	defer rest.Release()
	if rest.Len == 0 {
		return nil
	}
	if !m.ordered {
		if err := l.emitPairs(m, *p, emit); err != nil {
			return err
		}
		p.release()
		*p = pairs{gpu.Column{Type: rest.Type}, gpu.Column{Type: rest.Type}}
	}
	all := *p
	p.probe, p.build, err = l.Queue.AddUnmatched(l.Lease, all.probe, all.build, rest)
	all.release()
	return err
}

// emitPairs emits the rows of pairs, at most StrideRows at a time.
func (l *lane) emitPairs(m matching, p pairs, emit operators.Emit) error {
	for from := 0; from < p.probe.Len; from += l.StrideRows {
		part, err := l.slice(p, from)
		if err != nil {
			return err
		}
		cols, err := l.Queue.Gather(l.Lease, operators.Pick(m.probe, l.ProbeOut), part.probe, false)
		part.probe.Release()
		if err != nil {
			part.build.Release()
			return err
		}
		if err := l.emitBuild(cols, part.build, emit); err != nil {
			return err
		}
	}
	return nil
}

// emitBuild emits columns of the probe side, followed by the columns of the build side at row ids.
// It takes both over.
func (l *lane) emitBuild(cols []gpu.Column, ids gpu.Column, emit operators.Emit) error {
	out := &gpu.Stride{Schema: l.Out, Cols: cols, Rows: ids.Len}
	err := l.gatherBuild(out, ids)
	ids.Release()
	if err != nil {
		out.Release()
		return err
	}
	return emit(out)
}

// slice returns at most StrideRows pairs from a position on.
func (l *lane) slice(p pairs, from int) (part pairs, err error) {
	to := min(from+l.StrideRows, p.probe.Len)
	if part.probe, err = l.Queue.Slice(l.Lease, p.probe, from, to); err != nil {
		return part, err
	}
	if part.build, err = l.Queue.Slice(l.Lease, p.build, from, to); err != nil {
		part.release()
	}
	return part, err
}

// gatherBuild appends the columns of the build side at row ids.
func (l *lane) gatherBuild(out *gpu.Stride, ids gpu.Column) error {
	var copied []gpu.Column // columns without a dictionary, and the validity of the others
	all := operators.Pick(l.built.columns(), l.BuildOut)
	for i, c := range all {
		switch {
		case l.dicts[i] == nil:
			copied = append(copied, c)
		case l.valid[i].Data != nil:
			copied = append(copied, l.valid[i])
		}
	}
	cols, err := l.Queue.Gather(l.Lease, copied, ids, l.Kind.KeepsProbe())
	if err != nil {
		return err
	}
	for i, c := range all {
		dict := l.dicts[i]
		if dict == nil {
			out.Cols, cols = append(out.Cols, cols[0]), cols[1:]
			continue
		}
		coded := gpu.Column{Type: c.Type, Len: ids.Len, Data: ids.Data, Dict: dict}
		if l.valid[i].Data != nil {
			coded.Valid = cols[0].Data
			defer cols[0].Release()
			cols = cols[1:]
		}
		out.Cols = append(out.Cols, coded.Retain())
	}
	return nil
}

// matchedRows emits the probe rows that a semi, anti or mark join returns.
func (l *lane) matchedRows(m matching, rows int, emit operators.Emit) error {
	matches, err := l.matched(m, rows)
	if err != nil {
		return err
	}
	defer matches.Release()
	probe := operators.Pick(m.probe, l.ProbeOut)
	out := &gpu.Stride{Schema: l.Out, Rows: rows}
	if l.Kind == Mark {
		for _, c := range append(probe, matches) {
			out.Cols = append(out.Cols, c.Retain())
		}
		return l.emit(out, emit)
	}
	ids, err := l.Queue.Select(l.Lease, matches, l.Kind == Semi)
	if err != nil {
		return err
	}
	defer ids.Release()
	if out.Rows = ids.Len; ids.Len == 0 {
		return nil
	}
	if out.Cols, err = l.Queue.Gather(l.Lease, probe, ids, false); err != nil {
		return err
	}
	return emit(out)
}

// matched returns a Bool column that says which probe rows have a match.
func (l *lane) matched(m matching, rows int) (gpu.Column, error) {
	if len(l.checks) == 0 {
		return m.Matched(l.Queue, l.Lease)
	}
	matches, err := l.Queue.NewBitmap(l.Lease, rows)
	if err != nil {
		return matches, err
	}
	for more := true; more; {
		var p pairs
		if p, more, err = l.next(m); err == nil {
			err = l.Queue.SetBits(l.Lease, matches, p.probe)
			p.release()
		}
		if err != nil {
			matches.Release()
			return gpu.Column{}, err
		}
	}
	return matches, nil
}

// markBuild sets the bits of the build rows that have a match.
func (l *lane) markBuild(m matching) error {
	for more := true; more; {
		p, left, err := l.next(m)
		if err != nil {
			return err
		}
		more = left
		err = l.Queue.SetBits(l.Lease, l.matches, p.build)
		p.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// buildRows emits the build rows that have a match, for a right semi join, or else those that have none, with nulls for
// the probe side.
func (l *lane) buildRows(emit operators.Emit) error {
	rest, err := l.Queue.Select(l.Lease, l.matches, l.Kind == RightSemi)
	if err != nil {
		return err
	}
	defer rest.Release()
	var none []gpu.Column
	for _, i := range l.ProbeOut {
		none = append(none, gpu.ColumnOf(l.Probe.Fields[i].Type, nil))
	}
	for from := 0; from < rest.Len; from += l.StrideRows {
		ids, err := l.Queue.Slice(l.Lease, rest, from, min(from+l.StrideRows, rest.Len))
		if err != nil {
			return err
		}
		cols, err := l.Queue.Scatter(l.Lease, none, gpu.Column{Type: rest.Type}, ids.Len)
		if err != nil {
			ids.Release()
			return err
		}
		if err := l.emitBuild(cols, ids, emit); err != nil {
			return err
		}
	}
	return nil
}
