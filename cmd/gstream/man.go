package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan returns the hidden command that writes the manual pages for packages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages of all commands to a folder",
		Args:   args(1, "one folder"),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			return writePages(cmd.Root(), args[0])
		},
	}
}

// writePages writes the page of a command, and those of its commands.
func writePages(cmd *cobra.Command, dir string) error {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			if err := writePages(c, dir); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(manPage(cmd)), 0o666)
}

// pageName returns the name of the page of a command, as gstream-run.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// roff escapes a text. No line of it is taken for a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	var b strings.Builder
	for _, r := range strings.Join(lines, "\n") {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}

// manPage returns the page of a command in the macros of man(7). Texts keep their lines, since they have tables.
func manPage(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	section := func(name string) { fmt.Fprintf(&b, ".SH %s\n", name) }
	asIs := func(text string) { fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(strings.Trim(text, "\n"))) }
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"gstream %s\" \"gstream\"\n", roff(strings.ToUpper(pageName(cmd))), roff(version()))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(pageName(cmd)), roff(strings.ToLower(cmd.Short[:1])+cmd.Short[1:]))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n", roff(cmd.UseLine()))
	section("DESCRIPTION")
	if cmd.Long == "" {
		fmt.Fprintf(&b, "%s.\n", roff(cmd.Short))
	} else {
		asIs(cmd.Long)
	}
	flags := func(name string, set *pflag.FlagSet) {
		if !set.HasAvailableFlags() {
			return
		}
		section(name)
		set.VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			kind, usage := pflag.UnquoteUsage(f)
			head := "--" + f.Name
			if f.Shorthand != "" {
				head = "-" + f.Shorthand + ", " + head
			}
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
				usage += " (default " + f.DefValue + ")"
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(head+" "+kind)), roff(usage))
		})
	}
	flags("OPTIONS", cmd.NonInheritedFlags())
	flags("OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		section("EXAMPLES")
		asIs(cmd.Example)
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, pageName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			others = append(others, pageName(c))
		}
	}
	if len(others) > 0 {
		section("SEE ALSO")
		for i, o := range others {
			others[i] = fmt.Sprintf("\\fB%s\\fR(1)", roff(o))
		}
		fmt.Fprintf(&b, "%s\n", strings.Join(others, ", "))
	}
	return b.String()
}
