package bench

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// tableRowBytes is the device memory of a build row in the hash table of GPJ. Partitioned rows take about as much.
const tableRowBytes = 32

// cpuPart is the most chunks of the probe side that the CPU joins at a time.
const cpuPart = 256

// cpuTable is the desired number of build rows of a partition of the CPU.
const cpuTable = 1 << 11

// addHybrids adds GPJ-H: the bins whose build rows fit the memory of the devices are joined there, and the others on
// all cores of the CPU. Both sides are in host memory; devices partition them, and copy the tuples of the CPU back.
// Without memory of devices it is CRJ, the radix join of the CPU alone.
func (s *distributed) addHybrids() (layouts []layout) {
	shares := []float64{0, 0.25, 0.5, 0.75, 1}
	if m := s.opt.TableMemory; m > 0 {
		shares = []float64{0, min(1, float64(m)/tableRowBytes/float64(s.sizes[buildSide]))}
	}
	for _, share := range shares {
		name := fmt.Sprintf("GPJ-H, %.0f %% of the build side on devices", 100*share)
		run := s.cpuRadix
		if share == 0 {
			name = "CRJ, all cores of the CPU"
		} else {
			sides := s.hybridSides(share)
			layouts = append(layouts, sides[:]...)
			run = func() (time.Duration, error) { return s.hybrid(sides) }
		}
		all := int64(s.sizes[buildSide]+s.sizes[probeSide]) * int64(len(s.members))
		s.addCase(spreadCase{name: name, form: name, rows: all, bytes: all * 16, run: run})
	}
	return layouts
}

// hybridSides returns the layouts of a join of which a share is done by devices.
func (s *distributed) hybridSides(share float64) (sides [2]layout) {
	for side := range sides {
		sides[side] = s.hostLayout(side)
		sides[side].cpu = sides[side].ways - int(share*float64(sides[side].ways))
	}
	return sides
}

// cpuJoin is the join of the bins of the CPU: they are partitioned again as they arrive, and joined at last.
type cpuJoin struct {
	*cpuCores
	s  *distributed
	mu sync.Mutex
	// parts are partitioned chunks, by side.
	parts [2][]gpu.PartitionedRuns
}

// cpuCores are all cores of the CPU. Their memory stays from run to run, as that of devices does.
type cpuCores struct {
	device gpu.Device
	q      gpu.Queue
	x      gpu.Exchanging
	l      *gpu.Lease
	free   []gpu.Column // room for tuples
}

// close gives the memory back.
func (c *cpuCores) close() error {
	if c == nil {
		return nil
	}
	gpu.ReleaseColumns(c.free)
	return errors.Join(c.q.Close(), c.l.Close(), c.device.Close())
}

func (s *distributed) cpuJoin() (*cpuJoin, error) {
	if s.cpu == nil {
		d, err := host.Open(host.Options{Budget: s.dev.HostBudget()})
		if err != nil {
			return nil, err
		}
		c := &cpuCores{device: d, l: d.Budget().Lease("bench gpus, CPU")}
		if c.q, err = d.NewQueue("bench gpus, CPU"); err == nil {
			c.x, err = gpu.ExchangingOf(c.q)
		}
		if err != nil {
			return nil, errors.Join(err, c.l.Close(), d.Close())
		}
		s.cpu = c
	}
	return &cpuJoin{cpuCores: s.cpu, s: s}, nil
}

// tuples returns room for tuples: the smallest one of earlier runs that is large enough, or a new one.
func (c *cpuJoin) tuples(rows int) (gpu.Column, error) {
	rows = c.s.tupleColumn(rows)
	best := -1
	for i, x := range c.free {
		if x.Len >= rows && (best < 0 || x.Len < c.free[best].Len) {
			best = i
		}
	}
	if best >= 0 {
		out := c.free[best]
		c.free = slices.Delete(c.free, best, best+1)
		return out, nil
	}
	buf, err := c.l.Alloc(int64(rows) * 16)
	return gpu.Column{Type: gpu.TupleType(8), Len: rows, Data: buf}, err
}

// second is the digit of the second pass: the hash table of a partition fits the cache of a core.
func (c *cpuJoin) second() gpu.Digit {
	return c.s.secondOf(c.s.sizes[buildSide] * len(c.s.members) / cpuTable)
}

// add partitions the runs of a chunk, one of each bin.
func (c *cpuJoin) add(side int, runs []gpu.TupleRun) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.second()
	to, err := c.tuples(gpu.TupleRoom(runs, d.Bits))
	if err != nil {
		return err
	}
	p, err := c.x.PartitionRuns(c.l, to, runs, d)
	if err != nil {
		c.free = append(c.free, to)
		return err
	}
	c.parts[side] = append(c.parts[side], p)
	return nil
}

// join joins all chunks.
func (c *cpuJoin) join(result *found) error {
	probe := c.parts[probeSide]
	for from := 0; from < len(probe); from += cpuPart {
		n, sum, err := c.x.CountMatches(c.l, c.parts[buildSide], probe[from:min(from+cpuPart, len(probe))], 1,
			c.second())
		if err != nil {
			return err
		}
		result.add(n, sum)
	}
	return nil
}

// end ends a run.
func (c *cpuJoin) end() {
	for _, side := range c.parts {
		for _, p := range side {
			c.free = append(c.free, p.Tuples)
			p.Release()
		}
	}
}

// hybrid joins on devices and on the CPU.
func (s *distributed) hybrid(sides [2]layout) (took time.Duration, err error) {
	defer s.endRun()
	c, err := s.cpuJoin()
	if err != nil {
		return 0, err
	}
	defer c.end()
	f := spreadStream{sides: sides, fromHost: [2]bool{true, true}, cpu: c}
	var result, unused found
	build, probe := sides[buildSide].sending(), sides[probeSide].sending()
	if took, err = s.all(func(m *member) error { return m.stream(f, build, probe, &result, &unused) }); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := c.join(&result); err != nil {
		return 0, err
	}
	return took + time.Since(begin), s.check(&result)
}

// sendToCPU sends a chunk to the devices, and copies the regions of the CPU to host memory.
func (m *member) sendToCPU(x *sending, chunk int, c *cpuJoin, out *downloads) error {
	if x.cpu > 0 {
		out.room <- struct{}{} // the regions of an earlier chunk are free again
	}
	if err := m.send(x, chunk); err != nil || x.cpu == 0 {
		return err
	}
	first, sent := x.ways-x.cpu, gpu.Stride{}
	sent.SetReady(m.q.Device())
	cols := []gpu.Column{m.viewTuples(m.sent[x.side], x.leaves(chunk, first), x.leaves(chunk, x.ways)),
		*x.counts[chunk][m.at].Load()}
	out.parts <- func() error {
		var there []gpu.Column
		for _, c := range cols {
			st, err := out.q.Download(m.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}),
				Cols: []gpu.Column{c.Retain()}, Rows: c.Len, Ready: sent.Ready})
			if err != nil {
				return err
			}
			defer st.Release()
			there = append(there, st.Cols[0])
		}
		var runs []gpu.TupleRun
		for w := range x.cpu {
			runs = append(runs, gpu.TupleRun{Tuples: there[0], Start: w * x.room, Rows: x.room, Counts: there[1],
				Region: first + w, Width: m.width})
		}
		return c.add(x.side, runs)
	}
	return nil
}

// cpuRadix joins on the CPU alone: it partitions the chunks of all devices in two passes, and joins (CRJ).
func (s *distributed) cpuRadix() (took time.Duration, err error) {
	c, err := s.cpuJoin()
	if err != nil {
		return 0, err
	}
	defer c.end()
	var result found
	begin := time.Now()
	for side := range s.sizes {
		for _, m := range s.members {
			for _, st := range m.inHost[side] {
				if err := c.partition(side, st); err != nil {
					return 0, err
				}
			}
		}
	}
	if err := c.join(&result); err != nil {
		return 0, err
	}
	return time.Since(begin), s.check(&result)
}

// partition partitions a chunk in two passes.
func (c *cpuJoin) partition(side int, st *gpu.Stride) error {
	x := c.s.hostLayout(side)
	to, err := c.tuples(x.ways * x.room)
	if err != nil {
		return err
	}
	defer func() { c.free = append(c.free, to) }()
	var regions []gpu.TupleRun
	for w := range x.ways {
		regions = append(regions, gpu.TupleRun{Tuples: to, Start: w * x.room, Rows: x.room, Width: c.s.width})
	}
	counts, err := c.x.SendTuples(c.l, []gpu.TupleSource{tupleSource(st)},
		gpu.TupleRoute{Digit: c.s.first()}, regions)
	if err != nil {
		return err
	}
	defer counts.Release()
	lost, err := c.x.Overruns(c.l, []gpu.Column{counts})
	if err == nil && lost > 0 {
		err = fmt.Errorf("%d %w", lost, errNoRoom)
	}
	if err != nil {
		return err
	}
	for w := range regions {
		regions[w].Counts, regions[w].Region = counts, w
	}
	return c.add(side, regions)
}
