package parquet

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/source"
)

// A filter that decides first begins with a trial. If it gains, the filter continues until a window of rows does not
// gain. Then some rows are read without the filter, before the next trial. Each such pause is twice as long as the one
// before, so that all trials together read less than a hundredth of the table.
const (
	trialShare = 512 // a trial is one part in trialShare of the rows
	windowRows = 8   // a window has the rows of so many trials, and at least a stride
	pauseRows  = 16  // the first pause has the rows of so many trials
	wholeGroup = 4   // a trial is up to so many times longer if it then has all rows of a row group
	// leastGain and leastPagesGain are the least ratios of the bytes that are saved to those that are read for the
	// filter, if the CPU decodes, and if pages are left to a device. A GPU takes almost as long for one column as for
	// all of a stride: on an H100 with lineitem at scale factor 30, a ratio of 3.6 took 245 ms instead of 167, 4 took
	// 196 instead of 395, and 8.6 took 273 instead of 398.
	leastGain      = 1.25
	leastPagesGain = 4
	// deciders is the number of strides that are decided at a time, while the next ones are decoded.
	deciders = 4
	// leastOffered is the share of a full stride that the scan waits for.
	leastOffered = 2
	// mostLonger bounds the rows of a stride of a filter, as a multiple of those of the scan.
	mostLonger = 4
	// leastSaving is the least share of the bytes of a row group that a gap must save. More gaps make more pieces.
	leastSaving = 1.0 / 64
)

// leastFiltered is the least number of compressed bytes of a scan for which a filter decides first.
var leastFiltered int64 = 4 << 20 // smaller in tests

// leastTrial is the least number of rows of a trial.
var leastTrial int64 = 1 << 14 // smaller in tests

// These end the reader of a filter.
var (
	errCannotTell = errors.New("the filter cannot be evaluated")
	errNoGain     = errors.New("the filter does not gain")
)

// filterFirst reads the columns of a filter (source.First), and offers the rows that are left to a scan. Rows for which
// the filter cannot be evaluated are offered too, so that the scan reports the errors of their pages and values.
type filterFirst struct {
	table  *Table
	scan   *reader
	opt    source.ScanOptions // for the columns of the filter
	decide func(context.Context, *gpu.Stride) []uint64
	always bool
	ctx    context.Context
	stop   context.CancelFunc
	done   chan struct{} // closed when all rows were offered
	ended  bool          // reader.relinquish has ended it; the lock of the scan guards it

	todo    []uncut // the rows that the filter has not seen, in order
	rows    int64   // of todo
	pending pendingRows
	window  int64   // rows after which the gain is looked at
	seen    int64   // rows of the current window that were offered or left out
	saved   float64 // bytes of pages without wanted rows in it
	cost    float64 // bytes read for the filter in it

	mu      sync.Mutex
	reading *reader         // of the current part, or nil
	counted source.Progress // of earlier parts: the fields for the filter, and Decode
}

// pendingRows are rows of one row group that were decided, and that the scan was not offered yet.
type pendingRows struct {
	file    *file
	group   int
	decided []rowRange
	left    []rowRange // the filter may be true for some of these
	rows    int64      // of decided
	seen    int64      // of decided, by the filter
}

// filtersFirst reports whether a filter decides first in a scan: it reads fewer columns, the others have enough bytes,
// and there is memory for the strides of both.
func (t *Table) filtersFirst(opt source.ScanOptions, total source.Progress) bool {
	if opt.First == nil || len(opt.First.Columns) == 0 || len(opt.First.Columns) >= len(opt.Columns) {
		return false
	}
	if opt.First.Always {
		return true
	}
	first := t.optionsOfFilter(opt)
	return total.BytesTotal >= leastFiltered && gainOf(opt)*t.size(first.Columns) <= t.size(opt.Columns) &&
		t.LeastMemory(opt)+t.LeastMemory(first) <= grant.FilterFirst.Of(opt.Lease.Limit())
}

// gainOf returns the least ratio of saved bytes to bytes read for the filter.
func gainOf(opt source.ScanOptions) float64 {
	if opt.Decode.Pages {
		return leastPagesGain
	}
	return leastGain
}

// optionsOfFilter returns the options of a scan of the columns of its filter. Strides that a device decodes are about
// as large as those of the scan, because a device decodes many pages as fast as a few.
func (t *Table) optionsOfFilter(opt source.ScanOptions) source.ScanOptions {
	first := opt
	first.First, first.Columns = nil, nil
	for _, c := range opt.First.Columns {
		first.Columns = append(first.Columns, opt.Columns[c])
	}
	if opt.Decode.Pages {
		first.StrideRows *= min(mostLonger, t.rowBytes(opt.Columns)/max(t.rowBytes(first.Columns), 1))
	}
	return first
}

// rowBytes returns the expected bytes of a decoded row.
func (t *Table) rowBytes(columns []int) int {
	s := &gpu.Schema{}
	for _, c := range columns {
		s.Fields = append(s.Fields, t.schema.Fields[c])
	}
	return s.RowBytes()
}

// size returns the compressed bytes of columns.
func (t *Table) size(columns []int) (bytes float64) {
	for _, f := range t.files {
		for g := range f.groups {
			for _, c := range columns {
				bytes += float64(f.groups[g].chunks[c].size)
			}
		}
	}
	return bytes
}

// newFilterFirst takes the rows of a scan, so that it gets only those that are left.
func newFilterFirst(ctx context.Context, t *Table, r *reader, opt source.ScanOptions) *filterFirst {
	f := &filterFirst{table: t, scan: r, opt: t.optionsOfFilter(opt), decide: opt.First.Decide,
		always: opt.First.Always, done: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(ctx)
	context.AfterFunc(f.ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.taking.Broadcast()
	})
	f.todo, f.rows = r.cut.groups, r.cut.rows
	r.cut.groups, r.cut.rows, r.cut.open, r.cut.least = nil, 0, true, max(r.cut.target/leastOffered, 1)
	return f
}

// end ends the filter. All rows that it has not seen are offered to the scan.
func (f *filterFirst) end() {
	f.stop()
	<-f.done
}

// run offers all rows that are left.
func (f *filterFirst) run() {
	defer close(f.done)
	defer f.stop()
	defer f.scan.endOffers()
	trial := max(f.rows/trialShare, leastTrial)
	f.window = windowRows * trial
	part, pause := trial, pauseRows*trial
	if f.always {
		part = f.rows
	}
	for f.rows > 0 {
		gains, ok := f.decidePart(f.head(part))
		switch {
		case !ok:
			f.pass(f.rows)
		case gains || f.always:
			part = f.rows
		default:
			f.pass(pause)
			part, pause = trial, 2*pause
		}
	}
	f.offer()
}

// head returns the next n rows, or some more.
func (f *filterFirst) head(n int64) (part []uncut) {
	for _, u := range f.todo {
		if n <= 0 {
			break
		}
		if u.rows > wholeGroup*n {
			u.rows = n
		}
		n -= u.rows
		u.ranges = firstRows(u.ranges, u.rows)
		part = append(part, u)
	}
	return part
}

// firstRows returns the first n rows of ranges.
func firstRows(ranges []rowRange, n int64) (out []rowRange) {
	for _, r := range ranges {
		if n <= 0 {
			break
		}
		r.to = min(r.to, r.from+n)
		n -= r.to - r.from
		out = append(out, r)
	}
	return out
}

// advance removes the next rows, which are of one row group, from those that the filter has not seen.
func (f *filterFirst) advance(n int64) {
	u := &f.todo[0]
	u.rows -= n
	f.rows -= n
	for n > 0 {
		r := &u.ranges[0]
		k := min(n, r.to-r.from)
		r.from += k
		n -= k
		if r.from == r.to {
			u.ranges = u.ranges[1:]
		}
	}
	if u.rows == 0 {
		f.todo = f.todo[1:]
	}
}

// pass offers the next n rows without looking at them.
func (f *filterFirst) pass(n int64) {
	for n > 0 && f.rows > 0 {
		u := f.todo[0]
		k := min(n, u.rows)
		for _, r := range firstRows(u.ranges, k) {
			f.add(u.file, u.group, r, []rowRange{r})
		}
		f.advance(k)
		n -= k
	}
}

// decidePart decides the next rows, until that does not gain. ok is false if the filter cannot be evaluated. Then and
// without a gain, it has decided only some of the rows.
func (f *filterFirst) decidePart(part []uncut) (gains, ok bool) {
	r := f.table.newReader(f.opt, source.Progress{})
	r.cut = cutter{target: strideRows(f.opt), columns: f.opt.Columns, lease: f.opt.Lease}
	for _, u := range part {
		r.cut.add(u.file, u.group, u.ranges, u.rows, u.file.groups[u.group].widest(f.opt.Columns))
	}
	r.start(f.ctx, f.opt.Decode)
	f.mu.Lock()
	f.reading = r
	f.mu.Unlock()
	f.seen, f.saved, f.cost = 0, 0, 0
	gains, ok = true, true
	for c := range f.decideAll(r) {
		d := <-c
		if d.err != nil {
			ok = ok && (d.err == io.EOF || d.err == errNoGain)
			break
		}
		if !gains || !ok {
			continue // which strides were decided by now depends on the time
		}
		if d.may == nil {
			ok = false
			r.fail(errCannotTell)
		}
		f.take(d)
		if f.seen >= f.window && !f.always {
			if gains = f.gains(); !gains {
				r.fail(errNoGain)
			}
			f.seen, f.saved, f.cost = 0, 0, 0
		}
	}
	f.offer()
	gains = gains && f.gains()
	r.end()
	p := r.Progress()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = nil
	f.counted.BytesFirst += p.BytesRead
	f.counted.Decode += p.Decode
	return gains, ok
}

// gains reports whether the window has saved enough.
func (f *filterFirst) gains() bool { return f.saved >= gainOf(f.opt)*f.cost }

// decided is the decision on a stride: a bit for each of its rows, or nil for all rows.
type decided struct {
	segments []segment
	may      []uint64
	err      error // of the reader; the last
}

// decideAll decides the strides of a reader, some at a time, and returns the decisions in order. The last has an error.
func (f *filterFirst) decideAll(r *reader) <-chan chan decided {
	all := make(chan chan decided, deciders-1)
	go func() {
		defer close(all)
		for {
			s, segments, err := r.next()
			c := make(chan decided, 1)
			all <- c
			if err != nil {
				c <- decided{err: err}
				return
			}
			go func() { c <- decided{segments: segments, may: f.decide(f.ctx, s)} }()
		}
	}()
	return all
}

// take adds decided rows to those that are pending.
func (f *filterFirst) take(d decided) {
	row := 0
	for _, s := range d.segments {
		left := []rowRange{{s.from, s.to}}
		if d.may != nil {
			left = setBlocks(d.may, row, int(s.to-s.from), s.from)
		}
		f.add(s.file, s.group, rowRange{s.from, s.to}, left)
		f.advance(s.to - s.from)
		row += int(s.to - s.from)
		f.pending.seen += s.to - s.from
	}
}

// setBlocks returns the rows of the words that have a set bit among bits [at, at+n). Bit at is row first.
func setBlocks(bits []uint64, at, n int, first int64) (out []rowRange) {
	for w := at / 64; w*64 < at+n; w++ {
		from, to := max(at, w*64), min(at+n, w*64+64)
		mask := uint64(math.MaxUint64) << (from - w*64) & (math.MaxUint64 >> (w*64 + 64 - to))
		if bits[w]&mask != 0 {
			out = appendRange(out, rowRange{first + int64(from-at), first + int64(to-at)})
		}
	}
	return out
}

// appendRange appends a range to ranges before it.
func appendRange(list []rowRange, r rowRange) []rowRange {
	if n := len(list); n > 0 && list[n-1].to == r.from {
		list[n-1].to = r.to
		return list
	}
	return append(list, r)
}

// add adds rows of a row group to those that are pending.
func (f *filterFirst) add(file *file, group int, rows rowRange, left []rowRange) {
	p := &f.pending
	if p.file != file || p.group != group || p.rows >= f.scan.cut.target {
		f.offer()
		p.file, p.group = file, group
	}
	p.decided = appendRange(p.decided, rows)
	for _, r := range left {
		p.left = appendRange(p.left, r)
	}
	p.rows += rows.to - rows.from
}

// offer offers the pending rows that are left to the scan.
func (f *filterFirst) offer() {
	p := f.pending
	if f.pending = (pendingRows{}); p.rows == 0 {
		return
	}
	ranges := f.without(p)
	rows := int64(0)
	for _, r := range ranges {
		rows += r.to - r.from
	}
	f.seen += p.seen
	f.cost += float64(p.bytes(f.opt.Columns, p.decided)) * float64(p.seen) / float64(p.rows)
	bytes := p.bytes(f.scan.columns, p.decided) - p.bytes(f.scan.columns, ranges)
	f.mu.Lock()
	f.counted.RowsFiltered += p.rows - rows
	f.counted.BytesFiltered += bytes
	f.mu.Unlock()
	if rows > 0 {
		f.scan.offer(uncut{file: p.file, group: p.group, ranges: ranges, rows: rows})
	}
}

// bytes returns the share of some rows in the bytes of columns.
func (p *pendingRows) bytes(columns []int, ranges []rowRange) (n int64) {
	for _, r := range ranges {
		for _, c := range columns {
			n += segment{file: p.file, group: p.group, from: r.from, to: r.to}.bytes(c)
		}
	}
	return n
}

// without returns the decided rows without the gaps, in which the filter is true for no row, that save pages.
func (f *filterFirst) without(p pendingRows) []rowRange {
	all := p.bytes(f.scan.columns, p.decided)
	if len(p.left) == 0 {
		f.saved += float64(all)
		return nil
	}
	gaps := subtract(p.decided, p.left)
	if len(gaps) == 0 {
		return p.decided
	}
	first, last := p.left[0].from, p.left[len(p.left)-1].to
	var columns []pagesOfColumn
	for _, c := range f.scan.columns {
		if p.file.cols[c].constant == nil {
			columns = append(columns, p.file.pagesOf(f.ctx, p.group, c))
		}
	}
	var skipped []rowRange
	for _, gap := range gaps {
		saved := 0.0
		for _, c := range columns {
			saved += c.saves(gap, gap.to <= first || gap.from >= last)
		}
		if saved > leastSaving*float64(all) {
			f.saved += saved
			skipped = append(skipped, gap)
		}
	}
	return subtract(p.decided, skipped)
}

// subtract returns the rows of ranges that are not in others. Both are in order.
func subtract(ranges, others []rowRange) (out []rowRange) {
	for _, r := range ranges {
		for len(others) > 0 && others[0].to <= r.from {
			others = others[1:]
		}
		for _, o := range others {
			if o.from >= r.to {
				break
			}
			if o.from > r.from {
				out = append(out, rowRange{r.from, o.from})
			}
			r.from = max(r.from, o.to)
		}
		if r.from < r.to {
			out = append(out, r)
		}
	}
	return out
}

// pagesOfColumn is the data pages of a column of a row group, as the page index tells. Without an index, pages is nil.
type pagesOfColumn struct {
	pages []rowRange
	sizes []int64
	rows  int64
	size  int64 // of all pages
}

// pagesOf returns the pages of a column of a row group.
func (f *file) pagesOf(ctx context.Context, group, column int) (p pagesOfColumn) {
	g := &f.groups[group]
	m := &g.chunks[column]
	p.rows, p.size = g.rows, m.size
	if m.offsetIndex.size == 0 || m.offsetIndex.size > maxIndexBytes {
		return p
	}
	var offsets format.OffsetIndex
	if f.readStructure(ctx, m.offsetIndex, &offsets) != nil {
		return p
	}
	pages, ok := rowsOfPages(&offsets, m, g.rows)
	if !ok {
		return p
	}
	p.pages = pages
	for _, l := range offsets.PageLocations {
		p.sizes = append(p.sizes, int64(l.CompressedPageSize))
	}
	return p
}

// saves returns the bytes of the pages that have only rows of a gap. A page with rows on both sides of the gap counts
// negatively, because it is decoded once for each side. There are rows on one side only if the gap is at an end. If the
// pages are unknown, they have rows on both sides.
func (c pagesOfColumn) saves(gap rowRange, atEnd bool) (bytes float64) {
	if c.pages == nil {
		if atEnd {
			return float64(c.size) * float64(gap.to-gap.from) / float64(c.rows)
		}
		return -float64(c.size)
	}
	i, _ := slices.BinarySearchFunc(c.pages, gap.from, func(r rowRange, row int64) int {
		if r.to <= row {
			return -1
		}
		return 1
	})
	for ; i < len(c.pages) && c.pages[i].from < gap.to; i++ {
		switch page := c.pages[i]; {
		case gap.from <= page.from && page.to <= gap.to:
			bytes += float64(c.sizes[i])
		case page.from < gap.from && gap.to < page.to && !atEnd:
			bytes -= float64(c.sizes[i])
		}
	}
	return bytes
}

// report adds what the filter has decided to the progress of the scan.
func (f *filterFirst) report(p *source.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.BytesFirst, p.RowsFiltered = f.counted.BytesFirst, f.counted.RowsFiltered
	p.BytesFiltered = f.counted.BytesFiltered
	p.Decode += f.counted.Decode
	if f.reading != nil {
		now := f.reading.Progress()
		p.BytesFirst += now.BytesRead
		p.Decode += now.Decode
	}
	p.RowsTotal -= p.RowsFiltered
	p.BytesTotal -= p.BytesFiltered
}
