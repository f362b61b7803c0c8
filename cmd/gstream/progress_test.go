package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/source"
)

// screen is a terminal that understands the output of liveProgress.
type screen struct {
	lines []string
	row   int
}

func (s *screen) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		var up int
		switch {
		case strings.HasPrefix(text, "\x1b["):
			end := strings.IndexAny(text, "AJ")
			if text[end] == 'A' {
				fmt.Sscanf(text[2:end], "%d", &up)
				s.row -= up
			} else {
				s.lines = s.lines[:s.row]
			}
			text = text[end+1:]
		default:
			line, rest, _ := strings.Cut(text, "\n")
			s.lines = append(s.lines[:s.row], line)
			s.row++
			text = rest
		}
	}
	return len(p), nil
}

func (s *screen) String() string { return strings.Join(s.lines, "\n") }

// runAt is the state of a run of a scan, a filter and maybe a sort, at some time.
func runAt(wall time.Duration, read int64, kinds ...string) *pipeline.Report {
	r := &pipeline.Report{Wall: wall, Stages: []pipeline.StageReport{
		{Step: "orders", Kind: "scan", State: "running", RowsOut: 10 * read, Busy: wall / 4,
			Scan: &source.Progress{BytesRead: read, BytesTotal: 1000, RowsTotal: 2e6}},
	}}
	for _, k := range kinds {
		r.Stages = append(r.Stages, pipeline.StageReport{Step: "step", Kind: k, State: "running", RowsOut: read,
			Busy: wall / 2, Estimate: 2e6})
	}
	r.Output.Rows = read
	return r
}

func TestLiveProgressShowsNothingInTheFirstSecond(t *testing.T) {
	s := &screen{}
	p := &liveProgress{w: s, size: func() (int, int, error) { return 80, 24, nil }}
	p.update(runAt(900*time.Millisecond, 300))
	p.end(nil, nil, exitOK)
	assert.Empty(t, s.String())
	p.update(runAt(1100*time.Millisecond, 300))
	assert.NotEmpty(t, s.String())
}

func TestLiveProgressRedrawsOneLineAStage(t *testing.T) {
	s := &screen{}
	p := &liveProgress{w: s, size: func() (int, int, error) { return 100, 24, nil }}
	for i := range 5 {
		p.update(runAt(time.Duration(2+i)*time.Second, int64(100*(i+1)), "filter"))
	}
	assert.Equal(t, `6s  █████░░░░░ 50 %  read 50 %
  orders (scan)                        running            5,000 rows       1.5 s  50 %
  step (filter)                        running              500 rows       3.0 s
  output                                                    500 rows       0.0 s  0 B`, s.String())
	p.end(nil, nil, exitOK)
	assert.Empty(t, s.String(), "the block is taken away at the end")
}

func TestLiveProgressFitsTheTerminal(t *testing.T) {
	s := &screen{}
	p := &liveProgress{w: s, size: func() (int, int, error) { return 40, 10, nil }}
	r := runAt(2*time.Second, 100, "filter", "filter", "project", "limit", "filter", "project", "limit", "union")
	for i := range r.Stages {
		r.Stages[i].State = "done"
	}
	r.Stages[8].State = "running"
	p.update(r)
	assert.Less(t, len(s.lines), 10)
	assert.Contains(t, s.String(), "step (union)")
	assert.Contains(t, s.String(), "and 3 more")
	for _, line := range s.lines {
		assert.Less(t, len([]rune(line)), 40)
	}
}

func TestProgressShowsWhatIsSpilledWhere(t *testing.T) {
	s, plain := &screen{}, &bytes.Buffer{}
	live := &liveProgress{w: s, size: func() (int, int, error) { return 80, 24, nil }}
	show := func(host, disk int64) (onTerminal, inLog string) {
		r := runAt(2*time.Second, 300, "sort")
		r.Spill.Host.Now, r.Spill.Disk.Now = host, disk
		live.update(r)
		plain.Reset()
		plainProgress{plain}.update(r)
		return s.lines[0], plain.String()
	}
	head, line := show(0, 0)
	assert.NotContains(t, head+line, "spilled")
	head, line = show(3<<30, 512<<20)
	assert.Equal(t, "2s  ██░░░░░░░░ 15 %  read 30 %, then 0 %  spilled 3.0 GiB host + 512 MiB disk", head)
	assert.Contains(t, line, ", spilled 3.0 GiB host + 512 MiB disk\n")
	head, _ = show(0, 512<<20)
	assert.Equal(t, "2s  ██░░░░░░░░ 15 %  read 30 %, then 0 %  spilled 512 MiB disk", head)
}

func TestProgressShowsTheRowsOfEachGPU(t *testing.T) {
	s, plain := &screen{}, &bytes.Buffer{}
	r := runAt(2*time.Second, 300, "filter", "filter", "filter")
	r.Devices = []pipeline.DeviceReport{{Device: "cuda:0", Rows: 5000, Share: 0.926},
		{Device: "cuda:1", Rows: 400, Share: 0.074}}
	(&liveProgress{w: s, size: func() (int, int, error) { return 80, 6, nil }}).update(r)
	plainProgress{plain}.update(r)
	assert.Equal(t, "  cuda:0 5,000 rows (93 %), cuda:1 400 rows (7 %)", s.lines[1])
	assert.Less(t, len(s.lines), 6)
	assert.Contains(t, plain.String(), ", cuda:0 5,000 rows (93 %), cuda:1 400 rows (7 %)\n")
}

func TestTimeLeftIsShownOnlyWhileItCanBeTrusted(t *testing.T) {
	shown := func(kind string, read func(i int) int64) bool {
		s := &screen{}
		p := &liveProgress{w: s, size: func() (int, int, error) { return 80, 24, nil }}
		for i := range 40 {
			p.update(runAt(time.Duration(i)*250*time.Millisecond, read(i), kind))
		}
		return strings.Contains(s.String(), "left")
	}
	steady := func(i int) int64 { return int64(15 * i) }
	assert.True(t, shown("filter", steady))
	assert.False(t, shown("sort", steady), "a sort begins when its input has ended")
	assert.False(t, shown("group", steady), "so does the output of a large group-by")
	assert.False(t, shown("filter", func(i int) int64 { return int64(i) }), "too little has been read")
	assert.False(t, shown("filter", func(i int) int64 { return int64(i * i / 2) }), "reading becomes faster")
	assert.False(t, shown("filter", func(i int) int64 { return min(int64(50*i), 400) }), "reading has stopped")

	// A sort returns a hundredth of its rows each quarter of a second, once it has read them all in five seconds.
	e := estimator{}
	for i := range 60 {
		r := runAt(time.Duration(i)*250*time.Millisecond, min(int64(50*i), 1000), "sort")
		r.Stages[1].RowsIn, r.Stages[1].RowsOut = 2e6, int64(max(i-20, 0))*2e4
		left, ok := e.estimate(r)
		if i < 25 {
			assert.False(t, ok, "it does not return rows, or too few")
		} else if i > 35 {
			assert.True(t, ok)
			assert.InDelta(t, float64(120-i)/4, left.Seconds(), 2)
		}
	}
	waiting := runAt(5*time.Second, 500, "filter")
	waiting.Stages = append(waiting.Stages, pipeline.StageReport{Kind: "scan", State: "waiting"})
	e = estimator{}
	for range 2 * minGuesses {
		_, ok := e.estimate(waiting)
		assert.False(t, ok, "a scan has not begun")
	}
}

func TestPlainAndJSONProgressAreLines(t *testing.T) {
	for kind, want := range map[string]string{
		"plain": "3s: read 25 %, orders (scan) 2,500 rows, step (filter) 250 rows, wrote 250 rows\n",
		"json":  `{"type":"progress","device":`,
		"none":  "",
		"auto":  "", // not a terminal
	} {
		var b bytes.Buffer
		p, err := newProgress(kind, &b)
		require.NoError(t, err)
		p.update(runAt(3*time.Second, 250, "filter"))
		p.end(nil, nil, exitOK)
		if want == "" {
			assert.Empty(t, b.String())
		}
		assert.True(t, strings.HasPrefix(b.String(), want), b.String())
	}
}

// terminal opens a pseudo-terminal. Output to inside is read from outside.
func terminal(t *testing.T) (outside, inside *os.File) {
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { outside.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { inside.Close() })
	require.NoError(t, unix.IoctlSetWinsize(int(outside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}))
	return outside, inside
}

func TestRunOnATerminalShowsItsProgress(t *testing.T) {
	outside, inside := terminal(t)
	path := endlessJob(t, "")
	cmd := start(t, inside, "run", path)
	seen := make(chan string)
	go func() {
		defer close(seen)
		var text strings.Builder
		for b := make([]byte, 4096); ; {
			n, err := outside.Read(b)
			text.Write(b[:n])
			if err != nil {
				return
			}
			if strings.Count(text.String(), "output") >= 2 {
				seen <- text.String()
				return
			}
		}
	}()
	select {
	case text := <-seen:
		assert.Contains(t, text, "a (scan)")
		assert.Contains(t, text, "(inner join)")
		assert.Contains(t, text, "\x1b[", "it is redrawn")
	case <-time.After(time.Minute):
		t.Error("no progress in a minute")
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	leavesNothing(t, path)
}

// records parses the output of --progress json. It must be nothing but JSON, one value a
// line.
func records(t *testing.T, stderr string) (out []map[string]any) {
	for _, line := range strings.Split(strings.TrimSpace(stderr), "\n") {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		out = append(out, r)
	}
	return out
}

func TestJSONProgressEndsWithARecordOfTypeDoneAndHasNothingElse(t *testing.T) {
	path, out := jobFile(t, "  - filter: o_orderkey > 100", "")
	bad, _ := jobFile(t, "  - filter: no_such_column > 100", "")
	failing, _ := jobFile(t, "  - select: [o_orderkey // (o_orderkey - o_orderkey) as x]", "")
	for _, c := range []struct {
		path  string
		code  int
		error string
	}{{path, exitOK, ""}, {bad, exitJob, "no_such_column"}, {failing, exitData, "divided by zero"}} {
		report := filepath.Join(t.TempDir(), "report.json")
		var stdout, stderr strings.Builder
		code := run(context.Background(), []string{"run", c.path, "--progress", "json", "--log-level", "info",
			"--report", report}, &stdout, &stderr, &leftovers{})
		require.Equal(t, c.code, code, stderr.String())
		all := records(t, stderr.String())
		last := all[len(all)-1]
		require.Equal(t, "done", last["type"])
		require.EqualValues(t, c.code, last["exit_code"])
		require.Equal(t, c.code == exitOK, last["done"])
		for _, r := range all[:len(all)-1] {
			require.Contains(t, []string{"progress", "log"}, r["type"])
		}
		text, err := os.ReadFile(report)
		require.NoError(t, err, "a run that fails has a report")
		var inFile map[string]any
		require.NoError(t, json.Unmarshal(text, &inFile))
		for _, r := range []map[string]any{last, inFile} {
			if c.error == "" {
				require.NotContains(t, r, "error")
				continue
			}
			require.Contains(t, r["error"], c.error)
		}
		keysAreSnakeCase(t, inFile)
	}
	require.FileExists(t, out)
}

func keysAreSnakeCase(t *testing.T, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			require.Regexp(t, "^[a-z0-9_]+$", key)
			keysAreSnakeCase(t, value)
		}
	case []any:
		for _, value := range v {
			keysAreSnakeCase(t, value)
		}
	}
}

func TestProgressOfTasks(t *testing.T) {
	r := &pipeline.Report{Wall: 61 * time.Second, Tasks: []pipeline.FragmentReport{
		{Fragment: 1, Does: "orders: scan", Tasks: 4, Ended: 4, Lost: 1},
		{Fragment: 2, Does: "match: inner join", Tasks: 8, Ended: 3, Running: 4, Rows: 1234,
			Slowest: 2500 * time.Millisecond},
		{Fragment: 3, Does: "sort"},
	}}
	var plain bytes.Buffer
	plainProgress{&plain}.update(r)
	assert.Equal(t, "1m1s: 7 of 12 tasks ended, of 2 of 3 fragments, 4 running, 1 attempt lost, fragment 2 (match: "+
		"inner join): 3 of 8, 1,234 rows, the slowest took 2.5s\n", plain.String())
	var s screen
	live := &liveProgress{w: &s, size: func() (int, int, error) { return 100, 20, nil }}
	live.update(r)
	live.update(r)
	assert.Equal(t, "1m1s  7 of 12 tasks ended, of 2 of 3 fragments, 4 running, 1 attempt lost\n"+
		"  fragment 2 (match: inner join): 3 of 8, 1,234 rows, the slowest took 2.5s", s.String())
	for range 9 {
		r.Tasks = append(r.Tasks, r.Tasks[1])
	}
	live.size = func() (int, int, error) { return 100, 6, nil }
	live.update(r)
	assert.Contains(t, s.String(), "and 7 more")
	assert.Less(t, len(s.lines), 6)
	live.end(r, nil, 0)
	assert.Empty(t, s.String())
}
