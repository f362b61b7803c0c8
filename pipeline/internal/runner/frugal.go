package runner

import (
	"context"
	"errors"
	"log/slog"
	"syscall"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// A run shares its budget between lanes, scans that decode ahead and rows that wait for the output.
// How much each of these takes at a time depends on timing. So a run that is denied memory starts
// again as a frugal run: with one lane per pipeline, one core, one stride that is decoded at a
// time, and short strides. Its memory depends less on timing. gstream check promises that a run
// completes if this frugal run does.

// runOrAgain runs a plan, and runs it again as a frugal run if it was denied memory.
func runOrAgain(ctx context.Context, p *physical.Plan, targets []execution.Target,
	opt execution.Options) (*execution.Report, error) {
	report, denied := runOnce(ctx, p, targets, opt, nil)
	if !shortOfMemory(denied) || ctx.Err() != nil || final(denied) {
		return report, denied
	}
	again, err := runOnce(ctx, p, targets, opt, denied)
	if again != nil {
		again.Restarted = denied.Error()
	}
	return again, err
}

// warnOfRestart logs that a run starts again, once it is known that there is enough memory for its
// scans.
func (r *run) warnOfRestart() {
	if r.frugal {
		slog.Warn("memory is short: the job starts again in one lane, with short strides", "reason", r.denied)
	}
}

// shortOfMemory reports whether a run was denied memory that a frugal run may not need.
func shortOfMemory(err error) bool {
	var denied *gpu.BudgetError
	return errors.As(err, &denied) && denied.Setting != gpu.SpillLimit && !errors.Is(err, syscall.ENOSPC)
}

const (
	// frugalRows is the most rows of a stride of a frugal run, and leastFrugalRows the least.
	frugalRows      = 1 << 13
	leastFrugalRows = 64
)

// frugalRows returns the rows of a stride of a frugal run, for rows of width bytes.
func (r *run) frugalRows(width int) int {
	rows := grant.FrugalStrides.Of(r.device.Budget().Limit()) / int64(grant.StridesOfFrugalLane*max(width, 1))
	return int(max(leastFrugalRows, min(rows, frugalRows)))
}

// newQueue returns a queue for one of several lanes, or for a lane that has the whole device.
func (r *run) newQueue(name string, lane bool) (gpu.Queue, error) {
	if lane {
		return r.device.NewLaneQueue(name)
	}
	return r.device.NewQueue(name)
}
