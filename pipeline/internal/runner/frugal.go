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

// A run shares its budget between lanes, scans that decode ahead and rows that wait for the output. What these take at
// a time is by chance, so a run that is denied memory starts again frugally: one lane a pipeline, one core, one stride
// that is decoded at a time, and short strides. What such a run takes depends less on chance. gstream check promises
// the end of a run by what this one needs.

// runOrAgain runs a plan, and once more, frugally, if it was denied memory.
func runOrAgain(ctx context.Context, p *physical.Plan, output execution.Target,
	opt execution.Options) (*execution.Report, error) {
	report, denied := runOnce(ctx, p, output, opt, nil)
	if !shortOfMemory(denied) || ctx.Err() != nil {
		return report, denied
	}
	again, err := runOnce(ctx, p, output, opt, denied)
	if again != nil {
		again.Restarted = denied.Error()
	}
	return again, err
}

// warnOfRestart logs that a run starts again, once it is known that its scans find the memory that they need.
func (r *run) warnOfRestart() {
	if r.frugal {
		slog.Warn("memory is short: the job starts again in one lane, with short strides", "reason", r.denied)
	}
}

// shortOfMemory reports whether a run was denied memory that another one may do without.
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

// newQueue returns a queue for one lane of several, or for one that has the whole device.
func (r *run) newQueue(name string, lane bool) (gpu.Queue, error) {
	if lane {
		return r.device.NewLaneQueue(name)
	}
	return r.device.NewQueue(name)
}
