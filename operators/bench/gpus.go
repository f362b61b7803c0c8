package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
)

// ErrOneDevice means that one device cannot exchange rows with another one.
var ErrOneDevice = errors.New("there is only one device: name several, as in --device cuda:0,1, --device cuda:all or " +
	"--gpus 4; with --device host, --gpus divides the cores; or name the cases for one device with --cases")

// Spread has the additional figures of a result of the benchmark gpus.
type Spread struct {
	Devices int `json:"devices"`
	// Out is the bytes per second that leave each device.
	Out float64 `json:"out_bytes_per_second,omitempty"`
	// Speedup is the rate of rows relative to the fastest form on one device, except of exchanges.
	Speedup float64 `json:"speedup,omitempty"`
	// Own is the time of one device with as many rows as each device has here.
	Own    time.Duration `json:"own_ns,omitempty"`
	Figure *Figure       `json:"figure,omitempty"` // of the benchmark figures
	// Polls is what kernels that poll did (ACTIVE).
	Polls *ActivePolls `json:"polls,omitempty"`
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
	// mostSecondBits are the most bits of the second pass.
	mostSecondBits = 9
	// spreadFactor makes a hash of keys.
	spreadFactor = 0x9e3779b97f4a7c15
	// mostChunks is the most chunks of a pipelined join.
	mostChunks = 8
	// streamRows are the rows of a chunk that comes from host memory, leastStreams the least number of chunks.
	streamRows, leastStreams = 1 << 22, 6
	// mostBuildChunks bounds the chunks of the build side of all devices that come from host memory.
	mostBuildChunks = 256
)

// spreadZipf are the exponents of foreign keys that are not equally frequent, spreadGroups the numbers of groups.
var (
	spreadZipf   = []float64{1, 1.5}
	spreadGroups = []uint64{1 << 4, 1 << 20, 1 << 26}
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
	width   int    // bytes of a tuple; 0 means 16. Others are for tables in host memory.
	bits    uint   // of the first pass
	members []*member
	// sums has the sums of the keys and of the values by side, and matches that of the values of all pairs.
	sums    [2][2]uint64
	matches uint64
	failed  atomic.Bool // a member has failed
	cases   []*spreadCase
	// measured is the number of cases that were measured.
	measured int
	own      map[string]time.Duration // by form: on one device
	warmup   bool                     // the first run of each case
	polled   []ActivePolls            // by device, in the last run
	cpu      *cpuCores                // once they are used
	hostOnly bool                     // the tables are in host memory only
	most     []atomic.Uint64          // by group: the greatest value, of probe rows that are grouped
}

// member is a device and its share.
type member struct {
	*distributed
	at   int
	q    gpu.Queue
	x    gpu.Exchanging
	l, h *gpu.Lease
	// cols are the keys and values by side. sent are its tuples for others that engines copy, received those of all
	// devices, parted those after the second pass.
	cols                   [2][]gpu.Column
	sent, received, parted [2]gpu.Column
	entries                gpu.Column       // room for a hash table of build rows
	inHost                 [2][]*gpu.Stride // the sides in host memory, in chunks
	pairs                  []gpu.Column     // room for the pairs of a join
	sampled                gpu.Column       // the numbers of probe rows in a sample
	counted                []keyCount       // the table of countKeys
	// The rest is released at the end of a run.
	views    []*gpu.Buffer
	counts   []gpu.Column // of SendTuples
	columns  []gpu.Column
	arrivals []gpu.Arrival
}

// gpus measures, for one device up to all, the exchange of tuples between devices and the join of two sides whose keys
// are spread. The tuples have a key and a value of 8 bytes. The result of a join is a count and a sum, or the pairs.
// Every run is checked. The runs of all cases of as many devices and of the same data take turns.
func (b *bench) gpus() error {
	devices := gpu.DevicesOf(b.dev)
	if len(devices) < 2 && len(b.opt.Cases) == 0 {
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
	own := map[string]time.Duration{}
	for n := 1; ; n = min(2*n, len(devices)) {
		if err := b.spreadOver(devices[:n], sizes, own); err != nil {
			return fmt.Errorf("%d of %d devices: %w", n, len(devices), err)
		}
		if n == len(devices) {
			return nil
		}
	}
}

// spreadBytes returns about the most memory that a device needs.
func spreadBytes(sizes [2]int) int64 { return int64(sizes[buildSide]+sizes[probeSide]) * 16 * 9 }

// spreadFamilies are the groups of cases, and what adds them. Those with data of their own are added later.
var spreadFamilies = []struct {
	name string
	add  func(*distributed) []layout
}{
	{"exchange", (*distributed).addExchanges},
	{"join", (*distributed).addJoins},
	{"table", (*distributed).addTables},
	{"active", (*distributed).addActive},
	{"stream", (*distributed).addStreams},
	{"hybrid", (*distributed).addHybrids},
	{"sort", (*distributed).addSort},
	{"skew", (*distributed).fourChunks},
	{"group", (*distributed).fourChunks},
}

// SpreadFamilies returns the names of the groups of cases of the benchmark gpus.
func SpreadFamilies() (names []string) {
	for _, f := range spreadFamilies {
		names = append(names, f.name)
	}
	return names
}

// checkSpreads returns an error for a group of cases that does not exist.
func checkSpreads(cases []string) error {
	for _, c := range cases {
		if c != "all" && !slices.Contains(SpreadFamilies(), c) {
			return fmt.Errorf("no case of gpus is named %q: there are %s, or all", c,
				strings.Join(SpreadFamilies(), ", "))
		}
	}
	return nil
}

// selected reports whether a group of cases is measured.
func (b *bench) selected(family string) bool {
	return len(b.opt.Cases) == 0 || slices.Contains(b.opt.Cases, "all") || slices.Contains(b.opt.Cases, family)
}

// spreadCase is a case of the benchmark gpus.
type spreadCase struct {
	name string
	// form is the work that one device does too, to which the case is compared; empty for an exchange.
	form        string
	rows, bytes int64 // of all devices
	// bound returns the case whose time bounds this one, or a time and its name. own is the time of the form on one
	// device with the same rows for each device.
	bound func(own time.Duration) (string, time.Duration)
	run   func() (time.Duration, error)
	times []time.Duration
	work  []Phase // of the last run
	polls *ActivePolls
}

func (c *spreadCase) median() time.Duration { return median(c.times) }

// spread returns tables without rows. The caller closes them, also after an error.
func (b *bench) spread(devices []gpu.Device, sizes [2]int) (*distributed, error) {
	s := &distributed{bench: b, sizes: sizes, bits: spreadBins}
	for s.bits > fewestBins && sizes[buildSide]*len(devices)>>s.bits < spreadBin && 1<<(s.bits-1) >= len(devices) {
		s.bits--
	}
	for _, d := range devices {
		if err := s.add(d); err != nil {
			return s, err
		}
	}
	return s, nil
}

// uniform picks all build rows equally often.
func (s *distributed) uniform(rnd *rand.Rand, _ int) uint64 {
	return rnd.Uint64N(uint64(s.sizes[buildSide] * len(s.members)))
}

// zipf returns what picks build rows by Zipf.
func (s *distributed) zipf(exponent float64) func(*rand.Rand, int) uint64 {
	z := newZipf(s.sizes[buildSide]*len(s.members), exponent)
	return func(_ *rand.Rand, row int) uint64 { return uint64(z.number(row)) }
}

// spreadOver measures some devices. own has the times of one device, by form.
func (b *bench) spreadOver(devices []gpu.Device, sizes [2]int, own map[string]time.Duration) (err error) {
	s, err := b.spread(devices, sizes)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	s.own = own
	for side := range s.sums {
		if err := s.draw(side, s.uniform); err != nil {
			return err
		}
	}
	layouts := s.addCopies()
	for _, f := range spreadFamilies {
		if b.selected(f.name) {
			layouts = append(layouts, f.add(s)...)
		}
	}
	if err := s.reserve(layouts); err != nil {
		return err
	}
	defer s.report() // also what was measured before an error
	if err := s.measure(); err != nil {
		return err
	}
	again := func(add func(), pick func(*rand.Rand, int) uint64) error {
		add()
		if err := s.draw(probeSide, pick); err != nil {
			return err
		}
		return s.measure()
	}
	for _, exponent := range spreadZipf {
		if !b.selected("skew") {
			break
		}
		if err := again(func() { s.addHeavy(exponent) }, s.zipf(exponent)); err != nil {
			return err
		}
	}
	for i, groups := range spreadGroups {
		groups = min(groups, uint64(sizes[probeSide]))
		if !b.selected("group") || i > 0 && groups <= spreadGroups[i-1] {
			continue // the rows are few, and have been grouped by row
		}
		s.most = make([]atomic.Uint64, groups)
		if err := again(func() { s.addGroups(groups) },
			func(rnd *rand.Rand, _ int) uint64 { return rnd.Uint64N(groups) }); err != nil {
			return err
		}
	}
	return nil
}

// addCase adds a case.
func (s *distributed) addCase(c spreadCase) *spreadCase {
	s.cases = append(s.cases, &c)
	return &c
}

// measure runs the cases that were not measured before, in turn.
func (s *distributed) measure() error {
	cases := s.cases[s.measured:]
	for i := range s.runs + 1 {
		s.warmup = i == 0
		for _, c := range cases {
			if err := s.ctx.Err(); err != nil {
				return err
			}
			begin := s.clock()
			took, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.work, c.polls, s.polled = s.workSince(begin), sumPolls(s.polled), nil
			if !s.warmup {
				c.times = append(c.times, took)
			}
		}
	}
	s.measured = len(s.cases)
	return nil
}

// sumPolls adds up what kernels that poll did, or returns nil.
func sumPolls(list []ActivePolls) (out *ActivePolls) {
	for _, p := range list {
		out = &ActivePolls{cmp.Or(out, &ActivePolls{}).Launches + p.Launches,
			cmp.Or(out, &ActivePolls{}).Mismatches + p.Mismatches}
	}
	return out
}

// best returns the median of the fastest case of a form.
func (s *distributed) best(form string) (best time.Duration) {
	for _, c := range s.cases[:s.measured] {
		if took := c.median(); c.form == form && (best == 0 || took < best) {
			best = took
		}
	}
	return best
}

// report reports the cases that were measured.
func (s *distributed) report() {
	n, cases := len(s.members), s.cases[:s.measured]
	for _, c := range cases {
		if n == 1 && c.form != "" && s.own[c.form] == 0 {
			s.own[c.form] = s.best(c.form)
		}
	}
	for _, c := range cases {
		took, own := c.median(), s.own[c.form]
		r := Result{Benchmark: s.name, Case: c.name, Rows: c.rows, Bytes: c.bytes, Time: took, Wall: took, Runs: s.runs,
			Spread: &Spread{Devices: n, Phases: c.work, Own: own, Polls: c.polls}}
		if c.form == "" && n > 1 {
			r.Spread.Out = r.Rate() / float64(n)
		} else if own > 0 {
			r.Spread.Speedup = float64(n) * own.Seconds() / took.Seconds()
		}
		bound := own
		r.Bound = "one device"
		if c.bound != nil {
			r.Bound, bound = c.bound(own)
		}
		if bound > 0 { // its case was not selected otherwise
			r.BoundRate = float64(c.bytes) / bound.Seconds()
		}
		s.each(r)
	}
}

// link returns the time that the copies of rows of each device take at the rate of copies alone, if the rows of all
// devices go to all devices.
func (s *distributed) link(rows int) time.Duration {
	n := len(s.members)
	if n == 1 {
		return 0
	}
	alone := time.Duration(math.MaxInt64)
	for _, c := range s.cases[:2] { // of addExchanges
		alone = min(alone, c.median())
	}
	return time.Duration(float64(alone) * float64(rows) / float64(n) / float64(s.perPair()))
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
		gpu.ReleaseColumns(append(m.pairs, m.sampled, m.entries))
		for side := range m.inHost {
			m.dropHost(side)
		}
		err = errors.Join(err, m.q.Close(), m.l.Close(), m.h.Close())
	}
	return errors.Join(err, s.cpu.close())
}

// spreadKey returns the key of a build row: numbers that differ, in the order of a hash.
func spreadKey(row uint64) uint64 {
	row = (row ^ row>>30) * 0xbf58476d1ce4e5b9
	row = (row ^ row>>27) * 0x94d049bb133111eb
	return row ^ row>>31
}

// key is spreadKey for tuples of the width.
func (s *distributed) key(row uint64) uint64 {
	if s.width == 8 {
		return uint64(uint32(row) * 0x9e3779b1)
	}
	return spreadKey(row)
}

// bytes is the bytes of a tuple.
func (s *distributed) bytes() int { return cmp.Or(s.width, 16) }

// valuesOf returns the sum of the values of a tuple, by its first value: the next ones are greater by 1, 2 and so on.
func (s *distributed) valuesOf(first uint64) uint64 {
	if s.width == 8 {
		return first & math.MaxUint32
	}
	n := uint64(s.bytes()/8 - 1)
	return n*first + n*(n-1)/2
}

// tupleColumn is the length of a column of TupleType(8) with room for tuples.
func (s *distributed) tupleColumn(tuples int) int { return (tuples*s.bytes() + 15) / 16 }

// hostSchema has the columns of a table in host memory: a key, and values.
func (s *distributed) hostSchema() *gpu.Schema {
	if s.bytes() == 16 {
		return tupleSchema
	}
	word, out := gpu.Of(gpu.Uint64), &gpu.Schema{}
	if s.width == 8 {
		word = gpu.Of(gpu.Uint32)
	}
	for i := range s.bytes() / word.Width() {
		out.Fields = append(out.Fields, gpu.Field{Name: fmt.Sprint("c", i), Type: word})
	}
	return out
}

// spreadValue returns the value of a build row.
func spreadValue(row uint64) uint64 { return row*3 + 1 }

// atLeast makes a number at least another one.
func atLeast(n *atomic.Uint64, least uint64) {
	for have := n.Load(); have < least && !n.CompareAndSwap(have, least); have = n.Load() {
	}
}

// draw makes the tables of a side on all devices. The probe side has the keys of the build rows that pick returns.
func (s *distributed) draw(side int, pick func(rnd *rand.Rand, row int) uint64) error {
	var mu sync.Mutex
	s.sums[side] = [2]uint64{}
	if side == probeSide {
		s.matches = 0
	}
	for _, m := range s.members {
		err := m.table(side, func(at int, keys, values []uint64) {
			rnd := rand.New(rand.NewPCG(rand.Uint64(), uint64(at)))
			var k, v, match uint64
			for i := range keys {
				row := uint64(m.at*s.sizes[buildSide] + at + i)
				values[i] = spreadValue(row)
				if side == probeSide {
					row = pick(rnd, m.at*s.sizes[probeSide]+at+i)
					values[i] = rnd.Uint64()
					if s.most != nil {
						atLeast(&s.most[row], values[i])
					}
					match += s.valuesOf(values[i]) + s.valuesOf(spreadValue(row))
				}
				keys[i] = s.key(row)
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
	return nil
}

// dropHost releases a side in host memory.
func (m *member) dropHost(side int) {
	for _, st := range m.inHost[side] {
		st.Release()
	}
	m.inHost[side] = nil
}

// hostChunk is the rows of a chunk of a side in host memory.
func (s *distributed) hostChunk(side int) int {
	rows := s.sizes[side]
	part := min(streamRows*16/max(s.bytes(), 16), (rows+leastStreams-1)/leastStreams)
	if side == buildSide { // all chunks of all devices are joined together
		part = max(part, (rows*len(s.members)+mostBuildChunks-1)/mostBuildChunks)
	}
	return part
}

// table makes the columns of a side. fill fills the rows from a position on. They stay in host memory too.
func (m *member) table(side int, fill func(at int, keys, values []uint64)) (err error) {
	rows, part := m.sizes[side], m.hostChunk(side)
	m.dropHost(side)
	gpu.ReleaseColumns(m.cols[side])
	m.cols[side] = nil
	schema := m.hostSchema()
	parts := make([][]gpu.Column, schema.Len())
	defer func() {
		for _, p := range parts {
			gpu.ReleaseColumns(p)
		}
	}()
	for from := 0; from < rows; from += part {
		n := min(part, rows-from)
		st := &gpu.Stride{Schema: schema, Rows: n}
		for _, f := range schema.Fields {
			buf, err := m.h.Alloc(int64(n * f.Type.Width()))
			if err != nil {
				st.Release()
				return err
			}
			st.Cols = append(st.Cols, gpu.Column{Type: f.Type, Len: n, Data: buf})
		}
		parallel(n, func(a, z int) { m.fillRows(st, from, a, z, fill) })
		m.inHost[side] = append(m.inHost[side], st.Retain())
		if m.hostOnly {
			st.Release()
			continue
		}
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
		if m.hostOnly {
			break
		}
		c, err := m.q.Concat(m.l, p)
		if err != nil {
			return err
		}
		m.cols[side] = append(m.cols[side], c)
	}
	return nil
}

// fillRows fills rows [a, z) of a stride, of which row 0 is row from of the table.
func (m *member) fillRows(st *gpu.Stride, from, a, z int, fill func(at int, keys, values []uint64)) {
	if m.width == 8 {
		keys, values := make([]uint64, z-a), make([]uint64, z-a)
		fill(from+a, keys, values)
		for i, list := range [][]uint64{keys, values} {
			for k, v := range list {
				gpu.Values[uint32](st.Cols[i].Data, st.Rows)[a+k] = uint32(v)
			}
		}
		return
	}
	values := gpu.Values[uint64](st.Cols[1].Data, st.Rows)[a:z]
	fill(from+a, gpu.Values[uint64](st.Cols[0].Data, st.Rows)[a:z], values)
	for i, c := range st.Cols[2:] {
		for k, v := range values {
			gpu.Values[uint64](c.Data, st.Rows)[a+k] = v + uint64(i) + 1
		}
	}
}

// chunks returns the numbers of chunks of the probe side that are measured: chunks have at least 16 MiB, but if there
// are 4.
func (s *distributed) chunks() []int {
	return slices.DeleteFunc([]int{1, 2, 3, 4, mostChunks, 64, 256}, func(c int) bool {
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
	return mean + 16*int(math.Sqrt(float64(mean))) + gpu.TupleLine
}

// first and second are the digits of the two passes.
func (s *distributed) first() gpu.Digit {
	return gpu.Digit{Shift: 64 - s.bits, Bits: s.bits, Factor: spreadFactor}
}

func (s *distributed) second() gpu.Digit {
	return s.secondOf(s.sizes[buildSide] * len(s.members) / spreadTable)
}

// secondOf is the digit of a second pass after which there are about so many partitions.
func (s *distributed) secondOf(partitions int) gpu.Digit {
	bits := uint(2)
	for bits < mostSecondBits && partitions > 1<<(s.bits+bits) {
		bits++
	}
	return gpu.Digit{Shift: 64 - s.bits - bits, Bits: bits, Factor: spreadFactor}
}

// reserve allocates memory for exchanges, and for what the second pass of joins makes of them.
func (s *distributed) reserve(exchanges []layout) error {
	for _, m := range s.members {
		for side := range m.cols {
			sent, received, resulting := 0, 0, 0
			for _, x := range exchanges {
				if x.side != side {
					continue
				}
				if !x.direct || x.cpu > 0 {
					sent = max(sent, x.slots*x.ways*x.room)
				}
				received = max(received, x.slots*x.arriving())
				if x.ways == 1<<s.bits { // of a join
					resulting = max(resulting, x.slots*x.resulting(gpu.Digit{Bits: mostSecondBits}))
				}
			}
			for _, c := range []struct {
				to   *gpu.Column
				rows int
			}{{&m.sent[side], sent}, {&m.received[side], received}, {&m.parted[side], resulting}} {
				n := m.tupleColumn(c.rows)
				buf, err := m.l.Alloc(int64(n) * 16)
				if err != nil {
					return err
				}
				*c.to = gpu.Column{Type: gpu.TupleType(8), Len: n, Data: buf}
			}
		}
		if err := m.reservePairs(); err != nil {
			return err
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
	_, _, _, err := m.x.SumTuples(m.l, nil, nil, 1, m.first())
	return err
}

// view returns rows of a column until the end of a run.
func (m *member) view(c gpu.Column, from, to int) gpu.Column {
	w := int64(c.Type.Width())
	b := c.Data.View(int64(from)*w, int64(to-from)*w)
	m.views = append(m.views, b)
	return gpu.Column{Type: c.Type, Len: to - from, Data: b}
}

// viewTuples is view of tuples [from, to).
func (m *member) viewTuples(c gpu.Column, from, to int) gpu.Column {
	return m.view(c, from*m.bytes()/16, m.tupleColumn(to))
}

// endRun releases what a run has used.
func (s *distributed) endRun() {
	for _, m := range s.members {
		for _, v := range m.views {
			v.Release()
		}
		gpu.ReleaseColumns(slices.Concat(m.counts, m.columns))
		for _, a := range m.arrivals {
			a.Release()
		}
		m.views, m.counts, m.columns, m.arrivals = nil, nil, nil, nil
	}
}
