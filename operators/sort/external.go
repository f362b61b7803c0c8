package sort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// external is the state of an external merge sort. Rows are sorted in runs that fit a part of the
// budget. A run is cut into pages, which may spill; the first row of each page stays in memory. At
// the end, splitters are chosen among these first rows, in sorted order. The range of rows between
// two splitters is read from all runs, sorted and returned. Every row is written and read once,
// except the pages at the ends of a range, which two ranges read.
//
// Rows with equal keys are ordered by their runs, and within a run by its pages. So rows with equal
// keys can have splitters between them, too.
type external struct {
	running   sync.Mutex
	schema    *gpu.Schema       // of the runs, once they are planned
	pages     *spill.Partitions // of all runs, one run after the other; nil before the first run
	runs      []*run
	collected int64 // rows of all runs
	emitted   int64 // rows of the ranges that are done

	bounds *gpu.Stride   // splitters, ascending
	splits []split       // the pages of the splitters
	below  [][]int       // by run and splitter: number of pages of the run that begin before the splitter
	reader *spill.Reader // of the pages of all ranges in order, for the only lane
	short  sync.Mutex    // locked by the lane that waits for memory
	done   []bool        // by range
	passed int           // number of ranges, the first ones, that are all done
}

// run is a sorted run of n pages, from page begin on.
type run struct {
	begin, n int
	firsts   *gpu.Stride // the first row of each page, until plan
}

// split is the page whose first row is a splitter.
type split struct{ run, page int }

// page is a position in the pages of a run.
type page struct {
	stride *gpu.Stride
	first  int
}

// section is pages with rows of a range, in the order of the runs. The row of its splitter, if it has
// one, comes before them.
type section struct {
	bound int // the splitter, or -1
	pages []spill.Span
}

const (
	// rowBytes is the memory that sorting takes per row besides the row itself: the number of its
	// morsel, and keys and row ids twice.
	rowBytes = 32
	// runPages bounds the pages of a run. A range reads up to one page too many from each run.
	runPages = 1 << 10
	// pageUnit is the unit of rows of larger pages. Pages of small runs have pageUnit rows, or the
	// square root of the run's rows if that is less: the first row of each page stays in memory.
	pageUnit = 64
	// smallRun is the minimum number of rows of a run while strides arrive, if all rows are to
	// spill.
	smallRun = 1 << 10
)

// runBytes returns the size of a run or of a range in bytes, for rows that take so many bytes.
func runBytes(t operators.Task, rows, bytes int64) int64 {
	work := float64(t.Share(grant.SortWork))
	return max(min(t.Share(grant.SortRun), int64(work*float64(bytes)/float64(bytes+rows*rowBytes))), 1)
}

// makeRuns makes runs of collected strides while too much of the budget is taken, or with all set
// until none are left.
func (o *sorter) makeRuns(t operators.Task, held *operators.Collected, all bool) error {
	for held.Rows > 0 {
		if !all && !o.crowded(t, held) && !(t.Spill.Always() && held.Rows >= smallRun) {
			return nil
		}
		if err := o.makeRun(t, held, runBytes(t, int64(held.Rows), held.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

// crowded reports whether too much of the budget is taken and the collected strides suffice for a
// run.
func (o *sorter) crowded(t operators.Task, held *operators.Collected) bool {
	if t.Spill == nil || t.Lease.Available() >= t.Share(grant.SortBegins) {
		return false
	}
	bytes := held.Bytes()
	return bytes >= runBytes(t, int64(held.Rows), bytes)
}

// makeRun makes a run of the first strides, of about so many bytes or of all that are left.
func (o *sorter) makeRun(t operators.Task, held *operators.Collected, bytes int64) error {
	strides, numbers := held.First(bytes)
	schema := o.schemaOf(t)
	if schema == o.held {
		numbers = nil // not wanted, or a column already
	}
	for i := range numbers {
		s := strides[i]
		n, err := o.withNumber(t, s, numbers[i])
		if err != nil {
			for _, s := range strides[i+1:] {
				s.Release()
			}
			for _, s := range strides[:i] {
				s.Release()
			}
			return err
		}
		strides[i] = n
	}
	all, ids, err := o.sorted(t, schema, strides)
	if err != nil {
		return err
	}
	defer all.Release()
	defer ids.Release()
	page := max(1, min(pageUnit, int(math.Sqrt(float64(ids.Len)))), ids.Len/runPages)
	if page > pageUnit { // then ranges of ids need no copy
		page -= page % pageUnit
	}
	r := &run{n: (ids.Len + page - 1) / page}
	o.running.Lock()
	if o.pages == nil {
		t.Lease.Advise("strides wait for the output: set a lower row_group_rows, or use fewer threads")
		o.pages = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, schema, 0)
		o.pages.Ordered = true
		o.pages.Free = t.Share(grant.SortFree)
	}
	r.begin = o.pages.Run(r.n)
	o.runs = append(o.runs, r)
	o.collected += int64(ids.Len)
	o.running.Unlock()
	starts := make([]int32, r.n)
	for i := range starts {
		starts[i] = int32(i * page)
	}
	if r.firsts, err = o.rowsAt(t, all, ids, starts); err != nil {
		return err
	}
	step := max(1, t.StrideRows/page)
	for p := 0; p < r.n; p += step {
		s, err := all.GatherRange(t, ids, p*page, min((p+step)*page, ids.Len))
		if err != nil {
			return err
		}
		offsets := make([]int, min(step, r.n-p)+1)
		for i := range offsets {
			offsets[i] = min(i*page, s.Rows)
		}
		if err := o.pages.Append(s, r.begin+p, offsets); err != nil {
			return err
		}
	}
	return nil
}

// schemaOf returns the schema of the runs. With a single lane it has no morsel number, since runs
// are then made in the order of the input.
func (o *sorter) schemaOf(t operators.Task) *gpu.Schema {
	if t.Lanes == 1 {
		return o.held
	}
	return o.numbered
}

// rowsAt returns the rows at positions of the order ids.
func (o *sorter) rowsAt(t operators.Task, all *operators.Rows, ids gpu.Column, at []int32) (*gpu.Stride, error) {
	where, err := operators.IDs(t, at)
	if err != nil {
		return nil, err
	}
	defer where.Release()
	rows, err := t.Queue.Gather(t.Lease, []gpu.Column{ids}, where, false)
	if err != nil {
		return nil, err
	}
	defer gpu.ReleaseColumns(rows)
	return all.Gather(t, rows[0])
}

// plan chooses the splitters, once all runs are made.
func (o *sorter) plan(t operators.Task) error {
	var firsts []*gpu.Stride
	var of []split // the page of each first row
	for i, r := range o.runs {
		firsts = append(firsts, r.firsts)
		r.firsts = nil
		for page := range r.n {
			of = append(of, split{i, page})
		}
	}
	o.schema = o.schemaOf(t)
	all, ids, err := o.sorted(t, o.schema, firsts)
	if err != nil {
		return err
	}
	defer all.Release()
	defer ids.Release()
	order, err := operators.Ints(t, ids)
	if err != nil {
		return err
	}
	bytes := o.pages.Bytes(0, o.pages.Len())
	// A range counts the pages that begin in it.
	ranges := bytes/runBytes(t, o.collected, bytes) + 1
	step := max(1, len(order)/int(ranges))
	var at []int32
	counts := make([]int, len(o.runs))
	o.below = make([][]int, len(o.runs))
	for i, id := range order {
		if i > 0 && i%step == 0 {
			at = append(at, int32(i))
			o.splits = append(o.splits, of[id])
			for r := range o.runs {
				o.below[r] = append(o.below[r], counts[r])
			}
		}
		counts[of[id].run]++
	}
	o.done = make([]bool, len(at)+1)
	o.bounds, err = o.rowsAt(t, all, ids, at)
	return err
}

// ranges returns the number of ranges.
func (o *external) ranges() int { return len(o.done) }

// whole reports whether the result has all rows.
func (o *sorter) whole() bool { return o.Offset == 0 && o.Limit < 0 }

// emitRuns emits a range, or the rows from Offset on of all ranges.
func (o *sorter) emitRuns(ctx context.Context, t operators.Task, part int, emit operators.Emit) error {
	if o.whole() {
		return o.emitRange(ctx, t, part, 0, math.MaxInt64, emit)
	}
	skip, left := o.Offset, o.Limit
	if left < 0 {
		left = math.MaxInt64
	}
	for i := range o.ranges() {
		if left == 0 {
			return nil
		}
		before := o.emitted
		if err := o.emitRange(ctx, t, i, skip, left, emit); err != nil {
			return err
		}
		rows := o.emitted - before
		left -= max(0, min(left, rows-skip))
		skip = max(0, skip-rows)
	}
	return nil
}

// readPatiently repeats readRange while it is denied memory and others release memory: strides of
// earlier ranges may be on their way to the output. Only one lane at a time waits, so that lanes do
// not block each other.
func (o *sorter) readPatiently(ctx context.Context, t operators.Task,
	i int) (all *operators.Rows, ids gpu.Column, from, to int, err error) {
	read := func() (err error) {
		all, ids, from, to, err = o.readRange(ctx, t, i)
		return err
	}
	if err = read(); errors.Is(err, gpu.ErrBudget) {
		o.short.Lock()
		defer o.short.Unlock()
		err = t.Lease.Patiently(ctx, read)
	}
	return all, ids, from, to, err
}

// emitRange emits at most limit rows of a range, from row skip on.
func (o *sorter) emitRange(ctx context.Context, t operators.Task, i int, skip, limit int64, emit operators.Emit) error {
	all, ids, from, to, err := o.readPatiently(ctx, t, i)
	if err != nil {
		return err
	}
	defer all.Release()
	defer ids.Release()
	o.pass(i, int64(to-from))
	from += int(min(skip, int64(to-from)))
	to = from + int(min(limit, int64(to-from)))
	for ; from < to; from += t.StrideRows {
		if err := emitRows(ctx, t, all, ids, from, min(from+t.StrideRows, to), emit); err != nil {
			return err
		}
	}
	o.running.Lock()
	defer o.running.Unlock()
	if o.passed == o.ranges() && o.emitted != o.collected {
		return fmt.Errorf("the ranges have %d rows, the runs %d: a defect in gstream", o.emitted, o.collected)
	}
	return nil
}

// sections returns the pages with rows of a range. The pages of a splitter's run are cut where the
// splitter's page begins. The splitter's row begins the section after the cut, so it comes before
// later rows that are equal to it.
func (o *external) sections(i int) []section {
	all := []section{{bound: -1}}
	for r, x := range o.runs {
		begin, end := 0, x.n
		if i > 0 {
			begin = max(o.below[r][i-1]-1, 0) // its end may be in the range
		}
		if i < o.bounds.Rows {
			end = o.below[r][i]
		}
		add := func(from, to int) {
			if from < to {
				last := &all[len(all)-1]
				last.pages = append(last.pages, spill.Span{From: x.begin + from, To: x.begin + to})
			}
		}
		if i > 0 && o.splits[i-1].run == r {
			add(begin, o.splits[i-1].page)
			begin = o.splits[i-1].page
			all = append(all, section{bound: i - 1})
		}
		add(begin, end)
		if i < o.bounds.Rows && o.splits[i].run == r {
			all = append(all, section{bound: i})
		}
	}
	return all
}

// newReader returns a reader for the sections of ranges [from, to).
func (o *external) newReader(ctx context.Context, t operators.Task, from, to int) *spill.Reader {
	var pages []spill.Range
	for i := from; i < to; i++ {
		for _, x := range o.sections(i) {
			of := spill.Range{Partitions: o.pages}
			if len(x.pages) > 0 {
				of.Span, of.More = x.pages[0], x.pages[1:]
			}
			pages = append(pages, of)
		}
	}
	return spill.NewReader(ctx, t.Lease, pages)
}

// readRange returns the rows of all pages with rows of a range, their order, and the positions of
// the range in this order. A single lane emits the ranges in order, so that it reads the next range
// while it sorts one.
func (o *sorter) readRange(ctx context.Context, t operators.Task,
	i int) (all *operators.Rows, ids gpu.Column, from, to int, err error) {
	reader := o.reader
	switch {
	case t.Lanes > 1:
		reader = o.newReader(ctx, t, i, i+1)
		defer reader.Close()
	case reader == nil:
		reader = o.newReader(ctx, t, i, o.ranges())
		o.reader = reader
	}
	defer func() {
		if err != nil && t.Lanes == 1 {
			o.reader.Close()
			o.reader = nil
		}
	}()
	rows, low, high := 0, -1, -1 // the rows of the splitters
	var strides []*gpu.Stride
	add := func(s *gpu.Stride) {
		strides = append(strides, s)
		rows += s.Rows
	}
	for _, x := range o.sections(i) {
		if x.bound >= 0 {
			var s *gpu.Stride
			if s, err = operators.SliceStride(t, o.bounds, x.bound, x.bound+1); err == nil {
				if x.bound == i {
					high = rows
				} else {
					low = rows
				}
				add(s)
			}
		}
		var pages []page
		if err == nil {
			err = reader.Next(t.Queue, func(s *gpu.Stride, first int) error {
				pages = append(pages, page{s, first})
				return nil
			})
		}
		slices.SortFunc(pages, func(a, b page) int { return cmp.Compare(a.first, b.first) })
		for _, p := range pages {
			add(p.stride)
		}
		if err != nil {
			for _, s := range strides {
				s.Release()
			}
			return nil, ids, 0, 0, err
		}
	}
	if all, ids, err = o.sorted(t, o.schema, strides); err != nil {
		return nil, ids, 0, 0, err
	}
	at, err := positions(t, ids, low, high)
	if err != nil {
		all.Release()
		ids.Release()
		return nil, gpu.Column{}, 0, 0, err
	}
	if to = ids.Len; high >= 0 {
		to = at[len(at)-1]
	}
	if low >= 0 {
		from = at[0] + 1
	}
	all.Keep(operators.First(o.Out.Len()), o.Out)
	return all, ids, from, to, nil
}

// positions returns the positions of two ids, in ascending order. An id of -1 has no position.
func positions(t operators.Task, ids gpu.Column, low, high int) ([]int, error) {
	if low < 0 && high < 0 {
		return nil, nil
	}
	boolean := gpu.Of(gpu.Bool)
	either := &gpu.Program{Inputs: []gpu.Type{ids.Type}, Outputs: []int{5}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: ids.Type, Value: gpu.IntScalar(ids.Type, int64(low)), Mask: -1},
		{Op: gpu.OpConst, Type: ids.Type, Value: gpu.IntScalar(ids.Type, int64(high)), Mask: -1},
		{Op: gpu.OpEq, Type: boolean, Args: []int{0, 1}, Mask: -1},
		{Op: gpu.OpEq, Type: boolean, Args: []int{0, 2}, Mask: -1},
		{Op: gpu.OpOr, Type: boolean, Args: []int{3, 4}, Mask: -1}}}
	truth, err := t.Queue.Eval(t.Lease, either, []gpu.Column{ids}, ids.Len)
	if err != nil {
		return nil, err
	}
	defer gpu.ReleaseColumns(truth)
	at, err := t.Queue.Select(t.Lease, truth[0], true)
	if err != nil {
		return nil, err
	}
	defer at.Release()
	return operators.Ints(t, at)
}

// pass records that a range has been read, and releases the pages that no other range needs.
func (o *external) pass(i int, rows int64) {
	o.running.Lock()
	defer o.running.Unlock()
	o.emitted += rows
	o.done[i] = true
	for o.passed < len(o.done) && o.done[o.passed] {
		o.passed++
	}
	var read []spill.Span
	for r, x := range o.runs {
		end := x.n
		if o.passed < len(o.done) {
			if o.passed == 0 {
				return
			}
			end = max(o.below[r][o.passed-1]-1, 0)
		}
		read = append(read, spill.Span{From: x.begin, To: x.begin + end})
	}
	o.pages.DropSpans(read)
}

// close releases everything.
func (o *external) close() (err error) {
	o.reader.Close()
	for _, r := range o.runs {
		if r.firsts != nil {
			r.firsts.Release()
		}
	}
	err = o.pages.Close()
	o.pages = nil
	if o.bounds != nil {
		o.bounds.Release()
		o.bounds = nil
	}
	o.runs = nil
	return err
}

// Demand implements operators.Demanding. A sort keeps all rows. A top-k keeps some rows in each
// lane, or all rows if those are too many.
func (o *sorter) Demand(e operators.Expected) operators.Demand {
	bytes := e.Bytes
	if o.top >= 0 {
		bytes = min(bytes, 2*float64(o.top)*float64(e.Lanes)*e.Bytes/max(e.Rows, 1))
	}
	return operators.Demand{Bytes: bytes, Spilled: func(room float64) float64 {
		if bytes <= grant.SortBegins.Part(room) {
			return 0
		}
		number := 0.0 // bytes of a row's morsel number
		if e.Lanes > 1 || o.top >= 0 {
			number = 8
		}
		working := 2 * grant.SortRun.Part(room) // runs that are being sorted, and their pages
		return max(0, e.Bytes+e.Rows*number-(spill.Room(room)-working))
	}}
}
