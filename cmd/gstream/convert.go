package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/pipeline"
)

func newConvert() *cobra.Command {
	var flags jobFlags
	cmd := &cobra.Command{
		Use:   "convert JOB",
		Short: "Print a job as SQL",
		Long: `convert prints a job as an SQL text that gstream sql runs, with the same rows. Steps
become the clauses of one SELECT as long as they are in the order of SQL. A step with a
name becomes a common table expression. Variables are replaced by their values.

What has no form in SQL is an error at its place: a mark join, a source with a schema, a
source whose files may be missing, a value from the environment. Hints for the time, such
as the algorithm of a join, become comments.

convert plans the job and the text and compares their columns, so the sources must exist.`,
		Example: `  gstream convert job.yaml
  gstream convert job.yaml --set day=1995-06-01 > job.sql
  gstream sql -f job.sql`,
		Args: args(1, "one job file"),

		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := flags.load(args[0])
			if err != nil {
				return err
			}
			text, err := pipeline.ToSQL(cmd.Context(), job)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	flags.register(cmd)
	return cmd
}
