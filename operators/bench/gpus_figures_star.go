package bench

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// starPoint is a star query on all cores of the CPU, and on devices.
type starPoint struct {
	starQuery
	// equalCost says that the CPUs are those of as many machines without GPUs as cost as much as the machine with the
	// devices. Each has a share of the fact table, and all end at the same time.
	equalCost bool
}

// share returns the share of the fact table of a CPU. cost is the price of a GPU, in machines without GPUs.
func (p starPoint) share(devices int, cost float64) float64 {
	if !p.equalCost {
		return 1
	}
	return 1 / (1 + float64(devices)*cmp.Or(cost, paperCost))
}

// paperCost is the price of a GPU in the paper: that of the machine.
const paperCost = 1

// starLines are millions of lines of a device: four nodes had scale factor 1000.
const starLines = 1500

// starFigures returns figures 13 to 15.
func starFigures() []figure {
	out := []figure{
		{number: 13, paper: "GPJ 5 × CRJ without filters; filters hardly matter to GPJ"},
		{number: 14, paper: "GPJ up to 6.8 × CRJ; the number of joins does not matter to GPJ"},
		{number: 15, paper: "GPJ up to 4 × CRJ for 3.1 without filters, competitive with them"}}
	for _, q := range starQueries() {
		at := 1
		if q.ofBrands {
			at = 0
		}
		for _, figure := range []int{at, 2} {
			p := starPoint{starQuery: q, equalCost: figure == 2}
			out[figure].points = append(out[figure].points, figurePoint{varied: q.name, probe: starLines, star: &p,
				algorithms: []string{crj + "-SSB", gpj + "-SSB"}})
		}
	}
	return out
}

// starTables are the tables of a figure, by the rows of the fact table that they have.
type starTables map[int]*star

func (t *starTables) release() {
	for _, s := range *t {
		s.release()
	}
}

// of returns the first rows of a fact table.
func (t *starTables) of(b *bench, rows, whole int) (*star, error) {
	if *t == nil {
		*t = starTables{}
	}
	if s := (*t)[rows]; s != nil {
		return s, nil
	}
	s, err := b.newStar(rows, whole)
	if err == nil {
		(*t)[rows] = s
	}
	return s, err
}

// starPoint returns the times of the CPU and of devices.
func (b *bench) starPoint(p figurePoint, rows int, tables *starTables, devices []gpu.Device) (took []time.Duration,
	err error) {
	cpu, err := host.Open(host.Options{}) // with memory of its own, which is not page-locked
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cpu.Close()) }()
	mine := max(1, int(float64(rows)*p.star.share(len(devices), b.opt.GPUCost)))
	for i, by := range []struct {
		rows    int
		devices []gpu.Device
	}{{mine, []gpu.Device{cpu}}, {rows, devices}} {
		s, err := tables.of(b, by.rows, rows)
		if err != nil {
			return nil, err
		}
		err = b.chainOver(by.devices, s, []starQuery{p.star.starQuery}, b.runs,
			func(r Result) { took = append(took, r.Time) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.algorithms[i], err)
		}
	}
	return took, nil
}
