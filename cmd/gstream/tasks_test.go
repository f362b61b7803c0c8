package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/pipeline"
)

// tasksJob writes a job whose plan has several fragments, and whose tasks write an output. It returns the file and the
// folder of the outputs.
func tasksJob(t *testing.T) (path, out string) {
	path, _ = jobFile(t, "", "")
	abs, err := filepath.Abs(data)
	require.NoError(t, err)
	text := "sources: {orders: " + abs + "/orders.parquet, lines: " + abs + "/lineitem.parquet, customers: " + abs +
		"/customer.parquet}\nsteps:\n  - sql: |\n" +
		"      select c_mktsegment, o_orderpriority, l_shipmode, count(*) as n, sum(l_extendedprice) as price\n" +
		"      from lines join orders on l_orderkey = o_orderkey join customers on o_custkey = c_custkey\n" +
		"      group by all order by price desc\n    name: groups\n" +
		"  - {from: lines, filter: l_quantity > 20, name: some}\n" +
		"outputs: [{from: groups, csv: out/out.csv}, {from: some, parquet: out/some/, rows_per_file: 3000}]\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path, filepath.Join(filepath.Dir(path), "out")
}

// rowsOfTasksJob returns the rows of both outputs.
func rowsOfTasksJob(t *testing.T, out string) string {
	entries, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, entries, 2, "something is left next to the outputs")
	groups, err := os.ReadFile(filepath.Join(out, "out.csv"))
	require.NoError(t, err)
	code, some, stderr := gstream("show", filepath.Join(out, "some"), "--format", "csv", "--rows", "1000000")
	require.Zero(t, code, stderr)
	return string(groups) + some
}

// childrenOf returns the processes that a process has started.
func childrenOf(pid int) (out []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// TestARunOnWorkersGivesTheRowsOrAnErrorWithAnyFault kills processes of a run, and gives it no room on disks.
// GSTREAM_CASES is the number of runs with each fault.
func TestARunOnWorkersGivesTheRowsOrAnErrorWithAnyFault(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("the test finds processes in /proc")
	}
	seed, cases := gputest.Seed(t), gputest.Cases(t, 1)
	r := rand.New(rand.NewPCG(seed, 3))
	path, out := tasksJob(t)
	code, _, stderr := gstream("run", path, "--device", "host")
	require.Zero(t, code, stderr)
	want := rowsOfTasksJob(t, out)
	work := t.TempDir()
	args := []string{"run", path, "--device", "host", "--workers", "3", "--work-dir", work, "--task-size", "64KiB",
		"--threads", "3"}
	killed, ends := 0, map[string]int{}
	faults := []string{"nothing", "workers are killed", "no room", "the run is killed"}
	if cases > 1 { // each may take half a minute
		faults = append(faults, "a worker stops")
	}
	for n := range len(faults)*cases + 1 { // the last run removes what the one before has left
		if entries, err := os.ReadDir(out); err == nil { // what a run has left stays, for the next one
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), ".") {
					require.NoError(t, os.RemoveAll(filepath.Join(out, e.Name())))
				}
			}
			_ = os.Remove(out)
		}
		fault, stopped := faults[n%len(faults)], 0
		var stderr bytes.Buffer
		room := 0
		if fault == "no room" { // for files longer than some KiB
			room = 8 + r.IntN(64)
		}
		cmd := startGroup(t, &stderr, room, args...)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		over := time.After(2 * time.Minute)
		for wait := true; wait; {
			next := time.Duration(20+r.IntN(150)) * time.Millisecond
			if killed == 0 {
				next /= 4 // a run may be short
			}
			select {
			case <-ended:
				wait = false
			case <-over:
				_ = cmd.Process.Signal(syscall.SIGQUIT) // for the stacks
				<-ended
				t.Fatalf("%s: the run does not end: %s", fault, stderr.String())
			case <-time.After(next):
				all := childrenOf(cmd.Process.Pid)
				switch {
				case len(all) == 0:
				case fault == "workers are killed":
					if syscall.Kill(all[r.IntN(len(all))], syscall.SIGKILL) == nil {
						killed++
					}
				case fault == "a worker stops" && stopped == 0:
					// The run waits while the system starts a process that is stopped.
					one := all[r.IntN(len(all))]
					if words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", one)); !bytes.Contains(words,
						[]byte("--attended")) {
						continue
					}
					if stopped = one; syscall.Kill(stopped, syscall.SIGSTOP) != nil {
						stopped = 0
					}
				case fault == "the run is killed":
					require.NoError(t, cmd.Process.Kill())
				}
			}
		}
		code := cmd.ProcessState.ExitCode()
		ends[fmt.Sprint(fault, ": ", code)]++
		_, missing := os.Stat(out)
		if fault == "the run is killed" && code != 0 {
			require.Eventually(t, func() bool { return !works(cmd.Process.Pid) }, 20*time.Second, 10*time.Millisecond,
				"a task goes on after its run was killed")
			if _, err := os.Stat(filepath.Join(out, "out.csv")); err == nil { // it had committed its outputs
				require.Equal(t, want, rowsOfTasksJob(t, out), fault)
			}
			continue // the next run removes what is left
		}
		left, err := os.ReadDir(work)
		require.NoError(t, err)
		require.Empty(t, left, "%s: %s", fault, stderr.String())
		if code == 0 {
			require.Equal(t, want, rowsOfTasksJob(t, out), fault)
			continue
		}
		require.NotEqual(t, "nothing", fault, stderr.String())
		require.Contains(t, stderr.String(), map[string]string{"no room": "too large",
			"workers are killed": "ended without a result"}[fault], fault)
		require.ErrorIs(t, missing, os.ErrNotExist, "%s: %s", fault, stderr.String())
	}
	t.Logf("runs by fault and exit code: %v; %d processes of tasks were killed", ends, killed)
	require.Positive(t, killed)
	require.Positive(t, ends["nothing: 0"])
}

// works reports whether a process of a group has not ended.
func works(group int) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // state, parent, group
		return err == nil && len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z"
	})
}

// startGroup is start in a process group of its own, in a shell that limits files to so many KiB, like a disk that is
// full. 0 means no limit.
func startGroup(t *testing.T, stderr io.Writer, kib int, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(t, err)
	limit := "unlimited"
	if kib > 0 {
		limit = strconv.Itoa(kib)
	}
	cmd := exec.Command("bash", append([]string{"-c", "ulimit -f " + limit + `; exec "$@"`, "bash", exe}, args...)...)
	cmd.Env = append(os.Environ(), "GSTREAM_TEST_MAIN=1")
	cmd.Stderr, cmd.SysProcAttr = stderr, &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// TestExplainAndCheckShowTasks compares the forecast of a run in tasks with its report.
func TestExplainAndCheckShowTasks(t *testing.T) {
	t.Setenv("GSTREAM_TEST_MAIN", "1") // tasks are processes of this program
	path, out := tasksJob(t)
	flags := []string{"--device", "host", "--threads", "3", "--workers", "3", "--task-size", "64KiB"}
	code, text, stderr := gstream(append([]string{"explain", path}, flags...)...)
	require.Zero(t, code, stderr)
	for _, want := range []string{"in tasks on 3 processes of this machine; tasks write ", "about 3 tasks",
		"all rows of fragment 1", "its partitions of fragment 3",
		"partitioned by the hash of c_mktsegment, o_orderpriority, l_shipmode", "some: scan, filter, into the output",
		"has written its files", "into files of " + out + "/some/"} {
		require.Contains(t, text, want)
	}
	var explained struct{ Tasks pipeline.TasksForecast }
	code, text, stderr = gstream(append([]string{"explain", path, "--format", "json"}, flags...)...)
	require.Zero(t, code, stderr)
	require.NoError(t, json.Unmarshal([]byte(text), &explained))
	var checked pipeline.Check
	code, text, stderr = gstream(append([]string{"check", path, "--format", "json"}, flags...)...)
	require.Zero(t, code, stderr)
	require.NoError(t, json.Unmarshal([]byte(text), &checked))
	code, text, stderr = gstream(append([]string{"run", path, "--report", "-", "--work-dir", t.TempDir()}, flags...)...)
	require.Zero(t, code, stderr)
	var report pipeline.Report
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	require.Len(t, explained.Tasks.Fragments, len(report.Tasks))
	require.Len(t, checked.Tasks.Fragments, len(report.Tasks))
	for i, f := range report.Tasks {
		require.Equal(t, f.Does, explained.Tasks.Fragments[i].Does)
		require.InDelta(t, f.Tasks, explained.Tasks.Fragments[i].Tasks, 1)
		of := checked.Tasks.Fragments[i]
		require.Positive(t, of.Tiers[0].Needs)
		require.Equal(t, of.Output != "", strings.Contains(f.Does, "into the output"), f.Does)
		require.Equal(t, of.Output == "", of.Written > 0, f.Does)
		require.InEpsilon(t, f.Rows, of.Rows, 1, f.Does)
		require.Equal(t, f.BytesRead > 0, of.Read > 0)
	}
	code, text, _ = gstream(append([]string{"check", path, "--host-memory", "3MiB"}, flags...)...)
	require.Equal(t, exitMemory, code)
	require.Contains(t, text, "a task of fragment ")
	code, _, stderr = gstream(append([]string{"explain", path, "--analyze"}, flags...)...)
	require.Equal(t, exitJob, code)
	require.Contains(t, stderr, "leave out --analyze")
}
