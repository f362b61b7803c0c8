package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
	sourceexchange "github.com/gstream/gstream/source/exchange"
)

// inTasks runs a plan in tasks of this process, each on a device of its own, and checks that nothing is left.
func inTasks(t testing.TB, p *Plan, opt RunOptions, workers int) (*Report, error) {
	folder := t.TempDir()
	r, err := p.RunTasks(t.Context(), opt, TaskOptions{Engine: &InProcess{opt}, Workers: workers, Folder: folder,
		LeastBytes: 1})
	left, wrong := os.ReadDir(folder)
	require.NoError(t, wrong)
	require.Empty(t, left)
	return r, err
}

// scriptedEngine runs tasks in this process, as a test says for each attempt.
type scriptedEngine struct {
	InProcess
	script func(path string, attempt int, run func() (*TaskResult, error)) (*TaskResult, error)

	mu       sync.Mutex
	attempts map[string]int // by the path of the task
}

// Run implements Engine.
func (e *scriptedEngine) Run(ctx context.Context, worker int, path string) (*TaskResult, error) {
	name := filepath.Base(path)
	e.mu.Lock()
	e.attempts[name]++
	attempt := e.attempts[name]
	e.mu.Unlock()
	return e.script(name, attempt, func() (*TaskResult, error) { return e.InProcess.Run(ctx, worker, path) })
}

// TestRunTasksWithAnEngineThatMisbehaves runs one plan on engines that return results late, errors, and wrong results.
// The first fragment reads the table in several tasks, the second groups its rows.
func TestRunTasksWithAnEngineThatMisbehaves(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.parquet"), filepath.Join(dir, "out.parquet")
	_, err := New("in").SQL("select k, k % 50 as g from range(4000) t(k)").
		Write(in, ParquetOptions{RowGroupRows: 500}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	opt := RunOptions{Use: Host, Threads: 1, HostMemory: 64 << 20, Exchanges: Always, Overwrite: true}
	run := func(query string, script func(string, int, func() (*TaskResult, error)) (*TaskResult, error)) (
		*Report, *scriptedEngine, error) {
		p, err := New("job").Read("t", in).SQL(query).Write(out, ParquetOptions{}).Plan()
		require.NoError(t, err)
		defer p.Close()
		e := &scriptedEngine{InProcess: InProcess{opt}, script: script, attempts: map[string]int{}}
		folder := t.TempDir()
		r, err := p.RunTasks(t.Context(), opt, TaskOptions{Engine: e, Workers: 3, Folder: folder, LeastBytes: 1,
			Patience: -1})
		left, wrong := os.ReadDir(folder)
		require.NoError(t, wrong)
		require.Empty(t, left)
		return r, e, err
	}
	const groups = "select g, count(*) as n, sum(k) as s from t group by g"
	const ranked = "select k, row_number() over (order by k) as n from t order by k desc"
	const first = "1-1.task.json"

	t.Run("results in another order", func(t *testing.T) {
		var others sync.WaitGroup
		others.Add(2)
		_, e, err := run(ranked, func(path string, _ int, run func() (*TaskResult, error)) (*TaskResult, error) {
			switch path {
			case first:
				others.Wait()
			case "1-2.task.json", "1-3.task.json":
				defer others.Done()
			}
			return run()
		})
		require.NoError(t, err)
		require.Contains(t, e.attempts, "1-3.task.json")
		rows := rowsOf(t, out)
		require.Len(t, rows, 4000)
		p, err := New("job").Read("t", in).SQL(ranked).Write(out, ParquetOptions{}).Plan()
		require.NoError(t, err)
		defer p.Close()
		_, err = p.Run(t.Context(), opt)
		require.NoError(t, err)
		require.Equal(t, rowsOf(t, out), rows)
	})
	t.Run("an error that does not pass", func(t *testing.T) {
		_, e, err := run(groups, func(path string, _ int, run func() (*TaskResult, error)) (*TaskResult, error) {
			if path == first {
				return nil, errors.New("the sum overflows")
			}
			return run()
		})
		require.ErrorContains(t, err, "the sum overflows")
		require.Equal(t, 1, e.attempts[first])
	})
	t.Run("a task that is lost once", func(t *testing.T) {
		r, e, err := run(groups, func(path string, attempt int, run func() (*TaskResult, error)) (*TaskResult, error) {
			if path == first && attempt == 1 {
				return nil, ErrLost
			}
			return run()
		})
		require.NoError(t, err)
		require.Equal(t, 2, e.attempts[first])
		require.Equal(t, 1, r.Tasks[0].Lost)
		require.Zero(t, r.Tasks[0].Running)
		require.InDelta(t, 1, r.Tasks[0].SlowestShare, 1)
		require.Positive(t, r.Tasks[0].SlowestShare)
		require.Len(t, rowsOf(t, out), 50)
	})
	t.Run("a task that is always lost", func(t *testing.T) {
		_, e, err := run(groups, func(path string, _ int, run func() (*TaskResult, error)) (*TaskResult, error) {
			if path == first {
				return nil, ErrLost
			}
			return run()
		})
		require.ErrorIs(t, err, ErrLost)
		require.Equal(t, 1+taskFailures, e.attempts[first])
	})
	for name, change := range map[string]func(*TaskResult){
		"rows read":           func(r *TaskResult) { changeRead(r, func(p *sourceexchange.Part) { p.Rows++ }) },
		"a checksum read":     func(r *TaskResult) { changeRead(r, func(p *sourceexchange.Part) { p.Sum++ }) },
		"rows written":        func(r *TaskResult) { r.Parts[0].Rows++ },
		"a checksum of those": func(r *TaskResult) { r.Parts[0].Sum++ },
	} {
		t.Run("a result with "+name, func(t *testing.T) {
			_, _, err := run(groups, func(path string, _ int, run func() (*TaskResult, error)) (*TaskResult, error) {
				r, err := run()
				if err == nil && (path == first || path == "2-1.task.json") {
					change(r) // the first fragment reads no rows of tasks, and nothing is compared with the second's
				}
				return r, err
			})
			require.ErrorIs(t, err, source.ErrData)
			require.ErrorContains(t, err, "fragment 2")
			require.ErrorContains(t, err, "of fragment 1")
			require.ErrorContains(t, err, "or other rows than were written")
		})
	}
}

// changeRead changes what a result says about the rows that its task has read.
func changeRead(r *TaskResult, change func(*sourceexchange.Part)) {
	for name, p := range r.Read {
		change(&p)
		r.Read[name] = p
	}
}
