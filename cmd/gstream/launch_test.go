package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
)

// script writes a program of the shell.
func script(t *testing.T, dir, name, text string) (path string) {
	path = filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o777))
	return path
}

// launcherPath puts a folder for programs in front of PATH. It has gstream.
func launcherPath(t *testing.T) (dir string) {
	dir = t.TempDir()
	exe, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(exe, filepath.Join(dir, "gstream")))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("GSTREAM_TEST_MAIN", "1")
	return dir
}

// srun is a program in the place of Slurm's: it runs the words that follow its flags.
const srun = `while case $1 in --*) ;; *) false ;; esac; do shift; done
exec "$@"
`

// launched runs a job of the quickstart in tasks, and checks that the rows are those of a plain run, and that the work
// folder is empty afterwards.
func launched(t *testing.T, work string, run func(job string) *exec.Cmd) (log string) {
	t.Helper()
	job, out := jobFile(t, "  - group: {by: [o_custkey], aggregates: {n: count(*), p: sum(o_totalprice)}}\n"+
		"  - sort: [o_custkey]", "")
	code, _, stderr := gstream("run", job, "--device", "host")
	require.Equal(t, exitOK, code, stderr)
	_, want, _ := gstream("show", out, "--format", "csv", "--rows", "100000")
	require.NoError(t, os.Remove(out))
	c := run(job)
	said, err := c.CombinedOutput()
	require.NoError(t, err, "%s", said)
	code, got, stderr := gstream("show", out, "--format", "csv", "--rows", "100000")
	require.Equal(t, exitOK, code, stderr)
	require.True(t, want == got, "other rows")
	require.Empty(t, filesIn(t, work))
	return string(said)
}

// TestALauncherStartsTasks runs tasks by a launcher that starts them in another folder, loses the first attempt of each
// one with its own exit code, delivers each task twice, writes lines of its own, and fails after its task has ended.
func TestALauncherStartsTasks(t *testing.T) {
	dir, work, seen := launcherPath(t), t.TempDir(), t.TempDir()
	path := script(t, dir, "launcher", `cd / || exit 1
shift # --a-flag
if mkdir `+seen+`/$(basename "$3"); then echo "no node is free" >&2; exit 77; fi
"$@" >/dev/null &
"$@"
wait
echo '{"not": "the outcome"}'
exit 3
`)
	begin := func(job string, more ...string) *exec.Cmd {
		return exec.Command("gstream", append([]string{"run", job, "--device", "host", "--threads", "1", "--workers",
			"2", "--work-dir", work, "--launch", path + " --a-flag"}, more...)...)
	}
	log := launched(t, work, func(job string) *exec.Cmd { return begin(job) })
	require.Contains(t, log, "no node is free")
	tasks, err := os.ReadDir(seen)
	require.NoError(t, err)
	require.Greater(t, len(tasks), 1)

	// One that passes on no output: the result is in the work folder.
	script(t, dir, "launcher", "shift\n\"$@\" >/dev/null\n")
	launched(t, work, func(job string) *exec.Cmd { return begin(job) })

	// The error of a task has the exit code of a plain run.
	script(t, dir, "launcher", "shift\nexec \"$@\"\n")
	job, out := jobFile(t, "  - group: {by: [o_custkey], aggregates: {n: sum(cast(o_comment as integer))}}", "")
	code, _, stderr := gstream("run", job, "--device", "host")
	require.Equal(t, exitData, code, stderr)
	c := begin(job)
	said, _ := c.CombinedOutput()
	require.Equal(t, exitData, c.ProcessState.ExitCode(), "%s", said)
	require.NotContains(t, string(said), "lost")

	// It never starts a task.
	require.NoError(t, os.RemoveAll(out))
	script(t, dir, "launcher", "echo out of nodes >&2; exit 2\n")
	job, out = jobFile(t, "  - group: {by: [o_custkey], aggregates: {n: count(*)}}", "")
	c = begin(job)
	said, err = c.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "out of nodes")
	require.Empty(t, filesIn(t, work))
	require.NoFileExists(t, out)

	// An interrupt ends the launcher.
	script(t, dir, "launcher", "trap 'kill $!; touch "+seen+"/ended; exit 143' TERM\ntouch "+seen+
		"/begun\nsleep 60 >/dev/null 2>&1 &\nwait\n")
	var text bytes.Buffer
	c = begin(job)
	c.Stderr = &text
	require.NoError(t, c.Start())
	require.Eventually(t, func() bool { _, err := os.Stat(seen + "/begun"); return err == nil }, time.Minute,
		5*time.Millisecond)
	sendSignal(t, c, syscall.SIGINT)
	require.Equal(t, exitInterrupted, c.ProcessState.ExitCode(), text.String())
	require.FileExists(t, seen+"/ended")
	require.Empty(t, filesIn(t, work))

	for _, flags := range [][]string{{"--launch", path}, {"--launch", path, "--workers", "2"},
		{"--launch", "no-such-launcher", "--workers", "2", "--work-dir", work},
		{"--launch", " ", "--workers", "2", "--work-dir", work}} {
		code, _, said := gstream(append([]string{"run", job}, flags...)...)
		require.Equal(t, exitJob, code, said)
		require.Contains(t, said, "--launch")
	}
}

// TestTheExamplesOfLaunchersRunTasks runs the script of Slurm and that of Kubernetes with programs in the place of srun
// and kubectl.
func TestTheExamplesOfLaunchersRunTasks(t *testing.T) {
	dir, work, seen := launcherPath(t), t.TempDir(), t.TempDir()
	examples, err := filepath.Abs("../../examples/scale")
	require.NoError(t, err)
	script(t, dir, "srun", "echo \"$@\" >>"+seen+"/srun\n"+srun)
	t.Setenv("WORK", work)
	t.Setenv("SLURM_NTASKS", "2")
	t.Setenv("SLURM_CPUS_PER_TASK", "1")
	launched(t, work, func(job string) *exec.Cmd {
		return exec.Command("bash", examples+"/slurm.sbatch", job, "--device", "host")
	})
	said, err := os.ReadFile(seen + "/srun")
	require.NoError(t, err)
	require.Contains(t, string(said), "--cpus-per-task=1 ")
	require.Contains(t, string(said), "--threads 1 ")

	script(t, dir, "scontrol", "echo localhost\necho elsewhere\n")
	script(t, dir, "srun", `shift
SLURM_PROCID=1 "$@" &
SLURM_PROCID=0 "$@" || exit
wait
`)
	_, port, err := net.SplitHostPort(gputest.FreeAddress(t))
	require.NoError(t, err)
	t.Setenv("SLURM_JOB_NODELIST", "here[1-2]")
	t.Setenv("SLURM_JOB_ID", "7"+port[1:]) // from whose last digits the script makes a port
	t.Setenv("PLANE", "tcp")
	launched(t, work, func(job string) *exec.Cmd {
		return exec.Command("bash", examples+"/ranks.sbatch", job, "--device", "host")
	})

	script(t, dir, "kubectl", `cd `+seen+`
case $1 in
create)
	cat >job.$$
	name=$(sed -n 's/^  name: //p' job.$$)
	mv job.$$ "$name.yaml"
	args=$(sed -n 's/^ *args: \[\(.*\), "--spill-dir".*\]$/\1/p' "$name.yaml" | tr , ' ')
	eval "gstream $args" >"$name.log" 2>&1 && echo 1, >"$name.state" || echo ,1 >"$name.state" ;;
get) cat "$3.state" ;;
logs) cat "${2#job/}.log" ;;
delete) mv "$3.yaml" "$3.deleted" ;;
*) exit 1 ;;
esac
`)
	launched(t, work, func(job string) *exec.Cmd {
		return exec.Command("gstream", "run", job, "--device", "host", "--workers", "2", "--work-dir", work, "--launch",
			examples+"/kubernetes.sh")
	})
	left, err := filepath.Glob(seen + "/*.yaml")
	require.NoError(t, err)
	require.Empty(t, left)
	jobs, err := filepath.Glob(seen + "/*.deleted")
	require.NoError(t, err)
	require.NotEmpty(t, jobs)
	text, err := os.ReadFile(jobs[0])
	require.NoError(t, err)
	var j struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			BackoffLimit *int `yaml:"backoffLimit"`
			Template     struct {
				Spec struct {
					RestartPolicy string `yaml:"restartPolicy"`
					Containers    []struct{ Args []string }
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &j))
	require.Equal(t, "Job", j.Kind)
	require.True(t, strings.HasPrefix(filepath.Base(jobs[0]), j.Metadata.Name))
	require.Zero(t, *j.Spec.BackoffLimit)
	require.Equal(t, "Never", j.Spec.Template.Spec.RestartPolicy)
	require.Equal(t, "task", j.Spec.Template.Spec.Containers[0].Args[0])
}
