package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/operators/expr"
)

//go:generate sh -c "go run . functions --format markdown > ../../docs/functions.md"

func newFunctions() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "functions [PATTERN]",
		Short: "Print the functions, operators, types and date parts of expressions",
		Long: `functions prints the functions, operators, types and date parts of SQL expressions in
jobs, with result types and examples: all of them, or those with PATTERN in the name, or
else in the description, regardless of case.`,
		Example: "  gstream functions\n  gstream functions date\n  gstream functions date_trunc --format json",
		Args: func(cmd *cobra.Command, list []string) error {
			if len(list) == 0 {
				return nil
			}
			return args(1, "at most one pattern")(cmd, list)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, e := range expr.Reference() {
				names = append(names, e.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if format == "markdown" {
				if len(args) > 0 {
					return usageError(errors.New("--format markdown prints the whole reference, without a pattern"))
				}
				_, err := fmt.Fprint(cmd.OutOrStdout(), markdownReference())
				return err
			}
			list := reference(expr.Reference())
			if len(args) > 0 {
				if list = list.matching(args[0]); len(list) == 0 {
					if slices.Contains(expr.MissingFunctions(), strings.ToLower(args[0])) {
						if why := expr.WhyMissing(strings.ToLower(args[0])); why != "" {
							return usageError(fmt.Errorf("gstream does not have DuckDB's function %s: %s", args[0],
								why))
						}
						return usageError(fmt.Errorf("gstream does not have DuckDB's function %s yet", args[0]))
					}
					return usageError(fmt.Errorf("no function, operator, type or date part has %q in its name "+
						"or description", args[0]))
				}
			}
			return printValue(cmd.OutOrStdout(), format, list)
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "form of the output: text, json or markdown")
	complete(cmd, "format", "text", "json", "markdown")
	return cmd
}

// reference is the output of gstream functions.
type reference []expr.Entry

// matching returns the entries with a text in a name, or else in the description.
func (r reference) matching(text string) reference {
	text = strings.ToLower(text)
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	named := slices.DeleteFunc(slices.Clone(r),
		func(e expr.Entry) bool { return !has(e.Name) && !slices.ContainsFunc(e.Aliases, has) })
	if len(named) > 0 {
		return named
	}
	return slices.DeleteFunc(slices.Clone(r), func(e expr.Entry) bool { return !has(e.About) && !has(e.Syntax) })
}

func (r reference) String() string {
	var b strings.Builder
	if len(r) <= 5 {
		for i, e := range r {
			if i > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "%s\n  %s\n", e.Syntax, e.About)
			t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
			if len(e.Aliases) > 0 {
				fmt.Fprintf(t, "  also\t%s\n", strings.Join(e.Aliases, ", "))
			}
			fmt.Fprintf(t, "  result\t%s\n  null\t%s\n", e.Result, e.Nulls)
			for _, x := range e.Examples {
				fmt.Fprintf(t, "  example\t%s → %s\n", x.SQL, x.Result)
			}
			t.Flush()
		}
		return b.String()
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	chapter := ""
	for _, e := range r {
		if e.Chapter != chapter {
			if chapter != "" {
				fmt.Fprintln(t, "\t")
			}
			chapter = e.Chapter
			fmt.Fprintf(t, "%s\t\n", chapter)
		}
		fmt.Fprintf(t, "  %s\t%s\n", e.Syntax, e.About)
	}
	t.Flush()
	return b.String()
}

// markdownReference returns docs/functions.md.
func markdownReference() string {
	var b strings.Builder
	b.WriteString(`# Functions and operators

SQL expressions in jobs may use these. ` + "`gstream functions`" + ` prints them, and
` + "`go generate ./cmd/gstream`" + ` writes this page. Names and types are DuckDB's. Every example is a
test on each device, and is compared with DuckDB. [Semantics](semantics.md) has the rules, the
aggregates and the window functions. Unless stated otherwise, a result is null if an argument is null.
`)
	chapter := ""
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	for _, e := range expr.Reference() {
		if e.Chapter != chapter {
			chapter = e.Chapter
			fmt.Fprintf(&b, "\n## %s\n\n| | result | | example |\n|---|---|---|---|\n", chapter)
		}
		about := e.About
		if len(e.Aliases) > 0 {
			about += " Also `" + strings.Join(e.Aliases, "`, `") + "`."
		}
		if rest, never := strings.CutPrefix(e.Nulls, "never"); never {
			about += " Never null" + rest + "."
		} else if e.Nulls != "if an argument is" {
			about += " Null " + e.Nulls + "."
		}
		var examples []string
		for _, x := range e.Examples {
			examples = append(examples, "`"+x.SQL+"` → `"+x.Result+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", cell(e.Syntax), cell(e.Result), cell(about),
			cell(strings.Join(examples, "<br>")))
	}
	var missing, reasons []string
	for _, name := range expr.MissingFunctions() {
		if why := expr.WhyMissing(name); why != "" {
			reasons = append(reasons, "- `"+name+"`: "+why+".\n")
		} else {
			missing = append(missing, "`"+name+"`")
		}
	}
	fmt.Fprintf(&b, "\n## Not here\n\nDuckDB has these scalar functions of the types above; gstream does not "+
		"have them, or not yet:\n%s.\n\n%s\nOther functions of nested types, and those of the catalog and of "+
		"collations are not listed.\n",
		strings.Join(missing, ", "), strings.Join(reasons, ""))
	return b.String()
}
