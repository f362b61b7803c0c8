package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// console is a terminal with a process.
type console struct {
	t    *testing.T
	file *os.File
	mu   sync.Mutex
	text string // what the process has written, and no test has read
}

// onTerminal runs a command line in a terminal of its own.
func onTerminal(t *testing.T, dir string, args ...string) (*console, *exec.Cmd) {
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { file.Close() })
	fd := int(file.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer tty.Close()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, tty, tty, tty
	cmd.Env = append(os.Environ(), "GSTREAM_TEST_MAIN=1", "HOME="+t.TempDir(), "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { kill.Stop() })
	s := &console{t: t, file: file}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := file.Read(buf)
			s.mu.Lock()
			s.text += string(buf[:n])
			s.mu.Unlock()
			if strings.Contains(string(buf[:n]), "\x1b[6n") { // where is the cursor?
				_, _ = file.WriteString("\x1b[5;1R")
			}
			if err != nil {
				return
			}
		}
	}()
	return s, cmd
}

func (s *console) send(text string) {
	_, err := s.file.WriteString(text)
	require.NoError(s.t, err)
}

// waits reads until the process has written a text.
func (s *console) waits(text string) {
	s.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		s.mu.Lock()
		_, rest, ok := strings.Cut(s.text, text)
		got := s.text
		if ok {
			s.text = rest
		}
		s.mu.Unlock()
		if ok {
			return
		}
		require.True(s.t, time.Now().Before(deadline), "no %q in %q", text, got)
		time.Sleep(5 * time.Millisecond)
	}
}

// prompt waits for a prompt, and sends text.
func (s *console) prompt(text string) {
	s.t.Helper()
	s.waits("gstream> ")
	s.waits("\x1b[?25h") // the cursor, once the line is drawn
	s.send(text)
}

// TestTheShellOnATerminal completes a path, edits two lines, interrupts a query, and takes a text of the history.
func TestTheShellOnATerminal(t *testing.T) {
	s, cmd := onTerminal(t, data, "sql", "--device", "host")
	s.waits(".help for help")
	s.prompt("CREATE VIEW o AS FROM 'ord\t")
	s.waits("'orders.parquet'")
	s.send(";\r")
	s.waits("\x1b[0 q")
	s.prompt("SELECT count(*) + 1 AS n\rFROM o;\r")
	s.waits("15001\r\n")
	s.prompt("SELECT count(*) AS n FROM o a, o b, o c WHERE a.o_comment < b.o_comment || c.o_comment;\r")
	s.waits("read 100 %") // it runs for longer than a second
	s.send("\x03")
	s.waits("gstream: interrupted; nothing was written")
	s.prompt("\x1b[A\x1b[A\r")
	s.waits("15001\r\n")
	s.prompt("\x04")
	require.NoError(t, cmd.Wait())
	s, cmd = onTerminal(t, data, "sql")
	s.prompt("")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Equal(t, 143, cmd.ProcessState.ExitCode())
}
