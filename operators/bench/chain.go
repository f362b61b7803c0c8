package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/filter"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/transfer"
)

// Chain has the additional figures of a result of the benchmark chain.
type Chain struct {
	Devices     int     `json:"devices"` // 0 for all cores of a machine with GPUs
	ScaleFactor float64 `json:"scale_factor"`
	Joins       int     `json:"joins"`
	Groups      int     `json:"groups"`
	// Speedup is the rate relative to that of one device, OverCPU to that of all cores of the CPU; 0 if it was not
	// measured.
	Speedup float64 `json:"speedup,omitempty"`
	OverCPU float64 `json:"speedup_over_cpu,omitempty"`
}

const (
	// chainLanes is the lanes of a GPU: while one waits for a count, kernels of the other run.
	chainLanes = 2
	// mostCPURuns is the most timed runs of a case on all cores of a machine with GPUs, where it takes long.
	mostCPURuns = 2
)

// none is no attribute.
const none attribute = -1

// hop is a join with a dimension table: its rows where an attribute is in a range, and the attribute by which the
// result is grouped.
type hop struct {
	dimension
	where  attribute
	lo, hi int
	group  attribute
}

// starQuery joins the fact table with dimension tables one after the other, and adds up the revenue by group.
type starQuery struct {
	name string
	hops []hop
	// ofBrands says that the sums by brand have its answer.
	ofBrands bool
}

// starQueries are queries 2.1 and 3.1 of the benchmark with the filters and numbers of joins of Thostrup et al. (SIGMOD
// 2023, figures 13 and 14): brands of category MFGR#12 from suppliers in America (1), and pairs of nations in Asia (2).
func starQueries() []starQuery {
	all := func(d dimension, group attribute) hop { return hop{dimension: d, where: none, group: group} }
	part, supplier := all(parts, partBrand), all(suppliers, none)
	year := all(dates, dateYear)
	category, america := part, supplier
	category.where, category.lo, category.hi = partCategory, 1, 1
	america.where, america.lo, america.hi = supplierRegion, 1, 1
	customer, seller := all(customers, customerNation), all(suppliers, supplierNation)
	asian, inAsia, until97 := customer, seller, year
	asian.where, asian.lo, asian.hi = customerRegion, 2, 2
	inAsia.where, inAsia.lo, inAsia.hi = supplierRegion, 2, 2
	until97.where, until97.lo, until97.hi = dateYear, 1992, 1997
	chain := []hop{customer, seller, year, all(parts, partMfgr)}
	return []starQuery{
		{"SSB 2.1", []hop{category, america, year}, true},
		{"SSB 2.1, all suppliers", []hop{category, supplier, year}, true},
		{"SSB 2.1, no filter", []hop{part, supplier, year}, true},
		{"SSB 3.1", []hop{asian, inAsia, until97}, false},
		{"SSB 3.1, no filter, 1 join", chain[:1], false},
		{"SSB 3.1, no filter, 2 joins", chain[:2], false},
		{"SSB 3.1, no filter", chain[:3], false},
		{"SSB 3.1, no filter, 4 joins", chain, false},
	}
}

// groupKey is the attributes by which a query groups, in the order of its joins.
type groupKey [dimensions]int32

// answer returns the sums of the groups of a query, by the sums that were added up while the tables were made.
func (q starQuery) answer(s *star) map[groupKey]int64 {
	out := map[groupKey]int64{}
next:
	for i, sum := range s.sums {
		a, ofBrands := cell(i)
		if ofBrands != q.ofBrands || sum == 0 {
			continue
		}
		var key groupKey
		n := 0
		for _, h := range q.hops {
			if h.where != none && (a[h.where] < h.lo || a[h.where] > h.hi) {
				continue next
			}
			if h.group != none {
				key[n] = int32(a[h.group])
				n++
			}
		}
		out[key] += sum
	}
	return out
}

// columns are the columns of the fact table that a query reads: the keys of its joins in their order, then the revenue.
func (q starQuery) columns() (out []dimension) {
	for _, h := range q.hops {
		out = append(out, h.dimension)
	}
	return append(out, revenue)
}

func (q starQuery) bytes(s *star) int64 { return int64(s.rows) * int64(len(q.columns())) * 4 }

// int32s is a schema of so many columns of INTEGER.
func int32s(n int) *gpu.Schema {
	out := &gpu.Schema{}
	for i := range n {
		out.Fields = append(out.Fields, gpu.Field{Name: fmt.Sprint("c", i), Type: integer(4)})
	}
	return out
}

// chain measures star queries: chains of joins and a group-by, in one pass over a fact table in host memory, on one
// device up to all. Each device has the tables of all dimensions, and lanes that take strides of the fact table, join
// them with one dimension after the other and group what is left. Then the first device merges the groups. The bound
// are copies of the fact table to the same devices, taken in the same way, or reading it on the CPU. Each result is
// checked.
func (b *bench) chain() error {
	rows := b.rows
	for b.opt.Rows == 0 && int64(rows)*lineBytes > b.dev.HostBudget().Limit()/2 {
		rows /= 2
	}
	s, err := b.newStar(rows, rows)
	if err != nil {
		return err
	}
	defer s.release()
	queries := starQueries()
	devices := gpu.DevicesOf(b.dev)
	times := map[string]time.Duration{} // of all cores of the CPU, by query
	discrete := b.dev.Budget() != b.dev.HostBudget()
	if discrete {
		cpu, err := host.Open(host.Options{}) // with memory of its own, which is not page-locked
		if err != nil {
			return err
		}
		err = b.chainOver([]gpu.Device{cpu}, s, queries, min(b.runs, mostCPURuns), func(r Result) {
			times[r.Case] = r.Time
			r.Chain.Devices = 0
			b.each(r)
		})
		if err = errors.Join(err, cpu.Close()); err != nil {
			return fmt.Errorf("the CPU: %w", err)
		}
	}
	one := map[string]time.Duration{}
	for n := 1; ; n = min(2*n, len(devices)) {
		err := b.chainOver(devices[:n], s, queries, b.runs, func(r Result) {
			if n == 1 {
				one[r.Case] = r.Time
			}
			r.Chain.Speedup = one[r.Case].Seconds() / r.Time.Seconds()
			if discrete {
				r.Chain.OverCPU = times[r.Case].Seconds() / r.Time.Seconds()
			}
			b.each(r)
		})
		if err != nil {
			return fmt.Errorf("%d of %d devices: %w", n, len(devices), err)
		}
		if n == len(devices) {
			return nil
		}
	}
}

// chained is a query on some devices.
type chained struct {
	*distributed
	data *star
	starQuery
	want   map[groupKey]int64
	lanes  [][]gpu.Queue // by device: those of its lanes
	ahead  []gpu.Queue   // of each GPU: for copies ahead of their turn
	stride int           // rows of a stride
	next   atomic.Int64  // stride of the fact table
	read64 atomic.Uint64 // the sum of what was read
}

// chainOver measures queries on some devices. Runs of a query and of its bound take turns.
func (b *bench) chainOver(devices []gpu.Device, s *star, queries []starQuery, runs int,
	each func(Result)) (err error) {
	c := &chained{distributed: &distributed{bench: b, bits: spreadBins}, data: s, stride: starChunk}
	defer func() {
		for _, queues := range append(c.lanes, c.ahead) {
			for _, q := range queues {
				err = errors.Join(err, q.Close())
			}
		}
		err = errors.Join(err, c.close())
	}()
	discrete, bound := devices[0].Budget() != devices[0].HostBudget(), "memory"
	for _, d := range devices {
		if err := c.add(d); err != nil {
			return err
		}
		n := chainLanes
		if discrete {
			bound = "links"
			q, err := d.NewQueue("bench chain, copies")
			if err != nil {
				return err
			}
			c.ahead = append(c.ahead, q)
		} else {
			n = d.Lanes()
			c.stride = d.StrideRows(4)
		}
		c.stride = cmp.Or(b.opt.StrideRows, c.stride)
		c.lanes = append(c.lanes, nil)
		for range n {
			q, err := d.NewLaneQueue("bench chain")
			if err != nil {
				return err
			}
			at := len(c.lanes) - 1
			c.lanes[at] = append(c.lanes[at], q)
		}
	}
	for _, q := range queries {
		c.starQuery, c.want = q, q.answer(s)
		r := Result{Benchmark: b.name, Case: q.name, Rows: int64(s.rows), Bytes: q.bytes(s), Runs: runs, Bound: bound,
			Chain: &Chain{Devices: len(devices), ScaleFactor: s.scaleFactor(), Joins: len(q.hops), Groups: len(c.want)}}
		var times, alone []time.Duration
		for i := range runs + 1 {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			least, err := c.move()
			if err != nil {
				return fmt.Errorf("%s, %s alone: %w", q.name, r.Bound, err)
			}
			took, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			times, alone = append(times, took), append(alone, least)
			if i == 0 { // to warm up
				times, alone = nil, nil
			}
		}
		r.Time = median(times)
		r.Wall = r.Time
		r.BoundRate = float64(r.Bytes) / median(alone).Seconds()
		each(r)
	}
	return nil
}

// read returns the next stride of the columns of the query, as a view of the fact table, and its number.
func (c *chained) read() (*gpu.Stride, int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return nil, 0, err
	}
	i := int(c.next.Add(1)) - 1
	perChunk := (starChunk + c.stride - 1) / c.stride
	at := i / perChunk
	if at >= len(c.data.chunks) {
		return nil, 0, io.EOF
	}
	from := i % perChunk * c.stride
	rows := min(c.stride, c.data.chunks[at][0].Len-from)
	if rows <= 0 { // the last chunk is shorter
		return nil, 0, io.EOF
	}
	columns := c.columns()
	out := &gpu.Stride{Schema: int32s(len(columns)), Rows: rows}
	for _, col := range columns {
		v := c.data.chunks[at][col]
		v.Len, v.Data = rows, v.Data.View(int64(from)*4, int64(rows)*4)
		out.Cols = append(out.Cols, v)
	}
	return out, i, nil
}

// feed returns a function that returns the strides of the fact table on a device one by one, each with a number, and
// makes them usable on a queue. A GPU copies them ahead of their turn.
func (c *chained) feed(m *member) (take func(gpu.Queue) (*gpu.Stride, int, error), end func() error) {
	if c.ahead == nil {
		return func(gpu.Queue) (*gpu.Stride, int, error) { return c.read() }, func() error { return nil }
	}
	ahead := transfer.NewAhead(c.ctx, func(ctx context.Context, a *transfer.Ahead) error {
		return a.Copy(ctx, c.ahead[m.at], m.l, func(context.Context) (*gpu.Stride, error) {
			s, _, err := c.read()
			return s, err
		})
	})
	var mu sync.Mutex
	number := 0
	return func(q gpu.Queue) (*gpu.Stride, int, error) {
		mu.Lock()
		defer mu.Unlock()
		s, err := ahead.Take(c.ctx)
		if err != nil {
			return nil, 0, err
		}
		if err := q.Wait(s); err != nil {
			s.Release()
			return nil, 0, err
		}
		number++
		return s, number, nil
	}, func() error { return ahead.End(context.Canceled) }
}

// move copies the columns of the query to all GPUs, or reads them on a CPU.
func (c *chained) move() (time.Duration, error) {
	c.next.Store(0)
	return c.all(func(m *member) error {
		take, end := c.feed(m)
		err := c.each(m, func(q gpu.Queue) error {
			for {
				s, _, err := take(q)
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				err = c.touch(m, q, s)
				s.Release()
				if err != nil {
					return err
				}
			}
		})
		return errors.Join(err, end())
	})
}

// each calls f for all lanes of a device at once.
func (c *chained) each(m *member, f func(gpu.Queue) error) error {
	var lanes sync.WaitGroup
	errs := make([]error, len(c.lanes[m.at]))
	for i, q := range c.lanes[m.at] {
		lanes.Go(func() { errs[i] = f(q) })
	}
	lanes.Wait()
	return errors.Join(errs...)
}

// touch waits until the copies of a stride have ended, as lanes that join do, so that the next stride goes to the
// device that is free. On a CPU it reads the stride.
func (c *chained) touch(m *member, q gpu.Queue, s *gpu.Stride) error {
	if c.ahead == nil {
		sum := uint64(0)
		for _, col := range s.Cols {
			for _, v := range gpu.Values[uint64](col.Data, s.Rows/2) {
				sum += v
			}
		}
		c.read64.Add(sum)
		return nil
	}
	one, err := q.Slice(m.l, s.Cols[len(s.Cols)-1], s.Rows-1, s.Rows)
	if err != nil {
		return err
	}
	last := &gpu.Stride{Schema: int32s(1), Cols: []gpu.Column{one}, Rows: 1}
	down, err := q.Download(m.h, last)
	if err != nil {
		last.Release()
		return err
	}
	down.Release()
	return nil
}

// run runs the query, and checks its result.
func (c *chained) run() (time.Duration, error) {
	c.next.Store(0)
	spec := c.groups()
	partial, merge := spec.Split()
	parts := make([][]*gpu.Stride, len(c.members)) // groups of each device, in host memory
	var result []*gpu.Stride
	defer func() {
		for _, list := range append(parts, result) {
			for _, st := range list {
				st.Release()
			}
		}
	}()
	took, err := c.all(func(m *member) error {
		var err error
		parts[m.at], err = c.probe(m, *partial)
		return err
	})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	result, err = c.merge(*merge, parts)
	took += time.Since(begin)
	if err != nil {
		return 0, err
	}
	return took, c.check(result)
}

// groups is the group-by of what the joins return: the revenue, then the attributes.
func (c *chained) groups() groupby.Spec {
	n := 0
	for _, h := range c.hops {
		if h.group != none {
			n++
		}
	}
	spec := groupby.Spec{In: int32s(1 + n), Hint: gpu.GroupHint{Rows: c.data.rows, Groups: len(c.want)},
		Aggregates: []groupby.Aggregate{{Kind: gpu.Sum, Input: 0, Output: gpu.Of(gpu.HugeInt)}}}
	for i := range n {
		spec.Keys = append(spec.Keys, 1+i)
	}
	spec.Out = int32s(n)
	spec.Out.Fields = append(spec.Out.Fields, gpu.Field{Name: "revenue", Type: gpu.Of(gpu.HugeInt), Nullable: true})
	return spec
}

// probe joins and groups the strides that a device takes, and returns its groups in host memory.
func (c *chained) probe(m *member, spec groupby.Spec) (out []*gpu.Stride, err error) {
	// The link copies the dimensions first, and then strides ahead of their turn, while the joins are built.
	sides, err := c.dimensions(m)
	defer func() { releaseStrides(sides) }()
	if err != nil {
		return nil, err
	}
	take, end := c.feed(m)
	defer func() { err = errors.Join(err, end()) }()
	task := operators.Task{Device: m.q.Device(), Queue: m.q, Lease: m.l, StrideRows: starChunk, Lanes: 1}
	var joins []join.Join
	defer func() {
		for _, j := range joins {
			err = errors.Join(err, j.Close())
		}
	}()
	columns := len(c.columns())
	for i, h := range c.hops {
		j, err := c.build(task, h, columns, sides[i])
		if j != nil {
			joins = append(joins, j)
		}
		if err != nil {
			return nil, err
		}
		if columns--; h.group != none {
			columns++
		}
	}
	o, err := groupby.New(spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if err := c.each(m, func(q gpu.Queue) error {
		t := task
		t.Queue, t.Lanes = q, len(c.lanes[m.at])
		return c.lane(t, joins, o, take)
	}); err != nil {
		return nil, err
	}
	if err := o.Finalize(c.ctx, task); err != nil {
		return nil, err
	}
	for part := range o.Parts() {
		err := o.Emit(c.ctx, task, part, func(st *gpu.Stride) error {
			down, err := task.Queue.Download(m.h, st)
			if err != nil {
				st.Release()
				return err
			}
			out = append(out, down)
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// dimensions starts the copies of the keys of the dimension tables and the attributes that the query groups by and
// filters, in this order.
func (c *chained) dimensions(m *member) (out []*gpu.Stride, err error) {
	for _, h := range c.hops {
		side := &gpu.Stride{Rows: c.data.sizes[h.dimension], Cols: []gpu.Column{c.data.keys[h.dimension].Retain()}}
		for _, a := range []attribute{h.group, h.where} {
			if a != none {
				side.Cols = append(side.Cols, c.data.cols[a].Retain())
			}
		}
		side.Schema = int32s(len(side.Cols))
		up, err := m.q.Upload(m.l, side)
		if err != nil {
			side.Release()
			return out, err
		}
		out = append(out, up)
	}
	return out, nil
}

// build makes the join with the rows of a dimension table that the query wants. The input has the key of the table in
// its first column, and the result no longer has it.
func (c *chained) build(t operators.Task, h hop, columns int, side *gpu.Stride) (j join.Join, err error) {
	spec := join.Spec{Kind: join.Inner, Probe: int32s(columns), ProbeKeys: []int{0}, BuildKeys: []int{0},
		NullSafe: []bool{false}, UniqueBuild: true, AnyOrder: true, Algorithm: "npj", ProbeRows: int64(c.data.rows),
		BuildRows: int64(side.Rows)}
	for i := range columns - 1 {
		spec.ProbeOut = append(spec.ProbeOut, i+1)
	}
	keep := []int{0}
	if h.group != none {
		keep, spec.BuildOut = []int{0, 1}, []int{1}
	}
	spec.Build, spec.Out = int32s(len(keep)), int32s(len(spec.ProbeOut)+len(spec.BuildOut))
	if j, err = join.New(spec); err != nil {
		return nil, err
	}
	local, err := j.NewLocal(t)
	if err != nil {
		return j, err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	push := func(st *gpu.Stride) error { return local.Push(c.ctx, 0, st) }
	if h.where == none {
		err = push(side.Retain())
	} else {
		var lane operators.Lane
		o := filter.New(side.Schema, between(h.lo, h.hi), []int{len(side.Cols) - 1}, keep)
		if lane, err = o.NewLane(t); err == nil {
			err = errors.Join(lane.Push(c.ctx, side.Retain(), push), lane.Close())
		}
	}
	if err == nil {
		err = local.Combine(c.ctx)
	}
	if err == nil {
		err = j.Finalize(c.ctx, t)
	}
	return j, err
}

// between is the program that compares an INTEGER with bounds.
func between(lo, hi int) *gpu.Program {
	number, truth := integer(4), gpu.Of(gpu.Bool)
	return &gpu.Program{Inputs: []gpu.Type{number}, Outputs: []int{5}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: number, Value: gpu.IntScalar(number, int64(lo)), Mask: -1},
		{Op: gpu.OpConst, Type: number, Value: gpu.IntScalar(number, int64(hi)), Mask: -1},
		{Op: gpu.OpGe, Type: truth, Args: []int{0, 1}, Mask: -1},
		{Op: gpu.OpLe, Type: truth, Args: []int{0, 2}, Mask: -1},
		{Op: gpu.OpAnd, Type: truth, Args: []int{3, 4}, Mask: -1}}}
}

// lane passes strides through all joins to the group-by, until there is none.
func (c *chained) lane(t operators.Task, joins []join.Join, o groupby.GroupBy,
	take func(gpu.Queue) (*gpu.Stride, int, error)) (err error) {
	local, err := o.NewLocal(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	var lanes []operators.Lane
	defer func() {
		for _, l := range lanes {
			err = errors.Join(err, l.Close())
		}
	}()
	for _, j := range joins {
		l, err := j.NewLane(t)
		if err != nil {
			return err
		}
		lanes = append(lanes, l)
	}
	number := 0
	var from func(i int) operators.Emit
	from = func(i int) operators.Emit {
		if i == len(lanes) {
			return func(s *gpu.Stride) error { return local.Push(c.ctx, number, s) }
		}
		return func(s *gpu.Stride) error { return lanes[i].Push(c.ctx, s, from(i+1)) }
	}
	for {
		var s *gpu.Stride
		if s, number, err = take(t.Queue); err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := from(0)(s); err != nil {
			return err
		}
	}
	for i, l := range lanes {
		if err := l.Flush(c.ctx, from(i+1)); err != nil {
			return err
		}
	}
	return local.Combine(c.ctx)
}

// merge merges the groups of all devices on the first one.
func (c *chained) merge(spec groupby.Spec, parts [][]*gpu.Stride) (out []*gpu.Stride, err error) {
	m := c.members[0]
	o, err := groupby.New(spec)
	if err != nil {
		return nil, err
	}
	t := operators.Task{Device: m.q.Device(), Queue: m.q, Lease: m.l, StrideRows: gpu.MaxRows, Lanes: 1}
	err = c.drive(o, t, func(st *gpu.Stride) error {
		down, err := m.q.Download(m.h, st)
		if err != nil {
			st.Release()
			return err
		}
		out = append(out, down)
		return nil
	}, func(push func(int, *gpu.Stride) error) error {
		for i, list := range parts {
			for _, st := range list {
				up, err := m.q.Upload(m.l, st.Retain())
				if err != nil {
					st.Release()
					return err
				}
				if err := push(i, up); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return out, errors.Join(err, o.Close())
}

// check compares the result with the sums that were added up while the tables were made.
func (c *chained) check(result []*gpu.Stride) error {
	got := map[groupKey]int64{}
	for _, st := range result {
		last := len(st.Cols) - 1
		sums := gpu.Values[gpu.Int128](st.Cols[last].Data, st.Rows)
		var keys groupKey
		for row := range st.Rows {
			for i, k := range st.Cols[:last] {
				keys[i] = gpu.Values[int32](k.Data, st.Rows)[row]
			}
			got[keys] += int64(sums[row].Lo)
		}
	}
	if !maps.Equal(got, c.want) {
		for k := range c.want {
			if got[k] != c.want[k] {
				return fmt.Errorf("%w: %d groups, want %d; the revenue of %v is %d, want %d", ErrWrong, len(got),
					len(c.want), k, got[k], c.want[k])
			}
		}
		return fmt.Errorf("%w: %d groups, want %d", ErrWrong, len(got), len(c.want))
	}
	return nil
}
