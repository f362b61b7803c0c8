package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
)

// faultyEngine runs tasks in this process, and lets some of them meet a fault.
type faultyEngine struct {
	*InProcess
	folder string
	out    string // the folder around the output

	mu   sync.Mutex
	rand *rand.Rand
	met  map[string]bool
}

// Faults that RunTasks has to get over, unless a task is lost too often; and those that end a run.
var (
	passingFaults = []string{"delivered twice", "lost before it began", "lost after it ended", "killed", "late"}
	endingFaults  = []string{"file lost", "file damaged", "file cut", "another version", "another result",
		"fewer rows read"}
)

// fault chooses the fault of an attempt: none for most.
func (e *faultyEngine) fault() (string, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var fault string
	switch n := e.rand.IntN(100); {
	case n < 30:
		fault = passingFaults[e.rand.IntN(len(passingFaults))]
	case n < 34:
		fault = endingFaults[e.rand.IntN(len(endingFaults))]
	}
	return fault, e.rand.IntN(1 << 30)
}

// meets notes that a run has met a fault.
func (e *faultyEngine) meets(fault string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.met[fault] = true
}

// written returns the path of a file that a task has written, or "" if there is none yet.
func (e *faultyEngine) written(n int, fault string) string {
	files, _ := filepath.Glob(filepath.Join(e.folder, "*", "*.rows"))
	if fault != "file damaged" { // nobody reads those of the output again
		more, _ := filepath.Glob(filepath.Join(e.out, ".*.tmp", "*.parquet"))
		files = append(files, more...)
	}
	if len(files) == 0 {
		return ""
	}
	return files[n%len(files)]
}

// Run implements Engine.
func (e *faultyEngine) Run(ctx context.Context, worker int, path string) (*TaskResult, error) {
	fault, n := e.fault()
	lost := fmt.Errorf("%w: %s", ErrLost, fault)
	run := func(ctx context.Context) (*TaskResult, error) { return e.InProcess.Run(ctx, worker, path) }
	switch fault {
	case "delivered twice":
		e.meets(fault)
		var other *TaskResult
		var failed error
		var both sync.WaitGroup
		both.Go(func() { other, failed = run(ctx) })
		one, err := run(ctx)
		both.Wait()
		if err == nil && failed == nil && one.Attempt != other.Attempt {
			return nil, fmt.Errorf("%s counts twice: attempts %s and %s", one.Name, one.Attempt, other.Attempt)
		}
		return one, errors.Join(err, failed)
	case "lost before it began":
		e.meets(fault)
		return nil, lost
	case "lost after it ended":
		e.meets(fault)
		if _, err := run(ctx); err != nil {
			return nil, err
		}
		return nil, lost
	case "killed":
		e.meets(fault)
		killed, cancel := context.WithTimeout(ctx, time.Duration(n%4000)*time.Microsecond)
		defer cancel()
		result, err := run(killed)
		if killed.Err() != nil && ctx.Err() == nil {
			return nil, lost
		}
		return result, err
	case "late":
		e.meets(fault)
		time.Sleep(time.Duration(n%20) * time.Millisecond)
	case "file lost", "file damaged", "file cut":
		file := e.written(n, fault)
		text, err := os.ReadFile(file)
		if err != nil || len(text) == 0 {
			break
		}
		e.meets(fault)
		switch fault {
		case "file lost":
			err = os.Remove(file)
		case "file cut":
			err = os.Truncate(file, int64(n%len(text)))
		default:
			text[n%len(text)] ^= byte(1 << (n % 8))
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	case "another version":
		document, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		changed := bytes.Replace(document, []byte(fmt.Sprintf(`"task_version":%d`, taskVersion)), []byte(`"task_version":99`), 1)
		if bytes.Equal(changed, document) {
			return nil, errors.New("the document has no version")
		}
		e.meets(fault)
		return RunTask(ctx, changed, e.Options)
	case "another result", "fewer rows read":
		result, err := run(ctx)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(result)
		if err != nil {
			return nil, err
		}
		var wrong TaskResult
		if err := json.Unmarshal(text, &wrong); err != nil {
			return nil, err
		}
		if fault == "another result" {
			wrong.Name += " of another fragment"
			e.meets(fault)
		}
		for name, part := range wrong.Read {
			if fault != "another result" && part.Rows > 0 {
				part.Rows--
				wrong.Read[name] = part
				e.meets(fault)
			}
		}
		return &wrong, nil
	}
	return run(ctx)
}

// TestTasksGiveTheRowsOrAnErrorWithAnyFault runs a job in tasks that meet faults. GSTREAM_CASES is the number of runs.
func TestTasksGiveTheRowsOrAnErrorWithAnyFault(t *testing.T) {
	seed, cases := gputest.Seed(t), gputest.Cases(t, 20)
	dir := t.TempDir()
	for name, query := range map[string]string{
		"facts": "select k, k % 97 as d, k * 7 % 1000 as v, 'row ' || k % 13 as s from range(6000) t(k)",
		"dims":  "select k as d, 'name ' || k as name from range(90) t(k)",
	} {
		_, err := New(name).SQL(query).Write(filepath.Join(dir, name+".parquet"), ParquetOptions{RowGroupRows: 1000}).
			Run(t.Context(), RunOptions{Use: Host})
		require.NoError(t, err)
	}
	out := filepath.Join(dir, "out", "out.parquet")
	plan := func(to string) *Plan {
		p, err := New("faults").Read("facts", filepath.Join(dir, "facts.parquet")).
			Read("dims", filepath.Join(dir, "dims.parquet")).
			SQL("with sums as (select d, s, count(*) as n, sum(v) as v from facts group by d, s) "+
				"select sums.*, name from sums left join dims on sums.d = dims.d order by v desc, sums.d, s").
			Write(to, ParquetOptions{Overwrite: true}).Plan()
		require.NoError(t, err)
		return p
	}
	opt := RunOptions{Use: Host, Threads: 2, HostMemory: 64 << 20, Exchanges: Always}
	p := plan(out)
	_, err := p.Run(t.Context(), opt)
	p.Close()
	require.NoError(t, err)
	want := rowsOf(t, out)

	r := rand.New(rand.NewPCG(seed, 1))
	met, good, bad := map[string]bool{}, 0, 0
	for i := range cases {
		require.NoError(t, os.RemoveAll(filepath.Dir(out)))
		e := &faultyEngine{InProcess: &InProcess{opt}, folder: t.TempDir(), out: filepath.Dir(out),
			met: map[string]bool{}, rand: rand.New(rand.NewPCG(r.Uint64(), 2))}
		to := out
		if i%2 == 1 {
			to += "/" // tasks write its files
		}
		p := plan(to)
		_, err := p.RunTasks(t.Context(), opt, TaskOptions{Engine: e, Workers: 4, Folder: e.folder, LeastBytes: 1})
		p.Close()
		left, wrong := os.ReadDir(e.folder)
		require.NoError(t, wrong)
		require.Empty(t, left, "%v: %v", e.met, err)
		ending := false
		for _, f := range endingFaults {
			ending = ending || e.met[f]
		}
		for f := range e.met {
			met[f] = true
		}
		if err == nil {
			good++
			require.Equal(t, want, rowsOf(t, out), "%v", e.met)
			left, wrong := os.ReadDir(e.out)
			require.NoError(t, wrong)
			require.Len(t, left, 1, "%v", e.met)
			require.False(t, e.met["another version"] || e.met["another result"], "%v", e.met)
			continue
		}
		bad++
		require.True(t, ending || errors.Is(err, ErrLost), "%v: %v", e.met, err)
		require.NotContains(t, err.Error(), "counts twice")
		_, wrong = os.Stat(filepath.Dir(out))
		require.ErrorIs(t, wrong, os.ErrNotExist, "%v: %v", e.met, err)
	}
	t.Logf("%d runs gave the rows, %d an error; they met %v", good, bad, met)
	if cases >= 20 {
		require.Positive(t, good)
		require.Positive(t, bad)
	}
}
