package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/source"
)

// lostError is the failure of a GPU before any output was complete. rest are the options of a run without this GPU, nil
// if there is no other device.
type lostError struct {
	error
	gpu  string
	rest *execution.Options
}

func (e *lostError) Unwrap() error { return e.error }

// runOnTheRest runs a plan. If a GPU fails, it runs the plan again without this GPU, at most once for each GPU. What
// the GPU had in its memory is lost with it, so the run begins from the start.
func runOnTheRest(ctx context.Context, p *physical.Plan, targets []execution.Target,
	opt execution.Options) (report *execution.Report, err error) {
	onCPU := opt.Chooses() && p.RunsOn(host.Unopened()) == nil
	var gpus []execution.LostGPU
	for {
		report, err = runOrAgain(ctx, p, targets, opt)
		if report != nil {
			report.Lost = gpus
		}
		var lost *lostError
		if !errors.As(err, &lost) || ctx.Err() != nil {
			return report, err
		}
		if lost.rest == nil && onCPU {
			lost.rest = &opt
			lost.rest.Use, lost.rest.GPUs = execution.Host, 0
		}
		if lost.rest == nil {
			return report, err
		}
		slog.Warn("a GPU failed: the job starts again without it", "gpu", lost.gpu, "device", nameOf(*lost.rest),
			"error", err)
		gpus = append(gpus, execution.LostGPU{Device: lost.gpu, Error: err.Error()})
		opt = *lost.rest
	}
}

// nameOf returns the name of the device that options ask for.
func nameOf(opt execution.Options) string {
	if opt.Device == nil {
		return opt.Use
	}
	var names []string
	for _, d := range gpu.DevicesOf(opt.Device) {
		names = append(names, d.Known().ID)
	}
	return strings.Join(names, ", ")
}

// finalError is the error of a run that cannot start again.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// final reports whether a run cannot start again after an error.
func final(err error) bool {
	var f *finalError
	return errors.As(err, &f)
}

// final reports whether the run cannot start again after an error: it has read rows that cannot be read again, or has
// written some that cannot be taken back. An error while outputs become complete leaves none of them, unless it comes
// too late to undo that.
func (r *run) final(err error) bool {
	if errors.Is(err, sink.ErrDecided) {
		return true
	}
	for _, s := range r.sinks {
		t, ok := s.target.(execution.Irrevocable)
		if ok && t.Irrevocable() && s.sink != nil {
			if st := s.sink.Stats(); st.Rows > 0 || st.Bytes > 0 {
				return true
			}
		}
	}
	for _, each := range r.runs() {
		for _, o := range each.ops {
			if o.scan == nil || o.reader.Load() == nil {
				continue
			}
			if stream, ok := o.scan.Table.(source.Stream); ok && stream.IsStream() {
				return true
			}
		}
	}
	return false
}

// lose makes a lostError of an error with which a GPU of the run has failed. Errors of data and of denied memory stay
// as they are.
func (r *run) lose(err error) error {
	var failed *cuda.Error
	unusable := errors.Is(err, cuda.ErrUnusable)
	broken := errors.As(err, &failed) && failed.Sticky() && !unusable
	// A GPU that does not start ends the run if the caller has named it.
	missing := unusable && r.opt.Chooses() && r.group != nil
	if r.opt.EndOnLostGPU || gpu.FailedExpression(err) != "" || !broken && !missing {
		return err
	}
	members := gpu.DevicesOf(r.device)
	if r.group != nil {
		members = nil
		for _, each := range r.runs() {
			members = append(members, each.device)
		}
	}
	id := cuda.FailedGPU(err)
	var named *deviceError
	switch {
	case id != "":
	case errors.As(err, &named):
		id = named.id
	case len(members) == 1:
		id = members[0].Known().ID
	}
	at := slices.IndexFunc(members, func(d gpu.Device) bool { return d.Known().ID == id })
	if at < 0 {
		return err
	}
	return &lostError{err, members[at].Known().ID, r.without(members, at)}
}

// without returns the options of a run without one of its devices, nil if it has no other one. A run that opens its own
// devices opens the others again, since they share page-locked memory with the first one.
func (r *run) without(members []gpu.Device, at int) *execution.Options {
	opt := r.opt
	rest := slices.Delete(slices.Clone(members), at, at+1)
	switch {
	case r.opened == nil && (len(rest) == 0 || at == 0):
		return nil
	case r.opened == nil && len(rest) == 1:
		opt.Device = rest[0]
	case r.opened == nil:
		opt.Device = gpu.NewGroup(rest)
	case len(rest) > 0:
		var numbers []string
		for _, n := range numbersOf(gpu.NewGroup(rest)) {
			numbers = append(numbers, fmt.Sprint(n))
		}
		want, _ := parseDevice(opt.Use)
		opt.Use, opt.GPUs = execution.CUDA+":"+strings.Join(numbers, ","), 0
		if want.withHost {
			opt.Use += execution.WithHost
		}
	default:
		return nil
	}
	return &opt
}
