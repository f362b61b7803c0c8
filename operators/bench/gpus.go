package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
)

// ErrOneDevice means that one device cannot exchange rows with another one.
var ErrOneDevice = errors.New("there is only one device: name several, as in --device cuda:0,1, --device cuda:all or " +
	"--gpus 4; with --device host, --gpus divides the cores")

// Spread has the additional figures of a result of the benchmark gpus.
type Spread struct {
	Devices int `json:"devices"`
	// Out is the bytes per second that leave each device.
	Out float64 `json:"out_bytes_per_second,omitempty"`
	// Speedup is the rate of rows relative to the fastest form on one device, of joins.
	Speedup float64 `json:"speedup,omitempty"`
	// Link is the time of the copies alone, at the ceiling; Own is the time of one device with the same rows.
	Link time.Duration `json:"link_ns,omitempty"`
	Own  time.Duration `json:"own_ns,omitempty"`
	// Phases is the work of the first device in the last run: of kernels, and of copies from and to other devices.
	Phases []Phase `json:"phases,omitempty"`
}

const (
	spreadRows = 1 << 28 // probe rows of a device
	// spreadBins are the bits of the first pass, but for few rows. Devices have equal shares of the bins.
	spreadBins, fewestBins = 7, 4
	// spreadBin is the least number of build rows of a bin.
	spreadBin = 64
	// spreadTable is the desired number of build rows of a partition.
	spreadTable = 1 << 13
	// spreadFactor makes a hash of keys.
	spreadFactor = 0x9e3779b97f4a7c15
	// mostChunks is the most chunks of a pipelined join.
	mostChunks = 8
)

var tupleSchema = gpu.NewSchema(gpu.Field{Name: "key", Type: gpu.Of(gpu.Uint64)},
	gpu.Field{Name: "value", Type: gpu.Of(gpu.Uint64)})

// The sides of a join.
const (
	buildSide = iota
	probeSide
)

// distributed is tables of tuples that are spread over devices: probe rows, each with one of the build rows.
type distributed struct {
	*bench
	sizes   [2]int // rows of a device, by side
	bits    uint   // of the first pass
	members []*member
	// sums has the sums of the keys and of the values by side, and matches that of the values of all pairs.
	sums    [2][2]uint64
	matches uint64
	failed  atomic.Bool // a member has failed
}

// member is a device and its share.
type member struct {
	*distributed
	at   int
	q    gpu.Queue
	x    gpu.Exchanging
	l, h *gpu.Lease
	// cols are the keys and values by side. sent are its tuples after the first pass, received those of other devices,
	// parted all after the second pass.
	cols                   [2][]gpu.Column
	sent, received, parted [2]gpu.Column
	views                  []*gpu.Buffer // released at the end of a run
}

// gpus measures, for one device up to all, the exchange of tuples between devices and the join of two sides whose keys
// are spread. The tuples have a key and a value of 8 bytes. The result of a join is a count and a sum. Every run is
// checked. The runs of all cases of as many devices take turns.
func (b *bench) gpus() error {
	devices := gpu.DevicesOf(b.dev)
	if len(devices) < 2 {
		return ErrOneDevice
	}
	sizes := [2]int{cmp.Or(b.opt.BuildRows, max(b.rows/4, 1)), b.rows}
	if b.opt.Rows == 0 && b.opt.BuildRows == 0 {
		for spreadBytes(sizes) > slices.MinFunc(devices, func(x, y gpu.Device) int {
			return cmp.Compare(x.Budget().Limit(), y.Budget().Limit())
		}).Budget().Limit()/10*9 {
			sizes[buildSide], sizes[probeSide] = sizes[buildSide]/2, sizes[probeSide]/2
		}
	}
	var own time.Duration
	for n := 1; ; n = min(2*n, len(devices)) {
		took, err := b.spreadOver(devices[:n], sizes, own)
		if err != nil {
			return fmt.Errorf("%d of %d devices: %w", n, len(devices), err)
		}
		if n == 1 {
			own = took
		}
		if n == len(devices) {
			return nil
		}
	}
}

// spreadBytes returns about the most memory that a device needs.
func spreadBytes(sizes [2]int) int64 { return int64(sizes[buildSide]+sizes[probeSide]) * 16 * 9 / 2 }

// spreadCase is a case of the benchmark gpus. run returns its time.
type spreadCase struct {
	name  string
	run   func() (time.Duration, error)
	times []time.Duration
	join  bool
	work  []Phase // of the last run
}

// spreadOver measures some devices. It returns the median of the fastest form of the join. own is that of one device.
func (b *bench) spreadOver(devices []gpu.Device, sizes [2]int, own time.Duration) (_ time.Duration, err error) {
	s := &distributed{bench: b, sizes: sizes, bits: spreadBins}
	for s.bits > fewestBins && sizes[buildSide]*len(devices)>>s.bits < spreadBin && 1<<(s.bits-1) >= len(devices) {
		s.bits--
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, d := range devices {
		if err := s.add(d); err != nil {
			return 0, err
		}
	}
	if err := s.draw(); err != nil {
		return 0, err
	}
	n := len(devices)
	var cases []*spreadCase
	add := func(name string, join bool, run func() (time.Duration, error)) {
		cases = append(cases, &spreadCase{name: name, join: join, run: run})
	}
	joins := []spreadJoin{{"join on one device", 1, true}}
	if n > 1 {
		add("copies alone, pulled", false, func() (time.Duration, error) { return s.copies(false) })
		add("copies alone, pushed", false, func() (time.Duration, error) { return s.copies(true) })
		joins = []spreadJoin{{"GPJ-B, blocking", 1, true}}
		for _, c := range s.chunks() {
			name := "exchange, partition then copies"
			if c > 1 {
				name = fmt.Sprintf("%s, %d strides", name, c)
			}
			add(name, false, func() (time.Duration, error) { return s.exchange(c) })
			if c > 1 && c <= mostChunks {
				joins = append(joins, spreadJoin{fmt.Sprintf("GPJ, pipelined, %d chunks", c), c, false})
			}
		}
	}
	for _, j := range joins {
		add(j.name, true, func() (time.Duration, error) { return s.join(j) })
	}
	if err := s.reserve(s.chunks()); err != nil {
		return 0, err
	}
	for i := range b.runs + 1 {
		for _, c := range cases {
			if err := b.ctx.Err(); err != nil {
				return 0, err
			}
			begin := s.clock()
			took, err := c.run()
			if err != nil {
				return 0, fmt.Errorf("%s: %w", c.name, err)
			}
			c.work = s.workSince(begin)
			if i > 0 { // the first run warms up
				c.times = append(c.times, took)
			}
		}
	}
	return s.report(cases, own), nil
}

// clock returns the time of the first device.
func (s *distributed) clock() time.Duration {
	if p, ok := s.members[0].q.Device().(gpu.Profiled); ok {
		return p.Clock()
	}
	return 0
}

// workSince returns the work of the first device since a time, as far as the device measures it.
func (s *distributed) workSince(begin time.Duration) (out []Phase) {
	p, ok := s.members[0].q.Device().(gpu.Profiled)
	if !ok {
		return nil
	}
	for _, span := range p.Spans(s.members[0].l) {
		if span.Start < begin {
			continue
		}
		at := slices.IndexFunc(out, func(x Phase) bool { return x.Name == span.Name })
		if at < 0 {
			at, out = len(out), append(out, Phase{Step: span.Lane, Name: span.Name})
		}
		out[at].Time += span.End - span.Start
		out[at].Count++
	}
	return out
}

// report reports the cases, and returns the time of the fastest join.
func (s *distributed) report(cases []*spreadCase, own time.Duration) (best time.Duration) {
	n := len(s.members)
	for _, c := range cases {
		if took := median(c.times); c.join && (best == 0 || took < best) {
			best = took
		}
	}
	own = cmp.Or(own, best)
	ceiling := 0.0 // out of each device
	if n > 1 {
		for _, c := range cases[:2] {
			ceiling = max(ceiling, float64(s.perPair()*(n-1)*16)/median(c.times).Seconds())
		}
	}
	link := func(rows int) time.Duration {
		if n == 1 {
			return 0
		}
		return time.Duration(float64(rows) * 16 * float64(n-1) / float64(n) / ceiling * float64(time.Second))
	}
	for i, c := range cases {
		took, rows := median(c.times), int64(s.sizes[probeSide])*int64(n)
		r := Result{Benchmark: s.name, Case: c.name, Rows: rows, Time: took, Wall: took, Runs: s.runs,
			Bound: "copy engines", BoundRate: ceiling * float64(n), Spread: &Spread{Devices: n, Phases: c.work}}
		switch {
		case c.join:
			rows := s.sizes[buildSide] + s.sizes[probeSide]
			r.Rows, r.Bytes = int64(rows)*int64(n), int64(rows)*int64(n)*16
			r.Spread.Link, r.Spread.Own = link(rows), own
			r.Bound, r.BoundRate = "own work", float64(r.Bytes)/own.Seconds()
			if r.Spread.Link > own {
				r.Bound, r.BoundRate = "copy engines", float64(r.Bytes)/r.Spread.Link.Seconds()
			}
			r.Spread.Speedup = float64(n) * own.Seconds() / took.Seconds()
		case i < 2:
			r.Rows = int64(s.perPair()) * int64(n*(n-1))
			r.Bytes = r.Rows * 16
		default:
			r.Bytes = rows / int64(n) * int64(n-1) * 16
		}
		if !c.join {
			r.Spread.Out = r.Rate() / float64(n)
		}
		s.each(r)
	}
	return best
}

// add adds a device.
func (s *distributed) add(d gpu.Device) error {
	q, err := d.NewQueue("bench gpus")
	if err != nil {
		return err
	}
	m := &member{distributed: s, at: len(s.members), q: q, l: d.Budget().Lease("bench gpus"),
		h: d.HostBudget().Lease("bench gpus, host")}
	s.members = append(s.members, m)
	m.x, err = gpu.ExchangingOf(q)
	return err
}

func (s *distributed) close() (err error) {
	for _, m := range s.members {
		for side := range m.cols {
			gpu.ReleaseColumns(m.cols[side])
			gpu.ReleaseColumns([]gpu.Column{m.sent[side], m.received[side], m.parted[side]})
		}
		err = errors.Join(err, m.q.Close(), m.l.Close(), m.h.Close())
	}
	return err
}

// spreadKey returns the key of a build row: numbers that differ, in the order of a hash.
func spreadKey(row uint64) uint64 {
	row = (row ^ row>>30) * 0xbf58476d1ce4e5b9
	row = (row ^ row>>27) * 0x94d049bb133111eb
	return row ^ row>>31
}

// spreadValue returns the value of a build row.
func spreadValue(row uint64) uint64 { return row*3 + 1 }

// draw makes the tables of all devices.
func (s *distributed) draw() error {
	var mu sync.Mutex
	all := uint64(s.sizes[buildSide] * len(s.members))
	for _, m := range s.members {
		for side := range m.cols {
			err := m.table(side, func(at int, keys, values []uint64) {
				rnd := rand.New(rand.NewPCG(rand.Uint64(), uint64(at)))
				var k, v, match uint64
				for i := range keys {
					row := uint64(m.at*s.sizes[buildSide] + at + i)
					values[i] = spreadValue(row)
					if side == probeSide {
						row = rnd.Uint64N(all)
						values[i] = rnd.Uint64()
						match += values[i] + spreadValue(row)
					}
					keys[i] = spreadKey(row)
					k, v = k+keys[i], v+values[i]
				}
				mu.Lock()
				s.sums[side][0] += k
				s.sums[side][1] += v
				s.matches += match
				mu.Unlock()
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// table makes the columns of a side. fill fills the rows from a position on.
func (m *member) table(side int, fill func(at int, keys, values []uint64)) (err error) {
	const part = 1 << 24
	rows := m.sizes[side]
	var parts [2][]gpu.Column
	defer func() {
		for _, p := range parts {
			gpu.ReleaseColumns(p)
		}
	}()
	for from := 0; from < rows; from += part {
		n := min(part, rows-from)
		st := &gpu.Stride{Schema: tupleSchema, Rows: n}
		for range 2 {
			buf, err := m.h.Alloc(int64(n) * 8)
			if err != nil {
				st.Release()
				return err
			}
			st.Cols = append(st.Cols, gpu.Column{Type: gpu.Of(gpu.Uint64), Len: n, Data: buf})
		}
		keys, values := gpu.Values[uint64](st.Cols[0].Data, n), gpu.Values[uint64](st.Cols[1].Data, n)
		parallel(n, func(a, z int) { fill(from+a, keys[a:z], values[a:z]) })
		up, err := m.q.Upload(m.l, st)
		if err != nil {
			st.Release()
			return err
		}
		for i, c := range up.Cols {
			parts[i] = append(parts[i], c)
		}
	}
	for _, p := range parts {
		c, err := m.q.Concat(m.l, p)
		if err != nil {
			return err
		}
		m.cols[side] = append(m.cols[side], c)
	}
	return nil
}

// chunks returns the numbers of chunks of the probe side that are measured: chunks have at least 16 MiB, but if there
// are 4.
func (s *distributed) chunks() []int {
	return slices.DeleteFunc([]int{1, 2, 4, mostChunks, 64, 256}, func(c int) bool {
		return c != 1 && c != 4 && s.sizes[probeSide]/c < 1<<20
	})
}

// chunk returns the rows [from, to) of a chunk of a side.
func (s *distributed) chunk(side, chunk, chunks int) (from, to int) {
	n := s.sizes[side]
	step := (n + chunks - 1) / chunks
	return min(chunk*step, n), min((chunk+1)*step, n)
}

// roomOf returns the room for rows if mean are expected: 16 standard deviations more.
func (s *distributed) roomOf(mean int) int {
	return mean + 16*int(math.Sqrt(float64(mean))) + gpu.TupleLine*(len(s.members)+2)
}

// arriving returns the room for rows that arrive from other devices in a chunk, resulting the room of a second pass.
func (s *distributed) arriving(side, chunks int) int {
	n := len(s.members)
	if n == 1 {
		return 0
	}
	return s.roomOf((s.sizes[side]+chunks-1)/chunks*(n-1)/n+1) &^ (gpu.TupleLine - 1)
}

func (s *distributed) resulting(side, chunks int) int {
	runs := (1<<s.bits/len(s.members) + 1) * len(s.members)
	return s.roomOf((s.sizes[side]+chunks-1)/chunks) + runs*gpu.RunRoom(gpu.TupleLine, s.second().Bits)
}

// first and second are the digits of the two passes.
func (s *distributed) first() gpu.Digit {
	return gpu.Digit{Shift: 64 - s.bits, Bits: s.bits, Factor: spreadFactor}
}

func (s *distributed) second() gpu.Digit {
	parts, bits := s.sizes[buildSide]*len(s.members)/spreadTable, uint(2)
	for bits < 9 && parts > 1<<(s.bits+bits) {
		bits++
	}
	return gpu.Digit{Shift: 64 - s.bits - bits, Bits: bits, Factor: spreadFactor}
}

// reserve allocates memory for runs with given numbers of chunks.
func (s *distributed) reserve(chunks []int) error {
	for _, m := range s.members {
		for side := range m.cols {
			arriving, resulting := 0, 0
			for _, c := range chunks {
				if side == buildSide {
					c = 1
				}
				arriving = max(arriving, c*s.arriving(side, c))
				if c <= mostChunks {
					resulting = max(resulting, c*s.resulting(side, c))
				}
			}
			for _, c := range []struct {
				to   *gpu.Column
				rows int
			}{{&m.sent[side], s.sizes[side]}, {&m.received[side], arriving}, {&m.parted[side], resulting}} {
				buf, err := m.l.Alloc(int64(c.rows) * 16)
				if err != nil {
					return err
				}
				*c.to = gpu.Column{Type: gpu.TupleType(8), Len: c.rows, Data: buf}
			}
		}
	}
	_, err := s.all(func(m *member) error { return m.settle() }) // the memory belongs to the kernels until now
	return err
}

// all calls f for all members at once, and returns the time until the last one returns.
func (s *distributed) all(f func(*member) error) (time.Duration, error) {
	var begin, waiting atomic.Int64
	var running sync.WaitGroup
	errs := make([]error, len(s.members))
	for i, m := range s.members {
		running.Go(func() {
			waiting.Add(1)
			for w := (waiter{}); begin.Load() == 0; w.pause() {
			}
			if errs[i] = f(m); errs[i] != nil {
				s.failed.Store(true)
			}
		})
	}
	for w := (waiter{}); int(waiting.Load()) < len(s.members); w.pause() {
	}
	start := time.Now()
	begin.Store(1)
	running.Wait()
	return time.Since(start), errors.Join(errs...)
}

// waiter waits for other goroutines: at first without sleeping, since they need only some microseconds.
type waiter struct{ turns int }

func (w *waiter) pause() {
	if w.turns++; w.turns < 1<<12 {
		runtime.Gosched()
		return
	}
	time.Sleep(20 * time.Microsecond)
}

// settle waits until the kernels of a device have ended.
func (m *member) settle() error {
	_, _, _, err := m.x.SumTuples(m.l, nil, nil, m.first())
	return err
}

// view returns rows of a column until the end of a run.
func (m *member) view(c gpu.Column, from, to int) gpu.Column {
	w := int64(c.Type.Width())
	b := c.Data.View(int64(from)*w, int64(to-from)*w)
	m.views = append(m.views, b)
	return gpu.Column{Type: c.Type, Len: to - from, Data: b}
}

// endRun releases the views of all members.
func (s *distributed) endRun() {
	for _, m := range s.members {
		for _, v := range m.views {
			v.Release()
		}
		m.views = nil
	}
}

// perPair is the number of tuples that each device sends to each other one in copies.
func (s *distributed) perPair() int {
	return max(1, min(s.sizes[probeSide], s.arriving(probeSide, 1))/len(s.members))
}

// copies copies between all pairs of devices, in the order of a ring. Either the receivers start the copies, or the
// senders. The copies of a device are enqueued together, while all are idle.
func (s *distributed) copies(push bool) (time.Duration, error) {
	n, rows := len(s.members), s.perPair()
	before := make([]time.Duration, n)
	took := make([]time.Duration, n)
	wall, err := s.all(func(m *member) error {
		before[m.at] = m.l.Activity().In
		var list []gpu.TupleCopy
		for j := 1; j < n; j++ {
			from, to := s.members[(m.at+j)%n], m
			if push {
				from, to = m, from
			}
			at := (from.at - to.at - 1 + n) % n
			list = append(list, gpu.TupleCopy{To: to.received[probeSide], At: at * rows,
				TupleRun: gpu.TupleRun{Tuples: from.sent[probeSide], Start: 0, Rows: rows}})
		}
		arrival, err := m.x.Fetch(m.l, list)
		if err == nil {
			err = arrival.Await(m.q)
		}
		return errors.Join(err, m.settle())
	})
	if err != nil {
		return 0, err
	}
	for i, m := range s.members {
		if p, ok := m.q.Device().(gpu.Profiled); ok {
			p.Settle()
			took[i] = m.l.Activity().In - before[i]
		}
	}
	return cmp.Or(slices.Max(took), wall), nil
}

// sending is the exchange of a side, or of a chunk of it: where the bins of each sender begin.
type sending struct {
	side, chunk, chunks int
	offsets             []atomic.Pointer[[]int] // by sender
	fetched             []gpu.Arrival           // by receiver
	runs                [][]gpu.TupleRun        // by receiver: those of its first bin, by sender, then the next
}

func (s *distributed) sending(side, chunk, chunks int) *sending {
	n := len(s.members)
	return &sending{side: side, chunk: chunk, chunks: chunks, offsets: make([]atomic.Pointer[[]int], n),
		fetched: make([]gpu.Arrival, n), runs: make([][]gpu.TupleRun, n)}
}

// bins returns the bins [from, to) of a device.
func (s *distributed) bins(at int) (from, to int) {
	n := len(s.members)
	return (at<<s.bits + n - 1) / n, ((at+1)<<s.bits + n - 1) / n
}

// partition makes the first pass, and tells the receivers.
func (m *member) partition(x *sending) error {
	from, to := m.chunk(x.side, x.chunk, x.chunks)
	offsets, err := m.x.PartitionTuples(m.l, m.view(m.sent[x.side], from, to), m.view(m.cols[x.side][0], from, to),
		m.view(m.cols[x.side][1], from, to), m.first(), gpu.TuplePass{Strategy: gpu.WriteShared})
	if err == nil {
		x.offsets[m.at].Store(&offsets)
	}
	return err
}

// fetch starts the copies of the tuples that other devices have for this one.
func (m *member) fetch(x *sending) (err error) {
	n := len(m.members)
	first, last := m.bins(m.at)
	from, to := m.chunk(x.side, x.chunk, x.chunks)
	room := m.arriving(x.side, x.chunks)
	regions, next := make([]gpu.TupleRun, n), 0 // by sender
	begins := make([][]int, n)
	for s := range n {
		offsets := x.offsets[s].Load()
		for w := (waiter{}); offsets == nil; offsets = x.offsets[s].Load() {
			if m.failed.Load() {
				return errors.New("another device has failed")
			}
			w.pause()
		}
		start, rows := (*offsets)[first], (*offsets)[last]-(*offsets)[first]
		begins[s] = (*offsets)[first : last+1]
		if s == m.at {
			regions[s] = gpu.TupleRun{Tuples: m.view(m.sent[x.side], from, to), Start: start, Rows: rows}
			continue
		}
		// Both ends of a copy have the same place in a line of memory.
		next += (start - next) & (gpu.TupleLine - 1)
		regions[s] = gpu.TupleRun{Tuples: m.received[x.side], Start: x.chunk*room + next, Rows: rows}
		next += rows
	}
	if next > room {
		return fmt.Errorf("%d tuples arrive, and there is room for %d", next, room)
	}
	var copies []gpu.TupleCopy
	for j := 1; j < n; j++ {
		s := (m.at + j) % n
		sender := m.members[s]
		a, z := sender.chunk(x.side, x.chunk, x.chunks)
		source := gpu.TupleRun{Tuples: m.view(sender.sent[x.side], a, z), Start: begins[s][0], Rows: regions[s].Rows}
		copies = append(copies, gpu.TupleCopy{To: regions[s].Tuples, At: regions[s].Start, TupleRun: source})
	}
	for b := range last - first {
		for s, r := range regions {
			r.Start += begins[s][b] - begins[s][0]
			r.Rows = begins[s][b+1] - begins[s][b]
			x.runs[m.at] = append(x.runs[m.at], r)
		}
	}
	x.fetched[m.at], err = m.x.Fetch(m.l, copies)
	return err
}

// exchange exchanges the probe side in chunks: each is partitioned while others are copied.
func (s *distributed) exchange(chunks int) (time.Duration, error) {
	defer s.endRun()
	var list []*sending
	for c := range chunks {
		list = append(list, s.sending(probeSide, c, chunks))
	}
	took, err := s.all(func(m *member) error {
		for _, x := range list {
			if err := m.partition(x); err != nil {
				return err
			}
			if err := m.fetch(x); err != nil {
				return err
			}
		}
		for _, x := range list {
			if err := x.fetched[m.at].Await(m.q); err != nil {
				return err
			}
		}
		return m.settle()
	})
	if err != nil {
		return 0, err
	}
	var keys, values, wrong atomic.Uint64
	_, err = s.all(func(m *member) error {
		first, last := m.bins(m.at)
		var digits []int
		for b := first; b < last; b++ {
			for range s.members {
				digits = append(digits, b)
			}
		}
		for _, x := range list {
			k, v, w, err := m.x.SumTuples(m.l, x.runs[m.at], digits, m.first())
			if err != nil {
				return err
			}
			keys.Add(k)
			values.Add(v)
			wrong.Add(w)
		}
		return nil
	})
	if got := [2]uint64{keys.Load(), values.Load()}; err == nil && (got != s.sums[probeSide] || wrong.Load() > 0) {
		err = fmt.Errorf("%w: %d tuples of a wrong bin, sums of keys and values %d, want %d", ErrWrong, wrong.Load(),
			got, s.sums[probeSide])
	}
	return took, err
}

// spreadJoin is a form of the join.
type spreadJoin struct {
	name     string
	chunks   int  // of the probe side
	blocking bool // the exchange ends before the second pass begins
}

// join exchanges both sides, partitions what arrives again, and counts the pairs. In the pipelined form a device
// partitions a chunk, receives the one before, and makes the second pass of the one before that.
func (s *distributed) join(f spreadJoin) (time.Duration, error) {
	defer s.endRun()
	list := []*sending{s.sending(buildSide, 0, 1)}
	for c := range f.chunks {
		list = append(list, s.sending(probeSide, c, f.chunks))
	}
	var pairs, sum atomic.Uint64
	took, err := s.all(func(m *member) error {
		var parted []gpu.PartitionedRuns
		defer func() {
			for _, p := range parted {
				p.Release()
			}
		}()
		sent := 0
		send := func(until int) error {
			for ; sent < min(until, len(list)); sent++ {
				if err := m.partition(list[sent]); err != nil {
					return err
				}
				if f.blocking {
					continue
				}
				if err := m.fetch(list[sent]); err != nil {
					return err
				}
			}
			return nil
		}
		if f.blocking {
			if err := send(len(list)); err != nil {
				return err
			}
			for _, x := range list {
				if err := m.fetch(x); err != nil {
					return err
				}
			}
			for _, x := range list {
				if err := x.fetched[m.at].Await(m.q); err != nil {
					return err
				}
			}
		}
		for i, x := range list {
			if err := send(i + 3); err != nil {
				return err
			}
			if !f.blocking {
				if err := x.fetched[m.at].Await(m.q); err != nil {
					return err
				}
			}
			p, err := m.secondPass(x)
			if err != nil {
				return err
			}
			parted = append(parted, p)
		}
		n, v, err := m.x.CountMatches(m.l, parted[:1], parted[1:], len(s.members), s.second())
		pairs.Add(n)
		sum.Add(v)
		return err
	})
	if want := uint64(s.sizes[probeSide] * len(s.members)); err == nil && (pairs.Load() != want ||
		sum.Load() != s.matches) {
		err = fmt.Errorf("%w: %d pairs, want %d; their sum is %d, want %d", ErrWrong, pairs.Load(), want, sum.Load(),
			s.matches)
	}
	return took, err
}

// secondPass partitions the tuples of a device again.
func (m *member) secondPass(x *sending) (gpu.PartitionedRuns, error) {
	to, room := m.parted[x.side], m.resulting(x.side, x.chunks)
	return m.x.PartitionRuns(m.l, m.view(to, x.chunk*room, (x.chunk+1)*room), x.runs[m.at], m.second())
}
