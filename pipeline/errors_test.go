package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// classes are those of errors.go.
var classes = []error{ErrDefect, ErrDevice, ErrJob, ErrData, ErrBudget, ErrChanged, ErrOutput, ErrFile, ErrCancelled}

// failingTable is a table whose scans fail.
type failingTable struct {
	source.Table
	err error
}

func (t failingTable) Scan(context.Context, source.ScanOptions) (source.Reader, error) {
	return nil, t.err
}

func TestErrorsOfRunsHaveClasses(t *testing.T) {
	theirs := errors.New("the service shuts down")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(theirs)
	late, stop := context.WithTimeout(t.Context(), -1)
	defer stop()
	out := filepath.Join(t.TempDir(), "out.parquet")
	require.NoError(t, os.WriteFile(out, nil, 0o600))
	read := func() *Builder { return New("classes").ReadTable("t", thousand(t)) }
	failing := func(err error) *Builder { return New("classes").ReadTable("t", failingTable{thousand(t), err}) }
	for name, c := range map[string]struct {
		ctx   context.Context
		job   *Builder
		opt   RunOptions
		class error
		also  error
	}{
		"a value that fails": {nil, read().Select("k // (k - 5) as x"), RunOptions{}, ErrData, nil},
		"a cast":             {nil, read().Select("name::integer as x"), RunOptions{}, ErrData, nil},
		"a sum": {nil,
			read().Group(nil, "sum((k * 100000000000000000)::decimal(38, 0) * 1000000000000000000) as x"), RunOptions{},
			ErrData, nil},
		"a value for the output": {nil, read().Select("repeat(name, 100) as p", "k"), RunOptions{}, ErrData, nil},
		"a budget": {nil, read().Sort("name"), RunOptions{HostMemory: 1 << 12, SpillDir: "none"},
			ErrBudget, nil},
		"a column that is not there": {nil, read().Select("x"), RunOptions{}, ErrJob, nil},
		"an output that is there":    {nil, read(), RunOptions{}, ErrOutput, fs.ErrExist},
		"an input that is not there": {nil, New("classes").Read("t", filepath.Join(t.TempDir(), "no.parquet")),
			RunOptions{}, ErrFile, fs.ErrNotExist},
		"a context that is ended": {ended, read(), RunOptions{}, ErrCancelled, theirs},
		"a time that is over":     {late, read(), RunOptions{}, ErrCancelled, context.DeadlineExceeded},
		"a damaged file":          {nil, failing(fmt.Errorf("x: %w", source.ErrData)), RunOptions{}, ErrData, nil},
		"a changed file": {nil, failing(fmt.Errorf("x: %w", source.ErrChanged)), RunOptions{}, ErrChanged,
			nil},
		"a file": {nil, failing(&fs.PathError{Op: "read", Path: "x", Err: syscall.EIO}),
			RunOptions{}, ErrFile, syscall.EIO},
		"no class": {nil, failing(theirs), RunOptions{}, nil, theirs},
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "an output that is there":
				c.job.Write(out, sinkparquet.Options{})
			case "a value for the output":
				c.job.Write(filepath.Join(t.TempDir(), "p"), sinkparquet.Options{PartitionBy: []string{"p"}})
			default:
				c.job.WriteTo(&Collector{})
			}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			c.opt.Use, c.opt.Threads = Host, 1
			_, err := c.job.Run(c.ctx, c.opt)
			require.Error(t, err)
			for _, class := range classes {
				assert.Equal(t, class == c.class, errors.Is(err, class), "%v: %v", class, err)
			}
			assert.Equal(t, c.class, Class(err))
			if c.also != nil {
				assert.ErrorIs(t, err, c.also)
			}
		})
	}
}

func TestClassOfAnErrorOfSeveralCauses(t *testing.T) {
	device := gpu.Failed("launch: %w", &cuda.Error{Call: "cuLaunchKernel", Code: 719})
	for _, c := range []struct {
		err  error
		want error
	}{
		{nil, nil},
		{errors.New("anything"), nil},
		{errors.Join(context.Canceled, ErrDefect), ErrDefect},
		{errors.Join(fs.ErrNotExist, context.Canceled), ErrCancelled},
		{&Diagnostic{Err: fmt.Errorf("%w: x", source.ErrData)}, ErrData},
		{&Diagnostic{}, ErrJob},
		{device, ErrDevice},
		{fmt.Errorf("x: %w", gpu.Panicked("a primitive", "index out of range", nil)), ErrDefect},
		{gpu.Failed("in x: divided by zero"), ErrData},
		{gpu.Exceeded("too long"), ErrData},
		{&gpu.AllocError{Err: &cuda.Error{Code: 2}}, ErrBudget},
		{fmt.Errorf("map: %w", syscall.ENOMEM), ErrBudget},
		{fmt.Errorf("write: %w", syscall.ENOSPC), ErrFile},
		{&gpu.BudgetError{Cause: &fs.PathError{Err: syscall.EACCES}}, ErrFile},
		{&gpu.BudgetError{Cause: &gpu.BudgetError{Tier: "disk"}}, ErrBudget},
		{errors.Join(source.ErrChanged, source.ErrData), ErrChanged},
	} {
		assert.Equal(t, c.want, Class(c.err), "%v", c.err)
	}
}
