package groupby

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
)

func (o *hashGroupBy) NewLocal(t operators.Task) (operators.Local, error) {
	t.Lease.Advise("the groups of the group-by must fit: filter its input or group by fewer keys")
	o.mu.Lock()
	if o.held == nil {
		o.held = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, o.partials, 1<<fanOut)
		o.alone = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, o.raw, 1<<fanOut)
	}
	o.mu.Unlock()
	if err := o.RunsOn(t.Device.Properties()); err != nil {
		return nil, err
	}
	return &local{hashGroupBy: o, task: t, first: int(o.lanes.Add(1))}, nil
}

// local has the groups of one lane.
type local struct {
	*hashGroupBy
	task     operators.Task
	table    *table        // of rows; nil if it has none
	merged   *table        // of rows of partial aggregates; nil if it has none
	waiting  []*gpu.Stride // rows of partial aggregates, to be merged together
	waits    int           // rows of waiting
	packing  gpu.Packing   // of the keys, if they are several or not an integer; nil if there is none
	pending  []*gpu.Stride // strides of few rows, to be assigned together
	rows     int           // rows of pending
	bytes    int64         // bytes of pending
	few      []*gpu.Stride // partial aggregates that are not partitioned
	fewBytes int64         // bytes of few
	batch    []*gpu.Stride // partial aggregates, to be partitioned together
	flushed  int           // rows of partial aggregates
	passing  int           // strides that are still to bypass the table
	// bypassed is the number of strides that bypassed the table since its last use, 0 if it paid
	// off then.
	bypassed int
	sampled  bool // see manyGroups

	groupsFlushed int // groups of the table that was flushed last

	first  int   // the text key that it numbers first
	morsel int   // the number of the last morsel
	before int64 // rows of it so far
}

// Small strides, which come from selective filters and joins, wait in pending: an assignment costs
// some dozens of kernel launches, however few its rows. They wait until together they have a
// quarter of a stride's rows, or the bytes of grant.GroupWaiting.

func (l *local) Push(_ context.Context, number int, s *gpu.Stride) error {
	if l.Phase == Merge {
		s.Schema = l.hashGroupBy.partials
		return l.merge(s)
	}
	err := l.position(number, s)
	if err == nil {
		err = l.number(s)
	}
	if err != nil {
		s.Release()
		return err
	}
	bytes := s.Bytes()
	enough := l.enough(s.Rows, bytes)
	if enough || len(l.pending) > 0 && !oneCoding(l.pending[0], s) {
		if err := l.takePending(); err != nil {
			s.Release()
			return err
		}
	}
	if enough {
		return l.take(s)
	}
	l.pending = append(l.pending, s)
	l.rows += s.Rows
	l.bytes += bytes
	if l.enough(l.rows, l.bytes) {
		return l.takePending()
	}
	return nil
}

// enough reports whether a stride of this size is aggregated without waiting for others.
func (l *local) enough(rows int, bytes int64) bool {
	return rows >= l.task.StrideRows/4 || bytes >= l.task.Share(grant.GroupWaiting)
}

// oneCoding reports whether the columns of two strides have the same dictionaries, so that
// concatenation does not need more memory.
func oneCoding(a, b *gpu.Stride) bool {
	for i := range a.Cols {
		if a.Cols[i].Dict != b.Cols[i].Dict {
			return false
		}
	}
	return true
}

// takePending takes the pending strides as one stride.
func (l *local) takePending() error {
	if len(l.pending) == 0 {
		return nil
	}
	pending := l.pending
	l.pending, l.rows, l.bytes = nil, 0, 0
	s, err := operators.ConcatStrides(l.task, l.In, pending)
	if err != nil {
		return err
	}
	return l.take(s)
}

// take takes ownership of a stride and aggregates its rows: by an algorithm that makes rows of
// partial aggregates, or in the table of the lane.
func (l *local) take(s *gpu.Stride) error {
	defer s.Release()
	device := l.task.Device.Properties()
	c := l.decide(device, s.Rows, l.planned())
	var by key
	if l.named(c.Algorithm).tables {
		var err error
		if by, err = l.key(l.task, s, &l.packing); err == nil {
			defer by.release()
			if c = l.decide(device, s.Rows, by.domain); c.Algorithm == pgbTR && l.Algorithm == "" &&
				!l.keysSampled.Load() {
				if err := l.sample(by); err != nil && !gpu.IsOutOfMemory(err) {
					return err
				}
				c = l.decide(device, s.Rows, by.domain)
			}
		} else if c, err = l.instead(c, s.Rows, err); err != nil {
			return err
		}
	}
	for c.Algorithm != hgbG {
		out, err := l.algorithm(c.Algorithm).aggregate(l.task, s, by)
		if err == nil {
			l.took(c, out.Rows)
			return l.merge(out)
		}
		if c, err = l.instead(c, s.Rows, err); err != nil {
			return err
		}
	}
	err := l.takeRows(s)
	if groups := l.table.len(); groups > 0 {
		l.took(c, groups)
	}
	return err
}

// instead returns the algorithm for a stride after the error of an algorithm, or the error if no
// algorithm can help.
func (l *local) instead(c Choice, rows int, err error) (Choice, error) {
	switch {
	case gpu.IsOutOfMemory(err):
		l.unpack()
	case !errors.Is(err, gpu.ErrManyGroups) && !errors.Is(err, gpu.ErrUnfit):
		return c, err
	}
	return l.fallback(c, rows, err), nil
}

// takeRows aggregates the rows of a stride in the table of the lane, and flushes the table if it
// has become large.
func (l *local) takeRows(s *gpu.Stride) (err error) {
	if l.passing == 0 && l.table == nil && (!l.sampled || l.bypassed > 0) {
		l.sampled = true
		if many, err := l.manyGroups(s); err != nil {
			return err
		} else if many {
			l.bypass()
		}
	}
	if l.passing > 0 {
		l.passing--
		return l.pass(s)
	}
	if l.table == nil {
		if l.table, err = l.newLocalTable(l.task, l.groupsFlushed); err != nil {
			return err
		}
	}
	failed, err := l.table.take(l.task, s)
	if failed < 0 && gpu.IsOutOfMemory(err) && l.table.len() > 0 && !l.direct(l.task) {
		// The table is unchanged. Its groups can spill once they are flushed.
		if err := l.flush(); err != nil {
			return err
		}
		if l.table, err = l.newLocalTable(l.task, l.groupsFlushed); err != nil {
			return err
		}
		failed, err = l.table.take(l.task, s)
	}
	if err != nil {
		return l.naming(failed, err)
	}
	if l.full(l.table.len()) && !l.direct(l.task) {
		if err := l.judge(s); err != nil {
			return err
		}
		return l.flush()
	}
	return nil
}

// merge takes ownership of rows of partial aggregates with distinct keys. They wait for others, so
// that a stride of few groups costs no launches besides its own. If there is only one stride, its
// rows are the result.
func (l *local) merge(out *gpu.Stride) error {
	if l.Algorithm == sgbStride && len(l.waiting) > 0 && !l.full(l.waits+out.Rows) {
		both, err := l.mergeSorted(l.task, l.waiting[0], out)
		if err == nil {
			l.waiting[0], l.waits = both, both.Rows
			return nil
		}
		if !gpu.IsOutOfMemory(err) {
			out.Release()
			return err
		}
	}
	if l.task.Lanes > 1 || l.full(l.waits+out.Rows) {
		return l.partitioned(out)
	}
	l.waiting = append(l.waiting, out)
	if l.waits += out.Rows; len(l.waiting) > 1 && l.waits > l.task.StrideRows/4 {
		return l.mergeWaiting()
	}
	return nil
}

// mergeWaiting merges the waiting rows of partial aggregates.
func (l *local) mergeWaiting() error {
	if len(l.waiting) == 0 {
		return nil
	}
	parts := make([]*gpu.Stride, len(l.waiting))
	for i, s := range l.waiting {
		parts[i] = s.Retain()
	}
	all, err := operators.ConcatStrides(l.task, l.hashGroupBy.partials, parts)
	if gpu.IsOutOfMemory(err) {
		return l.partitionWaiting()
	}
	if err != nil {
		return err
	}
	l.dropWaiting()
	return l.mergeInto(all)
}

// partitionWaiting treats the waiting rows of partial aggregates as flushed.
func (l *local) partitionWaiting() error {
	for len(l.waiting) > 0 {
		out := l.waiting[0]
		l.waiting, l.waits = l.waiting[1:], l.waits-out.Rows
		if err := l.partitioned(out); err != nil {
			return err
		}
	}
	return nil
}

func (l *local) dropWaiting() {
	for _, s := range l.waiting {
		s.Release()
	}
	l.waiting, l.waits = nil, 0
}

// mergeInto merges rows of partial aggregates into the table for them. They are flushed if there is
// no memory for them there.
func (l *local) mergeInto(out *gpu.Stride) (err error) {
	if l.merged == nil {
		l.merged, err = l.newMerge(l.task, gpu.GroupHint{Groups: out.Rows}, true)
	}
	failed := -1
	if err == nil {
		failed, err = l.merged.take(l.task, out)
	}
	if failed < 0 && gpu.IsOutOfMemory(err) {
		return l.partitioned(out)
	}
	out.Release()
	if err != nil {
		return l.naming(failed, err)
	}
	if l.full(l.merged.len()) {
		return l.flush()
	}
	return nil
}

// full reports whether a table with a number of groups must be flushed. The table of a single lane
// has the result otherwise.
func (l *local) full(groups int) bool {
	if l.always(l.task) {
		return true
	}
	return (l.task.Lanes > 1 || l.task.Spill != nil) && len(l.Keys) > 0 &&
		groups >= l.tableGroups(l.task.Budget(), l.task.Lanes)
}

// judge decides whether the next strides bypass the table. They do if it had nearly one group per
// row, or nearly one group per run of equal keys, as in an input that is sorted by the key.
func (l *local) judge(s *gpu.Stride) error {
	rows, groups := l.table.rows, l.table.groups.Len()
	if rows < passReduction*groups {
		l.bypass()
		return nil
	}
	a, firsts, err := l.task.Queue.Runs(l.task.Lease, operators.Pick(s.Cols, l.Keys))
	if err != nil {
		return err
	}
	defer a.Release()
	defer firsts.Release()
	if firsts.Len*rows < s.Rows*groups*5/4 {
		l.bypass()
	} else {
		l.bypassed = 0
	}
	return nil
}

// bypass makes the next strides bypass the table, twice as many as the last time.
func (l *local) bypass() {
	l.bypassed = min(max(2*l.bypassed, passStrides), mostPassed)
	l.passing = l.bypassed
}

// pass makes partial aggregates from a stride without the table: one row for each run of
// rows with one key, or for each row if runs are short.
func (l *local) pass(s *gpu.Stride) error {
	if short, err := l.shortRuns(s); err != nil {
		return err
	} else if short {
		return l.passRows(s)
	}
	a, firsts, err := l.task.Queue.Runs(l.task.Lease, operators.Pick(s.Cols, l.Keys))
	if err != nil {
		return err
	}
	defer a.Release()
	defer firsts.Release()
	out, err := l.ofRuns(l.task, s, a, firsts)
	if err != nil {
		return err
	}
	return l.partitioned(out)
}

// manyGroups reports whether a flushed table would have less than two rows per group, by the number
// of repeated keys in the first rows of a stride: n rows of g groups of equal size have about
// n²/2g.
func (l *local) manyGroups(s *gpu.Stride) (bool, error) {
	if l.task.Lanes == 1 && l.task.Spill == nil {
		return false, nil
	}
	most := l.tableGroups(l.task.Budget(), l.task.Lanes)
	n := max(sampleRows, 4*int(math.Sqrt(float64(most)))) // about 8 repeated keys with most groups
	bound := cmp.Or(l.Hint.Groups, l.boundIn(l.task.Lanes))
	if s.Rows < max(flushGroups, n) || l.direct(l.task) || bound > 0 && bound <= most {
		return false, nil
	}
	keys, err := l.firstKeys(s, n)
	if err != nil {
		return false, err
	}
	defer gpu.ReleaseColumns(keys)
	var types []gpu.Type
	for _, k := range keys {
		types = append(types, k.Type)
	}
	groups, err := l.task.Queue.NewGroups(l.task.Lease, types, gpu.GroupHint{Groups: n})
	if err != nil {
		return false, err
	}
	defer groups.Release()
	a, err := groups.Assign(l.task.Queue, l.task.Lease, keys, n)
	if err != nil {
		return false, err
	}
	a.Release()
	return n-groups.Len() < n*n/(4*most), nil
}

// firstKeys returns the keys of the first n rows of a stride.
func (l *local) firstKeys(s *gpu.Stride, n int) (keys []gpu.Column, err error) {
	for _, k := range l.Keys {
		c, err := l.task.Queue.Slice(l.task.Lease, s.Cols[k], 0, n)
		if err != nil {
			gpu.ReleaseColumns(keys)
			return nil, err
		}
		keys = append(keys, c)
	}
	return keys, nil
}

// shortRuns reports whether the first rows of a stride have runs of one key that are too short to be worth
// aggregating.
func (l *local) shortRuns(s *gpu.Stride) (bool, error) {
	n := min(s.Rows, sampleRows)
	keys, err := l.firstKeys(s, n)
	if err != nil {
		return false, err
	}
	defer gpu.ReleaseColumns(keys)
	a, firsts, err := l.task.Queue.Runs(l.task.Lease, keys)
	if err != nil {
		return false, err
	}
	defer firsts.Release()
	a.Release()
	return firsts.Len > n/passReduction, nil
}

// keep adds the aggregates of a table to its keys and keeps them as flushed.
func (l *local) keep(out *gpu.Stride, x *table) error {
	if err := l.addPartialAggregates(l.task, out, x); err != nil {
		return err
	}
	return l.partitioned(out)
}

// addPartialAggregates adds the aggregates of a table to its keys. After an error it releases them.
func (o *hashGroupBy) addPartialAggregates(t operators.Task, out *gpu.Stride, x *table) error {
	for i := range x.accs {
		c, err := x.column(t, i, 0, out.Rows)
		if err != nil {
			out.Release()
			return o.naming(i, err)
		}
		out.Cols = append(out.Cols, c)
	}
	return nil
}

// partitioned keeps rows of partial aggregates, partitioned unless they are few.
func (l *local) partitioned(rows *gpu.Stride) error {
	l.flushed += rows.Rows
	if rows.Rows <= fewGroups && !l.always(l.task) {
		l.few = append(l.few, rows)
		if l.fewBytes += rows.Bytes(); len(l.Keys) == 0 ||
			l.fewBytes < l.task.Share(grant.GroupRows) {
			return nil
		}
		return l.holdFew()
	}
	if l.task.Lanes > 1 || l.always(l.task) {
		return l.hold(l.task, rows)
	}
	if len(l.batch) > 0 && (l.batch[0].Schema != rows.Schema || !oneCoding(l.batch[0], rows)) {
		if err := l.holdBatch(); err != nil {
			rows.Release()
			return err
		}
	}
	l.batch = append(l.batch, rows)
	bytes := int64(0)
	for _, s := range l.batch {
		bytes += s.Bytes()
	}
	if bytes < l.task.Share(grant.GroupRows) {
		return nil
	}
	return l.holdBatch()
}

// holdFew partitions the few rows of many flushes. Before, they cannot spill.
func (l *local) holdFew() (err error) {
	few := l.few
	l.fewBytes = 0
	l.few, err = l.holdTogether(few)
	return err
}

// holdBatch partitions the batch, because larger partitions are copied faster.
func (l *local) holdBatch() (err error) {
	rows := l.batch
	l.batch, err = l.holdTogether(rows)
	return err
}

// holdTogether concatenates consecutive strides that have one schema and the same dictionaries, and
// partitions them. After an error it returns the strides that the caller still owns.
func (l *local) holdTogether(strides []*gpu.Stride) (left []*gpu.Stride, err error) {
	for len(strides) > 0 && err == nil {
		n := 1
		for n < len(strides) && strides[n].Schema == strides[0].Schema && oneCoding(strides[0], strides[n]) {
			n++
		}
		var rows *gpu.Stride
		if rows, err = operators.ConcatStrides(l.task, strides[0].Schema, strides[:n]); err == nil {
			err = l.hold(l.task, rows)
		}
		strides = strides[n:]
	}
	return strides, err
}

// passRows makes a row of partial aggregates from each row of a stride.
func (l *local) passRows(s *gpu.Stride) error {
	var cols, in []gpu.Column
	for _, m := range l.accumulated {
		if l.computed(m) {
			in = append(in, s.Cols[m.input])
		}
	}
	if len(in) > 0 {
		var err error
		if cols, err = l.task.Queue.Eval(l.task.Lease, l.single, in, s.Rows); err != nil {
			return err
		}
	}
	out := &gpu.Stride{Schema: l.raw, Rows: s.Rows}
	for _, k := range operators.Pick(s.Cols, l.Keys) {
		out.Cols = append(out.Cols, k.Retain())
	}
	for _, m := range l.accumulated {
		if m.kind == gpu.CountAll {
			continue
		}
		if l.computed(m) {
			out.Cols, cols = append(out.Cols, cols[0]), cols[1:]
			continue
		}
		c := s.Cols[m.input].Retain()
		if t := l.rawType(m); c.Type != t { // a decimal
			c.Type = t
			if c.Dict != nil {
				values := c.Dict.Values
				values.Type = t
				c.Dict = &gpu.Dictionary{Values: values}
			}
		}
		out.Cols = append(out.Cols, c)
	}
	return l.partitioned(out)
}

// flush turns the groups of both tables into rows of partial aggregates, and releases the tables.
func (l *local) flush() error {
	if err := l.partitionWaiting(); err != nil {
		return err
	}
	l.unpack()
	for _, at := range []**table{&l.table, &l.merged} {
		x := *at
		if x.len() == 0 {
			continue
		}
		out := &gpu.Stride{Schema: l.hashGroupBy.partials, Rows: x.len()}
		var err error
		if out.Cols, err = x.keyColumns(l.task, 0, out.Rows); err != nil {
			return err
		}
		l.groupsFlushed = out.Rows
		if err := l.keep(out, x); err != nil {
			return err
		}
		x.release()
		*at = nil
	}
	return l.holdBatch()
}

// Combine passes on the groups of the lane.
func (l *local) Combine(context.Context) error {
	if err := l.takePending(); err != nil {
		return err
	}
	o := l.hashGroupBy
	if l.task.Lanes == 1 && l.flushed == 0 {
		if len(l.waiting) > 1 || l.merged != nil || l.Phase == Merge { // a stride of the input may have a group twice
			if err := l.mergeWaiting(); err != nil {
				return err
			}
		}
		if l.flushed == 0 && l.handOver() {
			return nil
		}
	}
	if err := l.flush(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.groups += l.flushed
	o.few = append(o.few, l.few...)
	l.few = nil
	return nil
}

// handOver makes the groups of the lane the result if they are all in one table or stride.
func (l *local) handOver() bool {
	switch {
	case len(l.waiting) == 1 && l.table == nil:
		l.only, l.waiting = rows{l.waiting[0], len(l.Keys)}, nil
	case len(l.waiting) == 0 && l.table == nil && l.merged != nil:
		l.only, l.merged = l.merged, nil
	case len(l.waiting) == 0 && l.merged == nil && l.table != nil:
		l.only, l.table = l.table, nil
	default:
		return false
	}
	return true
}

func (l *local) Close() error {
	for _, s := range l.pending {
		s.Release()
	}
	for _, s := range slices.Concat(l.few, l.batch) {
		s.Release()
	}
	l.dropWaiting()
	l.unpack()
	l.pending, l.few, l.batch = nil, nil, nil
	for _, x := range []*table{l.table, l.merged} {
		if x != nil {
			x.release()
		}
	}
	l.table, l.merged = nil, nil
	return nil
}
