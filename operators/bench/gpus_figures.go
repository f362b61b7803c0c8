package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gstream/gstream/gpu"
)

// Figure has the additional figures of a result of the benchmark figures.
type Figure struct {
	Number    int    `json:"number"` // of the paper
	Varied    string `json:"varied"`
	Algorithm string `json:"algorithm"`
	// Over is the time of the first algorithm with the same data, divided by that of this one. An algorithm that is
	// alone is compared with the first one of the data before.
	Over float64 `json:"over_first"`
	// Paper is what the paper says of its own machines.
	Paper string `json:"paper"`
}

// figure is a figure of Thostrup et al. (SIGMOD 2023), on four nodes with a GPU each unless said. Sizes are millions of
// tuples of a node there, and of a device here.
type figure struct {
	number int
	paper  string
	points []figurePoint
}

// figurePoint is data, and the algorithms that join it.
type figurePoint struct {
	varied       string
	build, probe float64
	algorithms   []string
	// devices are those of the point; 0 means all.
	devices int
	zipf    float64
	joins   int        // at a time; 0 means 1
	share   float64    // of the build side that fits devices, of GPJ-H
	width   int        // bytes of a tuple; 0 means 16
	star    *starPoint // a star query in place of a join
}

// The algorithms.
const (
	crj         = "CRJ"
	gpj         = "GPJ"
	gpjBlocking = "GPJ-B"
	gpjHybrid   = "GPJ-H"
	gpjOut      = "GPJ, pairs to host memory"
	gpjHeavy    = "GPJ, heavy keys joined where they are"
	gpjStatic   = "GPJ, resident"
)

// paperMemory is the memory of a GPU of the paper, in bytes.
const paperMemory = 16e9

// figures returns the figures, on up to n devices.
func figures(n int) []figure {
	point := func(varied string, build, probe float64, algorithms ...string) figurePoint {
		return figurePoint{varied: varied, build: build, probe: probe, algorithms: algorithms}
	}
	size := func(millions float64) string { return fmt.Sprintf("%gM", millions) }
	all := []figure{
		{number: 9, paper: "GPJ 2 × GPJ-B", points: []figurePoint{
			point("probe 300M", 150, 300, gpjBlocking, gpj), point("probe 1000M", 150, 1000, gpjBlocking, gpj)}},
		{number: 10, paper: "GPJ up to 1.7 × CRJ"},
		{number: 11, paper: "GPJ ahead at all widths; both a little faster if wider"},
		{number: 12, paper: "4.4 × from 2 to 10 nodes"},
		starFigures()[0], starFigures()[1], starFigures()[2],
		{number: 16, paper: "GPJ-H 2 s ahead of CRJ at 2000M, a quarter of the tuples on GPUs"},
		{number: 17, paper: "faster with any memory, most with all"},
		{number: 18, paper: "pairs cost little", points: []figurePoint{
			point("by result", 250, 1000, crj, gpj, gpjOut)}},
		{number: 19, paper: "4 joins: GPJ 4 s, CRJ almost 8 s"},
		{number: 20, paper: "adaptive near the rate of the network, static slower from 1.0 on"}}
	add := func(number int, p figurePoint) {
		at := slices.IndexFunc(all, func(f figure) bool { return f.number == number })
		all[at].points = append(all[at].points, p)
	}
	for _, probe := range []float64{500, 1000, 1500, 2000} {
		add(10, point("probe "+size(probe), 500, probe, crj, gpj))
		p := point("both "+size(probe), probe, probe, crj, gpjHybrid)
		p.share = min(1, paperMemory/tableRowBytes/probe/1e6)
		add(16, p)
	}
	for _, width := range gpu.TupleWidths { // of 4 and 16 GB
		p := point(fmt.Sprintf("%d bytes", width), 4000/float64(width), 16000/float64(width), crj, gpj)
		p.width = width
		add(11, p)
	}
	for d := 1; ; d = min(2*d, n) {
		p := point(fmt.Sprintf("%d devices", d), 300, 1200, crj, gpj)
		p.devices = d
		add(12, p)
		if d == n {
			break
		}
	}
	for i := range 5 {
		p := point(fmt.Sprintf("%d %% of the hash table", 25*i), 500, 500, gpjHybrid)
		if p.share = float64(i) / 4; i == 0 {
			p.algorithms = []string{crj}
		}
		add(17, p)
	}
	for joins := 1; joins <= 4; joins++ {
		p := point(strconv.Itoa(joins)+" joins", 50, 500, crj, gpj)
		p.joins = joins
		add(19, p)
	}
	for _, exponent := range []float64{0, 0.5, 1, 1.25, 1.5, 1.75} {
		p := point(fmt.Sprintf("Zipf %g", exponent), 400, 1600, gpjHeavy)
		if p.zipf = exponent; exponent < 1 { // a block joins a partition, which frequent keys make long
			p.algorithms = []string{gpjStatic, gpjHeavy}
		}
		add(20, p)
	}
	return all
}

// Figures returns the numbers of the figures of the benchmark figures.
func Figures() (names []string) {
	for _, f := range figures(1) {
		names = append(names, strconv.Itoa(f.number))
	}
	return names
}

// checkFigures returns an error for a figure that does not exist.
func checkFigures(cases []string) error {
	for _, c := range cases {
		if c != "all" && !slices.Contains(Figures(), c) {
			return fmt.Errorf("no figure %q: there are %v, or all", c, Figures())
		}
	}
	return nil
}

// figures measures joins with the sizes of the paper's figures, or a fraction of them.
func (b *bench) figures() error {
	devices := gpu.DevicesOf(b.dev)
	for _, f := range figures(len(devices)) {
		if !b.selected(strconv.Itoa(f.number)) {
			continue
		}
		if err := b.figure(f, devices); err != nil {
			return fmt.Errorf("figure %d: %w", f.number, err)
		}
	}
	return nil
}

// figure measures a figure.
func (b *bench) figure(f figure, devices []gpu.Device) error {
	scale := b.figureScale(f, devices)
	var stars starTables
	defer stars.release()
	var first time.Duration // of figures with one algorithm a point
	for _, p := range f.points {
		n := p.devices
		if n == 0 {
			n = len(devices)
		}
		rows := int64(n * max(p.joins, 1) * (scaled(p.build, scale) + scaled(p.probe, scale)))
		x := Figure{Number: f.number, Paper: f.paper,
			Varied: fmt.Sprintf("%s (%.3gM ⋈ %.3gM)", p.varied, p.build*scale, p.probe*scale)}
		var took []time.Duration
		var err error
		if p.star != nil {
			rows = int64(n * scaled(p.probe, scale))
			x.Varied = fmt.Sprintf("%s (SF %.3g)", p.varied, float64(rows)/starRows)
			took, err = b.starPoint(p, int(rows), &stars, devices[:n])
		} else {
			took, err = b.figurePoint(p, scale, devices[:n])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.varied, err)
		}
		if len(p.algorithms) > 1 || first == 0 {
			first = took[0]
		}
		for i, t := range took {
			x := x
			x.Algorithm, x.Over = p.algorithms[i], first.Seconds()/t.Seconds()
			name := fmt.Sprintf("figure %d, %s: %s", x.Number, x.Varied, x.Algorithm)
			b.each(Result{Benchmark: b.name, Case: name, Rows: rows, Bytes: p.bytes(rows), Time: t, Wall: t,
				Runs: b.runs, Spread: &Spread{Devices: n, Figure: &x}})
		}
	}
	return nil
}

// bytes returns the bytes of rows of both sides, or of a fact table.
func (p figurePoint) bytes(rows int64) int64 {
	if p.star != nil {
		return rows * int64(len(p.star.columns())) * 4
	}
	return rows * int64(cmp.Or(p.width, 16))
}

// scaled returns a number of rows.
func scaled(millions, scale float64) int { return max(1, int(millions*1e6*scale)) }

// figureRows are the rows of --rows that stand for the sizes of the paper: those of the probe side of figure 12.
const figureRows = 1.2e9

// figureScale returns by what the sizes of a figure are multiplied: the largest power of two up to 1 with which the
// rows fit host memory, and the build side and what is exchanged fit devices.
func (b *bench) figureScale(f figure, devices []gpu.Device) float64 {
	if b.opt.Rows > 0 {
		return float64(b.opt.Rows) / figureRows
	}
	scale := 1.0
	for _, p := range f.points {
		n, rows := float64(len(devices)), (p.build+p.probe)*1e6*float64(max(p.joins, 1))
		wide := float64(cmp.Or(p.width, 16)) / 16
		onHost, onDevice := n*rows*16*wide, wide*p.build*1e6*float64(max(p.joins, 1))*48
		if p.star != nil {
			onHost = n * rows * lineBytes * (1 + p.star.share(int(n), b.opt.GPUCost))
			onDevice = n * rows // dimension tables take less
		}
		if slices.Contains(p.algorithms, crj) || slices.Contains(p.algorithms, gpjHybrid) {
			onHost *= 2.5 // partitioned
		}
		if p.algorithms[0] == gpjBlocking {
			onDevice += p.probe * 1e6 * 40
		} else if slices.Contains(p.algorithms, gpjHeavy) {
			onDevice = float64(spreadBytes([2]int{int(p.build * 1e6), int(p.probe * 1e6)}))
		}
		fits := min(1, float64(b.dev.HostBudget().Limit())*0.8/onHost)
		for _, d := range devices {
			if d.Budget() != d.HostBudget() {
				fits = min(fits, float64(d.Budget().Limit())*0.8/onDevice)
			}
		}
		scale = min(scale, math.Exp2(math.Floor(math.Log2(fits))))
	}
	return scale
}

// figurePoint returns the times of the algorithms of a point.
func (b *bench) figurePoint(p figurePoint, scale float64, devices []gpu.Device) (took []time.Duration, err error) {
	var joins []*distributed
	defer func() {
		for _, s := range joins {
			err = errors.Join(err, s.close())
		}
	}()
	for range max(p.joins, 1) {
		s, err := b.spread(devices, [2]int{scaled(p.build, scale), scaled(p.probe, scale)})
		joins = append(joins, s)
		if err != nil {
			return nil, err
		}
		s.width = p.width
		s.hostOnly = !slices.Contains(p.algorithms, gpjHeavy)
		pick := s.uniform
		if p.zipf > 0 {
			pick = s.zipf(p.zipf)
		}
		if err := errors.Join(s.draw(buildSide, s.uniform), s.draw(probeSide, pick)); err != nil {
			return nil, err
		}
		var layouts []layout
		for _, algorithm := range p.algorithms {
			run, sides := s.figureRun(algorithm, p.share)
			layouts = append(layouts, sides...)
			s.addCase(spreadCase{name: algorithm, run: run})
		}
		if err := s.reserve(layouts); err != nil {
			return nil, err
		}
	}
	took = make([]time.Duration, len(p.algorithms))
	for i, algorithm := range p.algorithms {
		var times []time.Duration
		for run := range b.runs + 1 {
			if err := b.ctx.Err(); err != nil {
				return nil, err
			}
			one, err := together(joins, i, run == 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", algorithm, err)
			}
			if run > 0 {
				times = append(times, one)
			}
		}
		took[i] = median(times)
	}
	return took, nil
}

// together runs a case of several joins at a time, and returns the time until the last one ends.
func together(joins []*distributed, at int, warmup bool) (time.Duration, error) {
	if len(joins) == 1 {
		joins[0].warmup = warmup
		return joins[0].cases[at].run()
	}
	begin, errs := time.Now(), make(chan error)
	for _, s := range joins {
		s.warmup = warmup
		go func() {
			_, err := s.cases[at].run()
			errs <- err
		}()
	}
	var err error
	for range joins {
		err = errors.Join(err, <-errs)
	}
	return time.Since(begin), err
}

// figureRun returns what runs an algorithm, and the layouts of the devices for it.
func (s *distributed) figureRun(algorithm string, share float64) (run func() (time.Duration, error), sides []layout) {
	both := [2]bool{true, true}
	f := spreadStream{sides: s.hybridSides(1), fromHost: both}
	switch algorithm {
	case crj:
		return s.cpuRadix, nil
	case gpjHybrid:
		f.sides = s.hybridSides(share)
		return func() (time.Duration, error) { return s.hybrid(f.sides) }, f.sides[:]
	case gpjHeavy, gpjStatic:
		sides := s.fourChunks()
		j := spreadJoin{sides: [2]layout(sides), blocking: len(s.members) == 1, heavy: algorithm == gpjHeavy}
		return func() (time.Duration, error) { return s.join(j) }, sides
	case gpjBlocking:
		f.blocking = true
		f.sides[probeSide].slots = f.sides[probeSide].chunks
	case gpjOut:
		f.toHost = true
	}
	return func() (time.Duration, error) { return s.stream(f) }, f.sides[:]
}
