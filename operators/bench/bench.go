// Package bench measures the primitives of a device, and the operators made of them, with the
// workloads of the papers: rows per second, bytes per second, and the fraction of the bound that
// the machine sets. It measures the bound in the same run. It generates new data for each
// benchmark, and knows nothing about how a device works.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
)

// ErrNoLink means that a device has no link to measure.
var ErrNoLink = errors.New("the CPU has no link to measure")

// ErrNoSpill means that the rows of the benchmark disk fit memory.
var ErrNoSpill = errors.New("no rows went to disk: give it less memory with --host-memory, or more --rows")

// Result is one line of a benchmark's report.
type Result struct {
	Benchmark string        `json:"benchmark"`
	Case      string        `json:"case"` // the parameter that was varied
	Rows      int64         `json:"rows"`
	Bytes     int64         `json:"bytes"`     // that must be moved at least
	Time      time.Duration `json:"median_ns"` // by the device's clock, if it has one
	// Wall is the median wall-clock time. It includes launches, waits and allocations.
	Wall time.Duration `json:"wall_ns"`
	Runs int           `json:"runs"`
	// Bound names the resource that limits the benchmark. BoundRate is its bytes per second,
	// measured in the same run.
	Bound     string  `json:"bound"`
	BoundRate float64 `json:"bound_bytes_per_second"`
	Join      *Join   `json:"join,omitempty"`   // of the benchmark join
	Group     *Group  `json:"group,omitempty"`  // of the benchmark groupby
	Spill     *Spill  `json:"spill,omitempty"`  // of the benchmark spill
	Spread    *Spread `json:"spread,omitempty"` // of the benchmark gpus
	Chain     *Chain  `json:"chain,omitempty"`  // of the benchmark chain
}

// Point returns the result as a point of a chart, or nil if it is drawn as a bar.
func (r Result) Point() *Point {
	switch {
	case r.Join != nil:
		return &r.Join.Point
	case r.Group != nil:
		return &r.Group.Point
	}
	return nil
}

// RowsPerSecond returns the rows per second, 0 for a result without a time.
func (r Result) RowsPerSecond() float64 { return r.per(r.Rows) }

// Rate returns the bytes per second.
func (r Result) Rate() float64 { return r.per(r.Bytes) }

func (r Result) per(n int64) float64 {
	if r.Time == 0 {
		return 0
	}
	return float64(n) / r.Time.Seconds()
}

// Fraction returns the rate as a fraction of the bound's rate.
func (r Result) Fraction() float64 {
	if r.BoundRate == 0 {
		return 0
	}
	return r.Rate() / r.BoundRate
}

// Options configure a benchmark.
type Options struct {
	// Rows is the size of the input; 0 means the default of the benchmark. In the benchmark join it
	// replaces 2^27 rows, and all other sizes change in proportion.
	Rows int
	// Runs is the number of timed runs of each case; the median counts. 0 means 7.
	Runs int
	// Cases selects cases of the benchmarks join, groupby and spill: families, or parts of the
	// names of cases. Empty means the family acceptance, in spill the family join. In gpus they
	// are SpreadFamilies, and empty means all. Algorithms
	// selects algorithms: names of the operator's package, "chosen" for the operator's own choice,
	// or "all". Empty means "chosen".
	Cases, Algorithms []string
	// StrideRows bounds the rows of the strides that these operators receive and emit. 0 means that
	// a table is one stride, and that strides of the result have 2^28 rows. In the benchmark chain it is the rows of a
	// stride of the fact table; 0 means 2^22 on a GPU.
	StrideRows int
	// BuildRows are the build rows of a device in the benchmark gpus; 0 means a quarter of Rows.
	BuildRows int
	// TableMemory is the bytes of each device for the build side of hybrid joins in the benchmark gpus, 32 for a row.
	// What does not fit is joined by the CPU. 0 means several shares of the build side.
	TableMemory int64
	// GPUCost is the price of a GPU, in machines without GPUs, for the figure that compares machines of equal cost; 0
	// means 1, as in the paper.
	GPUCost float64
}

// able has the properties of a device that supports every algorithm.
var able = gpu.Properties{Capabilities: gpu.Capabilities{BlockTables: true, PairOutputs: true}}

// Check reports cases and algorithms that a benchmark does not have, and sizes that are not
// possible.
func (o Options) Check(benchmark string) error {
	if o.Rows < 0 || o.Rows > gpu.MaxRows || o.Runs < 0 || o.StrideRows < 0 || o.StrideRows > gpu.MaxRows ||
		o.BuildRows < 0 || o.BuildRows > gpu.MaxRows || !(o.GPUCost >= 0) {
		return fmt.Errorf("%d rows, %d build rows, %d runs, strides of %d rows, GPUs that cost %g machines: rows are "+
			"between 0 and %d, and a cost is not negative", o.Rows, o.BuildRows, o.Runs, o.StrideRows, o.GPUCost,
			gpu.MaxRows)
	}
	var err error
	switch benchmark {
	case "join":
		if _, err = joinAlgorithms.chosen(o.Algorithms, able); err == nil {
			_, err = chosenWorkloads(o.Cases, cmp.Or(o.Rows, full))
		}
	case "groupby":
		if _, err = groupAlgorithms.chosen(o.Algorithms, able); err == nil {
			_, err = chosenGroupings(o.Cases, cmp.Or(o.Rows, fullGroups))
		}
	case "spill":
		_, err = chosenSpills(o.Cases)
	case "gpus":
		err = checkSpreads(o.Cases)
	case "figures":
		err = checkFigures(o.Cases)
	}
	return err
}

// benchmarks are the benchmarks by name. The functions describe them.
var benchmarks = []struct {
	name, what string
	rows       int
	run        func(*bench) error
}{
	{"transfer", "copies over the link, by size", 1 << 28, (*bench).transfer},
	{"stream", "filter and sum over columns in page-locked memory", 1 << 29, (*bench).stream},
	{"partition", "stable radix partition, all columns out", 1 << 27, (*bench).partition},
	{"sort", "radix sort of keys with row ids", 1 << 28, (*bench).sort},
	{"select", "ids of the rows where a predicate is true", 1 << 28, (*bench).selectRows},
	{"gather", "rows by id", 1 << 28, (*bench).gather},
	{"join", "the join operator, by workloads and algorithms", full, (*bench).join},
	{"groupby", "the group-by operator, by workloads and algorithms", fullGroups, (*bench).groupBy},
	{"spill", "joins, group-bys and sorts out of core, by size of their state", 0, (*bench).spill},
	{"disk", "rows that spill to files, and come back", 1 << 28, (*bench).disk},
	{"window", "window functions and a median, by frame", 1 << 26, (*bench).window},
	{"figures", "joins of the sizes of a paper, on several GPUs and on the CPU", 0, (*bench).figures},
	{"gpus", "exchange and join of tuples that are spread over several GPUs", spreadRows, (*bench).gpus},
	{"chain", "star queries in one pass over a fact table in host memory", 20 * starRows, (*bench).chain},
}

// Names returns the names of the benchmarks, and a line about each.
func Names() (names, what []string) {
	for _, b := range benchmarks {
		names, what = append(names, b.name), append(what, b.what)
	}
	return names, what
}

// Run runs a benchmark on a device. It calls each with every result, as soon as it is available.
func Run(ctx context.Context, d gpu.Device, name string, opt Options, each func(Result)) error {
	for _, def := range benchmarks {
		if def.name != name {
			continue
		}
		b := &bench{ctx: ctx, dev: d, name: name, opt: opt, rows: opt.Rows, runs: opt.Runs, each: each}
		if b.rows == 0 {
			b.rows = def.rows
		}
		if b.runs == 0 {
			b.runs = 7
		}
		if err := b.open(); err != nil {
			return err
		}
		err := def.run(b)
		if cerr := b.close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("bench %s: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("no benchmark is named %q", name)
}

// bench is one run of a benchmark.
type bench struct {
	ctx  context.Context
	dev  gpu.Device
	q    gpu.Queue
	l, h *gpu.Lease // of device memory and of host memory
	name string
	opt  Options
	rows int
	runs int
	each func(Result)
	copy float64 // bytes per second of a copy within the device
}

func (b *bench) open() (err error) {
	if b.q, err = b.dev.NewQueue("bench " + b.name); err != nil {
		return err
	}
	b.l, b.h = b.dev.Budget().Lease("bench "+b.name), b.dev.HostBudget().Lease("bench "+b.name+", host")
	return nil
}

func (b *bench) close() error {
	err := b.q.Close()
	for _, l := range []*gpu.Lease{b.l, b.h} {
		if cerr := l.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// time runs f once to warm up and then several times, and reports the median: the device's own time
// if the device measures it, otherwise wall-clock time.
func (b *bench) time(name string, rows int, bytes int64, bound string, rate float64, f func() error) error {
	took, wall, err := b.measure(f)
	if err == nil {
		b.each(Result{Benchmark: b.name, Case: name, Rows: int64(rows), Bytes: bytes, Time: took, Wall: wall,
			Runs: b.runs, Bound: bound, BoundRate: rate})
	}
	return err
}

// measure is time without the report.
func (b *bench) measure(f func() error) (took, wall time.Duration, err error) {
	var times, walls []time.Duration
	for i := range b.runs + 1 {
		if err := b.ctx.Err(); err != nil {
			return 0, 0, err
		}
		took, wall, err := b.once(f)
		if err != nil {
			return 0, 0, err
		}
		if i > 0 {
			times, walls = append(times, took), append(walls, wall)
		}
	}
	return median(times), median(walls), nil
}

// once times one run, by the device's clock and by the wall clock.
func (b *bench) once(f func() error) (took, wall time.Duration, err error) {
	p, ok := b.dev.(gpu.Profiled)
	if ok {
		p.Settle()
	}
	before, begin := b.l.Activity().Busy, time.Now()
	if err = f(); !ok {
		wall = time.Since(begin)
		return wall, wall, err
	}
	p.Settle() // wait until the kernels have ended
	wall = time.Since(begin)
	return b.l.Activity().Busy - before, wall, err
}

// spent returns the total device time so far of the phases of primitives with a name, and their
// number. Both are 0 if the device does not measure them.
func (b *bench) spent(name string) (total time.Duration, count int) {
	p, ok := b.dev.(gpu.Profiled)
	if !ok {
		return 0, 0
	}
	for _, s := range p.Spans(b.l) {
		if s.Name == name {
			total, count = total+s.End-s.Start, count+1
		}
	}
	return total, count
}

// copyRate measures the bound for work that moves memory: a copy within the device, in bytes read
// and written per second.
func (b *bench) copyRate() (float64, error) {
	if b.copy > 0 {
		return b.copy, nil
	}
	n := 1 << 28
	if int64(n)*8 > b.dev.Budget().Limit()/2 {
		n = int(b.dev.Budget().Limit() / 32)
	}
	src, err := b.column(n, uniform(0))
	if err != nil {
		return 0, err
	}
	defer src.Release()
	times := make([]time.Duration, 0, b.runs)
	for range b.runs {
		took, _, err := b.once(func() error {
			out, err := b.q.Slice(b.l, src, 0, n-1)
			out.Release()
			return err
		})
		if err != nil {
			return 0, err
		}
		times = append(times, took)
	}
	b.copy = float64(n-1) * 8 / median(times).Seconds()
	return b.copy, nil
}

// column makes a column of n 32-bit integers on the device. fill fills one part of it.
func (b *bench) column(n int, fill func([]uint32, *rand.Rand)) (gpu.Column, error) {
	c, err := b.hostColumn(n, fill)
	if err != nil {
		return gpu.Column{}, err
	}
	return b.up(c)
}

// up copies a column to the device and releases the one on the host.
func (b *bench) up(c gpu.Column) (gpu.Column, error) {
	s, err := b.q.Upload(b.l, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}),
		Cols: []gpu.Column{c}, Rows: c.Len})
	if err != nil {
		c.Release()
		return gpu.Column{}, err
	}
	return s.Cols[0], nil
}

// hostColumn makes a column of n 32-bit integers in page-locked memory, on all cores.
func (b *bench) hostColumn(n int, fill func([]uint32, *rand.Rand)) (gpu.Column, error) {
	buf, err := b.h.Alloc(int64(n) * 4)
	if err != nil {
		return gpu.Column{}, err
	}
	values := gpu.Values[uint32](buf, n)
	parallel(n, func(from, to int) { fill(values[from:to], rand.New(rand.NewPCG(rand.Uint64(), uint64(from)))) })
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: buf}, nil
}

// parallel calls f for parts of [0, n) on all cores.
func parallel(n int, f func(from, to int)) {
	const part = 1 << 18
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for from := range next {
				f(from, min(from+part, n))
			}
		})
	}
	for from := 0; from < n; from += part {
		next <- from
	}
	close(next)
	wg.Wait()
}

// uniform returns a function that fills a column with values below bound, or any values if bound is
// 0.
func uniform(bound uint32) func([]uint32, *rand.Rand) {
	return func(v []uint32, rnd *rand.Rand) {
		for i := range v {
			if bound == 0 {
				v[i] = rnd.Uint32()
			} else {
				v[i] = rnd.Uint32N(bound)
			}
		}
	}
}

// columns makes several columns of arbitrary values.
func (b *bench) columns(n, count int) ([]gpu.Column, error) {
	var cols []gpu.Column
	for range count {
		c, err := b.column(n, uniform(0))
		if err != nil {
			gpu.ReleaseColumns(cols)
			return nil, err
		}
		cols = append(cols, c)
	}
	return cols, nil
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
