package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/transfer"
)

// transfer copies columns of 64 KB to 64 MB up and down, one copy at a time. The bound is
// the link, measured with large copies back to back.
func (b *bench) transfer() error {
	p, ok := b.dev.(gpu.Profiled)
	if !ok {
		return ErrNoLink
	}
	link, err := p.Link()
	if err != nil {
		return err
	}
	for size := 64 << 10; size <= 64<<20; size *= 4 {
		n := size / 4
		host, err := b.hostColumn(n, uniform(0))
		if err != nil {
			return err
		}
		schema := gpu.NewSchema(gpu.Field{Name: "c", Type: host.Type})
		var up, down, upWall, downWall []time.Duration
		for range b.runs + 1 {
			p.Settle()
			begin := time.Now()
			before := b.l.Activity().Up
			c, err := b.up(host.Retain())
			if err != nil {
				host.Release()
				return err
			}
			p.Settle()
			upWall = append(upWall, time.Since(begin))
			up = append(up, b.l.Activity().Up-before)
			begin, before = time.Now(), b.h.Activity().Down
			s, err := b.q.Download(b.h, &gpu.Stride{Schema: schema, Cols: []gpu.Column{c}, Rows: n})
			if err != nil {
				c.Release()
				host.Release()
				return err
			}
			s.Release()
			p.Settle()
			downWall = append(downWall, time.Since(begin))
			down = append(down, b.h.Activity().Down-before)
		}
		host.Release()
		b.each(Result{Benchmark: b.name, Case: fmt.Sprintf("up, %d KiB a copy", size>>10), Rows: int64(n),
			Bytes: int64(size), Time: median(up[1:]), Wall: median(upWall[1:]), Runs: b.runs, Bound: "link up",
			BoundRate: link.Up})
		b.each(Result{Benchmark: b.name, Case: fmt.Sprintf("down, %d KiB a copy", size>>10), Rows: int64(n),
			Bytes: int64(size), Time: median(down[1:]), Wall: median(downWall[1:]), Runs: b.runs, Bound: "link down",
			BoundRate: link.Down})
	}
	b.each(Result{Benchmark: b.name, Case: "both ways, large copies", Bytes: int64(link.Both), Time: time.Second,
		Wall: time.Second, Runs: 1, Bound: "up + down", BoundRate: link.Up + link.Down})
	return nil
}

// stream sums the values of one page-locked column where another is below a limit. Strides are
// copied up two ahead of the kernels, and only the sum is copied back. It is timed by the wall
// clock; the bound is the link.
func (b *bench) stream() error {
	const perStride = 1 << 22
	p, ok := b.dev.(gpu.Profiled)
	if !ok {
		return ErrNoLink
	}
	link, err := p.Link()
	if err != nil {
		return err
	}
	int32s := gpu.Of(gpu.Int32)
	schema := gpu.NewSchema(gpu.Field{Name: "k", Type: int32s}, gpu.Field{Name: "v", Type: int32s})
	var strides []*gpu.Stride
	defer func() {
		for _, s := range strides {
			s.Release()
		}
	}()
	for range max(b.rows/perStride, 1) {
		s := &gpu.Stride{Schema: schema, Rows: perStride}
		strides = append(strides, s)
		for range 2 {
			c, err := b.hostColumn(perStride, uniform(1<<30))
			if err != nil {
				return err
			}
			s.Cols = append(s.Cols, c)
		}
	}
	below := &gpu.Program{Inputs: []gpu.Type{int32s}, Outputs: []int{2}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: int32s, Mask: -1, Value: gpu.IntScalar(int32s, 1<<29)},
		{Op: gpu.OpLt, Type: gpu.Of(gpu.Bool), Args: []int{0, 1}, Mask: -1},
	}}
	var times []time.Duration
	for range b.runs + 1 {
		p.Settle()
		begin := time.Now()
		if err := b.sumBelow(strides, below); err != nil {
			return err
		}
		times = append(times, time.Since(begin))
	}
	rows, took := len(strides)*perStride, median(times[1:])
	b.each(Result{Benchmark: b.name, Case: "half of the rows, 2 columns of 4 bytes", Rows: int64(rows),
		Bytes: int64(rows) * 8, Time: took, Wall: took, Runs: b.runs, Bound: "link up", BoundRate: link.Up})
	return nil
}

// sumBelow streams strides through a filter and a sum. The strides remain the caller's.
func (b *bench) sumBelow(strides []*gpu.Stride, below *gpu.Program) (err error) {
	ahead := transfer.NewAhead(b.ctx, func(ctx context.Context,
		a *transfer.Ahead) error {
		return b.copyAhead(ctx, a, strides)
	})
	defer func() {
		if endErr := ahead.End(context.Canceled); err == nil {
			err = endErr
		}
	}()
	groups, err := b.q.NewGroups(b.l, nil, gpu.GroupHint{})
	if err != nil {
		return err
	}
	defer groups.Release()
	sum, err := b.q.NewAccumulator(b.l, gpu.Aggregate{Kind: gpu.Sum, Input: gpu.Of(gpu.Int32),
		Output: gpu.DecimalOf(38, 0)})
	if err != nil {
		return err
	}
	defer sum.Release()
	for {
		s, err := ahead.Take(b.ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := b.q.Wait(s); err != nil {
			s.Release()
			return err
		}
		err = b.addBelow(s, below, groups, sum)
		s.Release()
		if err != nil {
			return err
		}
	}
	out, err := sum.Result(b.q, b.l, 0, 1)
	if err != nil {
		return err
	}
	s, err := b.q.Download(b.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "sum", Type: out.Type}),
		Cols: []gpu.Column{out}, Rows: 1})
	if err != nil {
		out.Release()
		return err
	}
	s.Release()
	return nil
}

// copyAhead copies strides to the device ahead of their turn.
func (b *bench) copyAhead(ctx context.Context, a *transfer.Ahead, strides []*gpu.Stride) (err error) {
	q, err := b.dev.NewQueue("bench stream, copies")
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := q.Close(); err == nil {
			err = closeErr
		}
	}()
	next := 0
	return a.Copy(ctx, q, b.l, func(context.Context) (*gpu.Stride, error) {
		if next == len(strides) {
			return nil, io.EOF
		}
		s := strides[next]
		next++
		mine := &gpu.Stride{Schema: s.Schema, Rows: s.Rows}
		for _, c := range s.Cols {
			mine.Cols = append(mine.Cols, c.Retain())
		}
		return mine, nil
	})
}

func (b *bench) addBelow(s *gpu.Stride, below *gpu.Program, groups gpu.Groups, sum gpu.Accumulator) error {
	truth, err := b.q.Eval(b.l, below, s.Cols[:1], s.Rows)
	if err != nil {
		return err
	}
	ids, err := b.q.Select(b.l, truth[0], true)
	gpu.ReleaseColumns(truth)
	if err != nil {
		return err
	}
	defer ids.Release()
	kept, err := b.q.Gather(b.l, s.Cols[1:], ids, false)
	if err != nil {
		return err
	}
	defer gpu.ReleaseColumns(kept)
	a, err := groups.Assign(b.q, b.l, nil, ids.Len)
	if err != nil {
		return err
	}
	defer a.Release()
	return sum.Update(b.q, a, kept[0], 1)
}

// partition moves a key and two payloads, of 4 and of 8 bytes, to 64 to 512 partitions by the key's
// own bits. Each byte is read once and written once. If the device measures the phase that moves
// rows, without the counting of digits, that phase is another result.
func (b *bench) partition() error {
	rate, err := b.copyRate()
	if err != nil {
		return err
	}
	for _, width := range []int{4, 8} {
		cols, err := b.columns(b.rows*width/4, 3)
		if err != nil {
			return err
		}
		for i := range cols {
			if width == 8 {
				cols[i].Type, cols[i].Len = gpu.Of(gpu.Int64), b.rows
			}
		}
		for _, bits := range []uint{6, 7, 8, 9} {
			if err := b.partitionBy(cols, bits, rate); err != nil {
				gpu.ReleaseColumns(cols)
				return err
			}
		}
		gpu.ReleaseColumns(cols)
	}
	return nil
}

func (b *bench) partitionBy(cols []gpu.Column, bits uint, rate float64) error {
	const phase = "partition, move"
	width := cols[0].Type.Width()
	name, bytes := fmt.Sprintf("%d ways, %d+%d+%d bytes", 1<<bits, width, width, width), int64(b.rows)*int64(width)*6
	var times, walls, moves []time.Duration
	passes := 0
	for range b.runs + 1 {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		before, count := b.spent(phase)
		took, wall, err := b.once(func() error {
			out, offsets, err := b.q.Partition(b.l, cols, cols[0], gpu.Digit{Bits: bits})
			gpu.ReleaseColumns(out)
			offsets.Release()
			return err
		})
		if err != nil {
			return err
		}
		after, now := b.spent(phase)
		times, walls, moves, passes = append(times, took), append(walls, wall), append(moves, after-before), now-count
	}
	r := Result{Benchmark: b.name, Case: name, Rows: int64(b.rows), Bytes: bytes, Time: median(times[1:]),
		Wall: median(walls[1:]), Runs: b.runs, Bound: "copy", BoundRate: rate}
	b.each(r)
	if passes > 0 {
		r.Case, r.Bytes, r.Time = fmt.Sprintf("%s, passes alone: %d", name, passes), bytes*int64(passes),
			median(moves[1:])
		b.each(r)
	}
	return nil
}

// sort orders 4-byte keys and returns 4-byte row ids: 4 bytes are read and 4 written per row. The
// bound counts only these bytes, although a device makes several passes over keys and ids.
func (b *bench) sort() error {
	rate, err := b.copyRate()
	if err != nil {
		return err
	}
	keys, err := b.column(b.rows, uniform(0))
	if err != nil {
		return err
	}
	defer keys.Release()
	return b.time("keys of 4 bytes, row ids of 4", b.rows, int64(b.rows)*8, "copy", rate, func() error {
		ids, err := b.q.Sort(b.l, []gpu.SortKey{{Column: keys}})
		ids.Release()
		return err
	})
}

// truth makes a column that is true on a random share of its rows.
func (b *bench) truth(share float64) (gpu.Column, error) {
	words := (b.rows + 63) / 64 * 2
	c, err := b.column(words, func(v []uint32, rnd *rand.Rand) {
		for i := range v {
			v[i] = 0 // the memory may have old contents
			for k := range 32 {
				if rnd.Float64() < share {
					v[i] |= 1 << k
				}
			}
		}
	})
	c.Type, c.Len = gpu.Of(gpu.Bool), b.rows
	return c, err
}

// selectRows selects row ids by a bitmap: it reads n/8 bytes and writes 4 bytes for each row that
// is true. The bound counts only these bytes, although a device reads the bitmap twice, to count
// and to write.
func (b *bench) selectRows() error {
	rate, err := b.copyRate()
	if err != nil {
		return err
	}
	for _, share := range []float64{0.01, 0.1, 0.5, 0.9, 1} {
		truth, err := b.truth(share)
		if err != nil {
			return err
		}
		bytes := int64(b.rows)/8 + int64(4*share*float64(b.rows))
		err = b.time(fmt.Sprintf("%g %% true", 100*share), b.rows, bytes, "copy", rate, func() error {
			ids, err := b.q.Select(b.l, truth, true)
			ids.Release()
			n, want := float64(ids.Len), share*float64(b.rows)
			if err == nil && math.Abs(n-want) > 8*math.Sqrt(want+1) { // 8 standard deviations; the 1 is for few rows
				err = fmt.Errorf("%.0f rows are true, not about %.0f", n, want)
			}
			return err
		})
		truth.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// The minimum cost of a row in a gather by random ids, in bytes of the source: the sector that a
// GPU reads through its caches, and the unit that most generations of high-bandwidth memory move.
const (
	sector = 32
	access = 64
)

// gather fetches 4- and 8-byte values by row id: by the ids of a selection, which ascend, and by
// random ids. Random ids have two bounds: a sector per row, and, more strictly, a memory access per
// row.
func (b *bench) gather() error {
	rate, err := b.copyRate()
	if err != nil {
		return err
	}
	for _, width := range []int{4, 8} {
		values, err := b.column(b.rows*width/4, uniform(0))
		if err != nil {
			return err
		}
		if width == 8 {
			values.Type, values.Len = gpu.Of(gpu.Int64), b.rows
		}
		if err = b.gatherAscending(values, width, rate); err == nil {
			err = b.gatherRandom(values, width, rate)
		}
		values.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) gatherAscending(values gpu.Column, width int, rate float64) error {
	truth, err := b.truth(0.5)
	if err != nil {
		return err
	}
	ids, err := b.q.Select(b.l, truth, true)
	truth.Release()
	if err != nil {
		return err
	}
	defer ids.Release()
	// Half of the rows touch nearly every sector of the source.
	bytes := int64(b.rows)*int64(width) + int64(ids.Len)*int64(4+width)
	return b.time(fmt.Sprintf("ascending, half of the rows, %d bytes", width), ids.Len, bytes, "copy", rate,
		func() error {
			return b.gatherBy(values, ids)
		})
}

func (b *bench) gatherRandom(values gpu.Column, width int, rate float64) error {
	ids, err := b.column(b.rows, uniform(uint32(min(b.rows, math.MaxInt32))))
	if err != nil {
		return err
	}
	defer ids.Release()
	took, wall, err := b.measure(func() error { return b.gatherBy(values, ids) })
	if err != nil {
		return err
	}
	for _, read := range []int{sector, access} {
		b.each(Result{Benchmark: b.name, Case: fmt.Sprintf("random, %d bytes, %d of the source read a row", width,
			read), Rows: int64(ids.Len),
			Bytes: int64(b.rows) * int64(4+read+width), Time: took, Wall: wall, Runs: b.runs, Bound: "copy",
			BoundRate: rate})
	}
	return nil
}

func (b *bench) gatherBy(values, ids gpu.Column) error {
	out, err := b.q.Gather(b.l, []gpu.Column{values}, ids, false)
	gpu.ReleaseColumns(out)
	return err
}

// spread is a bijection of 32 bits that destroys order: distinct keys that are far apart.
func spread(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	return x ^ x>>16
}
