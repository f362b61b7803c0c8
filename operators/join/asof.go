package join

import (
	"context"
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
)

// AsOf makes a join one that pairs each probe row with the nearest build row among those of equal keys: the last one
// whose time is not after the time of the probe row, or with Forward the first one whose time is not before it. Of
// build rows with one time it is any, the same in every run in memory. A time is a value of any type that has an order.
// A null time matches nothing.
type AsOf struct {
	Probe, Build int // columns with the times, of one type
	Forward      bool
	Strict       bool // equal times do not match
}

func (s *Spec) validateAsOf() error {
	p, b := s.Probe.Fields[s.AsOf.Probe], s.Build.Fields[s.AsOf.Build]
	switch {
	case p.Type != b.Type:
		return fmt.Errorf("the time %q is %v, but %q is %v", p.Name, p.Type, b.Name, b.Type)
	case s.Residual != nil || s.Range != nil || s.Algorithm != "":
		return fmt.Errorf("an ASOF join has neither other conditions nor the choice of an algorithm")
	}
	return nil
}

// asOf is the sort-merge form of the ASOF join. The build side is sorted by the keys and the time. A table has the
// first row of each key, and so the range of its rows, in which a binary search finds the nearest time. Probe rows are
// not sorted: they stream, and keep their order.
//
// Cost: a sort of the build side, and for each probe row a lookup and log2(build rows of its key) random reads.
type asOf struct{ *Spec }

func (a asOf) build(_ context.Context, t operators.Task, side *gpu.Stride) (_ built, err error) {
	defer side.Release()
	by := make([]int, 0, len(a.BuildKeys)+1)
	by = append(append(by, a.BuildKeys...), a.AsOf.Build)
	b := &asOfSide{asOf: a}
	defer func() {
		if err != nil {
			b.release()
		}
	}()
	if b.cols, err = a.sortSide(t, side, by); err != nil {
		return nil, err
	}
	keys := operators.Pick(b.cols, a.BuildKeys)
	runs, firsts, err := t.Queue.Runs(t.Lease, keys)
	if err != nil {
		return nil, err
	}
	runs.Release()
	b.from = firsts
	if b.to, err = a.ends(t, b.cols[a.AsOf.Build], firsts); err != nil {
		return nil, err
	}
	first, err := t.Queue.Gather(t.Lease, keys, firsts, false)
	if err != nil {
		return nil, err
	}
	defer gpu.ReleaseColumns(first)
	b.table, err = t.Queue.BuildTable(t.Lease, first, a.NullSafe, spread*uint64(firsts.Len)+leastRanks)
	if err != nil {
		return nil, err
	}
	for _, k := range a.BuildKeys { // the table has copies of the keys
		if !a.keeps(k) {
			b.cols[k].Release()
			b.cols[k] = gpu.Column{}
		}
	}
	return b, nil
}

// ends returns for each key the end of its rows whose time is not null. Nulls come last.
func (a asOf) ends(t operators.Task, times, firsts gpu.Column) (gpu.Column, error) {
	if firsts.Len == 0 {
		return firsts.Retain(), nil
	}
	end, err := constant(t, gpu.IntScalar(firsts.Type, int64(times.Len)), 1)
	if err != nil {
		return gpu.Column{}, err
	}
	defer end.Release()
	later, err := t.Queue.Slice(t.Lease, firsts, 1, firsts.Len)
	if err != nil {
		return gpu.Column{}, err
	}
	defer later.Release()
	to, err := t.Queue.Concat(t.Lease, []gpu.Column{later, end})
	if err != nil || times.Valid == nil {
		return to, err
	}
	defer to.Release()
	null, err := constant(t, gpu.Null(times.Type), firsts.Len)
	if err != nil {
		return gpu.Column{}, err
	}
	defer null.Release()
	return t.Queue.Search(t.Lease, gpu.SortKey{Column: times}, null, false, firsts, to)
}

// constant returns a column of n rows with one value.
func constant(t operators.Task, v gpu.Scalar, n int) (gpu.Column, error) {
	cols, err := t.Queue.Eval(t.Lease, &gpu.Program{Outputs: []int{0},
		Code: []gpu.Instr{{Op: gpu.OpConst, Type: v.Type, Value: v, Mask: -1}}}, nil, n)
	if err != nil {
		return gpu.Column{}, err
	}
	return cols[0], nil
}

// asOfSide is a build side in the order of its keys and times.
type asOfSide struct {
	asOf
	cols     []gpu.Column
	table    gpu.Table  // of the keys, each once
	from, to gpu.Column // for each key the range of its rows with a time
}

func (b *asOfSide) columns() []gpu.Column { return b.cols }
func (b *asOfSide) least() int            { return 0 }

func (b *asOfSide) match(t operators.Task, probe *gpu.Stride) (matching, error) {
	p, err := b.keysOf(t, probe)
	if err != nil {
		return matching{}, err
	}
	nearest, err := b.nearest(t, p, probe.Cols[b.AsOf.Probe])
	p.release()
	return matching{&found{pairs: nearest, rows: probe.Rows}, probe.Cols, true}, err
}

// keysOf returns the probe rows whose keys there are on the build side, with the number of the key.
func (b *asOfSide) keysOf(t operators.Task, probe *gpu.Stride) (p pairs, err error) {
	m, err := b.table.Match(t.Queue, t.Lease, operators.Pick(probe.Cols, b.ProbeKeys))
	if err != nil {
		return p, err
	}
	defer m.Release()
	var parts [2][]gpu.Column
	defer func() { gpu.ReleaseColumns(append(parts[0], parts[1]...)) }()
	for more := true; more; {
		var rows, keys gpu.Column
		if rows, keys, more, err = m.Next(t.Queue, t.Lease, max(probe.Rows, 1)); err != nil {
			return p, err
		}
		parts[0], parts[1] = append(parts[0], rows), append(parts[1], keys)
	}
	if p.probe, err = t.Queue.Concat(t.Lease, parts[0]); err != nil {
		return p, err
	}
	if p.build, err = t.Queue.Concat(t.Lease, parts[1]); err != nil {
		p.release()
	}
	return p, err
}

// nearest returns the pairs of the rows of p with the build row that is nearest in time.
func (b *asOfSide) nearest(t operators.Task, p pairs, of gpu.Column) (out pairs, err error) {
	ranges, err := t.Queue.Gather(t.Lease, []gpu.Column{b.from, b.to}, p.build, false)
	if err != nil {
		return out, err
	}
	defer func() { gpu.ReleaseColumns(ranges) }()
	bound, err := t.Queue.Gather(t.Lease, []gpu.Column{of}, p.probe, false)
	if err != nil {
		return out, err
	}
	defer gpu.ReleaseColumns(bound)
	// The ranges have no null, and a row with a null as its bound is dropped below.
	key, times := b.cols[b.AsOf.Build], bound[0]
	key.Valid, times.Valid = nil, nil
	at, err := t.Queue.Search(t.Lease, gpu.SortKey{Column: key}, times, b.AsOf.Forward == b.AsOf.Strict, ranges[0],
		ranges[1])
	if err != nil {
		return out, err
	}
	defer at.Release()
	rows, err := t.Queue.Eval(t.Lease, b.program(of.Type), []gpu.Column{at, ranges[0], ranges[1], bound[0]}, at.Len)
	if err != nil {
		return out, err
	}
	defer gpu.ReleaseColumns(rows)
	ids, err := t.Queue.Select(t.Lease, rows[1], true)
	if err != nil {
		return out, err
	}
	defer ids.Release()
	cols, err := t.Queue.Gather(t.Lease, []gpu.Column{p.probe, rows[0]}, ids, false)
	if err != nil {
		return out, err
	}
	return pairs{cols[0], cols[1]}, nil
}

// program computes from the row at which a search ended, its range and the time that was searched the nearest row, and
// whether there is one.
func (b *asOfSide) program(time gpu.Type) *gpu.Program {
	const at, from, to, bound = 0, 1, 2, 3
	row, truth := gpu.Of(gpu.Int32), gpu.Of(gpu.Bool)
	p := &gpu.Program{Inputs: []gpu.Type{row, row, row, time}, Code: []gpu.Instr{
		{Op: gpu.OpIsNotNull, Type: truth, Args: []int{bound}, Mask: -1},
		{Op: gpu.OpLt, Type: truth, Args: []int{at, to}, Mask: -1},
		{Op: gpu.OpAnd, Type: truth, Args: []int{4, 5}, Mask: -1},
	}, Outputs: []int{at, 6}}
	if !b.AsOf.Forward { // the row before
		p.Code[1].Args = []int{from, at}
		p.Code = append(p.Code, gpu.Instr{Op: gpu.OpConst, Type: row, Value: gpu.IntScalar(row, 1), Mask: -1},
			gpu.Instr{Op: gpu.OpSub, Type: row, Args: []int{at, 7}, Mask: -1})
		p.Outputs[0] = 8
	}
	return p
}

func (b *asOfSide) release() {
	gpu.ReleaseColumns(append(b.cols, b.from, b.to))
	b.cols, b.from, b.to = nil, gpu.Column{}, gpu.Column{}
	if b.table != nil {
		b.table.Release()
		b.table = nil
	}
}

// found is a matcher of pairs that are known, in the order of the probe rows. It owns them.
type found struct {
	pairs
	rows int // of the probe side
	at   int // pairs that it has returned
}

// Next implements gpu.Matcher.
func (m *found) Next(q gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	to := min(m.at+max(limit, 1), m.probe.Len)
	if probe, err = q.Slice(l, m.probe, m.at, to); err != nil {
		return probe, build, false, err
	}
	if build, err = q.Slice(l, m.build, m.at, to); err != nil {
		probe.Release()
		return gpu.Column{}, build, false, err
	}
	m.at = to
	return probe, build, to < m.probe.Len, nil
}

// Join implements gpu.Matcher.
func (m *found) Join(q gpu.Queue, l *gpu.Lease, probe, build []gpu.Column,
	limit int) (cols []gpu.Column, rows int, more bool, err error) {
	at := m.at
	if cols, rows, more, err = gpu.NextAndGather(m, q, l, probe, build, limit); err != nil {
		m.at = at
	}
	return cols, rows, more, err
}

// Matched implements gpu.Matcher.
func (m *found) Matched(q gpu.Queue, l *gpu.Lease) (gpu.Column, error) {
	return bitmapOf(q, l, m.rows, m.probe)
}

// Release implements gpu.Matcher.
func (m *found) Release() { m.pairs.release() }

// byTime calls take with the build rows of partitions [from, to), those first that are nearest to the probe rows: in
// the order of their times, from the last one or with Forward from the first one. A match in some of them makes those
// after them irrelevant.
func (o *outOfCore) byTime(ctx context.Context, t operators.Task, from, to int,
	take func(*gpu.Stride) error) (err error) {
	s, err := sort.New(sort.Spec{In: o.Build, Limit: -1,
		Keys: []sort.Key{{Column: o.AsOf.Build, Descending: !o.AsOf.Forward}}})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := s.Close(); err == nil {
			err = closeErr
		}
	}()
	local, err := s.NewLocal(t)
	if err != nil {
		return err
	}
	number := 0
	err = o.batches(ctx, t, o.build, o.Build, from, to, func(rows *gpu.Stride) error {
		number++
		return local.Push(ctx, number, rows)
	})
	if err == nil {
		err = local.Combine(ctx)
	}
	if closeErr := local.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := s.Finalize(ctx, t); err != nil {
		return err
	}
	for part := range s.Parts() {
		if err := s.Emit(ctx, t, part, take); err != nil {
			return err
		}
	}
	return nil
}
