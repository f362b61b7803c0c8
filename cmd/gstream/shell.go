package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/reeflective/readline"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gstream/gstream/pipeline"
)

const shellHelp = `A statement ends with a semicolon, and may have several lines. Ctrl-C ends a query, or
drops what is typed. Views, temporary tables and settings last until the end.

  .help           this list
  .tables         the views, and the Parquet files of the folder
  .timer on|off   print how long each statement took
  .quit           end the shell, as Ctrl-D does

gstream sql --help describes the statements, and gstream functions the functions.
`

// interactive reports whether the command reads from a terminal and writes to one.
func interactive(cmd *cobra.Command) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	out, also := cmd.OutOrStdout().(*os.File)
	return ok && also && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// shell reads statements from a terminal and runs them, until the end of the input.
func (f *sqlFlags) shell(cmd *cobra.Command) error {
	if len(f.params) > 0 {
		return usageError(errors.New("--param is for the parameters of a query; give one, or a file by --file"))
	}
	s := &shell{sqlFlags: f, cmd: cmd, devices: devicePool{}}
	editor := readline.NewShell()
	editor.Config.Vars["completion-ignore-case"] = true
	editor.Prompt.Primary(func() string { return "gstream> " })
	editor.Prompt.Secondary(func() string { return "      -> " })
	editor.AcceptMultiline = func(line []rune) bool { return isInput(string(line)) }
	c := &completer{shell: s, columns: map[string][]string{}}
	editor.Completer = func(line []rune, cursor int) readline.Completions {
		words, typed := c.complete(string(line[:cursor]), string(line[cursor:]))
		out := readline.CompleteValues(words...).NoSpace('(', '\'', '/')
		out.PREFIX = typed
		return out
	}
	if path := historyFile(); path != "" {
		if history, err := readline.NewHistoryFromFile(path); err == nil {
			editor.History.Delete()
			editor.History.Add("history", history)
		}
	}
	terminal := int(os.Stdin.Fd())
	if state, err := term.GetState(terminal); err == nil {
		defer func() { _ = term.Restore(terminal, state) }() // a signal may end the shell while it reads
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s; .help for help\n", versionLine())
	return s.loop(func() (string, error) {
		line, err := editor.Readline()
		if errors.Is(err, readline.ErrInterrupt) {
			return "", nil
		}
		return line, err
	})
}

// historyFile returns the file of the history in the user's home, "" if there can be none.
func historyFile() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	path := filepath.Join(home, ".gstream_history")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return ""
	}
	_ = file.Close()
	return path
}

// isInput reports whether a text can be run: a command of the shell, complete statements, or nothing.
func isInput(text string) bool {
	text = strings.TrimSpace(text)
	return text == "" || text[0] == '.' || isQuit(text) || pipeline.IsComplete(text)
}

func isQuit(text string) bool {
	word := strings.ToLower(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), ";")))
	return slices.Contains([]string{".quit", ".exit", "quit", "exit"}, word)
}

// shell runs what is typed.
type shell struct {
	*sqlFlags
	cmd     *cobra.Command
	devices devicePool
	timer   bool
}

// loop runs texts until read returns an error; io.EOF is the end.
func (s *shell) loop(read func() (string, error)) (err error) {
	if !s.left.ends {
		defer func() { err = errors.Join(err, s.devices.close()) }()
	}
	type input struct {
		text string
		err  error
	}
	for {
		typed := make(chan input, 1)
		go func() {
			text, err := read()
			typed <- input{text, err}
		}()
		var in input
		select {
		case <-s.cmd.Context().Done():
			return context.Cause(s.cmd.Context())
		case in = <-typed:
		}
		if errors.Is(in.err, io.EOF) {
			return nil
		}
		if in.err != nil {
			return in.err
		}
		text := in.text
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if isQuit(text) {
			return nil
		}
		begin, command := time.Now(), text[0] == '.'
		if command {
			err = s.command(strings.Fields(text))
		} else {
			err = s.run(text)
		}
		if err != nil && !errors.As(err, new(reported)) {
			printError(s.cmd.ErrOrStderr(), err)
		}
		if err = nil; s.timer && !command {
			fmt.Fprintf(s.cmd.OutOrStdout(), "took %.3f s\n", time.Since(begin).Seconds())
		}
	}
}

// command runs a command of the shell.
func (s *shell) command(words []string) error {
	out := s.cmd.OutOrStdout()
	switch {
	case words[0] == ".help":
		fmt.Fprint(out, shellHelp)
	case words[0] == ".tables":
		files, _ := filepath.Glob("*.parquet")
		for _, name := range append(s.session.Tables(), quoted(files)...) {
			fmt.Fprintln(out, escapeText(name))
		}
	case words[0] == ".timer" && len(words) == 2 && (words[1] == "on" || words[1] == "off"):
		s.timer = words[1] == "on"
	case words[0] == ".timer":
		return usageError(errors.New(".timer takes on or off"))
	default:
		return usageError(fmt.Errorf("there is no command %s; .help lists the commands", words[0]))
	}
	return nil
}

// quoted returns paths as SQL has them.
func quoted(paths []string) (list []string) {
	for _, p := range paths {
		list = append(list, "'"+strings.ReplaceAll(p, "'", "''")+"'")
	}
	return list
}

// run runs statements. An interrupt ends them, and not the shell.
func (s *shell) run(text string) error {
	ctx, cancel := context.WithCancelCause(s.cmd.Context())
	defer cancel(nil)
	s.left.onInterrupt(func() bool {
		first := ctx.Err() == nil
		cancel(stopped{syscall.SIGINT})
		return first
	})
	defer s.left.onInterrupt(nil)
	before := s.cmd.Context()
	s.cmd.SetContext(ctx)
	defer s.cmd.SetContext(before)
	list, err := s.session.Parse("", text, nil)
	if err != nil {
		return err
	}
	return s.statements(s.cmd, list, s.devices)
}
