package runner

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/sink"
)

// TestARunOpensTheOtherGPUsWhenOneIsLost loses the first of three GPUs, then the next one, then the last.
func TestARunOpensTheOtherGPUsWhenOneIsLost(t *testing.T) {
	defer goleak.VerifyNone(t)
	library, before := cudatest.Library(t), gpus
	var lost atomic.Int64 // the GPUs with lower numbers cannot launch kernels
	var opened [][]int
	gpus = &idleGPUs{keep: time.Hour, open: func(o cuda.Options, numbers []int) (openGPU, error) {
		opened = append(opened, numbers)
		o.Library, o.FaultOn = library, func(ordinal int, call string) error {
			if int64(ordinal) >= lost.Load() || call != "cuLaunchKernel" {
				return nil
			}
			return &cuda.Error{Call: call, Code: 719, Name: "CUDA_ERROR_LAUNCH_FAILED", Text: "lost"}
		}
		o.Fault = func(call string) error { return o.FaultOn(o.Ordinal, call) }
		return openGPUs(o, numbers)
	}}
	defer func() { gpus = before }()
	run := func(use string, n int64) (*execution.Report, *fakeTarget, error) {
		lost.Store(n)
		opened = nil
		target := &fakeTarget{faults: &faults{}}
		r, err := planOf(sortOf(scanOf(&fakeTable{faults: &faults{}, strides: 9})), target).run(t.Context(),
			execution.Options{Use: use, HostMemory: 64 << 20, DeviceMemory: 64 << 20})
		require.NoError(t, CloseIdle())
		return r, target, err
	}
	r, target, err := run("cuda:0,1,2", 1)
	require.NoError(t, err)
	require.Equal(t, "abortcommit", target.ended)
	require.Len(t, r.Lost, 1)
	require.Equal(t, "cuda:0", r.Lost[0].Device)
	require.Equal(t, [][]int{{0, 1, 2}, {1, 2}}, opened)
	r, target, err = run("cuda:0,1,2", 2)
	require.NoError(t, err)
	require.Equal(t, "abortabortcommit", target.ended)
	require.Len(t, r.Lost, 2)
	require.Equal(t, [][]int{{0, 1, 2}, {1, 2}, {2}}, opened)
	_, target, err = run("cuda:0,1,2", 3)
	require.ErrorContains(t, err, "lost")
	require.Equal(t, "abortabortabort", target.ended, "the CPU was not asked for")
	r, _, err = run("cuda", 1)
	require.ErrorContains(t, err, "lost")
	require.Empty(t, r.Lost)
}

// goneTarget is a target whose rows cannot be taken back.
type goneTarget struct {
	fakeTarget
	written atomic.Int64
}

func (t *goneTarget) Irrevocable() bool { return true }
func (t *goneTarget) Create(*gpu.Schema, execution.TargetOptions) (sink.Sink, error) {
	return t, nil
}
func (t *goneTarget) Write(ctx context.Context, s *gpu.Stride) error {
	t.written.Add(int64(s.Rows))
	return t.fakeTarget.Write(ctx, s)
}
func (t *goneTarget) Stats() sink.Stats { return sink.Stats{Rows: t.written.Load()} }

// streamTable is a table that is read once.
type streamTable struct{ *fakeTable }

func (streamTable) IsStream() bool { return true }

// TestARunDoesNotStartAgainWhenRowsAreGone denies memory to runs that have read or written rows for good.
func TestARunDoesNotStartAgainWhenRowsAreGone(t *testing.T) {
	for what, c := range map[string]struct{ written, stream, again bool }{
		"nothing is gone":   {again: true},
		"rows are written":  {written: true},
		"a stream was read": {stream: true},
	} {
		target := &goneTarget{fakeTarget: fakeTarget{faults: &faults{}}}
		strides, denied := 0, false
		op := operators.Stateless(oneColumn, func(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
			strides++
			for c.written && strides == 2 && target.written.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			if !denied && (!c.written || strides == 2) {
				denied = true
				return nil, t.Lease.Reserve(1 << 50)
			}
			return s.Retain(), nil
		})
		scan := scanOf(&fakeTable{faults: &faults{}, strides: 3})
		if c.stream {
			spec := scan.Spec.(*physical.Scan)
			spec.Table = streamTable{spec.Table.(*fakeTable)}
		}
		st := &physical.Stage{Step: "short", Spec: operatorOf("operator", op), Schema: oneColumn,
			Inputs: []*physical.Stage{scan}}
		dev := hosttest.Open(t)
		report, err := planOf(st, target).run(t.Context(), execution.Options{Device: dev, Threads: 1})
		if c.again {
			require.NoError(t, err, what)
			require.NotEmpty(t, report.Restarted, what)
			continue
		}
		require.ErrorIs(t, err, gpu.ErrBudget, what)
		require.Empty(t, report.Restarted, what)
		require.Equal(t, "abort", target.ended, what)
	}
}
