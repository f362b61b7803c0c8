package runner

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// group is a run on several devices: a run for each of them, in one process, with the same plan. The runs share scans,
// and exchange rows where the plan says so. The first one has the stages that run on one device, and the outputs.
type group struct {
	runs      []*run // nil for those of other ranks
	world     *world // of all ranks; nil for a run in one process
	scans     map[*physical.Stage]*sharedScan
	exchanges map[*physical.Stage]*exchange
	seed      uint64 // of the hash by which rows are exchanged
}

// Distribute returns the plan that a run on several devices has: see physical.Plan.Distribute. encodes says that they
// encode outputs.
func Distribute(p *physical.Plan, targets []execution.Target, devices int, encodes bool,
	opt execution.Options) *physical.Plan {
	gathers := func(output int, ordered bool) string {
		if output < 0 || !encodes {
			return ""
		}
		if e, ok := targets[output].(execution.Encoded); ok && e.FromOneDevice(ordered) {
			return "one device divides the rows among folders"
		}
		return ""
	}
	return p.Distribute(devices, gathers, exchangesOf(opt))
}

// exchangesOf returns where joins and group-bys exchange rows.
func exchangesOf(opt execution.Options) physical.Exchanges {
	return map[string]physical.Exchanges{execution.Always: physical.ExchangesAlways,
		execution.Never: physical.ExchangesNever}[opt.Exchanges]
}

// spread makes a run one of several devices if its device is a gpu.Group.
func (r *run) spread() {
	devices := gpu.DevicesOf(r.device)
	if len(devices) < 2 {
		return
	}
	r.device = devices[0]
	r.plan = Distribute(r.plan, r.targets, len(devices), r.encodes() != nil, r.opt)
	g := &group{scans: map[*physical.Stage]*sharedScan{}, exchanges: map[*physical.Stage]*exchange{},
		seed: rand.Uint64()}
	r.group = g
	g.runs = []*run{r}
	for i, d := range devices[1:] {
		g.runs = append(g.runs, &run{plan: r.plan, opt: r.opt, device: d, at: i + 1, group: g, frugal: r.frugal,
			denied: r.denied, started: r.started, ctx: r.ctx, cancel: r.cancel})
	}
}

// deviceError is an error of one of several devices.
type deviceError struct {
	id  string
	err error
}

func (e *deviceError) Error() string { return e.id + ": " + e.err.Error() }
func (e *deviceError) Unwrap() error { return e.err }

// deviceTier is the tier of memory of a device, in errors.
const deviceTier = "device"

// named adds the device of the run to an error of a driver or of device memory, if it is one of several that have
// memory of their own.
func (r *run) named(err error) error {
	var already *deviceError
	var failed *cuda.Error
	var denied *gpu.BudgetError
	var unallocated *gpu.AllocError
	if r.group == nil || !discrete(r.device) || errors.As(err, &already) {
		return err
	}
	ofDevice := errors.As(err, &failed) || errors.Is(err, cuda.ErrUnusable) || gpu.IsFailure(err)
	switch {
	case errors.As(err, &denied):
		ofDevice = denied.Tier == deviceTier
	case errors.As(err, &unallocated):
		ofDevice = unallocated.Tier == deviceTier
	}
	if !ofDevice || gpu.FailedExpression(err) != "" {
		return err
	}
	return &deviceError{cmp.Or(cuda.FailedGPU(err), r.device.Known().ID), err}
}

// fail ends all runs of the group with an error of the run.
func (r *run) fail(err error) { r.cancel(r.named(err)) }

// runs returns the runs of all devices.
func (r *run) runs() []*run {
	if r.group == nil {
		return []*run{r}
	}
	return r.group.local()
}

// deviceName returns the name of the run's device among those of all runs.
func (r *run) deviceName() string {
	if r.world() != nil {
		return fmt.Sprintf("rank %d, %s", r.at, r.device.Known().ID)
	}
	return r.device.Known().ID
}

// local returns the runs of this process.
func (g *group) local() []*run {
	if g.world == nil {
		return g.runs
	}
	return []*run{g.world.run}
}

// has reports whether the run has rows of a stage.
func (r *run) has(st *physical.Stage) bool {
	return st.On(r.at)
}

// first returns the run of the first device, which has the reports.
func (r *run) first() *run { return r.runs()[0] }

// closeShared ends the exchanges and the scans that the runs share.
func (r *run) closeShared() (errs []error) {
	if r.group == nil {
		return nil
	}
	for _, x := range r.group.exchanges {
		x.end()
		errs = append(errs, x.ranges.close())
	}
	errs = append(errs, r.group.world.close())
	for _, x := range r.group.scans {
		errs = append(errs, x.end())
	}
	return errs
}
