package runner

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/job"
)

// The model of the time of a plan on each device: the start of a process, and what each unit of work costs. The
// constants are fitted to whole processes of the example jobs (examples/bench/devices.md and decode.md).
// TestTheChoiceIsRightWhereBothDevicesWereMeasured has the figures that they must explain.
const (
	gpuStart    = 0.329 // seconds of the start and end of a process with the only GPU of a machine
	driverStart = 0.105 // of that, the start of the driver
	hiddenStart = 0.018 // seconds of the driver's start for each further GPU of the machine
	// The start of the driver with n further GPUs visible takes shownStart × n + crowdStart × n² seconds more.
	shownStart, crowdStart = 0.193, 0.0167
	// furtherStart is the seconds in which a process makes a further GPU ready that the driver has started.
	furtherStart = 0.04
	// exchangeRate is the bytes per second that a GPU sends to others by partitions, then copies. Two GPUs send 185 to
	// 267 GB/s each in one piece (examples/bench/gpus.md).
	exchangeRate = 185e9
	// leastGain is the part of the time of one GPU that several must save, or auto takes one. The rates of several are
	// those of one, divided: no job was measured that they end sooner.
	leastGain = 0.25
	// serialShare is the share of an operator's work that runs on one core, however many there are.
	serialShare = 0.14
	// manyGroups is the number of groups from which the table of a group-by no longer
	// fits the cache.
	manyGroups = 1 << 16
)

// cost is the time that a unit of work takes, in seconds: of one core, which all cores share, and by the clock.
type cost struct{ cores, wall float64 }

// rates are the costs of the units of work on a device.
type rates struct {
	start float64 // seconds of the start and the end of a process

	pages, decoded, rows, values, grouped, sorted, divided, dividedByCPU, encoded, left cost
}

// hostRates are the costs on a CPU.
var hostRates = rates{
	start: 0.032, pages: cost{cores: 1.18e-9}, decoded: cost{cores: 1.18e-9},
	rows: operator(9.1e-9), values: operator(0.56e-9), grouped: operator(13.8e-9), sorted: operator(18e-9),
	divided: cost{wall: 66e-9}, dividedByCPU: cost{wall: 66e-9},
	encoded: cost{11.8e-9, 0.48e-9}, left: cost{31.8e-9, 0.48e-9},
}

// operator is the cost of work of which a core takes some seconds.
func operator(s float64) cost { return cost{cores: s * (1 - serialShare), wall: s * serialShare} }

// gpuRates are the costs on a GPU that takes some seconds to start and end. Cores read the pages of files for it, and
// decode and encode what it does not. Other work of operators costs less than what can be measured, and so do copies
// of columns that cores encode meanwhile.
func gpuRates(start float64) rates {
	return rates{
		start: start, pages: cost{0.1e-9, 1 / 18e9}, decoded: cost{1.075e-9, 1 / 30.7e9}, rows: cost{wall: 0.256e-9},
		divided: cost{wall: 0.9e-9}, dividedByCPU: hostRates.dividedByCPU,
		encoded: cost{wall: 0.606e-9}, left: hostRates.left,
	}
}

// work is the work of a plan, by its estimates.
type work struct {
	pages        float64 // bytes of the columns of scans that a device decodes, as encoded in the files
	decoded      float64 // bytes of the other columns of scans
	rows         float64 // rows that go into filters and joins, and pairs that joins compare one by one
	values       float64 // values that operators return and group-bys take
	grouped      float64 // rows that go into group-bys of many groups
	sorted       float64 // values of rows that are sorted
	divided      float64 // rows that are divided among folders of an output that a device encodes
	dividedByCPU float64 // rows that are divided among those of another output
	encoded      float64 // values of the output that a device encodes
	left         float64 // the other values of the output
}

// planWork returns the work of a plan that writes to targets.
func planWork(p *physical.Plan, targets []execution.Target) (w work) {
	for i, o := range p.Written() {
		byDevice := make([]bool, o.Schema.Len())
		if e, ok := targets[i].(execution.Encoded); ok {
			byDevice = e.EncodedByDevice(o.Schema)
			switch {
			case !e.Divides():
			case slices.Contains(byDevice, true):
				w.divided += o.Root.Rows
			default:
				w.dividedByCPU += o.Root.Rows
			}
		}
		for i := range byDevice {
			if byDevice[i] {
				w.encoded += o.Root.Rows
			} else {
				w.left += o.Root.Rows
			}
		}
	}
	for _, o := range p.Outputs {
		w.add(o.Root)
	}
	return w
}

// add adds the work of a stage and its inputs. A top-k, a limit and a union cost little
// compared with their inputs.
func (w *work) add(s *physical.Stage) {
	for _, in := range s.Inputs {
		w.add(in)
	}
	columns := float64(s.Schema.Len())
	switch spec := s.Spec.(type) {
	case *physical.Scan:
		for _, c := range spec.Columns {
			stats := spec.Table.Stats(c)
			w.pages += float64(stats.BytesInPages)
			w.decoded += float64(stats.Bytes - stats.BytesInPages)
		}
	case *physical.Project:
		w.values += s.Rows * float64(s.Computed)
	case *physical.Group:
		w.values += s.Inputs[0].Rows * columns
		if s.Rows >= manyGroups {
			w.grouped += s.Inputs[0].Rows
		}
	case *physical.Sort:
		if spec.Limit < 0 {
			w.sorted += s.Rows * columns
		}
	case *physical.Window:
		w.sorted += s.Rows * columns
	case *physical.Limit, *physical.Union, *physical.Exchange, *physical.Materialize, *physical.Materialized,
		*physical.Values, *physical.Working:
	case *physical.Recursive:
		w.grouped += s.Rows
	case *physical.Filter, *physical.Join, *physical.Expand, *physical.Unnest:
		for _, in := range s.Inputs {
			w.rows += in.Rows
		}
		w.rows += s.Pairs
		w.sorted += s.Sorted
		w.values += s.Rows * columns
	default:
		panic(fmt.Sprintf("runner: the work of a stage of type %T is not known", spec))
	}
}

// starts estimates the seconds in which a process starts and ends n GPUs. alone says that it makes no other visible.
func starts(c cuda.Census, n int, alone bool) float64 {
	further := furtherStart * float64(n-1)
	if c.Started {
		return gpuStart - driverStart + further
	}
	visible := c.Visible
	if !c.Counted {
		visible = c.Installed
	} else if alone {
		visible = min(visible, n)
	}
	more := float64(max(visible, 1) - 1)
	return gpuStart + hiddenStart*float64(max(c.Installed, 1)-1) + more*(shownStart+more*crowdStart) + further
}

// among returns the rates of n GPUs. They share the work of operators, encoding and dividing. They decode no faster
// together, because one of them decodes as fast as the host reads (examples/bench/gpus.md).
func (r rates) among(n int) rates {
	for _, c := range []*cost{&r.rows, &r.values, &r.grouped, &r.sorted, &r.encoded} {
		c.wall /= float64(n)
	}
	return r
}

// exchanged returns the bytes that each of several devices sends to others in a plan for so many devices.
func exchanged(p *physical.Plan, n int) (bytes float64) {
	p.Visit(func(s *physical.Stage) {
		x, ok := s.Spec.(*physical.Exchange)
		if !ok {
			return
		}
		of := s.Rows * s.RowBytes / float64(n) // those of a device
		if x.Kind == physical.Broadcast {
			of *= float64(n)
		}
		bytes += of * float64(n-1) / float64(n)
	})
	return bytes
}

// part is a part of an estimate.
type part struct {
	what    string
	seconds float64
}

// on estimates the parts of the time of the work on a device and a number of cores.
func (w work) on(r rates, cores int) []part {
	of := func(units float64, c cost) float64 { return units * (c.cores/float64(cores) + c.wall) }
	return []part{
		{"start and end", r.start},
		{"decoding", of(w.pages, r.pages)},
		{"decoding that only the CPU does", of(w.decoded, r.decoded)},
		{"operators", of(w.rows, r.rows) + of(w.values, r.values) + of(w.grouped, r.grouped) + of(w.sorted, r.sorted)},
		{"dividing", of(w.divided, r.divided) + of(w.dividedByCPU, r.dividedByCPU)},
		{"encoding", of(w.encoded, r.encoded)},
		{"encoding that only the CPU does", of(w.left, r.left)},
	}
}

// estimate adds up parts.
func estimate(parts []part) time.Duration {
	sum := 0.0
	for _, p := range parts {
		sum += p.seconds
	}
	return time.Duration(sum * float64(time.Second))
}

// describe says what an estimate consists of, the largest part first. It leaves out parts of less than a twentieth.
func describe(parts []part, where string) string {
	all := estimate(parts).Seconds()
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.seconds, a.seconds) })
	var of []string
	for _, p := range parts {
		if p.seconds >= all/20 {
			of = append(of, fmt.Sprintf("%s %.2g s", p.what, p.seconds))
		}
	}
	return fmt.Sprintf("about %.2g s %s (%s)", all, where, strings.Join(of, ", "))
}

// ChooseDevice returns the device of a run of a plan to targets with these options. If they leave it
// open (Auto) and there is an NVIDIA driver, it is the device that takes less time by a
// model of the plan's estimates, or a GPU if the job forces an algorithm for one; the GPU is
// not started. The error is a *Diagnostic about the name of the device, or about a step that
// forces an algorithm that is not for the device.
func ChooseDevice(p *physical.Plan, targets []execution.Target, opt execution.Options) (*execution.Choice, error) {
	if err := host.CheckThreads(opt.Threads); err != nil {
		return nil, &job.Diagnostic{Msg: err.Error()}
	}
	if opt.Device != nil {
		props := opt.Device.Known()
		return &execution.Choice{Device: props.ID, Why: "given by the caller"}, p.RunsOn(props)
	}
	c, err := choose(p, targets, opt)
	if err == nil && c.Device == execution.Host {
		err = p.RunsOn(host.Unopened())
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func choose(p *physical.Plan, targets []execution.Target, opt execution.Options) (*execution.Choice, error) {
	want, err := parseDevice(opt.Use)
	if err != nil {
		return nil, err
	}
	numbers, err := want.gpus(opt)
	if err != nil {
		return nil, &job.Diagnostic{Msg: err.Error()}
	}
	several := len(numbers)
	if several == 1 {
		several = 0
	}
	switch want.kind {
	case execution.Host:
		return &execution.Choice{Device: opt.Use, Why: "asked for"}, nil
	case execution.CUDA:
		return &execution.Choice{Device: opt.Use, Why: "asked for", GPUs: several}, nil
	}
	gpus, err := cuda.Look("")
	if errors.Is(err, cuda.ErrNoDriver) {
		return &execution.Choice{Device: execution.Host, Why: err.Error()}, nil
	}
	if gpus.Counted && gpus.Visible == 0 {
		return &execution.Choice{Device: execution.Host, Why: "CUDA_VISIBLE_DEVICES shows no GPU"}, nil
	}
	cores := cmp.Or(opt.Threads, min(runtime.GOMAXPROCS(0), host.MaxThreads()))
	w := planWork(p, targets)
	c := w.choose(cores, starts(gpus, max(several, 1), opt.Alone))
	if opt.GPUs == 0 && c.Device == execution.CUDA && gpus.Counted {
		w.chooseGPUs(c, gpus.Visible, cores, func(n int) (start, exchange float64) {
			return starts(gpus, n, opt.Alone), exchanged(Distribute(p, targets, n, true, opt), n) / exchangeRate
		})
		several = c.GPUs
	}
	if p.RunsOn(host.Unopened()) != nil {
		c.Device, c.Why = execution.CUDA, "the job forces an algorithm for a GPU"
	}
	if want.withHost && c.Device == execution.CUDA {
		c.Device += execution.WithHost
	}
	if c.Device != execution.Host {
		c.GPUs = several
	}
	return c, nil
}

// chooseGPUs sets the number of GPUs of a choice of a GPU: several, at most so many, if they save leastGain of the time
// of one. costs returns the seconds in which a number of GPUs start and end, and in which they exchange rows.
func (w work) chooseGPUs(c *execution.Choice, most, cores int, costs func(n int) (start, exchange float64)) {
	if most < 2 {
		return
	}
	best, least := "", 0
	var parts []part
	for n := 2; n <= min(most, cuda.MostGPUs); n *= 2 {
		start, exchange := costs(n)
		on := append(w.on(gpuRates(start).among(n), cores), part{"exchanges", exchange})
		if parts == nil || estimate(on) < estimate(parts) {
			parts, least, best = on, n, fmt.Sprintf("on %d GPUs", n)
		}
	}
	text := describe(parts, best)
	if all := estimate(parts); all.Seconds() < (1-leastGain)*c.CUDA.Seconds() {
		c.GPUs, c.CUDA, c.Why = least, all, text+"; "+c.Why
		return
	}
	c.Why += "; " + text
}

// choose returns the device with the lower estimate.
func (w work) choose(cores int, start float64) *execution.Choice {
	host, gpu := w.on(hostRates, cores), w.on(gpuRates(start), cores)
	c := &execution.Choice{Device: execution.Host, Host: estimate(host), CUDA: estimate(gpu)}
	onHost, onGPU := describe(host, fmt.Sprintf("on %d cores", cores)), describe(gpu, "on the GPU")
	if c.Why = onHost + "; " + onGPU; c.CUDA < c.Host {
		c.Device, c.Why = execution.CUDA, onGPU+"; "+onHost
	}
	return c
}
