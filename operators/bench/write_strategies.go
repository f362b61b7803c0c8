package bench

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// writeCase is a write strategy for partitioning rows of 16 bytes out of core.
type writeCase struct {
	strategy string // a name of gpu.WriteStrategies, or one of those below
	bits     uint
	from     string  // where the rows are: "host memory" or "device memory"
	share    float64 // of the target's pages in device memory; 0 means only page-locked memory
	prefix   bool    // the CPU counts
}

// The write strategies besides those of gpu.WriteStrategies.
const (
	// wayDevice partitions strides in device memory, and copies them down.
	writeByDevice = "device"
	// wayCPU partitions by the CPU, in host memory.
	writeByCPU = "CPU"
)

const (
	inHost   = "host memory"
	onDevice = "device memory"
)

func wayCases() (out []writeCase) {
	var all []string
	for _, w := range gpu.WriteStrategies {
		all = append(all, w.String())
	}
	for _, way := range append(slices.Clone(all), writeByDevice, writeByCPU) {
		for bits := uint(1); bits <= gpu.MaxTupleBits; bits++ {
			out = append(out, writeCase{strategy: way, bits: bits, from: inHost})
		}
	}
	for _, way := range all {
		for bits := uint(1); bits <= gpu.MaxTupleBits; bits++ {
			out = append(out, writeCase{strategy: way, bits: bits, from: onDevice})
		}
	}
	for _, share := range []float64{0.25, 0.5, 0.75} {
		for _, way := range all {
			for bits := uint(1); bits <= gpu.MaxTupleBits; bits++ {
				out = append(out, writeCase{strategy: way, bits: bits, from: inHost, share: share})
			}
		}
	}
	for _, bits := range []uint{6, 11} {
		out = append(out, writeCase{strategy: all[0], bits: bits, from: inHost, prefix: true})
	}
	return out
}

func (w writeCase) name() string {
	to := inHost
	if w.share > 0 {
		to = fmt.Sprintf("an array %.0f %% in device memory", 100*w.share)
	}
	end := ""
	if w.prefix {
		end = " with the prefix sum on the CPU"
	}
	return fmt.Sprintf("%s %d-way from %s into %s%s", w.strategy, 1<<w.bits, w.from, to, end)
}

// writes measures the first pass of a join out of core: rows of a key and a payload of 8 bytes, in
// random order, are partitioned by a hash of their keys (Lutz et al., SIGMOD 2022, §6.2.6). The
// strategies of gpu.WriteStrategies partition all rows at once. The strategy "device" copies up,
// partitions and copies down one stride at a time. The CPU partitions all rows at once, without the
// link.
//
// The bound is the link: 16 bytes per row up if the rows are in host memory; as many bytes down as
// the target has in host memory; and 8 bytes per row up for a prefix sum on the GPU over rows in
// host memory.
type writes struct {
	*bench
	link gpu.Link
	rows int
	cpu  *host.Device
	src  map[string][]gpu.Column // by where they are
	to   gpu.Column              // in host memory
	both gpu.Column              // in an array of pages of both kinds
	of   float64                 // the share of both in device memory
	sums [2]uint64               // of keys and payloads
}

func (w *writes) release() {
	for _, cols := range w.src {
		gpu.ReleaseColumns(cols)
	}
	w.to.Release()
	w.both.Release()
	w.src, w.to, w.both = nil, gpu.Column{}, gpu.Column{}
	if w.cpu != nil {
		_ = w.cpu.Close()
	}
}

// draw generates the rows in page-locked memory, and allocates space for as many tuples.
func (w *writes) draw() (err error) {
	w.rows = 1 << 26
	if w.opt.Rows > 0 {
		w.rows = w.opt.Rows
	}
	if w.cpu, err = host.Open(host.Options{}); err != nil {
		return err
	}
	w.src = map[string][]gpu.Column{}
	values := func(value func(i int) uint64) (gpu.Column, error) {
		buf, err := w.h.Alloc(int64(w.rows) * 8)
		if err != nil {
			return gpu.Column{}, err
		}
		v := gpu.Values[uint64](buf, w.rows)
		parallel(w.rows, func(a, z int) {
			for i := a; i < z; i++ {
				v[i] = value(i)
			}
		})
		return gpu.Column{Type: gpu.Of(gpu.Uint64), Len: w.rows, Data: buf}, nil
	}
	for _, value := range []func(i int) uint64{
		func(i int) uint64 { // bits of the number without an order
			x := uint64(i) * 0x9e3779b97f4a7c15
			x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
			return x ^ x>>27
		},
		func(i int) uint64 { return uint64(i) },
	} {
		c, err := values(value)
		if err != nil {
			return err
		}
		w.src[inHost] = append(w.src[inHost], c)
	}
	for i, c := range w.src[inHost] {
		w.sums[i] = sum(gpu.Values[uint64](c.Data, w.rows), 0, 1)
	}
	buf, err := w.h.Alloc(int64(w.rows) * 16)
	w.to = gpu.Column{Type: gpu.TupleType(8), Len: w.rows, Data: buf}
	return err
}

// sum returns the sum of every step-th value, beginning with position at, which is below step.
func sum(v []uint64, at, step int) uint64 {
	var total atomic.Uint64
	parallel(len(v)/step, func(a, z int) {
		part := uint64(0)
		for i := a; i < z; i++ {
			part += v[i*step+at]
		}
		total.Add(part)
	})
	return total.Load()
}

// columns returns the rows of a case, in the memory that it reads.
func (w *writes) columns(c writeCase) ([]gpu.Column, error) {
	if w.src[c.from] == nil {
		s := &gpu.Stride{Schema: row, Rows: w.rows}
		for _, c := range w.src[inHost] {
			s.Cols = append(s.Cols, c.Retain())
		}
		up, err := w.q.Upload(w.l, s)
		if err != nil {
			s.Release()
			return nil, err
		}
		w.src[c.from] = up.Cols
	}
	return w.src[c.from], nil
}

// run measures a case. The first run, which is not timed, is checked.
func (w *writes) run(of spillCase) error {
	c := *of.write
	if w.rows == 0 {
		if err := w.draw(); err != nil {
			return err
		}
	}
	src, err := w.columns(c)
	if err != nil {
		return err
	}
	digit := gpu.Digit{Shift: 64 - c.bits, Bits: c.bits, Factor: 0x9e3779b97f4a7c15}
	if c.strategy == writeByDevice {
		return w.strides(c, digit)
	}
	to := w.to
	if c.share > 0 {
		if w.of != c.share {
			w.both.Release()
			w.both, w.of = gpu.Column{}, c.share
			dev, ok := w.dev.(gpu.Interleaver)
			if !ok {
				return fmt.Errorf("%s makes no arrays over device memory and host memory", w.dev.Properties().Name)
			}
			begin := time.Now()
			buf, err := dev.Interleave(w.l, w.h, int64(w.rows)*16, c.share)
			if err != nil {
				return err
			}
			took := time.Since(begin)
			w.report(fmt.Sprintf("make an array %.0f %% in device memory", 100*c.share),
				Spill{Spilled: 1 - c.share, Phases: []SpillPhase{newSpillPhase(w.link, "make", took, 0, w.onHost(c))}},
				took)
			w.both = gpu.Column{Type: w.to.Type, Len: w.rows, Data: buf}
		}
		to = w.both
	}
	q, l, how := w.q, w.l, gpu.TuplePass{HostPrefix: c.prefix}
	if c.strategy == writeByCPU {
		if q, err = w.cpu.NewQueue("bench spill"); err != nil {
			return err
		}
		defer q.Close()
		l = w.cpu.Budget().Lease("bench spill")
		defer l.Close()
	}
	named := func(s gpu.WriteStrategy) bool { return s.String() == c.strategy }
	if i := slices.IndexFunc(gpu.WriteStrategies, named); i >= 0 {
		how.Strategy = gpu.WriteStrategies[i]
	}
	var prefixes, writes, totals []time.Duration
	x, err := gpu.ExperimentalOf(q)
	if err != nil {
		return err
	}
	for i := range w.runs + 1 {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		prefix, _ := w.spent("partition tuples, prefix")
		write, _ := w.spent("partition tuples, write")
		begin := time.Now()
		offsets, err := x.PartitionTuples(l, to, src[0], src[1], digit, how)
		total := time.Since(begin)
		if err != nil {
			return err
		}
		if i == 0 {
			if err := w.check(to, offsets, digit); err != nil {
				return err
			}
			continue
		}
		p, _ := w.spent("partition tuples, prefix")
		z, _ := w.spent("partition tuples, write")
		prefixes, writes, totals = append(prefixes, p-prefix), append(writes, z-write), append(totals, total)
	}
	n := int64(w.rows)
	up, down, count := int64(0), w.onHost(c), int64(0)
	if c.from == inHost {
		up, count = 16*n, 8*n
	}
	if c.strategy == writeByCPU { // the bytes that the GPU would have to move
		writes = totals
	}
	if c.strategy == writeByCPU || c.prefix {
		count = 0
	}
	r := Spill{Spilled: 1 - c.share, Phases: []SpillPhase{newSpillPhase(w.link, "write", median(writes), up, down)}}
	if c.strategy != writeByCPU {
		p := newSpillPhase(w.link, "prefix", median(prefixes), count, 0)
		if c.prefix { // the GPU waits for the CPU
			p.Time = median(totals) - r.Phases[0].Time
		}
		r.Phases = append([]SpillPhase{p}, r.Phases...)
	}
	w.report(c.name(), r, median(totals))
	return nil
}

// onHost returns the bytes of tuples that are in host memory.
func (w *writes) onHost(c writeCase) int64 {
	n := int64(w.rows) * 16
	return n - int64(c.share*float64(n))
}

func (w *writes) report(name string, r Spill, wall time.Duration) {
	out := Result{Benchmark: w.name, Case: name, Rows: int64(w.rows), Wall: wall, Runs: w.runs, Bound: "link",
		Spill: &r}
	var bound time.Duration
	for _, p := range r.Phases {
		out.Time += p.Time
		out.Bytes += p.Up + p.Down
		bound += p.Bound
	}
	out.BoundRate = float64(out.Bytes) / bound.Seconds()
	w.each(out)
}

// check returns an error unless the tuples are in their partitions, and the sums of their keys and
// payloads are those of the input.
func (w *writes) check(to gpu.Column, offsets []int, d gpu.Digit) error {
	var tuples []uint64
	if to.Data.Bytes() != nil {
		tuples = gpu.Values[uint64](to.Data, 2*w.rows)
	} else {
		s, err := w.q.Download(w.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "tuple", Type: to.Type}),
			Cols: []gpu.Column{to.Retain()}, Rows: to.Len})
		if err != nil {
			to.Release()
			return err
		}
		defer s.Release()
		tuples = gpu.Values[uint64](s.Cols[0].Data, 2*w.rows)
	}
	var wrong atomic.Int64
	parallel(w.rows, func(a, z int) {
		p, found := slices.BinarySearch(offsets, a)
		if !found {
			p--
		}
		for i := a; i < z; i++ {
			for i >= offsets[p+1] {
				p++
			}
			if tuples[2*i]*d.Factor>>d.Shift != uint64(p) {
				wrong.Add(1)
			}
		}
	})
	if n := wrong.Load(); n > 0 {
		return fmt.Errorf("%w: %d tuples of %d in a wrong partition", ErrWrong, n, w.rows)
	}
	if got := [2]uint64{sum(tuples, 0, 2), sum(tuples, 1, 2)}; got != w.sums {
		return fmt.Errorf("%w: the sums of keys and payloads are %d, want %d", ErrWrong, got, w.sums)
	}
	return nil
}

// strides measures wayDevice.
func (w *writes) strides(c writeCase, d gpu.Digit) error {
	s := &spilling{bench: w.bench, link: w.link}
	step := w.dev.StrideRows(16)
	src := w.src[inHost]
	var strides []*gpu.Stride
	defer func() {
		for _, st := range strides {
			st.Release()
		}
	}()
	for from := 0; from < w.rows; from += step {
		n := min(step, w.rows-from)
		st := &gpu.Stride{Schema: row, Rows: n}
		for _, c := range src {
			st.Cols = append(st.Cols, gpu.Column{Type: c.Type, Len: n, Data: c.Data.View(int64(from)*8, int64(n)*8)})
		}
		strides = append(strides, st)
	}
	var times []time.Duration
	for i := range w.runs + 1 {
		begin := time.Now()
		out := s.output(nil)
		err := s.ahead(w.l, strides, func(st *gpu.Stride) error {
			defer st.Release()
			cols, offsets, err := w.q.Partition(w.l, st.Cols, st.Cols[0], d)
			offsets.Release()
			if err != nil {
				return err
			}
			return out.put(w.ctx, &gpu.Stride{Schema: row, Cols: cols, Rows: st.Rows})
		})
		if err := errors.Join(err, out.end()); err != nil {
			return err
		}
		if i > 0 {
			times = append(times, time.Since(begin))
		}
	}
	n := int64(w.rows)
	w.report(c.name(),
		Spill{Spilled: 1, Phases: []SpillPhase{newSpillPhase(w.link, "write", median(times), 16*n, 16*n)}},
		median(times))
	return nil
}
