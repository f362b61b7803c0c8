package runner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/spill"
)

// Check returns what a run of a plan would hold and spill under its budgets, according to the
// plan's estimates, without running it. It opens the device to read its budgets. If there is a GPU
// that cannot be started, and a run would use the CPU instead, Check does so too.
func Check(p *physical.Plan, targets []execution.Target, opt execution.Options) (*execution.Check, error) {
	out, err := checkOnce(p, targets, opt)
	if want, _ := parseDevice(opt.Use); !errors.Is(err, cuda.ErrUnusable) || want.kind == execution.CUDA {
		return out, err
	}
	warnOfCPU(err)
	opt.Device, opt.Use = nil, execution.Host
	return checkOnce(p, targets, opt)
}

// checkOnce cuts a plan into pipelines as a run does, and adds up the memory that is held while
// each of them runs.
func checkOnce(p *physical.Plan, targets []execution.Target, opt execution.Options) (_ *execution.Check, err error) {
	if opt.SpillDir != "" {
		if err := spill.CheckDir(opt.SpillDir); err != nil {
			return nil, err
		}
	}
	r := &run{plan: p, targets: targets, opt: opt, device: opt.Device}
	if r.device == nil {
		choice, err := ChooseDevice(p, targets, opt)
		if err != nil {
			return nil, err
		}
		opt = choice.Of(opt)
		if r.device, err = OpenDevice(opt); err != nil {
			return nil, err
		}
		r.opened = r.device
	} else if _, err := ChooseDevice(p, targets, opt); err != nil {
		return nil, err
	}
	defer func() { err = with(err, r.release()) }()
	given := r.device
	r.spread()
	for _, each := range r.runs() {
		if err := each.awaitDevice("check"); err != nil {
			return nil, err
		}
	}
	all, err := r.checked()
	if err != nil {
		return nil, err
	}
	// Report what a frugal run would be denied, because any run that is denied memory starts again
	// as a frugal one.
	opt.Device = given // checkOnce leaves a device of the caller open
	again := &run{plan: p, targets: targets, opt: opt, device: given, frugal: true}
	again.spread()
	defer func() { err = with(err, again.release()) }()
	frugal, err := again.checked()
	if err != nil {
		return nil, err
	}
	for i, c := range all {
		f := frugal[i]
		c.fixed, c.largest, c.scans, c.advice = f.fixed, f.largest, f.scans, f.advice
	}
	props := r.device.Properties()
	out := &execution.Check{Job: p.Name, Device: props.Name, Kind: props.Kind, Problems: []execution.Problem{},
		Stages: []execution.StageCheck{}}
	if len(all) > 1 {
		out.Device = fmt.Sprintf("%d × %s", len(all), out.Device)
	}
	costs := hostRates
	if discrete(r.device) {
		costs = gpuRates(gpuStart + furtherStart*float64(len(all)-1)).among(len(all))
	}
	out.Estimate = estimate(planWork(p, targets).on(costs, r.threads()))
	all.stages(out)
	all.tiers(out)
	out.Finishes = len(out.Problems) == 0
	return out, nil
}

// checked adds up what the stages of the run's plan hold on each device.
func (r *run) checked() (all checkers, err error) {
	slots, loops := make(chan struct{}, r.threads()), r.plan.Loops()
	for _, each := range r.runs() {
		each.slots, each.loops = slots, loops
	}
	for _, each := range r.runs() {
		c := &checker{run: each, holdings: map[*opRun]*holding{}}
		all = append(all, c)
		for _, o := range r.plan.Outputs {
			if !each.has(o.Root) {
				continue
			}
			root, err := each.prepare(o.Root)
			if err != nil {
				return nil, err
			}
			c.roots = append(c.roots, root.merge())
		}
	}
	for _, c := range all {
		for _, f := range c.roots {
			c.feed(f, nil, nil)
		}
	}
	return all, nil
}

// checkers are those of the devices of a run.
type checkers []*checker

// awaitDevice waits until the device has started, because a GPU knows its budget only then. Errors
// have the name.
func (r *run) awaitDevice(name string) error {
	q, err := r.device.NewQueue(name)
	if err == nil {
		err = q.Close()
	}
	return explain(name, err)
}

// holding is the memory that a stage holds at some time of a run.
type holding struct {
	op *opRun
	operators.Demand
	down float64 // bytes that leave the device's tier
	disk float64 // bytes that go to disk
}

// checker adds up the memory that stages hold at the same time.
type checker struct {
	*run
	roots    []feed // of the outputs
	holdings map[*opRun]*holding
	needs    float64 // most bytes of the first tier, if nothing spills
	fixed    float64 // most bytes of needs that cannot spill
	largest  *holding
	advice   string     // set if a scan needs most of fixed
	down     float64    // most bytes that have left the device's tier
	disk     float64    // most bytes on disk
	scans    []error    // scans that would be denied memory
	kept     []*holding // rows of steps that several steps read
	streams  float64    // bytes of the strides of the current pipeline
}

// holding returns the memory that a stage holds for the rows that a pipeline collects.
func (c *checker) holding(o *opRun, lanes int) *holding {
	h := c.holdings[o]
	if h == nil {
		_, d := demand(o, lanes)
		h = &holding{op: o, Demand: d}
		c.holdings[o] = h
	}
	return h
}

// demand returns what the plan expects of a stage that collects rows, and the memory for it.
func demand(o *opRun, lanes int) (e operators.Expected, d operators.Demand) {
	in := o.Inputs[len(o.Inputs)-1]
	rows := func(s *physical.Stage) float64 { // on one of the devices
		if s.Distribution.Spread == physical.Anywhere || s.Distribution.Spread == physical.ByHash {
			return s.Rows / float64(o.devices)
		}
		return s.Rows
	}
	e = operators.Expected{Rows: rows(in), Bytes: rows(in) * in.RowBytes, Out: rows(o.Stage),
		OutBytes: rows(o.Stage) * o.RowBytes, Lanes: lanes}
	if len(o.Inputs) > 1 {
		e.ProbeBytes = rows(o.Inputs[0]) * o.Inputs[0].RowBytes
	}
	if op, ok := o.op.(operators.Demanding); ok {
		d = op.Demand(e)
	}
	return e, d
}

// pipeline adds the phases of a pipeline, and of the pipelines that it needs, in the order in which
// they run. held has what other stages hold meanwhile, into the stages that collect the rows of the
// pipeline at the same time.
func (c *checker) pipeline(p *pipelineRun, held, into []*holding) {
	held, into = slices.Clip(held), slices.Clip(into)
	for _, b := range p.builds {
		c.pipeline(b, held, nil)
		held = slices.Clip(append(held, c.holding(b.into, b.lanes)))
	}
	if p.into != nil {
		into = append(into, c.holding(p.into, p.lanes))
	}
	before := c.streams
	c.streams = p.streams()
	c.feed(p.feed, held, into)
	c.streams = before
}

// streams returns the bytes of the strides that are in the operators of a pipeline at the same
// time: for each operator an input stride, an output stride, and the memory to compute the output.
func (p *pipelineRun) streams() (bytes float64) {
	for i := -1; i <= len(p.ops); i++ {
		if o := p.operator(i); o != nil {
			bytes += float64(p.lanes) * (float64(2*p.strideRows(o.Schema.RowBytes()))*float64(o.Schema.RowBytes()) +
				float64(grant.OperatorWork.Most))
		}
	}
	return bytes
}

func (c *checker) feed(f feed, held, into []*holding) {
	switch f := f.(type) {
	case *scanFeed:
		c.phase(append(held, into...), f.pipe, f.op)
	case *aheadFeed:
		c.phase(append(held, into...), f.pipe, f.op)
	case *resultFeed:
		c.pipeline(f.from, held, nil)
		c.phase(slices.Concat(held, []*holding{c.holding(f.op, f.from.lanes)}, into), nil, nil)
	case *channelFeed:
		c.pipeline(f.from, held, into)
	case *materializedFeed:
		// The rows are held from their computation on, while everything later runs.
		if !slices.ContainsFunc(c.kept, func(h *holding) bool { return h.op == f.op }) {
			c.pipeline(f.from, held, nil)
			c.kept = append(c.kept, c.holding(f.op, f.from.lanes))
		}
		c.phase(slices.Concat(held, into), nil, nil)
	case *exchangeFeed:
		if from := f.feeds[f.at]; from != nil {
			c.feed(from, held, into)
		}
		c.phase(slices.Concat(held, into), nil, nil)
	case *recursionFeed:
		c.pipeline(f.anchor, held, nil)
		c.pipeline(f.next.step, held, nil)
		c.phase(slices.Concat(held, []*holding{c.holding(f.op, f.anchor.lanes)}, into), nil, nil)
	case *workingFeed:
		c.phase(slices.Concat(held, into), nil, nil)
	case *unionFeed:
		for _, in := range f.feeds {
			c.feed(in, held, into)
		}
	}
}

// phase adds the memory that is held at the same time, including that of a scan if there is one.
// Stages that fit share the memory with those that do not. Each stage that does not fit gets an
// equal part of the rest.
func (c *checker) phase(held []*holding, p *pipelineRun, scan *opRun) {
	held = append(held, c.kept...)
	needs, fixed, advice := c.streams, c.streams, ""
	if scan != nil {
		opt := p.scanOptions(scan)
		if err := source.CheckMemory(scan.scan.Table, opt); err != nil {
			c.scans = append(c.scans, err)
		} else if !discrete(c.device) {
			least := float64(scan.scan.Table.LeastMemory(opt))
			fixed, needs = fixed+least, needs+least
			if least > c.streams {
				advice = source.Advice(scan.scan.Table, opt)
			}
		}
	}
	var largest *holding
	for _, h := range held {
		needs += h.Bytes
		fixed += h.Fixed
		if h.Fixed > 0 && (largest == nil || h.Fixed > largest.Fixed) {
			largest = h
		}
	}
	c.needs = max(c.needs, needs)
	if fixed > c.fixed {
		c.fixed, c.largest, c.advice = fixed, largest, advice
	}
	spilling := slices.DeleteFunc(slices.Clone(held), func(h *holding) bool { return h.Spilled == nil })
	slices.SortStableFunc(spilling, func(a, b *holding) int { return cmp.Compare(a.Bytes, b.Bytes) })
	room, down := max(0, float64(c.device.Budget().Limit())-fixed), 0.0
	for i, h := range spilling {
		share := room / float64(len(spilling)-i)
		spilled := h.Spilled(share)
		if room -= share; spilled == 0 {
			room += max(0, share-h.Bytes)
		}
		h.down = max(h.down, spilled)
		down += h.down
	}
	c.down = max(c.down, down)
	past := down // bytes that go past host memory
	if discrete(c.device) {
		host := c.device.HostBudget().Limit()
		past = max(0, down-float64(host-grant.Headroom.Of(host)))
	}
	disk := 0.0
	for _, h := range spilling {
		if past > 0 {
			h.disk = max(h.disk, past*h.down/down)
		}
		disk += h.disk
	}
	c.disk = max(c.disk, disk)
}

// stages adds the stages that hold rows, in the order of a report, with the bytes of all devices.
func (all checkers) stages(out *execution.Check) {
	for _, o := range all[0].ops {
		s := execution.StageCheck{Step: o.Step, Kind: o.Kind(), Rows: o.Rows}
		for _, c := range all {
			for _, h := range c.holdings {
				if h.op.Stage != o.Stage {
					continue
				}
				s.Holds, s.Fixed, s.Disk = s.Holds+whole(h.Bytes), s.Fixed+whole(h.Fixed), s.Disk+whole(h.disk)
				if discrete(c.device) {
					s.Host += whole(h.down)
				}
			}
		}
		if s.Holds == 0 {
			continue
		}
		out.LinkUp += s.Host
		out.LinkDown += s.Host
		out.Stages = append(out.Stages, s)
	}
}

// spilled adds up bytes of all stages.
func (c *checker) spilled(of func(*holding) float64) (sum float64) {
	for _, h := range c.holdings {
		sum += of(h)
	}
	return sum
}

// tiers adds the tiers, and the problems of each.
func (all checkers) tiers(out *execution.Check) {
	memory := execution.TierCheck{Tier: execution.TierHost, Setting: gpu.HostMemory.String(),
		Limit: all[0].device.HostBudget().Limit()}
	disk := 0.0
	for _, c := range all {
		memory.Spilled += whole(c.spilled(func(h *holding) float64 { return h.disk }))
		disk += c.disk
		if !discrete(c.device) {
			memory.Needs, memory.Fixed = memory.Needs+whole(c.needs), memory.Fixed+whole(c.fixed)
			continue
		}
		memory.Needs += whole(c.down)
		first := execution.TierCheck{Tier: execution.TierDevice, Setting: gpu.DeviceMemory.String(),
			Limit: c.device.Budget().Limit(), Needs: whole(c.needs), Fixed: whole(c.fixed),
			Spilled: whole(c.spilled(func(h *holding) float64 { return h.down }))}
		if len(all) > 1 {
			first.Device = c.device.Known().ID
		}
		out.Tiers = append(out.Tiers, first)
		c.mustFit(out, first)
	}
	out.Tiers = append(out.Tiers, memory)
	if !discrete(all[0].device) {
		all[0].mustFit(out, memory)
	}
	for _, err := range all[0].scans {
		r := execution.Problem{Tier: execution.TierHost, Limit: memory.Limit, Why: err.Error(),
			Hint: "or read fewer of its columns"}
		if b := (*gpu.BudgetError)(nil); errors.As(err, &b) {
			r.Needs, r.Stage = b.Asked, b.Stage
		}
		out.Problems = append(out.Problems, r)
	}
	all[0].diskTier(out, disk)
}

// mustFit adds a problem if what cannot spill does not fit the first tier.
func (c *checker) mustFit(out *execution.Check, first execution.TierCheck) {
	if first.Fixed > first.Limit {
		r := execution.Problem{Tier: first.Tier, Needs: first.Fixed, Limit: first.Limit,
			Why: fmt.Sprintf("strides and what operators take to make them fit no budget of %s: all that must fit "+
				"%s at a time are %s", text(first.Limit), first.Tier, text(first.Fixed)),
			Hint: fmt.Sprintf("raise %s to more than %s, or select fewer columns", first.Setting, text(first.Fixed))}
		if c.advice != "" {
			r.Hint = fmt.Sprintf("raise %s to more than %s (%s)", first.Setting, text(first.Fixed), c.advice)
		}
		if h := c.largest; h != nil {
			r.Stage = h.op.Name()
			r.Why = fmt.Sprintf("%s (%s) holds about %s that cannot spill, and all that must fit %s at a time "+
				"are %s of %s", h.op.Step, h.op.Kind(), text(whole(h.Fixed)), first.Tier, text(first.Fixed),
				text(first.Limit))
			r.Hint = fmt.Sprintf("raise %s to more than %s, filter its input, or select fewer of its columns",
				first.Setting, text(first.Fixed))
		}
		if first.Device != "" {
			r.Why = first.Device + ": " + r.Why
		}
		out.Problems = append(out.Problems, r)
	}
}

// diskTier adds the disk, which holds some bytes of all devices.
func (c *checker) diskTier(out *execution.Check, bytes float64) {
	t := execution.TierCheck{Tier: execution.TierDisk, Setting: gpu.SpillLimit.String(),
		Dir: cmp.Or(c.opt.SpillDir, spill.DefaultDir()), Limit: c.opt.SpillLimit, Needs: whole(bytes)}
	refuse := func(why, hint string) {
		if t.Needs > 0 {
			out.Problems = append(out.Problems,
				execution.Problem{Tier: t.Tier, Needs: t.Needs, Limit: t.Limit, Why: why, Hint: hint})
		}
	}
	rows := "about " + text(t.Needs) + " of rows do not fit memory"
	if t.Dir == spill.None {
		refuse(fmt.Sprintf("%s, and %v is none", rows, gpu.SpillDir),
			fmt.Sprintf("name a folder, or raise %v", gpu.HostMemory))
		return
	}
	free, err := spill.DefaultLimit(t.Dir)
	if err != nil {
		refuse(fmt.Sprintf("%s, and %v cannot be used: %v", rows, gpu.SpillDir, err),
			"choose another folder")
	} else if t.Limit == 0 {
		t.Limit, t.Setting = free, "four fifths of the free space"
	} else if all := free / grant.DiskBudget.Num * grant.DiskBudget.Den; all < t.Limit {
		t.Limit, t.Setting = all, "the free space"
	}
	if out.Tiers = append(out.Tiers, t); err == nil && t.Needs > t.Limit {
		refuse(fmt.Sprintf("%s, before compression; %s has room for %s (%s)", rows, t.Dir, text(t.Limit), t.Setting),
			fmt.Sprintf("free some space, choose another %v, or raise %v or %v", gpu.SpillDir, gpu.SpillLimit,
				gpu.HostMemory))
	}
}

// whole returns an estimate of bytes as an integer.
func whole(bytes float64) int64 { return int64(min(math.Ceil(bytes), math.MaxInt64/2)) }

func text(bytes int64) string { return humanize.IBytes(uint64(bytes)) }
